/*
 * txn/store_sidecar.c - sidecars of a store: written by a clean close, used up by the first write to their table.
 *
 *   none --clean close, the table was written to and is large--> beside its file --first write in a later life--> none
 *                                                                     |
 *                                       unclean end, drop, see SIDECAR-4 --> none
 *
 * SIDECAR-1 One is believed only in a life that began behind a clean end, if it was written behind a clean end that nothing but clean
 *           ends followed (its epoch: not older than control.sidecar_epoch, not newer than the checkpoint), for this store and
 *           relation, a file of this size and the content root that the table has.
 * SIDECAR-2 Whoever reads one removes it, good or not, before the map changes: from there on the map in memory is the truth, and the
 *           file could only grow old. So what is beside a table is as new as the table.
 * SIDECAR-3 They are written behind the last checkpoint, when that and the named snapshots are all that holds old versions, and are
 *           durable, as are the removals of this life, before the slot with the clean flag is written. A crash before that slot is an
 *           unclean end, and none of them counts.
 * SIDECAR-4 When blocks become free of a relation without a map in memory (a dropped snapshot was the last to see them), its sidecar is
 *           removed.
 * SIDECAR-5 In doubt (one could not be removed or made durable) the clean slot says that none counts: control.sidecar_epoch lies behind
 *           the checkpoint.
 * SIDECAR-6 Behind a clean end no table of at most control.sidecar_threshold blocks has one.
 * SIDECAR-7 It says what the trees reach that the next life has. What is used in the map for another reason is free then: what the log of
 *           this life refers to (COW-4), and what is on a snapshot's list because it is older than the snapshot, which never saw it (it
 *           came into the live tree later, by a commit or a compaction).
 *
 * The catalog has none: each start needs its map, also behind an unclean end, builds it from inner pages, which the first operations
 * read anyway, and would have to write it anew at each close.
 *
 * Locking: the file lock of the table and map_lock for loading; checkpoint_lock for all that a close does. Counters and marks are atomic.
 */
#include "txn/store_sidecar.h"

#include "base/plant.h"
#include "txn/store_map.h"
#include "txn/store_open.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many files and directories to be synced make one sync of the filesystem worthwhile. */
#define SYNC_FILESYSTEM_MIN 32u

void store_sidecars_open(struct store *store, const struct store_options *options)
{
    const struct control *control = &store->control;
    struct sidecars *sidecars = &store->sidecars;
    sidecars->threshold = options->fsm_threshold_given ? options->fsm_threshold : control->fsm_threshold;
    sidecars->unclean = !control->clean && !PLANT(SIDECARS_SURVIVE_CRASHES);
    sidecars->from = sidecars->unclean ? control->epoch + 1 : control->sidecar_epoch;
    sidecars->to = control->epoch;
}

epoch_no store_sidecars_epoch(const struct store *store, const struct control *control)
{
    return store->sidecars.unclean ? cow_epoch(store->cow) : control->sidecar_epoch;
}

void store_sidecars_doubt(struct store *store)
{
    atomic_store(&store->sidecars.in_doubt, true);
}

/* ---- removing ---- */

static void remove_sidecar(struct store *store, const char *path, rel_no rel)
{
    const int rc = fsm_sidecar_remove(store->dev, path);
    if (rc > 0) {
        const unsigned dir = (unsigned)(rel % 256);
        atomic_fetch_or(&store->sidecars.changed_dirs[dir / 64], UINT64_C(1) << (dir % 64));
        atomic_fetch_add(&store->sidecars.removed, 1);
    } else if (rc < 0) {
        diag_log(store->diag, DIAG_WARNING, "%s: could not be removed: %s", path, strerror(-rc));
        store_sidecars_doubt(store);
    }
}

void store_sidecar_forget(struct store *store, struct relation *relation)
{
    char path[FSM_SIDECAR_PATH_BYTES];
    fsm_sidecar_path(relation, path);
    remove_sidecar(store, path, relation_number(relation));
}

/* ---- loading ---- */

static bool is_of_root(const struct fsm_sidecar *sidecar, const struct content_root *root)
{
    return page_ptr_equal(sidecar->root, root->ptr) && sidecar->root_bytes == root->bytes &&
           sidecar->root_leaves == root->leaves && sidecar->root_height == root->height;
}

