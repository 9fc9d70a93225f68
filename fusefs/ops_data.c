/*
 * fusefs/ops_data.c - open files and their bytes.
 *
 * How a file is opened decides how the kernel sends its writes:
 *
 *   O_APPEND, or O_WRONLY and empty      direct: a write comes whole (up to 255 pages), so that appends stay whole
 *   (just made, or O_TRUNC)
 *   all others                           through the page cache, which is kept between opens
 *
 * The offset of an append is the kernel's idea of the size and is ignored: the store puts it at the true end. Page
 * write-back (mmap) comes from any handle, never extends the file, and never changes what was appended beside it
 * (fusefs/append_guard.h).
 *
 * Locking: none of its own. A read is answered straight from pinned frames, holding nothing else.
 */
#include "fusefs/drops.h"
#include "fusefs/fusefs_int.h"
#include "fusefs/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECES_MAX 1000u /* of one reply: writev(2) takes 1024 */

/* ---- open, create, release ---- */

static unsigned kill_priv_by_caller(fuse_req_t req, unsigned flag)
{
    return kernel_leaves_kill_priv(&fusefs_of(req)->link) && fuse_req_ctx(req)->uid != 0 ? flag : 0;
}

static void set_open_flags(struct fuse_file_info *fi, bool created)
{
    const int access = fi->flags & O_ACCMODE;
    const bool empty = created || (fi->flags & O_TRUNC) != 0;
    const bool direct = (fi->flags & O_APPEND) != 0 || (access == O_WRONLY && empty);
    fi->direct_io = direct ? 1 : 0;
    fi->keep_cache = direct ? 0 : 1;
    fi->noflush = access == O_RDONLY ? 1 : 0;
}

/* O_TRUNC, which the kernel leaves to us. */
static int truncate_opened(fuse_req_t req, const struct node_identity *node, struct open_file *open)
{
    struct fusefs *fs = fusefs_of(req);
    const struct store_attr empty = {.size_bytes = 0};
    struct store_attr after;
    const unsigned kill = kill_priv_by_caller(req, STORE_SET_KILL_SUID);
    int rc = drops_check_cut(fs, node);
    if (rc == 0)
        rc = store_setattr(fs->store, node->view, node->ino, STORE_SET_SIZE | kill, &empty, &after);
    if (rc != 0)
        return stale_if_gone(rc);
    append_guard_cut(&open->guard, 0);
    if (kill != 0)
        open_file_lost_set_id(fs, node->id, open);
    return 0;
}

/* created: just now, by this request. */
static int open_node(fuse_req_t req, const struct node_identity *node, bool created, struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    struct handle *handle = NULL;
    const bool writes = (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0;
    int rc = writes ? node_check_writable(node) : 0;
    if (rc == 0)
        rc = handle_open(fs, node, fi->flags & O_ACCMODE, fuse_req_ctx(req)->pid, &handle);
    if (rc != 0)
        return rc;
    if ((fi->flags & O_TRUNC) != 0 &&
        !created) /* with O_RDONLY too: the kernel has checked that the caller may write */
        rc = truncate_opened(req, node, handle->open);
    if (rc != 0) {
        handle_close(fs, handle);
        return rc;
    }
    fi->fh = (uintptr_t)handle;
    set_open_flags(fi, created);
    return 0;
}

void serve_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED node = NODE_NONE;
    int rc = node_find(fs->nodes, ino, &node);
    if (rc == 0 && node_is_virtual(&node)) {
        virtual_open(req, &node, fi);
        return;
    }
    if (rc == 0)
        rc = open_node(req, &node, false, fi);
    if (rc != 0)
        reply_error(req, rc);
    else if (fuse_reply_open(req, fi) != 0)
        handle_close(fs, handle_of(fi)); /* interrupted: no release will come */
}

