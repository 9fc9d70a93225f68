/*
 * fusefs/ops_attr.c - attributes and extended attributes.
 *
 * What the kernel learns here it keeps (FUSE-4): the live tree changes only through this mount, and the kernel drops
 * what it changed itself. An open file answers for itself, so that one without a name goes on working.
 *
 * Locking: none of its own.
 */
#include "fusefs/drops.h"
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define NANOSECONDS_IN_SECOND INT64_C(1000000000)
/* st_blksize: what buffering programs read and write at a time. 255 pages come in one request, whole (fusefs/ops_data.c). */
#define IO_SIZE_BYTES         1044480
#define NAME_MAX_BYTES        255u
#define TIMEOUT_TRANSACTION_S 1.0

int stale_if_gone(int rc)
{
    return rc == -ENOENT ? -ESTALE : rc;
}

void reply_error(fuse_req_t req, int rc)
{
    (void)fuse_reply_err(req, -rc);
}

static struct timespec timespec_of(int64_t time_ns)
{
    struct timespec time = {.tv_sec = time_ns / NANOSECONDS_IN_SECOND, .tv_nsec = time_ns % NANOSECONDS_IN_SECOND};
    if (time.tv_nsec < 0) {
        time.tv_sec -= 1;
        time.tv_nsec += NANOSECONDS_IN_SECOND;
    }
    return time;
}

/* Times beyond the year 2262 (or before 1677) become the nearest that can be kept. */
static int64_t time_ns_of(struct timespec time)
{
    int64_t time_ns;
    if (__builtin_mul_overflow((int64_t)time.tv_sec, NANOSECONDS_IN_SECOND, &time_ns) ||
        __builtin_add_overflow(time_ns, (int64_t)time.tv_nsec, &time_ns))
        return time.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return time_ns;
}

void attr_to_stat(const struct node_tree *tree, const struct store_attr *attr, struct stat *out_stat)
{
    *out_stat = (struct stat){
        .st_ino = node_tree_st_ino(tree, attr->ino),
        .st_mode = attr->mode,
        .st_nlink = attr->nlink,
        .st_uid = attr->uid,
        .st_gid = attr->gid,
        .st_rdev = attr->rdev,
        .st_size = (off_t)attr->size_bytes,
        .st_blocks = (blkcnt_t)attr->blocks_512,
        .st_blksize = IO_SIZE_BYTES,
        .st_atim = timespec_of(attr->atime_ns),
        .st_mtim = timespec_of(attr->mtime_ns),
        .st_ctim = timespec_of(attr->ctime_ns),
    };
    if (attr->ino == INO_ROOT && node_tree_is(tree, NODE_TREE_TRANSACTION))
        transaction_root_stat(tree, out_stat);
}

/* A transaction's directory shows when anything in it changed last. */
double attr_timeout_s(const struct node_tree *tree, ino_no ino)
{
    return ino == INO_ROOT && node_tree_is(tree, NODE_TREE_TRANSACTION) ? TIMEOUT_TRANSACTION_S : TIMEOUT_LONG_S;
}

int entry_make(struct fusefs *fs, struct node_tree *tree, const struct store_attr *attr,
               struct fuse_entry_param *out_entry)
{
    uint64_t id;
    const int rc = node_enter(fs->nodes, tree, attr->ino, attr->mode & S_IFMT, &id);
    if (rc != 0)
        return rc;
    *out_entry = (struct fuse_entry_param){
        .ino = id, .attr_timeout = attr_timeout_s(tree, attr->ino), .entry_timeout = TIMEOUT_LONG_S};
    attr_to_stat(tree, attr, &out_entry->attr);
    return 0;
}

void reply_entry(fuse_req_t req, struct node_tree *tree, const struct store_attr *attr)
{
    struct fusefs *fs = fusefs_of(req);
    struct fuse_entry_param entry;
    const int rc = entry_make(fs, tree, attr, &entry);
    if (rc != 0)
        reply_error(req, rc);
    else if (fuse_reply_entry(req, &entry) != 0)
        node_forget(fs->nodes, entry.ino, 1); /* FUSE-2 */
}

