/*
 * fusefs/workers.h - the daemon's own threads: for what may wait for requests of the kernel, and for what is due at a time.
 *
 * A job gets a thread at once, whatever the others wait for: one that is idle, or a new one. Timers share one thread: what
 * they call must not wait.
 *
 * Locking: one leaf lock. Jobs and timers are called without any lock.
 */
#ifndef TBLFS_FUSEFS_WORKERS_H
#define TBLFS_FUSEFS_WORKERS_H

#include "base/types.h"

struct workers;

typedef void worker_fn(void *arg);

/* Memory of the caller; to be zeroed before its first use. */
struct worker_timer {
    int64_t due_ms; /* of the monotonic clock; all: guarded by the workers' lock */
    worker_fn *run; /* NULL: not armed */
    void *arg;
    bool running;
    struct worker_timer *prev, *next;
};

/* lent_max: so many callers of workers_run may be held up at a time. */
int workers_new(unsigned lent_max, struct workers **out_workers) WARN_UNUSED;
/* Waits for all jobs; armed timers are forgotten. */
void workers_free(struct workers *workers);

/* -EAGAIN: no thread can be had; -ENOMEM. */
int workers_submit(struct workers *workers, worker_fn *run, void *arg) WARN_UNUSED;
/* The same on the caller's thread, which saves waking another one, unless lent_max callers' are taken already. Those
 * that the job waits for must do with the rest of them. */
int workers_run(struct workers *workers, worker_fn *run, void *arg) WARN_UNUSED;

/* Once, after that time. An armed timer is armed anew. */
void worker_timer_arm(struct workers *workers, struct worker_timer *timer, uint64_t delay_ms, worker_fn *run,
                      void *arg);
/* It is not armed, and what it called has returned, when this returns. */
void worker_timer_cancel(struct workers *workers, struct worker_timer *timer);

#endif
