/*
 * tests/model/model.c - the reference model's inodes: table, entries, bytes, copies.
 */
#include "tests/model/model_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void *model_alloc(size_t size_bytes)
{
    void *memory = calloc(1, size_bytes ? size_bytes : 1);
    assert(memory != NULL);
    return memory;
}

void *model_realloc(void *old, size_t size_bytes)
{
    void *memory = realloc(old, size_bytes ? size_bytes : 1);
    assert(memory != NULL);
    return memory;
}

/* ---- inodes ---- */

struct model_inode *model_find(const struct model *model, ino_no ino)
{
    struct model_inode *inode = NULL;
    HASH_FIND(hh, model->by_ino, &ino, sizeof ino, inode);
    return inode;
}

struct model_inode *model_inode_add(struct model *model, ino_no ino, uint32_t mode)
{
    assert(model_find(model, ino) == NULL);
    struct model_inode *inode = model_alloc(sizeof *inode);
    inode->ino = ino;
    inode->mode = mode;
    if (model->count == model->capacity) {
        model->capacity = model->capacity * 2 + 16;
        model->all = model_realloc(model->all, model->capacity * sizeof(struct model_inode *));
    }
    inode->index = model->count;
    model->all[model->count++] = inode;
    HASH_ADD(hh, model->by_ino, ino, sizeof inode->ino, inode);
    if (ino > model->largest_ino) {
        model->largest_ino = ino;
    }
    return inode;
}

static void free_xattrs(struct model_inode *inode)
{
    for (size_t i = 0; i < inode->xattr_count; i++) {
        free(inode->xattrs[i].name);
        free(inode->xattrs[i].value);
    }
    free(inode->xattrs);
}

static void inode_free(struct model_inode *inode)
{
    for (size_t i = 0; i < inode->entry_count; i++) {
        free(inode->entries[i].name);
    }
    free_xattrs(inode);
    free(inode->entries);
    free(inode->bytes);
    free(inode);
}

static void untouch(struct model *model, const struct model_inode *inode)
{
    for (unsigned i = 0; i < model->touched_count; i++) {
        if (model->touched[i] == inode) {
            model->touched[i] = model->touched[--model->touched_count];
            return;
        }
    }
}

static void inode_remove(struct model *model, struct model_inode *inode)
{
    untouch(model, inode);
    HASH_DEL(model->by_ino, inode);
    struct model_inode *last = model->all[--model->count];
    model->all[inode->index] = last;
    last->index = inode->index;
    model->total_bytes -= inode->size;
    inode_free(inode);
}

void model_inode_drop_if_unused(struct model *model, struct model_inode *inode)
{
    if (inode->nlink == 0 && inode->open_count == 0) {
        inode_remove(model, inode);
    }
}

void model_touch(struct model *model, struct model_inode *inode, unsigned stamps)
{
    inode->stamps |= stamps;
    if (inode->touched) {
        return;
    }
    assert(model->touched_count < MODEL_TOUCHED_MAX);
    inode->touched = true;
    model->touched[model->touched_count++] = inode;
}

void model_begin(struct model *model)
{
    for (unsigned i = 0; i < model->touched_count; i++) {
        assert(model->touched[i]->stamps == 0);
        model->touched[i]->touched = false;
    }
    model->touched_count = 0;
}

void model_learn_time(struct model_inode *inode, const struct store_attr *attr)
{
    if (inode->stamps & MODEL_STAMP_ATIME) {
        inode->atime_ns = attr->atime_ns;
    }
    if (inode->stamps & MODEL_STAMP_MTIME) {
        inode->mtime_ns = attr->mtime_ns;
    }
    if (inode->stamps & MODEL_STAMP_CTIME) {
        inode->ctime_ns = attr->ctime_ns;
    }
    inode->stamps = 0;
}

/* ---- entries, bytes ---- */

const struct model_entry *model_find_entry(const struct model_inode *dir, struct store_name name)
{
    for (size_t i = 0; i < dir->entry_count; i++) {
        const struct model_entry *entry = &dir->entries[i];
        if (entry->name_size == name.size && memcmp(entry->name, name.bytes, name.size) == 0) {
            return entry;
        }
    }
    return NULL;
}

void model_entry_add(struct model_inode *dir, struct store_name name, ino_no ino)
{
    if (dir->entry_count == dir->entry_capacity) {
        dir->entry_capacity = dir->entry_capacity * 2 + 4;
        dir->entries = model_realloc(dir->entries, dir->entry_capacity * sizeof *dir->entries);
    }
    struct model_entry *entry = &dir->entries[dir->entry_count++];
    entry->name = model_alloc(name.size);
    memcpy(entry->name, name.bytes, name.size);
    entry->name_size = name.size;
    entry->ino = ino;
}

