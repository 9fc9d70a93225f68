/*
 * fusefs/commit.c - $t/.commit: making it commits the transaction.
 *
 *   handler: commit_start --> claim, writers out, store_txn_commit, tell the kernel --> reply --> tell the rest
 *
 * What the kernel is told waits for requests in flight (TELL-1), and so does the wait for writers. So a commit keeps its handler's thread
 * only while most of the threads are left for these requests; else it runs on a worker (workers_run).
 *
 * COMMIT-1 Whatever the reply needs is made before the commit: one that happened is never answered with an error. COMMIT-2 It
 * is answered once, by its thread or, when the kernel keeps that waiting for longer than REPLY_WAIT_MS, by a timer.
 * COMMIT-3 (.txn, NAME) is taken from the kernel after the reply: a rmdir of it holds MNT/.txn and waits for this call.
 *
 * Locking: none held while the store is called or the kernel told.
 */
#include "fusefs/fusefs_int.h"
#include "fusefs/notify.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WRITERS_WAIT_MS 1000u
#define REPLY_WAIT_MS   1000u

/* A live file that a process may have mapped, and that rows may be merged into. */
struct guarded {
    uint64_t node_id;
    struct open_file *open; /* one use */
    ino_no ino;
    uint64_t added_bytes;
};

struct commit {
    struct fusefs *fs;
    fuse_req_t req;
    struct transaction *transaction; /* one reference */
    struct node_tree *tree;          /* one hold; so txn stays */
    struct store_txn *txn;
    mode_t type;
    bool opens;
    struct fuse_file_info fi; /* if it opens */
    struct fuse_entry_param entry;
    struct handle *handle;
    struct store_changes changes;
    struct telling telling;
    struct guarded *guarded;
    size_t guarded_count;
    struct worker_timer timer;
    _Atomic bool replied;
};

/* ---- the receipt ---- */

/* Whoever asks owns it: he may set its times. */
static void receipt_stat(fuse_req_t req, ino_no ino, mode_t type, struct stat *out_stat)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    *out_stat = (struct stat){
        .st_ino = ino,
        .st_mode = type | (type == S_IFDIR ? 0777u : 0666u),
        .st_nlink = type == S_IFDIR ? 2 : 1,
        .st_uid = ctx->uid,
        .st_gid = ctx->gid,
    };
}

static void receipt_getattr(fuse_req_t req, const struct node_identity *node)
{
    struct stat stat;
    receipt_stat(req, node->ino, node->type, &stat);
    (void)fuse_reply_attr(req, &stat, 0);
}

static void receipt_open(fuse_req_t req, const struct node_identity *node, struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    struct handle *handle = NULL;
    const int rc = handle_open_receipt(fs, node->id, &handle);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    fi->fh = (uintptr_t)handle;
    fi->direct_io = 1;
    if (fuse_reply_open(req, fi) != 0)
        handle_close(fs, handle); /* interrupted: no release will come */
}

static void receipt_lookup(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    (void)dir;
    (void)name;
    reply_error(req, -ENOENT);
}

const struct virtual_kind receipts_kind = {
    .name_rc = -EPERM,
    .change_rc = -EPERM,
    .getattr = receipt_getattr,
    .setattr = receipt_getattr, /* does nothing, successfully */
    .lookup = receipt_lookup,
    .readdir = transactions_readdir_empty,
    .open = receipt_open,
};

/* COMMIT-1. */
static int receipt_prepare(struct commit *commit)
{
    const ino_no ino = transaction_ino(commit->transaction->number, TRANSACTION_NODE_RECEIPT);
    uint64_t id;
    int rc = node_enter(commit->fs->nodes, NODE_TREE_VIRTUAL, ino, commit->type, &id);
    if (rc != 0)
        return rc;
    commit->entry.ino = id;
    receipt_stat(commit->req, ino, commit->type, &commit->entry.attr);
    if (commit->opens) {
        rc = handle_open_receipt(commit->fs, id, &commit->handle);
        commit->fi.fh = (uintptr_t)commit->handle;
        commit->fi.direct_io = 1;
    }
    if (rc != 0) {
        node_forget(commit->fs->nodes, id, 1);
        commit->entry.ino = 0;
    }
    return rc;
}

