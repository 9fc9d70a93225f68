/*
 * txn/recovery_txn.c - a committed transaction is replayed where its commit stands.
 *
 * The first pass tells what it touched and where its records are; the second one reads them again from there, so that a large one takes
 * no memory.
 *
 * Locking: recovery is alone.
 */
#define HASH_NONFATAL_OOM 1
#include "txn/recovery_txn.h"

#include "base/plant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGES_ARE_MISSING 1

struct recovery_txn {
    UT_hash_handle hh;
    txn_no number;
    lsn_no first;   /* position of its first record */
    bool has_pages; /* some of its records refer to pages */
    struct txn_set set;
};

static struct recovery_txn *find(const struct recovery_txns *txns, txn_no number)
{
    struct recovery_txn *txn = NULL;
    HASH_FIND(hh, txns->by_number, &number, sizeof number, txn);
    return txn;
}

static struct recovery_txn *find_or_make(struct recovery_txns *txns, txn_no number, lsn_no position)
{
    struct recovery_txn *txn = find(txns, number);
    if (txn != NULL) {
        return txn;
    }
    txn = calloc(1, sizeof *txn);
    if (txn == NULL) {
        return NULL;
    }
    txn->number = number;
    txn->first = position;
    HASH_ADD(hh, txns->by_number, number, sizeof txn->number, txn);
    if (txn->hh.tbl == NULL) {
        free(txn);
        return NULL;
    }
    return txn;
}

static void forget(struct recovery_txns *txns, struct recovery_txn *txn)
{
    if (txn != NULL) {
        HASH_DELETE(hh, txns->by_number, txn);
        txn_set_free(&txn->set);
        free(txn);
    }
}

void recovery_txns_free(struct recovery_txns *txns)
{
    struct recovery_txn *txn;
    struct recovery_txn *next;
    HASH_ITER(hh, txns->by_number, txn, next)
    {
        forget(txns, txn);
    }
}

lsn_no recovery_txns_first(const struct recovery_txns *txns)
{
    lsn_no first = UINT64_MAX;
    for (const struct recovery_txn *txn = txns->by_number; txn != NULL; txn = txn->hh.next) {
        first = txn->first < first ? txn->first : first;
    }
    return first;
}

/* Reads the log again from its first record to its commit, at `position`. */
static int read_records(const struct recovery_txns *txns, const struct recovery_txn *txn, lsn_no position,
                        log_record_fn *fn, void *arg)
{
    struct log_reader_options options = *txns->reader;
    lsn_no end = 0;
    bool torn = false;
    options.from = txn->first;
    options.until = position + 1;
    options.out_vouched = NULL;
    return log_read(&options, fn, arg, &end, &torn);
}

struct note_pages {
    struct store *store;
    txn_no number;
};

static int note_pages_of(void *arg, lsn_no position, const struct op_record *op)
{
    const struct note_pages *np = arg;
    (void)position;
    if (op->txn != np->number || op->type != OP_WRITE_PAGES) {
        return 0;
    }
    const int rc = store_recovery_note_pages(np->store, op);
    return rc == -EBADMSG ? PAGES_ARE_MISSING : rc;
}

/* PAGES-6: -EBADMSG makes the commit record the bad one. */
static int note_pages(const struct recovery_txns *txns, const struct recovery_txn *txn, lsn_no position)
{
    struct note_pages np = {.store = txns->store, .number = txn->number};
    const int rc = read_records(txns, txn, position, note_pages_of, &np);
    return rc == PAGES_ARE_MISSING ? -EBADMSG : rc;
}

int recovery_txn_note(struct recovery_txns *txns, lsn_no position, const struct op_record *op, bool is_new)
{
    if (op->type == OP_COMMIT && !is_new) {
        forget(txns, find(txns, op->txn));
        return 0;
    }
    struct recovery_txn *txn = find_or_make(txns, op->txn, position);
    if (txn == NULL) {
        return -ENOMEM;
    }
    txn->has_pages |= op->type == OP_WRITE_PAGES;
    const int rc = txn_set_add(&txn->set, op, false);
    return rc == 0 && op->type == OP_COMMIT && txn->has_pages ? note_pages(txns, txn, position) : rc;
}

