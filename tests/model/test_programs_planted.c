/*
 * tests/model/test_programs_planted.c - do the tests of transactions find bugs? For each PLANT_MODEL_BUG of base/plant.def the
 * programs beside this one are run with the bug switched on, until one of them fails. If none does, the tests are blind on
 * that side, and this one fails.
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

static const char *const programs[] = {"test_archive", "../crash/test_restore", "test_transactions",
                                       "test_list_append_threads", "test_txn_random"};
/* For bugs whose name begins with SIDECAR. */
static const char *const sidecar_programs[] = {"test_sidecars", "test_sidecars_fuzz", "test_sidecars_crash"};

/* In the child. */
static _Noreturn void run_program(const char *program, const char *bug)
{
    char path[4096] = "";
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 100);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char *end = strrchr(path, '/');
    if (size > 0 && end != NULL) {
        (void)snprintf(end + 1, 100, "%s", program);
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

static bool is_found_by_any(const char *const *list, size_t count, const char *bug, const char **out_program)
{
    for (size_t i = 0; i < count; i++) {
        if (is_found_by(list[i], bug)) {
            *out_program = list[i];
            return true;
        }
    }
    return false;
}

static bool is_found(const char *bug, const char **out_program)
{
    const bool about_sidecars = strncmp(bug, "SIDECAR", strlen("SIDECAR")) == 0;
    if (about_sidecars || bug[0] == '\0') {
        if (is_found_by_any(sidecar_programs, ARRAY_COUNT(sidecar_programs), bug, out_program)) {
            return true;
        }
    }
    return !about_sidecars && is_found_by_any(programs, ARRAY_COUNT(programs), bug, out_program);
}

static void programs_pass_without_a_bug(void **state)
{
    (void)state;
    const char *program = "none";
    if (is_found("", &program)) {
        fail_msg("%s fails without a bug", program);
    }
}

static void planted_bugs_are_found(void **state)
{
    (void)state;
    unsigned tried = 0;
    unsigned found = 0;
    const char *only = getenv("PLANTED");
    for (int plant = PLANT_NONE + 1; plant < PLANT_COUNT; plant++) {
        const char *name = plant_name((enum plant)plant);
        const char *program = "none";
        if (!plant_needs_model((enum plant)plant) || (only != NULL && *only != '\0' && strcmp(only, name) != 0)) {
            continue;
        }
        const bool caught = is_found(name, &program);
        tried++;
        found += caught;
        fprintf(stderr, "%s: %s: %s: by %s\n", caught ? "caught" : "NOT FOUND", name, plant_text((enum plant)plant),
                program);
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
