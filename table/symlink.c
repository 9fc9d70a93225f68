/*
 * table/symlink.c - targets of symbolic links, in parts of SYMLINK_PART_SIZE bytes: (inode, part number) -> bytes.
 *
 * SYMLINK-1 Parts are numbered from 0 without gaps; all but the last are full.
 *
 * Locking: as catalog_scan.
 */
#include "table/catalog_int.h"

#include <errno.h>

struct symlink_read {
    char *buffer;
    size_t capacity, size;
};

static int symlink_part(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct symlink_read *read = arg;
    if (read->size != key->sub * SYMLINK_PART_SIZE) {
        return -EIO; /* SYMLINK-1 */
    }
    if (value_size > read->capacity - read->size) {
        return -ENOBUFS;
    }
    memcpy(read->buffer + read->size, value, value_size);
    read->size += value_size;
    return 0;
}

static struct catalog_key symlink_key(ino_no ino, uint64_t part)
{
    return (struct catalog_key){.ino = ino, .sub = part, .type = ITEM_SYMLINK};
}

int symlink_get(struct view *view, ino_no ino, char *buffer, size_t capacity, size_t *out_size)
{
    struct symlink_read read = {.buffer = buffer, .capacity = capacity};
    const struct catalog_key first = symlink_key(ino, 0);
    const struct catalog_key last = symlink_key(ino, UINT64_MAX);
    const int rc = catalog_scan(view, &first, &last, symlink_part, &read);
    if (rc == -EIO) {
        char name[CATALOG_RELATION_NAME_SIZE];
        catalog_relation_name(view->catalog, name);
        return diag_damage(catalog_view_diag(view), name, BLOCK_NONE, "symbolic link",
                           "inode %llu: its target cannot be read, or a part of it is missing",
                           (unsigned long long)ino);
    }
    if (rc != 0) {
        return rc;
    }
    if (read.size == 0) {
        return -ENOENT;
    }
    *out_size = read.size;
    return 0;
}

int symlink_batch_put(struct catalog_batch *batch, ino_no ino, const char *target, size_t size)
{
    if (size == 0) {
        return -EINVAL;
    }
    int rc = 0;
    for (size_t done = 0; done < size && rc == 0; done += SYMLINK_PART_SIZE) {
        const size_t left = size - done;
        const struct catalog_key key = symlink_key(ino, done / SYMLINK_PART_SIZE);
        rc = catalog_batch_put(batch, &key, target + done, left < SYMLINK_PART_SIZE ? left : SYMLINK_PART_SIZE);
    }
    return rc;
}

int symlink_batch_remove(struct catalog_batch *batch, ino_no ino, size_t size)
{
    int rc = 0;
    for (size_t done = 0; done < size && rc == 0; done += SYMLINK_PART_SIZE) {
        const struct catalog_key key = symlink_key(ino, done / SYMLINK_PART_SIZE);
        rc = catalog_batch_remove(batch, &key);
    }
    return rc;
}
