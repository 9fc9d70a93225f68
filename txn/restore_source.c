/*
 * txn/restore_source.c - brings archived segments into DIR/log when replay comes to them, and judges where the chain ends (RESTORE-2).
 *
 * A position without a group is the end of a life if the next life's first segment says so: its `previous` is that very position. What does not fit is
 * damage. At the end of the archive itself there is nobody to say so: then the segment has to end right there, and nothing may follow.
 */
#include "txn/restore_int.h"

#include "txn/log_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINK_TEXT_SIZE 160u

static int fetch(void *arg, uint64_t number);
static int chain_end(void *arg, lsn_no position, lsn_no bad, bool missing, lsn_no *out_next);

void restore_source_init(struct restore_source *source, const struct restore_options *options,
                         const struct control *control, uint32_t segment_size)
{
    *source = (struct restore_source){.archive = options->archive,
                                      .dev = options->dev,
                                      .diag = options->diag,
                                      .dir = options->dir,
                                      .timeline = control->timeline,
                                      .segment_size = segment_size};
    source->reader = (struct log_reader_options){
        .dev = options->dev, .diag = options->diag, .dir = options->dir, .segment_size = segment_size};
    memcpy(source->reader.store_id, control->store_id, sizeof source->reader.store_id);
    source->chain = (struct log_chain){.fetch = fetch, .end = chain_end, .arg = source};
}

/* ---- files ---- */

static void path_in_log(const struct restore_source *source, const char *name, char path[LOG_PATH_SIZE])
{
    (void)snprintf(path, LOG_PATH_SIZE, "%s/log/%s", source->dir, name);
}

/* Under a temporary name first: one that is cut off in the middle is not taken for a segment. */
static int get_as(struct restore_source *source, const char *name, const char *path)
{
    char temporary[LOG_PATH_SIZE];
    path_in_log(source, "fetched.tmp", temporary);
    const int rc = source->archive->get(source->archive->arg, name, temporary);
    return rc == 0 ? io_rename(source->dev, temporary, path) : rc;
}

static int get_from_lost(struct restore_source *source, uint64_t number, const char *path)
{
    char name[32];
    char log_dir[LOG_PATH_SIZE];
    if (source->archive->lost_dir == NULL) {
        return -ENOENT;
    }
    (void)snprintf(log_dir, sizeof log_dir, "%s/log", source->archive->lost_dir);
    (void)snprintf(name, sizeof name, "%016" PRIx64, number);
    struct archive_dir lost = {.dev = source->dev, .diag = source->diag, .dir = log_dir};
    const int rc = archive_dir_get(&lost, name, path);
    source->lost_number = rc == 0 ? number : source->lost_number;
    return rc;
}

static int damaged(struct restore_source *source, const char *name, const char *what)
{
    diag_log(source->diag, DIAG_ERROR, "archive: %s: %s", name, what);
    return -EIO;
}

/* It is of this store, on this timeline, and has all bytes. */
static int check_segment(struct restore_source *source, uint64_t number, const char *name)
{
    struct log_segment_info info;
    const int rc = log_segment_info(&source->reader, number, &info);
    if (rc == -ENOENT) {
        return damaged(source, name,
                       "it is not a segment of the store that the base was taken of, or its header is damaged");
    }
    if (rc == 0 && info.timeline != source->timeline) {
        char text[100];
        (void)snprintf(text, sizeof text, "it is of timeline %" PRIu32 ", which is no ancestor of timeline %" PRIu32,
                       info.timeline, source->timeline);
        return damaged(source, name, text);
    }
    return rc == 0 && !info.complete
               ? damaged(source, name, "it was written while no archive was configured, and has not all bytes")
               : rc;
}

/* What was brought, and is no good: it is looked for again. */
static void discard(const struct restore_source *source, uint64_t number)
{
    char path[LOG_PATH_SIZE];
    log_segment_path(source->dir, number, path);
    const int rc = source->follows ? io_unlink(source->dev, path) : 0;
    (void)rc; /* then it is found again, and said again */
}

