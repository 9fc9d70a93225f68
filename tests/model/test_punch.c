/*
 * tests/model/test_punch.c - space inside of large files: given back at checkpoints, and there again before it is needed.
 *
 * A table of many leaves loses most of them, in stretches, and keeps its first, its last and some in between.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define LEAF_BYTES    ((uint64_t)PAGE_PAYLOAD_SIZE)
#define STRETCH       200u /* leaves, of which the first KEPT stay */
#define KEPT          20u
#define STRETCHES     8u
#define LEAVES        (STRETCH * STRETCHES)
#define TABLE_BYTES   (LEAVES * LEAF_BYTES)
#define PUNCHED_LEAST ((STRETCH - KEPT) * (STRETCHES - 3))

struct fixture {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    struct store_file *file;
    ino_no ino;
    uint8_t *bytes; /* what the table holds */
    uint8_t *got;
};

static void open_store(struct fixture *f)
{
    const struct store_options options = {.dev = mem_device_io(f->mem), .diag = &f->diag, .dir = "/d"};
    assert_int_equal(store_open(&options, &f->store, NULL), 0);
}

static void open_table(struct fixture *f)
{
    assert_int_equal(store_file_open(f->store, store_live(f->store), f->ino, &f->file), 0);
}

static void write_table(struct fixture *f, uint64_t first_leaf, uint64_t leaves)
{
    uint64_t end = 0;
    memset(f->bytes + first_leaf * LEAF_BYTES, (int)('a' + first_leaf % 26), leaves * LEAF_BYTES);
    assert_int_equal(
        store_write(f->file, first_leaf * LEAF_BYTES, f->bytes + first_leaf * LEAF_BYTES, leaves * LEAF_BYTES, 0, &end),
        0);
}

