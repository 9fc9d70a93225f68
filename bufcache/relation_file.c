/*
 * bufcache/relation_file.c - relation files: the cache of their descriptors, and what is done to them.
 *
 * Owns: open descriptors, the syncs of files and of the directories that name them.
 * Invariants:
 *   FILE-1  At most max_open_files descriptors are open; one with I/O under way (file_users) is never closed. A thread
 *           has at most one in use, so waiting for one to become unused cannot hang.
 *   FILE-2  A descriptor with unsynced writes is synced before it is closed.
 *   FILE-3  A failed sync stops the cache for good (bufcache_fail): it is not tried again.
 *   FILE-4  `unsynced` is set after a write ended and before its pages count as written, and taken back before the sync
 *           begins: a sync covers all pages that were written when it was asked for. Who finds `syncing` waits.
 *   FILE-5  A new file's name is durable once its directory was synced after its creation (dirs[].created, synced).
 *   FILE-6  What is unsynced is open (FILE-2), so a sync needs no descriptor and never waits for one; `syncing` keeps the
 *           file from being closed and from being removed.
 * Locking: registry.lock, never over I/O.
 */
#include "bufcache/bufcache_int.h"

#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* So many relations of a tablespace to be synced make one sync of the filesystem first worthwhile. */
#define SYNC_FILESYSTEM_MIN 32u

static struct registry *registry_of(const struct relation *relation)
{
    return &relation->cache->registry;
}

static int file_error(const struct relation *relation, const char *what, int rc)
{
    diag_log(relation->cache->options.diag, DIAG_ERROR, "%s: %s: %s", relation->path, what, strerror(-rc));
    return rc;
}

/* ---- the descriptor cache ---- */

static void lru_add_locked(struct relation *relation)
{
    DL_APPEND2(registry_of(relation)->lru, relation, lru_prev, lru_next);
}

void relation_lru_remove_locked(struct relation *relation)
{
    struct registry *registry = registry_of(relation);
    DL_DELETE2(registry->lru, relation, lru_prev, lru_next);
    relation->file = NULL;
    registry->open_files--;
}

/* A thing of another kind in its place is damage. Errors are reported. */
static int file_look(struct relation *relation, bool *out_exists)
{
    struct bufcache *cache = relation->cache;
    struct io_stat st;
    const int rc = io_stat(cache->options.dev, relation->path, &st);
    if (rc < 0 && rc != -ENOENT)
        return file_error(relation, "stat", rc);
    if (rc == 0 && st.kind != IO_KIND_FILE)
        return diag_damage(cache->options.diag, relation->path, BLOCK_NONE, "kind", "got %s, want a regular file",
                           st.kind == IO_KIND_DIRECTORY ? "a directory" : "a special file");
    *out_exists = rc == 0;
    return 0;
}

static int file_open(struct relation *relation, bool create, struct io_file **out_file)
{
    struct bufcache *cache = relation->cache;
    bool exists;
    int rc = file_look(relation, &exists);
    if (rc < 0)
        return rc;
    if (!exists && !create)
        return diag_damage(cache->options.diag, relation->path, BLOCK_NONE, "file", "got none, want the relation");
    rc = io_open(cache->options.dev, relation->path, IO_READ_WRITE | (create ? IO_CREATE : 0u), out_file);
    if (rc < 0)
        return file_error(relation, "open", rc);
    count_add(&cache->counters.relation_opens, 1);
    if (!exists)
        count_add(&cache->counters.relation_files_created, 1);
    return 0;
}

/* FILE-3. */
static int sync_file(struct relation *relation, struct io_file *file)
{
    const int failed = bufcache_failed(relation->cache);
    if (failed < 0)
        return failed;
    count_add(&relation->cache->counters.syncs, 1);
    const int rc = io_sync(file);
    return rc < 0 ? bufcache_fail(relation->cache, file_error(relation, "sync", rc)) : 0;
}

static void close_file(struct relation *relation, struct io_file *file, bool written)
{
    const int rc = io_close(file);
    if (rc < 0 && written)
        (void)bufcache_fail(relation->cache, file_error(relation, "close", rc));
}

