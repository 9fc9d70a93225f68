/*
 * txn/standby.h - a store that follows an archive, and is read meanwhile.
 *
 *   a base (txn/restore.h) --standby_open--> readers see what its last checkpoint has
 *       --standby_follow: the archive is replayed, group by group--> what is shown moves on, whole transactions at once; checkpoints of its own
 *       --stopped: standby_close; opened again it goes on from its last checkpoint-->
 *
 * STANDBY-1 The live tree belongs to the thread that replays. Users see another view, which shows a fork of it.
 * STANDBY-2 What is shown moves between two groups of the log, so every transaction is in it as a whole or not at all; and never back.
 * STANDBY-3 A version that is shown no more goes when all who may look at it are through: its catalog lock was held exclusively since, and
 *           the lock of each open file. A table that is gone from the new one, and is open, is read on as it was.
 * STANDBY-4 A checkpoint names a position between two groups, up to which all is replayed: a restart goes on exactly there.
 * STANDBY-5 The position that is told is one that users see already.
 *
 * Locking: standby_follow and standby_close belong to one thread; the status to any.
 */
#ifndef TBLFS_TXN_STANDBY_H
#define TBLFS_TXN_STANDBY_H

#include "txn/restore.h"
#include "txn/store.h"

struct standby;

struct standby_options {
    const struct restore_archive *archive;
    uint64_t show_interval_ms; /* while it replays, what is shown is at most about so old; 0: it moves at every group */
    uint64_t checkpoint_log_bytes;   /* 0: 256 MiB */
    uint64_t checkpoint_interval_ms; /* 0: 60,000 */
    /* What is shown has moved; the changes may be put into another order. Called by who follows, without locks. May be NULL. */
    void (*shown)(void *arg, struct store_changes *changes);
    /* Nothing is left to be replayed (rc 0), or something keeps it from going on (negative; it was said). Waits for a moment; false: stop. */
    bool (*wait)(void *arg, int rc);
    void *arg;
};

/* Makes the directory a standby's, out of the base, unless it is one: the first step. options: target RESTORE_STANDBY, base NULL: it has to be one.
 * The size is what the store is to be opened with. -ENODATA: it is none, and no base is given; -EEXIST: it is a store of its own. Errors as restore_run. */
int standby_place(const struct restore_options *options, uint32_t *out_segment_size) WARN_UNUSED;
/* On a store that was opened with `restoring`; before anybody looks at it. -ENOMEM, -EIO. */
int standby_open(struct store *store, const struct standby_options *options, struct standby **out_standby) WARN_UNUSED;
/* Replays until `wait` says stop, or standby_stop was called; takes a checkpoint then. 0; what `wait` was told last; other errors: it cannot go on, and
 * that was said. */
int standby_follow(struct standby *standby) WARN_UNUSED;
/*
 * Behind standby_follow: the store becomes writable, on a timeline of its own, with a history that says where it left the other one. Files that are
 * open go on. `promoted` is called when the live view is what users are to have instead of the standby's: from there on that one shows nothing. On an
 * error it was said, and the store takes no changes; standby_place says what became of the directory.
 *
 * PROMOTE-1 The directory is a standby's until its last checkpoint is durable, and an ordinary store's from then on: one write of the control file.
 * PROMOTE-2 Nobody changes the live tree before the log is open; an inode is open once in the live view.
 */
struct standby_promotion {
    const struct archive_target *archive; /* of the new timeline; NULL: none */
    uint64_t archive_timeout_ms;
    void (*promoted)(void *arg);
    void *arg;
};
int standby_promote(struct standby *standby, const struct standby_promotion *promotion,
                    uint32_t *out_timeline) WARN_UNUSED;
/* By any thread: it ends soon, wherever it is. */
void standby_stop(struct standby *standby);
/* What users see. */
struct view *standby_view(struct standby *standby);
/* Files of its view are closed. What follows is store_abandon (the store is as its last checkpoint has it), or store_close when it was promoted. */
void standby_close(struct standby *standby);

struct standby_status {
    lsn_no position;  /* all before it is seen */
    int64_t time_ns;  /* of the last record of that, 0: none yet */
    uint64_t records; /* replayed in this life */
    uint64_t shown;   /* how often what is shown moved */
    bool waiting;     /* for more */
    int wait_rc;      /* what it waits for is not in order; 0: it is */
    uint64_t checkpoints;
    uint32_t timeline, segment_size;
};
void standby_get_status(struct standby *standby, struct standby_status *out_status);

#endif
