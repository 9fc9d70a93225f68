#!/bin/bash
# tests/mount/tools.sh - Unix tools on a mount do what they do in a plain directory (tools_lib.sh).
#
# TOOL=NAME runs only those that match; FILES=n sets how many files are removed at once.
# shellcheck source=tests/mount/tools_lib.sh
# shellcheck disable=SC2154,SC2317,SC2034 # functions that are called by name, variables that are
. "$(dirname "$0")/tools_lib.sh"

export FILES=${FILES:-2000}
[ "${LONG:-}" != 1 ] || FILES=100000

# ---- editing ----

tool_sed() {
    cp "$tables/people.tsv" t
    ln -s t link
    sed -i 's/name1/NAME1/; /word3$/d' t
    sed -i.bak 5q t
    sed -i --follow-symlinks '$d' link
    sed -n 'w written' t
    wc -l t t.bak written
}

tool_perl() {
    cp "$tables/people.tsv" t
    chmod 640 t
    perl -i -pe 's/word(\d+)/$1/' t
    perl -i.orig -ne 'print if $. % 2' t
    perl -e 'open(F, "+<", "t") or die; seek(F, 10, 0); print F "PERL"; truncate(F, 1000); close F or die'
    stat -c '%a %s' t t.orig
}

needs_nano=nano
tool_nano() {
    cp "$tables/numbers.tsv" t
    TERM=xterm python3 - nano -I -B t <<'END'
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
keys = [b"typed\r", b"\x18", b"y", b"\r"]  # rows, exit, save it, by that name
try:
    while os.read(terminal, 65536):
        if keys:
            os.write(terminal, keys.pop(0))
except OSError:  # it is gone
    pass
os.waitpid(pid, 0)
END
    head -n 2 t
    ls
}

tool_patch() {
    cp "$tables/people.tsv" a
    sed 's/name1/other1/' a >b
    diff -u --label a --label b a b >p || :
    patch -b a p
    cmp a b
    patch -R a p
}

# ---- tables ----

tool_sort() {
    cp "$tables/people.tsv" t
    sort -k2,2 -o t t
    sort -S 16K -T . -k3,3 -k1,1nr --parallel=2 -o u t
    sort -u -k3,3 t | tee -a v | wc -l
    sort -m -k3,3 v v | uniq -c | head -n 3
    sort -c -k2,2 t
    shuf --random-source="$tables/numbers.tsv" -o t t
    tac t | rev >r
    md5sum t u v r >sums
    md5sum -c sums
}

tool_columns() {
    sort -k2,2 "$tables/people.tsv" >p
    sort "$tables/numbers.tsv" >n
    join -1 2 -2 1 -t $'\t' p n >j
    paste p n >both
    comm -12 <(cut -f1 n) <(cut -f2 p) >c
    look name01 n
    column -t n | head -n 3
    cut -f3 p | sort | uniq -c | sort -rn | head -n 2
    awk -F '\t' '{ sum[$3] += $1; print > ("by-" $3) } END { for (w in sum) print w, sum[w] }' p | sort
    head -c 1000 p | tail -n 3 | fold -w 20 | nl | expand | tr a-z A-Z | od -c | head -n 3
}

tool_split() {
    split -l 300 --additional-suffix=.part "$tables/people.tsv" lines-
    split -b 7K "$tables/people.tsv" bytes-
    split -n r/3 "$tables/people.tsv" round-
    split -l 500 --filter='gzip -n >$FILE.gz' "$tables/people.tsv" packed-
    csplit -s "$tables/people.tsv" '/word5$/' '{3}'
    cat bytes-* | cmp - "$tables/people.tsv"
}

tool_tee() {
    seq 1000 | tee -a one two >three
    seq 1000 | tee -a one | wc -l
    for i in 1 2 3; do echo "row $i" >>one; done
    printf 'no newline' >>one
    wc one two three
}

needs_sponge="sponge ts"
tool_sponge() {
    cp "$tables/people.tsv" t
    grep word1 t | sponge t
    cut -f1 t | sponge -a t
    wc t
}

