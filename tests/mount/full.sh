#!/bin/bash
# tests/mount/full.sh - a data directory on a full disk: writes fail with ENOSPC as a whole, nothing else breaks, unlink and
# truncate work, and then writes do again. On a tmpfs and on ext4.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

# Makes files of rows until the disk is full. A write that fails leaves none of its bytes (of `dd`, blocks before it stay).
fill() { # NAME
    local file
    for file in {1..400}; do
        LC_ALL=C dd if="$work/rows" of="$mnt/$1.$file" bs=1000000 iflag=fullblock status=none 2>"$work/said" || break
    done
    grep -q 'No space left on device' "$work/said" || fail "file $file: $(cat "$work/said")"
    echo "full at $1.$file: $(stat -c %s "$mnt/$1.$file" 2>/dev/null) bytes of it"
    last=$1.$file
}

whole_rows_only() { # FILE
    [ ! -e "$1" ] || cmp -n "$(stat -c %s "$1")" "$1" "$work/rows" || fail "$1 is not a beginning of its rows"
    [ ! -e "$1" ] || [ $(($(stat -c %s "$1") % 1000000)) = 0 ] || fail "$1: a write was done in part"
}

store_is_writable() {
    same "mode" "$(status mode)" rw
    ! grep -q ' error: ' "$work/log" || fail "the log tells of errors"
}

# Small changes until one fails; it fails with ENOSPC, and is not there.
small_changes_end_with_enospc() {
    local made=0
    while [ $made -lt 20000 ] && LC_ALL=C mkdir "$mnt/dir.$made" 2>"$work/said"; do made=$((made + 1)); done
    [ $made -lt 20000 ] || return 0
    grep -q 'No space left on device' "$work/said" || fail "mkdir: $(cat "$work/said")"
    [ ! -e "$mnt/dir.$made" ] || fail "the directory is there all the same"
    echo "full after $made directories more"
    rmdir "$mnt"/dir.* || fail "rmdir on a full disk"
}

room_can_be_made() {
    local file size
    for file in "$mnt"/a.*; do break; done
    size=$(stat -c %s "$file")
    truncate -s $((size / 2)) "$file" || fail "truncate on a full disk"
    same "truncated" "$(cmp -n $((size / 2)) "$file" "$work/rows" && echo same)" same
    rm "$mnt"/a.*[02468] || fail "rm on a full disk"
    : >"$file" || fail "truncate to nothing on a full disk"
    rm "$file" || fail "rm of it"
}

on_a_full_disk() { # KIND
    local count file
    mount_store "checkpoint_interval=2"
    echo "kept row" >"$mnt/kept"
    fill a
    whole_rows_only "$mnt/$last"
    store_is_writable
    small_changes_end_with_enospc
    store_is_writable
    same "kept" "$(cat "$mnt/kept")" "kept row"
    room_can_be_made
    store_is_writable
    wait_for_room
    echo "another row" >>"$mnt/kept" || fail "no append although there is room"
    fill b
    [ -s "$mnt/b.1" ] || fail "what was removed gave no room back"
    whole_rows_only "$mnt/$last"
    store_is_writable
    count=$(find "$mnt" -type f | wc -l)
    checksums "$mnt" >"$work/sums"
    umount_store
    check_store
    mount_store
    same "files" "$(find "$mnt" -type f | wc -l)" "$count"
    checksums "$mnt" | cmp - "$work/sums" || fail "contents differ after a mount"
    rm -r "${mnt:?}"/* || fail "rm -r on a full disk after a mount"
    store_is_writable
    umount_store
    check_store
    ok "on_a_full_disk: $1"
}

# What was removed is free once a checkpoint without it is durable.
wait_for_room() {
    local since tries
    since=$(status checkpoints)
    for ((tries = 0; tries < 1000; tries++)); do
        [ $(($(status checkpoints) - since)) -ge 2 ] && return 0
        echo x >"$mnt/tick" 2>/dev/null || true
        sleep 0.02
    done
    fail "no checkpoint on the full disk"
}

disk=$work/disk
mkdir "$disk"
data=$disk/data
head -c 8000000 < <(seq 3000000) >"$work/rows"

on_small_disks 48m 64M "$disk" on_a_full_disk
