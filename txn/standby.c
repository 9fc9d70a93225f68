/*
 * txn/standby.c - see the header.
 *
 *   store_replay_archive --came--> show: fork, what is different?, the view moves, readers are through, the old fork goes, one sweep
 *                        --wait--> the caller's
 *
 * Locking: what is shown moves with the catalog lock of its view held exclusively, alone or with that of the next version; the rest of it
 * belongs to the thread that follows. standby->lock (LOCK_RANK_LEAF) guards the status.
 */
#include "txn/standby.h"

#include "base/plant.h"
#include "txn/publish.h"
#include "txn/restore_int.h"
#include "txn/store_open.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define DEFAULT_CHECKPOINT_INTERVAL_MS UINT64_C(60000)
#define DEFAULT_CHECKPOINT_LOG_BYTES   (UINT64_C(256) << 20)
#define TOUCHED_MAX                    20000u /* names and inodes: what is shown moves then, whatever the time */
#define DEFERRED_BLOCKS_MAX            16384u /* 128 MiB of replaced blocks bring the next checkpoint forward */
#define NS_IN_MS                       UINT64_C(1000000)

/* What is seen, or will be. */
struct version {
    struct holder *holder;
    struct view *view; /* of it, which stays as it is */
};

struct standby {
    struct store *store;
    struct standby_options options;
    struct restore_source source;
    struct view *shown; /* what users have: moves from version to version */
    struct version now;
    _Atomic bool stop;
    lsn_no position;        /* of `now` */
    struct txn_set touched; /* since then */
    uint64_t shown_ns;      /* when it moved last */
    struct mutex lock;      /* LOCK_RANK_LEAF: */
    struct standby_status status;
};

/* ---- versions ---- */

static void version_close(struct standby *standby, struct version *version)
{
    if (version->view != NULL) {
        view_close(version->view);
    }
    if (version->holder != NULL) {
        cow_holder_close(standby->store->cow, version->holder);
    }
    *version = (struct version){.holder = NULL};
}

static int version_fork(struct standby *standby, struct version *out_version)
{
    struct cow *cow = standby->store->cow;
    struct version version = {.holder = NULL};
    int rc = cow_fork(cow, HOLDER_STANDBY, &version.holder);
    if (rc == 0) {
        rc = view_open_read_only(cow, version.holder, &version.view);
    }
    if (rc != 0) {
        version_close(standby, &version);
        return rc;
    }
    *out_version = version;
    return 0;
}

/* ---- what is different ---- */

/* *out_there false: there is none, or it has no name. */
static int get_inode(struct view *view, ino_no ino, struct inode *out_inode, bool *out_there)
{
    return publish_find_inode(view, ino, out_inode, out_there);
}

static int note_inode(struct standby *standby, const struct version *next, const struct txn_inode *touched,
                      struct store_changes *changes)
{
    struct inode before;
    struct inode now;
    bool was_there = false;
    bool is_there = false;
    int rc = get_inode(standby->now.view, touched->ino, &before, &was_there);
    if (rc == 0) {
        rc = get_inode(next->view, touched->ino, &now, &is_there);
    }
    if (rc != 0 || !was_there) {
        return rc;
    }
    struct store_change change = {.kind = STORE_CHANGE_ATTR, .ino = touched->ino};
    if (!is_there) {
        change = (struct store_change){.kind = STORE_CHANGE_DROPPED, .old_ino = touched->ino};
    } else if (touched->content) {
        change.kind = STORE_CHANGE_APPENDED;
        change.old_size = touched->rewritten ? 0 : before.size_bytes;
    }
    return store_changes_add(changes, change);
}

static int note_changes(struct standby *standby, const struct version *next, struct store_changes *changes)
{
    const struct changes_views views = {.before = standby->now.view, .now = next->view};
    const struct txn_set *touched = &standby->touched;
    int rc = 0;
    for (const struct txn_name *name = touched->names; name != NULL && rc == 0; name = name->hh.next) {
        rc = store_changes_compare_name(changes, standby->store, &views, txn_name_parent(name), txn_name_bytes(name));
    }
    for (const struct txn_inode *inode = touched->inodes; inode != NULL && rc == 0; inode = inode->hh.next) {
        rc = note_inode(standby, next, inode, changes);
    }
    return rc;
}

/* ---- what is shown moves ---- */

