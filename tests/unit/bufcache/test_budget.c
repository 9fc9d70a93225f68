/* tests/unit/bufcache/test_budget.c - frames asked for in advance: the quota, its order, its limits. */
#include "bufcache/bufcache_int.h"
#include "tests/unit/bufcache/fixture.h"

#include <sched.h>

#define FRAMES 512u
#define LIMIT  (FRAMES - QUOTA_MARGIN)

static void budget_more_than_a_quarter_refused(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(FRAMES);
    struct frame_budget budget = {0};
    const uint32_t max = frame_budget_max(fixture->cache);
    assert_int_equal(max, FRAMES / 4);
    assert_int_equal(frame_budget_take(fixture->cache, max, 1, &budget), -E2BIG);
    assert_int_equal(frame_budget_take(fixture->cache, 0, max + 1, &budget), -E2BIG);
    assert_int_equal(frame_budget_take(fixture->cache, UINT32_MAX, UINT32_MAX, &budget), -E2BIG);
    assert_null(budget.cache);
    assert_int_equal(frame_budget_take(fixture->cache, max / 2, max / 2, &budget), 0);
    assert_int_equal(budget.pins, max / 2);
    assert_int_equal(budget.news, max / 2);
    assert_int_equal(fixture_stats(fixture).free_frames, FRAMES - max / 2);
    frame_budget_release(&budget);
    assert_int_equal(fixture_stats(fixture).free_frames, FRAMES);
    fixture_destroy(fixture);
}

static void budget_news_get_frames_of_cold_dirty_pages(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(FRAMES);
    struct relation *relation = fixture_create_relation(fixture, 7, 1000);
    struct frame_budget budget;
    fixture_make_pages(fixture, relation, 0, FRAMES, 5);
    assert_int_equal(fixture_stats(fixture).free_frames, 0);
    assert_int_equal(frame_budget_take(fixture->cache, 0, 100, &budget), 0);
    assert_int_equal(relation_resident(relation), FRAMES - 100);
    const struct bufcache_stats stats = fixture_stats(fixture);
    assert_true(stats.pages_written >= 100);
    assert_true(stats.write_calls <= 4); /* neighbours in one call */
    frame_budget_release(&budget);
    relation_unref(relation);
    fixture_destroy(fixture);
}

/* All that the quota allows is pinned; then a page that is not there is read: it needs no waiting (POOL-1). */
static void budget_all_used_each_read_finds_its_frame(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(FRAMES);
    struct relation *relation = fixture_create_relation(fixture, 7, 1000);
    struct frame_budget budgets[4];
    struct frame *frames[LIMIT];
    fixture_make_pages(fixture, relation, 0, 1000, 5);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(frame_budget_take(fixture->cache, LIMIT / 4, 0, &budgets[i]), 0);
    for (block_no block = 0; block < LIMIT; block++)
        assert_int_equal(page_read(relation, ptr_of(2 * block, 5), LEAF, 0, &frames[block]), 0);
    assert_int_equal(fixture_stats(fixture).pinned_frames, LIMIT);
    for (unsigned i = 0; i < LIMIT; i++) {
        page_assert_filled(frames[i]);
        page_unpin(frames[i]);
    }
    for (unsigned i = 0; i < 4; i++)
        frame_budget_release(&budgets[i]);
    relation_unref(relation);
    fixture_destroy(fixture);
}

struct taker {
    struct fixture *fixture;
    pthread_t thread;
    uint32_t pins;
    struct frame_budget budget;
    atomic_uint *order;
    unsigned place;
};

static void *take_in_thread(void *arg)
{
    struct taker *taker = arg;
    if (frame_budget_take(taker->fixture->cache, taker->pins, 0, &taker->budget) != 0)
        abort();
    taker->place = atomic_fetch_add(taker->order, 1);
    frame_budget_release(&taker->budget);
    return NULL;
}

static void wait_for_waiters(struct fixture *fixture, uint32_t count)
{
    while (atomic_load(&fixture->cache->pool.waiting) != count)
        (void)sched_yield();
}

static void budget_large_request_not_passed_by_small_ones(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(FRAMES);
    struct frame_budget held[4];
    atomic_uint order = 0;
    struct taker takers[5];
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(frame_budget_take(fixture->cache, LIMIT / 4 - (i == 3 ? 10 : 0), 0, &held[i]), 0);
    for (unsigned i = 0; i < 5; i++) {
        /* the first wants a lot; the others would fit at once */
        takers[i] = (struct taker){.fixture = fixture, .pins = i == 0 ? FRAMES / 4 : 2, .order = &order};
        assert_int_equal(pthread_create(&takers[i].thread, NULL, take_in_thread, &takers[i]), 0);
        wait_for_waiters(fixture, i + 1);
    }
    assert_int_equal(atomic_load(&order), 0);
    frame_budget_release(&held[0]);
    assert_int_equal(pthread_join(takers[0].thread, NULL), 0);
    for (unsigned i = 1; i < 5; i++)
        assert_int_equal(pthread_join(takers[i].thread, NULL), 0);
    wait_for_waiters(fixture, 0);
    for (unsigned i = 1; i < 4; i++)
        frame_budget_release(&held[i]);
    assert_int_equal(atomic_load(&order), 5);
    fixture_destroy(fixture);
}

/* A reply holds its frames beyond the budget that covered them: they count until it is sent. */
static void budget_frames_of_replies_count(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(FRAMES);
    struct relation *relation = fixture_create_relation(fixture, 7, 200);
    struct frame_budget budget, rest[3];
    struct frame *frames[100];
    atomic_uint order = 0;
    struct taker taker = {.fixture = fixture, .pins = FRAMES / 4, .order = &order};
    fixture_make_pages(fixture, relation, 0, 100, 5);
    assert_int_equal(frame_budget_take(fixture->cache, 100, 0, &budget), 0);
    for (block_no block = 0; block < 100; block++) {
        assert_int_equal(page_read(relation, ptr_of(block, 5), LEAF, 0, &frames[block]), 0);
        page_reply_pin(frames[block]);
        page_unpin(frames[block]);
    }
    frame_budget_release(&budget);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(frame_budget_take(fixture->cache, 100, 0, &rest[i]), 0);
    assert_int_equal(pthread_create(&taker.thread, NULL, take_in_thread, &taker), 0);
    wait_for_waiters(fixture, 1); /* 100 + 300 + 128 are too many */
    for (block_no block = 0; block < 100; block++)
        page_reply_unpin(frames[block]);
    assert_int_equal(pthread_join(taker.thread, NULL), 0);
    for (unsigned i = 0; i < 3; i++)
        frame_budget_release(&rest[i]);
    relation_unref(relation);
    fixture_destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budget_more_than_a_quarter_refused),
        cmocka_unit_test(budget_news_get_frames_of_cold_dirty_pages),
        cmocka_unit_test(budget_all_used_each_read_finds_its_frame),
        cmocka_unit_test(budget_large_request_not_passed_by_small_ones),
        cmocka_unit_test(budget_frames_of_replies_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
