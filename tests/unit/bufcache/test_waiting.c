/*
 * tests/unit/bufcache/test_waiting.c - who waits for whose I/O, one interleaving a test.
 *
 * The device's hook stands in the middle of a read or write; from there another thread is started, and the I/O goes on
 * only when that thread waits for it (or, wrongly, is through).
 */
#include "bufcache/bufcache_int.h"
#include "tests/unit/bufcache/fixture.h"

#include <sched.h>

struct meeting {
    struct fixture *fixture;
    struct relation *relation;
    enum mem_call call; /* the call in whose middle the other starts, the first of its kind */
    int result;         /* of that call */
    void *(*other)(void *meeting);
    pthread_t thread;
    bool started;
    atomic_bool finished;
    bool waited;
    int other_rc;
    struct drop_result drop;
    struct writeback_result written;
};

static bool somebody_waits(struct bufcache *cache)
{
    bool waits = false;
    for (uint32_t i = 0; i < PARTITION_COUNT && !waits; i++) {
        mutex_lock(&cache->partitions[i].lock);
        waits = cache->partitions[i].waiters > 0;
        mutex_unlock(&cache->partitions[i].lock);
    }
    return waits;
}

static int start_other(void *arg, const struct mem_event *event)
{
    struct meeting *meeting = arg;
    if (event->call != meeting->call || meeting->started)
        return 0;
    meeting->started = true;
    if (pthread_create(&meeting->thread, NULL, meeting->other, meeting) != 0)
        abort();
    while (!atomic_load(&meeting->finished) && !(meeting->waited = somebody_waits(meeting->fixture->cache)))
        (void)sched_yield();
    return meeting->result;
}

static void meeting_init(struct meeting *meeting, enum mem_call call, void *(*other)(void *meeting))
{
    *meeting = (struct meeting){.fixture = fixture_create(512), .call = call, .other = other};
    meeting->relation = fixture_create_relation(meeting->fixture, 7, 100);
    fixture_make_pages(meeting->fixture, meeting->relation, 0, 4, 5);
    mem_device_set_hook(meeting->fixture->mem, start_other, meeting);
}

static void meeting_join(struct meeting *meeting)
{
    assert_true(meeting->started);
    assert_int_equal(pthread_join(meeting->thread, NULL), 0);
}

static void meeting_end(struct meeting *meeting)
{
    mem_device_set_hook(meeting->fixture->mem, NULL, NULL);
    assert_int_equal(fixture_stats(meeting->fixture).pinned_frames, 0);
    relation_unref(meeting->relation);
    fixture_destroy(meeting->fixture);
}

static void *drop_other(void *arg)
{
    struct meeting *meeting = arg;
    bufcache_drop_relations(meeting->fixture->cache, &meeting->relation, 1, &meeting->drop);
    atomic_store(&meeting->finished, true);
    return NULL;
}

static void drop_during_write_waits_for_it(void **state)
{
    (void)state;
    struct meeting meeting;
    struct writeback_result result;
    meeting_init(&meeting, MEM_CALL_WRITE, drop_other);
    assert_int_equal(bufcache_write_back(meeting.fixture->cache, 9, &result), 0);
    assert_true(meeting.waited);
    assert_int_equal(result.pages, 4);
    meeting_join(&meeting);
    assert_int_equal(meeting.drop.pages_discarded, 4);
    assert_int_equal(meeting.drop.dirty_discarded, 0); /* it waited until they were written */
    assert_int_equal(fixture_stats(meeting.fixture).dirty_frames, 0);
    meeting_end(&meeting);
}

static void *discard_other(void *arg)
{
    struct meeting *meeting = arg;
    page_discard(meeting->relation, 2);
    atomic_store(&meeting->finished, true);
    return NULL;
}

static void discard_during_write_waits_for_it(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting, MEM_CALL_WRITE, discard_other);
    fixture_write_all(meeting.fixture);
    assert_true(meeting.waited);
    meeting_join(&meeting);
    meeting_end(&meeting);
}

