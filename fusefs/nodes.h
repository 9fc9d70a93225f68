/*
 * fusefs/nodes.h - what the kernel knows: node ids, what they stand for, and how often it was told.
 *
 * NODE-1 A node stands for one inode of one view (or one virtual file), and there is at most one node for it. NODE-2 A
 * node id is never given to another inode while mounted. NODE-3 A node lives while the kernel may use its id (lookups
 * > 0) or it has an open file. Find and count are one step under the lock, and so are uncount and remove.
 *
 * Locking: one mutex of LOCK_RANK_NODES. The store may be locked by the caller (readdir); no call goes out under it.
 */
#ifndef TBLFS_FUSEFS_NODES_H
#define TBLFS_FUSEFS_NODES_H

#include "base/types.h"
#include "fusefs/append_guard.h"
#include "txn/store.h"

struct node_table;

#define NODE_ID_ROOT UINT64_C(1)

/* View of the virtual files (fusefs/system_tables.h). */
#define NODE_VIEW_VIRTUAL ((struct view *)NULL)

struct node_identity {
    uint64_t id;
    struct view *view; /* NODE_VIEW_VIRTUAL, or the view that ino belongs to */
    ino_no ino;
    uint32_t type; /* S_IFMT bits */
};

/* The open file of a node, shared by all its handles. */
struct open_file {
    struct store_file *file;
    struct append_guard guard;
    _Atomic bool set_id;    /* may have set-user-id or set-group-id bits */
    unsigned uses;          /* guarded by the table's lock */
    struct open_file *next; /* node_table_take_all_open */
};

/* root_view: the view that NODE_ID_ROOT shows; that node is there from the start and is never removed. */
int node_table_new(struct view *root_view, struct node_table **out_table) WARN_UNUSED;
/* What is still open must have been taken out with node_table_take_all_open. */
void node_table_free(struct node_table *table);

/* -ESTALE: no such node. */
int node_find(struct node_table *table, uint64_t id, struct node_identity *out_identity) WARN_UNUSED;

/* Finds or makes the node and counts one lookup. -ENOMEM. */
int node_enter(struct node_table *table, struct view *view, ino_no ino, uint32_t type, uint64_t *out_id) WARN_UNUSED;
void node_forget(struct node_table *table, uint64_t id, uint64_t count);

/* A directory may be removed now: remembers how it looks without a name, for those who have it open or stand in it. No
 * node, or no memory: then they get ESTALE. */
void node_note_last(struct node_table *table, struct view *view, const struct store_attr *attr);
/* What node_note_last remembers. False: nothing. */
bool node_last_attr(struct node_table *table, uint64_t id, struct store_attr *out_attr);

/* The open file with one more use, or NULL when the node has none (or is not there). */
struct open_file *node_open_use(struct node_table *table, uint64_t id);
/* Offers a new open file (uses is set here). Returns the one in force with one more use: `fresh`, or one that another
 * thread had put there; then fresh stays the caller's. NULL: no such node. */
struct open_file *node_open_install(struct node_table *table, uint64_t id, struct open_file *fresh);
/* Gives a use back. Returns the open file when that was the last one: the caller closes and frees it. */
struct open_file *node_open_unuse(struct node_table *table, uint64_t id) WARN_UNUSED;
/* At the end: takes all open files out of their nodes, whatever their uses. Chained by `next`; NULL: none. */
struct open_file *node_table_take_all_open(struct node_table *table) WARN_UNUSED;

struct node_table_stats {
    uint64_t nodes, open_files;
};
void node_table_get_stats(struct node_table *table, struct node_table_stats *out_stats);

#endif
