/*
 * tests/model/test_tablespaces.c - tablespaces of a store on a memory device: where files lie, what a restart and a replay
 * make of them, what a drop leaves, and relations in any number of them dropped in one sweep.
 */
#include "tests/model/txn_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define MANY 50u

static void make_directory(struct txn_rig *rig, const char *path)
{
    assert_int_equal(io_make_dir(rig->dev, path), 0);
}

static int create(struct txn_rig *rig, const char *name, const char *dir)
{
    return store_tablespace_create(rig->store, shell_name(name), dir);
}

static int drop(struct txn_rig *rig, const char *name)
{
    return store_tablespace_drop(rig->store, shell_name(name));
}

static ino_no ino_of(struct txn_rig *rig, struct view *view, const char *path)
{
    struct store_attr attr;
    assert_int_equal(shell_look(rig, view, path, &attr), 0);
    return attr.ino;
}

static int place(struct txn_rig *rig, struct view *view, const char *path, const char *name)
{
    return store_setxattr(rig->store, view, ino_of(rig, view, path), STORE_XATTR_TABLESPACE, name, strlen(name), 0);
}

/* name NULL: in the data directory. */
static void expect_place(struct txn_rig *rig, struct view *view, const char *path, const char *name)
{
    char got[256] = "";
    size_t size = 0;
    const int rc =
        store_getxattr(rig->store, view, ino_of(rig, view, path), STORE_XATTR_TABLESPACE, got, sizeof got - 1, &size);
    assert_int_equal(rc, name != NULL ? 0 : -ENODATA);
    assert_string_equal(got, name != NULL ? name : "");
}

static int count(void *arg, const char *name, enum io_file_kind kind)
{
    (void)name;
    (void)kind;
    ++*(unsigned *)arg;
    return 0;
}

/* Files in dir/rel. */
static unsigned files_in(struct txn_rig *rig, const char *dir)
{
    unsigned files = 0;
    for (unsigned i = 0; i < 256; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s/rel/%02x", dir, i);
        assert_int_equal(io_list_dir(rig->dev, path, count, &files), 0);
    }
    return files;
}

static unsigned entries_in(struct txn_rig *rig, const char *dir)
{
    unsigned entries = 0;
    assert_int_equal(io_list_dir(rig->dev, dir, count, &entries), 0);
    return entries;
}

/* One in /NAME, and a directory NAME whose tables go there. */
static void make_placed(struct txn_rig *rig, const char *name)
{
    char dir[64];
    (void)snprintf(dir, sizeof dir, "/%s", name);
    make_directory(rig, dir);
    assert_int_equal(create(rig, name, dir), 0);
    assert_int_equal(shell_make_dir(rig, store_live(rig->store), name), 0);
    assert_int_equal(place(rig, store_live(rig->store), name, name), 0);
}

static void kill_store(struct txn_rig *rig)
{
    store_abandon(rig->store);
    rig->store = NULL;
}

static int try_open(struct txn_rig *rig, bool offline)
{
    const struct store_options options = {
        .dev = rig->dev, .diag = &rig->diag, .dir = TXN_RIG_DIR, .missing_tablespace_offline = offline};
    return store_open(&options, &rig->store, NULL);
}

/* With a short log, of which many copies are made. */
static int set_up_small(void **state)
{
    return txn_rig_setup_like(state, &(struct txn_rig){.log_segment_size = 32768});
}

/* ---- making and placing ---- */

static void tables_lie_where_their_directory_says(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    assert_int_equal(shell_make_dir(rig, live, "a/below"), 0);
    shell_append(rig, live, "a/t", "rows\n");
    shell_append(rig, live, "a/below/t", "rows\n");
    shell_append(rig, live, "t", "rows\n");
    assert_int_equal(files_in(rig, "/a"), 2);
    expect_place(rig, live, "a/below/t", "a");
    expect_place(rig, live, "t", NULL);
    assert_int_equal(shell_move(rig, live, "a/t", "moved"), 0);
    expect_place(rig, live, "moved", "a"); /* a name is no place */
    assert_int_equal(place(rig, live, "t", "a"), -EOPNOTSUPP);
    assert_int_equal(place(rig, live, "a", "b"), -EINVAL);
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "moved", "rows\n");
    expect_place(rig, store_live(rig->store), "a", "a");
    assert_int_equal(files_in(rig, "/a"), 2);
}