/* Registry lock held; given up and taken again. FILE-2. */
static void close_unused_locked(struct relation *relation)
{
    struct registry *registry = registry_of(relation);
    struct io_file *file = relation->file;
    const bool unsynced = relation->unsynced;
    relation_ref(relation);
    relation_lru_remove_locked(relation);
    registry->open_files++; /* until it is closed */
    relation->file_busy = true;
    relation->syncing = true;
    relation->unsynced = false;
    mutex_unlock(&registry->lock);

    if (unsynced)
        (void)sync_file(relation, file); /* remembered by bufcache_fail */
    close_file(relation, file, unsynced);

    mutex_lock(&registry->lock);
    registry->open_files--;
    relation->file_busy = false;
    relation->syncing = false;
    condvar_broadcast(&registry->change);
    mutex_unlock(&registry->lock);
    relation_unref(relation);
    mutex_lock(&registry->lock);
}

static struct relation *find_unused_locked(struct registry *registry)
{
    struct relation *relation;
    DL_FOREACH2(registry->lru, relation, lru_next)
    {
        if (relation->file_users == 0 && !relation->file_busy && !relation->syncing)
            return relation;
    }
    return NULL;
}

static int sync_tablespace_locked(struct bufcache *cache, struct tablespace *tablespace);
static bool is_worth_one_sync(const struct tablespace *tablespace);

/* FILE-2 for many descriptors at once, so that not each of them costs a sync of its own. */
static void sync_before_closing_locked(struct relation *unused)
{
    struct registry *registry = registry_of(unused);
    if (registry->syncing_all) {
        condvar_wait(&registry->change, &registry->lock);
        return;
    }
    registry->syncing_all = true;
    (void)sync_tablespace_locked(unused->cache, unused->tablespace); /* remembered by bufcache_fail */
    registry->syncing_all = false;
    condvar_broadcast(&registry->change);
}

/* Waits until the file is open (true, one more user) or it is this caller's turn to open it (false, file_busy set). */
static bool use_or_claim_locked(struct relation *relation)
{
    struct registry *registry = registry_of(relation);
    for (;;) {
        if (relation->file_busy) {
            condvar_wait(&registry->change, &registry->lock);
        } else if (relation->file != NULL) {
            relation->file_users++;
            DL_DELETE2(registry->lru, relation, lru_prev, lru_next);
            lru_add_locked(relation);
            return true;
        } else if (registry->open_files < registry->max_open_files) {
            registry->open_files++;
            relation->file_busy = true;
            return false;
        } else {
            struct relation *unused = find_unused_locked(registry);
            if (unused != NULL && unused->unsynced && is_worth_one_sync(unused->tablespace))
                sync_before_closing_locked(unused);
            else if (unused != NULL)
                close_unused_locked(unused);
            else
                condvar_wait(&registry->change, &registry->lock);
        }
    }
}

static int file_get(struct relation *relation, bool create, struct io_file **out_file)
{
    struct registry *registry = registry_of(relation);
    mutex_lock(&registry->lock);
    if (use_or_claim_locked(relation)) {
        *out_file = relation->file;
        mutex_unlock(&registry->lock);
        return 0;
    }
    mutex_unlock(&registry->lock);
    struct io_file *file = NULL;
    const int rc = file_open(relation, create, &file);
    mutex_lock(&registry->lock);
    relation->file_busy = false;
    if (rc == 0) {
        relation->file = file;
        relation->file_users = 1;
        lru_add_locked(relation);
        *out_file = file;
    } else {
        registry->open_files--;
    }
    condvar_broadcast(&registry->change);
    mutex_unlock(&registry->lock);
    return rc;
}

int relation_file_get(struct relation *relation, struct io_file **out_file)
{
    return file_get(relation, false, out_file);
}

void relation_file_put(struct relation *relation, bool written)
{
    struct registry *registry = registry_of(relation);
    mutex_lock(&registry->lock);
    assert(relation->file_users > 0);
    relation->file_users--;
    if (written) {
        relation->unsynced = true;
        relation_list_unsynced_locked(relation);
    }
    if (relation->file_users == 0)
        condvar_broadcast(&registry->change);
    mutex_unlock(&registry->lock);
}