/* A directory that was removed goes on being a directory, for whoever stands in it. */
static int getattr_by_inode(struct fusefs *fs, const struct node_identity *node, struct store_attr *out_attr)
{
    const int rc = store_getattr(fs->store, node->view, node->ino, out_attr);
    if (rc == -ENOENT && node->type == S_IFDIR && node_last_attr(fs->nodes, node->id, out_attr))
        return 0;
    return stale_if_gone(rc);
}

/* Attributes by the open file if there is one: it may have lost its last name. */
static int node_getattr(struct fusefs *fs, const struct node_identity *node, struct store_attr *out_attr)
{
    struct open_file *open = node_open_use(fs->nodes, node->id);
    if (open == NULL)
        return getattr_by_inode(fs, node, out_attr);
    const int rc = store_file_getattr(open->file, out_attr);
    open_file_unuse(fs, node->id);
    return rc;
}

static void reply_attr(fuse_req_t req, const struct node_tree *tree, const struct store_attr *attr)
{
    struct stat stat;
    attr_to_stat(tree, attr, &stat);
    (void)fuse_reply_attr(req, &stat, attr_timeout_s(tree, attr->ino));
}

/* By the open file. The kernel does not keep it: a name may lead to the node for a moment, and must not answer with it. */
static void reply_attr_of_file(fuse_req_t req, const struct open_file *open)
{
    struct store_attr attr;
    struct stat stat;
    const int rc = store_file_getattr(open->file, &attr);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    attr_to_stat(open->tree, &attr, &stat);
    (void)fuse_reply_attr(req, &stat, 0);
}

/* What is open in a tree that is gone still has its attributes, and so has what is asked for through a handle. False: answer as if
 * it were not open. */
static bool reply_attr_if_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    if ((fi == NULL || fi->fh == 0) && node_is_stale(fs->nodes, ino))
        return false; /* NODE-6 */
    struct open_file *open = node_open_use(fs->nodes, ino);
    if (open == NULL)
        return false;
    reply_attr_of_file(req, open);
    open_file_unuse(fs, ino);
    return true;
}

void serve_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    struct store_attr attr;
    int rc = node_find(fs->nodes, ino, &node);
    if (rc != 0 && reply_attr_if_open(req, ino, fi))
        return;
    if (rc == 0 && node_is_virtual(&node)) {
        virtual_getattr(req, &node);
        return;
    }
    if (rc == 0)
        rc = node_getattr(fs, &node, &attr);
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_attr(req, node.tree, &attr);
}

/* STORE_SET_* of what libfuse calls FUSE_SET_ATTR_*. Change times are the store's business. */
static unsigned set_of(int to_set)
{
    static const struct {
        int fuse;
        unsigned store;
    } pairs[] = {
        {FUSE_SET_ATTR_MODE, STORE_SET_MODE},   {FUSE_SET_ATTR_UID, STORE_SET_UID},
        {FUSE_SET_ATTR_GID, STORE_SET_GID},     {FUSE_SET_ATTR_SIZE, STORE_SET_SIZE},
        {FUSE_SET_ATTR_ATIME, STORE_SET_ATIME}, {FUSE_SET_ATTR_MTIME, STORE_SET_MTIME},
    };
    unsigned set = 0;
    for (size_t index = 0; index < ARRAY_COUNT(pairs); index++) {
        if ((to_set & pairs[index].fuse) != 0)
            set |= pairs[index].store;
    }
    if ((to_set & FUSE_SET_ATTR_ATIME_NOW) != 0)
        set = (set & ~STORE_SET_ATIME) | STORE_SET_ATIME_NOW;
    if ((to_set & FUSE_SET_ATTR_MTIME_NOW) != 0)
        set = (set & ~STORE_SET_MTIME) | STORE_SET_MTIME_NOW;
    return set;
}

