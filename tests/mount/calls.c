/*
 * tests/mount/calls.c - system calls that the shell cannot make, for the tests on a mount.
 *
 *     calls exchange A B | noreplace A B | whiteout A B     renameat2
 *     calls tmpfile DIR                                     open with O_TMPFILE
 *     calls append FILE WRITERS ROWS                        concurrent O_APPEND writers, rows of many lengths
 *     calls append-later FILE                               O_APPEND set by fcntl behind a buffered open
 *     calls unlinked FILE                                   everything on an open file without a name
 *     calls mapped FILE                                     MAP_SHARED and read(2), write(2), truncate
 *     calls mapped-append FILE ROWS                         stores through MAP_SHARED beside >>
 *     calls mapped-direct FILE                              MAP_SHARED on an O_APPEND descriptor
 *     calls delete-all DIR                                  unlinks while listing; prints how many
 *     calls seek FILE                                       prints data and hole offsets
 *     calls fsync FILE CLIENTS ROWS                         all append rows and fsync each; every other one by O_DSYNC
 *     calls sync-append FILE ROWS                           appends rows with O_DSYNC, then with RWF_DSYNC
 *
 * Exit status 0, or 1 after a line on stderr.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROW_MAX      20000u
#define MAPPED_BYTES (1u << 22)

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "calls: %s (errno: %s)\n", what, strerror(errno));
    exit(1);
}

static int rename_with(unsigned flags, char **argv)
{
    must(renameat2(AT_FDCWD, argv[0], AT_FDCWD, argv[1], flags) == 0, "renameat2");
    return 0;
}

static int run_exchange(char **argv)
{
    return rename_with(RENAME_EXCHANGE, argv);
}

static int run_noreplace(char **argv)
{
    return rename_with(RENAME_NOREPLACE, argv);
}

static int run_whiteout(char **argv)
{
    return rename_with(RENAME_WHITEOUT, argv);
}

static int run_tmpfile(char **argv)
{
    must(open(argv[0], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) < 0 && errno == EOPNOTSUPP, "O_TMPFILE");
    return 0;
}

/* Row `row` of a writer: "WRITER ROW LENGTH xxxx...\n"; every 50th is long. */
static size_t make_row(char *bytes, unsigned writer, unsigned row)
{
    const size_t length = row % 50 == 7 ? 9000 + (writer * 131 + row * 17) % 8000 : 20 + (writer * 7 + row * 13) % 300;
    int head = snprintf(bytes, ROW_MAX, "%u\t%u\t%zu\t", writer, row, length);
    memset(bytes + head, 'a' + (char)(writer % 26), length);
    bytes[(size_t)head + length] = '\n';
    return (size_t)head + length + 1;
}

/* As a shell's >> does: opens, appends one row, closes. */
static void append_rows_reopening(const char *path, unsigned writer, unsigned rows)
{
    char *bytes = malloc(ROW_MAX);
    must(bytes != NULL, "malloc");
    for (unsigned row = 0; row < rows; row++) {
        const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        const size_t size = make_row(bytes, writer, row);
        must(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0, "append");
    }
    free(bytes);
}

static void append_rows(const char *path, unsigned writer, unsigned rows)
{
    char *bytes = malloc(ROW_MAX);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    must(fd >= 0 && bytes != NULL, "open to append");
    for (unsigned row = 0; row < rows; row++) {
        const size_t size = make_row(bytes, writer, row);
        must(write(fd, bytes, size) == (ssize_t)size, "append");
    }
    must(close(fd) == 0, "close");
    free(bytes);
}

static int run_append(char **argv)
{
    const unsigned writers = (unsigned)atoi(argv[1]), rows = (unsigned)atoi(argv[2]);
    for (unsigned writer = 0; writer < writers; writer++) {
        const pid_t pid = fork();
        must(pid >= 0, "fork");
        if (pid == 0) {
            append_rows(argv[0], writer, rows);
            exit(0);
        }
    }
    bool good = true;
    for (unsigned writer = 0; writer < writers; writer++) {
        int status;
        must(wait(&status) > 0, "wait");
        good = good && status == 0;
    }
    must(good, "a writer failed");
    return 0;
}

