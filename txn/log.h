/*
 * txn/log.h - the write-ahead log: append, write, sync, segments.
 *
 *   log_reserve (no lock held) --> log_append (under the operation's locks, memory only)
 *                              --> log_write (no lock: into the segment file) --> log_sync (on the medium)
 *
 * LOG-1 The order of records is the order of log_append calls. What survives is a prefix of them.
 * LOG-2 A record is in its file when log_write returned 0 for its position, durable when log_sync did.
 * LOG-3 Nothing durable shares a sector with what is written later: batches are padded to LOG_ALIGN (RELIABILITY of
 *       docs/FORMAT.md).
 * LOG-4 Every batch tells up to where the log was durable when it was written. A bad batch below such a position is
 *       damage, above all of them it is the torn tail. An idle log writes one empty batch to vouch for the last one.
 * LOG-5 The first failed write or sync of the log stops it for good: everything after it answers that error.
 * LOG-6 A segment file is complete and durable (zeros, header, name) before anything is written into it.
 * LOG-7 A segment that the archive still wants (log_hold) is neither reused nor removed.
 */
#ifndef TBLFS_TXN_LOG_H
#define TBLFS_TXN_LOG_H

#include "base/diag.h"
#include "base/io.h"
#include "base/types.h"
#include "txn/log_format.h"
#include "txn/op.h"

struct log;

struct log_options {
    struct io_device *dev;
    struct diag *diag;
    const char *dir; /* the data directory; the log lies in DIR/log; copied */
    uint8_t store_id[16];
    uint32_t segment_size;      /* a multiple of LOG_ALIGN, at least 16 * LOG_ALIGN; 0: LOG_SEGMENT_SIZE */
    lsn_no start;               /* the log starts with a new segment at or above this position */
    lsn_no previous;            /* where the log of the life before ended; 0: there was none */
    uint32_t timeline;          /* of this store */
    bool complete;              /* the records of this life carry all bytes */
    uint64_t backlog_max_bytes; /* written but not durable bytes at which log_write waits for a sync; 0: 64 MiB */
    /* Before the log is synced: makes durable what its records refer to. May be NULL. */
    int (*before_sync)(void *arg);
    /* Before a position at or above what was allowed so far is used: allows it (control file). May be NULL. */
    int (*raise_ceiling)(void *arg, lsn_no end);
    void *arg;
};

/* Makes the first segment. -ENOSPC, -EIO. */
int log_open(const struct log_options *options, struct log **out_log) WARN_UNUSED;
/* Writes and syncs nothing. */
void log_close(struct log *log);

/* Room for one record: memory, and space in prepared segments. */
struct log_slot;

/* Promises room for a record of at most size_bytes, making a segment when needed. -ENOSPC, -ENOMEM: nothing is
 * promised; LOG-5 errors. */
int log_reserve(struct log *log, size_t size_bytes, struct log_slot **out_slot) WARN_UNUSED;
/* Gives back a promise that was not used. NULL is ignored. */
void log_unreserve(struct log *log, struct log_slot *slot);
/* Appends one record into its slot (taken over). Memory only, cannot fail. Returns its position: what log_write and
 * log_sync want. */
lsn_no log_append(struct log *log, const struct op_record *op, struct log_slot *slot);
/* The same. *out_lsn: of the record itself, as op_record.lsn will be when it is read: no other has it. */
lsn_no log_append_at(struct log *log, const struct op_record *op, struct log_slot *slot, lsn_no *out_lsn);
/* Waits until the record is in its file. Slows down when the disk falls behind. */
int log_write(struct log *log, lsn_no position) WARN_UNUSED;
/* Waits until the record is durable; one sync serves all who wait. */
int log_sync(struct log *log, lsn_no position) WARN_UNUSED;
/* The position at which the next record will stand, and a border: that record will start a new group. Called where no
 * operation is between append and apply (gate held exclusively). */
lsn_no log_mark(struct log *log);
/* As log_mark without making a border: nothing before it is missing. */
lsn_no log_end(struct log *log);
lsn_no log_synced_end(struct log *log);
/* Everything that was appended is durable. */
int log_sync_all(struct log *log) WARN_UNUSED;

/* The log writer's round: syncs what is written, vouches for it (LOG-4) when nothing follows, prepares the next
 * segment. */
int log_step(struct log *log) WARN_UNUSED;
/* Segments that lie wholly below this position are no longer needed: kept for reuse (one) or removed. */
int log_recycle(struct log *log, lsn_no keep_from) WARN_UNUSED;
/* Removes the segment that is kept for reuse. -ENOENT: there is none. */
int log_drop_spare(struct log *log) WARN_UNUSED;

