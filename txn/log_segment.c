/*
 * txn/log_segment.c - segment files: made whole before use (LOG-6), found by number, synced, reused, removed.
 *
 * A new segment is written under a temporary name (zeros, so that syncing into it later need not change the file's
 * layout), synced, renamed, and its directory synced. An old one is reused by giving it a new header, syncing it, and
 * renaming it: what else is in it carries old positions and can never look valid.
 *
 * SEGMENT-1 The log ends inside a prepared segment, always: a promise (log_reserve) is larger than what it is used for.
 *           So a segment that reading comes to is there, or something removed it.
 * SEGMENT-2 A failure that no room explains stops the log (LOG-5): after a failed sync of a name the next one may succeed
 *           without having done anything.
 *
 * Locking: segments_lock for all of it.
 */
#include "txn/log_int.h"

#include "base/array.h"
#include "base/checksum.h"
#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZERO_CHUNK_BYTES (UINT32_C(1) << 20)

void log_segment_path(const char *dir, uint64_t number, char *path)
{
    (void)snprintf(path, LOG_PATH_SIZE, "%s/log/%016" PRIx64, dir, number);
}

static void temporary_path(const struct log *log, uint64_t number, char *path)
{
    (void)snprintf(path, LOG_PATH_SIZE, "%s/log/%016" PRIx64 ".tmp", log->dir, number);
}

static int write_header(const struct log *log, struct io_file *file, uint64_t number)
{
    struct log_segment_header header;
    memset(&header, 0, sizeof header);
    memcpy(header.magic, LOG_MAGIC, sizeof header.magic);
    memcpy(header.store_id, log->store_id, sizeof header.store_id);
    header.version = le32_of(LOG_FORMAT_VERSION);
    header.segment_size = le32_of(log->segment_size);
    header.number = le64_of(number);
    header.previous = le64_of(number == log->first_number ? log->previous : number * log->segment_size);
    header.timeline = le32_of(log->timeline);
    header.flags = le32_of(log->complete ? LOG_SEGMENT_COMPLETE : 0);
    header.checksum = le64_of(checksum_64(&header, offsetof(struct log_segment_header, checksum), 0));
    return io_write_full(file, &header, sizeof header, 0);
}

static int fill_with_zeros(const struct log *log, struct io_file *file)
{
    const uint32_t chunk = log->segment_size < ZERO_CHUNK_BYTES ? log->segment_size : ZERO_CHUNK_BYTES;
    void *zeros = calloc(1, chunk);
    if (zeros == NULL) {
        return -ENOMEM;
    }
    int rc = io_allocate(file, 0, log->segment_size); /* all or nothing: a full disk shows up here */
    for (uint64_t offset = 0; offset < log->segment_size && rc == 0; offset += chunk) {
        const uint64_t left = log->segment_size - offset;
        rc = io_write_full(file, zeros, left < chunk ? (size_t)left : chunk, offset);
    }
    free(zeros);
    return rc;
}

static int make_file(struct log *log, uint64_t number, const char *temporary, struct io_file **out_file)
{
    struct io_file *file = NULL;
    int rc = io_open(log->dev, temporary, IO_READ_WRITE | IO_CREATE | IO_TRUNCATE, &file);
    if (rc != 0) {
        return rc;
    }
    rc = fill_with_zeros(log, file);
    if (rc == 0) {
        rc = write_header(log, file, number);
    }
    if (rc == 0) {
        rc = io_sync(file);
    }
    if (rc != 0) {
        const int close_rc = io_close(file);
        const int unlink_rc = io_unlink(log->dev, temporary);
        (void)close_rc; /* the first error counts; a leftover temporary is removed at the next start */
        (void)unlink_rc;
        return rc;
    }
    *out_file = file;
    return 0;
}

/* Gives the file kept for reuse a new header. Its name still says the old number until it is renamed. */
static int reuse_file(struct log *log, uint64_t number, const char *old_path, struct io_file **out_file)
{
    struct io_file *file = NULL;
    int rc = io_open(log->dev, old_path, IO_READ_WRITE, &file);
    if (rc == 0) {
        rc = write_header(log, file, number);
    }
    if (rc == 0) {
        rc = io_sync(file);
    }
    if (rc != 0 && file != NULL) {
        const int close_rc = io_close(file);
        (void)close_rc; /* the first error counts */
    }
    if (rc == 0) {
        *out_file = file;
    }
    return rc;
}

