/*
 * table/xattr.c - extended attributes: (inode, hash of the name and tie) -> name, value.
 *
 * Locking: as catalog_scan.
 */
#include "table/catalog_int.h"

#include <errno.h>

#define XATTR_NAME_MAX_SIZE 255u

static bool xattr_matches(const void *arg, const void *value, size_t value_size)
{
    const char *name = arg;
    const struct disk_xattr *disk = value;
    const size_t name_size = strlen(name);
    return value_size >= sizeof *disk + name_size && disk->name_size == name_size &&
           memcmp(disk + 1, name, name_size) == 0;
}

static bool xattr_name_is_good(const char *name)
{
    const size_t size = strnlen(name, XATTR_NAME_MAX_SIZE + 1);
    return size >= 1 && size <= XATTR_NAME_MAX_SIZE;
}

static int xattr_search(const struct run_reader *reader, const struct name_hash *hash, ino_no ino, const char *name,
                        struct run_search *search)
{
    search->ino = ino;
    search->type = ITEM_XATTR;
    search->hash = name_hash_of(hash, name, strlen(name));
    search->match = xattr_matches;
    search->match_arg = name;
    return run_find(reader, search);
}

int xattr_get(struct view *view, const struct name_hash *hash, ino_no ino, const char *name, void *buffer,
              size_t capacity, size_t *out_size)
{
    const struct run_reader reader = {.view = view};
    struct run_search search;
    if (!xattr_name_is_good(name)) {
        return -ENODATA;
    }
    const int rc = xattr_search(&reader, hash, ino, name, &search);
    if (rc != 0) {
        return rc;
    }
    if (!search.found) {
        return -ENODATA;
    }
    const size_t head_size = sizeof(struct disk_xattr) + strlen(name);
    const size_t size = search.value_size - head_size;
    if (capacity > 0 && size > capacity) {
        return -ERANGE;
    }
    if (capacity > 0 && size > 0) {
        memcpy(buffer, search.value + head_size, size);
    }
    *out_size = size;
    return 0;
}

/* The sub to put the attribute under. */
static int xattr_choose_sub(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino, const char *name,
                            bool must_exist, bool must_not_exist, uint64_t *out_sub)
{
    const struct run_reader reader = {.batch = batch};
    struct run_search search;
    const int rc = xattr_search(&reader, hash, ino, name, &search);
    if (rc != 0) {
        return rc;
    }
    if (search.found) {
        *out_sub = search.found_sub;
        return must_not_exist ? -EEXIST : 0;
    }
    if (must_exist) {
        return -ENODATA;
    }
    *out_sub = run_first_sub(search.hash) | search.lowest_free_tie;
    return search.lowest_free_tie < RUN_TIES ? 0 : -ENOSPC;
}

int xattr_batch_put(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino, const char *name,
                    const void *value, size_t value_size, bool must_exist, bool must_not_exist, uint64_t *inout_cookie)
{
    if (!xattr_name_is_good(name)) {
        return -ERANGE;
    }
    if (value_size > XATTR_MAX_VALUE) {
        return -ENOSPC;
    }
    uint64_t sub = *inout_cookie;
    int rc = 0;
    if (sub == 0) {
        rc = xattr_choose_sub(batch, hash, ino, name, must_exist, must_not_exist, &sub);
    }
    if (rc != 0) {
        return rc;
    }
    uint8_t item[sizeof(struct disk_xattr) + XATTR_NAME_MAX_SIZE + XATTR_MAX_VALUE];
    const size_t name_size = strlen(name);
    item[0] = (uint8_t)name_size;
    memcpy(item + sizeof(struct disk_xattr), name, name_size);
    if (value_size > 0) {
        memcpy(item + sizeof(struct disk_xattr) + name_size, value, value_size);
    }
    const struct catalog_key key = {.ino = ino, .sub = sub, .type = ITEM_XATTR};
    rc = catalog_batch_put(batch, &key, item, sizeof(struct disk_xattr) + name_size + value_size);
    if (rc == 0) {
        *inout_cookie = sub;
    }
    return rc;
}

int xattr_batch_remove(struct catalog_batch *batch, const struct name_hash *hash, ino_no ino, const char *name)
{
    const struct run_reader reader = {.batch = batch};
    struct run_search search;
    if (!xattr_name_is_good(name)) {
        return -ENODATA;
    }
    const int rc = xattr_search(&reader, hash, ino, name, &search);
    if (rc != 0) {
        return rc;
    }
    if (!search.found) {
        return -ENODATA;
    }
    const struct catalog_key key = {.ino = ino, .sub = search.found_sub, .type = ITEM_XATTR};
    return catalog_batch_remove(batch, &key);
}

struct xattr_scan_arg {
    xattr_fn *fn;
    void *arg;
};

static int xattr_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    const struct xattr_scan_arg *scan = arg;
    const struct disk_xattr *disk = value;
    const char *name = (const char *)(disk + 1);
    return scan->fn(scan->arg, key->sub, name, disk->name_size, name + disk->name_size,
                    value_size - sizeof *disk - disk->name_size);
}

int xattr_scan(struct view *view, ino_no ino, xattr_fn *fn, void *arg)
{
    const struct catalog_key first = {.ino = ino, .sub = 0, .type = ITEM_XATTR};
    const struct catalog_key last = {.ino = ino, .sub = UINT64_MAX, .type = ITEM_XATTR};
    struct xattr_scan_arg scan = {.fn = fn, .arg = arg};
    return catalog_scan(view, &first, &last, xattr_item, &scan);
}
