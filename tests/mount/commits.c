/*
 * tests/mount/commits.c - readers and others beside commits that replace every table, and a client that keeps a directory
 * locked.
 *
 *     commits replace MNT TABLES READERS COMMITTERS ROUNDS [disturbed]
 *     commits hold DIR
 *     commits mapped MNT ROWS
 *
 * replace: table I of MNT/many belongs to committer I modulo COMMITTERS, who gives all of his a new version in one transaction, ROUNDS
 * times, in three ways. A row is the version, and the number of rows follows from it, so that a size tells it, too. What a reader
 * opens is of one version, not older than the last commit that had returned before he began; what he has open stays
 * as it is. Disturbed: tables are exchanged in the live tree, files made and removed beside them, everything is listed, transactions are
 * begun and aborted, and somebody stands in them.
 *
 * hold: lists DIR into memory that does not come, says "holding" when the kernel waits for it, and lets go at the end of
 * its standard input.
 *
 * mapped: stores into the first row of MNT/mapped through a shared mapping while transactions append rows to it, one each. No row is
 * lost, and none of the stores.
 *
 * Exit status 0, or 1 after a line on stderr.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define COMMITTERS_MAX 8u
#define ROW_BYTES      9u
#define ROWS_MIN       100u
#define BYTES_MAX      (ROW_BYTES * 100000u)
#define HELD_BYTES     4096u

struct shared {
    _Atomic uint32_t committed[COMMITTERS_MAX]; /* the last version whose commit has returned */
    _Atomic bool stop;
    _Atomic uint64_t reads, again;
};

static struct shared *shared;
static unsigned tables, committers;
static bool disturbed;

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "commits: %s (errno: %s)\n", what, strerror(errno));
    exit(1);
}

static void must_be(bool condition, const char *what, unsigned table, uint64_t got, uint64_t want)
{
    if (condition)
        return;
    fprintf(stderr, "commits: table %u: %s: %llu, wanted %llu (errno: %s)\n", table, what, (unsigned long long)got,
            (unsigned long long)want, strerror(errno));
    exit(1);
}

static uint32_t random_next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* ---- versions ---- */

static size_t version_bytes(uint32_t version)
{
    return (size_t)ROW_BYTES * (ROWS_MIN + version);
}

static void table_path(char *path, size_t size, const char *tree, unsigned table)
{
    (void)snprintf(path, size, "%s/many/t%u", tree, table);
}

