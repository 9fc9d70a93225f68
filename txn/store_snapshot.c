/*
 * txn/store_snapshot.c - named snapshots: taken, listed, renamed, dropped, found again after a restart.
 *
 *   taken (a holder, an item of the catalog) --drop--> dropped (no item) --a checkpoint without it is durable, nobody has it open-->
 *   closed: what only it saw is free
 *
 * SNAP-1 The item of a snapshot names the catalog root of its fork; it stands in the live tree from just behind the fork on, never in
 *        the snapshot itself.
 * SNAP-2 Its holder is closed only when a checkpoint that forked behind the drop is durable: until then a restart finds the item.
 * SNAP-3 A holder that was found at a start (adopted) has no list of what left the live tree in earlier lives. When it closes, the maps
 *        of the tables that it saw differently, and of the catalog, are in doubt and built anew in the background (FSM-3), and files that
 *        only it named are removed (txn/store_seen.c). With background threads, the one that builds maps closes it.
 *
 * Locking: snapshots_lock guards the list and what is in it; it is changed with the live catalog lock held too, so that the list and the
 * catalog agree for whoever holds that.
 */
#include "txn/store_seen.h"
#include "txn/store_sidecar.h"

#include "base/plant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct store_snapshot {
    struct store *store;
    struct store_snapshot *next;
    uint64_t number;
    char name[STORE_NAME_MAX];
    size_t name_size;
    int64_t created_ns;
    struct holder *holder;
    struct view *view;   /* NULL: nobody has opened it yet */
    uint32_t refs;       /* who has it open */
    bool adopted;        /* SNAP-3 */
    epoch_no adopted_at; /* what its item says, until it is a holder */
    struct catalog_root adopted_root;
    bool dropped;
    bool closable;            /* SNAP-2 */
    uint64_t dropped_changes; /* operations applied when it was dropped */
};

#define SNAPSHOT_VALUE_MAX (sizeof(struct disk_snapshot) + STORE_NAME_MAX)

static struct catalog_key snapshot_key(uint64_t number)
{
    return (struct catalog_key){.ino = INO_NONE, .type = ITEM_SNAPSHOT, .sub = number};
}

/* ---- the list ---- */

static struct store_snapshot *find_locked(struct store *store, struct store_name name)
{
    struct store_snapshot *snapshot = store->snapshots;
    while (snapshot != NULL && (snapshot->dropped || snapshot->name_size != name.size ||
                                memcmp(snapshot->name, name.bytes, name.size) != 0)) {
        snapshot = snapshot->next;
    }
    return snapshot;
}

static bool is_name_taken(struct store *store, struct store_name name)
{
    mutex_lock(&store->snapshots_lock);
    const bool taken = find_locked(store, name) != NULL;
    mutex_unlock(&store->snapshots_lock);
    return taken;
}

static struct store_snapshot *find_number_locked(struct store *store, uint64_t number)
{
    struct store_snapshot *snapshot = store->snapshots;
    while (snapshot != NULL && snapshot->number != number) {
        snapshot = snapshot->next;
    }
    return snapshot;
}

/* The number of the snapshot of that name; 0: there is none. */
static uint64_t number_of(struct store *store, struct store_name name)
{
    mutex_lock(&store->snapshots_lock);
    const struct store_snapshot *snapshot = find_locked(store, name);
    const uint64_t number = snapshot != NULL ? snapshot->number : 0;
    mutex_unlock(&store->snapshots_lock);
    return number;
}

/* Behind all with smaller numbers. */
static void list_add(struct store *store, struct store_snapshot *snapshot)
{
    mutex_lock(&store->snapshots_lock);
    struct store_snapshot **link = &store->snapshots;
    while (*link != NULL && (*link)->number < snapshot->number) {
        link = &(*link)->next;
    }
    snapshot->next = *link;
    *link = snapshot;
    mutex_unlock(&store->snapshots_lock);
}

static struct store_snapshot *snapshot_make(struct store *store, uint64_t number, struct store_name name)
{
    struct store_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot != NULL) {
        snapshot->store = store;
        snapshot->number = number;
        memcpy(snapshot->name, name.bytes, name.size);
        snapshot->name_size = name.size;
    }
    return snapshot;
}

