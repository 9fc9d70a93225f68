/*
 * tests/model/test_transactions.c - transactions, case by case: isolation, conflicts, merges, readers, what is left behind.
 */
#include "tests/model/txn_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- isolation ---- */

static void transaction_sees_itself_and_nobody_else_does(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_append(rig, own, "t", "two\n"), 0);
    assert_int_equal(shell_append(rig, own, "new", "n\n"), 0);
    assert_int_equal(shell_append(rig, live, "other", "o\n"), 0);
    shell_expect(rig, own, "t", "one\ntwo\n");
    shell_expect(rig, live, "t", "one\n");
    shell_expect(rig, live, "new", NULL);
    shell_expect(rig, own, "other", NULL);
    txn_rig_check(rig);
    shell_must_commit(txn);
    shell_expect(rig, live, "t", "one\ntwo\n");
    shell_expect(rig, live, "new", "n\n");
    txn_rig_check(rig);
    txn_rig_kill_and_reopen(rig);
    live = store_live(rig->store);
    shell_expect(rig, live, "t", "one\ntwo\n");
    shell_expect(rig, live, "new", "n\n");
    shell_expect(rig, live, "other", "o\n");
}

static void abort_leaves_nothing(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_append(rig, own, "t", "two\n"), 0);
    assert_int_equal(shell_append(rig, own, "new", "n\n"), 0);
    assert_int_equal(shell_remove(rig, own, "t"), 0);
    store_txn_abort(txn);
    assert_int_equal(shell_make(rig, own, "late", S_IFREG | 0644), -ECANCELED);
    assert_int_equal(shell_commit(txn), -ECANCELED);
    store_txn_put(txn);
    shell_expect(rig, live, "t", "one\n");
    shell_expect(rig, live, "new", NULL);
    txn_rig_check(rig);
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "t", "one\n");
}

static void rewritten_table_has_a_new_inode_under_all_its_names(void **state)
{
    TXN_RIG;
    struct store_attr before;
    struct store_attr after;
    struct store_attr linked;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    assert_int_equal(shell_link(rig, live, "t", "u"), 0);
    assert_int_equal(shell_make_dir(rig, live, "d"), 0);
    assert_int_equal(shell_link(rig, live, "t", "d/v"), 0);
    assert_int_equal(shell_look(rig, live, "t", &before), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "t", "two\n"), 0);
    shell_must_commit(txn);
    assert_int_equal(shell_look(rig, live, "t", &after), 0);
    assert_int_equal(shell_look(rig, live, "d/v", &linked), 0);
    assert_int_not_equal(before.ino, after.ino);
    assert_int_equal(linked.ino, after.ino);
    assert_int_equal(after.nlink, 3);
    shell_expect(rig, live, "u", "two\n");
    txn_rig_kill_and_reopen(rig);
    live = store_live(rig->store);
    assert_int_equal(shell_look(rig, live, "u", &linked), 0);
    assert_int_equal(linked.ino, after.ino);
    shell_expect(rig, live, "d/v", "two\n");
}

static void open_reader_goes_on_with_the_old_version(void **state)
{
    TXN_RIG;
    ino_no now = INO_NONE;
    uint64_t end = 0;
    struct store_attr attr;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    assert_int_equal(shell_append(rig, live, "gone", "g\n"), 0);
    struct store_file *reader = shell_open(rig, live, "t");
    struct store_file *orphan = shell_open(rig, live, "gone");
    struct store_txn *txn = shell_begin(rig);
    struct store_file *inside = shell_open(rig, store_txn_view(txn), "t");
    assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(shell_remove(rig, store_txn_view(txn), "gone"), 0);
    assert_false(store_file_replaced(reader, &now));
    assert_int_equal(shell_commit(txn), 0);
    shell_expect_file(reader, "one\n");
    shell_expect_file(orphan, "g\n");
    assert_true(store_file_replaced(reader, &now));
    assert_int_equal(store_write(reader, 0, "x", 1, 0, &end), -ESTALE);
    assert_int_equal(store_write(orphan, 0, "h\n", 2, STORE_WRITE_APPEND, &end), 0);
    shell_expect_file(orphan, "g\nh\n");
    assert_int_equal(store_file_getattr(reader, &attr), 0);
    assert_int_equal(attr.nlink, 0);
    assert_int_equal(shell_append(rig, live, "t", "three\n"), 0);
    shell_expect(rig, live, "t", "two\nthree\n");
    shell_expect_file(inside, "two\n");
    txn_rig_check(rig);
    store_file_close(inside);
    store_txn_put(txn);
    shell_expect_file(reader, "one\n");
    store_file_close(orphan);
    txn = shell_begin(rig);
    assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "t", "four\n"), 0);
    shell_must_commit(txn);
    struct store_file *successor = shell_open(rig, live, "t");
    assert_true(store_file_replaced(reader, &now)); /* though the version in between was not open */
    assert_int_equal(now, store_file_ino(successor));
    store_file_close(successor);
    shell_expect_file(reader, "one\n");
    store_file_close(reader);
}

