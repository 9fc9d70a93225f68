#!/bin/bash
# tests/mount/relations.sh - MNT/.tblfs/relations: a line for each table, right for small ones too, and reading it leaves no trace.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

rows_of() { # BYTES: so many of them
    head -c "$1" < <(yes "a row of some bytes")
}

# column NAME PATH: of the table's line.
column() {
    awk -F '\t' -v name="$1" -v path="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i } NR > 1 && $3 == path { print $at }' \
        "$mnt/.tblfs/relations"
}

file_of() { # PATH: of the table, its relation's file
    local relation
    relation=$(column relation "$1")
    echo "$data/rel/${relation: -2}/$relation"
}

# What the file, the table and its line say is the same.
line_agrees() { # PATH
    same "$1: inode" "$(column inode "$1")" "$(stat -c %i "$mnt/$1")"
    same "$1: bytes" "$(column bytes "$1")" "$(stat -c %s "$mnt/$1")"
    same "$1: blocks" "$(column blocks "$1")" "$(($(stat -c %s "$(file_of "$1")") / 8192))"
    same "$1: sidecar" "$(column sidecar "$1")" "$([ -e "$(file_of "$1")_fsm" ] && echo yes || echo no)"
}

tables_of_all_sizes_are_right() {
    local blocks
    mount_store
    mkdir "$mnt/sizes"
    for blocks in 1 2 3 4 5 8 16 32 33 100; do
        rows_of $((blocks * 8152)) >"$mnt/sizes/$blocks"
        line_agrees "sizes/$blocks"
        same "$blocks: live blocks" "$(column live_blocks "sizes/$blocks")" $((blocks == 1 ? 1 : blocks + 1))
        same "$blocks: fill" "$(column fill "sizes/$blocks")" 100
        same "$blocks: free blocks" "$(column free_blocks "sizes/$blocks")" \
            $(($(column blocks "sizes/$blocks") - $(column live_blocks "sizes/$blocks")))
    done
    rows_of 2038 >"$mnt/quarter"
    same "fill of a quarter" "$(column fill quarter)" 25
    : >"$mnt/empty"
    same "line of an empty table" "$(grep -P '\tempty\t' "$mnt/.tblfs/relations")" \
        "$(printf '\t%s\tempty\t0\t0\t0\t\tno\t0' "$(stat -c %i "$mnt/empty")")"
    same "lines" "$(wc -l <"$mnt/.tblfs/relations")" 13
    ok tables_of_all_sizes_are_right
}

# Copy on write leaves a block to the last checkpoint: it is neither live nor free, and free again once that is replaced.
rewritten_table_has_one_more_block() {
    sync "$mnt/quarter"
    rows_of 100 | dd of="$mnt/quarter" conv=notrunc status=none
    same "live blocks" "$(column live_blocks quarter)" 1
    line_agrees quarter
    ok rewritten_table_has_one_more_block
}

names_are_first_names_or_none() {
    local inode
    mkdir -p "$mnt/a/b"
    printf 'x\n' >"$mnt/a/b/deep"
    ln "$mnt/a/b/deep" "$mnt/second"
    same "lines of a table with two names" "$(grep -c "$(column relation a/b/deep)" "$mnt/.tblfs/relations")" 1
    mv "$mnt/a" "$mnt/moved"
    line_agrees moved/b/deep
    printf 'x\n' >"$mnt/$(printf 'tab\there')"
    same "a tab in a name" "$(column bytes 'tab?here')" 2
    inode=$(stat -c %i "$mnt/second")
    exec 9<"$mnt/second"
    rm "$mnt/second" "$mnt/moved/b/deep"
    same "path of an unlinked table that is open" "$(awk -F '\t' -v inode="$inode" '$2 == inode { print "(" $3 ")" }' "$mnt/.tblfs/relations")" "()"
    exec 9<&-
    ok names_are_first_names_or_none
}

# Nothing of it belongs to a transaction or a snapshot.
private_tables_are_not_listed() {
    local before
    mkdir "$mnt/.snap/s" "$mnt/.txn/t"
    before=$(cat "$mnt/.tblfs/relations")
    rows_of 100000 >"$mnt/.txn/t/private"
    rm "$mnt/.txn/t/quarter"
    same "relations beside a transaction" "$(cat "$mnt/.tblfs/relations")" "$before"
    rmdir "$mnt/.txn/t" "$mnt/.snap/s"
    ok private_tables_are_not_listed
}

counters() {
    grep -E '^(misses|pages_read|pages_written|evictions|dirty_frames|relation_opens|relation_files_created)' "$mnt/.tblfs/cache"
}

# Of a mount that has touched no table yet: the catalog is read by the first look, nothing at all by the second.
reading_leaves_no_trace() {
    local before files first
    umount_store
    files=$(find "$data/rel" -type f | sort)
    mount_store
    first=$(cat "$mnt/.tblfs/relations")
    before=$(counters)
    same "second look" "$(cat "$mnt/.tblfs/relations")" "$first"
    same "counters" "$(counters)" "$before"
    same "relation files opened" "$(awk '$1 == "relation_opens" { print $2 }' "$mnt/.tblfs/cache")" 1 # the catalog
    same "files" "$(find "$data/rel" -type f | sort)" "$files"
    same "free blocks of a table nobody wrote to" "$(column free_blocks sizes/100)" ""
    line_agrees sizes/100
    ok reading_leaves_no_trace
}

# Each is one file of one block, with nothing beside it.
ten_thousand_small_tables_are_ten_thousand_files() {
    umount_store
    mv "$data" "$data.before"
    mount_store
    mkdir "$mnt/many"
    seq 10000 | split -l 1 -a 5 -d - "$mnt/many/"
    same "lines" "$(awk -F '\t' '$3 ~ /^many\// && $4 == 1 && $5 == 1 && $8 == "no"' "$mnt/.tblfs/relations" | sort -u | wc -l)" 10000
    umount_store
    same "files" "$(find "$data/rel" -type f ! -name 0000000000000001 | wc -l)" 10000
    same "bytes" "$(find "$data/rel" -type f ! -name 0000000000000001 -printf '%s\n' | sort | uniq -c | tr -s ' ')" " 10000 8192"
    mount_store
    same "lines behind a start" "$(awk -F '\t' '$4 == 1 && $5 == 1 && $8 == "no"' "$mnt/.tblfs/relations" | wc -l)" 10000
    ok ten_thousand_small_tables_are_ten_thousand_files
}

only_for_who_mounted_it() {
    umount_store
    mount_store allow_other
    refuses "permission denied" setpriv --reuid=65534 --regid=65534 --clear-groups cat "$mnt/.tblfs/relations"
    setpriv --reuid=65534 --regid=65534 --clear-groups cat "$mnt/.tblfs/status" >"$work/said" || fail "others may not read status"
    ok only_for_who_mounted_it
}

tables_of_all_sizes_are_right
rewritten_table_has_one_more_block
names_are_first_names_or_none
private_tables_are_not_listed
reading_leaves_no_trace
ten_thousand_small_tables_are_ten_thousand_files
only_for_who_mounted_it
umount_store
check_store
