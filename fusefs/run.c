/*
 * fusefs/run.c - `tblfs mount`: checks the paths, goes into the background, opens the store, serves, closes it.
 *
 * What can be refused is refused before the fork, and before anything is touched. The store is opened before the mount
 * point is: who sees the mount sees a working one.
 *
 * Locking: none; one thread until the session starts.
 */
#include "fusefs/fusefs_int.h"
#include "fusefs/notify.h"
#include "fusefs/settings.h"
#include "fusefs/standby.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HOLDER_WAIT_MS  60000
#define HOLDER_RETRY_MS 100
#define MS_IN_SECOND    1000u

static int refuse(const char *fmt, ...) PRINTF_LIKE(1, 2);

static int refuse(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "tblfs: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    return -EINVAL;
}

/* ---- paths ---- */

/* A dead mount is taken away; on a live one nothing is stacked. */
static int clear_mount_point(const char *mount_point)
{
    struct mount_entry entry;
    while (mount_find_point(mount_point, &entry) == 0) {
        const bool tblfs = strcmp(entry.type, MOUNT_TYPE) == 0;
        const bool alive = mount_is_alive(&entry);
        int rc = 0;
        if (alive && tblfs)
            rc = refuse("%s: %s is already mounted there", mount_point, entry.source);
        else if (!alive)
            rc = mount_unmount(mount_point, true);
        mount_entry_free(&entry);
        if (rc == -EINVAL || alive)
            return rc;
        if (rc != 0)
            return refuse("%s: a mount whose daemon is gone is in the way, and cannot be detached: %s", mount_point,
                          strerror(-rc));
        fprintf(stderr, "tblfs: %s: detached a mount whose daemon was gone\n", mount_point);
    }
    return 0;
}

static int check_mount_point(struct fusefs_options *options)
{
    struct stat stat_out;
    char *real = mount_realpath(options->mount_point);
    if (real == NULL)
        return refuse("mount point %s: %s", options->mount_point, strerror(errno));
    free(options->mount_point);
    options->mount_point = real;
    const int rc = clear_mount_point(real);
    if (rc != 0)
        return rc;
    if (stat(real, &stat_out) != 0)
        return refuse("mount point %s: %s", real, strerror(errno));
    return S_ISDIR(stat_out.st_mode) ? 0 : refuse("mount point %s: not a directory", real);
}

static bool is_in_every_directory(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lost+found") == 0;
}

/* Missing counts as empty. */
static bool is_empty_directory(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return errno == ENOENT;
    bool empty = true;
    for (const struct dirent *entry = readdir(dir); entry != NULL && empty; entry = readdir(dir))
        empty = is_in_every_directory(entry->d_name);
    (void)closedir(dir);
    return empty;
}

static int check_data_dir(struct fusefs_options *options)
{
    struct stat stat_out;
    char *real = realpath(options->data_dir, NULL);
    if (real == NULL && errno == ENOENT && options->create)
        real = mount_realpath_new(options->data_dir);
    if (real == NULL)
        return refuse("data directory %s: %s%s", options->data_dir, strerror(errno),
                      errno == ENOENT ? "; --create makes a store there" : "");
    free(options->data_dir);
    options->data_dir = real;
    if (stat(real, &stat_out) != 0)
        return options->create && errno == ENOENT ? 0 : refuse("data directory %s: %s", real, strerror(errno));
    if (!S_ISDIR(stat_out.st_mode))
        return refuse("data directory %s: not a directory", real);
    if (!options->create && is_empty_directory(real))
        return refuse("data directory %s: empty; --create makes a store in it", real);
    return 0;
}

/* Is `inner` the directory `outer` or below it? Both are real paths. */
static int check_apart(const struct fusefs_options *options)
{
    if (path_lies_in(options->data_dir, options->mount_point))
        return refuse("data directory %s lies in the mount point %s: the mount would hide it", options->data_dir,
                      options->mount_point);
    if (path_lies_in(options->mount_point, options->data_dir))
        return refuse("mount point %s lies in the data directory %s: that belongs to tblfs alone", options->mount_point,
                      options->data_dir);
    return 0;
}

/* The archive is to survive the store. */
static int check_archive(struct fusefs_options *options)
{
    struct stat stat_out;
    const char *command = options->archive_command;
    if (command != NULL && options->archive_dir != NULL)
        return refuse("archive=%s and archive_command=%s: one of them can be given", options->archive_dir, command);
    if (command != NULL && (strstr(command, "%p") == NULL || strstr(command, "%f") == NULL))
        return refuse("archive_command=%s: write %%p where the path of the segment is to stand, and %%f for its name",
                      command);
    if (options->archive_dir == NULL)
        return 0;
    char *real = realpath(options->archive_dir, NULL);
    if (real == NULL)
        return refuse("archive %s: %s", options->archive_dir, strerror(errno));
    free(options->archive_dir);
    options->archive_dir = real;
    if (stat(real, &stat_out) != 0)
        return refuse("archive %s: %s", real, strerror(errno));
    if (!S_ISDIR(stat_out.st_mode))
        return refuse("archive %s: not a directory", real);
    if (path_lies_in(real, options->data_dir) || path_lies_in(options->data_dir, real))
        return refuse("archive %s: data directory %s and archive must not lie in each other", real, options->data_dir);
    return path_lies_in(real, options->mount_point)
               ? refuse("archive %s: lies in the mount point %s: the mount would hide it", real, options->mount_point)
               : 0;
}