void model_entry_remove(struct model_inode *dir, const struct model_entry *entry)
{
    const size_t index = (size_t)(entry - dir->entries);
    free(dir->entries[index].name);
    dir->entries[index] = dir->entries[--dir->entry_count];
}

void model_set_size(struct model *model, struct model_inode *inode, size_t size)
{
    if (size > inode->capacity) {
        inode->capacity = size + size / 2;
        inode->bytes = model_realloc(inode->bytes, inode->capacity);
    }
    if (size > inode->size) {
        memset(inode->bytes + inode->size, 0, size - inode->size);
    }
    model->total_bytes += size;
    model->total_bytes -= inode->size;
    inode->size = size;
}

void model_attr(const struct model *model, const struct model_inode *inode, struct store_attr *out_attr)
{
    uint32_t nlink = inode->nlink;
    if (model_is_dir(inode)) {
        nlink = 2;
        for (size_t i = 0; i < inode->entry_count; i++) {
            const struct model_inode *child = model_find(model, inode->entries[i].ino);
            nlink += model_is_dir(child) ? 1 : 0;
        }
    }
    *out_attr = (struct store_attr){
        .ino = inode->ino,
        .mode = inode->mode,
        .nlink = nlink,
        .uid = inode->uid,
        .gid = inode->gid,
        .rdev = inode->rdev,
        .size_bytes = inode->size,
        .atime_ns = inode->atime_ns,
        .mtime_ns = inode->mtime_ns,
        .ctime_ns = inode->ctime_ns,
    };
}

/* ---- whole models ---- */

struct model *model_new(uint32_t root_mode)
{
    struct model *model = model_alloc(sizeof *model);
    struct model_inode *root = model_inode_add(model, INO_ROOT, S_IFDIR | root_mode);
    root->nlink = 1;
    root->parent = INO_ROOT;
    return model;
}

void model_free(struct model *model)
{
    if (model == NULL) {
        return;
    }
    HASH_CLEAR(hh, model->by_ino);
    for (size_t i = 0; i < model->count; i++) {
        inode_free(model->all[i]);
    }
    free(model->all);
    free(model);
}

static void copy_xattrs(struct model_inode *to, const struct model_inode *from)
{
    to->xattr_count = from->xattr_count;
    to->xattrs = model_alloc(from->xattr_count * sizeof *to->xattrs);
    for (size_t i = 0; i < from->xattr_count; i++) {
        const struct model_xattr *xattr = &from->xattrs[i];
        to->xattrs[i].name = strdup(xattr->name);
        assert(to->xattrs[i].name != NULL);
        to->xattrs[i].value = model_alloc(xattr->value_size);
        memcpy(to->xattrs[i].value, xattr->value, xattr->value_size);
        to->xattrs[i].value_size = xattr->value_size;
    }
}

void model_inode_restore(struct model *model, struct model_inode *inode, const struct model_inode *copy)
{
    inode->mode = copy->mode;
    inode->nlink = copy->nlink;
    inode->uid = copy->uid;
    inode->gid = copy->gid;
    inode->rdev = copy->rdev;
    inode->atime_ns = copy->atime_ns;
    inode->mtime_ns = copy->mtime_ns;
    inode->ctime_ns = copy->ctime_ns;
    inode->parent = copy->parent;
    model_set_size(model, inode, copy->size);
    if (copy->size > 0) {
        memcpy(inode->bytes, copy->bytes, copy->size);
    }
    free_xattrs(inode);
    copy_xattrs(inode, copy);
}

struct model_inode *model_inode_copy(struct model *model, const struct model_inode *from, ino_no ino)
{
    struct model_inode *to = model_inode_add(model, ino, from->mode);
    model_inode_restore(model, to, from);
    for (size_t i = 0; i < from->entry_count; i++) {
        const struct model_entry *entry = &from->entries[i];
        model_entry_add(to, (struct store_name){entry->name, entry->name_size}, entry->ino);
    }
    return to;
}

struct model *model_copy(const struct model *model)
{
    struct model *copy = model_alloc(sizeof *copy);
    for (size_t i = 0; i < model->count; i++) {
        if (model->all[i]->nlink > 0) {
            (void)model_inode_copy(copy, model->all[i], model->all[i]->ino);
        }
    }
    copy->largest_ino = model->largest_ino;
    return copy;
}
