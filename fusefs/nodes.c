/*
 * fusefs/nodes.c - see the header.
 *
 * Two hash tables over the same nodes: by id for what the kernel asks, by (view, inode) for what lookups find. Trees are
 * a list: the live one, and one for each snapshot that the kernel has looked into.
 *
 *   tree of a snapshot: known --node_tree_drop--> gone --last node_tree_let_go--> released --last node forgotten--> freed
 *
 * A snapshot's tree that is not dropped stays until the table goes: the version that it holds is kept by its name anyway.
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

struct node_tree {
    struct node_table *table;
    struct view *view; /* not to be looked at when gone and not held */
    uint64_t view_id;
    uint64_t number; /* of the snapshot; 0: the live tree */
    uint64_t place;  /* NODE-5 */
    void *owner;
    node_tree_release_fn *release; /* NULL: the live tree, which needs no holding */
    unsigned holds;                /* all below: guarded by the table's lock */
    uint64_t nodes;
    bool gone;
    bool released;
    struct node_tree *next;
};

struct node {
    uint64_t id;
    struct node_key key;
    struct node_tree *tree; /* NULL: virtual */
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
    struct node_tree *trees; /* the live one is the first */
};

static struct node_key key_of(const struct node_tree *tree, ino_no ino)
{
    return (struct node_key){.view_id = tree == NODE_TREE_VIRTUAL ? VIEW_ID_VIRTUAL : tree->view_id, .ino = ino};
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

static void tree_unlink_locked(struct node_tree *tree)
{
    struct node_tree **link = &tree->table->trees;
    while (*link != tree)
        link = &(*link)->next;
    *link = tree->next;
    free(tree);
}

static void tree_free_if_unused_locked(struct node_tree *tree)
{
    if (tree->released && tree->holds == 0 && tree->nodes == 0)
        tree_unlink_locked(tree);
}

static void remove_locked(struct node_table *table, struct node *node)
{
    HASH_DELETE(by_id, table->nodes_by_id, node);
    HASH_DELETE(by_key, table->nodes_by_key, node);
    if (node->tree != NODE_TREE_VIRTUAL) {
        node->tree->nodes--;
        tree_free_if_unused_locked(node->tree);
    }
    free(node->last);
    free(node);
}

/* NODE-3. */
static void remove_if_unused_locked(struct node_table *table, struct node *node)
{
    if (node->lookups == 0 && node->open == NULL && node->id != NODE_ID_ROOT)
        remove_locked(table, node);
}

static struct node *make_locked(struct node_table *table, struct node_tree *tree, const struct node_key *key,
                                uint32_t type)
{
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return NULL;
    node->id = table->next_id;
    node->key = *key;
    node->tree = tree;
    node->type = type;
    if (!insert_locked(table, node)) {
        free(node);
        return NULL;
    }
    if (tree != NODE_TREE_VIRTUAL)
        tree->nodes++;
    table->next_id++;
    return node;
}

/* ---- trees ---- */

static struct node_tree *tree_make(struct node_table *table, struct view *view, uint64_t number)
{
    struct node_tree *tree = calloc(1, sizeof *tree);
    if (tree != NULL) {
        tree->table = table;
        tree->view = view;
        tree->view_id = view->id;
        tree->number = number;
    }
    return tree;
}

struct node_tree *node_table_live(struct node_table *table)
{
    return table->trees;
}

struct view *node_tree_view(const struct node_tree *tree)
{
    return tree->view;
}

bool node_tree_is_live(const struct node_tree *tree)
{
    return tree != NODE_TREE_VIRTUAL && tree->number == 0;
}

static uint64_t st_ino_of(uint64_t place, ino_no ino)
{
    return ino >> NODE_INO_BITS == 0 ? (place << NODE_INO_BITS) + ino : ino;
}

uint64_t node_tree_st_ino(const struct node_tree *tree, ino_no ino)
{
    return tree == NODE_TREE_VIRTUAL ? ino : st_ino_of(tree->place, ino);
}

static struct node_tree *tree_find_locked(struct node_table *table, uint64_t number)
{
    struct node_tree *tree = table->trees;
    while (tree != NULL && (tree->gone || tree->number != number))
        tree = tree->next;
    return tree;
}

/* The same one in each mount, as a rule. */
static uint64_t preferred_place(uint64_t number)
{
    return number % NODE_PLACES_MAX + 1;
}

static bool place_is_taken_locked(const struct node_table *table, uint64_t place)
{
    const struct node_tree *tree = table->trees;
    while (tree != NULL && tree->place != place)
        tree = tree->next;
    return tree != NULL;
}

/* 0: all are taken. */
static uint64_t choose_place_locked(const struct node_table *table, uint64_t number)
{
    uint64_t place = preferred_place(number);
    for (uint64_t tried = 0; tried < NODE_PLACES_MAX; tried++) {
        if (!place_is_taken_locked(table, place))
            return place;
        place = place % NODE_PLACES_MAX + 1;
    }
    return 0;
}

/* Behind the live one. */
static int tree_add_locked(struct node_table *table, struct node_tree *tree)
{
    tree->place = choose_place_locked(table, tree->number);
    if (tree->place == 0)
        return -ENFILE;
    tree->next = table->trees->next;
    table->trees->next = tree;
    return 0;
}

int node_tree_enter(struct node_table *table, uint64_t number, struct view *view, void *owner,
                    node_tree_release_fn *release, struct node_tree **out_tree, bool *out_made)
{
    int rc = 0;
    struct node_tree *fresh = tree_make(table, view, number);
    if (fresh == NULL)
        return -ENOMEM;
    fresh->owner = owner;
    fresh->release = release;
    mutex_lock(&table->lock);
    struct node_tree *tree = tree_find_locked(table, number);
    if (tree == NULL) {
        tree = fresh;
        rc = tree_add_locked(table, fresh);
    }
    if (rc == 0)
        tree->holds++;
    mutex_unlock(&table->lock);
    if (rc != 0 || tree != fresh)
        free(fresh);
    if (rc == 0) {
        *out_tree = tree;
        *out_made = tree == fresh;
    }
    return rc;
}

void node_tree_hold(struct node_tree *tree)
{
    if (tree == NODE_TREE_VIRTUAL || tree->release == NULL)
        return;
    mutex_lock(&tree->table->lock);
    assert(tree->holds > 0);
    tree->holds++;
    mutex_unlock(&tree->table->lock);
}

/* What is to be called once the lock is given back, if anything. */
struct tree_release {
    node_tree_release_fn *release;
    void *owner;
};

static struct tree_release release_if_unused_locked(struct node_tree *tree)
{
    struct tree_release due = {.release = NULL};
    if (tree->gone && tree->holds == 0 && !tree->released) {
        due = (struct tree_release){.release = tree->release, .owner = tree->owner};
        tree->released = true;
        tree_free_if_unused_locked(tree);
    }
    return due;
}

static void release_due(struct tree_release due)
{
    if (due.release != NULL)
        due.release(due.owner);
}

void node_tree_let_go(struct node_tree *tree)
{
    if (tree == NODE_TREE_VIRTUAL || tree->release == NULL)
        return;
    struct node_table *table = tree->table;
    mutex_lock(&table->lock);
    assert(tree->holds > 0);
    tree->holds--;
    const struct tree_release due = release_if_unused_locked(tree);
    mutex_unlock(&table->lock);
    release_due(due);
}

void node_tree_drop(struct node_table *table, uint64_t number)
{
    struct tree_release due = {.release = NULL};
    mutex_lock(&table->lock);
    struct node_tree *tree = tree_find_locked(table, number);
    if (tree != NULL) {
        tree->gone = true;
        due = release_if_unused_locked(tree);
    }
    mutex_unlock(&table->lock);
    release_due(due);
}

uint64_t node_snapshot_st_ino(struct node_table *table, uint64_t number, ino_no ino)
{
    mutex_lock(&table->lock);
    const struct node_tree *tree = tree_find_locked(table, number);
    const uint64_t place = tree != NULL ? tree->place : preferred_place(number);
    mutex_unlock(&table->lock);
    return st_ino_of(place, ino);
}

/* At the end: whoever still holds one will not come back. */
static void trees_free(struct node_table *table)
{
    while (table->trees != NULL) {
        struct node_tree *tree = table->trees;
        table->trees = tree->next;
        if (tree->release != NULL && !tree->released)
            tree->release(tree->owner);
        free(tree);
    }
}

/* ---- the table ---- */

int node_table_new(struct view *root_view, struct node_table **out_table)
{
    struct node_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return -ENOMEM;
    mutex_init(&table->lock, LOCK_RANK_NODES);
    table->next_id = NODE_ID_ROOT;
    table->trees = tree_make(table, root_view, 0);
    const struct node *root = NULL;
    if (table->trees != NULL) {
        const struct node_key key = key_of(table->trees, INO_ROOT);
        mutex_lock(&table->lock);
        root = make_locked(table, table->trees, &key, S_IFDIR);
        mutex_unlock(&table->lock);
    }
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
    trees_free(table);
    mutex_destroy(&table->lock);
    free(table);
}

/* ---- nodes ---- */

static void identify_locked(const struct node *node, struct node_identity *out_identity)
{
    struct node_tree *tree = node->tree;
    *out_identity = (struct node_identity){.id = node->id, .tree = tree, .ino = node->key.ino, .type = node->type};
    if (tree != NODE_TREE_VIRTUAL) {
        out_identity->view = tree->view;
        tree->holds += tree->release != NULL ? 1 : 0;
    }
}

int node_find(struct node_table *table, uint64_t id, struct node_identity *out_identity)
{
    mutex_lock(&table->lock);
    const struct node *node = find_by_id_locked(table, id);
    const bool found = node != NULL && (node->tree == NODE_TREE_VIRTUAL || !node->tree->gone);
    if (found)
        identify_locked(node, out_identity);
    mutex_unlock(&table->lock);
    return found ? 0 : -ESTALE;
}

void node_release(struct node_identity *identity)
{
    node_tree_let_go(identity->tree);
    *identity = NODE_NONE;
}

int node_enter(struct node_table *table, struct node_tree *tree, ino_no ino, uint32_t type, uint64_t *out_id)
{
    const struct node_key key = key_of(tree, ino);
    int rc = -ENOMEM;
    mutex_lock(&table->lock);
    struct node *node = find_by_key_locked(table, &key);
    if (node == NULL)
        node = make_locked(table, tree, &key, type & S_IFMT);
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

void node_note_last(struct node_table *table, struct node_tree *tree, const struct store_attr *attr)
{
    const struct node_key key = key_of(tree, attr->ino);
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
    out_stats->snapshots = 0;
    for (const struct node_tree *tree = table->trees->next; tree != NULL; tree = tree->next)
        out_stats->snapshots++;
    mutex_unlock(&table->lock);
}
