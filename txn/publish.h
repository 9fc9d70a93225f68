/*
 * txn/publish.h - closing a transaction: its operations become one change of the live tree (inside of txn/).
 *
 * PUBLISH-1 The new live tree is built beside the old one, in a view forked from it: until the root is swapped nothing has happened.
 * PUBLISH-2 Closing and replaying go through the same functions; only content is taken over by root in the one and written again in the
 *           other.
 * PUBLISH-3 Between the check for conflicts and the swap the live tree does not change: closing holds the gate exclusively.
 * PUBLISH-5 A table that was compacted since the transaction began (COMPACT-3) has another relation than its base, and the same content. What
 *           the transaction made of it is taken over where it is: the old relation is the table's again, and the new one goes.
 * PUBLISH-4 Whoever had a replaced table open goes on with the old version: the fork is kept until its file has pinned what it shows.
 */
#ifndef TBLFS_TXN_PUBLISH_H
#define TBLFS_TXN_PUBLISH_H

#include "txn/store_txn.h"

/* Bytes that a merge copies at a time; the budget of a close has room for them. */
#define MERGE_CHUNK_BYTES (UINT64_C(64) << 10)

/* Something private to the transaction that the live tree takes over. */
struct hand_over {
    struct relation *relation; /* a reference */
    block_no first;
    uint32_t count; /* blocks in a row */
};

struct publish {
    struct view_owner owner;
    struct store *store;
    struct store_txn *txn; /* NULL: replay */
    struct txn_set *set;
    struct holder *base; /* the live tree before */
    struct view *before; /* of it, read-only */
    struct view *view;   /* the live tree as it will be */
    bool exclusive;      /* the gate is held exclusively, frames are lent by `budget` */
    struct frame_budget budget;
    uint32_t news;
    int64_t time_ns;
    int64_t inode_delta;
    bool moves_directory; /* into another directory */
    ino_no first_ino;     /* for tables that were rewritten */
    le64 *orphans;        /* inodes that live on without a name, as the record has them */
    size_t orphan_count, orphan_capacity;
    ino_no *dropped; /* inodes that go, and that nobody has open */
    size_t dropped_count, dropped_capacity;
    struct hand_over *hand_overs;
    size_t hand_over_count, hand_over_capacity;
    struct relation **whole; /* relations that are taken over with all that is private in them; references */
    size_t whole_count, whole_capacity;
    struct relation *
        *revived; /* that were dropped when their tables were compacted, and are in the live tree again; references */
    size_t revived_count, revived_capacity;
    struct store_changes *changes; /* NULL: not wanted */
    struct old_version *old;       /* prepared, NULL: not needed */
};

int publish_lend_budget(struct publish *publish, struct frame_budget *out_budget) WARN_UNUSED;
void publish_take_budget_back(struct publish *publish, struct frame_budget *budget);
/* An inode lost its last name: does it live on? */
int publish_keeps_inode(struct publish *publish, ino_no ino, bool *out_keeps) WARN_UNUSED;

int publish_begin(struct publish *publish) WARN_UNUSED;
/* *out_exists false: there is none, or it has no name. */
int publish_find_inode(struct view *view, ino_no ino, struct inode *out_inode, bool *out_exists) WARN_UNUSED;
/* One record of the transaction. 1: skipped, because a table is damaged. */
int publish_record(struct publish *publish, const struct op_record *record) WARN_UNUSED;
/* Closing: takes over the content of the tables that the transaction wrote, or appends what it appended. */
int publish_content_all(struct publish *publish) WARN_UNUSED;
/* Gives rewritten tables their new inode numbers. */
int publish_renumber_all(struct publish *publish) WARN_UNUSED;
/* The live tree is the new one. The gate is held exclusively, and the live catalog lock. */
void publish_swap_locked(struct publish *publish);
/* Undoes what was not swapped in, frees all. */
void publish_end(struct publish *publish);
/* ---- commit_changes.c ---- */

/* What is different in the new live tree. */
int publish_note_changes(struct publish *publish) WARN_UNUSED;
/* A receipt; without memory there is none. */
void store_record_commit(struct store_txn *txn, const struct store_changes *changes);
int store_changes_add(struct store_changes *changes, struct store_change change) WARN_UNUSED;
/* The name, and its directory, if it leads elsewhere now. */
struct changes_views {
    struct view *before, *now;
};
int store_changes_compare_name(struct store_changes *changes, struct store *store, const struct changes_views *views,
                               ino_no parent, struct op_bytes name) WARN_UNUSED;
/* A name led to old_ino and leads to new_ino; its directory changed. */
int store_changes_add_name(struct store_changes *changes, ino_no parent, const char *name, size_t name_size,
                           ino_no old_ino, ino_no new_ino) WARN_UNUSED;
/* The table existed before, and the transaction did nothing to its content but append. */
bool publish_appends_only(const struct publish *publish, ino_no ino);
/* The number of inode numbers that publish_renumber_all may take. */
uint64_t publish_count_rewritten(const struct txn_set *set);

#endif
