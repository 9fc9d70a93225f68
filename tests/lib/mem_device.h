/*
 * tests/lib/mem_device.h - an io_device in memory, for tests.
 *
 * A tree of directories and sparse files, a clock and a source of randomness that do the same on every run. It counts
 * what it is asked, runs full at a capacity, and fails on demand. It answers as a Linux filesystem would (errno by
 * errno; tests/unit/base/test_mem_device.c compares it with one).
 *
 * It forgets nothing by itself: sync only counts. Crash states are built on top of it, from the hook (which sees each
 * call before it takes effect) and clones.
 *
 * Thread-safe: one lock inside, held for the memory work of each call. The hook is called without it. Files are closed
 * before their device is destroyed.
 */
#ifndef TBLFS_TESTS_LIB_MEM_DEVICE_H
#define TBLFS_TESTS_LIB_MEM_DEVICE_H

#include "base/io.h"

struct mem_device;

/* What can be counted and made to fail. */
enum mem_call {
    MEM_CALL_OPEN,
    MEM_CALL_CLOSE,
    MEM_CALL_READ,
    MEM_CALL_WRITE,
    MEM_CALL_SYNC,
    MEM_CALL_SYNC_FILESYSTEM,
    MEM_CALL_TRUNCATE,
    MEM_CALL_ALLOCATE,
    MEM_CALL_PUNCH,
    MEM_CALL_STAT, /* by path and by file */
    MEM_CALL_LOCK,
    MEM_CALL_UNLINK,
    MEM_CALL_RENAME,
    MEM_CALL_MAKE_DIR,
    MEM_CALL_REMOVE_DIR,
    MEM_CALL_SYNC_DIR,
    MEM_CALL_LIST_DIR,
    MEM_CALL_SPACE,
    MEM_CALL_RANDOM,
    MEM_CALL_COUNT,
};

struct mem_counters {
    uint64_t calls[MEM_CALL_COUNT]; /* failed ones included */
    uint64_t read_bytes;
    uint64_t written_bytes;
    uint64_t open_files; /* now */
};

/* What a call is about to do, for the hook. */
struct mem_event {
    enum mem_call call;
    uint64_t number;         /* calls of all kinds so far, this one included */
    const char *path;        /* of the file when it was opened, or the path given; never NULL, "" when there is none */
    const char *to;          /* rename only, else NULL */
    const struct iovec *iov; /* MEM_CALL_WRITE only: the data */
    int iov_count;
    uint64_t offset_bytes;
    uint64_t size_bytes; /* asked for */
};

/* Called before each call takes effect; a negative errno is the call's result, and it has no effect. Called by several
 * threads at once if the device is used by several. It may use the mem_device_* functions, not the device itself. */
typedef int mem_hook_fn(void *arg, const struct mem_event *event);

/* Aborts when out of memory, as all of these functions do. */
struct mem_device *mem_device_create(uint64_t seed);
void mem_device_destroy(struct mem_device *mem);

/* A deep copy of the files, directories, clock, randomness and capacity as they are; no open file, lock, fault, hook or
 * count comes along. Files that were unlinked but open are left out. */
struct mem_device *mem_device_clone(struct mem_device *mem);

/* What the module under test is given; it lives as long as the mem_device. */
struct io_device *mem_device_io(struct mem_device *mem);

void mem_device_counters(struct mem_device *mem, struct mem_counters *out_counters);
void mem_device_counters_reset(struct mem_device *mem);
const char *mem_call_name(enum mem_call call);

/* Bytes that files may occupy, in whole blocks of BLOCK_SIZE; 0: no limit. Writes that do not fit are short, then
 * -ENOSPC; allocate takes all or nothing. */
void mem_device_set_capacity(struct mem_device *mem, uint64_t capacity_bytes);
uint64_t mem_device_used_bytes(struct mem_device *mem);

/* The nth call of this kind from now on (1: the next) fails with -error, with for_ever all later ones too. One fault
 * for each kind; nth 0 takes it away. Close closes all the same. */
void mem_device_fail(struct mem_device *mem, enum mem_call call, uint64_t nth, int error, bool for_ever);
void mem_device_clear_faults(struct mem_device *mem);

/* Every read and write of more than one byte transfers a random part only, and one in eight is -EINTR instead. */
void mem_device_set_short_transfers(struct mem_device *mem, bool enabled);

void mem_device_set_hook(struct mem_device *mem, mem_hook_fn *hook, void *arg);

/* The clock stands still but for 1 microsecond per question, and for this. Realtime may be set back. */
void mem_device_advance_ns(struct mem_device *mem, uint64_t ns);
void mem_device_set_realtime_ns(struct mem_device *mem, uint64_t ns);

/* The bytes of a file as they lie in memory, from offset_bytes to the end of its BLOCK_SIZE block (or of the file):
 * *out_run_bytes of them. Makes the block if it was a hole. NULL: no such file, or offset at or behind its end. Valid
 * until the file is next truncated, punched or closed for the last time; not synchronised with other threads. */
uint8_t *mem_device_file_bytes(struct mem_device *mem, const char *path, uint64_t offset_bytes, size_t *out_run_bytes);

/* Makes a file of this content, replacing what was there; its directory must exist. For damaged and foreign files. */
void mem_device_put_file(struct mem_device *mem, const char *path, const void *bytes, size_t size_bytes);

/* True if both hold the same names and contents. */
bool mem_device_equal(struct mem_device *left, struct mem_device *right);

#endif
