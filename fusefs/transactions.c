/*
 * fusefs/transactions.c - see the header.
 */
#include "fusefs/transactions.h"
#include "fusefs/fusefs_int.h"
#include "fusefs/limits.h"
#include "fusefs/notify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#define DIRECTORY_MODE 01777u
#define ROOT_MODE      (S_IFDIR | 0700u)

#define NANOSECONDS_IN_SECOND INT64_C(1000000000)

/* ---- the list ---- */

void transactions_init(struct fusefs *fs)
{
    mutex_init(&fs->transactions_lock, LOCK_RANK_TRANSACTIONS);
    condvar_init(&fs->transactions_unclaimed);
    fs->roots_changed_ns[ROOTS_TRANSACTIONS] = fs->started_ns;
}

void transactions_destroy(struct fusefs *fs)
{
    condvar_destroy(&fs->transactions_unclaimed);
    mutex_destroy(&fs->transactions_lock);
}

static struct transaction *find_name_locked(struct fusefs *fs, const char *name)
{
    struct transaction *transaction;
    DL_FOREACH(fs->transactions, transaction)
    {
        if (strcmp(transaction->name, name) == 0)
            return transaction;
    }
    return NULL;
}

static struct transaction *find_number_locked(struct fusefs *fs, uint64_t number)
{
    struct transaction *transaction;
    DL_FOREACH(fs->transactions, transaction)
    {
        if (transaction->number == number)
            return transaction;
    }
    return NULL;
}

struct transaction *transaction_get(struct fusefs *fs, const char *name)
{
    mutex_lock(&fs->transactions_lock);
    struct transaction *transaction = find_name_locked(fs, name);
    if (transaction != NULL)
        transaction->references++;
    mutex_unlock(&fs->transactions_lock);
    return transaction;
}

struct transaction *transaction_get_number(struct fusefs *fs, uint64_t number)
{
    mutex_lock(&fs->transactions_lock);
    struct transaction *transaction = find_number_locked(fs, number);
    if (transaction != NULL)
        transaction->references++;
    mutex_unlock(&fs->transactions_lock);
    return transaction;
}

static void add_reference(struct transaction *transaction)
{
    mutex_lock(&transaction->fs->transactions_lock);
    transaction->references++;
    mutex_unlock(&transaction->fs->transactions_lock);
}

void transaction_put(struct transaction *transaction)
{
    struct fusefs *fs = transaction->fs;
    mutex_lock(&fs->transactions_lock);
    const bool last = --transaction->references == 0;
    mutex_unlock(&fs->transactions_lock);
    if (last)
        free(transaction);
}

struct store_txn *transaction_store(struct transaction *transaction)
{
    mutex_lock(&transaction->fs->transactions_lock);
    struct store_txn *txn = transaction->txn;
    if (txn != NULL)
        store_txn_ref(txn);
    mutex_unlock(&transaction->fs->transactions_lock);
    return txn;
}

/* With a reference; NULL: it has none. */
static struct store_txn *scratch_store(struct transaction *transaction)
{
    mutex_lock(&transaction->fs->transactions_lock);
    struct store_txn *scratch = transaction->scratch;
    if (scratch != NULL)
        store_txn_ref(scratch);
    mutex_unlock(&transaction->fs->transactions_lock);
    return scratch;
}

static void add_scratch_info(struct transaction *transaction, struct store_txn_info *inout_info)
{
    struct store_txn *scratch = scratch_store(transaction);
    struct store_txn_info info;
    if (scratch == NULL)
        return;
    store_txn_get_info(scratch, &info);
    inout_info->private_bytes += info.private_bytes;
    if (info.changed_ns > inout_info->changed_ns)
        inout_info->changed_ns = info.changed_ns;
    store_txn_put(scratch);
}

void transaction_get_info(struct transaction *transaction, struct store_txn_info *out_info)
{
    struct store_txn *txn = transaction_store(transaction);
    if (txn != NULL) {
        store_txn_get_info(txn, out_info);
        store_txn_put(txn);
        add_scratch_info(transaction, out_info);
    } else {
        *out_info = transaction->last; /* it does not change any more */
    }
    out_info->name = transaction->name;
}

