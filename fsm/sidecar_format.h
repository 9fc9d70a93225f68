/*
 * fsm/sidecar_format.h - the sidecar of a relation, RELID_fsm beside its file: its free map. Disk structures only.
 *
 * The header, then one bit for each block of the relation's file in 64-bit words, set: used, bit 0 of word 0 is block 0.
 * Bits behind the last block are clear. Nothing follows.
 */
#ifndef TBLFS_FSM_SIDECAR_FORMAT_H
#define TBLFS_FSM_SIDECAR_FORMAT_H

#include "bufcache/page_format.h"

#define SIDECAR_MAGIC   "tblfsfsm"
#define SIDECAR_VERSION 1u

struct sidecar_header {
    uint8_t magic[8];          /*   0 */
    le32 version;              /*   8 */
    le32 blocks;               /*  12 blocks of the relation's file */
    uint8_t store_id[16];      /*  16 */
    le64 rel;                  /*  32 */
    le64 first_ino;            /*  40 inode that the relation was made for */
    le64 epoch;                /*  48 `at` of the checkpoint that it was written behind */
    struct disk_page_ptr root; /*  56 of the content tree, with the next three */
    le64 root_bytes;           /*  72 */
    le32 root_leaves;          /*  80 */
    le32 used;                 /*  84 bits that are set */
    uint8_t root_height;       /*  88 */
    uint8_t reserved[31];      /*  89 zero */
    le64 checksum;             /* 120 XXH3-64 over the bitmap, seeded by that over bytes 0 to 120 */
};
static_assert(sizeof(struct sidecar_header) == 128, "sidecar header is 128 bytes");

#endif
