#!/bin/bash
# tests/mount/process.sh - the daemon: signals, busy and dead mounts, the foreground, mount(8)'s helpers.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

umount_waits_for_the_daemon() {
    mount_store
    seq 100000 >"$mnt/table"
    local pid
    pid=$(daemon_pid)
    umount_store
    [ ! -e "/proc/$pid" ] || grep -q '^State:.Z' "/proc/$pid/status" || fail "the daemon is still there"
    mount_store
    same "table" "$(seq 100000 | cksum)" "$(cksum <"$mnt/table")"
    umount_store
    ok umount_waits_for_the_daemon
}

busy_mount_says_who() {
    mount_store
    exec 8>"$mnt/held"
    refuses "busy" "$TBLFS" umount "$mnt"
    grep -q "^  $$ " "$work/said" || fail "does not name process $$: $(cat "$work/said")"
    exec 8>&-
    umount_store
    ok busy_mount_says_who
}

sigterm_unmounts_and_closes() {
    mount_store
    echo row >"$mnt/by-sigterm"
    local pid
    pid=$(daemon_pid)
    kill -TERM "$pid"
    wait_gone "$pid"
    ! mountpoint -q "$mnt" || fail "still mounted"
    grep -q 'is closed' "$work/log" || fail "the log does not say that the store was closed"
    mount_store
    same "row" "$(cat "$mnt/by-sigterm")" row
    umount_store
    ok sigterm_unmounts_and_closes
}

sigterm_keeps_mapped_pages() {
    mount_store
    head -c 100000 /dev/zero >"$mnt/mapped"
    python3 - "$mnt/mapped" "$(daemon_pid)" <<'PYTHON'
import mmap, os, signal, sys
with open(sys.argv[1], "r+b") as file:
    with mmap.mmap(file.fileno(), 100000) as mapped:
        mapped[:] = b"x" * 100000
        os.kill(int(sys.argv[2]), signal.SIGTERM)
PYTHON
    while mountpoint -q "$mnt"; do :; done
    mount_store
    same "stores" "$(tr -d x <"$mnt/mapped" | wc -c)" 0
    umount_store
    ok sigterm_keeps_mapped_pages
}

second_sigterm_cuts_off_users() {
    mount_store
    local pid
    pid=$(daemon_pid)
    exec 8>"$mnt/held-open"
    kill -TERM "$pid"
    timeout 30 bash -c "while grep -q ' $mnt ' /proc/self/mountinfo; do :; done" || fail "not detached"
    [ -e "/proc/$pid" ] || fail "ended with a user left"
    echo still >&8 || fail "the last user cannot write"
    kill -TERM "$pid"
    wait_gone "$pid"
    exec 8>&-
    mount_store
    same "the user's row" "$(cat "$mnt/held-open")" still
    umount_store
    ok second_sigterm_cuts_off_users
}

dead_mount_is_taken_away() {
    mount_store
    echo row >"$mnt/synced"
    sync "$mnt/synced"
    local pid
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    refuses "not connected" ls "$mnt"
    timeout 60 "$TBLFS" mount "$data" "$mnt" 2>"$work/said" || fail "cannot mount over a dead mount"
    grep -q "daemon was gone" "$work/said" || fail "does not say that the mount was dead"
    same "mounts" "$(grep -c " $mnt " /proc/self/mountinfo)" 1
    same "synced row" "$(cat "$mnt/synced")" row
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    timeout 20 "$TBLFS" umount "$mnt" 2>"$work/said" || fail "cannot take away a dead mount: $(cat "$work/said")"
    ! grep -q " $mnt " /proc/self/mountinfo || fail "the dead mount is still there"
    ok dead_mount_is_taken_away
}

mount_waits_for_a_closing_holder() {
    mount_store
    seq 1000000 >"$mnt/table"
    umount "$mnt"
    mount_store
    same "table" "$(wc -l <"$mnt/table")" 1000000
    umount_store
    ok mount_waits_for_a_closing_holder
}

stderr_in_the_background_is_the_log() {
    mount_store
    same "stderr" "$(readlink "/proc/$(daemon_pid)/fd/2")" "$work/log"
    umount_store
    ok stderr_in_the_background_is_the_log
}

foreground_serves_until_unmounted() {
    "$TBLFS" mount "$data" "$mnt" -f 2>"$work/foreground" &
    local pid=$!
    timeout 30 bash -c "until mountpoint -q '$mnt'; do :; done" || fail "not mounted"
    same "pid" "$(daemon_pid)" "$pid"
    kill -INT "$pid"
    wait "$pid" || fail "exit status $?"
    grep -q 'is mounted on' "$work/foreground" || fail "says nothing on stderr"
    ok foreground_serves_until_unmounted
}

read_only_mount_refuses_writes() {
    mount_store ro
    refuses "Read-only" touch "$mnt/new"
    same "mode" "$(status mode)" ro
    umount_store
    ok read_only_mount_refuses_writes
}

kernel_features_are_used() {
    mount_store
    local flags
    flags=$(($(status kernel_flags)))
    [ $((flags & 1 << 18)) != 0 ] || fail "PARALLEL_DIROPS is off"
    [ $((flags & 1 << 16)) = 0 ] || fail "WRITEBACK_CACHE is on"
    [ $((flags & 1 << 29)) = 0 ] || fail "SETXATTR_EXT is on"
    same "read_ahead_kb" "$(cat "/sys/class/bdi/$(mountpoint -d "$mnt")/read_ahead_kb")" 1024
    same "type" "$(findmnt -no FSTYPE,SOURCE "$mnt" | tr -s ' ')" "fuse.tblfs $data"
    umount_store
    ok kernel_features_are_used
}

one_thread_serves_all() {
    mount_store max_threads=1,cache=16M
    "$HELPERS/calls" append "$mnt/by-one-thread" 10 50 || fail "append"
    same "rows" "$(wc -l <"$mnt/by-one-thread")" 500
    umount_store
    ok one_thread_serves_all
}

mount_helpers_pass_options_on() {
    "$root/mountscripts/mount.fuse.tblfs" "$data" "$mnt" -n -o rw,defaults,nofail,x-systemd.automount,cache=32M || fail "helper"
    same "frames" "$(awk '$1 == "frames" { print $2 }' "$mnt/.tblfs/cache")" 4096
    "$root/mountscripts/umount.fuse.tblfs" "$mnt" || fail "umount helper"
    ! mountpoint -q "$mnt" || fail "still mounted"
    refuses "unknown option" "$root/mountscripts/mount.fuse.tblfs" "$data" "$mnt" -o nosuch
    ok mount_helpers_pass_options_on
}

umount_waits_for_the_daemon
busy_mount_says_who
sigterm_unmounts_and_closes
sigterm_keeps_mapped_pages
second_sigterm_cuts_off_users
dead_mount_is_taken_away
mount_waits_for_a_closing_holder
stderr_in_the_background_is_the_log
foreground_serves_until_unmounted
read_only_mount_refuses_writes
kernel_features_are_used
one_thread_serves_all
mount_helpers_pass_options_on
check_store
