/*
 * txn/log.c - appending, writing and syncing the log.
 *
 *   slots --log_append--> open group --seal (log_mark, log_write)--> sealed groups --write_groups--> segment files
 *
 * Locking: append_lock for memory only; write_lock around the writes; sync_lock around the syncs. They are taken in the
 * order sync, write, append, and never together but for append inside write.
 */
#include "txn/log_int.h"

#include "base/checksum.h"
#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BACKLOG_BYTES (UINT64_C(64) << 20)

/* ---- positions ---- */

size_t log_batch_payload(lsn_no position, size_t left, uint32_t segment_size)
{
    const uint64_t room = segment_size - position % segment_size;
    const uint64_t batch_max = room < LOG_BATCH_MAX ? room : LOG_BATCH_MAX;
    const uint64_t payload_max = batch_max - sizeof(struct log_batch_header);
    return left < payload_max ? left : (size_t)payload_max;
}

lsn_no log_group_end(lsn_no start, size_t payload_size, uint32_t segment_size)
{
    lsn_no position = start;
    size_t left = payload_size;
    do {
        const size_t take = log_batch_payload(position, left, segment_size);
        position = log_skip_header(position + log_align(sizeof(struct log_batch_header) + take), segment_size);
        left -= take;
    } while (left > 0);
    return position;
}

/* Log space that a record of this size can take at most: a group of its own, cut at every segment's end. */
static uint64_t space_for(size_t size_bytes, uint32_t segment_size)
{
    const uint64_t batches = size_bytes / (LOG_BATCH_MAX - LOG_ALIGN) + size_bytes / (segment_size - 2 * LOG_ALIGN) + 3;
    return log_align(size_bytes) + batches * 3 * LOG_ALIGN;
}

uint64_t log_batch_checksum(const void *batch, size_t payload_size, uint64_t seed)
{
    const struct log_batch_header *header = batch;
    const uint64_t head = checksum_64(header, offsetof(struct log_batch_header, checksum), seed);
    return checksum_64(header + 1, payload_size, head);
}

uint64_t log_checksum_seed(const uint8_t store_id[16])
{
    le64 raw;
    memcpy(&raw, store_id, sizeof raw);
    return le64_get(raw);
}

int log_fail(struct log *log, const char *what, int rc)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&log->failure, &none, rc)) {
        diag_log(log->diag, DIAG_ERROR, "log: %s: %s; nothing more is written to it", what, strerror(-rc));
        return rc;
    }
    return none;
}

/* ---- groups ---- */

static void group_free(struct log_group *group)
{
    struct log_slot *slot = group->first;
    while (slot != NULL) {
        struct log_slot *next = slot->next;
        free(slot);
        slot = next;
    }
}

/* Ends the open group, if there is one. */
static void seal_locked(struct log *log)
{
    if (log->open == NULL) {
        return;
    }
    *log->sealed_last = log->open;
    log->sealed_last = &log->open->next;
    log->open = NULL;
    log->open_start = log->open_end;
}

static struct log_group *take_groups_locked(struct log *log)
{
    seal_locked(log);
    struct log_group *groups = log->sealed;
    log->sealed = NULL;
    log->sealed_last = &log->sealed;
    return groups;
}

/* Takes all groups off the log, the open one too. */
static struct log_group *take_groups(struct log *log)
{
    mutex_lock(&log->append_lock);
    struct log_group *groups = take_groups_locked(log);
    mutex_unlock(&log->append_lock);
    return groups;
}

/* ---- open, close ---- */

static void free_log(struct log *log)
{
    log_segments_close(log);
    struct log_group *group = take_groups(log);
    while (group != NULL) {
        struct log_group *next = group->next;
        group_free(group);
        group = next;
    }
    mutex_destroy(&log->append_lock);
    mutex_destroy(&log->write_lock);
    mutex_destroy(&log->sync_lock);
    mutex_destroy(&log->segments_lock);
    free(log->buffer);
    free(log->dir);
    free(log);
}

