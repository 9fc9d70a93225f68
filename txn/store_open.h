/*
 * txn/store_open.h - pieces of opening and making a store (inside of txn/).
 */
#ifndef TBLFS_TXN_STORE_OPEN_H
#define TBLFS_TXN_STORE_OPEN_H

#include "txn/store_int.h"

#define STORE_PATH_SIZE 4200u

int store_open_cache(struct io_device *dev, struct diag *diag, const char *dir, uint64_t cache_size_bytes,
                     uint32_t max_open_files, bool background, struct bufcache **out_cache) WARN_UNUSED;

/* ---- store.c ---- */

/* A store on which an archive was replayed, and that is one of its own now, begins a log. Nobody changes anything yet. */
int store_become_writable(struct store *store, const struct archive_target *archive,
                          uint64_t archive_timeout_ms) WARN_UNUSED;

/* ---- store_cleanup.c ---- */

/* Destroys the inodes that were open without a name when the store was last used, but those that are open now (of a standby that is promoted). */
int store_destroy_orphans(struct store *store) WARN_UNUSED;
/* After an unclean end: removes relation files that no version names. */
int store_remove_unnamed_files(struct store *store) WARN_UNUSED;
/* Removes the file of a relation that no version names. */
int store_remove_file(struct store *store, ts_no ts, rel_no rel) WARN_UNUSED;

#endif
