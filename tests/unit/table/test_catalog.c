/*
 * tests/unit/table/test_catalog.c - the catalog tree against a sorted array.
 *
 * Random batches (catalog_random.h), then single properties, one a test. Trees of several levels are in
 * test_catalog_deep.c.
 */
#include "tests/unit/table/catalog_random.h"

#include "base/checksum.h"

static void random_run(struct run run, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) {
        step(&run, i);
    }
    run_finish(&run);
}

static void random_batches_small_values_equal_model(void **state)
{
    (void)state;
    const uint64_t seed = test_seed("unit/table/test_catalog");
    random_run(run_begin(200, 120, 8000, BUFCACHE_MIN_FRAMES, seed), test_is_long() ? 40000 : 6000);
}

static void random_batches_large_values_equal_model(void **state)
{
    (void)state;
    const uint64_t seed = test_seed("unit/table/test_catalog");
    random_run(run_begin(CATALOG_MAX_VALUE_SIZE, 120, 1500, BUFCACHE_MIN_FRAMES, seed), test_is_long() ? 40000 : 4000);
}

/* ---- single properties ---- */

static void put_one(struct fixture *fixture, uint64_t sub, const void *value, size_t size)
{
    struct catalog_batch batch;
    catalog_batch_init(&batch, fixture->live);
    const struct catalog_key key = item_key(sub);
    assert_int_equal(0, catalog_batch_put(&batch, &key, value, size));
    assert_int_equal(0, fixture_run(fixture, &batch, true));
    catalog_batch_free(&batch);
}

static void put_range(struct fixture *fixture, uint64_t first, uint64_t count, size_t size)
{
    static const uint8_t value[CATALOG_MAX_VALUE_SIZE];
    for (uint64_t i = 0; i < count; i++) {
        put_one(fixture, first + i, value, size);
    }
}

static void remove_range(struct fixture *fixture, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        struct catalog_batch batch;
        catalog_batch_init(&batch, fixture->live);
        const struct catalog_key key = item_key(first + i);
        assert_int_equal(0, catalog_batch_remove(&batch, &key));
        assert_int_equal(0, fixture_run(fixture, &batch, true));
        catalog_batch_free(&batch);
    }
}

static uint32_t used_blocks(struct fixture *fixture)
{
    struct fsm_stats stats;
    assert_int_equal(0, fsm_get_stats(fixture->catalog, &stats));
    return stats.used_blocks;
}

static void empty_tree_reads_nothing(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    const struct model none = {0};
    const struct catalog_key key = item_key(1);
    model_check_get(&none, fixture.live, NULL, &key);
    model_check_all(&none, fixture.live, NULL);
    remove_range(&fixture, 1, 3);
    assert_int_equal(0, fixture.live->root.height);
    struct catalog_batch batch;
    catalog_batch_init(&batch, fixture.live);
    assert_int_equal(0, fixture_run(&fixture, &batch, true));
    catalog_batch_free(&batch);
    fixture_close(&fixture);
}

static void ascending_inserts_fill_pages(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 0, 7400, 200); /* 36 items of 222 bytes fill a leaf */
    const uint32_t leaves = (7400 + 35) / 36;
    assert_int_equal(leaves + 3, used_blocks(&fixture)); /* more leaves than one inner page holds */
    fixture_close(&fixture);
}

static void removals_merge_pages(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 0, 4000, 200);
    const uint32_t full = used_blocks(&fixture);
    for (uint64_t i = 0; i < 4000; i += 10) {
        remove_range(&fixture, i, 9); /* every tenth item stays */
    }
    assert_true(used_blocks(&fixture) < full / 3);
    fixture_close(&fixture);
}

static void removals_lower_the_tree(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 0, 7400, 200);
    assert_int_equal(3, fixture.live->root.height);
    remove_range(&fixture, 20, 7380);
    assert_int_equal(1, fixture.live->root.height);
    assert_int_equal(1, used_blocks(&fixture));
    fixture_close(&fixture);
}

