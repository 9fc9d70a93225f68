/*
 * tests/model/test_maps.c - free maps that are built in the background: who writes does not wait for them, and they come out as the trees
 * are, whatever happens meanwhile.
 */
#include "tests/model/map_cases.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct fsm_stats stats_of(struct relation *relation)
{
    struct fsm_stats stats;
    assert_int_equal(fsm_get_stats(relation, &stats), 0);
    return stats;
}

static struct store_stats store_stats_of(struct txn_rig *rig)
{
    struct store_stats stats;
    store_get_stats(rig->store, &stats);
    return stats;
}

static int count_job(void *arg, const struct store_job_info *info)
{
    assert_string_equal(info->kind, "map");
    assert_string_equal(info->unit, "blocks");
    assert_true(info->total > LARGE_LEAVES);
    ++*(unsigned *)arg;
    return 0;
}

static void first_write_of_a_large_table_reads_no_tree_but_its_path(void **state)
{
    struct txn_rig *rig = *state;
    unsigned jobs = 0;
    map_make_large(rig, "t");
    struct relation *relation = map_relation_of(rig, "t");
    block_no before = 0;
    assert_int_equal(relation_file_blocks(relation, &before), 0);
    map_write_at(rig, store_live(rig->store), "t", 0, 1);
    assert_false(fsm_is_ready(relation));
    assert_true(stats_of(relation).file_blocks > before); /* at the end: nothing is known to be free */
    assert_int_equal(map_waiting(rig), 1);
    txn_rig_check(rig);
    store_step(rig->store);
    assert_int_equal(store_each_job(rig->store, count_job, &jobs), 0);
    assert_int_equal(jobs, 1);
    map_step_until_idle(rig);
    assert_true(fsm_is_ready(relation));
    assert_int_equal(store_each_job(rig->store, count_job, &jobs), 0);
    assert_int_equal(jobs, 1);
    assert_int_equal(store_stats_of(rig).maps_built, 1);
    relation_unref(relation);
}

