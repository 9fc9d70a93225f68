/*
 * fusefs/transaction_command.h - the command of `tblfs txn`: started in its transaction, told of signals, waited for.
 *
 * From command_signals_take on, the signals that ask the program to end are blocked and wait to be looked at, so that no transaction
 * is left open by one. Those that were ignored stay so, for the command too.
 *
 * COMMAND-1 Without a terminal the command has a process group of its own, and a signal goes to all of it. With one it is in its
 * caller's: the terminal tells both of them, and job control works as for any program; what is sent to this process alone is passed
 * on to the command alone.
 *
 * Locking: none, one thread.
 */
#ifndef TBLFS_FUSEFS_TRANSACTION_COMMAND_H
#define TBLFS_FUSEFS_TRANSACTION_COMMAND_H

#include "base/types.h"

#include <signal.h>

#define COMMAND_EXIT_FAILED     125 /* as env(1) has them: not because of the command */
#define COMMAND_EXIT_NO_PROGRAM 126 /* it cannot be executed */
#define COMMAND_EXIT_NOT_FOUND  127
#define COMMAND_EXIT_SIGNAL     128 /* and the number of the signal */

struct command_signals {
    sigset_t ends;   /* blocked, and looked at */
    sigset_t before; /* the mask as it was */
    int received;    /* 0: none yet */
};

void command_signals_take(struct command_signals *signals);
/* One that came up to now; 0: none. */
int command_signals_received(struct command_signals *signals);
/* Ends this process by the signal, so that a shell that waits for it knows. */
void command_die_of(int signal_number);

struct transaction_command {
    char *const *argv;       /* NULL ends it */
    const char *directory;   /* of the transaction */
    const char *mount_point; /* NULL: as it is; else the transaction is to be seen there, by the command alone */
};

/* Returns its exit status, or 128 and the signal that killed it. What kept it from being started was said. */
int command_run(struct command_signals *signals, const struct transaction_command *command);

#endif
