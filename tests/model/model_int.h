/*
 * tests/model/model_int.h - helpers shared by the model's own files.
 */
#ifndef TBLFS_TESTS_MODEL_MODEL_INT_H
#define TBLFS_TESTS_MODEL_MODEL_INT_H

#include "tests/model/model.h"

#include <sys/stat.h>

void *model_alloc(size_t size_bytes); /* zeroed; memory that runs out ends the test */
void *model_realloc(void *old, size_t size_bytes);

/* What a write or a change of owner does to the set-user-id and set-group-id bits of a file. */
void model_kill_suid(struct model_inode *inode);
/* Adds a copy of an inode under that number; nobody has it open. */
struct model_inode *model_inode_copy(struct model *model, const struct model_inode *from, ino_no ino);
/* Makes it what it was when that copy was taken, but for who has it open. */
void model_inode_restore(struct model *model, struct model_inode *inode, const struct model_inode *copy);
struct model_inode *model_inode_add(struct model *model, ino_no ino, uint32_t mode);
/* Frees the inode unless it has a link or is open. */
void model_inode_drop_if_unused(struct model *model, struct model_inode *inode);
/* The operation changed the inode: stamps says which times are now. */
void model_touch(struct model *model, struct model_inode *inode, unsigned stamps);
void model_set_size(struct model *model, struct model_inode *inode, size_t size);
void model_entry_add(struct model_inode *dir, struct store_name name, ino_no ino);
void model_entry_remove(struct model_inode *dir, const struct model_entry *entry);

static inline bool model_is_dir(const struct model_inode *inode)
{
    return S_ISDIR(inode->mode);
}

#endif
