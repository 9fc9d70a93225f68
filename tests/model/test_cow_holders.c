/*
 * tests/model/test_cow_holders.c - copy on write, proven: every held version stays what it was.
 *
 * Holders are taken while a rig changes everything at random; each holder's version is read through a read-only view
 * and must equal the model's copy of that moment. Among them transactions' views, which change tables privately and are
 * then aborted. Holders close in random order; after each round every free map must equal the one rebuilt from the
 * roots (store_check), and when all are closed, after a checkpoint, exactly the blocks of the live tree are in use.
 */
#include "tests/model/model_int.h"
#include "tests/model/rig.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME   "test_cow_holders"
#define VERSIONS    12
#define ROUNDS      120u
#define WRITE_BYTES 40000u

struct version {
    struct holder *holder; /* NULL: free */
    struct view *view;     /* read-only, or the transaction's */
    struct model *model;
    bool is_transaction;
};

struct holders_test {
    struct rig rig;
    struct version versions[VERSIONS];
};

static uint64_t below(struct holders_test *test, uint64_t limit)
{
    return test_random_below(&test->rig.random, limit);
}

static struct holders_test *test_begin(uint64_t cache_size_bytes, uint8_t name_hash_bits)
{
    const struct rig_config config = {
        .test_name = TEST_NAME,
        .seed = test_seed(TEST_NAME),
        .salt = name_hash_bits,
        .cache_size_bytes = cache_size_bytes,
        .max_file_bytes = 1u << 20,
        .max_total_bytes = 2u << 20,
        .max_inodes = 150,
        .name_hash_bits = name_hash_bits,
    };
    struct holders_test *test = calloc(1, sizeof *test);
    assert_non_null(test);
    rig_init(&test->rig, &config);
    return test;
}

static void change_much(struct holders_test *test, unsigned operations)
{
    for (unsigned i = 0; i < operations; i++) {
        rig_operate(&test->rig);
    }
}

/* ---- versions ---- */

static void version_open(struct holders_test *test, struct version *version)
{
    static const enum holder_kind kinds[] = {HOLDER_SNAPSHOT, HOLDER_BACKUP, HOLDER_TRANSACTION};
    struct rig *rig = &test->rig;
    struct cow *cow = store_cow(rig->store);
    const enum holder_kind kind = kinds[below(test, ARRAY_COUNT(kinds))];
    version->is_transaction = kind == HOLDER_TRANSACTION;
    rig_must(rig, cow_fork(cow, kind, &version->holder), "cow_fork");
    if (version->is_transaction) {
        rig_must(rig, view_open_transaction(cow, version->holder, &version->view), "view_open_transaction");
    } else {
        rig_must(rig, view_open_read_only(cow, version->holder, &version->view), "view_open_read_only");
    }
    version->model = model_copy(rig->model);
}

static void version_close(struct holders_test *test, struct version *version)
{
    view_close(version->view);
    cow_holder_close(store_cow(test->rig.store), version->holder);
    model_free(version->model);
    *version = (struct version){0};
}

static void version_compare(struct holders_test *test, const struct version *version)
{
    rig_compare_view(&test->rig, version->view, version->model);
}

/* ---- private changes of a transaction ---- */

struct private_write {
    struct model_inode *inode; /* the transaction's model's */
    uint64_t offset;
    size_t size;
    const uint8_t *bytes;
};

static void put_inode(struct rig *rig, struct view *view, const struct inode *inode, struct frame_budget *budget)
{
    struct catalog_batch batch;
    catalog_batch_init(&batch, view);
    rig_must(rig, inode_batch_put(&batch, inode), "inode_batch_put");
    rig_must(rig, catalog_batch_plan(&batch, budget), "catalog_batch_plan");
    catalog_batch_apply(&batch);
    catalog_batch_free(&batch);
}

/* Reads inode and root, plans, applies, puts the new root into the inode: all in the view. False: planned, then
 * abandoned. */
static bool write_locked(struct rig *rig, struct view *view, const struct private_write *write,
                         struct frame_budget *budget)
{
    struct inode inode;
    struct relation *relation;
    struct content_plan *plan;
    rig_must(rig, inode_get(view, write->inode->ino, &inode), "inode_get");
    const struct content_root root = {.ptr = inode.content_ptr,
                                      .bytes = inode.size_bytes,
                                      .leaves = inode.content_leaves,
                                      .height = inode.content_height};
    rig_must(rig, relation_open(store_cache(rig->store), inode.ts, inode.rel, &relation), "relation_open");
    rig_must(rig, content_plan_write(view, relation, &root, write->offset, write->bytes, write->size, budget, &plan),
             "content_plan_write");
    const bool apply = test_random_chance(&rig->random, 80);
    if (apply) {
        const struct content_root after = content_plan_root(plan);
        content_plan_apply(plan);
        inode.content_ptr = after.ptr;
        inode.content_height = after.height;
        inode.content_leaves = after.leaves;
        inode.size_bytes = after.bytes;
        put_inode(rig, view, &inode, budget);
    } else {
        content_plan_abandon(plan);
    }
    relation_unref(relation);
    return apply;
}

