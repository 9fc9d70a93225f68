/*
 * txn/mkfs.c - makes an empty store: a catalog with the root directory, then, last, the control file. A directory
 * without control file is no data directory, so a mkfs that was cut short leaves nothing that could be opened.
 */
#include "txn/store_open.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FIRST_EPOCH     ((epoch_no)1)
#define FIRST_REL       ((rel_no)(REL_CATALOG + 1))
#define FIRST_INO       ((ino_no)(INO_ROOT + 1))
#define FIRST_LSN       ((lsn_no)1 << 20)
#define NAME_HASH_BITS  47u
#define MKFS_OPEN_FILES 16u

static int refuse_entry(void *arg, const char *name, enum io_file_kind kind)
{
    (void)arg;
    (void)kind;
    if (strcmp(name, "lost+found") == 0) {
        return 0;
    }
    return -ENOTEMPTY;
}

/* -EEXIST: there is a store, damaged or not; 0: there is none, whatever else there is. */
static int refuse_store(const struct store_mkfs_options *options)
{
    struct diag silent;
    struct control control;
    diag_init_silent(&silent);
    const int rc = control_read(options->dev, &silent, options->dir, &control);
    return rc == -ENODATA || rc == -ENOENT ? 0 : rc == -ENOMEM ? rc : -EEXIST;
}

static int check_dir(const struct store_mkfs_options *options)
{
    struct io_stat stat;
    int rc = io_stat(options->dev, options->dir, &stat);
    if (rc == -ENOENT && options->create_dir) {
        rc = io_make_dir(options->dev, options->dir);
    } else if (rc == 0) {
        rc = stat.kind == IO_KIND_DIRECTORY ? refuse_store(options) : -ENOTDIR;
        rc = rc == 0 ? io_list_dir(options->dev, options->dir, refuse_entry, NULL) : rc;
    }
    if (rc != 0) {
        const char *why = rc == -EEXIST      ? "there is a tblfs data directory already"
                          : rc == -ENOTEMPTY ? "the directory is not empty"
                                             : strerror(-rc);
        diag_log(options->diag, DIAG_ERROR, "mkfs %s: %s", options->dir, why);
    }
    return rc;
}

static struct inode root_inode(const struct store_mkfs_options *options)
{
    const int64_t now = (int64_t)io_realtime_ns(options->dev);
    return (struct inode){
        .ino = INO_ROOT,
        .mode = S_IFDIR | (options->root_mode != 0 ? options->root_mode & 07777 : 0755),
        .nlink = 2,
        .uid = options->root_uid,
        .gid = options->root_gid,
        .atime_ns = now,
        .mtime_ns = now,
        .ctime_ns = now,
        .content_ptr = PAGE_PTR_NONE,
        .change_epoch = FIRST_EPOCH,
        .rewrite_epoch = FIRST_EPOCH,
        .attr_epoch = FIRST_EPOCH,
        .parent = INO_ROOT,
    };
}

/* Puts the root directory into the live catalog. */
static int put_root(const struct store_mkfs_options *options, struct bufcache *cache, struct cow *cow)
{
    uint32_t pins = 0;
    uint32_t news = 0;
    catalog_frames_needed(1, &pins, &news);
    struct frame_budget budget;
    int rc = frame_budget_take(cache, pins, news, &budget);
    if (rc != 0) {
        return rc;
    }
    struct view *live = cow_live(cow);
    struct catalog_batch batch;
    catalog_batch_init(&batch, live);
    cow_gate_enter(cow);
    rwlock_lock_exclusive(&live->catalog_lock);
    const struct inode inode = root_inode(options);
    rc = inode_batch_put(&batch, &inode);
    if (rc == 0) {
        rc = catalog_batch_plan(&batch, &budget);
    }
    if (rc == 0) {
        catalog_batch_apply(&batch);
    }
    catalog_batch_free(&batch);
    rwlock_unlock_exclusive(&live->catalog_lock);
    cow_gate_leave(cow);
    frame_budget_release(&budget);
    return rc;
}

static int write_control(const struct store_mkfs_options *options, struct catalog_root root)
{
    const uint32_t threshold = options->fsm_threshold_given ? options->fsm_threshold : STORE_FSM_THRESHOLD;
    struct control control = {
        .written_ns = (int64_t)io_realtime_ns(options->dev),
        .epoch = FIRST_EPOCH,
        .catalog = root,
        .redo_lsn = FIRST_LSN,
        .scan_lsn = FIRST_LSN,
        .ceiling_epoch = FIRST_EPOCH + 1,
        .ceiling_rel = FIRST_REL,
        .ceiling_ino = FIRST_INO,
        .ceiling_txn = 1,
        .ceiling_lsn = FIRST_LSN,
        .name_bits = options->name_hash_bits != 0 ? options->name_hash_bits : NAME_HASH_BITS,
        .clean = true,
        .timeline = 1,
        .fsm_threshold = threshold,
        .sidecar_threshold = threshold,
        .sidecar_epoch = FIRST_EPOCH,
        .inode_count = 1,
    };
    int rc = io_random(options->dev, control.store_id, sizeof control.store_id);
    if (rc == 0) {
        rc = io_random(options->dev, &control.name_seed, sizeof control.name_seed);
    }
    return rc != 0 ? rc : control_create(options->dev, options->dir, &control);
}

static int make_catalog(const struct store_mkfs_options *options, struct bufcache *cache, struct relation *catalog,
                        struct catalog_root *out_root)
{
    int rc = relation_create_file(catalog);
    if (rc == 0) {
        rc = fsm_init_empty(catalog);
    }
    if (rc != 0) {
        return rc;
    }
    const struct cow_options cow_options = {.cache = cache,
                                            .diag = options->diag,
                                            .dev = options->dev,
                                            .epoch = FIRST_EPOCH,
                                            .catalog = catalog,
                                            .root = {.ptr = PAGE_PTR_NONE, .height = 0}};
    struct cow *cow = NULL;
    rc = cow_open(&cow_options, &cow);
    if (rc != 0) {
        return rc;
    }
    struct writeback_result result;
    rc = put_root(options, cache, cow);
    if (rc == 0) {
        rc = bufcache_write_back(cache, FIRST_EPOCH, &result);
    }
    if (rc == 0) {
        rc = bufcache_sync_relations(cache);
    }
    *out_root = cow_live(cow)->root;
    cow_close(cow);
    return rc;
}

int store_mkfs(const struct store_mkfs_options *options)
{
    int rc = check_dir(options);
    if (rc != 0) {
        return rc;
    }
    struct bufcache *cache = NULL;
    rc = store_open_cache(options->dev, options->diag, options->dir, STORE_MIN_CACHE_BYTES, MKFS_OPEN_FILES, false,
                          &cache);
    if (rc != 0) {
        return rc;
    }
    struct relation *catalog = NULL;
    struct catalog_root root = {.ptr = PAGE_PTR_NONE, .height = 0};
    rc = relation_open(cache, TS_DEFAULT, REL_CATALOG, &catalog);
    if (rc == 0) {
        rc = make_catalog(options, cache, catalog, &root);
    }
    relation_unref(catalog);
    bufcache_close(cache);
    if (rc == 0) {
        rc = write_control(options, root);
    }
    if (rc != 0) {
        diag_log(options->diag, DIAG_ERROR, "mkfs %s: %s", options->dir, strerror(-rc));
    }
    return rc;
}