static uint64_t deadlist_blocks(struct txn_rig *rig)
{
    struct cow_stats stats;
    cow_get_stats(store_cow(rig->store), &stats);
    return stats.deadlist_blocks;
}

/* An open file of a replaced table keeps that table's old blocks, and nothing else of the old tree. */
static void old_version_pins_its_table_only(void **state)
{
    TXN_RIG;
    char *text = shell_rows("old", 3000);
    char *other = shell_rows("other", 3000);
    uint64_t end = 0;
    assert_int_equal(shell_append(rig, live, "t", text), 0);
    assert_int_equal(shell_append(rig, live, "other", other), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    const unsigned holders = cow_holder_count(store_cow(rig->store));
    struct store_file *reader = shell_open(rig, live, "t");
    struct store_txn *txn = shell_begin(rig);
    struct store_file *file = shell_open(rig, store_txn_view(txn), "t");
    assert_int_equal(store_write(file, 10, "X", 1, 0, &end), 0);
    store_file_close(file);
    shell_must_commit(txn);
    assert_int_equal(cow_holder_count(store_cow(rig->store)), holders);
    assert_int_equal(store_checkpoint(rig->store), 0);
    const uint64_t deferred = deadlist_blocks(rig);
    for (unsigned i = 0; i < 20; i++) { /* the new version, which shares blocks with the old one; and others */
        file = shell_open(rig, live, "t");
        assert_int_equal(store_write(file, (uint64_t)i * 3000, "Y", 1, 0, &end), 0);
        store_file_close(file);
        assert_int_equal(shell_rewrite(rig, live, "other", other), 0);
        if (i % 5 == 0) {
            assert_int_equal(store_checkpoint(rig->store), 0);
            txn_rig_check(rig);
        }
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_true(deadlist_blocks(rig) <= deferred);
    char *got = malloc(strlen(text));
    size_t size = 0;
    assert_int_equal(store_read(reader, 0, got, strlen(text), &size), 0);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(got, text, size);
    assert_int_equal(shell_remove(rig, live, "t"), 0); /* its relation lives as long as the reader */
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    bufcache_step(store_cache(rig->store));
    assert_int_equal(store_read(reader, 20000, got, 1000, &size), 0);
    assert_memory_equal(got, text + 20000, 1000);
    txn_rig_check(rig);
    store_file_close(reader);
    txn_rig_check(rig);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(cow_holder_count(store_cow(rig->store)), holders);
    free(got);
    free(text);
    free(other);
}

static void appends_on_both_sides_merge(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "base\n"), 0);
    assert_int_equal(shell_make(rig, live, "empty", S_IFREG | 0644), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_append(rig, own, "t", "mine\n"), 0);
    assert_int_equal(shell_append(rig, own, "empty", "m\n"), 0);
    assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
    assert_int_equal(shell_append(rig, live, "empty", "t\n"), 0);
    shell_must_commit(txn);
    shell_expect(rig, live, "t", "base\ntheirs\nmine\n");
    shell_expect(rig, live, "empty", "t\nm\n");
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "t", "base\ntheirs\nmine\n");
    shell_expect(rig, store_live(rig->store), "empty", "t\nm\n");
}

/* The same, replayed. */
static void large_merge_is_replayed(void **state)
{
    TXN_RIG;
    char *mine = shell_rows("mine", 20000);
    char *theirs = shell_rows("theirs", 5000);
    const char *const parts[] = {theirs, mine};
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_make(rig, live, "other", S_IFREG | 0644), 0);
    assert_int_equal(shell_make(rig, live, "t", S_IFREG | 0644), 0);
    store_txn_put(txn);
    txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(shell_append(rig, live, "t", theirs), 0);
    shell_must_commit(txn);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 2);
    free(mine);
    free(theirs);
}