static struct log *make_log(const struct log_options *options)
{
    struct log *log = calloc(1, sizeof *log);
    if (log == NULL) {
        return NULL;
    }
    mutex_init(&log->append_lock, LOCK_RANK_LOG);
    mutex_init(&log->write_lock, LOCK_RANK_LOG_WRITE);
    mutex_init(&log->sync_lock, LOCK_RANK_LOG_SYNC);
    mutex_init(&log->segments_lock, LOCK_RANK_LOG_SEGMENTS);
    log->dev = options->dev;
    log->diag = options->diag;
    log->dir = strdup(options->dir);
    memcpy(log->store_id, options->store_id, sizeof log->store_id);
    log->checksum_seed = log_checksum_seed(options->store_id);
    log->segment_size = options->segment_size != 0 ? options->segment_size : LOG_SEGMENT_SIZE;
    log->timeline = options->timeline;
    log->complete = options->complete;
    log->previous = options->previous;
    log->backlog_max_bytes = options->backlog_max_bytes != 0 ? options->backlog_max_bytes : DEFAULT_BACKLOG_BYTES;
    log->before_sync = options->before_sync;
    log->raise_ceiling = options->raise_ceiling;
    log->arg = options->arg;
    log->sealed_last = &log->sealed;
    log->buffer = malloc(LOG_BATCH_MAX);
    if (log->dir == NULL || log->buffer == NULL) {
        free_log(log);
        return NULL;
    }
    return log;
}

int log_open(const struct log_options *options, struct log **out_log)
{
    struct log *log = make_log(options);
    if (log == NULL) {
        return -ENOMEM;
    }
    const lsn_no first = (options->start + log->segment_size - 1) / log->segment_size * log->segment_size;
    const lsn_no start = log_skip_header(first, log->segment_size);
    log->first_number = first / log->segment_size;
    log->open_start = start;
    log->open_end = start;
    log->appended_end = start;
    atomic_store(&log->hold_from, UINT64_MAX);
    log->vouched = start;
    log->records_end = start;
    atomic_store(&log->written, start);
    atomic_store(&log->synced, start);
    atomic_store(&log->prepared_end, first);
    const int rc = log_prepare(log, start + 1);
    if (rc != 0) {
        free_log(log);
        return rc;
    }
    *out_log = log;
    return 0;
}

void log_close(struct log *log)
{
    if (log != NULL) {
        free_log(log);
    }
}

/* ---- reserve, append ---- */

static bool try_promise(struct log *log, uint64_t space)
{
    mutex_lock(&log->append_lock);
    const bool fits = log->open_end + log->reserved + space <= atomic_load(&log->prepared_end);
    if (fits) {
        log->reserved += space;
    }
    mutex_unlock(&log->append_lock);
    return fits;
}

static lsn_no wanted_end(struct log *log, uint64_t space)
{
    mutex_lock(&log->append_lock);
    const lsn_no end = log->open_end + log->reserved + space;
    mutex_unlock(&log->append_lock);
    return end;
}

int log_reserve(struct log *log, size_t size_bytes, struct log_slot **out_slot)
{
    int rc = atomic_load(&log->failure);
    if (rc != 0) {
        return rc;
    }
    struct log_slot *slot = malloc(sizeof *slot + size_bytes);
    if (slot == NULL) {
        return -ENOMEM;
    }
    *slot = (struct log_slot){.capacity = size_bytes, .reserved = space_for(size_bytes, log->segment_size)};
    while (rc == 0 && !try_promise(log, slot->reserved)) {
        rc = log_prepare(log, wanted_end(log, slot->reserved));
    }
    if (rc != 0) {
        free(slot);
        return rc;
    }
    *out_slot = slot;
    return 0;
}

void log_unreserve(struct log *log, struct log_slot *slot)
{
    if (slot == NULL) {
        return;
    }
    mutex_lock(&log->append_lock);
    assert(log->reserved >= slot->reserved);
    log->reserved -= slot->reserved;
    mutex_unlock(&log->append_lock);
    free(slot);
}

lsn_no log_append(struct log *log, const struct op_record *op, struct log_slot *slot)
{
    lsn_no ignored = 0;
    return log_append_at(log, op, slot, &ignored);
}

