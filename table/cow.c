/*
 * table/cow.c - epochs, the gate, holders and deadlists.
 *
 * Where a block goes that leaves the live tree (COW-2):
 *
 *   view_retire --birth > newest holder's at--------------------------------> free (cow_free_run)
 *        |                                                                      ^
 *        +--else--> newest holder's `dead` --cow_holder_close--> `closing` -----+ no older holder sees it
 *                        ^                                          |
 *                        +---------- an older holder sees it -------+
 *
 * and a whole relation (COW-5):
 *
 *   view_retire --> dropped_held --no holder but durable ones sees it--> dropped_dead --cow_take_dead--> dropped_gone
 *                                                                                     --cow_take_removable--> unlinked
 *
 * HOLD-1 The holder list is ordered by `at`, newest first; newest_at is the first one's.
 * HOLD-2 An entry on holder H's list was retired after H forked and before any newer holder that is still open, has
 *        birth <= H.at, and its block is allocated in the relation's map.
 * HOLD-3 The list changes only with the gate held exclusively; entries move only under `lock`. An entry that is being
 *        freed is taken off and freed under one shared hold of the gate, so that whoever holds the gate exclusively
 *        sees it either listed or free.
 * HOLD-4 A holder that somebody goes over is not closed before he is through: whoever closes it waits, nobody else begins, and who is at it
 *        is told to stop.
 *
 * Locking: gate before `lock`; `lock` is never held while pages are discarded (that may wait for a write).
 */
#include "table/cow_int.h"

#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#define FREE_BATCH_ENTRIES 64u

/* splitmix64's finaliser: neighbours in, unrelated numbers out. */
static uint64_t mix_64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static alloc_no next_alloc(struct cow *cow)
{
    const uint64_t state =
        atomic_fetch_add_explicit(&cow->alloc_state, UINT64_C(0x9e3779b97f4a7c15), memory_order_relaxed);
    const alloc_no alloc = (alloc_no)mix_64(state);
    return alloc != 0 ? alloc : 1;
}

/* ---- retire lists ---- */

static struct dead_chunk *chunk_of(struct retire_entry *entries)
{
    return (struct dead_chunk *)((char *)entries - offsetof(struct dead_chunk, entries));
}

int retire_list_reserve(struct retire_list *list, struct relation *relation, uint32_t more)
{
    assert(list->relation == NULL || list->relation == relation);
    if (list->capacity - list->count >= more && list->relation != NULL) {
        return 0;
    }
    uint32_t capacity = list->capacity != 0 ? list->capacity * 2 : 4;
    while (capacity - list->count < more) {
        capacity *= 2;
    }
    struct dead_chunk *old = list->entries != NULL ? chunk_of(list->entries) : NULL;
    struct dead_chunk *chunk = realloc(old, sizeof *chunk + capacity * sizeof chunk->entries[0]);
    if (chunk == NULL) {
        return -ENOMEM;
    }
    if (list->relation == NULL) {
        relation_ref(relation);
        list->relation = relation;
    }
    list->entries = chunk->entries;
    list->capacity = capacity;
    return 0;
}

void retire_list_add(struct retire_list *list, struct page_ptr ptr)
{
    assert(list->count < list->capacity);
    if (list->count > 0) {
        struct retire_entry *last = &list->entries[list->count - 1];
        if (last->birth == ptr.birth && last->count != 0 && last->first + last->count == ptr.block) {
            last->count++;
            return;
        }
    }
    list->entries[list->count++] = (struct retire_entry){.first = ptr.block, .count = 1, .birth = ptr.birth};
}

void retire_list_add_relation(struct retire_list *list, epoch_no created)
{
    assert(list->count == 0 && list->capacity > 0);
    list->entries[list->count++] = (struct retire_entry){.first = 0, .count = 0, .birth = created};
}

void cow_chunk_free(struct dead_chunk *chunk)
{
    relation_unref(chunk->relation);
    free(chunk);
}

static void chunk_list_free(struct dead_chunk *chunk)
{
    while (chunk != NULL) {
        struct dead_chunk *next = chunk->next;
        cow_chunk_free(chunk);
        chunk = next;
    }
}

void retire_list_free(struct retire_list *list)
{
    if (list->entries != NULL) {
        relation_unref(list->relation);
        free(chunk_of(list->entries));
    }
    *list = (struct retire_list){0};
}

struct dead_chunk *cow_retire_list_take(struct retire_list *list)
{
    if (list->count == 0) {
        retire_list_free(list);
        return NULL;
    }
    struct dead_chunk *chunk = chunk_of(list->entries);
    chunk->next = NULL;
    chunk->relation = list->relation;
    chunk->retired = 0;
    chunk->pinned = 0;
    chunk->count = list->count;
    *list = (struct retire_list){0};
    return chunk;
}

