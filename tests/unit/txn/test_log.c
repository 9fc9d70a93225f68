/*
 * tests/unit/txn/test_log.c - the log by itself: what is appended is read back, a torn tail is cut, damage is refused.
 *
 * Record n carries its number as inode, and bytes that follow from the number: whatever is read is recognised, or wrong.
 */
#include "txn/log.h"

#include "tests/lib/sim_device.h"
#include "tests/lib/test_support.h"
#include "txn/log_int.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SEGMENT     (16u * LOG_ALIGN)
#define DATA_MAX    (3u * SEGMENT)
#define MARKS_MAX   4096u
#define LINE_SIZE   512u
#define CUT_OFFERED 24u

struct capture {
    struct diag diag;
    char line[LINE_SIZE]; /* the last error */
};

struct rig {
    struct mem_device *mem; /* what sim stands on, or NULL when sim is NULL too */
    struct sim_device *sim;
    struct io_device *dev;
    struct capture capture;
    struct log *log;
    lsn_no ceiling;
    unsigned before_syncs;
    uint64_t appended; /* records 1 to this */
    lsn_no position;   /* of the last one */
    uint8_t data[DATA_MAX];
};

static void capture_emit(struct diag *diag, enum diag_level level, const char *line)
{
    struct capture *capture = (struct capture *)((char *)diag - offsetof(struct capture, diag));
    if (level == DIAG_ERROR) {
        (void)snprintf(capture->line, sizeof capture->line, "%s", line);
    }
}

static void capture_init(struct capture *capture)
{
    memset(capture, 0, sizeof *capture);
    capture->diag.emit = capture_emit;
    capture->diag.max_level = DIAG_ERROR;
}

/* ---- the log under test ---- */

static int note_before_sync(void *arg)
{
    ((struct rig *)arg)->before_syncs++;
    return 0;
}

static int allow_ceiling(void *arg, lsn_no end)
{
    struct rig *rig = arg;
    rig->ceiling = end > rig->ceiling ? end : rig->ceiling;
    return 0;
}

