/*
 * tests/model/merge.c - see merge.h.
 */
#include "tests/model/merge.h"

#include "tests/model/model_int.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool conflict(struct merge *merge, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool conflict(struct merge *merge, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(merge->why, sizeof merge->why, fmt, args);
    va_end(args);
    return true;
}

/* ---- directories that both made ---- */

/* INO_NONE: the transaction made it, and nobody else. */
static ino_no live_number(const struct merge *merge, ino_no ino)
{
    for (size_t i = 0; i < merge->twin_count; i++) {
        if (merge->twins[i].made == ino) {
            return merge->twins[i].twin;
        }
    }
    for (size_t i = 0; i < merge->did->count; i++) {
        if (merge->did->ops[i].kind == MODEL_OP_CREATE && merge->did->ops[i].ino == ino) {
            return INO_NONE;
        }
    }
    return ino;
}

/* The number under which it is known on both sides. */
static ino_no number_of(const struct merge *merge, ino_no ino)
{
    const ino_no live = live_number(merge, ino);
    return live != INO_NONE ? live : ino;
}

static ino_no entry_of(const struct model *model, ino_no parent, struct store_name name)
{
    const struct model_inode *dir = model_find(model, parent);
    const struct model_entry *entry = dir != NULL ? model_find_entry(dir, name) : NULL;
    return entry != NULL ? entry->ino : INO_NONE;
}

static size_t count_touches(const struct merge *merge, ino_no parent, struct store_name name)
{
    size_t count = 0;
    for (size_t i = 0; i < merge->did->count; i++) {
        count += model_op_has_name(&merge->did->ops[i], parent, name);
    }
    return count;
}

static void find_twins(struct merge *merge)
{
    for (size_t i = 0; i < merge->did->count; i++) {
        const struct model_op *op = &merge->did->ops[i];
        const ino_no parent = live_number(merge, op->parent);
        if (op->kind != MODEL_OP_CREATE || !S_ISDIR(op->mode) || parent == INO_NONE ||
            count_touches(merge, op->parent, op->name) != 1 || entry_of(merge->base, parent, op->name) != INO_NONE) {
            continue;
        }
        const struct model_inode *now = model_find(merge->live, entry_of(merge->live, parent, op->name));
        if (now != NULL && model_is_dir(now)) {
            merge->twins = model_realloc(merge->twins, (merge->twin_count + 1) * sizeof merge->twins[0]);
            merge->twins[merge->twin_count++] = (struct merge_twin){.made = op->ino, .twin = now->ino};
        }
    }
}

static bool is_twin(const struct merge *merge, ino_no made)
{
    for (size_t i = 0; i < merge->twin_count; i++) {
        if (merge->twins[i].made == made) {
            return true;
        }
    }
    return false;
}

/* ---- what was done to one inode ---- */

struct deeds {
    bool created, attr, content, rewritten, moved_dir, entered;
};

static struct deeds deeds_of(const struct journal *journal, size_t from, ino_no ino)
{
    struct deeds deeds = {0};
    for (size_t i = from; i < journal->count; i++) {
        const struct model_op *op = &journal->ops[i];
        const bool is_it = op->ino == ino;
        deeds.created |= is_it && op->kind == MODEL_OP_CREATE;
        deeds.attr |= model_op_has_attr(op, ino);
        deeds.content |= is_it && op->kind == MODEL_OP_CONTENT;
        deeds.rewritten |= is_it && op->kind == MODEL_OP_CONTENT && !op->appends;
        deeds.moved_dir |= op->kind == MODEL_OP_RENAME && op->parent != op->parent2 &&
                           (is_it || (op->ino2 == ino && (op->flags & STORE_RENAME_EXCHANGE) != 0));
        deeds.entered |= model_op_has_name_in(op, ino);
    }
    return deeds;
}

static bool any_dir_moved(const struct merge *merge)
{
    for (size_t i = merge->live_from; i < merge->live->journal->count; i++) {
        if (merge->live->journal->ops[i].moves_dir) {
            return true;
        }
    }
    return false;
}

static bool has_name(const struct model_inode *inode)
{
    return inode != NULL && inode->nlink > 0;
}

static bool ends_in_newline(const struct model_inode *inode)
{
    return inode->size == 0 || inode->bytes[inode->size - 1] == '\n';
}

