/*
 * table/catalog.h - the catalog: a B+tree of small items in relation REL_CATALOG, copy on write, one root per view.
 *
 * Changes go through a batch: collect puts and deletes (reading through the batch sees them), plan (pins every page
 * that will be touched, promises blocks and frames; may fail), apply (cannot fail).
 *
 * Locking: get and scan need the view's catalog_lock, shared is enough; a batch needs it exclusively from plan to apply,
 * under the gate (a fork in between would let a checkpoint meet pages that are latched).
 *
 * CATALOG-1 Keys ascend strictly within a page and across pages; an inner entry's key is <= every key below it and >
 *           every key before.
 * CATALOG-2 No page is empty (an empty tree has no page). A root with a single entry gives way to the page below it in
 *           the batch that makes it so, and that one too if the batch had it pinned.
 */
#ifndef TBLFS_TABLE_CATALOG_H
#define TBLFS_TABLE_CATALOG_H

#include "table/catalog_format.h"
#include "table/cow.h"

struct catalog_key {
    ino_no ino;
    uint64_t sub;
    uint8_t type; /* enum item_type */
};

/* Pages that a reader (get, scan, find, check, visit) has pinned at a time, at most. */
#define CATALOG_READER_PINS CATALOG_MAX_HEIGHT

int catalog_key_compare(const struct catalog_key *a, const struct catalog_key *b); /* <0, 0, >0 */

/* Copies the value of an item into buffer. -ENOENT: no such item; -ENOBUFS: larger than capacity. */
int catalog_get(struct view *view, const struct catalog_key *key, void *buffer, size_t capacity,
                size_t *out_size) WARN_UNUSED;

/* Visits items with first <= key <= last in order. fn gets a value that is valid during the call; a non-zero return
 * stops and is handed on. */
typedef int catalog_item_fn(void *arg, const struct catalog_key *key, const void *value, size_t value_size);
int catalog_scan(struct view *view, const struct catalog_key *first, const struct catalog_key *last,
                 catalog_item_fn *fn, void *arg) WARN_UNUSED;

struct catalog_edit {
    struct catalog_key key;
    bool remove;
    uint16_t value_size;
    uint8_t *value; /* malloc'd, owned by the batch */
};

struct catalog_batch {
    struct view *view;
    struct catalog_edit *edits; /* one per key, in order of first mention */
    unsigned count, capacity;
    uint32_t *index; /* hash index over edits, once there are many */
    uint32_t index_size;
    struct catalog_plan *plan; /* pinned pages, promised blocks; NULL before plan and after apply */
};

void catalog_batch_init(struct catalog_batch *batch, struct view *view);
/* Frees everything the batch holds; undoes a plan that was not applied. */
void catalog_batch_free(struct catalog_batch *batch);
/* The item exists with this value after the batch. A second edit of a key replaces the first. -ENOMEM; -E2BIG: value
 * too large; -EINVAL: it would not pass the check of a page that holds it (catalog_format.h). */
int catalog_batch_put(struct catalog_batch *batch, const struct catalog_key *key, const void *value,
                      size_t value_size) WARN_UNUSED;
/* The item does not exist after the batch (it need not exist before). */
int catalog_batch_remove(struct catalog_batch *batch, const struct catalog_key *key) WARN_UNUSED;
/* catalog_get that sees the batch's edits. */
int catalog_batch_get(struct catalog_batch *batch, const struct catalog_key *key, void *buffer, size_t capacity,
                      size_t *out_size) WARN_UNUSED;
/* catalog_scan that sees the batch's edits (an edited key is reported with its new value or not at all). */
int catalog_batch_scan(struct catalog_batch *batch, const struct catalog_key *first, const struct catalog_key *last,
                       catalog_item_fn *fn, void *arg) WARN_UNUSED;

/* Frames for a batch of `edits`, for frame_budget_take: the worst case of a tree of height 4 (8 million leaves, 64 GB).
 * Higher trees hardly ever need more; then plan says so. 10 * edits + 4 in all. */
void catalog_frames_needed(unsigned edits, uint32_t *out_pins, uint32_t *out_news);

