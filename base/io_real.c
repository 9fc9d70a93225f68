/*
 * base/io_real.c - the real device: the only file of the engine that makes disk, time and randomness system calls.
 *
 * Invariants:
 *   IO-1  Every descriptor is close-on-exec: the archive command and the like inherit nothing.
 *   IO-2  open waits for nobody and opens regular files and (read-only) directories only: a FIFO or a device that
 *         stands where a relation file should be is an error, not a hang.
 *   IO-3  An error of close(2) is returned; the descriptor is gone all the same.
 *   IO-4  allocate never changes what bytes inside the file read as.
 *
 * Locking: none; the kernel's. The device has no state.
 */
#include "base/io.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

struct real_file {
    struct io_file file;
    int fd;
};

static int fd_of(const struct io_file *file)
{
    return ((const struct real_file *)file)->fd;
}

static int result_of(int result)
{
    return result < 0 ? -errno : 0;
}

static enum io_file_kind kind_of_mode(mode_t mode)
{
    if (S_ISREG(mode))
        return IO_KIND_FILE;
    if (S_ISDIR(mode))
        return IO_KIND_DIRECTORY;
    return S_ISLNK(mode) ? IO_KIND_SYMLINK : IO_KIND_OTHER;
}

/* A range that off_t cannot express. */
static bool range_is_too_big(uint64_t offset_bytes, uint64_t size_bytes)
{
    return offset_bytes > INT64_MAX || size_bytes > (uint64_t)INT64_MAX - offset_bytes;
}

static int system_open_flags(unsigned flags)
{
    int system_flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    system_flags |= flags & IO_READ_WRITE ? O_RDWR : O_RDONLY;
    if (flags & IO_CREATE)
        system_flags |= O_CREAT;
    if (flags & IO_EXCLUSIVE)
        system_flags |= O_EXCL;
    if (flags & IO_TRUNCATE)
        system_flags |= O_TRUNC;
    return system_flags;
}

static int open_retrying(const char *path, int system_flags)
{
    int fd;
    do
        fd = open(path, system_flags, 0600);
    while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

static int refuse_special(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ? 0 : -EINVAL;
}

static int real_open(struct io_device *dev, const char *path, unsigned flags, struct io_file **out_file)
{
    struct real_file *real = malloc(sizeof *real);
    if (!real)
        return -ENOMEM;
    const int fd = open_retrying(path, system_open_flags(flags));
    int result = fd < 0 ? fd : refuse_special(fd);
    if (result < 0)
        goto out;
    real->file.dev = dev;
    real->fd = fd;
    *out_file = &real->file;
    return 0;
out:
    if (fd >= 0)
        (void)close(fd);
    free(real);
    return result;
}

static int real_close(struct io_file *file)
{
    const int result = result_of(close(fd_of(file)));
    free(file);
    /* Linux has closed the descriptor when it says EINTR. */
    return result == -EINTR ? 0 : result;
}

static ssize_t real_preadv(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes)
{
    if (offset_bytes > INT64_MAX)
        return -EINVAL;
    const ssize_t got = preadv(fd_of(file), iov, iov_count, (off_t)offset_bytes);
    return got < 0 ? -errno : got;
}

static ssize_t real_pwritev(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes)
{
    if (offset_bytes > INT64_MAX)
        return -EFBIG;
    const ssize_t put = pwritev(fd_of(file), iov, iov_count, (off_t)offset_bytes);
    return put < 0 ? -errno : put;
}

static int real_sync(struct io_file *file)
{
    return result_of(fdatasync(fd_of(file)));
}

/* syncfs reports write-back errors of files closed meanwhile, and makes names durable, on these (Linux 5.8 and later). */
static bool syncs_everything(int descriptor)
{
    struct statfs fs;
    if (fstatfs(descriptor, &fs) != 0)
        return false;
    switch ((unsigned long)fs.f_type) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
        return true;
    default:
        return false;
    }
}

static int real_sync_filesystem(struct io_file *file)
{
    return syncs_everything(fd_of(file)) ? result_of(syncfs(fd_of(file))) : -EOPNOTSUPP;
}

