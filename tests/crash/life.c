/*
 * tests/crash/life.c - a store and the random operations on it.
 *
 * Names are few, so that they collide; files are small, but now and then larger than a log segment. Every operation
 * makes at most one visible step, so that the states between operations are all there are.
 */
#include "tests/crash/crash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIFE_FILE_MAX           60000u
#define LIFE_ARCHIVE_TIMEOUT_MS 20u
#define LIFE_ROW                64u
#define LIFE_CACHE              (UINT64_C(16) << 20)

static uint64_t below(struct life *life, uint64_t limit)
{
    return test_random_below(&life->random, limit);
}

static bool chance(struct life *life, unsigned percent)
{
    return test_random_chance(&life->random, percent);
}

/* ---- begin and end ---- */

struct mem_device *life_mkfs(uint64_t seed)
{
    struct mem_device *mem = mem_device_create(seed);
    struct crash_diag diag;
    crash_diag_init(&diag);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(mem),
        .diag = &diag.diag,
        .dir = CRASH_DIR,
        .create_dir = true,
        .name_hash_bits = seed % 4 == 0 ? 4 : 47,
        .root_mode = 0755,
    };
    if (store_mkfs(&mkfs) != 0) {
        abort();
    }
    return mem;
}

void life_init(struct life *life, struct io_device *dev, uint64_t seed, uint64_t operations_max)
{
    *life = (struct life){.dev = dev, .operations_max = operations_max};
    crash_diag_init(&life->diag);
    test_random_init(&life->random, seed);
    life->fingerprints = calloc(operations_max + 2, sizeof life->fingerprints[0]);
    if (life->fingerprints == NULL) {
        abort();
    }
}

void life_free(struct life *life)
{
    free(life->data);
    free(life->fingerprints);
}

int life_open(struct life *life)
{
    const struct store_options options = {
        .dev = life->dev,
        .diag = &life->diag.diag,
        .dir = CRASH_DIR,
        .cache_size_bytes = LIFE_CACHE,
        .max_open_files = 8,
        .log_segment_size = CRASH_SEGMENT_SIZE,
        .bulk_min_bytes = 2 * BLOCK_SIZE, /* a new leaf or two: by reference */
        .compact_piece_blocks = 2,
        .archive = life->archive,
        .archive_timeout_ms = LIFE_ARCHIVE_TIMEOUT_MS,
    };
    const int rc = store_open(&options, &life->store, NULL);
    life->lane = &life->lanes[0];
    life->lanes[0] = (struct life_lane){.view = rc == 0 ? store_live(life->store) : NULL};
    life->damage_at_open = atomic_load(&life->diag.diag.damage_count);
    return rc;
}

int life_begin(struct life *life)
{
    const int rc = life_open(life);
    return rc != 0 ? rc : crash_fingerprint(life->store, &life->fingerprints[0]);
}

static void close_holders(struct life *life)
{
    for (unsigned i = 0; i < LIFE_HOLDERS; i++) {
        if (life->holders[i] != NULL) {
            cow_holder_close(store_cow(life->store), life->holders[i]);
            life->holders[i] = NULL;
        }
    }
}

static void close_handles(struct life_lane *lane)
{
    for (unsigned i = 0; i < LIFE_HANDLES; i++) {
        if (lane->handles[i] != NULL) {
            store_file_close(lane->handles[i]);
            lane->handles[i] = NULL;
        }
    }
}

/* Nothing of it reaches the log: it is aborted when its files are closed. */
static void forget_transaction(struct life_lane *lane)
{
    if (lane->txn != NULL) {
        store_txn_abort(lane->txn);
        close_handles(lane);
        store_txn_put(lane->txn);
        *lane = (struct life_lane){.view = NULL};
    }
}

static void forget_transactions(struct life *life)
{
    for (unsigned i = 1; i < ARRAY_COUNT(life->lanes); i++) {
        forget_transaction(&life->lanes[i]);
    }
    life->lane = &life->lanes[0];
}

