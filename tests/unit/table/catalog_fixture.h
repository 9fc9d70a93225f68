/*
 * tests/unit/table/catalog_fixture.h - a catalog on a device in memory, and a model of what is in it.
 *
 * The model is a sorted array of (key, tag, size): a value's bytes follow from its tag, so that a copy of the model is
 * a copy of the array. The items are of type ITEM_SNAPSHOT, whose values may be anything.
 */
#ifndef TBLFS_TESTS_CATALOG_FIXTURE_H
#define TBLFS_TESTS_CATALOG_FIXTURE_H

#include "table/catalog.h"
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define HELPER       __attribute__((unused)) static
#define FIXTURE_FILE "/d/rel/01/0000000000000001"

struct fixture {
    struct mem_device *mem;
    struct diag diag;
    struct bufcache *cache;
    struct relation *catalog;
    struct cow *cow;
    struct view *live;
    unsigned larger_budgets; /* batches that needed more frames than usual */
};

HELPER void fixture_open_cache(struct fixture *fixture, uint32_t frames)
{
    diag_init_silent(&fixture->diag);
    const struct bufcache_options options = {
        .dev = mem_device_io(fixture->mem),
        .diag = &fixture->diag,
        .cache_size_bytes = (uint64_t)frames * BLOCK_SIZE,
        .max_open_files = 16,
        .background = false,
        .validate =
            {
                [PAGE_TYPE_CATALOG_LEAF] = catalog_validate_leaf,
                [PAGE_TYPE_CATALOG_INNER] = catalog_validate_inner,
            },
    };
    assert_int_equal(0, bufcache_open(&options, &fixture->cache));
    assert_int_equal(0, bufcache_tablespace_add(fixture->cache, TS_DEFAULT, "/d"));
    assert_int_equal(0, relation_open(fixture->cache, TS_DEFAULT, REL_CATALOG, &fixture->catalog));
}

HELPER void fixture_open_cow(struct fixture *fixture, epoch_no epoch, struct catalog_root root)
{
    const struct cow_options options = {
        .cache = fixture->cache,
        .diag = &fixture->diag,
        .dev = mem_device_io(fixture->mem),
        .epoch = epoch,
        .catalog = fixture->catalog,
        .root = root,
    };
    assert_int_equal(0, cow_open(&options, &fixture->cow));
    fixture->live = cow_live(fixture->cow);
}

HELPER void fixture_open(struct fixture *fixture, uint64_t seed, uint32_t frames)
{
    fixture->mem = mem_device_create(seed);
    assert_int_equal(0, io_make_dir(mem_device_io(fixture->mem), "/d"));
    fixture_open_cache(fixture, frames);
    assert_int_equal(0, fsm_init_empty(fixture->catalog));
    const struct catalog_root none = {.ptr = PAGE_PTR_NONE, .height = 0};
    fixture_open_cow(fixture, 1, none);
}

HELPER void fixture_close_engine(struct fixture *fixture)
{
    cow_close(fixture->cow);
    relation_unref(fixture->catalog);
    bufcache_close(fixture->cache);
}

HELPER void fixture_close(struct fixture *fixture)
{
    fixture_close_engine(fixture);
    mem_device_destroy(fixture->mem);
}

/* ---- which blocks are in use ---- */

struct block_set {
    struct relation *relation;
    uint8_t *used;
    uint32_t count;
    bool build; /* tell the free map */
};

HELPER int block_set_add(struct block_set *set, block_no block)
{
    if (set->used[block] == 0) {
        set->used[block] = 1;
        set->count++;
        if (set->build) {
            return fsm_build_used(set->relation, block, 1);
        }
    }
    return 0;
}

HELPER int block_set_page(void *arg, struct page_ptr ptr, uint8_t level)
{
    (void)level;
    return block_set_add(arg, ptr.block);
}

HELPER bool block_set_skip(void *arg, struct page_ptr ptr)
{
    const struct block_set *set = arg;
    return set->used[ptr.block] != 0;
}

