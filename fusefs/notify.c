/*
 * fusefs/notify.c - see the header.
 *
 * The changes are sorted once: by kind, names by directory, replaced and dropped inodes by number. "The first name of its
 * directory" and "leads to an inode that is gone" are then questions to that order, which need no memory.
 */
#include "fusefs/notify.h"
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct moved_name {
    uint64_t parent_id;
    struct moved_name *next;
    char name[];
};

/* ---- single notifications ---- */

static void take_name(struct fusefs *fs, uint64_t parent_id, const char *name, size_t name_size)
{
    if (parent_id != 0)
        (void)fuse_lowlevel_notify_inval_entry(fs->session, parent_id, name, name_size);
}

void notify_attributes(struct fusefs *fs, uint64_t node_id)
{
    if (node_id != 0)
        (void)fuse_lowlevel_notify_inval_inode(fs->session, node_id, -1, 0);
}

void notify_bytes(struct fusefs *fs, uint64_t node_id, uint64_t first_byte)
{
    if (node_id != 0)
        (void)fuse_lowlevel_notify_inval_inode(fs->session, node_id, (off_t)first_byte, 0);
}

void notify_entry_gone(struct fusefs *fs, ino_no virtual_dir, const char *name)
{
    const uint64_t id = node_known_id(fs->nodes, NODE_TREE_VIRTUAL, virtual_dir);
    take_name(fs, id, name, strlen(name));
    notify_attributes(fs, id);
}

static uint64_t live_id(struct fusefs *fs, ino_no ino)
{
    return node_known_id(fs->nodes, node_table_live(fs->nodes), ino);
}

/* ---- the order of changes ---- */

static ino_no sort_ino(const struct store_change *change)
{
    switch (change->kind) {
    case STORE_CHANGE_NAME:
        return change->parent;
    case STORE_CHANGE_REPLACED:
    case STORE_CHANGE_DROPPED:
        return change->old_ino;
    case STORE_CHANGE_DIRECTORY:
    case STORE_CHANGE_ATTR:
    case STORE_CHANGE_APPENDED:
        break;
    }
    return change->ino;
}

/* New names come last among those of their directory. */
static int compare_changes(const void *left, const void *right)
{
    const struct store_change *a = left, *b = right;
    const ino_no a_ino = sort_ino(a), b_ino = sort_ino(b);
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a_ino != b_ino)
        return a_ino < b_ino ? -1 : 1;
    return (int)(a->old_ino == INO_NONE) - (int)(b->old_ino == INO_NONE);
}

static bool has_gone(const struct store_changes *changes, enum store_change_kind kind, ino_no ino)
{
    const struct store_change wanted = {.kind = kind, .old_ino = ino};
    return bsearch(&wanted, changes->changes, changes->count, sizeof wanted, compare_changes) != NULL;
}

static bool is_lost_name(const struct store_change *change)
{
    return change->kind == STORE_CHANGE_NAME && change->old_ino != INO_NONE;
}

/* Must the kernel have lost this name before the reply? */
static bool comes_first(struct fusefs *fs, const struct store_changes *changes, size_t index)
{
    const struct store_change *change = &changes->changes[index];
    if (index == 0 || !is_lost_name(change - 1) || change[-1].parent != change->parent)
        return true; /* it stands for its directory */
    return node_is_open(fs->nodes, node_table_live(fs->nodes), change->old_ino) ||
           (!has_gone(changes, STORE_CHANGE_REPLACED, change->old_ino) &&
            !has_gone(changes, STORE_CHANGE_DROPPED, change->old_ino));
}

/* ---- a commit ---- */

void tellings_init(struct fusefs *fs)
{
    mutex_init(&fs->tellings_lock, LOCK_RANK_LEAF);
}

void tellings_destroy(struct fusefs *fs)
{
    mutex_destroy(&fs->tellings_lock);
}

void telling_begin(struct fusefs *fs, struct telling *telling, struct store_changes *changes)
{
    *telling = (struct telling){.fs = fs, .changes = changes};
    mutex_lock(&fs->tellings_lock);
    DL_APPEND(fs->tellings, telling);
    mutex_unlock(&fs->tellings_lock);
}

static void take_names_first(struct telling *telling)
{
    struct fusefs *fs = telling->fs;
    struct store_changes *changes = telling->changes;
    for (size_t index = 0; index < changes->count; index++) {
        struct store_change *change = &changes->changes[index];
        if (!is_lost_name(change) || !comes_first(fs, changes, index))
            continue;
        telling->waits_for = change->parent;
        take_name(fs, live_id(fs, change->parent), change->name, change->name_size);
    }
}

