/* tests/unit/bufcache/test_drop.c - dropping many relations: DROP-1 to DROP-4. */
#include "tests/unit/bufcache/fixture.h"

#define MANY 1000u

/* `count` relations from number 1000 on, each with `pages` dirty pages in a file of `blocks`. */
static void create_many(struct fixture *fixture, struct relation **relations, uint32_t count, block_no blocks,
                        block_no pages)
{
    for (uint32_t i = 0; i < count; i++) {
        relations[i] = fixture_create_relation(fixture, 1000 + i, blocks);
        fixture_make_pages(fixture, relations[i], 0, pages, 5);
    }
}

static void unlink_and_unref(struct relation **relations, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(relation_resident(relations[i]), 0);
        assert_int_equal(relation_unlink_file(relations[i]), 0);
        relation_unref(relations[i]);
    }
}

static void drop_thousand_relations_one_pass_nothing_written(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(4096);
    struct relation *relations[MANY], *survivor = fixture_create_relation(fixture, 5, 100);
    struct drop_result result;
    fixture_make_pages(fixture, survivor, 0, 100, 5);
    create_many(fixture, relations, MANY, 3, 3);
    const uint64_t writes = fixture_calls(fixture, MEM_CALL_WRITE);
    bufcache_drop_relations(fixture->cache, relations, MANY, &result);
    assert_int_equal(result.mode, DROP_MODE_SWEEP);
    assert_int_equal(result.relations, MANY);
    assert_true(result.tags_read <= 4096);
    assert_true(result.max_tags_per_hold <= 1024);
    assert_int_equal(result.pages_discarded, 3 * MANY);
    assert_int_equal(result.dirty_discarded, 3 * MANY);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_WRITE), writes);
    struct bufcache_stats stats = fixture_stats(fixture);
    assert_int_equal(stats.sweeps, 1);
    assert_int_equal(stats.tags_read, result.tags_read);
    assert_int_equal(stats.discards, 3 * MANY);
    assert_int_equal(stats.dirty_frames, 100);
    assert_int_equal(stats.free_frames, 4096 - 100);
    fixture_write_all(fixture);
    assert_int_equal(fixture_stats(fixture).pages_written, 100);
    for (block_no block = 0; block < 100; block++)
        fixture_read_page(survivor, ptr_of(block, 5));
    assert_int_equal(fixture_stats(fixture).pages_read, 0);
    unlink_and_unref(relations, MANY);
    relation_unref(survivor);
    fixture_destroy(fixture);
}

static void drop_nothing_resident_no_tag_read(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relations[100];
    struct drop_result result;
    create_many(fixture, relations, 100, 2, 0);
    bufcache_drop_relations(fixture->cache, relations, 100, &result);
    assert_int_equal(result.mode, DROP_MODE_NONE);
    assert_int_equal(result.tags_read, 0);
    assert_int_equal(result.pages_discarded, 0);
    bufcache_drop_relations(fixture->cache, NULL, 0, &result);
    assert_int_equal(result.mode, DROP_MODE_NONE);
    assert_int_equal(fixture_stats(fixture).empty_drops, 2);
    unlink_and_unref(relations, 100);
    fixture_destroy(fixture);
}

static void drop_few_blocks_looked_up(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(4096); /* frames/32: 128 */
    struct relation *relations[40];
    struct drop_result result;
    create_many(fixture, relations, 40, 3, 1);
    bufcache_drop_relations(fixture->cache, relations, 40, &result);
    assert_int_equal(result.mode, DROP_MODE_LOOKUP);
    assert_true(result.tags_read <= 120);
    assert_int_equal(result.pages_discarded, 40);
    assert_int_equal(fixture_stats(fixture).lookup_drops, 1);
    assert_int_equal(fixture_stats(fixture).sweeps, 0);
    unlink_and_unref(relations, 40);
    fixture_destroy(fixture);
}

static void drop_lookup_or_sweep_at_the_limit(void **state)
{
    (void)state;
    static const struct {
        block_no blocks;
        enum drop_mode mode;
    } cases[] = {{127, DROP_MODE_LOOKUP}, {128, DROP_MODE_SWEEP}, {129, DROP_MODE_SWEEP}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct fixture *fixture = fixture_create(4096);
        struct relation *relation = fixture_create_relation(fixture, 9, cases[i].blocks);
        struct drop_result result;
        fixture_make_pages(fixture, relation, cases[i].blocks - 2, 2, 5);
        bufcache_drop_relations(fixture->cache, &relation, 1, &result);
        assert_int_equal(result.mode, cases[i].mode);
        assert_int_equal(result.pages_discarded, 2);
        relation_unref(relation);
        fixture_destroy(fixture);
    }
}

