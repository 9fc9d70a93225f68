/*
 * tests/lib/odd_calls.c - see odd_calls.h.
 *
 * Locking: none.
 */
#include "tests/lib/odd_calls.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SAME       ODD_SAME
#define LARGE_SIZE 70000u

/* Where a call is made: descriptors of the directory and of "file" in it, which holds 0123456789. */
struct place {
    char path[PATH_MAX]; /* of "link" */
    int dir, file, left;
    char longest[NAME_MAX + 2]; /* a name of one byte too many */
    char large[LARGE_SIZE];
};

static int open_and_close(int dir, const char *name, int flags)
{
    const int fd = openat(dir, name, flags | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

static int with_opened(int dir, const char *name, int flags, int (*call)(int fd))
{
    const int fd = openat(dir, name, flags | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    const int result = call(fd);
    const int error = errno;
    close(fd);
    errno = error;
    return result;
}

static int write_one(int fd)
{
    return (int)write(fd, "x", 1);
}

static int read_one(int fd)
{
    char byte;
    return (int)read(fd, &byte, 1);
}

static int cut_off(int fd)
{
    return ftruncate(fd, 1);
}

static int exchange_locks(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 3};
    return flock(fd, LOCK_EX | LOCK_NB) | fcntl(fd, F_OFD_SETLK, &lock);
}

static int in_pieces_with(int fd, int flags)
{
    const struct iovec piece = {.iov_base = (char[]){"abc"}, .iov_len = 3};
    return (int)pwritev2(fd, &piece, 1, 0, flags);
}

static int map_and_close(int fd, int protection, int flags)
{
    void *map = mmap(NULL, 4096, protection, flags, fd, 0);
    if (map == MAP_FAILED)
        return -1;
    munmap(map, 4096);
    return 0;
}

static int64_t size_after(int result, int fd)
{
    struct stat st;
    return result < 0 || fstat(fd, &st) < 0 ? -1 : (int64_t)st.st_size;
}

/* For what returns its error. */
static int as_errno(int error)
{
    errno = error;
    return error == 0 ? 0 : -1;
}

/* X(what it is, what a mount answers, the call) */
#define ODD_CALLS(X)                                                                                                   \
    X("mkdir of a name of 256 bytes", SAME, mkdirat(at->dir, at->longest, 0755))                                       \
    X("create of a name of 256 bytes", SAME, open_and_close(at->dir, at->longest, O_CREAT | O_RDWR))                   \
    X("create of a name of 255 bytes", SAME, open_and_close(at->dir, at->longest + 1, O_CREAT | O_RDWR))               \
    X("symlink of a name of 256 bytes", SAME, symlinkat("x", at->dir, at->longest))                                    \
    X("mkfifo of a name of 256 bytes", SAME, mkfifoat(at->dir, at->longest, 0644))                                     \
    X("rename to a name of 256 bytes", SAME, renameat(at->dir, "file", at->dir, at->longest))                          \
    X("stat of a name of 256 bytes", SAME, faccessat(at->dir, at->longest, F_OK, 0))                                   \
    X("write to a directory", SAME, write_one(at->dir))                                                                \
    X("read of a directory", SAME, read_one(at->dir))                                                                  \
    X("truncate of a directory", SAME, cut_off(at->dir))                                                               \
    X("open of nothing", SAME, open_and_close(at->dir, "", O_RDONLY))                                                  \
    X("open of a directory for writing", SAME, open_and_close(at->dir, "dir", O_WRONLY))                               \
    X("creating open of a directory", SAME, open_and_close(at->dir, "dir", O_CREAT | O_RDONLY))                        \
    X("open of a file as a directory", SAME, open_and_close(at->dir, "file", O_DIRECTORY))                             \
    X("open of a link, not following", SAME, open_and_close(at->dir, "link", O_NOFOLLOW))                              \
    X("open of a link to itself", SAME, open_and_close(at->dir, "loop", O_RDONLY))                                     \
    X("exclusive create of a link", SAME, open_and_close(at->dir, "link", O_CREAT | O_EXCL | O_RDWR))                  \
    X("open below a file", SAME, open_and_close(at->dir, "file/x", O_RDONLY))                                          \
    X("open of a file with a slash", SAME, open_and_close(at->dir, "file/", O_RDONLY))                                 \
    X("create of a file with a slash", SAME, open_and_close(at->dir, "new/", O_CREAT | O_RDWR))                        \
    X("O_TMPFILE", -EOPNOTSUPP, open_and_close(at->dir, ".", O_TMPFILE | O_RDWR))                                      \
    X("O_TMPFILE for reading", SAME, open_and_close(at->dir, ".", O_TMPFILE | O_RDONLY))                               \
    X("read of an O_PATH descriptor", SAME, with_opened(at->dir, "file", O_PATH, read_one))                            \
    X("read of an O_WRONLY descriptor", SAME, with_opened(at->dir, "file", O_WRONLY, read_one))                        \
    X("write to an O_RDONLY descriptor", SAME, with_opened(at->dir, "file", O_RDONLY, write_one))                      \
    X("truncate of an O_RDONLY descriptor", SAME, with_opened(at->dir, "file", O_RDONLY, cut_off))                     \
    X("one byte to O_DIRECT", 1, with_opened(at->dir, "file", O_DIRECT | O_RDWR, write_one))                           \
    X("one byte to O_SYNC and O_APPEND", SAME, with_opened(at->dir, "file", O_SYNC | O_APPEND | O_RDWR, write_one))    \
    X("locks", SAME, with_opened(at->dir, "file", O_RDWR, exchange_locks))                                             \
    X("rmdir of .", SAME, unlinkat(at->dir, "dir/.", AT_REMOVEDIR))                                                    \
    X("rmdir of ..", SAME, unlinkat(at->dir, "dir/..", AT_REMOVEDIR))                                                  \
    X("rmdir of a file", SAME, unlinkat(at->dir, "file", AT_REMOVEDIR))                                                \
    X("unlink of a directory", SAME, unlinkat(at->dir, "dir", 0))                                                      \
    X("mkdir of ..", SAME, mkdirat(at->dir, "..", 0755))                                                               \
    X("mkdir of what is there", SAME, mkdirat(at->dir, "file", 0755))                                                  \
    X("mkdir with a slash", SAME, mkdirat(at->dir, "new/", 0755))                                                      \
    X("mkdir with all modes", SAME, mkdirat(at->dir, "new", 07777))                                                    \
    X("link of a directory", SAME, linkat(at->dir, "dir", at->dir, "new", 0))                                          \
    X("link over what is there", SAME, linkat(at->dir, "file", at->dir, "link", 0))                                    \
    X("symlink to nothing", SAME, symlinkat("", at->dir, "new"))                                                       \
    X("symlink to 4095 bytes", SAME, symlinkat(at->large + LARGE_SIZE - 4096, at->dir, "new"))                         \
    X("symlink to 4096 bytes", SAME, symlinkat(at->large + LARGE_SIZE - 4097, at->dir, "new"))                         \
    X("readlink of a file", SAME, readlinkat(at->dir, "file", at->large, 10))                                          \
    X("readlink into one byte", SAME, readlinkat(at->dir, "link", at->large, 1))                                       \
    X("rename of .", SAME, renameat(at->dir, "dir/.", at->dir, "new"))                                                 \
    X("rename into itself", SAME, renameat(at->dir, "dir", at->dir, "dir/new"))                                        \
    X("rename onto itself", SAME, renameat(at->dir, "file", at->dir, "file"))                                          \
    X("rename of a file over a directory", SAME, renameat(at->dir, "file", at->dir, "dir"))                            \
    X("rename of a directory over a file", SAME, renameat(at->dir, "dir", at->dir, "file"))                            \
    X("rename of a file to a name with a slash", SAME, renameat(at->dir, "file", at->dir, "new/"))                     \
    X("exchange with nothing", SAME, renameat2(at->dir, "file", at->dir, "new", RENAME_EXCHANGE))                      \
    X("exchange with a directory", SAME, renameat2(at->dir, "file", at->dir, "dir", RENAME_EXCHANGE))                  \
    X("exchange, no replace", SAME, renameat2(at->dir, "file", at->dir, "dir", RENAME_EXCHANGE | RENAME_NOREPLACE))    \
    X("rename with an unknown flag", SAME, renameat2(at->dir, "file", at->dir, "new", 64))                             \
    X("rename leaving a whiteout", -EINVAL, renameat2(at->dir, "file", at->dir, "new", RENAME_WHITEOUT))               \
    X("mknod of a device", SAME, mknodat(at->dir, "new", S_IFCHR | 0600, makedev(1, 3)))                               \
    X("mknod of a socket", SAME, mknodat(at->dir, "new", S_IFSOCK | 0600, 0))                                          \
    X("mknod of a file", SAME, mknodat(at->dir, "new", S_IFREG | 0600, 0))                                             \
    X("mknod of a directory", SAME, mknodat(at->dir, "new", S_IFDIR | 0700, 0))                                        \
    X("chmod of a link", SAME, fchmodat(at->dir, "link", 0600, AT_SYMLINK_NOFOLLOW))                                   \
    X("pwrite at -1", SAME, pwrite(at->file, "x", 1, -1))                                                              \
    X("pwrite behind all", SAME, pwrite(at->file, "x", 1, INT64_MAX))                                                  \
    X("pwrite of nothing", SAME, pwrite(at->file, "x", 0, 100))                                                        \
    X("size after a write of nothing far away", SAME, size_after((int)pwrite(at->file, "x", 0, 100), at->file))        \
    X("pread behind all", SAME, pread(at->file, at->large, 1, INT64_MAX))                                              \
    X("pread far behind the end", SAME, pread(at->file, at->large, 1, INT64_C(1) << 40))                               \
    X("pread at -1", SAME, pread(at->file, at->large, 1, -1))                                                          \
    X("pread of more than there is", SAME, pread(at->file, at->large, 100, 5))                                         \
    X("pwritev2 with RWF_APPEND", SAME, size_after(in_pieces_with(at->file, RWF_APPEND), at->file))                    \
    X("pwritev2 with RWF_SYNC", SAME, size_after(in_pieces_with(at->file, RWF_SYNC), at->file))                        \
    X("pwritev2 with RWF_HIPRI", SAME, size_after(in_pieces_with(at->file, RWF_HIPRI), at->file))                      \
    X("pwritev2 with an unknown flag", SAME, in_pieces_with(at->file, 1 << 30))                                        \
    X("truncate to -1", SAME, ftruncate(at->file, -1))                                                                 \
    X("size after a truncate to 1 TiB", SAME, size_after(ftruncate(at->file, INT64_C(1) << 40), at->file))             \
    X("size after a truncate to 15 TiB", SAME, size_after(ftruncate(at->file, INT64_C(15) << 40), at->file))           \
    X("fallocate of nothing", SAME, fallocate(at->file, 0, 0, 0))                                                      \
    X("fallocate at -1", SAME, fallocate(at->file, 0, -1, 10))                                                         \
    X("fallocate of -1", SAME, fallocate(at->file, 0, 0, -1))                                                          \
    X("fallocate behind all", SAME, fallocate(at->file, 0, INT64_MAX - 10, 100))                                       \
    X("punch without keeping the size", SAME, fallocate(at->file, FALLOC_FL_PUNCH_HOLE, 0, 10))                        \
    X("punch and zero", SAME, fallocate(at->file, 3 | FALLOC_FL_ZERO_RANGE, 0, 10))                                    \
    X("collapse", -EOPNOTSUPP, fallocate(at->file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096))                                 \
    X("insert", -EOPNOTSUPP, fallocate(at->file, FALLOC_FL_INSERT_RANGE, 0, 4096))                                     \
    X("unshare", SAME, fallocate(at->file, FALLOC_FL_UNSHARE_RANGE, 0, 4096))                                          \
    X("fallocate with an unknown flag", SAME, fallocate(at->file, 1 << 20, 0, 4096))                                   \
    X("fallocate of a directory", SAME, fallocate(at->dir, 0, 0, 10))                                                  \
    X("posix_fallocate", SAME, size_after(as_errno(posix_fallocate(at->file, 5, 100)), at->file))                      \
    X("seek for data in a file of one byte", SAME, lseek(at->file, 1, SEEK_DATA))                                      \
    X("seek for data behind the end", SAME, lseek(at->file, 11, SEEK_DATA))                                            \
    X("seek for a hole at the end", SAME, lseek(at->file, 10, SEEK_HOLE))                                              \
    X("seek for a hole", SAME, lseek(at->file, 3, SEEK_HOLE))                                                          \
    X("seek for data at -1", SAME, lseek(at->file, -1, SEEK_DATA))                                                     \
    X("seek to -1", SAME, lseek(at->file, -1, SEEK_SET))                                                               \
    X("seek by an unknown way", SAME, lseek(at->file, 0, 99))                                                          \
    X("shared mapping of a directory", SAME, map_and_close(at->dir, PROT_READ, MAP_SHARED))                            \
    X("shared mapping of a file", SAME, map_and_close(at->file, PROT_READ | PROT_WRITE, MAP_SHARED))                   \
    X("mapping to execute", SAME, map_and_close(at->file, PROT_READ | PROT_EXEC, MAP_PRIVATE))                         \
    X("reflink", SAME, ioctl(at->file, FICLONE, at->file))                                                             \
    X("an unknown ioctl", SAME, ioctl(at->file, _IO('t', 77)))                                                         \
    X("bytes left to read", SAME, ioctl(at->file, FIONREAD, &at->left))                                                \
    X("copy_file_range onto itself", SAME, copy_file_range(at->file, NULL, at->file, NULL, 5, 0))                      \
    X("copy_file_range with a flag", SAME, copy_file_range(at->file, NULL, at->file, NULL, 5, 1))                      \
    X("sync_file_range", SAME, sync_file_range(at->file, 0, 10, SYNC_FILE_RANGE_WRITE))                                \
    X("fadvise", SAME, as_errno(posix_fadvise(at->file, 0, 0, POSIX_FADV_DONTNEED)))                                   \
    X("readahead", SAME, readahead(at->file, 0, 10))                                                                   \
    X("fsync of a directory", SAME, fsync(at->dir))                                                                    \
    X("syncfs", SAME, syncfs(at->dir))                                                                                 \
    X("attribute of no name", SAME, fsetxattr(at->file, "", "x", 1, 0))                                                \
    X("attribute without a name behind user.", SAME, fsetxattr(at->file, "user.", "x", 1, 0))                          \
    X("attribute of another kind", SAME, fsetxattr(at->file, "odd.name", "x", 1, 0))                                   \
    X("attribute made and replaced", SAME, fsetxattr(at->file, "user.x", "x", 1, XATTR_CREATE | XATTR_REPLACE))        \
    X("attribute with an unknown flag", SAME, fsetxattr(at->file, "user.x", "x", 1, 8))                                \
    X("attribute that is not there replaced", SAME, fsetxattr(at->file, "user.x", "x", 1, XATTR_REPLACE))              \
    X("attribute of more than 64 KiB", SAME, fsetxattr(at->file, "user.x", at->large, 65537, 0))                       \
    X("attribute of 60,000 bytes", -ENOSPC, fsetxattr(at->file, "user.x", at->large, 60000, 0))                        \
    X("attribute of no bytes", SAME, fsetxattr(at->file, "user.x", NULL, 0, 0))                                        \
    X("attribute of a link", SAME, lsetxattr(at->path, "user.x", "x", 1, 0))                                           \
    X("security attribute", -EOPNOTSUPP, fsetxattr(at->file, "security.x", "x", 1, 0))                                 \
    X("trusted attribute", SAME, fsetxattr(at->file, "trusted.x", "x", 1, 0))                                          \
    X("size of an attribute that is not there", SAME, fgetxattr(at->file, "user.none", NULL, 0))                       \
    X("attribute removed that is not there", SAME, fremovexattr(at->file, "user.none"))                                \
    X("attributes of a directory", SAME, flistxattr(at->dir, at->large, 100))

enum {
#define X(what, mounted, call) +1
    ODD_COUNT = 0 ODD_CALLS(X)
#undef X
};

unsigned odd_call_count(void)
{
    return ODD_COUNT;
}

const char *odd_call_name(unsigned which)
{
    static const char *const names[] = {
#define X(what, mounted, call) what,
        ODD_CALLS(X)
#undef X
    };
    return names[which];
}

int64_t odd_call_mounted_result(unsigned which)
{
    static const int64_t results[] = {
#define X(what, mounted, call) mounted,
        ODD_CALLS(X)
#undef X
    };
    return results[which];
}

static void at_make(struct place *at, const char *root)
{
    snprintf(at->path, sizeof at->path, "%s/odd calls", root);
    memset(at->longest, 'n', sizeof at->longest);
    at->longest[sizeof at->longest - 1] = '\0';
    memset(at->large, 'x', sizeof at->large);
    at->large[sizeof at->large - 1] = '\0';
    bool good = mkdir(at->path, 0755) == 0;
    at->dir = open(at->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    good = good && mkdirat(at->dir, "dir", 0755) == 0 && symlinkat("file", at->dir, "link") == 0;
    good = good && symlinkat("loop", at->dir, "loop") == 0;
    at->file = openat(at->dir, "file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    good = good && write(at->file, "0123456789", 10) == 10;
    assert(good);
    strcat(at->path, "/link");
}

static void at_remove(struct place *at)
{
    const char *const names[] = {"file", "link", "loop", "dir", "new", at->longest + 1};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (unlinkat(at->dir, names[i], 0) < 0 && errno == EISDIR)
            unlinkat(at->dir, names[i], AT_REMOVEDIR);
    close(at->file);
    close(at->dir);
    *strrchr(at->path, '/') = '\0';
    const int result = rmdir(at->path);
    assert(result == 0);
}

int64_t odd_call_make(const char *root, unsigned which)
{
    struct place *at = malloc(sizeof *at);
    unsigned number = 0;
    int64_t result = 0;
    assert(at != NULL);
    at_make(at, root);
#define X(what, mounted, call)                                                                                         \
    if (number++ == which)                                                                                             \
        result = call;
    ODD_CALLS(X)
#undef X
    if (result < 0)
        result = -errno;
    at_remove(at);
    free(at);
    return result;
}
