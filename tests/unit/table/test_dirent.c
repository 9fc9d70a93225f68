/*
 * tests/unit/table/test_dirent.c - names in directories, with whole hashes and with hashes of 4 bits, where every name
 * collides with hundreds of others.
 */
#include "tests/unit/table/catalog_fixture.h"

#include <sys/stat.h>

#define DIR_INO   ((ino_no)5)
#define MANY      5000u
#define FIRST_INO ((ino_no)1000)
#define FILE_KIND (S_IFREG >> 12)

static const struct name_hash whole = {.seed = 77, .bits = 47};
static const struct name_hash narrow = {.seed = 77, .bits = 4};

static size_t name_of(char *name, size_t capacity, unsigned number)
{
    /* Lengths from 1 to 255. */
    const int size = snprintf(name, capacity, "%u", number);
    const size_t wanted = number % 17 == 0 ? number * 31 % 256 : 0;
    size_t length = (size_t)size;
    for (; length < wanted; length++) {
        name[length] = 'n';
    }
    return length;
}

static int add_name(struct fixture *fixture, const struct name_hash *hash, unsigned number)
{
    char name[300];
    const size_t size = name_of(name, sizeof name, number);
    struct catalog_batch batch;
    struct dirent_found found;
    uint64_t cookie = 0;
    catalog_batch_init(&batch, fixture->live);
    rwlock_lock_shared(&fixture->live->catalog_lock);
    assert_int_equal(-ENOENT, dirent_batch_find(&batch, hash, DIR_INO, name, size, &found));
    int rc = dirent_batch_new_cookie(&batch, hash, DIR_INO, name, size, &cookie);
    if (rc == 0) {
        rc = dirent_batch_put(&batch, DIR_INO, cookie, name, size, FIRST_INO + number, FILE_KIND);
    }
    if (rc == 0) {
        assert_int_equal(0, dirent_batch_find(&batch, hash, DIR_INO, name, size, &found));
        assert_int_equal(cookie, found.cookie);
    }
    rwlock_unlock_shared(&fixture->live->catalog_lock);
    if (rc == 0) {
        rc = fixture_run(fixture, &batch, true);
    }
    catalog_batch_free(&batch);
    return rc;
}

static int find_name(struct fixture *fixture, const struct name_hash *hash, unsigned number, struct dirent_found *found)
{
    char name[300];
    const size_t size = name_of(name, sizeof name, number);
    rwlock_lock_shared(&fixture->live->catalog_lock);
    const int rc = dirent_find(fixture->live, hash, DIR_INO, name, size, found);
    rwlock_unlock_shared(&fixture->live->catalog_lock);
    return rc;
}

static void remove_name(struct fixture *fixture, const struct name_hash *hash, unsigned number)
{
    struct dirent_found found;
    struct catalog_batch batch;
    assert_int_equal(0, find_name(fixture, hash, number, &found));
    catalog_batch_init(&batch, fixture->live);
    assert_int_equal(0, dirent_batch_remove(&batch, DIR_INO, found.cookie));
    assert_int_equal(0, fixture_run(fixture, &batch, true));
    catalog_batch_free(&batch);
}

/* ---- listing in portions ---- */

struct listing {
    bool present[MANY * 2];
    unsigned seen[MANY * 2];
    uint64_t last;
    unsigned portion;
};

static int list_entry(void *arg, uint64_t cookie, const char *name, size_t name_size, ino_no ino, uint8_t kind)
{
    struct listing *listing = arg;
    char want[300];
    const unsigned number = (unsigned)(ino - FIRST_INO);
    assert_true(cookie > listing->last && cookie <= INT64_MAX && cookie > 2);
    assert_int_equal(FILE_KIND, kind);
    assert_int_equal(name_of(want, sizeof want, number), name_size);
    assert_memory_equal(want, name, name_size);
    assert_true(listing->present[number]);
    listing->last = cookie;
    listing->seen[number]++;
    return --listing->portion == 0;
}

