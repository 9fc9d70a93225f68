#!/bin/bash
# tests/mount/restore.sh - a base and an archive bring back what a mount had at any moment, also when its machine is gone.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

archive=$work/archive
base=$work/base
new=$work/new
mnt2=$work/mnt2
mkdir "$archive" "$mnt2"

tree() { # DIR: everything that can be told of it but ctimes
    (cd "$1" && find . -printf '%P %y %m %U %G %n %T@ %l\n' | sort && find . -type f -print0 | sort -z | xargs -0r sha256sum)
}

remember() { # NAME: the tree as it is now
    tree "$mnt" >"$work/tree.$1"
}

now() {
    date -u +%Y-%m-%dT%H:%M:%S.%NZ
}

commit_lsn() { # NAME
    awk -F '\t' -v name="$1" '$4 == name { print $2 }' "$mnt/.tblfs/commits"
}

commit_time() { # NAME
    awk -F '\t' -v name="$1" '$4 == name { print $3 }' "$mnt/.tblfs/commits"
}

# restored NAME ARGUMENTS...: what is restored with them is the tree of that name.
restored() {
    local name=$1
    shift
    rm -rf --one-file-system "$new"
    timeout 100 "$TBLFS" restore "$base" "$new" "$@" >"$work/said" 2>&1 || fail "restore $*: $(cat "$work/said")"
    timeout 60 "$TBLFS" mount "$new" "$mnt2" -o "log=$work/log" || fail "cannot mount what was restored"
    tree "$mnt2" | cmp - "$work/tree.$name" || fail "restore $*: not the tree '$name'"
    timeout 70 "$TBLFS" umount "$mnt2"
    timeout 100 "$TBLFS" check "$new" >"$work/check" || fail "check: $(cat "$work/check")"
}

# One with a table in it, in a directory NAME.
add_tablespace() { # NAME
    mkdir -p "$work/disks/$1"
    ln -s "$work/disks/$1" "$mnt/.tablespace/$1"
    mkdir "$mnt/$1"
    setfattr -n user.tblfs.tablespace -v "$1" "$mnt/$1"
    seq 20000 >"$mnt/$1/rows"
}

# What is restored never touches the tablespaces of its original: they lie in its own data directory.
tablespaces_are_the_copys_own() {
    local before
    before=$(checksums "$work/disks")
    rm -rf "$new"
    timeout 100 "$TBLFS" restore "$base" "$new" --archive "$archive" 2>"$work/said" || fail "restore: $(cat "$work/said")"
    timeout 60 "$TBLFS" mount "$new" "$mnt2" -o "log=$work/log"
    same "links" "$(cd "$mnt2/.tablespace" && readlink kept later | sort -u)" "$new"
    same "placement" "$(getfattr --absolute-names --only-values -n user.tblfs.tablespace "$mnt2/kept/rows")" kept
    seq 5 >>"$mnt2/kept/rows"
    seq 5 >"$mnt2/kept/more"
    refuses "not empty" rm "$mnt2/.tablespace/kept"
    rm -r "$mnt2/kept" "$mnt2/later"
    timeout 70 "$TBLFS" umount "$mnt2"
    timeout 60 "$TBLFS" mount "$new" "$mnt2" -o "log=$work/log"
    rm "$mnt2/.tablespace/kept" "$mnt2/.tablespace/later"
    [ -z "$(ls -A "$mnt2/.tablespace")" ] || fail "tablespaces of a copy cannot be dropped"
    timeout 70 "$TBLFS" umount "$mnt2"
    timeout 100 "$TBLFS" check "$new" >"$work/check" || fail "check: $(cat "$work/check")"
    same "the original's" "$(checksums "$work/disks")" "$before"
    ok tablespaces_are_the_copys_own
}

live_a_little() {
    mount_store "archive=$archive,archive_timeout=1d,checkpoint_log_size=1M"
    mkdir "$mnt/sales"
    seq 100000 >"$mnt/sales/orders"
    add_tablespace kept
    add_tablespace passing
    head -c 3000000 /dev/urandom >"$mnt/blob"
    remember base
    timeout 60 "$TBLFS" backup "$mnt" "$base" 2>"$work/said" || fail "backup: $(cat "$work/said")"
    seq 1000 >>"$mnt/sales/orders"
    add_tablespace later
    seq 1000 >>"$mnt/kept/rows"
    rm -r "$mnt/passing"
    rm "$mnt/.tablespace/passing"
    ln "$mnt/blob" "$mnt/also"
    setfattr -n user.colour -v red "$mnt/blob"
    remember appended
    appended=$(now)
    "$TBLFS" txn "$mnt" --name closing -- sh -ec 'sed -i s/9/nine/ sales/orders; rm also; echo x >made' || fail "txn"
    remember closing
    "$TBLFS" txn "$mnt" --name dropping -- rm -r sales || fail "txn"
    remember dropped
    closing_lsn=$(commit_lsn closing)
    dropping_lsn=$(commit_lsn dropping)
    dropping_time=$(commit_time dropping)
    umount_store # and a second life of the log
    mount_store "archive=$archive,archive_timeout=1d"
    head -c 20000000 /dev/urandom >"$mnt/large"
    remember large
    large=$(now)
    local pid
    pid=$(daemon_pid)
    kill -9 "$pid"
    wait_gone "$pid"
    mount_store "archive=$archive,archive_timeout=1d"
    rm "$mnt/large"
    echo end >"$mnt/end"
    remember end
}

