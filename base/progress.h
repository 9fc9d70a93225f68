/*
 * base/progress.h - a line on the terminal about what takes long: how far it is, and how long it will still take.
 *
 * Nothing is shown when it ends within a second, or when stderr is no terminal. A thread of its own looks and draws, so
 * whatever does the work only keeps numbers that another thread may read.
 *
 * Locking: start and stop are called by one thread, `look` by the one that draws, with no lock held. `lock` guards
 * `finished`.
 */
#ifndef TBLFS_BASE_PROGRESS_H
#define TBLFS_BASE_PROGRESS_H

#include "base/lock.h"

#include <stdio.h>

struct progress_state {
    const char *what;     /* a literal, as in "checking"; NULL: nothing is to be shown */
    uint64_t done, total; /* in any unit; total 0: not known */
    char detail[32];      /* as in "12 records"; "": none */
};

/* How far is it? *out_state is all zero. */
typedef void progress_look_fn(void *arg, struct progress_state *out_state);

#define PROGRESS_DELAY_MS 1000u

struct progress_options {
    FILE *out;         /* stderr */
    uint64_t delay_ms; /* PROGRESS_DELAY_MS; tests do not want to wait */
    progress_look_fn *look;
    void *arg;
};

struct progress {
    struct progress_options options;
    pthread_t thread;
    bool runs;
    bool drawn;         /* the thread's, and after its end progress_stop's */
    const char *what;   /* of the last look, and */
    uint64_t since_ns;  /* when that began, and */
    uint64_t done_then; /* how far it was then: the thread's */
    struct mutex lock;  /* LOCK_RANK_LEAF */
    struct condvar changed;
    bool finished;
};

/* Clears a line that may be on the terminal: to be written before other messages, in one write with them. */
#define PROGRESS_LINE_WIDTH 78
#define PROGRESS_ERASE      "\r                                                                              \r"

/* Without a terminal, or memory for a thread, nothing is shown; `runs` tells. */
void progress_start(struct progress *progress, const struct progress_options *options);
/* Takes the line away. */
void progress_stop(struct progress *progress);

#endif
