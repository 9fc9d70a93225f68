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
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
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

/* The node's open file with one more use, opened if need be. */
static int open_file_get(struct fusefs *fs, const struct node_identity *node, struct open_file **out_open)
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

static void handle_enlist(struct fusefs *fs, struct handle *handle)
{
    mutex_lock(&fs->handles_lock);
    DL_APPEND(fs->handles, handle);
    mutex_unlock(&fs->handles_lock);
}

int handle_open(struct fusefs *fs, const struct node_identity *node, bool read_write, struct handle **out_handle)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return -ENOMEM;
    const int rc = open_file_get(fs, node, &handle->open);
    if (rc != 0) {
        free(handle);
        return rc;
    }
    handle->node_id = node->id;
    handle->read_write = read_write;
    if (read_write)
        append_guard_open_read_write(&handle->open->guard);
    handle_enlist(fs, handle);
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
    handle_enlist(fs, handle);
    *out_handle = handle;
    return 0;
}

void handle_close(struct fusefs *fs, struct handle *handle)
{
    mutex_lock(&fs->handles_lock);
    DL_DELETE(fs->handles, handle);
    mutex_unlock(&fs->handles_lock);
    if (handle->read_write)
        append_guard_close_read_write(&handle->open->guard);
    if (handle->open != NULL)
        open_file_unuse(fs, handle->node_id);
    free(handle->text);
    free(handle);
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
