/*
 * fusefs/take_snapshot.c - `tblfs snapshot`: what mkdir MNT/.snap/NAME does, and durable before it returns.
 *
 * It makes sure first that MNT is a mount of ours: elsewhere the same mkdir could make an ordinary directory.
 *
 * Locking: none; one thread.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *reason(int error)
{
    switch (error) {
    case EEXIST:
        return "there is a snapshot of that name";
    case EROFS:
        return "the store is read-only (the daemon's log and .tblfs/status say why)";
    case EACCES:
        return "permission denied: MNT/.snap belongs to who mounted it (mount option snap_mode)";
    default:
        return strerror(error);
    }
}

/* Takes it and waits for the disk. */
static int take(const char *given, const char *mount_point, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/.snap", mount_point) < 0) {
        fprintf(stderr, "tblfs: %s\n", strerror(ENOMEM));
        return -ENOMEM;
    }
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(path);
    if (fd < 0) {
        fprintf(stderr, "tblfs: %s/.snap: %s\n", given, strerror(errno));
        return -EINVAL;
    }
    int rc = 0;
    if (mkdirat(fd, name, 0755) != 0) {
        rc = -errno;
        fprintf(stderr, "tblfs: cannot take snapshot %s of %s: %s\n", name, given, reason(-rc));
    } else if (fsync(fd) != 0) {
        rc = -errno;
        fprintf(stderr, "tblfs: snapshot %s of %s was taken, but may not survive a power cut: %s\n", name, given,
                strerror(-rc));
    }
    (void)close(fd);
    return rc;
}

int fusefs_take_snapshot(const char *given, const char *name)
{
    if (name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        fprintf(stderr, "tblfs: '%s' cannot be the name of a snapshot: it is to be the name of a directory\n", name);
        return 1;
    }
    char *mount_point = mount_realpath(given);
    if (mount_point == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", given, strerror(errno));
        return 1;
    }
    int rc = mount_check_live(given, mount_point);
    if (rc == 0)
        rc = take(given, mount_point, name);
    free(mount_point);
    return rc == 0 ? 0 : 1;
}
