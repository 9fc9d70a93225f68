/*
 * fusefs/kernel.h - everything that depends on the version of the kernel or of libfuse.
 *
 * Requests and replies pass through two functions of ours (libfuse's custom io). They count the requests by kind, and
 * add to the reply to INIT what libfuse 3.14 cannot ask for.
 */
#ifndef TBLFS_FUSEFS_KERNEL_H
#define TBLFS_FUSEFS_KERNEL_H

#include "base/diag.h"
#include "base/types.h"

#include <fuse_lowlevel.h>

#define KERNEL_OPCODES 64u

struct kernel_link {
    struct diag *diag;
    void (*ready)(void *arg); /* called once, when the kernel has the reply to INIT */
    void *ready_arg;
    _Atomic uint64_t requests[KERNEL_OPCODES]; /* by opcode; 0: those beyond the table */
    _Atomic uint64_t init_unique;              /* of the INIT request under way, 0: none */
    _Atomic uint64_t offered;                  /* its flags, both words */
    _Atomic uint64_t negotiated;               /* flags of our reply; 0: not answered yet */
    _Atomic uint32_t protocol_minor;
};

/* The link must be the session's userdata, or its first member. To be called after fuse_session_mount. */
int kernel_link_attach(struct kernel_link *link, struct fuse_session *session) WARN_UNUSED;

/* For the init operation: what we want of what libfuse knows. */
void kernel_want(struct kernel_link *link, struct fuse_conn_info *conn);

/* Does the kernel leave clearing set-user-id bits to us? */
bool kernel_leaves_kill_priv(const struct kernel_link *link);

const char *kernel_opcode_name(unsigned opcode); /* NULL: no such request */

/* Runs the threads until the connection ends. 0 or a negative errno. */
int kernel_serve(struct fuse_session *session, unsigned max_threads) WARN_UNUSED;

#endif