static void write_version(const char *path, uint32_t version)
{
    static char bytes[BYTES_MAX];
    const size_t size = version_bytes(version);
    for (size_t at = 0; at < size; at += ROW_BYTES) {
        char row[ROW_BYTES + 1];
        (void)snprintf(row, sizeof row, "%08u\n", version);
        memcpy(bytes + at, row, ROW_BYTES);
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(fd >= 0, "open for writing");
    must(write(fd, bytes, size) == (ssize_t)size, "write");
    must(close(fd) == 0, "close");
}

/* All of it is of one version, which is returned. */
static uint32_t version_of(unsigned table, const char *bytes, size_t size)
{
    must_be(size >= version_bytes(0), "bytes", table, size, version_bytes(0));
    const uint32_t version = (uint32_t)strtoul(bytes, NULL, 10);
    must_be(size == version_bytes(version), "bytes", table, size, version_bytes(version));
    for (size_t at = ROW_BYTES; at < size; at += ROW_BYTES)
        must_be(memcmp(bytes, bytes + at, ROW_BYTES) == 0, "row", table, strtoul(bytes + at, NULL, 10), version);
    return version;
}

/* ---- readers ---- */

static uint32_t read_open(unsigned table, int fd)
{
    static char bytes[BYTES_MAX];
    size_t size = 0;
    for (;;) {
        const ssize_t got = pread(fd, bytes + size, 700, (off_t)size);
        must_be(got >= 0, "read", table, 0, 0);
        if (got == 0)
            break;
        size += (size_t)got;
        must_be(size < sizeof bytes - 700, "size", table, size, sizeof bytes);
    }
    bytes[size] = '\0';
    return version_of(table, bytes, size);
}

static uint32_t map_open(unsigned table, int fd)
{
    struct stat stat_out;
    must_be(fstat(fd, &stat_out) == 0, "fstat", table, 0, 0);
    const size_t size = (size_t)stat_out.st_size;
    char *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    must_be(bytes != MAP_FAILED, "mmap", table, size, 0);
    const uint32_t version = version_of(table, bytes, size);
    (void)munmap(bytes, size);
    return version;
}

static uint32_t fstat_open(unsigned table, int fd)
{
    struct stat stat_out;
    must_be(fstat(fd, &stat_out) == 0, "fstat", table, 0, 0);
    return (uint32_t)((size_t)stat_out.st_size / ROW_BYTES) - ROWS_MIN;
}

static void read_table(const char *mnt, unsigned table, uint32_t choice)
{
    char path[256];
    table_path(path, sizeof path, mnt, table);
    const uint32_t least = shared->committed[table % committers];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    must_be(fd >= 0, "open", table, 0, least);
    const uint32_t version = (choice & 1) != 0 ? read_open(table, fd) : map_open(table, fd);
    must_be(version >= least, "an old version", table, version, least);
    const uint32_t sized = fstat_open(table, fd);
    must_be(sized == version, "size of an open file", table, sized, version);
    const uint32_t again = (choice & 2) != 0 ? read_open(table, fd) : map_open(table, fd);
    must_be(again == version, "an open file changed", table, again, version);
    (void)close(fd);
}

static void stat_table(const char *mnt, unsigned table)
{
    char path[256];
    struct stat stat_out;
    table_path(path, sizeof path, mnt, table);
    const uint32_t least = shared->committed[table % committers];
    must_be(stat(path, &stat_out) == 0, "stat", table, 0, least);
    const uint32_t version = (uint32_t)((size_t)stat_out.st_size / ROW_BYTES) - ROWS_MIN;
    must_be(version >= least, "an old size", table, version, least);
}

static void list_tables(const char *mnt)
{
    char path[256];
    unsigned found = 0;
    (void)snprintf(path, sizeof path, "%s/many", mnt);
    DIR *dir = opendir(path);
    must(dir != NULL, "opendir");
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        found += entry->d_name[0] == 't' ? 1u : 0u;
    (void)closedir(dir);
    must_be(disturbed || found == tables, "names listed", 0, found, tables);
}

static void read_on(const char *mnt, uint32_t seed)
{
    while (!shared->stop) {
        const uint32_t choice = random_next(&seed);
        const unsigned table = (choice >> 8) % tables;
        if (choice % 16 == 0)
            list_tables(mnt);
        else if (choice % 4 == 1)
            stat_table(mnt, table);
        else
            read_table(mnt, table, choice >> 4);
        shared->reads++;
    }
}

/* ---- committers ---- */

static void replace_table(const char *tree, unsigned table, uint32_t version)
{
    char path[256], fresh[300];
    table_path(path, sizeof path, tree, table);
    (void)snprintf(fresh, sizeof fresh, "%s.new", path);
    switch ((version + table) % 3) {
    case 0:
        write_version(path, version);
        break;
    case 1:
        write_version(fresh, version);
        must(rename(fresh, path) == 0, "rename over");
        break;
    default:
        must(unlink(path) == 0, "unlink");
        write_version(path, version);
        break;
    }
}

static void show_conflicts(const char *tree)
{
    char path[160], text[1000];
    (void)snprintf(path, sizeof path, "%s/.tblfs/conflicts", tree);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text);
    fprintf(stderr, "%.*s", (int)(got > 0 ? got : 0), text);
    (void)close(fd);
}

static bool commit_version(const char *mnt, unsigned committer, uint32_t version)
{
    char tree[128], gesture[160];
    (void)snprintf(tree, sizeof tree, "%s/.txn/c%u", mnt, committer);
    (void)snprintf(gesture, sizeof gesture, "%s/.commit", tree);
    must(mkdir(tree, 0755) == 0, "begin");
    for (unsigned table = committer; table < tables; table += committers)
        replace_table(tree, table, version);
    if (mkdir(gesture, 0755) == 0) {
        must(access(tree, F_OK) != 0 && errno == ENOENT, "it is still there");
        return true;
    }
    const int error = errno;
    if (error == EAGAIN && !disturbed)
        show_conflicts(tree);
    errno = error;
    must(error == EAGAIN && disturbed, "commit");
    must(rmdir(tree) == 0, "abort");
    shared->again++;
    return false;
}

static void commit_on(const char *mnt, unsigned committer, unsigned rounds)
{
    for (uint32_t version = 1; version <= rounds;) {
        if (!commit_version(mnt, committer, version))
            continue;
        shared->committed[committer] = version;
        version++;
    }
}

/* ---- disturbers ---- */

static void pause_ms(long duration_ms)
{
    const struct timespec duration = {.tv_nsec = duration_ms * 1000000};
    (void)nanosleep(&duration, NULL);
}

/* Two tables of one owner have the same version. */
static void exchange_tables(const char *mnt, uint32_t choice)
{
    char from[256], to[256];
    const unsigned table = choice % tables;
    table_path(from, sizeof from, mnt, table);
    table_path(to, sizeof to, mnt,
               (table + committers) % tables < committers ? table % committers : table + committers);
    const int rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
    must(rc == 0, "exchange");
    pause_ms(20);
}

