/*
 * fusefs/kernel.c - see the header.
 *
 * libfuse 3.14 never really asks for PARALLEL_DIROPS and knows neither HANDLE_KILLPRIV_V2 nor DIRECT_IO_ALLOW_MMAP. So
 * the reply to INIT is recognised on its way out, by its number, and gets these flags if the kernel offered them:
 *
 *   PARALLEL_DIROPS       lookups in one directory do not wait for each other
 *   HANDLE_KILLPRIV_V2    saves a GETXATTR(security.capability) before each write; we clear set-user-id bits
 *   DIRECT_IO_ALLOW_MMAP  MAP_SHARED works on a file that was opened with O_APPEND
 *
 * What we never take: WRITEBACK_CACHE (the kernel would own size and mtime), EXPLICIT_INVAL_DATA (readers saw NUL bytes
 * after an append from the side), SPLICE_*, SETXATTR_EXT (changes the layout of a request that libfuse parses).
 *
 * Locking: none; atomics.
 */
#include "fusefs/kernel.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define FLAG_DIRECT_IO_ALLOW_MMAP (UINT64_C(1) << 36) /* Linux 6.6 */
#define MAX_BACKGROUND            64
#define CONGESTION_THRESHOLD      48

static const uint64_t extra_flags =
    (uint64_t)FUSE_PARALLEL_DIROPS | (uint64_t)FUSE_HANDLE_KILLPRIV_V2 | FLAG_DIRECT_IO_ALLOW_MMAP;

static void note_init_request(struct kernel_link *link, const char *request, size_t size_bytes)
{
    struct fuse_in_header header;
    struct fuse_init_in init = {.flags = 0};
    memcpy(&header, request, sizeof header);
    const size_t body = size_bytes - sizeof header;
    memcpy(&init, request + sizeof header, body < sizeof init ? body : sizeof init);
    uint64_t offered = init.flags;
    if ((init.flags & FUSE_INIT_EXT) != 0)
        offered |= (uint64_t)init.flags2 << 32;
    link->offered = offered;
    link->protocol_minor = init.minor;
    link->init_unique = header.unique;
}

static ssize_t link_read(int fd, void *buffer, size_t capacity, void *userdata)
{
    struct kernel_link *link = userdata;
    const ssize_t got = read(fd, buffer, capacity);
    if (got < (ssize_t)sizeof(struct fuse_in_header))
        return got;
    struct fuse_in_header header;
    memcpy(&header, buffer, sizeof header);
    link->requests[header.opcode < KERNEL_OPCODES ? header.opcode : 0]++;
    if (header.opcode == FUSE_INIT)
        note_init_request(link, buffer, (size_t)got);
    return got;
}

/* Is this the reply to INIT, good and in its modern size? */
static bool is_init_reply(const struct kernel_link *link, const struct iovec *iov, int count)
{
    struct fuse_out_header header;
    if (link->init_unique == 0 || count != 2 || iov[0].iov_len != sizeof header)
        return false;
    memcpy(&header, iov[0].iov_base, sizeof header);
    return header.unique == link->init_unique && header.error == 0 && iov[1].iov_len == sizeof(struct fuse_init_out);
}

static ssize_t write_init_reply(struct kernel_link *link, int fd, const struct iovec *iov)
{
    struct fuse_init_out reply;
    memcpy(&reply, iov[1].iov_base, sizeof reply);
    uint64_t flags = reply.flags | (extra_flags & link->offered);
    if ((link->offered & FUSE_INIT_EXT) != 0)
        flags |= FUSE_INIT_EXT;
    reply.flags = (uint32_t)flags;
    reply.flags2 = (uint32_t)(flags >> 32);
    const struct iovec patched[2] = {iov[0], {.iov_base = &reply, .iov_len = sizeof reply}};
    const ssize_t written = writev(fd, patched, 2);
    if (written < 0)
        return written;
    link->init_unique = 0;
    link->negotiated = flags;
    diag_log(link->diag, DIAG_INFO, "FUSE protocol 7.%u, flags %#llx of %#llx offered, max_write %u, max_readahead %u",
             link->protocol_minor, (unsigned long long)flags, (unsigned long long)link->offered, reply.max_write,
             reply.max_readahead);
    link->ready(link->ready_arg);
    return written;
}

static ssize_t link_writev(int fd, struct iovec *iov, int count, void *userdata)
{
    struct kernel_link *link = userdata;
    if (is_init_reply(link, iov, count))
        return write_init_reply(link, fd, iov);
    return writev(fd, iov, count);
}

