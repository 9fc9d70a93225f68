/*
 * tests/model/test_compact.c - compaction beside transactions, snapshots, holes, writers and kills; cases by hand. Random ones are in
 * test_model and test_txn_random.
 */
#include "tests/lib/test_support.h"
#include "tests/model/sidecar_rig.h"
#include "tests/model/txn_rig.h"
#include "txn/store_int.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROWS 20000u

static void must_compact(struct txn_rig *rig, const char *path)
{
    struct store_compact_info info;
    assert_int_equal(shell_compact(rig, path, &info), 0);
    txn_rig_check(rig);
}

/* Rows here and there are written again, and checkpoints in between move their pages elsewhere. */
static void scatter(struct txn_rig *rig, const char *path, char *bytes)
{
    struct test_random random;
    struct store_file *file = shell_open(rig, store_live(rig->store), path);
    const size_t size = strlen(bytes);
    test_random_init(&random, 5);
    for (unsigned i = 0; i < 300; i++) {
        const uint64_t offset = test_random_below(&random, size - 8);
        uint64_t end = 0;
        memcpy(bytes + offset, "written\n", 8);
        assert_int_equal(store_write(file, offset, "written\n", 8, 0, &end), 0);
        if (i % 10 == 0) {
            assert_int_equal(store_checkpoint(rig->store), 0);
        }
    }
    store_file_close(file);
}

static bool is_same_inode(const struct inode *a, const struct inode *b)
{
    return a->mode == b->mode && a->nlink == b->nlink && a->uid == b->uid && a->gid == b->gid &&
           a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->change_epoch == b->change_epoch && a->rewrite_epoch == b->rewrite_epoch && a->attr_epoch == b->attr_epoch;
}

static void look_at_inode(struct txn_rig *rig, const char *path, struct inode *out_inode)
{
    struct store_file *file = shell_open(rig, store_live(rig->store), path);
    assert_int_equal(store_file_get_inode(file, out_inode), 0);
    store_file_close(file);
}

static void scattered_table_lies_in_order_and_is_the_same(void **state)
{
    TXN_RIG;
    struct inode before;
    struct inode after;
    struct store_compact_info info;
    char *bytes = shell_rows("base", ROWS);
    const char *const parts[] = {bytes};
    rig->store->compact_piece_blocks = 64;
    assert_int_equal(shell_append(rig, live, "t", bytes), 0);
    scatter(rig, "t", bytes);
    look_at_inode(rig, "t", &before);
    assert_int_equal(shell_compact(rig, "t", &info), 0);
    look_at_inode(rig, "t", &after);
    assert_true(is_same_inode(&before, &after));
    assert_int_not_equal(before.rel, after.rel);
    assert_true(info.before.runs > info.before.leaves / 4);
    assert_true(info.after.runs <= 2);
    assert_int_equal(info.after.leaves, info.after.least_leaves);
    assert_int_equal(info.after.leaves, (strlen(bytes) + PAGE_PAYLOAD_SIZE - 1) / PAGE_PAYLOAD_SIZE);
    shell_expect_large(rig, live, "t", parts, 1);
    txn_rig_check(rig);
    txn_rig_kill_and_reopen(rig); /* the old layout */
    look_at_inode(rig, "t", &after);
    assert_int_equal(before.rel, after.rel);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 1);
    must_compact(rig, "t");
    look_at_inode(rig, "t", &before);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_kill_and_reopen(rig); /* the new one */
    look_at_inode(rig, "t", &after);
    assert_int_equal(before.rel, after.rel);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 1);
    free(bytes);
}

static void tables_of_one_leaf_are_left_as_they_are(void **state)
{
    TXN_RIG;
    struct inode before;
    struct inode after;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    assert_int_equal(shell_make(rig, live, "empty", S_IFREG | 0644), 0);
    look_at_inode(rig, "t", &before);
    must_compact(rig, "t");
    must_compact(rig, "empty");
    look_at_inode(rig, "t", &after);
    assert_int_equal(before.rel, after.rel);
}

