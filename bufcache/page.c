/*
 * bufcache/page.c - pages: find or read, make, latch, pin, discard.
 *
 * Owns: the transitions of the state word that users of pages cause (bufcache_int.h has the word, bufcache.h the
 * picture).
 * Invariants: CACHE-1 to CACHE-4, INT-1, INT-4: page_read_many starts all its reads and ends them before it waits for a
 * page that another thread is reading.
 * Locking: finding takes the lock of one partition; a second pin, unpin and latch are one compare-and-swap.
 */
#include "bufcache/bufcache_int.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* From so many pages in one call on it is a scan, whose pages are the first to leave again. */
#define SCAN_PAGES_MIN 8u

void *frame_page(struct frame *frame)
{
    return frame_bytes(frame->cache, frame_index(frame));
}

static struct page_header *frame_header(const struct frame *frame)
{
    return (struct page_header *)frame_bytes(frame->cache, frame_index(frame));
}

struct page_ptr frame_ptr(const struct frame *frame)
{
    const struct page_header *header = frame_header(frame);
    return (struct page_ptr){
        .birth = le64_get(header->birth), .block = le32_get(header->block), .alloc = le32_get(header->alloc)};
}

struct relation *frame_relation(const struct frame *frame)
{
    return frame->relation;
}

/* ---- pins ---- */

/* First or further pin; counts as a use. The partition's lock is held. */
static uint32_t pin_found_locked(struct frame_tag *tag)
{
    uint32_t state = state_load(tag);
    uint32_t wanted;
    do {
        assert((state & STATE_PIN_MASK) != STATE_PIN_MASK);
        wanted = state + STATE_PIN_ONE;
        if ((state & STATE_USAGE_MASK) < USAGE_MAX * STATE_USAGE_ONE)
            wanted += STATE_USAGE_ONE;
    } while (!state_change(tag, &state, wanted));
    return wanted;
}

/* The last pin of a DEAD frame went. */
static void free_dead(struct frame *frame)
{
    frame_clear(frame->cache, frame_index(frame));
    pool_give_frame(frame->cache, frame_index(frame));
}

void page_pin_again(struct frame *frame)
{
    struct frame_tag *tag = frame_tag(frame);
    uint32_t state = state_load(tag);
    do
        assert((state & STATE_PIN_MASK) != 0 && (state & STATE_PIN_MASK) != STATE_PIN_MASK);
    while (!state_change(tag, &state, state + STATE_PIN_ONE));
}

void page_unpin(struct frame *frame)
{
    struct frame_tag *tag = frame_tag(frame);
    uint32_t state = state_load(tag);
    do {
        assert((state & STATE_PIN_MASK) != 0);
        assert(!(state & STATE_LATCHED) || (state & STATE_PIN_MASK) > STATE_PIN_ONE);
    } while (!state_change(tag, &state, state - STATE_PIN_ONE));
    if (state & STATE_DEAD && (state & STATE_PINNED) == STATE_PIN_ONE)
        free_dead(frame);
}

void page_reply_pin(struct frame *frame)
{
    struct frame_tag *tag = frame_tag(frame);
    uint32_t state = state_load(tag);
    do {
        assert((state & STATE_PIN_MASK) != 0 && !(state & STATE_LATCHED));
        assert((state & STATE_REPLY_MASK) != STATE_REPLY_MASK);
    } while (!state_change(tag, &state, state + STATE_REPLY_ONE));
    if (!(state & STATE_REPLY_MASK))
        atomic_fetch_add(&frame->cache->pool.reply_frames, 1);
}

void page_reply_unpin(struct frame *frame)
{
    struct bufcache *cache = frame->cache;
    struct frame_tag *tag = frame_tag(frame);
    uint32_t state = state_load(tag);
    do
        assert((state & STATE_REPLY_MASK) != 0);
    while (!state_change(tag, &state, state - STATE_REPLY_ONE));
    if (state & STATE_DEAD && (state & STATE_PINNED) == STATE_REPLY_ONE)
        free_dead(frame);
    if ((state & STATE_REPLY_MASK) == STATE_REPLY_ONE)
        pool_reply_frame_gone(cache);
}

