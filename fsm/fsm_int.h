/*
 * fsm/fsm_int.h - inside of fsm/: a bitmap with summaries.
 *
 * A set bit is a used block. Not locked: whoever owns the bitmap locks.
 *
 * BITMAP-1 Level 0 holds one bit a block; bit i of level k is set exactly when word i of level k - 1 is full, so that
 *          the next clear bit is found in at most two words a level.
 * BITMAP-2 Bits beyond what was ever cleared are set: a search never leaves the file.
 */
#ifndef TBLFS_FSM_FSM_INT_H
#define TBLFS_FSM_FSM_INT_H

#include "base/types.h"

#define FSM_BITMAP_LEVELS 6u
#define FSM_BIT_NONE      UINT64_MAX

struct fsm_bitmap {
    uint64_t *levels[FSM_BITMAP_LEVELS];
    uint64_t word_counts[FSM_BITMAP_LEVELS];
    unsigned height;      /* levels in use; 0: no bits yet */
    uint64_t *words_read; /* counts words that a search looked at; never NULL once used */
};

void fsm_bitmap_free(struct fsm_bitmap *bitmap);
/* Room for at least `bits`; new bits are set. -ENOMEM: nothing changed. */
int fsm_bitmap_grow(struct fsm_bitmap *bitmap, uint64_t bits) WARN_UNUSED;
bool fsm_bitmap_test(const struct fsm_bitmap *bitmap, uint64_t bit);
/* 64 bits from bit 64 * word on; beyond the bitmap all are set. */
uint64_t fsm_bitmap_word(const struct fsm_bitmap *bitmap, uint64_t word);
void fsm_bitmap_set(struct fsm_bitmap *bitmap, uint64_t first, uint64_t count);
void fsm_bitmap_clear(struct fsm_bitmap *bitmap, uint64_t first, uint64_t count);
/* Bits in [first, first + count) that are set. */
uint64_t fsm_bitmap_count(const struct fsm_bitmap *bitmap, uint64_t first, uint64_t count);
/* First clear bit >= from, or FSM_BIT_NONE. */
uint64_t fsm_bitmap_next_clear(const struct fsm_bitmap *bitmap, uint64_t from);
/* Clear bits in a row from `from` on, at most limit. */
uint64_t fsm_bitmap_clear_run(const struct fsm_bitmap *bitmap, uint64_t from, uint64_t limit);
/* One above the last set bit below `end`; 0 when there is none. */
uint64_t fsm_bitmap_end_of_set(const struct fsm_bitmap *bitmap, uint64_t end);
/* The same for clear bits. */
uint64_t fsm_bitmap_end_of_clear(const struct fsm_bitmap *bitmap, uint64_t end);

/* Plain bits without summaries: sets count bits. */
void fsm_bits_set(uint64_t *words, uint64_t first, uint64_t count);

#endif
