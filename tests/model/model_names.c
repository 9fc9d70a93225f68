/*
 * tests/model/model_names.c - the reference model's directories: make, link, remove, rename.
 */
#include "tests/model/model_int.h"

#include "tests/model/journal.h"

#include <assert.h>
#include <errno.h>

#define LINK_MAX_COUNT 65000u
#define NAME_MAX_SIZE  255u
#define STAMPS_CHANGED ((unsigned)MODEL_STAMP_MTIME | (unsigned)MODEL_STAMP_CTIME)

static int find_dir(const struct model *model, ino_no ino, struct model_inode **out_dir)
{
    struct model_inode *dir = model_find(model, ino);
    if (dir == NULL || dir->replaced) {
        return -ENOENT;
    }
    if (!model_is_dir(dir)) {
        return -ENOTDIR;
    }
    *out_dir = dir;
    return 0;
}

/* The directory, and the entry of that name in it or NULL. */
static int resolve(const struct model *model, ino_no parent, struct store_name name, struct model_inode **out_dir,
                   const struct model_entry **out_entry)
{
    const int result = find_dir(model, parent, out_dir);
    if (result < 0) {
        return result;
    }
    if (name.size > NAME_MAX_SIZE) {
        return -ENAMETOOLONG;
    }
    *out_entry = model_find_entry(*out_dir, name);
    return 0;
}

int model_lookup(struct model *model, ino_no parent, struct store_name name, ino_no *out_ino)
{
    struct model_inode *dir;
    const struct model_entry *entry;
    if (name.size > NAME_MAX_SIZE) {
        return -ENAMETOOLONG;
    }
    const int result = resolve(model, parent, name, &dir, &entry);
    if (result < 0) {
        return result;
    }
    if (entry == NULL) {
        return -ENOENT;
    }
    *out_ino = entry->ino;
    return 0;
}

int model_create(struct model *model, ino_no parent, struct store_name name, uint32_t mode, uint32_t rdev,
                 struct store_who who, const char *target, ino_no new_ino)
{
    struct model_inode *dir;
    const struct model_entry *entry;
    if (target != NULL && strlen(target) > 4095) {
        return -ENAMETOOLONG;
    }
    int result = resolve(model, parent, name, &dir, &entry);
    if (result < 0) {
        return result;
    }
    if (entry != NULL) {
        return -EEXIST;
    }
    struct model_inode *inode = model_inode_add(model, new_ino, mode);
    inode->nlink = 1;
    inode->uid = who.uid;
    inode->gid = who.gid;
    inode->rdev = S_ISCHR(mode) || S_ISBLK(mode) ? rdev : 0;
    if (dir->mode & S_ISGID) {
        inode->gid = dir->gid;
        inode->mode |= S_ISDIR(mode) ? S_ISGID : 0u;
    }
    if (S_ISDIR(mode)) {
        inode->parent = parent;
    }
    if (target != NULL) {
        model_set_size(model, inode, strlen(target));
        memcpy(inode->bytes, target, strlen(target));
    }
    model_entry_add(dir, name, new_ino);
    journal_add(model, &(struct model_op){.kind = MODEL_OP_CREATE,
                                          .ino = new_ino,
                                          .parent = parent,
                                          .name = name,
                                          .mode = inode->mode,
                                          .uid = inode->uid,
                                          .gid = inode->gid,
                                          .rdev = inode->rdev,
                                          .value = {target, target != NULL ? strlen(target) + 1 : 0}});
    model_touch(model, dir, STAMPS_CHANGED);
    model_touch(model, inode, STAMPS_CHANGED | MODEL_STAMP_ATIME);
    return 0;
}

int model_readlink(struct model *model, ino_no ino)
{
    const struct model_inode *inode = model_find(model, ino);
    if (inode == NULL) {
        return -ENOENT;
    }
    return S_ISLNK(inode->mode) ? 0 : -EINVAL;
}

