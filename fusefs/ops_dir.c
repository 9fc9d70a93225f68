/*
 * fusefs/ops_dir.c - listing directories.
 *
 * A cookie belongs to an entry, not to its position: it is the store's own (always > 2); 1 is ".", 2 is "..". So a
 * listing that goes on after a removal neither skips nor repeats.
 *
 * Locking: the store calls back with the view's catalog locked; the node table's rank allows entering nodes there. The
 * reply is written after that.
 */
#include "fusefs/fusefs_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COOKIE_DOT        UINT64_C(1)
#define COOKIE_DOTDOT     UINT64_C(2)
#define NAME_MAX_BYTES    255u
#define ENTRY_PLUS_MIN    152u       /* bytes that an entry with attributes takes at least */
#define LISTING_MAX_BYTES (1u << 20) /* more than any kernel asks for */

struct listing {
    fuse_req_t req;
    struct fusefs *fs;
    struct node_tree *tree;
    bool plus;
    char *buffer;
    size_t size, used;
    uint64_t *entered; /* nodes that got a lookup, to be undone when the reply fails */
    size_t entered_count;
};

/* False: no room. */
static bool listing_add_plain(struct listing *listing, const char *name, ino_no ino, uint32_t type, uint64_t cookie)
{
    const struct stat stat = {.st_ino = node_tree_st_ino(listing->tree, ino), .st_mode = type};
    const size_t room = listing->size - listing->used;
    const size_t needed =
        fuse_add_direntry(listing->req, listing->buffer + listing->used, room, name, &stat, (off_t)cookie);
    if (needed > room)
        return false;
    listing->used += needed;
    return true;
}

/* An entry without a node: the kernel takes name, number and type only. */
static bool listing_add_nodeless(struct listing *listing, const char *name, ino_no ino, uint32_t type, uint64_t cookie)
{
    if (!listing->plus)
        return listing_add_plain(listing, name, ino, type, cookie);
    const struct fuse_entry_param entry = {.attr = {.st_ino = node_tree_st_ino(listing->tree, ino), .st_mode = type}};
    const size_t room = listing->size - listing->used;
    const size_t needed =
        fuse_add_direntry_plus(listing->req, listing->buffer + listing->used, room, name, &entry, (off_t)cookie);
    if (needed > room)
        return false;
    listing->used += needed;
    return true;
}

static bool listing_add_plus(struct listing *listing, const char *name, const struct store_dir_entry *from)
{
    struct fuse_entry_param entry;
    const size_t room = listing->size - listing->used;
    if (fuse_add_direntry_plus(listing->req, NULL, 0, name, NULL, 0) > room)
        return false;
    if (entry_make(listing->fs, listing->tree, from->attr, &entry) != 0) /* no memory for a node */
        return listing_add_nodeless(listing, name, from->ino, from->mode_type, from->cookie);
    listing->used +=
        fuse_add_direntry_plus(listing->req, listing->buffer + listing->used, room, name, &entry, (off_t)from->cookie);
    listing->entered[listing->entered_count++] = entry.ino;
    return true;
}

static int listing_entry(void *arg, const struct store_dir_entry *entry)
{
    struct listing *listing = arg;
    char name[NAME_MAX_BYTES + 1];
    assert(entry->name_size <= NAME_MAX_BYTES && entry->cookie > COOKIE_DOTDOT);
    memcpy(name, entry->name, entry->name_size);
    name[entry->name_size] = '\0';
    bool added;
    if (listing->plus && entry->attr != NULL)
        added = listing_add_plus(listing, name, entry);
    else
        added = listing_add_nodeless(listing, name, entry->ino, entry->mode_type, entry->cookie);
    return added ? 0 : 1;
}

/* In which directory the root of a tree stands. */
static ino_no root_parent(const struct node_tree *tree)
{
    if (node_tree_is(tree, NODE_TREE_SNAPSHOT))
        return SNAPSHOTS_INO;
    if (node_tree_is(tree, NODE_TREE_TRANSACTION))
        return TRANSACTIONS_INO;
    return transaction_ino(node_tree_number(tree), TRANSACTION_NODE_TABLES);
}

