/*
 * table/cow.h - epochs, the gate, holders, deadlists and views: copy on write.
 *
 *   epoch   global counter; a page's birth is the epoch in which its block was allocated.
 *   holder  keeps a version alive: it recorded a catalog root with `at` = the epoch of its fork. It sees a page that is
 *           reachable from that root; all those have birth <= at.
 *   view    a catalog root that code reads and writes through: the live one, a transaction's, a read-only one.
 *
 * COW-1 A page is changed in place only if no other view can reach it (view_birth_is_private: live tree: birth > the
 *       newest holder's `at`; a transaction's view: birth > its own `at`) and page_try_latch succeeds (CACHE-1). Else
 *       its content moves to a new block, and so on up to the root.
 * COW-2 A block that leaves a view goes through view_retire: free at once, or on the deadlist of the newest holder; a
 *       closing holder hands what the next older one can see to that one and frees the rest.
 * COW-3 No block that the durable checkpoint can reach is overwritten: the durable checkpoint is a holder.
 * COW-4 A block that a log record refers to (relation_set_referenced) is not reused, nor its file removed, before a
 *       checkpoint that forked after it left the tree is durable, whoever else could see it.
 *       A transaction's records count only if it is closed: blocks that it was the only one to see stay allocated until its end,
 *       and, when it was closed, until a checkpoint that forked later is durable.
 * COW-5 A dropped relation is one entry of a deadlist: its file goes when no holder has created <= at. Its pages go
 *       earlier: as soon as only durable checkpoints hold it (they read from disk) it is reported dead through
 *       cow_take_dead.
 *
 * Gate: a mutation holds the gate shared from its plan until it is applied; fork and commit hold it exclusively, for
 * pointer work only.
 *
 * Locks, outer to inner: file lock (LOCK_RANK_FILE), gate, catalog lock of the view, holders' lock. See
 * docs/LOCKING.md.
 */
#ifndef TBLFS_TABLE_COW_H
#define TBLFS_TABLE_COW_H

#include "base/lock.h"
#include "base/types.h"
#include "bufcache/bufcache.h"
#include "fsm/fsm.h"

/* Root of a catalog tree. height 0: empty. */
struct catalog_root {
    struct page_ptr ptr;
    uint8_t height; /* levels: 1 is a leaf alone */
};

enum holder_kind {
    HOLDER_TRANSACTION, /* base of an open transaction */
    HOLDER_SNAPSHOT,
    HOLDER_CHECKPOINT, /* being written */
    HOLDER_DURABLE,    /* the last durable checkpoint: a HOLDER_CHECKPOINT becomes one by cow_holder_made_durable */
    HOLDER_BACKUP,
    HOLDER_MAP,         /* a map is being built from this fork */
    HOLDER_OLD_VERSION, /* a commit replaced tables that are open */
    HOLDER_COMPACTION,  /* ends an epoch, and goes at once */
    HOLDER_STANDBY,     /* what the readers of a standby see */
};

struct cow;
struct holder;

enum view_kind { VIEW_LIVE, VIEW_TRANSACTION, VIEW_READ_ONLY };

/* A root with rules. The catalog lock guards root and every page of the tree that is not shared with another view. */
struct view {
    struct cow *cow;
    enum view_kind kind;
    uint32_t id;                /* tells views apart, unique in the life of the cow */
    epoch_no at;                /* transaction, read-only: epoch of its fork */
    struct holder *base;        /* transaction, read-only: the holder it stands on; live: NULL */
    struct rwlock catalog_lock; /* LOCK_RANK_CATALOG */
    struct catalog_root root; /* guarded by catalog_lock; live: changed only with the gate held (shared or exclusive) */
    struct relation *catalog; /* relation REL_CATALOG */
    struct view_private *priv; /* transaction: blocks allocated and relations created in it; else NULL */
    void *owner;               /* transaction: of who opened it; NULL */
    bool published; /* transaction: it was closed, the log's records of it count: COW-4 holds for its own blocks too */
};

struct cow_options {
    struct bufcache *cache;
    struct diag *diag;
    struct io_device *dev;    /* randomness of allocation numbers */
    epoch_no epoch;           /* first epoch of this life: above every birth on disk */
    struct relation *catalog; /* REL_CATALOG; cow takes its own reference */
    struct catalog_root root; /* of the live view */
};

int cow_open(const struct cow_options *options, struct cow **out_cow) WARN_UNUSED;
/* All holders but durable ones and all views but the live one must be closed. Deadlists are dropped. */
void cow_close(struct cow *cow);

struct view *cow_live(struct cow *cow);
epoch_no cow_epoch(const struct cow *cow); /* gate held, or a value that may be old */

/* ---- gate ---- */
void cow_gate_enter(struct cow *cow); /* shared: mutations */
void cow_gate_leave(struct cow *cow);
void cow_gate_close(struct cow *cow); /* exclusive: fork, commit */
void cow_gate_open(struct cow *cow);

