/*
 * tests/model/test_list_append_threads.c - clients that read and append to lists in transactions, and a checker that looks
 * for anything that snapshot isolation forbids in what they saw (tests/model/list_append.h).
 *
 * In each phase the clients work on lists of their own phase, with background threads and checkpoints in between. When
 * enough is done the device is cloned while they are at it: that is what a kill would leave. They stop, what they did is
 * checked with the lists as they became, and the next phase goes on with the clone.
 *
 * Most lists take appends of several at once, some refuse that (user.tblfs.append=conflict). Some operations go to the live
 * tree, each a transaction of its own. With LONG=1 it does ten times as much; SEED chooses what the clients do.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "tests/model/list_append.h"
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
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME     "test_list_append_threads"
#define DIR_PATH      "/data"
#define CLIENTS       8u
#define PHASE_TXNS    1000u /* before the kill; those under way come on top */
#define ROW_MIN_BYTES 10u   /* "01234567 " and the newline */
#define ROW_BIG_BYTES 70000u
#define READ_BYTES    (1u << 20)

/* Fewer where each step takes ten times as long. */
#ifdef __SANITIZE_THREAD__
#define TRANSACTIONS 3000u
#else
#define TRANSACTIONS 10000u
#endif

struct lists_test {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    uint64_t seed;
    unsigned phase;
    ino_no tables[LIST_TABLES];
    _Atomic uint64_t clock;
    atomic_uint done;
    atomic_bool stop;
    atomic_uint failures;
    uint64_t committed, conflicts, reads; /* of all phases */
};

struct client {
    struct lists_test *test;
    unsigned number;
    struct test_random random;
    uint32_t sequence; /* of its rows, in this phase */
    uint8_t *buffer;   /* READ_BYTES */
    struct list_txn *txns;
    size_t count, capacity;
    pthread_t thread;
};

/* cmocka's own assertions may only be used by the main thread. */
#define CHECK(test, condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            check_failed(test, #condition, __LINE__);                                                                  \
        }                                                                                                              \
    } while (0)

static void check_failed(struct lists_test *test, const char *condition, int line)
{
    if (atomic_fetch_add(&test->failures, 1) < 10) {
        fprintf(stderr, "%s:%d: %s does not hold (SEED=%" PRIu64 ")\n", TEST_NAME, line, condition, test->seed);
    }
}

static uint64_t tick(struct lists_test *test)
{
    return atomic_fetch_add(&test->clock, 1) + 1;
}

/* ---- rows ---- */

/* Follows from the number: most are short, some fill a page, a few several leaves. */
static size_t row_size(uint32_t row)
{
    const uint32_t luck = row * UINT32_C(2654435761) >> 16;
    if (luck % 300 == 0) {
        return ROW_BIG_BYTES + luck % 1000;
    }
    return ROW_MIN_BYTES + (luck % 40 == 1 ? 3000 + luck % 9000 : luck % 70);
}

static size_t make_row(uint32_t row, uint8_t *bytes)
{
    const size_t size = row_size(row);
    (void)snprintf((char *)bytes, ROW_MIN_BYTES, "%08" PRIx32 " ", row);
    memset(bytes + 9, 'a' + (int)(row % 26), size - 10);
    bytes[size - 1] = '\n';
    return size;
}

/* The rows in these bytes, each whole. */
static void parse_rows(struct lists_test *test, const uint8_t *bytes, size_t size, struct list_rows *out_rows)
{
    size_t at = 0;
    while (at < size) {
        unsigned long row = 0;
        char number[9] = "";
        if (size - at >= ROW_MIN_BYTES) {
            memcpy(number, bytes + at, 8);
            row = strtoul(number, NULL, 16);
        }
        const size_t length = row_size((uint32_t)row);
        const bool whole = size - at >= length && bytes[at + 8] == ' ' && bytes[at + length - 1] == '\n' &&
                           (length == ROW_MIN_BYTES || bytes[at + length - 2] == 'a' + (int)(row % 26));
        CHECK(test, whole);
        if (!whole) {
            return;
        }
        list_rows_add(out_rows, (uint32_t)row);
        at += length;
    }
}

/* ---- clients ---- */

static struct list_txn *new_txn(struct client *client)
{
    if (client->count == client->capacity) {
        client->capacity = client->capacity * 2 + 64;
        client->txns = realloc(client->txns, client->capacity * sizeof client->txns[0]);
        if (client->txns == NULL) {
            abort();
        }
    }
    struct list_txn *txn = &client->txns[client->count++];
    *txn = (struct list_txn){.outcome = LIST_ABORTED};
    return txn;
}

