/*
 * tests/model/journal.h - what was done to a model, in order: each call that changed something.
 *
 * A model that has a journal notes every change in it, with all that doing it once more on another model needs. Times
 * that were "now" are filled in by journal_learn, when the caller has learned them from the store.
 */
#ifndef TBLFS_TESTS_MODEL_JOURNAL_H
#define TBLFS_TESTS_MODEL_JOURNAL_H

#include "tests/model/model.h"

enum model_op_kind {
    MODEL_OP_CREATE, /* also symlinks: value is the target */
    MODEL_OP_LINK,
    MODEL_OP_UNLINK,
    MODEL_OP_RMDIR,
    MODEL_OP_RENAME,
    MODEL_OP_SETATTR, /* without the size */
    MODEL_OP_SETXATTR,
    MODEL_OP_REMOVEXATTR,
    MODEL_OP_CONTENT,
    MODEL_OP_RENUMBER, /* a commit: the name leads to ino2 instead of ino */
};

struct model_value {
    const void *bytes;
    size_t size;
};

struct model_op {
    enum model_op_kind kind;
    ino_no ino, ino2; /* ino2: what a rename's new name led to, INO_NONE: nothing */
    ino_no parent, parent2;
    struct store_name name, name2; /* or of an extended attribute */
    uint32_t mode, uid, gid, rdev;
    unsigned flags; /* STORE_SET_*, STORE_RENAME_EXCHANGE */
    struct store_attr attr;
    struct model_value value; /* of an extended attribute; a symlink's target with its NUL */
    bool appends;             /* content: bytes at the end, and nothing else */
    bool kills;               /* content: took set-user-id bits away */
    bool moves_dir;           /* rename: a directory gets another parent */
    int64_t time_ns;          /* when, once it is learned */
};

struct journal {
    struct model_op *ops;
    size_t count, capacity;
    size_t learned; /* so many have their times */
};

/* Notes a copy of the operation. Nothing when the model has no journal. */
void journal_add(struct model *model, const struct model_op *op);
void journal_setattr(struct model *model, const struct model_inode *inode, unsigned set, const struct store_attr *attr);
void journal_content(struct model *model, const struct model_inode *inode, bool appends, bool may_kill);
/* The inodes that the last operations touched have learned their times. */
void journal_learn(struct model *model);

struct journal *journal_new(void);
void journal_free(struct journal *journal);

/* Does the operation concern the name? */
bool model_op_has_name(const struct model_op *op, ino_no parent, struct store_name name);
bool model_op_has_name_in(const struct model_op *op, ino_no parent);
/* Does it change attributes of the inode (or its links)? */
bool model_op_has_attr(const struct model_op *op, ino_no ino);

#endif
