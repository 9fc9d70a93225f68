/*
 * tests/lib/sim_device.c - recording what is durable and what is not. The states are built in sim_cut.c.
 */
#include "tests/lib/sim_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_file {
    struct io_file file;
    struct io_file *inner;
    uint32_t inode;
};

void *sim_must(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static struct sim_device *sim_of(struct io_device *dev)
{
    return (struct sim_device *)dev;
}

static struct sim_file *file_of(struct io_file *file)
{
    return (struct sim_file *)file;
}

static struct sim_device *sim_of_file(struct io_file *file)
{
    return sim_of(file->dev);
}

static struct sim_inode *inode_of(struct io_file *file)
{
    return sim_of_file(file)->inodes[file_of(file)->inode];
}

static void announce(struct sim_device *sim, enum mem_call call)
{
    if (sim->hook != NULL) {
        sim->hook(sim->hook_arg, call);
    }
}

/* ---- names and inodes ---- */

static struct sim_name *name_of(struct sim_device *sim, const char *path)
{
    struct sim_name *name = NULL;
    HASH_FIND_STR(sim->by_path, path, name);
    if (name != NULL) {
        return name;
    }
    name = sim_must(calloc(1, sizeof *name));
    name->path = sim_must(strdup(path));
    name->dir = sim_must(strdup(path));
    char *slash = strrchr(name->dir, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    name->number = sim->name_count;
    name->durable = SIM_NOBODY;
    name->current = SIM_NOBODY;
    if (sim->name_count == sim->name_capacity) {
        sim->name_capacity = sim->name_capacity * 2 + 512;
        sim->names = sim_must(realloc(sim->names, sim->name_capacity * sizeof sim->names[0]));
    }
    sim->names[sim->name_count++] = name;
    HASH_ADD_KEYPTR(hh, sim->by_path, name->path, strlen(name->path), name);
    return name;
}

static uint32_t inode_make(struct sim_device *sim, const char *path, bool is_dir)
{
    struct sim_inode *inode = sim_must(calloc(1, sizeof *inode));
    inode->is_dir = is_dir;
    inode->in_log = strstr(path, "/log/") != NULL;
    if (sim->inode_count == sim->inode_capacity) {
        sim->inode_capacity = sim->inode_capacity * 2 + 512;
        sim->inodes = sim_must(realloc(sim->inodes, sim->inode_capacity * sizeof sim->inodes[0]));
    }
    sim->inodes[sim->inode_count] = inode;
    return sim->inode_count++;
}

static void note_name(struct sim_device *sim, struct sim_name *name, uint32_t inode, struct sim_name *from)
{
    if (sim->name_change_count == sim->name_change_capacity) {
        sim->name_change_capacity = sim->name_change_capacity * 2 + 64;
        sim->name_changes =
            sim_must(realloc(sim->name_changes, sim->name_change_capacity * sizeof sim->name_changes[0]));
    }
    sim->name_changes[sim->name_change_count++] =
        (struct sim_name_change){.moment = ++sim->moment,
                                 .name = name->number,
                                 .inode = inode,
                                 .from = from != NULL ? from->number : SIM_NOBODY};
    name->current = inode;
    if (from != NULL) {
        from->current = SIM_NOBODY;
    }
}

/* Makes the unsynced changes of names in `dir` (NULL: of all directories) durable. */
static void names_settle(struct sim_device *sim, const char *dir)
{
    size_t kept = 0;
    for (size_t i = 0; i < sim->name_change_count; i++) {
        const struct sim_name_change change = sim->name_changes[i];
        if (dir != NULL && strcmp(sim->names[change.name]->dir, dir) != 0) {
            sim->name_changes[kept++] = change;
            continue;
        }
        sim->names[change.name]->durable = change.inode;
        if (change.from != SIM_NOBODY) {
            sim->names[change.from]->durable = SIM_NOBODY;
        }
    }
    sim->name_change_count = kept;
}

/* ---- content ---- */

static uint8_t *block_make(struct sim_inode *inode, size_t index)
{
    if (index >= inode->block_count) {
        const size_t count = (index + 1) * 2;
        inode->blocks = sim_must(realloc(inode->blocks, count * sizeof inode->blocks[0]));
        memset(inode->blocks + inode->block_count, 0, (count - inode->block_count) * sizeof inode->blocks[0]);
        inode->block_count = count;
    }
    if (inode->blocks[index] == NULL) {
        inode->blocks[index] = sim_must(calloc(1, BLOCK_SIZE));
    }
    return inode->blocks[index];
}

static bool is_zeros(const uint8_t *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static void durable_write(struct sim_inode *inode, uint64_t offset, const uint8_t *bytes, uint64_t size)
{
    while (size > 0) {
        const size_t in_block = (size_t)(offset % BLOCK_SIZE);
        const size_t room = BLOCK_SIZE - in_block;
        const size_t piece = size < room ? (size_t)size : room;
        const size_t index = (size_t)(offset / BLOCK_SIZE);
        const bool hole = index >= inode->block_count || inode->blocks[index] == NULL;
        if (!hole || !is_zeros(bytes, piece)) {
            memcpy(block_make(inode, index) + in_block, bytes, piece);
        }
        offset += piece;
        bytes += piece;
        size -= piece;
    }
}

static void durable_clear(struct sim_inode *inode, uint64_t offset, uint64_t end)
{
    const uint64_t covered = (uint64_t)inode->block_count * BLOCK_SIZE;
    end = end < covered ? end : covered;
    while (offset < end) {
        const size_t in_block = (size_t)(offset % BLOCK_SIZE);
        const uint64_t room = BLOCK_SIZE - in_block;
        const size_t piece = (size_t)(end - offset < room ? end - offset : room);
        uint8_t *block = inode->blocks[offset / BLOCK_SIZE];
        if (block != NULL) {
            memset(block + in_block, 0, piece);
        }
        offset += piece;
    }
}

static void change_settle(struct sim_inode *inode, const struct sim_change *change)
{
    const uint64_t end = change->offset_bytes + change->size_bytes;
    switch (change->kind) {
    case SIM_WRITE:
        durable_write(inode, change->offset_bytes, change->bytes, change->size_bytes);
        inode->size_bytes = end > inode->size_bytes ? end : inode->size_bytes;
        break;
    case SIM_TRUNCATE:
        durable_clear(inode, change->size_bytes, UINT64_MAX);
        inode->size_bytes = change->size_bytes;
        break;
    case SIM_GROW:
        inode->size_bytes = end > inode->size_bytes ? end : inode->size_bytes;
        break;
    case SIM_PUNCH:
        durable_clear(inode, change->offset_bytes, end);
        break;
    }
}

static void changes_forget(struct sim_inode *inode)
{
    for (size_t i = 0; i < inode->change_count; i++) {
        free(inode->changes[i].bytes);
    }
    inode->change_count = 0;
}

static void content_settle(struct sim_inode *inode)
{
    for (size_t i = 0; i < inode->change_count; i++) {
        change_settle(inode, &inode->changes[i]);
    }
    changes_forget(inode);
}

static void note_change(struct sim_device *sim, struct sim_inode *inode, struct sim_change change)
{
    change.moment = ++sim->moment;
    if (inode->change_count == inode->change_capacity) {
        inode->change_capacity = inode->change_capacity * 2 + 16;
        inode->changes = sim_must(realloc(inode->changes, inode->change_capacity * sizeof inode->changes[0]));
    }
    inode->changes[inode->change_count++] = change;
}

/* ---- calls on files ---- */

static int sim_open(struct io_device *dev, const char *path, unsigned flags, struct io_file **out_file)
{
    struct sim_device *sim = sim_of(dev);
    if ((flags & (IO_CREATE | IO_TRUNCATE)) != 0) {
        announce(sim, MEM_CALL_OPEN);
    }
    struct io_file *inner = NULL;
    const int rc = io_open(sim->inner, path, flags, &inner);
    if (rc != 0) {
        return rc;
    }
    struct sim_name *name = name_of(sim, path);
    if (name->current == SIM_NOBODY) {
        note_name(sim, name, inode_make(sim, path, false), NULL);
    } else if ((flags & IO_TRUNCATE) != 0) {
        note_change(sim, sim->inodes[name->current], (struct sim_change){.kind = SIM_TRUNCATE});
    }
    struct sim_file *file = sim_must(calloc(1, sizeof *file));
    *file = (struct sim_file){.file = {.dev = dev}, .inner = inner, .inode = name->current};
    *out_file = &file->file;
    return 0;
}

static int sim_close(struct io_file *file)
{
    const int rc = io_close(file_of(file)->inner);
    free(file);
    return rc;
}

static ssize_t sim_preadv(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes)
{
    struct sim_device *sim = sim_of_file(file);
    return sim->inner->ops->preadv(file_of(file)->inner, iov, iov_count, offset_bytes);
}

static ssize_t sim_pwritev(struct io_file *file, const struct iovec *iov, int iov_count, uint64_t offset_bytes)
{
    struct sim_device *sim = sim_of_file(file);
    announce(sim, MEM_CALL_WRITE);
    const ssize_t put = sim->inner->ops->pwritev(file_of(file)->inner, iov, iov_count, offset_bytes);
    if (put <= 0) {
        return put;
    }
    uint8_t *bytes = sim_must(malloc((size_t)put));
    size_t done = 0;
    for (int i = 0; i < iov_count && done < (size_t)put; i++) {
        const size_t left = (size_t)put - done;
        const size_t piece = iov[i].iov_len < left ? iov[i].iov_len : left;
        memcpy(bytes + done, iov[i].iov_base, piece);
        done += piece;
    }
    note_change(sim, inode_of(file),
                (struct sim_change){
                    .kind = SIM_WRITE, .offset_bytes = offset_bytes, .size_bytes = (uint64_t)put, .bytes = bytes});
    return put;
}

/* SIM-5, btrfs: gives readers the durable content back. */
static void revert(struct sim_inode *inode, struct io_file *inner)
{
    int rc = io_truncate(inner, 0);
    if (rc == 0) {
        rc = io_truncate(inner, inode->size_bytes);
    }
    for (uint64_t at = 0; at < inode->size_bytes && rc == 0; at += BLOCK_SIZE) {
        const uint64_t left = inode->size_bytes - at;
        const size_t index = (size_t)(at / BLOCK_SIZE);
        if (index < inode->block_count && inode->blocks[index] != NULL) {
            rc = io_write_full(inner, inode->blocks[index], left < BLOCK_SIZE ? (size_t)left : BLOCK_SIZE, at);
        }
    }
    (void)rc; /* a device that refuses this too keeps what it has */
}

static int sim_sync(struct io_file *file)
{
    struct sim_device *sim = sim_of_file(file);
    announce(sim, MEM_CALL_SYNC);
    const int rc = io_sync(file_of(file)->inner);
    if (rc == 0) {
        content_settle(inode_of(file));
        return 0;
    }
    changes_forget(inode_of(file));
    if (sim->failed_sync == SIM_FAILED_SYNC_REVERTED) {
        revert(inode_of(file), file_of(file)->inner);
    }
    return rc;
}

static int sim_sync_filesystem(struct io_file *file)
{
    struct sim_device *sim = sim_of_file(file);
    announce(sim, MEM_CALL_SYNC_FILESYSTEM);
    const int rc = io_sync_filesystem(file_of(file)->inner);
    for (uint32_t i = 0; i < sim->inode_count; i++) {
        if (rc == 0) {
            content_settle(sim->inodes[i]);
        } else {
            changes_forget(sim->inodes[i]);
        }
    }
    if (rc == 0) {
        names_settle(sim, NULL);
    }
    return rc;
}

static int sim_truncate(struct io_file *file, uint64_t size_bytes)
{
    announce(sim_of_file(file), MEM_CALL_TRUNCATE);
    const int rc = io_truncate(file_of(file)->inner, size_bytes);
    if (rc == 0) {
        note_change(sim_of_file(file), inode_of(file),
                    (struct sim_change){.kind = SIM_TRUNCATE, .size_bytes = size_bytes});
    }
    return rc;
}

static int sim_allocate(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes)
{
    announce(sim_of_file(file), MEM_CALL_ALLOCATE);
    const int rc = io_allocate(file_of(file)->inner, offset_bytes, size_bytes);
    if (rc == 0) {
        note_change(sim_of_file(file), inode_of(file),
                    (struct sim_change){.kind = SIM_GROW, .offset_bytes = offset_bytes, .size_bytes = size_bytes});
    }
    return rc;
}

static int sim_punch(struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes)
{
    announce(sim_of_file(file), MEM_CALL_PUNCH);
    const int rc = io_punch(file_of(file)->inner, offset_bytes, size_bytes);
    if (rc == 0) {
        note_change(sim_of_file(file), inode_of(file),
                    (struct sim_change){.kind = SIM_PUNCH, .offset_bytes = offset_bytes, .size_bytes = size_bytes});
    }
    return rc;
}

static int sim_stat_file(struct io_file *file, struct io_stat *out_stat)
{
    return io_stat_file(file_of(file)->inner, out_stat);
}

static int sim_lock(struct io_file *file, pid_t *out_holder)
{
    return io_lock(file_of(file)->inner, out_holder);
}

/* ---- calls on names ---- */

static int sim_stat(struct io_device *dev, const char *path, struct io_stat *out_stat)
{
    return io_stat(sim_of(dev)->inner, path, out_stat);
}

static int sim_unlink(struct io_device *dev, const char *path)
{
    struct sim_device *sim = sim_of(dev);
    announce(sim, MEM_CALL_UNLINK);
    const int rc = io_unlink(sim->inner, path);
    if (rc == 0) {
        note_name(sim, name_of(sim, path), SIM_NOBODY, NULL);
    }
    return rc;
}

static int sim_rename(struct io_device *dev, const char *from, const char *to)
{
    struct sim_device *sim = sim_of(dev);
    announce(sim, MEM_CALL_RENAME);
    const int rc = io_rename(sim->inner, from, to);
    if (rc == 0) {
        struct sim_name *source = name_of(sim, from);
        struct sim_name *target = name_of(sim, to);
        assert(strcmp(source->dir, target->dir) == 0 && !sim->inodes[source->current]->is_dir);
        note_name(sim, target, source->current, source);
    }
    return rc;
}

static int sim_make_dir(struct io_device *dev, const char *path)
{
    struct sim_device *sim = sim_of(dev);
    announce(sim, MEM_CALL_MAKE_DIR);
    const int rc = io_make_dir(sim->inner, path);
    if (rc == 0) {
        note_name(sim, name_of(sim, path), inode_make(sim, path, true), NULL);
    }
    return rc;
}

static int sim_remove_dir(struct io_device *dev, const char *path)
{
    (void)dev;
    (void)path;
    abort();
}

static int sim_sync_dir(struct io_device *dev, const char *path)
{
    struct sim_device *sim = sim_of(dev);
    announce(sim, MEM_CALL_SYNC_DIR);
    const int rc = io_sync_dir(sim->inner, path);
    if (rc == 0) {
        names_settle(sim, path);
    }
    return rc;
}

static int sim_list_dir(struct io_device *dev, const char *path, io_list_fn *fn, void *arg)
{
    return io_list_dir(sim_of(dev)->inner, path, fn, arg);
}

static int sim_space(struct io_device *dev, const char *path, struct io_space *out_space)
{
    return io_space(sim_of(dev)->inner, path, out_space);
}

static uint64_t sim_realtime_ns(struct io_device *dev)
{
    struct sim_device *sim = sim_of(dev);
    sim->realtime_ns = io_realtime_ns(sim->inner);
    return sim->realtime_ns;
}

static uint64_t sim_monotonic_ns(struct io_device *dev)
{
    return io_monotonic_ns(sim_of(dev)->inner);
}

static int sim_random(struct io_device *dev, void *bytes, size_t size_bytes)
{
    return io_random(sim_of(dev)->inner, bytes, size_bytes);
}

static const struct io_ops sim_ops = {
    .open = sim_open,
    .close = sim_close,
    .preadv = sim_preadv,
    .pwritev = sim_pwritev,
    .sync = sim_sync,
    .sync_filesystem = sim_sync_filesystem,
    .truncate = sim_truncate,
    .allocate = sim_allocate,
    .punch = sim_punch,
    .stat_file = sim_stat_file,
    .lock = sim_lock,
    .stat = sim_stat,
    .unlink = sim_unlink,
    .rename = sim_rename,
    .make_dir = sim_make_dir,
    .remove_dir = sim_remove_dir,
    .sync_dir = sim_sync_dir,
    .list_dir = sim_list_dir,
    .space = sim_space,
    .realtime_ns = sim_realtime_ns,
    .monotonic_ns = sim_monotonic_ns,
    .random = sim_random,
};

/* ---- what tests call ---- */

struct adoption {
    struct sim_device *sim;
    const char *dir;
};

static void adopt_content(struct sim_device *sim, const char *path, struct sim_inode *inode)
{
    struct io_file *file = NULL;
    struct io_stat stat;
    uint8_t bytes[BLOCK_SIZE];
    int rc = io_open(sim->inner, path, IO_READ_ONLY, &file);
    assert(rc == 0);
    rc = io_stat_file(file, &stat);
    assert(rc == 0);
    inode->size_bytes = stat.size_bytes;
    for (uint64_t at = 0; at < stat.size_bytes; at += BLOCK_SIZE) {
        size_t got = 0;
        rc = io_read_full(file, bytes, sizeof bytes, at, &got);
        assert(rc == 0);
        durable_write(inode, at, bytes, got);
    }
    rc = io_close(file);
    assert(rc == 0);
    (void)rc;
}

static int adopt(void *arg, const char *entry, enum io_file_kind kind)
{
    const struct adoption *adoption = arg;
    struct sim_device *sim = adoption->sim;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", adoption->dir, entry);
    struct sim_name *name = name_of(sim, path);
    name->at_start = true;
    name->durable = inode_make(sim, path, kind == IO_KIND_DIRECTORY);
    name->current = name->durable;
    if (kind == IO_KIND_DIRECTORY) {
        struct adoption below = {.sim = sim, .dir = path};
        return io_list_dir(sim->inner, path, adopt, &below);
    }
    adopt_content(sim, path, sim->inodes[name->durable]);
    return 0;
}

struct sim_device *sim_device_create(struct mem_device *mem)
{
    struct sim_device *sim = sim_must(calloc(1, sizeof *sim));
    sim->dev.ops = &sim_ops;
    sim->mem = mem;
    sim->inner = mem_device_io(mem);
    struct adoption adoption = {.sim = sim, .dir = ""};
    const int rc = io_list_dir(sim->inner, "/", adopt, &adoption);
    assert(rc == 0);
    (void)rc;
    mem_device_counters_reset(mem);
    return sim;
}

static void inode_free(struct sim_inode *inode)
{
    changes_forget(inode);
    free(inode->changes);
    for (size_t i = 0; i < inode->block_count; i++) {
        free(inode->blocks[i]);
    }
    free(inode->blocks);
    free(inode);
}

void sim_device_destroy(struct sim_device *sim)
{
    HASH_CLEAR(hh, sim->by_path);
    for (uint32_t i = 0; i < sim->name_count; i++) {
        free(sim->names[i]->path);
        free(sim->names[i]->dir);
        free(sim->names[i]);
    }
    for (uint32_t i = 0; i < sim->inode_count; i++) {
        inode_free(sim->inodes[i]);
    }
    free(sim->names);
    free(sim->inodes);
    free(sim->name_changes);
    mem_device_destroy(sim->mem);
    free(sim);
}

struct io_device *sim_device_io(struct sim_device *sim)
{
    return &sim->dev;
}

struct mem_device *sim_device_mem(struct sim_device *sim)
{
    return sim->mem;
}

void sim_device_set_hook(struct sim_device *sim, sim_hook_fn *hook, void *arg)
{
    sim->hook = hook;
    sim->hook_arg = arg;
}

void sim_device_set_failed_sync(struct sim_device *sim, enum sim_failed_sync failed_sync)
{
    sim->failed_sync = failed_sync;
}

uint64_t sim_device_file_number(struct sim_device *sim, const char *infix, bool made_since, uint64_t *out_smallest)
{
    uint64_t largest = 0;
    uint64_t smallest = UINT64_MAX;
    for (uint32_t i = 0; i < sim->name_count; i++) {
        const struct sim_name *name = sim->names[i];
        const char *last = strrchr(name->path, '/') + 1;
        char *end = NULL;
        if ((made_since && name->at_start) || strstr(name->path, infix) == NULL || strlen(last) != 16) {
            continue;
        }
        const uint64_t number = strtoull(last, &end, 16);
        if (*end == '\0') {
            largest = number > largest ? number : largest;
            smallest = number < smallest ? number : smallest;
        }
    }
    if (out_smallest != NULL) {
        *out_smallest = smallest;
    }
    return largest;
}
