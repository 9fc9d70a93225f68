/*
 * txn/store_tablespace.c - tablespaces: directories beside the data directory that hold relation files.
 *
 *   made (a directory with the identity file, locked; an item of the catalog) --drop--> dropped (no item) --its record is durable, no
 *   version names a relation of it--> clean: relation directories and identity are gone
 *
 * TABLESPACE-1 Identity first: the directory has it, durably, before the record is logged; it goes after the record of the drop is durable.
 *              So the directory of a tablespace that the catalog names has the identity of this store and that number, always.
 * TABLESPACE-2 A relation is made in a tablespace and logged under placement_lock, shared; a drop looks for files and is logged under it,
 *              exclusively. So no relation of a dropped tablespace is named by any version, nor by a record behind the drop.
 * TABLESPACE-3 Where a table lies is decided when it is made, and stands in its record; replay does the same. Numbers are never given
 *              again, so a dropped one leads nowhere: what would be made there is made in the data directory.
 * TABLESPACE-4 Whatever keeps a directory from being opened when the store is, replay goes on as long as no record needs it. In the end
 *              it is refused, or offline.
 * TABLESPACE-5 A replayed drop leaves the directory alone until a checkpoint behind it is durable.
 *
 * TABLESPACE-6 A copy (restore, standby) touches no directory of its original: its tablespaces lie in place, in its own data directory, beside
 *              what is in none. Their items say so before anything is replayed.
 * TABLESPACE-7 What is written to tables in tablespaces is logged by value, however large: no record refers to pages there.
 *
 * Locking: tablespaces_lock (LEAF) guards the list; who changes it holds placement_lock exclusively, or is alone. No I/O under the former.
 */
#include "txn/store_map.h"
#include "txn/store_open.h"

#include "base/plant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDENTITY_NAME       "tblfs-tablespace"
#define IDENTITY_BYTES      128u
#define DIRECTORY_BYTES_MAX 3500u
#define VALUE_MAX           (sizeof(struct disk_tablespace) + STORE_NAME_MAX + DIRECTORY_BYTES_MAX)
#define DIR_COUNT           256u
#define CHECKPOINTS_MAX     3u

struct store_tablespace {
    struct store_tablespace *next;
    ts_no ts;
    char name[STORE_NAME_MAX + 1];
    bool in_place; /* TABLESPACE-6: its files are in the data directory, among others; `dir` is that */
    char *dir;     /* absolute */
    int64_t created_ns;
    struct io_file *identity; /* open and locked; NULL: see `failed`, or somebody else has it (store.pinned) */
    int failed;               /* what kept it from being opened; 0: nothing */
    bool offline;
    bool claimed; /* somebody is about to drop it */
    bool dropped;
    uint64_t dropped_changes; /* operations applied when replay dropped it */
};

static struct catalog_key tablespace_key(ts_no ts)
{
    return (struct catalog_key){.ino = INO_NONE, .type = ITEM_TABLESPACE, .sub = ts};
}

/* ---- the list ---- */

static struct store_tablespace *find_locked(struct store *store, ts_no ts)
{
    struct store_tablespace *tablespace = store->tablespaces;
    while (tablespace != NULL && (tablespace->ts != ts || tablespace->dropped)) {
        tablespace = tablespace->next;
    }
    return tablespace;
}

static struct store_tablespace *find_name_locked(struct store *store, struct store_name name)
{
    struct store_tablespace *tablespace = store->tablespaces;
    while (tablespace != NULL && (tablespace->dropped || strlen(tablespace->name) != name.size ||
                                  memcmp(tablespace->name, name.bytes, name.size) != 0)) {
        tablespace = tablespace->next;
    }
    return tablespace;
}

static void list_add(struct store *store, struct store_tablespace *tablespace)
{
    mutex_lock(&store->tablespaces_lock);
    struct store_tablespace **link = &store->tablespaces;
    while (*link != NULL && (*link)->ts < tablespace->ts) {
        link = &(*link)->next;
    }
    tablespace->next = *link;
    *link = tablespace;
    mutex_unlock(&store->tablespaces_lock);
}

static void list_remove(struct store *store, struct store_tablespace *tablespace)
{
    mutex_lock(&store->tablespaces_lock);
    struct store_tablespace **link = &store->tablespaces;
    while (*link != tablespace) {
        link = &(*link)->next;
    }
    *link = tablespace->next;
    mutex_unlock(&store->tablespaces_lock);
}

static void close_identity(struct store_tablespace *tablespace)
{
    if (tablespace->identity != NULL) {
        const int rc = io_close(tablespace->identity);
        (void)rc; /* what was written to it was synced */
        tablespace->identity = NULL;
    }
}

static void tablespace_free(struct store_tablespace *tablespace)
{
    close_identity(tablespace);
    free(tablespace->dir);
    free(tablespace);
}

