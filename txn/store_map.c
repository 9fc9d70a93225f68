/*
 * txn/store_map.c - free maps from roots (FSM-3): what a relation's trees use, and who builds its map when it is first written.
 *
 * used = reachable from the live root or from any holder's root of the same inode, or on a deadlist, private to a transaction, or pinned.
 *
 *   a relation without a map --a good sidecar--> that is its map (txn/store_sidecar.c)
 *                            --small--> built at once, with the gate held shared: no holder can close, so every tree that is walked
 *                                       stays whole
 *                            --large--> used as it is, at its end; built in the background (txn/store_map_build.c)
 *   a map in doubt ------------------->  the same
 *
 * MAP-1 A map is built at once only for a relation that has none: nobody has allocated in it, and until it is ready nobody does
 *       (store_map_ensure waits). So no block is in a plan, and no tree of it changes meanwhile.
 * MAP-2 A tree that cannot be read costs the map, not the write: what is free in the file is not known then, which is said once.
 *
 * Locking: map_lock for building at once, and for doubting a map; the inode's own content is kept out by its file lock.
 */
#include "txn/store_map.h"
#include "txn/store_sidecar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- block sets ---- */

int block_set_init(struct block_set *set, struct relation *relation)
{
    bool exists = false;
    *set = (struct block_set){.relation = relation};
    int rc = relation_file_exists(relation, &exists);
    if (rc == 0 && exists) {
        rc = relation_file_blocks(relation, &set->blocks);
    }
    if (rc == 0) {
        set->bits = calloc((size_t)set->blocks / 64 + 1, sizeof set->bits[0]);
        rc = set->bits != NULL ? 0 : -ENOMEM;
    }
    return rc;
}

void block_set_free(struct block_set *set)
{
    free(set->bits);
    set->bits = NULL;
}

bool block_set_has(const struct block_set *set, block_no block)
{
    return block < set->blocks && (set->bits[block / 64] >> (block % 64) & 1) != 0;
}

int block_set_add_run(struct block_set *set, block_no first, uint32_t count)
{
    if (first >= set->blocks || count > set->blocks - first) {
        return -EIO;
    }
    for (block_no block = first; block < first + count; block++) {
        set->bits[block / 64] |= UINT64_C(1) << (block % 64);
    }
    return 0;
}

struct set_visit {
    struct block_set *set;
    struct diag *diag;
};

static int set_add_page(void *arg, struct page_ptr ptr, uint8_t level)
{
    (void)level;
    const struct set_visit *visit = arg;
    if (block_set_add_run(visit->set, ptr.block, 1) != 0) {
        return diag_damage(visit->diag, "relation", ptr.block, "block", "relation %llu: pointer beyond its %u blocks",
                           (unsigned long long)relation_number(visit->set->relation), visit->set->blocks);
    }
    return 0;
}

static bool visit_skip(void *arg, struct page_ptr ptr)
{
    const struct block_set *set = ((struct set_visit *)arg)->set;
    return (set->stop != NULL && atomic_load(set->stop)) || block_set_has(set, ptr.block);
}

int block_set_add_content(struct block_set *set, struct diag *diag, const struct content_root *root)
{
    struct set_visit visit = {.set = set, .diag = diag};
    return content_visit(set->relation, root, visit_skip, set_add_page, &visit);
}

int block_set_add_catalog(struct block_set *set, struct diag *diag, const struct catalog_root *root)
{
    struct set_visit visit = {.set = set, .diag = diag};
    return root->height == 0 ? 0 : catalog_visit(set->relation, root, visit_skip, set_add_page, &visit);
}

static int add_run(void *arg, block_no first, uint32_t count)
{
    return block_set_add_run(arg, first, count);
}

int block_set_add_pinned(struct block_set *set, struct cow *cow)
{
    return cow_each_pinned_run(cow, set->relation, add_run, set);
}

/* ---- holders' versions ---- */

struct holder_list {
    struct holder *holders[STORE_MAX_HOLDERS];
    unsigned count;
    bool overflow;
};

static void collect_holder(void *arg, struct holder *holder)
{
    struct holder_list *list = arg;
    if (list->count == STORE_MAX_HOLDERS) {
        list->overflow = true;
        return;
    }
    list->holders[list->count++] = holder;
}

