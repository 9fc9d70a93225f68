/*
 * tests/model/model_data.c - the reference model's attributes and content.
 */
#include "tests/model/model_int.h"

#include "tests/model/journal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define STAMPS_CHANGED ((unsigned)MODEL_STAMP_MTIME | (unsigned)MODEL_STAMP_CTIME)
#define PERMISSIONS    07777u

void model_kill_suid(struct model_inode *inode)
{
    if (S_ISDIR(inode->mode)) {
        return;
    }
    inode->mode &= ~(uint32_t)S_ISUID;
    if (inode->mode & S_IXGRP) {
        inode->mode &= ~(uint32_t)S_ISGID;
    }
}

static int check_setattr(const struct model_inode *inode, unsigned set, const struct store_attr *attr)
{
    if (!(set & STORE_SET_SIZE)) {
        return 0;
    }
    if (model_is_dir(inode)) {
        return -EISDIR;
    }
    if (!S_ISREG(inode->mode)) {
        return -EINVAL;
    }
    return attr->size_bytes > CONTENT_MAX_BYTES ? -EFBIG : 0;
}

static void set_times(struct model *model, struct model_inode *inode, unsigned set, const struct store_attr *attr)
{
    if (set & STORE_SET_ATIME_NOW) {
        model_touch(model, inode, MODEL_STAMP_ATIME);
    } else if (set & STORE_SET_ATIME) {
        inode->atime_ns = attr->atime_ns;
    }
    if (set & STORE_SET_MTIME_NOW) {
        model_touch(model, inode, MODEL_STAMP_MTIME);
    } else if (set & STORE_SET_MTIME) {
        inode->mtime_ns = attr->mtime_ns;
        inode->stamps &= ~(unsigned)MODEL_STAMP_MTIME;
    }
}

int model_setattr(struct model *model, ino_no ino, unsigned set, const struct store_attr *attr)
{
    struct model_inode *inode = model_find(model, ino);
    if (inode == NULL || inode->replaced) {
        return -ENOENT;
    }
    int result = check_setattr(inode, set, attr);
    if (result < 0 || (set & ~STORE_SET_KILL_SUID) == 0) {
        return result;
    }
    journal_setattr(model, inode, set, attr);
    model_touch(model, inode, MODEL_STAMP_CTIME);
    if (set & STORE_SET_SIZE) {
        model_set_size(model, inode, attr->size_bytes);
        model_touch(model, inode, MODEL_STAMP_MTIME);
    }
    if ((set & STORE_SET_KILL_SUID) && (set & (STORE_SET_SIZE | STORE_SET_UID | STORE_SET_GID))) {
        model_kill_suid(inode);
    }
    if (set & STORE_SET_MODE) {
        inode->mode = (inode->mode & S_IFMT) | (attr->mode & PERMISSIONS);
    }
    if (set & STORE_SET_UID) {
        inode->uid = attr->uid;
    }
    if (set & STORE_SET_GID) {
        inode->gid = attr->gid;
    }
    set_times(model, inode, set, attr);
    return 0;
}

/* ---- extended attributes ---- */

const struct model_xattr *model_find_xattr(const struct model_inode *inode, const char *name)
{
    for (size_t i = 0; i < inode->xattr_count; i++) {
        if (strcmp(inode->xattrs[i].name, name) == 0) {
            return &inode->xattrs[i];
        }
    }
    return NULL;
}

static struct model_xattr *xattr_slot(struct model_inode *inode, const char *name)
{
    const struct model_xattr *found = model_find_xattr(inode, name);
    if (found != NULL) {
        return inode->xattrs + (found - inode->xattrs);
    }
    inode->xattrs = model_realloc(inode->xattrs, (inode->xattr_count + 1) * sizeof *inode->xattrs);
    struct model_xattr *added = &inode->xattrs[inode->xattr_count++];
    *added = (struct model_xattr){.name = strdup(name)};
    assert(added->name != NULL);
    return added;
}

int model_setxattr(struct model *model, ino_no ino, const char *name, const void *value, size_t value_size,
                   unsigned flags)
{
    struct model_inode *inode = model_find(model, ino);
    if (inode == NULL) {
        return -ENOENT;
    }
    if (value_size > XATTR_MAX_VALUE) {
        return -ENOSPC;
    }
    const bool there = model_find_xattr(inode, name) != NULL;
    if (there && (flags & STORE_XATTR_CREATE)) {
        return -EEXIST;
    }
    if (!there && (flags & STORE_XATTR_REPLACE)) {
        return -ENODATA;
    }
    struct model_xattr *xattr = xattr_slot(inode, name);
    xattr->value = model_realloc(xattr->value, value_size);
    memcpy(xattr->value, value, value_size);
    xattr->value_size = value_size;
    journal_add(model,
                &(struct model_op){
                    .kind = MODEL_OP_SETXATTR, .ino = ino, .name = {name, strlen(name)}, .value = {value, value_size}});
    model_touch(model, inode, MODEL_STAMP_CTIME);
    return 0;
}

