/*
 * tests/unit/fsm/test_fsm.c - the free map against its promises and against a plain array.
 */
#include "fsm/fsm.h"
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_REL ((rel_no)77)

struct fixture {
    struct mem_device *mem;
    struct diag diag;
    struct bufcache *cache;
    struct relation *relation;
};

static void open_cache(struct fixture *f)
{
    const struct bufcache_options options = {.dev = mem_device_io(f->mem),
                                             .diag = &f->diag,
                                             .cache_size_bytes = BUFCACHE_MIN_FRAMES * (uint64_t)BLOCK_SIZE,
                                             .max_open_files = 8};
    assert_int_equal(bufcache_open(&options, &f->cache), 0);
    assert_int_equal(bufcache_tablespace_add(f->cache, TS_DEFAULT, "/data"), 0);
    assert_int_equal(relation_open(f->cache, TS_DEFAULT, TEST_REL, &f->relation), 0);
}

static void close_cache(struct fixture *f)
{
    relation_unref(f->relation);
    bufcache_close(f->cache);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    diag_init_silent(&f->diag);
    f->mem = mem_device_create(1);
    struct io_device *dev = mem_device_io(f->mem);
    assert_int_equal(io_make_dir(dev, "/data"), 0);
    open_cache(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    close_cache(f);
    mem_device_destroy(f->mem);
    free(f);
    return 0;
}

static struct fsm_stats stats_of(const struct fixture *f)
{
    struct fsm_stats stats;
    assert_int_equal(fsm_get_stats(f->relation, &stats), 0);
    return stats;
}

static block_no file_blocks(const struct fixture *f)
{
    block_no blocks = 0;
    assert_int_equal(relation_file_blocks(f->relation, &blocks), 0);
    return blocks;
}

static block_no allocate_one(const struct fixture *f, block_no hint)
{
    assert_int_equal(fsm_reserve(f->relation, 1), 0);
    return fsm_allocate(f->relation, hint);
}

/* A relation file of so many blocks that the in-core relation knows nothing of. */
static void reopen_with_file(struct fixture *f, block_no blocks)
{
    assert_int_equal(relation_create_file(f->relation), 0);
    assert_int_equal(relation_extend(f->relation, blocks), 0);
    close_cache(f);
    open_cache(f);
}

static void map_new_relation_touches_no_file(void **state)
{
    struct fixture *f = *state;
    bool exists = true;
    assert_int_equal(fsm_get_stats(f->relation, &(struct fsm_stats){0}), -ENOENT);
    assert_false(fsm_is_ready(f->relation));
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_true(fsm_is_ready(f->relation));
    assert_int_equal(relation_file_exists(f->relation, &exists), 0);
    assert_false(exists);
    assert_false(fsm_is_used(f->relation, 0));
}

static void reserve_first_creates_file_of_that_size(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 3), 0);
    assert_int_equal(file_blocks(f), 3);
    const struct fsm_stats stats = stats_of(f);
    assert_int_equal(stats.reserved_blocks, 3);
    assert_int_equal(stats.free_blocks, 3);
    fsm_unreserve(f->relation, 3);
    assert_int_equal(stats_of(f).reserved_blocks, 0);
}

static void reserve_small_relation_grows_by_what_is_needed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    for (block_no i = 0; i < FSM_SMALL_BLOCKS; i++) {
        assert_int_equal(allocate_one(f, BLOCK_NONE), i);
        assert_int_equal(file_blocks(f), i + 1);
    }
    (void)allocate_one(f, BLOCK_NONE);
    assert_true(file_blocks(f) > FSM_SMALL_BLOCKS);
}

static void reserve_large_relation_grows_by_a_part_of_it(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 80000), 0);
    assert_int_equal(file_blocks(f), 80000);
    assert_int_equal(fsm_reserve(f->relation, 1), 0);
    assert_int_equal(file_blocks(f), 82500);
    assert_int_equal(fsm_reserve(f->relation, 20000), 0);
    assert_int_equal(file_blocks(f), 100001);
}

static void reserve_on_full_disk_promises_nothing_or_exactly_what_fits(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 800), 0);
    mem_device_set_capacity(f->mem, mem_device_used_bytes(f->mem) + 10 * BLOCK_SIZE);
    assert_int_equal(fsm_reserve(f->relation, 11), -ENOSPC);
    assert_int_equal(stats_of(f).reserved_blocks, 800);
    assert_int_equal(file_blocks(f), 800);
    assert_int_equal(fsm_reserve(f->relation, 10), 0);
    assert_int_equal(file_blocks(f), 810);
    assert_int_equal(fsm_reserve(f->relation, 1), -ENOSPC);
    fsm_unreserve(f->relation, 1);
    assert_int_equal(fsm_reserve(f->relation, 1), 0);
}

static void reserve_too_much_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, UINT32_MAX), -EFBIG);
    assert_int_equal(stats_of(f).reserved_blocks, 0);
}

static void reserve_missing_file_without_init_is_damage(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_reserve(f->relation, 1), -EIO);
    assert_int_equal(fsm_build_begin(f->relation), -EIO);
}

static void allocate_follows_hint_in_large_relation(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 1000), 0);
    assert_int_equal(fsm_allocate(f->relation, 500), 500);
    assert_int_equal(fsm_allocate(f->relation, 500), 501);
    assert_int_equal(fsm_allocate(f->relation, BLOCK_NONE), 0); /* as far in front as may be */
    assert_int_equal(fsm_allocate(f->relation, 5), 5);
    assert_int_equal(fsm_allocate(f->relation, 999), 999);
    assert_int_equal(fsm_allocate(f->relation, 999), 1);
    assert_int_equal(fsm_allocate(f->relation, 100000), 2);
}

