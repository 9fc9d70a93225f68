/*
 * tests/unit/base/test_mem_device_threads.c - several threads use one device in memory.
 *
 * Each thread has files of its own and writes its own stripe of a shared one; counters and contents add up.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define THREADS 4u
#define ROUNDS  300u
#define STRIPE  100u

struct worker {
    pthread_t thread;
    struct mem_device *mem;
    struct io_file *shared;
    uint64_t seed;
    unsigned index;
    unsigned failures; /* calls that did not do as expected */
};

/* A file that is made, written, renamed, read and removed again. */
static void live_through_a_file(struct worker *worker)
{
    struct io_device *dev = mem_device_io(worker->mem);
    char path[32];
    char renamed[32];
    char back[6];
    size_t got = 0;
    struct io_file *file;
    snprintf(path, sizeof path, "/d/%u", worker->index);
    snprintf(renamed, sizeof renamed, "/d/%u-renamed", worker->index);
    if (io_open(dev, path, IO_READ_WRITE | IO_CREATE | IO_EXCLUSIVE, &file) < 0) {
        worker->failures++;
        return;
    }
    worker->failures += io_write_full(file, "stripe", 6, 0) < 0;
    worker->failures += io_rename(dev, path, renamed) < 0;
    worker->failures += io_read_full(file, back, 6, 0, &got) < 0 || got != 6 || memcmp(back, "stripe", 6) != 0;
    worker->failures += io_sync(file) < 0;
    worker->failures += io_close(file) < 0;
    worker->failures += io_unlink(dev, renamed) < 0;
}

static void write_own_stripe(struct worker *worker, unsigned round)
{
    uint8_t bytes[STRIPE];
    memset(bytes, (int)(worker->index + 1), sizeof bytes);
    const uint64_t offset = ((uint64_t)round * THREADS + worker->index) * STRIPE;
    worker->failures += io_write_full(worker->shared, bytes, sizeof bytes, offset) < 0;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct test_random random;
    uint8_t bytes[8];
    test_random_init(&random, worker->seed);
    for (unsigned round = 0; round < ROUNDS; round++) {
        write_own_stripe(worker, round);
        if (test_random_chance(&random, 50))
            live_through_a_file(worker);
        if (test_random_chance(&random, 10))
            mem_device_advance_ns(worker->mem, 1000);
        (void)io_monotonic_ns(mem_device_io(worker->mem));
        worker->failures += io_random(mem_device_io(worker->mem), bytes, sizeof bytes) < 0;
    }
    return NULL;
}

static void assert_stripes(struct io_file *shared)
{
    for (unsigned index = 0; index < ROUNDS * THREADS; index++) {
        uint8_t bytes[STRIPE];
        size_t got;
        assert_int_equal(io_read_full(shared, bytes, STRIPE, (uint64_t)index * STRIPE, &got), 0);
        assert_int_equal(got, STRIPE);
        for (unsigned at = 0; at < STRIPE; at++)
            assert_int_equal(bytes[at], index % THREADS + 1);
    }
}

static void threads_on_one_device_do_not_disturb_each_other(void **state)
{
    struct worker workers[THREADS];
    struct mem_counters counters;
    (void)state;
    const uint64_t seed = test_seed("unit/base/test_mem_device_threads");
    struct mem_device *mem = mem_device_create(seed);
    struct io_file *shared;
    mem_device_set_short_transfers(mem, true);
    assert_int_equal(io_make_dir(mem_device_io(mem), "/d"), 0);
    assert_int_equal(io_open(mem_device_io(mem), "/shared", IO_READ_WRITE | IO_CREATE, &shared), 0);
    for (unsigned index = 0; index < THREADS; index++) {
        workers[index] = (struct worker){.mem = mem, .shared = shared, .seed = seed + index, .index = index};
        assert_int_equal(pthread_create(&workers[index].thread, NULL, work, &workers[index]), 0);
    }
    for (unsigned index = 0; index < THREADS; index++) {
        assert_int_equal(pthread_join(workers[index].thread, NULL), 0);
        assert_int_equal(workers[index].failures, 0);
    }
    mem_device_counters(mem, &counters);
    assert_int_equal(counters.calls[MEM_CALL_RANDOM], THREADS * ROUNDS);
    assert_int_equal(counters.calls[MEM_CALL_OPEN], counters.calls[MEM_CALL_UNLINK] + 1);
    assert_true(counters.written_bytes >= (uint64_t)THREADS * ROUNDS * STRIPE);
    assert_int_equal(counters.open_files, 1);
    assert_stripes(shared);
    assert_int_equal(io_close(shared), 0);
    mem_device_destroy(mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_on_one_device_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
