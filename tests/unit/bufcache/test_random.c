/*
 * tests/unit/bufcache/test_random.c - random operations against arrays in memory.
 *
 * The model knows for each block of each relation whether it is allocated, its birth and a version; a page holds its
 * version. After a few operations each the cache's own check runs; every page is read back in the end, from a new cache
 * too.
 */
#include "tests/unit/bufcache/fixture.h"

#define RELATIONS 12u
#define BLOCKS    400u
#define REPLIES   8u

struct model_block {
    bool used;
    epoch_no birth;
    uint64_t version;
};

struct model {
    struct fixture *fixture;
    struct test_random random;
    struct relation *relations[RELATIONS];
    rel_no numbers[RELATIONS];
    struct model_block blocks[RELATIONS][BLOCKS];
    struct {
        struct frame *frame;
        uint64_t version;
    } replies[REPLIES];
    rel_no next_number;
    epoch_no epoch;
    uint64_t version;
};

static uint64_t frame_version(struct frame *frame)
{
    uint64_t version;
    memcpy(&version, (uint8_t *)frame_page(frame) + BLOCK_SIZE - 8, 8);
    return version;
}

static void set_version(struct frame *frame, uint64_t version)
{
    memcpy((uint8_t *)frame_page(frame) + BLOCK_SIZE - 8, &version, 8);
}

static void new_relation(struct model *model, unsigned r)
{
    model->numbers[r] = model->next_number++;
    model->relations[r] = fixture_create_relation(model->fixture, model->numbers[r], BLOCKS);
    memset(model->blocks[r], 0, sizeof model->blocks[r]);
}

static struct page_ptr model_ptr(const struct model *model, unsigned r, block_no block)
{
    return ptr_of(block, model->blocks[r][block].birth);
}

static void make_page(struct model *model, unsigned r, block_no block)
{
    struct frame_budget budget;
    struct model_block *known = &model->blocks[r][block];
    assert_int_equal(frame_budget_take(model->fixture->cache, 1, 2, &budget), 0);
    *known = (struct model_block){.used = true, .birth = ++model->epoch, .version = ++model->version};
    struct frame *frame = page_new(model->relations[r], &budget, model_ptr(model, r, block), LEAF, 0);
    set_version(frame, known->version);
    page_unlatch(frame, true);
    if (test_random_chance(&model->random, 20))
        bufcache_write_soon(&frame, 1);
    page_unpin(frame);
    frame_budget_release(&budget);
}

static void change_page(struct model *model, unsigned r, block_no block, struct frame *frame)
{
    if (!page_try_latch(frame))
        return;
    set_version(frame, model->blocks[r][block].version = ++model->version);
    page_unlatch(frame, true);
}

static void reply_with(struct model *model, struct frame *frame)
{
    const uint64_t slot = test_random_below(&model->random, REPLIES);
    if (model->replies[slot].frame != NULL) {
        assert_int_equal(frame_version(model->replies[slot].frame), model->replies[slot].version);
        page_reply_unpin(model->replies[slot].frame);
    }
    model->replies[slot].frame = frame;
    if (frame == NULL)
        return;
    page_reply_pin(frame);
    model->replies[slot].version = frame_version(frame);
}

static void use_page(struct model *model, unsigned r, block_no block)
{
    struct frame *frame;
    assert_int_equal(page_read(model->relations[r], model_ptr(model, r, block), LEAF, 0, &frame), 0);
    assert_int_equal(frame_version(frame), model->blocks[r][block].version);
    if (test_random_chance(&model->random, 40))
        change_page(model, r, block, frame);
    if (test_random_chance(&model->random, 20))
        reply_with(model, frame);
    page_unpin(frame);
}

static void read_many(struct model *model, unsigned r)
{
    struct page_ptr ptrs[40];
    struct frame *frames[40];
    unsigned count = 0;
    for (block_no block = (block_no)test_random_below(&model->random, BLOCKS); block < BLOCKS && count < 40; block++)
        if (model->blocks[r][block].used)
            ptrs[count++] = model_ptr(model, r, block);
    assert_int_equal(page_read_many(model->relations[r], ptrs, count, LEAF, 0, frames), 0);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(frame_version(frames[i]), model->blocks[r][ptrs[i].block].version);
        page_unpin(frames[i]);
    }
}

static void drop_some(struct model *model)
{
    struct relation *victims[RELATIONS];
    struct drop_result result;
    const unsigned first = (unsigned)test_random_below(&model->random, RELATIONS);
    const unsigned count = (unsigned)test_random_range(&model->random, 1, RELATIONS - first);
    uint32_t resident = 0;
    for (unsigned i = 0; i < count; i++) {
        victims[i] = model->relations[first + i];
        resident += relation_resident(victims[i]);
    }
    bufcache_drop_relations(model->fixture->cache, victims, count, &result);
    assert_int_equal(result.pages_discarded, resident);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(relation_unlink_file(victims[i]), 0);
        relation_unref(victims[i]);
        new_relation(model, first + i);
    }
}

static void step(struct model *model)
{
    const unsigned r = (unsigned)test_random_below(&model->random, RELATIONS);
    const block_no block = (block_no)test_random_below(&model->random, BLOCKS);
    const uint64_t what = test_random_below(&model->random, 1000);
    struct model_block *known = &model->blocks[r][block];
    if (what < 3) {
        drop_some(model);
    } else if (what < 10) {
        assert_int_equal(
            bufcache_write_back(model->fixture->cache, test_random_below(&model->random, model->epoch + 1), NULL), 0);
    } else if (what < 30) {
        bufcache_step(model->fixture->cache);
    } else if (what < 60) {
        read_many(model, r);
    } else if (what < 90) {
        reply_with(model, NULL);
    } else if (!known->used) {
        make_page(model, r, block);
    } else if (what < 200) {
        page_discard(model->relations[r], block);
        known->used = false;
    } else {
        use_page(model, r, block);
    }
}

static void read_all(struct model *model)
{
    for (unsigned r = 0; r < RELATIONS; r++)
        for (block_no block = 0; block < BLOCKS; block++)
            if (model->blocks[r][block].used) {
                struct frame *frame;
                assert_int_equal(page_read(model->relations[r], model_ptr(model, r, block), LEAF, 0, &frame), 0);
                assert_int_equal(frame_version(frame), model->blocks[r][block].version);
                page_unpin(frame);
            }
}

static void random_operations_contents_and_structures_right(void **state)
{
    (void)state;
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    test_random_init(&model->random, test_seed("unit/bufcache/test_random"));
    struct fixture *fixture = model->fixture = fixture_create(512);
    model->next_number = 100;
    for (unsigned r = 0; r < RELATIONS; r++)
        new_relation(model, r);
    for (unsigned i = 0; i < 60000; i++) {
        step(model);
        if (i % 1000 == 0)
            assert_int_equal(bufcache_check(fixture->cache), 0);
    }
    read_all(model);
    for (unsigned i = 0; i < REPLIES; i++)
        if (model->replies[i].frame != NULL)
            page_reply_unpin(model->replies[i].frame);
    fixture_write_all(fixture);
    for (unsigned r = 0; r < RELATIONS; r++)
        relation_unref(model->relations[r]);
    fixture_reopen(fixture, 1024);
    for (unsigned r = 0; r < RELATIONS; r++)
        model->relations[r] = fixture_relation(fixture, model->numbers[r]);
    read_all(model);
    for (unsigned r = 0; r < RELATIONS; r++)
        relation_unref(model->relations[r]);
    fixture_destroy(fixture);
    free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_contents_and_structures_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
