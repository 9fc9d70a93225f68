/*
 * tests/unit/table/test_catalog_page.c - single catalog pages: layout, and validators against damage.
 *
 * What a validator lets pass has to be safe to read: the fuzz tests run under ASan.
 */
#include "tests/unit/table/catalog_fixture.h"

#include "table/catalog_int.h"

#include <sys/stat.h>

#define MUTATIONS 100000u

static struct diag quiet;

static uint8_t *page_make(uint8_t type, uint8_t level)
{
    uint8_t *page = calloc(1, BLOCK_SIZE);
    assert_non_null(page);
    struct page_header *header = (struct page_header *)page;
    header->type = type;
    header->level = level;
    return page;
}

/* A plausible item of any type. */
static uint16_t random_item(struct test_random *random, struct catalog_key *key, uint8_t *value)
{
    memset(value, 0, CATALOG_MAX_VALUE_SIZE);
    const uint64_t sub = (test_random_range(random, 1, 1u << 20) << 16) | test_random_below(random, 4);
    *key = (struct catalog_key){.ino = test_random_range(random, 1, 50), .sub = sub};
    key->type = (uint8_t)test_random_range(random, ITEM_INODE, ITEM_TYPE_LAST);
    struct disk_inode *inode = (struct disk_inode *)value;
    struct disk_dirent *dirent = (struct disk_dirent *)value;
    const uint16_t size = (uint16_t)test_random_range(random, 1, 200);
    switch (key->type) {
    case ITEM_INODE:
        key->sub = 0;
        inode->mode = le32_of(S_IFREG | 0644);
        inode->content = disk_page_ptr_of(PAGE_PTR_NONE);
        return sizeof *inode;
    case ITEM_SYMLINK:
        key->sub = test_random_below(random, 3);
        memset(value, 's', size);
        return size;
    case ITEM_XATTR:
        value[0] = (uint8_t)(size / 2 + 1);
        memset(value + 1, 'x', size + 1u);
        return (uint16_t)(size + 2);
    case ITEM_BACK:
        ((struct disk_back *)value)->parent = le64_of(7);
        ((struct disk_back *)value)->cookie = le64_of(sub);
        return sizeof(struct disk_back);
    case ITEM_DIRENT:
        dirent->ino = le64_of(sub);
        dirent->kind = S_IFREG >> 12;
        memset(dirent + 1, 'n', size);
        return (uint16_t)(sizeof *dirent + size);
    case ITEM_ORPHAN:
        key->ino = INO_NONE;
        return 0;
    case ITEM_OWNER:
        key->ino = INO_NONE;
        ((struct disk_owner *)value)->owner = le64_of(sub);
        ((struct disk_owner *)value)->first = le64_of(7);
        return sizeof(struct disk_owner);
    case ITEM_TABLESPACE:
        *key = (struct catalog_key){.type = ITEM_TABLESPACE, .sub = test_random_range(random, 1, 50)};
        ((struct disk_tablespace *)value)->name_size = (uint8_t)size;
        memset(value + sizeof(struct disk_tablespace), 'd', size + 20u);
        return (uint16_t)(sizeof(struct disk_tablespace) + size + 20u);
    default:
        key->ino = INO_NONE;
        test_random_bytes(random, value, size);
        return size;
    }
}

static void fill_leaf(struct test_random *random, uint8_t *page)
{
    uint8_t value[CATALOG_MAX_VALUE_SIZE];
    const uint64_t items = test_random_range(random, 1, 120);
    for (uint64_t i = 0; i < items; i++) {
        struct catalog_key key;
        unsigned index = 0;
        const uint16_t size = random_item(random, &key, value);
        if (!catalog_leaf_find(page, &key, &index) &&
            catalog_page_used(page) + CATALOG_ITEM_BYTES(size) <= PAGE_PAYLOAD_SIZE) {
            catalog_leaf_insert(page, index, &key, value, size);
        }
    }
}

static void fill_inner(struct test_random *random, uint8_t *page)
{
    const uint64_t entries = test_random_range(random, 1, CATALOG_FANOUT);
    struct catalog_key key = {.ino = 1, .type = ITEM_INODE};
    for (uint64_t i = 0; i < entries; i++) {
        key.ino += test_random_range(random, 1, 9);
        const struct page_ptr ptr = {.birth = 1 + i, .block = (block_no)i, .alloc = 5};
        catalog_inner_append(page, &key, ptr);
    }
}

static volatile uint64_t sink;

static void read_all_of_leaf(const uint8_t *page)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < catalog_page_count(page); i++) {
        const struct catalog_key key = catalog_leaf_key(page, i);
        unsigned index = 0;
        assert_true(catalog_leaf_find(page, &key, &index));
        assert_int_equal(i, index);
        uint16_t size = 0;
        const uint8_t *value = catalog_leaf_value(page, i, &size);
        for (unsigned byte = 0; byte < size; byte++) {
            sum += value[byte];
        }
    }
    sink = sum;
}

