/*
 * fusefs/fusefs.h - the daemon that serves a store through FUSE, and what belongs to mounting and unmounting it.
 *
 * This is all that tools/ sees. Messages for the user go to stderr until the mount answers, then to the log.
 */
#ifndef TBLFS_FUSEFS_FUSEFS_H
#define TBLFS_FUSEFS_FUSEFS_H

#include "base/types.h"

#include <stdio.h>

#define FUSEFS_VERSION "0.1.0"

#define FUSEFS_SETTINGS_MAX 64u

/* Where tables may be dropped. */
enum fusefs_drop { FUSEFS_DROP_ANY, FUSEFS_DROP_TXN };
enum fusefs_missing { FUSEFS_MISSING_REFUSE, FUSEFS_MISSING_OFFLINE };

/* What `tblfs mount` was told. Strings are owned by the structure. Settings (fusefs/settings.c has their meaning) have their
 * defaults from the start. */
struct fusefs_options {
    char *data_dir;
    char *mount_point;
    char *log_path; /* NULL: syslog (stderr in the foreground) */
    uint64_t cache_size_bytes;
    uint64_t checkpoint_interval_s;
    uint64_t checkpoint_log_bytes;
    uint64_t fsm_threshold; /* unless given, the store has its own */
    uint64_t snap_mode;     /* permission bits of MNT/.snap */
    uint64_t txn_max_bytes; /* 0: no limit */
    uint64_t txn_max_age_s; /* 0: no limit */
    char *archive_dir;      /* where finished segments of the log are copied; NULL: nowhere */
    char *archive_command;  /* what is run for each instead; NULL: none */
    uint64_t archive_timeout_s;
    uint64_t drop;               /* enum fusefs_drop */
    uint64_t missing_tablespace; /* enum fusefs_missing */
    uint64_t max_threads;        /* 0: max(16, 4 x CPUs) */
    bool allow_other;
    bool read_only;
    bool no_exec;
    bool synchronous; /* every write is an fsync too */
    bool no_compact;  /* only when asked for */
    bool debug;
    uint8_t sources[FUSEFS_SETTINGS_MAX]; /* of each setting: enum setting_source */
    bool standby;                         /* follow an archive, read-only */
    char *follow_dir;                     /* where its segments are; NULL: */
    char *follow_command;                 /* what brings them */
    bool foreground;
    bool create; /* make the store when the data directory is missing or empty */
};

void fusefs_options_init(struct fusefs_options *options);
void fusefs_options_free(struct fusefs_options *options);
/* -ENOMEM: *out_options is as after init. */
int fusefs_options_copy(const struct fusefs_options *from, struct fusefs_options *out_options) WARN_UNUSED;

#define FUSEFS_ERROR_SIZE 1024u

/*
 * Adds a comma-separated list as given with -o ("\," is a comma in a value). Options that were given in an earlier list, or
 * contradict it, are found. What mount(8) and fstab add for themselves is dropped. -EINVAL: `error` says what is wrong;
 * -ENOMEM.
 */
int fusefs_options_parse(struct fusefs_options *options, const char *list, char error[FUSEFS_ERROR_SIZE]) WARN_UNUSED;
/* Adds what DATADIR/tblfs.conf says, where -o said nothing. No file: nothing. Errors as above. */
int fusefs_options_read_conf(struct fusefs_options *options, char error[FUSEFS_ERROR_SIZE]) WARN_UNUSED;

/* One line for each option, for help texts. */
void fusefs_options_help(FILE *out);

/* The columns of MNT/.tblfs/settings, and a line for each setting. */
#define FUSEFS_SETTINGS_COLUMNS "name\tvalue\tdefault\tunit\tmin\tmax\tfrom\tmeaning"
void fusefs_settings_write(FILE *out, const struct fusefs_options *options);

/*
 * Mounts and serves until unmounted. In the background (the default) it returns as soon as the mount answers, in the
 * foreground when everything is closed. Returns an exit status, 0 or 1; what went wrong was said. Must be called
 * before the process has any thread.
 */
int fusefs_run(const struct fusefs_options *options);

/* Where a path leads in the live tree of a mount: the mount point, and what is behind it ("" at its root); both are malloc'd. The last
 * part of the path need not exist. Returns an exit status, 0 or 1; what is wrong was said. */
int fusefs_split_path(const char *path, char **out_mount_point, char **out_rest) WARN_UNUSED;

/* What each block of the file of a mounted table is used for: a line of names and one for each block to `out`, with tabs between (NULL: only the
 * summary is wanted). 0 or -errno; what went wrong was said. */
#define FUSEFS_BLOCKS_COLUMNS "block\tuse\tlevel\tbytes\tfill\tpinned_by"
struct fusefs_blocks_summary {
    uint64_t blocks, leaves, inner, free, pinned, held, punched;
    uint64_t leaf_bytes;
    unsigned fill_percent; /* of the leaves */
};
int fusefs_list_blocks(const char *path, FILE *out, struct fusefs_blocks_summary *out_summary) WARN_UNUSED;

/* Takes a snapshot of a mounted tree and makes it durable. Returns an exit status, as above. */
int fusefs_take_snapshot(const char *mount_point, const char *name);

struct fusefs_compact_options {
    char *const *paths; /* of a live mount's tables, and directories; NULL ends it */
    bool recursive;     /* directories: what is in them */
    bool always;        /* also what lies in order */
};

/* Compacts tables, one after the other, and says of each what it was and is. Returns an exit status, as above. */
int fusefs_compact(const struct fusefs_compact_options *options);

struct fusefs_backup_options {
    const char *mount_point;
    const char *destination; /* a directory, made or empty; "-": stdout */
    uint64_t rate_bytes;     /* a second; 0: as fast as it goes */
};
/* Copies a base of a mounted store. Returns an exit status, as above. */
int fusefs_backup(const struct fusefs_backup_options *options);

#define FUSEFS_EXIT_CONFLICT 75 /* others changed what the transaction changed */
#define FUSEFS_EXIT_CANCELED 76 /* the daemon had aborted it */

struct fusefs_txn_options {
    const char *mount_point;
    const char *name;     /* NULL: one that is not in use */
    char *const *command; /* NULL ends it */
    unsigned retries;     /* after conflicts */
    bool private_mount;   /* the transaction is at the mount point, for the command */
};

/* Runs a command in a transaction, and commits it if that exits 0. Returns the command's exit status, one of those above, or those of
 * env(1): 125 failed, 126 and 127 the command cannot be run, 128 and a signal's number. May end the process by SIGINT instead. */
int fusefs_run_transaction(const struct fusefs_txn_options *options);

/* Commits or aborts the transaction whose directory that is, which must be an open one of a live mount. Returns an exit status: 0, 1
 * or one of those above. What stands against a commit is shown, and the transaction stays open. */
int fusefs_commit_transaction(const char *path);
int fusefs_abort_transaction(const char *path);

/* Makes a mounted standby writable, on a timeline of its own, and waits for that. Returns an exit status, as above. */
int fusefs_promote(const char *mount_point);

/* Unmounts and waits until the daemon has closed the store and is gone. Open transactions in which something was changed are listed, and
 * it stays mounted, unless they are to be aborted. Returns an exit status, as above. */
int fusefs_unmount(const char *mount_point, bool abort_transactions);

#endif
