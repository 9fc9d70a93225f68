#!/bin/bash
# tests/mount/full_random.sh - a disk that is filled to the last byte again and again, by random operations (differential.c --full).
#
# In each round a ballast file beside the store takes what is free but for a random part, and then: random operations on the full disk, each
# compared with a plain directory that does what was not refused, in the live tree and in a transaction; the transaction is closed or aborted, a
# snapshot dropped, much removed, the store closed and started, all on the full disk. At last the ballast goes, and there is room again. On a
# tmpfs and on ext4. SEED=n replays a run, ROUNDS=n sets the rounds; LONG=1 makes ten times as many.
#
# The live operations are made below tree/, the transaction's below private/, so that they never conflict.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=${ROUNDS:-15}
seed=${SEED:-1}
if [ "${LONG:-}" = 1 ]; then
    rounds=${ROUNDS:-150}
    [ -n "${SEED:-}" ] || seed=$((SRANDOM % 1000000000))
fi
replay="make check TEST=full_random SEED=$seed ROUNDS=$rounds"
echo "SEED=$seed replay with: $replay"
RANDOM=$seed
disk=$work/disk
data=$disk/data
plain=$work/plain     # what there is
changed=$work/changed # the same of private/, as the transaction changed it
kept=$work/kept       # what the snapshot shows
mkdir "$disk"

differential() { # PLAIN MOUNTED OPTION...
    local pair=("$1" "$2")
    shift 2
    "$HELPERS/differential" --replay "$replay" "$@" "${pair[@]}" >"$work/said" 2>&1 || fail "round $round: $(cat "$work/said")"
    refused=$((refused + $(sed -n 's/.*skipped, \([0-9]*\) refused.*/\1/p' "$work/said")))
    fills=$((fills + 2))
}

agrees() { # PLAIN MOUNTED
    "$HELPERS/differential" --replay "$replay" --compare "$1" "$2" >"$work/said" 2>&1 || fail "round $round: $(cat "$work/said")"
}

all_agrees() {
    agrees "$plain/tree" "$mnt/tree"
    agrees "$plain/private" "$mnt/private"
}

# Everything that is free but for up to 2 MB.
add_ballast() {
    local free name=ballast
    [ ! -e "$disk/ballast" ] || name=ballast2
    free=$(($(stat -f -c '%a * %S' "$disk")))
    [ "$free" -lt 65536 ] ||
        fallocate -l $((free - RANDOM * RANDOM % (free < 2000000 ? free - 4096 : 2000000))) "$disk/$name" 2>/dev/null ||
        true # the daemon was faster: there is more left to fill
}

# Succeeds, or fails for want of room alone.
done_or_refused() { # COMMAND...
    LC_ALL=C "$@" 2>"$work/said" && return 0
    grep -q 'No space left on device' "$work/said" || fail "round $round: $*: $(cat "$work/said")"
    return 1
}

begin() {
    begun=0
    done_or_refused mkdir "$mnt/.txn/t" || return 0
    begun=1
    rm -rf "$changed"
    cp -a "$plain/private" "$changed"
}

changes_in_transaction() {
    [ $begun = 0 ] || differential "$changed" "$mnt/.txn/t/private" --full transaction --seed "$RANDOM" --steps 15
}

abort() {
    rmdir "$mnt/.txn/t" || fail "round $round: abort on a full disk"
    all_agrees
}

# Or aborts. What is refused has changed nothing on either side.
close_transaction() {
    [ $begun = 1 ] || return 0
    if [ $((RANDOM % 4)) = 0 ]; then
        abort
    elif done_or_refused mkdir "$mnt/.txn/t/.commit"; then
        committed=$((committed + 1))
        rm -rf "$plain/private"
        mv "$changed" "$plain/private"
        all_agrees
    else
        commits_refused=$((commits_refused + 1))
        agrees "$changed" "$mnt/.txn/t/private"
        abort
    fi
}

halve() { # PATH
    local half
    half=$(($(stat -c %s "$plain/$1") / 2))
    truncate -s $half "$mnt/$1" || fail "round $round: truncate on a full disk"
    truncate -s $half "$plain/$1"
}

