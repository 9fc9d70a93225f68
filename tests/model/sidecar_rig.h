/*
 * tests/model/sidecar_rig.h - what tests of sidecars share, on top of txn_rig.h: which there are, tables of so many blocks, maps.
 *
 * All of it must succeed, or the test fails.
 */
#ifndef TBLFS_TESTS_MODEL_SIDECAR_RIG_H
#define TBLFS_TESTS_MODEL_SIDECAR_RIG_H

#include "tests/model/txn_rig.h"

#define SIDECAR_PATH_BYTES 128u

/* Sidecars in the data directory. */
unsigned sidecars_count(struct io_device *dev);
/* Files in rel/ that are no sidecars, without the catalog's. */
unsigned relation_files_count(struct io_device *dev);
/* Path of the sidecar that the table at `path` has or would have. */
void sidecar_path_of(struct txn_rig *rig, const char *path, char sidecar[SIDECAR_PATH_BYTES]);
bool sidecar_exists(struct txn_rig *rig, const char *path);
/* Blocks of the table's file. */
block_no file_blocks_of(struct txn_rig *rig, const char *path);

/* Closes cleanly and opens again. */
void sidecar_rig_reopen(struct txn_rig *rig);
/* The content becomes so many full leaves of that byte; made if there is none. */
void table_fill(struct txn_rig *rig, struct view *view, const char *path, unsigned leaves, char byte);
/* Overwrites one leaf of a table with another byte, in place as far as its user sees. */
void table_change(struct txn_rig *rig, struct view *view, const char *path, unsigned leaf, char byte);
/* So many leaves of that byte, and no more. */
void table_expect(struct txn_rig *rig, const char *path, unsigned leaves, char byte);
/* The map is there, as before a write, and all maps are what FSM-3 says. */
void table_expect_map(struct txn_rig *rig, const char *path);
struct store_stats sidecar_rig_stats(struct txn_rig *rig);

#endif
