/*
 * tests/unit/table/test_catalog_deep.c - the catalog tree with inner pages of 6 entries, so that a few thousand items
 * make a tree of many levels: splits, merges and vanishing pages at all of them, roots that grow and shrink.
 *
 * The sources of the tree are compiled once more in here, with the smaller fan-out.
 */
#include "table/catalog_format.h"

#undef CATALOG_FANOUT
#define CATALOG_FANOUT 6u

#include "table/catalog.c"
#include "table/catalog_apply.c"
#include "table/catalog_batch.c"
#include "table/catalog_page.c"
#include "table/catalog_plan.c"

#include "tests/unit/table/catalog_random.h"

/* Room for the plans of a batch at a height that is not foreseen. */
#define FRAMES 8192u

static void random_batches_deep_tree_equal_model(void **state)
{
    (void)state;
    const uint64_t seed = test_seed("unit/table/test_catalog_deep");
    const unsigned steps = test_is_long() ? 20000 : 3000;
    struct run run = run_begin(CATALOG_MAX_VALUE_SIZE, 1200, 3000, FRAMES, seed);
    unsigned highest = 0;
    unsigned growths = 0;
    unsigned height = 0;
    for (unsigned i = 0; i < steps; i++) {
        step(&run, i);
        const unsigned now = run.fixture.live->root.height;
        growths += now > height;
        highest = now > highest ? now : highest;
        height = now;
    }
    assert_true(highest >= 5);
    assert_true(growths >= 5);
    run_finish(&run);
}

static void emptied_and_filled_again_tree_equals_model(void **state)
{
    (void)state;
    const uint64_t seed = test_seed("unit/table/test_catalog_deep");
    struct run run = run_begin(CATALOG_MAX_VALUE_SIZE, 1500, 400, FRAMES, seed);
    for (unsigned round = 0; round < 6; round++) {
        run.phase = round % 2 == 0 ? PHASE_RANDOM : PHASE_ASCENDING;
        for (unsigned i = 1; i < PHASE_STEPS; i++) {
            step(&run, i);
        }
        check_everything(&run);
        empty(&run);
    }
    run_finish(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_batches_deep_tree_equal_model),
        cmocka_unit_test(emptied_and_filled_again_tree_equals_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
