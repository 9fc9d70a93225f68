/*
 * tests/model/test_sidecars.c - which tables have a sidecar after a clean close, when it is believed, and that no space is lost or handed
 * out twice by it: case by case. What is damaged, and crashes: test_sidecars_fuzz, crash/test_sidecars.
 */
#include "tests/model/sidecar_rig.h"

#include "fsm/sidecar.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define LARGE 8u /* leaves */

/* ---- what has one ---- */

static void clean_close_writes_sidecars_of_large_tables_only(void **state)
{
    TXN_RIG;
    static const char *const names[] = {"t1", "t2", "t3", "t4", "t5"};
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        table_fill(rig, live, names[i], i + 1, 'a');
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(sidecars_count(rig->dev), 0);
    sidecar_rig_reopen(rig);
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) { /* from two leaves on there is an inner page */
        assert_int_equal(sidecar_exists(rig, names[i]), i + 1 + (i > 0) > STORE_FSM_THRESHOLD);
    }
    assert_int_equal(sidecars_count(rig->dev), 2);
}

static void first_write_uses_the_sidecar_up_and_the_close_writes_it_again(void **state)
{
    TXN_RIG;
    table_fill(rig, live, "t", LARGE, 'a');
    for (unsigned life = 1; life <= 3; life++) {
        sidecar_rig_reopen(rig);
        assert_true(sidecar_exists(rig, "t"));
        table_change(rig, store_live(rig->store), "t", life, 'b');
        assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 1);
        assert_int_equal(sidecar_rig_stats(rig).sidecars_ignored, 0);
        assert_false(sidecar_exists(rig, "t"));
        txn_rig_check(rig);
    }
}

static void reading_checking_and_empty_lives_leave_sidecars_alone(void **state)
{
    TXN_RIG;
    struct store_attr attr;
    char path[SIDECAR_PATH_BYTES];
    uint8_t before[4096];
    size_t run = 0;
    table_fill(rig, live, "large", LARGE, 'a');
    table_fill(rig, live, "small", 1, 'a');
    sidecar_rig_reopen(rig);
    sidecar_path_of(rig, "large", path);
    const uint8_t *bytes = mem_device_file_bytes(rig->mem, path, 0, &run);
    memcpy(before, bytes, run);
    for (unsigned life = 0; life < 3; life++) {
        live = store_live(rig->store);
        assert_int_equal(shell_look(rig, live, "large", &attr), 0);
        table_expect(rig, "large", LARGE, 'a');
        txn_rig_check(rig);
        assert_int_equal(store_check_online(rig->store, &rig->diag), 0);
        assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
        assert_int_equal(store_checkpoint(rig->store), 0);
        assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
        sidecar_rig_reopen(rig);
        assert_int_equal(sidecars_count(rig->dev), 1);
        bytes = mem_device_file_bytes(rig->mem, path, 0, &run);
        assert_memory_equal(before, bytes, run);
    }
    table_expect_map(rig, "large");
    assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 1);
}

static void table_that_is_small_again_has_no_sidecar(void **state)
{
    TXN_RIG;
    table_fill(rig, live, "cut", LARGE, 'a');
    table_fill(rig, live, "emptied", LARGE, 'a');
    table_fill(rig, live, "dropped", LARGE, 'a');
    sidecar_rig_reopen(rig);
    live = store_live(rig->store);
    assert_int_equal(sidecars_count(rig->dev), 3);
    assert_int_equal(shell_truncate_to(rig, live, "cut", 2 * PAGE_PAYLOAD_SIZE), 0);
    table_fill(rig, live, "emptied", 1, 'b');
    assert_int_equal(shell_remove(rig, live, "dropped"), 0);
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 0);
    assert_int_equal(relation_files_count(rig->dev), 2);
}

static void threshold_crossed_up_and_down_leaves_what_the_size_says(void **state)
{
    TXN_RIG;
    for (unsigned round = 0; round < 100; round++) {
        table_fill(rig, store_live(rig->store), "t", round % 2 == 0 ? LARGE : 2, 'a');
        sidecar_rig_reopen(rig);
        assert_int_equal(sidecars_count(rig->dev), round % 2 == 0);
        assert_int_equal(relation_files_count(rig->dev), 1);
    }
    (void)live;
}

