/*
 * txn/dump_log.c - the log as it lies in its segment files: every segment header, batch and record, and where it ends.
 *
 * Unlike recovery it begins with the oldest segment there is and goes on behind a place without a batch: only a batch
 * whose position and checksum are right is shown, and those of an earlier use of a segment file have other positions.
 *
 * Locking: none, nothing is shared.
 */
#include "base/checksum.h"
#include "txn/dump_int.h"
#include "txn/log_int.h"

#include "base/array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct log_dump {
    struct dump *dump;
    char dir[DUMP_PATH_SIZE];
    uint64_t *numbers; /* of the segments, ascending */
    size_t count, capacity;
    uint8_t *batch; /* LOG_BATCH_MAX */
    uint8_t *group; /* payload of the group that is being read */
    size_t group_size;
    lsn_no expected; /* where the next batch should stand, 0: anywhere */
    bool in_group;   /* `group` began with its first batch */
    lsn_no gap;      /* first position without a batch behind which batches may follow, 0: none */
    lsn_no hole;     /* first gap, from where replay starts, that has a batch behind it, 0: none */
    lsn_no vouched;  /* largest `synced` */
    lsn_no redo_lsn; /* 0: not known */
};

/* ---- segments ---- */

static int note_segment(void *arg, const char *name, enum io_file_kind kind)
{
    struct log_dump *log = arg;
    char *end = NULL;
    if (kind != IO_KIND_FILE || strlen(name) != 16) {
        dump_print(log->dump, "# %s/log/%s: not a segment", log->dir, name);
        return 0;
    }
    const uint64_t number = strtoull(name, &end, 16);
    if (*end != '\0') {
        dump_print(log->dump, "# %s/log/%s: not a segment", log->dir, name);
        return 0;
    }
    uint64_t *numbers = array_with_room(log->numbers, log->count, &log->capacity, sizeof numbers[0]);
    if (numbers == NULL) {
        return -ENOMEM;
    }
    log->numbers = numbers;
    log->numbers[log->count++] = number;
    return 0;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int list_segments(struct log_dump *log)
{
    char path[DUMP_PATH_SIZE + 8];
    (void)snprintf(path, sizeof path, "%s/log", log->dir);
    const int rc = io_list_dir(log->dump->options->dev, path, note_segment, log);
    if (rc == -ENOENT || (rc == 0 && log->count == 0)) {
        dump_print(log->dump, "! %s: there is no log", path);
        return -ENODATA;
    }
    if (rc == 0) {
        qsort(log->numbers, log->count, sizeof log->numbers[0], compare_numbers);
    }
    return rc;
}

static const char *header_fault(const struct log_segment_header *header, uint64_t number)
{
    const uint32_t size = le32_get(header->segment_size);
    if (memcmp(header->magic, LOG_MAGIC, sizeof header->magic) != 0) {
        return "magic";
    }
    if (le64_get(header->checksum) != checksum_64(header, offsetof(struct log_segment_header, checksum), 0)) {
        return "checksum";
    }
    if (le32_get(header->version) < 1 || le32_get(header->version) > LOG_FORMAT_VERSION) {
        return "version";
    }
    if (size < 2 * LOG_ALIGN || size % LOG_ALIGN != 0) {
        return "segment_size";
    }
    return le64_get(header->number) != number ? "number" : NULL;
}

/* ---- groups and records ---- */

static void print_records(struct log_dump *log)
{
    size_t offset = 0;
    while (offset < log->group_size) {
        struct op_record op;
        size_t size = 0;
        if (op_record_decode(log->group + offset, log->group_size - offset, &op, &size) != 0) {
            dump_print(log->dump, "! record at byte %zu of its group is not well-formed", offset);
            return;
        }
        struct dump_line line = {.length = 0};
        char text[3000];
        (void)op_record_print(&op, text, sizeof text);
        dump_add(&line, "  %s", text);
        dump_emit(log->dump, &line);
        offset += size;
    }
}

static int group_take(struct log_dump *log, const struct log_batch_header *header)
{
    const uint32_t flags = le32_get(header->flags);
    const size_t payload = le32_get(header->payload_size);
    if ((flags & LOG_BATCH_FIRST) != 0) {
        log->in_group = true;
        log->group_size = 0;
    }
    if (!log->in_group) {
        dump_print(log->dump, "  # goes on with a group whose beginning is not there");
        return 0;
    }
    if (payload > 0) {
        uint8_t *group = realloc(log->group, log->group_size + payload);
        if (group == NULL) {
            return -ENOMEM;
        }
        memcpy(group + log->group_size, log->batch + sizeof *header, payload);
        log->group = group;
        log->group_size += payload;
    }
    if ((flags & LOG_BATCH_LAST) != 0) {
        print_records(log);
        log->in_group = false;
    }
    return 0;
}

/* ---- batches ---- */

/* Reads the batch at a position. 1: it is good; 0: there is none. */
static int read_batch(struct log_dump *log, struct io_file *file, lsn_no position, uint32_t segment_size, uint64_t seed,
                      struct log_batch_header *out_header)
{
    const uint64_t offset = position % segment_size;
    size_t size = 0;
    int rc = io_read_full(file, log->batch, sizeof *out_header, offset, &size);
    if (rc != 0 || size < sizeof *out_header) {
        return rc;
    }
    memcpy(out_header, log->batch, sizeof *out_header);
    const uint64_t payload = le32_get(out_header->payload_size);
    if (le32_get(out_header->magic) != LOG_BATCH_MAGIC || le64_get(out_header->lsn) != position ||
        payload > LOG_BATCH_MAX - sizeof *out_header || sizeof *out_header + payload > segment_size - offset) {
        return 0;
    }
    rc = io_read_full(file, log->batch + sizeof *out_header, (size_t)payload, offset + sizeof *out_header, &size);
    if (rc != 0 || size < payload) {
        return rc;
    }
    return le64_get(out_header->checksum) == log_batch_checksum(log->batch, (size_t)payload, seed) ? 1 : 0;
}

static int print_batch(struct log_dump *log, lsn_no position, const struct log_batch_header *header)
{
    struct dump_line line = {.length = 0};
    if (log->gap != 0) {
        dump_print(log->dump, "# no batch at %" PRIu64 ", but there is one behind it", log->gap);
        log->in_group = false;
        log->hole = log->hole == 0 && log->gap >= log->redo_lsn ? log->gap : log->hole;
        log->gap = 0;
    }
    if (position == log->redo_lsn) {
        dump_print(log->dump, "# replay starts here");
    }
    dump_add(&line, "batch at %" PRIu64 ":", position);
    dump_add_fields(&line, DUMP_LOG_BATCH_HEADER, header);
    dump_emit(log->dump, &line);
    if (le64_get(header->synced) > log->vouched) {
        log->vouched = le64_get(header->synced);
    }
    return group_take(log, header);
}

static int print_batches(struct log_dump *log, struct io_file *file, const struct log_segment_header *segment)
{
    const uint32_t segment_size = le32_get(segment->segment_size);
    const lsn_no start = le64_get(segment->number) * segment_size;
    const uint64_t seed = log_checksum_seed(segment->store_id);
    lsn_no position = start + LOG_ALIGN;
    while (position < start + segment_size) {
        struct log_batch_header header;
        int rc = read_batch(log, file, position, segment_size, seed, &header);
        if (rc == 1) {
            rc = print_batch(log, position, &header);
            const bool leaves = (le32_get(header.flags) & LOG_BATCH_SWITCH) != 0;
            position =
                leaves ? start + segment_size : position + log_align(sizeof header + le32_get(header.payload_size));
            log->expected = log_skip_header(position, segment_size);
        } else if (rc == 0) {
            const bool wanted = position == log->expected || position == log->redo_lsn;
            log->gap = log->gap == 0 && wanted ? position : log->gap;
            position += LOG_ALIGN;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int print_segment(struct log_dump *log, uint64_t number)
{
    char path[LOG_PATH_SIZE];
    struct log_segment_header header;
    struct io_file *file = NULL;
    size_t size = 0;
    log_segment_path(log->dir, number, path);
    int rc = io_open(log->dump->options->dev, path, IO_READ_ONLY, &file);
    if (rc != 0) {
        return rc;
    }
    memset(&header, 0, sizeof header);
    rc = io_read_full(file, &header, sizeof header, 0, &size);
    if (rc == 0) {
        dump_print(log->dump, "%s", path);
        dump_print_fields(log->dump, DUMP_LOG_SEGMENT_HEADER, &header);
        const char *fault = header_fault(&header, number);
        if (fault != NULL) {
            const int damage_rc =
                diag_damage(&log->dump->diag, path, BLOCK_NONE, fault, "of the segment header is wrong");
            (void)damage_rc; /* counted */
        } else {
            rc = print_batches(log, file, &header);
        }
    }
    const int close_rc = io_close(file);
    (void)close_rc; /* it was only read */
    return rc;
}

/* The first position without a good batch ends the log, unless something vouches for more. */
static void print_end(struct log_dump *log)
{
    const lsn_no last = log->gap != 0 ? log->gap : log->expected;
    const lsn_no end = log->hole != 0 ? log->hole : last;
    if (end == 0) {
        dump_print(log->dump, "# no batch");
        return;
    }
    dump_print(log->dump, "# the log ends at %" PRIu64 "; durable for sure up to %" PRIu64 "%s", end, log->vouched,
               log->in_group ? "; its last group is not complete" : "");
    if (log->vouched > end) {
        const int rc =
            diag_damage(&log->dump->diag, log->dir, BLOCK_NONE, "log",
                        "position %" PRIu64 ": no good batch, but it was durable up to %" PRIu64, end, log->vouched);
        (void)rc; /* counted */
    }
}

static int print_log(struct log_dump *log)
{
    struct control_slot slot;
    int rc = dump_read_control(log->dump, &slot);
    if (rc == 0) {
        log->redo_lsn = le64_get(slot.redo_lsn);
    }
    rc = list_segments(log);
    for (size_t i = 0; i < log->count && rc == 0; i++) {
        rc = print_segment(log, log->numbers[i]);
    }
    if (rc == 0) {
        print_end(log);
    }
    return rc;
}

int dump_log(const struct dump_options *options)
{
    struct dump dump;
    dump_begin(&dump, options);
    struct log_dump log = {.dump = &dump, .batch = malloc(LOG_BATCH_MAX)};
    (void)snprintf(log.dir, sizeof log.dir, "%s", options->dir);
    const int rc = log.batch == NULL ? -ENOMEM : print_log(&log);
    free(log.batch);
    free(log.group);
    free(log.numbers);
    return dump_end(&dump, rc);
}
