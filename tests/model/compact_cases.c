/*
 * tests/model/compact_cases.c - cases of tests/model/txn_cases.h that guard steps of compaction.
 */
#include "tests/model/txn_cases.h"

#include "tests/model/txn_rig.h"
#include "txn/store_int.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Nobody but who holds it sees the old file any more, and nothing of it is in the cache. */
static void let_go(struct txn_rig *rig)
{
    for (unsigned i = 0; i < 2; i++) {
        store_step(rig->store);
        assert_int_equal(shell_append(rig, store_live(rig->store), "other", "row\n"), 0);
        assert_int_equal(store_checkpoint(rig->store), 0);
    }
    txn_rig_check(rig);
}

void table_written_in_transaction_is_left_alone(void **state)
{
    TXN_RIG;
    struct store_compact_info info;
    char *base = shell_rows("base", 2000);
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    assert_int_equal(shell_append(rig, live, "read", base), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "mine\n"), 0);
    assert_int_equal(shell_compact(rig, "t", &info), -EBUSY);
    assert_string_equal(info.transaction, "x");
    assert_int_equal(shell_compact(rig, "read", &info), 0);
    store_txn_put(txn);
    assert_int_equal(shell_compact(rig, "t", &info), 0);
    free(base);
}

void old_file_stays_for_a_transaction(void **state)
{
    TXN_RIG;
    struct store_compact_info info;
    char *base = shell_rows("base", 20000);
    const char *const parts[] = {base};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_compact(rig, "t", &info), 0);
    let_go(rig);
    shell_expect_large(rig, store_txn_view(txn), "t", parts, 1);
    shell_expect_large(rig, live, "t", parts, 1);
    store_txn_put(txn);
    free(base);
}

/* What it wrote behind the compaction is taken over where it is, in the old file, which is the table's again. */
void commit_brings_the_old_file_back(void **state)
{
    TXN_RIG;
    struct store_compact_info info;
    uint64_t end = 0;
    char *base = shell_rows("base", 20000);
    const char *const parts[] = {base, "more\n"};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_compact(rig, "t", &info), 0);
    struct store_file *file = shell_open(rig, store_txn_view(txn), "t");
    memcpy(base + 100000, "rewritten", 9);
    assert_int_equal(store_write(file, 100000, "rewritten", 9, 0, &end), 0);
    store_file_close(file);
    shell_must_commit(txn);
    let_go(rig);
    assert_int_equal(shell_append(rig, live, "t", "more\n"), 0);
    shell_expect_large(rig, live, "t", parts, 2);
    let_go(rig);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 2);
    free(base);
}

/* Whoever syncs a file stops there, once. */
struct stop {
    _Atomic bool armed, stopped, may_go_on;
};

static int stop_at_sync(void *arg, const struct mem_event *event)
{
    struct stop *stop = arg;
    if (event->call == MEM_CALL_SYNC && atomic_exchange(&stop->armed, false)) {
        atomic_store(&stop->stopped, true);
        while (!atomic_load(&stop->may_go_on)) {
            (void)sched_yield();
        }
    }
    return 0;
}

static void *checkpoint_in_thread(void *arg)
{
    struct txn_rig *rig = arg;
    assert_int_equal(store_checkpoint(rig->store), 0);
    return NULL;
}

/* A checkpoint forks before the transaction is closed, and becomes durable when nobody sees the old file any more: the log behind it refers to
 * the rows there. */
void old_file_stays_for_the_log(void **state)
{
    TXN_RIG;
    pthread_t writing;
    struct store_compact_info info;
    struct stop stop = {.armed = true};
    char *base = shell_rows("base", 2000);
    char *mine = shell_rows("mine", 20000);
    const char *const parts[] = {base, "theirs\n", mine};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_compact(rig, "t", &info), 0);
    assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(store_sync(rig->store), 0);
    mem_device_set_hook(rig->mem, stop_at_sync, &stop);
    assert_int_equal(pthread_create(&writing, NULL, checkpoint_in_thread, rig), 0);
    while (!atomic_load(&stop.stopped)) {
        (void)sched_yield();
    }
    shell_must_commit(txn);
    atomic_store(&stop.may_go_on, true);
    assert_int_equal(pthread_join(writing, NULL), 0);
    mem_device_set_hook(rig->mem, NULL, NULL);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 3);
    free(base);
    free(mine);
}

/* The checkpoint has the table in its old relation, and the log refers to pages of two later ones. */
void bulk_append_behind_a_compaction_is_replayed(void **state)
{
    TXN_RIG;
    struct store_compact_info info;
    char *base = shell_rows("base", 20000);
    char *bulk = shell_rows("bulk", 20000);
    const char *const parts[] = {base, bulk, "end\n", bulk};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(shell_compact(rig, "t", &info), 0);
    assert_int_equal(shell_append(rig, live, "t", bulk), 0);
    assert_int_equal(store_sync(rig->store), 0);
    assert_int_equal(shell_append(rig, live, "t", "end\n"), 0);
    assert_int_equal(store_sync(rig->store),
                     0); /* vouches for the record before: it is not by value for want of that */
    assert_int_equal(shell_compact(rig, "t", &info), 0);
    assert_int_equal(shell_append(rig, live, "t", bulk), 0);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 4);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 4);
    free(base);
    free(bulk);
}
