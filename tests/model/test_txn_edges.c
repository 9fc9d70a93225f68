/*
 * tests/model/test_txn_edges.c - transactions at their edges: what comes behind the end, in large numbers, beside others, and nothing at all; and
 * the cases of tests/model/txn_cases.h.
 */
#include "tests/model/txn_cases.h"
#include "tests/model/txn_rig.h"
#include "txn/store_txn.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- behind the end ---- */

/* Writes into whatever blocks of the table are free by now. */
static void write_much(struct txn_rig *rig, const char *path, uint64_t size)
{
    struct view *live = store_live(rig->store);
    char *text = shell_rows("much", 5000);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(shell_append(rig, live, path, text), 0);
        assert_int_equal(shell_truncate_to(rig, live, path, size), 0);
    }
    free(text);
}

static void second_commit_leaves_readers_of_the_first_alone(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "two\n"), 0);
    struct store_file *inside = shell_open(rig, store_txn_view(txn), "t");
    assert_int_equal(shell_commit(txn), 0);
    assert_int_equal(shell_commit(txn), -ENOENT);
    write_much(rig, "t", 3);
    shell_expect_file(inside, "one\ntwo\n");
    store_file_close(inside);
    store_txn_put(txn);
}

static void file_opened_behind_the_commit_shows_what_was_committed(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(shell_commit(txn), 0);
    write_much(rig, "t", 3);
    shell_expect(rig, store_txn_view(txn), "t", "one\ntwo\n");
    store_txn_put(txn);
}

/* ---- in large numbers ---- */

static void table_with_many_links_can_be_rewritten(void **state)
{
    TXN_RIG;
    char name[64];
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    for (unsigned i = 0; i < 2000; i++) {
        if (i % 50 == 0) {
            (void)snprintf(name, sizeof name, "d%u", i / 50);
            assert_int_equal(shell_make_dir(rig, live, name), 0);
        }
        (void)snprintf(name, sizeof name, "d%u/%u", i / 50, i);
        assert_int_equal(shell_link(rig, live, "t", name), 0);
    }
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "t", "two\n"), 0);
    shell_must_commit(txn);
    shell_expect(rig, live, "t", "two\n");
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "d39/1999", "two\n");
}

/* ---- beside others ---- */

static void attributes_of_a_directory_that_both_made_are_the_others(void **state)
{
    TXN_RIG;
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_make_dir(rig, store_txn_view(txn), "d"), 0);
    assert_int_equal(shell_change_mode(rig, store_txn_view(txn), "d", 0777), 0);
    assert_int_equal(shell_make_dir(rig, live, "d"), 0);
    assert_int_equal(shell_change_mode(rig, live, "d", 0700), 0);
    shell_must_commit(txn);
    assert_int_equal(shell_mode_of(rig, "d"), 0700);
    txn_rig_kill_and_reopen(rig);
    assert_int_equal(shell_mode_of(rig, "d"), 0700);
}

#define TAKEN_BY_OTHERS 400u

/* Others take all that the file had when the block was promised: it lies beyond what the view has bits for. */
static void promised_block_may_lie_behind_what_others_extended(void **state)
{
    TXN_RIG;
    struct page_ptr theirs[TAKEN_BY_OTHERS];
    uint32_t got = 0;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    struct store_file *file = shell_open(rig, live, "t");
    cow_gate_enter(rig->store->cow);
    assert_int_equal(view_reserve(own, file->relation, 1), 0);
    assert_int_equal(view_reserve(live, file->relation, TAKEN_BY_OTHERS), 0);
    while (got < TAKEN_BY_OTHERS) {
        got += view_allocate_run(live, file->relation, 0, TAKEN_BY_OTHERS - got, theirs + got);
    }
    const struct page_ptr mine = view_allocate(own, file->relation, 0);
    assert_true(mine.block >= TAKEN_BY_OTHERS);
    view_give_back(own, file->relation, mine);
    for (uint32_t i = 0; i < TAKEN_BY_OTHERS; i++) {
        view_give_back(live, file->relation, theirs[i]);
    }
    cow_gate_leave(rig->store->cow);
    store_file_close(file);
    store_txn_put(txn);
}

struct interrupted {
    struct txn_rig *rig;
    struct store_txn *txn;
};

/* What an unlink in another thread leaves that came between the begin and the plan of an operation; and the disk fails. */
static int plan_behind_a_removal(struct op_run *run, void *arg)
{
    const struct interrupted *interrupted = arg;
    const struct op_record removal = {.type = OP_UNLINK,
                                      .txn = store_txn_number(interrupted->txn),
                                      .ino = INO_ROOT + 1,
                                      .parent = INO_ROOT,
                                      .name = {.data = "t", .size = 1}};
    run->op.ino = INO_ROOT;
    mem_device_fail(interrupted->rig->mem, MEM_CALL_WRITE, 1, EIO, true);
    return txn_note_operation(interrupted->txn, &removal);
}

