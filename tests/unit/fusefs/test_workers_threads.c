/*
 * tests/unit/fusefs/test_workers_threads.c - jobs that wait for one another, timers, and the end of both.
 */
#include "base/lock.h"
#include "fusefs/workers.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define JOBS 40u

/* Nobody goes on before all have come. */
struct meeting {
    struct mutex lock;
    struct condvar changed;
    unsigned wanted, came;
};

static void meeting_init(struct meeting *meeting, unsigned wanted)
{
    *meeting = (struct meeting){.wanted = wanted};
    mutex_init(&meeting->lock, LOCK_RANK_LEAF);
    condvar_init(&meeting->changed);
}

static void meeting_destroy(struct meeting *meeting)
{
    condvar_destroy(&meeting->changed);
    mutex_destroy(&meeting->lock);
}

static void meet(void *arg)
{
    struct meeting *meeting = arg;
    mutex_lock(&meeting->lock);
    meeting->came++;
    condvar_broadcast(&meeting->changed);
    while (meeting->came < meeting->wanted)
        condvar_wait(&meeting->changed, &meeting->lock);
    mutex_unlock(&meeting->lock);
}

static struct workers *make_workers(void)
{
    struct workers *workers = NULL;
    assert_int_equal(workers_new(1, &workers), 0);
    return workers;
}

static void jobs_that_wait_for_each_other_all_get_a_thread(void **state)
{
    struct workers *workers = make_workers();
    struct meeting meetings[3]; /* the first finds no idle thread, the others some */
    (void)state;
    for (unsigned round = 0; round < ARRAY_COUNT(meetings); round++) {
        meeting_init(&meetings[round], JOBS + 1);
        for (unsigned job = 0; job < JOBS; job++)
            assert_int_equal(workers_submit(workers, meet, &meetings[round]), 0);
        meet(&meetings[round]);
    }
    workers_free(workers);
    for (unsigned round = 0; round < ARRAY_COUNT(meetings); round++) {
        assert_int_equal(meetings[round].came, JOBS + 1);
        meeting_destroy(&meetings[round]);
    }
}

static void free_waits_for_the_jobs(void **state)
{
    struct workers *workers = make_workers();
    struct meeting meeting;
    (void)state;
    meeting_init(&meeting, JOBS);
    for (unsigned job = 0; job < JOBS; job++)
        assert_int_equal(workers_submit(workers, meet, &meeting), 0);
    workers_free(workers);
    assert_int_equal(meeting.came, JOBS);
    meeting_destroy(&meeting);
}

static void timer_calls_once_when_it_is_due(void **state)
{
    struct workers *workers = make_workers();
    struct worker_timer late = {.run = NULL}, early = {.run = NULL};
    struct meeting meeting;
    (void)state;
    meeting_init(&meeting, 2);
    worker_timer_arm(workers, &late, 3600u * 1000, meet, &meeting);
    worker_timer_arm(workers, &early, 0, meet, &meeting);
    meet(&meeting);
    worker_timer_cancel(workers, &early);
    worker_timer_cancel(workers, &late);
    worker_timer_cancel(workers, &late);
    workers_free(workers);
    assert_int_equal(meeting.came, 2);
    meeting_destroy(&meeting);
}

/* The one lent thread is taken by the outer job: the inner one gets a thread of its own, and both wait for each other. */
struct nested {
    struct workers *workers;
    struct meeting meeting;
    pthread_t outer, inner;
};

static void run_inner(void *arg)
{
    struct nested *nested = arg;
    nested->inner = pthread_self();
    meet(&nested->meeting);
}

static void run_outer(void *arg)
{
    struct nested *nested = arg;
    nested->outer = pthread_self();
    assert_int_equal(workers_run(nested->workers, run_inner, nested), 0);
    meet(&nested->meeting);
}

static void callers_thread_is_used_while_few_are(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        struct nested nested = {.workers = make_workers()};
        meeting_init(&nested.meeting, 2);
        assert_int_equal(workers_run(nested.workers, run_outer, &nested), 0);
        assert_true(pthread_equal(nested.outer, pthread_self()));
        assert_false(pthread_equal(nested.inner, pthread_self()));
        workers_free(nested.workers); /* waits for the inner job */
        meeting_destroy(&nested.meeting);
    }
}

static void timer_that_is_due_sooner_is_not_kept_waiting(void **state)
{
    struct workers *workers = make_workers();
    struct worker_timer late = {.run = NULL}, next = {.run = NULL};
    struct meeting meeting;
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        meeting_init(&meeting, 2);
        worker_timer_arm(workers, &late, 3600u * 1000, meet, &meeting);
        worker_timer_arm(workers, &next, round % 3, meet, &meeting);
        meet(&meeting);
        worker_timer_cancel(workers, &next);
        worker_timer_cancel(workers, &late);
        assert_int_equal(meeting.came, 2);
        meeting_destroy(&meeting);
    }
    workers_free(workers);
}

static void armed_timer_is_forgotten_at_the_end(void **state)
{
    struct workers *workers = make_workers();
    struct worker_timer timer = {.run = NULL};
    struct meeting meeting;
    (void)state;
    meeting_init(&meeting, 1);
    worker_timer_arm(workers, &timer, 3600u * 1000, meet, &meeting);
    worker_timer_arm(workers, &timer, 7200u * 1000, meet, &meeting);
    workers_free(workers);
    assert_int_equal(meeting.came, 0);
    meeting_destroy(&meeting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_that_wait_for_each_other_all_get_a_thread),
        cmocka_unit_test(free_waits_for_the_jobs),
        cmocka_unit_test(timer_calls_once_when_it_is_due),
        cmocka_unit_test(callers_thread_is_used_while_few_are),
        cmocka_unit_test(timer_that_is_due_sooner_is_not_kept_waiting),
        cmocka_unit_test(armed_timer_is_forgotten_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
