/*
 * txn/store_names.c - operations on names: create, symlink, link, unlink, rmdir, rename, destroy.
 *
 * NAMES-1 Every name of an inode is known from the inode: the first one in the inode itself (parent, name_cookie), each
 * further one in a back entry. nlink of a file is their number; of a directory 2 + its subdirectories. NAMES-2 A
 * directory's size_bytes counts its entries. Its times and counts are derived from the changes of its names, so they
 * never count as a change of the directory's own attributes (its epochs stay). NAMES-3 An inode that lost its last name
 * is removed in the same operation, or becomes an orphan because it is open (STORE-4).
 *
 * Each operation is a plan function that fills a batch; store_op_run does the rest.
 */
#include "txn/publish.h"

#include "base/array.h"
#include "base/plant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- pieces ---- */

static uint8_t kind_of(uint32_t mode)
{
    return (uint8_t)((mode & S_IFMT) >> 12);
}

static struct op_bytes op_bytes_of(struct store_name name)
{
    return (struct op_bytes){.data = name.bytes, .size = name.size};
}

static int get_dir(struct op_run *run, ino_no dir, struct inode *out_inode)
{
    const int rc = inode_batch_get(&run->batch, dir, out_inode);
    if (rc != 0) {
        return rc;
    }
    return S_ISDIR(out_inode->mode) ? 0 : -ENOTDIR;
}

/* A directory gained or lost names. */
static int touch_dir(struct op_run *run, ino_no dir, int entries, int subdirs)
{
    struct inode inode;
    int rc = get_dir(run, dir, &inode);
    if (rc == 0) {
        inode.size_bytes += (uint64_t)(int64_t)entries;
        inode.nlink += (uint32_t)subdirs;
        inode.mtime_ns = op_mtime(run, inode.mtime_ns);
        inode.ctime_ns = run->ctime_ns;
        rc = inode_batch_put(&run->batch, &inode);
    }
    return rc;
}

static void mark_attr_change(struct op_run *run, struct inode *inode)
{
    inode->ctime_ns = run->ctime_ns;
    inode->attr_epoch = cow_epoch(run->store->cow);
    inode->change_epoch = inode->attr_epoch;
}

/* Registers a name with its inode (NAMES-1); the caller puts the inode. */
static int inode_add_name(struct op_run *run, struct inode *inode, ino_no parent, uint64_t cookie)
{
    if (inode->name_cookie == 0) {
        inode->parent = parent;
        inode->name_cookie = cookie;
        return 0;
    }
    return back_batch_put(&run->batch, &run->store->hash, inode->ino, parent, cookie);
}

struct first_back {
    bool found;
    ino_no parent;
    uint64_t cookie;
};

static int take_first_back(void *arg, ino_no parent, uint64_t cookie)
{
    *(struct first_back *)arg = (struct first_back){.found = true, .parent = parent, .cookie = cookie};
    return 1;
}

/* Forgets a name of an inode (NAMES-1): when it was the first one, a back entry takes its place. */
static int inode_remove_name(struct op_run *run, struct inode *inode, ino_no parent, uint64_t cookie)
{
    const struct name_hash *hash = &run->store->hash;
    if (inode->parent != parent || inode->name_cookie != cookie) {
        return back_batch_remove(&run->batch, hash, inode->ino, parent, cookie);
    }
    inode->parent = INO_NONE;
    inode->name_cookie = 0;
    struct first_back first = {0};
    const int rc = back_batch_scan(&run->batch, inode->ino, take_first_back, &first);
    if (rc < 0 || !first.found) {
        return rc < 0 ? rc : 0;
    }
    inode->parent = first.parent;
    inode->name_cookie = first.cookie;
    return back_batch_remove(&run->batch, hash, inode->ino, first.parent, first.cookie);
}

struct remove_items {
    struct op_run *run;
    size_t count, capacity;
    struct catalog_key *keys;
};

static int collect_key(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    (void)value;
    (void)value_size;
    struct remove_items *items = arg;
    struct catalog_key *keys = array_with_room(items->keys, items->count, &items->capacity, sizeof keys[0]);
    if (keys == NULL) {
        return -ENOMEM;
    }
    items->keys = keys;
    items->keys[items->count++] = *key;
    return 0;
}

