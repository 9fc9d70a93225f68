/*
 * tests/model/test_txn_replay.c - what doing leads to, a start finds again by replay: numbers, times and all, after random operations in up to
 * three transactions and beside them, and after closes at which a call of the device failed or the disk was full.
 *
 * Trees are compared as text (tree_text): a clone of the device that is opened shows what the store shows. A close that failed has
 * changed nothing; one beside which nothing happened leads to what its transaction showed.
 *
 * SEED comes from the environment.
 */
#include "tests/lib/test_support.h"
#include "tests/model/txn_rig.h"
#include "txn/store_int.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME      "test_txn_replay"
#define NAME_BYTES     160u
#define ENTRIES_MAX    200u
#define FILE_MAX_BYTES 70000u
#define TRANSACTIONS   3u
#define OPEN_FILES     2u
#define STEPS          250u
#define RUNS           3u
#define RUNS_LONG      200u

/* ---- a tree as text ---- */

struct entry {
    char name[NAME_BYTES];
    struct store_attr attr;
};

struct listing {
    unsigned count;
    struct entry entries[ENTRIES_MAX];
};

static int add_entry(void *arg, const struct store_dir_entry *entry)
{
    struct listing *listing = arg;
    assert_true(listing->count < ENTRIES_MAX && entry->name_size < NAME_BYTES);
    struct entry *added = &listing->entries[listing->count++];
    memcpy(added->name, entry->name, entry->name_size);
    added->name[entry->name_size] = '\0';
    added->attr = *entry->attr;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct entry *left = a;
    const struct entry *right = b;
    return strcmp(left->name, right->name);
}

struct tree {
    struct store *store;
    struct view *view;
    bool all; /* also numbers and times that differ between a transaction and the live tree */
    FILE *out;
};

static void print_content(const struct tree *tree, const struct store_attr *attr)
{
    char *content = malloc(FILE_MAX_BYTES);
    struct store_file *file = NULL;
    size_t size = 0;
    assert_non_null(content);
    assert_int_equal(store_file_open(tree->store, tree->view, attr->ino, &file), 0);
    assert_int_equal(store_read(file, 0, content, FILE_MAX_BYTES, &size), 0);
    assert_int_equal(size, attr->size_bytes);
    store_file_close(file);
    for (size_t i = 0; i < size; i++) {
        (void)fputc(content[i] == '\0' ? '0' : content[i] == '\n' ? '/' : content[i], tree->out);
    }
    free(content);
}

static void print_entry(const struct tree *tree, const char *path, const struct store_attr *attr)
{
    char value[16] = "";
    size_t size = 0;
    if (store_getxattr(tree->store, tree->view, attr->ino, "user.x", value, sizeof value - 1, &size) != 0) {
        size = 0;
    }
    (void)fprintf(tree->out, "%s mode %o nlink %u size %" PRIu64 " x %.*s", path, attr->mode, attr->nlink,
                  attr->size_bytes, (int)size, value);
    if (tree->all) {
        (void)fprintf(tree->out, " ino %" PRIu64 " ctime %" PRId64, (uint64_t)attr->ino, attr->ctime_ns);
    }
    if (tree->all || !S_ISDIR(attr->mode)) {
        (void)fprintf(tree->out, " mtime %" PRId64, attr->mtime_ns);
    }
    (void)fputc(' ', tree->out);
    if (S_ISREG(attr->mode)) {
        print_content(tree, attr);
    }
    (void)fputc('\n', tree->out);
}

static void print_dir(const struct tree *tree, ino_no dir, const char *prefix)
{
    struct listing *listing = calloc(1, sizeof *listing);
    assert_non_null(listing);
    assert_int_equal(store_readdir(tree->store, tree->view, dir, 0, true, add_entry, listing), 0);
    qsort(listing->entries, listing->count, sizeof listing->entries[0], by_name);
    for (unsigned i = 0; i < listing->count; i++) {
        const struct entry *entry = &listing->entries[i];
        char path[1000];
        (void)snprintf(path, sizeof path, "%.800s/%s", prefix, entry->name);
        print_entry(tree, path, &entry->attr);
        if (S_ISDIR(entry->attr.mode)) {
            print_dir(tree, entry->attr.ino, path);
        }
    }
    free(listing);
}

