/*
 * txn/store_txn.h - inside of transactions.
 *
 * TXN-1 A transaction's state changes with the gate held exclusively; every operation on its view asks for it behind the gate.
 * TXN-2 Its records are in the log in the order of application; removals that nothing follows yet wait in memory and are carried by the
 *       next record, or by the commit.
 * TXN-3 The log is kept from its first record on.
 */
#ifndef TBLFS_TXN_STORE_TXN_H
#define TBLFS_TXN_STORE_TXN_H

#include "txn/store_int.h"

/* view->owner */
struct view_owner {
    struct store_txn *txn;   /* whose private view it is */
    struct publish *publish; /* or the commit that builds the new live tree in it */
};

struct store_txn {
    struct view_owner owner;
    struct store *store;
    struct store_txn *next; /* store->txns */
    uint64_t number;
    char *name;
    uint32_t uid, pid;
    bool scratch; /* nothing of it is logged or remembered */
    int64_t began_ns;
    _Atomic int64_t changed_ns;
    _Atomic int state; /* enum store_txn_state */
    struct holder *base;
    struct view *base_view;
    struct view *view;
    struct holder *after; /* keeps what it published as it was, for those who read on in it; NULL: not closed */
    _Atomic uint32_t refs;
    _Atomic uint32_t open_files;
    _Atomic lsn_no first_lsn;     /* of its first record, 0: it has none */
    _Atomic size_t removals_size; /* changed under the view's catalog lock, as all below */
    struct txn_set set;
    bool failed;       /* no memory: the set may have what was not done, it cannot be closed */
    uint8_t *removals; /* TXN-2: encoded records */
    size_t removals_capacity;
};

static inline struct store_txn *txn_of_view(const struct view *view)
{
    const struct view_owner *owner = view->owner;
    return owner != NULL ? owner->txn : NULL;
}

static inline bool txn_has_ended(const struct store_txn *txn)
{
    return atomic_load(&txn->state) != STORE_TXN_OPEN;
}
/* -ECANCELED: it was aborted; -ENOENT: it was closed. The gate is held. */
int txn_check_open(const struct store_txn *txn) WARN_UNUSED;
/* Before an operation of that type is begun: logs removals that it has to follow. No lock held. */
int txn_flush_removals_before(struct store_txn *txn, enum op_type type) WARN_UNUSED;
int txn_flush_removals(struct store_txn *txn) WARN_UNUSED;
/* The operation is planned and about to be applied: it goes into the set. TXN_REMOVALS_FIRST, -ENOMEM: it must not be. */
int txn_note_operation(struct store_txn *txn, const struct op_record *op) WARN_UNUSED;
/* NULL: not of a transaction. */
void txn_note_logged(struct store_txn *txn, lsn_no position);
/* It has ended: state, list, count. The gate is held exclusively. */
void txn_end_locked(struct store_txn *txn, enum store_txn_state state);
/* Where the log has to be kept from because of open transactions, `position` if nowhere before it. The gate is held exclusively. */
lsn_no store_txns_scan_lsn(struct store *store, lsn_no position);

/* An operation that was applied to the live tree, or to what becomes it: names that went. */
void removed_names_note(struct store *store, const struct op_run *run);

/* ---- store_conflict.c ---- */

/* One object that conflicts. */
struct conflict {
    bool is_name;
    ino_no ino; /* the object, or the directory of the name */
    struct op_bytes name;
    const char *did, *outside;
    int64_t since_ns;
};
/* Called for each; non-zero stops and is handed on. */
typedef int conflict_fn(void *arg, const struct conflict *conflict);
/* What of the set was changed in the live tree since the transaction began. The gate is held, and a budget of STORE_READ_PINS. */
int txn_find_conflicts(struct store_txn *txn, conflict_fn *fn, void *arg) WARN_UNUSED;
/* Does the live inode have the content that it had when the transaction began? What was compacted lies elsewhere, but is the same. */
bool content_is_same(const struct store_txn *txn, const struct inode *base, const struct inode *live);

#endif
