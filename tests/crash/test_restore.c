/*
 * tests/crash/test_restore.c - recovery to any moment: a random life with an archive (transactions, snapshots, compaction, kills, clean ends), a
 * base in the middle of it, copied while it goes on; then restores to random moments behind the base, by time, position and commit. What
 * is restored has the fingerprint that the life had then, to the last byte, and is sound.
 *
 * SEED replays a life; with LONG=1 there are more lives and more targets.
 */
#include "tests/crash/history.h"
#include "txn/control.h"
#include "txn/restore.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_NAME "crash/test_restore"
#define NEW_DIR   "/new"

/* ---- restores ---- */

struct attempt {
    struct mem_device *mem; /* a clone */
    struct crash_diag diag;
    struct archive_dir archive;
    struct restore_archive files;
    struct base_source base;
    struct restore_options options;
};

static void attempt_init(struct attempt *attempt, const struct history *history, struct restore_target target)
{
    memset(attempt, 0, sizeof *attempt);
    attempt->mem = mem_device_clone(history->mem);
    crash_diag_init(&attempt->diag);
    struct io_device *dev = mem_device_io(attempt->mem);
    attempt->archive = (struct archive_dir){.dev = dev, .diag = &attempt->diag.diag, .dir = HISTORY_ARCHIVE};
    attempt->files = (struct restore_archive){.get = archive_dir_get, .arg = &attempt->archive, .dir = HISTORY_ARCHIVE};
    attempt->base = (struct base_source){.dev = dev, .dir = HISTORY_BASE};
    attempt->options = (struct restore_options){.dev = dev,
                                                .diag = &attempt->diag.diag,
                                                .dir = NEW_DIR,
                                                .base = &attempt->base,
                                                .base_name = HISTORY_BASE,
                                                .archive = target.until == RESTORE_BASE ? NULL : &attempt->files,
                                                .target = target,
                                                .cache_size_bytes = UINT64_C(16) << 20,
                                                .checkpoint_log_bytes = 100000};
}

static const char *print_attempt(const struct attempt *attempt, char text[200])
{
    const struct restore_target *target = &attempt->options.target;
    (void)snprintf(text, 200, "until %d: time %" PRId64 " lsn %" PRIu64 " name %s", (int)target->until, target->time_ns,
                   target->lsn, target->name != NULL ? target->name : "-");
    return text;
}

static _Noreturn void fail_attempt(const struct history *history, const struct attempt *attempt, const char *what,
                                   int rc)
{
    char text[200];
    for (unsigned i = 0; i < ARRAY_COUNT(attempt->diag.lines); i++) {
        fprintf(stderr, "  %s\n", attempt->diag.lines[(attempt->diag.next + i) % ARRAY_COUNT(attempt->diag.lines)]);
    }
    history_fail(history, "%s: %s: %d", print_attempt(attempt, text), what, rc);
}

/* Opens what was restored, and looks at it: is it the state behind that operation? */
static void look_at_restored(const struct history *history, struct attempt *attempt, uint64_t op)
{
    const struct store_options open = {.dev = attempt->options.dev,
                                       .diag = &attempt->diag.diag,
                                       .dir = NEW_DIR,
                                       .cache_size_bytes = UINT64_C(16) << 20,
                                       .log_segment_size = CRASH_SEGMENT_SIZE};
    struct store *store = NULL;
    uint64_t fingerprint = 0;
    int rc = store_open(&open, &store, NULL);
    if (rc != 0) {
        fail_attempt(history, attempt, "opening what was restored", rc);
    }
    rc = crash_fingerprint(store, &fingerprint);
    if (rc != 0 || fingerprint != history->life.fingerprints[op]) {
        fail_attempt(history, attempt, "not the state behind operation", (int)op);
    }
    rc = store_check(store);
    if (rc != 0) {
        fail_attempt(history, attempt, "store_check", rc);
    }
    rc = store_close(store);
    if (rc != 0) {
        fail_attempt(history, attempt, "store_close", rc);
    }
}

