/*
 * tests/unit/base/test_lock_threads.c - locks between threads: exclusion, signals, writers before readers.
 */
#include "base/lock.h"

#include <pthread.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define THREADS 4
#define ROUNDS  5000

struct shared {
    struct mutex mutex;
    struct rwlock rwlock;
    struct condvar cond;
    uint64_t mutex_count;
    uint64_t left; /* left and right are equal outside of the exclusive lock */
    uint64_t right;
    unsigned turn;
    bool writer_waits;
    bool writer_done;
    bool unequal_seen;
};

static void shared_init(struct shared *shared)
{
    *shared = (struct shared){.turn = 0};
    mutex_init(&shared->mutex, LOCK_RANK_LOG);
    rwlock_init(&shared->rwlock, LOCK_RANK_GATE, 0);
    condvar_init(&shared->cond);
}

static void shared_destroy(struct shared *shared)
{
    mutex_destroy(&shared->mutex);
    rwlock_destroy(&shared->rwlock);
    condvar_destroy(&shared->cond);
}

static void run_threads(void *(*body)(void *), struct shared *shared, unsigned count)
{
    pthread_t threads[THREADS];
    for (unsigned index = 0; index < count; index++)
        assert_int_equal(pthread_create(&threads[index], NULL, body, shared), 0);
    for (unsigned index = 0; index < count; index++)
        assert_int_equal(pthread_join(threads[index], NULL), 0);
}

static void *count_under_mutex(void *arg)
{
    struct shared *shared = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round % 3 != 0 || !mutex_try_lock(&shared->mutex))
            mutex_lock(&shared->mutex);
        shared->mutex_count++;
        mutex_unlock(&shared->mutex);
    }
    return NULL;
}

static void mutex_lets_one_thread_in(void **state)
{
    struct shared shared;
    (void)state;
    shared_init(&shared);
    run_threads(count_under_mutex, &shared, THREADS);
    assert_int_equal(shared.mutex_count, THREADS * ROUNDS);
    shared_destroy(&shared);
}

static void *read_and_write_pair(void *arg)
{
    struct shared *shared = arg;
    bool unequal = false;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round % 4 == 0) {
            rwlock_lock_exclusive(&shared->rwlock);
            shared->left++;
            shared->right++;
            rwlock_unlock_exclusive(&shared->rwlock);
        } else {
            rwlock_lock_shared(&shared->rwlock);
            unequal |= shared->left != shared->right;
            rwlock_unlock_shared(&shared->rwlock);
        }
    }
    mutex_lock(&shared->mutex);
    shared->unequal_seen |= unequal;
    mutex_unlock(&shared->mutex);
    return NULL;
}

static void rwlock_keeps_readers_from_halves(void **state)
{
    struct shared shared;
    (void)state;
    shared_init(&shared);
    run_threads(read_and_write_pair, &shared, THREADS);
    assert_false(shared.unequal_seen);
    assert_int_equal(shared.left, THREADS * ROUNDS / 4);
    assert_int_equal(shared.right, shared.left);
    shared_destroy(&shared);
}

/* Two threads take turns: the one that waits for even turns makes them odd, and the other way round. */
static void *take_turns(void *arg)
{
    struct shared *shared = arg;
    mutex_lock(&shared->mutex);
    const unsigned mine = shared->turn == 0 && !shared->writer_waits ? 0 : 1;
    shared->writer_waits = true;
    for (unsigned round = 0; round < 500; round++) {
        while (shared->turn % 2 != mine)
            condvar_wait(&shared->cond, &shared->mutex);
        shared->turn++;
        condvar_broadcast(&shared->cond);
    }
    mutex_unlock(&shared->mutex);
    return NULL;
}

static void condvar_wakes_the_other_thread(void **state)
{
    struct shared shared;
    (void)state;
    shared_init(&shared);
    run_threads(take_turns, &shared, 2);
    assert_int_equal(shared.turn, 1000);
    shared_destroy(&shared);
}

static void *write_once(void *arg)
{
    struct shared *shared = arg;
    mutex_lock(&shared->mutex);
    shared->writer_waits = true;
    condvar_signal(&shared->cond);
    mutex_unlock(&shared->mutex);
    rwlock_lock_exclusive(&shared->rwlock);
    shared->writer_done = true;
    rwlock_unlock_exclusive(&shared->rwlock);
    return NULL;
}

/* Two readers whose shares always overlap would keep a writer out for ever if readers came first. */
static void *read_overlapping(void *arg)
{
    struct shared *shared = arg;
    bool done = false;
    while (!done) {
        rwlock_lock_shared(&shared->rwlock);
        done = shared->writer_done;
        rwlock_unlock_shared(&shared->rwlock);
    }
    return NULL;
}

static void rwlock_lets_writer_pass_many_readers(void **state)
{
    struct shared shared;
    pthread_t readers[3];
    pthread_t writer;
    (void)state;
    shared_init(&shared);
    for (unsigned index = 0; index < ARRAY_COUNT(readers); index++)
        assert_int_equal(pthread_create(&readers[index], NULL, read_overlapping, &shared), 0);
    assert_int_equal(pthread_create(&writer, NULL, write_once, &shared), 0);
    mutex_lock(&shared.mutex);
    while (!shared.writer_waits)
        condvar_wait(&shared.cond, &shared.mutex);
    mutex_unlock(&shared.mutex);
    assert_int_equal(pthread_join(writer, NULL), 0);
    for (unsigned index = 0; index < ARRAY_COUNT(readers); index++)
        assert_int_equal(pthread_join(readers[index], NULL), 0);
    assert_true(shared.writer_done);
    shared_destroy(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutex_lets_one_thread_in),
        cmocka_unit_test(rwlock_keeps_readers_from_halves),
        cmocka_unit_test(condvar_wakes_the_other_thread),
        cmocka_unit_test(rwlock_lets_writer_pass_many_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
