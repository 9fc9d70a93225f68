/*
 * txn/log_read.c - reading the log: batches, groups, records; where it ends, and whether that is a torn tail or damage
 * (LOG-4).
 *
 * READ-1 A batch counts only if position, checksum (which covers the store's identity) and flags are right, in a
 *        segment whose header is right.
 * READ-2 The first position without such a batch ends the log. When any later batch vouches for something beyond that
 *        position, or the log in front of it was vouched for, it is damage: reported with file and offset, and
 *        refused. So is a segment that is not there, wherever reading comes to it (SEGMENT-1).
 * READ-3 A group that is not complete is part of the torn tail.
 */
#include "txn/log_int.h"

#include "base/array.h"
#include "base/checksum.h"
#include "base/plant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const struct log_reader_options *options;
    uint32_t segment_size;
    uint64_t seed;
    struct io_file *file; /* of segment `number`, NULL: none is open */
    uint64_t number;
    uint8_t *batch; /* LOG_BATCH_MAX */
    uint8_t *group; /* payload of the group so far */
    size_t group_size, group_capacity;
    lsn_no vouched;  /* largest `synced` seen */
    const char *bad; /* what ended the log, for the report */
    lsn_no bad_at;   /* and where */
    lsn_no missing;  /* because of a segment that is not there: where it starts, 0: no */
};

static void close_file(struct reader *reader)
{
    if (reader->file != NULL) {
        const int rc = io_close(reader->file);
        (void)rc; /* it was only read */
        reader->file = NULL;
    }
}

static bool header_is_good(const struct reader *reader, const struct log_segment_header *header, uint64_t number)
{
    return memcmp(header->magic, LOG_MAGIC, sizeof header->magic) == 0 &&
           le64_get(header->checksum) == checksum_64(header, offsetof(struct log_segment_header, checksum), 0) &&
           le32_get(header->version) >= 1 && le32_get(header->version) <= LOG_FORMAT_VERSION &&
           le32_get(header->segment_size) == reader->segment_size &&
           memcmp(header->store_id, reader->options->store_id, sizeof header->store_id) == 0 &&
           le64_get(header->number) == number;
}

/* Opens a segment. 1: it is good; 0: missing or not ours (reader->bad says what); negative: cannot be read. */
static int open_segment(struct reader *reader, uint64_t number)
{
    if (reader->file != NULL && reader->number == number) {
        return 1;
    }
    close_file(reader);
    char path[LOG_PATH_SIZE];
    log_segment_path(reader->options->dir, number, path);
    struct io_stat stat;
    const struct log_chain *chain = reader->options->chain;
    int rc = io_stat(reader->options->dev, path, &stat);
    if (rc == -ENOENT && chain != NULL) {
        rc = chain->fetch(chain->arg, number);
        rc = rc == 0 ? io_stat(reader->options->dev, path, &stat) : rc;
    }
    if (rc == -ENOENT || (rc == 0 && stat.kind != IO_KIND_FILE)) {
        reader->bad = "segment is missing";
        reader->missing = number * reader->segment_size;
        return 0;
    }
    if (rc == 0) {
        rc = io_open(reader->options->dev, path, IO_READ_ONLY, &reader->file);
    }
    if (rc != 0) {
        return rc;
    }
    reader->number = number;
    struct log_segment_header header;
    size_t size = 0;
    rc = io_read_full(reader->file, &header, sizeof header, 0, &size);
    if (rc == 0 && size == sizeof header && header_is_good(reader, &header, number)) {
        return 1;
    }
    close_file(reader);
    if (rc != 0) {
        return rc;
    }
    /* LOG-6: a segment has its name only once its header is durable, so this cannot be a torn write. */
    return diag_damage(reader->options->diag, path, BLOCK_NONE, "log", "offset 0: segment header is not valid");
}

