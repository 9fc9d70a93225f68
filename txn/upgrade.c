/*
 * txn/upgrade.c - `tblfs upgrade`: copies a data directory, file by file, and converts what has another format now.
 *
 * What only an older format has is dealt with in `converters`, one for each format that ever was: from what control_read_any made of its
 * control slot to one of the current format. Pages, items and records are the same in all of them so far; a format that
 * changes them converts them in copy_relation.
 *
 * The log is copied if it has to be replayed, or is wanted by an archive. Sidecars are copied as they are; sidecar_threshold 0
 * makes the first close of the copy look at each of them, by the real size of its table (SIDECAR-6).
 *
 * Locking: none, one thread.
 */
#include "txn/upgrade.h"

#include "base/checksum.h"
#include "bufcache/page_format.h"
#include "txn/control.h"
#include "txn/control_format.h"
#include "txn/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES  4300u
#define NAME_BYTES  300u /* of a file below the data directory */
#define CHUNK_BYTES (128u * BLOCK_SIZE)

struct upgrade {
    const struct upgrade_options *options;
    struct upgrade_result result;
    struct io_file *lock;
    struct io_file *anchor; /* the new directory; NULL: each file is synced by itself */
    uint8_t *chunk;
    char old_path[PATH_BYTES], new_path[PATH_BYTES]; /* of the file being copied */
};

void upgrade_progress_look(void *arg, struct progress_state *out_state)
{
    const struct upgrade_progress *progress = arg;
    out_state->total = atomic_load(&progress->total_bytes);
    out_state->done = atomic_load(&progress->done_bytes);
    out_state->what = out_state->total > 0 ? "copying" : NULL;
}

static int say(const struct upgrade *upgrade, const char *path, int rc, const char *why)
{
    diag_log(upgrade->options->diag, DIAG_ERROR, "%s: %s", path, why != NULL ? why : strerror(-rc));
    return rc;
}

/* ---- converting ---- */

/* Format 1 had no sidecars, and no threshold for them. */
static void convert_from_1(struct control *control)
{
    control->fsm_threshold = STORE_FSM_THRESHOLD;
    control->sidecar_epoch = control->epoch;
}

static void convert_from_2(struct control *control)
{
    (void)control;
}

static void (*const converters[])(struct control *control) = {NULL, convert_from_1, convert_from_2};
static_assert(ARRAY_COUNT(converters) == CONTROL_FORMAT_VERSION + 1, "each format has a converter");

/* ---- files ---- */

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* A block that was written once holds a page of its relation, with a checksum that is right; a free one may be torn. */
static bool is_whole_page(const uint8_t *block, rel_no rel, block_no number)
{
    struct page_header header;
    memcpy(&header, block, sizeof header);
    return le64_get(header.checksum) == checksum_64(block + sizeof(le64), BLOCK_SIZE - sizeof(le64), 0) &&
           le64_get(header.rel) == rel && le32_get(header.block) == number;
}

/* REL_NONE: no relation file. Zeros are left out. */
static int copy_chunk(struct upgrade *upgrade, struct io_file *to, uint64_t offset, size_t size, rel_no rel)
{
    int rc = 0;
    for (size_t at = 0; at < size && rc == 0; at += BLOCK_SIZE) {
        const uint8_t *block = upgrade->chunk + at;
        const size_t length = size - at < BLOCK_SIZE ? size - at : BLOCK_SIZE;
        if (is_zero(block, length)) {
            continue;
        }
        if (rel != REL_NONE && length == BLOCK_SIZE) {
            upgrade->result.torn_pages += !is_whole_page(block, rel, (block_no)((offset + at) / BLOCK_SIZE));
        }
        rc = io_write_full(to, block, length, offset + at);
        upgrade->result.bytes += length;
    }
    if (upgrade->options->progress != NULL && rel != REL_NONE) {
        atomic_fetch_add(&upgrade->options->progress->done_bytes, size);
    }
    return rc;
}

static int copy_bytes(struct upgrade *upgrade, struct io_file *from, struct io_file *to, rel_no rel)
{
    uint64_t offset = 0;
    size_t size = 0;
    int rc = 0;
    do {
        rc = io_read_full(from, upgrade->chunk, CHUNK_BYTES, offset, &size);
        if (rc == 0 && size > 0) {
            rc = copy_chunk(upgrade, to, offset, size, rel);
        }
        offset += size;
    } while (rc == 0 && size > 0);
    if (rc == 0) {
        rc = io_truncate(to, offset); /* it may end in zeros */
    }
    if (rc == 0 && upgrade->anchor == NULL) {
        rc = io_sync(to);
    }
    return rc;
}

static int copy_open_file(struct upgrade *upgrade, struct io_file *from, rel_no rel)
{
    struct io_file *to = NULL;
    int rc = io_open(upgrade->options->dev, upgrade->new_path, IO_READ_WRITE | IO_CREATE | IO_EXCLUSIVE, &to);
    if (rc != 0) {
        return say(upgrade, upgrade->new_path, rc, NULL);
    }
    rc = copy_bytes(upgrade, from, to, rel);
    const int close_rc = io_close(to);
    rc = rc != 0 ? rc : close_rc;
    upgrade->result.files++;
    return rc != 0 ? say(upgrade, upgrade->new_path, rc, NULL) : 0;
}

