#!/bin/bash
# tests/mount/big_directory.sh - a directory of many files: listed once each, also while it shrinks.
#
# FILES=100000 makes it as large as the promise; the default keeps `make check` short.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"
files=${FILES:-20000}
[ "${LONG:-}" != 1 ] || files=${FILES:-100000}

make_files() {
    mkdir "$mnt/big"
    (cd "$mnt/big" && seq -f 'table-%06.0f' "$files" | xargs touch)
}

listing_shows_each_file_once() {
    make_files
    same "entries" "$(ls -f "$mnt/big" | sort -u | wc -l)" $((files + 2))
    same "entries, not sorted out" "$(ls -f "$mnt/big" | wc -l)" $((files + 2))
    same "found" "$(find "$mnt/big" -type f | wc -l)" "$files"
    ok listing_shows_each_file_once
}

long_listing_costs_few_requests() {
    umount_store
    mount_store
    local before after plus
    before=$(status request.READDIRPLUS)
    ls -l "$mnt/big" >/dev/null
    plus=$(($(status request.READDIRPLUS) - before))
    [ "$plus" -le $((files / 190 + 5)) ] || fail "ls -l of $files files took $plus READDIRPLUS"
    before=$(status request.GETATTR)
    before=$((before + $(status request.LOOKUP)))
    ls -l "$mnt/big" >/dev/null
    after=$(status request.GETATTR)
    after=$((after + $(status request.LOOKUP)))
    [ $((after - before)) -le 30 ] || fail "a second ls -l looked up or asked $((after - before)) times"
    ok long_listing_costs_few_requests
}

removal_while_listing_visits_each() {
    same "removed" "$("$HELPERS/calls" delete-all "$mnt/big")" "$files"
    same "left" "$(ls -A "$mnt/big" | wc -l)" 0
    make_files 2>/dev/null || (cd "$mnt/big" && seq -f 'table-%06.0f' "$files" | xargs touch)
    find "$mnt/big" -type f -delete
    rm -r "$mnt/big"
    ok removal_while_listing_visits_each
}

mount_store
listing_shows_each_file_once
long_listing_costs_few_requests
removal_while_listing_visits_each
umount_store
check_store
