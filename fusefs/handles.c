/*
 * fusefs/handles.c - open files.
 *
 * All handles of a node share one open file of the store, which keeps the inode alive when its last name goes. A handle
 * is what the kernel's open file holds; all are listed, because at an unmount some are never released.
 *
 * Locking: the list under fs->handles_lock. The store is called without any lock.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <utlist.h>

static void open_file_destroy(struct open_file *open)
{
    store_file_close(open->file);
    node_tree_let_go(open->tree); /* NODE-4: the view was the file's until here */
    append_guard_destroy(&open->guard);
    free(open);
}

void open_file_unuse(struct fusefs *fs, uint64_t node_id)
{
    struct open_file *last = node_open_unuse(fs->nodes, node_id);
    if (last != NULL)
        open_file_destroy(last);
}

void open_file_lost_set_id(struct fusefs *fs, uint64_t node_id, struct open_file *open)
{
    if (atomic_exchange(&open->set_id, false))
        (void)fuse_lowlevel_notify_inval_inode(fs->session, node_id, -1, 0);
}

static int open_file_new(struct fusefs *fs, const struct node_identity *node, struct open_file **out_open)
{
    struct open_file *open = calloc(1, sizeof *open);
    if (open == NULL)
        return -ENOMEM;
    const int rc = store_file_open(fs->store, node->view, node->ino, &open->file);
    if (rc != 0) {
        free(open);
        return stale_if_gone(rc);
    }
    open->tree = node->tree;
    node_tree_hold(open->tree);
    struct store_attr attr;
    open->set_id = store_file_getattr(open->file, &attr) != 0 || (attr.mode & (S_ISUID | S_ISGID)) != 0;
    append_guard_init(&open->guard);
    *out_open = open;
    return 0;
}

int open_file_get(struct fusefs *fs, const struct node_identity *node, struct open_file **out_open)
{
    struct open_file *open = node_open_use(fs->nodes, node->id);
    if (open == NULL) {
        struct open_file *fresh = NULL;
        const int rc = open_file_new(fs, node, &fresh);
        if (rc != 0)
            return rc;
        open = node_open_install(fs->nodes, node->id, fresh);
        if (open != fresh)
            open_file_destroy(fresh);
        if (open == NULL)
            return -ESTALE;
    }
    *out_open = open;
    return 0;
}

void handles_init(struct fusefs *fs)
{
    mutex_init(&fs->handles_lock, LOCK_RANK_LEAF);
    condvar_init(&fs->writer_closed);
}

void handles_destroy(struct fusefs *fs)
{
    condvar_destroy(&fs->writer_closed);
    mutex_destroy(&fs->handles_lock);
}

/* Of which transaction is it a file open for writing? NULL: of none. */
static struct transaction *written_transaction(const struct handle *handle)
{
    if (!handle->writes || !node_tree_is(handle->open->tree, NODE_TREE_TRANSACTION))
        return NULL;
    const struct transaction_tree *owner = node_tree_owner(handle->open->tree);
    return owner->transaction;
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int handle_check_canceled(const struct handle *handle)
{
    const struct open_file *open = handle->writes ? handle->open : NULL;
    if (open == NULL ||
        !(node_tree_is(open->tree, NODE_TREE_TRANSACTION) || node_tree_is(open->tree, NODE_TREE_SCRATCH)))
        return 0;
    const struct transaction_tree *owner = node_tree_owner(open->tree);
    return store_txn_state(owner->txn) == STORE_TXN_ABORTED ? -ECANCELED : 0;
}

/* While the transaction is being committed an open for writing waits to see what comes of it; not for long: the commit may have to wait for
 * requests that no thread is left to serve. */
#define COMMIT_WAIT_MS 1000

static int handle_enlist(struct fusefs *fs, struct handle *handle)
{
    const int64_t deadline_ms = now_ms() + COMMIT_WAIT_MS;
    int rc = 0;
    mutex_lock(&fs->handles_lock);
    const struct transaction *transaction = written_transaction(handle);
    int64_t left_ms = COMMIT_WAIT_MS;
    while (transaction != NULL && transaction->writers_shut_out && !transaction->committed && left_ms > 0) {
        (void)condvar_wait_ms(&fs->writer_closed, &fs->handles_lock, (uint64_t)left_ms);
        left_ms = deadline_ms - now_ms();
    }
    if (transaction != NULL && transaction->writers_shut_out)
        rc = transaction->committed ? -ENOENT : -EBUSY;
    else
        DL_APPEND(fs->handles, handle);
    mutex_unlock(&fs->handles_lock);
    return rc;
}

int handle_open(struct fusefs *fs, const struct node_identity *node, int access, pid_t pid, struct handle **out_handle)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return -ENOMEM;
    handle->node_id = node->id;
    handle->read_write = access == O_RDWR;
    handle->writes = access != O_RDONLY;
    handle->pid = pid;
    int rc = open_file_get(fs, node, &handle->open);
    if (rc == 0) {
        rc = handle_enlist(fs, handle);
        if (rc != 0)
            open_file_unuse(fs, node->id);
    }
    if (rc != 0) {
        free(handle);
        return rc;
    }
    if (handle->read_write)
        append_guard_open_read_write(&handle->open->guard);
    *out_handle = handle;
    return 0;
}

int handle_open_text(struct fusefs *fs, uint64_t node_id, char *text, size_t text_size, struct handle **out_handle)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL) {
        free(text);
        return -ENOMEM;
    }
    handle->node_id = node_id;
    handle->text = text;
    handle->text_size = text_size;
    (void)handle_enlist(fs, handle); /* a virtual one is always let in */
    *out_handle = handle;
    return 0;
}