static void read_list(struct lists_test *test, struct store *store, struct view *view, unsigned table, uint8_t *buffer,
                      struct list_rows *out_rows)
{
    struct store_file *file = NULL;
    size_t size = 0;
    int rc = store_file_open(store, view, test->tables[table], &file);
    CHECK(test, rc == 0);
    if (rc != 0) {
        return;
    }
    rc = store_read(file, 0, buffer, READ_BYTES, &size);
    store_file_close(file);
    CHECK(test, rc == 0 && size < READ_BYTES);
    if (rc == 0) {
        parse_rows(test, buffer, size, out_rows);
    }
}

static void append_row(struct client *client, struct view *view, unsigned table, uint32_t row)
{
    struct lists_test *test = client->test;
    struct store_file *file = NULL;
    uint64_t end = 0;
    const size_t size = make_row(row, client->buffer);
    int rc = store_file_open(test->store, view, test->tables[table], &file);
    if (rc == 0) {
        rc = store_write(file, 0, client->buffer, size, STORE_WRITE_APPEND, &end);
        store_file_close(file);
    }
    CHECK(test, rc == 0);
}

static void do_event(struct client *client, struct view *view, struct list_txn *txn)
{
    struct list_event *event = &txn->events[txn->event_count++];
    *event = (struct list_event){.table = (unsigned)test_random_below(&client->random, LIST_TABLES),
                                 .reads = test_random_chance(&client->random, 50)};
    if (event->reads) {
        read_list(client->test, client->test->store, view, event->table, client->buffer, &event->seen);
    } else {
        event->row = LIST_ROW_NUMBER(client->number, client->sequence++);
        append_row(client, view, event->table, event->row);
    }
}

static void live_once(struct client *client, struct list_txn *txn)
{
    struct lists_test *test = client->test;
    txn->live = true;
    txn->outcome = LIST_COMMITTED;
    txn->began = tick(test);
    txn->ends = txn->began;
    do_event(client, store_live(test->store), txn);
    txn->ended = tick(test);
    txn->began_by = txn->ended;
}

static bool only_merges(const struct list_txn *txn)
{
    for (unsigned i = 0; i < txn->event_count; i++) {
        if (!txn->events[i].reads && txn->events[i].table < LIST_STRICT) {
            return false;
        }
    }
    return true;
}

static void end_txn(struct client *client, struct store_txn *store_txn, struct list_txn *txn)
{
    struct lists_test *test = client->test;
    struct store_changes changes = {0};
    if (test_random_chance(&client->random, 10)) {
        return;
    }
    txn->ends = tick(test);
    const int rc = store_txn_commit(store_txn, &changes);
    txn->ended = tick(test);
    txn->outcome = rc == 0 ? LIST_COMMITTED : LIST_CONFLICT;
    CHECK(test, rc == 0 || (rc == -EAGAIN && !only_merges(txn)));
    store_changes_free(&changes);
}

static void transact(struct client *client, struct list_txn *txn)
{
    struct lists_test *test = client->test;
    struct store_txn *store_txn = NULL;
    const struct store_txn_options options = {.name = {"t", 1}, .pid = client->number};
    txn->began = tick(test);
    const int rc = store_txn_begin(test->store, &options, &store_txn);
    txn->began_by = tick(test);
    CHECK(test, rc == 0);
    if (rc != 0) {
        return;
    }
    const uint64_t events = 1 + test_random_below(&client->random, LIST_EVENTS);
    for (uint64_t i = 0; i < events; i++) {
        do_event(client, store_txn_view(store_txn), txn);
        if (test_random_chance(&client->random, 20)) {
            sched_yield();
        }
    }
    end_txn(client, store_txn, txn);
    store_txn_put(store_txn);
}

static void *client_main(void *arg)
{
    struct client *client = arg;
    struct lists_test *test = client->test;
    while (!atomic_load(&test->stop) && atomic_load(&test->failures) == 0) {
        struct list_txn *txn = new_txn(client);
        if (test_random_chance(&client->random, 15)) {
            live_once(client, txn);
        } else {
            transact(client, txn);
        }
        atomic_fetch_add(&test->done, 1);
    }
    return NULL;
}

/* ---- a phase ---- */

static void open_store(struct lists_test *test)
{
    const struct store_options options = {.dev = mem_device_io(test->mem),
                                          .diag = &test->diag,
                                          .dir = DIR_PATH,
                                          .cache_size_bytes = UINT64_C(32) << 20,
                                          .background = true,
                                          .checkpoint_interval_ms = 50,
                                          .bulk_min_bytes = 4 * BLOCK_SIZE,
                                          .log_segment_size = 256u << 10};
    assert_int_equal(store_open(&options, &test->store, NULL), 0);
}

