/*
 * tests/unit/bufcache/test_faults.c - every device call of a scenario fails once.
 *
 * The scenario goes on after an error as far as it can. Whatever failed: nothing crashes, nothing stays pinned or open,
 * the structures agree, a page that is read holds what was written, and after a failed write or sync of a relation
 * nothing is written any more.
 */
#include "tests/unit/bufcache/fixture.h"

#define RELATIONS 9u
#define PAGES     60u

struct fault {
    uint64_t at; /* number of the call that fails */
    uint64_t calls;
    int error;
    bool stopped;
    struct bufcache *cache;
};

static int fail_once(void *arg, const struct mem_event *event)
{
    struct fault *fault = arg;
    fault->calls++;
    if (fault->stopped && (event->call == MEM_CALL_WRITE || event->call == MEM_CALL_SYNC ||
                           event->call == MEM_CALL_ALLOCATE || event->call == MEM_CALL_UNLINK))
        fail_msg("%s after the failure", mem_call_name(event->call));
    if (fault->calls == fault->at && event->call != MEM_CALL_CLOSE)
        return fault->error;
    return 0;
}

static void note_failure(struct fault *fault)
{
    fault->stopped = fault->cache != NULL && bufcache_failed(fault->cache) < 0;
}

static bool make_pages(struct bufcache *cache, struct relation *relation)
{
    struct frame_budget budget;
    if (relation_create_file(relation) < 0 || relation_extend(relation, PAGES) < 0)
        return false;
    for (block_no block = 0; block < PAGES; block++) {
        if (frame_budget_take(cache, 0, 1, &budget) < 0)
            return false;
        struct frame *frame = page_new(relation, &budget, ptr_of(block, 5), LEAF, 0);
        page_fill(frame);
        page_unlatch(frame, true);
        page_unpin(frame);
        frame_budget_release(&budget);
    }
    return true;
}

static void read_pages(struct relation *relation)
{
    struct page_ptr ptrs[PAGES];
    struct frame *frames[PAGES];
    for (block_no block = 0; block < PAGES; block++)
        ptrs[block] = ptr_of(block, 5);
    if (page_read_many(relation, ptrs, PAGES / 2, LEAF, 0, frames) == 0)
        for (unsigned i = 0; i < PAGES / 2; i++) {
            page_assert_filled(frames[i]);
            page_unpin(frames[i]);
        }
    for (block_no block = PAGES / 2; block < PAGES; block++)
        if (page_read(relation, ptrs[block], LEAF, 0, &frames[0]) == 0) {
            page_assert_filled(frames[0]);
            page_unpin(frames[0]);
        }
}

static void use_relations(struct fault *fault, struct relation **relations, unsigned count)
{
    struct bufcache *cache = fault->cache;
    struct drop_result result;
    bool made[RELATIONS];
    bool exists;
    for (unsigned i = 0; i < count; i++) {
        made[i] = make_pages(cache, relations[i]);
        note_failure(fault);
    }
    bufcache_step(cache);
    note_failure(fault);
    (void)!bufcache_write_back(cache, 9, NULL);
    note_failure(fault);
    (void)!bufcache_sync_relations(cache);
    note_failure(fault);
    for (unsigned i = 0; i < count; i++)
        if (made[i])
            read_pages(relations[i]);
    bufcache_drop_relations(cache, relations, count / 2, &result);
    for (unsigned i = 0; i < count / 2; i++) {
        (void)!relation_file_exists(relations[i], &exists);
        (void)!relation_unlink_file(relations[i]);
    }
    (void)!relation_cut(relations[count - 1], PAGES);
    (void)!relation_sync(relations[count - 1]);
    note_failure(fault);
}

static void run_scenario(struct fixture *fixture, struct fault *fault)
{
    struct bufcache_options options = fixture_options(fixture, 512);
    struct relation *relations[RELATIONS];
    options.max_open_files = 8;
    assert_int_equal(bufcache_open(&options, &fault->cache), 0);
    if (bufcache_tablespace_add(fault->cache, FIXTURE_TS, "/data") == 0) {
        for (unsigned i = 0; i < RELATIONS; i++)
            assert_int_equal(relation_open(fault->cache, FIXTURE_TS, 1 + i, &relations[i]), 0);
        use_relations(fault, relations, RELATIONS);
        for (unsigned i = 0; i < RELATIONS; i++)
            relation_unref(relations[i]);
    }
    struct bufcache_stats stats;
    bufcache_get_stats(fault->cache, &stats);
    assert_int_equal(stats.pinned_frames, 0);
    assert_int_equal(bufcache_check(fault->cache), 0);
    bufcache_close(fault->cache);
}

/* Returns how many calls the scenario made. */
static uint64_t run_with_fault(uint64_t at, int error)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct fault fault = {.at = at, .error = error};
    struct mem_counters counters;
    assert_non_null(fixture);
    fixture->diag.emit = fixture_emit;
    fixture->diag.max_level = DIAG_WARNING;
    fixture->mem = mem_device_create(1);
    assert_int_equal(io_make_dir(mem_device_io(fixture->mem), "/data"), 0);
    mem_device_set_hook(fixture->mem, fail_once, &fault);
    run_scenario(fixture, &fault);
    mem_device_counters(fixture->mem, &counters);
    assert_int_equal(counters.open_files, 0);
    mem_device_destroy(fixture->mem);
    free(fixture);
    return fault.calls;
}

static void each_call_fails_once_nothing_lost_or_left(void **state)
{
    (void)state;
    static const int errors[] = {-EIO, -ENOSPC, -EMFILE};
    const uint64_t calls = run_with_fault(0, 0);
    print_message("%u device calls\n", (unsigned)calls);
    const size_t tried = test_is_long() ? ARRAY_COUNT(errors) : 1;
    /* the 257 directories of the tablespace are all alike */
    for (uint64_t at = 1; at <= calls; at += at > 3 && at < 255 ? 50 : 1)
        for (size_t i = 0; i < tried; i++)
            (void)run_with_fault(at, errors[(at + i) % ARRAY_COUNT(errors)]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails_once_nothing_lost_or_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