/* Removes every item of an inode: the inode, link target, attributes, back entries. */
static int remove_all_items(struct op_run *run, ino_no ino)
{
    const struct catalog_key first = {.ino = ino, .type = ITEM_INODE, .sub = 0};
    const struct catalog_key last = {.ino = ino, .type = ITEM_BACK, .sub = UINT64_MAX};
    struct remove_items items = {.run = run};
    int rc = catalog_batch_scan(&run->batch, &first, &last, collect_key, &items);
    for (size_t i = 0; i < items.count && rc == 0; i++) {
        rc = catalog_batch_remove(&run->batch, &items.keys[i]);
    }
    free(items.keys);
    return rc;
}

static struct catalog_key orphan_key(ino_no ino)
{
    return (struct catalog_key){.ino = INO_NONE, .type = ITEM_ORPHAN, .sub = ino};
}

int op_destroy_inode(struct op_run *run, const struct inode *inode)
{
    run->inode_delta--;
    const int rc = remove_all_items(run, inode->ino);
    return rc != 0 ? rc : op_drop_relation(run, inode);
}

static int becomes_orphan(struct op_run *run, const struct inode *inode, bool *out_becomes)
{
    if (run->publish != NULL) {
        return publish_keeps_inode(run->publish, inode->ino, out_becomes);
    }
    if (run->replay != NULL) {
        *out_becomes = (run->replay->flags & OP_KEEP_ORPHAN) != 0 && !PLANT(ORPHAN_DESTROYED_EARLY);
    } else {
        *out_becomes = !S_ISDIR(inode->mode) && store_file_is_open(run->store, run->view, inode->ino);
    }
    return 0;
}

/* The inode has no name left (NAMES-3). */
static int inode_lost_last_name(struct op_run *run, struct inode *inode)
{
    bool becomes = false;
    int rc = becomes_orphan(run, inode, &becomes);
    if (rc != 0 || !becomes) {
        return rc != 0 ? rc : op_destroy_inode(run, inode);
    }
    run->op.flags |= OP_KEEP_ORPHAN;
    run->orphan = inode->ino;
    inode->nlink = 0;
    mark_attr_change(run, inode);
    const struct catalog_key key = orphan_key(inode->ino);
    rc = catalog_batch_put(&run->batch, &key, "", 0);
    return rc != 0 ? rc : inode_batch_put(&run->batch, inode);
}

/* One name of a file goes; the directory entry itself is the caller's business. */
static int drop_file_name(struct op_run *run, ino_no ino, ino_no parent, uint64_t cookie)
{
    struct inode inode;
    int rc = inode_batch_get(&run->batch, ino, &inode);
    if (rc == 0) {
        rc = inode_remove_name(run, &inode, parent, cookie);
    }
    if (rc != 0) {
        return rc;
    }
    if (inode.nlink <= 1) {
        return inode_lost_last_name(run, &inode);
    }
    inode.nlink--;
    mark_attr_change(run, &inode);
    return inode_batch_put(&run->batch, &inode);
}

/* An empty directory goes. -ENOTEMPTY. */
static int drop_dir(struct op_run *run, ino_no dir)
{
    struct inode inode;
    const int rc = get_dir(run, dir, &inode);
    if (rc != 0) {
        return rc;
    }
    return inode.size_bytes != 0 ? -ENOTEMPTY : inode_lost_last_name(run, &inode);
}

/* ---- create ---- */

struct create_arg {
    ino_no parent;
    struct store_name name;
    uint32_t mode, rdev;
    struct store_who who;
    const char *target; /* symlink */
    struct store_attr *out_attr;
};

static ino_no new_ino(struct op_run *run)
{
    return run->replay != NULL ? run->replay->ino : atomic_fetch_add(&run->store->next_ino, 1);
}

static bool has_tablespace(uint32_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode);
}

/* What is made in a directory lies where the directory says, unless that is gone; replay does as the record says (TABLESPACE-3). */
static ts_no new_tablespace(struct op_run *run, const struct create_arg *ca, const struct inode *dir)
{
    if (!has_tablespace(ca->mode)) {
        return TS_DEFAULT;
    }
    return run->replay != NULL ? run->replay->rdev : store_tablespace_for(run->store, dir->ts);
}

