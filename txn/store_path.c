/*
 * txn/store_path.c - see the header.
 */
#include "txn/store_path.h"

#include <errno.h>
#include <string.h>

void path_init(struct path *path)
{
    path->start = sizeof path->bytes - 1;
    path->bytes[path->start] = '\0';
}

void path_prepend(struct path *path, const void *name, size_t size)
{
    const bool more = path->bytes[path->start] != '\0';
    if (path->start < size + (more ? 1 : 0)) {
        return; /* longer than any path can be: its end has to do */
    }
    if (more) {
        path->bytes[--path->start] = '/';
    }
    path->start -= size;
    memcpy(path->bytes + path->start, name, size);
}

struct entry_arg {
    struct path *path;
    uint64_t cookie;
};

static int prepend_entry(void *arg, uint64_t cookie, const char *name, size_t name_size, ino_no ino, uint8_t kind)
{
    const struct entry_arg *ea = arg;
    (void)ino;
    (void)kind;
    if (cookie == ea->cookie) {
        path_prepend(ea->path, name, name_size);
    }
    return 1;
}

int path_climb(struct view *view, ino_no ino, struct path *path)
{
    for (unsigned depth = 0; ino != INO_ROOT && depth < PATH_MAX; depth++) {
        struct inode inode;
        int rc = inode_get(view, ino, &inode);
        if (rc != 0 || inode.name_cookie == 0) {
            return rc != 0 ? rc : -ENOENT;
        }
        struct entry_arg ea = {.path = path, .cookie = inode.name_cookie};
        rc = dirent_scan(view, inode.parent, inode.name_cookie - 1, prepend_entry, &ea);
        if (rc < 0) {
            return rc;
        }
        ino = inode.parent;
    }
    return 0;
}
