/*
 * txn/restore.c - see the header.
 *
 * DIR/restore says what is being restored, and up to where, from before anything else is there until after all is done.
 */
#include "txn/restore_int.h"
#include "txn/standby.h"

#include "base/plant.h"
#include "txn/control_format.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MARKER_SIZE              512u
#define PATH_SIZE                4300u
#define DEFAULT_CHECKPOINT_BYTES (UINT64_C(256) << 20)

struct restore {
    const struct restore_options *options;
    struct restore_result result;
    char marker[MARKER_SIZE];
    uint32_t segment_size;
    int64_t base_time_ns;
    struct store *store;
    struct restore_source source;
};

static int refuse(const struct restore *restore, int rc, const char *what)
{
    diag_log(restore->options->diag, DIAG_ERROR, "%s: %s", restore->options->dir, what);
    return rc;
}

/* ---- the marker ---- */

/* The target, in a form that is the same for the same target. */
static void print_target(const struct restore_target *target, char *text, size_t size)
{
    switch (target->until) {
    case RESTORE_BASE:
        (void)snprintf(text, size, "base");
        break;
    case RESTORE_END:
        (void)snprintf(text, size, "end");
        break;
    case RESTORE_TIME:
        (void)snprintf(text, size, "time %" PRId64, target->time_ns);
        break;
    case RESTORE_LSN:
        (void)snprintf(text, size, "lsn %" PRIu64, target->lsn);
        break;
    case RESTORE_TXN:
        (void)snprintf(text, size, "txn %.255s", target->name);
        break;
    case RESTORE_STANDBY:
        (void)snprintf(text, size, "standby");
        break;
    }
}

static int read_marker(const struct restore *restore, char text[MARKER_SIZE])
{
    char path[PATH_SIZE];
    struct io_file *file = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof path, "%s/" RESTORE_MARKER, restore->options->dir);
    int rc = io_open(restore->options->dev, path, IO_READ_ONLY, &file);
    if (rc == 0) {
        rc = io_read_full(file, text, MARKER_SIZE - 1, 0, &size);
        const int close_rc = io_close(file);
        rc = rc == 0 ? close_rc : rc;
    }
    text[size] = '\0';
    return rc;
}

static int write_marker(const struct restore *restore, const struct base_header *header)
{
    char text[MARKER_SIZE];
    char target[300];
    print_target(&restore->options->target, target, sizeof target);
    (void)snprintf(text, sizeof text, "%" PRIu32 "\t%" PRId64 "\t%s\n", header != NULL ? header->segment_size : 0,
                   header != NULL ? header->taken_ns : 0, target);
    return restore_write_file(restore->options->dev, restore->options->dir, RESTORE_MARKER, text);
}

/* What the marker of an interrupted one says; -EINVAL: it had another target, which is said. */
static int take_marker(struct restore *restore, const char *text)
{
    char target[300];
    int used = 0;
    print_target(&restore->options->target, target, sizeof target);
    if (sscanf(text, "%" SCNu32 "\t%" SCNd64 "\t%n", &restore->segment_size, &restore->base_time_ns, &used) != 2 ||
        used == 0) {
        return refuse(restore, -EIO, "its file 'restore' is damaged: remove the directory, and restore anew");
    }
    const size_t size = strcspn(text + used, "\n");
    if (size == strlen(target) && strncmp(text + used, target, size) == 0) {
        return 0;
    }
    diag_log(restore->options->diag, DIAG_ERROR,
             "%s: a restore into it was begun with another target ('%.*s'): finish that one, or remove the directory",
             restore->options->dir, (int)size, text + used);
    return -EINVAL;
}

static int remove_file_of(struct io_device *dev, const char *dir, const char *name)
{
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    const int rc = io_unlink(dev, path);
    return rc == 0 ? io_sync_dir(dev, dir) : rc;
}