static void end_compaction(struct life *life)
{
    if (life->compact != NULL) {
        store_compact_end(life->compact);
        life->compact = NULL;
    }
}

int life_close(struct life *life)
{
    end_compaction(life);
    forget_transactions(life);
    close_handles(&life->lanes[0]);
    close_holders(life);
    const int rc = store_close(life->store);
    life->store = NULL;
    return rc;
}

void life_abandon(struct life *life)
{
    if (life->store == NULL) {
        return;
    }
    end_compaction(life);
    forget_transactions(life);
    close_holders(life);
    store_abandon(life->store);
    memset(life->lanes, 0, sizeof life->lanes);
    life->store = NULL;
}

/* ---- drawing ---- */

static struct store_name draw_name(struct life *life)
{
    static const char *const names[] = {"a", "b", "c.tsv", "orders",
                                        "d", "e", "f",     "a name of some length, with blanks"};
    const char *name = names[below(life, ARRAY_COUNT(names))];
    return (struct store_name){name, strlen(name)};
}

static ino_no lookup(struct life *life, ino_no parent, const char *name, uint32_t *out_mode)
{
    struct store_attr attr;
    const int rc = store_lookup(life->store, life->lane->view, parent, (struct store_name){name, strlen(name)}, &attr);
    *out_mode = rc == 0 ? attr.mode : 0;
    return rc == 0 ? attr.ino : INO_NONE;
}

static ino_no draw_dir(struct life *life)
{
    uint32_t mode = 0;
    const uint64_t luck = below(life, 10);
    const ino_no ino = luck < 6 ? INO_NONE : lookup(life, INO_ROOT, luck < 8 ? "dir1" : "dir2", &mode);
    return S_ISDIR(mode) ? ino : INO_ROOT;
}

/* Some inode; of this kind if there is one among a few tries (0: any). INO_NONE: none. */
static ino_no draw_inode(struct life *life, uint32_t kind)
{
    for (unsigned i = 0; i < 12; i++) {
        uint32_t mode = 0;
        const ino_no dir = draw_dir(life);
        const struct store_name name = draw_name(life);
        const ino_no ino = lookup(life, dir, name.bytes, &mode);
        if (ino != INO_NONE && (kind == 0 || (mode & S_IFMT) == kind)) {
            return ino;
        }
    }
    return kind == 0 ? INO_ROOT : INO_NONE;
}

static uint64_t draw_size(struct life *life)
{
    const uint64_t luck = below(life, 100);
    if (luck < 55) {
        return 1 + below(life, 200);
    }
    if (luck < 75) {
        return below(life, 3) * PAGE_PAYLOAD_SIZE + below(life, 3) + 1;
    }
    return luck < 94 ? 1 + below(life, 12000) : 20000 + below(life, 50000);
}

/* Random bytes, the same for every life; made by the first operation that wants them. */
static const uint8_t *draw_bytes(struct life *life, size_t size)
{
    if (life->data == NULL) {
        struct test_random random;
        life->data = malloc(LIFE_DATA);
        if (life->data == NULL) {
            abort();
        }
        test_random_init(&random, 17);
        test_random_bytes(&random, life->data, LIFE_DATA);
        for (size_t i = 0; i < LIFE_DATA; i += LIFE_ROW) {
            life->data[i] = '\n';
        }
    }
    size_t at = (size_t)below(life, LIFE_DATA - size + 1);
    if (life->transactions && at >= LIFE_ROW && size > 0 && chance(life, 85)) {
        at -= (at + size - 1) % LIFE_ROW; /* ends in a newline: appends of that kind merge */
    }
    return life->data + at;
}

/* ---- operations: each returns what the store answered ---- */

static void note(struct life *life, const char *what, uint64_t a, uint64_t b)
{
    (void)snprintf(life->note, sizeof life->note, "%s %" PRIu64 " %" PRIu64, what, a, b);
}