int model_link(struct model *model, ino_no ino, ino_no new_parent, struct store_name name)
{
    struct model_inode *dir;
    const struct model_entry *entry;
    struct model_inode *inode = model_find(model, ino);
    if (inode == NULL || inode->nlink == 0) {
        return -ENOENT;
    }
    int result = find_dir(model, new_parent, &dir);
    if (result < 0) {
        return result;
    }
    if (model_is_dir(inode)) {
        return -EPERM;
    }
    if (inode->nlink >= LINK_MAX_COUNT) {
        return -EMLINK;
    }
    result = resolve(model, new_parent, name, &dir, &entry);
    if (result < 0 || entry != NULL) {
        return result < 0 ? result : -EEXIST;
    }
    model_entry_add(dir, name, ino);
    journal_add(model, &(struct model_op){.kind = MODEL_OP_LINK, .ino = ino, .parent = new_parent, .name = name});
    inode->nlink++;
    model_touch(model, dir, STAMPS_CHANGED);
    model_touch(model, inode, MODEL_STAMP_CTIME);
    return 0;
}

/* One name fewer. */
static void drop_link(struct model *model, struct model_inode *inode)
{
    assert(inode->nlink > 0);
    inode->nlink--;
    model_touch(model, inode, MODEL_STAMP_CTIME);
    model_inode_drop_if_unused(model, inode);
}

int model_unlink(struct model *model, ino_no parent, struct store_name name)
{
    struct model_inode *dir;
    const struct model_entry *entry;
    int result = resolve(model, parent, name, &dir, &entry);
    if (result < 0) {
        return result;
    }
    if (entry == NULL) {
        return -ENOENT;
    }
    struct model_inode *inode = model_find(model, entry->ino);
    if (model_is_dir(inode)) {
        return -EISDIR;
    }
    journal_add(model, &(struct model_op){.kind = MODEL_OP_UNLINK, .ino = inode->ino, .parent = parent, .name = name});
    model_entry_remove(dir, entry);
    model_touch(model, dir, STAMPS_CHANGED);
    drop_link(model, inode);
    return 0;
}

int model_rmdir(struct model *model, ino_no parent, struct store_name name)
{
    struct model_inode *dir;
    const struct model_entry *entry;
    int result = resolve(model, parent, name, &dir, &entry);
    if (result < 0) {
        return result;
    }
    if (entry == NULL) {
        return -ENOENT;
    }
    struct model_inode *inode = model_find(model, entry->ino);
    if (!model_is_dir(inode)) {
        return -ENOTDIR;
    }
    if (inode->entry_count > 0) {
        return -ENOTEMPTY;
    }
    journal_add(model, &(struct model_op){.kind = MODEL_OP_RMDIR, .ino = inode->ino, .parent = parent, .name = name});
    model_entry_remove(dir, entry);
    model_touch(model, dir, STAMPS_CHANGED);
    drop_link(model, inode);
    return 0;
}

/* ---- rename ---- */

struct rename_ends {
    struct model_inode *from_dir, *to_dir;
    struct model_inode *source, *target; /* target NULL: none */
};

/* Is `above` the directory `dir` or one of those it lies in? */
static bool lies_in(const struct model *model, const struct model_inode *dir, const struct model_inode *above)
{
    while (dir != above && dir->ino != INO_ROOT) {
        dir = model_find(model, dir->parent);
    }
    return dir == above;
}

/* A directory must not move below itself. */
static int check_loops(const struct model *model, const struct rename_ends *ends, unsigned flags)
{
    if (model_is_dir(ends->source) && lies_in(model, ends->to_dir, ends->source)) {
        return -EINVAL;
    }
    if (ends->target != NULL && model_is_dir(ends->target) && lies_in(model, ends->from_dir, ends->target)) {
        return flags & STORE_RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
    }
    return 0;
}

static int check_replaced(const struct rename_ends *ends)
{
    if (ends->target == NULL) {
        return 0;
    }
    if (model_is_dir(ends->source)) {
        if (!model_is_dir(ends->target)) {
            return -ENOTDIR;
        }
        return ends->target->entry_count > 0 ? -ENOTEMPTY : 0;
    }
    return model_is_dir(ends->target) ? -EISDIR : 0;
}

