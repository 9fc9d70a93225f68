/*
 * tests/model/test_bulk.c - content that goes into the log by reference (COW-4, txn/store_pages.c): bulk appends among small
 * ones, truncations, removals, checkpoints, holders and kills, against byte arrays.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define FILES     4u
#define FILE_MAX  (6u << 20)
#define WRITE_MAX (1u << 20)

struct bulk_file {
    ino_no ino; /* INO_NONE: does not exist */
    uint8_t *bytes;
    size_t size;
};

struct bulk_rig {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    struct test_random random;
    struct bulk_file files[FILES];
    struct holder *holder;
    uint8_t *data;
};

static void open_store(struct bulk_rig *rig)
{
    const struct store_options options = {.dev = mem_device_io(rig->mem), .diag = &rig->diag, .dir = "/d"};
    assert_int_equal(store_open(&options, &rig->store, NULL), 0);
}

static struct store_name file_name(unsigned index, char *buffer)
{
    const int size = snprintf(buffer, 8, "f%u", index);
    return (struct store_name){.bytes = buffer, .size = (size_t)size};
}

static void create(struct bulk_rig *rig, unsigned index)
{
    char name[8];
    struct store_attr attr;
    assert_int_equal(store_create(rig->store, store_live(rig->store), INO_ROOT, file_name(index, name), S_IFREG | 0644,
                                  0, (struct store_who){0}, &attr),
                     0);
    rig->files[index].ino = attr.ino;
    rig->files[index].size = 0;
}

static void append(struct bulk_rig *rig, unsigned index, size_t size)
{
    struct bulk_file *file = &rig->files[index];
    struct store_file *open = NULL;
    uint64_t end = 0;
    if (file->size + size > FILE_MAX) {
        return;
    }
    const uint8_t *bytes = rig->data + test_random_below(&rig->random, WRITE_MAX);
    assert_int_equal(store_file_open(rig->store, store_live(rig->store), file->ino, &open), 0);
    assert_int_equal(store_write(open, 0, bytes, size, STORE_WRITE_APPEND, &end), 0);
    store_file_close(open);
    memcpy(file->bytes + file->size, bytes, size);
    file->size += size;
    assert_true(end == file->size);
}

static void resize(struct bulk_rig *rig, unsigned index)
{
    struct bulk_file *file = &rig->files[index];
    struct store_attr attr = {.size_bytes = test_random_below(&rig->random, file->size + 1)};
    struct store_attr after;
    if (test_random_chance(&rig->random, 20)) {
        attr.size_bytes = 0;
    }
    assert_int_equal(store_setattr(rig->store, store_live(rig->store), file->ino, STORE_SET_SIZE, &attr, &after), 0);
    file->size = attr.size_bytes;
}

static void verify(struct bulk_rig *rig)
{
    uint8_t *got = malloc(FILE_MAX);
    assert_non_null(got);
    for (unsigned i = 0; i < FILES; i++) {
        const struct bulk_file *file = &rig->files[i];
        struct store_file *open = NULL;
        size_t size = 0;
        if (file->ino == INO_NONE) {
            continue;
        }
        assert_int_equal(store_file_open(rig->store, store_live(rig->store), file->ino, &open), 0);
        assert_int_equal(store_read(open, 0, got, FILE_MAX, &size), 0);
        store_file_close(open);
        assert_int_equal(size, file->size);
        assert_memory_equal(got, file->bytes, file->size);
    }
    free(got);
    assert_int_equal(store_check(rig->store), 0);
}

static void toggle_holder(struct bulk_rig *rig)
{
    struct cow *cow = store_cow(rig->store);
    if (rig->holder != NULL) {
        cow_holder_close(cow, rig->holder);
        rig->holder = NULL;
    } else {
        assert_int_equal(cow_fork(cow, HOLDER_TRANSACTION, &rig->holder), 0);
    }
}

static void kill_and_reopen(struct bulk_rig *rig)
{
    if (rig->holder != NULL) {
        toggle_holder(rig);
    }
    store_abandon(rig->store);
    open_store(rig);
    verify(rig);
}

static void step(struct bulk_rig *rig)
{
    const unsigned index = (unsigned)test_random_below(&rig->random, FILES);
    struct bulk_file *file = &rig->files[index];
    char name[8];
    if (file->ino == INO_NONE) {
        create(rig, index);
        return;
    }
    switch (test_random_below(&rig->random, 16)) {
    case 0:
        assert_int_equal(store_unlink(rig->store, store_live(rig->store), INO_ROOT, file_name(index, name)), 0);
        file->ino = INO_NONE;
        break;
    case 1:
    case 2:
        resize(rig, index);
        break;
    case 3:
        assert_int_equal(store_checkpoint(rig->store), 0);
        break;
    case 4:
        toggle_holder(rig);
        break;
    case 5:
        kill_and_reopen(rig);
        break;
    case 6:
    case 7:
        append(rig, index, 1 + test_random_below(&rig->random, 20000));
        break;
    case 8:
        store_step(rig->store);
        break;
    default:
        append(rig, index, test_random_range(&rig->random, 512u << 10, WRITE_MAX));
        break;
    }
}

static void bulk_appends_survive_kills_by_reference(void **state)
{
    (void)state;
    struct bulk_rig rig = {.holder = NULL};
    test_random_init(&rig.random, test_seed("test_bulk"));
    rig.mem = mem_device_create(7);
    diag_init_stderr(&rig.diag, DIAG_WARNING);
    rig.data = malloc(2 * WRITE_MAX);
    assert_non_null(rig.data);
    test_random_bytes(&rig.random, rig.data, 2 * WRITE_MAX);
    for (unsigned i = 0; i < FILES; i++) {
        rig.files[i].bytes = malloc(FILE_MAX);
        assert_non_null(rig.files[i].bytes);
    }
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(rig.mem), .diag = &rig.diag, .dir = "/d", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(&rig);
    const unsigned steps = test_is_long() ? 20000 : 1500;
    for (unsigned i = 0; i < steps; i++) {
        step(&rig);
        if (i % 50 == 0) {
            verify(&rig);
        }
    }
    struct store_stats stats;
    store_get_stats(rig.store, &stats);
    verify(&rig);
    if (rig.holder != NULL) {
        toggle_holder(&rig);
    }
    assert_int_equal(store_close(rig.store), 0);
    open_store(&rig);
    verify(&rig);
    assert_int_equal(store_close(rig.store), 0);
    for (unsigned i = 0; i < FILES; i++) {
        free(rig.files[i].bytes);
    }
    free(rig.data);
    mem_device_destroy(rig.mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bulk_appends_survive_kills_by_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
