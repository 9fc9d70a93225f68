/*
 * table/run.c - items that are found by the hash of a name: directory entries, extended attributes, back entries.
 *
 * Their sub is hash << 16 | tie; the tie tells items of one hash apart and is the lowest number that was free when the
 * item was made. Such a run is short (47-bit hashes) unless hashes are cut for a test, and is read once for a look-up
 * or a choice of a tie.
 *
 * Locking: as catalog_scan.
 */
#include "table/catalog_int.h"
#include "base/checksum.h"

#include <errno.h>

uint64_t name_hash_of(const struct name_hash *hash, const void *bytes, size_t size)
{
    assert(hash->bits >= 1 && hash->bits <= 47);
    const uint64_t cut = checksum_64(bytes, size, hash->seed) & ((UINT64_C(1) << hash->bits) - 1);
    return cut != 0 ? cut : 1;
}

int run_scan(const struct run_reader *reader, const struct catalog_key *first, const struct catalog_key *last,
             catalog_item_fn *fn, void *arg)
{
    return reader->batch != NULL ? catalog_batch_scan(reader->batch, first, last, fn, arg)
                                 : catalog_scan(reader->view, first, last, fn, arg);
}

/* Returns 1 when the item is the one. */
static int run_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct run_search *search = arg;
    if (search->match != NULL && search->match(search->match_arg, value, value_size)) {
        search->found = true;
        search->found_sub = key->sub;
        search->value_size = value_size;
        if (value_size > 0) {
            memcpy(search->value, value, value_size);
        }
        return 1;
    }
    if ((key->sub & (RUN_TIES - 1)) == search->lowest_free_tie) {
        search->lowest_free_tie++;
    }
    return 0;
}

int run_find(const struct run_reader *reader, struct run_search *search)
{
    search->found = false;
    search->lowest_free_tie = 0;
    const uint64_t first_sub = run_first_sub(search->hash);
    const struct catalog_key first = {.ino = search->ino, .sub = first_sub, .type = search->type};
    const struct catalog_key last = {.ino = search->ino, .sub = first_sub + RUN_TIES - 1, .type = search->type};
    const int rc = run_scan(reader, &first, &last, run_item, search);
    return rc < 0 ? rc : 0;
}
