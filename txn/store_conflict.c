/*
 * txn/store_conflict.c - what of a transaction's write set was changed in the live tree since it began.
 *
 * CONFLICT-1 A name conflicts when it leads elsewhere than it did at begin, or left the live tree meanwhile. Not when both sides made a
 *            directory of that name: they are one.
 * CONFLICT-2 An inode conflicts when it is gone; when both sides changed its attributes; when one side rewrote its content and the other
 *            changed it; when the transaction dropped it and anything of it was changed.
 * CONFLICT-3 Two sides that only appended do not conflict when what each has ends in a newline (nothing, for the base), unless the table
 *            says otherwise (user.tblfs.append=conflict).
 * CONFLICT-4 A directory that the transaction removed conflicts with any name entered in it, a directory that it moved with any other
 *            directory moved since.
 *
 * Locking: the gate is held, so neither the live tree nor the transaction's changes. Catalog locks are taken one at a time for each look.
 */
#include "txn/store_txn.h"

#include "base/plant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct finder {
    struct store_txn *txn;
    struct store *store;
    epoch_no at;
    conflict_fn *fn;
    void *arg;
};

/* An inode in one of the trees. */
struct side {
    bool exists;
    struct inode inode;
};

static int look(struct view *view, ino_no ino, struct side *out_side)
{
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = inode_get(view, ino, &out_side->inode);
    rwlock_unlock_shared(&view->catalog_lock);
    out_side->exists = rc == 0;
    return rc == -ENOENT ? 0 : rc;
}

static int look_name(struct store *store, struct view *view, ino_no parent, struct op_bytes name,
                     struct dirent_found *out_found)
{
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = dirent_find(view, &store->hash, parent, name.data, name.size, out_found);
    rwlock_unlock_shared(&view->catalog_lock);
    if (rc == -ENOENT) {
        *out_found = (struct dirent_found){.ino = INO_NONE};
    }
    return rc == -ENOENT ? 0 : rc;
}

bool content_is_same(const struct store_txn *txn, const struct inode *base, const struct inode *live)
{
    return live->size_bytes == base->size_bytes && live->rewrite_epoch <= txn->view->at;
}

static int report_inode(struct finder *finder, ino_no ino, const char *did, const char *outside, int64_t since_ns)
{
    const struct conflict conflict = {.ino = ino, .did = did, .outside = outside, .since_ns = since_ns};
    return finder->fn(finder->arg, &conflict);
}

/* ---- names ---- */

static epoch_no name_left(const struct finder *finder, ino_no parent, struct op_bytes name)
{
    mutex_lock(&finder->store->txns_lock);
    const epoch_no epoch = removed_names_epoch(&finder->store->removed, parent, name);
    mutex_unlock(&finder->store->txns_lock);
    return epoch;
}

static bool is_dir_found(const struct dirent_found *found)
{
    return found->ino != INO_NONE && found->kind == S_IFDIR >> 12;
}

static int report_name(struct finder *finder, const struct txn_name *name, const char *outside, ino_no now)
{
    struct side live = {.exists = false};
    const int rc = now != INO_NONE ? look(store_live(finder->store), now, &live) : 0;
    if (rc != 0) {
        return rc;
    }
    const struct conflict conflict = {.is_name = true,
                                      .ino = txn_name_parent(name),
                                      .name = txn_name_bytes(name),
                                      .did = "name",
                                      .outside = outside,
                                      .since_ns = live.exists ? live.inode.ctime_ns : 0};
    return finder->fn(finder->arg, &conflict);
}

/* The live directory that stands for the one in which the transaction has that name; INO_NONE: there is none, nor can be a conflict. */
static int live_parent(const struct finder *finder, ino_no parent, ino_no *out_parent, bool *out_gone)
{
    const struct txn_inode *made = txn_set_find_inode(&finder->txn->set, parent);
    *out_gone = false;
    *out_parent = parent;
    if (made != NULL && made->created) {
        *out_parent = made->twin;
        return 0;
    }
    struct side live;
    const int rc = look(store_live(finder->store), parent, &live);
    *out_gone = rc == 0 && !live.exists;
    return rc;
}

static int check_name(struct finder *finder, const struct txn_name *name)
{
    const struct op_bytes bytes = txn_name_bytes(name);
    struct dirent_found before;
    struct dirent_found now;
    ino_no parent = INO_NONE;
    bool gone = false;
    int rc = live_parent(finder, txn_name_parent(name), &parent, &gone);
    if (rc != 0 || parent == INO_NONE) {
        return rc;
    }
    if (gone) {
        return report_name(finder, name, "directory removed", INO_NONE);
    }
    rc = look_name(finder->store, finder->txn->base_view, parent, bytes, &before);
    if (rc == 0) {
        rc = look_name(finder->store, store_live(finder->store), parent, bytes, &now);
    }
    if (rc != 0) {
        return rc;
    }
    const bool one = name->made_dir != INO_NONE && before.ino == INO_NONE && is_dir_found(&now);
    struct txn_inode *made = one ? txn_set_find_inode(&finder->txn->set, name->made_dir) : NULL;
    if (made != NULL) {
        made->twin = now.ino; /* CONFLICT-1 */
        return 0;
    }
    if (before.ino != now.ino) {
        const char *outside = now.ino == INO_NONE ? "removed" : before.ino == INO_NONE ? "made" : "replaced";
        return report_name(finder, name, outside, now.ino);
    }
    const bool left = !PLANT(NET_EFFECT_CONFLICTS) && name_left(finder, parent, bytes) > finder->at;
    return left ? report_name(finder, name, "made and removed", now.ino) : 0;
}

/* ---- inodes ---- */

struct sides {
    struct side base, live, own;
};

