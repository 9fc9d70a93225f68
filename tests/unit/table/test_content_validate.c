/*
 * tests/unit/table/test_content_validate.c - each field of a content page that is wrong is found, and only then.
 */
#include "table/content.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct test_page {
    struct page_header header;
    union {
        uint8_t payload[PAGE_PAYLOAD_SIZE];
        struct content_entry entries[CONTENT_FANOUT];
    };
};
static_assert(sizeof(struct test_page) == BLOCK_SIZE, "a page");

static struct test_page leaf_page(void)
{
    return (struct test_page){.header = {.block = le32_of(9), .type = PAGE_TYPE_CONTENT_LEAF, .used = le16_of(100)}};
}

/* Three entries: a child, a hole, a child. */
static struct test_page node_page(uint8_t level)
{
    struct test_page page = {.header = {.block = le32_of(9),
                                        .type = PAGE_TYPE_CONTENT_INNER,
                                        .level = level,
                                        .count = le16_of(3),
                                        .used = le16_of(72)}};
    const struct page_ptr child = {.birth = 5, .block = 17, .alloc = 99};
    page.entries[0] = (struct content_entry){.ptr = disk_page_ptr_of(child), .bytes = le64_of(8152)};
    page.entries[1] = (struct content_entry){.ptr = disk_page_ptr_of(PAGE_PTR_NONE), .bytes = le64_of(1u << 30)};
    page.entries[2] = page.entries[0];
    return page;
}

static void expect_leaf(const struct test_page *page, int want)
{
    struct diag diag;
    diag_init_silent(&diag);
    assert_int_equal(content_validate_leaf(&diag, "file", page), want);
    assert_int_equal(diag.damage_count, want == 0 ? 0 : 1);
}

static void expect_node(const struct test_page *page, int want)
{
    struct diag diag;
    diag_init_silent(&diag);
    assert_int_equal(content_validate_inner(&diag, "file", page), want);
    assert_int_equal(diag.damage_count, want == 0 ? 0 : 1);
}

static void leaf_fields_are_checked(void **state)
{
    (void)state;
    struct test_page page = leaf_page();
    expect_leaf(&page, 0);
    page.header.used = le16_of(PAGE_PAYLOAD_SIZE);
    expect_leaf(&page, 0);
    page.header.used = le16_of(PAGE_PAYLOAD_SIZE + 1);
    expect_leaf(&page, -EIO);
    page.header.used = le16_of(0);
    expect_leaf(&page, -EIO);
    page = leaf_page();
    page.header.level = 1;
    expect_leaf(&page, -EIO);
    page = leaf_page();
    page.header.type = PAGE_TYPE_CONTENT_INNER;
    expect_leaf(&page, -EIO);
    page = leaf_page();
    page.header.count = le16_of(1);
    expect_leaf(&page, -EIO);
    page = leaf_page();
    page.header.reserved = le16_of(1);
    expect_leaf(&page, -EIO);
}

static void node_header_is_checked(void **state)
{
    (void)state;
    struct test_page page = node_page(1);
    expect_node(&page, 0);
    page = node_page(CONTENT_MAX_HEIGHT - 1);
    expect_node(&page, 0);
    page = node_page(CONTENT_MAX_HEIGHT);
    expect_node(&page, -EIO);
    page = node_page(0);
    expect_node(&page, -EIO);
    page = node_page(1);
    page.header.type = PAGE_TYPE_CONTENT_LEAF;
    expect_node(&page, -EIO);
    page = node_page(1);
    page.header.count = le16_of(0);
    page.header.used = le16_of(0);
    expect_node(&page, -EIO);
    page = node_page(1);
    page.header.count = le16_of(CONTENT_FANOUT + 1);
    page.header.used = le16_of((CONTENT_FANOUT + 1) * sizeof(struct content_entry));
    expect_node(&page, -EIO);
    page = node_page(1);
    page.header.used = le16_of(71);
    expect_node(&page, -EIO);
    page = node_page(1);
    page.header.reserved = le16_of(256);
    expect_node(&page, -EIO);
}

static void expect_bad_entry(unsigned index, struct page_ptr ptr, uint64_t bytes)
{
    struct test_page page = node_page(1);
    page.entries[index].ptr = disk_page_ptr_of(ptr);
    page.entries[index].bytes = le64_of(bytes);
    expect_node(&page, -EIO);
}

static void node_entries_are_checked(void **state)
{
    const struct page_ptr child = {.birth = 5, .block = 17, .alloc = 99};
    (void)state;
    expect_bad_entry(0, child, 0);
    expect_bad_entry(1, PAGE_PTR_NONE, 0);
    expect_bad_entry(2, child, PAGE_PAYLOAD_SIZE + 1);
    expect_bad_entry(1, PAGE_PTR_NONE, CONTENT_MAX_BYTES + 1);
    expect_bad_entry(1, PAGE_PTR_NONE, CONTENT_MAX_BYTES); /* the sum is too large */
    expect_bad_entry(1, PAGE_PTR_NONE, UINT64_MAX - 8152);
    expect_bad_entry(0, (struct page_ptr){.birth = 5, .block = 17, .alloc = 0}, 10);
    expect_bad_entry(0, (struct page_ptr){.birth = 0, .block = 17, .alloc = 99}, 10);
    expect_bad_entry(1, (struct page_ptr){.birth = 1, .block = BLOCK_NONE, .alloc = 0}, 10);
    expect_bad_entry(1, (struct page_ptr){.birth = 0, .block = BLOCK_NONE, .alloc = 1}, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaf_fields_are_checked),
        cmocka_unit_test(node_header_is_checked),
        cmocka_unit_test(node_entries_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