static void private_write(struct holders_test *test, struct version *version, const struct private_write *write)
{
    struct rig *rig = &test->rig;
    struct cow *cow = store_cow(rig->store);
    struct frame_budget budget;
    uint32_t content_pins, content_news, catalog_pins, catalog_news;
    content_frames_needed(write->size, &content_pins, &content_news);
    catalog_frames_needed(1, &catalog_pins, &catalog_news);
    rig_must(
        rig,
        frame_budget_take(store_cache(rig->store), content_pins + catalog_pins, content_news + catalog_news, &budget),
        "frame_budget_take");
    cow_gate_enter(cow);
    rwlock_lock_exclusive(&version->view->catalog_lock);
    const bool applied = write_locked(rig, version->view, write, &budget);
    rwlock_unlock_exclusive(&version->view->catalog_lock);
    cow_gate_leave(cow);
    frame_budget_release(&budget);
    if (!applied) {
        return;
    }
    if (write->offset + write->size > write->inode->size) {
        model_set_size(version->model, write->inode, write->offset + write->size);
    }
    memcpy(write->inode->bytes + write->offset, write->bytes, write->size);
}

static bool has_relation(struct holders_test *test, struct version *version, ino_no ino)
{
    struct inode inode;
    rwlock_lock_shared(&version->view->catalog_lock);
    rig_must(&test->rig, inode_get(version->view, ino, &inode), "inode_get");
    rwlock_unlock_shared(&version->view->catalog_lock);
    return inode.rel != REL_NONE;
}

/* Writes into a table of the transaction that has a relation. */
static void change_privately(struct holders_test *test, struct version *version)
{
    for (unsigned attempt = 0; attempt < 20; attempt++) {
        struct model_inode *inode = version->model->all[below(test, version->model->count)];
        if (!S_ISREG(inode->mode) || inode->nlink == 0) {
            continue;
        }
        struct private_write write = {.inode = inode, .offset = below(test, inode->size + 1)};
        write.size = 1 + below(test, WRITE_BYTES);
        write.bytes = test->rig.data + below(test, RIG_DATA_BYTES - write.size);
        if (has_relation(test, version, inode->ino)) {
            private_write(test, version, &write);
            return;
        }
    }
}

/* ---- counting blocks ---- */

struct block_count {
    uint64_t blocks;
};

static int count_block(void *arg, struct page_ptr ptr, uint8_t level)
{
    (void)ptr;
    (void)level;
    ((struct block_count *)arg)->blocks++;
    return 0;
}

/* The map must hold exactly `blocks`. */
static void expect_used(struct rig *rig, struct relation *relation, uint64_t blocks)
{
    struct fsm_stats stats;
    rig_must(rig, fsm_get_stats(relation, &stats), "fsm_get_stats");
    if (stats.used_blocks != blocks) {
        rig_fail(rig, "relation %" PRIu64 ": %" PRIu32 " blocks in use, %" PRIu64 " reachable",
                 relation_number(relation), stats.used_blocks, blocks);
    }
}

static void expect_catalog_exact(struct rig *rig)
{
    struct view *live = store_live(rig->store);
    struct block_count count = {0};
    rwlock_lock_shared(&live->catalog_lock);
    rig_must(rig, catalog_visit(live->catalog, &live->root, NULL, count_block, &count), "catalog_visit");
    rwlock_unlock_shared(&live->catalog_lock);
    expect_used(rig, live->catalog, count.blocks);
}

static void expect_table_exact(struct rig *rig, ino_no ino)
{
    struct inode inode;
    struct relation *relation;
    struct block_count count = {0};
    struct view *live = store_live(rig->store);
    rwlock_lock_shared(&live->catalog_lock);
    rig_must(rig, inode_get(live, ino, &inode), "inode_get");
    rwlock_unlock_shared(&live->catalog_lock);
    if (inode.rel == REL_NONE) {
        return;
    }
    rig_must(rig, relation_open(store_cache(rig->store), inode.ts, inode.rel, &relation), "relation_open");
    const struct content_root root = {.ptr = inode.content_ptr,
                                      .bytes = inode.size_bytes,
                                      .leaves = inode.content_leaves,
                                      .height = inode.content_height};
    rig_must(rig, content_visit(relation, &root, NULL, count_block, &count), "content_visit");
    if (relation_map(relation) != NULL) { /* none: nobody wrote to it in this life */
        expect_used(rig, relation, count.blocks);
    }
    relation_unref(relation);
}

/* No holder but the durable one, and that sees what the live tree sees: nothing else may be in use. */
static void expect_exact(struct holders_test *test)
{
    struct rig *rig = &test->rig;
    struct cow_stats stats;
    rig_close_handles(rig);
    rig_checkpoint(rig);
    store_step(rig->store);
    rig_checkpoint(rig); /* its holder is the one that is left */
    store_step(rig->store);
    cow_get_stats(store_cow(rig->store), &stats);
    assert_int_equal(stats.holders, 1);
    assert_int_equal(stats.deadlist_blocks, 0);
    expect_catalog_exact(rig);
    for (size_t i = 0; i < rig->model->count; i++) {
        if (S_ISREG(rig->model->all[i]->mode)) {
            expect_table_exact(rig, rig->model->all[i]->ino);
        }
    }
}

