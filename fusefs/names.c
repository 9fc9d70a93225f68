/*
 * fusefs/names.c - the few names that are not the user's.
 *
 * .txn, .snap, .tablespace and .tblfs belong to tblfs at the root of the mount only; .commit in every directory: it
 * always looks up as missing, so that making it can mean something. In a snapshot nothing can be made or removed.
 *
 * Locking: none, nothing is shared.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <string.h>

#define NAME_MAX_BYTES 255u

static bool is_root(const struct node_identity *dir)
{
    return node_tree_is_live(dir->tree) && dir->ino == INO_ROOT;
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

bool name_is_snapshots(const struct node_identity *dir, const char *name)
{
    return is_root(dir) && strcmp(name, ".snap") == 0;
}

int node_check_writable(const struct node_identity *node)
{
    return node_tree_is_live(node->tree) ? 0 : -EROFS;
}

/* What holds for every name in it. */
static int check_directory(const struct node_identity *dir)
{
    return snapshots_is_node(dir) ? -EPERM : node_check_writable(dir);
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
    const int rc = check_directory(dir);
    if (rc != 0)
        return rc;
    if (is_root(dir) && is_reserved_at_root(name))
        return -EBUSY;
    return is_commit(name) ? -EINVAL : 0;
}

int name_check_old(const struct node_identity *dir, const char *name)
{
    if (is_too_long(name))
        return -ENAMETOOLONG;
    const int rc = check_directory(dir);
    if (rc != 0)
        return rc;
    if (is_root(dir) && is_reserved_at_root(name))
        return -EBUSY;
    return is_commit(name) ? -ENOENT : 0;
}
