/*
 * table/cow_view.c - views beside the live one, and what a transaction's view owns privately.
 *
 * A transaction's view allocates in the same relations as everybody else. Which blocks are its own is kept as a bitmap
 * for each relation, so that an abort can free them and FSM-3 can count them as used. What it replaces of its base is
 * only remembered: the live tree still uses it.
 *
 * Locking: the cow's lock (LOCK_RANK_HOLDERS) guards the private blocks; private_blocks_set runs under no other
 * condition than that private_blocks_promise was called for the promise.
 */
#define HASH_NONFATAL_OOM 1
#include "table/cow_int.h"

#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static int view_open(struct cow *cow, enum view_kind kind, struct holder *holder, struct view **out_view)
{
    struct view *view = calloc(1, sizeof *view);
    if (view == NULL) {
        return -ENOMEM;
    }
    view->cow = cow;
    view->kind = kind;
    view->id = atomic_fetch_add(&cow->view_count, 1);
    view->at = cow_holder_at(holder);
    view->base = holder;
    view->root = cow_holder_root(holder);
    view->catalog = cow->live.catalog;
    relation_ref(view->catalog);
    rwlock_init(&view->catalog_lock, LOCK_RANK_CATALOG, view->id);
    *out_view = view;
    return 0;
}

int view_open_read_only(struct cow *cow, struct holder *holder, struct view **out_view)
{
    return view_open(cow, VIEW_READ_ONLY, holder, out_view);
}

void view_show(struct view *view, struct holder *holder)
{
    rwlock_assert_held_exclusive(&view->catalog_lock);
    assert(view->kind == VIEW_READ_ONLY);
    view->base = holder;
    view->at = holder != NULL ? cow_holder_at(holder) : view->at;
    view->root = holder != NULL ? cow_holder_root(holder) : (struct catalog_root){.height = 0};
}

int view_open_transaction(struct cow *cow, struct holder *holder, struct view **out_view)
{
    assert(holder->kind == HOLDER_TRANSACTION || holder->kind == HOLDER_OLD_VERSION);
    struct view_private *priv = calloc(1, sizeof *priv);
    if (priv == NULL) {
        return -ENOMEM;
    }
    const int rc = view_open(cow, VIEW_TRANSACTION, holder, out_view);
    if (rc != 0) {
        free(priv);
        return rc;
    }
    (*out_view)->priv = priv;
    priv->at = (*out_view)->at;
    mutex_lock(&cow->lock);
    priv->next = cow->transactions;
    cow->transactions = priv;
    mutex_unlock(&cow->lock);
    return 0;
}

/* ---- private blocks ---- */

struct private_blocks *private_find(const struct view_private *priv, const struct relation *relation)
{
    struct private_blocks *blocks = NULL;
    HASH_FIND(hh, priv->relations, &relation, sizeof relation, blocks);
    return blocks;
}

static struct private_blocks *private_find_or_make_locked(struct view *view, struct relation *relation)
{
    struct private_blocks *blocks = private_find(view->priv, relation);
    if (blocks != NULL) {
        return blocks;
    }
    blocks = calloc(1, sizeof *blocks);
    if (blocks == NULL) {
        return NULL;
    }
    blocks->relation = relation;
    HASH_ADD(hh, view->priv->relations, relation, sizeof blocks->relation, blocks);
    if (blocks->hh.tbl == NULL) {
        free(blocks);
        return NULL;
    }
    relation_ref(relation);
    return blocks;
}

int view_relation_created(struct view *view, struct relation *relation)
{
    if (view->kind != VIEW_TRANSACTION) {
        return 0;
    }
    mutex_lock(&view->cow->lock);
    struct private_blocks *blocks = private_find_or_make_locked(view, relation);
    if (blocks != NULL) {
        blocks->created = true;
    }
    mutex_unlock(&view->cow->lock);
    return blocks != NULL ? 0 : -ENOMEM;
}