int store_each_version(struct store *store, store_version_fn *fn, void *arg)
{
    struct holder_list list = {.count = 0};
    cow_each_holder(store->cow, collect_holder, &list);
    if (list.overflow) {
        return -EMFILE;
    }
    int rc = fn(arg, store_live(store));
    for (unsigned i = 0; i < list.count && rc == 0; i++) {
        struct view *view = NULL;
        rc = view_open_read_only(store->cow, list.holders[i], &view);
        if (rc == 0) {
            rc = fn(arg, view);
            view_close(view);
        }
    }
    return rc;
}

struct serial_list {
    uint64_t serials[STORE_MAX_HOLDERS];
    unsigned count;
    bool overflow;
};

static void collect_serial(void *arg, struct holder *holder)
{
    struct serial_list *list = arg;
    if (list->count == STORE_MAX_HOLDERS) {
        list->overflow = true;
        return;
    }
    list->serials[list->count++] = cow_holder_serial(holder);
}

static int call_kept(struct store *store, struct holder *holder, store_version_fn *fn, void *arg)
{
    struct view *view = NULL;
    int rc = view_open_read_only(store->cow, holder, &view);
    if (rc == 0) {
        rc = fn(arg, view);
        view_close(view);
    }
    cow_holder_let_go(store->cow, holder);
    return rc;
}

int store_each_kept_version(struct store *store, store_version_fn *fn, void *arg)
{
    struct serial_list list = {.count = 0};
    cow_each_holder(store->cow, collect_serial, &list);
    int rc = list.overflow ? -EMFILE : 0;
    for (unsigned i = 0; i < list.count && rc == 0; i++) {
        struct holder *holder = cow_holder_keep(store->cow, list.serials[i]);
        rc = holder != NULL ? call_kept(store, holder, fn, arg) : 0;
    }
    return rc;
}

/* ---- the tree that a relation has in a version ---- */

int store_relation_owner(struct view *view, rel_no rel, ino_no first, ino_no *out_owner)
{
    struct relation_owner owner;
    const int rc = owner_get(view, rel, &owner);
    *out_owner = rc == 0 ? owner.owner : first;
    return rc == -ENOENT ? 0 : rc;
}

int store_map_root(struct view *view, rel_no rel, ino_no first, struct content_root *out_root, bool *out_has)
{
    struct inode inode;
    ino_no owner = INO_NONE;
    *out_has = false;
    rwlock_lock_shared(&view->catalog_lock);
    int rc = store_relation_owner(view, rel, first, &owner);
    if (rc == 0) {
        rc = inode_get(view, owner, &inode);
    }
    rwlock_unlock_shared(&view->catalog_lock);
    if (rc == 0 && inode.rel == rel) {
        *out_has = true;
        *out_root = store_content_root(&inode);
    }
    return rc == -ENOENT ? 0 : rc;
}

int block_set_add_version(struct block_set *set, struct diag *diag, struct view *view, ino_no first, bool *out_has)
{
    const rel_no rel = relation_number(set->relation);
    struct content_root root;
    if (rel == REL_CATALOG) {
        *out_has = true;
        return block_set_add_catalog(set, diag, &view->root);
    }
    const int rc = store_map_root(view, rel, first, &root, out_has);
    return rc != 0 || !*out_has ? rc : block_set_add_content(set, diag, &root);
}

struct add_versions {
    struct block_set *set;
    struct diag *diag;
    ino_no first;
};

static int add_version(void *arg, struct view *view)
{
    const struct add_versions *add = arg;
    bool has = false;
    return block_set_add_version(add->set, add->diag, view, add->first, &has);
}

int block_set_add_versions(struct block_set *set, struct store *store, ino_no first)
{
    struct add_versions add = {.set = set, .diag = store->diag, .first = first};
    return store_each_version(store, add_version, &add);
}

int block_set_hand_over(const struct block_set *set)
{
    int rc = 0;
    block_no block = 0;
    while (block < set->blocks && rc == 0) {
        block_no end = block;
        while (block_set_has(set, end)) {
            end++;
        }
        rc = end > block ? fsm_build_used(set->relation, block, end - block) : 0;
        block = end + 1;
    }
    return rc;
}

