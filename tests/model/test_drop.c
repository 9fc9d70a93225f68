/*
 * tests/model/test_drop.c - dropping many relations costs one pass over the page cache, counted at the store.
 *
 * Unlinked tables are dropped together by one store_step: with resident pages at most one tag per frame is read, with
 * none no tag, with few blocks they are looked up; dirty pages of victims are never written; what is open or held is
 * left alone until it is not.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define DIR_PATH        "/data"
#define TABLES          1000u
#define TABLE_BYTES     (3u * PAGE_PAYLOAD_SIZE - 100u)
#define TABLE_PAGES     4u /* three leaves and the inner page above them */
#define CACHE_BYTES     ((uint64_t)64 << 20)
#define MAX_TAGS        1024u
#define HAMMERED_TABLES 20u

struct drop_test {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    uint8_t content[TABLE_BYTES];
};

static void open_store(struct drop_test *test)
{
    const struct store_options options = {
        .dev = mem_device_io(test->mem), .diag = &test->diag, .dir = DIR_PATH, .cache_size_bytes = CACHE_BYTES};
    assert_int_equal(store_open(&options, &test->store, NULL), 0);
}

static int setup(void **state)
{
    struct drop_test *test = calloc(1, sizeof *test);
    assert_non_null(test);
    test->mem = mem_device_create(1);
    diag_init_stderr(&test->diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(test->mem), .diag = &test->diag, .dir = DIR_PATH, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(test);
    for (size_t i = 0; i < sizeof test->content; i++) {
        test->content[i] = (uint8_t)('a' + i % 23);
    }
    *state = test;
    return 0;
}

static int teardown(void **state)
{
    struct drop_test *test = *state;
    assert_int_equal(store_check(test->store), 0);
    assert_int_equal(store_close(test->store), 0);
    mem_device_destroy(test->mem);
    free(test);
    return 0;
}

/* ---- tables ---- */

struct table_name {
    char bytes[32];
    struct store_name name;
};

static void name_table(struct table_name *out_name, const char *prefix, unsigned number)
{
    const int size = snprintf(out_name->bytes, sizeof out_name->bytes, "%s_%u", prefix, number);
    out_name->name = (struct store_name){out_name->bytes, (size_t)size};
}

static ino_no make_table(struct drop_test *test, const char *prefix, unsigned number, size_t size)
{
    struct table_name name;
    struct store_attr attr;
    struct store_file *file;
    uint64_t end;
    name_table(&name, prefix, number);
    struct view *live = store_live(test->store);
    assert_int_equal(
        store_create(test->store, live, INO_ROOT, name.name, S_IFREG | 0644, 0, (struct store_who){0, 0}, &attr), 0);
    assert_int_equal(store_file_open(test->store, live, attr.ino, &file), 0);
    assert_int_equal(store_write(file, 0, test->content, size, 0, &end), 0);
    store_file_close(file);
    return attr.ino;
}

static void make_tables(struct drop_test *test, const char *prefix, unsigned count, size_t size)
{
    for (unsigned i = 0; i < count; i++) {
        (void)make_table(test, prefix, i, size);
    }
}

static void unlink_tables(struct drop_test *test, const char *prefix, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct table_name name;
        name_table(&name, prefix, i);
        assert_int_equal(store_unlink(test->store, store_live(test->store), INO_ROOT, name.name), 0);
    }
}

static void expect_content(struct drop_test *test, struct store_file *file, size_t size)
{
    uint8_t bytes[TABLE_BYTES];
    size_t got = 0;
    assert_int_equal(store_read(file, 0, bytes, sizeof bytes, &got), 0);
    assert_int_equal(got, size);
    assert_memory_equal(bytes, test->content, size);
}

/* ---- counters ---- */

static struct bufcache_stats count_now(struct drop_test *test)
{
    struct bufcache_stats stats;
    bufcache_get_stats(store_cache(test->store), &stats);
    return stats;
}

