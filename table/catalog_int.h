/*
 * table/catalog_int.h - inside of the catalog: pages as arrays of items, ranges of keys, one step of a descent.
 *
 * catalog_page.c    items and entries of one page; validators
 * catalog.c         get, scan, visit, check
 * catalog_batch.c   edits of a batch, reads through them
 * catalog_plan.c    plan: which pages a batch touches, and what it may need
 * catalog_apply.c   apply: the changes themselves
 * run.c             items that share a hash (names, attributes, back entries)
 *
 * Everything here takes valid pages: page_read has validated what came from disk (catalog_validate_leaf and _inner),
 * and what these functions make is valid. So page functions assert their arguments, never the page.
 */
#ifndef TBLFS_TABLE_CATALOG_INT_H
#define TBLFS_TABLE_CATALOG_INT_H

#include "table/catalog.h"

#include <assert.h>

/* ---- keys ---- */

static inline struct catalog_key catalog_key_get(const struct disk_catalog_key *disk)
{
    return (struct catalog_key){.ino = le64_get(disk->ino), .sub = le64_get(disk->sub), .type = disk->type};
}

static inline struct disk_catalog_key catalog_key_of(const struct catalog_key *key)
{
    return (struct disk_catalog_key){.ino = le64_of(key->ino), .sub = le64_of(key->sub), .type = key->type};
}

/* Keys that a page may hold: low <= key < high; at the root and along the right edge a bound is missing. */
struct catalog_range {
    struct catalog_key low, high;
    bool has_low, has_high;
};

/* ---- pages ---- */

static inline unsigned catalog_page_count(const void *page)
{
    return le16_get(((const struct page_header *)page)->count);
}

static inline uint32_t catalog_page_used(const void *page)
{
    return le16_get(((const struct page_header *)page)->used);
}

#define CATALOG_ITEM_BYTES(value_size) ((uint32_t)sizeof(struct catalog_item_head) + (uint32_t)(value_size))

struct catalog_key catalog_page_first_key(const void *page); /* leaf or inner, not empty */
struct catalog_key catalog_page_last_key(const void *page);

struct catalog_key catalog_leaf_key(const void *page, unsigned index);
const uint8_t *catalog_leaf_value(const void *page, unsigned index, uint16_t *out_size);
/* True: the item is there, *out_index is its index. False: *out_index is where it would be inserted. */
bool catalog_leaf_find(const void *page, const struct catalog_key *key, unsigned *out_index);
/* The item must fit. */
void catalog_leaf_insert(void *page, unsigned index, const struct catalog_key *key, const void *value, uint16_t size);
void catalog_leaf_remove(void *page, unsigned index);
/* The value has the size that the old one has. */
void catalog_leaf_overwrite(void *page, unsigned index, const void *value, uint16_t size);
/* Copies items [first, count) of `from` to the end of `to`, where they must fit. */
void catalog_leaf_append(void *to, const void *from, unsigned first);
/* Removes items [count, ...). */
void catalog_leaf_truncate(void *page, unsigned count);

struct catalog_key catalog_inner_key(const void *page, unsigned index);
struct page_ptr catalog_inner_ptr(const void *page, unsigned index);
/* Index of the entry that covers the key. */
unsigned catalog_inner_find(const void *page, const struct catalog_key *key);
/* Adds an entry at the end. */
void catalog_inner_append(void *page, const struct catalog_key *key, struct page_ptr ptr);
void catalog_inner_clear(void *page);

/* Less than a third full (with `used` bytes or `count` entries): to be merged with a neighbour when both fit into one
 * page. */
static inline bool catalog_leaf_is_small(uint64_t used)
{
    return used < PAGE_PAYLOAD_SIZE / 3;
}
static inline bool catalog_inner_is_small(unsigned count)
{
    return count < CATALOG_FANOUT / 3;
}

/* Range of the child at index, within the range of the page itself. */
struct catalog_range catalog_inner_child_range(const void *page, unsigned index, const struct catalog_range *range);

/* What is wrong with an item, as a text, or NULL when it is plausible. */
const char *catalog_item_fault(const struct catalog_key *key, const void *value, size_t value_size);
/* What is wrong with a file name, or NULL. */
const char *catalog_name_fault(const void *name, size_t name_size);

/* ---- descent ---- */

