/*
 * bench/small_tables.c - makes tables and fills them, a row of one block at a time: what bench/small_tables times.
 *
 *     small_tables fill DIRECTORY TABLES BLOCKS   each is created, gets BLOCKS rows that fill a block each, and is closed
 *     small_tables append DIRECTORY TABLES 1      each gets one more
 *
 * One write(2) for each row; the last table is synced, which makes all of them durable in tblfs. Prints the milliseconds that it took. Any error
 * is a message and status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROW_BYTES 8152u /* what a leaf holds */

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "small_tables: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void add_rows(int directory, unsigned number, unsigned blocks, int flags, const char *row, int last)
{
    char name[32];
    snprintf(name, sizeof name, "t%u", number);
    const int fd = openat(directory, name, O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644);
    if (fd < 0)
        give_up(name);
    for (unsigned block = 0; block < blocks; block++) {
        if (write(fd, row, ROW_BYTES) != ROW_BYTES)
            give_up("write");
    }
    if (last && fsync(fd) != 0)
        give_up("fsync");
    if (close(fd) != 0)
        give_up("close");
}

int main(int argc, char **argv)
{
    static char row[ROW_BYTES];
    if (argc != 5) {
        fprintf(stderr, "usage: small_tables fill|append DIRECTORY TABLES BLOCKS\n");
        return 2;
    }
    const int flags = strcmp(argv[1], "fill") == 0 ? O_CREAT | O_EXCL : 0;
    const unsigned tables = (unsigned)strtoul(argv[3], NULL, 10);
    const unsigned blocks = (unsigned)strtoul(argv[4], NULL, 10);
    const int directory = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        give_up(argv[2]);
    memset(row, 'x', sizeof row);
    row[sizeof row - 1] = '\n';
    const double start = milliseconds();
    for (unsigned number = 0; number < tables; number++)
        add_rows(directory, number, blocks, flags, row, number + 1 == tables);
    printf("%.3f\n", milliseconds() - start);
    return 0;
}
