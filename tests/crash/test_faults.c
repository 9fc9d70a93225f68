/*
 * tests/crash/test_faults.c - calls of the device fail, and nothing that was acknowledged is lost.
 *
 * A life is lived once in health, to count its calls. Then, for a sample of "the nth call of this kind fails with this
 * error, once or for ever", it is lived again with that fault, from the first open on:
 *
 * FAULT-1 It neither crashes nor hangs; what could be read before can be read again once the device is well.
 * FAULT-2 A call that failed left nothing behind, but for the one at which the store became read-only: its record may
 *         be in the log or not.
 * FAULT-3 Opening again on the healthy device, after a kill and after a power cut, finds all that was durable and a
 *         state between operations; after a kill all that was acknowledged, unless a sync had failed.
 * FAULT-4 What that opening found is durable when it returns, also when a failed sync had made it look so before.
 * FAULT-5 A failed sync of a relation file or of the control file makes the store read-only.
 *
 * A failed sync behaves as on ext4 (later syncs succeed, the data never arrive) or as on btrfs (the old data are back).
 * FAULT=scenario:seed:kind:n:error:for_ever replays one. With LONG=1 it goes on for SECONDS_LONG seconds.
 */
#include "tests/crash/crash.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TEST_NAME     "crash/test_faults"
#define OPERATIONS    60u
#define FAULTS_WANTED 2200u

struct kind {
    enum mem_call call;
    int errors[3];
};

static const struct kind kinds[] = {
    {MEM_CALL_OPEN, {EIO, EMFILE, ENOMEM}},
    {MEM_CALL_CLOSE, {EIO}},
    {MEM_CALL_READ, {EIO, ENOMEM}},
    {MEM_CALL_WRITE, {EIO, ENOSPC, EDQUOT}},
    {MEM_CALL_SYNC, {EIO, ENOSPC}},
    {MEM_CALL_SYNC_FILESYSTEM, {EIO}},
    {MEM_CALL_TRUNCATE, {EIO}},
    {MEM_CALL_ALLOCATE, {ENOSPC, EIO, EDQUOT}},
    {MEM_CALL_STAT, {EIO, ENOMEM}},
    {MEM_CALL_LOCK, {EIO}},
    {MEM_CALL_UNLINK, {EIO, EROFS}},
    {MEM_CALL_RENAME, {EIO, ENOSPC}},
    {MEM_CALL_MAKE_DIR, {ENOSPC, EIO}},
    {MEM_CALL_SYNC_DIR, {EIO}},
    {MEM_CALL_LIST_DIR, {EIO, EMFILE}},
    {MEM_CALL_RANDOM, {EIO}},
};

struct fault {
    uint64_t seed;
    enum mem_call call;
    uint64_t nth;
    int error;
    bool for_ever;
    /* while it is tried */
    uint64_t seen;
    uint64_t fired;
    bool off;
    char path[200]; /* where it fired first */
    struct mem_device *mem;
};

struct faults_run {
    struct fault fault;
    struct sim_device *sim;
    struct life life;
    uint64_t acknowledged_op; /* operations up to here that succeeded are in the log file */
    bool undecided;           /* an operation may have happened or not; nothing was done since */
    char why[CRASH_WHY_BYTES];
};

static bool wrong(struct faults_run *run, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool wrong(struct faults_run *run, const char *fmt, ...)
{
    char text[300];
    const struct fault *fault = &run->fault;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)snprintf(run->why, sizeof run->why,
                   "weak:%" PRIu64 ":%d:%" PRIu64 ":%d:%d %s of %s, after operation %" PRIu64 " (%s): %s [%s]",
                   fault->seed, (int)fault->call, fault->nth, fault->error, fault->for_ever, mem_call_name(fault->call),
                   fault->path, run->life.op, run->life.note, text,
                   run->life.diag.lines[(run->life.diag.next + 2) % 3]);
    return false;
}

