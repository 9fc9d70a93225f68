/*
 * txn/store_commit.c - closing a transaction (txn/publish.h).
 *
 *   log space, frames, maps --> gate exclusively --> conflicts? --> new live tree built --> commit record, root swapped --> gate open
 *       --> record durable --> those who read the old version are through --> it goes
 *
 * Locking: nothing is held while it waits. Under the gate: catalog locks one at a time; the live one exclusively for the swap. There, an
 * inode that was dropped is either found open, and lives on without a name, or can be opened by nobody.
 */
#include "txn/publish.h"
#include "txn/store_compact_auto.h"

#include "base/array.h"
#include "base/plant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_ROOM_BYTES 1024u
#define COMMIT_EDITS      32u
#define COMMIT_EDITS_MAX  4096u
#define COMMIT_TRY_AGAIN  4

/* ---- closing ---- */

struct commit {
    struct store_txn *txn;
    struct store *store;
    struct publish publish;
    struct log_slot *slot;
    size_t slot_room;     /* for removals and orphans */
    uint64_t rewritten;   /* tables that inode numbers are taken for */
    struct holder *after; /* keeps what is published as it is, for those who read on in the transaction */
    unsigned edits;
    lsn_no position;
    bool swapped, empty;
};

static int first_conflict(void *arg, const struct conflict *conflict)
{
    (void)arg;
    (void)conflict;
    return -EAGAIN;
}

static int publish_listed(void *arg, const struct op_record *record)
{
    const int rc = publish_record(arg, record);
    return rc > 0 ? 0 : rc;
}

/* What the plan of an operation says when the live tree is not as it has to be: others changed it. */
static int as_conflict(int rc)
{
    switch (rc) {
    case -ENOENT:
    case -EEXIST:
    case -ENOTEMPTY:
    case -ENOTDIR:
    case -EISDIR:
    case -EINVAL:
    case -EMLINK:
        return -EAGAIN;
    default:
        return rc;
    }
}

static int build(struct commit *commit)
{
    struct publish *publish = &commit->publish;
    const struct txn_set *set = publish->set;
    int rc = publish_begin(publish);
    if (rc == 0) {
        rc = as_conflict(op_records_each(set->list, set->list_size, publish_listed, publish));
    }
    if (rc == 0) {
        rc = publish_content_all(publish);
    }
    if (rc == 0) {
        rc = publish_renumber_all(publish);
    }
    if (rc == 0) {
        rc = publish_note_changes(publish);
    }
    return rc;
}

/* Everything that an old version needs but its table's file. */
static int prepare_old_version(struct commit *commit)
{
    struct publish *publish = &commit->publish;
    publish->old = calloc(1, sizeof *publish->old);
    if (publish->old == NULL) {
        return -ENOMEM;
    }
    *publish->old = (struct old_version){.store = commit->store,
                                         .holder = publish->base,
                                         .view = publish->before,
                                         .refs = PLANT(OLD_VERSION_NOT_HELD) ? 0 : 1};
    return cow_fork_locked(commit->store->cow, HOLDER_OLD_VERSION, &commit->after);
}

/* The catalog lock of the live view is held exclusively: nobody opens a file. */
static bool any_dropped_is_open(struct commit *commit)
{
    const struct publish *publish = &commit->publish;
    bool any = false;
    for (size_t i = 0; i < publish->dropped_count && !any; i++) {
        any = store_file_is_open(commit->store, store_live(commit->store), publish->dropped[i]);
    }
    return any;
}

static void append_record(struct commit *commit)
{
    struct store_txn *txn = commit->txn;
    const struct publish *publish = &commit->publish;
    const struct op_record op = {
        .type = OP_COMMIT,
        .txn = txn->number,
        .time_ns = publish->time_ns,
        .ino = publish->first_ino,
        .uid = txn->uid,
        .cookie = publish->changes->number,
        .name = {.data = txn->name, .size = strlen(txn->name)},
        .data = {.data = txn->removals, .size = PLANT(REMOVALS_NOT_CARRIED) ? 0 : atomic_load(&txn->removals_size)},
        .pages = {.data = publish->orphans,
                  .size = PLANT(ORPHANS_NOT_NAMED) ? 0 : publish->orphan_count * sizeof publish->orphans[0]},
    };
    commit->position = log_append_at(commit->store->log, &op, commit->slot, &commit->publish.changes->lsn);
    commit->slot = NULL;
}

