/*
 * tests/model/test_txn_planted.c - do the cases of tests/model/txn_cases.h find the bugs that they are for? Each is run in a process of its
 * own, as it is and with its bug planted: it has to pass, and to fail.
 *
 * PLANTED=NAME tries one bug alone, and shows what the case says. Without TBLFS_PLANT (make PLANT=1) there is nothing to test.
 */
#include "base/plant.h"
#include "tests/model/map_cases.h"
#include "tests/model/txn_cases.h"
#include "tests/model/txn_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TEST_NAME "model/test_txn_planted"

#ifdef TBLFS_PLANT

#define SECONDS_MAX   60u
#define STATUS_FAILED 3

static const struct planted_case {
    enum plant plant;
    struct CMUnitTest test;
} cases[] = {
#define PLANTED_CASE(plant, name) {PLANT_##plant, TXN_RIG_CASE(name)},
    TXN_CASES(PLANTED_CASE) MAP_CASES(PLANTED_CASE)
#undef PLANTED_CASE
};

/* In the child, which does not come back to the case that forked it. */
static _Noreturn void run_case(const struct planted_case *planted, enum plant plant, bool shown)
{
    const int output = shown ? STDERR_FILENO : open("/dev/null", O_WRONLY | O_CLOEXEC);
    const struct CMUnitTest tests[] = {planted->test};
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
    alarm(SECONDS_MAX);
    plant_choose(plant);
    _exit(cmocka_run_group_tests_name("planted", tests, NULL, NULL) != 0 ? STATUS_FAILED : 0);
}

enum verdict { PASSES, FAILS, HANGS };

static enum verdict verdict_of(const struct planted_case *planted, enum plant plant, bool shown)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run_case(planted, plant, shown);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        return WTERMSIG(status) == SIGALRM ? HANGS : FAILS;
    }
    return WEXITSTATUS(status) == 0 ? PASSES : FAILS;
}

static void planted_bugs_are_found_by_their_cases(void **state)
{
    (void)state;
    unsigned wrong = 0;
    const char *only = getenv("PLANTED");
    const bool shown = only != NULL && *only != '\0';
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const enum plant plant = cases[i].plant;
        if (shown && strcmp(only, plant_name(plant)) != 0) {
            continue;
        }
        const bool good = verdict_of(&cases[i], PLANT_NONE, shown) == PASSES;
        const bool caught = verdict_of(&cases[i], plant, shown) == FAILS;
        wrong += !good || !caught;
        fprintf(stderr, "%s: %s: %s: %s\n",
                !good    ? "FAILS WITHOUT IT"
                : caught ? "caught"
                         : "NOT FOUND",
                plant_name(plant), plant_text(plant), cases[i].test.name);
    }
    assert_int_equal(wrong, 0);
}

/* Whatever is said to need a case has one. */
static void bugs_that_need_a_case_have_one(void **state)
{
    (void)state;
    for (int plant = PLANT_NONE + 1; plant < PLANT_COUNT; plant++) {
        bool has_case = !plant_needs_case((enum plant)plant);
        for (size_t i = 0; i < ARRAY_COUNT(cases) && !has_case; i++) {
            has_case = (int)cases[i].plant == plant;
        }
        if (!has_case) {
            fprintf(stderr, "%s has no case\n", plant_name((enum plant)plant));
        }
        assert_true(has_case);
    }
}

#else

static void planted_bugs_are_found_by_their_cases(void **state)
{
    (void)state;
    fprintf(stderr, TEST_NAME ": not built with PLANT=1\n");
    skip();
}

static void bugs_that_need_a_case_have_one(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_bugs_are_found_by_their_cases),
        cmocka_unit_test(bugs_that_need_a_case_have_one),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
