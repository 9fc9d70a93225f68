/*
 * txn/publish.c - the operations of a transaction become one change of the live tree (txn/publish.h).
 *
 *   publish_begin --> publish_record for each operation --> [publish_take_over_all: content, closing only] --> publish_renumber_all
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

static int exists_with_name(struct view *view, ino_no ino, struct inode *out_inode, bool *out_exists)
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
    const int rc = exists_with_name(publish->view, op->ino, &inode, &exists);
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
        return op_records_each(record->data.data, record->data.size, publish_contained, publish);
    case OP_DESTROY:
        return 0; /* what had no name in the transaction went with its last name here */
    default:
        return -EBADMSG;
    }
}

/* ---- new inode numbers for rewritten tables ---- */

/* Items that move in one batch. The inode itself moves last, behind all of its attributes and further names, however many there are. */
#define RENUMBER_ITEMS 4u

struct moved_item {
    struct catalog_key key;
    uint8_t *value;
    size_t size;
};

struct renumber_arg {
    struct publish *publish;
    ino_no ino, new_ino;
    struct moved_item items[RENUMBER_ITEMS];
    unsigned count;
};

static int collect_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct renumber_arg *ra = arg;
    struct moved_item *item = &ra->items[ra->count];
    item->value = malloc(value_size + 1);
    if (item->value == NULL) {
        return -ENOMEM;
    }
    memcpy(item->value, value, value_size);
    item->key = *key;
    item->size = value_size;
    return ++ra->count == RENUMBER_ITEMS ? 1 : 0;
}

/* The entry of one name leads to the new inode. */
static int redirect_name(struct op_run *run, const struct renumber_arg *ra, ino_no parent, uint64_t cookie)
{
    const struct catalog_key key = {.ino = parent, .sub = cookie, .type = ITEM_DIRENT};
    uint8_t value[sizeof(struct disk_dirent) + STORE_NAME_MAX];
    size_t size = 0;
    int rc = catalog_batch_get(&run->batch, &key, value, sizeof value, &size);
    if (rc != 0 || size <= sizeof(struct disk_dirent)) {
        return rc != 0 ? rc : -EIO;
    }
    struct disk_dirent disk;
    memcpy(&disk, value, sizeof disk);
    disk.ino = le64_of(ra->new_ino);
    memcpy(value, &disk, sizeof disk);
    rc = catalog_batch_put(&run->batch, &key, value, size);
    if (rc == 0 && ra->publish->changes != NULL) {
        rc = store_changes_add_name(ra->publish->changes, parent, (const char *)value + sizeof disk, size - sizeof disk,
                                    ra->ino, ra->new_ino);
    }
    return rc;
}

static int move_item(struct op_run *run, const struct renumber_arg *ra, const struct moved_item *item)
{
    struct catalog_key key = item->key;
    int rc = catalog_batch_remove(&run->batch, &key);
    key.ino = ra->new_ino;
    if (rc == 0) {
        rc = catalog_batch_put(&run->batch, &key, item->value, item->size);
    }
    if (rc == 0 && key.type == ITEM_BACK) {
        struct disk_back back;
        memcpy(&back, item->value, sizeof back);
        rc = redirect_name(run, ra, le64_get(back.parent), le64_get(back.cookie));
    }
    return rc;
}

/* The next items but the inode; none is left when ra->count is less than RENUMBER_ITEMS afterwards. */
static int plan_move_items(struct op_run *run, void *arg)
{
    struct renumber_arg *ra = arg;
    const struct catalog_key first = {.ino = ra->ino, .type = ITEM_INODE, .sub = 1};
    const struct catalog_key last = {.ino = ra->ino, .type = ITEM_BACK, .sub = UINT64_MAX};
    ra->count = 0;
    int rc = catalog_batch_scan(&run->batch, &first, &last, collect_item, ra);
    rc = rc > 0 ? 0 : rc;
    for (unsigned i = 0; i < ra->count; i++) {
        rc = rc == 0 ? move_item(run, ra, &ra->items[i]) : rc;
        free(ra->items[i].value);
    }
    return rc;
}

/* OWNER-1: in versions before this one the relation has another owner. */
static int pass_relation_on(struct op_run *run, const struct renumber_arg *ra, struct inode *inode)
{
    struct relation_owner owner = {.first = ra->ino};
    const int rc = owner_batch_get(&run->batch, inode->rel, &owner);
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    owner.owner = ra->new_ino;
    inode->flags |= INODE_RENUMBERED;
    return owner_batch_put(&run->batch, inode->rel, &owner);
}