/* ---- changing everything ---- */

static void rewrite_table(struct rig *rig, struct model_inode *inode)
{
    struct store_file *file;
    uint64_t end;
    rig_must(rig, store_file_open(rig->store, store_live(rig->store), inode->ino, &file), "open");
    for (size_t offset = 0; offset < inode->size; offset += WRITE_BYTES) {
        const size_t left = inode->size - offset;
        const size_t size = left < WRITE_BYTES ? left : WRITE_BYTES;
        const uint8_t *bytes = rig->data + test_random_below(&rig->random, RIG_DATA_BYTES - size);
        rig_must(rig, store_write(file, offset, bytes, size, 0, &end), "write");
        rig_must(rig, model_write(rig->model, inode, offset, bytes, size, 0, &end), "write in the model");
        store_step(rig->store);
    }
    struct store_attr attr;
    rig_must(rig, store_file_getattr(file, &attr), "getattr");
    model_learn_time(inode, &attr);
    store_file_close(file);
}

static void rewrite_everything(struct holders_test *test)
{
    struct rig *rig = &test->rig;
    for (size_t i = 0; i < rig->model->count; i++) {
        struct model_inode *inode = rig->model->all[i];
        model_begin(rig->model);
        if (S_ISREG(inode->mode) && inode->nlink > 0) {
            rewrite_table(rig, inode);
        }
    }
    model_begin(rig->model);
}

static void remove_everything(struct holders_test *test)
{
    test->rig.inode_limit = 1;
    for (unsigned i = 0; i < 3000; i++) {
        rig_operate(&test->rig);
        test->rig.inode_limit = 1;
    }
}

static void version_of_random_age_is_unchanged(struct holders_test *test)
{
    const struct version *version = &test->versions[below(test, VERSIONS)];
    if (version->holder != NULL) {
        version_compare(test, version);
    }
}

/* ---- tests ---- */

static void one_event(struct holders_test *test)
{
    struct version *version = &test->versions[below(test, VERSIONS)];
    if (version->holder == NULL) {
        version_open(test, version);
    } else if (below(test, 3) == 0) {
        version_compare(test, version);
        version_close(test, version);
    } else if (version->is_transaction) {
        change_privately(test, version);
        version_compare(test, version);
    }
    if (below(test, 6) == 0) {
        rig_checkpoint(&test->rig);
    }
}

static void close_all(struct holders_test *test)
{
    const uint64_t first = below(test, VERSIONS);
    const uint64_t stride = 1 + 2 * below(test, 2) * 2; /* 1 or 5: both visit all 12 */
    for (uint64_t i = 0; i < VERSIONS; i++) {
        struct version *version = &test->versions[(first + i * stride) % VERSIONS];
        if (version->holder != NULL) {
            version_compare(test, version);
            version_close(test, version);
        }
    }
}

static void run(uint64_t cache_size_bytes, uint8_t name_hash_bits)
{
    struct holders_test *test = test_begin(cache_size_bytes, name_hash_bits);
    for (unsigned round = 0; round < ROUNDS; round++) {
        change_much(test, (unsigned)below(test, 400));
        one_event(test);
        version_of_random_age_is_unchanged(test);
        rig_check_store(&test->rig);
        if (round % 40 == 39) {
            close_all(test);
            expect_exact(test);
            rig_compare(&test->rig);
        }
    }
    close_all(test);
    rig_destroy(&test->rig);
    free(test);
}

static void versions_with_small_cache_stay_byte_identical(void **state)
{
    (void)state;
    run(RIG_CACHE_SMALL, 47);
}

static void versions_with_large_cache_stay_byte_identical(void **state)
{
    (void)state;
    run(64u << 20, 4);
}

/* Everything held is rewritten in full: afterwards both versions are whole, and closing one frees all of it. */
static void version_of_rewritten_tables_stays_and_is_freed(void **state)
{
    (void)state;
    struct holders_test *test = test_begin(RIG_CACHE_SMALL, 47);
    struct version *version = &test->versions[0];
    change_much(test, 3000);
    expect_exact(test);
    version_open(test, version);
    rewrite_everything(test);
    version_compare(test, version);
    rig_compare(&test->rig);
    rig_check_store(&test->rig);
    remove_everything(test);
    version_compare(test, version);
    rig_check_store(&test->rig);
    version_close(test, version);
    expect_exact(test);
    rig_check_store(&test->rig);
    rig_destroy(&test->rig);
    free(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_with_small_cache_stay_byte_identical),
        cmocka_unit_test(versions_with_large_cache_stay_byte_identical),
        cmocka_unit_test(version_of_rewritten_tables_stays_and_is_freed),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
