#!/bin/bash
# tests/mount/mapped.sh - mmap on a mount, also beside appends.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

stores_through_a_mapping_are_written() {
    "$HELPERS/calls" mapped "$mnt/mapped" || fail "mapped"
    sha256sum "$mnt/mapped" >"$work/sum"
    umount_store
    mount_store
    sha256sum --quiet -c "$work/sum" || fail "a mapping's stores are lost"
    ok stores_through_a_mapping_are_written
}

appended_rows_survive_stores_beside_them() {
    "$HELPERS/calls" mapped-append "$mnt/beside" 3000 || fail "mapped-append"
    same "rows" "$(wc -l <"$mnt/beside")" 3001
    same "NUL bytes" "$(tr -cd '\0' <"$mnt/beside" | wc -c)" 0
    tail -n +2 "$mnt/beside" | awk -F '\t' 'length($4) != $3 { exit 1 }' || fail "a row is not whole"
    ok appended_rows_survive_stores_beside_them
}

appending_handle_can_be_mapped() {
    "$HELPERS/calls" mapped-direct "$mnt/direct" || fail "mapped-direct"
    ok appending_handle_can_be_mapped
}

mount_store
stores_through_a_mapping_are_written
appended_rows_survive_stores_beside_them
appending_handle_can_be_mapped
umount_store
check_store