static int remove_file(const struct restore *restore, const char *name)
{
    return remove_file_of(restore->options->dev, restore->options->dir, name);
}

void restore_forget(struct io_device *dev, const char *dir)
{
    const int rc = remove_file_of(dev, dir, RESTORE_MARKER);
    (void)rc; /* one that is left does no harm */
}

/* ---- the directory ---- */

static int refuse_entry(void *arg, const char *name, enum io_file_kind kind)
{
    (void)arg;
    (void)kind;
    return strcmp(name, "lost+found") == 0 ? 0 : -ENOTEMPTY;
}

enum directory_state {
    DIRECTORY_NEW,     /* empty, or with a part of a base: all is to be done */
    DIRECTORY_RESUMED, /* its replay goes on */
    DIRECTORY_DONE,    /* only the marker is left to be removed */
};

static enum directory_state state_of(int control_rc, const struct control *control)
{
    return control_rc != 0 ? DIRECTORY_NEW : control->restoring ? DIRECTORY_RESUMED : DIRECTORY_DONE;
}

/* Makes it, or finds it empty or left by a restore. */
static int take_directory(struct restore *restore, enum directory_state *out_state)
{
    const struct restore_options *options = restore->options;
    struct diag silent;
    struct control control = {.redo_lsn = 0};
    char text[MARKER_SIZE] = "";
    diag_init_silent(&silent);
    int rc = io_make_dir(options->dev, options->dir);
    if (rc != 0 && rc != -EEXIST) {
        return refuse(restore, rc, strerror(-rc));
    }
    const int control_rc = control_read(options->dev, &silent, options->dir, &control);
    rc = read_marker(restore, text);
    *out_state = state_of(control_rc, &control);
    if ((control_rc != 0 && control_rc != -ENODATA) || (rc == -ENOENT && *out_state != DIRECTORY_NEW)) {
        return refuse(restore, -EEXIST, "there is a tblfs data directory already");
    }
    if (rc == 0 && *out_state != DIRECTORY_NEW) {
        restore->result =
            (struct restore_result){.lsn = control.redo_lsn, .timeline = control.timeline, .resumed = true};
        return take_marker(restore, text);
    }
    if (rc == -ENOENT) {
        rc = io_list_dir(options->dev, options->dir, refuse_entry, NULL);
    }
    return rc != 0 ? refuse(restore, rc, rc == -ENOTEMPTY ? "the directory is not empty" : strerror(-rc)) : 0;
}

/* ---- the base ---- */

/* Can replay begin here, and is the target not before it? */
static int check_target(const struct restore *restore, lsn_no redo, int64_t time_ns)
{
    const struct restore_target *target = &restore->options->target;
    if (target->until == RESTORE_LSN && target->lsn + 1 < redo) {
        diag_log(restore->options->diag, DIAG_ERROR,
                 "the target %" PRIu64 " lies before the base, which is as of log position %" PRIu64, target->lsn,
                 redo);
        return -ERANGE;
    }
    if (target->until == RESTORE_TIME && target->time_ns < time_ns) {
        diag_log(restore->options->diag, DIAG_ERROR, "the target lies before the base, by %" PRId64 " ms",
                 (time_ns - target->time_ns) / 1000000 + 1);
        return -ERANGE;
    }
    return 0;
}

/* Whole under its name, or not there: one that is cut short would be damage. */
static int create_control(const struct restore *restore, struct control *control)
{
    const struct restore_options *options = restore->options;
    char dir[PATH_SIZE];
    char from[PATH_SIZE + 8];
    char to[PATH_SIZE];
    int rc = remove_file(restore, "log/control");
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    (void)snprintf(dir, sizeof dir, "%s/log", options->dir);
    (void)snprintf(from, sizeof from, "%s/control", dir);
    (void)snprintf(to, sizeof to, "%s/control", options->dir);
    rc = control_create(options->dev, dir, control);
    if (rc == 0) {
        rc = io_rename(options->dev, from, to);
    }
    return rc == 0 ? io_sync_dir(options->dev, options->dir) : rc;
}

