/* tests/unit/bufcache/test_writeback.c - write-back: what, in how many calls, and the end of it after a failure. */
#include "base/checksum.h"
#include "tests/unit/bufcache/fixture.h"

static void write_back_neighbours_in_calls_of_one_mebibyte(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(1024);
    struct relation *relation = fixture_create_relation(fixture, 7, 600);
    struct relation *other = fixture_create_relation(fixture, 8, 10);
    struct writeback_result result;
    fixture_make_pages(fixture, other, 5, 3, 5);
    for (block_no block = 300; block > 0; block--) /* order of birth does not matter */
        fixture_make_page(fixture, relation, ptr_of(block - 1, 5), LEAF);
    fixture_make_pages(fixture, relation, 400, 10, 5);
    assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, &result), 0);
    assert_int_equal(result.pages, 313);
    assert_int_equal(result.calls, 3 + 1 + 1);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_WRITE), 5);
    assert_int_equal(fixture_stats(fixture).dirty_frames, 0);
    assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, &result), 0);
    assert_int_equal(result.pages, 0);
    relation_unref(relation);
    relation_unref(other);
    fixture_destroy(fixture);
}

static void write_back_up_to_birth_only(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 10);
    struct writeback_result result;
    for (block_no block = 0; block < 10; block++)
        fixture_make_page(fixture, relation, ptr_of(block, block), LEAF);
    assert_int_equal(bufcache_write_back(fixture->cache, 4, &result), 0);
    assert_int_equal(result.pages, 5);
    assert_int_equal(result.calls, 1);
    assert_int_equal(fixture_stats(fixture).dirty_frames, 5);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void write_back_latched_page_left_out(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 3);
    struct writeback_result result;
    struct frame *frame;
    fixture_make_pages(fixture, relation, 0, 3, 5);
    assert_int_equal(page_read(relation, ptr_of(1, 5), LEAF, 0, &frame), 0);
    assert_true(page_try_latch(frame));
    assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, &result), 0);
    assert_int_equal(result.pages, 2);
    assert_int_equal(result.calls, 2);
    page_unlatch(frame, true);
    page_unpin(frame);
    assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, &result), 0);
    assert_int_equal(result.pages, 1);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void write_back_page_with_pins_written_with_checksum(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 3);
    struct frame *frame;
    char path[64];
    size_t run;
    fixture_make_pages(fixture, relation, 0, 1, 5);
    assert_int_equal(page_read(relation, ptr_of(0, 5), LEAF, 0, &frame), 0);
    page_reply_pin(frame);
    mem_device_set_short_transfers(fixture->mem, true);
    fixture_write_all(fixture);
    fixture_path(7, path, sizeof path);
    const uint8_t *bytes = mem_device_file_bytes(fixture->mem, path, 0, &run);
    assert_memory_equal(bytes, frame_page(frame), BLOCK_SIZE);
    assert_int_equal(le64_get(((const struct page_header *)bytes)->checksum),
                     checksum_64(bytes + 8, BLOCK_SIZE - 8, 0));
    page_reply_unpin(frame);
    page_unpin(frame);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void write_failure_first_error_for_ever(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, EDQUOT};
    static const int results[] = {-EIO, -ENOSPC, -ENOSPC};
    for (size_t i = 0; i < ARRAY_COUNT(errors); i++) {
        struct fixture *fixture = fixture_create(512);
        struct relation *relation = fixture_create_relation(fixture, 7, 10);
        struct writeback_result result = {.pages = 99};
        struct frame *frame;
        fixture_make_pages(fixture, relation, 0, 10, 5);
        page_discard(relation, 5); /* two runs */
        mem_device_fail(fixture->mem, MEM_CALL_WRITE, 1, errors[i], false);
        assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, &result), results[i]);
        assert_int_equal(result.pages, 99);
        assert_int_equal(bufcache_failed(fixture->cache), results[i]);
        assert_int_equal(fixture_stats(fixture).dirty_frames, 9);
        assert_int_equal(fixture_calls(fixture, MEM_CALL_WRITE), 1);
        assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, &result), results[i]);
        bufcache_step(fixture->cache);
        assert_int_equal(fixture_calls(fixture, MEM_CALL_WRITE), 1);
        fixture_read_page(relation, ptr_of(2, 5));
        /* part of it may be on the disk: it must not be changed there (CACHE-1) */
        assert_int_equal(page_read(relation, ptr_of(0, 5), LEAF, 0, &frame), 0);
        assert_false(page_try_latch(frame));
        page_unpin(frame);
        relation_unref(relation);
        fixture_destroy(fixture);
    }
}

