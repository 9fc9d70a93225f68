/*
 * fusefs/transaction_client.h - a transaction as its user has it: a directory MNT/.txn/NAME, begun and closed by gestures.
 *
 * For the commands (`tblfs txn`, `commit`, `abort`), not for the daemon. What fails is said on stderr.
 *
 * CLIENT-1 Nothing inside is kept open, so that closing it waits for nobody but its users. CLIENT-2 It is closed by its name below
 * MNT/.txn, which is never made on the way: a transaction that is gone is not begun again.
 *
 * Locking: none, one thread.
 */
#ifndef TBLFS_FUSEFS_TRANSACTION_CLIENT_H
#define TBLFS_FUSEFS_TRANSACTION_CLIENT_H

#include "base/types.h"

struct client_transaction {
    int list_fd; /* MNT/.txn */
    char *path;  /* absolute */
    const char *name;
};

/* Begins one. mount_point: of a live mount. name: NULL: one that is not in use. -errno. */
int client_transaction_begin(const char *mount_point, const char *name,
                             struct client_transaction *out_transaction) WARN_UNUSED;
/* The one whose directory that is, aborted ones too. -EINVAL: it is none; -errno. */
int client_transaction_find(const char *given, struct client_transaction *out_transaction) WARN_UNUSED;
void client_transaction_free(struct client_transaction *transaction);

/* When it fails the transaction is as it was, and what stands against it was shown. -EAGAIN: a conflict; -EBUSY: a file is open for
 * writing; -ECANCELED: it was aborted; -errno. */
int client_transaction_commit(const struct client_transaction *transaction) WARN_UNUSED;
int client_transaction_abort(const struct client_transaction *transaction);
/* Was it aborted for its user? Then why was said. */
bool client_transaction_is_canceled(const struct client_transaction *transaction);

#endif
