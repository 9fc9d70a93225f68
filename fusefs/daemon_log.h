/*
 * fusefs/daemon_log.h - the daemon's log: a file, syslog, or stderr in the foreground.
 *
 * Until daemon_log_started, errors and warnings go to stderr too: the command that started the daemon still waits.
 *
 * Locking: thread-safe; daemon_log_started and daemon_log_mute are called by one thread at a time.
 */
#ifndef TBLFS_FUSEFS_DAEMON_LOG_H
#define TBLFS_FUSEFS_DAEMON_LOG_H

#include "base/diag.h"

struct daemon_log {
    struct diag diag; /* first: emit gets back to the log from it */
    bool foreground;
    int file_fd; /* -1: no file */
    _Atomic bool started;
    _Atomic bool muted;
};

/* file_path NULL: no file. -errno: it cannot be opened. */
int daemon_log_open(struct daemon_log *log, const char *file_path, bool foreground, bool debug) WARN_UNUSED;
/* From now on nobody waits at stderr. */
void daemon_log_started(struct daemon_log *log);
/* Drops lines while a call is tried again whose failure was told already. */
void daemon_log_mute(struct daemon_log *log, bool muted);
void daemon_log_close(struct daemon_log *log);

#endif
