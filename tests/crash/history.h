/*
 * tests/crash/history.h - a random life with an archive (transactions, snapshots, compaction, kills, clean ends), with a base in the middle of
 * it, copied while it goes on; and what the tree was after each of its operations: for tests of what is made of base and archive.
 */
#ifndef TBLFS_TESTS_CRASH_HISTORY_H
#define TBLFS_TESTS_CRASH_HISTORY_H

#include "tests/crash/crash.h"
#include "txn/base.h"

#define HISTORY_OPERATIONS 260u
#define HISTORY_ARCHIVE    "/archive"
#define HISTORY_BASE       "/base"

/* After an operation. */
struct moment {
    int64_t time_ns;
    lsn_no lsn;    /* the last record is not behind it */
    char name[32]; /* of the commit that it was; "": it was none */
};

struct history {
    struct life life;
    struct mem_device *mem;
    struct archive_dir archive;
    struct archive_target target;
    struct test_random random;
    struct moment moments[HISTORY_OPERATIONS + 2]; /* [n]: after operation n */
    uint64_t base_op;
    const char *test_name;
    uint64_t seed;
};

void history_init(struct history *history, const char *test_name, uint64_t seed);
void history_free(struct history *history);
/* All of it; the archive is complete then. */
void history_live(struct history *history);
/* Its parts. */
void history_operate(struct history *history);
void history_take_base(struct history *history);
void history_note_moment(struct history *history, uint64_t commits_before);

/* Fails the test, with the line that replays it. */
_Noreturn void history_fail(const struct history *history, const char *fmt, ...) PRINTF_LIKE(2, 3);
void history_must(const struct history *history, int rc, const char *what);

#endif
