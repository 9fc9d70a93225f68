/*
 * fusefs/nodes.h - what the kernel knows: node ids, what they stand for, and how often it was told.
 *
 * NODE-1 A node stands for one inode of one view (or one virtual file), and there is at most one node for it. NODE-2 A
 * node id is never given to another inode while mounted. NODE-3 A node lives while the kernel may use its id (lookups
 * > 0) or it has an open file. Find and count are one step under the lock, and so are uncount and remove. NODE-4 The
 * view of a node that node_find gave stays until node_release, that of an open file until it is closed, also when its
 * tree is dropped meanwhile; what is found afterwards is stale. NODE-5 No two trees that are known have the same place, so no
 * two inodes have the same st_ino.
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

/* Where nodes belong: the live tree, or a snapshot's. */
struct node_tree;
#define NODE_TREE_VIRTUAL ((struct node_tree *)NULL) /* of the virtual files */

struct node_identity {
    uint64_t id;
    struct node_tree *tree;
    struct view *view; /* the tree's; virtual: NULL */
    ino_no ino;
    uint32_t type; /* S_IFMT bits */
};
#define NODE_NONE ((struct node_identity){.id = 0})
/* A variable that lets go of what it holds at the end of its scope; to be initialised with NODE_NONE. */
#define NODE_SCOPED __attribute__((cleanup(node_release))) struct node_identity

/* The open file of a node, shared by all its handles. */
struct open_file {
    struct store_file *file;
    struct node_tree *tree; /* held */
    struct append_guard guard;
    _Atomic bool set_id;    /* may have set-user-id or set-group-id bits */
    unsigned uses;          /* guarded by the table's lock */
    struct open_file *next; /* node_table_take_all_open */
};

/* root_view: the view that NODE_ID_ROOT shows; that node is there from the start and is never removed. */
int node_table_new(struct view *root_view, struct node_table **out_table) WARN_UNUSED;
/* What is still open must have been taken out with node_table_take_all_open. */
void node_table_free(struct node_table *table);

/* ---- trees ---- */

/*
 * st_ino of inode `ino` of the tree in place `place` is (place << NODE_INO_BITS) + ino; the live tree's place is 0. So it
 * stays below 2^52 while fewer than 2^38 inodes were ever made; from there on a snapshot's inodes look like the live ones.
 */
#define NODE_INO_BITS   38u
#define NODE_PLACES_MAX ((UINT64_C(1) << 14) - 1)

struct node_tree *node_table_live(struct node_table *table);
struct view *node_tree_view(const struct node_tree *tree); /* of a tree that is held */
bool node_tree_is_live(const struct node_tree *tree);
uint64_t node_tree_st_ino(const struct node_tree *tree, ino_no ino);

/* Called once, with no lock held, when the last user of a dropped tree has let go. */
typedef void node_tree_release_fn(void *owner);
/* Finds or makes the tree of that snapshot, and holds it once for the caller. *out_made: it takes the owner's reference
 * over. -ENFILE: too many are known; -ENOMEM. */
int node_tree_enter(struct node_table *table, uint64_t number, struct view *view, void *owner,
                    node_tree_release_fn *release, struct node_tree **out_tree, bool *out_made) WARN_UNUSED;
/* One more hold of a tree that is held. */
void node_tree_hold(struct node_tree *tree);
void node_tree_let_go(struct node_tree *tree);
/* The snapshot is dropped: its nodes are stale from now on. No such tree: does nothing. */
void node_tree_drop(struct node_table *table, uint64_t number);
/* The st_ino that an inode of that snapshot has or, if nothing of it is known yet, will have unless its place is taken. */
uint64_t node_snapshot_st_ino(struct node_table *table, uint64_t number, ino_no ino);

/* ---- nodes ---- */

/* Holds the node's tree: node_release. -ESTALE: no such node, or its tree was dropped. */
int node_find(struct node_table *table, uint64_t id, struct node_identity *out_identity) WARN_UNUSED;
/* Lets go and makes it NODE_NONE; nothing for NODE_NONE. */
void node_release(struct node_identity *identity);

/* Finds or makes the node and counts one lookup; the tree is held or virtual. -ENOMEM. */
int node_enter(struct node_table *table, struct node_tree *tree, ino_no ino, uint32_t type,
               uint64_t *out_id) WARN_UNUSED;
void node_forget(struct node_table *table, uint64_t id, uint64_t count);

/* A directory may be removed now: remembers how it looks without a name, for those who have it open or stand in it. No
 * node, or no memory: then they get ESTALE. */
void node_note_last(struct node_table *table, struct node_tree *tree, const struct store_attr *attr);
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
    uint64_t nodes, open_files, snapshots;
};
void node_table_get_stats(struct node_table *table, struct node_table_stats *out_stats);

#endif
