/*
 * fusefs/unmount.c - `tblfs umount`: umount(8) returns before the store is closed; this returns after.
 *
 * The daemon is found by what it says of itself in MNT/.tblfs/status, and watched through a pidfd that is opened before
 * the mount goes: no other process can be mistaken for it.
 *
 * Locking: none, one thread.
 */
#include "fusefs/fusefs_int.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLOSE_WAIT_MS   60000
#define HINT_AFTER_MS   1000
#define USERS_SHOWN_MAX 10u

static void say(const char *fmt, ...) PRINTF_LIKE(1, 2);

static void say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "tblfs: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
}

/* ---- the daemon ---- */

/* The daemon's process id as it says itself; 0: it does not say (no permission, damaged, not answering). */
static pid_t daemon_pid(const char *mount_point)
{
    char *path = NULL;
    if (asprintf(&path, "%s/.tblfs/status", mount_point) < 0)
        return 0;
    FILE *file = fopen(path, "re");
    free(path);
    if (file == NULL)
        return 0;
    char line[512];
    long pid = 0;
    while (pid == 0 && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "pid\t%ld", &pid) != 1)
            pid = 0;
    }
    (void)fclose(file);
    return pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0;
}

static int open_pidfd(pid_t pid)
{
    return pid == 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
}

