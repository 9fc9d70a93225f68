/*
 * fusefs/close_transaction.c - `tblfs commit` and `tblfs abort`: the gestures that close a transaction, with what stands against it.
 *
 * Locking: none, one thread.
 */
#include "fusefs/fusefs_int.h"
#include "fusefs/transaction_client.h"

#include <errno.h>

static int exit_status(int rc)
{
    switch (rc) {
    case 0:
        return 0;
    case -EAGAIN:
        return FUSEFS_EXIT_CONFLICT;
    case -ECANCELED:
        return FUSEFS_EXIT_CANCELED;
    default:
        return 1;
    }
}

static int close_by(const char *path, int (*gesture)(const struct client_transaction *transaction))
{
    struct client_transaction transaction;
    if (client_transaction_find(path, &transaction) != 0)
        return 1;
    const int rc = gesture(&transaction);
    client_transaction_free(&transaction);
    return exit_status(rc);
}

int fusefs_commit_transaction(const char *path)
{
    return close_by(path, client_transaction_commit);
}

int fusefs_abort_transaction(const char *path)
{
    return close_by(path, client_transaction_abort);
}