struct move {
    struct version next;
    struct old_version *old; /* prepared: of tables that are open, and gone */
    struct store_file **files;
    size_t file_count;
    struct store_changes changes;
};

/* Open tables that the next version does not have stay as they are. Both catalog locks are held. */
static int keep_gone_locked(struct standby *standby, struct move *move)
{
    for (size_t i = 0; i < move->file_count; i++) {
        struct store_file *file = move->files[i];
        struct inode inode;
        const int rc = atomic_load(&file->replaced) ? 0 : inode_get(move->next.view, file->ino, &inode);
        if (rc == -ENOENT && !PLANT(STANDBY_FORGETS_READERS)) {
            store_file_replace(standby->store, standby->shown, file->ino, INO_NONE, move->old);
        } else if (rc != 0 && rc != -ENOENT) {
            return rc;
        }
    }
    return 0;
}

static int move_locked(struct standby *standby, struct move *move)
{
    assert(cow_holder_at(move->next.holder) >= standby->shown->at); /* STANDBY-2 */
    int rc = store_files_list(standby->store, standby->shown, &move->files, &move->file_count);
    if (rc == 0) {
        rwlock_lock_shared(&move->next.view->catalog_lock);
        rc = keep_gone_locked(standby, move);
        rwlock_unlock_shared(&move->next.view->catalog_lock);
    }
    if (rc == 0) {
        view_show(standby->shown, move->next.holder);
    }
    return rc;
}

/* STANDBY-3. The version goes, or lives on in `old`. */
static void leave_version(struct standby *standby, struct move *move)
{
    for (size_t i = 0; i < move->file_count && !PLANT(STANDBY_FORGETS_READERS); i++) {
        store_file_wait_for_readers(move->files[i]);
    }
    if (atomic_load(&move->old->refs) > 1) {
        standby->now = (struct version){.holder = NULL}; /* `old` has both */
        old_version_put(move->old);
    } else {
        free(move->old);
        version_close(standby, &standby->now);
    }
    standby->now = move->next;
}

static void end_move(struct standby *standby, struct move *move)
{
    for (size_t i = 0; i < move->file_count; i++) {
        store_file_close(move->files[i]);
    }
    free(move->files);
    store_changes_free(&move->changes);
    txn_set_free(&standby->touched);
    standby->touched = (struct txn_set){.inodes = NULL};
}

static int move_to_next(struct standby *standby, struct move *move)
{
    struct frame_budget budget;
    move->old = malloc(sizeof *move->old);
    int rc = move->old != NULL ? frame_budget_take(standby->store->cache, 2 * STORE_READ_PINS, 0, &budget) : -ENOMEM;
    if (rc == 0) {
        *move->old = (struct old_version){
            .store = standby->store, .holder = standby->now.holder, .view = standby->now.view, .refs = 1};
        rc = note_changes(standby, &move->next, &move->changes);
        if (rc == 0) {
            rwlock_lock_exclusive(&standby->shown->catalog_lock);
            rc = move_locked(standby, move);
            rwlock_unlock_exclusive(&standby->shown->catalog_lock);
        }
        frame_budget_release(&budget);
    }
    if (rc != 0) {
        free(move->old);
        version_close(standby, &move->next);
        return rc;
    }
    leave_version(standby, move);
    return 0;
}

/* STANDBY-5: told last. */
static void tell(struct standby *standby, struct move *move, lsn_no position, int64_t time_ns)
{
    if (standby->options.shown != NULL) {
        standby->options.shown(standby->options.arg, &move->changes);
    }
    mutex_lock(&standby->lock);
    standby->status.position = position;
    standby->status.time_ns = time_ns;
    standby->status.shown++;
    mutex_unlock(&standby->lock);
}

static int show(struct standby *standby, lsn_no position, int64_t time_ns)
{
    struct move move = {.changes = {.lsn = position, .time_ns = time_ns}};
    assert(position >= standby->position); /* STANDBY-2 */
    int rc = version_fork(standby, &move.next);
    if (PLANT(STANDBY_SHOWS_EARLY)) {
        tell(standby, &move, position, time_ns);
    }
    if (rc == 0) {
        rc = move_to_next(standby, &move);
    }
    if (rc == 0) {
        standby->position = position;
        standby->shown_ns = io_monotonic_ns(standby->store->dev);
        store_sweep_dead_of(standby->store, SWEEP_REDO, 0);
        tell(standby, &move, position, time_ns);
    }
    end_move(standby, &move);
    return rc;
}

