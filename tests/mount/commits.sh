#!/bin/bash
# tests/mount/commits.sh - commits beside readers, renames, listings, mappings, other commits, and a client that keeps a directory
# locked: nothing old behind the reply, nothing torn, nothing hangs.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

txn=$mnt/.txn
long=${LONG:+0} # one more digit in check-long

begin() { # NAME: sets $t
    t=$txn/$1
    timeout 20 mkdir "$t" || fail "cannot begin $1"
}

commit() {
    timeout 20 mkdir "$t/.commit" || fail "cannot commit $t"
}

requests() { # KIND
    status "request.$1"
}

readers_see_one_version_and_no_old_one() {
    timeout 250 "$HELPERS/commits" replace "$mnt" 60 8 1 "20$long" || fail "see above"
    rm -r "$mnt/many"
    ok readers_see_one_version_and_no_old_one
}

a_hundred_readers_of_a_thousand_tables_see_no_old_one() { # in check-long
    timeout 580 "$HELPERS/commits" replace "$mnt" 1000 100 1 10 || fail "see above"
    rm -r "$mnt/many"
    ok a_hundred_readers_of_a_thousand_tables_see_no_old_one
}

many_committers_and_disturbers_change_nothing_of_that() {
    timeout 250 "$HELPERS/commits" replace "$mnt" 24 6 3 "6$long" disturbed || fail "see above"
    rm -r "$mnt/many"
    same "left open" "$(ls "$txn")" ""
    ok many_committers_and_disturbers_change_nothing_of_that
}

stores_through_a_mapping_and_merged_rows_both_stay() {
    timeout 250 "$HELPERS/commits" mapped "$mnt" "40$long" || fail "see above"
    rm "$mnt/mapped"
    ok stores_through_a_mapping_and_merged_rows_both_stay
}

commit_waits_only_a_second_for_a_locked_directory() {
    local holder answer rc=0
    mkdir "$mnt/held" "$mnt/other"
    echo old >"$mnt/held/a"
    echo old >"$mnt/other/a"
    ls -l "$mnt/held" "$mnt/other" >/dev/null
    mkfifo "$work/go" "$work/said.hold"
    "$HELPERS/commits" hold "$mnt/held" <"$work/go" >"$work/said.hold" &
    holder=$!
    exec {go}>"$work/go"
    read -r answer <"$work/said.hold" || {
        wait $holder || rc=$?
        [ "$rc" = 77 ] && echo "skipped: no userfaultfd" && return
        fail "does not hold: $rc"
    }
    same "answer" "$answer" holding
    begin one
    echo newer >"$t/held/a"
    echo newer >"$t/other/a"
    commit
    same "elsewhere" "$(timeout 20 cat "$mnt/other/a")" newer
    grep -q "keeps directory" "$work/log" || fail "nothing in the log"
    begin two # others go on
    echo newest >"$t/other/a"
    commit
    same "elsewhere" "$(timeout 20 cat "$mnt/other/a")" newest
    # The kernel lets nobody look up there while it waits to take the name.
    (exec {go}>&- && timeout 60 cat "$mnt/held/a" >"$work/opened") &
    exec {go}>&-
    wait $holder
    wait $!
    same "opened by its old name" "$(cat "$work/opened")" newer
    same "size" "$(stat -c %s "$mnt/held/a")" 6
    rm -r "$mnt/held" "$mnt/other" "$work/go" "$work/said.hold"
    ok commit_waits_only_a_second_for_a_locked_directory
}