/* Why it is not believed; NULL: it is (SIDECAR-1). */
static const char *judge(const struct store *store, const struct fsm_sidecar *sidecar, rel_no rel,
                         const struct content_root *root)
{
    const struct sidecars *sidecars = &store->sidecars;
    if (memcmp(sidecar->store_id, store->control.store_id, sizeof sidecar->store_id) != 0) {
        return "of another store";
    }
    if (sidecar->rel != rel) {
        return "of another relation";
    }
    if ((sidecar->epoch < sidecars->from || sidecar->epoch > sidecars->to) && !PLANT(SIDECAR_EPOCH_IGNORED)) {
        return "of another life";
    }
    return is_of_root(sidecar, root) || PLANT(SIDECAR_ROOT_IGNORED) ? NULL : "of another version of the table";
}

int store_sidecar_peek(struct store *store, struct relation *relation, const struct content_root *root,
                       struct fsm_sidecar *out_sidecar, const char **out_why)
{
    char path[FSM_SIDECAR_PATH_BYTES];
    struct fsm_sidecar sidecar;
    block_no blocks = 0;
    fsm_sidecar_path(relation, path);
    int rc = relation_file_blocks(relation, &blocks);
    if (rc == 0) {
        rc = fsm_sidecar_read(store->dev, path, blocks, &sidecar, out_why);
    }
    if (rc != 0) {
        return rc;
    }
    *out_why = judge(store, &sidecar, relation_number(relation), root);
    if (*out_why != NULL) {
        fsm_sidecar_free(&sidecar);
        return -EBADMSG;
    }
    *out_sidecar = sidecar;
    return 0;
}

/* Blocks in a row that are all used or all free, from `first` on. */
static block_no run_end(const struct fsm_sidecar *sidecar, block_no first, bool used)
{
    block_no end = first;
    while (end < sidecar->blocks && (sidecar->words[end / 64] >> (end % 64) & 1) == used) {
        end++;
    }
    return end;
}

static int fill_map(struct relation *relation, const struct fsm_sidecar *sidecar)
{
    int rc = fsm_build_begin(relation);
    if (rc != 0) {
        return rc;
    }
    for (block_no block = 0; block < sidecar->blocks && rc == 0;) {
        const block_no free_end = run_end(sidecar, block, false);
        const block_no used_end = run_end(sidecar, free_end, true);
        rc = used_end > free_end ? fsm_build_used(relation, free_end, used_end - free_end) : 0;
        block = used_end;
    }
    if (rc == 0) {
        return fsm_build_finish(relation);
    }
    fsm_build_abort(relation);
    return rc;
}

/* The inode, and the one that the relation was made for. */
static int look_up(struct view *view, ino_no ino, struct inode *out_inode, ino_no *out_first)
{
    struct relation_owner owner;
    rwlock_lock_shared(&view->catalog_lock);
    int rc = inode_get(view, ino, out_inode);
    if (rc == 0) {
        rc = owner_get(view, out_inode->rel, &owner);
        *out_first = rc == 0 ? owner.first : ino;
        rc = rc == -ENOENT ? 0 : rc;
    }
    rwlock_unlock_shared(&view->catalog_lock);
    return rc;
}

static bool load(struct store *store, struct relation *relation, const struct content_root *root)
{
    struct fsm_sidecar sidecar;
    const char *why = NULL;
    int rc = store_sidecar_peek(store, relation, root, &sidecar, &why);
    if (rc == -ENOENT) {
        return false;
    }
    store_sidecar_forget(store, relation); /* SIDECAR-2 */
    if (rc == 0) {
        rc = fill_map(relation, &sidecar);
        fsm_sidecar_free(&sidecar);
    }
    if (rc != 0) {
        diag_log(store->diag, DIAG_INFO, "%s" FSM_SIDECAR_SUFFIX ": not used: %s", relation_file_path(relation),
                 why != NULL ? why : strerror(-rc));
    }
    atomic_fetch_add(rc == 0 ? &store->sidecars.loaded : &store->sidecars.ignored, 1);
    return rc == 0;
}

bool store_sidecar_load(struct store *store, struct relation *relation, struct view *view, ino_no ino)
{
    struct inode inode;
    ino_no first = INO_NONE;
    if (look_up(view, ino, &inode, &first) != 0) {
        return false; /* whoever builds the map meets the same */
    }
    relation_set_first_ino(relation, first);
    if (store->sidecars.unclean) {
        return false; /* there are none: the start removes them */
    }
    const struct content_root root = store_content_root(&inode);
    return load(store, relation, &root);
}

/* ---- all that there are ---- */

typedef void sidecar_fn(struct store *store, const char *path, rel_no rel);

struct sidecar_list {
    struct store *store;
    const char *dir;
    sidecar_fn *fn;
};

