#!/bin/bash
# tests/mount/snapshots.sh - MNT/.snap: what a snapshot shows while everything changes, how it is taken, renamed, dropped
# and kept over remounts and kills, and that its space comes back.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

snap=$mnt/.snap
kept=$work/kept # a copy of the tree from when the snapshot was taken

# ---- what is looked at ----

make_tree() { # DIR: of every kind, deep, sparse, with several names
    local at=$1/deep level
    mkdir -p "$1/tables" "$1/empty"
    for level in {1..20}; do at=$at/$level; done
    mkdir -p "$at"
    echo "down here" >"$at/bottom"
    seq 200000 >"$1/tables/long"
    printf 'a\tb\nno newline' >"$1/tables/short"
    : >"$1/tables/nothing"
    seq 1000 | tee "$1"/tables/many.{1..40} >/dev/null
    truncate -s 5M "$1/tables/sparse"
    echo end >>"$1/tables/sparse"
    ln "$1/tables/long" "$1/also long"
    ln -s tables/long "$1/pointer"
    ln -s nowhere "$1/dangling"
    mkfifo -m 640 "$1/fifo"
    chmod 2751 "$1/empty"
    chown 1234:567 "$1/tables/short"
    touch -d '2001-02-03 04:05:06.789012345 UTC' "$1/tables/short"
    setfattr -n user.colour -v red "$1/tables/long"
}

describe() { # DIR: every name with its attributes, contents apart
    (
        cd "$1"
        find . -mindepth 1 -printf '%p\t%y\t%m\t%U\t%G\t%n\t%T@\t%l\t' \( -type d -printf '\n' -o -printf '%s\n' \) | sort
        find . -type f -print0 | sort -z | xargs -0 getfattr -d -m user
    )
}

same_tree() { # WHAT DIR
    diff -r --no-dereference -x fifo "$kept" "$2" >"$work/differs" || fail "$1: $(head -n 5 "$work/differs")"
    same "$1: checksums" "$(checksums "$2" | cksum)" "$(checksums "$kept" | cksum)"
    describe "$2" >"$work/described"
    diff "$kept.described" "$work/described" || fail "$1: attributes differ (<: kept)"
}

keep_copy() { # also of what it is like
    rm -rf "$kept"
    cp -a "$mnt/." "$kept"
    describe "$mnt" >"$kept.described"
}