static void take_names_left(struct telling *telling)
{
    struct fusefs *fs = telling->fs;
    const struct store_changes *changes = telling->changes;
    for (size_t index = 0; index < changes->count; index++) {
        const struct store_change *change = &changes->changes[index];
        if (is_lost_name(change))
            take_name(fs, live_id(fs, change->parent), change->name, change->name_size);
    }
}

/* The next name that a rename gave. NULL: there is none; and the telling is off the list, if so wished. */
static struct moved_name *next_moved(struct telling *telling, bool delist)
{
    struct fusefs *fs = telling->fs;
    mutex_lock(&fs->tellings_lock);
    struct moved_name *moved = telling->moved;
    if (moved != NULL)
        LL_DELETE(telling->moved, moved);
    else if (delist)
        DL_DELETE(fs->tellings, telling);
    mutex_unlock(&fs->tellings_lock);
    return moved;
}

/* TELL-2. A rename under way is waited for, and has given its name before it ends: when none is left, none leads to what the
 * names that were taken before led to. */
static void take_moved_names(struct telling *telling, bool delist)
{
    struct moved_name *moved;
    while ((moved = next_moved(telling, delist)) != NULL) {
        take_name(telling->fs, moved->parent_id, moved->name, strlen(moved->name));
        free(moved);
    }
}

static void tell_inode(struct fusefs *fs, const struct store_change *change)
{
    switch (change->kind) {
    case STORE_CHANGE_NAME:
        break;
    case STORE_CHANGE_DIRECTORY:
    case STORE_CHANGE_ATTR:
        notify_attributes(fs, live_id(fs, change->ino));
        break;
    case STORE_CHANGE_APPENDED:
        notify_bytes(fs, live_id(fs, change->ino), change->old_size);
        break;
    case STORE_CHANGE_REPLACED:
    case STORE_CHANGE_DROPPED:
        notify_attributes(fs, node_mark_stale(fs->nodes, node_table_live(fs->nodes), change->old_ino, false));
        break;
    }
}

void telling_before_reply(struct telling *telling)
{
    const struct store_changes *changes = telling->changes;
    if (changes->count > 0)
        qsort(changes->changes, changes->count, sizeof changes->changes[0], compare_changes);
    telling->sorted = true;
    take_names_first(telling);
    take_moved_names(telling, false);
    telling->waits_for = INO_NONE;
    for (size_t index = 0; index < changes->count; index++)
        tell_inode(telling->fs, &changes->changes[index]);
}

static bool is_gone(const struct store_change *change)
{
    return change->kind == STORE_CHANGE_REPLACED || change->kind == STORE_CHANGE_DROPPED;
}

void telling_reply_early(struct telling *telling)
{
    struct fusefs *fs = telling->fs;
    const struct store_changes *changes = telling->changes;
    if (!telling->sorted)
        return; /* nothing was waited for yet */
    for (size_t index = 0; index < changes->count; index++) {
        const struct store_change *change = &changes->changes[index];
        if (is_gone(change))
            notify_attributes(fs, node_mark_stale(fs->nodes, node_table_live(fs->nodes), change->old_ino, true));
        else if (change->kind != STORE_CHANGE_NAME)
            notify_attributes(fs,
                              live_id(fs, change->ino)); /* telling of bytes may wait; a new size tells of them, too */
    }
}

void telling_after_reply(struct telling *telling)
{
    take_names_left(telling);
}

void telling_end(struct telling *telling)
{
    struct fusefs *fs = telling->fs;
    const struct store_changes *changes = telling->changes;
    take_moved_names(telling, true);
    for (size_t index = 0; index < changes->count; index++) {
        if (is_gone(&changes->changes[index]))
            node_clear_stale(fs->nodes, live_id(fs, changes->changes[index].old_ino));
    }
}

void tellings_note_name(struct fusefs *fs, uint64_t parent_id, const char *name)
{
    struct telling *telling;
    const size_t size = strlen(name) + 1;
    mutex_lock(&fs->tellings_lock);
    DL_FOREACH(fs->tellings, telling)
    {
        struct moved_name *moved = malloc(sizeof *moved + size);
        if (moved == NULL)
            continue; /* the kernel goes on asking a stale node under that name, and walking again */
        *moved = (struct moved_name){.parent_id = parent_id};
        memcpy(moved->name, name, size);
        LL_APPEND(telling->moved, moved);
    }
    mutex_unlock(&fs->tellings_lock);
}
