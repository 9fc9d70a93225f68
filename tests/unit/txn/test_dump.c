/*
 * tests/unit/txn/test_dump.c - the dump of a small store, line for line; of a damaged one; of one in the middle of its
 * life. Run from the repository's root.
 *
 * What differs from store to store (checksums, random numbers, times, hashes) is masked in test_dump.golden. It is made
 * anew, to be looked at and committed, with GOLDEN_WRITE=1.
 */
#include "txn/dump.h"

#include "base/checksum.h"
#include "bufcache/page_format.h"
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#define DIR     "/d"
#define CATALOG DIR "/rel/01/0000000000000001"
#define GOLDEN  "tests/unit/txn/test_dump.golden"

struct rig {
    struct mem_device *mem;
    struct diag diag;
    struct store *store;
    struct dump_options options;
    FILE *out;
    char *text; /* all lines of the last dump */
    size_t text_size;
    unsigned damage_lines;
};

/* ---- a small store ---- */

static void open_store(struct rig *rig)
{
    const struct store_options options = {.dev = mem_device_io(rig->mem),
                                          .diag = &rig->diag,
                                          .dir = DIR,
                                          .cache_size_bytes = 1,
                                          .log_segment_size = 1 << 16};
    assert_int_equal(store_open(&options, &rig->store, NULL), 0);
}

static struct store_name name_of(const char *name)
{
    return (struct store_name){.bytes = name, .size = strlen(name)};
}

static ino_no make(struct rig *rig, ino_no parent, const char *name, uint32_t mode)
{
    struct store_attr attr;
    assert_int_equal(store_create(rig->store, store_live(rig->store), parent, name_of(name), mode, 0,
                                  (struct store_who){.uid = 7, .gid = 8}, &attr),
                     0);
    return attr.ino;
}

static void append(struct rig *rig, ino_no ino, uint64_t at, size_t size)
{
    struct store_file *file = NULL;
    uint64_t end = 0;
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, 'x', size);
    assert_int_equal(store_file_open(rig->store, store_live(rig->store), ino, &file), 0);
    assert_int_equal(store_write(file, at, bytes, size, 0, &end), 0);
    store_file_close(file);
    free(bytes);
}

static void fill(struct rig *rig)
{
    struct view *live = store_live(rig->store);
    struct store_attr attr;
    const ino_no dir = make(rig, INO_ROOT, "dir", S_IFDIR | 0755);
    const ino_no table = make(rig, dir, "table.tsv", S_IFREG | 0640);
    append(rig, table, 0, 20000);
    append(rig, make(rig, dir, "sparse", S_IFREG | 0644), 100000, 10);
    assert_int_equal(store_symlink(rig->store, live, INO_ROOT, name_of("link"), "dir/table.tsv",
                                   (struct store_who){.uid = 7, .gid = 8}, &attr),
                     0);
    assert_int_equal(store_setxattr(rig->store, live, table, "user.a", "value", 5, 0), 0);
    assert_int_equal(store_snapshot_create(rig->store, name_of("as it was")), 0);
    assert_int_equal(store_link(rig->store, live, table, INO_ROOT, name_of("odd\n\"name\""), &attr), 0);
}

static int setup(void **state)
{
    static struct rig rig;
    memset(&rig, 0, sizeof rig);
    rig.mem = mem_device_create(1);
    diag_init_silent(&rig.diag);
    const struct store_mkfs_options mkfs = {
        .dev = mem_device_io(rig.mem), .diag = &rig.diag, .dir = DIR, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(&rig);
    fill(&rig);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    if (rig->store != NULL) {
        store_abandon(rig->store);
    }
    mem_device_destroy(rig->mem);
    free(rig->text);
    return 0;
}

static void close_store(struct rig *rig)
{
    assert_int_equal(store_close(rig->store), 0);
    rig->store = NULL;
}

/* ---- dumps ---- */

/* Replaces what stands behind `mark`, up to the next blank or slash, by a star. */
static void mask(char *line, const char *mark)
{
    for (char *at = strstr(line, mark); at != NULL; at = strstr(at, mark)) {
        at += strlen(mark);
        const size_t size = strcspn(at, " /");
        if (size > 0) {
            *at = '*';
            memmove(at + 1, at + size, strlen(at + size) + 1);
        }
    }
}

static void take_line(void *arg, const char *line)
{
    static const char *const marks[] = {
        "checksum=", "alloc=", "alloc:", "_ns=", "time=", "store_id=", "name_seed=", "sub:", "cookie=", "cookie2="};
    struct rig *rig = arg;
    char copy[8192];
    (void)snprintf(copy, sizeof copy, "%s", line);
    for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
        mask(copy, marks[i]);
    }
    rig->damage_lines += line[0] == '!';
    fprintf(rig->out, "%s\n", copy);
}

