/*
 * tests/model/test_store_edges.c - directed cases at the edges of the store: what is large goes away again, locks are
 * free when the last reference goes, counts survive a kill in the middle.
 */
#include "table/cow_int.h"
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <errno.h>
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

#define SMALL_CACHE_BYTES (UINT64_C(16) << 20)
#define BULK_BYTES        (1u << 20)
#define BULK_FILES        100u

struct fixture {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    atomic_bool made; /* the file that is made during a checkpoint */
};

static void open_store(struct fixture *f)
{
    const struct store_options options = {
        .dev = mem_device_io(f->mem), .diag = &f->diag, .dir = "/d", .cache_size_bytes = SMALL_CACHE_BYTES};
    assert_int_equal(store_open(&options, &f->store, NULL), 0);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->mem = mem_device_create(3);
    diag_init_stderr(&f->diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(f->mem), .diag = &f->diag, .dir = "/d", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(store_check(f->store), 0);
    assert_int_equal(store_close(f->store), 0);
    mem_device_destroy(f->mem);
    free(f);
    return 0;
}

static struct store_name number_name(char *buffer, size_t capacity, uint32_t number)
{
    const int size = snprintf(buffer, capacity, "user.%u", number);
    return (struct store_name){.bytes = buffer, .size = (size_t)size};
}

static int create(struct fixture *f, struct store_name name, ino_no *out_ino)
{
    struct store_attr attr = {.ino = INO_NONE};
    const int rc =
        store_create(f->store, store_live(f->store), INO_ROOT, name, S_IFREG | 0644, 0, (struct store_who){0}, &attr);
    *out_ino = attr.ino;
    return rc;
}

/* Sets attributes until there is no room. Returns how many. */
static uint32_t fill_attributes(struct fixture *f, ino_no ino, size_t value_size)
{
    const uint8_t value[XATTR_MAX_VALUE] = {1};
    uint32_t count = 0;
    for (int rc = 0; rc == 0; count++) {
        char name[32];
        (void)number_name(name, sizeof name, count);
        rc = store_setxattr(f->store, store_live(f->store), ino, name, value, value_size, 0);
        assert_true(rc == 0 || rc == -ENOSPC);
    }
    return count - 1;
}

/* Removal is one operation over all of them; it has to find room in the smallest cache. */
static void inode_full_of_attributes_can_be_removed(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {XATTR_MAX_VALUE, 500, 1, 0};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        const struct store_name name = {.bytes = "full", .size = 4};
        char list[65536];
        size_t list_size = 0;
        ino_no ino;
        assert_int_equal(create(f, name, &ino), 0);
        assert_true(fill_attributes(f, ino, sizes[i]) >= 20);
        assert_int_equal(store_listxattr(f->store, store_live(f->store), ino, list, sizeof list, &list_size), 0);
        assert_int_equal(store_checkpoint(f->store), 0); /* nothing of them can be changed in place now */
        assert_int_equal(store_unlink(f->store, store_live(f->store), INO_ROOT, name), 0);
    }
}