static void allocate_goes_to_the_front_when_nothing_is_near(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 1000), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 1000, &first), 1000);
    fsm_free(f->relation, 10, 2); /* nothing begins there */
    fsm_free(f->relation, 50, 20);
    fsm_free(f->relation, 600, 1);
    fsm_free(f->relation, 900, 40);
    assert_int_equal(fsm_reserve(f->relation, 6), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 590, 1, &first), 1);
    assert_int_equal(first, 600);
    assert_int_equal(fsm_allocate_run(f->relation, 601, 1, &first), 1);
    assert_int_equal(first, 50);
    assert_int_equal(fsm_allocate_run(f->relation, 51, 2, &first), 2);
    assert_int_equal(first, 51);
    assert_int_equal(fsm_allocate(f->relation, 700), 10);
    assert_int_equal(fsm_allocate_run(f->relation, BLOCK_NONE, 1, &first), 1);
    assert_int_equal(first, 53);
}

static void deferred_blocks_bring_a_checkpoint_when_most_of_the_file_waits(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    assert_false(fsm_defer(f->relation, 1u << 20, 1)); /* nothing was handed out */
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 1000), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 1000, &first), 1000);
    assert_false(fsm_defer(f->relation, 500, 1));
    assert_true(fsm_defer(f->relation, 1, 1));
    assert_false(fsm_defer(f->relation, 1, 2)); /* behind a checkpoint */
    fsm_free(f->relation, 0, 900);
    assert_false(fsm_defer(f->relation, 100, 2)); /* a small one */
}

static void allocate_small_relation_takes_lowest(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 20), 0);
    for (block_no i = 0; i < 20; i++)
        assert_int_equal(fsm_allocate(f->relation, 15), i);
    fsm_free(f->relation, 4, 1);
    fsm_free(f->relation, 9, 1);
    assert_int_equal(allocate_one(f, 8), 4);
    assert_int_equal(allocate_one(f, 0), 9);
    assert_int_equal(file_blocks(f), 20);
}

static void allocate_run_prefers_one_that_is_long_enough(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 1000), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 900, &first), 900);
    assert_int_equal(first, 0);
    fsm_free(f->relation, 10, 3);
    fsm_free(f->relation, 20, 30);
    fsm_free(f->relation, 70, 100);
    assert_int_equal(fsm_reserve(f->relation, 30 + 100 + 3), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 5, 30, &first), 30);
    assert_int_equal(first, 20);
    assert_int_equal(fsm_allocate_run(f->relation, 5, 100, &first), 100);
    assert_int_equal(first, 70);
    assert_int_equal(fsm_allocate_run(f->relation, 5, 50, &first), 50);
    assert_int_equal(first, 900);
    assert_int_equal(fsm_allocate_run(f->relation, 5, 200, &first), 50);
    assert_int_equal(first, 950);
    assert_int_equal(fsm_allocate_run(f->relation, 5, 200, &first), 3);
    assert_int_equal(first, 10);
    assert_int_equal(stats_of(f).free_blocks, 0);
}

static void allocate_steady_state_reads_bounded_words(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    const uint32_t blocks = 1u << 20;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, blocks), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, blocks, &first), blocks);
    struct test_random random;
    test_random_init(&random, test_seed("unit/fsm/test_fsm"));
    uint64_t worst = 0;
    for (unsigned i = 0; i < 5000; i++) {
        const block_no freed = (block_no)test_random_below(&random, blocks);
        fsm_free(f->relation, freed, 1);
        const uint64_t before = stats_of(f).words_read;
        /* the one free block is anywhere, the hint too */
        assert_int_equal(allocate_one(f, (block_no)test_random_below(&random, blocks)), freed);
        const uint64_t words = stats_of(f).words_read - before;
        worst = words > worst ? words : worst;
    }
    assert_in_range(worst, 1, 4 * 6);
    assert_int_equal(stats_of(f).file_blocks, blocks);
}

/* Every other block is free, or every 64th, or none but the last: it costs the same. */
static void allocate_in_a_fragmented_file_reads_bounded_words(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    const uint32_t blocks = 1u << 18;
    struct test_random random;
    uint64_t worst = 0;
    test_random_init(&random, test_seed("unit/fsm/test_fsm"));
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, blocks), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, blocks, &first), blocks);
    for (uint32_t step = 64; step > 1; step /= 8) {
        for (block_no block = step; block < blocks; block += step) {
            if (!fsm_is_used(f->relation, block))
                continue;
            fsm_free(f->relation, block, 1);
        }
        for (unsigned i = 0; i < 2000; i++) {
            const uint32_t want = (uint32_t)test_random_range(&random, 1, 32);
            assert_int_equal(fsm_reserve(f->relation, want), 0);
            const uint64_t before = stats_of(f).words_read;
            const uint32_t got =
                fsm_allocate_run(f->relation, (block_no)test_random_below(&random, blocks), want, &first);
            const uint64_t words = stats_of(f).words_read - before;
            worst = words > worst ? words : worst;
            fsm_free(f->relation, first, got);
            fsm_unreserve(f->relation, want - got);
        }
    }
    assert_in_range(worst, 1, 9 * (12 + 2)); /* nine runs looked at, each found in two words a level, and measured */
}

