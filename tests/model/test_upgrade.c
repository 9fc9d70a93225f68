/*
 * tests/model/test_upgrade.c - copies of data directories in the current format: of format 1, of the same format, closed cleanly or not;
 * the old one stays as it is, what is refused leaves no data directory, and sidecars come along only where they are good and allowed.
 */
#include "base/checksum.h"
#include "tests/model/sidecar_rig.h"
#include "txn/control_format.h"
#include "txn/upgrade.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OLD TXN_RIG_DIR
#define NEW "/new"

/* ---- the old directory ---- */

struct sum {
    struct io_device *dev;
    const char *dir;
    uint64_t sum;
};

static int sum_entry(void *arg, const char *name, enum io_file_kind kind)
{
    struct sum *sum = arg;
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", sum->dir, name);
    if (kind == IO_KIND_DIRECTORY) {
        struct sum below = {.dev = sum->dev, .dir = path};
        assert_int_equal(io_list_dir(sum->dev, path, sum_entry, &below), 0);
        sum->sum += below.sum + 1;
        return 0;
    }
    struct io_file *file = NULL;
    uint8_t bytes[BLOCK_SIZE];
    size_t got = sizeof bytes;
    uint64_t hash = checksum_64(path, strlen(path), 0);
    assert_int_equal(io_open(sum->dev, path, IO_READ_ONLY, &file), 0);
    for (uint64_t at = 0; got == sizeof bytes; at += got) {
        assert_int_equal(io_read_full(file, bytes, sizeof bytes, at, &got), 0);
        hash = checksum_64(bytes, got, hash);
    }
    assert_int_equal(io_close(file), 0);
    sum->sum += hash;
    return 0;
}

static uint64_t sum_of_old(struct txn_rig *rig)
{
    struct sum sum = {.dev = rig->dev, .dir = OLD};
    assert_int_equal(io_list_dir(rig->dev, OLD, sum_entry, &sum), 0);
    return sum.sum;
}

static struct control_slot *slot_copy(struct txn_rig *rig, unsigned i)
{
    size_t run = 0;
    uint8_t *bytes = mem_device_file_bytes(rig->mem, OLD "/control", CONTROL_COPY_OFFSET(i / 2, i % 2), &run);
    assert_non_null(bytes);
    return (struct control_slot *)(void *)bytes;
}

/* As the program that knew that format wrote it. */
static void make_format(struct txn_rig *rig, uint32_t version)
{
    for (unsigned i = 0; i < 4; i++) {
        struct control_slot *slot = slot_copy(rig, i);
        slot->version = le32_of(version);
        if (version == 1) {
            slot->fsm_threshold = le32_of(0);
            slot->sidecar_threshold = le32_of(0);
            slot->sidecar_epoch = le64_of(0);
        }
        slot->checksum = le64_of(checksum_64(slot, offsetof(struct control_slot, checksum), 0));
    }
}

static void fill(struct txn_rig *rig)
{
    struct view *live = store_live(rig->store);
    table_fill(rig, live, "large", 8, 'a');
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    table_change(rig, live, "large", 3, 'b');
    table_fill(rig, live, "small", 2, 'a');
    table_fill(rig, live, "hole", 1, 'a');
    assert_int_equal(shell_truncate_to(rig, live, "hole", 1u << 30), 0);
}

/* ---- the copy ---- */

static int copy(struct txn_rig *rig, struct upgrade_result *out_result)
{
    const struct upgrade_options options = {.dev = rig->dev, .diag = &rig->diag, .old_dir = OLD, .new_dir = NEW};
    return upgrade_copy(&options, out_result);
}

static struct store *open_copy(struct txn_rig *rig)
{
    const struct store_options options = {.dev = rig->dev, .diag = &rig->diag, .dir = NEW};
    struct store *store = NULL;
    assert_int_equal(store_open(&options, &store, NULL), 0);
    return store;
}

static uint8_t byte_of(struct store *store, struct view *view, const char *name, uint64_t offset)
{
    struct store_attr attr;
    struct store_file *file = NULL;
    uint8_t byte = 0;
    size_t got = 0;
    assert_int_equal(store_lookup(store, view, INO_ROOT, shell_name(name), &attr), 0);
    assert_int_equal(store_file_open(store, view, attr.ino, &file), 0);
    assert_int_equal(store_read(file, offset, &byte, 1, &got), 0);
    assert_int_equal(got, 1);
    store_file_close(file);
    return byte;
}

