/*
 * txn/store_map.h - sets of blocks, and the versions that they are collected from (inside of txn/).
 */
#ifndef TBLFS_TXN_STORE_MAP_H
#define TBLFS_TXN_STORE_MAP_H

#include "txn/store_int.h"

#define STORE_MAX_HOLDERS 4096u

/* One bit for each block of a relation's file. */
struct block_set {
    struct relation *relation;
    block_no blocks;
    uint64_t *bits;
};

int block_set_init(struct block_set *set,
                   struct relation *relation) WARN_UNUSED; /* empty; free it also after an error */
void block_set_free(struct block_set *set);
bool block_set_has(const struct block_set *set, block_no block);
int block_set_add_run(struct block_set *set, block_no first,
                      uint32_t count) WARN_UNUSED; /* -EIO beyond the file's end */
int block_set_add_content(struct block_set *set, struct diag *diag, const struct content_root *root) WARN_UNUSED;
int block_set_add_catalog(struct block_set *set, struct diag *diag, const struct catalog_root *root) WARN_UNUSED;
int block_set_add_pinned(struct block_set *set, struct cow *cow) WARN_UNUSED;

/* Calls fn for the live view, then for a read-only view of each holder. The gate is held by the caller. Non-zero stops.
 */
typedef int store_version_fn(void *arg, struct view *view);
int store_each_version(struct store *store, store_version_fn *fn, void *arg) WARN_UNUSED;

#endif
