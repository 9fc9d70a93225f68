/*
 * bufcache/pool.c - frames: the free list, the quota, the clock.
 *
 * Owns: which frames are free, how many may be pinned, which page has to leave next.
 * Invariants:
 *   POOL-1  quota_used + reply_frames <= quota_limit = frame_count - QUOTA_MARGIN whenever quota is handed out. Every
 *           pinned or privately owned frame is covered by a budget or counted in reply_frames (one that turns into a
 *           reply's is counted twice until its budget is released, never less than once). So at least QUOTA_MARGIN
 *           frames are free, clean, dirty or being written: pool_take_frame finds one, waiting for writes at most.
 *   POOL-2  The quota is first come, first served: while someone waits, nobody passes.
 * Locking: pool.lock (LOCK_RANK_FREE_LIST) for list, quota and the cold ring; hand and counters are atomic. Eviction
 * takes one partition lock at a time, and none of the pool's with it.
 */
#include "bufcache/bufcache_int.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

/* Looks around the clock for a frame before giving up: only a caller without a budget can get there. */
#define TAKE_ATTEMPTS_MAX 100u

void pool_init(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    mutex_init(&pool->lock, LOCK_RANK_FREE_LIST);
    condvar_init(&pool->writer_wake);
    for (uint32_t i = 0; i < cache->frame_count; i++) {
        cache->frames[i].cache = cache;
        cache->frames[i].free_next = i + 1 < cache->frame_count ? i + 1 : FRAME_NONE;
        atomic_init(&cache->tags[i].state, STATE_FREE);
    }
    pool->free_count = cache->frame_count;
    pool->quota_limit = cache->frame_count - QUOTA_MARGIN;
    const uint32_t share = cache->frame_count / 32;
    pool->low_water = share < 64 ? 64 : (share > 2048 ? 2048 : share);
    atomic_init(&pool->dirty_wake_at, cache->frame_count / 4);
    atomic_flag_clear(&pool->round_running);
}

void pool_destroy(struct bufcache *cache)
{
    assert(cache->pool.wait_head == NULL);
    condvar_destroy(&cache->pool.writer_wake);
    mutex_destroy(&cache->pool.lock);
}

/* ---- free list ---- */

static void push_free_locked(struct bufcache *cache, uint32_t index)
{
    struct pool *pool = &cache->pool;
    atomic_store_explicit(&cache->tags[index].state, STATE_FREE, memory_order_relaxed);
    cache->frames[index].free_next = pool->free_head;
    pool->free_head = index;
    pool->free_count++;
}

static uint32_t pop_free_locked(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    const uint32_t index = pool->free_head;
    if (index == FRAME_NONE)
        return FRAME_NONE;
    pool->free_head = cache->frames[index].free_next;
    pool->free_count--;
    atomic_store_explicit(&cache->tags[index].state, 0, memory_order_relaxed);
    if (pool->free_count < pool->low_water / 2)
        writeback_wake_writer_locked(cache);
    return index;
}

void pool_give_frame(struct bufcache *cache, uint32_t index)
{
    mutex_lock(&cache->pool.lock);
    push_free_locked(cache, index);
    mutex_unlock(&cache->pool.lock);
}

void pool_give_chain(struct bufcache *cache, uint32_t head, uint32_t count)
{
    mutex_lock(&cache->pool.lock);
    for (; count > 0; count--) {
        const uint32_t next = cache->frames[head].free_next;
        push_free_locked(cache, head);
        head = next;
    }
    mutex_unlock(&cache->pool.lock);
}

/* ---- eviction ---- */

static bool is_evictable(const struct frame *frame, uint32_t state)
{
    if (state & STATE_BUSY)
        return false;
    /* Nothing of a dead relation is written: its dirty pages just go. */
    return !(state & STATE_DIRTY) || atomic_load(&frame->relation->dead);
}

/* Takes an idle, clean page out of the cache; its frame is the caller's then. */
static bool try_evict(struct bufcache *cache, uint32_t index)
{
    struct frame_tag *tag = &cache->tags[index];
    const rel_no rel = atomic_load_explicit(&tag->rel, memory_order_relaxed);
    const block_no block = atomic_load_explicit(&tag->block, memory_order_relaxed);
    if (rel == REL_NONE)
        return false;
    const uint32_t bucket = bucket_of(cache, rel, block);
    struct partition *partition = partition_of(cache, bucket);
    bool evicted = false;
    mutex_lock(&partition->lock);
    uint32_t state = state_load(tag);
    if (tag_is(tag, rel, block))
        while (is_evictable(&cache->frames[index], state) && !(evicted = state_change(tag, &state, 0)))
            ;
    if (evicted)
        hash_remove_locked(cache, bucket, index);
    mutex_unlock(&partition->lock);
    if (!evicted)
        return false;
    if (state & STATE_DIRTY)
        atomic_fetch_sub_explicit(&cache->pool.dirty, 1, memory_order_relaxed);
    frame_clear(cache, index);
    count_add(&cache->counters.evictions, 1);
    return true;
}