int transaction_claim(struct transaction *transaction, enum transaction_state *out_state)
{
    struct fusefs *fs = transaction->fs;
    mutex_lock(&fs->transactions_lock);
    while (transaction->claimed)
        condvar_wait(&fs->transactions_unclaimed, &fs->transactions_lock);
    const enum transaction_state state = transaction->state;
    transaction->claimed = state != TRANSACTION_GONE;
    mutex_unlock(&fs->transactions_lock);
    if (state == TRANSACTION_GONE)
        return -ENOENT;
    *out_state = state;
    return 0;
}

static enum transaction_state state_of(struct transaction *transaction)
{
    mutex_lock(&transaction->fs->transactions_lock);
    const enum transaction_state state = transaction->state;
    mutex_unlock(&transaction->fs->transactions_lock);
    return state;
}

void transaction_unclaim(struct transaction *transaction)
{
    struct fusefs *fs = transaction->fs;
    mutex_lock(&fs->transactions_lock);
    transaction->claimed = false;
    condvar_broadcast(&fs->transactions_unclaimed);
    mutex_unlock(&fs->transactions_lock);
}

/* TXNDIR-3: nothing is found in it any more, its trees let go of what they have. */
static void end_in_state(struct transaction *transaction, enum transaction_state state, int rc)
{
    struct fusefs *fs = transaction->fs;
    mutex_lock(&fs->transactions_lock);
    struct store_txn *txn = transaction->txn, *scratch = transaction->scratch;
    transaction->txn = NULL;
    transaction->scratch = NULL;
    transaction->state = state;
    if (state == TRANSACTION_GONE)
        DL_DELETE(fs->transactions, transaction);
    mutex_unlock(&fs->transactions_lock);
    node_tree_drop(fs->nodes, NODE_TREE_TRANSACTION, transaction->number, rc);
    node_tree_drop(fs->nodes, NODE_TREE_BASE, transaction->number, rc);
    node_tree_drop(fs->nodes, NODE_TREE_SCRATCH, transaction->number, rc);
    if (txn != NULL)
        store_txn_put(txn);
    if (scratch != NULL) {
        store_txn_abort(scratch);
        store_txn_put(scratch);
    }
}

void transaction_gone(struct transaction *transaction)
{
    end_in_state(transaction, TRANSACTION_GONE, -ENOENT);
    roots_note_changed(transaction->fs, ROOTS_TRANSACTIONS);
    transaction_unclaim(transaction);
    transaction_put(transaction); /* the list's reference */
}

/* By who has claimed it. */
static void abort_in_store(struct transaction *transaction)
{
    struct store_txn *txn = transaction_store(transaction);
    if (txn == NULL)
        return;
    store_txn_abort(txn);
    store_txn_get_info(txn, &transaction->last);
    store_txn_put(txn);
}

/* Aborted in the store, and gone here. */
static int transaction_abort(struct transaction *transaction)
{
    enum transaction_state state;
    const int rc = transaction_claim(transaction, &state);
    if (rc != 0)
        return rc;
    abort_in_store(transaction);
    transaction_gone(transaction);
    return 0;
}

/* With a reference: the first one, or the one that follows `last`, whose reference is put. */
static struct transaction *next_after(struct fusefs *fs, struct transaction *last)
{
    struct transaction *transaction;
    const uint64_t after = last == NULL ? 0 : last->number;
    mutex_lock(&fs->transactions_lock);
    DL_FOREACH(fs->transactions, transaction)
    {
        if (transaction->number > after)
            break;
    }
    if (transaction != NULL)
        transaction->references++;
    mutex_unlock(&fs->transactions_lock);
    if (last != NULL)
        transaction_put(last);
    return transaction;
}

void transactions_each(struct fusefs *fs, transaction_fn *fn, void *arg)
{
    struct transaction *transaction = NULL;
    while ((transaction = next_after(fs, transaction)) != NULL)
        fn(arg, transaction);
}

/* By who has claimed it; open. */
static void cancel_claimed(struct transaction *transaction, const char *why)
{
    abort_in_store(transaction);
    transaction->why = why;
    end_in_state(transaction, TRANSACTION_ABORTED, -ECANCELED);
    diag_log(&transaction->fs->log.diag, DIAG_WARNING, "transaction %s of user %u was aborted: %s", transaction->name,
             transaction->uid, why);
}

void transaction_forget_roots(struct fusefs *fs, uint64_t number)
{
    node_tree_forget_root(fs->nodes, NODE_TREE_TRANSACTION, number);
    node_tree_forget_root(fs->nodes, NODE_TREE_BASE, number);
    node_tree_forget_root(fs->nodes, NODE_TREE_SCRATCH, number);
}

