/*
 * txn/store_txn.c - transactions: begun, listed, aborted; what operations on their views leave in them (txn/store_txn.h).
 *
 *   open --store_txn_commit (txn/store_commit.c)--> committed --last reference--> gone
 *     \---store_txn_abort, last reference---------> aborted ----last reference--> gone
 *
 * Locking: the state changes with the gate held exclusively. store->txns_lock guards the list and the removed names. The set and the
 * removals of one transaction are guarded by the catalog lock of its view.
 */
#include "txn/store_txn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REMOVALS_MAX_BYTES (UINT64_C(16) << 20) /* then they get a record of their own */
#define RECORD_ROOM_BYTES  256u

/* ---- begin ---- */

static struct store_txn *txn_make(struct store *store, const struct store_txn_options *options)
{
    struct store_txn *txn = calloc(1, sizeof *txn);
    char *name = calloc(1, options->name.size + 1);
    if (txn == NULL || name == NULL) {
        free(txn);
        free(name);
        return NULL;
    }
    memcpy(name, options->name.bytes, options->name.size);
    txn->owner.txn = txn;
    txn->store = store;
    txn->name = name;
    txn->uid = options->uid;
    txn->pid = options->pid;
    txn->scratch = options->scratch;
    atomic_init(&txn->refs, 1);
    return txn;
}

static void txn_free(struct store_txn *txn)
{
    struct cow *cow = txn->store->cow;
    if (txn->view != NULL) {
        view_close(txn->view);
    }
    if (txn->base_view != NULL) {
        view_close(txn->base_view);
    }
    if (txn->base != NULL) {
        cow_holder_close(cow, txn->base);
    }
    if (txn->after != NULL) {
        cow_holder_close(cow, txn->after);
    }
    txn_set_free(&txn->set);
    free(txn->removals);
    free(txn->name);
    free(txn);
}

static void list_add(struct store *store, struct store_txn *txn)
{
    mutex_lock(&store->txns_lock);
    struct store_txn **link = &store->txns;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = txn;
    mutex_unlock(&store->txns_lock);
}

/* The fork is one log position; from it on names that leave the live tree are remembered. */
static int fork_base(struct store_txn *txn)
{
    struct store *store = txn->store;
    cow_gate_close(store->cow);
    const int rc = cow_fork_locked(store->cow, HOLDER_TRANSACTION, &txn->base);
    if (rc == 0) {
        atomic_fetch_add(&store->txn_count, 1);
    }
    cow_gate_open(store->cow);
    return rc;
}

int store_txn_begin(struct store *store, const struct store_txn_options *options, struct store_txn **out_txn)
{
    int rc = store_check_takes_changes(store);
    if (rc == 0) {
        rc = store_ceilings_ensure(store, 0);
    }
    struct store_txn *txn = rc == 0 ? txn_make(store, options) : NULL;
    if (txn == NULL) {
        return rc != 0 ? rc : -ENOMEM;
    }
    txn->number = atomic_fetch_add(&store->next_txn, 1);
    txn->began_ns = store_now_ns(store);
    atomic_init(&txn->changed_ns, txn->began_ns);
    rc = fork_base(txn);
    if (rc != 0) {
        txn_free(txn);
        return rc;
    }
    rc = view_open_transaction(store->cow, txn->base, &txn->view);
    if (rc == 0) {
        txn->view->owner = &txn->owner;
        rc = view_open_read_only(store->cow, txn->base, &txn->base_view);
    }
    if (rc != 0) {
        store_txn_put(txn);
        return rc;
    }
    list_add(store, txn);
    *out_txn = txn;
    return 0;
}

/* ---- end ---- */

void txn_end_locked(struct store_txn *txn, enum store_txn_state state)
{
    struct store *store = txn->store;
    atomic_store(&txn->state, state);
    mutex_lock(&store->txns_lock);
    struct store_txn **link = &store->txns;
    while (*link != NULL && *link != txn) {
        link = &(*link)->next;
    }
    if (*link == txn) {
        *link = txn->next;
    }
    if (atomic_fetch_sub(&store->txn_count, 1) == 1) {
        removed_names_clear(&store->removed);
    }
    mutex_unlock(&store->txns_lock);
}

void store_txn_abort(struct store_txn *txn)
{
    struct store *store = txn->store;
    cow_gate_close(store->cow);
    if (atomic_load(&txn->state) == STORE_TXN_OPEN) {
        txn_end_locked(txn, STORE_TXN_ABORTED);
    }
    cow_gate_open(store->cow);
}

