/*
 * bufcache/usage.c - what the cache holds of each relation.
 *
 * One pass over the tags, without a lock: pages come and go meanwhile, so the sums are those of no single moment. Nothing is pinned,
 * read or evicted for it.
 *
 * Locking: registry.lock, for the look-up of one relation at a time.
 */
#include "bufcache/bufcache_int.h"

#include <errno.h>
#include <stdlib.h>

struct counted {
    UT_hash_handle hh;
    struct bufcache_usage usage; /* usage.rel is the key */
};

static struct counted *counted_get(struct counted **table, rel_no rel)
{
    struct counted *counted = NULL;
    HASH_FIND(hh, *table, &rel, sizeof rel, counted);
    if (counted != NULL)
        return counted;
    counted = calloc(1, sizeof *counted);
    if (counted == NULL)
        return NULL;
    counted->usage.rel = rel;
    HASH_ADD(hh, *table, usage.rel, sizeof counted->usage.rel, counted);
    if (counted->hh.tbl != NULL)
        return counted;
    free(counted);
    return NULL;
}

static void count_frame(struct bufcache_usage *usage, uint32_t state)
{
    usage->resident++;
    usage->dirty += (state & STATE_DIRTY) != 0;
    usage->pinned += (state & STATE_PINNED) != 0;
    usage->by_count[(state & STATE_USAGE_MASK) / STATE_USAGE_ONE]++;
}

static int compare_relations(const void *left, const void *right)
{
    const rel_no a = ((const struct bufcache_usage *)left)->rel, b = ((const struct bufcache_usage *)right)->rel;
    return a < b ? -1 : a > b;
}

/* Frees the table; *out_list has what was in it, sorted. */
static int take_list(struct counted *table, struct bufcache_usage **out_list, size_t *out_count)
{
    size_t count = 0;
    struct bufcache_usage *list = malloc((HASH_COUNT(table) + 1) * sizeof list[0]);
    for (struct counted *counted = table, *next; counted != NULL; counted = next) {
        next = counted->hh.next;
        if (list != NULL)
            list[count++] = counted->usage;
        HASH_DEL(table, counted);
        free(counted);
    }
    if (list == NULL)
        return -ENOMEM;
    qsort(list, count, sizeof list[0], compare_relations);
    *out_list = list;
    *out_count = count;
    return 0;
}

/* One that left memory meanwhile keeps zeros. */
static void add_lookups(struct bufcache *cache, struct bufcache_usage *usage)
{
    const struct relation *relation = NULL;
    mutex_lock(&cache->registry.lock);
    HASH_FIND(hh, cache->registry.relations, &usage->rel, sizeof usage->rel, relation);
    if (relation != NULL) {
        usage->hits = atomic_load_explicit(&relation->hits, memory_order_relaxed);
        usage->misses = atomic_load_explicit(&relation->misses, memory_order_relaxed);
    }
    mutex_unlock(&cache->registry.lock);
}

int bufcache_list_usage(struct bufcache *cache, struct bufcache_usage **out_list, size_t *out_count)
{
    struct counted *table = NULL;
    struct counted *last = NULL; /* neighbours are often of one relation */
    int rc = 0;
    for (uint32_t index = 0; index < cache->frame_count && rc == 0; index++) {
        const rel_no rel = atomic_load_explicit(&cache->tags[index].rel, memory_order_relaxed);
        if (rel == REL_NONE)
            continue;
        if (last == NULL || last->usage.rel != rel)
            last = counted_get(&table, rel);
        if (last == NULL)
            rc = -ENOMEM;
        else
            count_frame(&last->usage, atomic_load_explicit(&cache->tags[index].state, memory_order_relaxed));
    }
    const int list_rc = take_list(table, out_list, out_count);
    if (rc != 0 && list_rc == 0)
        free(*out_list);
    for (size_t index = 0; rc == 0 && list_rc == 0 && index < *out_count; index++)
        add_lookups(cache, &(*out_list)[index]);
    return rc != 0 ? rc : list_rc;
}
