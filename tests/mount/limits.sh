#!/bin/bash
# tests/mount/limits.sh - a daemon that may have little: few descriptors, small files, little memory, a small cache. Slower at
# worst, never wrong.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

cgroup=

# Eight writers at once: tables of their own, rows into one, and removals; then everything is what it should be.
work_hard() {
    local writer pids=()
    mkdir "$mnt/hard"
    for writer in {1..8}; do
        (
            set -e
            mkdir "$mnt/hard/$writer"
            cd "$mnt/hard/$writer"
            for n in {1..40}; do
                seq "$((writer * n))" "$((writer * n + 900))" >"t$n"
                echo "$writer $n" >>../rows
                [ $((n % 4)) != 0 ] || rm "t$((n / 2))"
            done
            sort -n -S 64K t3* -o sorted
            head -c 3000000 /dev/zero | tr '\0' "$writer" >large
        ) &
        pids+=($!)
    done
    for writer in "${pids[@]}"; do wait "$writer" || fail "a writer under $1"; done
    check_work "$1"
}

check_work() { # WHAT
    local writer n
    same "rows under $1" "$(sort -u "$mnt/hard/rows" | wc -l) $(wc -l <"$mnt/hard/rows")" "320 320"
    for writer in {1..8}; do
        for n in 1 39; do
            seq "$((writer * n))" "$((writer * n + 900))" | cmp - "$mnt/hard/$writer/t$n" || fail "t$n under $1"
        done
        same "names under $1" "$(find "$mnt/hard/$writer" -name 't*' | wc -l)" 30
        same "bytes under $1" "$(tr -d "$writer" <"$mnt/hard/$writer/large" | wc -c) $(stat -c %s "$mnt/hard/$writer/large")" "0 3000000"
    done
}

then_again() { # WHAT: also after a remount, without limits
    umount_store
    check_store
    mount_store
    check_work "$1, mounted again"
    rm -r "$mnt/hard"
    umount_store
    ok "daemon_with_$1_does_the_same"
}

few_descriptors() {
    (
        ulimit -n 256 # the hard limit too, which the daemon cannot raise
        mount_store
    )
    same "limit" "$(awk '/^Max open files/ { print $4, $5 }' "/proc/$(daemon_pid)/limits")" "256 256"
    work_hard few_descriptors
    [ "$(find "$mnt/hard" -type f | wc -l)" -gt 240 ] || fail "not more tables than descriptors"
    then_again few_descriptors
}

small_cache() {
    refuses "less than 1M" "$TBLFS" mount "$data" "$mnt" -o cache=1000K
    mount_store cache=1M,max_threads=16
    same "frames" "$(awk '$1 == "frames" { print $2 }' "$mnt/.tblfs/cache")" 2048 # the least
    work_hard small_cache
    then_again small_cache
}

# The limit of who writes is the kernel's business; that of the daemon is not for its files.
small_files() {
    mount_store
    (
        trap '' XFSZ
        ulimit -f 8 # KiB
        head -c 100000 /dev/zero >"$mnt/cut" 2>"$work/said"
    ) && fail "wrote beyond RLIMIT_FSIZE"
    grep -q "File too large" "$work/said" || fail "said $(cat "$work/said")"
    same "size" "$(stat -c %s "$mnt/cut")" 8192
    rm "$mnt/cut"
    umount_store
    ok writer_with_a_file_size_limit_is_cut_off
    (
        ulimit -S -f 1024
        mount_store
    )
    work_hard small_files
    then_again small_files
}

# Where the daemon may not lift it: what a file cannot hold fails, and nothing else does.
files_that_stay_small() {
    local large=$((20 * 1024 * 1024))
    (
        ulimit -f $((large / 1024))
        mount_store
    )
    if grep -q '^Max file size  *unlimited' "/proc/$(daemon_pid)/limits"; then
        echo "skipped: files_that_stay_small: root may lift limits here"
        umount_store
        return
    fi
    refuses "too large" sh -c "head -c $((2 * large)) /dev/zero >'$mnt/large'"
    [ "$(stat -c %s "$mnt/large")" -gt $((large / 2)) ] || fail "only $(stat -c %s "$mnt/large") bytes"
    same "bytes" "$(tr -d '\0' <"$mnt/large" | wc -c)" 0
    rm "$mnt/large"
    work_hard files_that_stay_small
    then_again files_that_stay_small
    (
        ulimit -f 1024 # less than a segment of the log
        refuses "file too large" "$TBLFS" mount "$data" "$mnt"
    )
    ok mount_that_may_write_too_little_is_refused
}

remove_cgroup() {
    [ -z "$cgroup" ] || rmdir "$cgroup"
}

# The daemon's pages and what the kernel keeps of its files together in 48 MiB, a fraction of the cache that it would like.
little_memory() {
    local limit
    if [ -w /sys/fs/cgroup/memory ]; then
        cgroup=/sys/fs/cgroup/memory/tblfs-test-$$ limit=memory.limit_in_bytes
    elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null && [ -w /sys/fs/cgroup/cgroup.subtree_control ]; then
        cgroup=/sys/fs/cgroup/tblfs-test-$$ limit=memory.max
    else
        echo "skipped: little_memory: no memory cgroups here"
        return
    fi
    mkdir "$cgroup"
    echo 50331648 >"$cgroup/$limit"
    (
        echo "$BASHPID" >"$cgroup/cgroup.procs"
        mount_store cache=16M
    )
    grep -q "${cgroup##*/}" "/proc/$(daemon_pid)/cgroup" || fail "the daemon is not in the cgroup"
    work_hard little_memory
    then_again little_memory
}

trap 'clean_up; remove_cgroup' EXIT
few_descriptors
small_cache
small_files
files_that_stay_small
little_memory