static void chunk_push(struct dead_chunk **list, struct dead_chunk *chunk)
{
    chunk->next = *list;
    *list = chunk;
}

/* ---- open and close ---- */

int cow_open(const struct cow_options *options, struct cow **out_cow)
{
    struct cow *cow = calloc(1, sizeof *cow);
    if (cow == NULL) {
        return -ENOMEM;
    }
    uint64_t seed = 0;
    const int rc = io_random(options->dev, &seed, sizeof seed);
    if (rc != 0) {
        free(cow);
        return rc;
    }
    assert(options->epoch > 0);
    cow->cache = options->cache;
    cow->diag = options->diag;
    rwlock_init(&cow->gate, LOCK_RANK_GATE, 0);
    mutex_init(&cow->lock, LOCK_RANK_HOLDERS);
    condvar_init(&cow->let_go);
    atomic_init(&cow->epoch, options->epoch);
    atomic_init(&cow->newest_at, 0);
    atomic_init(&cow->allocated, true);
    atomic_init(&cow->alloc_state, seed);
    atomic_init(&cow->view_count, 1);
    relation_ref(options->catalog);
    cow->live =
        (struct view){.cow = cow, .kind = VIEW_LIVE, .id = 0, .catalog = options->catalog, .root = options->root};
    rwlock_init(&cow->live.catalog_lock, LOCK_RANK_CATALOG, 0);
    *out_cow = cow;
    return 0;
}

void cow_close(struct cow *cow)
{
    assert(cow->transactions == NULL && cow->closing == NULL && cow->pins == NULL);
    struct holder *holder = cow->newest;
    while (holder != NULL) {
        struct holder *older = holder->older;
        assert(holder->kind == HOLDER_DURABLE || holder->kind == HOLDER_SNAPSHOT);
        chunk_list_free(holder->dead);
        free(holder);
        holder = older;
    }
    chunk_list_free(cow->pinned);
    chunk_list_free(cow->dropped_held);
    chunk_list_free(cow->dropped_dead);
    chunk_list_free(cow->dropped_gone);
    relation_unref(cow->live.catalog);
    rwlock_destroy(&cow->live.catalog_lock);
    rwlock_destroy(&cow->gate);
    condvar_destroy(&cow->let_go);
    mutex_destroy(&cow->lock);
    free(cow);
}

struct view *cow_live(struct cow *cow)
{
    return &cow->live;
}

epoch_no cow_epoch(const struct cow *cow)
{
    return atomic_load_explicit(&cow->epoch, memory_order_acquire);
}

/* ---- gate ---- */

void cow_gate_enter(struct cow *cow)
{
    rwlock_lock_shared(&cow->gate);
}

void cow_gate_leave(struct cow *cow)
{
    rwlock_unlock_shared(&cow->gate);
}

void cow_gate_close(struct cow *cow)
{
    rwlock_lock_exclusive(&cow->gate);
}

void cow_gate_open(struct cow *cow)
{
    rwlock_unlock_exclusive(&cow->gate);
}

/* ---- holders ---- */

static struct holder *holder_make(enum holder_kind kind, epoch_no at, struct catalog_root root)
{
    struct holder *holder = calloc(1, sizeof *holder);
    if (holder != NULL) {
        holder->kind = kind;
        holder->at = at;
        holder->root = root;
    }
    return holder;
}

/* Puts it before the first holder that is not newer. */
static void holder_link_locked(struct cow *cow, struct holder *holder)
{
    struct holder *older = cow->newest;
    struct holder *newer = NULL;
    while (older != NULL && older->at > holder->at) {
        newer = older;
        older = older->older;
    }
    holder->serial = ++cow->holder_serial;
    holder->older = older;
    holder->newer = newer;
    *(older != NULL ? &older->newer : &cow->oldest) = holder;
    *(newer != NULL ? &newer->older : &cow->newest) = holder;
    cow->stats.holders++;
    atomic_store_explicit(&cow->newest_at, cow->newest->at, memory_order_release);
}

static void holder_unlink_locked(struct cow *cow, struct holder *holder)
{
    *(holder->older != NULL ? &holder->older->newer : &cow->oldest) = holder->newer;
    *(holder->newer != NULL ? &holder->newer->older : &cow->newest) = holder->older;
    cow->stats.holders--;
    atomic_store_explicit(&cow->newest_at, cow->newest != NULL ? cow->newest->at : 0, memory_order_release);
}

