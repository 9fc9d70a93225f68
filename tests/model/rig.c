/*
 * tests/model/rig.c - life of a rig: open, checkpoint, reopen, kill, compare, fail.
 */
#include "tests/model/rig.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

void rig_note(struct rig *rig, const char *fmt, ...)
{
    char *line = rig->history[rig->step % RIG_HISTORY];
    const int used = snprintf(line, RIG_LINE_BYTES, "%" PRIu64 ": ", rig->step);
    va_list args;
    va_start(args, fmt);
    vsnprintf(line + used, RIG_LINE_BYTES - (size_t)used, fmt, args);
    va_end(args);
}

void rig_fail(struct rig *rig, const char *fmt, ...)
{
    for (uint64_t i = 1; i <= RIG_HISTORY; i++) {
        const char *line = rig->history[(rig->step + i) % RIG_HISTORY];
        if (line[0] != '\0') {
            fprintf(stderr, "  %s\n", line);
        }
    }
    fprintf(stderr, "%s: step %" PRIu64 ": ", rig->config.test_name, rig->step);
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\nreplay with: make check TEST=%s SEED=%" PRIu64 "\n", rig->config.test_name, rig->config.seed);
    fail();
    abort();
}

void rig_must(struct rig *rig, int result, const char *what)
{
    if (result != 0) {
        rig_fail(rig, "%s answers %d", what, result);
    }
}

static struct store *open_on(struct rig *rig, struct io_device *dev, bool read_only)
{
    const struct store_options options = {
        .dev = dev,
        .diag = &rig->diag,
        .dir = RIG_DIR,
        .cache_size_bytes = rig->config.cache_size_bytes,
        .log_segment_size = rig->config.log_segment_size,
        .bulk_min_bytes = 8 * BLOCK_SIZE,
        .compact_piece_blocks = RIG_PIECE,
        .read_only = read_only,
        .archive = dev == rig->dev ? rig->config.archive : NULL,
        .archive_timeout_ms = rig->config.archive_timeout_ms,
    };
    struct store *store = NULL;
    rig_must(rig, store_open(&options, &store, NULL), "store_open");
    return store;
}

static void open_store(struct rig *rig, bool read_only)
{
    rig->store = open_on(rig, rig->dev, read_only);
}

/* The root's times come from mkfs. */
static void learn_root(struct rig *rig)
{
    struct store_attr attr;
    struct model_inode *root = model_find(rig->model, INO_ROOT);
    rig_must(rig, store_getattr(rig->store, store_live(rig->store), INO_ROOT, &attr), "getattr of the root");
    root->stamps = MODEL_STAMP_ATIME | MODEL_STAMP_MTIME | MODEL_STAMP_CTIME;
    model_learn_time(root, &attr);
}

/* Printable rows of some 40 bytes. */
static void fill_rows(struct rig *rig)
{
    for (size_t i = 0; i < RIG_DATA_BYTES; i++) {
        rig->data[i] = rig->data[i] % 40 == 0 ? '\n' : (uint8_t)(' ' + rig->data[i] % 95);
    }
}

void rig_init(struct rig *rig, const struct rig_config *config)
{
    *rig = (struct rig){.config = *config};
    test_random_init(&rig->random, config->seed + config->salt);
    rig->mem = mem_device_create(config->seed + config->salt);
    rig->dev = mem_device_io(rig->mem);
    diag_init_stderr(&rig->diag, DIAG_WARNING);
    rig->data = malloc(RIG_DATA_BYTES);
    assert_non_null(rig->data);
    test_random_bytes(&rig->random, rig->data, RIG_DATA_BYTES);
    if (config->rows) {
        fill_rows(rig);
    }
    const struct store_mkfs_options mkfs = {
        .dev = rig->dev,
        .diag = &rig->diag,
        .dir = RIG_DIR,
        .create_dir = true,
        .name_hash_bits = config->name_hash_bits,
        .root_mode = 0755,
    };
    rig_must(rig, store_mkfs(&mkfs), "store_mkfs");
    open_store(rig, false);
    rig->model = model_new(0755);
    rig->inode_limit = config->max_inodes;
    learn_root(rig);
}

