#!/bin/bash
# tests/mount/transactions.sh - MNT/.txn: begin, work inside, commit and abort by gestures, what is refused, and who may do what.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

txn=$mnt/.txn
user=(setpriv --reuid=1234 --regid=567 --clear-groups)
other=(setpriv --reuid=4321 --regid=765 --clear-groups)

begin() { # NAME: sets $t
    t=$txn/$1
    timeout 20 mkdir "$t" || fail "cannot begin $1"
}

commit() {
    timeout 20 mkdir "$t/.commit" || fail "cannot commit $t"
}

is_gone() {
    local call
    [ ! -e "$1" ] || fail "$1 is there"
    for call in "ls '$1'" "stat '$1'" "cat '$1/a'" "touch '$1/x'" "mkdir '$1/.commit'" "rmdir '$1'" "ls '$1/.tblfs'"; do
        refuses "No such file" bash -c "$call"
    done
}

make_tree() {
    mkdir -p "$mnt/dir/deep"
    echo one >"$mnt/a"
    echo two >"$mnt/dir/b"
    printf 'row 1\nrow 2\n' >"$mnt/dir/rows"
    seq 20000 >"$mnt/dir/deep/long"
    ln "$mnt/a" "$mnt/also"
    ln -s a "$mnt/pointer"
}

