/*
 * fusefs/session.c - one mount: from an opened store to the end of the connection.
 *
 *     mounted --INIT answered: session_ready--> serving --unmounted--> ended
 *                                                  |
 *                          SIGTERM: terminate()    +--> umount, tried for GRACE_MS --> detached --> ended
 *
 * Signals are blocked everywhere and read by one thread, which unmounts: the kernel then writes dirty mapped pages to
 * us while the other threads still serve, and ends the connection. (libfuse's own handler closes the device first.)
 *
 * Locking: none. The signal thread and the main thread share `stop_fd`, an eventfd.
 */
#include "fusefs/fusefs_int.h"
#include "fusefs/standby.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define READ_AHEAD_KB "1024"
#define GRACE_MS      5000
#define RETRY_MS      100
#define MIN_THREADS   16u
#define LENT_SHARE    4u /* at most one in so many threads that serve is held up by a commit */

struct session {
    struct fusefs *fs;
    struct fuse_session *fuse;
    int report_fd; /* -1: foreground, or reported */
    int signal_fd;
    int stop_fd;  /* readable: the connection has ended */
    bool refused; /* to end, once */
    unsigned device_major, device_minor;
    pthread_t main_thread, signal_thread;
};

static const struct fuse_lowlevel_ops operations = {
    .init = serve_init,
    .lookup = serve_lookup,
    .forget = serve_forget,
    .forget_multi = op_forget_multi,
    .getattr = serve_getattr,
    .setattr = serve_setattr,
    .readlink = serve_readlink,
    .mknod = serve_mknod,
    .mkdir = serve_mkdir,
    .unlink = serve_unlink,
    .rmdir = serve_rmdir,
    .symlink = serve_symlink,
    .rename = serve_rename,
    .link = serve_link,
    .open = serve_open,
    .create = serve_create,
    .read = serve_read,
    .write = serve_write,
    .release = serve_release,
    .fsync = serve_fsync,
    .opendir = serve_opendir,
    .readdir = serve_readdir,
    .readdirplus = serve_readdirplus,
    .releasedir = serve_releasedir,
    .fsyncdir = serve_fsync,
    .statfs = serve_statfs,
    .setxattr = serve_setxattr,
    .getxattr = serve_getxattr,
    .listxattr = serve_listxattr,
    .removexattr = serve_removexattr,
    .fallocate = serve_fallocate,
    .lseek = serve_lseek,
    .ioctl = serve_ioctl,
    /* Left out on purpose: flush (it comes before the data of `echo x > f`: ENOSYS saves the request on every close),
     * access (default_permissions), getlk, setlk and flock (the kernel does them locally), copy_file_range (the kernel
     * falls back to reads and writes). */
};

void serve_init(void *userdata, struct fuse_conn_info *conn)
{
    struct fusefs *fs = userdata;
    kernel_want(&fs->link, conn);
}

/* ---- mounting ---- */

/* Appends ",name=value" with the value's commas and backslashes escaped. */
static void put_option(FILE *out, const char *name, const char *value)
{
    fprintf(out, ",%s=", name);
    for (; *value != '\0'; value++) {
        if (*value == ',' || *value == '\\')
            fputc('\\', out);
        fputc(*value, out);
    }
}

static char *mount_options(const struct fusefs_options *options)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    fprintf(out, "default_permissions,nosuid,nodev");
    if (options->allow_other)
        fprintf(out, ",allow_other");
    if (options->read_only)
        fprintf(out, ",ro");
    if (options->no_exec)
        fprintf(out, ",noexec");
    if (options->synchronous)
        fprintf(out, ",sync");
    put_option(out, "subtype", "tblfs");
    put_option(out, "fsname", options->data_dir);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static int session_mount(struct session *session)
{
    struct fusefs *fs = session->fs;
    char *text = mount_options(fs->options);
    if (text == NULL)
        return -ENOMEM;
    char *argv[] = {"tblfs", "-o", text, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    session->fuse = fuse_session_new(&args, &operations, sizeof operations, fs);
    fuse_opt_free_args(&args);
    free(text);
    if (session->fuse == NULL)
        return -EINVAL;
    if (fuse_session_mount(session->fuse, fs->options->mount_point) == 0) {
        const int rc = kernel_link_attach(&fs->link, session->fuse);
        fs->session = session->fuse;
        if (rc == 0)
            return 0;
        fuse_session_unmount(session->fuse);
    }
    fuse_session_destroy(session->fuse); /* libfuse said why */
    return -EIO;
}

static void remember_device(struct session *session)
{
    struct mount_entry entry;
    if (mount_find_point(session->fs->options->mount_point, &entry) != 0)
        return;
    session->device_major = entry.major;
    session->device_minor = entry.minor;
    mount_entry_free(&entry);
}

/* ---- the first answer ---- */

static int write_small_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const ssize_t written = write(fd, text, strlen(text));
    const int rc = written < 0 ? -errno : 0;
    (void)close(fd);
    return rc;
}