void rig_swap_lane(struct rig *rig, struct rig_lane *lane)
{
    const struct rig_lane before = {.view = rig->view, .model = rig->model, .gone_next = rig->gone_next};
    struct rig_handle handles[RIG_HANDLES];
    ino_no gone[RIG_GONE];
    memcpy(handles, rig->handles, sizeof handles);
    memcpy(gone, rig->gone, sizeof gone);
    if (lane->model->largest_ino < rig->model->largest_ino) {
        lane->model->largest_ino = rig->model->largest_ino; /* one store gives out all numbers */
    }
    rig->view = lane->view;
    rig->model = lane->model;
    rig->gone_next = lane->gone_next;
    memcpy(rig->handles, lane->handles, sizeof handles);
    memcpy(rig->gone, lane->gone, sizeof gone);
    *lane = before;
    memcpy(lane->handles, handles, sizeof handles);
    memcpy(lane->gone, gone, sizeof gone);
}

void rig_close_handles(struct rig *rig)
{
    for (unsigned i = 0; i < RIG_HANDLES; i++) {
        if (rig->handles[i].file != NULL) {
            store_file_close(rig->handles[i].file);
            model_close(rig->model, rig->handles[i].inode);
            rig->handles[i] = (struct rig_handle){0};
        }
    }
}

/* A table, large ones before others. NULL: none. */
static struct model_inode *draw_table(struct rig *rig)
{
    struct model_inode *drawn = NULL;
    for (unsigned i = 0; i < 24; i++) {
        struct model_inode *inode = rig->model->all[test_random_below(&rig->random, rig->model->count)];
        const bool is_table = S_ISREG(inode->mode) && inode->nlink > 0;
        if (is_table && (drawn == NULL || (drawn->size < 2 * PAGE_PAYLOAD_SIZE && inode->size > drawn->size))) {
            drawn = inode;
        }
    }
    return drawn;
}

static void begin_compaction(struct rig *rig)
{
    struct store_file *file = NULL;
    struct model_inode *inode = draw_table(rig);
    if (inode == NULL) {
        return;
    }
    rig_note(rig, "compact inode %" PRIu64, inode->ino);
    rig_must(rig, store_file_open(rig->store, store_live(rig->store), inode->ino, &file), "open for compaction");
    rig_must(rig, store_compact_begin(file, &rig->compact), "store_compact_begin");
    model_begin(rig->model);
    rig_must(rig, model_open(rig->model, inode->ino), "open in the model");
    rig->compact_handle = (struct rig_handle){.file = file, .inode = inode};
}

static void end_compaction(struct rig *rig)
{
    model_begin(rig->model);
    store_compact_end(rig->compact);
    store_file_close(rig->compact_handle.file);
    model_close(rig->model, rig->compact_handle.inode);
    rig->compact = NULL;
    rig->compact_handle = (struct rig_handle){.file = NULL};
}

void rig_compact_end(struct rig *rig)
{
    if (rig->compact != NULL) {
        end_compaction(rig);
        rig->abandoned++;
    }
}

/* Done, it lies in order but for what stands between two pieces. */
static void check_shape(struct rig *rig)
{
    struct store_compact_info info;
    store_compact_get_info(rig->compact, &info);
    if (info.after.leaves > 0 && info.after.runs > 4 + info.after.leaves * 2 / RIG_PIECE) {
        rig_fail(rig, "compacted: %" PRIu64 " leaves in %" PRIu64 " runs", info.after.leaves, info.after.runs);
    }
}

void rig_compact(struct rig *rig)
{
    if (rig->compact == NULL) {
        begin_compaction(rig);
        return;
    }
    const int result = store_compact_step(rig->compact, 1);
    rig_note(rig, "compaction goes on: %d", result);
    if (result == 1) {
        return;
    }
    if (result != 0 && result != -EBUSY && result != -EAGAIN && result != -ESTALE && result != -ENOENT) {
        rig_fail(rig, "compaction answers %d", result);
    }
    if (result == 0) {
        check_shape(rig);
    }
    rig->compacted += result == 0;
    rig->compact_gave_way += result != 0;
    end_compaction(rig);
}

void rig_destroy(struct rig *rig)
{
    rig_compact_end(rig);
    rig_close_handles(rig);
    rig_must(rig, store_close(rig->store), "store_close");
    assert_int_equal(atomic_load(&rig->diag.damage_count), 0);
    model_free(rig->model);
    mem_device_destroy(rig->mem);
    free(rig->data);
}

