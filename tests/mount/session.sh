#!/bin/bash
# tests/mount/session.sh - the session of README.md says on a real mount what README.md shows, byte for byte; and the
# quickstart goes from an empty directory to a mount that holds the session's tables, twice, and cleans up after itself.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
export TBLFS=${TBLFS:-$root/build/gcc/tblfs}
if ! [ -e /dev/fuse ]; then
    echo "skipped: no /dev/fuse"
    exit 77
fi
work=$(mktemp -d "${TEST_SCRATCH:-${TMPDIR:-/tmp}}/session-XXXXXX")

clean_up() {
    local mnt
    cd /
    for mnt in "$work/mnt" "$work/quick start/mnt"; do
        mountpoint -q "$mnt" && { timeout 70 "$TBLFS" umount "$mnt" || umount -l "$mnt"; }
    done
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT

fail() {
    echo "not ok: $*"
    exit 1
}

checksums() { # of a directory's tables
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

session_prints_what_readme_shows() {
    "$TBLFS" mkfs "$work/data"
    mkdir "$work/mnt"
    timeout 60 "$TBLFS" mount "$work/data" "$work/mnt"
    mkdir "$work/mnt/session"
    "$root/mountscripts/session" --expected "$root/README.md" >"$work/expected"
    [ "$(grep -c '^\$ ' "$work/expected")" -ge 20 ] || fail "no session found in README.md"
    timeout 100 "$root/mountscripts/session" "$root/README.md" "$work/mnt/session" >"$work/got"
    diff "$work/expected" "$work/got" || fail "README.md shows (<) what the mount does not say (>)"
    echo "ok: session_prints_what_readme_shows"
}

session_tables_survive_remount() {
    checksums "$work/mnt" >"$work/before"
    timeout 70 "$TBLFS" umount "$work/mnt"
    [ -z "$(ls -A "$work/mnt")" ] || fail "the mount point is not empty after umount"
    timeout 60 "$TBLFS" mount "$work/data" "$work/mnt"
    checksums "$work/mnt" | diff "$work/before" - || fail "tables differ after a remount"
    timeout 70 "$TBLFS" umount "$work/mnt"
    echo "ok: session_tables_survive_remount"
}

quickstart_leaves_a_mount_with_tables() {
    local place="$work/quick start" run
    for run in 1 2; do
        timeout 150 "$root/mountscripts/quickstart" "$place" >"$work/log" 2>&1 || {
            cat "$work/log"
            fail "quickstart, run $run"
        }
        mountpoint -q "$place/mnt" || fail "quickstart left no mount"
        cmp "$place/mnt/demo-$run/net/oui.csv" /usr/share/ieee-data/oui.csv
    done
    grep -q '^10 tables, every byte as it was before' "$work/log" || fail "quickstart proved nothing"
    echo "ok: quickstart_leaves_a_mount_with_tables"
}

quickstart_clean_removes_only_its_own() {
    local place="$work/quick start"
    touch "$place/mine"
    timeout 100 "$root/mountscripts/quickstart" --clean "$place"
    [ "$(ls -A "$place")" = mine ] || fail "--clean left or removed too much: $(ls -A "$place")"
    if "$root/mountscripts/quickstart" --clean "$place" 2>"$work/log"; then
        fail "--clean of a directory that it did not make succeeded"
    fi
    if "$root/mountscripts/quickstart" "$place" 2>"$work/log"; then
        fail "quickstart used a directory that holds something else"
    fi
    echo "ok: quickstart_clean_removes_only_its_own"
}

session_prints_what_readme_shows
session_tables_survive_remount
quickstart_leaves_a_mount_with_tables
quickstart_clean_removes_only_its_own
