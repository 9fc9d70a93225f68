#!/bin/bash
# tests/mount/tablespaces.sh - MNT/.tablespace: made, shown, used, dropped; kept over remounts and kills; missing, foreign
# and broken directories.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

place=user.tblfs.tablespace
fast=$work/disks/fast
slow=$work/disks/slow

files_in() { # DIR: relation files
    find "$1" -type f -name '????????????????' -path '*/rel/*' | wc -l
}

line_of() { # NAME: number of relations, state
    awk -F '\t' -v name="$1" '$2 == name { print $4, $7 }' "$mnt/.tblfs/tablespaces"
}

makes_and_shows() {
    mkdir -p "$fast" "$slow" "$work/full"
    : >"$work/full/file"
    same "mode of .tablespace" "$(stat -c '%a %u %F' "$mnt/.tablespace")" "755 0 directory"
    ln -s "$fast" "$mnt/.tablespace/fast"
    same "link" "$(readlink "$mnt/.tablespace/fast")" "$fast"
    same "listing" "$(ls -A "$mnt/.tablespace")" fast
    same "kind" "$(stat -c %F "$mnt/.tablespace/fast")" "symbolic link"
    [ -f "$fast/tblfs-tablespace" ] || fail "no identity"
    refuses "file exists" ln -sT "$slow" "$mnt/.tablespace/fast"
    refuses "busy" ln -s "$fast" "$mnt/.tablespace/again"
    refuses "not empty" ln -s "$work/full" "$mnt/.tablespace/full"
    refuses "no such file" ln -s "$work/nowhere" "$mnt/.tablespace/nowhere"
    refuses "not a directory" ln -s "$work/full/file" "$mnt/.tablespace/file"
    refuses "invalid" ln -s relative "$mnt/.tablespace/relative"
    refuses "invalid" ln -s "$data" "$mnt/.tablespace/data"
    refuses "invalid" ln -s "$work" "$mnt/.tablespace/around"
    refuses "invalid" ln -s "$mnt" "$mnt/.tablespace/mount"
    ln -s "$mnt" "$work/link"
    ln -s disks "$work/disks-link"
    ln -s loop "$work/loop"
    for inside in link/.tablespace/name link/../mnt/.tablespace/name disks/../mnt/.tablespace/name .//mnt/.tablespace/name \
        disks-link/../link/.tablespace/name; do
        refuses "invalid" ln -s "$work/$inside" "$mnt/.tablespace/inside" # looked up, it would hang for ever
    done
    refuses "invalid" ln -s / "$mnt/.tablespace/root"
    refuses "too many levels" ln -s "$work/loop" "$mnt/.tablespace/loop"
    refuses "busy" ln -s "$work/disks-link/../disks/./fast/" "$mnt/.tablespace/again"
    refuses "not permitted" mkdir "$mnt/.tablespace/directory"
    refuses "not permitted" touch "$mnt/.tablespace/plain"
    refuses "not permitted" mv "$mnt/.tablespace/fast" "$mnt/.tablespace/other"
    refuses "permission denied" setpriv --reuid 1234 --regid 1234 --clear-groups ln -s "$slow" "$mnt/.tablespace/mine"
    same "listing after refusals" "$(ls -A "$mnt/.tablespace")" fast
    [ -z "$(ls -A "$slow")" ] || fail "a refusal left something in $slow"
    [ "$(ls -A "$work/full")" = file ] || fail "a refusal left something in $work/full"
    ok "made and shown"
}

