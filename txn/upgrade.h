/*
 * txn/upgrade.h - a copy of a data directory in the current format.
 *
 * UPGRADE-1 The old directory is only read: it is the same, byte for byte, afterwards, whatever happens.
 * UPGRADE-2 The new one has no control file before all else is there, durable: a copy that was cut short is no data directory.
 * UPGRADE-3 Who is told that it is done has a copy that was opened, checked and closed cleanly.
 * UPGRADE-4 A store with tablespaces is refused: its copy would name the same directories.
 */
#ifndef TBLFS_TXN_UPGRADE_H
#define TBLFS_TXN_UPGRADE_H

#include "base/diag.h"
#include "base/io.h"
#include "base/progress.h"

#include <stdatomic.h>

/* For another thread to look at. Starts as all zero. */
struct upgrade_progress {
    _Atomic uint64_t done_bytes, total_bytes;
};
/* A progress_look_fn. arg: the upgrade_progress. */
void upgrade_progress_look(void *arg, struct progress_state *out_state);

struct upgrade_options {
    struct io_device *dev;
    struct diag *diag;
    const char *old_dir;
    const char *new_dir;               /* missing or empty */
    struct upgrade_progress *progress; /* NULL: nobody watches */
};

struct upgrade_result {
    uint32_t old_format, new_format;
    uint64_t files, bytes; /* copied, holes left out */
    uint64_t torn_pages;   /* blocks that hold no whole page; unless the check found damage, free ones */
    bool was_clean;        /* else its log was replayed in the copy */
};

/* -ENODATA: the old one is no data directory; -EPROTO: of an unknown newer format; -EBUSY: in use; -ENOTEMPTY: the new one holds something;
 * -EIO: damage, in the new one as in the old. Says what is wrong on diag. */
int upgrade_copy(const struct upgrade_options *options, struct upgrade_result *out_result) WARN_UNUSED;

#endif
