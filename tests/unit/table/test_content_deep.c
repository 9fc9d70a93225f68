/*
 * tests/unit/table/test_content_deep.c - the content tree with 12 entries a node, so that a few hundred leaves make a
 * tree of five levels: the module's sources are compiled into this program with that fanout.
 */
#define CONTENT_FANOUT 12u

/* The sources of table/content.h; the archive's own copies stay out of the program. */
#include "table/content_apply.c"
#include "table/content_leaf.c"
#include "table/content_node.c"
#include "table/content_plan.c"
#include "table/content_read.c"
#include "table/content_splice.c"
#include "table/content_validate.c"
#include "table/content_visit.c"

#define TEST_NAME "unit/table/test_content_deep"
#include "tests/unit/table/test_content_model.h"

static void random_operations_agree_with_array(void **state)
{
    (void)state;
    random_operations_agree(4096, 3 * MIB, test_is_long() ? 30000 : 1200);
}

static void random_operations_in_a_small_cache_agree_with_array(void **state)
{
    (void)state;
    random_operations_agree(1024, 60 * LEAF, test_is_long() ? 60000 : 2000);
}

static void failed_extension_changes_nothing(void **state)
{
    (void)state;
    random_operations_with_faults(2048, MIB, MEM_CALL_ALLOCATE, ENOSPC, 100);
}

static void failed_read_changes_nothing(void **state)
{
    (void)state;
    random_operations_with_faults(BUFCACHE_MIN_FRAMES, 30 * LEAF, MEM_CALL_READ, EIO, 200);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_array),
        cmocka_unit_test(random_operations_in_a_small_cache_agree_with_array),
        cmocka_unit_test(failed_extension_changes_nothing),
        cmocka_unit_test(failed_read_changes_nothing),
        cmocka_unit_test(sparse_writes_and_punches_keep_the_tree_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
