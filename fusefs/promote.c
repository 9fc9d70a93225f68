/*
 * fusefs/promote.c - `tblfs promote`: asks the daemon, and looks at MNT/.tblfs/status until it is done.
 *
 * Locking: none; one thread.
 */
#include "fusefs/promote.h"

#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS     50
#define STATUS_SIZE 65536

static const char *reason(int error)
{
    switch (error) {
    case EINVAL:
        return "it is not a standby";
    case EALREADY:
        return "it is being promoted";
    case EPERM:
        return "only root, or who mounted it, can do that";
    case EIO:
        return "it stopped (the daemon's log and .tblfs/status say why)";
    default:
        return strerror(error);
    }
}

static int ask(const char *path)
{
    struct promote_exchange exchange = {.error = 0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const int rc = ioctl(fd, PROMOTE_IOCTL, &exchange) < 0 ? -errno : exchange.error;
    (void)close(fd);
    return rc == -ENOTTY ? -EINVAL : rc;
}

/* A line of the table; "": it has none. */
static void value_of(const char *text, const char *name, char *value, size_t size)
{
    const size_t length = strlen(name);
    value[0] = '\0';
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == '\t') {
            (void)snprintf(value, size, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
            return;
        }
    }
}

static int read_status(const char *path, char text[STATUS_SIZE])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t size = 0;
    ssize_t got;
    while ((got = read(fd, text + size, STATUS_SIZE - 1 - size)) > 0)
        size += (size_t)got;
    const int rc = got < 0 ? -errno : 0;
    (void)close(fd);
    text[size] = '\0';
    return rc;
}

/* 1: not yet. */
static int look(const char *given, const char *path, char text[STATUS_SIZE])
{
    char state[40];
    char value[200];
    const int rc = read_status(path, text);
    if (rc != 0) {
        fprintf(stderr, "tblfs: %s: %s\n", given, strerror(-rc));
        return rc;
    }
    value_of(text, "standby", state, sizeof state);
    if (strcmp(state, "promoted") == 0) {
        value_of(text, "standby_timeline", value, sizeof value);
        fprintf(stderr, "tblfs: %s is writable, on timeline %s\n", given, value);
        return 0;
    }
    value_of(text, "standby_error", value, sizeof value);
    if (strcmp(state, "stopped") == 0 || strcmp(state, "error") == 0) {
        fprintf(stderr, "tblfs: %s is not promoted: %s%s\n", given, value,
                state[0] == 'e' ? "; it will be when that is mended, or unmounted" : "");
        return -EIO;
    }
    return 1;
}

static int wait_until_done(const char *given, const char *path)
{
    char text[STATUS_SIZE];
    const struct timespec duration = {.tv_nsec = LOOK_MS * 1000000L};
    int rc;
    while ((rc = look(given, path, text)) == 1)
        (void)nanosleep(&duration, NULL);
    return rc;
}

static int promote(const char *given, const char *mount_point)
{
    char *path = NULL;
    if (asprintf(&path, "%s/.tblfs/status", mount_point) < 0) {
        fprintf(stderr, "tblfs: %s\n", strerror(ENOMEM));
        return -ENOMEM;
    }
    int rc = ask(path);
    if (rc != 0)
        fprintf(stderr, "tblfs: %s cannot be promoted: %s\n", given, reason(-rc));
    else
        rc = wait_until_done(given, path);
    free(path);
    return rc;
}

int fusefs_promote(const char *given)
{
    char *mount_point = mount_realpath(given);
    if (mount_point == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", given, strerror(errno));
        return 1;
    }
    int rc = mount_check_live(given, mount_point);
    if (rc == 0)
        rc = promote(given, mount_point);
    free(mount_point);
    return rc == 0 ? 0 : 1;
}
