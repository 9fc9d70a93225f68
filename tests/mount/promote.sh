#!/bin/bash
# tests/mount/promote.sh - failover: a primary under load is killed, its standby is promoted, and goes on.
# shellcheck source=tests/mount/standby_lib.sh
. "$(dirname "$0")/standby_lib.sh"

mount_store "archive=$archive,archive_timeout=1"
echo base >"$mnt/state"
: >"$mnt/rows"
timeout 60 "$TBLFS" backup "$mnt" "$base" 2>"$work/said" || fail "backup: $(cat "$work/said")"
start_standby --archive "$archive" --base "$base" -o "archive=$archive,archive_timeout=1"
refuses "not a standby" "$TBLFS" promote "$mnt"

# Each transaction adds to two tables at once.
load() {
    local n
    for ((n = 1; n <= 100000; n++)); do
        "$TBLFS" txn "$mnt" --name "load-$n" -- sh -c "echo $n >>rows; echo $n >state" 2>/dev/null || return 0
    done
}
load &
loader=$!
wait_until "[ \"\$(wc -l <'$mnt2/rows')\" -gt 0 ]" "nothing arrives"
exec 7<"$mnt2/rows"
exec 8<"$mnt2/state"
pid=$(daemon_pid)
kill -9 "$pid"
wait_gone "$pid"
wait "$loader" 2>/dev/null || true
umount -l "$mnt"

timeout 60 "$TBLFS" promote "$mnt2" 2>"$work/said" || fail "promote: $(cat "$work/said"); $(cat "$work/log2")"
grep -q 'timeline 2' "$work/said" || fail "promote says '$(cat "$work/said")'"
rows=$(wc -l <"$mnt2/rows")
[ "$rows" -gt 0 ] || fail "no rows"
same "rows in order" "$(cat "$mnt2/rows")" "$(seq "$rows")"
same "both tables of the last transaction" "$(cat "$mnt2/state")" "$rows"
timeout 60 "$TBLFS" restore "$base" "$work/all" --archive "$archive" >"$work/said" 2>&1 || fail "restore: $(cat "$work/said")"
mkdir "$work/mnt3"
timeout 60 "$TBLFS" mount "$work/all" "$work/mnt3" -o "log=$work/log3" || fail "mount"
same "all that was archived is there" "$(cat "$mnt2/rows")" "$(cat "$work/mnt3/rows")"
timeout 60 "$TBLFS" umount "$work/mnt3"
ok "a promoted standby has all that was archived"

echo new >"$mnt2/new"
echo more >>"$mnt2/rows"
same "who had it open sees what is appended" "$(tail -n 1 <&7)" more
exec 7<&- 8<&-
mkdir "$mnt2/.snap/s"
"$TBLFS" txn "$mnt2" --name after -- sh -c 'echo after >state' || fail "txn"
same "what was written" "$(cat "$mnt2/new" "$mnt2/state")" $'new\nafter'
same mode "$(awk -F '\t' '$1 == "mode" { print $2 }' "$mnt2/.tblfs/status")" rw
refuses "not a standby" "$TBLFS" promote "$mnt2"
"$TBLFS" status "$mnt2" | grep -q 'promoted: timeline 2' || fail "tblfs status: $("$TBLFS" status "$mnt2")"
wait_until "[ -e '$archive/00000002.history' ] && ls '$archive' | grep -q '^00000002-'" "the new timeline is not archived"
stop_standby
refuses "data directory already" "$TBLFS" standby "$copy" "$mnt2" --archive "$archive"
timeout 100 "$TBLFS" check "$copy" >"$work/check" 2>&1 || fail "check: $(cat "$work/check")"
timeout 60 "$TBLFS" mount "$copy" "$mnt2" -o "log=$work/log2" || fail "mount"
same "what was written" "$(cat "$mnt2/new" "$mnt2/state" "$mnt2/.snap/s/new")" $'new\nafter\nnew'
stop_standby
ok "it can be written, archives on its own timeline, and is an ordinary store"