/* ---- latch ---- */

bool page_try_latch(struct frame *frame)
{
    struct frame_tag *tag = frame_tag(frame);
    uint32_t state = state_load(tag);
    do {
        assert((state & STATE_PIN_MASK) != 0);
        if (state & (STATE_LATCHED | STATE_WRITING | STATE_WRITTEN | STATE_DEAD | STATE_REPLY_MASK))
            return false;
    } while (!state_change(tag, &state, state | STATE_LATCHED));
    return true;
}

bool page_is_latched(const struct frame *frame)
{
    return state_load(frame_tag(frame)) & STATE_LATCHED;
}

void page_unlatch(struct frame *frame, bool changed)
{
    struct frame_tag *tag = frame_tag(frame);
    uint32_t state = state_load(tag);
    uint32_t wanted;
    do {
        assert(state & STATE_LATCHED && (state & STATE_PIN_MASK) != 0 && !(state & STATE_WRITTEN));
        wanted = state & ~STATE_LATCHED;
        if (changed && !(state & STATE_DEAD))
            wanted |= STATE_DIRTY;
    } while (!state_change(tag, &state, wanted));
    if (wanted & ~state & STATE_DIRTY)
        writeback_note_dirty(frame->cache);
}

/* ---- make, forget, discard ---- */

/* Leaves of content are read and written in passing; what is above them and the catalog is wanted again. */
static uint32_t usage_of_new(uint8_t type)
{
    return type == PAGE_TYPE_CONTENT_LEAF ? STATE_USAGE_ONE : 2 * STATE_USAGE_ONE;
}

static void fill_new_page(struct page_header *header, const struct relation *relation, struct page_ptr ptr,
                          uint8_t type, uint8_t level)
{
    memset(header, 0, BLOCK_SIZE);
    header->rel = le64_of(relation->rel);
    header->birth = le64_of(ptr.birth);
    header->block = le32_of(ptr.block);
    header->alloc = le32_of(ptr.alloc);
    header->type = type;
    header->level = level;
}

static uint32_t budget_pop(struct bufcache *cache, struct frame_budget *budget)
{
    assert(budget->cache == cache && budget->news > 0);
    const uint32_t index = budget->free_head;
    budget->free_head = cache->frames[index].free_next;
    budget->news--;
    return index;
}

struct frame *page_new(struct relation *relation, struct frame_budget *budget, struct page_ptr ptr, uint8_t type,
                       uint8_t level)
{
    struct bufcache *cache = relation->cache;
    assert(!page_ptr_is_none(ptr) && !atomic_load_explicit(&relation->dead, memory_order_relaxed));
    const uint32_t index = budget_pop(cache, budget);
    fill_new_page((struct page_header *)frame_bytes(cache, index), relation, ptr, type, level);
    const uint32_t bucket = bucket_of(cache, relation->rel, ptr.block);
    struct partition *partition = partition_of(cache, bucket);
    mutex_lock(&partition->lock);
    assert(hash_find_locked(cache, bucket, relation->rel, ptr.block) == FRAME_NONE);
    hash_insert_locked(cache, bucket, index, relation, ptr,
                       STATE_PIN_ONE | STATE_LATCHED | STATE_DIRTY | usage_of_new(type));
    mutex_unlock(&partition->lock);
    writeback_note_dirty(cache);
    return &cache->frames[index];
}

