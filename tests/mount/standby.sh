#!/bin/bash
# tests/mount/standby.sh - a standby follows the archive of a primary, and is read meanwhile.
# shellcheck source=tests/mount/standby_lib.sh
. "$(dirname "$0")/standby_lib.sh"

tree() { # DIR
    (cd "$1" && find . -printf '%P %y %m %U %G %n %T@ %l\n' | sort && find . -type f -print0 | sort -z | xargs -0r sha256sum)
}

mount_store "archive=$archive,archive_timeout=1"
mkdir "$mnt/sales"
seq 1000 >"$mnt/sales/orders"
echo one >"$mnt/state"
echo old >"$mnt/kept"
timeout 60 "$TBLFS" backup "$mnt" "$base" 2>"$work/said" || fail "backup: $(cat "$work/said")"

refuses "is not a standby" "$TBLFS" standby "$copy" "$mnt2" --archive "$archive"
refuses "which" "$TBLFS" standby "$copy" "$mnt2"
start_standby --archive "$archive" --base "$base"
same "what the base has" "$(cat "$mnt2/state")" one
same "its orders" "$(sha256sum <"$mnt2/sales/orders")" "$(sha256sum <"$mnt/sales/orders")"
ok "a standby shows its base"

exec 7<"$mnt2/kept"
stat "$mnt2/missing" >/dev/null 2>&1 || true
echo two >"$mnt/state"
seq 1001 1100 >>"$mnt/sales/orders"
rm "$mnt/kept"
mkdir "$mnt/.snap/first"
echo here >"$mnt/missing"
arrives two state
arrives here missing
wait_until "! [ -e '$mnt2/kept' ]" "a removed table is still there"
same "a removed table that is open" "$(cat <&7)" old
exec 7<&-
same "appended rows" "$(tail -n 1 "$mnt2/sales/orders")" 1100
same "a snapshot" "$(cat "$mnt2/.snap/first/state")" two
ok "live changes, snapshots and removals arrive"

"$TBLFS" txn "$mnt" --name all -- sh -ec 'sed -i s/1/x/ sales/orders; rm -r sales/none 2>/dev/null || :; mkdir new; echo three >state; seq 5 >new/table' || fail txn
arrives three state
same "a rewritten table" "$(sha256sum <"$mnt2/sales/orders")" "$(sha256sum <"$mnt/sales/orders")"
same "another table of the transaction" "$(wc -l <"$mnt2/new/table")" 5
rmdir "$mnt/.snap/first"
"$TBLFS" txn "$mnt" --name drop -- rm -r sales || fail txn
sweeps=$(awk -F '\t' '$2 == "redo"' "$mnt2/.tblfs/sweeps" | wc -l)
wait_until "! [ -e '$mnt2/sales' ]" "a dropped directory is still there"
wait_until "! [ -e '$mnt2/.snap/first' ]" "a dropped snapshot is still there"
[ "$(awk -F '\t' '$2 == "redo"' "$mnt2/.tblfs/sweeps" | wc -l)" -le $((sweeps + 2)) ] || fail "more sweeps than commits"
ok "transactions arrive whole"

refuses "Read-only" touch "$mnt2/x"
refuses "Read-only" sh -c "echo x >>'$mnt2/state'"
refuses "Read-only" mkdir "$mnt2/.txn/t"
refuses "Read-only" mkdir "$mnt2/.snap/t"
refuses "Read-only" rm "$mnt2/state"
mkdir "$work/space"
refuses "Read-only" ln -s "$work/space" "$mnt2/.tablespace/t"
same "what was to be a tablespace" "$(ls -A "$work/space")" ""
refuses "Read-only" setfattr -n user.x -v y "$mnt2/state"
refuses "Read-only" "$TBLFS" backup "$mnt2" "$work/other"
ok "nobody can write"

same "its state" "$(standby_status error)" ""
[ "$(standby_status position)" -gt 0 ] || fail "no position"
[ "$(standby_status behind_s)" -lt 100 ] || fail "behind: $(standby_status behind_s)"
timeout 60 "$TBLFS" status "$mnt2" >"$work/said" || fail "tblfs status"
grep -q '^standby' "$work/said" || fail "tblfs status: $(cat "$work/said")"
ok "it says how far it is"

stop_standby
refuses "it is a standby" "$TBLFS" mount "$copy" "$mnt2" -o "log=$work/log3"
echo four >"$mnt/state"
umount_store # and a second life of the log
mount_store "archive=$archive,archive_timeout=1"
start_standby --restore-command "cp '$archive/%f' '%p' 2>/dev/null"
echo five >"$mnt/state"
arrives five state
pid=$(awk -F '\t' '$1 == "pid" { print $2 }' "$mnt2/.tblfs/status")
kill -9 "$pid"
wait_gone "$pid"
umount -l "$mnt2"
echo six >"$mnt/state"
start_standby --archive "$archive"
arrives six state
same "the tree" "$(tree "$mnt2")" "$(tree "$mnt")"
ok "it goes on behind an end, a kill, and lives of its primary"

mv "$archive" "$archive.away"
echo seven >"$mnt/state"
wait_until "[ \"\$(standby_status error)\" != '' ]" "an archive that is not there is not noticed"
same "what is shown meanwhile" "$(cat "$mnt2/state")" six
mv "$archive.away" "$archive"
arrives seven state
ok "it waits for an archive that cannot be reached"
stop_standby
start_standby --restore-command "sleep 1000"
stop_standby
ok "a command that hangs does not keep it"

echo eight >"$mnt/state"
umount_store # to the archive
last=$(find "$archive" -name '00000001-????????????????' -printf '%f\n' | sort | tail -n 1)
# damaged SIZE: a standby that finds the last segment cut to SIZE names it.
damaged() {
    rm -rf "$work/other" && cp -r "$archive" "$work/other"
    truncate -s "$1" "$work/other/$last"
    : >"$work/log2"
    start_standby --archive "$work/other"
    wait_until "[ \"\$(standby_status error)\" != '' ]" "a segment cut to $1 is not noticed"
    grep -q "$last" "$work/log2" || fail "a segment cut to $1 is not named: $(cat "$work/log2")"
}
damaged 1000
same "what is shown meanwhile" "$(cat "$mnt2/state")" seven
stop_standby
damaged "$(($(stat -c %s "$archive/$last") - 10))"
cp "$archive/$last" "$work/other/$last"
wait_until "[ \"\$(standby_status error)\" = '' ]" "a segment that is whole again is not taken"
arrives eight state
stop_standby
ok "a truncated segment is named, and looked for again"
check_store