/* A line for each name; freed by the caller. */
static char *tree_text(struct store *store, struct view *view, bool all)
{
    char *text = NULL;
    size_t size = 0;
    struct tree tree = {.store = store, .view = view, .all = all, .out = open_memstream(&text, &size)};
    assert_non_null(tree.out);
    print_dir(&tree, INO_ROOT, "");
    assert_int_equal(fclose(tree.out), 0);
    return text;
}

/* Where something is compared. */
struct place {
    uint64_t seed;
    unsigned step;
};

/* Frees both. */
static void expect_same(const char *what, struct place place, char *left, char *right)
{
    size_t line = 0;
    for (size_t i = 0; left[i] == right[i]; i++) {
        if (left[i] == '\0') {
            free(left);
            free(right);
            return;
        }
        line = left[i] == '\n' ? i + 1 : line;
    }
    print_message("%s: seed %" PRIu64 " step %u\n< %.300s\n> %.300s\n", what, place.seed, place.step, left + line,
                  right + line);
    fail();
}

static void expect_replay(struct txn_rig *rig, struct place place)
{
    struct mem_device *mem = mem_device_clone(rig->mem);
    const struct store_options options = {.dev = mem_device_io(mem), .diag = &rig->diag, .dir = TXN_RIG_DIR};
    struct store *store = NULL;
    assert_int_equal(store_open(&options, &store, NULL), 0);
    expect_same("doing < > replay", place, tree_text(rig->store, store_live(rig->store), true),
                tree_text(store, store_live(store), true));
    assert_int_equal(store_check(store), 0);
    assert_int_equal(store_close(store), 0);
    mem_device_destroy(mem);
}

/* ---- random operations ---- */

struct run {
    struct txn_rig *rig;
    struct test_random random;
    struct place place;
    struct slot {
        struct store_txn *txn; /* NULL: free */
        char *base;            /* what it showed at its begin */
    } slots[TRANSACTIONS];
    struct store_file *files[OPEN_FILES]; /* of the live tree */
    bool has_snapshot;
    unsigned commits, conflicts;
};

static uint32_t below(struct run *run, uint32_t limit)
{
    return (uint32_t)test_random_below(&run->random, limit);
}

/* What an operation was refused for is not asked: the trees tell what it did. */
#define REFUSED_OR_DONE(call) (void)((call) == 0)

/* False: a directory on the way is not there. */
static bool random_dir(struct run *run, struct view *view, ino_no *out_dir)
{
    *out_dir = INO_ROOT;
    for (unsigned depth = below(run, 3); depth > 0; depth--) {
        struct store_attr attr;
        char name[8];
        (void)snprintf(name, sizeof name, "d%u", below(run, 2));
        if (store_lookup(run->rig->store, view, *out_dir, shell_name(name), &attr) != 0 || !S_ISDIR(attr.mode)) {
            return depth == 1;
        }
        *out_dir = attr.ino;
    }
    return true;
}

/* What an operation is done to: one of few names, so that things collide. */
struct subject {
    struct view *view;
    ino_no dir, to_dir;
    char name[8], to_name[8];
    bool is_dir;
    struct store_attr attr;
};

static bool random_subject(struct run *run, struct view *view, struct subject *subject)
{
    *subject = (struct subject){.view = view};
    if (!random_dir(run, view, &subject->dir) || !random_dir(run, view, &subject->to_dir)) {
        return false;
    }
    subject->is_dir = below(run, 4) == 0;
    const char kind = subject->is_dir ? 'd' : 'f';
    const uint32_t names = subject->is_dir ? 2 : 4;
    (void)snprintf(subject->name, sizeof subject->name, "%c%u", kind, below(run, names));
    (void)snprintf(subject->to_name, sizeof subject->to_name, "%c%u", kind, below(run, names));
    return true;
}