static void holes_stay_holes(void **state)
{
    TXN_RIG;
    uint64_t end = 0;
    uint64_t at = 0;
    struct store_attr before;
    struct store_attr after;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_file *file = shell_open(rig, live, "t");
    for (uint64_t i = 1; i < 20; i++) {
        assert_int_equal(store_write(file, i * 1000000, "row\n", 4, 0, &end), 0);
    }
    assert_int_equal(shell_truncate_to(rig, live, "t", 100000000), 0);
    assert_int_equal(store_file_getattr(file, &before), 0);
    must_compact(rig, "t");
    assert_int_equal(store_file_getattr(file, &after), 0);
    assert_int_equal(before.size_bytes, after.size_bytes);
    assert_int_equal(before.blocks_512, after.blocks_512);
    for (uint64_t i = 1; i < 20; i++) {
        assert_int_equal(store_seek(file, (i - 1) * 1000000 + 4, false, &at), 0);
        assert_int_equal(at, i * 1000000);
        assert_int_equal(store_seek(file, at, true, &at), 0);
        assert_int_equal(at, i * 1000000 + 4);
    }
    assert_int_equal(store_seek(file, at, false, &at), -ENXIO);
    store_file_close(file);
}

/* Step by step, with something done to the table in between. */
struct stepper {
    struct txn_rig *rig;
    struct store_file *file;
    struct store_compact *compact;
};

static struct stepper begin_steps(struct txn_rig *rig, const char *path, unsigned steps)
{
    struct stepper stepper = {.rig = rig, .file = shell_open(rig, store_live(rig->store), path)};
    assert_int_equal(store_compact_begin(stepper.file, &stepper.compact), 0);
    for (unsigned i = 0; i < steps; i++) {
        assert_int_equal(store_compact_step(stepper.compact, 1), 1);
    }
    return stepper;
}

static int end_steps(struct stepper *stepper)
{
    int rc;
    do {
        rc = store_compact_step(stepper->compact, 1);
    } while (rc == 1);
    store_compact_end(stepper->compact);
    store_file_close(stepper->file);
    txn_rig_check(stepper->rig);
    return rc;
}

static void rows_appended_meanwhile_are_there(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    char *more = shell_rows("more", 3000);
    const char *const parts[] = {base, "small\n", more, "end\n"};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct stepper stepper = begin_steps(rig, "t", 5);
    assert_int_equal(shell_append(rig, live, "t", "small\n"), 0);
    assert_int_equal(store_compact_step(stepper.compact, 1), 1);
    assert_int_equal(shell_append(rig, live, "t", more), 0);
    assert_int_equal(end_steps(&stepper), 0);
    assert_int_equal(shell_append(rig, live, "t", "end\n"), 0);
    shell_expect_large(rig, live, "t", parts, 4);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 4);
    free(base);
    free(more);
}

static void table_rewritten_meanwhile_is_copied_anew(void **state)
{
    TXN_RIG;
    uint64_t end = 0;
    char *base = shell_rows("base", ROWS);
    const char *const parts[] = {base};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct stepper stepper = begin_steps(rig, "t", 5);
    memcpy(base + 10, "changed", 7);
    assert_int_equal(store_write(stepper.file, 10, "changed", 7, 0, &end), 0);
    assert_int_equal(end_steps(&stepper), 0);
    shell_expect_large(rig, live, "t", parts, 1);
    free(base);
}

static void table_rewritten_all_the_time_is_given_up(void **state)
{
    TXN_RIG;
    uint64_t end = 0;
    int rc = 1;
    unsigned steps = 0;
    char *base = shell_rows("base", ROWS);
    const char *const parts[] = {base};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct stepper stepper = begin_steps(rig, "t", 1);
    for (; rc == 1 && steps < 100; steps++) {
        assert_int_equal(store_write(stepper.file, 10, base + 10, 7, 0, &end), 0);
        rc = store_compact_step(stepper.compact, 1);
    }
    assert_int_equal(rc, -EAGAIN);
    store_compact_end(stepper.compact);
    store_file_close(stepper.file);
    shell_expect_large(rig, live, "t", parts, 1);
    free(base);
}

