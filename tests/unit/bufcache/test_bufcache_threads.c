/*
 * tests/unit/bufcache/test_bufcache_threads.c - readers, writers, drops, write-back and eviction at the same time.
 *
 * Each tree is a relation with a lock and a table of what its pages hold, as the trees above the cache have it: readers
 * hold the lock shared, writers exclusively; what may not be changed in place moves to another block. More pages than
 * frames, more relations than descriptors.
 */
#include "base/lock.h"
#include "tests/unit/bufcache/fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define TREES 12u
#define PAGES 100u /* of a tree; it has twice as many blocks */

struct tree {
    struct rwlock lock;
    struct relation *relation;
    struct page_ptr pages[PAGES];
    uint64_t versions[PAGES];
    bool used[2 * PAGES];
};

struct world {
    struct fixture *fixture;
    struct tree trees[TREES];
    _Atomic rel_no next_rel;
    _Atomic epoch_no epoch;
    _Atomic uint64_t version;
    unsigned operations;
};

struct worker {
    struct world *world;
    pthread_t thread;
    struct test_random random;
};

static void fill(struct frame *frame, uint64_t version)
{
    uint8_t *payload = (uint8_t *)frame_page(frame) + PAGE_HEADER_SIZE;
    for (size_t i = 0; i + 8 <= PAGE_PAYLOAD_SIZE; i += 8)
        memcpy(payload + i, &version, 8);
    payload[0] = 0;
}

static void expect(struct frame *frame, uint64_t version)
{
    const uint8_t *payload = (const uint8_t *)frame_page(frame) + PAGE_HEADER_SIZE;
    for (size_t i = 8; i + 8 <= PAGE_PAYLOAD_SIZE; i += 8)
        if (memcmp(payload + i, &version, 8) != 0)
            abort();
}

static void must(int rc)
{
    if (rc != 0)
        abort();
}

static struct page_ptr take_block(struct world *world, struct tree *tree)
{
    block_no block = 0;
    while (tree->used[block])
        block++;
    tree->used[block] = true;
    return ptr_of(block, atomic_fetch_add(&world->epoch, 1) + 1);
}

static void new_page(struct world *world, struct tree *tree, unsigned page, struct frame_budget *budget)
{
    tree->pages[page] = take_block(world, tree);
    tree->versions[page] = atomic_fetch_add(&world->version, 1);
    struct frame *frame = page_new(tree->relation, budget, tree->pages[page], LEAF, 0);
    fill(frame, tree->versions[page]);
    page_unlatch(frame, true);
    page_unpin(frame);
}

static void new_tree(struct world *world, struct tree *tree)
{
    must(relation_open(world->fixture->cache, FIXTURE_TS, atomic_fetch_add(&world->next_rel, 1), &tree->relation));
    must(relation_create_file(tree->relation));
    must(relation_extend(tree->relation, 2 * PAGES));
    memset(tree->used, 0, sizeof tree->used);
    for (unsigned i = 0; i < PAGES; i++)
        tree->pages[i] = PAGE_PTR_NONE;
}

static void write_page(struct world *world, struct tree *tree, unsigned page)
{
    struct frame_budget budget;
    struct frame *frame;
    must(frame_budget_take(world->fixture->cache, 1, 1, &budget));
    rwlock_lock_exclusive(&tree->lock);
    const struct page_ptr old = tree->pages[page];
    if (page_ptr_is_none(old)) {
        new_page(world, tree, page, &budget);
    } else {
        must(page_read(tree->relation, old, LEAF, 0, &frame));
        expect(frame, tree->versions[page]);
        const bool latched = page_try_latch(frame);
        if (latched) {
            tree->versions[page] = atomic_fetch_add(&world->version, 1);
            fill(frame, tree->versions[page]);
            page_unlatch(frame, true);
        }
        page_unpin(frame);
        if (!latched) {
            new_page(world, tree, page, &budget);
            page_discard(tree->relation, old.block);
            tree->used[old.block] = false;
        }
    }
    rwlock_unlock_exclusive(&tree->lock);
    frame_budget_release(&budget);
}

/* Reads some neighbours; one stays pinned by a reply beyond the lock. */
static void read_pages(struct world *world, struct tree *tree, unsigned first)
{
    struct frame_budget budget;
    struct page_ptr ptrs[10];
    uint64_t versions[10];
    struct frame *frames[10];
    unsigned count = 0;
    must(frame_budget_take(world->fixture->cache, 10, 0, &budget));
    rwlock_lock_shared(&tree->lock);
    for (unsigned i = first; i < PAGES && count < 10; i++)
        if (!page_ptr_is_none(tree->pages[i])) {
            ptrs[count] = tree->pages[i];
            versions[count++] = tree->versions[i];
        }
    must(page_read_many(tree->relation, ptrs, count, LEAF, 0, frames));
    for (unsigned i = 0; i < count; i++)
        page_reply_pin(frames[i]);
    for (unsigned i = 0; i < count; i++)
        page_unpin(frames[i]);
    rwlock_unlock_shared(&tree->lock);
    frame_budget_release(&budget);
    for (unsigned i = 0; i < count; i++) {
        expect(frames[i], versions[i]);
        page_reply_unpin(frames[i]);
    }
}

