/*
 * tests/unit/bufcache/fixture.h - a cache on the device in memory, for the tests beside it.
 *
 * Pages are filled from their relation, block and birth, so that what is read can be told right from wrong. Reports are
 * kept: the last line, and how many there were.
 */
#ifndef TBLFS_TESTS_UNIT_BUFCACHE_FIXTURE_H
#define TBLFS_TESTS_UNIT_BUFCACHE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "bufcache/bufcache.h"
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE_TS ((ts_no)0)
#define LEAF       PAGE_TYPE_CONTENT_LEAF
#define INNER      PAGE_TYPE_CONTENT_INNER

struct fixture {
    struct diag diag; /* first: emit is given it */
    char last_line[512];
    unsigned lines;
    struct mem_device *mem;
    struct bufcache *cache;
};

static inline void fixture_emit(struct diag *diag, enum diag_level level, const char *line)
{
    struct fixture *fixture = (struct fixture *)diag;
    (void)level;
    (void)snprintf(fixture->last_line, sizeof fixture->last_line, "%s", line);
    fixture->lines++;
}

/* A payload whose first byte is 0xee is malformed. */
static inline int fixture_validate(struct diag *diag, const char *file, const void *page)
{
    const uint8_t *payload = (const uint8_t *)page + PAGE_HEADER_SIZE;
    if (payload[0] == 0xee)
        return diag_damage(diag, file, le32_get(((const struct page_header *)page)->block), "payload", "malformed");
    return 0;
}

static inline struct bufcache_options fixture_options(struct fixture *fixture, uint32_t frames)
{
    struct bufcache_options options = {.dev = mem_device_io(fixture->mem),
                                       .diag = &fixture->diag,
                                       .cache_size_bytes = (uint64_t)frames * BLOCK_SIZE,
                                       .max_open_files = 64};
    options.validate[LEAF] = fixture_validate;
    options.validate[INNER] = fixture_validate;
    options.validate[PAGE_TYPE_CATALOG_LEAF] = fixture_validate;
    return options;
}

static inline void fixture_open_cache(struct fixture *fixture, uint32_t frames)
{
    const struct bufcache_options options = fixture_options(fixture, frames);
    assert_int_equal(bufcache_open(&options, &fixture->cache), 0);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, FIXTURE_TS, "/data"), 0);
}

static inline struct fixture *fixture_create(uint32_t frames)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->diag.emit = fixture_emit;
    fixture->diag.max_level = DIAG_WARNING;
    fixture->mem = mem_device_create(1);
    assert_int_equal(io_make_dir(mem_device_io(fixture->mem), "/data"), 0);
    fixture_open_cache(fixture, frames);
    return fixture;
}

static inline void fixture_reopen(struct fixture *fixture, uint32_t frames)
{
    assert_int_equal(bufcache_check(fixture->cache), 0);
    bufcache_close(fixture->cache);
    fixture_open_cache(fixture, frames);
}

static inline void fixture_destroy(struct fixture *fixture)
{
    struct mem_counters counters;
    assert_int_equal(bufcache_check(fixture->cache), 0);
    bufcache_close(fixture->cache);
    mem_device_counters(fixture->mem, &counters);
    assert_int_equal(counters.open_files, 0);
    mem_device_destroy(fixture->mem);
    free(fixture);
}

static inline struct bufcache_stats fixture_stats(struct fixture *fixture)
{
    struct bufcache_stats stats;
    bufcache_get_stats(fixture->cache, &stats);
    return stats;
}

static inline uint64_t fixture_calls(struct fixture *fixture, enum mem_call call)
{
    struct mem_counters counters;
    mem_device_counters(fixture->mem, &counters);
    return counters.calls[call];
}

static inline struct relation *fixture_relation(struct fixture *fixture, rel_no rel)
{
    struct relation *relation;
    assert_int_equal(relation_open(fixture->cache, FIXTURE_TS, rel, &relation), 0);
    return relation;
}

/* A relation with a file of so many blocks. */
static inline struct relation *fixture_create_relation(struct fixture *fixture, rel_no rel, block_no blocks)
{
    struct relation *relation = fixture_relation(fixture, rel);
    assert_int_equal(relation_create_file(relation), 0);
    assert_int_equal(relation_extend(relation, blocks), 0);
    return relation;
}

static inline struct page_ptr ptr_of(block_no block, epoch_no birth)
{
    return (struct page_ptr){.birth = birth, .block = block, .alloc = block * 7 + (uint32_t)birth + 1};
}

static inline uint64_t page_pattern(const struct page_header *header, size_t i)
{
    return (le64_get(header->rel) << 40 ^ (uint64_t)le32_get(header->block) << 16 ^ le64_get(header->birth)) + i;
}

static inline void page_fill(struct frame *frame)
{
    struct page_header *header = frame_page(frame);
    uint8_t *payload = (uint8_t *)header + PAGE_HEADER_SIZE;
    for (size_t i = 0; i + 8 <= PAGE_PAYLOAD_SIZE; i += 8) {
        const uint64_t value = page_pattern(header, i);
        memcpy(payload + i, &value, 8);
    }
    payload[0] = 1;
    header->used = le16_of(PAGE_PAYLOAD_SIZE);
}

static inline void page_assert_filled(struct frame *frame)
{
    const struct page_header *header = frame_page(frame);
    const uint8_t *payload = (const uint8_t *)header + PAGE_HEADER_SIZE;
    for (size_t i = 8; i + 8 <= PAGE_PAYLOAD_SIZE; i += 8) {
        uint64_t value;
        memcpy(&value, payload + i, 8);
        if (value != page_pattern(header, i))
            fail_msg("page content at %zu", i);
    }
}

/* One page, filled and dirty; pinned and latched no more. */
static inline void fixture_make_page(struct fixture *fixture, struct relation *relation, struct page_ptr ptr,
                                     uint8_t type)
{
    struct frame_budget budget;
    assert_int_equal(frame_budget_take(fixture->cache, 0, 1, &budget), 0);
    struct frame *frame = page_new(relation, &budget, ptr, type, 0);
    page_fill(frame);
    page_unlatch(frame, true);
    page_unpin(frame);
    frame_budget_release(&budget);
}

static inline void fixture_make_pages(struct fixture *fixture, struct relation *relation, block_no first,
                                      block_no count, epoch_no birth)
{
    for (block_no i = 0; i < count; i++)
        fixture_make_page(fixture, relation, ptr_of(first + i, birth), LEAF);
}

static inline void fixture_write_all(struct fixture *fixture)
{
    struct writeback_result result;
    assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, &result), 0);
}

/* Reads a page, compares its content, lets go. */
static inline void fixture_read_page(struct relation *relation, struct page_ptr ptr)
{
    struct frame *frame;
    assert_int_equal(page_read(relation, ptr, LEAF, 0, &frame), 0);
    page_assert_filled(frame);
    page_unpin(frame);
}

static inline void fixture_path(rel_no rel, char *out_path, size_t size)
{
    (void)snprintf(out_path, size, "/data/rel/%02x/%016" PRIx64, (unsigned)(rel & 255), rel);
}

#endif
