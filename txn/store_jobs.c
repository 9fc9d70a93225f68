/*
 * txn/store_jobs.c - see the header.
 */
#include "txn/store_jobs.h"

#include <stdarg.h>
#include <stdio.h>

void store_job_begin(struct store *store, struct store_job *job, const char *kind, const char *unit, uint64_t total,
                     const char *what, ...)
{
    *job = (struct store_job){.store = store, .kind = kind, .unit = unit, .began_ns = io_monotonic_ns(store->dev)};
    atomic_init(&job->total, total);
    va_list args;
    va_start(args, what);
    (void)vsnprintf(job->what, sizeof job->what, what, args);
    va_end(args);
    mutex_lock(&store->jobs_lock);
    struct store_job **link = &store->jobs;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = job;
    mutex_unlock(&store->jobs_lock);
}

void store_job_add(struct store_job *job, uint64_t done)
{
    atomic_fetch_add_explicit(&job->done, done, memory_order_relaxed);
}

void store_job_set_total(struct store_job *job, uint64_t total)
{
    atomic_store_explicit(&job->total, total, memory_order_relaxed);
}

void store_job_end(struct store_job *job)
{
    struct store *store = job->store;
    mutex_lock(&store->jobs_lock);
    struct store_job **link = &store->jobs;
    while (*link != job) {
        link = &(*link)->next;
    }
    *link = job->next;
    mutex_unlock(&store->jobs_lock);
}

int store_each_job(struct store *store, store_job_fn *fn, void *arg)
{
    int rc = 0;
    mutex_lock(&store->jobs_lock);
    for (const struct store_job *job = store->jobs; job != NULL && rc == 0; job = job->next) {
        const struct store_job_info info = {.kind = job->kind,
                                            .what = job->what,
                                            .done = atomic_load(&job->done),
                                            .total = atomic_load(&job->total),
                                            .unit = job->unit,
                                            .running_ns = io_monotonic_ns(store->dev) - job->began_ns};
        rc = fn(arg, &info);
    }
    mutex_unlock(&store->jobs_lock);
    return rc;
}
