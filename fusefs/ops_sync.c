/*
 * fusefs/ops_sync.c - replies that wait for the disk: fsync, and writes through O_SYNC and O_DSYNC.
 *
 *   handler --store_sync_async--> returns; the thread serves the next request
 *                     +--> log thread: one sync for all that wait --> reply
 *
 * So any number of clients may wait for a sync, however few threads serve them, and share it.
 *
 * FUSE-5 The session outlives the replies that wait: sync_replies_wait comes before it is destroyed.
 *
 * Locking: syncs_lock, a leaf, for the count of waiting replies.
 */
#include "fusefs/fusefs_int.h"

#include <stdlib.h>

struct waiting_reply {
    fuse_req_t req;
    size_t written; /* bytes, 0: an fsync */
};

void sync_replies_init(struct fusefs *fs)
{
    mutex_init(&fs->syncs_lock, LOCK_RANK_LEAF);
    condvar_init(&fs->syncs_done);
}

void sync_replies_destroy(struct fusefs *fs)
{
    condvar_destroy(&fs->syncs_done);
    mutex_destroy(&fs->syncs_lock);
}

void sync_replies_wait(struct fusefs *fs)
{
    mutex_lock(&fs->syncs_lock);
    while (fs->syncs_waiting > 0)
        condvar_wait(&fs->syncs_done, &fs->syncs_lock);
    mutex_unlock(&fs->syncs_lock);
}

static void count_waiting(struct fusefs *fs, bool more)
{
    mutex_lock(&fs->syncs_lock);
    fs->syncs_waiting += more ? 1u : -1u;
    if (fs->syncs_waiting == 0)
        condvar_broadcast(&fs->syncs_done);
    mutex_unlock(&fs->syncs_lock);
}

static void reply_now(fuse_req_t req, size_t written, int rc)
{
    if (rc != 0 || written == 0)
        reply_error(req, rc);
    else
        (void)fuse_reply_write(req, written);
}

static void reply_waiting(void *arg, int rc)
{
    struct waiting_reply *reply = arg;
    struct fusefs *fs = fusefs_of(reply->req);
    reply_now(reply->req, reply->written, rc);
    free(reply);
    count_waiting(fs, false);
}

void reply_when_durable(fuse_req_t req, size_t written)
{
    struct fusefs *fs = fusefs_of(req);
    struct waiting_reply *reply = malloc(sizeof *reply);
    bool queued = false;
    if (reply != NULL) {
        *reply = (struct waiting_reply){.req = req, .written = written};
        count_waiting(fs, true);
        queued = store_sync_async(fs->store, reply_waiting, reply) == 0;
        if (!queued)
            count_waiting(fs, false);
    }
    if (!queued) { /* no memory: this thread waits */
        free(reply);
        reply_now(req, written, store_sync(fs->store));
    }
}

void serve_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    (void)ino;
    (void)data_only;
    const int rc = fi->fh != 0 ? handle_check_canceled(handle_of(fi)) : 0;
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_when_durable(req, 0);
}
