/*
 * txn/control.c - the control file.
 *
 * number % 2 tells which slot a number belongs to, so that the newest slot is never overwritten (CONTROL-2).
 */
#include "txn/control.h"

#include "base/checksum.h"
#include "base/plant.h"
#include "txn/control_format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CONTROL_PATH_SIZE 4200u

static void control_path(char *path, const char *dir)
{
    (void)snprintf(path, CONTROL_PATH_SIZE, "%s/control", dir);
}

static void slot_encode(const struct control *control, struct control_slot *slot)
{
    memset(slot, 0, sizeof *slot);
    memcpy(slot->magic, CONTROL_MAGIC, sizeof slot->magic);
    slot->version = le32_of(CONTROL_FORMAT_VERSION);
    slot->block_size = le32_of(BLOCK_SIZE);
    memcpy(slot->store_id, control->store_id, sizeof slot->store_id);
    slot->number = le64_of(control->number);
    slot->written_ns = le64_of((uint64_t)control->written_ns);
    slot->epoch = le64_of(control->epoch);
    slot->catalog = disk_page_ptr_of(control->catalog.ptr);
    slot->redo_lsn = le64_of(control->redo_lsn);
    slot->scan_lsn = le64_of(control->scan_lsn);
    slot->ceiling_epoch = le64_of(control->ceiling_epoch);
    slot->ceiling_rel = le64_of(control->ceiling_rel);
    slot->ceiling_ino = le64_of(control->ceiling_ino);
    slot->ceiling_txn = le64_of(control->ceiling_txn);
    slot->ceiling_lsn = le64_of(control->ceiling_lsn);
    slot->name_seed = le64_of(control->name_seed);
    slot->catalog_height = control->catalog.height;
    slot->clean = control->clean;
    slot->name_bits = control->name_bits;
    slot->timeline = le32_of(control->timeline);
    slot->fsm_threshold = le32_of(control->fsm_threshold);
    slot->sidecar_threshold = le32_of(control->sidecar_threshold);
    slot->sidecar_epoch = le64_of(control->sidecar_epoch);
    slot->restoring = control->restoring;
    slot->commits = le64_of(control->commits);
    slot->inode_count = le64_of(control->inode_count);
    slot->checksum = le64_of(checksum_64(slot, offsetof(struct control_slot, checksum), 0));
}

static void slot_decode(const struct control_slot *slot, struct control *control)
{
    memcpy(control->store_id, slot->store_id, sizeof control->store_id);
    control->number = le64_get(slot->number);
    control->written_ns = (int64_t)le64_get(slot->written_ns);
    control->epoch = le64_get(slot->epoch);
    control->catalog.ptr = disk_page_ptr_get(&slot->catalog);
    control->catalog.height = slot->catalog_height;
    control->redo_lsn = le64_get(slot->redo_lsn);
    control->scan_lsn = le64_get(slot->scan_lsn);
    control->ceiling_epoch = le64_get(slot->ceiling_epoch);
    control->ceiling_rel = le64_get(slot->ceiling_rel);
    control->ceiling_ino = le64_get(slot->ceiling_ino);
    control->ceiling_txn = le64_get(slot->ceiling_txn);
    control->ceiling_lsn = le64_get(slot->ceiling_lsn);
    control->name_seed = le64_get(slot->name_seed);
    control->name_bits = slot->name_bits;
    control->clean = slot->clean == 1;
    const uint32_t timeline = le32_get(slot->timeline);
    control->timeline = timeline != 0 ? timeline : 1;
    control->fsm_threshold = le32_get(slot->fsm_threshold);
    control->sidecar_threshold = le32_get(slot->sidecar_threshold);
    control->sidecar_epoch = le64_get(slot->sidecar_epoch);
    control->restoring = slot->restoring == 1;
    control->commits = le64_get(slot->commits);
    control->inode_count = le64_get(slot->inode_count);
}

enum copy_state { COPY_GOOD, COPY_FOREIGN, COPY_NEWER, COPY_DAMAGED };