change_everything() {
    sed -i 's/7/seven/' "$mnt"/tables/many.*
    echo row >>"$mnt/tables/long"
    truncate -s 10 "$mnt/tables/short"
    rm "$mnt/tables/nothing" "$mnt/pointer" "$mnt/fifo"
    mv "$mnt/deep" "$mnt/elsewhere"
    mkdir "$mnt/deep"
    ln "$mnt/tables/short" "$mnt/deep/short"
    setfattr -n user.colour -v blue "$mnt/tables/long"
    chmod 700 "$mnt" "$mnt/tables"
    dd if=/dev/urandom of="$mnt/tables/long" bs=64K count=3 seek=2 conv=notrunc status=none
    rm -r "${mnt:?}"/*
    make_tree "$mnt"
    echo more >>"$mnt/tables/short"
    chmod 755 "$mnt"
}

# ---- the sentences ----

directory_is_there_but_unlisted() {
    same "listing of the root" "$(ls -A "$mnt")" ""
    same "mode and owner" "$(stat -c '%a %U:%G %F' "$snap")" "755 root:root directory"
    same "listing" "$(ls -A "$snap")" ""
    make_tree "$mnt"
    mkdir "$snap/seen"
    same "listed inside" "$(ls -A "$snap")" seen
    same "names of the directory" "$(stat -c %h "$snap")" 3
    same "found by find" "$(find "$mnt" -name '.snap*' | wc -l)" 0
    same "found by grep" "$(grep -rl 'down here' "$mnt" | wc -l)" 1
    same "found by tar" "$(tar -cf - -C "$mnt" . | tar -tf - | grep -c snap)" 0
    cp -a "$mnt" "$work/copied"
    [ ! -e "$work/copied/.snap" ] || fail "cp -a copies snapshots"
    rm -rf "${mnt:?}"/* "$work/copied"
    same "bottom" "$(cat "$snap"/seen/deep/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/bottom)" "down here"
    refuses "No such file" ls "$mnt/.snap/seen/.snap"
    refuses "No such file" ls "$mnt/.snap/seen/.tblfs"
    refuses "No such file" ls "$mnt/.snap/nothing"
    refuses "busy" rmdir "$snap"
    refuses "busy" mv "$snap" "$mnt/elsewhere"
    rmdir "$snap/seen"
    same "listing" "$(ls -A "$snap")" ""
    ok directory_is_there_but_unlisted
}

snapshot_stays_while_everything_changes() {
    make_tree "$mnt"
    keep_copy
    timeout 10 mkdir "$snap/one"
    same_tree "at once" "$snap/one"
    change_everything
    same_tree "after changes" "$snap/one"
    echo 3 >/proc/sys/vm/drop_caches
    same_tree "without the kernel's cache" "$snap/one"
    timeout 60 cp -a "$snap/one" "$work/back"
    same_tree "copied back" "$work/back"
    rm -rf "$work/back"
    timeout 10 stat -f "$snap/one" >/dev/null
    test -r "$snap/one/tables/long" || fail "not readable"
    same "hard links" "$(stat -c '%h %i' "$snap/one/also long")" "$(stat -c '%h %i' "$snap/one/tables/long")"
    same "holes are holes" "$(stat -c '%b' "$snap/one/tables/sparse")" 16
    ok snapshot_stays_while_everything_changes
}

inode_numbers_differ_between_trees() {
    mkdir "$snap/two"
    find "$mnt" "$snap" "$mnt/.tblfs" -not -type d -links 1 -printf '%i\n' | sort >"$work/numbers"
    find "$mnt" "$snap" "$mnt/.tblfs" -type d -printf '%i\n' | sort >>"$work/numbers"
    same "numbers twice" "$(sort "$work/numbers" | uniq -d | wc -l)" 0
    awk '$1 >= 2 ^ 53 { exit 1 }' "$work/numbers" || fail "numbers above 2^53"
    same "listed with their numbers" "$(find "$snap" -mindepth 1 -maxdepth 1 -printf '%i\n' | sort)" \
        "$(stat -c %i "$snap"/* | sort)"
    refuses "EOF" cmp "$mnt/tables/short" "$snap/one/tables/short"
    cp "$snap/one/tables/short" "$mnt/tables/short" || fail "cp takes them for the same file"
    rmdir "$snap/two"
    ok inode_numbers_differ_between_trees
}

everything_inside_is_read_only() {
    local in=$snap/one call
    for call in "touch '$in/new'" "touch '$in/tables/long'" "mkdir '$in/new'" "ln -s x '$in/new'" "mkfifo '$in/new'" \
        "rm -f '$in/tables/long'" "rmdir '$in/empty'" "mv '$in/tables/long' '$in/new'" "mv '$in/tables' '$mnt/new'" \
        "mv '$mnt/tables/long' '$in/new'" "ln '$in/tables/long' '$in/new'" "ln '$mnt/tables/long' '$in/new'" \
        "echo x >'$in/tables/long'" "echo x >>'$in/tables/long'" "echo x 1<>'$in/tables/long'" \
        "truncate -s 0 '$in/tables/long'" "chmod 600 '$in/tables/long'" "chmod 700 '$in'" "chown 1 '$in/tables/long'" \
        "sed -i d '$in/tables/long'" "cp '$mnt/tables/short' '$in/tables/short'" "echo x >'$in/new'" \
        "setfattr -n user.colour -v x '$in/tables/long'" "setfattr -x user.colour '$in/tables/long'" \
        "mkdir '$in/.commit'" "mkdir '$in/.snap'" "tee '$in/tables/short' </dev/null" "rmdir '$in/deep'"; do
        refuses "Read-only" bash -c "$call"
    done
    refuses "not permitted" ln "$in/tables/long" "$mnt/new"
    [ ! -e "$mnt/new" ] || fail "something was made"
    for call in "rm -rf '$in'" "rm -r '$in'" "rm -rf '$snap'"/*; do refuses "Read-only" bash -c "$call"; done
    same_tree "after all that" "$in"
    ok everything_inside_is_read_only
}

nothing_else_is_made_in_the_directory() {
    local call
    for call in "touch '$snap/x'" "echo x >'$snap/x'" "ln -s x '$snap/x'" "mkfifo '$snap/x'" \
        "ln '$mnt/tables/long' '$snap/x'" "mv '$snap/one' '$mnt/x'" "mv '$snap/one' '$mnt/tables/'" \
        "mv '$mnt/tables' '$snap/x'" "mv '$mnt/tables/long' '$snap/'" "mv -T '$mnt/tables' '$snap/one'" \
        "mv -T '$snap/one' '$mnt/empty'"; do
        refuses "not permitted" bash -c "$call"
    done
    refuses "Read-only" chmod 777 "$snap"
    refuses "exists" mkdir "$snap/one"
    refuses "Invalid argument" mkdir "$snap/.commit"
    refuses "too long" mkdir "$snap/$(printf 'n%.0s' {1..256})"
    refuses "not a directory" rm -d "$snap/one/tables/long/x"
    refuses "Is a directory" unlink "$snap/one"
    refuses "Permission denied" setpriv --reuid=1234 --regid=567 --clear-groups mkdir "$snap/x"
    refuses "Permission denied" setpriv --reuid=1234 --regid=567 --clear-groups rmdir "$snap/one"
    same "listing" "$(ls -A "$snap")" one
    ok nothing_else_is_made_in_the_directory
}

snapshot_is_renamed() {
    local newline=$'new\nline \xff'
    (
        cd "$snap/one/tables"
        mv "$snap/one" "$snap/$newline"
        wc -l <long >/dev/null || fail "not readable from within"
    )
    refuses "No such file" ls "$snap/one"
    same_tree "renamed" "$snap/$newline"
    same "in the table" "$(rows "$mnt/.tblfs/snapshots" | cut -f2)" "new?line "$'\xff'
    mkdir "$snap/two"
    refuses "exists" mv -T "$snap/two" "$snap/$newline"
    refuses "not permitted" mv "$snap/two" "$snap/$newline/" # into it
    rmdir "$snap/two"
    mv "$snap/$newline" "$snap/one"
    same_tree "and back" "$snap/one"
    ok snapshot_is_renamed
}

table_lists_snapshots() {
    mkdir "$snap/two"
    same "names" "$(rows "$mnt/.tblfs/snapshots" | cut -f2 | tr '\n' ' ')" "one two "
    same "columns" "$(head -n 1 "$mnt/.tblfs/snapshots")" $'number\tname\tcreated\tepoch'
    rows "$mnt/.tblfs/snapshots" | awk -F '\t' 'NF != 4 || $1 !~ /^[0-9]+$/ || $3 !~ /^20..-..-..T..:..:..\.......Z$/ || $4 !~ /^[0-9]+$/ { exit 1 }
        $1 <= number || $4 <= at { exit 1 } { number = $1; at = $4 }' ||
        fail "not the table it should be: $(cat "$mnt/.tblfs/snapshots")"
    rmdir "$snap/two"
    same "names" "$(rows "$mnt/.tblfs/snapshots" | cut -f2 | tr '\n' ' ')" "one "
    ok table_lists_snapshots
}

readers_go_on_when_it_is_dropped() {
    local file rows here
    mkdir "$snap/two"
    sum=$(sha256sum <"$mnt/tables/long")
    exec {file}<"$snap/two/tables/long"
    read -r rows <&$file
    here=$PWD
    cd "$snap/two/tables"
    timeout 10 rmdir "$snap/two"
    echo 3 >/proc/sys/vm/drop_caches
    rm -rf "${mnt:?}"/*
    refuses "No such file" cat "$snap/two/tables/short"
    if cat short 2>/dev/null; then fail "opened in a dropped snapshot"; fi
    same "listed in a dropped snapshot" "$(ls . 2>/dev/null)" ""
    cd "$here"
    same "size by the handle" "$(stat -Lc %s /proc/self/fd/$file)" 1288895
    same "bytes to the end" "$( (echo "$rows" && cat <&$file) | sha256sum)" "$sum"
    exec {file}<&-
    mkdir "$snap/two" # the same name, another snapshot
    same "the new one" "$(ls -A "$snap/two")" ""
    rmdir "$snap/two"
    ok readers_go_on_when_it_is_dropped
}

snapshots_survive_remounts_and_kills() {
    local pid number
    make_tree "$mnt"
    number=$(rows "$mnt/.tblfs/snapshots" | cut -f1)
    umount_store
    check_store
    mount_store
    same_tree "after a remount" "$snap/one"
    same "number" "$(rows "$mnt/.tblfs/snapshots" | cut -f1)" "$number"
    mkdir "$snap/two" "$snap/three"
    rmdir "$snap/three"
    mv "$snap/two" "$snap/four"
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    mount_store
    same "after a kill" "$(ls "$snap" | tr '\n' ' ')" "four one "
    same_tree "after a kill" "$snap/one"
    diff -r -x fifo --no-dereference "$mnt" "$snap/four" || fail "the one behind the last checkpoint differs"
    rmdir "$snap/four"
    umount_store
    mount_store ro
    same_tree "mounted read-only" "$snap/one"
    refuses "Read-only" mkdir "$snap/two"
    refuses "Read-only" rmdir "$snap/one"
    umount_store
    check_store
    ok snapshots_survive_remounts_and_kills
}

mode_of_the_directory_is_an_option() {
    local user=(setpriv --reuid=1234 --regid=567 --clear-groups)
    mount_store snap_mode=1777,allow_other
    same "mode" "$(stat -c '%a %U' "$snap")" "1777 root"
    "${user[@]}" mkdir "$snap/mine"
    "${user[@]}" ls "$snap/mine" >/dev/null
    refuses "not permitted" "${user[@]}" rmdir "$snap/mine" # its root belongs to root
    rmdir "$snap/mine"
    umount_store
    ok mode_of_the_directory_is_an_option
}

# Not even of the mount point itself: all tables go, what .snap and .tblfs hold does not.
removing_everything_spares_snapshots() {
    local before
    mount_store
    mkdir "$mnt/precious" && seq 1 1000 >"$mnt/precious/table"
    mkdir "$snap/kept"
    before=$(checksums "$snap/kept")
    ! rm -rf "$mnt" 2>"$work/said" || fail "the mount point was removed"
    same "tables left" "$(ls -A "$mnt")" ""
    same "the snapshot" "$(checksums "$snap/kept")" "$before"
    ! rm -rf --one-file-system "${mnt:?}"/* "$mnt"/.snap/kept 2>"$work/said" || fail "the snapshot was removed"
    same "the snapshot" "$(checksums "$snap/kept")" "$before"
    [ -n "$(rows "$mnt/.tblfs/snapshots")" ] || fail "no snapshot is listed"
    cp -a "$snap/kept/precious" "$mnt/"
    same "brought back" "$(checksums "$mnt/precious")" "$(checksums "$snap/kept/precious")"
    rmdir "$snap/kept"
    umount_store
    ok removing_everything_spares_snapshots
}

command_takes_a_durable_snapshot() {
    local syncs
    mount_store
    syncs=$(status log_syncs)
    "$TBLFS" snapshot "$mnt" by-command
    [ "$(status log_syncs)" -gt "$syncs" ] || fail "not synced"
    diff -r -x fifo --no-dereference "$mnt" "$snap/by-command"
    (cd "$mnt" && "$TBLFS" snapshot . here)
    refuses "there is a snapshot of that name" "$TBLFS" snapshot "$mnt" here
    refuses "cannot be the name" "$TBLFS" snapshot "$mnt" a/b
    refuses "cannot be the name" "$TBLFS" snapshot "$mnt" ..
    refuses "nothing is mounted" "$TBLFS" snapshot "$work" x
    refuses "nothing is mounted" "$TBLFS" snapshot "$mnt/tables" x
    refuses "not tblfs" "$TBLFS" snapshot /proc x
    refuses "No such file" "$TBLFS" snapshot "$work/missing" x
    "$TBLFS" snapshot "$mnt" | grep -q " by-command " || fail "the list"
    refuses "unknown option" "$TBLFS" snapshot -x "$mnt" y
    "$TBLFS" help snapshot | grep -q 'rmdir MNT/.snap/NAME' || fail "help says nothing"
    rmdir "$snap/by-command" "$snap/here"
    umount_store
    ok command_takes_a_durable_snapshot
}

append_until_told() {
    local row=0
    until [ -e "$work/stop" ]; do
        row=$((row + 1))
        echo "$row" >>"$mnt/rows"
        echo "$row" >"$mnt/last"
    done
}

# Each is one moment: all rows up to the last one said, or that one and no more.
twenty_snapshots_beside_a_writer_are_moments() {
    local writer number rows last before=0
    mount_store checkpoint_interval=1
    : >"$mnt/rows"
    echo 0 >"$mnt/last"
    append_until_told & writer=$!
    for number in {1..20}; do
        timeout 20 mkdir "$snap/moment.$number"
        cat "$snap/moment.$number/rows" >"$work/rows.$number"
    done
    touch "$work/stop"
    wait $writer
    rm "$work/stop"
    for number in {1..20}; do
        rows=$(wc -l <"$snap/moment.$number/rows")
        cmp "$work/rows.$number" "$snap/moment.$number/rows" || fail "moment.$number has changed"
        seq "$rows" | cmp - "$snap/moment.$number/rows" || fail "moment.$number is not a prefix"
        last=$(cat "$snap/moment.$number/last")
        [ -z "$last" ] || [ "$rows" = "$last" ] || [ "$rows" = $((last + 1)) ] || fail "$rows rows, '$last' said"
        [ "$rows" -ge "$before" ] || fail "moment.$number is older than the one before"
        before=$rows
    done
    same "listed" "$(ls "$snap" | wc -l)" 21
    (cd "$snap" && timeout 60 rmdir moment.*)
    same "left" "$(ls "$snap")" one
    umount_store
    check_store
    ok twenty_snapshots_beside_a_writer_are_moments
}

look_until_told() { # whatever is found is whole, or gone
    local found
    until [ -e "$work/stop" ]; do
        for found in "$snap"/*/whole; do
            rows=$(wc -l <"$found") || continue
            [ "$rows" = 1000 ] || echo "$rows rows in $found" >>"$work/torn"
        done
        ls -lR "$snap" >/dev/null || true
    done
} 2>/dev/null