static void random_write(struct run *run, struct subject *subject)
{
    char *text = malloc(20000);
    struct store_file *file = NULL;
    uint64_t end = 0;
    const uint32_t size = below(run, 8) == 0 ? 9000 + below(run, 10000) : 1 + below(run, 20);
    assert_non_null(text);
    memset(text, (int)('a' + below(run, 26)), size);
    text[size - 1] = '\n';
    if (!subject->is_dir && subject->attr.size_bytes < 40000) {
        assert_int_equal(store_file_open(run->rig->store, subject->view, subject->attr.ino, &file), 0);
        REFUSED_OR_DONE(store_write(file, below(run, (uint32_t)subject->attr.size_bytes + 5), text, size,
                                    below(run, 4) != 0 ? STORE_WRITE_APPEND : 0, &end));
        store_file_close(file);
    }
    free(text);
}

static void random_change_of_names(struct run *run, struct subject *subject)
{
    struct store *store = run->rig->store;
    struct store_attr out;
    const struct store_name name = shell_name(subject->name);
    const struct store_name to_name = shell_name(subject->to_name);
    switch (below(run, 4)) {
    case 0:
        REFUSED_OR_DONE(subject->is_dir ? store_rmdir(store, subject->view, subject->dir, name)
                                        : store_unlink(store, subject->view, subject->dir, name));
        break;
    case 1:
        REFUSED_OR_DONE(store_link(store, subject->view, subject->attr.ino, subject->to_dir, to_name, &out));
        break;
    default:
        REFUSED_OR_DONE(store_rename(store, subject->view, subject->dir, name, subject->to_dir, to_name,
                                     below(run, 4) == 0 ? STORE_RENAME_EXCHANGE : 0));
        break;
    }
}

static void random_change_of_attributes(struct run *run, struct subject *subject)
{
    struct store *store = run->rig->store;
    struct store_attr *attr = &subject->attr;
    struct store_attr out;
    switch (below(run, 4)) {
    case 0:
        attr->mode = below(run, 2) != 0 ? 0700 : 0711;
        REFUSED_OR_DONE(store_setattr(store, subject->view, attr->ino, STORE_SET_MODE, attr, &out));
        break;
    case 1:
        REFUSED_OR_DONE(
            store_setxattr(store, subject->view, attr->ino, "user.x", below(run, 2) != 0 ? "a" : "b", 1, 0));
        break;
    case 2:
        REFUSED_OR_DONE(store_removexattr(store, subject->view, attr->ino, "user.x"));
        break;
    default:
        attr->size_bytes = below(run, 2) != 0 ? 0 : below(run, (uint32_t)attr->size_bytes + 20);
        REFUSED_OR_DONE(store_setattr(store, subject->view, attr->ino, STORE_SET_SIZE, attr, &out));
        break;
    }
}

static void random_operation(struct run *run, struct view *view)
{
    struct store *store = run->rig->store;
    struct subject subject;
    if (!random_subject(run, view, &subject)) {
        return;
    }
    const uint32_t what = below(run, 14);
    if (store_lookup(store, view, subject.dir, shell_name(subject.name), &subject.attr) != 0) {
        if (what < 6) {
            REFUSED_OR_DONE(store_create(store, view, subject.dir, shell_name(subject.name),
                                         (subject.is_dir ? S_IFDIR : S_IFREG) | 0755, 0, (struct store_who){0},
                                         &subject.attr));
        }
    } else if (what < 4) {
        random_change_of_names(run, &subject);
    } else if (what < 8) {
        random_change_of_attributes(run, &subject);
    } else {
        random_write(run, &subject);
    }
}

/* ---- transactions and what else there is ---- */

static void close_and_compare(struct run *run, struct slot *slot)
{
    struct store *store = run->rig->store;
    char *before = tree_text(store, store_live(store), false);
    char *own = tree_text(store, store_txn_view(slot->txn), false);
    const bool alone = strcmp(before, slot->base) == 0;
    const int rc = shell_commit(slot->txn);
    char *after = tree_text(store, store_live(store), false);
    assert_true(rc == 0 || rc == -EAGAIN);
    if (rc != 0) {
        expect_same("before < > failed close", run->place, before, after);
        free(own);
        run->conflicts++;
    } else if (alone) {
        expect_same("own < > committed", run->place, own, after);
        free(before);
        run->commits++;
    } else {
        free(before);
        free(own);
        free(after);
        run->commits++;
    }
}

