# shellcheck shell=bash
# tests/mount/standby_lib.sh - what tests of standbys share: a primary on $mnt that archives, its standby on $mnt2. To be sourced.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

archive=$work/archive
base=$work/base
copy=$work/copy
mnt2=$work/mnt2
mkdir "$archive" "$mnt2"

standby_status() { # NAME
    awk -F '\t' -v name="standby_$1" '$1 == name { print $2 }' "$mnt2/.tblfs/status"
}

start_standby() { # ARGUMENTS...
    timeout 60 "$TBLFS" standby "$copy" "$mnt2" -o "log=$work/log2" "$@" 2>"$work/said" ||
        fail "standby: $(cat "$work/said" "$work/log2")"
}

stop_standby() {
    timeout 70 "$TBLFS" umount "$mnt2" || fail "cannot unmount the standby"
}

wait_until() { # CONDITION WHAT
    local tries
    for ((tries = 0; tries < 1500; tries++)); do
        ! eval "$1" || return 0
        sleep 0.02
    done
    fail "$2: $(grep standby "$mnt2/.tblfs/status"; tail -5 "$work/log2")"
}

arrives() { # TEXT FILE: the file of the standby has that text
    wait_until "[ \"\$(cat '$mnt2/$2' 2>/dev/null)\" = '$1' ]" "$2 is not '$1' on the standby"
}
