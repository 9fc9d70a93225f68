/*
 * txn/control_format.h - the control file DATADIR/control: two slots, each in two copies. Disk structures only.
 *
 * Copies lie at CONTROL_COPY_OFFSET(slot, copy). A slot is valid when one of its copies has a good checksum. The valid
 * slot with the larger number is in force. Writing replaces the older slot: one copy,
 * sync, the other one, sync; copy 0 first, unless copy 1 is damaged.
 */
#ifndef TBLFS_TXN_CONTROL_FORMAT_H
#define TBLFS_TXN_CONTROL_FORMAT_H

#include "bufcache/page_format.h"

#define CONTROL_MAGIC                   "tblfsctl"
#define CONTROL_FORMAT_VERSION          2u
#define CONTROL_COPY_SPACING            65536u
#define CONTROL_FILE_SIZE               (4u * CONTROL_COPY_SPACING)
#define CONTROL_COPY_OFFSET(slot, copy) (((uint64_t)(slot)*2u + (uint64_t)(copy)) * CONTROL_COPY_SPACING)

struct control_slot {
    uint8_t magic[8];             /*   0 */
    le32 version;                 /*   8 */
    le32 block_size;              /*  12 */
    uint8_t store_id[16];         /*  16 random, made by mkfs */
    le64 number;                  /*  32 larger is newer */
    le64 written_ns;              /*  40 wall clock */
    le64 epoch;                   /*  48 `at` of the checkpoint's fork */
    struct disk_page_ptr catalog; /*  56 catalog root */
    le64 redo_lsn;                /*  72 log is replayed from here */
    le64 scan_lsn;          /*  80 log is read from here: first record of the oldest open transaction that wrote */
    le64 ceiling_epoch;     /*  88 all five: nothing at or above was ever used */
    le64 ceiling_rel;       /*  96 */
    le64 ceiling_ino;       /* 104 */
    le64 ceiling_txn;       /* 112 */
    le64 ceiling_lsn;       /* 120 */
    le64 name_seed;         /* 128 key of the name hash */
    uint8_t catalog_height; /* 136 */
    uint8_t clean;          /* 137 1: nothing follows in the log */
    uint8_t name_bits;      /* 138 47, or 4 in tests */
    le32 timeline;          /* 139 1, and one more with each restore; 0 counts as 1 */
    uint8_t restoring;      /* 143 1: a base whose replay is not finished: only restore may open it */
    uint8_t reserved[328];  /* 144 zero */
    le32 fsm_threshold;     /* 472 tables of more blocks have a sidecar, unless a mount says otherwise */
    le32 sidecar_threshold; /* 476 there is no sidecar of a table of so many blocks or fewer */
    le64 sidecar_epoch;     /* 480 only sidecars written in this epoch or later count */
    le64 commits;           /* 488 transactions that were committed, up to the fork */
    le64 inode_count;       /* 496 inodes in the catalog (statfs): a hint */
    le64 checksum;          /* 504 XXH3-64, seed 0, over bytes 0 to 504 */
};
static_assert(sizeof(struct control_slot) == 512, "control slot is one sector");

#endif