/* MERGE-3 */
static bool may_merge(const struct model_inode *base, const struct model_inode *live, const struct model_inode *own)
{
    const struct model_xattr *rule = model_find_xattr(live, "user.tblfs.append");
    const bool forbidden = rule != NULL && rule->value_size == 8 && memcmp(rule->value, "conflict", 8) == 0;
    return !forbidden && ends_in_newline(base) && ends_in_newline(live) && ends_in_newline(own);
}

static bool content_conflicts(struct merge *merge, ino_no ino, struct deeds did, struct deeds outside)
{
    if (!did.content || !outside.content) {
        return false;
    }
    if (did.rewritten || outside.rewritten) {
        return conflict(merge, "inode %" PRIu64 ": rewritten", ino);
    }
    return !may_merge(model_find(merge->base, ino), model_find(merge->live, ino), model_find(merge->own, ino)) &&
           conflict(merge, "inode %" PRIu64 ": both appended, and may not", ino);
}

/* MERGE-2 */
static bool inode_conflicts(struct merge *merge, ino_no ino)
{
    const struct deeds did = deeds_of(merge->did, 0, ino);
    const struct deeds outside = deeds_of(merge->live->journal, merge->live_from, ino);
    if (did.created || !(did.attr || did.content)) {
        return false;
    }
    if (!has_name(model_find(merge->live, ino))) {
        return conflict(merge, "inode %" PRIu64 " is gone", ino);
    }
    if (!has_name(model_find(merge->own, ino))) {
        return (outside.attr || outside.content || outside.entered) &&
               conflict(merge, "inode %" PRIu64 ": dropped, and changed outside", ino);
    }
    if (did.attr && outside.attr) {
        return conflict(merge, "inode %" PRIu64 ": attributes", ino);
    }
    if (did.moved_dir && model_is_dir(model_find(merge->own, ino)) && any_dir_moved(merge)) {
        return conflict(merge, "inode %" PRIu64 ": directories moved", ino);
    }
    return content_conflicts(merge, ino, did, outside);
}

/* ---- names ---- */

/* MERGE-1 */
static bool name_conflicts(struct merge *merge, const struct model_op *op, ino_no own_parent, struct store_name name)
{
    const struct journal *journal = merge->live->journal;
    const ino_no parent = live_number(merge, own_parent);
    if (parent == INO_NONE || (op->kind == MODEL_OP_CREATE && is_twin(merge, op->ino))) {
        return false;
    }
    if (model_find(merge->live, parent) == NULL) {
        return conflict(merge, "directory %" PRIu64 " is gone", parent);
    }
    for (size_t i = merge->live_from; i < journal->count; i++) {
        if (model_op_has_name(&journal->ops[i], parent, name)) {
            return conflict(merge, "name \"%.40s\" in %" PRIu64, name.bytes, parent);
        }
    }
    return false;
}

static bool op_conflicts(struct merge *merge, const struct model_op *op)
{
    switch (op->kind) {
    case MODEL_OP_CREATE:
    case MODEL_OP_LINK:
    case MODEL_OP_UNLINK:
    case MODEL_OP_RMDIR:
        return name_conflicts(merge, op, op->parent, op->name) || inode_conflicts(merge, op->ino);
    case MODEL_OP_RENAME:
        return name_conflicts(merge, op, op->parent, op->name) || name_conflicts(merge, op, op->parent2, op->name2) ||
               inode_conflicts(merge, op->ino) || (op->ino2 != INO_NONE && inode_conflicts(merge, op->ino2));
    case MODEL_OP_SETATTR:
    case MODEL_OP_SETXATTR:
    case MODEL_OP_REMOVEXATTR:
    case MODEL_OP_CONTENT:
        return inode_conflicts(merge, op->ino);
    case MODEL_OP_RENUMBER:
    default:
        return false;
    }
}

/* ---- doing it again ---- */

static const char *target_of(const struct model_op *op)
{
    return S_ISLNK(op->mode) ? op->value.bytes : NULL;
}

static int redo_create(struct merge *merge, struct model *model, const struct model_op *op)
{
    const struct store_who who = {.uid = op->uid, .gid = op->gid};
    if (is_twin(merge, op->ino)) {
        return 0;
    }
    return model_create(model, number_of(merge, op->parent), op->name, op->mode, op->rdev, who, target_of(op), op->ino);
}