static int check_name(struct store_name name)
{
    if (name.size == 0) {
        return -ENOENT;
    }
    return name.size > STORE_NAME_MAX ? -ENAMETOOLONG : 0;
}

/* ---- the operations ---- */

/* One operation on snapshots. plan fills the batch; applied follows under the same locks. */
struct snapshot_op {
    struct store *store;
    enum op_type type;
    const struct op_record *replay;
    bool forks; /* needs the gate exclusively */
    struct store_name name;
    uint64_t number;
    struct store_snapshot *made; /* create */
    bool is_applied;
    int (*plan)(struct snapshot_op *so, struct op_run *run);
    void (*applied)(struct snapshot_op *so);
};

static int snapshot_op_try(struct snapshot_op *so, struct op_retry *retry)
{
    struct op_run run;
    int rc = op_begin(&run, so->store, store_live(so->store), so->type, so->replay, retry->edits, 0, 0, false);
    if (rc != 0) {
        op_note_retry(&run, rc, retry);
        return rc;
    }
    if (so->forks) {
        op_close_gate(&run);
    } else {
        rc = op_enter_gate(&run);
    }
    if (rc == 0) {
        op_lock_catalog(&run);
        rc = so->plan(so, &run);
    }
    if (rc == 0) {
        rc = op_finish(&run);
    }
    if (rc == 0) {
        so->applied(so);
        so->is_applied = true;
    }
    op_note_retry(&run, rc, retry);
    return op_end(&run, rc);
}

static int snapshot_op_run(struct snapshot_op *so)
{
    struct op_retry retry = {.edits = STORE_BATCH_EDITS};
    int rc;
    do {
        rc = snapshot_op_try(so, &retry);
    } while (op_wants_retry(so->store, &rc, &retry));
    return rc;
}

static int put_item(struct op_run *run, const struct store_snapshot *snapshot, struct store_name name)
{
    uint8_t value[SNAPSHOT_VALUE_MAX];
    struct disk_snapshot disk = {
        .at = le64_of(cow_holder_at(snapshot->holder)),
        .catalog = disk_page_ptr_of(cow_holder_root(snapshot->holder).ptr),
        .created_ns = le64_of((uint64_t)snapshot->created_ns),
        .catalog_height = cow_holder_root(snapshot->holder).height,
    };
    memcpy(value, &disk, sizeof disk);
    memcpy(value + sizeof disk, name.bytes, name.size);
    const struct catalog_key key = snapshot_key(snapshot->number);
    return catalog_batch_put(&run->batch, &key, value, sizeof disk + name.size);
}

static void set_record(struct op_run *run, const struct snapshot_op *so)
{
    run->op.ino = so->number;
    run->op.name = (struct op_bytes){.data = so->name.bytes, .size = so->name.size};
}

/* Forks, and puts the item behind the fork (SNAP-1). */
static int plan_create(struct snapshot_op *so, struct op_run *run)
{
    struct store_snapshot *made = so->made;
    set_record(run, so);
    if (is_name_taken(so->store, so->name)) {
        return -EEXIST;
    }
    const int rc = cow_fork_locked(so->store->cow, HOLDER_SNAPSHOT, &made->holder);
    if (rc != 0) {
        return rc;
    }
    made->created_ns = run->op.time_ns;
    return put_item(run, made, so->name);
}

static void created(struct snapshot_op *so)
{
    list_add(so->store, so->made);
}

static int create(struct store *store, struct store_name name, uint64_t number, const struct op_record *replay)
{
    struct store_snapshot *made = snapshot_make(store, number, name);
    if (made == NULL) {
        return -ENOMEM;
    }
    struct snapshot_op so = {.store = store,
                             .type = OP_SNAPSHOT,
                             .replay = replay,
                             .forks = true,
                             .name = name,
                             .number = number,
                             .made = made,
                             .plan = plan_create,
                             .applied = created};
    struct op_retry retry = {.edits = STORE_BATCH_EDITS};
    int rc;
    do {
        rc = snapshot_op_try(&so, &retry);
        if (!so.is_applied && made->holder != NULL) {
            cow_holder_close(store->cow, made->holder); /* the fork led nowhere */
            made->holder = NULL;
        }
    } while (op_wants_retry(store, &rc, &retry));
    if (!so.is_applied) {
        free(made);
    }
    return rc;
}