static int real_truncate(struct io_file *file, uint64_t size_bytes)
{
    if (size_bytes > INT64_MAX)
        return -EFBIG;
    int result;
    do
        result = result_of(ftruncate(fd_of(file), (off_t)size_bytes));
    while (result == -EINTR);
    return result;
}

static int system_fallocate(int fd, int mode, uint64_t offset_bytes, uint64_t size_bytes)
{
    int result;
    do
        result = result_of(fallocate(fd, mode, (off_t)offset_bytes, (off_t)size_bytes));
    while (result == -EINTR);
    return result;
}

/* For filesystems without fallocate: zeros from the end of the file to end_bytes. What lies before the end is left
 * alone: it may be data, and such filesystems have no punch that could have made holes of ours there. */
static int extend_with_zeros(struct io_file *file, uint64_t end_bytes)
{
    static const uint8_t zeros[65536];
    struct stat st;
    if (fstat(fd_of(file), &st) < 0)
        return -errno;
    const uint64_t old_size = (uint64_t)st.st_size;
    int result = 0;
    for (uint64_t at = old_size; at < end_bytes && result == 0;) {
        const uint64_t rest = end_bytes - at;
        const size_t piece = rest < sizeof zeros ? (size_t)rest : sizeof zeros;
        result = io_write_full(file, zeros, piece, at);
        at += piece;
    }
    if (result < 0)
        (void)real_truncate(file, old_size); /* the first error wins; a longer file of zeros would do no harm */
    return result;
}

static int real_allocate(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes)
{
    if (range_is_too_big(offset_bytes, size_bytes))
        return -EFBIG;
    if (size_bytes == 0)
        return 0;
    const int result = system_fallocate(fd_of(file), 0, offset_bytes, size_bytes);
    return result == -EOPNOTSUPP ? extend_with_zeros(file, offset_bytes + size_bytes) : result;
}

static int real_punch(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes)
{
    if (range_is_too_big(offset_bytes, size_bytes))
        return -EFBIG;
    if (size_bytes == 0)
        return 0;
    return system_fallocate(fd_of(file), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_bytes, size_bytes);
}

static void stat_fill(const struct stat *st, struct io_stat *out_stat)
{
    out_stat->kind = kind_of_mode(st->st_mode);
    out_stat->size_bytes = (uint64_t)st->st_size;
    out_stat->allocated_bytes = (uint64_t)st->st_blocks * 512;
    out_stat->device_id = (uint64_t)st->st_dev;
}

static int real_stat_file(struct io_file *file, struct io_stat *out_stat)
{
    struct stat st;
    if (fstat(fd_of(file), &st) < 0)
        return -errno;
    stat_fill(&st, out_stat);
    return 0;
}

/* The process id that the holder wrote as text at the start of the file; 0 when there is none. The kernel names no
 * holder for locks of open files. */
static pid_t holder_from_file(int fd)
{
    char text[24];
    const ssize_t got = pread(fd, text, sizeof text - 1, 0);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    errno = 0;
    const long pid = strtol(text, NULL, 10);
    return errno == 0 && pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0;
}

