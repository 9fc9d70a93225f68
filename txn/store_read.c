/*
 * txn/store_read.c - what only looks: lookup, attributes, directories, links, attributes by name.
 *
 * Locking: the view's catalog lock, shared; a small frame budget taken before it.
 */
#include "txn/store_int.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int store_read_enter(struct store *store, struct view *view, struct frame_budget *out_budget)
{
    const int rc = frame_budget_take(store->cache, STORE_READ_PINS, 0, out_budget);
    if (rc == 0) {
        rwlock_lock_shared(&view->catalog_lock);
    }
    return rc;
}

void store_read_leave(struct view *view, struct frame_budget *budget)
{
    rwlock_unlock_shared(&view->catalog_lock);
    frame_budget_release(budget);
}

/* st_blocks: leaves are whole blocks of 16 sectors; holes have none. */
static uint64_t blocks_512_of(const struct inode *inode)
{
    return (uint64_t)inode->content_leaves * (BLOCK_SIZE / 512);
}

void store_attr_of(const struct inode *inode, struct store_attr *out_attr)
{
    *out_attr = (struct store_attr){
        .ino = inode->ino,
        .mode = inode->mode,
        .nlink = inode->nlink,
        .uid = inode->uid,
        .gid = inode->gid,
        .rdev = inode->rdev,
        .size_bytes = S_ISDIR(inode->mode) ? BLOCK_SIZE : inode->size_bytes,
        .blocks_512 = blocks_512_of(inode),
        .atime_ns = inode->atime_ns,
        .mtime_ns = inode->mtime_ns,
        .ctime_ns = inode->ctime_ns,
    };
}

static int get_attr_locked(struct view *view, ino_no ino, struct store_attr *out_attr)
{
    struct inode inode;
    const int rc = inode_get(view, ino, &inode);
    if (rc == 0) {
        store_attr_of(&inode, out_attr);
    }
    return rc;
}

/* A name leads to an inode; when that one is missing, the catalog is damaged. */
static int get_named_attr_locked(struct store *store, struct view *view, ino_no parent, ino_no ino,
                                 struct store_attr *out_attr)
{
    const int rc = get_attr_locked(view, ino, out_attr);
    if (rc == -ENOENT) {
        return diag_damage(store->diag, "catalog", BLOCK_NONE, "inode", "inode %llu named in directory %llu is missing",
                           (unsigned long long)ino, (unsigned long long)parent);
    }
    return rc;
}

static int require_dir_locked(struct view *view, ino_no dir)
{
    struct inode inode;
    const int rc = inode_get(view, dir, &inode);
    if (rc != 0) {
        return rc;
    }
    return S_ISDIR(inode.mode) ? 0 : -ENOTDIR;
}

int store_lookup(struct store *store, struct view *view, ino_no parent, struct store_name name,
                 struct store_attr *out_attr)
{
    struct frame_budget budget;
    int rc = store_read_enter(store, view, &budget);
    if (rc != 0) {
        return rc;
    }
    struct dirent_found found;
    rc = dirent_find(view, &store->hash, parent, name.bytes, name.size, &found);
    if (rc == 0) {
        rc = get_named_attr_locked(store, view, parent, found.ino, out_attr);
    } else if (rc == -ENOENT) {
        const int dir_rc = require_dir_locked(view, parent);
        rc = dir_rc != 0 ? dir_rc : rc;
    }
    store_read_leave(view, &budget);
    return rc;
}

int store_getattr(struct store *store, struct view *view, ino_no ino, struct store_attr *out_attr)
{
    struct frame_budget budget;
    int rc = store_read_enter(store, view, &budget);
    if (rc == 0) {
        rc = get_attr_locked(view, ino, out_attr);
        store_read_leave(view, &budget);
    }
    return rc;
}

int store_readlink(struct store *store, struct view *view, ino_no ino, char *buffer, size_t capacity, size_t *out_size)
{
    struct frame_budget budget;
    int rc = store_read_enter(store, view, &budget);
    if (rc != 0) {
        return rc;
    }
    struct inode inode;
    rc = inode_get(view, ino, &inode);
    if (rc == 0 && !S_ISLNK(inode.mode)) {
        rc = -EINVAL;
    }
    if (rc == 0) {
        rc = symlink_get(view, ino, buffer, capacity, out_size);
    }
    store_read_leave(view, &budget);
    return rc;
}

int store_parent(struct store *store, struct view *view, ino_no dir, ino_no *out_parent)
{
    struct frame_budget budget;
    int rc = store_read_enter(store, view, &budget);
    if (rc != 0) {
        return rc;
    }
    struct inode inode;
    rc = inode_get(view, dir, &inode);
    if (rc == 0) {
        *out_parent = inode.parent;
    }
    store_read_leave(view, &budget);
    return rc;
}

/* Only damage is the caller's business: what is not there, and a store that takes no changes, the operation finds itself. */
static int warm_result(const struct store *store, int rc)
{
    return rc == -EIO && store_check_writable(store) == 0 ? rc : 0;
}

int store_warm_inode(struct store *store, struct view *view, ino_no ino)
{
    struct frame_budget budget;
    struct inode inode;
    int rc = store_read_enter(store, view, &budget);
    if (rc == 0) {
        rc = inode_get(view, ino, &inode);
        store_read_leave(view, &budget);
    }
    return warm_result(store, rc);
}