/* What a start would make of the device as it is, found on a copy of it: the live tree. Returns the records that it
 * replayed. */
static uint64_t compare_clone(struct rig *rig, const char *when)
{
    struct mem_device *mem = mem_device_clone(rig->mem);
    struct store *store = open_on(rig, mem_device_io(mem), false);
    struct store_stats stats;
    struct compare compare = {.store = store, .view = store_live(store), .model = rig->model};
    if (!compare_tree(&compare)) {
        rig_fail(rig, "replayed on a clone %s a checkpoint: tree: %s", when, compare.why);
    }
    rig_must(rig, store_check(store), "store_check of a clone");
    store_get_stats(store, &stats);
    store_abandon(store);
    mem_device_destroy(mem);
    return stats.redo_records;
}

void rig_checkpoint(struct rig *rig)
{
    rig_note(rig, "checkpoint");
    rig->cloned_records += compare_clone(rig, "before");
    rig_must(rig, store_checkpoint(rig->store), "store_checkpoint");
    if (compare_clone(rig, "behind") != 0) {
        rig_fail(rig, "records are replayed behind a checkpoint");
    }
}

/* Everything is there, and nothing can be changed. */
static void look_read_only(struct rig *rig)
{
    struct store_attr attr;
    const struct store_name name = {"new", 3};
    open_store(rig, true);
    rig_compare(rig);
    const int result = store_create(rig->store, store_live(rig->store), INO_ROOT, name, S_IFREG | 0644, 0,
                                    (struct store_who){0, 0}, &attr);
    if (result != -EROFS) {
        rig_fail(rig, "create in a store opened read-only answers %d", result);
    }
    rig_must(rig, store_close(rig->store), "store_close");
}

void rig_reopen(struct rig *rig)
{
    rig_note(rig, "clean close and reopen");
    model_begin(rig->model);
    rig_compact_end(rig);
    rig_close_handles(rig);
    rig_must(rig, store_close(rig->store), "store_close");
    if (test_random_chance(&rig->random, 30)) {
        look_read_only(rig);
    }
    open_store(rig, false);
    rig_compare(rig);
}

void rig_kill_and_reopen(struct rig *rig)
{
    rig_note(rig, "kill and reopen");
    model_begin(rig->model);
    rig_compact_end(rig);
    store_abandon(rig->store);
    open_store(rig, false);
    for (unsigned i = 0; i < RIG_HANDLES; i++) {
        if (rig->handles[i].file != NULL) { /* died with the store; what had no name is gone */
            model_close(rig->model, rig->handles[i].inode);
            rig->handles[i] = (struct rig_handle){0};
        }
    }
    rig_compare(rig);
    rig_check_store(rig);
}

void rig_compare_view(struct rig *rig, struct view *view, const struct model *model)
{
    struct compare compare = {
        .store = rig->store,
        .view = view,
        .model = model,
        .resume = (unsigned)test_random_below(&rig->random, 40),
    };
    if (!compare_tree(&compare)) {
        rig_fail(rig, "tree: %s", compare.why);
    }
}

static void compare_orphan(struct rig *rig, const struct rig_handle *handle)
{
    struct compare compare = {.store = rig->store, .model = rig->model};
    struct store_attr got;
    struct store_attr want;
    model_attr(rig->model, handle->inode, &want);
    rig_must(rig, store_file_getattr(handle->file, &got), "getattr of an open file");
    if (!compare_attr(&compare, &got, &want) ||
        !compare_range(&compare, handle->file, handle->inode, 0, handle->inode->size + 1)) {
        rig_fail(rig, "open file: %s", compare.why);
    }
}

void rig_compare(struct rig *rig)
{
    rig_compare_view(rig, rig_view(rig), rig->model);
    for (unsigned i = 0; i < RIG_HANDLES; i++) {
        if (rig->handles[i].file != NULL) {
            compare_orphan(rig, &rig->handles[i]);
        }
    }
}

void rig_step_until_idle(struct rig *rig)
{
    struct store_stats stats;
    do {
        store_step(rig->store);
        store_get_stats(rig->store, &stats);
    } while (stats.maps_waiting > 0);
    assert_int_equal(stats.maps_failed, 0);
}

void rig_check_store(struct rig *rig)
{
    rig_must(rig, store_check(rig->store), "store_check");
}
