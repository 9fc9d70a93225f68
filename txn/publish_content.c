/*
 * txn/publish_content.c - content of a transaction that is closed: taken over by root, or appended behind what others appended.
 *
 * Locking: see txn/publish.c. The transaction's own view does not change any more: the gate is held exclusively.
 */
#include "txn/publish.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- content, taken over by root ---- */

struct take_over_arg {
    const struct txn_inode *touched;
    struct inode base, own;
    bool compacted;              /* PUBLISH-5 */
    bool was_renumbered;         /* OWNER-1: the base's relation has an owner item */
    struct relation_owner owner; /* which is this */
};

/* The transaction's content is in the relation that the table had before it was compacted. */
static bool revives_relation(const struct take_over_arg *ta)
{
    return ta->compacted && ta->own.rel == ta->base.rel && ta->own.rel != REL_NONE;
}

/* The inode gets the transaction's relation. */
static int change_relation(struct op_run *run, const struct take_over_arg *ta, struct inode *inode)
{
    int rc = 0;
    if (ta->compacted) {
        rc = op_drop_relation(run, inode);
    } else if ((inode->flags & INODE_RENUMBERED) != 0) {
        rc = owner_batch_remove(&run->batch, inode->rel);
    }
    inode->flags &= (uint8_t)~INODE_RENUMBERED;
    inode->rel = ta->own.rel;
    inode->ts = ta->own.ts;
    inode->rel_created = ta->own.rel != REL_NONE ? cow_epoch(run->store->cow) : 0;
    if (rc == 0 && revives_relation(ta)) {
        inode->rel_created = ta->base.rel_created; /* who forked before the compaction sees it */
    }
    if (rc == 0 && revives_relation(ta) && ta->was_renumbered) {
        inode->flags |= INODE_RENUMBERED;
        rc = owner_batch_put(&run->batch, inode->rel, &ta->owner);
    }
    return rc;
}

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
        rc = change_relation(run, ta, &inode);
    }
    inode.content_ptr = own->content_ptr;
    inode.content_height = own->content_height;
    inode.content_leaves = own->content_leaves;
    inode.size_bytes = own->size_bytes;
    const bool is_own = ta->touched->rewritten || ta->touched->created;
    inode.mtime_ns = is_own ? own->mtime_ns : op_later_mtime(run, own->mtime_ns, inode.mtime_ns);
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

static int list_relation_of(struct publish *publish, const struct inode *inode, struct relation ***inout_list,
                            size_t *inout_count, size_t *inout_capacity)
{
    if (inode->rel == REL_NONE) {
        return 0;
    }
    struct relation **list = array_with_room(*inout_list, *inout_count, inout_capacity, sizeof(struct relation *));
    if (list == NULL) {
        return -ENOMEM;
    }
    *inout_list = list;
    const int rc = relation_open(publish->store->cache, inode->ts, inode->rel, &list[*inout_count]);
    *inout_count += rc == 0;
    return rc;
}

static int hand_over_relation_of(struct publish *publish, const struct inode *inode)
{
    return list_relation_of(publish, inode, &publish->whole, &publish->whole_count, &publish->whole_capacity);
}

static int revive_relation(struct publish *publish, const struct take_over_arg *ta)
{
    const int rc =
        list_relation_of(publish, &ta->own, &publish->revived, &publish->revived_count, &publish->revived_capacity);
    if (rc == 0) {
        relation_set_first_ino(publish->revived[publish->revived_count - 1],
                               ta->was_renumbered ? ta->owner.first : ta->touched->ino);
    }
    return rc;
}

/* Who owned the base's relation before the compaction took it from the live tree? */
static int find_base_owner(struct publish *publish, struct take_over_arg *ta)
{
    struct view *base = publish->txn->base_view;
    ta->was_renumbered = (ta->base.flags & INODE_RENUMBERED) != 0;
    if (!ta->was_renumbered) {
        return 0;
    }
    rwlock_lock_shared(&base->catalog_lock);
    const int rc = owner_get(base, ta->base.rel, &ta->owner);
    rwlock_unlock_shared(&base->catalog_lock);
    return rc;
}

static int take_over(struct publish *publish, struct take_over_arg *ta)
{
    int rc = ta->compacted ? find_base_owner(publish, ta) : 0;
    if (rc == 0) {
        rc = store_op_run(publish->store, publish->view, OP_WRITE, plan_take_over, ta);
    }
    if (rc == 0) {
        rc = hand_over_relation_of(publish, &ta->own);
    }
    if (rc == 0 && revives_relation(ta)) {
        rc = revive_relation(publish, ta);
    }
    if (rc == 0 && !ta->touched->created && !ta->compacted && ta->base.rel != ta->own.rel) {
        rc = hand_over_relation_of(publish, &ta->base);
    }
    return rc;
}

/* ---- content, appended behind what others appended ---- */

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
        inode.mtime_ns = op_later_mtime(run, mtime_ns, inode.mtime_ns);
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
    rc = publish_find_inode(publish->view, merge->ino, &inode, &exists);
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
        rc = fsm_is_open(to) ? merge_from(publish, ta, from, to) : OP_ROOT_SWAPPED;
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
    int rc = publish_find_inode(publish->txn->view, touched->ino, &ta.own, &own_exists);
    if (rc == 0) {
        rc = publish_find_inode(publish->view, touched->ino, &live, &live_exists);
    }
    if (rc == 0 && !touched->created) {
        rc = publish_find_inode(publish->txn->base_view, touched->ino, &ta.base, &base_exists);
    }
    if (rc != 0 || !own_exists) {
        return rc; /* it was dropped */
    }
    if (!live_exists) {
        return -EAGAIN;
    }
    const bool is_same = touched->created || content_is_same(publish->txn, &ta.base, &live);
    ta.compacted = !touched->created && ta.base.rel != live.rel;
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