static const uint8_t store_id[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static int open_log(struct rig *rig, lsn_no start)
{
    struct log_options options = {.dev = rig->dev,
                                  .diag = &rig->capture.diag,
                                  .dir = "/d",
                                  .segment_size = SEGMENT,
                                  .start = start,
                                  .before_sync = note_before_sync,
                                  .raise_ceiling = allow_ceiling,
                                  .arg = rig};
    memcpy(options.store_id, store_id, sizeof store_id);
    return log_open(&options, &rig->log);
}

static void rig_init(struct rig *rig, bool simulated)
{
    memset(rig, 0, sizeof *rig);
    capture_init(&rig->capture);
    rig->mem = mem_device_create(1);
    assert_int_equal(io_make_dir(mem_device_io(rig->mem), "/d"), 0);
    rig->dev = mem_device_io(rig->mem);
    if (simulated) {
        rig->sim = sim_device_create(rig->mem);
        rig->dev = sim_device_io(rig->sim);
    }
}

static void rig_free(struct rig *rig)
{
    log_close(rig->log);
    if (rig->sim != NULL) {
        sim_device_destroy(rig->sim);
    } else {
        mem_device_destroy(rig->mem);
    }
}

static uint8_t byte_of(uint64_t number, size_t i)
{
    return (uint8_t)(number * 131 + i * 7 + (i >> 8) + 1);
}

static int append(struct rig *rig, size_t size)
{
    const uint64_t number = rig->appended + 1;
    struct log_slot *slot = NULL;
    assert_in_range(size, 0, DATA_MAX);
    for (size_t i = 0; i < size; i++) {
        rig->data[i] = byte_of(number, i);
    }
    struct op_record op = {.type = OP_WRITE, .ino = number, .data = {.data = rig->data, .size = size}};
    const int rc = log_reserve(rig->log, op_record_size(&op), &slot);
    if (rc == 0) {
        rig->position = log_append(rig->log, &op, slot);
        rig->appended = number;
    }
    return rc;
}

static void append_written(struct rig *rig, size_t size)
{
    assert_int_equal(append(rig, size), 0);
    assert_int_equal(log_write(rig->log, rig->position), 0);
}

static void append_synced(struct rig *rig, size_t size)
{
    assert_int_equal(append(rig, size), 0);
    assert_int_equal(log_sync(rig->log, rig->position), 0);
}

/* ---- reading ---- */

struct seen {
    uint64_t last; /* number of the last record */
    bool wrong;
    uint64_t refuse; /* record that the reader calls bad, 0: none */
};

static int see(void *arg, lsn_no position, const struct op_record *op)
{
    struct seen *seen = arg;
    (void)position;
    if (seen->refuse != 0 && op->ino == seen->refuse) {
        return -EBADMSG;
    }
    if (op->type != OP_WRITE || op->ino != seen->last + 1) {
        seen->wrong = true;
        return -ECANCELED;
    }
    const uint8_t *bytes = op->data.data;
    for (size_t i = 0; i < op->data.size; i++) {
        seen->wrong |= bytes[i] != byte_of(op->ino, i);
    }
    seen->last++;
    return seen->wrong ? -ECANCELED : 0;
}

/* What a start would find: records behind `before`, reading from `from`. Never a wrong one. */
static int read_log(struct io_device *dev, struct capture *capture, lsn_no from, struct seen *seen, lsn_no *out_end,
                    bool *out_torn)
{
    struct log_reader_options options = {
        .dev = dev, .diag = &capture->diag, .dir = "/d", .segment_size = SEGMENT, .from = from};
    memcpy(options.store_id, store_id, sizeof store_id);
    const int rc = log_read(&options, see, seen, out_end, out_torn);
    assert_false(seen->wrong);
    assert_int_not_equal(rc, -ECANCELED);
    return rc;
}

static void assert_reads(struct io_device *dev, lsn_no from, uint64_t before, uint64_t want_last, bool want_torn)
{
    struct capture capture;
    capture_init(&capture);
    struct seen seen = {.last = before};
    lsn_no end = 0;
    bool torn = !want_torn;
    assert_int_equal(read_log(dev, &capture, from, &seen, &end, &torn), 0);
    assert_int_equal(seen.last, want_last);
    assert_int_equal(torn, want_torn);
    assert_int_equal(capture.diag.damage_count, 0);
}

/* Refused, saying which file, and where in it. */
static void assert_refused(struct io_device *dev, lsn_no from)
{
    struct capture capture;
    capture_init(&capture);
    struct seen seen = {0};
    lsn_no end = 0;
    bool torn = false;
    assert_int_equal(read_log(dev, &capture, from, &seen, &end, &torn), -EIO);
    assert_int_equal(capture.diag.damage_count, 1);
    assert_non_null(strstr(capture.line, "/d/log/"));
    assert_non_null(strstr(capture.line, "offset "));
}

/* ---- order ---- */

static void records_of_any_size_are_read_back_from_every_mark(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    static lsn_no marks[MARKS_MAX];
    static uint64_t before[MARKS_MAX];
    unsigned count = 0;
    struct test_random random;
    assert_non_null(rig);
    rig_init(rig, false);
    test_random_init(&random, test_seed("test_log"));
    assert_int_equal(open_log(rig, 0), 0);
    for (unsigned round = 0; round < 1500; round++) {
        const uint64_t what = test_random_below(&random, 100);
        const size_t max = what < 10 ? DATA_MAX : what < 40 ? 2000 : 100;
        assert_int_equal(append(rig, test_random_below(&random, max)), 0);
        assert_true(log_end(rig->log) <= rig->ceiling);
        if (what % 3 == 0) {
            assert_int_equal(log_write(rig->log, rig->position), 0);
        } else if (what % 7 == 0) {
            assert_int_equal(log_sync(rig->log, rig->position), 0);
            assert_true(log_synced_end(rig->log) > rig->position);
        } else if (what % 11 == 0) {
            assert_int_equal(log_step(rig->log), 0);
        }
        if (what % 5 == 0 && count < MARKS_MAX) {
            marks[count] = log_mark(rig->log);
            before[count++] = rig->appended;
        }
    }
    assert_int_equal(log_sync_all(rig->log), 0);
    for (unsigned i = 0; i < count; i += 1 + (unsigned)test_random_below(&random, 10)) {
        assert_reads(rig->dev, marks[i], before[i], rig->appended, false);
    }
    rig_free(rig);
    free(rig);
}

static void record_of_every_size_around_a_segment_is_read_back(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    const lsn_no from = log_mark(rig->log);
    for (size_t size = SEGMENT - 3 * LOG_ALIGN; size < SEGMENT + LOG_ALIGN; size += 3) {
        append_written(rig, size);
        append_written(rig, size % 800);
    }
    assert_reads(rig->dev, from, 0, rig->appended, false);
    rig_free(rig);
    free(rig);
}

static void promise_that_is_not_used_leaves_no_trace(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    const lsn_no from = log_mark(rig->log);
    struct log_slot *slots[8];
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(log_reserve(rig->log, 100 + 3000 * i, &slots[i]), 0);
    }
    append_synced(rig, 700);
    for (unsigned i = 0; i < 8; i++) {
        log_unreserve(rig->log, slots[i]);
    }
    append_synced(rig, 700);
    assert_reads(rig->dev, from, 0, 2, false);
    rig_free(rig);
    free(rig);
}

