/*
 * fusefs/blocks.h - what the blocks of a table's file are used for, as `tblfs fsm` asks the daemon for it: requests on the table itself, open in any
 * way, from its first block on. The first one makes the list, those that follow go on in it.
 *
 * The kernel copies the structure both ways by the number of the request.
 */
#ifndef TBLFS_FUSEFS_BLOCKS_H
#define TBLFS_FUSEFS_BLOCKS_H

#include <linux/ioctl.h>
#include <stdint.h>

#define BLOCKS_RUNS 1000u

struct blocks_run { /* as struct store_block_run */
    uint32_t first, count;
    uint16_t bytes;
    uint8_t use, level, pin;
    uint8_t zero[3];
};

struct blocks_exchange {
    /* asked: */
    uint64_t from; /* how many runs came before; 0: a new list */
    /* answered: */
    uint32_t count; /* of runs; less than BLOCKS_RUNS: these are the last ones */
    uint32_t zero;
    struct blocks_run runs[BLOCKS_RUNS];
};

#define BLOCKS_IOCTL _IOWR(0xdb, 2, struct blocks_exchange)

#endif