static void *write_back_other(void *arg)
{
    struct meeting *meeting = arg;
    meeting->other_rc = bufcache_write_back(meeting->fixture->cache, 9, &meeting->written);
    atomic_store(&meeting->finished, true);
    return NULL;
}

static void write_back_during_write_waits_for_it(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting, MEM_CALL_WRITE, write_back_other);
    fixture_write_all(meeting.fixture);
    assert_true(meeting.waited);
    meeting_join(&meeting);
    assert_int_equal(meeting.other_rc, 0);
    assert_int_equal(meeting.written.pages, 0);
    assert_int_equal(fixture_stats(meeting.fixture).pages_written, 4);
    meeting_end(&meeting);
}

static void write_back_waiting_for_a_failing_write_fails_too(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting, MEM_CALL_WRITE, write_back_other);
    meeting.result = -EIO;
    assert_int_equal(bufcache_write_back(meeting.fixture->cache, 9, NULL), -EIO);
    assert_true(meeting.waited);
    meeting_join(&meeting);
    assert_int_equal(meeting.other_rc, -EIO);
    assert_int_equal(fixture_stats(meeting.fixture).pages_written, 0);
    meeting_end(&meeting);
}

static void *read_other(void *arg)
{
    struct meeting *meeting = arg;
    struct frame *frame;
    meeting->other_rc = page_read(meeting->relation, ptr_of(1, 5), LEAF, 0, &frame);
    if (meeting->other_rc == 0) {
        page_assert_filled(frame);
        page_unpin(frame);
    }
    atomic_store(&meeting->finished, true);
    return NULL;
}

static void read_of_a_page_being_read_waits_for_it(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting, MEM_CALL_READ, read_other);
    fixture_write_all(meeting.fixture);
    page_discard(meeting.relation, 1);
    fixture_read_page(meeting.relation, ptr_of(1, 5));
    assert_true(meeting.waited);
    meeting_join(&meeting);
    assert_int_equal(meeting.other_rc, 0);
    assert_int_equal(fixture_stats(meeting.fixture).read_calls, 1);
    meeting_end(&meeting);
}

/* The one that waited finds out for itself. */
static void read_of_a_page_whose_reader_fails_reads_again(void **state)
{
    (void)state;
    struct meeting meeting;
    struct frame *frame;
    meeting_init(&meeting, MEM_CALL_READ, read_other);
    meeting.result = -EIO;
    fixture_write_all(meeting.fixture);
    page_discard(meeting.relation, 1);
    assert_int_equal(page_read(meeting.relation, ptr_of(1, 5), LEAF, 0, &frame), -EIO);
    assert_true(meeting.waited);
    meeting_join(&meeting);
    assert_int_equal(meeting.other_rc, 0);
    assert_int_equal(relation_resident(meeting.relation), 4);
    meeting_end(&meeting);
}

/* A wrong pointer is the fault of who follows it: the other one, with the right pointer, gets the page. */
static void read_with_wrong_pointer_spoils_it_for_nobody(void **state)
{
    (void)state;
    struct meeting meeting;
    struct frame *frame;
    meeting_init(&meeting, MEM_CALL_READ, read_other);
    fixture_write_all(meeting.fixture);
    page_discard(meeting.relation, 1);
    assert_int_equal(page_read(meeting.relation, ptr_of(1, 6), LEAF, 0, &frame), -EIO);
    meeting_join(&meeting);
    assert_int_equal(meeting.other_rc, 0);
    meeting_end(&meeting);
}

/* ---- DROP-2 from within a drop ---- */

static int write_back_at_stat(void *arg, const struct mem_event *event)
{
    struct meeting *meeting = arg;
    if (event->call == MEM_CALL_STAT && !meeting->started) {
        meeting->started = true;
        meeting->other_rc = bufcache_write_back(meeting->fixture->cache, UINT64_MAX, &meeting->written);
        bufcache_step(meeting->fixture->cache);
    }
    if (event->call == MEM_CALL_WRITE)
        fail_msg("a page of a dead relation was written");
    return 0;
}

