/* tests/unit/bufcache/test_relation.c - relation files, their descriptors and syncs. */
#include "tests/unit/bufcache/fixture.h"

static void relation_open_touches_no_file(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation, *again, *other;
    bool exists;
    assert_int_equal(relation_open(fixture->cache, 99, 5, &relation), -ENOENT);
    assert_int_equal(relation_open(fixture->cache, FIXTURE_TS, REL_NONE, &relation), -EINVAL);
    const uint64_t opens = fixture_calls(fixture, MEM_CALL_OPEN);
    relation = fixture_relation(fixture, 5);
    again = fixture_relation(fixture, 5);
    assert_ptr_equal(relation, again);
    assert_int_equal(relation_number(relation), 5);
    assert_int_equal(relation_tablespace(relation), FIXTURE_TS);
    assert_int_equal(relation_file_exists(relation, &exists), 0);
    assert_false(exists);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_OPEN), opens);
    /* one object for one number */
    assert_int_equal(io_make_dir(mem_device_io(fixture->mem), "/two"), 0);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, 2, "/two"), 0);
    assert_int_equal(relation_open(fixture->cache, 2, 5, &other), -EEXIST);
    relation_unref(relation);
    relation_unref(again);
    relation_unref(NULL);
    fixture_destroy(fixture);
}

static void destroy_map(void *map)
{
    *(unsigned *)map += 1;
}

static bool has_map(const struct relation *relation)
{
    return relation_map(relation) != NULL;
}

static void retained_relation_keeps_its_map_without_a_reference(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    unsigned destroyed[2] = {0, 0};
    struct relation **listed = NULL;
    for (unsigned i = 0; i < 2; i++) {
        struct relation *relation = fixture_create_relation(fixture, 5 + i, 3);
        assert_ptr_equal(relation_set_map(relation, &destroyed[i], destroy_map), &destroyed[i]);
        if (i == 0)
            relation_retain(relation);
        assert_int_equal(relation_sync(relation), 0);
        relation_unref(relation);
    }
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0); /* their references of the unsynced list */
    assert_int_equal(destroyed[0], 0);
    assert_int_equal(destroyed[1], 1);
    assert_int_equal(bufcache_list_relations(fixture->cache, has_map, &listed), 1);
    assert_int_equal(relation_number(listed[0]), 5);
    relation_unref(listed[0]);
    free(listed);
    for (unsigned round = 0; round < 3; round++) {
        struct relation *relation = fixture_relation(fixture, 5);
        assert_ptr_equal(relation_map(relation), &destroyed[0]);
        relation_unref(relation);
        assert_int_equal(bufcache_check(fixture->cache), 0);
    }
    struct relation *victim = fixture_relation(fixture, 5);
    struct drop_result result;
    bufcache_drop_relations(fixture->cache, &victim, 1, &result);
    assert_int_equal(relation_unlink_file(victim), 0);
    relation_unref(victim);
    assert_int_equal(destroyed[0], 1); /* it is dead: nobody wants it */
    fixture_destroy(fixture);
}

static void tablespace_add_twice_same_directory_only(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, FIXTURE_TS, "/data"), 0);
    assert_int_equal(io_make_dir(mem_device_io(fixture->mem), "/two"), 0);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, FIXTURE_TS, "/two"), -EEXIST);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, 3, "/missing"), -ENOENT);
    fixture_destroy(fixture);
}

static void relation_create_file_existing_taken_as_it_is(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 5, 3);
    block_no blocks;
    assert_int_equal(fixture_stats(fixture).relation_files_created, 1);
    relation_unref(relation);
    fixture_reopen(fixture, 512);
    relation = fixture_relation(fixture, 5);
    assert_int_equal(relation_create_file(relation), 0);
    assert_int_equal(relation_file_blocks(relation, &blocks), 0);
    assert_int_equal(blocks, 3);
    assert_int_equal(fixture_stats(fixture).relation_files_created, 0);
    relation_unref(relation);
    fixture_destroy(fixture);
}