void page_forget(struct frame *frame, struct frame_budget *budget)
{
    struct bufcache *cache = frame->cache;
    const uint32_t index = frame_index(frame);
    const struct page_ptr ptr = frame_ptr(frame);
    const uint32_t bucket = bucket_of(cache, frame->relation->rel, ptr.block);
    struct partition *partition = partition_of(cache, bucket);
    assert(budget->cache == cache);
    mutex_lock(&partition->lock);
    uint32_t state = state_load(&cache->tags[index]);
    hash_remove_locked(cache, bucket, index);
    do
        assert(state & STATE_LATCHED && (state & STATE_PINNED) == STATE_PIN_ONE && !(state & STATE_DEAD));
    while (!state_change(&cache->tags[index], &state, 0));
    mutex_unlock(&partition->lock);
    if (state & STATE_DIRTY)
        atomic_fetch_sub_explicit(&cache->pool.dirty, 1, memory_order_relaxed);
    frame_clear(cache, index);
    frame->free_next = budget->free_head;
    budget->free_head = index;
    budget->news++;
}

void page_discard(struct relation *relation, block_no block)
{
    struct bufcache *cache = relation->cache;
    bool dirty;
    uint32_t index;
    if (!hash_discard(cache, relation->rel, block, &dirty, &index))
        return;
    count_add(&cache->counters.discards, 1);
    if (index != FRAME_NONE)
        pool_give_frame(cache, index);
}

/* ---- read ---- */

/* Neighbouring blocks that this thread is reading: their frames are READING and pinned once by it. */
struct read_run {
    struct relation *relation;
    const struct page_ptr *ptrs;
    uint8_t type, level;
    unsigned count;
    uint32_t frames[WRITE_RUN_MAX];
};

/* Finds the page and pins it; *out_index FRAME_NONE: it is not there. */
static uint32_t find_and_pin(struct relation *relation, block_no block, uint32_t *out_index)
{
    struct bufcache *cache = relation->cache;
    const uint32_t bucket = bucket_of(cache, relation->rel, block);
    struct partition *partition = partition_of(cache, bucket);
    uint32_t state = 0;
    mutex_lock(&partition->lock);
    *out_index = hash_find_locked(cache, bucket, relation->rel, block);
    if (*out_index != FRAME_NONE) {
        state = pin_found_locked(&cache->tags[*out_index]);
        partition->hits++;
        count_add(&relation->hits, 1);
    }
    mutex_unlock(&partition->lock);
    return state;
}

/* Puts a READING frame for the page, unless another thread was faster: then that one is pinned. True: ours to read. */
static bool insert_reading(struct relation *relation, struct page_ptr ptr, uint32_t usage, uint32_t fresh,
                           uint32_t *out_index)
{
    struct bufcache *cache = relation->cache;
    const uint32_t bucket = bucket_of(cache, relation->rel, ptr.block);
    struct partition *partition = partition_of(cache, bucket);
    mutex_lock(&partition->lock);
    *out_index = hash_find_locked(cache, bucket, relation->rel, ptr.block);
    const bool ours = *out_index == FRAME_NONE;
    if (ours) {
        partition->misses++;
        count_add(&relation->misses, 1);
        hash_insert_locked(cache, bucket, fresh, relation, ptr, STATE_READING | STATE_PIN_ONE | usage);
        *out_index = fresh;
    } else {
        partition->hits++;
        count_add(&relation->hits, 1);
        (void)pin_found_locked(&cache->tags[*out_index]);
    }
    mutex_unlock(&partition->lock);
    return ours;
}

/* The read ended: the page is one of the cache's, or leaves it and is DEAD until those who wait let go. */
static void finish_reading(struct bufcache *cache, rel_no rel, block_no block, uint32_t index, bool good)
{
    const uint32_t bucket = bucket_of(cache, rel, block);
    struct partition *partition = partition_of(cache, bucket);
    struct frame_tag *tag = &cache->tags[index];
    mutex_lock(&partition->lock);
    if (!good)
        hash_remove_locked(cache, bucket, index);
    uint32_t state = state_load(tag);
    while (!state_change(tag, &state, (state & ~STATE_READING) | (good ? STATE_WRITTEN : STATE_DEAD)))
        ;
    partition_wake_locked(partition);
    mutex_unlock(&partition->lock);
}

