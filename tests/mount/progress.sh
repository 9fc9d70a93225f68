#!/bin/bash
# tests/mount/progress.sh - a mount that replays a log tells a terminal how far it is, and nobody else; its log has the sum.
#
# The replay takes as long as the test wants: it is held where it opens a segment of the log (a permission event of
# fanotify(7)), until the terminal has the line.
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

cat >"$work/watch.py" <<'PYTHON'
"""watch.py LOG_DIRECTORY terminal|pipe COMMAND...: holds COMMAND in the middle of its replay until its stderr, a terminal
or a pipe, has shown the progress (a pipe: long enough), then lets it go on; prints all that was shown until the store was
mounted. Exit status: COMMAND's; in the foreground, 0. 77: this cannot be done here."""
import ctypes, os, pty, select, struct, subprocess, sys, time

CLASS_CONTENT, CLOEXEC, ADD, OPEN_PERM, ON_CHILD, ALLOW, AT_FDCWD = 4, 1, 1, 0x10000, 0x08000000, 1, -100
HELD_S = 1.5  # longer than it takes until a terminal is told
LIMIT_S = 50
log_dir, how, command = sys.argv[1], sys.argv[2], sys.argv[3:]

libc = ctypes.CDLL(None, use_errno=True)
events = libc.fanotify_init(CLASS_CONTENT | CLOEXEC, os.O_RDONLY | os.O_CLOEXEC)
mask = ctypes.c_uint64(OPEN_PERM | ON_CHILD)
if events < 0 or libc.fanotify_mark(events, ADD, mask, AT_FDCWD, os.fsencode(log_dir)) != 0:
    print("skipped: no fanotify:", os.strerror(ctypes.get_errno()))
    sys.exit(77)


def allow(fd):
    os.write(events, struct.pack("=iI", fd, ALLOW))
    os.close(fd)


def read_events():
    data = os.read(events, 4096)
    while data:
        size, _, _, _, _, fd, _ = struct.unpack_from("=IBBHQii", data)
        data = data[size:]
        yield fd, os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))


reader, writer = pty.openpty() if how == "terminal" else os.pipe()
process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writer)
os.close(writer)
opened, held, shown = [], None, b""
held_since, deadline = 0.0, time.monotonic() + LIMIT_S
foreground = "-f" in command
done = False
while not done:
    ready, _, _ = select.select([events, reader], [], [], 0.1)
    if events in ready:
        for fd, name in read_events():
            # Each segment is opened in two passes; the second one replays. Hold it behind its first segment.
            if held is None and opened.count(opened[0] if opened else "") > 1 and name != opened[0]:
                held, held_since = fd, time.monotonic()
            else:
                opened.append(name)
                allow(fd)
    if reader in ready:
        try:
            got = os.read(reader, 4096)
        except OSError:  # the last writer has closed the terminal
            got = b""
        shown += got
        done = not got or foreground and b"is mounted on" in shown
    enough = b"% " in shown or b"%, " in shown if how == "terminal" else time.monotonic() - held_since > HELD_S
    if held is not None and held >= 0 and enough:
        allow(held)
        held = -1
    if time.monotonic() > deadline:
        sys.exit(f"no end: {shown!r}, opened {opened}")
if held is None:
    sys.exit(f"nothing was held: opened {opened}")
os.write(1, shown)
sys.exit(0 if foreground else process.wait())
PYTHON

# A store whose daemon was killed, with more log than one segment: larger writes would be in the table's file already.
killed_store() {
    local pid
    mount_store
    head -c 20M /dev/urandom | dd of="$mnt/table" bs=64k iflag=fullblock status=none
    cksum <"$mnt/table" >"$work/content"
    pid=$(daemon_pid)
    kill -KILL "$pid"
    wait_gone "$pid"
    umount -l "$mnt"
}

watch() { # terminal|pipe COMMAND...: what it shows is in $work/shown
    local rc=0
    timeout 60 python3 "$work/watch.py" "$data/log" "$@" >"$work/shown" 2>"$work/said" || rc=$?
    if [ $rc = 77 ]; then
        cat "$work/shown"
        exit 77
    fi
    [ $rc = 0 ] || fail "watching: $(cat "$work/said" "$work/shown")"
}

content_is_there() {
    same "table" "$(cksum <"$mnt/table")" "$(cat "$work/content")"
    umount_store
}

terminal_is_told_how_far_a_replay_is() {
    killed_store
    watch terminal "$TBLFS" mount "$data" "$mnt" -o "log=$work/log"
    grep -qE 'replaying the log \[#+\.+\] +[1-9][0-9]?%, [1-9][0-9]* records' "$work/shown" ||
        fail "the terminal sees: $(cat -v "$work/shown")"
    content_is_there
    ok terminal_is_told_how_far_a_replay_is
}

terminal_is_told_in_the_foreground() {
    killed_store
    watch terminal "$TBLFS" mount "$data" "$mnt" -f
    grep -qE 'replaying the log \[#+\.+\] +[1-9][0-9]?%, [1-9][0-9]* records' "$work/shown" ||
        fail "the terminal sees: $(cat -v "$work/shown")"
    grep -qE 'redo done at [0-9]+.*: [0-9]+ ms, [1-9][0-9]* records' "$work/shown" ||
        fail "the replay is not told: $(cat -v "$work/shown")"
    content_is_there
    ok terminal_is_told_in_the_foreground
}

no_terminal_is_told_nothing() {
    killed_store
    watch pipe "$TBLFS" mount "$data" "$mnt" -o "log=$work/log"
    same "output" "$(cat "$work/shown")" ""
    grep -qE 'redo done at [0-9]+.*: [0-9]+ ms, [1-9][0-9]* records' "$work/log" || fail "the log does not tell the replay"
    content_is_there
    ok no_terminal_is_told_nothing
}

terminal_is_told_how_far_a_replay_is
terminal_is_told_in_the_foreground
no_terminal_is_told_nothing
check_store