needs_datamash=datamash
tool_datamash() {
    datamash -s -g 3 count 1 sum 1 mean 1 <"$tables/people.tsv" >t
    datamash transpose <t
}

# ---- copying ----

tool_cp() {
    mkdir -p from/sub
    cp "$tables"/*.tsv from
    ln from/people.tsv from/sub/hard
    ln -s ../numbers.tsv from/sub/soft
    mkfifo from/sub/fifo
    setfattr -n user.note -v kept from/numbers.tsv
    truncate -s 1M from/sparse && echo end >>from/sparse
    chmod 2750 from/sub
    touch -d 2002-02-02 from/sparse from/sub
    cp -a from archive
    cp -r --preserve=mode --reflink=auto from recursive
    cp -al from links
    cp --sparse=always from/sparse holes
    cp --sparse=never from/sparse full
    cp --backup=numbered from/people.tsv holes
    cp -u from/people.tsv archive
    cp -s "$tables/people.tsv" symbolic && rm symbolic
    install -m 750 -D from/people.tsv made/for/it
    diff -r -x fifo --no-dereference from archive
    [ "$(stat -c %b holes)" -lt "$(stat -c %b full)" ]
}

tool_mv() {
    cp "$tables"/*.tsv .
    mkdir d e
    mv people.tsv d
    mv -n numbers.tsv d/people.tsv
    mv -b numbers.tsv d/people.tsv
    mv -T d e
    mv e/people.tsv e/people.tsv~ .
    ln -sfn e link && ln -sfn . link
    mv people.tsv $'odd\nname \xff' && mv -- $'odd\nname \xff' -rf && mv -- -rf back
    ls -R
}

tool_dd() {
    for conv in ascii ebcdic ibm block unblock lcase ucase sparse swab sync excl notrunc noerror fdatasync fsync; do
        dd if="$tables/people.tsv" of="$conv" cbs=80 bs=4000 conv="$conv" status=none
    done
    dd if="$tables/people.tsv" of=ucase bs=1000 seek=2 count=3 conv=notrunc status=none
    dd if="$tables/people.tsv" of=ucase bs=1K oflag=append conv=notrunc,nocreat status=none
    dd if="$tables/people.tsv" of=direct bs=4K iflag=fullblock oflag=dsync,nofollow status=none
    dd if=lcase bs=100 skip=3 count=2 iflag=skip_bytes,count_bytes status=none
    dd if=/dev/zero of=far bs=1 count=1 seek=5G status=none
    ! dd if=/dev/null of=dd conv=nocreat status=none
    rm far
}

tool_holes() {
    cp "$tables/people.tsv" t
    truncate -s 1M t
    fallocate -p -o 8192 -l 16384 t
    fallocate -z -o 30000 -l 5000 t
    fallocate -l 2M t
    fallocate -n -o 3M -l 4096 t
    fallocate -d t
    truncate -s -1000 t
    truncate -s '%512' t
    truncate -r "$tables/numbers.tsv" u
    cp t shredded && shred -n 1 -z shredded && shred -u shredded
    stat -c %s t u
}

tool_tar() {
    mkdir -p tree/sub
    cp -p "$tables"/*.tsv tree
    ln tree/people.tsv tree/sub/hard && ln -s people.tsv tree/soft
    truncate -s 1M tree/sparse && echo x >>tree/sparse
    setfattr -n user.note -v kept tree/sub
    touch -d 2003-03-03 tree/sparse tree/sub tree/numbers.tsv
    tar -S --xattrs --sort=name --format=posix --pax-option=delete=atime,delete=ctime -cf a.tar tree
    tar -df a.tar
    mkdir out && tar -x --xattrs -C out -f a.tar
    diff -r --no-dereference tree out/tree
    tar -rf a.tar -C out tree/people.tsv && tar -tf a.tar | sort
    rm a.tar # times of this hour are in it
}

tool_packers() {
    cp -p "$tables"/*.tsv .
    gzip -nk people.tsv && bzip2 -k people.tsv && xz -k people.tsv
    zcat people.tsv.gz | cmp - people.tsv && bzcat people.tsv.bz2 | cmp - people.tsv && xzcat people.tsv.xz | cmp - people.tsv
    gzip numbers.tsv && gunzip numbers.tsv.gz
    touch -d 2004-04-04 ./*
    zip -qX a.zip ./*.tsv && unzip -qd out a.zip && cmp out/people.tsv people.tsv
    zip -qd a.zip people.tsv && unzip -tq a.zip
    rm a.zip
}

tool_rsync() {
    mkdir -p from/sub
    cp -p "$tables"/*.tsv from
    ln from/people.tsv from/sub/hard && ln -s ../numbers.tsv from/sub/soft
    setfattr -n user.note -v kept from/people.tsv
    touch -d 2005-05-05 from/numbers.tsv from/sub from
    chown 1234:1234 from/numbers.tsv
    rsync -aHAX from/ to
    echo "and again:" && rsync -aHAXi from/ to
    echo row >>from/numbers.tsv
    rsync -aHAXi --inplace --no-times --delete from/ to
    rm from/sub/soft && rsync -aic --no-times --append-verify --delete from/ to | grep deleting
    echo row >>from/numbers.tsv
    rsync -ac --no-times --sparse --backup --suffix=.old from/ to
    ls to
}

# ---- programs with files of their own ----

tool_git() {
    export HOME=$PWD GIT_AUTHOR_DATE=2020-01-01T00:00:00 GIT_COMMITTER_DATE=2020-01-01T00:00:00 GIT_CONFIG_NOSYSTEM=1
    git config --global user.email a@b && git config --global user.name n && git config --global pack.threads 1
    git -c init.defaultBranch=main init -q r && cd r
    cp "$tables"/*.tsv . && ln -s people.tsv link && mkdir d && cp "$tables/people.tsv" d
    git add . && git commit -qm one
    sed -i 's/word3/WORD3/' people.tsv && git diff --stat && git commit -qam two
    git checkout -qb side HEAD~ && git rm -q numbers.tsv && git mv d e && git commit -qm three
    git checkout -q main && git merge -q --no-edit side && git stash list
    git gc -q && git fsck --full --strict && git clone -q . ../c && git -C ../c log --format='%H %s'
    git status --short && git -C ../c status --short && git worktree add -q ../w side && git -C ../w log --oneline
    cd .. && rm -rf r/.git c/.git w/.git
}

tool_sqlite() {
    for mode in delete wal truncate persist; do
        sqlite3 "$mode.db" "pragma journal_mode=$mode; create table p (id integer primary key, name, word);" \
            ".mode tabs" ".import $tables/people.tsv p" "update p set word = 'w' where id % 3 = 0;" \
            "begin; delete from p where id > 1000; rollback;" "create index i on p (name);" "vacuum;" "pragma integrity_check;"
        for i in 1 2 3 4; do sqlite3 -cmd '.timeout 60000' "$mode.db" "insert into p (name) values ($i)" & done
        wait
        sqlite3 "$mode.db" "select count(*), sum(id), count(distinct name) from p"
        sqlite3 "$mode.db" "select * from p where id <= 2000 order by id" | md5sum
        rm -f "$mode.db"*
    done
    echo 'all modes' >left
}

tool_compiler() {
    printf '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n' >hello.c
    printf 'hello: hello.c\n\tcc -o $@ $<\nall: hello\n\t./hello\n' >Makefile
    make all
    make hello
    touch -d '+1 minute' hello.c && make -n hello
    ar rc lib.a hello.c && ar t lib.a
    rm hello lib.a
}

tool_python() {
    python3 - <<'END'
import fcntl, mmap, os, shutil, tempfile
shutil.copytree(os.environ["tables"], "tree", copy_function=shutil.copy2)
with open("tree/people.tsv", "r+b") as f:
    with mmap.mmap(f.fileno(), 0) as m:
        print(m.find(b"name0007"), len(m))
        m[0:4] = b"MMAP"
        m.flush()
    fcntl.lockf(f, fcntl.LOCK_EX)
    f.seek(0, 2)
    f.write(b"last row\n")
with tempfile.TemporaryFile(dir=".") as f:
    f.write(b"x" * 100000)
    f.seek(0)
    print(len(f.read()), os.fstat(f.fileno()).st_nlink)
with open("new", "w") as f:
    f.write("replaced\n")
os.replace("new", "tree/numbers.tsv")
fd = os.open("direct", os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
print(os.pwritev(fd, [b"abc", b"", b"def"], 10), os.preadv(fd, [bytearray(4), bytearray(100)], 9), os.lseek(fd, 0, os.SEEK_END))
print(sorted(os.listdir(".")), [e.is_dir() for e in os.scandir(".") if e.name == "tree"])
END
}

# ---- several at once ----

needs_parallel=parallel
tool_parallel() {
    export HOME=$PWD PARALLEL_HOME=$PWD/.parallel
    seq 40 | parallel --will-cite -j 4 'echo row {} >>rows'
    parallel --will-cite -j 4 -k --pipepart --block 10k -a "$tables/people.tsv" wc -l
    sort -V -o rows rows
    rm -rf .parallel
}

tool_flock() {
    echo 0 >count
    for i in 1 2 3 4; do
        for n in 1 2 3 4 5 6 7 8 9 10; do
            flock lock sh -c 'read -r n <count; echo $((n + 1)) >count'
        done &
    done
    wait
    cat count
    exec 9>lock && flock 9 && ! flock -n lock true && exec 9>&- && flock -n lock echo free
}

needs_inotifywait=inotifywait
tool_inotifywait() {
    mkdir watched && touch old said
    inotifywait -m -e create,moved_to,delete,close_write --format '%e %f' watched >events 2>said &
    pid=$!
    until grep -q established said; do kill -0 $pid && sleep 0.02; done
    echo row >watched/new
    mv old watched && rm watched/old
    until grep -q DELETE events; do kill -0 $pid && sleep 0.02; done
    kill $pid && wait $pid || :
    rm said
}

tool_fifo() {
    mkfifo f
    cat f >out &
    seq 100 >f
    wait
    tail -n 1 out
}

# ---- trees ----

tool_removal() {
    mkdir -p a/{1..20} b/{1..20}
    for side in a b; do seq -f "$side/%.0f" $((FILES / 2)) | awk -v n=20 '{ split($1, p, "/"); print p[1] "/" (p[2] % n + 1) "/" p[2] }' | xargs touch; done
    find . -type f | wc -l
    find a -delete
    rm -rf b
    ls -A
    touch left
}

tool_metadata() {
    mkdir -p d/{1,2}/x && cp "$tables"/*.tsv d/1 && cp "$tables"/*.tsv d/2/x
    chmod -R u=rwX,go= d && find d -printf '%m %p\n' | sort && chmod -R g+rX,o+t d/1
    chown -R 1:2 d/2 && stat -c '%u:%g' d/2/x/*
    chgrp -h 3 d/1/people.tsv && touch -h -d '1999-12-31 23:59:59.999999999' d/1/people.tsv
    touch -r d/1/people.tsv d/1/numbers.tsv && stat -c '%y %F %A' d/1/*.tsv
    setfattr -n user.a -v 1 d/1/people.tsv && setfattr -n user.b -v 0x00ff d && getfattr -d d d/1/people.tsv >attributes
    setfattr -x user.a d/1/people.tsv && setfattr --restore=attributes && getfattr -d d d/1/people.tsv | cmp - attributes
    du -b d/1/*.tsv && du --inodes -s d && df . >/dev/null && stat -f -c %l . && ls -l d/1 | wc -l
    find d -newermt 2000-01-01 -size +10k -name '*.tsv' | sort && find d -type f -links 1 -print0 | xargs -0 ls | sort
    namei -m d/1/people.tsv | tail -n 1
    test -w d/1 && test ! -e nothing && readlink -f d/../d/1 | grep -o 'd/1'
}

needs_ripgrep=rg
tool_ripgrep() {
    cp -r "$tables" t
    rg --mmap --sort path -c word11 t
    grep -rc word11 t | sort
    cmp t/people.tsv "$tables/people.tsv"
    sum t/people.tsv && cksum t/people.tsv && b2sum t/people.tsv
    file_bytes=$(wc -c <t/people.tsv) && echo "$file_bytes"
    diff -rq t "$tables"
}

run_tools