static int inject(void *arg, const struct mem_event *event)
{
    struct fault *fault = arg;
    if (event->call != fault->call || fault->off) {
        return 0;
    }
    fault->seen++;
    if (fault->seen < fault->nth || (fault->seen > fault->nth && !fault->for_ever)) {
        return 0;
    }
    if (fault->fired++ == 0) {
        (void)snprintf(fault->path, sizeof fault->path, "%s", event->path);
    }
    return -fault->error;
}

/* ---- the life with the fault ---- */

static bool is_in(const struct life *life, uint64_t lower, uint64_t fingerprint)
{
    for (uint64_t i = lower; i <= life->op; i++) {
        if (life->fingerprints[i] == fingerprint) {
            return true;
        }
    }
    return false;
}

/* FAULT-2 */
static bool check_operation(struct faults_run *run)
{
    const struct life *life = &run->life;
    const bool changed = life->fingerprints[life->op] != life->fingerprints[life->op - 1];
    run->undecided |= life->may_have_happened;
    if (life->result == 0) {
        run->acknowledged_op = run->undecided ? run->acknowledged_op : life->op;
        return true;
    }
    return !changed || life->may_have_happened || wrong(run, "it answered %d, but something has changed", life->result);
}

/* The device is well again, for looking only. */
static bool look_again(struct faults_run *run)
{
    struct life *life = &run->life;
    run->fault.off = true;
    const int rc = crash_fingerprint(life->store, &life->fingerprints[life->op]);
    run->fault.off = false;
    return rc == 0 || wrong(run, "the tree cannot be read: %d", rc);
}

static bool operate(struct faults_run *run)
{
    struct life *life = &run->life;
    while (life->op < OPERATIONS && life->store != NULL) {
        const bool readable = life_operate(life);
        if (life->store == NULL) { /* closing or opening again failed */
            life->fingerprints[life->op + 1] = life->fingerprints[life->op];
            return true;
        }
        if ((!readable && !look_again(run)) || !check_operation(run)) {
            return false;
        }
    }
    return true;
}

/* FAULT-5 */
static bool check_read_only(struct faults_run *run)
{
    const struct fault *fault = &run->fault;
    const bool matters = fault->fired > 0 && fault->call == MEM_CALL_SYNC &&
                         (strstr(fault->path, "/rel/") != NULL || strstr(fault->path, "/control") != NULL);
    return !matters || run->life.store == NULL || store_read_only_reason(run->life.store) != NULL ||
           wrong(run, "the store is not read-only");
}

static bool live(struct faults_run *run)
{
    struct life *life = &run->life;
    const int rc = life_begin(life);
    if (life->store == NULL) {
        return rc != 0 || wrong(run, "opening answers 0, but gives no store");
    }
    if (rc != 0 && !look_again(run)) {
        return false;
    }
    const bool good = operate(run) && check_read_only(run);
    if (good && life->store != NULL && run->fault.nth % 3 == 0) {
        const int close_rc = life_close(life);
        life->durable_op = close_rc == 0 ? life->op : life->durable_op;
    }
    return good;
}

/* ---- afterwards ---- */

/* Opens what is on a device and compares. *out_fingerprint: what was found. */
static bool recover(struct faults_run *run, struct io_device *dev, uint64_t lower, const char *after,
                    uint64_t *out_fingerprint)
{
    struct life life;
    bool good = true;
    life_init(&life, dev, 1, 1);
    const int rc = life_begin(&life);
    run->life.diag = life.diag; /* for the report */
    if (rc != 0) {
        good = wrong(run, "opening after %s answers %d", after, rc);
    } else if (atomic_load(&life.diag.diag.damage_count) != life.damage_at_open) {
        good = wrong(run, "damage after %s", after);
    } else if (!is_in(&run->life, lower, life.fingerprints[0])) {
        int64_t op = (int64_t)run->life.op;
        while (op >= 0 && run->life.fingerprints[op] != life.fingerprints[0]) {
            op--;
        }
        good = wrong(run, "the state after %s is that after operation %" PRId64 ", not %" PRIu64 " to %" PRIu64, after,
                     op, lower, run->life.op);
    } else if (store_check(life.store) != 0) {
        good = wrong(run, "store_check after %s", after);
    }
    *out_fingerprint = life.fingerprints[0];
    life_abandon(&life);
    life_free(&life);
    return good;
}