static void make_and_remove(const char *mnt, uint32_t choice)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/many/x%u-%u", mnt, (unsigned)getpid(), choice % 10);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    must(fd >= 0, "create");
    (void)close(fd);
    must(unlink(path) == 0, "unlink what was just made");
    pause_ms(1);
}

static int look(const char *path, const struct stat *stat_out, int type, struct FTW *ftw)
{
    (void)path;
    (void)stat_out;
    (void)type;
    (void)ftw;
    return shared->stop ? 1 : 0;
}

static void list_everything(const char *mnt, uint32_t choice)
{
    (void)choice;
    (void)nftw(mnt, look, 10, FTW_PHYS);
}

static void begin_and_abort(const char *mnt, uint32_t choice)
{
    char tree[128], path[160];
    (void)snprintf(tree, sizeof tree, "%s/.txn/a%u", mnt, (unsigned)getpid());
    (void)snprintf(path, sizeof path, "%s/many/t%u", tree, choice % tables);
    must(mkdir(tree, 0755) == 0, "begin");
    write_version(path, 99999 % 1000);
    must(rmdir(tree) == 0, "abort");
    must(access(tree, F_OK) != 0, "aborted, and still there");
}

/* What it finds there ends under its feet. */
static void stand_in_one(const char *mnt, uint32_t choice)
{
    char tree[128];
    (void)snprintf(tree, sizeof tree, "%s/.txn/c%u", mnt, choice % committers);
    if (chdir(tree) == 0) {
        struct stat stat_out;
        for (unsigned times = 0; times < 20; times++) {
            (void)stat("many/t0", &stat_out);
            pause_ms(1);
        }
    }
    must(chdir("/") == 0, "chdir");
}

typedef void disturb_fn(const char *mnt, uint32_t choice);
static disturb_fn *const disturbers[] = {exchange_tables, make_and_remove, list_everything, begin_and_abort,
                                         stand_in_one};

static void disturb_on(const char *mnt, disturb_fn *disturb, uint32_t seed)
{
    while (!shared->stop)
        disturb(mnt, random_next(&seed));
}

/* ---- all of them ---- */

static pid_t children[256];
static unsigned child_count;

static bool become_child(void)
{
    const pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        return true;
    }
    children[child_count++] = pid;
    return false;
}

/* False: one of them failed, and has said so. */
static bool wait_for(unsigned first, unsigned end)
{
    bool good = true;
    for (unsigned index = first; index < end; index++) {
        int status;
        must(waitpid(children[index], &status, 0) == children[index], "waitpid");
        good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return good;
}

static void make_tables(const char *mnt)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/many", mnt);
    must(mkdir(path, 0755) == 0, "mkdir");
    for (unsigned table = 0; table < tables; table++) {
        table_path(path, sizeof path, mnt, table);
        write_version(path, 0);
    }
}

static int run_replace(int argc, char **argv)
{
    must(argc >= 5, "arguments");
    const char *mnt = argv[0];
    const unsigned readers = (unsigned)atoi(argv[2]), rounds = (unsigned)atoi(argv[4]);
    tables = (unsigned)atoi(argv[1]);
    committers = (unsigned)atoi(argv[3]);
    disturbed = argc > 5;
    must(committers >= 1 && committers <= COMMITTERS_MAX && tables % committers == 0 && readers < 200, "arguments");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    make_tables(mnt);
    for (unsigned index = 0; index < committers; index++) {
        if (become_child()) {
            commit_on(mnt, index, rounds);
            exit(0);
        }
    }
    for (unsigned index = 0; index < readers; index++) {
        if (become_child()) {
            read_on(mnt, 12345 + 77 * index);
            exit(0);
        }
    }
    for (size_t index = 0; disturbed && index < sizeof disturbers / sizeof disturbers[0]; index++) {
        if (become_child()) {
            disturb_on(mnt, disturbers[index], 999 + (uint32_t)index);
            exit(0);
        }
    }
    bool good = wait_for(0, committers);
    shared->stop = true;
    good = wait_for(committers, child_count) && good;
    for (unsigned table = 0; table < tables && good; table++)
        read_table(mnt, table, 3);
    printf("%llu reads, %llu commits tried again\n", (unsigned long long)shared->reads,
           (unsigned long long)shared->again);
    return good ? 0 : 1;
}

/* ---- a directory that is kept locked ---- */

struct held {
    const char *path;
    void *memory;
};