/* As the kernel would, were it asked to: a new owner ends set-user-id whoever gives it, a new size unless root sets it.
 * A directory's set-group-id bit means something else and stays. */
static unsigned kill_priv_of(fuse_req_t req, const struct node_identity *node, unsigned set)
{
    if (!kernel_leaves_kill_priv(&fusefs_of(req)->link) || node->type == S_IFDIR)
        return 0;
    if ((set & (STORE_SET_UID | STORE_SET_GID)) != 0)
        return STORE_SET_KILL_SUID;
    if ((set & STORE_SET_SIZE) != 0 && fuse_req_ctx(req)->uid != 0)
        return STORE_SET_KILL_SUID;
    return 0;
}

static int node_setattr(struct fusefs *fs, const struct node_identity *node, unsigned set, const struct stat *stat,
                        struct store_attr *out_attr)
{
    const struct store_attr attr = {
        .mode = stat->st_mode,
        .uid = stat->st_uid,
        .gid = stat->st_gid,
        .size_bytes = (uint64_t)stat->st_size,
        .atime_ns = time_ns_of(stat->st_atim),
        .mtime_ns = time_ns_of(stat->st_mtim),
    };
    struct open_file *open = node_open_use(fs->nodes, node->id);
    const int rc = store_setattr(fs->store, node->view, node->ino, set, &attr, out_attr);
    if (open != NULL) {
        if (rc == 0 && (out_attr->mode & (S_ISUID | S_ISGID)) != 0)
            open->set_id = true;
        if (rc == 0 && (set & STORE_SET_SIZE) != 0)
            append_guard_cut(&open->guard, attr.size_bytes);
        open_file_unuse(fs, node->id);
    }
    return stale_if_gone(rc);
}

void serve_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *stat, int to_set, struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    struct store_attr attr;
    unsigned set = set_of(to_set);
    int rc = fi != NULL && fi->fh != 0 ? handle_check_canceled(handle_of(fi)) : 0;
    if (rc == 0)
        rc = node_find(fs->nodes, ino, &node);
    if (rc == 0 && node_is_virtual(&node)) {
        virtual_setattr(req, &node);
        return;
    }
    if (rc == 0)
        rc = node_check_attributes(&node);
    if (rc == 0 && (set & STORE_SET_SIZE) != 0 && stat->st_size < 0)
        rc = -EINVAL;
    if (rc == 0 && (set & STORE_SET_SIZE) != 0 && stat->st_size == 0)
        rc = drops_check_cut(fs, &node);
    if (rc == 0) {
        set |= kill_priv_of(req, &node, set);
        rc = node_setattr(fs, &node, set, stat, &attr);
    }
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_attr(req, node.tree, &attr);
}

void serve_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct store_space space;
    (void)ino;
    const int rc = store_space(fusefs_of(req)->store, &space);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    const struct statvfs statvfs = {
        .f_bsize = BLOCK_SIZE,
        .f_frsize = BLOCK_SIZE,
        .f_blocks = space.total_bytes / BLOCK_SIZE,
        .f_bfree = space.free_bytes / BLOCK_SIZE,
        .f_bavail = space.available_bytes / BLOCK_SIZE,
        .f_files = space.inodes + space.free_inodes,
        .f_ffree = space.free_inodes,
        .f_favail = space.free_inodes,
        .f_namemax = NAME_MAX_BYTES,
    };
    (void)fuse_reply_statfs(req, &statvfs);
}

/* ---- extended attributes ---- */

/* EOPNOTSUPP for security.* and system.*: coreutils then stop asking on this device; ENODATA makes them ask for every
 * file. */
static int xattr_check_name(const char *name)
{
    static const char *const ours[] = {"user.", "trusted."};
    for (size_t index = 0; index < ARRAY_COUNT(ours); index++) {
        const size_t length = strlen(ours[index]);
        if (strncmp(name, ours[index], length) == 0)
            return name[length] != '\0' ? 0 : -EINVAL;
    }
    return -EOPNOTSUPP;
}

