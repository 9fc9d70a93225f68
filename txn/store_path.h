/*
 * txn/store_path.h - paths of inodes, for people (inside of txn/).
 *
 * From the tree's root, without a leading '/'. Climbing needs the view's catalog lock, shared, and a reader's pins.
 */
#ifndef TBLFS_TXN_STORE_PATH_H
#define TBLFS_TXN_STORE_PATH_H

#include "txn/store_int.h"

#include <limits.h>

struct path {
    char bytes[PATH_MAX + STORE_NAME_MAX + 2]; /* filled from the end */
    size_t start;
};

void path_init(struct path *path);
/* What is longer than any path can be loses its front. */
void path_prepend(struct path *path, const void *name, size_t size);
/* Puts the path of an inode before what is there; nothing for the root. -ENOENT: it has none in this view. */
int path_climb(struct view *view, ino_no ino, struct path *path) WARN_UNUSED;

static inline const char *path_text(const struct path *path)
{
    return path->bytes + path->start;
}

#endif
