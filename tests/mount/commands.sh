#!/bin/bash
# tests/mount/commands.sh - every command explains itself, with an example and its exit statuses, is completed by bash and zsh, and says
# which option was meant by one that it does not have; what lists something does so as JSON too.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

commands() {
    "$TBLFS" help | sed -n 's/^  \([a-z]\{2,\}\)  *[A-Z].*/\1/p'
}

switches_of() { # COMMAND
    "$TBLFS" help "$1" | sed -n '1p; /^  -/p' | grep -o -e '--[a-z][a-z-]*' | sort -u
}

every_command_explains_itself() {
    local command
    for command in $(commands); do
        "$TBLFS" "$command" --help >"$work/help" 2>"$work/said" || fail "$command --help: $(cat "$work/said")"
        "$TBLFS" help "$command" | cmp - "$work/help" || fail "help $command says something else"
        grep -qE "^  .*tblfs $command( |$)" "$work/help" || fail "$command has no example: $(cat "$work/help")"
        grep -qi "exit status" "$work/help" || fail "$command does not say what its exit status means"
    done
    [ "$(commands | wc -l)" -ge 24 ] || fail "commands: $(commands)"
    ok every_command_explains_itself
}

# The last two letters of each option are exchanged.
every_command_knows_which_option_was_meant() {
    local command option wrong count=0
    for command in $(commands); do
        for option in $(switches_of "$command"); do
            wrong=$(sed 's/\(.\)\(.\)$/\2\1/' <<<"$option")
            refuses "unknown option '$wrong' (is it $option?)" "$TBLFS" "$command" "$wrong" a b
            count=$((count + 1))
        done
        refuses "$command" "$TBLFS" "$command" --surely-no-option
    done
    [ "$count" -ge 20 ] || fail "only $count options"
    ok every_command_knows_which_option_was_meant
}

both_shells_complete_every_command() {
    local path
    path=$(dirname "$TBLFS"):$PATH
    PATH=$path bash -c '. "$0"; for command in $(_tblfs_commands); do echo "$command" $(_tblfs_switches "$command"); done' \
        "$root/mountscripts/completion/tblfs.bash" >"$work/bash"
    PATH=$path zsh -f -c '_describe() { print -rl -- ${(P)4} }
        compadd() { shift; print -r -- "$@" }
        words=(tblfs x) CURRENT=2
        for command in ${(f)"$(. $1)"}; do
            words=(tblfs ${command%%:*} --) CURRENT=3
            print -r -- ${command%%:*} $(. $1)
        done' zsh "$root/mountscripts/completion/_tblfs" >"$work/zsh"
    for command in $(commands); do
        # shellcheck disable=SC2046 # a list of words
        echo "$command" $(switches_of "$command")
    done >"$work/expected"
    diff "$work/expected" "$work/bash" || fail "bash does not complete (>) what there is (<)"
    diff <(grep -v "^help" "$work/expected") <(grep -v "^help" "$work/zsh") || fail "zsh does not complete (>) what there is (<)"
    ok both_shells_complete_every_command
}

# rows_of COMMAND...: lines of what it prints as JSON, each an object with the same names.
rows_of() {
    "$TBLFS" "$@" | python3 -c 'import json, sys
rows = json.load(sys.stdin)
assert len({tuple(row) for row in rows}) <= 1, rows
print(len(rows))'
}

lists_are_json_too() {
    local table
    mkdir "$mnt/.snap/one" "$mnt/.snap/two" "$mnt/.txn/open"
    seq 1 5000 >"$mnt/table"
    same "snapshots" "$(rows_of snapshot "$mnt" --json)" 2
    same "as columns" "$("$TBLFS" snapshot "$mnt" | awk '{ print $2 }' | tr '\n' ' ')" "name one two "
    same "tables" "$("$TBLFS" show "$mnt" | tail -n +2 | tr '\n' ' ')" \
        "$(find "$mnt/.tblfs" -mindepth 1 -printf '%f\n' | grep -vxE 'metrics|backup' | sort | tr '\n' ' ')"
    for table in $("$TBLFS" show "$mnt" | tail -n +2); do
        rows_of show "$mnt" "$table" --json >/dev/null || fail "show $table --json"
    done
    same "transactions" "$(rows_of show "$mnt" transactions --json)" 1
    [ "$(rows_of settings --json)" -ge 15 ] || fail "settings"
    [ "$(rows_of status "$mnt" --json)" -ge 50 ] || fail "status"
    [ "$(rows_of fsm "$mnt/table" --json)" -ge 3 ] || fail "fsm"
    refuses "no table 'bufers' (is it buffers?)" "$TBLFS" show "$mnt" bufers
    refuses "is a store mounted there?" "$TBLFS" show "$work"
    refuses "--json is for the list" "$TBLFS" snapshot "$mnt" three --json
    rmdir "$mnt/.txn/open"
    ok lists_are_json_too
}

every_command_explains_itself
every_command_knows_which_option_was_meant
both_shells_complete_every_command
mount_store
lists_are_json_too
umount_store
