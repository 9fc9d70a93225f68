/*
 * tests/unit/txn/test_jobs.c - the list of jobs that are under way.
 */
#include "txn/store_jobs.h"

#include "tests/lib/mem_device.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define DIR "/d"

struct rig {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
};

static int setup(void **state)
{
    static struct rig rig;
    rig = (struct rig){.mem = mem_device_create(1)};
    diag_init_silent(&rig.diag);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(rig.mem), .diag = &rig.diag, .dir = DIR, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    const struct store_options options = {.dev = mem_device_io(rig.mem), .diag = &rig.diag, .dir = DIR};
    assert_int_equal(store_open(&options, &rig.store, NULL), 0);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(store_close(rig->store), 0);
    mem_device_destroy(rig->mem);
    return 0;
}

struct listing {
    char text[256];
};

static int list_job(void *arg, const struct store_job_info *info)
{
    struct listing *listing = arg;
    const size_t length = strlen(listing->text);
    (void)snprintf(listing->text + length, sizeof listing->text - length, "%s %s %llu/%llu %s;", info->kind, info->what,
                   (unsigned long long)info->done, (unsigned long long)info->total, info->unit);
    return 0;
}

static void assert_jobs(struct store *store, const char *expected)
{
    struct listing listing = {.text = ""};
    assert_int_equal(store_each_job(store, list_job, &listing), 0);
    assert_string_equal(listing.text, expected);
}

static void job_while_it_runs_is_listed_with_its_numbers(void **state)
{
    struct store *store = ((struct rig *)*state)->store;
    struct store_job first, second;
    assert_jobs(store, "");
    store_job_begin(store, &first, "map", "blocks", 0, "relation %d", 17);
    store_job_begin(store, &second, "snapshot", "tables", 5, "%s", "monday");
    store_job_add(&second, 2);
    store_job_add(&second, 1);
    assert_jobs(store, "map relation 17 0/0 blocks;snapshot monday 3/5 tables;");
    store_job_set_total(&first, 9);
    store_job_end(&second);
    assert_jobs(store, "map relation 17 0/9 blocks;");
    store_job_end(&first);
    assert_jobs(store, "");
}

static void job_with_a_long_name_is_cut(void **state)
{
    struct store *store = ((struct rig *)*state)->store;
    struct store_job job;
    store_job_begin(store, &job, "map", "blocks", 0, "%0200d", 0);
    assert_int_equal(strlen(job.what), STORE_JOB_WHAT_SIZE - 1);
    store_job_end(&job);
}

static int stop_at_once(void *arg, const struct store_job_info *info)
{
    (void)info;
    ++*(int *)arg;
    return -EINTR;
}

static void each_job_when_fn_fails_stops_there(void **state)
{
    struct store *store = ((struct rig *)*state)->store;
    struct store_job first, second;
    int calls = 0;
    store_job_begin(store, &first, "map", "blocks", 0, "1");
    store_job_begin(store, &second, "map", "blocks", 0, "2");
    assert_int_equal(store_each_job(store, stop_at_once, &calls), -EINTR);
    assert_int_equal(calls, 1);
    store_job_end(&first);
    store_job_end(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(job_while_it_runs_is_listed_with_its_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(job_with_a_long_name_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(each_job_when_fn_fails_stops_there, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