int cow_fork_locked(struct cow *cow, enum holder_kind kind, struct holder **out_holder)
{
    rwlock_assert_held_exclusive(&cow->gate);
    const epoch_no epoch = atomic_load(&cow->epoch);
    /* While the last fork's holder is open every change allocates. When it is closed, pages born before it are changed in place again. */
    const bool share = !atomic_load(&cow->allocated) && atomic_load(&cow->newest_at) == epoch - 1;
    struct holder *holder = holder_make(kind, share ? epoch - 1 : epoch, cow->live.root);
    if (holder == NULL) {
        return -ENOMEM;
    }
    if (!share) {
        atomic_store(&cow->allocated, false);
        atomic_store_explicit(&cow->epoch, epoch + 1, memory_order_release);
    }
    mutex_lock(&cow->lock);
    holder_link_locked(cow, holder);
    cow->stats.forks++;
    cow->stats.forks_shared += share;
    mutex_unlock(&cow->lock);
    *out_holder = holder;
    return 0;
}

int cow_fork(struct cow *cow, enum holder_kind kind, struct holder **out_holder)
{
    cow_gate_close(cow);
    const int rc = cow_fork_locked(cow, kind, out_holder);
    cow_gate_open(cow);
    return rc;
}

int cow_adopt_holder(struct cow *cow, enum holder_kind kind, epoch_no at, struct catalog_root root,
                     struct holder **out_holder)
{
    assert(at < cow_epoch(cow));
    struct holder *holder = holder_make(kind, at, root);
    if (holder == NULL) {
        return -ENOMEM;
    }
    cow_gate_close(cow);
    mutex_lock(&cow->lock);
    holder_link_locked(cow, holder);
    if (kind == HOLDER_DURABLE) {
        atomic_store(&cow->durable_at, at);
    }
    mutex_unlock(&cow->lock);
    cow_gate_open(cow);
    *out_holder = holder;
    return 0;
}

/* COW-5: does a holder see a relation created at `created` and dropped at `dropped`, or does a pin? Durable ones only count
 * when asked for. */
static bool relation_is_held_locked(const struct cow *cow, const struct dead_chunk *chunk, bool by_durable)
{
    const epoch_no created = chunk->entries[0].birth;
    const epoch_no dropped = chunk->retired;
    if (cow_pin_holds_relation_locked(cow, chunk->relation)) {
        return true;
    }
    for (const struct holder *holder = cow->newest; holder != NULL; holder = holder->older) {
        if (holder->at >= created && holder->at < dropped && (by_durable || holder->kind != HOLDER_DURABLE)) {
            return true;
        }
    }
    return false;
}

void cow_dropped_review_locked(struct cow *cow)
{
    struct dead_chunk **link = &cow->dropped_held;
    while (*link != NULL) {
        struct dead_chunk *chunk = *link;
        if (relation_is_held_locked(cow, chunk, false)) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        chunk_push(&cow->dropped_dead, chunk);
    }
}

static struct holder *find_durable_locked(struct cow *cow)
{
    struct holder *holder = cow->newest;
    while (holder != NULL && holder->kind != HOLDER_DURABLE) {
        holder = holder->older;
    }
    return holder;
}

/* COW-4: what left the tree before the fork of the checkpoint that is durable now goes with the one that it replaces.
 */
static void unpin_locked(struct cow *cow, struct holder *replaced, epoch_no at)
{
    struct dead_chunk **link = &cow->pinned;
    while (*link != NULL) {
        struct dead_chunk *chunk = *link;
        if (chunk->pinned > at) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        chunk_push(&replaced->dead, chunk);
    }
}

void cow_holder_made_durable(struct cow *cow, struct holder *holder)
{
    mutex_lock(&cow->lock);
    assert(holder->kind == HOLDER_CHECKPOINT);
    unpin_locked(cow, find_durable_locked(cow), holder->at);
    holder->kind = HOLDER_DURABLE;
    cow->stats.wants_checkpoint = false;
    atomic_store(&cow->durable_at, holder->at);
    cow_dropped_review_locked(cow);
    mutex_unlock(&cow->lock);
}

/* The newest holder that forked before `epoch`. */
static struct holder *newest_below_locked(struct cow *cow, epoch_no epoch)
{
    struct holder *holder = cow->newest;
    while (holder != NULL && holder->at >= epoch) {
        holder = holder->older;
    }
    return holder;
}

static void free_unpinned(struct relation *relation, block_no first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        page_discard(relation, first + i);
    }
    fsm_free(relation, first, count);
}

void cow_free_run(struct cow *cow, struct relation *relation, block_no first, uint32_t count)
{
    if (atomic_load(&cow->pin_count) == 0) {
        free_unpinned(relation, first, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!cow_pin_keeps(cow, relation, first + i)) {
            free_unpinned(relation, first + i, 1);
        }
    }
}

/* Reorders a closing chunk: entries that `keeper` sees come first. Returns how many. */
static uint32_t chunk_partition(struct dead_chunk *chunk, const struct holder *keeper)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        if (keeper != NULL && chunk->entries[i].birth <= keeper->at) {
            const struct retire_entry entry = chunk->entries[i];
            chunk->entries[i] = chunk->entries[kept];
            chunk->entries[kept++] = entry;
        }
    }
    return kept;
}