static void log_starts_above_every_segment_that_is_there(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 5 * SEGMENT + 1), 0);
    const lsn_no first = log_mark(rig->log);
    assert_int_equal(first, 6 * SEGMENT + LOG_ALIGN);
    append_synced(rig, 100);
    log_close(rig->log);
    struct log_reader_options options = {
        .dev = rig->dev, .diag = &rig->capture.diag, .dir = "/d", .segment_size = SEGMENT, .from = first};
    memcpy(options.store_id, store_id, sizeof store_id);
    lsn_no end = 0;
    assert_int_equal(log_find_end_of_segments(&options, &end), 0);
    assert_int_equal(end, 7 * SEGMENT);
    assert_int_equal(open_log(rig, end), 0);
    const lsn_no second = log_mark(rig->log);
    assert_int_equal(second, 7 * SEGMENT + LOG_ALIGN);
    append_synced(rig, 100);
    assert_reads(rig->dev, second, 1, 2, false);
    rig_free(rig);
    free(rig);
}

/* ---- syncing ---- */

static void sync_of_a_durable_record_asks_the_disk_nothing(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    append_written(rig, 10);
    const lsn_no first = rig->position;
    append_synced(rig, 10);
    const unsigned asked = rig->before_syncs;
    mem_device_counters_reset(rig->mem);
    assert_int_equal(log_sync(rig->log, first), 0);
    assert_int_equal(log_sync_all(rig->log), 0);
    struct mem_counters counters;
    mem_device_counters(rig->mem, &counters);
    assert_int_equal(counters.calls[MEM_CALL_SYNC] + counters.calls[MEM_CALL_WRITE], 0);
    assert_int_equal(rig->before_syncs, asked);
    rig_free(rig);
    free(rig);
}

static void idle_log_vouches_once(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    const lsn_no from = log_mark(rig->log);
    append_synced(rig, 10);
    struct log_stats stats;
    log_get_stats(rig->log, &stats);
    const uint64_t batches = stats.batches;
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(log_step(rig->log), 0);
    }
    log_get_stats(rig->log, &stats);
    assert_int_equal(stats.batches, batches + 1);
    assert_int_equal(stats.synced, stats.end);
    assert_reads(rig->dev, from, 0, 1, false);
    rig_free(rig);
    free(rig);
}

/* LOG-5: the failure is remembered; nothing is tried again. */
static void failed_call_stops_the_log_for_good(void **state)
{
    (void)state;
    const enum mem_call calls[] = {MEM_CALL_WRITE, MEM_CALL_SYNC};
    for (unsigned i = 0; i < ARRAY_COUNT(calls); i++) {
        struct rig *rig = malloc(sizeof *rig);
        assert_non_null(rig);
        rig_init(rig, false);
        assert_int_equal(open_log(rig, 0), 0);
        append_synced(rig, 10);
        mem_device_fail(rig->mem, calls[i], 1, EIO, false);
        assert_int_equal(append(rig, 10), 0);
        assert_int_equal(log_sync(rig->log, rig->position), -EIO);
        mem_device_counters_reset(rig->mem);
        struct log_slot *slot = NULL;
        assert_int_equal(log_reserve(rig->log, 100, &slot), -EIO);
        assert_int_equal(log_sync(rig->log, rig->position), -EIO);
        assert_int_equal(log_sync_all(rig->log), -EIO);
        assert_int_equal(log_step(rig->log), -EIO);
        struct mem_counters counters;
        mem_device_counters(rig->mem, &counters);
        assert_int_equal(counters.calls[MEM_CALL_SYNC] + counters.calls[MEM_CALL_WRITE], 0);
        rig_free(rig);
        free(rig);
    }
}