static void small_table_has_its_map_at_once(void **state)
{
    struct txn_rig *rig = *state;
    assert_int_equal(shell_append(rig, store_live(rig->store), "t", "row\n"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_kill_and_reopen(rig);
    assert_int_equal(shell_append(rig, store_live(rig->store), "t", "row\n"), 0);
    struct relation *relation = map_relation_of(rig, "t");
    assert_true(fsm_is_ready(relation));
    assert_int_equal(map_waiting(rig), 0);
    relation_unref(relation);
}

/* Until the map is there, what is freed is used again: the file does not grow with each write. */
static void table_without_a_map_uses_again_what_it_freed(void **state)
{
    struct txn_rig *rig = *state;
    map_make_large(rig, "t");
    struct relation *relation = map_relation_of(rig, "t");
    for (unsigned i = 0; i < 200; i++) {
        map_write_at(rig, store_live(rig->store), "t", i % 50 * LEAF_BYTES, LEAF_BYTES);
        if (i % 4 == 0) {
            assert_int_equal(store_checkpoint(rig->store), 0);
        }
    }
    assert_false(fsm_is_ready(relation));
    assert_in_range(stats_of(relation).file_blocks, LARGE_LEAVES, 2 * LARGE_LEAVES);
    txn_rig_check(rig);
    relation_unref(relation);
}

static void store_closed_while_a_map_is_built_leaves_nothing(void **state)
{
    struct txn_rig *rig = *state;
    map_make_large(rig, "t");
    map_write_at(rig, store_live(rig->store), "t", 0, 1);
    store_step(rig->store);
    assert_int_equal(store_close(rig->store), 0);
    txn_rig_open(rig);
    map_write_at(rig, store_live(rig->store), "t", 0, 1);
    store_step(rig->store);
    txn_rig_kill_and_reopen(rig);
}

static void many_tables_are_built_in_turn(void **state)
{
    struct txn_rig *rig = *state;
    char name[16];
    for (unsigned i = 0; i < 70; i++) { /* more than one batch takes */
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(shell_make(rig, store_live(rig->store), name, 0100644), 0);
        map_write_at(rig, store_live(rig->store), name, 0, 40 * LEAF_BYTES);
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_kill_and_reopen(rig);
    for (unsigned i = 0; i < 70; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        map_write_at(rig, store_live(rig->store), name, LEAF_BYTES, 1);
    }
    assert_int_equal(map_waiting(rig), 70);
    map_step_until_idle(rig);
    assert_int_equal(store_stats_of(rig).maps_built, 70);
    txn_rig_check(rig);
}

static void table_removed_while_its_map_is_built_goes(void **state)
{
    struct txn_rig *rig = *state;
    map_make_large(rig, "t");
    struct view *live = store_live(rig->store);
    map_write_at(rig, live, "t", 0, 1);
    assert_int_equal(shell_remove(rig, live, "t"), 0); /* before the fork: nothing to build */
    map_step_until_idle(rig);
    assert_int_equal(store_stats_of(rig).maps_failed, 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    map_make_large(rig, "u");
    map_write_at(rig, store_live(rig->store), "u", 0, 1);
    store_step(rig->store);
    assert_int_equal(shell_remove(rig, store_live(rig->store), "u"), 0); /* behind it */
    assert_int_equal(store_checkpoint(rig->store), 0);
    map_step_until_idle(rig);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_stats_of(rig).maps_failed, 0);
}

/* ---- snapshots of an earlier life ---- */

static void file_path(const struct relation *relation, char path[64])
{
    const rel_no rel = relation_number(relation);
    (void)snprintf(path, 64, TXN_RIG_DIR "/rel/%02" PRIx64 "/%016" PRIx64, rel & 0xff, rel);
}

/* "t" is rewritten and "gone" removed behind a snapshot of both, which is then of an earlier life. */
static void make_old_snapshot(struct txn_rig *rig)
{
    map_make_large(rig, "t");
    map_make_large(rig, "gone");
    map_make_large(rig, "same");
    struct view *live = store_live(rig->store);
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    map_write_at(rig, live, "t", 0, LARGE_LEAVES * LEAF_BYTES);
    assert_int_equal(shell_remove(rig, live, "gone"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_kill_and_reopen(rig);
}

static void dropped_snapshot_of_an_earlier_life_gives_its_space_back(void **state)
{
    struct txn_rig *rig = *state;
    make_old_snapshot(rig);
    struct view *live = store_live(rig->store);
    map_write_at(rig, live, "t", 0, 1);
    map_step_until_idle(rig);
    const uint64_t built = store_stats_of(rig).maps_built;
    struct relation *table = map_relation_of(rig, "t");
    assert_true(stats_of(table).used_blocks >= 2 * LARGE_LEAVES);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_false(fsm_is_ready(table));
    assert_false(fsm_is_ready(store_live(rig->store)->catalog));
    txn_rig_check(rig);
    map_write_at(rig, live, "t", LEAF_BYTES, LEAF_BYTES);
    map_step_until_idle(rig);
    assert_int_equal(store_stats_of(rig).maps_built, built + 2); /* and the catalog's */
    assert_true(fsm_is_ready(table));
    assert_in_range(stats_of(table).used_blocks, LARGE_LEAVES, LARGE_LEAVES + 20);
    txn_rig_check(rig);
    relation_unref(table);
}

static int count_file(void *arg, const char *name, enum io_file_kind kind)
{
    (void)name;
    *(unsigned *)arg += kind == IO_KIND_FILE;
    return 0;
}

static unsigned count_files(struct txn_rig *rig)
{
    unsigned count = 0;
    for (unsigned i = 0; i < 256; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, TXN_RIG_DIR "/rel/%02x", i);
        assert_int_equal(io_list_dir(rig->dev, path, count_file, &count), 0);
    }
    return count;
}

static void dropped_snapshot_of_an_earlier_life_takes_its_files_along(void **state)
{
    struct txn_rig *rig = *state;
    make_old_snapshot(rig);
    assert_int_equal(store_snapshot_create(rig->store, shell_name("other")), 0);
    assert_int_equal(count_files(rig), 4); /* the catalog, t, same, gone */
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    map_step_until_idle(rig);
    assert_int_equal(count_files(rig), 3);
    txn_rig_check(rig);
}

/* As another snapshot of an earlier life sees it. */
static void file_that_another_snapshot_sees_stays(void **state)
{
    struct txn_rig *rig = *state;
    map_make_large(rig, "gone");
    assert_int_equal(store_snapshot_create(rig->store, shell_name("first")), 0);
    map_write_at(rig, store_live(rig->store), "gone", 0, 1);
    assert_int_equal(store_snapshot_create(rig->store, shell_name("second")), 0);
    assert_int_equal(shell_remove(rig, store_live(rig->store), "gone"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_kill_and_reopen(rig);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("second")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    map_step_until_idle(rig);
    assert_int_equal(count_files(rig), 2);
    txn_rig_check(rig);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("first")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    map_step_until_idle(rig);
    assert_int_equal(count_files(rig), 1);
}

/* The root of the version that the snapshot has of the table. */
static block_no root_block_in(struct txn_rig *rig, const char *snapshot_name, const char *path)
{
    struct store_snapshot *snapshot = NULL;
    struct store_attr attr;
    struct inode inode;
    assert_int_equal(store_snapshot_get(rig->store, shell_name(snapshot_name), &snapshot), 0);
    struct view *view = store_snapshot_view(snapshot);
    assert_int_equal(shell_look(rig, view, path, &attr), 0);
    rwlock_lock_shared(&view->catalog_lock);
    assert_int_equal(inode_get(view, attr.ino, &inode), 0);
    rwlock_unlock_shared(&view->catalog_lock);
    store_snapshot_put(snapshot);
    return inode.content_ptr.block;
}

static void damaged_snapshot_costs_the_map_and_not_the_write(void **state)
{
    struct txn_rig *rig = *state;
    char path[64];
    size_t run = 0;
    make_old_snapshot(rig);
    const block_no root = root_block_in(rig, "s", "t");
    struct relation *table = map_relation_of(rig, "t");
    file_path(table, path);
    relation_unref(table);
    store_abandon(rig->store);
    *mem_device_file_bytes(rig->mem, path, (uint64_t)root * BLOCK_SIZE + 200, &run) ^= 1;
    diag_init_silent(&rig->diag);
    txn_rig_open(rig);
    struct view *live = store_live(rig->store);
    map_write_at(rig, live, "t", 0, 1);
    map_step_until_idle(rig);
    table = map_relation_of(rig, "t");
    assert_false(fsm_is_ready(table));
    assert_int_equal(store_stats_of(rig).maps_failed, 1);
    for (unsigned i = 0; i < 10; i++) {
        map_write_at(rig, live, "t", i * LEAF_BYTES, LEAF_BYTES);
    }
    assert_int_equal(map_waiting(rig), 0); /* it is not tried again and again */
    relation_unref(table);
    assert_int_equal(store_check(rig->store), -EIO);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    map_step_until_idle(rig);
    assert_int_equal(store_stats_of(rig).maps_failed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define MAP_CASE(plant, name) TXN_RIG_CASE(name),
        MAP_CASES(MAP_CASE)
#undef MAP_CASE
            TXN_RIG_CASE(first_write_of_a_large_table_reads_no_tree_but_its_path),
        TXN_RIG_CASE(small_table_has_its_map_at_once),
        TXN_RIG_CASE(table_without_a_map_uses_again_what_it_freed),
        TXN_RIG_CASE(store_closed_while_a_map_is_built_leaves_nothing),
        TXN_RIG_CASE(many_tables_are_built_in_turn),
        TXN_RIG_CASE(table_removed_while_its_map_is_built_goes),
        TXN_RIG_CASE(dropped_snapshot_of_an_earlier_life_gives_its_space_back),
        TXN_RIG_CASE(dropped_snapshot_of_an_earlier_life_takes_its_files_along),
        TXN_RIG_CASE(file_that_another_snapshot_sees_stays),
        TXN_RIG_CASE(damaged_snapshot_costs_the_map_and_not_the_write),
    };
    return cmocka_run_group_tests_name("test_maps", tests, NULL, NULL);
}
