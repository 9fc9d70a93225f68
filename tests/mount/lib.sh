# shellcheck shell=bash
# tests/mount/lib.sh - what the tests on a real mount share. To be sourced.
#
# A test has a scratch directory $work with a data directory $data and a mount point $mnt, which go at its end, with the
# mount and its daemon. Every command that could hang runs under a time limit.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TBLFS=${TBLFS:-$root/build/gcc/tblfs}
HELPERS=${TEST_HELPERS:-$root/build/gcc/tests/mount}
TBLFS=$(readlink -f "$TBLFS")
export TBLFS
if ! [ -e /dev/fuse ]; then
    echo "skipped: no /dev/fuse"
    exit 77
fi
if [ "$(id -u)" != 0 ]; then
    echo "skipped: not root"
    exit 77
fi
work=$(mktemp -d "${TEST_SCRATCH:-${TMPDIR:-/tmp}}/mount-XXXXXX")
work=$(readlink -f "$work")
data=$work/data
mnt=$work/mnt
mkdir "$mnt"
chmod 755 "$work" # tests with other users

clean_up() {
    local point
    cd /
    { grep -F " $work/" /proc/self/mountinfo || true; } | awk '{ print $5 }' | tac | while read -r point; do
        point=$(printf %b "$point")
        timeout 70 "$TBLFS" umount "$point" 2>/dev/null || umount -l "$point" || true
    done
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

fail() {
    echo "not ok: $*" >&2
    [ -s "$work/log" ] && tail -n 20 "$work/log" >&2
    exit 1
}

ok() {
    echo "ok: $*"
}

# mount_store [OPTIONS]: makes the store when there is none.
mount_store() {
    timeout 60 "$TBLFS" mount "$data" "$mnt" --create -o "log=$work/log${1:+,$1}" || fail "cannot mount"
}

umount_store() {
    timeout 70 "$TBLFS" umount "$mnt" || fail "cannot unmount"
}

# rows TABLE: the lines of a table below MNT/.tblfs or $t/.tblfs, without the names of its columns.
rows() {
    tail -n +2 "$1"
}

# status NAME: a line of .tblfs/status.
status() {
    awk -F '\t' -v name="$1" '$1 == name { print $2 }' "$mnt/.tblfs/status"
}

daemon_pid() {
    status pid
}

# Gone, or dead but not waited for; of that the first thread alone may be, while others still hold the mount.
is_gone() { # PID
    [ -e "/proc/$1" ] || return 0
    grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null || return 1
    [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ]
}

wait_gone() { # PID
    local tries
    for ((tries = 0; tries < 3500; tries++)); do # `tail --pid` looks once a second only
        ! is_gone "$1" || return 0
        sleep 0.02
    done
    fail "process $1 is still there"
}

# refuses WHAT COMMAND...: the command fails and its message has WHAT in it.
refuses() {
    local what=$1 rc=0
    shift
    timeout 60 "$@" >"$work/said" 2>&1 || rc=$?
    [ "$rc" != 0 ] || fail "succeeded: $*"
    [ "$rc" != 124 ] || fail "hangs: $*"
    grep -qiF -- "$what" "$work/said" || fail "'$*' says '$(cat "$work/said")', not '$what'"
}

same() { # WHAT GOT WANT
    [ "$2" = "$3" ] || fail "$1: got '$2', want '$3'"
}

# At least what was told, and at most one step more; pairs "ROUND COUNT".
not_behind() { # WHAT GOT WANT
    local got_round got_count want_round want_count
    read -r got_round got_count <<<"$2"
    read -r want_round want_count <<<"$3"
    [ "$got_round" -gt "$want_round" ] && [ "$got_count" -le 1 ] && return
    [ "$got_round" -eq "$want_round" ] && [ "$got_count" -ge "$want_count" ] && [ "$got_count" -le $((want_count + 1)) ] &&
        return
    fail "$1: got '$2', told '$3'"
}

checksums() { # DIR: of its files
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0r sha256sum)
}

# The store is sound: after an unmount, check finds nothing.
check_store() {
    timeout 100 "$TBLFS" check "$data" >"$work/check" 2>&1 || fail "check: $(cat "$work/check")"
}

# on_small_disks TMPFS_SIZE EXT4_SIZE DIRECTORY COMMAND: runs COMMAND tmpfs, and COMMAND ext4, with such a disk mounted there.
on_small_disks() {
    mount -t tmpfs -o "size=$1" tblfs-test "$3"
    "$4" tmpfs
    umount "$3"
    if truncate -s "$2" "$work/image" && mkfs.ext4 -q -F "$work/image" 2>/dev/null && mount -o loop "$work/image" "$3" 2>/dev/null; then
        "$4" ext4
        umount "$3"
    else
        echo "skipped: no loop mount here"
    fi
}