static enum copy_state copy_state(const struct control_slot *slot, size_t size_read)
{
    if (size_read < sizeof *slot || memcmp(slot->magic, CONTROL_MAGIC, sizeof slot->magic) != 0) {
        return COPY_FOREIGN;
    }
    if (le64_get(slot->checksum) != checksum_64(slot, offsetof(struct control_slot, checksum), 0)) {
        return COPY_DAMAGED;
    }
    return le32_get(slot->version) > CONTROL_FORMAT_VERSION ? COPY_NEWER : COPY_GOOD;
}

/* What a slot with a good checksum may still have wrong: nothing, unless another program wrote it. */
static int slot_validate(struct diag *diag, const char *path, const struct control_slot *slot)
{
    if (le32_get(slot->version) == 0 || le32_get(slot->version) > CONTROL_FORMAT_VERSION) {
        return diag_damage(diag, path, BLOCK_NONE, "version", "got %u, want 1 to %u", le32_get(slot->version),
                           CONTROL_FORMAT_VERSION);
    }
    if (le32_get(slot->block_size) != BLOCK_SIZE) {
        return diag_damage(diag, path, BLOCK_NONE, "block_size", "got %u, want %u", le32_get(slot->block_size),
                           BLOCK_SIZE);
    }
    if (slot->catalog_height == 0 || slot->name_bits == 0 || slot->name_bits > 47 || slot->clean > 1 ||
        slot->restoring > 1) {
        return diag_damage(diag, path, BLOCK_NONE, "catalog_height, name_bits, clean, restoring", "got %u, %u, %u, %u",
                           slot->catalog_height, slot->name_bits, slot->clean, slot->restoring);
    }
    if (le64_get(slot->epoch) >= le64_get(slot->ceiling_epoch)) {
        return diag_damage(diag, path, BLOCK_NONE, "epoch", "got %llu, not below its ceiling %llu",
                           (unsigned long long)le64_get(slot->epoch),
                           (unsigned long long)le64_get(slot->ceiling_epoch));
    }
    return 0;
}

struct control_scan {
    unsigned good, foreign, newer;
    unsigned good_in_slot[2];
    struct control_slot newest;
};

static int scan_copies(struct io_file *file, struct control_scan *scan)
{
    for (unsigned slot = 0; slot < 2; slot++) {
        for (unsigned copy = 0; copy < 2; copy++) {
            struct control_slot disk;
            size_t size_read = 0;
            const int rc = io_read_full(file, &disk, sizeof disk, CONTROL_COPY_OFFSET(slot, copy), &size_read);
            if (rc != 0) {
                return rc;
            }
            const enum copy_state state = copy_state(&disk, size_read);
            scan->foreign += state == COPY_FOREIGN;
            scan->newer += state == COPY_NEWER;
            if (state != COPY_GOOD) {
                continue;
            }
            scan->good_in_slot[slot]++;
            if (scan->good++ == 0 || le64_get(disk.number) > le64_get(scan->newest.number)) {
                scan->newest = disk;
            }
        }
    }
    return 0;
}

static int scan_judge(struct diag *diag, const char *path, const struct control_scan *scan)
{
    if (scan->foreign == 4) {
        return -ENODATA;
    }
    if (scan->newer > 0) {
        diag_log(diag, DIAG_ERROR, "%s: written by a newer version of tblfs (this one knows format %u)", path,
                 CONTROL_FORMAT_VERSION);
        return -EPROTO;
    }
    for (unsigned slot = 0; slot < 2; slot++) {
        if (scan->good_in_slot[slot] == 0) {
            return diag_damage(diag, path, BLOCK_NONE, "control slot", "slot %u: both copies are damaged", slot);
        }
    }
    return slot_validate(diag, path, &scan->newest);
}

