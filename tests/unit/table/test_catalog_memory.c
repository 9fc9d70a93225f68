/*
 * tests/unit/table/test_catalog_memory.c - a batch when memory runs out: the nth allocation fails, for each n.
 *
 * The sources of the tree are compiled once more in here, with an allocator that fails on demand.
 */
#include <stdlib.h>

static unsigned allocations_left;

static void *failing_malloc(size_t size)
{
    return allocations_left > 0 && --allocations_left == 0 ? NULL : malloc(size);
}

static void *failing_realloc(void *old, size_t size)
{
    return allocations_left > 0 && --allocations_left == 0 ? NULL : realloc(old, size);
}

#define malloc(size)       failing_malloc(size)
#define realloc(old, size) failing_realloc(old, size)
#include "table/catalog.c"
#include "table/catalog_apply.c"
#include "table/catalog_batch.c"
#include "table/catalog_page.c"
#include "table/catalog_plan.c"
#include "table/cow.c"
#undef malloc
#undef realloc

#include "tests/unit/table/catalog_fixture.h"

static struct catalog_key item_key(uint64_t sub)
{
    return (struct catalog_key){.ino = INO_NONE, .sub = sub, .type = ITEM_SNAPSHOT};
}

static int count_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    (void)key;
    (void)value;
    *(unsigned *)arg += (unsigned)value_size;
    return 0;
}

/* 40 puts, then a scan through the batch, then plan and apply. */
static int do_batch(struct fixture *fixture, unsigned fail_at)
{
    static const uint8_t value[1000];
    const struct catalog_key first = item_key(0);
    const struct catalog_key last = item_key(UINT64_MAX);
    struct catalog_batch batch;
    unsigned bytes = 0;
    int rc = 0;
    catalog_batch_init(&batch, fixture->live);
    allocations_left = fail_at;
    for (uint64_t i = 0; i < 40 && rc == 0; i++) {
        const struct catalog_key key = item_key(i * 7 % 40);
        rc = catalog_batch_put(&batch, &key, value, sizeof value);
    }
    if (rc == 0) {
        rwlock_lock_shared(&fixture->live->catalog_lock);
        rc = catalog_batch_scan(&batch, &first, &last, count_item, &bytes);
        rwlock_unlock_shared(&fixture->live->catalog_lock);
    }
    if (rc == 0) {
        assert_int_equal(40000, bytes);
        rc = fixture_run(fixture, &batch, true);
    }
    allocations_left = 0;
    catalog_batch_free(&batch);
    return rc;
}

static void failed_allocation_changes_nothing(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, 4096);
    unsigned failed = 0;
    while (do_batch(&fixture, failed + 1) == -ENOMEM) {
        failed++;
        struct fsm_stats stats;
        assert_int_equal(0, fixture.live->root.height);
        assert_int_equal(0, fsm_get_stats(fixture.catalog, &stats));
        assert_int_equal(0, stats.used_blocks);
        assert_int_equal(0, stats.reserved_blocks);
        assert_int_equal(0, fixture_pinned(&fixture));
    }
    assert_true(failed > 45);
    uint64_t items = 0;
    assert_int_equal(0, catalog_check(&fixture.diag, fixture.catalog, &fixture.live->root, &items));
    assert_int_equal(40, items);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
