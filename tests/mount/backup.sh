#!/bin/bash
# tests/mount/backup.sh - a base is copied while the mount is in use; verify finds what was changed in it; what was cancelled keeps nothing.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

base=$work/base

make_tree() {
    local i
    for i in {1..30}; do
        mkdir -p "$mnt/dir$i"
        head -c $((i * 5000)) /dev/urandom >"$mnt/dir$i/table"
        echo "$i" >"$mnt/dir$i/small"
        ln -s "../dir$((i / 2))" "$mnt/dir$i/link"
    done
}

kept() {
    grep -c '^backup' "$mnt/.tblfs/holders" || true
}

base_is_made_in_a_directory_and_as_a_stream() {
    timeout 60 "$TBLFS" backup "$mnt" "$base" 2>"$work/said" || fail "backup: $(cat "$work/said")"
    timeout 60 "$TBLFS" verify "$base" >"$work/said" || fail "verify: $(cat "$work/said")"
    timeout 60 "$TBLFS" backup "$mnt" - >"$work/base.tar" 2>"$work/said" || fail "backup to a stream: $(cat "$work/said")"
    timeout 60 "$TBLFS" verify - <"$work/base.tar" >"$work/said" || fail "verify a stream: $(cat "$work/said")"
    same "files of the stream" "$(tar -tf "$work/base.tar" | sort)" "$(cd "$base" && find . -type f -printf '%P\n' | sort)"
    mkdir "$work/unpacked"
    tar -xf "$work/base.tar" -C "$work/unpacked"
    timeout 60 "$TBLFS" verify "$work/unpacked" >"$work/said" || fail "verify what tar unpacked: $(cat "$work/said")"
    same "kept" "$(kept)" 0
    ok base_is_made_in_a_directory_and_as_a_stream
}

# finds WHAT COMMAND...: on the copy "$work/bad", verify answers 1 and says that.
finds() {
    local what=$1 rc=0
    shift
    rm -rf "$work/bad"
    cp -a "$base" "$work/bad"
    (cd "$work/bad" && "$@")
    timeout 60 "$TBLFS" verify "$work/bad" >"$work/said" 2>&1 || rc=$?
    same "status of verify after '$*'" "$rc" 1
    grep -qF -- "$what" "$work/said" || fail "verify after '$*': $(cat "$work/said")"
}

change_byte() { # FILE OFFSET
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

verify_finds_what_is_changed() {
    local file size
    file=$(cd "$base" && find rel -type f -size +40k | sort | tail -n 1)
    size=$(stat -c %s "$base/$file")
    finds "$file: page 2" change_byte "$file" 20000
    finds "$file: its checksum" change_byte "$file" $((size - 1))
    finds "$file: it has" truncate -s -8192 "$file"
    finds "$file: it has" truncate -s +8192 "$file"
    finds "$file: it is missing" rm "$file"
    finds "rel/extra: it does not belong there" touch rel/extra
    finds "manifest: it is damaged" change_byte manifest 40
    finds "manifest: it is damaged" truncate -s -1 manifest
    finds "it belongs to another relation" cp rel/01/0000000000000001 "$file"
    local rc=0
    rm "$work/bad/manifest"
    timeout 60 "$TBLFS" verify "$work/bad" 2>&1 || rc=$?
    same "status without a manifest" "$rc" 2
    cp "$work/base.tar" "$work/bad.tar"
    truncate -s -600 "$work/bad.tar"
    refuses "too early" "$TBLFS" verify "$work/bad.tar"
    ok verify_finds_what_is_changed
}

what_cannot_be_backed_up_is_refused() {
    refuses "not empty" "$TBLFS" backup "$mnt" "$base"
    refuses "neither in the data directory nor in the mount" "$TBLFS" backup "$mnt" "$data/base"
    refuses "neither in the data directory nor in the mount" "$TBLFS" backup "$mnt" "$mnt/base"
    refuses "not" "$TBLFS" backup "$work" "$work/other"
    refuses "destination is missing" "$TBLFS" backup "$mnt"
    refuses "not a number of bytes" "$TBLFS" backup "$mnt" "$work/other" --rate fast
    ok what_cannot_be_backed_up_is_refused
}

cancelled_backup_keeps_nothing() {
    local pid tries
    "$TBLFS" backup "$mnt" "$work/slow" --rate 100K 2>/dev/null &
    pid=$!
    for ((tries = 0; tries < 1000; tries++)); do
        [ "$(kept)" = 0 ] || break
        sleep 0.02
    done
    same "kept" "$(kept)" 1
    rm -r "$mnt"/dir{1..9} # is not stopped by it
    refuses "busy" "$TBLFS" umount "$mnt"
    kill -9 "$pid"
    wait "$pid" || true
    for ((tries = 0; tries < 1000; tries++)); do
        [ "$(kept)" != 0 ] || break
        sleep 0.02
    done
    same "kept" "$(kept)" 0
    refuses "no manifest" "$TBLFS" verify "$work/slow"
    ok cancelled_backup_keeps_nothing
}

full_disk_is_told() {
    mkdir "$work/tiny"
    mount -t tmpfs -o size=300k none "$work/tiny"
    refuses "No space left" "$TBLFS" backup "$mnt" "$work/tiny/base"
    umount "$work/tiny"
    same "kept" "$(kept)" 0
    ok full_disk_is_told
}

mount_store
make_tree
"$TBLFS" snapshot "$mnt" before
rm -r "$mnt"/dir1?
base_is_made_in_a_directory_and_as_a_stream
verify_finds_what_is_changed
what_cannot_be_backed_up_is_refused
full_disk_is_told
cancelled_backup_keeps_nothing
umount_store
check_store
