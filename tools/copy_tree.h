/*
 * tools/copy_tree.h - copies files and directories with all that belongs to them.
 */
#ifndef TBLFS_TOOLS_COPY_TREE_H
#define TBLFS_TOOLS_COPY_TREE_H

#include "base/types.h"

struct copy_tree_result {
    uint64_t files, directories, bytes;
};

/*
 * Copies like cp -a: content with its holes, modes, times, extended attributes, owners if the caller is root, symbolic and
 * hard links, fifos and device files. `target` is a directory, which gets them all, or it does not exist, or is a file, and
 * becomes the copy of the only source. What is there of the same name is written over, directories are joined. Shows its
 * progress on a terminal. Ends with the first error, which was said: -errno.
 */
int copy_tree(char *const *sources, size_t count, const char *target, struct copy_tree_result *out_result) WARN_UNUSED;

#endif