/* ---- size ---- */

/* A part of a block at the end is what an extension left that a kill or a power cut came upon (the filesystem's blocks may
 * be smaller than ours): it counts as not there. */
static int measure(struct relation *relation, struct io_file *file, block_no *out_blocks)
{
    struct io_stat st;
    const int rc = io_stat_file(file, &st);
    if (rc < 0)
        return file_error(relation, "stat", rc);
    if (st.size_bytes / BLOCK_SIZE >= BLOCK_NONE)
        return diag_damage(relation_diag(relation), relation->path, BLOCK_NONE, "size",
                           "got %" PRIu64 " bytes, want less than %" PRIu64, st.size_bytes,
                           (uint64_t)BLOCK_NONE * BLOCK_SIZE);
    *out_blocks = (block_no)(st.size_bytes / BLOCK_SIZE);
    atomic_store_explicit(&relation->blocks, *out_blocks, memory_order_release);
    return 0;
}

int relation_file_blocks(struct relation *relation, block_no *out_blocks)
{
    const uint64_t known = atomic_load_explicit(&relation->blocks, memory_order_acquire);
    if (known != BLOCKS_UNKNOWN) {
        *out_blocks = (block_no)known;
        return 0;
    }
    struct io_file *file;
    int rc = relation_file_get(relation, &file);
    if (rc < 0)
        return rc;
    rc = measure(relation, file, out_blocks);
    relation_file_put(relation, false);
    return rc;
}

int relation_file_exists(struct relation *relation, bool *out_exists)
{
    return file_look(relation, out_exists);
}

static int sidecar_look(struct relation *relation, bool *out_exists)
{
    char path[PATH_MAX];
    struct io_stat st;
    (void)snprintf(path, sizeof path, "%s_fsm", relation->path);
    const int rc = io_stat(relation->cache->options.dev, path, &st);
    if (rc < 0 && rc != -ENOENT)
        return file_error(relation, "stat of its sidecar", rc);
    *out_exists = rc == 0;
    return 0;
}

int relation_look(struct relation *relation, struct relation_file *out_file)
{
    struct io_stat st;
    *out_file = (struct relation_file){.exists = false};
    const int rc = io_stat(relation->cache->options.dev, relation->path, &st);
    if (rc < 0 && rc != -ENOENT)
        return file_error(relation, "stat", rc);
    if (rc == 0)
        *out_file = (struct relation_file){
            .exists = true, .blocks = (block_no)(st.size_bytes / BLOCK_SIZE), .allocated_bytes = st.allocated_bytes};
    return sidecar_look(relation, &out_file->sidecar);
}

int relation_create_file(struct relation *relation)
{
    struct io_file *file;
    int rc = bufcache_failed(relation->cache);
    if (rc == 0)
        rc = file_get(relation, true, &file);
    if (rc < 0)
        return rc;
    struct registry *registry = registry_of(relation);
    mutex_lock(&registry->lock);
    relation->name_created = ++relation->tablespace->dirs[relation->rel % DIR_COUNT].created;
    mutex_unlock(&registry->lock);
    relation_file_put(relation, true);
    return 0;
}

/* A failed allocation may have grown the file part of the way. */
static void shrink_back(struct relation *relation, struct io_file *file, block_no blocks)
{
    struct io_stat st;
    int rc = io_stat_file(file, &st);
    if (rc == 0 && st.size_bytes != (uint64_t)blocks * BLOCK_SIZE)
        rc = io_truncate(file, (uint64_t)blocks * BLOCK_SIZE);
    if (rc < 0)
        (void)file_error(relation, "cut back after a failed extension", rc);
}

static int extend_file(struct relation *relation, struct io_file *file, block_no blocks)
{
    block_no now;
    int rc = relation_file_blocks(relation, &now);
    if (rc < 0 || blocks <= now)
        return rc;
    rc = io_allocate(file, (uint64_t)now * BLOCK_SIZE, (uint64_t)(blocks - now) * BLOCK_SIZE);
    if (rc < 0) {
        shrink_back(relation, file, now);
        return rc;
    }
    atomic_store_explicit(&relation->blocks, blocks, memory_order_release);
    return 0;
}

