/*
 * tests/model/test_bitflip.c - a damaged data directory never crashes, never lies, and says what is wrong.
 *
 * A small data directory with every kind of page is made once. Then, thousands of times, 1 to 8 bytes or bits of one of
 * its files are changed, and everything is opened, walked and read: whatever is delivered must be what was written, all
 * else must be -EIO, or the mount refused with a message; damage in one table's file leaves all others readable. (The
 * one large table, when the damage is elsewhere, is read in full in one round of 16, else at both ends.) One round in
 * 16 opens for writing on a clone and changes things, which must not crash either. The directed cases name what the
 * message has to name.
 */
#include "base/checksum.h"
#include "tests/model/rig.h"
#include "txn/control_format.h"
#include "txn/log_format.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME      "test_bitflip"
#define ROUNDS         10000u
#define WRITABLE_EVERY 16u
#define LOG_ROUNDS     200u
#define LOG_SEGMENT    (32u << 10)
#define FULL_EVERY     16u
#define SAMPLE_ABOVE   (1u << 20)
#define FLIPS_MAX      8u
#define FILES_MAX      400u
#define PATH_BYTES     96u
#define TEXT_BYTES     8192u
#define DEEP_PIECES    175u
#define DEEP_STRIDE    8300u
#define WIDE_BYTES     40000u

/* Keeps what was said. */
struct diag_text {
    struct diag diag;
    size_t size;
    char text[TEXT_BYTES];
};

struct data_file {
    char path[PATH_BYTES];
    uint64_t size_bytes;
    ino_no ino; /* whose content it is; INO_NONE: nobody's */
    bool is_table;
};

struct flip_test {
    struct rig rig;            /* closed: rig.mem and rig.model are what counts */
    struct mem_device *killed; /* the same as a kill would have left it, with a log to replay */
    struct data_file files[FILES_MAX];
    unsigned file_count;
    ino_no deep, wide; /* tables of height 3 and 2 */
    struct diag_text said;
};

static void keep_text(struct diag *diag, enum diag_level level, const char *line)
{
    struct diag_text *said = (struct diag_text *)diag;
    (void)level;
    const size_t left = sizeof said->text - said->size;
    const int used = snprintf(said->text + said->size, left, "%s\n", line);
    said->size += (size_t)used < left ? (size_t)used : left - 1;
}

static void forget_text(struct diag_text *said)
{
    said->diag.emit = keep_text;
    said->diag.max_level = DIAG_WARNING;
    atomic_store(&said->diag.damage_count, 0);
    said->size = 0;
    said->text[0] = '\0';
}

/* ---- the data directory ---- */

static struct store_file *make_table(struct rig *rig, const char *text, ino_no *out_ino)
{
    struct store_attr attr;
    struct store_file *file;
    const struct store_name name = {text, strlen(text)};
    const struct store_who who = {7, 8};
    struct view *live = store_live(rig->store);
    rig_must(rig, store_create(rig->store, live, INO_ROOT, name, S_IFREG | 0640, 0, who, &attr), "create");
    rig_must(rig, model_create(rig->model, INO_ROOT, name, S_IFREG | 0640, 0, who, NULL, attr.ino), "model_create");
    rig_must(rig, store_file_open(rig->store, live, attr.ino, &file), "open");
    *out_ino = attr.ino;
    return file;
}

static void write_both(struct rig *rig, struct store_file *file, ino_no ino, uint64_t offset, size_t size)
{
    uint64_t end;
    const uint8_t *bytes = rig->data + offset % (RIG_DATA_BYTES / 2);
    rig_must(rig, store_write(file, offset, bytes, size, 0, &end), "write");
    rig_must(rig, model_write(rig->model, model_find(rig->model, ino), offset, bytes, size, 0, &end), "model_write");
}

static void learn_touched(struct rig *rig)
{
    for (unsigned i = 0; i < rig->model->touched_count; i++) {
        struct store_attr attr;
        struct model_inode *inode = rig->model->touched[i];
        rig_must(rig, store_getattr(rig->store, store_live(rig->store), inode->ino, &attr), "getattr");
        model_learn_time(inode, &attr);
    }
    model_begin(rig->model);
}

