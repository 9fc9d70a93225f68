/*
 * tests/crash/test_standby.c - a standby follows the archive of a random life (tests/crash/history.h): at each position that it tells users see what the
 * life had then, to the last byte; files that they keep open go on with what they have; a standby that is killed goes on from its own checkpoint.
 *
 * SEED replays a life; with LONG=1 there are more.
 */
#include "tests/crash/history.h"
#include "txn/standby.h"

#include "base/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME   "crash/test_standby"
#define STANDBY_DIR "/standby"
#define NAMES_MAX   800u
#define FILES_MAX   4u
#define FILE_BYTES  (UINT64_C(1) << 20)

/* A table that a user keeps open. */
struct reader {
    struct store_file *file; /* NULL: none */
    uint64_t hash;           /* of what it showed last */
    uint64_t size;
};

struct follower {
    const struct history *history;
    struct mem_device *mem; /* a clone */
    struct crash_diag diag;
    struct archive_dir archive;
    struct restore_archive files;
    struct test_random random;
    char names[NAMES_MAX][ARCHIVE_NAME_SIZE]; /* of the archive, sorted */
    unsigned name_count, visible;             /* so many are there by now */
    struct store *store;
    struct standby *standby;
    struct reader readers[FILES_MAX];
    uint8_t *bytes;  /* FILE_BYTES */
    lsn_no position; /* told last */
    uint64_t compared, kept, followed, starts, checkpoints;
    unsigned stop_in; /* waits until it is killed; 0: never */
    int error;        /* what it waits for, if it should */
};

static _Noreturn void follower_fail(struct follower *follower, const char *what, uint64_t number)
{
    for (unsigned i = 0; i < ARRAY_COUNT(follower->diag.lines); i++) {
        fprintf(stderr, "  %s\n", follower->diag.lines[(follower->diag.next + i) % ARRAY_COUNT(follower->diag.lines)]);
    }
    history_fail(follower->history, "position %" PRIu64 ": %s: %" PRIu64, follower->position, what, number);
}

static void follower_must(struct follower *follower, int rc, const char *what)
{
    if (rc != 0) {
        follower_fail(follower, what, (uint64_t)-rc);
    }
}

/* ---- readers ---- */

static uint64_t read_all(struct follower *follower, struct store_file *file, uint64_t *out_size)
{
    size_t size = 0;
    follower_must(follower, store_read(file, 0, follower->bytes, FILE_BYTES, &size), "store_read");
    *out_size = size;
    return checksum_64(follower->bytes, size, 0);
}

/* STANDBY-3: one whose table is gone shows what it showed last. */
static void look_at_reader(struct follower *follower, struct reader *reader)
{
    ino_no ino = INO_NONE;
    uint64_t size = 0;
    const uint64_t hash = read_all(follower, reader->file, &size);
    if (!store_file_replaced(reader->file, &ino)) {
        reader->hash = hash;
        reader->size = size;
        follower->followed++;
        return;
    }
    if (hash != reader->hash || size != reader->size) {
        follower_fail(follower, "a file that is open shows another version", store_file_ino(reader->file));
    }
    follower->kept++;
}

static int note_file(void *arg, const struct store_dir_entry *entry)
{
    ino_no *ino = arg;
    if (entry->mode_type == S_IFREG && entry->attr->size_bytes > 0) {
        *ino = entry->ino;
    }
    return 0;
}

static void open_reader(struct follower *follower, struct reader *reader)
{
    struct view *view = standby_view(follower->standby);
    ino_no ino = INO_NONE;
    const uint64_t after = test_random_below(&follower->random, UINT64_C(1) << 62);
    follower_must(follower, store_readdir(follower->store, view, INO_ROOT, after, true, note_file, &ino), "readdir");
    if (ino != INO_NONE && store_file_open(follower->store, view, ino, &reader->file) == 0) {
        reader->hash = read_all(follower, reader->file, &reader->size);
    }
}

