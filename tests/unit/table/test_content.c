/*
 * tests/unit/table/test_content.c - the content tree: single cases, bulk loads, damage, and random operations against a
 * plain array of bytes, with and without faults.
 */
#define TEST_NAME "unit/table/test_content"
#include "tests/unit/table/test_content_model.h"

/* ---- single cases ---- */

static void empty_content_reads_nothing(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint64_t offset = 0, blocks = 1;
    size_t got = 1;
    char byte;
    (void)state;
    assert_int_equal(content_read(f->table, &f->root, 0, &byte, 1, &got), 0);
    assert_int_equal(got, 0);
    assert_int_equal(content_seek(f->table, &f->root, 0, false, &offset), -ENXIO);
    assert_int_equal(content_count_blocks(f->table, &f->root, &blocks), 0);
    assert_int_equal(blocks, 0);
    resize_to(f, 0);
    punch_at(f, 0, 100);
    check_all(f, (const uint8_t *)"", 0);
    fixture_destroy(f);
}

static void first_write_makes_one_block(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    block_no blocks = 0;
    (void)state;
    write_at(f, 0, "abc\n", 4);
    assert_int_equal(f->root.height, 1);
    check_all(f, (const uint8_t *)"abc\n", 4);
    assert_int_equal(relation_file_blocks(f->table, &blocks), 0);
    assert_int_equal(blocks, 1);
    fixture_destroy(f);
}

static void append_small_rows_allocates_one_block_a_leaf(void **state)
{
    struct fixture *f = fixture_create(4096);
    uint8_t *bytes = pattern_create(8 * MIB);
    (void)state;
    for (uint64_t offset = 0; offset + 100 <= 8 * MIB; offset += 100)
        write_at(f, offset, bytes + offset, 100);
    const struct leaf_order order = leaf_order_of(f);
    uint64_t blocks = 0;
    assert_int_equal(content_count_blocks(f->table, &f->root, &blocks), 0);
    assert_int_equal(order.leaves, (f->root.bytes + LEAF - 1) / LEAF);
    assert_int_equal(allocations_of(f), blocks);
    check_all(f, bytes, f->root.bytes);
    free(bytes);
    fixture_destroy(f);
}

static void append_after_write_back_moves_only_the_tail(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint8_t *bytes = pattern_create(100 * LEAF);
    (void)state;
    write_at(f, 0, bytes, 50 * LEAF + 10);
    write_back_all(f);
    const uint64_t before = allocations_of(f);
    write_at(f, 50 * LEAF + 10, bytes + 50 * LEAF + 10, 20);
    assert_int_equal(allocations_of(f) - before, 2); /* leaf and root */
    write_at(f, 50 * LEAF + 30, bytes + 50 * LEAF + 30, 20);
    assert_int_equal(allocations_of(f) - before, 2);
    check_all(f, bytes, 50 * LEAF + 50);
    free(bytes);
    fixture_destroy(f);
}

static void overwrite_in_private_leaf_allocates_nothing(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint8_t *bytes = pattern_create(20 * LEAF);
    (void)state;
    write_at(f, 0, bytes, 20 * LEAF);
    const uint64_t before = allocations_of(f);
    memset(bytes + 5 * LEAF + 100, 'x', 200);
    write_at(f, 5 * LEAF + 100, bytes + 5 * LEAF + 100, 200);
    memset(bytes + 7 * LEAF, 'y', LEAF);
    write_at(f, 7 * LEAF, bytes + 7 * LEAF, LEAF);
    assert_int_equal(allocations_of(f), before);
    check_all(f, bytes, 20 * LEAF);
    free(bytes);
    fixture_destroy(f);
}

