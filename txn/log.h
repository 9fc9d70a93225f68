/*
 * txn/log.h - the log's place in the life of an operation.
 *
 * In this version of the store nothing is written: the log only counts positions, so that planning, logging and
 * applying are already separate steps and "everything before position p" already has a meaning. Durability comes from
 * checkpoints alone.
 */
#ifndef TBLFS_TXN_LOG_H
#define TBLFS_TXN_LOG_H

#include "base/types.h"
#include "txn/op.h"

struct log {
    _Atomic lsn_no end; /* position behind the last record */
};

void log_init(struct log *log, lsn_no start);
/* Appends one record under the locks of its operation (catalog lock of its view, gate shared). Returns its position.
 * Cannot fail. */
lsn_no log_append(struct log *log, const struct op_record *op);
/* Position behind everything that was appended. */
lsn_no log_end(const struct log *log);

#endif