static void receipt_discard(struct commit *commit)
{
    if (commit->handle != NULL)
        handle_close(commit->fs, commit->handle);
    if (commit->entry.ino != 0)
        node_forget(commit->fs->nodes, commit->entry.ino, 1);
}

/* False: it was answered before (COMMIT-2). */
static bool commit_reply(struct commit *commit)
{
    if (atomic_exchange(&commit->replied, true))
        return false;
    const int rc = commit->opens ? fuse_reply_create(commit->req, &commit->entry, &commit->fi)
                                 : fuse_reply_entry(commit->req, &commit->entry);
    if (rc != 0)
        receipt_discard(commit); /* FUSE-2 */
    return true;
}

static void reply_in_time(void *arg)
{
    struct commit *commit = arg;
    const ino_no dir = commit->telling.waits_for;
    const uint64_t number = commit->changes.number;
    if (commit->replied)
        return;
    telling_reply_early(&commit->telling);
    if (commit_reply(commit))
        diag_log(&commit->fs->log.diag, DIAG_WARNING,
                 "commit %llu: somebody keeps directory %llu locked, so it was answered before all look-ups under way "
                 "there had ended",
                 (unsigned long long)number, (unsigned long long)dir);
}

/* ---- page write-back beside merged rows (GUARD-1) ---- */

static int size_of(struct fusefs *fs, struct view *view, ino_no ino, uint64_t *out_size_bytes)
{
    struct store_attr attr;
    const int rc = store_getattr(fs->store, view, ino, &attr);
    if (rc == 0)
        *out_size_bytes = attr.size_bytes;
    return rc;
}

/* Will rows be merged into it? Then its guard is told of an append under way. */
static bool guard_begin(struct commit *commit, struct guarded *guarded)
{
    struct fusefs *fs = commit->fs;
    struct store_attr attr;
    uint64_t before = 0, after = 0;
    if (store_file_getattr(guarded->open->file, &attr) != 0 ||
        size_of(fs, store_txn_base(commit->txn), attr.ino, &before) != 0 ||
        size_of(fs, store_txn_view(commit->txn), attr.ino, &after) != 0 || after <= before)
        return false;
    guarded->ino = attr.ino;
    guarded->added_bytes = after - before;
    append_guard_begin(&guarded->open->guard, attr.size_bytes);
    return true;
}

static int guards_begin(struct commit *commit)
{
    struct fusefs *fs = commit->fs;
    uint64_t *ids = NULL;
    size_t count = 0;
    const int rc = handles_list_read_write(fs, &ids, &count);
    if (rc != 0 || count == 0)
        return rc;
    commit->guarded = calloc(count, sizeof *commit->guarded);
    for (size_t index = 0; index < count && commit->guarded != NULL; index++) {
        struct guarded guarded = {.node_id = ids[index], .open = node_open_use(fs->nodes, ids[index])};
        if (guarded.open == NULL)
            continue;
        if (guard_begin(commit, &guarded))
            commit->guarded[commit->guarded_count++] = guarded;
        else
            open_file_unuse(fs, guarded.node_id);
    }
    free(ids);
    return commit->guarded == NULL ? -ENOMEM : 0;
}

/* Where the rows of that table went: NULL: nowhere. */
static const struct store_change *find_merge(const struct commit *commit, ino_no ino)
{
    for (size_t index = 0; index < commit->changes.count; index++) {
        const struct store_change *change = &commit->changes.changes[index];
        if (change->kind == STORE_CHANGE_APPENDED && change->ino == ino)
            return change;
    }
    return NULL;
}

