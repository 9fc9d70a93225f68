/*
 * fusefs/names.c - the few names that are not the user's.
 *
 * .txn, .snap, .tablespace and .tblfs belong to tblfs at the root of the mount only; .commit in every directory: it
 * always looks up as missing, so that making it can mean something.
 *
 * Locking: none, nothing is shared.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <string.h>

#define NAME_MAX_BYTES 255u

static bool is_root(const struct node_identity *dir)
{
    return dir->view != NODE_VIEW_VIRTUAL && dir->ino == INO_ROOT;
}

static bool is_reserved_at_root(const char *name)
{
    static const char *const names[] = {".txn", ".snap", ".tablespace", ".tblfs"};
    for (size_t index = 0; index < ARRAY_COUNT(names); index++) {
        if (strcmp(name, names[index]) == 0)
            return true;
    }
    return false;
}

static bool is_commit(const char *name)
{
    return strcmp(name, ".commit") == 0;
}

static bool is_too_long(const char *name)
{
    return strnlen(name, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES;
}

bool name_is_system(const struct node_identity *dir, const char *name)
{
    return is_root(dir) && strcmp(name, ".tblfs") == 0;
}

int name_check_lookup(const struct node_identity *dir, const char *name)
{
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (is_commit(name) || (is_root(dir) && is_reserved_at_root(name)))
        return -ENOENT;
    return 0;
}

int name_check_new(const struct node_identity *dir, const char *name)
{
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (dir->view == NODE_VIEW_VIRTUAL)
        return -EROFS;
    if (is_root(dir) && is_reserved_at_root(name))
        return -EBUSY;
    return is_commit(name) ? -EINVAL : 0;
}

int name_check_old(const struct node_identity *dir, const char *name)
{
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (dir->view == NODE_VIEW_VIRTUAL)
        return -EROFS;
    if (is_root(dir) && is_reserved_at_root(name))
        return -EBUSY;
    return is_commit(name) ? -ENOENT : 0;
}