/* A relation that was made in a transaction and dropped in it is gone once, whatever becomes of the transaction. */
static void relation_made_and_dropped_inside_is_dropped_once(void **state)
{
    TXN_RIG;
    char *text = shell_rows("inside", 2000);
    for (unsigned round = 0; round < 2; round++) {
        struct store_txn *txn = shell_begin(rig);
        struct view *own = store_txn_view(txn);
        assert_int_equal(shell_append(rig, own, "made", text), 0);
        assert_int_equal(shell_rewrite(rig, own, "made", "again\n"), 0);
        assert_int_equal(shell_append(rig, own, "gone", text), 0);
        assert_int_equal(shell_remove(rig, own, "gone"), 0);
        txn_rig_check(rig);
        if (round == 0) {
            store_txn_put(txn);
        } else {
            shell_must_commit(txn);
        }
        txn_rig_check(rig);
        assert_int_equal(store_checkpoint(rig->store), 0);
        assert_int_equal(store_checkpoint(rig->store), 0);
    }
    shell_expect(rig, live, "made", "again\n");
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "made", "again\n");
    free(text);
}

/* The log refers to pages that the transaction wrote, cut, wrote again, and that the close merged or took over: replay finds them all,
 * whatever was freed and allocated behind the close. */
static void pages_that_the_log_refers_to_stay(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", 100);
    char *mine = shell_rows("mine", 20000);
    char *cut = shell_rows("cut", 9000);
    char *theirs = shell_rows("theirs", 5000);
    const char *const taken[] = {base, mine};
    const char *const merged[] = {base, theirs, mine};
    assert_int_equal(shell_append(rig, live, "taken", base), 0);
    assert_int_equal(shell_append(rig, live, "merged", base), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_append(rig, own, "taken", cut), 0);
    assert_int_equal(shell_truncate_to(rig, own, "taken", strlen(base)), 0);
    assert_int_equal(shell_append(rig, own, "taken", mine), 0);
    assert_int_equal(shell_append(rig, own, "merged", mine), 0);
    assert_int_equal(shell_append(rig, own, "gone", cut), 0);
    assert_int_equal(shell_remove(rig, own, "gone"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(shell_append(rig, live, "merged", theirs), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_check(rig);
    shell_must_commit(txn);
    txn_rig_check(rig);
    for (unsigned i = 0; i < 4; i++) { /* would go into blocks that are free too early */
        assert_int_equal(shell_append(rig, live, "taken", cut), 0);
        assert_int_equal(shell_truncate_to(rig, live, "taken", strlen(base) + strlen(mine)), 0);
        assert_int_equal(shell_append(rig, live, "merged", cut), 0);
        assert_int_equal(shell_truncate_to(rig, live, "merged", strlen(base) + strlen(theirs) + strlen(mine)), 0);
    }
    shell_expect_large(rig, live, "taken", taken, 2);
    txn_rig_kill_and_reopen(rig);
    live = store_live(rig->store);
    shell_expect_large(rig, live, "taken", taken, 2);
    shell_expect_large(rig, live, "merged", merged, 3);
    shell_expect(rig, live, "gone", NULL);
    free(base);
    free(mine);
    free(cut);
    free(theirs);
}

/* Rows written by reference into a relation of the transaction's own, and merged into another one. */
static void pages_of_another_relation_are_copied_by_replay(void **state)
{
    TXN_RIG;
    char *mine = shell_rows("mine", 20000);
    const char *const parts[] = {"theirs\n", mine};
    assert_int_equal(shell_make(rig, live, "t", S_IFREG | 0644), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
    shell_must_commit(txn);
    shell_expect_large(rig, live, "t", parts, 2);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 2);
    free(mine);
}

/* Its old relation number is found in the snapshot, its new one in the live tree: no block is handed out twice. */
static void rewritten_table_and_snapshot_share_a_relation(void **state)
{
    TXN_RIG;
    char *text = shell_rows("first", 3000);
    char *more = shell_rows("more", 3000);
    const char *const before[] = {text};
    assert_int_equal(shell_append(rig, live, "t", text), 0);
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    struct store_txn *txn = shell_begin(rig);
    struct store_file *file = shell_open(rig, store_txn_view(txn), "t");
    uint64_t end = 0;
    assert_int_equal(store_write(file, 10000, "X", 1, 0, &end), 0);
    store_file_close(file);
    shell_must_commit(txn);
    assert_int_equal(store_close(rig->store), 0);
    txn_rig_open(rig);
    live = store_live(rig->store);
    assert_int_equal(shell_append(rig, live, "t", more), 0);
    txn_rig_check(rig);
    struct store_snapshot *snapshot = NULL;
    assert_int_equal(store_snapshot_get(rig->store, shell_name("s"), &snapshot), 0);
    shell_expect_large(rig, store_snapshot_view(snapshot), "t", before, 1);
    store_snapshot_put(snapshot);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_check(rig);
    free(text);
    free(more);
}

static void appends_behind_a_hole_conflict(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_make(rig, live, "t", S_IFREG | 0644), 0);
    assert_int_equal(shell_truncate_to(rig, live, "t", 1000), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "mine\n"), 0);
    assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
    shell_must_conflict(txn);
}

static void overwrites_conflict(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "base\n"), 0);
    struct store_txn *first = shell_begin(rig);
    struct store_txn *second = shell_begin(rig);
    assert_int_equal(shell_rewrite(rig, store_txn_view(first), "t", "first\n"), 0);
    assert_int_equal(shell_rewrite(rig, store_txn_view(second), "t", "second\n"), 0);
    shell_must_commit(first);
    shell_must_conflict(second);
    shell_expect(rig, live, "t", "first\n");
}

