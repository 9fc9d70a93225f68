/*
 * fusefs/append_guard.c - see the header.
 *
 * Appends mostly follow each other, so that one range grows. Without memory for a new range the last one is stretched
 * over the gap: too much is protected then, never too little.
 */
#include "fusefs/append_guard.h"

#include <assert.h>
#include <stdlib.h>

void append_guard_init(struct append_guard *guard)
{
    *guard = (struct append_guard){.ranges = NULL};
    mutex_init(&guard->lock, LOCK_RANK_LEAF);
}

void append_guard_destroy(struct append_guard *guard)
{
    mutex_destroy(&guard->lock);
    free(guard->ranges);
}

void append_guard_open_read_write(struct append_guard *guard)
{
    mutex_lock(&guard->lock);
    guard->read_write_handles++;
    mutex_unlock(&guard->lock);
}

void append_guard_close_read_write(struct append_guard *guard)
{
    mutex_lock(&guard->lock);
    assert(guard->read_write_handles > 0);
    if (--guard->read_write_handles == 0)
        guard->count = 0;
    mutex_unlock(&guard->lock);
}

bool append_guard_is_needed(struct append_guard *guard)
{
    mutex_lock(&guard->lock);
    const bool needed = guard->read_write_handles > 0;
    mutex_unlock(&guard->lock);
    return needed;
}

void append_guard_begin(struct append_guard *guard, uint64_t size_bytes)
{
    mutex_lock(&guard->lock);
    if (guard->appends_under_way++ == 0 || size_bytes < guard->under_way_from)
        guard->under_way_from = size_bytes;
    mutex_unlock(&guard->lock);
}

/* Makes room for one more range; false: no memory. */
static bool ranges_grow_locked(struct append_guard *guard)
{
    if (guard->count < guard->capacity)
        return true;
    const unsigned capacity = guard->capacity == 0 ? 4 : 2 * guard->capacity;
    struct guard_range *ranges = realloc(guard->ranges, capacity * sizeof *ranges);
    if (ranges == NULL)
        return false;
    guard->ranges = ranges;
    guard->capacity = capacity;
    return true;
}

/* Joins [first, end) with the ranges that it touches, which are those from `index` to `stop`. */
static void ranges_join_locked(struct append_guard *guard, unsigned index, unsigned stop, uint64_t first, uint64_t end)
{
    struct guard_range *joined = &guard->ranges[index];
    const uint64_t last_end = guard->ranges[stop - 1].end_byte;
    joined->first_byte = first < joined->first_byte ? first : joined->first_byte;
    joined->end_byte = end > last_end ? end : last_end;
    for (unsigned from = stop; from < guard->count; from++)
        guard->ranges[from - stop + index + 1] = guard->ranges[from];
    guard->count -= stop - index - 1;
}

static void ranges_insert_locked(struct append_guard *guard, unsigned index, uint64_t first, uint64_t end)
{
    if (!ranges_grow_locked(guard)) {
        if (guard->count > 0) {
            const unsigned near = index > 0 ? index - 1 : 0;
            ranges_join_locked(guard, near, near + 1, first, end);
        }
        return;
    }
    for (unsigned to = guard->count; to > index; to--)
        guard->ranges[to] = guard->ranges[to - 1];
    guard->ranges[index] = (struct guard_range){.first_byte = first, .end_byte = end};
    guard->count++;
}

static void ranges_add_locked(struct append_guard *guard, uint64_t first, uint64_t end)
{
    unsigned index = guard->count; /* appends come last: look from behind */
    while (index > 0 && guard->ranges[index - 1].end_byte >= first)
        index--;
    unsigned stop = index;
    while (stop < guard->count && guard->ranges[stop].first_byte <= end)
        stop++;
    if (stop > index)
        ranges_join_locked(guard, index, stop, first, end);
    else
        ranges_insert_locked(guard, index, first, end);
}

void append_guard_end(struct append_guard *guard, uint64_t first_byte, uint64_t end_byte)
{
    mutex_lock(&guard->lock);
    assert(guard->appends_under_way > 0);
    guard->appends_under_way--;
    if (guard->read_write_handles > 0 && first_byte < end_byte)
        ranges_add_locked(guard, first_byte, end_byte);
    mutex_unlock(&guard->lock);
}

void append_guard_cut(struct append_guard *guard, uint64_t size_bytes)
{
    mutex_lock(&guard->lock);
    while (guard->count > 0 && guard->ranges[guard->count - 1].first_byte >= size_bytes)
        guard->count--;
    if (guard->count > 0 && guard->ranges[guard->count - 1].end_byte > size_bytes)
        guard->ranges[guard->count - 1].end_byte = size_bytes;
    if (guard->appends_under_way > 0 && guard->under_way_from > size_bytes)
        guard->under_way_from = size_bytes;
    mutex_unlock(&guard->lock);
}

bool append_guard_clip(struct append_guard *guard, uint64_t first_byte, uint64_t end_byte, struct guard_range *out_part)
{
    mutex_lock(&guard->lock);
    if (guard->appends_under_way > 0 && guard->under_way_from < end_byte)
        end_byte = guard->under_way_from;
    for (unsigned index = 0; index < guard->count; index++) {
        const struct guard_range *range = &guard->ranges[index];
        if (range->end_byte <= first_byte)
            continue;
        if (range->first_byte > first_byte) {
            end_byte = range->first_byte < end_byte ? range->first_byte : end_byte;
            break;
        }
        first_byte = range->end_byte;
    }
    mutex_unlock(&guard->lock);
    *out_part = (struct guard_range){.first_byte = first_byte, .end_byte = end_byte};
    return first_byte < end_byte;
}