remove_tree() {
    rm -rf "${mnt:?}"/*
}

# ---- begin ----

directory_is_there_but_unlisted() {
    same "listing of the root" "$(ls -A "$mnt")" ""
    same "mode and owner" "$(stat -c '%a %U:%G %F' "$txn")" "1777 root:root directory"
    same "listing" "$(ls -A "$txn")" ""
    begin one
    same "listed inside" "$(ls -A "$txn")" one
    same "names of the directory" "$(stat -c %h "$txn")" 3
    same "number when listed" "$(find "$txn" -mindepth 1 -maxdepth 1 -printf %i)" "$(stat -c %i "$t")"
    same "number of the parent" "$(stat -c %i "$t/..")" "$(stat -c %i "$txn")"
    refuses "busy" rmdir "$txn"
    refuses "busy" mv "$txn" "$mnt/elsewhere"
    rmdir "$t"
    same "listing" "$(ls -A "$txn")" ""
    ok directory_is_there_but_unlisted
}

begin_shows_the_whole_tree_as_of_now() {
    make_tree
    t=$(umask 022 && mktemp -d -p "$txn")
    diff -r --no-dereference "$mnt" "$t" || fail "differs at once"
    echo three >"$mnt/a"
    rm -r "$mnt/dir"
    same "unchanged" "$(cat "$t/a" "$t/dir/b")" "$(printf 'one\ntwo')"
    same "mode and owner" "$(stat -c '%a %u %g' "$t")" "700 0 0"
    same "hard links" "$(stat -c %h "$t/a")" 2
    same "symbolic link" "$(cat "$t/pointer")" one
    refuses "exists" mkdir "$t"
    rmdir "$t"
    remove_tree
    ok begin_shows_the_whole_tree_as_of_now
}

inode_numbers_differ_between_trees() {
    make_tree
    begin one
    find "$mnt" "$txn" "$t/.tblfs/base" "$mnt/.tblfs" -not -type d -links 1 -printf '%i\n' | sort >"$work/numbers"
    find "$mnt" "$txn" "$t/.tblfs" "$mnt/.tblfs" -type d -printf '%i\n' | sort >>"$work/numbers"
    same "numbers twice" "$(sort "$work/numbers" | uniq -d | wc -l)" 0
    awk '$1 >= 2 ^ 53 { exit 1 }' "$work/numbers" || fail "numbers above 2^53"
    cp "$t/a" "$mnt/a" || fail "cp takes them for the same file"
    rmdir "$t"
    remove_tree
    ok inode_numbers_differ_between_trees
}

# ---- inside ----

what_is_done_inside_is_private() {
    make_tree
    begin one
    local before
    before=$(checksums "$mnt" | cksum)
    (
        cd "$t"
        echo changed >a
        echo row 3 >>dir/rows
        sed -i 's/2/two/' dir/deep/long
        rm dir/b pointer
        mkdir new
        mv dir/deep new/
        ln new/deep/long link
        touch new/file
        truncate -s 100000 new/file
        setfattr -n user.colour -v red a
        chmod 600 a
    )
    same "the live tree" "$(checksums "$mnt" | cksum)" "$before"
    same "its attributes" "$(stat -c %a "$mnt/a")" 644
    [ ! -e "$mnt/new" ] || fail "seen outside"
    echo outside >"$mnt/outside"
    [ ! -e "$t/outside" ] || fail "seen inside"
    same "content" "$(cat "$t/a" "$t/dir/rows" | tr '\n' ' ')" "changed row 1 row 2 row 3 "
    same "names" "$(cd "$t" && find . | sort | tr '\n' ' ')" \
        ". ./a ./also ./dir ./dir/rows ./link ./new ./new/deep ./new/deep/long ./new/file "
    rmdir "$t"
    same "after the abort" "$(checksums "$mnt" | grep -v outside | cksum)" "$before"
    is_gone "$t"
    remove_tree
    ok what_is_done_inside_is_private
}

base_is_the_tree_at_begin() {
    make_tree
    cp -a "$mnt/." "$work/base"
    begin one
    echo inside >"$t/a"
    echo outside >"$mnt/a"
    rm -r "$t/dir" "$mnt/dir"
    diff -r --no-dereference "$t/.tblfs/base" "$work/base" || fail "base is not as it was"
    same "diff3" "$(diff3 "$t/a" "$t/.tblfs/base/a" "$mnt/a" | head -n 1)" "===="
    refuses "Read-only" touch "$t/.tblfs/base/x"
    refuses "Read-only" bash -c "echo x >>'$t/.tblfs/base/a'"
    refuses "Read-only" mkdir "$t/.tblfs/base/.commit"
    refuses "Read-only" mkdir "$t/.tblfs/.commit"
    refuses "not permitted" ln "$t/.tblfs/base/a" "$t/x"
    rmdir "$t"
    remove_tree
    rm -r "$work/base"
    ok base_is_the_tree_at_begin
}

scratch_tables_are_gone_when_it_closes() {
    local records reader how
    make_tree
    for how in commit abort; do
        begin one
        same "empty at first" "$(ls -A "$t/.tblfs/tmp")" ""
        same "owner and mode" "$(stat -c '%u %a' "$t/.tblfs/tmp")" "0 700"
        records=$(status log_records)
        (
            cd "$t/.tblfs/tmp"
            seq 300000 >numbers
            sort -rn --buffer-size=1M -T . -o sorted numbers
            mkdir -p some/where
            mv sorted some/where/
            ln numbers again
            ln -s again pointer
            seq 5 >short
            sed -i 's/5/five/' short
            rm pointer
        )
        same "log records" "$(status log_records)" "$records"
        same "sorted" "$(head -n 1 "$t/.tblfs/tmp/some/where/sorted")" 300000
        same "edited" "$(tail -n 1 "$t/.tblfs/tmp/short")" five
        refuses "Invalid argument" mkdir "$t/.tblfs/tmp/.commit"
        refuses "not permitted" mv "$t/.tblfs/tmp/short" "$t/short"
        refuses "not permitted" ln "$t/a" "$t/.tblfs/tmp/a"
        same "no changes" "$(rows "$t/.tblfs/changes")" ""
        same "no transaction of its own" "$(rows "$mnt/.tblfs/transactions" | wc -l)" 1
        exec {reader}<"$t/.tblfs/tmp/numbers"
        cp "$t/.tblfs/tmp/short" "$t/short"
        if [ $how = commit ]; then commit; else rmdir "$t"; fi
        is_gone "$t"
        same "who reads on" "$(cat <&$reader | tail -n 1)" 300000
        exec {reader}<&-
    done
    same "what was copied" "$(tail -n 1 "$mnt/short")" five
    [ ! -e "$mnt/numbers" ] || fail "scratch tables in the live tree"
    remove_tree
    ok scratch_tables_are_gone_when_it_closes
}

nothing_crosses_between_trees() {
    local call
    make_tree
    begin one
    begin two
    t=$txn/one
    for call in "mv '$t/a' '$mnt/x'" "mv '$mnt/a' '$t/x'" "mv '$t/a' '$txn/two/x'" "ln '$t/a' '$mnt/x'" \
        "ln '$mnt/a' '$t/x'" "mv '$t' '$mnt/x'" "mv '$t' '$txn/x'" "mv -T '$t' '$txn/two'" "mv '$mnt/dir' '$txn/x'" \
        "mv '$t/dir' '$mnt/x'" "touch '$txn/x'" "ln -s x '$txn/x'" "mkfifo '$txn/x'" "ln '$mnt/a' '$txn/x'" \
        "chmod 755 '$t'" "chown 1 '$t'" "touch '$t'" "setfattr -n user.x -v 1 '$t'" "chmod 700 '$txn'"; do
        refuses "not permitted" bash -c "$call"
    done
    for call in .txn .snap .tablespace; do
        refuses "No such file" ls "$t/$call"
        refuses "busy" mkdir "$t/$call"
        refuses "busy" mv "$t/dir" "$t/$call"
    done
    refuses "exists" mkdir "$t/.tblfs"
    refuses "busy" rmdir "$t/.tblfs"
    same "the live tree" "$(ls -A "$mnt" | tr '\n' ' ')" "a also dir pointer "
    rmdir "$t" "$txn/two"
    remove_tree
    ok nothing_crosses_between_trees
}

commit_is_reserved_everywhere() {
    local dir call
    make_tree
    begin one
    mkdir "$mnt/.snap/s"
    for dir in "$mnt" "$mnt/dir" "$t/dir" "$t/dir/deep"; do
        [ ! -e "$dir/.commit" ] || fail "$dir/.commit is there"
        for call in "mkdir '$dir/.commit'" "mkdir -p '$dir/.commit'" "touch '$dir/.commit'" "ln -s x '$dir/.commit'" \
            "mkfifo '$dir/.commit'" "echo >'$dir/.commit'"; do
            refuses "Invalid argument" bash -c "$call"
        done
        : >"$dir/file"
        refuses "Invalid argument" ln "$dir/file" "$dir/.commit"
        refuses "subdirectory of itself" mv "$dir/file" "$dir/.commit" # what mv makes of EINVAL
    done
    for call in "ln -s x '$t/.commit'" "mkfifo '$t/.commit'" "ln '$t/a' '$t/.commit'" \
        "mkdir '$txn/.commit'"; do
        refuses "Invalid argument" bash -c "$call"
    done
    refuses "subdirectory of itself" mv "$t/a" "$t/.commit"
    refuses "Read-only" mkdir "$mnt/.snap/s/.commit"
    refuses "Read-only" mkdir "$mnt/.tblfs/.commit"
    same "listed anywhere" "$(find "$mnt" "$txn" "$mnt/.snap" -name .commit | wc -l)" 0
    [ -d "$t" ] || fail "committed by that"
    rmdir "$t" "$mnt/.snap/s"
    remove_tree
    ok commit_is_reserved_everywhere
}

# ---- commit ----

commit_publishes_all_at_once() {
    local how
    for how in mkdir touch "bash -c ': >\$0'" "mkdir -p"; do
        make_tree
        begin one
        echo changed >"$t/a"
        echo row 3 >>"$t/dir/rows"
        rm "$t/dir/b"
        mkdir "$t/new"
        mv "$t/dir/deep" "$t/new/"
        cp -a "$t" "$work/want"
        eval "timeout 20 $how '$t/.commit'" || fail "$how says $?"
        is_gone "$t"
        same "listed" "$(ls -A "$txn")" ""
        diff -r --no-dereference "$mnt" "$work/want" || fail "by $how: not what was committed"
        same "both names" "$(cat "$mnt/also")" changed
        rm -r "$work/want"
        remove_tree
    done
    ok commit_publishes_all_at_once
}

commit_is_durable_when_it_returns() {
    local pid syncs
    make_tree
    begin one
    echo kept >"$t/kept"
    syncs=$(status log_syncs)
    commit
    [ "$(status log_syncs)" -gt "$syncs" ] || fail "not synced"
    begin two
    echo lost >"$t/lost"
    seq 200000 >"$t/.tblfs/tmp/lost"
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    mount_store allow_other
    same "committed" "$(cat "$mnt/kept")" kept
    [ ! -e "$mnt/lost" ] || fail "what was not committed is there"
    same "transactions" "$(ls -A "$txn")" ""
    remove_tree
    ok commit_is_durable_when_it_returns
}

conflict_leaves_it_open() {
    make_tree
    begin one
    echo inside >"$t/a"
    echo row 3 >>"$t/dir/rows"
    same "no conflict yet" "$(rows "$t/.tblfs/conflicts")" ""
    echo outside >"$mnt/a"
    echo row 4 >>"$mnt/dir/rows"
    refuses "temporarily unavailable" mkdir "$t/.commit"
    refuses "temporarily unavailable" touch "$t/.commit"
    same "still open" "$(cat "$t/a")" inside
    same "conflicts" "$(rows "$t/.tblfs/conflicts" | cut -f1 | sort -u)" a
    rows "$t/.tblfs/conflicts" | awk -F '\t' 'NF != 4 || $4 !~ /^20..-..-..T..:..:..\.......Z$/ { exit 1 }' ||
        fail "not the table it should be: $(cat "$t/.tblfs/conflicts")"
    same "changes" "$(rows "$t/.tblfs/changes" | cut -f1 | sort | tr '\n' ' ')" "a dir/rows "
    rmdir "$t"
    same "outside" "$(cat "$mnt/a" "$mnt/dir/rows" | tr '\n' ' ')" "outside row 1 row 2 row 4 "
    remove_tree
    ok conflict_leaves_it_open
}

appends_merge() {
    local inode tail
    make_tree
    inode=$(stat -c %i "$mnt/dir/rows")
    exec {tail}<"$mnt/dir/rows"
    cat <&$tail >/dev/null
    begin one
    echo inside >>"$t/dir/rows"
    echo outside >>"$mnt/dir/rows"
    commit
    same "rows" "$(tr '\n' ' ' <"$mnt/dir/rows")" "row 1 row 2 outside inside "
    same "who reads on" "$(cat <&$tail | tr '\n' ' ')" "outside inside "
    same "identity" "$(stat -c %i "$mnt/dir/rows")" "$inode"
    exec {tail}<&-
    remove_tree
    ok appends_merge
}

open_for_writing_is_busy() {
    local file
    make_tree
    begin one
    exec {file}>>"$t/dir/rows"
    refuses "busy" mkdir "$t/.commit"
    same "who" "$(awk -F '\t' '/^writer\./ { print $2, substr($1, 8) }' "$t/.tblfs/status")" "dir/rows $$"
    echo more >&$file
    exec {file}>&-
    exec {file}<"$t/dir/rows"
    commit
    same "read on" "$(tail -n 1 <&$file)" more
    exec {file}<&-
    same "committed" "$(tail -n 1 "$mnt/dir/rows")" more
    remove_tree
    ok open_for_writing_is_busy
}

reader_goes_on_with_its_version() {
    local file inode appender
    make_tree
    inode=$(stat -c %i "$mnt/dir/deep/long")
    exec {file}<"$mnt/dir/deep/long"
    head -c 100 <&$file >/dev/null
    exec {appender}>>"$mnt/a"
    begin one
    seq 5 >"$t/dir/deep/long"
    echo second >"$t/a"
    commit
    same "next open" "$(wc -l <"$mnt/dir/deep/long")" 5
    same "who keeps old versions" "$(awk -F '\t' -v pid=$$ '$1 == "open file" && $3 == pid' "$mnt/.tblfs/holders" | wc -l)" 2
    same "old one by its handle" "$(stat -Lc '%i %h' /proc/self/fd/$file)" "$inode 0"
    [ "$(stat -c %i "$mnt/dir/deep/long")" != "$inode" ] || fail "the same inode number"
    same "old one to its end" "$(cat <&$file | tail -n 1)" 20000
    echo third >&$appender
    same "appended to the new one" "$(tr '\n' ' ' <"$mnt/a")" "second third "
    same "under both names" "$(cat "$mnt/also" | tr '\n' ' ')" "second third "
    begin two
    echo fourth >"$t/also"
    commit
    echo fifth >&$appender
    same "replaced twice" "$(tr '\n' ' ' <"$mnt/a")" "fourth fifth "
    begin three
    rm "$t/a" "$t/also"
    commit
    if echo sixth >&$appender; then fail "appended to nothing"; fi 2>/dev/null
    [ ! -e "$mnt/a" ] || fail "not dropped"
    exec {file}<&- {appender}>&-
    remove_tree
    ok reader_goes_on_with_its_version
}

write_through_handle_of_replaced_table_is_stale() {
    local file
    make_tree
    exec {file}<>"$mnt/a"
    begin one
    echo second >"$t/a"
    commit
    if echo x >&$file; then fail "written"; fi 2>"$work/said"
    grep -q "Stale" "$work/said" || fail "says $(cat "$work/said")"
    exec {file}>&-
    same "new one" "$(cat "$mnt/a")" second
    remove_tree
    ok write_through_handle_of_replaced_table_is_stale
}

caches_know_of_the_commit() {
    local name
    make_tree
    mkdir "$mnt/many"
    for name in {1..50}; do echo "old $name" >"$mnt/many/$name"; done
    ls -lR "$mnt" >/dev/null
    cat "$mnt"/many/* >/dev/null
    begin one
    for name in {1..40}; do echo "newer $name" >"$t/many/$name"; done
    rm "$t"/many/4[1-9]
    mv "$t/many/50" "$t/many/fifty"
    mv "$t/dir" "$t/moved"
    chmod 600 "$t/pointer/../a" 2>/dev/null || chmod 600 "$t/a"
    commit
    same "contents" "$(cat "$mnt"/many/* | sort -u | cut -d' ' -f1 | sort | uniq -c | tr -s ' \n' ' ')" " 40 newer 1 old "
    same "sizes" "$(stat -c %s "$mnt/many/7")" 8
    same "names" "$(ls "$mnt/many" | wc -l)" 41
    [ ! -e "$mnt/many/45" ] || fail "dropped, and there"
    [ ! -e "$mnt/many/50" ] || fail "renamed, and there"
    [ ! -e "$mnt/dir" ] || fail "moved, and there"
    same "moved" "$(cat "$mnt/moved/b")" two
    same "mode" "$(stat -c %a "$mnt/a")" 600
    same "links" "$(stat -c %h "$mnt")" 4
    remove_tree
    ok caches_know_of_the_commit
}

name_can_be_begun_again() {
    local number
    for number in {1..30}; do
        begin again
        echo "$number" >"$t/number"
        if [ $((number % 3)) = 0 ]; then rmdir "$t"; else commit; fi
        [ ! -e "$t/number" ] || fail "$t/number is there"
    done
    same "last" "$(cat "$mnt/number")" 29
    begin again
    mkdir -p "$t"
    mkdir -p "$t/.commit"
    mkdir -p "$t/.commit" # documented: it begins and commits an empty one
    is_gone "$t"
    remove_tree
    ok name_can_be_begun_again
}

cwd_inside_sees_that_it_is_gone() {
    make_tree
    begin one
    (
        cd "$t"
        mkdir .commit
        refuses "No such file" mkdir .commit
        refuses "No such file" touch x
        refuses "No such file" cat a
    )
    begin two
    (
        cd "$t/dir"
        rmdir "$t"
        refuses "No such file" touch x
        refuses "No such file" cat b
        refuses "No such file" ls
    )
    same "live" "$(cat "$mnt/a")" one
    remove_tree
    ok cwd_inside_sees_that_it_is_gone
}

# ---- abort ----

abort_takes_one_call() {
    local reader writer
    make_tree
    begin one
    exec {reader}<"$t/dir/deep/long" {writer}>>"$t/a"
    timeout 20 rmdir "$t"
    is_gone "$t"
    same "reader goes on" "$(cat <&$reader | tail -n 1)" 20000
    if echo x >&$writer; then fail "written after the abort"; fi 2>"$work/said"
    grep -q "canceled" "$work/said" || fail "says $(cat "$work/said")"
    exec {reader}<&- {writer}>&-
    same "live" "$(cat "$mnt/a")" one
    remove_tree
    ok abort_takes_one_call
}

# Attributes by name and links are what they are now, behind the reply and in the middle of it.
links_and_attributes_are_never_old() {
    local i
    mkdir "$mnt/links"
    for i in {1..20}; do
        ln -s "old$i" "$mnt/links/$i"
        echo old >"$mnt/links/table$i"
        setfattr -n user.a -v 1 "$mnt/links/table$i"
    done
    readlink "$mnt"/links/{1..20} >/dev/null
    begin one
    for i in {1..19}; do
        ln -sf "new$i" "$t/links/$i"
        echo new >"$t/links/table$i"
    done
    rm "$t/links/20"
    commit
    same "links" "$(readlink "$mnt"/links/{1..19} | tr '\n' ' ')" "$(printf 'new%s ' {1..19})"
    if readlink "$mnt/links/20"; then fail "a link that was dropped"; fi
    same "attributes" "$(getfattr -d "$mnt"/links/table* 2>/dev/null | grep -c '^user.a')" 20
    rm -r "$mnt/links"
    ok links_and_attributes_are_never_old
}

writers_of_an_aborted_one_are_told() {
    begin one
    python3 - "$t" <<'END' || fail "see above"
import errno, os, sys
t = sys.argv[1]
fd = os.open(t + "/written", os.O_RDWR | os.O_CREAT)
os.write(fd, b"row\n")
os.rmdir(t)
for name, call in (("write", lambda: os.write(fd, b"x")), ("ftruncate", lambda: os.ftruncate(fd, 0)),
                   ("fsync", lambda: os.fsync(fd))):
    try:
        call()
        sys.exit(name + ": no error")
    except OSError as error:
        if error.errno != errno.ECANCELED:
            sys.exit(name + ": " + str(error))
if os.pread(fd, 10, 0) != b"row\n":
    sys.exit("does not read on")
END
    is_gone "$t"
    ok writers_of_an_aborted_one_are_told
}

walks_do_not_commit() {
    local where want
    make_tree
    mkdir "$mnt/.snap/s"
    begin one
    echo inside >"$t/a"
    want=$(checksums "$mnt" | cksum)
    for where in "$mnt" "$t" "$mnt/.snap/s"; do
        timeout 60 cp -a "$where" "$work/copy"
        timeout 60 rsync -a "$where/" "$work/synced"
        timeout 60 tar -cf "$work/tar" -C "$where" .
        timeout 60 find "$where" >"$work/found"
        timeout 60 grep -r inside "$where" >/dev/null || true
        timeout 60 du -s "$where" >/dev/null
        [ ! -e "$work/copy/.txn" ] && [ ! -e "$work/copy/.tblfs" ] || fail "walked into control names"
        same "control names found" "$(grep -cE "$where/\.(txn|snap|tblfs|commit)" "$work/found")" 0
        same "in the archive" "$(tar -tf "$work/tar" | grep -cE '\.(txn|snap|tblfs|commit)')" 0
        [ ! -e "$work/synced/.txn" ] && [ ! -e "$work/synced/.tblfs" ] || fail "rsync walked into control names"
        same "second rsync" "$(timeout 60 rsync -ai "$where/" "$work/synced")" ""
        rm -r "$work/copy" "$work/synced" "$work/tar"
    done
    same "live" "$(checksums "$mnt" | cksum)" "$want"
    [ -d "$t" ] || fail "it is gone"
    rm -rf "$t" # ends as an abort
    is_gone "$t"
    same "live" "$(checksums "$mnt" | cksum)" "$want"
    rmdir "$mnt/.snap/s"
    remove_tree
    ok walks_do_not_commit
}

# ---- others ----

only_its_owner_and_root_enter() {
    local call
    make_tree
    "${user[@]}" mkdir "$txn/users"
    same "owner and mode" "$(stat -c '%u %g %a' "$txn/users")" "1234 567 700"
    for call in "ls" "stat \$0/a; cat \$0/a; false" "mkdir \$0/.commit" "rmdir" "cat \$0/.tblfs/status"; do
        case $call in *\$0*) ;; *) call="$call \$0" ;; esac
        refuses "$([ "$call" = "rmdir \$0" ] && echo "not permitted" || echo "denied")" \
            "${other[@]}" bash -c "$call" "$txn/users"
    done
    begin roots
    refuses "denied" "${user[@]}" mkdir "$t/.commit"
    refuses "not permitted" "${user[@]}" rmdir "$t"
    rmdir "$t"
    "${user[@]}" cat "$txn/users/a" >/dev/null
    "${user[@]}" mkdir "$txn/users/.commit"
    is_gone "$txn/users"
    "${user[@]}" mkdir "$txn/users"
    rmdir "$txn/users" # root may
    remove_tree
    ok only_its_owner_and_root_enter
}

nobody_changes_through_it_what_he_could_not_change_outside() {
    local call
    make_tree
    "${user[@]}" mkdir "$txn/users"
    t=$txn/users
    for call in "touch '$t/x'" "mkdir '$t/x'" "ln -s x '$t/x'" "mkfifo '$t/x'" "rm -f '$t/a'" "mv '$t/a' '$t/x'" \
        "rmdir '$t/dir'" "echo x >'$t/a'" "echo x >'$t/dir/b'" "touch '$t/dir/x'" "ln '$t/a' '$t/x'" \
        "mv '$t/dir/b' '$t/x'"; do
        refuses "" "${user[@]}" bash -c "$call"
    done
    same "nothing happened" "$(rows "$t/.tblfs/changes")" ""
    rmdir "$t"
    chmod 1777 "$mnt"
    "${user[@]}" bash -c "echo mine >'$mnt/mine'"
    "${user[@]}" mkdir "$t"
    "${user[@]}" bash -c "cd '$t' && mv mine moved && echo x >new && mkdir sub && rm moved"
    refuses "not permitted" "${user[@]}" rm -f "$t/a"
    refuses "not permitted" "${user[@]}" mv "$t/a" "$t/x"
    refuses "not permitted" "${user[@]}" mv "$t/new" "$t/a"
    "${user[@]}" mkdir "$t/.commit"
    same "committed" "$(stat -c %u "$mnt/new" "$mnt/sub" | tr '\n' ' ')" "1234 1234 "
    chgrp 99 "$mnt"
    chmod 770 "$mnt"
    setpriv --reuid=1234 --regid=567 --groups=99 mkdir "$t"
    setpriv --reuid=1234 --regid=567 --groups=99 touch "$t/by-group"
    setpriv --reuid=1234 --regid=567 --groups=99 mkdir "$t/.commit"
    [ -e "$mnt/by-group" ] || fail "group members may not"
    chmod 755 "$mnt"
    chgrp 0 "$mnt"
    remove_tree
    ok nobody_changes_through_it_what_he_could_not_change_outside
}

# ---- tables ----

tables_of_the_system_list_them() {
    local number
    make_tree
    number=$(rows "$mnt/.tblfs/commits" | tail -n 1 | cut -f1)
    begin $'odd\tname'
    echo more >>"$t/dir/rows"
    begin two
    rows "$mnt/.tblfs/transactions" |
        awk -F '\t' 'NF != 10 || $1 <= last || $5 !~ /^20..-..-..T..:..:..\.......Z$/ { exit 1 } { last = $1 }' || fail "transactions: $(cat "$mnt/.tblfs/transactions")"
    same "names and operations" "$(rows "$mnt/.tblfs/transactions" | cut -f2,3,7 | tr '\t\n' '  ')" "odd?name 0 1 two 0 0 "
    awk -F '\t' 'NF != 3 { exit 1 }' "$mnt/.tblfs/holders" || fail "holders: $(cat "$mnt/.tblfs/holders")"
    grep -q '^transaction' "$mnt/.tblfs/holders" || fail "holders: $(cat "$mnt/.tblfs/holders")"
    rmdir "$t"
    t=$txn/$'odd\tname'
    commit
    tail -n 1 "$mnt/.tblfs/commits" >"$work/receipt"
    awk -F '\t' 'NF != 8 { exit 1 }' "$mnt/.tblfs/commits" || fail "commits: $(cat "$mnt/.tblfs/commits")"
    same "receipt" "$(cut -f1,4,5,7 "$work/receipt")" "$((${number:-0} + 1))"$'\todd?name\t0\t1'
    same "transactions" "$(rows "$mnt/.tblfs/transactions")" ""
    remove_tree
    ok tables_of_the_system_list_them
}

status_and_changes_say_what_is_in_it() {
    make_tree
    begin one
    same "nothing yet" "$(rows "$t/.tblfs/changes" && rows "$t/.tblfs/conflicts")" ""
    same "listing" "$(ls "$t/.tblfs" | tr '\n' ' ')" "base changes conflicts status tmp "
    echo x >"$t/made"
    rm "$t/dir/b"
    same "changes" "$(rows "$t/.tblfs/changes" | cut -f1,2 | sort | tr '\t\n' '  ')" "dir/b remove made create "
    awk -F '\t' '$1 == "operations" && $2 > 0 { found = 1 } END { exit !found }' "$t/.tblfs/status" ||
        fail "status: $(cat "$t/.tblfs/status")"
    refuses "Read-only" bash -c "echo x >'$t/.tblfs/status'"
    refuses "Read-only" touch "$t/.tblfs/x"
    refuses "Read-only" rm -f "$t/.tblfs/changes"
    refuses "No such file" ls "$t/dir/.tblfs"
    touch -d '1 hour' "$mnt/.txn" 2>/dev/null && fail "touched .txn"
    [ "$t" -nt "$mnt/also" ] || fail "its time is not that of its last change"
    rmdir "$t"
    remove_tree
    ok status_and_changes_say_what_is_in_it
}

# ---- limits ----

wait_aborted() {
    local tries
    for ((tries = 0; tries < 1000; tries++)); do
        ! grep -q $'^state\taborted' "$t/.tblfs/status" || return 0
        sleep 0.02
    done
    fail "not aborted: $(cat "$t/.tblfs/status")"
}

tombstone_is_empty_and_answers_canceled() { # WHY: $t was aborted
    local call
    grep -q "$1" "$t/.tblfs/status" || fail "status says $(cat "$t/.tblfs/status")"
    for call in "cat '$t/a'" "stat '$t/a'" "touch '$t/a'" "mkdir '$t/.commit'" "touch '$t/.commit'" "mkdir '$t/x'" \
        "rm '$t/a'" "cat '$t/.tblfs/changes'" "ls '$t/.tblfs/base'" "mkdir -p '$t/.commit'" "chmod 700 '$t'"; do
        refuses "canceled" bash -c "$call"
    done
    mkdir -p "$t" # it is there, so that its name cannot be begun again by accident
    same "listing" "$(ls -A "$t")" ""
    same "tables" "$(ls "$t/.tblfs")" status
    same "mode and owner" "$(stat -c '%a %u' "$t")" "700 0"
    same "listed" "$(ls "$txn")" "${t##*/}"
    same "number when listed" "$(find "$txn" -mindepth 1 -maxdepth 1 -printf %i)" "$(stat -c %i "$t")"
    same "keeps nothing" "$(rows "$mnt/.tblfs/transactions")" ""
    rmdir "$t"
    is_gone "$t"
}