# Removed on both sides: PERCENT of what is there but directories; some are cut first.
remove() { # PERCENT TREE...
    local percent=$1 path paths=()
    shift
    while IFS= read -r -d '' path; do
        [ $((RANDOM % 100)) -lt "$percent" ] || continue
        if [ -f "$plain/$path" ] && [ ! -L "$plain/$path" ] && [ $((RANDOM % 8)) = 0 ]; then halve "$path"; fi
        paths+=("$path")
    done < <(cd "$plain" && find "$@" ! -type d -print0 | sort -z)
    [ ${#paths[@]} != 0 ] || return 0
    (cd "$mnt" && rm -- "${paths[@]}") || fail "round $round: rm on a full disk"
    (cd "$plain" && rm -- "${paths[@]}")
    all_agrees
}

# There is room again: it may take the checkpoints that free what was removed.
has_room() {
    local tries
    for ((tries = 0; tries < 3000; tries++)); do
        done_or_refused dd if="$work/rows" of="$mnt/room" bs=500000 count=1 status=none && rm "$mnt/room" && return
        sleep 0.01
    done
    df -k "$disk" >&2
    find "$disk" -type f -size +64k -printf '%s %P\n' >&2
    cat "$mnt/.tblfs/holders" >&2
    fail "round $round: no room although the ballast is gone: $(cat "$work/said")"
}

take_snapshot() {
    snapshot=0
    [ $((RANDOM % 2)) = 0 ] && done_or_refused mkdir "$mnt/.snap/s" || return 0
    snapshot=1
    snapshots=$((snapshots + 1))
    rm -rf "$kept"
    cp -a "$plain" "$kept"
}

drop_snapshot() {
    [ $snapshot = 1 ] || return 0
    agrees "$kept/tree" "$mnt/.snap/s/tree"
    agrees "$kept/private" "$mnt/.snap/s/private"
    rmdir "$mnt/.snap/s" || fail "round $round: drop of a snapshot on a full disk"
}

start_again() {
    umount_store
    mount_store "cache=16M"
    all_agrees
}

sometimes() { # COMMAND...
    [ $((RANDOM % 3)) != 0 ] || "$@"
}

one_round() {
    [ $((RANDOM % 2)) = 0 ] || add_ballast # what follows may be refused, too
    take_snapshot
    begin
    add_ballast
    sometimes changes_in_transaction
    differential "$plain/tree" "$mnt/tree" --full live --seed "$RANDOM" --steps 25
    sometimes remove $((RANDOM % 100)) tree
    changes_in_transaction
    sometimes remove $((RANDOM % 100)) tree
    close_transaction
    sometimes start_again
    drop_snapshot
    sometimes start_again
    same "mode" "$(status mode)" rw
    rm -f "$disk/ballast" "$disk/ballast2"
    # What the trees take is not there to be freed.
    while [ "$(du -s --apparent-size "$plain" | cut -f1)" -gt 3000 ]; do remove 70 tree private; done
    has_room
}

on_a_full_disk() { # KIND
    mkdir "$plain" "$plain/tree" "$plain/private"
    mount_store "cache=16M"
    mkdir "$mnt/tree" "$mnt/private"
    fills=0 refused=0 committed=0 commits_refused=0 snapshots=0
    for ((round = 1; round <= rounds; round++)); do one_round; done
    ! grep -q ' error: ' "$work/log" || fail "the log tells of errors"
    umount_store
    check_store
    rm -rf "$plain" "$data"
    echo "$1: filled $fills times, $refused calls refused, $committed transactions closed, $commits_refused not, $snapshots snapshots"
    [ $fills -ge $((rounds * 4)) ] && [ "$refused" -gt "$rounds" ] && [ $((committed + commits_refused)) -gt 0 ] && [ $snapshots -gt 0 ] || fail "the disk was hardly ever full"
    ok "on_a_full_disk: $1, $rounds rounds"
}

head -c 1000000 < <(seq 300000) >"$work/rows"
on_small_disks 60m 80M "$disk" on_a_full_disk