static void restore_to(const struct history *history, uint64_t op, struct restore_target target)
{
    struct attempt attempt;
    struct restore_result result;
    attempt_init(&attempt, history, target);
    const int rc = restore_run(&attempt.options, &result);
    if (rc != 0) {
        fail_attempt(history, &attempt, "restore_run", rc);
    }
    look_at_restored(history, &attempt, op);
    mem_device_destroy(attempt.mem);
}

/* In one of the ways in which that moment can be named. */
static struct restore_target draw_target(struct history *history, uint64_t op)
{
    const struct moment *moment = &history->moments[op];
    if (moment->name[0] != '\0') {
        return (struct restore_target){.until = RESTORE_TXN, .name = moment->name};
    }
    return test_random_chance(&history->random, 50)
               ? (struct restore_target){.until = RESTORE_TIME, .time_ns = moment->time_ns}
               : (struct restore_target){.until = RESTORE_LSN, .lsn = moment->lsn};
}

static void restore_to_random_moments(struct history *history, unsigned targets)
{
    for (unsigned i = 0; i < targets; i++) {
        const uint64_t op = test_random_range(&history->random, history->base_op, HISTORY_OPERATIONS);
        restore_to(history, op, draw_target(history, op));
    }
    restore_to(history, history->base_op, (struct restore_target){.until = RESTORE_BASE});
    restore_to(history, HISTORY_OPERATIONS, (struct restore_target){.until = RESTORE_END});
}

static void restored_tree_is_that_of_any_moment(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(TEST_NAME);
    const unsigned lives = test_is_long() ? 20 : 3;
    for (unsigned i = 0; i < lives; i++) {
        struct history history;
        history_init(&history, TEST_NAME, seed + i * UINT64_C(1000003));
        history_live(&history);
        restore_to_random_moments(&history, test_is_long() ? 20 : 8);
        history_free(&history);
    }
}

/* ---- interrupted ---- */

/* Runs it until nothing fails any more, with a call of the device failing later each time. */
static unsigned restore_with_interruptions(struct history *history, struct attempt *attempt,
                                           struct restore_result *out_result)
{
    static const enum mem_call calls[] = {MEM_CALL_WRITE, MEM_CALL_SYNC, MEM_CALL_READ, MEM_CALL_OPEN, MEM_CALL_RENAME};
    uint64_t nth = 1;
    for (unsigned interruptions = 0;; interruptions++) {
        const enum mem_call call = calls[test_random_below(&history->random, ARRAY_COUNT(calls))];
        mem_device_fail(attempt->mem, call, nth, EIO, false);
        const int rc = restore_run(&attempt->options, out_result);
        mem_device_clear_faults(attempt->mem);
        if (rc == 0) {
            return interruptions;
        }
        if (interruptions > 400) {
            fail_attempt(history, attempt, "it never ends", rc);
        }
        nth += 1 + test_random_below(&history->random, nth / 2 + 2);
    }
}

static void interrupted_restore_goes_on(void **state)
{
    (void)state;
    struct history history;
    history_init(&history, TEST_NAME, test_seed(TEST_NAME) + 17);
    history_live(&history);
    unsigned interruptions = 0;
    for (unsigned i = 0; i < (test_is_long() ? 20u : 4u); i++) {
        const uint64_t op = test_random_range(&history.random, history.base_op, HISTORY_OPERATIONS);
        struct attempt attempt;
        struct restore_result result;
        attempt_init(&attempt, &history, draw_target(&history, op));
        interruptions += restore_with_interruptions(&history, &attempt, &result);
        look_at_restored(&history, &attempt, op);
        mem_device_destroy(attempt.mem);
    }
    assert_true(interruptions > 0);
    history_free(&history);
}

/* ---- refusals ---- */

/* Restores, and it has to answer that. */
static void expect(struct history *history, struct attempt *attempt, int want, const char *message)
{
    struct restore_result result;
    const int rc = restore_run(&attempt->options, &result);
    bool said = message == NULL;
    for (unsigned i = 0; i < ARRAY_COUNT(attempt->diag.lines); i++) {
        said = said || strstr(attempt->diag.lines[i], message) != NULL;
    }
    if (rc != want || !said) {
        fail_attempt(history, attempt, message != NULL ? message : "another answer was wanted", rc);
    }
}

