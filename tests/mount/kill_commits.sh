#!/bin/bash
# tests/mount/kill_commits.sh - the daemon is killed around commits: each transaction is whole or absent behind the next mount, those that
# were acknowledged are there, and nothing of those that were open is. Replayed by SEED (the moments are the machine's).
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=20
[ "${LONG:-}" = 1 ] && rounds=200
RANDOM=${SEED:-1}
echo "SEED=${SEED:-1} replay with: make check TEST=mount/kill_commits SEED=${SEED:-1}"
said=$work/acknowledged # what each worker was told, outside the mount
tables=4
mkdir "$said"

# A transaction appends one row to each of the tables that all workers share, rewrites a table of the worker's own, and moves a name
# on. A commit that conflicts cannot be: rows merge.
commit_rows() { # WORKER ROUND
    local count=0 table t
    while :; do
        count=$((count + 1))
        t=$mnt/.txn/$1.$2.$count
        mkdir "$t" || return
        for ((table = 0; table < tables; table++)); do
            printf '%s\t%d\t%d\n' "$1" "$2" "$count" >>"$t/rows.$table" || return
        done
        printf '%d %d\n' "$2" "$count" >"$t/own.$1" || return
        mv "$t"/at/"$1".* "$t/at/$1.$2.$count" || return
        mkdir "$t/.commit" || return
        echo "$2 $count" >"$said/$1.new" && mv "$said/$1.new" "$said/$1"
    done
}

# Never commits.
leave_open() { # ROUND
    local t=$mnt/.txn/open.$1
    mkdir "$t" || return
    echo never >>"$t/rows.0" || return
    rm "$t/rows.1" || return
    echo never >"$t/never"
}

verify_worker() { # WORKER
    local last table name
    last=$(awk -F '\t' -v w="$1" '
        $1 != w { next }
        NF != 3 || $2 == round && $3 != count + 1 || $2 < round || $2 > round && $3 != 1 { print "out of order: " NR; exit }
        { round = $2; count = $3 }
        END { print round + 0, count + 0 }' "$mnt/rows.0")
    not_behind "rows of $1" "$last" "$(cat "$said/$1")"
    for ((table = 1; table < tables; table++)); do
        same "rows of $1 in table $table" "$(grep "^$1" "$mnt/rows.$table" | cksum)" "$(grep "^$1" "$mnt/rows.0" | cksum)"
    done
    same "own table of $1" "$(cat "$mnt/own.$1")" "$last"
    name=$(basename "$mnt"/at/"$1".*)
    same "name of $1" "$name" "$1.${last/ /.}"
}

verify() {
    local worker
    for worker in a b c; do verify_worker $worker; done
    [ ! -e "$mnt/never" ] || fail "an open transaction left something"
    ! grep -q never "$mnt/rows.0" || fail "an open transaction left a row"
    same "transactions" "$(ls "$mnt/.txn")" ""
}

run_round() { # ROUND
    local pid worker workers=()
    pid=$(daemon_pid)
    leave_open "$1" || fail "cannot leave one open"
    for worker in a b c; do
        commit_rows $worker "$1" 2>/dev/null & workers+=($!)
    done
    sleep "0.$((100 + RANDOM % 500))"
    kill -KILL "$pid"
    wait_gone "$pid"
    wait "${workers[@]}" || true
}

options=checkpoint_log_size=1M,checkpoint_interval=1
mount_store $options
mkdir "$mnt/at"
for worker in a b c; do
    echo 0 0 >"$mnt/own.$worker"
    touch "$mnt/at/$worker.0.0"
    echo "0 0" >"$said/$worker"
done
for ((table = 0; table < tables; table++)); do touch "$mnt/rows.$table"; done
for ((round = 1; round <= rounds; round++)); do
    run_round $round
    mount_store $options 2>"$work/said"
    verify
done
echo "$rounds kills; $(wc -l <"$mnt/rows.0") transactions"
umount_store
check_store
ok transactions_survive_kills_whole_or_not_at_all