static int plan_move_inode(struct op_run *run, void *arg)
{
    const struct renumber_arg *ra = arg;
    struct inode inode;
    int rc = inode_batch_get(&run->batch, ra->ino, &inode);
    if (rc == 0) {
        rc = inode_batch_remove(&run->batch, ra->ino);
    }
    if (rc == 0 && inode.rel != REL_NONE) {
        rc = pass_relation_on(run, ra, &inode);
    }
    if (rc == 0) {
        inode.ino = ra->new_ino;
        rc = inode_batch_put(&run->batch, &inode);
    }
    return rc != 0 ? rc : redirect_name(run, ra, inode.parent, inode.name_cookie);
}

static int renumber(struct publish *publish, ino_no ino, ino_no new_ino)
{
    struct renumber_arg ra = {.publish = publish, .ino = ino, .new_ino = new_ino};
    int rc;
    do {
        rc = store_op_run(publish->store, publish->view, OP_SETATTR, plan_move_items, &ra);
    } while (rc == 0 && ra.count == RENUMBER_ITEMS);
    return rc != 0 ? rc : store_op_run(publish->store, publish->view, OP_SETATTR, plan_move_inode, &ra);
}

static bool is_rewritten(const struct txn_inode *touched)
{
    return touched->content && touched->rewritten && !touched->created;
}

bool publish_appends_only(const struct publish *publish, ino_no ino)
{
    const struct txn_inode *touched = txn_set_find_inode(publish->set, ino);
    return touched != NULL && !touched->created && !touched->rewritten;
}

uint64_t publish_count_rewritten(const struct txn_set *set)
{
    uint64_t count = 0;
    for (const struct txn_inode *inode = set->inodes; inode != NULL; inode = inode->hh.next) {
        count += is_rewritten(inode);
    }
    return count;
}

int publish_renumber_all(struct publish *publish)
{
    ino_no next = publish->first_ino;
    int rc = 0;
    for (struct txn_inode *touched = publish->set->inodes; touched != NULL && rc == 0; touched = touched->hh.next) {
        struct inode inode;
        bool exists = false;
        if (!is_rewritten(touched)) {
            continue;
        }
        rc = exists_with_name(publish->view, touched->ino, &inode, &exists);
        if (rc == 0 && exists) {
            rc = renumber(publish, touched->ino, next);
            touched->twin = next;
        }
        next++;
    }
    return rc;
}

/* ---- content, taken over by root ---- */

struct take_over_arg {
    const struct txn_inode *touched;
    struct inode base, own;
};

static int plan_take_over(struct op_run *run, void *arg)
{
    const struct take_over_arg *ta = arg;
    const struct inode *own = &ta->own;
    const epoch_no epoch = cow_epoch(run->store->cow);
    struct inode inode;
    int rc = inode_batch_get(&run->batch, ta->touched->ino, &inode);
    if (rc != 0) {
        return rc;
    }
    if (inode.rel != own->rel) {
        rc = (inode.flags & INODE_RENUMBERED) != 0 ? owner_batch_remove(&run->batch, inode.rel) : 0;
        inode.flags &= (uint8_t)~INODE_RENUMBERED;
        inode.rel = own->rel;
        inode.rel_created = own->rel != REL_NONE ? epoch : 0;
    }
    inode.content_ptr = own->content_ptr;
    inode.content_height = own->content_height;
    inode.content_leaves = own->content_leaves;
    inode.size_bytes = own->size_bytes;
    const bool is_own = ta->touched->rewritten || ta->touched->created;
    inode.mtime_ns = is_own || own->mtime_ns > inode.mtime_ns ? own->mtime_ns : inode.mtime_ns;
    inode.ctime_ns = run->ctime_ns;
    inode.change_epoch = epoch;
    inode.rewrite_epoch = ta->touched->rewritten ? epoch : inode.rewrite_epoch;
    return rc != 0 ? rc : inode_batch_put(&run->batch, &inode);
}

