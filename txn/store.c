/*
 * txn/store.c - opening and closing a data directory.
 *
 *   DIR/control          what is in force (txn/control_format.h)
 *   DIR/lock             locked by whoever has it open; holds the process id as text
 *   DIR/rel/HH/RELID     relation files (bufcache/); more of them in tablespaces (txn/store_tablespace.c)
 *
 * Opening writes a control slot with new ceilings before anything else, so that no number of an earlier life is used
 * again (STORE-5).
 */
#include "txn/store_compact_auto.h"
#include "txn/store_open.h"
#include "txn/store_sidecar.h"

#include "base/array.h"
#include "base/plant.h"
#include "txn/control_format.h"
#include "txn/store_archive.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_CACHE_BYTES            (UINT64_C(256) << 20)
#define DEFAULT_OPEN_FILES             512u
#define DEFAULT_CHECKPOINT_INTERVAL_MS 60000u
#define DEFAULT_BULK_MIN_BYTES         (UINT64_C(128) << 10)
#define DEFAULT_COMPACT_PIECE_BLOCKS   64u
#define DEFAULT_COMPACT_QUIET_MS       10000u
#define DEFAULT_CHECKPOINT_LOG_BYTES   (UINT64_C(256) << 20)

/* ---- pieces shared with mkfs ---- */

int store_open_cache(struct io_device *dev, struct diag *diag, const char *dir, uint64_t cache_size_bytes,
                     uint32_t max_open_files, bool background, struct bufcache **out_cache)
{
    const struct bufcache_options options = {
        .dev = dev,
        .diag = diag,
        .cache_size_bytes = cache_size_bytes < STORE_MIN_CACHE_BYTES ? STORE_MIN_CACHE_BYTES : cache_size_bytes,
        .max_open_files = max_open_files,
        .background = background,
        .validate =
            {
                [PAGE_TYPE_CONTENT_LEAF] = content_validate_leaf,
                [PAGE_TYPE_CONTENT_INNER] = content_validate_inner,
                [PAGE_TYPE_CATALOG_LEAF] = catalog_validate_leaf,
                [PAGE_TYPE_CATALOG_INNER] = catalog_validate_inner,
            },
    };
    struct bufcache *cache = NULL;
    int rc = bufcache_open(&options, &cache);
    if (rc != 0) {
        return rc;
    }
    rc = bufcache_tablespace_add(cache, TS_DEFAULT, dir);
    if (rc != 0) {
        bufcache_close(cache);
        return rc;
    }
    *out_cache = cache;
    return 0;
}

/* ---- the lock ---- */

static int lock_write_pid(struct io_file *file)
{
    char text[32];
    const int size = snprintf(text, sizeof text, "%d\n", (int)getpid());
    const int rc = io_truncate(file, 0);
    return rc != 0 ? rc : io_write_full(file, text, (size_t)size, 0);
}

