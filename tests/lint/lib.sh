# tests/lint/lib.sh - what the lint checks share; sourced by them, from the root of the repository.
# shellcheck shell=bash
#
# Each check is an executable that prints what is wrong, a line a finding, and exits with 0 or 1. It reads the source as
# it lies there (git is not needed) and, where it looks at symbols, the objects of BUILD_RELEASE.

modules="base bufcache fsm table txn fusefs"
build=${BUILD_RELEASE:-build/gcc}
findings=0

finding() {
    echo "$*"
    findings=$((findings + 1))
}

finish() {
    [ "$findings" -eq 0 ] && exit 0
    echo "$findings findings"
    exit 1
}

# C files and headers below the given directories, else all.
c_files() {
    # shellcheck disable=SC2086 # a list of words
    [ $# -gt 0 ] || set -- $modules tools tests bench
    local dir
    for dir in "$@"; do
        [ -d "$dir" ] && find "$dir" -name '*.[ch]'
    done | sort
}

# Files that start with a shell's name, and libraries of functions.
shell_files() {
    find . \( -path ./build -o -path ./.git \) -prune -o -type f -print | sed 's,^\./,,' | sort | while read -r file; do
        case $file in */lib.sh) echo "$file" && continue ;; esac
        head -c 64 "$file" | head -n 1 | grep -qaE '^#! ?/(usr/)?bin/(env )?(ba)?sh\b' && echo "$file"
    done
}

# Objects of the modules; the check is void without them.
module_objects() {
    local module found=
    for module in $modules; do
        for object in "$build/$module"/*.o; do
            [ -e "$object" ] || continue
            # One whose source is gone may still lie there.
            [ -e "$module/$(basename "$object" .o).c" ] && echo "$object" && found=1
        done
    done
    [ -n "$found" ]
}
