/*
 * base/nearest.h - which of the words that are known was meant by one that is not.
 */
#ifndef TBLFS_BASE_NEAREST_H
#define TBLFS_BASE_NEAREST_H

#include "base/types.h"

/* The one of word_at(0), word_at(1), ... (NULL ends them) that takes the fewest changes of single letters (exchanging two
 * neighbours is one); NULL: each takes more than a third of its letters. */
const char *nearest_word(const char *word, const char *(*word_at)(size_t index));
/* The same, of an array that ends with NULL. */
const char *nearest_of(const char *word, const char *const *words);

#endif