void transaction_cancel(struct transaction *transaction, const char *why)
{
    struct fusefs *fs = transaction->fs;
    enum transaction_state state;
    if (transaction_claim(transaction, &state) != 0)
        return;
    if (state == TRANSACTION_OPEN)
        cancel_claimed(transaction, why);
    transaction_unclaim(transaction);
    if (state != TRANSACTION_OPEN)
        return;
    notify_entry_gone(fs, TRANSACTIONS_INO, transaction->name); /* next time it is the tombstone */
    transaction_forget_roots(fs, transaction->number);
}

struct changed_list {
    struct fusefs *fs;
    unsigned count;
};

static void log_if_changed(void *arg, struct transaction *transaction)
{
    struct changed_list *list = arg;
    struct store_txn_info info;
    transaction_get_info(transaction, &info);
    if (info.state != STORE_TXN_OPEN || info.operations == 0)
        return;
    list->count++;
    diag_log(&list->fs->log.diag, DIAG_WARNING, "transaction %s of user %u is open, with %llu changes",
             transaction->name, transaction->uid, (unsigned long long)info.operations);
}

unsigned transactions_log_changed(struct fusefs *fs)
{
    struct changed_list list = {.fs = fs};
    transactions_each(fs, log_if_changed, &list);
    return list.count;
}

void transactions_abort_all(struct fusefs *fs)
{
    while (fs->transactions != NULL) { /* one thread is left */
        if (transaction_abort(fs->transactions) != 0)
            return;
    }
}

/* ---- the directory ---- */

static mode_t directory_mode(struct fusefs *fs)
{
    (void)fs;
    return DIRECTORY_MODE;
}

/* As the kernel will learn it: an aborted one is a node of its own. */
static ino_no entry_st_ino(const struct transaction *transaction)
{
    if (transaction->state == TRANSACTION_ABORTED)
        return transaction_ino(transaction->number, TRANSACTION_NODE_TOMBSTONE);
    return node_tree_future_st_ino(transaction->fs->nodes, NODE_TREE_TRANSACTION, transaction->number, INO_ROOT);
}

static void each_entry(struct fusefs *fs, roots_entry_fn *fn, void *arg)
{
    const struct transaction *transaction;
    mutex_lock(&fs->transactions_lock);
    DL_FOREACH(fs->transactions, transaction)
    {
        if (!fn(arg, transaction->name, entry_st_ino(transaction), VIRTUAL_COOKIE_DOTDOT + transaction->number))
            break;
    }
    mutex_unlock(&fs->transactions_lock);
}

static bool is_there(struct fusefs *fs, uint64_t number)
{
    mutex_lock(&fs->transactions_lock);
    const struct transaction *transaction = find_number_locked(fs, number);
    const bool there = transaction != NULL && transaction->state == TRANSACTION_OPEN;
    mutex_unlock(&fs->transactions_lock);
    return there;
}

static const struct roots_directory directory = {
    .which = ROOTS_TRANSACTIONS,
    .ino = TRANSACTIONS_INO,
    .mode = directory_mode,
    .each = each_entry,
    .is_there = is_there,
};

void transactions_lookup_directory(fuse_req_t req, const struct node_identity *root)
{
    (void)root;
    roots_lookup_directory(req, &directory);
}

static void transactions_getattr(fuse_req_t req, const struct node_identity *node)
{
    (void)node;
    roots_getattr(req, &directory);
}

static void transactions_readdir(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after,
                                 bool plus)
{
    (void)dir;
    roots_readdir(req, &directory, size, after, plus);
}

/* ---- its entries ---- */

static void tombstone_stat(struct transaction *transaction, struct stat *out_stat)
{
    struct store_txn_info info;
    transaction_get_info(transaction, &info);
    const struct timespec changed = {.tv_sec = info.changed_ns / NANOSECONDS_IN_SECOND,
                                     .tv_nsec = info.changed_ns % NANOSECONDS_IN_SECOND};
    *out_stat = (struct stat){
        .st_ino = transaction_ino(transaction->number, TRANSACTION_NODE_TOMBSTONE),
        .st_mode = ROOT_MODE,
        .st_nlink = 2,
        .st_uid = transaction->uid,
        .st_gid = transaction->gid,
        .st_mtim = changed,
        .st_ctim = changed,
    };
}

static void put_owner(void *owner)
{
    struct transaction_tree *tree = owner;
    store_txn_put(tree->txn);
    transaction_put(tree->transaction);
    free(tree);
}