static int check_rename(const struct model *model, const struct rename_ends *ends, unsigned flags)
{
    if ((flags & STORE_RENAME_NOREPLACE) && ends->target != NULL) {
        return -EEXIST;
    }
    if ((flags & STORE_RENAME_EXCHANGE) && ends->target == NULL) {
        return -ENOENT;
    }
    if (ends->source == ends->target) {
        return 0;
    }
    int result = check_loops(model, ends, flags);
    if (result == 0 && !(flags & STORE_RENAME_EXCHANGE)) {
        result = check_replaced(ends);
    }
    return result;
}

static struct model_entry *entry_of(struct model_inode *dir, struct store_name name)
{
    return dir->entries + (model_find_entry(dir, name) - dir->entries);
}

static void set_parent(struct model_inode *inode, const struct model_inode *dir)
{
    if (model_is_dir(inode)) {
        inode->parent = dir->ino;
    }
}

static void exchange(struct rename_ends *ends, struct store_name name, struct store_name new_name)
{
    entry_of(ends->from_dir, name)->ino = ends->target->ino;
    entry_of(ends->to_dir, new_name)->ino = ends->source->ino;
    set_parent(ends->source, ends->to_dir);
    set_parent(ends->target, ends->from_dir);
}

static void move(struct model *model, struct rename_ends *ends, struct store_name name, struct store_name new_name)
{
    model_entry_remove(ends->from_dir, model_find_entry(ends->from_dir, name));
    if (ends->target != NULL) {
        entry_of(ends->to_dir, new_name)->ino = ends->source->ino;
        drop_link(model, ends->target);
    } else {
        model_entry_add(ends->to_dir, new_name, ends->source->ino);
    }
    set_parent(ends->source, ends->to_dir);
}

int model_rename(struct model *model, ino_no parent, struct store_name name, ino_no new_parent,
                 struct store_name new_name, unsigned flags)
{
    struct rename_ends ends = {0};
    const struct model_entry *from = NULL;
    const struct model_entry *to = NULL;
    if ((flags & STORE_RENAME_NOREPLACE) && (flags & STORE_RENAME_EXCHANGE)) {
        return -EINVAL;
    }
    if (new_name.size > NAME_MAX_SIZE) {
        return -ENAMETOOLONG;
    }
    int result = find_dir(model, parent, &ends.from_dir);
    if (result == 0) {
        result = resolve(model, new_parent, new_name, &ends.to_dir, &to);
    }
    if (result == 0) {
        result = resolve(model, parent, name, &ends.from_dir, &from);
    }
    if (result == 0 && from == NULL) {
        result = -ENOENT;
    }
    if (result < 0) {
        return result;
    }
    ends.source = model_find(model, from->ino);
    ends.target = to == NULL ? NULL : model_find(model, to->ino);
    result = check_rename(model, &ends, flags);
    if (result < 0 || ends.source == ends.target) {
        return result; /* two names of one inode: nothing happens */
    }
    const bool exchanges = (flags & STORE_RENAME_EXCHANGE) != 0;
    journal_add(model,
                &(struct model_op){.kind = MODEL_OP_RENAME,
                                   .ino = ends.source->ino,
                                   .ino2 = ends.target != NULL ? ends.target->ino : INO_NONE,
                                   .parent = parent,
                                   .parent2 = new_parent,
                                   .name = name,
                                   .name2 = new_name,
                                   .flags = flags & STORE_RENAME_EXCHANGE,
                                   .moves_dir = parent != new_parent && (model_is_dir(ends.source) ||
                                                                         (exchanges && model_is_dir(ends.target)))});
    model_touch(model, ends.from_dir, STAMPS_CHANGED);
    model_touch(model, ends.to_dir, STAMPS_CHANGED);
    model_touch(model, ends.source, MODEL_STAMP_CTIME);
    if (flags & STORE_RENAME_EXCHANGE) {
        model_touch(model, ends.target, MODEL_STAMP_CTIME);
        exchange(&ends, name, new_name);
    } else {
        move(model, &ends, name, new_name);
    }
    return 0;
}