/* Copies DIR/NAME. One that is missing is left out. */
static int copy_file(struct upgrade *upgrade, const char *name, rel_no rel)
{
    struct io_file *from = NULL;
    (void)snprintf(upgrade->old_path, PATH_BYTES, "%s/%s", upgrade->options->old_dir, name);
    (void)snprintf(upgrade->new_path, PATH_BYTES, "%s/%s", upgrade->options->new_dir, name);
    int rc = io_open(upgrade->options->dev, upgrade->old_path, IO_READ_ONLY, &from);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : say(upgrade, upgrade->old_path, rc, NULL);
    }
    rc = copy_open_file(upgrade, from, rel);
    const int close_rc = io_close(from);
    (void)close_rc; /* it was only read */
    return rc;
}

/* ---- directories ---- */

struct directory {
    struct upgrade *upgrade;
    const char *name; /* below the data directory */
    bool relations;
    bool only_count;
};

/* Relation files and their sidecars are named by 16 digits. */
static int copy_entry(void *arg, const char *name, enum io_file_kind kind)
{
    const struct directory *directory = arg;
    struct upgrade *upgrade = directory->upgrade;
    char path[NAME_BYTES];
    struct io_stat st;
    if (kind != IO_KIND_FILE) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/%s", directory->name, name);
    const bool is_relation = directory->relations && strlen(name) == 16;
    if (!directory->only_count) {
        return copy_file(upgrade, path, is_relation ? strtoull(name, NULL, 16) : REL_NONE);
    }
    (void)snprintf(upgrade->old_path, PATH_BYTES, "%s/%s", upgrade->options->old_dir, path);
    if (is_relation && upgrade->options->progress != NULL &&
        io_stat(upgrade->options->dev, upgrade->old_path, &st) == 0) {
        atomic_fetch_add(&upgrade->options->progress->total_bytes, st.size_bytes);
    }
    return 0;
}

static int make_dir(const struct upgrade *upgrade, const char *name)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", upgrade->options->new_dir, name);
    const int rc = io_make_dir(upgrade->options->dev, path);
    return rc != 0 ? say(upgrade, path, rc, NULL) : 0;
}

static int sync_dir(const struct upgrade *upgrade, const char *name)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", upgrade->options->new_dir, name);
    return upgrade->anchor == NULL ? io_sync_dir(upgrade->options->dev, path) : 0;
}

/* A directory that the old one lacks is made all the same. */
static int copy_directory(struct upgrade *upgrade, const char *name, bool relations, bool only_count)
{
    struct directory directory = {.upgrade = upgrade, .name = name, .relations = relations, .only_count = only_count};
    char path[PATH_BYTES];
    int rc = only_count ? 0 : make_dir(upgrade, name);
    if (rc == 0) {
        (void)snprintf(path, sizeof path, "%s/%s", upgrade->options->old_dir, name);
        rc = io_list_dir(upgrade->options->dev, path, copy_entry, &directory);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc == 0 && !only_count ? sync_dir(upgrade, name) : rc;
}

static int copy_relations(struct upgrade *upgrade, bool only_count)
{
    int rc = only_count ? 0 : make_dir(upgrade, "rel");
    for (unsigned i = 0; i < 256 && rc == 0; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "rel/%02x", i);
        rc = copy_directory(upgrade, name, true, only_count);
    }
    return rc == 0 && !only_count ? sync_dir(upgrade, "rel") : rc;
}

static bool has_archive(const struct upgrade *upgrade)
{
    char path[PATH_BYTES];
    struct io_stat st;
    (void)snprintf(path, sizeof path, "%s/archived", upgrade->options->old_dir);
    return io_stat(upgrade->options->dev, path, &st) == 0;
}

static int copy_all(struct upgrade *upgrade)
{
    int rc = copy_relations(upgrade, true);
    if (rc == 0) {
        rc = copy_relations(upgrade, false);
    }
    if (rc == 0 && (!upgrade->result.was_clean || has_archive(upgrade))) {
        rc = copy_directory(upgrade, "log", false, false);
    }
    if (rc == 0) {
        rc = copy_file(upgrade, "archived", REL_NONE);
    }
    if (rc == 0) {
        rc = copy_file(upgrade, "tblfs.conf", REL_NONE);
    }
    if (rc == 0) {
        rc = upgrade->anchor != NULL ? io_sync_filesystem(upgrade->anchor)
                                     : io_sync_dir(upgrade->options->dev, upgrade->options->new_dir);
        rc = rc != 0 ? say(upgrade, upgrade->options->new_dir, rc, NULL) : 0;
    }
    return rc;
}

/* ---- before and behind ---- */

