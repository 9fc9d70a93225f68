#!/bin/bash
# tests/mount/fsm.sh - `tblfs fsm`: what each block of a table's file is used for, in the live tree, in snapshots and in transactions.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

fsm() { # ARGUMENT...
    timeout 60 "$TBLFS" fsm "$@" || fail "fsm $*"
}

# What the file holds, as "COUNT USE/PIN" for each kind, in alphabetical order.
uses() { # PATH
    fsm "$1" | awk 'NR > 1 && !/^[0-9]+ blocks:/ { n[$2 == "pinned" ? "pinned/" $3 : $2]++ } END { for (use in n) print n[use], use }' |
        sort -k2 | paste -sd' '
}

# Changes one byte of the table's block.
touch_block() { # PATH BLOCK
    printf x | dd of="$1" bs=8152 seek="$2" conv=notrunc,nocreat status=none
}

rows() { # BLOCKS
    head -c $(($1 * 8152)) < <(yes "a row of some bytes")
}

settle() { # so that no block is kept by the last checkpoint but those that are live
    umount_store
    mount_store
}

small_tables_are_shown_block_by_block() {
    mount_store
    rows 1 | head -c 4076 >"$mnt/half"
    same "half a block" "$(fsm "$mnt/half" | sed -n 2p | tr -s ' ')" "0 leaf 0 4076 50 "
    : >"$mnt/empty"
    same "an empty table" "$(fsm --summary "$mnt/empty")" "0 blocks: 0 leaves, 0 % full, 0 inner, 0 free, 0 pinned, 0 held, 0 punched"
    rows 4 >"$mnt/four"
    same "four blocks" "$(uses "$mnt/four")" "1 inner 4 leaf"
    same "its summary" "$(fsm --summary "$mnt/four")" "5 blocks: 4 leaves, 100 % full, 1 inner, 0 free, 0 pinned, 0 held, 0 punched"
    same "as JSON" "$(fsm --summary --json "$mnt/four" | sed -n 2p)" \
        '  {"blocks": 5, "leaves": 4, "leaf_bytes": 32608, "fill": 100, "inner": 1, "free": 0, "pinned": 0, "held": 0, "punched": 0}'
    same "each block as JSON" "$(fsm --json "$mnt/four" | grep -c '"use": "leaf"')" 4
    ok small_tables_are_shown_block_by_block
}

replaced_blocks_are_kept_by_the_checkpoint_and_then_free() {
    settle
    touch_block "$mnt/four" 1
    same "just written" "$(uses "$mnt/four")" "1 inner 4 leaf 2 pinned/checkpoint"
    settle
    same "behind the next checkpoint" "$(uses "$mnt/four")" "2 free 1 inner 4 leaf"
    touch_block "$mnt/four" 1 # takes the free ones
    same "written again" "$(uses "$mnt/four")" "1 inner 4 leaf 2 pinned/checkpoint"
    same "blocks as relations has them" "$(fsm --summary "$mnt/four" | cut -d' ' -f1)" \
        "$(awk -F'\t' '$3 == "four" { print $4 }' "$mnt/.tblfs/relations")"
    ok replaced_blocks_are_kept_by_the_checkpoint_and_then_free
}

snapshots_and_transactions_keep_blocks() {
    settle
    mkdir "$mnt/.snap/s"
    settle
    touch_block "$mnt/four" 2
    same "beside a snapshot" "$(uses "$mnt/four" | sed 's/^[0-9]* free //')" "1 inner 4 leaf 2 pinned/snapshot"
    same "in the snapshot" "$(uses "$mnt/.snap/s/four" | sed 's/^[0-9]* free //')" "1 inner 4 leaf 2 pinned/live"
    mkdir "$mnt/.txn/t"
    touch_block "$mnt/.txn/t/four" 0
    same "in a transaction" "$(uses "$mnt/.txn/t/four" | sed 's/^[0-9]* free //')" "1 inner 4 leaf 2 pinned/live 2 pinned/snapshot"
    same "beside it" "$(uses "$mnt/four" | sed 's/^[0-9]* free //')" "1 inner 4 leaf 2 pinned/snapshot 2 pinned/transaction"
    same "what it began with" "$(uses "$mnt/.txn/t/.tblfs/base/four")" "$(uses "$mnt/four")"
    rmdir "$mnt/.txn/t" "$mnt/.snap/s"
    ok snapshots_and_transactions_keep_blocks
}