/* Of content only what it does to the mode: the bytes come at the end. */
static int redo_content(struct model *model, const struct model_op *op, ino_no ino)
{
    struct model_inode *inode = model_find(model, ino);
    if (inode != NULL && op->kills) {
        model_kill_suid(inode);
    }
    return 0;
}

static int redo(struct merge *merge, struct model *model, const struct model_op *op)
{
    const ino_no ino = number_of(merge, op->ino);
    const ino_no parent = number_of(merge, op->parent);
    switch (op->kind) {
    case MODEL_OP_CREATE:
        return redo_create(merge, model, op);
    case MODEL_OP_LINK:
        return model_link(model, ino, parent, op->name);
    case MODEL_OP_UNLINK:
        return model_unlink(model, parent, op->name);
    case MODEL_OP_RMDIR:
        return model_rmdir(model, parent, op->name);
    case MODEL_OP_RENAME:
        return model_rename(model, parent, op->name, number_of(merge, op->parent2), op->name2, op->flags);
    case MODEL_OP_SETATTR:
        return model_setattr(model, ino, op->flags, &op->attr);
    case MODEL_OP_SETXATTR:
        return model_setxattr(model, ino, op->name.bytes, op->value.bytes, op->value.size, 0);
    case MODEL_OP_REMOVEXATTR:
        return model_removexattr(model, ino, op->name.bytes);
    case MODEL_OP_CONTENT:
        return redo_content(model, op, ino);
    case MODEL_OP_RENUMBER:
    default:
        return 0;
    }
}

/* MERGE-5 */
static int64_t later_mtime(int64_t own_ns, int64_t live_ns, int64_t commit_time_ns)
{
    return live_ns > own_ns && live_ns <= commit_time_ns ? live_ns : own_ns;
}

/* MERGE-5: the times that the operation set to now. */
static void settle_times(struct model *model, int64_t op_time_ns, int64_t commit_time_ns)
{
    for (unsigned i = 0; i < model->touched_count; i++) {
        struct model_inode *inode = model->touched[i];
        if (inode->stamps & MODEL_STAMP_ATIME) {
            inode->atime_ns = op_time_ns;
        }
        if (inode->stamps & MODEL_STAMP_MTIME) {
            inode->mtime_ns = later_mtime(op_time_ns, inode->mtime_ns, commit_time_ns);
        }
        if (inode->stamps & MODEL_STAMP_CTIME) {
            inode->ctime_ns = commit_time_ns;
        }
        inode->stamps = 0;
    }
    model_begin(model);
}

static int redo_all(struct merge *merge, struct model *model, int64_t commit_time_ns)
{
    int result = 0;
    model_begin(model);
    for (size_t i = 0; i < merge->did->count && result == 0; i++) {
        result = redo(merge, model, &merge->did->ops[i]);
        if (result != 0) {
            (void)conflict(merge, "operation %zu (kind %d) answers %d", i, (int)merge->did->ops[i].kind, result);
        }
        settle_times(model, merge->did->ops[i].time_ns, commit_time_ns);
    }
    return result;
}

bool merge_conflicts(struct merge *merge)
{
    find_twins(merge);
    for (size_t i = 0; i < merge->did->count; i++) {
        if (op_conflicts(merge, &merge->did->ops[i])) {
            return true;
        }
    }
    struct model *copy = model_copy(merge->live);
    merge->replays = redo_all(merge, copy, 0) != 0; /* MERGE-4 */
    model_free(copy);
    return merge->replays;
}

/* ---- content, and what follows ---- */

/* Content operations, in the order of their first; each inode once. */
static bool is_first_content(const struct merge *merge, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (merge->did->ops[i].kind == MODEL_OP_CONTENT && merge->did->ops[i].ino == merge->did->ops[index].ino) {
            return false;
        }
    }
    return merge->did->ops[index].kind == MODEL_OP_CONTENT;
}

static void set_bytes(struct model *model, struct model_inode *inode, size_t at, const uint8_t *bytes, size_t size)
{
    model_set_size(model, inode, at);
    model_set_size(model, inode, at + size);
    if (size > 0) {
        memcpy(inode->bytes + at, bytes, size);
    }
}

