/*
 * tests/crash/test_crash.c - random lives, cut off at every sync and killed at a sample of the calls.
 *
 * SEED is the first run's seed, the others follow. CRASH=scenario:seed:point:state replays one state alone,
 * CRASH=scenario:seed one run. With LONG=1 it goes on for SECONDS_LONG seconds.
 */
#include "tests/crash/crash.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TEST_NAME       "crash/test_crash"
#define DISTINCT_WANTED 20000u

static void report(const char *why)
{
    fprintf(stderr, "%s\nreplay with: make check TEST=" TEST_NAME " CRASH=%.*s\n", why, (int)strcspn(why, " ") - 1,
            why);
    fail();
}

static void print_totals(const struct crash_totals *totals)
{
    fprintf(stderr,
            "%" PRIu64 " runs, %" PRIu64 " points, %" PRIu64 " states (%" PRIu64 " distinct, %" PRIu64
            " kills), %" PRIu64 " crashes in recovery, %" PRIu64 " second lives, %" PRIu64 " commits\n",
            totals->runs, totals->points, totals->states, totals->distinct, totals->kills, totals->recovery_crashes,
            totals->second_lives, totals->commits);
}

/* Two tests share the time. */
static bool is_enough(const struct crash_totals *totals, time_t start)
{
    return test_is_long() ? time(NULL) - start >= (time_t)test_long_seconds(600) / 2
                          : totals->distinct >= DISTINCT_WANTED;
}

static void explore(bool transactions)
{
    struct crash_totals totals = {0};
    struct crash_config config;
    char why[CRASH_WHY_BYTES] = "";
    bool good = true;
    const char *replay = getenv("CRASH");
    const time_t start = time(NULL);
    if (replay != NULL && *replay != '\0') {
        assert_true(crash_config_parse(replay, &config));
        good = config.transactions != transactions || crash_run(&config, &totals, why);
    } else {
        const uint64_t seed = test_seed(TEST_NAME);
        for (uint64_t i = 0; good && !is_enough(&totals, start); i++) {
            crash_config_draw(transactions, seed + i, &config);
            good = crash_run(&config, &totals, why);
        }
    }
    print_totals(&totals);
    crash_totals_free(&totals);
    if (!good) {
        report(why);
    }
}

static void store_cut_off_anywhere_recovers_a_prefix(void **state)
{
    (void)state;
    explore(false);
}

static void transactions_cut_off_anywhere_are_whole_or_absent(void **state)
{
    (void)state;
    explore(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_cut_off_anywhere_recovers_a_prefix),
        cmocka_unit_test(transactions_cut_off_anywhere_are_whole_or_absent),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
