/*
 * bufcache/drop.c - drops all pages of many relations at once.
 *
 * Invariants DROP-1 to DROP-4 (bufcache.h). The victims are marked dead before the first tag is looked at: from then on
 * write-back claims none of their frames (WB-1), so that one pass finds all there is. A tag is first looked at without
 * a lock; only a victim's is looked at again under the lock of its partition, one frame at a time.
 * Locking: registry.lock to mark; then one partition lock at a time, then pool.lock for the frames that became free.
 */
#include "bufcache/bufcache_int.h"

#include "base/plant.h"

#include <assert.h>
#include <string.h>

/* Free frames are given back in chains of so many. */
#define CHAIN_MAX 64u
/* Pages of victims that a sweep collects before it discards them. */
#define FOUND_MAX 32u

struct drop {
    struct bufcache *cache;
    struct relation *const *victims;
    uint32_t count;
    uint32_t resident; /* pages of victims still in the cache */
    uint32_t chain_head, chain_count;
    struct drop_result result;
};

static void chain_flush(struct drop *drop)
{
    if (drop->chain_count > 0)
        pool_give_chain(drop->cache, drop->chain_head, drop->chain_count);
    drop->chain_head = FRAME_NONE;
    drop->chain_count = 0;
}

static void discard_one(struct drop *drop, rel_no rel, block_no block)
{
    bool dirty;
    uint32_t index;
    if (!hash_discard(drop->cache, rel, block, &dirty, &index))
        return;
    drop->result.pages_discarded++;
    drop->result.dirty_discarded += dirty;
    drop->resident--;
    if (index == FRAME_NONE)
        return;
    drop->cache->frames[index].free_next = drop->chain_head;
    drop->chain_head = index;
    if (++drop->chain_count == CHAIN_MAX)
        chain_flush(drop);
}

static uint32_t resident_total(const struct drop *drop)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < drop->count; i++)
        total += relation_resident(drop->victims[i]);
    return total;
}

/* Blocks of the victim's file as far as they matter: none when nothing is resident or there is no file. */
static uint64_t blocks_to_look_up(struct relation *victim)
{
    const uint64_t known = atomic_load_explicit(&victim->blocks, memory_order_acquire);
    bool exists;
    block_no blocks;
    if (relation_resident(victim) == 0)
        return 0;
    if (known != BLOCKS_UNKNOWN)
        return known;
    if (relation_file_exists(victim, &exists) < 0)
        return BLOCKS_UNKNOWN;
    if (!exists)
        return 0;
    return relation_file_blocks(victim, &blocks) < 0 ? BLOCKS_UNKNOWN : blocks;
}

/* For bench/transactions only: whole sweeps, however few blocks there are. */
#ifdef TBLFS_SWEEP_EACH
#define LOOKUP_SHARE 0u
#else
#define LOOKUP_SHARE 1u
#endif

static bool lookup_is_cheaper(const struct drop *drop)
{
    const uint64_t limit = drop->cache->frame_count / 32 * LOOKUP_SHARE;
    uint64_t total = 0;
    for (uint32_t i = 0; i < drop->count && total < limit; i++) {
        const uint64_t blocks = blocks_to_look_up(drop->victims[i]);
        total = blocks >= limit ? limit : total + blocks;
    }
    return total < limit;
}

static void drop_by_lookup(struct drop *drop)
{
    for (uint32_t i = 0; i < drop->count; i++) {
        struct relation *victim = drop->victims[i];
        const uint64_t blocks = blocks_to_look_up(victim);
        for (uint64_t block = 0; block < blocks && relation_resident(victim) > 0; block++) {
            drop->result.tags_read++;
            discard_one(drop, victim->rel, (block_no)block);
        }
    }
    drop->result.max_tags_per_hold = 1;
}

