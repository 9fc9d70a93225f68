/*
 * tests/model/test_archive.c - the archive has every record of every life, once, in a chain without a gap: over clean ends and kills, while
 * it cannot be reached, and with segments that are left early. Then its single rules.
 */
#include "tests/model/rig.h"
#include "txn/control.h"
#include "txn/log_int.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define TEST_NAME  "test_archive"
#define SEGMENT    (UINT32_C(64) << 10)
#define ARCHIVE    "/archive"
#define LIVES      8u
#define TIMEOUT_MS 50u
#define SECOND_NS  UINT64_C(1000000000)
#define BACKOFF_NS (61 * SECOND_NS)

struct archive_rig {
    struct rig rig;
    struct archive_dir dir;
    struct archive_target target;
    bool unreachable;
    uint64_t refused;
    uint64_t records; /* of the lives that are over */
};

static int put(void *arg, const char *path, const char *name)
{
    struct archive_rig *ar = arg;
    if (ar->unreachable) {
        ar->refused++;
        return -EHOSTUNREACH;
    }
    return archive_dir_put(&ar->dir, path, name);
}

static void archive_rig_init(struct archive_rig *ar, uint64_t salt, uint64_t timeout_ms)
{
    *ar = (struct archive_rig){.refused = 0};
    ar->target = (struct archive_target){.put = put, .arg = ar};
    const struct rig_config config = {
        .test_name = TEST_NAME,
        .seed = test_seed(TEST_NAME),
        .salt = salt,
        .cache_size_bytes = RIG_CACHE_SMALL,
        .max_file_bytes = 200000,
        .max_total_bytes = 4 << 20,
        .max_inodes = 60,
        .log_segment_size = SEGMENT,
        .archive = &ar->target,
        .archive_timeout_ms = timeout_ms,
    };
    rig_init(&ar->rig, &config);
    ar->dir = (struct archive_dir){.dev = ar->rig.dev, .diag = &ar->rig.diag, .dir = ARCHIVE};
    assert_int_equal(io_make_dir(ar->rig.dev, ARCHIVE), 0);
}

static void end_of_life(struct archive_rig *ar)
{
    struct store_stats stats;
    store_get_stats(ar->rig.store, &stats);
    ar->records += stats.log.records;
}

/* ---- reading an archive ---- */

static bool has_file(struct archive_rig *ar, const char *name)
{
    char path[100];
    struct io_stat stat;
    (void)snprintf(path, sizeof path, ARCHIVE "/%s", name);
    return io_stat(ar->rig.dev, path, &stat) == 0;
}

/* Malloc'd; NULL: there is none. */
static uint8_t *read_file(struct archive_rig *ar, const char *name, size_t *out_size)
{
    char path[100];
    struct io_file *file = NULL;
    (void)snprintf(path, sizeof path, ARCHIVE "/%s", name);
    if (io_open(ar->rig.dev, path, IO_READ_ONLY, &file) != 0) {
        return NULL;
    }
    uint8_t *bytes = malloc(SEGMENT);
    assert_non_null(bytes);
    assert_int_equal(io_read_full(file, bytes, SEGMENT, 0, out_size), 0);
    assert_int_equal(io_close(file), 0);
    return bytes;
}

static int smaller(void *arg, const char *name, enum io_file_kind kind)
{
    uint64_t *smallest = arg;
    uint64_t number = 0;
    (void)kind;
    if (strlen(name) == 25 && sscanf(name, "00000001-%16" SCNx64, &number) == 1 && number < *smallest) {
        *smallest = number;
    }
    return 0;
}

static uint64_t first_segment(struct archive_rig *ar)
{
    uint64_t smallest = UINT64_MAX;
    assert_int_equal(io_list_dir(ar->rig.dev, ARCHIVE, smaller, &smallest), 0);
    return smallest;
}

struct count {
    uint64_t records;
    uint64_t by_reference;
};

static int count_record(void *arg, lsn_no position, const struct op_record *op)
{
    struct count *count = arg;
    (void)position;
    count->records++;
    count->by_reference += op->type == OP_WRITE_PAGES;
    return 0;
}

/* The segments of one life, in a data directory of their own. Returns the number of the last one. */
static uint64_t lay_out_life(struct archive_rig *ar, struct mem_device *mem, uint64_t number)
{
    assert_int_equal(io_make_dir(mem_device_io(mem), "/life"), 0);
    assert_int_equal(io_make_dir(mem_device_io(mem), "/life/log"), 0);
    for (uint64_t next = number;; next++) {
        char name[ARCHIVE_NAME_SIZE];
        char path[LOG_PATH_SIZE];
        size_t size = 0;
        archive_segment_name(name, 1, next);
        uint8_t *bytes = read_file(ar, name, &size);
        if (bytes == NULL) {
            return next - 1;
        }
        log_segment_path("/life", next, path);
        mem_device_put_file(mem, path, bytes, size);
        free(bytes);
    }
}

