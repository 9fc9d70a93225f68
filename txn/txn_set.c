/*
 * txn/txn_set.c - write sets and lists of operations (txn/txn_set.h).
 *
 * Locking: the owner's.
 */
#define HASH_NONFATAL_OOM 1
#include "txn/txn_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_KEY_MAX (8u + 255u)

bool op_is_content(enum op_type type)
{
    return type == OP_WRITE || type == OP_WRITE_PAGES || type == OP_RESIZE || type == OP_PUNCH;
}

bool op_is_append(const struct op_record *op)
{
    return (op->type == OP_WRITE || op->type == OP_WRITE_PAGES) && op->offset_bytes == op->size_before_bytes;
}

void txn_set_free(struct txn_set *set)
{
    struct txn_inode *inode;
    struct txn_inode *next_inode;
    struct txn_name *name;
    struct txn_name *next_name;
    HASH_ITER(hh, set->inodes, inode, next_inode)
    {
        HASH_DELETE(hh, set->inodes, inode);
        free(inode);
    }
    HASH_ITER(hh, set->names, name, next_name)
    {
        HASH_DELETE(hh, set->names, name);
        free(name);
    }
    free(set->list);
    *set = (struct txn_set){0};
}

struct txn_inode *txn_set_find_inode(const struct txn_set *set, ino_no ino)
{
    struct txn_inode *inode = NULL;
    HASH_FIND(hh, set->inodes, &ino, sizeof ino, inode);
    return inode;
}

static struct txn_inode *want_inode(struct txn_set *set, ino_no ino)
{
    struct txn_inode *inode = txn_set_find_inode(set, ino);
    if (inode != NULL) {
        return inode;
    }
    inode = calloc(1, sizeof *inode);
    if (inode == NULL) {
        return NULL;
    }
    inode->ino = ino;
    HASH_ADD(hh, set->inodes, ino, sizeof inode->ino, inode);
    if (inode->hh.tbl == NULL) {
        free(inode);
        return NULL;
    }
    return inode;
}

static size_t name_key(ino_no parent, struct op_bytes name, uint8_t *key)
{
    const size_t size = name.size <= 255 ? name.size : 255;
    memcpy(key, &parent, 8);
    if (size > 0) {
        memcpy(key + 8, name.data, size);
    }
    return 8 + size;
}

ino_no txn_name_parent(const struct txn_name *name)
{
    ino_no parent;
    memcpy(&parent, name->key, sizeof parent);
    return parent;
}

struct op_bytes txn_name_bytes(const struct txn_name *name)
{
    return (struct op_bytes){.data = name->key + 8, .size = name->key_size - 8};
}

struct txn_name *txn_set_find_name(const struct txn_set *set, ino_no parent, struct op_bytes name)
{
    uint8_t key[NAME_KEY_MAX];
    const size_t size = name_key(parent, name, key);
    struct txn_name *found = NULL;
    HASH_FIND(hh, set->names, key, size, found);
    return found;
}

int txn_set_touch_name(struct txn_set *set, ino_no parent, struct op_bytes name, ino_no made_dir)
{
    struct txn_name *found = txn_set_find_name(set, parent, name);
    if (found == NULL) {
        uint8_t key[NAME_KEY_MAX];
        const size_t size = name_key(parent, name, key);
        found = calloc(1, sizeof *found + size);
        if (found == NULL) {
            return -ENOMEM;
        }
        memcpy(found->key, key, size);
        found->key_size = size;
        HASH_ADD_KEYPTR(hh, set->names, found->key, size, found);
        if (found->hh.tbl == NULL) {
            free(found);
            return -ENOMEM;
        }
    }
    found->made_dir = found->touches++ == 0 ? made_dir : INO_NONE;
    return 0;
}

static int touch_attr(struct txn_set *set, ino_no ino)
{
    struct txn_inode *inode = want_inode(set, ino);
    if (inode == NULL) {
        return -ENOMEM;
    }
    inode->attr = true;
    return 0;
}

static bool is_dir_mode(uint32_t mode)
{
    return (mode & 0170000u) == 0040000u;
}

static int add_create(struct txn_set *set, const struct op_record *op)
{
    struct txn_inode *inode = want_inode(set, op->ino);
    if (inode == NULL) {
        return -ENOMEM;
    }
    inode->created = true;
    return txn_set_touch_name(set, op->parent, op->name, is_dir_mode(op->mode) ? op->ino : INO_NONE);
}