static void use_readers(struct follower *follower)
{
    for (unsigned i = 0; i < FILES_MAX; i++) {
        struct reader *reader = &follower->readers[i];
        if (reader->file != NULL) {
            look_at_reader(follower, reader);
        }
        if (reader->file != NULL && test_random_chance(&follower->random, 5)) {
            store_file_close(reader->file);
            reader->file = NULL;
        } else if (reader->file == NULL && test_random_chance(&follower->random, 30)) {
            open_reader(follower, reader);
        }
    }
}

/* ---- what is shown ---- */

/* The operation behind which the life stood exactly there. False: it was in the middle of one. */
static bool find_operation(const struct follower *follower, lsn_no before, lsn_no position, uint64_t *out_op)
{
    const struct history *history = follower->history;
    uint64_t op = history->base_op;
    while (op < HISTORY_OPERATIONS && history->moments[op + 1].lsn < position) {
        op++;
    }
    *out_op = op;
    return before <= history->moments[op].lsn && history->moments[op].lsn < position;
}

static void compare(struct follower *follower, uint64_t op)
{
    uint64_t fingerprint = 0;
    follower_must(follower, crash_fingerprint_view(follower->store, standby_view(follower->standby), &fingerprint),
                  "the tree cannot be read");
    if (fingerprint != follower->history->life.fingerprints[op]) {
        follower_fail(follower, "not the state behind operation", op);
    }
    follower->compared++;
}

static void shown(void *arg, struct store_changes *changes)
{
    struct follower *follower = arg;
    uint64_t op = 0;
    if (changes->lsn < follower->position) {
        follower_fail(follower, "it went back to", changes->lsn);
    }
    const lsn_no before = follower->position;
    follower->position = changes->lsn;
    if (find_operation(follower, before, changes->lsn, &op)) {
        compare(follower, op);
    }
    use_readers(follower);
}

/* ---- the archive, as it grows ---- */

static int get(void *arg, const char *name, const char *path)
{
    struct follower *follower = arg;
    for (unsigned i = 0; i < follower->visible; i++) {
        if (strcmp(follower->names[i], name) == 0) {
            return archive_dir_get(&follower->archive, name, path);
        }
    }
    return -ENOENT;
}

static bool wait_for_more(void *arg, int rc)
{
    struct follower *follower = arg;
    if (rc != follower->error) {
        follower_fail(follower, "it waits, for another reason than that there is no more", (uint64_t)-rc);
    }
    if (follower->stop_in > 0 && --follower->stop_in == 0) {
        return false;
    }
    if (follower->visible == follower->name_count) {
        return false;
    }
    follower->visible++;
    return true;
}