void store_tablespaces_free(struct store *store)
{
    while (store->tablespaces != NULL) {
        struct store_tablespace *tablespace = store->tablespaces;
        store->tablespaces = tablespace->next;
        tablespace_free(tablespace);
    }
}

static void note_number(struct store *store, ts_no ts)
{
    if (ts > atomic_load(&store->last_ts)) {
        atomic_store(&store->last_ts, ts);
    }
}

static struct store_tablespace *tablespace_make(ts_no ts, struct store_name name, struct op_bytes dir)
{
    struct store_tablespace *tablespace = calloc(1, sizeof *tablespace);
    char *copy = strndup(dir.data, dir.size);
    if (tablespace == NULL || copy == NULL) {
        free(tablespace);
        free(copy);
        return NULL;
    }
    tablespace->ts = ts;
    memcpy(tablespace->name, name.bytes, name.size);
    tablespace->dir = copy;
    return tablespace;
}

int store_each_tablespace(struct store *store, store_tablespace_fn *fn, void *arg)
{
    int rc = 0;
    mutex_lock(&store->tablespaces_lock);
    for (const struct store_tablespace *tablespace = store->tablespaces; tablespace != NULL && rc == 0;
         tablespace = tablespace->next) {
        if (!tablespace->dropped) {
            const struct store_tablespace_info info = {.number = tablespace->ts,
                                                       .name = tablespace->name,
                                                       .dir = tablespace->dir,
                                                       .created_ns = tablespace->created_ns,
                                                       .offline = tablespace->offline};
            rc = fn(arg, &info);
        }
    }
    mutex_unlock(&store->tablespaces_lock);
    return rc;
}

ts_no store_tablespace_for(struct store *store, ts_no ts)
{
    if (ts == TS_DEFAULT) {
        return ts;
    }
    mutex_lock(&store->tablespaces_lock);
    const bool is_there = find_locked(store, ts) != NULL;
    mutex_unlock(&store->tablespaces_lock);
    return is_there ? ts : TS_DEFAULT;
}

int store_tablespace_number(struct store *store, struct store_name name, ts_no *out_ts)
{
    mutex_lock(&store->tablespaces_lock);
    const struct store_tablespace *tablespace = find_name_locked(store, name);
    if (tablespace != NULL) {
        *out_ts = tablespace->ts;
    }
    mutex_unlock(&store->tablespaces_lock);
    return tablespace != NULL ? 0 : -ENOENT;
}

int store_tablespace_name(struct store *store, ts_no ts, char name[STORE_NAME_MAX + 1])
{
    mutex_lock(&store->tablespaces_lock);
    const struct store_tablespace *tablespace = find_locked(store, ts);
    if (tablespace != NULL) {
        memcpy(name, tablespace->name, sizeof tablespace->name);
    }
    mutex_unlock(&store->tablespaces_lock);
    return tablespace != NULL ? 0 : -ENOENT;
}

/* The n-th one that can be read, n counted by its number: the next one above `after`. The caller is alone, or holds placement_lock: it stays. */
static const struct store_tablespace *next_open(struct store *store, ts_no after)
{
    mutex_lock(&store->tablespaces_lock);
    const struct store_tablespace *tablespace = store->tablespaces;
    while (tablespace != NULL && (tablespace->ts <= after || tablespace->failed != 0 || tablespace->in_place)) {
        tablespace = tablespace->next;
    }
    mutex_unlock(&store->tablespaces_lock);
    return tablespace;
}

int store_each_place(struct store *store, store_place_fn *fn, void *arg)
{
    rwlock_lock_shared(&store->placement_lock);
    int rc = fn(arg, TS_DEFAULT, store->dir);
    const struct store_tablespace *tablespace = next_open(store, TS_DEFAULT);
    while (tablespace != NULL && rc == 0) {
        rc = fn(arg, tablespace->ts, tablespace->dir);
        tablespace = next_open(store, tablespace->ts);
    }
    rwlock_unlock_shared(&store->placement_lock);
    return rc;
}

/* ---- the directory ---- */

/* At a start it may not matter (TABLESPACE-4). */
static void say(struct store *store, const struct store_tablespace *tablespace, const char *what)
{
    diag_log(store->diag, store->log == NULL ? DIAG_WARNING : DIAG_ERROR, "tablespace %s: %s: %s", tablespace->name,
             tablespace->dir, what);
}

static int format_identity(const struct store *store, ts_no ts, char text[IDENTITY_BYTES])
{
    int length = snprintf(text, IDENTITY_BYTES, "tblfs tablespace 1\nstore ");
    for (unsigned i = 0; i < sizeof store->control.store_id; i++) {
        length += snprintf(text + length, IDENTITY_BYTES - (size_t)length, "%02x", store->control.store_id[i]);
    }
    return length + snprintf(text + length, IDENTITY_BYTES - (size_t)length, "\nnumber %" PRIu32 "\n", ts);
}