static struct inode new_inode(struct op_run *run, const struct create_arg *ca, const struct inode *dir)
{
    const bool inherit_gid = (dir->mode & S_ISGID) != 0;
    const epoch_no epoch = cow_epoch(run->store->cow);
    const int64_t now = run->op.time_ns;
    struct inode inode = {
        .ino = new_ino(run),
        .mode = ca->mode,
        .nlink = S_ISDIR(ca->mode) ? 2 : 1,
        .uid = ca->who.uid,
        .gid = inherit_gid ? dir->gid : ca->who.gid,
        .rdev = has_tablespace(ca->mode) ? 0 : ca->rdev,
        .ts = new_tablespace(run, ca, dir),
        .atime_ns = now,
        .mtime_ns = now,
        .ctime_ns = run->ctime_ns,
        .content_ptr = PAGE_PTR_NONE,
        .size_bytes = ca->target != NULL ? strlen(ca->target) : 0,
        .change_epoch = epoch,
        .rewrite_epoch = epoch,
        .attr_epoch = epoch,
        .parent = ca->parent,
    };
    if (inherit_gid && S_ISDIR(ca->mode)) {
        inode.mode |= S_ISGID;
    }
    return inode;
}

static int find_free_name(struct op_run *run, ino_no parent, struct store_name name, uint64_t *out_cookie)
{
    struct dirent_found found;
    const int rc = dirent_batch_find(&run->batch, &run->store->hash, parent, name.bytes, name.size, &found);
    if (rc != -ENOENT) {
        return rc == 0 ? -EEXIST : rc;
    }
    return dirent_batch_new_cookie(&run->batch, &run->store->hash, parent, name.bytes, name.size, out_cookie);
}

static int plan_create(struct op_run *run, void *arg)
{
    const struct create_arg *ca = arg;
    struct inode dir;
    int rc = get_dir(run, ca->parent, &dir);
    uint64_t cookie = 0;
    if (rc == 0) {
        rc = find_free_name(run, ca->parent, ca->name, &cookie);
    }
    if (rc != 0) {
        return rc;
    }
    struct inode inode = new_inode(run, ca, &dir);
    inode.name_cookie = cookie;
    rc = inode_batch_put(&run->batch, &inode);
    if (rc == 0 && ca->target != NULL) {
        rc = symlink_batch_put(&run->batch, inode.ino, ca->target, inode.size_bytes);
    }
    if (rc == 0) {
        rc = dirent_batch_put(&run->batch, ca->parent, cookie, ca->name.bytes, ca->name.size, inode.ino,
                              kind_of(inode.mode));
    }
    if (rc == 0) {
        rc = touch_dir(run, ca->parent, 1, S_ISDIR(inode.mode) ? 1 : 0);
    }
    run->inode_delta = 1;
    run->op.ino = inode.ino;
    run->op.parent = ca->parent;
    run->op.name = op_bytes_of(ca->name);
    run->op.cookie = cookie;
    run->op.mode = inode.mode;
    run->op.uid = inode.uid;
    run->op.gid = inode.gid;
    run->op.rdev = has_tablespace(inode.mode) ? inode.ts : inode.rdev;
    run->op.data = (struct op_bytes){.data = ca->target, .size = ca->target != NULL ? inode.size_bytes : 0};
    store_attr_of(&inode, ca->out_attr);
    return rc;
}

int store_create(struct store *store, struct view *view, ino_no parent, struct store_name name, uint32_t mode,
                 uint32_t rdev, struct store_who who, struct store_attr *out_attr)
{
    struct create_arg ca = {
        .parent = parent, .name = name, .mode = mode, .rdev = rdev, .who = who, .out_attr = out_attr};
    const int rc = store_warm_name(store, view, parent, name);
    return rc != 0 ? rc : store_op_run(store, view, OP_CREATE, plan_create, &ca);
}

int store_symlink(struct store *store, struct view *view, ino_no parent, struct store_name name, const char *target,
                  struct store_who who, struct store_attr *out_attr)
{
    const size_t size = strlen(target);
    if (size == 0 || size > 4095) {
        return size == 0 ? -ENOENT : -ENAMETOOLONG;
    }
    struct create_arg ca = {
        .parent = parent, .name = name, .mode = S_IFLNK | 0777, .who = who, .target = target, .out_attr = out_attr};
    const int rc = store_warm_name(store, view, parent, name);
    return rc != 0 ? rc : store_op_run(store, view, OP_CREATE, plan_create, &ca);
}

