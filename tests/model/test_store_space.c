/*
 * tests/model/test_store_space.c - what st_blocks says of sparse files, and what a table that was found damaged answers.
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

#define LEAF_BYTES ((uint64_t)PAGE_PAYLOAD_SIZE)
#define LEAF_512   (BLOCK_SIZE / 512)
#define FILE_BYTES (400 * LEAF_BYTES)

struct fixture {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    uint8_t *bytes; /* FILE_BYTES of them */
};

static void open_store(struct fixture *f)
{
    const struct store_options options = {.dev = mem_device_io(f->mem), .diag = &f->diag, .dir = "/d"};
    assert_int_equal(store_open(&options, &f->store, NULL), 0);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->mem = mem_device_create(3);
    diag_init_silent(&f->diag);
    f->bytes = malloc(FILE_BYTES);
    assert_non_null(f->bytes);
    memset(f->bytes, 'x', FILE_BYTES);
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
    assert_int_equal(store_close(f->store), 0);
    mem_device_destroy(f->mem);
    free(f->bytes);
    free(f);
    return 0;
}

static struct store_name name_of(const char *text)
{
    return (struct store_name){.bytes = text, .size = strlen(text)};
}

static struct store_file *create(struct fixture *f, const char *name)
{
    struct store_attr attr;
    struct store_file *file = NULL;
    struct view *live = store_live(f->store);
    assert_int_equal(
        store_create(f->store, live, INO_ROOT, name_of(name), S_IFREG | 0644, 0, (struct store_who){0}, &attr), 0);
    assert_int_equal(store_file_open(f->store, live, attr.ino, &file), 0);
    return file;
}

static void write_at(struct fixture *f, struct store_file *file, uint64_t offset, uint64_t size)
{
    uint64_t end = 0;
    assert_int_equal(store_write(file, offset, f->bytes, size, 0, &end), 0);
}

static void expect_leaves(struct store_file *file, uint64_t leaves)
{
    struct store_attr attr;
    assert_int_equal(store_file_getattr(file, &attr), 0);
    assert_int_equal(attr.blocks_512, leaves * LEAF_512);
}

/* ---- st_blocks ---- */

static void blocks_of_a_sparse_file_are_those_with_data(void **state)
{
    struct fixture *f = *state;
    struct store_file *file = create(f, "sparse");
    struct store_attr attr = {.size_bytes = UINT64_C(1) << 40}, after;
    expect_leaves(file, 0);
    assert_int_equal(store_setattr(f->store, store_live(f->store), store_file_ino(file), STORE_SET_SIZE, &attr, &after),
                     0);
    assert_int_equal(after.blocks_512, 0);
    write_at(f, file, UINT64_C(1) << 30, 1);
    expect_leaves(file, 1);
    write_at(f, file, UINT64_C(1) << 35, 3 * LEAF_BYTES);
    expect_leaves(file, 4);
    assert_int_equal(store_allocate(file, UINT64_C(1) << 30, 1, STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_KEEP_SIZE), 0);
    expect_leaves(file, 3);
    assert_int_equal(store_check(f->store), 0);
    store_file_close(file);
}

static void blocks_of_a_full_file_cover_its_size(void **state)
{
    struct fixture *f = *state;
    struct store_file *file = create(f, "full");
    struct store_attr attr, cut = {.size_bytes = 10 * LEAF_BYTES + 1};
    write_at(f, file, 0, FILE_BYTES);
    expect_leaves(file, 400);
    write_at(f, file, 17, FILE_BYTES / 2); /* over it, in place or not */
    assert_int_equal(store_file_getattr(file, &attr), 0);
    assert_true(attr.blocks_512 * 512 >= attr.size_bytes); /* else cp would look for holes */
    assert_int_equal(store_checkpoint(f->store), 0);
    write_at(f, file, 17, FILE_BYTES / 2);
    assert_int_equal(store_setattr(f->store, store_live(f->store), store_file_ino(file), STORE_SET_SIZE, &cut, &attr),
                     0);
    assert_in_range(attr.blocks_512, 11 * LEAF_512, 13 * LEAF_512);
    assert_int_equal(store_check(f->store), 0);
    cut.size_bytes = 0;
    assert_int_equal(store_setattr(f->store, store_live(f->store), store_file_ino(file), STORE_SET_SIZE, &cut, &attr),
                     0);
    assert_int_equal(attr.blocks_512, 0);
    store_file_close(file);
}

/* ---- files are cut where their last used block ends ---- */

static rel_no relation_of(struct fixture *f, ino_no ino)
{
    struct view *live = store_live(f->store);
    struct inode inode;
    rwlock_lock_shared(&live->catalog_lock);
    assert_int_equal(inode_get(live, ino, &inode), 0);
    rwlock_unlock_shared(&live->catalog_lock);
    return inode.rel;
}

