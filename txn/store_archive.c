/*
 * txn/store_archive.c - offers the finished segments of a store's log to its archive, one after the other (txn/archive.h).
 *
 *   at open: segments of earlier lives that are on the chain and not archived --> `old`, ascending
 *   step:    old ones, then those of this life; after a failure nothing until the next try is due
 *            timeout: the segment that the log is in was begun long ago --> log_switch, and it is finished
 *   at close: the segment in which the log ends is cut and finished; what cannot be archived now waits for the next start
 *
 * DATADIR/archived names what was archived last: a hint. Without it segments are offered once more (ARCHIVE-2).
 */
#include "txn/store_archive.h"

#include "base/array.h"
#include "base/plant.h"
#include "txn/log_int.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKOFF_FIRST_NS UINT64_C(1000000000)
#define BACKOFF_MAX_NS   (60 * UINT64_C(1000000000))
#define LINK_TEXT_SIZE   160u

struct archive {
    struct archive_target target;
    uint64_t timeout_ns; /* 0: segments are left when they are full only */
    uint64_t *old;       /* of earlier lives, ascending; does not change once it is open */
    size_t old_count, old_capacity;
    _Atomic size_t old_done;
    _Atomic uint64_t last;        /* of this life's, the last one that is archived; 0: none */
    bool history;                 /* of a store that was restored: to be archived before anything else */
    uint64_t pending_ns;          /* since when something waits in the segment that the log is in, 0: nothing */
    uint64_t retry_ns;            /* not before, 0: at any time */
    uint64_t backoff_ns;          /* of the next failure */
    struct mutex lock;            /* LOCK_RANK_LEAF */
    struct archive_status status; /* guarded by lock */
};

/* ---- names ---- */

void archive_segment_name(char name[ARCHIVE_NAME_SIZE], uint32_t timeline, uint64_t number)
{
    (void)snprintf(name, ARCHIVE_NAME_SIZE, "%08" PRIx32 "-%016" PRIx64, timeline, number);
}

void archive_history_name(char name[ARCHIVE_NAME_SIZE], uint32_t timeline)
{
    (void)snprintf(name, ARCHIVE_NAME_SIZE, "%08" PRIx32 ".history", timeline);
}

void archive_link_name(char name[ARCHIVE_NAME_SIZE], uint32_t timeline, uint64_t number)
{
    (void)snprintf(name, ARCHIVE_NAME_SIZE, "%08" PRIx32 "-%016" PRIx64 ".next", timeline, number);
}

static void path_of(const struct store *store, const char *name, char path[LOG_PATH_SIZE])
{
    (void)snprintf(path, LOG_PATH_SIZE, "%s/%s", store->dir, name);
}

static uint32_t segment_size_of(const struct store *store)
{
    return store->log_segment_size != 0 ? store->log_segment_size : LOG_SEGMENT_SIZE;
}

static struct log_reader_options reader_options(const struct store *store)
{
    struct log_reader_options options = {
        .dev = store->dev, .diag = store->diag, .dir = store->dir, .segment_size = store->log_segment_size};
    memcpy(options.store_id, store->control.store_id, sizeof options.store_id);
    return options;
}

/* A small file of the data directory, whole and durable under its name or not there. */
static int write_small_file(struct store *store, const char *name, const char *text)
{
    char path[LOG_PATH_SIZE];
    char temporary[LOG_PATH_SIZE + 4];
    struct io_file *file = NULL;
    path_of(store, name, path);
    (void)snprintf(temporary, sizeof temporary, "%s.tmp", path);
    int rc = io_open(store->dev, temporary, IO_READ_WRITE | IO_CREATE | IO_TRUNCATE, &file);
    if (rc != 0) {
        return rc;
    }
    rc = io_write_full(file, text, strlen(text), 0);
    rc = rc == 0 ? io_sync(file) : rc;
    const int close_rc = io_close(file);
    rc = rc == 0 ? close_rc : rc;
    rc = rc == 0 ? io_rename(store->dev, temporary, path) : rc;
    return rc == 0 ? io_sync_dir(store->dev, store->dir) : rc;
}

/* ---- what was archived last ---- */

static int write_marker(struct store *store, const char *name)
{
    char text[ARCHIVE_NAME_SIZE + 2];
    (void)snprintf(text, sizeof text, "%s\n", name);
    return write_small_file(store, "archived", text);
}

