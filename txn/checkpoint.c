/*
 * txn/checkpoint.c - checkpoints, sweeps of dead relations, ceilings, and the thread that does them in the background.
 *
 *   fork --> sweep --> write dirty pages born up to the fork --> sync relations --> control slot --> the fork is
 * durable
 *        --> the previous durable holder closes --> files of relations that nobody sees go
 *
 * CKPT-1 The control slot is written only after every page that its roots reach is on the medium.
 * CKPT-2 The previous durable checkpoint is closed (its blocks freed) only after the slot is on the medium.
 * CKPT-3 A step that fails makes the store read-only: nothing is tried again.
 *
 * Locking: checkpoint_lock (LOCK_RANK_STORE) for all of it; writers are stopped by the gate for the fork alone.
 */
#include "txn/store_archive.h"
#include "txn/store_compact_auto.h"
#include "txn/store_sidecar.h"
#include "txn/store_txn.h"

#include "base/plant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CEILING_RANGE       (UINT64_C(1) << 20)
#define CEILING_MARGIN      (UINT64_C(1) << 12)
#define CEILING_LSN_RANGE   (UINT64_C(1) << 34)
#define THREAD_PERIOD_MS    50u
#define DEFERRED_BLOCKS_MAX 16384u /* 128 MiB of replaced blocks bring the next checkpoint forward */

/* ---- sweeps ---- */

/* For bench/transactions only: one sweep for each relation, to show what one for all of them saves. */
#ifdef TBLFS_SWEEP_EACH
#define SWEEP_EACH true
#else
#define SWEEP_EACH false
#endif

const char *store_sweep_cause_name(enum store_sweep_cause cause)
{
    static const char *const names[SWEEP_CAUSES] = {
        [SWEEP_UNLINK] = "unlink",         [SWEEP_COMMIT] = "commit", [SWEEP_ABORT] = "abort",
        [SWEEP_CHECKPOINT] = "checkpoint", [SWEEP_REDO] = "redo",     [SWEEP_UNLINK_FILE] = "unlink_file",
    };
    return names[cause];
}

static void record_sweep(struct store *store, enum store_sweep_cause cause, txn_no txn,
                         const struct drop_result *result)
{
    mutex_lock(&store->sweeps_lock);
    store->sweeps_of[cause]++;
    store->sweeps[store->sweep_count++ % STORE_SWEEP_LINES] = (struct store_sweep){
        .time_ns = (int64_t)io_realtime_ns(store->dev), .cause = cause, .txn = txn, .result = *result};
    mutex_unlock(&store->sweeps_lock);
}

static void sweep(struct store *store, enum store_sweep_cause cause, txn_no txn, struct relation **relations,
                  uint32_t count)
{
    struct drop_result result;
    bufcache_drop_relations(store->cache, relations, count, &result);
    record_sweep(store, cause, txn, &result);
}

static void sweep_dead(struct store *store, enum store_sweep_cause cause, txn_no txn)
{
    struct relation **relations = NULL;
    const uint32_t count = cow_take_dead(store->cow, &relations);
    const uint32_t at_once = SWEEP_EACH ? 1 : count;
    for (uint32_t done = 0; done < count; done += at_once) {
        sweep(store, cause, txn, relations + done, at_once);
    }
    for (uint32_t i = 0; i < count; i++) {
        relation_unref(relations[i]);
    }
    free(relations);
}

void store_sweep_dead(struct store *store, enum store_sweep_cause cause)
{
    sweep_dead(store, cause, 0);
}

/* Not beside store_check, which reads what durable checkpoints still see of dropped relations, nor beside a checkpoint, which
 * sweeps itself. */
void store_sweep_dead_of(struct store *store, enum store_sweep_cause cause, txn_no txn)
{
    if (mutex_try_lock(&store->checkpoint_lock)) {
        sweep_dead(store, cause, txn);
        mutex_unlock(&store->checkpoint_lock);
    }
}

int store_each_sweep(struct store *store, store_sweep_fn *fn, void *arg)
{
    int rc = 0;
    mutex_lock(&store->sweeps_lock);
    const uint64_t first = store->sweep_count > STORE_SWEEP_LINES ? store->sweep_count - STORE_SWEEP_LINES : 0;
    for (uint64_t i = first; i < store->sweep_count && rc == 0; i++) {
        rc = fn(arg, &store->sweeps[i % STORE_SWEEP_LINES]);
    }
    mutex_unlock(&store->sweeps_lock);
    return rc;
}