int model_removexattr(struct model *model, ino_no ino, const char *name)
{
    struct model_inode *inode = model_find(model, ino);
    if (inode == NULL) {
        return -ENOENT;
    }
    const struct model_xattr *found = model_find_xattr(inode, name);
    if (found == NULL) {
        return -ENODATA;
    }
    const size_t index = (size_t)(found - inode->xattrs);
    journal_add(model, &(struct model_op){.kind = MODEL_OP_REMOVEXATTR, .ino = ino, .name = {name, strlen(name)}});
    free(inode->xattrs[index].name);
    free(inode->xattrs[index].value);
    inode->xattrs[index] = inode->xattrs[--inode->xattr_count];
    model_touch(model, inode, MODEL_STAMP_CTIME);
    return 0;
}

/* ---- content ---- */

int model_open(struct model *model, ino_no ino)
{
    struct model_inode *inode = model_find(model, ino);
    if (inode == NULL || inode->nlink == 0) {
        return -ENOENT;
    }
    if (model_is_dir(inode)) {
        return -EISDIR;
    }
    if (!S_ISREG(inode->mode)) {
        return -EINVAL;
    }
    inode->open_count++;
    return 0;
}

void model_close(struct model *model, struct model_inode *inode)
{
    assert(inode->open_count > 0);
    inode->open_count--;
    model_inode_drop_if_unused(model, inode);
}

int model_write(struct model *model, struct model_inode *inode, uint64_t offset, const void *bytes, size_t size,
                unsigned flags, uint64_t *out_end)
{
    *out_end = inode->size;
    if (size == 0) {
        return 0;
    }
    if (flags & STORE_WRITE_APPEND) {
        offset = inode->size;
    }
    if (offset > CONTENT_MAX_BYTES || size > CONTENT_MAX_BYTES - offset) {
        return -EFBIG;
    }
    if (inode->replaced) {
        return -ESTALE;
    }
    if (flags & STORE_WRITE_NO_EXTEND) {
        if (offset >= inode->size) {
            return 0;
        }
        size = size < inode->size - offset ? size : inode->size - (size_t)offset;
    }
    journal_content(model, inode, offset == inode->size, (flags & STORE_WRITE_KILL_SUID) != 0);
    if (offset + size > inode->size) {
        model_set_size(model, inode, offset + size);
    }
    memcpy(inode->bytes + offset, bytes, size);
    if (flags & STORE_WRITE_KILL_SUID) {
        model_kill_suid(inode);
    }
    model_touch(model, inode, STAMPS_CHANGED);
    *out_end = inode->size;
    return 0;
}

static int check_allocate(uint64_t offset, uint64_t size, unsigned mode)
{
    if (size == 0) {
        return -EINVAL;
    }
    if ((mode & STORE_ALLOCATE_PUNCH) && !(mode & STORE_ALLOCATE_KEEP_SIZE)) {
        return -EOPNOTSUPP;
    }
    if (offset > CONTENT_MAX_BYTES || size > CONTENT_MAX_BYTES - offset) {
        return -EFBIG;
    }
    return 0;
}

int model_allocate(struct model *model, struct model_inode *inode, uint64_t offset, uint64_t size, unsigned mode)
{
    int result = check_allocate(offset, size, mode);
    if (result < 0) {
        return result;
    }
    const uint64_t end = offset + size;
    const bool zeroes = (mode & (STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_ZERO)) != 0;
    if (inode->replaced) {
        return zeroes || !(mode & STORE_ALLOCATE_KEEP_SIZE) ? -ESTALE : 0;
    }
    if (zeroes && offset < inode->size) {
        const uint64_t clipped = end < inode->size ? end : inode->size;
        memset(inode->bytes + offset, 0, clipped - offset);
        journal_content(model, inode, false, false);
        model_touch(model, inode, STAMPS_CHANGED);
    }
    if (!(mode & STORE_ALLOCATE_KEEP_SIZE) && end > inode->size) {
        model_set_size(model, inode, end);
        journal_content(model, inode, false, false);
        model_touch(model, inode, STAMPS_CHANGED);
    }
    return 0;
}
