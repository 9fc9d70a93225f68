/*
 * fusefs/run_transaction.c - `tblfs txn`: begins a transaction, runs a command in it, commits if that succeeds, else aborts.
 *
 *   begin --> command --exit 0--> commit --> done
 *     ^          |                  |
 *     |          | else, or signal  +--conflict--> abort --again?--+
 *     |          v                  +--else--> abort               |
 *     |        abort                                               |
 *     +------------------------------------------------------------+
 *
 * Whatever happens, it ends with the transaction closed, but when this process is killed or the daemon is gone.
 *
 * Locking: none, one thread.
 */
#include "fusefs/fusefs_int.h"
#include "fusefs/transaction_client.h"
#include "fusefs/transaction_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct runner {
    const struct fusefs_txn_options *options;
    char *mount_point;
    struct command_signals signals;
    unsigned retries; /* done */
};

static bool name_is_possible(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int check_options(struct runner *runner)
{
    const struct fusefs_txn_options *options = runner->options;
    if (options->name != NULL && !name_is_possible(options->name)) {
        fprintf(stderr, "tblfs: '%s' cannot be the name of a transaction: it is to be the name of a directory\n",
                options->name);
        return -EINVAL;
    }
    runner->mount_point = mount_realpath(options->mount_point);
    if (runner->mount_point == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", options->mount_point, strerror(errno));
        return -EINVAL;
    }
    return mount_check_live(options->mount_point, runner->mount_point);
}

/* The command failed or was told to end. */
static int close_failed(struct runner *runner, const struct client_transaction *transaction, int status)
{
    if (runner->signals.received != 0)
        status = COMMAND_EXIT_SIGNAL + runner->signals.received;
    else if (client_transaction_is_canceled(transaction))
        status = FUSEFS_EXIT_CANCELED; /* which is why it failed, as a rule */
    (void)client_transaction_abort(transaction);
    return status;
}

static int close_succeeded(const struct client_transaction *transaction, bool *out_conflict)
{
    const int rc = client_transaction_commit(transaction);
    if (rc == 0)
        return 0;
    *out_conflict = rc == -EAGAIN;
    if (rc != -ENOENT && rc != -ESTALE && rc != -ENOTCONN) /* those were said, and leave nothing to abort */
        (void)client_transaction_abort(transaction);
    if (rc == -EAGAIN)
        return FUSEFS_EXIT_CONFLICT;
    return rc == -ECANCELED ? FUSEFS_EXIT_CANCELED : COMMAND_EXIT_FAILED;
}

static int run_once(struct runner *runner, bool *out_conflict)
{
    const struct fusefs_txn_options *options = runner->options;
    struct client_transaction transaction;
    *out_conflict = false;
    if (client_transaction_begin(runner->mount_point, options->name, &transaction) != 0)
        return COMMAND_EXIT_FAILED;
    const struct transaction_command command = {
        .argv = options->command,
        .directory = transaction.path,
        .mount_point = options->private_mount ? runner->mount_point : NULL,
    };
    int status = command_run(&runner->signals, &command);
    if (status == 0 && command_signals_received(&runner->signals) == 0)
        status = close_succeeded(&transaction, out_conflict);
    else
        status = close_failed(runner, &transaction, status);
    client_transaction_free(&transaction);
    return status;
}

static bool is_to_retry(struct runner *runner)
{
    if (runner->retries >= runner->options->retries || command_signals_received(&runner->signals) != 0)
        return false;
    runner->retries++;
    fprintf(stderr, "tblfs: beginning again (%u of %u)\n", runner->retries, runner->options->retries);
    return true;
}

static int run_until_closed(struct runner *runner)
{
    bool conflict;
    int status;
    command_signals_take(&runner->signals);
    do
        status = run_once(runner, &conflict);
    while (conflict && is_to_retry(runner));
    /* Who interrupts a script means all of it: the shell that runs it looks at how its commands ended. */
    if (status == COMMAND_EXIT_SIGNAL + SIGINT)
        command_die_of(SIGINT);
    return status;
}

int fusefs_run_transaction(const struct fusefs_txn_options *options)
{
    struct runner runner = {.options = options};
    const int rc = check_options(&runner);
    const int status = rc != 0 ? COMMAND_EXIT_FAILED : run_until_closed(&runner);
    free(runner.mount_point);
    return status;
}
