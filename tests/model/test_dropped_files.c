/*
 * tests/model/test_dropped_files.c - the file of a relation that left the live tree stays as long as somebody needs it, and not longer;
 * and what comes back into the tree is as good as what never left it.
 */
#include "tests/model/map_cases.h"
#include "tests/model/sidecar_rig.h"
#include "txn/store_int.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEAVES 40u

static void must_compact(struct txn_rig *rig, const char *path)
{
    struct store_compact_info info;
    assert_int_equal(shell_compact(rig, path, &info), 0);
}

/* ---- when the store is closed ---- */

static void expect_one_file_behind_close(struct txn_rig *rig)
{
    sidecar_rig_reopen(rig);
    assert_int_equal(relation_files_count(rig->dev), 1);
    table_expect(rig, "t", LEAVES, 'a');
}

static void compaction_given_up_before_close_leaves_no_file(void **state)
{
    struct txn_rig *rig = *state;
    struct store_compact *compact = NULL;
    table_fill(rig, store_live(rig->store), "t", LEAVES, 'a');
    struct store_file *file = shell_open(rig, store_live(rig->store), "t");
    assert_int_equal(store_compact_begin(file, &compact), 0);
    assert_int_equal(store_compact_step(compact, 1), 1);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(relation_files_count(rig->dev), 2);
    store_compact_end(compact);
    store_file_close(file);
    expect_one_file_behind_close(rig);
}

/* The drop has its checkpoint, and the transaction, which changed nothing, ends behind it. */
static void reader_that_ends_before_close_leaves_no_file(void **state)
{
    struct txn_rig *rig = *state;
    table_fill(rig, store_live(rig->store), "t", LEAVES, 'a');
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    store_txn_put(txn);
    expect_one_file_behind_close(rig);
}

/* Only a snapshot saw it, which goes when the store is closed. */
static void snapshot_dropped_before_close_leaves_no_file(void **state)
{
    struct txn_rig *rig = *state;
    table_fill(rig, store_live(rig->store), "t", LEAVES, 'a');
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    must_compact(rig, "t");
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    expect_one_file_behind_close(rig);
}

/* ---- what comes back ---- */

/* A table of which a snapshot of an earlier life sees another version. */
static void make_table_and_snapshot(struct txn_rig *rig)
{
    table_fill(rig, store_live(rig->store), "t", LEAVES, 's');
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    for (unsigned leaf = 0; leaf < LEAVES; leaf++) {
        table_change(rig, store_live(rig->store), "t", leaf, 'a');
    }
    sidecar_rig_reopen(rig);
}

static void drop_snapshot(struct txn_rig *rig)
{
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    map_step_until_idle(rig);
}

/* The snapshot goes while the relation is a transaction's alone. */
static void relation_that_comes_back_does_not_keep_what_a_dropped_snapshot_saw(void **state)
{
    struct txn_rig *rig = *state;
    make_table_and_snapshot(rig);
    assert_true(sidecar_exists(rig, "t"));
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    drop_snapshot(rig);
    table_change(rig, store_txn_view(txn), "t", 0, 'b');
    shell_must_commit(txn);
    map_step_until_idle(rig);
    table_expect_map(rig, "t");
    table_change(rig, store_live(rig->store), "t", 0, 'a');
    sidecar_rig_reopen(rig);
    table_expect_map(rig, "t");
    table_expect(rig, "t", LEAVES, 'a');
}

/* ---- beside the end of a snapshot of an earlier life ---- */

/* A reader of an old version has a relation that no tree names any more. */
static void old_version_is_read_on_when_a_snapshot_goes(void **state)
{
    struct txn_rig *rig = *state;
    uint8_t bytes[PAGE_PAYLOAD_SIZE];
    size_t got = 0;
    make_table_and_snapshot(rig);
    struct store_file *file = shell_open(rig, store_live(rig->store), "t");
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_truncate_to(rig, store_txn_view(txn), "t", 0), 0);
    shell_must_commit(txn);
    assert_int_equal(store_checkpoint(rig->store), 0);
    drop_snapshot(rig);
    store_step(rig->store);
    for (uint64_t leaf = 0; leaf < LEAVES; leaf++) {
        assert_int_equal(store_read(file, leaf * sizeof bytes, bytes, sizeof bytes, &got), 0);
        assert_int_equal(got, sizeof bytes);
        assert_int_equal(bytes[0], 'a');
    }
    store_file_close(file);
}

/* The log refers to pages of a relation that no tree names any more: rows of a transaction that were copied behind those of others. */
static void pages_that_the_log_refers_to_stay_when_a_snapshot_goes(void **state)
{
    struct txn_rig *rig = *state;
    struct store_snapshot *snapshot = NULL;
    char *base = shell_rows("base", 20000);
    char *mine = shell_rows("mine", 20000);
    const char *const parts[] = {base, "other\n", mine};
    assert_int_equal(shell_append(rig, store_live(rig->store), "t", base), 0);
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    sidecar_rig_reopen(rig);
    assert_int_equal(store_snapshot_get(rig->store, shell_name("s"), &snapshot), 0);
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(shell_append(rig, store_live(rig->store), "t", "other\n"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    shell_must_commit(txn);
    store_snapshot_put(snapshot);
    store_snapshots_close(rig->store);
    store_step(rig->store);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 3);
    free(base);
    free(mine);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        TXN_RIG_CASE(compaction_given_up_before_close_leaves_no_file),
        TXN_RIG_CASE(reader_that_ends_before_close_leaves_no_file),
        TXN_RIG_CASE(snapshot_dropped_before_close_leaves_no_file),
        TXN_RIG_CASE(relation_that_comes_back_does_not_keep_what_a_dropped_snapshot_saw),
        TXN_RIG_CASE(old_version_is_read_on_when_a_snapshot_goes),
        TXN_RIG_CASE(pages_that_the_log_refers_to_stay_when_a_snapshot_goes),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