/* ---- link ---- */

struct link_arg {
    ino_no ino, parent;
    struct store_name name;
    struct store_attr *out_attr;
};

static int plan_link(struct op_run *run, void *arg)
{
    const struct link_arg *la = arg;
    struct inode inode;
    struct inode dir;
    int rc = inode_batch_get(&run->batch, la->ino, &inode);
    if (rc == 0) {
        rc = get_dir(run, la->parent, &dir);
    }
    if (rc != 0) {
        return rc;
    }
    if (S_ISDIR(inode.mode)) {
        return -EPERM;
    }
    if (inode.nlink == 0 || inode.nlink >= STORE_LINK_MAX) {
        return inode.nlink == 0 ? -ENOENT : -EMLINK;
    }
    uint64_t cookie = 0;
    rc = find_free_name(run, la->parent, la->name, &cookie);
    if (rc == 0) {
        rc = inode_add_name(run, &inode, la->parent, cookie);
    }
    if (rc != 0) {
        return rc;
    }
    inode.nlink++;
    mark_attr_change(run, &inode);
    rc = inode_batch_put(&run->batch, &inode);
    if (rc == 0) {
        rc = dirent_batch_put(&run->batch, la->parent, cookie, la->name.bytes, la->name.size, la->ino,
                              kind_of(inode.mode));
    }
    if (rc == 0) {
        rc = touch_dir(run, la->parent, 1, 0);
    }
    run->op.ino = la->ino;
    run->op.parent = la->parent;
    run->op.name = op_bytes_of(la->name);
    run->op.cookie = cookie;
    store_attr_of(&inode, la->out_attr);
    return rc;
}

int store_link(struct store *store, struct view *view, ino_no ino, ino_no new_parent, struct store_name name,
               struct store_attr *out_attr)
{
    struct link_arg la = {.ino = ino, .parent = new_parent, .name = name, .out_attr = out_attr};
    const int rc = store_warm_name(store, view, new_parent, name);
    return rc != 0 ? rc : store_op_run(store, view, OP_LINK, plan_link, &la);
}

/* ---- unlink, rmdir ---- */

struct unlink_arg {
    ino_no parent;
    struct store_name name;
    bool dir;
};

static int plan_unlink(struct op_run *run, void *arg)
{
    const struct unlink_arg *ua = arg;
    struct inode dir;
    struct dirent_found found;
    int rc = get_dir(run, ua->parent, &dir);
    if (rc == 0) {
        rc = dirent_batch_find(&run->batch, &run->store->hash, ua->parent, ua->name.bytes, ua->name.size, &found);
    }
    if (rc != 0) {
        return rc;
    }
    const bool is_dir = found.kind == kind_of(S_IFDIR);
    if (is_dir != ua->dir) {
        return is_dir ? -EISDIR : -ENOTDIR;
    }
    run->op.ino = found.ino;
    run->op.parent = ua->parent;
    run->op.name = op_bytes_of(ua->name);
    run->op.cookie = found.cookie;
    rc = is_dir ? drop_dir(run, found.ino) : drop_file_name(run, found.ino, ua->parent, found.cookie);
    if (rc == 0) {
        rc = dirent_batch_remove(&run->batch, ua->parent, found.cookie);
    }
    return rc != 0 ? rc : touch_dir(run, ua->parent, -1, is_dir ? -1 : 0);
}

int store_unlink(struct store *store, struct view *view, ino_no parent, struct store_name name)
{
    struct unlink_arg ua = {.parent = parent, .name = name};
    const int rc = store_warm_name(store, view, parent, name);
    return rc != 0 ? rc : store_op_run(store, view, OP_UNLINK, plan_unlink, &ua);
}

int store_rmdir(struct store *store, struct view *view, ino_no parent, struct store_name name)
{
    struct unlink_arg ua = {.parent = parent, .name = name, .dir = true};
    const int rc = store_warm_name(store, view, parent, name);
    return rc != 0 ? rc : store_op_run(store, view, OP_RMDIR, plan_unlink, &ua);
}

/* ---- rename ---- */

struct rename_arg {
    ino_no parent, parent2;
    struct store_name name, name2;
    unsigned flags;
};

struct rename_ends {
    struct dirent_found from, to;
    bool has_to;
};