/* Many small pieces with holes between need more entries than two inner levels hold. */
static void make_deep_and_wide(struct flip_test *test)
{
    struct rig *rig = &test->rig;
    model_begin(rig->model);
    struct store_file *file = make_table(rig, "deep", &test->deep);
    for (unsigned i = 0; i < DEEP_PIECES; i++) {
        write_both(rig, file, test->deep, (uint64_t)i * DEEP_STRIDE, 1 + i % 40);
    }
    store_file_close(file);
    learn_touched(rig);
    file = make_table(rig, "wide", &test->wide);
    write_both(rig, file, test->wide, 0, WIDE_BYTES);
    store_file_close(file);
    learn_touched(rig);
}

static void expect_all_kinds(struct flip_test *test)
{
    struct rig *rig = &test->rig;
    struct view *live = store_live(rig->store);
    struct inode inode;
    assert_true(live->root.height >= 2);
    rwlock_lock_shared(&live->catalog_lock);
    rig_must(rig, inode_get(live, test->deep, &inode), "inode_get");
    assert_int_equal(inode.content_height, 3);
    rig_must(rig, inode_get(live, test->wide, &inode), "inode_get");
    assert_int_equal(inode.content_height, 2);
    rwlock_unlock_shared(&live->catalog_lock);
}

static void relation_path(char *path, rel_no rel)
{
    snprintf(path, PATH_BYTES, RIG_DIR "/rel/%02x/%016" PRIx64, (unsigned)(rel & 0xff), rel);
}

static struct data_file *file_of_path(struct flip_test *test, const char *path)
{
    for (unsigned i = 0; i < test->file_count; i++) {
        if (strcmp(test->files[i].path, path) == 0) {
            return &test->files[i];
        }
    }
    return NULL;
}

static struct data_file *file_of_ino(struct flip_test *test, ino_no ino)
{
    for (unsigned i = 0; i < test->file_count; i++) {
        if (test->files[i].ino == ino) {
            return &test->files[i];
        }
    }
    fail_msg("inode %" PRIu64 " has no file", ino);
    return NULL;
}

struct lister {
    struct flip_test *test;
    char dir[PATH_BYTES];
};

static int list_file(void *arg, const char *name, enum io_file_kind kind)
{
    struct lister *lister = arg;
    struct flip_test *test = lister->test;
    struct io_stat stat;
    if (kind == IO_KIND_DIRECTORY) {
        return 0;
    }
    assert_true(test->file_count < FILES_MAX);
    struct data_file *file = &test->files[test->file_count++];
    assert_true(snprintf(file->path, PATH_BYTES, "%.40s/%.40s", lister->dir, name) < (int)PATH_BYTES);
    assert_int_equal(io_stat(test->rig.dev, file->path, &stat), 0);
    file->size_bytes = stat.size_bytes;
    return 0;
}

static void list_files(struct flip_test *test)
{
    struct lister lister = {.test = test, .dir = RIG_DIR};
    assert_int_equal(io_list_dir(test->rig.dev, lister.dir, list_file, &lister), 0);
    snprintf(lister.dir, PATH_BYTES, RIG_DIR "/log");
    assert_int_equal(io_list_dir(test->rig.dev, lister.dir, list_file, &lister), 0);
    for (unsigned i = 0; i < 256; i++) {
        snprintf(lister.dir, PATH_BYTES, RIG_DIR "/rel/%02x", i);
        assert_int_equal(io_list_dir(test->rig.dev, lister.dir, list_file, &lister), 0);
    }
}

static int note_owner(struct flip_test *test, const struct inode *inode)
{
    char path[PATH_BYTES];
    if (inode->rel == REL_NONE) {
        return 0;
    }
    relation_path(path, inode->rel);
    struct data_file *file = file_of_path(test, path);
    if (file != NULL) {
        file->is_table = true;
        file->ino = inode->ino;
    }
    return file != NULL ? 0 : -ENOENT;
}