/* COW-4: an operation since the fork of the durable checkpoint referred to pages of the relation. */
static bool log_refers_to(const struct cow *cow, const struct relation *relation)
{
    return relation_referenced(relation) > atomic_load(&cow->durable_at) && !PLANT(REFERRED_BLOCKS_REUSED);
}

/* Blocks that a checkpoint would make free, if nothing else holds them. Those that the log pins count double: what the durable checkpoint sees
 * is never more than the table has, of them there is no end. */
static void note_deferred_locked(struct cow *cow, const struct dead_chunk *chunk, bool pinned)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        blocks += chunk->entries[i].count;
    }
    cow->stats.deferred += blocks;
    if (fsm_defer(chunk->relation, pinned ? 2 * blocks : blocks, atomic_load(&cow->durable_at))) {
        cow->stats.wants_checkpoint = true;
    }
}

/* Who else sees them is asked when the next checkpoint is durable. */
static void pin_chunk_locked(struct cow *cow, struct dead_chunk *chunk)
{
    chunk->pinned = cow_epoch(cow);
    atomic_store(&cow->allocated, true);
    note_deferred_locked(cow, chunk, true);
    chunk_push(&cow->pinned, chunk);
}

/* Takes up to FREE_BATCH_ENTRIES entries that nobody sees off the first chunk of a closed holder, or hands the chunk on:
 * to the log's pins (COW-4; a durable checkpoint is closed by one that forked later), or, when all that is left of it is
 * seen by an older holder, to that one. Returns how many entries were taken. */
static uint32_t closing_step_locked(struct cow *cow, struct holder *closed, struct retire_entry *out_entries)
{
    struct dead_chunk *chunk = closed->dead;
    uint32_t taken = 0;
    if (closed->kind != HOLDER_DURABLE && log_refers_to(cow, chunk->relation)) {
        closed->dead = chunk->next;
        pin_chunk_locked(cow, chunk);
        return 0;
    }
    struct holder *keeper = PLANT(HOLDER_KEEPS_NOTHING) ? NULL : newest_below_locked(cow, chunk->retired);
    const uint32_t kept = chunk_partition(chunk, keeper);
    while (chunk->count > kept && taken < FREE_BATCH_ENTRIES) {
        out_entries[taken++] = chunk->entries[--chunk->count];
    }
    if (taken == 0) {
        closed->dead = chunk->next;
        chunk_push(&keeper->dead, chunk);
    }
    return taken;
}

/* Frees or hands on what a closed holder had on its list, in small portions, each under one shared hold of the gate
 * (HOLD-3). The list stays reachable from the holder, which stays on cow->closing until it is done. */
static void closing_run(struct cow *cow, struct holder *holder)
{
    struct retire_entry entries[FREE_BATCH_ENTRIES];
    bool more = true;
    while (more) {
        cow_gate_enter(cow);
        mutex_lock(&cow->lock);
        struct dead_chunk *chunk = holder->dead;
        uint32_t taken = 0;
        struct dead_chunk *finished = NULL;
        if (chunk != NULL) {
            taken = closing_step_locked(cow, holder, entries);
            if (taken > 0 && chunk->count == 0) {
                holder->dead = chunk->next;
                finished = chunk;
            }
        }
        struct relation *relation = chunk != NULL ? chunk->relation : NULL;
        more = holder->dead != NULL;
        mutex_unlock(&cow->lock);
        for (uint32_t i = 0; i < taken; i++) {
            cow_free_run(cow, relation, entries[i].first, entries[i].count);
        }
        if (finished != NULL) {
            cow_chunk_free(finished);
        }
        cow_gate_leave(cow);
    }
}

/* HOLD-4 */
static void wait_for_keepers(struct cow *cow, struct holder *holder)
{
    mutex_lock(&cow->lock);
    atomic_store(&holder->is_closing, true);
    while (holder->keepers > 0 && !PLANT(HOLDER_CLOSED_WHILE_WALKED)) {
        condvar_wait(&cow->let_go, &cow->lock);
    }
    mutex_unlock(&cow->lock);
}

struct holder *cow_holder_keep(struct cow *cow, uint64_t serial)
{
    mutex_lock(&cow->lock);
    struct holder *holder = cow->newest;
    while (holder != NULL && holder->serial != serial) {
        holder = holder->older;
    }
    if (holder != NULL && atomic_load(&holder->is_closing)) {
        holder = NULL;
    }
    if (holder != NULL) {
        holder->keepers++;
    }
    mutex_unlock(&cow->lock);
    return holder;
}

const _Atomic bool *cow_holder_closing(const struct holder *holder)
{
    return &holder->is_closing;
}