/* Answers with the root of one of its trees. On failure nothing was answered. */
static int reply_tree(fuse_req_t req, struct transaction *transaction, enum node_tree_kind kind)
{
    struct transaction_tree *owner = malloc(sizeof *owner);
    struct store_txn *txn = owner == NULL ? NULL : transaction_store(transaction);
    if (txn == NULL) {
        const int rc = owner == NULL ? -ENOMEM : -ECANCELED;
        free(owner);
        return rc;
    }
    *owner = (struct transaction_tree){.transaction = transaction, .txn = txn};
    add_reference(transaction);
    const struct node_tree_source source = {
        .kind = kind,
        .number = transaction->number,
        .view = kind == NODE_TREE_BASE ? store_txn_base(txn) : store_txn_view(txn),
        .owner = owner,
        .release = put_owner,
    };
    return roots_reply_root(req, &directory, &source);
}

/* Answers with its root, or with the tombstone. On failure nothing was answered. */
static int reply_root(fuse_req_t req, struct transaction *transaction)
{
    if (state_of(transaction) != TRANSACTION_ABORTED)
        return reply_tree(req, transaction, NODE_TREE_TRANSACTION);
    struct stat stat;
    tombstone_stat(transaction, &stat);
    virtual_reply_entry(req, &stat, 0);
    return 0;
}

void transaction_lookup_base(fuse_req_t req, struct transaction *transaction)
{
    const int rc = reply_tree(req, transaction, NODE_TREE_BASE);
    if (rc != 0)
        reply_error(req, rc);
}

/* ---- scratch tables ---- */

/* Of a transaction in the store that has nothing else to show: what is beside that directory no name leads to. */
static int make_scratch(struct transaction *transaction, struct store_txn **out_scratch, ino_no *out_root)
{
    struct store *store = transaction->fs->store;
    const struct store_txn_options options = {
        .name = {.bytes = transaction->name, .size = strlen(transaction->name)},
        .uid = transaction->uid,
        .scratch = true,
    };
    const struct store_name name = {.bytes = ".commit", .size = 7}; /* one that no user's directory has */
    const struct store_who who = {.uid = transaction->uid, .gid = transaction->gid};
    struct store_txn *scratch = NULL;
    struct store_attr attr;
    int rc = store_txn_begin(store, &options, &scratch);
    if (rc != 0)
        return rc;
    rc = store_create(store, store_txn_view(scratch), INO_ROOT, name, ROOT_MODE, 0, who, &attr);
    if (rc != 0) {
        store_txn_put(scratch);
        return rc;
    }
    *out_scratch = scratch;
    *out_root = attr.ino;
    return 0;
}

/* Made, or found, with a reference. */
static int get_scratch(struct transaction *transaction, struct store_txn **out_scratch)
{
    struct store_txn *fresh = NULL;
    ino_no root = INO_NONE;
    *out_scratch = scratch_store(transaction);
    if (*out_scratch != NULL)
        return 0;
    const int rc = make_scratch(transaction, &fresh, &root);
    if (rc != 0)
        return rc;
    mutex_lock(&transaction->fs->transactions_lock);
    if (transaction->scratch == NULL && transaction->state == TRANSACTION_OPEN) {
        transaction->scratch = fresh;
        transaction->scratch_root = root;
        fresh = NULL;
    }
    mutex_unlock(&transaction->fs->transactions_lock);
    if (fresh != NULL)
        store_txn_put(fresh);
    *out_scratch = scratch_store(transaction);
    return *out_scratch != NULL ? 0 : -ECANCELED;
}

/* On failure nothing was answered. */
static int reply_scratch(fuse_req_t req, struct transaction *transaction)
{
    struct fusefs *fs = fusefs_of(req);
    struct node_tree *tree = NULL;
    struct store_attr attr;
    struct transaction_tree *owner = malloc(sizeof *owner);
    struct store_txn *scratch = NULL;
    int rc = owner == NULL ? -ENOMEM : get_scratch(transaction, &scratch);
    if (rc != 0) {
        free(owner);
        return rc;
    }
    *owner = (struct transaction_tree){.transaction = transaction, .txn = scratch};
    add_reference(transaction);
    const struct node_tree_source source = {
        .kind = NODE_TREE_SCRATCH,
        .number = transaction->number,
        .view = store_txn_view(scratch),
        .owner = owner,
        .release = put_owner,
    };
    rc = roots_enter_tree(fs, &directory, &source, &tree);
    if (rc != 0)
        return rc;
    rc = store_getattr(fs->store, node_tree_view(tree), transaction->scratch_root, &attr);
    if (rc == 0)
        reply_entry(req, tree, &attr);
    node_tree_let_go(tree);
    return rc;
}