/* SEGMENT-2: after any failure but one of room, a segment is not tried again: the second sync of a name may lie. */
static void failed_call_while_a_segment_is_made_stops_the_log(void **state)
{
    (void)state;
    const enum mem_call calls[] = {MEM_CALL_SYNC, MEM_CALL_SYNC_DIR, MEM_CALL_RENAME, MEM_CALL_WRITE};
    for (unsigned i = 0; i < ARRAY_COUNT(calls); i++) {
        struct rig *rig = malloc(sizeof *rig);
        assert_non_null(rig);
        rig_init(rig, false);
        assert_int_equal(open_log(rig, 0), 0);
        append_synced(rig, 10);
        mem_device_fail(rig->mem, calls[i], 1, EIO, false);
        assert_int_equal(append(rig, SEGMENT), -EIO);
        assert_int_equal(append(rig, 10), -EIO);
        assert_int_equal(append(rig, SEGMENT), -EIO);
        assert_int_equal(log_step(rig->log), -EIO);
        rig_free(rig);
        free(rig);
    }
}

static void full_disk_refuses_a_promise_and_goes_on(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    const lsn_no from = log_mark(rig->log);
    append_synced(rig, 10);
    const enum mem_call calls[] = {MEM_CALL_ALLOCATE, MEM_CALL_RENAME};
    for (unsigned i = 0; i < ARRAY_COUNT(calls); i++) {
        mem_device_fail(rig->mem, calls[i], 1, ENOSPC, true);
        assert_int_equal(append(rig, SEGMENT), -ENOSPC);
        assert_int_equal(append(rig, SEGMENT), -ENOSPC);
        append_synced(rig, 10);
        assert_int_equal(log_step(rig->log), 0);
        mem_device_clear_faults(rig->mem);
    }
    append_synced(rig, SEGMENT);
    assert_reads(rig->dev, from, 0, rig->appended, false);
    rig_free(rig);
    free(rig);
}

/* ---- recycling ---- */

static void recycled_segments_are_used_again_and_hold_no_old_records(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    struct test_random random;
    assert_non_null(rig);
    rig_init(rig, false);
    test_random_init(&random, test_seed("test_log"));
    assert_int_equal(open_log(rig, 0), 0);
    lsn_no mark = log_mark(rig->log);
    uint64_t before = 0;
    for (unsigned round = 0; round < 400; round++) {
        append_synced(rig, test_random_below(&random, SEGMENT));
        if (test_random_chance(&random, 20)) {
            mark = log_mark(rig->log);
            before = rig->appended;
            assert_int_equal(log_recycle(rig->log, mark), 0);
        }
        if (round % 10 == 0) {
            assert_reads(rig->dev, mark, before, rig->appended, false);
        }
    }
    struct log_stats stats;
    log_get_stats(rig->log, &stats);
    assert_true(stats.segments_reused > 20);
    assert_in_range(stats.segments, 1, 16);
    rig_free(rig);
    free(rig);
}

static void recycling_keeps_what_is_not_synced(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    const lsn_no from = log_mark(rig->log);
    for (unsigned i = 0; i < 20; i++) {
        append_written(rig, SEGMENT / 2);
    }
    assert_int_equal(log_recycle(rig->log, log_mark(rig->log)), 0);
    assert_int_equal(log_sync_all(rig->log), 0);
    assert_reads(rig->dev, from, 0, 20, false);
    rig_free(rig);
    free(rig);
}

static void full_disk_keeps_the_segment_kept_for_reuse(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    append_synced(rig, SEGMENT);
    append_synced(rig, SEGMENT);
    const lsn_no mark = log_mark(rig->log);
    const uint64_t before = rig->appended;
    assert_int_equal(log_recycle(rig->log, mark), 0);
    mem_device_fail(rig->mem, MEM_CALL_ALLOCATE, 1, ENOSPC, true);
    mem_device_fail(rig->mem, MEM_CALL_RENAME, 1, ENOSPC, false);
    int rc = 0;
    unsigned refused = 0;
    for (unsigned i = 0; i < 20 && refused < 2; i++) { /* once for the name; then it is used; then there is no other */
        rc = append(rig, SEGMENT / 4);
        refused += rc == -ENOSPC;
    }
    struct log_stats stats;
    log_get_stats(rig->log, &stats);
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(stats.segments_reused, 1);
    assert_int_equal(log_sync_all(rig->log), 0);
    assert_reads(rig->dev, mark, before, rig->appended, false);
    rig_free(rig);
    free(rig);
}

