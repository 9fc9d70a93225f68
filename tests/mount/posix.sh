#!/bin/bash
# tests/mount/posix.sh - corners of POSIX and Linux that tools rely on: a removed directory somebody stands in, sparse
# files, O_TRUNC however it comes. What an ext4 directory does is what is expected.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

removed_directory_goes_on_for_who_stands_in_it() {
    mkdir "$mnt/gone" "$mnt/empty" "$mnt/taken"
    cd "$mnt/gone"
    rmdir "$mnt/gone"
    same "links of a removed directory" "$(stat -c '%h %F' .)" "0 directory"
    same "its listing" "$(ls -a . | wc -l)" 0
    refuses "no such file" touch new
    refuses "no such file" mkdir new
    cd "$mnt/taken"
    mv -T "$mnt/empty" "$mnt/taken"
    same "links of a replaced directory" "$(stat -c %h .)" 0
    cd "$work"
    refuses "no such file" stat "$mnt/gone"
    ok removed_directory_goes_on_for_who_stands_in_it
}

holes_are_seen_and_kept() {
    local blocks
    truncate -s 1G "$mnt/sparse"
    same "blocks of a hole" "$(stat -c %b "$mnt/sparse")" 0
    printf x | dd of="$mnt/sparse" bs=1 seek=500M conv=notrunc status=none
    same "one block" "$(stat -c %b "$mnt/sparse")" 16
    cp --sparse=auto "$mnt/sparse" "$mnt/copy"
    cmp "$mnt/sparse" "$mnt/copy" || fail "copy differs"
    blocks=$(stat -c %b "$mnt/copy")
    [ "$blocks" -lt 300 ] || fail "the copy has $blocks blocks"
    tar -S -cf "$work/sparse.tar" -C "$mnt" sparse
    [ "$(stat -c %s "$work/sparse.tar")" -lt 100000 ] || fail "tar saw no holes"
    fallocate -p -o 524288000 -l 4096 "$mnt/sparse"
    same "nothing is left" "$(stat -c %b "$mnt/sparse")" 0
    head -c 1000000 /dev/urandom >"$mnt/full"
    [ $(($(stat -c %b "$mnt/full") * 512)) -ge 1000000 ] || fail "a full file looks sparse"
    rm "$mnt/sparse" "$mnt/copy" "$mnt/full"
    ok holes_are_seen_and_kept
}

open_truncates_whatever_it_opens_for() {
    echo row >"$mnt/cut"
    perl -e 'use Fcntl; sysopen(F, $ARGV[0], O_RDONLY | O_TRUNC) or die; print -s F' "$mnt/cut" >"$work/size"
    same "size after O_RDONLY | O_TRUNC" "$(cat "$work/size") $(stat -c %s "$mnt/cut")" "0 0"
    rm "$mnt/cut"
    ok open_truncates_whatever_it_opens_for
}

attribute_without_a_name_is_refused() {
    touch "$mnt/named"
    refuses "invalid argument" setfattr -n user. -v x "$mnt/named"
    rm "$mnt/named"
    ok attribute_without_a_name_is_refused
}

mount_store
removed_directory_goes_on_for_who_stands_in_it
holes_are_seen_and_kept
open_truncates_whatever_it_opens_for
attribute_without_a_name_is_refused
umount_store
check_store