static void open_as(struct flip_test *test, struct mem_device *mem, bool read_only, int expected)
{
    const struct store_options options = {
        .dev = mem_device_io(mem),
        .diag = &test->said.diag,
        .dir = RIG_DIR,
        .cache_size_bytes = 1, /* as small as may be */
        .log_segment_size = LOG_SEGMENT,
        .read_only = read_only,
    };
    const int result = store_open(&options, &test->rig.store, NULL);
    if (result != expected) {
        fail_msg("store_open answers %d, not %d: %s", result, expected, test->said.text);
    }
}

static void note_owners(struct flip_test *test)
{
    struct rig *rig = &test->rig;
    struct view *live = store_live(rig->store);
    rwlock_lock_shared(&live->catalog_lock);
    for (size_t i = 0; i < rig->model->count; i++) {
        struct inode inode;
        rig_must(rig, inode_get(live, rig->model->all[i]->ino, &inode), "inode_get");
        rig_must(rig, note_owner(test, &inode), "file of a relation");
    }
    rwlock_unlock_shared(&live->catalog_lock);
}

static int make_data_directory(void **state)
{
    const struct rig_config config = {
        .test_name = TEST_NAME,
        .seed = test_seed(TEST_NAME),
        .cache_size_bytes = 1,
        .log_segment_size = LOG_SEGMENT,
        .max_file_bytes = 30000,
        .max_total_bytes = 200000,
        .max_inodes = 60,
        .name_hash_bits = 47,
    };
    struct flip_test *test = calloc(1, sizeof *test);
    assert_non_null(test);
    rig_init(&test->rig, &config);
    for (unsigned i = 0; i < 6000 || test->rig.model->count < 50; i++) {
        rig_operate(&test->rig);
        if (i % 500 == 0) {
            rig_checkpoint(&test->rig);
        }
    }
    rig_close_handles(&test->rig);
    model_begin(test->rig.model);
    make_deep_and_wide(test);
    expect_all_kinds(test);
    assert_int_equal(store_sync(test->rig.store), 0);
    store_step(test->rig.store); /* an idle log vouches for its last batch */
    test->killed = mem_device_clone(test->rig.mem);
    assert_int_equal(store_close(test->rig.store), 0);
    list_files(test);
    forget_text(&test->said);
    open_as(test, test->rig.mem, true, 0);
    note_owners(test);
    store_abandon(test->rig.store);
    *state = test;
    return 0;
}

static int free_data_directory(void **state)
{
    struct flip_test *test = *state;
    if (test == NULL) {
        return 0; /* it could not be made */
    }
    model_free(test->rig.model);
    mem_device_destroy(test->rig.mem);
    mem_device_destroy(test->killed);
    free(test->rig.data);
    free(test);
    return 0;
}

/* ---- random damage ---- */

struct flip {
    uint8_t *byte;
    uint8_t was;
};

static uint64_t below(struct flip_test *test, uint64_t limit)
{
    return test_random_below(&test->rig.random, limit);
}

static unsigned damage(struct flip_test *test, struct mem_device *mem, const struct data_file *file,
                       struct flip flips[FLIPS_MAX])
{
    const unsigned count = 1 + (unsigned)below(test, FLIPS_MAX);
    const uint64_t block = below(test, file->size_bytes);
    for (unsigned i = 0; i < count; i++) {
        size_t run = 0;
        uint64_t offset = below(test, file->size_bytes);
        if (below(test, 2) == 0) { /* near each other, and often in a header */
            offset = block / BLOCK_SIZE * BLOCK_SIZE + below(test, 64);
            offset = offset < file->size_bytes ? offset : block;
        }
        flips[i].byte = mem_device_file_bytes(mem, file->path, offset, &run);
        assert_non_null(flips[i].byte);
        flips[i].was = *flips[i].byte;
        *flips[i].byte ^= below(test, 2) == 0 ? (uint8_t)(1u << below(test, 8)) : (uint8_t)(1 + below(test, 255));
    }
    return count;
}