/* LOG-7: segments from this position on are kept, whatever log_recycle is told. UINT64_MAX (as it starts): no archive. */
void log_hold(struct log *log, lsn_no from);
/* The smallest segment above `after` that is finished: nothing more will be written into it, and all of it is durable. False: there is none. */
bool log_next_finished(struct log *log, uint64_t after, uint64_t *out_number);
/* Was anything logged since the segment began that the log is in? */
bool log_is_in_segment(struct log *log);
/* The log goes on in the next segment; the one it was in is finished and cut where it ends. Does nothing behind the start of a segment. -ENOSPC: not
 * now. */
int log_switch(struct log *log) WARN_UNUSED;
/* At the end of a life: everything is durable, and the segment in which the log ends is cut there and finished. Nothing is appended after. */
int log_finish(struct log *log) WARN_UNUSED;
/* Number of the segment that the log begins with. */
uint64_t log_first_segment(const struct log *log);

struct log_stats {
    lsn_no end, written, synced;
    uint64_t records, record_bytes, batches, bytes_written, syncs, sync_waits, segments_made, segments_reused;
    uint32_t segments;
};
void log_get_stats(struct log *log, struct log_stats *out_stats);

/* A file of the log that is open, or kept for reuse. */
struct log_segment_use {
    uint64_t number;
    lsn_no start, end; /* what it has room for; spare: nothing */
    uint64_t bytes;    /* of the file */
    bool spare;        /* nothing in it counts */
    bool held;         /* the archive still wants it (LOG-7) */
};
/* The spare one first, then in ascending order. Called under a lock: fn must not call the log. Non-zero stops and is handed on. */
typedef int log_segment_fn(void *arg, const struct log_segment_use *use);
int log_each_segment(struct log *log, log_segment_fn *fn, void *arg);

/* ---- reading (txn/log_read.c): recovery and dump ---- */

/* For who reads more than the log of one life, and more than lies in the directory. */
struct log_chain {
    /* Puts the segment where it is looked for. -ENOENT: it is nowhere. */
    int (*fetch)(void *arg, uint64_t number);
    /* There is no group at `position`: what stands at `bad` is no batch of it, or is in a segment that is missing. 1: the log of the next life begins
     * at *out_next; 0: this is the end; negative: it should not be, and that was said. */
    int (*end)(void *arg, lsn_no position, lsn_no bad, bool missing, lsn_no *out_next);
    void *arg;
};

struct log_reader_options {
    struct io_device *dev;
    struct diag *diag;
    const char *dir;
    uint8_t store_id[16];
    uint32_t segment_size;         /* 0: LOG_SEGMENT_SIZE */
    lsn_no from;                   /* a group starts here */
    lsn_no until;                  /* stop here without looking further; 0: read to the end */
    const struct log_chain *chain; /* NULL: one life, whose end is judged */
    lsn_no *out_vouched;           /* all before it was durable when it was written to; NULL: not wanted */
};

/* Called for each record in order; position is that of its group. Non-zero stops and is handed on; -EBADMSG says that the record is bad
 * (it refers to something that is not there) and is treated as a bad checksum would be. */
typedef int log_record_fn(void *arg, lsn_no position, const struct op_record *op);

/* Reads to the end. *out_end: behind the last good group. *out_torn: something that was not vouched for was cut. -EIO:
 * a bad record below a position that was vouched for, or a missing segment: damage, reported with file, offset and what
 * to do. */
int log_read(const struct log_reader_options *options, log_record_fn *fn, void *arg, lsn_no *out_end,
             bool *out_torn) WARN_UNUSED;
/* Largest position at which any segment file of this store ends; 0: there is none. */
int log_find_end_of_segments(const struct log_reader_options *options, lsn_no *out_end) WARN_UNUSED;
/* Removes all segment files that lie wholly below a position, but those that `keep` (may be NULL) says yes to, and temporaries. */
typedef bool log_keep_fn(void *arg, uint64_t number);
int log_remove_below(const struct log_reader_options *options, lsn_no below, log_keep_fn *keep, void *arg) WARN_UNUSED;
/* What the header of a segment says. -ENOENT: it is missing, or its header is not valid. */
struct log_segment_info {
    uint64_t number;
    lsn_no start, previous; /* of its first byte; where the log before it ended */
    uint32_t segment_size, timeline;
    uint8_t store_id[16];
    bool complete;
};
int log_segment_info(const struct log_reader_options *options, uint64_t number,
                     struct log_segment_info *out_info) WARN_UNUSED;
/* The segment before it in the chain. False: it is the first one. */
bool log_segment_previous(const struct log_segment_info *info, uint64_t *out_number);

#endif