/* Reads the batch at a position. 1: good; 0: none (reader->bad); negative: cannot be read. */
static int read_batch(struct reader *reader, lsn_no position, struct log_batch_header *out_header)
{
    const uint64_t offset = position % reader->segment_size;
    size_t size = 0;
    reader->bad = "batch header is not valid";
    int rc = io_read_full(reader->file, reader->batch, sizeof *out_header, offset, &size);
    if (rc != 0 || size < sizeof *out_header) {
        return rc;
    }
    memcpy(out_header, reader->batch, sizeof *out_header);
    const uint64_t payload = le32_get(out_header->payload_size);
    const uint64_t room = reader->segment_size - offset;
    if (le32_get(out_header->magic) != LOG_BATCH_MAGIC || le64_get(out_header->lsn) != position ||
        payload > LOG_BATCH_MAX - sizeof *out_header || sizeof *out_header + payload > room) {
        return 0;
    }
    reader->bad = "batch checksum is not right";
    rc = io_read_full(reader->file, reader->batch + sizeof *out_header, (size_t)payload, offset + sizeof *out_header,
                      &size);
    if (rc != 0 || size < payload) {
        return rc;
    }
    const bool good =
        le64_get(out_header->checksum) == log_batch_checksum(reader->batch, (size_t)payload, reader->seed);
    return good || PLANT(BATCH_CHECKSUM_IGNORED) ? 1 : 0;
}

static int group_add(struct reader *reader, size_t payload)
{
    if (payload == 0) {
        return 0; /* a batch that only vouches */
    }
    if (reader->group_size + payload > reader->group_capacity) {
        const size_t capacity = (reader->group_size + payload) * 2;
        uint8_t *group = realloc(reader->group, capacity);
        if (group == NULL) {
            return -ENOMEM;
        }
        reader->group = group;
        reader->group_capacity = capacity;
    }
    memcpy(reader->group + reader->group_size, reader->batch + sizeof(struct log_batch_header), payload);
    reader->group_size += payload;
    return 0;
}

/* Reads the group at `start` into reader->group. 1: whole, *out_next behind it; 0: the log ends here; negative: cannot
 * be read. */
static int read_group(struct reader *reader, lsn_no start, lsn_no *out_next)
{
    lsn_no position = start;
    reader->group_size = 0;
    for (;;) {
        struct log_batch_header header;
        reader->bad_at = position;
        int rc = open_segment(reader, position / reader->segment_size);
        if (rc == 1) {
            rc = read_batch(reader, position, &header);
        }
        if (rc != 1) {
            return rc;
        }
        const uint32_t flags = le32_get(header.flags);
        if (((flags & LOG_BATCH_FIRST) != 0) != (position == start)) {
            reader->bad = "batch does not continue its group";
            return 0;
        }
        if (le64_get(header.synced) > reader->vouched) {
            reader->vouched = le64_get(header.synced);
        }
        const size_t payload = le32_get(header.payload_size);
        rc = group_add(reader, payload);
        if (rc != 0) {
            return rc;
        }
        position = (flags & LOG_BATCH_SWITCH) != 0
                       ? log_next_segment(position, reader->segment_size)
                       : log_skip_header(position + log_align(sizeof header + payload), reader->segment_size);
        if ((flags & LOG_BATCH_LAST) != 0) {
            *out_next = position;
            return 1;
        }
    }
}

static int damage_at(struct reader *reader, lsn_no position, const char *what, lsn_no vouched)
{
    char path[LOG_PATH_SIZE];
    log_segment_path(reader->options->dir, position / reader->segment_size, path);
    return diag_damage(reader->options->diag, path, BLOCK_NONE, "log",
                       "offset %" PRIu64 " (position %" PRIu64 "): %s, but the log was durable up to position %" PRIu64
                       "; restore this file from a copy, or the data directory from a backup",
                       position % reader->segment_size, position, what, vouched);
}

/* Largest position that any batch from `position` on vouches for, looking at every place where one may stand. */
static int find_vouching(struct reader *reader, lsn_no position, lsn_no last, lsn_no *out_vouched)
{
    *out_vouched = reader->vouched;
    for (lsn_no at = position; at < last; at = log_skip_header(at + LOG_ALIGN, reader->segment_size)) {
        struct log_batch_header header;
        int rc = open_segment(reader, at / reader->segment_size);
        if (rc == 0) {
            at = (at / reader->segment_size + 1) * reader->segment_size - LOG_ALIGN;
            continue;
        }
        if (rc == 1) {
            rc = read_batch(reader, at, &header);
        }
        if (rc < 0) {
            return rc;
        }
        if (rc == 1 && le64_get(header.synced) > *out_vouched) {
            *out_vouched = le64_get(header.synced);
        }
    }
    return 0;
}

/* READ-2. Looks for vouching batches from `from` on. */
static int judge_end(struct reader *reader, lsn_no from, lsn_no position, bool *out_torn)
{
    const char *bad = reader->bad;
    const bool missing = reader->missing != 0;
    lsn_no last = 0;
    lsn_no vouched = 0;
    int rc = log_find_end_of_segments(reader->options, &last);
    if (rc == 0) {
        rc = find_vouching(reader, from, last, &vouched);
    }
    if (rc != 0) {
        return rc;
    }
    if (vouched > position) {
        return damage_at(reader, position, bad, vouched);
    }
    if (missing) {
        return damage_at(reader, reader->missing, bad, position); /* SEGMENT-1 */
    }
    *out_torn = strcmp(bad, "batch header is not valid") != 0;
    return 0;
}

