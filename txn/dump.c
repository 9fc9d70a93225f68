/*
 * txn/dump.c - the control file, and what all dumps share.
 *
 * Locking: none, nothing is shared.
 */
#include "txn/dump_int.h"

#include "base/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- all of them ---- */

static void emit_damage(struct diag *diag, enum diag_level level, const char *line)
{
    struct dump *dump = (struct dump *)diag;
    (void)level;
    dump_print(dump, "! %s", line);
}

void dump_begin(struct dump *dump, const struct dump_options *options)
{
    *dump = (struct dump){.options = options};
    diag_init_silent(&dump->diag);
    dump->diag.emit = emit_damage;
    dump->diag.max_level = DIAG_WARNING;
}

int dump_end(struct dump *dump, int rc)
{
    if (dump->file != NULL) {
        const int close_rc = io_close(dump->file);
        (void)close_rc; /* it was only read */
    }
    if (rc == 0 && atomic_load(&dump->diag.damage_count) > 0) {
        return -EIO;
    }
    return rc;
}

/* ---- the control file ---- */

enum copy_state { COPY_GOOD, COPY_FOREIGN, COPY_NEWER, COPY_DAMAGED };

static enum copy_state copy_state(const struct control_slot *slot)
{
    if (memcmp(slot->magic, CONTROL_MAGIC, sizeof slot->magic) != 0) {
        return COPY_FOREIGN;
    }
    if (le64_get(slot->checksum) != checksum_64(slot, offsetof(struct control_slot, checksum), 0)) {
        return COPY_DAMAGED;
    }
    return le32_get(slot->version) > CONTROL_FORMAT_VERSION ? COPY_NEWER : COPY_GOOD;
}

struct control_copies {
    char path[DUMP_PATH_SIZE];
    struct control_slot slots[2][2];
    const struct control_slot *newest; /* the good copy with the largest number, NULL: none is good */
};

static void find_newest(struct control_copies *copies)
{
    for (unsigned i = 0; i < 4; i++) {
        const struct control_slot *slot = &copies->slots[i / 2][i % 2];
        if (copy_state(slot) == COPY_GOOD &&
            (copies->newest == NULL || le64_get(slot->number) > le64_get(copies->newest->number))) {
            copies->newest = slot;
        }
    }
}

/* What the file is too short for stays zero. */
static int read_copies(struct dump *dump, struct control_copies *copies)
{
    struct io_file *file = NULL;
    size_t size = 0;
    memset(copies, 0, sizeof *copies);
    (void)snprintf(copies->path, sizeof copies->path, "%s/control", dump->options->dir);
    int rc = io_open(dump->options->dev, copies->path, IO_READ_ONLY, &file);
    if (rc == -ENOENT || rc == -ENOTDIR) {
        dump_print(dump, "! %s: there is no control file", copies->path);
        return -ENODATA;
    }
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; i < 4 && rc == 0; i++) {
        rc = io_read_full(file, &copies->slots[i / 2][i % 2], sizeof copies->slots[0][0],
                          CONTROL_COPY_OFFSET(i / 2, i % 2), &size);
    }
    const int close_rc = io_close(file);
    (void)close_rc; /* it was only read */
    find_newest(copies);
    return rc;
}

static bool is_none_ours(const struct control_copies *copies)
{
    bool none = true;
    for (unsigned i = 0; i < 4; i++) {
        none = none && copy_state(&copies->slots[i / 2][i % 2]) == COPY_FOREIGN;
    }
    return none;
}

int dump_read_control(struct dump *dump, struct control_slot *out_slot)
{
    struct control_copies copies;
    const int rc = read_copies(dump, &copies);
    if (rc != 0) {
        return rc;
    }
    if (copies.newest == NULL) {
        dump_print(dump, "! %s: no copy of a control slot is good", copies.path);
        return is_none_ours(&copies) ? -ENODATA : -EIO;
    }
    *out_slot = *copies.newest;
    if (out_slot->clean == 0) {
        dump_print(dump, "# not closed cleanly, or in use: this is the last checkpoint; what came later is in the log");
    }
    return 0;
}

static void print_copy(struct dump *dump, const struct control_copies *copies, unsigned slot, unsigned copy)
{
    const struct control_slot *this = &copies->slots[slot][copy];
    const enum copy_state state = copy_state(this);
    const uint64_t offset = CONTROL_COPY_OFFSET(slot, copy);
    static const char *const names[] = {
        [COPY_GOOD] = "good",
        [COPY_FOREIGN] = "not a control slot",
        [COPY_NEWER] = "written by a newer version",
        [COPY_DAMAGED] = "checksum is wrong",
    };
    const bool in_force =
        copies->newest != NULL && state == COPY_GOOD && le64_get(this->number) == le64_get(copies->newest->number);
    const bool same = copy == 1 && memcmp(this, &copies->slots[slot][0], sizeof *this) == 0;
    dump_print(dump, "slot %u copy %u at %" PRIu64 ": %s%s%s", slot, copy, offset, names[state],
               in_force ? ", in force" : "", same ? ", the same as copy 0" : "");
    if (state != COPY_FOREIGN && !same) {
        dump_print_fields(dump, DUMP_CONTROL_SLOT, this);
    }
}

/* One bad copy is what a power cut leaves. */
static void judge_slot(struct dump *dump, const struct control_copies *copies, unsigned slot)
{
    if (copy_state(&copies->slots[slot][0]) != COPY_GOOD && copy_state(&copies->slots[slot][1]) != COPY_GOOD) {
        const int rc =
            diag_damage(&dump->diag, copies->path, BLOCK_NONE, "control slot", "slot %u: neither copy is good", slot);
        (void)rc; /* counted */
    }
}

static int print_control(struct dump *dump)
{
    struct control_copies copies;
    const int rc = read_copies(dump, &copies);
    if (rc != 0) {
        return rc;
    }
    if (is_none_ours(&copies)) {
        dump_print(dump, "! %s: not a control file of tblfs", copies.path);
        return -ENODATA;
    }
    dump_print(dump, "%s", copies.path);
    for (unsigned slot = 0; slot < 2; slot++) {
        print_copy(dump, &copies, slot, 0);
        print_copy(dump, &copies, slot, 1);
        judge_slot(dump, &copies, slot);
    }
    return 0;
}

int dump_control(const struct dump_options *options)
{
    struct dump dump;
    dump_begin(&dump, options);
    return dump_end(&dump, print_control(&dump));
}