places_tables() {
    mkdir "$mnt/db"
    echo before >"$mnt/db/before"
    setfattr -n $place -v fast "$mnt/db"
    same "placement" "$(getfattr --absolute-names --only-values -n $place "$mnt/db")" fast
    same "listed" "$(getfattr -d -m 'tblfs' "$mnt/db" | grep -c 'tablespace="fast"')" 1
    mkdir -p "$mnt/db/sub/deeper"
    seq 100000 >"$mnt/db/numbers"
    seq 5 >"$mnt/db/sub/deeper/five"
    same "inherited" "$(getfattr --absolute-names --only-values -n $place "$mnt/db/sub/deeper/five")" fast
    refuses "no such attribute" getfattr -n $place "$mnt/db/before"
    sync "$mnt/db/numbers"
    same "files there" "$(files_in "$fast")" 2
    same "line" "$(line_of fast)" "2 online"
    refuses "invalid" setfattr -n $place -v fats "$mnt/db"
    grep -qF 'there is no tablespace fats; did you mean fast?' "$work/log" || fail "the log does not name the nearest"
    setfattr -x $place "$mnt/db/sub"
    echo here >"$mnt/db/sub/here"
    refuses "no such attribute" getfattr -n $place "$mnt/db/sub/here"
    refuses "no such attribute" setfattr -x $place "$mnt/db/sub"
    t=$mnt/.txn/placing
    mkdir "$t"
    mkdir "$t/made"
    setfattr -n $place -v fast "$t/made"
    seq 70000 >"$t/made/rows"
    echo more >>"$t/db/numbers"
    mkdir "$t/.commit"
    same "of a transaction" "$(getfattr --absolute-names --only-values -n $place "$mnt/made/rows")" fast
    same "its rows" "$(wc -l <"$mnt/made/rows")" 70000
    same "files after it" "$(files_in "$fast")" 3
    ok "tables are placed"
}

survives() { # HOW
    checksums "$mnt" >"$work/sums"
    case $1 in
    kill)
        pid=$(daemon_pid)
        kill -9 "$pid"
        wait_gone "$pid"
        umount "$mnt"
        ;;
    remount) umount_store ;;
    esac
    mount_store
    checksums "$mnt" | diff "$work/sums" - || fail "after $1 the tables differ"
    same "link after $1" "$(readlink "$mnt/.tablespace/fast")" "$fast"
    same "placement after $1" "$(getfattr --absolute-names --only-values -n $place "$mnt/db")" fast
    echo "after $1" >>"$mnt/db/numbers"
    ok "after $1 all is there"
}

drops_only_what_is_empty() {
    mkdir "$mnt/.snap/keeps"
    refuses "not empty" rm "$mnt/.tablespace/fast"
    rm -r "$mnt/db" "$mnt/made"
    refuses "not empty" rm "$mnt/.tablespace/fast"
    same "in the snapshot" "$(head -n 1 "$mnt/.snap/keeps/db/numbers")" 1
    rmdir "$mnt/.snap/keeps"
    for ((tries = 0; tries < 50; tries++)); do # the kernel may keep files of it open for a moment
        rm "$mnt/.tablespace/fast" 2>/dev/null && break
        sleep 0.1
    done
    [ -z "$(ls -A "$mnt/.tablespace")" ] || fail "fast is still there: $(tail -n 2 "$work/log")"
    [ -z "$(ls -A "$fast")" ] || fail "left in $fast: $(ls -A "$fast")"
    ln -s "$fast" "$mnt/.tablespace/fast"
    mkdir "$mnt/db"
    setfattr -n $place -v fast "$mnt/db"
    seq 1000 >"$mnt/db/numbers"
    rm "$mnt/db/numbers"
    rm "$mnt/.tablespace/fast" # the checkpoint that it takes removes the file
    echo orphaned >"$mnt/db/table"
    refuses "no such attribute" getfattr -n $place "$mnt/db/table"
    rm -r "$mnt/db"
    ok "dropped when nothing is in it"
}

kill_daemon() {
    local pid
    pid=$(daemon_pid)
    kill -9 "$pid"
    wait_gone "$pid"
    umount "$mnt"
}

