/*
 * tests/model/test_txn_random.c - several transactions at once, beside live operations, against the reference model.
 *
 * Each open transaction is a lane of the rig: its view, a copy of the model, files of its own. One operation goes to the
 * live tree or to one of them, and is compared as in test_model. When one is closed, tests/model/merge.h says by itself
 * whether it conflicts and what the live tree is then, and all of it is compared. One that has ended stays for a while: its
 * open files show what they showed and take no writes. In between: snapshots, checkpoints, store_check, clean ends, kills.
 *
 * SEED and OPS (operations of each rig) come from the environment.
 */
#include "tests/model/merge.h"
#include "tests/model/rig.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_NAME          "test_txn_random"
#define TRANSACTIONS       6u
#define ENDED              3u
#define SNAPSHOTS          3u
#define OPERATIONS_DEFAULT 100000u

struct transaction {
    struct store_txn *txn; /* NULL: free */
    struct rig_lane lane;
    struct model *base; /* the live model when it began */
    size_t live_from;   /* what the live journal had then */
};

struct kept {
    char name[24]; /* empty: free */
    struct model *model;
};

struct txn_rig {
    struct rig rig;
    struct transaction open[TRANSACTIONS];
    struct transaction ended[ENDED];
    struct kept kept[SNAPSHOTS];
    unsigned named;
    unsigned live_share, end_share; /* of 1000: operations in the live tree, ends of transactions; they wander */
    ino_no largest_ino;             /* given out before the commit under way */
    uint64_t begun, committed, merged, conflicts, aborted; /* merged: something had happened outside */
};

static uint64_t below(struct txn_rig *tr, uint64_t limit)
{
    return test_random_below(&tr->rig.random, limit);
}

static struct store_name name_of(const char *text)
{
    return (struct store_name){.bytes = text, .size = strlen(text)};
}

/* ---- begin, operate ---- */

static void begin(struct txn_rig *tr, struct transaction *transaction)
{
    char name[24];
    struct rig *rig = &tr->rig;
    (void)snprintf(name, sizeof name, "t%u", ++tr->named);
    const struct store_txn_options options = {.name = name_of(name)};
    rig_note(rig, "begin %s", name);
    rig_must(rig, store_txn_begin(rig->store, &options, &transaction->txn), "store_txn_begin");
    transaction->lane = (struct rig_lane){.view = store_txn_view(transaction->txn), .model = model_copy(rig->model)};
    transaction->lane.model->journal = journal_new();
    transaction->base = model_copy(rig->model);
    transaction->live_from = rig->model->journal->count;
    tr->begun++;
}

static void operate_in(struct txn_rig *tr, struct transaction *transaction)
{
    struct rig *rig = &tr->rig;
    rig_swap_lane(rig, &transaction->lane);
    rig_operate(rig);
    rig_swap_lane(rig, &transaction->lane);
}

static void compare_in(struct txn_rig *tr, struct transaction *transaction)
{
    struct rig *rig = &tr->rig;
    rig_note(rig, "compare transaction %" PRIu64, store_txn_number(transaction->txn));
    rig_swap_lane(rig, &transaction->lane);
    rig_compare(rig);
    rig_swap_lane(rig, &transaction->lane);
    rig_compare_view(rig, store_txn_base(transaction->txn), transaction->base);
}

/* ---- end ---- */

static void forget(struct txn_rig *tr, struct transaction *transaction)
{
    struct rig *rig = &tr->rig;
    if (transaction->txn == NULL) {
        return;
    }
    rig_note(rig, "put transaction %" PRIu64, store_txn_number(transaction->txn));
    rig_swap_lane(rig, &transaction->lane);
    model_begin(rig->model);
    rig_close_handles(rig);
    rig_swap_lane(rig, &transaction->lane);
    store_txn_put(transaction->txn);
    journal_free(transaction->lane.model->journal);
    model_free(transaction->lane.model);
    model_free(transaction->base);
    *transaction = (struct transaction){.txn = NULL};
}

static void forget_all(struct txn_rig *tr)
{
    for (unsigned i = 0; i < TRANSACTIONS; i++) {
        forget(tr, &tr->open[i]);
    }
    for (unsigned i = 0; i < ENDED; i++) {
        forget(tr, &tr->ended[i]);
    }
}