static void directory_that_is_not_free_is_refused(void **state)
{
    TXN_RIG;
    struct io_file *file = NULL;
    make_directory(rig, "/full");
    assert_int_equal(io_open(rig->dev, "/full/file", IO_READ_WRITE | IO_CREATE, &file), 0);
    assert_int_equal(io_close(file), 0);
    assert_int_equal(create(rig, "full", "/full"), -ENOTEMPTY);
    assert_int_equal(create(rig, "file", "/full/file"), -ENOTDIR);
    assert_int_equal(create(rig, "none", "/none"), -ENOENT);
    assert_int_equal(create(rig, "relative", "full"), -EINVAL);
    make_placed(rig, "a");
    assert_int_equal(create(rig, "again", "/a"), -EBUSY);
    make_directory(rig, "/b");
    assert_int_equal(create(rig, "a", "/b"), -EEXIST);
    assert_int_equal(entries_in(rig, "/full"), 1);
    assert_int_equal(entries_in(rig, "/b"), 0);
    (void)live;
}

/* What a transaction made lies where its own tree says, also when the live one says something else by then. */
static void placement_of_a_transaction_is_its_own(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    make_placed(rig, "b");
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_make_dir(rig, own, "new"), 0);
    assert_int_equal(place(rig, own, "new", "b"), 0);
    shell_append(rig, own, "new/t", "in b\n");
    shell_append(rig, own, "a/t", "in a\n");
    shell_make(rig, own, "a/empty", S_IFREG | 0644);
    assert_int_equal(place(rig, live, "a", "b"), 0);
    assert_int_equal(drop(rig, "a"), -ENOTEMPTY);
    shell_must_commit(txn);
    for (unsigned round = 0; round < 2; round++) {
        live = store_live(rig->store);
        expect_place(rig, live, "a/t", "a");
        expect_place(rig, live, "new/t", "b");
        shell_expect(rig, live, "a/t", "in a\n");
        txn_rig_kill_and_reopen(rig);
    }
    shell_append(rig, store_live(rig->store), "a/empty", "x\n");
    expect_place(rig, store_live(rig->store), "a/empty", "a"); /* as its record said */
}

/* ---- dropping ---- */

static void drop_waits_for_whoever_holds_a_file(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    shell_append(rig, live, "a/t", "rows\n");
    assert_int_equal(drop(rig, "a"), -ENOTEMPTY);
    struct store_file *file = shell_open(rig, live, "a/t");
    assert_int_equal(store_snapshot_create(rig->store, shell_name("s")), 0);
    assert_int_equal(shell_remove(rig, live, "a/t"), 0);
    assert_int_equal(drop(rig, "a"), -ENOTEMPTY);
    store_file_close(file);
    assert_int_equal(drop(rig, "a"), -ENOTEMPTY);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    assert_int_equal(drop(rig, "a"), 0);
    assert_int_equal(entries_in(rig, "/a"), 0);
    assert_int_equal(drop(rig, "a"), -ENOENT);
    shell_append(rig, live, "a/t", "default\n"); /* a number that leads nowhere any more */
    expect_place(rig, live, "a/t", NULL);
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "a/t", "default\n");
}

static void name_and_directory_of_a_dropped_one_are_free(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    make_directory(rig, "/other");
    for (unsigned round = 0; round < 4; round++) {
        live = store_live(rig->store);
        assert_int_equal(place(rig, live, "a", "a"), 0);
        shell_append(rig, live, "a/t", "rows\n");
        assert_int_equal(shell_remove(rig, live, "a/t"), 0);
        assert_int_equal(drop(rig, "a"), 0);
        assert_int_equal(create(rig, "a", round % 2 == 0 ? "/other" : "/a"), 0);
        txn_rig_kill_and_reopen(rig);
    }
}

/* A drop whose directory was taken away behind it, and one whose directory is another store's by now, are replayed. */
static void replay_of_a_dropped_one_needs_no_directory(void **state)
{
    TXN_RIG;
    assert_int_equal(store_checkpoint(rig->store), 0);
    make_directory(rig, "/a");
    assert_int_equal(create(rig, "a", "/a"), 0);
    assert_int_equal(drop(rig, "a"), 0);
    shell_append(rig, live, "t", "rows\n");
    assert_int_equal(io_remove_dir(rig->dev, "/a"), 0);
    for (unsigned round = 0; round < 3; round++) {
        kill_store(rig);
        assert_int_equal(try_open(rig, false), 0);
        shell_expect(rig, store_live(rig->store), "t", "rows\n");
    }
}

