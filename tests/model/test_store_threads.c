/*
 * tests/model/test_store_threads.c - one store, many threads: what each may rely on while the others are at it.
 *
 *   appenders   add rows to shared tables         every row whole, each appender's rows in order, none missing
 *   rewriters   overwrite their table in one call  a reader sees one generation, never two
 *   creators    make, link and remove names        what one just made is there, what it removed is not
 *   renamers    move files within one directory    a listing always has exactly the files that there are
 *   readers     watch all of that                  a table only grows; its rows are a prefix
 *   holders     fork, read a version twice, close  both times the same, and as consistent as the live tree
 *   checkpoints all the time
 *
 * The working threads do a fixed number of operations; the watching ones go on until those are done. Afterwards
 * everything is checked once more, and again behind a clean close and reopen.
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
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME        "test_store_threads"
#define DIR_PATH         "/data"
#define SHARED_TABLES    2u
#define APPENDERS        2u
#define ROWS_PER_TABLE   1000u /* of each appender */
#define ROW_PREFIX_BYTES 12u   /* "TT SSSSSSSS " */
#define ROW_FILL_MAX     300u
#define GENERATIONS      1000u
#define GENERATION_BYTES (5u * PAGE_PAYLOAD_SIZE / 2u)
#define CREATIONS        800u
#define RENAMES          2500u
#define MOVED_FILES      10u
#define MOVED_NAMES      25u
#define BUFFER_BYTES     (4u << 20)

struct threads_test {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    uint64_t seed;
    ino_no shared[SHARED_TABLES];
    ino_no generations;
    ino_no moved_dir;
    ino_no created_dir;
    atomic_uint workers_left;
    atomic_uint failures;
};

struct worker {
    struct threads_test *test;
    unsigned number;
    struct test_random random;
    uint8_t *buffer; /* BUFFER_BYTES */
};

/* cmocka's own assertions may only be used by the main thread. */
#define CHECK(test, condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            check_failed(test, #condition, __LINE__);                                                                  \
        }                                                                                                              \
    } while (0)

static void check_failed(struct threads_test *test, const char *condition, int line)
{
    if (atomic_fetch_add(&test->failures, 1) < 10) {
        fprintf(stderr, "%s:%d: %s does not hold (SEED=%" PRIu64 ")\n", TEST_NAME, line, condition, test->seed);
    }
}

static bool is_over(struct threads_test *test)
{
    return atomic_load(&test->workers_left) == 0 || atomic_load(&test->failures) > 0;
}

static struct store_name name_of(const char *text)
{
    return (struct store_name){text, strlen(text)};
}

/* ---- rows ---- */

static size_t make_row(struct worker *worker, unsigned appender, unsigned sequence, char *row)
{
    const size_t fill = (size_t)test_random_below(&worker->random, ROW_FILL_MAX);
    const int prefix = snprintf(row, ROW_PREFIX_BYTES + 1, "%02u %08u ", appender, sequence);
    memset(row + prefix, 'a' + (int)(sequence % 26), fill);
    row[(size_t)prefix + fill] = '\n';
    return (size_t)prefix + fill + 1;
}

static unsigned number_at(const uint8_t *bytes, size_t digits)
{
    unsigned number = 0;
    for (size_t i = 0; i < digits; i++) {
        number = number * 10 + (unsigned)(bytes[i] - '0');
    }
    return number;
}

struct row_count {
    unsigned next[APPENDERS]; /* sequence number that each appender's next row must have */
};

/* One row of `size` bytes without its newline. */
static void check_row(struct threads_test *test, const uint8_t *row, size_t size, struct row_count *count)
{
    CHECK(test, size >= ROW_PREFIX_BYTES);
    if (size < ROW_PREFIX_BYTES) {
        return;
    }
    const unsigned appender = number_at(row, 2);
    const unsigned sequence = number_at(row + 3, 8);
    CHECK(test, appender < APPENDERS);
    if (appender < APPENDERS) {
        CHECK(test, sequence == count->next[appender]);
        count->next[appender] = sequence + 1;
    }
    for (size_t i = ROW_PREFIX_BYTES; i < size; i += 7) {
        CHECK(test, row[i] == 'a' + sequence % 26);
    }
}

