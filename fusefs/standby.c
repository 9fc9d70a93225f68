/*
 * fusefs/standby.c - see the header.
 *
 * Locking: none held while the store replays or the kernel is told.
 */
#include "fusefs/standby.h"

#include "fusefs/fusefs_int.h"
#include "fusefs/notify.h"
#include "fusefs/tables.h"
#include "txn/standby.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define SHOW_INTERVAL_MS 200u
#define LOOK_MS          2000  /* at an archive that tells of no change */
#define LOOK_MAX_MS      60000 /* at one that is not in order */
#define MS_IN_SECOND     1000u
#define NS_IN_SECOND     INT64_C(1000000000)

/* A snapshot that the kernel may know. */
struct known_snapshot {
    uint64_t number;
    char name[256];
};

struct mount_standby {
    struct fusefs *fs;
    struct standby *standby;
    struct archive_dir dir;
    struct archive_command command;
    struct restore_archive archive;
    pthread_t thread;
    bool thread_runs;
    int wake_fd;          /* eventfd: to be looked at at once */
    int notify_fd;        /* inotify on the directory; -1: there is none */
    int look_ms;          /* grows while the archive is not in order */
    bool looked_last;     /* since it is to be promoted */
    _Atomic int ended_rc; /* it follows no more because of that; 0: it does */
    _Atomic bool stopping, promoting, promoted;
    _Atomic uint32_t timeline; /* since it was promoted */
    struct known_snapshot *snapshots;
    size_t snapshot_count;
};

/* ---- what the kernel knows of snapshots ---- */

struct snapshot_list {
    struct known_snapshot *snapshots;
    size_t count, capacity;
};

static int add_snapshot(void *arg, const struct store_snapshot_info *info)
{
    struct snapshot_list *list = arg;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity * 2 + 16;
        struct known_snapshot *snapshots = realloc(list->snapshots, capacity * sizeof snapshots[0]);
        if (snapshots == NULL)
            return -ENOMEM;
        list->snapshots = snapshots;
        list->capacity = capacity;
    }
    struct known_snapshot *snapshot = &list->snapshots[list->count++];
    snapshot->number = info->number;
    memcpy(snapshot->name, info->name, info->name_size);
    snapshot->name[info->name_size] = '\0';
    return 0;
}

static const struct known_snapshot *find_snapshot(const struct snapshot_list *list, uint64_t number)
{
    for (size_t index = 0; index < list->count; index++) {
        if (list->snapshots[index].number == number)
            return &list->snapshots[index];
    }
    return NULL;
}

/* Those that are gone, or have another name. */
static void tell_snapshots(struct mount_standby *mount)
{
    struct fusefs *fs = mount->fs;
    struct snapshot_list list = {0};
    if (store_each_snapshot(fs->store, add_snapshot, &list) != 0) {
        free(list.snapshots);
        return; /* told the next time */
    }
    bool changed = list.count != mount->snapshot_count;
    for (size_t index = 0; index < mount->snapshot_count; index++) {
        const struct known_snapshot *before = &mount->snapshots[index];
        const struct known_snapshot *now = find_snapshot(&list, before->number);
        if (now == NULL)
            node_tree_drop(fs->nodes, NODE_TREE_SNAPSHOT, before->number, -ESTALE);
        if (now != NULL && strcmp(now->name, before->name) == 0)
            continue;
        notify_entry_gone(fs, SNAPSHOTS_INO, before->name);
        changed = true;
    }
    if (changed) {
        roots_note_changed(fs, ROOTS_SNAPSHOTS);
        notify_attributes(fs, node_known_id(fs->nodes, NODE_TREE_VIRTUAL, SNAPSHOTS_INO));
    }
    free(mount->snapshots);
    mount->snapshots = list.snapshots;
    mount->snapshot_count = list.count;
}

static void shown(void *arg, struct store_changes *changes)
{
    struct mount_standby *mount = arg;
    struct telling telling;
    telling_begin(mount->fs, &telling, changes);
    telling_before_reply(&telling);
    telling_after_reply(&telling);
    telling_end(&telling);
    tell_snapshots(mount);
}

/* ---- waiting ---- */

static void drain(int fd)
{
    char events[4096];
    while (read(fd, events, sizeof events) > 0) {
    }
}

