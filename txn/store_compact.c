/*
 * txn/store_compact.c - compaction: the content of a table is written again, in order, into a relation of its own, while everything else goes on.
 *
 *   begin --> [copy]* --> finish: the rest is copied, relation and root of the inode are swapped --> the old relation goes (COW-5)
 *               ^ |         |
 *               | +---------+-- appended meanwhile: these rows are copied too
 *               +------------- changed otherwise: from the start again, a few times
 *
 * COMPACT-1 It changes what lies where, and nothing that a record could say: bytes, attributes, numbers, times and the epochs that conflicts go
 *           by stay. So it is not logged. A crash before the next checkpoint leaves the old layout; records that refer to pages of the
 *           new relation are replayed by value then (PAGES-6).
 * COMPACT-2 What was copied is what the table holds when it is swapped: it was not rewritten since the fork at the start (rewrite_epoch), so
 *           no byte copied since has changed, and its size is what was copied. Looked at under the gate.
 * COMPACT-3 It gives way: a table that an open transaction wrote is not swapped (-EBUSY). One that began before the swap and writes the table
 *           afterwards goes on in the old relation, which its base keeps; when it is closed its content is taken over with the
 *           old relation (txn/publish_content.c), or its rows are copied if others appended as well.
 * COMPACT-4 The new relation is private until the swap: no tree names it. Given up, it is dropped like any other.
 *
 * Locking: a piece is read under the file lock, shared, and written with the gate held. The swap holds the file lock, the gate and the
 * catalog lock exclusively, for one catalog edit and at most one piece.
 */
#include "txn/store_compact_auto.h"
#include "txn/store_jobs.h"
#include "txn/store_txn.h"

#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESTARTS_MAX 3u
#define SWAP_EDITS   4u
#define SHAPE_SPAN   (UINT64_C(1) << 30) /* bytes of content that are looked at under one hold of the file lock */
#define COMPACT_MORE 5                   /* answers of a try to finish: more rows came; the table was rewritten */
#define COMPACT_ANEW 6

struct store_compact {
    struct store *store;
    struct store_file *file;   /* a reference */
    struct relation *relation; /* the new one; NULL: not started */
    ts_no ts;                  /* of the table */
    struct content_root root;  /* of what was copied */
    epoch_no at;               /* of the fork that copying started with */
    unsigned restarts;
    size_t piece_bytes;
    uint8_t *bytes; /* one piece */
    struct store_job job;
    struct store_compact_info info;
};

/* ---- how a table lies ---- */

int store_file_get_shape(struct store_file *file, struct store_shape *out_shape)
{
    struct content_shape shape = {0};
    struct store_shape found = {0};
    uint64_t size = 1;
    int rc = 0;
    while (rc == 0 && shape.seen_bytes < size) {
        struct frame_budget budget;
        struct inode inode;
        block_no blocks = 0;
        rc = store_file_read_enter(file, STORE_READ_PINS, &budget, &inode);
        if (rc != 0) {
            return rc;
        }
        const struct content_root root = store_content_root(&inode);
        size = root.bytes;
        rc = content_add_shape(file->relation, &root, SHAPE_SPAN, &shape);
        if (rc == 0 && file->relation != NULL) {
            rc = relation_file_blocks(file->relation, &blocks);
        }
        found = (struct store_shape){.file_blocks = blocks,
                                     .leaves = shape.leaves,
                                     .least_leaves = content_shape_least_leaves(&shape),
                                     .runs = shape.runs};
        store_file_read_leave(file, &budget);
    }
    if (rc == 0) {
        *out_shape = found;
    }
    return rc;
}

bool store_shape_is_orderly(const struct store_shape *shape)
{
    return shape->leaves - shape->least_leaves <= 1 + shape->leaves / 10 &&
           shape->runs <= 2 + shape->leaves / 32; /* now and then an inner page lies between */
}

struct extent_of_tree {
    uint64_t blocks;
    uint64_t end; /* one above the last block */
};

static int add_to_extent(void *arg, struct page_ptr ptr, uint8_t level)
{
    struct extent_of_tree *extent = arg;
    (void)level;
    extent->blocks++;
    extent->end = ptr.block >= extent->end ? (uint64_t)ptr.block + 1 : extent->end;
    return 0;
}

/* The file lock is held. */
static int lies_high(const struct store_file *file, const struct inode *inode, bool *out_high)
{
    struct extent_of_tree extent = {0};
    const struct content_root root = store_content_root(inode);
    *out_high = false;
    if (inode->rel == REL_NONE || root.leaves >= STORE_COMPACT_LEAVES_MIN) {
        return 0;
    }
    const int rc = content_visit(file->relation, &root, NULL, add_to_extent, &extent);
    *out_high = rc == 0 && store_is_file_long(extent.end, extent.blocks);
    return rc;
}