static void merge_content(struct merge *merge, ino_no ino, int64_t time_ns)
{
    const struct model_inode *own = model_find(merge->own, ino);
    const struct model_inode *base = model_find(merge->base, ino);
    struct model_inode *live = model_find(merge->live, ino);
    const struct deeds did = deeds_of(merge->did, 0, ino);
    if (!has_name(own) || !has_name(live)) {
        return; /* it was dropped */
    }
    if (did.created || did.rewritten) {
        set_bytes(merge->live, live, 0, own->bytes, own->size);
        live->mtime_ns = own->mtime_ns;
    } else {
        set_bytes(merge->live, live, live->size, own->bytes + base->size, own->size - base->size);
        live->mtime_ns = later_mtime(own->mtime_ns, live->mtime_ns, time_ns);
    }
    live->ctime_ns = time_ns;
    journal_content(merge->live, live, !did.rewritten, false);
}

/* A table that is rewritten while it is open: the open files go on with it as it was. Copied before anything happens. */
static struct model_inode *keep_old_version(struct merge *merge, struct model *store, ino_no ino)
{
    const struct deeds did = deeds_of(merge->did, 0, ino);
    const struct model_inode *live = model_find(merge->live, ino);
    const bool replaced = did.rewritten && !did.created && has_name(live) && has_name(model_find(merge->own, ino));
    return replaced && live->open_count > 0 ? model_inode_copy(store, live, ino) : NULL;
}

/* Its names lead to the new number. */
static ino_no redirect(struct merge *merge, ino_no ino, merge_renumber_fn *fn, void *arg)
{
    ino_no new_ino = INO_NONE;
    for (size_t i = 0; i < merge->live->count; i++) {
        struct model_inode *dir = merge->live->all[i];
        for (size_t j = 0; j < dir->entry_count; j++) {
            struct model_entry *entry = &dir->entries[j];
            const struct store_name name = {entry->name, entry->name_size};
            if (entry->ino == ino) {
                new_ino = new_ino != INO_NONE ? new_ino : fn(arg, dir->ino, name);
                journal_add(
                    merge->live,
                    &(struct model_op){
                        .kind = MODEL_OP_RENUMBER, .ino = ino, .ino2 = new_ino, .parent = dir->ino, .name = name});
                entry->ino = new_ino;
            }
        }
    }
    return new_ino;
}

/* The inode as it is gets a new number; the old number is that of the old version, if there is one. */
static void renumber(struct merge *merge, ino_no ino, const struct model_inode *old, merge_renumber_fn *fn, void *arg)
{
    struct model_inode *live = model_find(merge->live, ino);
    const struct deeds did = deeds_of(merge->did, 0, ino);
    if (!did.rewritten || did.created || !has_name(live)) {
        return;
    }
    const ino_no new_ino = redirect(merge, ino, fn, arg);
    assert(new_ino != INO_NONE);
    struct model_inode *now = model_inode_copy(merge->live, live, new_ino);
    assert(now->nlink == live->nlink && (old != NULL) == (live->open_count > 0));
    if (old != NULL) {
        model_inode_restore(merge->live, live, old);
        live->replaced = true;
    }
    live->nlink = 0;
    model_inode_drop_if_unused(merge->live, live);
}

void merge_apply(struct merge *merge, int64_t time_ns, merge_renumber_fn *fn, void *arg)
{
    struct model *old_versions = model_new(0);
    for (size_t i = 0; i < merge->did->count; i++) {
        if (is_first_content(merge, i)) {
            (void)keep_old_version(merge, old_versions, merge->did->ops[i].ino);
        }
    }
    const int result = redo_all(merge, merge->live, time_ns);
    assert(result == 0);
    (void)result;
    for (size_t i = 0; i < merge->did->count; i++) {
        if (is_first_content(merge, i)) {
            merge_content(merge, merge->did->ops[i].ino, time_ns);
        }
    }
    for (size_t i = 0; i < merge->did->count; i++) {
        if (is_first_content(merge, i)) {
            const ino_no ino = merge->did->ops[i].ino;
            renumber(merge, ino, model_find(old_versions, ino), fn, arg);
        }
    }
    if (merge->live->journal != NULL) {
        merge->live->journal->learned = merge->live->journal->count;
    }
    model_free(old_versions);
}

void merge_free(struct merge *merge)
{
    free(merge->twins);
    merge->twins = NULL;
}