/* Number of the segment that was archived last; 0: not known. */
static uint64_t read_marker(const struct store *store)
{
    char path[LOG_PATH_SIZE];
    char text[ARCHIVE_NAME_SIZE] = "";
    struct io_file *file = NULL;
    size_t size = 0;
    uint64_t number = 0;
    uint32_t timeline = 0;
    path_of(store, "archived", path);
    if (io_open(store->dev, path, IO_READ_ONLY, &file) != 0) {
        return 0;
    }
    const int rc = io_read_full(file, text, sizeof text - 1, 0, &size);
    const int close_rc = io_close(file);
    (void)close_rc; /* it was only read */
    const bool good = rc == 0 && sscanf(text, "%8" SCNx32 "-%16" SCNx64, &timeline, &number) == 2 &&
                      timeline == store->control.timeline;
    return good ? number : 0;
}

/* ---- segments of earlier lives ---- */

static int add_old(struct archive *archive, uint64_t number)
{
    uint64_t *old = array_with_room(archive->old, archive->old_count, &archive->old_capacity, sizeof old[0]);
    if (old == NULL) {
        return -ENOMEM;
    }
    archive->old = old;
    archive->old[archive->old_count++] = number;
    return 0;
}

/* Follows the chain back from where the log of the life before ended, as far as there are segments to archive. */
static int find_old(struct store *store, struct archive *archive)
{
    const struct log_reader_options reader = reader_options(store);
    const uint64_t archived = read_marker(store);
    uint64_t number = store->log_previous / segment_size_of(store);
    bool more = store->log_previous != 0;
    int rc = 0;
    while (rc == 0 && more && number > archived) {
        struct log_segment_info info;
        rc = log_segment_info(&reader, number, &info);
        if (rc == 0 && info.complete) {
            rc = add_old(archive, number);
            more = log_segment_previous(&info, &number);
        } else {
            more = false; /* no archive was configured then, or it was archived and removed */
        }
    }
    for (size_t i = 0; i < archive->old_count / 2; i++) {
        const uint64_t other = archive->old[archive->old_count - 1 - i];
        archive->old[archive->old_count - 1 - i] = archive->old[i];
        archive->old[i] = other;
    }
    return rc == -ENOENT ? 0 : rc;
}

bool store_archive_wants(void *store_void, uint64_t number)
{
    const struct archive *archive = ((const struct store *)store_void)->archive;
    for (size_t i = archive != NULL ? archive->old_done : 0; archive != NULL && i < archive->old_count; i++) {
        if (archive->old[i] == number) {
            return true;
        }
    }
    return false;
}

int store_archive_open(struct store *store, const struct archive_target *target, uint64_t timeout_ms)
{
    struct archive *archive = calloc(1, sizeof *archive);
    if (archive == NULL) {
        return -ENOMEM;
    }
    archive->target = *target;
    archive->timeout_ns = timeout_ms * 1000000;
    archive->backoff_ns = BACKOFF_FIRST_NS;
    archive->status.configured = true;
    mutex_init(&archive->lock, LOCK_RANK_LEAF);
    store->archive = archive;
    archive->history = store->control.timeline > 1 && read_marker(store) == 0;
    return find_old(store, archive);
}

void store_archive_free(struct store *store)
{
    if (store->archive != NULL) {
        mutex_destroy(&store->archive->lock);
        free(store->archive->old);
        free(store->archive);
        store->archive = NULL;
    }
}

/* ---- one segment ---- */

/* Where the log left the old segment `index`, if not at its end; 0: it did not leave it early. */
static uint64_t end_of_old(const struct store *store, const struct archive *archive, size_t index)
{
    const uint32_t size = segment_size_of(store);
    struct log_segment_info next;
    lsn_no end = store->log_previous;
    if (index + 1 < archive->old_count) {
        const struct log_reader_options reader = reader_options(store);
        if (log_segment_info(&reader, archive->old[index + 1], &next) != 0) {
            return 0;
        }
        end = next.previous;
    }
    return end / size == archive->old[index] ? end % size : 0;
}

/* All of it is durable here before it is anywhere else; and nothing but what was logged is kept. */
static int settle_old(struct store *store, const struct archive *archive, size_t index, const char *path)
{
    struct io_file *file = NULL;
    const uint64_t end = end_of_old(store, archive, index);
    int rc = io_open(store->dev, path, IO_READ_WRITE, &file);
    if (rc != 0) {
        return rc;
    }
    rc = end != 0 ? io_truncate(file, end) : 0;
    rc = rc == 0 ? io_sync(file) : rc;
    const int close_rc = io_close(file);
    return rc == 0 ? close_rc : rc;
}

