#!/bin/bash
# tests/mount/upgrade.sh - `tblfs upgrade`: what it copies and leaves out, what it refuses, that it only reads the old directory.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

new=$work/new

# All that a data directory is, names and times too.
state_of() { # DIR
    (cd "$1" && find . -printf '%p %s %b %T@ %C@ %i %m\n' | sort && find . -type f -print0 | sort -z | xargs -0r sha256sum)
}

make_tables() {
    mount_store
    seq 20000 >"$mnt/large"
    seq 100 >"$mnt/small"
    truncate -s 1G "$mnt/hole"
    "$TBLFS" snapshot "$mnt" before
    seq 5 >>"$mnt/large"
    umount_store
}

copy_is_the_same_and_the_old_one_untouched() {
    local before
    before=$(state_of "$data")
    timeout 100 "$TBLFS" upgrade "$data" "$new" >"$work/said" 2>&1 || fail "upgrade: $(cat "$work/said")"
    grep -q "no damage found" "$work/said" || fail "says $(cat "$work/said")"
    same "old directory" "$(state_of "$data")" "$before"
    same "sidecars" "$(find "$new/rel" -name '*_fsm' | wc -l)" 1
    [ "$(du -s -B1 "$new" | cut -f1)" -lt 60000000 ] || fail "not sparse: $(du -sh "$new")"
    timeout 60 "$TBLFS" mount "$new" "$mnt"
    same "rows" "$(tail -n 6 "$mnt/large" | tr '\n' ' ')" "20000 1 2 3 4 5 "
    same "rows of the snapshot" "$(tail -n 1 "$mnt/.snap/before/large")" 20000
    same "small" "$(sha256sum <"$mnt/small")" "$(seq 100 | sha256sum)"
    same "hole" "$(stat -c %s "$mnt/hole")" $((1 << 30))
    echo row >>"$mnt/large"
    same "loaded" "$(status sidecars_loaded)" 1
    umount_store
    timeout 100 "$TBLFS" check "$new" >"$work/check" 2>&1 || fail "check: $(cat "$work/check")"
    ok copy_is_the_same_and_the_old_one_untouched
}

killed_store_is_recovered_in_the_copy() {
    local pid before
    mount_store
    echo last >>"$mnt/small"
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    umount -l "$mnt" 2>/dev/null || true
    before=$(state_of "$data")
    rm -rf "$new"
    mkdir "$new"
    timeout 100 "$TBLFS" upgrade "$data" "$new" >"$work/said" 2>&1 || fail "upgrade: $(cat "$work/said")"
    grep -q "its log replayed" "$work/said" || fail "says $(cat "$work/said")"
    same "old directory" "$(state_of "$data")" "$before"
    timeout 60 "$TBLFS" mount "$new" "$mnt"
    same "last row" "$(tail -n 1 "$mnt/small")" last
    umount_store
    ok killed_store_is_recovered_in_the_copy
}

what_cannot_be_is_refused() {
    mount_store
    refuses "in use by process" "$TBLFS" upgrade "$data" "$work/other"
    umount_store
    refuses "not empty" "$TBLFS" upgrade "$data" "$new"
    refuses "only read" "$TBLFS" upgrade "$data" "$data/copy"
    refuses "not a tblfs data directory" "$TBLFS" upgrade "$mnt" "$work/other"
    refuses "No such file" "$TBLFS" upgrade "$work/none" "$work/other"
    refuses "are wanted" "$TBLFS" upgrade "$data"
    [ ! -e "$work/other/control" ] || fail "a control file was left"
    ok what_cannot_be_is_refused
}

# A copy would name the directories of the old one, and write into them.
store_with_tablespaces_is_refused_and_they_are_left_alone() {
    local before
    mkdir "$work/space"
    mount_store
    ln -s "$work/space" "$mnt/.tablespace/fast"
    mkdir "$mnt/fast"
    setfattr -n user.tblfs.tablespace -v fast "$mnt/fast"
    seq 10000 >"$mnt/fast/table"
    umount_store
    before=$(state_of "$work/space")
    refuses "belongs to the store that this is a copy of" "$TBLFS" upgrade "$data" "$work/third"
    [ ! -e "$work/third/control" ] || fail "a copy was left that shares tablespaces"
    same "tablespace" "$(state_of "$work/space")" "$before"
    ok store_with_tablespaces_is_refused_and_they_are_left_alone
}

make_tables
copy_is_the_same_and_the_old_one_untouched
killed_store_is_recovered_in_the_copy
what_cannot_be_is_refused
store_with_tablespaces_is_refused_and_they_are_left_alone
