#!/bin/bash
# tests/mount/system_tables.sh - the tables of MNT/.tblfs: their form, their sums, and that reading them costs nothing.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

make_tables() {
    local number
    for number in {1..40}; do
        seq 1 2000 >"$mnt/table$number"
    done
    rm "$mnt/table40"
    until [ -n "$(rows "$mnt/.tblfs/sweeps")" ]; do
        sleep 0.02
    done
    mkdir "$mnt/.txn/open" "$mnt/.snap/kept"
    echo row >>"$mnt/.txn/open/table1"
    t=$(mktemp -d -p "$mnt/.txn")
    echo row >>"$t/table2"
    mkdir "$t/.commit"
}

# Every line of every table has the fields that its first line names.
every_table_has_named_columns() {
    local table names
    for table in "$mnt"/.tblfs/*; do
        case ${table##*/} in metrics | backup) continue ;; esac # no tables
        [ -f "$table" ] || continue
        awk -F '\t' -v table="$table" 'NR == 1 && !/^[a-z0-9_]+(\t[a-z0-9_]+)*$/ { print table ": columns " $0; bad = 1; exit 1 }
            NR == 1 { columns = NF } NF != columns { print table ": " $0; bad = 1; exit 1 }
            END { if (!bad && NR == 0) { print table ": empty"; exit 1 } }' "$table" || fail "not a table"
        names=$(rows "$table" | wc -l)
        case ${table##*/} in
        archive | progress | checkpoints) ;;
        *) [ "$names" -gt 0 ] || fail "$table has no lines" ;;
        esac
    done
    ok every_table_has_named_columns
}

# docs/man says of every table what its columns are.
columns_are_documented() {
    local table columns
    for table in "$mnt"/.tblfs/*; do
        case ${table##*/} in metrics | backup) continue ;; esac # no tables
        columns=$(head -n 1 "$table" | sed 's/\t/, /g')
        sed 's/\\//g' "$root/docs/man/tblfs-tables.5.scd" | grep -A 1 "^\*${table##*/}\*$" | grep -qxF "	Columns: $columns." ||
            fail "tblfs-tables(5) does not have ${table##*/}: $columns"
    done
    ok columns_are_documented
}

# One line; it grows by what is done, and counts commits.
position_goes_on() {
    local before after
    before=$(rows "$mnt/.tblfs/position")
    t=$(mktemp -d -p "$mnt/.txn")
    echo row >>"$t/table3"
    mkdir "$t/.commit"
    after=$(rows "$mnt/.tblfs/position")
    same "lines" "$(rows "$mnt/.tblfs/position" | wc -l)" 1
    same "timeline" "$(cut -f1 <<<"$after")" 1
    same "commit" "$(cut -f3 <<<"$after")" "$(($(cut -f3 <<<"$before") + 1))"
    same "its receipt" "$(cut -f3 <<<"$after")" "$(tail -n 1 "$mnt/.tblfs/commits" | cut -f1)"
    [ "$(cut -f2 <<<"$after")" -gt "$(tail -n 1 "$mnt/.tblfs/commits" | cut -f2)" ] || fail "position $after"
    ok position_goes_on
}

# The log is where the position is; a checkpoint has its line, with the number of its control slot.
log_and_checkpoints_agree_with_status() {
    local lsn lines
    lsn=$(rows "$mnt/.tblfs/position" | cut -f2)
    rows "$mnt/.tblfs/log" | awk -v lsn="$lsn" -F '\t' '$5 == "current" { n++; if (lsn < $2 || lsn > $3) exit 1 } END { exit n != 1 }' ||
        fail "position $lsn in $(cat "$mnt/.tblfs/log")"
    same "segments" "$(rows "$mnt/.tblfs/log" | awk -F '\t' '$5 != "spare"' | wc -l)" "$(status log_segments)"
    same "files" "$(rows "$mnt/.tblfs/log" | cut -f1 | sort)" "$(ls "$data/log")"
    lines=$(rows "$mnt/.tblfs/checkpoints" | wc -l)
    echo row >>"$mnt/table4"
    "$TBLFS" backup "$mnt" "$work/base" >/dev/null
    same "one more" "$(rows "$mnt/.tblfs/checkpoints" | wc -l)" "$((lines + 1))"
    same "the last one" "$(tail -n 1 "$mnt/.tblfs/checkpoints" | cut -f1,3)" "$(status control_number)	backup"
    same "as many" "$(rows "$mnt/.tblfs/checkpoints" | wc -l)" "$(status checkpoints)"
    ok log_and_checkpoints_agree_with_status
}

