/*
 * txn/removed_names.c - names that left the live tree while transactions were open (txn/txn_set.h).
 *
 * Locking: the owner's (store->txns_lock).
 */
#include "txn/txn_set.h"

#include "base/checksum.h"

#include <stdlib.h>

#define FIRST_CAPACITY 1024u
#define CAPACITY_MAX   (UINT64_C(1) << 23) /* 128 MiB of them; then every name counts as removed */

static uint64_t key_of(ino_no parent, struct op_bytes name)
{
    const uint64_t key = checksum_64(name.size > 0 ? name.data : "", name.size, parent * 2 + (name.size > 0));
    return key != 0 ? key : 1;
}

/* Where the key is, or would be put. */
static struct removed_name *place_of(const struct removed_names *removed, uint64_t key)
{
    size_t i = key & (removed->capacity - 1);
    while (removed->places[i].key != 0 && removed->places[i].key != key) {
        i = (i + 1) & (removed->capacity - 1);
    }
    return &removed->places[i];
}

static bool grow(struct removed_names *removed)
{
    struct removed_names larger = {.capacity = removed->capacity != 0 ? removed->capacity * 2 : FIRST_CAPACITY};
    larger.places = larger.capacity <= CAPACITY_MAX ? calloc(larger.capacity, sizeof larger.places[0]) : NULL;
    if (larger.places == NULL) {
        return false;
    }
    for (size_t i = 0; i < removed->capacity; i++) {
        if (removed->places[i].key != 0) {
            *place_of(&larger, removed->places[i].key) = removed->places[i];
        }
    }
    free(removed->places);
    removed->places = larger.places;
    removed->capacity = larger.capacity;
    return true;
}

static void add_key(struct removed_names *removed, uint64_t key, epoch_no epoch)
{
    if (removed->count * 2 >= removed->capacity && !grow(removed)) {
        removed->all_epoch = epoch;
        return;
    }
    struct removed_name *place = place_of(removed, key);
    removed->count += place->key == 0;
    *place = (struct removed_name){.key = key, .epoch = epoch};
}

void removed_names_add(struct removed_names *removed, ino_no parent, struct op_bytes name, epoch_no epoch)
{
    add_key(removed, key_of(parent, name), epoch);
    add_key(removed, key_of(parent, (struct op_bytes){0}), epoch);
}

epoch_no removed_names_epoch(const struct removed_names *removed, ino_no parent, struct op_bytes name)
{
    const uint64_t key = key_of(parent, name);
    const struct removed_name *place = removed->capacity > 0 ? place_of(removed, key) : NULL;
    const epoch_no epoch = place != NULL && place->key == key ? place->epoch : 0;
    return epoch > removed->all_epoch ? epoch : removed->all_epoch;
}

void removed_names_clear(struct removed_names *removed)
{
    free(removed->places);
    *removed = (struct removed_names){0};
}