/* The batch's view must be writable (-EROFS). Pins what apply will touch and promises what it may allocate; changes
 * nothing. The budget must outlive the plan. -E2BIG: the budget is smaller than needed (never with
 * catalog_frames_needed(batch->count) while the tree's height is at most 4): take one for twice the edits and try
 * again. -EIO, -ENOSPC, -ENOMEM; -EFBIG: higher than CATALOG_MAX_HEIGHT. Nothing may be added to the batch between plan
 * and apply. */
int catalog_batch_plan(struct catalog_batch *batch, struct frame_budget *budget) WARN_UNUSED;
/* Changes view->root and its pages; retires what leaves. Cannot fail. The edits stay in the batch until
 * catalog_batch_free. */
void catalog_batch_apply(struct catalog_batch *batch);

/* As content_visit, for the catalog tree. */
int catalog_visit(struct relation *catalog, const struct catalog_root *root,
                  bool (*skip)(void *arg, struct page_ptr ptr),
                  int (*fn)(void *arg, struct page_ptr ptr, uint8_t level), void *arg) WARN_UNUSED;

/* Calls fn for the items of all leaves but those for which skip says yes, or that stand below such a page: what a tree does not share with
 * another one. As visit, it takes no lock. */
int catalog_scan_unshared(struct diag *diag, struct relation *catalog, const struct catalog_root *root,
                          bool (*skip)(void *arg, struct page_ptr ptr), catalog_item_fn *fn, void *arg) WARN_UNUSED;

/* Reads the whole tree and checks CATALOG-1 and CATALOG-2. 0 or -EIO after diag_damage. *out_items may be NULL. */
int catalog_check(struct diag *diag, struct relation *catalog, const struct catalog_root *root,
                  uint64_t *out_items) WARN_UNUSED;

int catalog_validate_leaf(struct diag *diag, const char *file, const void *page);
int catalog_validate_inner(struct diag *diag, const char *file, const void *page);

/* ---- typed items (table/inode.c, table/dirent.c) ---- */

struct inode {
    ino_no ino;
    uint32_t mode, nlink, uid, gid, rdev;
    ts_no ts;
    int64_t atime_ns, mtime_ns, ctime_ns;
    rel_no rel;
    epoch_no rel_created;
    struct page_ptr content_ptr;
    uint8_t content_height;
    uint8_t flags; /* INODE_DAMAGED, INODE_RENUMBERED */
    uint32_t content_leaves;
    uint64_t size_bytes; /* content_bytes */
    epoch_no change_epoch, rewrite_epoch, attr_epoch;
    ino_no parent; /* where its first name is: directory and sub of the entry there */
    uint64_t name_cookie;
};

int inode_get(struct view *view, ino_no ino, struct inode *out_inode) WARN_UNUSED; /* -ENOENT */
int inode_batch_get(struct catalog_batch *batch, ino_no ino, struct inode *out_inode) WARN_UNUSED;
/* -EINVAL: an inode that reading would call damaged: mode without its S_IFMT bits, height and content_ptr that do not
 * agree (no content: PAGE_PTR_NONE and 0), content without a relation. */
int inode_batch_put(struct catalog_batch *batch, const struct inode *inode) WARN_UNUSED;
int inode_batch_remove(struct catalog_batch *batch, ino_no ino) WARN_UNUSED;
int inode_decode(const struct catalog_key *key, const void *value, size_t value_size,
                 struct inode *out_inode) WARN_UNUSED; /* -EIO */

/* How names are hashed: key of the store and number of bits (47; 4 to provoke collisions in tests). */
struct name_hash {
    uint64_t seed;
    uint8_t bits;
};
uint64_t name_hash_of(const struct name_hash *hash, const void *bytes, size_t size); /* 1 to 2^47 - 1 */

struct dirent_found {
    ino_no ino;
    uint8_t kind;    /* mode >> 12 */
    uint64_t cookie; /* the item's sub */
};
/* -ENOENT; -ENAMETOOLONG over 255 bytes. */
int dirent_find(struct view *view, const struct name_hash *hash, ino_no parent, const char *name, size_t name_size,
                struct dirent_found *out_found) WARN_UNUSED;
