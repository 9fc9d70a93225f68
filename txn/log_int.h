/*
 * txn/log_int.h - inside of the log: slots, groups, segments and the arithmetic of positions.
 */
#ifndef TBLFS_TXN_LOG_INT_H
#define TBLFS_TXN_LOG_INT_H

#include "base/lock.h"
#include "txn/log.h"

#include <stdatomic.h>

#define LOG_PATH_SIZE 4300u

struct log_slot;

/* Records that are written together. Lies in the slot of its first record, so that starting a group needs no memory. */
struct log_group {
    struct log_group *next;
    lsn_no start;
    size_t payload_size;
    struct log_slot *first, **last; /* last: where the next slot is linked */
};

/* One record, waiting to be written. */
struct log_slot {
    struct log_slot *next;
    size_t capacity;   /* bytes */
    size_t size;       /* used, once appended */
    uint64_t reserved; /* log space promised for it */
    struct log_group group;
    uint8_t bytes[];
};

struct log_segment {
    uint64_t number;
    struct io_file *file;
    uint32_t cut_at; /* shorter than a segment: not fit for reuse; 0: it is whole */
};

struct log {
    struct io_device *dev;
    struct diag *diag;
    char *dir;
    uint8_t store_id[16];
    uint64_t checksum_seed;
    uint32_t segment_size;
    uint32_t timeline;
    bool complete;
    lsn_no previous;       /* where the log of the life before ended */
    uint64_t first_number; /* of this life's segments */
    uint64_t backlog_max_bytes;
    int (*before_sync)(void *arg);
    int (*raise_ceiling)(void *arg, lsn_no end);
    void *arg;

    struct mutex append_lock; /* LOCK_RANK_LOG: the groups, open_end, reserved */
    struct log_group *open;   /* records go here; NULL: the next record starts one */
    lsn_no open_start;        /* where the open group starts, or would */
    struct log_group *sealed, **sealed_last;
    lsn_no open_end;     /* where the open group ends as it is now */
    lsn_no appended_end; /* behind the last record */
    uint64_t reserved;   /* log space promised */

    struct mutex write_lock; /* LOCK_RANK_LOG_WRITE: writing, buffer */
    uint8_t *buffer;         /* LOG_BATCH_MAX */
    lsn_no vouched;          /* `synced` of the last batch written */
    lsn_no records_end;      /* behind the last group with records */
    _Atomic lsn_no written;

    struct mutex sync_lock; /* LOCK_RANK_LOG_SYNC */
    _Atomic lsn_no synced;

    struct mutex segments_lock;   /* LOCK_RANK_LOG_SEGMENTS */
    struct log_segment *segments; /* open ones, ascending */
    size_t segment_count, segment_capacity;
    uint64_t reusable; /* number of an old segment file kept for reuse, 0: none */
    _Atomic lsn_no prepared_end;
    _Atomic lsn_no hold_from;     /* LOG-7 */
    _Atomic uint64_t finished_to; /* number of the last segment once log_finish was called, else 0 */

    _Atomic int failure; /* LOG-5 */
    _Atomic uint64_t records, record_bytes, batches, bytes_written, syncs, sync_waits, segments_made, segments_reused;
};

/* ---- positions ---- */

static inline uint64_t log_align(uint64_t bytes)
{
    return (bytes + LOG_ALIGN - 1) / LOG_ALIGN * LOG_ALIGN;
}

/* The start of a segment is its header: a batch that would stand there stands behind it. */
static inline lsn_no log_skip_header(lsn_no position, uint32_t segment_size)
{
    return position % segment_size == 0 ? position + LOG_ALIGN : position;
}

/* Payload that the batch at `position` takes of what is left of its group. */
size_t log_batch_payload(lsn_no position, size_t left, uint32_t segment_size);
/* Where the log goes on when it leaves the segment of `position`. */
static inline lsn_no log_next_segment(lsn_no position, uint32_t segment_size)
{
    return log_skip_header((position / segment_size + 1) * segment_size, segment_size);
}
/* Where a group that starts at `start` ends (and the next one starts). */
lsn_no log_group_end(lsn_no start, size_t payload_size, uint32_t segment_size);

void log_segment_path(const char *dir, uint64_t number, char *path); /* LOG_PATH_SIZE */
/* Checksum of a batch: header (its checksum field left out), then payload right behind it in memory. */
uint64_t log_batch_checksum(const void *batch, size_t payload_size, uint64_t seed);
uint64_t log_checksum_seed(const uint8_t store_id[16]);

/* ---- log_segment.c ---- */

/* Makes segments until positions below `end` are prepared. */
int log_prepare(struct log *log, lsn_no end) WARN_UNUSED;
/* The open file of a segment. */
int log_segment_file(struct log *log, uint64_t number, struct io_file **out_file) WARN_UNUSED;
/* Syncs the segments that [from, to) lies in. */
int log_segments_sync(struct log *log, lsn_no from, lsn_no to) WARN_UNUSED;
/* The segment ends there: its file is cut, and that is durable. */
int log_segment_cut(struct log *log, lsn_no end) WARN_UNUSED;
void log_segments_close(struct log *log);
/* Remembers the first failure; returns it. */
int log_fail(struct log *log, const char *what, int rc);

#endif