static void drop_sizes_not_known_yet_measured(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(4096);
    struct relation *relation = fixture_create_relation(fixture, 9, 20);
    struct drop_result result;
    fixture_make_pages(fixture, relation, 0, 20, 5);
    fixture_write_all(fixture);
    relation_unref(relation);
    fixture_reopen(fixture, 4096);
    relation = fixture_relation(fixture, 9);
    fixture_read_page(relation, ptr_of(3, 5));
    bufcache_drop_relations(fixture->cache, &relation, 1, &result);
    assert_int_equal(result.mode, DROP_MODE_LOOKUP);
    assert_int_equal(result.pages_discarded, 1);
    assert_int_equal(result.dirty_discarded, 0);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void drop_page_behind_the_file_still_found(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(4096);
    struct relation *relation = fixture_relation(fixture, 9); /* no file at all */
    struct drop_result result;
    fixture_make_pages(fixture, relation, 5, 1, 5);
    bufcache_drop_relations(fixture->cache, &relation, 1, &result);
    assert_int_equal(result.mode, DROP_MODE_SWEEP);
    assert_int_equal(result.pages_discarded, 1);
    relation_unref(relation);
    fixture_destroy(fixture);
}

/* Around the change from comparing one by one to the hash table; survivors between the victims stay. */
static void drop_each_number_of_victims_exact(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 4, 5, 16, 17, 31, 32, 33, 100, 255};
    for (size_t c = 0; c < ARRAY_COUNT(counts); c++) {
        struct fixture *fixture = fixture_create(2048);
        struct relation *relations[510], *victims[255];
        struct drop_result result;
        const uint32_t count = counts[c];
        create_many(fixture, relations, 2 * count, 100, 2);
        for (uint32_t i = 0; i < count; i++)
            victims[i] = relations[2 * i];
        bufcache_drop_relations(fixture->cache, victims, count, &result);
        assert_int_equal(result.mode, DROP_MODE_SWEEP);
        assert_int_equal(result.pages_discarded, 2 * count);
        for (uint32_t i = 0; i < 2 * count; i++) {
            assert_int_equal(relation_resident(relations[i]), i % 2 == 0 ? 0 : 2);
            if (i % 2 == 1)
                fixture_read_page(relations[i], ptr_of(1, 5));
            relation_unref(relations[i]);
        }
        fixture_destroy(fixture);
    }
}

static void drop_reply_pinned_page_readable_until_unpinned(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 9, 100);
    struct drop_result result;
    struct frame *frame;
    fixture_make_pages(fixture, relation, 0, 10, 5);
    assert_int_equal(page_read(relation, ptr_of(4, 5), LEAF, 0, &frame), 0);
    page_reply_pin(frame);
    page_unpin(frame);
    bufcache_drop_relations(fixture->cache, &relation, 1, &result);
    assert_int_equal(result.pages_discarded, 10);
    assert_int_equal(relation_resident(relation), 0);
    assert_int_equal(fixture_stats(fixture).free_frames, 511);
    assert_int_equal(fixture_stats(fixture).dirty_frames, 0);
    assert_int_equal(relation_unlink_file(relation), 0);
    relation_unref(relation); /* the frame keeps it */
    assert_int_equal(bufcache_check(fixture->cache), 0);
    assert_int_equal(relation_number(frame_relation(frame)), 9);
    page_assert_filled(frame);
    page_reply_unpin(frame);
    assert_int_equal(fixture_stats(fixture).free_frames, 512);
    fixture_destroy(fixture);
}

/* DROP-2: dead means that write-back passes it by, whatever is dirty. */
static void drop_dead_relation_never_written(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *victim = fixture_create_relation(fixture, 9, 400);
    struct relation *survivor = fixture_create_relation(fixture, 10, 2000);
    fixture_make_pages(fixture, victim, 0, 200, 5);
    bufcache_drop_relations(fixture->cache, &victim, 1, NULL);
    mem_device_counters_reset(fixture->mem);
    fixture_write_all(fixture);
    bufcache_step(fixture->cache);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_WRITE), 0);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC), 1); /* the survivor's */
    assert_int_equal(relation_unlink_file(victim), 0);
    relation_unref(victim);
    relation_unref(survivor);
    fixture_destroy(fixture);
}

/* The same drop in groups and at once reads tags in proportion to the groups. */
static void drop_in_groups_one_pass_a_group(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(4096);
    struct relation *relations[1000];
    struct drop_result result;
    create_many(fixture, relations, 1000, 2, 2);
    for (uint32_t i = 0; i < 1000; i += 100) {
        bufcache_drop_relations(fixture->cache, relations + i, 100, &result);
        assert_int_equal(result.pages_discarded, 200);
        assert_true(result.tags_read <= 4096);
    }
    assert_int_equal(fixture_stats(fixture).sweeps, 10);
    unlink_and_unref(relations, 1000);
    fixture_destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drop_thousand_relations_one_pass_nothing_written),
        cmocka_unit_test(drop_nothing_resident_no_tag_read),
        cmocka_unit_test(drop_few_blocks_looked_up),
        cmocka_unit_test(drop_lookup_or_sweep_at_the_limit),
        cmocka_unit_test(drop_sizes_not_known_yet_measured),
        cmocka_unit_test(drop_page_behind_the_file_still_found),
        cmocka_unit_test(drop_each_number_of_victims_exact),
        cmocka_unit_test(drop_reply_pinned_page_readable_until_unpinned),
        cmocka_unit_test(drop_dead_relation_never_written),
        cmocka_unit_test(drop_in_groups_one_pass_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