static int operate_create(struct life *life)
{
    static const uint32_t modes[] = {S_IFREG | 0644, S_IFREG | 0600, S_IFREG | 0640, S_IFIFO | 0600};
    struct store_attr attr = {0};
    const ino_no dir = draw_dir(life);
    const struct store_name name = draw_name(life);
    note(life, "create", dir, 0);
    const int rc = store_create(life->store, life->lane->view, dir, name, modes[below(life, ARRAY_COUNT(modes))], 0,
                                (struct store_who){1, 2}, &attr);
    if (rc == 0 && attr.ino > life->largest_ino) {
        life->largest_ino = attr.ino;
    }
    return rc;
}

static int operate_mkdir(struct life *life)
{
    struct store_attr attr = {0};
    const bool main_dir = chance(life, 80);
    const struct store_name name =
        main_dir ? (struct store_name){chance(life, 50) ? "dir1" : "dir2", 4} : draw_name(life);
    note(life, "mkdir", 0, 0);
    const int rc = store_create(life->store, life->lane->view, main_dir ? INO_ROOT : draw_dir(life), name,
                                S_IFDIR | 0755, 0, (struct store_who){0, 0}, &attr);
    if (rc == 0 && attr.ino > life->largest_ino) {
        life->largest_ino = attr.ino;
    }
    return rc;
}

static int operate_symlink(struct life *life)
{
    struct store_attr attr;
    note(life, "symlink", 0, 0);
    const ino_no dir = draw_dir(life);
    return store_symlink(life->store, life->lane->view, dir, draw_name(life), "../some/where", (struct store_who){3, 4},
                         &attr);
}

static int operate_link(struct life *life)
{
    struct store_attr attr;
    const ino_no ino = draw_inode(life, S_IFREG);
    const ino_no dir = draw_dir(life);
    note(life, "link", ino, dir);
    return ino == INO_NONE ? 0 : store_link(life->store, life->lane->view, ino, dir, draw_name(life), &attr);
}

static int operate_unlink(struct life *life)
{
    const ino_no dir = draw_dir(life);
    note(life, "unlink", dir, 0);
    return store_unlink(life->store, life->lane->view, dir, draw_name(life));
}

static int operate_rmdir(struct life *life)
{
    note(life, "rmdir", 0, 0);
    const struct store_name name = chance(life, 60) ? (struct store_name){"dir2", 4} : draw_name(life);
    return store_rmdir(life->store, life->lane->view, INO_ROOT, name);
}

static int operate_rename(struct life *life)
{
    const ino_no from = draw_dir(life);
    const ino_no to = draw_dir(life);
    const struct store_name name = draw_name(life);
    note(life, "rename", from, to);
    return store_rename(life->store, life->lane->view, from, name, to, draw_name(life), (unsigned)below(life, 3));
}

static int operate_setattr(struct life *life)
{
    struct store_attr out;
    const struct store_attr attr = {.mode = (uint32_t)below(life, 01000),
                                    .uid = (uint32_t)below(life, 5),
                                    .gid = (uint32_t)below(life, 5),
                                    .mtime_ns = (int64_t)below(life, INT64_MAX)};
    const unsigned set = (unsigned)below(life, 512) & ~STORE_SET_SIZE;
    const ino_no ino = draw_inode(life, 0);
    note(life, "setattr", ino, set);
    return store_setattr(life->store, life->lane->view, ino, set, &attr, &out);
}

static int operate_truncate(struct life *life)
{
    struct store_attr out;
    const struct store_attr attr = {.size_bytes = chance(life, 30) ? 0 : below(life, 30000)};
    const ino_no ino = draw_inode(life, S_IFREG);
    note(life, "truncate", ino, attr.size_bytes);
    return ino == INO_NONE
               ? 0
               : store_setattr(life->store, life->lane->view, ino, STORE_SET_SIZE | STORE_SET_KILL_SUID, &attr, &out);
}

