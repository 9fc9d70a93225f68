#!/bin/bash
# tests/mount/drops.sh - with drop=txn, tables with rows are only dropped in transactions.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

make_tree() {
    mkdir "$mnt/dir"
    echo row >"$mnt/dir/one"
    echo row >"$mnt/two"
    : >"$mnt/empty"
    ln -s two "$mnt/link"
    mkfifo "$mnt/fifo"
}

live_tables_stay() {
    refuses "Operation not permitted" rm -f "$mnt/two"
    refuses "Operation not permitted" rm -rf "$mnt/dir"
    refuses "Operation not permitted" mv "$mnt/dir/one" "$mnt/two"
    refuses "Operation not permitted" truncate -s 0 "$mnt/two"
    refuses "Operation not permitted" bash -c ": >'$mnt/two'"
    refuses "Operation not permitted" cp "$mnt/empty" "$mnt/two"
    refuses "Operation not permitted" dd if=/dev/null of="$mnt/two" status=none
    same "content" "$(cat "$mnt/two" "$mnt/dir/one")" $'row\nrow'
    ok live_tables_stay
}

everything_else_goes_on() {
    echo more >>"$mnt/two"
    printf x | dd of="$mnt/two" conv=notrunc status=none
    truncate -s 5 "$mnt/two"
    same "content" "$(cat "$mnt/two")" "xow
m"
    mv "$mnt/two" "$mnt/renamed"
    mv "$mnt/renamed" "$mnt/empty" # over an empty one
    mv "$mnt/link" "$mnt/link2"
    rm "$mnt/link2" "$mnt/fifo"
    : >"$mnt/new"
    : >"$mnt/new"
    rm "$mnt/new"
    mkdir "$mnt/gone"
    rmdir "$mnt/gone"
    ok everything_else_goes_on
}

transactions_drop_them() {
    t=$(mktemp -d -p "$mnt/.txn")
    echo later >"$mnt/kept"
    rm -r "$t/dir"
    : >"$t/empty"
    sed -i s/row/other/ "$t/empty"
    mkdir "$t/.commit"
    [ ! -e "$mnt/dir" ] || fail "not dropped"
    same "size" "$(stat -c %s "$mnt/empty")" 0
    "$TBLFS" txn "$mnt" -- sh -c 'rm *' || fail "rm"
    same "left" "$(ls "$mnt")" ""
    ok transactions_drop_them
}

mount_store drop=txn
make_tree
live_tables_stay
everything_else_goes_on
transactions_drop_them
umount_store
check_store