static void compaction_cut_off_leaves_no_file(void **state)
{
    TXN_RIG;
    struct bufcache_stats before;
    struct bufcache_stats after;
    char *base = shell_rows("base", ROWS);
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    bufcache_get_stats(store_cache(rig->store), &before);
    struct stepper stepper = begin_steps(rig, "t", 5);
    store_compact_end(stepper.compact);
    store_file_close(stepper.file);
    store_step(rig->store);
    assert_int_equal(shell_append(rig, live, "t", "end\n"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    bufcache_get_stats(store_cache(rig->store), &after);
    assert_int_equal(after.relation_files_created - before.relation_files_created, 1);
    assert_int_equal(after.relation_files_unlinked - before.relation_files_unlinked, 1);
    free(base);
}

static void second_compaction_of_a_table_is_refused(void **state)
{
    TXN_RIG;
    struct store_compact *second = NULL;
    char *base = shell_rows("base", ROWS);
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct stepper stepper = begin_steps(rig, "t", 2);
    assert_int_equal(store_compact_begin(stepper.file, &second), -EALREADY);
    assert_int_equal(end_steps(&stepper), 0);
    must_compact(rig, "t");
    free(base);
}

/* Its last name goes, a commit replaces it: the compaction has it open meanwhile. */
static void tables_that_go_meanwhile_go(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    const char *const parts[] = {"new\n"};
    assert_int_equal(shell_append(rig, live, "removed", base), 0);
    assert_int_equal(shell_append(rig, live, "replaced", base), 0);
    struct stepper removed = begin_steps(rig, "removed", 2);
    struct stepper replaced = begin_steps(rig, "replaced", 2);
    assert_int_equal(shell_remove(rig, live, "removed"), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "replaced", "new\n"), 0);
    shell_must_commit(txn);
    assert_int_equal(end_steps(&removed), -ESTALE);
    assert_int_equal(end_steps(&replaced), -ESTALE);
    shell_expect(rig, live, "removed", NULL);
    shell_expect_large(rig, live, "replaced", parts, 1);
    free(base);
}

static void other_trees_are_refused(void **state)
{
    TXN_RIG;
    struct store_compact *compact = NULL;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = shell_begin(rig);
    struct store_file *file = shell_open(rig, store_txn_view(txn), "t");
    assert_int_equal(store_compact_begin(file, &compact), -EINVAL);
    store_file_close(file);
    store_txn_put(txn);
}

static void snapshot_goes_on_showing_what_it_showed(void **state)
{
    TXN_RIG;
    uint64_t end = 0;
    struct store_snapshot *snapshot = NULL;
    char *bytes = shell_rows("base", ROWS);
    char *old = strdup(bytes);
    const char *const before[] = {old};
    const char *const after[] = {bytes};
    assert_int_equal(shell_append(rig, live, "t", bytes), 0);
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    must_compact(rig, "t");
    struct store_file *file = shell_open(rig, live, "t");
    memcpy(bytes + 5000, "changed", 7);
    assert_int_equal(store_write(file, 5000, "changed", 7, 0, &end), 0);
    store_file_close(file);
    for (unsigned life = 0; life < 3; life++) {
        assert_int_equal(store_snapshot_get(rig->store, shell_name("s"), &snapshot), 0);
        shell_expect_large(rig, store_snapshot_view(snapshot), "t", before, 1);
        store_snapshot_put(snapshot);
        shell_expect_large(rig, store_live(rig->store), "t", after, 1);
        assert_int_equal(store_checkpoint(rig->store), 0);
        txn_rig_kill_and_reopen(rig);
    }
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_check(rig);
    shell_expect_large(rig, store_live(rig->store), "t", after, 1);
    free(old);
    free(bytes);
}

/* ---- replay of what came behind ---- */

/* Leaves that are hardly full: the old tree is higher than the new one, of one leaf. */
static void cut_to_nothing_behind_is_replayed(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", 600);
    const char *const parts[] = {"new\n"};
    for (unsigned large = 0; large < 2; large++) {
        assert_int_equal(shell_append(rig, live, "t", base), 0);
        assert_int_equal(shell_truncate_to(rig, live, "t", large ? 9000 : 100), 0);
        struct store_file *file = shell_open(rig, live, "t");
        uint64_t end = 0;
        assert_int_equal(store_checkpoint(rig->store), 0);
        assert_int_equal(store_write(file, 50, base, 40, 0, &end), 0);
        store_file_close(file);
        must_compact(rig, "t");
        assert_int_equal(shell_rewrite(rig, live, "t", "new\n"), 0);
        txn_rig_kill_and_reopen(rig);
        live = store_live(rig->store);
        shell_expect_large(rig, live, "t", parts, 1);
        assert_int_equal(shell_remove(rig, live, "t"), 0);
    }
    free(base);
}

static void removal_behind_is_replayed(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    must_compact(rig, "t");
    assert_int_equal(shell_remove(rig, live, "t"), 0);
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "t", NULL);
    free(base);
}