/* Makes the file, or finds the one that is there unless O_EXCL says no. */
static int create_or_find(fuse_req_t req, const struct node_identity *dir, const char *name, mode_t mode, int flags,
                          struct store_attr *out_attr, bool *out_created)
{
    struct store *store = fusefs_of(req)->store;
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    const struct store_who who = {.uid = ctx->uid, .gid = ctx->gid};
    const struct store_name store_name = {.bytes = name, .size = strlen(name)};
    int rc = store_create(store, dir->view, dir->ino, store_name, (mode & ~(mode_t)S_IFMT) | S_IFREG, 0, who, out_attr);
    *out_created = rc == 0;
    if (rc != -EEXIST || (flags & O_EXCL) != 0)
        return rc;
    rc = store_lookup(store, dir->view, dir->ino, store_name, out_attr);
    return rc == 0 && (out_attr->mode & S_IFMT) != S_IFREG ? -EEXIST : rc;
}

/* Enters the file's node and opens it. On failure nothing stays. */
static int enter_and_open(fuse_req_t req, const struct node_identity *dir, const struct store_attr *attr, bool created,
                          struct fuse_file_info *fi, struct fuse_entry_param *out_entry)
{
    struct fusefs *fs = fusefs_of(req);
    int rc = entry_make(fs, dir->tree, attr, out_entry);
    if (rc != 0)
        return rc;
    const struct node_identity node = {
        .id = out_entry->ino, .tree = dir->tree, .view = dir->view, .ino = attr->ino, .type = S_IFREG};
    rc = open_node(req, &node, created, fi);
    if (rc != 0)
        node_forget(fs->nodes, out_entry->ino, 1);
    else if ((fi->flags & O_TRUNC) != 0)
        out_entry->attr.st_size = 0;
    return rc;
}

void serve_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED dir = NODE_NONE;
    struct store_attr attr;
    struct fuse_entry_param entry;
    bool created = false;
    int rc = node_find(fs->nodes, parent, &dir);
    if (rc == 0 && commit_is_gesture(&dir, name)) {
        commit_start(req, &dir, S_IFREG, fi);
        return;
    }
    if (rc == 0)
        rc = name_check_new(&dir, name);
    if (rc == 0)
        rc = transaction_check_access(req, &dir, W_OK | X_OK, NULL);
    if (rc == 0)
        rc = create_or_find(req, &dir, name, mode, fi->flags, &attr, &created);
    if (rc == 0)
        rc = enter_and_open(req, &dir, &attr, created, fi, &entry);
    if (rc != 0) {
        reply_error(req, rc);
    } else if (fuse_reply_create(req, &entry, fi) != 0) {
        handle_close(fs, handle_of(fi));
        node_forget(fs->nodes, entry.ino, 1); /* FUSE-2 */
    }
}

void serve_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    handle_close(fusefs_of(req), handle_of(fi));
    reply_error(req, 0);
}

/* ---- read ---- */

/* Sent from a copy: once the kernel has the reply, the handle may be released while this thread still returns. */
static void read_text(fuse_req_t req, const struct handle *handle, size_t size, off_t offset)
{
    const size_t start = (uint64_t)offset < handle->text_size ? (size_t)offset : handle->text_size;
    const size_t left = handle->text_size - start;
    const size_t part_size = left < size ? left : size;
    char *part = malloc(part_size + 1);
    if (part == NULL) {
        reply_error(req, -ENOMEM);
        return;
    }
    memcpy(part, handle->text + start, part_size);
    (void)fuse_reply_buf(req, part, part_size);
    free(part);
}

/* With a copy: when there are too few frames to pin, or too many pieces for one reply. */
static void read_copied(fuse_req_t req, struct store_file *file, size_t size, off_t offset)
{
    size_t got = 0;
    char *buffer = malloc(size);
    int rc = buffer == NULL ? -ENOMEM : 0;
    if (rc == 0)
        rc = store_read(file, (uint64_t)offset, buffer, size, &got);
    if (rc != 0)
        reply_error(req, rc);
    else
        (void)fuse_reply_buf(req, buffer, got);
    free(buffer);
}

