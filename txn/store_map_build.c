/*
 * txn/store_map_build.c - free maps that are built in the background (FSM-3): nobody waits for one.
 *
 *   ordered --> a batch: builds begun, gate closed, fork, what is pinned is marked, gate open
 *           --> for each relation: its tree in the fork, then in each holder that was there at the fork and still is --> its map is ready
 *           --> the fork goes
 *
 * BUILD-1 A build begins before the fork, so a block that was handed out before it is in the fork's tree, is pinned at the fork, or was
 *         handed out or freed since (FSM-8).
 * BUILD-2 What is on a deadlist, private to a transaction or pinned is marked while the gate is closed for the fork: it cannot move from
 *         where it was not looked at yet to where it was.
 * BUILD-3 A holder is kept while its tree is walked (HOLD-4); the walk ends when somebody waits to close it. One that closes needs no walk, or no
 *         more than a part of one: what only it saw was on its list, hence
 *         marked, and freed since; an adopted snapshot has no such list, and puts the map in doubt again when it closes.
 * BUILD-4 A relation that the fork does not have is not built: nobody writes it but transactions that began before it was dropped. When one
 *         of them brings it back (PUBLISH-5), its map is ordered again.
 *
 * A portion is one of these steps for one relation. Who does it, the thread or store_step, owns the batch meanwhile (`busy`).
 *
 * Locking: `lock` (LOCK_RANK_LEAF) for the queue. A portion holds nothing but the gate at its fork.
 */
#include "txn/store_jobs.h"
#include "txn/store_map.h"

#include "base/plant.h"

#include <errno.h>
#include <stdlib.h>

#define BATCH_MAX         64u
#define IDLE_MS           1000u
#define FINISH_BLOCKS_MAX 131072u /* 1 GiB of tables: some hundred inner pages */
#define OTHERS_SPARE      16u     /* holders that may come between counting and the fork */

struct map_order {
    struct map_order *next;
    struct relation *relation; /* a reference */
    ino_no first;
};

struct map_item {
    struct relation *relation; /* a reference */
    ino_no first;
    struct block_set set;
    bool begun;
    int rc; /* the first error */
};

struct map_batch {
    struct map_item items[BATCH_MAX]; /* in order of their addresses */
    unsigned count;
    struct holder *fork;
    uint64_t *others; /* serials of the holders beside it */
    unsigned other_count, other_capacity;
    unsigned item; /* that is next */
    struct store_job job;
};

void store_maps_init(struct store *store)
{
    struct map_builder *maps = &store->maps;
    mutex_init(&maps->lock, LOCK_RANK_LEAF);
    condvar_init(&maps->wake);
    maps->last = &maps->first;
}

/* ---- orders ---- */

void store_map_order(struct store *store, struct relation *relation, ino_no first)
{
    struct map_builder *maps = &store->maps;
    if (!fsm_build_order(relation)) {
        return;
    }
    struct map_order *order = malloc(sizeof *order);
    if (order == NULL) {
        store_map_report(store, relation, -ENOMEM);
        return;
    }
    relation_ref(relation);
    *order = (struct map_order){.relation = relation, .first = first};
    mutex_lock(&maps->lock);
    *maps->last = order;
    maps->last = &order->next;
    maps->woken = true;
    condvar_signal(&maps->wake);
    mutex_unlock(&maps->lock);
}

static struct map_order *take_order(struct map_builder *maps)
{
    mutex_lock(&maps->lock);
    struct map_order *order = maps->first;
    if (order != NULL) {
        maps->first = order->next;
        maps->last = maps->first != NULL ? maps->last : &maps->first;
    }
    mutex_unlock(&maps->lock);
    return order;
}

/* ---- a batch ---- */

static int compare_items(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const struct map_item *)a)->relation;
    const uintptr_t y = (uintptr_t)((const struct map_item *)b)->relation;
    return x < y ? -1 : x > y;
}

static bool has_relation(const struct map_batch *batch, const struct relation *relation)
{
    unsigned i = 0;
    while (i < batch->count && batch->items[i].relation != relation) {
        i++;
    }
    return i < batch->count;
}

