/*
 * fusefs/nodes.c - see the header.
 *
 * Two hash tables over the same nodes: by id for what the kernel asks, by (view, inode) for what lookups find. Trees, one for
 * each snapshot and transaction that the kernel has looked into, are in short lists by number: those of closed transactions stay
 * until the kernel has forgotten their nodes, which may be thousands.
 *
 *   tree: known --node_tree_drop--> gone --last node_tree_let_go--> released --last node forgotten--> freed
 *
 * A snapshot's tree that is not dropped stays until the table goes: the version that it holds is kept by its name anyway.
 */
#include "fusefs/nodes.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define VIEW_ID_VIRTUAL UINT64_MAX
#define TREE_LISTS      1024u

/* Hashed and compared as bytes: no padding. */
struct node_key {
    uint64_t view_id;
    ino_no ino;
};

struct node_tree {
    struct node_table *table;
    struct node_tree_source source; /* view and owner: not to be looked at when gone and not held */
    uint64_t view_id;
    uint64_t place; /* NODE-5 */
    unsigned holds; /* all below: guarded by the table's lock */
    uint64_t nodes;
    int gone_rc; /* of nodes of one that is gone; 0: it is not */
    bool root_forgotten;
    bool released;
    _Atomic bool read_only;    /* the live one: of a standby */
    struct view *_Atomic view; /* changed for the live one alone */
    struct node_tree *next;    /* of its list */
};