void serve_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    const struct handle *handle = handle_of(fi);
    struct content_pieces pieces;
    struct frame_budget budget;
    (void)ino;
    if (handle->open == NULL) {
        read_text(req, handle, size, offset);
        return;
    }
    const int rc = store_read_pieces(handle->open->file, (uint64_t)offset, size, &pieces, &budget);
    if (rc == -E2BIG) {
        read_copied(req, handle->open->file, size, offset);
        return;
    }
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    const bool sendable = pieces.count <= PIECES_MAX;
    if (sendable)
        (void)fuse_reply_iov(req, pieces.iov, (int)pieces.count);
    content_pieces_release(&pieces);
    frame_budget_release(&budget);
    if (!sendable)
        read_copied(req, handle->open->file, size, offset);
}

/* ---- write ---- */

static int write_at(struct open_file *open, const char *bytes, size_t size, off_t offset, unsigned flags)
{
    uint64_t end;
    return store_write(open->file, (uint64_t)offset, bytes, size, flags, &end);
}

/* GUARD-1: while a read-write handle is open, the append is announced before it happens. */
static int write_append(struct open_file *open, const char *bytes, size_t size, unsigned flags)
{
    struct store_attr before;
    uint64_t end = 0;
    if (!append_guard_is_needed(&open->guard))
        return store_write(open->file, 0, bytes, size, flags | STORE_WRITE_APPEND, &end);
    int rc = store_file_getattr(open->file, &before);
    if (rc != 0)
        return rc;
    append_guard_begin(&open->guard, before.size_bytes);
    rc = store_write(open->file, 0, bytes, size, flags | STORE_WRITE_APPEND, &end);
    append_guard_end(&open->guard, rc == 0 ? end - size : 0, rc == 0 ? end : 0);
    return rc;
}

static void log_dropped_once(struct fusefs *fs, ino_no ino)
{
    if (!atomic_exchange(&fs->dropped_logged, true))
        diag_log(&fs->log.diag, DIAG_WARNING,
                 "inode %llu: stores through a shared mapping met rows appended meanwhile; the rows were kept (said "
                 "once)",
                 (unsigned long long)ino);
}

/* Page write-back: what lies behind the end was never the file's, what was appended meanwhile is not the mapping's. */
static int write_back_pages(struct fusefs *fs, struct open_file *open, const char *bytes, size_t size, off_t offset)
{
    const uint64_t first_byte = (uint64_t)offset;
    struct store_attr attr;
    struct guard_range part = {.first_byte = first_byte, .end_byte = first_byte};
    uint64_t written_bytes = 0, file_end;
    int rc = store_file_getattr(open->file, &attr); /* GUARD-1: size first */
    if (rc != 0)
        return rc;
    const uint64_t end_byte = first_byte + size < attr.size_bytes ? first_byte + size : attr.size_bytes;
    while (rc == 0 && append_guard_clip(&open->guard, part.end_byte, end_byte, &part)) {
        const uint64_t part_size = part.end_byte - part.first_byte;
        rc = store_write(open->file, part.first_byte, bytes + (part.first_byte - first_byte), part_size,
                         STORE_WRITE_NO_EXTEND, &file_end);
        written_bytes += part_size;
    }
    if (rc == 0 && first_byte < end_byte && written_bytes < end_byte - first_byte)
        log_dropped_once(fs, attr.ino);
    return rc;
}

/* What a program writes with write(2) and its kin. */
static int write_bytes(fuse_req_t req, const struct handle *handle, const char *bytes, size_t size, off_t offset,
                       bool append)
{
    const unsigned flags = kill_priv_by_caller(req, STORE_WRITE_KILL_SUID);
    int rc;
    if (append)
        rc = write_append(handle->open, bytes, size, flags);
    else
        rc = write_at(handle->open, bytes, size, offset, flags);
    if (rc == 0 && flags != 0)
        open_file_lost_set_id(fusefs_of(req), handle->node_id, handle->open);
    return rc;
}