void transaction_lookup_scratch(fuse_req_t req, struct transaction *transaction)
{
    const int rc = state_of(transaction) == TRANSACTION_OPEN ? reply_scratch(req, transaction) : -ECANCELED;
    if (rc != 0)
        reply_error(req, rc);
}

static void transactions_lookup(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    (void)dir;
    struct transaction *transaction = name_is_too_long(name) ? NULL : transaction_get(fs, name);
    if (transaction == NULL) {
        reply_error(req, name_is_too_long(name) ? -ENAMETOOLONG : -ENOENT);
        return;
    }
    const int rc = reply_root(req, transaction);
    if (rc != 0)
        reply_error(req, rc);
    transaction_put(transaction);
}

/* ---- begin and abort ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* With one reference, the caller's. */
static int transaction_begin(fuse_req_t req, const char *name, struct transaction **out_transaction)
{
    struct fusefs *fs = fusefs_of(req);
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    const size_t name_size = strlen(name);
    const struct store_txn_options options = {
        .name = {.bytes = name, .size = name_size}, .uid = ctx->uid, .pid = (uint32_t)ctx->pid};
    struct transaction *transaction = calloc(1, sizeof *transaction + name_size + 1);
    if (transaction == NULL)
        return -ENOMEM;
    const int rc = store_txn_begin(fs->store, &options, &transaction->txn);
    if (rc != 0) {
        free(transaction);
        return rc;
    }
    transaction->fs = fs;
    transaction->number = store_txn_number(transaction->txn);
    transaction->began_ms = now_ms();
    transaction->uid = ctx->uid;
    transaction->gid = ctx->gid;
    transaction->references = 1;
    memcpy(transaction->name, name, name_size + 1);
    *out_transaction = transaction;
    return 0;
}

/* In order of numbers, which those of the store are not quite when two begin at the same time. */
static int compare_numbers(const struct transaction *left, const struct transaction *right)
{
    return left->number < right->number ? -1 : 1;
}

static int list_add(struct transaction *transaction)
{
    struct fusefs *fs = transaction->fs;
    mutex_lock(&fs->transactions_lock);
    const bool taken = find_name_locked(fs, transaction->name) != NULL;
    if (!taken) {
        DL_INSERT_INORDER(fs->transactions, transaction, compare_numbers);
        transaction->references++;
    }
    mutex_unlock(&fs->transactions_lock);
    return taken ? -EEXIST : 0;
}

static void transactions_mkdir(fuse_req_t req, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    struct transaction *transaction = NULL;
    int rc = roots_check_new_name(name);
    if (rc == 0)
        rc = transaction_begin(req, name, &transaction);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    rc = list_add(transaction);
    if (rc != 0)
        store_txn_put(transaction->txn); /* what is on no list nobody ends */
    if (rc == 0) {
        roots_note_changed(fs, ROOTS_TRANSACTIONS);
        limits_watch(fs);
        rc = reply_root(req, transaction);
        if (rc != 0)
            (void)transaction_abort(transaction); /* a failed call changed nothing */
    }
    if (rc != 0)
        reply_error(req, rc);
    transaction_put(transaction);
}

static void transactions_rmdir(fuse_req_t req, const char *name)
{
    struct fusefs *fs = fusefs_of(req);
    struct transaction *transaction = transaction_get(fs, name);
    if (transaction == NULL) {
        reply_error(req, -ENOENT);
        return;
    }
    const uint64_t number = transaction->number;
    const int rc = transaction_abort(transaction);
    transaction_put(transaction);
    transaction_forget_roots(fs, number); /* the kernel takes the name away itself */
    reply_error(req, rc);
}

const struct virtual_kind transactions_kind = {
    .first_ino = TRANSACTIONS_INO,
    .last_ino = TRANSACTIONS_INO,
    .name_rc = -EPERM,
    .change_rc = -EPERM,
    .getattr = transactions_getattr,
    .lookup = transactions_lookup,
    .readdir = transactions_readdir,
    .mkdir = transactions_mkdir,
    .rmdir = transactions_rmdir,
};

/* ---- tombstones ---- */