snapshots_come_and_go_under_readers() {
    local lookers=() number
    mount_store checkpoint_interval=1,checkpoint_log_size=1M
    seq 1000 >"$mnt/whole"
    : >"$work/torn"
    for number in {1..3}; do
        look_until_told & lookers+=($!)
    done
    for number in {1..200}; do
        timeout 20 mkdir "$snap/passing.$((number % 5))"
        seq 1000 >"$mnt/new" && mv "$mnt/new" "$mnt/whole"
        [ "$number" -lt 5 ] || timeout 20 rmdir "$snap/passing.$(((number + 1) % 5))"
    done
    touch "$work/stop"
    wait "${lookers[@]}"
    rm "$work/stop"
    same "torn" "$(cat "$work/torn")" ""
    rmdir "$snap"/passing.*
    umount_store
    check_store
    ok snapshots_come_and_go_under_readers
}

space() { # of tables, in KiB
    du -sk "$data/rel" | cut -f1
}

often=checkpoint_interval=1,checkpoint_log_size=1M

# Two whole checkpoints from now: the one ends the snapshot, the other removes its files.
wait_checkpoints() {
    local want tries
    want=$(($(status checkpoints) + 3))
    for ((tries = 0; tries < 1500; tries++)); do
        seq 30000 >"$mnt/tick" # soon as much log as brings one
        [ "$(status checkpoints)" -lt "$want" ] || return 0
        sleep 0.02
    done
    fail "no checkpoint comes"
}