static void start_removes_old_segments_and_temporaries_only(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    append_synced(rig, 2 * SEGMENT);
    const lsn_no keep = log_mark(rig->log);
    append_synced(rig, 100);
    mem_device_put_file(rig->mem, "/d/log/0000000000000009.tmp", "x", 1);
    mem_device_put_file(rig->mem, "/d/log/notes", "x", 1);
    mem_device_put_file(rig->mem, "/d/log/000000000000000g.tmp", "x", 1);
    struct log_reader_options options = {
        .dev = rig->dev, .diag = &rig->capture.diag, .dir = "/d", .segment_size = SEGMENT, .from = keep};
    memcpy(options.store_id, store_id, sizeof store_id);
    assert_int_equal(log_remove_below(&options, keep, NULL, NULL), 0);
    struct io_stat stat;
    assert_int_equal(io_stat(rig->dev, "/d/log/0000000000000000", &stat), -ENOENT);
    assert_int_equal(io_stat(rig->dev, "/d/log/0000000000000001", &stat), -ENOENT);
    assert_int_equal(io_stat(rig->dev, "/d/log/0000000000000009.tmp", &stat), -ENOENT);
    assert_int_equal(io_stat(rig->dev, "/d/log/notes", &stat), 0);
    assert_int_equal(io_stat(rig->dev, "/d/log/000000000000000g.tmp", &stat), 0);
    assert_reads(rig->dev, keep, 1, 2, false);
    rig_free(rig);
    free(rig);
}

/* ---- torn tails ---- */

static uint8_t *byte_at(struct mem_device *mem, lsn_no at)
{
    char path[LOG_PATH_SIZE];
    size_t run = 0;
    log_segment_path("/d", at / SEGMENT, path);
    uint8_t *bytes = mem_device_file_bytes(mem, path, at % SEGMENT, &run);
    assert_non_null(bytes);
    return bytes;
}

/* A log of `synced` durable groups, and one more that is written but not durable: [*out_start, *out_end). */
static void make_tail(struct rig *rig, unsigned synced, size_t size, lsn_no *out_from, lsn_no *out_start,
                      lsn_no *out_end)
{
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    *out_from = log_mark(rig->log);
    for (unsigned i = 0; i < synced; i++) {
        append_synced(rig, 300);
    }
    *out_start = log_mark(rig->log);
    append_written(rig, size);
    *out_end = log_end(rig->log);
}

/* The tail's bytes from one on are still zero, whichever that is. */
static void tail_cut_at_any_byte_is_cut(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 450, 1500, SEGMENT + 700};
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct rig *rig = malloc(sizeof *rig);
        lsn_no from = 0;
        lsn_no start = 0;
        lsn_no end = 0;
        assert_non_null(rig);
        make_tail(rig, 3, sizes[i], &from, &start, &end);
        assert_reads(rig->dev, from, 0, 4, false);
        for (lsn_no at = end; at-- > start;) {
            if (at % SEGMENT < LOG_ALIGN) {
                continue;
            }
            uint8_t *byte = byte_at(rig->mem, at);
            if (*byte == 0) {
                continue; /* nothing changes */
            }
            *byte = 0;
            struct seen seen = {0};
            lsn_no got_end = 0;
            bool torn = false;
            assert_int_equal(read_log(rig->dev, &rig->capture, from, &seen, &got_end, &torn), 0);
            assert_int_equal(seen.last, 3);
            assert_int_equal(got_end, start);
        }
        assert_int_equal(rig->capture.diag.damage_count, 0);
        rig_free(rig);
        free(rig);
    }
}

/* Any sectors of the tail are on the medium, the others not. */
static void tail_of_any_sectors_is_cut_or_whole(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    lsn_no from = 0;
    lsn_no start = 0;
    lsn_no end = 0;
    assert_non_null(rig);
    make_tail(rig, 2, 7 * LOG_ALIGN, &from, &start, &end);
    const unsigned sectors = (unsigned)((end - start) / LOG_ALIGN);
    assert_in_range(sectors, 8, 9);
    uint8_t *bytes = byte_at(rig->mem, start);
    uint8_t whole[9 * LOG_ALIGN];
    memcpy(whole, bytes, end - start);
    for (unsigned kept = 0; kept < 1u << sectors; kept++) {
        for (unsigned i = 0; i < sectors; i++) {
            if ((kept >> i & 1) != 0) {
                memcpy(bytes + i * LOG_ALIGN, whole + i * LOG_ALIGN, LOG_ALIGN);
            } else {
                memset(bytes + i * LOG_ALIGN, 0, LOG_ALIGN);
            }
        }
        const bool is_whole = memcmp(bytes, whole, end - start) == 0;
        assert_reads(rig->dev, from, 0, is_whole ? 3 : 2, !is_whole && (kept & 1) != 0);
    }
    rig_free(rig);
    free(rig);
}