int store_file_lies_high(struct store_file *file, bool *out_high)
{
    struct frame_budget budget;
    struct inode inode;
    int rc = store_file_read_enter(file, STORE_READ_PINS, &budget, &inode);
    if (rc == 0) {
        rc = lies_high(file, &inode, out_high);
        store_file_read_leave(file, &budget);
    }
    return rc;
}

/* ---- begin and end ---- */

/* As much as a small cache allows beside the swap. */
static size_t choose_piece(struct store *store)
{
    uint32_t leaves = store->compact_piece_blocks;
    uint32_t pins = 0, news = 0, catalog_pins = 0, catalog_news = 0;
    catalog_frames_needed(SWAP_EDITS, &catalog_pins, &catalog_news);
    content_frames_needed((uint64_t)leaves * PAGE_PAYLOAD_SIZE, &pins, &news);
    const uint32_t other = pins + catalog_pins + catalog_news + STORE_READ_PINS;
    while (leaves > 1 && news + other > frame_budget_max(store->cache)) {
        leaves /= 2;
        content_frames_needed((uint64_t)leaves * PAGE_PAYLOAD_SIZE, &pins, &news);
    }
    return (size_t)leaves * PAGE_PAYLOAD_SIZE;
}

int store_compact_begin(struct store_file *file, struct store_compact **out_compact)
{
    struct store *store = file->store;
    int rc = store_check_takes_changes(store);
    if (rc == 0 && file->view != store_live(store)) {
        rc = -EINVAL;
    }
    struct store_compact *compact = rc == 0 ? calloc(1, sizeof *compact) : NULL;
    if (compact == NULL) {
        return rc != 0 ? rc : -ENOMEM;
    }
    compact->store = store;
    compact->piece_bytes = choose_piece(store);
    compact->bytes = malloc(compact->piece_bytes);
    rc = compact->bytes != NULL ? store_file_get_shape(file, &compact->info.before) : -ENOMEM;
    if (rc == 0 && atomic_exchange(&file->compacting, true)) {
        rc = -EALREADY;
    }
    if (rc != 0) {
        free(compact->bytes);
        free(compact);
        return rc;
    }
    store_file_ref(file);
    compact->file = file;
    store_job_begin(store, &compact->job, "compact", "bytes", 0, "inode %llu", (unsigned long long)file->ino);
    *out_compact = compact;
    return 0;
}

/* COMPACT-4 */
static void give_up_relation(struct store_compact *compact)
{
    if (compact->relation != NULL) {
        store_drop_unnamed_relation(compact->file->view, compact->relation);
        relation_unref(compact->relation);
        compact->relation = NULL;
    }
}

void store_compact_end(struct store_compact *compact)
{
    give_up_relation(compact);
    store_job_end(&compact->job);
    atomic_store(&compact->file->compacting, false);
    store_file_close(compact->file);
    free(compact->bytes);
    free(compact);
}

void store_compact_get_info(const struct store_compact *compact, struct store_compact_info *out_info)
{
    *out_info = compact->info;
}

/* ---- start ---- */

/* COMPACT-3. The gate is held exclusively: no write set changes. */
static int check_transactions_locked(struct store_compact *compact)
{
    struct store *store = compact->store;
    struct store_compact_info *info = &compact->info;
    bool any = false;
    mutex_lock(&store->txns_lock);
    for (const struct store_txn *txn = store->txns; txn != NULL && !any; txn = txn->next) {
        const struct txn_inode *touched = txn_set_find_inode(&txn->set, compact->file->ino);
        any = touched != NULL && touched->content && !PLANT(COMPACTION_IGNORES_TRANSACTIONS);
        if (any) {
            (void)snprintf(info->transaction, sizeof info->transaction, "%s", txn->name);
        }
    }
    mutex_unlock(&store->txns_lock);
    return any ? -EBUSY : 0;
}

/* From here on a rewrite shows in the inode: its epoch is a later one. */
static int fork_for_epoch(struct store_compact *compact)
{
    struct cow *cow = compact->store->cow;
    struct holder *holder = NULL;
    cow_gate_close(cow);
    int rc = check_transactions_locked(compact);
    if (rc == 0) {
        rc = cow_fork_locked(cow, HOLDER_COMPACTION, &holder);
    }
    cow_gate_open(cow);
    if (rc == 0) {
        compact->at = cow_holder_at(holder);
        cow_holder_close(cow, holder);
    }
    return rc;
}

