/*
 * txn/store_reserve.c - space set aside so that a full disk can always be emptied: the file DIR/reserve.
 *
 *      held --store_reserve_release: an operation that frees finds no room--> spent
 *       ^                                                                       |
 *       +--store_reserve_restore: behind a checkpoint, before other operations--+
 *
 * RESERVE-1 While it is spent, only operations that free something run (unlink, truncate, ...), and what serves them: the
 *           log, checkpoints. All others answer ENOSPC, so that they cannot use it up.
 * RESERVE-2 It is as large as a segment of the log and the pages that one removal replaces: that is what a removal may have
 *           to make, and a checkpoint behind it frees what it replaced. So a store can also be opened, and its log be
 *           replayed, on a full disk.
 *
 * Nothing is ever written into the file; losing it in a power cut costs nothing, since the next start makes it again.
 *
 * Locking: reserve_lock (LOCK_RANK_RESERVE), held over allocating and truncating.
 */
#include "txn/store_int.h"

#include "txn/log_format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RESERVE_PATH_SIZE 4200u
#define PAGE_BLOCKS       64u

static uint64_t reserve_size(const struct store *store)
{
    const uint64_t segment_size = store->log_segment_size != 0 ? store->log_segment_size : LOG_SEGMENT_SIZE;
    return segment_size + (uint64_t)PAGE_BLOCKS * BLOCK_SIZE;
}

static int allocate_locked(struct store *store)
{
    if (atomic_load(&store->reserve_held)) {
        return 0;
    }
    const int rc = io_allocate(store->reserve_file, 0, reserve_size(store));
    if (rc != 0) {
        const int truncate_rc = io_truncate(store->reserve_file, 0); /* a part of it is of more use to what needs it */
        (void)truncate_rc;                                           /* the first error counts */
    }
    atomic_store(&store->reserve_held, rc == 0);
    return rc;
}

int store_reserve_open(struct store *store)
{
    char path[RESERVE_PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/reserve", store->dir);
    int rc = io_open(store->dev, path, IO_READ_WRITE | IO_CREATE, &store->reserve_file);
    if (rc == 0) {
        mutex_lock(&store->reserve_lock);
        rc = allocate_locked(store);
        mutex_unlock(&store->reserve_lock);
    }
    return rc == -ENOSPC ? 0 : rc; /* spent, for now */
}

int store_reserve_close(struct store *store)
{
    struct io_file *file = store->reserve_file;
    store->reserve_file = NULL;
    return file != NULL ? io_close(file) : 0;
}

void store_reserve_release(struct store *store)
{
    mutex_lock(&store->reserve_lock);
    if (atomic_load(&store->reserve_held)) {
        const int rc = io_truncate(store->reserve_file, 0);
        atomic_store(&store->reserve_held, rc != 0);
        diag_log(store->diag, DIAG_WARNING, "%s: the disk is full: the reserve is used until there is room again%s%s",
                 store->dir, rc != 0 ? ": " : "", rc != 0 ? strerror(-rc) : "");
    }
    mutex_unlock(&store->reserve_lock);
}

int store_reserve_restore(struct store *store)
{
    if (atomic_load(&store->reserve_held)) {
        return 0;
    }
    mutex_lock(&store->reserve_lock);
    int rc = allocate_locked(store);
    if (rc == -ENOSPC && store->log != NULL && log_drop_spare(store->log) == 0) {
        rc = allocate_locked(store);
    }
    if (rc == 0) {
        diag_log(store->diag, DIAG_WARNING, "%s: there is room again", store->dir);
    }
    mutex_unlock(&store->reserve_lock);
    return rc;
}

static bool frees(enum op_type type)
{
    switch (type) {
    case OP_UNLINK:
    case OP_RMDIR:
    case OP_RESIZE:
    case OP_PUNCH:
    case OP_REMOVEXATTR:
    case OP_DESTROY:
    case OP_SNAPSHOT_DROP:
    case OP_TABLESPACE_DROP:
        return true;
    default:
        return false;
    }
}

bool store_reserve_may_use(const struct store *store, enum op_type type)
{
    return store->recovering || frees(type);
}

int store_reserve_check(struct store *store, enum op_type type)
{
    if (store_reserve_may_use(store, type) || store->log == NULL) {
        return 0;
    }
    const int rc = store_reserve_restore(store);
    return rc != 0 ? -ENOSPC : 0;
}