/* -EINVAL when `dir` is `ino` or lies below it. */
static int check_not_below(struct op_run *run, ino_no dir, ino_no ino)
{
    /* More steps than there are inodes: a circle. Those that a transaction made are not counted. */
    uint64_t left = atomic_load(&run->store->inode_count) + (run->view->owner != NULL ? UINT32_MAX : 0);
    while (dir != INO_ROOT) {
        if (left-- == 0) {
            return diag_damage(run->store->diag, "catalog", BLOCK_NONE, "parent", "directory %llu lies within itself",
                               (unsigned long long)dir);
        }
        if (dir == ino) {
            return -EINVAL;
        }
        struct inode inode;
        const int rc = get_dir(run, dir, &inode);
        if (rc != 0) {
            return rc;
        }
        dir = inode.parent;
    }
    return ino == INO_ROOT ? -EINVAL : 0;
}

static bool is_dir_kind(const struct dirent_found *found)
{
    return found->kind == kind_of(S_IFDIR);
}

static int check_rename(struct op_run *run, const struct rename_arg *ra, const struct rename_ends *ends)
{
    const bool exchange = (ra->flags & STORE_RENAME_EXCHANGE) != 0;
    if (exchange && !ends->has_to) {
        return -ENOENT;
    }
    if (ends->has_to && (ra->flags & STORE_RENAME_NOREPLACE) != 0) {
        return -EEXIST;
    }
    int rc = 0;
    if (is_dir_kind(&ends->from)) {
        rc = check_not_below(run, ra->parent2, ends->from.ino);
    }
    if (rc == 0 && ends->has_to && is_dir_kind(&ends->to)) {
        rc = check_not_below(run, ra->parent, ends->to.ino);
        rc = rc == -EINVAL && !exchange ? -ENOTEMPTY : rc;
    }
    if (rc != 0 || exchange || !ends->has_to) {
        return rc;
    }
    if (is_dir_kind(&ends->to) != is_dir_kind(&ends->from)) {
        return is_dir_kind(&ends->to) ? -EISDIR : -ENOTDIR;
    }
    return 0;
}

static int find_ends(struct op_run *run, const struct rename_arg *ra, struct rename_ends *ends)
{
    const struct name_hash *hash = &run->store->hash;
    struct inode dir;
    int rc = get_dir(run, ra->parent, &dir);
    if (rc == 0) {
        rc = get_dir(run, ra->parent2, &dir);
    }
    if (rc == 0) {
        rc = dirent_batch_find(&run->batch, hash, ra->parent, ra->name.bytes, ra->name.size, &ends->from);
    }
    if (rc != 0) {
        return rc;
    }
    rc = dirent_batch_find(&run->batch, hash, ra->parent2, ra->name2.bytes, ra->name2.size, &ends->to);
    ends->has_to = rc == 0;
    return rc == -ENOENT ? 0 : rc;
}

/* An inode's name moves from one entry to another; the entries are the caller's business. */
static int move_name(struct op_run *run, ino_no ino, ino_no from, uint64_t from_cookie, ino_no to, uint64_t to_cookie)
{
    struct inode inode;
    int rc = inode_batch_get(&run->batch, ino, &inode);
    if (rc != 0) {
        return rc;
    }
    if (inode.parent == from && inode.name_cookie == from_cookie) {
        inode.parent = to;
        inode.name_cookie = to_cookie;
    } else {
        rc = back_batch_remove(&run->batch, &run->store->hash, ino, from, from_cookie);
        if (rc == 0) {
            rc = back_batch_put(&run->batch, &run->store->hash, ino, to, to_cookie);
        }
    }
    if (rc != 0) {
        return rc;
    }
    mark_attr_change(run, &inode);
    return inode_batch_put(&run->batch, &inode);
}

