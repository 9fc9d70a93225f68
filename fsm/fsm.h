/*
 * fsm/fsm.h - which blocks of a relation are free.
 *
 * One map per relation that is written, hanging at the in-core relation. No caller knows of thresholds, sidecars or
 * bitmaps.
 *
 * FSM-1 A block handed out twice destroys data: a block is handed out only if the map knows it to be free, or from
 *       beyond the end of what was ever handed out.
 * FSM-2 A damaged, missing, foreign or oversized sidecar is never an error.
 * FSM-3 A map is built from roots: fsm_build_begin, fsm_build_used for each block that some tree reaches (or that is
 *       pinned otherwise), fsm_build_finish. Blocks allocated or freed meanwhile are accounted for. Until it is ready
 *       the relation allocates what was freed since the map was made, and else at the end of its file.
 *
 * A relation has no map until fsm_init_empty, fsm_build_order, fsm_build_begin or the first fsm_reserve makes one; a map
 * made by the last three starts not ready. It lives as long as the in-core relation: whoever writes a relation keeps a
 * reference.
 *
 * Locks: each call takes the map's own lock (LOCK_RANK_FSM) and may call relation_* inside. All are thread-safe.
 */
#ifndef TBLFS_FSM_FSM_H
#define TBLFS_FSM_FSM_H

#include "base/types.h"
#include "bufcache/bufcache.h"

/* Promises `count` blocks to the caller: later fsm_allocate calls for them cannot fail. Gives space to punched blocks and extends the file
 * as needed: blocks by one up to FSM_SMALL_BLOCKS, then in chunks that grow with the file; creates it when it has none yet.
 * -ENOSPC, -EFBIG, -EIO: nothing is promised. */
int fsm_reserve(struct relation *relation, uint32_t count) WARN_UNUSED;
/* Gives back what was promised and not used. */
void fsm_unreserve(struct relation *relation, uint32_t count);
/* Takes one promised block: `hint` when it is free, else one just behind it, else the lowest one (small relations, and without a hint,
 * BLOCK_NONE: always that). Cannot fail. */
block_no fsm_allocate(struct relation *relation, block_no hint);
/* Takes up to `want` promised blocks (want >= 1) that lie in a row: just behind the hint, else in the first of the lowest few runs
 * that is long enough, else in the longest of them, or at the end. Returns how many (>= 1), the first in *out_first. */
uint32_t fsm_allocate_run(struct relation *relation, block_no hint, uint32_t want, block_no *out_first);
/* The blocks are free (they must be allocated). */
void fsm_free(struct relation *relation, block_no first, uint32_t count);

/* Blocks left the tree and stay used until a checkpoint later than `since` is durable. True: more than half of what is used waits like that,
 * and it is not little: the file grows for want of a checkpoint. */
bool fsm_defer(struct relation *relation, uint64_t blocks, epoch_no since) WARN_UNUSED;

/* FSM-3. The map is used meanwhile as before, and is ready after finish. The caller forks behind begin, with no operation between its
 * allocations and its end, and marks what the fork or a holder reaches, or what was pinned otherwise at the fork. A relation
 * that was just created needs no build: fsm_init_empty. */
bool fsm_is_ready(struct relation *relation); /* what is not used is known to be free */
bool fsm_is_open(struct relation *relation);  /* ready, or its build is ordered: blocks may be allocated meanwhile */
int fsm_init_empty(struct relation *relation) WARN_UNUSED; /* new relation: nothing is used. -ENOMEM */
/* True, once: the map is not ready, and the caller has it built. */
bool fsm_build_order(struct relation *relation);
/* Something that used blocks is gone without saying which: a ready map is none any more. Of a build under way too. */
void fsm_doubt(struct relation *relation);
int fsm_build_begin(struct relation *relation)
    WARN_UNUSED; /* -EIO: the file cannot be measured; -EBUSY: one is under way; -ENOMEM */
int fsm_build_used(struct relation *relation, block_no first,
                   uint32_t count) WARN_UNUSED; /* -EIO: beyond the end of the file */
/* Pages of blocks that were found to be free leave the cache. -EIO, reported: blocks that are marked were free, and some of them are
 * promised; then the map is as it was. */
int fsm_build_finish(struct relation *relation) WARN_UNUSED;
void fsm_build_abort(
    struct relation *relation); /* the map is as it was, and no build is ordered again until fsm_doubt */

struct fsm_stats {
    block_no file_blocks;
    uint32_t used_blocks, free_blocks, reserved_blocks;
    uint32_t punched_blocks;          /* neither used nor free: without space in the file, as far as is known */
    uint64_t allocations, words_read; /* words of the bitmap looked at by allocations */
    uint64_t lock_waits;              /* calls that found the map in use by another thread */
};
/* -ENOENT: no map. */
int fsm_get_stats(struct relation *relation, struct fsm_stats *out_stats) WARN_UNUSED;

/* Is the block allocated? For check and tests. */
bool fsm_is_used(struct relation *relation, block_no block);
/* Is it known to be unused, and has it to be given space before it is handed out? */
bool fsm_is_punched(struct relation *relation, block_no block);

/* Cuts trailing free blocks off the file, but for keep_blocks of them. Called at checkpoints, with nothing of the cut blocks reachable. */
int fsm_trim(struct relation *relation, uint32_t keep_blocks, uint32_t *out_blocks_cut) WARN_UNUSED;
/* Gives space of free blocks inside the file back to the filesystem, when more than half of what has space is free: long runs of them, from the
 * end, until as much is free as is used. Called at checkpoints, behind fsm_trim. An error: reported. */
int fsm_punch(struct relation *relation, uint32_t *out_blocks_punched) WARN_UNUSED;
/* Was a block freed since the last fsm_trim? Takes no lock. */
bool fsm_may_trim(const struct relation *relation);
/* Free blocks at the end that a file of so many blocks is better left with: growing tables get them back at once. 0: small files. */
uint32_t fsm_spare_blocks(block_no file_blocks);

#define FSM_SMALL_BLOCKS 32u
#define FSM_PUNCH_BLOCKS 128u /* 1 MiB: no shorter run is punched */

#endif