static void map_not_ready_allocates_behind_the_end_and_what_was_freed(void **state)
{
    struct fixture *f = *state;
    reopen_with_file(f, 40);
    assert_int_equal(allocate_one(f, 0), 40);
    assert_false(fsm_is_ready(f->relation));
    assert_true(fsm_is_used(f->relation, 3));
    assert_int_equal(allocate_one(f, 0), 41);
    fsm_free(f->relation, 40, 1);
    fsm_free(f->relation, 3, 1);
    assert_int_equal(allocate_one(f, 0), 3);
    assert_int_equal(allocate_one(f, 0), 40);
    assert_false(fsm_is_ready(f->relation));
}

static void build_finish(struct fixture *f)
{
    assert_int_equal(fsm_build_finish(f->relation), 0);
}

static void build_finds_what_is_not_used(void **state)
{
    struct fixture *f = *state;
    reopen_with_file(f, 200);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    assert_int_equal(fsm_build_begin(f->relation), -EBUSY);
    assert_int_equal(fsm_build_used(f->relation, 0, 100), 0);
    assert_int_equal(fsm_build_used(f->relation, 150, 50), 0);
    assert_int_equal(fsm_build_used(f->relation, 199, 2), -EIO);
    assert_int_equal(fsm_build_used(f->relation, BLOCK_NONE, 1), -EIO);
    assert_false(fsm_is_ready(f->relation));
    build_finish(f);
    assert_true(fsm_is_ready(f->relation));
    assert_int_equal(stats_of(f).free_blocks, 50);
    assert_int_equal(allocate_one(f, 0), 100);
    assert_int_equal(allocate_one(f, 149), 149);
    assert_int_equal(file_blocks(f), 200);
}

static void build_forgets_nothing_meanwhile(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 100), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 60, &first), 60);
    fsm_free(f->relation, 10, 1);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    assert_true(fsm_is_ready(f->relation));
    assert_int_equal(fsm_allocate(f->relation, 0), 10);
    for (block_no i = 61; i < 100; i++)
        assert_int_equal(fsm_allocate(f->relation, 50), i - 1);
    assert_int_equal(file_blocks(f), 100);
    assert_int_equal(fsm_build_used(f->relation, 0, 50), 0); /* 50 to 59 are gone without a word */
    build_finish(f);
    assert_int_equal(stats_of(f).used_blocks, 50 + 39);
    assert_false(fsm_is_used(f->relation, 55));
    assert_int_equal(allocate_one(f, 40), 50);
}

static void build_honours_frees_and_allocations_meanwhile(void **state)
{
    struct fixture *f = *state;
    reopen_with_file(f, 100);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    const block_no kept = allocate_one(f, 0), dropped = allocate_one(f, 0);
    assert_int_equal(fsm_build_used(f->relation, 0, 10), 0);
    assert_int_equal(fsm_build_used(f->relation, dropped, 1), 0); /* some tree had it for a moment */
    fsm_free(f->relation, dropped, 1);
    fsm_free(f->relation, 5, 1);
    fsm_free(f->relation, 20, 1);
    fsm_free(f->relation, 30, 1);
    assert_int_equal(fsm_build_used(f->relation, 20, 1), 0);
    assert_int_equal(allocate_one(f, 30), 30); /* no tree of the fork has it */
    build_finish(f);
    assert_true(fsm_is_used(f->relation, kept));
    assert_false(fsm_is_used(f->relation, dropped));
    assert_false(fsm_is_used(f->relation, 5));
    assert_false(fsm_is_used(f->relation, 20));
    assert_true(fsm_is_used(f->relation, 30));
    assert_true(fsm_is_used(f->relation, 4));
    assert_int_equal(stats_of(f).used_blocks, 11);
}

static void build_aborted_leaves_map_as_it_was(void **state)
{
    struct fixture *f = *state;
    reopen_with_file(f, 100);
    assert_true(fsm_build_order(f->relation));
    assert_int_equal(fsm_build_begin(f->relation), 0);
    fsm_build_abort(f->relation);
    assert_false(fsm_is_ready(f->relation));
    assert_false(fsm_build_order(f->relation));
    assert_int_equal(allocate_one(f, 0), 100);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    assert_int_equal(fsm_build_used(f->relation, 100, 1), 0);
    build_finish(f);
    assert_int_equal(stats_of(f).used_blocks, 1);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    fsm_build_abort(f->relation);
    assert_true(fsm_is_ready(f->relation));
    assert_int_equal(stats_of(f).used_blocks, 1);
}

static void build_empty_relation_is_ready_after_finish(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    const block_no block = allocate_one(f, 0);
    build_finish(f);
    assert_true(fsm_is_ready(f->relation));
    assert_true(fsm_is_used(f->relation, block));
}

static void build_is_ordered_once_until_it_is_done_or_doubted(void **state)
{
    struct fixture *f = *state;
    reopen_with_file(f, 100);
    assert_true(fsm_build_order(f->relation));
    assert_false(fsm_build_order(f->relation));
    assert_int_equal(fsm_build_begin(f->relation), 0);
    build_finish(f);
    assert_false(fsm_build_order(f->relation)); /* it is ready */
    fsm_doubt(f->relation);
    assert_false(fsm_is_ready(f->relation));
    assert_true(fsm_build_order(f->relation));
    assert_int_equal(fsm_build_begin(f->relation), 0);
    fsm_doubt(f->relation); /* of what is being built as well */
    build_finish(f);
    assert_false(fsm_is_ready(f->relation));
    assert_true(fsm_build_order(f->relation));
}

static void doubted_map_hands_out_what_it_knows_to_be_free(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    fsm_doubt(f->relation);
    assert_int_equal(fsm_reserve(f->relation, 60), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 60, &first), 60);
    fsm_free(f->relation, 20, 2);
    fsm_doubt(f->relation);
    assert_int_equal(allocate_one(f, 0), 20);
    assert_int_equal(stats_of(f).free_blocks, 1);
}