/* ARCHIVE-3 */
static int put_link(struct store *store, const struct log_segment_info *info, char name[ARCHIVE_NAME_SIZE])
{
    char text[LINK_TEXT_SIZE];
    char path[LOG_PATH_SIZE];
    const struct archive_target *target = &store->archive->target;
    archive_link_name(name, info->timeline, info->previous / info->segment_size);
    (void)snprintf(text, sizeof text, "%016" PRIx64 "\t%" PRIu64 "\n", info->number, info->previous);
    path_of(store, "archive.next", path);
    const int rc = write_small_file(store, "archive.next", text);
    return rc != 0 ? rc : target->put(target->arg, path, name);
}

/* *out_name: what was put last, or could not be put. */
static int put_segment(struct store *store, uint64_t number, char out_name[ARCHIVE_NAME_SIZE])
{
    const struct log_reader_options reader = reader_options(store);
    const struct archive_target *target = &store->archive->target;
    char path[LOG_PATH_SIZE];
    struct log_segment_info info;
    archive_segment_name(out_name, store->control.timeline, number);
    log_segment_path(store->dir, number, path);
    int rc = log_segment_info(&reader, number, &info);
    if (rc == 0 && info.previous != 0 && info.previous != info.start) {
        rc = put_link(store, &info, out_name);
    }
    if (rc == 0) {
        archive_segment_name(out_name, info.timeline, number);
        rc = target->put(target->arg, path, out_name);
    }
    return rc;
}

static void note_failure(struct store *store, const char *name, int rc)
{
    struct archive *archive = store->archive;
    const uint64_t wait_ns = archive->backoff_ns;
    archive->retry_ns = io_monotonic_ns(store->dev) + wait_ns;
    archive->backoff_ns = wait_ns * 2 < BACKOFF_MAX_NS ? wait_ns * 2 : BACKOFF_MAX_NS;
    mutex_lock(&archive->lock);
    archive->status.failures++;
    archive->status.failed_rc = rc;
    archive->status.failed_time_ns = (int64_t)io_realtime_ns(store->dev);
    (void)snprintf(archive->status.failed_name, ARCHIVE_NAME_SIZE, "%s", name);
    mutex_unlock(&archive->lock);
    diag_log(store->diag, DIAG_WARNING, "archive: %s could not be archived: %s; the next try is in %" PRIu64 " s", name,
             strerror(-rc), wait_ns / 1000000000);
}

static void note_success(struct store *store, const char *name)
{
    struct archive *archive = store->archive;
    mutex_lock(&archive->lock);
    const bool again = archive->status.failed_name[0] != '\0';
    archive->status.archived++;
    archive->status.last_time_ns = (int64_t)io_realtime_ns(store->dev);
    archive->status.failed_name[0] = '\0';
    memcpy(archive->status.last_name, name, ARCHIVE_NAME_SIZE);
    mutex_unlock(&archive->lock);
    diag_log(store->diag, again ? DIAG_WARNING : DIAG_DEBUG, "archive: %s is archived%s", name,
             again ? ": it works again" : "");
    archive->backoff_ns = BACKOFF_FIRST_NS;
    archive->pending_ns = 0;
}

static int archive_old(struct store *store, struct archive *archive, char name[ARCHIVE_NAME_SIZE])
{
    char path[LOG_PATH_SIZE];
    const size_t index = archive->old_done;
    log_segment_path(store->dir, archive->old[index], path);
    archive_segment_name(name, store->control.timeline, archive->old[index]);
    int rc = settle_old(store, archive, index, path);
    if (rc == 0) {
        rc = put_segment(store, archive->old[index], name);
    }
    if (rc == 0) {
        rc = write_marker(store, name);
    }
    if (rc == 0) {
        archive->old_done++;
        rc = io_unlink(store->dev, path);
    }
    return rc;
}

static int archive_new(struct store *store, struct archive *archive, uint64_t number, char name[ARCHIVE_NAME_SIZE])
{
    int rc = put_segment(store, number, name);
    if (rc == 0) {
        rc = write_marker(store, name);
    }
    if (rc == 0) {
        archive->last = number;
        log_hold(store->log, (number + 1) * segment_size_of(store));
    }
    return rc;
}

static int archive_history(struct store *store, struct archive *archive, char name[ARCHIVE_NAME_SIZE])
{
    char path[LOG_PATH_SIZE];
    path_of(store, "history", path);
    archive_history_name(name, store->control.timeline);
    const int rc = archive->target.put(archive->target.arg, path, name);
    archive->history = rc != 0;
    return rc;
}

/* 1: nothing is finished that is not archived. */
static int archive_next(struct store *store, char name[ARCHIVE_NAME_SIZE])
{
    struct archive *archive = store->archive;
    uint64_t number = 0;
    if (archive->history) {
        return archive_history(store, archive, name);
    }
    if (archive->old_done < archive->old_count) {
        return archive_old(store, archive, name);
    }
    return log_next_finished(store->log, archive->last, &number) ? archive_new(store, archive, number, name) : 1;
}

