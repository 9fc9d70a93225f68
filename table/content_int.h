/*
 * table/content_int.h - inside of the content tree: nodes in memory, walking, and what a plan consists of.
 *
 * A level is that of a page: leaf 0. An entry of level n points to a page of level n or is a hole, and stands in a node
 * of level n + 1. The root is an entry of level height - 1.
 */
#ifndef TBLFS_TABLE_CONTENT_INT_H
#define TBLFS_TABLE_CONTENT_INT_H

#include "table/content.h"

/* The tree that is being read, and where damage is reported (diag may be NULL). */
struct content_tree {
    struct relation *relation;
    struct diag *diag;
};

/* struct content_entry in memory. */
struct tree_entry {
    struct page_ptr ptr;
    uint64_t bytes;
};

static inline bool entry_is_hole(const struct tree_entry *entry)
{
    return page_ptr_is_none(entry->ptr);
}

static inline struct tree_entry entry_of_hole(uint64_t bytes)
{
    return (struct tree_entry){.ptr = PAGE_PTR_NONE, .bytes = bytes};
}

static inline struct tree_entry entry_of_root(const struct content_root *root)
{
    return (struct tree_entry){.ptr = root->ptr, .bytes = root->bytes};
}

/* ---- content_node.c ---- */

/* The tree, with the cache's diag (none when there is no relation). */
struct content_tree content_tree_of(struct relation *relation);
/* Reports damage at a block of the tree. -EIO. */
int content_damage(const struct content_tree *tree, block_no block, const char *field, uint64_t got, uint64_t want);
/* A root comes from the catalog, thus from disk. 0 or -EIO. */
int content_root_check(const struct content_tree *tree, const struct content_root *root) WARN_UNUSED;
/* Pins the inner page behind `entry`; its entries add up to entry->bytes, else it is damage. */
int content_node_read(const struct content_tree *tree, const struct tree_entry *entry, unsigned level,
                      struct frame **out_frame) WARN_UNUSED;
/* Pins leaves, all or none; each holds as many bytes as its entry says. */
int content_leaves_read(const struct content_tree *tree, const struct tree_entry *entries, unsigned count,
                        struct frame **out_frames) WARN_UNUSED;
unsigned content_node_count(struct frame *frame);
struct tree_entry content_node_entry(struct frame *frame, unsigned index);
uint8_t *content_payload(struct frame *frame);

/* Where an offset lies. */
struct content_spot {
    struct tree_entry entry; /* leaf or hole */
    uint64_t start;
};

enum content_side {
    SIDE_AFTER,  /* the entry with start <= offset < end */
    SIDE_BEFORE, /* the entry with start < offset <= end */
};
/* offset is inside the tree (SIDE_BEFORE: > 0). */
int content_find(const struct content_tree *tree, const struct content_root *root, uint64_t offset,
                 enum content_side side, struct content_spot *out_spot) WARN_UNUSED;
/* Index of the entry of a node that holds `offset` (relative to the node); *out_start relative too. */
unsigned content_node_find(struct frame *frame, uint64_t offset, enum content_side side, uint64_t *out_start);

#define CONTENT_WALK_LEAVES 64u

/* Goes over the leaves and holes that overlap [from, to), in order. */
struct content_walk {
    struct content_tree tree;
    uint64_t from, to;
    /* Neighbouring leaves of one node, up to CONTENT_WALK_LEAVES; start: content offset of the first. Non-zero stops.
     */
    int (*leaves)(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start);
    int (*hole)(void *arg, uint64_t start, uint64_t bytes);
    void *arg;
};
int content_walk(const struct content_walk *walk, const struct content_root *root) WARN_UNUSED;

/* content_visit of one subtree. */
int content_visit_entry(const struct content_tree *tree, const struct tree_entry *entry, unsigned level,
                        bool (*skip)(void *arg, struct page_ptr ptr), content_visit_fn *fn, void *arg) WARN_UNUSED;

/* ---- entry lists (content_node.c) ---- */

struct entry_list {
    struct tree_entry *entries;
    unsigned count, capacity;
};
int entry_list_reserve(struct entry_list *list, unsigned more) WARN_UNUSED;
int entry_list_append(struct entry_list *list, struct tree_entry entry) WARN_UNUSED;
void entry_list_remove(struct entry_list *list, unsigned index);
void entry_list_free(struct entry_list *list);

/* ---- plans ---- */

/* A change to a page in place. The page is latched and pinned by the edit. */
enum edit_kind { EDIT_LEAF, EDIT_NODE };
struct content_edit {
    enum edit_kind kind;
    struct frame *frame;
    /* EDIT_LEAF: from offset on `zeros` zero bytes, then size bytes; used_bytes after it */
    uint32_t offset, zeros, size, used_bytes;
    const void *bytes; /* the caller's */
    /* EDIT_NODE: entries [first, first + removed) are replaced */
    unsigned first, removed;
    struct entry_list inserted;
};

/* At most two leaves and one node a level. */
#define CONTENT_EDITS_MAX (CONTENT_MAX_HEIGHT + 2u)

struct content_plan {
    struct view *view;
    struct content_tree tree;
    struct frame_budget *budget;
    struct content_root old, root;
    struct content_edit edits[CONTENT_EDITS_MAX];
    unsigned edit_count;
    struct page_ptr kept_leaf; /* stays in the tree although its entry is replaced: it is edited in place */
    uint32_t leaves_added, leaves_retired;
    struct retire_list retire;
    struct page_ptr *fresh; /* blocks that this plan allocated; new leaves first */
    unsigned fresh_count, fresh_capacity;
    bool appends;        /* a write at the end, without a gap */
    uint64_t head_bytes; /* appends: bytes that the leaf at the end took */
    unsigned full_first; /* appends: fresh[full_first .. full_first + full_count) are full of new bytes */
    unsigned full_count;
};

/* An edit of a page that may be changed in place (COW-1, CACHE-1): latched, with a pin of its own. NULL: it may not. */
struct content_edit *plan_edit(struct content_plan *plan, enum edit_kind kind, struct frame *frame);
/* Room in `fresh`. */
int plan_fresh_reserve(struct content_plan *plan, unsigned more) WARN_UNUSED;

/* ---- content_leaf.c: bytes to leaves ---- */

struct leaf_source {
    struct {
        const void *bytes; /* NULL: zeros */
        uint64_t size;
    } parts[4];
    unsigned count;
    uint64_t size_bytes;
};
/* A part of 0 bytes is left out. */
void leaf_source_add(struct leaf_source *source, const void *bytes, uint64_t size);
/* Writes the source into new leaves, full but for the last, in a run behind `hint` if there is one; appends their
 * entries. */
int plan_make_leaves(struct content_plan *plan, const struct leaf_source *source, block_no hint,
                     struct entry_list *list) WARN_UNUSED;

/* ---- content_splice.c ---- */

/* Replaces content [from, to) of the plan's tree by leaves and holes. Leaves are replaced whole; holes may be cut.
 * Uses up the list. Sets plan->root. */
int plan_splice(struct content_plan *plan, uint64_t from, uint64_t to, struct entry_list *list) WARN_UNUSED;

#endif