static void repair(const struct flip *flips, unsigned count)
{
    while (count-- > 0) {
        *flips[count].byte = flips[count].was;
    }
}

static void compare_damaged(struct flip_test *test, ino_no eio_only)
{
    struct compare compare = {
        .store = test->rig.store,
        .view = store_live(test->rig.store),
        .model = test->rig.model,
        .tolerate_eio = true,
        .eio_only = eio_only,
        .sample_bytes = test->rig.step % FULL_EVERY == 0 ? 0 : SAMPLE_ABOVE,
        .never_sample = eio_only,
    };
    if (!compare_tree(&compare)) {
        rig_fail(&test->rig, "%s\n%s", compare.why, test->said.text);
    }
    if (compare.eio_count > 0 && test->said.size == 0) {
        rig_fail(&test->rig, "-EIO without a message");
    }
}

/* Whatever it answers: it must not crash, and -EIO comes with a message. */
static void change_damaged(struct flip_test *test)
{
    struct rig *rig = &test->rig;
    struct view *live = store_live(rig->store);
    for (unsigned i = 0; i < 8; i++) {
        const struct model_inode *inode = rig->model->all[below(test, rig->model->count)];
        struct store_file *file;
        struct store_attr attr;
        uint64_t end;
        char text[32];
        snprintf(text, sizeof text, "new_%u", i);
        (void)!store_create(rig->store, live, INO_ROOT, (struct store_name){text, strlen(text)}, S_IFREG | 0600, 0,
                            (struct store_who){0, 0}, &attr);
        if (store_file_open(rig->store, live, inode->ino, &file) == 0) {
            (void)!store_write(file, below(test, 20000), rig->data, 1 + below(test, 20000), 0, &end);
            store_file_close(file);
        }
        if (inode->entry_count > 0) {
            const struct model_entry *entry = &inode->entries[below(test, inode->entry_count)];
            (void)!store_unlink(rig->store, live, inode->ino, (struct store_name){entry->name, entry->name_size});
        }
        store_step(rig->store);
    }
    (void)!store_check(rig->store);
}

static bool open_damaged(struct flip_test *test, struct mem_device *mem, const struct data_file *file, bool read_only)
{
    const struct store_options options = {
        .dev = mem_device_io(mem),
        .diag = &test->said.diag,
        .dir = RIG_DIR,
        .cache_size_bytes = 1,
        .log_segment_size = LOG_SEGMENT,
        .read_only = read_only,
    };
    const int result = store_open(&options, &test->rig.store, NULL);
    if (result == 0) {
        return true;
    }
    if ((result != -EIO && result != -ENODATA && result != -EPROTO) || test->said.size == 0) {
        rig_fail(&test->rig, "store_open answers %d, said \"%s\"", result, test->said.text);
    }
    if (file->is_table) {
        rig_fail(&test->rig, "damage in a table's file refuses the mount: %s", test->said.text);
    }
    return false;
}

static void one_round(struct flip_test *test, bool writable)
{
    struct flip flips[FLIPS_MAX];
    const struct data_file *file;
    do {
        file = &test->files[below(test, test->file_count)];
    } while (file->size_bytes == 0);
    struct mem_device *mem = writable ? mem_device_clone(test->rig.mem) : test->rig.mem;
    rig_note(&test->rig, "damage %s", file->path);
    forget_text(&test->said);
    const unsigned count = damage(test, mem, file, flips);
    if (open_damaged(test, mem, file, !writable)) {
        compare_damaged(test, file->is_table ? file->ino : INO_NONE);
        if (writable) {
            change_damaged(test);
            (void)!store_close(test->rig.store);
        } else {
            store_abandon(test->rig.store);
        }
    }
    if (writable) {
        mem_device_destroy(mem);
    } else if (strcmp(file->path, RIG_DIR "/lock") != 0) { /* which every start writes anew */
        repair(flips, count);
    }
}