static void unchanged_items_change_no_page(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 0, 1000, 100);
    struct holder *holder = NULL;
    assert_int_equal(0, cow_fork(fixture.cow, HOLDER_CHECKPOINT, &holder));
    const struct catalog_root root = fixture.live->root;
    put_range(&fixture, 500, 1, 100); /* the same value */
    remove_range(&fixture, 5000, 1);  /* not there */
    assert_memory_equal(&root.ptr, &fixture.live->root.ptr, sizeof root.ptr);
    put_range(&fixture, 500, 1, 99);
    assert_int_not_equal(root.ptr.block, fixture.live->root.ptr.block);
    cow_holder_close(fixture.cow, holder);
    fixture_close(&fixture);
}

static void private_pages_change_in_place(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 0, 1000, 100);
    const struct catalog_root root = fixture.live->root;
    put_range(&fixture, 500, 1, 99);
    assert_memory_equal(&root.ptr, &fixture.live->root.ptr, sizeof root.ptr);
    /* CACHE-1: once written, a page is not changed any more, whoever sees it. */
    struct writeback_result result;
    assert_int_equal(0, bufcache_write_back(fixture.cache, cow_epoch(fixture.cow), &result));
    put_range(&fixture, 500, 1, 98);
    assert_int_not_equal(root.ptr.block, fixture.live->root.ptr.block);
    fixture_close(&fixture);
}

static void large_batch_takes_one_plan(void **state)
{
    (void)state;
    struct fixture fixture;
    struct model model = {0};
    fixture_open(&fixture, 1, 65536);
    struct catalog_batch batch;
    catalog_batch_init(&batch, fixture.live);
    uint8_t value[300];
    for (uint64_t i = 0; i < 1500; i++) {
        const uint64_t sub = i * 7919 % 1500;
        const uint16_t size = (uint16_t)(sub % 300);
        const struct catalog_key key = item_key(sub);
        value_fill(value, i, size);
        assert_int_equal(0, catalog_batch_put(&batch, &key, value, size));
        model_put(&model, &key, i, size);
    }
    model_check_all(&model, fixture.live, &batch);
    assert_int_equal(0, fixture_run(&fixture, &batch, true));
    catalog_batch_free(&batch);
    model_check_all(&model, fixture.live, NULL);
    uint64_t items = 0;
    assert_int_equal(0, catalog_check(&fixture.diag, fixture.catalog, &fixture.live->root, &items));
    assert_int_equal(1500, items);
    for (uint64_t i = 0; i < 1500; i++) {
        const struct catalog_key key = item_key(i);
        assert_int_equal(0, catalog_batch_remove(&batch, &key));
    }
    assert_int_equal(0, fixture_run(&fixture, &batch, true));
    catalog_batch_free(&batch);
    assert_int_equal(0, used_blocks(&fixture));
    model_free(&model);
    fixture_close(&fixture);
}

static void later_edit_replaces_earlier(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    struct catalog_batch batch;
    catalog_batch_init(&batch, fixture.live);
    const struct catalog_key key = item_key(7);
    uint8_t buffer[8];
    size_t size = 0;
    rwlock_lock_shared(&fixture.live->catalog_lock);
    assert_int_equal(0, catalog_batch_put(&batch, &key, "one", 3));
    assert_int_equal(0, catalog_batch_remove(&batch, &key));
    assert_int_equal(-ENOENT, catalog_batch_get(&batch, &key, buffer, sizeof buffer, &size));
    assert_int_equal(0, catalog_batch_put(&batch, &key, "three", 5));
    assert_int_equal(-ENOBUFS, catalog_batch_get(&batch, &key, buffer, 4, &size));
    assert_int_equal(0, catalog_batch_get(&batch, &key, buffer, sizeof buffer, &size));
    assert_int_equal(-ENOENT, catalog_get(fixture.live, &key, buffer, sizeof buffer, &size));
    rwlock_unlock_shared(&fixture.live->catalog_lock);
    assert_int_equal(1, batch.count);
    assert_int_equal(5, size);
    assert_int_equal(0, fixture_run(&fixture, &batch, true));
    catalog_batch_free(&batch);
    rwlock_lock_shared(&fixture.live->catalog_lock);
    assert_int_equal(-ENOBUFS, catalog_get(fixture.live, &key, buffer, 4, &size));
    assert_int_equal(0, catalog_get(fixture.live, &key, buffer, sizeof buffer, &size));
    rwlock_unlock_shared(&fixture.live->catalog_lock);
    assert_memory_equal("three", buffer, size);
    fixture_close(&fixture);
}