static void write_far_behind_the_end_leaves_a_hole(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    const uint64_t far = UINT64_C(1) << 40;
    uint64_t offset = 0, blocks = 0;
    char bytes[8];
    size_t got = 0;
    (void)state;
    write_at(f, 0, "head", 4);
    write_at(f, far, "tail", 4);
    assert_int_equal(f->root.bytes, far + 4);
    assert_int_equal(content_count_blocks(f->table, &f->root, &blocks), 0);
    assert_int_equal(blocks, 3);
    assert_int_equal(content_seek(f->table, &f->root, 0, true, &offset), 0);
    assert_int_equal(offset, 4);
    assert_int_equal(content_seek(f->table, &f->root, 4, false, &offset), 0);
    assert_int_equal(offset, far);
    assert_int_equal(content_seek(f->table, &f->root, far + 1, false, &offset), 0);
    assert_int_equal(offset, far + 1);
    assert_int_equal(content_seek(f->table, &f->root, far + 1, true, &offset), 0);
    assert_int_equal(offset, far + 4);
    assert_int_equal(content_read(f->table, &f->root, far - 2, bytes, 8, &got), 0);
    assert_int_equal(got, 6);
    assert_memory_equal(bytes, "\0\0tail", 6);
    resize_to(f, far);
    assert_int_equal(content_seek(f->table, &f->root, 4, false, &offset), -ENXIO);
    resize_to(f, 4);
    assert_int_equal(f->root.height, 1);
    check_all(f, (const uint8_t *)"head", 4);
    fixture_destroy(f);
}

/* Reads all of it in runs of at most `most` bytes, holes apart; data and holes alternate as `want` says, 0 ends it. */
static void expect_runs(struct fixture *f, size_t most, const int64_t *want)
{
    uint8_t *bytes = malloc(most);
    uint64_t at = 0;
    int64_t run = 0;
    assert_non_null(bytes);
    while (at < f->root.bytes) {
        uint64_t hole = 0;
        size_t got = 0;
        assert_int_equal(content_read_run(f->table, &f->root, at, bytes, most, &got, &hole), 0);
        assert_true((got > 0) != (hole > 0) && got <= most);
        const int64_t size = got > 0 ? (int64_t)got : -(int64_t)hole;
        if ((run > 0) != (size > 0) && run != 0) {
            assert_int_equal(run, *want++);
            run = 0;
        }
        run += size;
        at += got + hole;
    }
    assert_int_equal(run, *want++);
    assert_int_equal(0, *want);
    free(bytes);
}

static void runs_end_at_holes(void **state)
{
    struct fixture *f = fixture_create(4096);
    uint8_t *bytes = pattern_create(50 * LEAF);
    (void)state;
    write_at(f, 0, bytes, 50 * LEAF);
    punch_at(f, 3 * LEAF, 40 * LEAF);
    expect_runs(f, 2 * LEAF, (const int64_t[]){3 * (int64_t)LEAF, -40 * (int64_t)LEAF, 7 * (int64_t)LEAF, 0});
    expect_runs(f, 100 * LEAF, (const int64_t[]){3 * (int64_t)LEAF, -40 * (int64_t)LEAF, 7 * (int64_t)LEAF, 0});
    expect_runs(f, 777, (const int64_t[]){3 * (int64_t)LEAF, -40 * (int64_t)LEAF, 7 * (int64_t)LEAF, 0});
    resize_to(f, 60 * LEAF);
    punch_at(f, 0, 5 * LEAF);
    expect_runs(f, LEAF, (const int64_t[]){-43 * (int64_t)LEAF, 7 * (int64_t)LEAF, -10 * (int64_t)LEAF, 0});
    resize_to(f, 43 * LEAF);
    expect_runs(f, LEAF, (const int64_t[]){-43 * (int64_t)LEAF, 0});
    free(bytes);
    fixture_destroy(f);
}

static struct content_shape shape_of(struct fixture *f, uint64_t span)
{
    struct content_shape shape = {0};
    while (shape.seen_bytes < f->root.bytes)
        assert_int_equal(content_add_shape(f->table, &f->root, span, &shape), 0);
    return shape;
}