static void end_slot(struct run *run, struct slot *slot)
{
    if (below(run, 5) == 0) {
        store_txn_abort(slot->txn);
    } else {
        close_and_compare(run, slot);
    }
    store_txn_put(slot->txn);
    free(slot->base);
    *slot = (struct slot){0};
    if (below(run, 3) == 0) {
        expect_replay(run->rig, run->place);
    }
    txn_rig_check(run->rig);
}

static void begin_or_end(struct run *run, struct slot *slot)
{
    if (slot->txn != NULL) {
        end_slot(run, slot);
    } else {
        slot->txn = shell_begin(run->rig);
        slot->base = tree_text(run->rig->store, store_txn_view(slot->txn), false);
    }
}

static void checkpoint_or_snapshot(struct run *run)
{
    struct store *store = run->rig->store;
    if (below(run, 2) == 0) {
        assert_int_equal(store_checkpoint(store), 0);
        return;
    }
    assert_int_equal(run->has_snapshot ? store_snapshot_drop(store, shell_name("s"))
                                       : store_snapshot_create(store, shell_name("s")),
                     0);
    run->has_snapshot = !run->has_snapshot;
}

/* A file that stays open: opened, written (which a replaced one refuses), or closed. */
static void use_open_file(struct run *run, struct store_file **file)
{
    struct store *store = run->rig->store;
    struct store_attr attr;
    uint64_t end = 0;
    char name[8];
    (void)snprintf(name, sizeof name, "f%u", below(run, 4));
    if (*file == NULL) {
        if (store_lookup(store, store_live(store), INO_ROOT, shell_name(name), &attr) == 0) {
            assert_int_equal(store_file_open(store, store_live(store), attr.ino, file), 0);
        }
    } else if (below(run, 2) == 0) {
        REFUSED_OR_DONE(store_write(*file, 0, "written\n", 8, below(run, 2) != 0 ? STORE_WRITE_APPEND : 0, &end));
    } else {
        store_file_close(*file);
        *file = NULL;
    }
}

static void random_step(struct run *run)
{
    struct slot *slot = &run->slots[below(run, TRANSACTIONS)];
    const uint32_t what = below(run, 100);
    if (what < 8) {
        begin_or_end(run, slot);
    } else if (what < 12) {
        checkpoint_or_snapshot(run);
    } else if (what < 16) {
        use_open_file(run, &run->files[below(run, OPEN_FILES)]);
    } else {
        const bool inside = slot->txn != NULL && what < 75;
        random_operation(run, inside ? store_txn_view(slot->txn) : store_live(run->rig->store));
    }
}

static void random_run(struct run *run)
{
    void *state = NULL;
    assert_int_equal(txn_rig_setup(&state), 0);
    run->rig = state;
    if (run->place.seed % 2 == 0) {
        run->rig->store->bulk_min_bytes = 9000; /* so that records refer to pages */
    }
    for (run->place.step = 0; run->place.step < STEPS; run->place.step++) {
        random_step(run);
    }
    for (unsigned i = 0; i < TRANSACTIONS; i++) {
        if (run->slots[i].txn != NULL) {
            end_slot(run, &run->slots[i]);
        }
    }
    for (unsigned i = 0; i < OPEN_FILES; i++) {
        if (run->files[i] != NULL) {
            store_file_close(run->files[i]);
        }
    }
    expect_replay(run->rig, run->place);
    assert_int_equal(txn_rig_teardown(&state), 0);
}

static void random_doing_is_replayed(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(TEST_NAME);
    const unsigned runs = test_is_long() ? RUNS_LONG : RUNS;
    unsigned commits = 0;
    unsigned conflicts = 0;
    for (unsigned i = 0; i < runs; i++) {
        struct run run = {.place = {.seed = seed + i}};
        test_random_init(&run.random, run.place.seed);
        random_run(&run);
        commits += run.commits;
        conflicts += run.conflicts;
    }
    print_message("%u commits, %u conflicts\n", commits, conflicts);
    assert_true(commits > runs && conflicts > 0); /* else it tests little */
}

/* ---- failing calls ---- */

