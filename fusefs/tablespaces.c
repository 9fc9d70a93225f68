/*
 * fusefs/tablespaces.c - MNT/.tablespace: a directory of symbolic links, one for each tablespace, to its directory.
 *
 *   ln -s DIRECTORY makes one, rm drops it; nothing else can be made or moved.
 *
 * The kernel may keep all that it learns: names change only by gestures that it knows of, and a link has a number of its own.
 *
 * Locking: none of its own. The kernel has one gesture in .tablespace at a time.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct store_name name_of(const char *name)
{
    return (struct store_name){.bytes = name, .size = strlen(name)};
}

/* ---- the directory ---- */

static int take_created(void *arg, const struct store_tablespace_info *info)
{
    int64_t *latest_ns = arg;
    if (info->created_ns > *latest_ns)
        *latest_ns = info->created_ns;
    return 0;
}

void tablespaces_init(struct fusefs *fs)
{
    int64_t latest_ns = 0;
    (void)store_each_tablespace(fs->store, take_created, &latest_ns);
    fs->roots_changed_ns[ROOTS_TABLESPACES] = latest_ns != 0 ? latest_ns : fs->started_ns;
}

static mode_t directory_mode(struct fusefs *fs)
{
    return (mode_t)fs->options->snap_mode;
}

static void each_entry(struct fusefs *fs, roots_entry_fn *fn, void *arg)
{
    (void)fs; /* links do not count as links of the directory */
    (void)fn;
    (void)arg;
}

static const struct roots_directory directory = {
    .which = ROOTS_TABLESPACES,
    .ino = TABLESPACES_INO,
    .mode = directory_mode,
    .each = each_entry,
};

void tablespaces_lookup_directory(fuse_req_t req, const struct node_identity *root)
{
    (void)root;
    roots_lookup_directory(req, &directory);
}

static void tablespaces_getattr(fuse_req_t req, const struct node_identity *node)
{
    (void)node;
    roots_getattr(req, &directory);
}

static int list_entry(void *arg, const struct store_tablespace_info *info)
{
    const bool added = virtual_listing_add(arg, info->name, TABLESPACE_INO_FIRST + info->number, S_IFLNK,
                                           VIRTUAL_COOKIE_DOTDOT + info->number);
    return added ? 0 : 1;
}

static void tablespaces_readdir(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after, bool plus)
{
    struct virtual_listing listing;
    (void)dir;
    if (!virtual_listing_begin(&listing, req, size, after, plus, TABLESPACES_INO, INO_ROOT))
        return;
    (void)store_each_tablespace(fusefs_of(req)->store, list_entry, &listing);
    virtual_listing_end(&listing);
}

/* ---- its links ---- */

/* A copy of what is known of one, found by name, or, without one, by number. */
struct found {
    const char *name;
    ts_no number;
    char *dir;
    int64_t created_ns;
};

static int find(void *arg, const struct store_tablespace_info *info)
{
    struct found *found = arg;
    if (found->name != NULL ? strcmp(info->name, found->name) != 0 : info->number != found->number)
        return 0;
    found->number = info->number;
    found->created_ns = info->created_ns;
    found->dir = strdup(info->dir);
    return found->dir != NULL ? 1 : -ENOMEM;
}

/* found->dir is malloc'd. -ENOENT. */
static int find_link(struct fusefs *fs, struct found *found)
{
    const int rc = store_each_tablespace(fs->store, find, found);
    return rc == 0 ? -ENOENT : rc < 0 ? rc : 0;
}

static struct stat stat_of(const struct found *found)
{
    const struct timespec created = {.tv_sec = found->created_ns / 1000000000,
                                     .tv_nsec = found->created_ns % 1000000000};
    return (struct stat){
        .st_ino = TABLESPACE_INO_FIRST + found->number,
        .st_mode = S_IFLNK | 0777,
        .st_nlink = 1,
        .st_uid = geteuid(),
        .st_gid = getegid(),
        .st_size = (off_t)strlen(found->dir),
        .st_blksize = BLOCK_SIZE,
        .st_atim = created,
        .st_mtim = created,
        .st_ctim = created,
    };
}

static void tablespaces_lookup(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    struct found found = {.name = name};
    (void)dir;
    const int rc = name_is_too_long(name) ? -ENAMETOOLONG : find_link(fusefs_of(req), &found);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    const struct stat stat = stat_of(&found);
    virtual_reply_entry(req, &stat, TIMEOUT_LONG_S);
    free(found.dir);
}

static void link_getattr(fuse_req_t req, const struct node_identity *node)
{
    struct found found = {.number = (ts_no)(node->ino - TABLESPACE_INO_FIRST)};
    const int rc = find_link(fusefs_of(req), &found);
    if (rc != 0) {
        reply_error(req, stale_if_gone(rc));
        return;
    }
    const struct stat stat = stat_of(&found);
    (void)fuse_reply_attr(req, &stat, TIMEOUT_LONG_S);
    free(found.dir);
}

static void link_readlink(fuse_req_t req, const struct node_identity *node)
{
    struct found found = {.number = (ts_no)(node->ino - TABLESPACE_INO_FIRST)};
    const int rc = find_link(fusefs_of(req), &found);
    if (rc != 0) {
        reply_error(req, stale_if_gone(rc));
        return;
    }
    (void)fuse_reply_readlink(req, found.dir);
    free(found.dir);
}

/* ---- gestures ---- */

static int refuse(struct fusefs *fs, const char *name, const char *dir, const char *why, const char *what)
{
    diag_log(&fs->log.diag, DIAG_ERROR, "tablespace %s: %s %s%s", name, dir, why, what);
    return -EINVAL;
}

