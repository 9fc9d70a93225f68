#!/bin/bash
# tests/mount/check.sh - `tblfs check`: what it says of good, damaged, used, dirty and foreign directories, and its exit status.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

check_is() { # STATUS WHAT: the exit status, and what is said on stdout or stderr
    local rc=0
    timeout 100 "$TBLFS" check "$data" >"$work/said" 2>&1 || rc=$?
    same "exit status" "$rc" "$1"
    grep -qF -- "$2" "$work/said" || fail "says '$(cat "$work/said")', not '$2'"
}

clean_store_is_only_read() {
    local before
    before=$(cd "$data" && find . -type f ! -name lock -print0 | sort -z | xargs -0 sha256sum)
    check_is 0 "no damage found"
    same "files" "$(cd "$data" && find . -type f ! -name lock -print0 | sort -z | xargs -0 sha256sum)" "$before"
    ok clean_store_is_only_read
}

mounted_store_is_refused() {
    mount_store
    check_is 2 "in use by process $(daemon_pid)"
    umount_store
    ok mounted_store_is_refused
}

killed_store_is_replayed() {
    local pid
    mount_store
    echo row >>"$mnt/table"
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    check_is 0 "its log is replayed first"
    check_is 0 "no damage found"
    ! grep -q replayed "$work/said" || fail "replayed twice"
    mount_store
    same "rows" "$(wc -l <"$mnt/table")" 10001
    umount_store
    ok killed_store_is_replayed
}

each_damaged_table_is_a_finding() {
    local file count=0
    for file in "$data"/rel/*/*; do
        case $file in */0000000000000001 | *_fsm) continue ;; esac
        printf X | dd of="$file" bs=1 seek=3000 conv=notrunc status=none
        count=$((count + 1))
    done
    check_is 1 "block 0: checksum"
    check_is 1 "$count findings"
    same "lines" "$(grep -c '^damage:' "$work/said")" "$count"
    ok each_damaged_table_is_a_finding
}

mounted_store_is_checked_online() {
    mount_store
    refuses "is a store mounted there" "$TBLFS" check --online "$work"
    (for _ in $(seq 200); do echo row >>"$mnt/online"; done) &
    local writer=$!
    "$TBLFS" check --online "$mnt" >"$work/online"
    grep -q "no damage found" "$work/online" || fail "$(cat "$work/online")"
    wait "$writer"
    rm "$mnt/online"
    umount_store
    local file=$data/rel/$1
    cp "$file" "$work/whole"
    printf X | dd of="$file" bs=1 seek=3000 conv=notrunc status=none
    mount_store
    ! "$TBLFS" check --online "$mnt" >"$work/online" || fail "damage was not found"
    grep -q "cannot be read" "$work/online" || fail "$(cat "$work/online")"
    umount_store
    cp "$work/whole" "$file"
    ok mounted_store_is_checked_online
}

foreign_directory_is_refused() {
    data=$work/foreign
    mkdir "$data"
    check_is 2 "not a tblfs data directory"
    same "files" "$(ls -A "$data")" ""
    data=$work/missing
    refuses "No such file" "$TBLFS" check "$data"
    ok foreign_directory_is_refused
}

mount_store
seq 10000 >"$mnt/table"
seq 100 >"$mnt/other"
umount_store
clean_store_is_only_read
mounted_store_is_refused
killed_store_is_replayed
mounted_store_is_checked_online 02/0000000000000002
each_damaged_table_is_a_finding
foreign_directory_is_refused