/* A damaged tree may lead to any block: what it has is not handed out. */
static void build_contradicted_by_a_tree_withdraws_what_is_not_promised(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 50), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 40, &first), 40);
    fsm_unreserve(f->relation, 8);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    assert_int_equal(fsm_build_used(f->relation, 0, 45), 0);
    assert_int_equal(f->diag.damage_count, 0);
    build_finish(f);
    assert_int_equal(f->diag.damage_count, 1);
    assert_int_equal(stats_of(f).free_blocks, 5);
    assert_true(fsm_is_used(f->relation, 44));
    assert_int_equal(fsm_build_begin(f->relation), 0);
    assert_int_equal(fsm_build_used(f->relation, 0, 49), 0);
    assert_int_equal(fsm_build_finish(f->relation), -EIO); /* two are promised, one is left */
    assert_int_equal(stats_of(f).free_blocks, 5);
    assert_int_equal(fsm_allocate(f->relation, 0), 45);
    assert_int_equal(fsm_allocate(f->relation, 0), 46);
}

static void trim_cuts_free_blocks_at_the_end_only(void **state)
{
    struct fixture *f = *state;
    uint32_t cut = 9;
    block_no first = 0;
    assert_int_equal(fsm_trim(f->relation, 0, &cut), 0);
    assert_int_equal(cut, 0);
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_trim(f->relation, 0, &cut), 0);
    assert_int_equal(cut, 0);
    assert_int_equal(fsm_reserve(f->relation, 100), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 80, &first), 80);
    fsm_free(f->relation, 10, 5);
    fsm_free(f->relation, 70, 10);
    /* free: 5 inside, 30 at the end; promised: 20, of which 5 find room inside */
    assert_int_equal(fsm_trim(f->relation, 0, &cut), 0);
    assert_int_equal(cut, 15);
    assert_int_equal(file_blocks(f), 85);
    for (unsigned i = 0; i < 20; i++)
        assert_in_range(fsm_allocate(f->relation, 84), 10, 84);
    assert_int_equal(fsm_trim(f->relation, 0, &cut), 0);
    assert_int_equal(cut, 0);
    assert_int_equal(allocate_one(f, 0), 85);
}

static void trim_to_nothing_allows_going_on(void **state)
{
    struct fixture *f = *state;
    uint32_t cut = 0;
    block_no first = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 300), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 300, &first), 300);
    fsm_free(f->relation, 0, 300);
    assert_int_equal(fsm_trim(f->relation, 0, &cut), 0);
    assert_int_equal(cut, 300);
    assert_int_equal(file_blocks(f), 0);
    assert_int_equal(allocate_one(f, 7), 0);
}

static void trim_leaves_what_it_is_told_to(void **state)
{
    struct fixture *f = *state;
    uint32_t cut = 0;
    block_no first = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_false(fsm_may_trim(f->relation));
    assert_int_equal(fsm_reserve(f->relation, 200), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 200, &first), 200);
    fsm_free(f->relation, 150, 50);
    assert_true(fsm_may_trim(f->relation));
    assert_int_equal(fsm_trim(f->relation, 20, &cut), 0);
    assert_int_equal(cut, 30);
    assert_int_equal(file_blocks(f), 170);
    assert_false(fsm_may_trim(f->relation));
    assert_int_equal(fsm_trim(f->relation, 20, &cut), 0);
    assert_int_equal(cut, 0);
    assert_int_equal(fsm_spare_blocks(32), 0);
    assert_int_equal(fsm_spare_blocks(800), 25);
}

static void trim_failing_changes_nothing(void **state)
{
    struct fixture *f = *state;
    uint32_t cut = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 50), 0);
    fsm_unreserve(f->relation, 50);
    mem_device_fail(f->mem, MEM_CALL_TRUNCATE, 1, EIO, false);
    assert_int_equal(fsm_trim(f->relation, 0, &cut), -EIO);
    assert_int_equal(cut, 0);
    assert_int_equal(stats_of(f).free_blocks, 50);
    assert_int_equal(stats_of(f).file_blocks, 50);
}

/* ---- holes ---- */

/* FSM-10, as the device sees it: what is not punched has space, and nothing else. */
static void expect_space_for_all_but_punched(struct fixture *f)
{
    struct io_stat st;
    const struct fsm_stats stats = stats_of(f);
    uint32_t punched = 0;
    if (stats.file_blocks == 0)
        return; /* there may be no file */
    assert_int_equal(io_stat(mem_device_io(f->mem), relation_file_path(f->relation), &st), 0);
    assert_int_equal(st.allocated_bytes / BLOCK_SIZE, stats.file_blocks - stats.punched_blocks);
    for (block_no block = 0; block < stats.file_blocks; block++)
        punched += fsm_is_punched(f->relation, block);
    assert_int_equal(punched, stats.punched_blocks);
}

/* 1,000 blocks, of which 300 to 299 + count are free. */
static void make_file_with_free_blocks(struct fixture *f, uint32_t count)
{
    block_no first = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    assert_int_equal(fsm_reserve(f->relation, 1000), 0);
    assert_int_equal(fsm_allocate_run(f->relation, 0, 1000, &first), 1000);
    fsm_free(f->relation, 300, count);
}

static void expect_punch(struct fixture *f, uint32_t count)
{
    uint32_t punched = 9;
    assert_int_equal(fsm_punch(f->relation, &punched), 0);
    assert_int_equal(punched, count);
}