static int hand_out_records(struct reader *reader, lsn_no position, log_record_fn *fn, void *arg)
{
    size_t offset = 0;
    while (offset < reader->group_size) {
        struct op_record op;
        size_t size = 0;
        if (op_record_decode(reader->group + offset, reader->group_size - offset, &op, &size) != 0) {
            return damage_at(reader, position, "a record is not well-formed although its checksum is right", position);
        }
        op.lsn = position + offset;
        const int rc = fn(arg, position, &op);
        if (rc == -EBADMSG) {
            reader->bad = "a record refers to pages that are not there";
        }
        if (rc != 0) {
            return rc;
        }
        offset += size;
    }
    return 0;
}

/* 1: the log goes on at *inout_position. */
static int go_on_behind_end(struct reader *reader, lsn_no *inout_position)
{
    const struct log_chain *chain = reader->options->chain;
    const bool missing = reader->missing != 0;
    reader->missing = 0;
    close_file(reader); /* it may be brought anew */
    const int rc = chain->end(chain->arg, *inout_position, reader->bad_at, missing, inout_position);
    *inout_position = rc == 1 ? log_skip_header(*inout_position, reader->segment_size) : *inout_position;
    return rc;
}

static int read_all(struct reader *reader, log_record_fn *fn, void *arg, lsn_no *out_end, bool *out_torn)
{
    lsn_no position = log_skip_header(reader->options->from, reader->segment_size);
    for (;;) {
        lsn_no next = 0;
        *out_end = position;
        if (reader->options->until != 0 && position >= reader->options->until) {
            return 0;
        }
        int rc = read_group(reader, position, &next);
        if (rc == 1) {
            rc = hand_out_records(reader, position, fn, arg);
            if (rc == -EBADMSG) {
                return judge_end(reader, next, position, out_torn);
            }
        } else if (rc == 0 && reader->options->chain != NULL) {
            next = position;
            rc = go_on_behind_end(reader, &next);
            if (rc == 0) {
                return 0;
            }
            rc = rc == 1 ? 0 : rc;
        } else if (rc == 0) {
            return judge_end(reader, position, position, out_torn);
        }
        if (rc != 0) {
            return rc;
        }
        position = next;
    }
}

static struct reader make_reader(const struct log_reader_options *options)
{
    return (struct reader){
        .options = options,
        .segment_size = options->segment_size != 0 ? options->segment_size : LOG_SEGMENT_SIZE,
        .seed = log_checksum_seed(options->store_id),
        .batch = malloc(LOG_BATCH_MAX),
    };
}

int log_read(const struct log_reader_options *options, log_record_fn *fn, void *arg, lsn_no *out_end, bool *out_torn)
{
    struct reader reader = make_reader(options);
    if (reader.batch == NULL) {
        return -ENOMEM;
    }
    *out_torn = false;
    const int rc = read_all(&reader, fn, arg, out_end, out_torn);
    if (rc == 0 && options->out_vouched != NULL) {
        *options->out_vouched = reader.vouched;
    }
    close_file(&reader);
    free(reader.batch);
    free(reader.group);
    return rc;
}

/* ---- segment files ---- */

/* The number that a file name says; false: it is no segment's name. */
static bool parse_name(const char *name, uint64_t *out_number)
{
    char *end = NULL;
    if (strlen(name) != 16) {
        return false;
    }
    *out_number = strtoull(name, &end, 16);
    return *end == '\0';
}

#define TEMPORARY_NAME_SIZE sizeof "0123456789abcdef.tmp"

struct segment_scan {
    const struct log_reader_options *options;
    uint64_t largest, below;
    bool found;
    uint64_t *numbers; /* below `below` */
    size_t count, capacity;
    char temporary[TEMPORARY_NAME_SIZE]; /* one of them, "": there is none */
};

static int note_largest(void *arg, const char *name, enum io_file_kind kind)
{
    struct segment_scan *scan = arg;
    uint64_t number = 0;
    if (kind == IO_KIND_FILE && parse_name(name, &number) && (!scan->found || number > scan->largest)) {
        scan->found = true;
        scan->largest = number;
    }
    return 0;
}