void store_map_report(struct store *store, const struct relation *relation, int rc)
{
    diag_log(store->diag, DIAG_WARNING, "%s: what is free in the file of relation %llu is not known: %s", store->dir,
             (unsigned long long)relation_number(relation), strerror(-rc));
}

/* ---- building at once ---- */

/* new: no tree has it yet. */
static int collect_used(struct store *store, struct block_set *set, ino_no first, bool new)
{
    bool any = false;
    int rc = store_recovery_add_pages(store, set, &any);
    if (rc == 0 && !new) {
        rc = block_set_add_versions(set, store, first);
    }
    if (rc == 0) {
        rc = block_set_add_pinned(set, store->cow);
    }
    return rc == 0 ? block_set_hand_over(set) : rc;
}

static int build_at_once(struct store *store, struct relation *relation, ino_no first, bool new)
{
    struct block_set set;
    int rc = block_set_init(&set, relation);
    if (rc == 0) {
        rc = fsm_build_begin(relation);
    }
    if (rc == 0) {
        cow_gate_enter(store->cow);
        rc = collect_used(store, &set, first, new);
        cow_gate_leave(store->cow);
        if (rc == 0) {
            rc = fsm_build_finish(relation);
        } else {
            fsm_build_abort(relation);
        }
    }
    block_set_free(&set);
    return rc;
}

int store_map_find_first(struct view *view, rel_no rel, ino_no ino, ino_no *out_first)
{
    struct relation_owner owner;
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = owner_get(view, rel, &owner);
    rwlock_unlock_shared(&view->catalog_lock);
    *out_first = rc == 0 ? owner.first : ino;
    return rc == -ENOENT ? 0 : rc;
}

/* map_lock is held. */
static int ensure_locked(struct store *store, struct relation *relation, struct view *view, ino_no ino)
{
    const bool has_none = relation_map(relation) == NULL; /* MAP-1 */
    ino_no first = INO_NONE;
    block_no blocks = 0;
    if (has_none && store_sidecar_load(store, relation, view, ino)) {
        return 0;
    }
    int rc = relation_file_blocks(relation, &blocks);
    if (rc == 0) {
        rc = store_map_find_first(view, relation_number(relation), ino, &first);
    }
    if (rc != 0) {
        return rc;
    }
    if (!has_none || (blocks > FSM_SMALL_BLOCKS && !store->recovering)) {
        store_map_order(store, relation, first);
        return 0;
    }
    rc = build_at_once(store, relation, first, false);
    if (rc != 0 && fsm_build_order(relation)) { /* MAP-2; nobody is told to try again */
        store_map_report(store, relation, rc);
    }
    return 0;
}

int store_map_ensure(struct store *store, struct relation *relation, struct view *view, ino_no ino)
{
    int rc = 0;
    if (fsm_is_open(relation)) {
        return 0;
    }
    mutex_lock(&store->map_lock);
    if (!fsm_is_open(relation)) {
        rc = ensure_locked(store, relation, view, ino);
    }
    mutex_unlock(&store->map_lock);
    return rc;
}

void store_map_doubt(struct store *store, struct relation *relation, ino_no first)
{
    mutex_lock(&store->map_lock);
    if (relation_map(relation) != NULL) {
        fsm_doubt(relation);
        store_map_order(store, relation, first);
    }
    mutex_unlock(&store->map_lock);
}

int store_map_init_new(struct store *store, struct relation *relation, ino_no ino)
{
    relation_set_first_ino(relation, ino);
    return store->recovering ? build_at_once(store, relation, INO_NONE, true) : fsm_init_empty(relation);
}

/* A start waits for it, unless the catalog is very large. */
#define CATALOG_AT_ONCE_BLOCKS 4096u

int store_map_build_catalog(struct store *store)
{
    block_no blocks = 0;
    int rc = relation_file_blocks(store->catalog, &blocks);
    if (rc == 0 && blocks > CATALOG_AT_ONCE_BLOCKS) {
        store_map_order(store, store->catalog, INO_NONE);
    } else if (rc == 0) {
        rc = build_at_once(store, store->catalog, INO_NONE, false);
    }
    return rc;
}