/* The bitmap covers every block that the file holds now, and what lies beyond it goes in. */
static int cover_locked(struct private_blocks *blocks, block_no file_blocks)
{
    if (blocks->block_capacity < file_blocks) {
        const size_t old_words = blocks->block_capacity / 64;
        const size_t words = ((size_t)file_blocks + 63) / 64 * 2;
        uint64_t *bits = realloc(blocks->bits, words * sizeof bits[0]);
        if (bits == NULL) {
            return -ENOMEM;
        }
        memset(bits + old_words, 0, (words - old_words) * sizeof bits[0]);
        blocks->bits = bits;
        blocks->block_capacity = (block_no)(words * 64);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < blocks->beyond_count; i++) {
        const block_no block = blocks->beyond[i];
        if (block < blocks->block_capacity) {
            blocks->bits[block / 64] |= UINT64_C(1) << (block % 64);
        } else {
            blocks->beyond[kept++] = block;
        }
    }
    blocks->beyond_count = kept;
    return 0;
}

static int promise_locked(struct private_blocks *blocks, uint32_t count)
{
    const uint32_t needed = blocks->beyond_count + blocks->promised + count;
    if (needed > blocks->beyond_capacity) {
        block_no *beyond = realloc(blocks->beyond, 2u * needed * sizeof beyond[0]);
        if (beyond == NULL) {
            return -ENOMEM;
        }
        blocks->beyond = beyond;
        blocks->beyond_capacity = 2u * needed;
    }
    blocks->promised += count;
    return 0;
}

int private_blocks_promise(struct view *view, struct relation *relation, uint32_t count)
{
    block_no file_blocks = 0;
    int rc = relation_file_blocks(relation, &file_blocks);
    if (rc != 0) {
        return rc;
    }
    mutex_lock(&view->cow->lock);
    struct private_blocks *blocks = private_find_or_make_locked(view, relation);
    rc = blocks != NULL ? cover_locked(blocks, file_blocks) : -ENOMEM;
    if (rc == 0) {
        rc = promise_locked(blocks, count);
    }
    mutex_unlock(&view->cow->lock);
    return rc;
}

void private_blocks_unpromise(struct view *view, struct relation *relation, uint32_t count)
{
    mutex_lock(&view->cow->lock);
    struct private_blocks *blocks = private_find(view->priv, relation);
    if (blocks != NULL) { /* else the relation was dropped in the view */
        assert(blocks->promised >= count);
        blocks->promised -= count;
    }
    mutex_unlock(&view->cow->lock);
}

void private_blocks_set(struct view *view, struct relation *relation, block_no block)
{
    mutex_lock(&view->cow->lock);
    struct private_blocks *blocks = private_find(view->priv, relation);
    assert(blocks != NULL && blocks->promised > 0);
    blocks->promised--;
    if (block < blocks->block_capacity) {
        blocks->bits[block / 64] |= UINT64_C(1) << (block % 64);
    } else {
        assert(blocks->beyond_count < blocks->beyond_capacity);
        blocks->beyond[blocks->beyond_count++] = block;
    }
    mutex_unlock(&view->cow->lock);
}

/* True: it was private. */
static bool clear_locked(struct private_blocks *blocks, block_no block)
{
    if (block < blocks->block_capacity) {
        const uint64_t bit = UINT64_C(1) << (block % 64);
        const bool was_set = (blocks->bits[block / 64] & bit) != 0;
        blocks->bits[block / 64] &= ~bit;
        return was_set;
    }
    for (uint32_t i = 0; i < blocks->beyond_count; i++) {
        if (blocks->beyond[i] == block) {
            blocks->beyond[i] = blocks->beyond[--blocks->beyond_count];
            return true;
        }
    }
    return false;
}

/* True: all of them were private. */
bool private_blocks_clear(struct view *view, struct relation *relation, block_no first, uint32_t count)
{
    bool all = true;
    mutex_lock(&view->cow->lock);
    struct private_blocks *blocks = private_find(view->priv, relation);
    for (block_no block = first; block < first + count && all; block++) {
        all = blocks != NULL && clear_locked(blocks, block);
    }
    mutex_unlock(&view->cow->lock);
    return all;
}

static bool private_bit(const struct private_blocks *blocks, block_no block)
{
    return (blocks->bits[block / 64] >> (block % 64) & 1) != 0;
}

