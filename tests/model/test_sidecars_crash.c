/*
 * tests/model/test_sidecars_crash.c - lives that write, use up and lose sidecars, cut off before every call of the device, up to the end of
 * their clean close. What a power cut or a kill leaves is opened: all maps, made from sidecars or not, are those that the trees say, every
 * table is whole, and the next clean close leaves a sidecar beside each large table and none beside a small one.
 *
 * The first life is a clean one, with sidecars and a snapshot that sees tables otherwise. The second one, which is cut, writes some
 * tables, begins a transaction on another and aborts it, makes small ones large and large ones small, drops the snapshot, and closes.
 */
#include "tests/lib/test_support.h"
#include "tests/model/cut_explorer.h"
#include "tests/model/sidecar_rig.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_NAME  "test_sidecars_crash"
#define TABLES     8u
#define LARGE      8u
#define STATES     8u /* of a power cut at each sync; half of them systematic */
#define KILL_EVERY 12u

static const char *const names[TABLES] = {"written", "aborted", "untouched", "shrinks",
                                          "grows",   "small",   "dropped",   "committed"};

/* ---- what is left ---- */

/* Each leaf is of one byte. Returns the leaves, 0: there is no such table. */
static unsigned expect_whole(struct txn_rig *rig, const char *path)
{
    struct store_attr attr;
    uint8_t bytes[PAGE_PAYLOAD_SIZE];
    size_t size = 0;
    if (shell_look(rig, store_live(rig->store), path, &attr) != 0) {
        return 0;
    }
    struct store_file *file = shell_open(rig, store_live(rig->store), path);
    assert_int_equal(attr.size_bytes % sizeof bytes, 0);
    for (uint64_t offset = 0; offset < attr.size_bytes; offset += sizeof bytes) {
        assert_int_equal(store_read(file, offset, bytes, sizeof bytes, &size), 0);
        assert_int_equal(size, sizeof bytes);
        for (size_t i = 1; i < size; i++) {
            assert_int_equal(bytes[i], bytes[0]);
        }
    }
    store_file_close(file);
    return (unsigned)(attr.size_bytes / sizeof bytes);
}

static void expect_maps_of_all(struct txn_rig *rig)
{
    for (unsigned i = 0; i < TABLES; i++) {
        if (expect_whole(rig, names[i]) > 0) {
            table_expect_map(rig, names[i]);
        }
    }
}

/* Two leaves have an inner page above them. */
static void expect_sidecars_of_large(struct txn_rig *rig)
{
    unsigned large = 0;
    for (unsigned i = 0; i < TABLES; i++) {
        const unsigned leaves = expect_whole(rig, names[i]);
        large += leaves + (leaves > 1) > STORE_FSM_THRESHOLD;
        assert_true(leaves == 0 || sidecar_exists(rig, names[i]) == (leaves + (leaves > 1) > STORE_FSM_THRESHOLD));
    }
    assert_int_equal(sidecars_count(rig->dev), large);
}

static void verify(struct txn_rig *rig)
{
    expect_maps_of_all(rig);
    for (unsigned i = 0; i < TABLES; i++) {
        if (expect_whole(rig, names[i]) > 0) {
            table_change(rig, store_live(rig->store), names[i], 0, 'z');
        }
    }
    txn_rig_check(rig);
    sidecar_rig_reopen(rig);
    expect_sidecars_of_large(rig);
    expect_maps_of_all(rig);
    store_abandon(rig->store);
}

/* ---- the lives ---- */

static void first_life(struct txn_rig *rig)
{
    struct view *live = store_live(rig->store);
    for (unsigned i = 0; i < TABLES; i++) {
        const bool small = strcmp(names[i], "small") == 0 || strcmp(names[i], "grows") == 0;
        table_fill(rig, live, names[i], small ? 2 : LARGE, 'a');
    }
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    for (unsigned i = 0; i < TABLES; i++) {
        table_change(rig, live, names[i], 0, 'b');
        table_change(rig, live, names[i], 1, 'b');
    }
    assert_int_equal(store_close(rig->store), 0);
}

static void second_life(struct txn_rig *rig, bool checkpoint)
{
    struct view *live = store_live(rig->store);
    table_change(rig, live, "written", 3, 'c');
    struct store_txn *txn = shell_begin(rig);
    for (unsigned leaf = 0; leaf < LARGE; leaf++) {
        table_change(rig, store_txn_view(txn), "aborted", leaf, 'c');
    }
    assert_int_equal(store_sync(rig->store), 0);
    store_txn_abort(txn);
    store_txn_put(txn);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(shell_truncate_to(rig, live, "shrinks", 2 * PAGE_PAYLOAD_SIZE), 0);
    if (checkpoint) {
        assert_int_equal(store_checkpoint(rig->store), 0);
    }
    txn = shell_begin(rig);
    table_change(rig, store_txn_view(txn), "committed", 2, 'd');
    table_fill(rig, store_txn_view(txn), "grows", LARGE, 'd');
    shell_must_commit(txn);
    assert_int_equal(shell_remove(rig, live, "dropped"), 0);
    table_change(rig, live, "small", 0, 'e');
}

static void explore(unsigned sector_bytes, bool ordered_names, bool checkpoint, uint64_t seed)
{
    void *state = NULL;
    struct cut_explorer explorer = {.profile = {.sector_bytes = sector_bytes, .ordered_names = ordered_names},
                                    .states_max = STATES,
                                    .kill_every = KILL_EVERY,
                                    .verify = verify};
    test_random_init(&explorer.random, seed);
    assert_int_equal(txn_rig_setup(&state), 0);
    struct txn_rig *rig = state;
    first_life(rig);
    cut_explorer_open(&explorer, rig);
    second_life(rig, checkpoint);
    cut_explorer_close(&explorer, rig);
}

static void lives_cut_off_anywhere_leave_maps_that_are_right(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(TEST_NAME);
    for (unsigned round = 0; round < (test_is_long() ? 40u : 1u); round++) {
        explore(512, false, false, seed + round);
        explore(4096, true, true, seed + round);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lives_cut_off_anywhere_leave_maps_that_are_right),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
