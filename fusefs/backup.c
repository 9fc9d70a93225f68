/*
 * fusefs/backup.c - `tblfs backup`: copies a base out of the data directory of a mount, while the mount goes on.
 *
 * MNT/.tblfs/backup keeps a checkpoint for as long as it is open, and tells which one: the copy is made from the data directory itself, by this
 * process. However it ends, its descriptor is closed, and nothing is kept any more.
 *
 * Locking: none; the main thread copies while another one shows how far it is (base/progress.h).
 */
#include "fusefs/fusefs_int.h"

#include "base/progress.h"
#include "txn/base.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HEADER_TEXT_SIZE (BASE_HEADER_SIZE + 8192u)
#define NS_IN_SECOND     1000000000

struct backup {
    const struct fusefs_backup_options *options;
    char *mount_point;
    int kept_fd; /* keeps the checkpoint */
    char text[HEADER_TEXT_SIZE];
    struct base_header header;
    const char *data_dir; /* in text */
    struct base_progress progress;
    uint64_t began_ns;
    uint64_t bytes;
};

static int refuse(const char *what, const char *why)
{
    fprintf(stderr, "tblfs: %s: %s\n", what, why);
    return -EINVAL;
}

/* ---- the checkpoint ---- */

static int open_kept(struct backup *backup)
{
    char *path = NULL;
    if (asprintf(&path, "%s/.tblfs/backup", backup->mount_point) < 0)
        return refuse(backup->options->mount_point, strerror(ENOMEM));
    backup->kept_fd = open(path, O_RDONLY | O_CLOEXEC);
    const int error = errno;
    free(path);
    if (backup->kept_fd >= 0)
        return 0;
    return refuse(backup->options->mount_point,
                  error == EACCES ? "only root and who mounted it may take a base"
                  : error == EROFS
                      ? "the store is read-only after an error (the daemon's log and .tblfs/status say why)"
                      : strerror(error));
}

static int read_text(struct backup *backup)
{
    size_t used = 0;
    ssize_t got = 1;
    while (got > 0 && used < sizeof backup->text - 1) {
        got = read(backup->kept_fd, backup->text + used, sizeof backup->text - 1 - used);
        if (got < 0 && errno == EINTR)
            got = 1;
        else
            used += got > 0 ? (size_t)got : 0;
    }
    backup->text[used] = '\0';
    return got < 0 ? -errno : 0;
}

/* Behind the header stands the data directory. */
static int learn_checkpoint(struct backup *backup)
{
    const char *rest = NULL;
    static const char name[] = "data_dir\t";
    int rc = read_text(backup);
    if (rc == 0)
        rc = base_header_parse(backup->text, &backup->header, &rest);
    if (rc != 0 || strncmp(rest, name, sizeof name - 1) != 0)
        return refuse(backup->options->mount_point,
                      "the daemon is of another version: it does not say which checkpoint it keeps");
    backup->data_dir = rest + sizeof name - 1;
    backup->text[strcspn(backup->data_dir, "\n") + (size_t)(backup->data_dir - backup->text)] = '\0';
    return 0;
}

/* ---- copying ---- */

static uint64_t now_ns(void)
{
    return io_monotonic_ns(io_real_device());
}

/* Sleeps until that much may have been copied. */
static void throttle(void *arg, size_t bytes)
{
    struct backup *backup = arg;
    backup->bytes += bytes;
    const double due_s = (double)backup->bytes / (double)backup->options->rate_bytes;
    const double gone_s = (double)(now_ns() - backup->began_ns) / NS_IN_SECOND;
    if (due_s <= gone_s)
        return;
    const double wait_s = due_s - gone_s;
    const struct timespec wait = {.tv_sec = (time_t)wait_s,
                                  .tv_nsec = (long)((wait_s - (double)(time_t)wait_s) * NS_IN_SECOND)};
    (void)nanosleep(&wait, NULL);
}

static int put_to_stdout(void *arg, const void *bytes, size_t size)
{
    const char *at = bytes;
    (void)arg;
    while (size > 0) {
        const ssize_t put = write(STDOUT_FILENO, at, size);
        if (put < 0 && errno != EINTR)
            return -errno;
        at += put > 0 ? put : 0;
        size -= put > 0 ? (size_t)put : 0;
    }
    return 0;
}

static void look(void *arg, struct progress_state *out_state)
{
    const struct base_progress *progress = arg;
    out_state->what = "copying";
    out_state->total = atomic_load(&progress->total_bytes);
    out_state->done = atomic_load(&progress->done_bytes);
    if (out_state->done > out_state->total)
        out_state->done = out_state->total; /* inner pages are not in the total */
}

