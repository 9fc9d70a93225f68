/*
 * txn/store_blocks.c - what each block of a table's file is used for, as one version of the table sees it.
 *
 * BLOCKS-1 A block is what the version's own tree says; else what keeps it says: the live tree, a holder whose tree reaches it (the oldest one), or
 *          what is pinned otherwise; else it is free, as FSM-3 has it. What the map holds back all the same belongs to an operation under way.
 *
 * Locking: as a read, the file lock shared; inside of it the gate, shared, for the trees of others. What is read for these is read before, with no
 * lock held.
 */
#include "txn/store_map.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>

struct block_state {
    uint8_t use;   /* enum store_block_use */
    uint8_t level; /* of an inner page */
    uint8_t pin;   /* enum store_block_pin */
    uint16_t bytes;
};

struct block_list {
    struct relation *relation;
    struct block_state *states;
    block_no count;
};

static struct block_state *state_of(const struct block_list *list, block_no block)
{
    return block < list->count ? &list->states[block] : NULL; /* NULL: the file grew since it was measured */
}

/* ---- the version's own tree ---- */

static int note_own_page(void *arg, struct page_ptr ptr, uint8_t level, uint64_t bytes)
{
    struct block_state *state = state_of(arg, ptr.block);
    if (state != NULL) {
        *state = level > 0 ? (struct block_state){.use = STORE_BLOCK_INNER, .level = level}
                           : (struct block_state){.use = STORE_BLOCK_LEAF, .bytes = (uint16_t)bytes};
    }
    return 0;
}

/* ---- what others see ---- */

struct others {
    struct block_list *list;
    ino_no first; /* inode that the relation was made for */
    enum store_block_pin pin;
};

static void pin_block(const struct others *others, block_no block)
{
    struct block_state *state = state_of(others->list, block);
    if (state != NULL && state->use == STORE_BLOCK_FREE) {
        *state = (struct block_state){.use = STORE_BLOCK_PINNED, .pin = (uint8_t)others->pin};
    }
}

static int pin_page(void *arg, struct page_ptr ptr, uint8_t level)
{
    (void)level;
    pin_block(arg, ptr.block);
    return 0;
}

/* What lies below a page that was seen is what was seen below it: pages do not change. */
static bool is_seen(void *arg, struct page_ptr ptr)
{
    const struct others *others = arg;
    const struct block_state *state = state_of(others->list, ptr.block);
    return state != NULL && state->use != STORE_BLOCK_FREE;
}

static enum store_block_pin pin_of_view(const struct view *view)
{
    if (view->kind == VIEW_LIVE) {
        return STORE_PIN_LIVE;
    }
    switch (cow_holder_kind(view->base)) {
    case HOLDER_TRANSACTION:
        return STORE_PIN_TRANSACTION;
    case HOLDER_SNAPSHOT:
        return STORE_PIN_SNAPSHOT;
    case HOLDER_CHECKPOINT:
    case HOLDER_DURABLE:
        return STORE_PIN_CHECKPOINT;
    case HOLDER_BACKUP:
        return STORE_PIN_BACKUP;
    default:
        return STORE_PIN_OTHER;
    }
}

static int pin_version(void *arg, struct view *view)
{
    struct others *others = arg;
    struct relation *relation = others->list->relation;
    struct content_root root;
    bool has = false;
    others->pin = pin_of_view(view);
    const int rc = store_map_root(view, relation_number(relation), others->first, &root, &has);
    return rc != 0 || !has ? rc : content_visit(relation, &root, is_seen, pin_page, others);
}

static int pin_run(void *arg, block_no first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pin_block(arg, first + i);
    }
    return 0;
}

static int note_others(struct store *store, struct block_list *list, struct view *view, ino_no ino)
{
    struct others others = {.list = list};
    int rc = store_map_find_first(view, relation_number(list->relation), ino, &others.first);
    if (rc != 0) {
        return rc;
    }
    cow_gate_enter(store->cow);
    rc = store_each_version(store, pin_version, &others);
    if (rc == 0) {
        others.pin = STORE_PIN_TRANSACTION;
        rc = cow_each_private_run(store->cow, list->relation, pin_run, &others);
    }
    if (rc == 0) {
        others.pin = STORE_PIN_OTHER;
        rc = cow_each_pinned_run(store->cow, list->relation, pin_run, &others);
    }
    cow_gate_leave(store->cow);
    return rc;
}

