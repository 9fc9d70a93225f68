/*
 * fusefs/nodes.c - see the header.
 *
 * Two hash tables over the same nodes: by id for what the kernel asks, by (view, inode) for what lookups find.
 */
#include "fusefs/nodes.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define VIEW_ID_VIRTUAL UINT64_MAX

/* Hashed and compared as bytes: no padding. */
struct node_key {
    uint64_t view_id;
    ino_no ino;
};

struct node {
    uint64_t id;
    struct node_key key;
    struct view *view;
    uint32_t type;
    uint64_t lookups;
    struct open_file *open;  /* NULL: not open */
    struct store_attr *last; /* of a directory that may be removed; NULL: not known */
    UT_hash_handle by_id;
    UT_hash_handle by_key;
};

struct node_table {
    struct mutex lock;
    struct node *nodes_by_id; /* all below: guarded by lock */
    struct node *nodes_by_key;
    uint64_t next_id;
    uint64_t open_files;
};

static struct node_key key_of(struct view *view, ino_no ino)
{
    return (struct node_key){.view_id = view == NODE_VIEW_VIRTUAL ? VIEW_ID_VIRTUAL : view->id, .ino = ino};
}

static struct node *find_by_id_locked(struct node_table *table, uint64_t id)
{
    struct node *node = NULL;
    HASH_FIND(by_id, table->nodes_by_id, &id, sizeof id, node);
    return node;
}

static struct node *find_by_key_locked(struct node_table *table, const struct node_key *key)
{
    struct node *node = NULL;
    HASH_FIND(by_key, table->nodes_by_key, key, sizeof *key, node);
    return node;
}

/* uthash leaves an item that it could not add with a NULL table in its handle. */
static bool insert_locked(struct node_table *table, struct node *node)
{
    HASH_ADD(by_id, table->nodes_by_id, id, sizeof node->id, node);
    if (node->by_id.tbl == NULL)
        return false;
    HASH_ADD(by_key, table->nodes_by_key, key, sizeof node->key, node);
    if (node->by_key.tbl != NULL)
        return true;
    HASH_DELETE(by_id, table->nodes_by_id, node);
    return false;
}

static void remove_locked(struct node_table *table, struct node *node)
{
    HASH_DELETE(by_id, table->nodes_by_id, node);
    HASH_DELETE(by_key, table->nodes_by_key, node);
    free(node->last);
    free(node);
}

/* NODE-3. */
static void remove_if_unused_locked(struct node_table *table, struct node *node)
{
    if (node->lookups == 0 && node->open == NULL && node->id != NODE_ID_ROOT)
        remove_locked(table, node);
}

static struct node *make_locked(struct node_table *table, struct view *view, const struct node_key *key, uint32_t type)
{
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return NULL;
    node->id = table->next_id;
    node->key = *key;
    node->view = view;
    node->type = type;
    if (!insert_locked(table, node)) {
        free(node);
        return NULL;
    }
    table->next_id++;
    return node;
}

int node_table_new(struct view *root_view, struct node_table **out_table)
{
    struct node_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return -ENOMEM;
    mutex_init(&table->lock, LOCK_RANK_NODES);
    table->next_id = NODE_ID_ROOT;
    const struct node_key key = key_of(root_view, INO_ROOT);
    mutex_lock(&table->lock);
    const struct node *root = make_locked(table, root_view, &key, S_IFDIR);
    mutex_unlock(&table->lock);
    if (root == NULL) {
        node_table_free(table);
        return -ENOMEM;
    }
    *out_table = table;
    return 0;
}

void node_table_free(struct node_table *table)
{
    struct node *node, *next;
    assert(table->open_files == 0);
    HASH_ITER(by_id, table->nodes_by_id, node, next)
    {
        remove_locked(table, node);
    }
    mutex_destroy(&table->lock);
    free(table);
}

int node_find(struct node_table *table, uint64_t id, struct node_identity *out_identity)
{
    mutex_lock(&table->lock);
    const struct node *node = find_by_id_locked(table, id);
    if (node != NULL)
        *out_identity = (struct node_identity){.id = id, .view = node->view, .ino = node->key.ino, .type = node->type};
    mutex_unlock(&table->lock);
    return node == NULL ? -ESTALE : 0;
}

