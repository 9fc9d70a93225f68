/*
 * tests/model/model.h - the reference model: what a store has to be, in plain arrays and one map.
 *
 * It knows directories, files as byte arrays, hard links, symlinks, extended attributes, attributes and unlinked files
 * that are still open. Each call answers 0 or a negative errno, exactly as the call of txn/store.h of the same name
 * must. It has no idea of pages, views or time: where an operation sets a time to "now", the inode gets a stamp bit,
 * and the caller learns the value from the store (after checking that it lies within the call) by model_learn_time.
 *
 * Inode numbers come from the store: whoever calls model_create hands in the number that the store gave.
 * Single-threaded.
 */
#ifndef TBLFS_TESTS_MODEL_MODEL_H
#define TBLFS_TESTS_MODEL_MODEL_H

#include "base/types.h"
#include "txn/store.h"

#include <uthash.h>

enum model_stamp { MODEL_STAMP_ATIME = 1, MODEL_STAMP_MTIME = 2, MODEL_STAMP_CTIME = 4 };

struct model_entry {
    char *name;
    size_t name_size;
    ino_no ino;
};

struct model_xattr {
    char *name;
    uint8_t *value;
    size_t value_size;
};

struct model_inode {
    ino_no ino;
    uint32_t mode, nlink, uid, gid, rdev; /* nlink: of what is no directory; directories: model_attr derives it */
    int64_t atime_ns, mtime_ns, ctime_ns;
    unsigned stamps; /* enum model_stamp: times that the last operation set to now */
    bool touched;    /* is in model.touched */
    ino_no parent;   /* directories */
    uint8_t *bytes;  /* content, or target of a symlink */
    size_t size, capacity;
    struct model_entry *entries; /* directories, in no order */
    size_t entry_count, entry_capacity;
    struct model_xattr *xattrs;
    size_t xattr_count;
    unsigned open_count;
    bool replaced; /* a commit gave its names to another inode; open files show it on, and take no writes */
    size_t index;  /* in model.all */
    UT_hash_handle hh;
};

#define MODEL_TOUCHED_MAX 8

struct model {
    struct model_inode *by_ino; /* uthash */
    struct model_inode **all;
    size_t count, capacity;
    ino_no largest_ino; /* ever given out, also in lives that were lost */
    uint64_t total_bytes;
    struct model_inode *touched[MODEL_TOUCHED_MAX]; /* by the last operation, those that still exist */
    unsigned touched_count;
    struct journal *journal; /* tests/model/journal.h; NULL: not kept */
};

struct model *model_new(uint32_t root_mode);
/* A deep copy without open files (unlinked ones are not in it) and without a journal. */
struct model *model_copy(const struct model *model);
void model_free(struct model *model);

/* Begins an operation: forgets what the last one touched. Each stamp must have been learned. */
void model_begin(struct model *model);
/* Takes the stamped times over from attr. Unstamped times stay. */
void model_learn_time(struct model_inode *inode, const struct store_attr *attr);

struct model_inode *model_find(const struct model *model, ino_no ino); /* NULL: none */
const struct model_entry *model_find_entry(const struct model_inode *dir, struct store_name name);
void model_attr(const struct model *model, const struct model_inode *inode, struct store_attr *out_attr);

int model_lookup(struct model *model, ino_no parent, struct store_name name, ino_no *out_ino);
/* new_ino: the store's; ignored when the call fails. Symlinks: target, else NULL. */
int model_create(struct model *model, ino_no parent, struct store_name name, uint32_t mode, uint32_t rdev,
                 struct store_who who, const char *target, ino_no new_ino);
int model_link(struct model *model, ino_no ino, ino_no new_parent, struct store_name name);
int model_unlink(struct model *model, ino_no parent, struct store_name name);
int model_rmdir(struct model *model, ino_no parent, struct store_name name);
int model_rename(struct model *model, ino_no parent, struct store_name name, ino_no new_parent,
                 struct store_name new_name, unsigned flags);
int model_setattr(struct model *model, ino_no ino, unsigned set, const struct store_attr *attr);
int model_readlink(struct model *model, ino_no ino);

int model_setxattr(struct model *model, ino_no ino, const char *name, const void *value, size_t value_size,
                   unsigned flags);
int model_removexattr(struct model *model, ino_no ino, const char *name);
const struct model_xattr *model_find_xattr(const struct model_inode *inode, const char *name);

int model_open(struct model *model, ino_no ino);
void model_close(struct model *model, struct model_inode *inode);
int model_write(struct model *model, struct model_inode *inode, uint64_t offset, const void *bytes, size_t size,
                unsigned flags, uint64_t *out_end);
int model_allocate(struct model *model, struct model_inode *inode, uint64_t offset, uint64_t size, unsigned mode);

#endif