/* Fills the frames of the run from the file. *out_size: bytes that were there. */
static int read_bytes(struct read_run *run, size_t *out_size)
{
    struct bufcache *cache = run->relation->cache;
    struct iovec iov[WRITE_RUN_MAX];
    struct io_file *file;
    int rc = relation_file_get(run->relation, &file);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < run->count; i++)
        iov[i] = (struct iovec){.iov_base = frame_bytes(cache, run->frames[i]), .iov_len = BLOCK_SIZE};
    rc = io_readv_full(file, iov, (int)run->count, (uint64_t)run->ptrs[0].block * BLOCK_SIZE, out_size);
    relation_file_put(run->relation, false);
    if (rc < 0)
        diag_log(cache->options.diag, DIAG_ERROR, "%s: block %u: read of %u blocks: %s", run->relation->path,
                 run->ptrs[0].block, run->count, strerror(-rc));
    count_add(&cache->counters.read_calls, 1);
    return rc;
}

/* Reads and validates the run; every frame of it has left READING afterwards. The first error wins. */
static int read_run_finish(struct read_run *run)
{
    struct bufcache *cache = run->relation->cache;
    size_t size = 0;
    if (run->count == 0)
        return 0;
    int first_error = read_bytes(run, &size);
    const bool got = first_error == 0;
    for (unsigned i = 0; i < run->count; i++) {
        const size_t offset = (size_t)i * BLOCK_SIZE;
        int rc = first_error;
        if (got)
            rc = page_check_read(cache, run->relation, frame_bytes(cache, run->frames[i]),
                                 size > offset ? size - offset : 0, run->ptrs[i], run->type, run->level);
        if (rc == 0)
            count_add(&cache->counters.pages_read, 1);
        else if (first_error == 0)
            first_error = rc;
        finish_reading(cache, run->relation->rel, run->ptrs[i].block, run->frames[i], rc == 0);
    }
    run->count = 0;
    return first_error;
}

static void wait_while_reading(struct frame *frame, block_no block)
{
    struct bufcache *cache = frame->cache;
    struct frame_tag *tag = frame_tag(frame);
    struct partition *partition = partition_of(cache, bucket_of(cache, frame->relation->rel, block));
    mutex_lock(&partition->lock);
    while (state_load(tag) & STATE_READING)
        partition_wait_locked(partition);
    mutex_unlock(&partition->lock);
}

/* The frame was found and pinned. 1: its reader failed, look again; else 0, or -EIO and the pin is gone. */
static int accept_found(struct relation *relation, struct page_ptr ptr, uint8_t type, uint8_t level,
                        struct frame *frame)
{
    struct frame_tag *tag = frame_tag(frame);
    if (state_load(tag) & STATE_READING)
        wait_while_reading(frame, ptr.block);
    int rc = 1;
    if (!(state_load(tag) & STATE_DEAD))
        rc = page_check_expected(relation->cache, relation, frame_header(frame), ptr, type, level);
    if (rc != 0)
        page_unpin(frame);
    return rc;
}

/* The page was not there: reads it, or finds that it has come meanwhile. 1: look again. */
static int read_missing(struct relation *relation, struct page_ptr ptr, uint8_t type, uint8_t level,
                        uint32_t *out_index)
{
    struct bufcache *cache = relation->cache;
    uint32_t fresh;
    int rc = pool_take_frame(cache, &fresh);
    if (rc < 0)
        return rc;
    if (!insert_reading(relation, ptr, STATE_USAGE_ONE, fresh, out_index)) {
        pool_give_frame(cache, fresh);
        return accept_found(relation, ptr, type, level, &cache->frames[*out_index]);
    }
    struct read_run run = {.relation = relation, .ptrs = &ptr, .type = type, .level = level, .count = 1};
    run.frames[0] = fresh;
    rc = read_run_finish(&run);
    if (rc < 0)
        page_unpin(&cache->frames[fresh]);
    return rc;
}

