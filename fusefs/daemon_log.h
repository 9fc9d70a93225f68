/*
 * fusefs/daemon_log.h - the daemon's log: a file, syslog, or stderr in the foreground.
 *
 * Until daemon_log_started, errors and warnings go to stderr too: the command that started the daemon still waits.
 * Then a daemon in the background makes stderr lead into the log, for what does not come through a diag: a failed
 * assertion, an abort, a sanitizer, libfuse. It has to arrive although the process is about to end, so no thread is
 * between.
 *
 * Locking: thread-safe; daemon_log_started and daemon_log_over_progress are called by one thread at a time.
 */
#ifndef TBLFS_FUSEFS_DAEMON_LOG_H
#define TBLFS_FUSEFS_DAEMON_LOG_H

#include "base/diag.h"

struct daemon_log {
    struct diag diag; /* first: emit gets back to the log from it */
    bool foreground;
    int file_fd; /* -1: no file */
    _Atomic bool started;
    _Atomic bool erases; /* a line of progress may be on the terminal (base/progress.h) */
};

/* file_path NULL: no file. -errno: it cannot be opened. */
int daemon_log_open(struct daemon_log *log, const char *file_path, bool foreground, bool debug) WARN_UNUSED;
/* From now on nobody waits at stderr. */
void daemon_log_started(struct daemon_log *log);
/* While a line of progress is on the terminal, messages on stderr take its place. */
void daemon_log_over_progress(struct daemon_log *log, bool shown);
/* From now on what is written to stderr ends up in the log's file, else at the datagram socket where syslog listens (it
 * takes each write as a message; when syslog is restarted later, they are lost). Stderr stays as it is when neither is
 * there. */
void daemon_log_take_stderr(const struct daemon_log *log, const char *syslog_path);
void daemon_log_close(struct daemon_log *log);

#endif
