/*
 * tests/lib/mem_tree.h - directories and sparse files in memory: what lies under mem_device.
 *
 * Inodes are counted: one for the name, one for each open file. All functions return 0 or a negative errno as a Linux
 * filesystem would; out of memory aborts.
 *
 * Locking: none; mem_device holds its lock.
 */
#ifndef TBLFS_TESTS_LIB_MEM_TREE_H
#define TBLFS_TESTS_LIB_MEM_TREE_H

#include "base/io.h"

#include <uthash.h>

#define MEM_NAME_MAX_BYTES 255u
#define MEM_FILE_MAX_BYTES ((uint64_t)BLOCK_SIZE << 24)

struct mem_entry;

struct mem_inode {
    enum io_file_kind kind;
    unsigned references;
    /* files */
    uint64_t size_bytes;
    uint8_t **blocks; /* NULL: hole; the shared zero block: reserved, not yet written */
    size_t block_count;
    uint64_t blocks_used;
    const void *lock_holder; /* the open file that holds the lock */
    /* directories */
    struct mem_entry *entries; /* hash by name, in order of creation */
};

struct mem_entry {
    char *name;
    struct mem_inode *inode;
    UT_hash_handle hh;
};

struct mem_tree {
    struct mem_inode *root;
    uint64_t blocks_used;
    uint64_t blocks_max; /* 0: no limit */
};

/* Where a path leads: its directory and last name, and the inode there, if any. */
struct mem_place {
    struct mem_inode *dir;
    char name[MEM_NAME_MAX_BYTES + 1]; /* "" is the root itself */
    struct mem_inode *inode;
};

void mem_tree_init(struct mem_tree *tree);
void mem_tree_destroy(struct mem_tree *tree);
void mem_tree_copy(struct mem_tree *to, const struct mem_tree *from);
bool mem_tree_equal(const struct mem_tree *left, const struct mem_tree *right);

/* 0 also when only the last name is missing (place->inode NULL). */
int mem_tree_find(struct mem_tree *tree, const char *path, struct mem_place *out_place);

/* The inode gets a name in an empty place. */
struct mem_inode *mem_tree_make(const struct mem_place *place, enum io_file_kind kind);
int mem_tree_unlink(struct mem_tree *tree, const struct mem_place *place);
int mem_tree_remove_dir(struct mem_tree *tree, const struct mem_place *place);
int mem_tree_rename(struct mem_tree *tree, const char *from, const char *to);

void mem_inode_release(struct mem_tree *tree, struct mem_inode *inode);

/* All transfers are clipped: reads to the end of the file, writes to what fits (-ENOSPC when nothing does). */
ssize_t mem_inode_read(const struct mem_inode *inode, void *bytes, size_t size_bytes, uint64_t offset_bytes);
ssize_t mem_inode_write(struct mem_tree *tree, struct mem_inode *inode, const void *bytes, size_t size_bytes,
                        uint64_t offset_bytes);
int mem_inode_truncate(struct mem_tree *tree, struct mem_inode *inode, uint64_t size_bytes);
int mem_inode_allocate(struct mem_tree *tree, struct mem_inode *inode, uint64_t offset_bytes, uint64_t size_bytes);
int mem_inode_punch(struct mem_tree *tree, struct mem_inode *inode, uint64_t offset_bytes, uint64_t size_bytes);

/* The block's own memory, made when it was a hole; NULL when the tree is full. */
uint8_t *mem_inode_block(struct mem_tree *tree, struct mem_inode *inode, size_t block_index);

#endif