enum identity { IDENTITY_NONE, IDENTITY_SAME, IDENTITY_OURS, IDENTITY_FOREIGN };

/* Whose directory is it? Of this store: `ts`, or another one's number. None: an empty file, which a crash may leave. */
static int read_identity(struct store *store, struct io_file *file, ts_no ts, enum identity *out_identity)
{
    char text[IDENTITY_BYTES];
    char same[IDENTITY_BYTES];
    size_t size = 0;
    const int rc = io_read_full(file, text, sizeof text, 0, &size);
    const size_t same_size = (size_t)format_identity(store, ts, same);
    const size_t head = (size_t)(strstr(same, "\nnumber ") - same);
    if (size == 0) {
        *out_identity = IDENTITY_NONE;
    } else if (size == same_size && memcmp(text, same, size) == 0) {
        *out_identity = IDENTITY_SAME;
    } else {
        *out_identity = size > head && memcmp(text, same, head) == 0 ? IDENTITY_OURS : IDENTITY_FOREIGN;
    }
    return rc;
}

static int write_identity(struct store *store, const struct store_tablespace *tablespace, struct io_file *file)
{
    char text[IDENTITY_BYTES];
    const int size = format_identity(store, tablespace->ts, text);
    int rc = io_truncate(file, 0);
    if (rc == 0) {
        rc = io_write_full(file, text, (size_t)size, 0);
    }
    if (rc == 0) {
        rc = io_sync(file);
    }
    return rc == 0 ? io_sync_dir(store->dev, tablespace->dir) : rc;
}

static void identity_path(const struct store_tablespace *tablespace, char path[STORE_PATH_SIZE])
{
    (void)snprintf(path, STORE_PATH_SIZE, "%s/" IDENTITY_NAME, tablespace->dir);
}

static int lock_identity(struct store *store, struct store_tablespace *tablespace, unsigned flags)
{
    char path[STORE_PATH_SIZE];
    char text[64];
    pid_t holder = 0;
    identity_path(tablespace, path);
    int rc = io_open(store->dev, path, flags, &tablespace->identity);
    if (rc != 0) {
        tablespace->identity = NULL;
        if (rc != -ENOENT) {
            say(store, tablespace, strerror(-rc));
        }
        return rc;
    }
    rc = io_lock(tablespace->identity, &holder);
    if (rc == -EBUSY) {
        (void)snprintf(text, sizeof text, "in use by process %d", (int)holder);
        say(store, tablespace, text);
    }
    return rc;
}

/* Files that may be a relation's or its sidecar's: 16 hexadecimal digits, and a suffix perhaps. */
static bool is_relation_file(const char *name, enum io_file_kind kind)
{
    return kind == IO_KIND_FILE && strspn(name, "0123456789abcdef") == 16 &&
           (name[16] == '\0' || strcmp(name + 16, "_fsm") == 0);
}

static int count_file(void *arg, const char *name, enum io_file_kind kind)
{
    *(uint64_t *)arg += is_relation_file(name, kind) && name[16] == '\0';
    return 0;
}

