/*
 * bufcache/writeback.c - from dirty to written: runs of neighbours, the write-back of a checkpoint, the writer.
 *
 * Owns: the transitions DIRTY -> WRITING -> WRITTEN, the checksums of pages, fail-stop.
 * Invariants:
 *   WB-1  A frame is claimed (WRITING) under its partition's lock, where it is also seen that its relation lives. A
 *         drop marks the relation dead first: a frame is either claimed before the drop comes to it, and then waited
 *         for, or never (DROP-2).
 *   WB-2  From WRITING on a page is never changed but for its checksum, whether the write succeeds or not (CACHE-1).
 *   WB-3  After the first failed write nothing is written any more; the dirty pages stay dirty.
 *   WB-4  Nobody waits while frames claimed by it are unwritten (INT-4).
 * Locking: one partition lock at a time for claims and completion, none over I/O. Orders to the writer: pool.lock.
 */
#include "bufcache/bufcache_int.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Frames that one round of the writer evicts at most, and cold dirty pages that it looks for. */
#define ROUND_PAGES_MAX 1024u

/* ---- fail-stop ---- */

int bufcache_failed(const struct bufcache *cache)
{
    return atomic_load_explicit(&cache->failed, memory_order_acquire);
}

int bufcache_fail(struct bufcache *cache, int error)
{
    int none = 0;
    const int kept = error == -ENOSPC || error == -EDQUOT ? -ENOSPC : -EIO;
    if (atomic_compare_exchange_strong(&cache->failed, &none, kept))
        diag_log(cache->options.diag, DIAG_ERROR, "page cache: nothing is written from now on: %s", strerror(-error));
    return bufcache_failed(cache);
}

/* ---- runs ---- */

/* Frames of neighbouring blocks of one relation, all claimed. */
struct write_run {
    block_no first;
    uint32_t count;
    uint32_t frames[WRITE_RUN_MAX];
};

enum claim { CLAIM_NOTHING, CLAIM_TAKEN, CLAIM_OTHER };
enum claim_kind { CLAIM_ANY, CLAIM_COLD };

/* WB-1. */
static enum claim claim_locked(struct bufcache *cache, uint32_t index, enum claim_kind kind)
{
    struct frame_tag *tag = &cache->tags[index];
    const uint32_t unwanted =
        STATE_LATCHED | STATE_READING | (kind == CLAIM_COLD ? STATE_PINNED | STATE_USAGE_MASK : 0);
    uint32_t state = state_load(tag);
    do {
        if (!(state & STATE_DIRTY) || atomic_load(&cache->frames[index].relation->dead))
            return CLAIM_NOTHING;
        if (state & STATE_WRITING)
            return CLAIM_OTHER;
        if (state & unwanted)
            return CLAIM_NOTHING;
    } while (!state_change(tag, &state, state | STATE_WRITING));
    return CLAIM_TAKEN;
}

static enum claim claim_block(struct bufcache *cache, rel_no rel, block_no block, enum claim_kind kind,
                              uint32_t *out_index)
{
    const uint32_t bucket = bucket_of(cache, rel, block);
    struct partition *partition = partition_of(cache, bucket);
    mutex_lock(&partition->lock);
    *out_index = hash_find_locked(cache, bucket, rel, block);
    const enum claim claim = *out_index == FRAME_NONE ? CLAIM_NOTHING : claim_locked(cache, *out_index, kind);
    mutex_unlock(&partition->lock);
    return claim;
}

static void complete_one(struct bufcache *cache, uint32_t index, bool written)
{
    struct frame_tag *tag = &cache->tags[index];
    const uint32_t bucket = bucket_of(cache, atomic_load_explicit(&tag->rel, memory_order_relaxed),
                                      atomic_load_explicit(&tag->block, memory_order_relaxed));
    struct partition *partition = partition_of(cache, bucket);
    if (written)
        atomic_fetch_sub_explicit(&cache->pool.dirty, 1, memory_order_relaxed);
    mutex_lock(&partition->lock);
    uint32_t state = state_load(tag);
    while (!state_change(tag, &state, (state & ~(STATE_WRITING | (written ? STATE_DIRTY : 0u))) | STATE_WRITTEN))
        ;
    partition_wake_locked(partition);
    mutex_unlock(&partition->lock);
}

static void seal_page(uint8_t *page)
{
    struct page_header *header = (struct page_header *)page;
    header->checksum = le64_of(page_checksum(page));
}

