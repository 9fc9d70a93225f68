/*
 * fusefs/ops_compact.c - the request behind `tblfs compact` (fusefs/compact.h), and who serves which request of ours on an open table.
 *
 * Locking: one request on a handle at a time, by `handle->ioctl_busy`; a second one is told so.
 */
#include "fusefs/blocks.h"
#include "fusefs/compact.h"
#include "fusefs/fusefs_int.h"
#include "fusefs/promote.h"
#include "fusefs/standby.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUEST_BYTES (UINT64_C(4) << 20) /* of content that one request copies: some hundredths of a second */

static struct compact_shape shape_of(const struct store_shape *shape)
{
    return (struct compact_shape){.file_blocks = shape->file_blocks,
                                  .leaves = shape->leaves,
                                  .least_leaves = shape->least_leaves,
                                  .runs = shape->runs};
}

void handle_end_compaction(struct handle *handle)
{
    if (handle->compact != NULL)
        store_compact_end(handle->compact);
    handle->compact = NULL;
}

static int begin_if_needed(struct handle *handle)
{
    return handle->compact != NULL ? 0 : store_compact_begin(handle->open->file, &handle->compact);
}

static void fill_info(const struct handle *handle, struct compact_exchange *exchange)
{
    struct store_compact_info info;
    store_compact_get_info(handle->compact, &info);
    exchange->done_bytes = info.done_bytes;
    exchange->total_bytes = info.total_bytes;
    exchange->before = shape_of(&info.before);
    exchange->after = shape_of(&info.after);
    memcpy(exchange->transaction, info.transaction, sizeof exchange->transaction);
}

/* The table's blocks are others: the kernel knows how many there were. */
static void forget_block_count(struct fusefs *fs, const struct handle *handle)
{
    (void)fuse_lowlevel_notify_inval_inode(fs->session, handle->node_id, -1, 0);
}

static void go_on(struct fusefs *fs, struct handle *handle, struct compact_exchange *exchange)
{
    static_assert(sizeof exchange->transaction == sizeof((struct store_compact_info *)NULL)->transaction, "one size");
    const bool begins = handle->compact == NULL;
    int rc = begin_if_needed(handle);
    if (rc == 0) {
        fill_info(handle, exchange);
        const struct compact_shape *lies = &exchange->before;
        const struct store_shape shape = {
            .leaves = lies->leaves, .least_leaves = lies->least_leaves, .runs = lies->runs};
        if (begins && exchange->always == 0 && store_shape_is_orderly(&shape)) {
            exchange->state = COMPACT_NOT_NEEDED;
            handle_end_compaction(handle);
            return;
        }
        rc = store_compact_step(handle->compact, REQUEST_BYTES);
        fill_info(handle, exchange);
    }
    exchange->state = rc == 1 ? COMPACT_GOES_ON : rc == 0 ? COMPACT_DONE : COMPACT_FAILED;
    exchange->error = rc < 0 ? rc : 0;
    if (rc != 1)
        handle_end_compaction(handle);
    if (rc == 0)
        forget_block_count(fs, handle);
}

static int check_handle(const struct handle *handle)
{
    if (!node_tree_is(handle->open->tree, NODE_TREE_LIVE))
        return -EINVAL;
    return handle->writes ? 0 : -EBADF;
}

static int serve_compaction(struct fusefs *fs, struct handle *handle, const void *in, void *out)
{
    struct compact_exchange *exchange = out;
    const int rc = check_handle(handle);
    if (rc == 0) {
        exchange->always = ((const struct compact_exchange *)in)->always;
        go_on(fs, handle, exchange);
    }
    return rc;
}

/* ---- promoting a standby ---- */

static int serve_promotion(struct fusefs *fs, struct handle *handle, const void *in, void *out)
{
    struct promote_exchange *exchange = out;
    (void)handle;
    (void)in;
    exchange->error = mount_standby_promote(fs);
    return 0;
}

/* ---- all requests ---- */

static const struct request {
    unsigned command;
    size_t size; /* of what is asked and answered */
    int (*serve)(struct fusefs *fs, struct handle *handle, const void *in, void *out); /* out: zeros, to be filled */
    bool of_mount; /* on a system table, by root and who mounted it; else on a table */
} requests[] = {{COMPACT_IOCTL, sizeof(struct compact_exchange), serve_compaction, false},
                {BLOCKS_IOCTL, sizeof(struct blocks_exchange), serve_blocks, false},
                {PROMOTE_IOCTL, sizeof(struct promote_exchange), serve_promotion, true}};

static const struct request *find_request(unsigned command, size_t in_size, size_t out_size)
{
    for (size_t i = 0; i < ARRAY_COUNT(requests); i++) {
        if (requests[i].command == command && requests[i].size == in_size && requests[i].size == out_size)
            return &requests[i];
    }
    return NULL;
}

/* The answer goes out when the handle is free for the next request. */
static void serve_request(fuse_req_t req, const struct request *request, struct handle *handle, const void *in)
{
    void *out = calloc(1, request->size);
    int rc = out == NULL ? -ENOMEM : atomic_exchange(&handle->ioctl_busy, true) ? -EALREADY : 0;
    if (rc == 0) {
        rc = request->serve(fusefs_of(req), handle, in, out);
        atomic_store(&handle->ioctl_busy, false);
    }
    if (rc != 0)
        reply_error(req, rc);
    else
        (void)fuse_reply_ioctl(req, 0, out, request->size);
    free(out);
}

void serve_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *arg, struct fuse_file_info *fi, unsigned flags,
                 const void *in, size_t in_size, size_t out_size)
{
    (void)ino;
    (void)arg;
    const struct request *request = (flags & FUSE_IOCTL_DIR) == 0 ? find_request(command, in_size, out_size) : NULL;
    struct handle *handle = request != NULL ? handle_of(fi) : NULL;
    const uid_t uid = fuse_req_ctx(req)->uid;
    if (handle == NULL || (handle->open == NULL) != request->of_mount)
        reply_error(req, -ENOTTY);
    else if (request->of_mount && uid != 0 && uid != geteuid())
        reply_error(req, -EPERM);
    else
        serve_request(req, request, handle, in);
}