/* RELID_fsm; anything else is none of ours. */
static bool parse_name(const char *name, rel_no *out_rel)
{
    char *end = NULL;
    if (strlen(name) != 16 + strlen(FSM_SIDECAR_SUFFIX) || strspn(name, "0123456789abcdef") < 16) {
        return false;
    }
    *out_rel = strtoull(name, &end, 16);
    return strcmp(name + 16, FSM_SIDECAR_SUFFIX) == 0 && end == name + 16 && *out_rel != REL_NONE;
}

static int judge_name(void *arg, const char *name, enum io_file_kind kind)
{
    const struct sidecar_list *list = arg;
    char path[FSM_SIDECAR_PATH_BYTES];
    rel_no rel = REL_NONE;
    if (kind == IO_KIND_FILE && parse_name(name, &rel)) {
        (void)snprintf(path, sizeof path, "%s/%s", list->dir, name);
        list->fn(list->store, path, rel);
    }
    return 0;
}

struct sidecar_walk {
    struct store *store;
    sidecar_fn *fn;
};

static int each_sidecar_at(void *arg, ts_no ts, const char *place)
{
    const struct sidecar_walk *walk = arg;
    int rc = 0;
    (void)ts;
    for (unsigned i = 0; i < 256 && rc == 0; i++) {
        char dir[STORE_PATH_SIZE];
        (void)snprintf(dir, sizeof dir, "%s/rel/%02x", place, i);
        struct sidecar_list list = {.store = walk->store, .dir = dir, .fn = walk->fn};
        rc = io_list_dir(walk->store->dev, dir, judge_name, &list);
    }
    return rc;
}

static int each_sidecar(struct store *store, sidecar_fn *fn)
{
    struct sidecar_walk walk = {.store = store, .fn = fn};
    return store_each_place(store, each_sidecar_at, &walk);
}

int store_sidecars_remove_all(struct store *store)
{
    return store->sidecars.unclean ? each_sidecar(store, remove_sidecar) : 0;
}

/* ---- is a table large enough? ---- */

struct live_count {
    uint64_t blocks, limit;
};

static int count_block(void *arg, struct page_ptr ptr, uint8_t level)
{
    struct live_count *count = arg;
    (void)ptr;
    (void)level;
    return ++count->blocks > count->limit ? 1 : 0;
}

/* Has the live tree more blocks than the threshold? Looks at no more inner pages than that. */
static int is_large(struct store *store, struct relation *relation, const struct inode *inode, bool *out_large)
{
    const struct content_root root = store_content_root(inode);
    struct live_count count = {.limit = store->sidecars.threshold};
    int rc = root.leaves > count.limit ? 1 : content_visit(relation, &root, NULL, count_block, &count);
    *out_large = rc == 1;
    return rc == 1 ? 0 : rc;
}

/* The table that has the relation in the live tree. -ENOENT: there is none. */
static int find_table(struct store *store, rel_no rel, ino_no first_ino, struct inode *out_inode)
{
    struct view *live = store_live(store);
    ino_no owner = INO_NONE;
    rwlock_lock_shared(&live->catalog_lock);
    int rc = store_relation_owner(live, rel, first_ino, &owner);
    if (rc == 0) {
        rc = inode_get(live, owner, out_inode);
    }
    rwlock_unlock_shared(&live->catalog_lock);
    if (rc == 0 && (out_inode->rel != rel || (out_inode->flags & INODE_DAMAGED) != 0)) {
        rc = -ENOENT;
    }
    return rc;
}

/* ---- the threshold has been raised (SIDECAR-6) ---- */

static bool is_believed(const struct store *store, const struct fsm_sidecar *sidecar, const struct inode *inode)
{
    const struct content_root root = store_content_root(inode);
    return judge(store, sidecar, inode->rel, &root) == NULL;
}

static bool is_allowed(struct store *store, struct relation *relation, const char *path)
{
    struct fsm_sidecar sidecar;
    struct inode inode;
    const char *why = NULL;
    bool exists = false;
    block_no blocks = 0;
    bool large = false;
    int rc = relation_file_exists(relation, &exists);
    if (rc == 0) {
        rc = exists ? relation_file_blocks(relation, &blocks) : -ENOENT;
    }
    if (rc == 0) {
        rc = fsm_sidecar_read(store->dev, path, blocks, &sidecar, &why);
    }
    if (rc != 0) {
        return false;
    }
    if (sidecar.used > store->sidecars.threshold) { /* what is used holds what is live */
        rc = find_table(store, relation_number(relation), sidecar.first_ino, &inode);
        rc = rc == 0 && is_believed(store, &sidecar, &inode) ? is_large(store, relation, &inode, &large) : -EBADMSG;
    }
    fsm_sidecar_free(&sidecar);
    return rc == 0 && large;
}