static int fetch(void *arg, uint64_t number)
{
    struct restore_source *source = arg;
    char name[ARCHIVE_NAME_SIZE];
    char path[LOG_PATH_SIZE];
    archive_segment_name(name, source->timeline, number);
    log_segment_path(source->dir, number, path);
    int rc = get_as(source, name, path);
    if (rc == -ENOENT) {
        rc = get_from_lost(source, number, path);
    }
    if (rc != 0) {
        return rc;
    }
    rc = check_segment(source, number, name);
    if (rc != 0) {
        discard(source, number);
    }
    return rc;
}

/* ---- where the chain goes on ---- */

struct later {
    const struct restore_source *source;
    uint64_t above;
    bool found;
};

static int look_for_later(void *arg, const char *name, enum io_file_kind kind)
{
    struct later *later = arg;
    uint32_t timeline = 0;
    uint64_t number = 0;
    (void)kind;
    const bool is_segment = strlen(name) == 25 && sscanf(name, "%8" SCNx32 "-%16" SCNx64, &timeline, &number) == 2;
    later->found |= is_segment && timeline == later->source->timeline && number > later->above;
    return 0;
}

/* Does the archive have a segment above that number? False also when it cannot be looked at. */
static int has_later(struct restore_source *source, uint64_t number, bool *out_found)
{
    struct later later = {.source = source, .above = number};
    const char *dir = source->archive->dir;
    const int rc = dir != NULL ? io_list_dir(source->dev, dir, look_for_later, &later) : 0;
    *out_found = later.found;
    return rc;
}

/* The same of one that is not there; for who follows only when it is so for the second time: all of them may have come since it was looked for. */
static int looks_missing(struct restore_source *source, uint64_t number, lsn_no position, bool *out_later)
{
    bool later = false;
    const int rc = has_later(source, number, &later);
    const bool again = !source->follows || source->suspect == position;
    source->suspect = later ? position : source->suspect;
    *out_later = later && again;
    return rc;
}

static int read_text(struct restore_source *source, const char *path, char text[LINK_TEXT_SIZE])
{
    struct io_file *file = NULL;
    size_t size = 0;
    int rc = io_open(source->dev, path, IO_READ_ONLY, &file);
    if (rc == 0) {
        rc = io_read_full(file, text, LINK_TEXT_SIZE - 1, 0, &size);
        const int close_rc = io_close(file);
        rc = rc == 0 ? close_rc : rc;
    }
    text[size] = '\0';
    return rc;
}

/* The link behind that segment. -ENOENT: there is none. */
static int read_link(struct restore_source *source, uint64_t number, uint64_t *out_next, lsn_no *out_end)
{
    char name[ARCHIVE_NAME_SIZE];
    char path[LOG_PATH_SIZE];
    char text[LINK_TEXT_SIZE];
    int used = 0;
    archive_link_name(name, source->timeline, number);
    path_in_log(source, "fetched.next", path);
    int rc = get_as(source, name, path);
    if (rc == 0) {
        rc = read_text(source, path, text);
        const int unlink_rc = io_unlink(source->dev, path);
        rc = rc == 0 ? unlink_rc : rc;
    }
    if (rc != 0) {
        return rc;
    }
    const bool good =
        sscanf(text, "%16" SCNx64 "\t%" SCNu64 "%n", out_next, out_end, &used) == 2 && strcmp(text + used, "\n") == 0;
    return good ? 0 : damaged(source, name, "it is no link");
}

struct successor {
    struct restore_source *source;
    struct log_reader_options reader; /* of the lost data directory */
    lsn_no end;
    uint64_t number; /* 0: none */
};

static int look_for_successor(void *arg, const char *name, enum io_file_kind kind)
{
    struct successor *successor = arg;
    struct log_segment_info info;
    uint64_t number = 0;
    (void)kind;
    if (strlen(name) == 16 && sscanf(name, "%16" SCNx64, &number) == 1 &&
        log_segment_info(&successor->reader, number, &info) == 0 && info.previous == successor->end && info.complete) {
        successor->number = number;
    }
    return 0;
}

/* In the lost data directory, where segments have no links. 0: there is none. */
static uint64_t successor_in_lost(struct restore_source *source, lsn_no end)
{
    char path[LOG_PATH_SIZE];
    struct diag silent;
    struct successor successor = {.source = source, .reader = source->reader, .end = end};
    diag_init_silent(&silent);
    successor.reader.dir = source->archive->lost_dir;
    successor.reader.diag = &silent;
    if (source->archive->lost_dir == NULL) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/log", source->archive->lost_dir);
    const int rc = io_list_dir(source->dev, path, look_for_successor, &successor);
    return rc == 0 ? successor.number : 0;
}