static void make_lists(struct lists_test *test)
{
    struct view *live = store_live(test->store);
    for (unsigned i = 0; i < LIST_TABLES; i++) {
        char text[32];
        struct store_attr attr;
        (void)snprintf(text, sizeof text, "phase_%u_list_%u", test->phase, i);
        const struct store_name name = {text, strlen(text)};
        assert_int_equal(
            store_create(test->store, live, INO_ROOT, name, S_IFREG | 0644, 0, (struct store_who){0}, &attr), 0);
        test->tables[i] = attr.ino;
        if (i < LIST_STRICT) {
            assert_int_equal(store_setxattr(test->store, live, attr.ino, "user.tblfs.append", "conflict", 8, 0), 0);
        }
    }
}

static void read_lists(struct lists_test *test, struct list_rows *lists)
{
    uint8_t *buffer = malloc(READ_BYTES);
    assert_non_null(buffer);
    for (unsigned i = 0; i < LIST_TABLES; i++) {
        read_list(test, test->store, store_live(test->store), i, buffer, &lists[i]);
    }
    free(buffer);
}

/* The store goes on with what a kill at that moment would have left. */
static struct mem_device *kill_under_way(struct lists_test *test, struct list_history *history)
{
    while (atomic_load(&test->done) < PHASE_TXNS && atomic_load(&test->failures) == 0) {
        sched_yield();
    }
    history->kill_from = tick(test);
    struct mem_device *clone = mem_device_clone(test->mem);
    history->kill_to = tick(test);
    return clone;
}

static void gather(struct lists_test *test, struct client *clients, struct list_history *history)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        history->count += clients[i].count;
    }
    history->txns = calloc(history->count, sizeof history->txns[0]);
    assert_non_null(history->txns);
    size_t at = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        for (size_t j = 0; j < clients[i].count; j++) {
            const struct list_txn *txn = &clients[i].txns[j];
            test->committed += txn->outcome == LIST_COMMITTED;
            test->conflicts += txn->outcome == LIST_CONFLICT;
            test->reads += txn->event_count > 0 && txn->events[0].reads;
            history->txns[at++] = *txn;
        }
        free(clients[i].txns);
        free(clients[i].buffer);
    }
}

static void history_free(struct list_history *history)
{
    for (size_t i = 0; i < history->count; i++) {
        for (unsigned j = 0; j < history->txns[i].event_count; j++) {
            free(history->txns[i].events[j].seen.rows);
        }
    }
    for (unsigned i = 0; i < LIST_TABLES; i++) {
        free(history->lists[i].rows);
        free(history->kept[i].rows);
    }
    free(history->txns);
}

static void run_clients(struct lists_test *test, struct list_history *history, struct mem_device **out_clone)
{
    struct client clients[CLIENTS];
    atomic_store(&test->stop, false);
    atomic_store(&test->done, 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.test = test, .number = i, .buffer = malloc(READ_BYTES)};
        assert_non_null(clients[i].buffer);
        test_random_init(&clients[i].random, test->seed * 1000003 + test->phase * CLIENTS + i);
        assert_int_equal(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]), 0);
    }
    *out_clone = kill_under_way(test, history);
    atomic_store(&test->stop, true);
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
    }
    gather(test, clients, history);
}

static void check_history(struct lists_test *test, struct list_history *history)
{
    if (!list_history_check(history)) {
        fprintf(stderr, TEST_NAME ": phase %u: %s\nreplay with: make check TEST=" TEST_NAME " SEED=%" PRIu64 "\n",
                test->phase, history->why, test->seed);
        fail();
    }
}

static void run_phase(struct lists_test *test)
{
    struct list_history history = {.why = ""};
    struct mem_device *clone = NULL;
    test->phase++;
    make_lists(test);
    run_clients(test, &history, &clone);
    assert_int_equal(atomic_load(&test->failures), 0);
    assert_int_equal(store_check(test->store), 0);
    read_lists(test, history.lists);
    assert_int_equal(store_close(test->store), 0);
    mem_device_destroy(test->mem);
    test->mem = clone;
    open_store(test);
    read_lists(test, history.kept);
    assert_int_equal(store_check(test->store), 0);
    assert_int_equal(atomic_load(&test->failures), 0);
    check_history(test, &history);
    history_free(&history);
}

static void histories_of_clients_are_of_snapshot_isolation(void **state)
{
    (void)state;
    struct lists_test test = {.seed = test_seed(TEST_NAME)};
    diag_init_stderr(&test.diag, DIAG_WARNING);
    test.mem = mem_device_create(test.seed);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(test.mem), .diag = &test.diag, .dir = DIR_PATH, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(&test);
    const uint64_t wanted = test_is_long() ? 10 * TRANSACTIONS : TRANSACTIONS;
    while (test.committed < wanted) {
        run_phase(&test);
    }
    fprintf(stderr, "%u phases, %" PRIu64 " committed, %" PRIu64 " conflicts\n", test.phase, test.committed,
            test.conflicts);
    assert_true(test.conflicts > 0 && test.reads > 0);
    assert_int_equal(store_close(test.store), 0);
    mem_device_destroy(test.mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(histories_of_clients_are_of_snapshot_isolation)};
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
