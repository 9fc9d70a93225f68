/*
 * bench/transactions.c - what begin and commit cost, by a client that makes the system calls, for bench/transactions.
 *
 *     transactions fill DIRECTORY COUNT BYTES   makes COUNT tables of BYTES bytes
 *     transactions gestures MNT COUNT           COUNT times each: begin, commit of nothing, commit of one row; prints the medians in
 *                                               microseconds
 *     transactions rows MNT CLIENTS COUNT       each client commits COUNT transactions of one row to a table of its own; prints seconds
 *     transactions single MNT CLIENTS COUNT     the same without gestures: each row is one write(2) to a descriptor opened with
 *                                               O_APPEND and O_DSYNC
 *     transactions drop MNT DIRECTORY COUNT     removes COUNT tables in one transaction; prints seconds of the removals and of the commit
 *
 * Any error is a message and status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char row[] = "2024-02-29\t4711\tthe quick brown fox\t3.14159\tjumps over the lazy dog\n";

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "transactions: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void write_all(int fd, const char *bytes, size_t size, const char *path)
{
    while (size > 0) {
        const ssize_t done = write(fd, bytes, size);
        if (done < 0) {
            give_up(path);
        }
        bytes += done;
        size -= (size_t)done;
    }
}

static void fill(const char *directory, unsigned long count, size_t size)
{
    char *bytes = malloc(size + sizeof row);
    if (bytes == NULL) {
        give_up("memory");
    }
    for (size_t done = 0; done < size; done += sizeof row - 1) {
        memcpy(bytes + done, row, sizeof row - 1);
    }
    for (unsigned long i = 0; i < count; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/t%lu", directory, i);
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0) {
            give_up(path);
        }
        write_all(fd, bytes, size, path);
        close(fd);
    }
    free(bytes);
}

static void make(const char *path)
{
    if (mkdir(path, 0755) != 0) {
        give_up(path);
    }
}

static void append_row(const char *directory, unsigned long table)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/own%lu", directory, table);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        give_up(path);
    }
    write_all(fd, row, sizeof row - 1, path);
    close(fd);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, unsigned long count)
{
    qsort(values, count, sizeof values[0], compare);
    return values[count / 2] * 1e6;
}

struct paths {
    char begin[4096], commit[4200];
};

static void name_paths(struct paths *paths, const char *mount_point, long client, unsigned long number)
{
    (void)snprintf(paths->begin, sizeof paths->begin, "%s/.txn/bench-%ld-%lu", mount_point, client, number);
    (void)snprintf(paths->commit, sizeof paths->commit, "%s/.commit", paths->begin);
}

static void gestures(const char *mount_point, unsigned long count)
{
    double *begins = calloc(count, sizeof(double));
    double *empties = calloc(count, sizeof(double));
    double *commits = calloc(count, sizeof(double));
    if (begins == NULL || empties == NULL || commits == NULL) {
        give_up("memory");
    }
    append_row(mount_point, 0);
    for (unsigned long i = 0; i < count; i++) {
        struct paths paths;
        name_paths(&paths, mount_point, 0, 2 * i);
        const double start = seconds();
        make(paths.begin);
        const double begun = seconds();
        make(paths.commit);
        const double empty = seconds();
        begins[i] = begun - start;
        empties[i] = empty - begun;
        name_paths(&paths, mount_point, 0, 2 * i + 1);
        make(paths.begin);
        append_row(paths.begin, 0);
        const double appended = seconds();
        make(paths.commit);
        commits[i] = seconds() - appended;
    }
    printf("%.1f %.1f %.1f\n", median(begins, count), median(empties, count), median(commits, count));
    free(begins);
    free(empties);
    free(commits);
}

static void commit_rows(const char *mount_point, unsigned long client, unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        struct paths paths;
        name_paths(&paths, mount_point, (long)getpid(), i);
        make(paths.begin);
        append_row(paths.begin, client);
        make(paths.commit);
    }
}

static void append_single_rows(const char *mount_point, unsigned long client, unsigned long count)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/own%lu", mount_point, client);
    const int fd = open(path, O_WRONLY | O_APPEND | O_DSYNC | O_CLOEXEC);
    if (fd < 0) {
        give_up(path);
    }
    for (unsigned long i = 0; i < count; i++) {
        write_all(fd, row, sizeof row - 1, path);
    }
    close(fd);
}

typedef void client_fn(const char *mount_point, unsigned long client, unsigned long count);

static void rows(const char *mount_point, unsigned long clients, unsigned long count, client_fn *run)
{
    int status = 0;
    for (unsigned long client = 0; client < clients; client++) {
        append_row(mount_point, client);
    }
    const double start = seconds();
    for (unsigned long client = 0; client < clients; client++) {
        const pid_t child = fork();
        if (child < 0) {
            give_up("fork");
        }
        if (child == 0) {
            run(mount_point, client, count);
            exit(0);
        }
    }
    for (unsigned long client = 0; client < clients; client++) {
        int one = 0;
        (void)wait(&one);
        status |= one;
    }
    if (status != 0) {
        exit(1);
    }
    printf("%.6f\n", seconds() - start);
}

static void drop(const char *mount_point, const char *directory, unsigned long count)
{
    struct paths paths;
    name_paths(&paths, mount_point, 0, 0);
    make(paths.begin);
    const double start = seconds();
    for (unsigned long i = 0; i < count; i++) {
        char path[4400];
        (void)snprintf(path, sizeof path, "%s/%s/t%lu", paths.begin, directory, i);
        if (unlink(path) != 0) {
            give_up(path);
        }
    }
    const double removed = seconds();
    make(paths.commit);
    printf("%.6f %.6f\n", removed - start, seconds() - removed);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "fill") == 0) {
        fill(argv[2], strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
    } else if (argc == 4 && strcmp(argv[1], "gestures") == 0) {
        gestures(argv[2], strtoul(argv[3], NULL, 10));
    } else if (argc == 5 && strcmp(argv[1], "rows") == 0) {
        rows(argv[2], strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10), commit_rows);
    } else if (argc == 5 && strcmp(argv[1], "single") == 0) {
        rows(argv[2], strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10), append_single_rows);
    } else if (argc == 5 && strcmp(argv[1], "drop") == 0) {
        drop(argv[2], argv[3], strtoul(argv[4], NULL, 10));
    } else {
        fprintf(stderr, "transactions: see the head of bench/transactions.c\n");
        return 2;
    }
    return 0;
}
