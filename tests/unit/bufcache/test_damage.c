/* tests/unit/bufcache/test_damage.c - what is on disk is not what was written: named, counted, -EIO, never cached. */
#include "base/checksum.h"
#include "tests/unit/bufcache/fixture.h"

struct expected {
    struct page_ptr ptr;
    uint8_t type, level;
};

static const struct expected plain = {{.birth = 5, .block = 1, .alloc = 13}, LEAF, 0};

/* A written page 1 of relation 7, and a new cache that does not know it. */
static struct fixture *create_written(void)
{
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 7, 4);
    fixture_make_pages(fixture, relation, 0, 4, 5);
    fixture_write_all(fixture);
    relation_unref(relation);
    fixture_reopen(fixture, 512);
    assert_int_equal(plain.ptr.alloc, ptr_of(1, 5).alloc);
    return fixture;
}

static uint8_t *page_on_disk(struct fixture *fixture)
{
    char path[64];
    size_t run;
    fixture_path(7, path, sizeof path);
    uint8_t *bytes = mem_device_file_bytes(fixture->mem, path, BLOCK_SIZE, &run);
    assert_int_equal(run, BLOCK_SIZE);
    return bytes;
}

static void reseal(uint8_t *page)
{
    struct page_header *header = (struct page_header *)page;
    header->checksum = le64_of(checksum_64(page + 8, BLOCK_SIZE - 8, 0));
}

/* Reading must fail, naming `field` and the block; the page must not stay. */
static void assert_damage(struct fixture *fixture, struct expected expected, const char *field)
{
    struct relation *relation = fixture_relation(fixture, 7);
    struct frame *frame = NULL;
    const uint64_t before = fixture_stats(fixture).damaged_pages;
    assert_int_equal(page_read(relation, expected.ptr, expected.type, expected.level, &frame), -EIO);
    assert_null(frame);
    if (strstr(fixture->last_line, field) == NULL || strstr(fixture->last_line, "0000000000000007") == NULL)
        fail_msg("report '%s' lacks '%s' or the file", fixture->last_line, field);
    assert_int_equal(fixture_stats(fixture).damaged_pages, before + 1);
    assert_int_equal(relation_resident(relation), 0);
    assert_int_equal(fixture_stats(fixture).free_frames, 512);
    relation_unref(relation);
}

static void page_read_each_flipped_byte_is_damage(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    struct relation *relation = fixture_relation(fixture, 7); /* keeps the descriptor */
    for (size_t offset = 0; offset < BLOCK_SIZE; offset += offset < 64 ? 1 : 97) {
        page_on_disk(fixture)[offset] ^= 0x10;
        assert_damage(fixture, plain, "checksum");
        page_on_disk(fixture)[offset] ^= 0x10;
    }
    fixture_read_page(relation, plain.ptr);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_read_wrong_header_field_named(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        const char *field;
    } fields[] = {{8, "rel"},   {24, "block"}, {16, "birth"}, {28, "alloc"},
                  {32, "type"}, {33, "level"}, {35, "used"},  {38, "reserved"}};
    struct fixture *fixture = create_written();
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        uint8_t *page = page_on_disk(fixture);
        page[fields[i].offset] ^= 0x40;
        reseal(page);
        assert_damage(fixture, plain, fields[i].field);
        page[fields[i].offset] ^= 0x40;
        reseal(page);
    }
    fixture_destroy(fixture);
}

static void page_read_all_zero_page_named(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    memset(page_on_disk(fixture), 0, BLOCK_SIZE);
    assert_damage(fixture, plain, "zero page");
    fixture_destroy(fixture);
}

static void page_read_behind_end_of_file_is_damage(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    assert_damage(fixture, (struct expected){ptr_of(4, 5), LEAF, 0}, "bytes in the file");
    fixture_destroy(fixture);
}

static void page_read_malformed_payload_is_damage(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    uint8_t *page = page_on_disk(fixture);
    page[PAGE_HEADER_SIZE] = 0xee;
    reseal(page);
    assert_damage(fixture, plain, "payload");
    fixture_destroy(fixture);
}

