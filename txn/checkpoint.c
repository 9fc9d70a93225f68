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
#include "txn/store_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CEILING_RANGE       (UINT64_C(1) << 20)
#define CEILING_MARGIN      (UINT64_C(1) << 12)
#define CEILING_LSN_RANGE   (UINT64_C(1) << 44)
#define THREAD_PERIOD_MS    50u
#define DEFERRED_BLOCKS_MAX 16384u /* 128 MiB of replaced blocks bring the next checkpoint forward */

/* ---- sweeps ---- */

static void record_sweep(struct store *store, const char *cause, const struct drop_result *result)
{
    mutex_lock(&store->sweeps_lock);
    store->sweeps[store->sweep_count++ % STORE_SWEEP_LINES] = (struct store_sweep){
        .time_ns = (int64_t)io_realtime_ns(store->dev), .cause = cause, .txn = 0, .result = *result};
    mutex_unlock(&store->sweeps_lock);
}

static void sweep(struct store *store, const char *cause, struct relation **relations, uint32_t count)
{
    struct drop_result result;
    bufcache_drop_relations(store->cache, relations, count, &result);
    record_sweep(store, cause, &result);
}

void store_sweep_dead(struct store *store, const char *cause)
{
    struct relation **relations = NULL;
    const uint32_t count = cow_take_dead(store->cow, &relations);
    if (count > 0) {
        sweep(store, cause, relations, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        relation_unref(relations[i]);
    }
    free(relations);
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
        sweep(store, "unlink file", relations, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const int rc = relation_unlink_file(relations[i]);
        if (rc != 0) {
            diag_log(store->diag, DIAG_WARNING, "%s: file of dropped relation %llu could not be removed: %s",
                     store->dir, (unsigned long long)relation_number(relations[i]), strerror(-rc));
        }
        relation_unref(relations[i]);
    }
    free(relations);
}

/* ---- ceilings (STORE-5) ---- */

int store_ceilings_raise_locked(struct store *store)
{
    struct control control = store->control;
    control.ceiling_epoch = cow_epoch(store->cow) + CEILING_RANGE;
    control.ceiling_rel = atomic_load(&store->next_rel) + CEILING_RANGE;
    control.ceiling_ino = atomic_load(&store->next_ino) + CEILING_RANGE;
    control.ceiling_lsn = log_end(&store->log) + CEILING_LSN_RANGE;
    control.clean = false;
    const int rc = control_write(store->dev, store->dir, &control);
    if (rc == 0) {
        store->control = control;
        atomic_store(&store->ceiling_epoch, control.ceiling_epoch);
        atomic_store(&store->ceiling_rel, control.ceiling_rel);
        atomic_store(&store->ceiling_ino, control.ceiling_ino);
    }
    return rc;
}

static bool ceilings_are_near(const struct store *store)
{
    return atomic_load(&store->next_ino) + CEILING_MARGIN >= atomic_load(&store->ceiling_ino) ||
           atomic_load(&store->next_rel) + CEILING_MARGIN >= atomic_load(&store->ceiling_rel) ||
           cow_epoch(store->cow) + CEILING_MARGIN >= atomic_load(&store->ceiling_epoch);
}

int store_ceilings_ensure(struct store *store)
{
    if (!ceilings_are_near(store)) {
        return 0;
    }
    mutex_lock(&store->checkpoint_lock);
    const int rc = ceilings_are_near(store) ? store_ceilings_raise_locked(store) : 0;
    if (rc != 0) {
        store_fail(store, "raising the ceilings in the control file failed", rc);
    }
    mutex_unlock(&store->checkpoint_lock);
    return rc;
}

/* ---- checkpoint ---- */

static int write_pages(struct store *store, const struct holder *fork)
{
    struct writeback_result result = {0};
    int rc = bufcache_write_back(store->cache, cow_holder_at(fork), &result);
    if (rc == 0) {
        rc = bufcache_sync_relations(store->cache);
    }
    atomic_fetch_add(&store->checkpoint_pages, result.pages);
    return rc;
}

static int write_control(struct store *store, const struct holder *fork, lsn_no lsn, bool clean)
{
    struct control control = store->control;
    control.epoch = cow_holder_at(fork);
    control.catalog = cow_holder_root(fork);
    control.redo_lsn = lsn;
    control.scan_lsn = lsn;
    control.clean = clean;
    control.inode_count = atomic_load(&store->inode_count);
    const int rc = control_write(store->dev, store->dir, &control);
    if (rc == 0) {
        store->control = control;
    }
    return rc;
}

/* Forks, writes and makes the fork durable. On an error the fork stays open, since the medium may name it. */
static int checkpoint_fork(struct store *store, bool clean)
{
    struct holder *fork = NULL;
    cow_gate_close(store->cow);
    const lsn_no lsn = log_end(&store->log);
    int rc = cow_fork_locked(store->cow, HOLDER_CHECKPOINT, &fork);
    cow_gate_open(store->cow);
    if (rc != 0) {
        return rc;
    }
    store->unfinished = fork;
    rc = write_pages(store, fork);
    if (rc != 0) {
        store_fail(store, "writing pages for a checkpoint failed", rc);
        return rc;
    }
    rc = write_control(store, fork, lsn, clean);
    if (rc != 0) {
        store_fail(store, "writing the control file failed", rc);
        return rc;
    }
    store->unfinished = NULL;
    struct holder *previous = store->durable;
    store->durable = fork;
    store->durable_lsn = lsn;
    cow_holder_made_durable(store->cow, fork);
    cow_holder_close(store->cow, previous);
    return 0;
}

int store_checkpoint_locked(struct store *store, bool clean)
{
    mutex_assert_held(&store->checkpoint_lock);
    int rc = store_check_writable(store);
    if (rc != 0) {
        return rc;
    }
    if (log_end(&store->log) == store->durable_lsn && !clean) {
        return 0;
    }
    store_sweep_dead(store, "checkpoint");
    rc = checkpoint_fork(store, clean);
    if (rc != 0) {
        return rc;
    }
    store_sweep_dead(store, "checkpoint");
    unlink_removable(store);
    struct cow_stats stats;
    cow_get_stats(store->cow, &stats);
    store->deferred_at_checkpoint = stats.deferred;
    store->last_checkpoint_ns = io_monotonic_ns(store->dev);
    atomic_fetch_add(&store->checkpoints, 1);
    return 0;
}

int store_checkpoint(struct store *store)
{
    lock_assert_none_held();
    mutex_lock(&store->checkpoint_lock);
    const int rc = store_checkpoint_locked(store, false);
    mutex_unlock(&store->checkpoint_lock);
    return rc;
}

int store_sync(struct store *store)
{
    return store->read_only ? 0 : store_checkpoint(store);
}

/* ---- in the background ---- */

static bool checkpoint_is_due(struct store *store)
{
    struct cow_stats stats;
    cow_get_stats(store->cow, &stats);
    mutex_lock(&store->checkpoint_lock);
    const uint64_t age_ns = io_monotonic_ns(store->dev) - store->last_checkpoint_ns;
    const bool due =
        age_ns >= store->checkpoint_interval_ns || stats.deferred - store->deferred_at_checkpoint > DEFERRED_BLOCKS_MAX;
    mutex_unlock(&store->checkpoint_lock);
    return due;
}

static void *thread_main(void *arg)
{
    struct store *store = arg;
    bool stop = false;
    while (!stop) {
        mutex_lock(&store->thread_lock);
        if (!store->thread_stop) {
            (void)condvar_wait_ms(&store->thread_wake, &store->thread_lock, THREAD_PERIOD_MS);
        }
        stop = store->thread_stop;
        mutex_unlock(&store->thread_lock);
        store_sweep_dead(store, "unlink");
        if (!stop && checkpoint_is_due(store)) {
            const int rc = store_checkpoint(store); /* a failure made the store read-only and was reported */
            (void)rc;
        }
    }
    return NULL;
}

int store_thread_start(struct store *store)
{
    const int rc = pthread_create(&store->thread, NULL, thread_main, store);
    store->thread_runs = rc == 0;
    return -rc;
}

void store_thread_stop(struct store *store)
{
    if (!store->thread_runs) {
        return;
    }
    mutex_lock(&store->thread_lock);
    store->thread_stop = true;
    condvar_signal(&store->thread_wake);
    mutex_unlock(&store->thread_lock);
    (void)pthread_join(store->thread, NULL);
    store->thread_runs = false;
}

void store_step(struct store *store)
{
    store_sweep_dead(store, "unlink");
    bufcache_step(store->cache);
}