static void read_all_of_inner(const uint8_t *page)
{
    for (unsigned i = 0; i < catalog_page_count(page); i++) {
        const struct catalog_key key = catalog_inner_key(page, i);
        assert_int_equal(i, catalog_inner_find(page, &key));
        assert_false(page_ptr_is_none(catalog_inner_ptr(page, i)));
    }
}

static void mutate(struct test_random *random, uint8_t *page)
{
    const uint64_t changes = test_random_range(random, 1, 4);
    for (uint64_t i = 0; i < changes; i++) {
        /* Half of them hit the header's counts and the first heads, where it matters most. */
        const bool near = test_random_chance(random, 50);
        const uint64_t offset = near ? test_random_range(random, 32, 200) : test_random_below(random, BLOCK_SIZE);
        if (test_random_chance(random, 50)) {
            page[offset] = (uint8_t)(page[offset] ^ (1u << test_random_below(random, 8)));
        } else {
            page[offset] = (uint8_t)test_random_u64(random);
        }
    }
}

static void mutated_leaves_are_refused_or_safe(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("unit/table/test_catalog_page"));
    unsigned refused = 0;
    uint8_t *page = page_make(PAGE_TYPE_CATALOG_LEAF, 0);
    uint8_t *copy = malloc(BLOCK_SIZE);
    for (unsigned i = 0; i < MUTATIONS; i++) {
        if (i % 1000 == 0) {
            free(page);
            page = page_make(PAGE_TYPE_CATALOG_LEAF, 0);
            fill_leaf(&random, page);
            assert_int_equal(0, catalog_validate_leaf(&quiet, "f", page));
        }
        memcpy(copy, page, BLOCK_SIZE);
        mutate(&random, copy);
        if (catalog_validate_leaf(&quiet, "f", copy) == 0) {
            read_all_of_leaf(copy);
        } else {
            refused++;
        }
    }
    assert_true(refused > MUTATIONS / 4);
    free(copy);
    free(page);
}

static void mutated_inner_pages_are_refused_or_safe(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("unit/table/test_catalog_page"));
    unsigned refused = 0;
    uint8_t *page = page_make(PAGE_TYPE_CATALOG_INNER, 1);
    uint8_t *copy = malloc(BLOCK_SIZE);
    for (unsigned i = 0; i < MUTATIONS; i++) {
        if (i % 1000 == 0) {
            free(page);
            page = page_make(PAGE_TYPE_CATALOG_INNER, 1);
            fill_inner(&random, page);
            assert_int_equal(0, catalog_validate_inner(&quiet, "f", page));
        }
        memcpy(copy, page, BLOCK_SIZE);
        mutate(&random, copy);
        if (catalog_validate_inner(&quiet, "f", copy) == 0) {
            read_all_of_inner(copy);
        } else {
            refused++;
        }
    }
    assert_true(refused > MUTATIONS / 4);
    free(copy);
    free(page);
}

static void random_bytes_are_refused_or_safe(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("unit/table/test_catalog_page"));
    uint8_t *page = calloc(1, BLOCK_SIZE);
    for (unsigned i = 0; i < 20000; i++) {
        test_random_bytes(&random, page, 400);
        struct page_header *header = (struct page_header *)page;
        header->level = (uint8_t)test_random_below(&random, 2);
        header->count = le16_of((uint16_t)test_random_below(&random, 4));
        if (header->level == 0 && catalog_validate_leaf(&quiet, "f", page) == 0) {
            read_all_of_leaf(page);
        }
        if (header->level == 1 && catalog_validate_inner(&quiet, "f", page) == 0) {
            read_all_of_inner(page);
        }
    }
    free(page);
}

/* A page depends on its items alone, not on how they came and went. */
static void equal_items_give_equal_bytes(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("unit/table/test_catalog_page"));
    for (unsigned round = 0; round < 200; round++) {
        uint8_t *page = page_make(PAGE_TYPE_CATALOG_LEAF, 0);
        uint8_t *again = page_make(PAGE_TYPE_CATALOG_LEAF, 0);
        fill_leaf(&random, page);
        const unsigned removed = catalog_page_count(page) / 2;
        for (unsigned i = 0; i < removed; i++) {
            catalog_leaf_remove(page, (unsigned)test_random_below(&random, catalog_page_count(page)));
        }
        for (unsigned i = catalog_page_count(page); i-- > 0;) {
            const struct catalog_key key = catalog_leaf_key(page, i);
            uint16_t size = 0;
            const uint8_t *value = catalog_leaf_value(page, i, &size);
            catalog_leaf_insert(again, 0, &key, value, size);
        }
        assert_memory_equal(page, again, BLOCK_SIZE);
        const unsigned cut = (unsigned)test_random_below(&random, catalog_page_count(page) + 1u);
        uint8_t *right = page_make(PAGE_TYPE_CATALOG_LEAF, 0);
        catalog_leaf_append(right, page, cut);
        catalog_leaf_truncate(page, cut);
        catalog_leaf_append(page, right, 0);
        assert_memory_equal(page, again, BLOCK_SIZE);
        free(right);
        free(page);
        free(again);
    }
}

