/*
 * bufcache/hash.c - the buckets that find a frame by relation and block.
 *
 * Owns: bucket chains, tags, resident counts, waiting for I/O on a frame.
 * Invariants: INT-1 to INT-5 (bufcache_int.h), CACHE-5: hash_insert_locked and hash_remove_locked are the only places
 * that change tag.rel and resident.
 * Locking: the partition's lock for all that ends in _locked; hash_discard takes it itself.
 */
#include "bufcache/bufcache_int.h"

#include <assert.h>

uint32_t hash_find_locked(const struct bufcache *cache, uint32_t bucket, rel_no rel, block_no block)
{
    uint32_t index = cache->buckets[bucket];
    while (index != FRAME_NONE && !tag_is(&cache->tags[index], rel, block))
        index = cache->frames[index].hash_next;
    return index;
}

void hash_insert_locked(struct bufcache *cache, uint32_t bucket, uint32_t index, struct relation *relation,
                        struct page_ptr ptr, uint32_t state)
{
    struct frame *frame = &cache->frames[index];
    struct frame_tag *tag = &cache->tags[index];
    relation_ref(relation);
    frame->relation = relation;
    atomic_store_explicit(&frame->birth, ptr.birth, memory_order_relaxed);
    frame->hash_next = cache->buckets[bucket];
    cache->buckets[bucket] = index;
    atomic_store_explicit(&tag->block, ptr.block, memory_order_relaxed);
    atomic_store_explicit(&tag->rel, relation->rel, memory_order_relaxed);
    atomic_store_explicit(&tag->state, state, memory_order_release);
    atomic_fetch_add_explicit(&relation->resident, 1, memory_order_relaxed);
}

void hash_remove_locked(struct bufcache *cache, uint32_t bucket, uint32_t index)
{
    struct frame *frame = &cache->frames[index];
    uint32_t *link = &cache->buckets[bucket];
    while (*link != index) {
        assert(*link != FRAME_NONE);
        link = &cache->frames[*link].hash_next;
    }
    *link = frame->hash_next;
    /* In this order: a sweep that finds the tag empty finds the page not counted either. */
    atomic_fetch_sub_explicit(&frame->relation->resident, 1, memory_order_relaxed);
    atomic_store_explicit(&cache->tags[index].rel, REL_NONE, memory_order_release);
}

void partition_wait_locked(struct partition *partition)
{
    partition->waiters++;
    condvar_wait(&partition->io_done, &partition->lock);
    partition->waiters--;
}

void partition_wake_locked(struct partition *partition)
{
    if (partition->waiters > 0)
        condvar_broadcast(&partition->io_done);
}

uint32_t hash_find_idle_locked(struct bufcache *cache, uint32_t bucket, rel_no rel, block_no block)
{
    for (;;) {
        const uint32_t index = hash_find_locked(cache, bucket, rel, block);
        if (index == FRAME_NONE || !(state_load(&cache->tags[index]) & (STATE_READING | STATE_WRITING)))
            return index;
        partition_wait_locked(partition_of(cache, bucket));
    }
}

void frame_clear(struct bufcache *cache, uint32_t index)
{
    struct frame *frame = &cache->frames[index];
    struct relation *relation = frame->relation;
    assert(!(state_load(&cache->tags[index]) & STATE_BUSY));
    frame->relation = NULL;
    atomic_store_explicit(&cache->tags[index].state, 0, memory_order_relaxed);
    relation_unref(relation);
}

/* The frame left its bucket. Returns what its state was; *out_pinned: it is DEAD now and not ours any more. */
static uint32_t make_dead(struct frame_tag *tag, bool *out_pinned)
{
    uint32_t state = state_load(tag);
    for (;;) {
        const bool pinned = state & STATE_PINNED;
        const uint32_t wanted = pinned ? (state & ~STATE_DIRTY) | STATE_DEAD : 0;
        if (state_change(tag, &state, wanted)) {
            *out_pinned = pinned;
            return state;
        }
    }
}

bool hash_discard(struct bufcache *cache, rel_no rel, block_no block, bool *out_dirty, uint32_t *out_free)
{
    const uint32_t bucket = bucket_of(cache, rel, block);
    struct partition *partition = partition_of(cache, bucket);
    mutex_lock(&partition->lock);
    const uint32_t index = hash_find_idle_locked(cache, bucket, rel, block);
    if (index == FRAME_NONE) {
        mutex_unlock(&partition->lock);
        return false;
    }
    hash_remove_locked(cache, bucket, index);
    bool pinned;
    const uint32_t state = make_dead(&cache->tags[index], &pinned);
    mutex_unlock(&partition->lock);

    *out_dirty = state & STATE_DIRTY;
    if (*out_dirty)
        atomic_fetch_sub_explicit(&cache->pool.dirty, 1, memory_order_relaxed);
    if (!pinned)
        frame_clear(cache, index);
    *out_free = pinned ? FRAME_NONE : index;
    return true;
}
