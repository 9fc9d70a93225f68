#!/bin/bash
# tests/mount/differential.sh - the same random operations on a mount and on a plain directory (differential.c).
#
# Several rounds on one pair of trees; after each the mount goes away and comes back, and both trees are compared once
# more. SEED=n replays a run (round r uses seed n + r - 1), STEPS=n sets the steps of a round, MOUNT_OPTIONS= goes to
# tblfs mount -o. LONG=1 draws a seed and goes on for SECONDS_LONG.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
TBLFS=${TBLFS:-$root/build/gcc/tblfs}
helper=${TEST_HELPERS:-$root/build/gcc/tests/mount}/differential
steps=${STEPS:-5000}
rounds=4
seconds=0
seed=${SEED:-1}
if [ "${LONG:-}" = 1 ]; then
    seconds=${SECONDS_LONG:-600}
    [ -n "${SEED:-}" ] || seed=$((SRANDOM % 1000000000))
fi
echo "SEED=$seed replay with: make check TEST=differential SEED=$seed"
if ! [ -e /dev/fuse ]; then
    echo "skipped: no /dev/fuse"
    exit 77
fi
work=$(mktemp -d "${TEST_SCRATCH:-${TMPDIR:-/tmp}}/differential-XXXXXX")

clean_up() {
    mountpoint -q "$work/mnt" && { timeout 70 "$TBLFS" umount "$work/mnt" || umount -l "$work/mnt"; }
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT

attach() {
    timeout 60 "$TBLFS" mount "$work/data" "$work/mnt" ${MOUNT_OPTIONS:+-o "$MOUNT_OPTIONS"}
}

"$TBLFS" mkfs "$work/data"
mkdir "$work/mnt" "$work/plain"
attach
mkdir "$work/mnt/tree"
round=1
started=$SECONDS
while [ $round -le $rounds ] || [ $((SECONDS - started)) -lt "$seconds" ]; do
    "$helper" --seed $((seed + round - 1)) --steps "$steps" "$work/plain" "$work/mnt/tree"
    timeout 70 "$TBLFS" umount "$work/mnt"
    attach
    "$helper" --compare "$work/plain" "$work/mnt/tree"
    round=$((round + 1))
done
timeout 70 "$TBLFS" umount "$work/mnt"
echo "ok: differential_mount_agrees_with_plain_directory, $((round - 1)) rounds of $steps steps"