static void punch_leaves_as_much_free_as_is_used(void **state)
{
    struct fixture *f = *state;
    expect_punch(f, 0); /* no map */
    make_file_with_free_blocks(f, 500);
    expect_punch(f, 0); /* no more than half */
    fsm_free(f->relation, 800, 60);
    expect_punch(f, 0); /* too little to be worth it */
    fsm_free(f->relation, 860, 4);
    expect_punch(f, 128);
    assert_int_equal(stats_of(f).used_blocks, 436);
    assert_int_equal(stats_of(f).free_blocks, 436);
    assert_true(fsm_is_punched(f->relation, 863) && !fsm_is_punched(f->relation, 864));
    assert_false(fsm_is_used(f->relation, 863));
    expect_space_for_all_but_punched(f);
    expect_punch(f, 0);
}

static void punch_takes_long_runs_only(void **state)
{
    struct fixture *f = *state;
    make_file_with_free_blocks(f, 127);
    fsm_free(f->relation, 0, 127);
    fsm_free(f->relation, 128, 127);
    fsm_free(f->relation, 430, 127);
    fsm_free(f->relation, 600, 150);
    fsm_free(f->relation, 800, 127);
    expect_punch(f, 150); /* of 785 that are free; 215 are used */
    assert_true(fsm_is_punched(f->relation, 600) && fsm_is_punched(f->relation, 749));
    fsm_free(f->relation, 127, 1);
    expect_punch(f, 255);
    expect_space_for_all_but_punched(f);
}

static void punch_spares_what_is_promised(void **state)
{
    struct fixture *f = *state;
    make_file_with_free_blocks(f, 600);
    assert_int_equal(fsm_reserve(f->relation, 500), 0);
    expect_punch(f, 0);
    fsm_unreserve(f->relation, 30);
    expect_punch(f, 130);
    for (unsigned i = 0; i < 470; i++)
        assert_false(fsm_is_punched(f->relation, fsm_allocate(f->relation, 299)));
    expect_space_for_all_but_punched(f);
}

static void reserve_gives_punched_blocks_space_before_the_file_grows(void **state)
{
    struct fixture *f = *state;
    block_no first = 0;
    make_file_with_free_blocks(f, 650);
    expect_punch(f, 300);
    assert_int_equal(fsm_reserve(f->relation, 350), 0);
    assert_int_equal(stats_of(f).punched_blocks, 300); /* free ones first */
    assert_int_equal(fsm_reserve(f->relation, 1), 0);
    assert_int_equal(stats_of(f).punched_blocks, 300 - 32); /* some at once */
    assert_int_equal(fsm_reserve(f->relation, 299), 0);
    assert_int_equal(stats_of(f).punched_blocks, 0);
    assert_int_equal(file_blocks(f), 1000);
    expect_space_for_all_but_punched(f);
    for (uint32_t got = 0; got < 650;)
        got += fsm_allocate_run(f->relation, 0, 650, &first);
    assert_int_equal(stats_of(f).used_blocks, 1000);
    assert_int_equal(fsm_reserve(f->relation, 1), 0);
    assert_true(file_blocks(f) > 1000);
    expect_space_for_all_but_punched(f);
}

static void reserve_on_full_disk_with_holes_promises_nothing_or_exactly_what_fits(void **state)
{
    struct fixture *f = *state;
    make_file_with_free_blocks(f, 650);
    expect_punch(f, 300);
    assert_int_equal(fsm_reserve(f->relation, 350), 0);
    mem_device_set_capacity(f->mem, mem_device_used_bytes(f->mem));
    assert_int_equal(fsm_reserve(f->relation, 1), -ENOSPC);
    assert_int_equal(stats_of(f).reserved_blocks, 350);
    assert_int_equal(stats_of(f).punched_blocks, 300);
    assert_int_equal(file_blocks(f), 1000);
    expect_space_for_all_but_punched(f);
    mem_device_set_capacity(f->mem, mem_device_used_bytes(f->mem) + 3 * BLOCK_SIZE);
    assert_int_equal(fsm_reserve(f->relation, 3), 0);
    assert_int_equal(stats_of(f).punched_blocks, 297);
    assert_int_equal(fsm_reserve(f->relation, 1), -ENOSPC);
    fsm_unreserve(f->relation, 350);
    assert_int_equal(fsm_reserve(f->relation, 350), 0);
    expect_space_for_all_but_punched(f);
}

static uint64_t punch_calls(struct fixture *f)
{
    struct mem_counters counters;
    mem_device_counters(f->mem, &counters);
    return counters.calls[MEM_CALL_PUNCH];
}

static void punch_not_supported_is_not_tried_again(void **state)
{
    struct fixture *f = *state;
    make_file_with_free_blocks(f, 650);
    mem_device_fail(f->mem, MEM_CALL_PUNCH, 1, EOPNOTSUPP, false);
    expect_punch(f, 0);
    fsm_free(f->relation, 0, 300);
    expect_punch(f, 0);
    assert_int_equal(punch_calls(f), 1);
    assert_int_equal(stats_of(f).free_blocks, 950);
    assert_int_equal(stats_of(f).punched_blocks, 0);
}

static void punch_failing_leaves_blocks_that_are_given_space(void **state)
{
    struct fixture *f = *state;
    uint32_t punched = 0;
    struct mem_counters counters;
    make_file_with_free_blocks(f, 650);
    mem_device_fail(f->mem, MEM_CALL_PUNCH, 1, EIO, false);
    assert_int_equal(fsm_punch(f->relation, &punched), -EIO);
    assert_int_equal(punched, 0);
    assert_int_equal(stats_of(f).punched_blocks, 300); /* perhaps */
    assert_int_equal(stats_of(f).free_blocks, 350);
    mem_device_counters_reset(f->mem);
    assert_int_equal(fsm_reserve(f->relation, 650), 0);
    mem_device_counters(f->mem, &counters);
    assert_true(counters.calls[MEM_CALL_ALLOCATE] > 0);
    assert_int_equal(file_blocks(f), 1000);
    expect_space_for_all_but_punched(f);
}

