/*
 * bench/commits.c - durable small appends by several writers, for bench/durable.
 *
 *     commits files DIRECTORY WRITERS COUNT    each writer (a process) appends COUNT rows to a table of its own, with fsync after each
 *     commits sqlite DATABASE WRITERS COUNT    the same as inserts, each a transaction; WAL, synchronous=FULL
 *
 * Prints the seconds from the first to the last of them. Any error is a message and status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char row[] = "2024-02-29\t4711\tthe quick brown fox\t3.14159\tjumps over the lazy dog\n";

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "commits: %s: %s\n", what, why);
    exit(1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void append_rows(const char *directory, unsigned writer, unsigned long count)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/table%u.tsv", directory, writer);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        give_up(path, strerror(errno));
    }
    for (unsigned long i = 0; i < count; i++) {
        if (write(fd, row, sizeof row - 1) != (ssize_t)sizeof row - 1 || fsync(fd) != 0) {
            give_up(path, strerror(errno));
        }
    }
    close(fd);
}

static void run_sql(sqlite3 *database, const char *sql)
{
    if (sqlite3_exec(database, sql, NULL, NULL, NULL) != SQLITE_OK) {
        give_up(sql, sqlite3_errmsg(database));
    }
}

static sqlite3 *open_database(const char *path)
{
    sqlite3 *database = NULL;
    if (sqlite3_open(path, &database) != SQLITE_OK) {
        give_up(path, sqlite3_errmsg(database));
    }
    sqlite3_busy_timeout(database, 60000);
    run_sql(database, "PRAGMA journal_mode=WAL");
    run_sql(database, "PRAGMA synchronous=FULL");
    return database;
}

static void insert_rows(const char *path, unsigned writer, unsigned long count)
{
    sqlite3 *database = open_database(path);
    sqlite3_stmt *insert = NULL;
    char sql[64];
    (void)snprintf(sql, sizeof sql, "INSERT INTO t%u VALUES (?1)", writer);
    if (sqlite3_prepare_v2(database, sql, -1, &insert, NULL) != SQLITE_OK) {
        give_up(sql, sqlite3_errmsg(database));
    }
    for (unsigned long i = 0; i < count; i++) {
        sqlite3_bind_text(insert, 1, row, -1, SQLITE_STATIC);
        if (sqlite3_step(insert) != SQLITE_DONE || sqlite3_reset(insert) != SQLITE_OK) {
            give_up(sql, sqlite3_errmsg(database));
        }
    }
    sqlite3_finalize(insert);
    sqlite3_close(database);
}

static void make_tables(const char *path, unsigned writers)
{
    sqlite3 *database = open_database(path);
    for (unsigned i = 0; i < writers; i++) {
        char sql[64];
        (void)snprintf(sql, sizeof sql, "CREATE TABLE IF NOT EXISTS t%u (row TEXT)", i);
        run_sql(database, sql);
    }
    sqlite3_close(database);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: commits files|sqlite PATH WRITERS COUNT\n");
        return 2;
    }
    const bool sqlite = strcmp(argv[1], "sqlite") == 0;
    const unsigned writers = (unsigned)strtoul(argv[3], NULL, 10);
    const unsigned long count = strtoul(argv[4], NULL, 10);
    if (sqlite) {
        make_tables(argv[2], writers);
    }
    const double start = seconds();
    for (unsigned i = 0; i < writers; i++) {
        const pid_t pid = fork();
        if (pid < 0) {
            give_up("fork", strerror(errno));
        }
        if (pid == 0) {
            if (sqlite) {
                insert_rows(argv[2], i, count);
            } else {
                append_rows(argv[2], i, count);
            }
            return 0;
        }
    }
    int failed = 0;
    for (unsigned i = 0; i < writers; i++) {
        int status = 0;
        failed |= wait(&status) < 0 || status != 0;
    }
    printf("%.3f\n", seconds() - start);
    return failed;
}