/* To be changed, unless a write has failed before; relation_file_put. */
static int file_get_to_change(struct relation *relation, struct io_file **out_file)
{
    const int rc = bufcache_failed(relation->cache);
    return rc == 0 ? relation_file_get(relation, out_file) : rc;
}

int relation_extend(struct relation *relation, block_no blocks)
{
    struct io_file *file;
    int rc = file_get_to_change(relation, &file);
    if (rc < 0)
        return rc;
    rc = extend_file(relation, file, blocks);
    relation_file_put(relation, true);
    return rc;
}

int relation_cut(struct relation *relation, block_no blocks)
{
    struct io_file *file;
    block_no now;
    int rc = bufcache_failed(relation->cache);
    if (rc == 0)
        rc = relation_file_blocks(relation, &now);
    if (rc < 0 || now <= blocks)
        return rc;
    rc = relation_file_get(relation, &file);
    if (rc < 0)
        return rc;
    rc = io_truncate(file, (uint64_t)blocks * BLOCK_SIZE);
    if (rc == 0)
        atomic_store_explicit(&relation->blocks, blocks, memory_order_release);
    relation_file_put(relation, true);
    return rc < 0 ? file_error(relation, "truncate", rc) : 0;
}

int relation_punch(struct relation *relation, block_no first, uint32_t count)
{
    struct tablespace *tablespace = relation->tablespace;
    struct io_file *file;
    int rc = bufcache_failed(relation->cache);
    if (rc == 0 && atomic_load_explicit(&tablespace->no_punch, memory_order_relaxed))
        return -EOPNOTSUPP;
    if (rc == 0)
        rc = relation_file_get(relation, &file);
    if (rc < 0)
        return rc;
    rc = io_punch(file, (uint64_t)first * BLOCK_SIZE, (uint64_t)count * BLOCK_SIZE);
    relation_file_put(relation, false); /* a hole that is lost in a power cut costs space only */
    if (rc == -EOPNOTSUPP || rc == -ENOSYS) {
        atomic_store_explicit(&tablespace->no_punch, true, memory_order_relaxed);
        return -EOPNOTSUPP;
    }
    return rc < 0 ? file_error(relation, "punch", rc) : 0;
}

int relation_allocate(struct relation *relation, block_no first, uint32_t count)
{
    struct io_file *file;
    int rc = file_get_to_change(relation, &file);
    if (rc < 0)
        return rc;
    rc = io_allocate(file, (uint64_t)first * BLOCK_SIZE, (uint64_t)count * BLOCK_SIZE);
    relation_file_put(relation, true);
    return rc;
}

/* What the filesystem needs to find the pieces of a large file counts as allocated, and may hide the smallest hole that is punched. */
#define HOLES_SHOW_BLOCKS 65536u

int relation_file_has_holes(struct relation *relation, bool *out_holes)
{
    struct io_file *file;
    struct io_stat st;
    int rc = relation_file_get(relation, &file);
    if (rc < 0)
        return rc;
    rc = io_stat_file(file, &st);
    relation_file_put(relation, false);
    if (rc < 0)
        return file_error(relation, "stat", rc);
    *out_holes = st.allocated_bytes < st.size_bytes || st.size_bytes / BLOCK_SIZE > HOLES_SHOW_BLOCKS;
    return 0;
}

int relation_unlink_file(struct relation *relation)
{
    struct registry *registry = registry_of(relation);
    struct bufcache *cache = relation->cache;
    int rc = bufcache_failed(cache);
    if (rc < 0)
        return rc;
    assert(atomic_load(&relation->dead) && relation_resident(relation) == 0);
    mutex_lock(&registry->lock);
    while (relation->file_users > 0 || relation->file_busy || relation->syncing)
        condvar_wait(&registry->change, &registry->lock);
    struct io_file *file = relation->file;
    if (file != NULL)
        relation_lru_remove_locked(relation);
    relation->unsynced = false;
    relation->name_created = 0;
    atomic_store_explicit(&relation->blocks, BLOCKS_UNKNOWN, memory_order_release);
    mutex_unlock(&registry->lock);

    if (file != NULL)
        close_file(relation, file, false);
    rc = io_unlink(cache->options.dev, relation->path);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return file_error(relation, "unlink", rc);
    count_add(&cache->counters.relation_files_unlinked, 1);
    return 0;
}