int store_snapshot_create(struct store *store, struct store_name name)
{
    const int rc = check_name(name);
    return rc != 0 ? rc : create(store, name, atomic_fetch_add(&store->next_txn, 1), NULL);
}

static int require_item(struct snapshot_op *so, struct op_run *run)
{
    uint8_t value[SNAPSHOT_VALUE_MAX];
    size_t size = 0;
    const struct catalog_key key = snapshot_key(so->number);
    return catalog_batch_get(&run->batch, &key, value, sizeof value, &size);
}

static int plan_drop(struct snapshot_op *so, struct op_run *run)
{
    const struct catalog_key key = snapshot_key(so->number);
    set_record(run, so);
    const int rc = require_item(so, run);
    return rc != 0 ? rc : catalog_batch_remove(&run->batch, &key);
}

static void dropped(struct snapshot_op *so)
{
    mutex_lock(&so->store->snapshots_lock);
    struct store_snapshot *snapshot = find_number_locked(so->store, so->number);
    snapshot->dropped = true;
    snapshot->dropped_changes = atomic_load(&so->store->changes);
    mutex_unlock(&so->store->snapshots_lock);
}

static int drop(struct store *store, uint64_t number, const struct op_record *replay)
{
    struct snapshot_op so = {.store = store,
                             .type = OP_SNAPSHOT_DROP,
                             .replay = replay,
                             .number = number,
                             .plan = plan_drop,
                             .applied = dropped};
    return number == 0 ? -ENOENT : snapshot_op_run(&so);
}

int store_snapshot_drop(struct store *store, struct store_name name)
{
    const int rc = drop(store, number_of(store, name), NULL);
    if (PLANT(SNAPSHOT_FREED_EARLY)) {
        store_snapshots_release(store, UINT64_MAX);
        store_snapshots_close(store);
    }
    return rc;
}

static int plan_rename(struct snapshot_op *so, struct op_run *run)
{
    set_record(run, so);
    int rc = require_item(so, run);
    if (rc == 0 && is_name_taken(so->store, so->name)) {
        rc = -EEXIST;
    }
    if (rc != 0) {
        return rc;
    }
    mutex_lock(&so->store->snapshots_lock);
    const struct store_snapshot *snapshot = find_number_locked(so->store, so->number);
    mutex_unlock(&so->store->snapshots_lock);
    return put_item(run, snapshot,
                    so->name); /* it stays: only a drop takes it off, under the catalog lock that is held */
}

static void renamed(struct snapshot_op *so)
{
    mutex_lock(&so->store->snapshots_lock);
    struct store_snapshot *snapshot = find_number_locked(so->store, so->number);
    memcpy(snapshot->name, so->name.bytes, so->name.size);
    snapshot->name_size = so->name.size;
    mutex_unlock(&so->store->snapshots_lock);
}

static int rename_to(struct store *store, uint64_t number, struct store_name name, const struct op_record *replay)
{
    struct snapshot_op so = {.store = store,
                             .type = OP_SNAPSHOT_RENAME,
                             .replay = replay,
                             .name = name,
                             .number = number,
                             .plan = plan_rename,
                             .applied = renamed};
    return number == 0 ? -ENOENT : snapshot_op_run(&so);
}

int store_snapshot_rename(struct store *store, struct store_name name, struct store_name new_name)
{
    const int rc = check_name(new_name);
    return rc != 0 ? rc : rename_to(store, number_of(store, name), new_name, NULL);
}

int store_snapshot_replay(struct store *store, const struct op_record *record)
{
    const struct store_name name = {.bytes = record->name.data, .size = record->name.size};
    if (record->type != OP_SNAPSHOT_DROP && check_name(name) != 0) {
        return -EBADMSG;
    }
    switch (record->type) {
    case OP_SNAPSHOT:
        return create(store, name, record->ino, record);
    case OP_SNAPSHOT_DROP:
        return drop(store, record->ino, record);
    case OP_SNAPSHOT_RENAME:
        return rename_to(store, record->ino, name, record);
    default:
        return -EBADMSG;
    }
}

/* ---- reading ---- */