static void check_rows(struct threads_test *test, const uint8_t *bytes, size_t size, struct row_count *out_count)
{
    *out_count = (struct row_count){0};
    size_t at = 0;
    while (at < size && atomic_load(&test->failures) == 0) {
        const uint8_t *newline = memchr(bytes + at, '\n', size - at);
        CHECK(test, newline != NULL);
        if (newline == NULL) {
            return;
        }
        check_row(test, bytes + at, (size_t)(newline - bytes) - at, out_count);
        at = (size_t)(newline - bytes) + 1;
    }
}

/* ---- workers ---- */

static void append_rows(struct worker *worker)
{
    struct threads_test *test = worker->test;
    struct store_file *files[SHARED_TABLES];
    char row[ROW_PREFIX_BYTES + ROW_FILL_MAX + 2];
    for (unsigned i = 0; i < SHARED_TABLES; i++) {
        CHECK(test, store_file_open(test->store, store_live(test->store), test->shared[i], &files[i]) == 0);
    }
    for (unsigned sequence = 0; sequence < ROWS_PER_TABLE && !is_over(test); sequence++) {
        for (unsigned i = 0; i < SHARED_TABLES; i++) {
            uint64_t end = 0;
            const size_t size = make_row(worker, worker->number, sequence, row);
            CHECK(test, store_write(files[i], 0, row, size, STORE_WRITE_APPEND, &end) == 0);
            CHECK(test, end >= size);
        }
    }
    for (unsigned i = 0; i < SHARED_TABLES; i++) {
        store_file_close(files[i]);
    }
}

/* Each generation replaces the whole content in one call. */
static void rewrite_generations(struct worker *worker)
{
    struct threads_test *test = worker->test;
    struct store_file *file;
    CHECK(test, store_file_open(test->store, store_live(test->store), test->generations, &file) == 0);
    for (unsigned generation = 1; generation <= GENERATIONS && !is_over(test); generation++) {
        uint64_t end = 0;
        memset(worker->buffer, (int)(generation % 251), GENERATION_BYTES);
        CHECK(test, store_write(file, 0, worker->buffer, GENERATION_BYTES, 0, &end) == 0);
        CHECK(test, end == GENERATION_BYTES);
    }
    store_file_close(file);
}

static void create_one(struct worker *worker, unsigned number)
{
    struct threads_test *test = worker->test;
    struct view *live = store_live(test->store);
    struct store_attr made, found, linked;
    char text[40];
    char text2[40];
    snprintf(text, sizeof text, "made_%u_%u", worker->number, number);
    snprintf(text2, sizeof text2, "linked_%u_%u", worker->number, number);
    const struct store_who who = {1, 1};
    CHECK(test, store_create(test->store, live, test->created_dir, name_of(text), S_IFREG | 0644, 0, who, &made) == 0);
    CHECK(test, store_lookup(test->store, live, test->created_dir, name_of(text), &found) == 0);
    CHECK(test, found.ino == made.ino && found.nlink == 1);
    CHECK(test, store_link(test->store, live, made.ino, test->created_dir, name_of(text2), &linked) == 0);
    CHECK(test, linked.ino == made.ino && linked.nlink == 2);
    struct store_file *file;
    uint64_t end;
    const size_t size = 1 + test_random_below(&worker->random, 3 * PAGE_PAYLOAD_SIZE);
    CHECK(test, store_file_open(test->store, live, made.ino, &file) == 0);
    CHECK(test, store_write(file, 0, worker->buffer, size, 0, &end) == 0);
    CHECK(test, store_unlink(test->store, live, test->created_dir, name_of(text)) == 0);
    CHECK(test, store_lookup(test->store, live, test->created_dir, name_of(text), &found) == -ENOENT);
    CHECK(test, store_unlink(test->store, live, test->created_dir, name_of(text2)) == 0);
    size_t got = 0;
    CHECK(test, store_read(file, 0, worker->buffer + size, size + 1, &got) == 0); /* no name, but open */
    CHECK(test, got == size && memcmp(worker->buffer, worker->buffer + size, size) == 0);
    store_file_close(file);
}

