/*
 * table/inode.c - inode items: struct inode to struct disk_inode and back.
 *
 * Locking: as catalog_get.
 */
#include "table/catalog_int.h"

#include <errno.h>

static struct catalog_key inode_key(ino_no ino)
{
    return (struct catalog_key){.ino = ino, .sub = 0, .type = ITEM_INODE};
}

int inode_decode(const struct catalog_key *key, const void *value, size_t value_size, struct inode *out_inode)
{
    if (key->type != ITEM_INODE || catalog_item_fault(key, value, value_size) != NULL) {
        return -EIO;
    }
    const struct disk_inode *disk = value;
    *out_inode = (struct inode){
        .ino = key->ino,
        .mode = le32_get(disk->mode),
        .nlink = le32_get(disk->nlink),
        .uid = le32_get(disk->uid),
        .gid = le32_get(disk->gid),
        .rdev = le32_get(disk->rdev),
        .ts = le32_get(disk->ts),
        .atime_ns = (int64_t)le64_get(disk->atime_ns),
        .mtime_ns = (int64_t)le64_get(disk->mtime_ns),
        .ctime_ns = (int64_t)le64_get(disk->ctime_ns),
        .rel = le64_get(disk->rel),
        .rel_created = le64_get(disk->rel_created),
        .content_ptr = disk_page_ptr_get(&disk->content),
        .content_height = disk->content_height,
        .flags = disk->flags,
        .content_leaves = le32_get(disk->content_leaves),
        .size_bytes = le64_get(disk->content_bytes),
        .change_epoch = le64_get(disk->change_epoch),
        .rewrite_epoch = le64_get(disk->rewrite_epoch),
        .attr_epoch = le64_get(disk->attr_epoch),
        .parent = le64_get(disk->parent),
        .name_cookie = le64_get(disk->name_cookie),
    };
    return 0;
}

static struct disk_inode inode_encode(const struct inode *inode)
{
    return (struct disk_inode){
        .mode = le32_of(inode->mode),
        .nlink = le32_of(inode->nlink),
        .uid = le32_of(inode->uid),
        .gid = le32_of(inode->gid),
        .rdev = le32_of(inode->rdev),
        .ts = le32_of(inode->ts),
        .atime_ns = le64_of((uint64_t)inode->atime_ns),
        .mtime_ns = le64_of((uint64_t)inode->mtime_ns),
        .ctime_ns = le64_of((uint64_t)inode->ctime_ns),
        .rel = le64_of(inode->rel),
        .rel_created = le64_of(inode->rel_created),
        .content = disk_page_ptr_of(inode->content_ptr),
        .content_bytes = le64_of(inode->size_bytes),
        .change_epoch = le64_of(inode->change_epoch),
        .rewrite_epoch = le64_of(inode->rewrite_epoch),
        .attr_epoch = le64_of(inode->attr_epoch),
        .parent = le64_of(inode->parent),
        .name_cookie = le64_of(inode->name_cookie),
        .content_height = inode->content_height,
        .flags = inode->flags,
        .content_leaves = le32_of(inode->content_leaves),
    };
}

/* What catalog_get or catalog_batch_get brought. A value too large for an inode is damage, not a short buffer. */
static int inode_finish(int rc, const struct catalog_key *key, const struct disk_inode *disk, size_t size,
                        struct inode *out_inode)
{
    if (rc == 0) {
        rc = inode_decode(key, disk, size, out_inode);
    }
    return rc == -ENOBUFS ? -EIO : rc;
}

int inode_get(struct view *view, ino_no ino, struct inode *out_inode)
{
    const struct catalog_key key = inode_key(ino);
    struct disk_inode disk;
    size_t size = 0;
    const int rc = catalog_get(view, &key, &disk, sizeof disk, &size);
    return inode_finish(rc, &key, &disk, size, out_inode);
}

int inode_batch_get(struct catalog_batch *batch, ino_no ino, struct inode *out_inode)
{
    const struct catalog_key key = inode_key(ino);
    struct disk_inode disk;
    size_t size = 0;
    const int rc = catalog_batch_get(batch, &key, &disk, sizeof disk, &size);
    return inode_finish(rc, &key, &disk, size, out_inode);
}

int inode_batch_put(struct catalog_batch *batch, const struct inode *inode)
{
    const struct catalog_key key = inode_key(inode->ino);
    const struct disk_inode disk = inode_encode(inode);
    return catalog_batch_put(batch, &key, &disk, sizeof disk);
}

int inode_batch_remove(struct catalog_batch *batch, ino_no ino)
{
    const struct catalog_key key = inode_key(ino);
    return catalog_batch_remove(batch, &key);
}