static void trim_cuts_punched_blocks_off_too(void **state)
{
    struct fixture *f = *state;
    uint32_t cut = 0;
    make_file_with_free_blocks(f, 650);
    expect_punch(f, 300); /* 650 to 949 */
    fsm_free(f->relation, 955, 45);
    assert_int_equal(fsm_trim(f->relation, 0, &cut), 0);
    assert_int_equal(file_blocks(f), 955);
    fsm_free(f->relation, 950, 5);
    assert_int_equal(fsm_reserve(f->relation, 345), 0); /* of 355 free ones */
    assert_int_equal(fsm_trim(f->relation, 0, &cut), 0);
    assert_int_equal(file_blocks(f), 645);
    assert_int_equal(stats_of(f).punched_blocks, 0);
    fsm_unreserve(f->relation, 345);
    assert_int_equal(fsm_trim(f->relation, 7, &cut), 0);
    assert_int_equal(file_blocks(f), 307);
    expect_space_for_all_but_punched(f);
    assert_int_equal(fsm_reserve(f->relation, 400), 0);
    expect_space_for_all_but_punched(f);
}

static void holes_of_an_earlier_life_are_given_space_before_they_are_used(void **state)
{
    struct fixture *f = *state;
    make_file_with_free_blocks(f, 650);
    expect_punch(f, 300);
    close_cache(f);
    open_cache(f);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    assert_int_equal(fsm_build_used(f->relation, 0, 300), 0);
    assert_int_equal(fsm_build_used(f->relation, 950, 50), 0);
    build_finish(f);
    assert_int_equal(stats_of(f).used_blocks, 350);
    assert_int_equal(stats_of(f).free_blocks, 0);
    assert_int_equal(stats_of(f).punched_blocks, 650); /* nobody knows which have space */
    mem_device_set_capacity(f->mem, mem_device_used_bytes(f->mem));
    assert_int_equal(fsm_reserve(f->relation, 351), -ENOSPC);
    mem_device_set_capacity(f->mem, 0);
    assert_int_equal(fsm_reserve(f->relation, 650), 0);
    assert_int_equal(file_blocks(f), 1000);
    expect_space_for_all_but_punched(f);
}

static void build_contradicted_by_a_tree_takes_punched_blocks_back(void **state)
{
    struct fixture *f = *state;
    make_file_with_free_blocks(f, 650);
    expect_punch(f, 300);
    assert_int_equal(fsm_build_begin(f->relation), 0);
    assert_int_equal(fsm_build_used(f->relation, 0, 300), 0);
    assert_int_equal(fsm_build_used(f->relation, 940, 60), 0);
    build_finish(f);
    assert_int_equal(f->diag.damage_count, 1);
    assert_int_equal(stats_of(f).punched_blocks, 290);
    assert_int_equal(stats_of(f).used_blocks, 360);
    assert_true(fsm_is_used(f->relation, 940));
}

/* ---- against a plain array ---- */

#define MODEL_BLOCKS 40000u

/* What a block is to the model. */
enum { FREE, USED, LOST }; /* lost: nothing uses it any more, and nobody told the map */

struct model {
    struct fixture *f;
    struct test_random random;
    uint8_t state[MODEL_BLOCKS];
    uint8_t at_begin[MODEL_BLOCKS]; /* of the build under way */
    uint8_t touched[MODEL_BLOCKS];  /* since then */
    uint32_t used_count, lost_count;
    uint64_t punched_count;
    bool building, ready, ready_at_end;
};

static void model_take(struct model *m, block_no first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_in_range(first + i, 0, MODEL_BLOCKS - 1);
        assert_int_equal(m->state[first + i], FREE); /* FSM-1 */
        m->state[first + i] = USED;
        m->touched[first + i] = 1;
    }
    m->used_count += count;
}

static void model_allocate(struct model *m)
{
    uint32_t want = (uint32_t)test_random_range(&m->random, 1, 40);
    const block_no hint = (block_no)test_random_below(&m->random, 6000);
    if (m->used_count > 4000)
        return;
    assert_int_equal(fsm_reserve(m->f->relation, want), 0);
    while (want > 0) {
        block_no first = 0;
        uint32_t got = 1;
        if (test_random_chance(&m->random, 50))
            first = fsm_allocate(m->f->relation, test_random_chance(&m->random, 30) ? BLOCK_NONE : hint);
        else
            got = fsm_allocate_run(m->f->relation, hint, want, &first);
        assert_in_range(got, 1, want);
        model_take(m, first, got);
        want -= got;
        if (test_random_chance(&m->random, 5)) {
            fsm_unreserve(m->f->relation, want);
            return;
        }
    }
}

static uint32_t model_run(const struct model *m, block_no first, uint32_t limit)
{
    uint32_t count = 0;
    while (count < limit && m->state[first + count] == USED)
        count++;
    return count;
}

static void model_free_run(struct model *m, block_no first, uint32_t limit)
{
    const uint32_t count = model_run(m, first, limit);
    memset(m->state + first, FREE, count);
    memset(m->touched + first, 1, count);
    m->used_count -= count;
    fsm_free(m->f->relation, first, count);
}

static void model_free(struct model *m)
{
    model_free_run(m, (block_no)test_random_below(&m->random, MODEL_BLOCKS / 8), 20);
}