static void ten_thousand_small_tables_are_ten_thousand_files(void **state)
{
    TXN_RIG;
    char name[16];
    for (unsigned i = 0; i < 10000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        table_fill(rig, live, name, 1, 'a');
    }
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 0);
    assert_int_equal(relation_files_count(rig->dev), 10000);
    for (unsigned i = 0; i < 10000; i += 100) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(file_blocks_of(rig, name), 1);
    }
    assert_int_equal(shell_append(rig, store_live(rig->store), "t5000", "a row\n"), 0);
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 0);
    assert_int_equal(relation_files_count(rig->dev), 10000);
}

/* ---- the threshold ---- */

static uint64_t listings(struct txn_rig *rig)
{
    struct mem_counters counters;
    mem_device_counters(rig->mem, &counters);
    return counters.calls[MEM_CALL_LIST_DIR];
}

/* Lists no directories when it closes: the cost of a close does not depend on tables that nobody touched. */
static void expect_close_without_listing(struct txn_rig *rig)
{
    const uint64_t before = listings(rig);
    assert_int_equal(store_close(rig->store), 0);
    assert_int_equal(listings(rig), before);
    txn_rig_open(rig);
}

static void other_threshold_drops_at_the_close_what_it_does_not_allow(void **state)
{
    TXN_RIG;
    rig->threshold_given = true;
    assert_int_equal(store_close(rig->store), 0);
    txn_rig_open(rig); /* threshold 0 */
    live = store_live(rig->store);
    table_fill(rig, live, "t1", 1, 'a');
    table_fill(rig, live, "t5", 5, 'a');
    table_fill(rig, live, "t50", 50, 'a');
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 3);
    expect_close_without_listing(rig);
    rig->fsm_threshold = 10;
    expect_close_without_listing(rig);
    assert_int_equal(sidecars_count(rig->dev), 3);
    assert_int_equal(sidecar_rig_stats(rig).fsm_threshold, 10);
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 1);
    assert_true(sidecar_exists(rig, "t50"));
    expect_close_without_listing(rig);
    table_expect_map(rig, "t50");
    assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 1);
    rig->threshold_given = false;
    assert_int_equal(shell_append(rig, store_live(rig->store), "t5", "a row\n"), 0);
    sidecar_rig_reopen(rig);
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 1); /* the close was one with threshold 10 */
    assert_int_equal(sidecar_rig_stats(rig).fsm_threshold, STORE_FSM_THRESHOLD);
    assert_int_equal(shell_append(rig, store_live(rig->store), "t5", "a row\n"), 0);
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 2);
}

/* What snapshots hold makes no table large. */
static void snapshots_of_a_small_table_make_no_sidecar(void **state)
{
    TXN_RIG;
    char name[16];
    for (unsigned i = 0; i < 8; i++) {
        table_fill(rig, live, "t", 2, (char)('a' + i));
        (void)snprintf(name, sizeof name, "s%u", i);
        assert_int_equal(store_snapshot_create(rig->store, shell_name(name)), 0);
    }
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 0);
    table_change(rig, store_live(rig->store), "t", 0, 'z');
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 0);
    rig->threshold_given = true;
    rig->fsm_threshold = 1;
    sidecar_rig_reopen(rig);
    table_change(rig, store_live(rig->store), "t", 0, 'y');
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 1);
    rig->fsm_threshold = 4; /* the sidecar has more used blocks than that, the table has not */
    sidecar_rig_reopen(rig);
    sidecar_rig_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 0);
}

/* ---- when it is believed ---- */

struct saved {
    char path[SIDECAR_PATH_BYTES];
    uint8_t bytes[4096];
    size_t size;
};

static void save_sidecar(struct txn_rig *rig, const char *table, struct saved *saved)
{
    sidecar_path_of(rig, table, saved->path);
    const uint8_t *bytes = mem_device_file_bytes(rig->mem, saved->path, 0, &saved->size);
    assert_non_null(bytes);
    assert_true(saved->size <= sizeof saved->bytes);
    memcpy(saved->bytes, bytes, saved->size);
}

/* A data directory that is not open. */
static void put_back(struct txn_rig *rig, const struct saved *saved)
{
    mem_device_put_file(rig->mem, saved->path, saved->bytes, saved->size);
}