static void remove_unless_allowed(struct store *store, const char *path, rel_no rel)
{
    struct relation *relation = NULL;
    ts_no ts = TS_DEFAULT;
    int rc = store_tablespace_of_file(store, rel, &ts);
    if (rc == 0) {
        rc = relation_open(store->cache, ts, rel, &relation);
    }
    if (rc != 0 || !is_allowed(store, relation, path)) {
        remove_sidecar(store, path, rel);
    }
    relation_unref(relation);
}

static bool is_threshold_raised(const struct store *store)
{
    return store->sidecars.threshold > store->control.sidecar_threshold;
}

/* ---- writing ---- */

static bool has_map(const struct relation *relation)
{
    return relation_map(relation) != NULL && relation_number(relation) != REL_CATALOG;
}

/* ---- what it says is used (SIDECAR-7) ---- */

static int stop_at_run(void *arg, block_no first, uint32_t count)
{
    (void)arg;
    (void)first;
    (void)count;
    return 1;
}

/* What the live tree and the named snapshots reach takes the place of what the map has. */
static int take_reachable(struct store *store, struct relation *relation, struct fsm_sidecar *sidecar)
{
    struct block_set set;
    int rc = block_set_init(&set, relation);
    if (rc == 0) {
        rc = block_set_add_versions(&set, store, sidecar->first_ino);
    }
    if (rc == 0) {
        sidecar->used = 0;
        for (block_no word = 0; word <= sidecar->blocks / 64; word++) {
            sidecar->words[word] &= set.bits[word];
            sidecar->used += (uint32_t)__builtin_popcountll(sidecar->words[word]);
        }
    }
    block_set_free(&set);
    return rc;
}

static int copy_used(struct store *store, struct relation *relation, struct fsm_sidecar *sidecar)
{
    int rc = fsm_copy_used(relation, &sidecar->words, &sidecar->blocks, &sidecar->used);
    if (rc == 0 && cow_each_pinned_run(store->cow, relation, stop_at_run, sidecar) != 0) {
        rc = take_reachable(store, relation, sidecar);
        if (rc != 0) {
            fsm_sidecar_free(sidecar);
        }
    }
    return rc;
}

/* Writes the sidecar of a relation that should have one. True: it is there, and to be synced. */
static int write_sidecar(struct store *store, struct relation *relation, bool *out_made)
{
    char path[FSM_SIDECAR_PATH_BYTES];
    struct inode inode;
    bool large = false;
    const ino_no first = relation_first_ino(relation);
    int rc = first != INO_NONE ? find_table(store, relation_number(relation), first, &inode) : -ENOENT;
    if (rc == 0) {
        rc = is_large(store, relation, &inode, &large);
    }
    if (rc != 0 || !large) {
        return rc;
    }
    struct fsm_sidecar sidecar = {.rel = relation_number(relation),
                                  .first_ino = first,
                                  .epoch = cow_holder_at(store->durable),
                                  .root = inode.content_ptr,
                                  .root_bytes = inode.size_bytes,
                                  .root_leaves = inode.content_leaves,
                                  .root_height = inode.content_height};
    memcpy(sidecar.store_id, store->control.store_id, sizeof sidecar.store_id);
    rc = copy_used(store, relation, &sidecar);
    if (rc == 0) {
        fsm_sidecar_path(relation, path);
        rc = fsm_sidecar_write(store->dev, path, &sidecar, out_made);
        fsm_sidecar_free(&sidecar);
    }
    return rc;
}

/* What is written goes to the front of the array; returns how many. The others have no sidecar. */
static uint32_t write_each(struct store *store, struct relation **relations, uint32_t count)
{
    uint32_t written = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct relation *relation = relations[i];
        bool made = false;
        const int rc = write_sidecar(store, relation, &made);
        if (rc != 0 && made) {
            store_sidecar_forget(store, relation);
        } else if (made) {
            relations[i] = relations[written];
            relations[written++] = relation;
        }
        if (rc != 0 && rc != -ENOENT && rc != -EAGAIN) {
            diag_log(store->diag, DIAG_WARNING, "%s" FSM_SIDECAR_SUFFIX ": could not be written: %s",
                     relation_file_path(relation), strerror(-rc));
        }
    }
    return written;
}

/* Of all places: in which of them it was is not kept. */
static int sync_changed_dirs_at(void *arg, ts_no ts, const char *place)
{
    struct store *store = arg;
    int rc = 0;
    (void)ts;
    for (unsigned i = 0; i < 256 && rc == 0; i++) {
        if ((atomic_load(&store->sidecars.changed_dirs[i / 64]) >> (i % 64) & 1) != 0) {
            char dir[STORE_PATH_SIZE];
            (void)snprintf(dir, sizeof dir, "%s/rel/%02x", place, i);
            rc = io_sync_dir(store->dev, dir);
        }
    }
    return rc;
}

