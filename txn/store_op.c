/*
 * txn/store_op.c - the life of one mutation: budget, gate, plan, log, apply (STORE-1, STORE-2).
 *
 *   op_begin --> [content plan by the caller] --> op_lock_catalog --> [edits by the caller] --> op_finish --> op_end
 *
 * op_end may be called from any state and undoes what op_finish did not apply.
 */
#include "txn/publish.h"
#include "txn/store_int.h"
#include "txn/store_txn.h"

#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int64_t store_now_ns(struct store *store)
{
    const int64_t now = (int64_t)io_realtime_ns(store->dev);
    int64_t last = atomic_load(&store->last_time_ns);
    while (now > last && !atomic_compare_exchange_weak(&store->last_time_ns, &last, now)) {
    }
    return now > last ? now : last;
}

/* The first page that cannot be written stops everything, although the log could go on: the next checkpoint will fail. */
int store_check_writable(const struct store *store)
{
    const bool failed = atomic_load(&store->failure) != NULL || bufcache_failed(store->cache) != 0;
    return store->read_only || failed ? -EROFS : 0;
}

int store_check_takes_changes(const struct store *store)
{
    return atomic_load(&store->following) ? -EROFS : store_check_writable(store);
}

void store_fail(struct store *store, const char *reason, int rc)
{
    const char *none = NULL;
    if (atomic_compare_exchange_strong(&store->failure, &none, reason)) {
        diag_log(store->diag, DIAG_ERROR, "%s: %s: %s; the store is read-only until it is mounted again", store->dir,
                 reason, strerror(-rc));
    }
}

/* Room for the largest record without content: two names and a link target, or a name and an attribute's value. */
#define RECORD_MAX_BYTES 5120u

static int reserve_log(struct op_run *run, uint64_t log_bytes)
{
    const bool carried = run->txn != NULL && op_is_removal(run->op.type); /* by a later record */
    const bool scratch = run->txn != NULL && run->txn->scratch;
    if (run->replay != NULL || run->store->log == NULL || carried || scratch || run->op.type == OP_UNLOGGED) {
        return 0;
    }
    return log_reserve(run->store->log, RECORD_MAX_BYTES + log_bytes, &run->slot);
}

/* Many edits are those of neighbours (an inode goes with its attributes) and need far less than the worst case: with all
 * that there is, the plan decides. */
static void limit_frames(const struct store *store, uint32_t *pins, uint32_t *news)
{
    const uint32_t half = (frame_budget_max(store->cache) - STORE_READ_PINS) / 2;
    if (*pins + *news > 2 * half) {
        *pins = half;
        *news = half;
    }
}

/* Whose view is it? */
static void set_owner(struct op_run *run)
{
    const struct view_owner *owner = run->view->owner;
    if (owner != NULL) {
        run->txn = owner->txn;
        run->publish = owner->publish;
        run->op.txn = run->txn != NULL ? store_txn_number(run->txn) : 0;
    }
}

/* What has to be so before anything is taken; may wait for the disk. */
static int check_before(const struct op_run *run)
{
    struct store *store = run->store;
    const bool replays = run->replay != NULL || run->publish != NULL; /* or closes a transaction */
    int rc = replays ? store_check_writable(store) : store_check_takes_changes(store);
    if (rc == 0) {
        rc = store_ceilings_ensure(store, 0);
    }
    if (rc == 0 && run->replay == NULL) {
        rc = store_reserve_check(store, run->op.type);
    }
    if (rc == 0 && run->txn != NULL) {
        rc = txn_flush_removals_before(run->txn, run->op.type);
    }
    return rc;
}

int op_begin(struct op_run *run, struct store *store, struct view *view, enum op_type type,
             const struct op_record *replay, unsigned edits, uint64_t content_bytes, uint64_t log_bytes,
             bool has_content)
{
    memset(run, 0, sizeof *run);
    run->store = store;
    run->view = view;
    run->op.type = type;
    run->replay = replay;
    run->edits = edits;
    set_owner(run);
    if (run->publish != NULL && run->publish->exclusive) {
        catalog_batch_init(&run->batch, view);
        run->budget_borrowed = true;
        return publish_lend_budget(run->publish, &run->budget);
    }
    run->planning_pages = true;
    int rc = check_before(run);
    if (rc != 0) {
        return rc;
    }
    uint32_t pins = 0;
    uint32_t news = 0;
    catalog_frames_needed(edits, &pins, &news);
    limit_frames(store, &pins, &news);
    pins += STORE_READ_PINS;
    if (has_content) {
        uint32_t content_pins = 0;
        uint32_t content_news = 0;
        content_frames_needed(content_bytes, &content_pins, &content_news);
        pins += content_pins;
        news += content_news;
    }
    rc = frame_budget_take(store->cache, pins, news, &run->budget);
    if (rc == 0) {
        catalog_batch_init(&run->batch, view);
        rc = reserve_log(run, log_bytes);
    }
    if (rc != 0) {
        frame_budget_release(&run->budget);
    }
    run->planning_pages = rc != 0; /* a checkpoint makes room in the log as well */
    return rc;
}