static void create_and_remove(struct worker *worker)
{
    test_random_bytes(&worker->random, worker->buffer, 3 * PAGE_PAYLOAD_SIZE);
    for (unsigned i = 0; i < CREATIONS && !is_over(worker->test); i++) {
        create_one(worker, i);
    }
}

/* Two renamers meet: whoever comes second finds no source, or a target. */
static void rename_files(struct worker *worker)
{
    struct threads_test *test = worker->test;
    for (unsigned i = 0; i < RENAMES && !is_over(test); i++) {
        char from[16];
        char to[16];
        snprintf(from, sizeof from, "moved_%u", (unsigned)test_random_below(&worker->random, MOVED_NAMES));
        snprintf(to, sizeof to, "moved_%u", (unsigned)test_random_below(&worker->random, MOVED_NAMES));
        const unsigned flags = test_random_chance(&worker->random, 50) ? STORE_RENAME_NOREPLACE : STORE_RENAME_EXCHANGE;
        const int result = store_rename(test->store, store_live(test->store), test->moved_dir, name_of(from),
                                        test->moved_dir, name_of(to), flags);
        CHECK(test, result == 0 || result == -ENOENT || result == -EEXIST);
    }
}

/* ---- watchers ---- */

static size_t read_whole(struct worker *worker, struct view *view, ino_no ino, size_t at)
{
    struct threads_test *test = worker->test;
    struct store_file *file;
    size_t got = 0;
    const int result = store_file_open(test->store, view, ino, &file);
    CHECK(test, result == 0);
    if (result == 0) {
        CHECK(test, store_read(file, 0, worker->buffer + at, BUFFER_BYTES / 2, &got) == 0);
        store_file_close(file);
    }
    return got;
}

static void check_generation(struct worker *worker, struct view *view)
{
    const size_t size = read_whole(worker, view, worker->test->generations, 0);
    CHECK(worker->test, size == 0 || size == GENERATION_BYTES);
    for (size_t i = 1; i < size; i += 97) {
        CHECK(worker->test, worker->buffer[i] == worker->buffer[0]);
    }
}

static int count_entry(void *arg, const struct store_dir_entry *entry)
{
    (void)entry;
    ++*(unsigned *)arg;
    return 0;
}

static void check_moved(struct worker *worker, struct view *view)
{
    unsigned count = 0;
    CHECK(worker->test,
          store_readdir(worker->test->store, view, worker->test->moved_dir, 0, true, count_entry, &count) == 0);
    CHECK(worker->test, count == MOVED_FILES);
}

static void check_view(struct worker *worker, struct view *view)
{
    struct row_count rows;
    for (unsigned i = 0; i < SHARED_TABLES; i++) {
        const size_t size = read_whole(worker, view, worker->test->shared[i], 0);
        check_rows(worker->test, worker->buffer, size, &rows);
    }
    check_generation(worker, view);
    check_moved(worker, view);
}

/* A table that is only appended to never shrinks, and what was read stays. */
static void watch_table(struct worker *worker)
{
    struct threads_test *test = worker->test;
    struct view *live = store_live(test->store);
    size_t before = 0;
    while (!is_over(test)) {
        struct row_count rows;
        const size_t size = read_whole(worker, live, test->shared[worker->number % SHARED_TABLES], BUFFER_BYTES / 2);
        CHECK(test, size >= before);
        CHECK(test, memcmp(worker->buffer, worker->buffer + BUFFER_BYTES / 2, before) == 0);
        check_rows(test, worker->buffer + BUFFER_BYTES / 2, size, &rows);
        memcpy(worker->buffer, worker->buffer + BUFFER_BYTES / 2, size);
        before = size;
    }
}

