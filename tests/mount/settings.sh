#!/bin/bash
# tests/mount/settings.sh - settings by -o and by tblfs.conf, how they are listed, and what is refused.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

# setting NAME COLUMN...: of the mount
setting() {
    awk -F '\t' -v name="$1" -v columns="$2" 'BEGIN { count = split(columns, wanted, " ") }
        NR == 1 { for (i = 1; i <= NF; i++) place[$i] = i }
        $1 == name { for (i = 1; i <= count; i++) printf("%s%s", (i > 1 ? " " : ""), $place[wanted[i]]); print "" }' \
        "$mnt/.tblfs/settings"
}

conf_counts_and_options_override_it() {
    "$TBLFS" mkfs "$data"
    printf 'cache = 32M # enough here\nallow_other = yes\ntxn_max_age = 2h\nsnap_mode = 1777\n' >"$data/tblfs.conf"
    mount_store cache=48M
    same "overridden" "$(setting cache "value default from")" "50331648 268435456 option"
    same "frames" "$(awk '$1 == "frames" { print $2 }' "$mnt/.tblfs/cache")" 6144
    same "from the file" "$(setting txn_max_age "value unit from")" "7200 seconds tblfs.conf"
    same "effect" "$(stat -c %a "$mnt/.snap")" 1777
    same "a switch" "$(setting allow_other "value from")" "yes tblfs.conf"
    same "neither" "$(setting checkpoint_interval "value from")" "60 default"
    umount_store
    check_store
    [ -e "$data/tblfs.conf" ] || fail "the file is gone"
    ok conf_counts_and_options_override_it
}

wrong_conf_is_refused_by_line() {
    cp "$data/tblfs.conf" "$work/kept"
    printf 'cache = 32M\n\ncahce = 64M\n' >"$data/tblfs.conf"
    refuses "$data/tblfs.conf:3: cahce: unknown setting; is it cache;" "$TBLFS" mount "$data" "$mnt"
    printf 'cache = 1000K\n' >"$data/tblfs.conf"
    refuses "$data/tblfs.conf:1: cache=1000K: less than 1M" "$TBLFS" mount "$data" "$mnt" -o cache=32M
    cp "$work/kept" "$data/tblfs.conf"
    ok wrong_conf_is_refused_by_line
}

settings_are_listed_for_people_and_programs() {
    mount_store
    "$TBLFS" settings >"$work/listed"
    same "columns" "$(head -n 1 "$work/listed" | tr -s ' ')" "name value default unit min max from meaning"
    grep -q '^cache  *268435456  *268435456  *bytes ' "$work/listed" || fail "lists $(cat "$work/listed")"
    "$TBLFS" settings --json "$mnt" | python3 -c 'import json, sys
for setting in json.load(sys.stdin):
    print(*(setting[key] for key in ("name", "value", "from")))
' >"$work/json"
    grep -qx 'cache 33554432 tblfs.conf' "$work/json" || fail "as JSON: $(cat "$work/json")"
    grep -qx "log $work/log option" "$work/json" || fail "as JSON: $(cat "$work/json")"
    same "all of them" "$(wc -l <"$work/json")" "$(rows "$mnt/.tblfs/settings" | wc -l)"
    refuses "is a store mounted there?" "$TBLFS" settings "$work"
    refuses "unknown option '--yaml'" "$TBLFS" settings --yaml
    umount_store
    ok settings_are_listed_for_people_and_programs
}

what_was_meant_is_told() {
    refuses "snap_mod: unknown option; is it snap_mode;" "$TBLFS" mount "$data" "$mnt" -o snap_mod=700
    refuses "there is no command 'setings' (is it settings?)" "$TBLFS" setings
    ok what_was_meant_is_told
}

conf_counts_and_options_override_it
wrong_conf_is_refused_by_line
settings_are_listed_for_people_and_programs
what_was_meant_is_told
