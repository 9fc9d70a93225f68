/*
 * base/io.c - whole transfers over an io_device that may transfer less.
 *
 * A device, like the system calls below it, may read or write less than it was asked to, be interrupted, or refuse more
 * than IOV_MAX pieces at once. Nobody else in the program deals with that.
 *
 * Locking: none; the calls are as thread-safe as the device.
 */
#include "base/io.h"

#include <assert.h>
#include <errno.h>

/* IOV_MAX of Linux; limits.h hides it from strict programs. */
#define PIECES_MAX 1024

/* Steps over done_bytes and over pieces that are used up. */
static void skip_done(struct iovec **iov, int *iov_count, size_t done_bytes)
{
    while (*iov_count > 0 && done_bytes >= (*iov)->iov_len) {
        done_bytes -= (*iov)->iov_len;
        (*iov)++;
        (*iov_count)--;
    }
    if (done_bytes == 0)
        return;
    assert(*iov_count > 0);
    (*iov)->iov_base = (char *)(*iov)->iov_base + done_bytes;
    (*iov)->iov_len -= done_bytes;
}

static int pieces_at_once(int iov_count)
{
    return iov_count < PIECES_MAX ? iov_count : PIECES_MAX;
}

int io_readv_full(struct io_file *file, struct iovec *iov, int iov_count, uint64_t offset_bytes, size_t *out_read)
{
    size_t total = 0;
    skip_done(&iov, &iov_count, 0);
    while (iov_count > 0) {
        const ssize_t got = file->dev->ops->preadv(file, iov, pieces_at_once(iov_count), offset_bytes + total);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return (int)got;
        if (got == 0)
            break;
        total += (size_t)got;
        skip_done(&iov, &iov_count, (size_t)got);
    }
    *out_read = total;
    return 0;
}

int io_writev_full(struct io_file *file, struct iovec *iov, int iov_count, uint64_t offset_bytes)
{
    skip_done(&iov, &iov_count, 0);
    while (iov_count > 0) {
        const ssize_t put = file->dev->ops->pwritev(file, iov, pieces_at_once(iov_count), offset_bytes);
        if (put == -EINTR)
            continue;
        if (put < 0)
            return (int)put;
        if (put == 0)
            return -EIO;
        offset_bytes += (size_t)put;
        skip_done(&iov, &iov_count, (size_t)put);
    }
    return 0;
}

int io_read_full(struct io_file *file, void *bytes, size_t size_bytes, uint64_t offset_bytes, size_t *out_read)
{
    struct iovec piece = {.iov_base = bytes, .iov_len = size_bytes};
    return io_readv_full(file, &piece, 1, offset_bytes, out_read);
}

int io_write_full(struct io_file *file, const void *bytes, size_t size_bytes, uint64_t offset_bytes)
{
    /* The device only reads through it; struct iovec has no const. */
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size_bytes};
    return io_writev_full(file, &piece, 1, offset_bytes);
}
