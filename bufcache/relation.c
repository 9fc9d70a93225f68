/*
 * bufcache/relation.c - tablespaces, and the in-core relations by number.
 *
 * Owns: the registry: which relations and tablespaces are known, reference counts, the list of relations with unsynced
 * writes. An object goes with its last reference, unless it is to be retained; frames and the unsynced list hold references of their own, so
 * that nothing unsynced is forgotten.
 * Invariant: RETAIN-1 What nobody refers to is on the list `idle`, with no open descriptor, no page, not dead; at most RETAINED_MAX, the
 * latest.
 * Locking: registry.lock (LOCK_RANK_RELATIONS), never over I/O. refs may go up, and down but not to 0, without it; from 0 up with it.
 * See also: relation_file.c for descriptors and file operations.
 */
#include "bufcache/bufcache_int.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Longest "/rel/HH/RELID" or "/rel/HH". */
#define RELATION_PATH_TAIL 32u

/* ---- tablespaces ---- */

/* Returns 1 if it was made, 0 if it was there. */
static int make_dir_if_missing(struct io_device *dev, const char *path)
{
    const int rc = io_make_dir(dev, path);
    if (rc == -EEXIST)
        return 0;
    return rc < 0 ? rc : 1;
}

static int make_tablespace_dirs(struct io_device *dev, const char *dir)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/rel", dir);
    const size_t length = strlen(path);
    const int made_rel = make_dir_if_missing(dev, path);
    if (made_rel < 0)
        return made_rel;
    bool made_any = false;
    for (unsigned i = 0; i < DIR_COUNT; i++) {
        (void)snprintf(path + length, sizeof path - length, "/%02x", i);
        const int made = make_dir_if_missing(dev, path);
        if (made < 0)
            return made;
        made_any |= made > 0;
    }
    path[length] = '\0';
    int rc = made_any ? io_sync_dir(dev, path) : 0;
    if (rc == 0 && made_rel)
        rc = io_sync_dir(dev, dir);
    return rc;
}

static struct tablespace *tablespace_find_locked(struct registry *registry, ts_no ts)
{
    struct tablespace *tablespace;
    HASH_FIND(hh, registry->tablespaces, &ts, sizeof ts, tablespace);
    return tablespace;
}

static void tablespace_free(struct tablespace *tablespace)
{
    assert(tablespace->relations == 0);
    if (tablespace->anchor != NULL)
        (void)io_close(tablespace->anchor); /* read-only */
    free(tablespace);
}

/* Adds it unless one of that number is there. Takes over `tablespace`. */
static int tablespace_enter(struct registry *registry, struct tablespace *tablespace)
{
    int rc = 0;
    mutex_lock(&registry->lock);
    const struct tablespace *other = tablespace_find_locked(registry, tablespace->ts);
    if (other != NULL) {
        rc = strcmp(other->path, tablespace->path) == 0 ? 1 : -EEXIST;
    } else {
        HASH_ADD(hh, registry->tablespaces, ts, sizeof tablespace->ts, tablespace);
        if (tablespace->hh.tbl == NULL)
            rc = -ENOMEM;
    }
    mutex_unlock(&registry->lock);
    if (rc != 0)
        tablespace_free(tablespace);
    return rc < 0 ? rc : 0;
}

static struct tablespace *tablespace_make(ts_no ts, const char *dir)
{
    const size_t length = strlen(dir);
    struct tablespace *tablespace = calloc(1, sizeof *tablespace + length + 1);
    if (tablespace != NULL) {
        tablespace->ts = ts;
        memcpy(tablespace->path, dir, length + 1);
    }
    return tablespace;
}

int bufcache_tablespace_add(struct bufcache *cache, ts_no ts, const char *dir)
{
    if (strlen(dir) + RELATION_PATH_TAIL > PATH_MAX)
        return -ENAMETOOLONG;
    const int rc = make_tablespace_dirs(cache->options.dev, dir);
    if (rc < 0) {
        diag_log(cache->options.diag, DIAG_ERROR, "%s: cannot make the relation directories: %s", dir, strerror(-rc));
        return rc;
    }
    struct tablespace *tablespace = tablespace_make(ts, dir);
    if (tablespace == NULL)
        return -ENOMEM;
    /* Without it (a device that opens no directories) each file is synced by itself. */
    if (io_open(cache->options.dev, dir, IO_READ_ONLY, &tablespace->anchor) < 0)
        tablespace->anchor = NULL;
    return tablespace_enter(&cache->registry, tablespace);
}