int control_read_any(struct io_device *dev, struct diag *diag, const char *dir, struct control *out_control,
                     uint32_t *out_version)
{
    char path[CONTROL_PATH_SIZE];
    control_path(path, dir);
    struct io_stat stat;
    int rc = io_stat(dev, path, &stat);
    if (rc != 0) {
        return rc == -ENOENT || rc == -ENOTDIR ? -ENODATA : rc;
    }
    if (stat.kind != IO_KIND_FILE) {
        return -ENODATA;
    }
    struct io_file *file = NULL;
    rc = io_open(dev, path, IO_READ_ONLY, &file);
    if (rc != 0) {
        return rc;
    }
    struct control_scan scan = {0};
    rc = scan_copies(file, &scan);
    const int close_rc = io_close(file);
    if (rc == 0) {
        rc = close_rc;
    }
    if (rc == 0) {
        rc = scan_judge(diag, path, &scan);
    }
    if (rc == 0) {
        slot_decode(&scan.newest, out_control);
        *out_version = le32_get(scan.newest.version);
    }
    return rc;
}

int control_read(struct io_device *dev, struct diag *diag, const char *dir, struct control *out_control)
{
    struct control control;
    uint32_t version = 0;
    const int rc = control_read_any(dev, diag, dir, &control, &version);
    if (rc != 0) {
        return rc;
    }
    if (version < CONTROL_FORMAT_VERSION) {
        diag_log(
            diag, DIAG_ERROR,
            "%s/control: written by an older version of tblfs, in format %u; 'tblfs upgrade' makes a copy in format %u",
            dir, version, CONTROL_FORMAT_VERSION);
        return -EPROTO;
    }
    *out_control = control;
    return 0;
}

/* A copy that an earlier write left torn is written first, while the other one is whole (CONTROL-1). */
static unsigned first_copy(struct io_file *file, unsigned slot)
{
    struct control_slot disk;
    size_t size_read = 0;
    const int rc = io_read_full(file, &disk, sizeof disk, CONTROL_COPY_OFFSET(slot, 1), &size_read);
    return rc == 0 && copy_state(&disk, size_read) == COPY_GOOD ? 0 : 1;
}

static int write_slot(struct io_file *file, const struct control *control)
{
    struct control_slot slot;
    slot_encode(control, &slot);
    const unsigned first = first_copy(file, control->number % 2);
    int rc = 0;
    for (unsigned i = 0; i < (PLANT(CONTROL_IN_PLACE) ? 1 : 2) && rc == 0; i++) {
        const unsigned copy = (first + i) % 2;
        rc = io_write_full(file, &slot, sizeof slot, CONTROL_COPY_OFFSET(control->number % 2, copy));
        if (rc == 0 && !PLANT(CONTROL_NOT_SYNCED)) {
            rc = io_sync(file);
        }
    }
    return rc;
}

static int open_and_write(struct io_device *dev, const char *path, unsigned flags, const struct control *control,
                          unsigned slots)
{
    struct io_file *file = NULL;
    int rc = io_open(dev, path, flags, &file);
    if (rc != 0) {
        return rc;
    }
    struct control next = *control;
    if ((flags & IO_CREATE) != 0) {
        rc = io_allocate(file, 0, CONTROL_FILE_SIZE);
    }
    for (unsigned i = 0; i < slots && rc == 0; i++, next.number++) {
        rc = write_slot(file, &next);
    }
    const int close_rc = io_close(file);
    return rc != 0 ? rc : close_rc;
}

int control_create(struct io_device *dev, const char *dir, struct control *control)
{
    char path[CONTROL_PATH_SIZE];
    control_path(path, dir);
    int rc = open_and_write(dev, path, IO_READ_WRITE | IO_CREATE | IO_EXCLUSIVE, control, 2);
    if (rc == 0) {
        control->number++;
        rc = io_sync_dir(dev, dir);
    }
    return rc;
}

int control_write(struct io_device *dev, const char *dir, struct control *control)
{
    char path[CONTROL_PATH_SIZE];
    control_path(path, dir);
    struct control next = *control;
    next.number += PLANT(CONTROL_IN_PLACE) ? 2 : 1;
    next.written_ns = (int64_t)io_realtime_ns(dev);
    const int rc = open_and_write(dev, path, IO_READ_WRITE, &next, 1);
    if (rc == 0) {
        *control = next;
    }
    return rc;
}
