/*
 * tests/lib/opcalls.c - see opcalls.h.
 *
 * Locking: none.
 */
#include "tests/lib/opcalls.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAMES_MAX  4096u
#define PIECES_MAX 4u

void call_side_init(struct call_side *side, const char *label, const char *root)
{
    memset(side, 0, sizeof *side);
    side->label = label;
    side->root = root;
    side->bytes = malloc(CALL_DATA_MAX);
    assert(side->bytes != NULL);
    for (unsigned slot = 0; slot < GEN_SLOTS; slot++)
        side->fds[slot] = -1;
}

void call_side_destroy(struct call_side *side)
{
    for (unsigned slot = 0; slot < GEN_SLOTS; slot++)
        call_side_close(side, slot);
    free(side->bytes);
}

void call_side_close(struct call_side *side, unsigned slot)
{
    if (side->fds[slot] >= 0)
        close(side->fds[slot]);
    side->fds[slot] = -1;
}

const char *call_full_path(const struct call_side *side, const char *path, char buffer[CALL_PATH_SIZE])
{
    const int size = snprintf(buffer, CALL_PATH_SIZE, "%s/%s", side->root, path);
    assert(size > 0 && size < CALL_PATH_SIZE);
    return buffer;
}

int64_t call_result(int64_t value)
{
    return value < 0 ? -errno : value;
}

static void PRINTF_LIKE(2, 3) complain(struct call_side *side, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(side->complaint, sizeof side->complaint, fmt, args);
    va_end(args);
}

/* ---- bytes ---- */

/* Cuts `bytes` into a few pieces, of which some may be empty. Returns how many. */
static int cut(unsigned char *bytes, size_t size, uint64_t way, struct iovec pieces[PIECES_MAX])
{
    size_t at = 0;
    for (unsigned i = 0; i < PIECES_MAX; i++, way /= 16) {
        const size_t left = size - at;
        const size_t part = i + 1 == PIECES_MAX ? left : left * (size_t)(way % 16) / 15;
        pieces[i] = (struct iovec){.iov_base = bytes + at, .iov_len = part};
        at += part;
    }
    return PIECES_MAX;
}

/* What lies behind the end of a file cannot be mapped: returns how much of it is there. */
static size_t clip_to_file(int fd, uint64_t offset, size_t size)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || offset >= (uint64_t)st.st_size)
        return 0;
    return (uint64_t)st.st_size - offset < size ? (size_t)((uint64_t)st.st_size - offset) : size;
}

/* Through a private mapping, into which is stored too: that stays private. */
static int64_t read_by_mapping(int fd, unsigned char *bytes, size_t wanted, uint64_t offset)
{
    const size_t size = clip_to_file(fd, offset, wanted);
    const uint64_t map_start = offset & ~UINT64_C(4095);
    const size_t map_size = (size_t)(offset - map_start) + size;
    if (size == 0)
        return call_result(pread(fd, bytes, 0, 0)); /* may it be read? */
    unsigned char *map = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)map_start);
    if (map == MAP_FAILED)
        return -errno;
    memcpy(bytes, map + (offset - map_start), size);
    memset(map, '!', map_size);
    munmap(map, map_size);
    return (int64_t)size;
}

static int64_t read_by_sendfile(int fd, unsigned char *bytes, size_t size, off_t offset)
{
    const int memory_fd = memfd_create("sendfile", MFD_CLOEXEC);
    assert(memory_fd >= 0);
    const int64_t result = call_result(sendfile(memory_fd, fd, &offset, size));
    if (result > 0) {
        const ssize_t got = pread(memory_fd, bytes, (size_t)result, 0);
        assert(got == result);
    }
    close(memory_fd);
    return result;
}

static int64_t do_pread(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    const int fd = side->fds[op->slot];
    const size_t size = (size_t)op->size;
    const off_t offset = (off_t)op->offset;
    struct iovec pieces[PIECES_MAX];
    switch (way % 6) {
    case 0:
        return call_result(preadv(fd, pieces, cut(side->bytes, size, way / 6, pieces), offset));
    case 1:
        return read_by_mapping(fd, side->bytes, size, op->offset);
    case 2:
        return read_by_sendfile(fd, side->bytes, size, offset);
    case 3: { /* at the handle's position, which moves */
        const off_t sought = lseek(fd, offset, SEEK_SET);
        assert(sought == offset);
        return call_result(readv(fd, pieces, cut(side->bytes, size, way / 6, pieces)));
    }
    default:
        return call_result(pread(fd, side->bytes, size, offset));
    }
}

