#!/bin/bash
# tests/mount/powercut.sh - the filesystem below the data directory loses its power: all that was synced is there, whole, and
# what is there of the rest is a beginning of what was done. Loop-mounted ext4; skipped where that is not possible.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=3
[ "${LONG:-}" = 1 ] && rounds=30
RANDOM=${SEED:-1}
echo "SEED=${SEED:-1} replay with: make check TEST=mount/powercut SEED=${SEED:-1}"
disk=$work/disk
data=$disk/data
said=$work/synced # what was told to be durable, outside of all this
mkdir "$disk" "$said"

mount_disk() {
    mount -o loop "$work/image" "$disk" 2>/dev/null
}

# Each ends at the first failure: then the power is gone. A word is noted behind the sync that it is about.

append_and_sync() { # WORKER ROUND
    local row=0
    while :; do
        row=$((row + 1))
        printf '%d\t%d\t%0*d\n' "$2" "$row" $(((row * 53 + $1) % 700)) 0 >>"$mnt/rows.$1" || return
        [ $((row % 5)) = 0 ] || continue
        sync "$mnt/rows.$1" || return
        echo "$2 $row" >"$said/rows.$1.new" && mv "$said/rows.$1.new" "$said/rows.$1"
    done
}

replace_and_sync() { # ROUND: a new version of a table under its name, as editors do
    local version=0
    while :; do
        version=$((version + 1))
        seq -f "$1 $version %.0f" 3000 >"$mnt/table.new" || return
        mv "$mnt/table.new" "$mnt/table" || return
        sync "$mnt/table" || return
        echo "$1 $version" >"$said/table.new" && mv "$said/table.new" "$said/table"
    done
}

names_and_bulk() { # ROUND: directories, links, removals, and a copy large enough to be logged by reference
    local turn=0
    while :; do
        turn=$((turn + 1))
        mkdir "$mnt/dir.$1.$turn" || return
        dd if="$work/bulk" of="$mnt/dir.$1.$turn/bulk" bs=1M status=none || return
        ln "$mnt/dir.$1.$turn/bulk" "$mnt/dir.$1.$turn/link" || return
        sync "$mnt/dir.$1.$turn" || return
        echo "dir.$1.$turn" >"$said/dir.new" && mv "$said/dir.new" "$said/dir"
        [ $turn -lt 3 ] || rm -r "$mnt/dir.$1.$((turn - 2))" || return
    done
}

cut_power() {
    local rc=0
    "$HELPERS/shutdown" "$disk" || rc=$?
    if [ $rc = 77 ]; then
        echo "skipped: this kernel's ext4 has no shutdown call"
        exit 77
    fi
    [ $rc = 0 ] || fail "shutdown"
}

at_least() { # WHAT GOT TOLD: pairs "ROUND COUNT"
    local got_round got_count told_round told_count
    read -r got_round got_count <<<"$2"
    read -r told_round told_count <<<"$3"
    [ "$got_round" -gt "$told_round" ] && return
    [ "$got_round" = "$told_round" ] && [ "$got_count" -ge "$told_count" ] && return
    fail "$1: got '$2', told '$3'"
}

verify_rows() { # WORKER
    awk -F '\t' '
        NF != 3 || $3 !~ /^0+$/ { print "not whole: " NR; exit }
        $1 == round && $2 != count + 1 || $1 < round || $1 > round && $2 != 1 { print "out of order: " NR; exit }
        { round = $1; count = $2 }' "$mnt/rows.$1" >"$work/wrong"
    [ ! -s "$work/wrong" ] || fail "rows.$1: $(cat "$work/wrong")"
    [ -z "$(tail -c 1 "$mnt/rows.$1")" ] || fail "rows.$1: the last row is torn"
    at_least "rows.$1" "$(tail -n 1 "$mnt/rows.$1" | cut -f1,2)" "$(cat "$said/rows.$1")"
}

verify() {
    local dir
    verify_rows 1
    verify_rows 2
    at_least table "$(head -n 1 "$mnt/table" | cut -d ' ' -f1,2)" "$(cat "$said/table")"
    same "rows of the table" "$(cut -d ' ' -f3 "$mnt/table" | cksum)" "$(seq 3000 | cksum)"
    same "its versions" "$(cut -d ' ' -f1,2 "$mnt/table" | sort -u | wc -l)" 1
    [ ! -s "$said/dir" ] || cmp "$mnt/$(cat "$said/dir")/bulk" "$work/bulk" || fail "bulk"
    for dir in "$mnt"/dir.*; do
        [ ! -e "$dir/link" ] || cmp "$dir/link" "$work/bulk" || fail "$dir/link without its bytes"
    done
}

run_round() { # ROUND
    local pid workers=()
    pid=$(daemon_pid)
    append_and_sync 1 "$1" 2>/dev/null & workers+=($!)
    append_and_sync 2 "$1" 2>/dev/null & workers+=($!)
    replace_and_sync "$1" 2>/dev/null & workers+=($!)
    names_and_bulk "$1" 2>/dev/null & workers+=($!)
    until [ -s "$said/rows.1" ] && [ -s "$said/rows.2" ] && [ -s "$said/table" ] && [ -s "$said/dir" ]; do sleep 0.05; done
    sleep "$((RANDOM % 2)).$((100 + RANDOM % 800))"
    cut_power
    wait "${workers[@]}" || true
    same "mode without power" "$(status mode)" ro
    kill -KILL "$pid"
    wait_gone "$pid"
    umount -l "$mnt"
    umount "$disk" || fail "cannot unmount the disk"
}

truncate -s 256M "$work/image"
if ! mkfs.ext4 -q -F "$work/image" 2>/dev/null || ! mount_disk; then
    echo "skipped: no loop mount of an ext4 here"
    exit 77
fi
head -c 3000000 < <(seq 1000000) >"$work/bulk"
for ((round = 1; round <= rounds; round++)); do
    mount_store checkpoint_log_size=2M,checkpoint_interval=1
    [ $round = 1 ] || verify
    rm -rf "$mnt"/dir.* "$said/dir"
    sync "$mnt"
    run_round $round
    mount_disk || fail "cannot mount the disk again"
done
check_store
mount_store
verify
umount_store
check_store
umount "$disk"
echo "$rounds power cuts; told: rows $(cat "$said/rows.1"), $(cat "$said/rows.2"), table $(cat "$said/table")"
ok everything_synced_survives_power_cuts