static int start(struct store_compact *compact)
{
    struct store *store = compact->store;
    int rc = store_check_takes_changes(store);
    if (rc == 0) {
        rc = store_ceilings_ensure(store, 0);
    }
    if (rc == 0) {
        rc = store_reserve_check(store, OP_UNLOGGED);
    }
    if (rc == 0) {
        rc = fork_for_epoch(compact);
    }
    if (rc == 0) {
        const rel_no rel = atomic_fetch_add(&store->next_rel, 1);
        rc = store_make_relation(store, compact->ts, rel, store_file_ino(compact->file), &compact->relation);
    }
    compact->root = CONTENT_ROOT_EMPTY;
    return rc;
}

static int start_anew(struct store_compact *compact)
{
    give_up_relation(compact);
    compact->info.done_bytes = 0;
    atomic_store(&compact->job.done, 0);
    return ++compact->restarts > RESTARTS_MAX ? -EAGAIN : 1;
}

/* ---- copying ---- */

/* Bytes or a hole. */
struct piece {
    size_t size;
    uint64_t hole;
};

/* The file lock is held. */
static int read_piece(struct store_compact *compact, const struct inode *inode, struct piece *out_piece)
{
    const struct content_root root = store_content_root(inode);
    return content_read_run(compact->file->relation, &root, compact->root.bytes, compact->bytes, compact->piece_bytes,
                            &out_piece->size, &out_piece->hole);
}

static int append_piece(struct store_compact *compact, const struct piece *piece, struct frame_budget *budget)
{
    struct view *live = compact->file->view;
    struct content_plan *plan = NULL;
    const struct content_root *root = &compact->root;
    cow_gate_enter(compact->store->cow);
    const int rc = piece->hole > 0
                       ? content_plan_resize(live, compact->relation, root, root->bytes + piece->hole, budget, &plan)
                       : content_plan_write(live, compact->relation, root, root->bytes, compact->bytes, piece->size,
                                            budget, &plan);
    if (rc == 0) {
        compact->root = content_plan_root(plan);
        content_plan_apply(plan);
    }
    cow_gate_leave(compact->store->cow);
    return rc;
}

static void note_progress(struct store_compact *compact, uint64_t total)
{
    compact->info.done_bytes = compact->root.bytes;
    compact->info.total_bytes = total;
    atomic_store(&compact->job.done, compact->root.bytes);
    store_job_set_total(&compact->job, total);
}

/* COMPACT-2: COMPACT_ANEW, or -ESTALE when a commit replaced the table or its last name is gone. */
static int check_unchanged(const struct store_compact *compact, const struct inode *inode)
{
    if (atomic_load(&compact->file->replaced) || inode->nlink == 0) {
        return -ESTALE;
    }
    const bool rewritten = inode->rewrite_epoch > compact->at || inode->size_bytes < compact->root.bytes;
    return rewritten ? COMPACT_ANEW : 0;
}

/* One piece, with nothing locked while it is written. COMPACT_MORE: there may be another one; 0: what is left is small enough to finish. */
static int copy_one(struct store_compact *compact)
{
    struct piece piece = {0};
    struct inode inode;
    struct frame_budget budget;
    uint32_t pins = 0, news = 0;
    int rc = store_file_read_enter(compact->file, STORE_READ_PINS, &budget, &inode);
    if (rc != 0) {
        return rc;
    }
    rc = check_unchanged(compact, &inode);
    const bool is_small = inode.size_bytes - compact->root.bytes <= compact->piece_bytes;
    if (rc == 0 && !is_small) {
        rc = read_piece(compact, &inode, &piece);
    }
    store_file_read_leave(compact->file, &budget);
    if (rc != 0 || is_small) {
        return rc;
    }
    content_frames_needed(piece.size, &pins, &news);
    rc = frame_budget_take(compact->store->cache, pins, news, &budget);
    if (rc == 0) {
        rc = append_piece(compact, &piece, &budget);
        frame_budget_release(&budget);
    }
    note_progress(compact, inode.size_bytes);
    return rc != 0 ? rc : COMPACT_MORE;
}

/* ---- finishing ---- */

/* What is left, with the file lock held exclusively. */
static int copy_rest(struct op_run *run, struct store_compact *compact, const struct inode *inode, uint32_t news)
{
    int rc = 0;
    if (inode->size_bytes - compact->root.bytes > compact->piece_bytes) {
        return COMPACT_MORE;
    }
    while (rc == 0 && compact->root.bytes < inode->size_bytes && !PLANT(COMPACTION_LOSES_ROWS)) {
        struct piece piece = {0};
        rc = read_piece(compact, inode, &piece);
        if (rc == 0) {
            rc = append_piece(compact, &piece, &run->budget);
        }
        if (rc == 0) {
            rc = frame_budget_refill(&run->budget, news);
        }
    }
    return rc;
}

