/*
 * tests/model/test_compact_threads.c - compactions beside writers, appenders, readers, transactions, snapshots and checkpoints of other threads.
 *
 * "slots" holds numbers of 8 bytes, each of which says where it stands: who reads it sees at once whether bytes are out of place, and appends
 * make it longer. "rows" is appended to by a live writer and by transactions, whose rows merge: none is lost, none is there twice.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <errno.h>
#include <inttypes.h>
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

#define TEST_NAME     "model/test_compact_threads"
#define SLOTS         40000u /* at first */
#define SLOT_BITS     24
#define SLOTS_AT_ONCE 100u
#define COMPACTIONS   60u
#define ROW_SIZE      16u

struct threads_test {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    uint64_t seed;
    _Atomic bool stop;
    _Atomic uint64_t live_rows, txn_rows; /* acknowledged */
    _Atomic uint64_t compacted, gave_way;
};

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, TEST_NAME ": %s\n", what);
        abort();
    }
}

static struct store_name name_of(const char *text)
{
    return (struct store_name){.bytes = text, .size = strlen(text)};
}

static struct store_file *open_in(struct threads_test *test, struct view *view, const char *name)
{
    struct store_attr attr;
    struct store_file *file = NULL;
    must(store_lookup(test->store, view, INO_ROOT, name_of(name), &attr) == 0, "lookup");
    must(store_file_open(test->store, view, attr.ino, &file) == 0, "open");
    return file;
}

static struct store_file *open_live(struct threads_test *test, const char *name)
{
    return open_in(test, store_live(test->store), name);
}

static void make(struct threads_test *test, const char *name)
{
    struct store_attr attr;
    must(store_create(test->store, store_live(test->store), INO_ROOT, name_of(name), S_IFREG | 0644, 0,
                      (struct store_who){0, 0}, &attr) == 0,
         "create");
}

/* ---- slots ---- */

static uint64_t slot_number(uint64_t index, uint64_t version)
{
    return index << SLOT_BITS | version;
}

static void write_slots(struct store_file *file, uint64_t first, unsigned count, uint64_t version, unsigned flags)
{
    uint64_t slots[SLOTS_AT_ONCE];
    uint64_t end = 0;
    for (unsigned i = 0; i < count; i++) {
        slots[i] = slot_number(first + i, version);
    }
    must(store_write(file, first * sizeof slots[0], slots, count * sizeof slots[0], flags, &end) == 0, "write");
}

static void *write_in_place(void *arg)
{
    struct threads_test *test = arg;
    struct store_file *file = open_live(test, "slots");
    struct test_random random;
    test_random_init(&random, test->seed + 1);
    for (uint64_t i = 0; !atomic_load(&test->stop); i++) {
        write_slots(file, test_random_below(&random, SLOTS - SLOTS_AT_ONCE),
                    1 + (unsigned)test_random_below(&random, SLOTS_AT_ONCE), i % 1000, 0);
        if (i % 50 == 0) { /* a while without changes, in which a compaction comes to its end */
            const uint64_t done = atomic_load(&test->compacted) + atomic_load(&test->gave_way);
            while (atomic_load(&test->compacted) + atomic_load(&test->gave_way) < done + 2 &&
                   !atomic_load(&test->stop)) {
                sched_yield();
            }
        }
    }
    store_file_close(file);
    return NULL;
}

/* One thread appends: it knows how many there are. */
static void *append_slots(void *arg)
{
    struct threads_test *test = arg;
    struct store_file *file = open_live(test, "slots");
    for (uint64_t next = SLOTS; !atomic_load(&test->stop) && next < 8 * SLOTS; next += SLOTS_AT_ONCE) {
        write_slots(file, next, SLOTS_AT_ONCE, 0, STORE_WRITE_APPEND);
    }
    store_file_close(file);
    return NULL;
}

static void check_slots(struct threads_test *test, struct view *view)
{
    static const size_t size = 64 * 1024;
    uint64_t *slots = malloc(size);
    struct store_file *file = open_in(test, view, "slots");
    size_t got = size;
    uint64_t index = 0;
    must(slots != NULL, "memory");
    while (got > 0) {
        must(store_read(file, index * sizeof slots[0], slots, size, &got) == 0, "read");
        for (size_t i = 0; i < got / sizeof slots[0]; i++, index++) {
            must(slots[i] >> SLOT_BITS == index, "bytes are out of place");
        }
    }
    must(index >= SLOTS, "bytes are missing");
    store_file_close(file);
    free(slots);
}

static void *read_slots(void *arg)
{
    struct threads_test *test = arg;
    while (!atomic_load(&test->stop)) {
        check_slots(test, store_live(test->store));
    }
    return NULL;
}

/* ---- rows ---- */

static int append_row(struct store_file *file, char kind, uint64_t number)
{
    char row[ROW_SIZE + 1];
    uint64_t end = 0;
    (void)snprintf(row, sizeof row, "%c%014" PRIu64 "\n", kind, number);
    return store_write(file, 0, row, ROW_SIZE, STORE_WRITE_APPEND, &end);
}

static void *append_rows(void *arg)
{
    struct threads_test *test = arg;
    struct store_file *file = open_live(test, "rows");
    while (!atomic_load(&test->stop)) {
        must(append_row(file, 'l', atomic_load(&test->live_rows)) == 0, "append");
        atomic_fetch_add(&test->live_rows, 1);
    }
    store_file_close(file);
    return NULL;
}