static int add_segment(struct log *log, uint64_t number, struct io_file *file)
{
    struct log_segment *segments =
        array_with_room(log->segments, log->segment_count, &log->segment_capacity, sizeof segments[0]);
    if (segments == NULL) {
        return -ENOMEM;
    }
    log->segments = segments;
    log->segments[log->segment_count++] = (struct log_segment){.number = number, .file = file};
    return 0;
}

static bool is_no_room(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

/* The file gets the segment's name. SEGMENT-2. */
static int name_segment(struct log *log, const char *from, const char *path)
{
    char dir[LOG_PATH_SIZE];
    (void)snprintf(dir, sizeof dir, "%s/log", log->dir);
    int rc = io_rename(log->dev, from, path);
    if (is_no_room(rc)) {
        return rc;
    }
    if (rc == 0 && !PLANT(SEGMENT_NAME_NOT_SYNCED)) {
        rc = io_sync_dir(log->dev, dir);
    }
    return rc != 0 ? log_fail(log, "naming a segment failed", rc) : 0;
}

static int make_segment_locked(struct log *log, uint64_t number)
{
    char path[LOG_PATH_SIZE];
    char from[LOG_PATH_SIZE];
    struct io_file *file = NULL;
    const uint64_t reused = log->reusable;
    int rc;
    log_segment_path(log->dir, number, path);
    if (reused != 0) {
        log_segment_path(log->dir, reused, from);
        rc = reuse_file(log, number, from, &file);
    } else {
        temporary_path(log, number, from);
        rc = make_file(log, number, from, &file);
    }
    if (rc != 0) {
        return is_no_room(rc) ? rc : log_fail(log, "making a segment failed", rc);
    }
    rc = name_segment(log, from, path);
    if (rc == 0) {
        log->reusable = 0; /* not before: on a full disk it is the only one there can be */
        rc = add_segment(log, number, file);
    }
    if (rc != 0) {
        const int close_rc = io_close(file);
        (void)close_rc; /* the first error counts */
        return rc;
    }
    atomic_fetch_add(reused != 0 ? &log->segments_reused : &log->segments_made, 1);
    return 0;
}

/* Synced also when it is there already: whoever made it may have been killed before it did that. */
static int make_log_dir(struct log *log)
{
    char dir[LOG_PATH_SIZE];
    (void)snprintf(dir, sizeof dir, "%s/log", log->dir);
    const int rc = io_make_dir(log->dev, dir);
    return rc == 0 || rc == -EEXIST ? io_sync_dir(log->dev, log->dir) : rc;
}

int log_prepare(struct log *log, lsn_no end)
{
    mutex_lock(&log->segments_lock);
    int rc = atomic_load(&log->failure);
    if (rc == 0 && log->segment_count == 0) {
        rc = make_log_dir(log);
    }
    while (rc == 0 && atomic_load(&log->prepared_end) < end) {
        const lsn_no start = atomic_load(&log->prepared_end);
        const lsn_no next = start + log->segment_size;
        if (log->raise_ceiling != NULL) {
            rc = log->raise_ceiling(log->arg, next);
        }
        if (rc == 0) {
            rc = make_segment_locked(log, start / log->segment_size);
        }
        if (rc == 0) {
            atomic_store(&log->prepared_end, next);
        }
    }
    mutex_unlock(&log->segments_lock);
    return rc;
}

static struct log_segment *find_locked(struct log *log, uint64_t number)
{
    for (size_t i = log->segment_count; i > 0; i--) {
        if (log->segments[i - 1].number == number) {
            return &log->segments[i - 1];
        }
    }
    return NULL;
}

int log_segment_file(struct log *log, uint64_t number, struct io_file **out_file)
{
    mutex_lock(&log->segments_lock);
    const struct log_segment *segment = find_locked(log, number);
    assert(segment != NULL); /* what is written was promised, so it is prepared and not recycled */
    *out_file = segment->file;
    mutex_unlock(&log->segments_lock);
    return 0;
}

int log_segments_sync(struct log *log, lsn_no from, lsn_no to)
{
    int rc = 0;
    for (uint64_t number = from / log->segment_size; number <= (to - 1) / log->segment_size && rc == 0; number++) {
        struct io_file *file = NULL;
        rc = log_segment_file(log, number, &file);
        if (rc == 0) {
            rc = io_sync(file);
        }
    }
    return rc;
}

/* One that is no longer needed: kept for reuse when none is, else removed. */
static int retire_segment_locked(struct log *log, const struct log_segment *segment)
{
    int rc = io_close(segment->file);
    if (rc == 0 && log->reusable == 0 && segment->cut_at == 0) {
        log->reusable = segment->number;
    } else if (rc == 0) {
        char path[LOG_PATH_SIZE];
        log_segment_path(log->dir, segment->number, path);
        rc = io_unlink(log->dev, path);
    }
    return rc;
}

int log_recycle(struct log *log, lsn_no keep_from)
{
    int rc = 0;
    size_t gone = 0;
    const lsn_no synced = atomic_load(&log->synced);
    const lsn_no held = PLANT(RECYCLED_BEFORE_ARCHIVED) ? UINT64_MAX : atomic_load(&log->hold_from);
    keep_from = keep_from < held ? keep_from : held;
    const uint64_t keep = (keep_from < synced ? keep_from : synced) / log->segment_size;
    mutex_lock(&log->segments_lock);
    while (gone < log->segment_count && log->segments[gone].number < keep && rc == 0) {
        rc = retire_segment_locked(log, &log->segments[gone++]);
    }
    log->segment_count -= gone;
    memmove(log->segments, log->segments + gone, log->segment_count * sizeof log->segments[0]);
    mutex_unlock(&log->segments_lock);
    return rc;
}

int log_drop_spare(struct log *log)
{
    int rc = -ENOENT;
    mutex_lock(&log->segments_lock);
    if (log->reusable != 0) {
        char path[LOG_PATH_SIZE];
        log_segment_path(log->dir, log->reusable, path);
        log->reusable = 0;
        rc = io_unlink(log->dev, path);
    }
    mutex_unlock(&log->segments_lock);
    return rc;
}

int log_segment_cut(struct log *log, lsn_no end)
{
    mutex_lock(&log->segments_lock);
    struct log_segment *segment = find_locked(log, end / log->segment_size);
    assert(segment != NULL); /* the log ends in it */
    int rc = io_truncate(segment->file, end % log->segment_size);
    if (rc == 0) {
        segment->cut_at = (uint32_t)(end % log->segment_size);
        rc = io_sync(segment->file);
    }
    mutex_unlock(&log->segments_lock);
    return rc != 0 ? log_fail(log, "cutting a segment failed", rc) : 0;
}

int log_each_segment(struct log *log, log_segment_fn *fn, void *arg)
{
    const lsn_no held_from = atomic_load(&log->hold_from);
    const uint32_t size = log->segment_size;
    int rc = 0;
    mutex_lock(&log->segments_lock);
    if (log->reusable != 0) {
        rc = fn(arg, &(struct log_segment_use){.number = log->reusable, .bytes = size, .spare = true});
    }
    for (size_t i = 0; i < log->segment_count && rc == 0; i++) {
        const struct log_segment *segment = &log->segments[i];
        const uint32_t bytes = segment->cut_at != 0 ? segment->cut_at : size;
        const lsn_no start = segment->number * size;
        rc = fn(arg, &(struct log_segment_use){.number = segment->number,
                                               .start = start,
                                               .end = start + bytes,
                                               .bytes = bytes,
                                               .held = start + size > held_from});
    }
    mutex_unlock(&log->segments_lock);
    return rc;
}

void log_segments_close(struct log *log)
{
    for (size_t i = 0; i < log->segment_count; i++) {
        const int rc = io_close(log->segments[i].file);
        (void)rc; /* what mattered was synced */
    }
    free(log->segments);
}