static void lock_file_made_and_removed_conflicts_either_way(void **state)
{
    TXN_RIG;
    struct store_txn *first = shell_begin(rig);
    struct store_txn *second = shell_begin(rig);
    assert_int_equal(shell_make(rig, store_txn_view(first), "lock", S_IFREG | 0644), 0);
    assert_int_equal(shell_remove(rig, store_txn_view(first), "lock"), 0);
    assert_int_equal(shell_make(rig, store_txn_view(second), "lock", S_IFREG | 0644), 0);
    assert_int_equal(shell_remove(rig, store_txn_view(second), "lock"), 0);
    assert_int_equal(shell_append(rig, store_txn_view(first), "a", "1\n"), 0);
    assert_int_equal(shell_append(rig, store_txn_view(second), "b", "1\n"), 0);
    shell_must_commit(first);
    shell_must_conflict(second);
    txn_rig_check(rig);
}

static void directory_made_on_both_sides_is_one(void **state)
{
    TXN_RIG;
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_make_dir(rig, own, "d"), 0);
    assert_int_equal(shell_make_dir(rig, own, "d/e"), 0);
    assert_int_equal(shell_append(rig, own, "d/e/mine", "m\n"), 0);
    assert_int_equal(shell_make_dir(rig, live, "d"), 0);
    assert_int_equal(shell_make_dir(rig, live, "d/e"), 0);
    assert_int_equal(shell_append(rig, live, "d/e/theirs", "t\n"), 0);
    shell_must_commit(txn);
    shell_expect(rig, live, "d/e/mine", "m\n");
    shell_expect(rig, live, "d/e/theirs", "t\n");
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "d/e/mine", "m\n");
    shell_expect(rig, store_live(rig->store), "d/e/theirs", "t\n");
}

static void removing_a_directory_conflicts_with_names_in_it(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_make_dir(rig, live, "d"), 0);
    assert_int_equal(shell_make_dir(rig, live, "e"), 0);
    struct store_txn *first = shell_begin(rig);
    struct store_txn *second = shell_begin(rig);
    assert_int_equal(shell_remove_dir(rig, store_txn_view(first), "d"), 0);
    assert_int_equal(shell_remove_dir(rig, store_txn_view(second), "e"), 0);
    assert_int_equal(shell_append(rig, live, "d/x", "x\n"), 0);
    assert_int_equal(shell_append(rig, live, "e/x", "x\n"), 0);
    assert_int_equal(shell_remove(rig, live, "e/x"), 0);
    shell_must_conflict(first);
    shell_must_conflict(second);
}