static void shape_is_the_same_however_it_is_looked_at(void **state)
{
    static const uint64_t spans[] = {1, 100, LEAF, 3 * LEAF + 1, UINT64_MAX};
    struct fixture *f = fixture_create(4096);
    uint8_t *bytes = pattern_create(500 * LEAF);
    (void)state;
    write_at(f, 0, bytes, 500 * LEAF);
    write_back_all(f);
    for (unsigned i = 10; i < 60; i += 10)
        write_at(f, i * LEAF, "moved", 5);
    punch_at(f, 100 * LEAF + 1, 50 * LEAF);
    resize_to(f, 600 * LEAF);
    write_at(f, 600 * LEAF - 4, "last", 4);
    const struct content_shape all = shape_of(f, UINT64_MAX);
    assert_int_equal(all.leaves, f->root.leaves);
    assert_int_equal(all.leaves, 500 - 49 + 1);
    assert_int_equal(all.leaf_bytes, 451 * LEAF + 4);
    assert_int_equal(content_shape_least_leaves(&all), 452);
    assert_true(all.runs >= 5 && all.runs <= 2 * 5 + 6);
    for (unsigned i = 0; i < ARRAY_COUNT(spans); i++) {
        const struct content_shape shape = shape_of(f, spans[i]);
        assert_memory_equal(&shape, &all, sizeof shape);
    }
    free(bytes);
    fixture_destroy(f);
}

static void write_beyond_the_largest_size_is_refused(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    struct op op = {.kind = WRITE, .offset = CONTENT_MAX_BYTES, .size = 1, .bytes = (const uint8_t *)"x"};
    (void)state;
    assert_int_equal(run(f, &op), -EFBIG);
    op.offset = UINT64_MAX;
    assert_int_equal(run(f, &op), -EFBIG);
    op.offset = CONTENT_MAX_BYTES - 1;
    assert_int_equal(run(f, &op), 0);
    assert_int_equal(f->root.bytes, CONTENT_MAX_BYTES);
    op = (struct op){.kind = RESIZE, .offset = CONTENT_MAX_BYTES + 1};
    assert_int_equal(run(f, &op), -EFBIG);
    check_space(f);
    fixture_destroy(f);
}

static void small_gap_behind_the_end_is_zero_bytes(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint64_t offset = 0;
    (void)state;
    write_at(f, 0, "abc", 3);
    write_at(f, 5, "f", 1);
    assert_int_equal(content_seek(f->table, &f->root, 0, true, &offset), 0);
    assert_int_equal(offset, 6);
    check_all(f, (const uint8_t *)"abc\0\0f", 6);
    fixture_destroy(f);
}

static void sequential_small_writes_into_a_hole_fill_leaves(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    const size_t size = 40 * LEAF;
    uint8_t *bytes = calloc(1, size);
    (void)state;
    assert_non_null(bytes);
    resize_to(f, size);
    assert_int_equal(f->root.height, 0);
    const uint64_t from = 10 * LEAF + 7;
    for (unsigned i = 0; i < 1000; i++) {
        memset(bytes + from + i * 100, (int)(i % 250) + 1, 100);
        write_at(f, from + i * 100, bytes + from + i * 100, 100);
    }
    assert_int_equal(leaf_order_of(f).leaves, (100000 + LEAF - 1) / LEAF);
    check_all(f, bytes, size);
    punch_at(f, from, 100000);
    assert_int_equal(f->root.height, 0);
    assert_int_equal(f->root.bytes, size);
    check_space(f);
    free(bytes);
    fixture_destroy(f);
}

static void backward_small_writes_into_a_hole_join_the_leaf_behind(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    const size_t size = 8 * LEAF;
    uint8_t *bytes = calloc(1, size);
    (void)state;
    assert_non_null(bytes);
    resize_to(f, size);
    for (unsigned i = 1; i <= 200; i++) {
        memset(bytes + size - i * 100, (int)i, 100);
        write_at(f, size - i * 100, bytes + size - i * 100, 100);
    }
    assert_in_range(leaf_order_of(f).leaves, 3, 4);
    check_all(f, bytes, size);
    free(bytes);
    fixture_destroy(f);
}