make_tables() { # COUNT
    local number
    for ((number = 1; number <= $1; number++)); do
        head -c 100K /dev/zero | tr '\0' "$((number % 10))" >"$mnt/space.$number"
    done
}

space_comes_back() { # WHAT COMMAND: of a dropped snapshot; COMMAND comes between taking and dropping
    local empty full held dropped
    mount_store $often
    wait_checkpoints
    empty=$(space)
    make_tables 40
    wait_checkpoints
    full=$(space)
    [ "$full" -ge $((empty + 3600)) ] || fail "$1: tables take no space: $empty, $full KiB"
    mkdir "$snap/held"
    rm "$mnt"/space.*
    wait_checkpoints
    held=$(space)
    [ "$held" -ge $((full - 800)) ] || fail "$1: space of a snapshot is gone: $full, $held KiB"
    "$2"
    same "$1: bytes" "$(cat "$snap"/held/space.* | wc -c)" $((40 * 102400))
    rmdir "$snap/held"
    wait_checkpoints
    dropped=$(space)
    [ "$dropped" -le $((empty + 800)) ] || fail "$1: space is not back: $empty, $full, $held, $dropped KiB"
    umount_store
    check_store
    ok "space_comes_back $1"
}

restart() {
    umount_store
    mount_store $often
}