static void write_failure_at_eviction_reads_go_on_while_clean_pages_last(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 2000);
    struct frame_budget budget;
    struct frame *frame;
    fixture_make_pages(fixture, relation, 0, 1000, 5);
    fixture_write_all(fixture);
    fixture_make_pages(fixture, relation, 1000, 300, 5);
    mem_device_fail(fixture->mem, MEM_CALL_WRITE, 1, EIO, false);
    for (block_no block = 0; block < 1000; block++)
        fixture_read_page(relation, ptr_of(block, 5));
    assert_int_equal(bufcache_failed(fixture->cache), -EIO);
    /* and when nothing is clean any more, that is an error, not a hang */
    block_no block = 1300;
    int rc;
    while ((rc = frame_budget_take(fixture->cache, 0, 1, &budget)) == 0) {
        frame = page_new(relation, &budget, ptr_of(block++, 5), LEAF, 0);
        page_unlatch(frame, true);
        page_unpin(frame);
        frame_budget_release(&budget);
    }
    assert_int_equal(rc, -EIO);
    assert_int_equal(page_read(relation, ptr_of(0, 5), LEAF, 0, &frame), -EIO);
    assert_int_equal(fixture_stats(fixture).dirty_frames, 512);
    fixture_read_page(relation, ptr_of(1200, 5));
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void write_soon_written_by_next_step(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 100);
    struct frame_budget budget;
    struct frame *frames[64];
    assert_int_equal(frame_budget_take(fixture->cache, 0, 64, &budget), 0);
    for (block_no i = 0; i < 64; i++) {
        frames[i] = page_new(relation, &budget, ptr_of(i, 5), LEAF, 0);
        page_fill(frames[i]);
        page_unlatch(frames[i], true);
    }
    fixture_make_pages(fixture, relation, 64, 4, 5);
    bufcache_write_soon(frames, 64);
    bufcache_write_soon(frames, 0);
    for (unsigned i = 0; i < 64; i++)
        page_unpin(frames[i]);
    frame_budget_release(&budget);
    page_discard(relation, 63); /* named, and gone meanwhile */
    bufcache_step(fixture->cache);
    struct bufcache_stats stats = fixture_stats(fixture);
    assert_int_equal(stats.pages_written, 63);
    assert_int_equal(stats.write_calls, 1);
    assert_int_equal(stats.dirty_frames, 4);
    bufcache_step(fixture->cache);
    stats = fixture_stats(fixture);
    assert_int_equal(stats.pages_written, 63);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void step_restocks_free_list(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 1000);
    fixture_make_pages(fixture, relation, 0, 1000, 5);
    assert_true(fixture_stats(fixture).free_frames < 64);
    bufcache_step(fixture->cache);
    assert_int_equal(fixture_stats(fixture).free_frames, 64);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void step_too_many_dirty_cold_ones_written(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(1024);
    struct relation *relation = fixture_create_relation(fixture, 7, 1000);
    struct frame *tail;
    fixture_make_pages(fixture, relation, 0, 200, 5);
    for (int i = 0; i < 100; i++)
        bufcache_step(fixture->cache);
    assert_int_equal(fixture_stats(fixture).pages_written, 0); /* under a quarter: left alone */
    fixture_make_pages(fixture, relation, 200, 600, 5);
    assert_int_equal(page_read(relation, ptr_of(799, 5), LEAF, 0, &tail), 0); /* being appended to */
    for (int i = 0; i < 100; i++)
        bufcache_step(fixture->cache);
    assert_true(fixture_stats(fixture).dirty_frames <= 256);
    assert_true(page_try_latch(tail));
    page_unlatch(tail, true);
    page_unpin(tail);
    relation_unref(relation);
    fixture_destroy(fixture);
}

/* A page being appended to would have to move if it were written along with its neighbours. */
static void eviction_neighbour_in_use_not_written_along(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 512);
    struct frame_budget budget;
    struct frame *frame;
    fixture_make_pages(fixture, relation, 0, 512, 5);
    for (int i = 0; i < 5; i++)
        fixture_read_page(relation, ptr_of(50, 5));
    assert_int_equal(frame_budget_take(fixture->cache, 0, 100, &budget), 0);
    frame_budget_release(&budget);
    assert_true(fixture_stats(fixture).pages_written >= 100);
    assert_int_equal(page_read(relation, ptr_of(50, 5), LEAF, 0, &frame), 0);
    assert_true(page_try_latch(frame));
    page_unlatch(frame, true);
    page_unpin(frame);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void background_writer_does_it_by_itself(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    bufcache_close(fixture->cache);
    struct bufcache_options options = fixture_options(fixture, 512);
    options.background = true;
    assert_int_equal(bufcache_open(&options, &fixture->cache), 0);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, FIXTURE_TS, "/data"), 0);
    struct relation *relation = fixture_create_relation(fixture, 7, 4000);
    fixture_make_pages(fixture, relation, 0, 4000, 5);
    struct writeback_result result;
    assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, &result), 0);
    for (block_no block = 0; block < 4000; block++)
        fixture_read_page(relation, ptr_of(block, 5));
    assert_int_equal(fixture_stats(fixture).pages_written, 4000);
    relation_unref(relation);
    /* the check must be alone */
    bufcache_close(fixture->cache);
    fixture_open_cache(fixture, 512);
    fixture_destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_back_neighbours_in_calls_of_one_mebibyte),
        cmocka_unit_test(write_back_up_to_birth_only),
        cmocka_unit_test(write_back_latched_page_left_out),
        cmocka_unit_test(write_back_page_with_pins_written_with_checksum),
        cmocka_unit_test(write_failure_first_error_for_ever),
        cmocka_unit_test(write_failure_at_eviction_reads_go_on_while_clean_pages_last),
        cmocka_unit_test(write_soon_written_by_next_step),
        cmocka_unit_test(step_restocks_free_list),
        cmocka_unit_test(step_too_many_dirty_cold_ones_written),
        cmocka_unit_test(eviction_neighbour_in_use_not_written_along),
        cmocka_unit_test(background_writer_does_it_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