# Made, filled, emptied, dropped, made again under the same name and elsewhere, and killed: replay does it all again.
replays_a_history() {
    local other=$work/disks/other
    mkdir -p "$other"
    ln -s "$fast" "$mnt/.tablespace/fast"
    mkdir "$mnt/db"
    setfattr -n $place -v fast "$mnt/db"
    echo first >"$mnt/db/table"
    rm "$mnt/db/table"
    rm "$mnt/.tablespace/fast"
    ln -s "$other" "$mnt/.tablespace/fast"
    ln -s "$fast" "$mnt/.tablespace/second"
    setfattr -n $place -v fast "$mnt/db"
    echo second >"$mnt/db/table"
    sync "$mnt/db/table"
    kill_daemon
    mount_store
    same "link" "$(readlink "$mnt/.tablespace/fast")" "$other"
    same "row" "$(cat "$mnt/db/table")" second
    rm "$mnt/db/table" "$mnt/.tablespace/second"
    rm "$mnt/.tablespace/fast"
    rmdir "$fast" "$other" # nothing was left in them
    mkdir "$fast"
    kill_daemon
    mount_store
    [ -z "$(ls -A "$mnt/.tablespace")" ] || fail "replay brought one back"
    rm -r "$mnt/db"
    ok "a history is replayed"
}

misses_a_directory() {
    ln -s "$slow" "$mnt/.tablespace/slow"
    mkdir "$mnt/far"
    setfattr -n $place -v slow "$mnt/far"
    seq 1000 >"$mnt/far/numbers"
    echo near >"$mnt/near"
    umount_store
    mv "$slow" "$slow.away"
    refuses "" timeout 60 "$TBLFS" mount "$data" "$mnt" -o "log=$work/log"
    grep -q "tablespace slow: $slow cannot be used" "$work/log" || fail "the refusal does not name it"
    mount_store missing_tablespace=offline
    same "line" "$(line_of slow)" "1 offline"
    same "near" "$(cat "$mnt/near")" near
    refuses "input/output error" cat "$mnt/far/numbers"
    refuses "input/output error" bash -c "echo x >>'$mnt/far/numbers'"
    refuses "input/output error" rm "$mnt/far/numbers"
    umount_store
    mkdir "$slow"
    refuses "" timeout 60 "$TBLFS" mount "$data" "$mnt" -o "log=$work/log"
    sed 's/^store .*/store 00000000000000000000000000000000/' "$slow.away/tblfs-tablespace" >"$slow/tblfs-tablespace"
    refuses "" timeout 60 "$TBLFS" mount "$data" "$mnt" -o "log=$work/log"
    grep -q "tablespace slow: $slow: belongs to another store" "$work/log" || fail "the foreign one is not named"
    rm -r "$slow"
    mv "$slow.away" "$slow"
    mount_store
    same "back" "$(wc -l <"$mnt/far/numbers")" 1000
    "$TBLFS" mkfs "$work/data2" >/dev/null
    mkdir "$work/mnt2"
    timeout 60 "$TBLFS" mount "$work/data2" "$work/mnt2" -o "log=$work/log2"
    refuses "busy" ln -s "$slow" "$work/mnt2/.tablespace/theirs"
    timeout 60 "$TBLFS" umount "$work/mnt2"
    ok "missing and foreign directories"
}

# df adds up, and counts a filesystem once.
adds_up() {
    local before with
    before=$(stat -f -c '%b %S' "$mnt" | awk '{ printf "%.0f", $1 * $2 }')
    mkdir "$work/small"
    mount -t tmpfs -o size=64M tblfs-test "$work/small"
    ln -s "$work/small" "$mnt/.tablespace/small"
    with=$(stat -f -c '%b %S' "$mnt" | awk '{ printf "%.0f", $1 * $2 }')
    same "df" $((with - before)) $((64 << 20))
    mkdir "$mnt/small"
    setfattr -n $place -v small "$mnt/small"
    seq 10000 >"$mnt/small/table"
    refuses "no space" dd if=/dev/zero of="$mnt/small/large" bs=1M count=80
    rm "$mnt/small/large" "$mnt/small/table"
    rm "$mnt/.tablespace/small"
    umount "$work/small"
    ok "space adds up"
}

mount_store
makes_and_shows
places_tables
survives remount
survives kill
drops_only_what_is_empty
replays_a_history
misses_a_directory
adds_up
umount_store
check_store
ok "check finds nothing"