static void expect_ignored(struct txn_rig *rig, const char *table)
{
    table_expect_map(rig, table);
    assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 0);
    assert_int_equal(sidecar_rig_stats(rig).sidecars_ignored, 1);
    assert_false(sidecar_exists(rig, table));
    sidecar_rig_reopen(rig);
    table_expect_map(rig, table);
    assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 1);
}

/* A large table with a snapshot that sees it otherwise; behind a clean close. */
static void make_seen_otherwise(struct txn_rig *rig)
{
    struct view *live = store_live(rig->store);
    table_fill(rig, live, "t", LARGE, 'a');
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    for (unsigned leaf = 0; leaf < LARGE; leaf++) {
        table_change(rig, live, "t", leaf, 'b');
    }
    sidecar_rig_reopen(rig);
}

/* The snapshot goes in a life that does not touch the table: what only it saw must be free in the next one. */
static void dropped_snapshot_takes_sidecars_with_it(void **state)
{
    TXN_RIG;
    for (unsigned checkpoints = 0; checkpoints < 3; checkpoints++) {
        make_seen_otherwise(rig);
        assert_true(sidecar_exists(rig, "t"));
        assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
        for (unsigned i = 0; i < checkpoints; i++) {
            assert_int_equal(store_checkpoint(rig->store), 0);
        }
        sidecar_rig_reopen(rig);
        table_expect_map(rig, "t");
    }
    (void)live;
}

/* The same with the table's map in memory: it is in doubt when the snapshot goes, in the middle of the close at the latest. */
static void dropped_snapshot_leaves_no_old_map_of_a_written_table(void **state)
{
    TXN_RIG;
    for (unsigned checkpoints = 0; checkpoints < 3; checkpoints++) {
        make_seen_otherwise(rig);
        table_change(rig, store_live(rig->store), "t", 3, 'c');
        assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
        for (unsigned i = 0; i < checkpoints; i++) {
            assert_int_equal(store_checkpoint(rig->store), 0);
        }
        sidecar_rig_reopen(rig);
        table_expect_map(rig, "t");
        sidecar_rig_reopen(rig);
        assert_true(sidecar_exists(rig, "t"));
    }
    (void)live;
}

/* The root is the same in all four lives, the sidecar well-formed, the last start a clean one. */
static void sidecar_from_before_a_crash_is_not_believed(void **state)
{
    TXN_RIG;
    struct saved saved;
    make_seen_otherwise(rig);
    save_sidecar(rig, "t", &saved);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    txn_rig_kill_and_reopen(rig);
    assert_int_equal(sidecars_count(rig->dev), 0);
    assert_int_equal(store_close(rig->store), 0);
    put_back(rig, &saved);
    txn_rig_open(rig);
    expect_ignored(rig, "t");
    (void)live;
}

static void start_behind_a_crash_removes_all_sidecars(void **state)
{
    TXN_RIG;
    struct saved saved;
    make_seen_otherwise(rig);
    save_sidecar(rig, "t", &saved);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    store_abandon(rig->store);
    put_back(rig, &saved); /* a power cut may bring it back */
    txn_rig_open(rig);
    assert_int_equal(sidecars_count(rig->dev), 0);
    table_expect_map(rig, "t");
    assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 0);
    sidecar_rig_reopen(rig);
    table_expect_map(rig, "t");
    assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 1);
    (void)live;
}

static void sidecar_of_an_older_root_is_not_believed(void **state)
{
    TXN_RIG;
    struct saved saved;
    table_fill(rig, live, "t", LARGE, 'a');
    sidecar_rig_reopen(rig);
    table_change(rig, store_live(rig->store), "t", 0, 'b');
    sidecar_rig_reopen(rig);
    for (unsigned life = 0; life < 6; life++) {
        save_sidecar(rig, "t", &saved);
        const block_no blocks = file_blocks_of(rig, "t");
        for (unsigned i = 0; i == 0 || file_blocks_of(rig, "t") != blocks; i++) { /* only the root tells them apart */
            assert_true(i < 20);
            table_change(rig, store_live(rig->store), "t", (life + i) % LARGE, 'b');
            sidecar_rig_reopen(rig);
        }
        assert_int_equal(store_close(rig->store), 0);
        put_back(rig, &saved);
        txn_rig_open(rig);
        expect_ignored(rig, "t");
        sidecar_rig_reopen(rig);
    }
}