/* Most of the file, so that punching is worth it. */
static void model_free_most(struct model *m)
{
    const block_no first = (block_no)test_random_below(&m->random, 1000);
    for (block_no block = first; block < first + 3000; block++)
        model_free_run(m, block, 1);
}

/* As when a snapshot of an earlier life goes. */
static void model_lose(struct model *m)
{
    const block_no first = (block_no)test_random_below(&m->random, MODEL_BLOCKS / 8);
    const uint32_t count = model_run(m, first, 20);
    memset(m->state + first, LOST, count);
    m->used_count -= count;
    m->lost_count += count;
    fsm_doubt(m->f->relation);
    m->ready = false;
    m->ready_at_end = false;
}

static void model_build_begin(struct model *m)
{
    memcpy(m->at_begin, m->state, sizeof m->at_begin);
    memset(m->touched, 0, sizeof m->touched);
    assert_int_equal(fsm_build_begin(m->f->relation), 0);
    m->building = true;
    m->ready_at_end = true;
}

/* The fork's trees show what was used when the build began; of what was touched since, others may show anything. */
static void model_build_mark(struct model *m)
{
    const struct fsm_stats stats = stats_of(m->f);
    for (block_no block = 0; block < stats.file_blocks; block++) {
        const bool mark = m->touched[block] ? test_random_chance(&m->random, 50) : m->at_begin[block] == USED;
        if (mark)
            assert_int_equal(fsm_build_used(m->f->relation, block, 1), 0);
    }
}

static void model_build_end(struct model *m)
{
    m->building = false;
    if (test_random_chance(&m->random, 20)) {
        fsm_build_abort(m->f->relation);
        return;
    }
    model_build_mark(m);
    assert_int_equal(fsm_build_finish(m->f->relation), 0);
    m->ready = m->ready_at_end;
    for (block_no block = 0; block < MODEL_BLOCKS; block++) {
        if (m->state[block] == LOST && m->at_begin[block] == LOST) {
            m->state[block] = FREE;
            m->lost_count--;
        }
    }
}

static void model_compare(const struct model *m)
{
    const struct fsm_stats stats = stats_of(m->f);
    assert_in_range(stats.file_blocks, 0, MODEL_BLOCKS);
    assert_int_equal(fsm_is_ready(m->f->relation), m->ready);
    assert_int_equal(stats.used_blocks, m->used_count + m->lost_count);
    assert_int_equal(stats.reserved_blocks, 0);
    for (block_no block = 0; block < MODEL_BLOCKS; block++)
        assert_int_equal(fsm_is_used(m->f->relation, block), m->state[block] != FREE);
    expect_space_for_all_but_punched(m->f);
}

static void model_checkpoint(struct model *m)
{
    uint32_t cut = 0;
    uint32_t punched = 0;
    if (test_random_chance(&m->random, 60))
        model_free_most(m);
    assert_int_equal(fsm_trim(m->f->relation, 0, &cut), 0);
    assert_int_equal(fsm_punch(m->f->relation, &punched), 0);
    m->punched_count += punched;
}

static void model_step(struct model *m)
{
    const uint64_t dice = test_random_below(&m->random, 1000);
    if (dice < 300)
        model_allocate(m);
    else if (dice < 980)
        model_free(m);
    else if (dice < 985)
        model_lose(m);
    else if (dice < 994 && !m->building)
        model_build_begin(m);
    else if (dice < 994)
        model_build_end(m);
    else
        model_checkpoint(m);
}

static void random_operations_agree_with_array(void **state)
{
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->f = *state;
    test_random_init(&m->random, test_seed("unit/fsm/test_fsm"));
    assert_int_equal(fsm_init_empty(m->f->relation), 0);
    m->ready = true;
    for (unsigned step = 0; step < 20000; step++) {
        model_step(m);
        if (step % 1000 == 0)
            model_compare(m);
    }
    if (m->building)
        model_build_end(m);
    while (m->lost_count > 0 || !m->ready) { /* until a build is not aborted */
        model_build_begin(m);
        model_build_end(m);
    }
    model_compare(m);
    assert_true(m->punched_count > 0);
    free(m);
}

/* ---- threads ---- */

#define THREADS       4u
#define THREAD_ROUNDS 2000u
#define THREAD_BLOCKS 16384u

struct thread_job {
    struct relation *relation;
    _Atomic uint8_t *owned; /* THREAD_BLOCKS of them */
    uint64_t seed;
    unsigned collisions;
};

static void *thread_run(void *arg)
{
    struct thread_job *job = arg;
    struct test_random random;
    test_random_init(&random, job->seed);
    for (unsigned round = 0; round < THREAD_ROUNDS; round++) {
        const uint32_t want = (uint32_t)test_random_range(&random, 1, 8);
        block_no first = 0;
        if (fsm_reserve(job->relation, want) != 0) {
            job->collisions++;
            return NULL;
        }
        const uint32_t got = fsm_allocate_run(job->relation, (block_no)test_random_below(&random, 1000), want, &first);
        fsm_unreserve(job->relation, want - got);
        for (uint32_t i = 0; i < got; i++)
            job->collisions += atomic_exchange(&job->owned[first + i], 1) != 0;
        if (test_random_chance(&random, 10))
            continue; /* keeps them */
        for (uint32_t i = 0; i < got; i++)
            atomic_store(&job->owned[first + i], 0);
        fsm_free(job->relation, first, got);
    }
    return NULL;
}

