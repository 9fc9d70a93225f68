/*
 * tests/unit/table/test_content_model.h - what the tests of the content tree share: a fixture, and random operations
 * beside a plain array of bytes.
 *
 * A fixture is a store in small: memory device, cache, cow with its live view, and one table. After each operation the
 * blocks that the map says are used must be those that the live tree and the deadlists have.
 */
#ifndef TBLFS_TESTS_UNIT_TABLE_TEST_CONTENT_MODEL_H
#define TBLFS_TESTS_UNIT_TABLE_TEST_CONTENT_MODEL_H

#include "fsm/fsm.h"
#include "table/content.h"
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TABLE_REL ((rel_no)100)
#define LEAF      ((uint64_t)PAGE_PAYLOAD_SIZE)
#define MIB       ((size_t)1 << 20)

struct fixture {
    struct mem_device *mem;
    struct diag diag;
    struct bufcache *cache;
    struct relation *catalog, *table;
    struct cow *cow;
    struct view *view;
    struct content_root root;
};

static inline int validate_any(struct diag *diag, const char *file, const void *page)
{
    (void)diag;
    (void)file;
    (void)page;
    return 0;
}

static inline void open_store(struct fixture *f, uint64_t frames, epoch_no epoch)
{
    const struct bufcache_options options = {
        .dev = mem_device_io(f->mem),
        .diag = &f->diag,
        .cache_size_bytes = frames * BLOCK_SIZE,
        .max_open_files = 8,
        .validate = {NULL, content_validate_leaf, content_validate_inner, validate_any, validate_any}};
    assert_int_equal(bufcache_open(&options, &f->cache), 0);
    assert_int_equal(bufcache_tablespace_add(f->cache, TS_DEFAULT, "/data"), 0);
    assert_int_equal(relation_open(f->cache, TS_DEFAULT, REL_CATALOG, &f->catalog), 0);
    assert_int_equal(relation_open(f->cache, TS_DEFAULT, TABLE_REL, &f->table), 0);
    const struct cow_options cow_options = {.cache = f->cache,
                                            .diag = &f->diag,
                                            .dev = mem_device_io(f->mem),
                                            .epoch = epoch,
                                            .catalog = f->catalog,
                                            .root = {.ptr = PAGE_PTR_NONE}};
    assert_int_equal(cow_open(&cow_options, &f->cow), 0);
    f->view = cow_live(f->cow);
}

static inline void close_store(struct fixture *f)
{
    cow_close(f->cow);
    relation_unref(f->table);
    relation_unref(f->catalog);
    assert_int_equal(bufcache_check(f->cache), 0);
    bufcache_close(f->cache);
}

static inline struct fixture *fixture_create(uint64_t frames)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    diag_init_silent(&f->diag);
    f->mem = mem_device_create(1);
    assert_int_equal(io_make_dir(mem_device_io(f->mem), "/data"), 0);
    open_store(f, frames, 10);
    assert_int_equal(fsm_init_empty(f->table), 0);
    f->root = CONTENT_ROOT_EMPTY;
    return f;
}

static inline void fixture_destroy(struct fixture *f)
{
    close_store(f);
    mem_device_destroy(f->mem);
    free(f);
}

/* ---- operations ---- */

enum op_kind { WRITE, RESIZE, PUNCH };

struct op {
    enum op_kind kind;
    uint64_t offset; /* resize: the new size */
    uint64_t size;
    const uint8_t *bytes;
};

static inline int plan_op(struct fixture *f, struct view *view, const struct content_root *root, const struct op *op,
                          struct frame_budget *budget, struct content_plan **out_plan)
{
    switch (op->kind) {
    case WRITE:
        return content_plan_write(view, f->table, root, op->offset, op->bytes, op->size, budget, out_plan);
    case RESIZE:
        return content_plan_resize(view, f->table, root, op->offset, budget, out_plan);
    case PUNCH:
        return content_plan_punch(view, f->table, root, op->offset, op->size, budget, out_plan);
    }
    return -EINVAL;
}

enum ending { APPLY, ABANDON };

/* Plans and ends one operation on *root in a view. */
static inline int run_in_view(struct fixture *f, struct view *view, struct content_root *root, const struct op *op,
                              enum ending ending)
{
    uint32_t pins = 0, news = 0;
    struct frame_budget budget = {0};
    struct content_plan *plan = NULL;
    content_frames_needed(op->kind == WRITE ? op->size : 0, &pins, &news);
    assert_int_equal(frame_budget_take(f->cache, pins, news, &budget), 0);
    cow_gate_enter(f->cow);
    const int err = plan_op(f, view, root, op, &budget, &plan);
    if (err == 0 && ending == APPLY) {
        *root = content_plan_root(plan);
        content_plan_apply(plan);
    } else if (err == 0) {
        content_plan_abandon(plan);
    }
    cow_gate_leave(f->cow);
    frame_budget_release(&budget);
    return err;
}

