/*
 * txn/store_map.h - sets of blocks, and the versions that they are collected from; maps built in the background (inside of txn/).
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
    const _Atomic bool *stop; /* once it is true, trees are not walked any further; may be NULL */
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

/* What one version uses of the set's relation: the catalog, or the content of the inode that has the relation there. first: the inode
 * that it was made for. *out_has: the version has it. */
int block_set_add_version(struct block_set *set, struct diag *diag, struct view *view, ino_no first,
                          bool *out_has) WARN_UNUSED;
/* The same for the live view and each holder: store_each_version. */
int block_set_add_versions(struct block_set *set, struct store *store, ino_no first) WARN_UNUSED;
/* Marks the set in the map that is being built. */
int block_set_hand_over(const struct block_set *set) WARN_UNUSED;

/* The root that a relation has in a version. */
int store_map_root(struct view *view, rel_no rel, ino_no first, struct content_root *out_root,
                   bool *out_has) WARN_UNUSED;
/* The inode that the relation was made for, as the view of one that has it now knows. */
int store_map_find_first(struct view *view, rel_no rel, ino_no ino, ino_no *out_first) WARN_UNUSED;
/* MAP-2 */
void store_map_report(struct store *store, const struct relation *relation, int rc);

/* Calls fn for the live view, then for a read-only view of each holder. The gate is held by the caller. Non-zero stops.
 */
typedef int store_version_fn(void *arg, struct view *view);
int store_each_version(struct store *store, store_version_fn *fn, void *arg) WARN_UNUSED;
/* The same for the holders that there are now, each of which is kept meanwhile; no lock held. */
int store_each_kept_version(struct store *store, store_version_fn *fn, void *arg) WARN_UNUSED;

#endif
