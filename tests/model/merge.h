/*
 * tests/model/merge.h - what closing a transaction has to do, by the reference model: simple and slow, and knowing nothing
 * of epochs, views or records.
 *
 * The transaction has a model of its own, copied from the live one when it began, and a journal; the live model has one
 * as well. From both follow whether they conflict, and what the live model is afterwards.
 *
 * MERGE-1 A name conflicts when both touched it, or when its directory is gone; not when the transaction's only touch made
 *         a directory, nothing had the name at begin and a directory has it now: that one is the transaction's too.
 * MERGE-2 An inode that the transaction touched conflicts when it is gone; when both changed its attributes or links; when
 *         one rewrote its content and the other changed it. One that the transaction dropped conflicts with any change of
 *         it, and a directory with any name touched in it. Two that moved directories conflict.
 * MERGE-3 Two that only appended conflict unless all three versions end in a newline or are empty, or when
 *         user.tblfs.append is "conflict" in the live tree.
 * MERGE-4 What cannot be done again on the live model conflicts.
 * MERGE-5 Everything that it touches has the commit's time as ctime. mtime: of content that was made or rewritten as it is
 *         in the transaction; where it appended, and of directories, the later one, unless that was set to lie behind the commit.
 */
#ifndef TBLFS_TESTS_MODEL_MERGE_H
#define TBLFS_TESTS_MODEL_MERGE_H

#include "tests/model/journal.h"

struct merge {
    const struct model *base, *own; /* the transaction's, at begin and now */
    const struct journal *did;      /* by the transaction */
    struct model *live;
    size_t live_from; /* live->journal from there on was done meanwhile */
    char why[200];    /* which conflict */
    bool replays;     /* it was found by MERGE-4 */
    /* inside: */
    struct merge_twin {
        ino_no made, twin; /* two directories that are one */
    } * twins;
    size_t twin_count;
};

/* True: they conflict, `why` says on what. */
bool merge_conflicts(struct merge *merge);
/* Which inode has that number's names now? */
typedef ino_no merge_renumber_fn(void *arg, ino_no parent, struct store_name name);
/* Behind merge_conflicts: the live model, and its journal, as they are behind a commit at that time. An inode that is open
 * and replaced stays under its old number, without names; its new version is another one. */
void merge_apply(struct merge *merge, int64_t time_ns, merge_renumber_fn *fn, void *arg);
void merge_free(struct merge *merge);

#endif
