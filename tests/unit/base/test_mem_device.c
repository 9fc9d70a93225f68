/*
 * tests/unit/base/test_mem_device.c - the device in memory behaves as a directory of the machine does.
 *
 * The same random calls go to both; results, errno, contents and listings have to agree. Then what only the device in
 * memory has: counters, capacity, faults, hook, clones.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define OPEN_MAX_FILES 6
#define SPAN           60000u

/* One side of the comparison. */
struct side {
    struct io_device *dev;
    const char *root;
    struct io_file *files[OPEN_MAX_FILES];
};

struct pair {
    struct side real;
    struct side mem;
    struct test_random random;
};

static const char *const names[] = {"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "missing/a", "a/x"};

static void path_of(const struct side *side, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", side->root, name);
}

static const char *any_name(struct pair *pair)
{
    return names[test_random_below(&pair->random, ARRAY_COUNT(names))];
}

static void same_open(struct pair *pair)
{
    char real[300];
    char mem[300];
    const size_t slot = test_random_below(&pair->random, OPEN_MAX_FILES);
    const char *name = any_name(pair);
    const unsigned flags = (unsigned)test_random_below(&pair->random, 16);
    if ((flags & IO_TRUNCATE) && !(flags & IO_READ_WRITE))
        return; /* POSIX leaves it open */
    if (pair->real.files[slot]) {
        assert_int_equal(io_close(pair->real.files[slot]), io_close(pair->mem.files[slot]));
        pair->real.files[slot] = pair->mem.files[slot] = NULL;
    }
    path_of(&pair->real, name, real, sizeof real);
    path_of(&pair->mem, name, mem, sizeof mem);
    const int result = io_open(pair->real.dev, real, flags, &pair->real.files[slot]);
    assert_int_equal(io_open(pair->mem.dev, mem, flags, &pair->mem.files[slot]), result);
}

/* A slot with an open file, or -1. */
static int any_open(struct pair *pair)
{
    const int slot = (int)test_random_below(&pair->random, OPEN_MAX_FILES);
    return pair->real.files[slot] ? slot : -1;
}

static void same_write(struct pair *pair)
{
    static uint8_t data[SPAN];
    const int slot = any_open(pair);
    if (slot < 0)
        return;
    const size_t size = test_random_below(&pair->random, test_random_chance(&pair->random, 50) ? 100 : 30000);
    const uint64_t offset = test_random_below(&pair->random, SPAN);
    test_random_bytes(&pair->random, data, size);
    const int result = io_write_full(pair->real.files[slot], data, size, offset);
    assert_int_equal(io_write_full(pair->mem.files[slot], data, size, offset), result);
}

static void assert_same_content(struct io_file *real, struct io_file *mem, uint64_t offset, size_t size)
{
    static uint8_t from_real[2 * SPAN];
    static uint8_t from_mem[2 * SPAN];
    size_t got_real = 0;
    size_t got_mem = 0;
    const int result = io_read_full(real, from_real, size, offset, &got_real);
    assert_int_equal(io_read_full(mem, from_mem, size, offset, &got_mem), result);
    assert_int_equal(got_mem, got_real);
    assert_memory_equal(from_mem, from_real, got_real);
}

static void same_read(struct pair *pair)
{
    const int slot = any_open(pair);
    if (slot >= 0)
        assert_same_content(pair->real.files[slot], pair->mem.files[slot], test_random_below(&pair->random, SPAN),
                            1 + test_random_below(&pair->random, SPAN));
}

static void same_size_change(struct pair *pair)
{
    const int slot = any_open(pair);
    if (slot < 0)
        return;
    struct io_file *real = pair->real.files[slot];
    struct io_file *mem = pair->mem.files[slot];
    const uint64_t offset = test_random_below(&pair->random, SPAN);
    const uint64_t size = test_random_below(&pair->random, SPAN / 2);
    switch (test_random_below(&pair->random, 3)) {
    case 0:
        assert_int_equal(io_truncate(mem, offset), io_truncate(real, offset));
        break;
    case 1:
        assert_int_equal(io_allocate(mem, offset, size), io_allocate(real, offset, size));
        break;
    default:
        assert_int_equal(io_punch(mem, offset, size), io_punch(real, offset, size));
        break;
    }
}

static void same_stat(struct pair *pair)
{
    char real[300];
    char mem[300];
    struct io_stat of_real;
    struct io_stat of_mem;
    const char *name = any_name(pair);
    path_of(&pair->real, name, real, sizeof real);
    path_of(&pair->mem, name, mem, sizeof mem);
    const int result = io_stat(pair->real.dev, real, &of_real);
    assert_int_equal(io_stat(pair->mem.dev, mem, &of_mem), result);
    if (result < 0)
        return;
    assert_int_equal(of_mem.kind, of_real.kind);
    if (of_real.kind == IO_KIND_FILE)
        assert_int_equal(of_mem.size_bytes, of_real.size_bytes);
}

static void same_name_change(struct pair *pair)
{
    char real[300];
    char mem[300];
    char real_to[300];
    char mem_to[300];
    const char *name = any_name(pair);
    path_of(&pair->real, name, real, sizeof real);
    path_of(&pair->mem, name, mem, sizeof mem);
    name = any_name(pair);
    path_of(&pair->real, name, real_to, sizeof real_to);
    path_of(&pair->mem, name, mem_to, sizeof mem_to);
    switch (test_random_below(&pair->random, 5)) {
    case 0:
        assert_int_equal(io_unlink(pair->mem.dev, mem), io_unlink(pair->real.dev, real));
        break;
    case 1:
        assert_int_equal(io_rename(pair->mem.dev, mem, mem_to), io_rename(pair->real.dev, real, real_to));
        break;
    case 2:
        assert_int_equal(io_make_dir(pair->mem.dev, mem), io_make_dir(pair->real.dev, real));
        break;
    case 3:
        assert_int_equal(io_remove_dir(pair->mem.dev, mem), io_remove_dir(pair->real.dev, real));
        break;
    default:
        assert_int_equal(io_sync_dir(pair->mem.dev, mem), io_sync_dir(pair->real.dev, real));
        break;
    }
}

struct names_seen {
    char lines[20][64];
    size_t count;
};

static int see_name(void *arg, const char *name, enum io_file_kind kind)
{
    struct names_seen *seen = arg;
    snprintf(seen->lines[seen->count++], sizeof seen->lines[0], "%d %s", (int)kind, name);
    return 0;
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(left, right);
}

static void same_listing(struct pair *pair)
{
    char real[300];
    char mem[300];
    struct names_seen of_real = {.count = 0};
    struct names_seen of_mem = {.count = 0};
    const char *name = test_random_chance(&pair->random, 30) ? "." : any_name(pair);
    path_of(&pair->real, name, real, sizeof real);
    path_of(&pair->mem, strcmp(name, ".") == 0 ? "" : name, mem, sizeof mem);
    const int result = io_list_dir(pair->real.dev, real, see_name, &of_real);
    assert_int_equal(io_list_dir(pair->mem.dev, mem, see_name, &of_mem), result);
    assert_int_equal(of_mem.count, of_real.count);
    qsort(of_real.lines, of_real.count, sizeof of_real.lines[0], compare_lines);
    qsort(of_mem.lines, of_mem.count, sizeof of_mem.lines[0], compare_lines);
    for (size_t index = 0; index < of_real.count; index++)
        assert_string_equal(of_mem.lines[index], of_real.lines[index]);
}

static void same_random_call(struct pair *pair)
{
    void (*const calls[])(struct pair *) = {same_open,        same_open,        same_write, same_write,  same_read,
                                            same_size_change, same_name_change, same_stat,  same_listing};
    calls[test_random_below(&pair->random, ARRAY_COUNT(calls))](pair);
}

static void random_calls_agree_with_a_real_directory(void **state)
{
    struct pair pair = {.real = {.dev = io_real_device()}};
    const unsigned rounds = test_is_long() ? 200000 : 6000;
    (void)state;
    test_random_init(&pair.random, test_seed("unit/base/test_mem_device"));
    char *dir = test_dir_create();
    struct mem_device *mem = mem_device_create(test_random_u64(&pair.random));
    pair.real.root = dir;
    pair.mem = (struct side){.dev = mem_device_io(mem), .root = ""};
    for (unsigned round = 0; round < rounds; round++)
        same_random_call(&pair);
    for (size_t slot = 0; slot < OPEN_MAX_FILES; slot++) {
        if (!pair.real.files[slot])
            continue;
        assert_same_content(pair.real.files[slot], pair.mem.files[slot], 0, 2 * SPAN);
        assert_int_equal(io_close(pair.real.files[slot]), 0);
        assert_int_equal(io_close(pair.mem.files[slot]), 0);
    }
    mem_device_destroy(mem);
    test_dir_remove(dir);
}

/* ---- what only the device in memory has ---- */

static int mem_setup(void **state)
{
    *state = mem_device_create(1);
    return 0;
}

static int mem_teardown(void **state)
{
    mem_device_destroy(*state);
    return 0;
}

static struct io_file *open_new(struct mem_device *mem, const char *path)
{
    struct io_file *file;
    assert_int_equal(io_open(mem_device_io(mem), path, IO_READ_WRITE | IO_CREATE, &file), 0);
    return file;
}

static void counters_count_calls_and_bytes(void **state)
{
    struct mem_device *mem = *state;
    struct mem_counters counters;
    uint8_t bytes[100] = {0};
    size_t got;
    struct io_file *file = open_new(mem, "/f");
    assert_int_equal(io_write_full(file, bytes, sizeof bytes, 0), 0);
    assert_int_equal(io_read_full(file, bytes, 60, 0, &got), 0);
    assert_int_equal(io_sync(file), 0);
    mem_device_counters(mem, &counters);
    assert_int_equal(counters.calls[MEM_CALL_OPEN], 1);
    assert_int_equal(counters.calls[MEM_CALL_WRITE], 1);
    assert_int_equal(counters.calls[MEM_CALL_READ], 1);
    assert_int_equal(counters.calls[MEM_CALL_SYNC], 1);
    assert_int_equal(counters.written_bytes, 100);
    assert_int_equal(counters.read_bytes, 60);
    assert_int_equal(counters.open_files, 1);
    mem_device_counters_reset(mem);
    assert_int_equal(io_close(file), 0);
    mem_device_counters(mem, &counters);
    assert_int_equal(counters.calls[MEM_CALL_WRITE], 0);
    assert_int_equal(counters.calls[MEM_CALL_CLOSE], 1);
    assert_int_equal(counters.open_files, 0);
    assert_string_equal(mem_call_name(MEM_CALL_OPEN), "open");
    assert_string_equal(mem_call_name(MEM_CALL_RANDOM), "random");
}

static void capacity_reached_is_enospc_until_space_is_freed(void **state)
{
    struct mem_device *mem = *state;
    static uint8_t bytes[4 * BLOCK_SIZE];
    struct io_space space;
    struct io_file *file = open_new(mem, "/f");
    mem_device_set_capacity(mem, 3 * BLOCK_SIZE);
    assert_int_equal(io_allocate(file, 0, 4 * BLOCK_SIZE), -ENOSPC);
    assert_int_equal(mem_device_used_bytes(mem), 0);
    assert_int_equal(io_allocate(file, 0, 3 * BLOCK_SIZE), 0);
    assert_int_equal(io_space(mem_device_io(mem), "/", &space), 0);
    assert_int_equal(space.free_bytes, 0);
    assert_int_equal(io_write_full(file, bytes, 3 * BLOCK_SIZE, 0), 0); /* reserved */
    assert_int_equal(io_write_full(file, bytes, 1, 3 * BLOCK_SIZE), -ENOSPC);
    assert_int_equal(io_punch(file, BLOCK_SIZE, BLOCK_SIZE), 0);
    assert_int_equal(io_write_full(file, bytes, 1, 3 * BLOCK_SIZE), 0);
    assert_int_equal(io_unlink(mem_device_io(mem), "/f"), 0);
    assert_int_equal(mem_device_used_bytes(mem), 3 * BLOCK_SIZE); /* still open */
    assert_int_equal(io_close(file), 0);
    assert_int_equal(mem_device_used_bytes(mem), 0);
}

static void nth_call_fails_once_or_for_ever(void **state)
{
    struct mem_device *mem = *state;
    struct io_file *file = open_new(mem, "/f");
    mem_device_fail(mem, MEM_CALL_SYNC, 2, EIO, false);
    assert_int_equal(io_sync(file), 0);
    assert_int_equal(io_sync(file), -EIO);
    assert_int_equal(io_sync(file), 0);
    mem_device_fail(mem, MEM_CALL_SYNC, 1, ENOSPC, true);
    assert_int_equal(io_sync(file), -ENOSPC);
    assert_int_equal(io_sync(file), -ENOSPC);
    mem_device_clear_faults(mem);
    assert_int_equal(io_sync(file), 0);
    mem_device_fail(mem, MEM_CALL_CLOSE, 1, EIO, false);
    assert_int_equal(io_close(file), -EIO);
    assert_int_equal(io_open(mem_device_io(mem), "/g", IO_READ_ONLY, &file), -ENOENT);
}

static void clone_is_independent_and_equal_at_first(void **state)
{
    struct mem_device *mem = *state;
    uint64_t ours;
    uint64_t theirs;
    assert_int_equal(io_make_dir(mem_device_io(mem), "/d"), 0);
    struct io_file *file = open_new(mem, "/d/f");
    assert_int_equal(io_write_full(file, "abc", 3, 3 * BLOCK_SIZE), 0);
    struct mem_device *clone = mem_device_clone(mem);
    assert_true(mem_device_equal(mem, clone));
    assert_int_equal(mem_device_used_bytes(clone), mem_device_used_bytes(mem));
    assert_int_equal(io_random(mem_device_io(mem), &ours, sizeof ours), 0);
    assert_int_equal(io_random(mem_device_io(clone), &theirs, sizeof theirs), 0);
    assert_true(ours == theirs);
    assert_int_equal(io_write_full(file, "x", 1, 0), 0);
    assert_false(mem_device_equal(mem, clone));
    assert_int_equal(io_close(file), 0);
    assert_int_equal(io_unlink(mem_device_io(clone), "/d/f"), 0);
    assert_false(mem_device_equal(mem, clone));
    mem_device_destroy(clone);
}

static void file_bytes_reach_what_readers_see(void **state)
{
    struct mem_device *mem = *state;
    uint8_t back[4];
    size_t got;
    size_t run = 0;
    mem_device_put_file(mem, "/f", "abcd", 4);
    uint8_t *bytes = mem_device_file_bytes(mem, "/f", 1, &run);
    assert_non_null(bytes);
    assert_int_equal(run, 3);
    bytes[0] ^= 1;
    struct io_file *file = open_new(mem, "/f");
    assert_int_equal(io_read_full(file, back, 4, 0, &got), 0);
    assert_memory_equal(back, "accd", 4);
    assert_int_equal(io_truncate(file, 3 * BLOCK_SIZE), 0);
    bytes = mem_device_file_bytes(mem, "/f", BLOCK_SIZE + 1, &run);
    assert_non_null(bytes);
    assert_int_equal(run, BLOCK_SIZE - 1);
    assert_null(mem_device_file_bytes(mem, "/f", 3 * BLOCK_SIZE, &run));
    assert_null(mem_device_file_bytes(mem, "/none", 0, &run));
    assert_int_equal(io_close(file), 0);
}

static void clock_moves_as_told(void **state)
{
    struct mem_device *mem = *state;
    struct io_device *dev = mem_device_io(mem);
    const uint64_t first = io_monotonic_ns(dev);
    assert_int_equal(io_monotonic_ns(dev) - first, 1000);
    mem_device_advance_ns(mem, 5000000);
    assert_int_equal(io_monotonic_ns(dev) - first, 5002000);
    mem_device_set_realtime_ns(mem, 42);
    assert_int_equal(io_realtime_ns(dev), 1042);
    assert_int_equal(io_monotonic_ns(dev) - first, 5004000);
}

static int remember_write(void *arg, const struct mem_event *event)
{
    struct mem_event *last = arg;
    if (event->call == MEM_CALL_WRITE)
        *last = *event;
    return event->call == MEM_CALL_SYNC ? -EROFS : 0;
}

static void hook_sees_calls_and_can_refuse(void **state)
{
    struct mem_device *mem = *state;
    struct mem_event last = {.number = 0};
    struct io_file *file = open_new(mem, "/f");
    mem_device_set_hook(mem, remember_write, &last);
    assert_int_equal(io_write_full(file, "abc", 3, 7), 0);
    assert_int_equal(last.number, 2);
    assert_int_equal(last.offset_bytes, 7);
    assert_int_equal(last.size_bytes, 3);
    assert_string_equal(last.path, "/f");
    assert_int_equal(io_sync(file), -EROFS);
    mem_device_set_hook(mem, NULL, NULL);
    assert_int_equal(io_close(file), 0);
}

static void lock_excludes_until_closed(void **state)
{
    struct mem_device *mem = *state;
    pid_t holder = -1;
    struct io_file *first = open_new(mem, "/f");
    struct io_file *second = open_new(mem, "/f");
    assert_int_equal(io_lock(first, &holder), 0);
    assert_int_equal(io_write_full(first, "123\n", 4, 0), 0);
    assert_int_equal(io_lock(second, &holder), -EBUSY);
    assert_int_equal(holder, 123);
    assert_int_equal(io_close(first), 0);
    assert_int_equal(io_lock(second, &holder), 0);
    assert_int_equal(io_close(second), 0);
}

static void random_numbers_are_even_and_repeatable(void **state)
{
    struct test_random one;
    struct test_random two;
    unsigned hits[3] = {0};
    (void)state;
    test_random_init(&one, 5);
    test_random_init(&two, 5);
    for (unsigned round = 0; round < 3000; round++) {
        const uint64_t drawn = test_random_below(&one, 3);
        assert_true(drawn == test_random_below(&two, 3));
        hits[drawn]++;
    }
    for (size_t index = 0; index < 3; index++)
        assert_in_range(hits[index], 900, 1100);
    test_random_init(&one, 0); /* published first output of SplitMix64 for seed 0 */
    assert_true(test_random_u64(&one) == UINT64_C(0xe220a8397b1dcdaf));
    assert_int_equal(test_random_range(&one, 9, 9), 9);
    assert_int_equal(test_random_below(&one, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_agree_with_a_real_directory),
        cmocka_unit_test_setup_teardown(counters_count_calls_and_bytes, mem_setup, mem_teardown),
        cmocka_unit_test_setup_teardown(capacity_reached_is_enospc_until_space_is_freed, mem_setup, mem_teardown),
        cmocka_unit_test_setup_teardown(nth_call_fails_once_or_for_ever, mem_setup, mem_teardown),
        cmocka_unit_test_setup_teardown(clone_is_independent_and_equal_at_first, mem_setup, mem_teardown),
        cmocka_unit_test_setup_teardown(file_bytes_reach_what_readers_see, mem_setup, mem_teardown),
        cmocka_unit_test_setup_teardown(clock_moves_as_told, mem_setup, mem_teardown),
        cmocka_unit_test_setup_teardown(hook_sees_calls_and_can_refuse, mem_setup, mem_teardown),
        cmocka_unit_test_setup_teardown(lock_excludes_until_closed, mem_setup, mem_teardown),
        cmocka_unit_test(random_numbers_are_even_and_repeatable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
