/*
 * txn/store_map.c - building free maps from roots (FSM-3), and the set of blocks that a relation's trees use.
 *
 * used = reachable from the live root or from any holder's root of the same inode, or on a deadlist, or private to a
 * transaction. The gate is held (shared) meanwhile: no holder can close, so every tree that is walked stays whole. The
 * inode's own content is kept out by its file lock (a transaction's view has a lock of its own for it: building is one at a time). A relation without a map has nothing on any deadlist: whoever
 * retires a block has a map first.
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
    return block_set_has(((struct set_visit *)arg)->set, ptr.block);
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

/* ---- building ---- */

struct build_arg {
    struct store *store;
    struct block_set *set;
    ino_no first; /* inode that the relation was made for */
};

/* Who has it in the view? */
int store_relation_owner(struct view *view, rel_no rel, ino_no first, ino_no *out_owner)
{
    struct relation_owner owner;
    const int rc = owner_get(view, rel, &owner);
    *out_owner = rc == 0 ? owner.owner : first;
    return rc == -ENOENT ? 0 : rc;
}

/* Adds what one version of the inode uses in this relation. */
static int build_add_version(void *arg, struct view *view)
{
    const struct build_arg *build = arg;
    struct inode inode;
    int rc = 0;
    ino_no owner = INO_NONE;
    rwlock_lock_shared(&view->catalog_lock);
    rc = store_relation_owner(view, relation_number(build->set->relation), build->first, &owner);
    if (rc == 0) {
        rc = inode_get(view, owner, &inode);
    }
    rwlock_unlock_shared(&view->catalog_lock);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (inode.rel != relation_number(build->set->relation)) {
        return 0;
    }
    const struct content_root root = store_content_root(&inode);
    return block_set_add_content(build->set, build->store->diag, &root);
}

static int build_add_catalog(void *arg, struct view *view)
{
    const struct build_arg *build = arg;
    return block_set_add_catalog(build->set, build->store->diag, &view->root);
}

/* Hands the set to the map, run by run. */
static int build_hand_over(const struct block_set *set)
{
    int rc = 0;
    block_no block = 0;
    while (block < set->blocks && rc == 0) {
        if (!block_set_has(set, block)) {
            block++;
            continue;
        }
        block_no end = block + 1;
        while (block_set_has(set, end)) {
            end++;
        }
        rc = fsm_build_used(set->relation, block, end - block);
        block = end;
    }
    return rc;
}

static int build_map(struct store *store, struct relation *relation, ino_no first, store_version_fn *add_version)
{
    struct block_set set;
    int rc = block_set_init(&set, relation);
    if (rc == 0) {
        rc = fsm_build_begin(relation);
    }
    if (rc != 0) {
        block_set_free(&set);
        return rc;
    }
    struct build_arg build = {.store = store, .set = &set, .first = first};
    bool any = false;
    rc = store_recovery_add_pages(store, &set, &any);
    if (rc == 0 && add_version != NULL) {
        rc = store_each_version(store, add_version, &build);
    }
    if (rc == 0) {
        rc = block_set_add_pinned(&set, store->cow);
    }
    if (rc == 0) {
        rc = build_hand_over(&set);
    }
    if (rc == 0) {
        rc = fsm_build_finish(relation);
    } else {
        fsm_build_abort(relation);
    }
    block_set_free(&set);
    return rc;
}

/* The inode that the relation was made for, as the view of one that has it now knows. */
static int find_first(struct view *view, rel_no rel, ino_no ino, ino_no *out_first)
{
    struct relation_owner owner;
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = owner_get(view, rel, &owner);
    rwlock_unlock_shared(&view->catalog_lock);
    *out_first = rc == 0 ? owner.first : ino;
    return rc == -ENOENT ? 0 : rc;
}

static int build_content_map(struct store *store, struct relation *relation, struct view *view, ino_no ino)
{
    ino_no first = INO_NONE;
    const int rc = find_first(view, relation_number(relation), ino, &first);
    return rc != 0 ? rc : build_map(store, relation, first, build_add_version);
}

/* Transactions may be writing in the relation, under file locks of their own: they are kept out. */
int store_map_rebuild(struct store *store, struct relation *relation, struct view *view, ino_no ino)
{
    mutex_lock(&store->map_lock);
    cow_gate_close(store->cow);
    const int rc = build_content_map(store, relation, view, ino);
    cow_gate_open(store->cow);
    mutex_unlock(&store->map_lock);
    return rc;
}

/* While there is no map nobody writes in the relation; another view may be about to build it. */
int store_map_ensure(struct store *store, struct relation *relation, struct view *view, ino_no ino)
{
    int rc = 0;
    if (fsm_is_ready(relation)) {
        return 0;
    }
    mutex_lock(&store->map_lock);
    if (!fsm_is_ready(relation) && !store_sidecar_load(store, relation, view, ino)) {
        cow_gate_enter(store->cow);
        rc = build_content_map(store, relation, view, ino);
        cow_gate_leave(store->cow);
    }
    mutex_unlock(&store->map_lock);
    return rc;
}

int store_map_rebuild_catalog(struct store *store)
{
    cow_gate_close(store->cow);
    const int rc = build_map(store, store->catalog, INO_NONE, build_add_catalog);
    cow_gate_open(store->cow);
    return rc;
}

int store_map_init_new(struct store *store, struct relation *relation, ino_no ino)
{
    relation_set_first_ino(relation, ino);
    if (!store->recovering) {
        return fsm_init_empty(relation);
    }
    cow_gate_enter(store->cow);
    const int rc = build_map(store, relation, INO_NONE, NULL);
    cow_gate_leave(store->cow);
    return rc;
}

int store_map_build_catalog(struct store *store)
{
    cow_gate_enter(store->cow);
    const int rc = build_map(store, store->catalog, INO_NONE, build_add_catalog);
    cow_gate_leave(store->cow);
    return rc;
}
