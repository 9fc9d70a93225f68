/*
 * fusefs/drops.c - see the header.
 */
#include "fusefs/drops.h"

#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static bool is_guarded(const struct fusefs *fs, const struct node_identity *node)
{
    return fs->options->drop == FUSEFS_DROP_TXN && node_tree_is(node->tree, NODE_TREE_LIVE);
}

static int check(const struct store_attr *attr)
{
    return S_ISREG(attr->mode) && attr->size_bytes > 0 ? -EPERM : 0;
}

int drops_check_name(struct fusefs *fs, const struct node_identity *dir, const char *name)
{
    struct store_attr attr;
    const struct store_name wanted = {.bytes = name, .size = strlen(name)};
    if (!is_guarded(fs, dir) || store_lookup(fs->store, dir->view, dir->ino, wanted, &attr) != 0)
        return 0; /* what is not there is told by who looks for it */
    return check(&attr);
}

int drops_check_cut(struct fusefs *fs, const struct node_identity *node)
{
    struct store_attr attr;
    if (!is_guarded(fs, node) || store_getattr(fs->store, node->view, node->ino, &attr) != 0)
        return 0;
    return check(&attr);
}