old_transaction_is_aborted() {
    local reader writer
    mount_store txn_max_age=1
    make_tree
    begin old
    exec {reader}<"$t/dir/deep/long" {writer}>>"$t/a"
    (
        cd "$t/dir"
        wait_aborted
        refuses "canceled" cat b
        refuses "canceled" touch x
    )
    same "reader goes on" "$(cat <&$reader | tail -n 1)" 20000
    if echo x >&$writer; then fail "written after the abort"; fi 2>"$work/said"
    grep -q "canceled" "$work/said" || fail "says $(cat "$work/said")"
    exec {reader}<&- {writer}>&-
    tombstone_is_empty_and_answers_canceled txn_max_age
    grep -q "transaction old of user 0 was aborted" "$work/log" || fail "nothing in the log"
    begin removed
    wait_aborted
    rm -rf "$t" # ends it as well
    is_gone "$t"
    remove_tree
    umount_store
    ok old_transaction_is_aborted
}

large_transaction_is_aborted() {
    mount_store txn_max_bytes=1M
    make_tree
    begin large
    head -c 3M /dev/urandom >"$t/much"
    wait_aborted
    tombstone_is_empty_and_answers_canceled txn_max_bytes
    [ ! -e "$mnt/much" ] || fail "it is in the live tree"
    remove_tree
    umount_store
    ok large_transaction_is_aborted
}

