#!/bin/bash
# tests/mount/mount_errors.sh - what cannot be mounted is refused with the reason, and nothing is touched.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

usage_is_explained() {
    refuses "there is no command" "$TBLFS" fly
    refuses "Usage" "$TBLFS"
    refuses "mount point is missing" "$TBLFS" mount "$data"
    refuses "too many" "$TBLFS" mount a b c
    refuses "unknown option" "$TBLFS" mount a b --fast
    refuses "needs a value" "$TBLFS" mount a b -o
    local command
    for command in mkfs mount umount check version help; do
        "$TBLFS" help "$command" | grep -q "^Usage: tblfs $command" || fail "help $command"
    done
    ok usage_is_explained
}

options_are_checked() {
    local list
    for list in cache=0 cache=-1 cache=1 cache=x cache=18446744073709551616 cache=1P cache "cache=80M,cache=90M" \
        ro,rw max_threads=0 max_threads=99999 checkpoint_interval=0 checkpoint_interval=x "ro=1" nosuch fsname=x \
        remount log= checkpoint_log_size=1K checkpoint_log_size=x; do
        refuses "tblfs mount: " "$TBLFS" mount "$work/store" "$mnt" -o "$list"
    done
    ok options_are_checked
}

mount_points_are_checked() {
    refuses "No such file" "$TBLFS" mount "$work/store" "$work/nowhere"
    touch "$work/file"
    refuses "not a directory" "$TBLFS" mount "$work/store" "$work/file"
    mkdir -p "$work/store/inside" "$work/outer"
    refuses "lies in the data directory" "$TBLFS" mount "$work/store" "$work/store/inside"
    rmdir "$work/store/inside"
    refuses "lies in the mount point" "$TBLFS" mount "$work/store" "$work"
    refuses "lies in" "$TBLFS" mount "$work/store" "$work/store"
    ok mount_points_are_checked
}

foreign_directories_are_left_alone() {
    mkdir "$work/foreign" "$work/empty"
    echo mine >"$work/foreign/file"
    refuses "not a tblfs data directory" "$TBLFS" mount "$work/foreign" "$mnt"
    refuses "not a tblfs data directory" "$TBLFS" mount "$work/foreign" "$mnt" --create
    refuses "empty; --create makes" "$TBLFS" mount "$work/empty" "$mnt"
    refuses "No such file or directory; --create makes" "$TBLFS" mount "$work/missing" "$mnt"
    refuses "not a directory" "$TBLFS" mount "$work/file" "$mnt"
    refuses "not empty" "$TBLFS" mkfs "$work/foreign"
    refuses "mkfs $work/store: there is a tblfs data directory already" "$TBLFS" mkfs "$work/store"
    refuses "No such file" "$TBLFS" mkfs "$work/missing/deeper"
    cp -r "$work/store" "$work/damaged"
    printf x | dd of="$work/damaged/control" conv=notrunc status=none bs=1 seek=100
    refuses "already" "$TBLFS" mkfs "$work/damaged"
    echo mine >"$work/foreign/control"
    refuses "not empty" "$TBLFS" mkfs "$work/foreign"
    rm "$work/foreign/control"
    same "files" "$(ls -A "$work/foreign" "$work/empty" | tr '\n' ' ')" "$work/empty:  $work/foreign: file "
    [ ! -e "$work/missing" ] || fail "a missing directory was made"
    ! mountpoint -q "$mnt" || fail "something is mounted"
    ok foreign_directories_are_left_alone
}

second_mount_is_refused() {
    mkdir "$work/mnt2"
    mount_store
    local pid
    pid=$(daemon_pid)
    refuses "already mounted on $mnt by process $pid" "$TBLFS" mount "$data" "$work/mnt2"
    refuses "already mounted there" "$TBLFS" mount "$work/store" "$mnt"
    refuses "mkfs $data" "$TBLFS" mkfs "$data"
    refuses "in use by process $pid" "$TBLFS" check "$data"
    umount_store
    ok second_mount_is_refused
}

two_mounts_at_once_leave_one() {
    local good=0 one two
    timeout 100 "$TBLFS" mount "$data" "$mnt" 2>/dev/null & one=$!
    timeout 100 "$TBLFS" mount "$data" "$work/mnt2" 2>/dev/null & two=$!
    wait $one && good=$((good + 1))
    wait $two && good=$((good + 1))
    same "mounts that succeeded" "$good" 1
    if mountpoint -q "$mnt"; then umount_store; else timeout 70 "$TBLFS" umount "$work/mnt2"; fi
    ok two_mounts_at_once_leave_one
}

umount_of_others_is_refused() {
    refuses "not mounted" "$TBLFS" umount "$mnt"
    refuses "not of tblfs" "$TBLFS" umount /proc
    refuses "No such file" "$TBLFS" umount "$work/nowhere"
    ok umount_of_others_is_refused
}

odd_paths_work() {
    local odd="$work/a, b\\c \$d" where="$work/m, n"
    mkdir "$odd" "$where"
    timeout 60 "$TBLFS" mkfs "$odd" || fail "mkfs in an odd path"
    timeout 60 "$TBLFS" mount "$odd" "$where" || fail "mount of an odd path"
    echo row >"$where/table"
    refuses "already mounted" "$TBLFS" mount "$odd" "$mnt"
    timeout 70 "$TBLFS" umount "$where" || fail "umount of an odd path"
    (cd "$work" && timeout 60 "$TBLFS" mount "a, b\\c \$d" "./m, n") || fail "mount by relative paths"
    same "row" "$(cat "$where/table")" row
    (cd "$work" && timeout 70 "$TBLFS" umount "m, n/") || fail "umount by a relative path"
    ok odd_paths_work
}

"$TBLFS" mkfs "$work/store"
usage_is_explained
options_are_checked
mount_points_are_checked
foreign_directories_are_left_alone
second_mount_is_refused
two_mounts_at_once_leave_one
umount_of_others_is_refused
odd_paths_work