int op_enter_gate(struct op_run *run)
{
    if (run->budget_borrowed) {
        return 0; /* whoever publishes holds the gate */
    }
    cow_gate_enter(run->store->cow);
    run->gate_held = true;
    return run->txn != NULL ? txn_check_open(run->txn) : 0;
}

void op_close_gate(struct op_run *run)
{
    cow_gate_close(run->store->cow);
    run->gate_held = true;
    run->gate_closed = true;
}

void op_lock_catalog(struct op_run *run)
{
    assert(run->gate_held || run->budget_borrowed);
    rwlock_lock_exclusive(&run->view->catalog_lock);
    run->catalog_held = true;
    run->op.time_ns = run->replay != NULL ? run->replay->time_ns : store_now_ns(run->store);
    run->ctime_ns = run->publish != NULL ? run->publish->time_ns : run->op.time_ns;
}

int op_drop_relation(struct op_run *run, const struct inode *inode)
{
    if (inode->rel == REL_NONE) {
        return 0;
    }
    assert(run->dropped_count < ARRAY_COUNT(run->dropped));
    struct relation *relation = NULL;
    int rc = relation_open(run->store->cache, inode->ts, inode->rel, &relation);
    if (rc != 0) {
        return rc;
    }
    struct retire_list *list = &run->dropped[run->dropped_count++];
    rc = retire_list_reserve(list, relation, 1);
    if (rc == 0) {
        retire_list_add_relation(list, inode->rel_created);
    }
    relation_unref(relation);
    if (rc == 0 && (inode->flags & INODE_RENUMBERED) != 0) {
        rc = owner_batch_remove(&run->batch, inode->rel);
    }
    return rc;
}

/* Nothing in here can fail. */
static void op_apply(struct op_run *run)
{
    struct store *store = run->store;
    if (run->slot != NULL) {
        run->position = log_append(store->log, &run->op, run->slot);
        run->slot = NULL;
        txn_note_logged(run->txn, run->position);
        if (PLANT(REDO_BEHIND_OPERATION) && store_control_set_redo(store, log_mark(store->log)) != 0) {
            return;
        }
    }
    atomic_fetch_add(&store->changes, 1);
    if (run->content != NULL) {
        content_plan_apply(run->content);
        run->content = NULL;
    }
    catalog_batch_apply(&run->batch);
    for (unsigned i = 0; i < run->dropped_count; i++) {
        view_retire(run->view, &run->dropped[i]);
    }
    if (run->publish != NULL) {
        run->publish->inode_delta += run->inode_delta;
    } else if (run->txn == NULL) {
        atomic_fetch_add(&store->inode_count, (uint64_t)run->inode_delta);
    }
    if (run->publish != NULL) {
        run->publish->moves_directory |= run->moves_directory; /* names that go are noted when the tree is swapped in */
    }
    if (run->publish != NULL ? PLANT(NAMES_NOTED_EARLY) : run->txn == NULL) {
        removed_names_note(store, run);
    }
    if (run->publish == NULL) {
        atomic_fetch_add(&store->operations[run->op.type], 1);
    }
}

int op_finish(struct op_run *run)
{
    assert(run->catalog_held);
    run->planning_pages = true;
    int rc = catalog_batch_plan(&run->batch, &run->budget);
    if (rc == 0 && run->txn != NULL) {
        rc = txn_note_operation(run->txn, &run->op);
    }
    if (rc == 0) {
        op_apply(run);
    }
    return rc;
}

