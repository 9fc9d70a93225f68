/*
 * txn/store_cleanup.c - what a start clears away: orphans, and relation files that no tree names.
 */
#include "txn/store_map.h"
#include "txn/store_open.h"
#include "txn/store_sidecar.h"

#include "base/array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list of numbers that grows. */
struct number_list {
    uint64_t *numbers;
    size_t count, capacity;
};

static int number_list_add(struct number_list *list, uint64_t number)
{
    uint64_t *numbers = array_with_room(list->numbers, list->count, &list->capacity, sizeof numbers[0]);
    if (numbers == NULL) {
        return -ENOMEM;
    }
    list->numbers = numbers;
    list->numbers[list->count++] = number;
    return 0;
}

/* ---- orphans ---- */

static int collect_orphan(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    (void)value;
    (void)value_size;
    return number_list_add(arg, key->sub);
}

int store_destroy_orphans(struct store *store)
{
    struct number_list orphans = {0};
    struct view *live = store_live(store);
    struct frame_budget budget;
    int rc = store_read_enter(store, live, &budget);
    if (rc != 0) {
        return rc;
    }
    const struct catalog_key first = {.ino = INO_NONE, .type = ITEM_ORPHAN, .sub = 0};
    const struct catalog_key last = {.ino = INO_NONE, .type = ITEM_ORPHAN, .sub = UINT64_MAX};
    rc = catalog_scan(live, &first, &last, collect_orphan, &orphans);
    store_read_leave(live, &budget);
    for (size_t i = 0; i < orphans.count && rc == 0; i++) {
        if (!store_file_mark_orphan(store, live, orphans.numbers[i])) { /* else its last close does it */
            store_destroy_orphan_or_log(store, live, orphans.numbers[i]);
        }
    }
    free(orphans.numbers);
    return rc;
}

/* ---- files that no tree names ---- */

static int collect_relation(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct inode inode;
    if (key->type != ITEM_INODE) {
        return 0;
    }
    const int rc = inode_decode(key, value, value_size, &inode);
    if (rc != 0 || inode.rel == REL_NONE) {
        return rc;
    }
    return number_list_add(arg, inode.rel);
}

static int collect_version(void *arg, struct view *view)
{
    const struct catalog_key first = {.ino = INO_ROOT};
    const struct catalog_key last = {.ino = UINT64_MAX, .type = UINT8_MAX, .sub = UINT64_MAX};
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = catalog_scan(view, &first, &last, collect_relation, arg);
    rwlock_unlock_shared(&view->catalog_lock);
    return rc;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

struct unnamed_scan {
    rel_no below;               /* numbers of this life may be about to be named */
    struct number_list named;   /* sorted */
    struct number_list unnamed; /* of one place */
    struct store *store;
    uint64_t removed;
};

/* File names are relation numbers in 16 hexadecimal digits; anything else is not ours to remove. */
static int judge_file(void *arg, const char *name, enum io_file_kind kind)
{
    struct unnamed_scan *scan = arg;
    char *end = NULL;
    if (kind != IO_KIND_FILE || strlen(name) != 16) {
        return 0;
    }
    const uint64_t rel = strtoull(name, &end, 16);
    if (*end != '\0' || rel == REL_CATALOG || rel == REL_NONE || rel >= scan->below) {
        return 0;
    }
    if (scan->named.count > 0 && bsearch(&rel, scan->named.numbers, scan->named.count, sizeof rel, compare_numbers)) {
        return 0;
    }
    return number_list_add(&scan->unnamed, rel);
}

static int list_files(struct unnamed_scan *scan, const char *dir)
{
    int rc = 0;
    for (unsigned i = 0; i < 256 && rc == 0; i++) {
        char path[STORE_PATH_SIZE];
        (void)snprintf(path, sizeof path, "%s/rel/%02x", dir, i);
        rc = io_list_dir(scan->store->dev, path, judge_file, scan);
    }
    return rc;
}

int store_remove_file(struct store *store, ts_no ts, rel_no rel)
{
    struct relation *relation = NULL;
    int rc = relation_open(store->cache, ts, rel, &relation);
    if (rc != 0) {
        return rc;
    }
    struct drop_result result;
    bufcache_drop_relations(store->cache, &relation, 1, &result);
    store_sidecar_forget(store, relation);
    rc = relation_unlink_file(relation);
    relation_unref(relation);
    return rc;
}

/* What this life dropped goes when nobody reads it any more (COW-5). */
static int remove_unless_dropped(struct store *store, ts_no ts, rel_no rel)
{
    struct relation *relation = NULL;
    int rc = relation_open(store->cache, ts, rel, &relation);
    if (rc != 0) {
        return rc;
    }
    const bool dropped = cow_relation_is_dropped(store->cow, relation);
    relation_unref(relation);
    return dropped ? 0 : store_remove_file(store, ts, rel);
}

static int remove_unnamed_at(void *arg, ts_no ts, const char *dir)
{
    struct unnamed_scan *scan = arg;
    scan->unnamed.count = 0;
    int rc = list_files(scan, dir);
    for (size_t i = 0; i < scan->unnamed.count && rc == 0; i++) {
        rc = remove_unless_dropped(scan->store, ts, scan->unnamed.numbers[i]);
    }
    scan->removed += scan->unnamed.count;
    return rc;
}

int store_remove_unnamed_files(struct store *store)
{
    struct unnamed_scan scan = {.below = store->first_rel, .store = store};
    struct frame_budget budget;
    int rc = frame_budget_take(store->cache, STORE_READ_PINS, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    cow_gate_enter(store->cow);
    rc = store_each_version(store, collect_version, &scan.named);
    cow_gate_leave(store->cow);
    frame_budget_release(&budget);
    if (rc == 0 && scan.named.count > 0) {
        qsort(scan.named.numbers, scan.named.count, sizeof scan.named.numbers[0], compare_numbers);
    }
    if (rc == 0) {
        rc = store_each_place(store, remove_unnamed_at, &scan);
    }
    if (rc == 0 && scan.removed > 0) {
        diag_log(store->diag, DIAG_INFO, "%s: removed %llu relation files left by an unclean end", store->dir,
                 (unsigned long long)scan.removed);
    }
    free(scan.named.numbers);
    free(scan.unnamed.numbers);
    return rc;
}
