#!/bin/bash
# tests/mount/files.sh - bytes of files on a mount: what is written is what is read.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

bytes_written_are_bytes_read() {
    head -c 5000000 /dev/urandom >"$work/random"
    cp "$work/random" "$mnt/copy"
    cmp "$work/random" "$mnt/copy" || fail "copy differs"
    for size in 1 4096 8151 8152 8153 131072 1048577; do
        head -c "$size" "$work/random" | dd of="$mnt/by-$size" bs=3000 status=none
        head -c "$size" "$work/random" | cmp - "$mnt/by-$size" || fail "size $size differs"
    done
    dd if="$work/random" of="$mnt/copy" bs=10000 skip=7 seek=33 count=20 conv=notrunc status=none
    dd if="$work/random" of="$work/random" bs=10000 skip=7 seek=33 count=20 conv=notrunc status=none
    cmp "$work/random" "$mnt/copy" || fail "overwritten copy differs"
    ok bytes_written_are_bytes_read
}

sizes_change_as_asked() {
    printf 'abcdef' >"$mnt/cut"
    truncate -s 3 "$mnt/cut"
    truncate -s 5 "$mnt/cut"
    same "cut and grown" "$(od -An -c "$mnt/cut" | tr -d ' ')" 'abc\0\0'
    : >"$mnt/cut"
    same "emptied" "$(stat -c %s "$mnt/cut")" 0
    same "read of an empty file" "$(wc -c <"$mnt/cut")" 0
    ok sizes_change_as_asked
}

sparse_file_keeps_holes() {
    truncate -s 10G "$mnt/sparse"
    printf x | dd of="$mnt/sparse" bs=1 seek=5G conv=notrunc status=none
    sync "$mnt/sparse"
    [ "$(du -sk "$data" | cut -f1)" -lt 100000 ] || fail "a hole takes space"
    same "byte behind a hole" "$(dd if="$mnt/sparse" bs=1 skip=5G count=2 status=none | od -An -c | tr -d ' ')" 'x\0'
    rm "$mnt/sparse"
    printf 'a' >"$mnt/holes"
    truncate -s 1M "$mnt/holes"
    "$HELPERS/calls" seek "$mnt/holes" >"$work/seek"
    same "first data" "$(head -n 1 "$work/seek")" "data 0"
    fallocate -l 2M "$mnt/holes"
    same "fallocate extends" "$(stat -c %s "$mnt/holes")" 2097152
    fallocate -n -l 3M "$mnt/holes"
    same "fallocate -n keeps the size" "$(stat -c %s "$mnt/holes")" 2097152
    fallocate -p -o 0 -l 4096 "$mnt/holes"
    same "punched" "$(head -c 1 "$mnt/holes" | od -An -c | tr -d ' ')" '\0'
    printf 'bbbbbbbb' >"$mnt/zeroed"
    fallocate -z -o 2 -l 3 "$mnt/zeroed"
    same "zeroed range" "$(od -An -c "$mnt/zeroed" | tr -d ' ')" 'bb\0\0\0bbb'
    refuses "not supported" fallocate -c -o 0 -l 4096 "$mnt/holes"
    ok sparse_file_keeps_holes
}

unlinked_open_file_goes_on() {
    "$HELPERS/calls" unlinked "$mnt/gone" || fail "unlinked open file"
    same "orphans left" "$(status orphans)" 0
    exec 5<>"$mnt/held"
    echo one >&5
    rm "$mnt/held"
    echo two >&5
    same "content of an unlinked file" "$(tr '\n' ' ' </dev/fd/5 2>/dev/null || cat /proc/self/fd/5 | tr '\n' ' ')" "one two "
    exec 5>&-
    ok unlinked_open_file_goes_on
}

append_goes_to_the_end() {
    echo first >"$mnt/rows"
    exec 6>>"$mnt/rows"
    echo second >>"$mnt/rows"
    echo third >&6
    exec 6>&-
    same "rows" "$(tr '\n' ' ' <"$mnt/rows")" "first second third "
    "$HELPERS/calls" append-later "$mnt/later" || fail "append-later"
    same "rows of append-later" "$(tr '\n' ' ' <"$mnt/later")" "first second third "
    ok append_goes_to_the_end
}

tmpfile_is_not_supported() {
    "$HELPERS/calls" tmpfile "$mnt" || fail "O_TMPFILE"
    ok tmpfile_is_not_supported
}

last_offset_can_be_written() {
    printf x | dd of="$mnt/far" bs=1 seek=9223372036854775806 status=none
    same "size" "$(stat -c %s "$mnt/far")" 9223372036854775807
    same "last byte" "$(tail -c 1 "$mnt/far")" x
    rm "$mnt/far"
    ok last_offset_can_be_written
}

mount_store cache=16M
bytes_written_are_bytes_read
sizes_change_as_asked
sparse_file_keeps_holes
unlinked_open_file_goes_on
append_goes_to_the_end
tmpfile_is_not_supported
last_offset_can_be_written
checksums "$mnt" >"$work/before"
umount_store
check_store
mount_store
checksums "$mnt" | diff "$work/before" - || fail "files differ after a remount"
ok files_survive_remount
umount_store