static void directory_moves_into_each_other_conflict(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_make_dir(rig, live, "a"), 0);
    assert_int_equal(shell_make_dir(rig, live, "b"), 0);
    struct store_txn *first = shell_begin(rig);
    struct store_txn *second = shell_begin(rig);
    assert_int_equal(shell_move(rig, store_txn_view(first), "a", "b/a"), 0);
    assert_int_equal(shell_move(rig, store_txn_view(second), "b", "a/b"), 0);
    shell_must_commit(first);
    shell_must_conflict(second);
    txn_rig_check(rig);
}

static void two_names_removed_by_two_conflict(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "n", "x\n"), 0);
    assert_int_equal(shell_link(rig, live, "n", "m"), 0);
    struct store_txn *first = shell_begin(rig);
    struct store_txn *second = shell_begin(rig);
    assert_int_equal(shell_remove(rig, store_txn_view(first), "n"), 0);
    assert_int_equal(shell_remove(rig, store_txn_view(second), "m"), 0);
    shell_must_commit(first);
    shell_must_conflict(second);
    shell_expect(rig, live, "m", "x\n");
}

static void drop_conflicts_with_any_change(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "a", "x\n"), 0);
    assert_int_equal(shell_append(rig, live, "b", "x\n"), 0);
    struct store_txn *first = shell_begin(rig);
    struct store_txn *second = shell_begin(rig);
    assert_int_equal(shell_remove(rig, store_txn_view(first), "a"), 0);
    assert_int_equal(shell_remove(rig, store_txn_view(second), "b"), 0);
    assert_int_equal(shell_append(rig, live, "a", "y\n"), 0);
    assert_int_equal(shell_change_mode(rig, live, "b", 0600), 0);
    shell_must_conflict(first);
    shell_must_conflict(second);
}

static void attributes_and_content_do_not_conflict(void **state)
{
    TXN_RIG;
    struct store_attr attr;
    assert_int_equal(shell_append(rig, live, "a", "x\n"), 0);
    assert_int_equal(shell_append(rig, live, "b", "x\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "a", "new\n"), 0);
    assert_int_equal(shell_change_mode(rig, store_txn_view(txn), "b", 0600), 0);
    assert_int_equal(shell_change_mode(rig, live, "a", 0640), 0);
    assert_int_equal(shell_append(rig, live, "b", "y\n"), 0);
    shell_must_commit(txn);
    assert_int_equal(shell_look(rig, live, "a", &attr), 0);
    assert_int_equal(attr.mode & 07777, 0640);
    shell_expect(rig, live, "a", "new\n");
    assert_int_equal(shell_look(rig, live, "b", &attr), 0);
    assert_int_equal(attr.mode & 07777, 0600);
    shell_expect(rig, live, "b", "x\ny\n");
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "b", "x\ny\n");
}

static int last_sweep(void *arg, const struct store_sweep *sweep)
{
    *(struct store_sweep *)arg = *sweep;
    return 0;
}

static void drop_of_many_is_one_record_and_one_sweep(void **state)
{
    TXN_RIG;
    struct store_stats before;
    struct store_stats after;
    char name[24];
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(shell_append(rig, live, name, "some rows\n"), 0);
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
    for (unsigned i = 0; i < 1000; i++) { /* a dirty page each */
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(shell_append(rig, live, name, "more\n"), 0);
    }
    struct store_txn *txn = shell_begin(rig);
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(shell_remove(rig, store_txn_view(txn), name), 0);
    }
    store_get_stats(rig->store, &before);
    shell_must_commit(txn);
    store_get_stats(rig->store, &after);
    assert_int_equal(after.sweeps - before.sweeps, 1);
    assert_int_equal(after.sweeps_of[SWEEP_COMMIT], 1);
    struct store_sweep sweep;
    assert_int_equal(store_each_sweep(rig->store, last_sweep, &sweep), 0);
    assert_int_equal(sweep.result.relations, 1000);
    assert_int_equal(sweep.result.dirty_discarded, 1000); /* of the victims nothing was written */
    assert_int_equal(after.log.records - before.log.records, 1);
    shell_expect(rig, live, "t77", NULL);
    txn_rig_kill_and_reopen(rig);
    store_get_stats(rig->store, &after);
    assert_int_equal(after.redo_records, 1001);
    assert_true(after.sweeps_of[SWEEP_REDO] <= 1);
    assert_int_equal(after.sweeps, after.sweeps_of[SWEEP_REDO]);
    shell_expect(rig, store_live(rig->store), "t999", NULL);
}

