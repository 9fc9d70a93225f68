/* tests/unit/bufcache/test_page.c - pages: made, found, read, latched, pinned, discarded, evicted. */
#include "tests/unit/bufcache/fixture.h"

static void page_new_filled_header_pinned_latched_dirty(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 0x1234, 4);
    struct frame_budget budget;
    assert_int_equal(frame_budget_take(fixture->cache, 0, 2, &budget), 0);
    struct frame *frame = page_new(relation, &budget, ptr_of(3, 9), INNER, 2);
    const struct page_header *header = frame_page(frame);
    assert_int_equal(budget.news, 1);
    assert_int_equal(le64_get(header->rel), 0x1234);
    assert_int_equal(le64_get(header->birth), 9);
    assert_int_equal(le32_get(header->block), 3);
    assert_int_equal(le32_get(header->alloc), ptr_of(3, 9).alloc);
    assert_int_equal(header->type, INNER);
    assert_int_equal(header->level, 2);
    assert_int_equal(le16_get(header->used), 0);
    for (size_t i = PAGE_HEADER_SIZE; i < BLOCK_SIZE; i++)
        assert_int_equal(((const uint8_t *)header)[i], 0);
    assert_true(page_is_latched(frame));
    assert_false(page_try_latch(frame));
    assert_ptr_equal(frame_relation(frame), relation);
    assert_int_equal(frame_ptr(frame).block, 3);
    assert_int_equal(frame_ptr(frame).birth, 9);
    assert_int_equal(relation_resident(relation), 1);
    struct bufcache_stats stats = fixture_stats(fixture);
    assert_int_equal(stats.dirty_frames, 1);
    assert_int_equal(stats.pinned_frames, 1);
    assert_int_equal(stats.free_frames, 510);
    page_unlatch(frame, false);
    page_unpin(frame);
    frame_budget_release(&budget);
    stats = fixture_stats(fixture);
    assert_int_equal(stats.dirty_frames, 1);
    assert_int_equal(stats.pinned_frames, 0);
    assert_int_equal(stats.free_frames, 511);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_forget_frame_back_in_budget(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 4);
    struct frame_budget budget;
    assert_int_equal(frame_budget_take(fixture->cache, 0, 1, &budget), 0);
    for (int i = 0; i < 3; i++) {
        struct frame *frame = page_new(relation, &budget, ptr_of(1, 2), LEAF, 0);
        assert_int_equal(budget.news, 0);
        page_forget(frame, &budget);
        assert_int_equal(budget.news, 1);
        assert_int_equal(relation_resident(relation), 0);
        assert_int_equal(fixture_stats(fixture).dirty_frames, 0);
    }
    frame_budget_release(&budget);
    frame_budget_release(&budget); /* zeroed: ignored */
    assert_int_equal(fixture_stats(fixture).free_frames, 512);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_read_second_time_is_a_hit(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 4);
    fixture_make_pages(fixture, relation, 0, 4, 5);
    fixture_write_all(fixture);
    relation_unref(relation);
    fixture_reopen(fixture, 512);
    relation = fixture_relation(fixture, 7);
    for (int i = 0; i < 3; i++)
        fixture_read_page(relation, ptr_of(2, 5));
    const struct bufcache_stats stats = fixture_stats(fixture);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.hits, 2);
    assert_int_equal(stats.pages_read, 1);
    assert_int_equal(stats.read_calls, 1);
    assert_int_equal(relation_resident(relation), 1);
    struct bufcache_usage *list = NULL;
    size_t count = 0;
    assert_int_equal(bufcache_list_usage(fixture->cache, &list, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(list[0].hits, 2);
    assert_int_equal(list[0].misses, 1);
    free(list);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_read_many_neighbours_in_one_call(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 64);
    struct page_ptr ptrs[21];
    struct frame *frames[21];
    fixture_make_pages(fixture, relation, 0, 64, 5);
    fixture_write_all(fixture);
    relation_unref(relation);
    fixture_reopen(fixture, 512);
    relation = fixture_relation(fixture, 7);
    fixture_read_page(relation, ptr_of(4, 5)); /* splits the first run */
    for (unsigned i = 0; i < 10; i++)
        ptrs[i] = ptr_of(i, 5);
    for (unsigned i = 10; i < 20; i++)
        ptrs[i] = ptr_of(30 + i, 5);
    ptrs[20] = ptr_of(45, 5); /* the same page twice */
    assert_int_equal(page_read_many(relation, ptrs, 21, LEAF, 0, frames), 0);
    for (unsigned i = 0; i < 21; i++) {
        assert_int_equal(frame_ptr(frames[i]).block, ptrs[i].block);
        page_assert_filled(frames[i]);
        page_unpin(frames[i]);
    }
    const struct bufcache_stats stats = fixture_stats(fixture);
    assert_int_equal(stats.read_calls, 1 + 3);
    assert_int_equal(stats.pages_read, 20);
    assert_int_equal(stats.pinned_frames, 0);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_read_many_one_damaged_none_pinned(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 16);
    struct page_ptr ptrs[16];
    struct frame *frames[16];
    char path[64];
    size_t run;
    fixture_make_pages(fixture, relation, 0, 16, 5);
    fixture_write_all(fixture);
    relation_unref(relation);
    fixture_reopen(fixture, 512);
    fixture_path(7, path, sizeof path);
    mem_device_file_bytes(fixture->mem, path, 9 * BLOCK_SIZE + 100, &run)[0] ^= 1;
    relation = fixture_relation(fixture, 7);
    for (unsigned i = 0; i < 16; i++)
        ptrs[i] = ptr_of(i, 5);
    assert_int_equal(page_read_many(relation, ptrs, 16, LEAF, 0, frames), -EIO);
    assert_int_equal(fixture_stats(fixture).pinned_frames, 0);
    assert_int_equal(fixture_stats(fixture).damaged_pages, 1);
    assert_int_equal(relation_resident(relation), 15);
    assert_int_equal(bufcache_check(fixture->cache), 0);
    fixture_read_page(relation, ptrs[8]);
    relation_unref(relation);
    fixture_destroy(fixture);
}

/* Of two relations; pins, dirt and use of each page are counted, and none of them changes. */
static void usage_is_listed_by_relation(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *one = fixture_create_relation(fixture, 9, 4);
    struct relation *two = fixture_create_relation(fixture, 7, 4);
    struct bufcache_usage *list = NULL;
    size_t count = 0;
    struct frame *frame;
    fixture_make_pages(fixture, one, 0, 3, 5);
    fixture_write_all(fixture);
    fixture_make_pages(fixture, two, 0, 2, 6);
    assert_int_equal(page_read(one, ptr_of(1, 5), LEAF, 0, &frame), 0);
    const struct bufcache_stats before = fixture_stats(fixture);
    for (unsigned again = 0; again < 2; again++) {
        assert_int_equal(bufcache_list_usage(fixture->cache, &list, &count), 0);
        assert_int_equal(count, 2);
        assert_int_equal(list[0].rel, 7);
        assert_int_equal(list[0].resident, 2);
        assert_int_equal(list[0].dirty, 2);
        assert_int_equal(list[0].pinned, 0);
        assert_int_equal(list[1].rel, 9);
        assert_int_equal(list[1].resident, 3);
        assert_int_equal(list[1].dirty, 0);
        assert_int_equal(list[1].pinned, 1);
        assert_int_equal(list[0].hits + list[0].misses, 0);
        assert_int_equal(list[1].hits, 1); /* the pin */
        for (size_t i = 0; i < count; i++) {
            uint32_t sum = 0;
            for (unsigned used = 0; used < BUFCACHE_USAGE_COUNTS; used++)
                sum += list[i].by_count[used];
            assert_int_equal(sum, list[i].resident);
        }
        free(list);
    }
    const struct bufcache_stats after = fixture_stats(fixture);
    assert_memory_equal(&before, &after, sizeof before);
    page_unpin(frame);
    relation_unref(one);
    relation_unref(two);
    fixture_destroy(fixture);
}

/* CACHE-1: which states allow the latch. */
static void page_try_latch_each_state_as_cache_1_says(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 4);
    struct frame *frame, *again;
    fixture_make_page(fixture, relation, ptr_of(0, 5), LEAF);
    assert_int_equal(page_read(relation, ptr_of(0, 5), LEAF, 0, &frame), 0);
    /* dirty, never written */
    assert_true(page_try_latch(frame));
    assert_true(page_is_latched(frame));
    assert_false(page_try_latch(frame));
    page_unlatch(frame, true);
    assert_false(page_is_latched(frame));
    /* a reply */
    page_reply_pin(frame);
    assert_false(page_try_latch(frame));
    page_reply_unpin(frame);
    assert_true(page_try_latch(frame));
    page_unlatch(frame, false);
    /* another pin alone does not matter */
    page_pin_again(frame);
    assert_true(page_try_latch(frame));
    page_unlatch(frame, true);
    page_unpin(frame);
    /* written */
    fixture_write_all(fixture);
    assert_false(page_try_latch(frame));
    page_unpin(frame);
    /* read from disk */
    page_discard(relation, 0);
    assert_int_equal(page_read(relation, ptr_of(0, 5), LEAF, 0, &again), 0);
    assert_false(page_try_latch(again));
    /* dead */
    page_discard(relation, 0);
    assert_false(page_try_latch(again));
    page_unpin(again);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static int latch_while_written(void *arg, const struct mem_event *event)
{
    struct frame *frame = *(struct frame **)arg;
    if (event->call == MEM_CALL_WRITE)
        assert_false(page_try_latch(frame));
    return 0;
}

static void page_try_latch_while_being_written_fails(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 4);
    struct frame *frame;
    fixture_make_page(fixture, relation, ptr_of(0, 5), LEAF);
    assert_int_equal(page_read(relation, ptr_of(0, 5), LEAF, 0, &frame), 0);
    mem_device_set_hook(fixture->mem, latch_while_written, &frame);
    fixture_write_all(fixture);
    mem_device_set_hook(fixture->mem, NULL, NULL);
    assert_int_equal(fixture_stats(fixture).pages_written, 1);
    page_unpin(frame);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_discard_dirty_page_never_written(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 4);
    fixture_make_pages(fixture, relation, 0, 2, 5);
    page_discard(relation, 1);
    page_discard(relation, 3); /* not there */
    assert_int_equal(relation_resident(relation), 1);
    fixture_write_all(fixture);
    const struct bufcache_stats stats = fixture_stats(fixture);
    assert_int_equal(stats.discards, 1);
    assert_int_equal(stats.pages_written, 1);
    assert_int_equal(stats.free_frames, 511);
    /* the block can be used again at once */
    fixture_make_page(fixture, relation, ptr_of(1, 6), LEAF);
    fixture_read_page(relation, ptr_of(1, 6));
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_discard_with_reply_pin_freed_by_last_unpin(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 4);
    struct frame *frame;
    fixture_make_page(fixture, relation, ptr_of(0, 5), LEAF);
    assert_int_equal(page_read(relation, ptr_of(0, 5), LEAF, 0, &frame), 0);
    page_reply_pin(frame);
    page_reply_pin(frame);
    page_unpin(frame);
    page_discard(relation, 0);
    assert_int_equal(relation_resident(relation), 0);
    assert_int_equal(bufcache_check(fixture->cache), 0);
    fixture_make_page(fixture, relation, ptr_of(0, 6), LEAF);
    relation_unref(relation);
    page_assert_filled(frame);
    page_reply_unpin(frame);
    assert_int_equal(fixture_stats(fixture).free_frames, 510);
    page_assert_filled(frame);
    page_reply_unpin(frame);
    assert_int_equal(fixture_stats(fixture).free_frames, 511);
    fixture_destroy(fixture);
}