/* ---- following ---- */

static bool wants_checkpoint(struct standby *standby)
{
    struct store *store = standby->store;
    struct cow_stats stats;
    cow_get_stats(store->cow, &stats);
    const uint64_t age_ns = io_monotonic_ns(store->dev) - store->last_checkpoint_ns;
    return age_ns >= standby->options.checkpoint_interval_ms * NS_IN_MS ||
           stats.deferred - store->deferred_at_checkpoint > DEFERRED_BLOCKS_MAX || stats.wants_checkpoint;
}

static bool is_due(const struct standby *standby)
{
    const uint64_t age_ns = io_monotonic_ns(standby->store->dev) - standby->shown_ns;
    const struct txn_set *touched = &standby->touched;
    return age_ns >= standby->options.show_interval_ms * NS_IN_MS ||
           HASH_COUNT(touched->names) + HASH_COUNT(touched->inodes) >= TOUCHED_MAX;
}

static int came(void *arg, lsn_no position, int64_t time_ns, bool *out_checkpoint, bool *out_stop)
{
    struct standby *standby = arg;
    *out_checkpoint = wants_checkpoint(standby);
    *out_stop = atomic_load(&standby->stop);
    return position > standby->position && is_due(standby) ? show(standby, position, time_ns) : 0;
}

static void note_waiting(struct standby *standby, bool waiting, int rc)
{
    mutex_lock(&standby->lock);
    standby->status.waiting = waiting;
    standby->status.wait_rc = rc;
    mutex_unlock(&standby->lock);
}

static bool wait_for_more(struct standby *standby, int rc)
{
    while (store_maps_step(standby->store)) { /* of tables that a dropped snapshot saw differently */
    }
    store_snapshots_close(standby->store);
    note_waiting(standby, true, rc);
    const bool go_on = !atomic_load(&standby->stop) && standby->options.wait(standby->options.arg, rc);
    note_waiting(standby, false, 0);
    return go_on;
}

static bool wait_at(void *arg, lsn_no position, int rc)
{
    struct standby *standby = arg;
    if (position > standby->position) {
        const int show_rc = show(standby, position, atomic_load(&standby->store->last_time_ns));
        rc = rc != 0 ? rc : show_rc; /* tried again at the next group */
    }
    return wait_for_more(standby, rc);
}

static bool never_stops(void *arg, const struct op_record *op, bool *out_after)
{
    (void)arg;
    (void)op;
    *out_after = false;
    return false;
}

/* No room, or no memory: a record that was not done is done later. A checkpoint frees what only the one before it needs. */
static bool may_pass(struct standby *standby, int rc)
{
    if (rc != -ENOSPC && rc != -ENOMEM) {
        return false;
    }
    diag_log(standby->store->diag, DIAG_ERROR, "%s: the standby waits: %s", standby->store->dir,
             rc == -ENOSPC ? "no space left on its disk" : "out of memory");
    return wait_for_more(standby, rc);
}

int standby_follow(struct standby *standby)
{
    const struct archive_follower follower = {
        .touched = &standby->touched, .came = came, .wait = wait_at, .arg = standby};
    struct archive_replay replay = {
        .follower = &follower,
        .chain = &standby->source.chain,
        .stops = never_stops,
        .segment_size = standby->source.segment_size,
        .checkpoint_log_bytes = standby->options.checkpoint_log_bytes,
    };
    int rc;
    do {
        rc = store_replay_archive(standby->store, &replay);
        mutex_lock(&standby->lock);
        standby->status.records = replay.records;
        mutex_unlock(&standby->lock);
    } while (may_pass(standby, rc));
    return rc;
}

/* ---- promoting ---- */

/* PROMOTE-2: one that cannot move, because the inode is open in the live view by now, is read on as it is. */
static int move_files(struct standby *standby, struct move *move)
{
    int rc = 0;
    for (size_t i = 0; i < move->file_count && rc == 0; i++) {
        struct store_file *file = move->files[i];
        if (atomic_load(&file->replaced) || store_file_move(file, store_live(standby->store))) {
            continue;
        }
        rwlock_lock_exclusive(&standby->shown->catalog_lock);
        store_file_replace(standby->store, standby->shown, file->ino, file->ino, move->old);
        rwlock_unlock_exclusive(&standby->shown->catalog_lock);
    }
    return rc;
}