static void operations_that_follow_removals_are_replayed_in_order(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "a", "old\n"), 0);
    assert_int_equal(shell_append(rig, live, "b", "b\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_remove(rig, own, "a"), 0);
    assert_int_equal(shell_move(rig, own, "b", "a"), 0);
    assert_int_equal(shell_append(rig, own, "b", "new\n"), 0);
    assert_int_equal(shell_remove(rig, own, "a"), 0);
    assert_int_equal(shell_move(rig, own, "b", "c"), 0);
    assert_int_equal(shell_append(rig, own, "c", "more\n"), 0);
    shell_must_commit(txn);
    shell_expect(rig, live, "c", "new\nmore\n");
    txn_rig_kill_and_reopen(rig);
    live = store_live(rig->store);
    shell_expect(rig, live, "a", NULL);
    shell_expect(rig, live, "b", NULL);
    shell_expect(rig, live, "c", "new\nmore\n");
}

static void checkpoint_between_keeps_the_log_of_open_transactions(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct store_txn *lost = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(shell_append(rig, store_txn_view(lost), "t", "lost\n"), 0);
    assert_int_equal(shell_append(rig, live, "other", "o\n"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "three\n"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    shell_must_commit(txn);
    store_txn_put(lost);
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "t", "one\ntwo\nthree\n");
    shell_expect(rig, store_live(rig->store), "other", "o\n");
}

/* The items that name their owners fill leaves of the catalog, so inner pages have keys of theirs. */
static void many_rewritten_tables_are_found_again(void **state)
{
    TXN_RIG;
    char name[24];
    struct store_txn *txn = shell_begin(rig);
    for (unsigned i = 0; i < 2000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(shell_append(rig, live, name, "old\n"), 0);
    }
    store_txn_put(txn);
    txn = shell_begin(rig);
    for (unsigned i = 0; i < 2000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(shell_truncate_to(rig, store_txn_view(txn), name, 2), 0);
    }
    shell_must_commit(txn);
    assert_int_equal(store_close(rig->store), 0);
    txn_rig_open(rig);
    txn_rig_check(rig);
    shell_expect(rig, store_live(rig->store), "t7", "ol");
    shell_expect(rig, store_live(rig->store), "t1999", "ol");
}

static void write_to_unlinked_table_of_the_base_is_replayed(void **state)
{
    TXN_RIG;
    uint64_t end = 0;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    struct store_file *file = shell_open(rig, own, "t");
    assert_int_equal(shell_remove(rig, own, "t"), 0);
    assert_int_equal(store_write(file, 0, "two\n", 4, STORE_WRITE_APPEND, &end), 0);
    store_file_close(file);
    shell_must_commit(txn);
    shell_expect(rig, live, "t", NULL);
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "t", NULL);
}

static void attributes_of_unlinked_file_do_not_conflict(void **state)
{
    TXN_RIG;
    struct store_attr attr;
    struct store_attr out;
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_append(rig, own, "keep", "k\n"), 0);
    assert_int_equal(shell_make(rig, own, "tmp", S_IFREG | 0644), 0);
    assert_int_equal(shell_look(rig, own, "tmp", &attr), 0);
    struct store_file *file = shell_open(rig, own, "tmp");
    assert_int_equal(shell_remove(rig, own, "tmp"), 0);
    attr.mode = 0600;
    assert_int_equal(store_setattr(rig->store, own, attr.ino, STORE_SET_MODE, &attr, &out), 0);
    store_file_close(file);
    const int rc = shell_commit(txn);
    store_txn_put(txn);
    assert_int_equal(rc, 0);
    shell_expect(rig, live, "keep", "k\n");
}

