#!/bin/bash
# tests/mount/txn_command.sh - `tblfs txn`: each exit status, what it shows, what COMMAND sees, and that the transaction is closed
# whatever happens.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

user=(setpriv --reuid=1234 --regid=567 --clear-groups)

# txn STATUS ARGUMENT...: that is the exit status, and the transaction is closed; output in $work/out, messages in $work/said.
txn() {
    local want=$1 rc=0
    shift
    (cd "$work" && timeout 60 "$TBLFS" txn "$@") >"$work/out" 2>"$work/said" || rc=$?
    ended "$want" "$rc" "$*"
}

ended() { # WANT STATUS WHAT
    [ "$2" = "$1" ] || fail "'$3' exits with $2, not $1: $(cat "$work/said")"
    same "open after '$3'" "$(ls "$mnt/.txn")" ""
}

said() { # WHAT
    grep -qF -- "$1" "$work/said" || fail "says '$(cat "$work/said")', not '$1'"
}

make_tree() {
    echo one >"$mnt/a"
    echo two >"$mnt/b"
}

remove_tree() {
    rm -rf "${mnt:?}"/*
}

# ---- exit statuses ----

success_commits() {
    make_tree
    txn 0 "$mnt" -- sh -ec "echo inside >a; rm b; cat '$mnt/a'; cat a"
    same "said" "$(cat "$work/said")" ""
    same "seen by COMMAND" "$(tr '\n' ' ' <"$work/out")" "one inside "
    same "content" "$(cat "$mnt/a")" inside
    [ ! -e "$mnt/b" ] || fail "not removed"
    txn 0 "$mnt" true
    txn 0 "$mnt" cp -f a c # options of COMMAND are its own, without -- too
    same "copied" "$(cat "$mnt/c")" inside
    remove_tree
    ok success_commits
}

failure_aborts_with_its_status() {
    local status
    make_tree
    for status in 1 7 75 125 255; do
        txn $status "$mnt" -- sh -c "echo inside >a; exit $status"
        same "said" "$(cat "$work/said")" ""
    done
    txn 137 "$mnt" -- sh -c 'echo inside >a; kill -KILL $$'
    txn 143 "$mnt" -- sh -c 'echo inside >a; kill -TERM $$'
    same "content" "$(cat "$mnt/a")" one
    remove_tree
    ok failure_aborts_with_its_status
}

what_cannot_be_run_has_status_of_env() {
    make_tree
    printf '#!/bin/sh\n' >"$work/script"
    txn 127 "$mnt" -- no-such-command
    said "no-such-command: No such file"
    txn 126 "$mnt" -- ./a
    said "its working directory is the transaction"
    txn 127 "$mnt" -- ./script # which is outside
    said "its working directory is the transaction"
    remove_tree
    ok what_cannot_be_run_has_status_of_env
}

wrong_usage_runs_nothing() {
    local call
    for call in "" "'$mnt'" "'$mnt' --" "'$mnt' --retry" "'$mnt' --retry x -- touch ran" "'$mnt' --retry -1 -- touch ran" \
        "'$mnt' --unknown -- touch ran" "'$mnt' --name a/b -- touch ran" "'$mnt' --name .. -- touch ran" \
        "'$mnt' --name '' -- touch ran" "'$work' -- touch ran" "'$work/none' -- touch ran" "/proc -- touch ran"; do
        eval "txn 125 $call"
        grep -q '^tblfs' "$work/said" || fail "says nothing"
    done
    mkdir "$mnt/dir"
    txn 125 "$mnt/dir" -- touch ran
    said "nothing is mounted there"
    [ ! -e "$work/ran" ] && [ ! -e "$mnt/ran" ] && [ ! -e "$mnt/dir/ran" ] || fail "it ran"
    remove_tree
    ok wrong_usage_runs_nothing
}

# ---- conflicts ----

conflict_is_shown_and_aborts() {
    make_tree
    txn 75 "$mnt" -- sh -ec "echo inside >a; echo inside >c; echo outside >'$mnt/a'"
    said "was not committed"
    same "conflicts" "$(grep $'\t' "$work/said" | tail -n +2 | cut -f1)" a
    awk -F '\t' '/\t/ && $1 != "path" && (NF != 4 || $2 == "" || $3 == "" || $4 !~ /^20/) { exit 1 }' "$work/said" ||
        fail "says $(cat "$work/said")"
    same "content" "$(cat "$mnt/a")" outside
    [ ! -e "$mnt/c" ] || fail "half of it was committed"
    remove_tree
    ok conflict_is_shown_and_aborts
}

retry_runs_it_again() {
    make_tree
    rm -f "$work/runs"
    txn 0 "$mnt" --retry 3 -- sh -ec "
        echo \$TXN >>'$work/runs'
        [ \$(wc -l <'$work/runs') -ge 3 ] || echo outside >>'$mnt/a'
        { cat a; echo inside; } >a.new
        mv a.new a"
    same "runs" "$(wc -l <"$work/runs")" 3
    same "transactions" "$(sort -u "$work/runs" | wc -l)" 3
    said "beginning again (2 of 3)"
    same "content" "$(tr '\n' ' ' <"$mnt/a")" "one outside outside inside "
    rm "$work/runs"
    txn 75 "$mnt" --retry 2 --name same -- sh -ec "echo \$TXN >>'$work/runs'; echo inside >a; echo outside >>'$mnt/a'"
    same "runs" "$(uniq -c "$work/runs" | tr -s ' ')" " 3 $mnt/.txn/same"
    rm "$work/runs"
    txn 4 --retry 2 "$mnt" -- sh -c "echo run >>'$work/runs'; exit 4" # failing is no conflict
    same "runs" "$(wc -l <"$work/runs")" 1
    rm "$work/runs"
    remove_tree
    ok retry_runs_it_again
}

counters_of_many_add_up() {
    local number
    echo 0 >"$mnt/counter"
    for number in 1 2 3 4; do
        for _ in 1 2 3 4 5; do
            timeout 100 "$TBLFS" txn "$mnt" --retry 1000 -- sh -ec 'n=$(cat counter); echo $((n + 1)) >counter'
        done 2>"$work/said.$number" &
    done
    wait
    same "counter" "$(cat "$mnt/counter")" 20
    remove_tree
    ok counters_of_many_add_up
}

# ---- what COMMAND sees ----

command_is_in_the_transaction() {
    make_tree
    txn 0 "$mnt" -- sh -ec 'echo "$TXN"; pwd; /bin/pwd; echo "$OLDPWD"; cat; echo "$@"' name 'a b' c <<<"input"
    mapfile -t lines <"$work/out"
    [[ ${lines[0]} == "$mnt"/.txn/txn.?????? ]] || fail "TXN is ${lines[0]}"
    same "working directory" "${lines[1]} ${lines[2]}" "${lines[0]} ${lines[0]}"
    same "where it was called" "${lines[3]}" "$work"
    same "input" "${lines[4]}" input
    same "arguments" "${lines[5]}" "a b c"
    txn 0 mnt -- sh -ec 'echo "$TXN"' # a relative mount point
    [[ $(cat "$work/out") == "$mnt"/.txn/* ]] || fail "TXN is $(cat "$work/out")"
    txn 0 "$mnt" -- sh -ec "ls -l /proc/self/fd | grep -c '$mnt' || true"
    same "files on the mount that it was given" "$(cat "$work/out")" 0
    remove_tree
    ok command_is_in_the_transaction
}

name_can_be_chosen() {
    txn 0 "$mnt" --name "some name" -- sh -ec 'echo "$TXN"; touch x'
    same "name" "$(cat "$work/out")" "$mnt/.txn/some name"
    same "in the receipt" "$(tail -n 1 "$mnt/.tblfs/commits" | cut -f4)" "some name"
    mkdir "$mnt/.txn/taken"
    refuses "there is a transaction of that name" "$TBLFS" txn "$mnt" --name taken -- touch ran
    [ ! -e "$mnt/.txn/taken/ran" ] || fail "it ran"
    rmdir "$mnt/.txn/taken" # it is still there
    remove_tree
    ok name_can_be_chosen
}

private_one_is_at_the_mount_point() {
    make_tree
    txn 0 "$mnt" --private -- sh -ec "
        echo inside >'$mnt/a'
        echo \"\$TXN\"; pwd; cat a; ls -A '$mnt' | tr '\n' ' '
        echo outside >'$work/outside'"
    same "seen by COMMAND" "$(tr '\n' '|' <"$work/out")" "$mnt|$mnt|inside|a b "
    same "content" "$(cat "$mnt/a")" inside
    same "elsewhere" "$(cat "$work/outside")" outside
    txn 5 "$mnt" --private -- sh -ec "echo again >'$mnt/a'; exit 5"
    same "content" "$(cat "$mnt/a")" inside
    same "mounts" "$(grep -c " $mnt " /proc/self/mountinfo)" 1
    remove_tree
    ok private_one_is_at_the_mount_point
}

private_one_needs_no_root() {
    local rc=0
    make_tree
    chmod 777 "$mnt"
    "${user[@]}" "$TBLFS" txn "$mnt" --private -- sh -ec "id -u; echo users >'$mnt/u'" >"$work/out" 2>"$work/said" || rc=$?
    if "${user[@]}" unshare --user --mount true 2>/dev/null; then
        ended 0 $rc "--private of a user"
        same "user" "$(cat "$work/out")" 1234
        same "content and owner" "$(cat "$mnt/u") $(stat -c '%u %g' "$mnt/u")" "users 1234 567"
    else
        ended 125 $rc "--private of a user"
        said "needs root or user namespaces"
    fi
    chmod 755 "$mnt"
    remove_tree
    ok private_one_needs_no_root
}

users_have_their_own() {
    local rc=0
    make_tree
    "${user[@]}" "$TBLFS" txn "$mnt" -- sh -ec 'cat a; stat -c %u .' >"$work/out" 2>"$work/said" || rc=$?
    ended 0 $rc "a user's"
    same "seen" "$(tr '\n' ' ' <"$work/out")" "one 1234 "
    "${user[@]}" "$TBLFS" txn "$mnt" -- touch x >"$work/out" 2>"$work/said" || rc=$?
    ended 1 $rc "a user's in root's tree"
    remove_tree
    ok users_have_their_own
}

# ---- signals ----

# Runs `tblfs txn` without a terminal and sends it a signal when COMMAND has begun: end_by SIGNAL STATUS SCRIPT. SCRIPT writes a
# line to $work/ready.
end_by() {
    local pid rc=0
    env --default-signal=HUP,INT,QUIT,TERM setsid "$TBLFS" txn "$mnt" -- sh -c "$3" >"$work/out" 2>"$work/said" &
    pid=$!
    read -r child <"$work/ready"
    kill -s "$1" "$pid"
    wait "$pid" || rc=$?
    ended "$2" $rc "SIG$1"
}

# A program that writes its number to $work/ready and waits, with all signals as the system has them (a shell may put one off until
# the next command has ended).
make_waiter() {
    mkfifo "$work/ready"
    cat >"$work/waiter" <<END
#!$(command -v python3)
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
open("$work/ready", "w").write("%d\n" % os.getpid())
if len(sys.argv) > 1:
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    signal.pause()
END
    chmod +x "$work/waiter"
}

signals_end_command_and_abort() {
    local number name child
    make_tree
    make_waiter
    for name in HUP INT QUIT TERM; do
        number=$(kill -l $name)
        end_by $name $((128 + number)) "echo inside >a; '$work/waiter'; :"
        wait_gone "$child" # all of its group was told
        end_by $name $((128 + number)) "echo inside >a; exec '$work/waiter' stopped"
        # One that takes it well is aborted all the same, when it has ended.
        end_by $name $((128 + number)) "
            trap 'echo told; rm $work/waits; exit 0' $name
            echo inside >a; touch $work/waits; echo \$\$ >'$work/ready'; while :; do sleep 0.05; done"
        same "what it said" "$(cat "$work/out")" told
        [ ! -e "$work/waits" ] || fail "not waited for"
    done
    same "content" "$(cat "$mnt/a")" one
    remove_tree
    rm "$work/ready" "$work/waiter"
    ok signals_end_command_and_abort
}

signal_that_was_ignored_stays_so() {
    local pid rc=0 child
    make_tree
    mkfifo "$work/ready"
    env --ignore-signal=HUP setsid "$TBLFS" txn "$mnt" -- \
        sh -c "echo \$\$ >'$work/ready'; read -r go <'$work/ready'; kill -s HUP \$\$; echo \$go >a" 2>"$work/said" &
    pid=$!
    read -r child <"$work/ready"
    [ -n "$child" ] || fail "did not begin"
    kill -s HUP "$pid"
    echo survived >"$work/ready"
    wait "$pid" || rc=$?
    ended 0 $rc "with SIGHUP ignored"
    same "content" "$(cat "$mnt/a")" survived
    remove_tree
    rm "$work/ready"
    ok signal_that_was_ignored_stays_so
}

interrupt_ends_a_script_at_a_terminal() {
    make_tree
    cat >"$work/script" <<END
"$TBLFS" txn "$mnt" -- tee a
echo goes on >"$work/on"
END
    timeout 60 python3 - bash "$work/script" <<'END' || fail "status $?"
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
os.write(terminal, b"inside\n")
seen = b""
while seen.count(b"inside") < 2: # the terminal's echo, and what tee says
    seen += os.read(terminal, 1000)
os.write(terminal, b"\x03")
try:
    while os.read(terminal, 1000):
        pass
except OSError:
    pass
status = os.waitpid(pid, 0)[1]
sys.exit(0 if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT else status >> 8 or 99)
END
    [ ! -e "$work/on" ] || fail "the script goes on"
    same "open" "$(ls "$mnt/.txn")" ""
    same "content" "$(cat "$mnt/a")" one
    remove_tree
    rm "$work/script"
    ok interrupt_ends_a_script_at_a_terminal
}

# ---- what goes wrong ----

background_writer_is_shown() {
    local pid
    make_tree
    mkfifo "$work/go"
    txn 125 "$mnt" -- sh -c "mkdir sub; sh -c 'exec >sub/left 2>&1; echo \$\$ >\$0; exec sleep 100' '$work/go' &
        read -r pid <'$work/go'; echo \$pid >'$work/pid'"
    pid=$(cat "$work/pid")
    said "open for writing"
    said "$pid"$'\tsub/left'
    [ ! -e "$mnt/sub" ] || fail "it was committed"
    kill "$pid"
    wait_gone "$pid"
    txn 0 "$mnt" -- sh -c "sleep 100 <a >/dev/null 2>&1 & echo \$! >'$work/pid'; echo inside >a" # a reader is no obstacle
    same "content" "$(cat "$mnt/a")" inside
    kill "$(cat "$work/pid")"
    txn 0 "$mnt" -- sh -c "sh -c 'exec >late; echo >\$0; echo row' '$work/go' & read -r go <'$work/go'"
    same "written while it was committed" "$(cat "$mnt/late")" row
    rm "$work/go"
    remove_tree
    ok background_writer_is_shown
}

closed_by_command_is_told() {
    make_tree
    txn 125 "$mnt" -- sh -c "echo inside >a; mkdir \"\$TXN/.commit\""
    said "it was committed or aborted"
    same "content" "$(cat "$mnt/a")" inside
    txn 3 "$mnt" -- sh -c "echo again >a; rmdir \"\$TXN\"; exit 3"
    same "content" "$(cat "$mnt/a")" inside
    remove_tree
    ok closed_by_command_is_told
}

aborted_for_you_has_its_own_status() {
    local wait='until grep -q "^state.aborted" .tblfs/status; do sleep 0.02; done'
    make_tree
    txn 76 "$mnt" -- sh -c "echo inside >a; t=\$TXN; cd /; ${wait//.tblfs/\$t/.tblfs}"
    said "aborted for you: "
    said txn_max_age
    txn 76 "$mnt" -- sh -c "echo inside >a; t=\$TXN; cd /; ${wait//.tblfs/\$t/.tblfs}; exit 1"
    said txn_max_age
    same "content" "$(cat "$mnt/a")" one
    remove_tree
    ok aborted_for_you_has_its_own_status
}

dead_daemon_is_told() {
    local pid rc=0
    pid=$(daemon_pid)
    timeout 60 "$TBLFS" txn "$mnt" -- sh -c "kill -KILL $pid; tail --pid=$pid -f /dev/null" 2>"$work/said" || rc=$?
    same "status" $rc 125
    said "the daemon is gone"
    wait_gone "$pid"
    rc=0
    timeout 60 "$TBLFS" txn "$mnt" -- touch "$work/ran" 2>"$work/said" || rc=$?
    same "status" $rc 125
    said "its daemon is gone"
    [ ! -e "$work/ran" ] || fail "it ran"
    ok dead_daemon_is_told
}

mount_store allow_other
success_commits
failure_aborts_with_its_status
what_cannot_be_run_has_status_of_env
wrong_usage_runs_nothing
conflict_is_shown_and_aborts
retry_runs_it_again
counters_of_many_add_up
command_is_in_the_transaction
name_can_be_chosen
private_one_is_at_the_mount_point
private_one_needs_no_root
users_have_their_own
signals_end_command_and_abort
signal_that_was_ignored_stays_so
interrupt_ends_a_script_at_a_terminal
background_writer_is_shown
closed_by_command_is_told
umount_store
check_store
mount_store txn_max_age=1
aborted_for_you_has_its_own_status
dead_daemon_is_told
mount_store
umount_store
check_store