/* ---- sync ---- */

/* Waits for a sync under way. When another one is needed it is the caller's from here on: the file, which is open (FILE-6),
 * is neither closed nor removed before finish_sync. NULL: none is needed. */
static struct io_file *claim_sync(struct relation *relation)
{
    struct registry *registry = registry_of(relation);
    struct io_file *file = NULL;
    mutex_lock(&registry->lock);
    while (relation->syncing)
        condvar_wait(&registry->change, &registry->lock);
    if (relation->unsynced) {
        file = relation->file;
        assert(file != NULL);
        relation->file_users++;
        relation->syncing = true;
        relation->unsynced = false;
    }
    mutex_unlock(&registry->lock);
    return file;
}

static void finish_sync(struct relation *relation)
{
    struct registry *registry = registry_of(relation);
    mutex_lock(&registry->lock);
    relation->syncing = false;
    relation->file_users--;
    condvar_broadcast(&registry->change);
    mutex_unlock(&registry->lock);
}

static int sync_data(struct relation *relation)
{
    struct io_file *file = claim_sync(relation);
    if (file == NULL)
        return 0;
    const int rc = sync_file(relation, file);
    finish_sync(relation);
    return rc;
}

static int sync_directory(struct relation *relation)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", relation->path);
    *strrchr(path, '/') = '\0';
    count_add(&relation->cache->counters.syncs, 1);
    const int rc = io_sync_dir(relation->cache->options.dev, path);
    return rc < 0 ? bufcache_fail(relation->cache, file_error(relation, "sync of the directory", rc)) : 0;
}

/* FILE-5. */
static int sync_name(struct relation *relation)
{
    struct registry *registry = registry_of(relation);
    const size_t dir = relation->rel % DIR_COUNT;
    struct tablespace *tablespace = relation->tablespace;
    mutex_lock(&registry->lock);
    while (tablespace->dirs[dir].syncing)
        condvar_wait(&registry->change, &registry->lock);
    const uint64_t created = tablespace->dirs[dir].created;
    const bool needed = relation->name_created > tablespace->dirs[dir].synced && !PLANT(NAMES_NOT_SYNCED);
    tablespace->dirs[dir].syncing = needed;
    mutex_unlock(&registry->lock);
    if (!needed)
        return 0;

    const int rc = sync_directory(relation);

    mutex_lock(&registry->lock);
    tablespace->dirs[dir].syncing = false;
    if (rc == 0)
        tablespace->dirs[dir].synced = created;
    condvar_broadcast(&registry->change);
    mutex_unlock(&registry->lock);
    return rc;
}

int relation_sync(struct relation *relation)
{
    int rc = bufcache_failed(relation->cache);
    if (rc == 0)
        rc = sync_data(relation);
    if (rc == 0)
        rc = sync_name(relation);
    const int failed = bufcache_failed(relation->cache);
    return failed < 0 ? failed : rc;
}

/* ---- many at once ---- */

/* Relations whose files one sync of their filesystem covers. Each is `syncing` meanwhile. */
struct filesystem_sync {
    struct tablespace *tablespace;
    struct relation *relations;  /* by list_next; with the reference that the unsynced list had */
    uint64_t created[DIR_COUNT]; /* names that it covers */
};

static void filesystem_sync_begin_locked(struct registry *registry, struct filesystem_sync *sync)
{
    struct relation *relation;
    struct relation *next;
    DL_FOREACH_SAFE2(registry->unsynced, relation, next, list_next)
    {
        if (relation->tablespace != sync->tablespace || relation->syncing || !relation->unsynced)
            continue;
        relation_unlist_locked(relation);
        relation->syncing = true;
        relation->sync_unsynced = relation->unsynced;
        relation->unsynced = false;
        LL_PREPEND2(sync->relations, relation, sync_next);
    }
    for (size_t i = 0; i < DIR_COUNT; i++)
        sync->created[i] = sync->tablespace->dirs[i].created;
}

