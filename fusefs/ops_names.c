/*
 * fusefs/ops_names.c - operations on names.
 *
 * The kernel has checked permissions, and holds the directories' locks for everything that changes one. What is left is
 * to find the nodes, to keep reserved names out, and to hand over to the store.
 *
 * Locking: none of its own.
 */
#include "fusefs/drops.h"
#include "fusefs/fusefs_int.h"
#include "fusefs/notify.h"

#include <errno.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct store_name name_of(const char *name)
{
    return (struct store_name){.bytes = name, .size = strlen(name)};
}

static struct store_who who_of(fuse_req_t req)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    return (struct store_who){.uid = ctx->uid, .gid = ctx->gid};
}

/* Answers if it is a look-up in a virtual directory, or for one. */
static bool lookup_virtual(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    name_lookup_fn *own = name_own_lookup(dir, name);
    if (own != NULL)
        own(req, dir);
    else if (node_is_virtual(dir))
        virtual_lookup(req, dir, name);
    else
        return false;
    return true;
}

void serve_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED dir = NODE_NONE;
    struct store_attr attr;
    int rc = node_find(fs->nodes, parent, &dir);
    if (rc == 0 && lookup_virtual(req, &dir, name))
        return;
    if (rc == 0)
        rc = name_check_lookup(&dir, name);
    if (rc == 0)
        rc = store_lookup(fs->store, dir.view, dir.ino, name_of(name), &attr);
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_entry(req, dir.tree, &attr);
}

void serve_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    node_forget(fusefs_of(req)->nodes, ino, count);
    fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    struct fusefs *fs = fusefs_of(req);
    for (size_t index = 0; index < count; index++)
        node_forget(fs->nodes, forgets[index].ino, forgets[index].nlookup);
    fuse_reply_none(req);
}

/* May it be made there by the caller? */
static int check_new(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    const int rc = name_check_new(dir, name);
    return rc != 0 ? rc : transaction_check_access(req, dir, W_OK | X_OK, NULL);
}

/* May it be taken away there by the caller? */
static int check_old(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    const int rc = name_check_old(dir, name);
    return rc != 0 ? rc : transaction_check_access(req, dir, W_OK | X_OK, name);
}

/* Finds the directory in which `name` is to be made. */
static int find_for_new(fuse_req_t req, fuse_ino_t parent, const char *name, struct node_identity *out_dir)
{
    const int rc = node_find(fusefs_of(req)->nodes, parent, out_dir);
    return rc != 0 ? rc : check_new(req, out_dir, name);
}

void serve_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED dir = NODE_NONE;
    struct store_attr attr;
    int rc = node_find(fs->nodes, parent, &dir);
    if (rc == 0 && commit_is_gesture(&dir, name) && (S_ISDIR(mode) || S_ISREG(mode))) {
        commit_start(req, &dir, mode & S_IFMT, NULL);
        return;
    }
    if (rc == 0)
        rc = check_new(req, &dir, name);
    if (rc == 0)
        rc = store_create(fs->store, dir.view, dir.ino, name_of(name), mode, (uint32_t)rdev, who_of(req), &attr);
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_entry(req, dir.tree, &attr);
}

void serve_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    NODE_SCOPED dir = NODE_NONE;
    if (node_find(fusefs_of(req)->nodes, parent, &dir) == 0 && node_is_virtual(&dir))
        virtual_mkdir(req, &dir, name);
    else
        serve_mknod(req, parent, name, (mode & ~(mode_t)S_IFMT) | S_IFDIR, 0);
}

void serve_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED dir = NODE_NONE;
    struct store_attr attr;
    int rc = node_find(fs->nodes, parent, &dir);
    if (rc == 0 && node_is_virtual(&dir)) {
        virtual_symlink(req, &dir, target, name);
        return;
    }
    if (rc == 0)
        rc = check_new(req, &dir, name);
    if (rc == 0)
        rc = store_symlink(fs->store, dir.view, dir.ino, name_of(name), target, who_of(req), &attr);
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_entry(req, dir.tree, &attr);
}

void serve_readlink(fuse_req_t req, fuse_ino_t ino)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    char target[PATH_MAX];
    size_t size = 0;
    int rc = node_find(fs->nodes, ino, &node);
    if (rc == 0 && node_is_virtual(&node)) {
        virtual_readlink(req, &node);
        return;
    }
    if (rc == 0)
        rc = stale_if_gone(store_readlink(fs->store, node.view, node.ino, target, sizeof target - 1, &size));
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    target[size] = '\0';
    (void)fuse_reply_readlink(req, target);
}