/* TABLESPACE-1: as long as the drop may be lost, the directory is what a start wants. */
static void drop_that_is_not_durable_leaves_the_directory(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    assert_non_null(live);
    const unsigned entries = entries_in(rig, "/a");
    mem_device_fail(rig->mem, MEM_CALL_SYNC, 1, EIO, true);
    assert_int_equal(drop(rig, "a"), -EIO);
    mem_device_clear_faults(rig->mem);
    assert_int_equal(entries_in(rig, "/a"), entries);
    kill_store(rig); /* the record was written: a kill does not lose it */
    txn_rig_open(rig);
    assert_int_equal(entries_in(rig, "/a"), 0);
}

/* ---- kills ---- */

#define KILLS_MAX 400u

/* The disk as it is before each call that writes, syncs or unlinks, and what was acknowledged by then. */
struct kills {
    struct mem_device *mem;
    struct mem_device *disks[KILLS_MAX];
    unsigned steps[KILLS_MAX];
    unsigned count;
    unsigned step; /* of the history */
};

static int keep_disk(void *arg, const struct mem_event *event)
{
    struct kills *kills = arg;
    const bool matters =
        event->call == MEM_CALL_WRITE || event->call == MEM_CALL_SYNC || event->call == MEM_CALL_UNLINK;
    if (matters) {
        assert_true(kills->count < KILLS_MAX);
        kills->steps[kills->count] = kills->step;
        kills->disks[kills->count++] = mem_device_clone(kills->mem);
    }
    return 0;
}

/* Created, filled, emptied, dropped, and again under the same name elsewhere. */
static void live_through(struct txn_rig *rig, struct kills *kills)
{
    struct view *live = store_live(rig->store);
    assert_int_equal(create(rig, "a", "/first"), 0);
    assert_int_equal(place(rig, live, "a", "a"), 0);
    kills->step = 1;
    shell_append(rig, live, "a/t", "first\n");
    kills->step = 2;
    assert_int_equal(shell_remove(rig, live, "a/t"), 0);
    kills->step = 3;
    assert_int_equal(drop(rig, "a"), 0);
    kills->step = 4;
    assert_int_equal(create(rig, "a", "/second"), 0);
    assert_int_equal(place(rig, live, "a", "a"), 0);
    shell_append(rig, live, "a/t", "second\n");
    kills->step = 5;
}

static bool has_table(struct txn_rig *rig, const char *text)
{
    struct store_attr attr;
    if (shell_look(rig, store_live(rig->store), "a/t", &attr) != 0 || attr.size_bytes != strlen(text)) {
        return false;
    }
    shell_expect(rig, store_live(rig->store), "a/t", text);
    return true;
}

/* What was acknowledged is there; what was under way is there, or not. */
static void expect_step(struct txn_rig *rig, unsigned step)
{
    struct store_attr attr;
    const bool exists = shell_look(rig, store_live(rig->store), "a/t", &attr) == 0;
    if (step == 2) {
        assert_true(!exists || has_table(rig, "first\n"));
    } else if (step == 3) {
        assert_false(exists);
    } else if (step == 5) {
        assert_true(has_table(rig, "second\n"));
    }
}

static void kill_at_any_record_is_replayed_three_times(void **state)
{
    TXN_RIG;
    struct kills *kills = calloc(1, sizeof *kills);
    assert_non_null(kills);
    kills->mem = rig->mem;
    make_directory(rig, "/first");
    make_directory(rig, "/second");
    assert_int_equal(shell_make_dir(rig, live, "a"), 0);
    mem_device_set_hook(rig->mem, keep_disk, kills);
    live_through(rig, kills);
    mem_device_set_hook(rig->mem, NULL, NULL);
    assert_true(kills->count > 20);
    for (unsigned i = 0; i < kills->count; i++) {
        struct txn_rig copy = *rig;
        copy.mem = kills->disks[i];
        copy.dev = mem_device_io(copy.mem);
        txn_rig_open(&copy);
        for (unsigned round = 0; round < 3; round++) {
            txn_rig_kill_and_reopen(&copy);
            expect_step(&copy, kills->steps[i]);
        }
        assert_int_equal(store_close(copy.store), 0);
        mem_device_destroy(copy.mem);
    }
    free(kills);
}

