/*
 * tests/crash/crash.h - the crash harness: lives of a store on a simulated disk, fingerprints, verification.
 *
 * A *life* is a store driven by random operations that follow from a seed; after each operation the fingerprint of the
 * whole tree is kept. A run lives twice: once to learn the fingerprints, once with a hook that builds, at each call of
 * the device where it may matter, the states that a power cut or a kill would leave, and verifies each of them.
 *
 * CRASH-1 What was acknowledged as durable (power cut) or acknowledged at all (kill) is there after recovery.
 * CRASH-2 The recovered state is that after some prefix of the operations: its fingerprint is one of theirs. What is done in
 *         a transaction changes none until it is closed, so each transaction is there whole or not at all.
 * CRASH-3 store_check finds nothing, nothing was reported as damaged.
 * CRASH-4 Recovering once more changes no relation file and no fingerprint.
 * CRASH-5 No inode, relation, epoch or log segment number is used by two lives.
 *
 * Nothing here knows cmocka: functions answer true when all was well, else `why` says what was not.
 */
#ifndef TBLFS_TESTS_CRASH_CRASH_H
#define TBLFS_TESTS_CRASH_CRASH_H

#include "tests/lib/sim_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#define CRASH_DIR          "/data"
#define CRASH_SEGMENT_SIZE 32768u
#define CRASH_WHY_BYTES    2048

/* Keeps the last lines instead of printing them. */
struct crash_diag {
    struct diag diag;
    char lines[3][300];
    unsigned next;
};
void crash_diag_init(struct crash_diag *diag);

/* ---- fingerprints ---- */

/* Of names, attributes, contents, link targets and extended attributes of the live tree and of each named snapshot. 0 or
 * negative errno. */
int crash_fingerprint(struct store *store, uint64_t *out_fingerprint);
/* The same, with another view instead of the live tree. */
int crash_fingerprint_view(struct store *store, struct view *view, uint64_t *out_fingerprint);

/* ---- lives ---- */

#define LIFE_HANDLES      4
#define LIFE_HOLDERS      2
#define LIFE_TRANSACTIONS 2
#define LIFE_DATA         800000u
#define LIFE_BULK         524288u /* from this size on the log refers to pages */

/* A tree that operations go to: the live one, or a transaction's. */
struct life_lane {
    struct view *view;
    struct store_txn *txn; /* NULL: the live tree, or none */
    struct store_file *handles[LIFE_HANDLES];
};

struct life {
    struct io_device *dev;
    struct crash_diag diag;
    struct store *store;
    struct test_random random;
    struct life_lane lanes[1 + LIFE_TRANSACTIONS]; /* the first is the live tree */
    struct life_lane *lane;                        /* of the operation under way */
    struct holder *holders[LIFE_HOLDERS];
    struct store_compact *compact; /* of a table of the live tree, under way; NULL: none */
    uint8_t *data;                 /* LIFE_DATA random bytes, NULL: not made yet */
    uint64_t *fingerprints;        /* [0]: when it began, [n]: after operation n */
    uint64_t operations_max;
    uint64_t op;                          /* operations done */
    uint64_t durable_op;                  /* as many of them are surely durable */
    bool operating;                       /* operation op + 1 is under way */
    int result;                           /* of the last operation */
    bool may_have_happened;               /* it failed when it was already in the log */
    uint64_t damage_at_open;              /* reported by recovery: pages that a torn record refers to are looked for */
    bool bulk;                            /* now and then an append that the log refers to (COW-4) */
    bool transactions;                    /* they are begun, filled and closed beside the live operations */
    uint64_t commits;                     /* acknowledged, of those that changed something */
    bool stays_open;                      /* no clean close in between */
    const struct archive_target *archive; /* of its log; NULL: none */
    ino_no largest_ino;
    epoch_no epoch;
    char note[120]; /* the operation under way */
};

void life_init(struct life *life, struct io_device *dev, uint64_t seed, uint64_t operations_max);
void life_free(struct life *life);
/* Makes an empty store on a new device. */
struct mem_device *life_mkfs(uint64_t seed);
int life_open(struct life *life) WARN_UNUSED;
/* As open, and the state found is fingerprint 0. */
int life_begin(struct life *life) WARN_UNUSED;
/* One operation. False: the tree could not be read any more. */
bool life_operate(struct life *life);
/* Clean close. */
int life_close(struct life *life) WARN_UNUSED;
/* As a kill. */
void life_abandon(struct life *life);

/* ---- runs ---- */

struct crash_config {
    const char *scenario;
    uint64_t seed;
    uint64_t operations;
    bool bulk;
    bool transactions;
    struct sim_profile profile;
    unsigned states_per_point;
    unsigned kill_percent; /* of the calls */
    unsigned deep_percent; /* of the states: crash in recovery, second life */
    uint64_t only_point;   /* 0: all */
    uint64_t only_state;   /* with only_point */
};

struct crash_totals {
    uint64_t runs, points, states, distinct, kills, recovery_crashes, second_lives, commits;
    uint64_t *seen; /* hashes of states, open addressing */
    uint64_t seen_capacity;
};

/* The scenario with this name and seed. False: no such scenario. */
bool crash_config_make(const char *scenario, uint64_t seed, struct crash_config *out_config);
/* One that the seed chooses, with transactions or without. */
void crash_config_draw(bool transactions, uint64_t seed, struct crash_config *out_config);
/* True: all states were right. Else why (CRASH_WHY_BYTES) begins with scenario:seed:point:state. */
bool crash_run(const struct crash_config *config, struct crash_totals *totals, char *why);
/* Parses scenario:seed:point:state. */
bool crash_config_parse(const char *text, struct crash_config *out_config);
void crash_totals_free(struct crash_totals *totals);

#endif