int handle_open_receipt(struct fusefs *fs, uint64_t node_id, struct handle **out_handle)
{
    const int rc = handle_open_text(fs, node_id, NULL, 0, out_handle);
    if (rc == 0)
        (*out_handle)->receipt = true;
    return rc;
}

void handle_close(struct fusefs *fs, struct handle *handle)
{
    mutex_lock(&fs->handles_lock);
    DL_DELETE(fs->handles, handle);
    if (written_transaction(handle) != NULL)
        condvar_broadcast(&fs->writer_closed);
    mutex_unlock(&fs->handles_lock);
    handle_end_compaction(handle);
    if (handle->read_write)
        append_guard_close_read_write(&handle->open->guard);
    if (handle->open != NULL)
        open_file_unuse(fs, handle->node_id);
    store_backup_end(handle->backup);
    free(handle->block_runs);
    free(handle->text);
    free(handle);
}

/* ---- who has what open ---- */

static size_t count_writers_locked(struct fusefs *fs, const struct transaction *transaction)
{
    const struct handle *handle;
    size_t count = 0;
    DL_FOREACH(fs->handles, handle)
    {
        count += written_transaction(handle) == transaction ? 1 : 0;
    }
    return count;
}

int handles_shut_writers_out(struct fusefs *fs, struct transaction *transaction, uint64_t timeout_ms)
{
    const int64_t deadline_ms = now_ms() + (int64_t)timeout_ms;
    bool free_of_writers = false;
    mutex_lock(&fs->handles_lock);
    for (;;) {
        free_of_writers = count_writers_locked(fs, transaction) == 0;
        const int64_t left_ms = deadline_ms - now_ms();
        if (free_of_writers || left_ms <= 0)
            break;
        (void)condvar_wait_ms(&fs->writer_closed, &fs->handles_lock, (uint64_t)left_ms);
    }
    transaction->writers_shut_out = free_of_writers;
    mutex_unlock(&fs->handles_lock);
    return free_of_writers ? 0 : -EBUSY;
}

void handles_let_writers_in(struct fusefs *fs, struct transaction *transaction)
{
    mutex_lock(&fs->handles_lock);
    transaction->writers_shut_out = false;
    condvar_broadcast(&fs->writer_closed);
    mutex_unlock(&fs->handles_lock);
}

void handles_note_committed(struct fusefs *fs, struct transaction *transaction)
{
    mutex_lock(&fs->handles_lock);
    transaction->committed = true;
    condvar_broadcast(&fs->writer_closed);
    mutex_unlock(&fs->handles_lock);
}

int handles_list_writers(struct fusefs *fs, struct transaction *transaction, struct handle_writer **out_writers,
                         size_t *out_count)
{
    const struct handle *handle;
    struct handle_writer *writers = NULL;
    size_t count = 0;
    mutex_lock(&fs->handles_lock);
    const size_t wanted = count_writers_locked(fs, transaction);
    if (wanted > 0)
        writers = calloc(wanted, sizeof *writers);
    DL_FOREACH(fs->handles, handle)
    {
        if (writers != NULL && written_transaction(handle) == transaction)
            writers[count++] = (struct handle_writer){
                .pid = handle->pid,
                .ino = store_file_ino(handle->open->file),
            };
    }
    mutex_unlock(&fs->handles_lock);
    if (wanted > 0 && writers == NULL)
        return -ENOMEM;
    *out_writers = writers;
    *out_count = count;
    return 0;
}

static epoch_no old_version_of(const struct handle *handle)
{
    return handle->open != NULL ? store_file_replaced_at(handle->open->file) : 0;
}

int handles_list_old_versions(struct fusefs *fs, struct handle_reader **out_readers, size_t *out_count)
{
    const struct handle *handle;
    struct handle_reader *readers = NULL;
    size_t wanted = 0, count = 0;
    mutex_lock(&fs->handles_lock);
    DL_FOREACH(fs->handles, handle)
    {
        wanted += old_version_of(handle) != 0 ? 1 : 0;
    }
    if (wanted > 0)
        readers = calloc(wanted, sizeof *readers);
    DL_FOREACH(fs->handles, handle)
    {
        const epoch_no at = readers != NULL && count < wanted ? old_version_of(handle) : 0;
        if (at != 0)
            readers[count++] = (struct handle_reader){.pid = handle->pid, .at = at};
    }
    mutex_unlock(&fs->handles_lock);
    if (wanted > 0 && readers == NULL)
        return -ENOMEM;
    *out_readers = readers;
    *out_count = count;
    return 0;
}

static bool is_live_read_write(const struct handle *handle)
{
    return handle->read_write && node_tree_is(handle->open->tree, NODE_TREE_LIVE);
}

int handles_list_read_write(struct fusefs *fs, uint64_t **out_ids, size_t *out_count)
{
    const struct handle *handle;
    uint64_t *ids = NULL;
    size_t wanted = 0, count = 0;
    mutex_lock(&fs->handles_lock);
    DL_FOREACH(fs->handles, handle)
    {
        wanted += is_live_read_write(handle) ? 1 : 0;
    }
    if (wanted > 0)
        ids = calloc(wanted, sizeof *ids);
    DL_FOREACH(fs->handles, handle)
    {
        if (ids != NULL && is_live_read_write(handle))
            ids[count++] = handle->node_id;
    }
    mutex_unlock(&fs->handles_lock);
    if (wanted > 0 && ids == NULL)
        return -ENOMEM;
    *out_ids = ids;
    *out_count = count;
    return 0;
}

void handles_close_all(struct fusefs *fs)
{
    while (fs->handles != NULL)
        handle_close(fs, fs->handles);
    struct open_file *open = node_table_take_all_open(fs->nodes);
    while (open != NULL) { /* uses that a request cut off in the middle left behind */
        struct open_file *next = open->next;
        open_file_destroy(open);
        open = next;
    }
}
