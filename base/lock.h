/*
 * base/lock.h - mutexes and read-write locks with ranks.
 *
 * Every lock has a rank (docs/LOCKING.md). A thread may only take a lock of a higher rank than all that it holds; of
 * the same rank only with a higher order number (inode locks: the inode number). Debug builds (TBLFS_DEBUG) keep the
 * list of locks that a thread holds, abort on a wrong order, a relock or an unlock of what is not held, and make
 * lock_assert_* work; release builds skip all that.
 *
 * rwlock prefers writers (a fork must not starve), so a thread must not take the same rwlock shared twice.
 */
#ifndef TBLFS_BASE_LOCK_H
#define TBLFS_BASE_LOCK_H

#include "base/types.h"

#include <pthread.h>

/* Outer to inner. */
enum lock_rank {
    LOCK_RANK_STORE,        /* store-wide slow paths: checkpoint, open, close */
    LOCK_RANK_RESERVE,      /* the space set aside for removals */
    LOCK_RANK_LOG_SYNC,     /* one sync of the log at a time */
    LOCK_RANK_LOG_WRITE,    /* one writer to the log's segments at a time */
    LOCK_RANK_LOG_SEGMENTS, /* segment files: making, finding, recycling */
    LOCK_RANK_CONTROL,      /* the control file */
    LOCK_RANK_FILE,         /* content of one inode in one view (order: inode number) */
    LOCK_RANK_TABLESPACES,  /* where relations are made, and whether they may be */
    LOCK_RANK_MAP,          /* building one free map at a time */
    LOCK_RANK_GATE,         /* operation gate: shared by mutations, exclusive by fork and commit */
    LOCK_RANK_CATALOG,      /* catalog tree of one view */
    LOCK_RANK_FILE_TABLE,   /* in-core inodes: find, count, drop */
    LOCK_RANK_SNAPSHOTS,    /* list of named snapshots, list of open transactions */
    LOCK_RANK_HOLDERS,      /* holder list and deadlists */
    LOCK_RANK_FSM,          /* free map of one relation */
    LOCK_RANK_RELATIONS,    /* registry of relations, descriptor cache */
    LOCK_RANK_PARTITION,    /* one partition of the page hash */
    LOCK_RANK_FREE_LIST,    /* free frames, frame quota */
    LOCK_RANK_LOG,          /* log buffer */
    LOCK_RANK_TRANSACTIONS, /* fusefs: open and aborted transactions */
    LOCK_RANK_NODES,        /* fusefs: node table */
    LOCK_RANK_LEAF,         /* nothing is taken under it */
};

struct mutex {
    pthread_mutex_t os;
    enum lock_rank rank;
};

struct rwlock {
    pthread_rwlock_t os;
    enum lock_rank rank;
    uint64_t order;
};

struct condvar {
    pthread_cond_t os;
};

void mutex_init(struct mutex *lock, enum lock_rank rank);
void mutex_destroy(struct mutex *lock);
void mutex_lock(struct mutex *lock);
bool mutex_try_lock(struct mutex *lock); /* may be tried out of order */
void mutex_unlock(struct mutex *lock);
void mutex_assert_held(const struct mutex *lock);

void rwlock_init(struct rwlock *lock, enum lock_rank rank, uint64_t order);
void rwlock_destroy(struct rwlock *lock);
void rwlock_lock_shared(struct rwlock *lock);
void rwlock_lock_exclusive(struct rwlock *lock);
bool rwlock_try_lock_exclusive(struct rwlock *lock);
void rwlock_unlock_shared(struct rwlock *lock);
void rwlock_unlock_exclusive(struct rwlock *lock);
void rwlock_assert_held(const struct rwlock *lock); /* shared or exclusive */
void rwlock_assert_held_exclusive(const struct rwlock *lock);

void condvar_init(struct condvar *cond); /* waits on the monotonic clock */
void condvar_destroy(struct condvar *cond);
void condvar_wait(struct condvar *cond, struct mutex *lock);
bool condvar_wait_ms(struct condvar *cond, struct mutex *lock, uint64_t timeout_ms); /* false: timed out */
void condvar_signal(struct condvar *cond);
void condvar_broadcast(struct condvar *cond);

/* Debug builds: aborts if this thread holds any ranked lock (before waiting for something that others' progress gives).
 */
void lock_assert_none_held(void);
/* Debug builds: number of ranked locks this thread holds; 0 in release builds. */
unsigned lock_held_count(void);

#endif
