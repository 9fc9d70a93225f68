/*
 * tests/unit/base/test_io.c - whole transfers over a device that gives less, and the real device's own rules.
 */
#include "base/io.h"
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define SIZE 100000u

static struct io_file *mem_open_new(struct mem_device *mem, const char *path)
{
    struct io_file *file;
    assert_int_equal(io_open(mem_device_io(mem), path, IO_READ_WRITE | IO_CREATE, &file), 0);
    return file;
}

static void full_transfers_survive_short_ones(void **state)
{
    static uint8_t data[SIZE];
    static uint8_t back[SIZE];
    struct test_random random;
    struct mem_counters counters;
    size_t got;
    (void)state;
    test_random_init(&random, test_seed("unit/base/test_io"));
    test_random_bytes(&random, data, sizeof data);
    struct mem_device *mem = mem_device_create(test_random_u64(&random));
    mem_device_set_short_transfers(mem, true);
    struct io_file *file = mem_open_new(mem, "/f");
    for (unsigned round = 0; round < 20; round++) {
        const uint64_t offset = test_random_below(&random, 50000);
        assert_int_equal(io_write_full(file, data, sizeof data, offset), 0);
        memset(back, 0, sizeof back);
        assert_int_equal(io_read_full(file, back, sizeof back, offset, &got), 0);
        assert_int_equal(got, sizeof back);
        assert_memory_equal(back, data, sizeof data);
    }
    mem_device_counters(mem, &counters);
    assert_true(counters.calls[MEM_CALL_READ] > 40);
    assert_true(counters.calls[MEM_CALL_WRITE] > 40);
    assert_int_equal(io_close(file), 0);
    mem_device_destroy(mem);
}

/* More pieces than IOV_MAX, of all lengths, empty ones too. */
static void vector_of_many_pieces_is_whole(void **state)
{
    enum { PIECES = 3000 };
    static uint8_t data[PIECES * 20];
    static uint8_t back[PIECES * 20];
    static struct iovec pieces[PIECES];
    struct test_random random;
    size_t got;
    (void)state;
    test_random_init(&random, 7);
    test_random_bytes(&random, data, sizeof data);
    struct mem_device *mem = mem_device_create(7);
    mem_device_set_short_transfers(mem, true);
    struct io_file *file = mem_open_new(mem, "/f");
    size_t total = 0;
    for (size_t index = 0; index < PIECES; index++) {
        const size_t length = test_random_below(&random, 20);
        pieces[index] = (struct iovec){.iov_base = data + total, .iov_len = length};
        total += length;
    }
    assert_int_equal(io_writev_full(file, pieces, PIECES, 5), 0);
    total = 0;
    for (size_t index = 0; index < PIECES; index++) {
        const size_t length = test_random_below(&random, 20);
        pieces[index] = (struct iovec){.iov_base = back + total, .iov_len = length};
        total += length;
    }
    assert_int_equal(io_readv_full(file, pieces, PIECES, 5, &got), 0);
    assert_true(got > 20000);
    assert_memory_equal(back, data, got);
    assert_int_equal(io_close(file), 0);
    mem_device_destroy(mem);
}

static void read_at_end_of_file_is_less(void **state)
{
    uint8_t back[10];
    size_t got = 99;
    (void)state;
    struct mem_device *mem = mem_device_create(1);
    struct io_file *file = mem_open_new(mem, "/f");
    assert_int_equal(io_write_full(file, "abcdef", 6, 0), 0);
    assert_int_equal(io_read_full(file, back, sizeof back, 2, &got), 0);
    assert_int_equal(got, 4);
    assert_int_equal(io_read_full(file, back, sizeof back, 6, &got), 0);
    assert_int_equal(got, 0);
    assert_int_equal(io_read_full(file, back, 0, 0, &got), 0);
    assert_int_equal(got, 0);
    assert_int_equal(io_write_full(file, "", 0, 0), 0);
    assert_int_equal(io_close(file), 0);
    mem_device_destroy(mem);
}

static int refuse_with_eio(void *arg, const struct mem_event *event)
{
    const enum mem_call *call = arg;
    return event->call == *call ? -EIO : 0;
}

