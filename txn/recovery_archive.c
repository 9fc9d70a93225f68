/*
 * txn/recovery_archive.c - replays the log of many lives out of an archive, up to a record.
 *
 * As recovery does it (txn/recovery.c), but in one pass: with an archive no record refers to pages, and where the log ends is known from the chain. A
 * transaction's records are noted as they come and replayed where its commit stands; those that are open when a life ends are forgotten.
 * From time to time a checkpoint is taken, between two groups: what was replayed before it is not replayed again, and its space is given back.
 *
 * Locking: replay is alone.
 */
#include "txn/recovery_txn.h"
#include "txn/restore_int.h"
#include "txn/store_open.h"

#include "base/plant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STOP               1                   /* what log_read hands on when the target is reached */
#define STOPPED            (-ECANCELED)        /* the same out of the chain, where 1 means something else */
#define NUMBERS_OF_A_CLOSE (UINT64_C(1) << 20) /* more tables than one transaction rewrites */

struct replay_run {
    struct store *store;
    struct archive_replay *replay;
    struct recovery_txns txns;
    struct log_reader_options reader;
    struct log_chain chain;
    lsn_no redo;         /* what stands before it is in the store */
    lsn_no position;     /* of the group that is replayed */
    int fetch_rc;        /* what kept a segment from being brought, 0: nothing */
    lsn_no resumed;      /* what stands before it was done by an earlier call */
    lsn_no checkpointed; /* position of the last checkpoint */
};

static void note_number(_Atomic uint64_t *next, uint64_t used)
{
    if (used >= atomic_load(next)) {
        atomic_store(next, used + 1);
    }
}

/* Numbers that the records use are not given out again. */
static int note_numbers(struct store *store, const struct op_record *op)
{
    note_number(&store->next_txn, op->txn);
    note_number(&store->next_rel, op->rel);
    switch (op->type) {
    case OP_SNAPSHOT:
        note_number(&store->next_txn, op->ino);
        break;
    case OP_COMMIT:
        note_number(&store->next_ino, op->ino != INO_NONE ? op->ino + NUMBERS_OF_A_CLOSE : 0);
        break;
    case OP_CREATE:
        note_number(&store->next_ino, op->ino);
        break;
    default:
        break;
    }
    return store_ceilings_ensure(store, 0);
}

static void tell(const struct replay_run *run)
{
    struct restore_progress *progress = run->replay->progress;
    if (progress != NULL) {
        atomic_store_explicit(&progress->records, run->replay->records, memory_order_relaxed);
        atomic_store_explicit(&progress->position, run->position, memory_order_relaxed);
    }
}

static int checkpoint_at(struct replay_run *run, lsn_no position)
{
    struct store *store = run->store;
    const lsn_no first = recovery_txns_first(&run->txns);
    store->replay_lsn = PLANT(STANDBY_CHECKPOINT_AHEAD) ? position + LOG_ALIGN : position;
    store->replay_scan_lsn = first < position ? first : position;
    mutex_lock(&store->checkpoint_lock);
    const int rc = store_checkpoint_locked(store, CHECKPOINT_START, false);
    mutex_unlock(&store->checkpoint_lock);
    store_snapshots_close(store);
    run->checkpointed = position;
    return rc == 0 ? log_remove_below(&run->reader, store->replay_scan_lsn, NULL, NULL) : rc;
}

/* Between two groups: all that stands before the position is done. */
static int stand_at(struct replay_run *run, lsn_no position)
{
    const struct archive_replay *replay = run->replay;
    const struct archive_follower *follower = replay->follower;
    bool due = position > run->redo && position - run->checkpointed >= replay->checkpoint_log_bytes;
    bool stop = false;
    int rc = 0;
    if (follower != NULL && position >= replay->end) {
        bool wanted = false;
        rc = follower->came(follower->arg, position, replay->time_ns, &wanted, &stop);
        due |= (wanted || stop) && position > run->checkpointed;
    }
    if (rc == 0 && due) {
        rc = checkpoint_at(run, position);
    }
    return rc == 0 && stop ? STOP : rc;
}

static int come_to(struct replay_run *run, lsn_no position)
{
    if (position == run->position) {
        return 0;
    }
    run->position = position;
    tell(run);
    return stand_at(run, position);
}

static int do_record(struct replay_run *run, const struct op_record *op)
{
    char text[512];
    struct store *store = run->store;
    int rc =
        op->type == OP_COMMIT ? recovery_txn_commit(&run->txns, run->position, op) : store_replay_record(store, op);
    if (rc >= 0 && op->type != OP_COMMIT && run->txns.touched != NULL) {
        rc = txn_set_add(run->txns.touched, op, false);
    }
    if (rc >= 0) {
        return 0; /* 1: of a table that is damaged, which was said */
    }
    (void)op_record_print(op, text, sizeof text);
    diag_log(store->diag, DIAG_ERROR, "log position %" PRIu64 ": %s could not be replayed: %s", op->lsn, text,
             strerror(-rc));
    return rc == -ENOSPC || rc == -ENOMEM ? rc : -EIO;
}