# Over and over: an open file holds its version, not for ever.
open_file_holds_space_until_closed() {
    local empty held closed file
    mount_store $often
    wait_checkpoints
    empty=$(space)
    make_tables 20
    mkdir "$snap/held"
    exec {file}<"$snap/held/space.1"
    rm "$mnt"/space.*
    rmdir "$snap/held"
    wait_checkpoints
    held=$(space)
    [ "$held" -ge $((empty + 1200)) ] || fail "an open file holds nothing: $empty, $held KiB"
    same "bytes" "$(wc -c <&$file)" 102400
    exec {file}<&-
    wait_checkpoints
    closed=$(space)
    [ "$closed" -le $((empty + 800)) ] || fail "space is not back: $empty, $held, $closed KiB"
    umount_store
    check_store
    ok open_file_holds_space_until_closed
}

mount_store
directory_is_there_but_unlisted
snapshot_stays_while_everything_changes
inode_numbers_differ_between_trees
everything_inside_is_read_only
nothing_else_is_made_in_the_directory
snapshot_is_renamed
table_lists_snapshots
readers_go_on_when_it_is_dropped
snapshots_survive_remounts_and_kills
mode_of_the_directory_is_an_option
command_takes_a_durable_snapshot
removing_everything_spares_snapshots
twenty_snapshots_beside_a_writer_are_moments
snapshots_come_and_go_under_readers
space_comes_back "at once" true
space_comes_back "after a restart" restart
open_file_holds_space_until_closed