/* Lists in random portions; between them names go and new ones come. Each that stays is listed exactly once. */
static void list_while_changing(struct fixture *fixture, const struct name_hash *hash, struct listing *listing,
                                struct test_random *random)
{
    bool stayed[MANY];
    memcpy(stayed, listing->present, sizeof stayed);
    unsigned next_new = MANY;
    int rc = 1;
    while (rc == 1) {
        listing->portion = (unsigned)test_random_range(random, 1, 300);
        rwlock_lock_shared(&fixture->live->catalog_lock);
        rc = dirent_scan(fixture->live, DIR_INO, listing->last, list_entry, listing);
        rwlock_unlock_shared(&fixture->live->catalog_lock);
        for (unsigned i = 0; i < 20; i++) {
            const unsigned victim = (unsigned)test_random_below(random, MANY);
            if (listing->present[victim]) {
                remove_name(fixture, hash, victim);
                listing->present[victim] = stayed[victim] = false;
            }
        }
        assert_int_equal(0, add_name(fixture, hash, next_new));
        listing->present[next_new++] = true;
    }
    assert_int_equal(0, rc);
    for (unsigned number = 0; number < MANY; number++) {
        assert_true(listing->seen[number] <= 1);
        assert_true(!stayed[number] || listing->seen[number] == 1);
    }
}

static void fill_and_list(const struct name_hash *hash)
{
    struct fixture fixture;
    struct test_random random;
    test_random_init(&random, test_seed("unit/table/test_dirent"));
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    struct listing *listing = calloc(1, sizeof *listing);
    assert_non_null(listing);
    for (unsigned number = 0; number < MANY; number++) {
        assert_int_equal(0, add_name(&fixture, hash, number));
        listing->present[number] = true;
    }
    struct dirent_found found;
    for (unsigned number = 0; number < MANY; number++) {
        assert_int_equal(0, find_name(&fixture, hash, number, &found));
        assert_int_equal(FIRST_INO + number, found.ino);
    }
    assert_int_equal(-ENOENT, find_name(&fixture, hash, MANY, &found));
    list_while_changing(&fixture, hash, listing, &random);
    uint64_t items = 0;
    assert_int_equal(0, catalog_check(&fixture.diag, fixture.catalog, &fixture.live->root, &items));
    for (unsigned number = 0; number < MANY * 2; number++) {
        if (listing->present[number]) {
            remove_name(&fixture, hash, number);
            items--;
        }
    }
    assert_int_equal(0, items);
    assert_int_equal(0, fixture.live->root.height);
    free(listing);
    fixture_close(&fixture);
}

static void names_with_whole_hashes_are_listed_once(void **state)
{
    (void)state;
    fill_and_list(&whole);
}

static void names_with_4_bit_hashes_are_listed_once(void **state)
{
    (void)state;
    fill_and_list(&narrow);
}

/* ---- hashes and ties ---- */

static void hash_is_in_range(void **state)
{
    (void)state;
    const struct name_hash one_bit = {.seed = 1, .bits = 1};
    for (unsigned number = 0; number < 1000; number++) {
        char name[300];
        const size_t size = name_of(name, sizeof name, number);
        assert_int_equal(1, name_hash_of(&one_bit, name, size));
        assert_in_range(name_hash_of(&narrow, name, size), 1, 15);
        assert_in_range(name_hash_of(&whole, name, size), 1, (UINT64_C(1) << 47) - 1);
    }
    const struct name_hash other = {.seed = 78, .bits = 47};
    assert_int_not_equal(name_hash_of(&whole, "abc", 3), name_hash_of(&other, "abc", 3));
}

