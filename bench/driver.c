/*
 * bench/driver.c - the loops that bench/run times, without a fork for each call.
 *
 *     driver write FILE BYTES         writes a TSV of that size in 1 MiB calls, then fsync
 *     driver read FILE                reads it in 1 MiB calls
 *     driver open-append FILE COUNT   COUNT times open(O_APPEND), write a row, close
 *     driver append FILE COUNT        opens once, COUNT times write a row
 *     driver create DIRECTORY COUNT   COUNT times create, write a row, close
 *     driver fill DIRECTORY COUNT     the same with empty files
 *     driver stat FILE COUNT          COUNT times stat
 *     driver run COMMAND...           a command, its output thrown away
 *
 * Prints the seconds that it took; `write` prints them to the end of the writes and to the end of the fsync. Any error
 * is a message and status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE (1u << 20)

static const char row[] = "2024-02-29\t4711\tthe quick brown fox\t3.14159\tjumps over the lazy dog\n";

static _Noreturn void give_up(const char *what, const char *path)
{
    fprintf(stderr, "driver: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int open_or_give_up(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0)
        give_up("open", path);
    return fd;
}

static void write_or_give_up(int fd, const char *path, const char *bytes, size_t size)
{
    while (size > 0) {
        const ssize_t done = write(fd, bytes, size);
        if (done <= 0)
            give_up("write", path);
        bytes += done;
        size -= (size_t)done;
    }
}

static void close_or_give_up(int fd, const char *path)
{
    if (close(fd) < 0)
        give_up("close", path);
}

static void bench_write(const char *path, uint64_t bytes)
{
    char *rows = malloc(PIECE);
    if (rows == NULL)
        give_up("memory for", path);
    for (size_t i = 0; i < PIECE; i++)
        rows[i] = row[i % (sizeof row - 1)];
    const int fd = open_or_give_up(path, O_WRONLY | O_CREAT | O_TRUNC);
    const double start = seconds();
    for (uint64_t at = 0; at < bytes; at += PIECE)
        write_or_give_up(fd, path, rows, bytes - at < PIECE ? (size_t)(bytes - at) : PIECE);
    const double written = seconds();
    if (fsync(fd) < 0)
        give_up("fsync", path);
    close_or_give_up(fd, path);
    printf("%.6f %.6f\n", written - start, seconds() - start);
    free(rows);
}

static void bench_read(const char *path)
{
    char *bytes = malloc(PIECE);
    if (bytes == NULL)
        give_up("memory for", path);
    const double start = seconds();
    const int fd = open_or_give_up(path, O_RDONLY);
    for (ssize_t got; (got = read(fd, bytes, PIECE)) != 0;)
        if (got < 0)
            give_up("read", path);
    close_or_give_up(fd, path);
    printf("%.6f\n", seconds() - start);
    free(bytes);
}

static void bench_open_append(const char *path, uint64_t count)
{
    const double start = seconds();
    for (uint64_t i = 0; i < count; i++) {
        const int fd = open_or_give_up(path, O_WRONLY | O_CREAT | O_APPEND);
        write_or_give_up(fd, path, row, sizeof row - 1);
        close_or_give_up(fd, path);
    }
    printf("%.6f\n", seconds() - start);
}

static void bench_append(const char *path, uint64_t count)
{
    const double start = seconds();
    const int fd = open_or_give_up(path, O_WRONLY | O_CREAT | O_APPEND);
    for (uint64_t i = 0; i < count; i++)
        write_or_give_up(fd, path, row, sizeof row - 1);
    close_or_give_up(fd, path);
    printf("%.6f\n", seconds() - start);
}

static void bench_create(const char *dir, uint64_t count, size_t size)
{
    char path[4096];
    const double start = seconds();
    for (uint64_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/table%07ju.tsv", dir, (uintmax_t)i);
        const int fd = open_or_give_up(path, O_WRONLY | O_CREAT | O_EXCL);
        write_or_give_up(fd, path, row, size);
        close_or_give_up(fd, path);
    }
    printf("%.6f\n", seconds() - start);
}

static void bench_stat(const char *path, uint64_t count)
{
    struct stat st;
    const double start = seconds();
    for (uint64_t i = 0; i < count; i++)
        if (stat(path, &st) < 0)
            give_up("stat", path);
    printf("%.6f\n", seconds() - start);
}

static void bench_run(char **command)
{
    int status = 0;
    const double start = seconds();
    const pid_t pid = fork();
    if (pid < 0)
        give_up("fork", command[0]);
    if (pid == 0) {
        const int null = open_or_give_up("/dev/null", O_WRONLY);
        if (dup2(null, STDOUT_FILENO) < 0)
            give_up("dup2", command[0]);
        execvp(command[0], command);
        give_up("exec", command[0]);
    }
    if (waitpid(pid, &status, 0) < 0 || status != 0)
        give_up("running", command[0]);
    printf("%.6f\n", seconds() - start);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    const uint64_t number = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    if (strcmp(what, "run") == 0)
        bench_run(argv + 2);
    else if (strcmp(what, "read") == 0)
        bench_read(argv[2]);
    else if (strcmp(what, "write") == 0 && number > 0)
        bench_write(argv[2], number);
    else if (strcmp(what, "open-append") == 0 && number > 0)
        bench_open_append(argv[2], number);
    else if (strcmp(what, "append") == 0 && number > 0)
        bench_append(argv[2], number);
    else if (strcmp(what, "create") == 0 && number > 0)
        bench_create(argv[2], number, sizeof row - 1);
    else if (strcmp(what, "fill") == 0 && number > 0)
        bench_create(argv[2], number, 0);
    else if (strcmp(what, "stat") == 0 && number > 0)
        bench_stat(argv[2], number);
    else {
        fprintf(stderr, "usage: driver write|read|open-append|append|create|fill|stat PATH [NUMBER]\n"
                        "       driver run COMMAND...\n");
        return 2;
    }
    return 0;
}
