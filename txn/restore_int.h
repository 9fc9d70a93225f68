/*
 * txn/restore_int.h - inside of restore.
 */
#ifndef TBLFS_TXN_RESTORE_INT_H
#define TBLFS_TXN_RESTORE_INT_H

#include "txn/log.h"
#include "txn/restore.h"
#include "txn/store_int.h"

/* ---- restore_source.c: the chain of segments, brought into DIR/log one by one ---- */
struct restore_source {
    const struct restore_archive *archive;
    struct io_device *dev;
    struct diag *diag;
    const char *dir;
    struct log_reader_options reader; /* of DIR */
    uint32_t timeline, segment_size;
    uint64_t lost_number; /* the last segment that came from lost_dir */
    bool follows;         /* what is missing may come still */
    lsn_no suspect; /* a position at which later segments are there, but not the next one; once is no damage then */
    struct log_chain chain;
};

void restore_source_init(struct restore_source *source, const struct restore_options *options,
                         const struct control *control, uint32_t segment_size);
/* A timeline that nobody has archived anything on. */
int restore_source_new_timeline(struct restore_source *source, uint32_t *out_timeline) WARN_UNUSED;
/* Removes what was brought. */
int restore_source_clean_up(struct restore_source *source) WARN_UNUSED;

/* ---- restore_base.c ---- */
/* Makes the data directory out of the base, but for its control file. */
int restore_base(const struct restore_options *options, struct base_header *out_header) WARN_UNUSED;
/* What says that the directory belongs to a restore under way, and with which target; as text. */
#define RESTORE_MARKER "restore"
int restore_write_file(struct io_device *dev, const char *dir, const char *name, const char *text) WARN_UNUSED;

/* ---- restore.c ---- */
/* Replay ended there, with a record of that time: the store becomes one of its own, with a history. */
int restore_end(struct store *store, struct restore_source *source, lsn_no end, int64_t time_ns,
                uint32_t *out_timeline) WARN_UNUSED;
/* And it is no longer a restore's directory. */
void restore_forget(struct io_device *dev, const char *dir);

/* ---- recovery_archive.c ---- */
/* Who goes on where the archive ends, for the time being (txn/standby.c). All are called between two groups, by the thread that replays, with no
 * lock held. */
struct archive_follower {
    struct txn_set *touched; /* gets all that is replayed */
    /* All that stands before the position is done. *out_checkpoint: a checkpoint is wanted; *out_stop: that is enough. */
    int (*came)(void *arg, lsn_no position, int64_t time_ns, bool *out_checkpoint, bool *out_stop);
    /* Nothing more is there (rc 0), or something is in the way of what is (negative; it was said). False: that is the end. */
    bool (*wait)(void *arg, lsn_no position, int rc);
    void *arg;
};
struct archive_replay {
    const struct archive_follower *follower; /* NULL: none */
    const struct log_chain *chain;
    /* Is it the first one that is not to be replayed (*out_after false), or the last one that is (true)? */
    bool (*stops)(void *arg, const struct op_record *op, bool *out_after);
    void *arg;
    uint32_t segment_size;
    uint64_t checkpoint_log_bytes;
    struct restore_progress *progress; /* may be NULL */
    /* set: */
    uint64_t records;
    lsn_no end;      /* of the first one that was not replayed; where to go on, in a further call */
    int64_t time_ns; /* of the last one that was */
    bool stopped;    /* else the chain ended */
};
int store_replay_archive(struct store *store, struct archive_replay *replay) WARN_UNUSED;
/* The last checkpoint; then the directory is an ordinary store, of that id. */
int store_replay_finish(struct store *store, lsn_no end, const uint8_t store_id[16], uint32_t timeline) WARN_UNUSED;

#endif
