/*
 * fusefs/names.c - the few names that are not the user's.
 *
 * .txn, .snap, .tablespace and .tblfs belong to tblfs at the root of the mount, and of each transaction; .commit in every
 * directory: it always looks up as missing, so that making it can mean something. In a snapshot nothing can be made or removed.
 *
 * Locking: none, nothing is shared.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <string.h>

#define NAME_MAX_BYTES 255u

static bool is_live_root(const struct node_identity *dir)
{
    return node_tree_is(dir->tree, NODE_TREE_LIVE) && dir->ino == INO_ROOT;
}

/* Where some names are tblfs's own. */
static bool is_root(const struct node_identity *dir)
{
    return is_live_root(dir) || transaction_is_root(dir);
}

static const struct {
    const char *name;
    name_lookup_fn *lookup; /* NULL: it looks up as missing */
    name_lookup_fn *lookup_in_transaction;
} own_names[] = {
    {".txn", transactions_lookup_directory, NULL},
    {".snap", snapshots_lookup_directory, NULL},
    {".tablespace", tablespaces_lookup_directory, NULL},
    {".tblfs", system_lookup_directory, transaction_tables_lookup_directory},
};

bool name_is_own(const char *name)
{
    for (size_t index = 0; index < ARRAY_COUNT(own_names); index++) {
        if (strcmp(name, own_names[index].name) == 0)
            return true;
    }
    return false;
}

bool name_is_commit(const char *name)
{
    return strcmp(name, ".commit") == 0;
}

bool name_is_too_long(const char *name)
{
    return strnlen(name, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES;
}

name_lookup_fn *name_own_lookup(const struct node_identity *dir, const char *name)
{
    for (size_t index = 0; index < ARRAY_COUNT(own_names) && is_root(dir); index++) {
        if (strcmp(name, own_names[index].name) == 0)
            return is_live_root(dir) ? own_names[index].lookup : own_names[index].lookup_in_transaction;
    }
    return NULL;
}

int node_check_names(const struct node_identity *dir)
{
    if (node_is_virtual(dir))
        return virtual_kind_of(dir)->name_rc;
    return node_tree_is_read_only(dir->tree) ? -EROFS : 0;
}

int node_check_writable(const struct node_identity *node)
{
    if (node_is_virtual(node))
        return virtual_kind_of(node)->change_rc;
    return node_tree_is_read_only(node->tree) ? -EROFS : 0;
}

int node_check_attributes(const struct node_identity *node)
{
    return transaction_is_root(node) ? -EPERM : node_check_writable(node);
}

int name_check_lookup(const struct node_identity *dir, const char *name)
{
    if (name_is_too_long(name))
        return -ENAMETOOLONG;
    if (name_is_commit(name) || (is_root(dir) && name_is_own(name)))
        return -ENOENT;
    return 0;
}

int name_check_new(const struct node_identity *dir, const char *name)
{
    if (name_is_too_long(name))
        return -ENAMETOOLONG;
    const int rc = node_check_names(dir);
    if (rc != 0)
        return rc;
    if (is_root(dir) && name_is_own(name))
        return -EBUSY;
    return name_is_commit(name) ? -EINVAL : 0;
}

int name_check_old(const struct node_identity *dir, const char *name)
{
    if (name_is_too_long(name))
        return -ENAMETOOLONG;
    const int rc = node_check_names(dir);
    if (rc != 0)
        return rc;
    if (is_root(dir) && name_is_own(name))
        return -EBUSY;
    return name_is_commit(name) ? -ENOENT : 0;
}