int store_warm_name(struct store *store, struct view *view, ino_no parent, struct store_name name)
{
    struct frame_budget budget;
    struct inode inode;
    struct dirent_found found;
    int rc = store_read_enter(store, view, &budget);
    if (rc != 0) {
        return warm_result(store, rc);
    }
    rc = inode_get(view, parent, &inode);
    if (rc == 0) {
        rc = dirent_find(view, &store->hash, parent, name.bytes, name.size, &found);
    }
    if (rc == 0) {
        rc = inode_get(view, found.ino, &inode);
    }
    store_read_leave(view, &budget);
    return warm_result(store, rc);
}

struct readdir_arg {
    struct store *store;
    struct view *view;
    ino_no dir;
    bool with_attr;
    store_dir_fn *fn;
    void *fn_arg;
};

static int readdir_entry(void *arg, uint64_t cookie, const char *name, size_t name_size, ino_no ino, uint8_t kind)
{
    const struct readdir_arg *ra = arg;
    struct store_attr attr;
    if (ra->with_attr) {
        const int rc = get_named_attr_locked(ra->store, ra->view, ra->dir, ino, &attr);
        if (rc != 0) {
            return rc;
        }
    }
    const struct store_dir_entry entry = {
        .cookie = cookie,
        .name = name,
        .name_size = name_size,
        .ino = ino,
        .mode_type = (uint32_t)kind << 12,
        .attr = ra->with_attr ? &attr : NULL,
    };
    return ra->fn(ra->fn_arg, &entry);
}

int store_readdir(struct store *store, struct view *view, ino_no dir, uint64_t after, bool with_attr, store_dir_fn *fn,
                  void *arg)
{
    struct frame_budget budget;
    int rc = store_read_enter(store, view, &budget);
    if (rc != 0) {
        return rc;
    }
    struct readdir_arg ra = {.store = store, .view = view, .dir = dir, .with_attr = with_attr, .fn = fn, .fn_arg = arg};
    rc = dirent_scan(view, dir, after, readdir_entry, &ra);
    store_read_leave(view, &budget);
    return rc > 0 ? 0 : rc;
}

/* What is no item: where it lies. -ENODATA; -ENOENT: there is no such inode. */
static int get_own_xattr(struct store *store, struct view *view, ino_no ino, const char *name,
                         char value[STORE_NAME_MAX + 1], size_t *out_size)
{
    struct inode inode;
    int rc = inode_get(view, ino, &inode);
    if (rc == 0 && (strcmp(name, STORE_XATTR_TABLESPACE) != 0 || inode.ts == TS_DEFAULT)) {
        rc = -ENODATA;
    }
    if (rc == 0) {
        rc = store_tablespace_name(store, inode.ts, value) == 0 ? 0 : -ENODATA;
    }
    if (rc == 0) {
        *out_size = strlen(value);
    }
    return rc;
}

int store_getxattr(struct store *store, struct view *view, ino_no ino, const char *name, void *buffer, size_t capacity,
                   size_t *out_size)
{
    uint8_t value[XATTR_MAX_VALUE];
    struct frame_budget budget;
    int rc = store_read_enter(store, view, &budget);
    if (rc != 0) {
        return rc;
    }
    size_t size = 0;
    rc = xattr_get(view, &store->hash, ino, name, value, sizeof value, &size);
    if (rc == -ENODATA) {
        rc = get_own_xattr(store, view, ino, name, (char *)value, &size);
    }
    store_read_leave(view, &budget);
    if (rc != 0) {
        return rc;
    }
    if (capacity != 0 && size > capacity) {
        return -ERANGE;
    }
    if (capacity != 0) {
        memcpy(buffer, value, size);
    }
    *out_size = size;
    return 0;
}

struct listxattr_arg {
    char *buffer;
    size_t capacity, size;
};

static int listxattr_entry(void *arg, uint64_t cookie, const char *name, size_t name_size, const void *value,
                           size_t value_size)
{
    (void)cookie;
    (void)value;
    (void)value_size;
    struct listxattr_arg *la = arg;
    if (la->size + name_size + 1 <= la->capacity) {
        memcpy(la->buffer + la->size, name, name_size);
        la->buffer[la->size + name_size] = '\0';
    }
    la->size += name_size + 1;
    return 0;
}

int store_listxattr(struct store *store, struct view *view, ino_no ino, char *buffer, size_t capacity, size_t *out_size)
{
    struct frame_budget budget;
    int rc = store_read_enter(store, view, &budget);
    if (rc != 0) {
        return rc;
    }
    struct listxattr_arg la = {.buffer = buffer, .capacity = capacity};
    struct inode inode;
    rc = inode_get(view, ino, &inode);
    if (rc == 0) {
        rc = xattr_scan(view, ino, listxattr_entry, &la);
    }
    if (rc == 0 && store_tablespace_for(store, inode.ts) != TS_DEFAULT) {
        rc = listxattr_entry(&la, 0, STORE_XATTR_TABLESPACE, strlen(STORE_XATTR_TABLESPACE), NULL, 0);
    }
    store_read_leave(view, &budget);
    if (rc == 0 && capacity != 0 && la.size > capacity) {
        rc = -ERANGE;
    }
    if (rc == 0) {
        *out_size = la.size;
    }
    return rc;
}