static void expect_copy(struct txn_rig *rig)
{
    struct store *store = open_copy(rig);
    struct store_snapshot *snapshot = NULL;
    struct view *live = store_live(store);
    assert_int_equal(store_check(store), 0);
    assert_int_equal(byte_of(store, live, "large", 3 * PAGE_PAYLOAD_SIZE), 'b');
    assert_int_equal(byte_of(store, live, "large", 4 * PAGE_PAYLOAD_SIZE), 'a');
    assert_int_equal(byte_of(store, live, "small", PAGE_PAYLOAD_SIZE), 'a');
    assert_int_equal(byte_of(store, live, "hole", 1u << 29), 0);
    assert_int_equal(store_snapshot_get(store, shell_name("s"), &snapshot), 0);
    assert_int_equal(byte_of(store, store_snapshot_view(snapshot), "large", 3 * PAGE_PAYLOAD_SIZE), 'a');
    store_snapshot_put(snapshot);
    assert_int_equal(store_close(store), 0);
}

static void old_formats_are_refused_by_name_and_copied(void **state)
{
    struct upgrade_result result;
    TXN_RIG;
    assert_non_null(live);
    fill(rig);
    assert_int_equal(store_close(rig->store), 0);
    make_format(rig, 1);
    const uint64_t before = sum_of_old(rig);
    const struct store_options options = {.dev = rig->dev, .diag = &rig->diag, .dir = OLD};
    diag_init_silent(&rig->diag);
    assert_int_equal(store_open(&options, &rig->store, NULL), -EPROTO);
    const uint64_t refused = sum_of_old(rig);
    assert_int_equal(refused, before);
    assert_int_equal(copy(rig, &result), 0);
    assert_int_equal(result.old_format, 1);
    assert_int_equal(result.new_format, CONTROL_FORMAT_VERSION);
    assert_true(result.was_clean);
    assert_int_equal(result.torn_pages, 0);
    assert_int_equal(sum_of_old(rig), before);
    expect_copy(rig);
    struct store *store = open_copy(rig);
    struct store_stats stats;
    store_get_stats(store, &stats);
    assert_int_equal(stats.fsm_threshold, STORE_FSM_THRESHOLD);
    assert_int_equal(store_close(store), 0);
    make_format(rig, CONTROL_FORMAT_VERSION);
    txn_rig_open(rig);
}

static void killed_store_is_recovered_in_the_copy(void **state)
{
    static const uint32_t formats[] = {1, CONTROL_FORMAT_VERSION};
    struct upgrade_result result;
    TXN_RIG;
    assert_non_null(live);
    fill(rig);
    for (unsigned i = 0; i < ARRAY_COUNT(formats); i++) {
        assert_int_equal(store_sync(rig->store), 0);
        struct mem_device *mem = mem_device_clone(rig->mem);
        struct txn_rig killed = {.mem = mem, .dev = mem_device_io(mem)};
        diag_init_silent(&killed.diag);
        make_format(&killed, formats[i]);
        const uint64_t before = sum_of_old(&killed);
        assert_int_equal(copy(&killed, &result), 0);
        assert_false(result.was_clean);
        assert_int_equal(sum_of_old(&killed), before);
        expect_copy(&killed);
        mem_device_destroy(mem);
    }
}

static unsigned sidecars_in(struct txn_rig *rig, const char *path)
{
    char sidecar[SIDECAR_PATH_BYTES], name[SIDECAR_PATH_BYTES];
    struct io_stat st;
    sidecar_path_of(rig, path, sidecar);
    (void)snprintf(name, sizeof name, NEW "%s", sidecar + strlen(OLD));
    return io_stat(rig->dev, name, &st) == 0;
}

/* By the real size of the table, and only those that would be believed. */
static void sidecars_of_large_tables_come_along(void **state)
{
    struct upgrade_result result;
    TXN_RIG;
    table_fill(rig, live, "stale", 8, 'a');
    assert_int_equal(store_close(rig->store), 0);
    rig->threshold_given = true; /* 0 */
    txn_rig_open(rig);
    fill(rig);
    sidecar_rig_reopen(rig);
    char path[SIDECAR_PATH_BYTES];
    size_t run = 0;
    sidecar_path_of(rig, "stale", path);
    uint8_t *bytes = mem_device_file_bytes(rig->mem, path, 0, &run);
    assert_non_null(bytes);
    bytes[run - 1] ^= 1;
    assert_int_equal(sidecars_count(rig->dev), 4);
    assert_int_equal(store_close(rig->store), 0);
    assert_int_equal(copy(rig, &result), 0);
    txn_rig_open(rig);
    assert_int_equal(sidecars_in(rig, "large"), 1);
    assert_int_equal(sidecars_in(rig, "small"), 0);
    assert_int_equal(sidecars_in(rig, "hole"), 0);
    assert_int_equal(sidecars_in(rig, "stale"), 0);
    expect_copy(rig);
}