void store_txn_ref(struct store_txn *txn)
{
    atomic_fetch_add(&txn->refs, 1);
}

void store_txn_put(struct store_txn *txn)
{
    struct store *store = txn->store;
    if (atomic_fetch_sub(&txn->refs, 1) != 1) {
        return;
    }
    assert(atomic_load(&txn->open_files) == 0);
    store_txn_abort(txn);
    const bool committed = atomic_load(&txn->state) == STORE_TXN_COMMITTED;
    const uint64_t number = txn->number;
    txn_free(txn);
    store_sweep_dead_of(store, committed ? SWEEP_COMMIT : SWEEP_ABORT, number);
}

/* ---- what its operations leave ---- */

int txn_check_open(const struct store_txn *txn)
{
    switch ((enum store_txn_state)atomic_load(&txn->state)) {
    case STORE_TXN_OPEN:
        return 0;
    case STORE_TXN_COMMITTED:
        return -ENOENT; /* nothing was lost */
    case STORE_TXN_ABORTED:
    default:
        return -ECANCELED;
    }
}

int txn_flush_removals_before(struct store_txn *txn, enum op_type type)
{
    const size_t size = atomic_load(&txn->removals_size);
    const bool follows = op_is_removal(type) ? size >= REMOVALS_MAX_BYTES : size > 0;
    return follows ? txn_flush_removals(txn) : 0;
}

/* With room for a record of `room` bytes of removals. -E2BIG: there are more by now. */
static int flush_into(struct store_txn *txn, struct log_slot **inout_slot, size_t room, lsn_no *out_position)
{
    struct store *store = txn->store;
    cow_gate_enter(store->cow);
    rwlock_lock_exclusive(&txn->view->catalog_lock);
    const size_t size = atomic_load(&txn->removals_size);
    int rc = txn_check_open(txn);
    if (rc == 0 && size > room) {
        rc = -E2BIG;
    }
    if (rc == 0 && size > 0) {
        const struct op_record op = {.type = OP_REMOVE_MANY,
                                     .txn = txn->number,
                                     .time_ns = store_now_ns(store),
                                     .data = {.data = txn->removals, .size = size}};
        *out_position = log_append(store->log, &op, *inout_slot);
        *inout_slot = NULL;
        txn_note_logged(txn, *out_position);
        atomic_store(&txn->removals_size, 0);
    }
    rwlock_unlock_exclusive(&txn->view->catalog_lock);
    cow_gate_leave(store->cow);
    return rc;
}

int txn_flush_removals(struct store_txn *txn)
{
    struct store *store = txn->store;
    lsn_no position = 0;
    int rc;
    do {
        const size_t room = atomic_load(&txn->removals_size) + RECORD_ROOM_BYTES;
        struct log_slot *slot = NULL;
        rc = log_reserve(store->log, room + RECORD_ROOM_BYTES, &slot);
        if (rc == 0) {
            rc = flush_into(txn, &slot, room, &position);
            log_unreserve(store->log, slot);
        }
    } while (rc == -E2BIG);
    if (rc == 0 && position != 0) {
        rc = log_write(store->log, position);
    }
    return rc;
}

int txn_note_operation(struct store_txn *txn, const struct op_record *op)
{
    const bool removal = op_is_removal(op->type);
    size_t size = atomic_load(&txn->removals_size);
    if (txn->scratch) {
        atomic_store(&txn->changed_ns, op->time_ns);
        return 0;
    }
    if (!removal && size > 0) {
        return TXN_REMOVALS_FIRST;
    }
    const size_t list_size = txn->set.list_size;
    int rc = txn_set_add(&txn->set, op, true);
    if (rc == 0 && removal) {
        rc = op_records_append(&txn->removals, &size, &txn->removals_capacity, op);
    }
    if (rc != 0) {
        txn->set.list_size = list_size;
        txn->failed = true;
        return rc;
    }
    if (removal) {
        atomic_store(&txn->removals_size, size);
    }
    atomic_store(&txn->changed_ns, op->time_ns);
    return 0;
}

void txn_note_logged(struct store_txn *txn, lsn_no position)
{
    if (txn != NULL && atomic_load(&txn->first_lsn) == 0) {
        atomic_store(&txn->first_lsn, position);
    }
}

