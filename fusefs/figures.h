/*
 * fusefs/figures.h - every number that is counted somewhere, by name: for .tblfs/status, .tblfs/cache and .tblfs/metrics.
 *
 * Locking: none; each source has its own.
 */
#ifndef TBLFS_FUSEFS_FIGURES_H
#define TBLFS_FUSEFS_FIGURES_H

#include "base/types.h"

struct fusefs;

struct figure {
    const char *name;
    const char
        *kind; /* one of several of that name (the sweeps of a cause, the requests of a type); NULL: it is alone */
    uint64_t value;
    bool counts; /* it only grows, from 0 at the start of the daemon */
};

typedef void figure_fn(void *arg, const struct figure *figure);

void figures_of_store(struct fusefs *fs, figure_fn *fn, void *arg); /* its log too */
void figures_of_mount(struct fusefs *fs, figure_fn *fn, void *arg); /* nodes, handles, the kernel's requests */
void figures_of_cache(struct fusefs *fs, figure_fn *fn, void *arg);

#endif
