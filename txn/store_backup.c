/*
 * txn/store_backup.c - keeps one durable checkpoint while it is copied (txn/base.h).
 *
 * BACKUP-1 A holder of its own is forked with the checkpoint, under the same hold of the gate: nothing that the checkpoint reaches is freed or
 *          removed while it is open.
 * BACKUP-2 The snapshots that the checkpoint names are kept open too: one that is dropped meanwhile closes later.
 *
 * Locking: begin holds checkpoint_lock, so no later checkpoint is durable before the snapshots are kept.
 */
#include "txn/base.h"
#include "txn/store_txn.h"

#include <errno.h>
#include <stdlib.h>

struct store_backup {
    struct store *store;
    struct holder *holder; /* NULL: the store is read-only, nothing changes */
    struct store_snapshot **snapshots;
    size_t snapshot_count;
    struct base_header header;
};

static void fill_header(struct store_backup *backup)
{
    struct store *store = backup->store;
    mutex_lock(&store->control_lock);
    backup->header.control = store->control;
    mutex_unlock(&store->control_lock);
    backup->header.segment_size = store->log_segment_size != 0 ? store->log_segment_size : LOG_SEGMENT_SIZE;
    backup->header.archived = store->archive != NULL;
    backup->header.taken_ns = store->read_only ? store->control.written_ns : store->durable_time_ns;
}

int store_backup_begin(struct store *store, struct store_backup **out_backup)
{
    if (atomic_load(&store->following)) {
        diag_log(store->diag, DIAG_ERROR, "%s: a standby: bases are taken of its primary", store->dir);
        return -EROFS;
    }
    struct store_backup *backup = calloc(1, sizeof *backup);
    if (backup == NULL) {
        return -ENOMEM;
    }
    backup->store = store;
    lock_assert_none_held();
    mutex_lock(&store->checkpoint_lock);
    int rc = store->read_only ? 0 : store_checkpoint_held(store, &backup->holder);
    if (rc == 0) {
        rc = store_snapshots_keep(store, &backup->snapshots, &backup->snapshot_count);
        fill_header(backup);
    }
    mutex_unlock(&store->checkpoint_lock);
    if (rc != 0) {
        store_backup_end(backup);
        return rc;
    }
    *out_backup = backup;
    return 0;
}

void store_backup_end(struct store_backup *backup)
{
    if (backup == NULL) {
        return;
    }
    for (size_t i = 0; i < backup->snapshot_count; i++) {
        store_snapshot_put(backup->snapshots[i]);
    }
    if (backup->holder != NULL) {
        cow_holder_close(backup->store->cow, backup->holder);
    }
    free(backup->snapshots);
    free(backup);
}

const struct base_header *store_backup_header(const struct store_backup *backup)
{
    return &backup->header;
}