static int note_name(void *arg, const char *name, enum io_file_kind kind)
{
    struct follower *follower = arg;
    if (kind == IO_KIND_FILE && follower->name_count < NAMES_MAX) {
        (void)snprintf(follower->names[follower->name_count++], ARCHIVE_NAME_SIZE, "%s", name);
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* ---- lives of a standby ---- */

static void follower_init(struct follower *follower, const struct history *history)
{
    memset(follower, 0, sizeof *follower);
    follower->history = history;
    follower->mem = mem_device_clone(history->mem);
    follower->bytes = malloc(FILE_BYTES);
    assert_non_null(follower->bytes);
    test_random_init(&follower->random, history->seed * 3 + 5);
    crash_diag_init(&follower->diag);
    follower->archive =
        (struct archive_dir){.dev = mem_device_io(follower->mem), .diag = &follower->diag.diag, .dir = HISTORY_ARCHIVE};
    follower->files = (struct restore_archive){.get = get, .arg = follower};
    follower_must(follower, io_list_dir(mem_device_io(follower->mem), HISTORY_ARCHIVE, note_name, follower), "list");
    qsort(follower->names, follower->name_count, sizeof follower->names[0], compare_names);
}

static void follower_free(struct follower *follower)
{
    free(follower->bytes);
    mem_device_destroy(follower->mem);
}

static void begin(struct follower *follower)
{
    struct io_device *dev = mem_device_io(follower->mem);
    const struct base_source base = {.dev = dev, .dir = HISTORY_BASE};
    const struct restore_options place = {.dev = dev,
                                          .diag = &follower->diag.diag,
                                          .dir = STANDBY_DIR,
                                          .base = follower->starts == 0 ? &base : NULL,
                                          .base_name = HISTORY_BASE,
                                          .archive = &follower->files,
                                          .target = {.until = RESTORE_STANDBY}};
    struct store_options open = {.dev = dev,
                                 .diag = &follower->diag.diag,
                                 .dir = STANDBY_DIR,
                                 .cache_size_bytes = UINT64_C(16) << 20,
                                 .restoring = true};
    const struct standby_options options = {.archive = &follower->files,
                                            .checkpoint_log_bytes = 60000,
                                            .shown = shown,
                                            .wait = wait_for_more,
                                            .arg = follower};
    struct standby_status status;
    follower_must(follower, standby_place(&place, &open.log_segment_size), "standby_place");
    follower_must(follower, store_open(&open, &follower->store, NULL), "store_open");
    follower_must(follower, standby_open(follower->store, &options, &follower->standby), "standby_open");
    standby_get_status(follower->standby, &status);
    follower->position = status.position;
    follower->starts++;
}

/* As a kill. */
static void end(struct follower *follower)
{
    struct standby_status status;
    for (unsigned i = 0; i < FILES_MAX; i++) {
        if (follower->readers[i].file != NULL) {
            look_at_reader(follower, &follower->readers[i]);
            store_file_close(follower->readers[i].file);
        }
        follower->readers[i] = (struct reader){.file = NULL};
    }
    standby_get_status(follower->standby, &status);
    follower->checkpoints += status.checkpoints;
    standby_close(follower->standby);
    store_abandon(follower->store);
}

static void follow(struct follower *follower)
{
    begin(follower);
    follower_must(follower, standby_follow(follower->standby), "standby_follow");
}

static void users_see_what_the_primary_had_at_each_position(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(TEST_NAME);
    uint64_t compared = 0;
    uint64_t kept = 0;
    uint64_t followed = 0;
    uint64_t checkpoints = 0;
    for (unsigned i = 0; i < (test_is_long() ? 20u : 3u); i++) {
        struct history history;
        struct follower *follower = malloc(sizeof *follower);
        assert_non_null(follower);
        history_init(&history, TEST_NAME, seed + i * UINT64_C(1000003));
        history_live(&history);
        follower_init(follower, &history);
        follow(follower);
        compare(follower, HISTORY_OPERATIONS);
        follower_must(follower, store_check(follower->store), "store_check");
        end(follower);
        assert_int_equal(atomic_load(&follower->diag.diag.damage_count), 0);
        compared += follower->compared;
        kept += follower->kept;
        followed += follower->followed;
        checkpoints += follower->checkpoints;
        follower_free(follower);
        free(follower);
        history_free(&history);
    }
    assert_true(compared > 100);
    assert_true(kept > 0);
    assert_true(followed > 0);
    assert_true(checkpoints > 0);
}

static void killed_standby_goes_on_from_its_checkpoint(void **state)
{
    (void)state;
    struct history history;
    struct follower *follower = malloc(sizeof *follower);
    assert_non_null(follower);
    history_init(&history, TEST_NAME, test_seed(TEST_NAME) + 31);
    history_live(&history);
    follower_init(follower, &history);
    lsn_no first = 0;
    do {
        follower->stop_in = (unsigned)test_random_range(&follower->random, 3, 12);
        begin(follower);
        first = follower->starts == 1 ? follower->position : first;
        follower_must(follower, standby_follow(follower->standby), "standby_follow");
        end(follower);
    } while (follower->visible < follower->name_count);
    follower->stop_in = 0;
    begin(follower);
    assert_true(follower->starts > 3);
    assert_true(follower->position > first);
    follower_must(follower, standby_follow(follower->standby), "standby_follow");
    compare(follower, HISTORY_OPERATIONS);
    end(follower);
    follower_free(follower);
    free(follower);
    history_free(&history);
}

/* ---- promoted ---- */

static void promoted(void *arg)
{
    unsigned *called = arg;
    ++*called;
}

/* Whoever had a file open reads the same, and what is written is seen through it. */
static void write_through_open_file(struct follower *follower, struct store_file *file)
{
    struct store_file *again = NULL;
    struct view *live = store_live(follower->store);
    uint64_t size = 0;
    uint64_t end = 0;
    const uint64_t hash = read_all(follower, file, &size);
    follower_must(follower, store_file_open(follower->store, live, store_file_ino(file), &again), "store_file_open");
    assert_ptr_equal(again, file); /* PROMOTE-2 */
    follower_must(follower, store_write(again, 0, "more", 4, STORE_WRITE_APPEND, &end), "store_write");
    store_file_close(again);
    uint64_t size_after = 0;
    assert_int_not_equal(read_all(follower, file, &size_after), hash);
    assert_int_equal(size_after, size + 4);
}

static void promoted_standby_is_a_store_of_its_own(void **state)
{
    (void)state;
    struct history history;
    struct follower *follower = malloc(sizeof *follower);
    struct store_file *file = NULL;
    struct store_attr attr;
    uint64_t fingerprint = 0;
    uint64_t after = 0;
    unsigned called = 0;
    uint32_t timeline = 0;
    ino_no ino = INO_NONE;
    assert_non_null(follower);
    history_init(&history, TEST_NAME, test_seed(TEST_NAME) + 47);
    history_live(&history);
    follower_init(follower, &history);
    follower->visible = follower->name_count;
    follow(follower);
    const struct archive_target archive = {.put = archive_dir_put, .arg = &follower->archive};
    const struct standby_promotion promotion = {.archive = &archive, .promoted = promoted, .arg = &called};
    const struct store_who who = {.uid = 0};
    const struct store_name name = {.bytes = "new", .size = 3};
    struct view *shown_view = standby_view(follower->standby);
    assert_int_equal(store_create(follower->store, shown_view, INO_ROOT, name, S_IFREG | 0644, 0, who, &attr), -EROFS);
    assert_int_equal(store_snapshot_create(follower->store, name), -EROFS);
    follower_must(follower, store_readdir(follower->store, shown_view, INO_ROOT, 0, true, note_file, &ino), "readdir");
    if (ino != INO_NONE) { /* few lives end without any table in the root */
        follower_must(follower, store_file_open(follower->store, shown_view, ino, &file), "store_file_open");
    }
    follower_must(follower, standby_promote(follower->standby, &promotion, &timeline), "standby_promote");
    assert_int_equal(called, 1);
    assert_int_equal(timeline, 2);
    assert_int_equal(store_getattr(follower->store, shown_view, INO_ROOT, &attr), -ENOENT);
    follower_must(follower, crash_fingerprint(follower->store, &fingerprint), "the tree cannot be read");
    if (fingerprint != history.life.fingerprints[HISTORY_OPERATIONS]) {
        follower_fail(follower, "not the state behind operation", HISTORY_OPERATIONS);
    }
    if (file != NULL) {
        write_through_open_file(follower, file);
    }
    follower_must(
        follower,
        store_create(follower->store, store_live(follower->store), INO_ROOT, name, S_IFREG | 0644, 0, who, &attr),
        "store_create");
    follower_must(follower, store_check(follower->store), "store_check");
    for (unsigned i = 0; i < FILES_MAX; i++) {
        if (follower->readers[i].file != NULL) {
            look_at_reader(follower, &follower->readers[i]);
            store_file_close(follower->readers[i].file);
        }
    }
    if (file != NULL) {
        store_file_close(file);
    }
    follower_must(follower, crash_fingerprint(follower->store, &fingerprint), "the tree cannot be read");
    standby_close(follower->standby);
    follower_must(follower, store_close(follower->store), "store_close");
    const struct store_options open = {.dev = mem_device_io(follower->mem),
                                       .diag = &follower->diag.diag,
                                       .dir = STANDBY_DIR,
                                       .cache_size_bytes = UINT64_C(16) << 20,
                                       .log_segment_size = CRASH_SEGMENT_SIZE};
    follower_must(follower, store_open(&open, &follower->store, NULL), "store_open");
    follower_must(follower, crash_fingerprint(follower->store, &after), "the tree cannot be read");
    assert_int_equal(after, fingerprint);
    follower_must(follower, store_check(follower->store), "store_check");
    follower_must(follower, store_close(follower->store), "store_close");
    follower_free(follower);
    free(follower);
    history_free(&history);
}

/* PROMOTE-1: interrupted at any call of the device, the directory is a standby's still, or a store's with all that there was. */
static bool is_whole_store(struct follower *follower)
{
    const struct store_options open = {.dev = mem_device_io(follower->mem),
                                       .diag = &follower->diag.diag,
                                       .dir = STANDBY_DIR,
                                       .cache_size_bytes = UINT64_C(16) << 20,
                                       .log_segment_size = CRASH_SEGMENT_SIZE};
    uint64_t fingerprint = 0;
    const int rc = store_open(&open, &follower->store, NULL);
    if (rc == -EUCLEAN) {
        return false;
    }
    follower_must(follower, rc, "store_open");
    follower_must(follower, crash_fingerprint(follower->store, &fingerprint), "the tree cannot be read");
    if (fingerprint != follower->history->life.fingerprints[HISTORY_OPERATIONS]) {
        follower_fail(follower, "not the state behind operation", HISTORY_OPERATIONS);
    }
    follower_must(follower, store_check(follower->store), "store_check");
    follower_must(follower, store_close(follower->store), "store_close");
    return true;
}

static void interrupted_promotion_leaves_a_standby_or_a_store(void **state)
{
    static const enum mem_call calls[] = {MEM_CALL_WRITE, MEM_CALL_SYNC, MEM_CALL_OPEN, MEM_CALL_RENAME};
    struct history history;
    struct follower *follower = malloc(sizeof *follower);
    unsigned called = 0;
    unsigned standbys = 0;
    uint32_t timeline = 0;
    bool done = false;
    (void)state;
    assert_non_null(follower);
    history_init(&history, TEST_NAME, test_seed(TEST_NAME) + 53);
    history_live(&history);
    follower_init(follower, &history);
    follower->visible = follower->name_count;
    const struct standby_promotion promotion = {.promoted = promoted, .arg = &called};
    for (uint64_t nth = 1; !done; nth++) {
        const enum mem_call call = nth == 1 ? MEM_CALL_WRITE /* of the history: it comes first */
                                            : calls[test_random_below(&follower->random, ARRAY_COUNT(calls))];
        follow(follower);
        mem_device_fail(follower->mem, call, nth, EIO, false);
        const int rc = standby_promote(follower->standby, &promotion, &timeline);
        mem_device_clear_faults(follower->mem);
        end(follower);
        done = is_whole_store(follower);
        if (!done && rc == 0) {
            follower_fail(follower, "promoted, and a standby still", nth);
        }
        standbys += !done;
    }
    assert_true(standbys > 0);
    follower_free(follower);
    free(follower);
    history_free(&history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_see_what_the_primary_had_at_each_position),
        cmocka_unit_test(killed_standby_goes_on_from_its_checkpoint),
        cmocka_unit_test(promoted_standby_is_a_store_of_its_own),
        cmocka_unit_test(interrupted_promotion_leaves_a_standby_or_a_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