static void expect_new(struct history *history, struct restore_target target, int want, const char *message)
{
    struct attempt attempt;
    attempt_init(&attempt, history, target);
    expect(history, &attempt, want, message);
    mem_device_destroy(attempt.mem);
}

static void what_cannot_be_reached_is_refused(void **state)
{
    (void)state;
    struct history history;
    history_init(&history, TEST_NAME, test_seed(TEST_NAME) + 18);
    history_live(&history);
    const struct moment *before = &history.moments[history.base_op - 10];
    const struct moment *last = &history.moments[HISTORY_OPERATIONS];
    expect_new(&history, (struct restore_target){.until = RESTORE_LSN, .lsn = 1}, -ERANGE, "lies before the base");
    expect_new(&history, (struct restore_target){.until = RESTORE_TIME, .time_ns = before->time_ns}, -ERANGE,
               "lies before the base");
    expect_new(&history, (struct restore_target){.until = RESTORE_LSN, .lsn = last->lsn + (UINT64_C(1) << 40)},
               -ENODATA, "before the target");
    expect_new(&history, (struct restore_target){.until = RESTORE_TXN, .name = "nobody"}, -ENODATA,
               "without a commit of 'nobody'");
    history_free(&history);
}

static void directory_of_another_is_left_alone(void **state)
{
    (void)state;
    struct history history;
    struct attempt attempt;
    struct restore_result result;
    struct io_device *dev;
    history_init(&history, TEST_NAME, test_seed(TEST_NAME) + 19);
    history_live(&history);
    const struct restore_target end = {.until = RESTORE_END};
    attempt_init(&attempt, &history, end);
    dev = attempt.options.dev;
    attempt.options.dir = CRASH_DIR;
    expect(&history, &attempt, -EEXIST, "there is a tblfs data directory already");
    attempt.options.dir = HISTORY_ARCHIVE;
    expect(&history, &attempt, -ENOTEMPTY, "not empty");
    attempt.options.dir = NEW_DIR;
    mem_device_fail(attempt.mem, MEM_CALL_LOCK, 1, EIO, false); /* behind the base, before the replay */
    expect(&history, &attempt, -EIO, NULL);
    const struct store_options open = {
        .dev = dev, .diag = &attempt.diag.diag, .dir = NEW_DIR, .log_segment_size = CRASH_SEGMENT_SIZE};
    struct store *store = NULL;
    assert_int_equal(store_open(&open, &store, NULL), -EUCLEAN);
    attempt.options.target = (struct restore_target){.until = RESTORE_TXN, .name = "other"};
    expect(&history, &attempt, -EINVAL, "begun with another target");
    attempt.options.target = end;
    assert_int_equal(restore_run(&attempt.options, &result), 0);
    assert_true(result.resumed);
    look_at_restored(&history, &attempt, HISTORY_OPERATIONS);
    mem_device_destroy(attempt.mem);
    history_free(&history);
}

/* ---- damage ---- */

struct names {
    char names[600][ARCHIVE_NAME_SIZE];
    unsigned count;
};