static void punch_whole_leaves_gives_blocks_back(void **state)
{
    struct fixture *f = fixture_create(4096);
    uint8_t *bytes = pattern_create(500 * LEAF);
    uint64_t offset = 0;
    (void)state;
    write_at(f, 0, bytes, 500 * LEAF);
    punch_at(f, 3 * LEAF + 5, 400 * LEAF);
    memset(bytes + 3 * LEAF + 5, 0, 400 * LEAF);
    check_all(f, bytes, 500 * LEAF);
    assert_int_equal(leaf_order_of(f).leaves, 500 - 399);
    assert_int_equal(content_seek(f->table, &f->root, 0, true, &offset), 0);
    assert_int_equal(offset, 4 * LEAF);
    const struct content_root before = f->root;
    punch_at(f, 5 * LEAF, 100);
    assert_memory_equal(&before, &f->root, sizeof before);
    punch_at(f, 0, UINT64_MAX);
    assert_int_equal(f->root.height, 0);
    assert_int_equal(f->root.bytes, 500 * LEAF);
    check_space(f);
    free(bytes);
    fixture_destroy(f);
}

static void resize_to_zero_gives_everything_back(void **state)
{
    struct fixture *f = fixture_create(4096);
    uint8_t *bytes = pattern_create(3 * MIB);
    (void)state;
    for (unsigned i = 0; i < 8; i++)
        write_at(f, i * 3 * MIB, bytes, 3 * MIB);
    resize_to(f, 0);
    assert_int_equal(f->root.height, 0);
    check_all(f, bytes, 0);
    free(bytes);
    fixture_destroy(f);
}

static void resize_down_collapses_the_root(void **state)
{
    struct fixture *f = fixture_create(4096);
    uint8_t *bytes = pattern_create(6 * MIB);
    (void)state;
    write_at(f, 0, bytes, 3 * MIB);
    write_at(f, 3 * MIB, bytes + 3 * MIB, 3 * MIB);
    assert_int_equal(f->root.height, 3);
    write_back_all(f);
    resize_to(f, 100 * LEAF + 17);
    assert_int_equal(f->root.height, 2);
    check_all(f, bytes, 100 * LEAF + 17);
    resize_to(f, 17);
    assert_int_equal(f->root.height, 1);
    check_all(f, bytes, 17);
    free(bytes);
    fixture_destroy(f);
}

static void retire_all_lists_every_block_in_runs(void **state)
{
    struct fixture *f = fixture_create(2048);
    uint8_t *bytes = pattern_create(3 * MIB);
    struct retire_list list = {0};
    uint64_t blocks = 0, listed = 0;
    (void)state;
    write_at(f, 0, bytes, 3 * MIB);
    assert_int_equal(content_count_blocks(f->table, &f->root, &blocks), 0);
    assert_int_equal(content_retire_all(f->table, &f->root, &list), 0);
    for (unsigned i = 0; i < list.count; i++)
        listed += list.entries[i].count;
    assert_int_equal(listed, blocks);
    assert_in_range(list.count, 1, 8);
    retire_list_free(&list);
    free(bytes);
    fixture_destroy(f);
}

