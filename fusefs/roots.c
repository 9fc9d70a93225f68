/*
 * fusefs/roots.c - see the header.
 */
#include "fusefs/roots.h"
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS_IN_SECOND INT64_C(1000000000)

/* ---- the directory ---- */

void roots_note_changed(struct fusefs *fs, enum roots which)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    fs->roots_changed_ns[which] = (int64_t)now.tv_sec * NANOSECONDS_IN_SECOND + now.tv_nsec;
}

static bool count_entry(void *arg, const char *name, ino_no st_ino, uint64_t cookie)
{
    nlink_t *count = arg;
    (void)name;
    (void)st_ino;
    (void)cookie;
    ++*count;
    return true;
}

static void fill_stat(struct fusefs *fs, const struct roots_directory *dir, struct stat *out_stat)
{
    const int64_t changed_ns = fs->roots_changed_ns[dir->which];
    const struct timespec changed = {.tv_sec = changed_ns / NANOSECONDS_IN_SECOND,
                                     .tv_nsec = changed_ns % NANOSECONDS_IN_SECOND};
    nlink_t links = 2;
    dir->each(fs, count_entry, &links);
    *out_stat = (struct stat){
        .st_ino = dir->ino,
        .st_mode = S_IFDIR | dir->mode(fs),
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

void roots_getattr(fuse_req_t req, const struct roots_directory *dir)
{
    struct stat stat;
    fill_stat(fusefs_of(req), dir, &stat);
    (void)fuse_reply_attr(req, &stat, TIMEOUT_LONG_S);
}

void roots_lookup_directory(fuse_req_t req, const struct roots_directory *dir)
{
    struct stat stat;
    fill_stat(fusefs_of(req), dir, &stat);
    virtual_reply_entry(req, &stat, TIMEOUT_LONG_S);
}

static bool list_entry(void *arg, const char *name, ino_no st_ino, uint64_t cookie)
{
    return virtual_listing_add(arg, name, st_ino, S_IFDIR, cookie);
}

void roots_readdir(fuse_req_t req, const struct roots_directory *dir, size_t size, uint64_t after, bool plus)
{
    struct virtual_listing listing;
    if (!virtual_listing_begin(&listing, req, size, after, plus, dir->ino, INO_ROOT))
        return;
    dir->each(fusefs_of(req), list_entry, &listing);
    virtual_listing_end(&listing);
}

/* ---- its entries ---- */

int roots_enter_tree(struct fusefs *fs, const struct roots_directory *dir, const struct node_tree_source *source,
                     struct node_tree **out_tree)
{
    bool made = false;
    const int rc = node_tree_enter(fs->nodes, source, out_tree, &made); /* ROOTS-1 */
    if (rc == -ENFILE)
        diag_log(&fs->log.diag, DIAG_ERROR, "tree %llu: %llu snapshots and transactions are in use, no more can be",
                 (unsigned long long)source->number, (unsigned long long)NODE_PLACES_MAX);
    if (rc != 0 || !made)
        source->release(source->owner);
    else if (!dir->is_there(fs, source->number)) /* it went since we found it: whoever did that did not see the tree */
        node_tree_drop(fs->nodes, source->kind, source->number, -ESTALE);
    return rc;
}

int roots_reply_root(fuse_req_t req, const struct roots_directory *dir, const struct node_tree_source *source)
{
    struct fusefs *fs = fusefs_of(req);
    struct node_tree *tree = NULL;
    struct store_attr attr;
    int rc = roots_enter_tree(fs, dir, source, &tree);
    if (rc != 0)
        return rc;
    rc = store_getattr(fs->store, node_tree_view(tree), INO_ROOT, &attr);
    if (rc == 0)
        reply_entry(req, tree, &attr);
    node_tree_let_go(tree);
    return rc;
}

int roots_check_new_name(const char *name)
{
    if (name_is_too_long(name))
        return -ENAMETOOLONG;
    return name_is_commit(name) ? -EINVAL : 0;
}