static int lock_take(struct store *store, pid_t *out_holder)
{
    char path[STORE_PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/lock", store->dir);
    int rc = io_open(store->dev, path, IO_READ_WRITE | IO_CREATE, &store->lock_file);
    if (rc != 0) {
        diag_log(store->diag, DIAG_ERROR, "%s: %s", path, strerror(-rc));
        return rc;
    }
    pid_t holder = 0;
    rc = io_lock(store->lock_file, &holder);
    if (rc == -EBUSY && out_holder != NULL) {
        *out_holder = holder;
    } else if (rc == -EBUSY) {
        diag_log(store->diag, DIAG_ERROR, "%s: in use by process %d", store->dir, (int)holder);
    }
    return rc != 0 ? rc : lock_write_pid(store->lock_file);
}

/* ---- opening ---- */

static int read_control(struct store *store)
{
    const int rc = control_read(store->dev, store->diag, store->dir, &store->control);
    if (rc == -ENODATA) {
        diag_log(store->diag, DIAG_ERROR, "%s: not a tblfs data directory (no control file); `tblfs mkfs` makes one",
                 store->dir);
    }
    return rc;
}

static int open_engine(struct store *store, const struct store_options *options)
{
    const struct control *control = &store->control;
    int rc = store_open_cache(store->dev, store->diag, store->dir,
                              options->cache_size_bytes != 0 ? options->cache_size_bytes : DEFAULT_CACHE_BYTES,
                              options->max_open_files != 0 ? options->max_open_files : DEFAULT_OPEN_FILES,
                              options->background, &store->cache);
    if (rc == 0) {
        rc = relation_open(store->cache, TS_DEFAULT, REL_CATALOG, &store->catalog);
    }
    if (rc != 0) {
        return rc;
    }
    const struct cow_options cow_options = {
        .cache = store->cache,
        .diag = store->diag,
        .dev = store->dev,
        .epoch = PLANT(EPOCH_AGAIN) ? control->epoch + 1 : control->ceiling_epoch,
        .catalog = store->catalog,
        .root = control->catalog,
    };
    rc = cow_open(&cow_options, &store->cow);
    if (rc == 0) {
        rc = cow_adopt_holder(store->cow, HOLDER_DURABLE, control->epoch, control->catalog, &store->durable);
    }
    return rc;
}

static void take_numbers(struct store *store)
{
    const struct control *control = &store->control;
    store->log_start = control->ceiling_lsn;
    store->first_rel = control->ceiling_rel;
    atomic_store(&store->next_txn, control->ceiling_txn);
    atomic_store(&store->next_rel, PLANT(RELATION_NUMBERS_AGAIN) ? REL_CATALOG + 1 : control->ceiling_rel);
    atomic_store(&store->next_ino, PLANT(INODE_NUMBERS_AGAIN) ? INO_ROOT + 1 : control->ceiling_ino);
    atomic_store(&store->inode_count, control->inode_count);
    atomic_store(&store->commits, control->commits);
    store->hash = (struct name_hash){.seed = control->name_seed, .bits = control->name_bits};
    store->last_checkpoint_ns = io_monotonic_ns(store->dev);
}

static int check_root(struct store *store)
{
    struct store_attr attr;
    const int rc = store_getattr(store, store_live(store), INO_ROOT, &attr);
    if (rc == 0 && S_ISDIR(attr.mode)) {
        return 0;
    }
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    return diag_damage(store->diag, "catalog", BLOCK_NONE, "root", "the root directory is missing");
}

/* Behind a clean end the checkpoint in force is the state, and its log starts anew. Else the log was replayed: a
 * checkpoint makes that durable and starts the new log. */
static int start_new_log(struct store *store)
{
    mutex_lock(&store->checkpoint_lock);
    int rc = 0;
    if (store->control.clean || PLANT(RECOVERY_NOT_DURABLE)) {
        store->durable_lsn = log_end(store->log);
        rc = store_control_set_redo(store, store->durable_lsn);
    } else {
        atomic_fetch_add(&store->changes, 1); /* also when nothing was replayed: the log's start has to be named */
        rc = store_checkpoint_locked(store, CHECKPOINT_START, false);
    }
    mutex_unlock(&store->checkpoint_lock);
    return rc != 0 ? rc : store_log_forget_old(store);
}

/* Where the reserve was, or where segments were that nobody needs any more. */
static int open_log_in_place_of_old(struct store *store)
{
    const int rc = store_log_forget_old(store);
    store_reserve_release(store);
    return rc != 0 ? rc : store_log_open(store);
}

/* Makes what was replayed durable as a clean end does: then the old log is needed no more, nor what only the checkpoint
 * before it saw. A crash from here on finds a store that was closed cleanly. */
static int checkpoint_without_log(struct store *store)
{
    mutex_lock(&store->checkpoint_lock);
    const int rc = store_checkpoint_locked(store, CHECKPOINT_START, true);
    mutex_unlock(&store->checkpoint_lock);
    return rc;
}

/* On a full disk whose reserve was spent in the last life, there may be room for the new log only in place of the one that
 * was just replayed. */
static int open_new_log(struct store *store)
{
    int rc = store_log_open(store);
    if (rc == -ENOSPC) {
        rc = open_log_in_place_of_old(store);
    }
    if (rc == -ENOSPC && !store->control.clean) {
        rc = checkpoint_without_log(store);
        rc = rc == 0 ? open_log_in_place_of_old(store) : rc;
    }
    return rc;
}

/* For who replays an archive on it. */
static int make_replayable(struct store *store)
{
    store->recovering = true;
    store->replay_is_whole = true;         /* what is in the base was whole: it can be restored again */
    atomic_store(&store->last_time_ns, 0); /* of the base, not of now */
    int rc = store_ceilings_raise(store, 0);
    if (rc == 0) {
        rc = store_reserve_open(store);
    }
    return rc == 0 ? store_map_build_catalog(store) : rc;
}

/* What a writable store does before anybody uses it. */
static int make_writable(struct store *store, const struct store_options *options, bool was_clean)
{
    int rc = store_ceilings_raise(store, 0);
    if (rc == 0) {
        rc = store_reserve_open(store);
    }
    if (rc == 0) {
        rc = store_map_build_catalog(store);
    }
    if (rc == 0) {
        rc = store_recover(store);
    }
    if (rc == 0) {
        rc = store_tablespaces_require(store);
    }
    if (rc == 0 && options->archive != NULL) {
        rc = store_archive_open(store, options->archive, options->archive_timeout_ms);
    }
    if (rc == 0) {
        rc = open_new_log(store);
    }
    if (rc == 0) {
        store_archive_begin(store);
    }
    if (rc == 0 && PLANT(OLD_LOG_REMOVED_EARLY)) {
        rc = store_log_forget_old(store);
    }
    if (rc == 0) {
        rc = start_new_log(store);
    }
    if (rc == 0) {
        rc = store_destroy_orphans(store);
    }
    if (rc == 0 && !was_clean) {
        rc = store_remove_unnamed_files(store);
    }
    if (rc == 0) {
        rc = store_sidecars_remove_all(store);
    }
    return rc;
}

int store_become_writable(struct store *store, const struct archive_target *archive, uint64_t archive_timeout_ms)
{
    assert(store->recovering && store->control.clean && store->log == NULL);
    store->recovering = false;
    store->replay_is_whole = false;
    store->restoring = false;
    store->replay_lsn = 0;
    store->replay_scan_lsn = 0;
    store->log_start = store->control.ceiling_lsn;
    store->log_previous = store->control.redo_lsn;
    store->bulk_min_bytes = archive != NULL ? UINT64_MAX : store->bulk_min_bytes;
    int rc = store_ceilings_raise(store, 0);
    if (rc == 0 && archive != NULL) {
        rc = store_archive_open(store, archive, archive_timeout_ms);
    }
    if (rc == 0) {
        rc = open_new_log(store);
    }
    if (rc == 0) {
        store_archive_begin(store);
        rc = start_new_log(store);
    }
    if (rc == 0) {
        rc = store_sidecars_remove_all(store);
    }
    return rc;
}

static struct store *store_make(const struct store_options *options)
{
    struct store *store = calloc(1, sizeof *store);
    char *dir = strdup(options->dir);
    if (store == NULL || dir == NULL) {
        free(store);
        free(dir);
        return NULL;
    }
    store->dev = options->dev;
    store->diag = options->diag;
    store->dir = dir;
    store->read_only = options->read_only;
    store->pinned = options->pinned != NULL;
    store->restoring = options->restoring;
    store->copied = options->copied;
    store->missing_tablespace_offline = options->missing_tablespace_offline;
    store->progress = options->progress;
    store->background = options->background;
    const uint32_t interval_ms = options->checkpoint_interval_ms;
    store->checkpoint_interval_ns =
        (interval_ms != 0 ? interval_ms : DEFAULT_CHECKPOINT_INTERVAL_MS) * UINT64_C(1000000);
    store->checkpoint_log_bytes =
        options->checkpoint_log_bytes != 0 ? options->checkpoint_log_bytes : DEFAULT_CHECKPOINT_LOG_BYTES;
    store->log_segment_size = options->log_segment_size;
    store->compact_piece_blocks =
        options->compact_piece_blocks != 0 ? options->compact_piece_blocks : DEFAULT_COMPACT_PIECE_BLOCKS;
    store->compact_auto = options->compact_auto && !options->read_only;
    store->compact_quiet_ns =
        (options->compact_quiet_ms != 0 ? options->compact_quiet_ms : DEFAULT_COMPACT_QUIET_MS) * UINT64_C(1000000);
    store->bulk_min_bytes = options->bulk_min_bytes != 0 ? options->bulk_min_bytes : DEFAULT_BULK_MIN_BYTES;
    if (options->archive != NULL && !PLANT(ARCHIVE_WITHOUT_BYTES)) {
        store->bulk_min_bytes = UINT64_MAX; /* the archive has the log alone */
    }
    mutex_init(&store->checkpoint_lock, LOCK_RANK_STORE);
    mutex_init(&store->control_lock, LOCK_RANK_CONTROL);
    mutex_init(&store->reserve_lock, LOCK_RANK_RESERVE);
    mutex_init(&store->files_lock, LOCK_RANK_FILE_TABLE);
    mutex_init(&store->sweeps_lock, LOCK_RANK_LEAF);
    mutex_init(&store->checkpoints_lock, LOCK_RANK_LEAF);
    mutex_init(&store->jobs_lock, LOCK_RANK_LEAF);
    mutex_init(&store->compact_lock, LOCK_RANK_LEAF);
    mutex_init(&store->referenced_lock, LOCK_RANK_LEAF);
    mutex_init(&store->snapshots_lock, LOCK_RANK_SNAPSHOTS);
    mutex_init(&store->txns_lock, LOCK_RANK_SNAPSHOTS);
    rwlock_init(&store->placement_lock, LOCK_RANK_TABLESPACES, 0);
    mutex_init(&store->tablespaces_lock, LOCK_RANK_LEAF);
    mutex_init(&store->map_lock, LOCK_RANK_MAP);
    store_maps_init(store);
    mutex_init(&store->thread_lock, LOCK_RANK_LEAF);
    condvar_init(&store->thread_wake);
    condvar_init(&store->sync_wake);
    return store;
}

/* Files that nobody closed (a store that is abandoned). */
static void free_files(struct store *store)
{
    for (size_t i = 0; i < STORE_FILE_BUCKETS; i++) {
        while (store->files[i] != NULL) {
            struct store_file *file = store->files[i];
            store->files[i] = file->next;
            store_file_free(file);
        }
    }
}

/* Frees what was opened; writes nothing. */
static int store_free(struct store *store)
{
    int rc = 0;
    store_thread_stop(store);
    store_maps_stop(store);
    free_files(store);
    store_forget_referenced(store, UINT64_MAX);
    free(store->referenced);
    store_recovery_forget_pages(store);
    store_snapshots_free(store);
    commit_list_free(store->commit_list);
    if (store->cow != NULL && store->unfinished != NULL) {
        cow_holder_close(store->cow, store->unfinished);
    }
    if (store->cow != NULL) {
        cow_close(store->cow);
    }
    log_close(store->log);
    store_archive_free(store);
    relation_unref(store->catalog);
    if (store->cache != NULL) {
        bufcache_close(store->cache);
    }
    store_tablespaces_free(store);
    rc = store_reserve_close(store);
    if (store->lock_file != NULL) {
        const int lock_rc = io_close(store->lock_file);
        rc = rc != 0 ? rc : lock_rc;
    }
    mutex_destroy(&store->checkpoint_lock);
    mutex_destroy(&store->control_lock);
    mutex_destroy(&store->reserve_lock);
    mutex_destroy(&store->files_lock);
    mutex_destroy(&store->sweeps_lock);
    mutex_destroy(&store->checkpoints_lock);
    mutex_destroy(&store->jobs_lock);
    store_compact_notes_free(store);
    mutex_destroy(&store->compact_lock);
    mutex_destroy(&store->referenced_lock);
    mutex_destroy(&store->snapshots_lock);
    mutex_destroy(&store->txns_lock);
    rwlock_destroy(&store->placement_lock);
    mutex_destroy(&store->tablespaces_lock);
    mutex_destroy(&store->map_lock);
    mutex_destroy(&store->maps.lock);
    condvar_destroy(&store->maps.wake);
    mutex_destroy(&store->thread_lock);
    condvar_destroy(&store->thread_wake);
    condvar_destroy(&store->sync_wake);
    free(store->dir);
    free(store);
    return rc;
}

/* Learns which checkpoint is in force, and locks the directory. */
static int take_control(struct store *store, const struct store_options *options, pid_t *out_holder)
{
    if (options->pinned != NULL) {
        store->control = *options->pinned;
        store->control.clean = true; /* what was logged behind it is not its business */
        store->read_only = true;
        return 0;
    }
    int rc = read_control(store);
    if (rc == 0) {
        rc = lock_take(store, out_holder);
    }
    rc = rc == 0 ? read_control(store) : rc; /* again: now nobody else changes it */
    if (rc == 0 && store->control.restoring && !options->restoring) {
        diag_log(store->diag, DIAG_ERROR,
                 "%s: it is a standby, or a restore into it was not finished: give the same 'tblfs standby' or 'tblfs "
                 "restore' again",
                 store->dir);
        return -EUCLEAN;
    }
    return rc;
}

static int open_all(struct store *store, const struct store_options *options, pid_t *out_holder)
{
    int rc = take_control(store, options, out_holder);
    if (rc == 0) {
        rc = open_engine(store, options);
    }
    if (rc != 0) {
        return rc;
    }
    const bool was_clean = store->control.clean;
    if (store->read_only && !was_clean && !options->restoring) {
        diag_log(store->diag, DIAG_ERROR,
                 "%s: was not closed cleanly and its log has to be replayed: open it once for writing", store->dir);
        return -EROFS;
    }
    take_numbers(store);
    store_sidecars_open(store, options);
    rc = check_root(store);
    if (rc == 0) {
        rc = store_snapshots_adopt(store);
    }
    if (rc == 0) {
        rc = store_tablespaces_adopt(store);
    }
    if (rc == 0 && options->restoring) {
        rc = make_replayable(store);
        return rc == 0 ? store_tablespaces_take_over(store) : rc;
    }
    if (rc == 0) {
        rc = store->read_only ? store_tablespaces_require(store) : make_writable(store, options, was_clean);
    }
    if (rc == 0 && options->background && !store->read_only) {
        rc = store_thread_start(store);
    }
    return rc;
}

int store_open(const struct store_options *options, struct store **out_store, pid_t *out_holder)
{
    struct store *store = store_make(options);
    if (store == NULL) {
        return -ENOMEM;
    }
    const int rc = open_all(store, options, out_holder);
    if (rc != 0) {
        const int free_rc = store_free(store);
        (void)free_rc; /* the first error counts */
        return rc;
    }
    *out_store = store;
    return 0;
}

/* ---- closing ---- */

/* What was dropped goes with a checkpoint, also when the last one has all changes: behind a clean end nobody looks for its files. */
static void want_checkpoint_for_dropped(struct store *store)
{
    if (cow_awaits_checkpoint(store->cow)) {
        atomic_fetch_add(&store->changes, 1);
    }
}

/* The last checkpoint, then what stands beside it, then the clean flag (SIDECAR-3). */
static int close_with_sidecars(struct store *store)
{
    struct frame_budget budget;
    if (store_sidecars_want_checkpoint(store)) {
        atomic_fetch_add(&store->changes, 1);
    }
    want_checkpoint_for_dropped(store);
    int rc = store_checkpoint_for(store, CHECKPOINT_CLOSE);
    store_maps_finish(store); /* those that a dropped snapshot put in doubt */
    if (rc == 0) {
        rc = frame_budget_take(store->cache, STORE_READ_PINS, 0, &budget);
    }
    if (rc != 0) {
        return rc;
    }
    mutex_lock(&store->checkpoint_lock);
    want_checkpoint_for_dropped(store); /* by snapshots that are closed by now */
    rc = store_checkpoint_locked(store, CHECKPOINT_CLOSE, false);
    if (rc == 0) {
        store_sidecars_write(store);
        rc = store_control_set_clean(store);
    }
    mutex_unlock(&store->checkpoint_lock);
    frame_budget_release(&budget);
    return rc;
}

static int close_cleanly(struct store *store)
{
    mutex_lock(&store->checkpoint_lock);
    const bool pending = store_check_writable(store) == 0 && store_sidecars_pending(store);
    const int rc = pending ? 0 : store_checkpoint_locked(store, CHECKPOINT_CLOSE, true);
    mutex_unlock(&store->checkpoint_lock);
    return pending ? close_with_sidecars(store) : rc;
}

int store_close(struct store *store)
{
    store_thread_stop(store);
    store_maps_finish(store);
    store_maps_stop(store);
    const int rc = store->read_only ? 0 : close_cleanly(store);
    if (rc == 0 && !store->read_only) {
        store_archive_finish(store);
    }
    const int free_rc = store_free(store);
    return rc != 0 ? rc : free_rc;
}

void store_abandon(struct store *store)
{
    const int rc = store_free(store);
    (void)rc; /* as in a kill, nobody is told */
}

/* ---- what it is made of ---- */

struct view *store_live(struct store *store)
{
    return cow_live(store->cow);
}

struct cow *store_cow(struct store *store)
{
    return store->cow;
}

struct bufcache *store_cache(struct store *store)
{
    return store->cache;
}

const char *store_read_only_reason(struct store *store)
{
    const char *failure = atomic_load(&store->failure);
    if (failure != NULL) {
        return failure;
    }
    if (bufcache_failed(store->cache) != 0) {
        return "a page could not be written";
    }
    return store->read_only ? "mounted read-only" : NULL;
}

struct space_sum {
    struct store *store;
    struct store_space space;
    uint64_t *devices; /* each filesystem counts once */
    size_t count, capacity;
};

static bool is_counted(const struct space_sum *sum, uint64_t device_id)
{
    for (size_t i = 0; i < sum->count; i++) {
        if (sum->devices[i] == device_id) {
            return true;
        }
    }
    return false;
}

static int add_space(void *arg, ts_no ts, const char *dir)
{
    struct space_sum *sum = arg;
    struct io_space space;
    struct io_stat stat;
    int rc = io_stat(sum->store->dev, dir, &stat);
    if (rc == 0 && is_counted(sum, stat.device_id)) {
        return 0;
    }
    if (rc == 0) {
        rc = io_space(sum->store->dev, dir, &space);
    }
    if (rc != 0) {
        return ts == TS_DEFAULT ? rc : 0; /* one that is gone has no space */
    }
    uint64_t *devices = array_with_room(sum->devices, sum->count, &sum->capacity, sizeof devices[0]);
    if (devices == NULL) {
        return -ENOMEM;
    }
    sum->devices = devices;
    sum->devices[sum->count++] = stat.device_id;
    sum->space.total_bytes += space.total_bytes;
    sum->space.free_bytes += space.free_bytes;
    sum->space.available_bytes += space.available_bytes;
    sum->space.free_inodes += space.free_files;
    return 0;
}

int store_space(struct store *store, struct store_space *out_space)
{
    struct space_sum sum = {.store = store};
    const int rc = store_each_place(store, add_space, &sum);
    free(sum.devices);
    if (rc == 0) {
        sum.space.inodes = atomic_load(&store->inode_count) + sum.space.free_inodes;
        *out_space = sum.space;
    }
    return rc;
}

void store_get_stats(struct store *store, struct store_stats *out_stats)
{
    memset(out_stats, 0, sizeof *out_stats);
    for (size_t i = 0; i < ARRAY_COUNT(out_stats->operations); i++) {
        out_stats->operations[i] = atomic_load(&store->operations[i]);
    }
    out_stats->checkpoints = atomic_load(&store->checkpoints);
    out_stats->checkpoint_pages_written = atomic_load(&store->checkpoint_pages);
    out_stats->blocks_trimmed = atomic_load(&store->blocks_trimmed);
    out_stats->blocks_punched = atomic_load(&store->blocks_punched);
    out_stats->sidecars_loaded = atomic_load(&store->sidecars.loaded);
    out_stats->sidecars_ignored = atomic_load(&store->sidecars.ignored);
    out_stats->sidecars_removed = atomic_load(&store->sidecars.removed);
    out_stats->fsm_threshold = store->sidecars.threshold;
    out_stats->maps_waiting = store_maps_waiting(store);
    out_stats->maps_built = atomic_load(&store->maps.built);
    out_stats->maps_failed = atomic_load(&store->maps.failed);
    out_stats->epoch = cow_epoch(store->cow);
    out_stats->redo_records = store->redo_records;
    out_stats->redo_ms = store->redo_ms;
    if (store->log != NULL) {
        log_get_stats(store->log, &out_stats->log);
    }
    mutex_lock(&store->control_lock);
    out_stats->control_number = store->control.number;
    mutex_unlock(&store->control_lock);
    mutex_lock(&store->files_lock);
    out_stats->open_files = store->open_files;
    for (size_t i = 0; i < STORE_FILE_BUCKETS; i++) {
        for (const struct store_file *file = store->files[i]; file != NULL; file = file->next) {
            out_stats->orphans += file->orphan;
        }
    }
    mutex_unlock(&store->files_lock);
    mutex_lock(&store->sweeps_lock);
    out_stats->sweeps = store->sweep_count;
    memcpy(out_stats->sweeps_of, store->sweeps_of, sizeof out_stats->sweeps_of);
    mutex_unlock(&store->sweeps_lock);
}