lsn_no store_txns_scan_lsn(struct store *store, lsn_no position)
{
    mutex_lock(&store->txns_lock);
    for (const struct store_txn *txn = store->txns; txn != NULL; txn = txn->next) {
        const lsn_no first = atomic_load(&txn->first_lsn);
        if (first != 0 && first < position) {
            position = first;
        }
    }
    mutex_unlock(&store->txns_lock);
    return position;
}

void removed_names_note(struct store *store, const struct op_run *run)
{
    const struct op_record *op = &run->op;
    const epoch_no epoch = cow_epoch(store->cow);
    if (op->type == OP_RENAME && run->moves_directory) {
        atomic_store(&store->dir_move_epoch, epoch);
    }
    if (atomic_load(&store->txn_count) == 0 || !(op_is_removal(op->type) || op->type == OP_RENAME)) {
        return;
    }
    mutex_lock(&store->txns_lock);
    removed_names_add(&store->removed, op->parent, op->name, epoch);
    if (op->type == OP_RENAME && op->ino2 != INO_NONE) {
        removed_names_add(&store->removed, op->parent2, op->name2, epoch);
    }
    mutex_unlock(&store->txns_lock);
}

/* ---- looking ---- */

struct view *store_txn_view(struct store_txn *txn)
{
    return txn->view;
}

struct view *store_txn_base(struct store_txn *txn)
{
    return txn->base_view;
}

uint64_t store_txn_number(const struct store_txn *txn)
{
    return txn->number;
}

enum store_txn_state store_txn_state(const struct store_txn *txn)
{
    return (enum store_txn_state)atomic_load(&txn->state);
}

static void fill_info(struct store_txn *txn, struct store_txn_info *out_info)
{
    const lsn_no first = atomic_load(&txn->first_lsn);
    *out_info = (struct store_txn_info){
        .number = txn->number,
        .name = txn->name,
        .uid = txn->uid,
        .pid = txn->pid,
        .state = (enum store_txn_state)atomic_load(&txn->state),
        .began_ns = txn->began_ns,
        .changed_ns = atomic_load(&txn->changed_ns),
        .at = txn->view != NULL ? txn->view->at : 0,
        .log_bytes = first != 0 && txn->store->log != NULL ? log_end(txn->store->log) - first : 0,
    };
}

void store_txn_get_info(struct store_txn *txn, struct store_txn_info *out_info)
{
    fill_info(txn, out_info);
    out_info->private_bytes = view_private_bytes(txn->view);
    rwlock_lock_shared(&txn->view->catalog_lock);
    out_info->operations = txn->set.operations;
    rwlock_unlock_shared(&txn->view->catalog_lock);
}

static const char *holder_kind_name(enum holder_kind kind)
{
    switch (kind) {
    case HOLDER_TRANSACTION:
        return "transaction";
    case HOLDER_SNAPSHOT:
        return "snapshot";
    case HOLDER_CHECKPOINT:
    case HOLDER_DURABLE:
        return "checkpoint";
    case HOLDER_BACKUP:
        return "backup";
    case HOLDER_OLD_VERSION:
        return STORE_HOLDER_OPEN_FILE;
    case HOLDER_COMPACTION:
        return "compaction";
    case HOLDER_STANDBY:
        return "standby";
    case HOLDER_MAP:
    default:
        return "map";
    }
}

struct holders_arg {
    store_holder_fn *fn;
    void *arg;
    int rc;
};

static void holder_info(void *arg, struct holder *holder)
{
    struct holders_arg *ha = arg;
    const struct store_holder_info info = {.kind = holder_kind_name(cow_holder_kind(holder)),
                                           .at = cow_holder_at(holder)};
    if (ha->rc == 0) {
        ha->rc = ha->fn(ha->arg, &info);
    }
}

static void pin_info(void *arg, epoch_no at)
{
    struct holders_arg *ha = arg;
    const struct store_holder_info info = {.kind = STORE_HOLDER_OPEN_FILE, .at = at};
    if (ha->rc == 0) {
        ha->rc = ha->fn(ha->arg, &info);
    }
}

int store_each_holder(struct store *store, store_holder_fn *fn, void *arg)
{
    struct holders_arg ha = {.fn = fn, .arg = arg};
    cow_each_holder(store->cow, holder_info, &ha);
    cow_each_pin(store->cow, pin_info, &ha);
    return ha.rc;
}
