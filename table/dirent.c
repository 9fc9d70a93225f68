/*
 * table/dirent.c - directory entries: (directory, hash of the name and tie) -> inode, kind, name.
 *
 * DIRENT-1 An entry's sub never changes while the name exists: it is the readdir cookie, so a listing that goes on
 *          behind a cookie sees each entry that stays exactly once, whatever is made or removed meanwhile.
 * DIRENT-2 No two entries of a directory have one name.
 *
 * Locking: as catalog_scan.
 */
#include "table/catalog_int.h"

#include <errno.h>

#define NAME_MAX_SIZE 255u

struct name_arg {
    const char *name;
    size_t size;
};

static bool dirent_matches(const void *arg, const void *value, size_t value_size)
{
    const struct name_arg *name = arg;
    return value_size == sizeof(struct disk_dirent) + name->size &&
           memcmp((const struct disk_dirent *)value + 1, name->name, name->size) == 0;
}

static int dirent_search(const struct run_reader *reader, const struct name_hash *hash, ino_no parent, const char *name,
                         size_t name_size, struct dirent_found *out_found)
{
    if (name_size > NAME_MAX_SIZE) {
        return -ENAMETOOLONG;
    }
    const struct name_arg arg = {.name = name, .size = name_size};
    struct run_search search;
    search.ino = parent;
    search.type = ITEM_DIRENT;
    search.hash = name_hash_of(hash, name, name_size);
    search.match = dirent_matches;
    search.match_arg = &arg;
    const int rc = run_find(reader, &search);
    if (rc != 0) {
        return rc;
    }
    if (!search.found) {
        return -ENOENT;
    }
    const struct disk_dirent *disk = (const struct disk_dirent *)search.value;
    *out_found = (struct dirent_found){.ino = le64_get(disk->ino), .kind = disk->kind, .cookie = search.found_sub};
    return 0;
}

int dirent_find(struct view *view, const struct name_hash *hash, ino_no parent, const char *name, size_t name_size,
                struct dirent_found *out_found)
{
    const struct run_reader reader = {.view = view};
    return dirent_search(&reader, hash, parent, name, name_size, out_found);
}

int dirent_batch_find(struct catalog_batch *batch, const struct name_hash *hash, ino_no parent, const char *name,
                      size_t name_size, struct dirent_found *out_found)
{
    const struct run_reader reader = {.batch = batch};
    return dirent_search(&reader, hash, parent, name, name_size, out_found);
}

int dirent_batch_new_cookie(struct catalog_batch *batch, const struct name_hash *hash, ino_no parent, const char *name,
                            size_t name_size, uint64_t *out_cookie)
{
    if (name_size > NAME_MAX_SIZE) {
        return -ENAMETOOLONG;
    }
    const struct run_reader reader = {.batch = batch};
    struct run_search search;
    search.ino = parent;
    search.type = ITEM_DIRENT;
    search.hash = name_hash_of(hash, name, name_size);
    search.match = NULL;
    const int rc = run_find(&reader, &search);
    if (rc != 0) {
        return rc;
    }
    if (search.lowest_free_tie == RUN_TIES) {
        return -ENOSPC;
    }
    *out_cookie = run_first_sub(search.hash) | search.lowest_free_tie;
    return 0;
}

static struct catalog_key dirent_key(ino_no parent, uint64_t cookie)
{
    return (struct catalog_key){.ino = parent, .sub = cookie, .type = ITEM_DIRENT};
}

int dirent_batch_put(struct catalog_batch *batch, ino_no parent, uint64_t cookie, const char *name, size_t name_size,
                     ino_no ino, uint8_t kind)
{
    if (name_size > NAME_MAX_SIZE) {
        return -ENAMETOOLONG;
    }
    uint8_t value[sizeof(struct disk_dirent) + NAME_MAX_SIZE];
    const struct disk_dirent disk = {.ino = le64_of(ino), .kind = kind};
    memcpy(value, &disk, sizeof disk);
    memcpy(value + sizeof disk, name, name_size);
    const struct catalog_key key = dirent_key(parent, cookie);
    return catalog_batch_put(batch, &key, value, sizeof disk + name_size);
}

int dirent_batch_remove(struct catalog_batch *batch, ino_no parent, uint64_t cookie)
{
    const struct catalog_key key = dirent_key(parent, cookie);
    return catalog_batch_remove(batch, &key);
}

struct dirent_scan_arg {
    dirent_fn *fn;
    void *arg;
};

static int dirent_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    const struct dirent_scan_arg *scan = arg;
    const struct disk_dirent *disk = value;
    return scan->fn(scan->arg, key->sub, (const char *)(disk + 1), value_size - sizeof *disk, le64_get(disk->ino),
                    disk->kind);
}

int dirent_scan(struct view *view, ino_no parent, uint64_t after, dirent_fn *fn, void *arg)
{
    if (after >= INT64_MAX) {
        return 0;
    }
    const struct catalog_key first = dirent_key(parent, after + 1);
    const struct catalog_key last = dirent_key(parent, INT64_MAX);
    struct dirent_scan_arg scan = {.fn = fn, .arg = arg};
    return catalog_scan(view, &first, &last, dirent_item, &scan);
}