void cow_holder_let_go(struct cow *cow, struct holder *holder)
{
    mutex_lock(&cow->lock);
    assert(holder->keepers > 0);
    if (--holder->keepers == 0) {
        condvar_broadcast(&cow->let_go);
    }
    mutex_unlock(&cow->lock);
}

void cow_holder_close(struct cow *cow, struct holder *holder)
{
    wait_for_keepers(cow, holder);
    cow_gate_close(cow);
    mutex_lock(&cow->lock);
    holder_unlink_locked(cow, holder);
    holder->newer = NULL;
    holder->older = cow->closing;
    cow->closing = holder;
    cow_dropped_review_locked(cow);
    mutex_unlock(&cow->lock);
    cow_gate_open(cow);

    closing_run(cow, holder);

    mutex_lock(&cow->lock);
    struct holder **link = &cow->closing;
    while (*link != holder) {
        link = &(*link)->older;
    }
    *link = holder->older;
    mutex_unlock(&cow->lock);
    free(holder);
}

epoch_no cow_holder_at(const struct holder *holder)
{
    return holder->at;
}

enum holder_kind cow_holder_kind(const struct holder *holder)
{
    return holder->kind;
}

uint64_t cow_holder_serial(const struct holder *holder)
{
    return holder->serial;
}

struct catalog_root cow_holder_root(const struct holder *holder)
{
    return holder->root;
}

void cow_each_holder(struct cow *cow, void (*fn)(void *arg, struct holder *holder), void *arg)
{
    mutex_lock(&cow->lock);
    for (struct holder *holder = cow->oldest; holder != NULL; holder = holder->newer) {
        fn(arg, holder);
    }
    mutex_unlock(&cow->lock);
}

unsigned cow_holder_count(struct cow *cow)
{
    mutex_lock(&cow->lock);
    const unsigned count = (unsigned)cow->stats.holders;
    mutex_unlock(&cow->lock);
    return count;
}

bool cow_is_settled(struct cow *cow)
{
    mutex_lock(&cow->lock);
    bool settled = cow->transactions == NULL && cow->closing == NULL && cow->pinned == NULL && cow->pins == NULL;
    for (const struct holder *holder = cow->newest; holder != NULL; holder = holder->older) {
        settled = settled && (holder->kind == HOLDER_DURABLE || holder->kind == HOLDER_SNAPSHOT);
    }
    mutex_unlock(&cow->lock);
    return settled;
}

/* ---- blocks of a view ---- */

bool view_birth_is_private(const struct view *view, epoch_no birth)
{
    switch (view->kind) {
    case VIEW_LIVE:
        return birth > atomic_load_explicit(&view->cow->newest_at, memory_order_acquire);
    case VIEW_TRANSACTION:
        return birth > view->at;
    case VIEW_READ_ONLY:
    default:
        return false;
    }
}

bool view_content_is_private(const struct view *view, const struct relation *relation, epoch_no birth)
{
    return view_birth_is_private(view, birth) && (view->kind != VIEW_LIVE || birth > relation_shared_at(relation));
}

int view_reserve(struct view *view, struct relation *relation, uint32_t count)
{
    int rc = fsm_reserve(relation, count);
    if (rc == 0 && view->kind == VIEW_TRANSACTION) {
        rc = private_blocks_promise(view, relation, count);
        if (rc != 0) {
            fsm_unreserve(relation, count);
        }
    }
    return rc;
}

void view_unreserve(struct view *view, struct relation *relation, uint32_t count)
{
    if (view->kind == VIEW_TRANSACTION) {
        private_blocks_unpromise(view, relation, count);
    }
    fsm_unreserve(relation, count);
}

static struct page_ptr view_own(struct view *view, struct relation *relation, block_no block)
{
    struct cow *cow = view->cow;
    if (!atomic_load_explicit(&cow->allocated, memory_order_relaxed)) {
        atomic_store(&cow->allocated, true);
    }
    if (view->kind == VIEW_TRANSACTION) {
        private_blocks_set(view, relation, block);
    }
    return (struct page_ptr){.birth = cow_epoch(cow), .block = block, .alloc = next_alloc(cow)};
}

struct page_ptr view_allocate(struct view *view, struct relation *relation, block_no hint)
{
    return view_own(view, relation, fsm_allocate(relation, hint));
}

uint32_t view_allocate_run(struct view *view, struct relation *relation, block_no hint, uint32_t want,
                           struct page_ptr *out_ptrs)
{
    block_no first = 0;
    const uint32_t got = fsm_allocate_run(relation, hint, want, &first);
    for (uint32_t i = 0; i < got; i++) {
        out_ptrs[i] = view_own(view, relation, first + i);
    }
    return got;
}

