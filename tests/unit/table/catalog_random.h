/*
 * tests/unit/table/catalog_random.h - random batches on a catalog against a sorted array.
 *
 * Batches with skewed keys on the live view and on a transaction's view; holders forked and released at random; old
 * roots have to stay what they were, and every block that the free map calls used has to be reachable or on a deadlist.
 */
#ifndef TBLFS_TESTS_CATALOG_RANDOM_H
#define TBLFS_TESTS_CATALOG_RANDOM_H

#include "tests/unit/table/catalog_fixture.h"

#include <stdatomic.h>

#define HOLDERS_MAX 5u
#define EDITS_MAX   8u
#define KEYS_LIMIT  (UINT64_C(1) << 40)
#define PHASE_STEPS 150u

enum phase {
    PHASE_ASCENDING,
    PHASE_DESCENDING,
    PHASE_RANDOM,
    PHASE_CLUSTERED,
    PHASE_DELETE,
    PHASE_REPLACE,
    PHASE_COUNT
};

struct kept {
    struct holder *holder;
    struct view *view; /* read-only or the transaction's */
    struct model model;
};

struct run {
    struct fixture fixture;
    struct test_random random;
    struct model model; /* of the live view */
    struct kept holders[HOLDERS_MAX];
    unsigned holder_count;
    struct kept transaction;
    enum phase phase;
    uint64_t ascending, descending, cluster;
    uint16_t max_size, usual_size;
    unsigned max_items;
};

HELPER struct catalog_key item_key(uint64_t sub)
{
    return (struct catalog_key){.ino = INO_NONE, .sub = sub, .type = ITEM_SNAPSHOT};
}

static struct catalog_key existing_key(struct run *run, const struct model *model)
{
    if (model->count == 0) {
        return item_key(test_random_below(&run->random, KEYS_LIMIT));
    }
    return model->items[test_random_below(&run->random, model->count)].key;
}

static struct catalog_key next_key(struct run *run, const struct model *model)
{
    switch (run->phase) {
    case PHASE_ASCENDING:
        run->ascending += test_random_range(&run->random, 1, 3);
        return item_key(run->ascending);
    case PHASE_DESCENDING:
        run->descending -= test_random_range(&run->random, 1, 3);
        return item_key(run->descending);
    case PHASE_CLUSTERED:
        return item_key(run->cluster + test_random_below(&run->random, 200));
    case PHASE_DELETE:
    case PHASE_REPLACE:
        return existing_key(run, model);
    case PHASE_RANDOM:
    case PHASE_COUNT:
    default:
        return item_key(test_random_below(&run->random, KEYS_LIMIT));
    }
}

static uint16_t next_size(struct run *run)
{
    switch (test_random_below(&run->random, 8)) {
    case 0:
        return 0;
    case 1:
        return run->max_size;
    case 2:
        return (uint16_t)test_random_below(&run->random, run->max_size + 1u);
    default:
        return (uint16_t)test_random_below(&run->random, run->usual_size + 1u);
    }
}

static unsigned remove_percent(const struct run *run)
{
    return run->phase == PHASE_DELETE ? 95 : run->phase == PHASE_REPLACE ? 20 : 10;
}

/* Puts a few edits into the batch and into the model. */
static void fill_batch(struct run *run, struct catalog_batch *batch, struct model *model)
{
    uint8_t value[CATALOG_MAX_VALUE_SIZE];
    const uint64_t edits = test_random_range(&run->random, 1, EDITS_MAX);
    for (uint64_t i = 0; i < edits; i++) {
        const struct catalog_key key =
            test_random_chance(&run->random, 10) ? existing_key(run, model) : next_key(run, model);
        if (test_random_chance(&run->random, remove_percent(run)) || model->count > run->max_items) {
            assert_int_equal(0, catalog_batch_remove(batch, &key));
            model_remove(model, &key);
            continue;
        }
        const uint64_t tag = test_random_u64(&run->random);
        const uint16_t size = next_size(run);
        value_fill(value, tag, size);
        assert_int_equal(0, catalog_batch_put(batch, &key, value, size));
        model_put(model, &key, tag, size);
    }
}