static void errors_are_handed_on(void **state)
{
    uint8_t bytes[10] = {0};
    size_t got = 77;
    enum mem_call refused = MEM_CALL_READ;
    (void)state;
    struct mem_device *mem = mem_device_create(1);
    struct io_file *file = mem_open_new(mem, "/f");
    mem_device_set_hook(mem, refuse_with_eio, &refused);
    assert_int_equal(io_read_full(file, bytes, sizeof bytes, 0, &got), -EIO);
    assert_int_equal(got, 77); /* out parameters are set on success only */
    refused = MEM_CALL_WRITE;
    assert_int_equal(io_write_full(file, bytes, sizeof bytes, 0), -EIO);
    mem_device_set_hook(mem, NULL, NULL);
    mem_device_set_capacity(mem, BLOCK_SIZE);
    assert_int_equal(io_write_full(file, bytes, sizeof bytes, BLOCK_SIZE - 5), -ENOSPC);
    assert_int_equal(io_close(file), 0);
    mem_device_destroy(mem);
}

static ssize_t write_nothing(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes)
{
    (void)file;
    (void)iov;
    (void)iov_count;
    (void)offset_bytes;
    return 0;
}

static void write_of_nothing_is_an_error(void **state)
{
    const struct io_ops ops = {.pwritev = write_nothing};
    struct io_device dev = {.ops = &ops};
    struct io_file file = {.dev = &dev};
    (void)state;
    assert_int_equal(io_write_full(&file, "x", 1, 0), -EIO);
}

/* ---- the real device ---- */

struct place {
    struct io_device *dev;
    char *dir;
    char *path;
};

static int place_setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    place->dev = io_real_device();
    place->dir = test_dir_create();
    place->path = test_path_join(place->dir, "file");
    *state = place;
    return 0;
}

static int place_teardown(void **state)
{
    struct place *place = *state;
    free(place->path);
    test_dir_remove(place->dir);
    free(place);
    return 0;
}

static void open_never_creates_unless_told(void **state)
{
    struct place *place = *state;
    struct io_file *file;
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE, &file), -ENOENT);
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE | IO_CREATE, &file), 0);
    assert_int_equal(io_close(file), 0);
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE | IO_CREATE | IO_EXCLUSIVE, &file), -EEXIST);
    assert_int_equal(io_open(place->dev, place->path, IO_READ_ONLY, &file), 0);
    assert_int_equal(io_write_full(file, "x", 1, 0), -EBADF);
    assert_int_equal(io_close(file), 0);
}

static void open_of_special_file_is_refused_at_once(void **state)
{
    struct place *place = *state;
    struct io_file *file;
    assert_int_equal(mkfifo(place->path, 0600), 0);
    assert_int_equal(io_open(place->dev, place->path, IO_READ_ONLY, &file), -EINVAL);
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE, &file), -EINVAL);
    assert_int_equal(io_open(place->dev, place->dir, IO_READ_WRITE, &file), -EISDIR);
}

static void open_files_are_closed_by_exec(void **state)
{
    struct place *place = *state;
    struct io_file *file;
    const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(lowest);
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE | IO_CREATE, &file), 0);
    assert_int_equal(fcntl(lowest, F_GETFD), FD_CLOEXEC);
    assert_int_equal(io_close(file), 0);
    assert_int_equal(fcntl(lowest, F_GETFD), -1);
}

static void lock_held_by_other_names_its_pid(void **state)
{
    struct place *place = *state;
    struct io_file *first;
    struct io_file *second;
    pid_t holder = -1;
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE | IO_CREATE, &first), 0);
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE, &second), 0);
    assert_int_equal(io_lock(first, &holder), 0);
    assert_int_equal(io_lock(second, &holder), -EBUSY);
    assert_int_equal(holder, 0);
    assert_int_equal(io_write_full(first, "4711\n", 5, 0), 0);
    assert_int_equal(io_lock(second, &holder), -EBUSY);
    assert_int_equal(holder, 4711);
    assert_int_equal(io_close(first), 0);
    assert_int_equal(io_lock(second, &holder), 0);
    assert_int_equal(io_close(second), 0);
}

static void lock_ends_with_its_process(void **state)
{
    struct place *place = *state;
    struct io_file *file;
    pid_t holder;
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const bool locked =
            io_open(place->dev, place->path, IO_READ_WRITE | IO_CREATE, &file) == 0 && io_lock(file, &holder) == 0;
        _exit(locked ? 0 : 1); /* without closing */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE, &file), 0);
    assert_int_equal(io_lock(file, &holder), 0);
    assert_int_equal(io_close(file), 0);
}