static int keep_last(void *arg, const struct store_sweep *sweep)
{
    *(struct store_sweep *)arg = *sweep;
    return 0;
}

static struct store_sweep last_sweep(struct drop_test *test)
{
    struct store_sweep sweep = {0};
    assert_int_equal(store_each_sweep(test->store, keep_last, &sweep), 0);
    return sweep;
}

static int count_file(void *arg, const char *name, enum io_file_kind kind)
{
    (void)name;
    *(unsigned *)arg += kind == IO_KIND_FILE ? 1 : 0;
    return 0;
}

static unsigned relation_files(struct drop_test *test)
{
    unsigned count = 0;
    for (unsigned i = 0; i < 256; i++) {
        char path[64];
        snprintf(path, sizeof path, DIR_PATH "/rel/%02x", i);
        assert_int_equal(io_list_dir(mem_device_io(test->mem), path, count_file, &count), 0);
    }
    return count;
}

/* ---- tests ---- */

static void thousand_resident_tables_cost_one_pass(void **state)
{
    struct drop_test *test = *state;
    make_tables(test, "victim", TABLES, TABLE_BYTES);
    unlink_tables(test, "victim", TABLES);
    const struct bufcache_stats before = count_now(test);
    store_step(test->store);
    const struct bufcache_stats after = count_now(test);
    const struct store_sweep sweep = last_sweep(test);
    assert_int_equal(sweep.result.mode, DROP_MODE_SWEEP);
    assert_int_equal(sweep.result.relations, TABLES);
    assert_int_equal(sweep.result.pages_discarded, TABLES * TABLE_PAGES);
    assert_true(sweep.result.max_tags_per_hold <= MAX_TAGS);
    assert_int_equal(after.sweeps - before.sweeps, 1);
    assert_int_equal(after.lookup_drops, before.lookup_drops);
    assert_true(after.tags_read - before.tags_read <= after.frames);
}

/* The log is written; relation files must not be. */
static int count_relation_write(void *arg, const struct mem_event *event)
{
    if (event->call == MEM_CALL_WRITE && strncmp(event->path, DIR_PATH "/rel/", strlen(DIR_PATH "/rel/")) == 0) {
        atomic_fetch_add((atomic_uint *)arg, 1);
    }
    return 0;
}

static void dirty_victims_are_never_written(void **state)
{
    struct drop_test *test = *state;
    struct store_stats stats_before, stats_after;
    atomic_uint relation_writes = 0;
    make_tables(test, "victim", TABLES, TABLE_BYTES);
    const struct bufcache_stats before = count_now(test);
    mem_device_set_hook(test->mem, count_relation_write, &relation_writes);
    unlink_tables(test, "victim", TABLES);
    store_step(test->store);
    mem_device_set_hook(test->mem, NULL, NULL);
    const struct bufcache_stats after = count_now(test);
    const struct store_sweep sweep = last_sweep(test);
    assert_int_equal(sweep.result.dirty_discarded, TABLES * TABLE_PAGES);
    assert_int_equal(atomic_load(&relation_writes), 0);
    assert_int_equal(after.pages_written, before.pages_written);
    /* The checkpoint behind it writes a few pages of the catalog and nothing of the victims. */
    store_get_stats(test->store, &stats_before);
    assert_int_equal(store_checkpoint(test->store), 0);
    store_get_stats(test->store, &stats_after);
    assert_true(stats_after.checkpoint_pages_written - stats_before.checkpoint_pages_written <= 10);
}

/* A fork that is closed again leaves pages that may be changed in place: a drop behind it allocates nothing. */
static void table_dropped_behind_a_closed_fork_goes_with_the_checkpoint(void **state)
{
    struct drop_test *test = *state;
    struct cow *cow = store_cow(test->store);
    const unsigned before = relation_files(test);
    struct holder *holder = NULL;
    make_tables(test, "victim", 1, TABLE_BYTES);
    assert_int_equal(cow_fork(cow, HOLDER_BACKUP, &holder), 0);
    cow_holder_close(cow, holder);
    unlink_tables(test, "victim", 1);
    assert_int_equal(store_checkpoint(test->store), 0);
    assert_int_equal(relation_files(test), before);
    assert_int_equal(store_check(test->store), 0);
}

