/*
 * fusefs/transaction_tables.c - $t/.tblfs: what is in a transaction, computed when it is read, read-only TSV.
 *
 *   status      its state; `writer.PID` with a path for each file that is open for writing
 *   changes     each object it changed, and what it did
 *   conflicts   each object on which closing it now would fail: what it did, what happened outside, and when
 *   base/       the tree as it was at begin
 *   tmp/        scratch tables: never logged, gone when it closes
 *
 * Of one that was aborted only status is left.
 *
 * Locking: none of its own.
 */
#include "fusefs/fusefs_int.h"
#include "fusefs/tables.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- who has a file open ---- */

static void write_writer(struct store_txn *txn, const struct handle_writer *writer, FILE *out)
{
    char path[PATH_MAX] = "?"; /* it has no name any more */
    if (txn != NULL && store_txn_path(txn, writer->ino, path, sizeof path) != 0)
        (void)snprintf(path, sizeof path, "?");
    char name[32];
    (void)snprintf(name, sizeof name, "writer.%ld", (long)writer->pid);
    table_write_text(out, name, path);
}

static int write_writers(struct fusefs *fs, struct transaction *transaction, FILE *out)
{
    struct handle_writer *writers = NULL;
    size_t count = 0;
    const int rc = handles_list_writers(fs, transaction, &writers, &count);
    struct store_txn *txn = transaction_store(transaction);
    for (size_t index = 0; rc == 0 && index < count; index++)
        write_writer(txn, &writers[index], out);
    if (txn != NULL)
        store_txn_put(txn);
    free(writers);
    return rc;
}

/* ---- the tables ---- */

static const char *state_name(enum store_txn_state state)
{
    switch (state) {
    case STORE_TXN_OPEN:
        return "open";
    case STORE_TXN_COMMITTED:
        return "committed";
    case STORE_TXN_ABORTED:
        break;
    }
    return "aborted";
}

static void write_time(FILE *out, const char *name, int64_t time_ns)
{
    fprintf(out, "%s\t", name);
    table_write_time(out, time_ns);
    fputc('\n', out);
}

static int write_status(struct fusefs *fs, void *arg, FILE *out)
{
    struct transaction *transaction = arg;
    struct store_txn_info info;
    transaction_get_info(transaction, &info);
    table_write_text(out, "name", transaction->name);
    table_write_count(out, "", "number", info.number);
    table_write_text(out, "state", state_name(info.state));
    table_write_text(out, "reason", transaction->why == NULL ? "" : transaction->why);
    table_write_count(out, "", "uid", info.uid);
    table_write_count(out, "", "pid", info.pid);
    write_time(out, "began", info.began_ns);
    write_time(out, "changed", info.changed_ns);
    table_write_count(out, "", "operations", info.operations);
    table_write_count(out, "", "private_bytes", info.private_bytes);
    table_write_count(out, "", "log_bytes", info.log_bytes);
    return write_writers(fs, transaction, out);
}

static void write_change(FILE *out, const struct store_txn_object *object)
{
    table_write_printable(out, object->path, strlen(object->path));
    fprintf(out, "\t%s\t%" PRIu64 "\t%" PRIu64 "\n", object->did, object->size_before, object->size);
}

static int take_change(void *arg, const struct store_txn_object *object)
{
    write_change(arg, object);
    return 0;
}

/* Writes what that function of the store calls `take` with. */
static int write_objects(struct transaction *transaction, FILE *out, store_txn_object_fn *take,
                         int (*each)(struct store_txn *txn, store_txn_object_fn *fn, void *arg))
{
    struct store_txn *txn = transaction_store(transaction);
    if (txn == NULL)
        return -ECANCELED;
    const int rc = each(txn, take, out);
    store_txn_put(txn);
    return rc;
}

static int write_changes(struct fusefs *fs, void *arg, FILE *out)
{
    (void)fs;
    return write_objects(arg, out, take_change, store_txn_each_change);
}

static int take_conflict(void *arg, const struct store_txn_object *object)
{
    FILE *out = arg;
    table_write_printable(out, object->path, strlen(object->path));
    fprintf(out, "\t%s\t%s\t", object->did, object->outside);
    if (object->since_ns != 0)
        table_write_time(out, object->since_ns);
    fputc('\n', out);
    return 0;
}

