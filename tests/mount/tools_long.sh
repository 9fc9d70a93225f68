#!/bin/bash
# tests/mount/tools_long.sh - as tools.sh, with programs that are large or slow; only in long runs.
#
# shellcheck source=tests/mount/tools_lib.sh
# shellcheck disable=SC2154,SC2317,SC2034 # functions that are called by name, variables that are
. "$(dirname "$0")/tools_lib.sh"

if [ "${LONG:-}" != 1 ]; then
    echo "skipped: only in make check-long"
    exit 77
fi

needs_vim=vim
tool_vim() {
    cp "$tables/people.tsv" t
    for how in backupcopy=yes backupcopy=no; do
        vim -u NONE -i NONE -es -c "set $how backup swapfile directory=. backupdir=. updatecount=1 fsync" \
            -c '%s/word\(\d\+\)/\1/e' -c '3d' -c 'normal Goa last row' -c 'wq' t
        ls -A
    done
    vim -u NONE -i NONE -es -c 'w! copy' -c 'e copy' -c '%!sort -r' -c 'wq' t
    diff t t~ | wc -l
}

needs_miller=mlr
tool_miller() {
    mlr --tsv --implicit-tsv-header --headerless-tsv-output sort -f 2 "then" cut -f 1,2 "$tables/people.tsv" >t
    mlr -I --tsv --implicit-tsv-header --headerless-tsv-output put '$3 = $1 * 2' t
    mlr --itsv --ojson --implicit-tsv-header stats1 -a sum,count -f 1 t
    mlr --tsv --implicit-tsv-header --headerless-tsv-output split -n 500 t
    ls
}

needs_csvkit="csvcut csvsql"
tool_csvkit() {
    { printf 'id\tname\tword\n' && cat "$tables/people.tsv"; } >t.tsv
    csvcut -t -c name,word t.tsv >cut.csv && csvsort -c name cut.csv >sorted.csv && csvgrep -c word -m word3 sorted.csv | csvstat --count
    csvsql --db sqlite:///db.sqlite --insert --tables t -t t.tsv && sql2csv --db sqlite:///db.sqlite --query 'select count(*) from t'
    rm db.sqlite
}

needs_visidata=vd
tool_visidata() {
    export HOME=$PWD
    { printf 'id\tname\tword\n' && cat "$tables/people.tsv"; } >t.tsv
    vd -b t.tsv -o t.json >/dev/null 2>&1
    vd -b t.json -o t.csv >/dev/null 2>&1
    wc -l t.csv
    rm -rf .visidata
}

# A cluster of its own, which COPY reads and writes tables for.
needs_postgresql="setpriv /usr/lib/postgresql/15/bin/initdb"
tool_postgresql() {
    bin=/usr/lib/postgresql/15/bin
    cluster=$(mktemp -d)
    chown postgres "$cluster"
    as_postgres() { (cd "$cluster" && setpriv --reuid=postgres --regid=postgres --clear-groups "$@"); }
    sql() { psql -q -U postgres -h "$cluster" -d postgres "$@"; }
    trap 'as_postgres "$bin/pg_ctl" -D "$cluster/data" -m immediate stop >/dev/null || :; rm -rf "$cluster"' EXIT
    as_postgres "$bin/initdb" -D "$cluster/data" -A trust >/dev/null
    as_postgres "$bin/pg_ctl" -D "$cluster/data" -w -o "-c listen_addresses='' -c unix_socket_directories=$cluster" \
        -l "$cluster/log" start >/dev/null
    cp "$tables/people.tsv" t
    sql -c 'create table p (id int primary key, name text, word text)' -c "\\copy p from 't'" \
        -c "update p set word = upper(word) where id % 2 = 0" -c "\\copy (select * from p order by id) to 'back'"
    sql -c "\\copy p to program 'sort -n > sorted'"
    cmp back sorted && wc -l back
}

needs_fio=fio
tool_fio() {
    for how in "--ioengine=psync" "--ioengine=psync --direct=1" "--ioengine=mmap" "--ioengine=sync --sync=1" "--ioengine=vsync"; do
        # shellcheck disable=SC2086 # words
        fio --name=f --directory=. $how --rw=randrw --bsrange=512-64k --size=4M --numjobs=4 --verify=crc32c --do_verify=1 \
            --randseed=1 --verify_fatal=1 --end_fsync=1 --fallocate=none --output=/dev/null
        stat -c '%n %s' f.*
        rm f.* ./local-* 2>/dev/null || :
    done
    echo verified >left
}

run_tools
