/*
 * tests/unit/table/test_content_deep.c - the content tree with 12 entries a node, so that a few hundred leaves make a
 * tree of five levels: the module's sources are compiled into this program with that fanout.
 */
#define CONTENT_FANOUT 12u

#include <stdlib.h>

/* Memory for the sources below: the nth request from now on fails; 0: none does. */
static unsigned memory_fails_at;

static int memory_fails(void)
{
    return memory_fails_at != 0 && --memory_fails_at == 0;
}

static void *test_realloc(void *memory, size_t size)
{
    return memory_fails() ? NULL : realloc(memory, size);
}

static void *test_calloc(size_t count, size_t size)
{
    return memory_fails() ? NULL : calloc(count, size);
}

#define realloc test_realloc
#define calloc  test_calloc

/* The sources of table/content.h; the archive's own copies stay out of the program. */
#include "table/content_apply.c"
#include "table/content_leaf.c"
#include "table/content_node.c"
#include "table/content_plan.c"
#include "table/content_read.c"
#include "table/content_splice.c"
#include "table/content_validate.c"
#include "table/content_visit.c"

#undef realloc
#undef calloc

#define TEST_NAME "unit/table/test_content_deep"
#include "tests/unit/table/test_content_model.h"

static void random_operations_agree_with_array(void **state)
{
    (void)state;
    random_operations_agree(TEST_NAME, 4096, 3 * MIB, test_is_long() ? 30000 : 500);
}

static void random_operations_in_a_small_cache_agree_with_array(void **state)
{
    (void)state;
    random_operations_agree(TEST_NAME, 1024, 60 * LEAF, test_is_long() ? 60000 : 800);
}

static void failed_extension_changes_nothing(void **state)
{
    (void)state;
    random_operations_with_faults(TEST_NAME, 2048, MIB, MEM_CALL_ALLOCATE, ENOSPC, 50);
}

static void failed_read_changes_nothing(void **state)
{
    (void)state;
    random_operations_with_faults(TEST_NAME, BUFCACHE_MIN_FRAMES, 30 * LEAF, MEM_CALL_READ, EIO, 80);
}

/* Each request for memory of an operation fails once. */
static void failed_memory_changes_nothing(void **state)
{
    struct model *m = model_create(TEST_NAME, 4096, MIB);
    struct fixture *f = m->f;
    unsigned failures = 0;
    (void)state;
    for (unsigned step = 0; step < 150; step++) {
        const struct op op = random_op(m);
        const struct content_root before = f->root;
        int err = -ENOMEM;
        if (step % 8 == 0)
            model_holders(m);
        if (step % 5 == 0)
            write_back_all(f);
        for (unsigned nth = 1; err != 0; nth++) {
            memory_fails_at = nth;
            err = run(f, &op);
            memory_fails_at = 0;
            assert_true(err == 0 || err == -ENOMEM);
            failures += err != 0;
            if (err != 0)
                assert_memory_equal(&before, &f->root, sizeof before);
            check_space(f);
        }
        model_apply(m, &op, before.bytes);
        check_all(f, m->bytes, size_after(&op, before.bytes));
    }
    assert_in_range(failures, 150, 5000);
    model_destroy(m);
}

static void failed_memory_while_reading_pieces_releases_them(void **state)
{
    struct fixture *f = fixture_create(2048);
    uint8_t *bytes = pattern_create(MIB);
    struct content_pieces pieces;
    int err = -ENOMEM;
    (void)state;
    write_at(f, 0, bytes, MIB);
    for (unsigned nth = 1; err != 0; nth++) {
        memory_fails_at = nth;
        err = content_read_pieces(f->table, &f->root, 0, MIB, &pieces);
        memory_fails_at = 0;
        assert_true(err == 0 || err == -ENOMEM);
    }
    content_pieces_release(&pieces);
    free(bytes);
    fixture_destroy(f);
}

/* Every second leaf is a hole: the worst tree for its bytes, grown and then cleared from the middle. */
static void sparse_writes_and_punches_keep_the_tree_sound(void **state)
{
    struct fixture *f = fixture_create(2048);
    const uint64_t leaves = 2000, stride = 3 * LEAF;
    uint64_t blocks = 0;
    (void)state;
    resize_to(f, leaves * stride);
    for (uint64_t i = 0; i < leaves; i++)
        write_at(f, (i * 769 % leaves) * stride + LEAF, "x", 1);
    assert_in_range(f->root.height, 4, CONTENT_MAX_HEIGHT);
    assert_int_equal(content_check(&f->diag, f->table, &f->root), 0);
    assert_int_equal(leaf_order_of(f).leaves, leaves);
    check_space(f);
    for (uint64_t i = 0; i < leaves; i++)
        punch_at(f, (i * 769 % leaves) * stride + LEAF, 1);
    assert_int_equal(content_count_blocks(f->table, &f->root, &blocks), 0);
    assert_int_equal(blocks, 0);
    assert_int_equal(f->root.bytes, leaves * stride);
    check_space(f);
    fixture_destroy(f);
}