static int64_t do_write(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    const int fd = side->fds[op->slot];
    const bool in_pieces = way % 4 == 0;
    const off_t offset = op->kind == GEN_WRITE ? -1 : (off_t)op->offset; /* -1: at the handle's position */
    struct iovec pieces[PIECES_MAX];
    gen_fill(op->data_seed, side->bytes, op->size);
    if (in_pieces || way % 32 == 1)
        return call_result(
            pwritev2(fd, pieces, cut(side->bytes, op->size, way / 32, pieces), offset, in_pieces ? 0 : RWF_DSYNC));
    if (op->kind == GEN_WRITE)
        return call_result(write(fd, side->bytes, op->size));
    return call_result(pwrite(fd, side->bytes, op->size, offset));
}

static int64_t do_append_rows(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    char path[CALL_PATH_SIZE];
    struct iovec pieces[PIECES_MAX];
    const int fd =
        open(call_full_path(side, op->path, path), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, op->mode);
    if (fd < 0)
        return -errno;
    gen_fill(op->data_seed, side->bytes, op->size);
    const int64_t result = way % 4 == 0 ? call_result(writev(fd, pieces, cut(side->bytes, op->size, way / 4, pieces)))
                                        : call_result(write(fd, side->bytes, op->size));
    close(fd);
    return result;
}

static int64_t do_mmap_write(struct call_side *side, const struct gen_op *op)
{
    const int fd = side->fds[op->slot];
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size == 0)
        return 0;
    const uint64_t offset = op->offset % (uint64_t)st.st_size;
    const size_t size = clip_to_file(fd, offset, (size_t)op->size);
    const uint64_t map_start = offset & ~UINT64_C(4095);
    const size_t map_size = (size_t)(offset - map_start) + size;
    if (map_size == 0)
        return 0;
    unsigned char *map = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)map_start);
    if (map == MAP_FAILED)
        return -errno;
    gen_fill(op->data_seed, map + (offset - map_start), size);
    /* Mostly it is left to the kernel when to write: before an append or a truncate that comes later, or after. */
    const int64_t result = call_result(msync(map, map_size, op->data_seed % 8 == 0 ? MS_SYNC : MS_ASYNC));
    munmap(map, map_size);
    return result;
}

static int64_t do_copy_range(struct call_side *side, const struct gen_op *op)
{
    off_t from = (off_t)op->offset, to = (off_t)op->offset2;
    return call_result(copy_file_range(side->fds[op->slot], &from, side->fds[op->slot2], &to, (size_t)op->size, 0));
}

/* Where data and holes lie is the filesystem's choice, but what it says has to be possible. */
static int64_t do_seek(struct call_side *side, const struct gen_op *op)
{
    const int fd = side->fds[op->slot];
    const off_t position = lseek(fd, 0, SEEK_CUR);
    const off_t size = lseek(fd, 0, SEEK_END);
    const off_t found = lseek(fd, (off_t)op->offset, (int)op->flags);
    const int64_t result = call_result(found);
    lseek(fd, position, SEEK_SET);
    if ((off_t)op->offset >= size || found < 0)
        return op->flags == SEEK_DATA && (off_t)op->offset < size && result == -ENXIO ? 0 : result;
    if (found < (off_t)op->offset || found > size)
        complain(side, "seek from %ju found %jd in a file of %jd bytes", (uintmax_t)op->offset, (intmax_t)found,
                 (intmax_t)size);
    if (op->flags == SEEK_DATA) { /* what it skipped has to read as zeros */
        const size_t skipped = (size_t)(found - (off_t)op->offset);
        const ssize_t got =
            pread(fd, side->bytes, skipped < CALL_DATA_MAX ? skipped : CALL_DATA_MAX, (off_t)op->offset);
        for (ssize_t i = 0; i < got; i++)
            if (side->bytes[i] != 0)
                complain(side, "SEEK_DATA skipped data at %jd", (intmax_t)op->offset + i);
    }
    return 0;
}

/* ---- listing ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Puts the NUL-terminated names in `names` into side->text, sorted. */
static void keep_sorted(struct call_side *side, const char *names, size_t size)
{
    const char *list[NAMES_MAX];
    size_t count = 0;
    for (size_t at = 0; at < size && count < NAMES_MAX; at += strlen(names + at) + 1)
        list[count++] = names + at;
    qsort(list, count, sizeof list[0], compare_names);
    side->text_size = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(side->text + side->text_size, list[i], strlen(list[i]) + 1);
        side->text_size += strlen(list[i]) + 1;
    }
}

int64_t call_list_xattrs(struct call_side *side, const char *full_path)
{
    char names[8192], users[8192];
    size_t users_size = 0;
    const ssize_t got = llistxattr(full_path, names, sizeof names);
    if (got < 0)
        return -errno;
    for (ssize_t at = 0; at < got; at += (ssize_t)strlen(names + at) + 1) {
        if (strncmp(names + at, "user.", 5) != 0)
            continue;
        memcpy(users + users_size, names + at, strlen(names + at) + 1);
        users_size += strlen(names + at) + 1;
    }
    keep_sorted(side, users, users_size);
    return (int64_t)users_size;
}

