/*
 * bufcache/victim_set.c - is this relation one of those to be dropped?
 *
 * A hash table, at most a quarter full, so that a page of a relation that stays costs one probe whatever the number of
 * victims. Comparing one by one loses from about four victims on, searching a sorted array nearly from the start
 * (bench/sweep; the figures are in README.md).
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
    uint32_t bits = 6;
    static_assert(ARRAY_COUNT(set->small) == 1u << 6, "slots of a small set");
    while (((uint64_t)1 << bits) < (uint64_t)count * 4)
        bits++;
    if (bits > 31)
        return -ENOMEM;
    *set = (struct victim_set){.slots = set->small, .shift = 64 - bits, .mask = (uint32_t)(((uint64_t)1 << bits) - 1)};
    if (count > VICTIM_SMALL_MAX)
        set->slots = calloc((size_t)1 << bits, sizeof *set->slots);
    if (set->slots == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        victim_set_add(set, victims[i]->rel);
    return 0;
}

void victim_set_free(struct victim_set *set)
{
    if (set->slots != set->small)
        free(set->slots);
}