static int operate_setxattr(struct life *life)
{
    char name[24];
    (void)snprintf(name, sizeof name, "user.x%u", (unsigned)below(life, 3));
    const ino_no ino = draw_inode(life, 0);
    const size_t size = (size_t)below(life, chance(life, 80) ? 60 : 1800);
    note(life, "setxattr", ino, size);
    return store_setxattr(life->store, life->lane->view, ino, name, draw_bytes(life, size), size, 0);
}

static int operate_removexattr(struct life *life)
{
    const ino_no ino = draw_inode(life, 0);
    note(life, "removexattr", ino, 0);
    return store_removexattr(life->store, life->lane->view, ino, chance(life, 50) ? "user.x0" : "user.x1");
}

static int operate_open(struct life *life)
{
    struct store_file **handle = &life->lane->handles[below(life, LIFE_HANDLES)];
    const ino_no ino = draw_inode(life, S_IFREG);
    note(life, "open", ino, 0);
    return *handle != NULL || ino == INO_NONE ? 0 : store_file_open(life->store, life->lane->view, ino, handle);
}

static int operate_close(struct life *life)
{
    struct store_file **handle = &life->lane->handles[below(life, LIFE_HANDLES)];
    note(life, "close", *handle != NULL ? store_file_ino(*handle) : 0, 0);
    if (*handle != NULL) {
        store_file_close(*handle);
        *handle = NULL;
    }
    return 0;
}

/* An open file: a handle that is open already, or one for this operation (*out_temporary). NULL: none. */
static struct store_file *draw_file(struct life *life, bool *out_temporary)
{
    struct store_file *file = life->lane->handles[below(life, LIFE_HANDLES)];
    *out_temporary = file == NULL;
    const ino_no ino = file == NULL ? draw_inode(life, S_IFREG) : INO_NONE;
    if (ino != INO_NONE && store_file_open(life->store, life->lane->view, ino, &file) != 0) {
        file = NULL;
    }
    return file;
}

static void put_file(struct store_file *file, bool temporary)
{
    if (file != NULL && temporary) {
        store_file_close(file);
    }
}

static int write_somewhere(struct life *life, struct store_file *file)
{
    struct store_attr attr;
    uint64_t end = 0;
    int rc = store_file_getattr(file, &attr);
    if (rc != 0) {
        return rc;
    }
    const bool bulk = life->bulk && attr.size_bytes < LIFE_FILE_MAX && chance(life, 12);
    const uint64_t size = bulk ? LIFE_BULK + below(life, 90000) : draw_size(life);
    const bool append = bulk || (chance(life, 50) && attr.size_bytes + size <= LIFE_FILE_MAX);
    uint64_t offset = append ? attr.size_bytes : below(life, attr.size_bytes + 1000);
    offset = offset + size > LIFE_FILE_MAX ? below(life, 2000) : offset;
    note(life, "write", store_file_ino(file), offset);
    return store_write(file, offset, draw_bytes(life, (size_t)size), (size_t)size, append ? STORE_WRITE_APPEND : 0,
                       &end);
}

static int operate_write(struct life *life)
{
    bool temporary = false;
    struct store_file *file = draw_file(life, &temporary);
    const int rc = file != NULL ? write_somewhere(life, file) : 0;
    put_file(file, temporary);
    return rc;
}

static int operate_allocate(struct life *life)
{
    static const unsigned modes[] = {0, STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_KEEP_SIZE,
                                     STORE_ALLOCATE_ZERO | STORE_ALLOCATE_KEEP_SIZE};
    bool temporary = false;
    struct store_file *file = draw_file(life, &temporary);
    const uint64_t offset = below(life, 20000);
    const unsigned mode = modes[below(life, ARRAY_COUNT(modes))];
    note(life, "allocate", offset, mode);
    const int rc = file != NULL ? store_allocate(file, offset, 1 + below(life, 20000), mode) : 0;
    put_file(file, temporary);
    return rc;
}