static const char *did_of(const struct txn_inode *touched, bool dropped)
{
    if (dropped) {
        return "remove";
    }
    if (touched->content) {
        return touched->rewritten ? "rewrite" : "append";
    }
    return touched->moved ? "move" : "attributes";
}

static int ends_in_newline(const struct store *store, const struct inode *inode, bool *out_ends)
{
    struct relation *relation = NULL;
    const struct content_root root = store_content_root(inode);
    char last = '\0';
    size_t got = 0;
    int rc = inode->rel != REL_NONE ? relation_open(store->cache, inode->ts, inode->rel, &relation) : 0;
    if (rc == 0) { /* without a relation it is all hole */
        rc = content_read(relation, &root, inode->size_bytes - 1, &last, 1, &got);
        relation_unref(relation);
    }
    *out_ends = rc == 0 && got == 1 && last == '\n';
    return rc;
}

/* Does the table want no rows appended beside others'? */
static int says_conflict(struct finder *finder, ino_no ino, bool *out_says)
{
    struct view *view = store_live(finder->store);
    char value[16];
    size_t size = 0;
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = xattr_get(view, &finder->store->hash, ino, "user.tblfs.append", value, sizeof value, &size);
    rwlock_unlock_shared(&view->catalog_lock);
    *out_says = rc == 0 && size == 8 && memcmp(value, "conflict", 8) == 0;
    return rc == -ENODATA || rc == -ERANGE ? 0 : rc;
}

/* CONFLICT-3 */
static int may_merge(struct finder *finder, const struct sides *sides, bool *out_may)
{
    bool says = false;
    int rc = says_conflict(finder, sides->live.inode.ino, &says);
    *out_may = !says;
    const struct inode *const all[] = {&sides->base.inode, &sides->live.inode, &sides->own.inode};
    for (unsigned i = 0; i < ARRAY_COUNT(all) && rc == 0 && *out_may; i++) {
        if (all[i]->size_bytes > 0) {
            rc = ends_in_newline(finder->store, all[i], out_may);
        }
    }
    return rc;
}

static int check_content(struct finder *finder, const struct txn_inode *touched, const struct sides *sides)
{
    const bool changed = !content_is_same(finder->txn, &sides->base.inode, &sides->live.inode);
    const bool rewritten = sides->live.inode.rewrite_epoch > finder->at;
    const char *outside = NULL;
    int rc = 0;
    if (!touched->content) {
        return 0;
    }
    if (rewritten) {
        outside = "rewritten";
    } else if (changed && touched->rewritten) {
        outside = "appended";
    } else if (changed) {
        bool may = false;
        rc = may_merge(finder, sides, &may);
        outside = may ? NULL : "appended without a newline";
    }
    if (rc != 0 || outside == NULL) {
        return rc;
    }
    return report_inode(finder, touched->ino, did_of(touched, false), outside, sides->live.inode.mtime_ns);
}

/* CONFLICT-2 and 4 of what the transaction dropped. */
static int check_dropped(struct finder *finder, const struct txn_inode *touched, const struct sides *sides)
{
    const struct inode *live = &sides->live.inode;
    if (live->change_epoch > finder->at) {
        return report_inode(finder, touched->ino, "remove", "changed", live->ctime_ns);
    }
    const bool entered = S_ISDIR(live->mode) && (live->size_bytes != sides->base.inode.size_bytes ||
                                                 name_left(finder, touched->ino, (struct op_bytes){0}) > finder->at);
    return entered ? report_inode(finder, touched->ino, "remove", "names in it changed", live->mtime_ns) : 0;
}

static int check_inode(struct finder *finder, const struct txn_inode *touched)
{
    struct sides sides;
    int rc = look(finder->txn->base_view, touched->ino, &sides.base);
    if (rc == 0) {
        rc = look(store_live(finder->store), touched->ino, &sides.live);
    }
    if (rc == 0) {
        rc = look(finder->txn->view, touched->ino, &sides.own);
    }
    if (rc != 0) {
        return rc;
    }
    const bool dropped = !sides.own.exists || sides.own.inode.nlink == 0;
    if (!sides.live.exists || sides.live.inode.nlink == 0) {
        return report_inode(finder, touched->ino, did_of(touched, dropped), "removed", 0);
    }
    if (dropped) {
        return check_dropped(finder, touched, &sides);
    }
    if (touched->attr && sides.live.inode.attr_epoch > finder->at) {
        rc =
            report_inode(finder, touched->ino, did_of(touched, false), "attributes changed", sides.live.inode.ctime_ns);
    }
    const bool moved_dir = touched->moved && S_ISDIR(sides.own.inode.mode);
    if (rc == 0 && moved_dir && atomic_load(&finder->store->dir_move_epoch) > finder->at) {
        rc = report_inode(finder, touched->ino, "move", "another directory was moved", 0);
    }
    return rc != 0 ? rc : check_content(finder, touched, &sides);
}

int txn_find_conflicts(struct store_txn *txn, conflict_fn *fn, void *arg)
{
    struct finder finder = {.txn = txn, .store = txn->store, .at = txn->view->at, .fn = fn, .arg = arg};
    int rc = 0;
    for (struct txn_inode *inode = txn->set.inodes; inode != NULL; inode = inode->hh.next) {
        inode->twin = INO_NONE;
    }
    for (const struct txn_name *name = txn->set.names; name != NULL && rc == 0; name = name->hh.next) {
        rc = check_name(&finder, name);
    }
    for (const struct txn_inode *inode = txn->set.inodes; inode != NULL && rc == 0; inode = inode->hh.next) {
        rc = inode->created ? 0 : check_inode(&finder, inode);
    }
    return rc;
}