static void tombstone_getattr(fuse_req_t req, const struct node_identity *node)
{
    struct transaction *transaction = transaction_get_number(fusefs_of(req), transaction_number_of(node->ino));
    if (transaction == NULL) {
        reply_error(req, -ENOENT);
        return;
    }
    struct stat stat;
    tombstone_stat(transaction, &stat);
    (void)fuse_reply_attr(req, &stat, 0);
    transaction_put(transaction);
}

static void tombstone_lookup(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    if (name_is_commit(name))
        reply_error(req, -ENOENT); /* so that making it is tried, and refused */
    else if (strcmp(name, ".tblfs") == 0)
        transaction_tables_lookup_directory(req, dir);
    else
        reply_error(req, -ECANCELED);
}

void transactions_readdir_empty(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after, bool plus)
{
    struct virtual_listing listing;
    if (virtual_listing_begin(&listing, req, size, after, plus, dir->ino, TRANSACTIONS_INO))
        virtual_listing_end(&listing);
}

const struct virtual_kind tombstones_kind = {
    .name_rc = -ECANCELED,
    .change_rc = -ECANCELED,
    .getattr = tombstone_getattr,
    .lookup = tombstone_lookup,
    .readdir = transactions_readdir_empty,
};

/* ---- its root ---- */

bool transaction_is_root(const struct node_identity *node)
{
    return node_tree_is(node->tree, NODE_TREE_TRANSACTION) && node->ino == INO_ROOT;
}

void transaction_root_stat(const struct node_tree *tree, struct stat *inout_stat)
{
    const struct transaction_tree *owner = node_tree_owner(tree);
    struct store_txn_info info;
    store_txn_get_info(owner->txn, &info);
    add_scratch_info(owner->transaction, &info);
    const struct timespec changed = {.tv_sec = info.changed_ns / NANOSECONDS_IN_SECOND,
                                     .tv_nsec = info.changed_ns % NANOSECONDS_IN_SECOND};
    inout_stat->st_mode = ROOT_MODE;
    inout_stat->st_uid = owner->transaction->uid;
    inout_stat->st_gid = owner->transaction->gid;
    inout_stat->st_mtim = changed;
    inout_stat->st_ctim = changed;
}

/* Is the caller in that group? Of its further groups the kernel tells nothing: /proc does. */
static bool caller_is_in_group(fuse_req_t req, gid_t gid)
{
    if (fuse_req_ctx(req)->gid == gid)
        return true;
    const int count = fuse_req_getgroups(req, 0, NULL);
    gid_t *groups = count > 0 ? calloc((size_t)count, sizeof *groups) : NULL;
    if (groups == NULL)
        return false;
    const int got = fuse_req_getgroups(req, count, groups);
    bool found = false;
    for (int index = 0; index < got && index < count && !found; index++)
        found = groups[index] == gid;
    free(groups);
    return found;
}

static int check_mode(fuse_req_t req, const struct store_attr *attr, int wanted)
{
    unsigned allowed = attr->mode;
    if (fuse_req_ctx(req)->uid == attr->uid)
        allowed >>= 6;
    else if (caller_is_in_group(req, attr->gid))
        allowed >>= 3;
    return (allowed & (unsigned)wanted) == (unsigned)wanted ? 0 : -EACCES;
}

/* In a sticky directory only the owners of directory and file may take a name away. */
static int check_sticky(fuse_req_t req, const struct node_identity *dir, const struct store_attr *dir_attr,
                        const char *victim)
{
    const uint32_t uid = fuse_req_ctx(req)->uid;
    const struct store_name name = {.bytes = victim, .size = strlen(victim)};
    struct store_attr attr;
    if ((dir_attr->mode & S_ISVTX) == 0 || dir_attr->uid == uid)
        return 0;
    if (store_lookup(fusefs_of(req)->store, dir->view, dir->ino, name, &attr) != 0)
        return 0; /* nothing that could be taken away */
    return attr.uid == uid ? 0 : -EPERM;
}

int transaction_check_access(fuse_req_t req, const struct node_identity *dir, int wanted, const char *victim)
{
    struct store_attr attr;
    if (!transaction_is_root(dir) || fuse_req_ctx(req)->uid == 0)
        return 0;
    int rc = stale_if_gone(store_getattr(fusefs_of(req)->store, dir->view, INO_ROOT, &attr));
    if (rc == 0)
        rc = check_mode(req, &attr, wanted);
    if (rc == 0 && victim != NULL)
        rc = check_sticky(req, dir, &attr, victim);
    return rc;
}
