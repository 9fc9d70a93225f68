/*
 * fusefs/workers.c - see the header.
 */
#include "fusefs/workers.h"
#include "base/lock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <utlist.h>

#define IDLE_MAX     4u
#define WAIT_LONG_MS (UINT64_C(3600) * 1000)
#define MS_IN_SECOND 1000
#define NS_IN_MS     1000000

struct job {
    worker_fn *run;
    void *arg;
    struct job *next;
};

struct workers {
    struct mutex lock;             /* LOCK_RANK_LEAF; guards all below */
    struct condvar work;           /* a job was queued, or all are to end */
    struct condvar ended;          /* a thread has ended its job, or itself */
    struct condvar timers_changed; /* armed, or what one called has returned */
    struct job *jobs;              /* oldest first */
    unsigned queued, idle, threads;
    unsigned lent, lent_max; /* callers' threads that run a job of theirs */
    bool stop;
    bool stop_timers;
    struct worker_timer *timers; /* armed ones */
    int64_t timers_wake_ms;      /* when their thread looks again without being told */
    pthread_t timer_thread;
};

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * MS_IN_SECOND + now.tv_nsec / NS_IN_MS;
}

/* ---- jobs ---- */

static struct job *take_job_locked(struct workers *workers)
{
    struct job *job = workers->jobs;
    LL_DELETE(workers->jobs, job);
    workers->queued--;
    return job;
}

static void run_job(struct workers *workers, struct job *job)
{
    mutex_unlock(&workers->lock);
    job->run(job->arg);
    free(job);
    mutex_lock(&workers->lock);
}

static void *worker_main(void *arg)
{
    struct workers *workers = arg;
    mutex_lock(&workers->lock);
    for (;;) {
        if (workers->jobs != NULL) {
            run_job(workers, take_job_locked(workers));
            continue;
        }
        if (workers->stop || workers->idle >= IDLE_MAX)
            break;
        workers->idle++;
        condvar_broadcast(&workers->ended);
        condvar_wait(&workers->work, &workers->lock);
        workers->idle--;
    }
    workers->threads--;
    condvar_broadcast(&workers->ended);
    mutex_unlock(&workers->lock);
    return NULL;
}

/* One that nobody waits for. */
static int start_worker_locked(struct workers *workers)
{
    pthread_t thread;
    pthread_attr_t attr;
    int rc = -pthread_attr_init(&attr);
    if (rc != 0)
        return rc;
    rc = -pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (rc == 0)
        rc = -pthread_create(&thread, &attr, worker_main, workers);
    (void)pthread_attr_destroy(&attr);
    if (rc == 0)
        workers->threads++;
    return rc;
}

int workers_submit(struct workers *workers, worker_fn *run, void *arg)
{
    int rc = 0;
    struct job *job = malloc(sizeof *job);
    if (job == NULL)
        return -ENOMEM;
    *job = (struct job){.run = run, .arg = arg};
    mutex_lock(&workers->lock);
    if (workers->queued >= workers->idle) /* those that are idle have been given one each */
        rc = start_worker_locked(workers);
    if (rc == 0) {
        LL_APPEND(workers->jobs, job);
        workers->queued++;
    }
    mutex_unlock(&workers->lock);
    if (rc == 0)
        condvar_signal(&workers->work);
    else
        free(job);
    return rc;
}

static bool lend(struct workers *workers)
{
    mutex_lock(&workers->lock);
    const bool lent = workers->lent < workers->lent_max;
    workers->lent += lent ? 1 : 0;
    mutex_unlock(&workers->lock);
    return lent;
}

int workers_run(struct workers *workers, worker_fn *run, void *arg)
{
    if (!lend(workers))
        return workers_submit(workers, run, arg);
    run(arg);
    mutex_lock(&workers->lock);
    workers->lent--;
    mutex_unlock(&workers->lock);
    return 0;
}

/* ---- timers ---- */