static void merge_takes_set_user_id_away(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    assert_int_equal(shell_change_mode(rig, live, "t", 04755), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append_kill(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(shell_append(rig, live, "t", "root's\n"), 0);
    shell_must_commit(txn);
    const uint32_t doing = shell_mode_of(rig, "t");
    txn_rig_kill_and_reopen(rig);
    const uint32_t replay = shell_mode_of(rig, "t");
    assert_int_equal(replay, 0755);
    assert_int_equal(doing, replay);
}

static void created_table_loses_set_user_id(void **state)
{
    TXN_RIG;
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_make(rig, store_txn_view(txn), "t", S_IFREG | 04755), 0);
    assert_int_equal(shell_append_kill(rig, store_txn_view(txn), "t", "two\n"), 0);
    shell_must_commit(txn);
    const uint32_t doing = shell_mode_of(rig, "t");
    txn_rig_kill_and_reopen(rig);
    const uint32_t replay = shell_mode_of(rig, "t");
    assert_int_equal(replay, 0755);
    assert_int_equal(doing, replay);
}

static void changed_mode_loses_set_user_id(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_change_mode(rig, store_txn_view(txn), "t", 04755), 0);
    assert_int_equal(shell_append_kill(rig, store_txn_view(txn), "t", "two\n"), 0);
    shell_must_commit(txn);
    const uint32_t doing = shell_mode_of(rig, "t");
    txn_rig_kill_and_reopen(rig);
    const uint32_t replay = shell_mode_of(rig, "t");
    assert_int_equal(replay, 0755);
    assert_int_equal(doing, replay);
}

static void mode_set_behind_the_write_stays(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    assert_int_equal(shell_change_mode(rig, live, "t", 04755), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append_kill(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(shell_change_mode(rig, store_txn_view(txn), "t", 04755), 0);
    shell_must_commit(txn);
    const uint32_t doing = shell_mode_of(rig, "t");
    txn_rig_kill_and_reopen(rig);
    const uint32_t replay = shell_mode_of(rig, "t");
    assert_int_equal(doing, 04755);
    assert_int_equal(doing, replay);
}

static int set_mtime(struct txn_rig *rig, struct view *view, const char *path, int64_t ns)
{
    struct store_attr attr;
    struct store_attr out;
    assert_int_equal(shell_look(rig, view, path, &attr), 0);
    attr.mtime_ns = ns;
    return store_setattr(rig->store, view, attr.ino, STORE_SET_MTIME, &attr, &out);
}

static int64_t mtime_of(struct txn_rig *rig, struct view *view, const char *path)
{
    struct store_attr attr;
    assert_int_equal(shell_look(rig, view, path, &attr), 0);
    return attr.mtime_ns;
}

#define FAR_NS (INT64_C(4000000000) * 1000000000)

static void mtime_of_rewritten_table(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    assert_int_equal(set_mtime(rig, live, "t", FAR_NS), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "t", "two\n"), 0);
    const int64_t inside = mtime_of(rig, store_txn_view(txn), "t");
    shell_must_commit(txn);
    const int64_t doing = mtime_of(rig, live, "t");
    txn_rig_kill_and_reopen(rig);
    const int64_t replay = mtime_of(rig, store_live(rig->store), "t");
    assert_true(doing == inside);
    assert_true(doing == replay);
}

static void mtime_of_created_table(void **state)
{
    TXN_RIG;
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "one\n"), 0);
    assert_int_equal(set_mtime(rig, store_txn_view(txn), "t", FAR_NS), 0);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "two\n"), 0);
    const int64_t inside = mtime_of(rig, store_txn_view(txn), "t");
    shell_must_commit(txn);
    const int64_t doing = mtime_of(rig, live, "t");
    txn_rig_kill_and_reopen(rig);
    const int64_t replay = mtime_of(rig, store_live(rig->store), "t");
    assert_true(doing == inside);
    assert_true(doing == replay);
}

static void mtime_set_back(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "a", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_append(rig, own, "t", "one\n"), 0);
    assert_int_equal(set_mtime(rig, own, "t", 1000), 0);
    assert_int_equal(shell_append(rig, own, "a", "two\n"), 0);
    assert_int_equal(set_mtime(rig, own, "a", 1000), 0);
    shell_must_commit(txn);
    const int64_t t = mtime_of(rig, live, "t");
    const int64_t a = mtime_of(rig, live, "a");
    txn_rig_kill_and_reopen(rig);
    live = store_live(rig->store);
    assert_true(t == 1000 && a == 1000);
    assert_true(mtime_of(rig, live, "t") == t && mtime_of(rig, live, "a") == a);
}

