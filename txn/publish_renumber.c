/*
 * txn/publish_renumber.c - tables that a transaction rewrote get new inode numbers, with all their names, attributes and links.
 *
 * Each in several batches, the inode last: nobody sees the view in between (PUBLISH-1).
 *
 * Locking: see txn/publish.c.
 */
#include "txn/publish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Items that move in one batch. The inode itself moves last, behind all of its attributes and further names, however many there are. */
#define RENUMBER_ITEMS 4u

struct moved_item {
    struct catalog_key key;
    uint8_t *value;
    size_t size;
};

struct renumber_arg {
    struct publish *publish;
    ino_no ino, new_ino;
    struct moved_item items[RENUMBER_ITEMS];
    unsigned count;
};

static int collect_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct renumber_arg *ra = arg;
    struct moved_item *item = &ra->items[ra->count];
    item->value = malloc(value_size + 1);
    if (item->value == NULL) {
        return -ENOMEM;
    }
    memcpy(item->value, value, value_size);
    item->key = *key;
    item->size = value_size;
    return ++ra->count == RENUMBER_ITEMS ? 1 : 0;
}

/* The entry of one name leads to the new inode. */
static int redirect_name(struct op_run *run, const struct renumber_arg *ra, ino_no parent, uint64_t cookie)
{
    const struct catalog_key key = {.ino = parent, .sub = cookie, .type = ITEM_DIRENT};
    uint8_t value[sizeof(struct disk_dirent) + STORE_NAME_MAX];
    size_t size = 0;
    int rc = catalog_batch_get(&run->batch, &key, value, sizeof value, &size);
    if (rc != 0 || size <= sizeof(struct disk_dirent)) {
        return rc != 0 ? rc : -EIO;
    }
    struct disk_dirent disk;
    memcpy(&disk, value, sizeof disk);
    disk.ino = le64_of(ra->new_ino);
    memcpy(value, &disk, sizeof disk);
    rc = catalog_batch_put(&run->batch, &key, value, size);
    if (rc == 0 && ra->publish->changes != NULL) {
        rc = store_changes_add_name(ra->publish->changes, parent, (const char *)value + sizeof disk, size - sizeof disk,
                                    ra->ino, ra->new_ino);
    }
    return rc;
}

static int move_item(struct op_run *run, const struct renumber_arg *ra, const struct moved_item *item)
{
    struct catalog_key key = item->key;
    int rc = catalog_batch_remove(&run->batch, &key);
    key.ino = ra->new_ino;
    if (rc == 0) {
        rc = catalog_batch_put(&run->batch, &key, item->value, item->size);
    }
    if (rc == 0 && key.type == ITEM_BACK) {
        struct disk_back back;
        memcpy(&back, item->value, sizeof back);
        rc = redirect_name(run, ra, le64_get(back.parent), le64_get(back.cookie));
    }
    return rc;
}

/* The next items but the inode; none is left when ra->count is less than RENUMBER_ITEMS afterwards. */
static int plan_move_items(struct op_run *run, void *arg)
{
    struct renumber_arg *ra = arg;
    const struct catalog_key first = {.ino = ra->ino, .type = ITEM_INODE, .sub = 1};
    const struct catalog_key last = {.ino = ra->ino, .type = ITEM_BACK, .sub = UINT64_MAX};
    ra->count = 0;
    int rc = catalog_batch_scan(&run->batch, &first, &last, collect_item, ra);
    rc = rc > 0 ? 0 : rc;
    for (unsigned i = 0; i < ra->count; i++) {
        rc = rc == 0 ? move_item(run, ra, &ra->items[i]) : rc;
        free(ra->items[i].value);
    }
    return rc;
}

/* OWNER-1: in versions before this one the relation has another owner. */
static int pass_relation_on(struct op_run *run, const struct renumber_arg *ra, struct inode *inode)
{
    struct relation_owner owner = {.first = ra->ino};
    const int rc = owner_batch_get(&run->batch, inode->rel, &owner);
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    owner.owner = ra->new_ino;
    inode->flags |= INODE_RENUMBERED;
    return owner_batch_put(&run->batch, inode->rel, &owner);
}

static int plan_move_inode(struct op_run *run, void *arg)
{
    const struct renumber_arg *ra = arg;
    struct inode inode;
    int rc = inode_batch_get(&run->batch, ra->ino, &inode);
    if (rc == 0) {
        rc = inode_batch_remove(&run->batch, ra->ino);
    }
    if (rc == 0 && inode.rel != REL_NONE) {
        rc = pass_relation_on(run, ra, &inode);
    }
    if (rc == 0) {
        inode.ino = ra->new_ino;
        rc = inode_batch_put(&run->batch, &inode);
    }
    return rc != 0 ? rc : redirect_name(run, ra, inode.parent, inode.name_cookie);
}

static int renumber(struct publish *publish, ino_no ino, ino_no new_ino)
{
    struct renumber_arg ra = {.publish = publish, .ino = ino, .new_ino = new_ino};
    int rc;
    do {
        rc = store_op_run(publish->store, publish->view, OP_SETATTR, plan_move_items, &ra);
    } while (rc == 0 && ra.count == RENUMBER_ITEMS);
    return rc != 0 ? rc : store_op_run(publish->store, publish->view, OP_SETATTR, plan_move_inode, &ra);
}

static bool is_rewritten(const struct txn_inode *touched)
{
    return touched->content && touched->rewritten && !touched->created;
}

bool publish_appends_only(const struct publish *publish, ino_no ino)
{
    const struct txn_inode *touched = txn_set_find_inode(publish->set, ino);
    return touched != NULL && !touched->created && !touched->rewritten;
}

uint64_t publish_count_rewritten(const struct txn_set *set)
{
    uint64_t count = 0;
    for (const struct txn_inode *inode = set->inodes; inode != NULL; inode = inode->hh.next) {
        count += is_rewritten(inode);
    }
    return count;
}

int publish_renumber_all(struct publish *publish)
{
    ino_no next = publish->first_ino;
    int rc = 0;
    for (struct txn_inode *touched = publish->set->inodes; touched != NULL && rc == 0; touched = touched->hh.next) {
        struct inode inode;
        bool exists = false;
        if (!is_rewritten(touched)) {
            continue;
        }
        rc = publish_find_inode(publish->view, touched->ino, &inode, &exists);
        if (rc == 0 && exists) {
            rc = renumber(publish, touched->ino, next);
            touched->twin = next;
        }
        next++;
    }
    return rc;
}