/* A kill or a power cut in the middle of an extension. */
static void relation_file_blocks_part_of_a_block_at_the_end_does_not_count(void **state)
{
    (void)state;
    static uint8_t bytes[2 * BLOCK_SIZE + BLOCK_SIZE / 2];
    struct fixture *fixture = fixture_create(512);
    struct io_stat stat;
    block_no blocks = 77;
    char path[64];
    fixture_path(5, path, sizeof path);
    mem_device_put_file(fixture->mem, path, bytes, sizeof bytes);
    struct relation *relation = fixture_relation(fixture, 5);
    assert_int_equal(relation_file_blocks(relation, &blocks), 0);
    assert_int_equal(blocks, 2);
    assert_int_equal(relation_extend(relation, 4), 0);
    assert_int_equal(relation_file_blocks(relation, &blocks), 0);
    assert_int_equal(blocks, 4);
    assert_int_equal(io_stat(mem_device_io(fixture->mem), path, &stat), 0);
    assert_int_equal(stat.size_bytes, 4 * BLOCK_SIZE);
    assert_int_equal(fixture->diag.damage_count, 0);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void relation_file_blocks_missing_or_no_file_is_damage(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_relation(fixture, 5);
    block_no blocks = 77;
    bool exists;
    char path[64];
    assert_int_equal(relation_file_blocks(relation, &blocks), -EIO);
    assert_non_null(strstr(fixture->last_line, "0000000000000005"));
    assert_int_equal(relation_extend(relation, 1), -EIO);
    relation_unref(relation);
    fixture_path(6, path, sizeof path);
    assert_int_equal(io_make_dir(mem_device_io(fixture->mem), path), 0);
    relation = fixture_relation(fixture, 6);
    assert_int_equal(relation_file_blocks(relation, &blocks), -EIO);
    assert_non_null(strstr(fixture->last_line, "a directory"));
    assert_int_equal(relation_create_file(relation), -EIO);
    assert_int_equal(relation_file_exists(relation, &exists), -EIO);
    assert_int_equal(blocks, 77);
    assert_int_equal(fixture->diag.damage_count, 5);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void relation_extend_full_disk_leaves_file_as_it_was(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 5, 3);
    block_no blocks;
    mem_device_set_capacity(fixture->mem, 10 * BLOCK_SIZE);
    assert_int_equal(relation_extend(relation, 20), -ENOSPC);
    assert_int_equal(relation_file_blocks(relation, &blocks), 0);
    assert_int_equal(blocks, 3);
    assert_int_equal(bufcache_failed(fixture->cache), 0);
    assert_int_equal(relation_extend(relation, 8), 0);
    assert_int_equal(relation_extend(relation, 2), 0); /* never shrinks */
    assert_int_equal(relation_file_blocks(relation, &blocks), 0);
    assert_int_equal(blocks, 8);
    assert_int_equal(relation_cut(relation, 4), 0);
    assert_int_equal(relation_cut(relation, 6), 0);
    assert_int_equal(relation_file_blocks(relation, &blocks), 0);
    assert_int_equal(blocks, 4);
    relation_unref(relation);
    fixture_destroy(fixture);
}

/* As a filesystem that allocates part of the range before it is full. */
static int grow_then_fail(void *arg, const struct mem_event *event)
{
    struct fixture *fixture = arg;
    static const uint8_t zeros[5 * BLOCK_SIZE];
    if (event->call != MEM_CALL_ALLOCATE)
        return 0;
    mem_device_put_file(fixture->mem, event->path, zeros, sizeof zeros);
    return -ENOSPC;
}

static void relation_extend_failed_half_way_cut_back(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 5, 3);
    block_no blocks;
    mem_device_set_hook(fixture->mem, grow_then_fail, fixture);
    assert_int_equal(relation_extend(relation, 20), -ENOSPC);
    mem_device_set_hook(fixture->mem, NULL, NULL);
    relation_unref(relation);
    fixture_reopen(fixture, 512);
    relation = fixture_relation(fixture, 5);
    assert_int_equal(relation_file_blocks(relation, &blocks), 0);
    assert_int_equal(blocks, 3);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void relation_unlink_file_missing_is_fine(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 5, 3);
    bool exists;
    bufcache_drop_relations(fixture->cache, &relation, 1, NULL);
    assert_int_equal(relation_unlink_file(relation), 0);
    assert_int_equal(relation_unlink_file(relation), 0);
    assert_int_equal(relation_file_exists(relation, &exists), 0);
    assert_false(exists);
    assert_int_equal(fixture_stats(fixture).relation_files_unlinked, 1);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void relation_sync_file_and_new_name_once(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 5, 3);
    mem_device_counters_reset(fixture->mem);
    assert_int_equal(relation_sync(relation), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC), 1);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC_DIR), 1);
    assert_int_equal(relation_sync(relation), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC), 1);
    fixture_make_pages(fixture, relation, 0, 1, 5);
    fixture_write_all(fixture);
    assert_int_equal(relation_sync(relation), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC), 2);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC_DIR), 1);
    relation_unref(relation);
    fixture_destroy(fixture);
}

