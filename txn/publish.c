/*
 * txn/publish.c - the operations of a transaction become one change of the live tree (txn/publish.h).
 *
 *   publish_begin --> publish_record for each operation --> [publish_content_all: closing only, txn/publish_content.c]
 *                 --> publish_renumber_all (txn/publish_renumber.c)
 *                 --> publish_swap_locked --> publish_end
 *
 * Locking: closing calls all of it with the gate held exclusively (PUBLISH-3); replay is alone, and its operations take the gate.
 */
#include "txn/publish.h"

#include "base/array.h"
#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- frames ---- */

int publish_lend_budget(struct publish *publish, struct frame_budget *out_budget)
{
    const int rc = frame_budget_refill(&publish->budget, publish->news);
    *out_budget = publish->budget;
    publish->budget = (struct frame_budget){0};
    if (rc != 0) {
        publish_take_budget_back(publish, out_budget);
    }
    return rc;
}

void publish_take_budget_back(struct publish *publish, struct frame_budget *budget)
{
    if (budget->cache != NULL) {
        publish->budget = *budget;
        *budget = (struct frame_budget){0};
    }
}

/* ---- inodes that lose their last name ---- */

static int add_orphan(struct publish *publish, ino_no ino)
{
    le64 *orphans =
        array_with_room(publish->orphans, publish->orphan_count, &publish->orphan_capacity, sizeof orphans[0]);
    if (orphans == NULL) {
        return -ENOMEM;
    }
    publish->orphans = orphans;
    orphans[publish->orphan_count++] = le64_of(ino);
    return 0;
}

static int add_dropped(struct publish *publish, ino_no ino)
{
    ino_no *dropped =
        array_with_room(publish->dropped, publish->dropped_count, &publish->dropped_capacity, sizeof dropped[0]);
    if (dropped == NULL) {
        return -ENOMEM;
    }
    publish->dropped = dropped;
    dropped[publish->dropped_count++] = ino;
    return 0;
}

static bool becomes_orphan(const struct publish *publish, ino_no ino)
{
    bool becomes = false;
    for (size_t i = 0; i < publish->orphan_count && !becomes; i++) {
        becomes = le64_get(publish->orphans[i]) == ino;
    }
    return becomes;
}

int publish_keeps_inode(struct publish *publish, ino_no ino, bool *out_keeps)
{
    struct store *store = publish->store;
    *out_keeps = false;
    if (publish->txn == NULL) {
        *out_keeps = becomes_orphan(publish, ino);
        return 0;
    }
    *out_keeps = store_file_is_open(store, store_live(store), ino);
    return *out_keeps ? add_orphan(publish, ino) : add_dropped(publish, ino);
}

/* ---- begin ---- */

int publish_begin(struct publish *publish)
{
    struct cow *cow = publish->store->cow;
    publish->owner.publish = publish;
    int rc = publish->exclusive ? cow_fork_locked(cow, HOLDER_OLD_VERSION, &publish->base)
                                : cow_fork(cow, HOLDER_OLD_VERSION, &publish->base);
    if (rc == 0) {
        rc = view_open_transaction(cow, publish->base, &publish->view);
    }
    if (rc == 0) {
        publish->view->owner = &publish->owner;
        rc = view_open_read_only(cow, publish->base, &publish->before);
    }
    return rc;
}

/* ---- one record ---- */

static ino_no twin_of(const struct publish *publish, ino_no ino)
{
    const struct txn_inode *inode = ino != INO_NONE ? txn_set_find_inode(publish->set, ino) : NULL;
    return inode != NULL && inode->twin != INO_NONE ? inode->twin : ino;
}

static struct op_record translated(const struct publish *publish, const struct op_record *record)
{
    struct op_record op = *record;
    op.ino = twin_of(publish, record->ino);
    op.ino2 = twin_of(publish, record->ino2);
    op.parent = twin_of(publish, record->parent);
    op.parent2 = twin_of(publish, record->parent2);
    return op;
}

/* CONFLICT-1: a directory that others made under the same name is the one. True: nothing is to be made. */
static int find_twin(struct publish *publish, const struct op_record *record, ino_no parent, bool *out_found)
{
    const struct txn_name *name = txn_set_find_name(publish->set, record->parent, record->name);
    struct txn_inode *made = txn_set_find_inode(publish->set, record->ino);
    struct dirent_found found;
    *out_found = false;
    if (name == NULL || made == NULL || name->made_dir != record->ino) {
        return 0;
    }
    rwlock_lock_shared(&publish->view->catalog_lock);
    const int rc =
        dirent_find(publish->view, &publish->store->hash, parent, record->name.data, record->name.size, &found);
    rwlock_unlock_shared(&publish->view->catalog_lock);
    if (rc == 0 && found.kind == S_IFDIR >> 12) {
        made->twin = found.ino;
        *out_found = true;
    }
    return rc == -ENOENT ? 0 : rc;
}

static int publish_create(struct publish *publish, const struct op_record *record, const struct op_record *op)
{
    bool is_there = false;
    int rc = S_ISDIR(record->mode) ? find_twin(publish, record, op->parent, &is_there) : 0;
    if (rc == 0 && !is_there) {
        rc = store_names_replay(publish->store, publish->view, op);
    }
    return rc;
}

int publish_find_inode(struct view *view, ino_no ino, struct inode *out_inode, bool *out_exists)
{
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = inode_get(view, ino, out_inode);
    rwlock_unlock_shared(&view->catalog_lock);
    *out_exists = rc == 0 && out_inode->nlink > 0;
    return rc == -ENOENT ? 0 : rc;
}

