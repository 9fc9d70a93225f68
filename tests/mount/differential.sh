#!/bin/bash
# tests/mount/differential.sh - the same random operations on a mount and on a plain directory (differential.c).
#
# Several rounds on one pair of trees; after each the mount goes away and comes back, and both trees are compared once
# more. SEED=n replays a run (round r uses seed n + r - 1), STEPS=n sets the steps of a round, MOUNT_OPTIONS=...
# is added to those of the mount. LONG=1 draws a seed and goes on for SECONDS_LONG.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

steps=${STEPS:-5000}
rounds=4
seconds=0
seed=${SEED:-1}
if [ "${LONG:-}" = 1 ]; then
    seconds=${SECONDS_LONG:-600}
    [ -n "${SEED:-}" ] || seed=$((SRANDOM % 1000000000))
fi
replay="make check TEST=differential SEED=$seed${STEPS:+ STEPS=$STEPS}${MOUNT_OPTIONS:+ MOUNT_OPTIONS=$MOUNT_OPTIONS}"
echo "SEED=$seed replay with: $replay"

mkdir "$work/plain"
mount_store "${MOUNT_OPTIONS:-}"
mkdir "$mnt/tree"
round=1
started=$SECONDS
while [ $round -le $rounds ] || [ $((SECONDS - started)) -lt "$seconds" ]; do
    "$HELPERS/differential" --replay "$replay" --seed $((seed + round - 1)) --steps "$steps" \
        "$work/plain" "$mnt/tree"
    umount_store
    mount_store "${MOUNT_OPTIONS:-}"
    "$HELPERS/differential" --replay "$replay" --compare "$work/plain" "$mnt/tree"
    round=$((round + 1))
done
umount_store
check_store
ok "differential_mount_agrees_with_plain_directory, $((round - 1)) rounds of $steps steps"
