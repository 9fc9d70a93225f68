/*
 * table/cow_int.h - inside of copy on write: holders, chunks of deadlists, private blocks of a transaction.
 */
#ifndef TBLFS_TABLE_COW_INT_H
#define TBLFS_TABLE_COW_INT_H

#include "table/cow.h"

#include <uthash.h>

/* What one operation retired of one relation. A retire_list's entries lie in a chunk, so that handing the list over
 * needs no memory. */
struct dead_chunk {
    struct dead_chunk *next;
    struct relation *relation; /* a reference */
    epoch_no retired;          /* epoch in which it left its view: a holder sees it only if it forked earlier */
    epoch_no pinned;           /* COW-4: epoch in which it was put on `pinned` */
    uint32_t count;
    struct retire_entry entries[];
};

struct holder {
    struct holder *older, *newer;
    enum holder_kind kind;
    epoch_no at;
    struct catalog_root root;
    uint64_t serial;         /* tells holders apart */
    uint32_t keepers;        /* who goes over its tree: it is not closed meanwhile */
    _Atomic bool is_closing; /* nobody may begin to, and who is at it stops */
    struct dead_chunk *dead; /* COW-2: retired while this was the newest holder, and still seen by it */
};

/* Blocks of one relation that a transaction's view allocated: one bit each. Which blocks a promise will be kept with is not known: others may
 * extend the file meanwhile. So there is room for every promised block in `beyond` as well. */
struct private_blocks {
    UT_hash_handle hh;
    struct relation *relation; /* a reference; the key */
    bool created;              /* the relation itself was made in this view */
    block_no block_capacity;   /* bits in `bits` */
    uint64_t *bits;
    uint32_t promised;                      /* and not allocated yet */
    block_no *beyond;                       /* blocks that `bits` has no place for */
    uint32_t beyond_count, beyond_capacity; /* count + promised <= capacity */
};

struct view_private {
    struct view_private *next;        /* of the cow's list of transactions' views */
    epoch_no at;                      /* the view's */
    struct private_blocks *relations; /* uthash */
    struct dead_chunk
        *replaced; /* blocks of the base that the view no longer uses; and its own that the log may refer to */
    struct dead_chunk *dropped; /* relations made and dropped in it: they go at its end (COW-4) */
};

/* See table/cow_pin.c. */
struct block_pin {
    struct block_pin *next;
    struct relation *relation; /* a reference */
    epoch_no at;
    size_t words;
    uint64_t *held, *wanted; /* a bit for each block; wanted: would be free but for the pin */
};

struct cow {
    struct bufcache *cache;
    struct diag *diag;
    struct rwlock gate;
    _Atomic epoch_no epoch;       /* changed with the gate held exclusively */
    _Atomic epoch_no newest_at;   /* `at` of the newest holder, 0: none; changed with the gate held exclusively */
    _Atomic epoch_no durable_at;  /* `at` of the newest durable holder */
    _Atomic bool allocated;       /* a block was allocated since the last fork, or something was dropped */
    _Atomic uint64_t alloc_state; /* allocation numbers: a counter through a mixing function */
    _Atomic uint32_t view_count;
    _Atomic uint32_t pin_count;

    struct mutex lock; /* LOCK_RANK_HOLDERS: everything below */
    struct holder *newest, *oldest;
    uint64_t holder_serial;          /* of the last one */
    struct condvar let_go;           /* the last keeper of a holder is through */
    struct holder *closing;          /* closed ones (linked by `older`) whose lists are being handed on or freed */
    struct dead_chunk *pinned;       /* COW-4: private blocks that the log may refer to */
    struct dead_chunk *dropped_held; /* whole relations that some holder other than a durable one sees */
    struct dead_chunk *dropped_dead; /* whole relations to be reported by cow_take_dead */
    struct dead_chunk *dropped_gone; /* reported; their files go when no holder sees them */
    struct view_private *transactions;
    struct block_pin *pins;
    struct cow_stats stats;

    struct view live;
};

/* What left the live tree is freed at once or put on a list; a chunk is taken over. The gate is held. */
void cow_retire_chunk(struct view *view, struct dead_chunk *chunk);
/* COW-4: the log refers to the relation since the transaction began. */
bool cow_log_refers_inside(const struct view *view, const struct relation *relation);
/* A relation that was made in a transaction, or was dropped in it, goes with its end. */
void cow_retire_relation(struct cow *cow, struct dead_chunk *chunk);
/* COW-4: the blocks stay until a checkpoint that forks later is durable. */
void cow_pin_chunk(struct cow *cow, struct dead_chunk *chunk);
void cow_chunk_free(struct dead_chunk *chunk);
/* Makes the list's memory a chunk of its own; the list is empty afterwards. NULL when there was nothing in it. */
struct dead_chunk *cow_retire_list_take(struct retire_list *list);
/* Frees a run: its pages leave the cache, its blocks become free. No lock held but the gate. */
void cow_free_run(struct cow *cow, struct relation *relation, block_no first, uint32_t count);
/* Moves what no holder (but durable ones) and no pin sees any more to the dead. */
void cow_dropped_review_locked(struct cow *cow);

/* table/cow_pin.c */
bool cow_pin_keeps(struct cow *cow, const struct relation *relation, block_no block);
bool cow_pin_holds_relation_locked(const struct cow *cow, const struct relation *relation);
int cow_pin_each_run(const struct block_pin *pin, cow_run_fn *fn, void *arg) WARN_UNUSED; /* the lock is held */

/* table/cow_view.c */
/* Room for `count` more blocks. -ENOMEM. */
int private_blocks_promise(struct view *view, struct relation *relation, uint32_t count) WARN_UNUSED;
void private_blocks_unpromise(struct view *view, struct relation *relation, uint32_t count);
void private_blocks_set(struct view *view, struct relation *relation, block_no block);
bool private_blocks_clear(struct view *view, struct relation *relation, block_no first, uint32_t count);
/* A relation made in the view was dropped in it: it is no business of the view's end any more. */
void private_blocks_forget_created(struct view *view, struct relation *relation);
/* NULL: none. The cow's lock is held. */
struct private_blocks *private_find(const struct view_private *priv, const struct relation *relation);
int private_blocks_each_run(const struct private_blocks *blocks, int (*fn)(void *arg, block_no first, uint32_t count),
                            void *arg) WARN_UNUSED;

#endif
