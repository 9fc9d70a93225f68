#!/bin/bash
# tests/mount/archive.sh - a mount archives its log: into a directory or by a command, what it does when that fails, and what a kill and
# an unmount leave behind.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

archive=$work/archive
mkdir "$archive"

# archive_says NAME: a line of .tblfs/archive.
archive_says() {
    awk -F '\t' -v name="$1" '$1 == name { print $2 }' "$mnt/.tblfs/archive"
}

wait_until() { # WHAT COMMAND...
    local what=$1 tries
    shift
    for ((tries = 0; tries < 2000; tries++)); do
        ! "$@" || return 0
        sleep 0.02
    done
    cat "$mnt/.tblfs/archive" >&2
    fail "not $what"
}

has_archived() { # COUNT
    [ "$(archive_says archived)" -ge "$1" ]
}

has_failed() { # COUNT
    [ "$(archive_says failures)" -ge "$1" ]
}

segments() {
    find "$archive" -type f -regextype posix-extended -regex '.*/[0-9a-f]{8}-[0-9a-f]{16}' | wc -l
}

nothing_half_done() {
    [ -z "$(find "$archive" -name '*.tmp')" ] || fail "temporaries in the archive"
}

options_are_checked() {
    refuses "No such file" "$TBLFS" mount "$data" "$mnt" --create -o "archive=$work/nowhere"
    touch "$work/file"
    refuses "not a directory" "$TBLFS" mount "$data" "$mnt" --create -o "archive=$work/file"
    mkdir -p "$data"
    refuses "must not lie in each other" "$TBLFS" mount "$data" "$mnt" --create -o "archive=$data"
    refuses "lies in the mount point" "$TBLFS" mount "$data" "$mnt" --create -o "archive=$mnt"
    refuses "one of them can be given" "$TBLFS" mount "$data" "$mnt" --create -o "archive=$archive,archive_command=cp %p $archive/%f"
    refuses "where the path" "$TBLFS" mount "$data" "$mnt" --create -o "archive_command=cp file there"
    refuses "not a time" "$TBLFS" mount "$data" "$mnt" -o "archive_timeout=soon"
    ok options_are_checked
}

directory_gets_full_left_and_last_segments() {
    mount_store "archive=$archive,archive_timeout=1"
    local i
    for ((i = 0; i < 3; i++)); do head -c 8000000 /dev/urandom >"$mnt/file$i"; done
    wait_until "left in time" has_archived 2
    [ "$(archive_says waiting)" = 0 ] || wait_until "all archived" has_archived 3
    echo last >"$mnt/last"
    umount_store
    same "what was archived last" "$(cat "$data/archived")" "$(find "$archive" -type f ! -name '*.next' -printf '%f\n' | sort | tail -n 1)"
    [ "$(segments)" -ge 3 ] || fail "only $(segments) segments"
    nothing_half_done
    ok directory_gets_full_left_and_last_segments
}

kill_leaves_the_rest_to_the_next_start() {
    local before pid
    before=$(segments)
    mount_store "archive=$archive,archive_timeout=1d"
    echo before >"$mnt/killed"
    pid=$(daemon_pid)
    kill -9 "$pid"
    wait_gone "$pid"
    mount_store "archive=$archive,archive_timeout=1d"
    same "content" "$(cat "$mnt/killed")" before
    wait_until "archived after the kill" has_archived 1
    same "segments" "$(segments)" $((before + 1))
    umount_store
    nothing_half_done
    ok kill_leaves_the_rest_to_the_next_start
}

command_that_fails_is_run_again() {
    cat >"$work/keep" <<'EOF'
#!/bin/sh
[ -e "$3" ] || { echo "not now" >&2; exit 3; }
cp "$1" "$2.tmp" && sync "$2.tmp" && mv "$2.tmp" "$2"
EOF
    chmod +x "$work/keep"
    mount_store "archive_command=$work/keep %p $archive/%f $work/open,archive_timeout=1"
    echo one >"$mnt/one"
    wait_until "failing" has_failed 1
    same "archived" "$(archive_says archived)" 0
    grep -q "exit status 3" "$work/log" || fail "the log does not tell the exit status"
    local name
    name=$(archive_says failed)
    [[ $name == 00000001-* ]] || fail "failed is '$name'"
    touch "$work/open"
    wait_until "archived again" has_archived 1
    [ -e "$archive/$name" ] || fail "$name is not there"
    same "failed" "$(archive_says failed)" ""
    umount_store
    ok command_that_fails_is_run_again
}

hanging() {
    pgrep -f "^$work/hang 1000"
}

command_that_hangs_holds_nobody_up() {
    cp "$(command -v sleep)" "$work/hang"
    mount_store "archive_command=exec $work/hang 1000 # %p %f,archive_timeout=1"
    echo two >"$mnt/two"
    wait_until "running" hanging >"$work/pids"
    same "content" "$(cat "$mnt/two")" two
    kill -9 "$(hanging)"
    wait_until "noticed" has_failed 1
    grep -q "was ended by signal 9" "$work/log" || fail "the log does not tell the signal"
    wait_until "run again" hanging >"$work/pids"
    local pid
    pid=$(daemon_pid)
    kill -9 "$pid"
    wait_gone "$pid"
    kill -9 "$(hanging)"
    mount_store "archive=$archive"
    wait_until "archived" has_archived 1
    umount_store
    ok command_that_hangs_holds_nobody_up
}

another_store_is_refused() {
    local other=$work/other
    mkdir "$work/mnt2"
    timeout 60 "$TBLFS" mount "$other" "$work/mnt2" --create -o "log=$work/log,archive=$archive,archive_timeout=1"
    echo x >"$work/mnt2/x"
    local tries
    for ((tries = 0; tries < 1000; tries++)); do
        ! grep -q "is there already with another content" "$work/log" || break
        sleep 0.02
    done
    timeout 70 "$TBLFS" umount "$work/mnt2"
    grep -q "is there already with another content" "$work/log" || fail "two stores mixed"
    ok another_store_is_refused
}

options_are_checked
directory_gets_full_left_and_last_segments
kill_leaves_the_rest_to_the_next_start
command_that_fails_is_run_again
command_that_hangs_holds_nobody_up
another_store_is_refused
check_store
