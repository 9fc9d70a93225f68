/*
 * fsm/bitmap.c - a bitmap that finds its next clear bit in a bounded number of words.
 *
 * See fsm_int.h for BITMAP-1 and BITMAP-2.
 */
#include "fsm/fsm_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64u
#define WORD_FULL UINT64_MAX

/* The bits [from, to) of one word, to <= 64. */
static uint64_t word_mask(uint64_t from, uint64_t to)
{
    const uint64_t below_to = to == WORD_BITS ? WORD_FULL : (UINT64_C(1) << to) - 1;
    return below_to & ~((UINT64_C(1) << from) - 1);
}

void fsm_bitmap_free(struct fsm_bitmap *bitmap)
{
    for (unsigned level = 0; level < FSM_BITMAP_LEVELS; level++)
        free(bitmap->levels[level]);
    uint64_t *words_read = bitmap->words_read;
    memset(bitmap, 0, sizeof *bitmap);
    bitmap->words_read = words_read;
}

/* Fills a summary level from the one below. Bits without a word behind them are full. */
static void summarise(struct fsm_bitmap *bitmap, unsigned level)
{
    memset(bitmap->levels[level], 0xff, bitmap->word_counts[level] * sizeof(uint64_t));
    for (uint64_t i = 0; i < bitmap->word_counts[level - 1]; i++) {
        if (bitmap->levels[level - 1][i] != WORD_FULL)
            bitmap->levels[level][i / WORD_BITS] &= ~(UINT64_C(1) << (i % WORD_BITS));
    }
}

/* Allocates all levels for `words` words at level 0. */
static int allocate_levels(struct fsm_bitmap *bitmap, uint64_t words)
{
    do {
        assert(bitmap->height < FSM_BITMAP_LEVELS);
        bitmap->levels[bitmap->height] = malloc(words * sizeof(uint64_t));
        if (bitmap->levels[bitmap->height] == NULL)
            return -ENOMEM;
        bitmap->word_counts[bitmap->height++] = words;
        if (words == 1)
            return 0;
        words = (words + WORD_BITS - 1) / WORD_BITS;
    } while (true);
}

int fsm_bitmap_grow(struct fsm_bitmap *bitmap, uint64_t bits)
{
    const uint64_t needed = (bits + WORD_BITS - 1) / WORD_BITS;
    const uint64_t present = bitmap->height == 0 ? 0 : bitmap->word_counts[0];
    if (needed <= present)
        return 0;
    struct fsm_bitmap larger = {.words_read = bitmap->words_read};
    const uint64_t words = needed > 2 * present ? needed : 2 * present;
    if (allocate_levels(&larger, words) != 0) {
        fsm_bitmap_free(&larger);
        return -ENOMEM;
    }
    memset(larger.levels[0], 0xff, words * sizeof(uint64_t));
    if (present != 0)
        memcpy(larger.levels[0], bitmap->levels[0], present * sizeof(uint64_t));
    for (unsigned level = 1; level < larger.height; level++)
        summarise(&larger, level);
    fsm_bitmap_free(bitmap);
    *bitmap = larger;
    return 0;
}

bool fsm_bitmap_test(const struct fsm_bitmap *bitmap, uint64_t bit)
{
    if (bitmap->height == 0 || bit / WORD_BITS >= bitmap->word_counts[0])
        return true;
    return (bitmap->levels[0][bit / WORD_BITS] >> (bit % WORD_BITS) & 1) != 0;
}

uint64_t fsm_bitmap_word(const struct fsm_bitmap *bitmap, uint64_t word)
{
    return bitmap->height == 0 || word >= bitmap->word_counts[0] ? WORD_FULL : bitmap->levels[0][word];
}

/* BITMAP-1 after a change of word `word` at level 0. */
static void update_summary(struct fsm_bitmap *bitmap, uint64_t word)
{
    for (unsigned level = 1; level < bitmap->height; level++) {
        const uint64_t bit = UINT64_C(1) << (word % WORD_BITS);
        const bool full = bitmap->levels[level - 1][word] == WORD_FULL;
        uint64_t *parent = &bitmap->levels[level][word / WORD_BITS];
        const uint64_t updated = full ? *parent | bit : *parent & ~bit;
        if (updated == *parent)
            return;
        *parent = updated;
        word /= WORD_BITS;
    }
}

static void change_range(struct fsm_bitmap *bitmap, uint64_t first, uint64_t count, bool set)
{
    const uint64_t end = first + count;
    assert(count == 0 || (bitmap->height != 0 && end <= bitmap->word_counts[0] * WORD_BITS));
    while (first < end) {
        const uint64_t word = first / WORD_BITS;
        const uint64_t stop = end < (word + 1) * WORD_BITS ? end : (word + 1) * WORD_BITS;
        const uint64_t mask = word_mask(first % WORD_BITS, stop - word * WORD_BITS);
        uint64_t *bits = &bitmap->levels[0][word];
        *bits = set ? *bits | mask : *bits & ~mask;
        update_summary(bitmap, word);
        first = stop;
    }
}

