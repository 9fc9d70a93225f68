/*
 * tests/lib/mem_device.c - an io_device in memory: calls, counters, faults, clock.
 *
 * Every call goes through call_begin, which counts, fails on demand and asks the hook, and then does its work on the
 * mem_tree under mem->lock.
 *
 * Locking: mem->lock guards everything in struct mem_device; a mem_file's own fields never change. The lock is a plain
 * mutex outside of the ranks: nothing is taken under it, and the engine calls the device under locks of its own.
 */
#include "tests/lib/mem_device.h"

#include "tests/lib/mem_tree.h"
#include "tests/lib/test_support.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fault {
    uint64_t countdown; /* 0: none */
    int error;
    bool for_ever;
};

struct mem_device {
    struct io_device dev;
    pthread_mutex_t lock;
    struct mem_tree tree;
    struct mem_counters counters;
    uint64_t call_number;
    struct fault faults[MEM_CALL_COUNT];
    mem_hook_fn *hook;
    void *hook_arg;
    struct test_random random;
    uint64_t monotonic_ns;
    uint64_t realtime_offset_ns; /* wraps: realtime may be set back */
    bool short_transfers;
};

struct mem_file {
    struct io_file file;
    struct mem_inode *inode;
    char *path;
    bool writable;
};

static struct mem_device *mem_of(struct io_device *dev)
{
    return (struct mem_device *)dev;
}

static struct mem_device *mem_of_file(struct io_file *file)
{
    return mem_of(file->dev);
}

static struct mem_file *file_of(struct io_file *file)
{
    return (struct mem_file *)file;
}

static void lock(struct mem_device *mem)
{
    pthread_mutex_lock(&mem->lock);
}

static void unlock(struct mem_device *mem)
{
    pthread_mutex_unlock(&mem->lock);
}