static void sidecar_of_another_relation_is_not_believed(void **state)
{
    TXN_RIG;
    struct saved saved, other;
    table_fill(rig, live, "t", LARGE, 'a');
    table_fill(rig, live, "u", LARGE, 'a');
    sidecar_rig_reopen(rig);
    save_sidecar(rig, "t", &saved);
    save_sidecar(rig, "u", &other);
    assert_int_equal(store_close(rig->store), 0);
    memcpy(other.bytes, saved.bytes, saved.size);
    put_back(rig, &other);
    txn_rig_open(rig);
    expect_ignored(rig, "u");
}

static void check_finds_a_sidecar_that_would_mislead(void **state)
{
    TXN_RIG;
    struct saved saved;
    struct fsm_sidecar sidecar;
    const char *why = NULL;
    bool made = false;
    table_fill(rig, live, "t", LARGE, 'a');
    sidecar_rig_reopen(rig);
    save_sidecar(rig, "t", &saved);
    const block_no blocks = file_blocks_of(rig, "t");
    diag_init_silent(&rig->diag);
    for (block_no block = 0; block < blocks; block++) {
        assert_int_equal(store_close(rig->store), 0);
        put_back(rig, &saved);
        assert_int_equal(fsm_sidecar_read(rig->dev, saved.path, blocks, &sidecar, &why), 0);
        const bool used = (sidecar.words[0] >> block & 1) != 0;
        sidecar.words[0] ^= UINT64_C(1) << block;
        sidecar.used += used ? UINT32_MAX : 1;
        assert_int_equal(fsm_sidecar_write(rig->dev, saved.path, &sidecar, &made), 0);
        fsm_sidecar_free(&sidecar);
        txn_rig_open(rig);
        assert_int_equal(store_check(rig->store), -EIO);
    }
    assert_int_equal(store_close(rig->store), 0);
    saved.bytes[saved.size - 1] ^= 1; /* damaged: noted, and no finding */
    put_back(rig, &saved);
    txn_rig_open(rig);
    txn_rig_check(rig);
}

/* A transaction that leaves the table as it was may leave its file longer. */
static void aborted_transaction_leaves_a_good_sidecar(void **state)
{
    TXN_RIG;
    table_fill(rig, live, "t", LARGE, 'a');
    for (unsigned life = 0; life < 3; life++) {
        sidecar_rig_reopen(rig);
        struct store_txn *txn = shell_begin(rig);
        for (unsigned leaf = 0; leaf < LARGE; leaf++) {
            table_change(rig, store_txn_view(txn), "t", leaf, 'b');
        }
        store_txn_abort(txn);
        store_txn_put(txn);
        assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 1);
        txn_rig_check(rig);
    }
}

/* It has another inode number then, and its relation the old owner's. */
static void rewritten_by_a_transaction_has_a_good_sidecar(void **state)
{
    TXN_RIG;
    table_fill(rig, live, "t", LARGE, 'a');
    for (unsigned life = 0; life < 4; life++) {
        sidecar_rig_reopen(rig);
        struct store_txn *txn = shell_begin(rig);
        table_change(rig, store_txn_view(txn), "t", life, 'b');
        shell_must_commit(txn);
        assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, life > 0 || sidecar_rig_stats(rig).sidecars_loaded);
        txn_rig_check(rig);
    }
    sidecar_rig_reopen(rig);
    table_expect_map(rig, "t");
    assert_int_equal(sidecar_rig_stats(rig).sidecars_loaded, 1);
}

/* ---- what goes wrong costs builds, nothing else ---- */