static int read_conf(struct fusefs_options *options)
{
    char error[FUSEFS_ERROR_SIZE];
    const int rc = fusefs_options_read_conf(options, error);
    return rc == 0 ? 0 : refuse("%s", rc == -EINVAL ? error : strerror(-rc));
}

static int resolve(const struct fusefs_options *given, struct fusefs_options *out_options)
{
    struct fusefs_options options;
    if (fusefs_options_copy(given, &options) != 0)
        return refuse("out of memory");
    int rc = check_mount_point(&options);
    if (rc == 0)
        rc = check_data_dir(&options);
    if (rc == 0)
        rc = check_apart(&options);
    if (rc == 0)
        rc = read_conf(&options);
    if (rc == 0)
        rc = check_archive(&options);
    if (rc == 0)
        *out_options = options;
    else
        fusefs_options_free(&options);
    return rc;
}

/* ---- the store ---- */

static int make_store(struct fusefs *fs)
{
    const struct store_mkfs_options options = {
        .dev = io_real_device(),
        .diag = &fs->log.diag,
        .dir = fs->options->data_dir,
        .create_dir = true,
        .root_uid = geteuid(),
        .root_gid = getegid(),
    };
    return store_mkfs(&options); /* says why not */
}

static void sleep_ms(long duration_ms)
{
    const struct timespec duration = {.tv_sec = duration_ms / 1000, .tv_nsec = duration_ms % 1000 * 1000000};
    (void)nanosleep(&duration, NULL);
}

/* -EBUSY and said: somebody serves it. 0: whoever holds it is about to close it (or has just begun to open it). */
static int check_holder(struct fusefs *fs, pid_t holder)
{
    struct mount_entry entry;
    if (mount_find_source(fs->options->data_dir, &entry) != 0)
        return 0;
    diag_log(&fs->log.diag, DIAG_ERROR, "%s is already mounted on %s by process %ld", fs->options->data_dir,
             entry.mount_point, (long)holder);
    mount_entry_free(&entry);
    return -EBUSY;
}

/* Waits for a holder that is closing: umount(8) returns before the store is closed. */
static int open_store_waiting(struct fusefs *fs, const struct store_options *options)
{
    struct diag *diag = &fs->log.diag;
    pid_t holder = 0;
    int rc = store_open(options, &fs->store, &holder);
    for (int waited_ms = 0; rc == -EBUSY && waited_ms < HOLDER_WAIT_MS; waited_ms += HOLDER_RETRY_MS) {
        if (check_holder(fs, holder) != 0)
            return -EBUSY;
        if (waited_ms == 0)
            diag_log(diag, DIAG_WARNING, "%s is held by process %ld: waiting up to %d s for it to close", options->dir,
                     (long)holder, HOLDER_WAIT_MS / 1000);
        sleep_ms(HOLDER_RETRY_MS);
        rc = store_open(options, &fs->store, &holder);
    }
    if (rc == -EBUSY)
        diag_log(diag, DIAG_ERROR, "%s is still held by process %ld", options->dir, (long)holder);
    return rc;
}

static void say_open_failed(struct fusefs *fs, int rc)
{
    const char *dir = fs->options->data_dir;
    if (rc == -ENODATA)
        diag_log(&fs->log.diag, DIAG_ERROR,
                 "%s is not a tblfs data directory; nothing was changed. 'tblfs mkfs' makes one in an empty directory",
                 dir);
    else
        diag_log(&fs->log.diag, DIAG_ERROR, "cannot open %s: %s", dir, strerror(-rc));
}

/* A log that is replayed, told to the terminal of the command that waits. */
struct opening {
    struct progress progress;
    struct store_progress store;
    int report_fd;
};

static void look_at_opening(void *arg, struct progress_state *out_state)
{
    struct opening *opening = arg;
    if (daemon_is_waited_for(opening->report_fd))
        store_progress_look(&opening->store, out_state);
}