/* Blocks of the relation's file. */
static uint64_t file_blocks(struct fixture *f, rel_no rel)
{
    char path[64];
    struct io_stat stat;
    (void)snprintf(path, sizeof path, "/d/rel/%02" PRIx64 "/%016" PRIx64, rel & 0xff, rel);
    assert_int_equal(io_stat(mem_device_io(f->mem), path, &stat), 0);
    return stat.size_bytes / BLOCK_SIZE;
}

/* Overwritten again and again, with a checkpoint now and then, a table does not take more than twice its blocks. */
static void file_of_constant_size_stays_bounded(void **state)
{
    struct fixture *f = *state;
    static const uint64_t leaves[] = {1, 3, 4, 100};
    for (unsigned i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", i);
        struct store_file *file = create(f, name);
        write_at(f, file, 0, leaves[i] * LEAF_BYTES);
        const rel_no rel = relation_of(f, store_file_ino(file));
        const uint64_t live = leaves[i] + (leaves[i] > 1);
        for (unsigned round = 0; round < 60; round++) {
            write_at(f, file, (round * 5 % leaves[i]) * LEAF_BYTES, LEAF_BYTES);
            if (round % 4 == 0) {
                assert_int_equal(store_checkpoint(f->store), 0);
                assert_in_range(file_blocks(f, rel), live, 3 * live);
            }
        }
        write_at(f, file, 0, 1);
        assert_int_equal(store_checkpoint(f->store), 0);
        write_at(f, file, 0, 1);
        assert_int_equal(store_checkpoint(f->store), 0);
        assert_in_range(file_blocks(f, rel), live, 2 * live + 1);
        store_file_close(file);
    }
    assert_int_equal(store_check(f->store), 0);
}

#define CYCLE_LEAVES UINT64_C(1000)

/* One change that leaves the table as long as it was. */
static void rewrite_something(struct fixture *f, struct store_file *file, struct test_random *random)
{
    const uint64_t leaf = test_random_below(random, CYCLE_LEAVES - 100);
    const uint64_t leaves = test_random_range(random, 1, 4);
    struct store_attr attr = {.size_bytes = (CYCLE_LEAVES - leaves) * LEAF_BYTES};
    switch (test_random_below(random, 40)) {
    case 0: /* in order, a leaf at a time */
        for (uint64_t i = 0; i < 100; i++) {
            write_at(f, file, (leaf + i) * LEAF_BYTES, LEAF_BYTES);
        }
        break;
    case 1: /* at once; the log refers to it */
        write_at(f, file, leaf * LEAF_BYTES, 100 * LEAF_BYTES);
        break;
    case 2:
    case 3:
        assert_int_equal(
            store_setattr(f->store, store_live(f->store), store_file_ino(file), STORE_SET_SIZE, &attr, &attr), 0);
        write_at(f, file, (CYCLE_LEAVES - leaves) * LEAF_BYTES, leaves * LEAF_BYTES);
        break;
    default:
        write_at(f, file, leaf * LEAF_BYTES, leaves * LEAF_BYTES);
        break;
    }
}

static void file_of_a_table_rewritten_again_and_again_stays_bounded(void **state)
{
    struct fixture *f = *state;
    struct test_random random;
    struct store_stats stats;
    uint64_t worst = 0;
    struct store_file *file = create(f, "cycles");
    const unsigned cycles = test_is_long() ? 100000 : 20000;
    test_random_init(&random, test_seed("test_store_space"));
    for (uint64_t leaf = 0; leaf < CYCLE_LEAVES; leaf += 100) {
        write_at(f, file, leaf * LEAF_BYTES, 100 * LEAF_BYTES);
    }
    const rel_no rel = relation_of(f, store_file_ino(file));
    for (unsigned i = 1; i <= cycles; i++) {
        rewrite_something(f, file, &random);
        if (store_wants_checkpoint(f->store) || i % 1000 == 0) {
            assert_int_equal(store_checkpoint(f->store), 0);
        }
        if (i % 1000 == 0) { /* nobody writes beside it: it is a quiet one */
            const uint64_t blocks = file_blocks(f, rel);
            worst = blocks > worst ? blocks : worst;
        }
    }
    store_get_stats(f->store, &stats);
    (void)fprintf(stderr, "worst %" PRIu64 " blocks at a quiet checkpoint, %" PRIu64 " checkpoints\n", worst,
                  stats.checkpoints);
    assert_in_range(worst, CYCLE_LEAVES, CYCLE_LEAVES * 22 / 10);
    assert_int_equal(store_check(f->store), 0);
    store_file_close(file);
}