/* Reads a life; *inout_previous is where the one before ended, and then where this one does. Returns the first segment of the next one, 0:
 * there is none. */
static uint64_t read_life(struct archive_rig *ar, uint64_t number, lsn_no *inout_previous, struct count *count)
{
    struct mem_device *mem = mem_device_create(1);
    const uint64_t last = lay_out_life(ar, mem, number);
    struct log_reader_options options = {.dev = mem_device_io(mem),
                                         .diag = &ar->rig.diag,
                                         .dir = "/life",
                                         .segment_size = SEGMENT,
                                         .from = number * SEGMENT};
    struct log_segment_info info;
    bool torn = true;
    struct control control;
    assert_int_equal(control_read(ar->rig.dev, &ar->rig.diag, RIG_DIR, &control), 0);
    memcpy(options.store_id, control.store_id, sizeof options.store_id);
    assert_int_equal(log_segment_info(&options, number, &info), 0);
    assert_true(*inout_previous == 0 || info.previous == *inout_previous);
    assert_true(info.complete);
    assert_int_equal(log_read(&options, count_record, count, inout_previous, &torn), 0);
    assert_false(torn);
    assert_int_equal(*inout_previous / SEGMENT, last);
    mem_device_destroy(mem);
    char name[ARCHIVE_NAME_SIZE];
    size_t size = 0;
    uint64_t next = 0;
    archive_link_name(name, 1, last);
    uint8_t *link = read_file(ar, name, &size);
    if (link != NULL) {
        link[size - 1] = '\0';
        assert_int_equal(sscanf((const char *)link, "%16" SCNx64, &next), 1);
        free(link);
    }
    return next;
}

static void assert_chain(struct archive_rig *ar, unsigned lives)
{
    struct count count = {.records = 0};
    lsn_no previous = 0;
    unsigned read = 0;
    for (uint64_t number = first_segment(ar); number != 0; read++) {
        number = read_life(ar, number, &previous, &count);
    }
    assert_int_equal(read, lives);
    assert_int_equal(count.records, ar->records);
    assert_int_equal(count.by_reference, 0);
}

/* ---- cases ---- */

static void live(struct archive_rig *ar, unsigned operations)
{
    struct rig *rig = &ar->rig;
    for (unsigned i = 0; i < operations; i++) {
        rig_operate(rig);
        if (test_random_chance(&rig->random, 5)) {
            ar->unreachable = test_random_chance(&rig->random, 30);
        }
        if (test_random_chance(&rig->random, 20)) {
            mem_device_advance_ns(rig->mem, test_random_below(&rig->random, 2 * SECOND_NS));
            store_step(rig->store);
        }
        if (test_random_chance(&rig->random, 2)) {
            rig_must(rig, store_checkpoint(rig->store), "store_checkpoint");
        }
    }
}

static void archive_of_many_lives_is_one_chain_with_every_record(void **state)
{
    (void)state;
    struct archive_rig ar;
    archive_rig_init(&ar, 1, TIMEOUT_MS);
    unsigned lives = 1;
    for (; lives < LIVES; lives++) {
        live(&ar, 400);
        ar.unreachable = test_random_chance(&ar.rig.random, 50);
        if (test_random_chance(&ar.rig.random, 50)) {
            end_of_life(&ar);
            rig_kill_and_reopen(&ar.rig);
        } else {
            rig_close_handles(&ar.rig);
            end_of_life(&ar);
            rig_reopen(&ar.rig);
        }
    }
    live(&ar, 400);
    ar.unreachable = false;
    mem_device_advance_ns(ar.rig.mem, BACKOFF_NS);
    rig_close_handles(&ar.rig);
    end_of_life(&ar);
    rig_reopen(&ar.rig);
    store_step(ar.rig.store);
    assert_chain(&ar, lives);
    assert_true(ar.refused > 0);
    rig_destroy(&ar.rig);
}

static void operate_until_logged(struct archive_rig *ar)
{
    struct store_stats before;
    struct store_stats stats;
    store_get_stats(ar->rig.store, &before);
    do {
        rig_operate(&ar->rig);
        store_get_stats(ar->rig.store, &stats);
    } while (stats.log.records == before.log.records);
}

static void segments_that_cannot_be_archived_are_kept(void **state)
{
    (void)state;
    struct archive_rig ar;
    struct archive_status status;
    struct store_stats stats;
    archive_rig_init(&ar, 2, 0);
    ar.unreachable = true;
    do {
        for (unsigned i = 0; i < 50; i++) {
            rig_operate(&ar.rig);
        }
        rig_must(&ar.rig, store_checkpoint(ar.rig.store), "store_checkpoint");
        store_step(ar.rig.store);
        store_get_archive_status(ar.rig.store, &status);
    } while (status.waiting < 4);
    store_get_stats(ar.rig.store, &stats);
    assert_int_equal(status.archived, 0);
    assert_true(status.failures > 0);
    assert_int_equal(status.failed_rc, -EHOSTUNREACH);
    assert_int_equal(stats.log.segments, stats.log.segments_made);
    ar.unreachable = false;
    mem_device_advance_ns(ar.rig.mem, BACKOFF_NS);
    store_step(ar.rig.store);
    store_get_archive_status(ar.rig.store, &status);
    assert_int_equal(status.waiting, 0);
    assert_string_equal(status.failed_name, "");
    operate_until_logged(&ar);
    rig_must(&ar.rig, store_checkpoint(ar.rig.store), "store_checkpoint");
    store_get_stats(ar.rig.store, &stats);
    assert_true(stats.log.segments < stats.log.segments_made + stats.log.segments_reused);
    rig_destroy(&ar.rig);
}