static int hand_over_run(struct publish *publish, struct relation *relation, block_no block)
{
    struct hand_over *last = publish->hand_over_count > 0 ? &publish->hand_overs[publish->hand_over_count - 1] : NULL;
    if (last != NULL && last->relation == relation && last->first + last->count == block) {
        last->count++;
        return 0;
    }
    struct hand_over *list =
        array_with_room(publish->hand_overs, publish->hand_over_count, &publish->hand_over_capacity, sizeof list[0]);
    if (list == NULL) {
        return -ENOMEM;
    }
    publish->hand_overs = list;
    relation_ref(relation);
    list[publish->hand_over_count++] = (struct hand_over){.relation = relation, .first = block, .count = 1};
    return 0;
}

static int hand_over_relation_of(struct publish *publish, const struct inode *inode)
{
    if (inode->rel == REL_NONE) {
        return 0;
    }
    struct relation **list =
        array_with_room(publish->whole, publish->whole_count, &publish->whole_capacity, sizeof(struct relation *));
    if (list == NULL) {
        return -ENOMEM;
    }
    publish->whole = list;
    const int rc = relation_open(publish->store->cache, inode->ts, inode->rel, &list[publish->whole_count]);
    publish->whole_count += rc == 0;
    return rc;
}

static int take_over(struct publish *publish, struct take_over_arg *ta)
{
    int rc = store_op_run(publish->store, publish->view, OP_WRITE, plan_take_over, ta);
    if (rc == 0) {
        rc = hand_over_relation_of(publish, &ta->own);
    }
    if (rc == 0 && !ta->touched->created && ta->base.rel != ta->own.rel) {
        rc = hand_over_relation_of(publish, &ta->base);
    }
    return rc;
}

/* ---- content, appended behind what others appended ---- */

#define MERGE_CHUNK_BYTES (UINT64_C(64) << 10)

static int merge_under_catalog(struct op_run *run, ino_no ino, struct content_root root, int64_t mtime_ns)
{
    struct inode inode;
    op_lock_catalog(run);
    int rc = inode_batch_get(&run->batch, ino, &inode);
    if (rc == 0) {
        inode.content_ptr = root.ptr;
        inode.content_height = root.height;
        inode.content_leaves = root.leaves;
        inode.size_bytes = root.bytes;
        inode.mtime_ns = mtime_ns > inode.mtime_ns ? mtime_ns : inode.mtime_ns;
        inode.ctime_ns = run->ctime_ns;
        inode.change_epoch = cow_epoch(run->store->cow);
        rc = inode_batch_put(&run->batch, &inode);
    }
    return rc == 0 ? op_finish(run) : rc;
}

/* What is appended to a table of the new live tree: bytes, or leaves of the transaction. */
struct addition {
    const void *bytes; /* NULL: leaves */
    size_t size;
    const struct content_leaf *leaves;
    unsigned count;
};

struct merge {
    struct publish *publish;
    ino_no ino;
    struct relation *from, *to;
    const struct content_root *own;
    int64_t mtime_ns;
    uint64_t done; /* bytes of the transaction's content that the live tree has */
};

static int merge_addition(struct merge *merge, const struct addition *addition)
{
    struct publish *publish = merge->publish;
    struct op_run run;
    struct inode inode;
    bool exists = false;
    int rc = op_begin(&run, publish->store, publish->view, OP_WRITE, NULL, STORE_BATCH_EDITS, addition->size, 0, true);
    if (rc != 0) {
        return rc;
    }
    rc = exists_with_name(publish->view, merge->ino, &inode, &exists);
    const struct content_root root = store_content_root(&inode);
    if (rc == 0 && addition->bytes != NULL) {
        rc = content_plan_write(publish->view, merge->to, &root, root.bytes, addition->bytes, addition->size,
                                &run.budget, &run.content);
    } else if (rc == 0) {
        rc = content_plan_graft(publish->view, merge->to, &root, addition->leaves, addition->count, &run.budget,
                                &run.content);
    }
    if (rc == 0) {
        rc = merge_under_catalog(&run, merge->ino, content_plan_root(run.content), merge->mtime_ns);
    }
    return op_end(&run, rc);
}

/* Copies the transaction's bytes up to `end`. */
static int merge_bytes(struct merge *merge, uint64_t end)
{
    uint8_t *bytes = malloc(MERGE_CHUNK_BYTES);
    int rc = bytes != NULL ? 0 : -ENOMEM;
    while (rc == 0 && merge->done < end) {
        struct addition addition = {.bytes = bytes};
        const uint64_t left = end - merge->done;
        rc = content_read(merge->from, merge->own, merge->done, bytes,
                          left < MERGE_CHUNK_BYTES ? (size_t)left : MERGE_CHUNK_BYTES, &addition.size);
        if (rc == 0) {
            rc = merge_addition(merge, &addition);
        }
        merge->done += addition.size;
    }
    free(bytes);
    return rc;
}

