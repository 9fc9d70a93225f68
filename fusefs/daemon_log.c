/*
 * fusefs/daemon_log.c - see the header.
 *
 * A line is written to the file with one write(2) on an O_APPEND descriptor, so that lines of several threads (and of
 * several daemons) do not mix.
 */
#include "fusefs/daemon_log.h"

#include "base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define LINE_SIZE 1400u

static int level_priority(enum diag_level level)
{
    switch (level) {
    case DIAG_ERROR:
        return LOG_ERR;
    case DIAG_WARNING:
        return LOG_WARNING;
    case DIAG_INFO:
        return LOG_INFO;
    case DIAG_DEBUG:
        break;
    }
    return LOG_DEBUG;
}

/* What cannot be logged is lost: there is nobody left to tell. */
static void write_line(int fd, const char *line, int length)
{
    if (length <= 0)
        return;
    const size_t size = (size_t)length < LINE_SIZE ? (size_t)length : LINE_SIZE - 1;
    ssize_t written;
    do
        written = write(fd, line, size);
    while (written < 0 && errno == EINTR);
}

static void emit_to_file(int fd, enum diag_level level, const char *text)
{
    struct timespec now;
    struct tm parts;
    char line[LINE_SIZE];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)localtime_r(&now.tv_sec, &parts);
    char when[32];
    if (strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts) == 0)
        when[0] = '\0';
    write_line(fd, line,
               snprintf(line, sizeof line, "%s.%03ld tblfs[%ld] %s: %s\n", when, now.tv_nsec / 1000000, (long)getpid(),
                        diag_level_name(level), text));
}

static void emit_to_stderr(enum diag_level level, const char *text, bool erases)
{
    char line[LINE_SIZE];
    const char *prefix = level == DIAG_ERROR ? "" : diag_level_name(level);
    write_line(STDERR_FILENO, line,
               snprintf(line, sizeof line, "%stblfs: %s%s%s\n", erases ? PROGRESS_ERASE : "", prefix,
                        level == DIAG_ERROR ? "" : ": ", text));
}

static void emit(struct diag *diag, enum diag_level level, const char *text)
{
    const struct daemon_log *log = (const struct daemon_log *)diag;
    if (log->file_fd >= 0)
        emit_to_file(log->file_fd, level, text);
    else if (!log->foreground)
        syslog(level_priority(level), "%s", text);
    const bool waited_for = !log->started && level <= DIAG_WARNING;
    if (waited_for || (log->foreground && log->file_fd < 0))
        emit_to_stderr(level, text, log->erases);
}

int daemon_log_open(struct daemon_log *log, const char *file_path, bool foreground, bool debug)
{
    *log = (struct daemon_log){
        .diag = {.emit = emit, .max_level = debug ? DIAG_DEBUG : DIAG_INFO}, .foreground = foreground, .file_fd = -1};
    if (file_path == NULL) {
        if (!foreground)
            openlog("tblfs", LOG_PID, LOG_DAEMON);
        return 0;
    }
    log->file_fd = open(file_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    return log->file_fd < 0 ? -errno : 0;
}

void daemon_log_started(struct daemon_log *log)
{
    log->started = true;
}

/* -1: nobody listens there. */
static int connect_to_syslog(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, strlen(path));
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

void daemon_log_take_stderr(const struct daemon_log *log, const char *syslog_path)
{
    if (log->file_fd >= 0) {
        (void)dup2(log->file_fd, STDERR_FILENO);
        return;
    }
    const int fd = connect_to_syslog(syslog_path);
    if (fd < 0)
        return;
    (void)dup2(fd, STDERR_FILENO);
    if (fd != STDERR_FILENO)
        (void)close(fd);
}

void daemon_log_over_progress(struct daemon_log *log, bool shown)
{
    log->erases = shown;
}

void daemon_log_close(struct daemon_log *log)
{
    if (log->file_fd >= 0)
        (void)close(log->file_fd);
    else if (!log->foreground)
        closelog();
    log->file_fd = -1;
}