/* The view shows nothing from here on: who still asks it is told that all is gone, and comes back by another way. */
static int end_shown(struct standby *standby, const struct standby_promotion *promotion)
{
    struct move move = {.old = malloc(sizeof *move.old)};
    if (move.old == NULL) {
        return -ENOMEM;
    }
    *move.old = (struct old_version){
        .store = standby->store, .holder = standby->now.holder, .view = standby->now.view, .refs = 1};
    promotion->promoted(promotion->arg);
    rwlock_lock_exclusive(&standby->shown->catalog_lock);
    int rc = store_files_list(standby->store, standby->shown, &move.files, &move.file_count);
    if (rc == 0) {
        view_show(standby->shown, NULL);
    }
    rwlock_unlock_exclusive(&standby->shown->catalog_lock);
    if (rc == 0) {
        rc = move_files(standby, &move);
        leave_version(standby, &move);
    } else {
        free(move.old);
    }
    end_move(standby, &move);
    return rc;
}

int standby_promote(struct standby *standby, const struct standby_promotion *promotion, uint32_t *out_timeline)
{
    struct store *store = standby->store;
    lock_assert_none_held();
    int rc = restore_end(store, &standby->source, standby->position, standby->status.time_ns, out_timeline);
    if (rc == 0) {
        restore_forget(store->dev, store->dir);
        rc = store_become_writable(store, promotion->archive, promotion->archive_timeout_ms);
    }
    if (rc == 0) {
        rc = end_shown(standby, promotion);
    }
    if (rc == 0) {
        atomic_store(&store->following, false);
        rc = store_destroy_orphans(store); /* that the primary had open */
    }
    if (rc == 0 && store->background) {
        rc = store_thread_start(store);
    }
    if (rc != 0) {
        store_fail(store, "the standby could not be made writable", rc);
    }
    return rc;
}

/* ---- opening and closing ---- */

static void set_defaults(struct standby_options *options)
{
    if (options->checkpoint_log_bytes == 0) {
        options->checkpoint_log_bytes = DEFAULT_CHECKPOINT_LOG_BYTES;
    }
    if (options->checkpoint_interval_ms == 0) {
        options->checkpoint_interval_ms = DEFAULT_CHECKPOINT_INTERVAL_MS;
    }
}

static void init_source(struct standby *standby)
{
    const struct store *store = standby->store;
    const struct restore_options options = {
        .dev = store->dev, .diag = store->diag, .dir = store->dir, .archive = standby->options.archive};
    restore_source_init(&standby->source, &options, &store->control, store->log_segment_size);
    standby->source.follows = true;
}

int standby_open(struct store *store, const struct standby_options *options, struct standby **out_standby)
{
    assert(store->recovering && store->log == NULL);
    struct standby *standby = calloc(1, sizeof *standby);
    if (standby == NULL) {
        return -ENOMEM;
    }
    standby->store = store;
    standby->options = *options;
    set_defaults(&standby->options);
    mutex_init(&standby->lock, LOCK_RANK_LEAF);
    init_source(standby);
    standby->position = store->control.redo_lsn;
    standby->status.position = standby->position;
    int rc = version_fork(standby, &standby->now);
    if (rc == 0) {
        rc = view_open_read_only(store->cow, standby->now.holder, &standby->shown);
    }
    if (rc != 0) {
        standby_close(standby);
        return rc;
    }
    atomic_store(&store->following, true);
    *out_standby = standby;
    return 0;
}

void standby_stop(struct standby *standby)
{
    atomic_store(&standby->stop, true);
}

struct view *standby_view(struct standby *standby)
{
    return standby->shown;
}

void standby_get_status(struct standby *standby, struct standby_status *out_status)
{
    mutex_lock(&standby->lock);
    *out_status = standby->status;
    mutex_unlock(&standby->lock);
    out_status->timeline = standby->source.timeline;
    out_status->segment_size = standby->source.segment_size;
    out_status->checkpoints = atomic_load(&standby->store->checkpoints);
}

void standby_close(struct standby *standby)
{
    if (standby->shown != NULL) {
        view_close(standby->shown);
    }
    version_close(standby, &standby->now);
    txn_set_free(&standby->touched);
    mutex_destroy(&standby->lock);
    free(standby);
}
