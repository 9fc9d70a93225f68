/*
 * tests/model/test_small_tables.c - small tables stay small: 100,000 random rewrites, appends and cuts of tables whose live tree never has
 * more than four blocks, with transactions, snapshots, checkpoints, kills and clean closes in between. There is never a sidecar.
 *
 * At a quiet checkpoint, when nothing but checkpoints holds old versions and each table had its time to be compacted, every file has at most
 * twice its live blocks and one. Nothing is rewritten for that: a table whose live blocks lie high is compacted by store_step, once, and no
 * step behind that changes anything. Tables that nobody changed since the last start are not noted, so they are left out until somebody does.
 *
 * Without transactions and snapshots no file has more than three times the largest tree's blocks at any time.
 */
#include "tests/lib/test_support.h"
#include "tests/model/sidecar_rig.h"
#include "txn/store_int.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_NAME  "test_small_tables"
#define TABLES     6u
#define LEAVES_MAX 3u /* and an inner page */
#define OPERATIONS 100000u
#define SNAPSHOTS  3u
#define NOTES_MAX  1000u

struct small {
    struct txn_rig *rig;
    struct test_random random;
    bool alone;            /* no transactions, no snapshots */
    struct store_txn *txn; /* NULL: none is open */
    bool taken[SNAPSHOTS];
    uint64_t quiet, closes, kills;
    bool changed[TABLES]; /* since the last start */
    uint64_t judged;      /* files compared with the bound */
    block_no largest;     /* file at any time while nothing holds old versions but checkpoints */
};

static uint64_t below(struct small *small, uint64_t limit)
{
    return test_random_below(&small->random, limit);
}

static const char *name_of(uint64_t table)
{
    static char name[8];
    (void)snprintf(name, sizeof name, "t%u", (unsigned)table);
    return name;
}

/* ---- operations ---- */

static void write_at(struct small *small, struct view *view, const char *name, uint64_t offset, size_t size)
{
    static const uint8_t bytes[LEAVES_MAX * PAGE_PAYLOAD_SIZE] = {'x'};
    uint64_t end = 0;
    struct store_file *file = shell_open(small->rig, view, name);
    assert_int_equal(store_write(file, offset, bytes, size, 0, &end), 0);
    store_file_close(file);
}

/* Within what three leaves hold, wherever the tree cuts them: a leaf may be half empty. */
static void change_table(struct small *small, struct view *view, uint64_t table)
{
    struct store_attr attr;
    const char *name = name_of(table);
    assert_int_equal(shell_look(small->rig, view, name, &attr), 0);
    const uint64_t size_max = LEAVES_MAX * PAGE_PAYLOAD_SIZE;
    switch (below(small, 5)) {
    case 0: /* rewrite */
        assert_int_equal(shell_truncate_to(small->rig, view, name, 0), 0);
        write_at(small, view, name, 0, 1 + (size_t)below(small, size_max));
        break;
    case 1:
        assert_int_equal(shell_truncate_to(small->rig, view, name, below(small, attr.size_bytes + 1)), 0);
        break;
    case 2: /* append */
        if (attr.size_bytes < size_max) {
            write_at(small, view, name, attr.size_bytes, 1 + (size_t)below(small, size_max - attr.size_bytes));
        }
        break;
    default: /* in place */
        if (attr.size_bytes > 0) {
            const uint64_t offset = below(small, attr.size_bytes);
            write_at(small, view, name, offset, 1 + (size_t)below(small, attr.size_bytes - offset));
        }
        break;
    }
}

static void end_transaction(struct small *small, bool commit)
{
    if (small->txn == NULL) {
        return;
    }
    if (!commit || shell_commit(small->txn) != 0) {
        store_txn_abort(small->txn);
    }
    store_txn_put(small->txn);
    small->txn = NULL;
}

static void touch_snapshot(struct small *small)
{
    const uint64_t i = below(small, SNAPSHOTS);
    char name[8];
    (void)snprintf(name, sizeof name, "s%u", (unsigned)i);
    const int rc = small->taken[i] ? store_snapshot_drop(small->rig->store, shell_name(name))
                                   : store_snapshot_create(small->rig->store, shell_name(name));
    assert_int_equal(rc, 0);
    small->taken[i] = !small->taken[i];
}

static void drop_all_snapshots(struct small *small)
{
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "s%u", i);
        if (small->taken[i]) {
            assert_int_equal(store_snapshot_drop(small->rig->store, shell_name(name)), 0);
            small->taken[i] = false;
        }
    }
}

/* ---- what has to hold ---- */

static uint64_t live_blocks_of(struct small *small, const char *name)
{
    struct store_file *file = shell_open(small->rig, store_live(small->rig->store), name);
    struct inode inode;
    uint64_t blocks = 0;
    assert_int_equal(store_file_get_inode(file, &inode), 0);
    if (inode.rel != REL_NONE) {
        const struct content_root root = store_content_root(&inode);
        assert_int_equal(content_count_blocks(file->relation, &root, &blocks), 0);
    }
    assert_in_range(blocks, 0, STORE_FSM_THRESHOLD);
    store_file_close(file);
    return blocks;
}