HELPER int block_set_run(void *arg, block_no first, uint32_t count)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = block_set_add(arg, first + i);
    }
    return rc;
}

HELPER void block_set_begin(struct block_set *set, struct relation *relation)
{
    block_no blocks = 0;
    bool exists = false;
    assert_int_equal(0, relation_file_exists(relation, &exists));
    if (exists) {
        assert_int_equal(0, relation_file_blocks(relation, &blocks));
    }
    *set = (struct block_set){.relation = relation, .used = calloc(blocks + 1, 1)};
    assert_non_null(set->used);
}

HELPER void block_set_tree(struct block_set *set, const struct catalog_root *root)
{
    assert_int_equal(0, catalog_visit(set->relation, root, block_set_skip, block_set_page, set));
}

/* Writes everything, forgets everything in memory, opens again from the live root. */
HELPER void fixture_reopen(struct fixture *fixture, uint32_t frames)
{
    struct writeback_result result;
    const epoch_no epoch = cow_epoch(fixture->cow);
    const struct catalog_root root = fixture->live->root;
    assert_int_equal(0, bufcache_write_back(fixture->cache, epoch, &result));
    fixture_close_engine(fixture);
    fixture_open_cache(fixture, frames);
    struct block_set set;
    block_set_begin(&set, fixture->catalog);
    set.build = true;
    assert_int_equal(0, fsm_build_begin(fixture->catalog));
    block_set_tree(&set, &root);
    assert_int_equal(0, fsm_build_finish(fixture->catalog));
    free(set.used);
    fixture_open_cow(fixture, epoch + 1, root);
}

HELPER uint32_t fixture_pinned(struct fixture *fixture)
{
    struct bufcache_stats stats;
    bufcache_get_stats(fixture->cache, &stats);
    return (uint32_t)stats.pinned_frames;
}

/* ---- running a batch ---- */

HELPER int fixture_run_as(struct fixture *fixture, struct catalog_batch *batch, bool apply, unsigned edits)
{
    struct frame_budget budget = {0};
    uint32_t pins = 0;
    uint32_t news = 0;
    catalog_frames_needed(edits, &pins, &news);
    int rc = frame_budget_take(fixture->cache, pins, news, &budget);
    if (rc != 0) {
        return rc;
    }
    cow_gate_enter(fixture->cow);
    rwlock_lock_exclusive(&batch->view->catalog_lock);
    rc = catalog_batch_plan(batch, &budget);
    if (rc == 0 && apply) {
        catalog_batch_apply(batch);
    } else if (rc == 0) {
        catalog_batch_free(batch);
    }
    rwlock_unlock_exclusive(&batch->view->catalog_lock);
    cow_gate_leave(fixture->cow);
    frame_budget_release(&budget);
    return rc;
}

/* Plans and, with `apply`, applies; with more frames when the tree is higher than is usual. The batch stays the
 * caller's to free. */
HELPER int fixture_run(struct fixture *fixture, struct catalog_batch *batch, bool apply)
{
    int rc = fixture_run_as(fixture, batch, apply, batch->count);
    for (unsigned edits = batch->count * 2; rc == -E2BIG && batch->view->root.height > 4; edits *= 2) {
        rc = fixture_run_as(fixture, batch, apply, edits);
        fixture->larger_budgets++;
    }
    return rc;
}

/* ---- model ---- */

struct model_item {
    struct catalog_key key;
    uint64_t tag;
    uint16_t size;
};

struct model {
    struct model_item *items;
    unsigned count, capacity;
};

HELPER void value_fill(uint8_t *value, uint64_t tag, uint16_t size)
{
    struct test_random random;
    test_random_init(&random, tag);
    test_random_bytes(&random, value, size);
}

HELPER void model_copy(struct model *to, const struct model *from)
{
    to->count = to->capacity = from->count;
    to->items = malloc((from->count + 1) * sizeof from->items[0]);
    assert_non_null(to->items);
    if (from->count > 0) {
        memcpy(to->items, from->items, from->count * sizeof from->items[0]);
    }
}