static void eviction_more_pages_than_frames_all_read_back(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 3000);
    fixture_make_pages(fixture, relation, 0, 3000, 5);
    struct bufcache_stats stats = fixture_stats(fixture);
    assert_true(stats.pages_written >= 3000 - 512);
    assert_true(stats.write_calls <= stats.pages_written / 8); /* neighbours went together */
    for (block_no block = 0; block < 3000; block++)
        fixture_read_page(relation, ptr_of(block, 5));
    stats = fixture_stats(fixture);
    assert_true(stats.evictions >= 3000 - 512);
    assert_true(relation_resident(relation) <= 512);
    assert_int_equal(bufcache_failed(fixture->cache), 0);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void eviction_pages_in_use_stay(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 2000);
    struct page_ptr ptrs[16];
    struct frame *frames[16];
    fixture_make_pages(fixture, relation, 0, 2000, 5);
    fixture_write_all(fixture);
    for (int i = 0; i < 6; i++)
        for (block_no block = 0; block < 32; block++)
            fixture_read_page(relation, ptr_of(block, 5));
    const uint64_t before = fixture_stats(fixture).pages_read;
    /* A scan in large pieces lives on its own frames. */
    for (block_no block = 32; block + 16 <= 2000; block += 16) {
        for (unsigned i = 0; i < 16; i++)
            ptrs[i] = ptr_of(block + i, 5);
        assert_int_equal(page_read_many(relation, ptrs, 16, LEAF, 0, frames), 0);
        for (unsigned i = 0; i < 16; i++)
            page_unpin(frames[i]);
    }
    const uint64_t between = fixture_stats(fixture).pages_read;
    assert_true(between > before);
    for (block_no block = 0; block < 32; block++)
        fixture_read_page(relation, ptr_of(block, 5));
    assert_int_equal(fixture_stats(fixture).pages_read, between);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void cache_size_tiny_is_the_minimum(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(1);
    assert_int_equal(fixture_stats(fixture).frames, BUFCACHE_MIN_FRAMES);
    assert_int_equal(frame_budget_max(fixture->cache), BUFCACHE_MIN_FRAMES / 4);
    fixture_destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_new_filled_header_pinned_latched_dirty),
        cmocka_unit_test(page_forget_frame_back_in_budget),
        cmocka_unit_test(page_read_second_time_is_a_hit),
        cmocka_unit_test(page_read_many_neighbours_in_one_call),
        cmocka_unit_test(page_read_many_one_damaged_none_pinned),
        cmocka_unit_test(usage_is_listed_by_relation),
        cmocka_unit_test(page_try_latch_each_state_as_cache_1_says),
        cmocka_unit_test(page_try_latch_while_being_written_fails),
        cmocka_unit_test(page_discard_dirty_page_never_written),
        cmocka_unit_test(page_discard_with_reply_pin_freed_by_last_unpin),
        cmocka_unit_test(eviction_more_pages_than_frames_all_read_back),
        cmocka_unit_test(eviction_pages_in_use_stay),
        cmocka_unit_test(cache_size_tiny_is_the_minimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