static void bad_values_are_refused(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    struct catalog_batch batch;
    catalog_batch_init(&batch, fixture.live);
    static const uint8_t value[CATALOG_MAX_VALUE_SIZE + 1];
    struct catalog_key key = item_key(1);
    assert_int_equal(-E2BIG, catalog_batch_put(&batch, &key, value, sizeof value));
    key.ino = 5; /* snapshots have none */
    assert_int_equal(-EINVAL, catalog_batch_put(&batch, &key, value, 1));
    key = (struct catalog_key){.ino = 5, .type = ITEM_INODE};
    assert_int_equal(-EINVAL, catalog_batch_put(&batch, &key, value, 1));
    assert_int_equal(0, batch.count);
    catalog_batch_free(&batch);
    fixture_close(&fixture);
}

static void read_only_view_is_not_planned(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    struct holder *holder = NULL;
    struct view *view = NULL;
    put_one(&fixture, 1, "x", 1);
    assert_int_equal(0, cow_fork(fixture.cow, HOLDER_CHECKPOINT, &holder));
    assert_int_equal(0, view_open_read_only(fixture.cow, holder, &view));
    struct catalog_batch batch;
    catalog_batch_init(&batch, view);
    const struct catalog_key key = item_key(2);
    assert_int_equal(0, catalog_batch_put(&batch, &key, "y", 1));
    assert_int_equal(-EROFS, fixture_run(&fixture, &batch, true));
    catalog_batch_free(&batch);
    view_close(view);
    cow_holder_close(fixture.cow, holder);
    fixture_close(&fixture);
}

static void small_budget_is_refused(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 0, 1000, 100);
    for (uint32_t pins = 0; pins < 3; pins++) {
        struct frame_budget budget = {0};
        struct catalog_batch batch;
        catalog_batch_init(&batch, fixture.live);
        const struct catalog_key key = item_key(5000);
        assert_int_equal(0, catalog_batch_put(&batch, &key, "y", 1));
        assert_int_equal(0, frame_budget_take(fixture.cache, pins, 3 - pins, &budget));
        rwlock_lock_exclusive(&fixture.live->catalog_lock);
        assert_int_equal(-E2BIG, catalog_batch_plan(&batch, &budget));
        rwlock_unlock_exclusive(&fixture.live->catalog_lock);
        frame_budget_release(&budget);
        catalog_batch_free(&batch);
        assert_int_equal(0, fixture_pinned(&fixture));
    }
    fixture_close(&fixture);
}

/* ---- failures ---- */

static void full_disk_fails_the_plan_only(void **state)
{
    (void)state;
    struct fixture fixture;
    struct model model = {0};
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    mem_device_set_capacity(fixture.mem, 300u * BLOCK_SIZE);
    uint8_t value[1000];
    int rc = 0;
    for (uint64_t i = 0; rc == 0; i++) {
        struct catalog_batch batch;
        catalog_batch_init(&batch, fixture.live);
        const struct catalog_key key = item_key(i * 7919 % 10007);
        value_fill(value, i, sizeof value);
        assert_int_equal(0, catalog_batch_put(&batch, &key, value, sizeof value));
        rc = fixture_run(&fixture, &batch, true);
        catalog_batch_free(&batch);
        if (rc == 0) {
            model_put(&model, &key, i, sizeof value);
        }
    }
    assert_int_equal(-ENOSPC, rc);
    assert_true(model.count > 500);
    model_check_all(&model, fixture.live, NULL);
    assert_int_equal(0, fixture_pinned(&fixture));
    struct fsm_stats stats;
    assert_int_equal(0, fsm_get_stats(fixture.catalog, &stats));
    assert_int_equal(0, stats.reserved_blocks);
    mem_device_set_capacity(fixture.mem, 0);
    put_one(&fixture, 20000, "x", 1);
    model_free(&model);
    fixture_close(&fixture);
}