HELPER void model_free(struct model *model)
{
    free(model->items);
    *model = (struct model){0};
}

/* Index of the key, or of the first item behind it. */
HELPER unsigned model_find(const struct model *model, const struct catalog_key *key, bool *out_found)
{
    unsigned low = 0;
    unsigned high = model->count;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (catalog_key_compare(&model->items[middle].key, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *out_found = low < model->count && catalog_key_compare(&model->items[low].key, key) == 0;
    return low;
}

HELPER void model_put(struct model *model, const struct catalog_key *key, uint64_t tag, uint16_t size)
{
    bool found = false;
    const unsigned index = model_find(model, key, &found);
    if (!found) {
        if (model->count == model->capacity) {
            model->capacity = model->capacity * 2 + 64;
            model->items = realloc(model->items, model->capacity * sizeof model->items[0]);
            assert_non_null(model->items);
        }
        memmove(&model->items[index + 1], &model->items[index], (model->count - index) * sizeof model->items[0]);
        model->count++;
    }
    model->items[index] = (struct model_item){.key = *key, .tag = tag, .size = size};
}

HELPER void model_remove(struct model *model, const struct catalog_key *key)
{
    bool found = false;
    const unsigned index = model_find(model, key, &found);
    if (found) {
        model->count--;
        memmove(&model->items[index], &model->items[index + 1], (model->count - index) * sizeof model->items[0]);
    }
}

struct model_compare {
    const struct model *model;
    unsigned next, end;
    unsigned stop_after; /* items until the callback returns 1; 0: never */
};

HELPER int model_compare_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct model_compare *compare = arg;
    uint8_t want[CATALOG_MAX_VALUE_SIZE];
    assert_true(compare->next < compare->end);
    const struct model_item *item = &compare->model->items[compare->next++];
    assert_int_equal(0, catalog_key_compare(&item->key, key));
    assert_int_equal(item->size, value_size);
    value_fill(want, item->tag, item->size);
    assert_memory_equal(want, value, value_size);
    return compare->stop_after != 0 && --compare->stop_after == 0;
}

/* A scan of the view (of the batch, if there is one) from `first` to `last` gives what the model has. */
HELPER void model_check_scan(const struct model *model, struct view *view, struct catalog_batch *batch,
                             struct catalog_key first, struct catalog_key last)
{
    bool found = false;
    struct model_compare compare = {.model = model, .next = model_find(model, &first, &found)};
    compare.end = model_find(model, &last, &found);
    compare.end += found;
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = batch != NULL ? catalog_batch_scan(batch, &first, &last, model_compare_item, &compare)
                                 : catalog_scan(view, &first, &last, model_compare_item, &compare);
    rwlock_unlock_shared(&view->catalog_lock);
    assert_int_equal(0, rc);
    if (catalog_key_compare(&first, &last) <= 0) {
        assert_int_equal(compare.end, compare.next);
    }
}

HELPER void model_check_all(const struct model *model, struct view *view, struct catalog_batch *batch)
{
    const struct catalog_key first = {0};
    const struct catalog_key last = {.ino = UINT64_MAX, .sub = UINT64_MAX, .type = UINT8_MAX};
    model_check_scan(model, view, batch, first, last);
}

HELPER void model_check_get(const struct model *model, struct view *view, struct catalog_batch *batch,
                            const struct catalog_key *key)
{
    bool found = false;
    const unsigned index = model_find(model, key, &found);
    uint8_t got[CATALOG_MAX_VALUE_SIZE];
    uint8_t want[CATALOG_MAX_VALUE_SIZE];
    size_t size = 0;
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = batch != NULL ? catalog_batch_get(batch, key, got, sizeof got, &size)
                                 : catalog_get(view, key, got, sizeof got, &size);
    rwlock_unlock_shared(&view->catalog_lock);
    assert_int_equal(found ? 0 : -ENOENT, rc);
    if (found) {
        assert_int_equal(model->items[index].size, size);
        value_fill(want, model->items[index].tag, model->items[index].size);
        assert_memory_equal(want, got, size);
    }
}

#endif