static bool after_power_cut(struct faults_run *run, uint64_t state, const char *after, const uint64_t *only)
{
    const struct sim_profile profile = {.sector_bytes = 512};
    struct sim_cut *cut = sim_cut_create(run->sim, &profile);
    uint64_t hash = 0;
    struct mem_device *mem = sim_cut_build(cut, state, &hash);
    sim_cut_free(cut);
    uint64_t found = 0;
    bool good = recover(run, mem_device_io(mem), run->life.durable_op, after, &found);
    if (good && only != NULL && found != *only) {
        good = wrong(run, "what opening found was not durable");
    }
    mem_device_destroy(mem);
    return good;
}

static bool check_afterwards(struct faults_run *run)
{
    uint64_t found = 0;
    const enum mem_call call = run->fault.call;
    const bool sync_failed = run->fault.fired > 0 && (call == MEM_CALL_SYNC || call == MEM_CALL_SYNC_FILESYSTEM);
    const uint64_t lower = sync_failed ? run->life.durable_op : run->acknowledged_op;
    return after_power_cut(run, 0, "a power cut that lost all it could", NULL) &&
           after_power_cut(run, 1, "a power cut that lost nothing", NULL) &&
           after_power_cut(run, SIM_STATE_RANDOM + run->fault.nth, "a power cut", NULL) &&
           recover(run, sim_device_io(run->sim), lower, "a kill", &found) &&
           after_power_cut(run, 0, "opening and a power cut", &found);
}

/* One life with one fault (nth 0: none). *out_counters: of a life without. */
static bool try_fault(struct faults_run *run, struct mem_counters *out_counters)
{
    struct life *life = &run->life;
    struct mem_device *mem = life_mkfs(run->fault.seed);
    run->sim = sim_device_create(mem);
    sim_device_set_failed_sync(run->sim, run->fault.nth % 2 == 0 ? SIM_FAILED_SYNC_LOST : SIM_FAILED_SYNC_REVERTED);
    mem_device_set_hook(mem, inject, &run->fault);
    life_init(life, sim_device_io(run->sim), run->fault.seed * 3 + 1, OPERATIONS + 1);
    life->transactions = run->fault.seed % 2 == 0;
    bool good = live(run);
    if (good && life->store == NULL && life->op == 0) { /* the state is that after mkfs */
        run->fault.off = true;
        struct mem_device *fresh = life_mkfs(run->fault.seed);
        struct life healthy;
        life_init(&healthy, mem_device_io(fresh), 1, 1);
        good = life_begin(&healthy) == 0;
        life->fingerprints[0] = healthy.fingerprints[0];
        life_abandon(&healthy);
        life_free(&healthy);
        mem_device_destroy(fresh);
    }
    if (out_counters != NULL) {
        mem_device_counters(mem, out_counters);
    }
    life_abandon(life);
    run->fault.off = true;
    good = good && check_afterwards(run);
    mem_device_set_hook(mem, NULL, NULL);
    life_free(life);
    sim_device_destroy(run->sim);
    return good;
}

/* ---- the sample ---- */

struct faults_totals {
    uint64_t tried, fired, read_only;
};

static bool try_one(struct fault fault, struct faults_totals *totals)
{
    struct faults_run run = {.fault = fault};
    const bool good = try_fault(&run, NULL);
    totals->tried++;
    totals->fired += run.fault.fired > 0;
    if (!good) {
        fprintf(stderr, "%s\nreplay with: make check TEST=" TEST_NAME " FAULT=%.*s\n", run.why,
                (int)strcspn(run.why, " "), run.why);
    }
    return good;
}