int dirent_batch_find(struct catalog_batch *batch, const struct name_hash *hash, ino_no parent, const char *name,
                      size_t name_size, struct dirent_found *out_found) WARN_UNUSED;
/* A free cookie for a new name (the name must not exist): -ENOSPC when all 65,536 for that hash are taken. */
int dirent_batch_new_cookie(struct catalog_batch *batch, const struct name_hash *hash, ino_no parent, const char *name,
                            size_t name_size, uint64_t *out_cookie) WARN_UNUSED;
int dirent_batch_put(struct catalog_batch *batch, ino_no parent, uint64_t cookie, const char *name, size_t name_size,
                     ino_no ino, uint8_t kind) WARN_UNUSED;
int dirent_batch_remove(struct catalog_batch *batch, ino_no parent, uint64_t cookie) WARN_UNUSED;
/* Entries with cookie > after, in cookie order. */
typedef int dirent_fn(void *arg, uint64_t cookie, const char *name, size_t name_size, ino_no ino, uint8_t kind);
int dirent_scan(struct view *view, ino_no parent, uint64_t after, dirent_fn *fn, void *arg) WARN_UNUSED;

/* Who has a relation, where that is not the inode that it was made for (table/owner.c). -ENOENT: it is. */
struct relation_owner {
    ino_no owner, first;
};
int owner_get(struct view *view, rel_no rel, struct relation_owner *out_owner) WARN_UNUSED;
int owner_batch_get(struct catalog_batch *batch, rel_no rel, struct relation_owner *out_owner) WARN_UNUSED;
int owner_batch_put(struct catalog_batch *batch, rel_no rel, const struct relation_owner *owner) WARN_UNUSED;
int owner_batch_remove(struct catalog_batch *batch, rel_no rel) WARN_UNUSED;

/* -ENOENT: none; -ENOBUFS: larger than capacity. The target is not terminated. remove: size as it was put. */
int symlink_get(struct view *view, ino_no ino, char *buffer, size_t capacity, size_t *out_size) WARN_UNUSED;
int symlink_batch_put(struct catalog_batch *batch, ino_no ino, const char *target, size_t size) WARN_UNUSED;
int symlink_batch_remove(struct catalog_batch *batch, ino_no ino, size_t size) WARN_UNUSED;

/* -ENODATA: no such attribute; -ERANGE: larger than capacity; capacity 0: only the size. */
int xattr_get(struct view *view, const struct name_hash *hash, ino_no ino, const char *name, void *buffer,
              size_t capacity, size_t *out_size) WARN_UNUSED;
/* must_exist / must_not_exist as XATTR_REPLACE / XATTR_CREATE: -ENODATA / -EEXIST. -ENOSPC: value over XATTR_MAX_VALUE;
 * -ERANGE: name empty or over 255 bytes. *inout_cookie: the item's sub, for the log record; in: 0 choose, else use this
 * one (and must_exist, must_not_exist are not looked at). */
int xattr_batch_put(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino, const char *name,
                    const void *value, size_t value_size, bool must_exist, bool must_not_exist,
                    uint64_t *inout_cookie) WARN_UNUSED;
int xattr_batch_remove(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino,
                       const char *name) WARN_UNUSED;
typedef int xattr_fn(void *arg, uint64_t cookie, const char *name, size_t name_size, const void *value,
                     size_t value_size);
int xattr_scan(struct view *view, ino_no ino, xattr_fn *fn, void *arg) WARN_UNUSED;

/* Back entries (inode, parent, cookie; putting one twice is fine): one for every name of an inode beside its first one,
 * which the inode itself names. The value is a struct disk_back; the sub is name_hash_of(parent and cookie as 16
 * little-endian bytes) << 16 | tie. */
int back_batch_put(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino, ino_no parent,
                   uint64_t cookie) WARN_UNUSED;
int back_batch_remove(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino, ino_no parent,
                      uint64_t cookie) WARN_UNUSED; /* -ENOENT */
typedef int back_fn(void *arg, ino_no parent, uint64_t cookie);
int back_batch_scan(struct catalog_batch *batch, ino_no ino, back_fn *fn, void *arg) WARN_UNUSED;

#endif
