#!/bin/bash
# tests/mount/appenders.sh - fifty processes append rows to one table, and more through the shell: all rows arrive whole.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

rows_of_fifty_writers_are_whole() {
    timeout 120 "$HELPERS/calls" append "$mnt/rows" 50 100 || fail "append"
    same "rows" "$(wc -l <"$mnt/rows")" 5000
    awk -F '\t' '{ whole = NF == 4 && length($4) == $3; gsub(substr($4, 1, 1), "", $4) } !whole || $4 != "" { exit 1 }' \
        "$mnt/rows" || fail "a row is torn"
    same "each once" "$(cut -f1,2 "$mnt/rows" | sort -u | wc -l)" 5000
    awk -F '\t' '$2 != next_of[$1]++ { exit 1 }' "$mnt/rows" || fail "a writer's rows are out of order"
    ok rows_of_fifty_writers_are_whole
}

shell_appends_are_whole() {
    local writer
    for writer in {1..8}; do
        (for row in {1..100}; do printf '%d\t%d\n' "$writer" "$row" >>"$mnt/shell"; done) &
    done
    wait
    same "rows" "$(sort -u "$mnt/shell" | grep -c '^[1-8]'$'\t''[0-9]*$')" 800
    ok shell_appends_are_whole
}

long_write_lands_whole() {
    local writer
    for writer in 1 2 3 4; do
        head -c 999999 /dev/zero | tr '\0' "$writer" >"$work/long.$writer"
        echo >>"$work/long.$writer"
    done
    for writer in 1 2 3 4; do
        dd if="$work/long.$writer" of="$mnt/long" bs=1000000 oflag=append conv=notrunc status=none &
    done
    wait
    same "rows" "$(wc -l <"$mnt/long")" 4
    same "whole rows" "$(cat "$work"/long.? | cmp - <(sort "$mnt/long") && echo yes)" yes
    ok long_write_lands_whole
}

mount_store
rows_of_fifty_writers_are_whole
shell_appends_are_whole
long_write_lands_whole
checksums "$mnt" >"$work/before"
umount_store
check_store
mount_store
checksums "$mnt" | diff "$work/before" - || fail "tables differ after a remount"
umount_store