static void now_durable(struct life *life, int rc)
{
    if (rc == 0 && store_read_only_reason(life->store) == NULL) {
        life->durable_op = life->op;
    }
}

static int operate_sync(struct life *life)
{
    note(life, "sync", 0, 0);
    const int rc = store_sync(life->store);
    now_durable(life, rc);
    return rc;
}

static int operate_step(struct life *life)
{
    note(life, "step", 0, 0);
    store_step(life->store);
    now_durable(life, 0);
    return 0;
}

static int operate_checkpoint(struct life *life)
{
    note(life, "checkpoint", 0, 0);
    const int rc = store_checkpoint(life->store);
    now_durable(life, rc);
    return rc;
}

static int operate_holder(struct life *life)
{
    struct holder **holder = &life->holders[below(life, LIFE_HOLDERS)];
    note(life, "holder", *holder != NULL, 0);
    if (*holder == NULL) {
        return cow_fork(store_cow(life->store), HOLDER_BACKUP, holder);
    }
    cow_holder_close(store_cow(life->store), *holder);
    *holder = NULL;
    return 0;
}

/* One of two snapshots is taken, renamed to the other's name, or dropped. */
static int operate_snapshot(struct life *life)
{
    static const char *const names[] = {"before", "after"};
    const unsigned index = (unsigned)below(life, 2);
    const struct store_name name = {.bytes = names[index], .size = strlen(names[index])};
    const struct store_name other = {.bytes = names[1 - index], .size = strlen(names[1 - index])};
    note(life, "snapshot", index, 0);
    int rc = store_snapshot_create(life->store, name);
    if (rc == -EEXIST) {
        rc =
            chance(life, 20) ? store_snapshot_rename(life->store, name, other) : store_snapshot_drop(life->store, name);
    }
    return rc;
}

/* Begins one, or goes on with the one that is under way. It changes nothing that anybody sees. */
static int operate_compact(struct life *life)
{
    note(life, "compact", life->compact != NULL, 0);
    if (life->compact != NULL) {
        const int rc = store_compact_step(life->compact, chance(life, 50) ? 1 : LIFE_DATA);
        if (rc != 1) {
            end_compaction(life);
        }
        return rc == 1 ? 0 : rc;
    }
    bool temporary = false;
    struct store_file *file = draw_file(life, &temporary);
    const int rc = file != NULL ? store_compact_begin(file, &life->compact) : 0;
    put_file(file, temporary);
    return rc;
}

static int operate_reopen(struct life *life)
{
    note(life, "reopen", 0, 0);
    if (life->stays_open) {
        return 0;
    }
    int rc = life_close(life);
    if (rc == 0) {
        life->durable_op = life->op;
        rc = life_open(life);
    }
    return rc;
}

/* ---- transactions ---- */

static struct life_lane *draw_transaction(struct life *life, bool open)
{
    for (unsigned i = 0; i < 4; i++) {
        struct life_lane *lane = &life->lanes[1 + below(life, LIFE_TRANSACTIONS)];
        if ((lane->txn != NULL) == open) {
            return lane;
        }
    }
    return NULL;
}

static int operate_begin(struct life *life)
{
    char name[24];
    (void)snprintf(name, sizeof name, "t%" PRIu64, life->op);
    const struct store_txn_options options = {.name = {name, strlen(name)}};
    struct life_lane *lane = draw_transaction(life, false);
    note(life, "begin", lane != NULL, 0);
    int rc = 0;
    if (lane != NULL) {
        rc = store_txn_begin(life->store, &options, &lane->txn);
        lane->view = rc == 0 ? store_txn_view(lane->txn) : NULL;
        lane->txn = rc == 0 ? lane->txn : NULL;
    }
    return rc;
}