/* Of several unsynced groups one is bad: what follows is gone too, although it is whole. */
static void records_behind_a_torn_one_are_not_read(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    const lsn_no from = log_mark(rig->log);
    append_synced(rig, 100);
    append_written(rig, 100);
    const lsn_no bad = rig->position;
    append_written(rig, 100);
    append_written(rig, 2 * SEGMENT);
    *byte_at(rig->mem, bad + 60) ^= 1;
    assert_reads(rig->dev, from, 0, 1, true);
    rig_free(rig);
    free(rig);
}

/* A record whose pages are missing (-EBADMSG) is a bad record like any other. */
static void record_that_the_caller_calls_bad_is_cut_unless_vouched_for(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    const lsn_no from = log_mark(rig->log);
    append_synced(rig, 100);
    append_written(rig, 100);
    append_written(rig, 100);
    struct seen seen = {.refuse = 2};
    lsn_no end = 0;
    bool torn = false;
    assert_int_equal(read_log(rig->dev, &rig->capture, from, &seen, &end, &torn), 0);
    assert_int_equal(seen.last, 1);
    assert_true(torn);
    assert_int_equal(log_sync_all(rig->log), 0);
    append_written(rig, 100);
    seen = (struct seen){.refuse = 2};
    assert_int_equal(read_log(rig->dev, &rig->capture, from, &seen, &end, &torn), -EIO);
    assert_int_equal(rig->capture.diag.damage_count, 1);
    rig_free(rig);
    free(rig);
}

/* ---- damage ---- */

/* Records 1 to *out_vouched are vouched for; later ones are not, the last is not even synced. */
static void make_log_to_damage(struct rig *rig, lsn_no *out_from, uint64_t *out_vouched, lsn_no *out_vouched_end)
{
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    append_synced(rig, 500);
    rig->appended = 0; /* in front of the checkpoint */
    *out_from = log_mark(rig->log);
    append_synced(rig, 10);
    append_written(rig, 1000);
    append_synced(rig, SEGMENT + 100);
    append_synced(rig, 10);
    *out_vouched = rig->appended;
    assert_int_equal(log_step(rig->log), 0);
    *out_vouched_end = log_synced_end(rig->log);
    append_synced(rig, 600);
    *out_vouched_end = rig->position;
    append_written(rig, 700);
}

/* Whatever byte behind the checkpoint is damaged: refused with file and offset when something vouches for it, else cut
 * there, never a wrong record, and never fewer than are vouched for. */
static void damaged_byte_anywhere_is_refused_or_cut(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    lsn_no from = 0;
    lsn_no vouched_end = 0;
    uint64_t vouched = 0;
    unsigned refused = 0;
    unsigned cut = 0;
    assert_non_null(rig);
    make_log_to_damage(rig, &from, &vouched, &vouched_end);
    const lsn_no end = (log_end(rig->log) / SEGMENT + 1) * SEGMENT;
    for (lsn_no at = from; at < end; at += at % LOG_ALIGN < 48 ? 1 : 5) {
        uint8_t *byte = byte_at(rig->mem, at);
        *byte ^= 0x40;
        struct capture capture;
        capture_init(&capture);
        struct seen seen = {0};
        lsn_no got_end = 0;
        bool torn = false;
        const int rc = read_log(rig->dev, &capture, from, &seen, &got_end, &torn);
        if (rc != 0) {
            assert_int_equal(rc, -EIO);
            assert_int_equal(capture.diag.damage_count, 1);
            assert_non_null(strstr(capture.line, "/d/log/"));
            assert_non_null(strstr(capture.line, "offset "));
            refused++;
        } else {
            assert_true(seen.last >= vouched);
            assert_int_equal(capture.diag.damage_count, 0);
            cut += seen.last < rig->appended;
            assert_true(seen.last == rig->appended || at >= vouched_end);
        }
        *byte ^= 0x40;
    }
    assert_true(refused > 2000);
    assert_true(cut > 100);
    assert_reads(rig->dev, from, 0, rig->appended, false);
    rig_free(rig);
    free(rig);
}

