/*
 * table/owner.c - owners of relations: relation -> the inode that has it now, and the one that had it first.
 *
 * A table that a transaction rewrote has a new inode number and its old relation. In each version of the tree a relation has one owner:
 *
 * OWNER-1 An inode that has INODE_RENUMBERED has an owner item for its relation, which names it. All others own the relation that was made
 *         for them, without an item.
 *
 * Locking: as catalog_get.
 */
#include "table/catalog_int.h"

#include <errno.h>

static struct catalog_key owner_key(rel_no rel)
{
    return (struct catalog_key){.ino = INO_NONE, .sub = rel, .type = ITEM_OWNER};
}

static int owner_decode(int rc, const struct disk_owner *disk, size_t size, struct relation_owner *out_owner)
{
    if (rc != 0) {
        return rc;
    }
    if (size != sizeof *disk) {
        return -EIO;
    }
    *out_owner = (struct relation_owner){.owner = le64_get(disk->owner), .first = le64_get(disk->first)};
    return 0;
}

int owner_get(struct view *view, rel_no rel, struct relation_owner *out_owner)
{
    const struct catalog_key key = owner_key(rel);
    struct disk_owner disk;
    size_t size = 0;
    const int rc = catalog_get(view, &key, &disk, sizeof disk, &size);
    return owner_decode(rc, &disk, size, out_owner);
}

int owner_batch_get(struct catalog_batch *batch, rel_no rel, struct relation_owner *out_owner)
{
    const struct catalog_key key = owner_key(rel);
    struct disk_owner disk;
    size_t size = 0;
    const int rc = catalog_batch_get(batch, &key, &disk, sizeof disk, &size);
    return owner_decode(rc, &disk, size, out_owner);
}

int owner_batch_put(struct catalog_batch *batch, rel_no rel, const struct relation_owner *owner)
{
    const struct catalog_key key = owner_key(rel);
    const struct disk_owner disk = {.owner = le64_of(owner->owner), .first = le64_of(owner->first)};
    return catalog_batch_put(batch, &key, &disk, sizeof disk);
}

int owner_batch_remove(struct catalog_batch *batch, rel_no rel)
{
    const struct catalog_key key = owner_key(rel);
    return catalog_batch_remove(batch, &key);
}