struct replay {
    struct publish *publish;
    struct txn_set *touched;
    txn_no number;
    bool skipped;
    bool done;
};

static int replay_record(void *arg, lsn_no position, const struct op_record *op)
{
    struct replay *replay = arg;
    (void)position;
    if (op->txn != replay->number || replay->done) {
        return 0;
    }
    replay->done = op->type == OP_COMMIT;
    int rc = publish_record(replay->publish, op);
    replay->skipped |= rc == 1;
    if (rc >= 0 && replay->touched != NULL) {
        const int set_rc = txn_set_add(replay->touched, op, false);
        rc = set_rc != 0 ? set_rc : rc;
    }
    if (rc < 0) {
        char text[512];
        struct store *store = replay->publish->store;
        (void)op_record_print(op, text, sizeof text);
        diag_log(store->diag, DIAG_ERROR, "%s: transaction %" PRIu64 ": %s could not be replayed: %s", store->dir,
                 replay->number, text, strerror(-rc));
        return rc == -EBADMSG ? -EIO : rc;
    }
    return 0;
}

static int copy_orphans(struct publish *publish, const struct op_record *op)
{
    publish->orphan_count = op->pages.size / sizeof(le64);
    if (op->pages.size % sizeof(le64) != 0) {
        return -EBADMSG;
    }
    publish->orphans = malloc(op->pages.size + 1);
    if (publish->orphans == NULL) {
        publish->orphan_count = 0;
        return -ENOMEM;
    }
    if (op->pages.size > 0) {
        memcpy(publish->orphans, op->pages.data, op->pages.size);
    }
    return 0;
}

/* Tables that were rewritten have other numbers: so their names lead elsewhere. */
static int touch_renumbered(struct txn_set *touched, const struct store_changes *changes)
{
    int rc = 0;
    for (size_t i = 0; i < changes->count && rc == 0; i++) {
        const struct store_change *change = &changes->changes[i];
        const struct op_bytes name = {.data = change->name, .size = change->name_size};
        rc = change->kind == STORE_CHANGE_NAME ? txn_set_touch_name(touched, change->parent, name, INO_NONE) : 0;
    }
    return rc;
}

static void swap(struct publish *publish)
{
    struct store *store = publish->store;
    struct view *live = store_live(store);
    cow_gate_close(store->cow);
    rwlock_lock_exclusive(&live->catalog_lock);
    publish_swap_locked(publish);
    atomic_fetch_add(&store->changes, 1);
    rwlock_unlock_exclusive(&live->catalog_lock);
    cow_gate_open(store->cow);
}

int recovery_txn_commit(struct recovery_txns *txns, lsn_no position, const struct op_record *op)
{
    struct store *store = txns->store;
    struct recovery_txn *txn = find(txns, op->txn);
    if (txn == NULL) {
        return -EBADMSG;
    }
    struct store_changes renumbered = {0};
    struct publish publish = {.store = store,
                              .set = &txn->set,
                              .time_ns = op->time_ns,
                              .first_ino = op->ino,
                              .changes = txns->touched != NULL ? &renumbered : NULL};
    struct replay replay = {.publish = &publish, .touched = txns->touched, .number = op->txn};
    int rc = copy_orphans(&publish, op);
    if (rc == 0) {
        rc = publish_begin(&publish);
    }
    if (rc == 0) {
        rc = read_records(txns, txn, position, replay_record, &replay);
    }
    if (rc == 0) {
        rc = publish_renumber_all(&publish);
    }
    if (rc == 0 && txns->touched != NULL) {
        rc = touch_renumbered(txns->touched, &renumbered);
    }
    if (rc == 0) {
        swap(&publish);
    }
    publish_end(&publish);
    store_changes_free(&renumbered);
    forget(txns, txn);
    return rc == 0 && replay.skipped ? 1 : rc;
}