static void reply_xattr(fuse_req_t req, const char *buffer, size_t capacity, size_t size)
{
    if (capacity == 0)
        (void)fuse_reply_xattr(req, size);
    else
        (void)fuse_reply_buf(req, buffer, size);
}

void serve_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    char *buffer = NULL;
    size_t value_size = 0;
    int rc = xattr_check_name(name);
    if (rc == 0)
        rc = node_find(fs->nodes, ino, &node);
    if (rc == 0 && node_is_virtual(&node))
        rc = -ENODATA;
    if (rc == 0 && size > 0 && (buffer = malloc(size)) == NULL)
        rc = -ENOMEM;
    if (rc == 0)
        rc = stale_if_gone(store_getxattr(fs->store, node.view, node.ino, name, buffer, size, &value_size));
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_xattr(req, buffer, size, value_size);
    free(buffer);
}

void serve_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    unsigned store_flags = 0;
    if ((flags & XATTR_CREATE) != 0)
        store_flags |= STORE_XATTR_CREATE;
    if ((flags & XATTR_REPLACE) != 0)
        store_flags |= STORE_XATTR_REPLACE;
    int rc = xattr_check_name(name);
    if (rc == 0)
        rc = node_find(fs->nodes, ino, &node);
    if (rc == 0)
        rc = node_check_attributes(&node);
    if (rc == 0)
        rc = stale_if_gone(store_setxattr(fs->store, node.view, node.ino, name, value, size, store_flags));
    reply_error(req, rc);
}

/* trusted.* is for the administrator only, also to know of. Returns the size of what is left. */
static size_t drop_trusted(char *names, size_t size)
{
    size_t kept = 0;
    for (size_t at = 0; at < size;) {
        const size_t length = strnlen(names + at, size - at) + 1;
        if (strncmp(names + at, "trusted.", 8) != 0) {
            memmove(names + kept, names + at, length);
            kept += length;
        }
        at += length;
    }
    return kept;
}

/* All names in a malloc'd buffer; they may grow in number between asking for the size and for the names. */
static int list_names(struct fusefs *fs, const struct node_identity *node, char **out_names, size_t *out_size)
{
    size_t size = 0;
    int rc = store_listxattr(fs->store, node->view, node->ino, NULL, 0, &size);
    for (int attempt = 0; rc == 0 || (rc == -ERANGE && attempt < 8); attempt++) {
        char *names = malloc(size + 1);
        if (names == NULL)
            return -ENOMEM;
        if (size == 0) {
            *out_names = names;
            *out_size = 0;
            return 0;
        }
        const size_t capacity = size;
        rc = store_listxattr(fs->store, node->view, node->ino, names, capacity, &size);
        if (rc == 0) {
            *out_names = names;
            *out_size = size;
            return 0;
        }
        free(names);
        size = 2 * capacity;
    }
    return stale_if_gone(rc);
}

void serve_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    char *names = NULL;
    size_t names_size = 0;
    int rc = node_find(fs->nodes, ino, &node);
    if (rc == 0 && !node_is_virtual(&node))
        rc = list_names(fs, &node, &names, &names_size);
    if (rc == 0 && fuse_req_ctx(req)->uid != 0)
        names_size = drop_trusted(names, names_size);
    if (rc == 0 && size > 0 && names_size > size)
        rc = -ERANGE;
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_xattr(req, names, size, names_size);
    free(names);
}

void serve_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    int rc = xattr_check_name(name);
    if (rc == 0)
        rc = node_find(fs->nodes, ino, &node);
    if (rc == 0)
        rc = node_check_attributes(&node);
    if (rc == 0)
        rc = stale_if_gone(store_removexattr(fs->store, node.view, node.ino, name));
    reply_error(req, rc);
}
