/*
 * tests/crash/test_planted.c - does the crash harness find bugs? Each bug of base/plant.def is switched on in a process
 * of its own, which runs lives until one of their states is wrong, or the budget is used up: then the harness is blind
 * on that side, and the test fails.
 *
 * PLANTED=NAME tries one bug alone. Without TBLFS_PLANT (make PLANT=1) there is nothing to test.
 */
#include "base/plant.h"
#include "tests/crash/crash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TEST_NAME "crash/test_planted"

#ifdef TBLFS_PLANT

#define RUNS_MAX         40u
#define SECONDS_MAX      40u
#define STATUS_NOT_FOUND 3

/* In the child. */
static _Noreturn void hunt(enum plant plant, uint64_t seed, int report)
{
    struct crash_totals totals = {0};
    char why[CRASH_WHY_BYTES] = "";
    bool good = true;
    plant_choose(plant);
    const struct rlimit limit = {.rlim_cur = SECONDS_MAX, .rlim_max = RLIM_INFINITY};
    (void)setrlimit(RLIMIT_CPU, &limit); /* SIGXCPU: not found */
    alarm(SECONDS_MAX * 4);              /* a hang is a find */
    for (uint64_t i = 0; good && i < RUNS_MAX; i++) {
        struct crash_config config;
        crash_config_draw(i % 2 == 1, seed + i / 2, &config);
        good = crash_run(&config, &totals, why);
    }
    if (!good) {
        const ssize_t put = write(report, why, strlen(why));
        (void)put; /* only for the eye */
    }
    _exit(good ? STATUS_NOT_FOUND : 0);
}

/* What the child found; false: nothing. */
static bool is_found(enum plant plant, uint64_t seed, char *why, size_t capacity)
{
    int ends[2];
    int status = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(null, STDERR_FILENO);
        close(ends[0]);
        hunt(plant, seed, ends[1]);
    }
    close(ends[1]);
    ssize_t got;
    size_t used = 0;
    while ((got = read(ends[0], why + used, capacity - 1 - used)) > 0) {
        used += (size_t)got;
    }
    why[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        (void)snprintf(why, capacity, "it ended by signal %d", WTERMSIG(status));
    }
    return WIFSIGNALED(status) ? WTERMSIG(status) != SIGXCPU : WEXITSTATUS(status) != STATUS_NOT_FOUND;
}

static void planted_bugs_are_found(void **state)
{
    (void)state;
    unsigned tried = 0;
    unsigned found = 0;
    const uint64_t seed = test_seed(TEST_NAME);
    const char *only = getenv("PLANTED");
    for (int plant = PLANT_NONE + 1; plant < PLANT_COUNT; plant++) {
        char why[CRASH_WHY_BYTES];
        const char *name = plant_name((enum plant)plant);
        const bool chosen = only == NULL || *only == '\0'
                                ? !plant_needs_case((enum plant)plant) && plant_program((enum plant)plant) == NULL
                                : strcmp(only, name) == 0;
        if (!chosen) {
            continue;
        }
        const bool caught = is_found((enum plant)plant, seed, why, sizeof why);
        tried++;
        found += caught;
        fprintf(stderr, "%s: %s: %s: %.160s\n", caught ? "caught" : "NOT FOUND", name, plant_text((enum plant)plant),
                why);
    }
    fprintf(stderr, "%u planted bugs, %u caught\n", tried, found);
    assert_int_equal(found, tried);
}

#else

static void planted_bugs_are_found(void **state)
{
    (void)state;
    fprintf(stderr, TEST_NAME ": not built with PLANT=1\n");
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planted_bugs_are_found)};
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