static void single_faults_are_found(void **state)
{
    (void)state;
    uint8_t *page = page_make(PAGE_TYPE_CATALOG_LEAF, 0);
    struct page_header *header = (struct page_header *)page;
    assert_int_equal(-EIO, catalog_validate_leaf(&quiet, "f", page)); /* empty */
    struct catalog_key key = {.ino = INO_NONE, .sub = 1, .type = ITEM_SNAPSHOT};
    catalog_leaf_insert(page, 0, &key, "abc", 3);
    key.sub = 2;
    catalog_leaf_insert(page, 1, &key, "", 0);
    key.sub = 3;
    catalog_leaf_insert(page, 2, &key, "defg", 4);
    assert_int_equal(0, catalog_validate_leaf(&quiet, "f", page));
    struct catalog_item_head *heads = (struct catalog_item_head *)(page + PAGE_HEADER_SIZE);

    heads[1].reserved = 1;
    assert_int_equal(-EIO, catalog_validate_leaf(&quiet, "f", page));
    heads[1].reserved = 0;
    heads[1].key.sub = le64_of(1); /* twice the same key */
    assert_int_equal(-EIO, catalog_validate_leaf(&quiet, "f", page));
    heads[1].key.sub = le64_of(2);
    heads[2].value_offset = le16_of((uint16_t)(le16_get(heads[2].value_offset) + 1)); /* overlap */
    assert_int_equal(-EIO, catalog_validate_leaf(&quiet, "f", page));
    heads[2].value_offset = le16_of((uint16_t)(le16_get(heads[2].value_offset) - 2)); /* gap */
    assert_int_equal(-EIO, catalog_validate_leaf(&quiet, "f", page));
    heads[2].value_offset = le16_of((uint16_t)(le16_get(heads[2].value_offset) + 1));
    header->used = le16_of((uint16_t)(le16_get(header->used) + 1));
    assert_int_equal(-EIO, catalog_validate_leaf(&quiet, "f", page));
    header->used = le16_of((uint16_t)(le16_get(header->used) - 1));
    page[4000] = 1; /* between heads and values */
    assert_int_equal(-EIO, catalog_validate_leaf(&quiet, "f", page));
    page[4000] = 0;
    header->level = 1;
    assert_int_equal(-EIO, catalog_validate_leaf(&quiet, "f", page));
    header->level = 0;
    assert_int_equal(0, catalog_validate_leaf(&quiet, "f", page));
    free(page);
}

static const char *fault_of_tablespace(uint64_t number, uint8_t name_size, size_t size)
{
    uint8_t value[64] = {0};
    const struct catalog_key key = {.ino = INO_NONE, .sub = number, .type = ITEM_TABLESPACE};
    memset(value + sizeof(struct disk_tablespace), 'd', sizeof value - sizeof(struct disk_tablespace));
    ((struct disk_tablespace *)value)->name_size = name_size;
    return catalog_item_fault(&key, value, size);
}

static void bad_tablespaces_are_told(void **state)
{
    (void)state;
    const size_t head = sizeof(struct disk_tablespace);
    assert_null(fault_of_tablespace(1, 3, head + 10));
    assert_null(fault_of_tablespace(1, 3, head + 3)); /* in the data directory */
    assert_null(fault_of_tablespace(TS_DEFAULT, 0, sizeof(le32)));
    assert_non_null(fault_of_tablespace(TS_DEFAULT, 3, head + 10));
    assert_non_null(fault_of_tablespace(1, 3, head + 2));
    assert_non_null(fault_of_tablespace(1, 3, head - 1));
    assert_non_null(fault_of_tablespace(1, 0, head + 10));
    assert_non_null(fault_of_tablespace(UINT64_C(1) << 32, 3, head + 10));
}

static void bad_names_are_told(void **state)
{
    (void)state;
    char name[256];
    memset(name, 'n', sizeof name);
    assert_null(catalog_name_fault(name, 255));
    assert_non_null(catalog_name_fault(name, 256));
    assert_non_null(catalog_name_fault(name, 0));
    assert_non_null(catalog_name_fault(".", 1));
    assert_non_null(catalog_name_fault("..", 2));
    assert_null(catalog_name_fault("...", 3));
    assert_null(catalog_name_fault("\n\xff", 2));
    assert_non_null(catalog_name_fault("a/b", 3));
    assert_non_null(catalog_name_fault("a\0b", 3));
}

int main(void)
{
    diag_init_silent(&quiet);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_faults_are_found),
        cmocka_unit_test(bad_names_are_told),
        cmocka_unit_test(bad_tablespaces_are_told),
        cmocka_unit_test(equal_items_give_equal_bytes),
        cmocka_unit_test(mutated_leaves_are_refused_or_safe),
        cmocka_unit_test(mutated_inner_pages_are_refused_or_safe),
        cmocka_unit_test(random_bytes_are_refused_or_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