static void dump_start(struct rig *rig)
{
    free(rig->text);
    rig->text = NULL;
    rig->damage_lines = 0;
    rig->options = (struct dump_options){.dev = mem_device_io(rig->mem), .dir = DIR, .line = take_line, .arg = rig};
    rig->out = open_memstream(&rig->text, &rig->text_size);
    assert_non_null(rig->out);
}

static void dump_stop(struct rig *rig)
{
    assert_int_equal(fclose(rig->out), 0);
}

static int dump_all(struct rig *rig)
{
    const struct dump_options *options = &rig->options;
    int rc = 0;
    dump_start(rig);
    for (unsigned i = 0; i < 8; i++) {
        const int one = i == 0   ? dump_control(options)
                        : i == 1 ? dump_log(options)
                        : i == 2 ? dump_catalog(options)
                        : i == 3 ? dump_table(options, "dir/table.tsv")
                        : i == 4 ? dump_table(options, "/dir//sparse")
                        : i == 5 ? dump_table(options, "")
                                 : dump_page(options, REL_CATALOG, i - 6);
        rc = rc == 0 ? one : rc;
    }
    dump_stop(rig);
    return rc;
}

static bool says(const struct rig *rig, const char *what)
{
    return strstr(rig->text, what) != NULL;
}

static char *read_golden(void)
{
    FILE *file = fopen(GOLDEN, "r");
    if (file == NULL) {
        fail_msg("cannot open %s (run from the repository's root; GOLDEN_WRITE=1 makes it)", GOLDEN);
    }
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    return text;
}

