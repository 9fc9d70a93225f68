/*
 * table/back.c - back entries: (inode, hash of directory and cookie, and tie) -> directory, cookie of the entry there.
 *
 * Locking: as catalog_scan.
 */
#include "table/catalog_int.h"

#include <errno.h>

/* The same bytes are hashed and stored. */
static_assert(sizeof(struct disk_back) == 16, "back entry is 16 bytes");

static struct disk_back back_of(ino_no parent, uint64_t cookie)
{
    return (struct disk_back){.parent = le64_of(parent), .cookie = le64_of(cookie)};
}

static bool back_matches(const void *arg, const void *value, size_t value_size)
{
    return value_size == sizeof(struct disk_back) && memcmp(value, arg, value_size) == 0;
}

static int back_search(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino,
                       const struct disk_back *back, struct run_search *search)
{
    const struct run_reader reader = {.batch = batch};
    search->ino = ino;
    search->type = ITEM_BACK;
    search->hash = name_hash_of(hash, back, sizeof *back);
    search->match = back_matches;
    search->match_arg = back;
    return run_find(&reader, search);
}

int back_batch_put(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino, ino_no parent,
                   uint64_t cookie)
{
    const struct disk_back back = back_of(parent, cookie);
    struct run_search search;
    const int rc = back_search(batch, hash, ino, &back, &search);
    if (rc != 0 || search.found) {
        return rc;
    }
    if (search.lowest_free_tie == RUN_TIES) {
        return -ENOSPC;
    }
    const struct catalog_key key = {
        .ino = ino, .sub = run_first_sub(search.hash) | search.lowest_free_tie, .type = ITEM_BACK};
    return catalog_batch_put(batch, &key, &back, sizeof back);
}

int back_batch_remove(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino, ino_no parent,
                      uint64_t cookie)
{
    const struct disk_back back = back_of(parent, cookie);
    struct run_search search;
    const int rc = back_search(batch, hash, ino, &back, &search);
    if (rc != 0) {
        return rc;
    }
    if (!search.found) {
        return -ENOENT;
    }
    const struct catalog_key key = {.ino = ino, .sub = search.found_sub, .type = ITEM_BACK};
    return catalog_batch_remove(batch, &key);
}

struct back_scan_arg {
    back_fn *fn;
    void *arg;
};

static int back_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    (void)key;
    (void)value_size;
    const struct back_scan_arg *scan = arg;
    const struct disk_back *back = value;
    return scan->fn(scan->arg, le64_get(back->parent), le64_get(back->cookie));
}

int back_batch_scan(struct catalog_batch *batch, ino_no ino, back_fn *fn, void *arg)
{
    const struct catalog_key first = {.ino = ino, .sub = 0, .type = ITEM_BACK};
    const struct catalog_key last = {.ino = ino, .sub = UINT64_MAX, .type = ITEM_BACK};
    struct back_scan_arg scan = {.fn = fn, .arg = arg};
    return catalog_batch_scan(batch, &first, &last, back_item, &scan);
}