/* Acknowledged, it is durable, and so is all that came before. After a conflict it goes on, or is aborted. */
static int operate_commit(struct life *life)
{
    struct store_changes changes = {0};
    struct life_lane *lane = draw_transaction(life, true);
    if (lane == NULL) {
        note(life, "commit", 0, 0);
        return 0;
    }
    note(life, "commit", store_txn_number(lane->txn), 0);
    const int rc = store_txn_commit(lane->txn, &changes);
    if (rc == 0 && changes.lsn != 0) {
        life->durable_op = life->op + 1;
        life->commits++;
    }
    store_changes_free(&changes);
    if (rc == 0 || chance(life, 70)) {
        forget_transaction(lane);
    }
    return rc;
}

static int operate_abort(struct life *life)
{
    struct life_lane *lane = draw_transaction(life, true);
    note(life, "abort", lane != NULL ? store_txn_number(lane->txn) : 0, 0);
    if (lane != NULL) {
        forget_transaction(lane);
    }
    return 0;
}

/* ---- all ---- */

struct operation {
    int (*run)(struct life *life);
    unsigned weight;
};

/* What may be done in a transaction too. */
static const struct operation tree_operations[] = {
    {operate_create, 110},     {operate_mkdir, 25},  {operate_symlink, 10},  {operate_link, 20},
    {operate_unlink, 70},      {operate_rmdir, 8},   {operate_rename, 50},   {operate_setattr, 25},
    {operate_open, 45},        {operate_close, 30},  {operate_truncate, 40}, {operate_setxattr, 25},
    {operate_removexattr, 10}, {operate_write, 230}, {operate_allocate, 30},
};

static const struct operation store_operations[] = {
    {operate_sync, 60},  {operate_step, 25},     {operate_checkpoint, 30}, {operate_holder, 45},
    {operate_reopen, 6}, {operate_snapshot, 25}, {operate_compact, 70},
};

static const struct operation transaction_operations[] = {
    {operate_begin, 40},
    {operate_commit, 30},
    {operate_abort, 5},
};

static int run_one(struct life *life, const struct operation *operations, unsigned count)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < count; i++) {
        sum += operations[i].weight;
    }
    uint64_t luck = below(life, sum);
    unsigned i = 0;
    while (luck >= operations[i].weight) {
        luck -= operations[i++].weight;
    }
    return operations[i].run(life);
}

/* Of 1000: the rest goes to the tree. With transactions each commit syncs. */
#define STORE_SHARE       175u
#define STORE_SHARE_TXN   100u
#define TRANSACTION_SHARE 220u

static int operate(struct life *life)
{
    const uint64_t luck = below(life, 1000);
    const uint64_t store_share = life->transactions ? STORE_SHARE_TXN : STORE_SHARE;
    if (luck < store_share) {
        return run_one(life, store_operations, ARRAY_COUNT(store_operations));
    }
    if (life->transactions && luck < store_share + TRANSACTION_SHARE) {
        return run_one(life, transaction_operations, ARRAY_COUNT(transaction_operations));
    }
    struct life_lane *lane = life->transactions && chance(life, 85) ? draw_transaction(life, true) : NULL;
    life->lane = lane != NULL ? lane : &life->lanes[0];
    const int rc = run_one(life, tree_operations, ARRAY_COUNT(tree_operations));
    life->lane = &life->lanes[0];
    return rc;
}

bool life_operate(struct life *life)
{
    const bool was_writable = store_read_only_reason(life->store) == NULL;
    life->operating = true;
    life->result = operate(life);
    if (life->store == NULL) {
        return false;
    }
    life->may_have_happened = life->result != 0 && was_writable && store_read_only_reason(life->store) != NULL;
    life->epoch = cow_epoch(store_cow(life->store));
    const bool readable = crash_fingerprint(life->store, &life->fingerprints[life->op + 1]) == 0;
    life->op++;
    life->operating = false;
    return readable;
}