/* Set-user-id bits that a write in the transaction took away. */
static int plan_kill_suid(struct op_run *run, void *arg)
{
    const ino_no ino = *(const ino_no *)arg;
    struct inode inode;
    const int rc = inode_batch_get(&run->batch, ino, &inode);
    if (rc != 0) {
        return rc;
    }
    inode.mode &= ~(uint32_t)S_ISUID;
    if ((inode.mode & S_IXGRP) != 0) {
        inode.mode &= ~(uint32_t)S_ISGID;
    }
    inode.ctime_ns = run->ctime_ns;
    return inode_batch_put(&run->batch, &inode);
}

/* SET-2: closing, the list has of content only what it did to the mode. Replaying, what live files still see of a table that the
 * transaction dropped stays as they know it. */
static int publish_content_record(struct publish *publish, const struct op_record *op)
{
    ino_no ino = op->ino;
    if (publish->txn != NULL) {
        return store_op_run(publish->store, publish->view, OP_SETATTR, plan_kill_suid, &ino);
    }
    return becomes_orphan(publish, ino) ? 0 : store_content_replay(publish->store, publish->view, op);
}

/* What is done to an open file behind its last name has no place in the live tree; and a directory that others made as well is as they have
 * it. */
static int publish_inode_record(struct publish *publish, const struct op_record *op, bool is_twin)
{
    struct inode inode;
    bool exists = false;
    const int rc = publish_find_inode(publish->view, op->ino, &inode, &exists);
    if (rc != 0 || (!exists && !PLANT(UNLINKED_REPLAYED)) || is_twin) {
        return rc;
    }
    return op_is_content(op->type) ? publish_content_record(publish, op)
                                   : store_attr_replay(publish->store, publish->view, op);
}

static int publish_contained(void *arg, const struct op_record *record)
{
    return publish_record(arg, record);
}

int publish_record(struct publish *publish, const struct op_record *record)
{
    const struct op_record op = translated(publish, record);
    struct store *store = publish->store;
    switch (record->type) {
    case OP_CREATE:
        return publish_create(publish, record, &op);
    case OP_LINK:
    case OP_UNLINK:
    case OP_RMDIR:
    case OP_RENAME:
        return store_names_replay(store, publish->view, &op);
    case OP_SETATTR:
    case OP_SETXATTR:
    case OP_REMOVEXATTR:
    case OP_WRITE:
    case OP_WRITE_PAGES:
    case OP_RESIZE:
    case OP_PUNCH:
        return publish_inode_record(publish, &op, op.ino != record->ino);
    case OP_REMOVE_MANY:
    case OP_COMMIT: /* carries the last ones */
        return op_records_each(record->data.data, record->data.size, publish_contained, publish);
    case OP_DESTROY:
        return 0; /* what had no name in the transaction went with its last name here */
    default:
        return -EBADMSG;
    }
}

/* ---- the end ---- */

/* To other transactions every name that this one touched may have gone: where it did not, it leads elsewhere than before, which
 * conflicts as well. */
static void note_names(const struct publish *publish)
{
    struct store *store = publish->store;
    const epoch_no epoch = cow_epoch(store->cow);
    if (publish->moves_directory) {
        atomic_store(&store->dir_move_epoch, epoch);
    }
    if (atomic_load(&store->txn_count) <= (publish->txn != NULL ? 1u : 0u)) {
        return; /* nobody else */
    }
    mutex_lock(&store->txns_lock);
    for (const struct txn_name *name = publish->set->names; name != NULL; name = name->hh.next) {
        removed_names_add(&store->removed, twin_of(publish, txn_name_parent(name)), txn_name_bytes(name), epoch);
    }
    mutex_unlock(&store->txns_lock);
}

void publish_swap_locked(struct publish *publish)
{
    struct store *store = publish->store;
    note_names(publish);
    view_publish(publish->view);
    for (size_t i = 0; i < publish->hand_over_count && !PLANT(MERGED_TAIL_FREED_TWICE); i++) {
        const struct hand_over *given = &publish->hand_overs[i];
        view_hand_over_run(publish->txn->view, given->relation, given->first, given->count);
    }
    if (publish->txn != NULL) {
        view_hand_over_relations(publish->txn->view, publish->whole, publish->whole_count);
    }
    for (size_t i = 0; i < publish->revived_count && !PLANT(COMPACTION_NOT_UNDONE); i++) {
        cow_revive_relation(store->cow, publish->revived[i]);
    }
    atomic_fetch_add(&store->inode_count, (uint64_t)publish->inode_delta);
    atomic_fetch_add(&store->root_swaps, 1);
    atomic_fetch_add(&store->commits, 1);
}

void publish_end(struct publish *publish)
{
    struct cow *cow = publish->store->cow;
    if (publish->view != NULL) {
        view_close(publish->view);
    }
    if (publish->before != NULL) {
        view_close(publish->before);
    }
    if (publish->base != NULL) {
        cow_holder_close(cow, publish->base);
    }
    for (size_t i = 0; i < publish->hand_over_count; i++) {
        relation_unref(publish->hand_overs[i].relation);
    }
    for (size_t i = 0; i < publish->whole_count; i++) {
        relation_unref(publish->whole[i]);
    }
    for (size_t i = 0; i < publish->revived_count; i++) {
        relation_unref(publish->revived[i]);
    }
    free(publish->hand_overs);
    free(publish->whole);
    free(publish->revived);
    free(publish->orphans);
    free(publish->dropped);
    publish->view = NULL;
    publish->before = NULL;
    publish->base = NULL;
}