int node_enter(struct node_table *table, struct view *view, ino_no ino, uint32_t type, uint64_t *out_id)
{
    const struct node_key key = key_of(view, ino);
    int rc = -ENOMEM;
    mutex_lock(&table->lock);
    struct node *node = find_by_key_locked(table, &key);
    if (node == NULL)
        node = make_locked(table, view, &key, type & S_IFMT);
    if (node != NULL) {
        node->lookups++;
        *out_id = node->id;
        rc = 0;
    }
    mutex_unlock(&table->lock);
    return rc;
}

void node_forget(struct node_table *table, uint64_t id, uint64_t count)
{
    mutex_lock(&table->lock);
    struct node *node = find_by_id_locked(table, id);
    if (node != NULL) {
        /* The kernel's word is input: more than was counted is taken as all. The root's count is not kept. */
        node->lookups = count < node->lookups ? node->lookups - count : 0;
        remove_if_unused_locked(table, node);
    }
    mutex_unlock(&table->lock);
}

void node_note_last(struct node_table *table, struct view *view, const struct store_attr *attr)
{
    const struct node_key key = key_of(view, attr->ino);
    mutex_lock(&table->lock);
    struct node *node = find_by_key_locked(table, &key);
    if (node != NULL && node->last == NULL)
        node->last = malloc(sizeof *node->last);
    if (node != NULL && node->last != NULL) {
        *node->last = *attr;
        node->last->nlink = 0;
    }
    mutex_unlock(&table->lock);
}

bool node_last_attr(struct node_table *table, uint64_t id, struct store_attr *out_attr)
{
    mutex_lock(&table->lock);
    const struct node *node = find_by_id_locked(table, id);
    const bool known = node != NULL && node->last != NULL;
    if (known)
        *out_attr = *node->last;
    mutex_unlock(&table->lock);
    return known;
}

struct open_file *node_open_use(struct node_table *table, uint64_t id)
{
    struct open_file *open = NULL;
    mutex_lock(&table->lock);
    const struct node *node = find_by_id_locked(table, id);
    if (node != NULL && node->open != NULL) {
        open = node->open;
        open->uses++;
    }
    mutex_unlock(&table->lock);
    return open;
}

struct open_file *node_open_install(struct node_table *table, uint64_t id, struct open_file *fresh)
{
    struct open_file *open = NULL;
    mutex_lock(&table->lock);
    struct node *node = find_by_id_locked(table, id);
    if (node != NULL) {
        if (node->open == NULL) {
            fresh->uses = 0;
            node->open = fresh;
            table->open_files++;
        }
        open = node->open;
        open->uses++;
    }
    mutex_unlock(&table->lock);
    return open;
}

struct open_file *node_open_unuse(struct node_table *table, uint64_t id)
{
    struct open_file *last = NULL;
    mutex_lock(&table->lock);
    struct node *node = find_by_id_locked(table, id);
    assert(node != NULL && node->open != NULL && node->open->uses > 0);
    if (--node->open->uses == 0) {
        last = node->open;
        node->open = NULL;
        table->open_files--;
        remove_if_unused_locked(table, node);
    }
    mutex_unlock(&table->lock);
    return last;
}

struct open_file *node_table_take_all_open(struct node_table *table)
{
    struct open_file *all = NULL;
    struct node *node, *next;
    mutex_lock(&table->lock);
    HASH_ITER(by_id, table->nodes_by_id, node, next)
    {
        if (node->open == NULL)
            continue;
        node->open->next = all;
        all = node->open;
        node->open = NULL;
    }
    table->open_files = 0;
    mutex_unlock(&table->lock);
    return all;
}

void node_table_get_stats(struct node_table *table, struct node_table_stats *out_stats)
{
    mutex_lock(&table->lock);
    out_stats->nodes = HASH_CNT(by_id, table->nodes_by_id);
    out_stats->open_files = table->open_files;
    mutex_unlock(&table->lock);
}