static int run_append_later(char **argv)
{
    const int fd = open(argv[0], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const int other = open(argv[0], O_WRONLY | O_CLOEXEC);
    must(fd >= 0 && other >= 0, "open");
    must(write(fd, "first\n", 6) == 6, "write");
    must(fcntl(other, F_SETFL, O_APPEND) == 0, "F_SETFL");
    must(write(other, "second\n", 7) == 7, "append");
    must(pwrite(other, "third\n", 6, 0) == 6, "pwrite appends too");
    must(close(fd) == 0 && close(other) == 0, "close");
    return 0;
}

static int run_unlinked(char **argv)
{
    struct stat stat_out;
    char bytes[16] = "";
    const int fd = open(argv[0], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    const int other = open(argv[0], O_WRONLY | O_APPEND | O_CLOEXEC);
    must(fd >= 0 && other >= 0, "open");
    must(write(fd, "before\n", 7) == 7, "write");
    must(unlink(argv[0]) == 0, "unlink");
    must(fstat(fd, &stat_out) == 0 && stat_out.st_nlink == 0 && stat_out.st_size == 7, "fstat: nlink 0, size 7");
    must(write(other, "after\n", 6) == 6, "append");
    must(pread(fd, bytes, sizeof bytes, 0) == 13 && memcmp(bytes, "before\nafter\n", 13) == 0, "read back");
    must(ftruncate(fd, 3) == 0, "ftruncate");
    must(fchmod(fd, 0600) == 0, "fchmod");
    must(fsync(fd) == 0, "fsync");
    must(fstat(fd, &stat_out) == 0 && stat_out.st_size == 3 && (stat_out.st_mode & 0777) == 0600, "fstat after");
    must(access(argv[0], F_OK) != 0 && errno == ENOENT, "the name is gone");
    const int again = open(argv[0], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    must(again >= 0 && fstat(again, &stat_out) == 0 && stat_out.st_size == 0, "a new file of that name is empty");
    must(pread(fd, bytes, sizeof bytes, 0) == 3, "the old one goes on");
    must(close(fd) == 0 && close(other) == 0 && close(again) == 0, "close");
    return 0;
}

static int run_mapped(char **argv)
{
    const size_t size = 100000;
    char *bytes = calloc(1, size);
    const int fd = open(argv[0], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(fd >= 0 && bytes != NULL && ftruncate(fd, (off_t)size) == 0, "make");
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(map != MAP_FAILED, "mmap");
    for (size_t at = 0; at < size; at++)
        map[at] = (char)('a' + at % 26);
    must(pread(fd, bytes, size, 0) == (ssize_t)size && memcmp(bytes, map, size) == 0, "read sees the stores");
    must(msync(map, size, MS_SYNC) == 0, "msync");
    must(pwrite(fd, "WRITTEN", 7, 4090) == 7, "pwrite");
    must(memcmp(map + 4090, "WRITTEN", 7) == 0, "the mapping sees the write");
    must(munmap(map, size) == 0 && close(fd) == 0, "close");
    free(bytes);
    return 0;
}

/* Dirties the page that the file ends in, without changing a byte of it. */
static void touch_last_page(int fd, volatile char *map)
{
    struct stat stat_out;
    must(fstat(fd, &stat_out) == 0, "fstat");
    const off_t page = (stat_out.st_size - 1) / 4096 * 4096;
    map[page] = map[page];
}

/* A mapper changes the first page and dirties the last again and again, while rows arrive by append. */
static int run_mapped_append(char **argv)
{
    const unsigned rows = (unsigned)atoi(argv[1]);
    const int fd = open(argv[0], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(fd >= 0 && write(fd, "head....\n", 9) == 9, "make");
    char *map = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(map != MAP_FAILED, "mmap");
    const pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        append_rows_reopening(argv[0], 1, rows);
        exit(0);
    }
    int status = 0;
    for (unsigned turn = 0; waitpid(pid, &status, WNOHANG) == 0; turn++) {
        map[turn % 8] = (char)('A' + turn % 26);
        touch_last_page(fd, map);
        must(turn % 8 != 0 || msync(map, MAPPED_BYTES, MS_SYNC) == 0, "msync");
    }
    must(status == 0, "the appender failed");
    must(munmap(map, MAPPED_BYTES) == 0 && close(fd) == 0, "close");
    return 0;
}

static int run_mapped_direct(char **argv)
{
    const int fd = open(argv[0], O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    char byte = 0;
    must(fd >= 0 && write(fd, "0123456789\n", 11) == 11, "make");
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED && errno == ENODEV)
        return 0; /* kernels before 6.6 */
    must(map != MAP_FAILED && memcmp(map, "0123456789\n", 11) == 0, "mmap");
    must(pread(fd, &byte, 1, 3) == 1 && byte == '3', "pread");
    must(munmap(map, 4096) == 0 && close(fd) == 0, "close");
    return 0;
}

static int run_delete_all(char **argv)
{
    DIR *dir = opendir(argv[0]);
    unsigned long count = 0;
    must(dir != NULL, "opendir");
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        must(unlinkat(dirfd(dir), entry->d_name, 0) == 0, "unlink of what was listed");
        count++;
    }
    must(closedir(dir) == 0, "closedir");
    printf("%lu\n", count);
    return 0;
}

static int run_seek(char **argv)
{
    const int fd = open(argv[0], O_RDONLY | O_CLOEXEC);
    must(fd >= 0, "open");
    off_t at = 0;
    for (int whence = SEEK_DATA;; whence = whence == SEEK_DATA ? SEEK_HOLE : SEEK_DATA) {
        at = lseek(fd, at, whence);
        if (at < 0)
            break;
        printf("%s %lld\n", whence == SEEK_DATA ? "data" : "hole", (long long)at);
    }
    must(errno == ENXIO && close(fd) == 0, "lseek ends with ENXIO");
    return 0;
}

/* Waits for the start, then appends rows and syncs each: with fsync in one file, or, since the kernel lets only one write
 * at a time extend a file, with O_DSYNC in a file of its own. */
static void sync_rows(const char *path, unsigned client, unsigned rows, int start_fd)
{
    const bool by_flag = client % 2 == 1;
    char byte, bytes[64], *own = NULL;
    must(asprintf(&own, by_flag ? "%s.%u" : "%s", path, client) > 0, "asprintf");
    const int fd = open(own, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (by_flag ? O_DSYNC : 0), 0644);
    must(fd >= 0, "open to append");
    must(read(start_fd, &byte, 1) == 0, "start");
    for (unsigned row = 0; row < rows; row++) {
        const int size = snprintf(bytes, sizeof bytes, "%u\t%u\n", client, row);
        must(write(fd, bytes, (size_t)size) == size, "append");
        must(by_flag || fsync(fd) == 0, "fsync");
    }
    must(close(fd) == 0, "close");
    free(own);
}

static int run_fsync(char **argv)
{
    const unsigned clients = (unsigned)atoi(argv[1]), rows = (unsigned)atoi(argv[2]);
    int start[2], status;
    bool good = true;
    must(pipe(start) == 0, "pipe");
    for (unsigned client = 0; client < clients; client++) {
        const pid_t pid = fork();
        must(pid >= 0, "fork");
        if (pid == 0) {
            must(close(start[1]) == 0, "close");
            sync_rows(argv[0], client, rows, start[0]);
            exit(0);
        }
    }
    must(close(start[1]) == 0, "close"); /* lets all of them go */
    for (unsigned client = 0; client < clients; client++) {
        must(wait(&status) > 0, "wait");
        good = good && status == 0;
    }
    must(good, "a client failed");
    return 0;
}

static int run_sync_append(char **argv)
{
    const unsigned rows = (unsigned)atoi(argv[1]);
    const struct iovec row = {.iov_base = "row\n", .iov_len = 4};
    const int by_flag = open(argv[0], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_DSYNC, 0644);
    const int plain = open(argv[0], O_WRONLY | O_APPEND | O_CLOEXEC);
    must(by_flag >= 0 && plain >= 0, "open");
    for (unsigned i = 0; i < rows; i++) {
        must(write(by_flag, "row\n", 4) == 4, "write with O_DSYNC");
        must(pwritev2(plain, &row, 1, 0, RWF_DSYNC) == 4, "pwritev2 with RWF_DSYNC");
    }
    must(close(by_flag) == 0 && close(plain) == 0, "close");
    return 0;
}

static const struct {
    const char *name;
    int arguments;
    int (*run)(char **argv);
} commands[] = {
    {"exchange", 2, run_exchange},
    {"noreplace", 2, run_noreplace},
    {"whiteout", 2, run_whiteout},
    {"tmpfile", 1, run_tmpfile},
    {"append", 3, run_append},
    {"append-later", 1, run_append_later},
    {"unlinked", 1, run_unlinked},
    {"mapped", 1, run_mapped},
    {"mapped-append", 2, run_mapped_append},
    {"mapped-direct", 1, run_mapped_direct},
    {"delete-all", 1, run_delete_all},
    {"seek", 1, run_seek},
    {"fsync", 3, run_fsync},
    {"sync-append", 2, run_sync_append},
};

int main(int argc, char **argv)
{
    for (size_t index = 0; argc > 1 && index < sizeof commands / sizeof commands[0]; index++) {
        if (strcmp(argv[1], commands[index].name) == 0 && argc == commands[index].arguments + 2)
            return commands[index].run(argv + 2);
    }
    fprintf(stderr, "calls: no such command, or wrong number of arguments\n");
    return 2;
}