/* Cuts whole leaves out of the middle, which no public operation does yet: the splice alone. */
static void cut_out(struct model *m, uint64_t from, uint64_t to)
{
    struct fixture *f = m->f;
    struct frame_budget budget = {0};
    struct content_plan *plan = NULL;
    struct entry_list nothing = {0};
    uint32_t pins = 0, news = 0;
    content_frames_needed(0, &pins, &news);
    assert_int_equal(frame_budget_take(f->cache, pins, news, &budget), 0);
    cow_gate_enter(f->cow);
    assert_int_equal(plan_begin(f->view, f->table, &f->root, &budget, &plan), 0);
    assert_int_equal(plan_splice(plan, from, to, &nothing), 0);
    count_leaves(plan);
    f->root = content_plan_root(plan);
    content_plan_apply(plan);
    cow_gate_leave(f->cow);
    frame_budget_release(&budget);
    const uint64_t size = f->root.bytes + (to - from);
    memmove(m->bytes + from, m->bytes + to, size - to);
    memset(m->bytes + f->root.bytes, 0, to - from);
}

static uint64_t entry_start_at(struct fixture *f, uint64_t offset)
{
    const struct content_tree tree = {.relation = f->table};
    struct content_spot spot;
    assert_int_equal(content_find(&tree, &f->root, offset, SIDE_AFTER, &spot), 0);
    return spot.start;
}

static void cutting_ranges_out_keeps_the_tree_sound(void **state)
{
    struct model *m = model_create(TEST_NAME, 4096, 3 * MIB);
    struct fixture *f = m->f;
    (void)state;
    for (unsigned step = 0; step < 1000; step++) {
        const struct op op = random_op(m);
        const uint64_t size = f->root.bytes;
        if (step % 4 == 0 || size < 100 * LEAF) {
            assert_int_equal(run(f, &op), 0);
            model_apply(m, &op, size);
        } else {
            const uint64_t reach = test_random_chance(&m->random, 20) ? size : 20 * LEAF;
            const uint64_t from = entry_start_at(f, test_random_below(&m->random, size));
            uint64_t to = from + test_random_below(&m->random, reach);
            to = to >= size || test_random_chance(&m->random, 10) ? size : entry_start_at(f, to);
            if (from < to)
                cut_out(m, from, to);
        }
        if (step % 16 == 0)
            model_holders(m);
        if (step % 8 == 0)
            write_back_all(f);
        if (step % 5 == 0)
            check_all(f, m->bytes, f->root.bytes);
    }
    model_destroy(m);
}

/* A root that has one child left gives way to it, and that to its own. */
static void cutting_off_the_end_collapses_nodes_with_one_entry(void **state)
{
    struct model *m = model_create(TEST_NAME, 4096, 3 * MIB);
    struct fixture *f = m->f;
    (void)state;
    assert_in_range(f->root.height, 3, 5);
    for (uint64_t left = f->root.bytes; left > LEAF; left = left / 3 / LEAF * LEAF) {
        resize_to(f, left);
        memset(m->bytes + left, 0, MODEL_MAX - left);
        check_all(f, m->bytes, left);
        if (test_random_chance(&m->random, 50))
            write_back_all(f);
    }
    cut_out(m, 0, f->root.bytes - LEAF);
    assert_int_equal(f->root.height, 1);
    check_all(f, m->bytes, LEAF);
    model_destroy(m);
}

static void tree_of_greatest_height_refuses_to_grow(void **state)
{
    struct fixture *f = fixture_create(BUFCACHE_MIN_FRAMES);
    uint64_t size = 0;
    int err = 0;
    (void)state;
    resize_to(f, UINT64_C(1) << 40);
    struct op op = {.kind = WRITE, .size = 1, .bytes = (const uint8_t *)"x"};
    for (; err == 0; size += 3 * LEAF) {
        op.offset = size;
        err = run(f, &op);
    }
    assert_int_equal(err, -EFBIG);
    assert_int_equal(f->root.height, CONTENT_MAX_HEIGHT);
    assert_int_equal(f->root.bytes, UINT64_C(1) << 40);
    check_space(f);
    op.offset = 0;
    assert_int_equal(run(f, &op), 0);
    resize_to(f, 1);
    check_all(f, (const uint8_t *)"x", 1);
    fixture_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_array),
        cmocka_unit_test(random_operations_in_a_small_cache_agree_with_array),
        cmocka_unit_test(failed_extension_changes_nothing),
        cmocka_unit_test(failed_read_changes_nothing),
        cmocka_unit_test(failed_memory_changes_nothing),
        cmocka_unit_test(failed_memory_while_reading_pieces_releases_them),
        cmocka_unit_test(cutting_ranges_out_keeps_the_tree_sound),
        cmocka_unit_test(cutting_off_the_end_collapses_nodes_with_one_entry),
        cmocka_unit_test(tree_of_greatest_height_refuses_to_grow),
        cmocka_unit_test(sparse_writes_and_punches_keep_the_tree_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
