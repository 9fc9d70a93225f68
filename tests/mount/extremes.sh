#!/bin/bash
# tests/mount/extremes.sh - the most that names, paths and sizes can be: what a plain directory takes, a mount takes.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

# Each byte alone, in the middle of a name and many times over, 255 bytes; then what is listed, read and removed by it.
names_of_every_byte_are_names() { # DIR
    mkdir "$1/names"
    python3 - "$1/names" <<'END'
import os, sys
top = os.fsencode(sys.argv[1])
names = [b"-rf", b"...", b"\xff\xfe", b"trailing\n", b"\n"]
for byte in set(range(1, 256)) - {ord("/")}:
    one = bytes([byte])
    names += [b"x" + one + b"y", one * 255] + ([one] if one != b"." else [])
names = sorted(set(names))
for name in names:
    with open(os.path.join(top, name), "wb") as f:
        f.write(name)
assert sorted(os.listdir(top)) == names, "listed"
for name in names:
    with open(os.path.join(top, name), "rb") as f:
        assert f.read() == name, name
for number, name in enumerate(names[::2]):
    other = b"moved %d" % number
    os.rename(os.path.join(top, name), os.path.join(top, other))
    os.link(os.path.join(top, other), os.path.join(top, name))
    os.unlink(os.path.join(top, other))
for name in names[1::2]:
    os.unlink(os.path.join(top, name))
assert sorted(os.listdir(top)) == names[::2], "left"
END
    rm -rf "$1/names"
    [ ! -e "$1/names" ] || fail "names are left in $1"
}

# A tree deeper than a path can be, gone into step by step; and the longest path that there can be.
paths_of_any_length_are_reached() { # DIR
    python3 - "$1" <<'END'
import errno, os, shutil, sys
top = sys.argv[1]
name = "d" * 255
at = os.open(top, os.O_RDONLY)
for depth in range(40):  # 10,000 bytes
    os.mkdir(name, dir_fd=at)
    below = os.open(name, os.O_RDONLY, dir_fd=at)
    os.close(at)
    at = below
with open(os.open("deep", os.O_CREAT | os.O_RDWR, dir_fd=at), "w+") as f:
    f.write("deep row\n")
    f.seek(0)
    assert f.read() == "deep row\n"
os.close(at)
path = top
while len(path) + 256 < 4095 - 1:
    path += "/" + name
path += "/" + "f" * (4095 - 1 - len(path))
assert len(path) == 4095
with open(path, "w") as f:
    f.write("longest")
assert os.stat(path).st_size == 7
try:
    os.stat(path + "f")
    sys.exit("a path of 4096 bytes was taken")
except OSError as error:
    assert error.errno == errno.ENAMETOOLONG
END
    (cd "$1" && find . -mindepth 40 -maxdepth 41 -name deep | wc -c) >"$work/found"
    same "length of what find finds" "$(cat "$work/found")" "$((2 + 40 * 256 + 4 + 1))"
    rm -r "${1:?}/$(printf 'd%.0s' {1..255})"
}

in_the_live_tree_and_in_a_transaction() { # FUNCTION
    "$1" "$mnt"
    mkdir "$mnt/.txn/extremes"
    "$1" "$mnt/.txn/extremes"
    mkdir "$mnt/.txn/extremes/.commit"
    same "left by $1" "$(ls -A "$mnt")" ""
    ok "$1"
}

# Sizes around the places where something changes, up to 16 TiB, of which nothing is there but the two ends.
files_of_any_size_are_kept() {
    local size
    for size in 1 511 4095 4096 4097 8191 8192 1M 1G 1T 15T 16T; do
        truncate -s "$size" "$mnt/size.$size"
        printf 'first' | dd of="$mnt/size.$size" conv=notrunc status=none
        printf 'last\n' >>"$mnt/size.$size"
    done
    umount_store
    check_store
    mount_store
    for size in 1 511 4095 4096 4097 8191 8192 1M 1G 1T 15T 16T; do
        same "the end of $size" "$(tail -c 5 "$mnt/size.$size")" last
        same "the start of $size" "$(head -c 1 "$mnt/size.$size")" f
        [ "$(stat -c %b "$mnt/size.$size")" -le 128 ] || fail "$size takes $(stat -c %b "$mnt/size.$size") blocks"
    done
    same "size" "$(stat -c %s "$mnt/size.16T")" $((16 * 1024 ** 4 + 5))
    cp --sparse=auto "$mnt/size.16T" "$mnt/copy"
    same "size of the copy" "$(stat -c %s "$mnt/copy")" $((16 * 1024 ** 4 + 5))
    same "end of the copy" "$(tail -c 5 "$mnt/copy")" last
    truncate -s 5 "$mnt/copy"
    same "cut" "$(cat "$mnt/copy")" first
    rm "$mnt"/size.* "$mnt/copy"
    ok files_of_any_size_are_kept
}

mount_store
in_the_live_tree_and_in_a_transaction names_of_every_byte_are_names
in_the_live_tree_and_in_a_transaction paths_of_any_length_are_reached
files_of_any_size_are_kept
umount_store
check_store
