#!/bin/bash
# tests/mount/compact.sh - `tblfs compact`: tables come in order while they are read, mapped, followed, appended to and written in; what is said;
# what is refused; and that one that is cut off leaves nothing behind.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

compact() {
    timeout 60 "$TBLFS" compact "$@" >"$work/compacted" 2>&1
}

must_compact() {
    compact "$@" || fail "compact $*: $(cat "$work/compacted")"
}

# runs_after, blocks_after: of the only table that was compacted
runs_after() {
    sed -n 's/.* now [0-9]* in \([0-9]*\), .*/\1/p' "$work/compacted"
}

# The same table in a plain file, both written in here and there, so that its pages move.
scatter() { # TABLE PLAIN ROUNDS
    local round offset
    for ((round = 0; round < $3; round++)); do
        offset=$(((round * 7919 + 13) * 8192 % 3000000))
        printf '%08d' "$round" >"$work/bytes"
        dd if="$work/bytes" of="$1" bs=8 seek=$((offset / 8)) conv=notrunc status=none
        dd if="$work/bytes" of="$2" bs=8 seek=$((offset / 8)) conv=notrunc status=none
    done
}

what_it_is() { # TABLE
    stat -c '%i %f %h %u %g %s %.Y %.Z' "$1"
    getfattr -d -m user "$1" 2>/dev/null
}

seq -w 500000 >"$work/plain" # 3.5 MB
mount_store checkpoint_interval=1
cp "$work/plain" "$mnt/t"
setfattr -n user.colour -v red "$mnt/t"
ln "$mnt/t" "$mnt/also"
scatter "$mnt/t" "$work/plain" 300
sync "$mnt/t"

# ---- said, and not changed ----

before=$(what_it_is "$mnt/t")
compact "$mnt/t" || fail "compact: $(cat "$work/compacted")"
grep -q "blocks in .* runs, .* % full; now " "$work/compacted" || fail "says $(cat "$work/compacted")"
[ "$(runs_after)" -le 4 ] || fail "not in order: $(cat "$work/compacted")"
same "attributes" "$(what_it_is "$mnt/t")" "$before"
cmp "$mnt/t" "$work/plain" || fail "other bytes"
must_compact "$mnt/t"
grep -q "in order already" "$work/compacted" || fail "says $(cat "$work/compacted")"
must_compact --always "$mnt/also"
grep -q "; now " "$work/compacted" || fail "says $(cat "$work/compacted")"
ok "a scattered table is brought in order and is the same"

# ---- refused ----

mkdir "$mnt/.snap/s" "$mnt/.txn/x" "$mnt/dir"
refuses "live tree" "$TBLFS" compact "$mnt/.snap/s/t"
refuses "transaction" "$TBLFS" compact "$mnt/.txn/x/t"
refuses "is a directory" "$TBLFS" compact "$mnt/dir"
refuses "no table of a mounted store" "$TBLFS" compact "$work/plain"
refuses "No such file" "$TBLFS" compact "$mnt/missing"
refuses "tables are missing" "$TBLFS" compact
echo mine >>"$mnt/.txn/x/t"
refuses "the open transaction x wrote it" "$TBLFS" compact --always "$mnt/t"
rmdir "$mnt/.txn/x"
must_compact --always "$mnt/t"
rmdir "$mnt/.snap/s"
ok "refusals say why"

# ---- directories ----

mkdir -p "$mnt/dir/deep"
cp "$work/plain" "$mnt/dir/deep/scattered"
cp "$work/plain" "$work/other"
scatter "$mnt/dir/deep/scattered" "$work/other" 100
sync "$mnt/dir/deep/scattered"
scatter "$mnt/dir/deep/scattered" "$work/other" 300
seq 100 >"$mnt/dir/small"
ln -s small "$mnt/dir/pointer"
mkfifo "$mnt/dir/fifo"
must_compact -r --always "$mnt/dir"
grep -q "^2 tables compacted, 0 in order already" "$work/compacted" || fail "says $(cat "$work/compacted")"
must_compact -r "$mnt/dir"
grep -q "^0 tables compacted, 2 in order already" "$work/compacted" || fail "says $(cat "$work/compacted")"
cmp "$mnt/dir/deep/scattered" "$work/other"
ok "directories"

# ---- beside readers, followers, appenders ----

cp "$work/plain" "$mnt/busy"
until_stopped() { # COMMAND...: again and again
    while [ ! -e "$work/stop" ]; do "$@" || return 1; done
}
read_all() {
    cmp -n 3500000 "$mnt/busy" "$work/plain"
}
append_row() {
    echo "row $((++rows))" >>"$mnt/busy"
}
exec 5<"$mnt/busy" # open all the time
until_stopped read_all &
reader=$!
{
    rows=0
    until_stopped append_row
    echo "$rows" >"$work/appended"
} &
appender=$!
tail -n +1 -f "$mnt/busy" >"$work/followed" 2>/dev/null &
follower=$!
for _ in {1..15}; do
    must_compact --always "$mnt/busy"