/* ---- what is refused ---- */

static void what_cannot_be_copied_is_refused(void **state)
{
    struct upgrade_result result;
    struct io_stat st;
    TXN_RIG;
    assert_non_null(live);
    fill(rig);
    diag_init_silent(&rig->diag);
    assert_int_equal(copy(rig, &result), -EBUSY); /* it is open */
    assert_int_equal(store_close(rig->store), 0);
    make_format(rig, CONTROL_FORMAT_VERSION + 1);
    assert_int_equal(copy(rig, &result), -EPROTO);
    make_format(rig, CONTROL_FORMAT_VERSION);
    assert_int_equal(io_stat(rig->dev, NEW, &st), -ENOENT);
    const struct upgrade_options nothing = {.dev = rig->dev, .diag = &rig->diag, .old_dir = "/none", .new_dir = NEW};
    assert_int_equal(upgrade_copy(&nothing, &result), -ENODATA);
    assert_int_equal(io_make_dir(rig->dev, NEW), 0);
    mem_device_put_file(rig->mem, NEW "/mine", "x", 1);
    assert_int_equal(copy(rig, &result), -ENOTEMPTY);
    assert_int_equal(io_unlink(rig->dev, NEW "/mine"), 0);
    assert_int_equal(copy(rig, &result), 0); /* an empty directory will do */
    assert_int_equal(copy(rig, &result), -ENOTEMPTY);
    txn_rig_open(rig);
}

static void damage_comes_along_and_is_said(void **state)
{
    struct upgrade_result result;
    char path[SIDECAR_PATH_BYTES];
    size_t run = 0;
    TXN_RIG;
    assert_non_null(live);
    fill(rig);
    sidecar_rig_reopen(rig);
    sidecar_path_of(rig, "small", path);
    *strstr(path, "_fsm") = '\0';
    assert_int_equal(store_close(rig->store), 0);
    uint8_t *bytes = mem_device_file_bytes(rig->mem, path, 100, &run);
    assert_non_null(bytes);
    diag_init_silent(&rig->diag);
    bytes[0] ^= 1;
    assert_int_equal(copy(rig, &result), -EIO);
    bytes = mem_device_file_bytes(rig->mem, path, 100, &run);
    bytes[0] ^= 1;
    txn_rig_open(rig);
}

/* Each call fails once: there is no data directory, or a whole one. */
static void copy_that_fails_leaves_no_half_directory(void **state)
{
    static const enum mem_call calls[] = {MEM_CALL_WRITE, MEM_CALL_READ,     MEM_CALL_SYNC,    MEM_CALL_SYNC_FILESYSTEM,
                                          MEM_CALL_OPEN,  MEM_CALL_MAKE_DIR, MEM_CALL_TRUNCATE};
    struct upgrade_result result;
    struct io_stat st;
    TXN_RIG;
    assert_non_null(live);
    fill(rig);
    assert_int_equal(store_close(rig->store), 0);
    for (unsigned i = 0; i < ARRAY_COUNT(calls) * 12; i++) {
        struct mem_device *mem = mem_device_clone(rig->mem);
        struct txn_rig other = {.mem = mem, .dev = mem_device_io(mem)};
        diag_init_silent(&other.diag);
        const uint64_t before = sum_of_old(&other);
        mem_device_fail(mem, calls[i % ARRAY_COUNT(calls)], 1 + i / ARRAY_COUNT(calls) * 3, EIO, false);
        const int rc = copy(&other, &result);
        mem_device_clear_faults(mem);
        assert_int_equal(sum_of_old(&other), before);
        if (rc == 0 || io_stat(other.dev, NEW "/control", &st) == 0) {
            expect_copy(&other);
        }
        mem_device_destroy(mem);
    }
    txn_rig_open(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_RIG_CASE(old_formats_are_refused_by_name_and_copied),
        TXN_RIG_CASE(killed_store_is_recovered_in_the_copy),
        TXN_RIG_CASE(sidecars_of_large_tables_come_along),
        TXN_RIG_CASE(what_cannot_be_copied_is_refused),
        TXN_RIG_CASE(damage_comes_along_and_is_said),
        TXN_RIG_CASE(copy_that_fails_leaves_no_half_directory),
    };
    return cmocka_run_group_tests_name("test_upgrade", tests, NULL, NULL);
}