static inline int run(struct fixture *f, const struct op *op)
{
    return run_in_view(f, f->view, &f->root, op, APPLY);
}

static inline void write_at(struct fixture *f, uint64_t offset, const void *bytes, size_t size)
{
    const struct op op = {.kind = WRITE, .offset = offset, .size = size, .bytes = bytes};
    assert_int_equal(run(f, &op), 0);
}

static inline void resize_to(struct fixture *f, uint64_t size)
{
    const struct op op = {.kind = RESIZE, .offset = size};
    assert_int_equal(run(f, &op), 0);
}

static inline void punch_at(struct fixture *f, uint64_t offset, uint64_t size)
{
    const struct op op = {.kind = PUNCH, .offset = offset, .size = size};
    assert_int_equal(run(f, &op), 0);
}

static inline void write_back_all(struct fixture *f)
{
    struct writeback_result result;
    assert_int_equal(bufcache_write_back(f->cache, UINT64_MAX, &result), 0);
}

/* Pages of the table leave memory: what is read next comes from the disk. */
static inline void reopen(struct fixture *f, uint64_t frames)
{
    const epoch_no epoch = cow_epoch(f->cow) + 10;
    write_back_all(f);
    close_store(f);
    open_store(f, frames, epoch);
}

/* ---- checks ---- */

static inline int add_run(void *arg, block_no first, uint32_t count)
{
    uint64_t *blocks = arg;
    (void)first;
    *blocks += count;
    return 0;
}

/* No block is lost, none is used twice. */
static inline void check_space(struct fixture *f)
{
    struct fsm_stats stats = {0};
    uint64_t live = 0, pinned = 0;
    const int err = fsm_get_stats(f->table, &stats);
    assert_true(err == 0 || err == -ENOENT);
    assert_int_equal(content_count_blocks(f->table, &f->root, &live), 0);
    assert_int_equal(cow_each_pinned_run(f->cow, f->table, add_run, &pinned), 0);
    assert_int_equal(stats.reserved_blocks, 0);
    assert_int_equal(stats.used_blocks, live + pinned);
}

static inline void check_range(struct fixture *f, const struct content_root *root, const uint8_t *want, uint64_t offset,
                               uint64_t size)
{
    size_t got = 0;
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    assert_int_equal(content_read(f->table, root, offset, bytes, size, &got), 0);
    const uint64_t end = offset + size < root->bytes ? offset + size : root->bytes;
    assert_int_equal(got, end > offset ? end - offset : 0);
    assert_memory_equal(bytes, want + offset, got);
    free(bytes);
}

static inline void check_pieces(struct fixture *f, const struct content_root *root, const uint8_t *want,
                                uint64_t offset, uint64_t size)
{
    struct content_pieces pieces;
    const int err = content_read_pieces(f->table, root, offset, size, &pieces);
    if (err == -E2BIG)
        return;
    assert_int_equal(err, 0);
    const uint64_t end = offset + size < root->bytes ? offset + size : root->bytes;
    assert_int_equal(pieces.size_bytes, end > offset ? end - offset : 0);
    assert_true(pieces.frame_count <= content_pieces_pins(size));
    for (unsigned i = 0; i < pieces.count; i++) {
        assert_memory_equal(pieces.iov[i].iov_base, want + offset, pieces.iov[i].iov_len);
        offset += pieces.iov[i].iov_len;
    }
    content_pieces_release(&pieces);
}

static inline void check_all(struct fixture *f, const uint8_t *want, uint64_t size)
{
    assert_int_equal(f->root.bytes, size);
    assert_int_equal(content_check(&f->diag, f->table, &f->root), 0);
    check_range(f, &f->root, want, 0, size + 1);
    check_space(f);
}

/* Bytes that tell their offset. */
static inline uint8_t *pattern_create(size_t size)
{
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    return bytes;
}

static inline uint64_t allocations_of(const struct fixture *f)
{
    struct fsm_stats stats;
    assert_int_equal(fsm_get_stats(f->table, &stats), 0);
    return stats.allocations;
}

struct leaf_order {
    uint64_t leaves, in_order, holes;
    block_no last;
};

static inline int note_leaf(void *arg, struct page_ptr ptr, uint8_t level)
{
    struct leaf_order *order = arg;
    if (level != 0)
        return 0;
    order->in_order += order->leaves > 0 && ptr.block == order->last + 1;
    order->leaves++;
    order->last = ptr.block;
    return 0;
}

static inline struct leaf_order leaf_order_of(struct fixture *f)
{
    struct leaf_order order = {0};
    assert_int_equal(content_visit(f->table, &f->root, NULL, note_leaf, &order), 0);
    return order;
}

/* ---- random operations ---- */