/* Names, each with its type in front: what the listing says, not what lstat would. */
int64_t call_list_directory(struct call_side *side, const char *full_path)
{
    char *names = malloc(sizeof side->text);
    size_t size = 0;
    DIR *dir = opendir(full_path);
    assert(names != NULL);
    if (dir == NULL) {
        const int64_t result = -errno;
        free(names);
        return result;
    }
    const struct dirent *entry;
    errno = 0;
    while ((entry = readdir(dir)) != NULL) {
        assert(size + sizeof entry->d_name + 2 < sizeof side->text);
        names[size++] = (char)('A' + entry->d_type);
        memcpy(names + size, entry->d_name, strlen(entry->d_name) + 1);
        size += strlen(entry->d_name) + 1;
    }
    const int64_t result = -errno;
    closedir(dir);
    keep_sorted(side, names, size);
    free(names);
    return result;
}

/* A listing goes on where telldir said, with the same names. */
static void check_seekdir(struct call_side *side, const char *full_path, uint64_t way)
{
    char(*names)[NAME_MAX + 1] = malloc(NAMES_MAX * sizeof *names);
    long places[NAMES_MAX];
    size_t count = 0;
    const struct dirent *entry;
    DIR *dir = opendir(full_path);
    assert(dir != NULL && names != NULL);
    places[0] = telldir(dir);
    while ((entry = readdir(dir)) != NULL && count + 1 < NAMES_MAX) {
        strcpy(names[count], entry->d_name);
        places[++count] = telldir(dir);
    }
    size_t at = (size_t)way % (count + 1);
    seekdir(dir, places[at]);
    for (; (entry = readdir(dir)) != NULL; at++)
        if (at >= count || strcmp(names[at], entry->d_name) != 0)
            break;
    if (entry != NULL || at != count)
        complain(side, "behind seekdir the listing differs at entry %zu of %zu", at, count);
    closedir(dir);
    free(names);
}

static int64_t do_readdir(struct call_side *side, const char *full_path, uint64_t way)
{
    const int64_t result = call_list_directory(side, full_path);
    if (result == 0 && way % 4 == 0)
        check_seekdir(side, full_path, way / 4);
    return result;
}

/* ---- names and attributes ---- */

static int64_t do_open(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    static const int more[] = {O_SYNC, O_DSYNC, O_NOATIME, O_NOCTTY};
    char path[CALL_PATH_SIZE];
    /* O_NONBLOCK: opening a FIFO must not wait for the other end. */
    const int flags = op->open_flags | O_NONBLOCK | O_CLOEXEC | (way % 8 == 0 ? more[way / 8 % ARRAY_COUNT(more)] : 0);
    call_side_close(side, op->slot);
    side->fds[op->slot] = open(call_full_path(side, op->path, path), flags, op->mode);
    return side->fds[op->slot] < 0 ? -errno : 0;
}

static int64_t do_rename(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    char from[CALL_PATH_SIZE], to[CALL_PATH_SIZE];
    call_full_path(side, op->path, from);
    call_full_path(side, op->path2, to);
    if (way % 32 == 0)
        return call_result(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE | RENAME_EXCHANGE));
    return call_result(op->flags == 0 ? rename(from, to) : renameat2(AT_FDCWD, from, AT_FDCWD, to, op->flags));
}

/* By a descriptor, also of a file that has lost its names, or by the path. */
static int64_t do_link(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    char from[CALL_PATH_SIZE], to[CALL_PATH_SIZE];
    const int fd = side->fds[way / 4 % GEN_SLOTS];
    call_full_path(side, op->path2, to);
    if (way % 4 != 0 || fd < 0)
        return call_result(linkat(AT_FDCWD, call_full_path(side, op->path, from), AT_FDCWD, to, 0));
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    return call_result(linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
}

static int64_t do_symlink(struct call_side *side, const struct gen_op *op)
{
    char to[CALL_PATH_SIZE];
    return call_result(symlink(op->target, call_full_path(side, op->path2, to)));
}

static int64_t do_readlink(struct call_side *side, const char *full_path)
{
    const int64_t result = call_result(readlink(full_path, side->text, sizeof side->text));
    side->text_size = result > 0 ? (size_t)result : 0;
    return result;
}

static int64_t do_utimens(const struct gen_op *op, const char *full_path, uint64_t way)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = op->mtime_ns / 1000000000, .tv_nsec = op->mtime_ns % 1000000000},
    };
    if (way % 8 == 0)
        times[0] = times[1];
    else if (way % 8 == 1)
        times[0].tv_nsec = times[1].tv_nsec = UTIME_NOW; /* who may write may do this */
    else if (way % 8 == 2)
        times[1].tv_nsec = UTIME_OMIT;
    return call_result(utimensat(AT_FDCWD, full_path, times, AT_SYMLINK_NOFOLLOW));
}