/* It has ended: gone at once, or kept with its open files in the place of one that ended before. */
static void keep_or_forget(struct txn_rig *tr, struct transaction *transaction)
{
    struct transaction *place = &tr->ended[below(tr, ENDED)];
    if (below(tr, 2) == 0) {
        forget(tr, transaction);
        return;
    }
    forget(tr, place);
    *place = *transaction;
    *transaction = (struct transaction){.txn = NULL};
}

/* Files of a transaction that has ended show what they showed, and take nothing. */
static void look_at_ended(struct txn_rig *tr, struct transaction *transaction)
{
    struct rig *rig = &tr->rig;
    uint64_t end = 0;
    for (unsigned i = 0; i < RIG_HANDLES; i++) {
        const struct rig_handle *handle = &transaction->lane.handles[i];
        struct compare compare = {.store = rig->store, .model = transaction->lane.model};
        if (handle->file == NULL) {
            continue;
        }
        rig_note(rig, "look at inode %" PRIu64 " of an ended transaction", handle->inode->ino);
        if (!compare_range(&compare, handle->file, handle->inode, 0, handle->inode->size + 1)) {
            rig_fail(rig, "file of an ended transaction: %s", compare.why);
        }
        const int result = store_write(handle->file, 0, "x", 1, 0, &end);
        const bool aborted = store_txn_state(transaction->txn) == STORE_TXN_ABORTED;
        if (result != (aborted ? -ECANCELED : -ENOENT)) {
            rig_fail(rig, "a write in an ended transaction answers %d", result);
        }
    }
}

/* Which number the store gave to the rewritten table with that name. */
static ino_no learn_number(void *arg, ino_no parent, struct store_name name)
{
    struct txn_rig *tr = arg;
    struct rig *rig = &tr->rig;
    struct store_attr attr = {0};
    rig_must(rig, store_lookup(rig->store, store_live(rig->store), parent, name, &attr), "lookup of a rewritten table");
    if (model_find(rig->model, attr.ino) != NULL || attr.ino <= tr->largest_ino) {
        rig_fail(rig, "a rewritten table has number %" PRIu64 ", which is not new", attr.ino);
    }
    return attr.ino;
}

static int count_object(void *arg, const struct store_txn_object *object)
{
    (void)object;
    ++*(unsigned *)arg;
    return 0;
}

/* A table was replaced, and this is by which one. */
static bool is_replaced(const struct model *model, ino_no old_ino, ino_no ino)
{
    const struct journal *journal = model->journal;
    for (size_t i = 0; i < journal->count; i++) {
        const struct model_op *op = &journal->ops[i];
        if (op->kind == MODEL_OP_RENUMBER && op->ino == old_ino && op->ino2 == ino) {
            return true;
        }
    }
    return false;
}

/* What the commit says that it changed is so. */
static void check_changes(struct txn_rig *tr, const struct store_changes *changes)
{
    struct rig *rig = &tr->rig;
    for (size_t i = 0; i < changes->count; i++) {
        const struct store_change *change = &changes->changes[i];
        const struct model_inode *old = model_find(rig->model, change->old_ino);
        const struct model_inode *now = model_find(rig->model, change->ino);
        const bool is_gone = old == NULL || old->nlink == 0;
        if (change->kind == STORE_CHANGE_DIRECTORY) {
            continue; /* of one that went as well */
        }
        const bool good = change->kind == STORE_CHANGE_REPLACED  ? is_replaced(rig->model, change->old_ino, change->ino)
                          : change->kind == STORE_CHANGE_DROPPED ? is_gone
                          : change->kind == STORE_CHANGE_NAME    ? change->old_ino != change->ino
                                                                 : now != NULL && now->nlink > 0;
        if (!good) {
            rig_fail(rig, "change %zu of kind %d: inode %" PRIu64 ", before %" PRIu64, i, (int)change->kind,
                     change->ino, change->old_ino);
        }
    }
}

static void committed(struct txn_rig *tr, struct transaction *transaction, struct merge *merge,
                      const struct store_changes *changes)
{
    struct rig *rig = &tr->rig;
    tr->committed++;
    tr->merged += rig->model->journal->count > transaction->live_from;
    tr->largest_ino = rig->model->largest_ino;
    if (transaction->lane.model->journal->count > 0) {
        merge_apply(merge, changes->time_ns, learn_number, tr);
    }
    rig_compare(rig);
    check_changes(tr, changes);
    keep_or_forget(tr, transaction);
}