/* Archives all that is finished. 0 or the first failure, which was noted. */
static int archive_all(struct store *store)
{
    char name[ARCHIVE_NAME_SIZE] = "";
    int rc = 0;
    while (rc == 0) {
        rc = archive_next(store, name);
        if (rc == 0) {
            note_success(store, name);
        }
    }
    if (rc < 0) {
        note_failure(store, name, rc);
    }
    return rc < 0 ? rc : 0;
}

/* ---- when ---- */

/* Leaves the segment that the log is in, when something has waited there for long enough. */
static bool leave_in_time(struct store *store, uint64_t now_ns)
{
    struct archive *archive = store->archive;
    if (archive->timeout_ns == 0 || !log_is_in_segment(store->log)) {
        archive->pending_ns = 0;
        return false;
    }
    if (archive->pending_ns == 0) {
        archive->pending_ns = now_ns;
    }
    if (now_ns - archive->pending_ns < archive->timeout_ns) {
        return false;
    }
    archive->pending_ns = 0;
    const int rc = log_switch(store->log);
    if (rc == 0) {
        mutex_lock(&archive->lock);
        archive->status.switches++;
        mutex_unlock(&archive->lock);
    } else if (rc != -ENOSPC) {
        store_fail(store, "the log could not leave its segment", rc);
    }
    return rc == 0;
}

void store_archive_step(struct store *store)
{
    struct archive *archive = store->archive;
    const uint64_t now_ns = io_monotonic_ns(store->dev);
    if (archive == NULL || atomic_load(&store->failure) != NULL || now_ns < archive->retry_ns) {
        return;
    }
    archive->retry_ns = 0;
    if (archive_all(store) == 0 && leave_in_time(store, now_ns)) {
        const int rc = archive_all(store);
        (void)rc; /* noted */
    }
}

int store_archive_each_old(struct store *store, store_segment_fn *fn, void *arg)
{
    const struct archive *archive = store->archive;
    const uint64_t size = segment_size_of(store);
    int rc = 0;
    for (size_t i = archive != NULL ? archive->old_done : 0; archive != NULL && i < archive->old_count && rc == 0;
         i++) {
        char path[LOG_PATH_SIZE];
        struct io_stat stat;
        const uint64_t number = archive->old[i];
        log_segment_path(store->dir, number, path);
        if (io_stat(store->dev, path, &stat) == 0) { /* else it was archived a moment ago */
            rc = fn(arg, &(struct store_segment){.number = number,
                                                 .start = number * size,
                                                 .end = number * size + stat.size_bytes,
                                                 .bytes = stat.size_bytes,
                                                 .state = STORE_SEGMENT_ARCHIVING});
        }
    }
    return rc;
}

void store_archive_begin(struct store *store)
{
    if (store->archive != NULL) {
        log_hold(store->log, log_first_segment(store->log) * segment_size_of(store));
    }
}

void store_archive_finish(struct store *store)
{
    if (store->archive == NULL || atomic_load(&store->failure) != NULL) {
        return;
    }
    int rc = log_sync_all(store->log);
    if (rc == 0) {
        rc = store_control_set_end(store, log_end(store->log)); /* what `previous` of the next life says */
    }
    if (rc == 0) {
        rc = log_finish(store->log);
    }
    if (rc == 0) {
        rc = archive_all(store);
    }
    if (rc != 0) {
        diag_log(store->diag, DIAG_WARNING,
                 "%s: the end of the log is not archived: %s; the next mount with an archive does that", store->dir,
                 strerror(-rc));
    }
}

static uint64_t count_waiting(struct store *store)
{
    const struct archive *archive = store->archive;
    struct log_stats log;
    log_get_stats(store->log, &log);
    const uint64_t first = archive->last != 0 ? archive->last + 1 : log_first_segment(store->log);
    const uint64_t synced_in = log.synced / segment_size_of(store);
    return archive->old_count - archive->old_done + (synced_in > first ? synced_in - first : 0);
}

void store_get_archive_status(struct store *store, struct archive_status *out_status)
{
    *out_status = (struct archive_status){.configured = store->archive != NULL};
    if (store->archive != NULL && store->log != NULL) {
        mutex_lock(&store->archive->lock);
        *out_status = store->archive->status;
        mutex_unlock(&store->archive->lock);
        out_status->waiting = count_waiting(store);
    }
}

void *store_archive_thread(void *store_void)
{
    struct store *store = store_void;
    while (store_thread_wait(store, ARCHIVE_PERIOD_MS)) {
        store_archive_step(store);
    }
    return NULL;
}
