/*
 * txn/archive.h - keeping every finished segment of the log somewhere else.
 *
 *   a segment is finished: full, left (timeout), or the last one of a life --put under its name--> archived --> recycled
 *
 * ARCHIVE-1 Segments are archived in the order of the chain (txn/log_format.h), each whole and durable before it is offered. One that is not
 *           archived is neither reused nor removed, also when the store is closed or killed meanwhile.
 * ARCHIVE-2 What is archived under a name never changes: after a crash a segment may be offered again, with the same bytes.
 * ARCHIVE-3 The first segment of a life is preceded by a link, under the name of the segment in which the life before ended: so whoever follows
 *           the chain by names alone finds it.
 *
 * Names: TTTTTTTT-NNNNNNNNNNNNNNNN, timeline and number of the segment in hexadecimal digits: they sort. A link has ".next" behind it.
 *
 * Locking: archive.lock (LOCK_RANK_LEAF) for the status; all else belongs to the thread that steps.
 */
#ifndef TBLFS_TXN_ARCHIVE_H
#define TBLFS_TXN_ARCHIVE_H

#include "base/diag.h"
#include "base/io.h"
#include "base/types.h"

#define ARCHIVE_NAME_SIZE 32u /* of a segment, a link or a history, with its NUL */

struct archive_target {
    /* Keeps the file `path` under `name`; 0: it is durable there. The same content again is fine, another one is -EEXIST. May take long. */
    int (*put)(void *arg, const char *path, const char *name);
    void *arg;
};

/* A directory as an archive: copied under a temporary name, synced, renamed, the directory synced. */
struct archive_dir {
    struct io_device *dev;
    struct diag *diag;
    const char *dir;
};
/* A put function; arg: a struct archive_dir. Says what is wrong beside the disk. */
int archive_dir_put(void *arg, const char *path, const char *name) WARN_UNUSED;

void archive_segment_name(char name[ARCHIVE_NAME_SIZE], uint32_t timeline, uint64_t number);
void archive_history_name(char name[ARCHIVE_NAME_SIZE], uint32_t timeline);
void archive_link_name(char name[ARCHIVE_NAME_SIZE], uint32_t timeline, uint64_t number);

/* The command with path and name filled in; malloc'd. NULL: no memory. */
char *archive_command_text(const char *command, const char *path, const char *name);

struct archive_status {
    bool configured;
    char last_name[ARCHIVE_NAME_SIZE]; /* archived last in this life; "": none */
    int64_t last_time_ns;
    uint64_t archived, failures; /* of this life */
    uint64_t waiting;            /* finished segments that are not archived */
    char
        failed_name[ARCHIVE_NAME_SIZE]; /* what could not be archived last, "": nothing failed since the last success */
    int failed_rc;
    int64_t failed_time_ns;
    uint64_t switches; /* segments left before they were full */
};

#endif
