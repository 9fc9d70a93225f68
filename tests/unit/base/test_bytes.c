/*
 * tests/unit/base/test_bytes.c - little-endian fields and checksums: what lies on disk is the same everywhere.
 */
#include "base/bytes.h"
#include "base/checksum.h"
#include "base/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void le_fields_put_low_byte_first(void **state)
{
    (void)state;
    const le16 two = le16_of(0x0102);
    const le32 four = le32_of(0x01020304);
    const le64 eight = le64_of(UINT64_C(0x0102030405060708));
    assert_memory_equal(two.bytes, "\x02\x01", 2);
    assert_memory_equal(four.bytes, "\x04\x03\x02\x01", 4);
    assert_memory_equal(eight.bytes, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
}

static void le_fields_give_back_every_value(void **state)
{
    (void)state;
    assert_int_equal(le16_get(le16_of(0)), 0);
    assert_int_equal(le16_get(le16_of(UINT16_MAX)), UINT16_MAX);
    for (unsigned bit = 0; bit < 32; bit++)
        assert_int_equal(le32_get(le32_of(UINT32_C(1) << bit)), UINT32_C(1) << bit);
    for (unsigned bit = 0; bit < 64; bit++)
        assert_true(le64_get(le64_of(UINT64_C(1) << bit)) == UINT64_C(1) << bit);
    assert_true(le64_get(le64_of(UINT64_MAX)) == UINT64_MAX);
}

static void le_fields_have_no_padding(void **state)
{
    struct packed {
        uint8_t one;
        le64 eight;
        le16 two;
        le32 four;
    };
    (void)state;
    assert_int_equal(sizeof(struct packed), 15);
    assert_int_equal(offsetof(struct packed, eight), 1);
}

static void checksum_matches_published_values(void **state)
{
    (void)state;
    assert_true(checksum_64("", 0, 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(checksum_64(NULL, 0, 0) == UINT64_C(0x2d06800538d394c2));
}

static void checksum_changes_with_any_bit_and_seed(void **state)
{
    uint8_t page[BLOCK_SIZE];
    (void)state;
    memset(page, 0xa5, sizeof page);
    const uint64_t before = checksum_64(page, sizeof page, 0);
    for (size_t index = 0; index < sizeof page; index += 61) {
        page[index] ^= 1;
        assert_true(checksum_64(page, sizeof page, 0) != before);
        page[index] ^= 1;
    }
    assert_true(checksum_64(page, sizeof page, 0) == before);
    assert_true(checksum_64(page, sizeof page, 1) != before);
    assert_true(checksum_64(page, sizeof page - 1, 0) != before);
}

static void page_ptr_none_points_nowhere(void **state)
{
    (void)state;
    assert_true(page_ptr_is_none(PAGE_PTR_NONE));
    assert_false(page_ptr_is_none((struct page_ptr){.birth = 1, .block = 0, .alloc = 1}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(le_fields_put_low_byte_first),
        cmocka_unit_test(le_fields_give_back_every_value),
        cmocka_unit_test(le_fields_have_no_padding),
        cmocka_unit_test(checksum_matches_published_values),
        cmocka_unit_test(checksum_changes_with_any_bit_and_seed),
        cmocka_unit_test(page_ptr_none_points_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
