/*
 * fusefs/standby.h - a mount that follows an archive (txn/standby.h), for `tblfs standby`.
 *
 *   mount_standby_prepare; store_open; mount_standby_open; [session: mount_standby_start ... mount_standby_stop]; mount_standby_close
 *
 * One thread replays, tells the kernel what changed, and waits: for a change in the directory of the archive, or for the time to look again.
 *
 * MOUNT-STANDBY-1 The kernel is told by that thread alone, which holds nothing then, and which ends before the session does.
 */
#ifndef TBLFS_FUSEFS_STANDBY_H
#define TBLFS_FUSEFS_STANDBY_H

#include "txn/store.h"

#include <stdio.h>

struct fusefs;

/* How the store is to be opened. -errno: the data directory is no standby's, which was said. */
int mount_standby_prepare(struct store_options *options) WARN_UNUSED;
int mount_standby_open(struct fusefs *fs) WARN_UNUSED;
struct view *mount_standby_view(struct fusefs *fs);
int mount_standby_start(struct fusefs *fs) WARN_UNUSED;
/* Begins to make it a store of its own, when all that the archive has is replayed. Returns at once. -EINVAL: it is no standby (any more); -EALREADY;
 * -EIO: it stopped. */
int mount_standby_promote(struct fusefs *fs) WARN_UNUSED;
/* Harmless when it was not started. */
void mount_standby_stop(struct fusefs *fs);
/* And the store. */
int mount_standby_close(struct fusefs *fs);
/* Is the mount one that was not promoted? */
bool mount_standby_is(const struct fusefs *fs);
/* Lines of MNT/.tblfs/status. */
void mount_standby_write_status(struct fusefs *fs, FILE *out);

#endif