/* Leaves of which the transaction's base has no byte are taken over as they are. */
static int merge_leaves(void *arg, const struct content_leaf *leaves, unsigned count, uint64_t start)
{
    struct merge *merge = arg;
    int rc = 0;
    while (count > 0 && start < merge->done) { /* holds rows of the base as well */
        start += leaves->bytes;
        leaves++;
        count--;
    }
    if (count == 0) {
        return 0;
    }
    rc = merge_bytes(merge, start);
    if (rc == 0) {
        rc = merge_addition(merge, &(struct addition){.leaves = leaves, .count = count});
    }
    for (unsigned i = 0; i < count && rc == 0; i++) {
        rc = hand_over_run(merge->publish, merge->from, leaves[i].ptr.block);
        merge->done += leaves[i].bytes;
    }
    return rc;
}

static int merge_from(struct publish *publish, const struct take_over_arg *ta, struct relation *from,
                      struct relation *to)
{
    const struct content_root root = store_content_root(&ta->own);
    struct merge merge = {.publish = publish,
                          .ino = ta->touched->ino,
                          .from = from,
                          .to = to,
                          .own = &root,
                          .mtime_ns = ta->own.mtime_ns,
                          .done = ta->base.size_bytes};
    const int rc = from == to ? content_each_leaf(from, &root, merge.done, merge_leaves, &merge) : 0;
    return rc != 0 && rc != -ENODATA ? rc : merge_bytes(&merge, root.bytes);
}

/* The rows that the transaction appended follow those that others did. */
static int merge(struct publish *publish, const struct take_over_arg *ta, const struct inode *live)
{
    struct store *store = publish->store;
    struct relation *from = NULL;
    struct relation *to = NULL;
    if (ta->own.size_bytes == ta->base.size_bytes) {
        return 0;
    }
    int rc = relation_open(store->cache, ta->own.ts, ta->own.rel, &from);
    if (rc == 0) {
        rc = relation_open(store->cache, live->ts, live->rel, &to);
    }
    if (rc == 0) {
        rc = fsm_is_ready(to) ? merge_from(publish, ta, from, to) : OP_ROOT_SWAPPED;
    }
    relation_unref(from);
    relation_unref(to);
    return rc;
}

static int publish_content(struct publish *publish, const struct txn_inode *touched)
{
    struct take_over_arg ta = {.touched = touched};
    struct inode live;
    bool own_exists = false;
    bool live_exists = false;
    bool base_exists = false;
    int rc = exists_with_name(publish->txn->view, touched->ino, &ta.own, &own_exists);
    if (rc == 0) {
        rc = exists_with_name(publish->view, touched->ino, &live, &live_exists);
    }
    if (rc == 0 && !touched->created) {
        rc = exists_with_name(publish->txn->base_view, touched->ino, &ta.base, &base_exists);
    }
    if (rc != 0 || !own_exists) {
        return rc; /* it was dropped */
    }
    if (!live_exists) {
        return -EAGAIN;
    }
    const bool is_same = touched->created || content_is_same(&ta.base, &live);
    const uint64_t old_size = live.size_bytes;
    rc = is_same ? take_over(publish, &ta) : merge(publish, &ta, &live);
    if (rc == 0 && !touched->created && !touched->rewritten && publish->changes != NULL) {
        rc = store_changes_add(
            publish->changes,
            (struct store_change){.kind = STORE_CHANGE_APPENDED, .ino = touched->ino, .old_size = old_size});
    }
    return rc;
}

int publish_content_all(struct publish *publish)
{
    int rc = 0;
    for (const struct txn_inode *touched = publish->set->inodes; touched != NULL && rc == 0;
         touched = touched->hh.next) {
        rc = touched->content ? publish_content(publish, touched) : 0;
    }
    return rc;
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
    free(publish->hand_overs);
    free(publish->whole);
    free(publish->orphans);
    free(publish->dropped);
    publish->view = NULL;
    publish->before = NULL;
    publish->base = NULL;
}