int store_snapshot_get(struct store *store, struct store_name name, struct store_snapshot **out_snapshot)
{
    int rc = 0;
    mutex_lock(&store->snapshots_lock);
    struct store_snapshot *snapshot = find_locked(store, name);
    if (snapshot == NULL) {
        rc = -ENOENT;
    } else if (snapshot->view == NULL) {
        rc = view_open_read_only(store->cow, snapshot->holder, &snapshot->view);
    }
    if (rc == 0) {
        snapshot->refs++;
        *out_snapshot = snapshot;
    }
    mutex_unlock(&store->snapshots_lock);
    return rc;
}

void store_snapshot_put(struct store_snapshot *snapshot)
{
    struct store *store = snapshot->store;
    mutex_lock(&store->snapshots_lock);
    snapshot->refs--;
    mutex_unlock(&store->snapshots_lock);
}

int store_snapshots_keep(struct store *store, struct store_snapshot ***out_list, size_t *out_count)
{
    size_t count = 0;
    mutex_lock(&store->snapshots_lock);
    for (const struct store_snapshot *snapshot = store->snapshots; snapshot != NULL; snapshot = snapshot->next) {
        count++;
    }
    struct store_snapshot **list = malloc((count + 1) * sizeof list[0]);
    count = 0;
    for (struct store_snapshot *snapshot = store->snapshots; snapshot != NULL && list != NULL;
         snapshot = snapshot->next) {
        snapshot->refs++;
        list[count++] = snapshot;
    }
    mutex_unlock(&store->snapshots_lock);
    if (list == NULL) {
        return -ENOMEM;
    }
    *out_list = list;
    *out_count = count;
    return 0;
}

struct view *store_snapshot_view(struct store_snapshot *snapshot)
{
    return snapshot->view;
}

uint64_t store_snapshot_number(const struct store_snapshot *snapshot)
{
    return snapshot->number;
}

int store_each_snapshot(struct store *store, store_snapshot_fn *fn, void *arg)
{
    int rc = 0;
    mutex_lock(&store->snapshots_lock);
    for (struct store_snapshot *snapshot = store->snapshots; snapshot != NULL && rc == 0; snapshot = snapshot->next) {
        if (!snapshot->dropped) {
            const struct store_snapshot_info info = {.number = snapshot->number,
                                                     .name = snapshot->name,
                                                     .name_size = snapshot->name_size,
                                                     .created_ns = snapshot->created_ns,
                                                     .at = cow_holder_at(snapshot->holder)};
            rc = fn(arg, &info);
        }
    }
    mutex_unlock(&store->snapshots_lock);
    return rc;
}

/* ---- closing (SNAP-2, SNAP-3) ---- */

void store_snapshots_release(struct store *store, uint64_t changes)
{
    mutex_lock(&store->snapshots_lock);
    for (struct store_snapshot *snapshot = store->snapshots; snapshot != NULL; snapshot = snapshot->next) {
        snapshot->closable |= snapshot->dropped && snapshot->dropped_changes <= changes;
    }
    mutex_unlock(&store->snapshots_lock);
}

/* SNAP-3 */
static void close_adopted(struct store *store, struct store_snapshot *snapshot)
{
    struct seen_tables seen = {0};
    struct store_job job;
    store_job_begin(store, &job, "snapshot", "tables", 0, "%.*s", (int)snapshot->name_size, snapshot->name);
    int rc = store_seen_compare(store, snapshot->holder, &seen);
    store_seen_doubt(store, &seen);
    store_job_set_total(&job, seen.count);
    cow_holder_close(store->cow, snapshot->holder);
    if (rc == 0) {
        rc = store_seen_release(store, &seen, &job);
    }
    if (rc != 0) {
        store_sidecars_doubt(store);
        diag_log(store->diag, DIAG_WARNING, "%s: space of a dropped snapshot is not free before the next start: %s",
                 store->dir, strerror(-rc));
    }
    store_job_end(&job);
    free(seen.tables);
}

static void close_snapshot(struct store *store, struct store_snapshot *snapshot)
{
    if (snapshot->view != NULL) {
        view_close(snapshot->view);
    }
    if (snapshot->adopted) {
        close_adopted(store, snapshot);
    } else {
        cow_holder_close(store->cow, snapshot->holder);
    }
    free(snapshot);
}

static bool is_closable(const struct store_snapshot *snapshot, bool adopted)
{
    return snapshot->closable && snapshot->refs == 0 && snapshot->adopted == adopted;
}