/* A durable checkpoint's tree may have been read after its relations were swept (a map being built, a check). */
static bool any_resident(struct relation *const *relations, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (relation_resident(relations[i]) > 0) {
            return true;
        }
    }
    return false;
}

/* Files of relations that no version sees any more. A file that cannot be removed stays and is reported; the start
 * after an unclean end looks for such files. */
static void unlink_removable(struct store *store)
{
    struct relation **relations = NULL;
    const uint32_t count = cow_take_removable(store->cow, &relations);
    if (any_resident(relations, count)) {
        sweep(store, SWEEP_UNLINK_FILE, 0, relations, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        store_sidecar_forget(store, relations[i]);
        const int rc = relation_unlink_file(relations[i]);
        if (rc != 0) {
            diag_log(store->diag, DIAG_WARNING, "%s: file of dropped relation %llu could not be removed: %s",
                     store->dir, (unsigned long long)relation_number(relations[i]), strerror(-rc));
        }
        relation_unref(relations[i]);
    }
    free(relations);
}

/* ---- control file and ceilings (STORE-5) ---- */

/* Writes what `change` makes of the control slot in force. After a failure the slot not in force may be torn in one copy,
 * or be in force after all: nobody writes there again (CKPT-3). */
static int control_update(struct store *store, void (*change)(struct store *store, struct control *control, void *arg),
                          void *arg)
{
    mutex_lock(&store->control_lock);
    struct control control = store->control;
    change(store, &control, arg);
    const int rc = store->control_failed != 0 ? store->control_failed : control_write(store->dev, store->dir, &control);
    store->control_failed = rc;
    if (rc == 0) {
        store->control = control;
        atomic_store(&store->ceiling_epoch, control.ceiling_epoch);
        atomic_store(&store->ceiling_rel, control.ceiling_rel);
        atomic_store(&store->ceiling_ino, control.ceiling_ino);
        atomic_store(&store->ceiling_lsn, control.ceiling_lsn);
        atomic_store(&store->ceiling_txn, control.ceiling_txn);
    }
    mutex_unlock(&store->control_lock);
    return rc;
}

/* Several threads may raise at once, with positions of different age: a ceiling never comes down. */
static uint64_t raised(uint64_t ceiling, uint64_t wanted)
{
    return ceiling > wanted ? ceiling : wanted;
}

struct raise_arg {
    lsn_no log_end;
    uint64_t inodes; /* that will be taken at once */
};

static void raise_ceilings(struct store *store, struct control *control, void *arg)
{
    const struct raise_arg *ra = arg;
    if (store->log == NULL) { /* the first slot of a life */
        control->sidecar_epoch = store_sidecars_epoch(store, control);
    }
    control->ceiling_epoch = raised(control->ceiling_epoch, cow_epoch(store->cow) + CEILING_RANGE);
    control->ceiling_rel = raised(control->ceiling_rel, atomic_load(&store->next_rel) + CEILING_RANGE);
    control->ceiling_ino = raised(control->ceiling_ino, atomic_load(&store->next_ino) + ra->inodes + CEILING_RANGE);
    control->ceiling_txn = raised(control->ceiling_txn, atomic_load(&store->next_txn) + CEILING_RANGE);
    control->ceiling_lsn = raised(control->ceiling_lsn, ra->log_end + CEILING_LSN_RANGE);
}

static int ceilings_raise(struct store *store, lsn_no log_end, uint64_t inodes)
{
    struct raise_arg ra = {.log_end = log_end, .inodes = inodes};
    const int rc = control_update(store, raise_ceilings, &ra);
    if (rc != 0) {
        store_fail(store, "raising the ceilings in the control file failed", rc);
    }
    return rc;
}

int store_ceilings_raise(struct store *store, uint64_t inodes)
{
    return ceilings_raise(store, store->log != NULL ? log_end(store->log) : store->control.ceiling_lsn, inodes);
}

static bool ceilings_are_near(const struct store *store, uint64_t inodes)
{
    return atomic_load(&store->next_ino) + inodes + CEILING_MARGIN >= atomic_load(&store->ceiling_ino) ||
           atomic_load(&store->next_rel) + CEILING_MARGIN >= atomic_load(&store->ceiling_rel) ||
           atomic_load(&store->next_txn) + CEILING_MARGIN >= atomic_load(&store->ceiling_txn) ||
           cow_epoch(store->cow) + CEILING_MARGIN >= atomic_load(&store->ceiling_epoch);
}

int store_ceilings_ensure(struct store *store, uint64_t inodes)
{
    return ceilings_are_near(store, inodes) ? store_ceilings_raise(store, inodes) : 0;
}

int store_log_ceiling(void *arg, lsn_no end)
{
    struct store *store = arg;
    return end <= atomic_load(&store->ceiling_lsn) ? 0 : ceilings_raise(store, end, 0);
}

static void set_redo(struct store *store, struct control *control, void *arg)
{
    (void)store;
    control->redo_lsn = *(const lsn_no *)arg;
    control->scan_lsn = control->redo_lsn;
    control->clean = false;
}

int store_control_set_redo(struct store *store, lsn_no redo)
{
    return control_update(store, set_redo, &redo);
}

static void set_clean(struct store *store, struct control *control, void *arg)
{
    (void)arg;
    control->clean = true;
    store_sidecars_sign(store, control, control->epoch);
}

int store_control_set_clean(struct store *store)
{
    const int rc = control_update(store, set_clean, NULL);
    if (rc != 0) {
        store_fail(store, "writing the control file failed", rc);
    }
    return rc;
}

static void set_end(struct store *store, struct control *control, void *arg)
{
    (void)store;
    control->redo_lsn = *(const lsn_no *)arg;
    control->scan_lsn = control->redo_lsn;
}

int store_control_set_end(struct store *store, lsn_no end)
{
    return store->control.redo_lsn == end ? 0 : control_update(store, set_end, &end);
}

struct end_restore {
    lsn_no end;
    const uint8_t *store_id;
    uint32_t timeline;
};

static void set_restored(struct store *store, struct control *control, void *arg)
{
    const struct end_restore *end = arg;
    (void)store;
    memcpy(control->store_id, end->store_id, sizeof control->store_id);
    control->timeline = end->timeline;
    control->redo_lsn = end->end;
    control->scan_lsn = end->end;
    control->ceiling_lsn = raised(control->ceiling_lsn, end->end + CEILING_LSN_RANGE);
    control->restoring = false;
    control->clean = true;
}

int store_control_end_restore(struct store *store, lsn_no end, const uint8_t store_id[16], uint32_t timeline)
{
    struct end_restore er = {.end = end, .store_id = store_id, .timeline = timeline};
    return control_update(store, set_restored, &er);
}

/* ---- checkpoint ---- */

struct checkpoint {
    struct holder *fork;
    lsn_no lsn;
    lsn_no scan_lsn; /* first record of the oldest open transaction, or lsn */
    uint64_t changes;
    uint64_t inode_count;
    uint64_t commits;
    int64_t time_ns; /* no operation in it is later, none that follows is earlier */
    bool clean;
    enum store_checkpoint_cause cause;
    uint64_t number;          /* of its control slot */
    uint64_t began_ns, pages; /* pages: written */
    struct holder **held;     /* a second holder of the same version; NULL: none is wanted */
};

static int write_pages(struct store *store, struct checkpoint *checkpoint)
{
    struct writeback_result result = {0};
    int rc = bufcache_write_back(store->cache, cow_holder_at(checkpoint->fork), &result);
    if (rc == 0 && !PLANT(PAGES_NOT_SYNCED)) {
        rc = bufcache_sync_relations(store->cache);
    }
    atomic_fetch_add(&store->checkpoint_pages, result.pages);
    checkpoint->pages = result.pages;
    return rc;
}

static void set_checkpoint(struct store *store, struct control *control, void *arg)
{
    struct checkpoint *checkpoint = arg;
    checkpoint->number = control->number + 1; /* as control_write will */
    control->epoch = cow_holder_at(checkpoint->fork);
    control->catalog = cow_holder_root(checkpoint->fork);
    control->redo_lsn = PLANT(REDO_NOT_MOVED) ? control->redo_lsn : checkpoint->lsn;
    control->scan_lsn = PLANT(SCAN_POSITION_IGNORED) ? checkpoint->lsn : checkpoint->scan_lsn;
    control->commits = checkpoint->commits;
    control->clean = checkpoint->clean;
    control->inode_count = checkpoint->inode_count;
    if (checkpoint->clean) {
        store_sidecars_sign(store, control, control->epoch);
    }
}

/* The fork is exactly one log position: no operation is between append and apply while the gate is closed. */
static int fork_checkpoint(struct store *store, struct checkpoint *checkpoint)
{
    cow_gate_close(store->cow);
    if (store->log != NULL) {
        checkpoint->lsn = log_mark(store->log);
        checkpoint->scan_lsn = store_txns_scan_lsn(store, checkpoint->lsn);
    } else {
        checkpoint->lsn = store->replay_lsn != 0 ? store->replay_lsn : store->control.redo_lsn;
        checkpoint->scan_lsn = store->replay_lsn != 0 ? store->replay_scan_lsn : checkpoint->lsn;
    }
    checkpoint->time_ns = atomic_load(&store->last_time_ns);
    checkpoint->commits = atomic_load(&store->commits);
    checkpoint->changes = atomic_load(&store->changes);
    checkpoint->inode_count =
        atomic_load(&store->inode_count); /* not later: replay counts what comes behind the fork */
    int rc = cow_fork_locked(store->cow, HOLDER_CHECKPOINT, &checkpoint->fork);
    if (rc == 0 && checkpoint->held != NULL) {
        rc = cow_fork_locked(store->cow, HOLDER_BACKUP, checkpoint->held); /* shares its epoch */
    }
    cow_gate_open(store->cow);
    if (rc != 0 && checkpoint->fork != NULL) {
        cow_holder_close(store->cow, checkpoint->fork);
    }
    return rc;
}

/* Makes the fork durable. On an error it stays open, since the medium may name it. */
static int write_checkpoint(struct store *store, struct checkpoint *checkpoint)
{
    store->unfinished = checkpoint->fork;
    int rc = write_pages(store, checkpoint);
    if (rc != 0) {
        store_fail(store, "writing pages for a checkpoint failed", rc);
        return rc;
    }
    if (PLANT(FILE_UNLINKED_EARLY)) {
        unlink_removable(store);
    }
    rc = PLANT(LOG_RECYCLED_EARLY) ? log_recycle(store->log, checkpoint->lsn) : 0;
    rc = rc != 0 ? rc : control_update(store, set_checkpoint, checkpoint);
    if (rc != 0) {
        store_fail(store, "writing the control file failed", rc);
        return rc;
    }
    store->unfinished = NULL;
    return 0;
}

/* The file ends where its last used block does, but for some room that a large one will use again, and has no long runs without a use inside. */
static int trim_file(struct store *store, struct relation *relation)
{
    struct fsm_stats stats;
    uint32_t cut = 0;
    uint32_t punched = 0;
    int rc = fsm_get_stats(relation, &stats);
    if (rc == 0) {
        rc = fsm_trim(relation, fsm_spare_blocks(stats.used_blocks), &cut);
    }
    if (rc == 0) {
        rc = fsm_punch(relation, &punched);
    }
    atomic_fetch_add(&store->blocks_trimmed, cut);
    atomic_fetch_add(&store->blocks_punched, punched);
    return rc;
}

/* A file that cannot be cut or punched only takes more than it has to; reported. */
static void trim_files(struct store *store)
{
    struct relation **relations = NULL;
    const uint32_t count = bufcache_list_relations(store->cache, fsm_may_trim, &relations);
    for (uint32_t i = 0; i < count; i++) {
        const int rc = trim_file(store, relations[i]);
        if (rc != 0 && rc != -ENOENT) {
            diag_log(store->diag, DIAG_WARNING, "%s: file of relation %llu could not be made smaller: %s", store->dir,
                     (unsigned long long)relation_number(relations[i]), strerror(-rc));
        }
        relation_unref(relations[i]);
    }
    free(relations);
}

/* What the previous checkpoint held may go. Nothing in here can lose anything: what cannot be removed is reported. */
static void release_previous(struct store *store, const struct checkpoint *checkpoint)
{
    struct holder *previous = store->durable;
    store->durable = checkpoint->fork;
    store->durable_lsn = checkpoint->lsn;
    store->durable_changes = checkpoint->changes;
    store->durable_time_ns = checkpoint->time_ns;
    cow_holder_made_durable(store->cow, checkpoint->fork);
    cow_holder_close(store->cow, previous);
    store_snapshots_release(store, checkpoint->changes);
    store_forget_referenced(store, cow_holder_at(checkpoint->fork));
    store_sweep_dead(store, SWEEP_CHECKPOINT);
    unlink_removable(store);
    store_tablespaces_release(store, checkpoint->changes);
    trim_files(store);
    const int rc = store->log != NULL ? log_recycle(store->log, checkpoint->scan_lsn) : 0;
    if (rc != 0) {
        diag_log(store->diag, DIAG_WARNING, "%s: a log segment that is not needed any more could not be removed: %s",
                 store->dir, strerror(-rc));
    }
    const int reserve_rc = store_reserve_restore(store);
    (void)reserve_rc; /* then there is no room yet, and whoever needs some is told */
}

static void note_checkpoint(struct store *store, const struct checkpoint *checkpoint, lsn_no previous)
{
    store_note_checkpoint(store, &(struct store_checkpoint_line){
                                     .number = checkpoint->number,
                                     .time_ns = (int64_t)io_realtime_ns(store->dev),
                                     .cause = checkpoint->cause,
                                     .duration_us = (io_monotonic_ns(store->dev) - checkpoint->began_ns) / 1000,
                                     .pages = checkpoint->pages,
                                     .log_bytes = previous != 0 ? checkpoint->lsn - previous : 0,
                                     .lsn = checkpoint->lsn,
                                     .epoch = cow_holder_at(checkpoint->fork)});
}

static int checkpoint_take(struct store *store, struct checkpoint checkpoint)
{
    mutex_assert_held(&store->checkpoint_lock);
    int rc = store_check_writable(store);
    if (rc != 0 ||
        (atomic_load(&store->changes) == store->durable_changes && !checkpoint.clean && checkpoint.held == NULL)) {
        return rc;
    }
    const lsn_no previous = store->durable_lsn;
    checkpoint.began_ns = io_monotonic_ns(store->dev);
    store_sweep_dead(store, SWEEP_CHECKPOINT);
    rc = fork_checkpoint(store, &checkpoint);
    if (rc == 0) {
        rc = write_checkpoint(store, &checkpoint);
    }
    if (rc == 0) {
        note_checkpoint(store, &checkpoint, previous);
        release_previous(store, &checkpoint);
    }
    struct cow_stats stats;
    cow_get_stats(store->cow, &stats);
    store->deferred_at_checkpoint = stats.deferred;
    store->last_checkpoint_ns = io_monotonic_ns(store->dev);
    atomic_fetch_add(&store->checkpoints, rc == 0 ? 1 : 0);
    return rc;
}

int store_checkpoint_locked(struct store *store, enum store_checkpoint_cause cause, bool clean)
{
    return checkpoint_take(store, (struct checkpoint){.cause = cause, .clean = clean});
}

int store_checkpoint_held(struct store *store, struct holder **out_holder)
{
    struct holder *held = NULL;
    const int rc = checkpoint_take(store, (struct checkpoint){.cause = CHECKPOINT_BACKUP, .held = &held});
    if (rc != 0 && held != NULL) {
        cow_holder_close(store->cow, held);
    } else if (rc == 0) {
        *out_holder = held;
    }
    return rc;
}

int store_checkpoint_for(struct store *store, enum store_checkpoint_cause cause)
{
    lock_assert_none_held();
    mutex_lock(&store->checkpoint_lock);
    const int rc = store_checkpoint_locked(store, cause, false);
    mutex_unlock(&store->checkpoint_lock);
    store_snapshots_close(store);
    return rc;
}

int store_checkpoint(struct store *store)
{
    return store_checkpoint_for(store, CHECKPOINT_ASKED);
}

/* ---- in the background ---- */

/* CHECKPOINT_CAUSES: nothing wants one. */
static enum store_checkpoint_cause wanted_locked(struct store *store)
{
    struct cow_stats stats;
    cow_get_stats(store->cow, &stats); /* behind the lock: all only grow past what the last checkpoint noted */
    if (log_end(store->log) - store->durable_lsn >= store->checkpoint_log_bytes) {
        return CHECKPOINT_LOG;
    }
    return stats.deferred - store->deferred_at_checkpoint > DEFERRED_BLOCKS_MAX || stats.wants_checkpoint
               ? CHECKPOINT_SPACE
               : CHECKPOINT_CAUSES;
}

bool store_wants_checkpoint(struct store *store)
{
    mutex_lock(&store->checkpoint_lock);
    const bool wants = !store->read_only && wanted_locked(store) != CHECKPOINT_CAUSES;
    mutex_unlock(&store->checkpoint_lock);
    return wants;
}

static bool checkpoint_is_due(struct store *store, enum store_checkpoint_cause *out_cause)
{
    mutex_lock(&store->checkpoint_lock);
    const uint64_t age_ns = io_monotonic_ns(store->dev) - store->last_checkpoint_ns;
    *out_cause = wanted_locked(store);
    if (*out_cause == CHECKPOINT_CAUSES && age_ns >= store->checkpoint_interval_ns) {
        *out_cause = CHECKPOINT_INTERVAL;
    }
    mutex_unlock(&store->checkpoint_lock);
    return *out_cause != CHECKPOINT_CAUSES;
}

bool store_thread_wait(struct store *store, uint64_t period_ms)
{
    mutex_lock(&store->thread_lock);
    if (!store->thread_stop) {
        (void)condvar_wait_ms(&store->thread_wake, &store->thread_lock, period_ms);
    }
    const bool go_on = !store->thread_stop;
    mutex_unlock(&store->thread_lock);
    return go_on;
}

static void *checkpoint_thread(void *arg)
{
    struct store *store = arg;
    while (store_thread_wait(store, THREAD_PERIOD_MS)) {
        store_sweep_dead_of(store, SWEEP_UNLINK, 0);
        store_snapshots_close(store);
        enum store_checkpoint_cause cause;
        if (checkpoint_is_due(store, &cause)) {
            const int rc = store_checkpoint_for(store, cause); /* a failure made the store read-only and was reported */
            (void)rc;
        }
    }
    return NULL;
}

int store_thread_start(struct store *store)
{
    int rc = pthread_create(&store->thread, NULL, checkpoint_thread, store);
    store->thread_runs = rc == 0;
    if (rc == 0) {
        rc = pthread_create(&store->log_thread, NULL, store_log_thread, store);
        store->log_thread_runs = rc == 0;
    }
    if (rc == 0 && store->compact_auto) {
        rc = pthread_create(&store->compact_thread, NULL, store_compact_thread, store);
        store->compact_thread_runs = rc == 0;
    }
    if (rc == 0 && store->archive != NULL) {
        rc = pthread_create(&store->archive_thread, NULL, store_archive_thread, store);
        store->archive_thread_runs = rc == 0;
    }
    return rc == 0 ? store_maps_thread_start(store) : -rc;
}

void store_thread_stop(struct store *store)
{
    mutex_lock(&store->thread_lock);
    store->thread_stop = true;
    condvar_broadcast(&store->thread_wake);
    condvar_broadcast(&store->sync_wake);
    mutex_unlock(&store->thread_lock);
    if (store->thread_runs) {
        (void)pthread_join(store->thread, NULL);
    }
    if (store->log_thread_runs) {
        (void)pthread_join(store->log_thread, NULL);
    }
    if (store->archive_thread_runs) {
        (void)pthread_join(store->archive_thread, NULL);
    }
    if (store->compact_thread_runs) {
        (void)pthread_join(store->compact_thread, NULL);
    }
    store->thread_runs = false;
    store->log_thread_runs = false;
    store->archive_thread_runs = false;
    store->compact_thread_runs = false;
    store_maps_thread_stop(store);
}

void store_step(struct store *store)
{
    store_sweep_dead_of(store, SWEEP_UNLINK, 0);
    bufcache_step(store->cache);
    if (!store->read_only) {
        store_log_step(store);
        store_archive_step(store);
        (void)store_compact_one_quiet(store);
        (void)store_maps_step(store);
    }
}