static bool wait_for_more(void *arg, int rc)
{
    struct mount_standby *mount = arg;
    struct pollfd fds[2] = {{.fd = mount->wake_fd, .events = POLLIN}, {.fd = mount->notify_fd, .events = POLLIN}};
    if (rc == 0 || mount->look_ms == 0)
        mount->look_ms = LOOK_MS;
    else
        mount->look_ms = mount->look_ms < LOOK_MAX_MS / 2 ? mount->look_ms * 2 : LOOK_MAX_MS;
    if (rc == 0 && atomic_load(&mount->promoting) && mount->looked_last)
        return false; /* all is replayed that was there when it was asked for */
    mount->looked_last = atomic_load(&mount->promoting);
    if (!mount->looked_last || rc != 0)
        (void)poll(fds, 2, mount->look_ms);
    if (mount->notify_fd >= 0)
        drain(mount->notify_fd);
    drain(mount->wake_fd);
    return true; /* standby_stop ends it, too */
}

/* Where it is missing (a filesystem that does not tell) time is enough. */
static int watch(const char *dir)
{
    const int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0 && inotify_add_watch(fd, dir, IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR) < 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* ---- starting and ending ---- */

static void init_archive(struct mount_standby *mount)
{
    struct fusefs *fs = mount->fs;
    const struct fusefs_options *options = fs->options;
    struct diag *diag = &fs->log.diag;
    mount->dir = (struct archive_dir){.dev = io_real_device(), .diag = diag, .dir = options->follow_dir};
    mount->command = (struct archive_command){.diag = diag, .command = options->follow_command};
    mount->archive = (struct restore_archive){.get = archive_dir_get, .arg = &mount->dir, .dir = options->follow_dir};
    if (options->follow_command != NULL)
        mount->archive = (struct restore_archive){.get = archive_command_get, .arg = &mount->command};
}

int mount_standby_prepare(struct store_options *options)
{
    const struct restore_options place = {
        .dev = options->dev, .diag = options->diag, .dir = options->dir, .target = {.until = RESTORE_STANDBY}};
    options->restoring = true;
    options->archive = NULL;
    return standby_place(&place, &options->log_segment_size);
}

int mount_standby_open(struct fusefs *fs)
{
    struct mount_standby *mount = calloc(1, sizeof *mount);
    if (mount == NULL)
        return -ENOMEM;
    mount->fs = fs;
    mount->notify_fd = -1;
    init_archive(mount);
    const struct standby_options options = {.archive = &mount->archive,
                                            .show_interval_ms = SHOW_INTERVAL_MS,
                                            .checkpoint_log_bytes = fs->options->checkpoint_log_bytes,
                                            .checkpoint_interval_ms = fs->options->checkpoint_interval_s * MS_IN_SECOND,
                                            .shown = shown,
                                            .wait = wait_for_more,
                                            .arg = mount};
    mount->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = mount->wake_fd < 0 ? -errno : standby_open(fs->store, &options, &mount->standby);
    if (rc != 0) {
        if (mount->wake_fd >= 0)
            (void)close(mount->wake_fd);
        free(mount);
        return rc;
    }
    if (fs->options->follow_dir != NULL)
        mount->notify_fd = watch(fs->options->follow_dir);
    fs->standby = mount;
    return 0;
}

struct view *mount_standby_view(struct fusefs *fs)
{
    return standby_view(fs->standby->standby);
}

/* Users have the live tree from here on. */
static void promoted(void *arg)
{
    struct mount_standby *mount = arg;
    struct fusefs *fs = mount->fs;
    node_table_move_live(fs->nodes, store_live(fs->store));
}

static int promote(struct mount_standby *mount)
{
    struct fusefs *fs = mount->fs;
    uint32_t timeline = 0;
    const bool archives = mount_archive_is_wanted(fs->options);
    const struct standby_promotion promotion = {.archive = archives ? &fs->archive.target : NULL,
                                                .archive_timeout_ms = fs->options->archive_timeout_s * MS_IN_SECOND,
                                                .promoted = promoted,
                                                .arg = mount};
    const int rc = standby_promote(mount->standby, &promotion, &timeline);
    if (rc != 0)
        return rc;
    node_tree_set_read_only(node_table_live(fs->nodes), false);
    atomic_store(&mount->timeline, timeline);
    atomic_store(&mount->promoted, true);
    diag_log(&fs->log.diag, DIAG_INFO, "%s was a standby, and is writable now, on timeline %" PRIu32 "%s",
             fs->options->data_dir, timeline, archives ? "" : "; its log goes to no archive");
    return 0;
}

static void *follow(void *arg)
{
    struct mount_standby *mount = arg;
    int rc = standby_follow(mount->standby);
    if (rc == 0 && atomic_load(&mount->promoting) && !atomic_load(&mount->stopping))
        rc = promote(mount);
    atomic_store(&mount->ended_rc, rc);
    if (rc != 0)
        diag_log(&mount->fs->log.diag, DIAG_ERROR,
                 "%s: the standby cannot go on: %s; it shows what it has until it is started again",
                 mount->fs->options->data_dir, strerror(-rc));
    return NULL;
}

int mount_standby_start(struct fusefs *fs)
{
    struct mount_standby *mount = fs->standby;
    tell_snapshots(mount); /* as they are now: from here on what changes is told */
    const int rc = pthread_create(&mount->thread, NULL, follow, mount);
    mount->thread_runs = rc == 0;
    return -rc;
}

static void wake(struct mount_standby *mount)
{
    const uint64_t one = 1;
    (void)!write(mount->wake_fd, &one, sizeof one);
}

int mount_standby_promote(struct fusefs *fs)
{
    struct mount_standby *mount = fs->standby;
    if (mount == NULL || atomic_load(&mount->promoted))
        return -EINVAL;
    if (atomic_load(&mount->ended_rc) != 0)
        return -EIO;
    if (atomic_exchange(&mount->promoting, true))
        return -EALREADY;
    wake(mount);
    return 0;
}

bool mount_standby_is(const struct fusefs *fs)
{
    return fs->standby != NULL && !atomic_load(&fs->standby->promoted);
}

void mount_standby_stop(struct fusefs *fs)
{
    struct mount_standby *mount = fs->standby;
    atomic_store(&mount->stopping, true);
    standby_stop(mount->standby);
    archive_command_end(&mount->command);
    wake(mount);
    if (mount->thread_runs)
        (void)pthread_join(mount->thread, NULL);
    mount->thread_runs = false;
}

int mount_standby_close(struct fusefs *fs)
{
    struct mount_standby *mount = fs->standby;
    int rc = 0;
    standby_close(mount->standby);
    if (atomic_load(&mount->promoted)) {
        mount_archive_hurry(&fs->archive);
        rc = store_close(fs->store);
    } else {
        store_abandon(fs->store); /* it goes on from its last checkpoint */
    }
    if (mount->notify_fd >= 0)
        (void)close(mount->notify_fd);
    (void)close(mount->wake_fd);
    free(mount->snapshots);
    free(mount);
    fs->standby = NULL;
    return rc;
}

/* ---- status ---- */

/* Segments of the archive that are not replayed yet. */
static uint64_t count_waiting(struct mount_standby *mount, const struct standby_status *status)
{
    const char *path = mount->fs->options->follow_dir;
    DIR *dir = path != NULL ? opendir(path) : NULL;
    uint64_t count = 0;
    uint32_t timeline = 0;
    uint64_t number = 0;
    if (dir == NULL)
        return 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strlen(entry->d_name) == 25 && sscanf(entry->d_name, "%8" SCNx32 "-%16" SCNx64, &timeline, &number) == 2)
            count += timeline == status->timeline && number * status->segment_size > status->position;
    }
    (void)closedir(dir);
    return count;
}