lsn_no log_append_at(struct log *log, const struct op_record *op, struct log_slot *slot, lsn_no *out_lsn)
{
    slot->size = op_record_size(op);
    assert(slot->size <= slot->capacity);
    op_record_encode(op, slot->bytes);
    slot->next = NULL;
    mutex_lock(&log->append_lock);
    if (log->open == NULL) {
        slot->group = (struct log_group){.start = log->open_start, .last = &slot->group.first};
        log->open = &slot->group;
    }
    struct log_group *group = log->open;
    *group->last = slot;
    group->last = &slot->next;
    *out_lsn = group->start + group->payload_size;
    group->payload_size += slot->size;
    log->open_end = log_group_end(group->start, group->payload_size, log->segment_size);
    log->appended_end = log->open_end;
    assert(log->reserved >= slot->reserved);
    log->reserved -= slot->reserved;
    const lsn_no position = group->start;
    atomic_fetch_add(&log->records, 1);
    atomic_fetch_add(&log->record_bytes, slot->size); /* behind the unlock a writer may have freed the slot */
    mutex_unlock(&log->append_lock);
    return position;
}

lsn_no log_end(struct log *log)
{
    mutex_lock(&log->append_lock);
    const lsn_no end = log->open_end;
    mutex_unlock(&log->append_lock);
    return end;
}

lsn_no log_synced_end(struct log *log)
{
    return atomic_load(&log->synced);
}

/* ---- write ---- */

/* Copies the next `take` payload bytes of a group into the buffer. */
static void gather(struct log_slot **inout_slot, size_t *inout_offset, uint8_t *to, size_t take)
{
    while (take > 0) {
        struct log_slot *slot = *inout_slot;
        const size_t here = slot->size - *inout_offset < take ? slot->size - *inout_offset : take;
        memcpy(to, slot->bytes + *inout_offset, here);
        to += here;
        take -= here;
        *inout_offset += here;
        if (*inout_offset == slot->size) {
            *inout_slot = slot->next;
            *inout_offset = 0;
        }
    }
}

/* Writes the buffer (header and payload in place) as the batch at `position`. */
static int write_batch(struct log *log, lsn_no position, size_t payload_size, uint32_t flags)
{
    const lsn_no synced = PLANT(LOG_VOUCHES_TOO_MUCH) ? position : atomic_load(&log->synced);
    struct log_batch_header *header = (struct log_batch_header *)log->buffer;
    *header = (struct log_batch_header){
        .magic = le32_of(LOG_BATCH_MAGIC),
        .payload_size = le32_of((uint32_t)payload_size),
        .lsn = le64_of(position),
        .synced = le64_of(synced),
        .flags = le32_of(flags),
    };
    header->checksum = le64_of(log_batch_checksum(header, payload_size, log->checksum_seed));
    const size_t used = sizeof *header + payload_size;
    const size_t size = log_align(used);
    memset(log->buffer + used, 0, size - used);
    struct io_file *file = NULL;
    int rc = log_segment_file(log, position / log->segment_size, &file);
    if (rc == 0) {
        rc = io_write_full(file, log->buffer, size, position % log->segment_size);
    }
    if (rc == 0) {
        log->vouched = synced;
        atomic_fetch_add(&log->batches, 1);
        atomic_fetch_add(&log->bytes_written, size);
    }
    return rc;
}

static int write_group(struct log *log, const struct log_group *group)
{
    lsn_no position = group->start;
    size_t left = group->payload_size;
    struct log_slot *slot = group->first;
    size_t offset = 0;
    uint32_t flags = LOG_BATCH_FIRST;
    do {
        const size_t take = log_batch_payload(position, left, log->segment_size);
        gather(&slot, &offset, log->buffer + sizeof(struct log_batch_header), take);
        left -= take;
        const int rc = write_batch(log, position, take, flags | (left == 0 ? LOG_BATCH_LAST : 0));
        if (rc != 0) {
            return rc;
        }
        position = log_skip_header(position + log_align(sizeof(struct log_batch_header) + take), log->segment_size);
        flags = 0;
    } while (left > 0);
    return 0;
}

/* Writes the groups, and frees them. write_lock held. */
static int write_list_locked(struct log *log, struct log_group *group)
{
    int rc = 0;
    while (group != NULL) {
        struct log_group *next = group->next;
        if (rc == 0) {
            rc = write_group(log, group);
        }
        if (rc == 0) {
            log->records_end = log_group_end(group->start, group->payload_size, log->segment_size);
            atomic_store(&log->written, log->records_end);
        }
        group_free(group);
        group = next;
    }
    return rc != 0 ? log_fail(log, "writing failed", rc) : 0;
}

/* Writes everything that was appended. write_lock held. */
static int write_groups_locked(struct log *log)
{
    const int rc = atomic_load(&log->failure);
    return rc != 0 ? rc : write_list_locked(log, take_groups(log));
}

