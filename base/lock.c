/*
 * base/lock.c - mutexes, read-write locks and condition variables, with their order checked in debug builds.
 *
 * Invariants (checked when built with TBLFS_DEBUG, else taken on trust):
 *   LOCK-1  A thread that waits for a lock holds only locks of lower rank, or of the same rank and a lower order.
 *           So no cycle of waiting threads can arise.
 *   LOCK-2  A lock is held at most once by a thread, shared or exclusive.
 *   LOCK-3  Only the holder unlocks, the way it locked.
 * A try never waits and may therefore be out of order, but what is taken after it is checked against it too.
 *
 * The list of held locks is one small array per thread, in debug builds the only state of this file. A failing pthread
 * call can only mean a lock that was never initialised, or is used after its end: a bug, so it is asserted.
 */
#include "base/lock.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#ifdef TBLFS_DEBUG

#include <stdio.h>
#include <stdlib.h>

#define HELD_MAX 256u

struct held {
    const void *lock;
    uint64_t order;
    enum lock_rank rank;
    bool exclusive;
};

static _Thread_local struct held held_locks[HELD_MAX];
static _Thread_local unsigned held_count;

static _Noreturn void lock_bug(const char *what, const void *lock)
{
    fprintf(stderr, "tblfs: lock: %s (lock %p)\n", what, lock);
    for (unsigned index = 0; index < held_count; index++) {
        const struct held *held = &held_locks[index];
        fprintf(stderr, "tblfs: lock:   held: %p rank %u order %llu %s\n", held->lock, (unsigned)held->rank,
                (unsigned long long)held->order, held->exclusive ? "exclusive" : "shared");
    }
    abort();
}

static struct held *held_find(const void *lock)
{
    for (unsigned index = 0; index < held_count; index++)
        if (held_locks[index].lock == lock)
            return &held_locks[index];
    return NULL;
}

/* LOCK-1 and LOCK-2, before waiting. */
static void held_check_order(const void *lock, enum lock_rank rank, uint64_t order)
{
    if (held_find(lock))
        lock_bug("taken twice by one thread", lock);
    for (unsigned index = 0; index < held_count; index++) {
        const struct held *held = &held_locks[index];
        if (held->rank > rank || (held->rank == rank && held->order >= order)) {
            fprintf(stderr, "tblfs: lock: wants rank %u order %llu\n", (unsigned)rank, (unsigned long long)order);
            lock_bug("taken out of order", lock);
        }
    }
}

static void held_check_not_held(const void *lock)
{
    if (held_find(lock))
        lock_bug("tried by the thread that holds it", lock);
}

static void held_add(const void *lock, enum lock_rank rank, uint64_t order, bool exclusive)
{
    if (held_count == HELD_MAX)
        lock_bug("too many locks held by one thread", lock);
    held_locks[held_count++] = (struct held){.lock = lock, .order = order, .rank = rank, .exclusive = exclusive};
}

static void held_remove(const void *lock, bool exclusive)
{
    struct held *held = held_find(lock);
    if (!held)
        lock_bug("unlocked by a thread that does not hold it", lock);
    if (held->exclusive != exclusive)
        lock_bug("unlocked in another way than it was locked", lock);
    *held = held_locks[--held_count];
}

static void held_assert(const void *lock, bool exclusive)
{
    const struct held *held = held_find(lock);
    if (!held)
        lock_bug("should be held here", lock);
    if (exclusive && !held->exclusive)
        lock_bug("should be held exclusively here", lock);
}

void lock_assert_none_held(void)
{
    if (held_count > 0)
        lock_bug("no lock may be held here", NULL);
}

unsigned lock_held_count(void)
{
    return held_count;
}

#else

static inline void held_check_order(const void *lock, enum lock_rank rank, uint64_t order)
{
    (void)lock;
    (void)rank;
    (void)order;
}

static inline void held_check_not_held(const void *lock)
{
    (void)lock;
}

static inline void held_add(const void *lock, enum lock_rank rank, uint64_t order, bool exclusive)
{
    (void)lock;
    (void)rank;
    (void)order;
    (void)exclusive;
}

static inline void held_remove(const void *lock, bool exclusive)
{
    (void)lock;
    (void)exclusive;
}

static inline void held_assert(const void *lock, bool exclusive)
{
    (void)lock;
    (void)exclusive;
}

void lock_assert_none_held(void)
{
}

unsigned lock_held_count(void)
{
    return 0;
}

#endif

static inline void must(int result)
{
    assert(result == 0);
}

void mutex_init(struct mutex *lock, enum lock_rank rank)
{
    lock->rank = rank;
    must(pthread_mutex_init(&lock->os, NULL));
}