static void fill_batch(struct map_builder *maps, struct map_batch *batch)
{
    struct map_order *order;
    while (batch->count < BATCH_MAX && (order = take_order(maps)) != NULL) {
        if (has_relation(batch, order->relation)) { /* put in doubt while it waited */
            relation_unref(order->relation);
        } else {
            batch->items[batch->count++] = (struct map_item){.relation = order->relation, .first = order->first};
        }
        free(order);
    }
    qsort(batch->items, batch->count, sizeof batch->items[0], compare_items);
}

static void *item_of(void *arg, const struct relation *relation)
{
    struct map_batch *batch = arg;
    const struct map_item key = {.relation = (struct relation *)relation};
    struct map_item *item = bsearch(&key, batch->items, batch->count, sizeof key, compare_items);
    return item != NULL && item->begun && item->rc == 0 ? item : NULL;
}

/* What cannot be marked costs this map alone. */
static int mark_run(void *arg, block_no first, uint32_t count)
{
    struct map_item *item = arg;
    if (item->rc == 0) {
        item->rc = fsm_build_used(item->relation, first, count);
    }
    return 0;
}

static void note_holder(void *arg, struct holder *holder)
{
    struct map_batch *batch = arg;
    if (holder != batch->fork && batch->other_count < batch->other_capacity) {
        batch->others[batch->other_count] = cow_holder_serial(holder);
    }
    batch->other_count += holder != batch->fork;
}

/* BUILD-2. 1: more holders came than there is room for. The gate is closed. */
static int fork_locked(struct store *store, struct map_batch *batch)
{
    if (cow_holder_count(store->cow) >= batch->other_capacity) {
        return 1;
    }
    int rc = cow_fork_locked(store->cow, HOLDER_MAP, &batch->fork);
    if (rc == 0) {
        cow_each_holder(store->cow, note_holder, batch);
    }
    if (rc == 0 && !PLANT(PINNED_NOT_MARKED)) {
        rc = cow_each_pinned(store->cow, item_of, batch, mark_run);
    }
    return rc;
}

static int fork_batch(struct store *store, struct map_batch *batch)
{
    int rc = 1;
    while (rc == 1) {
        free(batch->others);
        batch->other_capacity = cow_holder_count(store->cow) + OTHERS_SPARE;
        batch->others = calloc(batch->other_capacity, sizeof batch->others[0]);
        if (batch->others == NULL) {
            return -ENOMEM;
        }
        cow_gate_close(store->cow);
        rc = fork_locked(store, batch);
        cow_gate_open(store->cow);
    }
    return rc;
}

static void begin_item(struct map_item *item)
{
    item->rc = fsm_build_begin(item->relation);
    item->begun = item->rc == 0;
}

static void begin_batch(struct store *store, struct map_batch *batch)
{
    uint64_t blocks = 0;
    for (unsigned i = 0; i < batch->count; i++) {
        begin_item(&batch->items[i]); /* BUILD-1 */
    }
    const int rc = fork_batch(store, batch);
    for (unsigned i = 0; i < batch->count; i++) {
        struct map_item *item = &batch->items[i];
        item->rc = item->rc != 0 ? item->rc : rc;
        if (item->rc == 0) {
            item->rc = block_set_init(&item->set, item->relation); /* the file has all that the fork sees */
        }
        blocks += item->set.blocks;
    }
    store_job_begin(store, &batch->job, "map", "blocks", blocks, batch->count == 1 ? "relation %llu" : "%llu relations",
                    batch->count == 1 ? (unsigned long long)relation_number(batch->items[0].relation)
                                      : (unsigned long long)batch->count);
}

/* ---- a relation ---- */

static int walk_version(struct store *store, struct map_item *item, struct holder *holder, bool *out_has)
{
    struct view *view = NULL;
    int rc = view_open_read_only(store->cow, holder, &view);
    if (rc == 0) {
        rc = block_set_add_version(&item->set, store->diag, view, item->first, out_has);
        view_close(view);
    }
    return rc;
}