/* Only what makes them more is refused for want of room. */
static void attribute_where_no_more_fit_can_be_replaced(void **state)
{
    struct fixture *f = *state;
    struct view *live = store_live(f->store);
    static const size_t sizes[] = {XATTR_MAX_VALUE, 500, 12};
    static const char longer_name[] = "an attribute whose name is longer than the others";
    const uint8_t value[XATTR_MAX_VALUE] = {2};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        uint8_t got[XATTR_MAX_VALUE];
        char names[2][32];
        size_t got_size = 0;
        ino_no ino;
        assert_int_equal(create(f, number_name(names[0], sizeof names[0], (uint32_t)(1000000 + i)), &ino), 0);
        const uint32_t count = fill_attributes(f, ino, sizes[i]);
        for (uint32_t which = 0; which < 2; which++) {
            (void)number_name(names[which], sizeof names[which], which * (count - 1));
            assert_int_equal(store_setxattr(f->store, live, ino, names[which], value, 3, STORE_XATTR_CREATE), -EEXIST);
            assert_int_equal(store_setxattr(f->store, live, ino, names[which], value, sizes[i], STORE_XATTR_REPLACE),
                             0);
            assert_int_equal(store_setxattr(f->store, live, ino, names[which], value, sizes[i] - 1, 0), 0);
        }
        assert_int_equal(store_setxattr(f->store, live, ino, "none", value, sizes[i], STORE_XATTR_REPLACE), -ENODATA);
        assert_int_equal(store_setxattr(f->store, live, ino, longer_name, value, sizes[i], 0), -ENOSPC);
        assert_int_equal(store_getxattr(f->store, live, ino, longer_name, got, sizeof got, &got_size), -ENODATA);
        assert_int_equal(store_getxattr(f->store, live, ino, names[1], got, sizeof got, &got_size), 0);
        assert_int_equal(got_size, sizes[i] - 1);
        assert_memory_equal(got, value, got_size);
    }
}

/* A checkpoint forgets relations that the log referred to; for some of them that is the last reference. */
static void bulk_tables_that_left_the_cache_are_forgotten(void **state)
{
    struct fixture *f = *state;
    uint8_t *bytes = calloc(1, BULK_BYTES);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < BULK_FILES; i++) {
        char name[32];
        struct store_file *file;
        uint64_t end;
        ino_no ino;
        assert_int_equal(create(f, number_name(name, sizeof name, i), &ino), 0);
        assert_int_equal(store_file_open(f->store, store_live(f->store), ino, &file), 0);
        assert_int_equal(store_write(file, 0, bytes, BULK_BYTES, STORE_WRITE_APPEND, &end), 0);
        store_file_close(file);
        if (i == BULK_FILES / 4) { /* on disk, thus evictable; those behind push them out */
            assert_int_equal(store_sync(f->store), 0);
            bufcache_step(store_cache(f->store));
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        ino_no ino;
        assert_int_equal(create(f, (struct store_name){.bytes = i == 0 ? "a" : "b", .size = 1}, &ino), 0);
        assert_int_equal(store_checkpoint(f->store), 0);
    }
    free(bytes);
}

static void *make_file(void *arg)
{
    struct fixture *f = arg;
    ino_no ino;
    return create(f, (struct store_name){.bytes = "meanwhile", .size = 9}, &ino) == 0 ? NULL : arg;
}

/* The checkpoint has forked and begins to write: now another thread makes a file. */
static int make_file_at_first_write(void *arg, const struct mem_event *event)
{
    struct fixture *f = arg;
    pthread_t thread;
    void *failed = NULL;
    if (event->call != MEM_CALL_WRITE || strncmp(event->path, "/d/rel/", 7) != 0 || atomic_exchange(&f->made, true)) {
        return 0;
    }
    if (pthread_create(&thread, NULL, make_file, f) != 0 || pthread_join(thread, &failed) != 0) {
        return -EIO;
    }
    return failed == NULL ? 0 : -EIO;
}

/* What the control slot says is of the moment of the fork, however much happens until it is written. */
static void inode_made_during_a_checkpoint_is_counted_once(void **state)
{
    struct fixture *f = *state;
    ino_no ino;
    assert_int_equal(create(f, (struct store_name){.bytes = "before", .size = 6}, &ino), 0);
    mem_device_set_hook(f->mem, make_file_at_first_write, f);
    assert_int_equal(store_checkpoint(f->store), 0);
    mem_device_set_hook(f->mem, NULL, NULL);
    assert_true(f->made);
    store_abandon(f->store);
    open_store(f);
    assert_int_equal(store_check(f->store), 0); /* counts inodes */
}

/* ---- reading before the gate ---- */

struct gate_watch {
    struct store *store;
    unsigned reads, reads_under_gate;
};