static int write_conflicts(struct fusefs *fs, void *arg, FILE *out)
{
    (void)fs;
    return write_objects(arg, out, take_conflict, store_txn_each_conflict);
}

static const struct table tables[] = {
    {"status", 0444, TABLE_VALUES, write_status},
    {"changes", 0444, "path\tdid\tsize_before\tsize", write_changes},
    {"conflicts", 0444, "path\tdid\toutside\tsince", write_conflicts},
    {"base", S_IFDIR | 0555, NULL, NULL},
    {"tmp", S_IFDIR | 0700, NULL, NULL},
};
static const struct table tables_of_aborted[] = {{"status", 0444, TABLE_VALUES, write_status}};

/* ---- as files ---- */

/* The directory of that transaction's tables, with a reference to it. False: it is gone, and the request is answered. */
static bool find_directory(fuse_req_t req, uint64_t number, struct table_directory *out_dir)
{
    struct fusefs *fs = fusefs_of(req);
    struct transaction *transaction = transaction_get_number(fs, number);
    if (transaction == NULL) {
        reply_error(req, -ENOENT);
        return false;
    }
    struct store_txn *txn = transaction_store(transaction);
    const bool open = txn != NULL;
    if (txn != NULL)
        store_txn_put(txn);
    *out_dir = (struct table_directory){
        .ino = transaction_ino(transaction->number, TRANSACTION_NODE_TABLES),
        .parent_st_ino = TRANSACTIONS_INO,
        .tables = open ? tables : tables_of_aborted,
        .count = open ? ARRAY_COUNT(tables) : ARRAY_COUNT(tables_of_aborted),
        .arg = transaction,
    };
    return true;
}

static void put_directory(const struct table_directory *dir)
{
    transaction_put(dir->arg);
}

/* root: of the transaction, or its tombstone. */
void transaction_tables_lookup_directory(fuse_req_t req, const struct node_identity *root)
{
    struct table_directory dir;
    const uint64_t number = node_is_virtual(root) ? transaction_number_of(root->ino) : node_tree_number(root->tree);
    if (!find_directory(req, number, &dir))
        return;
    tables_lookup_directory(req, &dir);
    put_directory(&dir);
}

static void tables_of_getattr(fuse_req_t req, const struct node_identity *node)
{
    struct table_directory dir;
    if (!find_directory(req, transaction_number_of(node->ino), &dir))
        return;
    tables_getattr(req, &dir, node);
    put_directory(&dir);
}

static void tables_of_lookup(fuse_req_t req, const struct node_identity *node, const char *name)
{
    struct table_directory dir;
    if (!find_directory(req, transaction_number_of(node->ino), &dir))
        return;
    if (strcmp(name, "base") == 0)
        transaction_lookup_base(req, dir.arg);
    else if (strcmp(name, "tmp") == 0)
        transaction_lookup_scratch(req, dir.arg);
    else if (dir.tables == tables_of_aborted && strcmp(name, "status") != 0)
        reply_error(req, -ECANCELED);
    else
        tables_lookup(req, &dir, name);
    put_directory(&dir);
}

static void tables_of_readdir(fuse_req_t req, const struct node_identity *node, size_t size, uint64_t after, bool plus)
{
    struct table_directory dir;
    if (!find_directory(req, transaction_number_of(node->ino), &dir))
        return;
    tables_readdir(req, &dir, size, after, plus);
    put_directory(&dir);
}

static void tables_of_open(fuse_req_t req, const struct node_identity *node, struct fuse_file_info *fi)
{
    struct table_directory dir;
    if (!find_directory(req, transaction_number_of(node->ino), &dir))
        return;
    tables_open(req, &dir, node, fi);
    put_directory(&dir);
}

const struct virtual_kind transaction_tables_kind = {
    .name_rc = -EROFS,
    .change_rc = -EROFS,
    .getattr = tables_of_getattr,
    .lookup = tables_of_lookup,
    .readdir = tables_of_readdir,
    .open = tables_of_open,
};