static void failure_is_not_tried_again_before_its_time(void **state)
{
    (void)state;
    struct archive_rig ar;
    archive_rig_init(&ar, 3, TIMEOUT_MS);
    ar.unreachable = true;
    while (ar.refused == 0) {
        rig_operate(&ar.rig);
        mem_device_advance_ns(ar.rig.mem, SECOND_NS / 10);
        store_step(ar.rig.store);
    }
    for (unsigned i = 0; i < 10; i++) {
        store_step(ar.rig.store);
    }
    assert_int_equal(ar.refused, 1);
    mem_device_advance_ns(ar.rig.mem, SECOND_NS);
    store_step(ar.rig.store);
    assert_int_equal(ar.refused, 2);
    rig_destroy(&ar.rig);
}

static void idle_log_is_left_once(void **state)
{
    (void)state;
    struct archive_rig ar;
    struct archive_status status;
    archive_rig_init(&ar, 4, TIMEOUT_MS);
    operate_until_logged(&ar);
    for (unsigned i = 0; i < 20; i++) {
        mem_device_advance_ns(ar.rig.mem, SECOND_NS);
        store_step(ar.rig.store);
    }
    store_get_archive_status(ar.rig.store, &status);
    assert_int_equal(status.switches, 1);
    assert_int_equal(status.archived, 1);
    rig_destroy(&ar.rig);
}

static void put_text(struct archive_rig *ar, const char *path, const char *text)
{
    mem_device_put_file(ar->rig.mem, path, text, strlen(text));
}

static void same_content_again_is_accepted_other_is_refused(void **state)
{
    (void)state;
    struct archive_rig ar;
    archive_rig_init(&ar, 5, 0);
    put_text(&ar, "/one", "content");
    put_text(&ar, "/longer", "content and more");
    put_text(&ar, "/other", "cOntent");
    put_text(&ar, "/empty", "");
    assert_int_equal(archive_dir_put(&ar.dir, "/one", "name"), 0);
    assert_int_equal(archive_dir_put(&ar.dir, "/one", "name"), 0);
    diag_init_silent(&ar.rig.diag);
    assert_int_equal(archive_dir_put(&ar.dir, "/other", "name"), -EEXIST);
    assert_int_equal(archive_dir_put(&ar.dir, "/longer", "name"), -EEXIST);
    assert_int_equal(archive_dir_put(&ar.dir, "/empty", "name"), -EEXIST);
    assert_int_equal(archive_dir_put(&ar.dir, "/missing", "new"), -ENOENT);
    assert_false(has_file(&ar, "new"));
    rig_destroy(&ar.rig);
}

static void copy_that_fails_leaves_no_name(void **state)
{
    (void)state;
    struct archive_rig ar;
    archive_rig_init(&ar, 6, 0);
    put_text(&ar, "/one", "content");
    const enum mem_call calls[] = {MEM_CALL_OPEN, MEM_CALL_READ, MEM_CALL_WRITE, MEM_CALL_SYNC, MEM_CALL_RENAME};
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++) {
        mem_device_fail(ar.rig.mem, calls[i], 1, EIO, false);
        assert_int_equal(archive_dir_put(&ar.dir, "/one", "name"), -EIO);
        assert_false(has_file(&ar, "name"));
    }
    mem_device_fail(ar.rig.mem, MEM_CALL_SYNC_DIR, 1, EIO, false);
    assert_int_equal(archive_dir_put(&ar.dir, "/one", "name"), -EIO);
    assert_int_equal(archive_dir_put(&ar.dir, "/one", "name"), 0);
    rig_destroy(&ar.rig);
}

static void archive_command_gets_path_and_name(void **state)
{
    (void)state;
    char *text = archive_command_text("cp '%p' /b/%f; 100%% %x %", "/d/log/1", "t-1");
    assert_string_equal(text, "cp '/d/log/1' /b/t-1; 100% %x %");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(archive_of_many_lives_is_one_chain_with_every_record),
        cmocka_unit_test(segments_that_cannot_be_archived_are_kept),
        cmocka_unit_test(failure_is_not_tried_again_before_its_time),
        cmocka_unit_test(idle_log_is_left_once),
        cmocka_unit_test(same_content_again_is_accepted_other_is_refused),
        cmocka_unit_test(copy_that_fails_leaves_no_name),
        cmocka_unit_test(archive_command_gets_path_and_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