int kernel_link_attach(struct kernel_link *link, struct fuse_session *session)
{
    static const struct fuse_custom_io io = {.read = link_read, .writev = link_writev};
    link->init_unique = 0;
    link->negotiated = 0;
    return fuse_session_custom_io(session, &io, fuse_session_fd(session));
}

void kernel_want(struct kernel_link *link, struct fuse_conn_info *conn)
{
    /* Never CACHE_SYMLINKS: the kernel would follow a link that a commit replaced without asking. */
    const unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA |
                            FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO;
    conn->want = wanted & conn->capable; /* 3.14 gives up when it wants what is not offered */
    conn->max_background = MAX_BACKGROUND;
    conn->congestion_threshold = CONGESTION_THRESHOLD;
    if ((conn->want & FUSE_CAP_ATOMIC_O_TRUNC) == 0)
        diag_log(link->diag, DIAG_WARNING, "the kernel does not offer ATOMIC_O_TRUNC: it is older than expected");
}

bool kernel_leaves_kill_priv(const struct kernel_link *link)
{
    return (link->negotiated & FUSE_HANDLE_KILLPRIV_V2) != 0;
}

static const char *const opcode_names[KERNEL_OPCODES] = {
    [0] = "OTHER",
    [FUSE_LOOKUP] = "LOOKUP",
    [FUSE_FORGET] = "FORGET",
    [FUSE_GETATTR] = "GETATTR",
    [FUSE_SETATTR] = "SETATTR",
    [FUSE_READLINK] = "READLINK",
    [FUSE_SYMLINK] = "SYMLINK",
    [FUSE_MKNOD] = "MKNOD",
    [FUSE_MKDIR] = "MKDIR",
    [FUSE_UNLINK] = "UNLINK",
    [FUSE_RMDIR] = "RMDIR",
    [FUSE_RENAME] = "RENAME",
    [FUSE_LINK] = "LINK",
    [FUSE_OPEN] = "OPEN",
    [FUSE_READ] = "READ",
    [FUSE_WRITE] = "WRITE",
    [FUSE_STATFS] = "STATFS",
    [FUSE_RELEASE] = "RELEASE",
    [FUSE_FSYNC] = "FSYNC",
    [FUSE_SETXATTR] = "SETXATTR",
    [FUSE_GETXATTR] = "GETXATTR",
    [FUSE_LISTXATTR] = "LISTXATTR",
    [FUSE_REMOVEXATTR] = "REMOVEXATTR",
    [FUSE_FLUSH] = "FLUSH",
    [FUSE_INIT] = "INIT",
    [FUSE_OPENDIR] = "OPENDIR",
    [FUSE_READDIR] = "READDIR",
    [FUSE_RELEASEDIR] = "RELEASEDIR",
    [FUSE_FSYNCDIR] = "FSYNCDIR",
    [FUSE_GETLK] = "GETLK",
    [FUSE_SETLK] = "SETLK",
    [FUSE_SETLKW] = "SETLKW",
    [FUSE_ACCESS] = "ACCESS",
    [FUSE_CREATE] = "CREATE",
    [FUSE_INTERRUPT] = "INTERRUPT",
    [FUSE_BMAP] = "BMAP",
    [FUSE_DESTROY] = "DESTROY",
    [FUSE_IOCTL] = "IOCTL",
    [FUSE_POLL] = "POLL",
    [FUSE_NOTIFY_REPLY] = "NOTIFY_REPLY",
    [FUSE_BATCH_FORGET] = "BATCH_FORGET",
    [FUSE_FALLOCATE] = "FALLOCATE",
    [FUSE_READDIRPLUS] = "READDIRPLUS",
    [FUSE_RENAME2] = "RENAME2",
    [FUSE_LSEEK] = "LSEEK",
    [FUSE_COPY_FILE_RANGE] = "COPY_FILE_RANGE",
    [50] = "SYNCFS",
    [51] = "TMPFILE",
    [52] = "STATX",
};

const char *kernel_opcode_name(unsigned opcode)
{
    return opcode < KERNEL_OPCODES ? opcode_names[opcode] : NULL;
}

int kernel_serve(struct fuse_session *session, unsigned max_threads)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    if (config == NULL)
        return -ENOMEM;
    fuse_loop_cfg_set_clone_fd(config, 0); /* no gain on few CPUs */
    fuse_loop_cfg_set_max_threads(config, max_threads);
    const int rc = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    return rc > 0 ? 0 : rc; /* positive: ended by a signal */
}
