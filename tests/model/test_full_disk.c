/*
 * tests/model/test_full_disk.c - a disk that runs full: every refusal is -ENOSPC and changes nothing, everything can be
 * removed again however full it is (RELIABILITY R9 in docs/TESTING.md), also behind a kill, and then there is room again.
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

static int try_open(struct full_rig *rig)
{
    const struct store_options options = {.dev = mem_device_io(rig->mem),
                                          .diag = &rig->diag,
                                          .dir = "/d",
                                          .log_segment_size = SEGMENT,
                                          .bulk_min_bytes = 20000};
    return store_open(&options, &rig->store, NULL);
}

static void open_store(struct full_rig *rig)
{
    assert_int_equal(try_open(rig), 0);
}

/* A new store on a disk of that size. */
static void begin(struct full_rig *rig, uint64_t seed, uint64_t disk_bytes)
{
    *rig = (struct full_rig){.mem = mem_device_create(seed)};
    test_random_init(&rig->random, seed);
    diag_init_silent(&rig->diag);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(rig->mem), .diag = &rig->diag, .dir = "/d", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    mem_device_set_capacity(rig->mem, disk_bytes);
    open_store(rig);
}

static void end(struct full_rig *rig)
{
    assert_int_equal(store_close(rig->store), 0);
    mem_device_destroy(rig->mem);
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
static void fill(struct full_rig *rig, unsigned refusals)
{
    unsigned refused = 0;
    while (refused < refusals) {
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
static void remove_some(struct full_rig *rig, unsigned count)
{
    char name[16];
    const unsigned first = (unsigned)test_random_below(&rig->random, FILES_MAX);
    for (unsigned i = 0; i < count; i++) {
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
        if (test_random_chance(&rig->random, 50)) {
            store_step(rig->store);
        }
    }
}

static void full_disk_can_be_emptied_and_filled_again(void **state)
{
    (void)state;
    struct full_rig rig;
    begin(&rig, test_seed("test_full_disk"), DISK_BYTES);
    const unsigned rounds = test_is_long() ? 200 : 8;
    for (unsigned round = 0; round < rounds; round++) {
        fill(&rig, REFUSALS);
        verify(&rig);
        if (round % 3 == 1) {
            store_abandon(rig.store);
            open_store(&rig);
            verify(&rig);
        }
        remove_some(&rig, FILES_MAX);
        assert_int_equal(store_checkpoint(rig.store), 0);
        assert_int_equal(create(&rig, 0), 0);
        assert_int_equal(append(&rig, 0, FILE_BYTES), 0);
    }
    end(&rig);
}

/* A start that is cut off at any call that changes the disk leaves what another start finds whole. False: the start does
 * not come to that call. */
static bool cut_off_start(const struct full_rig *rig, enum mem_call call, uint64_t nth)
{
    struct full_rig clone = *rig;
    clone.mem = mem_device_clone(rig->mem);
    mem_device_fail(clone.mem, call, nth, EIO, true);
    const bool cut_off = try_open(&clone) != 0;
    mem_device_clear_faults(clone.mem);
    if (cut_off) {
        open_store(&clone);
        verify(&clone);
    }
    store_abandon(clone.store);
    mem_device_destroy(clone.mem);
    return cut_off;
}

static void cut_off_starts(struct full_rig *rig)
{
    static const enum mem_call calls[] = {MEM_CALL_WRITE,  MEM_CALL_SYNC,   MEM_CALL_TRUNCATE, MEM_CALL_ALLOCATE,
                                          MEM_CALL_UNLINK, MEM_CALL_RENAME, MEM_CALL_SYNC_DIR};
    const enum mem_call call = calls[test_random_below(&rig->random, ARRAY_COUNT(calls))];
    for (uint64_t nth = 1; cut_off_start(rig, call, nth); nth++) {
    }
}

/* Killed with the disk full and some of it removed again, often with the reserve spent. */
static void killed_store_on_full_disk_opens_and_can_be_emptied(void **state)
{
    (void)state;
    const uint64_t seed = test_seed("test_full_disk");
    const unsigned lives = test_is_long() ? 1000 : 40;
    for (unsigned life = 0; life < lives; life++) {
        struct full_rig rig;
        begin(&rig, seed + life,
              DISK_BYTES / 2 + test_random_below(&(struct test_random){seed + life}, DISK_BYTES / 2));
        for (unsigned round = 0; round < 5; round++) {
            fill(&rig, 1 + (unsigned)test_random_below(&rig.random, REFUSALS));
            remove_some(&rig, (unsigned)test_random_below(&rig.random, FILES_MAX));
            store_abandon(rig.store);
            if (test_random_chance(&rig.random, 10)) {
                cut_off_starts(&rig);
            }
            open_store(&rig);
            verify(&rig);
        }
        remove_some(&rig, FILES_MAX);
        end(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_disk_can_be_emptied_and_filled_again),
        cmocka_unit_test(killed_store_on_full_disk_opens_and_can_be_emptied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