/* O_SYNC, O_DSYNC, RWF_DSYNC (the kernel puts it into the flags), -o sync. Page write-back is followed by an fsync. */
static bool write_is_synchronous(fuse_req_t req, const struct fuse_file_info *fi)
{
    return !fi->writepage && ((fi->flags & O_DSYNC) != 0 || fusefs_of(req)->options->synchronous);
}

/* ---- appends through a handle whose table a commit replaced ---- */

struct redirected_reply {
    fuse_req_t req;
    uint64_t node_id; /* one lookup */
    uint64_t first_byte;
    size_t size;
    bool durable;
};

/* What the kernel keeps of the new table did not see these bytes come. */
static void reply_redirected(void *arg)
{
    struct redirected_reply *reply = arg;
    struct fusefs *fs = fusefs_of(reply->req);
    notify_bytes(fs, reply->node_id, reply->first_byte);
    node_forget(fs->nodes, reply->node_id, 1);
    if (reply->durable)
        reply_when_durable(reply->req, reply->size);
    else
        (void)fuse_reply_write(reply->req, reply->size);
    free(reply);
}

/* Appends to the live table `ino`. -ESTALE: that was replaced (*out_next) or is gone (INO_NONE). */
static int append_to(struct fusefs *fs, ino_no ino, const char *bytes, size_t size, unsigned flags,
                     struct redirected_reply *reply, ino_no *out_next)
{
    struct node_tree *live = node_table_live(fs->nodes);
    struct node_identity node = {.tree = live, .view = node_tree_view(live), .ino = ino, .type = S_IFREG};
    struct open_file *open = NULL;
    *out_next = INO_NONE;
    int rc = node_enter(fs->nodes, live, ino, S_IFREG, &node.id);
    if (rc != 0)
        return rc;
    rc = open_file_get(fs, &node, &open);
    if (rc == 0) {
        struct store_attr before = {.size_bytes = 0};
        rc = store_file_getattr(open->file, &before);
        reply->first_byte = before.size_bytes;
        if (rc == 0)
            rc = write_append(open, bytes, size, flags);
        if (rc == -ESTALE)
            (void)store_file_replaced(open->file, out_next);
        open_file_unuse(fs, node.id);
    }
    if (rc != 0)
        node_forget(fs->nodes, node.id, 1);
    reply->node_id = node.id;
    return rc;
}

/* Answers. The bytes land at the end of what has the table's names now. */
static void append_to_replacement(fuse_req_t req, const struct handle *handle, const char *bytes, size_t size,
                                  bool durable)
{
    struct fusefs *fs = fusefs_of(req);
    struct redirected_reply *reply = malloc(sizeof *reply);
    ino_no ino = INO_NONE;
    int rc = reply == NULL ? -ENOMEM : -ESTALE;
    if (rc == -ESTALE && !store_file_replaced(handle->open->file, &ino))
        ino = INO_NONE;
    while (rc == -ESTALE && ino != INO_NONE) {
        *reply = (struct redirected_reply){.req = req, .size = size, .durable = durable};
        const ino_no tried = ino;
        rc = append_to(fs, ino, bytes, size, kill_priv_by_caller(req, STORE_WRITE_KILL_SUID), reply, &ino);
        if (rc == -ESTALE && ino == INO_NONE && store_file_replaced(handle->open->file, &ino) && ino == tried)
            ino = INO_NONE; /* that one is gone, and nothing came in its place */
    }
    if (rc != 0) {
        free(reply);
        reply_error(req, rc);
    } else if (workers_submit(fs->workers, reply_redirected, reply) != 0) {
        reply_redirected(reply); /* no thread to be had */
    }
}