static void read_errors_fail_the_plan_only(void **state)
{
    (void)state;
    struct fixture fixture;
    struct test_random random;
    test_random_init(&random, test_seed("unit/table/test_catalog"));
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 0, 6000, 900); /* larger than the cache */
    fixture_reopen(&fixture, BUFCACHE_MIN_FRAMES);
    unsigned failures = 0;
    for (unsigned i = 0; i < 300; i++) {
        struct catalog_batch batch;
        catalog_batch_init(&batch, fixture.live);
        for (unsigned edit = 0; edit < 4; edit++) {
            const struct catalog_key key = item_key(test_random_below(&random, 6000));
            assert_int_equal(0, catalog_batch_remove(&batch, &key));
        }
        const struct catalog_root root = fixture.live->root;
        mem_device_fail(fixture.mem, MEM_CALL_READ, test_random_range(&random, 1, 4), EIO, false);
        const int rc = fixture_run(&fixture, &batch, true);
        catalog_batch_free(&batch);
        mem_device_clear_faults(fixture.mem);
        assert_true(rc == 0 || rc == -EIO);
        failures += rc != 0;
        if (rc != 0) {
            assert_memory_equal(&root.ptr, &fixture.live->root.ptr, sizeof root.ptr);
        }
        assert_int_equal(0, fixture_pinned(&fixture));
    }
    assert_true(failures > 10);
    assert_int_equal(0, catalog_check(&fixture.diag, fixture.catalog, &fixture.live->root, NULL));
    fixture_close(&fixture);
}

static void reopened_tree_has_the_same_items(void **state)
{
    (void)state;
    struct fixture fixture;
    struct model model = {0};
    struct test_random random;
    test_random_init(&random, test_seed("unit/table/test_catalog"));
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    uint8_t value[CATALOG_MAX_VALUE_SIZE];
    for (unsigned i = 0; i < 2000; i++) {
        const struct catalog_key key = item_key(test_random_below(&random, 3000));
        const uint16_t size = (uint16_t)test_random_below(&random, 1000);
        const uint64_t tag = test_random_u64(&random);
        value_fill(value, tag, size);
        put_one(&fixture, key.sub, value, size);
        model_put(&model, &key, tag, size);
    }
    fixture_reopen(&fixture, BUFCACHE_MIN_FRAMES);
    model_check_all(&model, fixture.live, NULL);
    uint64_t items = 0;
    assert_int_equal(0, catalog_check(&fixture.diag, fixture.catalog, &fixture.live->root, &items));
    assert_int_equal(model.count, items);
    model_free(&model);
    fixture_close(&fixture);
}

/* ---- a page that is valid by itself but does not fit where it stands ---- */

struct leaf_search {
    unsigned leaves_left; /* 0: the next one is it */
    block_no block;
};

static int find_leaf_block(void *arg, struct page_ptr ptr, uint8_t level)
{
    struct leaf_search *search = arg;
    if (level == 0 && search->leaves_left-- == 0) {
        search->block = ptr.block;
        return 1;
    }
    return 0;
}

/* Changes the key of the first or last item of the nth leaf on the device, with a right checksum. */
static void move_key_on_disk(struct fixture *fixture, unsigned leaf_number, bool last, uint64_t sub)
{
    struct leaf_search search = {.leaves_left = leaf_number};
    assert_int_equal(1, catalog_visit(fixture->catalog, &fixture->live->root, NULL, find_leaf_block, &search));
    size_t run = 0;
    uint8_t *page = mem_device_file_bytes(fixture->mem, FIXTURE_FILE, (uint64_t)search.block * BLOCK_SIZE, &run);
    assert_non_null(page);
    assert_int_equal(BLOCK_SIZE, run);
    struct page_header *header = (struct page_header *)page;
    struct catalog_item_head *heads = (struct catalog_item_head *)(page + PAGE_HEADER_SIZE);
    heads[last ? le16_get(header->count) - 1 : 0].key.sub = le64_of(sub);
    header->checksum = le64_of(checksum_64(page + 8, BLOCK_SIZE - 8, 0));
}