static void close_it(struct txn_rig *tr, struct transaction *transaction)
{
    struct rig *rig = &tr->rig;
    struct store_changes changes = {0};
    unsigned listed = 0;
    struct merge merge = {.base = transaction->base,
                          .own = transaction->lane.model,
                          .did = transaction->lane.model->journal,
                          .live = rig->model,
                          .live_from = transaction->live_from};
    const bool conflicts = merge_conflicts(&merge);
    rig_note(rig, "commit %" PRIu64 ": %s", store_txn_number(transaction->txn), conflicts ? merge.why : "no conflict");
    rig_must(rig, store_txn_each_conflict(transaction->txn, count_object, &listed), "store_txn_each_conflict");
    const int result = store_txn_commit(transaction->txn, &changes);
    if (result != (conflicts ? -EAGAIN : 0) || (listed > 0) != (conflicts && !merge.replays)) {
        rig_fail(rig, "commit answers %d with %u conflicts listed, but: %s", result, listed,
                 conflicts ? merge.why : "no conflict");
    }
    if (result == 0) {
        committed(tr, transaction, &merge, &changes);
    } else {
        tr->conflicts++;
    }
    store_changes_free(&changes);
    merge_free(&merge);
}

static void abort_it(struct txn_rig *tr, struct transaction *transaction)
{
    struct rig *rig = &tr->rig;
    struct store_changes changes = {0};
    rig_note(rig, "abort %" PRIu64, store_txn_number(transaction->txn));
    store_txn_abort(transaction->txn);
    assert_int_equal(store_txn_commit(transaction->txn, &changes), -ECANCELED);
    tr->aborted++;
    keep_or_forget(tr, transaction);
}

/* Ends one. After a conflict it is aborted, or goes on and meets the conflict again. */
static void end_one(struct txn_rig *tr, struct transaction *transaction)
{
    if (below(tr, 100) < 20) {
        abort_it(tr, transaction);
        return;
    }
    close_it(tr, transaction);
    if (transaction->txn != NULL && below(tr, 100) < 70) {
        abort_it(tr, transaction);
    }
}

/* ---- snapshots ---- */

static void touch_snapshot(struct txn_rig *tr)
{
    struct rig *rig = &tr->rig;
    struct kept *kept = &tr->kept[below(tr, SNAPSHOTS)];
    struct store_snapshot *snapshot = NULL;
    if (kept->name[0] == '\0') {
        (void)snprintf(kept->name, sizeof kept->name, "snapshot_%u", ++tr->named);
        rig_note(rig, "take %s", kept->name);
        rig_must(rig, store_snapshot_create(rig->store, name_of(kept->name)), "store_snapshot_create");
        kept->model = model_copy(rig->model);
    } else if (below(tr, 3) > 0) {
        rig_note(rig, "compare %s", kept->name);
        rig_must(rig, store_snapshot_get(rig->store, name_of(kept->name), &snapshot), "store_snapshot_get");
        rig_compare_view(rig, store_snapshot_view(snapshot), kept->model);
        store_snapshot_put(snapshot);
    } else {
        rig_note(rig, "drop %s", kept->name);
        rig_must(rig, store_snapshot_drop(rig->store, name_of(kept->name)), "store_snapshot_drop");
        model_free(kept->model);
        *kept = (struct kept){.model = NULL};
    }
}

/* ---- all ---- */

static bool any_open(const struct txn_rig *tr)
{
    for (unsigned i = 0; i < TRANSACTIONS; i++) {
        if (tr->open[i].txn != NULL) {
            return true;
        }
    }
    return false;
}

/* Nobody looks at what was done before the oldest one began. */
static void cut_journal(struct txn_rig *tr)
{
    if (!any_open(tr)) {
        journal_free(tr->rig.model->journal);
        tr->rig.model->journal = journal_new();
    }
}

