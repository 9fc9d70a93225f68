/*
 * base/nearest.c - see the header: the distance of Damerau and Levenshtein, over short words.
 */
#include "base/nearest.h"

#include <string.h>

#define LETTERS_MAX 32u

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters that have to be put in, taken out, replaced, or exchanged with their neighbour. Both are short enough. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t rows[LETTERS_MAX + 1][LETTERS_MAX + 1];
    for (size_t i = 0; i <= a_size; i++) {
        for (size_t j = 0; j <= b_size; j++) {
            if (i == 0 || j == 0) {
                rows[i][j] = i + j;
                continue;
            }
            const size_t replaced = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            rows[i][j] = least(replaced, least(rows[i - 1][j], rows[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                rows[i][j] = least(rows[i][j], rows[i - 2][j - 2] + 1);
        }
    }
    return rows[a_size][b_size];
}

struct nearest {
    const char *word, *best;
    size_t best_distance;
};

static void look_at(struct nearest *nearest, const char *known)
{
    const size_t size = strlen(nearest->word);
    const size_t known_size = strlen(known);
    if (size > LETTERS_MAX || known_size > LETTERS_MAX)
        return;
    const size_t changes = distance(nearest->word, size, known, known_size);
    if (changes * 3 <= known_size && (nearest->best == NULL || changes < nearest->best_distance)) {
        nearest->best = known;
        nearest->best_distance = changes;
    }
}

const char *nearest_word(const char *word, const char *(*word_at)(size_t index))
{
    struct nearest nearest = {.word = word};
    for (size_t index = 0; word_at(index) != NULL; index++)
        look_at(&nearest, word_at(index));
    return nearest.best;
}

const char *nearest_of(const char *word, const char *const *words)
{
    struct nearest nearest = {.word = word};
    for (; *words != NULL; words++)
        look_at(&nearest, *words);
    return nearest.best;
}