/* ---- transactions that began before ---- */

/* Nobody sees the old versions any more, and a start finds the same. */
static void expect_now_and_after_kills(struct txn_rig *rig, const char *const *parts, unsigned count)
{
    for (unsigned i = 0; i < 3; i++) {
        shell_expect_large(rig, store_live(rig->store), "t", parts, count);
        txn_rig_check(rig);
        if (i == 1) {
            assert_int_equal(store_checkpoint(rig->store), 0);
        }
        txn_rig_kill_and_reopen(rig);
    }
    shell_expect_large(rig, store_live(rig->store), "t", parts, count);
}

static void append_of_an_older_transaction_follows(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    char *mine = shell_rows("mine", 5000);
    const char *const parts[] = {base, mine, "end\n"};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
    shell_must_commit(txn);
    txn_rig_check(rig);
    assert_int_equal(shell_append(rig, live, "t", "end\n"), 0);
    must_compact(rig, "t");
    expect_now_and_after_kills(rig, parts, 3);
    free(base);
    free(mine);
}

static void appends_on_both_sides_merge(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    char *mine = shell_rows("mine", 5000);
    const char *const parts[] = {base, "theirs\n", mine};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    shell_must_commit(txn);
    expect_now_and_after_kills(rig, parts, 3);
    free(base);
    free(mine);
}

static void replaced_by_an_older_transaction(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    char *mine = shell_rows("mine", 5000);
    const char *const parts[] = {mine};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "first\n"), 0);
    assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "t", mine), 0);
    shell_must_commit(txn);
    expect_now_and_after_kills(rig, parts, 1);
    free(base);
    free(mine);
}

static void removed_by_an_older_transaction(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(shell_remove(rig, store_txn_view(txn), "t"), 0);
    shell_must_commit(txn);
    shell_expect(rig, live, "t", NULL);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_check(rig);
    free(base);
}

static void abort_of_an_older_transaction_changes_nothing(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    const char *const parts[] = {base};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", base), 0);
    store_txn_put(txn);
    expect_now_and_after_kills(rig, parts, 1);
    free(base);
}