static int write_bytes(struct bufcache *cache, const struct write_run *run)
{
    struct relation *relation = cache->frames[run->frames[0]].relation;
    struct iovec iov[WRITE_RUN_MAX];
    struct io_file *file;
    int rc = bufcache_failed(cache);
    if (rc == 0)
        rc = relation_file_get(relation, &file);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < run->count; i++) {
        uint8_t *page = frame_bytes(cache, run->frames[i]);
        seal_page(page);
        iov[i] = (struct iovec){.iov_base = page, .iov_len = BLOCK_SIZE};
    }
    rc = io_writev_full(file, iov, (int)run->count, (uint64_t)run->first * BLOCK_SIZE);
    relation_file_put(relation, true);
    if (rc < 0)
        diag_log(cache->options.diag, DIAG_ERROR, "%s: block %u: write of %u blocks: %s", relation->path, run->first,
                 run->count, strerror(-rc));
    return rc;
}

/* Writes the run, which is empty afterwards. */
static int flush_run(struct bufcache *cache, struct write_run *run, struct writeback_result *result)
{
    if (run->count == 0)
        return 0;
    int rc = write_bytes(cache, run);
    if (rc < 0) {
        rc = bufcache_fail(cache, rc);
    } else {
        count_add(&cache->counters.pages_written, run->count);
        count_add(&cache->counters.write_calls, 1);
        result->pages += run->count;
        result->calls++;
    }
    for (uint32_t i = 0; i < run->count; i++)
        complete_one(cache, run->frames[i], rc == 0);
    run->count = 0;
    return rc;
}

/* Claims blocks next to the run, on one side, as long as they are cold and dirty; out_frames in order of distance. */
static uint32_t claim_side(struct bufcache *cache, rel_no rel, block_no block, bool upwards, uint32_t max,
                           uint32_t *out_frames)
{
    uint32_t count = 0;
    while (count < max && (upwards ? block + 1 < BLOCK_NONE : block > 0)) {
        block = upwards ? block + 1 : block - 1;
        if (claim_block(cache, rel, block, CLAIM_COLD, &out_frames[count]) != CLAIM_TAKEN)
            break;
        count++;
    }
    return count;
}

int writeback_cold(struct bufcache *cache, uint32_t index)
{
    struct frame_tag *tag = &cache->tags[index];
    const rel_no rel = atomic_load_explicit(&tag->rel, memory_order_relaxed);
    const block_no block = atomic_load_explicit(&tag->block, memory_order_relaxed);
    struct write_run run;
    struct writeback_result result = {0};
    uint32_t below[WRITE_RUN_MAX / 2];
    uint32_t found;
    if (bufcache_failed(cache) < 0)
        return bufcache_failed(cache);
    if (rel == REL_NONE || claim_block(cache, rel, block, CLAIM_COLD, &found) != CLAIM_TAKEN)
        return 0;
    const uint32_t below_count = claim_side(cache, rel, block, false, WRITE_RUN_MAX / 2, below);
    run.first = block - below_count;
    run.count = 0;
    for (uint32_t i = below_count; i > 0; i--)
        run.frames[run.count++] = below[i - 1];
    run.frames[run.count++] = found;
    run.count += claim_side(cache, rel, block, true, WRITE_RUN_MAX - run.count, &run.frames[run.count]);
    return flush_run(cache, &run, &result);
}

/* ---- many pages, in file order ---- */

static int compare_entries(const void *left_void, const void *right_void)
{
    const struct soon_entry *left = left_void, *right = right_void;
    if (left->rel != right->rel)
        return left->rel < right->rel ? -1 : 1;
    return left->block < right->block ? -1 : left->block > right->block;
}

/* Writes what of the entries (sorted) is dirty and not latched. Those that another thread is writing are moved to the
 * front of the array, *out_others of them. */
static int write_entries(struct bufcache *cache, struct soon_entry *entries, size_t count, size_t *out_others,
                         struct writeback_result *result)
{
    struct write_run run = {.count = 0};
    rel_no rel = REL_NONE;
    size_t others = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct soon_entry entry = entries[i];
        const bool joins = entry.rel == rel && entry.block == run.first + run.count && run.count < WRITE_RUN_MAX;
        uint32_t index;
        if (!joins)
            rc = flush_run(cache, &run, result);
        if (rc < 0)
            break;
        const enum claim claim = claim_block(cache, entry.rel, entry.block, CLAIM_ANY, &index);
        if (claim == CLAIM_OTHER)
            entries[others++] = entry;
        if (claim != CLAIM_TAKEN)
            continue;
        if (run.count == 0) {
            run.first = entry.block;
            rel = entry.rel;
        }
        run.frames[run.count++] = index;
    }
    const int last_rc = flush_run(cache, &run, result);
    *out_others = others;
    return rc < 0 ? rc : last_rc;
}