#define MODEL_MAX   (6 * MIB)
#define MODEL_FILL  (17 * 30 * LEAF) /* 4 MiB: what it begins with */
#define HOLDERS_MAX 4u

struct held {
    struct holder *holder;
    struct content_root root;
    uint8_t *bytes;
};

struct model {
    struct fixture *f;
    struct test_random random;
    uint8_t *bytes; /* MODEL_MAX of them; zero behind the end */
    uint8_t *fresh; /* what is written next */
    uint64_t write_max;
    unsigned faults;
    struct held held[HOLDERS_MAX];
};

static inline struct model *model_create(const char *test_name, uint64_t frames, uint64_t write_max)
{
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->f = fixture_create(frames);
    m->write_max = write_max;
    m->bytes = calloc(1, MODEL_MAX + 1);
    m->fresh = malloc(MODEL_MAX);
    assert_non_null(m->bytes);
    assert_non_null(m->fresh);
    test_random_init(&m->random, test_seed(test_name));
    test_random_bytes(&m->random, m->bytes, MODEL_FILL);
    for (uint64_t offset = 0; offset < MODEL_FILL; offset += 30 * LEAF)
        write_at(m->f, offset, m->bytes + offset, 30 * LEAF);
    return m;
}

static inline void model_release(struct model *m, struct held *held)
{
    if (held->holder == NULL)
        return;
    check_range(m->f, &held->root, held->bytes, 0, held->root.bytes + 1);
    cow_holder_close(m->f->cow, held->holder);
    free(held->bytes);
    *held = (struct held){0};
}

static inline void model_destroy(struct model *m)
{
    for (unsigned i = 0; i < HOLDERS_MAX; i++)
        model_release(m, &m->held[i]);
    check_all(m->f, m->bytes, m->f->root.bytes);
    mem_device_clear_faults(m->f->mem);
    fixture_destroy(m->f);
    free(m->bytes);
    free(m->fresh);
    free(m);
}

static inline uint64_t random_size(struct model *m, uint64_t max)
{
    const uint64_t limits[] = {1, 10, 300, LEAF - 1, 3 * LEAF, 40 * LEAF, max};
    uint64_t limit = limits[test_random_below(&m->random, ARRAY_COUNT(limits))];
    limit = limit < max ? limit : max;
    return test_random_range(&m->random, 1, limit);
}

/* Somewhere, often at the end or at a multiple of a leaf. */
static inline uint64_t random_offset(struct model *m)
{
    const uint64_t size = m->f->root.bytes;
    switch (test_random_below(&m->random, 5)) {
    case 0:
        return size;
    case 1:
        return test_random_below(&m->random, size / LEAF + 1) * LEAF;
    case 2:
        return test_random_below(&m->random, size + 20000);
    default:
        return test_random_below(&m->random, size + 1);
    }
}

/* Mostly a little up or down, so that trees stay large; there must be room behind the end too. */
static inline void random_resize(struct model *m, struct op *op)
{
    const uint64_t size = m->f->root.bytes, step = random_size(m, 100 * LEAF);
    op->kind = RESIZE;
    if (test_random_chance(&m->random, size > MODEL_FILL ? 60 : 10))
        op->offset = test_random_below(&m->random, MODEL_FILL);
    else if (test_random_chance(&m->random, 50))
        op->offset = size > step ? size - step : 0;
    else
        op->offset = size + step < MODEL_MAX ? size + step : MODEL_MAX;
}

static inline struct op random_op(struct model *m)
{
    struct op op = {.kind = PUNCH, .offset = random_offset(m), .bytes = m->fresh};
    const uint64_t dice = test_random_below(&m->random, 100);
    if (op.offset >= MODEL_MAX)
        op.offset = MODEL_MAX - 1;
    op.size = random_size(m, m->write_max);
    if (dice < 70)
        op.kind = WRITE;
    else if (dice < 80)
        random_resize(m, &op);
    if (op.size > MODEL_MAX - op.offset)
        op.size = MODEL_MAX - op.offset;
    if (op.kind == WRITE) {
        test_random_bytes(&m->random, m->fresh, op.size < 64 ? op.size : 64);
        for (uint64_t i = 64; i < op.size; i++)
            m->fresh[i] = (uint8_t)(m->fresh[i - 64] * 5 + i);
    }
    return op;
}

static inline void model_apply(struct model *m, const struct op *op, uint64_t old_size)
{
    const uint64_t end = op->offset + op->size;
    switch (op->kind) {
    case WRITE:
        memcpy(m->bytes + op->offset, op->bytes, op->size);
        break;
    case RESIZE:
        if (op->offset < old_size)
            memset(m->bytes + op->offset, 0, old_size - op->offset);
        break;
    case PUNCH:
        if (op->offset < old_size)
            memset(m->bytes + op->offset, 0, (end < old_size ? end : old_size) - op->offset);
        break;
    }
}

