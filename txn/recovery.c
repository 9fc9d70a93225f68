/*
 * txn/recovery.c - from the checkpoint in force and the log behind it to a store that may be used.
 *
 * RECOVERY-1 Nothing is decided: each record goes through the plan and apply of its operation with the numbers that it
 *            carries.
 * RECOVERY-2 Nothing of the old log is touched before a durable checkpoint that includes it names a new one: a crash at
 *            any point starts recovery again from the same place.
 * RECOVERY-3 The log is read twice: first for the pages that records refer to (PAGES-3), which also tells where it ends,
 *            then to replay.
 * RECOVERY-4 What a record finds must be what its operation found (sizes, names, inodes): anything else means that the
 *            log does not belong to this data directory or that the store is damaged, and the mount is refused.
 * RECOVERY-6 The log is read from the first record of the oldest transaction that was open at the checkpoint. A transaction's records are
 *            replayed where its commit stands, in a fork, and swapped in as a whole (txn/publish.h); those of others are passed over.
 * RECOVERY-5 A table whose page cannot be read is marked damaged, said, and its records are skipped: it answers EIO
 *            until it is removed. Damage in the catalog refuses the mount.
 */
#include "txn/recovery_txn.h"
#include "txn/store_archive.h"

#include "base/plant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PROGRESS_RECORDS 100000u

struct recovery {
    struct store *store;
    uint64_t records;
    uint64_t skipped; /* of damaged tables */
    lsn_no position;
    lsn_no vouched; /* everything before it is surely on the medium */
    struct recovery_txns txns;
    struct log_reader_options reader;
};

int store_replay_record(struct store *store, const struct op_record *op)
{
    switch (op->type) {
    case OP_CREATE:
    case OP_LINK:
    case OP_UNLINK:
    case OP_RMDIR:
    case OP_RENAME:
    case OP_DESTROY:
        return store_names_replay(store, store_live(store), op);
    case OP_SNAPSHOT:
    case OP_SNAPSHOT_DROP:
    case OP_SNAPSHOT_RENAME:
        return store_snapshot_replay(store, op);
    case OP_TABLESPACE:
    case OP_TABLESPACE_DROP:
        return store_tablespace_replay(store, op);
    case OP_SETATTR:
    case OP_SETXATTR:
    case OP_REMOVEXATTR:
        return store_attr_replay(store, store_live(store), op);
    case OP_RESIZE:
        if (PLANT(REPLAY_SKIPS_RESIZE)) {
            return 0;
        }
        return store_content_replay(store, store_live(store), op);
    case OP_WRITE:
    case OP_WRITE_PAGES:
    case OP_PUNCH:
        return store_content_replay(store, store_live(store), op);
    default:
        return -EBADMSG;
    }
}

void store_replay_time(struct store *store, int64_t time_ns)
{
    if (time_ns > atomic_load(&store->last_time_ns)) {
        atomic_store(&store->last_time_ns, time_ns);
    }
}

/* ---- progress ---- */

static void enter_phase(struct store *store, enum store_phase phase, uint64_t total_bytes)
{
    struct store_progress *progress = store->progress;
    if (progress == NULL) {
        return;
    }
    atomic_store(&progress->done_bytes, 0);
    atomic_store(&progress->total_bytes, total_bytes);
    atomic_store(&progress->phase, phase);
}

static void come_to(struct store *store, lsn_no position, uint64_t records)
{
    struct store_progress *progress = store->progress;
    if (progress == NULL) {
        return;
    }
    atomic_store_explicit(&progress->done_bytes, position - store->control.scan_lsn, memory_order_relaxed);
    atomic_store_explicit(&progress->records, records, memory_order_relaxed);
}

void store_progress_look(void *arg, struct progress_state *out_state)
{
    static const char *const phases[] = {
        [STORE_PHASE_OPEN] = NULL,
        [STORE_PHASE_READ_LOG] = "reading the log",
        [STORE_PHASE_REPLAY] = "replaying the log",
        [STORE_PHASE_CHECKPOINT] = "writing what was replayed",
    };
    const struct store_progress *progress = arg;
    const enum store_phase phase = atomic_load(&progress->phase);
    out_state->what = phases[phase];
    out_state->done = atomic_load(&progress->done_bytes);
    out_state->total = atomic_load(&progress->total_bytes);
    if (phase == STORE_PHASE_REPLAY) {
        (void)snprintf(out_state->detail, sizeof out_state->detail, "%" PRIu64 " records",
                       atomic_load(&progress->records));
    }
}

/* ---- the two passes ---- */

/* First pass: what the records refer to, and thereby where the log ends. */
static int note_record(void *arg, lsn_no position, const struct op_record *op)
{
    struct recovery *recovery = arg;
    come_to(recovery->store, position, 0);
    const bool is_new = position >= recovery->store->control.redo_lsn;
    if (op->txn != 0) {
        return recovery_txn_note(&recovery->txns, position, op, is_new);
    }
    return is_new && op->type == OP_WRITE_PAGES && !PLANT(REFERRED_PAGES_NOT_READ)
               ? store_recovery_note_pages(recovery->store, op)
               : 0;
}