/* The table had a new number already, so its old relation has an owner item; two compactions, and others that began between and behind. */
static void older_and_younger_transactions_meet(void **state)
{
    TXN_RIG;
    uint64_t end = 0;
    char *base = shell_rows("base", ROWS);
    const char *const parts[] = {base, "young\n", "end\n"};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *first = shell_begin(rig);
    struct store_file *file = shell_open(rig, store_txn_view(first), "t");
    assert_int_equal(store_write(file, 0, base, 10, 0, &end), 0);
    store_file_close(file);
    shell_must_commit(first);
    struct store_txn *old = shell_begin(rig);
    must_compact(rig, "t");
    struct store_txn *middle = shell_begin(rig);
    must_compact(rig, "t");
    struct store_txn *young = shell_begin(rig);
    file = shell_open(rig, store_txn_view(old), "t");
    memcpy(base + 7000, "changed", 7);
    assert_int_equal(store_write(file, 7000, "changed", 7, 0, &end), 0);
    store_file_close(file);
    shell_must_commit(old);
    txn_rig_check(rig);
    assert_int_equal(shell_append(rig, store_txn_view(middle), "t", "lost\n"), 0);
    shell_must_conflict(middle);
    store_txn_put(young);
    assert_int_equal(shell_append(rig, live, "t", "young\n"), 0);
    must_compact(rig, "t");
    assert_int_equal(shell_append(rig, live, "t", "end\n"), 0);
    expect_now_and_after_kills(rig, parts, 3);
    free(base);
}

/* The log behind a checkpoint that has the new relation refers to pages that the transaction wrote in the old one. */
static void bulk_append_of_an_older_transaction_is_replayed(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    char *mine = shell_rows("mine", ROWS);
    const char *const parts[] = {base, mine};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    shell_must_commit(txn);
    store_step(rig->store);
    expect_now_and_after_kills(rig, parts, 2);
    free(base);
    free(mine);
}

static void overwrite(struct txn_rig *rig, struct view *view, uint64_t offset, const char *text)
{
    uint64_t end = 0;
    struct store_file *file = shell_open(rig, view, "t");
    assert_int_equal(store_write(file, offset, text, strlen(text), 0, &end), 0);
    store_file_close(file);
}

/* A snapshot of an earlier life goes while its table is compacted: what only it saw in the old file is free when that comes back. */
static void blocks_of_a_snapshot_that_went_meanwhile_are_free(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", ROWS);
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    overwrite(rig, live, 100000, "changed");
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_kill_and_reopen(rig);
    live = store_live(rig->store);
    overwrite(rig, live, 200000, "changed"); /* the file has a map */
    store_step(rig->store);
    struct store_txn *txn = shell_begin(rig);
    must_compact(rig, "t");
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(store_checkpoint(rig->store), 0);
        store_step(rig->store);
    }
    overwrite(rig, store_txn_view(txn), 300000, "changed");
    store_maps_finish(rig->store); /* in vain: the live tree has another relation */
    shell_must_commit(txn);
    txn_rig_check(rig);
    store_maps_finish(rig->store);
    assert_int_equal(shell_append(rig, live, "t", "end\n"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    struct store_file *file = shell_open(rig, live, "t");
    assert_true(fsm_is_ready(file->relation)); /* else the check does not look for blocks that are lost */
    store_file_close(file);
    txn_rig_check(rig);
    free(base);
}

/* ---- by itself ---- */

static void be_quiet(struct txn_rig *rig)
{
    mem_device_advance_ns(rig->mem, 2 * rig->store->compact_quiet_ns);
    store_step(rig->store);
}

static void scattered_table_is_compacted_when_it_is_quiet(void **state)
{
    TXN_RIG;
    struct inode before;
    struct inode after;
    char *bytes = shell_rows("base", ROWS * 2);
    const char *const parts[] = {bytes, "mine\n"};
    rig->store->compact_auto = true;
    assert_int_equal(shell_append(rig, live, "t", bytes), 0);
    scatter(rig, "t", bytes);
    look_at_inode(rig, "t", &before);
    store_step(rig->store); /* it is not quiet yet */
    look_at_inode(rig, "t", &after);
    assert_int_equal(before.rel, after.rel);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "mine\n"), 0);
    be_quiet(rig); /* it gives way */
    look_at_inode(rig, "t", &after);
    assert_int_equal(before.rel, after.rel);
    shell_must_commit(txn);
    be_quiet(rig);
    look_at_inode(rig, "t", &after);
    assert_int_not_equal(before.rel, after.rel);
    shell_expect_large(rig, live, "t", parts, 2);
    look_at_inode(rig, "t", &before);
    be_quiet(rig); /* once is enough */
    look_at_inode(rig, "t", &after);
    assert_int_equal(before.rel, after.rel);
    free(bytes);
}

