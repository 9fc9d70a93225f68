#!/bin/bash
# tests/mount/status.sh - `tblfs status` and `tblfs top` show what the tables of a mount say.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

# shows PATTERN...: what was written into $work/out has a line for each.
shows() {
    local pattern
    for pattern in "$@"; do
        grep -qE -- "$pattern" "$work/out" || fail "no '$pattern' in: $(cat "$work/out")"
    done
}

status_shows_a_mount() {
    "$TBLFS" status "$mnt" >"$work/out"
    shows "^mount +$data on $mnt, read-write, tblfs" "^daemon +process $(status pid), up " "^cache +48.0M, " \
        "^transactions +1 open; last commit 1: a name, 1 tables$" "^  left open +of user 0, began .* ago, 1 changes, " \
        "^snapshots +1, the oldest kept, taken " "^log .* synced" \
        "^checkpoint +.* ago, for backup: [1-9][0-9]* pages"
    "$TBLFS" status --json "$mnt" | python3 -c 'import json, sys
print(dict((line["name"], line["value"]) for line in json.load(sys.stdin))["pid"])' >"$work/out"
    shows "^$(status pid)$"
    refuses "is a store mounted there?" "$TBLFS" status "$work"
    refuses "mount point is missing" "$TBLFS" status
    ok status_shows_a_mount
}

top_shows_it_at_work() {
    (while [ ! -e "$work/stop" ]; do stat "$mnt/table" >/dev/null; cat "$mnt/table" >/dev/null; done) &
    local busy=$!
    timeout 60 "$TBLFS" top -d 0.3 -n 3 --batch "$mnt" >"$work/out" || fail "top"
    touch "$work/stop"
    wait $busy
    same "pictures" "$(grep -c "^$data on $mnt, read-write, up " "$work/out")" 3
    shows "^requests .*(OPEN|GETATTR|READ|LOOKUP) [1-9]" "^cache .*hit rate" "left open$" "^ +[0-9.]+[KM]? +[0-9.]+[KM]? +[0-9.]+ %  table$" "^checkpoint .* ago, for backup: .* logged since$" \
        "by (unlink|commit)$" "the catalog"
    refuses "is a store mounted there?" "$TBLFS" top -n 1 "$work"
    refuses "not from 0.1 to 3600 seconds" "$TBLFS" top -d 0 "$mnt"
    refuses "not a number of pictures" "$TBLFS" top -n -1 "$mnt"
    ok top_shows_it_at_work
}

# On a terminal it takes the screen, and gives it back.
top_draws_on_a_terminal() {
    TERM=xterm timeout 60 script -qec "$TBLFS top -d 0.2 -n 2 '$mnt'" /dev/null >"$work/out" </dev/null || fail "top"
    grep -q $'\e\[?1049h' "$work/out" || fail "no screen taken"
    tail -c 200 "$work/out" | grep -q $'\e\[?1049l' || fail "not given back"
    shows "left open"
    ok top_draws_on_a_terminal
}

mount_store cache=48M
seq 1 20000 >"$mnt/table"
seq 1 20000 >"$mnt/gone"
rm "$mnt/gone"
mkdir "$mnt/.snap/kept" "$mnt/.txn/a name" "$mnt/.txn/left open"
echo row >>"$mnt/.txn/a name/table"
mkdir "$mnt/.txn/a name/.commit"
echo row >>"$mnt/.txn/left open/table"
until [ -n "$(rows "$mnt/.tblfs/sweeps")" ]; do
    sleep 0.02
done
"$TBLFS" backup "$mnt" "$work/base" >/dev/null 2>&1
status_shows_a_mount
top_shows_it_at_work
top_draws_on_a_terminal
rmdir "$mnt/.txn/left open"
umount_store