# The sum is the file, whatever happens meanwhile; and what nobody wrote to since the start is known, too.
large_table_is_whole_while_it_is_written() {
    local writer summary
    rows 3000 >"$mnt/large"
    settle
    same "a large table after a start" "$(fsm --summary "$mnt/large" | sed 's/[0-9]* free/F free/; s/^[0-9]*/N/')" \
        "N blocks: 3000 leaves, 100 % full, 10 inner, F free, 0 pinned, 0 held, 0 punched"
    (while [ -e "$mnt/large" ]; do touch_block "$mnt/large" $((RANDOM % 3000)) || break; done) 2>/dev/null &
    writer=$!
    for _ in {1..20}; do
        summary=$(fsm "$mnt/large" | tail -n 1)
        awk '{ exit !($1 == $3 + $8 + $10 + $12 + $14 + $16 && $3 == 3000) }' <<<"${summary//,/}" || fail "the sum is not the file: $summary"
    done
    rm "$mnt/large"
    wait $writer
    ok large_table_is_whole_while_it_is_written
}

# Most of a table goes, in stretches; its last rows keep the file long.
space_inside_of_a_file_is_given_back() {
    local file relation whole sum at
    umount_store
    mount_store nocompact
    rows 4000 >"$mnt/holes"
    relation=$(awk -F'\t' '$3 == "holes" { print $1 }' "$mnt/.tblfs/relations")
    file=$data/rel/${relation: -2}/$relation
    umount_store
    mount_store nocompact
    whole=$(stat -c %b "$file")
    for at in {50..3550..500}; do
        fallocate --punch-hole --offset $((at * 8152)) --length $((450 * 8152)) "$mnt/holes"
    done
    sum=$(md5sum <"$mnt/holes")
    umount_store
    mount_store nocompact
    [ "$(stat -c %b "$file")" -lt $((whole / 2)) ] || fail "$(stat -c '%b sectors of %s bytes' "$file"), $whole before"
    [ "$(stat -c %s "$file")" -gt $((3500 * 8192)) ] || fail "the file is short: $(stat -c %s "$file")"
    same "the bytes of it" "$(md5sum <"$mnt/holes")" "$sum"
    touch_block "$mnt/holes" 0 # its map is read
    fsm --summary "$mnt/holes" | grep -q ' [1-9][0-9]* punched$' || fail "$(fsm --summary "$mnt/holes")"
    rows 3900 | dd of="$mnt/holes" conv=notrunc iflag=fullblock bs=1M status=none
    same "the bytes written into holes" "$(head -c $((3900 * 8152)) "$mnt/holes" | md5sum)" "$(rows 3900 | md5sum)"
    rm "$mnt/holes"
    ok space_inside_of_a_file_is_given_back
}

what_is_no_table_is_refused() {
    refuses "is a directory" "$TBLFS" fsm "$mnt"
    refuses "no table of a mounted store" "$TBLFS" fsm /etc/passwd
    refuses "no table of a mounted store" "$TBLFS" fsm "$mnt/.tblfs/status"
    refuses "No such file" "$TBLFS" fsm "$mnt/missing"
    refuses "the table is missing" "$TBLFS" fsm
    ok what_is_no_table_is_refused
}

small_tables_are_shown_block_by_block
replaced_blocks_are_kept_by_the_checkpoint_and_then_free
snapshots_and_transactions_keep_blocks
large_table_is_whole_while_it_is_written
space_inside_of_a_file_is_given_back
what_is_no_table_is_refused
umount_store
check_store
