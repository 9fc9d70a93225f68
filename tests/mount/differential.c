/*
 * tests/mount/differential.c - the same random operations on a plain directory and on a mount, compared step by step.
 *
 *     differential [--seed N] [--steps N] [--print] [--root-only] [--full KIND] [--replay LINE] PLAIN MOUNTED
 *     differential --compare [--replay LINE] PLAIN MOUNTED
 *
 * PLAIN is a directory of the host's filesystem, which is taken to be right; MOUNTED a directory of the filesystem
 * under test; both empty, or equal since an earlier run. tests/lib/opgen.h makes the operations. After each step the
 * results (errno, bytes read, names listed), the attributes of the touched objects, the position of the touched handle
 * and the content around the touched range have to agree; every 500 steps the whole trees and all open files; --compare
 * does only that. The first difference ends the run with the seed, the step and the operations that led to it.
 *
 * With --full the disk below MOUNTED may have no room: MOUNTED goes first, and what it refuses for that (ENOSPC) is not
 * done on the plain side, so that the comparison shows that it left nothing. The disk is filled to the last byte before
 * the first step and behind the last one. KIND `live`: nothing that frees may be refused; `transaction`: it may.
 *
 * One step in five is done as somebody who is not root, unless --root-only says that nobody else gets there (a
 * transaction). Before the first step the calls of tests/lib/odd_calls.h are compared.
 *
 * What is compared, and what is not (docs/POSIX.md has the reasons):
 *   - results of all calls, with these exceptions: SEEK_DATA and SEEK_HOLE have to be possible answers (where holes
 *     lie is the filesystem's choice); a rename over a full directory may fail with ENOTEMPTY or EEXIST; fallocate
 *     modes and user attributes that one side lacks are left out (probed at start);
 *   - type, mode, link count, owner, group, size, device of what was touched; of directories no size, and no link
 *     count where the plain side does not count subdirectories; not the set-group-id bit of a file that its group may not
 *     execute;
 *   - mtime where it was set explicitly, that is, where either side's lies a day or more from now; not of FIFOs; not
 *     what fallocate, a truncate to the same size and an exchange of directories do to it (filesystems differ): such a
 *     step sets it;
 *   - never st_ino, st_blocks, st_blksize, atime, ctime; but names that share an inode on one side share one on the
 *     other;
 *   - not the attributes of an open FIFO or directory that has lost its name: the kernel opens a FIFO by itself, so
 *     that tblfs does not know of it;
 *   - no stores through a mapping into a file that got appended rows while a descriptor could map it, and none through
 *     an O_APPEND descriptor: appended rows are protected from them by design.
 */
#include "tests/lib/odd_calls.h"
#include "tests/lib/opcalls.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define HISTORY          20
#define FULL_EVERY_STEPS 500
#define CHUNK            65536u
#define CONTENT_ALL_MAX  131072u /* files up to this size are compared whole after each step */
#define FILES_MAX        65536u
#define RELEASE_STEPS    64u /* a closed descriptor may be known to the daemon for some steps more */
#define PAIRS_MAX        4096u

/* A plain file that could be mapped; by inode number and time of birth, because inode numbers are used again. */
struct seen_file {
    uint64_t ino; /* 0: free */
    int64_t birth_ns;
    uint64_t mappable_step; /* last step at which a read-write descriptor was open */
    bool is_protected;      /* no stores through mappings any more */
};

struct pair {
    ino_t plain, mounted;
};

struct run {
    struct call_side plain, mounted;
    struct gen gen;
    struct test_random random; /* choices of the comparison */
    struct gen_op op;
    uint64_t seed, step;
    const char *replay;
    char history[HISTORY][1700];
    int64_t start_ns;
    bool directory_links, xattrs, allocate_modes[64], print, root_only;
    enum { DISK_HAS_ROOM, DISK_FULL_LIVE, DISK_FULL_TRANSACTION } disk;
    uint64_t done[GEN_KIND_COUNT], failed[GEN_KIND_COUNT], skipped, refused;
    struct seen_file files[FILES_MAX];
    struct seen_file *mappable[GEN_SLOTS]; /* what a read-write slot is open on */
    struct pair pairs[PAIRS_MAX];
    size_t pair_count;
};

/* ---- failing ---- */