/* BUILD-3 */
static int walk_others(struct store *store, const struct map_batch *batch, struct map_item *item)
{
    int rc = 0;
    for (unsigned i = 0; i < batch->other_count && rc == 0; i++) {
        bool has = false;
        struct holder *holder = cow_holder_keep(store->cow, batch->others[i]);
        if (holder != NULL) {
            item->set.stop = cow_holder_closing(holder);
            rc = walk_version(store, item, holder, &has);
            item->set.stop = NULL;
            cow_holder_let_go(store->cow, holder);
        }
    }
    return rc;
}

static int walk_item(struct store *store, const struct map_batch *batch, struct map_item *item)
{
    bool has = true;
    int rc = PLANT(FORK_NOT_WALKED) ? 0 : walk_version(store, item, batch->fork, &has);
    if (rc != 0 || !has) {
        return rc != 0 ? rc : -ENOENT; /* BUILD-4 */
    }
    rc = walk_others(store, batch, item);
    return rc == 0 ? block_set_hand_over(&item->set) : rc;
}

static void give_up_item(struct store *store, struct map_item *item)
{
    if (item->begun) {
        fsm_build_abort(item->relation);
    }
    if (item->rc != -ENOENT) {
        atomic_fetch_add(&store->maps.failed, 1);
        store_map_report(store, item->relation, item->rc);
    }
}

static void do_item(struct store *store, struct map_batch *batch, struct map_item *item)
{
    if (item->rc == 0) {
        item->rc = walk_item(store, batch, item);
    }
    if (item->rc == 0) {
        item->rc = fsm_build_finish(item->relation);
        item->begun = false;
    }
    if (item->rc == 0) {
        atomic_fetch_add(&store->maps.built, 1);
    } else {
        give_up_item(store, item);
    }
    item->begun = false;
    store_job_add(&batch->job, item->set.blocks);
    block_set_free(&item->set);
}

/* ---- portions ---- */

static void free_batch(struct store *store, struct map_batch *batch)
{
    for (unsigned i = 0; i < batch->count; i++) {
        struct map_item *item = &batch->items[i];
        if (item->begun) {
            fsm_build_abort(item->relation);
        }
        block_set_free(&item->set);
        relation_unref(item->relation);
    }
    if (batch->fork != NULL) {
        cow_holder_close(store->cow, batch->fork);
    }
    free(batch->others);
    free(batch);
}

/* The batch under way, or a new one; NULL: nothing to do, or somebody else is at it. */
static struct map_batch *claim_batch(struct store *store)
{
    struct map_builder *maps = &store->maps;
    mutex_lock(&maps->lock);
    const bool idle = !maps->busy && (maps->batch != NULL || maps->first != NULL);
    struct map_batch *batch = idle ? maps->batch : NULL;
    if (idle && batch == NULL) {
        batch = calloc(1, sizeof *batch);
    }
    maps->busy |= batch != NULL;
    mutex_unlock(&maps->lock);
    return batch;
}

static void give_batch_back(struct store *store, struct map_batch *batch)
{
    struct map_builder *maps = &store->maps;
    mutex_lock(&maps->lock);
    maps->batch = batch;
    maps->busy = false;
    mutex_unlock(&maps->lock);
}

/* One step. Returns the batch, or NULL when it is done. */
static struct map_batch *do_portion(struct store *store, struct map_batch *batch)
{
    if (batch->count == 0) {
        fill_batch(&store->maps, batch);
        begin_batch(store, batch);
        return batch;
    }
    if (batch->item < batch->count) {
        do_item(store, batch, &batch->items[batch->item++]);
        return batch;
    }
    store_job_end(&batch->job);
    free_batch(store, batch);
    return NULL;
}

static bool has_work(struct map_builder *maps)
{
    mutex_lock(&maps->lock);
    const bool work = !maps->busy && (maps->batch != NULL || maps->first != NULL);
    mutex_unlock(&maps->lock);
    return work;
}