static void sync_relations_each_file_and_directory_once(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    for (rel_no rel = 1; rel <= 20; rel++) /* two directories, ten files each, references given back */
        relation_unref(fixture_create_relation(fixture, rel % 2 + rel / 2 * 256 + 256, 2));
    mem_device_counters_reset(fixture->mem);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC), 20);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC_DIR), 2);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC_FILESYSTEM), 0);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC), 20);
    fixture_destroy(fixture);
}

static void sync_relations_many_filesystem_first(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    for (rel_no rel = 1; rel <= 100; rel++)
        relation_unref(fixture_create_relation(fixture, rel, 1));
    mem_device_counters_reset(fixture->mem);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC_FILESYSTEM), 1);
    fixture_destroy(fixture);
}

static void sync_relations_dropped_ones_left_out(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relations[4];
    for (rel_no rel = 0; rel < 4; rel++)
        relations[rel] = fixture_create_relation(fixture, rel + 1, 1);
    bufcache_drop_relations(fixture->cache, relations, 3, NULL);
    mem_device_counters_reset(fixture->mem);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC), 1);
    for (unsigned i = 0; i < 4; i++)
        relation_unref(relations[i]);
    fixture_destroy(fixture);
}

static void sync_failure_stops_for_good(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 5, 3);
    struct relation *other = fixture_create_relation(fixture, 6, 3);
    fixture_make_pages(fixture, relation, 0, 2, 5);
    fixture_write_all(fixture);
    fixture_make_pages(fixture, relation, 2, 1, 5);
    mem_device_fail(fixture->mem, MEM_CALL_SYNC, 1, EIO, false);
    assert_int_equal(relation_sync(relation), -EIO);
    assert_int_equal(bufcache_failed(fixture->cache), -EIO);
    mem_device_counters_reset(fixture->mem);
    assert_int_equal(relation_sync(relation), -EIO);
    assert_int_equal(relation_sync(other), -EIO);
    assert_int_equal(bufcache_sync_relations(fixture->cache), -EIO);
    assert_int_equal(bufcache_write_back(fixture->cache, UINT64_MAX, NULL), -EIO);
    assert_int_equal(relation_extend(relation, 9), -EIO);
    assert_int_equal(relation_create_file(other), -EIO);
    assert_int_equal(relation_cut(relation, 1), -EIO);
    assert_int_equal(fixture_calls(fixture, MEM_CALL_WRITE) + fixture_calls(fixture, MEM_CALL_ALLOCATE) +
                         fixture_calls(fixture, MEM_CALL_TRUNCATE),
                     0);
    fixture_read_page(relation, ptr_of(0, 5)); /* reads go on */
    page_discard(relation, 0);
    fixture_read_page(relation, ptr_of(0, 5));
    relation_unref(relation);
    relation_unref(other);
    fixture_destroy(fixture);
}

static void sync_of_directory_failure_stops_for_good(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 5, 3);
    mem_device_fail(fixture->mem, MEM_CALL_SYNC_DIR, 1, EIO, false);
    assert_int_equal(bufcache_sync_relations(fixture->cache), -EIO);
    assert_int_equal(bufcache_sync_relations(fixture->cache), -EIO);
    relation_unref(relation);
    fixture_destroy(fixture);
}

/* Few descriptors, a hundred relations: never more open, all synced before they are closed (R1 of the reliability
 * rules: an error would be lost with the descriptor). */