static int list_log(const struct log_reader_options *options, io_list_fn *fn, void *arg)
{
    char dir[LOG_PATH_SIZE];
    (void)snprintf(dir, sizeof dir, "%s/log", options->dir);
    const int rc = io_list_dir(options->dev, dir, fn, arg);
    return rc == -ENOENT ? 0 : rc;
}

int log_find_end_of_segments(const struct log_reader_options *options, lsn_no *out_end)
{
    const uint32_t segment_size = options->segment_size != 0 ? options->segment_size : LOG_SEGMENT_SIZE;
    struct segment_scan scan = {.options = options};
    const int rc = list_log(options, note_largest, &scan);
    *out_end = scan.found ? (scan.largest + 1) * segment_size : 0;
    return rc;
}

/* The name under which a segment is made: its number's, then ".tmp". */
static bool is_temporary(const char *name)
{
    char number_name[17];
    uint64_t number = 0;
    if (strlen(name) != TEMPORARY_NAME_SIZE - 1 || strcmp(name + 16, ".tmp") != 0) {
        return false;
    }
    memcpy(number_name, name, 16);
    number_name[16] = '\0';
    return parse_name(number_name, &number);
}

static int note_old(void *arg, const char *name, enum io_file_kind kind)
{
    struct segment_scan *scan = arg;
    uint64_t number = 0;
    if (kind == IO_KIND_FILE && is_temporary(name)) {
        memcpy(scan->temporary, name, sizeof scan->temporary);
    }
    if (kind != IO_KIND_FILE || !parse_name(name, &number) || number >= scan->below) {
        return 0;
    }
    uint64_t *numbers = array_with_room(scan->numbers, scan->count, &scan->capacity, sizeof numbers[0]);
    if (numbers == NULL) {
        return -ENOMEM;
    }
    scan->numbers = numbers;
    scan->numbers[scan->count++] = number;
    return 0;
}

/* ---- the chain of segments ---- */

int log_segment_info(const struct log_reader_options *options, uint64_t number, struct log_segment_info *out_info)
{
    struct reader reader = {.options = options,
                            .segment_size = options->segment_size != 0 ? options->segment_size : LOG_SEGMENT_SIZE};
    struct log_segment_header header;
    char path[LOG_PATH_SIZE];
    size_t size = 0;
    log_segment_path(options->dir, number, path);
    int rc = io_open(options->dev, path, IO_READ_ONLY, &reader.file);
    if (rc != 0) {
        return rc;
    }
    rc = io_read_full(reader.file, &header, sizeof header, 0, &size);
    close_file(&reader);
    if (rc == 0 && (size < sizeof header || !header_is_good(&reader, &header, number))) {
        rc = -ENOENT;
    }
    if (rc == 0) {
        *out_info = (struct log_segment_info){.number = number,
                                              .start = number * reader.segment_size,
                                              .previous = le64_get(header.previous),
                                              .segment_size = reader.segment_size,
                                              .timeline = le32_get(header.timeline),
                                              .complete = (le32_get(header.flags) & LOG_SEGMENT_COMPLETE) != 0};
        memcpy(out_info->store_id, header.store_id, sizeof out_info->store_id);
    }
    return rc;
}

bool log_segment_previous(const struct log_segment_info *info, uint64_t *out_number)
{
    *out_number = info->previous == info->start ? info->number - 1 : info->previous / info->segment_size;
    return info->previous != 0;
}

int log_remove_below(const struct log_reader_options *options, lsn_no below, log_keep_fn *keep, void *arg)
{
    const uint32_t segment_size = options->segment_size != 0 ? options->segment_size : LOG_SEGMENT_SIZE;
    struct segment_scan scan = {.options = options, .below = below / segment_size};
    int rc = list_log(options, note_old, &scan);
    for (size_t i = 0; i < scan.count && rc == 0; i++) {
        char path[LOG_PATH_SIZE];
        log_segment_path(options->dir, scan.numbers[i], path);
        rc = keep != NULL && keep(arg, scan.numbers[i]) ? 0 : io_unlink(options->dev, path);
    }
    if (rc == 0 && scan.temporary[0] != '\0') {
        /* At most one is left by a life: segments are made one at a time, and each start comes by here. */
        char path[LOG_PATH_SIZE];
        (void)snprintf(path, sizeof path, "%s/log/%s", options->dir, scan.temporary);
        rc = io_unlink(options->dev, path);
    }
    free(scan.numbers);
    return rc;
}
