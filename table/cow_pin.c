/*
 * table/cow_pin.c - blocks of one relation that are read on after they left the tree: the old version of a table that a transaction
 * replaced while it was open.
 *
 * PIN-1 A pinned block is not free: whoever would free it leaves a mark instead, and the last pin's end frees it.
 * PIN-2 A pinned block that the live tree still has is not changed in place: pages of the relation born up to the pin's `at` are shared
 *       (relation_shared_at, which only grows: a page that is copied for nothing harms nobody).
 * PIN-3 A relation with a pinned block is not dead.
 *
 * While a pin is built something else keeps the blocks. Locking: the cow's lock.
 */
#include "table/cow_int.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

int cow_pin_make(struct relation *relation, epoch_no at, struct block_pin **out_pin)
{
    struct block_pin *pin = calloc(1, sizeof *pin);
    block_no blocks = 0;
    int rc = pin != NULL ? relation_file_blocks(relation, &blocks) : -ENOMEM;
    if (rc == 0) {
        pin->words = blocks / 64 + 1;
        pin->held = calloc(pin->words, sizeof pin->held[0]);
        pin->wanted = calloc(pin->words, sizeof pin->wanted[0]);
        rc = pin->held != NULL && pin->wanted != NULL ? 0 : -ENOMEM;
    }
    if (rc != 0) {
        if (pin != NULL) {
            free(pin->held);
            free(pin->wanted);
        }
        free(pin);
        return rc;
    }
    relation_ref(relation);
    pin->relation = relation;
    pin->at = at;
    *out_pin = pin;
    return 0;
}

int cow_pin_add(struct block_pin *pin, block_no block)
{
    if (block / 64 >= pin->words) {
        return -EIO;
    }
    pin->held[block / 64] |= UINT64_C(1) << (block % 64);
    return 0;
}

void cow_pin_enter(struct cow *cow, struct block_pin *pin)
{
    relation_set_shared_at(pin->relation, pin->at);
    mutex_lock(&cow->lock);
    pin->next = cow->pins;
    cow->pins = pin;
    atomic_fetch_add(&cow->pin_count, 1);
    mutex_unlock(&cow->lock);
}

/* PIN-1. True: it is pinned, and marked. */
static bool mark_if_pinned_locked(struct cow *cow, const struct relation *relation, block_no block)
{
    const uint64_t bit = UINT64_C(1) << (block % 64);
    for (struct block_pin *pin = cow->pins; pin != NULL; pin = pin->next) {
        if (pin->relation == relation && block / 64 < pin->words && (pin->held[block / 64] & bit) != 0) {
            pin->wanted[block / 64] |= bit;
            return true;
        }
    }
    return false;
}

bool cow_pin_keeps(struct cow *cow, const struct relation *relation, block_no block)
{
    if (atomic_load(&cow->pin_count) == 0) {
        return false;
    }
    mutex_lock(&cow->lock);
    const bool keeps = mark_if_pinned_locked(cow, relation, block);
    mutex_unlock(&cow->lock);
    return keeps;
}

bool cow_pin_holds_relation_locked(const struct cow *cow, const struct relation *relation)
{
    const struct block_pin *pin = cow->pins;
    while (pin != NULL && pin->relation != relation) {
        pin = pin->next;
    }
    return pin != NULL;
}

static int each_run(const uint64_t *bits, size_t words, cow_run_fn *fn, void *arg)
{
    int rc = 0;
    for (size_t word = 0; word < words && rc == 0; word++) {
        for (unsigned bit = 0; bits[word] != 0 && bit < 64 && rc == 0; bit++) {
            if ((bits[word] >> bit & 1) != 0) {
                rc = fn(arg, (block_no)(word * 64 + bit), 1);
            }
        }
    }
    return rc;
}

int cow_pin_each_run(const struct block_pin *pin, cow_run_fn *fn, void *arg)
{
    return each_run(pin->held, pin->words, fn, arg);
}

struct free_arg {
    struct cow *cow;
    struct relation *relation;
};

static int free_one(void *arg, block_no first, uint32_t count)
{
    const struct free_arg *fa = arg;
    cow_free_run(fa->cow, fa->relation, first, count); /* another pin may keep it */
    return 0;
}

void cow_pin_drop(struct cow *cow, struct block_pin *pin)
{
    struct free_arg fa = {.cow = cow, .relation = pin->relation};
    cow_gate_enter(cow);
    mutex_lock(&cow->lock);
    struct block_pin **link = &cow->pins;
    while (*link != pin) {
        link = &(*link)->next;
    }
    *link = pin->next;
    atomic_fetch_sub(&cow->pin_count, 1);
    cow_dropped_review_locked(cow);
    mutex_unlock(&cow->lock);
    const int rc = each_run(pin->wanted, pin->words, free_one, &fa);
    (void)rc; /* free_one never stops it */
    cow_gate_leave(cow);
    cow_pin_free(pin);
}

void cow_pin_free(struct block_pin *pin)
{
    relation_unref(pin->relation);
    free(pin->held);
    free(pin->wanted);
    free(pin);
}

void cow_each_pin(struct cow *cow, void (*fn)(void *arg, epoch_no at), void *arg)
{
    mutex_lock(&cow->lock);
    for (const struct block_pin *pin = cow->pins; pin != NULL; pin = pin->next) {
        fn(arg, pin->at);
    }
    mutex_unlock(&cow->lock);
}
