/*
 * fusefs/archive.c - see the header.
 *
 * The command runs in a process group of its own, with the signals of a fresh process, reads nothing, and writes where the daemon's stderr
 * leads. Exit status 0 means that the file is durable where it is to be.
 */
#include "fusefs/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HURRY_MS 30000u
#define LOOK_MS  1000
#define SLOW_MS  60000u

extern char **environ;

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int spawn_shell(char *text, pid_t *out_pid)
{
    char *argv[] = {"sh", "-c", text, NULL};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    sigset_t none;
    sigset_t all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    const int rc = posix_spawn(out_pid, "/bin/sh", &files, &attributes, argv, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&attributes);
    return -rc;
}

/* Is it over? Waits a moment. */
static bool wait_a_moment(int pidfd)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    return poll(&ended, 1, LOOK_MS) > 0;
}

/* The whole group, when its time is over. */
static void wait_for_end(const struct archive_command *command, pid_t pid, const char *name)
{
    const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    const uint64_t began_ms = now_ms();
    bool said = false;
    while (pidfd >= 0 && !wait_a_moment(pidfd)) {
        const uint64_t deadline_ms = atomic_load(&command->deadline_ms);
        if (deadline_ms != 0 && now_ms() >= deadline_ms) {
            diag_log(command->diag, DIAG_WARNING, "archive: the command for %s does not end: killed", name);
            (void)kill(-pid, SIGKILL);
            break;
        }
        if (!said && now_ms() - began_ms >= SLOW_MS)
            diag_log(command->diag, DIAG_WARNING, "archive: the command for %s has been running for %u s; process %ld",
                     name, SLOW_MS / 1000, (long)pid);
        said = now_ms() - began_ms >= SLOW_MS;
    }
    if (pidfd >= 0)
        (void)close(pidfd);
}

/* 0: it exited, *out_how says how. */
static int run(const struct archive_command *command, const char *path, const char *name, int *out_how)
{
    char *text = archive_command_text(command->command, path, name);
    pid_t pid = 0;
    if (text == NULL)
        return -ENOMEM;
    const int rc = spawn_shell(text, &pid);
    free(text);
    if (rc != 0)
        return rc;
    wait_for_end(command, pid, name);
    pid_t ended;
    do
        ended = waitpid(pid, out_how, 0);
    while (ended < 0 && errno == EINTR);
    return ended == pid ? 0 : -ECHILD;
}

static int result_of(const struct archive_command *command, int how, const char *name)
{
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return 0;
    if (WIFEXITED(how))
        diag_log(command->diag, DIAG_WARNING, "archive: the command for %s: exit status %d", name, WEXITSTATUS(how));
    else
        diag_log(command->diag, DIAG_WARNING, "archive: the command for %s was ended by signal %d", name,
                 WTERMSIG(how));
    return -ECANCELED;
}

static int put_by_command(void *arg, const char *path, const char *name)
{
    int how = 0;
    const int rc = run(arg, path, name, &how);
    return rc != 0 ? rc : result_of(arg, how, name);
}

int archive_command_get(void *arg, const char *name, const char *path)
{
    int how = 0;
    (void)unlink(path);
    const int rc = run(arg, path, name, &how);
    if (rc != 0)
        return rc;
    if (!WIFEXITED(how) || WEXITSTATUS(how) > 125)
        return result_of(arg, how, name);
    return WEXITSTATUS(how) == 0 && access(path, R_OK) == 0 ? 0 : -ENOENT;
}

void archive_command_end(struct archive_command *command)
{
    atomic_store(&command->deadline_ms, 1);
}

bool mount_archive_is_wanted(const struct fusefs_options *options)
{
    return options->archive_command != NULL || options->archive_dir != NULL;
}

bool mount_archive_init(struct mount_archive *archive, const struct fusefs_options *options, struct diag *diag)
{
    *archive = (struct mount_archive){.dir = {.dev = io_real_device(), .diag = diag, .dir = options->archive_dir},
                                      .command = {.diag = diag, .command = options->archive_command}};
    const bool by_command = options->archive_command != NULL;
    archive->target.put = by_command ? put_by_command : archive_dir_put;
    archive->target.arg = by_command ? (void *)&archive->command : (void *)&archive->dir;
    return mount_archive_is_wanted(options);
}

void mount_archive_hurry(struct mount_archive *archive)
{
    atomic_store(&archive->command.deadline_ms, now_ms() + HURRY_MS);
}