int bufcache_tablespace_add_offline(struct bufcache *cache, ts_no ts, const char *dir)
{
    struct tablespace *tablespace = tablespace_make(ts, dir);
    if (tablespace == NULL)
        return -ENOMEM;
    tablespace->offline = true;
    return tablespace_enter(&cache->registry, tablespace);
}

/* Takes those off the list that no relation belongs to any more. */
static struct tablespace *take_unused_locked(struct registry *registry)
{
    struct tablespace *unused = NULL;
    for (struct tablespace **link = &registry->removed; *link != NULL;) {
        struct tablespace *tablespace = *link;
        if (tablespace->relations > 0) {
            link = &tablespace->next_removed;
            continue;
        }
        *link = tablespace->next_removed;
        tablespace->next_removed = unused;
        unused = tablespace;
    }
    return unused;
}

static void free_tablespaces(struct tablespace *list)
{
    while (list != NULL) {
        struct tablespace *tablespace = list;
        list = tablespace->next_removed;
        tablespace_free(tablespace);
    }
}

void bufcache_tablespace_remove(struct bufcache *cache, ts_no ts)
{
    struct registry *registry = &cache->registry;
    mutex_lock(&registry->lock);
    struct tablespace *tablespace = tablespace_find_locked(registry, ts);
    if (tablespace != NULL) {
        HASH_DEL(registry->tablespaces, tablespace);
        tablespace->next_removed = registry->removed;
        registry->removed = tablespace;
    }
    struct tablespace *unused = take_unused_locked(registry);
    mutex_unlock(&registry->lock);
    free_tablespaces(unused);
}

/* ---- relations ---- */

static struct relation *relation_create(struct bufcache *cache, struct tablespace *tablespace, rel_no rel)
{
    const size_t size = strlen(tablespace->path) + RELATION_PATH_TAIL;
    struct relation *relation = calloc(1, sizeof *relation + size);
    if (relation == NULL)
        return NULL;
    relation->cache = cache;
    relation->tablespace = tablespace;
    relation->rel = rel;
    atomic_init(&relation->refs, 1);
    atomic_init(&relation->blocks, BLOCKS_UNKNOWN);
    (void)snprintf(relation->path, size, "%s/rel/%02x/%016" PRIx64, tablespace->path, (unsigned)(rel % DIR_COUNT), rel);
    return relation;
}

/* A reference to one that may have none (RETAIN-1). */
static void ref_found_locked(struct registry *registry, struct relation *relation)
{
    if (atomic_load(&relation->refs) == 0) {
        DL_DELETE2(registry->idle, relation, list_prev, list_next);
        registry->idle_count--;
    }
    relation_ref(relation);
}

static int relation_open_locked(struct bufcache *cache, ts_no ts, rel_no rel, struct relation **out_relation)
{
    struct registry *registry = &cache->registry;
    struct tablespace *tablespace = tablespace_find_locked(registry, ts);
    if (tablespace == NULL)
        return -ENOENT;
    if (tablespace->offline)
        return -EIO;
    struct relation *relation;
    HASH_FIND(hh, registry->relations, &rel, sizeof rel, relation);
    if (relation != NULL) {
        if (relation->tablespace != tablespace && strcmp(relation->tablespace->path, tablespace->path) != 0)
            return -EEXIST;
        ref_found_locked(registry, relation);
    } else {
        relation = relation_create(cache, tablespace, rel);
        if (relation == NULL)
            return -ENOMEM;
        HASH_ADD(hh, registry->relations, rel, sizeof relation->rel, relation);
        if (relation->hh.tbl == NULL) {
            free(relation);
            return -ENOMEM;
        }
        tablespace->relations++;
    }
    *out_relation = relation;
    return 0;
}

int relation_open(struct bufcache *cache, ts_no ts, rel_no rel, struct relation **out_relation)
{
    if (rel == REL_NONE)
        return -EINVAL;
    mutex_lock(&cache->registry.lock);
    const int rc = relation_open_locked(cache, ts, rel, out_relation);
    mutex_unlock(&cache->registry.lock);
    if (rc == -EIO)
        diag_log(cache->options.diag, DIAG_WARNING,
                 "relation %016" PRIx64 " cannot be read: tablespace %" PRIu32 " is offline", rel, ts);
    if (rc == -EEXIST)
        diag_log(cache->options.diag, DIAG_ERROR, "relation %016" PRIx64 " is not in tablespace %" PRIu32, rel, ts);
    return rc;
}

