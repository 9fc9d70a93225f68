/*
 * txn/store_attr.c - changes of attributes: mode, owner, times, extended attributes.
 */
#include "txn/store_int.h"

#include "base/nearest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SET_ATTRIBUTES                                                                                                 \
    (STORE_SET_MODE | STORE_SET_UID | STORE_SET_GID | STORE_SET_ATIME | STORE_SET_MTIME | STORE_SET_ATIME_NOW |        \
     STORE_SET_MTIME_NOW)

struct setattr_arg {
    ino_no ino;
    unsigned set;
    const struct store_attr *attr;
    struct store_attr *out_attr;
};

/* As chown(2): on everything but directories. */
static void kill_suid(struct inode *inode)
{
    if (!S_ISDIR(inode->mode)) {
        inode->mode &= ~(uint32_t)S_ISUID;
        if ((inode->mode & S_IXGRP) != 0) {
            inode->mode &= ~(uint32_t)S_ISGID;
        }
    }
}

/* Which fields the record tells of: those that were asked for, and the mode when an owner's change may clear bits of it. */
static uint32_t flags_of(unsigned set)
{
    const bool kills = (set & STORE_SET_KILL_SUID) != 0 && (set & (STORE_SET_UID | STORE_SET_GID)) != 0;
    return ((set & STORE_SET_MODE) != 0 || kills ? OP_SETATTR_MODE : 0u) |
           ((set & STORE_SET_UID) != 0 ? OP_SETATTR_UID : 0u) | ((set & STORE_SET_GID) != 0 ? OP_SETATTR_GID : 0u) |
           ((set & (STORE_SET_ATIME | STORE_SET_ATIME_NOW)) != 0 ? OP_SETATTR_ATIME : 0u) |
           ((set & (STORE_SET_MTIME | STORE_SET_MTIME_NOW)) != 0 ? OP_SETATTR_MTIME : 0u);
}

static unsigned set_of(uint32_t flags)
{
    return ((flags & OP_SETATTR_MODE) != 0 ? STORE_SET_MODE : 0u) |
           ((flags & OP_SETATTR_UID) != 0 ? STORE_SET_UID : 0u) | ((flags & OP_SETATTR_GID) != 0 ? STORE_SET_GID : 0u) |
           ((flags & OP_SETATTR_ATIME) != 0 ? STORE_SET_ATIME : 0u) |
           ((flags & OP_SETATTR_MTIME) != 0 ? STORE_SET_MTIME : 0u);
}

/* Sets the fields and says in the record what was set to what. */
static void set_fields(struct op_run *run, const struct setattr_arg *sa, struct inode *inode)
{
    const struct store_attr *attr = sa->attr;
    const int64_t now = run->op.time_ns;
    if ((sa->set & STORE_SET_KILL_SUID) != 0 && (sa->set & (STORE_SET_UID | STORE_SET_GID)) != 0) {
        kill_suid(inode);
    }
    if ((sa->set & STORE_SET_MODE) != 0) {
        inode->mode = (inode->mode & S_IFMT) | (attr->mode & 07777);
    }
    if ((sa->set & STORE_SET_UID) != 0) {
        inode->uid = attr->uid;
    }
    if ((sa->set & STORE_SET_GID) != 0) {
        inode->gid = attr->gid;
    }
    if ((sa->set & (STORE_SET_ATIME | STORE_SET_ATIME_NOW)) != 0) {
        inode->atime_ns = (sa->set & STORE_SET_ATIME_NOW) != 0 ? now : attr->atime_ns;
    }
    if ((sa->set & (STORE_SET_MTIME | STORE_SET_MTIME_NOW)) != 0) {
        inode->mtime_ns = (sa->set & STORE_SET_MTIME_NOW) != 0 ? now : attr->mtime_ns;
    }
    run->op.flags |= flags_of(sa->set);
    run->op.mode = inode->mode;
    run->op.uid = inode->uid;
    run->op.gid = inode->gid;
    run->op.atime_ns = inode->atime_ns;
    run->op.mtime_ns = inode->mtime_ns;
}

/* The inode's attributes are about to change in this operation. */
static int put_changed(struct op_run *run, struct inode *inode)
{
    inode->ctime_ns = run->ctime_ns;
    inode->attr_epoch = cow_epoch(run->store->cow);
    inode->change_epoch = inode->attr_epoch;
    return inode_batch_put(&run->batch, inode);
}

static int plan_setattr(struct op_run *run, void *arg)
{
    const struct setattr_arg *sa = arg;
    struct inode inode;
    int rc = inode_batch_get(&run->batch, sa->ino, &inode);
    if (rc == 0) {
        run->op.ino = sa->ino;
        set_fields(run, sa, &inode);
        rc = put_changed(run, &inode);
        store_attr_of(&inode, sa->out_attr);
    }
    return rc;
}