# ---- the end of the mount ----

umount_refuses_with_changed_ones() {
    mount_store
    begin unchanged
    umount_store
    mount_store
    begin changed
    echo x >"$t/x"
    refuses "--abort-transactions" "$TBLFS" umount "$mnt"
    grep -q "changed of user 0: [1-9] changes" "$work/said" || fail "says $(cat "$work/said")"
    [ -e "$t/x" ] || fail "it is gone"
    timeout 70 "$TBLFS" umount "$mnt" --abort-transactions || fail "does not abort"
    mount_store
    [ ! -e "$mnt/x" ] || fail "committed"
    same "transactions" "$(ls "$txn")" ""
    umount_store
    ok umount_refuses_with_changed_ones
}

signal_is_refused_once_with_changed_ones() {
    local pid tries
    mount_store
    begin changed
    echo x >"$t/x"
    pid=$(daemon_pid)
    kill "$pid"
    for ((tries = 0; tries < 1000; tries++)); do
        ! grep -q "stays mounted for the sake of" "$work/log" || break
        sleep 0.02
    done
    grep -q "transaction changed of user 0 is open" "$work/log" || fail "not listed"
    same "still there" "$(cat "$t/x")" x
    kill "$pid"
    wait_gone "$pid"
    check_store
    mount_store
    [ ! -e "$mnt/x" ] || fail "committed"
    umount_store
    ok signal_is_refused_once_with_changed_ones
}

mount_store allow_other
directory_is_there_but_unlisted
begin_shows_the_whole_tree_as_of_now
inode_numbers_differ_between_trees
what_is_done_inside_is_private
base_is_the_tree_at_begin
scratch_tables_are_gone_when_it_closes
nothing_crosses_between_trees
commit_is_reserved_everywhere
commit_publishes_all_at_once
conflict_leaves_it_open
appends_merge
open_for_writing_is_busy
reader_goes_on_with_its_version
write_through_handle_of_replaced_table_is_stale
caches_know_of_the_commit
name_can_be_begun_again
cwd_inside_sees_that_it_is_gone
abort_takes_one_call
links_and_attributes_are_never_old
writers_of_an_aborted_one_are_told
walks_do_not_commit
only_its_owner_and_root_enter
nobody_changes_through_it_what_he_could_not_change_outside
tables_of_the_system_list_them
status_and_changes_say_what_is_in_it
commit_is_durable_when_it_returns
umount_store
old_transaction_is_aborted
large_transaction_is_aborted
umount_refuses_with_changed_ones
signal_is_refused_once_with_changed_ones
check_store