/* Else sequential reads come in pieces of 128 KiB. Only root may; who is not can do nothing about it and is not warned. */
static void raise_read_ahead(struct session *session)
{
    char path[96];
    (void)snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", session->device_major,
                   session->device_minor);
    const int rc = write_small_file(path, READ_AHEAD_KB);
    if (rc != 0)
        diag_log(&session->fs->log.diag, rc == -EACCES ? DIAG_INFO : DIAG_WARNING,
                 "cannot write %s to %s (%s): reads come in smaller pieces", READ_AHEAD_KB, path, strerror(-rc));
}

/* Called by the thread that answered INIT, once the kernel has the answer. */
static void session_ready(void *arg)
{
    struct session *session = arg;
    const struct fusefs_options *options = session->fs->options;
    raise_read_ahead(session);
    diag_log(&session->fs->log.diag, DIAG_INFO, "%s is mounted on %s", options->data_dir, options->mount_point);
    daemon_log_started(&session->fs->log);
    if (session->report_fd >= 0) {
        daemon_report(session->report_fd, 0, &session->fs->log);
        session->report_fd = -1;
    }
    daemon_notify_systemd("READY=1");
}

/* ---- signals ---- */

/* Is our mount still what one finds at the mount point? */
static bool is_still_mounted(const struct session *session)
{
    struct mount_entry entry;
    if (mount_find_point(session->fs->options->mount_point, &entry) != 0)
        return false;
    const bool ours = entry.major == session->device_major && entry.minor == session->device_minor;
    mount_entry_free(&entry);
    return ours;
}

/* Waits until the connection has ended. False: the time is over. */
static bool wait_stopped(struct session *session, int timeout_ms)
{
    struct pollfd stop = {.fd = session->stop_fd, .events = POLLIN};
    return poll(&stop, 1, timeout_ms) > 0;
}

/* Gentle first: a plain unmount fails while files are open, and their users may be about to close them. */
static void terminate(struct session *session)
{
    struct diag *diag = &session->fs->log.diag;
    const char *mount_point = session->fs->options->mount_point;
    int rc = 0;
    for (int waited_ms = 0; is_still_mounted(session) && waited_ms <= GRACE_MS; waited_ms += RETRY_MS) {
        rc = mount_unmount(mount_point, false);
        if (rc == -EBUSY && waited_ms == 0)
            diag_log(diag, DIAG_WARNING, "%s is busy: waiting up to %d s for its users", mount_point, GRACE_MS / 1000);
        if (rc != -EBUSY || wait_stopped(session, RETRY_MS))
            break;
    }
    if (rc == -EBUSY && is_still_mounted(session)) {
        diag_log(diag, DIAG_WARNING, "%s is still busy: detached; the store closes when its last user ends",
                 mount_point);
        rc = mount_unmount(mount_point, true);
    }
    if (rc != 0)
        diag_log(diag, DIAG_ERROR, "cannot unmount %s: %s", mount_point, strerror(-rc));
}

/* The last resort: users of a detached mount get errors, dirty mapped pages are lost. libfuse's main loop looks at the
 * exit flag when a signal interrupts it; the kernel ends the connection when the session's descriptor is closed. */
static void cut_off_users(struct session *session)
{
    diag_log(&session->fs->log.diag, DIAG_WARNING, "asked to end again: cutting off those who still use %s",
             session->fs->options->mount_point);
    fuse_session_exit(session->fuse);
    do
        (void)pthread_kill(session->main_thread, SIGUSR1);
    while (!wait_stopped(session, RETRY_MS));
}

