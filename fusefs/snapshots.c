/*
 * fusefs/snapshots.c - MNT/.snap: a directory whose entries are the named snapshots.
 *
 *   mkdir takes one, rmdir drops it, rename renames it; nothing else can be made, moved in or moved out.
 *
 * Its entries are the roots of their trees, so what is below is served as the live tree is (ops_*.c), by the view of the
 * snapshot. The kernel may keep all that it learns there: a snapshot never changes, and its names change only by the
 * gestures above, which the kernel knows of.
 *
 * SNAPDIR-1 A tree of the node table has one reference to the store's snapshot, put back when the snapshot was dropped and
 * the last request and the last open file in it have ended. So lookup counts keep no dropped version.
 *
 * Locking: none of its own. The kernel has one gesture in .snap at a time.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_MAX_BYTES    255u
#define COOKIE_DOT        UINT64_C(1)
#define COOKIE_DOTDOT     UINT64_C(2)
#define LISTING_MAX_BYTES (1u << 20) /* more than any kernel asks for */
#define MODE_DEFAULT      0755u

#define NANOSECONDS_IN_SECOND INT64_C(1000000000)

static struct store_name name_of(const char *name)
{
    return (struct store_name){.bytes = name, .size = strlen(name)};
}

/* ---- the directory itself ---- */

bool snapshots_is_node(const struct node_identity *node)
{
    return node->tree == NODE_TREE_VIRTUAL && node->ino == SNAPSHOTS_INO;
}

static void note_changed(struct fusefs *fs)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    fs->snapshots_changed_ns = (int64_t)now.tv_sec * NANOSECONDS_IN_SECOND + now.tv_nsec;
}

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
    fs->snapshots_changed_ns = latest_ns != 0 ? latest_ns : fs->started_ns;
}

static int count_one(void *arg, const struct store_snapshot_info *info)
{
    nlink_t *count = arg;
    (void)info;
    ++*count;
    return 0;
}

static void directory_stat(struct fusefs *fs, struct stat *out_stat)
{
    const int64_t changed_ns = fs->snapshots_changed_ns;
    const struct timespec changed = {.tv_sec = changed_ns / NANOSECONDS_IN_SECOND,
                                     .tv_nsec = changed_ns % NANOSECONDS_IN_SECOND};
    const uint32_t mode = fs->options->snap_mode_given ? fs->options->snap_mode : MODE_DEFAULT;
    nlink_t links = 2;
    (void)store_each_snapshot(fs->store, count_one, &links);
    *out_stat = (struct stat){
        .st_ino = SNAPSHOTS_INO,
        .st_mode = S_IFDIR | mode,
        .st_nlink = links,
        .st_uid = geteuid(), /* root, unless somebody else mounted it */
        .st_gid = getegid(),
        .st_size = BLOCK_SIZE,
        .st_blksize = BLOCK_SIZE,
        .st_atim = changed,
        .st_mtim = changed,
        .st_ctim = changed,
    };
}

void snapshots_reply_attr(fuse_req_t req)
{
    struct stat stat;
    directory_stat(fusefs_of(req), &stat);
    (void)fuse_reply_attr(req, &stat, TIMEOUT_LONG_S);
}

void snapshots_lookup_directory(fuse_req_t req)
{
    struct fusefs *fs = fusefs_of(req);
    struct fuse_entry_param entry = {.attr_timeout = TIMEOUT_LONG_S, .entry_timeout = TIMEOUT_LONG_S};
    uint64_t id;
    directory_stat(fs, &entry.attr);
    const int rc = node_enter(fs->nodes, NODE_TREE_VIRTUAL, SNAPSHOTS_INO, S_IFDIR, &id);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    entry.ino = id;
    if (fuse_reply_entry(req, &entry) != 0)
        node_forget(fs->nodes, id, 1); /* FUSE-2 */
}

/* ---- its entries ---- */