static void interrupt(struct txn_rig *tr)
{
    struct rig *rig = &tr->rig;
    switch (below(tr, 2500)) {
    case 0:
    case 1:
        rig_checkpoint(rig);
        break;
    case 2:
        forget_all(tr);
        rig_reopen(rig);
        break;
    case 3:
    case 4:
        forget_all(tr);
        rig_kill_and_reopen(rig);
        break;
    case 5:
    case 6:
        rig_check_store(rig);
        break;
    case 7:
    case 8:
    case 9:
        look_at_ended(tr, &tr->ended[below(tr, ENDED)]);
        break;
    case 10:
    case 11:
        touch_snapshot(tr);
        break;
    case 12:
        rig_must(rig, store_check_online(rig->store, &rig->diag), "store_check_online");
        break;
    default:
        break;
    }
}

static void step(struct txn_rig *tr)
{
    struct transaction *transaction = &tr->open[below(tr, TRANSACTIONS)];
    if (tr->rig.step % 1000 == 0) {
        tr->live_share = 20 + (unsigned)below(tr, 10 + below(tr, 400));
        tr->end_share = 10 + (unsigned)below(tr, 200);
    }
    const uint64_t luck = below(tr, 1000);
    if (luck < tr->live_share) {
        rig_operate(&tr->rig);
    } else if (transaction->txn == NULL) {
        if (below(tr, 10) == 0) {
            begin(tr, transaction);
        }
    } else if (luck < tr->live_share + tr->end_share) {
        end_one(tr, transaction);
    } else if (below(tr, 250) == 0) {
        compare_in(tr, transaction);
    } else {
        operate_in(tr, transaction);
    }
    if (below(tr, tr->rig.compact != NULL ? 4 : 60) == 0) {
        rig_compact(&tr->rig);
    }
    interrupt(tr);
    cut_journal(tr);
}

static void finish(struct txn_rig *tr)
{
    struct rig *rig = &tr->rig;
    for (unsigned i = 0; i < TRANSACTIONS; i++) {
        if (tr->open[i].txn != NULL) {
            close_it(tr, &tr->open[i]);
        }
    }
    forget_all(tr);
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        model_free(tr->kept[i].model);
    }
    rig_check_store(rig);
    rig_kill_and_reopen(rig);
    fprintf(stderr,
            "%" PRIu64 " transactions: %" PRIu64 " committed (%" PRIu64 " of them beside others), %" PRIu64
            " conflicts, %" PRIu64 " aborted\n",
            tr->begun, tr->committed, tr->merged, tr->conflicts, tr->aborted);
    fprintf(stderr, "%" PRIu64 " tables compacted, %" PRIu64 " left alone, %" PRIu64 " cut off\n", rig->compacted,
            rig->compact_gave_way, rig->abandoned);
    assert_true(tr->merged > 0 && tr->conflicts > 0);
    assert_true(rig->compacted > 0 && rig->compact_gave_way > 0);
    journal_free(rig->model->journal);
    rig->model->journal = NULL;
    rig_destroy(rig);
}

static void run(uint64_t cache_size_bytes, uint8_t name_hash_bits, unsigned max_inodes)
{
    const struct rig_config config = {
        .test_name = TEST_NAME,
        .seed = test_seed(TEST_NAME),
        .salt = cache_size_bytes + name_hash_bits,
        .cache_size_bytes = cache_size_bytes,
        .max_file_bytes = 1u << 18,
        .max_total_bytes = 1u << 19,
        .max_inodes = max_inodes,
        .log_segment_size = 64u << 10,
        .name_hash_bits = name_hash_bits,
        .rows = true,
    };
    struct txn_rig *tr = calloc(1, sizeof *tr);
    assert_non_null(tr);
    rig_init(&tr->rig, &config);
    tr->rig.model->journal = journal_new();
    const char *text = getenv("OPS");
    const uint64_t usual = test_is_long() ? 10 * OPERATIONS_DEFAULT : OPERATIONS_DEFAULT;
    const uint64_t count = text != NULL ? strtoull(text, NULL, 10) : usual;
    for (uint64_t i = 0; i < count; i++) {
        step(tr);
    }
    finish(tr);
    free(tr);
}

static void transactions_with_small_cache_behave_as_model(void **state)
{
    (void)state;
    run(RIG_CACHE_SMALL, 47, 150);
}

static void transactions_with_colliding_names_behave_as_model(void **state)
{
    (void)state;
    run(64u << 20, 4, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transactions_with_small_cache_behave_as_model),
        cmocka_unit_test(transactions_with_colliding_names_behave_as_model),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