/* Every way to that leaf finds the damage. */
static void check_damage_at(struct fixture *fixture, struct catalog_key key)
{
    uint8_t buffer[100];
    size_t size = 0;
    const struct model none = {0};
    struct model_compare compare = {.model = &none};
    rwlock_lock_shared(&fixture->live->catalog_lock);
    assert_int_equal(-EIO, catalog_get(fixture->live, &key, buffer, sizeof buffer, &size));
    assert_int_equal(1, atomic_load(&fixture->diag.damage_count));
    assert_int_equal(-EIO, catalog_scan(fixture->live, &key, &key, model_compare_item, &compare));
    rwlock_unlock_shared(&fixture->live->catalog_lock);
    assert_int_equal(-EIO, catalog_check(&fixture->diag, fixture->catalog, &fixture->live->root, NULL));
    struct catalog_batch batch;
    catalog_batch_init(&batch, fixture->live);
    assert_int_equal(0, catalog_batch_remove(&batch, &key));
    assert_int_equal(-EIO, fixture_run(fixture, &batch, true));
    catalog_batch_free(&batch);
    assert_int_equal(0, fixture_pinned(fixture));
}

static void leaf_beyond_its_range_is_damage(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 100, 1000, 100);
    fixture_reopen(&fixture, BUFCACHE_MIN_FRAMES);
    move_key_on_disk(&fixture, 0, true, 100000);
    check_damage_at(&fixture, item_key(100));
    fixture_close(&fixture);
}

static void leaf_before_its_range_is_damage(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 100, 1000, 100);
    fixture_reopen(&fixture, BUFCACHE_MIN_FRAMES);
    move_key_on_disk(&fixture, 1, false, 5);
    check_damage_at(&fixture, item_key(100 + 70)); /* 66 items of 122 bytes fill a leaf */
    fixture_close(&fixture);
}

/* ---- visit ---- */

struct order {
    unsigned inner, leaves;
    bool seen[4096];
};

static int note_order(void *arg, struct page_ptr ptr, uint8_t level)
{
    struct order *order = arg;
    assert_true(ptr.block < ARRAY_COUNT(order->seen) && !order->seen[ptr.block]);
    order->seen[ptr.block] = true;
    order->inner += level > 0;
    order->leaves += level == 0;
    return 0;
}

static void visit_reads_no_leaf(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    put_range(&fixture, 0, 3000, 500);
    fixture_reopen(&fixture, BUFCACHE_MIN_FRAMES); /* visits, to build the map */
    struct bufcache_stats stats;
    bufcache_get_stats(fixture.cache, &stats);
    struct order order = {0};
    assert_int_equal(0, catalog_visit(fixture.catalog, &fixture.live->root, NULL, note_order, &order));
    assert_int_equal(order.inner, stats.pages_read);
    assert_int_equal(used_blocks(&fixture), order.inner + order.leaves);
    assert_true(order.leaves > 150);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_tree_reads_nothing),
        cmocka_unit_test(ascending_inserts_fill_pages),
        cmocka_unit_test(removals_merge_pages),
        cmocka_unit_test(removals_lower_the_tree),
        cmocka_unit_test(unchanged_items_change_no_page),
        cmocka_unit_test(private_pages_change_in_place),
        cmocka_unit_test(large_batch_takes_one_plan),
        cmocka_unit_test(later_edit_replaces_earlier),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(read_only_view_is_not_planned),
        cmocka_unit_test(small_budget_is_refused),
        cmocka_unit_test(full_disk_fails_the_plan_only),
        cmocka_unit_test(read_errors_fail_the_plan_only),
        cmocka_unit_test(reopened_tree_has_the_same_items),
        cmocka_unit_test(leaf_beyond_its_range_is_damage),
        cmocka_unit_test(leaf_before_its_range_is_damage),
        cmocka_unit_test(visit_reads_no_leaf),
        cmocka_unit_test(random_batches_small_values_equal_model),
        cmocka_unit_test(random_batches_large_values_equal_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