uint64_t store_maps_waiting(struct store *store)
{
    struct map_builder *maps = &store->maps;
    mutex_lock(&maps->lock);
    uint64_t waiting = maps->busy || maps->batch != NULL;
    for (const struct map_order *order = maps->first; order != NULL; order = order->next) {
        waiting++;
    }
    mutex_unlock(&maps->lock);
    return waiting;
}

bool store_maps_step(struct store *store)
{
    struct frame_budget budget;
    if (!has_work(&store->maps) || frame_budget_take(store->cache, 2 * STORE_READ_PINS, 0, &budget) != 0) {
        return false;
    }
    struct map_batch *batch = claim_batch(store);
    const bool claimed = batch != NULL;
    if (claimed) {
        batch = do_portion(store, batch);
        give_batch_back(store, batch);
    }
    frame_budget_release(&budget);
    return claimed;
}

/* ---- the end ---- */

/* Blocks of what waits and of what is under way; UINT64_MAX: more relations than one batch takes. */
static uint64_t ordered_blocks(struct map_builder *maps)
{
    uint64_t total = 0;
    unsigned count = 0;
    mutex_lock(&maps->lock);
    const struct map_batch *batch = maps->batch;
    for (unsigned i = 0; batch != NULL && i < batch->count; i++) {
        total += batch->items[i].set.blocks;
    }
    const struct map_order *order = maps->first;
    mutex_unlock(&maps->lock); /* nobody orders any more */
    for (; order != NULL && count <= BATCH_MAX; order = order->next) {
        block_no blocks = 0;
        const int rc = relation_file_blocks(order->relation, &blocks);
        total += rc == 0 ? blocks : 0;
        count++;
    }
    return count > BATCH_MAX ? UINT64_MAX : total;
}

void store_maps_finish(struct store *store)
{
    if (ordered_blocks(&store->maps) <= FINISH_BLOCKS_MAX) {
        while (store_maps_step(store)) {
        }
    }
}

void store_maps_stop(struct store *store)
{
    struct map_builder *maps = &store->maps;
    struct map_order *order;
    if (maps->batch != NULL) {
        store_job_end(&maps->batch->job);
        free_batch(store, maps->batch);
        maps->batch = NULL;
    }
    while ((order = take_order(maps)) != NULL) {
        relation_unref(order->relation);
        free(order);
    }
}

/* ---- the thread ---- */

/* Waits for an order. False: the store is closing. */
static bool wait_for_order(struct map_builder *maps)
{
    mutex_lock(&maps->lock);
    if (!maps->woken && !maps->stop) {
        (void)condvar_wait_ms(&maps->wake, &maps->lock, IDLE_MS);
    }
    maps->woken = false;
    const bool go_on = !maps->stop;
    mutex_unlock(&maps->lock);
    return go_on;
}

static bool is_stopping(struct map_builder *maps)
{
    mutex_lock(&maps->lock);
    const bool stop = maps->stop;
    mutex_unlock(&maps->lock);
    return stop;
}

static void *map_thread(void *arg)
{
    struct store *store = arg;
    while (wait_for_order(&store->maps)) {
        store_snapshots_close_adopted(store);
        while (!is_stopping(&store->maps) && store_maps_step(store)) {
        }
    }
    return NULL;
}

int store_maps_thread_start(struct store *store)
{
    const int rc = pthread_create(&store->maps.thread, NULL, map_thread, store);
    store->maps.thread_runs = rc == 0;
    return -rc;
}

void store_maps_wake(struct store *store)
{
    struct map_builder *maps = &store->maps;
    mutex_lock(&maps->lock);
    maps->woken = true;
    condvar_signal(&maps->wake);
    mutex_unlock(&maps->lock);
}

void store_maps_thread_stop(struct store *store)
{
    struct map_builder *maps = &store->maps;
    mutex_lock(&maps->lock);
    maps->stop = true;
    condvar_broadcast(&maps->wake);
    mutex_unlock(&maps->lock);
    if (maps->thread_runs) {
        (void)pthread_join(maps->thread, NULL);
    }
    maps->thread_runs = false;
}