static void offsets_beyond_off_t_are_refused(void **state)
{
    struct place *place = *state;
    struct io_file *file;
    char byte = 0;
    size_t got;
    const uint64_t beyond = (uint64_t)INT64_MAX + 1;
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE | IO_CREATE, &file), 0);
    assert_int_equal(io_read_full(file, &byte, 1, beyond, &got), -EINVAL);
    assert_int_equal(io_write_full(file, &byte, 1, beyond), -EFBIG);
    assert_int_equal(io_truncate(file, beyond), -EFBIG);
    assert_int_equal(io_allocate(file, beyond, 1), -EFBIG);
    assert_int_equal(io_allocate(file, INT64_MAX, 1), -EFBIG);
    assert_int_equal(io_punch(file, INT64_MAX, 2), -EFBIG);
    assert_int_equal(io_close(file), 0);
}

static void allocate_keeps_content_and_reads_zero(void **state)
{
    struct place *place = *state;
    struct io_file *file;
    struct io_stat st;
    uint8_t back[20000];
    size_t got;
    assert_int_equal(io_open(place->dev, place->path, IO_READ_WRITE | IO_CREATE, &file), 0);
    assert_int_equal(io_write_full(file, "abc", 3, 0), 0);
    assert_int_equal(io_allocate(file, 0, sizeof back), 0);
    assert_int_equal(io_allocate(file, 0, 0), 0);
    assert_int_equal(io_read_full(file, back, sizeof back, 0, &got), 0);
    assert_int_equal(got, sizeof back);
    assert_memory_equal(back, "abc", 3);
    for (size_t index = 3; index < sizeof back; index++)
        assert_int_equal(back[index], 0);
    assert_int_equal(io_stat_file(file, &st), 0);
    assert_int_equal(st.size_bytes, sizeof back);
    assert_true(st.allocated_bytes >= sizeof back);
    assert_int_equal(io_sync(file), 0);
    assert_int_equal(io_sync_filesystem(file), 0);
    assert_int_equal(io_close(file), 0);
}

static void clock_goes_on_and_random_differs(void **state)
{
    struct place *place = *state;
    uint8_t one[300] = {0};
    uint8_t two[300] = {0};
    const uint64_t first = io_monotonic_ns(place->dev);
    assert_true(io_monotonic_ns(place->dev) >= first);
    assert_true(io_realtime_ns(place->dev) > UINT64_C(1600000000000000000));
    assert_int_equal(io_random(place->dev, one, sizeof one), 0);
    assert_int_equal(io_random(place->dev, two, sizeof two), 0);
    assert_memory_not_equal(one, two, sizeof one);
}

static void space_adds_up(void **state)
{
    struct place *place = *state;
    struct io_space space;
    assert_int_equal(io_space(place->dev, place->dir, &space), 0);
    assert_true(space.total_bytes >= space.free_bytes);
    assert_true(space.free_bytes >= space.available_bytes);
    assert_int_equal(io_space(place->dev, place->path, &space), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_transfers_survive_short_ones),
        cmocka_unit_test(vector_of_many_pieces_is_whole),
        cmocka_unit_test(read_at_end_of_file_is_less),
        cmocka_unit_test(errors_are_handed_on),
        cmocka_unit_test(write_of_nothing_is_an_error),
        cmocka_unit_test_setup_teardown(open_never_creates_unless_told, place_setup, place_teardown),
        cmocka_unit_test_setup_teardown(open_of_special_file_is_refused_at_once, place_setup, place_teardown),
        cmocka_unit_test_setup_teardown(open_files_are_closed_by_exec, place_setup, place_teardown),
        cmocka_unit_test_setup_teardown(lock_held_by_other_names_its_pid, place_setup, place_teardown),
        cmocka_unit_test_setup_teardown(lock_ends_with_its_process, place_setup, place_teardown),
        cmocka_unit_test_setup_teardown(offsets_beyond_off_t_are_refused, place_setup, place_teardown),
        cmocka_unit_test_setup_teardown(allocate_keeps_content_and_reads_zero, place_setup, place_teardown),
        cmocka_unit_test_setup_teardown(clock_goes_on_and_random_differs, place_setup, place_teardown),
        cmocka_unit_test_setup_teardown(space_adds_up, place_setup, place_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
