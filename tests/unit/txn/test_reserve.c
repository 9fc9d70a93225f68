/*
 * tests/unit/txn/test_reserve.c - a store on a full disk: what frees works to the end, all else is refused with -ENOSPC and
 * changes nothing, then there is room again; and it can be opened full, after a close and after a kill.
 */
#include "txn/store.h"

#include "tests/lib/mem_device.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#define DIR        "/d"
#define DISK_BYTES (UINT64_C(5) << 20)
#define SEGMENT    (UINT32_C(64) << 10)
#define FILES_MAX  8000u

struct rig {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    ino_no inos[FILES_MAX];
    unsigned count;
};

static void open_store(struct rig *rig)
{
    const struct store_options options = {.dev = mem_device_io(rig->mem),
                                          .diag = &rig->diag,
                                          .dir = DIR,
                                          .cache_size_bytes = 1,
                                          .log_segment_size = SEGMENT};
    assert_int_equal(store_open(&options, &rig->store, NULL), 0);
}

static int setup(void **state)
{
    static struct rig rig;
    memset(&rig, 0, sizeof rig);
    rig.mem = mem_device_create(1);
    diag_init_silent(&rig.diag);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(rig.mem), .diag = &rig.diag, .dir = DIR, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(&rig);
    mem_device_set_capacity(rig.mem, DISK_BYTES);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(store_check(rig->store), 0);
    assert_int_equal(store_close(rig->store), 0);
    mem_device_destroy(rig->mem);
    return 0;
}

static struct store_name name_of(unsigned index, char buffer[24])
{
    const int size = snprintf(buffer, 24, "file-%u", index);
    return (struct store_name){.bytes = buffer, .size = (size_t)size};
}

static int add_file(struct rig *rig)
{
    char name[24];
    struct store_attr attr;
    assert_true(rig->count < FILES_MAX);
    const int rc = store_create(rig->store, store_live(rig->store), INO_ROOT, name_of(rig->count, name), S_IFREG | 0644,
                                0, (struct store_who){0}, &attr);
    if (rc == 0) {
        rig->inos[rig->count++] = attr.ino;
    }
    return rc;
}

static int write_to(struct rig *rig, unsigned index, size_t size)
{
    static const char bytes[60000];
    struct store_file *file = NULL;
    uint64_t end = 0;
    assert_int_equal(store_file_open(rig->store, store_live(rig->store), rig->inos[index], &file), 0);
    const int rc = store_write(file, 0, bytes, size, STORE_WRITE_APPEND, &end);
    store_file_close(file);
    return rc;
}

static uint64_t size_of(struct rig *rig, unsigned index)
{
    struct store_attr attr;
    assert_int_equal(store_getattr(rig->store, store_live(rig->store), rig->inos[index], &attr), 0);
    return attr.size_bytes;
}

/* Large files, then small ones, then names: until none of them fits. */
static void fill(struct rig *rig)
{
    int rc = 0;
    while (rc == 0) {
        rc = add_file(rig);
        rc = rc == 0 ? write_to(rig, rig->count - 1, 60000) : rc;
    }
    assert_int_equal(rc, -ENOSPC);
    for (rc = 0; rc == 0;) {
        rc = write_to(rig, 0, 100);
    }
    assert_int_equal(rc, -ENOSPC);
    for (rc = 0; rc == 0;) {
        rc = add_file(rig);
    }
    assert_int_equal(rc, -ENOSPC);
    assert_null(store_read_only_reason(rig->store));
}

static void expect_refusals(struct rig *rig)
{
    const uint64_t size = size_of(rig, 0);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(add_file(rig), -ENOSPC);
        assert_int_equal(write_to(rig, 0, 60000), -ENOSPC);
    }
    assert_int_equal(size_of(rig, 0), size);
    assert_null(store_read_only_reason(rig->store));
}

static void truncate_to(struct rig *rig, unsigned index, uint64_t size)
{
    const struct store_attr attr = {.size_bytes = size};
    struct store_attr after;
    assert_int_equal(store_setattr(rig->store, store_live(rig->store), rig->inos[index], STORE_SET_SIZE, &attr, &after),
                     0);
    assert_int_equal(after.size_bytes, size);
}

static void remove_all(struct rig *rig)
{
    char name[24];
    while (rig->count > 0) {
        rig->count--;
        assert_int_equal(store_unlink(rig->store, store_live(rig->store), INO_ROOT, name_of(rig->count, name)), 0);
    }
}

static void expect_room(struct rig *rig)
{
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(add_file(rig), 0);
    assert_int_equal(write_to(rig, rig->count - 1, 60000), 0);
}

static void full_store_can_be_emptied_and_filled_again(void **state)
{
    struct rig *rig = *state;
    for (unsigned round = 0; round < 6; round++) {
        mem_device_set_capacity(rig->mem, DISK_BYTES + round * 3 * BLOCK_SIZE); /* what is left over differs */
        fill(rig);
        expect_refusals(rig);
        truncate_to(rig, 1, 12345);
        truncate_to(rig, 2, 0);
        remove_all(rig);
        expect_room(rig);
    }
}

static void full_store_can_be_opened_after_a_close(void **state)
{
    struct rig *rig = *state;
    fill(rig);
    assert_int_equal(store_close(rig->store), 0);
    open_store(rig);
    truncate_to(rig, 1, 777);
    remove_all(rig);
    expect_room(rig);
}

static void full_store_can_be_opened_after_a_kill(void **state)
{
    struct rig *rig = *state;
    fill(rig);
    const uint64_t size = size_of(rig, 0);
    store_abandon(rig->store);
    open_store(rig);
    assert_int_equal(size_of(rig, 0), size);
    truncate_to(rig, 1, 777);
    remove_all(rig);
    expect_room(rig);
}

/* Changes that need no new page, until the one segment that there is has no room and another one cannot be made. */
static void exhaust_log(struct rig *rig)
{
    int rc = 0;
    for (unsigned count = 0; rc == 0; count++) {
        const struct store_attr attr = {.mode = S_IFDIR | 0700 | (count & 7)};
        struct store_attr after;
        assert_true(count < 2 * SEGMENT / 512);
        rc = store_setattr(rig->store, store_live(rig->store), INO_ROOT, STORE_SET_MODE, &attr, &after);
        if (count == 0) {
            mem_device_set_capacity(rig->mem, mem_device_used_bytes(rig->mem));
        }
    }
    assert_int_equal(rc, -ENOSPC);
}

static void snapshot_can_be_dropped_when_the_log_has_no_room(void **state)
{
    const struct store_name name = {.bytes = "kept", .size = 4};
    struct rig *rig = *state;
    assert_int_equal(add_file(rig), 0);
    assert_int_equal(store_snapshot_create(rig->store, name), 0);
    exhaust_log(rig);
    assert_int_equal(store_snapshot_drop(rig->store, name), 0);
    assert_int_equal(store_snapshot_drop(rig->store, name), -ENOENT);
    remove_all(rig);
}

static void file_can_be_removed_when_the_log_has_no_room(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(add_file(rig), 0);
    exhaust_log(rig);
    remove_all(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(full_store_can_be_emptied_and_filled_again, setup, teardown),
        cmocka_unit_test_setup_teardown(full_store_can_be_opened_after_a_close, setup, teardown),
        cmocka_unit_test_setup_teardown(full_store_can_be_opened_after_a_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(snapshot_can_be_dropped_when_the_log_has_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(file_can_be_removed_when_the_log_has_no_room, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