/* "." and "..", as far as they come behind `after`; they count no lookups. False: no room. */
static int listing_add_dots(struct listing *listing, const struct node_identity *dir, uint64_t after, bool *out_room)
{
    ino_no parent = dir->ino;
    *out_room = true;
    if (after < COOKIE_DOT)
        *out_room = listing_add_nodeless(listing, ".", dir->ino, S_IFDIR, COOKIE_DOT);
    if (after >= COOKIE_DOTDOT || !*out_room)
        return 0;
    if (dir->ino == INO_ROOT && !node_tree_is(dir->tree, NODE_TREE_LIVE)) {
        parent = root_parent(dir->tree);
    } else {
        const int rc = store_parent(listing->fs->store, dir->view, dir->ino, &parent);
        if (rc != 0)
            return stale_if_gone(rc);
    }
    *out_room = listing_add_nodeless(listing, "..", parent, S_IFDIR, COOKIE_DOTDOT);
    return 0;
}

static int listing_fill(struct listing *listing, const struct node_identity *dir, uint64_t after)
{
    bool room;
    const int rc = listing_add_dots(listing, dir, after, &room);
    if (rc != 0 || !room)
        return rc;
    const uint64_t store_after = after <= COOKIE_DOTDOT ? 0 : after;
    return store_readdir(listing->fs->store, dir->view, dir->ino, store_after, listing->plus, listing_entry, listing);
}

static void listing_undo(struct listing *listing)
{
    for (size_t index = 0; index < listing->entered_count; index++)
        node_forget(listing->fs->nodes, listing->entered[index], 1);
}

static int listing_init(struct listing *listing, fuse_req_t req, struct node_tree *tree, size_t size, bool plus)
{
    *listing = (struct listing){.req = req, .fs = fusefs_of(req), .tree = tree, .plus = plus};
    listing->size = size < LISTING_MAX_BYTES ? size : LISTING_MAX_BYTES;
    listing->buffer = malloc(listing->size + 1);
    listing->entered = plus ? calloc(listing->size / ENTRY_PLUS_MIN + 1, sizeof *listing->entered) : NULL;
    return listing->buffer == NULL || (plus && listing->entered == NULL) ? -ENOMEM : 0;
}

static void listing_free(struct listing *listing)
{
    free(listing->buffer);
    free(listing->entered);
}

static void list_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t after, bool plus)
{
    struct fusefs *fs = fusefs_of(req);
    NODE_SCOPED dir = NODE_NONE;
    struct listing listing;
    int rc = node_find(fs->nodes, ino, &dir);
    if (rc == 0 && node_is_virtual(&dir)) {
        virtual_readdir(req, &dir, size, (uint64_t)after, plus);
        return;
    }
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    rc = listing_init(&listing, req, dir.tree, size, plus);
    if (rc == 0)
        rc = listing_fill(&listing, &dir, (uint64_t)after);
    if (rc != 0) {
        listing_undo(&listing);
        reply_error(req, rc);
    } else if (fuse_reply_buf(req, listing.buffer, listing.used) != 0) {
        listing_undo(&listing); /* FUSE-2 */
    }
    listing_free(&listing);
}

void serve_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t after, struct fuse_file_info *fi)
{
    (void)fi;
    list_directory(req, ino, size, after, false);
}

void serve_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t after, struct fuse_file_info *fi)
{
    (void)fi;
    list_directory(req, ino, size, after, true);
}

void serve_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    NODE_SCOPED dir = NODE_NONE;
    int rc = node_find(fusefs_of(req)->nodes, ino, &dir);
    if (rc == 0)
        rc = transaction_check_access(req, &dir, R_OK, NULL);
    if (rc != 0) {
        reply_error(req, rc);
        return;
    }
    fi->fh = 0; /* a listing needs no state: the cookies carry it */
    (void)fuse_reply_open(req, fi);
}

void serve_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    reply_error(req, 0);
}
