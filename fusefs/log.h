/*
 * fusefs/log.h - the daemon's log: stderr at first, then syslog or a file.
 *
 * Locking: thread-safe; log_background and log_mute are called by one thread at a time.
 */
#ifndef TBLFS_FUSEFS_LOG_H
#define TBLFS_FUSEFS_LOG_H

#include "base/diag.h"

enum log_target { LOG_TO_STDERR, LOG_TO_SYSLOG, LOG_TO_FILE };

struct log {
    struct diag diag; /* first: emit gets back to the log from it */
    _Atomic int target;
    _Atomic bool muted;
    int file_fd; /* -1: no file */
};

/* file_path NULL: no file. -errno: it cannot be opened. */
int log_open(struct log *log, const char *file_path, bool debug) WARN_UNUSED;
/* From now on nobody reads stderr: to the file if there is one, else to syslog. */
void log_background(struct log *log);
/* Drops lines while a call is tried again whose failure was told already. */
void log_mute(struct log *log, bool muted);
void log_close(struct log *log);

#endif