static inline uint64_t size_after(const struct op *op, uint64_t size)
{
    if (op->kind == RESIZE)
        return op->offset;
    const uint64_t end = op->offset + op->size;
    return op->kind == WRITE && end > size ? end : size;
}

static inline void model_holders(struct model *m)
{
    struct held *held = &m->held[test_random_below(&m->random, HOLDERS_MAX)];
    if (held->holder != NULL) {
        model_release(m, held);
        return;
    }
    assert_int_equal(cow_fork(m->f->cow, HOLDER_SNAPSHOT, &held->holder), 0);
    held->root = m->f->root;
    held->bytes = malloc(held->root.bytes + 1);
    assert_non_null(held->bytes);
    memcpy(held->bytes, m->bytes, held->root.bytes + 1);
}

static inline void check_around(struct model *m, const struct op *op)
{
    const uint64_t from = op->offset > 3 * LEAF ? op->offset - 3 * LEAF : 0;
    check_range(m->f, &m->f->root, m->bytes, from, op->size + 6 * LEAF);
    check_pieces(m->f, &m->f->root, m->bytes, from, op->size + 6 * LEAF);
}

static inline void random_step(struct model *m)
{
    const struct op op = random_op(m);
    const uint64_t size = m->f->root.bytes;
    const uint64_t dice = test_random_below(&m->random, 100);
    struct content_root ignored = m->f->root;
    if (dice < 5)
        model_holders(m);
    if (dice >= 5 && dice < 8)
        write_back_all(m->f);
    if (dice >= 8 && dice < 15)
        bufcache_step(m->f->cache);
    if (dice >= 90)
        assert_int_equal(run_in_view(m->f, m->f->view, &ignored, &op, ABANDON), 0);
    assert_int_equal(run(m->f, &op), 0);
    model_apply(m, &op, size);
    assert_int_equal(m->f->root.bytes, size_after(&op, size));
    check_around(m, &op);
    check_space(m->f);
    assert_in_range(m->f->root.height, 0, CONTENT_MAX_HEIGHT);
}

static inline void random_operations_agree(const char *test_name, uint64_t frames, uint64_t write_max, unsigned steps)
{
    struct model *m = model_create(test_name, frames, write_max);
    for (unsigned step = 0; step < steps; step++) {
        random_step(m);
        if (step % 50 == 0)
            check_all(m->f, m->bytes, m->f->root.bytes);
    }
    model_destroy(m);
}

/* ---- faults ---- */

/* The operation with its nth device call of one kind failing. True: it failed, and must have changed nothing. */
static inline bool run_with_fault(struct model *m, const struct op *op, enum mem_call call, uint64_t nth, int error)
{
    struct fixture *f = m->f;
    const struct content_root before = f->root;
    /* an extension that fails is tried again, smaller */
    mem_device_fail(f->mem, call, nth, error, call == MEM_CALL_ALLOCATE);
    const int err = run(f, op);
    mem_device_clear_faults(f->mem);
    if (err == 0)
        return false;
    assert_int_equal(err, -error);
    m->faults++;
    assert_memory_equal(&before, &f->root, sizeof before);
    check_all(f, m->bytes, f->root.bytes);
    return true;
}

static inline void fault_step(struct model *m, enum mem_call call, int error)
{
    const struct op op = random_op(m);
    const uint64_t size = m->f->root.bytes;
    uint64_t nth = 1;
    while (nth < 8 && run_with_fault(m, &op, call, nth, error))
        nth++;
    if (nth == 8)
        assert_int_equal(run(m->f, &op), 0);
    model_apply(m, &op, size);
    check_all(m->f, m->bytes, size_after(&op, size));
}

/* Pages of the table leave memory, and nothing else changes. */
static inline void evict_all(struct fixture *f)
{
    block_no blocks = 0;
    write_back_all(f);
    assert_int_equal(relation_file_blocks(f->table, &blocks), 0);
    for (block_no block = 0; block < blocks; block++)
        page_discard(f->table, block);
}

/* Failing device calls of one kind between random operations; `faults` counts those that made one fail. */
static inline void random_operations_with_faults(const char *test_name, uint64_t frames, uint64_t write_max,
                                                 enum mem_call call, int error, unsigned steps)
{
    struct model *m = model_create(test_name, frames, write_max);
    for (unsigned step = 0; step < steps; step++) {
        if (step % 8 == 0)
            model_holders(m);
        if (step % 3 == 0)
            evict_all(m->f);
        assert_int_equal(fsm_trim(m->f->table, 0, &(uint32_t){0}), 0);
        fault_step(m, call, error);
    }
    if (m->faults < steps / 20)
        fail_msg("only %u faults in %u steps", m->faults, steps);
    model_destroy(m);
}

#endif