static int go_to(struct restore_source *source, uint64_t number, lsn_no end, lsn_no *out_next)
{
    struct log_segment_info info;
    char name[ARCHIVE_NAME_SIZE];
    archive_segment_name(name, source->timeline, number);
    bool later = false;
    int rc = fetch(source, number);
    if (rc == -ENOENT && source->follows) {
        rc = looks_missing(source, number, end, &later);
        if (rc != 0 || !later) {
            return rc; /* it comes next */
        }
        rc = -ENOENT;
    }
    if (rc == -ENOENT) {
        return damaged(source, name, "it is missing");
    }
    if (rc == 0) {
        rc = log_segment_info(&source->reader, number, &info);
    }
    if (rc == 0 && info.previous != end) {
        return damaged(source, name,
                       "it does not go on where the log before it ended: something is missing in between");
    }
    *out_next = number * source->segment_size;
    return rc == 0 ? 1 : rc;
}

static int bad_at(struct restore_source *source, lsn_no position, const char *what)
{
    char name[ARCHIVE_NAME_SIZE];
    archive_segment_name(name, source->timeline, position / source->segment_size);
    diag_log(source->diag, DIAG_ERROR, "archive: %s: offset %" PRIu64 " (position %" PRIu64 "): %s", name,
             (uint64_t)(position % source->segment_size), position, what);
    return -EIO;
}

/* What should be at `bad` is not. */
static int broken_at(struct restore_source *source, lsn_no bad, bool missing)
{
    discard(source, bad / source->segment_size);
    return bad_at(source, bad,
                  missing ? "the segment is missing" : "no batch is here, but the log went on: it is damaged");
}

/* Nothing says that the log goes on behind the segment of `position`. */
static int end_of_archive(struct restore_source *source, lsn_no position, lsn_no bad, bool missing)
{
    char path[LOG_PATH_SIZE];
    struct io_stat stat;
    const uint64_t number = position / source->segment_size;
    bool later = false;
    int rc = looks_missing(source, missing ? bad / source->segment_size : number, bad, &later);
    if (rc != 0 || later) {
        return rc != 0 ? rc : broken_at(source, bad, missing);
    }
    if (missing || number == source->lost_number) {
        return 0; /* the log would have gone on there; or its end was torn */
    }
    log_segment_path(source->dir, number, path);
    rc = io_stat(source->dev, path, &stat);
    return rc == 0 && stat.size_bytes != position % source->segment_size ? broken_at(source, bad, false) : rc;
}

static int chain_end(void *arg, lsn_no position, lsn_no bad, bool missing, lsn_no *out_next)
{
    struct restore_source *source = arg;
    uint64_t next = 0;
    lsn_no end = 0;
    const int rc = read_link(source, position / source->segment_size, &next, &end);
    if (rc == 0) {
        return end == position ? go_to(source, next, position, out_next) : broken_at(source, bad, missing);
    }
    if (rc != -ENOENT) {
        return rc;
    }
    next = successor_in_lost(source, position);
    return next != 0 ? go_to(source, next, position, out_next) : end_of_archive(source, position, bad, missing);
}

/* ---- the rest ---- */

int restore_source_new_timeline(struct restore_source *source, uint32_t *out_timeline)
{
    char path[LOG_PATH_SIZE];
    uint32_t timeline = source->timeline;
    int rc = 0;
    path_in_log(source, "fetched.history", path);
    while (rc == 0) {
        char name[ARCHIVE_NAME_SIZE];
        archive_history_name(name, ++timeline);
        rc = source->archive != NULL ? get_as(source, name, path) : -ENOENT;
    }
    *out_timeline = timeline;
    return rc == -ENOENT ? 0 : rc;
}

static int remove_entry(void *arg, const char *name, enum io_file_kind kind)
{
    struct restore_source *source = arg;
    char path[LOG_PATH_SIZE];
    path_in_log(source, name, path);
    return kind == IO_KIND_FILE ? io_unlink(source->dev, path) : 0;
}

int restore_source_clean_up(struct restore_source *source)
{
    char path[LOG_PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/log", source->dir);
    return io_list_dir(source->dev, path, remove_entry, source);
}