/* From here on it is in the live tree. Cannot fail. */
static int swap(struct commit *commit)
{
    struct store *store = commit->store;
    struct publish *publish = &commit->publish;
    struct view *live = store_live(store);
    rwlock_lock_exclusive(&live->catalog_lock);
    if (any_dropped_is_open(commit)) {
        rwlock_unlock_exclusive(&live->catalog_lock);
        return COMMIT_TRY_AGAIN;
    }
    publish->changes->number = atomic_load(&store->commits) + 1;
    append_record(commit);
    publish_swap_locked(publish);
    for (const struct txn_inode *inode = publish->set->inodes; inode != NULL; inode = inode->hh.next) {
        if (!inode->created && inode->twin != INO_NONE) {
            store_file_replace(store, live, inode->ino, inode->twin, publish->old);
        }
    }
    atomic_fetch_add(&store->changes, 1);
    atomic_fetch_add(&store->operations[OP_COMMIT], 1);
    txn_end_locked(commit->txn, STORE_TXN_COMMITTED);
    commit->txn->after = commit->after;
    commit->txn->view->published = true;
    commit->swapped = true;
    rwlock_unlock_exclusive(&live->catalog_lock);
    return 0;
}

/* GATE_OPENED_BEFORE_SWAP: long enough for somebody to come in. */
static void plant_open_gate(struct store *store)
{
    if (PLANT(GATE_OPENED_BEFORE_SWAP)) {
        const uint64_t until_ns = io_monotonic_ns(store->dev) + 200000;
        cow_gate_open(store->cow);
        while (io_monotonic_ns(store->dev) < until_ns) {
        }
        cow_gate_close(store->cow);
    }
}

/* PUBLISH_LEAVES_HALF */
static void plant_leave_half(struct commit *commit)
{
    struct view *live = store_live(commit->store);
    const int rc = build(commit);
    (void)rc;
    if (commit->publish.view != NULL) {
        rwlock_lock_exclusive(&live->catalog_lock);
        publish_swap_locked(&commit->publish);
        rwlock_unlock_exclusive(&live->catalog_lock);
    }
}

static int close_under_gate(struct commit *commit)
{
    struct store_txn *txn = commit->txn;
    int rc = txn_check_open(txn);
    if (rc != 0) {
        return rc;
    }
    if (txn->set.operations == 0) {
        commit->empty = true;
        txn_end_locked(txn, STORE_TXN_COMMITTED);
        return 0;
    }
    if (txn->failed) {
        return -ENOMEM;
    }
    const size_t room = atomic_load(&txn->removals_size) + HASH_COUNT(txn->set.inodes) * sizeof(le64);
    const bool few_numbers = publish_count_rewritten(&txn->set) > commit->rewritten && !PLANT(NUMBERS_NOT_CHECKED);
    if (room > commit->slot_room || few_numbers) {
        return COMMIT_TRY_AGAIN; /* more was done meanwhile */
    }
    commit->publish.time_ns = store_now_ns(commit->store);
    commit->publish.changes->time_ns = commit->publish.time_ns;
    rc = PLANT(COMMIT_WITHOUT_CHECK) ? 0 : txn_find_conflicts(txn, first_conflict, NULL);
    if (rc == 0) {
        plant_open_gate(commit->store);
        rc = build(commit);
    } else if (PLANT(PUBLISH_LEAVES_HALF)) {
        plant_leave_half(commit);
    }
    if (rc == 0) {
        rc = prepare_old_version(commit);
    }
    return rc != 0 ? rc : swap(commit);
}

static uint32_t set_inode_count(struct store_txn *txn, uint64_t *out_rewritten)
{
    rwlock_lock_shared(&txn->view->catalog_lock);
    const uint32_t count = HASH_COUNT(txn->set.inodes);
    *out_rewritten = publish_count_rewritten(&txn->set);
    rwlock_unlock_shared(&txn->view->catalog_lock);
    return count;
}