/* A run of bytes is zero, as after a write that went nowhere. */
static void lost_sector_that_was_vouched_for_is_refused(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    lsn_no from = 0;
    lsn_no vouched_end = 0;
    uint64_t vouched = 0;
    assert_non_null(rig);
    make_log_to_damage(rig, &from, &vouched, &vouched_end);
    for (lsn_no at = from; at < vouched_end; at += LOG_ALIGN) {
        uint8_t saved[LOG_ALIGN];
        uint8_t *bytes = byte_at(rig->mem, at);
        memcpy(saved, bytes, sizeof saved);
        memset(bytes, 0, sizeof saved);
        struct log_batch_header header;
        memcpy(&header, saved, sizeof header);
        if (le32_get(header.magic) == LOG_BATCH_MAGIC && le32_get(header.payload_size) == 0) {
            memcpy(bytes, saved, sizeof saved); /* a batch that only vouches: the next one may vouch for it, or not */
            continue;
        }
        assert_refused(rig->dev, from);
        memcpy(bytes, saved, sizeof saved);
    }
    rig_free(rig);
    free(rig);
}

/* First, middle or last: a segment that reading comes to was there. */
static void missing_segment_is_refused(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 4; number++) {
        struct rig *rig = malloc(sizeof *rig);
        char path[LOG_PATH_SIZE];
        assert_non_null(rig);
        rig_init(rig, false);
        assert_int_equal(open_log(rig, 0), 0);
        const lsn_no from = log_mark(rig->log);
        while (log_end(rig->log) < 3 * SEGMENT + 3 * LOG_ALIGN) {
            append_synced(rig, 300); /* groups of one sector that end with their segments */
        }
        log_segment_path("/d", number, path);
        assert_int_equal(io_unlink(rig->dev, path), 0);
        assert_refused(rig->dev, from);
        rig_free(rig);
        free(rig);
    }
}

static void segment_of_another_store_is_refused(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    rig_init(rig, false);
    assert_int_equal(open_log(rig, 0), 0);
    const lsn_no from = log_mark(rig->log);
    append_synced(rig, 2 * SEGMENT);
    *byte_at(rig->mem, SEGMENT + offsetof(struct log_segment_header, store_id)) ^= 1;
    assert_refused(rig->dev, from);
    rig_free(rig);
    free(rig);
}

/* ---- power cuts ---- */

/* Records that may be there after a cut: at least what is durable, at most what was appended, from the mark on. */
struct bounds {
    lsn_no from;
    uint64_t before, synced, appended;
};