/* The drop asks for the size of the file, which nobody did before: then its pages are still there, but dead. */
static void write_back_during_drop_writes_nothing_of_it(void **state)
{
    (void)state;
    struct meeting meeting = {.fixture = fixture_create(512)};
    relation_unref(fixture_create_relation(meeting.fixture, 7, 10));
    fixture_reopen(meeting.fixture, 512);
    meeting.relation = fixture_relation(meeting.fixture, 7);
    fixture_make_pages(meeting.fixture, meeting.relation, 0, 10, 5);
    mem_device_set_hook(meeting.fixture->mem, write_back_at_stat, &meeting);
    bufcache_drop_relations(meeting.fixture->cache, &meeting.relation, 1, &meeting.drop);
    mem_device_set_hook(meeting.fixture->mem, NULL, NULL);
    assert_true(meeting.started);
    assert_int_equal(meeting.other_rc, 0);
    assert_int_equal(meeting.written.pages, 0);
    assert_int_equal(meeting.drop.mode, DROP_MODE_LOOKUP);
    assert_int_equal(meeting.drop.dirty_discarded, 10);
    relation_unref(meeting.relation);
    fixture_destroy(meeting.fixture);
}

static int evict_at_stat(void *arg, const struct mem_event *event)
{
    struct meeting *meeting = arg;
    struct frame_budget budgets[3];
    if (event->call == MEM_CALL_WRITE)
        fail_msg("a page of a dead relation was written");
    if (event->call != MEM_CALL_STAT || meeting->started)
        return 0;
    meeting->started = true;
    for (unsigned i = 0; i < 3; i++)
        if (frame_budget_take(meeting->fixture->cache, 0, 128, &budgets[i]) != 0)
            abort();
    for (unsigned i = 0; i < 3; i++)
        frame_budget_release(&budgets[i]);
    return 0;
}

/* Frames are needed before the drop has come to the dead pages: they go without being written. */
static void eviction_during_drop_throws_its_pages_away(void **state)
{
    (void)state;
    struct meeting meeting = {.fixture = fixture_create(512)};
    struct relation *other = fixture_create_relation(meeting.fixture, 8, 600);
    relation_unref(fixture_create_relation(meeting.fixture, 7, 10));
    fixture_make_pages(meeting.fixture, other, 0, 600, 5);
    fixture_write_all(meeting.fixture);
    relation_unref(other);
    fixture_reopen(meeting.fixture, 512);
    other = fixture_relation(meeting.fixture, 8);
    meeting.relation = fixture_relation(meeting.fixture, 7);
    fixture_make_pages(meeting.fixture, meeting.relation, 0, 10, 5);
    for (block_no block = 0; block < 502; block++)
        fixture_read_page(other, ptr_of(block, 5));
    mem_device_set_hook(meeting.fixture->mem, evict_at_stat, &meeting);
    bufcache_drop_relations(meeting.fixture->cache, &meeting.relation, 1, &meeting.drop);
    assert_true(meeting.started);
    assert_true(meeting.drop.pages_discarded < 10);
    assert_int_equal(fixture_stats(meeting.fixture).dirty_frames, 0);
    relation_unref(other);
    meeting_end(&meeting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drop_during_write_waits_for_it),
        cmocka_unit_test(discard_during_write_waits_for_it),
        cmocka_unit_test(write_back_during_write_waits_for_it),
        cmocka_unit_test(write_back_waiting_for_a_failing_write_fails_too),
        cmocka_unit_test(read_of_a_page_being_read_waits_for_it),
        cmocka_unit_test(read_of_a_page_whose_reader_fails_reads_again),
        cmocka_unit_test(read_with_wrong_pointer_spoils_it_for_nobody),
        cmocka_unit_test(write_back_during_drop_writes_nothing_of_it),
        cmocka_unit_test(eviction_during_drop_throws_its_pages_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