void fsm_bitmap_set(struct fsm_bitmap *bitmap, uint64_t first, uint64_t count)
{
    change_range(bitmap, first, count, true);
}

void fsm_bitmap_clear(struct fsm_bitmap *bitmap, uint64_t first, uint64_t count)
{
    change_range(bitmap, first, count, false);
}

uint64_t fsm_bitmap_count(const struct fsm_bitmap *bitmap, uint64_t first, uint64_t count)
{
    const uint64_t end = first + count;
    uint64_t set = 0;
    while (first < end) {
        const uint64_t word = first / WORD_BITS;
        const uint64_t stop = end < (word + 1) * WORD_BITS ? end : (word + 1) * WORD_BITS;
        const uint64_t mask = word_mask(first % WORD_BITS, stop - word * WORD_BITS);
        set += (uint64_t)__builtin_popcountll(fsm_bitmap_word(bitmap, word) & mask);
        first = stop;
    }
    return set;
}

/* First clear bit of one word at or after `from`, or FSM_BIT_NONE. */
static uint64_t clear_in_word(const struct fsm_bitmap *bitmap, unsigned level, uint64_t from)
{
    const uint64_t word = from / WORD_BITS;
    if (word >= bitmap->word_counts[level])
        return FSM_BIT_NONE;
    ++*bitmap->words_read;
    const uint64_t clear = ~bitmap->levels[level][word] & word_mask(from % WORD_BITS, WORD_BITS);
    return clear == 0 ? FSM_BIT_NONE : word * WORD_BITS + (uint64_t)__builtin_ctzll(clear);
}

uint64_t fsm_bitmap_next_clear(const struct fsm_bitmap *bitmap, uint64_t from)
{
    unsigned level = 0;
    uint64_t bit = FSM_BIT_NONE;
    while (level < bitmap->height) { /* up, until a word says that something behind is not full */
        bit = clear_in_word(bitmap, level, from);
        if (bit != FSM_BIT_NONE)
            break;
        from = from / WORD_BITS + 1;
        level++;
    }
    if (bit == FSM_BIT_NONE)
        return FSM_BIT_NONE;
    while (level > 0) { /* down to the block */
        level--;
        bit = clear_in_word(bitmap, level, bit * WORD_BITS);
        assert(bit != FSM_BIT_NONE);
    }
    return bit;
}

uint64_t fsm_bitmap_clear_run(const struct fsm_bitmap *bitmap, uint64_t from, uint64_t limit)
{
    uint64_t run = 0;
    while (run < limit) {
        const uint64_t bit = from + run;
        const uint64_t word = bit / WORD_BITS;
        if (bitmap->height == 0 || word >= bitmap->word_counts[0])
            break;
        ++*bitmap->words_read;
        const uint64_t set = bitmap->levels[0][word] & word_mask(bit % WORD_BITS, WORD_BITS);
        if (set != 0) {
            run += (uint64_t)__builtin_ctzll(set) - bit % WORD_BITS;
            break;
        }
        run += WORD_BITS - bit % WORD_BITS;
    }
    return run < limit ? run : limit;
}

/* One above the last bit below `end` that differs from those of `ignored`, which is all zeros or all ones. */
static uint64_t end_of_other(const struct fsm_bitmap *bitmap, uint64_t end, uint64_t ignored)
{
    while (end > 0) {
        const uint64_t word = (end - 1) / WORD_BITS;
        const uint64_t other = (fsm_bitmap_word(bitmap, word) ^ ignored) & word_mask(0, end - word * WORD_BITS);
        if (other != 0)
            return word * WORD_BITS + WORD_BITS - (uint64_t)__builtin_clzll(other);
        end = word * WORD_BITS;
    }
    return 0;
}

uint64_t fsm_bitmap_end_of_set(const struct fsm_bitmap *bitmap, uint64_t end)
{
    return end_of_other(bitmap, end, 0);
}

uint64_t fsm_bitmap_end_of_clear(const struct fsm_bitmap *bitmap, uint64_t end)
{
    return end_of_other(bitmap, end, WORD_FULL);
}

void fsm_bits_set(uint64_t *words, uint64_t first, uint64_t count)
{
    const uint64_t end = first + count;
    while (first < end) {
        const uint64_t word = first / WORD_BITS;
        const uint64_t stop = end < (word + 1) * WORD_BITS ? end : (word + 1) * WORD_BITS;
        words[word] |= word_mask(first % WORD_BITS, stop - word * WORD_BITS);
        first = stop;
    }
}