done
touch "$work/stop"
wait "$reader" || fail "a reader saw other bytes"
wait "$appender" || fail "an append failed"
cat "$work/plain" <(seq -f 'row %.0f' "$(cat "$work/appended")") >"$work/expected"
cmp "$mnt/busy" "$work/expected" || fail "rows are missing"
cmp <(cat <&5) "$work/expected" || fail "who had it open sees something else"
exec 5<&-
for _ in {1..400}; do
    [ "$(stat -c %s "$work/followed")" = "$(stat -c %s "$work/expected")" ] && break
    sleep 0.05
done
kill "$follower"
wait "$follower" 2>/dev/null || true
cmp "$work/followed" "$work/expected" || fail "who follows it saw something else"
ok "beside readers, appenders and followers ($(cat "$work/appended") rows)"

# ---- beside writers, and mappings ----

cp "$work/plain" "$mnt/mapped"
cp "$work/plain" "$work/mapped"
timeout 60 python3 - "$mnt/mapped" "$work/mapped" "$TBLFS" <<'END' || fail "beside writers and mappings"
import mmap, os, random, subprocess, sys

mounted, plain, tblfs = sys.argv[1:4]
random.seed(7)
files = [open(path, "r+b") for path in (mounted, plain)]
maps = [mmap.mmap(file.fileno(), 0) for file in files]
size = len(maps[0])
done = given_up = 0
for round in range(12):
    with subprocess.Popen([tblfs, "compact", "--always", mounted], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        while run.poll() is None:
            offset = random.randrange(size - 100)
            bytes_ = random.randbytes(random.randrange(1, 100))
            if random.random() < 0.5:
                for area in maps:
                    area[offset:offset + len(bytes_)] = bytes_
                if random.random() < 0.05:
                    maps[0].flush()
            else:
                for file in files:
                    os.pwrite(file.fileno(), bytes_, offset)
        said = run.stderr.read()
    if run.returncode == 0:
        done += 1
    elif b"again and again" in said:
        given_up += 1
    else:
        sys.exit("compact says %r" % said)
    if maps[0][:] != maps[1][:]:
        sys.exit("the mapping shows something else")
for area in maps:
    area.flush()
for file in files:
    os.fsync(file.fileno())
print("ok: beside writers and mappings: %d done, %d given up" % (done, given_up))
END
must_compact --always "$mnt/mapped"
cmp "$mnt/mapped" "$work/mapped" || fail "other bytes behind a mapping"

# ---- cut off ----

seq -w 6000000 >"$mnt/large" # 48 MB
sum=$(cksum <"$mnt/large")
files=$(find "$data/rel" -type f ! -name '*_fsm' | wc -l)
for _ in {1..3}; do
    "$TBLFS" compact --always "$mnt/large" >/dev/null 2>&1 &
    compacting=$!
    until grep -q '^compact' "$mnt/.tblfs/progress" || [ ! -e "/proc/$compacting" ]; do :; done
    kill -INT "$compacting" 2>/dev/null || true
    kill -TERM "$compacting" 2>/dev/null || true
    wait "$compacting" || true
done
same "what is said to go on" "$(grep -c '^compact' "$mnt/.tblfs/progress" || true)" 0
same "content behind compactions that were cut off" "$(cksum <"$mnt/large")" "$sum"
must_compact --always "$mnt/large"
umount_store
check_store
mount_store
same "content after all" "$(cksum <"$mnt/large")" "$sum"
cmp "$mnt/t" "$work/plain"
cmp "$mnt/busy" "$work/expected"
left=$(find "$data/rel" -type f ! -name '*_fsm' | wc -l)
[ "$left" -le "$files" ] || fail "$left relation files, $files before"
ok "one that is cut off leaves nothing behind"

# ---- killed ----

"$TBLFS" compact --always "$mnt/large" >/dev/null 2>&1 &
compacting=$!
until grep -q '^compact' "$mnt/.tblfs/progress" || [ ! -e "/proc/$compacting" ]; do :; done
pid=$(daemon_pid)
kill -KILL "$pid"
wait "$compacting" || true
wait_gone "$pid"
mount_store
same "content after a kill" "$(cksum <"$mnt/large")" "$sum"
left=$(find "$data/rel" -type f ! -name '*_fsm' | wc -l)
[ "$left" -le "$files" ] || fail "$left relation files after a kill, $files before"
umount_store
check_store
ok "a kill of the daemon leaves nothing behind"
