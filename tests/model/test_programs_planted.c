/*
 * tests/model/test_programs_planted.c - do the tests find bugs? For each PLANT_MODEL_BUG of base/plant.def the program that it names
 * is run with the bug switched on. If it does not fail, it is blind on that side, and this test fails.
 *
 * PLANTED=NAME tries one bug alone. Without TBLFS_PLANT (make PLANT=1) there is nothing to test.
 */
#include "base/plant.h"
#include "base/types.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TEST_NAME "model/test_programs_planted"

#ifdef TBLFS_PLANT

#define SECONDS_MAX 120u

/* What only some interleavings of threads show is tried again. */
#define TRIES 3u

/* In the child. */
static _Noreturn void run_program(const char *program, const char *bug)
{
    char path[4096] = "";
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 100);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char *end = strrchr(path, '/');
    if (size > 0 && end != NULL) {
        (void)snprintf(end + 1, 100, "../%s", program);
    }
    (void)dup2(null, STDOUT_FILENO);
    (void)dup2(null, STDERR_FILENO);
    (void)setenv("PLANT_BUG", bug, 1);
    (void)setenv("OPS", "60000", 0); /* test_txn_random */
    alarm(SECONDS_MAX);              /* a hang is a find */
    execl(path, path, (char *)NULL);
    _exit(0); /* could not be run: nothing found */
}

/* Does the program fail with this bug ("": none)? */
static bool is_found_by(const char *program, const char *bug)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run_program(program, bug);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static bool is_found(const char *program, const char *bug)
{
    for (unsigned i = 0; i < TRIES; i++) {
        if (is_found_by(program, bug)) {
            return true;
        }
    }
    return false;
}

/* Is an earlier bug for the same program? */
static bool is_repeated(enum plant plant)
{
    for (int before = PLANT_NONE + 1; before < (int)plant; before++) {
        const char *program = plant_program((enum plant)before);
        if (program != NULL && strcmp(program, plant_program(plant)) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_wanted(enum plant plant)
{
    const char *only = getenv("PLANTED");
    return plant_program(plant) != NULL && (only == NULL || *only == '\0' || strcmp(only, plant_name(plant)) == 0);
}

static void programs_pass_without_a_bug(void **state)
{
    (void)state;
    for (int plant = PLANT_NONE + 1; plant < PLANT_COUNT; plant++) {
        const bool wanted = is_wanted((enum plant)plant) && !is_repeated((enum plant)plant);
        if (wanted && is_found_by(plant_program((enum plant)plant), "")) {
            fail_msg("%s fails without a bug", plant_program((enum plant)plant));
        }
    }
}

static void planted_bugs_are_found(void **state)
{
    (void)state;
    unsigned tried = 0;
    unsigned found = 0;
    for (int i = PLANT_NONE + 1; i < PLANT_COUNT; i++) {
        const enum plant plant = (enum plant)i;
        if (!is_wanted(plant)) {
            continue;
        }
        const bool caught = is_found(plant_program(plant), plant_name(plant));
        tried++;
        found += caught;
        fprintf(stderr, "%s: %s: %s: by %s\n", caught ? "caught" : "NOT FOUND", plant_name(plant), plant_text(plant),
                plant_program(plant));
    }
    fprintf(stderr, "%u planted bugs, %u caught\n", tried, found);
    assert_int_equal(found, tried);
}

#else

static void programs_pass_without_a_bug(void **state)
{
    (void)state;
    skip();
}

static void planted_bugs_are_found(void **state)
{
    (void)state;
    fprintf(stderr, TEST_NAME ": not built with PLANT=1\n");
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_pass_without_a_bug),
        cmocka_unit_test(planted_bugs_are_found),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