static int add_rename(struct txn_set *set, const struct op_record *op)
{
    struct txn_inode *inode = want_inode(set, op->ino);
    struct txn_inode *other = inode != NULL && op->ino2 != INO_NONE ? want_inode(set, op->ino2) : inode;
    if (inode == NULL || other == NULL) {
        return -ENOMEM;
    }
    inode->attr = true;
    other->attr = true;
    inode->moved |= op->parent != op->parent2;
    other->moved |= op->parent != op->parent2 && (op->flags & OP_RENAME_EXCHANGE) != 0;
    const int rc = txn_set_touch_name(set, op->parent, op->name, INO_NONE);
    return rc != 0 ? rc : txn_set_touch_name(set, op->parent2, op->name2, INO_NONE);
}

static int add_content(struct txn_set *set, const struct op_record *op)
{
    struct txn_inode *inode = want_inode(set, op->ino);
    if (inode == NULL) {
        return -ENOMEM;
    }
    inode->content = true;
    inode->rewritten |= !op_is_append(op);
    set->bytes += op->data.size + op->pages.size / 16 * 8176;
    return 0;
}

struct add_arg {
    struct txn_set *set;
    bool with_list;
};

static int add_contained(void *arg, const struct op_record *op)
{
    const struct add_arg *aa = arg;
    return op_is_removal(op->type) ? txn_set_add(aa->set, op, aa->with_list) : -EBADMSG;
}

static int add_touched(struct txn_set *set, const struct op_record *op)
{
    int rc;
    switch (op->type) {
    case OP_CREATE:
        return add_create(set, op);
    case OP_LINK:
    case OP_UNLINK:
    case OP_RMDIR:
        rc = touch_attr(set, op->ino);
        return rc != 0 ? rc : txn_set_touch_name(set, op->parent, op->name, INO_NONE);
    case OP_RENAME:
        return add_rename(set, op);
    case OP_SETATTR:
    case OP_SETXATTR:
    case OP_REMOVEXATTR:
        return touch_attr(set, op->ino);
    default:
        return op_is_content(op->type) ? add_content(set, op) : 0;
    }
}

/* Is it done again when the transaction is closed? Destroying an orphan is not: in the live tree it was its last name that went. */
static bool belongs_in_list(enum op_type type)
{
    return !op_is_content(type) && type != OP_DESTROY;
}

static int add_to_list(struct txn_set *set, const struct op_record *op)
{
    struct op_record record = *op;
    if (!belongs_in_list(op->type)) {
        if (!op_is_content(op->type) || (op->flags & OP_KILL_SUID) == 0) {
            return 0;
        }
        record = (struct op_record){
            .type = OP_RESIZE, .txn = op->txn, .time_ns = op->time_ns, .ino = op->ino, .flags = OP_KILL_SUID};
    }
    return op_records_append(&set->list, &set->list_size, &set->list_capacity, &record);
}

int txn_set_add(struct txn_set *set, const struct op_record *op, bool with_list)
{
    if (op->type == OP_REMOVE_MANY || op->type == OP_COMMIT) { /* which carries the last ones */
        struct add_arg aa = {.set = set, .with_list = with_list};
        return op_records_each(op->data.data, op->data.size, add_contained, &aa);
    }
    set->operations++;
    int rc = add_touched(set, op);
    if (rc == 0 && with_list) {
        rc = add_to_list(set, op);
    }
    return rc;
}

int op_records_each(const void *bytes, size_t size, op_record_fn *fn, void *arg)
{
    const uint8_t *at = bytes;
    int rc = 0;
    while (size > 0 && rc == 0) {
        struct op_record op;
        size_t took = 0;
        rc = op_record_decode(at, size, &op, &took);
        if (rc == 0) {
            rc = fn(arg, &op);
        }
        at += took;
        size -= took;
    }
    return rc;
}

int op_records_append(uint8_t **inout_bytes, size_t *inout_size, size_t *inout_capacity, const struct op_record *op)
{
    const size_t more = op_record_size(op);
    if (*inout_size + more > *inout_capacity) {
        const size_t capacity = (*inout_size + more) * 2;
        uint8_t *bytes = realloc(*inout_bytes, capacity);
        if (bytes == NULL) {
            return -ENOMEM;
        }
        *inout_bytes = bytes;
        *inout_capacity = capacity;
    }
    op_record_encode(op, *inout_bytes + *inout_size);
    *inout_size += more;
    return 0;
}