static int set_size(struct store *store, struct view *view, ino_no ino, unsigned set, uint64_t size_bytes)
{
    struct store_file *file = NULL;
    int rc = store_file_open(store, view, ino, &file);
    if (rc == 0) {
        const unsigned flags = (set & STORE_SET_KILL_SUID) != 0 ? STORE_WRITE_KILL_SUID : 0;
        rc = store_file_resize(file, size_bytes, flags);
        store_file_close(file);
    }
    return rc;
}

int store_setattr(struct store *store, struct view *view, ino_no ino, unsigned set, const struct store_attr *attr,
                  struct store_attr *out_attr)
{
    int rc = 0;
    if ((set & STORE_SET_SIZE) != 0) {
        rc = set_size(store, view, ino, set, attr->size_bytes);
    }
    if (rc == 0 && (set & SET_ATTRIBUTES) != 0) {
        struct setattr_arg sa = {.ino = ino, .set = set, .attr = attr, .out_attr = out_attr};
        rc = store_warm_inode(store, view, ino);
        return rc != 0 ? rc : store_op_run(store, view, OP_SETATTR, plan_setattr, &sa);
    }
    return rc != 0 ? rc : store_getattr(store, view, ino, out_attr);
}

/* ---- extended attributes ---- */

/* All attributes of an inode together: removing the inode removes them in one operation, which has to find room. */
#define XATTRS_MAX_BYTES (65536u + sizeof(struct disk_xattr))

#define TS_TEXT_BYTES 12u

struct xattr_arg {
    ino_no ino;
    const char *name;
    const void *value;
    size_t value_size;
    unsigned flags;
};

static int xattr_common(struct op_run *run, const struct xattr_arg *xa, struct inode *out_inode)
{
    run->op.ino = xa->ino;
    run->op.name = (struct op_bytes){.data = xa->name, .size = strlen(xa->name)};
    run->op.data = (struct op_bytes){.data = xa->value, .size = xa->value_size};
    return inode_batch_get(&run->batch, xa->ino, out_inode);
}

static int add_item_size(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    (void)key;
    (void)value;
    *(uint64_t *)arg += value_size;
    return 0;
}

/* -ENOSPC: with that one, which is among them already, they are too many for one inode. */
static int check_room(struct op_run *run, const struct xattr_arg *xa)
{
    const struct catalog_key first = {.ino = xa->ino, .sub = 0, .type = ITEM_XATTR};
    const struct catalog_key last = {.ino = xa->ino, .sub = UINT64_MAX, .type = ITEM_XATTR};
    uint64_t bytes = 0;
    const int rc = run->replay != NULL ? 0 : catalog_batch_scan(&run->batch, &first, &last, add_item_size, &bytes);
    return rc == 0 && bytes > XATTRS_MAX_BYTES ? -ENOSPC : rc;
}

/* The value is the number, as text (TABLESPACE-3). A table that has a relation stays where it is. */
static int place(struct op_run *run, const struct xattr_arg *xa, struct inode *inode)
{
    char text[TS_TEXT_BYTES] = "";
    if (xa->value_size >= sizeof text) {
        return -EBADMSG;
    }
    memcpy(text, xa->value, xa->value_size);
    if (!S_ISDIR(inode->mode) && (!S_ISREG(inode->mode) || (inode->rel != REL_NONE && run->replay == NULL))) {
        return -EOPNOTSUPP;
    }
    if (inode->rel == REL_NONE) {
        inode->ts = (ts_no)strtoul(text, NULL, 10);
    }
    return put_changed(run, inode);
}

static bool is_placement(const struct xattr_arg *xa)
{
    return strcmp(xa->name, STORE_XATTR_TABLESPACE) == 0;
}

static int plan_setxattr(struct op_run *run, void *arg)
{
    const struct xattr_arg *xa = arg;
    struct inode inode;
    int rc = xattr_common(run, xa, &inode);
    if (rc == 0 && is_placement(xa)) {
        return place(run, xa, &inode);
    }
    if (rc == 0) {
        rc = xattr_batch_put(&run->batch, &run->store->hash, xa->ino, xa->name, xa->value, xa->value_size,
                             (xa->flags & STORE_XATTR_REPLACE) != 0, (xa->flags & STORE_XATTR_CREATE) != 0,
                             &run->op.cookie);
    }
    if (rc == 0) {
        rc = check_room(run, xa);
    }
    return rc != 0 ? rc : put_changed(run, &inode);
}