static int watch_read(void *arg, const struct mem_event *event)
{
    struct gate_watch *watch = arg;
    struct rwlock *gate = &store_cow(watch->store)->gate;
    if (event->call != MEM_CALL_READ || strncmp(event->path, "/d/rel/", 7) != 0) {
        return 0;
    }
    watch->reads++;
    if (rwlock_try_lock_exclusive(gate)) {
        rwlock_unlock_exclusive(gate);
    } else {
        watch->reads_under_gate++;
    }
    return 0;
}

#define NAMES 3000u /* of several catalog pages */

static void change_cold(struct fixture *f, unsigned kind, ino_no table)
{
    struct view *live = store_live(f->store);
    struct store_attr attr = {.size_bytes = 150 * PAGE_PAYLOAD_SIZE + 7, .mode = 0600}, after;
    struct store_file *file = NULL;
    char name[32], name2[32];
    uint64_t end;
    ino_no ino;
    assert_int_equal(store_file_open(f->store, live, table, &file), 0);
    switch (kind) {
    case 0:
        assert_int_equal(store_write(file, 0, "row", 3, STORE_WRITE_APPEND, &end), 0);
        break;
    case 1:
        assert_int_equal(store_write(file, 200 * PAGE_PAYLOAD_SIZE + 9, name, sizeof name, 0, &end), 0);
        break;
    case 2:
        assert_int_equal(store_setattr(f->store, live, table, STORE_SET_SIZE, &attr, &after), 0);
        break;
    case 3:
        assert_int_equal(
            store_allocate(file, 100, 100 * PAGE_PAYLOAD_SIZE, STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_KEEP_SIZE), 0);
        break;
    case 4:
        assert_int_equal(create(f, number_name(name, sizeof name, NAMES + 1), &ino), 0);
        break;
    case 5:
        assert_int_equal(store_unlink(f->store, live, INO_ROOT, number_name(name, sizeof name, 77)), 0);
        break;
    case 6:
        assert_int_equal(store_rename(f->store, live, INO_ROOT, number_name(name, sizeof name, 1234), INO_ROOT,
                                      number_name(name2, sizeof name2, 2345), 0),
                         0);
        break;
    default:
        assert_int_equal(store_setattr(f->store, live, table - 1500, STORE_SET_MODE, &attr, &after), 0);
        break;
    }
    store_file_close(file);
}

/* A fork waits for whoever is in the gate: nobody reads from the disk there. */
static void cold_pages_are_read_before_the_gate(void **state)
{
    struct fixture *f = *state;
    struct store_file *file;
    char name[32];
    ino_no ino;
    uint64_t end;
    const size_t size = 300 * PAGE_PAYLOAD_SIZE;
    uint8_t *bytes = calloc(1, size);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < NAMES; i++) {
        assert_int_equal(create(f, number_name(name, sizeof name, i), &ino), 0);
    }
    assert_int_equal(store_file_open(f->store, store_live(f->store), ino, &file), 0);
    assert_int_equal(store_write(file, 0, bytes, size, 0, &end), 0);
    store_file_close(file);
    free(bytes);
    for (unsigned kind = 0; kind < 8; kind++) {
        assert_int_equal(store_close(f->store), 0);
        open_store(f);
        struct gate_watch watch = {.store = f->store};
        mem_device_set_hook(f->mem, watch_read, &watch);
        change_cold(f, kind, ino);
        mem_device_set_hook(f->mem, NULL, NULL);
        assert_true(watch.reads > 0);
        if (watch.reads_under_gate > 0) {
            fail_msg("kind %u: %u of %u reads under the gate", kind, watch.reads_under_gate, watch.reads);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(attribute_where_no_more_fit_can_be_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(inode_full_of_attributes_can_be_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bulk_tables_that_left_the_cache_are_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cold_pages_are_read_before_the_gate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(inode_made_during_a_checkpoint_is_counted_once, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
