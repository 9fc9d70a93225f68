/*
 * fusefs/roots.h - a virtual directory whose entries are the roots of trees: MNT/.snap, MNT/.txn.
 *
 * What is below an entry is served as the live tree is (ops_*.c), by the view of its tree. The kernel may keep the names: they
 * change only by gestures that it knows of, or it is told.
 *
 * ROOTS-1 A tree of the node table has one reference to its owner, put back when the tree was dropped and the last request and the
 * last open file in it have ended. So lookup counts keep no version.
 *
 * Locking: none of its own.
 */
#ifndef TBLFS_FUSEFS_ROOTS_H
#define TBLFS_FUSEFS_ROOTS_H

#include "fusefs/virtual.h"

struct fusefs;

enum roots { ROOTS_SNAPSHOTS, ROOTS_TRANSACTIONS, ROOTS_TABLESPACES, ROOTS_COUNT };

/* Called for each entry, in order of cookies; false: no more are wanted. NUL-terminated name. The node table may be entered. */
typedef bool roots_entry_fn(void *arg, const char *name, ino_no st_ino, uint64_t cookie);

struct roots_directory {
    enum roots which;
    ino_no ino;
    mode_t (*mode)(struct fusefs *fs);
    void (*each)(struct fusefs *fs, roots_entry_fn *fn, void *arg); /* cookies above VIRTUAL_COOKIE_DOTDOT */
    bool (*is_there)(struct fusefs *fs, uint64_t number);
};

void roots_note_changed(struct fusefs *fs, enum roots which);

/* For the functions of a virtual kind; each answers. */
void roots_getattr(fuse_req_t req, const struct roots_directory *dir);
void roots_lookup_directory(fuse_req_t req, const struct roots_directory *dir);
void roots_readdir(fuse_req_t req, const struct roots_directory *dir, size_t size, uint64_t after, bool plus);

/* Makes it a tree of the node table, or finds that; the owner's reference is taken over, also on failure. The tree is held
 * once. */
int roots_enter_tree(struct fusefs *fs, const struct roots_directory *dir, const struct node_tree_source *source,
                     struct node_tree **out_tree) WARN_UNUSED;
/* Answers with the root of that tree; takes the owner's reference over. On failure nothing was answered. */
int roots_reply_root(fuse_req_t req, const struct roots_directory *dir,
                     const struct node_tree_source *source) WARN_UNUSED;
/* May an entry have that name? 0, -ENAMETOOLONG, -EINVAL. */
int roots_check_new_name(const char *name) WARN_UNUSED;

#endif
