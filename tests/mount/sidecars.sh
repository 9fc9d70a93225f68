#!/bin/bash
# tests/mount/sidecars.sh - which files a data directory holds: one for a small table, whatever its history; a sidecar beside a large one
# from a clean close to the next write; nothing else makes one.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

sidecars() {
    find "$data/rel" -name '*_fsm' | wc -l
}

relation_files() {
    find "$data/rel" -type f ! -name '*_fsm' ! -name 0000000000000001 | wc -l
}

fill() { # TABLE KIB
    head -c "$2K" /dev/zero | tr '\0' x >"$mnt/$1"
}

kill_daemon() {
    local pid
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    umount -l "$mnt" 2>/dev/null || true
}

small_tables_have_one_file_each() {
    local i round
    mount_store
    for i in $(seq 500); do
        echo row >"$mnt/small$i"
    done
    umount_store
    same "sidecars" "$(sidecars)" 0
    same "files" "$(relation_files)" 500
    for round in 1 2 3; do
        mount_store
        for i in $(seq 20); do
            echo "row $round" >>"$mnt/small$i"
            echo "row $round" >"$mnt/small$((i + 20))"
        done
        if [ "$round" = 2 ]; then kill_daemon; else umount_store; fi
        same "sidecars" "$(sidecars)" 0
    done
    mount_store
    umount_store
    same "sidecars" "$(sidecars)" 0
    same "files" "$(relation_files)" 500
    check_store
    ok small_tables_have_one_file_each
}

clean_close_writes_one_for_a_large_table() {
    mount_store
    fill large 200
    sync
    "$TBLFS" snapshot "$mnt" kept
    same "sidecars while mounted" "$(sidecars)" 0
    umount_store
    same "sidecars" "$(sidecars)" 1
    check_store
    same "sidecars behind a check" "$(sidecars)" 1
    "$TBLFS" dump "$data" sidecar "$(basename "$(find "$data/rel" -name '*_fsm')" _fsm)" >"$work/dump" || fail "dump"
    grep -q "root_bytes=$((200 * 1024))" "$work/dump" || fail "dump: $(cat "$work/dump")"
    grep -q "blocks 0 to [0-9]*: used" "$work/dump" || fail "dump: $(cat "$work/dump")"
    refuses "no such file" "$TBLFS" dump "$data" sidecar 77
    ok clean_close_writes_one_for_a_large_table
}

reading_leaves_it_and_writing_uses_it_up() {
    local before
    before=$(find "$data/rel" -name '*_fsm' -printf '%f %s %T@ %i\n')
    mount_store
    same "bytes" "$(wc -c <"$mnt/large")" $((200 * 1024))
    stat "$mnt/large" >/dev/null
    cp "$mnt/large" "$work/copy"
    umount_store
    same "sidecar" "$(find "$data/rel" -name '*_fsm' -printf '%f %s %T@ %i\n')" "$before"
    mount_store
    echo row >>"$mnt/large"
    same "loaded" "$(status sidecars_loaded)" 1
    same "sidecars" "$(sidecars)" 0
    umount_store
    same "sidecars" "$(sidecars)" 1
    check_store
    ok reading_leaves_it_and_writing_uses_it_up
}

crash_leaves_none() {
    mount_store
    kill_daemon
    mount_store
    same "sidecars behind a crash" "$(sidecars)" 0
    echo row >>"$mnt/large"
    same "loaded" "$(status sidecars_loaded)" 0
    umount_store
    same "sidecars" "$(sidecars)" 1
    ok crash_leaves_none
}

damaged_one_is_ignored_and_replaced() {
    local file
    file=$(find "$data/rel" -name '*_fsm')
    dd if=/dev/urandom of="$file" bs=1 count=20 seek=130 conv=notrunc status=none
    check_store
    grep -qF "does no harm" "$work/check" || fail "check says nothing of a damaged sidecar: $(cat "$work/check")"
    refuses "as good as none" "$TBLFS" dump "$data" sidecar "$(basename "$file" _fsm)"
    mount_store
    echo row >>"$mnt/large"
    same "loaded" "$(status sidecars_loaded)" 0
    same "ignored" "$(status sidecars_ignored)" 1
    umount_store
    mount_store
    echo row >>"$mnt/large"
    same "loaded" "$(status sidecars_loaded)" 1
    umount_store
    check_store
    ok damaged_one_is_ignored_and_replaced
}

threshold_says_what_is_large() {
    fsm_threshold_is() {
        awk -F '\t' '$1 == "fsm_threshold" { print $2 }' "$mnt/.tblfs/settings"
    }
    mount_store fsm_threshold=0
    same "threshold" "$(fsm_threshold_is)" 0
    echo row >>"$mnt/small1"
    umount_store
    same "sidecars" "$(sidecars)" 2
    mount_store fsm_threshold=100
    same "threshold" "$(fsm_threshold_is)" 100
    umount_store
    same "sidecars" "$(sidecars)" 0
    mount_store
    same "threshold" "$(fsm_threshold_is)" 4
    umount_store
    rm -rf "$work/other"
    "$TBLFS" mkfs "$work/other" -o fsm_threshold=9
    timeout 60 "$TBLFS" mount "$work/other" "$mnt"
    same "threshold of mkfs" "$(fsm_threshold_is)" 9
    umount_store
    refuses "not fsm_threshold=N" "$TBLFS" mkfs "$work/third" -o fsm_threshold=x
    refuses "not fsm_threshold=N" "$TBLFS" mkfs "$work/third" -o fsm_threshold=2000000
    refuses "not a number from 0 to 1000000" "$TBLFS" mount "$data" "$mnt" -o fsm_threshold=-1
    refuses "needs a value" "$TBLFS" mount "$data" "$mnt" -o fsm_threshold
    ok threshold_says_what_is_large
}

shrunk_and_dropped_tables_leave_none() {
    mount_store
    fill large 100
    fill other 100
    fill third 100
    umount_store
    same "sidecars" "$(sidecars)" 3
    mount_store
    truncate -s 9000 "$mnt/large"
    echo row >"$mnt/third"
    rm "$mnt/other"
    umount_store
    same "sidecars" "$(sidecars)" 0
    check_store
    ok shrunk_and_dropped_tables_leave_none
}

small_tables_have_one_file_each
clean_close_writes_one_for_a_large_table
reading_leaves_it_and_writing_uses_it_up
crash_leaves_none
damaged_one_is_ignored_and_replaced
threshold_says_what_is_large
shrunk_and_dropped_tables_leave_none
