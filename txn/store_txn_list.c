/*
 * txn/store_txn_list.c - what a transaction changed, and what would conflict, by path, for people.
 *
 * Locking: what is listed is collected first (conflicts: under the gate, so that all of it is of one moment); paths are looked up and the
 * caller is called without locks.
 */
#include "txn/store_txn.h"

#include "base/array.h"
#include "txn/store_path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- paths ---- */

/* Of `ino`, with `name` behind it (may be empty): in the transaction, or else as it was at begin. */
static int path_of(struct store_txn *txn, ino_no ino, struct op_bytes name, struct path *out_path)
{
    struct view *const views[] = {txn->view, txn->base_view};
    int rc = -ENOENT;
    for (unsigned i = 0; i < ARRAY_COUNT(views) && rc == -ENOENT; i++) {
        struct frame_budget budget;
        path_init(out_path);
        if (name.size > 0) {
            path_prepend(out_path, name.data, name.size);
        }
        rc = store_read_enter(txn->store, views[i], &budget);
        if (rc == 0) {
            rc = path_climb(views[i], ino, out_path);
            store_read_leave(views[i], &budget);
        }
    }
    if (rc == -ENOENT) {
        rc = 0; /* made and removed in the transaction: its name has to do */
    }
    if (path_text(out_path)[0] == '\0') {
        path_prepend(out_path, ".", 1);
    }
    return rc;
}

int store_txn_path(struct store_txn *txn, ino_no ino, char *buffer, size_t capacity)
{
    struct path path;
    const int rc = path_of(txn, ino, (struct op_bytes){0}, &path);
    if (rc != 0 || capacity == 0) {
        return rc;
    }
    const char *text = path_text(&path);
    const size_t size = strlen(text);
    const size_t cut = size < capacity ? 0 : size - (capacity - 1);
    memcpy(buffer, text + cut, size - cut + 1);
    return 0;
}

/* ---- what is listed ---- */

struct object {
    ino_no ino;
    struct op_bytes name; /* a copy */
    const char *did, *outside;
    int64_t since_ns;
    uint64_t size_before, size;
};

struct objects {
    struct object *objects;
    size_t count, capacity;
};

static void objects_free(struct objects *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free((void *)list->objects[i].name.data);
    }
    free(list->objects);
}

static int objects_add(struct objects *list, struct object object)
{
    struct object *objects = array_with_room(list->objects, list->count, &list->capacity, sizeof objects[0]);
    void *name = malloc(object.name.size + 1);
    list->objects = objects != NULL ? objects : list->objects;
    if (objects == NULL || name == NULL) {
        free(name);
        return -ENOMEM;
    }
    if (object.name.size > 0) {
        memcpy(name, object.name.data, object.name.size);
    }
    object.name.data = name;
    list->objects[list->count++] = object;
    return 0;
}

static int hand_out(struct store_txn *txn, const struct objects *list, store_txn_object_fn *fn, void *arg)
{
    int rc = 0;
    for (size_t i = 0; i < list->count && rc == 0; i++) {
        const struct object *object = &list->objects[i];
        struct path path;
        rc = path_of(txn, object->ino, object->name, &path);
        if (rc == 0) {
            const struct store_txn_object out = {.path = path_text(&path),
                                                 .did = object->did,
                                                 .outside = object->outside,
                                                 .since_ns = object->since_ns,
                                                 .size_before = object->size_before,
                                                 .size = object->size};
            rc = fn(arg, &out);
        }
    }
    return rc;
}

/* ---- conflicts ---- */

static int collect_conflict(void *arg, const struct conflict *conflict)
{
    return objects_add(arg, (struct object){.ino = conflict->ino,
                                            .name = conflict->name,
                                            .did = conflict->did,
                                            .outside = conflict->outside,
                                            .since_ns = conflict->since_ns});
}