static void watch_pieces(struct worker *worker, struct store_file *file)
{
    struct threads_test *test = worker->test;
    struct content_pieces pieces = {0};
    struct frame_budget budget = {0};
    const int result = store_read_pieces(file, 0, GENERATION_BYTES, &pieces, &budget);
    CHECK(test, result == 0 || result == -E2BIG);
    if (result != 0) {
        return;
    }
    const uint8_t first = pieces.count > 0 ? *(const uint8_t *)pieces.iov[0].iov_base : 0;
    for (unsigned i = 0; i < pieces.count; i++) {
        const uint8_t *bytes = pieces.iov[i].iov_base;
        for (size_t at = 0; at < pieces.iov[i].iov_len; at += 89) {
            CHECK(test, bytes[at] == first); /* written meanwhile: elsewhere (CACHE-1) */
        }
    }
    content_pieces_release(&pieces);
    frame_budget_release(&budget);
}

static void watch_generations(struct worker *worker)
{
    struct threads_test *test = worker->test;
    struct store_file *file;
    CHECK(test, store_file_open(test->store, store_live(test->store), test->generations, &file) == 0);
    while (!is_over(test)) {
        check_generation(worker, store_live(test->store));
        watch_pieces(worker, file);
        check_moved(worker, store_live(test->store));
    }
    store_file_close(file);
}

static void hold_version(struct worker *worker)
{
    struct threads_test *test = worker->test;
    struct cow *cow = store_cow(test->store);
    struct holder *holder;
    struct view *view;
    CHECK(test, cow_fork(cow, HOLDER_SNAPSHOT, &holder) == 0);
    CHECK(test, view_open_read_only(cow, holder, &view) == 0);
    check_view(worker, view);
    const size_t first = read_whole(worker, view, test->shared[0], 0);
    sched_yield();
    const size_t second = read_whole(worker, view, test->shared[0], BUFFER_BYTES / 2);
    CHECK(test, first == second);
    CHECK(test, memcmp(worker->buffer, worker->buffer + BUFFER_BYTES / 2, first) == 0);
    view_close(view);
    cow_holder_close(cow, holder);
}

static void hold_versions(struct worker *worker)
{
    while (!is_over(worker->test)) {
        hold_version(worker);
    }
}

static void take_checkpoints(struct worker *worker)
{
    while (!is_over(worker->test)) {
        CHECK(worker->test, store_checkpoint(worker->test->store) == 0);
        CHECK(worker->test, store_sync(worker->test->store) == 0);
        for (unsigned i = 0; i < 1000; i++) {
            sched_yield();
        }
    }
}

/* ---- threads ---- */

struct role {
    void (*run)(struct worker *worker);
    unsigned number;
    bool works; /* the watchers go on until all of these are done */
};

static const struct role roles[] = {
    {append_rows, 0, true},        {append_rows, 1, true},       {rewrite_generations, 0, true},
    {create_and_remove, 0, true},  {create_and_remove, 1, true}, {rename_files, 0, true},
    {rename_files, 1, true},       {watch_table, 0, false},      {watch_table, 1, false},
    {watch_generations, 0, false}, {hold_versions, 0, false},    {take_checkpoints, 0, false},
};

struct started {
    pthread_t thread;
    const struct role *role;
    struct worker worker;
};

static void *run_role(void *arg)
{
    struct started *started = arg;
    started->role->run(&started->worker);
    if (started->role->works) {
        atomic_fetch_sub(&started->worker.test->workers_left, 1);
    }
    return NULL;
}

static void start(struct threads_test *test, struct started *started, unsigned index)
{
    started->role = &roles[index];
    started->worker = (struct worker){.test = test, .number = roles[index].number};
    started->worker.buffer = malloc(BUFFER_BYTES);
    assert_non_null(started->worker.buffer);
    test_random_init(&started->worker.random, test->seed + index);
    assert_int_equal(pthread_create(&started->thread, NULL, run_role, started), 0);
}

