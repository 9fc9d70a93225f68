/*
 * fusefs/nodes.h - what the kernel knows: node ids, what they stand for, and how often it was told.
 *
 * NODE-1 A node stands for one inode of one view (or one virtual file), and there is at most one node for it. NODE-2 A
 * node id is never given to another inode while mounted. NODE-3 A node lives while the kernel may use its id (lookups
 * > 0) or it has an open file. Find and count are one step under the lock, and so are uncount and remove. NODE-4 The
 * view of a node that node_find gave stays until node_release, that of an open file until it is closed, also when its
 * tree is dropped meanwhile; what is found afterwards is stale. NODE-5 No two trees that are known have the same place, so no
 * two inodes have the same st_ino. NODE-6 A node marked stale is not found: a name that the kernel still has may lead to it,
 * and ESTALE makes it walk again. Its open file goes on.
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

/* Where nodes belong. A tree is named by its kind and the number of its snapshot or transaction; no two of those share one. */
struct node_tree;
enum node_tree_kind {
    NODE_TREE_LIVE,
    NODE_TREE_SNAPSHOT,
    NODE_TREE_TRANSACTION,
    NODE_TREE_BASE,    /* what a transaction began with */
    NODE_TREE_SCRATCH, /* a transaction's scratch tables */
};
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
/* Of a tree that is held. */
struct view *node_tree_view(const struct node_tree *tree);
void *node_tree_owner(const struct node_tree *tree);
/* Nothing in it can be changed: a snapshot, what a transaction began with, a standby's tree. */
bool node_tree_is_read_only(const struct node_tree *tree);
/* A standby was promoted: the live tree is served by that view from here on. */
void node_table_move_live(struct node_table *table, struct view *view);
void node_tree_set_read_only(struct node_tree *tree, bool read_only);
/* Of the virtual files it is none of these. */
bool node_tree_is(const struct node_tree *tree, enum node_tree_kind kind);
uint64_t node_tree_number(const struct node_tree *tree); /* 0: the live one */
uint64_t node_tree_st_ino(const struct node_tree *tree, ino_no ino);

/* Called once, with no lock held, when the last user of a dropped tree has let go. */
typedef void node_tree_release_fn(void *owner);
struct node_tree_source {
    enum node_tree_kind kind;
    uint64_t number;
    struct view *view;
    void *owner; /* one reference to it */
    node_tree_release_fn *release;
};
/* Finds or makes that tree, and holds it once for the caller. *out_made: it takes the owner's reference over. -ENFILE: too
 * many are known; -ENOMEM. */
int node_tree_enter(struct node_table *table, const struct node_tree_source *source, struct node_tree **out_tree,
                    bool *out_made) WARN_UNUSED;
/* One more hold of a tree that is held. */
void node_tree_hold(struct node_tree *tree);
void node_tree_let_go(struct node_tree *tree);
/* It is over: from now on node_find answers `rc` for its nodes, and -ESTALE for its root, to which a name that the kernel
 * still has may lead. No such tree: does nothing. */
void node_tree_drop(struct node_table *table, enum node_tree_kind kind, uint64_t number, int rc);
/* No name leads to the root of that dropped tree any more: it answers as its other nodes do. */
void node_tree_forget_root(struct node_table *table, enum node_tree_kind kind, uint64_t number);
/* The st_ino that an inode of that tree has or, if nothing of it is known yet, will have unless its place is taken. */
uint64_t node_tree_future_st_ino(struct node_table *table, enum node_tree_kind kind, uint64_t number, ino_no ino);

/* ---- nodes ---- */

/* Holds the node's tree: node_release. -ESTALE: no such node, or it is stale (NODE-6); else what node_tree_drop said. */
int node_find(struct node_table *table, uint64_t id, struct node_identity *out_identity) WARN_UNUSED;
/* Lets go and makes it NODE_NONE; nothing for NODE_NONE. */
void node_release(struct node_identity *identity);

/* Finds or makes the node and counts one lookup; the tree is held or virtual. -ENOMEM. */
int node_enter(struct node_table *table, struct node_tree *tree, ino_no ino, uint32_t type,
               uint64_t *out_id) WARN_UNUSED;
void node_forget(struct node_table *table, uint64_t id, uint64_t count);

/* The id under which the kernel knows that inode; 0: it does not. */
uint64_t node_known_id(struct node_table *table, const struct node_tree *tree, ino_no ino);
/* NODE-6, of one that is not open, or of any. Returns its id, 0: the kernel does not know it. */
uint64_t node_mark_stale(struct node_table *table, const struct node_tree *tree, ino_no ino, bool also_open);
/* Has the inode an open file? */
bool node_is_open(struct node_table *table, const struct node_tree *tree, ino_no ino);
/* No name leads to it any more. */
void node_clear_stale(struct node_table *table, uint64_t id);
bool node_is_stale(struct node_table *table, uint64_t id);

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
    uint64_t nodes, open_files, trees;
};
void node_table_get_stats(struct node_table *table, struct node_table_stats *out_stats);

#endif