static void threads_never_share_a_block(void **state)
{
    struct fixture *f = *state;
    _Atomic uint8_t *owned = calloc(THREAD_BLOCKS, sizeof *owned);
    struct thread_job jobs[THREADS];
    pthread_t threads[THREADS];
    const uint64_t seed = test_seed("unit/fsm/test_fsm");
    assert_non_null(owned);
    assert_int_equal(fsm_init_empty(f->relation), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        jobs[i] = (struct thread_job){.relation = f->relation, .owned = owned, .seed = seed * THREADS + i};
        assert_int_equal(pthread_create(&threads[i], NULL, thread_run, &jobs[i]), 0);
    }
    for (unsigned round = 0; round < 50; round++) {
        uint32_t cut = 0;
        assert_int_equal(fsm_trim(f->relation, 0, &cut), 0);
    }
    uint32_t used = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].collisions, 0);
    }
    for (block_no block = 0; block < THREAD_BLOCKS; block++) {
        assert_int_equal(fsm_is_used(f->relation, block), owned[block] != 0);
        used += owned[block];
    }
    assert_int_equal(stats_of(f).used_blocks, used);
    assert_int_equal(stats_of(f).reserved_blocks, 0);
    free((void *)owned);
}

/* ---- writers of many relations ---- */

#define WRITERS       16u
#define WRITER_ROUNDS 300u

struct writer {
    struct relation *relation;
    pthread_t thread;
};

/* Extends its relation block by block, and gives some of them back. */
static void *extend_relation(void *arg)
{
    struct relation *relation = ((struct writer *)arg)->relation;
    for (unsigned round = 0; round < WRITER_ROUNDS; round++) {
        block_no first = 0;
        if (fsm_reserve(relation, 4) != 0)
            abort();
        const uint32_t count = fsm_allocate_run(relation, BLOCK_NONE, 4, &first);
        fsm_unreserve(relation, 4 - count);
        if (round % 3 == 0)
            fsm_free(relation, first, count);
    }
    return NULL;
}

static uint64_t waits_of(const struct writer *writers, unsigned count)
{
    uint64_t waits = 0;
    for (unsigned i = 0; i < count; i++) {
        struct fsm_stats stats;
        assert_int_equal(fsm_get_stats(writers[i].relation, &stats), 0);
        waits += stats.lock_waits;
    }
    return waits;
}

static void run_writers(struct writer *writers, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_create(&writers[i].thread, NULL, extend_relation, &writers[i]), 0);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
}

static void writers_of_different_relations_do_not_wait(void **state)
{
    struct fixture *f = *state;
    struct writer writers[WRITERS];
    for (unsigned i = 0; i < WRITERS; i++) {
        assert_int_equal(relation_open(f->cache, TS_DEFAULT, TEST_REL + 1 + i, &writers[i].relation), 0);
        assert_int_equal(fsm_init_empty(writers[i].relation), 0);
    }
    run_writers(writers, WRITERS);
    assert_int_equal(waits_of(writers, WRITERS), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        relation_unref(writers[i].relation);
}

/* That the counter counts: those of one relation do wait, sooner or later. */
static void writers_of_one_relation_are_counted_when_they_wait(void **state)
{
    struct fixture *f = *state;
    struct writer writers[WRITERS];
    uint64_t waits = 0;
    assert_int_equal(fsm_init_empty(f->relation), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        writers[i].relation = f->relation;
    for (unsigned tries = 0; waits == 0 && tries < 200; tries++) {
        run_writers(writers, WRITERS);
        waits = waits_of(writers, 1);
    }
    assert_true(waits > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(map_new_relation_touches_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserve_first_creates_file_of_that_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserve_small_relation_grows_by_what_is_needed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserve_large_relation_grows_by_a_part_of_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserve_on_full_disk_promises_nothing_or_exactly_what_fits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserve_too_much_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserve_missing_file_without_init_is_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(allocate_follows_hint_in_large_relation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(allocate_goes_to_the_front_when_nothing_is_near, set_up, tear_down),
        cmocka_unit_test_setup_teardown(deferred_blocks_bring_a_checkpoint_when_most_of_the_file_waits, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(allocate_small_relation_takes_lowest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(allocate_run_prefers_one_that_is_long_enough, set_up, tear_down),
        cmocka_unit_test_setup_teardown(allocate_steady_state_reads_bounded_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(allocate_in_a_fragmented_file_reads_bounded_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(map_not_ready_allocates_behind_the_end_and_what_was_freed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_finds_what_is_not_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_forgets_nothing_meanwhile, set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_honours_frees_and_allocations_meanwhile, set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_aborted_leaves_map_as_it_was, set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_empty_relation_is_ready_after_finish, set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_is_ordered_once_until_it_is_done_or_doubted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(doubted_map_hands_out_what_it_knows_to_be_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_contradicted_by_a_tree_withdraws_what_is_not_promised, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trim_cuts_free_blocks_at_the_end_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trim_to_nothing_allows_going_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trim_failing_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trim_leaves_what_it_is_told_to, set_up, tear_down),
        cmocka_unit_test_setup_teardown(punch_leaves_as_much_free_as_is_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(punch_takes_long_runs_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(punch_spares_what_is_promised, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserve_gives_punched_blocks_space_before_the_file_grows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reserve_on_full_disk_with_holes_promises_nothing_or_exactly_what_fits, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(punch_not_supported_is_not_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(punch_failing_leaves_blocks_that_are_given_space, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trim_cuts_punched_blocks_off_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(holes_of_an_earlier_life_are_given_space_before_they_are_used, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(build_contradicted_by_a_tree_takes_punched_blocks_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_never_share_a_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(random_operations_agree_with_array, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writers_of_different_relations_do_not_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writers_of_one_relation_are_counted_when_they_wait, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