static void *append_in_transactions(void *arg)
{
    struct threads_test *test = arg;
    while (!atomic_load(&test->stop)) {
        const struct store_txn_options options = {.name = name_of("t")};
        struct store_changes changes = {0};
        struct store_txn *txn = NULL;
        const uint64_t first = atomic_load(&test->txn_rows);
        const uint64_t compacted = atomic_load(&test->compacted);
        must(store_txn_begin(test->store, &options, &txn) == 0, "begin");
        while (first % 3 == 0 && atomic_load(&test->compacted) < compacted + 2 && !atomic_load(&test->stop)) {
            sched_yield(); /* it began before the compaction, and writes behind it */
        }
        struct store_file *file = open_in(test, store_txn_view(txn), "rows");
        for (unsigned i = 0; i < 20; i++) {
            must(append_row(file, 't', first + i) == 0, "append in a transaction");
        }
        store_file_close(file);
        must(store_txn_commit(txn, &changes) == 0, "a compaction made a conflict");
        store_changes_free(&changes);
        store_txn_put(txn);
        atomic_fetch_add(&test->txn_rows, 20);
    }
    return NULL;
}

/* Each kind's rows are there once, in order. */
static void check_rows(struct threads_test *test)
{
    char row[ROW_SIZE];
    size_t got = 0;
    uint64_t next[2] = {0, 0};
    struct store_file *file = open_live(test, "rows");
    for (uint64_t at = 0; store_read(file, at, row, ROW_SIZE, &got) == 0 && got > 0; at += ROW_SIZE) {
        must(got == ROW_SIZE && row[ROW_SIZE - 1] == '\n', "half a row");
        row[ROW_SIZE - 1] = '\0';
        must(strtoull(row + 1, NULL, 10) == next[row[0] == 't'], "a row is lost, or there twice");
        next[row[0] == 't']++;
    }
    store_file_close(file);
    must(next[0] == atomic_load(&test->live_rows) && next[1] == atomic_load(&test->txn_rows), "rows are missing");
}

/* ---- what goes on beside ---- */

static void *take_snapshots(void *arg)
{
    struct threads_test *test = arg;
    while (!atomic_load(&test->stop)) {
        struct store_snapshot *snapshot = NULL;
        must(store_snapshot_create(test->store, name_of("s")) == 0, "snapshot");
        must(store_snapshot_get(test->store, name_of("s"), &snapshot) == 0, "open snapshot");
        must(store_checkpoint(test->store) == 0, "checkpoint");
        check_slots(test, store_snapshot_view(snapshot));
        store_snapshot_put(snapshot);
        must(store_snapshot_drop(test->store, name_of("s")) == 0, "drop snapshot");
    }
    return NULL;
}

static void compact_one(struct threads_test *test, const char *name)
{
    struct store_compact *compact = NULL;
    struct store_file *file = open_live(test, name);
    int rc = store_compact_begin(file, &compact);
    if (rc == 0) {
        do {
            rc = store_compact_step(compact, 1);
        } while (rc == 1);
        store_compact_end(compact);
    }
    must(rc == 0 || rc == -EBUSY || rc == -EAGAIN || rc == -EALREADY, "compaction failed");
    atomic_fetch_add(rc == 0 ? &test->compacted : &test->gave_way, 1);
    store_file_close(file);
}

static void *compact_all(void *arg)
{
    struct threads_test *test = arg;
    const unsigned most = test_is_long() ? 20 * COMPACTIONS : COMPACTIONS;
    for (unsigned i = 0; i < most; i++) {
        compact_one(test, i % 2 == 0 ? "slots" : "rows");
    }
    atomic_store(&test->stop, true);
    return NULL;
}

static void run_threads(struct threads_test *test)
{
    void *(*const bodies[])(void *) = {write_in_place, append_slots,           read_slots,     read_slots,
                                       append_rows,    append_in_transactions, take_snapshots, compact_all};
    pthread_t threads[ARRAY_COUNT(bodies)];
    for (unsigned i = 0; i < ARRAY_COUNT(bodies); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, bodies[i], test), 0);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(bodies); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void open_store(struct threads_test *test)
{
    const struct store_options options = {.dev = mem_device_io(test->mem),
                                          .diag = &test->diag,
                                          .dir = "/data",
                                          .cache_size_bytes = UINT64_C(32) << 20,
                                          .background = true,
                                          .checkpoint_interval_ms = 20,
                                          .bulk_min_bytes = 4 * BLOCK_SIZE,
                                          .compact_auto = true,
                                          .compact_quiet_ms = 1,
                                          .compact_piece_blocks = 4};
    assert_int_equal(store_open(&options, &test->store, NULL), 0);
}

static void compactions_beside_everything_change_nothing(void **state)
{
    (void)state;
    struct threads_test test = {.mem = mem_device_create(1), .seed = test_seed(TEST_NAME)};
    diag_init_stderr(&test.diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(test.mem), .diag = &test.diag, .dir = "/data", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(&test);
    make(&test, "slots");
    make(&test, "rows");
    struct store_file *file = open_live(&test, "slots");
    for (uint64_t i = 0; i < SLOTS; i += SLOTS_AT_ONCE) {
        write_slots(file, i, SLOTS_AT_ONCE, 0, STORE_WRITE_APPEND);
    }
    store_file_close(file);
    run_threads(&test);
    fprintf(stderr, "%" PRIu64 " compactions, %" PRIu64 " gave way; %" PRIu64 " and %" PRIu64 " rows\n", test.compacted,
            test.gave_way, test.live_rows, test.txn_rows);
    assert_true(test.compacted > 0);
    check_slots(&test, store_live(test.store));
    check_rows(&test);
    assert_int_equal(store_check(test.store), 0);
    store_abandon(test.store);
    open_store(&test);
    check_slots(&test, store_live(test.store));
    check_rows(&test);
    assert_int_equal(store_check(test.store), 0);
    assert_int_equal(store_close(test.store), 0);
    mem_device_destroy(test.mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(compactions_beside_everything_change_nothing)};
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