static void abandoned_plan_changes_nothing(void **state)
{
    struct fixture *f = fixture_create(2048);
    uint8_t *bytes = pattern_create(4 * MIB);
    const struct op ops[] = {{.kind = WRITE, .offset = 100, .size = 50, .bytes = bytes + 9},
                             {.kind = WRITE, .offset = MIB - 10, .size = 2 * MIB, .bytes = bytes},
                             {.kind = WRITE, .offset = 5 * MIB, .size = 5, .bytes = bytes},
                             {.kind = RESIZE, .offset = 12345},
                             {.kind = RESIZE, .offset = 0},
                             {.kind = RESIZE, .offset = 123456789},
                             {.kind = PUNCH, .offset = 10000, .size = 900000},
                             {.kind = PUNCH, .offset = 10, .size = 9}};
    (void)state;
    write_at(f, 0, bytes, MIB);
    for (unsigned written = 0; written < 2; written++) {
        for (unsigned i = 0; i < ARRAY_COUNT(ops); i++) {
            struct content_root root = f->root;
            assert_int_equal(run_in_view(f, f->view, &root, &ops[i], ABANDON), 0);
            check_all(f, bytes, MIB);
        }
        write_back_all(f);
    }
    content_plan_abandon(NULL);
    free(bytes);
    fixture_destroy(f);
}

static void budget_too_small_is_refused_and_undone(void **state)
{
    struct fixture *f = fixture_create(2048);
    uint8_t *bytes = pattern_create(MIB);
    struct frame_budget budget = {0};
    struct content_plan *plan = NULL;
    (void)state;
    assert_int_equal(frame_budget_take(f->cache, 20, 2, &budget), 0);
    cow_gate_enter(f->cow);
    assert_int_equal(content_plan_write(f->view, f->table, &f->root, 0, bytes, MIB, &budget, &plan), -E2BIG);
    assert_int_equal(content_plan_write(f->view, f->table, &f->root, 0, bytes, 2 * LEAF, &budget, &plan), -E2BIG);
    cow_gate_leave(f->cow);
    frame_budget_release(&budget);
    check_all(f, bytes, 0);
    free(bytes);
    fixture_destroy(f);
}

static void transaction_view_leaves_live_tree_alone(void **state)
{
    struct fixture *f = fixture_create(2048);
    uint8_t *bytes = pattern_create(2 * MIB);
    struct holder *holder = NULL;
    struct view *view = NULL;
    (void)state;
    write_at(f, 0, bytes, MIB);
    struct content_root root = f->root;
    assert_int_equal(cow_fork(f->cow, HOLDER_TRANSACTION, &holder), 0);
    assert_int_equal(view_open_transaction(f->cow, holder, &view), 0);
    const struct op write = {.kind = WRITE, .offset = 777, .size = MIB, .bytes = bytes};
    const struct op resize = {.kind = RESIZE, .offset = 1000};
    assert_int_equal(run_in_view(f, view, &root, &write, APPLY), 0);
    check_range(f, &root, bytes, 0, 777);
    assert_int_equal(run_in_view(f, view, &root, &resize, APPLY), 0);
    check_all(f, bytes, MIB);
    view_close(view);
    cow_holder_close(f->cow, holder);
    check_all(f, bytes, MIB);
    fixture_destroy(f);
    free(bytes);
}

/* ---- bulk load ---- */

static void bulk_load(size_t total, size_t piece, uint64_t frames)
{
    struct fixture *f = fixture_create(frames);
    uint8_t *bytes = pattern_create(MIB);
    for (uint64_t offset = 0; offset + piece <= total; offset += piece) {
        write_at(f, offset, bytes, piece);
        bufcache_step(f->cache);
    }
    const struct leaf_order order = leaf_order_of(f);
    assert_int_equal(order.leaves, (f->root.bytes + LEAF - 1) / LEAF);
    if (order.in_order * 100 < order.leaves * 99)
        fail_msg("%llu of %llu leaves in order", (unsigned long long)order.in_order, (unsigned long long)order.leaves);
    check_space(f);
    free(bytes);
    fixture_destroy(f);
}

static void bulk_load_in_1_mib_pieces_lies_in_file_order(void **state)
{
    (void)state;
    bulk_load(64 * MIB, MIB, 2048);
}

static void bulk_load_in_128_kib_pieces_lies_in_file_order(void **state)
{
    (void)state;
    bulk_load(64 * MIB, MIB / 8, 2048);
}