void view_give_back(struct view *view, struct relation *relation, struct page_ptr ptr)
{
    if (view->kind == VIEW_TRANSACTION) {
        const bool was_private = private_blocks_clear(view, relation, ptr.block, 1);
        assert(was_private);
        (void)was_private;
    }
    fsm_free(relation, ptr.block, 1);
}

/* ---- leaving a view ---- */

void cow_retire_relation(struct cow *cow, struct dead_chunk *chunk)
{
    assert(chunk->count == 1);
    chunk->retired = cow_epoch(cow);
    atomic_store(&cow->allocated, true);
    mutex_lock(&cow->lock);
    const bool held = relation_is_held_locked(cow, chunk, false);
    chunk_push(held ? &cow->dropped_held : &cow->dropped_dead, chunk);
    mutex_unlock(&cow->lock);
}

void cow_revive_relation(struct cow *cow, const struct relation *relation)
{
    rwlock_assert_held_exclusive(&cow->gate);
    mutex_lock(&cow->lock);
    struct dead_chunk **link = &cow->dropped_held;
    while (*link != NULL && (*link)->relation != relation) {
        link = &(*link)->next;
    }
    struct dead_chunk *chunk = *link;
    assert(chunk != NULL);
    *link = chunk->next;
    mutex_unlock(&cow->lock);
    cow_chunk_free(chunk);
}

bool cow_log_refers_inside(const struct view *view, const struct relation *relation)
{
    return relation_referenced(relation) > view->at && !PLANT(REFERRED_BLOCKS_REUSED);
}

/* Frees the entries that nobody else sees and keeps the rest at the front. */
static void retire_private_entries(struct view *view, struct dead_chunk *chunk)
{
    const bool referred = view->kind == VIEW_TRANSACTION && cow_log_refers_inside(view, chunk->relation);
    uint32_t kept = 0;
    uint64_t freed = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        const struct retire_entry entry = chunk->entries[i];
        if (!view_birth_is_private(view, entry.birth) && !PLANT(DEADLIST_FREED_EARLY)) {
            chunk->entries[kept++] = entry;
            continue;
        }
        if (view->kind == VIEW_TRANSACTION) {
            const bool was_private = private_blocks_clear(view, chunk->relation, entry.first, entry.count);
            assert(was_private);
            (void)was_private;
        }
        if (referred) {
            chunk->entries[kept++] = entry;
            continue;
        }
        cow_free_run(view->cow, chunk->relation, entry.first, entry.count);
        freed += entry.count;
    }
    struct cow *cow = view->cow;
    mutex_lock(&cow->lock);
    chunk->count = kept;
    cow->stats.freed_at_once += freed;
    if (view->kind == VIEW_LIVE) {
        note_deferred_locked(cow, chunk, false);
    }
    mutex_unlock(&cow->lock);
}

void cow_pin_chunk(struct cow *cow, struct dead_chunk *chunk)
{
    mutex_lock(&cow->lock);
    pin_chunk_locked(cow, chunk);
    mutex_unlock(&cow->lock);
}

void cow_retire_chunk(struct view *view, struct dead_chunk *chunk)
{
    struct cow *cow = view->cow;
    chunk->retired = cow_epoch(cow);
    if (chunk->entries[0].count == 0 && (view->kind == VIEW_LIVE || chunk->entries[0].birth > view->at)) {
        if (view->kind == VIEW_TRANSACTION) {
            private_blocks_forget_created(view, chunk->relation);
            mutex_lock(&cow->lock);
            chunk_push(&view->priv->dropped, chunk);
            mutex_unlock(&cow->lock);
        } else {
            cow_retire_relation(cow, chunk);
        }
        return;
    }
    if (view->kind == VIEW_LIVE && log_refers_to(cow, chunk->relation)) {
        cow_pin_chunk(cow, chunk);
        return;
    }
    if (chunk->entries[0].count != 0) {
        retire_private_entries(view, chunk);
    }
    if (chunk->count == 0) {
        cow_chunk_free(chunk);
        return;
    }
    mutex_lock(&cow->lock);
    chunk_push(view->kind == VIEW_LIVE ? &cow->newest->dead : &view->priv->replaced, chunk);
    mutex_unlock(&cow->lock);
}

void view_retire(struct view *view, struct retire_list *list)
{
    assert(view->kind != VIEW_READ_ONLY);
    struct dead_chunk *chunk = cow_retire_list_take(list);
    if (chunk != NULL) {
        cow_retire_chunk(view, chunk);
    }
}

uint32_t cow_dead_count(struct cow *cow)
{
    uint32_t count = 0;
    mutex_lock(&cow->lock);
    for (const struct dead_chunk *chunk = cow->dropped_dead; chunk != NULL; chunk = chunk->next) {
        count++;
    }
    mutex_unlock(&cow->lock);
    return count;
}