void serve_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t offset,
                 struct fuse_file_info *fi)
{
    const struct handle *handle = handle_of(fi);
    int rc;
    (void)ino;
    if (handle->open == NULL && !handle->receipt)
        rc = -EROFS;
    else if (offset < 0)
        rc = -EINVAL;
    else if (size == 0 || handle->receipt)
        rc = 0;
    else if (fi->writepage)
        rc = write_back_pages(fusefs_of(req), handle->open, bytes, size, offset);
    else
        rc = write_bytes(req, handle, bytes, size, offset, (fi->flags & O_APPEND) != 0);
    if (rc == -ESTALE && !fi->writepage && (fi->flags & O_APPEND) != 0)
        append_to_replacement(req, handle, bytes, size, write_is_synchronous(req, fi));
    else if (rc != 0)
        reply_error(req, rc);
    else if (size > 0 && write_is_synchronous(req, fi))
        reply_when_durable(req, size);
    else
        (void)fuse_reply_write(req, size);
}

/* ---- the rest ---- */

/* STORE_ALLOCATE_* of FALLOC_FL_*. */
static int allocate_mode(int mode, unsigned *out_mode)
{
    switch (mode) {
    case 0:
        *out_mode = 0;
        return 0;
    case FALLOC_FL_KEEP_SIZE:
        *out_mode = STORE_ALLOCATE_KEEP_SIZE;
        return 0;
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
        *out_mode = STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_KEEP_SIZE;
        return 0;
    case FALLOC_FL_ZERO_RANGE:
        *out_mode = STORE_ALLOCATE_ZERO;
        return 0;
    case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
        *out_mode = STORE_ALLOCATE_ZERO | STORE_ALLOCATE_KEEP_SIZE;
        return 0;
    default:
        return -EOPNOTSUPP;
    }
}

/* As the kernel would before it, were it asked to. It holds the inode's lock: no chmod comes in between. */
static int end_set_id(fuse_req_t req, const struct handle *handle)
{
    struct fusefs *fs = fusefs_of(req);
    struct open_file *open = handle->open;
    struct store_attr attr;
    if (kill_priv_by_caller(req, 1) == 0 || !atomic_load(&open->set_id))
        return 0;
    int rc = handle_check_canceled(handle);
    if (rc == 0)
        rc = store_file_getattr(open->file, &attr);
    if (rc != 0)
        return rc;
    attr.mode &= ~(uint32_t)(S_ISUID | ((attr.mode & S_IXGRP) != 0 ? S_ISGID : 0));
    rc = store_setattr(fs->store, node_tree_view(open->tree), attr.ino, STORE_SET_MODE, &attr, &attr);
    if (rc == 0)
        open_file_lost_set_id(fs, handle->node_id, open);
    return rc;
}

void serve_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
    const struct handle *handle = handle_of(fi);
    unsigned store_mode = 0;
    (void)ino;
    int rc = allocate_mode(mode, &store_mode);
    if (rc == 0 && (offset < 0 || length <= 0))
        rc = -EINVAL;
    if (rc == 0 && handle->open == NULL)
        rc = -EROFS;
    if (rc == 0)
        rc = end_set_id(req, handle);
    if (rc == 0)
        rc = store_allocate(handle->open->file, (uint64_t)offset, (uint64_t)length, store_mode);
    reply_error(req, rc);
}

void serve_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi)
{
    const struct handle *handle = handle_of(fi);
    uint64_t found = 0;
    int rc = 0;
    (void)ino;
    if (handle->open == NULL || (whence != SEEK_DATA && whence != SEEK_HOLE))
        rc = -EINVAL;
    else if (offset < 0)
        rc = -ENXIO;
    else
        rc = store_seek(handle->open->file, (uint64_t)offset, whence == SEEK_HOLE, &found);
    if (rc != 0)
        reply_error(req, rc);
    else
        (void)fuse_reply_lseek(req, (off_t)found);
}