static void files_of_dropped_tables_go_with_checkpoints(void **state)
{
    struct drop_test *test = *state;
    make_tables(test, "victim", TABLES, TABLE_BYTES);
    assert_int_equal(store_checkpoint(test->store), 0);
    const unsigned before = relation_files(test);
    assert_true(before > TABLES);
    unlink_tables(test, "victim", TABLES);
    store_step(test->store);
    assert_int_equal(relation_files(test), before); /* the durable checkpoint needs them */
    assert_int_equal(store_checkpoint(test->store), 0);
    store_step(test->store);
    assert_int_equal(store_checkpoint(test->store), 0);
    store_step(test->store);
    assert_int_equal(relation_files(test), before - TABLES);
}

static void tables_not_resident_cost_no_tag(void **state)
{
    struct drop_test *test = *state;
    make_tables(test, "victim", TABLES, TABLE_BYTES);
    assert_int_equal(store_close(test->store), 0);
    open_store(test);
    const struct bufcache_stats before = count_now(test);
    unlink_tables(test, "victim", TABLES);
    store_step(test->store);
    const struct bufcache_stats after = count_now(test);
    const struct store_sweep sweep = last_sweep(test);
    assert_int_equal(sweep.result.mode, DROP_MODE_NONE);
    assert_int_equal(sweep.result.relations, TABLES);
    assert_int_equal(sweep.result.tags_read, 0);
    assert_int_equal(after.tags_read, before.tags_read);
    assert_int_equal(after.sweeps, before.sweeps);
}

static void few_blocks_are_looked_up(void **state)
{
    struct drop_test *test = *state;
    make_tables(test, "victim", 3, 100);
    unlink_tables(test, "victim", 3);
    const struct bufcache_stats before = count_now(test);
    store_step(test->store);
    const struct bufcache_stats after = count_now(test);
    const struct store_sweep sweep = last_sweep(test);
    assert_int_equal(sweep.result.mode, DROP_MODE_LOOKUP);
    assert_int_equal(sweep.result.pages_discarded, 3);
    assert_int_equal(after.sweeps, before.sweeps);
    assert_int_equal(after.lookup_drops - before.lookup_drops, 1);
    assert_true(sweep.result.tags_read < 32);
}

static void open_unlinked_table_is_dropped_when_closed(void **state)
{
    struct drop_test *test = *state;
    struct store_file *file;
    const ino_no ino = make_table(test, "open", 0, TABLE_BYTES);
    assert_int_equal(store_file_open(test->store, store_live(test->store), ino, &file), 0);
    make_tables(test, "victim", TABLES, TABLE_BYTES);
    unlink_tables(test, "open", 1);
    unlink_tables(test, "victim", TABLES);
    store_step(test->store);
    assert_int_equal(last_sweep(test).result.relations, TABLES);
    expect_content(test, file, TABLE_BYTES);
    store_file_close(file);
    store_step(test->store);
    assert_int_equal(last_sweep(test).result.relations, 1);
    assert_int_equal(last_sweep(test).result.pages_discarded, TABLE_PAGES);
}