static int count_object(void *arg, const struct store_txn_object *object)
{
    char *text = arg;
    const size_t size = strlen(text);
    (void)snprintf(text + size, 1000 - size, "%s|%s|%s\n", object->path, object->did, object->outside);
    return 0;
}

static void changes_and_conflicts_are_listed_by_path(void **state)
{
    TXN_RIG;
    char changes[1000] = "";
    char conflicts[1000] = "";
    assert_int_equal(shell_make_dir(rig, live, "d"), 0);
    assert_int_equal(shell_append(rig, live, "d/t", "one\n"), 0);
    assert_int_equal(shell_append(rig, live, "d/u", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_append(rig, own, "d/t", "two\n"), 0);
    assert_int_equal(shell_append(rig, own, "d/n", "two\n"), 0);
    assert_int_equal(shell_remove(rig, own, "d/u"), 0);
    assert_int_equal(shell_rewrite(rig, live, "d/t", "x\n"), 0);
    assert_int_equal(shell_append(rig, live, "d/n", "y\n"), 0);
    assert_int_equal(shell_append(rig, live, "d/u", "y\n"), 0);
    assert_int_equal(store_txn_each_change(txn, count_object, changes), 0);
    assert_string_equal(changes, "d/n|create|\nd/u|remove|\nd/t|append|\n");
    assert_int_equal(store_txn_each_conflict(txn, count_object, conflicts), 0);
    assert_string_equal(conflicts, "d/n|name|made\nd/t|append|rewritten\nd/u|remove|changed\n");
    shell_must_conflict(txn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_RIG_CASE(transaction_sees_itself_and_nobody_else_does),
        TXN_RIG_CASE(abort_leaves_nothing),
        TXN_RIG_CASE(rewritten_table_has_a_new_inode_under_all_its_names),
        TXN_RIG_CASE(open_reader_goes_on_with_the_old_version),
        TXN_RIG_CASE(old_version_pins_its_table_only),
        TXN_RIG_CASE(appends_on_both_sides_merge),
        TXN_RIG_CASE(large_merge_is_replayed),
        TXN_RIG_CASE(relation_made_and_dropped_inside_is_dropped_once),
        TXN_RIG_CASE(pages_that_the_log_refers_to_stay),
        TXN_RIG_CASE(pages_of_another_relation_are_copied_by_replay),
        TXN_RIG_CASE(rewritten_table_and_snapshot_share_a_relation),
        TXN_RIG_CASE(overwrites_conflict),
        TXN_RIG_CASE(appends_behind_a_hole_conflict),
        TXN_RIG_CASE(lock_file_made_and_removed_conflicts_either_way),
        TXN_RIG_CASE(directory_made_on_both_sides_is_one),
        TXN_RIG_CASE(removing_a_directory_conflicts_with_names_in_it),
        TXN_RIG_CASE(directory_moves_into_each_other_conflict),
        TXN_RIG_CASE(two_names_removed_by_two_conflict),
        TXN_RIG_CASE(drop_conflicts_with_any_change),
        TXN_RIG_CASE(attributes_and_content_do_not_conflict),
        TXN_RIG_CASE(drop_of_many_is_one_record_and_one_sweep),
        TXN_RIG_CASE(many_rewritten_tables_are_found_again),
        TXN_RIG_CASE(operations_that_follow_removals_are_replayed_in_order),
        TXN_RIG_CASE(checkpoint_between_keeps_the_log_of_open_transactions),
        TXN_RIG_CASE(write_to_unlinked_table_of_the_base_is_replayed),
        TXN_RIG_CASE(attributes_of_unlinked_file_do_not_conflict),
        TXN_RIG_CASE(merge_takes_set_user_id_away),
        TXN_RIG_CASE(created_table_loses_set_user_id),
        TXN_RIG_CASE(changed_mode_loses_set_user_id),
        TXN_RIG_CASE(mode_set_behind_the_write_stays),
        TXN_RIG_CASE(mtime_of_rewritten_table),
        TXN_RIG_CASE(mtime_of_created_table),
        TXN_RIG_CASE(mtime_set_back),
        TXN_RIG_CASE(changes_and_conflicts_are_listed_by_path),
    };
    return cmocka_run_group_tests_name("transactions", tests, NULL, NULL);
}
