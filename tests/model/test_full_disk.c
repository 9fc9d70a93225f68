/*
 * tests/model/test_full_disk.c - a disk that runs full: every refusal is -ENOSPC and changes nothing, everything can be
 * removed again however full it is (RELIABILITY R9 in docs/TESTING.md), and then there is room again.
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

#define FILES_MAX   400u
#define FILE_BYTES  60000u
#define SEGMENT     (UINT32_C(64) << 10)
#define DISK_BYTES  (UINT64_C(6) << 20)
#define REFUSALS    40u
#define WRITE_BYTES 3000u

struct full_rig {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    struct test_random random;
    ino_no inos[FILES_MAX]; /* INO_NONE: does not exist */
    uint64_t sizes[FILES_MAX];
};

static void open_store(struct full_rig *rig)
{
    const struct store_options options = {.dev = mem_device_io(rig->mem),
                                          .diag = &rig->diag,
                                          .dir = "/d",
                                          .log_segment_size = SEGMENT,
                                          .bulk_min_bytes = 20000};
    assert_int_equal(store_open(&options, &rig->store, NULL), 0);
}

static struct store_name file_name(unsigned index, char *buffer)
{
    const int size = snprintf(buffer, 16, "file%u", index);
    return (struct store_name){.bytes = buffer, .size = (size_t)size};
}

static int create(struct full_rig *rig, unsigned index)
{
    char name[16];
    struct store_attr attr;
    const int rc = store_create(rig->store, store_live(rig->store), INO_ROOT, file_name(index, name), S_IFREG | 0644, 0,
                                (struct store_who){0}, &attr);
    if (rc == 0) {
        rig->inos[index] = attr.ino;
        rig->sizes[index] = 0;
    }
    return rc;
}

static int append(struct full_rig *rig, unsigned index, size_t size)
{
    static uint8_t bytes[FILE_BYTES];
    struct store_file *file = NULL;
    uint64_t end = 0;
    assert_int_equal(store_file_open(rig->store, store_live(rig->store), rig->inos[index], &file), 0);
    const int rc = store_write(file, 0, bytes, size, STORE_WRITE_APPEND, &end);
    rig->sizes[index] += rc == 0 ? size : 0;
    store_file_close(file);
    return rc;
}

/* Creates and appends until that was refused many times; other operations go on in between. */
static void fill(struct full_rig *rig)
{
    unsigned refused = 0;
    while (refused < REFUSALS) {
        const unsigned index = (unsigned)test_random_below(&rig->random, FILES_MAX);
        int rc;
        if (rig->inos[index] == INO_NONE) {
            rc = create(rig, index);
        } else {
            rc = append(rig, index, 1 + test_random_below(&rig->random, refused > 0 ? WRITE_BYTES : FILE_BYTES));
        }
        assert_true(rc == 0 || rc == -ENOSPC);
        refused += rc == -ENOSPC;
        if (test_random_chance(&rig->random, 5)) {
            store_step(rig->store);
        }
        assert_null(store_read_only_reason(rig->store));
    }
}

static void verify(struct full_rig *rig)
{
    for (unsigned i = 0; i < FILES_MAX; i++) {
        struct store_attr attr;
        if (rig->inos[i] != INO_NONE) {
            assert_int_equal(store_getattr(rig->store, store_live(rig->store), rig->inos[i], &attr), 0);
            assert_int_equal(attr.size_bytes, rig->sizes[i]);
        }
    }
    assert_int_equal(store_check(rig->store), 0);
}

/* Each removal succeeds, in any order, by unlinking or by cutting to nothing first. */
static void empty(struct full_rig *rig)
{
    char name[16];
    const unsigned first = (unsigned)test_random_below(&rig->random, FILES_MAX);
    for (unsigned i = 0; i < FILES_MAX; i++) {
        const unsigned index = (first + i) % FILES_MAX;
        if (rig->inos[index] == INO_NONE) {
            continue;
        }
        if (test_random_chance(&rig->random, 30)) {
            struct store_attr attr = {.size_bytes = 0};
            struct store_attr after;
            assert_int_equal(
                store_setattr(rig->store, store_live(rig->store), rig->inos[index], STORE_SET_SIZE, &attr, &after), 0);
        }
        assert_int_equal(store_unlink(rig->store, store_live(rig->store), INO_ROOT, file_name(index, name)), 0);
        rig->inos[index] = INO_NONE;
        store_step(rig->store);
    }
}

static void full_disk_can_be_emptied_and_filled_again(void **state)
{
    (void)state;
    struct full_rig rig = {.store = NULL};
    test_random_init(&rig.random, test_seed("test_full_disk"));
    rig.mem = mem_device_create(3);
    diag_init_stderr(&rig.diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(rig.mem), .diag = &rig.diag, .dir = "/d", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    mem_device_set_capacity(rig.mem, DISK_BYTES);
    open_store(&rig);
    const unsigned rounds = test_is_long() ? 200 : 8;
    for (unsigned round = 0; round < rounds; round++) {
        fill(&rig);
        verify(&rig);
        if (round % 3 == 1) {
            store_abandon(rig.store);
            open_store(&rig);
            verify(&rig);
        }
        empty(&rig);
        assert_int_equal(store_checkpoint(rig.store), 0);
        assert_int_equal(create(&rig, 0), 0);
        assert_int_equal(append(&rig, 0, FILE_BYTES), 0);
    }
    assert_int_equal(store_close(rig.store), 0);
    mem_device_destroy(rig.mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_disk_can_be_emptied_and_filled_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