/* No memory for the set: ask each frame's relation, under the lock. */
static bool is_dead_page(struct bufcache *cache, uint32_t index, rel_no rel, block_no block)
{
    struct partition *partition = partition_of(cache, bucket_of(cache, rel, block));
    mutex_lock(&partition->lock);
    const bool dead = tag_is(&cache->tags[index], rel, block) && atomic_load(&cache->frames[index].relation->dead);
    mutex_unlock(&partition->lock);
    return dead;
}

/* Victims' pages found by the sweep, while what their discard touches is being fetched. */
struct found {
    uint32_t count;
    struct {
        rel_no rel;
        block_no block;
    } pages[FOUND_MAX];
};

static void discard_found(struct drop *drop, struct found *found)
{
    for (uint32_t i = 0; i < found->count; i++)
        discard_one(drop, found->pages[i].rel, found->pages[i].block);
    found->count = 0;
}

static void note_found(struct drop *drop, struct found *found, uint32_t index, rel_no rel, block_no block)
{
    struct bufcache *cache = drop->cache;
    __builtin_prefetch(&cache->buckets[bucket_of(cache, rel, block)], 1);
    __builtin_prefetch(&cache->frames[index], 1);
    found->pages[found->count].rel = rel;
    found->pages[found->count].block = block;
    if (++found->count == FOUND_MAX)
        discard_found(drop, found);
}

static void drop_by_sweep(struct drop *drop)
{
    struct bufcache *cache = drop->cache;
    struct victim_set set;
    struct found found = {.count = 0};
    const bool have_set = victim_set_init(&set, drop->victims, drop->count) == 0;
    uint32_t i = 0;
    for (; i < cache->frame_count && (drop->resident > 0 || !have_set); i++) {
        struct frame_tag *tag = &cache->tags[i];
        const rel_no rel = atomic_load_explicit(&tag->rel, memory_order_acquire);
        if (rel == REL_NONE || (have_set && !victim_set_has(&set, rel)))
            continue;
        const block_no block = atomic_load_explicit(&tag->block, memory_order_relaxed);
        if (have_set || is_dead_page(cache, i, rel, block))
            note_found(drop, &found, i, rel, block);
    }
    discard_found(drop, &found);
    drop->result.tags_read += i;
    drop->result.max_tags_per_hold = 1;
    if (have_set)
        victim_set_free(&set);
}

static void run_drop(struct drop *drop)
{
    struct counters *counters = &drop->cache->counters;
    drop->resident = resident_total(drop);
    if (drop->resident == 0) {
        drop->result.mode = DROP_MODE_NONE;
        count_add(&counters->empty_drops, 1);
        return;
    }
    if (lookup_is_cheaper(drop)) {
        drop->result.mode = DROP_MODE_LOOKUP;
        drop_by_lookup(drop);
        count_add(&counters->lookup_drops, 1);
    }
    /* Also after a look-up, should a page lie behind the end of its file. */
    if (drop->resident > 0) {
        drop->result.mode = DROP_MODE_SWEEP;
        drop_by_sweep(drop);
        count_add(&counters->sweeps, 1);
    }
    chain_flush(drop);
}

void bufcache_drop_relations(struct bufcache *cache, struct relation *const *victims, uint32_t count,
                             struct drop_result *out_result)
{
    count -= PLANT(SWEEP_MISSES_ONE) && count > 0 ? 1 : 0;
    struct drop drop = {.cache = cache, .victims = victims, .count = count, .chain_head = FRAME_NONE};
    const uint64_t start_ns = io_monotonic_ns(cache->options.dev);
    for (uint32_t i = 0; i < count; i++)
        relation_mark_dead(victims[i]);
    run_drop(&drop);
    for (uint32_t i = 0; i < count; i++)
        assert(relation_resident(victims[i]) == 0);
    count_add(&cache->counters.discards, drop.result.pages_discarded);
    count_add(&cache->counters.tags_read, drop.result.tags_read);
    drop.result.relations = count;
    drop.result.duration_us = (io_monotonic_ns(cache->options.dev) - start_ns) / 1000;
    if (out_result != NULL)
        *out_result = drop.result;
}
