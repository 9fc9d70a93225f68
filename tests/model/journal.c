/*
 * tests/model/journal.c - see journal.h.
 */
#include "tests/model/journal.h"

#include "tests/model/model_int.h"

#include <assert.h>
#include <stdlib.h>

struct journal *journal_new(void)
{
    return model_alloc(sizeof(struct journal));
}

void journal_free(struct journal *journal)
{
    for (size_t i = 0; journal != NULL && i < journal->count; i++) {
        free((char *)journal->ops[i].name.bytes);
        free((char *)journal->ops[i].name2.bytes);
        free((void *)journal->ops[i].value.bytes);
    }
    if (journal != NULL) {
        free(journal->ops);
    }
    free(journal);
}

/* With a NUL behind it. */
static void *copy_bytes(const void *bytes, size_t size)
{
    uint8_t *copy = model_alloc(size + 1);
    if (size > 0) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

void journal_add(struct model *model, const struct model_op *op)
{
    struct journal *journal = model->journal;
    if (journal == NULL) {
        return;
    }
    if (journal->count == journal->capacity) {
        journal->capacity = journal->capacity * 2 + 32;
        journal->ops = model_realloc(journal->ops, journal->capacity * sizeof journal->ops[0]);
    }
    struct model_op *copy = &journal->ops[journal->count++];
    *copy = *op;
    copy->name.bytes = copy_bytes(op->name.bytes, op->name.size);
    copy->name2.bytes = copy_bytes(op->name2.bytes, op->name2.size);
    copy->value.bytes = copy_bytes(op->value.bytes, op->value.size);
}

void journal_content(struct model *model, const struct model_inode *inode, bool appends, bool may_kill)
{
    const bool kills = may_kill && (inode->mode & (S_ISUID | S_ISGID)) != 0;
    journal_add(model,
                &(struct model_op){.kind = MODEL_OP_CONTENT, .ino = inode->ino, .appends = appends, .kills = kills});
}

void journal_setattr(struct model *model, const struct model_inode *inode, unsigned set, const struct store_attr *attr)
{
    if (set & STORE_SET_SIZE) {
        journal_content(model, inode, false, (set & STORE_SET_KILL_SUID) != 0);
        set &= ~STORE_SET_SIZE;
    }
    if (set & ~STORE_SET_KILL_SUID) {
        journal_add(model,
                    &(struct model_op){.kind = MODEL_OP_SETATTR, .ino = inode->ino, .flags = set, .attr = *attr});
    }
}

/* "Now" is the time that the inode got. */
static void learn_setattr(const struct model *model, struct model_op *op)
{
    const struct model_inode *inode = model_find(model, op->ino);
    assert(inode != NULL);
    if (op->flags & STORE_SET_ATIME_NOW) {
        op->attr.atime_ns = inode->atime_ns;
        op->flags = (op->flags & ~STORE_SET_ATIME_NOW) | STORE_SET_ATIME;
    }
    if (op->flags & STORE_SET_MTIME_NOW) {
        op->attr.mtime_ns = inode->mtime_ns;
        op->flags = (op->flags & ~STORE_SET_MTIME_NOW) | STORE_SET_MTIME;
    }
}

void journal_learn(struct model *model)
{
    struct journal *journal = model->journal;
    for (; journal != NULL && journal->learned < journal->count; journal->learned++) {
        struct model_op *op = &journal->ops[journal->learned];
        assert(model->touched_count > 0);
        op->time_ns = model->touched[0]->ctime_ns;
        if (op->kind == MODEL_OP_SETATTR) {
            learn_setattr(model, op);
        }
    }
}

/* ---- what an operation concerns ---- */

static bool is_name(struct store_name a, struct store_name b)
{
    return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

static bool names_entry(enum model_op_kind kind)
{
    return kind == MODEL_OP_CREATE || kind == MODEL_OP_LINK || kind == MODEL_OP_UNLINK || kind == MODEL_OP_RMDIR ||
           kind == MODEL_OP_RENAME || kind == MODEL_OP_RENUMBER;
}

bool model_op_has_name(const struct model_op *op, ino_no parent, struct store_name name)
{
    return names_entry(op->kind) &&
           ((op->parent == parent && is_name(op->name, name)) ||
            (op->kind == MODEL_OP_RENAME && op->parent2 == parent && is_name(op->name2, name)));
}

bool model_op_has_name_in(const struct model_op *op, ino_no parent)
{
    return names_entry(op->kind) && (op->parent == parent || (op->kind == MODEL_OP_RENAME && op->parent2 == parent));
}

bool model_op_has_attr(const struct model_op *op, ino_no ino)
{
    switch (op->kind) {
    case MODEL_OP_LINK:
    case MODEL_OP_UNLINK:
    case MODEL_OP_RMDIR:
    case MODEL_OP_SETATTR:
    case MODEL_OP_SETXATTR:
    case MODEL_OP_REMOVEXATTR:
        return op->ino == ino;
    case MODEL_OP_RENAME:
        return op->ino == ino || op->ino2 == ino;
    case MODEL_OP_CREATE:
    case MODEL_OP_CONTENT:
    case MODEL_OP_RENUMBER:
    default:
        return false;
    }
}
