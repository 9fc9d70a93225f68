/*
 * txn/control.h - reading and writing the control file (txn/control_format.h).
 *
 * CONTROL-1 At any moment each slot has a copy that is whole: one is written only after the other is synced, and a copy
 *           that an earlier cut left torn is written first. So a slot without a good copy is damage, never a torn write.
 * CONTROL-2 The slot in force is never written to; only the other one is.
 */
#ifndef TBLFS_TXN_CONTROL_H
#define TBLFS_TXN_CONTROL_H

#include "base/diag.h"
#include "base/io.h"
#include "table/cow.h"

/* A slot, decoded. */
struct control {
    uint8_t store_id[16];
    uint64_t number;
    int64_t written_ns;
    epoch_no epoch; /* `at` of the checkpoint's fork */
    struct catalog_root catalog;
    lsn_no redo_lsn, scan_lsn;
    epoch_no ceiling_epoch;
    rel_no ceiling_rel;
    ino_no ceiling_ino;
    txn_no ceiling_txn;
    lsn_no ceiling_lsn;
    uint64_t name_seed;
    uint8_t name_bits;
    bool clean;
    bool restoring;             /* a base whose replay is not finished */
    uint32_t timeline;          /* tells apart the logs of stores that were restored from one base; from 1 on */
    uint32_t fsm_threshold;     /* of the data directory */
    uint32_t sidecar_threshold; /* the one that holds for the sidecars that are there */
    epoch_no sidecar_epoch;     /* sidecars that are older do not count */
    uint64_t inode_count;
    uint64_t commits;
};

/* Writes both slots of a new control file, syncs it and its directory. number and number + 1 are used; *control is what
 * is in force. */
int control_create(struct io_device *dev, const char *dir, struct control *control) WARN_UNUSED;
/* Reads the slot in force. -ENODATA: there is no control file, or it never was one; -EPROTO: another format; -EIO:
 * damaged, reported. */
int control_read(struct io_device *dev, struct diag *diag, const char *dir, struct control *out_control) WARN_UNUSED;
/* The same of an older format too: fields that it does not have are 0. */
int control_read_any(struct io_device *dev, struct diag *diag, const char *dir, struct control *out_control,
                     uint32_t *out_version) WARN_UNUSED;
/* Writes *control into the slot not in force, with number + 1 (updated in *control), copy by copy, each synced. */
int control_write(struct io_device *dev, const char *dir, struct control *control) WARN_UNUSED;

#endif
