/*
 * tests/model/test_write_failure.c - the first page that cannot be written makes the store read-only at once, although the
 * log could go on (RELIABILITY R1 in docs/TESTING.md): the next checkpoint would fail as well.
 */
#include "tests/lib/mem_device.h"
#include "txn/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

static int create(struct store *store, const char *name, ino_no *out_ino)
{
    struct store_attr attr = {0};
    const struct store_name made = {.bytes = name, .size = 1};
    const int rc =
        store_create(store, store_live(store), INO_ROOT, made, S_IFREG | 0644, 0, (struct store_who){0}, &attr);
    *out_ino = attr.ino;
    return rc;
}

static void page_that_cannot_be_written_makes_the_store_read_only(void **state)
{
    (void)state;
    static uint8_t bytes[8 * BLOCK_SIZE];
    struct mem_device *mem = mem_device_create(3);
    struct store *store = NULL;
    struct store_file *file = NULL;
    struct store_attr attr;
    struct diag diag;
    ino_no ino = 0;
    ino_no other = 0;
    uint64_t end = 0;
    diag_init_silent(&diag);
    const struct store_mkfs_options mkfs = {.dev = mem_device_io(mem), .diag = &diag, .dir = "/d", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    /* An append by reference writes its pages before anything else. */
    const struct store_options options = {
        .dev = mem_device_io(mem), .diag = &diag, .dir = "/d", .log_segment_size = 65536, .bulk_min_bytes = 1};
    assert_int_equal(store_open(&options, &store, NULL), 0);
    assert_int_equal(create(store, "a", &ino), 0);
    assert_int_equal(store_file_open(store, store_live(store), ino, &file), 0);
    mem_device_fail(mem, MEM_CALL_WRITE, 1, EIO, false);
    assert_int_equal(store_write(file, 0, bytes, sizeof bytes, STORE_WRITE_APPEND, &end), -EIO);
    store_file_close(file);
    assert_non_null(store_read_only_reason(store));
    assert_int_equal(create(store, "b", &other), -EROFS);
    assert_int_equal(store_checkpoint(store), -EROFS);
    assert_int_equal(store_sync(store), 0); /* what was acknowledged can still be made durable */
    store_abandon(store);
    assert_int_equal(store_open(&options, &store, NULL), 0);
    assert_int_equal(store_getattr(store, store_live(store), ino, &attr), 0);
    assert_int_equal(attr.size_bytes, 0);
    assert_int_equal(store_check(store), 0);
    assert_int_equal(store_close(store), 0);
    mem_device_destroy(mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_that_cannot_be_written_makes_the_store_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