uint32_t cow_take_dead(struct cow *cow, struct relation ***out_relations)
{
    uint32_t count = 0;
    struct relation **relations = NULL;
    mutex_lock(&cow->lock);
    for (const struct dead_chunk *chunk = cow->dropped_dead; chunk != NULL; chunk = chunk->next) {
        count++;
    }
    if (count > 0) {
        relations = malloc(count * sizeof(struct relation *));
    }
    count = 0;
    while (relations != NULL && cow->dropped_dead != NULL) {
        struct dead_chunk *chunk = cow->dropped_dead;
        cow->dropped_dead = chunk->next;
        relation_ref(chunk->relation);
        relations[count++] = chunk->relation;
        chunk_push(&cow->dropped_gone, chunk);
    }
    mutex_unlock(&cow->lock);
    *out_relations = relations;
    return count;
}

static bool chunks_have(const struct dead_chunk *chunk, const struct relation *relation)
{
    while (chunk != NULL && chunk->relation != relation) {
        chunk = chunk->next;
    }
    return chunk != NULL;
}

/* COW-4: blocks of a closed transaction whose record the log may still need. */
static bool has_pinned_locked(const struct cow *cow, const struct relation *relation)
{
    return chunks_have(cow->pinned, relation) && !PLANT(PINNED_FILE_UNLINKED);
}

uint32_t cow_take_removable(struct cow *cow, struct relation ***out_relations)
{
    uint32_t count = 0;
    struct relation **relations = NULL;
    mutex_lock(&cow->lock);
    for (const struct dead_chunk *chunk = cow->dropped_gone; chunk != NULL; chunk = chunk->next) {
        count++;
    }
    if (count > 0) {
        relations = malloc(count * sizeof(struct relation *));
    }
    count = 0;
    struct dead_chunk **link = &cow->dropped_gone;
    while (relations != NULL && *link != NULL) {
        struct dead_chunk *chunk = *link;
        if ((chunk->retired > atomic_load(&cow->durable_at) && !PLANT(FILE_UNLINKED_EARLY)) ||
            relation_is_held_locked(cow, chunk, !PLANT(FILE_UNLINKED_EARLY)) ||
            has_pinned_locked(cow, chunk->relation)) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        relations[count++] = chunk->relation;
        free(chunk); /* its reference goes to the caller */
    }
    mutex_unlock(&cow->lock);
    *out_relations = relations;
    return count;
}

bool cow_awaits_checkpoint(struct cow *cow)
{
    mutex_lock(&cow->lock);
    const bool awaits = cow->dropped_dead != NULL || cow->dropped_gone != NULL || cow->pinned != NULL;
    mutex_unlock(&cow->lock);
    return awaits;
}

bool cow_relation_is_dropped(struct cow *cow, const struct relation *relation)
{
    mutex_lock(&cow->lock);
    const bool dropped = chunks_have(cow->dropped_held, relation) || chunks_have(cow->dropped_dead, relation) ||
                         chunks_have(cow->dropped_gone, relation);
    mutex_unlock(&cow->lock);
    return dropped;
}

/* ---- for FSM-3 and checks ---- */

/* What is told about runs: of which relations, and to whom. */
struct pinned_visit {
    cow_target_fn *target_of;
    void *arg;
    cow_run_fn *fn;
};

static int chunk_each_run(const struct pinned_visit *visit, const struct dead_chunk *chunk, epoch_no born_behind)
{
    void *target = visit->target_of(visit->arg, chunk->relation);
    int rc = 0;
    for (uint32_t i = 0; target != NULL && i < chunk->count && rc == 0; i++) {
        if (chunk->entries[i].birth > born_behind) {
            rc = visit->fn(target, chunk->entries[i].first, chunk->entries[i].count);
        }
    }
    return rc;
}

static int chunks_each_run(const struct pinned_visit *visit, const struct dead_chunk *chunk, epoch_no born_behind)
{
    int rc = 0;
    for (; chunk != NULL && rc == 0; chunk = chunk->next) {
        rc = chunk_each_run(visit, chunk, born_behind);
    }
    return rc;
}

static int holders_each_run(const struct pinned_visit *visit, const struct holder *holder)
{
    int rc = 0;
    for (; holder != NULL && rc == 0; holder = holder->older) {
        rc = chunks_each_run(visit, holder->dead, 0);
    }
    return rc;
}

/* Of what a transaction replaced, what is its own: the rest is the base's, which a holder sees. */
static int private_each_run(const struct pinned_visit *visit, const struct view_private *priv)
{
    int rc = 0;
    for (const struct private_blocks *blocks = priv->relations; blocks != NULL && rc == 0; blocks = blocks->hh.next) {
        void *target = visit->target_of(visit->arg, blocks->relation);
        rc = target != NULL ? private_blocks_each_run(blocks, visit->fn, target) : 0;
    }
    return rc != 0 ? rc : chunks_each_run(visit, priv->replaced, priv->at);
}