static int place_base(struct restore *restore)
{
    const struct restore_options *options = restore->options;
    struct base_header header;
    int rc = write_marker(restore, NULL);
    if (rc == 0) {
        rc = restore_base(options, &header);
    }
    if (rc == 0) {
        rc = check_target(restore, header.control.redo_lsn, header.taken_ns);
    }
    if (rc == 0 && options->archive != NULL && !header.archived) {
        rc = refuse(restore, -ERANGE,
                    "the base was taken while no archive was configured: nothing can be replayed on it");
    }
    if (rc == 0) {
        rc = write_marker(restore, &header);
    }
    if (rc != 0) {
        return rc;
    }
    restore->segment_size = header.segment_size;
    restore->base_time_ns = header.taken_ns;
    header.control.restoring = true;
    header.control.clean = false;
    header.control.sidecar_threshold = header.control.fsm_threshold;
    header.control.sidecar_epoch = header.control.ceiling_epoch;
    return create_control(restore, &header.control);
}

/* ---- the replay ---- */

static bool stops(void *arg, const struct op_record *op, bool *out_after)
{
    const struct restore_target *target = arg;
    switch (target->until) {
    case RESTORE_TIME:
        *out_after = false;
        return op->time_ns > target->time_ns;
    case RESTORE_LSN:
        *out_after = PLANT(RESTORE_STOPS_LATE);
        return op->lsn > target->lsn;
    case RESTORE_TXN:
        *out_after = true;
        return op->type == OP_COMMIT && op->name.size == strlen(target->name) &&
               memcmp(op->name.data, target->name, op->name.size) == 0;
    case RESTORE_BASE:
    case RESTORE_END:
    case RESTORE_STANDBY:
        break;
    }
    return false;
}

static int replay(struct restore *restore)
{
    const struct restore_options *options = restore->options;
    struct restore_target target = options->target;
    struct archive_replay replay = {
        .chain = &restore->source.chain,
        .stops = stops,
        .arg = &target,
        .segment_size = restore->segment_size,
        .checkpoint_log_bytes =
            options->checkpoint_log_bytes != 0 ? options->checkpoint_log_bytes : DEFAULT_CHECKPOINT_BYTES,
        .progress = options->progress,
    };
    const uint64_t start_ns = io_monotonic_ns(options->dev);
    diag_log(options->diag, DIAG_INFO, "redo starts at %" PRIu64, restore->store->control.redo_lsn);
    const int rc = store_replay_archive(restore->store, &replay);
    struct bufcache_stats stats;
    bufcache_get_stats(restore->store->cache, &stats);
    diag_log(options->diag, DIAG_INFO,
             "redo done at %" PRIu64 ": %" PRIu64 " ms, %" PRIu64 " records, %" PRIu64 " sweeps", replay.end,
             (io_monotonic_ns(options->dev) - start_ns) / 1000000, replay.records, stats.sweeps);
    restore->result.lsn = replay.end;
    restore->result.records = replay.records;
    restore->result.time_ns = replay.records > 0 ? replay.time_ns : restore->base_time_ns;
    if (rc == 0 && !replay.stopped && target.until == RESTORE_TXN) {
        diag_log(options->diag, DIAG_ERROR, "the archive ends at log position %" PRIu64 ", without a commit of '%s'",
                 replay.end, target.name);
        return -ENODATA;
    }
    if (rc == 0 && !replay.stopped && target.until == RESTORE_TIME) {
        diag_log(options->diag, DIAG_INFO,
                 "the archive ends at log position %" PRIu64 ": nothing later is there, up to the target", replay.end);
    }
    if (rc == 0 && !replay.stopped && target.until == RESTORE_LSN && target.lsn >= replay.end) {
        diag_log(options->diag, DIAG_ERROR, "the archive ends at log position %" PRIu64 ", before the target",
                 replay.end);
        return -ENODATA;
    }
    return rc;
}