/* lstat; the attributes are compared by whoever asked. Or a bit for each combination of rights that one has. */
static int64_t do_stat(const char *full_path, uint64_t way)
{
    struct stat st;
    int64_t rights = 0;
    const int64_t result = call_result(lstat(full_path, &st));
    if (result < 0 || S_ISLNK(st.st_mode) || way % 2 == 0)
        return result;
    for (int mode = F_OK; mode <= (R_OK | W_OK | X_OK); mode++)
        if (faccessat(AT_FDCWD, full_path, mode, AT_EACCESS) == 0)
            rights |= INT64_C(1) << mode;
    return rights;
}

static int64_t do_xattr(struct call_side *side, const struct gen_op *op, const char *full_path)
{
    const size_t size = (size_t)(op->size < CALL_VALUE_MAX ? op->size : CALL_VALUE_MAX);
    switch (op->kind) {
    case GEN_SETXATTR:
        gen_fill(op->data_seed, side->bytes, size);
        return call_result(lsetxattr(full_path, op->xattr, side->bytes, size, (int)op->flags));
    case GEN_GETXATTR: {
        const int64_t result = call_result(lgetxattr(full_path, op->xattr, side->text, (size_t)op->size));
        side->text_size = result > 0 && op->size > 0 ? (size_t)result : 0;
        return result;
    }
    case GEN_REMOVEXATTR:
        return call_result(lremovexattr(full_path, op->xattr));
    default:
        return call_list_xattrs(side, full_path);
    }
}

/* ---- which it is ---- */

static int64_t do_slot(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    const int fd = side->fds[op->slot];
    switch (op->kind) {
    case GEN_CLOSE:
        call_side_close(side, op->slot);
        return 0;
    case GEN_PWRITE:
    case GEN_WRITE:
        return do_write(side, op, way);
    case GEN_PREAD:
        return do_pread(side, op, way);
    case GEN_FTRUNCATE:
        return call_result(ftruncate(fd, (off_t)op->size));
    case GEN_ALLOCATE:
        return call_result(fallocate(fd, (int)op->flags, (off_t)op->offset, (off_t)op->size));
    case GEN_SEEK:
        return do_seek(side, op);
    case GEN_MMAP_WRITE:
        return do_mmap_write(side, op);
    case GEN_COPY_RANGE:
        return do_copy_range(side, op);
    default:
        return call_result(op->flags == 1 ? fdatasync(fd) : fsync(fd));
    }
}

static int64_t do_path(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    char path[CALL_PATH_SIZE];
    call_full_path(side, op->path, path);
    switch (op->kind) {
    case GEN_TRUNCATE:
        return call_result(truncate(path, (off_t)op->size));
    case GEN_UNLINK:
        return call_result(unlink(path));
    case GEN_MKDIR:
        return call_result(mkdir(path, op->mode));
    case GEN_RMDIR:
        return call_result(rmdir(path));
    case GEN_MKFIFO:
        return call_result(mkfifo(path, op->mode));
    case GEN_CHMOD:
        return call_result(chmod(path, op->mode));
    case GEN_CHOWN:
        return call_result(lchown(path, op->uid, op->gid));
    case GEN_UTIMENS:
        return do_utimens(op, path, way);
    case GEN_READLINK:
        return do_readlink(side, path);
    case GEN_READDIR:
        return do_readdir(side, path, way);
    case GEN_STAT:
        return do_stat(path, way);
    default:
        return do_xattr(side, op, path);
    }
}

static int64_t do_it(struct call_side *side, const struct gen_op *op, uint64_t way)
{
    switch (op->kind) {
    case GEN_CREATE:
    case GEN_OPEN:
        return do_open(side, op, way);
    case GEN_APPEND_ROWS:
        return do_append_rows(side, op, way);
    case GEN_RENAME:
        return do_rename(side, op, way);
    case GEN_LINK:
        return do_link(side, op, way);
    case GEN_SYMLINK:
        return do_symlink(side, op);
    default:
        return gen_kind_has_slot(op->kind) ? do_slot(side, op, way) : do_path(side, op, way);
    }
}

void call_carry_out(struct call_side *side, const struct gen_op *op, struct call_choice choice)
{
    side->text_size = 0;
    side->complaint[0] = '\0';
    if (choice.uid == 0) {
        side->result = do_it(side, op, choice.way);
        return;
    }
    setfsgid((gid_t)choice.uid);
    setfsuid(choice.uid); /* takes root's rights over files with it */
    side->result = do_it(side, op, choice.way);
    setfsuid(0);
    setfsgid(0);
}