static void write_golden(const char *text)
{
    FILE *file = fopen(GOLDEN, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Fails at the first line that differs. */
static void compare_lines(const char *got, const char *want)
{
    for (unsigned number = 1; *got != '\0' || *want != '\0'; number++) {
        const size_t got_size = strcspn(got, "\n"), want_size = strcspn(want, "\n");
        if (got_size != want_size || memcmp(got, want, got_size) != 0) {
            fail_msg("%s:%u:\n got  %.*s\n want %.*s", GOLDEN, number, (int)got_size, got, (int)want_size, want);
        }
        got += got_size + (got[got_size] != '\0');
        want += want_size + (want[want_size] != '\0');
    }
}

static void dump_of_a_small_store_is_the_golden_one(void **state)
{
    struct rig *rig = *state;
    close_store(rig);
    assert_int_equal(dump_all(rig), 0);
    assert_int_equal(rig->damage_lines, 0);
    if (getenv("GOLDEN_WRITE") != NULL) {
        write_golden(rig->text);
    }
    char *golden = read_golden();
    compare_lines(rig->text, golden);
    free(golden);
}

static void dump_of_a_store_in_use_shows_the_checkpoint_and_the_log(void **state)
{
    struct rig *rig = *state;
    dump_start(rig);
    assert_int_equal(dump_table(&rig->options, "dir"), -ENOENT); /* no checkpoint has it */
    dump_stop(rig);
    assert_true(says(rig, "! dir: there is no such path"));
    assert_true(says(rig, "# not closed cleanly"));
    dump_start(rig);
    assert_int_equal(dump_log(&rig->options), 0);
    dump_stop(rig);
    assert_true(says(rig, "CREATE") && says(rig, "name=\"table.tsv\"") && says(rig, "# replay starts here"));
    assert_int_equal(store_checkpoint(rig->store), 0);
    dump_start(rig);
    assert_int_equal(dump_table(&rig->options, "dir/table.tsv"), 0);
    dump_stop(rig);
    assert_true(says(rig, "content_bytes=20000"));
}

static void dump_of_what_is_not_there_says_so(void **state)
{
    struct rig *rig = *state;
    close_store(rig);
    dump_start(rig);
    assert_int_equal(dump_page(&rig->options, 99, 0), -ENODATA);
    assert_int_equal(dump_page(&rig->options, REL_CATALOG, 999), -ENODATA);
    assert_int_equal(dump_table(&rig->options, "dir/none"), -ENOENT);
    assert_int_equal(dump_table(&rig->options, "link/none"), -ENOENT);
    rig->options.dir = "/nowhere";
    assert_int_equal(dump_control(&rig->options), -ENODATA);
    assert_int_equal(dump_log(&rig->options), -ENODATA);
    assert_int_equal(dump_catalog(&rig->options), -ENODATA);
    dump_stop(rig);
    assert_true(rig->damage_lines >= 7);
}

/* ---- damage ---- */

static void flip(struct rig *rig, const char *path, uint64_t offset)
{
    size_t run = 0;
    uint8_t *byte = mem_device_file_bytes(rig->mem, path, offset, &run);
    assert_non_null(byte);
    *byte ^= 0x10;
}

static void dump_of_a_damaged_catalog_page_goes_on(void **state)
{
    struct rig *rig = *state;
    for (unsigned i = 0; i < 200; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "file-%u", i);
        (void)make(rig, INO_ROOT, name, S_IFREG | 0644);
    }
    close_store(rig);
    dump_start(rig);
    assert_int_equal(dump_catalog(&rig->options), 0);
    dump_stop(rig);
    const size_t whole = rig->text_size;
    unsigned damaged = 0;
    for (block_no block = 0; block < 4; block++) {
        flip(rig, CATALOG, (uint64_t)block * BLOCK_SIZE + 5000);
        dump_start(rig);
        const int rc = dump_catalog(&rig->options);
        dump_stop(rig);
        if (rc != 0) {
            assert_int_equal(rc, -EIO);
            assert_true(says(rig, "checksum") && rig->text_size > 0 && rig->text_size < whole);
            damaged++;
        }
        flip(rig, CATALOG, (uint64_t)block * BLOCK_SIZE + 5000);
    }
    assert_true(damaged >= 2);
}

static void dump_of_damaged_control_slots_says_which(void **state)
{
    struct rig *rig = *state;
    close_store(rig);
    flip(rig, DIR "/control", 100);
    dump_start(rig);
    assert_int_equal(dump_control(&rig->options), 0); /* one copy of a slot: what a power cut leaves */
    dump_stop(rig);
    assert_true(says(rig, "slot 0 copy 0 at 0: checksum is wrong"));
    flip(rig, DIR "/control", 65536 + 100);
    dump_start(rig);
    assert_int_equal(dump_control(&rig->options), -EIO);
    dump_stop(rig);
    assert_true(says(rig, "slot 0: neither copy is good"));
}

static void dump_of_a_hole_in_the_log_is_damage(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(store_sync(rig->store), 0);
    store_step(rig->store); /* vouches */
    dump_start(rig);
    assert_int_equal(dump_log(&rig->options), 0);
    dump_stop(rig);
    const char *batch = strstr(rig->text, "batch at ");
    assert_non_null(batch);
    const uint64_t position = strtoull(batch + strlen("batch at "), NULL, 10);
    char path[64];
    (void)snprintf(path, sizeof path, DIR "/log/%016llx", (unsigned long long)(position / (1 << 16)));
    flip(rig, path, position % (1 << 16) + 50);
    dump_start(rig);
    assert_int_equal(dump_log(&rig->options), -EIO);
    dump_stop(rig);
    assert_true(says(rig, ", but there is one behind it") && says(rig, "no good batch, but it was durable up to"));
    assert_true(says(rig, "batch at ")); /* those behind it */
}

/* Any byte of any file may be anything: also behind a checksum that is right. */
static void dump_of_random_damage_never_crashes(void **state)
{
    static const char *const paths[] = {CATALOG, DIR "/rel/02/0000000000000002", DIR "/control"};
    struct rig *rig = *state;
    struct test_random random;
    close_store(rig);
    test_random_init(&random, test_seed("test_dump"));
    for (unsigned round = 0; round < 300; round++) {
        const unsigned which = (unsigned)test_random_below(&random, ARRAY_COUNT(paths));
        const uint64_t start = which == 2 ? test_random_below(&random, 4) * 65536 : 0;
        const uint64_t reach = which == 2 ? 512 : BLOCK_SIZE;
        size_t run = 0;
        uint8_t *bytes = mem_device_file_bytes(rig->mem, paths[which], start, &run);
        assert_non_null(bytes);
        bytes[test_random_below(&random, test_random_chance(&random, 50) ? 128 : reach)] =
            (uint8_t)test_random_u64(&random);
        const uint64_t checksum = which == 2 ? checksum_64(bytes, 504, 0) : checksum_64(bytes + 8, BLOCK_SIZE - 8, 0);
        const le64 raw = le64_of(checksum);
        memcpy(bytes + (which == 2 ? 504 : 0), &raw, sizeof raw);
        const int rc = dump_all(rig);
        (void)rc; /* whatever it says */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(dump_of_a_small_store_is_the_golden_one, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_of_a_store_in_use_shows_the_checkpoint_and_the_log, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_of_what_is_not_there_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_of_a_damaged_catalog_page_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_of_damaged_control_slots_says_which, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_of_a_hole_in_the_log_is_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_of_random_damage_never_crashes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