static void sidecar_that_cannot_be_written_is_left_out(void **state)
{
    static const enum mem_call calls[] = {MEM_CALL_OPEN, MEM_CALL_WRITE, MEM_CALL_SYNC, MEM_CALL_UNLINK,
                                          MEM_CALL_SYNC_DIR};
    TXN_RIG;
    table_fill(rig, live, "t", LARGE, 'a');
    table_fill(rig, live, "u", LARGE, 'a');
    sidecar_rig_reopen(rig);
    struct diag silent;
    diag_init_silent(&silent);
    for (unsigned i = 0; i < ARRAY_COUNT(calls) * 12; i++) {
        table_change(rig, store_live(rig->store), "t", i % LARGE, (char)('b' + i % 20));
        struct mem_device *mem = mem_device_clone(rig->mem);
        struct txn_rig other = {.mem = mem, .dev = mem_device_io(mem), .diag = silent};
        txn_rig_open(&other);
        table_change(&other, store_live(other.store), "u", i % LARGE, (char)('b' + i % 20));
        mem_device_fail(mem, calls[i % ARRAY_COUNT(calls)], i / ARRAY_COUNT(calls) + 1, EIO, false);
        const int rc = store_close(other.store);
        (void)rc; /* the same call elsewhere fails the close, which is then no clean one */
        mem_device_clear_faults(mem);
        txn_rig_open(&other);
        table_expect_map(&other, "t");
        table_expect_map(&other, "u");
        assert_int_equal(store_close(other.store), 0);
        txn_rig_open(&other);
        table_expect_map(&other, "t");
        table_expect_map(&other, "u");
        assert_int_equal(sidecar_rig_stats(&other).sidecars_loaded, 2);
        store_abandon(other.store);
        mem_device_destroy(mem);
    }
}

/* One that stays where it should be gone counts no more. */
static void sidecar_that_cannot_be_removed_is_not_believed_later(void **state)
{
    TXN_RIG;
    make_seen_otherwise(rig);
    rig->diag.max_level = DIAG_ERROR;
    mem_device_fail(rig->mem, MEM_CALL_UNLINK, 1, EIO, true);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(store_close(rig->store), 0);
    mem_device_clear_faults(rig->mem);
    txn_rig_open(rig);
    assert_true(sidecar_exists(rig, "t"));
    expect_ignored(rig, "t");
    (void)live;
}

static void full_disk_closes_without_sidecars(void **state)
{
    TXN_RIG;
    table_fill(rig, live, "t", LARGE, 'a');
    assert_int_equal(store_checkpoint(rig->store), 0);
    rig->diag.max_level = DIAG_ERROR;
    mem_device_set_capacity(rig->mem, mem_device_used_bytes(rig->mem));
    assert_int_equal(store_close(rig->store), 0);
    assert_int_equal(sidecars_count(rig->dev), 0);
    mem_device_set_capacity(rig->mem, 0);
    txn_rig_open(rig);
    table_expect_map(rig, "t");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_RIG_CASE(clean_close_writes_sidecars_of_large_tables_only),
        TXN_RIG_CASE(first_write_uses_the_sidecar_up_and_the_close_writes_it_again),
        TXN_RIG_CASE(reading_checking_and_empty_lives_leave_sidecars_alone),
        TXN_RIG_CASE(table_that_is_small_again_has_no_sidecar),
        TXN_RIG_CASE(threshold_crossed_up_and_down_leaves_what_the_size_says),
        TXN_RIG_CASE(ten_thousand_small_tables_are_ten_thousand_files),
        TXN_RIG_CASE(other_threshold_drops_at_the_close_what_it_does_not_allow),
        TXN_RIG_CASE(snapshots_of_a_small_table_make_no_sidecar),
        TXN_RIG_CASE(dropped_snapshot_takes_sidecars_with_it),
        TXN_RIG_CASE(dropped_snapshot_leaves_no_old_map_of_a_written_table),
        TXN_RIG_CASE(sidecar_from_before_a_crash_is_not_believed),
        TXN_RIG_CASE(start_behind_a_crash_removes_all_sidecars),
        TXN_RIG_CASE(sidecar_of_an_older_root_is_not_believed),
        TXN_RIG_CASE(sidecar_of_another_relation_is_not_believed),
        TXN_RIG_CASE(check_finds_a_sidecar_that_would_mislead),
        TXN_RIG_CASE(aborted_transaction_leaves_a_good_sidecar),
        TXN_RIG_CASE(rewritten_by_a_transaction_has_a_good_sidecar),
        TXN_RIG_CASE(sidecar_that_cannot_be_written_is_left_out),
        TXN_RIG_CASE(sidecar_that_cannot_be_removed_is_not_believed_later),
        TXN_RIG_CASE(full_disk_closes_without_sidecars),
    };
    return cmocka_run_group_tests_name("test_sidecars", tests, NULL, NULL);
}
