/*
 * bufcache/victim_set.c - is this relation one of those to be dropped?
 *
 * Few are compared one after the other; more lie in a hash table, at most a quarter full, so that a page of a relation
 * that stays costs one probe whatever their number (bench/sweep has the figures; README.md tells why).
 * Locking: none; built once, then read.
 */
#include "bufcache/bufcache_int.h"

#include <errno.h>
#include <stdlib.h>

static void victim_set_add(struct victim_set *set, rel_no rel)
{
    uint32_t slot = (uint32_t)(rel * 0x9e3779b97f4a7c15u >> set->shift);
    while (set->slots[slot] != REL_NONE && set->slots[slot] != rel)
        slot = (slot + 1) & set->mask;
    set->slots[slot] = rel;
}

int victim_set_init(struct victim_set *set, struct relation *const *victims, uint32_t count)
{
    *set = (struct victim_set){.count = count};
    if (count <= VICTIM_LINEAR_MAX) {
        for (uint32_t i = 0; i < count; i++)
            set->linear[i] = victims[i]->rel;
        return 0;
    }
    uint32_t bits = 7;
    while (((uint64_t)1 << bits) < (uint64_t)count * 4)
        bits++;
    if (bits > 31)
        return -ENOMEM;
    set->slots = calloc((size_t)1 << bits, sizeof *set->slots);
    if (set->slots == NULL)
        return -ENOMEM;
    set->shift = 64 - bits;
    set->mask = (uint32_t)(((uint64_t)1 << bits) - 1);
    for (uint32_t i = 0; i < count; i++)
        victim_set_add(set, victims[i]->rel);
    return 0;
}

void victim_set_free(struct victim_set *set)
{
    free(set->slots);
}
