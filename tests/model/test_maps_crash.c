/*
 * tests/model/test_maps_crash.c - lives that build the maps of large files in the background, cut off before every call of the device. In what
 * a power cut or a kill leaves, every table is whole, and maps that are built anew are what the trees say: nothing is lost, nothing is used twice.
 *
 * The first life leaves large tables, a snapshot that sees two of them otherwise, and no clean end. The second one, which is cut, writes them
 * while their maps are built, between forks and ends of builds, drops the snapshot, whose blocks only builds find, loses most of
 * a table so that it is punched, fills the holes again, and closes.
 */
#include "tests/lib/test_support.h"
#include "tests/model/cut_explorer.h"
#include "tests/model/sidecar_rig.h"
#include "txn/store_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define TEST_NAME  "test_maps_crash"
#define LEAF_BYTES ((uint64_t)PAGE_PAYLOAD_SIZE)
#define LARGE      50u  /* leaves: more than are built at once */
#define HOLEY      330u /* of which most go */
#define HOLE_FIRST 40u
#define HOLE_END   320u
#define TABLES     3u
#define STATES     2u
#define KILL_EVERY 50u

static const char *const names[TABLES] = {"large", "seen", "holey"};

/* ---- what is left ---- */

/* Each leaf is of one byte. */
static void expect_whole(struct txn_rig *rig, const char *path, unsigned leaves)
{
    uint8_t bytes[PAGE_PAYLOAD_SIZE];
    size_t size = 0;
    struct store_file *file = shell_open(rig, store_live(rig->store), path);
    for (unsigned leaf = 0; leaf < leaves; leaf++) {
        assert_int_equal(store_read(file, leaf * LEAF_BYTES, bytes, sizeof bytes, &size), 0);
        assert_int_equal(size, sizeof bytes);
        for (size_t i = 1; i < size; i++) {
            assert_int_equal(bytes[i], bytes[0]);
        }
    }
    store_file_close(file);
}

/* The maps are ready, so that the check finds what is lost as well. */
static void expect_maps(struct txn_rig *rig, char byte)
{
    struct store_file *files[TABLES];
    for (unsigned i = 0; i < TABLES; i++) {
        files[i] = shell_open(rig, store_live(rig->store), names[i]);
        table_change(rig, store_live(rig->store), names[i], 0, byte);
    }
    store_maps_finish(rig->store);
    for (unsigned i = 0; i < TABLES; i++) {
        assert_true(fsm_is_ready(files[i]->relation));
    }
    txn_rig_check(rig);
    for (unsigned i = 0; i < TABLES; i++) {
        expect_whole(rig, names[i], i == 2 ? HOLEY : LARGE);
        store_file_close(files[i]);
    }
}

static void verify(struct txn_rig *rig)
{
    expect_maps(rig, 'y');
    sidecar_rig_reopen(rig);
    expect_maps(rig, 'z');
    store_abandon(rig->store);
}

/* ---- the lives ---- */

static void first_life(struct txn_rig *rig)
{
    struct view *live = store_live(rig->store);
    for (unsigned i = 0; i < TABLES; i++) {
        table_fill(rig, live, names[i], i == 2 ? HOLEY : LARGE, 'a');
    }
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    for (unsigned leaf = 0; leaf < LARGE; leaf += 2) {
        table_change(rig, live, "seen", leaf, 'b');
        table_change(rig, live, "large", leaf, 'b');
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
    store_abandon(rig->store);
}

static bool are_maps_waiting(struct txn_rig *rig)
{
    return sidecar_rig_stats(rig).maps_waiting > 0;
}

/* Blocks change hands between the steps of builds. */
static void build_beside_writes(struct txn_rig *rig, char byte)
{
    struct view *live = store_live(rig->store);
    unsigned leaf = 0;
    do {
        table_change(rig, live, "large", leaf % LARGE, byte);
        table_change(rig, live, "seen", (leaf + 7) % LARGE, byte);
        (void)store_maps_step(rig->store);
        assert_int_equal(store_checkpoint(rig->store), 0);
        leaf += 3;
    } while (are_maps_waiting(rig));
}

static void lose_most(struct txn_rig *rig)
{
    struct view *live = store_live(rig->store);
    struct store_file *file = shell_open(rig, live, "holey");
    assert_int_equal(store_allocate(file, HOLE_FIRST * LEAF_BYTES, (HOLE_END - HOLE_FIRST) * LEAF_BYTES,
                                    STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_KEEP_SIZE),
                     0);
    store_file_close(file);
    assert_int_equal(store_checkpoint(rig->store), 0);
    table_change(rig, live, "holey", 1, 'e');
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_true(sidecar_rig_stats(rig).blocks_punched > 0);
}

static void fill_holes(struct txn_rig *rig)
{
    for (unsigned leaf = HOLE_FIRST; leaf < HOLE_END; leaf += 4) {
        table_change(rig, store_live(rig->store), "holey", leaf, 'f');
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
}

static void second_life(struct txn_rig *rig)
{
    table_change(rig, store_live(rig->store), "holey", 0, 'c');
    build_beside_writes(rig, 'c');
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    build_beside_writes(rig, 'd');
    build_beside_writes(rig, 'e');
    assert_true(sidecar_rig_stats(rig).maps_built >= TABLES);
    lose_most(rig);
    fill_holes(rig);
}

static void explore(const struct sim_profile *profile, uint64_t seed)
{
    void *state = NULL;
    struct cut_explorer explorer = {
        .profile = *profile, .states_max = STATES, .kill_every = KILL_EVERY, .verify = verify};
    if (test_is_long()) {
        explorer.states_max = 8 * STATES;
        explorer.kill_every = 1;
    }
    test_random_init(&explorer.random, seed);
    assert_int_equal(txn_rig_setup(&state), 0);
    struct txn_rig *rig = state;
    first_life(rig);
    cut_explorer_open(&explorer, rig);
    second_life(rig);
    cut_explorer_close(&explorer, rig);
}

static void builds_cut_off_anywhere_leave_maps_that_are_right(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(TEST_NAME);
    explore(&(struct sim_profile){.sector_bytes = 512}, seed);
    if (test_is_long()) {
        explore(&(struct sim_profile){.sector_bytes = 4096, .ordered_names = true}, seed + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_cut_off_anywhere_leave_maps_that_are_right),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