static int write_until(struct log *log, lsn_no position)
{
    int rc = 0;
    if (atomic_load(&log->written) > position) {
        return 0;
    }
    mutex_lock(&log->write_lock);
    if (atomic_load(&log->written) <= position) {
        rc = write_groups_locked(log);
    }
    mutex_unlock(&log->write_lock);
    return rc;
}

int log_write(struct log *log, lsn_no position)
{
    const int rc = write_until(log, position);
    if (rc == 0 && atomic_load(&log->written) - atomic_load(&log->synced) > log->backlog_max_bytes) {
        return log_sync(log, position);
    }
    return rc;
}

lsn_no log_mark(struct log *log)
{
    mutex_lock(&log->append_lock);
    seal_locked(log);
    const lsn_no position = log->open_start;
    mutex_unlock(&log->append_lock);
    return position;
}

/* ---- sync ---- */

static int sync_locked(struct log *log)
{
    int rc = atomic_load(&log->failure);
    const lsn_no from = atomic_load(&log->synced);
    const lsn_no to = atomic_load(&log->written);
    if (rc != 0 || from == to) {
        return rc;
    }
    if (log->before_sync != NULL) {
        rc = log->before_sync(log->arg);
    }
    if (rc == 0 && !PLANT(LOG_SYNC_SKIPPED)) {
        rc = log_segments_sync(log, from, to);
    }
    if (rc != 0) {
        return log_fail(log, "sync failed", rc);
    }
    atomic_store(&log->synced, to);
    atomic_fetch_add(&log->syncs, 1);
    return 0;
}

int log_sync(struct log *log, lsn_no position)
{
    int rc = write_until(log, position);
    if (rc != 0 || atomic_load(&log->synced) > position) {
        return rc;
    }
    atomic_fetch_add(&log->sync_waits, 1);
    mutex_lock(&log->sync_lock);
    if (atomic_load(&log->synced) <= position) {
        rc = sync_locked(log);
    }
    mutex_unlock(&log->sync_lock);
    return rc;
}

int log_sync_all(struct log *log)
{
    const lsn_no end = log_end(log);
    return end > atomic_load(&log->synced) ? log_sync(log, end - 1) : atomic_load(&log->failure);
}

/* ---- the log writer's round ---- */

/* LOG-4: writes an empty batch when the last batch with records is durable but nothing says so yet. */
static int vouch(struct log *log)
{
    struct log_slot *slot = NULL;
    int rc = log_reserve(log, 0, &slot);
    if (rc != 0) {
        return rc == -ENOSPC ? 0 : rc; /* the next record vouches */
    }
    mutex_lock(&log->write_lock);
    const lsn_no synced = atomic_load(&log->synced);
    mutex_lock(&log->append_lock);
    const bool idle = log->open == NULL && log->sealed == NULL && synced == log->open_end &&
                      synced == log->records_end && log->vouched < synced;
    const lsn_no position = log->open_start;
    if (idle) {
        log->open_start = log_group_end(position, 0, log->segment_size);
        log->open_end = log->open_start;
    }
    mutex_unlock(&log->append_lock);
    if (idle) {
        rc = write_batch(log, position, 0, LOG_BATCH_FIRST | LOG_BATCH_LAST);
        if (rc == 0) {
            atomic_store(&log->written, log_group_end(position, 0, log->segment_size));
        } else {
            rc = log_fail(log, "writing failed", rc);
        }
    }
    mutex_unlock(&log->write_lock);
    log_unreserve(log, slot);
    return rc;
}

int log_step(struct log *log)
{
    int rc = log_sync_all(log);
    if (rc == 0) {
        rc = vouch(log);
    }
    const lsn_no end = log_end(log);
    if (rc == 0 && atomic_load(&log->prepared_end) - end < log->segment_size / 2) {
        rc = log_prepare(log, atomic_load(&log->prepared_end) + 1);
        rc = rc == -ENOSPC ? 0 : rc; /* whoever needs the room is told */
    }
    return rc;
}

/* ---- leaving a segment ---- */

bool log_is_in_segment(struct log *log)
{
    mutex_lock(&log->append_lock);
    const lsn_no start = log->open_end / log->segment_size * log->segment_size;
    const bool is_in = log->appended_end > log_skip_header(start, log->segment_size);
    mutex_unlock(&log->append_lock);
    return is_in;
}