any_moment_comes_back() {
    umount_store
    restored base
    restored end --archive "$archive"
    restored appended --archive "$archive" --until "$appended"
    restored closing --archive "$archive" --until closing
    restored dropped --archive "$archive" --until dropping
    restored large --archive "$archive" --until "$large"
    restored closing --archive "$archive" --until "$closing_lsn"
    restored appended --archive "$archive" --until "$((closing_lsn - 1))"
    restored closing --archive "$archive" --until "$((dropping_lsn - 1))"
    restored dropped --archive "$archive" --until "$dropping_time"
    restored end --restore-command "cp '$archive/%f' '%p' 2>/dev/null"
    ok any_moment_comes_back
}

what_cannot_be_restored_is_refused() {
    rm -rf "$new"
    refuses "before the base" "$TBLFS" restore "$base" "$new" --archive "$archive" --until 5
    rm -rf "$new"
    refuses "before the base" "$TBLFS" restore "$base" "$new" --archive "$archive" --until "2001-01-01 00:00:00"
    rm -rf "$new"
    refuses "without a commit of 'nobody'" "$TBLFS" restore "$base" "$new" --archive "$archive" --until nobody
    refuses "a restore into it was not finished" "$TBLFS" mount "$new" "$mnt2"
    refuses "with another target" "$TBLFS" restore "$base" "$new" --archive "$archive"
    refuses "there is a tblfs data directory already" "$TBLFS" restore "$base" "$data" --archive "$archive"
    refuses "not empty" "$TBLFS" restore "$base" "$archive"
    refuses "needs --archive" "$TBLFS" restore "$base" "$work/other" --until end
    local segment
    segment=$(find "$archive" -type f ! -name '*.next' -printf '%f\n' | sort | sed -n 2p)
    mv "$archive/$segment" "$work/away"
    rm -rf "$new"
    refuses "$segment" "$TBLFS" restore "$base" "$new" --archive "$archive"
    mv "$work/away" "$archive/$segment"
    cp -a "$base" "$work/bad"
    rm "$work/bad/rel/01/0000000000000001"
    rm -rf "$new"
    refuses "it is missing" "$TBLFS" restore "$work/bad" "$new"
    ok what_cannot_be_restored_is_refused
}

interrupted_restore_goes_on() {
    local at
    rm -rf "$new"
    for at in 1 2 1; do # a kill at that call of the command
        : >"$work/calls"
        timeout 100 "$TBLFS" restore "$base" "$new" --restore-command "echo >>$work/calls
            [ \$(wc -l <$work/calls) -ne $at ] || kill -9 \$PPID
            cp '$archive/%f' '%p' 2>/dev/null" 2>/dev/null && fail "was not killed"
        refuses "a restore into it was not finished" "$TBLFS" mount "$new" "$mnt2"
    done
    timeout 100 "$TBLFS" restore "$base" "$new" --archive "$archive" >"$work/said" 2>&1 || fail "restore: $(cat "$work/said")"
    timeout 60 "$TBLFS" mount "$new" "$mnt2" -o "log=$work/log"
    tree "$mnt2" | cmp - "$work/tree.end"
    timeout 70 "$TBLFS" umount "$mnt2"
    ok interrupted_restore_goes_on
}

lost_store_comes_back_with_its_own_log() {
    mount_store "archive_command=false %p %f"
    echo late >"$mnt/late"
    remember late
    local pid
    pid=$(daemon_pid)
    kill -9 "$pid"
    wait_gone "$pid"
    "$TBLFS" umount "$mnt" 2>/dev/null
    restored late --archive "$archive" --log-of "$data"
    ok lost_store_comes_back_with_its_own_log
}

restored_store_has_a_timeline_of_its_own() {
    rm -rf "$new"
    timeout 100 "$TBLFS" restore "$base" "$new" --archive "$archive" --until closing 2>"$work/said"
    grep -q "timeline 2" "$work/said" || fail "restore says '$(cat "$work/said")'"
    timeout 60 "$TBLFS" mount "$new" "$mnt2" -o "log=$work/log,archive=$archive"
    echo branch >"$mnt2/branch"
    timeout 60 "$TBLFS" backup "$mnt2" "$work/base2" 2>"$work/said"
    echo more >>"$mnt2/branch"
    tree "$mnt2" >"$work/tree.branch"
    timeout 70 "$TBLFS" umount "$mnt2"
    [ -e "$archive/00000002.history" ] || fail "no history"
    base=$work/base2
    restored branch --archive "$archive"
    grep -q "timeline 3" "$work/said" || fail "restore says '$(cat "$work/said")'"
    ok restored_store_has_a_timeline_of_its_own
}

live_a_little
any_moment_comes_back
tablespaces_are_the_copys_own
what_cannot_be_restored_is_refused
interrupted_restore_goes_on
lost_store_comes_back_with_its_own_log
restored_store_has_a_timeline_of_its_own
