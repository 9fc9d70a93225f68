/*
 * fusefs/promote.h - promoting a standby, as the command asks the daemon for it: a request on MNT/.tblfs/status, by root or by who mounted it. It is
 * begun, and MNT/.tblfs/status says how it goes on.
 */
#ifndef TBLFS_FUSEFS_PROMOTE_H
#define TBLFS_FUSEFS_PROMOTE_H

#include <linux/ioctl.h>
#include <stdint.h>

struct promote_exchange {
    int32_t error; /* answered: 0; -EINVAL: it is no standby; -EPERM; -EIO: it cannot go on, and is what it was */
    uint32_t zero;
};

#define PROMOTE_IOCTL _IOWR(0xdb, 3, struct promote_exchange)

#endif
