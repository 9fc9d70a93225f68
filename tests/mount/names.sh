#!/bin/bash
# tests/mount/names.sh - names on a mount: links, renames, special files, reserved names, extended attributes.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

hard_links_share_one_file() {
    echo row >"$mnt/one"
    ln "$mnt/one" "$mnt/two"
    same "names" "$(stat -c %h "$mnt/one") $(stat -c %h "$mnt/two")" "2 2"
    same "inode" "$(stat -c %i "$mnt/one")" "$(stat -c %i "$mnt/two")"
    echo more >>"$mnt/two"
    same "content by the other name" "$(tr '\n' ' ' <"$mnt/one")" "row more "
    rm "$mnt/one"
    same "names left" "$(stat -c %h "$mnt/two")" 1
    mkdir "$mnt/dir"
    refuses "not allowed" ln "$mnt/dir" "$mnt/dir2"
    ok hard_links_share_one_file
}

symbolic_links_lead_on() {
    ln -s two "$mnt/link"
    same "target" "$(readlink "$mnt/link")" two
    same "through the link" "$(head -n 1 "$mnt/link")" row
    ln -s "$(printf 'x%.0s' {1..4000})" "$mnt/long"
    same "length of a long target" "$(readlink "$mnt/long" | wc -c)" 4001
    ok symbolic_links_lead_on
}

renames_do_what_their_flags_say() {
    mkdir "$mnt/r"
    cd "$mnt/r"
    echo a >a
    echo b >b
    mv a c
    same "moved" "$(cat c)" a
    mv -f c b
    same "replaced" "$(cat b; ls)" "$(printf 'a\nb')"
    echo x >x
    "$HELPERS/calls" exchange b x || fail "exchange"
    same "exchanged" "$(cat b x | tr '\n' ' ')" "x a "
    refuses "File exists" "$HELPERS/calls" noreplace b x
    "$HELPERS/calls" noreplace b y || fail "noreplace"
    refuses "Invalid argument" "$HELPERS/calls" whiteout y z
    mkdir -p d/e f
    refuses "subdirectory" mv d d/e
    mv f d/e
    same "moved directory" "$(find d | sort | tr '\n' ' ')" "d d/e d/e/f "
    same "links of a directory" "$(stat -c %h d/e)" 3
    refuses "not empty" rmdir d
    touch file
    refuses "directory" mv -T file d/e
    refuses "overwrite" mv -T d/e file
    cd "$work"
    rm -r "$mnt/r"
    ok renames_do_what_their_flags_say
}

special_files_are_kept() {
    mkfifo -m 640 "$mnt/fifo"
    mknod "$mnt/null" c 1 3
    same "kinds" "$(stat -c '%F %t %T' "$mnt/null"), $(stat -c %F "$mnt/fifo")" "character special file 1 3, fifo"
    (timeout 10 cat "$mnt/fifo" >"$work/through") &
    timeout 10 bash -c "echo through > '$mnt/fifo'"
    wait $!
    same "through a fifo" "$(cat "$work/through")" through
    refuses "permission denied" cat "$mnt/null"
    rm "$mnt/fifo" "$mnt/null"
    ok special_files_are_kept
}

names_are_bytes() {
    local longest newline
    longest=$(printf 'n%.0s' {1..255})
    newline=$'a\nb\xff\xfe -rf'
    touch "$mnt/$longest" "$mnt/$newline" "$mnt/-rf"
    [ -e "$mnt/$newline" ] || fail "a name with a newline is lost"
    refuses "too long" touch "$mnt/n$longest"
    rm -- "$mnt/$longest" "$mnt/$newline" "$mnt/-rf"
    ok names_are_bytes
}

reserved_names_stay_free() {
    local name
    for name in .txn .snap .tablespace .tblfs; do
        refuses "busy" rmdir "$mnt/$name"
        refuses "busy" mv "$mnt/$name" "$mnt/elsewhere"
        refuses "busy" mv -T "$mnt/dir" "$mnt/$name"
        refuses "exists" mkdir "$mnt/$name"
        refuses "No such file" stat "$mnt/dir/$name"
        mkdir "$mnt/dir/$name"
        rmdir "$mnt/dir/$name"
    done
    for dir in "$mnt" "$mnt/dir"; do
        refuses "No such file" stat "$dir/.commit"
        refuses "Invalid argument" mkdir "$dir/.commit"
        refuses "Invalid argument" touch "$dir/.commit"
        refuses "subdirectory of itself" mv "$mnt/two" "$dir/.commit" # what mv makes of EINVAL
    done
    same "listing of the root" "$(ls -A "$mnt" | tr '\n' ' ')" "dir link long two "
    ok reserved_names_stay_free
}