/* The gate and the catalog lock are held exclusively. */
static int plan_swap(struct op_run *run, const struct store_compact *compact)
{
    struct inode inode;
    int rc = inode_batch_get(&run->batch, compact->file->ino, &inode);
    if (rc == 0) {
        rc = check_unchanged(compact, &inode);
    }
    if (rc == 0 && inode.size_bytes > compact->root.bytes && !PLANT(COMPACTION_LOSES_ROWS)) {
        rc = COMPACT_MORE;
    }
    if (PLANT(COMPACTED_RELATION_FREED)) {
        inode.rel_created = cow_epoch(run->store->cow);
    }
    if (rc == 0) {
        rc = op_drop_relation(run, &inode);
    }
    if (rc != 0) {
        return rc;
    }
    inode.rel = relation_number(compact->relation);
    inode.rel_created = cow_epoch(run->store->cow);
    inode.flags &= (uint8_t)~INODE_RENUMBERED;
    inode.content_ptr = compact->root.ptr;
    inode.content_height = compact->root.height;
    inode.content_leaves = compact->root.leaves;
    return inode_batch_put(&run->batch, &inode);
}

static int finish_locked(struct op_run *run, struct store_compact *compact)
{
    struct store_file *file = compact->file;
    const uint32_t news = run->budget.news;
    struct inode inode;
    int rc = store_file_look_locked(file, &inode);
    if (rc == 0) {
        rc = check_unchanged(compact, &inode);
    }
    if (rc == 0) {
        rc = copy_rest(run, compact, &inode, news);
    }
    if (rc != 0) {
        return rc;
    }
    op_close_gate(run);
    rc = check_transactions_locked(compact);
    if (rc != 0) {
        return rc;
    }
    op_lock_catalog(run);
    rc = plan_swap(run, compact);
    if (rc == 0) {
        rc = op_finish(run);
    }
    if (rc == 0) {
        relation_unref(file->relation);
        file->relation = compact->relation;
        compact->relation = NULL;
    }
    return rc;
}

static int finish_try(struct store_compact *compact, struct op_retry *retry)
{
    struct store *store = compact->store;
    struct store_file *file = compact->file;
    struct op_run run;
    int rc = op_begin(&run, store, file->view, OP_UNLOGGED, NULL, retry->edits, compact->piece_bytes, 0, true);
    if (rc != 0) {
        op_note_retry(&run, rc, retry);
        return rc;
    }
    rwlock_lock_exclusive(&file->lock);
    rc = finish_locked(&run, compact);
    op_note_retry(&run, rc, retry);
    op_release(&run);
    rwlock_unlock_exclusive(&file->lock);
    return op_end(&run, rc);
}

static int finish(struct store_compact *compact)
{
    struct op_retry retry = {.edits = SWAP_EDITS};
    int rc;
    do {
        rc = finish_try(compact, &retry);
    } while (op_wants_retry(compact->store, &rc, &retry));
    return rc;
}

/* ---- steps ---- */

/* Nothing, or one leaf that does not lie high: there is no order to bring back. */
static int has_order(struct store_compact *compact, bool *out_has)
{
    struct frame_budget budget;
    struct inode inode;
    bool high = false;
    int rc = store_file_read_enter(compact->file, STORE_READ_PINS, &budget, &inode);
    if (rc == 0) {
        compact->ts = inode.ts;
        rc = inode.content_height < 2 ? lies_high(compact->file, &inode, &high) : 0;
        *out_has = (inode.rel == REL_NONE || inode.content_height < 2) && !high;
        store_file_read_leave(compact->file, &budget);
    }
    return rc;
}

static int start_if_needed(struct store_compact *compact, bool *out_has_order)
{
    *out_has_order = false;
    if (compact->relation != NULL) {
        return 0;
    }
    const int rc = has_order(compact, out_has_order);
    return rc != 0 || *out_has_order ? rc : start(compact);
}

static int one_step(struct store_compact *compact)
{
    bool has = false;
    int rc = start_if_needed(compact, &has);
    if (rc == 0 && !has) {
        rc = copy_one(compact);
    }
    if (rc == 0 && !has) {
        rc = finish(compact);
    }
    if (rc == COMPACT_ANEW) {
        return start_anew(compact);
    }
    if (rc == COMPACT_MORE) {
        return 1;
    }
    return rc != 0 ? rc : store_file_get_shape(compact->file, &compact->info.after);
}

int store_compact_step(struct store_compact *compact, uint64_t max_bytes)
{
    const uint64_t most = max_bytes / compact->piece_bytes;
    uint64_t done = 0;
    int rc;
    do {
        rc = one_step(compact);
    } while (rc == 1 && ++done < most);
    return rc;
}