int private_blocks_each_run(const struct private_blocks *blocks, int (*fn)(void *arg, block_no first, uint32_t count),
                            void *arg)
{
    block_no block = 0;
    while (block < blocks->block_capacity) {
        if (blocks->bits[block / 64] == 0) {
            block = (block / 64 + 1) * 64;
            continue;
        }
        if (!private_bit(blocks, block)) {
            block++;
            continue;
        }
        block_no end = block + 1;
        while (end < blocks->block_capacity && private_bit(blocks, end)) {
            end++;
        }
        const int rc = fn(arg, block, end - block);
        if (rc != 0) {
            return rc;
        }
        block = end;
    }
    int rc = 0;
    for (uint32_t i = 0; i < blocks->beyond_count && rc == 0; i++) {
        rc = fn(arg, blocks->beyond[i], 1);
    }
    return rc;
}

static struct private_blocks *private_take_locked(struct view *view, const struct relation *relation)
{
    struct private_blocks *blocks = private_find(view->priv, relation);
    if (blocks != NULL) {
        HASH_DELETE(hh, view->priv->relations, blocks);
    }
    return blocks;
}

static void private_free(struct private_blocks *blocks)
{
    if (blocks != NULL) {
        relation_unref(blocks->relation);
        free(blocks->bits);
        free(blocks->beyond);
        free(blocks);
    }
}

void private_blocks_forget_created(struct view *view, struct relation *relation)
{
    mutex_lock(&view->cow->lock);
    struct private_blocks *blocks = private_take_locked(view, relation);
    mutex_unlock(&view->cow->lock);
    private_free(blocks);
}

static struct private_blocks *private_take_any(struct view *view)
{
    mutex_lock(&view->cow->lock);
    struct private_blocks *blocks = view->priv->relations;
    if (blocks != NULL) {
        HASH_DELETE(hh, view->priv->relations, blocks);
    }
    mutex_unlock(&view->cow->lock);
    return blocks;
}

/* ---- publishing ---- */

static int compare_relations(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (struct relation *const *)a;
    const uintptr_t y = (uintptr_t) * (struct relation *const *)b;
    return x < y ? -1 : x > y;
}

/* What was replaced in one of the relations (sorted; NULL: in any) leaves the live tree. */
static void retire_replaced(struct view *view, struct relation **sorted, size_t count)
{
    struct dead_chunk **link = &view->priv->replaced;
    while (*link != NULL) {
        struct dead_chunk *chunk = *link;
        if (sorted != NULL && bsearch(&chunk->relation, sorted, count, sizeof sorted[0], compare_relations) == NULL) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        cow_retire_chunk(&view->cow->live, chunk);
    }
}

void view_hand_over_relations(struct view *view, struct relation **relations, size_t count)
{
    rwlock_assert_held_exclusive(&view->cow->gate);
    if (count == 0) {
        return;
    }
    qsort(relations, count, sizeof relations[0], compare_relations);
    for (size_t i = 0; i < count; i++) {
        private_blocks_forget_created(view, relations[i]);
    }
    retire_replaced(view, relations, count);
}

void view_hand_over_run(struct view *view, struct relation *relation, block_no first, uint32_t count)
{
    const bool was_private = private_blocks_clear(view, relation, first, count);
    assert(was_private);
    (void)was_private;
}

void view_publish(struct view *view)
{
    struct cow *cow = view->cow;
    rwlock_assert_held_exclusive(&cow->gate);
    assert(view->kind == VIEW_TRANSACTION);
    cow->live.root = view->root;
    atomic_store(&cow->allocated, true); /* the next fork is not of the same tree as the last one */
    struct private_blocks *blocks;
    while ((blocks = private_take_any(view)) != NULL) {
        private_free(blocks);
    }
    retire_replaced(view, NULL, 0);
}

static int count_run(void *arg, block_no first, uint32_t count)
{
    (void)first;
    *(uint64_t *)arg += count;
    return 0;
}

uint64_t view_private_bytes(struct view *view)
{
    uint64_t count = 0;
    mutex_lock(&view->cow->lock);
    for (const struct private_blocks *blocks = view->priv->relations; blocks != NULL; blocks = blocks->hh.next) {
        const int rc = private_blocks_each_run(blocks, count_run, &count);
        (void)rc; /* count_run never stops it */
    }
    mutex_unlock(&view->cow->lock);
    return count * BLOCK_SIZE;
}

/* ---- abort ---- */

struct free_arg {
    struct cow *cow;
    struct relation *relation;
};