/* Takes one that may be closed off the list. */
static struct store_snapshot *take_closable(struct store *store, bool adopted)
{
    mutex_lock(&store->snapshots_lock);
    struct store_snapshot **link = &store->snapshots;
    while (*link != NULL && !is_closable(*link, adopted)) {
        link = &(*link)->next;
    }
    struct store_snapshot *snapshot = *link;
    if (snapshot != NULL) {
        *link = snapshot->next;
    }
    mutex_unlock(&store->snapshots_lock);
    return snapshot;
}

bool store_snapshots_settled(struct store *store)
{
    bool settled = true;
    mutex_lock(&store->snapshots_lock);
    for (const struct store_snapshot *snapshot = store->snapshots; snapshot != NULL; snapshot = snapshot->next) {
        settled = settled && !snapshot->dropped;
    }
    mutex_unlock(&store->snapshots_lock);
    return settled;
}

void store_snapshots_close_adopted(struct store *store)
{
    struct store_snapshot *snapshot;
    while ((snapshot = take_closable(store, true)) != NULL) {
        close_snapshot(store, snapshot);
    }
}

void store_snapshots_close(struct store *store)
{
    struct store_snapshot *snapshot;
    while ((snapshot = take_closable(store, false)) != NULL) {
        close_snapshot(store, snapshot);
    }
    if (store->background) {
        store_maps_wake(store);
    } else {
        store_snapshots_close_adopted(store);
    }
}

/* ---- at open and close of the store ---- */

static int adopt_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct store *store = arg;
    struct disk_snapshot disk;
    if (value_size <= sizeof disk || value_size > SNAPSHOT_VALUE_MAX) {
        return diag_damage(store->diag, "catalog", BLOCK_NONE, "snapshot", "item of %zu bytes", value_size);
    }
    memcpy(&disk, value, sizeof disk);
    const struct catalog_root root = {.ptr = disk_page_ptr_get(&disk.catalog), .height = disk.catalog_height};
    if (le64_get(disk.at) >= cow_epoch(store->cow)) {
        return diag_damage(store->diag, "catalog", BLOCK_NONE, "snapshot", "epoch %llu is not in the past",
                           (unsigned long long)le64_get(disk.at));
    }
    const struct store_name name = {.bytes = (const char *)value + sizeof disk, .size = value_size - sizeof disk};
    struct store_snapshot *snapshot = snapshot_make(store, key->sub, name);
    if (snapshot == NULL) {
        return -ENOMEM;
    }
    snapshot->created_ns = (int64_t)le64_get(disk.created_ns);
    snapshot->adopted = true;
    snapshot->next = store->snapshots; /* of the roots; they become holders when the scan is over */
    snapshot->holder = NULL;
    store->snapshots = snapshot;
    snapshot->adopted_at = le64_get(disk.at);
    snapshot->adopted_root = root;
    return 0;
}

int store_snapshots_adopt(struct store *store)
{
    const struct catalog_key first = {.ino = INO_NONE, .type = ITEM_SNAPSHOT, .sub = 0};
    const struct catalog_key last = {.ino = INO_NONE, .type = ITEM_SNAPSHOT, .sub = UINT64_MAX};
    struct view *live = store_live(store);
    struct frame_budget budget;
    int rc = store_read_enter(store, live, &budget);
    if (rc != 0) {
        return rc;
    }
    rc = catalog_scan(live, &first, &last, adopt_item, store);
    store_read_leave(live, &budget);
    struct store_snapshot *found = store->snapshots; /* latest first */
    store->snapshots = NULL;
    while (found != NULL) {
        struct store_snapshot *snapshot = found;
        found = found->next;
        if (rc == 0) {
            rc = cow_adopt_holder(store->cow, HOLDER_SNAPSHOT, snapshot->adopted_at, snapshot->adopted_root,
                                  &snapshot->holder);
        }
        if (rc == 0) {
            list_add(store, snapshot);
        } else {
            free(snapshot);
        }
    }
    return rc;
}

void store_snapshots_free(struct store *store)
{
    while (store->snapshots != NULL) {
        struct store_snapshot *snapshot = store->snapshots;
        store->snapshots = snapshot->next;
        if (snapshot->view != NULL) {
            view_close(snapshot->view);
        }
        free(snapshot); /* its holder goes with the cow */
    }
}
