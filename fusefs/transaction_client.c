/*
 * fusefs/transaction_client.c - see the header.
 */
#include "fusefs/transaction_client.h"
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_NAME   ".txn"
#define UNIQUE_NAME "txn.XXXXXX"

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

/* ---- what $t/.tblfs says ---- */

static FILE *open_table(const struct client_transaction *transaction, const char *table)
{
    char *path = NULL;
    if (asprintf(&path, "%s/.tblfs/%s", transaction->name, table) < 0)
        return NULL;
    const int fd = openat(transaction->list_fd, path, O_RDONLY | O_CLOEXEC);
    free(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (file == NULL && fd >= 0)
        (void)close(fd);
    return file;
}

typedef void line_fn(void *arg, const char *rest);

/* Calls fn with what follows `start` in each line that begins with it. */
static void each_line(const struct client_transaction *transaction, const char *table, const char *start, line_fn *fn,
                      void *arg)
{
    FILE *file = open_table(transaction, table);
    char *line = NULL;
    size_t capacity = 0;
    while (file != NULL && getline(&line, &capacity, file) > 0) {
        if (strncmp(line, start, strlen(start)) == 0)
            fn(arg, line + strlen(start));
    }
    free(line);
    if (file != NULL)
        (void)fclose(file);
}

static void show_line(void *arg, const char *rest)
{
    (void)arg;
    fputs(rest, stderr);
}

static void note_line(void *arg, const char *rest)
{
    bool *found = arg;
    (void)rest;
    *found = true;
}

static void say_why_canceled(void *arg, const char *rest)
{
    const struct client_transaction *transaction = arg;
    say("%s was aborted for you: %.*s", transaction->path, (int)strcspn(rest, "\n"), rest);
}

bool client_transaction_is_canceled(const struct client_transaction *transaction)
{
    bool canceled = false;
    struct client_transaction about = *transaction;
    each_line(transaction, "status", "state\taborted", note_line, &canceled);
    if (canceled)
        each_line(transaction, "status", "reason\t", say_why_canceled, &about);
    return canceled;
}

/* ---- begin ---- */

static int open_list(const char *mount_point, struct client_transaction *transaction)
{
    char *path = NULL;
    if (asprintf(&path, "%s/" LIST_NAME, mount_point) < 0)
        return -ENOMEM;
    transaction->list_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int rc = transaction->list_fd < 0 ? -errno : 0;
    free(path);
    return rc;
}

static int set_path(struct client_transaction *transaction, const char *mount_point, const char *name)
{
    if (asprintf(&transaction->path, "%s/" LIST_NAME "/%s", mount_point, name) < 0) {
        transaction->path = NULL;
        return -ENOMEM;
    }
    transaction->name = strrchr(transaction->path, '/') + 1;
    return 0;
}

static int make_directory(struct client_transaction *transaction, bool unique)
{
    if (unique)
        return mkdtemp(transaction->path) == NULL ? -errno : 0;
    return mkdirat(transaction->list_fd, transaction->name, 0700) != 0 ? -errno : 0;
}

static const char *why_not_begun(int error)
{
    switch (error) {
    case EEXIST:
        return "there is a transaction of that name";
    case EROFS:
        return "the store is read-only (the daemon's log and .tblfs/status say why)";
    default:
        return strerror(error);
    }
}

int client_transaction_begin(const char *mount_point, const char *name, struct client_transaction *out_transaction)
{
    struct client_transaction transaction = {.list_fd = -1};
    int rc = open_list(mount_point, &transaction);
    if (rc == 0)
        rc = set_path(&transaction, mount_point, name == NULL ? UNIQUE_NAME : name);
    if (rc == 0)
        rc = make_directory(&transaction, name == NULL);
    if (rc != 0) {
        say("cannot begin a transaction%s%s on %s: %s", name == NULL ? "" : " ", name == NULL ? "" : name, mount_point,
            why_not_begun(-rc));
        client_transaction_free(&transaction);
        return rc;
    }
    *out_transaction = transaction;
    return 0;
}

void client_transaction_free(struct client_transaction *transaction)
{
    if (transaction->list_fd >= 0)
        (void)close(transaction->list_fd);
    free(transaction->path);
    *transaction = (struct client_transaction){.list_fd = -1};
}

/* ---- find ---- */

static bool is_gone(int rc)
{
    return rc == -ENOENT || rc == -ESTALE;
}

static int say_not_there(const char *given, int rc)
{
    if (is_gone(rc))
        say("%s: there is no such transaction: it was committed or aborted, or never begun", given);
    else if (rc == -ENOTCONN)
        say("%s: the daemon is gone, and its open transactions with it", given);
    else
        say("%s: %s", given, strerror(-rc));
    return rc;
}

static bool is_live_mount(const char *path)
{
    struct mount_entry entry;
    if (mount_find_point(path, &entry) != 0)
        return false;
    const bool live = strcmp(entry.type, MOUNT_TYPE) == 0 && mount_is_alive(&entry);
    mount_entry_free(&entry);
    return live;
}

/* Cuts MNT/.txn/NAME into its parts. NULL: it is no such path. */
static const char *split(char *real)
{
    char *name = strrchr(real, '/');
    if (name == NULL)
        return NULL;
    *name++ = '\0';
    char *list = strrchr(real, '/');
    if (list == NULL || list == real || strcmp(list + 1, LIST_NAME) != 0)
        return NULL;
    *list = '\0';
    return is_live_mount(real) ? name : NULL;
}

int client_transaction_find(const char *given, struct client_transaction *out_transaction)
{
    struct client_transaction transaction = {.list_fd = -1};
    char *real = realpath(given, NULL);
    if (real == NULL)
        return say_not_there(given, -errno);
    const char *name = split(real);
    int rc = name == NULL ? -EINVAL : open_list(real, &transaction);
    if (rc == 0)
        rc = set_path(&transaction, real, name);
    free(real);
    if (rc == 0) {
        *out_transaction = transaction;
        return 0;
    }
    if (rc == -EINVAL)
        say("%s is not a transaction: those are the directories MNT/" LIST_NAME "/NAME of a tblfs mount", given);
    else
        say("%s: %s", given, strerror(-rc));
    client_transaction_free(&transaction);
    return rc;
}

/* ---- close and abort ---- */

static void show_conflicts(const struct client_transaction *transaction)
{
    say("%s was not committed, for others changed what it changed:", transaction->path);
    each_line(transaction, "conflicts", "", show_line, NULL);
}

static void show_writers(const struct client_transaction *transaction)
{
    say("%s was not committed, for these files in it are open for writing (process, path):", transaction->path);
    each_line(transaction, "status", "writer.", show_line, NULL);
}

static const char *why_not_closed(int error)
{
    switch (error) {
    case ENOENT:
    case ESTALE:
        return "it is gone: it was committed or aborted";
    case ENOTCONN:
        return "the daemon is gone, and its open transactions with it";
    case EROFS:
        return "the store is read-only (the daemon's log and .tblfs/status say why)";
    case EACCES:
    case EPERM:
        return "only root and the user who began it may";
    default:
        return strerror(error);
    }
}

static void say_why_not_committed(const struct client_transaction *transaction, int rc)
{
    if (rc == -EAGAIN)
        show_conflicts(transaction);
    else if (rc == -EBUSY)
        show_writers(transaction);
    else if (rc != -ECANCELED || !client_transaction_is_canceled(transaction))
        say("cannot commit %s: %s", transaction->path, why_not_closed(-rc));
}

int client_transaction_commit(const struct client_transaction *transaction)
{
    char *gesture = NULL;
    if (asprintf(&gesture, "%s/.commit", transaction->name) < 0) {
        say("%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    const int rc = mkdirat(transaction->list_fd, gesture, 0700) == 0 ? 0 : -errno;
    free(gesture);
    if (rc != 0)
        say_why_not_committed(transaction, rc);
    return rc;
}

int client_transaction_abort(const struct client_transaction *transaction)
{
    const int rc = unlinkat(transaction->list_fd, transaction->name, AT_REMOVEDIR) == 0 ? 0 : -errno;
    if (rc != 0)
        say("cannot abort %s: %s", transaction->path, why_not_closed(-rc));
    return rc;
}