static int free_run(void *arg, block_no first, uint32_t count)
{
    const struct free_arg *fa = arg;
    cow_free_run(fa->cow, fa->relation, first, count);
    return 0;
}

/* A relation made in an aborted view: nobody else ever saw it. */
static void abort_created(struct view *view, struct relation *relation)
{
    struct retire_list list = {0};
    if (retire_list_reserve(&list, relation, 1) != 0) {
        return; /* no memory: its file is found and removed as one that no tree names after the next start */
    }
    retire_list_add_relation(&list, cow_epoch(view->cow));
    view_retire(&view->cow->live, &list);
}

struct pin_arg {
    struct relation *relation;
    struct retire_list list;
};

static int add_pinned(void *arg, block_no first, uint32_t count)
{
    struct pin_arg *pa = arg;
    const int rc = retire_list_reserve(&pa->list, pa->relation, 1);
    if (rc == 0) {
        pa->list.entries[pa->list.count++] = (struct retire_entry){.first = first, .count = count, .birth = UINT64_MAX};
    }
    return rc;
}

/* Blocks that the closed transaction's tree had, and the live tree did not take over. Without memory they stay allocated until the next
 * start. */
static void pin_private(struct view *view, const struct private_blocks *blocks)
{
    struct pin_arg pa = {.relation = blocks->relation};
    const int rc = private_blocks_each_run(blocks, add_pinned, &pa);
    struct dead_chunk *chunk = rc == 0 ? cow_retire_list_take(&pa.list) : NULL;
    retire_list_free(&pa.list);
    if (chunk != NULL) {
        chunk->retired = cow_epoch(view->cow);
        cow_pin_chunk(view->cow, chunk);
    }
}

static void abort_relation(struct view *view, struct private_blocks *blocks)
{
    if (blocks->created) {
        abort_created(view, blocks->relation);
    } else if (view->published && cow_log_refers_inside(view, blocks->relation)) {
        pin_private(view, blocks);
    } else if (!PLANT(ABORT_FREES_NOTHING)) {
        struct free_arg fa = {.cow = view->cow, .relation = blocks->relation};
        const int rc = private_blocks_each_run(blocks, free_run, &fa);
        assert(rc == 0);
        (void)rc;
    }
    private_free(blocks);
}

/* What the view replaced and the live tree did not take over: blocks of the base are those of others, its own ones go now. */
static void abort_replaced(struct view *view, struct dead_chunk *chunk)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        if (chunk->entries[i].count != 0 && (chunk->entries[i].birth > view->at || PLANT(ABORT_FREES_BASE))) {
            chunk->entries[kept++] = chunk->entries[i];
        }
    }
    chunk->count = kept;
    chunk->retired = cow_epoch(view->cow);
    if (kept > 0 && view->published && cow_log_refers_inside(view, chunk->relation)) {
        cow_pin_chunk(view->cow, chunk);
        return;
    }
    for (uint32_t i = 0; i < kept; i++) {
        cow_free_run(view->cow, chunk->relation, chunk->entries[i].first, chunk->entries[i].count);
    }
    cow_chunk_free(chunk);
}

static void view_abort(struct view *view)
{
    struct cow *cow = view->cow;
    struct view_private *priv = view->priv;
    cow_gate_enter(cow);
    mutex_lock(&cow->lock);
    struct view_private **link = &cow->transactions;
    while (*link != priv) {
        link = &(*link)->next;
    }
    *link = priv->next;
    mutex_unlock(&cow->lock);
    struct private_blocks *blocks;
    while ((blocks = private_take_any(view)) != NULL) {
        abort_relation(view, blocks);
    }
    while (priv->replaced != NULL) {
        struct dead_chunk *chunk = priv->replaced;
        priv->replaced = chunk->next;
        abort_replaced(view, chunk);
    }
    while (priv->dropped != NULL) {
        struct dead_chunk *chunk = priv->dropped;
        priv->dropped = chunk->next;
        cow_retire_relation(cow, chunk);
    }
    cow_gate_leave(cow);
    free(priv);
}

void view_close(struct view *view)
{
    assert(view->kind != VIEW_LIVE);
    if (view->priv != NULL) {
        view_abort(view);
    }
    relation_unref(view->catalog);
    rwlock_destroy(&view->catalog_lock);
    free(view);
}
