/*
 * fusefs/transactions.h - MNT/.txn: a directory whose entries are transactions, and what is special about such an entry.
 *
 *   mkdir MNT/.txn/NAME --> open --rmdir--> gone
 *                             |
 *                             +--transaction_cancel--> aborted (a tombstone) --rmdir--> gone
 *
 * TXNDIR-1 Whoever has a pointer to one has a reference: the list of the open and aborted ones, its trees in the node table
 * (ROOTS-1), a request that works on it. TXNDIR-2 Only who has claimed it ends it. TXNDIR-3 One that has ended has no
 * reference to the store's transaction, and so keeps no version; its trees have their own as long as somebody has a file of theirs open.
 *
 * Locking: fs->transactions_lock for the list, states, claims and references. The node table may be entered under it; the store is
 * called without it.
 */
#ifndef TBLFS_FUSEFS_TRANSACTIONS_H
#define TBLFS_FUSEFS_TRANSACTIONS_H

#include "fusefs/roots.h"
#include "fusefs/virtual.h"
#include "txn/store.h"

struct fusefs;

enum transaction_state { TRANSACTION_OPEN, TRANSACTION_ABORTED, TRANSACTION_GONE };

struct transaction {
    struct fusefs *fs;
    struct store_txn
        *txn; /* NULL: it has ended; guarded by transactions_lock, as all below but number, uid, gid and name */
    struct store_txn *scratch;  /* NULL: it has no scratch tables; ends with txn */
    ino_no scratch_root;        /* its directory of them */
    struct store_txn_info last; /* if it was aborted: as it was then */
    uint64_t number;
    uint32_t uid, gid; /* who began it */
    int64_t began_ms;  /* of the monotonic clock */
    bool log_warned;   /* fusefs/limits.c */
    unsigned references;
    enum transaction_state state;
    const char *why; /* it was aborted */
    bool claimed;
    bool writers_shut_out, committed; /* guarded by fs->handles_lock */
    struct transaction *prev, *next;  /* fs->transactions */
    char name[];
};

/* The owner of a tree: one reference to each. */
struct transaction_tree {
    struct transaction *transaction;
    struct store_txn *txn;
};

void transactions_init(struct fusefs *fs);
/* Logs each one in which something was changed; returns how many. */
unsigned transactions_log_changed(struct fusefs *fs);
/* At the end of the mount: aborts all that are open. */
void transactions_abort_all(struct fusefs *fs);
/* When the node table is gone. */
void transactions_destroy(struct fusefs *fs);

/* With a reference. NULL: there is none. */
struct transaction *transaction_get(struct fusefs *fs, const char *name);
struct transaction *transaction_get_number(struct fusefs *fs, uint64_t number);
void transaction_put(struct transaction *transaction);
/* What the store has of it, with a reference. NULL: it has ended. */
struct store_txn *transaction_store(struct transaction *transaction);
/* Of that one, or how it was when it was aborted. */
void transaction_get_info(struct transaction *transaction, struct store_txn_info *out_info);

/* TXNDIR-2; waits for who has claimed it. -ENOENT: it is gone. *out_state: open or aborted. */
int transaction_claim(struct transaction *transaction, enum transaction_state *out_state) WARN_UNUSED;
void transaction_unclaim(struct transaction *transaction);
/* By who has claimed it, who gives the claim up with it: it has ended in the store. Nodes below it answer -ENOENT, its root -ESTALE
 * until node_tree_forget_root. */
void transaction_gone(struct transaction *transaction);

/* The kernel has been told of its end: its roots answer as what is below them. */
void transaction_forget_roots(struct fusefs *fs, uint64_t number);
/* Aborts it for its user, if it is open: the directory stays, empty, and answers -ECANCELED to all but rmdir and .tblfs/status, which
 * says why (a constant). To be called by a worker (TELL-1). */
void transaction_cancel(struct transaction *transaction, const char *why);

extern const struct virtual_kind transactions_kind; /* MNT/.txn */
/* Of a directory in MNT/.txn with nothing in it: a tombstone, the receipt of a commit. */
void transactions_readdir_empty(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after,
                                bool plus);
extern const struct virtual_kind tombstones_kind; /* $t that was aborted */
/* $t/.tblfs/base and $t/.tblfs/tmp; each answers. The latter is made when it is first looked up: a directory of a transaction of its own
 * in the store, which is not logged and never committed. */
void transaction_lookup_base(fuse_req_t req, struct transaction *transaction);
void transaction_lookup_scratch(fuse_req_t req, struct transaction *transaction);
void transactions_lookup_directory(fuse_req_t req, const struct node_identity *root);

/* Calls fn for each that is open or aborted, without any lock. */
typedef void transaction_fn(void *arg, struct transaction *transaction);
void transactions_each(struct fusefs *fs, transaction_fn *fn, void *arg);

/* ---- $t/.tblfs (transaction_tables.c) ---- */

extern const struct virtual_kind transaction_tables_kind;
void transaction_tables_lookup_directory(fuse_req_t req, const struct node_identity *root);

/* ---- its root ---- */

bool transaction_is_root(const struct node_identity *node);
/* It shows who began it, mode 0700, and its last change. The tree is held. */
void transaction_root_stat(const struct node_tree *tree, struct stat *inout_stat);
/* The kernel has checked the mode that the root shows. May the caller do what the mode of the tree's own root is about? wanted: R_OK,
 * W_OK, X_OK. `victim`: a name that is to go or be replaced; NULL: none. 0 for any other directory. -EACCES, -EPERM. */
int transaction_check_access(fuse_req_t req, const struct node_identity *dir, int wanted,
                             const char *victim) WARN_UNUSED;

#endif