int relation_find_tablespace(struct bufcache *cache, rel_no rel, ts_no *out_ts)
{
    struct relation *relation;
    mutex_lock(&cache->registry.lock);
    HASH_FIND(hh, cache->registry.relations, &rel, sizeof rel, relation);
    if (relation != NULL)
        *out_ts = relation->tablespace->ts;
    mutex_unlock(&cache->registry.lock);
    return relation != NULL ? 0 : -ENOENT;
}

void relation_ref(struct relation *relation)
{
    atomic_fetch_add_explicit(&relation->refs, 1, memory_order_relaxed);
}

/* Gives back a reference that is not the last one. */
static bool unref_not_last(struct relation *relation)
{
    uint32_t refs = atomic_load_explicit(&relation->refs, memory_order_relaxed);
    while (refs > 1)
        if (atomic_compare_exchange_weak_explicit(&relation->refs, &refs, refs - 1, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static void relation_free(struct relation *relation)
{
    void *map = atomic_load_explicit(&relation->map, memory_order_acquire);
    if (map != NULL)
        relation->map_destroy(map);
    free(relation);
}

/* Takes one that nobody refers to out of the registry. */
static void forget_locked(struct registry *registry, struct relation *relation)
{
    HASH_DEL(registry->relations, relation);
    relation->tablespace->relations--;
}

/* RETAIN-1. Returns the one that goes instead, or NULL. */
static struct relation *retain_locked(struct registry *registry, struct relation *relation)
{
    DL_APPEND2(registry->idle, relation, list_prev, list_next);
    if (++registry->idle_count <= RETAINED_MAX)
        return NULL;
    struct relation *oldest = registry->idle;
    DL_DELETE2(registry->idle, oldest, list_prev, list_next);
    registry->idle_count--;
    forget_locked(registry, oldest);
    return oldest;
}

static void close_file_of(struct bufcache *cache, rel_no rel, struct io_file *file)
{
    /* Nothing unsynced is lost here: with unsynced writes it would be on the list, or it is dead. */
    const int rc = file != NULL ? io_close(file) : 0;
    if (rc < 0)
        diag_log(cache->options.diag, DIAG_WARNING, "relation %016" PRIx64 ": close: %s", rel, strerror(-rc));
}

void relation_unref(struct relation *relation)
{
    if (relation == NULL || unref_not_last(relation))
        return;
    struct registry *registry = &relation->cache->registry;
    mutex_lock(&registry->lock);
    if (atomic_fetch_sub_explicit(&relation->refs, 1, memory_order_acq_rel) > 1) {
        mutex_unlock(&registry->lock);
        return;
    }
    assert(atomic_load(&relation->resident) == 0);
    assert(!relation->listed && relation->file_users == 0 && !relation->file_busy && !relation->syncing);
    struct bufcache *cache = relation->cache;
    const rel_no rel = relation->rel;
    struct io_file *file = relation->file;
    struct relation *gone = relation;
    if (file != NULL)
        relation_lru_remove_locked(relation);
    if (atomic_load(&relation->retained) && !atomic_load(&relation->dead))
        gone = retain_locked(registry, relation);
    else
        forget_locked(registry, relation);
    mutex_unlock(&registry->lock); /* from here on it may be anybody's */
    close_file_of(cache, rel, file);
    if (gone != NULL)
        relation_free(gone);
}

void relation_retain(struct relation *relation)
{
    atomic_store(&relation->retained, true);
}

rel_no relation_number(const struct relation *relation)
{
    return relation->rel;
}

ts_no relation_tablespace(const struct relation *relation)
{
    return relation->tablespace->ts;
}

struct diag *relation_diag(const struct relation *relation)
{
    struct bufcache *cache = relation->cache;
    return atomic_load_explicit(&relation->quiet, memory_order_relaxed) ? &cache->silent : cache->options.diag;
}

void relation_set_quiet(struct relation *relation, bool quiet)
{
    atomic_store_explicit(&relation->quiet, quiet, memory_order_relaxed);
}

const char *relation_file_path(const struct relation *relation)
{
    return relation->path;
}

uint32_t relation_resident(const struct relation *relation)
{
    return atomic_load_explicit(&relation->resident, memory_order_acquire);
}

void *relation_set_map(struct relation *relation, void *map, void (*destroy)(void *map))
{
    struct registry *registry = &relation->cache->registry;
    mutex_lock(&registry->lock);
    void *installed = atomic_load_explicit(&relation->map, memory_order_relaxed);
    if (installed == NULL) {
        installed = map;
        relation->map_destroy = destroy;
        atomic_store_explicit(&relation->map, map, memory_order_release);
    }
    mutex_unlock(&registry->lock);
    return installed;
}

void *relation_map(const struct relation *relation)
{
    return atomic_load_explicit(&relation->map, memory_order_acquire);
}

void relation_set_referenced(struct relation *relation, epoch_no epoch)
{
    atomic_store_explicit(&relation->referenced, epoch, memory_order_release);
}

void relation_set_shared_at(struct relation *relation, epoch_no epoch)
{
    epoch_no before = atomic_load(&relation->shared_at);
    while (before < epoch && !atomic_compare_exchange_weak(&relation->shared_at, &before, epoch)) {
    }
}

epoch_no relation_shared_at(const struct relation *relation)
{
    return atomic_load_explicit(&relation->shared_at, memory_order_acquire);
}

void relation_set_first_ino(struct relation *relation, ino_no ino)
{
    atomic_store(&relation->first_ino, ino);
}

ino_no relation_first_ino(const struct relation *relation)
{
    return atomic_load(&relation->first_ino);
}

epoch_no relation_referenced(const struct relation *relation)
{
    return atomic_load_explicit(&relation->referenced, memory_order_acquire);
}

/* ---- the unsynced list ---- */

void relation_list_unsynced_locked(struct relation *relation)
{
    if (relation->listed || atomic_load(&relation->dead))
        return;
    relation->listed = true;
    relation->tablespace->listed++;
    relation_ref(relation);
    DL_APPEND2(relation->cache->registry.unsynced, relation, list_prev, list_next);
}

void relation_unlist_locked(struct relation *relation)
{
    assert(relation->listed);
    relation->listed = false;
    relation->tablespace->listed--;
    DL_DELETE2(relation->cache->registry.unsynced, relation, list_prev, list_next);
}

void relation_mark_dead(struct relation *relation)
{
    struct registry *registry = &relation->cache->registry;
    mutex_lock(&registry->lock);
    atomic_store(&relation->dead, true);
    const bool listed = relation->listed;
    if (listed)
        relation_unlist_locked(relation);
    mutex_unlock(&registry->lock);
    if (listed)
        relation_unref(relation);
}

/* ---- life of the registry ---- */

void registry_init(struct registry *registry, uint32_t max_open_files)
{
    mutex_init(&registry->lock, LOCK_RANK_RELATIONS);
    condvar_init(&registry->change);
    registry->max_open_files = max_open_files;
}

void registry_destroy(struct bufcache *cache)
{
    struct registry *registry = &cache->registry;
    while (registry->unsynced != NULL) {
        struct relation *relation = registry->unsynced;
        mutex_lock(&registry->lock);
        relation_unlist_locked(relation);
        mutex_unlock(&registry->lock);
        relation_unref(relation);
    }
    while (registry->idle != NULL) {
        struct relation *relation = registry->idle;
        DL_DELETE2(registry->idle, relation, list_prev, list_next);
        forget_locked(registry, relation);
        relation_free(relation);
    }
    assert(registry->relations == NULL);
    struct tablespace *tablespace, *next;
    HASH_ITER(hh, registry->tablespaces, tablespace, next)
    {
        HASH_DEL(registry->tablespaces, tablespace);
        tablespace_free(tablespace);
    }
    free_tablespaces(take_unused_locked(registry));
    assert(registry->removed == NULL);
    condvar_destroy(&registry->change);
    mutex_destroy(&registry->lock);
}

uint32_t bufcache_list_relations(struct bufcache *cache, bool (*wanted)(const struct relation *relation),
                                 struct relation ***out_relations)
{
    struct registry *registry = &cache->registry;
    uint32_t count = 0;
    mutex_lock(&registry->lock);
    for (const struct relation *relation = registry->relations; relation != NULL; relation = relation->hh.next)
        count += !atomic_load(&relation->dead) && wanted(relation);
    struct relation **relations = count > 0 ? malloc(count * sizeof(struct relation *)) : NULL;
    uint32_t taken = 0;
    for (struct relation *relation = registry->relations; relation != NULL && relations != NULL && taken < count;
         relation = relation->hh.next) {
        if (!atomic_load(&relation->dead) && wanted(relation)) {
            ref_found_locked(registry, relation);
            relations[taken++] = relation;
        }
    }
    mutex_unlock(&registry->lock);
    *out_relations = relations;
    return taken;
}