static void note_map(struct block_list *list)
{
    const bool ready = fsm_is_ready(list->relation);
    for (block_no block = 0; block < list->count; block++) {
        struct block_state *state = &list->states[block];
        if (state->use == STORE_BLOCK_FREE && ready && fsm_is_used(list->relation, block)) {
            state->use = STORE_BLOCK_HELD;
        } else if (state->use == STORE_BLOCK_FREE && fsm_is_punched(list->relation, block)) {
            state->use = STORE_BLOCK_PUNCHED;
        }
    }
}

/* ---- all of them, as runs ---- */

static bool continues(const struct store_block_run *run, const struct block_state *state)
{
    return run->use == state->use && run->level == state->level && run->pin == state->pin && run->bytes == state->bytes;
}

static int make_runs(const struct block_list *list, struct store_block_run **out_runs, size_t *out_count)
{
    struct store_block_run *runs = NULL;
    size_t count = 0;
    size_t capacity = 0;
    for (block_no block = 0; block < list->count; block++) {
        const struct block_state *state = &list->states[block];
        if (count > 0 && continues(&runs[count - 1], state)) {
            runs[count - 1].count++;
            continue;
        }
        struct store_block_run *grown = array_with_room(runs, count, &capacity, sizeof runs[0]);
        if (grown == NULL) {
            free(runs);
            return -ENOMEM;
        }
        runs = grown;
        runs[count++] = (struct store_block_run){.first = block,
                                                 .count = 1,
                                                 .use = state->use,
                                                 .level = state->level,
                                                 .bytes = state->bytes,
                                                 .pin = state->pin};
    }
    *out_runs = runs;
    *out_count = count;
    return 0;
}

static int list_init(struct block_list *list, struct relation *relation)
{
    list->relation = relation;
    const int rc = relation_file_blocks(relation, &list->count);
    list->states = rc == 0 ? calloc(list->count + 1, sizeof list->states[0]) : NULL;
    return rc == 0 && list->states == NULL ? -ENOMEM : rc;
}

static int collect(struct store_file *file, const struct inode *inode, struct block_list *list)
{
    const struct content_root root = store_content_root(inode);
    if (file->relation == NULL) {
        return 0;
    }
    int rc = list_init(list, file->relation);
    if (rc == 0) {
        rc = content_each_page(list->relation, &root, note_own_page, list);
    }
    if (rc == 0) {
        rc = note_others(file->store, list, file->view, file->ino);
    }
    if (rc == 0) {
        note_map(list);
    }
    return rc;
}

/* Reads what the holders' trees have of their own, so that nothing is read with the gate held. */
static int warm(struct store_file *file)
{
    struct block_list list = {.states = NULL};
    struct others others = {.list = &list};
    struct relation *relation = NULL;
    struct inode inode;
    struct frame_budget budget;
    int rc = store_file_get_inode(file, &inode);
    if (rc != 0 || inode.rel == REL_NONE) {
        return rc;
    }
    rc = relation_open(file->store->cache, inode.ts, inode.rel, &relation);
    if (rc == 0) {
        rc = frame_budget_take(file->store->cache, 2 * STORE_READ_PINS, 0, &budget);
    }
    if (rc == 0) {
        rc = list_init(&list, relation);
        rc = rc == 0 ? store_map_find_first(file->view, inode.rel, file->ino, &others.first) : rc;
        rc = rc == 0 ? store_each_kept_version(file->store, pin_version, &others) : rc;
        frame_budget_release(&budget);
    }
    relation_unref(relation);
    free(list.states);
    return rc;
}

int store_list_blocks(struct store_file *file, struct store_block_run **out_runs, size_t *out_count)
{
    struct block_list list = {.states = NULL};
    struct frame_budget budget;
    struct inode inode;
    int rc = warm(file);
    if (rc == 0) {
        rc = store_file_read_enter(file, 2 * STORE_READ_PINS, &budget, &inode);
    }
    if (rc != 0) {
        return rc;
    }
    rc = collect(file, &inode, &list);
    store_file_read_leave(file, &budget);
    if (rc == 0) {
        rc = make_runs(&list, out_runs, out_count);
    }
    free(list.states);
    return rc;
}