void op_release(struct op_run *run)
{
    content_plan_abandon(run->content);
    catalog_batch_free(&run->batch);
    for (unsigned i = 0; i < run->dropped_count; i++) {
        retire_list_free(&run->dropped[i]);
    }
    if (run->catalog_held) {
        rwlock_unlock_exclusive(&run->view->catalog_lock);
    }
    if (run->gate_closed) {
        cow_gate_open(run->store->cow);
    } else if (run->gate_held) {
        cow_gate_leave(run->store->cow);
    }
    if (run->budget_borrowed) {
        publish_take_budget_back(run->publish, &run->budget);
    } else {
        frame_budget_release(&run->budget);
    }
    log_unreserve(run->store->log, run->slot);
    free(run->record_memory);
    *run = (struct op_run){.store = run->store, .position = run->position};
}

int op_end(struct op_run *run, int rc)
{
    struct store *store = run->store;
    op_release(run);
    if (run->position == 0 || PLANT(LOG_WRITE_SKIPPED)) {
        return rc;
    }
    const int log_rc = log_write(store->log, run->position);
    if (log_rc != 0) {
        store_fail(store, "the log could not be written", log_rc);
    }
    return rc != 0 ? rc : log_rc;
}

void op_note_retry(const struct op_run *run, int rc, struct op_retry *retry)
{
    retry->wanted_edits = run->batch.count;
    retry->txn = run->txn;
    retry->final = run->budget_borrowed;
    retry->no_space = rc == -ENOSPC && run->planning_pages;
    retry->may_use_reserve = store_reserve_may_use(run->store, run->op.type);
}

bool op_wants_retry(struct store *store, int *inout_rc, struct op_retry *retry)
{
    const int rc = *inout_rc;
    if (retry->final) {
        return false;
    }
    if (rc == TXN_REMOVALS_FIRST) {
        *inout_rc = txn_flush_removals(retry->txn);
        return *inout_rc == 0;
    }
    if (rc == OP_ROOT_SWAPPED) {
        return true;
    }
    if (rc == -E2BIG && retry->wanted_edits > retry->edits) {
        retry->edits = retry->wanted_edits;
        return true;
    }
    if (rc != -ENOSPC || !retry->no_space) {
        return false;
    }
    if (!retry->checkpointed && !store->recovering) {
        retry->checkpointed = true;
        return store_sync(store) == 0 &&
               store_checkpoint_for(store, CHECKPOINT_FULL) == 0; /* segments go when they are synced as well */
    }
    if (!retry->reserve_used && retry->may_use_reserve) {
        retry->reserve_used = true;
        store_reserve_release(store);
        return true;
    }
    return false;
}

/* The inode became an orphan. When its last close came between plan and apply, nobody else destroys it (STORE-4). */
static ino_no op_mark_orphan(struct op_run *run)
{
    if (run->orphan == INO_NONE || run->replay != NULL || store_file_mark_orphan(run->store, run->view, run->orphan)) {
        return INO_NONE;
    }
    return run->orphan;
}

static int op_try(struct store *store, struct view *view, enum op_type type, const struct op_record *replay,
                  op_plan_fn *plan, void *arg, struct op_retry *retry)
{
    struct op_run run;
    int rc = op_begin(&run, store, view, type, replay, retry->edits, 0, 0, false);
    if (rc != 0) {
        op_note_retry(&run, rc, retry);
        return rc;
    }
    rc = op_enter_gate(&run);
    if (rc == 0) {
        op_lock_catalog(&run);
        rc = plan(&run, arg);
    }
    ino_no destroy = INO_NONE;
    if (rc == 0) {
        rc = op_finish(&run);
        destroy = rc == 0 ? op_mark_orphan(&run) : INO_NONE;
    }
    op_note_retry(&run, rc, retry);
    rc = op_end(&run, rc);
    if (destroy != INO_NONE) {
        store_destroy_orphan_or_log(store, view, destroy);
    }
    return rc;
}

static int op_run(struct store *store, struct view *view, enum op_type type, const struct op_record *replay,
                  op_plan_fn *plan, void *arg)
{
    struct op_retry retry = {.edits = STORE_BATCH_EDITS};
    int rc;
    do {
        rc = op_try(store, view, type, replay, plan, arg, &retry);
    } while (op_wants_retry(store, &rc, &retry));
    return rc;
}

int store_op_run(struct store *store, struct view *view, enum op_type type, op_plan_fn *plan, void *arg)
{
    return op_run(store, view, type, NULL, plan, arg);
}

int store_op_replay(struct store *store, struct view *view, const struct op_record *record, op_plan_fn *plan, void *arg)
{
    return op_run(store, view, record->type, record, plan, arg);
}
