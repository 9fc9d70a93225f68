#!/bin/bash
# tests/mount/txn_session.sh - the section of README.md on transactions says on a real mount what README.md shows, byte for byte.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

session_prints_what_readme_shows() {
    mkdir "$work/place" "$work/bin"
    ln -s "$mnt" "$work/place/demo"
    ln -s "$TBLFS" "$work/bin/tblfs"
    "$root/mountscripts/session" --expected "$root/README.md" transactions >"$work/expected"
    [ "$(grep -c '^\$ ' "$work/expected")" -ge 20 ] || fail "no session found in README.md"
    PATH=$work/bin:$PATH timeout 100 "$root/mountscripts/session" "$root/README.md" "$work/place" transactions >"$work/got"
    diff "$work/expected" "$work/got" || fail "README.md shows (<) what the mount does not say (>)"
    same "open" "$(ls "$mnt/.txn")" ""
    ok "session_prints_what_readme_shows"
}

mount_store
session_prints_what_readme_shows
umount_store
check_store