static void bulk_load_in_100_byte_pieces_lies_in_file_order(void **state)
{
    (void)state;
    bulk_load(test_is_long() ? 64 * MIB : 16 * MIB, 100, 1024);
}

/* ---- damage ---- */

static const char *table_path = "/data/rel/64/0000000000000064";

static uint8_t *page_on_disk(struct fixture *f, block_no block)
{
    size_t run = 0;
    uint8_t *page = mem_device_file_bytes(f->mem, table_path, (uint64_t)block * BLOCK_SIZE, &run);
    assert_non_null(page);
    assert_int_equal(run, BLOCK_SIZE);
    return page;
}

static void wrong_root_count_is_damage(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint8_t *bytes = pattern_create(20 * LEAF);
    size_t got = 0;
    (void)state;
    write_at(f, 0, bytes, 20 * LEAF);
    struct content_root wrong = f->root;
    wrong.bytes--;
    assert_int_equal(content_read(f->table, &wrong, 0, bytes, 10, &got), -EIO);
    assert_int_equal(content_check(&f->diag, f->table, &wrong), -EIO);
    assert_in_range(f->diag.damage_count, 1, 10);
    wrong = f->root;
    wrong.bytes = CONTENT_MAX_BYTES + 1;
    assert_int_equal(content_read(f->table, &wrong, 0, bytes, 10, &got), -EIO);
    wrong = f->root;
    wrong.height = 7;
    assert_int_equal(content_read(f->table, &wrong, 0, bytes, 10, &got), -EIO);
    wrong.height = 0;
    assert_int_equal(content_read(f->table, &wrong, 0, bytes, 10, &got), -EIO);
    wrong = (struct content_root){.ptr = PAGE_PTR_NONE, .bytes = 5, .height = 1};
    assert_int_equal(content_read(f->table, &wrong, 0, bytes, 10, &got), -EIO);
    const struct op op = {.kind = RESIZE, .offset = 1};
    assert_int_equal(run_in_view(f, f->view, &wrong, &op, APPLY), -EIO);
    check_space(f);
    free(bytes);
    fixture_destroy(f);
}

static void wrong_leaf_count_is_damage(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    char bytes[8];
    size_t got = 0;
    struct content_pieces pieces;
    (void)state;
    write_at(f, 0, "abcd", 4);
    struct content_root wrong = f->root;
    wrong.bytes = 5;
    assert_int_equal(content_read(f->table, &wrong, 0, bytes, 5, &got), -EIO);
    assert_int_equal(content_read_pieces(f->table, &wrong, 0, 5, &pieces), -EIO);
    assert_int_equal(content_check(&f->diag, f->table, &wrong), -EIO);
    struct op op = {.kind = WRITE, .offset = 5, .size = 1, .bytes = (const uint8_t *)"e"};
    assert_int_equal(run_in_view(f, f->view, &wrong, &op, APPLY), -EIO);
    check_all(f, (const uint8_t *)"abcd", 4);
    fixture_destroy(f);
}

static void pieces_of_a_shredded_file_are_refused_but_reading_works(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint8_t *bytes = calloc(1, MIB);
    struct content_pieces pieces;
    (void)state;
    assert_non_null(bytes);
    resize_to(f, MIB);
    for (uint64_t offset = 0; offset < MIB; offset += MIB / 256) {
        bytes[offset + 9] = 'x';
        write_at(f, offset + 9, "x", 1);
    }
    assert_int_equal(content_read_pieces(f->table, &f->root, 0, MIB, &pieces), -E2BIG);
    check_all(f, bytes, MIB);
    check_pieces(f, &f->root, bytes, 0, 100);
    free(bytes);
    fixture_destroy(f);
}

