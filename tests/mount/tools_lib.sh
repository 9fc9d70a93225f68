# shellcheck shell=bash
# tests/mount/tools_lib.sh - runs tools on a mount and on a plain directory, and compares. To be sourced.
#
# A tool's test is a function tool_NAME, which works in the empty directory it is called in and finds tables in $tables; what it
# prints and the tree that it leaves have to be the same in a plain directory, in the live tree of a mount, and in a
# transaction, and after its commit. If needs_NAME is set, these commands have to be there, or it is skipped.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export LC_ALL=C TZ=UTC
export tables=$work/tables
unset GIT_DIR GIT_WORK_TREE

# Tables of 2,000 rows: number, name, a word; the other half of the names in another order.
make_tables() {
    mkdir "$tables"
    awk 'BEGIN { for (i = 1; i <= 2000; i++) printf "%d\tname%04d\tword%d\n", i, i * 7919 % 2000, i % 17 }' >"$tables/people.tsv"
    awk 'BEGIN { for (i = 2000; i > 0; i -= 2) printf "name%04d\t%d\n", i * 31 % 2000, i * i }' >"$tables/numbers.tsv"
    touch -d '2001-02-03 04:05:06.789' "$tables/people.tsv"
}

# All that can be seen of a tree and does not depend on when and where it is: times only where they were set.
describe() { # DIR
    (
        cd "$1" || exit
        find . -mindepth 1 \( -type d -printf '%p %y %m\n' -o ! -type d -printf '%p %y %m links %n size %s %l\n' \) | sort
        find . -type f -print0 | sort -z | xargs -0r sha256sum
        find . -type f -mtime +365 -printf '%p %T@\n' | sort
        find . -print0 | sort -z | xargs -0r getfattr -h -d -m '^user\.' 2>/dev/null || true
    )
}

in_directory() { # NAME DIR: leaves what it said in DIR.said, and the description of DIR in DIR.tree
    local dir=$work/$2
    local status=0
    (cd "$3/$2" && timeout 120 bash -c "set -eu; tool_$1") >"$dir.said" 2>&1 </dev/null || status=$?
    echo "exit status $status" >>"$dir.said"
    describe "$3/$2" >"$dir.tree"
}

same_as_plain() { # NAME DIR
    [ -s "$work/plain.tree" ] || fail "$1 left nothing: $(cat "$work/plain.said")"
    tail -n 1 "$work/plain.said" | grep -qx 'exit status 0' || fail "$1 in a plain directory: $(cat "$work/plain.said")"
    diff "$work/plain.said" "$work/$2.said" >&2 || fail "$1 says something else in $2"
    diff "$work/plain.tree" "$work/$2.tree" >&2 || fail "$1 leaves something else in $2"
}

run_tool() { # NAME
    local transaction=$mnt/.txn/$1
    mkdir "$work/plain" "$mnt/live"
    in_directory "$1" plain "$work"
    in_directory "$1" live "$mnt"
    same_as_plain "$1" live
    mkdir "$transaction" "$transaction/txn"
    in_directory "$1" txn "$transaction"
    same_as_plain "$1" txn
    mkdir "$transaction/.commit" || fail "$1: the commit"
    describe "$mnt/txn" >"$work/txn.tree"
    same_as_plain "$1" txn
    chmod -R u+rwX "$work/plain" "$mnt/live" "$mnt/txn"
    rm -rf "$work"/{plain,live,txn}* "$mnt/live" "$mnt/txn"
    ok "$1"
}

# Runs all tools; fails at the first that differs. Exit status 77 when none could run.
run_tools() {
    local name needs command missing ran=
    make_tables
    mount_store
    for name in $(declare -F | sed -n 's/^declare -f tool_//p'); do
        # shellcheck disable=SC2053 # a glob
        [[ $name == ${TOOL:-*} ]] || continue
        needs=needs_$name
        missing=
        for command in ${!needs:-}; do
            command -v "$command" >/dev/null || missing="$missing $command"
        done
        if [ -n "$missing" ]; then
            echo "skipped: $name: there is no$missing here"
            continue
        fi
        export -f "tool_$name"
        run_tool "$name"
        ran=1
    done
    umount_store
    check_store
    [ -n "$ran" ] || exit 77
}