static int open_store_showing(struct fusefs *fs, struct store_options *options, int report_fd)
{
    struct opening opening = {.report_fd = report_fd};
    const struct progress_options show = {
        .out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = look_at_opening, .arg = &opening};
    options->progress = &opening.store;
    progress_start(&opening.progress, &show);
    daemon_log_over_progress(&fs->log, opening.progress.runs);
    const int rc = open_store_waiting(fs, options);
    progress_stop(&opening.progress);
    daemon_log_over_progress(&fs->log, false);
    options->progress = NULL;
    return rc;
}

static int open_store(struct fusefs *fs, int report_fd)
{
    struct store_options options = {
        .dev = io_real_device(),
        .diag = &fs->log.diag,
        .dir = fs->options->data_dir,
        .cache_size_bytes = fs->options->cache_size_bytes,
        .max_open_files = daemon_raise_open_files(),
        .background = true,
        .checkpoint_interval_ms = (uint32_t)fs->options->checkpoint_interval_s * MS_IN_SECOND,
        .checkpoint_log_bytes = fs->options->checkpoint_log_bytes,
        .fsm_threshold_given = setting_is_given(fs->options, "fsm_threshold"),
        .fsm_threshold = (uint32_t)fs->options->fsm_threshold,
        .compact_auto = !fs->options->no_compact,
        .missing_tablespace_offline = fs->options->missing_tablespace == FUSEFS_MISSING_OFFLINE,
        .read_only = fs->options->read_only,
    };
    if (mount_archive_init(&fs->archive, fs->options, &fs->log.diag))
        options.archive = &fs->archive.target;
    options.archive_timeout_ms = fs->options->archive_timeout_s * MS_IN_SECOND;
    int rc = 0;
    if (fs->options->standby)
        rc = mount_standby_prepare(&options);
    if (fs->options->create && is_empty_directory(options.dir))
        rc = make_store(fs);
    if (rc != 0)
        return rc;
    rc = open_store_showing(fs, &options, report_fd);
    if (rc != 0)
        say_open_failed(fs, rc);
    return rc;
}

static int close_store(struct fusefs *fs)
{
    int rc = 0;
    if (fs->standby != NULL) {
        rc = mount_standby_close(fs);
    } else if (fs->options->standby) {
        store_abandon(fs->store); /* it could not begin */
    } else {
        mount_archive_hurry(&fs->archive);
        rc = store_close(fs->store);
    }
    if (rc != 0)
        diag_log(&fs->log.diag, DIAG_ERROR, "closing %s: %s", fs->options->data_dir, strerror(-rc));
    else
        diag_log(&fs->log.diag, DIAG_INFO, "%s is closed", fs->options->data_dir);
    return rc;
}

/* ---- all of it ---- */

static int serve_store(struct fusefs *fs, int report_fd)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    fs->started_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    int rc = fs->options->standby ? mount_standby_open(fs) : 0;
    if (rc == 0)
        rc = node_table_new(fs->standby != NULL ? mount_standby_view(fs) : store_live(fs->store), &fs->nodes);
    if (rc != 0)
        return rc;
    node_tree_set_read_only(node_table_live(fs->nodes), fs->standby != NULL);
    handles_init(fs);
    sync_replies_init(fs);
    snapshots_init(fs);
    tablespaces_init(fs);
    transactions_init(fs);
    tellings_init(fs);
    rc = session_run(fs, report_fd);
    transactions_abort_all(fs);
    handles_close_all(fs);
    node_table_free(fs->nodes);
    transactions_destroy(fs);
    tellings_destroy(fs);
    handles_destroy(fs);
    sync_replies_destroy(fs);
    return rc;
}

/* The daemon proper. report_fd: -1: foreground. */
static int daemon_main(const struct fusefs_options *options, int report_fd)
{
    struct fusefs *fs = calloc(1, sizeof *fs);
    if (fs == NULL)
        return refuse("out of memory");
    fs->options = options;
    int rc = daemon_log_open(&fs->log, options->log_path, options->foreground, options->debug);
    if (rc != 0) {
        (void)refuse("log=%s: %s", options->log_path, strerror(-rc));
        free(fs);
        return rc;
    }
    session_block_signals(); /* before the store starts its threads */
    daemon_lift_file_size();
    rc = open_store(fs, report_fd);
    if (rc == 0) {
        rc = serve_store(fs, report_fd);
        const int close_rc = close_store(fs);
        rc = rc == 0 ? close_rc : rc;
    }
    daemon_log_close(&fs->log);
    free(fs);
    return rc;
}

int fusefs_run(const struct fusefs_options *given)
{
    struct fusefs_options options;
    bool child = true;
    int report_fd = -1;
    int status = 1;
    if (resolve(given, &options) != 0)
        return 1;
    int rc = options.foreground ? 0 : daemon_fork(&child, &report_fd, &status);
    if (rc != 0)
        (void)refuse("cannot go into the background: %s", strerror(-rc));
    else if (child)
        status = daemon_main(&options, report_fd) == 0 ? 0 : 1;
    fusefs_options_free(&options);
    return status;
}
