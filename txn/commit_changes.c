/*
 * txn/commit_changes.c - what a commit changed, for those who told others what the tree looks like; and the receipts.
 *
 * Locking: changes are collected by the close, under the gate; store->txns_lock guards the receipts.
 */
#include "txn/publish.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_LINES 10000u

/* ---- lists of changes ---- */

void store_changes_free(struct store_changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        free((char *)changes->changes[i].name);
    }
    free(changes->changes);
    *changes = (struct store_changes){0};
}

int store_changes_add(struct store_changes *changes, struct store_change change)
{
    struct store_change *list = array_with_room(changes->changes, changes->count, &changes->capacity, sizeof list[0]);
    if (list == NULL) {
        return -ENOMEM;
    }
    changes->changes = list;
    list[changes->count++] = change;
    return 0;
}

int store_changes_add_name(struct store_changes *changes, ino_no parent, const char *name, size_t name_size,
                           ino_no old_ino, ino_no new_ino)
{
    char *copy = malloc(name_size + 1);
    if (copy == NULL) {
        return -ENOMEM;
    }
    memcpy(copy, name, name_size);
    copy[name_size] = '\0';
    const struct store_change change = {.kind = STORE_CHANGE_NAME,
                                        .parent = parent,
                                        .old_ino = old_ino,
                                        .ino = new_ino,
                                        .name = copy,
                                        .name_size = name_size};
    int rc = store_changes_add(changes, change);
    if (rc != 0) {
        free(copy);
        return rc;
    }
    return store_changes_add(changes, (struct store_change){.kind = STORE_CHANGE_DIRECTORY, .ino = parent});
}

/* ---- what a commit changed ---- */

static int find_ino(struct store *store, struct view *view, ino_no parent, struct op_bytes name, ino_no *out_ino)
{
    struct dirent_found found = {.ino = INO_NONE};
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = dirent_find(view, &store->hash, parent, name.data, name.size, &found);
    rwlock_unlock_shared(&view->catalog_lock);
    *out_ino = rc == 0 ? found.ino : INO_NONE;
    return rc == -ENOENT ? 0 : rc;
}

int store_changes_compare_name(struct store_changes *changes, struct store *store, const struct changes_views *views,
                               ino_no parent, struct op_bytes name)
{
    ino_no before = INO_NONE;
    ino_no now = INO_NONE;
    int rc = find_ino(store, views->before, parent, name, &before);
    if (rc == 0) {
        rc = find_ino(store, views->now, parent, name, &now);
    }
    if (rc == 0 && before != now) {
        rc = store_changes_add_name(changes, parent, name.data, name.size, before, now);
    }
    return rc;
}

static int note_name(struct publish *publish, const struct txn_name *name)
{
    const struct changes_views views = {.before = publish->before, .now = publish->view};
    const struct txn_inode *made = txn_set_find_inode(publish->set, txn_name_parent(name));
    const ino_no parent = made != NULL && made->twin != INO_NONE ? made->twin : txn_name_parent(name);
    return store_changes_compare_name(publish->changes, publish->store, &views, parent, txn_name_bytes(name));
}

static bool has_inode(struct view *view, ino_no ino, int *inout_rc)
{
    struct inode inode;
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = *inout_rc == 0 ? inode_get(view, ino, &inode) : *inout_rc;
    rwlock_unlock_shared(&view->catalog_lock);
    *inout_rc = rc == -ENOENT ? 0 : rc;
    return rc == 0 && inode.nlink > 0;
}

static int note_inode(struct publish *publish, const struct txn_inode *touched)
{
    int rc = 0;
    if (touched->created) {
        return 0;
    }
    struct store_change change = {.kind = STORE_CHANGE_ATTR, .ino = touched->ino};
    if (touched->twin != INO_NONE) {
        change = (struct store_change){.kind = STORE_CHANGE_REPLACED, .old_ino = touched->ino, .ino = touched->twin};
    } else if (!has_inode(publish->view, touched->ino, &rc)) {
        change = (struct store_change){.kind = STORE_CHANGE_DROPPED, .old_ino = touched->ino};
    } else if (!touched->attr) {
        return rc;
    }
    return rc != 0 ? rc : store_changes_add(publish->changes, change);
}

int publish_note_changes(struct publish *publish)
{
    int rc = 0;
    for (const struct txn_name *name = publish->set->names; name != NULL && rc == 0; name = name->hh.next) {
        rc = note_name(publish, name);
    }
    for (const struct txn_inode *inode = publish->set->inodes; inode != NULL && rc == 0; inode = inode->hh.next) {
        rc = note_inode(publish, inode);
    }
    return rc;
}

/* ---- receipts ---- */

struct commit_list {
    struct store_commit lines[COMMIT_LINES];
    uint64_t count;
};

void commit_list_free(struct commit_list *list)
{
    for (size_t i = 0; list != NULL && i < COMMIT_LINES; i++) {
        free((char *)list->lines[i].name);
    }
    free(list);
}

void store_record_commit(struct store_txn *txn, const struct store_changes *changes)
{
    struct store *store = txn->store;
    struct store_commit line = {.number = changes->number,
                                .lsn = changes->lsn,
                                .time_ns = changes->time_ns,
                                .name = strdup(txn->name),
                                .uid = txn->uid,
                                .pid = txn->pid,
                                .bytes = txn->set.bytes};
    for (const struct txn_inode *inode = txn->set.inodes; inode != NULL; inode = inode->hh.next) {
        line.tables++;
    }
    mutex_lock(&store->txns_lock);
    if (store->commit_list == NULL) {
        store->commit_list = calloc(1, sizeof *store->commit_list);
    }
    struct commit_list *list = store->commit_list;
    const char *gone = line.name; /* no memory, no line */
    if (list != NULL && line.name != NULL) {
        struct store_commit *place = &list->lines[list->count++ % COMMIT_LINES];
        gone = place->name;
        *place = line;
    }
    mutex_unlock(&store->txns_lock);
    free((char *)gone);
}

int store_each_commit(struct store *store, store_commit_fn *fn, void *arg)
{
    int rc = 0;
    mutex_lock(&store->txns_lock);
    const struct commit_list *list = store->commit_list;
    const uint64_t count = list != NULL ? list->count : 0;
    for (uint64_t i = count > COMMIT_LINES ? count - COMMIT_LINES : 0; i < count && rc == 0; i++) {
        rc = fn(arg, &list->lines[i % COMMIT_LINES]);
    }
    mutex_unlock(&store->txns_lock);
    return rc;
}