/* All dirty pages with birth <= birth. *out_entries is malloc'd. */
static int collect_dirty(struct bufcache *cache, epoch_no birth, struct soon_entry **out_entries, size_t *out_count)
{
    struct soon_entry *entries = NULL;
    size_t count = 0, capacity = 0;
    for (uint32_t i = 0; i < cache->frame_count; i++) {
        struct frame_tag *tag = &cache->tags[i];
        if (!(state_load(tag) & STATE_DIRTY) ||
            atomic_load_explicit(&cache->frames[i].birth, memory_order_relaxed) > birth)
            continue;
        if (count == capacity) {
            capacity = capacity == 0 ? 256 : capacity * 2;
            struct soon_entry *more = realloc(entries, capacity * sizeof *entries);
            if (more == NULL) {
                free(entries);
                return -ENOMEM;
            }
            entries = more;
        }
        entries[count++] = (struct soon_entry){.rel = atomic_load_explicit(&tag->rel, memory_order_relaxed),
                                               .block = atomic_load_explicit(&tag->block, memory_order_relaxed),
                                               .index = i};
    }
    *out_entries = entries;
    *out_count = count;
    return 0;
}

static void wait_written(struct bufcache *cache, const struct soon_entry *entry)
{
    const uint32_t bucket = bucket_of(cache, entry->rel, entry->block);
    struct partition *partition = partition_of(cache, bucket);
    mutex_lock(&partition->lock);
    (void)hash_find_idle_locked(cache, bucket, entry->rel, entry->block);
    mutex_unlock(&partition->lock);
}

int bufcache_write_back(struct bufcache *cache, epoch_no birth, struct writeback_result *out_result)
{
    struct writeback_result result = {0};
    struct soon_entry *entries = NULL;
    size_t count = 0, others = 0;
    int rc = bufcache_failed(cache);
    if (rc == 0)
        rc = collect_dirty(cache, birth, &entries, &count);
    if (rc < 0)
        return rc;
    if (count > 1)
        qsort(entries, count, sizeof *entries, compare_entries);
    rc = write_entries(cache, entries, count, &others, &result);
    for (size_t i = 0; rc == 0 && i < others; i++)
        wait_written(cache, &entries[i]);
    free(entries);
    if (rc == 0)
        rc = bufcache_failed(cache); /* one of the others' */
    if (rc == 0 && out_result != NULL)
        *out_result = result;
    return rc;
}

int page_write_many(struct relation *relation, const struct page_ptr *ptrs, unsigned count)
{
    struct bufcache *cache = relation->cache;
    struct writeback_result result = {0};
    size_t others = 0;
    struct soon_entry *entries = calloc(count, sizeof *entries);
    if (entries == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < count; i++)
        entries[i] = (struct soon_entry){.rel = relation->rel, .block = ptrs[i].block};
    qsort(entries, count, sizeof *entries, compare_entries);
    int rc = write_entries(cache, entries, count, &others, &result);
    for (size_t i = 0; rc == 0 && i < others; i++)
        wait_written(cache, &entries[i]);
    free(entries);
    return rc != 0 ? rc : bufcache_failed(cache);
}

/* ---- the writer ---- */

void writeback_wake_writer_locked(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    if (pool->writer_work)
        return;
    pool->writer_work = true;
    condvar_signal(&pool->writer_wake);
}

void writeback_note_dirty(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    const uint32_t dirty = atomic_fetch_add_explicit(&pool->dirty, 1, memory_order_relaxed) + 1;
    if (dirty <= atomic_load_explicit(&pool->dirty_wake_at, memory_order_relaxed))
        return;
    /* Once only: the round that follows says when to wake it again. */
    atomic_store_explicit(&pool->dirty_wake_at, UINT32_MAX, memory_order_relaxed);
    mutex_lock(&pool->lock);
    writeback_wake_writer_locked(cache);
    mutex_unlock(&pool->lock);
}

/* What was written in bulk is not wanted again soon: its frames are the next to go. */
static void drop_usage(struct frame_tag *tag)
{
    uint32_t state = state_load(tag);
    while (state & STATE_USAGE_MASK && !state_change(tag, &state, state & ~STATE_USAGE_MASK))
        ;
}