/* Oldest of the scans' frames once enough younger ones follow it: a scan lives on its own frames. */
static uint32_t take_cold(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    uint32_t index = FRAME_NONE;
    mutex_lock(&pool->lock);
    if (pool->cold_count > COLD_CAPACITY / 2) {
        index = pool->cold[pool->cold_head];
        pool->cold_head = (pool->cold_head + 1) % COLD_CAPACITY;
        pool->cold_count--;
    }
    mutex_unlock(&pool->lock);
    return index;
}

void pool_note_cold(struct bufcache *cache, uint32_t index)
{
    struct pool *pool = &cache->pool;
    mutex_lock(&pool->lock);
    if (pool->cold_count == COLD_CAPACITY) {
        pool->cold_head = (pool->cold_head + 1) % COLD_CAPACITY;
        pool->cold_count--;
    }
    pool->cold[(pool->cold_head + pool->cold_count) % COLD_CAPACITY] = index;
    pool->cold_count++;
    mutex_unlock(&pool->lock);
}

static bool evict_cold(struct bufcache *cache, uint32_t *out_index)
{
    uint32_t index;
    while ((index = take_cold(cache)) != FRAME_NONE) {
        const uint32_t state = state_load(&cache->tags[index]);
        if (!(state & (STATE_USAGE_MASK | STATE_BUSY | STATE_DIRTY | STATE_FREE)) && try_evict(cache, index)) {
            *out_index = index;
            return true;
        }
    }
    return false;
}

static uint32_t next_of_clock(struct bufcache *cache)
{
    return atomic_fetch_add_explicit(&cache->pool.hand, 1, memory_order_relaxed) % cache->frame_count;
}

/* One page lets go of one usage. True: it had none left. */
static bool cool_down(struct frame_tag *tag, uint32_t state)
{
    if (!(state & STATE_USAGE_MASK))
        return true;
    (void)state_change(tag, &state, state - STATE_USAGE_ONE); /* who changed it meanwhile was using it */
    return false;
}

/* Runs the clock far enough to come by every page with its usage gone. *out_writing: a frame seen being written. */
static bool evict_by_clock(struct bufcache *cache, uint32_t *out_index, uint32_t *out_writing)
{
    const uint64_t steps_max = (uint64_t)cache->frame_count * (USAGE_MAX + 2);
    for (uint64_t step = 0; step < steps_max; step++) {
        const uint32_t index = next_of_clock(cache);
        struct frame_tag *tag = &cache->tags[index];
        uint32_t state = state_load(tag);
        if (state & STATE_WRITING)
            *out_writing = index;
        if (state & (STATE_BUSY | STATE_FREE | STATE_DEAD) || !cool_down(tag, state))
            continue;
        if (state & STATE_DIRTY)
            (void)writeback_cold(cache, index); /* an error stops all writing; clean pages may be left */
        if (try_evict(cache, index)) {
            *out_index = index;
            return true;
        }
    }
    return false;
}

static void wait_for_write(struct bufcache *cache, uint32_t index)
{
    struct frame_tag *tag = &cache->tags[index];
    const rel_no rel = atomic_load_explicit(&tag->rel, memory_order_relaxed);
    const block_no block = atomic_load_explicit(&tag->block, memory_order_relaxed);
    const uint32_t bucket = bucket_of(cache, rel, block);
    struct partition *partition = partition_of(cache, bucket);
    mutex_lock(&partition->lock);
    while (tag_is(tag, rel, block) && state_load(tag) & STATE_WRITING)
        partition_wait_locked(partition);
    mutex_unlock(&partition->lock);
}

/* One attempt. 1: got one, 0: try again, negative errno: there will be none. */
static int try_take_frame(struct bufcache *cache, uint32_t *out_index)
{
    mutex_lock(&cache->pool.lock);
    *out_index = pop_free_locked(cache);
    mutex_unlock(&cache->pool.lock);
    uint32_t writing = FRAME_NONE;
    if (*out_index != FRAME_NONE || evict_cold(cache, out_index) || evict_by_clock(cache, out_index, &writing))
        return 1;
    if (writing != FRAME_NONE)
        wait_for_write(cache, writing);
    else if (bufcache_failed(cache) < 0)
        return -EIO; /* only dirty pages are left, and they cannot be written */
    else
        (void)sched_yield(); /* a frame is on its way between two threads (POOL-1) */
    return 0;
}

