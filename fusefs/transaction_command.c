/*
 * fusefs/transaction_command.c - see the header.
 */
#include "fusefs/transaction_command.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int ending_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/* ---- signals ---- */

void command_signals_take(struct command_signals *signals)
{
    *signals = (struct command_signals){.received = 0};
    (void)sigemptyset(&signals->ends);
    for (size_t index = 0; index < ARRAY_COUNT(ending_signals); index++) {
        struct sigaction action;
        if (sigaction(ending_signals[index], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            (void)sigaddset(&signals->ends, ending_signals[index]);
    }
    sigset_t blocked = signals->ends;
    (void)sigaddset(&blocked, SIGCHLD);
    (void)sigaddset(&blocked, SIGPIPE); /* a message that nobody reads leaves no transaction open */
    (void)signal(SIGCHLD, SIG_DFL);     /* else there would be nobody to wait for */
    (void)sigprocmask(SIG_BLOCK, &blocked, &signals->before);
}

int command_signals_received(struct command_signals *signals)
{
    const struct timespec at_once = {.tv_sec = 0};
    int number;
    while ((number = sigtimedwait(&signals->ends, NULL, &at_once)) > 0) {
        if (signals->received == 0)
            signals->received = number;
    }
    return signals->received;
}

void command_die_of(int signal_number)
{
    const struct rlimit no_core = {.rlim_cur = 0};
    sigset_t only;
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)sigemptyset(&only);
    (void)sigaddset(&only, signal_number);
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
    (void)sigprocmask(SIG_UNBLOCK, &only, NULL);
}

/* ---- the command's side ---- */

static void quit(int status, const char *fmt, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));

static void quit(int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "tblfs: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    _exit(status);
}

static int write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const int rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    (void)close(fd);
    return rc;
}

/* Who may not make a mount namespace may do so in a user namespace, where he is himself and nobody else. */
static int unshare_as_user(void)
{
    char users[64], groups[64];
    (void)snprintf(users, sizeof users, "%u %u 1\n", geteuid(), geteuid());
    (void)snprintf(groups, sizeof groups, "%u %u 1\n", getegid(), getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return -errno;
    int rc = write_file("/proc/self/setgroups", "deny");
    if (rc == 0)
        rc = write_file("/proc/self/uid_map", users);
    if (rc == 0)
        rc = write_file("/proc/self/gid_map", groups);
    return rc;
}

/* From here on the transaction is at the mount point, for this process and its children. */
static void show_at_mount_point(const struct transaction_command *command)
{
    int rc = unshare(CLONE_NEWNS) == 0 ? 0 : -errno;
    if (rc == -EPERM)
        rc = unshare_as_user();
    if (rc != 0)
        quit(COMMAND_EXIT_FAILED, "cannot make a mount namespace: %s (--private needs root or user namespaces)",
             strerror(-rc));
    if (mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0 ||
        mount(command->directory, command->mount_point, NULL, MS_BIND, NULL) != 0)
        quit(COMMAND_EXIT_FAILED, "cannot mount %s on %s for the command alone: %s", command->directory,
             command->mount_point, strerror(errno));
}

/* As `cd` does it. */
static void enter(const char *directory)
{
    char *before = getcwd(NULL, 0);
    if (chdir(directory) != 0)
        quit(COMMAND_EXIT_FAILED, "%s: %s", directory, strerror(errno));
    if (setenv("TXN", directory, 1) != 0 || setenv("PWD", directory, 1) != 0 ||
        (before != NULL && setenv("OLDPWD", before, 1) != 0))
        quit(COMMAND_EXIT_FAILED, "%s", strerror(errno));
    free(before);
}

static void execute(char *const *argv) __attribute__((noreturn));

static void execute(char *const *argv)
{
    (void)execvp(argv[0], argv);
    const int error = errno;
    const bool relative = argv[0][0] != '/' && strchr(argv[0], '/') != NULL;
    quit(error == ENOENT ? COMMAND_EXIT_NOT_FOUND : COMMAND_EXIT_NO_PROGRAM, "cannot run %s: %s%s", argv[0],
         strerror(error), relative ? " (its working directory is the transaction)" : "");
}

static void be_command(const struct command_signals *signals, const struct transaction_command *command, bool own_group)
    __attribute__((noreturn));

static void be_command(const struct command_signals *signals, const struct transaction_command *command, bool own_group)
{
    if (own_group)
        (void)setpgid(0, 0);
    if (command->mount_point != NULL)
        show_at_mount_point(command);
    enter(command->mount_point != NULL ? command->mount_point : command->directory);
    (void)sigprocmask(SIG_SETMASK, &signals->before, NULL);
    execute(command->argv);
}

/* ---- this side ---- */

static bool has_terminal(void)
{
    const int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

/* COMMAND-1. */
static void pass_on(const siginfo_t *info, pid_t pid, bool own_group)
{
    if (own_group) {
        (void)kill(-pid, info->si_signo);
        (void)kill(-pid, SIGCONT); /* one that is stopped hears it, too */
    } else if (info->si_code != SI_KERNEL) {
        (void)kill(pid, info->si_signo);
    }
}

static int wait_for(struct command_signals *signals, pid_t pid, bool own_group)
{
    sigset_t wanted = signals->ends;
    (void)sigaddset(&wanted, SIGCHLD);
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) != pid) {
        siginfo_t info;
        const int number = sigwaitinfo(&wanted, &info);
        if (number <= 0 || number == SIGCHLD)
            continue;
        if (signals->received == 0)
            signals->received = number;
        pass_on(&info, pid, own_group);
    }
    return WIFSIGNALED(status) ? COMMAND_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

int command_run(struct command_signals *signals, const struct transaction_command *command)
{
    const bool own_group = !has_terminal();
    const pid_t pid = fork();
    if (pid == 0)
        be_command(signals, command, own_group);
    if (pid < 0) {
        fprintf(stderr, "tblfs: cannot start a process: %s\n", strerror(errno));
        return COMMAND_EXIT_FAILED;
    }
    if (own_group)
        (void)setpgid(pid, pid); /* whoever of the two is first */
    return wait_for(signals, pid, own_group);
}