static void check_reads(struct run *run, struct view *view, struct catalog_batch *batch, const struct model *model)
{
    struct catalog_key key = existing_key(run, model);
    model_check_get(model, view, batch, &key);
    key = next_key(run, model);
    model_check_get(model, view, batch, &key);
    const struct catalog_key from = existing_key(run, model);
    const struct catalog_key to = item_key(from.sub + test_random_below(&run->random, 1u << 20));
    model_check_scan(model, view, batch, from, to);
}

static void do_batch(struct run *run, struct view *view, struct model *model)
{
    struct catalog_batch batch;
    struct model after;
    model_copy(&after, model);
    catalog_batch_init(&batch, view);
    fill_batch(run, &batch, &after);
    if (test_random_chance(&run->random, 20)) {
        check_reads(run, view, &batch, &after);
    }
    const bool apply = !test_random_chance(&run->random, 10);
    assert_int_equal(0, fixture_run(&run->fixture, &batch, apply));
    catalog_batch_free(&batch);
    if (apply) {
        struct model before = *model;
        *model = after;
        after = before;
    }
    model_free(&after);
}

/* ---- holders and transactions ---- */

static void keep(struct run *run, struct kept *kept, enum holder_kind kind)
{
    assert_int_equal(0, cow_fork(run->fixture.cow, kind, &kept->holder));
    model_copy(&kept->model, &run->model);
    const int rc = kind == HOLDER_TRANSACTION ? view_open_transaction(run->fixture.cow, kept->holder, &kept->view)
                                              : view_open_read_only(run->fixture.cow, kept->holder, &kept->view);
    assert_int_equal(0, rc);
}

static void release(struct run *run, struct kept *kept)
{
    view_close(kept->view);
    cow_holder_close(run->fixture.cow, kept->holder);
    model_free(&kept->model);
    *kept = (struct kept){0};
}

static void change_holders(struct run *run)
{
    if (run->holder_count < HOLDERS_MAX && test_random_chance(&run->random, 4)) {
        keep(run, &run->holders[run->holder_count++], HOLDER_CHECKPOINT);
    }
    if (run->holder_count > 0 && test_random_chance(&run->random, 4)) {
        struct kept *gone = &run->holders[test_random_below(&run->random, run->holder_count)];
        model_check_all(&gone->model, gone->view, NULL);
        release(run, gone);
        *gone = run->holders[--run->holder_count];
    }
    if (run->transaction.view == NULL && test_random_chance(&run->random, 4)) {
        keep(run, &run->transaction, HOLDER_TRANSACTION);
    } else if (run->transaction.view != NULL && test_random_chance(&run->random, 2)) {
        model_check_all(&run->transaction.model, run->transaction.view, NULL);
        release(run, &run->transaction);
    }
}

/* ---- checks ---- */

static void check_no_leak(struct run *run)
{
    struct block_set set;
    struct fsm_stats stats;
    block_set_begin(&set, run->fixture.catalog);
    block_set_tree(&set, &run->fixture.live->root);
    for (unsigned i = 0; i < run->holder_count; i++) {
        block_set_tree(&set, &run->holders[i].view->root);
    }
    if (run->transaction.view != NULL) {
        const struct catalog_root base = cow_holder_root(run->transaction.holder);
        block_set_tree(&set, &base);
        block_set_tree(&set, &run->transaction.view->root);
    }
    const uint32_t in_trees = set.count;
    assert_int_equal(0, cow_each_pinned_run(run->fixture.cow, run->fixture.catalog, block_set_run, &set));
    assert_int_equal(0, fsm_get_stats(run->fixture.catalog, &stats));
    assert_int_equal(set.count, stats.used_blocks);
    assert_int_equal(0, stats.reserved_blocks);
    assert_true(in_trees <= set.count);
    free(set.used);
}