struct spelling {
    const char *word;
    char best[STORE_NAME_MAX + 1];
};

static int spell(void *arg, const struct store_tablespace_info *info)
{
    struct spelling *spelling = arg;
    const char *const words[] = {info->name, spelling->best[0] != '\0' ? spelling->best : NULL, NULL};
    const char *nearest = nearest_of(spelling->word, words);
    if (nearest != NULL && nearest != spelling->best) {
        memcpy(spelling->best, nearest, strlen(nearest) + 1);
    }
    return 0;
}

/* What the user names becomes what the record says. */
static int find_tablespace(struct store *store, struct xattr_arg *xa, char number[TS_TEXT_BYTES])
{
    ts_no ts = TS_DEFAULT;
    char word[STORE_NAME_MAX + 1] = "";
    const struct store_name name = {.bytes = xa->value, .size = xa->value_size};
    if (store_tablespace_number(store, name, &ts) != 0) {
        memcpy(word, name.bytes, name.size < STORE_NAME_MAX ? name.size : STORE_NAME_MAX);
        struct spelling spelling = {.word = word};
        (void)store_each_tablespace(store, spell, &spelling);
        const bool is_near = spelling.best[0] != '\0';
        diag_log(store->diag, DIAG_WARNING, "there is no tablespace %s%s%s%s", word, is_near ? "; did you mean " : "",
                 spelling.best, is_near ? "?" : "");
        return -EINVAL;
    }
    (void)snprintf(number, TS_TEXT_BYTES, "%" PRIu32, ts);
    xa->value = number;
    xa->value_size = strlen(number);
    return 0;
}

int store_setxattr(struct store *store, struct view *view, ino_no ino, const char *name, const void *value,
                   size_t value_size, unsigned flags)
{
    if (name[0] == '\0' || strlen(name) > STORE_NAME_MAX) {
        return -ERANGE;
    }
    struct xattr_arg xa = {.ino = ino, .name = name, .value = value, .value_size = value_size, .flags = flags};
    char number[TS_TEXT_BYTES];
    int rc = is_placement(&xa) ? find_tablespace(store, &xa, number) : 0;
    if (rc == 0) {
        rc = store_warm_inode(store, view, ino);
    }
    return rc != 0 ? rc : store_op_run(store, view, OP_SETXATTR, plan_setxattr, &xa);
}

static int plan_removexattr(struct op_run *run, void *arg)
{
    const struct xattr_arg *xa = arg;
    struct inode inode;
    int rc = xattr_common(run, xa, &inode);
    if (rc == 0 && is_placement(xa)) {
        return inode.ts == TS_DEFAULT && run->replay == NULL ? -ENODATA : place(run, xa, &inode);
    }
    if (rc == 0) {
        rc = xattr_batch_remove(&run->batch, &run->store->hash, xa->ino, xa->name);
    }
    return rc != 0 ? rc : put_changed(run, &inode);
}

int store_removexattr(struct store *store, struct view *view, ino_no ino, const char *name)
{
    if (name[0] == '\0' || strlen(name) > STORE_NAME_MAX) {
        return -ERANGE;
    }
    struct xattr_arg xa = {.ino = ino, .name = name};
    const int rc = store_warm_inode(store, view, ino);
    return rc != 0 ? rc : store_op_run(store, view, OP_REMOVEXATTR, plan_removexattr, &xa);
}

/* ---- replay ---- */

static int replay_setattr(struct store *store, struct view *view, const struct op_record *record)
{
    struct store_attr out_attr;
    const struct store_attr attr = {.mode = record->mode,
                                    .uid = record->uid,
                                    .gid = record->gid,
                                    .atime_ns = record->atime_ns,
                                    .mtime_ns = record->mtime_ns};
    struct setattr_arg sa = {.ino = record->ino, .set = set_of(record->flags), .attr = &attr, .out_attr = &out_attr};
    return store_op_replay(store, view, record, plan_setattr, &sa);
}

int store_attr_replay(struct store *store, struct view *view, const struct op_record *record)
{
    if (record->type == OP_SETATTR) {
        return replay_setattr(store, view, record);
    }
    char name[STORE_NAME_MAX + 1] = "";
    if (record->name.size == 0 || record->name.size > STORE_NAME_MAX) {
        return -EBADMSG;
    }
    memcpy(name, record->name.data, record->name.size);
    struct xattr_arg xa = {
        .ino = record->ino, .name = name, .value = record->data.data, .value_size = record->data.size};
    return store_op_replay(store, view, record, record->type == OP_SETXATTR ? plan_setxattr : plan_removexattr, &xa);
}
