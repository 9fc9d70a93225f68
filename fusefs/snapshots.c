/*
 * fusefs/snapshots.c - MNT/.snap: a directory whose entries are the named snapshots (fusefs/roots.h).
 *
 *   mkdir takes one, rmdir drops it, rename renames it; nothing else can be made, moved in or moved out.
 *
 * The kernel may keep all that it learns in one: a snapshot never changes.
 *
 * Locking: none of its own. The kernel has one gesture in .snap at a time.
 */
#include "fusefs/fusefs_int.h"
#include "fusefs/roots.h"

#include <errno.h>
#include <string.h>

#define NAME_MAX_BYTES 255u

static struct store_name name_of(const char *name)
{
    return (struct store_name){.bytes = name, .size = strlen(name)};
}

/* ---- the directory ---- */

static int take_created(void *arg, const struct store_snapshot_info *info)
{
    int64_t *latest_ns = arg;
    if (info->created_ns > *latest_ns)
        *latest_ns = info->created_ns;
    return 0;
}

void snapshots_init(struct fusefs *fs)
{
    int64_t latest_ns = 0;
    (void)store_each_snapshot(fs->store, take_created, &latest_ns);
    fs->roots_changed_ns[ROOTS_SNAPSHOTS] = latest_ns != 0 ? latest_ns : fs->started_ns;
}

static mode_t directory_mode(struct fusefs *fs)
{
    return (mode_t)fs->options->snap_mode;
}

struct each {
    struct fusefs *fs;
    roots_entry_fn *fn;
    void *arg;
};

static int each_snapshot(void *arg, const struct store_snapshot_info *info)
{
    const struct each *each = arg;
    char name[NAME_MAX_BYTES + 1];
    memcpy(name, info->name, info->name_size);
    name[info->name_size] = '\0';
    const ino_no st_ino = node_tree_future_st_ino(each->fs->nodes, NODE_TREE_SNAPSHOT, info->number, INO_ROOT);
    return each->fn(each->arg, name, st_ino, VIRTUAL_COOKIE_DOTDOT + info->number) ? 0 : 1;
}

static void each_entry(struct fusefs *fs, roots_entry_fn *fn, void *arg)
{
    struct each each = {.fs = fs, .fn = fn, .arg = arg};
    (void)store_each_snapshot(fs->store, each_snapshot, &each);
}

static int compare_number(void *arg, const struct store_snapshot_info *info)
{
    const uint64_t *wanted = arg;
    return info->number == *wanted ? 1 : 0;
}

static bool is_there(struct fusefs *fs, uint64_t number)
{
    return store_each_snapshot(fs->store, compare_number, &number) != 0;
}

static const struct roots_directory directory = {
    .which = ROOTS_SNAPSHOTS,
    .ino = SNAPSHOTS_INO,
    .mode = directory_mode,
    .each = each_entry,
    .is_there = is_there,
};

void snapshots_lookup_directory(fuse_req_t req, const struct node_identity *root)
{
    (void)root;
    roots_lookup_directory(req, &directory);
}

static void snapshots_getattr(fuse_req_t req, const struct node_identity *node)
{
    (void)node;
    roots_getattr(req, &directory);
}

static void snapshots_readdir(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after, bool plus)
{
    (void)dir;
    roots_readdir(req, &directory, size, after, plus);
}

/* ---- its entries ---- */

static void put_snapshot(void *owner)
{
    store_snapshot_put(owner);
}

/* Answers with the root of that snapshot. On failure nothing was answered. */
static int reply_root(fuse_req_t req, const char *name)
{
    struct store_snapshot *snapshot = NULL;
    const int rc = store_snapshot_get(fusefs_of(req)->store, name_of(name), &snapshot);
    if (rc != 0)
        return rc;
    const struct node_tree_source source = {
        .kind = NODE_TREE_SNAPSHOT,
        .number = store_snapshot_number(snapshot),
        .view = store_snapshot_view(snapshot),
        .owner = snapshot,
        .release = put_snapshot,
    };
    return roots_reply_root(req, &directory, &source);
}

static void snapshots_lookup(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    (void)dir;
    const int rc = name_is_too_long(name) ? -ENAMETOOLONG : reply_root(req, name);
    if (rc != 0)
        reply_error(req, rc);
}

/* ---- gestures ---- */

static void snapshots_mkdir(fuse_req_t req, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    int rc = roots_check_new_name(name);
    if (rc == 0)
        rc = store_snapshot_create(fs->store, name_of(name));
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    roots_note_changed(fs, ROOTS_SNAPSHOTS);
    rc = reply_root(req, name);
    if (rc == 0)
        return;
    if (store_snapshot_drop(fs->store, name_of(name)) != 0) /* a failed call changed nothing */
        diag_log(&fs->log.diag, DIAG_WARNING, "snapshot %s was taken, but cannot be shown: %s", name, strerror(-rc));
    reply_error(req, rc);
}

static void snapshots_rmdir(fuse_req_t req, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    struct store_snapshot *snapshot = NULL;
    int rc = store_snapshot_get(fs->store, name_of(name), &snapshot);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    rc = store_snapshot_drop(fs->store, name_of(name));
    const uint64_t number = store_snapshot_number(snapshot);
    store_snapshot_put(snapshot);
    if (!is_there(fs, number)) /* its nodes are stale */
        node_tree_drop(fs->nodes, NODE_TREE_SNAPSHOT, number, -ESTALE);
    roots_note_changed(fs, ROOTS_SNAPSHOTS);
    reply_error(req, rc);
}

bool snapshots_is_node(const struct node_identity *node)
{
    return node_is_virtual(node) && node->ino == SNAPSHOTS_INO;
}

void snapshots_rename(fuse_req_t req, const char *name, const char *new_name, unsigned store_flags)
{
    struct fusefs *fs = fusefs_of(req);
    int rc = (store_flags & STORE_RENAME_EXCHANGE) != 0 ? -EINVAL : roots_check_new_name(new_name);
    if (rc == 0)
        rc = store_snapshot_rename(fs->store, name_of(name), name_of(new_name));
    if (rc == 0)
        roots_note_changed(fs, ROOTS_SNAPSHOTS);
    reply_error(req, rc);
}

const struct virtual_kind snapshots_kind = {
    .first_ino = SNAPSHOTS_INO,
    .last_ino = SNAPSHOTS_INO,
    .name_rc = -EPERM,
    .change_rc = -EROFS,
    .getattr = snapshots_getattr,
    .lookup = snapshots_lookup,
    .readdir = snapshots_readdir,
    .mkdir = snapshots_mkdir,
    .rmdir = snapshots_rmdir,
};