static void failed_write_of_removals_fails_what_has_to_follow_them(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct interrupted interrupted = {.rig = rig, .txn = shell_begin(rig)};
    struct view *own = store_txn_view(interrupted.txn);
    const int rc = store_op_run(rig->store, own, OP_SETATTR, plan_behind_a_removal, &interrupted);
    mem_device_clear_faults(rig->mem);
    assert_true(rc < 0);
    store_txn_put(interrupted.txn);
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "t", "one\n");
}

/* ---- nothing is left ---- */

struct left {
    uint64_t holders, entries, blocks;
};

/* Two checkpoints: what the first one no longer sees goes when the second is durable. */
static struct left left_over(struct txn_rig *rig)
{
    struct left left = {0};
    struct cow_stats stats;
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    cow_get_stats(rig->store->cow, &stats);
    left.holders = stats.holders;
    left.entries = stats.deadlist_entries;
    left.blocks = stats.deadlist_blocks;
    return left;
}

enum end { END_COMMIT, END_ABORT, END_CONFLICT };

/* The same table, the same row, again and again. */
static void one_transaction(struct txn_rig *rig, bool has_row, enum end end)
{
    struct view *live = store_live(rig->store);
    struct store_txn *txn = shell_begin(rig);
    if (has_row) {
        assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "row\n"), 0);
    }
    switch (end) {
    case END_COMMIT:
        assert_int_equal(shell_commit(txn), 0);
        break;
    case END_CONFLICT:
        assert_int_equal(shell_rewrite(rig, live, "t", "one\n"), 0);
        assert_int_equal(shell_commit(txn), has_row ? -EAGAIN : 0);
        break;
    case END_ABORT:
    default:
        store_txn_abort(txn);
        break;
    }
    store_txn_put(txn);
}

static void ended_transactions_leave_no_holders_and_no_dead_blocks(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    one_transaction(rig, true, END_COMMIT);
    const struct left before = left_over(rig);
    for (unsigned kind = 0; kind < 6; kind++) {
        for (unsigned i = 0; i < 20; i++) {
            one_transaction(rig, kind % 2 == 1, (enum end)(kind / 2));
        }
        const struct left after = left_over(rig);
        assert_int_equal(after.holders, before.holders);
        assert_int_equal(after.entries, before.entries);
        assert_int_equal(after.blocks, before.blocks);
    }
}

/* A begin and an end of nothing: not a block is allocated, retired or freed, not a record written. */
static void empty_transactions_cost_nothing(void **state)
{
    TXN_RIG;
    struct cow_stats before;
    struct cow_stats after;
    struct store_stats log_before;
    struct store_stats log_after;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    one_transaction(rig, false, END_COMMIT);
    cow_get_stats(rig->store->cow, &before);
    store_get_stats(rig->store, &log_before);
    for (unsigned i = 0; i < 100; i++) {
        one_transaction(rig, false, i % 2 == 0 ? END_COMMIT : END_ABORT);
    }
    cow_get_stats(rig->store->cow, &after);
    store_get_stats(rig->store, &log_after);
    assert_int_equal(after.holders, before.holders);
    assert_int_equal(after.deadlist_entries, before.deadlist_entries);
    assert_int_equal(after.deadlist_blocks, before.deadlist_blocks);
    assert_int_equal(after.freed_at_once, before.freed_at_once);
    assert_int_equal(after.deferred, before.deferred);
    assert_int_equal(log_after.log.records, log_before.log.records);
}

int main(void)
{
#define GUARDING_CASE(plant, name) TXN_RIG_CASE(name),
    const struct CMUnitTest tests[] = {
        TXN_CASES(GUARDING_CASE) TXN_RIG_CASE(second_commit_leaves_readers_of_the_first_alone),
        TXN_RIG_CASE(file_opened_behind_the_commit_shows_what_was_committed),
        TXN_RIG_CASE(table_with_many_links_can_be_rewritten),
        TXN_RIG_CASE(attributes_of_a_directory_that_both_made_are_the_others),
        TXN_RIG_CASE(promised_block_may_lie_behind_what_others_extended),
        TXN_RIG_CASE(failed_write_of_removals_fails_what_has_to_follow_them),
        TXN_RIG_CASE(ended_transactions_leave_no_holders_and_no_dead_blocks),
        TXN_RIG_CASE(empty_transactions_cost_nothing),
    };
    return cmocka_run_group_tests_name("txn_edges", tests, NULL, NULL);
}