static void *must_have(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

/* ---- counting and failing ---- */

static int fault_take_locked(struct mem_device *mem, enum mem_call call)
{
    struct fault *fault = &mem->faults[call];
    if (fault->countdown == 0)
        return 0;
    if (fault->countdown > 1) {
        fault->countdown--;
        return 0;
    }
    if (!fault->for_ever)
        fault->countdown = 0;
    return -fault->error;
}

static int call_begin(struct mem_device *mem, struct mem_event *event)
{
    lock(mem);
    mem->counters.calls[event->call]++;
    event->number = ++mem->call_number;
    const int result = fault_take_locked(mem, event->call);
    mem_hook_fn *hook = mem->hook;
    void *arg = mem->hook_arg;
    unlock(mem);
    if (result == 0 && hook)
        return hook(arg, event);
    return result;
}

static int call_begin_path(struct mem_device *mem, enum mem_call call, const char *path)
{
    struct mem_event event = {.call = call, .path = path};
    return call_begin(mem, &event);
}

static int call_begin_file(struct io_file *file, enum mem_call call, uint64_t offset_bytes, uint64_t size_bytes)
{
    struct mem_event event = {
        .call = call, .path = file_of(file)->path, .offset_bytes = offset_bytes, .size_bytes = size_bytes};
    return call_begin(mem_of_file(file), &event);
}

/* ---- files ---- */

static int open_locked(struct mem_device *mem, const char *path, unsigned flags, struct mem_inode **out_inode)
{
    struct mem_place place;
    const int result = mem_tree_find(&mem->tree, path, &place);
    if (result < 0)
        return result;
    struct mem_inode *inode = place.inode;
    if (inode && (flags & IO_CREATE) && (flags & IO_EXCLUSIVE))
        return -EEXIST;
    if (!inode && !(flags & IO_CREATE))
        return -ENOENT;
    if (!inode)
        inode = mem_tree_make(&place, IO_KIND_FILE);
    if (inode->kind == IO_KIND_DIRECTORY && (flags & (IO_READ_WRITE | IO_CREATE | IO_TRUNCATE)))
        return -EISDIR;
    if (flags & IO_TRUNCATE)
        (void)mem_inode_truncate(&mem->tree, inode, 0);
    inode->references++;
    mem->counters.open_files++;
    *out_inode = inode;
    return 0;
}

static int mem_open(struct io_device *dev, const char *path, unsigned flags, struct io_file **out_file)
{
    struct mem_device *mem = mem_of(dev);
    struct mem_inode *inode;
    int result = call_begin_path(mem, MEM_CALL_OPEN, path);
    if (result < 0)
        return result;
    lock(mem);
    result = open_locked(mem, path, flags, &inode);
    unlock(mem);
    if (result < 0)
        return result;
    struct mem_file *opened = must_have(calloc(1, sizeof *opened));
    opened->file.dev = dev;
    opened->inode = inode;
    opened->path = must_have(strdup(path));
    opened->writable = flags & IO_READ_WRITE;
    *out_file = &opened->file;
    return 0;
}

static int mem_close(struct io_file *file)
{
    struct mem_device *mem = mem_of_file(file);
    struct mem_file *opened = file_of(file);
    const int result = call_begin_file(file, MEM_CALL_CLOSE, 0, 0);
    lock(mem);
    if (opened->inode->lock_holder == opened)
        opened->inode->lock_holder = NULL;
    mem_inode_release(&mem->tree, opened->inode);
    mem->counters.open_files--;
    unlock(mem);
    free(opened->path);
    free(opened);
    return result;
}

static uint64_t iov_total(const struct iovec *iov, int iov_count)
{
    uint64_t total = 0;
    for (int index = 0; index < iov_count; index++)
        total += iov[index].iov_len;
    return total;
}

/* How much of a transfer happens: all of it, or with short transfers a part; 0 stands for "interrupted". */
static uint64_t transfer_size_locked(struct mem_device *mem, uint64_t wanted)
{
    if (!mem->short_transfers || wanted < 2)
        return wanted;
    if (test_random_below(&mem->random, 8) == 0)
        return 0;
    return test_random_range(&mem->random, 1, wanted);
}

static ssize_t read_pieces(const struct mem_inode *inode, const struct iovec *iov, int iov_count, uint64_t offset_bytes,
                           uint64_t limit)
{
    uint64_t done = 0;
    for (int index = 0; index < iov_count && done < limit; index++) {
        const uint64_t rest = limit - done;
        const size_t piece = iov[index].iov_len < rest ? iov[index].iov_len : (size_t)rest;
        const ssize_t got = mem_inode_read(inode, iov[index].iov_base, piece, offset_bytes + done);
        done += (uint64_t)got;
        if ((size_t)got < piece)
            break;
    }
    return (ssize_t)done;
}

static ssize_t mem_preadv(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes)
{
    struct mem_device *mem = mem_of_file(file);
    struct mem_inode *inode = file_of(file)->inode;
    const uint64_t wanted = iov_total(iov, iov_count);
    const int failed = call_begin_file(file, MEM_CALL_READ, offset_bytes, wanted);
    if (failed < 0)
        return failed;
    if (iov_count < 0 || iov_count > IOV_MAX || offset_bytes > INT64_MAX)
        return -EINVAL;
    if (inode->kind == IO_KIND_DIRECTORY)
        return -EISDIR;
    lock(mem);
    const uint64_t limit = transfer_size_locked(mem, wanted);
    const ssize_t got = limit == 0 && wanted > 0 ? -EINTR : read_pieces(inode, iov, iov_count, offset_bytes, limit);
    if (got > 0)
        mem->counters.read_bytes += (uint64_t)got;
    unlock(mem);
    return got;
}

static ssize_t write_pieces(struct mem_tree *tree, struct mem_inode *inode, const struct iovec *iov, int iov_count,
                            uint64_t offset_bytes, uint64_t limit)
{
    uint64_t done = 0;
    for (int index = 0; index < iov_count && done < limit; index++) {
        const uint64_t rest = limit - done;
        const size_t piece = iov[index].iov_len < rest ? iov[index].iov_len : (size_t)rest;
        const ssize_t put = mem_inode_write(tree, inode, iov[index].iov_base, piece, offset_bytes + done);
        if (put < 0)
            return done > 0 ? (ssize_t)done : put;
        done += (uint64_t)put;
        if ((size_t)put < piece)
            break;
    }
    return (ssize_t)done;
}

static ssize_t mem_pwritev(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes)
{
    struct mem_device *mem = mem_of_file(file);
    struct mem_file *opened = file_of(file);
    const uint64_t wanted = iov_total(iov, iov_count);
    struct mem_event event = {.call = MEM_CALL_WRITE,
                              .path = opened->path,
                              .iov = iov,
                              .iov_count = iov_count,
                              .offset_bytes = offset_bytes,
                              .size_bytes = wanted};
    const int failed = call_begin(mem, &event);
    if (failed < 0)
        return failed;
    if (!opened->writable)
        return -EBADF;
    if (iov_count < 0 || iov_count > IOV_MAX)
        return -EINVAL;
    if (offset_bytes > INT64_MAX)
        return -EFBIG;
    lock(mem);
    const uint64_t limit = transfer_size_locked(mem, wanted);
    const ssize_t put = limit == 0 && wanted > 0
                            ? -EINTR
                            : write_pieces(&mem->tree, opened->inode, iov, iov_count, offset_bytes, limit);
    if (put > 0)
        mem->counters.written_bytes += (uint64_t)put;
    unlock(mem);
    return put;
}

static int mem_sync(struct io_file *file)
{
    return call_begin_file(file, MEM_CALL_SYNC, 0, 0);
}

static int mem_sync_filesystem(struct io_file *file)
{
    return call_begin_file(file, MEM_CALL_SYNC_FILESYSTEM, 0, 0);
}

/* What truncate, allocate and punch have in common. */
static int change_file(struct io_file *file, enum mem_call call, uint64_t offset_bytes, uint64_t size_bytes,
                       int (*change)(struct mem_tree *tree, struct mem_inode *inode, uint64_t offset_bytes,
                                     uint64_t size_bytes))
{
    struct mem_device *mem = mem_of_file(file);
    int result = call_begin_file(file, call, offset_bytes, size_bytes);
    if (result < 0)
        return result;
    if (!file_of(file)->writable)
        return call == MEM_CALL_TRUNCATE ? -EINVAL : -EBADF;
    lock(mem);
    result = change(&mem->tree, file_of(file)->inode, offset_bytes, size_bytes);
    unlock(mem);
    return result;
}

static int change_truncate(struct mem_tree *tree, struct mem_inode *inode, uint64_t unused, uint64_t size_bytes)
{
    (void)unused;
    return mem_inode_truncate(tree, inode, size_bytes);
}

static int mem_truncate(struct io_file *file, uint64_t size_bytes)
{
    return change_file(file, MEM_CALL_TRUNCATE, 0, size_bytes, change_truncate);
}

static int mem_allocate(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes)
{
    return change_file(file, MEM_CALL_ALLOCATE, offset_bytes, size_bytes, mem_inode_allocate);
}

static int mem_punch(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes)
{
    return change_file(file, MEM_CALL_PUNCH, offset_bytes, size_bytes, mem_inode_punch);
}

static void stat_fill(const struct mem_inode *inode, struct io_stat *out_stat)
{
    out_stat->kind = inode->kind;
    out_stat->size_bytes = inode->size_bytes;
    out_stat->allocated_bytes = inode->blocks_used * BLOCK_SIZE;
    out_stat->device_id = 1;
}

static int mem_stat_file(struct io_file *file, struct io_stat *out_stat)
{
    struct mem_device *mem = mem_of_file(file);
    const int result = call_begin_file(file, MEM_CALL_STAT, 0, 0);
    if (result < 0)
        return result;
    lock(mem);
    stat_fill(file_of(file)->inode, out_stat);
    unlock(mem);
    return 0;
}

static pid_t holder_from_content(const struct mem_inode *inode)
{
    char text[24] = "";
    (void)mem_inode_read(inode, text, sizeof text - 1, 0);
    return (pid_t)strtol(text, NULL, 10);
}

static int mem_lock(struct io_file *file, pid_t *out_holder)
{
    struct mem_device *mem = mem_of_file(file);
    struct mem_inode *inode = file_of(file)->inode;
    int result = call_begin_file(file, MEM_CALL_LOCK, 0, 0);
    if (result < 0)
        return result;
    if (!file_of(file)->writable)
        return -EBADF;
    lock(mem);
    if (!inode->lock_holder || inode->lock_holder == file) {
        inode->lock_holder = file;
    } else {
        *out_holder = holder_from_content(inode);
        result = -EBUSY;
    }
    unlock(mem);
    return result;
}

/* ---- names ---- */

static int mem_stat(struct io_device *dev, const char *path, struct io_stat *out_stat)
{
    struct mem_device *mem = mem_of(dev);
    struct mem_place place;
    int result = call_begin_path(mem, MEM_CALL_STAT, path);
    if (result < 0)
        return result;
    lock(mem);
    result = mem_tree_find(&mem->tree, path, &place);
    if (result == 0 && !place.inode)
        result = -ENOENT;
    if (result == 0)
        stat_fill(place.inode, out_stat);
    unlock(mem);
    return result;
}

static int change_name(struct io_device *dev, enum mem_call call, const char *path,
                       int (*change)(struct mem_tree *tree, const struct mem_place *place))
{
    struct mem_device *mem = mem_of(dev);
    struct mem_place place;
    int result = call_begin_path(mem, call, path);
    if (result < 0)
        return result;
    lock(mem);
    result = mem_tree_find(&mem->tree, path, &place);
    if (result == 0)
        result = change(&mem->tree, &place);
    unlock(mem);
    return result;
}

static int mem_unlink(struct io_device *dev, const char *path)
{
    return change_name(dev, MEM_CALL_UNLINK, path, mem_tree_unlink);
}

static int change_make_dir(struct mem_tree *tree, const struct mem_place *place)
{
    (void)tree;
    if (place->inode)
        return -EEXIST;
    (void)mem_tree_make(place, IO_KIND_DIRECTORY);
    return 0;
}

static int mem_make_dir(struct io_device *dev, const char *path)
{
    return change_name(dev, MEM_CALL_MAKE_DIR, path, change_make_dir);
}

static int mem_remove_dir(struct io_device *dev, const char *path)
{
    return change_name(dev, MEM_CALL_REMOVE_DIR, path, mem_tree_remove_dir);
}

static int check_dir(struct mem_tree *tree, const struct mem_place *place)
{
    (void)tree;
    if (!place->inode)
        return -ENOENT;
    return place->inode->kind == IO_KIND_DIRECTORY ? 0 : -ENOTDIR;
}

static int mem_sync_dir(struct io_device *dev, const char *path)
{
    return change_name(dev, MEM_CALL_SYNC_DIR, path, check_dir);
}

static int mem_rename(struct io_device *dev, const char *from, const char *to)
{
    struct mem_device *mem = mem_of(dev);
    struct mem_event event = {.call = MEM_CALL_RENAME, .path = from, .to = to};
    int result = call_begin(mem, &event);
    if (result < 0)
        return result;
    lock(mem);
    result = mem_tree_rename(&mem->tree, from, to);
    unlock(mem);
    return result;
}

struct listing {
    size_t count;
    char **names;
    enum io_file_kind *kinds;
};

/* A copy, because the callback may change the directory, as readdir allows. */
static void listing_take(struct listing *listing, const struct mem_inode *dir)
{
    const size_t room = HASH_COUNT(dir->entries);
    listing->count = 0;
    listing->names = must_have(calloc(room + 1, sizeof *listing->names));
    listing->kinds = must_have(calloc(room + 1, sizeof *listing->kinds));
    for (const struct mem_entry *entry = dir->entries; entry; entry = entry->hh.next) {
        listing->names[listing->count] = must_have(strdup(entry->name));
        listing->kinds[listing->count++] = entry->inode->kind;
    }
}

static int listing_report_and_free(struct listing *listing, io_list_fn *fn, void *arg)
{
    int result = 0;
    for (size_t index = 0; index < listing->count; index++) {
        if (result == 0)
            result = fn(arg, listing->names[index], listing->kinds[index]);
        free(listing->names[index]);
    }
    free(listing->names);
    free(listing->kinds);
    return result;
}

static int mem_list_dir(struct io_device *dev, const char *path, io_list_fn *fn, void *arg)
{
    struct mem_device *mem = mem_of(dev);
    struct mem_place place;
    struct listing listing = {.count = 0};
    int result = call_begin_path(mem, MEM_CALL_LIST_DIR, path);
    if (result < 0)
        return result;
    lock(mem);
    result = mem_tree_find(&mem->tree, path, &place);
    if (result == 0)
        result = check_dir(&mem->tree, &place);
    if (result == 0)
        listing_take(&listing, place.inode);
    unlock(mem);
    return result < 0 ? result : listing_report_and_free(&listing, fn, arg);
}

static int mem_space(struct io_device *dev, const char *path, struct io_space *out_space)
{
    struct mem_device *mem = mem_of(dev);
    const int result = call_begin_path(mem, MEM_CALL_SPACE, path);
    if (result < 0)
        return result;
    lock(mem);
    const uint64_t blocks = mem->tree.blocks_max ? mem->tree.blocks_max : UINT64_C(1) << 27;
    const uint64_t free_blocks = blocks > mem->tree.blocks_used ? blocks - mem->tree.blocks_used : 0;
    unlock(mem);
    *out_space = (struct io_space){.total_bytes = blocks * BLOCK_SIZE,
                                   .free_bytes = free_blocks * BLOCK_SIZE,
                                   .available_bytes = free_blocks * BLOCK_SIZE,
                                   .total_files = 1u << 20,
                                   .free_files = 1u << 20};
    return 0;
}

/* ---- clock and randomness ---- */

static uint64_t mem_monotonic_ns(struct io_device *dev)
{
    struct mem_device *mem = mem_of(dev);
    lock(mem);
    mem->monotonic_ns += 1000;
    const uint64_t now = mem->monotonic_ns;
    unlock(mem);
    return now;
}

static uint64_t mem_realtime_ns(struct io_device *dev)
{
    struct mem_device *mem = mem_of(dev);
    lock(mem);
    mem->monotonic_ns += 1000;
    const uint64_t now = mem->monotonic_ns + mem->realtime_offset_ns;
    unlock(mem);
    return now;
}

static int mem_random(struct io_device *dev, void *bytes, size_t size_bytes)
{
    struct mem_device *mem = mem_of(dev);
    struct mem_event event = {.call = MEM_CALL_RANDOM, .path = "", .size_bytes = size_bytes};
    const int result = call_begin(mem, &event);
    if (result < 0)
        return result;
    lock(mem);
    test_random_bytes(&mem->random, bytes, size_bytes);
    unlock(mem);
    return 0;
}

static const struct io_ops mem_ops = {
    .open = mem_open,
    .close = mem_close,
    .preadv = mem_preadv,
    .pwritev = mem_pwritev,
    .sync = mem_sync,
    .sync_filesystem = mem_sync_filesystem,
    .truncate = mem_truncate,
    .allocate = mem_allocate,
    .punch = mem_punch,
    .stat_file = mem_stat_file,
    .lock = mem_lock,
    .stat = mem_stat,
    .unlink = mem_unlink,
    .rename = mem_rename,
    .make_dir = mem_make_dir,
    .remove_dir = mem_remove_dir,
    .sync_dir = mem_sync_dir,
    .list_dir = mem_list_dir,
    .space = mem_space,
    .realtime_ns = mem_realtime_ns,
    .monotonic_ns = mem_monotonic_ns,
    .random = mem_random,
};

/* ---- what tests call ---- */

static struct mem_device *device_create(void)
{
    struct mem_device *mem = must_have(calloc(1, sizeof *mem));
    mem->dev.ops = &mem_ops;
    pthread_mutex_init(&mem->lock, NULL);
    return mem;
}

struct mem_device *mem_device_create(uint64_t seed)
{
    struct mem_device *mem = device_create();
    mem_tree_init(&mem->tree);
    test_random_init(&mem->random, seed);
    mem->monotonic_ns = UINT64_C(1000000000);
    mem->realtime_offset_ns = UINT64_C(1700000000000000000); /* November 2023 */
    return mem;
}

void mem_device_destroy(struct mem_device *mem)
{
    if (!mem)
        return;
    assert(mem->counters.open_files == 0);
    mem_tree_destroy(&mem->tree);
    pthread_mutex_destroy(&mem->lock);
    free(mem);
}

struct mem_device *mem_device_clone(struct mem_device *mem)
{
    struct mem_device *clone = device_create();
    lock(mem);
    mem_tree_copy(&clone->tree, &mem->tree);
    clone->random = mem->random;
    clone->monotonic_ns = mem->monotonic_ns;
    clone->realtime_offset_ns = mem->realtime_offset_ns;
    unlock(mem);
    return clone;
}

struct io_device *mem_device_io(struct mem_device *mem)
{
    return &mem->dev;
}

void mem_device_counters(struct mem_device *mem, struct mem_counters *out_counters)
{
    lock(mem);
    *out_counters = mem->counters;
    unlock(mem);
}

void mem_device_counters_reset(struct mem_device *mem)
{
    lock(mem);
    mem->counters = (struct mem_counters){.open_files = mem->counters.open_files};
    unlock(mem);
}

const char *mem_call_name(enum mem_call call)
{
    static const char *const names[MEM_CALL_COUNT] = {
        "open",       "close",    "read",     "write", "sync",   "sync_filesystem", "truncate",
        "allocate",   "punch",    "stat",     "lock",  "unlink", "rename",          "make_dir",
        "remove_dir", "sync_dir", "list_dir", "space", "random",
    };
    return names[call];
}

void mem_device_set_capacity(struct mem_device *mem, uint64_t capacity_bytes)
{
    lock(mem);
    mem->tree.blocks_max = capacity_bytes / BLOCK_SIZE;
    unlock(mem);
}

uint64_t mem_device_used_bytes(struct mem_device *mem)
{
    lock(mem);
    const uint64_t used = mem->tree.blocks_used * BLOCK_SIZE;
    unlock(mem);
    return used;
}

void mem_device_fail(struct mem_device *mem, enum mem_call call, uint64_t nth, int error, bool for_ever)
{
    lock(mem);
    mem->faults[call] = (struct fault){.countdown = nth, .error = error, .for_ever = for_ever};
    unlock(mem);
}

void mem_device_clear_faults(struct mem_device *mem)
{
    lock(mem);
    memset(mem->faults, 0, sizeof mem->faults);
    unlock(mem);
}

void mem_device_set_short_transfers(struct mem_device *mem, bool enabled)
{
    lock(mem);
    mem->short_transfers = enabled;
    unlock(mem);
}

void mem_device_set_hook(struct mem_device *mem, mem_hook_fn *hook, void *arg)
{
    lock(mem);
    mem->hook = hook;
    mem->hook_arg = arg;
    unlock(mem);
}

void mem_device_advance_ns(struct mem_device *mem, uint64_t ns)
{
    lock(mem);
    mem->monotonic_ns += ns;
    unlock(mem);
}

void mem_device_set_realtime_ns(struct mem_device *mem, uint64_t ns)
{
    lock(mem);
    mem->realtime_offset_ns = ns - mem->monotonic_ns;
    unlock(mem);
}

uint8_t *mem_device_file_bytes(struct mem_device *mem, const char *path, uint64_t offset_bytes, size_t *out_run_bytes)
{
    struct mem_place place;
    uint8_t *bytes = NULL;
    lock(mem);
    if (mem_tree_find(&mem->tree, path, &place) == 0 && place.inode && place.inode->kind == IO_KIND_FILE &&
        offset_bytes < place.inode->size_bytes) {
        const uint64_t in_block = offset_bytes % BLOCK_SIZE;
        const uint64_t to_end = place.inode->size_bytes - offset_bytes;
        uint8_t *block = mem_inode_block(&mem->tree, place.inode, (size_t)(offset_bytes / BLOCK_SIZE));
        if (block) {
            bytes = block + in_block;
            *out_run_bytes = (size_t)(to_end < BLOCK_SIZE - in_block ? to_end : BLOCK_SIZE - in_block);
        }
    }
    unlock(mem);
    return bytes;
}

void mem_device_put_file(struct mem_device *mem, const char *path, const void *bytes, size_t size_bytes)
{
    struct mem_place place;
    lock(mem);
    if (mem_tree_find(&mem->tree, path, &place) < 0)
        abort();
    struct mem_inode *inode = place.inode ? place.inode : mem_tree_make(&place, IO_KIND_FILE);
    (void)mem_inode_truncate(&mem->tree, inode, 0);
    const ssize_t put = mem_inode_write(&mem->tree, inode, bytes, size_bytes, 0);
    assert(put == (ssize_t)size_bytes);
    unlock(mem);
}

bool mem_device_equal(struct mem_device *left, struct mem_device *right)
{
    if (left == right)
        return true;
    /* By address, so that two threads comparing the same pair cannot wait for each other. */
    struct mem_device *first = left < right ? left : right;
    struct mem_device *second = left < right ? right : left;
    lock(first);
    lock(second);
    const bool equal = mem_tree_equal(&left->tree, &right->tree);
    unlock(second);
    unlock(first);
    return equal;
}
