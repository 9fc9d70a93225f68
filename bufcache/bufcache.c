/*
 * bufcache/bufcache.c - opening and closing the cache, and its counters.
 *
 * Owns: the memory: arena, tags, descriptors, buckets, partitions. See README.md for the map of the module.
 * Locking: opening and closing run alone; the counters are read one by one, each of them exact.
 */
#include "bufcache/bufcache_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FRAME_COUNT_MAX    (1u << 30)
#define MAX_OPEN_FILES_MIN 8u

static void *map_memory(size_t size_bytes)
{
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint32_t bucket_count_for(uint32_t frame_count)
{
    uint32_t count = PARTITION_COUNT;
    while (count < frame_count)
        count *= 2;
    return count;
}

static int allocate_memory(struct bufcache *cache)
{
    const uint32_t buckets = bucket_count_for(cache->frame_count);
    cache->bucket_mask = buckets - 1;
    cache->arena = map_memory((size_t)cache->frame_count * BLOCK_SIZE);
    cache->tags = map_memory(cache->frame_count * sizeof *cache->tags);
    cache->frames = map_memory(cache->frame_count * sizeof *cache->frames);
    cache->buckets = malloc(buckets * sizeof *cache->buckets);
    cache->partitions = aligned_alloc(_Alignof(struct partition), PARTITION_COUNT * sizeof *cache->partitions);
    if (!cache->arena || !cache->tags || !cache->frames || !cache->buckets || !cache->partitions)
        return -ENOMEM;
    memset(cache->buckets, 0xff, buckets * sizeof *cache->buckets); /* FRAME_NONE */
    memset(cache->partitions, 0, PARTITION_COUNT * sizeof *cache->partitions);
    return 0;
}

static void free_memory(struct bufcache *cache)
{
    if (cache->arena != NULL)
        (void)munmap(cache->arena, (size_t)cache->frame_count * BLOCK_SIZE);
    if (cache->tags != NULL)
        (void)munmap(cache->tags, cache->frame_count * sizeof *cache->tags);
    if (cache->frames != NULL)
        (void)munmap(cache->frames, cache->frame_count * sizeof *cache->frames);
    free(cache->buckets);
    free(cache->partitions);
    free(cache);
}

static void destroy_partitions(struct bufcache *cache)
{
    for (uint32_t i = 0; i < PARTITION_COUNT; i++) {
        condvar_destroy(&cache->partitions[i].io_done);
        mutex_destroy(&cache->partitions[i].lock);
    }
}

static void init_partitions(struct bufcache *cache)
{
    for (uint32_t i = 0; i < PARTITION_COUNT; i++) {
        mutex_init(&cache->partitions[i].lock, LOCK_RANK_PARTITION);
        condvar_init(&cache->partitions[i].io_done);
    }
}

int bufcache_open(const struct bufcache_options *options, struct bufcache **out_cache)
{
    uint64_t frame_count = options->cache_size_bytes / BLOCK_SIZE;
    if (frame_count > FRAME_COUNT_MAX)
        return -EINVAL;
    if (frame_count < BUFCACHE_MIN_FRAMES)
        frame_count = BUFCACHE_MIN_FRAMES;
    struct bufcache *cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return -ENOMEM;
    cache->options = *options;
    diag_init_silent(&cache->silent);
    cache->frame_count = (uint32_t)frame_count;
    int rc = allocate_memory(cache);
    if (rc < 0) {
        free_memory(cache);
        return rc;
    }
    init_partitions(cache);
    pool_init(cache);
    registry_init(&cache->registry,
                  options->max_open_files < MAX_OPEN_FILES_MIN ? MAX_OPEN_FILES_MIN : options->max_open_files);
    rc = writeback_start(cache);
    if (rc < 0) {
        bufcache_close(cache);
        return rc;
    }
    *out_cache = cache;
    return 0;
}

/* Nobody else is there any more: all pages go, the dirty ones too. */
static void forget_pages(struct bufcache *cache)
{
    for (uint32_t i = 0; i < cache->frame_count; i++) {
        const uint32_t state = state_load(&cache->tags[i]);
        const rel_no rel = atomic_load(&cache->tags[i].rel);
        bool dirty;
        uint32_t index;
        assert(!(state & (STATE_BUSY | STATE_DEAD)));
        if (rel != REL_NONE)
            (void)hash_discard(cache, rel, atomic_load(&cache->tags[i].block), &dirty, &index);
    }
}

void bufcache_close(struct bufcache *cache)
{
    if (cache == NULL)
        return;
    writeback_stop(cache);
    forget_pages(cache);
    registry_destroy(cache);
    pool_destroy(cache);
    destroy_partitions(cache);
    free_memory(cache);
}

/* ---- counters ---- */

static void count_states(struct bufcache *cache, struct bufcache_stats *stats)
{
    for (uint32_t i = 0; i < cache->frame_count; i++) {
        const uint32_t state = atomic_load_explicit(&cache->tags[i].state, memory_order_relaxed);
        stats->free_frames += (state & STATE_FREE) != 0;
        stats->dirty_frames += (state & STATE_DIRTY) != 0;
        stats->pinned_frames += (state & STATE_PINNED) != 0;
    }
}

static void count_hits(struct bufcache *cache, struct bufcache_stats *stats)
{
    for (uint32_t i = 0; i < PARTITION_COUNT; i++) {
        struct partition *partition = &cache->partitions[i];
        mutex_lock(&partition->lock);
        stats->hits += partition->hits;
        stats->misses += partition->misses;
        mutex_unlock(&partition->lock);
    }
}

void bufcache_get_stats(struct bufcache *cache, struct bufcache_stats *out_stats)
{
    const struct counters *counters = &cache->counters;
    struct bufcache_stats stats = {
        .frames = cache->frame_count,
        .pages_read = atomic_load(&counters->pages_read),
        .read_calls = atomic_load(&counters->read_calls),
        .pages_written = atomic_load(&counters->pages_written),
        .write_calls = atomic_load(&counters->write_calls),
        .evictions = atomic_load(&counters->evictions),
        .discards = atomic_load(&counters->discards),
        .sweeps = atomic_load(&counters->sweeps),
        .lookup_drops = atomic_load(&counters->lookup_drops),
        .empty_drops = atomic_load(&counters->empty_drops),
        .tags_read = atomic_load(&counters->tags_read),
        .relation_opens = atomic_load(&counters->relation_opens),
        .relation_files_created = atomic_load(&counters->relation_files_created),
        .relation_files_unlinked = atomic_load(&counters->relation_files_unlinked),
        .syncs = atomic_load(&counters->syncs),
        .damaged_pages = atomic_load(&counters->damaged_pages),
    };
    count_states(cache, &stats);
    count_hits(cache, &stats);
    *out_stats = stats;
}
