#!/bin/bash
# tests/mount/import.sh - `tblfs copy`, `import` and `export` carry everything, all at once, and say what is wrong.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

make_source() {
    mkdir -p "$work/source/deep/er" "$work/source/empty"
    seq 1 100000 >"$work/source/rows.tsv"
    printf 'no newline' >"$work/source/deep/short"
    truncate -s 3M "$work/source/sparse"
    printf x | dd of="$work/source/sparse" bs=1 seek=1500000 conv=notrunc status=none
    ln "$work/source/rows.tsv" "$work/source/deep/er/second name"
    ln -s ../rows.tsv "$work/source/deep/link"
    mkfifo "$work/source/fifo"
    echo odd >"$work/source/"$'odd\nname'
    setfattr -n user.note -v 'kept' "$work/source/rows.tsv"
    chown 1:2 "$work/source/rows.tsv"
    chmod 4751 "$work/source/rows.tsv"
    chmod 0700 "$work/source/deep"
    touch -d '2001-02-03 04:05:06.789 UTC' "$work/source/deep/short" "$work/source/deep"
    touch -h -d '2002-02-03 04:05:06.789 UTC' "$work/source/deep/link"
}

# Names, kinds, modes, owners, times, sizes, targets, attributes, content, which names are one file.
description() {
    (cd "$1" && find . -printf '%P|%y|%m|%U:%G|%T@|%l|' \( -type f -printf '%s|%n' -o -true \) -printf '\n' | sort &&
        find . -type f -print0 | sort -z | xargs -0 md5sum && find . -type f -print0 | sort -z | xargs -0 getfattr -d)
}

import_carries_everything() {
    "$TBLFS" import "$work/source" "$mnt/copy" >"$work/said" || fail "import"
    diff <(description "$work/source") <(description "$mnt/copy") || fail "not the same"
    grep -q "7 files, 4 directories, 3734637 bytes" "$work/said" || fail "says $(cat "$work/said")"
    [ "$(($(stat -c %b "$mnt/copy/sparse") * 512))" -lt 100000 ] || fail "the hole was filled: $(stat -c %b "$mnt/copy/sparse")"
    "$TBLFS" import "$work/source" "$mnt/copy" >/dev/null || fail "a second time, into it"
    diff <(description "$work/source") <(description "$mnt/copy/source") || fail "not the same"
    (cd "$work" && "$TBLFS" import source/rows.tsv source/deep "$mnt" >/dev/null) || fail "two"
    cmp "$work/source/rows.tsv" "$mnt/rows.tsv" || fail "content"
    cmp "$work/source/deep/short" "$mnt/deep/short" || fail "content"
    same "one commit each" "$(rows "$mnt/.tblfs/commits" | wc -l)" 3
    ok import_carries_everything
}

export_is_one_moment() {
    rm -r "$mnt/copy/source"
    touch -r "$work/source" "$mnt/copy" # as it was before it had that
    "$TBLFS" export "$mnt/copy" "$work/back" >/dev/null || fail "export"
    diff <(description "$work/source") <(description "$work/back") || fail "not the same"
    mkdir "$work/several"
    (cd "$work" && "$TBLFS" export mnt/rows.tsv mnt/deep several >/dev/null) || fail "relative"
    cmp "$work/source/rows.tsv" "$work/several/rows.tsv" || fail "content"
    same "nothing left open" "$(ls "$mnt/.txn")" ""
    # Who writes two tables, one after the other, never shows the second ahead of the first.
    : >"$mnt/first"
    : >"$mnt/second"
    (until [ -e "$work/stop" ]; do echo row >>"$mnt/first" && echo row >>"$mnt/second" || exit; done) &
    local writer=$! ahead
    for _ in {1..20}; do
        "$TBLFS" export "$mnt/first" "$mnt/second" "$work/several" >/dev/null || fail "export"
        ahead=$(($(wc -l <"$work/several/first") - $(wc -l <"$work/several/second")))
        [ "$ahead" -eq 0 ] || [ "$ahead" -eq 1 ] || fail "the first is $ahead rows ahead of the second"
    done
    touch "$work/stop"
    wait $writer
    [ -s "$work/several/second" ] || fail "nothing was written meanwhile"
    ok export_is_one_moment
}

failed_import_leaves_nothing() {
    mkdir "$mnt/taken" "$work/other"
    echo x >"$work/other/a"
    echo x >"$work/other/taken"
    mkdir -p "$mnt/into/other/taken/sub"
    refuses "Is a directory" "$TBLFS" import "$work/other" "$mnt/into"
    same "nothing of it" "$(find "$mnt/into" -mindepth 1 | wc -l)" 3
    refuses "No such file" "$TBLFS" import "$work/nothing" "$mnt/into"
    refuses "not in the tree of a tblfs mount" "$TBLFS" import "$work/other" "$work/elsewhere"
    refuses "what belongs to tblfs" "$TBLFS" import "$work/other" "$mnt/.txn/x"
    refuses "not in the tree of a tblfs mount" "$TBLFS" export "$work/other" "$work/elsewhere"
    refuses "Not a directory" "$TBLFS" copy "$work/other" "$work/source" "$work/nowhere"
    refuses "target is missing" "$TBLFS" import "$work/other"
    refuses "unknown option '--fast'" "$TBLFS" export --fast "$mnt/a" "$work/a"
    same "nothing left open" "$(ls "$mnt/.txn")" ""
    ok failed_import_leaves_nothing
}

conflict_is_told() {
    echo old >"$mnt/table"
    echo new >"$work/other/table"
    local status=0
    "$TBLFS" txn "$mnt" -- sh -c "'$TBLFS' copy '$work/other/table' . && echo outside >'$mnt/table'" >/dev/null 2>&1 || status=$?
    same "exit status" "$status" 75
    same "outside" "$(cat "$mnt/table")" outside
    ok conflict_is_told
}

make_source
mount_store
import_carries_everything
export_is_one_moment
failed_import_leaves_nothing
conflict_is_told
umount_store
check_store
