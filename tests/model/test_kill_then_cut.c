/*
 * tests/model/test_kill_then_cut.c - a kill, a start, and then a power cut: what the start found in the page cache of the
 * system, and not on the medium, must not be lost by the cut (RELIABILITY R2 in docs/TESTING.md).
 *
 * After each start everything that was acknowledged before the kill is durable, so each state that a cut may leave holds
 * exactly that, byte for byte. Appends go into the log by reference at any size, and files are cut at borders of leaves,
 * so that a table often consists of nothing but pages that the killed life wrote.
 */
#include "tests/lib/sim_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define FILES       3u
#define LEAVES_MAX  12u
#define FILE_MAX    (LEAVES_MAX * PAGE_PAYLOAD_SIZE)
#define SEGMENT     (UINT32_C(64) << 10)
#define STATES_EACH 12u

struct kill_file {
    ino_no ino; /* INO_NONE: does not exist */
    size_t size;
    uint8_t bytes[FILE_MAX];
};

struct kill_rig {
    struct sim_device *sim;
    struct diag diag;
    struct store *store;
    struct test_random random;
    struct kill_file files[FILES];
};

static struct store *open_store(struct io_device *dev, struct diag *diag)
{
    const struct store_options options = {
        .dev = dev, .diag = diag, .dir = "/d", .max_open_files = 8, .log_segment_size = SEGMENT, .bulk_min_bytes = 1};
    struct store *store = NULL;
    assert_int_equal(store_open(&options, &store, NULL), 0);
    return store;
}

static struct store_name file_name(unsigned index, char *buffer)
{
    const int size = snprintf(buffer, 8, "f%u", index);
    return (struct store_name){.bytes = buffer, .size = (size_t)size};
}

/* ---- operations ---- */

static void create(struct kill_rig *rig, unsigned index)
{
    char name[8];
    struct store_attr attr;
    assert_int_equal(store_create(rig->store, store_live(rig->store), INO_ROOT, file_name(index, name), S_IFREG | 0644,
                                  0, (struct store_who){0}, &attr),
                     0);
    rig->files[index].ino = attr.ino;
    rig->files[index].size = 0;
}

static void append(struct kill_rig *rig, struct kill_file *file)
{
    static uint8_t bytes[FILE_MAX];
    struct store_file *open = NULL;
    uint64_t end = 0;
    size_t size = 1 + test_random_below(&rig->random, 5 * PAGE_PAYLOAD_SIZE);
    if (test_random_chance(&rig->random, 40)) {
        size = (1 + test_random_below(&rig->random, 5)) * PAGE_PAYLOAD_SIZE;
    }
    if (file->size + size > FILE_MAX) {
        return;
    }
    test_random_bytes(&rig->random, bytes, size);
    assert_int_equal(store_file_open(rig->store, store_live(rig->store), file->ino, &open), 0);
    assert_int_equal(store_write(open, 0, bytes, size, STORE_WRITE_APPEND, &end), 0);
    store_file_close(open);
    memcpy(file->bytes + file->size, bytes, size);
    file->size += size;
    assert_true(end == file->size);
}

static void cut_file(struct kill_rig *rig, struct kill_file *file)
{
    struct store_attr attr = {.size_bytes = test_random_below(&rig->random, file->size + 1)};
    struct store_attr after;
    const uint64_t what = test_random_below(&rig->random, 10);
    if (what < 6) {
        attr.size_bytes -= attr.size_bytes % PAGE_PAYLOAD_SIZE;
    }
    if (what < 3 && attr.size_bytes > PAGE_PAYLOAD_SIZE) {
        attr.size_bytes = PAGE_PAYLOAD_SIZE;
    }
    assert_int_equal(store_setattr(rig->store, store_live(rig->store), file->ino, STORE_SET_SIZE, &attr, &after), 0);
    file->size = attr.size_bytes;
}

