/*
 * txn/store_jobs.h - what takes long and goes on beside everything else (inside of txn/): a list of running jobs, for whoever
 * asks how far they are (store_each_job, `.tblfs/progress`).
 *
 * Whoever does the work owns the job; it is in the list from begin to end.
 *
 * Locking: jobs_lock (LOCK_RANK_LEAF) guards the list and what a job says in words; the numbers are atomic.
 */
#ifndef TBLFS_TXN_STORE_JOBS_H
#define TBLFS_TXN_STORE_JOBS_H

#include "txn/store_int.h"

#define STORE_JOB_WHAT_SIZE 64u

struct store_job {
    struct store *store;
    struct store_job *next;
    const char *kind; /* a literal: "map", "snapshot", "compact", ... */
    const char *unit; /* a literal, of done and total: "blocks", "tables", "bytes" */
    char what[STORE_JOB_WHAT_SIZE];
    uint64_t began_ns;
    _Atomic uint64_t done, total; /* total 0: not known */
};

void store_job_begin(struct store *store, struct store_job *job, const char *kind, const char *unit, uint64_t total,
                     const char *what, ...) PRINTF_LIKE(6, 7);
void store_job_add(struct store_job *job, uint64_t done);
void store_job_set_total(struct store_job *job, uint64_t total);
void store_job_end(struct store_job *job);

#endif