#define CATALOG_RELATION_NAME_SIZE 40u
void catalog_relation_name(const struct relation *relation, char name[CATALOG_RELATION_NAME_SIZE]);

/* page_read of the page at `level`, and that its keys are in range. -EIO after a report. */
int catalog_page_read(struct diag *diag, struct relation *relation, struct page_ptr ptr, uint8_t level,
                      const struct catalog_range *range, struct frame **out_frame) WARN_UNUSED;

struct diag *catalog_view_diag(const struct view *view);

/* ---- edits ---- */

/* The batch's edits in key order, first <= key <= last. malloc'd. -ENOMEM. */
int catalog_batch_sorted(const struct catalog_batch *batch, const struct catalog_key *first,
                         const struct catalog_key *last, struct catalog_edit ***out_edits,
                         unsigned *out_count) WARN_UNUSED;

/* ---- items that share a hash: sub = hash << 16 | tie (run.c) ---- */

#define RUN_TIES 65536u

static inline uint64_t run_first_sub(uint64_t hash)
{
    return hash << 16;
}

/* Where to read: through a batch, or (batch NULL) in a view. */
struct run_reader {
    struct view *view;
    struct catalog_batch *batch;
};

typedef bool run_match_fn(const void *arg, const void *value, size_t value_size);

struct run_search {
    /* in */
    ino_no ino;
    uint8_t type;
    uint64_t hash;
    run_match_fn *match;
    const void *match_arg;
    /* out */
    bool found;
    uint64_t found_sub;
    size_t value_size;
    uint8_t value[CATALOG_MAX_VALUE_SIZE]; /* of the item found */
    uint32_t lowest_free_tie;              /* RUN_TIES: none; only when nothing was found */
};

/* Reads the run of items with search->hash until one matches. */
int run_find(const struct run_reader *reader, struct run_search *search) WARN_UNUSED;
/* catalog_scan or catalog_batch_scan. */
int run_scan(const struct run_reader *reader, const struct catalog_key *first, const struct catalog_key *last,
             catalog_item_fn *fn, void *arg) WARN_UNUSED;

/* ---- the plan of a batch ---- */

enum plan_state {
    PLAN_ABSENT,    /* stands for the root of an empty tree: no page yet */
    PLAN_UNTOUCHED, /* pinned */
    PLAN_LATCHED,   /* pinned, latched: changed in place */
    PLAN_FRESH,     /* made by this batch: pinned and latched */
    PLAN_GONE,      /* no longer in the tree */
};

/* One page of the tree that a batch touches or may touch. */
struct plan_page {
    struct frame *frame; /* NULL: none, or given back */
    struct page_ptr ptr;
    struct catalog_key low; /* for its entry in the parent: <= every key below it */
    enum plan_state state;
    uint8_t level;
    bool rightmost;                  /* on the right edge of the tree */
    bool may_shrink;                 /* may become small enough to be merged, or vanish */
    bool latch_held;                 /* frame is latched (also when GONE) */
    unsigned entry;                  /* index in the parent's page as planned */
    unsigned first_edit, edit_count; /* leaf: of plan->edits; inner: 0 of a neighbour that is only pinned */
    uint32_t extra_pages;            /* bound on the pages it may be split into, beyond the first */
    struct plan_page *children;      /* inner: pinned pages below it, in order */
    struct plan_page *next;          /* the next pinned page with the same parent */
    struct plan_page *split_next;    /* the page that was split off to the right */
};

struct plan_slot {
    struct catalog_key key;
    struct page_ptr ptr;
    struct plan_page *page; /* NULL: not pinned */
};

struct catalog_plan {
    struct catalog_batch *batch;
    struct frame_budget *budget;
    struct catalog_edit **edits; /* sorted */
    unsigned edit_count;
    struct plan_page *root;  /* NULL: nothing to do */
    struct plan_page *pages; /* planned pages; fixed capacity, so that pointers stay good */
    uint32_t page_count, page_capacity;
    struct plan_page *fresh; /* pages made by splits */
    uint32_t fresh_count, fresh_capacity;
    struct plan_slot *slots; /* entries of the inner page that is being written */
    uint32_t slot_capacity;
    uint32_t pinned;          /* pages pinned, against budget->pins */
    uint32_t neighbour_count; /* of them pinned for a merge only */
    uint32_t blocks_promised, blocks_taken;
    struct retire_list retired;
};

void catalog_plan_free(struct catalog_plan *plan);

#endif
