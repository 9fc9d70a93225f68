#!/bin/bash
# tests/mount/scripts.sh - what mountscripts/ has for scripts and for systemd, on a real mount.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

# in_script SHELL TEXT: with the library, in a shell of its own; its exit status.
in_script() {
    local status=0
    timeout 60 "$1" -c ". '$root/mountscripts/tblfs.sh'
        $2" script "$mnt" >"$work/out" 2>"$work/said" || status=$?
    echo "$status"
}

none_is_open() {
    same "open transactions" "$(ls "$mnt/.txn")" ""
}

library_commits_and_aborts() {
    local shell=$1
    same "committed" "$(in_script "$shell" 'tx_begin "$1" && echo row >"$tx/made" && tx_commit && [ -z "$tx" ]')" 0
    same "content" "$(cat "$mnt/made")" row
    same "aborted" "$(in_script "$shell" 'tx_begin "$1" && echo other >"$tx/made" && tx_abort && tx_abort')" 0
    same "content" "$(cat "$mnt/made")" row
    same "named" "$(in_script "$shell" 'tx_begin "$1" "a name" && echo "$tx" && tx_abort')" 0
    same "its name" "$(cat "$work/out")" "$mnt/.txn/a name"
    same "relative" "$(in_script "$shell" 'cd "$1/.." && tx_begin mnt && cd / && rm "$tx/made" && tx_commit')" 0
    [ ! -e "$mnt/made" ] || fail "not committed"
    none_is_open
    ok "library_commits_and_aborts in $shell"
}

library_aborts_what_is_left_open() {
    local shell=$1 pid
    same "exit" "$(in_script "$shell" 'tx_begin "$1" && echo row >"$tx/left"; exit 3')" 3
    none_is_open
    same "set -e" "$(in_script "$shell" 'set -e; tx_begin "$1"; echo row >"$tx/left"; false; tx_commit')" 1
    none_is_open
    same "SIGTERM" "$(in_script "$shell" 'tx_begin "$1" && kill -TERM $$ && sleep 1')" 143
    none_is_open
    same "its own traps" "$(in_script "$shell" 'TX_TRAPS=no; trap "echo mine" EXIT; tx_begin "$1"; tx_abort')" 0
    same "said" "$(cat "$work/out")" mine
    [ ! -e "$mnt/left" ] || fail "committed"
    ok "library_aborts_what_is_left_open in $shell"
}

library_says_what_is_wrong() {
    local shell=$1
    echo old >"$mnt/table"
    same "conflict" "$(in_script "$shell" 'tx_begin "$1"; echo inside >"$tx/table"; echo outside >"$1/table"; tx_commit')" 75
    grep -q "others changed" "$work/said" || fail "says $(cat "$work/said")"
    same "content" "$(cat "$mnt/table")" outside
    same "two" "$(in_script "$shell" 'tx_begin "$1"; tx_begin "$1" || exit 9')" 9
    same "no mount" "$(in_script "$shell" 'tx_begin / || exit 9')" 9
    grep -q "no tblfs is mounted there" "$work/said" || fail "says $(cat "$work/said")"
    [ "$(in_script "$shell" tx_commit)" != 0 ] || fail "committed nothing"
    none_is_open
    rm "$mnt/table"
    ok "library_says_what_is_wrong in $shell"
}

# complete_words WORD...: what completion offers for the last word.
complete_words() {
    PATH=$(dirname "$TBLFS"):$PATH bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tblfs; printf "%s\n" "${COMPREPLY[@]}"' \
        "$root/mountscripts/completion/tblfs.bash" tblfs "$@" | sort | tr '\n' ' '
}

completion_knows_the_program() {
    same "commands" "$(complete_words um)" "umount "
    same "a topic" "$(complete_words help sett)" "settings "
    same "settings" "$(complete_words mount data mnt -o checkpoint_i)" "checkpoint_interval= "
    same "in a list" "$(complete_words mount data mnt -o ro,cac)" "ro,cache= "
    same "a switch" "$(complete_words mount data mnt -o allow)" "allow_other "
    same "long ones" "$(complete_words umount --ab)" "--abort-transactions "
    complete_words umount "$mnt" | grep -q "$mnt " || fail "mounts: $(complete_words umount "$mnt")"
    ok completion_knows_the_program
}