static void put_snapshot(void *owner)
{
    store_snapshot_put(owner);
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

/* Nodes of a snapshot that is gone are stale. */
static void drop_tree_if_gone(struct fusefs *fs, uint64_t number)
{
    if (!is_there(fs, number))
        node_tree_drop(fs->nodes, number);
}

/* Makes it a tree of the node table, or finds that; the reference is taken over. The tree is held once. */
static int enter_tree(struct fusefs *fs, struct store_snapshot *snapshot, struct node_tree **out_tree)
{
    bool made = false;
    const uint64_t number = store_snapshot_number(snapshot);
    const int rc = node_tree_enter(fs->nodes, number, store_snapshot_view(snapshot), snapshot, put_snapshot, out_tree,
                                   &made); /* SNAPDIR-1 */
    if (rc == -ENFILE)
        diag_log(&fs->log.diag, DIAG_ERROR, "snapshot %llu: %llu snapshots are in use, no more can be",
                 (unsigned long long)number, (unsigned long long)NODE_PLACES_MAX);
    if (rc != 0 || !made)
        store_snapshot_put(snapshot);
    else
        drop_tree_if_gone(fs, number); /* dropped since we got it: whoever did that did not see the tree */
    return rc;
}

/* Answers with the root of that snapshot. On failure nothing was answered. */
static int reply_root(fuse_req_t req, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    struct store_snapshot *snapshot = NULL;
    struct node_tree *tree = NULL;
    struct store_attr attr;
    int rc = store_snapshot_get(fs->store, name_of(name), &snapshot);
    if (rc == 0)
        rc = enter_tree(fs, snapshot, &tree);
    if (rc != 0)
        return rc;
    rc = store_getattr(fs->store, node_tree_view(tree), INO_ROOT, &attr);
    if (rc == 0)
        reply_entry(req, tree, &attr);
    node_tree_let_go(tree);
    return rc;
}

void snapshots_lookup(fuse_req_t req, const char *name)
{
    const int rc = strnlen(name, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES ? -ENAMETOOLONG : reply_root(req, name);
    if (rc != 0)
        reply_error(req, rc);
}

/* ---- listing ---- */

struct snapshot_listing {
    fuse_req_t req;
    struct fusefs *fs;
    uint64_t after;
    bool plus;
    char *buffer;
    size_t size, used;
};

/* Without a node: the kernel looks up what it wants to know more of. False: no room. */
static bool listing_add(struct snapshot_listing *listing, const char *name, uint64_t st_ino, uint64_t cookie)
{
    const struct fuse_entry_param entry = {.attr = {.st_ino = st_ino, .st_mode = S_IFDIR}};
    const size_t room = listing->size - listing->used;
    char *to = listing->buffer + listing->used;
    const size_t needed = listing->plus ? fuse_add_direntry_plus(listing->req, to, room, name, &entry, (off_t)cookie)
                                        : fuse_add_direntry(listing->req, to, room, name, &entry.attr, (off_t)cookie);
    if (needed > room)
        return false;
    listing->used += needed;
    return true;
}

static int list_snapshot(void *arg, const struct store_snapshot_info *info)
{
    struct snapshot_listing *listing = arg;
    char name[NAME_MAX_BYTES + 1];
    const uint64_t cookie = COOKIE_DOTDOT + info->number;
    if (cookie <= listing->after)
        return 0;
    memcpy(name, info->name, info->name_size);
    name[info->name_size] = '\0';
    const uint64_t st_ino = node_snapshot_st_ino(listing->fs->nodes, info->number, INO_ROOT);
    return listing_add(listing, name, st_ino, cookie) ? 0 : 1;
}

static void listing_fill(struct snapshot_listing *listing)
{
    bool room = true;
    if (listing->after < COOKIE_DOT)
        room = listing_add(listing, ".", SNAPSHOTS_INO, COOKIE_DOT);
    if (room && listing->after < COOKIE_DOTDOT)
        room = listing_add(listing, "..", INO_ROOT, COOKIE_DOTDOT);
    if (room)
        (void)store_each_snapshot(listing->fs->store, list_snapshot, listing);
}

void snapshots_readdir(fuse_req_t req, size_t size, uint64_t after, bool plus)
{
    struct snapshot_listing listing = {.req = req, .fs = fusefs_of(req), .after = after, .plus = plus};
    listing.size = size < LISTING_MAX_BYTES ? size : LISTING_MAX_BYTES;
    listing.buffer = malloc(listing.size + 1);
    if (listing.buffer == NULL) {
        reply_error(req, -ENOMEM);
        return;
    }
    listing_fill(&listing);
    (void)fuse_reply_buf(req, listing.buffer, listing.used);
    free(listing.buffer);
}

/* ---- gestures ---- */

/* May a snapshot have that name? */
static int check_new_name(const char *name)
{
    if (strnlen(name, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES)
        return -ENAMETOOLONG;
    return strcmp(name, ".commit") == 0 ? -EINVAL : 0;
}

void snapshots_mkdir(fuse_req_t req, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    int rc = check_new_name(name);
    if (rc == 0)
        rc = store_snapshot_create(fs->store, name_of(name));
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    note_changed(fs);
    rc = reply_root(req, name);
    if (rc == 0)
        return;
    if (store_snapshot_drop(fs->store, name_of(name)) != 0) /* a failed call changed nothing */
        diag_log(&fs->log.diag, DIAG_WARNING, "snapshot %s was taken, but cannot be shown: %s", name, strerror(-rc));
    reply_error(req, rc);
}

void snapshots_rmdir(fuse_req_t req, const char *name)
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
    drop_tree_if_gone(fs, number);
    note_changed(fs);
    reply_error(req, rc);
}

void snapshots_rename(fuse_req_t req, const struct node_identity *from, const char *name,
                      const struct node_identity *to, const char *new_name, unsigned store_flags)
{
    struct fusefs *fs = fusefs_of(req);
    int rc = 0;
    if (!snapshots_is_node(from) || !snapshots_is_node(to))
        rc = -EPERM; /* not EXDEV: mv would copy */
    else if ((store_flags & STORE_RENAME_EXCHANGE) != 0)
        rc = -EINVAL;
    if (rc == 0)
        rc = check_new_name(new_name);
    if (rc == 0)
        rc = store_snapshot_rename(fs->store, name_of(name), name_of(new_name));
    if (rc == 0)
        note_changed(fs);
    reply_error(req, rc);
}