static void check_descriptor_limit(bool sync_filesystem)
{
    struct fixture *fixture = fixture_create(1024);
    struct relation *relations[100];
    struct mem_counters counters;
    bufcache_close(fixture->cache);
    struct bufcache_options options = fixture_options(fixture, 1024);
    const uint32_t limit = sync_filesystem ? 64 : 8;
    options.max_open_files = limit;
    assert_int_equal(bufcache_open(&options, &fixture->cache), 0);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, FIXTURE_TS, "/data"), 0);
    if (!sync_filesystem)
        mem_device_fail(fixture->mem, MEM_CALL_SYNC_FILESYSTEM, 1, EOPNOTSUPP, true);
    for (rel_no rel = 0; rel < 100; rel++) {
        relations[rel] = fixture_create_relation(fixture, rel + 1, 2);
        fixture_make_pages(fixture, relations[rel], 0, 2, 5);
        mem_device_counters(fixture->mem, &counters);
        assert_true(counters.open_files <= limit + 1); /* and the directory of the tablespace */
    }
    const uint64_t syncs = fixture_calls(fixture, MEM_CALL_SYNC);
    fixture_write_all(fixture);
    assert_int_equal(fixture_stats(fixture).write_calls, 100);
    if (sync_filesystem) {
        assert_in_range(fixture_calls(fixture, MEM_CALL_SYNC), 0, 32);
        assert_in_range(fixture_calls(fixture, MEM_CALL_SYNC_FILESYSTEM), 1, 6);
    } else {
        assert_true(syncs >= 92);
        assert_true(fixture_calls(fixture, MEM_CALL_SYNC) >= syncs + 92);
        assert_int_equal(fixture_calls(fixture, MEM_CALL_SYNC_FILESYSTEM), 1); /* it is asked once */
    }
    for (rel_no rel = 0; rel < 100; rel++) {
        page_discard(relations[rel], 1);
        fixture_read_page(relations[rel], ptr_of(1, 5));
    }
    mem_device_counters(fixture->mem, &counters);
    assert_int_equal(counters.open_files, limit + 1);
    for (rel_no rel = 0; rel < 100; rel++)
        relation_unref(relations[rel]);
    fixture_destroy(fixture);
}

static void descriptor_cache_limit_holds_and_syncs_before_closing(void **state)
{
    (void)state;
    check_descriptor_limit(false);
}

static void descriptor_cache_limit_holds_and_syncs_many_at_once(void **state)
{
    (void)state;
    check_descriptor_limit(true);
}

/* Writes to every relation while the filesystem is being synced. */
struct busy {
    struct relation *relations[40];
    bool entered;
    int result; /* of the sync of the filesystem */
};

static int write_during_sync(void *arg, const struct mem_event *event)
{
    struct busy *busy = arg;
    if (event->call != MEM_CALL_SYNC_FILESYSTEM || busy->entered)
        return 0;
    busy->entered = true;
    for (unsigned i = 0; i < ARRAY_COUNT(busy->relations); i++)
        assert_int_equal(relation_extend(busy->relations[i], 3), 0);
    return busy->result;
}

static void check_written_during_sync(bool sync_filesystem)
{
    struct fixture *fixture = fixture_create(512);
    struct busy busy = {.result = sync_filesystem ? 0 : -EOPNOTSUPP};
    for (unsigned i = 0; i < ARRAY_COUNT(busy.relations); i++)
        busy.relations[i] = fixture_create_relation(fixture, i + 1, 2);
    mem_device_set_hook(fixture->mem, write_during_sync, &busy);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0);
    assert_true(busy.entered);
    const uint64_t syncs = fixture_calls(fixture, MEM_CALL_SYNC);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0); /* what was written meanwhile is not forgotten */
    for (unsigned i = 0; i < ARRAY_COUNT(busy.relations); i++)
        assert_int_equal(relation_sync(busy.relations[i]), 0);
    assert_true(fixture_calls(fixture, MEM_CALL_SYNC) + fixture_calls(fixture, MEM_CALL_SYNC_FILESYSTEM) > syncs);
    for (unsigned i = 0; i < ARRAY_COUNT(busy.relations); i++)
        relation_unref(busy.relations[i]);
    fixture_destroy(fixture);
}