/* A large table that becomes small has a small file behind the next checkpoints. */
static void file_of_a_table_that_shrank_is_cut(void **state)
{
    struct fixture *f = *state;
    struct store_stats stats;
    struct store_attr attr, cut = {.size_bytes = 2 * LEAF_BYTES};
    struct store_file *file = create(f, "shrinks");
    write_at(f, file, 0, FILE_BYTES);
    const rel_no rel = relation_of(f, store_file_ino(file));
    assert_int_equal(store_checkpoint(f->store), 0);
    assert_true(file_blocks(f, rel) >= 400);
    assert_int_equal(store_setattr(f->store, store_live(f->store), store_file_ino(file), STORE_SET_SIZE, &cut, &attr),
                     0);
    for (unsigned i = 0; i < 3; i++) {
        write_at(f, file, 0, 1);
        assert_int_equal(store_checkpoint(f->store), 0);
    }
    assert_in_range(file_blocks(f, rel), 3, 8);
    store_get_stats(f->store, &stats);
    assert_true(stats.blocks_trimmed >= 390);
    assert_int_equal(store_check(f->store), 0);
    store_file_close(file);
}

/* ---- damage met by replay ---- */

/* Changes a byte of some page of the table's file, as the disk might. Returns its inode. */
static void damage_file(struct fixture *f, rel_no rel)
{
    char path[64];
    size_t run = 0;
    snprintf(path, sizeof path, "/d/rel/%02x/%016" PRIx64, (unsigned)(rel & 0xff), rel);
    for (block_no block = 0;; block++) {
        uint8_t *byte = mem_device_file_bytes(f->mem, path, (uint64_t)block * BLOCK_SIZE + 100, &run);
        if (byte == NULL) {
            assert_true(block > 0);
            return;
        }
        *byte ^= 1;
    }
}

static void table_damaged_before_replay_answers_eio_and_the_rest_is_there(void **state)
{
    struct fixture *f = *state;
    struct view *live = store_live(f->store);
    struct store_file *bad = create(f, "bad"), *good = create(f, "good"), *file = NULL;
    struct store_attr attr;
    uint8_t got[4];
    size_t size = 0;
    write_at(f, bad, 0, 3 * LEAF_BYTES);
    write_at(f, good, 0, 3 * LEAF_BYTES);
    const ino_no bad_ino = store_file_ino(bad), good_ino = store_file_ino(good);
    const rel_no rel = relation_of(f, bad_ino);
    assert_int_equal(store_checkpoint(f->store), 0);
    for (unsigned i = 0; i < 3; i++) { /* records that need its pages */
        write_at(f, bad, 10, 5);
        write_at(f, good, 3 * LEAF_BYTES + i, 1);
    }
    store_file_close(bad);
    store_file_close(good);
    store_abandon(f->store);
    damage_file(f, rel);

    open_store(f);
    live = store_live(f->store);
    assert_true(f->diag.damage_count > 0);
    assert_int_equal(store_lookup(f->store, live, INO_ROOT, name_of("bad"), &attr), 0); /* its name is there */
    assert_int_equal(store_file_open(f->store, live, bad_ino, &file), -EIO);
    attr.size_bytes = 0;
    assert_int_equal(store_setattr(f->store, live, bad_ino, STORE_SET_SIZE, &attr, &attr), -EIO);
    assert_int_equal(store_file_open(f->store, live, good_ino, &file), 0);
    assert_int_equal(store_read(file, 3 * LEAF_BYTES, got, sizeof got, &size), 0);
    assert_int_equal(size, 3);
    store_file_close(file);
    assert_int_equal(store_check(f->store), -EIO);
    assert_int_equal(store_close(f->store), 0);

    open_store(f); /* it stays so */
    live = store_live(f->store);
    assert_int_equal(store_file_open(f->store, live, bad_ino, &file), -EIO);
    assert_int_equal(store_unlink(f->store, live, INO_ROOT, name_of("bad")), 0);
    assert_int_equal(store_checkpoint(f->store), 0); /* the previous one saw it */
    assert_int_equal(store_check(f->store), 0);
}

static void table_damaged_and_removed_by_the_log_leaves_no_trace(void **state)
{
    struct fixture *f = *state;
    struct store_file *bad = create(f, "bad");
    struct store_attr attr;
    write_at(f, bad, 0, 3 * LEAF_BYTES);
    const rel_no rel = relation_of(f, store_file_ino(bad));
    assert_int_equal(store_checkpoint(f->store), 0);
    write_at(f, bad, 10, 5);
    store_file_close(bad);
    assert_int_equal(store_unlink(f->store, store_live(f->store), INO_ROOT, name_of("bad")), 0);
    store_abandon(f->store);
    damage_file(f, rel);
    open_store(f);
    assert_int_equal(store_lookup(f->store, store_live(f->store), INO_ROOT, name_of("bad"), &attr), -ENOENT);
    assert_int_equal(store_check(f->store), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_of_a_sparse_file_are_those_with_data, set_up, tear_down),
        cmocka_unit_test_setup_teardown(blocks_of_a_full_file_cover_its_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(file_of_constant_size_stays_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(file_of_a_table_rewritten_again_and_again_stays_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(file_of_a_table_that_shrank_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(table_damaged_before_replay_answers_eio_and_the_rest_is_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(table_damaged_and_removed_by_the_log_leaves_no_trace, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
