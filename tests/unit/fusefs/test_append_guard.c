/*
 * tests/unit/fusefs/test_append_guard.c - which bytes page write-back may change, against a map of single bytes.
 */
#include "fusefs/append_guard.h"
#include "tests/lib/test_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FILE_MAX 2000u

static void expect_parts(struct append_guard *guard, uint64_t first, uint64_t end, const struct guard_range *parts,
                         size_t count)
{
    struct guard_range part = {.end_byte = first};
    for (size_t index = 0; index < count; index++) {
        assert_true(append_guard_clip(guard, part.end_byte, end, &part));
        assert_int_equal(part.first_byte, parts[index].first_byte);
        assert_int_equal(part.end_byte, parts[index].end_byte);
    }
    assert_false(append_guard_clip(guard, part.end_byte, end, &part));
}

static void append(struct append_guard *guard, uint64_t size, uint64_t first, uint64_t end)
{
    append_guard_begin(guard, size);
    append_guard_end(guard, first, end);
}

static void no_append_leaves_all_writable(void **state)
{
    struct append_guard guard;
    const struct guard_range all = {0, 4096};
    (void)state;
    append_guard_init(&guard);
    expect_parts(&guard, 0, 4096, &all, 1);
    append_guard_open_read_write(&guard);
    expect_parts(&guard, 0, 4096, &all, 1);
    append_guard_close_read_write(&guard);
    append_guard_destroy(&guard);
}

static void appended_bytes_are_left_out(void **state)
{
    struct append_guard guard;
    const struct guard_range parts[] = {{0, 100}, {150, 200}, {260, 4096}};
    (void)state;
    append_guard_init(&guard);
    append_guard_open_read_write(&guard);
    append(&guard, 100, 100, 120);
    append(&guard, 120, 120, 150); /* joined with the one before */
    append(&guard, 200, 200, 260);
    assert_int_equal(guard.count, 2);
    expect_parts(&guard, 0, 4096, parts, 3);
    expect_parts(&guard, 110, 140, NULL, 0);
    expect_parts(&guard, 150, 200, &parts[1], 1);
    append_guard_close_read_write(&guard);
    append_guard_destroy(&guard);
}

static void append_under_way_guards_all_behind_the_size(void **state)
{
    struct append_guard guard;
    const struct guard_range head = {0, 100}, all = {0, 4096};
    (void)state;
    append_guard_init(&guard);
    append_guard_open_read_write(&guard);
    append_guard_begin(&guard, 300);
    append_guard_begin(&guard, 100);
    expect_parts(&guard, 0, 4096, &head, 1);
    append_guard_end(&guard, 0, 0); /* failed */
    expect_parts(&guard, 0, 4096, &head, 1);
    append_guard_end(&guard, 0, 0);
    expect_parts(&guard, 0, 4096, &all, 1);
    append_guard_close_read_write(&guard);
    append_guard_destroy(&guard);
}

static void last_read_write_handle_forgets_ranges(void **state)
{
    struct append_guard guard;
    const struct guard_range head = {0, 100}, all = {0, 4096};
    (void)state;
    append_guard_init(&guard);
    append_guard_open_read_write(&guard);
    append_guard_open_read_write(&guard);
    append(&guard, 100, 100, 5000);
    append_guard_close_read_write(&guard);
    assert_true(append_guard_is_needed(&guard));
    expect_parts(&guard, 0, 4096, &head, 1);
    append_guard_close_read_write(&guard);
    assert_false(append_guard_is_needed(&guard));
    expect_parts(&guard, 0, 4096, &all, 1);
    append_guard_destroy(&guard);
}

static void append_without_read_write_handle_is_not_kept(void **state)
{
    struct append_guard guard;
    const struct guard_range all = {0, 4096};
    (void)state;
    append_guard_init(&guard);
    append(&guard, 100, 100, 200);
    append_guard_open_read_write(&guard);
    expect_parts(&guard, 0, 4096, &all, 1);
    append_guard_close_read_write(&guard);
    append_guard_destroy(&guard);
}

static void cut_file_loses_ranges_behind_its_end(void **state)
{
    struct append_guard guard;
    const struct guard_range parts[] = {{0, 100}, {150, 4096}};
    (void)state;
    append_guard_init(&guard);
    append_guard_open_read_write(&guard);
    append(&guard, 100, 100, 200);
    append(&guard, 300, 300, 400);
    append_guard_cut(&guard, 150);
    expect_parts(&guard, 0, 4096, parts, 2);
    append_guard_close_read_write(&guard);
    append_guard_destroy(&guard);
}

/* The model: one flag for each byte of a file. */
struct byte_map {
    bool guarded[FILE_MAX];
    uint64_t size;
};

static void expect_map(struct append_guard *guard, const struct byte_map *map)
{
    bool writable[FILE_MAX] = {false};
    struct guard_range part = {.end_byte = 0};
    while (append_guard_clip(guard, part.end_byte, map->size, &part))
        memset(writable + part.first_byte, 1, part.end_byte - part.first_byte);
    for (uint64_t at = 0; at < map->size; at++)
        assert_int_equal(writable[at], !map->guarded[at]);
}

static void random_step(struct test_random *random, struct append_guard *guard, struct byte_map *map)
{
    const uint64_t size = test_random_range(random, 1, 60);
    if (map->size + size > FILE_MAX || test_random_chance(random, 10)) {
        map->size = test_random_below(random, map->size + 1);
        append_guard_cut(guard, map->size);
        memset(map->guarded + map->size, 0, FILE_MAX - map->size);
    } else if (test_random_chance(random, 60)) {
        append(guard, map->size, map->size, map->size + size);
        memset(map->guarded + map->size, 1, size);
        map->size += size;
    } else {
        map->size += size; /* a positional write behind the end */
    }
}

static void random_appends_and_cuts_agree_with_byte_map(void **state)
{
    struct test_random random;
    struct append_guard guard;
    struct byte_map map = {.size = 0};
    (void)state;
    test_random_init(&random, test_seed("test_append_guard"));
    append_guard_init(&guard);
    append_guard_open_read_write(&guard);
    for (unsigned step = 0; step < 3000; step++) {
        random_step(&random, &guard, &map);
        expect_map(&guard, &map);
    }
    append_guard_close_read_write(&guard);
    append_guard_destroy(&guard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_append_leaves_all_writable),
        cmocka_unit_test(appended_bytes_are_left_out),
        cmocka_unit_test(append_under_way_guards_all_behind_the_size),
        cmocka_unit_test(last_read_write_handle_forgets_ranges),
        cmocka_unit_test(append_without_read_write_handle_is_not_kept),
        cmocka_unit_test(cut_file_loses_ranges_behind_its_end),
        cmocka_unit_test(random_appends_and_cuts_agree_with_byte_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