static block_no file_blocks(struct small *small, const char *name)
{
    struct store_file *file = shell_open(small->rig, store_live(small->rig->store), name);
    block_no blocks = 0;
    if (file->relation != NULL) {
        assert_int_equal(relation_file_blocks(file->relation, &blocks), 0);
    }
    store_file_close(file);
    return blocks;
}

/* Nothing but the last checkpoint holds anything, and that is what the live tree is. */
static void become_quiet(struct small *small)
{
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(shell_change_mode(small->rig, store_live(small->rig->store), name_of(0), 0600 + i), 0);
        assert_int_equal(store_checkpoint(small->rig->store), 0);
        store_step(small->rig->store);
    }
}

/* A step looks at one of those that were noted; some of them are gone. */
static void compact_the_quiet(struct small *small)
{
    mem_device_advance_ns(small->rig->mem, 2 * small->rig->store->compact_quiet_ns);
    for (unsigned i = 0; i < NOTES_MAX && small->rig->store->compact_notes != NULL; i++) {
        store_step(small->rig->store);
    }
    assert_null(small->rig->store->compact_notes);
}

static void expect_nothing_left_to_do(struct small *small)
{
    const uint64_t changes = atomic_load(&small->rig->store->changes);
    compact_the_quiet(small);
    assert_int_equal(atomic_load(&small->rig->store->changes), changes);
}

static void expect_small_files(struct small *small)
{
    end_transaction(small, true);
    drop_all_snapshots(small);
    become_quiet(small);
    compact_the_quiet(small);
    become_quiet(small);
    expect_nothing_left_to_do(small);
    for (uint64_t table = 0; table < TABLES; table++) {
        const uint64_t live = live_blocks_of(small, name_of(table));
        if (small->changed[table]) {
            assert_in_range(file_blocks(small, name_of(table)), live, 2 * live + 1);
            small->judged++;
        }
    }
    small->quiet++;
}

/* Compaction is told anew what was changed. */
static void note_start(struct small *small)
{
    small->rig->store->compact_auto = true;
    memset(small->changed, 0, sizeof small->changed);
}

static void expect_no_sidecar(struct small *small)
{
    assert_int_equal(sidecars_count(small->rig->dev), 0);
}

static void interrupt(struct small *small)
{
    switch (below(small, 6)) {
    case 0:
        end_transaction(small, below(small, 2) == 0);
        sidecar_rig_reopen(small->rig);
        note_start(small);
        small->closes++;
        break;
    case 1:
        end_transaction(small, false);
        txn_rig_kill_and_reopen(small->rig);
        note_start(small);
        small->kills++;
        break;
    case 2:
        expect_small_files(small);
        break;
    case 3:
        assert_int_equal(store_checkpoint(small->rig->store), 0);
        break;
    case 4:
        if (!small->alone) {
            touch_snapshot(small);
        }
        break;
    default:
        store_step(small->rig->store);
        break;
    }
    expect_no_sidecar(small);
}

static bool is_anything_held(const struct small *small)
{
    bool held = small->txn != NULL;
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        held |= small->taken[i];
    }
    return held;
}

static void operate(struct small *small)
{
    const uint64_t table = below(small, TABLES);
    if (!small->alone && small->txn == NULL && below(small, 50) == 0) {
        small->txn = shell_begin(small->rig);
    }
    const bool inside = small->txn != NULL && below(small, 2) == 0;
    small->changed[table] |= !inside;
    change_table(small, inside ? store_txn_view(small->txn) : store_live(small->rig->store), table);
    if (small->txn != NULL && below(small, 30) == 0) {
        end_transaction(small, below(small, 3) != 0);
    }
    if (!is_anything_held(small)) {
        const block_no blocks = file_blocks(small, name_of(table));
        small->largest = blocks > small->largest ? blocks : small->largest;
    }
}

static void run(struct small *small)
{
    test_random_init(&small->random, test_seed(TEST_NAME));
    note_start(small);
    for (uint64_t table = 0; table < TABLES; table++) {
        table_fill(small->rig, store_live(small->rig->store), name_of(table), 1, 'a');
    }
    const unsigned operations = (test_is_long() ? 10 : 1) * OPERATIONS / 2;
    for (unsigned i = 0; i < operations; i++) {
        operate(small);
        if (below(small, 150) == 0) {
            interrupt(small);
        }
    }
    expect_small_files(small);
    assert_true(small->judged > TABLES);
    fprintf(stderr, "%llu closes, %llu kills, %llu quiet checkpoints, %llu files judged, largest file %u blocks\n",
            (unsigned long long)small->closes, (unsigned long long)small->kills, (unsigned long long)small->quiet,
            (unsigned long long)small->judged, small->largest);
}

static void tables_of_four_blocks_stay_one_small_file_each(void **state)
{
    struct small small = {.rig = *state};
    run(&small);
}

/* What nobody but checkpoints holds is in the file at most twice beside what is live. */
static void tables_of_four_blocks_alone_never_have_three_times_as_many(void **state)
{
    struct small small = {.rig = *state, .alone = true};
    run(&small);
    assert_in_range(small.largest, 4, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_RIG_CASE(tables_of_four_blocks_stay_one_small_file_each),
        TXN_RIG_CASE(tables_of_four_blocks_alone_never_have_three_times_as_many),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