static void pieces_of_a_hole_are_zeros_and_pin_nothing(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint8_t *zeros = calloc(1, MIB);
    struct content_pieces pieces;
    (void)state;
    assert_non_null(zeros);
    resize_to(f, UINT64_C(1) << 50);
    assert_int_equal(content_read_pieces(f->table, &f->root, UINT64_C(1) << 49, MIB, &pieces), 0);
    assert_int_equal(pieces.frame_count, 0);
    assert_int_equal(pieces.size_bytes, MIB);
    for (unsigned i = 0; i < pieces.count; i++)
        assert_memory_equal(pieces.iov[i].iov_base, zeros, pieces.iov[i].iov_len);
    content_pieces_release(&pieces);
    assert_int_equal(content_read_pieces(f->table, &f->root, 0, SIZE_MAX, &pieces), -E2BIG);
    free(zeros);
    fixture_destroy(f);
}

static void pieces_keep_their_bytes_when_the_file_changes(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint8_t *bytes = pattern_create(20 * LEAF);
    struct content_pieces pieces;
    (void)state;
    write_at(f, 0, bytes, 20 * LEAF);
    assert_int_equal(content_read_pieces(f->table, &f->root, 10, 15 * LEAF, &pieces), 0);
    memset(bytes, 'z', 100);
    write_at(f, 0, bytes, 100);
    resize_to(f, 3);
    uint8_t *old = pattern_create(20 * LEAF);
    uint64_t offset = 10;
    for (unsigned i = 0; i < pieces.count; i++) {
        assert_memory_equal(pieces.iov[i].iov_base, old + offset, pieces.iov[i].iov_len);
        offset += pieces.iov[i].iov_len;
    }
    content_pieces_release(&pieces);
    check_all(f, bytes, 3);
    free(old);
    free(bytes);
    fixture_destroy(f);
}

static void cold_read_takes_neighbours_in_one_call(void **state)
{
    struct fixture *f = fixture_create(2048);
    uint8_t *bytes = pattern_create(256 * LEAF);
    struct bufcache_stats stats;
    (void)state;
    write_at(f, 0, bytes, 256 * LEAF);
    reopen(f, 2048);
    check_pieces(f, &f->root, bytes, 0, 256 * LEAF);
    bufcache_get_stats(f->cache, &stats);
    assert_int_equal(stats.pages_read, 257);
    assert_in_range(stats.read_calls, 2, 8);
    free(bytes);
    fixture_destroy(f);
}

static void every_flipped_page_is_damage_or_harmless(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint8_t *bytes = pattern_create(20 * LEAF);
    struct test_random random;
    (void)state;
    test_random_init(&random, test_seed(TEST_NAME));
    write_at(f, 0, bytes, 20 * LEAF);
    for (unsigned i = 0; i < 60; i++) {
        reopen(f, BUFCACHE_MIN_FRAMES);
        uint8_t *byte =
            page_on_disk(f, (block_no)test_random_below(&random, 21)) + test_random_below(&random, BLOCK_SIZE);
        *byte ^= 4;
        assert_int_equal(content_check(&f->diag, f->table, &f->root), -EIO);
        *byte ^= 4;
    }
    reopen(f, BUFCACHE_MIN_FRAMES);
    assert_int_equal(content_check(&f->diag, f->table, &f->root), 0);
    free(bytes);
    fixture_destroy(f);
}

/* ---- random operations and faults ---- */

static void random_operations_agree_with_array(void **state)
{
    (void)state;
    random_operations_agree(TEST_NAME, 4096, 3 * MIB, test_is_long() ? 30000 : 700);
}

static void random_operations_in_a_small_cache_agree_with_array(void **state)
{
    (void)state;
    random_operations_agree(TEST_NAME, BUFCACHE_MIN_FRAMES, 60 * LEAF, test_is_long() ? 60000 : 1000);
}

static void failed_extension_changes_nothing(void **state)
{
    (void)state;
    random_operations_with_faults(TEST_NAME, 2048, MIB, MEM_CALL_ALLOCATE, ENOSPC, 60);
}

