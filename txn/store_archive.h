/*
 * txn/store_archive.h - the archive of a store's log (inside of txn/).
 */
#ifndef TBLFS_TXN_STORE_ARCHIVE_H
#define TBLFS_TXN_STORE_ARCHIVE_H

#include "txn/store_int.h"

#define ARCHIVE_PERIOD_MS 200u

/* Before the new log is opened: which segments of earlier lives are to be archived? */
int store_archive_open(struct store *store, const struct archive_target *target, uint64_t timeout_ms) WARN_UNUSED;
/* Behind it: nothing of it is recycled before it is archived. */
void store_archive_begin(struct store *store);
void store_archive_free(struct store *store);
/* A log_keep_fn; arg: the store. */
bool store_archive_wants(void *store_void, uint64_t number);
/* Those of earlier lives that are still to be archived. */
int store_archive_each_old(struct store *store, store_segment_fn *fn, void *arg) WARN_UNUSED;
/* One round: archives what is finished. Failures are noted, and tried again later. */
void store_archive_step(struct store *store);
void *store_archive_thread(void *store_void);
/* At a clean close, behind the last checkpoint: the log ends here. */
void store_archive_finish(struct store *store);

#endif