static void page_read_type_without_validator_is_damage(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    uint8_t *page = page_on_disk(fixture);
    struct expected expected = plain;
    expected.type = page[32] = PAGE_TYPE_CATALOG_INNER;
    reseal(page);
    assert_damage(fixture, expected, "type unknown");
    expected.type = page[32] = 200;
    reseal(page);
    assert_damage(fixture, expected, "type unknown");
    fixture_destroy(fixture);
}

static void page_read_pointer_says_otherwise_is_damage(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    struct expected expected = plain;
    expected.ptr.birth = 6;
    assert_damage(fixture, expected, "birth");
    expected = plain;
    expected.ptr.alloc++;
    assert_damage(fixture, expected, "alloc");
    expected = plain;
    expected.type = INNER;
    assert_damage(fixture, expected, "type");
    expected = plain;
    expected.level = 1;
    assert_damage(fixture, expected, "level");
    fixture_destroy(fixture);
}

static void page_read_resident_page_compared_each_time(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    struct relation *relation = fixture_relation(fixture, 7);
    struct page_ptr wrong = plain.ptr;
    struct frame *frame;
    fixture_read_page(relation, plain.ptr);
    wrong.alloc++;
    assert_int_equal(page_read(relation, wrong, LEAF, 0, &frame), -EIO);
    wrong = plain.ptr;
    wrong.birth++;
    assert_int_equal(page_read(relation, wrong, LEAF, 0, &frame), -EIO);
    assert_int_equal(page_read(relation, plain.ptr, INNER, 0, &frame), -EIO);
    assert_int_equal(page_read(relation, plain.ptr, LEAF, 1, &frame), -EIO);
    assert_int_equal(fixture_stats(fixture).damaged_pages, 4);
    assert_int_equal(fixture_stats(fixture).pinned_frames, 0);
    fixture_read_page(relation, plain.ptr); /* the page itself is right and stays */
    assert_int_equal(fixture_stats(fixture).pages_read, 1);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_read_device_error_handed_on_and_tried_again(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    struct relation *relation = fixture_relation(fixture, 7);
    struct frame *frame;
    mem_device_fail(fixture->mem, MEM_CALL_READ, 1, EIO, false);
    assert_int_equal(page_read(relation, plain.ptr, LEAF, 0, &frame), -EIO);
    assert_int_equal(relation_resident(relation), 0);
    assert_int_equal(bufcache_failed(fixture->cache), 0);
    fixture_read_page(relation, plain.ptr);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_read_short_transfers_go_on(void **state)
{
    (void)state;
    struct fixture *fixture = create_written();
    struct relation *relation = fixture_relation(fixture, 7);
    mem_device_set_short_transfers(fixture->mem, true);
    for (block_no block = 0; block < 4; block++)
        fixture_read_page(relation, ptr_of(block, 5));
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void page_read_missing_file_named(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_relation(fixture, 0xabcd);
    struct frame *frame;
    assert_int_equal(page_read(relation, plain.ptr, LEAF, 0, &frame), -EIO);
    assert_non_null(strstr(fixture->last_line, "/data/rel/cd/000000000000abcd"));
    assert_int_equal(relation_resident(relation), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_OPEN), 1); /* the tablespace's directory: opening never creates */
    relation_unref(relation);
    fixture_destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_read_each_flipped_byte_is_damage),
        cmocka_unit_test(page_read_wrong_header_field_named),
        cmocka_unit_test(page_read_all_zero_page_named),
        cmocka_unit_test(page_read_behind_end_of_file_is_damage),
        cmocka_unit_test(page_read_malformed_payload_is_damage),
        cmocka_unit_test(page_read_type_without_validator_is_damage),
        cmocka_unit_test(page_read_pointer_says_otherwise_is_damage),
        cmocka_unit_test(page_read_resident_page_compared_each_time),
        cmocka_unit_test(page_read_device_error_handed_on_and_tried_again),
        cmocka_unit_test(page_read_short_transfers_go_on),
        cmocka_unit_test(page_read_missing_file_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
