#!/bin/bash
# tests/mount/differential.sh - the same random operations on a mount and on a plain directory (differential.c).
#
# Several rounds on the same trees, in each of which two processes are at work at once, each on a tree of its own; every other
# round is done in a transaction, which is committed then. After each the mount goes away and comes back, and the trees are
# compared once more. SEED=n replays a run, STEPS=n sets the steps of a process in a round, MOUNT_OPTIONS=... is added
# to those of the mount. LONG=1 draws a seed and goes on for SECONDS_LONG, and for 1,000,000 steps.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

steps=${STEPS:-1000}
rounds=4
seconds=0
processes=2
seed=${SEED:-1}
if [ "${LONG:-}" = 1 ]; then
    seconds=${SECONDS_LONG:-600}
    rounds=$((1000000 / steps / processes))
    [ -n "${SEED:-}" ] || seed=$((SRANDOM % 1000000000))
fi
replay="make check TEST=differential SEED=$seed${STEPS:+ STEPS=$STEPS}${MOUNT_OPTIONS:+ MOUNT_OPTIONS=$MOUNT_OPTIONS}"
echo "SEED=$seed replay with: $replay"

mount_here() {
    mount_store "allow_other${MOUNT_OPTIONS:+,$MOUNT_OPTIONS}"
}

# side_by_side DIR OPTIONS: each process on its tree in DIR and its plain one.
side_by_side() {
    local dir=$1 process pids=() good=true
    shift
    for ((process = 0; process < processes; process++)); do
        "$HELPERS/differential" --replay "$replay" --seed $((seed + round * processes + process)) "$@" \
            "$work/plain$process" "$dir/tree$process" &
        pids+=($!)
    done
    for process in "${pids[@]}"; do
        wait "$process" || good=false
    done
    $good || fail "round $round in $dir"
}

in_a_transaction() {
    local transaction=$mnt/.txn/round
    mkdir "$transaction"
    side_by_side "$transaction" --steps "$steps" --root-only
    mkdir "$transaction/.commit"
}

mount_here
for ((process = 0; process < processes; process++)); do
    mkdir -m 777 "$work/plain$process" "$mnt/tree$process"
done
started=$SECONDS
for ((round = 0; round < rounds || SECONDS - started < seconds; round++)); do
    if [ $((round % 2)) = 0 ]; then side_by_side "$mnt" --steps "$steps"; else in_a_transaction; fi
    side_by_side "$mnt" --compare
    umount_store
    mount_here
    side_by_side "$mnt" --compare
done
umount_store
check_store
ok "differential_mount_agrees_with_plain_directory, $round rounds of $processes times $steps steps"