/* The set is looked at while nothing can be added to it: the gate is closed for that long. */
int store_txn_each_conflict(struct store_txn *txn, store_txn_object_fn *fn, void *arg)
{
    struct store *store = txn->store;
    struct objects list = {0};
    struct frame_budget budget;
    int rc = frame_budget_take(store->cache, 2 * STORE_READ_PINS, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    cow_gate_close(store->cow);
    rc = txn_check_open(txn) == 0 ? txn_find_conflicts(txn, collect_conflict, &list) : 0;
    cow_gate_open(store->cow);
    frame_budget_release(&budget);
    if (rc == 0) {
        rc = hand_out(txn, &list, fn, arg);
    }
    objects_free(&list);
    return rc;
}

/* ---- changes ---- */

/* As which a change of a name is listed: by what it leads to now and before. */
static const char *did_to_name(const struct store_txn *txn, ino_no before, ino_no now)
{
    const struct txn_inode *inode = txn_set_find_inode(&txn->set, now);
    if (before == INO_NONE && now == INO_NONE) {
        return "create and remove";
    }
    if (now == INO_NONE) {
        return "remove";
    }
    if (inode != NULL && inode->created) {
        return before == INO_NONE ? "create" : "replace";
    }
    return "name";
}

static int find_name(struct store_txn *txn, struct view *view, const struct txn_name *name, ino_no *out_ino)
{
    const struct op_bytes bytes = txn_name_bytes(name);
    struct dirent_found found = {.ino = INO_NONE};
    const int rc = dirent_find(view, &txn->store->hash, txn_name_parent(name), bytes.data, bytes.size, &found);
    *out_ino = rc == 0 ? found.ino : INO_NONE;
    return rc == -ENOENT ? 0 : rc;
}

static int sizes_of(struct view *view, ino_no ino, uint64_t *out_size)
{
    struct inode inode;
    const int rc = ino != INO_NONE ? inode_get(view, ino, &inode) : -ENOENT;
    *out_size = rc == 0 && S_ISREG(inode.mode) ? inode.size_bytes : 0;
    return rc == -ENOENT ? 0 : rc;
}

static int collect_name(struct store_txn *txn, const struct txn_name *name, struct objects *list)
{
    ino_no before = INO_NONE;
    ino_no now = INO_NONE;
    struct object object = {.ino = txn_name_parent(name), .name = txn_name_bytes(name), .outside = ""};
    int rc = find_name(txn, txn->view, name, &now);
    if (rc == 0) {
        rc = find_name(txn, txn->base_view, name, &before);
    }
    if (rc == 0) {
        rc = sizes_of(txn->view, now, &object.size);
    }
    if (rc == 0) {
        rc = sizes_of(txn->base_view, before, &object.size_before);
    }
    object.did = did_to_name(txn, before, now);
    return rc != 0 ? rc : objects_add(list, object);
}

static int collect_inode(struct store_txn *txn, const struct txn_inode *touched, struct objects *list)
{
    struct object object = {.ino = touched->ino, .outside = ""};
    struct inode inode;
    int rc = inode_get(txn->view, touched->ino, &inode);
    if (rc != 0 || touched->created || inode.nlink == 0) {
        return rc == -ENOENT ? 0 : rc; /* its names say it */
    }
    if (!touched->content && !touched->attr) {
        return 0;
    }
    object.did = !touched->content ? "attributes" : touched->rewritten ? "rewrite" : "append";
    rc = sizes_of(txn->view, touched->ino, &object.size);
    if (rc == 0) {
        rc = sizes_of(txn->base_view, touched->ino, &object.size_before);
    }
    return rc != 0 ? rc : objects_add(list, object);
}

static int collect_changes(struct store_txn *txn, struct objects *list)
{
    int rc = 0;
    for (const struct txn_name *name = txn->set.names; name != NULL && rc == 0; name = name->hh.next) {
        rc = collect_name(txn, name, list);
    }
    for (const struct txn_inode *inode = txn->set.inodes; inode != NULL && rc == 0; inode = inode->hh.next) {
        rc = collect_inode(txn, inode, list);
    }
    return rc;
}

int store_txn_each_change(struct store_txn *txn, store_txn_object_fn *fn, void *arg)
{
    struct objects list = {0};
    struct frame_budget budget;
    int rc = frame_budget_take(txn->store->cache, 2 * STORE_READ_PINS, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    struct view *const first = txn->view->id < txn->base_view->id ? txn->view : txn->base_view;
    struct view *const second = first == txn->view ? txn->base_view : txn->view;
    rwlock_lock_shared(&first->catalog_lock);
    rwlock_lock_shared(&second->catalog_lock);
    rc = collect_changes(txn, &list);
    rwlock_unlock_shared(&second->catalog_lock);
    rwlock_unlock_shared(&first->catalog_lock);
    frame_budget_release(&budget);
    if (rc == 0) {
        rc = hand_out(txn, &list, fn, arg);
    }
    objects_free(&list);
    return rc;
}