/* One that is not in the store yet. */
static int replay_new(struct replay_run *run, const struct op_record *op)
{
    struct archive_replay *replay = run->replay;
    int rc = note_numbers(run->store, op);
    if (rc == 0 && (op->txn == 0 || op->type == OP_COMMIT)) {
        rc = do_record(run, op);
    }
    if (rc == 0) {
        replay->records++;
        replay->end = op->lsn + 1;
        replay->time_ns = op->time_ns;
        store_replay_time(run->store, op->time_ns);
    }
    return rc;
}

static int replay_record(void *arg, lsn_no position, const struct op_record *op)
{
    struct replay_run *run = arg;
    struct archive_replay *replay = run->replay;
    const bool is_new = position >= run->redo && op->lsn >= run->resumed;
    bool after = false;
    int rc = come_to(run, position);
    if (rc != 0) {
        return rc;
    }
    if (op->type == OP_WRITE_PAGES && is_new) {
        diag_log(run->store->diag, DIAG_ERROR,
                 "log position %" PRIu64 ": the record refers to pages: no archive was configured when it was written",
                 op->lsn);
        return -EIO;
    }
    const bool stops = is_new && replay->stops(replay->arg, op, &after);
    if (stops && !after) {
        replay->end = op->lsn;
        replay->stopped = true;
        return STOP;
    }
    rc = op->txn != 0 ? recovery_txn_note(&run->txns, position, op, is_new) : 0;
    if (rc == 0 && is_new) {
        rc = replay_new(run, op);
    }
    if (rc == 0 && stops) {
        replay->stopped = true;
        rc = STOP;
    }
    return rc;
}

static bool waits(struct replay_run *run, lsn_no position, int rc)
{
    const struct archive_follower *follower = run->replay->follower;
    return follower != NULL && follower->wait(follower->arg, position, rc);
}

/* The same position once more, now or later. */
static int try_again(struct replay_run *run, lsn_no position, int rc, lsn_no *out_next)
{
    const int stand_rc = run->replay->follower != NULL ? stand_at(run, position) : 0;
    if (stand_rc != 0) {
        return stand_rc == STOP ? STOPPED : stand_rc;
    }
    *out_next = position;
    if (waits(run, position, rc)) {
        return 1;
    }
    const bool behind = run->replay->follower != NULL && position > run->checkpointed;
    const int checkpoint_rc = behind ? checkpoint_at(run, position) : 0;
    return rc != 0 ? rc : checkpoint_rc;
}

/* Transactions end with the life that they began in. */
static int end_of_life(void *arg, lsn_no position, lsn_no bad, bool missing, lsn_no *out_next)
{
    struct replay_run *run = arg;
    const struct log_chain *chain = run->replay->chain;
    const int rc = run->fetch_rc != 0 ? run->fetch_rc : chain->end(chain->arg, position, bad, missing, out_next);
    run->fetch_rc = 0;
    if (rc == 1) {
        recovery_txns_free(&run->txns);
        return rc;
    }
    return try_again(run, position, rc, out_next);
}

static int fetch(void *arg, uint64_t number)
{
    struct replay_run *run = arg;
    const struct log_chain *chain = run->replay->chain;
    const int rc = chain->fetch(chain->arg, number);
    if (rc != 0 && rc != -ENOENT && run->replay->follower != NULL) {
        run->fetch_rc = rc;
        return -ENOENT; /* for now: end_of_life waits */
    }
    return rc;
}

int store_replay_archive(struct store *store, struct archive_replay *replay)
{
    struct replay_run run = {.store = store,
                             .replay = replay,
                             .txns = {.store = store},
                             .redo = store->control.redo_lsn,
                             .resumed = replay->end};
    run.chain = (struct log_chain){.fetch = fetch, .end = end_of_life, .arg = &run};
    run.reader = (struct log_reader_options){.dev = store->dev,
                                             .diag = store->diag,
                                             .dir = store->dir,
                                             .segment_size = replay->segment_size,
                                             .from = store->control.scan_lsn,
                                             .chain = &run.chain};
    memcpy(run.reader.store_id, store->control.store_id, sizeof run.reader.store_id);
    run.txns.reader = &run.reader;
    run.txns.touched = replay->follower != NULL ? replay->follower->touched : NULL;
    run.checkpointed = run.redo;
    lsn_no end = 0;
    bool torn = false;
    replay->end = replay->end > run.redo ? replay->end : run.redo;
    int rc = log_read(&run.reader, replay_record, &run, &end, &torn);
    if (rc == 0) {
        replay->end = end > replay->end ? end : replay->end;
    }
    recovery_txns_free(&run.txns);
    store_sweep_dead(store, SWEEP_REDO);
    return rc == STOP || rc == STOPPED ? 0 : rc;
}

int store_replay_finish(struct store *store, lsn_no end, const uint8_t store_id[16], uint32_t timeline)
{
    store->replay_lsn = end;
    store->replay_scan_lsn = end;
    atomic_fetch_add(&store->changes, 1); /* the position has to be named */
    mutex_lock(&store->checkpoint_lock);
    int rc = store_checkpoint_locked(store, CHECKPOINT_START, false);
    mutex_unlock(&store->checkpoint_lock);
    if (rc == 0) {
        store->first_rel = atomic_load(&store->next_rel);
        rc = store_remove_unnamed_files(store);
    }
    return rc == 0 ? store_control_end_restore(store, end, store_id, timeline) : rc;
}