static void held_tables_are_dropped_when_the_holder_closes(void **state)
{
    struct drop_test *test = *state;
    struct cow *cow = store_cow(test->store);
    struct holder *holder;
    struct view *view;
    struct store_file *file;
    const ino_no ino = make_table(test, "held", 0, TABLE_BYTES);
    make_tables(test, "victim", TABLES, TABLE_BYTES);
    assert_int_equal(cow_fork(cow, HOLDER_SNAPSHOT, &holder), 0);
    assert_int_equal(view_open_read_only(cow, holder, &view), 0);
    unlink_tables(test, "held", 1);
    unlink_tables(test, "victim", TABLES);
    const struct bufcache_stats before = count_now(test);
    store_step(test->store);
    const struct bufcache_stats after = count_now(test);
    assert_int_equal(after.discards, before.discards);
    assert_int_equal(store_file_open(test->store, view, ino, &file), 0);
    expect_content(test, file, TABLE_BYTES);
    store_file_close(file);
    view_close(view);
    cow_holder_close(cow, holder);
    store_step(test->store);
    const struct store_sweep sweep = last_sweep(test);
    assert_int_equal(sweep.result.mode, DROP_MODE_SWEEP);
    assert_int_equal(sweep.result.relations, TABLES + 1);
    assert_int_equal(sweep.result.pages_discarded, (TABLES + 1) * TABLE_PAGES);
}

/* ---- a reader beside the sweep ---- */

struct hammer {
    struct drop_test *test;
    struct store_file *files[HAMMERED_TABLES];
    atomic_bool stop;
    atomic_ullong reads;
    atomic_ullong wrong;
};

static void *hammer_run(void *arg)
{
    struct hammer *hammer = arg;
    uint8_t bytes[TABLE_BYTES];
    for (unsigned i = 0; !atomic_load(&hammer->stop); i++) {
        size_t got = 0;
        const int result = store_read(hammer->files[i % HAMMERED_TABLES], 0, bytes, sizeof bytes, &got);
        if (result != 0 || got != TABLE_BYTES || memcmp(bytes, hammer->test->content, TABLE_BYTES) != 0) {
            atomic_fetch_add(&hammer->wrong, 1);
        }
        atomic_fetch_add(&hammer->reads, 1);
    }
    return NULL;
}

static void reader_of_other_tables_is_not_held_up(void **state)
{
    struct drop_test *test = *state;
    struct hammer hammer = {.test = test};
    pthread_t thread;
    for (unsigned i = 0; i < HAMMERED_TABLES; i++) {
        const ino_no ino = make_table(test, "read", i, TABLE_BYTES);
        assert_int_equal(store_file_open(test->store, store_live(test->store), ino, &hammer.files[i]), 0);
    }
    make_tables(test, "victim", TABLES, TABLE_BYTES);
    assert_int_equal(pthread_create(&thread, NULL, hammer_run, &hammer), 0);
    unlink_tables(test, "victim", TABLES);
    do {
        store_step(test->store); /* the first one sweeps; the reader has started by the last */
    } while (atomic_load(&hammer.reads) < 10);
    atomic_store(&hammer.stop, true);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < HAMMERED_TABLES; i++) {
        store_file_close(hammer.files[i]);
    }
    assert_int_equal(atomic_load(&hammer.wrong), 0);
    const struct store_sweep sweep = last_sweep(test);
    assert_int_equal(sweep.result.mode, DROP_MODE_SWEEP);
    assert_int_equal(sweep.result.pages_discarded, TABLES * TABLE_PAGES);
    assert_true(sweep.result.max_tags_per_hold <= MAX_TAGS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(thousand_resident_tables_cost_one_pass, setup, teardown),
        cmocka_unit_test_setup_teardown(dirty_victims_are_never_written, setup, teardown),
        cmocka_unit_test_setup_teardown(table_dropped_behind_a_closed_fork_goes_with_the_checkpoint, setup, teardown),
        cmocka_unit_test_setup_teardown(files_of_dropped_tables_go_with_checkpoints, setup, teardown),
        cmocka_unit_test_setup_teardown(tables_not_resident_cost_no_tag, setup, teardown),
        cmocka_unit_test_setup_teardown(few_blocks_are_looked_up, setup, teardown),
        cmocka_unit_test_setup_teardown(open_unlinked_table_is_dropped_when_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(held_tables_are_dropped_when_the_holder_closes, setup, teardown),
        cmocka_unit_test_setup_teardown(reader_of_other_tables_is_not_held_up, setup, teardown),
    };
    return cmocka_run_group_tests_name("test_drop", tests, NULL, NULL);
}
