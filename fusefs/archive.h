/*
 * fusefs/archive.h - where a mount keeps the finished segments of its log: a directory, or a command of the user.
 *
 * Locking: none of its own. The store's archive thread runs the command; another one may tell it to hurry.
 */
#ifndef TBLFS_FUSEFS_ARCHIVE_H
#define TBLFS_FUSEFS_ARCHIVE_H

#include "fusefs/fusefs.h"
#include "txn/archive.h"

#include <stdatomic.h>

struct archive_command {
    struct diag *diag;
    const char *command;          /* for the shell; %p is the path, %f the name, %% a percent sign */
    _Atomic uint64_t deadline_ms; /* monotonic: what still runs then is killed; 0: it may take as long as it likes */
};

/* Runs it to bring what is kept under `name` to `path`; arg: the command. -ENOENT: it says, by an exit status of 1 to 125, that there is no such
 * file. -ECANCELED: it was ended by a signal, or cannot be run. */
int archive_command_get(void *arg, const char *name, const char *path) WARN_UNUSED;
/* By another thread: what runs is killed, and so is what is run from now on. */
void archive_command_end(struct archive_command *command);

struct mount_archive {
    struct archive_dir dir;
    struct archive_command command;
    struct archive_target target;
};

/* Is there to be one? */
bool mount_archive_is_wanted(const struct fusefs_options *options);
/* False: there is to be none. */
bool mount_archive_init(struct mount_archive *archive, const struct fusefs_options *options, struct diag *diag);
/* The mount is about to close: a command has so long. */
void mount_archive_hurry(struct mount_archive *archive);

#endif