/* ---- one that is missing ---- */

static void missing_one_is_refused_or_offline(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    shell_append(rig, live, "a/t", "far\n");
    shell_append(rig, live, "t", "near\n");
    assert_int_equal(store_close(rig->store), 0);
    rig->store = NULL;
    assert_int_equal(io_rename(rig->dev, "/a", "/away"), 0);
    assert_int_equal(try_open(rig, false), -EUCLEAN);
    assert_int_equal(try_open(rig, true), 0);
    live = store_live(rig->store);
    shell_expect(rig, live, "t", "near\n");
    struct store_file *file = NULL;
    assert_int_equal(store_file_open(rig->store, live, ino_of(rig, live, "a/t"), &file), -EIO);
    assert_int_equal(shell_remove(rig, live, "a/t"), -EIO);
    assert_int_equal(drop(rig, "a"), -EIO);
    assert_int_equal(store_close(rig->store), 0);
    rig->store = NULL;
    assert_int_equal(io_rename(rig->dev, "/away", "/a"), 0);
    assert_int_equal(try_open(rig, false), 0);
    shell_expect(rig, store_live(rig->store), "a/t", "far\n");
}

/* The log has rows for it: going without it would lose them. */
static void missing_one_that_the_log_needs_is_refused(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    shell_append(rig, live, "a/t", "far\n");
    assert_int_equal(store_checkpoint(rig->store), 0);
    shell_append(rig, live, "a/t", "farther\n");
    kill_store(rig);
    assert_int_equal(io_rename(rig->dev, "/a", "/away"), 0);
    assert_true(try_open(rig, true) < 0);
    assert_true(try_open(rig, false) < 0);
    assert_int_equal(io_rename(rig->dev, "/away", "/a"), 0);
    assert_int_equal(try_open(rig, false), 0);
    shell_expect(rig, store_live(rig->store), "a/t", "far\nfarther\n");
}

/* ---- many ---- */

static void make_many(struct txn_rig *rig)
{
    for (unsigned i = 0; i < MANY; i++) {
        char name[32];
        char path[64];
        (void)snprintf(name, sizeof name, "db%u", i);
        make_placed(rig, name);
        for (unsigned table = 0; table < 3; table++) {
            (void)snprintf(path, sizeof path, "%s/t%u", name, table);
            shell_append(rig, store_live(rig->store), path, "rows\n");
        }
    }
}

static void remove_many(struct txn_rig *rig, struct view *view)
{
    for (unsigned i = 0; i < MANY; i++) {
        char path[64];
        for (unsigned table = 0; table < 3; table++) {
            (void)snprintf(path, sizeof path, "db%u/t%u", i, table);
            assert_int_equal(shell_remove(rig, view, path), 0);
        }
        (void)snprintf(path, sizeof path, "db%u", i);
        assert_int_equal(shell_remove_dir(rig, view, path), 0);
    }
}

static uint64_t records(struct txn_rig *rig)
{
    struct store_stats stats;
    store_get_stats(rig->store, &stats);
    return stats.log.records;
}

static uint64_t sweeps(struct txn_rig *rig)
{
    struct store_stats stats;
    store_get_stats(rig->store, &stats);
    return stats.sweeps;
}

static void tree_over_many_is_dropped_in_one_record_and_one_sweep(void **state)
{
    TXN_RIG;
    make_many(rig);
    struct store_txn *txn = shell_begin(rig);
    remove_many(rig, store_txn_view(txn));
    const uint64_t records_before = records(rig);
    const uint64_t sweeps_before = sweeps(rig);
    shell_must_commit(txn);
    assert_int_equal(records(rig) - records_before, 1);
    assert_int_equal(sweeps(rig) - sweeps_before, 1);
    txn_rig_kill_and_reopen(rig);
    struct store_stats stats;
    store_get_stats(rig->store, &stats);
    assert_int_equal(stats.sweeps_of[SWEEP_REDO], 1);
    (void)live;
}

static void live_removals_over_many_share_a_sweep(void **state)
{
    TXN_RIG;
    make_many(rig);
    const uint64_t before = sweeps(rig);
    remove_many(rig, live);
    store_step(rig->store);
    assert_int_equal(sweeps(rig) - before, 1);
    for (unsigned i = 0; i < MANY; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "db%u", i);
        assert_int_equal(drop(rig, name), 0);
    }
}

/* ---- large writes, transactions and sidecars ---- */