/* Names that fill catalog pages, numbered from `first`. */
static void make_names(struct txn_rig *rig, struct view *view, unsigned first, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[NAME_BYTES];
        (void)snprintf(name, sizeof name, "%0150u", first + i);
        assert_int_equal(shell_make(rig, view, name, S_IFREG | 0644), 0);
    }
}

/* A transaction that drops, appends to what others append to, rewrites and makes, on a cold cache. */
static struct store_txn *begin_much(struct txn_rig *rig)
{
    char *text = shell_rows("row", 800);
    struct view *live = store_live(rig->store);
    assert_int_equal(shell_append(rig, live, "t", text), 0);
    assert_int_equal(shell_append(rig, live, "u", text), 0);
    assert_int_equal(shell_append(rig, live, "gone", text), 0);
    make_names(rig, live, 0, 30);
    assert_int_equal(store_close(rig->store), 0);
    txn_rig_open(rig);
    live = store_live(rig->store);
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_remove(rig, own, "gone"), 0);
    assert_int_equal(shell_append(rig, own, "t", text), 0);
    assert_int_equal(shell_rewrite(rig, own, "u", text), 0);
    assert_int_equal(shell_append(rig, own, "n", text), 0);
    make_names(rig, own, 100, 20);
    assert_int_equal(shell_append(rig, live, "t", text), 0);
    free(text);
    return txn;
}

struct fault {
    enum mem_call call; /* MEM_CALL_COUNT: none fails, but there is `room` */
    uint64_t nth, room;
};

static void set_fault(struct txn_rig *rig, const struct fault *fault)
{
    if (fault->call == MEM_CALL_COUNT) {
        mem_device_set_capacity(rig->mem, mem_device_used_bytes(rig->mem) + fault->room);
    } else {
        mem_device_fail(rig->mem, fault->call, fault->nth, EIO, false);
    }
}

/* A close that failed left nothing, and can be tried again; unless the store is read-only from then on. False: it did not fail. */
static bool close_with_fault(const struct fault *fault)
{
    void *state = NULL;
    assert_int_equal(txn_rig_setup(&state), 0);
    struct txn_rig *rig = state;
    struct store_txn *txn = begin_much(rig);
    set_fault(rig, fault);
    const int rc = shell_commit(txn);
    mem_device_clear_faults(rig->mem);
    mem_device_set_capacity(rig->mem, 0);
    const bool is_writable = store_read_only_reason(rig->store) == NULL;
    if (is_writable && rc != 0) {
        shell_expect(rig, store_live(rig->store), "n", NULL);
        txn_rig_check(rig);
        assert_int_equal(shell_commit(txn), 0);
    }
    store_txn_put(txn);
    if (is_writable) {
        expect_replay(rig, (struct place){.step = (unsigned)fault->nth});
    } else {
        txn_rig_kill_and_reopen(rig);
    }
    assert_int_equal(txn_rig_teardown(&state), 0);
    return rc != 0;
}

static void close_on_a_full_disk_leaves_nothing_or_all(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (uint64_t blocks = 0; blocks < 40; blocks += 4) {
        const struct fault fault = {.call = MEM_CALL_COUNT, .room = blocks * BLOCK_SIZE};
        failed += close_with_fault(&fault);
    }
    print_message("%u closes failed\n", failed);
}

static void close_with_a_failing_call_leaves_nothing_or_all(void **state)
{
    (void)state;
    static const enum mem_call calls[] = {MEM_CALL_READ,     MEM_CALL_WRITE, MEM_CALL_SYNC, MEM_CALL_ALLOCATE,
                                          MEM_CALL_TRUNCATE, MEM_CALL_STAT,  MEM_CALL_OPEN};
    unsigned failed = 0;
    for (unsigned i = 0; i < ARRAY_COUNT(calls); i++) {
        bool fails = true;
        for (uint64_t nth = 1; nth < 20 && (fails || nth < 3); nth++) {
            const struct fault fault = {.call = calls[i], .nth = nth};
            fails = close_with_fault(&fault);
            failed += fails;
        }
    }
    print_message("%u closes failed\n", failed);
    assert_true(failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_doing_is_replayed),
        cmocka_unit_test(close_on_a_full_disk_leaves_nothing_or_all),
        cmocka_unit_test(close_with_a_failing_call_leaves_nothing_or_all),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