tail_notices_a_replaced_table() {
    local tail tries
    echo old >"$mnt/a"
    tail -n +1 -F -s 0.05 "$mnt/a" >"$work/tail" 2>/dev/null &
    tail=$!
    for ((tries = 0; tries < 500; tries++)); do ! grep -q old "$work/tail" || break; sleep 0.02; done
    begin one
    echo merged >>"$t/a"
    commit
    for ((tries = 0; tries < 500; tries++)); do ! grep -q merged "$work/tail" || break; sleep 0.02; done
    begin two
    printf 'new one\nand another row\n' >"$t/a"
    commit
    for ((tries = 0; tries < 500; tries++)); do ! grep -q another "$work/tail" || break; sleep 0.02; done
    kill $tail
    wait $tail 2>/dev/null || true
    same "what it printed" "$(tr '\n' ' ' <"$work/tail")" "old merged new one and another row "
    rm "$mnt/a"
    ok tail_notices_a_replaced_table
}

old_and_new_are_different_files() {
    local old
    echo old >"$mnt/a"
    exec {old}<"$mnt/a"
    begin one
    echo new >"$t/a"
    commit
    [ ! "/proc/self/fd/$old" -ef "$mnt/a" ] || fail "taken for the same"
    cat <&$old >>"$mnt/a" || fail "cat says that its input is its output"
    same "both" "$(tr '\n' ' ' <"$mnt/a")" "new old "
    exec {old}<&-
    rm "$mnt/a"
    ok old_and_new_are_different_files
}

commit_and_rmdir_meet() {
    local round number
    for round in {1..20}; do
        echo 0 >"$mnt/a"
        begin "meet$round"
        echo 1 >"$t/a"
        mkdir "$t/.commit" 2>/dev/null & number=$!
        timeout 20 rmdir "$t" 2>/dev/null || true
        if wait $number; then same "committed" "$(cat "$mnt/a")" 1; else same "aborted" "$(cat "$mnt/a")" 0; fi
        [ ! -e "$t" ] || fail "still there"
    done
    rm "$mnt/a"
    ok commit_and_rmdir_meet
}

transactions_that_touch_different_names_commit_together() {
    local number pids=()
    mkdir "$mnt/shared"
    : >"$mnt/shared/log"
    for number in {1..12}; do
        (
            t=$txn/together$number
            mkdir "$t"
            echo "$number" >"$t/shared/$number"
            echo "$number" >>"$t/shared/log"
            mkdir -p "$t/shared/sub"
            echo x >"$t/shared/sub/$number"
            mkdir "$t/.commit" || { cat "$t/.tblfs/conflicts" && rmdir "$t" && exit 1; }
        ) & pids+=($!)
    done
    for number in "${pids[@]}"; do wait "$number" || fail "conflict"; done
    same "names" "$(ls "$mnt/shared" | wc -l)" 14
    same "rows" "$(sort -n "$mnt/shared/log" | tr '\n' ' ')" "$(seq 12 | tr '\n' ' ')"
    same "in the common directory" "$(ls "$mnt/shared/sub" | wc -l)" 12
    rm -r "$mnt/shared"
    ok transactions_that_touch_different_names_commit_together
}

# What a walk through $t costs: the kernel may keep names and attributes there as elsewhere.
requests_inside_are_those_of_the_live_tree() {
    local before
    mkdir -p "$mnt/deep/er"
    echo x >"$mnt/deep/er/a"
    begin one
    cat "$t/deep/er/a" >/dev/null
    before=$(requests LOOKUP)
    for _ in {1..50}; do cat "$t/deep/er/a"; done >/dev/null
    same "look-ups of cached names" "$(($(requests LOOKUP) - before - 2))" 0 # .tblfs/status itself is looked up
    rmdir "$t"
    rm -r "$mnt/deep"
    ok requests_inside_are_those_of_the_live_tree
}

mount_store
tail_notices_a_replaced_table
old_and_new_are_different_files
commit_and_rmdir_meet
transactions_that_touch_different_names_commit_together
requests_inside_are_those_of_the_live_tree
stores_through_a_mapping_and_merged_rows_both_stay
commit_waits_only_a_second_for_a_locked_directory
readers_see_one_version_and_no_old_one
[ -z "${LONG:-}" ] || a_hundred_readers_of_a_thousand_tables_see_no_old_one
many_committers_and_disturbers_change_nothing_of_that
umount_store
check_store
