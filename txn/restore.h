/*
 * txn/restore.h - from a base, and an archive, to a store of its own: as it was at some moment.
 *
 *   empty directory --base_read--> a base with a control file that says `restoring` --replay of the chain of segments--> ... at the target
 *       --last checkpoint, a new identity--> an ordinary store, on a timeline of its own
 *
 * RESTORE-1 Replay stops exactly at the target: no record behind it is done, and all before it are.
 * RESTORE-2 The chain is followed without a gap (txn/log_format.h): what is missing or damaged is named, and nothing is left out.
 * RESTORE-3 Until the last step only restore opens the directory. Interrupted at any point, it goes on from the last checkpoint of its own, or
 *           begins again.
 * RESTORE-4 What was restored is another store: it has an id of its own, so neither takes the other's log for its own.
 */
#ifndef TBLFS_TXN_RESTORE_H
#define TBLFS_TXN_RESTORE_H

#include "txn/archive.h"
#include "txn/base.h"

enum restore_until {
    RESTORE_BASE,    /* the base's own state: no archive is read */
    RESTORE_END,     /* as far as the archive goes */
    RESTORE_TIME,    /* all that is not later */
    RESTORE_LSN,     /* the record at that position is the last one */
    RESTORE_TXN,     /* just behind the first commit of that name */
    RESTORE_STANDBY, /* on and on (txn/standby.h) */
};

struct restore_target {
    enum restore_until until;
    int64_t time_ns;
    lsn_no lsn;
    const char *name;
};

/* Where archived files come from. */
struct restore_archive {
    /* Makes the file `path` of what is kept under `name`. -ENOENT: nothing is. */
    int (*get)(void *arg, const char *name, const char *path);
    void *arg;
    const char
        *dir; /* of a directory as an archive, to look for what comes behind a gap; NULL: it cannot be looked at */
    const char *
        lost_dir; /* data directory of the store that was lost: segments that were not archived yet; NULL: there is none */
};
/* A get function; arg: a struct archive_dir. */
int archive_dir_get(void *arg, const char *name, const char *path) WARN_UNUSED;

struct restore_progress {
    struct base_progress base;
    _Atomic bool replaying;
    _Atomic uint64_t records;
    _Atomic uint64_t position;
};

struct restore_options {
    struct io_device *dev;
    struct diag *diag;
    const char *dir; /* to be made, or empty */
    const struct base_source *base;
    const char *base_name;                 /* for messages */
    const struct restore_archive *archive; /* NULL: RESTORE_BASE */
    struct restore_target target;
    uint64_t cache_size_bytes;     /* 0: 256 MiB */
    uint64_t checkpoint_log_bytes; /* replayed between checkpoints; 0: 256 MiB */
    struct restore_progress *progress;
};

struct restore_result {
    lsn_no lsn;      /* the first record that was not replayed stands here, or would */
    int64_t time_ns; /* of the last one that was, or of the base */
    uint64_t records;
    uint32_t timeline;
    bool resumed; /* went on with what was there */
};

/* -EEXIST, -ENOTEMPTY: there is something else in the directory; -ERANGE: the target cannot be reached from this base; -ENODATA: the archive ends
 * before it; -EIO: something is damaged or missing. All were said on diag. */
int restore_run(const struct restore_options *options, struct restore_result *out_result) WARN_UNUSED;

#endif
