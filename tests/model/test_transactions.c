/*
 * tests/model/test_transactions.c - transactions, case by case: isolation, conflicts, merges, readers, what is left behind.
 */
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define DIR "/data"

struct rig {
    struct mem_device *mem;
    struct io_device *dev;
    struct diag diag;
    struct store *store;
};

static void open_store(struct rig *rig)
{
    const struct store_options options = {
        .dev = rig->dev, .diag = &rig->diag, .dir = DIR, .bulk_min_bytes = 8 * BLOCK_SIZE};
    assert_int_equal(store_open(&options, &rig->store, NULL), 0);
}

static int setup(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->mem = mem_device_create(1);
    rig->dev = mem_device_io(rig->mem);
    diag_init_stderr(&rig->diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {.dev = rig->dev, .diag = &rig->diag, .dir = DIR, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    open_store(rig);
    *state = rig;
    return 0;
}

static void check(struct rig *rig)
{
    assert_int_equal(store_check(rig->store), 0);
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    check(rig);
    assert_int_equal(store_close(rig->store), 0);
    mem_device_destroy(rig->mem);
    free(rig);
    return 0;
}

/* Comes back after a kill, and after a clean end, to what `live` shows. */
static void kill_and_reopen(struct rig *rig)
{
    store_abandon(rig->store);
    open_store(rig);
    check(rig);
}

/* ---- small shell ---- */

static struct store_name name_of(const char *text)
{
    return (struct store_name){.bytes = text, .size = strlen(text)};
}

/* The directory of a path, and its last name. */
static ino_no dir_of(struct rig *rig, struct view *view, const char *path, const char **out_name)
{
    ino_no dir = INO_ROOT;
    const char *slash;
    while ((slash = strchr(path, '/')) != NULL) {
        struct store_attr attr;
        const struct store_name name = {.bytes = path, .size = (size_t)(slash - path)};
        assert_int_equal(store_lookup(rig->store, view, dir, name, &attr), 0);
        dir = attr.ino;
        path = slash + 1;
    }
    *out_name = path;
    return dir;
}

static int look(struct rig *rig, struct view *view, const char *path, struct store_attr *out_attr)
{
    const char *name = NULL;
    const ino_no dir = dir_of(rig, view, path, &name);
    return store_lookup(rig->store, view, dir, name_of(name), out_attr);
}

static int make(struct rig *rig, struct view *view, const char *path, uint32_t mode)
{
    const char *name = NULL;
    struct store_attr attr;
    const ino_no dir = dir_of(rig, view, path, &name);
    return store_create(rig->store, view, dir, name_of(name), mode, 0, (struct store_who){0}, &attr);
}

static int make_dir(struct rig *rig, struct view *view, const char *path)
{
    return make(rig, view, path, S_IFDIR | 0755);
}

static struct store_file *open_path(struct rig *rig, struct view *view, const char *path)
{
    struct store_attr attr;
    struct store_file *file = NULL;
    assert_int_equal(look(rig, view, path, &attr), 0);
    assert_int_equal(store_file_open(rig->store, view, attr.ino, &file), 0);
    return file;
}

static int append(struct rig *rig, struct view *view, const char *path, const char *text)
{
    struct store_attr attr;
    uint64_t end = 0;
    if (look(rig, view, path, &attr) != 0) {
        assert_int_equal(make(rig, view, path, S_IFREG | 0644), 0);
    }
    struct store_file *file = open_path(rig, view, path);
    const int rc = store_write(file, 0, text, strlen(text), STORE_WRITE_APPEND, &end);
    store_file_close(file);
    return rc;
}

static int truncate_to(struct rig *rig, struct view *view, const char *path, uint64_t size)
{
    struct store_attr attr;
    struct store_attr out;
    assert_int_equal(look(rig, view, path, &attr), 0);
    attr.size_bytes = size;
    return store_setattr(rig->store, view, attr.ino, STORE_SET_SIZE, &attr, &out);
}

static int rewrite(struct rig *rig, struct view *view, const char *path, const char *text)
{
    const int rc = truncate_to(rig, view, path, 0);
    return rc != 0 ? rc : append(rig, view, path, text);
}

static int change_mode(struct rig *rig, struct view *view, const char *path, uint32_t mode)
{
    struct store_attr attr;
    struct store_attr out;
    assert_int_equal(look(rig, view, path, &attr), 0);
    attr.mode = mode;
    return store_setattr(rig->store, view, attr.ino, STORE_SET_MODE, &attr, &out);
}

static int remove_path(struct rig *rig, struct view *view, const char *path)
{
    const char *name = NULL;
    const ino_no dir = dir_of(rig, view, path, &name);
    return store_unlink(rig->store, view, dir, name_of(name));
}

static int remove_dir(struct rig *rig, struct view *view, const char *path)
{
    const char *name = NULL;
    const ino_no dir = dir_of(rig, view, path, &name);
    return store_rmdir(rig->store, view, dir, name_of(name));
}

static int move(struct rig *rig, struct view *view, const char *from, const char *to)
{
    const char *from_name = NULL;
    const char *to_name = NULL;
    const ino_no from_dir = dir_of(rig, view, from, &from_name);
    const ino_no to_dir = dir_of(rig, view, to, &to_name);
    return store_rename(rig->store, view, from_dir, name_of(from_name), to_dir, name_of(to_name), 0);
}

static int link_path(struct rig *rig, struct view *view, const char *from, const char *to)
{
    struct store_attr attr;
    const char *to_name = NULL;
    assert_int_equal(look(rig, view, from, &attr), 0);
    const ino_no to_dir = dir_of(rig, view, to, &to_name);
    return store_link(rig->store, view, attr.ino, to_dir, name_of(to_name), &attr);
}

static void expect_file(struct store_file *file, const char *want)
{
    char got[65536];
    size_t size = 0;
    assert_int_equal(store_read(file, 0, got, sizeof got - 1, &size), 0);
    got[size] = '\0';
    assert_string_equal(got, want);
}

/* want NULL: there is no such name. */
static void expect(struct rig *rig, struct view *view, const char *path, const char *want)
{
    struct store_attr attr;
    if (want == NULL) {
        assert_int_equal(look(rig, view, path, &attr), -ENOENT);
        return;
    }
    struct store_file *file = open_path(rig, view, path);
    expect_file(file, want);
    store_file_close(file);
}

static struct store_txn *begin(struct rig *rig)
{
    struct store_txn *txn = NULL;
    const struct store_txn_options options = {.name = name_of("x")};
    assert_int_equal(store_txn_begin(rig->store, &options, &txn), 0);
    return txn;
}

static int commit(struct store_txn *txn)
{
    struct store_changes changes;
    const int rc = store_txn_commit(txn, &changes);
    if (rc == 0) {
        store_changes_free(&changes);
    }
    return rc;
}

static void must_commit(struct store_txn *txn)
{
    assert_int_equal(commit(txn), 0);
    store_txn_put(txn);
}

static void must_conflict(struct store_txn *txn)
{
    assert_int_equal(commit(txn), -EAGAIN);
    assert_int_equal(commit(txn), -EAGAIN);
    store_txn_put(txn);
}

#define RIG                                                                                                            \
    struct rig *rig = *state;                                                                                          \
    struct view *live = store_live(rig->store);                                                                        \
    assert_non_null(live)

/* ---- isolation ---- */

static void transaction_sees_itself_and_nobody_else_does(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(append(rig, own, "t", "two\n"), 0);
    assert_int_equal(append(rig, own, "new", "n\n"), 0);
    assert_int_equal(append(rig, live, "other", "o\n"), 0);
    expect(rig, own, "t", "one\ntwo\n");
    expect(rig, live, "t", "one\n");
    expect(rig, live, "new", NULL);
    expect(rig, own, "other", NULL);
    check(rig);
    must_commit(txn);
    expect(rig, live, "t", "one\ntwo\n");
    expect(rig, live, "new", "n\n");
    check(rig);
    kill_and_reopen(rig);
    live = store_live(rig->store);
    expect(rig, live, "t", "one\ntwo\n");
    expect(rig, live, "new", "n\n");
    expect(rig, live, "other", "o\n");
}

static void abort_leaves_nothing(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(append(rig, own, "t", "two\n"), 0);
    assert_int_equal(append(rig, own, "new", "n\n"), 0);
    assert_int_equal(remove_path(rig, own, "t"), 0);
    store_txn_abort(txn);
    assert_int_equal(make(rig, own, "late", S_IFREG | 0644), -ECANCELED);
    assert_int_equal(commit(txn), -ECANCELED);
    store_txn_put(txn);
    expect(rig, live, "t", "one\n");
    expect(rig, live, "new", NULL);
    check(rig);
    kill_and_reopen(rig);
    expect(rig, store_live(rig->store), "t", "one\n");
}

static void rewritten_table_has_a_new_inode_under_all_its_names(void **state)
{
    RIG;
    struct store_attr before;
    struct store_attr after;
    struct store_attr linked;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    assert_int_equal(link_path(rig, live, "t", "u"), 0);
    assert_int_equal(make_dir(rig, live, "d"), 0);
    assert_int_equal(link_path(rig, live, "t", "d/v"), 0);
    assert_int_equal(look(rig, live, "t", &before), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(rewrite(rig, store_txn_view(txn), "t", "two\n"), 0);
    must_commit(txn);
    assert_int_equal(look(rig, live, "t", &after), 0);
    assert_int_equal(look(rig, live, "d/v", &linked), 0);
    assert_int_not_equal(before.ino, after.ino);
    assert_int_equal(linked.ino, after.ino);
    assert_int_equal(after.nlink, 3);
    expect(rig, live, "u", "two\n");
    kill_and_reopen(rig);
    live = store_live(rig->store);
    assert_int_equal(look(rig, live, "u", &linked), 0);
    assert_int_equal(linked.ino, after.ino);
    expect(rig, live, "d/v", "two\n");
}

static void open_reader_goes_on_with_the_old_version(void **state)
{
    RIG;
    ino_no now = INO_NONE;
    uint64_t end = 0;
    struct store_attr attr;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    assert_int_equal(append(rig, live, "gone", "g\n"), 0);
    struct store_file *reader = open_path(rig, live, "t");
    struct store_file *orphan = open_path(rig, live, "gone");
    struct store_txn *txn = begin(rig);
    struct store_file *inside = open_path(rig, store_txn_view(txn), "t");
    assert_int_equal(rewrite(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(remove_path(rig, store_txn_view(txn), "gone"), 0);
    assert_false(store_file_replaced(reader, &now));
    assert_int_equal(commit(txn), 0);
    expect_file(reader, "one\n");
    expect_file(orphan, "g\n");
    assert_true(store_file_replaced(reader, &now));
    assert_int_equal(store_write(reader, 0, "x", 1, 0, &end), -ESTALE);
    assert_int_equal(store_write(orphan, 0, "h\n", 2, STORE_WRITE_APPEND, &end), 0);
    expect_file(orphan, "g\nh\n");
    assert_int_equal(store_file_getattr(reader, &attr), 0);
    assert_int_equal(attr.nlink, 0);
    assert_int_equal(append(rig, live, "t", "three\n"), 0);
    expect(rig, live, "t", "two\nthree\n");
    expect_file(inside, "two\n");
    check(rig);
    store_file_close(inside);
    store_txn_put(txn);
    expect_file(reader, "one\n");
    store_file_close(orphan);
    txn = begin(rig);
    assert_int_equal(rewrite(rig, store_txn_view(txn), "t", "four\n"), 0);
    must_commit(txn);
    struct store_file *successor = open_path(rig, live, "t");
    assert_true(store_file_replaced(reader, &now)); /* though the version in between was not open */
    assert_int_equal(now, store_file_ino(successor));
    store_file_close(successor);
    expect_file(reader, "one\n");
    store_file_close(reader);
}

static void appends_on_both_sides_merge(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "base\n"), 0);
    assert_int_equal(make(rig, live, "empty", S_IFREG | 0644), 0);
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(append(rig, own, "t", "mine\n"), 0);
    assert_int_equal(append(rig, own, "empty", "m\n"), 0);
    assert_int_equal(append(rig, live, "t", "theirs\n"), 0);
    assert_int_equal(append(rig, live, "empty", "t\n"), 0);
    must_commit(txn);
    expect(rig, live, "t", "base\ntheirs\nmine\n");
    expect(rig, live, "empty", "t\nm\n");
    kill_and_reopen(rig);
    expect(rig, store_live(rig->store), "t", "base\ntheirs\nmine\n");
    expect(rig, store_live(rig->store), "empty", "t\nm\n");
}

/* `lines` rows that say whose they are. */
static char *rows(const char *who, unsigned lines)
{
    const size_t capacity = (size_t)lines * 40 + 1;
    char *text = malloc(capacity);
    size_t size = 0;
    assert_non_null(text);
    text[0] = '\0';
    for (unsigned i = 0; i < lines; i++) {
        size += (size_t)snprintf(text + size, capacity - size, "%s row number %u\n", who, i);
    }
    return text;
}

static void expect_large(struct rig *rig, struct view *view, const char *path, const char *const *parts, unsigned count)
{
    struct store_file *file = open_path(rig, view, path);
    uint64_t offset = 0;
    for (unsigned i = 0; i < count; i++) {
        const size_t want = strlen(parts[i]);
        char *got = malloc(want + 1);
        size_t size = 0;
        assert_non_null(got);
        assert_int_equal(store_read(file, offset, got, want, &size), 0);
        assert_int_equal(size, want);
        assert_memory_equal(got, parts[i], want);
        offset += want;
        free(got);
    }
    struct store_attr attr;
    assert_int_equal(store_file_getattr(file, &attr), 0);
    assert_int_equal(attr.size_bytes, offset);
    store_file_close(file);
}

static uint64_t deadlist_blocks(struct rig *rig)
{
    struct cow_stats stats;
    cow_get_stats(store_cow(rig->store), &stats);
    return stats.deadlist_blocks;
}

/* An open file of a replaced table keeps that table's old blocks, and nothing else of the old tree. */
static void old_version_pins_its_table_only(void **state)
{
    RIG;
    char *text = rows("old", 3000);
    char *other = rows("other", 3000);
    uint64_t end = 0;
    assert_int_equal(append(rig, live, "t", text), 0);
    assert_int_equal(append(rig, live, "other", other), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    const unsigned holders = cow_holder_count(store_cow(rig->store));
    struct store_file *reader = open_path(rig, live, "t");
    struct store_txn *txn = begin(rig);
    struct store_file *file = open_path(rig, store_txn_view(txn), "t");
    assert_int_equal(store_write(file, 10, "X", 1, 0, &end), 0);
    store_file_close(file);
    must_commit(txn);
    assert_int_equal(cow_holder_count(store_cow(rig->store)), holders);
    assert_int_equal(store_checkpoint(rig->store), 0);
    const uint64_t deferred = deadlist_blocks(rig);
    for (unsigned i = 0; i < 20; i++) { /* the new version, which shares blocks with the old one; and others */
        file = open_path(rig, live, "t");
        assert_int_equal(store_write(file, (uint64_t)i * 3000, "Y", 1, 0, &end), 0);
        store_file_close(file);
        assert_int_equal(rewrite(rig, live, "other", other), 0);
        if (i % 5 == 0) {
            assert_int_equal(store_checkpoint(rig->store), 0);
            check(rig);
        }
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_true(deadlist_blocks(rig) <= deferred);
    char *got = malloc(strlen(text));
    size_t size = 0;
    assert_int_equal(store_read(reader, 0, got, strlen(text), &size), 0);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(got, text, size);
    assert_int_equal(remove_path(rig, live, "t"), 0); /* its relation lives as long as the reader */
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    bufcache_step(store_cache(rig->store));
    assert_int_equal(store_read(reader, 20000, got, 1000, &size), 0);
    assert_memory_equal(got, text + 20000, 1000);
    check(rig);
    store_file_close(reader);
    check(rig);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(cow_holder_count(store_cow(rig->store)), holders);
    free(got);
    free(text);
    free(other);
}

/* Whole leaves of the one are grafted behind what the other appended. */
static void large_appends_on_both_sides_merge(void **state)
{
    RIG;
    char *base = rows("base", 300);
    char *mine = rows("mine", 20000);
    char *theirs = rows("theirs", 5000);
    const char *const parts[] = {base, theirs, mine, "last\n"};
    assert_int_equal(append(rig, live, "t", base), 0);
    struct store_txn *txn = begin(rig);
    struct store_file *inside = open_path(rig, store_txn_view(txn), "t");
    assert_int_equal(append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(append(rig, live, "t", theirs), 0);
    check(rig);
    assert_int_equal(commit(txn), 0);
    expect_large(rig, live, "t", parts, 3);
    check(rig);
    assert_int_equal(append(rig, live, "t", "last\n"), 0);
    char *got = malloc(strlen(mine));
    size_t size = 0;
    assert_int_equal(store_read(inside, strlen(base), got, strlen(mine), &size), 0);
    assert_int_equal(size, strlen(mine));
    assert_memory_equal(got, mine, size);
    free(got);
    store_file_close(inside);
    store_txn_put(txn);
    check(rig);
    assert_int_equal(store_checkpoint(rig->store), 0);
    check(rig);
    expect_large(rig, live, "t", parts, 4);
    kill_and_reopen(rig);
    expect_large(rig, store_live(rig->store), "t", parts, 4);
    free(base);
    free(mine);
    free(theirs);
}

/* The same, replayed. */
static void large_merge_is_replayed(void **state)
{
    RIG;
    char *mine = rows("mine", 20000);
    char *theirs = rows("theirs", 5000);
    const char *const parts[] = {theirs, mine};
    struct store_txn *txn = begin(rig);
    assert_int_equal(make(rig, live, "other", S_IFREG | 0644), 0);
    assert_int_equal(make(rig, live, "t", S_IFREG | 0644), 0);
    store_txn_put(txn);
    txn = begin(rig);
    assert_int_equal(append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(append(rig, live, "t", theirs), 0);
    must_commit(txn);
    kill_and_reopen(rig);
    expect_large(rig, store_live(rig->store), "t", parts, 2);
    free(mine);
    free(theirs);
}

/* A relation that was made in a transaction and dropped in it is gone once, whatever becomes of the transaction. */
static void relation_made_and_dropped_inside_is_dropped_once(void **state)
{
    RIG;
    char *text = rows("inside", 2000);
    for (unsigned round = 0; round < 2; round++) {
        struct store_txn *txn = begin(rig);
        struct view *own = store_txn_view(txn);
        assert_int_equal(append(rig, own, "made", text), 0);
        assert_int_equal(rewrite(rig, own, "made", "again\n"), 0);
        assert_int_equal(append(rig, own, "gone", text), 0);
        assert_int_equal(remove_path(rig, own, "gone"), 0);
        check(rig);
        if (round == 0) {
            store_txn_put(txn);
        } else {
            must_commit(txn);
        }
        check(rig);
        assert_int_equal(store_checkpoint(rig->store), 0);
        assert_int_equal(store_checkpoint(rig->store), 0);
    }
    expect(rig, live, "made", "again\n");
    kill_and_reopen(rig);
    expect(rig, store_live(rig->store), "made", "again\n");
    free(text);
}

/* The log refers to pages that the transaction wrote, cut, wrote again, and that the close merged or took over: replay finds them all,
 * whatever was freed and allocated behind the close. */
static void pages_that_the_log_refers_to_stay(void **state)
{
    RIG;
    char *base = rows("base", 100);
    char *mine = rows("mine", 20000);
    char *cut = rows("cut", 9000);
    char *theirs = rows("theirs", 5000);
    const char *const taken[] = {base, mine};
    const char *const merged[] = {base, theirs, mine};
    assert_int_equal(append(rig, live, "taken", base), 0);
    assert_int_equal(append(rig, live, "merged", base), 0);
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(append(rig, own, "taken", cut), 0);
    assert_int_equal(truncate_to(rig, own, "taken", strlen(base)), 0);
    assert_int_equal(append(rig, own, "taken", mine), 0);
    assert_int_equal(append(rig, own, "merged", mine), 0);
    assert_int_equal(append(rig, own, "gone", cut), 0);
    assert_int_equal(remove_path(rig, own, "gone"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(append(rig, live, "merged", theirs), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    check(rig);
    must_commit(txn);
    check(rig);
    for (unsigned i = 0; i < 4; i++) { /* would go into blocks that are free too early */
        assert_int_equal(append(rig, live, "taken", cut), 0);
        assert_int_equal(truncate_to(rig, live, "taken", strlen(base) + strlen(mine)), 0);
        assert_int_equal(append(rig, live, "merged", cut), 0);
        assert_int_equal(truncate_to(rig, live, "merged", strlen(base) + strlen(theirs) + strlen(mine)), 0);
    }
    expect_large(rig, live, "taken", taken, 2);
    kill_and_reopen(rig);
    live = store_live(rig->store);
    expect_large(rig, live, "taken", taken, 2);
    expect_large(rig, live, "merged", merged, 3);
    expect(rig, live, "gone", NULL);
    free(base);
    free(mine);
    free(cut);
    free(theirs);
}

/* Rows written by reference into a relation of the transaction's own, and merged into another one. */
static void pages_of_another_relation_are_copied_by_replay(void **state)
{
    RIG;
    char *mine = rows("mine", 20000);
    const char *const parts[] = {"theirs\n", mine};
    assert_int_equal(make(rig, live, "t", S_IFREG | 0644), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(append(rig, live, "t", "theirs\n"), 0);
    must_commit(txn);
    expect_large(rig, live, "t", parts, 2);
    kill_and_reopen(rig);
    expect_large(rig, store_live(rig->store), "t", parts, 2);
    free(mine);
}

/* Its old relation number is found in the snapshot, its new one in the live tree: no block is handed out twice. */
static void rewritten_table_and_snapshot_share_a_relation(void **state)
{
    RIG;
    char *text = rows("first", 3000);
    char *more = rows("more", 3000);
    const char *const before[] = {text};
    assert_int_equal(append(rig, live, "t", text), 0);
    assert_int_equal(store_snapshot_create(rig->store, name_of("s")), 0);
    struct store_txn *txn = begin(rig);
    struct store_file *file = open_path(rig, store_txn_view(txn), "t");
    uint64_t end = 0;
    assert_int_equal(store_write(file, 10000, "X", 1, 0, &end), 0);
    store_file_close(file);
    must_commit(txn);
    assert_int_equal(store_close(rig->store), 0);
    open_store(rig);
    live = store_live(rig->store);
    assert_int_equal(append(rig, live, "t", more), 0);
    check(rig);
    struct store_snapshot *snapshot = NULL;
    assert_int_equal(store_snapshot_get(rig->store, name_of("s"), &snapshot), 0);
    expect_large(rig, store_snapshot_view(snapshot), "t", before, 1);
    store_snapshot_put(snapshot);
    assert_int_equal(store_snapshot_drop(rig->store, name_of("s")), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    check(rig);
    free(text);
    free(more);
}

static void appends_without_newline_conflict(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "base"), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(append(rig, store_txn_view(txn), "t", "mine\n"), 0);
    assert_int_equal(append(rig, live, "t", "theirs\n"), 0);
    must_conflict(txn);
}

static void appends_behind_a_hole_conflict(void **state)
{
    RIG;
    assert_int_equal(make(rig, live, "t", S_IFREG | 0644), 0);
    assert_int_equal(truncate_to(rig, live, "t", 1000), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(append(rig, store_txn_view(txn), "t", "mine\n"), 0);
    assert_int_equal(append(rig, live, "t", "theirs\n"), 0);
    must_conflict(txn);
}

static void overwrites_conflict(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "base\n"), 0);
    struct store_txn *first = begin(rig);
    struct store_txn *second = begin(rig);
    assert_int_equal(rewrite(rig, store_txn_view(first), "t", "first\n"), 0);
    assert_int_equal(rewrite(rig, store_txn_view(second), "t", "second\n"), 0);
    must_commit(first);
    must_conflict(second);
    expect(rig, live, "t", "first\n");
}

static void lock_file_made_and_removed_conflicts_either_way(void **state)
{
    RIG;
    struct store_txn *first = begin(rig);
    struct store_txn *second = begin(rig);
    assert_int_equal(make(rig, store_txn_view(first), "lock", S_IFREG | 0644), 0);
    assert_int_equal(remove_path(rig, store_txn_view(first), "lock"), 0);
    assert_int_equal(make(rig, store_txn_view(second), "lock", S_IFREG | 0644), 0);
    assert_int_equal(remove_path(rig, store_txn_view(second), "lock"), 0);
    assert_int_equal(append(rig, store_txn_view(first), "a", "1\n"), 0);
    assert_int_equal(append(rig, store_txn_view(second), "b", "1\n"), 0);
    must_commit(first);
    must_conflict(second);
    check(rig);
}

static void directory_made_on_both_sides_is_one(void **state)
{
    RIG;
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(make_dir(rig, own, "d"), 0);
    assert_int_equal(make_dir(rig, own, "d/e"), 0);
    assert_int_equal(append(rig, own, "d/e/mine", "m\n"), 0);
    assert_int_equal(make_dir(rig, live, "d"), 0);
    assert_int_equal(make_dir(rig, live, "d/e"), 0);
    assert_int_equal(append(rig, live, "d/e/theirs", "t\n"), 0);
    must_commit(txn);
    expect(rig, live, "d/e/mine", "m\n");
    expect(rig, live, "d/e/theirs", "t\n");
    kill_and_reopen(rig);
    expect(rig, store_live(rig->store), "d/e/mine", "m\n");
    expect(rig, store_live(rig->store), "d/e/theirs", "t\n");
}

static void removing_a_directory_conflicts_with_names_in_it(void **state)
{
    RIG;
    assert_int_equal(make_dir(rig, live, "d"), 0);
    assert_int_equal(make_dir(rig, live, "e"), 0);
    struct store_txn *first = begin(rig);
    struct store_txn *second = begin(rig);
    assert_int_equal(remove_dir(rig, store_txn_view(first), "d"), 0);
    assert_int_equal(remove_dir(rig, store_txn_view(second), "e"), 0);
    assert_int_equal(append(rig, live, "d/x", "x\n"), 0);
    assert_int_equal(append(rig, live, "e/x", "x\n"), 0);
    assert_int_equal(remove_path(rig, live, "e/x"), 0);
    must_conflict(first);
    must_conflict(second);
}

static void directory_moves_into_each_other_conflict(void **state)
{
    RIG;
    assert_int_equal(make_dir(rig, live, "a"), 0);
    assert_int_equal(make_dir(rig, live, "b"), 0);
    struct store_txn *first = begin(rig);
    struct store_txn *second = begin(rig);
    assert_int_equal(move(rig, store_txn_view(first), "a", "b/a"), 0);
    assert_int_equal(move(rig, store_txn_view(second), "b", "a/b"), 0);
    must_commit(first);
    must_conflict(second);
    check(rig);
}

static void two_names_removed_by_two_conflict(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "n", "x\n"), 0);
    assert_int_equal(link_path(rig, live, "n", "m"), 0);
    struct store_txn *first = begin(rig);
    struct store_txn *second = begin(rig);
    assert_int_equal(remove_path(rig, store_txn_view(first), "n"), 0);
    assert_int_equal(remove_path(rig, store_txn_view(second), "m"), 0);
    must_commit(first);
    must_conflict(second);
    expect(rig, live, "m", "x\n");
}

static void drop_conflicts_with_any_change(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "a", "x\n"), 0);
    assert_int_equal(append(rig, live, "b", "x\n"), 0);
    struct store_txn *first = begin(rig);
    struct store_txn *second = begin(rig);
    assert_int_equal(remove_path(rig, store_txn_view(first), "a"), 0);
    assert_int_equal(remove_path(rig, store_txn_view(second), "b"), 0);
    assert_int_equal(append(rig, live, "a", "y\n"), 0);
    assert_int_equal(change_mode(rig, live, "b", 0600), 0);
    must_conflict(first);
    must_conflict(second);
}

static void attributes_and_content_do_not_conflict(void **state)
{
    RIG;
    struct store_attr attr;
    assert_int_equal(append(rig, live, "a", "x\n"), 0);
    assert_int_equal(append(rig, live, "b", "x\n"), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(rewrite(rig, store_txn_view(txn), "a", "new\n"), 0);
    assert_int_equal(change_mode(rig, store_txn_view(txn), "b", 0600), 0);
    assert_int_equal(change_mode(rig, live, "a", 0640), 0);
    assert_int_equal(append(rig, live, "b", "y\n"), 0);
    must_commit(txn);
    assert_int_equal(look(rig, live, "a", &attr), 0);
    assert_int_equal(attr.mode & 07777, 0640);
    expect(rig, live, "a", "new\n");
    assert_int_equal(look(rig, live, "b", &attr), 0);
    assert_int_equal(attr.mode & 07777, 0600);
    expect(rig, live, "b", "x\ny\n");
    kill_and_reopen(rig);
    expect(rig, store_live(rig->store), "b", "x\ny\n");
}

static void drop_of_many_is_one_record_and_one_sweep(void **state)
{
    RIG;
    struct store_stats before;
    struct store_stats after;
    char name[24];
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(append(rig, live, name, "some rows\n"), 0);
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
    struct store_txn *txn = begin(rig);
    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(remove_path(rig, store_txn_view(txn), name), 0);
    }
    store_get_stats(rig->store, &before);
    must_commit(txn);
    store_get_stats(rig->store, &after);
    assert_int_equal(after.sweeps - before.sweeps, 1);
    assert_int_equal(after.log.records - before.log.records, 1);
    expect(rig, live, "t77", NULL);
    kill_and_reopen(rig);
    store_get_stats(rig->store, &after);
    assert_int_equal(after.redo_records, 1);
    expect(rig, store_live(rig->store), "t999", NULL);
}

static void operations_that_follow_removals_are_replayed_in_order(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "a", "old\n"), 0);
    assert_int_equal(append(rig, live, "b", "b\n"), 0);
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(remove_path(rig, own, "a"), 0);
    assert_int_equal(move(rig, own, "b", "a"), 0);
    assert_int_equal(append(rig, own, "b", "new\n"), 0);
    assert_int_equal(remove_path(rig, own, "a"), 0);
    assert_int_equal(move(rig, own, "b", "c"), 0);
    assert_int_equal(append(rig, own, "c", "more\n"), 0);
    must_commit(txn);
    expect(rig, live, "c", "new\nmore\n");
    kill_and_reopen(rig);
    live = store_live(rig->store);
    expect(rig, live, "a", NULL);
    expect(rig, live, "b", NULL);
    expect(rig, live, "c", "new\nmore\n");
}

static void checkpoint_between_keeps_the_log_of_open_transactions(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = begin(rig);
    struct store_txn *lost = begin(rig);
    assert_int_equal(append(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(append(rig, store_txn_view(lost), "t", "lost\n"), 0);
    assert_int_equal(append(rig, live, "other", "o\n"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(append(rig, store_txn_view(txn), "t", "three\n"), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    must_commit(txn);
    store_txn_put(lost);
    kill_and_reopen(rig);
    expect(rig, store_live(rig->store), "t", "one\ntwo\nthree\n");
    expect(rig, store_live(rig->store), "other", "o\n");
}

/* The items that name their owners fill leaves of the catalog, so inner pages have keys of theirs. */
static void many_rewritten_tables_are_found_again(void **state)
{
    RIG;
    char name[24];
    struct store_txn *txn = begin(rig);
    for (unsigned i = 0; i < 2000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(append(rig, live, name, "old\n"), 0);
    }
    store_txn_put(txn);
    txn = begin(rig);
    for (unsigned i = 0; i < 2000; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(truncate_to(rig, store_txn_view(txn), name, 2), 0);
    }
    must_commit(txn);
    assert_int_equal(store_close(rig->store), 0);
    open_store(rig);
    check(rig);
    expect(rig, store_live(rig->store), "t7", "ol");
    expect(rig, store_live(rig->store), "t1999", "ol");
}

static void write_to_unlinked_file_is_replayed(void **state)
{
    RIG;
    uint64_t end = 0;
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(append(rig, own, "keep", "k\n"), 0);
    assert_int_equal(make(rig, own, "tmp", S_IFREG | 0644), 0);
    struct store_file *file = open_path(rig, own, "tmp");
    assert_int_equal(remove_path(rig, own, "tmp"), 0);
    assert_int_equal(store_write(file, 0, "x\n", 2, 0, &end), 0);
    store_file_close(file);
    must_commit(txn);
    expect(rig, live, "keep", "k\n");
    kill_and_reopen(rig);
    expect(rig, store_live(rig->store), "keep", "k\n");
}

static void write_to_unlinked_table_of_the_base_is_replayed(void **state)
{
    RIG;
    uint64_t end = 0;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    struct store_file *file = open_path(rig, own, "t");
    assert_int_equal(remove_path(rig, own, "t"), 0);
    assert_int_equal(store_write(file, 0, "two\n", 4, STORE_WRITE_APPEND, &end), 0);
    store_file_close(file);
    must_commit(txn);
    expect(rig, live, "t", NULL);
    kill_and_reopen(rig);
    expect(rig, store_live(rig->store), "t", NULL);
}

static void attributes_of_unlinked_file_do_not_conflict(void **state)
{
    RIG;
    struct store_attr attr;
    struct store_attr out;
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(append(rig, own, "keep", "k\n"), 0);
    assert_int_equal(make(rig, own, "tmp", S_IFREG | 0644), 0);
    assert_int_equal(look(rig, own, "tmp", &attr), 0);
    struct store_file *file = open_path(rig, own, "tmp");
    assert_int_equal(remove_path(rig, own, "tmp"), 0);
    attr.mode = 0600;
    assert_int_equal(store_setattr(rig->store, own, attr.ino, STORE_SET_MODE, &attr, &out), 0);
    store_file_close(file);
    const int rc = commit(txn);
    store_txn_put(txn);
    assert_int_equal(rc, 0);
    expect(rig, live, "keep", "k\n");
}

/* As a write of somebody who is not root: it takes the set-user-id bit away. */
static int append_kill(struct rig *rig, struct view *view, const char *path, const char *text)
{
    uint64_t end = 0;
    struct store_file *file = open_path(rig, view, path);
    const int rc = store_write(file, 0, text, strlen(text), STORE_WRITE_APPEND | STORE_WRITE_KILL_SUID, &end);
    store_file_close(file);
    return rc;
}

static uint32_t mode_of(struct rig *rig, const char *path)
{
    struct store_attr attr;
    assert_int_equal(look(rig, store_live(rig->store), path, &attr), 0);
    return attr.mode & 07777;
}

static void merge_takes_set_user_id_away(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    assert_int_equal(change_mode(rig, live, "t", 04755), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(append_kill(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(append(rig, live, "t", "root's\n"), 0);
    must_commit(txn);
    const uint32_t doing = mode_of(rig, "t");
    kill_and_reopen(rig);
    const uint32_t replay = mode_of(rig, "t");
    assert_int_equal(replay, 0755);
    assert_int_equal(doing, replay);
}

static void created_table_loses_set_user_id(void **state)
{
    RIG;
    struct store_txn *txn = begin(rig);
    assert_int_equal(make(rig, store_txn_view(txn), "t", S_IFREG | 04755), 0);
    assert_int_equal(append_kill(rig, store_txn_view(txn), "t", "two\n"), 0);
    must_commit(txn);
    const uint32_t doing = mode_of(rig, "t");
    kill_and_reopen(rig);
    const uint32_t replay = mode_of(rig, "t");
    assert_int_equal(replay, 0755);
    assert_int_equal(doing, replay);
}

static void changed_mode_loses_set_user_id(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(change_mode(rig, store_txn_view(txn), "t", 04755), 0);
    assert_int_equal(append_kill(rig, store_txn_view(txn), "t", "two\n"), 0);
    must_commit(txn);
    const uint32_t doing = mode_of(rig, "t");
    kill_and_reopen(rig);
    const uint32_t replay = mode_of(rig, "t");
    assert_int_equal(replay, 0755);
    assert_int_equal(doing, replay);
}

static void mode_set_behind_the_write_stays(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    assert_int_equal(change_mode(rig, live, "t", 04755), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(append_kill(rig, store_txn_view(txn), "t", "two\n"), 0);
    assert_int_equal(change_mode(rig, store_txn_view(txn), "t", 04755), 0);
    must_commit(txn);
    const uint32_t doing = mode_of(rig, "t");
    kill_and_reopen(rig);
    const uint32_t replay = mode_of(rig, "t");
    assert_int_equal(doing, 04755);
    assert_int_equal(doing, replay);
}

static int set_mtime(struct rig *rig, struct view *view, const char *path, int64_t ns)
{
    struct store_attr attr;
    struct store_attr out;
    assert_int_equal(look(rig, view, path, &attr), 0);
    attr.mtime_ns = ns;
    return store_setattr(rig->store, view, attr.ino, STORE_SET_MTIME, &attr, &out);
}

static int64_t mtime_of(struct rig *rig, struct view *view, const char *path)
{
    struct store_attr attr;
    assert_int_equal(look(rig, view, path, &attr), 0);
    return attr.mtime_ns;
}

#define FAR_NS (INT64_C(4000000000) * 1000000000)

static void mtime_of_rewritten_table(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "t", "one\n"), 0);
    assert_int_equal(set_mtime(rig, live, "t", FAR_NS), 0);
    struct store_txn *txn = begin(rig);
    assert_int_equal(rewrite(rig, store_txn_view(txn), "t", "two\n"), 0);
    const int64_t inside = mtime_of(rig, store_txn_view(txn), "t");
    must_commit(txn);
    const int64_t doing = mtime_of(rig, live, "t");
    kill_and_reopen(rig);
    const int64_t replay = mtime_of(rig, store_live(rig->store), "t");
    assert_true(doing == inside);
    assert_true(doing == replay);
}

static void mtime_of_created_table(void **state)
{
    RIG;
    struct store_txn *txn = begin(rig);
    assert_int_equal(append(rig, store_txn_view(txn), "t", "one\n"), 0);
    assert_int_equal(set_mtime(rig, store_txn_view(txn), "t", FAR_NS), 0);
    assert_int_equal(append(rig, store_txn_view(txn), "t", "two\n"), 0);
    const int64_t inside = mtime_of(rig, store_txn_view(txn), "t");
    must_commit(txn);
    const int64_t doing = mtime_of(rig, live, "t");
    kill_and_reopen(rig);
    const int64_t replay = mtime_of(rig, store_live(rig->store), "t");
    assert_true(doing == inside);
    assert_true(doing == replay);
}

static void mtime_set_back(void **state)
{
    RIG;
    assert_int_equal(append(rig, live, "a", "one\n"), 0);
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(append(rig, own, "t", "one\n"), 0);
    assert_int_equal(set_mtime(rig, own, "t", 1000), 0);
    assert_int_equal(append(rig, own, "a", "two\n"), 0);
    assert_int_equal(set_mtime(rig, own, "a", 1000), 0);
    must_commit(txn);
    const int64_t t = mtime_of(rig, live, "t");
    const int64_t a = mtime_of(rig, live, "a");
    kill_and_reopen(rig);
    live = store_live(rig->store);
    assert_true(t == 1000 && a == 1000);
    assert_true(mtime_of(rig, live, "t") == t && mtime_of(rig, live, "a") == a);
}

static int count_object(void *arg, const struct store_txn_object *object)
{
    char *text = arg;
    const size_t size = strlen(text);
    (void)snprintf(text + size, 1000 - size, "%s|%s|%s\n", object->path, object->did, object->outside);
    return 0;
}

static void changes_and_conflicts_are_listed_by_path(void **state)
{
    RIG;
    char changes[1000] = "";
    char conflicts[1000] = "";
    assert_int_equal(make_dir(rig, live, "d"), 0);
    assert_int_equal(append(rig, live, "d/t", "one\n"), 0);
    assert_int_equal(append(rig, live, "d/u", "one\n"), 0);
    struct store_txn *txn = begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(append(rig, own, "d/t", "two\n"), 0);
    assert_int_equal(append(rig, own, "d/n", "two\n"), 0);
    assert_int_equal(remove_path(rig, own, "d/u"), 0);
    assert_int_equal(rewrite(rig, live, "d/t", "x\n"), 0);
    assert_int_equal(append(rig, live, "d/n", "y\n"), 0);
    assert_int_equal(append(rig, live, "d/u", "y\n"), 0);
    assert_int_equal(store_txn_each_change(txn, count_object, changes), 0);
    assert_string_equal(changes, "d/n|create|\nd/u|remove|\nd/t|append|\n");
    assert_int_equal(store_txn_each_conflict(txn, count_object, conflicts), 0);
    assert_string_equal(conflicts, "d/n|name|made\nd/t|append|rewritten\nd/u|remove|changed\n");
    must_conflict(txn);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(transaction_sees_itself_and_nobody_else_does),
        CASE(abort_leaves_nothing),
        CASE(rewritten_table_has_a_new_inode_under_all_its_names),
        CASE(open_reader_goes_on_with_the_old_version),
        CASE(old_version_pins_its_table_only),
        CASE(appends_on_both_sides_merge),
        CASE(large_appends_on_both_sides_merge),
        CASE(large_merge_is_replayed),
        CASE(relation_made_and_dropped_inside_is_dropped_once),
        CASE(pages_that_the_log_refers_to_stay),
        CASE(pages_of_another_relation_are_copied_by_replay),
        CASE(rewritten_table_and_snapshot_share_a_relation),
        CASE(appends_without_newline_conflict),
        CASE(appends_behind_a_hole_conflict),
        CASE(overwrites_conflict),
        CASE(lock_file_made_and_removed_conflicts_either_way),
        CASE(directory_made_on_both_sides_is_one),
        CASE(removing_a_directory_conflicts_with_names_in_it),
        CASE(directory_moves_into_each_other_conflict),
        CASE(two_names_removed_by_two_conflict),
        CASE(drop_conflicts_with_any_change),
        CASE(attributes_and_content_do_not_conflict),
        CASE(drop_of_many_is_one_record_and_one_sweep),
        CASE(many_rewritten_tables_are_found_again),
        CASE(operations_that_follow_removals_are_replayed_in_order),
        CASE(checkpoint_between_keeps_the_log_of_open_transactions),
        CASE(write_to_unlinked_file_is_replayed),
        CASE(write_to_unlinked_table_of_the_base_is_replayed),
        CASE(attributes_of_unlinked_file_do_not_conflict),
        CASE(merge_takes_set_user_id_away),
        CASE(created_table_loses_set_user_id),
        CASE(changed_mode_loses_set_user_id),
        CASE(mode_set_behind_the_write_stays),
        CASE(mtime_of_rewritten_table),
        CASE(mtime_of_created_table),
        CASE(mtime_set_back),
        CASE(changes_and_conflicts_are_listed_by_path),
    };
    return cmocka_run_group_tests_name("transactions", tests, NULL, NULL);
}
