/*
 * tests/model/compare.h - does a view of a store hold exactly what a model holds?
 *
 * Every function answers true when it does; else false, and `why` says where they differ. With tolerate_eio a call that
 * answers -EIO counts as a refusal and is passed over: what was delivered still has to be right.
 */
#ifndef TBLFS_TESTS_MODEL_COMPARE_H
#define TBLFS_TESTS_MODEL_COMPARE_H

#include "tests/model/model.h"

struct compare {
    struct store *store;
    struct view *view;
    const struct model *model;
    bool tolerate_eio;
    ino_no eio_only;       /* tolerated for this inode alone; INO_NONE: for any */
    uint64_t eio_count;    /* calls that were passed over */
    uint64_t sample_bytes; /* of longer files only the first and last bytes are read; 0: all is read */
    ino_no never_sample;   /* but for this one */
    unsigned resume;       /* readdir: entries taken at a time before it is resumed by cookie; 0: all */
    char why[600];
};

/* Everything: names, attributes, content, targets, extended attributes of all inodes that have a name. */
bool compare_tree(struct compare *compare);
bool compare_attr(struct compare *compare, const struct store_attr *got, const struct store_attr *want);
bool compare_inode(struct compare *compare, const struct model_inode *inode);
/* [offset, offset + size) of an open file, clipped to the end, and that the end is where it should be. */
bool compare_range(struct compare *compare, struct store_file *file, const struct model_inode *inode, uint64_t offset,
                   size_t size);
bool compare_pieces(struct compare *compare, struct store_file *file, const struct model_inode *inode, uint64_t offset,
                    size_t size);
bool compare_dir(struct compare *compare, const struct model_inode *inode);
bool compare_xattrs(struct compare *compare, const struct model_inode *inode);

#endif