int pool_take_frame(struct bufcache *cache, uint32_t *out_index)
{
    for (unsigned attempt = 0; attempt < TAKE_ATTEMPTS_MAX; attempt++) {
        const int rc = try_take_frame(cache, out_index);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    diag_log(cache->options.diag, DIAG_ERROR, "page cache: all %u frames are pinned", cache->frame_count);
    return -ENOMEM;
}

int pool_stock_free_list(struct bufcache *cache, uint32_t count)
{
    uint32_t writing = FRAME_NONE;
    for (; count > 0; count--) {
        uint32_t index;
        if (!evict_cold(cache, &index) && !evict_by_clock(cache, &index, &writing))
            return bufcache_failed(cache);
        pool_give_frame(cache, index);
    }
    return 0;
}

/* ---- quota ---- */

uint32_t frame_budget_max(const struct bufcache *cache)
{
    return cache->frame_count / 4;
}

static bool quota_try_locked(struct pool *pool, uint32_t need)
{
    const uint64_t replies = atomic_load(&pool->reply_frames);
    if (pool->quota_used + replies + need > pool->quota_limit)
        return false;
    pool->quota_used += need;
    return true;
}

/* POOL-2: from the front, as far as it goes. */
static void quota_grant_locked(struct pool *pool)
{
    while (pool->wait_head != NULL && quota_try_locked(pool, pool->wait_head->need)) {
        struct quota_waiter *waiter = pool->wait_head;
        pool->wait_head = waiter->next;
        if (pool->wait_head == NULL)
            pool->wait_tail = NULL;
        atomic_fetch_sub(&pool->waiting, 1);
        waiter->granted = true;
        condvar_signal(&waiter->wake);
    }
}

static void quota_wait_locked(struct pool *pool, uint32_t need)
{
    struct quota_waiter waiter = {.need = need};
    condvar_init(&waiter.wake);
    if (pool->wait_tail != NULL)
        pool->wait_tail->next = &waiter;
    else
        pool->wait_head = &waiter;
    pool->wait_tail = &waiter;
    atomic_fetch_add(&pool->waiting, 1);
    /* A reply that ended before `waiting` was raised woke nobody: look again. */
    quota_grant_locked(pool);
    while (!waiter.granted)
        condvar_wait(&waiter.wake, &pool->lock);
    condvar_destroy(&waiter.wake);
}

static void quota_give(struct pool *pool, uint32_t count)
{
    mutex_lock(&pool->lock);
    assert(pool->quota_used >= count);
    pool->quota_used -= count;
    quota_grant_locked(pool);
    mutex_unlock(&pool->lock);
}

void pool_reply_frame_gone(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    atomic_fetch_sub(&pool->reply_frames, 1);
    if (atomic_load(&pool->waiting) == 0)
        return;
    mutex_lock(&pool->lock);
    quota_grant_locked(pool);
    mutex_unlock(&pool->lock);
}

static void chain_push(struct bufcache *cache, struct frame_budget *budget, uint32_t index)
{
    cache->frames[index].free_next = budget->free_head;
    budget->free_head = index;
    budget->news++;
}

/* Fills the chain, first in one go from the free list, then by eviction. */
static int fill_chain(struct bufcache *cache, struct frame_budget *budget, uint32_t news)
{
    mutex_lock(&cache->pool.lock);
    while (budget->news < news) {
        const uint32_t index = pop_free_locked(cache);
        if (index == FRAME_NONE)
            break;
        chain_push(cache, budget, index);
    }
    mutex_unlock(&cache->pool.lock);
    while (budget->news < news) {
        uint32_t index;
        const int rc = pool_take_frame(cache, &index);
        if (rc < 0)
            return rc;
        chain_push(cache, budget, index);
    }
    return 0;
}

int frame_budget_take(struct bufcache *cache, uint32_t pins, uint32_t news, struct frame_budget *out_budget)
{
    struct pool *pool = &cache->pool;
    if (pins > frame_budget_max(cache) || news > frame_budget_max(cache) - pins)
        return -E2BIG;
    lock_assert_none_held();
    const uint32_t quota = pins + news;
    mutex_lock(&pool->lock);
    if (pool->wait_head != NULL || !quota_try_locked(pool, quota))
        quota_wait_locked(pool, quota);
    mutex_unlock(&pool->lock);

    struct frame_budget budget = {.cache = cache, .quota = quota, .pins = pins, .free_head = FRAME_NONE};
    const int rc = fill_chain(cache, &budget, news);
    if (rc < 0) {
        frame_budget_release(&budget);
        return rc;
    }
    *out_budget = budget;
    return 0;
}

int frame_budget_refill(struct frame_budget *budget, uint32_t news)
{
    return news + budget->pins > budget->quota ? -E2BIG : fill_chain(budget->cache, budget, news);
}

void frame_budget_release(struct frame_budget *budget)
{
    struct bufcache *cache = budget->cache;
    if (cache == NULL)
        return;
    if (budget->news > 0)
        pool_give_chain(cache, budget->free_head, budget->news);
    quota_give(&cache->pool, budget->quota);
    *budget = (struct frame_budget){0};
}