static void *list_into(void *arg)
{
    const struct held *held = arg;
    const int fd = open(held->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(fd >= 0, "open directory");
    (void)syscall(SYS_getdents64, fd, held->memory, HELD_BYTES);
    (void)close(fd);
    return NULL;
}

static int open_userfaultfd(void *memory)
{
    const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {.start = (uintptr_t)memory, .len = HELD_BYTES},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0) {
        fprintf(stderr, "commits: no userfaultfd here: %s\n", strerror(errno));
        exit(77);
    }
    return fd;
}

static int run_hold(int argc, char **argv)
{
    pthread_t thread;
    struct uffd_msg message;
    char byte;
    must(argc == 1, "arguments");
    struct held held = {.path = argv[0]};
    held.memory = mmap(NULL, HELD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(held.memory != MAP_FAILED, "mmap");
    const int fd = open_userfaultfd(held.memory);
    must(pthread_create(&thread, NULL, list_into, &held) == 0, "thread");
    must(read(fd, &message, sizeof message) == (ssize_t)sizeof message, "fault");
    printf("holding\n");
    must(fflush(stdout) == 0, "stdout");
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    struct uffdio_zeropage zero = {.range = {.start = (uintptr_t)held.memory, .len = HELD_BYTES}};
    must(ioctl(fd, UFFDIO_ZEROPAGE, &zero) == 0, "zero page");
    must(pthread_join(thread, NULL) == 0, "join");
    return 0;
}

/* ---- stores beside merged rows ---- */

#define FIRST_ROW_BYTES 64u
#define MAPPED_BYTES    8192u

static void store_on(const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    must(fd >= 0, "open for mapping");
    char *bytes = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(bytes != MAP_FAILED, "mmap");
    for (unsigned turn = 0; !shared->stop; turn++) {
        memset(bytes, 'a' + (char)(turn % 26), FIRST_ROW_BYTES - 1);
        must(msync(bytes, MAPPED_BYTES, MS_SYNC) == 0, "msync");
        shared->reads++;
    }
    memset(bytes, 'Z', FIRST_ROW_BYTES - 1);
    must(munmap(bytes, MAPPED_BYTES) == 0 && close(fd) == 0, "close");
}

static void append_in_transaction(const char *mnt, unsigned row)
{
    char tree[128], path[160], text[32];
    (void)snprintf(tree, sizeof tree, "%s/.txn/m%u", mnt, row);
    must(mkdir(tree, 0755) == 0, "begin");
    (void)snprintf(path, sizeof path, "%s/mapped", tree);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    must(fd >= 0, "open for appending");
    const int size = snprintf(text, sizeof text, "%020u\n", row);
    must(write(fd, text, (size_t)size) == size && close(fd) == 0, "append");
    (void)snprintf(path, sizeof path, "%s/.commit", tree);
    if (mkdir(path, 0755) == 0)
        return;
    must(errno == EAGAIN, "commit"); /* a store came meanwhile: that is a change, and no append */
    must(rmdir(tree) == 0, "abort");
    shared->again++;
    append_in_transaction(mnt, row);
}

static void must_have_rows(const char *path, unsigned rows)
{
    static char bytes[BYTES_MAX];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
    must_be(size == (ssize_t)(FIRST_ROW_BYTES + 21u * rows), "bytes", 0, (uint64_t)size, FIRST_ROW_BYTES + 21u * rows);
    for (unsigned at = 0; at < FIRST_ROW_BYTES - 1; at++)
        must_be(bytes[at] == 'Z', "stored bytes", at, (unsigned char)bytes[at], 'Z');
    for (unsigned row = 0; row < rows; row++) {
        const unsigned long found = strtoul(bytes + FIRST_ROW_BYTES + 21u * row, NULL, 10);
        must_be(found == row, "row", row, found, row);
    }
    (void)close(fd);
}

static int run_mapped(int argc, char **argv)
{
    char path[160];
    must(argc == 2, "arguments");
    const unsigned rows = (unsigned)atoi(argv[1]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    (void)snprintf(path, sizeof path, "%s/mapped", argv[0]);
    FILE *file = fopen(path, "we");
    must(file != NULL && fprintf(file, "%063u\n", 0u) == FIRST_ROW_BYTES && fclose(file) == 0, "first row");
    if (become_child()) {
        store_on(path);
        exit(0);
    }
    for (unsigned row = 0; row < rows; row++)
        append_in_transaction(argv[0], row);
    shared->stop = true;
    must(wait_for(0, 1), "the storing process");
    must_have_rows(path, rows);
    printf("%llu stores, %llu commits tried again\n", (unsigned long long)shared->reads,
           (unsigned long long)shared->again);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "replace") == 0)
        return run_replace(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "hold") == 0)
        return run_hold(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "mapped") == 0)
        return run_mapped(argc - 2, argv + 2);
    fprintf(stderr, "commits: see the top of tests/mount/commits.c\n");
    return 1;
}
