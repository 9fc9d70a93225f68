/*
 * fusefs/append_guard.h - protects appended rows from a process that stores through a shared mapping beside them.
 *
 * The kernel writes whole pages back. One that was mapped before an append came holds zeros where the rows are now.
 * So bytes that arrived by append while a read-write handle was open are not changed by page write-back until the last
 * read-write handle is closed.
 *
 * GUARD-1 An append that began before append_guard_clip looked is guarded, or ends at or before the size that the
 * caller read before it looked. The order "size first, then the guard" is what makes that so.
 *
 * Locking: an own leaf lock; thread-safe.
 */
#ifndef TBLFS_FUSEFS_APPEND_GUARD_H
#define TBLFS_FUSEFS_APPEND_GUARD_H

#include "base/lock.h"
#include "base/types.h"

struct guard_range {
    uint64_t first_byte, end_byte; /* end: one behind the last */
};

struct append_guard {
    struct mutex lock;
    unsigned read_write_handles;
    unsigned appends_under_way; /* that began with a read-write handle open */
    uint64_t under_way_from;    /* none of them lands below it */
    struct guard_range *ranges; /* ascending, apart from each other */
    unsigned count, capacity;
};

void append_guard_init(struct append_guard *guard);
void append_guard_destroy(struct append_guard *guard);

void append_guard_open_read_write(struct append_guard *guard);
void append_guard_close_read_write(struct append_guard *guard); /* the last one forgets all ranges */
bool append_guard_is_needed(struct append_guard *guard);        /* is a read-write handle open? */

/* Around an append, when append_guard_is_needed said so: size_bytes is the size of the file before. */
void append_guard_begin(struct append_guard *guard, uint64_t size_bytes);
/* first_byte == end_byte: the append failed. */
void append_guard_end(struct append_guard *guard, uint64_t first_byte, uint64_t end_byte);

/* The file was cut to size_bytes: ranges behind it are gone. */
void append_guard_cut(struct append_guard *guard, uint64_t size_bytes);

/* The first part of [first_byte, end_byte) that page write-back may change; false: nothing. Call again with the end of
 * the part to get the next one. */
bool append_guard_clip(struct append_guard *guard, uint64_t first_byte, uint64_t end_byte,
                       struct guard_range *out_part);

#endif
