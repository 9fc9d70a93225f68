#!/bin/bash
# tests/mount/session.sh - the session of README.md says on a real mount what README.md shows, byte for byte, and its
# tables outlive a remount and a killed daemon; the quickstart goes from an empty directory to a mount that holds the
# session's tables, twice, and cleans up after itself.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

session_prints_what_readme_shows() {
    mount_store
    mkdir "$mnt/session"
    "$root/mountscripts/session" --expected "$root/README.md" >"$work/expected"
    [ "$(grep -c '^\$ ' "$work/expected")" -ge 20 ] || fail "no session found in README.md"
    timeout 100 "$root/mountscripts/session" "$root/README.md" "$mnt/session" >"$work/got"
    diff "$work/expected" "$work/got" || fail "README.md shows (<) what the mount does not say (>)"
    ok "session_prints_what_readme_shows"
}

session_tables_survive_remount() {
    checksums "$mnt" >"$work/before"
    umount_store
    [ -z "$(ls -A "$mnt")" ] || fail "the mount point is not empty after umount"
    mount_store
    checksums "$mnt" | diff "$work/before" - || fail "tables differ after a remount"
    umount_store
    ok "session_tables_survive_remount"
}

session_tables_survive_kill() {
    local pid
    mount_store
    mkdir "$mnt/again"
    timeout 100 "$root/mountscripts/session" "$root/README.md" "$mnt/again" >"$work/got"
    diff "$work/expected" "$work/got"
    checksums "$mnt" >"$work/before"
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    timeout 70 "$TBLFS" umount "$mnt"
    mount_store
    checksums "$mnt" | diff "$work/before" - || fail "tables differ after the daemon was killed"
    umount_store
    check_store
    ok "session_tables_survive_kill"
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
    ok "quickstart_leaves_a_mount_with_tables"
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
    ok "quickstart_clean_removes_only_its_own"
}

session_prints_what_readme_shows
session_tables_survive_remount
session_tables_survive_kill
quickstart_leaves_a_mount_with_tables
quickstart_clean_removes_only_its_own