void serve_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    NODE_SCOPED dir = NODE_NONE;
    struct store_attr attr;
    int rc = node_find(fs->nodes, ino, &node);
    if (rc == 0)
        rc = find_for_new(req, new_parent, new_name, &dir);
    if (rc == 0 && node.view != dir.view)
        rc = -EPERM;
    if (rc == 0)
        rc = store_link(fs->store, dir.view, node.ino, dir.ino, name_of(new_name), &attr);
    if (rc != 0)
        reply_error(req, rc);
    else
        reply_entry(req, dir.tree, &attr);
}

void serve_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED dir = NODE_NONE;
    int rc = node_find(fs->nodes, parent, &dir);
    if (rc == 0 && node_is_virtual(&dir)) {
        virtual_unlink(req, &dir, name);
        return;
    }
    if (rc == 0)
        rc = check_old(req, &dir, name);
    if (rc == 0)
        rc = drops_check_name(fs, &dir, name);
    if (rc == 0)
        rc = store_unlink(fs->store, dir.view, dir.ino, name_of(name));
    reply_error(req, rc);
}

/* What that name leads to may be removed: if it is a directory, its node remembers how it looks. */
static void note_directory(struct fusefs *fs, const struct node_identity *dir, const char *name)
{
    struct store_attr attr;
    if (store_lookup(fs->store, dir->view, dir->ino, name_of(name), &attr) == 0 && S_ISDIR(attr.mode))
        node_note_last(fs->nodes, dir->tree, &attr);
}

void serve_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED dir = NODE_NONE;
    int rc = node_find(fs->nodes, parent, &dir);
    if (rc == 0 && node_is_virtual(&dir)) {
        virtual_rmdir(req, &dir, name);
        return;
    }
    if (rc == 0)
        rc = check_old(req, &dir, name);
    if (rc == 0)
        note_directory(fs, &dir, name);
    if (rc == 0)
        rc = store_rmdir(fs->store, dir.view, dir.ino, name_of(name));
    reply_error(req, rc);
}

/* STORE_RENAME_* of RENAME_*; -EINVAL: a kind of rename that is not ours (whiteouts). */
static int rename_flags(unsigned flags, unsigned *out_flags)
{
    switch (flags) {
    case 0:
        *out_flags = 0;
        return 0;
    case RENAME_NOREPLACE:
        *out_flags = STORE_RENAME_NOREPLACE;
        return 0;
    case RENAME_EXCHANGE:
        *out_flags = STORE_RENAME_EXCHANGE;
        return 0;
    default:
        return -EINVAL;
    }
}

void serve_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
                  unsigned flags)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED from = NODE_NONE;
    NODE_SCOPED to = NODE_NONE;
    unsigned store_flags = 0;
    int rc = rename_flags(flags, &store_flags);
    if (rc == 0)
        rc = node_find(fs->nodes, parent, &from);
    if (rc == 0)
        rc = node_find(fs->nodes, new_parent, &to);
    if (rc == 0 && snapshots_is_node(&from) && snapshots_is_node(&to)) {
        snapshots_rename(req, name, new_name, store_flags);
        return;
    }
    if (rc == 0)
        rc = check_old(req, &from, name);
    if (rc == 0)
        rc = name_check_new(&to, new_name);
    if (rc == 0)
        rc = transaction_check_access(req, &to, W_OK | X_OK, new_name); /* it may be replaced */
    if (rc == 0 && from.view != to.view)
        rc = -EPERM; /* not EXDEV: mv would copy, and then remove at once on the other side */
    if (rc == 0 && store_flags == 0)
        rc = drops_check_name(fs, &to, new_name);
    if (rc == 0 && store_flags == 0)
        note_directory(fs, &to, new_name);
    if (rc == 0)
        rc = store_rename(fs->store, from.view, from.ino, name_of(name), to.ino, name_of(new_name), store_flags);
    if (rc == 0 && node_tree_is(to.tree, NODE_TREE_LIVE)) { /* TELL-2 */
        tellings_note_name(fs, new_parent, new_name);
        if ((store_flags & STORE_RENAME_EXCHANGE) != 0)
            tellings_note_name(fs, parent, name);
    }
    reply_error(req, rc);
}