static struct worker_timer *earliest_locked(struct workers *workers)
{
    struct worker_timer *timer, *earliest = NULL;
    DL_FOREACH(workers->timers, timer)
    {
        if (earliest == NULL || timer->due_ms < earliest->due_ms)
            earliest = timer;
    }
    return earliest;
}

static void disarm_locked(struct workers *workers, struct worker_timer *timer)
{
    if (timer->run == NULL)
        return;
    DL_DELETE(workers->timers, timer);
    timer->run = NULL;
}

static void run_timer(struct workers *workers, struct worker_timer *timer)
{
    worker_fn *run = timer->run;
    void *arg = timer->arg;
    disarm_locked(workers, timer);
    timer->running = true;
    mutex_unlock(&workers->lock);
    run(arg);
    mutex_lock(&workers->lock);
    timer->running = false;
    condvar_broadcast(&workers->timers_changed);
}

static void *timer_main(void *arg)
{
    struct workers *workers = arg;
    mutex_lock(&workers->lock);
    while (!workers->stop_timers) {
        struct worker_timer *timer = earliest_locked(workers);
        const int64_t now = now_ms();
        workers->timers_wake_ms = timer == NULL ? now + (int64_t)WAIT_LONG_MS : timer->due_ms;
        if (timer != NULL && timer->due_ms <= now)
            run_timer(workers, timer);
        else
            (void)condvar_wait_ms(&workers->timers_changed, &workers->lock, (uint64_t)(workers->timers_wake_ms - now));
    }
    mutex_unlock(&workers->lock);
    return NULL;
}

void worker_timer_arm(struct workers *workers, struct worker_timer *timer, uint64_t delay_ms, worker_fn *run, void *arg)
{
    mutex_lock(&workers->lock);
    disarm_locked(workers, timer);
    timer->due_ms = now_ms() + (int64_t)delay_ms;
    timer->run = run;
    timer->arg = arg;
    DL_APPEND(workers->timers, timer);
    /* Most are cancelled long before they are due, and the next one finds the thread waiting for the time of an earlier one. */
    const bool sooner = timer->due_ms < workers->timers_wake_ms;
    mutex_unlock(&workers->lock);
    if (sooner)
        condvar_broadcast(&workers->timers_changed);
}

void worker_timer_cancel(struct workers *workers, struct worker_timer *timer)
{
    mutex_lock(&workers->lock);
    disarm_locked(workers, timer);
    while (timer->running)
        condvar_wait(&workers->timers_changed, &workers->lock);
    mutex_unlock(&workers->lock);
}

/* ---- all of it ---- */

int workers_new(unsigned lent_max, struct workers **out_workers)
{
    struct workers *workers = calloc(1, sizeof *workers);
    if (workers == NULL)
        return -ENOMEM;
    workers->lent_max = lent_max;
    mutex_init(&workers->lock, LOCK_RANK_LEAF);
    condvar_init(&workers->work);
    condvar_init(&workers->ended);
    condvar_init(&workers->timers_changed);
    const int rc = -pthread_create(&workers->timer_thread, NULL, timer_main, workers);
    if (rc != 0) {
        free(workers);
        return rc;
    }
    *out_workers = workers;
    return 0;
}

/* First, so that no timer submits a job later. */
static void stop_timers(struct workers *workers)
{
    mutex_lock(&workers->lock);
    workers->stop_timers = true;
    condvar_broadcast(&workers->timers_changed);
    mutex_unlock(&workers->lock);
    (void)pthread_join(workers->timer_thread, NULL);
}

void workers_free(struct workers *workers)
{
    stop_timers(workers);
    mutex_lock(&workers->lock);
    while (workers->threads > workers->idle || workers->queued > 0)
        condvar_wait(&workers->ended, &workers->lock);
    workers->stop = true;
    condvar_broadcast(&workers->work);
    while (workers->threads > 0)
        condvar_wait(&workers->ended, &workers->lock);
    mutex_unlock(&workers->lock);
    condvar_destroy(&workers->work);
    condvar_destroy(&workers->ended);
    condvar_destroy(&workers->timers_changed);
    mutex_destroy(&workers->lock);
    free(workers);
}
