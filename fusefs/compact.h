/*
 * fusefs/compact.h - compaction of one table, as the command asks the daemon for it: a request on the table itself, open for writing, again and
 * again until it is done. Each goes on for a while and says how far it is; closing the file ends a compaction that is not done.
 *
 * The kernel copies the structure both ways by the number of the request.
 */
#ifndef TBLFS_FUSEFS_COMPACT_H
#define TBLFS_FUSEFS_COMPACT_H

#include <linux/ioctl.h>
#include <stdint.h>

#define COMPACT_NAME_SIZE 256u

enum compact_state { COMPACT_GOES_ON, COMPACT_DONE, COMPACT_NOT_NEEDED, COMPACT_FAILED };

struct compact_shape {
    uint64_t file_blocks, leaves, least_leaves, runs; /* as struct store_shape */
};

struct compact_exchange {
    /* asked: */
    uint32_t always; /* 1: also a table that lies in order */
    /* answered: */
    uint32_t state; /* enum compact_state */
    int32_t error;  /* COMPACT_FAILED: a negative errno of store_compact_step or store_compact_begin */
    uint32_t zero;
    uint64_t done_bytes, total_bytes;
    struct compact_shape before, after;
    char transaction[COMPACT_NAME_SIZE]; /* error -EBUSY: the one that wrote the table */
};

#define COMPACT_IOCTL _IOWR(0xdb, 1, struct compact_exchange)

#endif