/* True: the process is gone. */
static bool wait_gone(int pidfd, int timeout_ms)
{
    struct pollfd gone = {.fd = pidfd, .events = POLLIN};
    int ready;
    do
        ready = poll(&gone, 1, timeout_ms);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

static int wait_closed(int pidfd, pid_t pid)
{
    if (wait_gone(pidfd, HINT_AFTER_MS))
        return 0;
    say("waiting for process %ld to write everything to disk", (long)pid);
    if (wait_gone(pidfd, CLOSE_WAIT_MS - HINT_AFTER_MS))
        return 0;
    say("process %ld is still closing the store after %d s; it goes on by itself", (long)pid, CLOSE_WAIT_MS / 1000);
    return -ETIMEDOUT;
}

/* ---- who keeps it busy ---- */

static bool lies_under(const char *path, const char *mount_point)
{
    const size_t length = strlen(mount_point);
    return strncmp(path, mount_point, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

static bool link_lies_under(int dir_fd, const char *name, const char *mount_point)
{
    char target[PATH_MAX];
    const ssize_t length = readlinkat(dir_fd, name, target, sizeof target - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    return lies_under(target, mount_point);
}

/* Has the process its working directory, root, program or an open file there? (Mappings alone are not looked for.) */
static bool process_uses(int process_fd, const char *mount_point)
{
    if (link_lies_under(process_fd, "cwd", mount_point) || link_lies_under(process_fd, "root", mount_point) ||
        link_lies_under(process_fd, "exe", mount_point))
        return true;
    const int list_fd = openat(process_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = list_fd < 0 ? NULL : fdopendir(list_fd);
    if (list == NULL) {
        if (list_fd >= 0)
            (void)close(list_fd);
        return false;
    }
    bool found = false;
    for (const struct dirent *entry = readdir(list); entry != NULL && !found; entry = readdir(list))
        found = link_lies_under(dirfd(list), entry->d_name, mount_point);
    (void)closedir(list);
    return found;
}

static void show_user(int process_fd, const char *pid)
{
    char name[64] = "";
    const int fd = openat(process_fd, "comm", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? 0 : read(fd, name, sizeof name - 1);
    if (fd >= 0)
        (void)close(fd);
    name[got > 0 ? got : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    fprintf(stderr, "  %s %s\n", pid, name);
}

static void show_users(const char *mount_point)
{
    DIR *proc = opendir("/proc");
    unsigned shown = 0;
    if (proc == NULL)
        return;
    for (const struct dirent *entry = readdir(proc); entry != NULL && shown < USERS_SHOWN_MAX; entry = readdir(proc)) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        const int fd = openat(dirfd(proc), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (process_uses(fd, mount_point)) {
            show_user(fd, entry->d_name);
            shown++;
        }
        (void)close(fd);
    }
    (void)closedir(proc);
}

/* ---- transactions ---- */

/* The fields of a line of MNT/.tblfs/transactions that matter here. */
#define FIELD_NAME       1u
#define FIELD_USER       2u
#define FIELD_OPERATIONS 6u
#define FIELD_COUNT      7u

/* False: nothing was changed in that transaction. */
static bool show_if_changed(char *line)
{
    const char *fields[FIELD_COUNT];
    char *rest = line;
    for (size_t index = 0; index < FIELD_COUNT; index++) {
        fields[index] = strsep(&rest, "\t\n");
        if (fields[index] == NULL)
            return false;
    }
    if (strcmp(fields[FIELD_OPERATIONS], "0") == 0)
        return false;
    fprintf(stderr, "  %s of user %s: %s changes\n", fields[FIELD_NAME], fields[FIELD_USER], fields[FIELD_OPERATIONS]);
    return true;
}

/* How many are open in which something was changed; they are shown. 0 also when it cannot be told. */
static unsigned show_changed_transactions(const char *mount_point)
{
    char *path = NULL;
    if (asprintf(&path, "%s/.tblfs/transactions", mount_point) < 0)
        return 0;
    FILE *file = fopen(path, "re");
    free(path);
    if (file == NULL)
        return 0;
    char *line = NULL;
    size_t capacity = 0;
    unsigned count = 0;
    if (getline(&line, &capacity, file) > 0) { /* the names of its columns */
        while (getline(&line, &capacity, file) > 0)
            count += show_if_changed(line) ? 1u : 0u;
    }
    free(line);
    (void)fclose(file);
    return count;
}

/* ---- unmounting ---- */

static int unmount_dead(const char *mount_point)
{
    const int rc = mount_unmount(mount_point, true);
    if (rc == 0)
        say("%s: the daemon was gone already; the mount is detached", mount_point);
    else
        say("%s: the daemon is gone, and the mount cannot be detached: %s", mount_point, strerror(-rc));
    return rc;
}

static int unmount_live(const char *mount_point, bool abort_transactions)
{
    if (!abort_transactions && show_changed_transactions(mount_point) > 0) {
        say("%s has these transactions open, and stays mounted; commit or abort them, or use --abort-transactions",
            mount_point);
        return -EBUSY;
    }
    const pid_t pid = daemon_pid(mount_point);
    const int pidfd = open_pidfd(pid);
    int rc = mount_unmount(mount_point, false);
    if (rc == -EBUSY) {
        say("%s is busy; these processes use it:", mount_point);
        show_users(mount_point);
    } else if (rc != 0) {
        say("cannot unmount %s: %s", mount_point, strerror(-rc));
    } else if (pidfd >= 0) {
        rc = wait_closed(pidfd, pid);
    } else {
        say("%s is unmounted; cannot tell when its daemon will have closed the store", mount_point);
    }
    if (pidfd >= 0)
        (void)close(pidfd);
    return rc;
}

int fusefs_unmount(const char *mount_point, bool abort_transactions)
{
    struct mount_entry entry;
    char *real = mount_realpath(mount_point);
    if (real == NULL) {
        say("%s: %s", mount_point, strerror(errno));
        return 1;
    }
    int rc = mount_find_point(real, &entry);
    if (rc != 0) {
        say("%s is not mounted", real);
    } else {
        if (strcmp(entry.type, MOUNT_TYPE) != 0) {
            say("%s is a mount of %s (%s), not of tblfs", real, entry.source, entry.type);
            rc = -EINVAL;
        } else {
            rc = mount_is_alive(&entry) ? unmount_live(real, abort_transactions) : unmount_dead(real);
        }
        mount_entry_free(&entry);
    }
    free(real);
    return rc == 0 ? 0 : 1;
}