static int plan_exchange(struct op_run *run, const struct rename_arg *ra, const struct rename_ends *ends)
{
    const struct dirent_found *from = &ends->from;
    const struct dirent_found *to = &ends->to;
    const int from_dir = is_dir_kind(from) ? 1 : 0;
    const int to_dir = is_dir_kind(to) ? 1 : 0;
    run->moves_directory = ra->parent != ra->parent2 && (from_dir != 0 || to_dir != 0);
    int rc = move_name(run, from->ino, ra->parent, from->cookie, ra->parent2, to->cookie);
    if (rc == 0) {
        rc = move_name(run, to->ino, ra->parent2, to->cookie, ra->parent, from->cookie);
    }
    if (rc == 0) {
        rc = dirent_batch_put(&run->batch, ra->parent, from->cookie, ra->name.bytes, ra->name.size, to->ino, to->kind);
    }
    if (rc == 0) {
        rc = dirent_batch_put(&run->batch, ra->parent2, to->cookie, ra->name2.bytes, ra->name2.size, from->ino,
                              from->kind);
    }
    if (rc == 0) {
        rc = touch_dir(run, ra->parent, 0, to_dir - from_dir);
    }
    return rc != 0 ? rc : touch_dir(run, ra->parent2, 0, from_dir - to_dir);
}

/* What the target name leads to goes. */
static int drop_target(struct op_run *run, const struct rename_arg *ra, const struct rename_ends *ends)
{
    if (!ends->has_to) {
        return 0;
    }
    return is_dir_kind(&ends->to) ? drop_dir(run, ends->to.ino)
                                  : drop_file_name(run, ends->to.ino, ra->parent2, ends->to.cookie);
}

static int plan_move(struct op_run *run, const struct rename_arg *ra, const struct rename_ends *ends)
{
    const struct dirent_found *from = &ends->from;
    const int is_dir = is_dir_kind(from) ? 1 : 0;
    uint64_t cookie = ends->to.cookie;
    run->moves_directory = ra->parent != ra->parent2 && is_dir != 0;
    int rc = drop_target(run, ra, ends);
    if (rc == 0 && !ends->has_to) {
        rc = dirent_batch_new_cookie(&run->batch, &run->store->hash, ra->parent2, ra->name2.bytes, ra->name2.size,
                                     &cookie);
    }
    if (rc == 0) {
        rc = move_name(run, from->ino, ra->parent, from->cookie, ra->parent2, cookie);
    }
    if (rc == 0) {
        rc = dirent_batch_put(&run->batch, ra->parent2, cookie, ra->name2.bytes, ra->name2.size, from->ino, from->kind);
    }
    if (rc == 0) {
        rc = dirent_batch_remove(&run->batch, ra->parent, from->cookie);
    }
    if (rc == 0) {
        rc = touch_dir(run, ra->parent, -1, -is_dir);
    }
    run->op.cookie2 = cookie;
    return rc != 0 ? rc : touch_dir(run, ra->parent2, ends->has_to ? 0 : 1, ends->has_to ? 0 : is_dir);
}

/* Two names of one inode: POSIX says that nothing happens. */
#define RENAME_NOTHING_TO_DO 1

static int plan_rename(struct op_run *run, void *arg)
{
    const struct rename_arg *ra = arg;
    struct rename_ends ends = {0};
    int rc = find_ends(run, ra, &ends);
    if (rc == 0) {
        rc = check_rename(run, ra, &ends);
    }
    if (rc != 0) {
        return rc;
    }
    if (ends.has_to && ends.to.ino == ends.from.ino) {
        return RENAME_NOTHING_TO_DO;
    }
    run->op.ino = ends.from.ino;
    run->op.ino2 = ends.has_to ? ends.to.ino : INO_NONE;
    run->op.parent = ra->parent;
    run->op.parent2 = ra->parent2;
    run->op.name = op_bytes_of(ra->name);
    run->op.name2 = op_bytes_of(ra->name2);
    run->op.cookie = ends.from.cookie;
    run->op.cookie2 = ends.to.cookie;
    if ((ra->flags & STORE_RENAME_EXCHANGE) != 0) {
        run->op.flags |= OP_RENAME_EXCHANGE;
        return plan_exchange(run, ra, &ends);
    }
    return plan_move(run, ra, &ends);
}

int store_rename(struct store *store, struct view *view, ino_no parent, struct store_name name, ino_no new_parent,
                 struct store_name new_name, unsigned flags)
{
    if ((flags & ~(STORE_RENAME_NOREPLACE | STORE_RENAME_EXCHANGE)) != 0 ||
        flags == (STORE_RENAME_NOREPLACE | STORE_RENAME_EXCHANGE)) {
        return -EINVAL;
    }
    if (new_name.size > STORE_NAME_MAX) {
        return -ENAMETOOLONG;
    }
    struct rename_arg ra = {.parent = parent, .parent2 = new_parent, .name = name, .name2 = new_name, .flags = flags};
    int rc = store_warm_name(store, view, parent, name);
    if (rc == 0) {
        rc = store_warm_name(store, view, new_parent, new_name);
    }
    if (rc == 0) {
        rc = store_op_run(store, view, OP_RENAME, plan_rename, &ra);
    }
    return rc == RENAME_NOTHING_TO_DO ? 0 : rc;
}