static void *user_main(void *arg)
{
    struct worker *worker = arg;
    struct world *world = worker->world;
    for (unsigned i = 0; i < world->operations; i++) {
        struct tree *tree = &world->trees[test_random_below(&worker->random, TREES)];
        const unsigned page = (unsigned)test_random_below(&worker->random, PAGES);
        if (test_random_chance(&worker->random, 60))
            write_page(world, tree, page);
        else
            read_pages(world, tree, page);
    }
    return NULL;
}

/* Drops up to three trees at once and makes new ones in their place. */
static void *dropper_main(void *arg)
{
    struct worker *worker = arg;
    struct world *world = worker->world;
    struct relation *victims[3];
    for (unsigned i = 0; i < world->operations / 50; i++) {
        const unsigned first = (unsigned)test_random_below(&worker->random, TREES - 3);
        for (unsigned t = 0; t < 3; t++) {
            rwlock_lock_exclusive(&world->trees[first + t].lock);
            victims[t] = world->trees[first + t].relation;
        }
        bufcache_drop_relations(world->fixture->cache, victims, 3, NULL);
        for (unsigned t = 0; t < 3; t++) {
            must(relation_unlink_file(victims[t]));
            relation_unref(victims[t]);
            new_tree(world, &world->trees[first + t]);
        }
        for (unsigned t = 3; t > 0; t--)
            rwlock_unlock_exclusive(&world->trees[first + t - 1].lock);
    }
    return NULL;
}

static void *checkpointer_main(void *arg)
{
    struct worker *worker = arg;
    struct world *world = worker->world;
    for (unsigned i = 0; i < world->operations / 50; i++) {
        must(bufcache_write_back(world->fixture->cache, atomic_load(&world->epoch), NULL));
        must(bufcache_sync_relations(world->fixture->cache));
        bufcache_step(world->fixture->cache);
    }
    return NULL;
}

static void open_small_cache(struct fixture *fixture, bool background)
{
    struct bufcache_options options = fixture_options(fixture, 512);
    options.background = background;
    options.max_open_files = 8;
    bufcache_close(fixture->cache);
    assert_int_equal(bufcache_open(&options, &fixture->cache), 0);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, FIXTURE_TS, "/data"), 0);
}

static void check_trees_and_close(struct world *world)
{
    for (unsigned t = 0; t < TREES; t++) {
        struct tree *tree = &world->trees[t];
        for (unsigned i = 0; i < PAGES; i++) {
            struct frame *frame;
            if (page_ptr_is_none(tree->pages[i]))
                continue;
            must(page_read(tree->relation, tree->pages[i], LEAF, 0, &frame));
            expect(frame, tree->versions[i]);
            page_unpin(frame);
        }
        relation_unref(tree->relation);
        rwlock_destroy(&tree->lock);
    }
}

static void run_workers(struct world *world, uint64_t seed)
{
    static void *(*const mains[])(void *) = {user_main, user_main,    user_main,
                                             user_main, dropper_main, checkpointer_main};
    struct worker workers[ARRAY_COUNT(mains)];
    for (size_t i = 0; i < ARRAY_COUNT(mains); i++) {
        workers[i].world = world;
        test_random_init(&workers[i].random, seed + i);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, mains[i], &workers[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_COUNT(mains); i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
}

static void threads_all_at_once_contents_right(void **state)
{
    (void)state;
    const uint64_t seed = test_seed("unit/bufcache/test_bufcache_threads");
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->fixture = fixture_create(512);
    world->operations = test_is_long() ? 50000 : 2500;
    atomic_store(&world->next_rel, 1000);
    open_small_cache(world->fixture, true);
    for (unsigned t = 0; t < TREES; t++) {
        rwlock_init(&world->trees[t].lock, LOCK_RANK_FILE, t);
        new_tree(world, &world->trees[t]);
    }
    run_workers(world, seed);
    const struct bufcache_stats stats = fixture_stats(world->fixture);
    assert_true(stats.evictions > 0 && stats.pages_written > 0 && stats.discards > 0);
    assert_int_equal(stats.damaged_pages, 0);
    assert_int_equal(stats.pinned_frames, 0);
    assert_int_equal(bufcache_failed(world->fixture->cache), 0);
    check_trees_and_close(world);
    open_small_cache(world->fixture, false);
    fixture_destroy(world->fixture);
    free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_all_at_once_contents_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