/* Each of its leaves holds a few bytes, and cannot hold more. */
static void sparse_table_is_left_as_it_is(void **state)
{
    TXN_RIG;
    uint64_t end = 0;
    struct inode before;
    struct inode after;
    struct store_shape shape;
    rig->store->compact_auto = true;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct store_file *file = shell_open(rig, live, "t");
    for (uint64_t i = 1; i < 200; i++) {
        assert_int_equal(store_write(file, i * 100000, "row\n", 4, 0, &end), 0);
    }
    assert_int_equal(store_write(file, 0, "two\n", 4, 0, &end), 0);
    assert_int_equal(store_file_get_shape(file, &shape), 0);
    assert_int_equal(shape.leaves, 200);
    assert_int_equal(shape.least_leaves, 200);
    store_file_close(file);
    look_at_inode(rig, "t", &before);
    be_quiet(rig);
    look_at_inode(rig, "t", &after);
    assert_int_equal(before.rel, after.rel);
}

/* Merges graft leaves of a few bytes: each time the base ends in such a one, and the rows of both sides fill one leaf of two. */
static void half_empty_table_is_compacted_when_it_is_quiet(void **state)
{
    TXN_RIG;
    static const char tail[] = "ten bytes\n";
    struct store_shape before;
    struct store_shape after;
    char mine[PAGE_PAYLOAD_SIZE + 1];
    char *all = malloc(50 * (PAGE_PAYLOAD_SIZE + 20));
    const char *const parts[] = {all};
    assert_non_null(all);
    memset(mine, 'm', PAGE_PAYLOAD_SIZE);
    memcpy(mine + PAGE_PAYLOAD_SIZE - strlen(tail), tail, strlen(tail) + 1);
    rig->store->compact_auto = true;
    assert_int_equal(shell_append(rig, live, "t", tail), 0);
    size_t size = (size_t)(stpcpy(all, tail) - all);
    for (unsigned i = 0; i < 40; i++) {
        struct store_txn *txn = shell_begin(rig);
        assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
        assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
        shell_must_commit(txn);
        size = (size_t)(stpcpy(stpcpy(all + size, "theirs\n"), mine) - all);
    }
    struct store_file *file = shell_open(rig, live, "t");
    assert_int_equal(store_file_get_shape(file, &before), 0);
    assert_true(before.leaves * 55 > before.least_leaves * 100);
    be_quiet(rig);
    assert_int_equal(store_file_get_shape(file, &after), 0);
    assert_int_equal(after.leaves, before.least_leaves);
    store_file_close(file);
    shell_expect_large(rig, live, "t", parts, 1);
    free(all);
}

/* Snapshots keep what is in front of it, and it is moved by each change: by appending, too. */
static void push_up(struct txn_rig *rig, const char *path, bool append)
{
    struct view *live = store_live(rig->store);
    for (char name[2] = "a"; name[0] < 'g'; name[0]++) {
        assert_int_equal(store_snapshot_create(rig->store, shell_name(name)), 0);
        if (append) {
            assert_int_equal(shell_append(rig, live, path, "row\n"), 0);
        } else {
            overwrite(rig, live, 0, "row\n");
        }
    }
    for (char name[2] = "a"; name[0] < 'g'; name[0]++) {
        assert_int_equal(store_snapshot_drop(rig->store, shell_name(name)), 0);
    }
}