/* A large write that goes into the log by reference, and whose sync nobody asked for. */
static void large_write_is_replayed_by_value(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    char *rows = shell_rows("large", 20000);
    shell_append(rig, live, "a/t", rows);
    txn_rig_kill_and_reopen(rig);
    const char *const parts[] = {rows};
    shell_expect_large(rig, store_live(rig->store), "a/t", parts, 1);
    expect_place(rig, store_live(rig->store), "a/t", "a");
    free(rows);
}

static void large_write_behind_a_checkpoint_is_replayed_by_value(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    shell_append(rig, live, "a/t", "first\n");
    assert_int_equal(store_checkpoint(rig->store), 0);
    char *rows = shell_rows("large", 20000);
    shell_append(rig, live, "a/t", rows);
    for (unsigned round = 0; round < 3; round++) {
        txn_rig_kill_and_reopen(rig);
        const char *const parts[] = {"first\n", rows};
        shell_expect_large(rig, store_live(rig->store), "a/t", parts, 2);
    }
    free(rows);
}

/* One is made while a transaction is open that knows nothing of it. */
static void commit_keeps_what_was_made_meanwhile(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    shell_append(rig, own, "a/t", "rows\n");
    make_directory(rig, "/b");
    assert_int_equal(create(rig, "b", "/b"), 0);
    make_directory(rig, "/c");
    assert_int_equal(create(rig, "c", "/c"), 0);
    assert_int_equal(drop(rig, "c"), 0);
    shell_must_commit(txn);
    assert_int_equal(store_close(rig->store), 0);
    rig->store = NULL;
    assert_int_equal(try_open(rig, false), 0);
    assert_int_equal(create(rig, "b", "/c"), -EEXIST);
    assert_int_equal(create(rig, "d", "/c"), 0);
    txn_rig_kill_and_reopen(rig);
    assert_int_equal(drop(rig, "b"), 0);
    (void)live;
}

/* The threshold of sidecars is raised: those in tablespaces are judged where they are. */
static void sidecars_outlive_a_raised_threshold(void **state)
{
    TXN_RIG;
    make_placed(rig, "a");
    char *rows = shell_rows("large", 40000);
    shell_append(rig, live, "a/t", rows);
    shell_append(rig, live, "t", rows);
    rig->threshold_given = true;
    rig->fsm_threshold = 16;
    assert_int_equal(store_close(rig->store), 0);
    txn_rig_open(rig);
    shell_append(rig, store_live(rig->store), "a/t", "x");
    shell_append(rig, store_live(rig->store), "t", "x");
    assert_int_equal(store_close(rig->store), 0);
    const unsigned files = files_in(rig, "/a");
    const unsigned own = files_in(rig, "/data");
    rig->fsm_threshold = 17;
    txn_rig_open(rig);
    assert_int_equal(store_close(rig->store), 0);
    assert_int_equal(own, files_in(rig, "/data"));
    assert_int_equal(files, files_in(rig, "/a"));
    txn_rig_open(rig);
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_RIG_CASE(tables_lie_where_their_directory_says),
        TXN_RIG_CASE(directory_that_is_not_free_is_refused),
        TXN_RIG_CASE(placement_of_a_transaction_is_its_own),
        TXN_RIG_CASE(drop_waits_for_whoever_holds_a_file),
        TXN_RIG_CASE(name_and_directory_of_a_dropped_one_are_free),
        TXN_RIG_CASE(replay_of_a_dropped_one_needs_no_directory),
        TXN_RIG_CASE(drop_that_is_not_durable_leaves_the_directory),
        cmocka_unit_test_setup_teardown(kill_at_any_record_is_replayed_three_times, set_up_small, txn_rig_teardown),
        TXN_RIG_CASE(missing_one_is_refused_or_offline),
        TXN_RIG_CASE(missing_one_that_the_log_needs_is_refused),
        TXN_RIG_CASE(tree_over_many_is_dropped_in_one_record_and_one_sweep),
        TXN_RIG_CASE(live_removals_over_many_share_a_sweep),
        TXN_RIG_CASE(large_write_is_replayed_by_value),
        TXN_RIG_CASE(large_write_behind_a_checkpoint_is_replayed_by_value),
        TXN_RIG_CASE(commit_keeps_what_was_made_meanwhile),
        TXN_RIG_CASE(sidecars_outlive_a_raised_threshold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