# zsh_complete WORD...: the same of zsh. What offers words is replaced: completion itself needs a terminal.
zsh_complete() {
    PATH=$(dirname "$TBLFS"):$PATH zsh -f -c 'file=$1 && shift && words=("$@") CURRENT=$#
        compadd() { while [ "$1" != -- ]; do shift; done; shift; print -rl -- $@ }
        compset() { words[CURRENT]=${words[CURRENT]##*,} }
        _describe() { print -rl -- ${(P)4} }
        _files() { print files }
        . $file' zsh "$root/mountscripts/completion/_tblfs" tblfs "$@"
}

zsh_completion_knows_the_program() {
    zsh_complete um | grep -qx 'umount:Unmounts, and returns when everything is on disk' || fail "commands: $(zsh_complete um)"
    zsh_complete help sett | grep -q '^settings:' || fail "topics: $(zsh_complete help sett)"
    zsh_complete mount data mnt -o ro,ca | grep -qx 'cache=' || fail "settings: $(zsh_complete mount data mnt -o ro,ca)"
    zsh_complete mount data mnt -o allow | grep -qx 'allow_other' || fail "a switch: $(zsh_complete mount data mnt -o allow)"
    same "long ones" "$(zsh_complete umount --)" "--abort-transactions"
    zsh_complete umount "$mnt" | grep -qxF "$mnt" || fail "mounts: $(zsh_complete umount "$mnt")"
    zsh_complete copy "" | grep -qx files || fail "files: $(zsh_complete copy "")"
    ok zsh_completion_knows_the_program
}

# The newest ones stay, an older one goes only when the new one is whole, and nothing half done is left.
nightly_bases_are_kept() {
    local keep=$root/mountscripts/keep-bases name
    mkdir "$work/bases"
    for name in 2026-01-01T000000Z 2026-01-02T000000Z 2026-01-03T000000Z mine; do
        mkdir "$work/bases/$name"
    done
    "$keep" "$mnt" "$work/bases" 2 >/dev/null 2>&1 || fail "keep-bases"
    same "kept" "$(find "$work/bases" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | sed 's/^20[2-9][0-9]-..-..T......Z$/a base/' | uniq -c | tr -s ' ')" \
        " 2 a base
 1 mine"
    [ -d "$work/bases/2026-01-03T000000Z" ] || fail "the newest old one went"
    "$TBLFS" verify "$(find "$work/bases" -name '20*' | sort | tail -n 1)" >/dev/null || fail "no base"
    mkdir -p "$work/kept/2026-01-01T000000Z"
    refuses "nothing is mounted there" "$keep" "$work" "$work/kept" 1
    same "kept when it fails" "$(ls "$work/kept")" 2026-01-01T000000Z
    refuses "not a number" "$keep" "$mnt" "$work/bases" none
    rm -r "$work/bases" "$work/kept"
    ok nightly_bases_are_kept
}

started_service_answers() {
    python3 - "$work/notify" "$TBLFS" mount -f -o "log=$work/log" "$data" "$mnt" <<'PYTHON'
import os, signal, socket, subprocess, sys
path, command = sys.argv[1], sys.argv[2:]
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
told.settimeout(50)
told.bind(path)
daemon = subprocess.Popen(command, env=dict(os.environ, NOTIFY_SOCKET=path))
try:
    assert told.recv(100) == b"READY=1", "not told that it is ready"
    assert os.path.isdir(command[-1] + "/.txn"), "ready, but not mounted"
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(50) == 0, "exit status"
finally:
    daemon.kill()
    daemon.wait()
PYTHON
    ok started_service_answers
}

units_are_well_formed() {
    local unit
    command -v systemd-analyze >/dev/null || { ok "units_are_well_formed (not looked at: no systemd-analyze)" && return; }
    mkdir -p "$work/units"
    for unit in "$root"/mountscripts/systemd/*; do
        sed "s:/usr/local/bin/tblfs:$TBLFS:; s:/usr/local/share/tblfs/:$root/mountscripts/:" "$unit" >"$work/units/${unit##*/}"
    done
    systemd-analyze verify --man=no "$work"/units/* >"$work/said" 2>&1 || true
    ! grep -F "$work/units" "$work/said" || fail "units: $(cat "$work/said")"
    ok units_are_well_formed
}

# A page for every command, and none that groff has something to say about.
man_pages_are_complete() {
    local command page
    for command in $("$TBLFS" help | sed -n 's/^  \([a-z]\{2,\}\)  *[A-Z].*/\1/p'); do
        [ -r "$1/man1/tblfs-$command.1" ] || fail "no page for $command"
        man -P cat -l "$1/man1/tblfs.1" 2>/dev/null | grep -q "tblfs-$command(1)" || fail "tblfs(1) does not name $command"
    done
    [ -n "${command:-}" ] || fail "no commands"
    for page in "$1"/man*/*; do
        same "what groff says of ${page##*/}" "$(tbl "$page" | groff -man -Tutf8 -ww -z 2>&1)" ""
    done
    man -P cat -l "$1/man5/tblfs.5" 2>/dev/null | grep -A 2 '^ *txn_max_age' | grep -q "Default: none" || fail "settings"
}

installed_files_are_where_they_belong() {
    make -s -C "$root" install DESTDIR="$work/root" PREFIX=/opt/tblfs B="$(dirname "$TBLFS")" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
    same "the command" "$("$work/root/opt/tblfs/bin/tblfs" version)" "$("$TBLFS" version)"
    grep -q "^ExecStart=/opt/tblfs/bin/tblfs mount -f" "$work/root/opt/tblfs/lib/systemd/system/tblfs@.service" || fail "unit"
    grep -q "^ExecStart=/opt/tblfs/share/tblfs/keep-bases " "$work/root/opt/tblfs/lib/systemd/system/tblfs-backup@.service" || fail "unit"
    [ -x "$work/root/opt/tblfs/share/tblfs/keep-bases" ] || fail "keep-bases"
    [ -r "$work/root/opt/tblfs/share/zsh/site-functions/_tblfs" ] || fail "zsh"
    [ -r "$work/root/opt/tblfs/share/tblfs/tblfs.sh" ] || fail "library"
    man_pages_are_complete "$work/root/opt/tblfs/share/man"
    TBLFS=$work/root/opt/tblfs/bin/tblfs "$work/root/sbin/mount.tblfs" "$data" "$mnt" -o rw,nofail || fail "mount helper"
    TBLFS=$work/root/opt/tblfs/bin/tblfs "$work/root/sbin/umount.fuse.tblfs" "$mnt" || fail "umount helper"
    ok installed_files_are_where_they_belong
}

mount_store
for shell in sh bash; do
    library_commits_and_aborts "$shell"
    library_aborts_what_is_left_open "$shell"
    library_says_what_is_wrong "$shell"
done
completion_knows_the_program
zsh_completion_knows_the_program
nightly_bases_are_kept
umount_store
started_service_answers
units_are_well_formed
installed_files_are_where_they_belong