/* What lies on a medium that cannot be written is in nobody's use. */
static int lock_old(struct upgrade *upgrade)
{
    pid_t holder = 0;
    (void)snprintf(upgrade->old_path, PATH_BYTES, "%s/lock", upgrade->options->old_dir);
    int rc = io_open(upgrade->options->dev, upgrade->old_path, IO_READ_WRITE, &upgrade->lock);
    if (rc != 0) {
        return rc == -ENOENT || rc == -EROFS ? 0 : say(upgrade, upgrade->old_path, rc, NULL);
    }
    rc = io_lock(upgrade->lock, &holder);
    if (rc == -EBUSY) {
        diag_log(upgrade->options->diag, DIAG_ERROR, "%s: in use by process %d: unmount it first",
                 upgrade->options->old_dir, (int)holder);
    }
    return rc;
}

static int refuse_entry(void *arg, const char *name, enum io_file_kind kind)
{
    (void)arg;
    (void)kind;
    return strcmp(name, "lost+found") == 0 ? 0 : -ENOTEMPTY;
}

static int prepare_new(struct upgrade *upgrade)
{
    struct io_device *dev = upgrade->options->dev;
    const char *dir = upgrade->options->new_dir;
    struct io_stat st;
    int rc = io_stat(dev, dir, &st);
    if (rc == -ENOENT) {
        rc = io_make_dir(dev, dir);
    } else if (rc == 0) {
        rc = st.kind == IO_KIND_DIRECTORY ? io_list_dir(dev, dir, refuse_entry, NULL) : -ENOTDIR;
    }
    if (rc != 0) {
        return say(upgrade, dir, rc, rc == -ENOTEMPTY ? "not empty: the copy needs a directory of its own" : NULL);
    }
    if (io_open(dev, dir, IO_READ_ONLY, &upgrade->anchor) != 0) {
        upgrade->anchor = NULL;
    } else if (io_sync_filesystem(upgrade->anchor) != 0) {
        const int close_rc = io_close(upgrade->anchor);
        (void)close_rc;
        upgrade->anchor = NULL;
    }
    return 0;
}

/* What is left is no store. */
static void remove_control(struct upgrade *upgrade)
{
    (void)snprintf(upgrade->new_path, PATH_BYTES, "%s/control", upgrade->options->new_dir);
    const int rc = io_unlink(upgrade->options->dev, upgrade->new_path);
    (void)rc; /* half of one is refused as well */
}

/* Opens the copy, which replays what there is to replay, checks it and closes it. One that cannot be opened, or has tablespaces, which it would
 * share with the old one, is none. */
static int check_new(struct upgrade *upgrade)
{
    const struct store_options options = {
        .dev = upgrade->options->dev, .diag = upgrade->options->diag, .dir = upgrade->options->new_dir, .copied = true};
    struct store *store = NULL;
    int rc = store_open(&options, &store, NULL);
    if (rc != 0) {
        remove_control(upgrade);
        return rc;
    }
    rc = store_check(store);
    const int close_rc = store_close(store);
    return rc != 0 ? rc : close_rc;
}

static int create_control(struct upgrade *upgrade, struct control *control)
{
    const int rc = control_create(upgrade->options->dev, upgrade->options->new_dir, control);
    if (rc != 0) {
        remove_control(upgrade);
        return say(upgrade, upgrade->new_path, rc, NULL);
    }
    return 0;
}

static int copy_and_convert(struct upgrade *upgrade)
{
    struct control control;
    int rc = control_read_any(upgrade->options->dev, upgrade->options->diag, upgrade->options->old_dir, &control,
                              &upgrade->result.old_format);
    if (rc != 0) {
        return rc == -ENODATA ? say(upgrade, upgrade->options->old_dir, rc, "not a tblfs data directory") : rc;
    }
    upgrade->result.new_format = CONTROL_FORMAT_VERSION;
    upgrade->result.was_clean = control.clean;
    rc = prepare_new(upgrade);
    if (rc == 0) {
        rc = copy_all(upgrade);
    }
    if (rc == 0) { /* UPGRADE-2 */
        converters[upgrade->result.old_format](&control);
        control.sidecar_threshold = 0;
        rc = create_control(upgrade, &control);
        rc = rc == 0 ? check_new(upgrade) : rc;
    }
    return rc;
}

static void close_quietly(struct io_file *file)
{
    if (file != NULL) {
        const int rc = io_close(file);
        (void)rc; /* nothing was written through it */
    }
}

int upgrade_copy(const struct upgrade_options *options, struct upgrade_result *out_result)
{
    struct upgrade *upgrade = calloc(1, sizeof *upgrade);
    if (upgrade == NULL) {
        return -ENOMEM;
    }
    upgrade->options = options;
    upgrade->chunk = malloc(CHUNK_BYTES);
    int rc = upgrade->chunk != NULL ? lock_old(upgrade) : -ENOMEM;
    if (rc == 0) {
        rc = copy_and_convert(upgrade);
    }
    if (rc == 0) {
        *out_result = upgrade->result;
    }
    close_quietly(upgrade->anchor);
    close_quietly(upgrade->lock);
    free(upgrade->chunk);
    free(upgrade);
    return rc;
}