int cow_each_pinned(struct cow *cow, cow_target_fn *target_of, void *arg, cow_run_fn *fn)
{
    const struct pinned_visit visit = {.target_of = target_of, .arg = arg, .fn = fn};
    mutex_lock(&cow->lock);
    int rc = holders_each_run(&visit, cow->newest);
    if (rc == 0) {
        rc = holders_each_run(&visit, cow->closing);
    }
    if (rc == 0) {
        rc = chunks_each_run(&visit, cow->pinned, 0);
    }
    for (const struct view_private *priv = cow->transactions; priv != NULL && rc == 0; priv = priv->next) {
        rc = private_each_run(&visit, priv);
    }
    for (const struct block_pin *pin = cow->pins; pin != NULL && rc == 0; pin = pin->next) {
        void *target = target_of(arg, pin->relation);
        rc = target != NULL ? cow_pin_each_run(pin, fn, target) : 0;
    }
    mutex_unlock(&cow->lock);
    return rc;
}

struct one_relation {
    const struct relation *relation;
    void *arg;
};

static void *target_of_one(void *arg, const struct relation *relation)
{
    const struct one_relation *one = arg;
    return relation == one->relation ? one->arg : NULL;
}

int cow_each_pinned_run(struct cow *cow, const struct relation *relation, cow_run_fn *fn, void *arg)
{
    struct one_relation one = {.relation = relation, .arg = arg};
    assert(arg != NULL); /* that would be none of its runs */
    return cow_each_pinned(cow, target_of_one, &one, fn);
}

int cow_each_private_run(struct cow *cow, const struct relation *relation, cow_run_fn *fn, void *arg)
{
    struct one_relation one = {.relation = relation, .arg = arg};
    const struct pinned_visit visit = {.target_of = target_of_one, .arg = &one, .fn = fn};
    int rc = 0;
    mutex_lock(&cow->lock);
    for (const struct view_private *priv = cow->transactions; priv != NULL && rc == 0; priv = priv->next) {
        rc = private_each_run(&visit, priv);
    }
    mutex_unlock(&cow->lock);
    return rc;
}

static void count_entries(const struct dead_chunk *chunk, struct cow_stats *stats)
{
    for (; chunk != NULL; chunk = chunk->next) {
        stats->deadlist_entries += chunk->count;
        for (uint32_t i = 0; i < chunk->count; i++) {
            stats->deadlist_blocks += chunk->entries[i].count;
        }
    }
}

void cow_get_stats(struct cow *cow, struct cow_stats *out_stats)
{
    mutex_lock(&cow->lock);
    *out_stats = cow->stats;
    out_stats->epoch = cow_epoch(cow);
    for (const struct holder *holder = cow->newest; holder != NULL; holder = holder->older) {
        count_entries(holder->dead, out_stats);
    }
    mutex_unlock(&cow->lock);
}

static int chunk_list_check(struct cow *cow, const struct holder *holder)
{
    for (const struct dead_chunk *chunk = holder->dead; chunk != NULL; chunk = chunk->next) {
        for (uint32_t i = 0; i < chunk->count; i++) {
            const struct retire_entry *entry = &chunk->entries[i];
            if (entry->birth > holder->at || entry->count == 0) {
                diag_log(cow->diag, DIAG_ERROR, "deadlist of holder at %llu: entry of relation %llu born %llu",
                         (unsigned long long)holder->at, (unsigned long long)relation_number(chunk->relation),
                         (unsigned long long)entry->birth);
                return -EINVAL;
            }
            for (uint32_t j = 0; j < entry->count; j++) {
                if (!fsm_is_used(chunk->relation, entry->first + j)) {
                    diag_log(cow->diag, DIAG_ERROR, "deadlist of holder at %llu: block %u of relation %llu is free",
                             (unsigned long long)holder->at, entry->first + j,
                             (unsigned long long)relation_number(chunk->relation));
                    return -EINVAL;
                }
            }
        }
    }
    return 0;
}

int cow_check(struct cow *cow)
{
    int rc = 0;
    mutex_lock(&cow->lock);
    if (atomic_load(&cow->newest_at) != (cow->newest != NULL ? cow->newest->at : 0)) {
        rc = -EINVAL;
    }
    for (struct holder *holder = cow->newest; holder != NULL && rc == 0; holder = holder->older) {
        if (holder->at >= cow_epoch(cow) || (holder->older != NULL && holder->older->at > holder->at)) {
            rc = -EINVAL;
        } else {
            rc = chunk_list_check(cow, holder);
        }
    }
    mutex_unlock(&cow->lock);
    return rc;
}