/* Log space and frames; what may wait. */
static int reserve(struct commit *commit)
{
    struct store_txn *txn = commit->txn;
    struct store *store = commit->store;
    const uint32_t inodes = set_inode_count(txn, &commit->rewritten);
    uint32_t pins = 0;
    uint32_t news = 0;
    uint32_t content_pins = 0;
    uint32_t content_news = 0;
    int rc = store_ceilings_ensure(store, commit->rewritten);
    commit->slot_room = atomic_load(&txn->removals_size) + inodes * sizeof(ino_no) + COMMIT_ROOM_BYTES;
    if (rc == 0) {
        rc = log_reserve(store->log, commit->slot_room + COMMIT_ROOM_BYTES, &commit->slot);
    }
    if (rc != 0) {
        return rc;
    }
    commit->publish.first_ino = atomic_fetch_add(&store->next_ino, commit->rewritten);
    catalog_frames_needed(commit->edits, &pins, &news);
    content_frames_needed(MERGE_CHUNK_BYTES, &content_pins, &content_news);
    commit->publish.news = news + content_news;
    return frame_budget_take(store->cache, pins + content_pins + 2 * STORE_READ_PINS, news + content_news,
                             &commit->publish.budget);
}

/* Their content is that of the transaction, wherever its blocks lie. */
static void note_written(const struct commit *commit)
{
    for (const struct txn_inode *inode = commit->txn->set.inodes; inode != NULL; inode = inode->hh.next) {
        if (inode->content) {
            store_compact_note(commit->store, inode->twin != INO_NONE ? inode->twin : inode->ino);
        }
    }
}

/* While they were in no tree but those of holders their maps could not be built. */
static void build_maps_of_revived(const struct commit *commit)
{
    const struct publish *publish = &commit->publish;
    for (size_t i = 0; i < publish->revived_count; i++) {
        struct relation *relation = publish->revived[i];
        if (!fsm_is_ready(relation) && !PLANT(MAP_NOT_ORDERED_AGAIN)) {
            store_map_doubt(commit->store, relation, relation_first_ino(relation));
        }
    }
}

/* Whoever reads what was replaced started before the swap and is through when its file lock was held exclusively once. */
static void wait_for_readers(struct commit *commit)
{
    for (const struct txn_inode *inode = commit->txn->set.inodes; inode != NULL; inode = inode->hh.next) {
        struct store_file *file = inode->content && !inode->created
                                      ? store_file_find(commit->store, store_live(commit->store), inode->ino)
                                      : NULL;
        if (file != NULL) {
            store_file_wait_for_readers(file);
            store_file_close(file);
        }
    }
}

/* The fork goes, or lives on as the old version of those tables that are open. */
static void end_try(struct commit *commit)
{
    struct publish *publish = &commit->publish;
    struct old_version *old = publish->old;
    const bool is_held = !PLANT(OLD_VERSION_NOT_HELD);
    log_unreserve(commit->store->log, commit->slot);
    commit->slot = NULL;
    frame_budget_release(&publish->budget);
    if (commit->swapped && old != NULL && (is_held || atomic_load(&old->refs) > 0)) {
        publish->base = NULL; /* both are the old version's */
        publish->before = NULL;
        old_version_put(is_held ? old : NULL);
    } else {
        free(old);
    }
    publish->old = NULL;
    publish_end(publish);
}

static int commit_try(struct commit *commit)
{
    struct store *store = commit->store;
    int rc = reserve(commit);
    if (rc == 0) {
        cow_gate_close(store->cow);
        rc = close_under_gate(commit);
        cow_gate_open(store->cow);
    }
    if (!commit->swapped && commit->after != NULL) {
        cow_holder_close(store->cow, commit->after);
        commit->after = NULL;
    }
    return rc;
}

/* No lock held. */
static int make_durable(struct commit *commit)
{
    struct store *store = commit->store;
    int rc = log_write(store->log, commit->position);
    if (rc == 0 && !PLANT(COMMIT_NOT_SYNCED)) {
        rc = log_sync(store->log, commit->position);
    }
    if (rc != 0) {
        store_fail(store, "the log could not be written", rc);
    }
    return rc != 0 ? -EIO : 0;
}