void bufcache_write_soon(struct frame *const *frames, unsigned count)
{
    if (count == 0)
        return;
    struct bufcache *cache = frames[0]->cache;
    struct pool *pool = &cache->pool;
    mutex_lock(&pool->lock);
    for (unsigned i = 0; i < count; i++) {
        struct frame_tag *tag = frame_tag(frames[i]);
        drop_usage(tag);
        if (pool->soon_count == SOON_CAPACITY)
            continue; /* a hint */
        pool->soon[pool->soon_count++] =
            (struct soon_entry){.rel = atomic_load_explicit(&tag->rel, memory_order_relaxed),
                                .block = atomic_load_explicit(&tag->block, memory_order_relaxed),
                                .index = frame_index(frames[i])};
    }
    writeback_wake_writer_locked(cache);
    mutex_unlock(&pool->lock);
}

static void write_soon_entries(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    struct soon_entry entries[SOON_CAPACITY];
    struct writeback_result result = {0};
    size_t others;
    mutex_lock(&pool->lock);
    const uint32_t count = pool->soon_count;
    memcpy(entries, pool->soon, count * sizeof *entries);
    pool->soon_count = 0;
    mutex_unlock(&pool->lock);
    if (count == 0)
        return;
    qsort(entries, count, sizeof *entries, compare_entries);
    (void)write_entries(cache, entries, count, &others, &result); /* a failure is remembered */
}

static void stock_free_list(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    mutex_lock(&pool->lock);
    const uint32_t missing = pool->free_count < pool->low_water ? pool->low_water - pool->free_count : 0;
    mutex_unlock(&pool->lock);
    (void)pool_stock_free_list(cache, missing < ROUND_PAGES_MAX ? missing : ROUND_PAGES_MAX);
}

/* Too many dirty pages: writes those that were not used since the hand last came by. */
static void write_cold_pages(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    const uint32_t allowed = cache->frame_count / 4;
    uint32_t written = 0;
    for (uint32_t step = 0; step < cache->frame_count / 8; step++) {
        if (atomic_load_explicit(&pool->dirty, memory_order_relaxed) <= allowed || written == ROUND_PAGES_MAX)
            break;
        const uint32_t index = pool->write_hand++ % cache->frame_count;
        struct frame_tag *tag = &cache->tags[index];
        uint32_t state = state_load(tag);
        if (!(state & STATE_DIRTY) || state & STATE_BUSY)
            continue;
        if (state & STATE_USAGE_MASK) {
            (void)state_change(tag, &state, state - STATE_USAGE_ONE);
            continue;
        }
        if (writeback_cold(cache, index) < 0)
            break;
        written++;
    }
    const uint32_t dirty = atomic_load_explicit(&pool->dirty, memory_order_relaxed);
    const uint32_t again = dirty + cache->frame_count / 64;
    atomic_store_explicit(&pool->dirty_wake_at, dirty < allowed ? allowed : again, memory_order_relaxed);
}

void bufcache_step(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    if (atomic_flag_test_and_set_explicit(&pool->round_running, memory_order_acquire))
        return;
    write_soon_entries(cache);
    stock_free_list(cache);
    write_cold_pages(cache);
    atomic_flag_clear_explicit(&pool->round_running, memory_order_release);
}

static void *writer_main(void *arg)
{
    struct bufcache *cache = arg;
    struct pool *pool = &cache->pool;
    mutex_lock(&pool->lock);
    while (!pool->writer_stop) {
        if (!pool->writer_work) {
            condvar_wait(&pool->writer_wake, &pool->lock);
            continue;
        }
        pool->writer_work = false;
        mutex_unlock(&pool->lock);
        bufcache_step(cache);
        mutex_lock(&pool->lock);
    }
    mutex_unlock(&pool->lock);
    return NULL;
}

int writeback_start(struct bufcache *cache)
{
    if (!cache->options.background)
        return 0;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the business of other threads */
    const int error = pthread_create(&cache->writer, NULL, writer_main, cache);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    cache->writer_running = error == 0;
    return -error;
}

void writeback_stop(struct bufcache *cache)
{
    struct pool *pool = &cache->pool;
    if (!cache->writer_running)
        return;
    mutex_lock(&pool->lock);
    pool->writer_stop = true;
    condvar_signal(&pool->writer_wake);
    mutex_unlock(&pool->lock);
    (void)pthread_join(cache->writer, NULL);
    cache->writer_running = false;
}