static void guards_end(struct commit *commit)
{
    for (size_t index = 0; index < commit->guarded_count; index++) {
        const struct guarded *guarded = &commit->guarded[index];
        const struct store_change *merge = find_merge(commit, guarded->ino);
        const uint64_t first = merge == NULL ? 0 : merge->old_size;
        append_guard_end(&guarded->open->guard, first, merge == NULL ? 0 : first + guarded->added_bytes);
        open_file_unuse(commit->fs, guarded->node_id);
    }
    free(commit->guarded);
}

/* ---- the commit ---- */

/* In the store. On failure it is open as before. */
static int commit_in_store(struct commit *commit)
{
    struct transaction *transaction = commit->transaction;
    int rc = handles_shut_writers_out(commit->fs, transaction, WRITERS_WAIT_MS);
    if (rc == 0)
        rc = guards_begin(commit);
    if (rc == 0)
        rc = store_txn_commit(commit->txn, &commit->changes);
    guards_end(commit);
    if (rc != 0)
        handles_let_writers_in(commit->fs, transaction);
    else
        handles_note_committed(commit->fs, transaction);
    return rc;
}

/* The claim is given up on the way. */
static int commit_claimed(struct commit *commit, enum transaction_state state)
{
    struct fusefs *fs = commit->fs;
    int rc = state == TRANSACTION_ABORTED ? -ECANCELED : receipt_prepare(commit);
    if (rc == 0)
        rc = commit_in_store(commit);
    if (rc != 0) {
        receipt_discard(commit);
        transaction_unclaim(commit->transaction);
        return rc;
    }
    const uint64_t root_id = node_known_id(fs->nodes, commit->tree, INO_ROOT);
    transaction_gone(commit->transaction);
    notify_attributes(fs, root_id); /* whoever walks through it asks us, and is told that it is gone */
    worker_timer_arm(fs->workers, &commit->timer, REPLY_WAIT_MS, reply_in_time, commit);
    telling_before_reply(&commit->telling);
    (void)commit_reply(commit);
    worker_timer_cancel(fs->workers, &commit->timer);
    return 0;
}

static void tell_the_rest(struct commit *commit)
{
    struct fusefs *fs = commit->fs;
    telling_after_reply(&commit->telling);
    notify_entry_gone(fs, TRANSACTIONS_INO, commit->transaction->name); /* COMMIT-3 */
    transaction_forget_roots(fs, commit->transaction->number);
}

static void commit_free(struct commit *commit)
{
    store_changes_free(&commit->changes);
    node_tree_let_go(commit->tree);
    transaction_put(commit->transaction);
    free(commit);
}

static void commit_run(void *arg)
{
    struct commit *commit = arg;
    enum transaction_state state;
    telling_begin(commit->fs, &commit->telling, &commit->changes);
    int rc = transaction_claim(commit->transaction, &state);
    if (rc == 0)
        rc = commit_claimed(commit, state);
    if (rc == 0)
        tell_the_rest(commit);
    else
        reply_error(commit->req, rc);
    telling_end(&commit->telling);
    commit_free(commit);
}

bool commit_is_gesture(const struct node_identity *dir, const char *name)
{
    return transaction_is_root(dir) && name_is_commit(name);
}

void commit_start(fuse_req_t req, const struct node_identity *dir, mode_t type, const struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    const struct transaction_tree *owner = node_tree_owner(dir->tree);
    struct transaction *transaction = transaction_get_number(fs, node_tree_number(dir->tree));
    struct commit *commit = calloc(1, sizeof *commit);
    int rc = transaction == NULL ? -ENOENT : commit == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        *commit =
            (struct commit){.fs = fs, .req = req, .transaction = transaction, .tree = dir->tree, .txn = owner->txn};
        commit->type = type;
        commit->opens = fi != NULL;
        if (fi != NULL)
            commit->fi = *fi;
        node_tree_hold(dir->tree);
        rc = workers_run(fs->workers, commit_run, commit);
        if (rc == 0)
            return;
        node_tree_let_go(dir->tree);
    }
    free(commit);
    if (transaction != NULL)
        transaction_put(transaction);
    reply_error(req, rc);
}
