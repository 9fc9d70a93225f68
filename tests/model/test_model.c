/*
 * tests/model/test_model.c - the store against the reference model: 1,000,000 random operations.
 *
 * Four rigs (small and large cache; names hashed to 4 and to 47 bits) share them. In between, at random: checkpoints
 * (before and behind each the device is cloned, recovered and compared), clean close and reopen, kill and reopen (what
 * was acknowledged is there), comparison of the whole tree, store_check; tables are compacted meanwhile, step by step. SEED, OPS (operations of each rig) and CHECK
 * (store_check every so many operations, to find the one that broke something) come from the environment.
 */
#include "tests/model/rig.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define OPERATIONS_DEFAULT 250000u
#define TEST_NAME          "test_model"

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* One in `interval` times. */
static bool now_and_then(struct rig *rig, uint64_t interval)
{
    return test_random_below(&rig->random, interval) == 0;
}

static void interrupt(struct rig *rig)
{
    if (now_and_then(rig, 2000)) {
        rig_checkpoint(rig);
    }
    if (now_and_then(rig, 3000)) {
        rig_compare(rig);
    }
    if (now_and_then(rig, 6000)) {
        rig_check_store(rig);
    }
    if (now_and_then(rig, 15000)) {
        rig_reopen(rig);
    }
    if (now_and_then(rig, rig->compact != NULL ? 3 : 400)) {
        rig_compact(rig);
    }
    if (now_and_then(rig, 15000)) {
        rig_kill_and_reopen(rig);
    }
}

static void run(uint64_t cache_size_bytes, uint8_t name_hash_bits)
{
    const struct rig_config config = {
        .test_name = TEST_NAME,
        .seed = test_seed(TEST_NAME),
        .salt = cache_size_bytes + name_hash_bits,
        .cache_size_bytes = cache_size_bytes,
        .max_file_bytes = 1u << 20,
        .max_total_bytes = 3u << 20,
        .max_inodes = 300,
        .log_segment_size = name_hash_bits == 4 ? 64u << 10 : 0, /* many segments, or one */
        .name_hash_bits = name_hash_bits,
    };
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, &config);
    const uint64_t count = number_from("OPS", test_is_long() ? 10 * OPERATIONS_DEFAULT : OPERATIONS_DEFAULT);
    const uint64_t check_interval = number_from("CHECK", UINT64_MAX);
    for (uint64_t i = 1; i <= count; i++) {
        rig_operate(rig);
        if (i % check_interval == 0) {
            rig_check_store(rig);
        }
        interrupt(rig);
    }
    rig_compare(rig);
    rig_check_store(rig);
    rig_reopen(rig);
    rig_check_store(rig);
    assert_true(rig->cloned_records > 0);
    fprintf(stderr, "%" PRIu64 " tables compacted, %" PRIu64 " left alone, %" PRIu64 " cut off\n", rig->compacted,
            rig->compact_gave_way, rig->abandoned);
    assert_true(rig->compacted > 0);
    rig_destroy(rig);
    free(rig);
}

static void store_with_small_cache_behaves_as_model(void **state)
{
    (void)state;
    run(RIG_CACHE_SMALL, 47);
}

static void store_with_small_cache_and_colliding_names_behaves_as_model(void **state)
{
    (void)state;
    run(RIG_CACHE_SMALL, 4);
}

static void store_with_large_cache_behaves_as_model(void **state)
{
    (void)state;
    run(64u << 20, 47);
}

static void store_with_large_cache_and_colliding_names_behaves_as_model(void **state)
{
    (void)state;
    run(64u << 20, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_with_small_cache_behaves_as_model),
        cmocka_unit_test(store_with_small_cache_and_colliding_names_behaves_as_model),
        cmocka_unit_test(store_with_large_cache_behaves_as_model),
        cmocka_unit_test(store_with_large_cache_and_colliding_names_behaves_as_model),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
