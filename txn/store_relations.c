/*
 * txn/store_relations.c - tables and the files that they are in, for people: sizes, fill, what is free.
 *
 * RELATIONS-1 Nothing is made, opened, read into the cache, evicted or written for it but pages of the catalog: what the inode says, what
 *             is known in memory, and the size of the file as the filesystem knows it.
 *
 * Locking: the live catalog, shared, for a portion of it at a time; files are looked at and the caller is called without locks. So what comes,
 * goes or changes meanwhile may be listed as before, as after or not at all.
 */
#include "txn/store_path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PORTION_TABLES 256u
#define PORTION_ITEMS  4096u /* items of the catalog looked at under one hold of its lock */

struct listed_table {
    struct inode inode;
    char *path;
};

/* What is collected under one hold of the catalog lock. */
struct portion {
    struct listed_table tables[PORTION_TABLES];
    unsigned count, items;
    struct catalog_key next; /* where the next one begins */
    bool more;
};

static int collect_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct portion *portion = arg;
    if (portion->count == PORTION_TABLES || portion->items == PORTION_ITEMS) {
        portion->next = *key;
        portion->more = true;
        return 1;
    }
    portion->items++;
    if (key->type != ITEM_INODE) {
        return 0;
    }
    struct listed_table *table = &portion->tables[portion->count];
    const int rc = inode_decode(key, value, value_size, &table->inode);
    if (rc == 0 && S_ISREG(table->inode.mode)) {
        portion->count++;
    }
    return rc;
}

static int copy_path(struct view *view, struct listed_table *table)
{
    struct path path;
    path_init(&path);
    const int rc = path_climb(view, table->inode.ino, &path);
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    table->path = strdup(rc == 0 ? path_text(&path) : "");
    return table->path != NULL ? 0 : -ENOMEM;
}

/* From portion->next on. */
static int collect(struct store *store, struct portion *portion)
{
    const struct catalog_key first = portion->next;
    const struct catalog_key last = {.ino = UINT64_MAX, .type = UINT8_MAX, .sub = UINT64_MAX};
    struct view *live = store_live(store);
    struct frame_budget budget;
    portion->count = portion->items = 0;
    portion->more = false;
    int rc = store_read_enter(store, live, &budget);
    if (rc != 0) {
        return rc;
    }
    rc = catalog_scan(live, &first, &last, collect_item, portion);
    rc = rc > 0 ? 0 : rc;
    for (unsigned i = 0; i < portion->count; i++) {
        portion->tables[i].path = NULL;
        if (rc == 0) {
            rc = copy_path(live, &portion->tables[i]);
        }
    }
    store_read_leave(live, &budget);
    return rc;
}

uint64_t store_tree_blocks(const struct content_root *root)
{
    uint64_t blocks = root->leaves;
    uint64_t level = root->leaves;
    for (unsigned height = 1; height < root->height; height++) {
        level = (level + CONTENT_FANOUT - 1) / CONTENT_FANOUT;
        level = level == 0 ? 1 : level; /* holes alone */
        blocks += level;
    }
    return blocks;
}

static void look_at_map(struct relation *relation, struct store_relation *out)
{
    struct fsm_stats stats;
    out->free_known = fsm_is_ready(relation) && fsm_get_stats(relation, &stats) == 0;
    if (out->free_known) {
        out->free_blocks = stats.free_blocks + stats.punched_blocks;
    }
}

static int look_at_file(struct store *store, const struct inode *inode, struct store_relation *out)
{
    struct relation *relation = NULL;
    if (inode->rel == REL_NONE) {
        out->free_known = true;
        return 0;
    }
    int rc = relation_open(store->cache, inode->ts, inode->rel, &relation);
    if (rc != 0) {
        return rc == -EIO ? 0 : rc; /* its tablespace is offline: nothing is known */
    }
    rc = relation_look(relation, &out->file);
    look_at_map(relation, out);
    relation_unref(relation);
    return rc;
}

static int hand_out(struct store *store, const struct listed_table *table, store_relation_fn *fn, void *arg)
{
    const struct inode *inode = &table->inode;
    const struct content_root root = store_content_root(inode);
    struct store_relation relation = {.rel = inode->rel,
                                      .ts = inode->ts,
                                      .ino = inode->ino,
                                      .path = table->path,
                                      .size_bytes = inode->size_bytes,
                                      .leaves = inode->content_leaves,
                                      .live_blocks = store_tree_blocks(&root)};
    const int rc = look_at_file(store, inode, &relation);
    return rc != 0 ? rc : fn(arg, &relation);
}

static int hand_out_portion(struct store *store, struct portion *portion, store_relation_fn *fn, void *arg)
{
    int rc = 0;
    for (unsigned i = 0; i < portion->count; i++) {
        if (rc == 0) {
            rc = hand_out(store, &portion->tables[i], fn, arg);
        }
    }
    return rc;
}

static void free_paths(struct portion *portion)
{
    for (unsigned i = 0; i < portion->count; i++) {
        free(portion->tables[i].path);
    }
}

int store_each_relation(struct store *store, store_relation_fn *fn, void *arg)
{
    struct portion *portion = calloc(1, sizeof *portion);
    if (portion == NULL) {
        return -ENOMEM;
    }
    int rc;
    do {
        rc = collect(store, portion);
        if (rc == 0) {
            rc = hand_out_portion(store, portion, fn, arg);
        }
        free_paths(portion);
    } while (rc == 0 && portion->more);
    free(portion);
    return rc;
}