/* ---- holders ---- */

/* Records the live root, at = epoch, epoch += 1 (or shares the epoch of the last fork when that one's holder is still
 * open and nothing was allocated or dropped since: then nothing can have changed). The gate is held exclusively by the caller. -ENOMEM. O(1). */
int cow_fork_locked(struct cow *cow, enum holder_kind kind, struct holder **out_holder) WARN_UNUSED;
/* The same, taking the gate. */
int cow_fork(struct cow *cow, enum holder_kind kind, struct holder **out_holder) WARN_UNUSED;
/* At open: the durable checkpoint (or a named snapshot) that was found on disk. */
int cow_adopt_holder(struct cow *cow, enum holder_kind kind, epoch_no at, struct catalog_root root,
                     struct holder **out_holder) WARN_UNUSED;
void cow_holder_made_durable(struct cow *cow, struct holder *holder); /* HOLDER_CHECKPOINT -> HOLDER_DURABLE */
/* Closes it: what no other holder sees is freed, relations that nobody sees any more are reported through
 * cow_take_dead. Any order. Takes the gate. Cannot fail. Named snapshots that were adopted have no complete deadlist:
 * cow_map_is_stale tells which relations need a rebuilt map then (a later issue). */
void cow_holder_close(struct cow *cow, struct holder *holder);
/* Whoever goes over a holder's tree, and is not its owner, keeps it meanwhile: closing it waits. NULL: there is none of that
 * serial any more. No lock is needed; none but its own view's is taken until it is let go. */
struct holder *cow_holder_keep(struct cow *cow, uint64_t serial) WARN_UNUSED;
void cow_holder_let_go(struct cow *cow, struct holder *holder);
/* Becomes true when somebody waits to close a holder that is kept. */
const _Atomic bool *cow_holder_closing(const struct holder *holder);
uint64_t cow_holder_serial(const struct holder *holder); /* never used again */
epoch_no cow_holder_at(const struct holder *holder);
enum holder_kind cow_holder_kind(const struct holder *holder);
struct catalog_root cow_holder_root(const struct holder *holder);
/* Calls fn for each open holder, oldest first, under the holders' lock. */
void cow_each_holder(struct cow *cow, void (*fn)(void *arg, struct holder *holder), void *arg);
unsigned cow_holder_count(struct cow *cow);
/* Nothing but durable checkpoints and snapshots keeps anything that the live tree does not have. */
bool cow_is_settled(struct cow *cow);

/* ---- old versions of single tables (table/cow_pin.c) ---- */

/* The blocks of a content tree that is read on by who had it open, after a transaction replaced the table. Made empty, filled, entered
 * while something else (a holder) keeps them still; dropped by the last reader. No lock held but the file's. */
struct block_pin;
/* `at`: no page of the tree was born later. -ENOMEM. */
int cow_pin_make(struct relation *relation, epoch_no at, struct block_pin **out_pin) WARN_UNUSED;
int cow_pin_add(struct block_pin *pin, block_no block) WARN_UNUSED; /* -EIO: beyond the file's end */
void cow_pin_enter(struct cow *cow, struct block_pin *pin);
void cow_pin_free(struct block_pin *pin); /* that was not entered */
void cow_pin_drop(struct cow *cow, struct block_pin *pin);
/* Calls fn for each, under the holders' lock. */
void cow_each_pin(struct cow *cow, void (*fn)(void *arg, epoch_no at), void *arg);

/* ---- views ---- */

/* A read-only view of a holder's version. The holder must outlive it. */
int view_open_read_only(struct cow *cow, struct holder *holder, struct view **out_view) WARN_UNUSED;
/* A private, writable view on a HOLDER_TRANSACTION, or of a commit on a HOLDER_OLD_VERSION. */
int view_open_transaction(struct cow *cow, struct holder *holder, struct view **out_view) WARN_UNUSED;
/* The read-only view shows that holder's version from here on; NULL: nothing, no inode and no name. Its catalog lock is held exclusively. */
void view_show(struct view *view, struct holder *holder);
/* Closes a view; a transaction's is aborted: its private blocks become free, its relations are reported dead. The
 * holder stays. */
void view_close(struct view *view);

/* ---- what a transaction's view made becomes the live tree's ----
 * The gate is held exclusively by the caller. None of them can fail. */

/* The live tree becomes what `view` shows (its base is the live tree as it is): root, blocks and relations made in it are the live
 * tree's, what it replaced leaves the live tree. Called with the catalog lock of the live view held exclusively. */
void view_publish(struct view *view);
/* The live tree takes over the content of tables of `view`: the blocks of these relations that are private to the view are the live tree's,
 * and what the view replaced in them leaves the live tree. Sorts the array. */
void view_hand_over_relations(struct view *view, struct relation **relations, size_t count);
/* Private blocks in a row are the live tree's. */
void view_hand_over_run(struct view *view, struct relation *relation, block_no first, uint32_t count);
/* Bytes in blocks that are private to the view. */
uint64_t view_private_bytes(struct view *view);