# Looking at a table in the cache is a hit of its relation.
hits_are_counted_by_table() {
    local relation before after
    relation=$(rows "$mnt/.tblfs/relations" | awk -F '\t' '$3 == "table5" { print $1 }')
    before=$(awk -v r="$relation" '$1 == r { print $11, $12 }' "$mnt/.tblfs/buffers")
    dd if="$mnt/table5" of=/dev/null iflag=direct bs=64K status=none
    after=$(awk -v r="$relation" '$1 == r { print $11, $12 }' "$mnt/.tblfs/buffers")
    [ "${after% *}" -gt "${before% *}" ] || fail "hits and misses of $relation: $before, then $after"
    same "misses" "${after#* }" "${before#* }"
    ok hits_are_counted_by_table
}

buffers_add_up() {
    local resident free frames
    resident=$(rows "$mnt/.tblfs/buffers" | awk '{ sum += $2 } END { print sum }')
    frames=$(awk '$1 == "frames" { print $2 }' "$mnt/.tblfs/cache")
    free=$(awk '$1 == "free_frames" { print $2 }' "$mnt/.tblfs/cache")
    [ "$resident" -gt 40 ] || fail "$resident pages resident"
    [ "$resident" -le "$((frames - free))" ] || fail "$resident pages in $((frames - free)) frames"
    same "by use" "$(rows "$mnt/.tblfs/buffers_summary" | awk '{ sum += $2 } END { print sum }')" "$resident"
    rows "$mnt/.tblfs/buffers" | awk '$5 + $6 + $7 + $8 + $9 + $10 != $2 || $3 > $2 || $4 > $2 { exit 1 }' ||
        fail "buffers: $(cat "$mnt/.tblfs/buffers")"
    join -t $'\t' <(rows "$mnt/.tblfs/buffers" | sort) <(rows "$mnt/.tblfs/relations" | sort) | cut -f14 >"$work/joined"
    grep -qx table3 "$work/joined" || fail "no table by its path: $(head "$work/joined")"
    ok buffers_add_up
}

# Each line is a comment with a type, once for each name and before its lines, or a name, labels and a number.
metrics_are_what_prometheus_reads() {
    python3 - "$mnt/.tblfs/metrics" <<'PYTHON'
import re, sys
types, ended, last, figures = {}, set(), None, {}
for line in open(sys.argv[1]):
    comment = re.fullmatch(r"# TYPE (tblfs_[a-z_]+) (counter|gauge)\n", line)
    if comment:
        assert comment[1] not in types, "a second type: " + line
        types[comment[1]] = comment[2]
        continue
    figure = re.fullmatch(r'(tblfs_[a-z_]+)(\{kind="[A-Za-z0-9_]+"\})? (\d+)\n', line)
    assert figure, "not a figure: " + line
    name = figure[1]
    assert name in types and name not in ended, "out of order: " + line
    assert (types[name] == "counter") == name.endswith("_total"), line
    if last not in (None, name):
        ended.add(last)
    last = name
    assert (name, figure[2]) not in figures, "twice: " + line
    figures[name, figure[2]] = int(figure[3])
assert figures["tblfs_transactions_open", None] == 1
assert figures["tblfs_snapshots", None] == 1
assert figures["tblfs_read_only", None] == 0
assert figures["tblfs_cache_frames", None] > 0
assert figures["tblfs_requests_by_kind_total", '{kind="MKDIR"}'] >= 4
assert figures["tblfs_operations_by_kind_total", '{kind="CREATE"}'] >= 40
assert figures["tblfs_sweeps_total", None] == sum(
    value for (name, kind), value in figures.items() if name == "tblfs_sweeps_by_kind_total")
PYTHON
    ok metrics_are_what_prometheus_reads
}

# Nothing is read, made, evicted or dirtied by looking, but for `check`, which reads everything, and `backup`, which is a gesture.
reading_them_costs_nothing() {
    local table name
    local kept='^(pages_read|pages_written|evictions|discards|dirty_frames|relation_files_created|relation_opens|syncs)'
    sync "$mnt/table1" # what comes of itself in the background has come
    for table in "$mnt"/.tblfs/*; do
        name=${table##*/}
        case $name in check | backup) continue ;; esac
        grep -E "$kept" "$mnt/.tblfs/cache" >"$work/before"
        cat "$table" >/dev/null
        grep -E "$kept" "$mnt/.tblfs/cache" >"$work/after"
        cmp -s "$work/before" "$work/after" || fail "reading $name: $(diff "$work/before" "$work/after")"
    done
    ok reading_them_costs_nothing
}

mount_store checkpoint_interval=1h
make_tables
every_table_has_named_columns
columns_are_documented
position_goes_on
log_and_checkpoints_agree_with_status
hits_are_counted_by_table
buffers_add_up
metrics_are_what_prometheus_reads
reading_them_costs_nothing
rmdir "$mnt/.txn/open"
umount_store
check_store