static void table_of_one_block_that_lies_high_is_moved_once(void **state)
{
    TXN_RIG;
    for (unsigned append = 0; append < 2; append++) {
        struct inode before;
        struct inode after;
        rig->store->compact_auto = true;
        (void)shell_remove(rig, live, "t");
        assert_int_equal(shell_append(rig, live, "t", "row\n"), 0);
        push_up(rig, "t", append == 1);
        assert_int_equal(store_checkpoint(rig->store), 0);
        assert_true(file_blocks_of(rig, "t") > 3);
        look_at_inode(rig, "t", &before);
        be_quiet(rig);
        be_quiet(rig); /* the one that was removed is noted, too */
        look_at_inode(rig, "t", &after);
        assert_int_not_equal(before.rel, after.rel);
        assert_int_equal(file_blocks_of(rig, "t"), 1);
        be_quiet(rig);
        look_at_inode(rig, "t", &before);
        assert_int_equal(before.rel, after.rel);
    }
}

static void tables_in_order_and_small_ones_are_left_as_they_are(void **state)
{
    TXN_RIG;
    struct inode before[2];
    struct inode after[2];
    uint64_t end = 0;
    char *large = shell_rows("large", ROWS * 2);
    char *small = shell_rows("small", 3000);
    rig->store->compact_auto = true;
    assert_int_equal(shell_append(rig, live, "large", large), 0);
    assert_int_equal(shell_append(rig, live, "small", small), 0);
    scatter(rig, "small", small);
    struct store_file *file = shell_open(rig, live, "large");
    assert_int_equal(store_write(file, 50000, "changed\n", 8, 0, &end), 0);
    store_file_close(file);
    look_at_inode(rig, "large", &before[0]);
    look_at_inode(rig, "small", &before[1]);
    be_quiet(rig);
    be_quiet(rig);
    look_at_inode(rig, "large", &after[0]);
    look_at_inode(rig, "small", &after[1]);
    assert_int_equal(before[0].rel, after[0].rel);
    assert_int_equal(before[1].rel, after[1].rel);
    free(large);
    free(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_RIG_CASE(scattered_table_lies_in_order_and_is_the_same),
        TXN_RIG_CASE(tables_of_one_leaf_are_left_as_they_are),
        TXN_RIG_CASE(holes_stay_holes),
        TXN_RIG_CASE(rows_appended_meanwhile_are_there),
        TXN_RIG_CASE(table_rewritten_meanwhile_is_copied_anew),
        TXN_RIG_CASE(table_rewritten_all_the_time_is_given_up),
        TXN_RIG_CASE(compaction_cut_off_leaves_no_file),
        TXN_RIG_CASE(second_compaction_of_a_table_is_refused),
        TXN_RIG_CASE(tables_that_go_meanwhile_go),
        TXN_RIG_CASE(other_trees_are_refused),
        TXN_RIG_CASE(snapshot_goes_on_showing_what_it_showed),
        TXN_RIG_CASE(cut_to_nothing_behind_is_replayed),
        TXN_RIG_CASE(removal_behind_is_replayed),
        TXN_RIG_CASE(append_of_an_older_transaction_follows),
        TXN_RIG_CASE(appends_on_both_sides_merge),
        TXN_RIG_CASE(replaced_by_an_older_transaction),
        TXN_RIG_CASE(removed_by_an_older_transaction),
        TXN_RIG_CASE(abort_of_an_older_transaction_changes_nothing),
        TXN_RIG_CASE(older_and_younger_transactions_meet),
        TXN_RIG_CASE(bulk_append_of_an_older_transaction_is_replayed),
        TXN_RIG_CASE(blocks_of_a_snapshot_that_went_meanwhile_are_free),
        TXN_RIG_CASE(scattered_table_is_compacted_when_it_is_quiet),
        TXN_RIG_CASE(half_empty_table_is_compacted_when_it_is_quiet),
        TXN_RIG_CASE(sparse_table_is_left_as_it_is),
        TXN_RIG_CASE(table_of_one_block_that_lies_high_is_moved_once),
        TXN_RIG_CASE(tables_in_order_and_small_ones_are_left_as_they_are),
    };
    return cmocka_run_group_tests_name("model/test_compact", tests, NULL, NULL);
}