static int real_lock(struct io_file *file, pid_t *out_holder)
{
    /* A lock of the open file (not of the process): it survives the fork that makes a daemon, keeps other threads of
     * this process out as well, and ends with the last descriptor, so also when the process is killed. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd_of(file), F_OFD_SETLK, &lock) == 0)
        return 0;
    if (errno != EAGAIN && errno != EACCES)
        return -errno;
    *out_holder = holder_from_file(fd_of(file));
    return -EBUSY;
}

static int real_stat(struct io_device *dev, const char *path, struct io_stat *out_stat)
{
    (void)dev;
    struct stat st;
    if (stat(path, &st) < 0)
        return -errno;
    stat_fill(&st, out_stat);
    return 0;
}

static int real_unlink(struct io_device *dev, const char *path)
{
    (void)dev;
    return result_of(unlink(path));
}

static int real_rename(struct io_device *dev, const char *from, const char *to)
{
    (void)dev;
    return result_of(rename(from, to));
}

static int real_make_dir(struct io_device *dev, const char *path)
{
    (void)dev;
    return result_of(mkdir(path, 0700));
}

static int real_remove_dir(struct io_device *dev, const char *path)
{
    (void)dev;
    return result_of(rmdir(path));
}

static int real_sync_dir(struct io_device *dev, const char *path)
{
    (void)dev;
    const int fd = open_retrying(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fd;
    int result = result_of(fsync(fd));
    if (close(fd) < 0 && errno != EINTR && result == 0)
        result = -errno;
    return result;
}

static enum io_file_kind kind_of_entry(DIR *dir, const struct dirent *entry)
{
    struct stat st;
    switch (entry->d_type) {
    case DT_REG:
        return IO_KIND_FILE;
    case DT_DIR:
        return IO_KIND_DIRECTORY;
    case DT_LNK:
        return IO_KIND_SYMLINK;
    case DT_UNKNOWN: /* the filesystem does not keep it in the directory */
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return kind_of_mode(st.st_mode);
        return IO_KIND_OTHER;
    default:
        return IO_KIND_OTHER;
    }
}

static int list_entries(DIR *dir, io_list_fn *fn, void *arg)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return -errno;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        const int result = fn(arg, entry->d_name, kind_of_entry(dir, entry));
        if (result != 0)
            return result;
    }
}

static int real_list_dir(struct io_device *dev, const char *path, io_list_fn *fn, void *arg)
{
    (void)dev;
    DIR *dir = opendir(path); /* close-on-exec: glibc's always is */
    if (!dir)
        return -errno;
    int result = list_entries(dir, fn, arg);
    if (closedir(dir) < 0 && result == 0)
        result = -errno;
    return result;
}

static int real_space(struct io_device *dev, const char *path, struct io_space *out_space)
{
    (void)dev;
    struct statvfs vfs;
    int result;
    do
        result = result_of(statvfs(path, &vfs));
    while (result == -EINTR);
    if (result < 0)
        return result;
    out_space->total_bytes = (uint64_t)vfs.f_blocks * vfs.f_frsize;
    out_space->free_bytes = (uint64_t)vfs.f_bfree * vfs.f_frsize;
    out_space->available_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    out_space->total_files = vfs.f_files;
    out_space->free_files = vfs.f_ffree;
    return 0;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    const int result = clock_gettime(clock, &now);
    assert(result == 0);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t real_realtime_ns(struct io_device *dev)
{
    (void)dev;
    return clock_ns(CLOCK_REALTIME);
}

static uint64_t real_monotonic_ns(struct io_device *dev)
{
    (void)dev;
    return clock_ns(CLOCK_MONOTONIC);
}

static int real_random(struct io_device *dev, void *bytes, size_t size_bytes)
{
    (void)dev;
    for (size_t done = 0; done < size_bytes;) {
        const ssize_t got = getrandom((uint8_t *)bytes + done, size_bytes - done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        done += (size_t)got;
    }
    return 0;
}

static const struct io_ops real_ops = {
    .open = real_open,
    .close = real_close,
    .preadv = real_preadv,
    .pwritev = real_pwritev,
    .sync = real_sync,
    .sync_filesystem = real_sync_filesystem,
    .truncate = real_truncate,
    .allocate = real_allocate,
    .punch = real_punch,
    .stat_file = real_stat_file,
    .lock = real_lock,
    .stat = real_stat,
    .unlink = real_unlink,
    .rename = real_rename,
    .make_dir = real_make_dir,
    .remove_dir = real_remove_dir,
    .sync_dir = real_sync_dir,
    .list_dir = real_list_dir,
    .space = real_space,
    .realtime_ns = real_realtime_ns,
    .monotonic_ns = real_monotonic_ns,
    .random = real_random,
};

struct io_device *io_real_device(void)
{
    /* The interface hands out a pointer to non-const for the sake of devices that have state; nothing writes to it. */
    static const struct io_device device = {.ops = &real_ops};
    return (struct io_device *)(uintptr_t)&device;
}
