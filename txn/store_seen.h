/*
 * txn/store_seen.h - what a snapshot of an earlier life saw differently from the live tree (inside of txn/).
 */
#ifndef TBLFS_TXN_STORE_SEEN_H
#define TBLFS_TXN_STORE_SEEN_H

#include "txn/store_jobs.h"

struct seen_table {
    ino_no first; /* inode that the relation was made for */
    rel_no rel;
    ts_no ts;
    bool is_live; /* the live tree has the relation, with another root */
};

struct seen_tables {
    struct seen_table *tables; /* malloc'd */
    size_t count, capacity;
};

/* Lists the tables whose content in the holder's tree is not that of the live tree. What both share is not read. No lock held. */
int store_seen_compare(struct store *store, struct holder *holder, struct seen_tables *out_seen) WARN_UNUSED;
/* Their maps, and the catalog's, are not ready any more. */
void store_seen_doubt(struct store *store, const struct seen_tables *seen);
/* The holder is gone: their maps, and the catalog's, are built anew in the background; files that nobody names any more are removed. */
int store_seen_release(struct store *store, const struct seen_tables *seen, struct store_job *job) WARN_UNUSED;

#endif
