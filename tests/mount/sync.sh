#!/bin/bash
# tests/mount/sync.sh - fsync, O_DSYNC, RWF_DSYNC, -o sync: durable when acknowledged, without holding a thread, and together.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

# More of them than threads, and somebody else is served meanwhile. How many share a sync depends on the disk's speed
# (tests/unit/txn/test_sync_threads.c holds one up).
fsyncs_of_many_clients_share_syncs() {
    mount_store max_threads=2
    : >"$mnt/table"
    local pid syncs clients
    pid=$(daemon_pid)
    syncs=$(status log_syncs)
    timeout 100 "$HELPERS/calls" fsync "$mnt/table" 40 10 &
    clients=$!
    timeout 60 ls -l "$mnt" >/dev/null || fail "ls hangs beside the fsyncs"
    wait $clients || fail "a client failed"
    same "daemon" "$(daemon_pid)" "$pid"
    syncs=$(($(status log_syncs) - syncs))
    echo "400 rows made durable one by one by 40 clients: $syncs syncs"
    [ "$syncs" -lt 400 ] || fail "$syncs syncs for 400 rows: they are not shared"
    [ "$syncs" -ge 10 ] || fail "$syncs syncs for 400 rows in ten rounds: too few to be true"
    same "rows" "$(sort -u "$mnt"/table* | wc -l)" 400
    umount_store
    ok fsyncs_of_many_clients_share_syncs
}

# A sync for each write, from one client: nothing to share.
synchronous_writes_are_durable() { # OPTIONS HOW-MANY COMMAND...
    mount_store "$1"
    local syncs want=$2
    shift 2
    syncs=$(status log_syncs)
    "$@"
    [ $(($(status log_syncs) - syncs)) -ge "$want" ] || fail "$* makes $(($(status log_syncs) - syncs)) syncs, not $want"
    umount_store
}

plain_appends() {
    for _ in {1..20}; do echo row >>"$mnt/plain"; done
}

sync_path() {
    for _ in {1..20}; do
        echo row >>"$mnt/plain"
        sync "$mnt/plain"
        mkdir "$mnt/dir"
        sync "$mnt/dir" # fsyncdir
        rmdir "$mnt/dir"
    done
}

fsyncs_of_many_clients_share_syncs
synchronous_writes_are_durable "" 40 "$HELPERS/calls" sync-append "$mnt/by-flag" 20
synchronous_writes_are_durable "" 40 sync_path
synchronous_writes_are_durable sync 20 plain_appends
ok synchronous_writes_are_durable
check_store
