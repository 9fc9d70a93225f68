#!/bin/bash
# tests/mount/cookbook.sh - the recipes of docs/COOKBOOK.md do on a real mount what they show, byte for byte.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

recipes_do_what_they_show() {
    mkdir "$work/place" "$work/bin"
    ln -s "$mnt" "$work/place/demo"
    ln -s "$TBLFS" "$work/bin/tblfs"
    "$root/mountscripts/session" --expected "$root/docs/COOKBOOK.md" cookbook >"$work/expected"
    [ "$(grep -c '^## ' "$root/docs/COOKBOOK.md")" -ge 15 ] || fail "that is no cookbook"
    [ "$(grep -c '^\$ ' "$work/expected")" -ge 45 ] || fail "no recipes found"
    PATH=$work/bin:$PATH timeout 100 "$root/mountscripts/session" "$root/docs/COOKBOOK.md" "$work/place" cookbook >"$work/got"
    diff "$work/expected" "$work/got" || fail "docs/COOKBOOK.md shows (<) what the mount does not say (>)"
    same "open" "$(ls "$mnt/.txn")" ""
    ok recipes_do_what_they_show
}

mount_store
recipes_do_what_they_show
umount_store
check_store
