/*
 * fusefs/notify.h - telling the kernel what a commit changed in the live tree, under names and nodes that it knows.
 *
 *   telling_begin; store_txn_commit; telling_before_reply; reply; telling_after_reply; telling_end
 *
 * Before the reply, in this order:
 *   1. Of each directory that lost or replaced a name one such name is taken from the kernel, which waits for the look-ups and
 *      listings under way there: what they answer is older than the commit. So are all names that led to an inode that goes on living
 *      elsewhere, and all of a replaced or dropped one that is open: no name leads to it then, and so it may go on answering those
 *      who have it open, and only them.
 *   2. Replaced and dropped inodes that are not open are marked stale (NODE-6); they lose their attributes, and so do changed
 *      ones; those that grew lose what the kernel believed to be behind their end.
 * After it the other names go: they lead to stale nodes, from which the kernel walks again. Then the marks go.
 *
 * If the reply cannot wait for that, open ones are marked, too: whoever asks for them by an old name is right then, and whoever asks for
 * the attributes of an open one may be told ESTALE until its names are gone.
 *
 * TELL-1 A notification is sent by a worker that holds nothing: it may wait for requests. TELL-2 A name that a rename gave to a node while
 * it is told is told, too: the rename moved what the kernel knew, not what is there.
 *
 * Locking: a leaf lock for the list of those under way and their moved names.
 */
#ifndef TBLFS_FUSEFS_NOTIFY_H
#define TBLFS_FUSEFS_NOTIFY_H

#include "fusefs/nodes.h"
#include "txn/store.h"

struct fusefs;
struct moved_name;

struct telling {
    struct fusefs *fs;
    struct store_changes *changes; /* is put into another order */
    _Atomic bool sorted;           /* changes are in their order */
    _Atomic ino_no waits_for;      /* directory whose name is being taken from the kernel; INO_NONE */
    struct moved_name *moved;      /* guarded by fs->tellings_lock */
    struct telling *prev, *next;   /* fs->tellings */
};

void tellings_init(struct fusefs *fs);
void tellings_destroy(struct fusefs *fs);

void telling_begin(struct fusefs *fs, struct telling *telling, struct store_changes *changes);
void telling_before_reply(struct telling *telling);
/* By another thread: the reply comes before telling_before_reply has returned. */
void telling_reply_early(struct telling *telling);
void telling_after_reply(struct telling *telling);
/* Also when nothing was committed. */
void telling_end(struct telling *telling);

/* A rename in the live tree gave that name to what the kernel knows under another; before it is answered (TELL-2). */
void tellings_note_name(struct fusefs *fs, uint64_t parent_id, const char *name);

/* Takes an entry of a virtual directory from the kernel. */
void notify_entry_gone(struct fusefs *fs, ino_no virtual_dir, const char *name);
/* What the kernel keeps of that node's attributes is old; waits for nothing. No such node: does nothing. */
void notify_attributes(struct fusefs *fs, uint64_t node_id);
/* And of its bytes from there on. */
void notify_bytes(struct fusefs *fs, uint64_t node_id, uint64_t first_byte);

#endif