static void failed_read_changes_nothing(void **state)
{
    (void)state;
    random_operations_with_faults(TEST_NAME, BUFCACHE_MIN_FRAMES, 60 * LEAF, MEM_CALL_READ, EIO, 100);
}

static void full_disk_refuses_and_goes_on_after_truncation(void **state)
{
    struct fixture *f = fixture_create(2048);
    uint8_t *bytes = pattern_create(4 * MIB);
    uint64_t size = 0;
    (void)state;
    mem_device_set_capacity(f->mem, 2 * MIB);
    struct op op = {.kind = WRITE, .size = 100000, .bytes = bytes};
    while (true) {
        op.offset = size;
        op.bytes = bytes + size;
        const int err = run(f, &op);
        if (err != 0)
            assert_int_equal(err, -ENOSPC);
        if (err != 0 && op.size == 1)
            break;
        if (err != 0)
            op.size = op.size / 10;
        else
            size += op.size;
        check_all(f, bytes, size);
    }
    assert_in_range(size, 2 * MIB - 20 * BLOCK_SIZE, 2 * MIB);
    resize_to(f, 10 * LEAF);
    write_at(f, 10 * LEAF, bytes + 10 * LEAF, MIB);
    check_all(f, bytes, 10 * LEAF + MIB);
    free(bytes);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_content_reads_nothing),
        cmocka_unit_test(first_write_makes_one_block),
        cmocka_unit_test(append_small_rows_allocates_one_block_a_leaf),
        cmocka_unit_test(append_after_write_back_moves_only_the_tail),
        cmocka_unit_test(overwrite_in_private_leaf_allocates_nothing),
        cmocka_unit_test(write_far_behind_the_end_leaves_a_hole),
        cmocka_unit_test(runs_end_at_holes),
        cmocka_unit_test(shape_is_the_same_however_it_is_looked_at),
        cmocka_unit_test(write_beyond_the_largest_size_is_refused),
        cmocka_unit_test(small_gap_behind_the_end_is_zero_bytes),
        cmocka_unit_test(sequential_small_writes_into_a_hole_fill_leaves),
        cmocka_unit_test(backward_small_writes_into_a_hole_join_the_leaf_behind),
        cmocka_unit_test(punch_whole_leaves_gives_blocks_back),
        cmocka_unit_test(resize_to_zero_gives_everything_back),
        cmocka_unit_test(resize_down_collapses_the_root),
        cmocka_unit_test(retire_all_lists_every_block_in_runs),
        cmocka_unit_test(abandoned_plan_changes_nothing),
        cmocka_unit_test(budget_too_small_is_refused_and_undone),
        cmocka_unit_test(transaction_view_leaves_live_tree_alone),
        cmocka_unit_test(bulk_load_in_1_mib_pieces_lies_in_file_order),
        cmocka_unit_test(bulk_load_in_128_kib_pieces_lies_in_file_order),
        cmocka_unit_test(bulk_load_in_100_byte_pieces_lies_in_file_order),
        cmocka_unit_test(wrong_root_count_is_damage),
        cmocka_unit_test(wrong_leaf_count_is_damage),
        cmocka_unit_test(pieces_of_a_shredded_file_are_refused_but_reading_works),
        cmocka_unit_test(pieces_of_a_hole_are_zeros_and_pin_nothing),
        cmocka_unit_test(pieces_keep_their_bytes_when_the_file_changes),
        cmocka_unit_test(cold_read_takes_neighbours_in_one_call),
        cmocka_unit_test(every_flipped_page_is_damage_or_harmless),
        cmocka_unit_test(random_operations_agree_with_array),
        cmocka_unit_test(random_operations_in_a_small_cache_agree_with_array),
        cmocka_unit_test(failed_extension_changes_nothing),
        cmocka_unit_test(failed_read_changes_nothing),
        cmocka_unit_test(full_disk_refuses_and_goes_on_after_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