/* Takes what was appended; the log goes on in the next segment. *out_position: what was left begins there. -EAGAIN: what was promised would
 * not fit, up to *out_wanted it would. */
static int leave_segment(struct log *log, struct log_group **out_groups, lsn_no *out_position, lsn_no *out_wanted)
{
    mutex_lock(&log->append_lock);
    seal_locked(log);
    const lsn_no next = log_next_segment(log->open_end, log->segment_size);
    *out_wanted = next + log->reserved;
    const bool fits = *out_wanted <= atomic_load(&log->prepared_end);
    if (fits) {
        *out_position = log->open_end;
        *out_groups = take_groups_locked(log);
        log->open_start = next;
        log->open_end = next;
    }
    mutex_unlock(&log->append_lock);
    return fits ? 0 : -EAGAIN;
}

/* One try. *out_position: of the batch that ends the segment. */
static int try_switch(struct log *log, lsn_no *out_position, lsn_no *out_wanted)
{
    struct log_group *groups = NULL;
    mutex_lock(&log->write_lock);
    int rc = atomic_load(&log->failure);
    if (rc == 0) {
        rc = leave_segment(log, &groups, out_position, out_wanted);
    }
    if (rc == 0) {
        rc = write_list_locked(log, groups);
    }
    if (rc == 0) {
        rc = write_batch(log, *out_position, 0, LOG_BATCH_FIRST | LOG_BATCH_LAST | LOG_BATCH_SWITCH);
        rc = rc != 0 ? log_fail(log, "writing failed", rc) : 0;
    }
    if (rc == 0) {
        log->records_end =
            log_next_segment(*out_position, log->segment_size); /* what came before is vouched for there */
        atomic_store(&log->written, log->records_end);
    }
    mutex_unlock(&log->write_lock);
    return rc;
}

int log_switch(struct log *log)
{
    lsn_no position = 0;
    if (!log_is_in_segment(log)) {
        return atomic_load(&log->failure);
    }
    lsn_no wanted = log_next_segment(log_end(log), log->segment_size);
    int rc;
    do {
        rc = log_prepare(log, wanted);
        if (rc == 0) {
            rc = try_switch(log, &position, &wanted);
        }
    } while (rc == -EAGAIN);
    if (rc == 0) {
        rc = log_sync(log, position);
    }
    const lsn_no end = position + LOG_ALIGN;
    return rc != 0 || end % log->segment_size == 0 ? rc : log_segment_cut(log, end);
}

int log_finish(struct log *log)
{
    int rc = log_sync_all(log);
    const lsn_no end = log_end(log);
    if (rc == 0) {
        rc = log_segment_cut(log, end);
    }
    if (rc == 0) {
        atomic_store(&log->finished_to, end / log->segment_size);
    }
    return rc;
}

uint64_t log_first_segment(const struct log *log)
{
    return log->first_number;
}

void log_hold(struct log *log, lsn_no from)
{
    atomic_store(&log->hold_from, from);
}

bool log_next_finished(struct log *log, uint64_t after, uint64_t *out_number)
{
    const uint64_t synced_in = atomic_load(&log->synced) / log->segment_size;
    const uint64_t last = atomic_load(&log->finished_to);
    const uint64_t end = last != 0 ? last + 1 : synced_in;
    const uint64_t next = after < log->first_number ? log->first_number : after + 1;
    *out_number = next;
    return next < end;
}

void log_get_stats(struct log *log, struct log_stats *out_stats)
{
    *out_stats = (struct log_stats){
        .end = log_end(log),
        .written = atomic_load(&log->written),
        .synced = atomic_load(&log->synced),
        .records = atomic_load(&log->records),
        .record_bytes = atomic_load(&log->record_bytes),
        .batches = atomic_load(&log->batches),
        .bytes_written = atomic_load(&log->bytes_written),
        .syncs = atomic_load(&log->syncs),
        .sync_waits = atomic_load(&log->sync_waits),
        .segments_made = atomic_load(&log->segments_made),
        .segments_reused = atomic_load(&log->segments_reused),
    };
    mutex_lock(&log->segments_lock);
    out_stats->segments = (uint32_t)log->segment_count;
    mutex_unlock(&log->segments_lock);
}