static int write_history(const struct store *store, const struct restore_source *source, lsn_no end, int64_t time_ns)
{
    char text[200];
    size_t used = (size_t)snprintf(text, sizeof text, "%" PRIu32 "\t", source->timeline);
    for (size_t i = 0; i < sizeof source->reader.store_id; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%02x", source->reader.store_id[i]);
    }
    (void)snprintf(text + used, sizeof text - used, "\t%" PRIu64 "\t%" PRId64 "\n", end, time_ns);
    return restore_write_file(store->dev, store->dir, "history", text);
}

/* RESTORE-4 */
int restore_end(struct store *store, struct restore_source *source, lsn_no end, int64_t time_ns, uint32_t *out_timeline)
{
    uint8_t store_id[16];
    int rc = io_random(store->dev, store_id, sizeof store_id);
    if (rc == 0) {
        rc = restore_source_new_timeline(source, out_timeline);
    }
    if (rc == 0) {
        rc = write_history(store, source, end, time_ns);
    }
    if (rc == 0) {
        rc = restore_source_clean_up(source);
    }
    return rc == 0 ? store_replay_finish(store, end, store_id, *out_timeline) : rc;
}

static int bring_to_target(struct restore *restore)
{
    const struct restore_options *options = restore->options;
    const struct store_options open = {.dev = options->dev,
                                       .diag = options->diag,
                                       .dir = options->dir,
                                       .cache_size_bytes = options->cache_size_bytes,
                                       .log_segment_size = restore->segment_size,
                                       .restoring = true};
    int rc = store_open(&open, &restore->store, NULL);
    if (rc != 0) {
        return rc;
    }
    const struct control parent = restore->store->control;
    restore_source_init(&restore->source, options, &parent, restore->segment_size);
    restore->result.lsn = parent.redo_lsn;
    restore->result.time_ns = restore->base_time_ns;
    if (options->progress != NULL) {
        atomic_store(&options->progress->replaying, true);
    }
    if (options->target.until != RESTORE_BASE) {
        rc = replay(restore);
    }
    if (rc == 0) {
        rc = restore_end(restore->store, &restore->source, restore->result.lsn, restore->result.time_ns,
                         &restore->result.timeline);
    }
    store_abandon(restore->store);
    return rc;
}

int restore_run(const struct restore_options *options, struct restore_result *out_result)
{
    struct restore restore = {.options = options};
    enum directory_state state = DIRECTORY_NEW;
    int rc = take_directory(&restore, &state);
    if (rc == 0 && state == DIRECTORY_NEW) {
        rc = place_base(&restore);
    }
    if (rc == 0 && state != DIRECTORY_DONE) {
        rc = bring_to_target(&restore);
    }
    if (rc == 0) {
        restore_forget(options->dev, options->dir);
    }
    if (rc == 0) {
        *out_result = restore.result;
    }
    return rc;
}

int standby_place(const struct restore_options *options, uint32_t *out_segment_size)
{
    struct restore restore = {.options = options};
    enum directory_state state = DIRECTORY_NEW;
    assert(options->target.until == RESTORE_STANDBY);
    int rc = take_directory(&restore, &state);
    if (rc == 0 && state == DIRECTORY_DONE) {
        rc = refuse(&restore, -EEXIST, "it was a standby, and is an ordinary store now: mount it");
    } else if (rc == 0 && state == DIRECTORY_NEW && options->base == NULL) {
        rc = refuse(&restore, -ENODATA, "there is no standby yet: --base BASE says what it begins with");
    } else if (rc == 0 && state == DIRECTORY_NEW) {
        rc = place_base(&restore);
    }
    if (rc == 0) {
        *out_segment_size = restore.segment_size;
    }
    return rc;
}
