/*
 * txn/txn_set.h - what a transaction did: its write set, and its operations in order; and what the live tree lost meanwhile.
 *
 * SET-1 The write set has every name and inode that an operation touched, also when the net effect is nil.
 * SET-2 The list has the operations on names and attributes, whole and in order. Of content it is enough to know which inodes were
 *       touched, and how (the set says it): closing takes the content over as it is then. A change of content that took set-user-id bits
 *       away is in the list for that, as an OP_RESIZE without a size.
 *
 * No locks: the owner's. In a transaction that is the catalog lock of its view.
 */
#ifndef TBLFS_TXN_TXN_SET_H
#define TBLFS_TXN_TXN_SET_H

#include "txn/op.h"

#include <uthash.h>

struct txn_inode {
    ino_no ino;
    bool created;   /* by the transaction */
    bool content;   /* changed */
    bool rewritten; /* changed otherwise than by appending */
    bool attr;      /* attributes, or a name more or less */
    bool moved;     /* into another directory */
    ino_no twin;    /* a directory that the transaction and others made under one name: theirs; set when it is closed */
    UT_hash_handle hh;
};

struct txn_name {
    UT_hash_handle hh;
    uint32_t touches; /* operations on it */
    ino_no made_dir;  /* the only one made this directory; else INO_NONE */
    size_t key_size;
    uint8_t key[]; /* parent as 8 bytes, then the name */
};

struct txn_set {
    struct txn_inode *inodes; /* both in order of first mention */
    struct txn_name *names;
    uint8_t *list; /* SET-2: encoded records */
    size_t list_size, list_capacity;
    uint64_t operations;
    uint64_t bytes; /* written */
};

void txn_set_free(struct txn_set *set);
/* Adds what an operation touches, and the operation to the list if it belongs there. -ENOMEM: the set may have too much in it, never too
 * little. -EBADMSG: a record that holds others is not well-formed. */
int txn_set_add(struct txn_set *set, const struct op_record *op, bool with_list) WARN_UNUSED;
/* A name on its own. made_dir: the directory that was made under it, or INO_NONE. -ENOMEM. */
int txn_set_touch_name(struct txn_set *set, ino_no parent, struct op_bytes name, ino_no made_dir) WARN_UNUSED;
struct txn_inode *txn_set_find_inode(const struct txn_set *set, ino_no ino);
struct txn_name *txn_set_find_name(const struct txn_set *set, ino_no parent, struct op_bytes name);
ino_no txn_name_parent(const struct txn_name *name);
struct op_bytes txn_name_bytes(const struct txn_name *name);

/* Calls fn for each record in `size` encoded bytes. -EBADMSG. */
typedef int op_record_fn(void *arg, const struct op_record *op);
int op_records_each(const void *bytes, size_t size, op_record_fn *fn, void *arg) WARN_UNUSED;
/* Appends an encoded record to a growing buffer. -ENOMEM. */
int op_records_append(uint8_t **inout_bytes, size_t *inout_size, size_t *inout_capacity,
                      const struct op_record *op) WARN_UNUSED;
static inline bool op_is_removal(enum op_type type)
{
    return type == OP_UNLINK || type == OP_RMDIR;
}
bool op_is_content(enum op_type type);
/* Does it add bytes at the end, and nothing else? */
bool op_is_append(const struct op_record *op);

/* ---- names that left the live tree (txn/removed_names.c) ---- */

struct removed_name {
    uint64_t key;   /* hash of directory and name; 0: empty place */
    epoch_no epoch; /* when it left last */
};

/* Kept while a transaction is open: a name that was made and removed again outside leaves no other trace. Two names with one hash lead to a
 * conflict too many. */
struct removed_names {
    struct removed_name *places; /* open addressing, a power of two */
    size_t count, capacity;
    epoch_no all_epoch; /* there was no memory: every name may have left up to then */
};

void removed_names_add(struct removed_names *removed, ino_no parent, struct op_bytes name, epoch_no epoch);
/* The last epoch in which it left; 0: not since the oldest transaction began. With an empty name: any name of that directory. */
epoch_no removed_names_epoch(const struct removed_names *removed, ino_no parent, struct op_bytes name);
void removed_names_clear(struct removed_names *removed);

#endif
