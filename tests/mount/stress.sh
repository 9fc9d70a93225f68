#!/bin/bash
# tests/mount/stress.sh - stress-ng's filesystem stressors on a mount, one after the other and all at once; only in long runs.
#
# STRESS_SECONDS=n sets how long each goes (30) and, twenty times that, all together. STRESSOR=name runs one.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

if [ "${LONG:-}" != 1 ]; then
    echo "skipped: only in make check-long"
    exit 77
fi
command -v stress-ng >/dev/null || {
    echo "skipped: there is no stress-ng here"
    exit 77
}
seconds=${STRESS_SECONDS:-30}
# They stress other filesystems, mount some, or watch all mounts there are.
elsewhere=bind-mount,binderfs,dup,eventfd,fanotify,io,ioprio,procfs

stress() { # SECONDS ARGUMENTS
    local status=0 limit=$1
    shift
    timeout -k 10 $((limit * 4 + 120)) stress-ng --temp-path "$mnt" --timeout "$limit" --verify "$@" >"$work/stress" 2>&1 || status=$?
    case $status in
    0 | 3 | 4) ;; # done, not possible here, not implemented
    *) fail "stress-ng $*: exit status $status: $(grep -vE 'dispatching|setting' "$work/stress" | head -n 30)" ;;
    esac
    ! grep -E 'fail:' "$work/stress" >&2 || fail "stress-ng $*"
    same "left by stress-ng $*" "$(ls -A "$mnt")" ""
    ok "stress-ng $*: $(grep -oE '(passed|skipped): .*' "$work/stress" | head -n 1)"
}

mount_store allow_other
stressors=$(stress-ng --class 'filesystem?' | sed 's/.*stressors: //')
for stressor in ${STRESSOR:-$stressors}; do
    [[ ,$elsewhere, == *,$stressor,* ]] || stress "$seconds" "--$stressor" 2
done
[ -n "${STRESSOR:-}" ] || stress $((seconds * 20)) --class filesystem --all 1 -x "$elsewhere,inotify" # which wants its events within a second
! grep -E ' (error|damage): ' "$work/log" >&2 || fail "the daemon complained"
umount_store
check_store
