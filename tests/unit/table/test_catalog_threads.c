/*
 * tests/unit/table/test_catalog_threads.c - readers, writers, forks and write-back at the same time (for TSan).
 *
 * Two writers keep one rule: items 2i and 2i + 1 have the same value, because each batch writes both. Readers of the
 * live view and of forks check it; the number of operations is fixed, whatever the speed.
 */
#include "tests/unit/table/catalog_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define PAIRS         600u
#define WRITER_ROUNDS 5000u
#define READER_ROUNDS 5000u
#define FORK_ROUNDS   200u

struct shared {
    struct fixture fixture;
    _Atomic unsigned wrong; /* assertions of cmocka are for the main thread only */
};

struct worker {
    struct shared *shared;
    uint64_t seed;
};

static void expect(struct shared *shared, bool condition)
{
    if (!condition) {
        atomic_fetch_add(&shared->wrong, 1);
    }
}

static struct catalog_key pair_key(uint64_t pair, unsigned half)
{
    return (struct catalog_key){.ino = INO_NONE, .sub = pair * 2 + half, .type = ITEM_SNAPSHOT};
}

static void *write_pairs(void *arg)
{
    struct worker *worker = arg;
    struct shared *shared = worker->shared;
    struct test_random random;
    test_random_init(&random, worker->seed);
    for (unsigned i = 0; i < WRITER_ROUNDS; i++) {
        struct catalog_batch batch;
        uint8_t value[200];
        const uint64_t pair = test_random_below(&random, PAIRS);
        const uint16_t size = (uint16_t)test_random_range(&random, 1, sizeof value);
        const bool remove = test_random_chance(&random, 25);
        test_random_bytes(&random, value, size);
        catalog_batch_init(&batch, shared->fixture.live);
        for (unsigned half = 0; half < 2; half++) {
            const struct catalog_key key = pair_key(pair, half);
            expect(shared,
                   (remove ? catalog_batch_remove(&batch, &key) : catalog_batch_put(&batch, &key, value, size)) == 0);
        }
        expect(shared, fixture_run(&shared->fixture, &batch, true) == 0);
        catalog_batch_free(&batch);
    }
    return NULL;
}

struct pair_check {
    struct shared *shared;
    uint64_t items, last_sub;
    size_t size;
    uint8_t value[200];
};

static int check_pair_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct pair_check *check = arg;
    if (key->sub % 2 == 1) {
        expect(check->shared, check->last_sub == key->sub - 1 && check->size == value_size &&
                                  memcmp(check->value, value, value_size) == 0);
    } else {
        memcpy(check->value, value, value_size);
        check->size = value_size;
        check->last_sub = key->sub;
    }
    check->items++;
    return 0;
}

static void check_pairs(struct shared *shared, struct view *view, uint64_t first, uint64_t last)
{
    struct pair_check check = {.shared = shared, .last_sub = UINT64_MAX};
    const struct catalog_key first_key = pair_key(first, 0);
    const struct catalog_key last_key = pair_key(last, 1);
    rwlock_lock_shared(&view->catalog_lock);
    expect(shared, catalog_scan(view, &first_key, &last_key, check_pair_item, &check) == 0);
    rwlock_unlock_shared(&view->catalog_lock);
    expect(shared, check.items % 2 == 0);
}

static void *read_pairs(void *arg)
{
    struct worker *worker = arg;
    struct shared *shared = worker->shared;
    struct view *live = shared->fixture.live;
    struct test_random random;
    test_random_init(&random, worker->seed);
    for (unsigned i = 0; i < READER_ROUNDS; i++) {
        const uint64_t pair = test_random_below(&random, PAIRS);
        uint8_t values[2][200];
        size_t sizes[2] = {0, 0};
        int results[2];
        rwlock_lock_shared(&live->catalog_lock);
        for (unsigned half = 0; half < 2; half++) {
            const struct catalog_key key = pair_key(pair, half);
            results[half] = catalog_get(live, &key, values[half], sizeof values[half], &sizes[half]);
        }
        rwlock_unlock_shared(&live->catalog_lock);
        expect(shared, results[0] == results[1] && (results[0] == 0 || results[0] == -ENOENT));
        expect(shared, sizes[0] == sizes[1] && memcmp(values[0], values[1], sizes[0]) == 0);
        check_pairs(shared, live, pair, pair + 20);
    }
    return NULL;
}

static void *fork_and_check(void *arg)
{
    struct worker *worker = arg;
    struct shared *shared = worker->shared;
    struct fixture *fixture = &shared->fixture;
    for (unsigned i = 0; i < FORK_ROUNDS; i++) {
        struct holder *holder = NULL;
        struct view *view = NULL;
        struct writeback_result result;
        expect(shared, cow_fork(fixture->cow, HOLDER_CHECKPOINT, &holder) == 0);
        expect(shared, bufcache_write_back(fixture->cache, cow_holder_at(holder), &result) == 0);
        expect(shared, view_open_read_only(fixture->cow, holder, &view) == 0);
        check_pairs(shared, view, 0, PAIRS);
        const struct catalog_root root = cow_holder_root(holder);
        expect(shared, catalog_check(&fixture->diag, fixture->catalog, &root, NULL) == 0);
        view_close(view);
        cow_holder_close(fixture->cow, holder);
    }
    return NULL;
}

static void concurrent_readers_see_whole_batches(void **state)
{
    (void)state;
    const uint64_t seed = test_seed("unit/table/test_catalog_threads");
    struct shared shared = {0};
    fixture_open(&shared.fixture, seed, BUFCACHE_MIN_FRAMES);
    void *(*const work[])(void *) = {write_pairs, write_pairs, read_pairs, read_pairs, fork_and_check};
    struct worker workers[ARRAY_COUNT(work)];
    pthread_t threads[ARRAY_COUNT(work)];
    for (unsigned i = 0; i < ARRAY_COUNT(work); i++) {
        workers[i] = (struct worker){.shared = &shared, .seed = seed * 100 + i};
        assert_int_equal(0, pthread_create(&threads[i], NULL, work[i], &workers[i]));
    }
    for (unsigned i = 0; i < ARRAY_COUNT(work); i++) {
        assert_int_equal(0, pthread_join(threads[i], NULL));
    }
    assert_int_equal(0, atomic_load(&shared.wrong));
    assert_int_equal(0, fixture_pinned(&shared.fixture));
    assert_int_equal(0, catalog_check(&shared.fixture.diag, shared.fixture.catalog, &shared.fixture.live->root, NULL));
    struct block_set set;
    struct fsm_stats stats;
    block_set_begin(&set, shared.fixture.catalog);
    block_set_tree(&set, &shared.fixture.live->root);
    assert_int_equal(0, fsm_get_stats(shared.fixture.catalog, &stats));
    assert_int_equal(set.count, stats.used_blocks);
    free(set.used);
    fixture_close(&shared.fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concurrent_readers_see_whole_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