static void random_damage_is_refused_or_harmless(void **state)
{
    struct flip_test *test = *state;
    const unsigned rounds = test_is_long() ? 20 * ROUNDS : ROUNDS;
    for (unsigned i = 0; i < rounds; i++) {
        test->rig.step++;
        one_round(test, i % WRITABLE_EVERY == 0);
    }
    forget_text(&test->said);
    open_as(test, test->rig.mem, true, 0);
    compare_damaged(test, INO_ROOT);
    assert_int_equal(test->said.size, 0);
    store_abandon(test->rig.store);
}

/* ---- damage in the log ---- */

struct log_pick {
    struct flip_test *test;
    struct data_file file;
    unsigned seen;
};

/* Each file with the same chance. */
static int pick_log_file(void *arg, const char *name, enum io_file_kind kind)
{
    struct log_pick *pick = arg;
    (void)kind;
    if (below(pick->test, ++pick->seen) == 0) {
        snprintf(pick->file.path, PATH_BYTES, RIG_DIR "/log/%.40s", name);
    }
    return 0;
}

static void damage_sector(struct flip_test *test, struct mem_device *mem, const struct data_file *file)
{
    size_t run = 0;
    const uint64_t sector = below(test, file->size_bytes / LOG_ALIGN) * LOG_ALIGN;
    uint8_t *bytes = mem_device_file_bytes(mem, file->path, sector, &run);
    assert_true(bytes != NULL && run >= LOG_ALIGN);
    for (uint64_t i = 0; i <= below(test, FLIPS_MAX); i++) {
        bytes[below(test, i % 2 == 0 ? 64 : LOG_ALIGN)] ^= (uint8_t)(1 + below(test, 255));
    }
}

/* Everything in the log was vouched for: with one bad sector it is replayed whole, or the mount is refused. (Two could
 * be the last record and what vouches for it: then nobody can tell.) */
static void damaged_log_is_refused_or_replayed_whole(void **state)
{
    struct flip_test *test = *state;
    unsigned refused = 0;
    for (unsigned i = 0; i < LOG_ROUNDS; i++) {
        struct log_pick pick = {.test = test};
        struct io_stat stat;
        struct mem_device *mem = mem_device_clone(test->killed);
        forget_text(&test->said);
        assert_int_equal(io_list_dir(mem_device_io(mem), RIG_DIR "/log", pick_log_file, &pick), 0);
        assert_int_equal(io_stat(mem_device_io(mem), pick.file.path, &stat), 0);
        pick.file.size_bytes = stat.size_bytes;
        if (i > 0) { /* once undamaged */
            damage_sector(test, mem, &pick.file);
        }
        if (open_damaged(test, mem, &pick.file, false)) {
            compare_damaged(test, INO_ROOT);
            store_abandon(test->rig.store);
        } else {
            refused++;
        }
        assert_true(i > 0 || refused == 0);
        mem_device_destroy(mem);
    }
    assert_true(refused > 0);
}

/* ---- directed damage ---- */

/* A clone to damage; the rig's model tells what it holds. */
static struct mem_device *begin_directed(struct flip_test *test)
{
    forget_text(&test->said);
    return mem_device_clone(test->rig.mem);
}

static void expect_said(struct flip_test *test, const char *what)
{
    if (strstr(test->said.text, what) == NULL) {
        fail_msg("no \"%s\" in: %s", what, test->said.text);
    }
}

static void expect_refused(struct flip_test *test, struct mem_device *mem, int expected, const char *says)
{
    open_as(test, mem, true, expected);
    expect_said(test, says);
    forget_text(&test->said);
    open_as(test, mem, false, expected);
    expect_said(test, says);
    mem_device_destroy(mem);
}

/* Everything but that one table is readable, and its damage is named. */
static void expect_only_table_damaged(struct flip_test *test, struct mem_device *mem, const struct data_file *file,
                                      const char *says)
{
    struct store_file *open_file;
    uint8_t byte;
    size_t got;
    open_as(test, mem, true, 0);
    compare_damaged(test, file->ino);
    int result = store_file_open(test->rig.store, store_live(test->rig.store), file->ino, &open_file);
    if (result == 0) {
        const struct model_inode *inode = model_find(test->rig.model, file->ino);
        for (uint64_t at = 0; result == 0 && at < inode->size; at++) {
            result = store_read(open_file, at, &byte, 1, &got);
        }
        store_file_close(open_file);
    }
    assert_int_equal(result, -EIO);
    expect_said(test, file->path);
    expect_said(test, says);
    store_abandon(test->rig.store);
    mem_device_destroy(mem);
}