system_tables_are_read_only_tables() {
    local table
    for table in cache check commits holders progress snapshots status sweeps transactions; do
        find "$mnt/.tblfs" -name "$table" | grep -q . || fail "$table is not listed"
    done
    same "version" "tblfs $(status version)" "$("$TBLFS" version)"
    same "data directory" "$(status data_dir)" "$data"
    awk -F '\t' 'NF != 2 { exit 1 }' "$mnt/.tblfs/status" "$mnt/.tblfs/cache" || fail "not a table of two columns"
    [ "$(awk '$1 == "frames" { print $2 }' "$mnt/.tblfs/cache")" -ge 512 ] || fail "frames"
    refuses "Read-only" touch "$mnt/.tblfs/new"
    refuses "Read-only" rm "$mnt/.tblfs/status"
    refuses "Read-only" sh -c "echo x > '$mnt/.tblfs/status'"
    refuses "Read-only" chmod 600 "$mnt/.tblfs/status"
    refuses "No such file" cat "$mnt/.tblfs/nothing"
    same "inode numbers" "$(stat -c %i "$mnt" "$mnt/.tblfs" "$mnt"/.tblfs/* "$mnt/two" "$mnt/.snap" | sort -u | wc -l)" \
        "$(($(find "$mnt/.tblfs" -mindepth 1 | wc -l) + 4))"
    same "listed with its number" "$(ls -id "$mnt/.tblfs/status" | cut -d' ' -f1)" "$(stat -c %i "$mnt/.tblfs/status")"
    cat "$mnt/.tblfs/sweeps" >/dev/null
    ok system_tables_are_read_only_tables
}

extended_attributes_are_kept() {
    setfattr -n user.colour -v red "$mnt/two"
    setfattr -n trusted.note -v 'for root' "$mnt/two"
    setfattr -n user.empty -v '' "$mnt/dir"
    same "value" "$(getfattr --absolute-names --only-values -n user.colour "$mnt/two")" red
    same "names" "$(getfattr --absolute-names -m - "$mnt/two" | grep -v '^#' | sort | tr '\n' ' ')" " trusted.note user.colour "
    setfattr -n user.big -v "0x$(printf 'ab%.0s' {1..2000})" "$mnt/two"
    same "large value" "$(getfattr --absolute-names --only-values -n user.big "$mnt/two" | wc -c)" 2000
    setfattr -x user.colour "$mnt/two"
    refuses "No such attribute" getfattr --absolute-names -n user.colour "$mnt/two"
    refuses "No such attribute" setfattr -x user.colour "$mnt/two"
    refuses "not supported" setfattr -n security.note -v x "$mnt/two"
    refuses "not supported" getfattr --absolute-names -n security.capability "$mnt/two"
    ok extended_attributes_are_kept
}

times_and_modes_are_kept() {
    touch -d '2001-02-03 04:05:06.789012345 UTC' "$mnt/two"
    same "mtime" "$(TZ=UTC stat -c %y "$mnt/two")" "2001-02-03 04:05:06.789012345 +0000"
    touch -d '1960-01-01 00:00:00.5 UTC' "$mnt/two"
    same "mtime before 1970" "$(TZ=UTC stat -c %y "$mnt/two")" "1960-01-01 00:00:00.500000000 +0000"
    chmod 4751 "$mnt/two"
    chown 12345:54321 "$mnt/two"
    same "mode and owner; set-user-id goes with chown" "$(stat -c '%a %u %g' "$mnt/two")" "751 12345 54321"
    ok times_and_modes_are_kept
}

mount_store
hard_links_share_one_file
symbolic_links_lead_on
renames_do_what_their_flags_say
special_files_are_kept
names_are_bytes
reserved_names_stay_free
system_tables_are_read_only_tables
extended_attributes_are_kept
times_and_modes_are_kept
listing() {
    find "$mnt" -printf '%P %y %m %U %G %n %s %T@ %l\n' | sort
    getfattr --absolute-names -h -R -P -d -m - "$mnt"
}
listing >"$work/before"
umount_store
check_store
mount_store
listing | diff "$work/before" - || fail "names or attributes differ after a remount"
ok names_survive_remount
umount_store