/* COW-1, the view's half. The caller holds the gate (live) or is the view's only writer. */
bool view_birth_is_private(const struct view *view, epoch_no birth);
/* The same for a page of a table's content, whose old version may be read on (PIN-2). */
bool view_content_is_private(const struct view *view, const struct relation *relation, epoch_no birth);

/* A relation was made in this view (a transaction's abort drops it). Live: does nothing. */
int view_relation_created(struct view *view, struct relation *relation) WARN_UNUSED;
/* Promises blocks of a relation, takes one (pointer with birth and a fresh allocation number), gives one back that was
 * never used in a tree. */
int view_reserve(struct view *view, struct relation *relation, uint32_t count) WARN_UNUSED;
void view_unreserve(struct view *view, struct relation *relation, uint32_t count);
struct page_ptr view_allocate(struct view *view, struct relation *relation, block_no hint);
uint32_t view_allocate_run(struct view *view, struct relation *relation, block_no hint, uint32_t want,
                           struct page_ptr *out_ptrs);
void view_give_back(struct view *view, struct relation *relation, struct page_ptr ptr);

/* ---- leaving a view (COW-2, COW-5) ---- */

/* What an operation will retire, collected while it is planned so that applying needs no memory. One relation per list.
 */
struct retire_entry {
    block_no first;
    uint32_t count; /* blocks in a row with the same birth; 0: the whole relation */
    epoch_no birth; /* of the blocks; whole relation: the epoch in which it was created */
};
struct retire_list {
    struct relation *relation; /* the list holds a reference once it is not empty */
    struct retire_entry *entries;
    uint32_t count, capacity;
};
/* Room for `more` entries. */
int retire_list_reserve(struct retire_list *list, struct relation *relation, uint32_t more) WARN_UNUSED;
/* Adds one page, joining it to the last run when it continues it with the same birth. Room must have been reserved. */
void retire_list_add(struct retire_list *list, struct page_ptr ptr);
/* Adds the whole relation, created in `created`. */
void retire_list_add_relation(struct retire_list *list, epoch_no created);
void retire_list_free(struct retire_list *list); /* plan failed: forgets it */

/* The entries left the view: frees or defers each. Takes over the list (empty afterwards). Cannot fail. Gate held (live
 * view). */
void view_retire(struct view *view, struct retire_list *list);

/* Takes the relations that became dead since the last call: their pages are to be dropped (bufcache_drop_relations)
 * now. *out_relations is malloc'd, with a reference in each; the caller frees both. */
uint32_t cow_take_dead(struct cow *cow, struct relation ***out_relations);
uint32_t cow_dead_count(struct cow *cow);
/* Takes the relations whose files may be removed now: dead, and no holder, durable ones included, has created <= at.
 * Never before cow_take_dead gave them out. */
uint32_t cow_take_removable(struct cow *cow, struct relation ***out_relations);

/* A relation that the live tree dropped is in it again: a transaction whose base has it is closed, and its content is there. So it is not dead.
 * The gate is held exclusively. */
void cow_revive_relation(struct cow *cow, const struct relation *relation);
/* The live tree dropped it in this life, and its file is still there for somebody. */
bool cow_relation_is_dropped(struct cow *cow, const struct relation *relation);
/* Something that nobody sees any more, but durable checkpoints, goes with the next one. */
bool cow_awaits_checkpoint(struct cow *cow);

/* ---- for FSM-3 and checks ---- */

/* Calls fn for every run that is on a deadlist, is private to a transaction's view, or is pinned by the log or an open file, of the relations
 * for which target_of does not return NULL; fn gets what it returned. Under the holders' lock. Stops at a non-zero return. With the
 * gate held exclusively it is what no tree but holders' may reach. */
typedef int cow_run_fn(void *arg, block_no first, uint32_t count);
typedef void *cow_target_fn(void *arg, const struct relation *relation);
int cow_each_pinned(struct cow *cow, cow_target_fn *target_of, void *arg, cow_run_fn *fn) WARN_UNUSED;
/* The same for one relation; arg is not NULL. */
int cow_each_pinned_run(struct cow *cow, const struct relation *relation, cow_run_fn *fn, void *arg) WARN_UNUSED;
/* Those of them that are private to a transaction's view. */
int cow_each_private_run(struct cow *cow, const struct relation *relation, cow_run_fn *fn, void *arg) WARN_UNUSED;

struct cow_stats {
    epoch_no epoch;
    uint64_t forks, forks_shared, holders, deadlist_entries, deadlist_blocks, freed_at_once;
    uint64_t deferred;     /* blocks that left the live tree and wait for a checkpoint, in all of this life */
    bool wants_checkpoint; /* so many of a relation do that its file grows for want of one (fsm_defer) */
};
void cow_get_stats(struct cow *cow, struct cow_stats *out_stats);
int cow_check(struct cow *cow) WARN_UNUSED;

#endif