static _Noreturn void PRINTF_LIKE(2, 3) differ(struct run *run, const char *fmt, ...)
{
    static char text[16384];
    va_list args;
    fflush(stdout);
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *byte = text; *byte != '\0'; byte++) /* names may hold anything */
        if ((unsigned char)*byte < ' ' || (unsigned char)*byte > '~')
            *byte = '?';
    fprintf(stderr, "differential: step %" PRIu64 ": %s\nThe last operations, the newest at the end:\n", run->step,
            text);
    for (unsigned i = 1; i <= HISTORY; i++) {
        const char *line = run->history[(run->step + i) % HISTORY];
        if (line[0] != '\0')
            fprintf(stderr, "  %s\n", line);
    }
    if (run->replay != NULL)
        fprintf(stderr, "replay with: %s\n", run->replay);
    else
        fprintf(stderr, "replay with: --seed %" PRIu64 " --steps %" PRIu64 "\n", run->seed, run->step);
    exit(1);
}

/* ---- comparing ---- */

/* A time that no clock gave during this run or the one before it. */
static bool is_set_by_hand(const struct run *run, int64_t time_ns)
{
    const int64_t day_ns = INT64_C(86400) * 1000000000;
    return time_ns < run->start_ns - day_ns || time_ns > run->start_ns + day_ns;
}

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static void compare_number(struct run *run, const char *what, const char *field, intmax_t plain, intmax_t mounted)
{
    if (plain != mounted)
        differ(run, "%s of \"%s\": plain %jd (0%jo), mounted %jd (0%jo)", field, what, plain, (uintmax_t)plain, mounted,
               (uintmax_t)mounted);
}

/* A file's set-group-id bit without the right to execute: newer kernels end it like the others, FUSE does not. */
static mode_t no_meaning(const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_mode & S_IXGRP) == 0 ? S_ISGID : 0;
}

static void compare_stat(struct run *run, const char *what, const struct stat *plain, const struct stat *mounted)
{
    compare_number(run, what, "type", plain->st_mode & S_IFMT, mounted->st_mode & S_IFMT);
    compare_number(run, what, "mode", plain->st_mode & ~no_meaning(plain), mounted->st_mode & ~no_meaning(mounted));
    compare_number(run, what, "owner", plain->st_uid, mounted->st_uid);
    compare_number(run, what, "group", plain->st_gid, mounted->st_gid);
    compare_number(run, what, "device", (intmax_t)plain->st_rdev, (intmax_t)mounted->st_rdev);
    if (!S_ISDIR(plain->st_mode) || run->directory_links)
        compare_number(run, what, "link count", (intmax_t)plain->st_nlink, (intmax_t)mounted->st_nlink);
    if (!S_ISDIR(plain->st_mode))
        compare_number(run, what, "size", plain->st_size, mounted->st_size);
    if (S_ISFIFO(plain->st_mode)) /* written and read by the kernel alone, which does not tell a FUSE filesystem */
        return;
    if (is_set_by_hand(run, mtime_ns(plain)) || is_set_by_hand(run, mtime_ns(mounted)))
        compare_number(run, what, "mtime", mtime_ns(plain), mtime_ns(mounted));
}

static size_t read_some(struct run *run, const struct call_side *side, int fd, unsigned char *bytes, size_t size,
                        off_t offset)
{
    size_t done = 0;
    while (done < size) {
        const ssize_t got = pread(fd, bytes + done, size - done, offset + (off_t)done);
        if (got < 0)
            differ(run, "%s: reading %zu bytes at %jd: %s", side->label, size, (intmax_t)offset, strerror(errno));
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return done;
}

static void compare_range(struct run *run, const char *what, int plain_fd, int mounted_fd, uint64_t start, uint64_t end)
{
    static unsigned char plain[CHUNK], mounted[CHUNK];
    for (uint64_t at = start; at < end; at += CHUNK) {
        const size_t size = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        const size_t plain_size = read_some(run, &run->plain, plain_fd, plain, size, (off_t)at);
        const size_t mounted_size = read_some(run, &run->mounted, mounted_fd, mounted, size, (off_t)at);
        if (plain_size != mounted_size)
            differ(run, "\"%s\" at %ju: plain reads %zu bytes, mounted %zu", what, (uintmax_t)at, plain_size,
                   mounted_size);
        for (size_t i = 0; i < plain_size; i++)
            if (plain[i] != mounted[i])
                differ(run, "\"%s\" at %ju: plain has byte 0x%02x, mounted 0x%02x", what, (uintmax_t)at + i, plain[i],
                       mounted[i]);
    }
}

/* All of a small file; of a large one both ends, the range that was touched with what is around it, and two draws. */
static void compare_content(struct run *run, const char *what, int plain_fd, int mounted_fd, uint64_t size)
{
    if (size <= CONTENT_ALL_MAX || test_random_chance(&run->random, 3)) {
        compare_range(run, what, plain_fd, mounted_fd, 0, size + 1);
        return;
    }
    const uint64_t around = 9000;
    const uint64_t touched = run->op.offset < size ? run->op.offset : size;
    const uint64_t touched_end = touched + run->op.size < size ? touched + run->op.size : size;
    compare_range(run, what, plain_fd, mounted_fd, touched > around ? touched - around : 0, touched_end + around);
    compare_range(run, what, plain_fd, mounted_fd, 0, 4096);
    compare_range(run, what, plain_fd, mounted_fd, size - 2 * around, size + 1);
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t at = test_random_below(&run->random, size);
        compare_range(run, what, plain_fd, mounted_fd, at, at + 8192);
    }
}