static void check_cut_state(struct sim_cut *cut, uint64_t number, const struct bounds *bounds)
{
    uint64_t hash = 0;
    struct capture capture;
    struct mem_device *mem = sim_cut_build(cut, number, &hash);
    capture_init(&capture);
    struct seen seen = {.last = bounds->before};
    lsn_no end = 0;
    bool torn = false;
    const int rc = read_log(mem_device_io(mem), &capture, bounds->from, &seen, &end, &torn);
    if (rc != 0 || seen.last < bounds->synced || seen.last > bounds->appended) {
        (void)fprintf(stderr, "state %llu: rc %d, records to %llu, want %llu to %llu: %s\n", (unsigned long long)number,
                      rc, (unsigned long long)seen.last, (unsigned long long)bounds->synced,
                      (unsigned long long)bounds->appended, capture.line);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(capture.diag.damage_count, 0);
    assert_true(seen.last >= bounds->synced && seen.last <= bounds->appended);
    mem_device_destroy(mem);
}

static void check_cuts(struct rig *rig, struct test_random *random, const struct bounds *bounds)
{
    const struct sim_profile profiles[] = {{.sector_bytes = 512},
                                           {.sector_bytes = 512, .ordered_names = true},
                                           {.sector_bytes = 512, .garbage = true},
                                           {.sector_bytes = 4096}};
    struct sim_cut *cut = sim_cut_create(rig->sim, &profiles[test_random_below(random, ARRAY_COUNT(profiles))]);
    bool all = false;
    const uint64_t systematic = sim_cut_systematic(cut, &all);
    const uint64_t step = systematic / CUT_OFFERED + 1;
    for (uint64_t number = 0; number < systematic; number += step) {
        check_cut_state(cut, number, bounds);
    }
    for (unsigned i = 0; i < 4 && !all; i++) {
        check_cut_state(cut, SIM_STATE_RANDOM + test_random_below(random, 1000000), bounds);
    }
    sim_cut_free(cut);
}

/* Any power cut at any time: never refused, never less than was durable, never a wrong record. */
static void power_cut_leaves_a_prefix_with_all_that_was_synced(void **state)
{
    (void)state;
    struct rig *rig = malloc(sizeof *rig);
    struct test_random random;
    assert_non_null(rig);
    rig_init(rig, true);
    assert_int_equal(io_sync_dir(rig->dev, "/"), 0);
    test_random_init(&random, test_seed("test_log"));
    assert_int_equal(open_log(rig, 0), 0);
    struct bounds bounds = {.from = log_mark(rig->log)};
    const unsigned rounds = test_is_long() ? 2000 : 250;
    for (unsigned round = 0; round < rounds; round++) {
        const uint64_t what = test_random_below(&random, 100);
        assert_int_equal(append(rig, test_random_below(&random, what < 8 ? 2 * SEGMENT : 900)), 0);
        bounds.appended = rig->appended;
        if (what % 3 == 0) {
            assert_int_equal(log_write(rig->log, rig->position), 0);
        }
        if (what % 8 == 0) {
            assert_int_equal(log_sync(rig->log, rig->position), 0);
            bounds.synced = rig->appended;
        } else if (what % 13 == 0) {
            assert_int_equal(log_step(rig->log), 0);
            bounds.synced = rig->appended;
        }
        if (what % 17 == 0) { /* a checkpoint: what came before may go */
            bounds.from = log_mark(rig->log);
            bounds.before = rig->appended;
            bounds.synced = rig->appended;
            assert_int_equal(log_recycle(rig->log, bounds.from), 0);
        }
        if (what % 4 == 1) {
            check_cuts(rig, &random, &bounds);
        }
    }
    rig_free(rig);
    free(rig);
}

/* Also when the cut comes while the first segments are made, or its maker was killed and another one goes on. */
static void power_cut_after_a_kill_in_the_first_start_keeps_what_is_synced(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth < 8; nth++) {
        struct rig *rig = malloc(sizeof *rig);
        assert_non_null(rig);
        rig_init(rig, true);
        assert_int_equal(io_sync_dir(rig->dev, "/"), 0);
        const enum mem_call calls[] = {MEM_CALL_SYNC_DIR, MEM_CALL_RENAME};
        mem_device_fail(rig->mem, calls[nth % 2], (nth + 1) / 2, EIO, true); /* the life ends here */
        const int rc = open_log(rig, 0);
        mem_device_clear_faults(rig->mem);
        if (rc == 0) {
            log_close(rig->log);
            rig->log = NULL;
        }
        assert_int_equal(open_log(rig, SEGMENT), 0);
        struct test_random random;
        test_random_init(&random, nth);
        struct bounds bounds = {.from = log_mark(rig->log), .synced = 1, .appended = 1};
        append_synced(rig, 100);
        for (unsigned i = 0; i < 8; i++) {
            check_cuts(rig, &random, &bounds);
        }
        rig_free(rig);
        free(rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_any_size_are_read_back_from_every_mark),
        cmocka_unit_test(record_of_every_size_around_a_segment_is_read_back),
        cmocka_unit_test(promise_that_is_not_used_leaves_no_trace),
        cmocka_unit_test(log_starts_above_every_segment_that_is_there),
        cmocka_unit_test(sync_of_a_durable_record_asks_the_disk_nothing),
        cmocka_unit_test(idle_log_vouches_once),
        cmocka_unit_test(failed_call_stops_the_log_for_good),
        cmocka_unit_test(failed_call_while_a_segment_is_made_stops_the_log),
        cmocka_unit_test(full_disk_refuses_a_promise_and_goes_on),
        cmocka_unit_test(recycled_segments_are_used_again_and_hold_no_old_records),
        cmocka_unit_test(recycling_keeps_what_is_not_synced),
        cmocka_unit_test(full_disk_keeps_the_segment_kept_for_reuse),
        cmocka_unit_test(start_removes_old_segments_and_temporaries_only),
        cmocka_unit_test(tail_cut_at_any_byte_is_cut),
        cmocka_unit_test(tail_of_any_sectors_is_cut_or_whole),
        cmocka_unit_test(records_behind_a_torn_one_are_not_read),
        cmocka_unit_test(record_that_the_caller_calls_bad_is_cut_unless_vouched_for),
        cmocka_unit_test(damaged_byte_anywhere_is_refused_or_cut),
        cmocka_unit_test(lost_sector_that_was_vouched_for_is_refused),
        cmocka_unit_test(missing_segment_is_refused),
        cmocka_unit_test(segment_of_another_store_is_refused),
        cmocka_unit_test(power_cut_leaves_a_prefix_with_all_that_was_synced),
        cmocka_unit_test(power_cut_after_a_kill_in_the_first_start_keeps_what_is_synced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
