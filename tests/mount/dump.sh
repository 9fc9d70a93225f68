#!/bin/bash
# tests/mount/dump.sh - `tblfs dump` beside a mount, after a kill, and of damaged files.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

usage_is_explained() {
    refuses "data directory is missing" "$TBLFS" dump
    refuses "what to print is missing" "$TBLFS" dump "$data"
    refuses "there is no 'tables'" "$TBLFS" dump "$data" tables
    refuses "takes 2 more" "$TBLFS" dump "$data" page 1
    refuses "not the number" "$TBLFS" dump "$data" page one 1
    refuses "No such file" "$TBLFS" dump "$work/nowhere" control
    ok usage_is_explained
}

dump() { # ARGUMENTS of a dump that has to be good; prints into $work/dump
    timeout 60 "$TBLFS" dump "$data" "$@" >"$work/dump" 2>&1 || fail "dump $*: $(head "$work/dump")"
}

says() {
    grep -qF -- "$1" "$work/dump" || fail "the dump does not say '$1': $(head -n 20 "$work/dump")"
}

store_in_use_is_shown() {
    mount_store
    mkdir "$mnt/dir"
    seq 10000 >"$mnt/dir/table"
    dump log
    says 'name="table"'
    dump control
    says "slot 1 copy 1"
    ok store_in_use_is_shown
}

killed_store_is_shown_and_not_changed() {
    local pid sums
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    sums=$(checksums "$data")
    dump catalog
    says "# not closed cleanly"
    dump log
    says 'name="table"'
    same "files" "$(checksums "$data")" "$sums"
    timeout 60 "$TBLFS" mount "$data" "$mnt" 2>/dev/null || fail "cannot mount after a kill"
    umount_store
    ok killed_store_is_shown_and_not_changed
}

every_page_of_a_table_is_shown() {
    local relation
    dump table dir/table
    same "leaves" "$(grep -c '  content [0-9]* to' "$work/dump")" $((($(seq 10000 | wc -c) + 8151) / 8152))
    relation=$(sed -n 's/^  rel=//p' "$work/dump")
    dump page "$relation" 0
    says "|1.2.3.4.5."
    dump page "$(printf '%016x' "$relation")" 0
    says "|1.2.3.4.5."
    ok every_page_of_a_table_is_shown
}

damage_is_named() {
    local file relation
    dump table dir/table
    relation=$(sed -n 's/^  rel=//p' "$work/dump")
    file=$(printf '%s/rel/%02x/%016x' "$data" $((relation % 256)) "$relation")
    printf X | dd of="$file" bs=1 seek=$((8192 + 4000)) conv=notrunc status=none
    refuses "! damage: $file: block 1: checksum" "$TBLFS" dump "$data" table dir/table
    grep -q "content 0 to 8151" "$work/said" || fail "the pages beside the damaged one are not shown"
    ok damage_is_named
}

"$TBLFS" mkfs "$data"
usage_is_explained
store_in_use_is_shown
killed_store_is_shown_and_not_changed
every_page_of_a_table_is_shown
damage_is_named