static void freed_tie_is_taken_again(void **state)
{
    (void)state;
    struct fixture fixture;
    struct dirent_found found;
    const struct name_hash one_bit = {.seed = 1, .bits = 1};
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    for (unsigned number = 1; number <= 5; number++) {
        assert_int_equal(0, add_name(&fixture, &one_bit, number));
        assert_int_equal(0, find_name(&fixture, &one_bit, number, &found));
        assert_int_equal(65536 + number - 1, found.cookie);
    }
    remove_name(&fixture, &one_bit, 2);
    assert_int_equal(0, add_name(&fixture, &one_bit, 6));
    assert_int_equal(0, find_name(&fixture, &one_bit, 6, &found));
    assert_int_equal(65536 + 1, found.cookie);
    assert_int_equal(0, add_name(&fixture, &one_bit, 7));
    assert_int_equal(0, find_name(&fixture, &one_bit, 7, &found));
    assert_int_equal(65536 + 5, found.cookie);
    fixture_close(&fixture);
}

/* All 65,536 ties of a hash. */
static void full_run_has_no_cookie(void **state)
{
    (void)state;
    struct fixture fixture;
    const struct name_hash one_bit = {.seed = 1, .bits = 1};
    fixture_open(&fixture, 1, 4096);
    for (unsigned number = 0; number < 65536;) {
        struct catalog_batch batch;
        catalog_batch_init(&batch, fixture.live);
        for (unsigned i = 0; i < 64; i++, number++) {
            char name[16];
            const size_t size = (size_t)snprintf(name, sizeof name, "x%u", number);
            assert_int_equal(0, dirent_batch_put(&batch, DIR_INO, 65536 + number, name, size, 9, FILE_KIND));
        }
        assert_int_equal(0, fixture_run(&fixture, &batch, true));
        catalog_batch_free(&batch);
    }
    assert_int_equal(-ENOSPC, add_name(&fixture, &one_bit, 1));
    struct catalog_batch batch;
    catalog_batch_init(&batch, fixture.live);
    assert_int_equal(0, dirent_batch_remove(&batch, DIR_INO, 65536 + 40000));
    uint64_t cookie = 0;
    rwlock_lock_shared(&fixture.live->catalog_lock);
    assert_int_equal(0, dirent_batch_new_cookie(&batch, &one_bit, DIR_INO, "new", 3, &cookie));
    rwlock_unlock_shared(&fixture.live->catalog_lock);
    assert_int_equal(65536 + 40000, cookie);
    catalog_batch_free(&batch);
    fixture_close(&fixture);
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    struct fixture fixture;
    struct catalog_batch batch;
    struct dirent_found found;
    char name[256];
    memset(name, 'n', sizeof name);
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    catalog_batch_init(&batch, fixture.live);
    rwlock_lock_shared(&fixture.live->catalog_lock);
    assert_int_equal(-ENAMETOOLONG, dirent_find(fixture.live, &whole, DIR_INO, name, 256, &found));
    assert_int_equal(-ENAMETOOLONG, dirent_batch_put(&batch, DIR_INO, 65536, name, 256, 7, FILE_KIND));
    assert_int_equal(0, dirent_batch_put(&batch, DIR_INO, 65536, name, 255, 7, FILE_KIND));
    assert_int_equal(-EINVAL, dirent_batch_put(&batch, DIR_INO, 65537, "a/b", 3, 7, FILE_KIND));
    assert_int_equal(-EINVAL, dirent_batch_put(&batch, DIR_INO, 65537, "", 0, 7, FILE_KIND));
    assert_int_equal(-EINVAL, dirent_batch_put(&batch, DIR_INO, 65535, "a", 1, 7, FILE_KIND)); /* hash 0 */
    assert_int_equal(-EINVAL, dirent_batch_put(&batch, DIR_INO, 65537, "a", 1, 0, FILE_KIND));
    assert_int_equal(-EINVAL, dirent_batch_put(&batch, DIR_INO, 65537, "a", 1, 7, 3));
    rwlock_unlock_shared(&fixture.live->catalog_lock);
    assert_int_equal(1, batch.count);
    catalog_batch_free(&batch);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_in_range),
        cmocka_unit_test(freed_tie_is_taken_again),
        cmocka_unit_test(full_run_has_no_cookie),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(names_with_whole_hashes_are_listed_once),
        cmocka_unit_test(names_with_4_bit_hashes_are_listed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
