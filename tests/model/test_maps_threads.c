/*
 * tests/model/test_maps_threads.c - free maps are built by the store's own thread while others write the tables, in the live tree and in
 * transactions, take and drop snapshots, and take checkpoints. Then the maps are what the trees are, and so again behind a kill.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME  "test_maps_threads"
#define DIR_PATH   "/data"
#define TABLES     4u
#define LEAVES     60u
#define LEAF_BYTES ((uint64_t)PAGE_PAYLOAD_SIZE)
#define LIVES      4u
#define WRITES     150u /* of each writer in a life */
#define SNAPSHOTS  12u  /* taken and dropped in a life */

struct maps_test {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    uint64_t seed;
    ino_no tables[TABLES];
    atomic_uint failures;
};

struct worker {
    struct maps_test *test;
    unsigned number;
    uint64_t seed;
};

static void must(struct maps_test *test, int rc, const char *what)
{
    if (rc != 0 && atomic_fetch_add(&test->failures, 1) < 10) {
        (void)fprintf(stderr, "%s: %s answers %d\n", TEST_NAME, what, rc);
    }
}

static struct store_name name_of(const char *text)
{
    return (struct store_name){.bytes = text, .size = strlen(text)};
}

static void open_store(struct maps_test *test)
{
    const struct store_options options = {.dev = mem_device_io(test->mem),
                                          .diag = &test->diag,
                                          .dir = DIR_PATH,
                                          .background = true,
                                          .bulk_min_bytes = 8 * BLOCK_SIZE,
                                          .checkpoint_interval_ms = 20};
    assert_int_equal(store_open(&options, &test->store, NULL), 0);
}

static void write_leaves(struct maps_test *test, struct view *view, unsigned table, uint64_t leaf, uint64_t leaves)
{
    struct store_file *file = NULL;
    uint64_t end = 0;
    uint8_t *bytes = calloc(leaves, LEAF_BYTES);
    int rc = store_file_open(test->store, view, test->tables[table], &file);
    must(test, rc, "open");
    if (rc == 0) {
        must(test, store_write(file, leaf * LEAF_BYTES, bytes, leaves * LEAF_BYTES, 0, &end), "write");
        store_file_close(file);
    }
    free(bytes);
}

static void write_somewhere(struct maps_test *test, struct view *view, unsigned table, struct test_random *random)
{
    const uint64_t leaves = test_random_range(random, 1, 12);
    write_leaves(test, view, table, test_random_below(random, LEAVES - leaves), leaves);
}

/* Writes its own table in the live tree; now and then the next one's in a transaction, which is aborted. */
static void *write_tables(void *arg)
{
    const struct worker *worker = arg;
    struct maps_test *test = worker->test;
    struct test_random random;
    test_random_init(&random, worker->seed);
    for (unsigned i = 0; i < WRITES; i++) {
        write_somewhere(test, store_live(test->store), worker->number, &random);
        if (i % 10 == 0) {
            const struct store_txn_options options = {.name = name_of("t")};
            struct store_txn *txn = NULL;
            must(test, store_txn_begin(test->store, &options, &txn), "begin");
            write_somewhere(test, store_txn_view(txn), (worker->number + 1) % TABLES, &random);
            write_somewhere(test, store_txn_view(txn), (worker->number + 1) % TABLES, &random);
            store_txn_abort(txn);
            store_txn_put(txn);
        }
    }
    return NULL;
}

/* Those of the life before go as well: what they saw is put in doubt. */
static void *take_snapshots(void *arg)
{
    const struct worker *worker = arg;
    struct maps_test *test = worker->test;
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "s%u", i % 4);
        const int rc = store_snapshot_drop(test->store, name_of(name));
        must(test, rc == -ENOENT ? 0 : rc, "drop");
        must(test, store_checkpoint(test->store), "checkpoint");
        must(test, store_snapshot_create(test->store, name_of(name)), "snapshot");
    }
    return NULL;
}

static void run_life(struct maps_test *test, unsigned life)
{
    struct worker workers[TABLES + 1];
    pthread_t threads[TABLES + 1];
    for (unsigned i = 0; i <= TABLES; i++) {
        workers[i] = (struct worker){.test = test, .number = i, .seed = test->seed * 100 + life * 10 + i};
        assert_int_equal(pthread_create(&threads[i], NULL, i < TABLES ? write_tables : take_snapshots, &workers[i]), 0);
    }
    for (unsigned i = 0; i <= TABLES; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&test->failures), 0);
    assert_int_equal(store_check(test->store), 0); /* beside builds that are still under way */
}

static void wait_until_built(struct maps_test *test, struct store_stats *out_stats)
{
    do {
        sched_yield();
        store_get_stats(test->store, out_stats);
    } while (out_stats->maps_waiting > 0);
    assert_int_equal(out_stats->maps_failed, 0);
}

static void maps_built_beside_writers_equal_the_trees(void **state)
{
    struct maps_test *test = calloc(1, sizeof *test);
    uint64_t built = 0;
    (void)state;
    assert_non_null(test);
    test->seed = test_seed(TEST_NAME);
    test->mem = mem_device_create(test->seed);
    diag_init_stderr(&test->diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(test->mem), .diag = &test->diag, .dir = DIR_PATH, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(test);
    for (unsigned i = 0; i < TABLES; i++) {
        char name[16];
        struct store_attr attr;
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(store_create(test->store, store_live(test->store), INO_ROOT, name_of(name), S_IFREG | 0644, 0,
                                      (struct store_who){0}, &attr),
                         0);
        test->tables[i] = attr.ino;
        write_leaves(test, store_live(test->store), i, 0, LEAVES);
    }
    for (unsigned life = 0; life < LIVES; life++) {
        struct store_stats stats;
        run_life(test, life);
        wait_until_built(test, &stats);
        assert_int_equal(store_check(test->store), 0);
        built += stats.maps_built;
        assert_int_equal(store_checkpoint(test->store), 0);
        store_abandon(test->store); /* nothing to replay: all maps are built anew */
        open_store(test);
    }
    assert_true(built >= (LIVES - 1) * TABLES);
    assert_int_equal(store_close(test->store), 0);
    mem_device_destroy(test->mem);
    free(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(maps_built_beside_writers_equal_the_trees)};
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