void mutex_destroy(struct mutex *lock)
{
    must(pthread_mutex_destroy(&lock->os));
}

void mutex_lock(struct mutex *lock)
{
    held_check_order(lock, lock->rank, 0);
    must(pthread_mutex_lock(&lock->os));
    held_add(lock, lock->rank, 0, true);
}

bool mutex_try_lock(struct mutex *lock)
{
    held_check_not_held(lock);
    const int result = pthread_mutex_trylock(&lock->os);
    if (result == EBUSY)
        return false;
    must(result);
    held_add(lock, lock->rank, 0, true);
    return true;
}

void mutex_unlock(struct mutex *lock)
{
    held_remove(lock, true);
    must(pthread_mutex_unlock(&lock->os));
}

void mutex_assert_held(const struct mutex *lock)
{
    held_assert(lock, true);
}

void rwlock_init(struct rwlock *lock, enum lock_rank rank, uint64_t order)
{
    pthread_rwlockattr_t attr;
    lock->rank = rank;
    lock->order = order;
    must(pthread_rwlockattr_init(&attr));
    must(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
    must(pthread_rwlock_init(&lock->os, &attr));
    must(pthread_rwlockattr_destroy(&attr));
}

void rwlock_destroy(struct rwlock *lock)
{
    must(pthread_rwlock_destroy(&lock->os));
}

void rwlock_lock_shared(struct rwlock *lock)
{
    held_check_order(lock, lock->rank, lock->order);
    int result;
    do
        result = pthread_rwlock_rdlock(&lock->os);
    while (result == EAGAIN); /* the count of readers is full: somebody will leave */
    must(result);
    held_add(lock, lock->rank, lock->order, false);
}

void rwlock_lock_exclusive(struct rwlock *lock)
{
    held_check_order(lock, lock->rank, lock->order);
    must(pthread_rwlock_wrlock(&lock->os));
    held_add(lock, lock->rank, lock->order, true);
}

bool rwlock_try_lock_exclusive(struct rwlock *lock)
{
    held_check_not_held(lock);
    const int result = pthread_rwlock_trywrlock(&lock->os);
    if (result == EBUSY)
        return false;
    must(result);
    held_add(lock, lock->rank, lock->order, true);
    return true;
}

void rwlock_unlock_shared(struct rwlock *lock)
{
    held_remove(lock, false);
    must(pthread_rwlock_unlock(&lock->os));
}

void rwlock_unlock_exclusive(struct rwlock *lock)
{
    held_remove(lock, true);
    must(pthread_rwlock_unlock(&lock->os));
}

void rwlock_assert_held(const struct rwlock *lock)
{
    held_assert(lock, false);
}

void rwlock_assert_held_exclusive(const struct rwlock *lock)
{
    held_assert(lock, true);
}

void condvar_init(struct condvar *cond)
{
    pthread_condattr_t attr;
    must(pthread_condattr_init(&attr));
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must(pthread_cond_init(&cond->os, &attr));
    must(pthread_condattr_destroy(&attr));
}

void condvar_destroy(struct condvar *cond)
{
    must(pthread_cond_destroy(&cond->os));
}

void condvar_wait(struct condvar *cond, struct mutex *lock)
{
    /* The list keeps the mutex during the wait: this thread takes nothing meanwhile and has it again afterwards. */
    held_assert(lock, true);
    must(pthread_cond_wait(&cond->os, &lock->os));
}

static struct timespec deadline_after_ms(uint64_t timeout_ms)
{
    const uint64_t year_ms = UINT64_C(366) * 24 * 3600 * 1000;
    struct timespec when;
    if (timeout_ms > year_ms)
        timeout_ms = year_ms;
    must(clock_gettime(CLOCK_MONOTONIC, &when));
    when.tv_sec += (time_t)(timeout_ms / 1000);
    when.tv_nsec += (long)(timeout_ms % 1000) * 1000000L;
    if (when.tv_nsec >= 1000000000L) {
        when.tv_sec++;
        when.tv_nsec -= 1000000000L;
    }
    return when;
}

bool condvar_wait_ms(struct condvar *cond, struct mutex *lock, uint64_t timeout_ms)
{
    held_assert(lock, true);
    const struct timespec deadline = deadline_after_ms(timeout_ms);
    const int result = pthread_cond_timedwait(&cond->os, &lock->os, &deadline);
    if (result == ETIMEDOUT)
        return false;
    must(result);
    return true;
}

void condvar_signal(struct condvar *cond)
{
    must(pthread_cond_signal(&cond->os));
}

void condvar_broadcast(struct condvar *cond)
{
    must(pthread_cond_broadcast(&cond->os));
}
