/*
 * fusefs/daemon.c - being a daemon.
 *
 * The fork comes before any thread or file. The parent stays until the mount answers, so that a command after
 * `tblfs mount` finds it there, and a failure is the command's own.
 *
 * Locking: none; called while there is one thread, but for daemon_report, which the first request's thread calls once.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#define OPEN_FILES_MAX 4096u
#define OPEN_FILES_MIN 64u

/* How a child ended that did not report. One that exited has said why. */
static void say_how_it_ended(pid_t child)
{
    int how;
    pid_t ended;
    do
        ended = waitpid(child, &how, 0);
    while (ended < 0 && errno == EINTR);
    if (ended == child && WIFSIGNALED(how))
        fprintf(stderr, "tblfs: the daemon was ended by signal %d (%s) before the mount answered\n", WTERMSIG(how),
                strsignal(WTERMSIG(how)));
}

/* The parent's half: what the child says, or that it ended. */
static int wait_for_report(int fd, pid_t child)
{
    unsigned char status;
    ssize_t got;
    do
        got = read(fd, &status, sizeof status);
    while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof status)
        return status;
    say_how_it_ended(child);
    return 1;
}

int daemon_fork(bool *out_child, int *out_report_fd, int *out_status)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -errno;
    const pid_t child = fork();
    if (child < 0) {
        const int rc = -errno;
        (void)close(fds[0]);
        (void)close(fds[1]);
        return rc;
    }
    *out_child = child == 0;
    if (child == 0) {
        (void)close(fds[0]);
        (void)setsid();
        *out_report_fd = fds[1];
        return 0;
    }
    (void)close(fds[1]);
    *out_status = wait_for_report(fds[0], child);
    (void)close(fds[0]);
    return 0;
}

bool daemon_is_waited_for(int report_fd)
{
    struct pollfd report = {.fd = report_fd}; /* one of -1 is passed over */
    return poll(&report, 1, 0) <= 0;          /* else POLLERR: nobody is left to read */
}

static void let_go_of_terminal(void)
{
    (void)!chdir("/");
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        (void)dup2(null, fd);
    if (null > STDERR_FILENO)
        (void)close(null);
}

void daemon_report(int report_fd, int status, const struct daemon_log *log)
{
    const unsigned char byte = (unsigned char)status;
    let_go_of_terminal();
    daemon_log_take_stderr(log, _PATH_LOG);
    (void)!write(report_fd, &byte, sizeof byte); /* a parent that is gone does not matter */
    (void)close(report_fd);
}

uint32_t daemon_raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return OPEN_FILES_MIN;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return OPEN_FILES_MIN;
    const rlim_t half = limit.rlim_cur / 2; /* the rest: log, devices, libraries */
    if (half < OPEN_FILES_MIN)
        return OPEN_FILES_MIN;
    return half < OPEN_FILES_MAX ? (uint32_t)half : OPEN_FILES_MAX;
}

void daemon_lift_file_size(void)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_FSIZE, &limit);
    }
    (void)signal(SIGXFSZ, SIG_IGN);
}

void daemon_notify_systemd(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof address.sun_path)
        return;
    const size_t length = strlen(path);
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0'; /* an abstract socket */
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, size);
    (void)close(fd);
}