/* Relation files in it. */
static int count_files(struct store *store, const char *dir, uint64_t *out_count)
{
    int rc = 0;
    *out_count = 0;
    for (unsigned i = 0; i < DIR_COUNT && rc == 0; i++) {
        char path[STORE_PATH_SIZE];
        (void)snprintf(path, sizeof path, "%s/rel/%02x", dir, i);
        rc = io_list_dir(store->dev, path, count_file, out_count);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

static int judge_entry(void *arg, const char *name, enum io_file_kind kind)
{
    bool *has_identity = arg;
    (void)kind;
    if (strcmp(name, IDENTITY_NAME) == 0) {
        *has_identity = true;
        return 0;
    }
    return strcmp(name, "rel") == 0 || strcmp(name, "lost+found") == 0 ? 0 : -ENOTEMPTY;
}

/* May a new tablespace be made in it? Nothing is in it, or what a dropped one left. */
static int check_free(struct store *store, const struct store_tablespace *tablespace)
{
    bool has_identity = false;
    uint64_t files = 0;
    int rc = io_list_dir(store->dev, tablespace->dir, judge_entry, &has_identity);
    if (rc == 0) {
        rc = count_files(store, tablespace->dir, &files);
    }
    if (rc == 0 && files > 0) {
        rc = -ENOTEMPTY;
    }
    if (rc != 0) {
        say(store, tablespace, rc == -ENOTEMPTY ? "is not empty" : strerror(-rc));
    }
    return rc;
}

/* TABLESPACE-1. The directory of a new one. */
static int prepare_directory(struct store *store, struct store_tablespace *tablespace)
{
    enum identity identity = IDENTITY_NONE;
    int rc = lock_identity(store, tablespace, IO_READ_WRITE);
    if (rc == -ENOENT) {
        rc = check_free(store, tablespace);
        if (rc == 0) {
            rc = lock_identity(store, tablespace, IO_READ_WRITE | IO_CREATE);
        }
    }
    if (rc == 0) {
        rc = read_identity(store, tablespace->identity, tablespace->ts, &identity);
    }
    if (rc == 0 && identity == IDENTITY_FOREIGN) {
        say(store, tablespace, "belongs to another store");
        rc = -EBUSY;
    }
    if (rc == 0 && identity != IDENTITY_SAME) {
        rc = check_free(store, tablespace);
    }
    if (rc == 0 && identity != IDENTITY_SAME && !PLANT(TABLESPACE_WITHOUT_IDENTITY)) {
        rc = write_identity(store, tablespace, tablespace->identity);
    }
    return rc;
}

/* The directory of one that the catalog names, or a record that is replayed (TABLESPACE-1). */
static int open_directory(struct store *store, struct store_tablespace *tablespace)
{
    enum identity identity = IDENTITY_NONE;
    if (store->pinned) {
        return 0;
    }
    if (store->copied) {
        say(store, tablespace,
            "belongs to the store that this is a copy of ('tblfs backup' and 'tblfs restore' copy tables in "
            "tablespaces too)");
        return -EXDEV;
    }
    int rc = lock_identity(store, tablespace, IO_READ_WRITE);
    if (rc == -ENOENT) {
        say(store, tablespace, "is missing, or is no tablespace");
    }
    if (rc == 0) {
        rc = read_identity(store, tablespace->identity, tablespace->ts, &identity);
    }
    if (rc == 0 && identity != IDENTITY_SAME) {
        say(store, tablespace,
            identity == IDENTITY_FOREIGN ? "belongs to another store" : "is not the directory of this tablespace");
        rc = -EBUSY;
    }
    return rc;
}

struct cleaning {
    struct store *store;
    const char *dir;
    int rc;
};

static int clean_file(void *arg, const char *name, enum io_file_kind kind)
{
    struct cleaning *cleaning = arg;
    char path[STORE_PATH_SIZE];
    if (is_relation_file(name, kind)) {
        (void)snprintf(path, sizeof path, "%s/%s", cleaning->dir, name);
        const int rc = io_unlink(cleaning->store->dev, path);
        cleaning->rc = cleaning->rc != 0 ? cleaning->rc : rc;
    }
    return 0;
}

static int remove_directory(struct store *store, const char *path)
{
    const int rc = io_remove_dir(store->dev, path);
    return rc == -ENOENT ? 0 : rc;
}

static int clean_relations(struct store *store, const struct store_tablespace *tablespace)
{
    char path[STORE_PATH_SIZE];
    int rc = 0;
    for (unsigned i = 0; i < DIR_COUNT && rc == 0; i++) {
        (void)snprintf(path, sizeof path, "%s/rel/%02x", tablespace->dir, i);
        struct cleaning cleaning = {.store = store, .dir = path};
        rc = io_list_dir(store->dev, path, clean_file, &cleaning);
        rc = rc == -ENOENT ? 0 : rc;
        rc = rc != 0 ? rc : cleaning.rc;
        rc = rc != 0 ? rc : remove_directory(store, path);
    }
    (void)snprintf(path, sizeof path, "%s/rel", tablespace->dir);
    return rc != 0 ? rc : remove_directory(store, path);
}

/* It is dropped, durably, and no version names what is in it. What stays is only in the way of whoever wants the directory. */
static void clean_directory(struct store *store, struct store_tablespace *tablespace)
{
    char path[STORE_PATH_SIZE];
    if (tablespace->identity == NULL) {
        return; /* it was never opened: it is not ours to clean */
    }
    identity_path(tablespace, path);
    int rc = clean_relations(store, tablespace);
    if (rc == 0) {
        rc = io_unlink(store->dev, path);
    }
    if (rc == 0) {
        rc = io_sync_dir(store->dev, tablespace->dir);
    }
    if (rc != 0) {
        diag_log(store->diag, DIAG_WARNING, "tablespace %s was dropped, but %s could not be cleared: %s",
                 tablespace->name, tablespace->dir, strerror(-rc));
    }
}

/* ---- the operations ---- */

/* One operation on tablespaces. */
struct tablespace_op {
    struct store *store;
    enum op_type type;
    const struct op_record *replay;
    struct store_tablespace *tablespace;
    int (*look)(struct tablespace_op *to); /* before the gate; NULL: nothing to look at */
    int (*plan)(struct tablespace_op *to, struct op_run *run);
    void (*applied)(struct tablespace_op *to); /* under the same locks */
    bool is_applied;
};

/* placement_lock is held exclusively meanwhile (TABLESPACE-2). */
static int tablespace_op_try(struct tablespace_op *to, struct op_retry *retry)
{
    struct store *store = to->store;
    struct op_run run;
    int rc = op_begin(&run, store, store_live(store), to->type, to->replay, retry->edits, 0, 0, false);
    if (rc != 0) {
        op_note_retry(&run, rc, retry);
        return rc;
    }
    rwlock_lock_exclusive(&store->placement_lock);
    rc = to->look != NULL ? to->look(to) : 0;
    if (rc == 0) {
        rc = op_enter_gate(&run);
    }
    if (rc == 0) {
        op_lock_catalog(&run);
        rc = to->plan(to, &run);
    }
    if (rc == 0) {
        rc = op_finish(&run);
    }
    if (rc == 0) {
        to->applied(to);
        to->is_applied = true;
    }
    op_note_retry(&run, rc, retry);
    op_release(&run);
    rwlock_unlock_exclusive(&store->placement_lock);
    return op_end(&run, rc);
}

static int tablespace_op_run(struct tablespace_op *to)
{
    struct op_retry retry = {.edits = STORE_BATCH_EDITS};
    int rc;
    do {
        rc = tablespace_op_try(to, &retry);
    } while (op_wants_retry(to->store, &rc, &retry));
    return rc;
}

static int put_item(struct op_run *run, const struct store_tablespace *tablespace)
{
    uint8_t value[VALUE_MAX];
    const struct catalog_key key = tablespace_key(tablespace->ts);
    const size_t name_size = strlen(tablespace->name);
    const size_t dir_size = tablespace->in_place ? 0 : strlen(tablespace->dir);
    const struct disk_tablespace disk = {.created_ns = le64_of((uint64_t)tablespace->created_ns),
                                         .name_size = (uint8_t)name_size};
    memcpy(value, &disk, sizeof disk);
    memcpy(value + sizeof disk, tablespace->name, name_size);
    memcpy(value + sizeof disk + name_size, tablespace->dir, dir_size);
    return catalog_batch_put(&run->batch, &key, value, sizeof disk + name_size + dir_size);
}

static int plan_create(struct tablespace_op *to, struct op_run *run)
{
    struct store_tablespace *tablespace = to->tablespace;
    const struct store_name name = {.bytes = tablespace->name, .size = strlen(tablespace->name)};
    const struct catalog_key counter = tablespace_key(TS_DEFAULT);
    const le32 last = le32_of(atomic_load(&to->store->last_ts));
    ts_no other = TS_DEFAULT;
    if (store_tablespace_number(to->store, name, &other) == 0) {
        return -EEXIST;
    }
    run->op.ino = tablespace->ts;
    run->op.name = (struct op_bytes){.data = tablespace->name, .size = name.size};
    run->op.data =
        (struct op_bytes){.data = tablespace->dir, .size = tablespace->in_place ? 0 : strlen(tablespace->dir)};
    tablespace->created_ns = run->op.time_ns;
    const int rc = catalog_batch_put(&run->batch, &counter, &last, sizeof last);
    return rc == 0 ? put_item(run, tablespace) : rc;
}

static void created(struct tablespace_op *to)
{
    list_add(to->store, to->tablespace);
}

static int create(struct store *store, struct store_tablespace *tablespace, const struct op_record *replay)
{
    struct tablespace_op to = {.store = store,
                               .type = OP_TABLESPACE,
                               .replay = replay,
                               .tablespace = tablespace,
                               .plan = plan_create,
                               .applied = created};
    const int rc = tablespace_op_run(&to);
    if (!to.is_applied) {
        bufcache_tablespace_remove(store->cache, tablespace->ts);
        if (replay == NULL) {
            clean_directory(store, tablespace);
        }
        tablespace_free(tablespace);
    }
    return rc;
}

static int check_name(struct store_name name)
{
    if (name.size == 0) {
        return -ENOENT;
    }
    return name.size > STORE_NAME_MAX ? -ENAMETOOLONG : 0;
}

static int check_directory(struct store *store, const struct store_tablespace *tablespace)
{
    struct io_stat stat;
    if (tablespace->dir[0] != '/') {
        say(store, tablespace, "is not an absolute path");
        return -EINVAL;
    }
    if (strlen(tablespace->dir) > DIRECTORY_BYTES_MAX) {
        return -ENAMETOOLONG;
    }
    int rc = io_stat(store->dev, tablespace->dir, &stat);
    if (rc == 0 && stat.kind != IO_KIND_DIRECTORY) {
        rc = -ENOTDIR;
    }
    if (rc != 0) {
        say(store, tablespace, strerror(-rc));
    }
    return rc;
}

int store_tablespace_create(struct store *store, struct store_name name, const char *dir)
{
    ts_no other = TS_DEFAULT;
    int rc = check_name(name);
    if (rc == 0) {
        rc = store_check_takes_changes(store);
    }
    if (rc != 0 || store_tablespace_number(store, name, &other) == 0) {
        return rc != 0 ? rc : -EEXIST;
    }
    struct store_tablespace *tablespace = tablespace_make(atomic_fetch_add(&store->last_ts, 1) + 1, name,
                                                          (struct op_bytes){.data = dir, .size = strlen(dir)});
    if (tablespace == NULL) {
        return -ENOMEM;
    }
    rc = check_directory(store, tablespace);
    if (rc == 0) {
        rc = prepare_directory(store, tablespace);
    }
    if (rc == 0) {
        rc = bufcache_tablespace_add(store->cache, tablespace->ts, tablespace->dir);
    }
    if (rc != 0) {
        tablespace_free(tablespace);
        return rc;
    }
    rc = create(store, tablespace, NULL);
    return rc == 0 ? store_sync(store) : rc;
}

/* What is there of relation files, behind checkpoints if there are any: one closes a dropped snapshot, and the next one removes what only that
 * saw. */
static int check_no_files(struct store *store, const char *name, const char *dir)
{
    uint64_t files = 0;
    int rc = count_files(store, dir, &files);
    for (unsigned i = 0; i < CHECKPOINTS_MAX && rc == 0 && files > 0; i++) {
        if (cow_awaits_checkpoint(store->cow)) {
            atomic_fetch_add(&store->changes, 1);
        }
        rc = store_checkpoint(store);
        rc = rc != 0 ? rc : count_files(store, dir, &files);
    }
    if (rc == 0 && files > 0) {
        diag_log(store->diag, DIAG_WARNING,
                 "tablespace %s: %" PRIu64 " relation files are left in %s: tables, snapshots, transactions or open "
                 "files need them",
                 name, files, dir);
        rc = -ENOTEMPTY;
    }
    return rc;
}

struct version_scan {
    ts_no ts;
    uint64_t relations;
};

static int count_relation(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct version_scan *scan = arg;
    struct inode inode;
    if (key->type != ITEM_INODE) {
        return 0;
    }
    const int rc = inode_decode(key, value, value_size, &inode);
    scan->relations += rc == 0 && inode.ts == scan->ts && inode.rel != REL_NONE;
    return rc;
}

static int count_in_version(void *arg, struct view *view)
{
    const struct catalog_key first = {.ino = INO_ROOT};
    const struct catalog_key last = {.ino = UINT64_MAX, .type = UINT8_MAX, .sub = UINT64_MAX};
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = catalog_scan(view, &first, &last, count_relation, arg);
    rwlock_unlock_shared(&view->catalog_lock);
    return rc;
}

/* One whose files cannot be told from others: relations that any version names. What an open transaction made nobody else sees. */
static int look_for_relations(struct store *store, ts_no ts)
{
    struct version_scan scan = {.ts = ts};
    cow_gate_enter(store->cow);
    int rc = store_each_version(store, count_in_version, &scan);
    cow_gate_leave(store->cow);
    if (rc == 0 && (scan.relations > 0 || atomic_load(&store->txn_count) > 0)) {
        diag_log(store->diag, DIAG_WARNING,
                 "tablespace %" PRIu32 ": %" PRIu64 " versions of tables are in it, or a transaction is open", ts,
                 scan.relations);
        rc = -ENOTEMPTY;
    }
    return rc;
}

/* Again: now none is made (TABLESPACE-2). */
static int look_for_files(struct tablespace_op *to)
{
    uint64_t files = 0;
    if (to->tablespace->in_place) {
        return look_for_relations(to->store, to->tablespace->ts);
    }
    const int rc = PLANT(TABLESPACE_DROPPED_BLINDLY) ? 0 : count_files(to->store, to->tablespace->dir, &files);
    return rc == 0 && files > 0 ? -ENOTEMPTY : rc;
}

static int plan_drop(struct tablespace_op *to, struct op_run *run)
{
    const struct catalog_key key = tablespace_key(to->tablespace->ts);
    run->op.ino = to->tablespace->ts;
    return catalog_batch_remove(&run->batch, &key);
}

static void dropped(struct tablespace_op *to)
{
    mutex_lock(&to->store->tablespaces_lock);
    to->tablespace->dropped = true;
    to->tablespace->dropped_changes = to->replay != NULL ? atomic_load(&to->store->changes) : UINT64_MAX;
    mutex_unlock(&to->store->tablespaces_lock);
}

static int drop(struct store *store, struct store_tablespace *tablespace, const struct op_record *replay)
{
    struct tablespace_op to = {.store = store,
                               .type = OP_TABLESPACE_DROP,
                               .replay = replay,
                               .tablespace = tablespace,
                               .look = replay == NULL ? look_for_files : NULL,
                               .plan = plan_drop,
                               .applied = dropped};
    return tablespace_op_run(&to);
}

/* It is dropped, and that is durable. */
static void bury(struct store *store, struct store_tablespace *tablespace)
{
    rwlock_lock_exclusive(&store->placement_lock);
    list_remove(store, tablespace);
    bufcache_tablespace_remove(store->cache, tablespace->ts);
    rwlock_unlock_exclusive(&store->placement_lock);
    clean_directory(store, tablespace);
    tablespace_free(tablespace);
}

static int claim(struct store *store, struct store_name name, struct store_tablespace **out_tablespace)
{
    mutex_lock(&store->tablespaces_lock);
    struct store_tablespace *tablespace = find_name_locked(store, name);
    const int rc = tablespace == NULL ? -ENOENT : tablespace->claimed ? -EBUSY : 0;
    if (rc == 0) {
        tablespace->claimed = true;
        *out_tablespace = tablespace;
    }
    mutex_unlock(&store->tablespaces_lock);
    return rc;
}

static void unclaim(struct store *store, struct store_tablespace *tablespace)
{
    mutex_lock(&store->tablespaces_lock);
    tablespace->claimed = false;
    mutex_unlock(&store->tablespaces_lock);
}

int store_tablespace_drop(struct store *store, struct store_name name)
{
    struct store_tablespace *tablespace = NULL;
    int rc = store_check_takes_changes(store);
    rc = rc != 0 ? rc : claim(store, name, &tablespace);
    if (rc != 0) {
        return rc;
    }
    if (tablespace->offline) {
        say(store, tablespace, "is offline, and may hold tables");
        rc = -EIO;
    } else if (!tablespace->in_place && !PLANT(TABLESPACE_DROPPED_BLINDLY)) {
        rc = check_no_files(store, tablespace->name, tablespace->dir);
    }
    rc = rc != 0 ? rc : drop(store, tablespace, NULL);
    if (rc != 0) {
        unclaim(store, tablespace);
        return rc;
    }
    if (PLANT(TABLESPACE_CLEANED_EARLY)) {
        bury(store, tablespace);
        return store_sync(store);
    }
    rc = store_sync(store);
    if (rc == 0) { /* TABLESPACE-1 */
        bury(store, tablespace);
    }
    return rc;
}

/* Those that a checkpoint no longer names. */
static struct store_tablespace *find_buriable(struct store *store, uint64_t changes)
{
    mutex_lock(&store->tablespaces_lock);
    struct store_tablespace *tablespace = store->tablespaces;
    while (tablespace != NULL && !(tablespace->dropped && tablespace->dropped_changes <= changes)) {
        tablespace = tablespace->next;
    }
    mutex_unlock(&store->tablespaces_lock);
    return tablespace;
}

void store_tablespaces_release(struct store *store, uint64_t changes)
{
    struct store_tablespace *tablespace;
    while ((tablespace = find_buriable(store, changes)) != NULL) {
        bury(store, tablespace);
    }
}

/* ---- opening, and replay ---- */

/* TABLESPACE-6 */
static int put_in_place(const struct store *store, struct store_tablespace *tablespace)
{
    char *dir = strdup(store->dir);
    if (dir == NULL) {
        return -ENOMEM;
    }
    free(tablespace->dir);
    tablespace->dir = dir;
    tablespace->in_place = true;
    return 0;
}

/* TABLESPACE-4 */
static void open_or_note(struct store *store, struct store_tablespace *tablespace)
{
    const bool is_here = store->restoring || tablespace->dir[0] == '\0';
    int rc = is_here ? put_in_place(store, tablespace) : open_directory(store, tablespace);
    if (rc == 0) {
        rc = bufcache_tablespace_add(store->cache, tablespace->ts, tablespace->dir);
    }
    if (rc != 0) {
        close_identity(tablespace);
    }
    tablespace->failed = rc;
}

static int replay_create(struct store *store, const struct op_record *record)
{
    const struct store_name name = {.bytes = record->name.data, .size = record->name.size};
    if (check_name(name) != 0 || record->ino == TS_DEFAULT || record->ino > UINT32_MAX ||
        record->data.size > DIRECTORY_BYTES_MAX) {
        return -EBADMSG;
    }
    struct store_tablespace *tablespace = tablespace_make((ts_no)record->ino, name, record->data);
    if (tablespace == NULL) {
        return -ENOMEM;
    }
    note_number(store, tablespace->ts);
    open_or_note(store, tablespace);
    return create(store, tablespace, record);
}

int store_tablespace_replay(struct store *store, const struct op_record *record)
{
    if (record->type == OP_TABLESPACE) {
        return replay_create(store, record);
    }
    mutex_lock(&store->tablespaces_lock);
    struct store_tablespace *tablespace = record->ino <= UINT32_MAX ? find_locked(store, (ts_no)record->ino) : NULL;
    mutex_unlock(&store->tablespaces_lock);
    return tablespace != NULL ? drop(store, tablespace, record) : -ENOENT;
}

/* The page was validated. */
static int adopt_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct store *store = arg;
    struct disk_tablespace disk;
    if (key->sub == TS_DEFAULT) {
        le32 last;
        memcpy(&last, value, sizeof last);
        note_number(store, le32_get(last));
        return 0;
    }
    memcpy(&disk, value, sizeof disk);
    const char *name = (const char *)value + sizeof disk;
    const struct op_bytes dir = {.data = name + disk.name_size, .size = value_size - sizeof disk - disk.name_size};
    struct store_tablespace *tablespace =
        tablespace_make((ts_no)key->sub, (struct store_name){.bytes = name, .size = disk.name_size}, dir);
    if (tablespace == NULL) {
        return -ENOMEM;
    }
    tablespace->created_ns = (int64_t)le64_get(disk.created_ns);
    note_number(store, tablespace->ts);
    list_add(store, tablespace);
    return 0;
}

int store_tablespaces_adopt(struct store *store)
{
    const struct catalog_key first = {.ino = INO_NONE, .type = ITEM_TABLESPACE, .sub = 0};
    const struct catalog_key last = {.ino = INO_NONE, .type = ITEM_TABLESPACE, .sub = UINT64_MAX};
    struct view *live = store_live(store);
    struct frame_budget budget;
    int rc = store_read_enter(store, live, &budget);
    if (rc != 0) {
        return rc;
    }
    rc = catalog_scan(live, &first, &last, adopt_item, store);
    store_read_leave(live, &budget);
    for (struct store_tablespace *tablespace = store->tablespaces; tablespace != NULL && rc == 0;
         tablespace = tablespace->next) {
        open_or_note(store, tablespace);
    }
    return rc;
}

static int go_without(struct store *store, struct store_tablespace *tablespace)
{
    diag_log(store->diag, DIAG_WARNING,
             "tablespace %s is offline: tables in it answer with an I/O error until the next start", tablespace->name);
    tablespace->offline = true;
    return bufcache_tablespace_add_offline(store->cache, tablespace->ts, tablespace->dir);
}

int store_tablespaces_require(struct store *store)
{
    int rc = 0;
    for (struct store_tablespace *tablespace = store->tablespaces; tablespace != NULL && rc == 0;
         tablespace = tablespace->next) {
        if (tablespace->failed == 0 || tablespace->dropped) {
            continue;
        }
        if (store->missing_tablespace_offline) {
            rc = go_without(store, tablespace);
            continue;
        }
        diag_log(store->diag, DIAG_ERROR,
                 "tablespace %s: %s cannot be used: %s (-o missing_tablespace=offline goes without its tables)",
                 tablespace->name, tablespace->dir, strerror(-tablespace->failed));
        rc = -EUCLEAN;
    }
    return rc;
}

static int plan_in_place(struct tablespace_op *to, struct op_run *run)
{
    return put_item(run, to->tablespace);
}

static void nothing_follows(struct tablespace_op *to)
{
    (void)to;
}

int store_tablespaces_take_over(struct store *store)
{
    const struct op_record record = {.type = OP_UNLOGGED, .time_ns = atomic_load(&store->last_time_ns)};
    int rc = 0;
    for (struct store_tablespace *tablespace = store->tablespaces; tablespace != NULL && rc == 0;
         tablespace = tablespace->next) {
        struct tablespace_op to = {.store = store,
                                   .type = OP_UNLOGGED,
                                   .replay = &record,
                                   .tablespace = tablespace,
                                   .plan = plan_in_place,
                                   .applied = nothing_follows};
        rc = tablespace->failed != 0 ? tablespace->failed : tablespace_op_run(&to);
    }
    return rc;
}

/* ---- files by number ---- */

static int has_file(struct store *store, ts_no ts, rel_no rel, bool *out_has)
{
    struct relation *relation = NULL;
    int rc = relation_open(store->cache, ts, rel, &relation);
    if (rc == 0) {
        rc = relation_file_exists(relation, out_has);
        relation_unref(relation);
    }
    return rc;
}

int store_tablespace_of_file(struct store *store, rel_no rel, ts_no *out_ts)
{
    if (store->tablespaces == NULL || relation_find_tablespace(store->cache, rel, out_ts) == 0) {
        return 0;
    }
    bool has = false;
    bool missing = false;
    int rc = has_file(store, TS_DEFAULT, rel, &has);
    *out_ts = TS_DEFAULT;
    for (const struct store_tablespace *tablespace = store->tablespaces; tablespace != NULL && rc == 0 && !has;
         tablespace = tablespace->next) {
        missing |= tablespace->failed != 0;
        if (tablespace->failed == 0 && !tablespace->in_place) {
            rc = has_file(store, tablespace->ts, rel, &has);
            *out_ts = has ? tablespace->ts : TS_DEFAULT;
        }
    }
    if (rc == 0 && !has && missing) {
        diag_log(store->diag, DIAG_ERROR, "%s: the log needs relation %016" PRIx64 ", and a tablespace is missing",
                 store->dir, rel);
        rc = -ENOENT;
    }
    return rc;
}