/* A descriptor to read what `fd` is open on, also when it is not open for reading or has no name any more. */
static int reopen(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static void compare_slot(struct run *run, unsigned slot, bool whole)
{
    const int fds[2] = {run->plain.fds[slot], run->mounted.fds[slot]};
    struct stat plain, mounted;
    char what[32];
    if (fds[0] < 0)
        return;
    snprintf(what, sizeof what, "slot %u", slot);
    if (fstat(fds[0], &plain) == 0 && !S_ISREG(plain.st_mode) && plain.st_nlink == 0)
        return;
    if (fstat(fds[0], &plain) < 0 || fstat(fds[1], &mounted) < 0)
        differ(run, "fstat of slot %u: %s", slot, strerror(errno));
    compare_stat(run, what, &plain, &mounted);
    if (!S_ISREG(plain.st_mode))
        return;
    compare_number(run, what, "position", lseek(fds[0], 0, SEEK_CUR), lseek(fds[1], 0, SEEK_CUR));
    const bool readable = (fcntl(fds[0], F_GETFL) & O_ACCMODE) != O_WRONLY;
    const bool again = !readable || test_random_chance(&run->random, 30);
    const int read_fds[2] = {again ? reopen(fds[0]) : fds[0], again ? reopen(fds[1]) : fds[1]};
    if ((read_fds[0] < 0) != (read_fds[1] < 0))
        differ(run, "slot %u: opening it again for reading: plain %d, mounted %d, %s", slot, read_fds[0], read_fds[1],
               strerror(errno));
    if (read_fds[0] >= 0) {
        if (whole)
            compare_range(run, what, read_fds[0], read_fds[1], 0, (uint64_t)plain.st_size + 1);
        else
            compare_content(run, what, read_fds[0], read_fds[1], (uint64_t)plain.st_size);
    }
    for (unsigned i = 0; again && i < 2; i++)
        if (read_fds[i] >= 0)
            close(read_fds[i]);
}

static void compare_file(struct run *run, const char *path, const char *plain_path, const char *mounted_path,
                         uint64_t size, bool whole)
{
    const int plain_fd = open(plain_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const int plain_errno = plain_fd < 0 ? errno : 0;
    const int mounted_fd = open(mounted_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    compare_number(run, path, "errno of open", plain_errno, mounted_fd < 0 ? errno : 0);
    if (plain_fd < 0)
        return;
    if (whole)
        compare_range(run, path, plain_fd, mounted_fd, 0, size + 1);
    else
        compare_content(run, path, plain_fd, mounted_fd, size);
    close(plain_fd);
    close(mounted_fd);
}

/* Attributes of what the path names (not following), and content if it is a regular file. */
static void compare_path(struct run *run, const char *path, bool with_content, bool whole)
{
    char plain_path[CALL_PATH_SIZE], mounted_path[CALL_PATH_SIZE];
    struct stat plain, mounted;
    call_full_path(&run->plain, path, plain_path);
    call_full_path(&run->mounted, path, mounted_path);
    const int plain_errno = lstat(plain_path, &plain) < 0 ? errno : 0;
    const int mounted_errno = lstat(mounted_path, &mounted) < 0 ? errno : 0;
    compare_number(run, path, "errno of lstat", plain_errno, mounted_errno);
    if (plain_errno != 0)
        return;
    compare_stat(run, path, &plain, &mounted);
    if (with_content && S_ISREG(plain.st_mode))
        compare_file(run, path, plain_path, mounted_path, (uint64_t)plain.st_size, whole);
}

/* ---- the whole tree ---- */

static void compare_text(struct run *run, const char *what, const char *path)
{
    if (run->plain.text_size != run->mounted.text_size ||
        memcmp(run->plain.text, run->mounted.text, run->plain.text_size) != 0)
        differ(run, "%s of \"%s\": plain has %zu bytes, mounted %zu, or they differ", what, path, run->plain.text_size,
               run->mounted.text_size);
}

static void compare_xattrs(struct run *run, const char *path)
{
    char names[8192], plain_path[CALL_PATH_SIZE], mounted_path[CALL_PATH_SIZE];
    call_full_path(&run->plain, path, plain_path);
    call_full_path(&run->mounted, path, mounted_path);
    compare_number(run, path, "attribute names", call_list_xattrs(&run->plain, plain_path),
                   call_list_xattrs(&run->mounted, mounted_path));
    compare_text(run, "attribute names", path);
    const size_t size = run->plain.text_size;
    memcpy(names, run->plain.text, size);
    for (size_t at = 0; at < size; at += strlen(names + at) + 1) {
        const ssize_t plain = lgetxattr(plain_path, names + at, run->plain.text, sizeof run->plain.text);
        const ssize_t mounted = lgetxattr(mounted_path, names + at, run->mounted.text, sizeof run->mounted.text);
        compare_number(run, path, names + at, plain, mounted);
        run->plain.text_size = run->mounted.text_size = plain > 0 ? (size_t)plain : 0;
        compare_text(run, names + at, path);
    }
}

/* Two names of one inode on one side have to be names of one inode on the other. */
static void compare_identity(struct run *run, const char *path)
{
    char plain_path[CALL_PATH_SIZE], mounted_path[CALL_PATH_SIZE];
    struct stat plain, mounted;
    if (lstat(call_full_path(&run->plain, path, plain_path), &plain) < 0 ||
        lstat(call_full_path(&run->mounted, path, mounted_path), &mounted) < 0)
        differ(run, "lstat of \"%s\": %s", path, strerror(errno));
    if (S_ISDIR(plain.st_mode) || plain.st_nlink < 2)
        return;
    for (size_t i = 0; i < run->pair_count; i++)
        if ((run->pairs[i].plain == plain.st_ino) != (run->pairs[i].mounted == mounted.st_ino))
            differ(run, "\"%s\" shares its inode with another name on one side only", path);
    if (run->pair_count < PAIRS_MAX)
        run->pairs[run->pair_count++] = (struct pair){.plain = plain.st_ino, .mounted = mounted.st_ino};
}

static void compare_tree(struct run *run, const char *path);

static void compare_entry(struct run *run, const char *path)
{
    char plain_path[CALL_PATH_SIZE], mounted_path[CALL_PATH_SIZE];
    struct stat st;
    compare_path(run, path, true, true);
    compare_identity(run, path);
    if (run->xattrs)
        compare_xattrs(run, path);
    if (lstat(call_full_path(&run->plain, path, plain_path), &st) < 0)
        differ(run, "lstat of \"%s\": %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        compare_tree(run, path);
    if (!S_ISLNK(st.st_mode))
        return;
    call_full_path(&run->mounted, path, mounted_path);
    const ssize_t plain = readlink(plain_path, run->plain.text, sizeof run->plain.text);
    const ssize_t mounted = readlink(mounted_path, run->mounted.text, sizeof run->mounted.text);
    compare_number(run, path, "length of the target", plain, mounted);
    run->plain.text_size = run->mounted.text_size = plain > 0 ? (size_t)plain : 0;
    compare_text(run, "target", path);
}

static void compare_tree(struct run *run, const char *path)
{
    char full[CALL_PATH_SIZE];
    compare_number(run, path, "errno of readdir",
                   call_list_directory(&run->plain, call_full_path(&run->plain, path, full)),
                   call_list_directory(&run->mounted, call_full_path(&run->mounted, path, full)));
    compare_text(run, "names", path);
    const size_t size = run->plain.text_size;
    char *names = malloc(size);
    assert(names != NULL);
    memcpy(names, run->plain.text, size);
    for (size_t at = 0; at < size; at += strlen(names + at) + 1) {
        const char *name = names + at + 1; /* behind the type */
        char child[CALL_PATH_SIZE];
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        const int child_size = strcmp(path, ".") == 0 ? snprintf(child, sizeof child, "%s", name)
                                                      : snprintf(child, sizeof child, "%s/%s", path, name);
        assert(child_size > 0 && (size_t)child_size < sizeof child);
        compare_entry(run, child);
    }
    free(names);
}

static void compare_everything(struct run *run)
{
    run->pair_count = 0;
    compare_tree(run, ".");
    for (unsigned slot = 0; slot < GEN_SLOTS; slot++)
        compare_slot(run, slot, true);
}

/* ---- one step ---- */

static bool is_xattr_kind(enum gen_kind kind)
{
    return kind == GEN_SETXATTR || kind == GEN_GETXATTR || kind == GEN_LISTXATTR || kind == GEN_REMOVEXATTR;
}

static struct seen_file *seen_file_of(struct run *run, int fd)
{
    struct statx stx = {0};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &stx) < 0)
        differ(run, "plain: statx: %s", strerror(errno));
    const int64_t birth_ns = stx.stx_btime.tv_sec * 1000000000 + stx.stx_btime.tv_nsec;
    for (uint64_t i = 0; i < FILES_MAX; i++) {
        struct seen_file *file = &run->files[(stx.stx_ino + i) % FILES_MAX];
        if (file->ino == 0)
            *file = (struct seen_file){.ino = stx.stx_ino, .birth_ns = birth_ns};
        if (file->ino == stx.stx_ino && file->birth_ns == birth_ns)
            return file;
    }
    differ(run, "more than %u files: make FILES_MAX larger for so many steps", FILES_MAX);
}

/* Read-write descriptors count as long as the daemon may know them (protected rows: see the top). */
static void note_mappable(struct run *run)
{
    for (unsigned slot = 0; slot < GEN_SLOTS; slot++)
        if (run->plain.fds[slot] >= 0 && run->mappable[slot] != NULL)
            run->mappable[slot]->mappable_step = run->step;
}

static void note_open(struct run *run)
{
    const int fd = run->plain.fds[run->op.slot];
    if (run->op.kind == GEN_CREATE || run->op.kind == GEN_OPEN)
        run->mappable[run->op.slot] =
            fd >= 0 && (run->op.open_flags & O_ACCMODE) == O_RDWR ? seen_file_of(run, fd) : NULL;
}

static void note_append_to(struct run *run, int fd)
{
    struct seen_file *file = seen_file_of(run, fd);
    if (file->mappable_step != 0 && run->step - file->mappable_step < RELEASE_STEPS)
        file->is_protected = true;
}

static void note_append(struct run *run)
{
    const struct gen_op *op = &run->op;
    char path[CALL_PATH_SIZE];
    if (op->kind == GEN_APPEND_ROWS) {
        const int fd = open(call_full_path(&run->plain, op->path, path), O_PATH | O_CLOEXEC);
        if (fd < 0)
            return;
        note_append_to(run, fd);
        close(fd);
    } else if (op->kind == GEN_PWRITE || op->kind == GEN_WRITE) {
        if ((fcntl(run->plain.fds[op->slot], F_GETFL) & O_APPEND) != 0)
            note_append_to(run, run->plain.fds[op->slot]);
    }
}

static bool is_open_file(const struct run *run, unsigned slot)
{
    struct stat st;
    return run->plain.fds[slot] >= 0 && fstat(run->plain.fds[slot], &st) == 0 && S_ISREG(st.st_mode);
}

static bool should_skip_slot(struct run *run)
{
    const struct gen_op *op = &run->op;
    const int fd = run->plain.fds[op->slot];
    if (op->kind == GEN_CLOSE || op->kind == GEN_FSYNC)
        return fd < 0;
    if (!is_open_file(run, op->slot))
        return true;
    if (op->kind == GEN_COPY_RANGE)
        return !is_open_file(run, op->slot2);
    if (op->kind == GEN_ALLOCATE)
        return !run->allocate_modes[op->flags];
    if (op->kind == GEN_MMAP_WRITE)
        return (fcntl(fd, F_GETFL) & O_APPEND) != 0 || seen_file_of(run, fd)->is_protected;
    return false;
}

static bool should_skip(struct run *run)
{
    if (gen_kind_has_slot(run->op.kind))
        return should_skip_slot(run);
    /* A chown that changes nothing: the kernel does not tell a FUSE filesystem that set-id bits go. */
    if (run->op.kind == GEN_CHOWN && run->op.uid == (uid_t)-1 && run->op.gid == (gid_t)-1)
        return true;
    return is_xattr_kind(run->op.kind) && !run->xattrs;
}

static void set_mtime_now(const struct call_side *side, const char *relative, int flags, bool directories_only)
{
    char path[CALL_PATH_SIZE];
    struct stat st;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    call_full_path(side, relative, path);
    if (!directories_only || (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        (void)!utimensat(AT_FDCWD, path, times, flags);
}

/* Where filesystems differ in what becomes of mtime, it is set: after fallocate, a truncate to the same size, and the
 * exchange of directories. */
static void settle_mtime(struct run *run, struct call_side *side)
{
    const struct gen_op *op = &run->op;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    if (side->result < 0)
        return;
    if (op->kind == GEN_ALLOCATE || op->kind == GEN_FTRUNCATE) {
        (void)!futimens(side->fds[op->slot], times);
    } else if (op->kind == GEN_TRUNCATE) {
        set_mtime_now(side, op->path, 0, false);
    } else if (op->kind == GEN_RENAME && op->flags == 2) {
        set_mtime_now(side, op->path, AT_SYMLINK_NOFOLLOW, true);
        set_mtime_now(side, op->path2, AT_SYMLINK_NOFOLLOW, true);
    }
}

/* How, and now and then as somebody who is not root. */
static struct call_choice draw_choice(struct run *run)
{
    const enum gen_kind kind = run->op.kind;
    const bool somebody =
        !run->root_only && kind != GEN_MMAP_WRITE && kind != GEN_FSYNC && test_random_chance(&run->random, 20);
    return (struct call_choice){
        .way = test_random_u64(&run->random) >> 8,
        .uid = somebody ? 1000 + (uid_t)test_random_below(&run->random, 3) : 0,
    };
}

static void record(struct run *run, struct call_choice choice)
{
    char line[1500];
    gen_op_print(&run->op, line, sizeof line);
    snprintf(run->history[run->step % HISTORY], sizeof run->history[0], "%" PRIu64 ": %s way %" PRIu64 " as %u = %jd",
             run->step, line, choice.way, (unsigned)choice.uid, (intmax_t)run->plain.result);
    if (run->print)
        puts(run->history[run->step % HISTORY]);
}

/* POSIX lets a rename over a directory that is not empty fail with either. */
static bool same_result(const struct gen_op *op, int64_t plain, int64_t mounted)
{
    if (op->kind == GEN_RENAME && op->flags == 0 && plain == -ENOTEMPTY && mounted == -EEXIST)
        return true;
    return plain == mounted;
}

static void compare_step(struct run *run)
{
    const struct gen_op *op = &run->op;
    for (unsigned i = 0; i < 2; i++) {
        const struct call_side *side = i == 0 ? &run->plain : &run->mounted;
        if (side->complaint[0] != '\0')
            differ(run, "%s: %s", side->label, side->complaint);
    }
    if (!same_result(op, run->plain.result, run->mounted.result)) {
        differ(run, "%s: plain says %jd (%s), mounted %jd (%s)", gen_kind_name(op->kind), (intmax_t)run->plain.result,
               run->plain.result < 0 ? strerror((int)-run->plain.result) : "done", (intmax_t)run->mounted.result,
               run->mounted.result < 0 ? strerror((int)-run->mounted.result) : "done");
    }
    compare_text(run, gen_kind_name(op->kind), op->path);
    if (op->kind == GEN_PREAD && run->plain.result > 0 &&
        memcmp(run->plain.bytes, run->mounted.bytes, (size_t)run->plain.result) != 0)
        differ(run, "PREAD from slot %u at %ju: the bytes differ", op->slot, (uintmax_t)op->offset);
    if (gen_kind_has_slot(op->kind) || op->kind == GEN_CREATE || op->kind == GEN_OPEN)
        compare_slot(run, op->slot, false);
    if (op->kind == GEN_COPY_RANGE)
        compare_slot(run, op->slot2, true);
    if (op->path[0] != '\0')
        compare_path(run, op->path, op->kind == GEN_APPEND_ROWS || op->kind == GEN_TRUNCATE || op->kind == GEN_RENAME,
                     false);
    if (op->path2[0] != '\0')
        compare_path(run, op->path2, true, false);
}

static void carry_out_both(struct run *run, struct call_choice choice)
{
    call_carry_out(&run->plain, &run->op, choice);
    record(run, choice);
    call_carry_out(&run->mounted, &run->op, choice);
}

/* ---- a disk without room ---- */

static uint64_t mounted_size(const struct run *run, const struct gen_op *op)
{
    char path[CALL_PATH_SIZE];
    struct stat st = {0};
    (void)!(op->kind == GEN_FTRUNCATE ? fstat(run->mounted.fds[op->slot], &st)
                                      : stat(call_full_path(&run->mounted, op->path, path), &st));
    return (uint64_t)st.st_size;
}

static void check_may_be_refused(struct run *run)
{
    const struct gen_op *op = &run->op;
    const bool frees = op->kind == GEN_UNLINK || op->kind == GEN_RMDIR || op->kind == GEN_REMOVEXATTR ||
                       (op->kind == GEN_OPEN && (op->open_flags & O_TRUNC) != 0) ||
                       ((op->kind == GEN_TRUNCATE || op->kind == GEN_FTRUNCATE) && op->size < mounted_size(run, op));
    if (frees && run->disk == DISK_FULL_LIVE)
        differ(run, "%s is refused on a full disk", gen_kind_name(op->kind));
}

/* What a refused operation does on the plain side: what it is made of may have been done in part, by calls of their own. */
static void follow_refused(struct run *run)
{
    const struct gen_op *op = &run->op;
    char path[CALL_PATH_SIZE];
    run->refused++;
    run->plain.result = -ENOSPC;
    run->plain.text_size = 0;
    if (op->kind == GEN_CREATE || op->kind == GEN_OPEN)
        call_side_close(&run->plain, op->slot);
    if (op->kind != GEN_APPEND_ROWS || access(call_full_path(&run->mounted, op->path, path), F_OK) != 0)
        return;
    call_full_path(&run->plain, op->path, path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, op->mode);
    if (fd >= 0)
        close(fd);
}

#define ONE_CALL ((struct call_choice){.way = 3}) /* no operation is done in an odd way */

static void carry_out_mounted_first(struct run *run, struct call_choice choice)
{
    call_carry_out(&run->mounted, &run->op, choice);
    if (run->mounted.result == -ENOSPC) {
        check_may_be_refused(run);
        follow_refused(run);
    } else {
        call_carry_out(&run->plain, &run->op, choice);
    }
    record(run, choice);
}

static int64_t append_to(struct call_side *side, const char *name, size_t size)
{
    char path[CALL_PATH_SIZE];
    const int fd = open(call_full_path(side, name, path), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    const int64_t result = call_result(write(fd, side->bytes, size));
    close(fd);
    return result;
}

/* Appends less and less, until there is no room for a byte. */
static void fill_disk(struct run *run, const char *name)
{
    char path[CALL_PATH_SIZE];
    gen_fill(run->seed, run->plain.bytes, CALL_DATA_MAX);
    memcpy(run->mounted.bytes, run->plain.bytes, CALL_DATA_MAX);
    for (size_t size = CALL_DATA_MAX / 4; size > 0;) {
        const int64_t result = append_to(&run->mounted, name, size);
        if (result == -ENOSPC)
            size /= 4;
        else if (result != (int64_t)size || append_to(&run->plain, name, size) != result)
            differ(run, "append of %zu bytes to fill the disk: %jd", size, (intmax_t)result);
    }
    if (access(call_full_path(&run->mounted, name, path), F_OK) == 0)
        (void)!append_to(&run->plain, name, 0);
    compare_path(run, name, true, false);
}

/* What is written through a mapping or copied is refused too late to tell what of it was; times that were set by hand would show
 * that a later one was refused. */
static void configure_for_full_disk(struct gen_config *config)
{
    config->max_file_bytes = UINT64_C(1) << 20;
    config->weights[GEN_MMAP_WRITE] = 0;
    config->weights[GEN_COPY_RANGE] = 0;
    config->weights[GEN_UTIMENS] = 0;
    config->weights[GEN_SETXATTR] *= 3;
    config->weights[GEN_SYMLINK] *= 2;
}

/* ---- all steps ---- */

static void step(struct run *run)
{
    gen_next(&run->gen, &run->op);
    if (should_skip(run)) {
        run->skipped++;
        return;
    }
    run->step++;
    note_mappable(run);
    if (run->disk != DISK_HAS_ROOM)
        carry_out_mounted_first(run, ONE_CALL); /* pieces could be refused behind the first */
    else
        carry_out_both(run, draw_choice(run));
    note_open(run);
    note_append(run);
    settle_mtime(run, &run->plain);
    settle_mtime(run, &run->mounted);
    compare_step(run);
    run->done[run->op.kind]++;
    run->failed[run->op.kind] += run->plain.result < 0;
    const int64_t result = run->plain.result;
    gen_feedback(&run->gen, &run->op, result < 0 ? (int)result : 0);
    if (run->step % FULL_EVERY_STEPS == 0)
        compare_everything(run);
}

/* ---- calls that a generator would not make ---- */

static void compare_odd_calls(struct run *run)
{
    for (unsigned which = 0; which < odd_call_count(); which++) {
        const int64_t plain = odd_call_make(run->plain.root, which);
        const int64_t other = odd_call_mounted_result(which);
        compare_number(run, odd_call_name(which), "result", other == ODD_SAME ? plain : other,
                       odd_call_make(run->mounted.root, which));
    }
}

/* ---- what both sides can do ---- */

static bool can_allocate(const struct call_side *side, unsigned mode)
{
    char path[CALL_PATH_SIZE];
    const int fd = open(call_full_path(side, "probe", path), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    const bool can = fd >= 0 && fallocate(fd, (int)mode, 0, 10) == 0;
    if (fd >= 0)
        close(fd);
    unlink(path);
    return can;
}

static bool can_xattr(const struct call_side *side)
{
    return lsetxattr(side->root, "user.probe", "x", 1, 0) == 0 && lremovexattr(side->root, "user.probe") == 0;
}

static bool counts_subdirectories(const struct call_side *side)
{
    char path[CALL_PATH_SIZE];
    struct stat before = {0}, after = {0};
    lstat(side->root, &before);
    const bool made = mkdir(call_full_path(side, "probe", path), 0755) == 0;
    lstat(side->root, &after);
    rmdir(path);
    return made && after.st_nlink == before.st_nlink + 1;
}

static void probe(struct run *run)
{
    static const unsigned modes[] = {
        0,
        FALLOC_FL_KEEP_SIZE,
        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        FALLOC_FL_ZERO_RANGE,
        FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
    };
    for (unsigned i = 0; i < ARRAY_COUNT(modes); i++) {
        assert(modes[i] < ARRAY_COUNT(run->allocate_modes));
        run->allocate_modes[modes[i]] = can_allocate(&run->plain, modes[i]) &&
                                        (run->disk != DISK_HAS_ROOM || can_allocate(&run->mounted, modes[i]));
        if (!run->allocate_modes[modes[i]])
            printf("fallocate mode %u is not compared: one side lacks it\n", modes[i]);
    }
    run->xattrs = can_xattr(&run->plain) && (run->disk != DISK_HAS_ROOM || can_xattr(&run->mounted));
    if (!run->xattrs)
        printf("user attributes are not compared: one side lacks them\n");
    run->directory_links = counts_subdirectories(&run->plain);
}

/* ---- main ---- */

static void print_summary(const struct run *run)
{
    printf("%" PRIu64 " steps agree (%" PRIu64 " skipped, %" PRIu64 " refused):", run->step, run->skipped,
           run->refused);
    for (unsigned kind = 0; kind < GEN_KIND_COUNT; kind++)
        printf(" %s %" PRIu64 "/%" PRIu64, gen_kind_name((enum gen_kind)kind), run->done[kind] - run->failed[kind],
               run->done[kind]);
    printf("\n");
}

static void run_steps(struct run *run, uint64_t steps)
{
    struct gen_config config = gen_config_default();
    config.max_file_bytes = UINT64_C(2) << 20;
    config.set_id_modes = true;
    config.weights[GEN_COPY_RANGE] = 20;
    config.weights[GEN_FSYNC] = 2; /* it is slow, and the remounts say more */
    if (run->disk != DISK_HAS_ROOM)
        configure_for_full_disk(&config);
    assert(config.max_write_bytes <= CALL_DATA_MAX);
    gen_init(&run->gen, run->seed, &config);
    test_random_init(&run->random, run->seed ^ UINT64_C(0x5eed));
    if (run->disk == DISK_HAS_ROOM)
        compare_odd_calls(run);
    else
        fill_disk(run, "filler");
    while (run->step < steps)
        step(run);
    if (run->disk != DISK_HAS_ROOM)
        fill_disk(run, "last filler");
    compare_everything(run);
    for (unsigned slot = 0; slot < GEN_SLOTS; slot++) {
        call_side_close(&run->plain, slot);
        call_side_close(&run->mounted, slot);
    }
    compare_everything(run);
    print_summary(run);
}

static _Noreturn void usage(void)
{
    fprintf(stderr, "usage: differential [--seed N] [--steps N] [--print] [--root-only] [--full live|transaction]\n"
                    "                    [--replay LINE] PLAIN MOUNTED\n"
                    "       differential --compare PLAIN MOUNTED\n");
    exit(2);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},   {"steps", required_argument, NULL, 'n'},
        {"print", no_argument, NULL, 'p'},        {"compare", no_argument, NULL, 'c'},
        {"replay", required_argument, NULL, 'r'}, {"root-only", no_argument, NULL, 'o'},
        {"full", required_argument, NULL, 'f'},   {NULL, 0, NULL, 0},
    };
    struct run *run = calloc(1, sizeof *run);
    uint64_t steps = 20000;
    bool compare_only = false;
    assert(run != NULL);
    run->seed = 1;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 's')
            run->seed = strtoull(optarg, NULL, 10);
        else if (option == 'n')
            steps = strtoull(optarg, NULL, 10);
        else if (option == 'p')
            run->print = true;
        else if (option == 'r')
            run->replay = optarg;
        else if (option == 'f')
            run->disk = strcmp(optarg, "live") == 0 ? DISK_FULL_LIVE : DISK_FULL_TRANSACTION;
        else if (option == 'c')
            compare_only = true;
        else if (option == 'o')
            run->root_only = true;
        else
            usage();
    }
    if (argc - optind != 2)
        usage();
    umask(0);
    signal(SIGPIPE, SIG_IGN);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    run->start_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    call_side_init(&run->plain, "plain", argv[optind]);
    call_side_init(&run->mounted, "mounted", argv[optind + 1]);
    probe(run);
    if (compare_only)
        compare_everything(run);
    else
        run_steps(run, steps);
    call_side_destroy(&run->plain);
    call_side_destroy(&run->mounted);
    free(run);
    return 0;
}
