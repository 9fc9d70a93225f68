/*
 * fsm/sidecar.h - free maps on the disk: reading and writing the file RELID_fsm beside a relation's.
 *
 * Whether a sidecar that is well-formed may be believed is not decided here (txn/store_sidecar.c).
 *
 * FSM-2 A damaged, missing, foreign or oversized sidecar is never an error: reading one answers -EBADMSG, and says what is wrong with
 *       it to whoever asks.
 *
 * It is written in place and not under another name first: a torn one is found by its checksum and costs a build, while a second
 * name could be left behind beside a table that may have one file only.
 */
#ifndef TBLFS_FSM_SIDECAR_H
#define TBLFS_FSM_SIDECAR_H

#include "base/io.h"
#include "bufcache/bufcache.h"

#define FSM_SIDECAR_SUFFIX     "_fsm"
#define FSM_SIDECAR_PATH_BYTES 4300u

struct fsm_sidecar {
    uint8_t store_id[16];
    rel_no rel;
    ino_no first_ino; /* inode that the relation was made for */
    epoch_no epoch;   /* `at` of the checkpoint that it was written behind */
    struct page_ptr root;
    uint64_t root_bytes;
    uint32_t root_leaves;
    uint8_t root_height;
    block_no blocks; /* of the relation's file */
    uint32_t used;   /* blocks */
    uint64_t *words; /* one bit a block, set: used; freed by fsm_sidecar_free */
};

void fsm_sidecar_free(struct fsm_sidecar *sidecar);
void fsm_sidecar_path(const struct relation *relation, char path[FSM_SIDECAR_PATH_BYTES]);

/* Reads and checks it in itself. -ENOENT: there is none; -EBADMSG: not a sidecar, damaged, or not for a file of that many blocks (the
 * reason, a literal, in *out_why); -ENOMEM; another negative errno: it cannot be read. */
int fsm_sidecar_read(struct io_device *dev, const char *path, block_no file_blocks, struct fsm_sidecar *out_sidecar,
                     const char **out_why) WARN_UNUSED;
/* Writes it, without a sync. *out_made: there may be something now, also after an error. */
int fsm_sidecar_write(struct io_device *dev, const char *path, const struct fsm_sidecar *sidecar,
                      bool *out_made) WARN_UNUSED;
/* Makes what was written durable, not its name: one that is lost costs a build. */
int fsm_sidecar_sync(struct io_device *dev, const char *path) WARN_UNUSED;
/* 1: it is gone, 0: there was none. What is there but no file is left alone: nothing would read it. */
int fsm_sidecar_remove(struct io_device *dev, const char *path) WARN_UNUSED;

/* The map's bits, malloc'd, and counts. -EAGAIN: the map is not ready, or blocks are promised; -ENOENT: there is none. */
int fsm_copy_used(struct relation *relation, uint64_t **out_words, block_no *out_blocks,
                  uint32_t *out_used) WARN_UNUSED;

#endif