/* covered: it succeeded; else they are unsynced again. Gives the lock up for each reference. */
static void filesystem_sync_end_locked(struct registry *registry, struct filesystem_sync *sync, bool covered)
{
    for (size_t i = 0; covered && i < DIR_COUNT; i++) {
        if (sync->tablespace->dirs[i].synced < sync->created[i])
            sync->tablespace->dirs[i].synced = sync->created[i];
    }
    while (sync->relations != NULL) {
        struct relation *relation = sync->relations;
        LL_DELETE2(sync->relations, relation, sync_next);
        relation->syncing = false;
        if (!covered) {
            relation->unsynced |= relation->sync_unsynced;
            relation_list_unsynced_locked(relation);
        }
        mutex_unlock(&registry->lock);
        relation_unref(relation);
        mutex_lock(&registry->lock);
    }
    condvar_broadcast(&registry->change);
}

/* One sync for all unsynced files and names of a tablespace with many. 0 also when the filesystem is not known to do that: then they are
 * as they were. registry->syncing_all is the caller's. */
static int sync_tablespace_locked(struct bufcache *cache, struct tablespace *tablespace)
{
    struct registry *registry = &cache->registry;
    struct filesystem_sync sync = {.tablespace = tablespace};
    filesystem_sync_begin_locked(registry, &sync);
    mutex_unlock(&registry->lock);
    count_add(&cache->counters.syncs, 1);
    const int rc = io_sync_filesystem(tablespace->anchor);
    mutex_lock(&registry->lock);
    filesystem_sync_end_locked(registry, &sync, rc == 0);
    tablespace->no_sync_filesystem = rc == -EOPNOTSUPP;
    return rc == 0 || rc == -EOPNOTSUPP ? 0 : bufcache_fail(cache, rc);
}

static bool is_worth_one_sync(const struct tablespace *tablespace)
{
    return tablespace->listed >= SYNC_FILESYSTEM_MIN && tablespace->anchor != NULL && !tablespace->no_sync_filesystem;
}

static int sync_filesystems_locked(struct bufcache *cache)
{
    int rc = 0;
    for (struct tablespace *tablespace = cache->registry.tablespaces; tablespace != NULL && rc == 0;
         tablespace = tablespace->hh.next) {
        if (is_worth_one_sync(tablespace))
            rc = sync_tablespace_locked(cache, tablespace);
    }
    return rc;
}

/* Syncs the first relation of the unsynced list; back on the list if its file could not even be opened. */
static int sync_first_locked(struct registry *registry)
{
    struct relation *relation = registry->unsynced;
    relation_unlist_locked(relation);
    mutex_unlock(&registry->lock);
    const int rc = relation_sync(relation);
    mutex_lock(&registry->lock);
    if (rc < 0)
        relation_list_unsynced_locked(relation);
    mutex_unlock(&registry->lock);
    relation_unref(relation);
    mutex_lock(&registry->lock);
    return rc;
}

int bufcache_sync_relations(struct bufcache *cache)
{
    struct registry *registry = &cache->registry;
    mutex_lock(&registry->lock);
    while (registry->syncing_all)
        condvar_wait(&registry->change, &registry->lock);
    registry->syncing_all = true;
    int rc = bufcache_failed(cache);
    if (rc == 0)
        rc = sync_filesystems_locked(cache);
    uint32_t count = 0;
    const struct relation *relation;
    DL_COUNT2(registry->unsynced, relation, count, list_next);
    for (; rc == 0 && count > 0 && registry->unsynced != NULL; count--)
        rc = sync_first_locked(registry);
    registry->syncing_all = false;
    condvar_broadcast(&registry->change);
    mutex_unlock(&registry->lock);
    /* A descriptor closed meanwhile may have failed to sync. */
    const int failed = bufcache_failed(cache);
    return failed < 0 ? failed : rc;
}
