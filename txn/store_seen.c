/*
 * txn/store_seen.c - see the header.
 *
 * SEEN-1 Only what left the live tree in earlier lives is on no list: those are blocks of tables whose content the snapshot sees
 *        differently, now as at the start of this life. What leaves while this looks is on a list.
 * SEEN-2 A file goes when no version names its relation and this life did not drop it (the drop removes it, COW-5).
 */
#include "txn/store_seen.h"

#include "base/array.h"
#include "txn/store_map.h"
#include "txn/store_open.h"
#include "txn/store_sidecar.h"

#include <errno.h>
#include <stdlib.h>

struct compare {
    struct view *live; /* of a fork */
    struct view *old;  /* the snapshot's */
    struct block_set shared;
    struct seen_tables *seen;
};

/* Both trees are held, so one block is one page. */
static bool is_shared(void *arg, struct page_ptr ptr)
{
    const struct compare *compare = arg;
    return block_set_has(&compare->shared, ptr.block);
}

static int add_table(struct seen_tables *seen, struct seen_table table)
{
    struct seen_table *tables = array_with_room(seen->tables, seen->count, &seen->capacity, sizeof tables[0]);
    if (tables == NULL) {
        return -ENOMEM;
    }
    seen->tables = tables;
    seen->tables[seen->count++] = table;
    return 0;
}

static int compare_table(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    const struct compare *compare = arg;
    struct inode inode;
    struct content_root root;
    struct seen_table table = {0};
    if (key->type != ITEM_INODE) {
        return 0;
    }
    int rc = inode_decode(key, value, value_size, &inode);
    if (rc != 0 || inode.rel == REL_NONE) {
        return rc;
    }
    table.rel = inode.rel;
    table.ts = inode.ts;
    rc = store_map_find_first(compare->old, inode.rel, inode.ino, &table.first);
    if (rc == 0) {
        rc = store_map_root(compare->live, inode.rel, table.first, &root, &table.is_live);
    }
    const bool same = table.is_live && root.ptr.block == inode.content_ptr.block &&
                      root.ptr.birth == inode.content_ptr.birth && root.ptr.alloc == inode.content_ptr.alloc;
    return rc != 0 || same ? rc : add_table(compare->seen, table);
}

static int compare_views(struct store *store, struct compare *compare)
{
    int rc = block_set_init(&compare->shared, store->catalog);
    if (rc == 0) {
        rc = block_set_add_catalog(&compare->shared, store->diag, &compare->live->root);
    }
    if (rc == 0) {
        rc = catalog_scan_unshared(store->diag, store->catalog, &compare->old->root, is_shared, compare_table, compare);
    }
    block_set_free(&compare->shared);
    return rc;
}

static int compare_with_fork(struct store *store, struct holder *fork, struct holder *holder, struct seen_tables *seen)
{
    struct compare compare = {.seen = seen};
    int rc = view_open_read_only(store->cow, fork, &compare.live);
    if (rc == 0) {
        rc = view_open_read_only(store->cow, holder, &compare.old);
    }
    if (rc == 0) {
        rc = compare_views(store, &compare);
        view_close(compare.old);
    }
    if (compare.live != NULL) {
        view_close(compare.live);
    }
    return rc;
}

int store_seen_compare(struct store *store, struct holder *holder, struct seen_tables *out_seen)
{
    struct holder *fork = NULL;
    struct frame_budget budget;
    int rc = frame_budget_take(store->cache, 2 * STORE_READ_PINS, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    rc = cow_fork(store->cow, HOLDER_MAP, &fork);
    if (rc == 0) {
        rc = compare_with_fork(store, fork, holder, out_seen);
        cow_holder_close(store->cow, fork);
    }
    frame_budget_release(&budget);
    return rc;
}

void store_seen_doubt(struct store *store, const struct seen_tables *seen)
{
    fsm_doubt(store->catalog);
    for (size_t i = 0; i < seen->count; i++) {
        struct relation *relation = NULL;
        if (relation_open(store->cache, seen->tables[i].ts, seen->tables[i].rel, &relation) == 0) {
            fsm_doubt(relation);
            relation_unref(relation);
        }
    }
}

struct naming {
    const struct seen_table *table;
    bool is_named;
};

static int look_for_name(void *arg, struct view *view)
{
    struct naming *naming = arg;
    struct content_root root;
    bool has = false;
    const int rc = store_map_root(view, naming->table->rel, naming->table->first, &root, &has);
    naming->is_named |= has;
    return rc;
}

/* SEEN-2 */
static int remove_unnamed(struct store *store, struct relation *relation, const struct seen_table *table)
{
    struct naming naming = {.table = table, .is_named = cow_relation_is_dropped(store->cow, relation)};
    struct frame_budget budget;
    int rc = frame_budget_take(store->cache, STORE_READ_PINS, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    if (!naming.is_named) {
        rc = look_for_name(&naming, store_live(store));
    }
    if (rc == 0 && !naming.is_named) {
        rc = store_each_kept_version(store, look_for_name, &naming);
    }
    frame_budget_release(&budget);
    return rc != 0 || naming.is_named ? rc : store_remove_file(store, table->ts, table->rel);
}

static int release_table(struct store *store, const struct seen_table *table)
{
    struct relation *relation = NULL;
    int rc = relation_open(store->cache, table->ts, table->rel, &relation);
    if (rc != 0) {
        return rc;
    }
    store_sidecar_forget(store, relation); /* SIDECAR-4; also of one that a transaction may bring back (PUBLISH-5) */
    if (table->is_live) {
        store_map_doubt(store, relation, table->first);
    } else {
        rc = remove_unnamed(store, relation, table);
    }
    relation_unref(relation);
    return rc;
}

int store_seen_release(struct store *store, const struct seen_tables *seen, struct store_job *job)
{
    int rc = 0;
    store_map_doubt(store, store->catalog, INO_NONE);
    for (size_t i = 0; i < seen->count && rc == 0; i++) {
        rc = release_table(store, &seen->tables[i]);
        store_job_add(job, 1);
    }
    return rc;
}
