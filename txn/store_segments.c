/*
 * txn/store_segments.c - what somebody who keeps the store running looks at: where it is, the files of its log, its last checkpoints.
 *
 * Locking: the gate, shared, for the position; the log's segments_lock for its files; checkpoints_lock (LOCK_RANK_LEAF) for the lines. Nothing
 * is read, pinned or written.
 */
#include "txn/store_archive.h"

/* ---- position ---- */

/* The gate: a commit's record and its number are one to whoever holds it. */
void store_get_position(struct store *store, struct store_position *out_position)
{
    lsn_no read_only_lsn;
    mutex_lock(&store->control_lock);
    out_position->timeline = store->control.timeline;
    read_only_lsn = store->control.redo_lsn;
    mutex_unlock(&store->control_lock);
    cow_gate_enter(store->cow);
    out_position->commits = atomic_load(&store->commits);
    out_position->lsn = store->log != NULL ? log_end(store->log) : read_only_lsn;
    cow_gate_leave(store->cow);
}

/* ---- files of the log ---- */

const char *store_segment_state_name(enum store_segment_state state)
{
    static const char *const names[STORE_SEGMENT_STATES] = {
        [STORE_SEGMENT_SPARE] = "spare",         [STORE_SEGMENT_RECYCLABLE] = "recyclable",
        [STORE_SEGMENT_ARCHIVING] = "archiving", [STORE_SEGMENT_TRANSACTION] = "transaction",
        [STORE_SEGMENT_NEEDED] = "needed",       [STORE_SEGMENT_CURRENT] = "current",
        [STORE_SEGMENT_PREPARED] = "prepared",
    };
    return names[state];
}

struct segments {
    store_segment_fn *fn;
    void *arg;
    lsn_no redo, scan, end;
};

static enum store_segment_state state_of(const struct segments *segments, const struct log_segment_use *use)
{
    if (use->spare) {
        return STORE_SEGMENT_SPARE;
    }
    if (use->start > segments->end) {
        return STORE_SEGMENT_PREPARED;
    }
    if (use->end > segments->end) {
        return STORE_SEGMENT_CURRENT;
    }
    if (use->end > segments->redo) {
        return STORE_SEGMENT_NEEDED;
    }
    if (use->end > segments->scan) {
        return STORE_SEGMENT_TRANSACTION;
    }
    return use->held ? STORE_SEGMENT_ARCHIVING : STORE_SEGMENT_RECYCLABLE;
}

static int tell_segment(void *arg, const struct log_segment_use *use)
{
    const struct segments *segments = arg;
    return segments->fn(segments->arg, &(struct store_segment){.number = use->number,
                                                               .start = use->start,
                                                               .end = use->end,
                                                               .bytes = use->bytes,
                                                               .state = state_of(segments, use)});
}

int store_each_segment(struct store *store, store_segment_fn *fn, void *arg)
{
    struct segments segments = {.fn = fn, .arg = arg};
    if (store->log == NULL) {
        return 0;
    }
    mutex_lock(&store->control_lock);
    segments.redo = store->control.redo_lsn;
    segments.scan = store->control.scan_lsn;
    mutex_unlock(&store->control_lock);
    segments.end = log_end(store->log);
    const int rc = store_archive_each_old(store, fn, arg);
    return rc != 0 ? rc : log_each_segment(store->log, tell_segment, &segments);
}

/* ---- checkpoints ---- */

const char *store_checkpoint_cause_name(enum store_checkpoint_cause cause)
{
    static const char *const names[CHECKPOINT_CAUSES] = {
        [CHECKPOINT_START] = "start", [CHECKPOINT_INTERVAL] = "interval", [CHECKPOINT_LOG] = "log",
        [CHECKPOINT_SPACE] = "space", [CHECKPOINT_FULL] = "full_disk",    [CHECKPOINT_BACKUP] = "backup",
        [CHECKPOINT_ASKED] = "asked", [CHECKPOINT_CLOSE] = "close",
    };
    return names[cause];
}

void store_note_checkpoint(struct store *store, const struct store_checkpoint_line *line)
{
    mutex_lock(&store->checkpoints_lock);
    store->checkpoint_lines[store->checkpoint_count++ % STORE_CHECKPOINT_LINES] = *line;
    mutex_unlock(&store->checkpoints_lock);
}

int store_each_checkpoint(struct store *store, store_checkpoint_fn *fn, void *arg)
{
    int rc = 0;
    mutex_lock(&store->checkpoints_lock);
    const uint64_t count = store->checkpoint_count;
    for (uint64_t i = count > STORE_CHECKPOINT_LINES ? count - STORE_CHECKPOINT_LINES : 0; i < count && rc == 0; i++) {
        rc = fn(arg, &store->checkpoint_lines[i % STORE_CHECKPOINT_LINES]);
    }
    mutex_unlock(&store->checkpoints_lock);
    return rc;
}