static void relations_written_during_a_filesystem_sync_are_synced_again(void **state)
{
    (void)state;
    check_written_during_sync(true);
    check_written_during_sync(false);
}

static void descriptor_cache_failed_sync_on_closing_not_lost(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relations[9];
    bufcache_close(fixture->cache);
    struct bufcache_options options = fixture_options(fixture, 512);
    options.max_open_files = 8;
    assert_int_equal(bufcache_open(&options, &fixture->cache), 0);
    assert_int_equal(bufcache_tablespace_add(fixture->cache, FIXTURE_TS, "/data"), 0);
    mem_device_fail(fixture->mem, MEM_CALL_SYNC, 1, EIO, false);
    for (rel_no rel = 0; rel < 9; rel++) {
        relations[rel] = fixture_relation(fixture, rel + 1);
        assert_int_equal(relation_create_file(relations[rel]), 0); /* the ninth closes the first */
    }
    assert_int_equal(bufcache_failed(fixture->cache), -EIO);
    assert_int_equal(relation_sync(relations[8]), -EIO);
    assert_int_equal(bufcache_sync_relations(fixture->cache), -EIO);
    for (rel_no rel = 0; rel < 9; rel++)
        relation_unref(relations[rel]);
    fixture_destroy(fixture);
}

static void count_destroy(void *map)
{
    ++*(unsigned *)map;
}

static void relation_map_destroyed_with_the_relation(void **state)
{
    (void)state;
    struct fixture *fixture = fixture_create(512);
    struct relation *relation = fixture_create_relation(fixture, 5, 3);
    unsigned destroyed = 0;
    assert_null(relation_map(relation));
    unsigned second = 0;
    assert_ptr_equal(relation_set_map(relation, &destroyed, count_destroy), &destroyed);
    assert_ptr_equal(relation_set_map(relation, &second, count_destroy), &destroyed); /* the first one wins */
    assert_ptr_equal(relation_map(relation), &destroyed);
    fixture_make_pages(fixture, relation, 0, 1, 5);
    fixture_write_all(fixture);
    assert_int_equal(bufcache_sync_relations(fixture->cache), 0);
    relation_unref(relation);
    assert_int_equal(destroyed, 0); /* its page keeps it */
    relation = fixture_relation(fixture, 5);
    page_discard(relation, 0);
    assert_int_equal(destroyed, 0);
    relation_unref(relation);
    assert_int_equal(destroyed, 1);
    assert_int_equal(second, 0);
    fixture_destroy(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relation_open_touches_no_file),
        cmocka_unit_test(retained_relation_keeps_its_map_without_a_reference),
        cmocka_unit_test(tablespace_add_twice_same_directory_only),
        cmocka_unit_test(relation_create_file_existing_taken_as_it_is),
        cmocka_unit_test(relation_file_blocks_part_of_a_block_at_the_end_does_not_count),
        cmocka_unit_test(relation_file_blocks_missing_or_no_file_is_damage),
        cmocka_unit_test(relation_extend_full_disk_leaves_file_as_it_was),
        cmocka_unit_test(relation_extend_failed_half_way_cut_back),
        cmocka_unit_test(relation_unlink_file_missing_is_fine),
        cmocka_unit_test(relation_sync_file_and_new_name_once),
        cmocka_unit_test(sync_relations_each_file_and_directory_once),
        cmocka_unit_test(sync_relations_many_filesystem_first),
        cmocka_unit_test(sync_relations_dropped_ones_left_out),
        cmocka_unit_test(sync_failure_stops_for_good),
        cmocka_unit_test(sync_of_directory_failure_stops_for_good),
        cmocka_unit_test(descriptor_cache_limit_holds_and_syncs_before_closing),
        cmocka_unit_test(descriptor_cache_limit_holds_and_syncs_many_at_once),
        cmocka_unit_test(relations_written_during_a_filesystem_sync_are_synced_again),
        cmocka_unit_test(descriptor_cache_failed_sync_on_closing_not_lost),
        cmocka_unit_test(relation_map_destroyed_with_the_relation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
