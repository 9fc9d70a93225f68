/*
 * base/diag.h - where messages go, and the one door for reports of damage.
 *
 * A diag is handed to every module when it is opened. The engine returns errors; it logs only what a return value
 * cannot carry (which file, block and field). Thread-safe: emit may be called from any thread, holding any lock.
 */
#ifndef TBLFS_BASE_DIAG_H
#define TBLFS_BASE_DIAG_H

#include "base/types.h"

#include <stdarg.h>

enum diag_level { DIAG_ERROR, DIAG_WARNING, DIAG_INFO, DIAG_DEBUG };

struct diag {
    /* Receives one finished line without newline. Never NULL. */
    void (*emit)(struct diag *diag, enum diag_level level, const char *line);
    enum diag_level max_level;     /* messages above it are not formatted */
    _Atomic uint64_t damage_count; /* calls of diag_damage so far */
};

/* "error", "warning", "info", "debug". */
const char *diag_level_name(enum diag_level level);

void diag_log(struct diag *diag, enum diag_level level, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Reports that what is on disk is not what was written: names file, block (BLOCK_NONE: not a block), the field, and
 * what was got and wanted (fmt). Counts it and returns -EIO. The one breakpoint for damage. */
int diag_damage(struct diag *diag, const char *file, block_no block, const char *field, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

/* Initialises a diag that writes "tblfs: LEVEL: line" to stderr. */
void diag_init_stderr(struct diag *diag, enum diag_level max_level);

/* Initialises a diag that drops all lines (it still counts damage). */
void diag_init_silent(struct diag *diag);

#endif