int page_read(struct relation *relation, struct page_ptr ptr, uint8_t type, uint8_t level, struct frame **out_frame)
{
    struct bufcache *cache = relation->cache;
    assert(!page_ptr_is_none(ptr));
    uint32_t index;
    int rc;
    do {
        (void)find_and_pin(relation, ptr.block, &index);
        if (index != FRAME_NONE)
            rc = accept_found(relation, ptr, type, level, &cache->frames[index]);
        else
            rc = read_missing(relation, ptr, type, level, &index);
    } while (rc > 0);
    if (rc == 0)
        *out_frame = &cache->frames[index];
    return rc;
}

/* ---- read many ---- */

/* Pins the i-th page, or makes it part of the run. out_frames[i] is set either way unless an error is returned. */
static int start_one(struct read_run *run, const struct page_ptr *ptrs, unsigned i, uint32_t usage,
                     struct frame **out_frames)
{
    struct bufcache *cache = run->relation->cache;
    uint32_t index;
    int rc = 0;
    (void)find_and_pin(run->relation, ptrs[i].block, &index);
    const bool joins =
        run->count > 0 && run->count < WRITE_RUN_MAX && ptrs[i].block == run->ptrs[run->count - 1].block + 1;
    if (index != FRAME_NONE || !joins)
        rc = read_run_finish(run);
    if (index != FRAME_NONE) {
        out_frames[i] = &cache->frames[index];
        return rc;
    }
    uint32_t fresh;
    if (rc == 0)
        rc = pool_take_frame(cache, &fresh);
    if (rc < 0)
        return rc;
    if (insert_reading(run->relation, ptrs[i], usage, fresh, &index)) {
        if (run->count == 0)
            run->ptrs = &ptrs[i];
        run->frames[run->count++] = fresh;
        if (usage == 0)
            pool_note_cold(cache, fresh);
    } else {
        pool_give_frame(cache, fresh);
        rc = read_run_finish(run);
    }
    out_frames[i] = &cache->frames[index];
    return rc;
}

static void unpin_all(struct frame **frames, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (frames[i] != NULL)
            page_unpin(frames[i]);
}

/* All reads of our own ended: now what others were reading may be waited for (INT-4), and all is looked at. */
static int accept_all(struct relation *relation, const struct page_ptr *ptrs, unsigned count, uint8_t type,
                      uint8_t level, struct frame **frames)
{
    for (unsigned i = 0; i < count; i++) {
        struct frame *frame = frames[i];
        frames[i] = NULL; /* accept_found unpins what it does not accept */
        int rc = accept_found(relation, ptrs[i], type, level, frame);
        if (rc > 0)
            rc = page_read(relation, ptrs[i], type, level, &frame);
        if (rc < 0)
            return rc;
        frames[i] = frame;
    }
    return 0;
}

int page_read_many(struct relation *relation, const struct page_ptr *ptrs, unsigned count, uint8_t type, uint8_t level,
                   struct frame **out_frames)
{
    struct read_run run = {.relation = relation, .type = type, .level = level};
    const bool is_scan = type == PAGE_TYPE_CONTENT_LEAF && count >= SCAN_PAGES_MIN;
    unsigned started = 0;
    int rc = 0;
    for (; rc == 0 && started < count; started++) {
        assert(!page_ptr_is_none(ptrs[started]));
        out_frames[started] = NULL;
        rc = start_one(&run, ptrs, started, is_scan ? 0 : STATE_USAGE_ONE, out_frames);
    }
    const int last_rc = read_run_finish(&run);
    if (rc == 0)
        rc = last_rc;
    if (rc == 0)
        rc = accept_all(relation, ptrs, count, type, level, out_frames);
    if (rc < 0)
        unpin_all(out_frames, started);
    return rc;
}