static void make_table(struct fixture *f)
{
    const struct store_name name = {.bytes = "t", .size = 1};
    struct store_attr attr;
    assert_int_equal(
        store_create(f->store, store_live(f->store), INO_ROOT, name, S_IFREG | 0644, 0, (struct store_who){0}, &attr),
        0);
    f->ino = attr.ino;
    open_table(f);
    for (uint64_t leaf = 0; leaf < LEAVES; leaf += 50) {
        write_table(f, leaf, 50);
    }
    assert_int_equal(store_checkpoint(f->store), 0);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->mem = mem_device_create(5);
    diag_init_silent(&f->diag);
    f->bytes = malloc(TABLE_BYTES);
    f->got = malloc(TABLE_BYTES);
    assert_true(f->bytes != NULL && f->got != NULL);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(f->mem), .diag = &f->diag, .dir = "/d", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(f);
    make_table(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    store_file_close(f->file);
    assert_int_equal(store_close(f->store), 0);
    mem_device_destroy(f->mem);
    free(f->bytes);
    free(f->got);
    free(f);
    return 0;
}

static rel_no relation_of_table(struct fixture *f)
{
    struct view *live = store_live(f->store);
    struct inode inode;
    rwlock_lock_shared(&live->catalog_lock);
    assert_int_equal(inode_get(live, f->ino, &inode), 0);
    rwlock_unlock_shared(&live->catalog_lock);
    return inode.rel;
}

static struct io_stat stat_file(struct fixture *f)
{
    char path[64];
    struct io_stat st;
    const rel_no rel = relation_of_table(f);
    (void)snprintf(path, sizeof path, "/d/rel/%02" PRIx64 "/%016" PRIx64, rel & 0xff, rel);
    assert_int_equal(io_stat(mem_device_io(f->mem), path, &st), 0);
    return st;
}

/* Blocks of the file without space. */
static uint64_t hole_blocks(struct fixture *f)
{
    const struct io_stat st = stat_file(f);
    return (st.size_bytes - st.allocated_bytes) / BLOCK_SIZE;
}

static uint64_t punched_so_far(struct fixture *f)
{
    struct store_stats stats;
    store_get_stats(f->store, &stats);
    return stats.blocks_punched;
}

/* The bytes are read back from the disk: a page in the cache would hide a hole. */
static void expect_content(struct fixture *f)
{
    size_t size = 0;
    store_file_close(f->file);
    assert_int_equal(store_close(f->store), 0);
    open_store(f);
    open_table(f);
    for (uint64_t at = 0; at < TABLE_BYTES; at += size) {
        assert_int_equal(store_read(f->file, at, f->got + at, TABLE_BYTES - at, &size), 0);
        assert_true(size > 0);
    }
    assert_memory_equal(f->got, f->bytes, TABLE_BYTES);
    assert_int_equal(store_check(f->store), 0);
}

static void lose_most(struct fixture *f)
{
    for (uint64_t leaf = KEPT; leaf < LEAVES; leaf += STRETCH) {
        const uint64_t count = leaf + STRETCH > LEAVES ? STRETCH - 2 * KEPT : STRETCH - KEPT;
        memset(f->bytes + leaf * LEAF_BYTES, 0, count * LEAF_BYTES);
        assert_int_equal(store_allocate(f->file, leaf * LEAF_BYTES, count * LEAF_BYTES,
                                        STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_KEEP_SIZE),
                         0);
    }
}

/* Two: what the last checkpoint sees is not free before the next one is durable. */
static void checkpoint_twice(struct fixture *f)
{
    assert_int_equal(store_checkpoint(f->store), 0);
    write_table(f, 0, 1);
    assert_int_equal(store_checkpoint(f->store), 0);
}

static void file_that_is_mostly_free_gives_space_back(void **state)
{
    struct fixture *f = *state;
    lose_most(f);
    assert_int_equal(punched_so_far(f), 0);
    assert_int_equal(hole_blocks(f), 0);
    checkpoint_twice(f);
    assert_in_range(punched_so_far(f), PUNCHED_LEAST, LEAVES);
    assert_int_equal(hole_blocks(f), punched_so_far(f));
    assert_true(stat_file(f).size_bytes >= TABLE_BYTES);
    assert_int_equal(store_check(f->store), 0);
    const uint64_t before = punched_so_far(f);
    write_table(f, 1, 1);
    assert_int_equal(store_checkpoint(f->store), 0);
    assert_in_range(punched_so_far(f), before, before + STRETCH); /* it does not go on for ever */
    expect_content(f);
}

static void holes_are_filled_before_the_file_grows(void **state)
{
    struct fixture *f = *state;
    lose_most(f);
    checkpoint_twice(f);
    const uint64_t size = stat_file(f).size_bytes;
    const uint64_t holes = hole_blocks(f);
    for (uint64_t leaf = 0; leaf < LEAVES - STRETCH; leaf += 50) {
        write_table(f, leaf, 50);
        assert_int_equal(store_checkpoint(f->store), 0);
    }
    assert_true(hole_blocks(f) < holes);
    assert_int_equal(stat_file(f).size_bytes, size);
    expect_content(f);
}

static void snapshot_keeps_what_it_sees(void **state)
{
    struct fixture *f = *state;
    const struct store_name name = {.bytes = "s", .size = 1};
    assert_int_equal(store_snapshot_create(f->store, name), 0);
    lose_most(f);
    checkpoint_twice(f);
    assert_int_equal(punched_so_far(f), 0);
    assert_int_equal(store_check(f->store), 0);
    assert_int_equal(store_snapshot_drop(f->store, name), 0);
    checkpoint_twice(f);
    for (unsigned i = 0; i < 10; i++) {
        store_step(f->store); /* what the snapshot saw is found by a build */
    }
    checkpoint_twice(f);
    assert_true(punched_so_far(f) >= PUNCHED_LEAST);
    expect_content(f);
}

/* Writes until the disk is full. Each write that was accepted can be written back. */
static void fill_to_the_last_block(struct fixture *f)
{
    uint64_t end = 0;
    int rc = 0;
    for (uint64_t leaf = KEPT; leaf < LEAVES && rc == 0; leaf += 7) {
        const uint64_t at = leaf * LEAF_BYTES;
        const uint64_t size = at + 7 * LEAF_BYTES < TABLE_BYTES ? 7 * LEAF_BYTES : TABLE_BYTES - at;
        rc = store_write(f->file, at, f->got, size, 0, &end);
        memcpy(f->bytes + at, f->got, rc == 0 ? size : 0);
    }
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(store_checkpoint(f->store), 0);
    assert_int_equal(store_check(f->store), 0);
}

static void limit_space(struct fixture *f)
{
    mem_device_set_capacity(f->mem, mem_device_used_bytes(f->mem) + 300 * (uint64_t)BLOCK_SIZE);
    memset(f->got, 'z', TABLE_BYTES);
}

static void full_disk_refuses_writes_into_holes_and_loses_nothing(void **state)
{
    struct fixture *f = *state;
    lose_most(f);
    checkpoint_twice(f);
    limit_space(f);
    fill_to_the_last_block(f);
    mem_device_set_capacity(f->mem, 0);
    expect_content(f);
}

static void holes_of_an_earlier_life_do_the_same(struct fixture *f, bool clean)
{
    lose_most(f);
    checkpoint_twice(f);
    const uint64_t holes = hole_blocks(f);
    store_file_close(f->file);
    if (clean) {
        assert_int_equal(store_close(f->store), 0);
    } else {
        store_abandon(f->store);
    }
    open_store(f);
    open_table(f);
    for (unsigned i = 0; i < 10; i++) {
        write_table(f, KEPT + STRETCHES, 1);
        store_step(f->store); /* the map is built */
    }
    assert_true(hole_blocks(f) > holes / 2);
    limit_space(f);
    fill_to_the_last_block(f);
    mem_device_set_capacity(f->mem, 0);
    expect_content(f);
}

static void holes_are_known_behind_a_clean_end(void **state)
{
    holes_of_an_earlier_life_do_the_same(*state, true);
}

static void holes_are_known_behind_an_unclean_end(void **state)
{
    holes_of_an_earlier_life_do_the_same(*state, false);
}

static void filesystem_without_holes_is_asked_once(void **state)
{
    struct fixture *f = *state;
    struct mem_counters counters;
    mem_device_fail(f->mem, MEM_CALL_PUNCH, 1, EOPNOTSUPP, true);
    lose_most(f);
    checkpoint_twice(f);
    write_table(f, 0, 40);
    checkpoint_twice(f);
    mem_device_counters(f->mem, &counters);
    assert_int_equal(counters.calls[MEM_CALL_PUNCH], 1);
    assert_int_equal(punched_so_far(f), 0);
    mem_device_clear_faults(f->mem);
    expect_content(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(file_that_is_mostly_free_gives_space_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(holes_are_filled_before_the_file_grows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(snapshot_keeps_what_it_sees, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_disk_refuses_writes_into_holes_and_loses_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(holes_are_known_behind_a_clean_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(holes_are_known_behind_an_unclean_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(filesystem_without_holes_is_asked_once, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("model/test_punch", tests, NULL, NULL);
}
