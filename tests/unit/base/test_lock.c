/*
 * tests/unit/base/test_lock.c - the order of locks is kept: each violation ends a child process with SIGABRT.
 *
 * Only debug builds check; in release builds the violations are skipped.
 */
#include "base/lock.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct locks {
    struct mutex partition;
    struct mutex log;
    struct mutex other_log;
    struct rwlock file_3;
    struct rwlock file_7;
    struct rwlock gate;
};

static void locks_init(struct locks *locks)
{
    mutex_init(&locks->partition, LOCK_RANK_PARTITION);
    mutex_init(&locks->log, LOCK_RANK_LOG);
    mutex_init(&locks->other_log, LOCK_RANK_LOG);
    rwlock_init(&locks->file_3, LOCK_RANK_FILE, 3);
    rwlock_init(&locks->file_7, LOCK_RANK_FILE, 7);
    rwlock_init(&locks->gate, LOCK_RANK_GATE, 0);
}

static void locks_destroy(struct locks *locks)
{
    mutex_destroy(&locks->partition);
    mutex_destroy(&locks->log);
    mutex_destroy(&locks->other_log);
    rwlock_destroy(&locks->file_3);
    rwlock_destroy(&locks->file_7);
    rwlock_destroy(&locks->gate);
}

/* Runs what is wrong in a child, which must abort. */
static void assert_aborts(void (*wrong)(struct locks *locks))
{
#ifdef TBLFS_DEBUG
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct locks locks;
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        signal(SIGABRT, SIG_DFL); /* not cmocka's */
        alarm(20);
        locks_init(&locks);
        wrong(&locks);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
#else
    (void)wrong;
    skip();
#endif
}

static void take_lower_rank(struct locks *locks)
{
    mutex_lock(&locks->log);
    mutex_lock(&locks->partition);
}

static void take_same_rank(struct locks *locks)
{
    mutex_lock(&locks->log);
    mutex_lock(&locks->other_log);
}

static void take_lower_order(struct locks *locks)
{
    rwlock_lock_exclusive(&locks->file_7);
    rwlock_lock_exclusive(&locks->file_3);
}

static void take_mutex_twice(struct locks *locks)
{
    mutex_lock(&locks->log);
    mutex_lock(&locks->log);
}

static void take_shared_twice(struct locks *locks)
{
    rwlock_lock_shared(&locks->gate);
    rwlock_lock_shared(&locks->gate);
}

static void try_held_mutex(struct locks *locks)
{
    mutex_lock(&locks->log);
    (void)mutex_try_lock(&locks->log);
}

static void take_below_tried(struct locks *locks)
{
    (void)mutex_try_lock(&locks->log);
    mutex_lock(&locks->partition);
}

static void unlock_what_is_free(struct locks *locks)
{
    mutex_unlock(&locks->log);
}

static void unlock_shared_as_exclusive(struct locks *locks)
{
    rwlock_lock_shared(&locks->gate);
    rwlock_unlock_exclusive(&locks->gate);
}

static void assert_free_mutex_held(struct locks *locks)
{
    mutex_assert_held(&locks->log);
}

static void assert_shared_held_exclusive(struct locks *locks)
{
    rwlock_lock_shared(&locks->gate);
    rwlock_assert_held_exclusive(&locks->gate);
}

static void assert_none_held_with_one(struct locks *locks)
{
    mutex_lock(&locks->log);
    lock_assert_none_held();
}

static void wait_without_mutex(struct locks *locks)
{
    struct condvar cond;
    condvar_init(&cond);
    (void)condvar_wait_ms(&cond, &locks->log, 1);
}

static void lock_of_lower_rank_aborts(void **state)
{
    (void)state;
    assert_aborts(take_lower_rank);
}

static void lock_of_same_rank_aborts(void **state)
{
    (void)state;
    assert_aborts(take_same_rank);
}

static void lock_of_lower_order_aborts(void **state)
{
    (void)state;
    assert_aborts(take_lower_order);
}

static void lock_taken_twice_aborts(void **state)
{
    (void)state;
    assert_aborts(take_mutex_twice);
    assert_aborts(take_shared_twice);
    assert_aborts(try_held_mutex);
}

static void lock_below_tried_one_aborts(void **state)
{
    (void)state;
    assert_aborts(take_below_tried);
}

static void unlock_of_what_is_not_held_so_aborts(void **state)
{
    (void)state;
    assert_aborts(unlock_what_is_free);
    assert_aborts(unlock_shared_as_exclusive);
}

static void assertion_about_lock_not_held_aborts(void **state)
{
    (void)state;
    assert_aborts(assert_free_mutex_held);
    assert_aborts(assert_shared_held_exclusive);
    assert_aborts(assert_none_held_with_one);
}

static void wait_without_mutex_aborts(void **state)
{
    (void)state;
    assert_aborts(wait_without_mutex);
}

static void locks_in_order_are_counted(void **state)
{
    struct locks locks;
    (void)state;
    locks_init(&locks);
    rwlock_lock_shared(&locks.file_3);
    rwlock_lock_exclusive(&locks.file_7);
    rwlock_lock_shared(&locks.gate);
    mutex_lock(&locks.partition);
    mutex_lock(&locks.log);
    rwlock_assert_held(&locks.file_3);
    rwlock_assert_held(&locks.file_7);
    rwlock_assert_held_exclusive(&locks.file_7);
    mutex_assert_held(&locks.log);
#ifdef TBLFS_DEBUG
    assert_int_equal(lock_held_count(), 5);
#else
    assert_int_equal(lock_held_count(), 0);
#endif
    rwlock_unlock_shared(&locks.file_3); /* any order of unlocking will do */
    mutex_unlock(&locks.partition);
    rwlock_unlock_exclusive(&locks.file_7);
    mutex_unlock(&locks.log);
    rwlock_unlock_shared(&locks.gate);
    assert_int_equal(lock_held_count(), 0);
    lock_assert_none_held();
    locks_destroy(&locks);
}

static void try_out_of_order_is_allowed(void **state)
{
    struct locks locks;
    (void)state;
    locks_init(&locks);
    mutex_lock(&locks.log);
    assert_true(mutex_try_lock(&locks.partition));
    assert_true(rwlock_try_lock_exclusive(&locks.gate));
    rwlock_unlock_exclusive(&locks.gate);
    mutex_unlock(&locks.partition);
    mutex_unlock(&locks.log);
    locks_destroy(&locks);
}

static void condvar_wait_times_out_and_keeps_mutex(void **state)
{
    struct locks locks;
    struct condvar cond;
    (void)state;
    locks_init(&locks);
    condvar_init(&cond);
    mutex_lock(&locks.log);
    assert_false(condvar_wait_ms(&cond, &locks.log, 0));
    assert_false(condvar_wait_ms(&cond, &locks.log, 1));
    mutex_assert_held(&locks.log);
    mutex_unlock(&locks.log);
    condvar_destroy(&cond);
    locks_destroy(&locks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock_of_lower_rank_aborts),
        cmocka_unit_test(lock_of_same_rank_aborts),
        cmocka_unit_test(lock_of_lower_order_aborts),
        cmocka_unit_test(lock_taken_twice_aborts),
        cmocka_unit_test(lock_below_tried_one_aborts),
        cmocka_unit_test(unlock_of_what_is_not_held_so_aborts),
        cmocka_unit_test(assertion_about_lock_not_held_aborts),
        cmocka_unit_test(wait_without_mutex_aborts),
        cmocka_unit_test(locks_in_order_are_counted),
        cmocka_unit_test(try_out_of_order_is_allowed),
        cmocka_unit_test(condvar_wait_times_out_and_keeps_mutex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
