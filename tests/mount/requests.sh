#!/bin/bash
# tests/mount/requests.sh - what calls cost, in requests of the kernel (not in time).
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

# All requests so far but FORGETs and those that reading the status itself makes, as NAME COUNT.
counts() {
    awk -F '\t' '/^request\./ { print substr($1, 9), $2 }' "$mnt/.tblfs/status" >"$1"
}

# cost NAME...: requests of these kinds since counts "$work/c0", less what two readings of the status cost.
settle() { # the releases of what was open come later
    local last=-1 now
    for _ in {1..50}; do
        now=$(status nodes_open)
        [ "$now" = 0 ] && [ "$now" = "$last" ] && return
        last=$now
    done
}

# measure COMMAND...: fills cost[NAME] with the requests that the command made.
declare -A cost
measure() {
    local name count
    settle
    counts "$work/c0"
    counts "$work/c1"
    "$@"
    settle
    counts "$work/c2"
    cost=()
    while read -r name count _ _ _ _; do
        cost[$name]=$count
    done < <(join <(sort "$work/c1") <(sort "$work/c2") | awk '{ print $1, $3 - $2 }')
}

# at_most NAME LIMIT
at_most() {
    [ "${cost[$1]}" -le "$2" ] || fail "${FUNCNAME[1]}: ${cost[$1]} $1, at most $2 allowed"
}

no_more_than() { # LIMIT NAME...: none of these kinds more than LIMIT times
    local limit=$1 name
    shift
    for name in "$@"; do at_most "$name" "$limit"; done
}

# What settle and counts cost themselves is a few LOOKUP, OPEN, READ, RELEASE and GETATTR of the status.
slack=80

stat_of_cached_name_costs_nothing() {
    stat_often() { for _ in {1..400}; do [ -s "$mnt/dir/table" ] || fail "stat"; done; }
    stat_often
    measure stat_often
    no_more_than $slack LOOKUP GETATTR
    ok stat_of_cached_name_costs_nothing
}

reading_a_cached_file_costs_two() {
    read_often() { for _ in {1..400}; do read -r _ <"$mnt/dir/table"; done; }
    read_often
    measure read_often
    no_more_than $((400 + slack)) OPEN RELEASE
    no_more_than $slack LOOKUP GETATTR READ
    no_more_than 0 FLUSH ACCESS GETXATTR
    ok reading_a_cached_file_costs_two
}

append_costs_one() {
    append_often() { for _ in {1..400}; do echo row >&7; done; }
    exec 7>>"$mnt/dir/appended"
    counts "$work/c1"
    append_often
    counts "$work/c2"
    exec 7>&-
    same "writes" "$(join <(sort "$work/c1") <(sort "$work/c2") | awk '$1 == "WRITE" { print $3 - $2 }')" 400
    same "others" "$(join <(sort "$work/c1") <(sort "$work/c2") |
        awk '$1 !~ /^(WRITE|LOOKUP|OPEN|READ|RELEASE|GETATTR|FORGET|BATCH_FORGET|IOCTL)$/ && $3 != $2 { print $1, $3 - $2 }')" ""
    same "rows" "$(wc -l <"$mnt/dir/appended")" 400
    ok append_costs_one
}

closing_costs_no_flush() {
    write_often() { for _ in {1..100}; do echo row >"$mnt/dir/written"; done; }
    write_often
    measure write_often
    no_more_than 0 FLUSH
    no_more_than $((100 + slack)) OPEN RELEASE WRITE GETXATTR # the kernel asks for capabilities at each O_TRUNC
    no_more_than $slack SETATTR CREATE
    ok closing_costs_no_flush
}

listing_asks_for_no_attributes_of_each() {
    (cd "$mnt/dir" && seq -f 'file-%.0f' 300 | xargs touch)
    list() { ls -l "$mnt/dir" >/dev/null; }
    list
    measure list
    no_more_than $slack GETXATTR GETATTR LOOKUP
    ok listing_asks_for_no_attributes_of_each
}

mount_store
mkdir "$mnt/dir"
seq 1000 >"$mnt/dir/table"
stat_of_cached_name_costs_nothing
reading_a_cached_file_costs_two
append_costs_one
closing_costs_no_flush
listing_asks_for_no_attributes_of_each
umount_store