static int copy_to(struct backup *backup, const struct base_sink *sink, struct diag *diag)
{
    struct progress progress;
    const struct progress_options show = {
        .out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = look, .arg = &backup->progress};
    const struct base_copy_options options = {
        .dev = io_real_device(),
        .diag = diag,
        .dir = backup->data_dir,
        .header = &backup->header,
        .sink = sink,
        .progress = &backup->progress,
        .throttle = backup->options->rate_bytes != 0 ? throttle : NULL,
        .throttle_arg = backup,
    };
    backup->began_ns = now_ns();
    progress_start(&progress, &show);
    const int rc = base_copy(&options);
    progress_stop(&progress);
    return rc;
}

static int copy_to_stdout(struct backup *backup, struct diag *diag)
{
    struct base_tar_sink tar;
    struct base_sink sink;
    base_tar_sink_init(&tar, put_to_stdout, NULL, backup->header.taken_ns, &sink);
    return copy_to(backup, &sink, diag);
}

static int copy_to_dir(struct backup *backup, const char *dir, struct diag *diag)
{
    struct base_dir_sink files;
    struct base_sink sink;
    int rc = base_dir_sink_init(&files, io_real_device(), dir, &sink);
    if (rc != 0)
        return refuse(dir, rc == -ENOTEMPTY ? "not empty: a base has a directory of its own" : strerror(-rc));
    rc = copy_to(backup, &sink, diag);
    base_dir_sink_destroy(&files);
    return rc;
}

static bool lies_in(const char *inner, const char *outer)
{
    const size_t length = strlen(outer);
    return strncmp(inner, outer, length) == 0 && (inner[length] == '\0' || inner[length] == '/');
}

/* Real path of the directory to be made; NULL: it cannot be, which was said. */
static char *destination(const struct backup *backup)
{
    const char *given = backup->options->destination;
    char *dir = mount_realpath_new(given);
    if (dir == NULL) {
        (void)refuse(given, strerror(errno));
    } else if (lies_in(dir, backup->data_dir) || lies_in(dir, backup->mount_point)) {
        (void)refuse(given, "a base must lie neither in the data directory nor in the mount");
        free(dir);
        return NULL;
    }
    return dir;
}

static void say_done(const struct backup *backup, const char *where)
{
    const struct control *control = &backup->header.control;
    fprintf(stderr, "tblfs: base of %s in %s: %" PRIu64 " bytes of pages, checkpoint %" PRIu64 ", %s %" PRIu64 "\n",
            backup->options->mount_point, where, atomic_load(&backup->progress.done_bytes), control->number,
            backup->header.archived ? "replay starts at log position" : "no archive; log position", control->scan_lsn);
}

static int copy(struct backup *backup)
{
    struct diag diag;
    const bool to_stdout = strcmp(backup->options->destination, "-") == 0;
    char *dir = to_stdout ? NULL : destination(backup);
    if (!to_stdout && dir == NULL)
        return -EINVAL;
    diag_init_stderr(&diag, DIAG_WARNING);
    const int rc = to_stdout ? copy_to_stdout(backup, &diag) : copy_to_dir(backup, dir, &diag);
    if (rc == 0)
        say_done(backup, to_stdout ? "the stream" : dir);
    else if (rc != -EINVAL)
        (void)refuse(to_stdout ? "the stream" : dir, strerror(-rc));
    free(dir);
    return rc;
}

int fusefs_backup(const struct fusefs_backup_options *options)
{
    struct backup *backup = calloc(1, sizeof *backup);
    int rc = backup == NULL ? -ENOMEM : 0;
    if (rc != 0) {
        (void)refuse(options->mount_point, strerror(ENOMEM));
        return 1;
    }
    backup->options = options;
    backup->kept_fd = -1;
    backup->mount_point = mount_realpath(options->mount_point);
    if (backup->mount_point == NULL)
        rc = refuse(options->mount_point, strerror(errno));
    if (rc == 0 && strcmp(options->destination, "-") == 0 && isatty(STDOUT_FILENO))
        rc = refuse("-", "a stream of bytes in tar's format is nothing for a terminal");
    if (rc == 0)
        rc = mount_check_live(options->mount_point, backup->mount_point);
    if (rc == 0)
        rc = open_kept(backup);
    if (rc == 0)
        rc = learn_checkpoint(backup);
    if (rc == 0)
        rc = copy(backup);
    if (backup->kept_fd >= 0)
        (void)close(backup->kept_fd);
    free(backup->mount_point);
    free(backup);
    return rc == 0 ? 0 : 1;
}
