/*
 * txn/recovery_txn.h - transactions in recovery (inside of txn/).
 */
#ifndef TBLFS_TXN_RECOVERY_TXN_H
#define TBLFS_TXN_RECOVERY_TXN_H

#include "txn/publish.h"

struct recovery_txn;

/* What the first pass found of transactions. */
struct recovery_txns {
    struct store *store;
    const struct log_reader_options *reader; /* of the whole log */
    struct recovery_txn *by_number;          /* uthash */
    struct txn_set *touched;                 /* what is replayed is added to it; NULL: nobody wants to know */
};

/* First pass: a record of a transaction. is_new: the checkpoint does not have it. */
int recovery_txn_note(struct recovery_txns *txns, lsn_no position, const struct op_record *op, bool is_new) WARN_UNUSED;
/* Second pass, at its commit record: reads its records again and replays them. 1: some were of damaged tables and skipped. */
int recovery_txn_commit(struct recovery_txns *txns, lsn_no position, const struct op_record *op) WARN_UNUSED;
/* Position of the first record of the oldest one that is open; UINT64_MAX: none is. */
lsn_no recovery_txns_first(const struct recovery_txns *txns);
void recovery_txns_free(struct recovery_txns *txns);

#endif