/* Those that were kept because they were open, and were closed before that could be noted. */
static void destroy_closed_orphans(struct commit *commit)
{
    const struct publish *publish = &commit->publish;
    struct store *store = commit->store;
    for (size_t i = 0; i < publish->orphan_count; i++) {
        const ino_no ino = le64_get(publish->orphans[i]);
        if (!store_file_mark_orphan(store, store_live(store), ino)) {
            store_destroy_orphan_or_log(store, store_live(store), ino);
        }
    }
}

struct ino_list {
    ino_no *inos;
    size_t count, capacity;
};

/* Tables of the live tree that rows may have to be appended to. */
static int list_appended(struct store_txn *txn, struct ino_list *list)
{
    int rc = 0;
    rwlock_lock_shared(&txn->view->catalog_lock);
    for (const struct txn_inode *inode = txn->set.inodes; inode != NULL && rc == 0; inode = inode->hh.next) {
        if (inode->content && !inode->created && !inode->rewritten) {
            ino_no *inos = array_with_room(list->inos, list->count, &list->capacity, sizeof inos[0]);
            list->inos = inos != NULL ? inos : list->inos;
            rc = inos != NULL ? 0 : -ENOMEM;
            if (rc == 0) {
                list->inos[list->count++] = inode->ino;
            }
        }
    }
    rwlock_unlock_shared(&txn->view->catalog_lock);
    return rc;
}

/* Their maps are ready: under the gate nobody can build one. */
static int prepare_maps(struct store_txn *txn)
{
    struct store *store = txn->store;
    struct ino_list list = {0};
    int rc = list_appended(txn, &list);
    for (size_t i = 0; i < list.count && rc == 0; i++) {
        struct store_file *file = NULL;
        rc = store_file_open(store, store_live(store), list.inos[i], &file);
        if (rc == 0) {
            rc = store_file_ensure_map(file);
            store_file_close(file);
        }
        rc = rc == -EIO || rc == -ENOMEM ? rc : 0; /* gone: a conflict, as will be found */
    }
    free(list.inos);
    return rc;
}

static void start_try(struct commit *commit, struct store_changes *changes)
{
    struct store_txn *txn = commit->txn;
    commit->publish =
        (struct publish){.store = commit->store, .txn = txn, .set = &txn->set, .exclusive = true, .changes = changes};
}

static bool wants_another_try(struct commit *commit, int rc, struct op_retry *retry)
{
    if (rc == COMMIT_TRY_AGAIN || rc == OP_ROOT_SWAPPED) {
        return true;
    }
    if (rc == -E2BIG && commit->edits < COMMIT_EDITS_MAX) {
        commit->edits *= 4;
        return true;
    }
    retry->no_space = rc == -ENOSPC;
    return rc == -ENOSPC && op_wants_retry(commit->store, &rc, retry);
}

int store_txn_commit(struct store_txn *txn, struct store_changes *out_changes)
{
    struct commit commit = {.txn = txn, .store = txn->store, .edits = COMMIT_EDITS};
    struct op_retry retry = {.may_use_reserve = true};
    struct store_changes changes = {0};
    int rc;
    if (txn->scratch) {
        return -EINVAL;
    }
    do {
        store_changes_free(&changes);
        start_try(&commit, &changes);
        rc = store_check_writable(txn->store);
        rc = rc == 0 ? prepare_maps(txn) : rc;
        rc = rc == 0 ? commit_try(&commit) : rc;
        if (rc == 0 && !commit.empty) {
            rc = make_durable(&commit);
            destroy_closed_orphans(&commit);
            wait_for_readers(&commit);
            note_written(&commit);
            build_maps_of_revived(&commit);
        }
        end_try(&commit);
    } while (!commit.swapped && wants_another_try(&commit, rc, &retry));
    if (commit.swapped) {
        store_record_commit(txn, &changes);
    }
    if (rc != 0) {
        store_changes_free(&changes);
        return rc;
    }
    *out_changes = changes;
    return 0;
}
