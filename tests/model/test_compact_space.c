/*
 * tests/model/test_compact_space.c - a table of constant size that is changed again and again: its file does not grow without bound, and a scan of it
 * needs hardly more read calls than one of a fresh copy.
 *
 * 100,000 cycles of overwriting a piece, cutting the end off and appending it anew, and now and then writing all of it again, with checkpoints in
 * between. Tables that lie badly are compacted by store_step when they are quiet (txn/store_compact_auto.c). SEED and OPS come from the environment.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store_int.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME        "model/test_compact_space"
#define TABLE_BLOCKS     1000u
#define TABLE_BYTES      ((size_t)TABLE_BLOCKS * PAGE_PAYLOAD_SIZE)
#define CYCLES_DEFAULT   100000u
#define CHECKPOINT_EVERY 400u
#define QUIET_EVERY      10000u
#define QUIET_MS         5u
#define SCAN_BYTES       (1u << 20)

struct space_test {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    struct test_random random;
    uint8_t *bytes;           /* what the table has to hold */
    uint64_t largest_percent; /* of the file, of what is live, at quiet checkpoints */
};

static uint64_t below(struct space_test *test, uint64_t limit)
{
    return test_random_below(&test->random, limit);
}

static void open_store(struct space_test *test)
{
    const struct store_options options = {.dev = mem_device_io(test->mem),
                                          .diag = &test->diag,
                                          .dir = "/data",
                                          .cache_size_bytes = UINT64_C(64) << 20,
                                          .compact_auto = true,
                                          .compact_quiet_ms = QUIET_MS};
    assert_int_equal(store_open(&options, &test->store, NULL), 0);
}

static struct store_file *open_table(struct space_test *test, const char *name)
{
    const struct store_name table = {name, strlen(name)};
    struct store_file *file = NULL;
    struct store_attr attr;
    if (store_lookup(test->store, store_live(test->store), INO_ROOT, table, &attr) != 0) {
        assert_int_equal(store_create(test->store, store_live(test->store), INO_ROOT, table, S_IFREG | 0644, 0,
                                      (struct store_who){0, 0}, &attr),
                         0);
    }
    assert_int_equal(store_file_open(test->store, store_live(test->store), attr.ino, &file), 0);
    return file;
}

static void write_at(struct space_test *test, struct store_file *file, size_t offset, size_t size)
{
    uint64_t end = 0;
    for (size_t done = 0; done < size;) {
        const size_t step = size - done < SCAN_BYTES ? size - done : SCAN_BYTES;
        assert_int_equal(store_write(file, offset + done, test->bytes + offset + done, step, 0, &end), 0);
        done += step;
    }
}

/* ---- cycles ---- */

static void overwrite(struct space_test *test, struct store_file *file)
{
    const size_t size = (size_t)(1 + below(test, below(test, 10) == 0 ? 50000 : 300));
    const size_t offset = (size_t)below(test, TABLE_BYTES - size);
    test_random_bytes(&test->random, test->bytes + offset, size);
    write_at(test, file, offset, size);
}

static void cut_and_append(struct space_test *test, struct store_file *file)
{
    const size_t offset = TABLE_BYTES - (size_t)(1 + below(test, 200000));
    assert_int_equal(store_file_resize(file, offset, 0), 0);
    test_random_bytes(&test->random, test->bytes + offset, TABLE_BYTES - offset);
    write_at(test, file, offset, TABLE_BYTES - offset);
}

static void write_all(struct space_test *test, struct store_file *file)
{
    assert_int_equal(store_file_resize(file, 0, 0), 0);
    write_at(test, file, 0, TABLE_BYTES);
}

static void cycle(struct space_test *test, struct store_file *file)
{
    const uint64_t luck = below(test, 5000);
    if (luck == 0) {
        write_all(test, file);
    } else if (luck < 250) {
        cut_and_append(test, file);
    } else {
        overwrite(test, file);
    }
}

/* ---- quiet ---- */

