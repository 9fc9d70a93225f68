/*
 * fusefs/limits.h - keeps a forgotten transaction from hurting: mount options txn_max_age and txn_max_bytes, and a warning when one
 * keeps much of the log.
 *
 * Locking: fs->transactions_lock for what is remembered; looked at by a worker, once a second while there is a transaction.
 */
#ifndef TBLFS_FUSEFS_LIMITS_H
#define TBLFS_FUSEFS_LIMITS_H

#include "base/types.h"

struct fusefs;

/* A transaction was begun. */
void limits_watch(struct fusefs *fs);

#endif
