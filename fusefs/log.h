/*
 * fusefs/log.h - the daemon's log: a file, syslog, or stderr in the foreground.
 *
 * Until log_started, errors and warnings go to stderr too: the command that started the daemon still waits.
 *
 * Locking: thread-safe; log_started and log_mute are called by one thread at a time.
 */
#ifndef TBLFS_FUSEFS_LOG_H
#define TBLFS_FUSEFS_LOG_H

#include "base/diag.h"

struct log {
    struct diag diag; /* first: emit gets back to the log from it */
    bool foreground;
    int file_fd; /* -1: no file */
    _Atomic bool started;
    _Atomic bool muted;
};

/* file_path NULL: no file. -errno: it cannot be opened. */
int log_open(struct log *log, const char *file_path, bool foreground, bool debug) WARN_UNUSED;
/* From now on nobody waits at stderr. */
void log_started(struct log *log);
/* Drops lines while a call is tried again whose failure was told already. */
void log_mute(struct log *log, bool muted);
void log_close(struct log *log);

#endif