static int note_name(void *arg, const char *name, enum io_file_kind kind)
{
    struct names *names = arg;
    (void)kind;
    if (strlen(name) == 25 && names->count < ARRAY_COUNT(names->names)) {
        (void)snprintf(names->names[names->count++], ARCHIVE_NAME_SIZE, "%s", name);
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Segments from where replay begins. */
static void list_needed(struct history *history, struct names *names)
{
    struct names all = {.count = 0};
    char first[ARCHIVE_NAME_SIZE];
    history_must(history, io_list_dir(history->life.dev, HISTORY_ARCHIVE, note_name, &all), "listing the archive");
    archive_segment_name(
        first, 1, history->moments[history->base_op].lsn / CRASH_SEGMENT_SIZE + 2); /* it may be left before the base */
    qsort(all.names, all.count, sizeof all.names[0], compare_names);
    names->count = 0;
    for (unsigned i = 0; i < all.count; i++) {
        if (strcmp(all.names[i], first) > 0) {
            memcpy(names->names[names->count++], all.names[i], ARCHIVE_NAME_SIZE);
        }
    }
}

/* A missing one is named; one byte that is changed is found, or was of no importance. */
static void damaged_archive_is_refused_by_name(void **state)
{
    (void)state;
    struct history history;
    struct names names;
    history_init(&history, TEST_NAME, test_seed(TEST_NAME) + 20);
    history_live(&history);
    list_needed(&history, &names);
    assert_true(names.count > 4);
    unsigned found = 0;
    const unsigned tries = test_is_long() ? 300 : 40;
    for (unsigned i = 0; i < tries; i++) {
        const char *name = names.names[test_random_below(&history.random, names.count - 1)];
        struct attempt attempt;
        struct restore_result result;
        char path[100];
        size_t run = 0;
        struct io_stat stat;
        attempt_init(&attempt, &history, (struct restore_target){.until = RESTORE_END});
        (void)snprintf(path, sizeof path, HISTORY_ARCHIVE "/%s", name);
        history_must(&history, io_stat(attempt.options.dev, path, &stat), "stat of a segment");
        if (i % 4 == 0) {
            history_must(&history, io_unlink(attempt.options.dev, path), "unlink of a segment");
            expect(&history, &attempt, -EIO, "missing");
        } else {
            uint8_t *byte =
                mem_device_file_bytes(attempt.mem, path, test_random_below(&history.random, stat.size_bytes), &run);
            assert_non_null(byte);
            *byte ^= (uint8_t)(1u << test_random_below(&history.random, 8));
            if (restore_run(&attempt.options, &result) == 0) {
                look_at_restored(&history, &attempt, HISTORY_OPERATIONS);
            } else {
                found++;
                bool named = false;
                for (unsigned line = 0; line < ARRAY_COUNT(attempt.diag.lines); line++) {
                    named = named || strstr(attempt.diag.lines[line], name) != NULL;
                }
                if (!named) {
                    fail_attempt(&history, &attempt, name, -EIO);
                }
            }
        }
        mem_device_destroy(attempt.mem);
    }
    assert_true(found > 0);
    history_free(&history);
}

/* ---- a store that is lost ---- */

/* What was not archived when it was killed is in its own log. */
static void archive_and_log_of_a_killed_store_have_all(void **state)
{
    (void)state;
    struct history history;
    struct attempt attempt;
    struct restore_result result;
    history_init(&history, TEST_NAME, test_seed(TEST_NAME) + 21);
    struct life *life = &history.life;
    history_must(&history, life_begin(life), "life_begin");
    history_note_moment(&history, 0);
    while (life->op < HISTORY_OPERATIONS - 50) {
        history_operate(&history);
        if (life->op == 30) {
            history_take_base(&history);
        }
    }
    history.archive.dir = "/nowhere"; /* from here on it cannot be reached */
    while (life->op < HISTORY_OPERATIONS) {
        history_operate(&history);
    }
    life_abandon(life);
    attempt_init(&attempt, &history, (struct restore_target){.until = RESTORE_END});
    attempt.archive.dir = HISTORY_ARCHIVE;
    attempt.files.lost_dir = CRASH_DIR;
    const int rc = restore_run(&attempt.options, &result);
    if (rc != 0) {
        fail_attempt(&history, &attempt, "restore_run", rc);
    }
    look_at_restored(&history, &attempt, HISTORY_OPERATIONS);
    mem_device_destroy(attempt.mem);
    history_free(&history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_tree_is_that_of_any_moment),
        cmocka_unit_test(interrupted_restore_goes_on),
        cmocka_unit_test(what_cannot_be_reached_is_refused),
        cmocka_unit_test(directory_of_another_is_left_alone),
        cmocka_unit_test(damaged_archive_is_refused_by_name),
        cmocka_unit_test(archive_and_log_of_a_killed_store_have_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