static struct control_slot *slot_copy(struct mem_device *mem, unsigned slot, unsigned copy)
{
    size_t run;
    uint8_t *bytes = mem_device_file_bytes(mem, RIG_DIR "/control", CONTROL_COPY_OFFSET(slot, copy), &run);
    assert_non_null(bytes);
    return (struct control_slot *)(void *)bytes;
}

static void sign_slot(struct control_slot *slot)
{
    slot->checksum = le64_of(checksum_64(slot, offsetof(struct control_slot, checksum), 0));
}

static void control_with_a_good_copy_of_each_slot_opens(void **state)
{
    struct flip_test *test = *state;
    for (unsigned mask = 0; mask < 16; mask++) {
        struct mem_device *mem = begin_directed(test);
        for (unsigned i = 0; i < 4; i++) {
            if (mask & (1u << i)) {
                slot_copy(mem, i / 2, i % 2)->name_seed.bytes[3] ^= 0x40;
            }
        }
        if ((mask & 3) == 3 || (mask & 12) == 12) {
            expect_refused(test, mem, -EIO, RIG_DIR "/control");
            continue;
        }
        open_as(test, mem, true, 0);
        compare_damaged(test, INO_ROOT);
        store_abandon(test->rig.store);
        mem_device_destroy(mem);
    }
}

/* A crash while the older slot is replaced leaves a torn copy 0, or a new copy 0 beside an old copy 1. */
static void control_slot_half_written_is_not_damage(void **state)
{
    struct flip_test *test = *state;
    for (unsigned torn_bytes = 0; torn_bytes <= sizeof(struct control_slot); torn_bytes += 64) {
        struct mem_device *mem = begin_directed(test);
        const bool newer_is_1 = le64_get(slot_copy(mem, 1, 0)->number) > le64_get(slot_copy(mem, 0, 0)->number);
        struct control_slot next = *slot_copy(mem, newer_is_1, 0);
        next.number = le64_of(le64_get(next.number) + 1);
        sign_slot(&next);
        memcpy(slot_copy(mem, !newer_is_1, 0), &next, torn_bytes);
        open_as(test, mem, true, 0);
        compare_damaged(test, INO_ROOT);
        store_abandon(test->rig.store);
        mem_device_destroy(mem);
    }
}

static void version_from_the_future_is_refused(void **state)
{
    struct flip_test *test = *state;
    struct mem_device *mem = begin_directed(test);
    for (unsigned i = 0; i < 4; i++) {
        struct control_slot *slot = slot_copy(mem, i / 2, i % 2);
        slot->version = le32_of(CONTROL_FORMAT_VERSION + 1);
        sign_slot(slot);
    }
    expect_refused(test, mem, -EPROTO, "newer version");
}

static void foreign_block_size_is_refused(void **state)
{
    struct flip_test *test = *state;
    struct mem_device *mem = begin_directed(test);
    for (unsigned i = 0; i < 4; i++) {
        struct control_slot *slot = slot_copy(mem, i / 2, i % 2);
        slot->block_size = le32_of(4096);
        sign_slot(slot);
    }
    expect_refused(test, mem, -EIO, "block_size");
}

/* What is no data directory stays as it is. */
static void expect_untouched_refusal(struct flip_test *test, struct mem_device *mem, const char *dir)
{
    struct mem_device *before = mem_device_clone(mem);
    struct store *store;
    for (unsigned read_only = 0; read_only < 2; read_only++) {
        const struct store_options options = {.dev = mem_device_io(mem),
                                              .diag = &test->said.diag,
                                              .dir = dir,
                                              .cache_size_bytes = 1,
                                              .read_only = read_only == 1};
        forget_text(&test->said);
        assert_int_equal(store_open(&options, &store, NULL), -ENODATA);
        expect_said(test, dir);
    }
    assert_true(mem_device_equal(before, mem));
    mem_device_destroy(before);
    mem_device_destroy(mem);
}

