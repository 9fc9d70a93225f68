#!/bin/bash
# tests/mount/permissions.sh - other users on a mount: modes are checked, set-user-id bits end with a write.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

as_other() {
    timeout 20 setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
}

refuses_other() { # WHAT COMMAND...
    local what=$1
    shift
    refuses "$what" setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
}

others_need_allow_other() {
    mount_store
    refuses_other "denied" ls "$mnt"
    umount_store
    ok others_need_allow_other
}

modes_are_checked() {
    echo secret >"$mnt/private"
    chmod 600 "$mnt/private"
    mkdir -m 1777 "$mnt/shared"
    mkdir -m 700 "$mnt/closed"
    refuses_other "denied" cat "$mnt/private"
    refuses_other "denied" ls "$mnt/closed"
    refuses_other "denied" touch "$mnt/new"
    as_other touch "$mnt/shared/mine"
    same "owner" "$(stat -c '%u %g' "$mnt/shared/mine")" "65534 65534"
    touch "$mnt/shared/roots"
    refuses_other "not permitted" rm -f "$mnt/shared/roots"
    refuses_other "not permitted" chown 0 "$mnt/shared/mine"
    ok modes_are_checked
}

set_group_id_directory_gives_its_group() {
    mkdir "$mnt/group"
    chgrp 4321 "$mnt/group"
    chmod 2777 "$mnt/group"
    as_other mkdir "$mnt/group/sub"
    as_other touch "$mnt/group/file"
    same "group of a new file" "$(stat -c %g "$mnt/group/file")" 4321
    same "group and mode of a new directory" "$(stat -c '%g %a' "$mnt/group/sub")" "4321 2755"
    ok set_group_id_directory_gives_its_group
}

set_user_id_ends_with_a_write() {
    local how
    for how in "echo x >> prog" "echo x > prog" "truncate -s 1 prog" "fallocate -l 100 prog" \
        "fallocate -p -o 1 -l 2 prog" "fallocate -z -o 1 -l 2 prog" "printf x | dd of=prog conv=notrunc status=none"; do
        echo content >"$mnt/shared/prog"
        chmod 6777 "$mnt/shared/prog"
        as_other sh -c "cd '$mnt/shared' && $how"
        same "mode after $how" "$(stat -c %a "$mnt/shared/prog")" 777
    done
    chmod 4755 "$mnt/shared/prog"
    echo row >>"$mnt/shared/prog"
    same "root's write leaves it" "$(stat -c %a "$mnt/shared/prog")" 4755
    chmod 2775 "$mnt/group"
    chown 1 "$mnt/group"
    same "a directory keeps its bit" "$(stat -c %a "$mnt/group")" 2775
    ok set_user_id_ends_with_a_write
}

trusted_attributes_are_roots() {
    echo x >"$mnt/shared/x"
    chmod 666 "$mnt/shared/x"
    setfattr -n trusted.a -v 1 "$mnt/shared/x"
    setfattr -n user.b -v 2 "$mnt/shared/x"
    same "others see" "$(as_other getfattr --absolute-names -m - "$mnt/shared/x" | grep -v '^#' | tr -d '\n')" user.b
    ok trusted_attributes_are_roots
}

others_need_allow_other
mount_store allow_other
modes_are_checked
set_group_id_directory_gives_its_group
set_user_id_ends_with_a_write
trusted_attributes_are_roots
umount_store
check_store
