/*
 * tests/lib/mem_tree.c - directories and sparse files in memory.
 *
 * Invariants:
 *   MEM-1  tree->blocks_used is the sum over all inodes, unlinked but open ones included, of the blocks that are no
 *          holes.
 *   MEM-2  Bytes of a block at or behind the end of its file are zero, so that growing needs no clearing.
 */
#include "tests/lib/mem_tree.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Stands for every block that is reserved and was never written. Only its address is used to tell; never written. */
static const uint8_t zero_block[BLOCK_SIZE];

static uint8_t *reserved_block(void)
{
    return (uint8_t *)(uintptr_t)zero_block;
}

static void *must_have(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static struct mem_inode *inode_create(enum io_file_kind kind)
{
    struct mem_inode *inode = must_have(calloc(1, sizeof *inode));
    inode->kind = kind;
    inode->references = 1;
    return inode;
}

/* ---- blocks ---- */

static void block_drop(struct mem_tree *tree, struct mem_inode *inode, size_t index)
{
    uint8_t *block = inode->blocks[index];
    if (!block)
        return;
    if (block != reserved_block())
        free(block);
    inode->blocks[index] = NULL;
    inode->blocks_used--;
    tree->blocks_used--;
}

static void blocks_cover(struct mem_inode *inode, size_t count)
{
    if (count <= inode->block_count)
        return;
    size_t room = inode->block_count * 2;
    if (room < count)
        room = count;
    inode->blocks = must_have(realloc(inode->blocks, room * sizeof *inode->blocks));
    memset(inode->blocks + inode->block_count, 0, (room - inode->block_count) * sizeof *inode->blocks);
    inode->block_count = room;
}

static bool block_reserve(struct mem_tree *tree, struct mem_inode *inode, size_t index)
{
    blocks_cover(inode, index + 1);
    if (inode->blocks[index])
        return true;
    if (tree->blocks_max && tree->blocks_used >= tree->blocks_max)
        return false;
    inode->blocks[index] = reserved_block();
    inode->blocks_used++;
    tree->blocks_used++;
    return true;
}

uint8_t *mem_inode_block(struct mem_tree *tree, struct mem_inode *inode, size_t block_index)
{
    if (!block_reserve(tree, inode, block_index))
        return NULL;
    if (inode->blocks[block_index] == reserved_block())
        inode->blocks[block_index] = must_have(calloc(1, BLOCK_SIZE));
    return inode->blocks[block_index];
}

static const uint8_t *block_or_zeros(const struct mem_inode *inode, size_t index)
{
    return index < inode->block_count && inode->blocks[index] ? inode->blocks[index] : zero_block;
}

/* Sets a range inside one block to zero, if it is not anyway. */
static void block_clear(struct mem_inode *inode, size_t index, size_t from, size_t size)
{
    if (index < inode->block_count && inode->blocks[index] && inode->blocks[index] != reserved_block())
        memset(inode->blocks[index] + from, 0, size);
}

static size_t piece_in_block(uint64_t offset_bytes, uint64_t size_bytes)
{
    const uint64_t room = BLOCK_SIZE - offset_bytes % BLOCK_SIZE;
    return (size_t)(size_bytes < room ? size_bytes : room);
}

/* ---- content ---- */

ssize_t mem_inode_read(const struct mem_inode *inode, void *bytes, size_t size_bytes, uint64_t offset_bytes)
{
    if (offset_bytes >= inode->size_bytes)
        return 0;
    if (size_bytes > inode->size_bytes - offset_bytes)
        size_bytes = (size_t)(inode->size_bytes - offset_bytes);
    for (size_t done = 0; done < size_bytes;) {
        const uint64_t at = offset_bytes + done;
        const size_t piece = piece_in_block(at, size_bytes - done);
        memcpy((uint8_t *)bytes + done, block_or_zeros(inode, (size_t)(at / BLOCK_SIZE)) + at % BLOCK_SIZE, piece);
        done += piece;
    }
    return (ssize_t)size_bytes;
}

ssize_t mem_inode_write(struct mem_tree *tree, struct mem_inode *inode, const void *bytes, size_t size_bytes,
                        uint64_t offset_bytes)
{
    if (size_bytes == 0)
        return 0;
    if (offset_bytes >= MEM_FILE_MAX_BYTES)
        return -EFBIG;
    if (size_bytes > MEM_FILE_MAX_BYTES - offset_bytes)
        size_bytes = (size_t)(MEM_FILE_MAX_BYTES - offset_bytes);
    size_t done = 0;
    while (done < size_bytes) {
        const uint64_t at = offset_bytes + done;
        const size_t piece = piece_in_block(at, size_bytes - done);
        uint8_t *block = mem_inode_block(tree, inode, (size_t)(at / BLOCK_SIZE));
        if (!block)
            break;
        memcpy(block + at % BLOCK_SIZE, (const uint8_t *)bytes + done, piece);
        done += piece;
    }
    if (done == 0)
        return -ENOSPC;
    if (offset_bytes + done > inode->size_bytes)
        inode->size_bytes = offset_bytes + done;
    return (ssize_t)done;
}

int mem_inode_truncate(struct mem_tree *tree, struct mem_inode *inode, uint64_t size_bytes)
{
    if (size_bytes > MEM_FILE_MAX_BYTES)
        return -EFBIG;
    if (size_bytes < inode->size_bytes) {
        const size_t kept = (size_t)((size_bytes + BLOCK_SIZE - 1) / BLOCK_SIZE);
        for (size_t index = kept; index < inode->block_count; index++)
            block_drop(tree, inode, index);
        if (size_bytes % BLOCK_SIZE)
            block_clear(inode, kept - 1, size_bytes % BLOCK_SIZE, BLOCK_SIZE - size_bytes % BLOCK_SIZE);
    }
    inode->size_bytes = size_bytes;
    return 0;
}

int mem_inode_allocate(struct mem_tree *tree, struct mem_inode *inode, uint64_t offset_bytes, uint64_t size_bytes)
{
    if (size_bytes == 0)
        return 0;
    if (offset_bytes > MEM_FILE_MAX_BYTES || size_bytes > MEM_FILE_MAX_BYTES - offset_bytes)
        return -EFBIG;
    const size_t first = (size_t)(offset_bytes / BLOCK_SIZE);
    const size_t end = (size_t)((offset_bytes + size_bytes + BLOCK_SIZE - 1) / BLOCK_SIZE);
    uint64_t missing = 0;
    blocks_cover(inode, end);
    for (size_t index = first; index < end; index++)
        missing += inode->blocks[index] == NULL;
    if (tree->blocks_max && missing > 0 && tree->blocks_used + missing > tree->blocks_max)
        return -ENOSPC;
    for (size_t index = first; index < end; index++) {
        const bool reserved = block_reserve(tree, inode, index);
        assert(reserved);
    }
    if (offset_bytes + size_bytes > inode->size_bytes)
        inode->size_bytes = offset_bytes + size_bytes;
    return 0;
}

int mem_inode_punch(struct mem_tree *tree, struct mem_inode *inode, uint64_t offset_bytes, uint64_t size_bytes)
{
    const uint64_t covered = (uint64_t)inode->block_count * BLOCK_SIZE;
    if (offset_bytes >= covered)
        return 0;
    if (size_bytes > covered - offset_bytes)
        size_bytes = covered - offset_bytes;
    for (uint64_t done = 0; done < size_bytes;) {
        const uint64_t at = offset_bytes + done;
        const size_t piece = piece_in_block(at, size_bytes - done);
        const size_t index = (size_t)(at / BLOCK_SIZE);
        if (piece == BLOCK_SIZE)
            block_drop(tree, inode, index);
        else
            block_clear(inode, index, (size_t)(at % BLOCK_SIZE), piece);
        done += piece;
    }
    return 0;
}

/* ---- inodes and names ---- */

static void inode_free(struct mem_tree *tree, struct mem_inode *inode)
{
    for (size_t index = 0; index < inode->block_count; index++)
        block_drop(tree, inode, index);
    free(inode->blocks);
    free(inode);
}

void mem_inode_release(struct mem_tree *tree, struct mem_inode *inode)
{
    assert(inode->references > 0);
    if (--inode->references == 0)
        inode_free(tree, inode);
}

static void entry_add(struct mem_inode *dir, const char *name, struct mem_inode *inode)
{
    struct mem_entry *entry = must_have(calloc(1, sizeof *entry));
    entry->name = must_have(strdup(name));
    entry->inode = inode;
    HASH_ADD_KEYPTR(hh, dir->entries, entry->name, strlen(entry->name), entry);
}

static struct mem_entry *entry_find(const struct mem_inode *dir, const char *name, size_t length)
{
    struct mem_entry *entry;
    HASH_FIND(hh, dir->entries, name, length, entry);
    return entry;
}

/* Takes the name away; the reference that it held is the caller's. */
static struct mem_inode *entry_remove(struct mem_inode *dir, const char *name)
{
    struct mem_entry *entry = entry_find(dir, name, strlen(name));
    struct mem_inode *inode = entry->inode;
    HASH_DELETE(hh, dir->entries, entry);
    free(entry->name);
    free(entry);
    return inode;
}

static void dir_destroy(struct mem_tree *tree, struct mem_inode *dir)
{
    while (dir->entries) {
        struct mem_inode *inode = entry_remove(dir, dir->entries->name);
        if (inode->kind == IO_KIND_DIRECTORY)
            dir_destroy(tree, inode);
        else
            mem_inode_release(tree, inode);
    }
    mem_inode_release(tree, dir);
}

void mem_tree_init(struct mem_tree *tree)
{
    *tree = (struct mem_tree){.root = inode_create(IO_KIND_DIRECTORY)};
}

void mem_tree_destroy(struct mem_tree *tree)
{
    dir_destroy(tree, tree->root);
    assert(tree->blocks_used == 0);
    tree->root = NULL;
}

int mem_tree_find(struct mem_tree *tree, const char *path, struct mem_place *out_place)
{
    struct mem_place place = {.dir = tree->root, .name = "", .inode = tree->root};
    for (;;) {
        path += strspn(path, "/");
        if (!*path)
            break;
        if (!place.inode)
            return -ENOENT;
        if (place.inode->kind != IO_KIND_DIRECTORY)
            return -ENOTDIR;
        const size_t length = strcspn(path, "/");
        if (length > MEM_NAME_MAX_BYTES)
            return -ENAMETOOLONG;
        const struct mem_entry *entry = entry_find(place.inode, path, length);
        place = (struct mem_place){.dir = place.inode, .inode = entry ? entry->inode : NULL};
        memcpy(place.name, path, length);
        path += length;
    }
    *out_place = place;
    return 0;
}

struct mem_inode *mem_tree_make(const struct mem_place *place, enum io_file_kind kind)
{
    assert(!place->inode && *place->name);
    struct mem_inode *inode = inode_create(kind);
    entry_add(place->dir, place->name, inode);
    return inode;
}

int mem_tree_unlink(struct mem_tree *tree, const struct mem_place *place)
{
    if (!place->inode)
        return -ENOENT;
    if (place->inode->kind == IO_KIND_DIRECTORY)
        return -EISDIR;
    mem_inode_release(tree, entry_remove(place->dir, place->name));
    return 0;
}

int mem_tree_remove_dir(struct mem_tree *tree, const struct mem_place *place)
{
    if (!place->inode)
        return -ENOENT;
    if (place->inode->kind != IO_KIND_DIRECTORY)
        return -ENOTDIR;
    if (place->inode == tree->root)
        return -EBUSY;
    if (place->inode->entries)
        return -ENOTEMPTY;
    mem_inode_release(tree, entry_remove(place->dir, place->name));
    return 0;
}

static bool dir_contains(const struct mem_inode *dir, const struct mem_inode *sought)
{
    if (dir == sought)
        return true;
    for (const struct mem_entry *entry = dir->entries; entry; entry = entry->hh.next)
        if (entry->inode->kind == IO_KIND_DIRECTORY && dir_contains(entry->inode, sought))
            return true;
    return false;
}

static int rename_check(const struct mem_tree *tree, const struct mem_place *from, const struct mem_place *to)
{
    if (!from->inode)
        return -ENOENT;
    if (from->inode == tree->root || to->inode == tree->root)
        return -EBUSY;
    const bool from_dir = from->inode->kind == IO_KIND_DIRECTORY;
    if (from_dir && dir_contains(from->inode, to->dir))
        return -EINVAL;
    if (!to->inode)
        return 0;
    if (to->inode->kind == IO_KIND_DIRECTORY) {
        if (dir_contains(to->inode, from->dir))
            return -ENOTEMPTY;
        if (!from_dir)
            return -EISDIR;
        return to->inode->entries && to->inode != from->inode ? -ENOTEMPTY : 0;
    }
    return from_dir ? -ENOTDIR : 0;
}

int mem_tree_rename(struct mem_tree *tree, const char *from_path, const char *to_path)
{
    struct mem_place from;
    struct mem_place to;
    int result = mem_tree_find(tree, from_path, &from);
    if (result == 0)
        result = mem_tree_find(tree, to_path, &to);
    if (result == 0)
        result = rename_check(tree, &from, &to);
    if (result < 0 || from.inode == to.inode)
        return result;
    if (to.inode) {
        mem_inode_release(tree, entry_remove(to.dir, to.name));
    }
    entry_add(to.dir, to.name, entry_remove(from.dir, from.name));
    return 0;
}

/* ---- whole trees ---- */

static struct mem_inode *inode_copy(struct mem_tree *tree, const struct mem_inode *from)
{
    struct mem_inode *inode = inode_create(from->kind);
    inode->size_bytes = from->size_bytes;
    blocks_cover(inode, from->block_count);
    for (size_t index = 0; index < from->block_count; index++) {
        if (!from->blocks[index])
            continue;
        const bool reserved = block_reserve(tree, inode, index);
        assert(reserved);
        if (from->blocks[index] != reserved_block())
            memcpy(mem_inode_block(tree, inode, index), from->blocks[index], BLOCK_SIZE);
    }
    for (const struct mem_entry *entry = from->entries; entry; entry = entry->hh.next)
        entry_add(inode, entry->name, inode_copy(tree, entry->inode));
    return inode;
}

void mem_tree_copy(struct mem_tree *to, const struct mem_tree *from)
{
    *to = (struct mem_tree){.root = NULL};
    to->root = inode_copy(to, from->root);
    to->blocks_max = from->blocks_max;
}

static bool inode_equal(const struct mem_inode *left, const struct mem_inode *right)
{
    if (left->kind != right->kind || left->size_bytes != right->size_bytes)
        return false;
    if (HASH_COUNT(left->entries) != HASH_COUNT(right->entries))
        return false;
    for (const struct mem_entry *entry = left->entries; entry; entry = entry->hh.next) {
        const struct mem_entry *other = entry_find(right, entry->name, strlen(entry->name));
        if (!other || !inode_equal(entry->inode, other->inode))
            return false;
    }
    const size_t blocks = (size_t)((left->size_bytes + BLOCK_SIZE - 1) / BLOCK_SIZE);
    for (size_t index = 0; index < blocks && (index < left->block_count || index < right->block_count); index++)
        if (memcmp(block_or_zeros(left, index), block_or_zeros(right, index), BLOCK_SIZE) != 0)
            return false;
    return true;
}

bool mem_tree_equal(const struct mem_tree *left, const struct mem_tree *right)
{
    return inode_equal(left->root, right->root);
}