#define CHANGES_MAX 1000u

/* path, of PATH_MAX bytes: what stands from `first` to `last` gives way to `text`, and what follows stays. */
static int put_in(char *path, const char *first, const char *last, const char *text)
{
    char changed[PATH_MAX];
    const int size = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(first - path), path, text, last);
    if (size < 0 || (size_t)size >= sizeof changed)
        return -ENAMETOOLONG;
    memcpy(path, changed, (size_t)size + 1);
    return 0;
}

/* `last` is the end of a component, up to which no other is a link, empty, ".", or "..". 1: it was one, and the path is another one now. */
static int expand(char *path, char *last)
{
    char text[PATH_MAX];
    char *slash = last;
    while (*--slash != '/') {
    }
    const size_t size = (size_t)(last - slash) - 1;
    if (size == 0 || (size == 1 && slash[1] == '.')) {
        const int rc = put_in(path, slash, last, "");
        return rc != 0 ? rc : 1;
    }
    if (size == 2 && memcmp(slash, "/..", 3) == 0) {
        while (slash > path && *--slash != '/') {
        }
        const int rc = put_in(path, slash, last, "");
        return rc != 0 ? rc : 1;
    }
    const char after = *last;
    *last = '\0';
    const ssize_t length = readlink(path, text, sizeof text - 1);
    *last = after;
    if (length < 0)
        return 0; /* realpath says what is wrong with it, if anything is */
    text[length] = '\0';
    const int rc = text[0] == '/' ? put_in(path, path, last, text) : put_in(path, slash + 1, last, text);
    return rc != 0 ? rc : 1;
}

/* Follows the links of an absolute path, of PATH_MAX bytes, until none is left in it, or it leads into the mount point. Nothing below that is looked
 * up: the kernel holds .tablespace meanwhile, and would never answer. */
static int follow_links(char *path, const char *mount_point)
{
    unsigned changes = 0;
    for (char *last = path; *last != '\0';) {
        last += 1 + strcspn(last + 1, "/");
        const char after = *last;
        *last = '\0';
        const bool is_inside = path_lies_in(path, mount_point);
        *last = after;
        if (is_inside)
            return 0;
        const int rc = expand(path, last);
        if (rc < 0)
            return rc;
        if (rc == 1 && ++changes > CHANGES_MAX)
            return -ELOOP;
        last = rc == 1 ? path : last;
    }
    return 0;
}

/* As the kernel spells it; it must lie apart from what tblfs has. *out_dir is malloc'd. */
static int resolve(struct fusefs *fs, const char *name, const char *target, char **out_dir)
{
    const char *data_dir = fs->options->data_dir;
    const char *mount_point = fs->options->mount_point;
    char path[PATH_MAX];
    if (target[0] != '/')
        return refuse(fs, name, target, "is not an absolute path", "");
    if (strlen(target) >= sizeof path)
        return -ENAMETOOLONG;
    (void)strcpy(path, target);
    int rc = follow_links(path, mount_point);
    if (rc == 0 && path_lies_in(path, mount_point))
        return refuse(fs, name, target, "lies in the mount point ", mount_point);
    char *real = rc == 0 ? realpath(path[0] != '\0' ? path : "/", NULL) : NULL;
    if (real == NULL) {
        rc = rc != 0 ? rc : -errno;
        diag_log(&fs->log.diag, DIAG_ERROR, "tablespace %s: %s: %s", name, target, strerror(-rc));
        return rc;
    }
    if (path_lies_in(real, mount_point))
        rc = refuse(fs, name, real, "lies in the mount point ", mount_point);
    else if (path_lies_in(real, data_dir) || path_lies_in(data_dir, real))
        rc = refuse(fs, name, real, "lies in, or around, the data directory ", data_dir);
    if (rc != 0)
        free(real);
    else
        *out_dir = real;
    return rc;
}

static void tablespaces_symlink(fuse_req_t req, const char *target, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    struct found found = {.name = name};
    char *dir = NULL;
    int rc = roots_check_new_name(name);
    if (rc == 0)
        rc = resolve(fs, name, target, &dir);
    if (rc == 0)
        rc = store_tablespace_create(fs->store, name_of(name), dir);
    free(dir);
    if (rc == 0) {
        roots_note_changed(fs, ROOTS_TABLESPACES);
        rc = find_link(fs, &found);
    }
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    const struct stat stat = stat_of(&found);
    virtual_reply_entry(req, &stat, TIMEOUT_LONG_S);
    free(found.dir);
}

static void tablespaces_unlink(fuse_req_t req, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    const int rc = store_tablespace_drop(fs->store, name_of(name));
    if (rc == 0)
        roots_note_changed(fs, ROOTS_TABLESPACES);
    reply_error(req, rc);
}

const struct virtual_kind tablespaces_kind = {
    .first_ino = TABLESPACES_INO,
    .last_ino = TABLESPACES_INO,
    .name_rc = -EPERM,
    .change_rc = -EPERM,
    .getattr = tablespaces_getattr,
    .lookup = tablespaces_lookup,
    .readdir = tablespaces_readdir,
    .symlink = tablespaces_symlink,
    .unlink = tablespaces_unlink,
};

const struct virtual_kind tablespace_links_kind = {
    .first_ino = TABLESPACE_INO_FIRST,
    .last_ino = TABLESPACE_INO_FIRST + UINT32_MAX,
    .name_rc = -ENOTDIR,
    .change_rc = -EPERM,
    .getattr = link_getattr,
    .readlink = link_readlink,
};