/* ---- destroy ---- */

static int plan_destroy(struct op_run *run, void *arg)
{
    const ino_no ino = *(const ino_no *)arg;
    struct inode inode;
    int rc = inode_batch_get(&run->batch, ino, &inode);
    if (rc == 0) {
        rc = op_destroy_inode(run, &inode);
    }
    if (rc == 0) {
        const struct catalog_key key = orphan_key(ino);
        rc = catalog_batch_remove(&run->batch, &key);
    }
    run->op.ino = ino;
    return rc;
}

void store_destroy_orphan_or_log(struct store *store, struct view *view, ino_no ino)
{
    const int rc = store_op_run(store, view, OP_DESTROY, plan_destroy, &ino);
    const struct store_txn *txn = txn_of_view(view);
    if (rc != 0 && txn != NULL && txn_has_ended(txn)) {
        return; /* and all that is its own with it */
    }
    if (rc != 0) {
        diag_log(store->diag, DIAG_WARNING,
                 "%s: inode %llu has no name and could not be removed: %s; the next start does it", store->dir,
                 (unsigned long long)ino, strerror(-rc));
    }
}

/* ---- replay ---- */

static struct store_name store_name_of(struct op_bytes bytes)
{
    return (struct store_name){.bytes = bytes.data, .size = bytes.size};
}

static int replay_create(struct store *store, struct view *view, const struct op_record *record)
{
    struct store_attr attr;
    char target[4096] = "";
    if (record->data.size >= sizeof target) {
        return -EBADMSG;
    }
    if (record->data.size > 0) {
        memcpy(target, record->data.data, record->data.size);
    }
    struct create_arg ca = {.parent = record->parent,
                            .name = store_name_of(record->name),
                            .mode = record->mode,
                            .rdev = record->rdev,
                            .who = {.uid = record->uid, .gid = record->gid},
                            .target = S_ISLNK(record->mode) ? target : NULL,
                            .out_attr = &attr};
    return store_op_replay(store, view, record, plan_create, &ca);
}

static int replay_link(struct store *store, struct view *view, const struct op_record *record)
{
    struct store_attr attr;
    struct link_arg la = {
        .ino = record->ino, .parent = record->parent, .name = store_name_of(record->name), .out_attr = &attr};
    return store_op_replay(store, view, record, plan_link, &la);
}

static int replay_unlink(struct store *store, struct view *view, const struct op_record *record)
{
    struct unlink_arg ua = {
        .parent = record->parent, .name = store_name_of(record->name), .dir = record->type == OP_RMDIR};
    return store_op_replay(store, view, record, plan_unlink, &ua);
}

static int replay_rename(struct store *store, struct view *view, const struct op_record *record)
{
    struct rename_arg ra = {.parent = record->parent,
                            .parent2 = record->parent2,
                            .name = store_name_of(record->name),
                            .name2 = store_name_of(record->name2),
                            .flags = (record->flags & OP_RENAME_EXCHANGE) != 0 ? STORE_RENAME_EXCHANGE : 0};
    return store_op_replay(store, view, record, plan_rename, &ra);
}

static int replay_destroy(struct store *store, struct view *view, const struct op_record *record)
{
    ino_no ino = record->ino;
    return store_op_replay(store, view, record, plan_destroy, &ino);
}

int store_names_replay(struct store *store, struct view *view, const struct op_record *record)
{
    switch (record->type) {
    case OP_CREATE:
        return replay_create(store, view, record);
    case OP_LINK:
        return replay_link(store, view, record);
    case OP_UNLINK:
    case OP_RMDIR:
        return replay_unlink(store, view, record);
    case OP_RENAME:
        return replay_rename(store, view, record);
    case OP_DESTROY:
        return replay_destroy(store, view, record);
    default:
        return -EBADMSG;
    }
}
