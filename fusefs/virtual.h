/*
 * fusefs/virtual.h - nodes that belong to no tree: tblfs's own directories and files.
 *
 * Each kind has a range of inode numbers, and a table of what its nodes answer. VIRTUAL-1 These numbers are below 2^53, and
 * above all that trees give (fusefs/nodes.h).
 *
 * Locking: none; what a kind needs is its own business.
 */
#ifndef TBLFS_FUSEFS_VIRTUAL_H
#define TBLFS_FUSEFS_VIRTUAL_H

#include "base/types.h"
#include "fusefs/nodes.h"

#include <fuse_lowlevel.h>
#include <sys/stat.h>

/* MNT/.tblfs; its tables follow it. */
#define SYSTEM_INO_LAST  ((UINT64_C(1) << 53) - 1)
#define SYSTEM_INO       (SYSTEM_INO_LAST - 63)
#define SNAPSHOTS_INO    (SYSTEM_INO - 1) /* MNT/.snap */
#define TRANSACTIONS_INO (SYSTEM_INO - 2) /* MNT/.txn */
#define TABLESPACES_INO  (SYSTEM_INO - 3) /* MNT/.tablespace */

/* What is a transaction's own, by its number. */
enum transaction_node {
    TRANSACTION_NODE_TABLES,        /* $t/.tblfs; its tables follow it */
    TRANSACTION_NODE_TOMBSTONE = 8, /* $t, after it was aborted for the user */
    TRANSACTION_NODE_RECEIPT,       /* $t/.commit: what the call that made it is answered with */
    TRANSACTION_NODE_COUNT = 16,
};
#define TRANSACTION_INO_FIRST (UINT64_C(1) << 52)
#define TRANSACTION_INO_LAST  (TRANSACTION_INO_FIRST + (UINT64_C(1) << 51) - 1)

/* The links in MNT/.tablespace, by the number of the tablespace. */
#define TABLESPACE_INO_FIRST (TRANSACTION_INO_LAST + 1)

ino_no transaction_ino(uint64_t number, enum transaction_node node);
uint64_t transaction_number_of(ino_no ino);

/* What a node answers. NULL: as the comment says. The range is not that of kinds of a transaction's own nodes. */
struct virtual_kind {
    ino_no first_ino, last_ino;
    int name_rc;   /* making, moving and removing names in it */
    int change_rc; /* any other change */
    void (*getattr)(fuse_req_t req, const struct node_identity *node);
    void (*setattr)(fuse_req_t req, const struct node_identity *node);                 /* NULL: change_rc */
    void (*lookup)(fuse_req_t req, const struct node_identity *dir, const char *name); /* NULL: -ENOTDIR */
    void (*readdir)(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after,
                    bool plus);                                                                /* NULL: -ENOTDIR */
    void (*open)(fuse_req_t req, const struct node_identity *node, struct fuse_file_info *fi); /* NULL: -EISDIR */
    void (*mkdir)(fuse_req_t req, const char *name);                                           /* NULL: name_rc */
    void (*rmdir)(fuse_req_t req, const char *name);                                           /* NULL: name_rc */
    void (*symlink)(fuse_req_t req, const char *target, const char *name);                     /* NULL: name_rc */
    void (*unlink)(fuse_req_t req, const char *name);                                          /* NULL: name_rc */
    void (*readlink)(fuse_req_t req, const struct node_identity *node);                        /* NULL: -EINVAL */
};

bool node_is_virtual(const struct node_identity *node);
const struct virtual_kind *virtual_kind_of(const struct node_identity *node);

/* Each answers the request. */
void virtual_getattr(fuse_req_t req, const struct node_identity *node);
void virtual_setattr(fuse_req_t req, const struct node_identity *node);
void virtual_lookup(fuse_req_t req, const struct node_identity *dir, const char *name);
void virtual_readdir(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after, bool plus);
void virtual_open(fuse_req_t req, const struct node_identity *node, struct fuse_file_info *fi);
void virtual_mkdir(fuse_req_t req, const struct node_identity *dir, const char *name);
void virtual_rmdir(fuse_req_t req, const struct node_identity *dir, const char *name);
void virtual_symlink(fuse_req_t req, const struct node_identity *dir, const char *target, const char *name);
void virtual_unlink(fuse_req_t req, const struct node_identity *dir, const char *name);
void virtual_readlink(fuse_req_t req, const struct node_identity *node);

/* Enters the node of stat->st_ino and answers with it; the kernel may keep it for timeout_s. */
void virtual_reply_entry(fuse_req_t req, const struct stat *stat, double timeout_s);

/* A listing under way. Cookies are the caller's, ascending; entries are without a node: the kernel looks up what it wants
 * to know more of. */
struct virtual_listing {
    fuse_req_t req;
    uint64_t after;
    bool plus;
    char *buffer;
    size_t size, used;
};
#define VIRTUAL_COOKIE_DOTDOT UINT64_C(2) /* the last one that virtual_listing_begin uses */

/* With "." and "..". False: no memory, and answered so. */
bool virtual_listing_begin(struct virtual_listing *listing, fuse_req_t req, size_t size, uint64_t after, bool plus,
                           ino_no st_ino, ino_no parent_st_ino);
/* Adds an entry, if it comes behind `after`. False: no room, this and what follows comes with the next call. */
bool virtual_listing_add(struct virtual_listing *listing, const char *name, ino_no st_ino, mode_t mode,
                         uint64_t cookie);
/* Answers. */
void virtual_listing_end(struct virtual_listing *listing);

#endif
