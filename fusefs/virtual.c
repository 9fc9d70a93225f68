/*
 * fusefs/virtual.c - see the header: which kind a node is of, and what all kinds share.
 */
#include "fusefs/fusefs_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define COOKIE_DOT        UINT64_C(1)
#define LISTING_MAX_BYTES (1u << 20) /* more than any kernel asks for */

ino_no transaction_ino(uint64_t number, enum transaction_node node)
{
    const uint64_t at = number * TRANSACTION_NODE_COUNT + (uint64_t)node;
    return TRANSACTION_INO_FIRST + at % (TRANSACTION_INO_LAST - TRANSACTION_INO_FIRST + 1);
}

uint64_t transaction_number_of(ino_no ino)
{
    return (ino - TRANSACTION_INO_FIRST) / TRANSACTION_NODE_COUNT;
}

bool node_is_virtual(const struct node_identity *node)
{
    return node->tree == NODE_TREE_VIRTUAL;
}

static const struct virtual_kind *transaction_kind_of(ino_no ino)
{
    switch (ino % TRANSACTION_NODE_COUNT) {
    case TRANSACTION_NODE_TOMBSTONE:
        return &tombstones_kind;
    case TRANSACTION_NODE_RECEIPT:
        return &receipts_kind;
    default:
        return &transaction_tables_kind;
    }
}

const struct virtual_kind *virtual_kind_of(const struct node_identity *node)
{
    static const struct virtual_kind *const kinds[] = {&system_tables_kind, &snapshots_kind, &transactions_kind,
                                                       &tablespaces_kind, &tablespace_links_kind};
    assert(node_is_virtual(node));
    if (node->ino <= TRANSACTION_INO_LAST)
        return transaction_kind_of(node->ino);
    for (size_t index = 0; index < ARRAY_COUNT(kinds); index++) {
        if (node->ino >= kinds[index]->first_ino && node->ino <= kinds[index]->last_ino)
            return kinds[index];
    }
    abort(); /* nobody entered such a node */
}

void virtual_getattr(fuse_req_t req, const struct node_identity *node)
{
    virtual_kind_of(node)->getattr(req, node);
}

void virtual_setattr(fuse_req_t req, const struct node_identity *node)
{
    const struct virtual_kind *kind = virtual_kind_of(node);
    if (kind->setattr != NULL)
        kind->setattr(req, node);
    else
        reply_error(req, kind->change_rc);
}

void virtual_lookup(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    const struct virtual_kind *kind = virtual_kind_of(dir);
    if (kind->lookup != NULL && dir->type == S_IFDIR)
        kind->lookup(req, dir, name);
    else
        reply_error(req, -ENOTDIR);
}

void virtual_readdir(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after, bool plus)
{
    const struct virtual_kind *kind = virtual_kind_of(dir);
    if (kind->readdir != NULL && dir->type == S_IFDIR)
        kind->readdir(req, dir, size, after, plus);
    else
        reply_error(req, -ENOTDIR);
}

void virtual_open(fuse_req_t req, const struct node_identity *node, struct fuse_file_info *fi)
{
    const struct virtual_kind *kind = virtual_kind_of(node);
    if (kind->open != NULL && node->type != S_IFDIR)
        kind->open(req, node, fi);
    else
        reply_error(req, -EISDIR);
}

void virtual_mkdir(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    const struct virtual_kind *kind = virtual_kind_of(dir);
    if (kind->mkdir != NULL)
        kind->mkdir(req, name);
    else
        reply_error(req, kind->name_rc);
}

void virtual_rmdir(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    const struct virtual_kind *kind = virtual_kind_of(dir);
    if (kind->rmdir != NULL)
        kind->rmdir(req, name);
    else
        reply_error(req, kind->name_rc);
}

void virtual_symlink(fuse_req_t req, const struct node_identity *dir, const char *target, const char *name)
{
    const struct virtual_kind *kind = virtual_kind_of(dir);
    if (kind->symlink != NULL)
        kind->symlink(req, target, name);
    else
        reply_error(req, kind->name_rc);
}

void virtual_unlink(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    const struct virtual_kind *kind = virtual_kind_of(dir);
    if (kind->unlink != NULL)
        kind->unlink(req, name);
    else
        reply_error(req, kind->name_rc);
}

void virtual_readlink(fuse_req_t req, const struct node_identity *node)
{
    const struct virtual_kind *kind = virtual_kind_of(node);
    if (kind->readlink != NULL)
        kind->readlink(req, node);
    else
        reply_error(req, -EINVAL);
}

void virtual_reply_entry(fuse_req_t req, const struct stat *stat, double timeout_s)
{
    struct fusefs *fs = fusefs_of(req);
    struct fuse_entry_param entry = {.attr = *stat, .attr_timeout = timeout_s, .entry_timeout = timeout_s};
    uint64_t id;
    const int rc = node_enter(fs->nodes, NODE_TREE_VIRTUAL, stat->st_ino, stat->st_mode & S_IFMT, &id);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    entry.ino = id;
    if (fuse_reply_entry(req, &entry) != 0)
        node_forget(fs->nodes, id, 1); /* FUSE-2 */
}

/* ---- listings ---- */

bool virtual_listing_begin(struct virtual_listing *listing, fuse_req_t req, size_t size, uint64_t after, bool plus,
                           ino_no st_ino, ino_no parent_st_ino)
{
    *listing = (struct virtual_listing){.req = req, .after = after, .plus = plus};
    listing->size = size < LISTING_MAX_BYTES ? size : LISTING_MAX_BYTES;
    listing->buffer = malloc(listing->size + 1);
    if (listing->buffer == NULL) {
        reply_error(req, -ENOMEM);
        return false;
    }
    if (virtual_listing_add(listing, ".", st_ino, S_IFDIR, COOKIE_DOT))
        (void)virtual_listing_add(listing, "..", parent_st_ino, S_IFDIR, VIRTUAL_COOKIE_DOTDOT);
    return true;
}

bool virtual_listing_add(struct virtual_listing *listing, const char *name, ino_no st_ino, mode_t mode, uint64_t cookie)
{
    const struct fuse_entry_param entry = {.attr = {.st_ino = st_ino, .st_mode = mode}};
    const size_t room = listing->size - listing->used;
    char *to = listing->buffer + listing->used;
    if (cookie <= listing->after)
        return true;
    const size_t needed = listing->plus ? fuse_add_direntry_plus(listing->req, to, room, name, &entry, (off_t)cookie)
                                        : fuse_add_direntry(listing->req, to, room, name, &entry.attr, (off_t)cookie);
    if (needed > room) {
        listing->size = listing->used; /* nothing that follows may take its place */
        return false;
    }
    listing->used += needed;
    return true;
}

void virtual_listing_end(struct virtual_listing *listing)
{
    (void)fuse_reply_buf(listing->req, listing->buffer, listing->used);
    free(listing->buffer);
}