static void be_quiet(struct space_test *test)
{
    uint64_t end = 0;
    mem_device_advance_ns(test->mem, 2 * QUIET_MS * UINT64_C(1000000));
    store_step(test->store);
    struct store_file *other = open_table(test, "other");
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(store_write(other, 0, "x", 1, 0, &end), 0); /* else there is nothing to do for a checkpoint */
        assert_int_equal(store_checkpoint(test->store), 0);
    }
    store_file_close(other);
}

/* Of all files of relations. */
static uint64_t relation_blocks(struct space_test *test)
{
    struct store_shape shape;
    struct store_file *file = open_table(test, "table");
    assert_int_equal(store_file_get_shape(file, &shape), 0);
    store_file_close(file);
    return shape.file_blocks;
}

static void look_at_space(struct space_test *test)
{
    be_quiet(test);
    const uint64_t percent = relation_blocks(test) * 100 / TABLE_BLOCKS;
    test->largest_percent = percent > test->largest_percent ? percent : test->largest_percent;
    assert_true(percent < 220);
    assert_int_equal(store_check(test->store), 0);
}

/* ---- scan ---- */

static uint64_t scan(struct space_test *test, const char *name)
{
    struct bufcache_stats before;
    struct bufcache_stats after;
    uint8_t *bytes = malloc(SCAN_BYTES);
    struct store_file *file = open_table(test, name);
    size_t size = 1;
    assert_non_null(bytes);
    bufcache_get_stats(store_cache(test->store), &before);
    for (size_t at = 0; size > 0; at += size) {
        assert_int_equal(store_read(file, at, bytes, SCAN_BYTES, &size), 0);
        assert_memory_equal(bytes, test->bytes + at, size);
    }
    bufcache_get_stats(store_cache(test->store), &after);
    store_file_close(file);
    free(bytes);
    assert_true(after.pages_read - before.pages_read >= TABLE_BLOCKS);
    return after.read_calls - before.read_calls;
}

static void reopen(struct space_test *test)
{
    assert_int_equal(store_close(test->store), 0);
    open_store(test);
}

static void compare_scans(struct space_test *test)
{
    struct store_file *fresh = open_table(test, "fresh");
    write_at(test, fresh, 0, TABLE_BYTES);
    store_file_close(fresh);
    reopen(test);
    const uint64_t calls = scan(test, "table");
    const uint64_t fresh_calls = scan(test, "fresh");
    fprintf(stderr,
            "largest file %" PRIu64 " %% of what is live; %" PRIu64 " read calls, %" PRIu64 " of a fresh copy\n",
            test->largest_percent, calls, fresh_calls);
    assert_true(calls * 10 <= fresh_calls * 13);
}

static void table_changed_for_long_stays_small_and_in_order(void **state)
{
    (void)state;
    struct space_test test = {.mem = mem_device_create(1), .bytes = malloc(TABLE_BYTES)};
    const char *text = getenv("OPS");
    const uint64_t cycles = text != NULL ? strtoull(text, NULL, 10) : CYCLES_DEFAULT;
    assert_non_null(test.bytes);
    diag_init_stderr(&test.diag, DIAG_WARNING);
    test_random_init(&test.random, test_seed(TEST_NAME));
    test_random_bytes(&test.random, test.bytes, TABLE_BYTES);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(test.mem), .diag = &test.diag, .dir = "/data", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(&test);
    struct store_file *file = open_table(&test, "table");
    write_all(&test, file);
    for (uint64_t i = 1; i <= cycles; i++) {
        cycle(&test, file);
        if (i % CHECKPOINT_EVERY == 0) {
            assert_int_equal(store_checkpoint(test.store), 0);
        }
        if (i % QUIET_EVERY == 0) {
            look_at_space(&test);
        }
    }
    look_at_space(&test);
    store_file_close(file);
    compare_scans(&test);
    assert_int_equal(store_close(test.store), 0);
    mem_device_destroy(test.mem);
    free(test.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(table_changed_for_long_stays_small_and_in_order)};
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