static int replay_record(void *arg, lsn_no position, const struct op_record *op)
{
    struct recovery *recovery = arg;
    struct store *store = recovery->store;
    const bool inside = PLANT(REPLAYED_IN_PLACE) ? op->type == OP_COMMIT : op->txn != 0 && op->type != OP_COMMIT;
    if (position < store->control.redo_lsn || inside) {
        return 0; /* in the checkpoint; or replayed with the transaction's commit */
    }
    store->recovery_by_value = position >= recovery->vouched;
    const int rc =
        op->type == OP_COMMIT ? recovery_txn_commit(&recovery->txns, position, op) : store_replay_record(store, op);
    recovery->skipped += rc == 1;
    if (rc < 0) {
        char text[512];
        (void)op_record_print(op, text, sizeof text);
        diag_log(store->diag, DIAG_ERROR, "%s: log position %" PRIu64 ": %s could not be replayed: %s", store->dir,
                 position, text, strerror(-rc));
        return rc == -ENOSPC || rc == -ENOMEM ? rc : -EIO;
    }
    store_replay_time(store, op->time_ns);
    recovery->position = position;
    come_to(store, position, recovery->records + 1);
    if (++recovery->records % PROGRESS_RECORDS == 0) {
        diag_log(store->diag, DIAG_INFO, "redo: %" PRIu64 " records, log position %" PRIu64, recovery->records,
                 position);
    }
    return 0;
}

static struct log_reader_options reader_options(const struct store *store)
{
    struct log_reader_options options = {.dev = store->dev,
                                         .diag = store->diag,
                                         .dir = store->dir,
                                         .segment_size = store->log_segment_size,
                                         .from = store->control.scan_lsn};
    memcpy(options.store_id, store->control.store_id, sizeof options.store_id);
    return options;
}

static void report_done(struct store *store, const struct recovery *recovery, lsn_no end, bool torn, uint64_t start_ns)
{
    struct bufcache_stats stats;
    bufcache_get_stats(store->cache, &stats);
    const uint64_t ms = (io_monotonic_ns(store->dev) - start_ns) / 1000000;
    store->redo_records = recovery->records;
    store->redo_ms = ms;
    diag_log(store->diag, DIAG_INFO,
             "redo done at %" PRIu64 "%s: %" PRIu64 " ms, %" PRIu64 " records, %" PRIu64 " sweeps, %" PRIu64
             " tags read, %" PRIu64 " pages discarded",
             end, torn ? " (torn tail cut)" : "", ms, recovery->records, stats.sweeps, stats.tags_read, stats.discards);
    if (recovery->skipped > 0) {
        diag_log(store->diag, DIAG_ERROR, "%s: %" PRIu64 " records of damaged tables were skipped", store->dir,
                 recovery->skipped);
    }
}

/* RECOVERY-3 */
static int read_twice(struct store *store, struct recovery *recovery, lsn_no *out_end, bool *out_torn)
{
    struct log_reader_options options = recovery->reader;
    lsn_no segments_end = 0;
    bool ignored = false;
    int rc = log_find_end_of_segments(&options, &segments_end);
    if (rc != 0) {
        return rc;
    }
    enter_phase(store, STORE_PHASE_READ_LOG, segments_end > options.from ? segments_end - options.from : 0);
    options.out_vouched = &recovery->vouched;
    rc = log_read(&options, note_record, recovery, out_end, out_torn);
    if (rc != 0) {
        return rc;
    }
    enter_phase(store, STORE_PHASE_REPLAY, *out_end - options.from);
    options.until = *out_end;
    options.out_vouched = NULL;
    return log_read(&options, replay_record, recovery, out_end, &ignored);
}

int store_recover(struct store *store)
{
    struct recovery recovery = {.store = store, .txns = {.store = store}, .reader = reader_options(store)};
    recovery.txns.reader = &recovery.reader;
    lsn_no end = 0;
    bool torn = false;
    const uint64_t start_ns = io_monotonic_ns(store->dev);
    store_replay_time(store, store->control.written_ns);
    store->log_previous = store->control.redo_lsn;
    if (store->control.clean) {
        return 0;
    }
    diag_log(store->diag, DIAG_INFO, "redo starts at %" PRIu64, store->control.redo_lsn);
    store->recovering = true;
    const int rc = read_twice(store, &recovery, &end, &torn);
    store->recovering = false;
    enter_phase(store, STORE_PHASE_CHECKPOINT, 0);
    store_recovery_forget_pages(store);
    recovery_txns_free(&recovery.txns);
    store_sweep_dead(store, SWEEP_REDO);
    if (rc == 0) {
        store->log_previous = end;
        report_done(store, &recovery, end, torn, start_ns);
    }
    return rc;
}

int store_log_open(struct store *store)
{
    const struct log_reader_options reader = reader_options(store);
    lsn_no segments_end = 0;
    const int rc = log_find_end_of_segments(&reader, &segments_end);
    if (rc != 0) {
        return rc;
    }
    struct log_options options = {.dev = store->dev,
                                  .diag = store->diag,
                                  .dir = store->dir,
                                  .segment_size = store->log_segment_size,
                                  .start = store->log_start > segments_end ? store->log_start : segments_end,
                                  .previous = store->log_previous,
                                  .timeline = store->control.timeline,
                                  .complete = store->archive != NULL,
                                  .before_sync = store_sync_referenced,
                                  .raise_ceiling = store_log_ceiling,
                                  .arg = store};
    memcpy(options.store_id, store->control.store_id, sizeof options.store_id);
    options.start = PLANT(LOG_STARTS_OVER) ? store->control.redo_lsn : options.start;
    return log_open(&options, &store->log);
}

int store_log_forget_old(struct store *store)
{
    const struct log_reader_options reader = reader_options(store);
    const lsn_no needed = store->control.clean ? UINT64_MAX : reader.from; /* behind a clean end no log is read */
    return log_remove_below(&reader, PLANT(OLD_LOG_REMOVED_EARLY) ? store->log_start : needed, store_archive_wants,
                            store);
}