static void check_view(struct run *run, struct view *view, const struct model *model)
{
    uint64_t items = 0;
    assert_int_equal(0, catalog_check(&run->fixture.diag, run->fixture.catalog, &view->root, &items));
    assert_int_equal(model->count, items);
    model_check_all(model, view, NULL);
}

static void check_everything(struct run *run)
{
    check_view(run, run->fixture.live, &run->model);
    for (unsigned i = 0; i < run->holder_count; i++) {
        check_view(run, run->holders[i].view, &run->holders[i].model);
    }
    if (run->transaction.view != NULL) {
        check_view(run, run->transaction.view, &run->transaction.model);
    }
    assert_int_equal(0, cow_check(run->fixture.cow));
    assert_int_equal(0, bufcache_check(run->fixture.cache));
    assert_int_equal(0, atomic_load(&run->fixture.diag.damage_count));
}

static void step(struct run *run, unsigned number)
{
    if (number % PHASE_STEPS == 0) {
        run->phase = (enum phase)test_random_below(&run->random, PHASE_COUNT);
        run->cluster = test_random_below(&run->random, KEYS_LIMIT);
    }
    const bool in_transaction = run->transaction.view != NULL && test_random_chance(&run->random, 30);
    if (in_transaction) {
        do_batch(run, run->transaction.view, &run->transaction.model);
    } else {
        do_batch(run, run->fixture.live, &run->model);
    }
    assert_int_equal(0, fixture_pinned(&run->fixture));
    change_holders(run);
    if (test_random_chance(&run->random, 3)) {
        struct writeback_result result;
        assert_int_equal(0, bufcache_write_back(run->fixture.cache, cow_epoch(run->fixture.cow), &result));
    }
    if (test_random_chance(&run->random, 3)) {
        bufcache_step(run->fixture.cache);
    }
    if (number % 10 == 0 || run->model.count < 100) {
        check_no_leak(run);
    }
    if (number % 100 == 0) {
        check_everything(run);
    }
}

/* Empties the tree in batches, then everything has to be free. */
static void empty(struct run *run)
{
    while (run->holder_count > 0) {
        release(run, &run->holders[--run->holder_count]);
    }
    if (run->transaction.view != NULL) {
        release(run, &run->transaction);
    }
    run->phase = PHASE_DELETE;
    for (unsigned i = 0; run->model.count > 0; i++) {
        struct catalog_batch batch;
        catalog_batch_init(&batch, run->fixture.live);
        for (unsigned edit = 0; edit < EDITS_MAX && run->model.count > 0; edit++) {
            const struct catalog_key key = existing_key(run, &run->model);
            assert_int_equal(0, catalog_batch_remove(&batch, &key));
            model_remove(&run->model, &key);
        }
        assert_int_equal(0, fixture_run(&run->fixture, &batch, true));
        catalog_batch_free(&batch);
        if (i % 50 == 0) {
            check_no_leak(run);
            check_view(run, run->fixture.live, &run->model);
        }
    }
    struct fsm_stats stats;
    assert_int_equal(0, fsm_get_stats(run->fixture.catalog, &stats));
    assert_int_equal(0, stats.used_blocks);
    assert_int_equal(0, run->fixture.live->root.height);
}

HELPER struct run run_begin(uint16_t max_size, uint16_t usual_size, unsigned max_items, uint32_t frames, uint64_t seed)
{
    struct run run = {.ascending = KEYS_LIMIT,
                      .descending = KEYS_LIMIT,
                      .max_size = max_size,
                      .usual_size = usual_size,
                      .max_items = max_items};
    test_random_init(&run.random, seed);
    fixture_open(&run.fixture, seed, frames);
    return run;
}

HELPER void run_finish(struct run *run)
{
    check_everything(run);
    empty(run);
    model_free(&run->model);
    fixture_close(&run->fixture);
}

#endif
