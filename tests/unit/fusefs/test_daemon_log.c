/*
 * tests/unit/fusefs/test_daemon_log.c - what a daemon in the background writes to stderr is found in its log.
 *
 * A child process plays the daemon, and ends by a failed assertion.
 */
#include "fusefs/daemon_log.h"
#include "tests/lib/test_support.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_SIZE 4096u

static const bool assertion_that_fails = false;

/* The life of a daemon that fails an assertion. */
static void fail_in_background(const char *log_path, const char *syslog_path)
{
    static struct daemon_log log;
    const struct rlimit no_core = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &no_core);
    if (daemon_log_open(&log, log_path, false, false) != 0)
        _exit(1);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)dup2(null, STDERR_FILENO);
    daemon_log_started(&log);
    daemon_log_take_stderr(&log, syslog_path);
    assert(assertion_that_fails);
    _exit(0);
}

static void run_daemon(const char *log_path, const char *syslog_path)
{
    int how = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        fail_in_background(log_path, syslog_path);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGABRT);
}

static void failed_assertion_with_log_file_is_in_it(void **state)
{
    char *dir = test_dir_create();
    char *path = test_path_join(dir, "log");
    char text[TEXT_SIZE];
    (void)state;
    run_daemon(path, "/nonexistent/socket");
    FILE *log = fopen(path, "re");
    assert_non_null(log);
    const size_t size = fread(text, 1, sizeof text - 1, log);
    text[size] = '\0';
    fclose(log);
    assert_non_null(strstr(text, "assertion_that_fails"));
    free(path);
    test_dir_remove(dir);
}

/* A socket as syslog has one. */
static int listen_as_syslog(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void failed_assertion_without_log_file_is_in_syslog(void **state)
{
    char *dir = test_dir_create();
    char *path = test_path_join(dir, "syslog");
    char text[TEXT_SIZE];
    bool found = false;
    (void)state;
    const int fd = listen_as_syslog(path);
    run_daemon(NULL, path);
    for (ssize_t size; !found && (size = recv(fd, text, sizeof text - 1, MSG_DONTWAIT)) >= 0;) {
        text[size] = '\0';
        found = strstr(text, "assertion_that_fails") != NULL;
    }
    assert_true(found);
    (void)close(fd);
    free(path);
    test_dir_remove(dir);
}

static void failed_assertion_without_syslog_still_ends_the_daemon(void **state)
{
    char *dir = test_dir_create();
    char *path = test_path_join(dir, "nobody");
    (void)state;
    run_daemon(NULL, path);
    free(path);
    test_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_assertion_with_log_file_is_in_it),
        cmocka_unit_test(failed_assertion_without_log_file_is_in_syslog),
        cmocka_unit_test(failed_assertion_without_syslog_still_ends_the_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
