#!/bin/bash
# tests/mount/close_command.sh - `tblfs commit` and `tblfs abort`: exit statuses, what they show, what they refuse.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

user=(setpriv --reuid=1234 --regid=567 --clear-groups)

begin() { # sets $t
    t=$(mktemp -d -p "$mnt/.txn")
}

# ends_with STATUS COMMAND...: that is its exit status; what it says is in $work/said.
ends_with() {
    local want=$1 rc=0
    shift
    timeout 60 "$@" >"$work/said" 2>&1 || rc=$?
    [ "$rc" = "$want" ] || fail "'$*' exits with $rc, not $want: $(cat "$work/said")"
}

said() { # WHAT
    grep -qF -- "$1" "$work/said" || fail "says '$(cat "$work/said")', not '$1'"
}

commit_publishes() {
    begin
    echo inside >"$t/a"
    ends_with 0 "$TBLFS" commit "$t"
    same "said" "$(cat "$work/said")" ""
    same "content" "$(cat "$mnt/a")" inside
    [ ! -e "$t" ] || fail "$t is still there"
    begin
    echo again >"$t/a"
    (cd "$t" && ends_with 0 "$TBLFS" commit .)
    same "content" "$(cat "$mnt/a")" again
    begin
    ln -s "$t" "$work/link"
    echo by link >"$t/a"
    ends_with 0 "$TBLFS" commit "$work/link/"
    same "content" "$(cat "$mnt/a")" "by link"
    rm "$work/link"
    ok commit_publishes
}

abort_forgets() {
    begin
    mkdir "$t/dir"
    echo inside >"$t/dir/x"
    ends_with 0 "$TBLFS" abort "$t"
    same "said" "$(cat "$work/said")" ""
    [ ! -e "$t" ] && [ ! -e "$mnt/dir" ] || fail "it is still there"
    ok abort_forgets
}

conflict_is_shown_and_leaves_it_open() {
    echo row >"$mnt/b"
    begin
    echo inside >"$t/a"
    echo inside >"$t/b"
    echo inside >"$t/c"
    echo outside >"$mnt/a"
    rm "$mnt/b"
    ends_with 75 "$TBLFS" commit "$t"
    said "$t was not committed"
    diff <(grep $'\t' "$work/said") "$t/.tblfs/conflicts" || fail "shows other conflicts"
    same "conflicts" "$(grep $'\t' "$work/said" | tail -n +2 | cut -f1 | sort | tr '\n' ' ')" "a b "
    awk -F '\t' '/\t/ && (NF != 4 || $2 == "" || $3 == "") { exit 1 }' "$work/said" || fail "says $(cat "$work/said")"
    same "still open" "$(cat "$t/a")" inside
    ends_with 75 "$TBLFS" commit "$t"
    ends_with 0 "$TBLFS" abort "$t"
    same "live" "$(cat "$mnt/a")" outside
    ok conflict_is_shown_and_leaves_it_open
}

writers_are_shown_and_leave_it_open() {
    local file
    begin
    mkdir "$t/sub"
    exec {file}>"$t/sub/table"
    ends_with 1 "$TBLFS" commit "$t"
    said "open for writing"
    said "$$"$'\tsub/table'
    exec {file}>&-
    ends_with 0 "$TBLFS" commit "$t"
    [ -e "$mnt/sub/table" ] || fail "not committed"
    ok writers_are_shown_and_leave_it_open
}

what_is_gone_is_not_begun_again() {
    local gesture
    begin
    ends_with 0 "$TBLFS" commit "$t"
    for gesture in commit abort; do
        ends_with 1 "$TBLFS" $gesture "$t"
        said "there is no such transaction"
        ends_with 1 "$TBLFS" $gesture "$mnt/.txn/never"
        said "there is no such transaction"
    done
    begin
    (
        cd "$t"
        mkdir .commit
        ends_with 1 "$TBLFS" commit .
        ends_with 1 "$TBLFS" abort .
    )
    same "open" "$(ls "$mnt/.txn")" ""
    ok what_is_gone_is_not_begun_again
}

what_is_no_transaction_is_refused() {
    local gesture path
    mkdir -p "$mnt/tree/.txn/x" "$work/plain/.txn/x" "$mnt/.snap/s"
    begin
    mkdir "$t/dir"
    for gesture in commit abort; do
        for path in "$mnt" "$mnt/.txn" "$mnt/a" "$mnt/tree" "$mnt/tree/.txn/x" "$work/plain/.txn/x" "$mnt/.snap/s" \
            "$mnt/.tblfs" "$t/dir" "$t/.tblfs" "$t/.tblfs/base" /; do
            ends_with 1 "$TBLFS" $gesture "$path"
            said "is not a transaction"
            [ -e "$path" ] || fail "$path is gone"
        done
        ends_with 2 "$TBLFS" $gesture
        ends_with 2 "$TBLFS" $gesture "$t" "$t"
        ends_with 2 "$TBLFS" $gesture --all "$t"
    done
    rmdir "$t" "$mnt/.snap/s"
    rm -r "$mnt/tree" "$work/plain"
    ok what_is_no_transaction_is_refused
}

others_may_not() {
    begin
    echo roots >"$t/a"
    ends_with 1 "${user[@]}" "$TBLFS" commit "$t"
    said "only root and the user who began it"
    ends_with 1 "${user[@]}" "$TBLFS" abort "$t"
    said "only root and the user who began it"
    ends_with 0 "$TBLFS" abort "$t"
    "${user[@]}" mkdir "$mnt/.txn/users"
    ends_with 0 "${user[@]}" "$TBLFS" commit "$mnt/.txn/users"
    ok others_may_not
}

aborted_one_says_why() {
    local tries
    begin
    for ((tries = 0; tries < 1000; tries++)); do
        ! grep -q $'^state\taborted' "$t/.tblfs/status" || break
        sleep 0.02
    done
    ends_with 76 "$TBLFS" commit "$t"
    said "aborted for you: "
    said txn_max_age
    ends_with 76 "$TBLFS" commit "$t"
    ends_with 0 "$TBLFS" abort "$t"
    same "open" "$(ls "$mnt/.txn")" ""
    ok aborted_one_says_why
}

dead_daemon_is_told() {
    local pid
    begin
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    ends_with 1 "$TBLFS" commit "$t"
    said "the daemon is gone"
    ends_with 1 "$TBLFS" abort "$t"
    said "the daemon is gone"
    ok dead_daemon_is_told
}

mount_store allow_other
commit_publishes
abort_forgets
conflict_is_shown_and_leaves_it_open
writers_are_shown_and_leave_it_open
what_is_gone_is_not_begun_again
what_is_no_transaction_is_refused
others_may_not
umount_store
mount_store txn_max_age=1
aborted_one_says_why
dead_daemon_is_told
mount_store
umount_store
check_store
