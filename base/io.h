/*
 * base/io.h - the one door to files, time and randomness.
 *
 * Everything below fusefs/ reaches the outside only through an io_device: the real one (io_real.c), the in-memory one
 * of the tests. All calls return 0 or a non-negative result, or a negative errno. Paths are absolute, or relative to
 * what the device takes as its root. Thread-safe. All descriptors are close-on-exec.
 *
 * The io_* inline functions and io_read_full/io_write_full are what callers use; the table is for those who implement a
 * device.
 */
#ifndef TBLFS_BASE_IO_H
#define TBLFS_BASE_IO_H

#include "base/types.h"

#include <sys/uio.h>

struct io_device;
struct io_file; /* an open file; one close for each open */

enum io_open_flags {
    IO_READ_ONLY = 0,
    IO_READ_WRITE = 1,
    IO_CREATE = 2,    /* make it when missing */
    IO_EXCLUSIVE = 4, /* with IO_CREATE: -EEXIST when it is there */
    IO_TRUNCATE = 8,
};

enum io_file_kind { IO_KIND_FILE, IO_KIND_DIRECTORY, IO_KIND_SYMLINK, IO_KIND_OTHER };

struct io_stat {
    enum io_file_kind kind;
    uint64_t size_bytes;
    uint64_t allocated_bytes;
    uint64_t device_id; /* tells filesystems apart */
};

struct io_space {
    uint64_t total_bytes;
    uint64_t free_bytes;      /* for anyone */
    uint64_t available_bytes; /* for an unprivileged user */
    uint64_t total_files;
    uint64_t free_files;
};

/* Called for every entry but "." and ".."; a non-zero return ends the listing and is handed on. */
typedef int io_list_fn(void *arg, const char *name, enum io_file_kind kind);

struct io_ops {
    int (*open)(struct io_device *dev, const char *path, unsigned flags, struct io_file **out_file);
    int (*close)(struct io_file *file);
    ssize_t (*preadv)(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes);
    ssize_t (*pwritev)(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes);
    int (*sync)(struct io_file *file); /* fdatasync: data and what is needed to reach it */
    /* syncfs: everything of the filesystem, names too, and errors of files closed since this one was opened. -EOPNOTSUPP on a
     * filesystem that is not known to do that. */
    int (*sync_filesystem)(struct io_file *file);
    int (*truncate)(struct io_file *file, uint64_t size_bytes);
    int (*allocate)(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes); /* grows; new bytes read zero */
    int (*punch)(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes);
    int (*stat_file)(struct io_file *file, struct io_stat *out_stat);
    int (*lock)(struct io_file *file,
                pid_t *out_holder); /* exclusive until close; -EBUSY: held, *out_holder is by whom, 0 unknown */

    int (*stat)(struct io_device *dev, const char *path, struct io_stat *out_stat); /* follows symlinks */
    int (*unlink)(struct io_device *dev, const char *path);
    int (*rename)(struct io_device *dev, const char *from, const char *to);
    int (*make_dir)(struct io_device *dev, const char *path); /* mode 0700 */
    int (*remove_dir)(struct io_device *dev, const char *path);
    int (*sync_dir)(struct io_device *dev, const char *path);
    int (*list_dir)(struct io_device *dev, const char *path, io_list_fn *fn, void *arg);
    int (*space)(struct io_device *dev, const char *path, struct io_space *out_space);

    uint64_t (*realtime_ns)(struct io_device *dev);
    uint64_t (*monotonic_ns)(struct io_device *dev);
    int (*random)(struct io_device *dev, void *bytes, size_t size_bytes);
};

struct io_device {
    const struct io_ops *ops;
};

/* An io_file implementation starts with this. */
struct io_file {
    struct io_device *dev;
};

/* The real device: one for the process, no state, never freed. */
struct io_device *io_real_device(void);

/* Reads up to size_bytes, going on after short reads and EINTR; *out_read is less only at the end of the file. */
int io_read_full(struct io_file *file, void *bytes, size_t size_bytes, uint64_t offset_bytes,
                 size_t *out_read) WARN_UNUSED;
/* Writes everything, going on after short writes and EINTR. A write of 0 bytes that asked for more is -EIO. */
int io_write_full(struct io_file *file, const void *bytes, size_t size_bytes, uint64_t offset_bytes) WARN_UNUSED;
/* The same over pieces; iov is used up (changed). */
int io_readv_full(struct io_file *file, struct iovec *iov, int iov_count, uint64_t offset_bytes,
                  size_t *out_read) WARN_UNUSED;
int io_writev_full(struct io_file *file, struct iovec *iov, int iov_count, uint64_t offset_bytes) WARN_UNUSED;

static inline int io_open(struct io_device *dev, const char *path, unsigned flags, struct io_file **out_file)
{
    return dev->ops->open(dev, path, flags, out_file);
}
static inline int io_close(struct io_file *file)
{
    return file->dev->ops->close(file);
}
static inline int io_sync(struct io_file *file)
{
    return file->dev->ops->sync(file);
}
static inline int io_sync_filesystem(struct io_file *file)
{
    return file->dev->ops->sync_filesystem(file);
}
static inline int io_truncate(struct io_file *file, uint64_t size_bytes)
{
    return file->dev->ops->truncate(file, size_bytes);
}
static inline int io_allocate(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes)
{
    return file->dev->ops->allocate(file, offset_bytes, size_bytes);
}
static inline int io_punch(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes)
{
    return file->dev->ops->punch(file, offset_bytes, size_bytes);
}
static inline int io_stat_file(struct io_file *file, struct io_stat *out_stat)
{
    return file->dev->ops->stat_file(file, out_stat);
}
static inline int io_lock(struct io_file *file, pid_t *out_holder)
{
    return file->dev->ops->lock(file, out_holder);
}
static inline int io_stat(struct io_device *dev, const char *path, struct io_stat *out_stat)
{
    return dev->ops->stat(dev, path, out_stat);
}
static inline int io_unlink(struct io_device *dev, const char *path)
{
    return dev->ops->unlink(dev, path);
}
static inline int io_rename(struct io_device *dev, const char *from, const char *to)
{
    return dev->ops->rename(dev, from, to);
}
static inline int io_make_dir(struct io_device *dev, const char *path)
{
    return dev->ops->make_dir(dev, path);
}
static inline int io_remove_dir(struct io_device *dev, const char *path)
{
    return dev->ops->remove_dir(dev, path);
}
static inline int io_sync_dir(struct io_device *dev, const char *path)
{
    return dev->ops->sync_dir(dev, path);
}
static inline int io_list_dir(struct io_device *dev, const char *path, io_list_fn *fn, void *arg)
{
    return dev->ops->list_dir(dev, path, fn, arg);
}
static inline int io_space(struct io_device *dev, const char *path, struct io_space *out_space)
{
    return dev->ops->space(dev, path, out_space);
}
static inline uint64_t io_realtime_ns(struct io_device *dev)
{
    return dev->ops->realtime_ns(dev);
}
static inline uint64_t io_monotonic_ns(struct io_device *dev)
{
    return dev->ops->monotonic_ns(dev);
}
static inline int io_random(struct io_device *dev, void *bytes, size_t size_bytes)
{
    return dev->ops->random(dev, bytes, size_bytes);
}

#endif
