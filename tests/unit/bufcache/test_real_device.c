/* tests/unit/bufcache/test_real_device.c - the same on files that the kernel keeps. */
#include "tests/unit/bufcache/fixture.h"

#include <sys/stat.h>

static struct bufcache *open_real(struct fixture *fixture, const char *dir)
{
    struct bufcache *cache;
    struct bufcache_options options = fixture_options(fixture, 512);
    options.dev = io_real_device();
    assert_int_equal(bufcache_open(&options, &cache), 0);
    assert_int_equal(bufcache_tablespace_add(cache, FIXTURE_TS, dir), 0);
    return cache;
}

static void real_files_written_synced_read_back(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    char *dir = test_dir_create();
    struct bufcache *memory_cache = fixture->cache;
    struct relation *relations[40];
    fixture->cache = open_real(fixture, dir);
    for (rel_no rel = 0; rel < 40; rel++) {
        relations[rel] = fixture_create_relation(fixture, rel + 1, 40);
        fixture_make_pages(fixture, relations[rel], 0, 40, 5);
        relation_unref(relations[rel]);
    }
    fixture_write_all(fixture);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0);
    assert_int_equal(bufcache_check(fixture->cache), 0);
    bufcache_close(fixture->cache);
    fixture->cache = open_real(fixture, dir);
    for (rel_no rel = 0; rel < 40; rel++) {
        relations[rel] = fixture_relation(fixture, rel + 1);
        for (block_no block = 0; block < 40; block++)
            fixture_read_page(relations[rel], ptr_of(block, 5));
    }
    bufcache_drop_relations(fixture->cache, relations, 40, NULL);
    for (rel_no rel = 0; rel < 40; rel++) {
        assert_int_equal(relation_unlink_file(relations[rel]), 0);
        relation_unref(relations[rel]);
    }
    assert_int_equal(bufcache_check(fixture->cache), 0);
    bufcache_close(fixture->cache);
    fixture->cache = memory_cache;
    test_dir_remove(dir);
    fixture_destroy(fixture);
}

/* What stands in a relation file's place is an error that names it, not a hang. */
static void fifo_in_place_of_a_relation_refused(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    char *dir = test_dir_create();
    struct bufcache *memory_cache = fixture->cache;
    struct relation *relation;
    struct frame *frame;
    block_no blocks;
    fixture->cache = open_real(fixture, dir);
    char *path = test_path_join(dir, "rel/05/0000000000000005");
    assert_int_equal(mkfifo(path, 0600), 0);
    relation = fixture_relation(fixture, 5);
    assert_int_equal(relation_file_blocks(relation, &blocks), -EIO);
    assert_non_null(strstr(fixture->last_line, "a special file"));
    assert_int_equal(page_read(relation, ptr_of(0, 5), LEAF, 0, &frame), -EIO);
    assert_int_equal(relation_create_file(relation), -EIO);
    relation_unref(relation);
    bufcache_close(fixture->cache);
    fixture->cache = memory_cache;
    free(path);
    test_dir_remove(dir);
    fixture_destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_files_written_synced_read_back),
        cmocka_unit_test(fifo_in_place_of_a_relation_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