static void run_threads(struct threads_test *test)
{
    struct started started[ARRAY_COUNT(roles)];
    for (unsigned i = 0; i < ARRAY_COUNT(roles); i++) {
        if (roles[i].works) {
            atomic_fetch_add(&test->workers_left, 1);
        }
    }
    for (unsigned i = 0; i < ARRAY_COUNT(roles); i++) {
        start(test, &started[i], i);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(roles); i++) {
        pthread_join(started[i].thread, NULL);
        free(started[i].worker.buffer);
    }
    assert_int_equal(atomic_load(&test->failures), 0);
}

/* ---- around it ---- */

static void open_store(struct threads_test *test)
{
    const struct store_options options = {
        .dev = mem_device_io(test->mem),
        .diag = &test->diag,
        .dir = DIR_PATH,
        .cache_size_bytes = 1, /* as small as may be */
        .background = true,
        .checkpoint_interval_ms = 50,
    };
    assert_int_equal(store_open(&options, &test->store, NULL), 0);
}

static ino_no make(struct threads_test *test, ino_no parent, const char *name, uint32_t mode)
{
    struct store_attr attr;
    assert_int_equal(store_create(test->store, store_live(test->store), parent, name_of(name), mode, 0,
                                  (struct store_who){0, 0}, &attr),
                     0);
    return attr.ino;
}

static void populate(struct threads_test *test)
{
    char name[32];
    for (unsigned i = 0; i < SHARED_TABLES; i++) {
        snprintf(name, sizeof name, "shared_%u", i);
        test->shared[i] = make(test, INO_ROOT, name, S_IFREG | 0644);
    }
    test->generations = make(test, INO_ROOT, "generations", S_IFREG | 0644);
    test->moved_dir = make(test, INO_ROOT, "moved", S_IFDIR | 0755);
    test->created_dir = make(test, INO_ROOT, "created", S_IFDIR | 0755);
    for (unsigned i = 0; i < MOVED_FILES; i++) {
        snprintf(name, sizeof name, "moved_%u", i);
        (void)make(test, test->moved_dir, name, S_IFREG | 0644);
    }
}

/* All rows of all appenders are there, and nothing is left that was removed. */
static void check_final(struct threads_test *test)
{
    struct worker worker = {.test = test, .buffer = malloc(BUFFER_BYTES)};
    struct view *live = store_live(test->store);
    unsigned left = 0;
    assert_non_null(worker.buffer);
    for (unsigned i = 0; i < SHARED_TABLES; i++) {
        struct row_count rows;
        const size_t size = read_whole(&worker, live, test->shared[i], 0);
        check_rows(test, worker.buffer, size, &rows);
        for (unsigned appender = 0; appender < APPENDERS; appender++) {
            assert_int_equal(rows.next[appender], ROWS_PER_TABLE);
        }
    }
    check_view(&worker, live);
    assert_int_equal(store_readdir(test->store, live, test->created_dir, 0, false, count_entry, &left), 0);
    assert_int_equal(left, 0);
    assert_int_equal(store_check(test->store), 0);
    assert_int_equal(atomic_load(&test->failures), 0);
    free(worker.buffer);
}

static void threads_on_one_store_keep_their_promises(void **state)
{
    (void)state;
    struct threads_test *test = calloc(1, sizeof *test);
    assert_non_null(test);
    test->seed = test_seed(TEST_NAME);
    test->mem = mem_device_create(test->seed);
    diag_init_stderr(&test->diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(test->mem), .diag = &test->diag, .dir = DIR_PATH, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(test);
    populate(test);
    run_threads(test);
    check_final(test);
    assert_int_equal(store_close(test->store), 0);
    open_store(test);
    check_final(test);
    assert_int_equal(store_close(test->store), 0);
    mem_device_destroy(test->mem);
    free(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_on_one_store_keep_their_promises),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