/* With changed transactions open it does not end, unless it is told again. */
static bool refuses_to_end(struct session *session)
{
    const bool refuses = !session->refused && transactions_log_changed(session->fs) > 0;
    if (refuses)
        diag_log(&session->fs->log.diag, DIAG_WARNING,
                 "%s stays mounted for the sake of these transactions; the next signal aborts them",
                 session->fs->options->mount_point);
    session->refused = session->refused || refuses;
    return refuses;
}

static void handle_signal(struct session *session, uint32_t number, unsigned *inout_count)
{
    if (number == SIGHUP && !session->fs->options->foreground)
        return; /* no terminal of ours */
    if (*inout_count == 0 && refuses_to_end(session))
        return;
    diag_log(&session->fs->log.diag, DIAG_INFO, "got signal %u: unmounting", number);
    daemon_notify_systemd("STOPPING=1");
    if (++*inout_count == 1)
        terminate(session);
    else
        cut_off_users(session);
}

static void *signal_main(void *arg)
{
    struct session *session = arg;
    unsigned count = 0;
    for (;;) {
        struct pollfd fds[2] = {{.fd = session->stop_fd, .events = POLLIN},
                                {.fd = session->signal_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (fds[0].revents != 0)
            return NULL;
        struct signalfd_siginfo info;
        if (fds[1].revents != 0 && read(session->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
            handle_signal(session, info.ssi_signo, &count);
    }
}

static void wake_up(int number)
{
    (void)number; /* only to interrupt a wait */
}

static sigset_t ending_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    return set;
}

void session_block_signals(void)
{
    const sigset_t set = ending_signals();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int signals_start(struct session *session)
{
    const sigset_t set = ending_signals();
    const struct sigaction wake = {.sa_handler = wake_up}; /* without SA_RESTART */
    session->main_thread = pthread_self();
    (void)sigaction(SIGUSR1, &wake, NULL);
    session->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (session->signal_fd < 0)
        return -errno;
    session->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (session->stop_fd < 0)
        return -errno;
    return -pthread_create(&session->signal_thread, NULL, signal_main, session);
}

static void signals_stop(struct session *session)
{
    const uint64_t one = 1;
    (void)!write(session->stop_fd, &one, sizeof one);
    (void)pthread_join(session->signal_thread, NULL);
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

/* ---- all of it ---- */

static unsigned thread_count(const struct fusefs_options *options)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned wanted = cpus > 0 ? 4 * (unsigned)cpus : 0;
    if (options->max_threads != 0)
        return (unsigned)options->max_threads;
    return wanted > MIN_THREADS ? wanted : MIN_THREADS;
}

static int session_serve(struct session *session)
{
    struct fusefs *fs = session->fs;
    remember_device(session);
    const unsigned threads = thread_count(fs->options);
    int rc = workers_new(threads / LENT_SHARE, &fs->workers);
    if (rc == 0)
        rc = signals_start(session);
    if (rc == 0 && fs->standby != NULL)
        rc = mount_standby_start(fs);
    if (rc == 0) {
        rc = kernel_serve(session->fuse, threads);
        signals_stop(session);
    }
    if (fs->standby != NULL)
        mount_standby_stop(fs); /* it tells the kernel what changed */
    if (fs->workers != NULL)
        workers_free(fs->workers); /* FUSE-5, as below */
    sync_replies_wait(fs);
    if (rc != 0)
        diag_log(&fs->log.diag, DIAG_ERROR, "serving %s: %s", fs->options->mount_point, strerror(-rc));
    fuse_session_unmount(session->fuse);
    fuse_session_destroy(session->fuse);
    close_if_open(session->signal_fd);
    close_if_open(session->stop_fd);
    diag_log(&fs->log.diag, DIAG_INFO, "%s is unmounted", fs->options->mount_point);
    return rc;
}

int session_run(struct fusefs *fs, int report_fd)
{
    struct session session = {.fs = fs, .report_fd = report_fd, .signal_fd = -1, .stop_fd = -1};
    fs->link.diag = &fs->log.diag;
    fs->link.ready = session_ready;
    fs->link.ready_arg = &session;
    int rc = session_mount(&session);
    if (rc != 0)
        diag_log(&fs->log.diag, DIAG_ERROR, "cannot mount on %s: %s", fs->options->mount_point, strerror(-rc));
    else
        rc = session_serve(&session);
    if (session.report_fd >= 0)
        (void)close(session.report_fd);
    return rc;
}