struct node {
    uint64_t id;
    struct node_key key;
    struct node_tree *tree; /* NULL: virtual */
    uint32_t type;
    uint64_t lookups;
    bool stale;              /* NODE-6 */
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
    struct node_tree *live;
    struct node_tree *trees[TREE_LISTS]; /* all but the live one */
    uint64_t tree_count;
    bool taken[NODE_PLACES_MAX + 1]; /* places; the live one's is 0 */
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

static struct node_tree **tree_list_locked(struct node_table *table, uint64_t number)
{
    return &table->trees[number % TREE_LISTS];
}

static void tree_unlink_locked(struct node_tree *tree)
{
    struct node_table *table = tree->table;
    struct node_tree **link = tree_list_locked(table, tree->source.number);
    while (*link != tree)
        link = &(*link)->next;
    *link = tree->next;
    table->tree_count--;
    table->taken[tree->place] = false;
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

static struct node_tree *tree_make(struct node_table *table, const struct node_tree_source *source)
{
    struct node_tree *tree = calloc(1, sizeof *tree);
    if (tree != NULL) {
        tree->table = table;
        tree->source = *source;
        atomic_init(&tree->view, source->view);
        tree->view_id = source->view->id;
    }
    return tree;
}

struct node_tree *node_table_live(struct node_table *table)
{
    return table->live;
}

struct view *node_tree_view(const struct node_tree *tree)
{
    return atomic_load(&tree->view);
}

void node_table_move_live(struct node_table *table, struct view *view)
{
    mutex_lock(&table->lock);
    atomic_store(&table->live->view, view); /* its nodes keep their keys */
    mutex_unlock(&table->lock);
}

void node_tree_set_read_only(struct node_tree *tree, bool read_only)
{
    atomic_store(&tree->read_only, read_only);
}

bool node_tree_is_read_only(const struct node_tree *tree)
{
    return tree != NODE_TREE_VIRTUAL && (tree->source.kind == NODE_TREE_SNAPSHOT ||
                                         tree->source.kind == NODE_TREE_BASE || atomic_load(&tree->read_only));
}

void *node_tree_owner(const struct node_tree *tree)
{
    return tree->source.owner;
}

bool node_tree_is(const struct node_tree *tree, enum node_tree_kind kind)
{
    return tree != NODE_TREE_VIRTUAL && tree->source.kind == kind;
}

uint64_t node_tree_number(const struct node_tree *tree)
{
    return tree->source.number;
}

/* The live one is there as long as the table is. */
static bool needs_holding(const struct node_tree *tree)
{
    return tree != NODE_TREE_VIRTUAL && tree->source.kind != NODE_TREE_LIVE;
}

static uint64_t st_ino_of(uint64_t place, ino_no ino)
{
    return ino >> NODE_INO_BITS == 0 ? (place << NODE_INO_BITS) + ino : ino;
}

uint64_t node_tree_st_ino(const struct node_tree *tree, ino_no ino)
{
    return tree == NODE_TREE_VIRTUAL ? ino : st_ino_of(tree->place, ino);
}

static struct node_tree *tree_find_locked(struct node_table *table, enum node_tree_kind kind, uint64_t number)
{
    struct node_tree *tree = *tree_list_locked(table, number);
    while (tree != NULL && (tree->gone_rc != 0 || tree->source.kind != kind || tree->source.number != number))
        tree = tree->next;
    return tree;
}

/* The same one in each mount, as a rule. */
static uint64_t preferred_place(uint64_t number)
{
    return number % NODE_PLACES_MAX + 1;
}

/* 0: all are taken. */
static uint64_t choose_place_locked(const struct node_table *table, uint64_t number)
{
    uint64_t place = preferred_place(number);
    for (uint64_t tried = 0; tried < NODE_PLACES_MAX; tried++) {
        if (!table->taken[place])
            return place;
        place = place % NODE_PLACES_MAX + 1;
    }
    return 0;
}

static int tree_add_locked(struct node_table *table, struct node_tree *tree)
{
    tree->place = choose_place_locked(table, tree->source.number);
    if (tree->place == 0)
        return -ENFILE;
    struct node_tree **list = tree_list_locked(table, tree->source.number);
    tree->next = *list;
    *list = tree;
    table->tree_count++;
    table->taken[tree->place] = true;
    return 0;
}

int node_tree_enter(struct node_table *table, const struct node_tree_source *source, struct node_tree **out_tree,
                    bool *out_made)
{
    int rc = 0;
    struct node_tree *fresh = tree_make(table, source);
    if (fresh == NULL)
        return -ENOMEM;
    mutex_lock(&table->lock);
    struct node_tree *tree = tree_find_locked(table, source->kind, source->number);
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
    if (!needs_holding(tree))
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
    if (tree->gone_rc != 0 && tree->holds == 0 && !tree->released) {
        due = (struct tree_release){.release = tree->source.release, .owner = tree->source.owner};
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
    if (!needs_holding(tree))
        return;
    struct node_table *table = tree->table;
    mutex_lock(&table->lock);
    assert(tree->holds > 0);
    tree->holds--;
    const struct tree_release due = release_if_unused_locked(tree);
    mutex_unlock(&table->lock);
    release_due(due);
}

void node_tree_drop(struct node_table *table, enum node_tree_kind kind, uint64_t number, int rc)
{
    struct tree_release due = {.release = NULL};
    assert(rc < 0 && kind != NODE_TREE_LIVE);
    mutex_lock(&table->lock);
    struct node_tree *tree = tree_find_locked(table, kind, number);
    if (tree != NULL) {
        tree->gone_rc = rc;
        due = release_if_unused_locked(tree);
    }
    mutex_unlock(&table->lock);
    release_due(due);
}

void node_tree_forget_root(struct node_table *table, enum node_tree_kind kind, uint64_t number)
{
    mutex_lock(&table->lock);
    for (struct node_tree *tree = *tree_list_locked(table, number); tree != NULL; tree = tree->next) {
        if (tree->gone_rc != 0 && tree->source.kind == kind && tree->source.number == number)
            tree->root_forgotten = true;
    }
    mutex_unlock(&table->lock);
}

uint64_t node_tree_future_st_ino(struct node_table *table, enum node_tree_kind kind, uint64_t number, ino_no ino)
{
    mutex_lock(&table->lock);
    const struct node_tree *tree = tree_find_locked(table, kind, number);
    const uint64_t place = tree != NULL ? tree->place : preferred_place(number);
    mutex_unlock(&table->lock);
    return st_ino_of(place, ino);
}

/* At the end: whoever still holds one will not come back. */
static void trees_free(struct node_table *table)
{
    for (unsigned i = 0; i < TREE_LISTS; i++) {
        while (table->trees[i] != NULL) {
            struct node_tree *tree = table->trees[i];
            if (tree->source.release != NULL && !tree->released)
                tree->source.release(tree->source.owner);
            table->trees[i] = tree->next;
            free(tree);
        }
    }
    free(table->live);
}

/* ---- the table ---- */

int node_table_new(struct view *root_view, struct node_table **out_table)
{
    struct node_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return -ENOMEM;
    mutex_init(&table->lock, LOCK_RANK_NODES);
    table->next_id = NODE_ID_ROOT;
    table->live = tree_make(table, &(struct node_tree_source){.kind = NODE_TREE_LIVE, .view = root_view});
    const struct node *root = NULL;
    if (table->live != NULL) {
        const struct node_key key = key_of(table->live, INO_ROOT);
        mutex_lock(&table->lock);
        root = make_locked(table, table->live, &key, S_IFDIR);
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
        out_identity->view = atomic_load(&tree->view);
        tree->holds += needs_holding(tree) ? 1 : 0;
    }
}

/* What is to be answered for that node; 0: it is found. */
static int find_rc_locked(const struct node *node)
{
    if (node == NULL || node->stale)
        return -ESTALE;
    const struct node_tree *tree = node->tree;
    if (tree == NODE_TREE_VIRTUAL || tree->gone_rc == 0)
        return 0;
    return node->key.ino == INO_ROOT && !tree->root_forgotten ? -ESTALE : tree->gone_rc;
}

int node_find(struct node_table *table, uint64_t id, struct node_identity *out_identity)
{
    mutex_lock(&table->lock);
    const struct node *node = find_by_id_locked(table, id);
    const int rc = find_rc_locked(node);
    if (rc == 0)
        identify_locked(node, out_identity);
    mutex_unlock(&table->lock);
    return rc;
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

static struct node *find_known_locked(struct node_table *table, const struct node_tree *tree, ino_no ino)
{
    const struct node_key key = key_of(tree, ino);
    struct node *node = find_by_key_locked(table, &key);
    return node != NULL && (node->lookups > 0 || node->id == NODE_ID_ROOT) ? node : NULL;
}

uint64_t node_known_id(struct node_table *table, const struct node_tree *tree, ino_no ino)
{
    mutex_lock(&table->lock);
    const struct node *node = find_known_locked(table, tree, ino);
    const uint64_t id = node == NULL ? 0 : node->id;
    mutex_unlock(&table->lock);
    return id;
}

uint64_t node_mark_stale(struct node_table *table, const struct node_tree *tree, ino_no ino, bool also_open)
{
    mutex_lock(&table->lock);
    struct node *node = find_known_locked(table, tree, ino);
    if (node != NULL && (also_open || node->open == NULL))
        node->stale = true;
    const uint64_t id = node == NULL ? 0 : node->id;
    mutex_unlock(&table->lock);
    return id;
}

bool node_is_open(struct node_table *table, const struct node_tree *tree, ino_no ino)
{
    const struct node_key key = key_of(tree, ino);
    mutex_lock(&table->lock);
    const struct node *node = find_by_key_locked(table, &key);
    const bool is_open = node != NULL && node->open != NULL;
    mutex_unlock(&table->lock);
    return is_open;
}

void node_clear_stale(struct node_table *table, uint64_t id)
{
    mutex_lock(&table->lock);
    struct node *node = find_by_id_locked(table, id);
    if (node != NULL)
        node->stale = false;
    mutex_unlock(&table->lock);
}

bool node_is_stale(struct node_table *table, uint64_t id)
{
    mutex_lock(&table->lock);
    const struct node *node = find_by_id_locked(table, id);
    const bool stale = node != NULL && node->stale;
    mutex_unlock(&table->lock);
    return stale;
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
    out_stats->trees = table->tree_count + 1;
    mutex_unlock(&table->lock);
}