static void step(struct kill_rig *rig)
{
    const unsigned index = (unsigned)test_random_below(&rig->random, FILES);
    struct kill_file *file = &rig->files[index];
    char name[8];
    if (file->ino == INO_NONE) {
        create(rig, index);
        return;
    }
    switch (test_random_below(&rig->random, 16)) {
    case 0:
        assert_int_equal(store_unlink(rig->store, store_live(rig->store), INO_ROOT, file_name(index, name)), 0);
        file->ino = INO_NONE;
        break;
    case 1:
        assert_int_equal(store_checkpoint(rig->store), 0);
        break;
    case 2:
        store_step(rig->store);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        cut_file(rig, file);
        break;
    default:
        append(rig, file);
        break;
    }
}

/* ---- looking ---- */

static void verify(const struct kill_rig *rig, struct store *store)
{
    uint8_t *got = malloc(FILE_MAX);
    assert_non_null(got);
    for (unsigned i = 0; i < FILES; i++) {
        const struct kill_file *file = &rig->files[i];
        struct store_file *open = NULL;
        size_t size = 0;
        if (file->ino == INO_NONE) {
            continue;
        }
        assert_int_equal(store_file_open(store, store_live(store), file->ino, &open), 0);
        assert_int_equal(store_read(open, 0, got, FILE_MAX, &size), 0);
        store_file_close(open);
        assert_int_equal(size, file->size);
        assert_memory_equal(got, file->bytes, file->size);
    }
    free(got);
    assert_int_equal(store_check(store), 0);
}

static void verify_state(const struct kill_rig *rig, struct sim_cut *cut, uint64_t number)
{
    struct diag diag;
    uint64_t hash = 0;
    struct mem_device *mem = sim_cut_build(cut, number, &hash);
    diag_init_stderr(&diag, DIAG_WARNING);
    struct store *store = open_store(mem_device_io(mem), &diag);
    verify(rig, store);
    store_abandon(store);
    mem_device_destroy(mem);
}

static void cut_and_verify(struct kill_rig *rig)
{
    const struct sim_profile profile = {.sector_bytes = 512};
    struct sim_cut *cut = sim_cut_create(rig->sim, &profile);
    bool all = false;
    const uint64_t systematic = sim_cut_systematic(cut, &all);
    const uint64_t stride = systematic / STATES_EACH + 1;
    for (uint64_t number = 0; number < systematic; number += stride) {
        verify_state(rig, cut, number);
    }
    sim_cut_free(cut);
}

static void kill_and_reopen(struct kill_rig *rig)
{
    store_abandon(rig->store);
    rig->store = open_store(sim_device_io(rig->sim), &rig->diag);
    verify(rig, rig->store);
}

/* ---- tests ---- */

static struct kill_rig *rig_make(void)
{
    struct kill_rig *rig = calloc(1, sizeof *rig);
    struct mem_device *mem = mem_device_create(5);
    assert_non_null(rig);
    diag_init_stderr(&rig->diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(mem), .diag = &rig->diag, .dir = "/d", .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    rig->sim = sim_device_create(mem);
    rig->store = open_store(sim_device_io(rig->sim), &rig->diag);
    return rig;
}

static void rig_free(struct kill_rig *rig)
{
    assert_int_equal(store_close(rig->store), 0);
    sim_device_destroy(rig->sim);
    free(rig);
}

static void state_after_a_kill_and_a_start_survives_a_power_cut(void **state)
{
    (void)state;
    struct kill_rig *rig = rig_make();
    test_random_init(&rig->random, test_seed("test_kill_then_cut"));
    const unsigned lives = test_is_long() ? 1500 : 60;
    for (unsigned life = 0; life < lives; life++) {
        const uint64_t steps = 1 + test_random_below(&rig->random, 12);
        for (uint64_t i = 0; i < steps; i++) {
            step(rig);
        }
        kill_and_reopen(rig);
        cut_and_verify(rig);
    }
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_after_a_kill_and_a_start_survives_a_power_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