/* Since the last record that is seen: what the primary did meanwhile nobody here knows. */
static uint64_t age_s(int64_t time_ns)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const int64_t age_ns = (int64_t)now.tv_sec * NS_IN_SECOND + now.tv_nsec - time_ns;
    return age_ns > 0 ? (uint64_t)(age_ns / NS_IN_SECOND) : 0;
}

void mount_standby_write_status(struct fusefs *fs, FILE *out)
{
    struct mount_standby *mount = fs->standby;
    struct standby_status status;
    standby_get_status(mount->standby, &status);
    const int ended_rc = atomic_load(&mount->ended_rc);
    if (atomic_load(&mount->promoted)) {
        table_write_text(out, "standby", "promoted");
        table_write_count(out, "standby_", "timeline", atomic_load(&mount->timeline));
        return;
    }
    const char *state = ended_rc != 0         ? "stopped"
                        : !status.waiting     ? "replaying"
                        : status.wait_rc != 0 ? "error"
                                              : "waiting";
    const int rc = ended_rc != 0 ? ended_rc : status.wait_rc;
    table_write_text(out, "standby", state);
    table_write_text(out, "standby_error", rc != 0 ? strerror(-rc) : "");
    table_write_count(out, "standby_", "position", status.position);
    fprintf(out, "standby_time\t");
    if (status.time_ns != 0)
        table_write_time(out, status.time_ns);
    fputc('\n', out);
    table_write_count(out, "standby_", "behind_s", status.time_ns != 0 ? age_s(status.time_ns) : 0);
    table_write_count(out, "standby_", "waiting_segments", count_waiting(mount, &status));
    table_write_count(out, "standby_", "timeline", status.timeline);
    table_write_count(out, "standby_", "moves", status.shown);
}