/* All kinds of failure of one life, each at about `samples` places. */
static bool try_life(uint64_t seed, unsigned samples, struct faults_totals *totals)
{
    struct faults_run healthy = {.fault = {.seed = seed, .call = MEM_CALL_COUNT}};
    struct mem_counters counters;
    struct test_random random;
    test_random_init(&random, seed);
    bool good = try_fault(&healthy, &counters);
    if (!good) {
        fprintf(stderr, "without a fault: %s\n", healthy.why);
    }
    for (unsigned i = 0; good && i < ARRAY_COUNT(kinds); i++) {
        const uint64_t calls = counters.calls[kinds[i].call];
        const uint64_t wanted = calls < samples ? calls : samples;
        for (uint64_t j = 0; good && j < wanted; j++) {
            const uint64_t low = j * calls / wanted;
            const uint64_t nth = low + 1 + test_random_below(&random, (j + 1) * calls / wanted - low);
            for (unsigned k = 0; good && k < 3 && kinds[i].errors[k] != 0; k++) {
                good = try_one((struct fault){.seed = seed,
                                              .call = kinds[i].call,
                                              .nth = nth,
                                              .error = kinds[i].errors[k],
                                              .for_ever = test_random_chance(&random, 40)},
                               totals);
            }
        }
    }
    return good;
}

static bool replay(const char *text, struct faults_totals *totals)
{
    struct fault fault = {0};
    int call = 0;
    int for_ever = 0;
    assert_int_equal(
        sscanf(text, "weak:%" SCNu64 ":%d:%" SCNu64 ":%d:%d", &fault.seed, &call, &fault.nth, &fault.error, &for_ever),
        5);
    fault.call = (enum mem_call)call;
    fault.for_ever = for_ever != 0;
    return try_one(fault, totals);
}

static void failing_call_loses_nothing_acknowledged(void **state)
{
    (void)state;
    struct faults_totals totals = {0};
    bool good = true;
    const char *one = getenv("FAULT");
    if (one != NULL && *one != '\0') {
        assert_true(replay(one, &totals));
        return;
    }
    const time_t start = time(NULL);
    const uint64_t seed = test_seed(TEST_NAME);
    for (uint64_t i = 0; good; i++) {
        if (test_is_long() ? time(NULL) - start >= (time_t)test_long_seconds(300) : totals.fired >= FAULTS_WANTED) {
            break;
        }
        good = try_life(seed + i, 24, &totals);
    }
    fprintf(stderr, "%" PRIu64 " faults, %" PRIu64 " of them met\n", totals.tried, totals.fired);
    assert_true(good);
}

/* Every transfer comes in pieces or is interrupted; nobody notices. */
static void short_transfers_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct life lives[2];
        for (unsigned i = 0; i < 2; i++) {
            struct mem_device *mem = life_mkfs(seed);
            mem_device_set_short_transfers(mem, i == 1);
            life_init(&lives[i], mem_device_io(mem), seed, OPERATIONS);
            lives[i].transactions = seed % 2 == 0;
            assert_int_equal(life_begin(&lives[i]), 0);
            while (lives[i].op < OPERATIONS) {
                assert_true(life_operate(&lives[i]));
            }
            assert_int_equal(store_check(lives[i].store), 0);
            assert_int_equal(life_close(&lives[i]), 0);
            mem_device_destroy(mem);
        }
        assert_memory_equal(lives[0].fingerprints, lives[1].fingerprints,
                            (OPERATIONS + 1) * sizeof lives[0].fingerprints[0]);
        life_free(&lives[0]);
        life_free(&lives[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_call_loses_nothing_acknowledged),
        cmocka_unit_test(short_transfers_change_nothing),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