static int sync_changed_dirs(struct store *store)
{
    return store_each_place(store, sync_changed_dirs_at, store);
}

static uint32_t count_changed_dirs(struct store *store)
{
    uint32_t count = 0;
    for (size_t i = 0; i < ARRAY_COUNT(store->sidecars.changed_dirs); i++) {
        count += (uint32_t)__builtin_popcountll(atomic_load(&store->sidecars.changed_dirs[i]));
    }
    return count;
}

static int sync_each(struct store *store, struct relation *const *written, uint32_t count)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        char path[FSM_SIDECAR_PATH_BYTES];
        fsm_sidecar_path(written[i], path);
        rc = fsm_sidecar_sync(store->dev, path);
    }
    return rc != 0 ? rc : sync_changed_dirs(store);
}

/* `anchor` is the data directory, open since before the first of them was written, or NULL. Tablespaces may be on other filesystems. */
static int sync_all(struct store *store, struct io_file *anchor, struct relation *const *written, uint32_t count)
{
    int rc = -EOPNOTSUPP;
    if (PLANT(SIDECARS_NOT_SYNCED)) {
        return 0;
    }
    if (anchor != NULL && store->tablespaces == NULL && count + count_changed_dirs(store) >= SYNC_FILESYSTEM_MIN) {
        rc = io_sync_filesystem(anchor);
    }
    return rc == -EOPNOTSUPP ? sync_each(store, written, count) : rc;
}

static void write_and_sync(struct store *store, struct relation **relations, uint32_t count)
{
    struct io_file *anchor = NULL;
    if (io_open(store->dev, store->dir, IO_READ_ONLY, &anchor) != 0) {
        anchor = NULL; /* a device that opens no directories */
    }
    const uint32_t written = write_each(store, relations, count);
    const int rc = sync_all(store, anchor, relations, written);
    if (rc != 0) {
        diag_log(store->diag, DIAG_WARNING, "%s: sidecars could not be made durable, none counts: %s", store->dir,
                 strerror(-rc));
        store_sidecars_doubt(store);
    }
    atomic_fetch_add(&store->sidecars.written, written);
    if (anchor != NULL) {
        const int close_rc = io_close(anchor);
        (void)close_rc; /* it was only read */
    }
}

/* Else its live tree is not large either. */
static bool is_file_large(const struct store *store, struct relation *relation)
{
    struct fsm_stats stats;
    return fsm_get_stats(relation, &stats) == 0 && stats.file_blocks > store->sidecars.threshold;
}

void store_sidecar_retain(const struct store *store, struct relation *relation)
{
    if (is_file_large(store, relation)) {
        relation_retain(relation);
    }
}

static bool is_any_file_large(const struct store *store, struct relation *const *relations, uint32_t count)
{
    bool large = false;
    for (uint32_t i = 0; i < count && !large; i++) {
        large = is_file_large(store, relations[i]);
    }
    return large;
}

static void unref_all(struct relation **relations, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        relation_unref(relations[i]);
    }
    free(relations);
}

bool store_sidecars_pending(struct store *store)
{
    if (count_changed_dirs(store) > 0 || is_threshold_raised(store) || !store_snapshots_settled(store)) {
        return true;
    }
    struct relation **relations = NULL;
    const uint32_t count = bufcache_list_relations(store->cache, has_map, &relations);
    const bool pending = is_any_file_large(store, relations, count);
    unref_all(relations, count);
    return pending;
}

bool store_sidecars_want_checkpoint(const struct store *store)
{
    return store->control.sidecar_epoch > cow_holder_at(store->durable);
}

void store_sidecars_write(struct store *store)
{
    struct relation **relations = NULL;
    if (!store_snapshots_settled(store)) {
        store_sidecars_doubt(store); /* what only a dropped snapshot sees is free in the next life */
    }
    if (is_threshold_raised(store) && each_sidecar(store, remove_unless_allowed) != 0) {
        store_sidecars_doubt(store);
    }
    const bool settled = cow_is_settled(store->cow);
    const uint32_t count = settled ? bufcache_list_relations(store->cache, has_map, &relations) : 0;
    write_and_sync(store, relations, count);
    unref_all(relations, count);
}

void store_sidecars_sign(const struct store *store, struct control *control, epoch_no at)
{
    control->sidecar_threshold = store->sidecars.threshold;
    if (atomic_load(&store->sidecars.in_doubt)) {
        control->sidecar_epoch = at + 1; /* SIDECAR-5 */
    }
}