static void foreign_directory_is_refused_and_left_alone(void **state)
{
    struct flip_test *test = *state;
    struct mem_device *mem = mem_device_create(1);
    assert_int_equal(io_make_dir(mem_device_io(mem), "/other"), 0);
    mem_device_put_file(mem, "/other/control", "something else", 14);
    expect_untouched_refusal(test, mem, "/other");
    mem = mem_device_create(1);
    mem_device_put_file(mem, "/file", "no directory", 12);
    expect_untouched_refusal(test, mem, "/file");
    mem = mem_device_create(1);
    assert_int_equal(io_make_dir(mem_device_io(mem), "/empty"), 0);
    expect_untouched_refusal(test, mem, "/empty");
    mem = mem_device_create(1);
    expect_untouched_refusal(test, mem, "/missing");
}

static void missing_relation_file_damages_its_table_alone(void **state)
{
    struct flip_test *test = *state;
    struct mem_device *mem = begin_directed(test);
    const struct data_file *file = file_of_ino(test, test->wide);
    assert_int_equal(io_unlink(mem_device_io(mem), file->path), 0);
    expect_only_table_damaged(test, mem, file, "file: got none");
}

static void directory_in_place_of_a_relation_file_damages_its_table_alone(void **state)
{
    struct flip_test *test = *state;
    struct mem_device *mem = begin_directed(test);
    const struct data_file *file = file_of_ino(test, test->wide);
    assert_int_equal(io_unlink(mem_device_io(mem), file->path), 0);
    assert_int_equal(io_make_dir(mem_device_io(mem), file->path), 0);
    expect_only_table_damaged(test, mem, file, "directory");
}

static void cut_file(struct mem_device *mem, const char *path, uint64_t size_bytes)
{
    struct io_file *file;
    assert_int_equal(io_open(mem_device_io(mem), path, IO_READ_WRITE, &file), 0);
    assert_int_equal(io_truncate(file, size_bytes), 0);
    assert_int_equal(io_close(file), 0);
}

static void relation_file_cut_short_damages_its_table_alone(void **state)
{
    struct flip_test *test = *state;
    const struct data_file *file = file_of_ino(test, test->deep);
    const uint64_t sizes[] = {0, BLOCK_SIZE, 5 * BLOCK_SIZE, BLOCK_SIZE + 77, file->size_bytes / 2 + 1};
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct mem_device *mem = begin_directed(test);
        cut_file(mem, file->path, sizes[i]);
        expect_only_table_damaged(test, mem, file, "");
    }
}

static void catalog_missing_or_cut_refuses_the_mount(void **state)
{
    struct flip_test *test = *state;
    char path[PATH_BYTES];
    relation_path(path, REL_CATALOG);
    struct mem_device *mem = begin_directed(test);
    assert_int_equal(io_unlink(mem_device_io(mem), path), 0);
    expect_refused(test, mem, -EIO, path);
    mem = begin_directed(test);
    cut_file(mem, path, 0);
    expect_refused(test, mem, -EIO, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_with_a_good_copy_of_each_slot_opens),
        cmocka_unit_test(control_slot_half_written_is_not_damage),
        cmocka_unit_test(version_from_the_future_is_refused),
        cmocka_unit_test(foreign_block_size_is_refused),
        cmocka_unit_test(foreign_directory_is_refused_and_left_alone),
        cmocka_unit_test(missing_relation_file_damages_its_table_alone),
        cmocka_unit_test(directory_in_place_of_a_relation_file_damages_its_table_alone),
        cmocka_unit_test(relation_file_cut_short_damages_its_table_alone),
        cmocka_unit_test(catalog_missing_or_cut_refuses_the_mount),
        cmocka_unit_test(damaged_log_is_refused_or_replayed_whole),
        cmocka_unit_test(random_damage_is_refused_or_harmless),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, make_data_directory, free_data_directory);
}
