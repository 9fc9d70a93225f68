/*
 * tests/model/test_txn_threads.c - transactions of several threads, beside others that work in the live tree, read, take snapshots and checkpoints.
 *
 * Each case does a fixed number of operations; what watches goes on until those are done. Names collide, so most calls may be refused; what
 * must not happen is that a read of an open file fails, a close ends otherwise than done or in a conflict, or store_check finds something.
 */
#include "tests/lib/test_support.h"
#include "tests/model/txn_rig.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TEST_NAME      "test_txn_threads"
#define NAMES          8u
#define TRANSACTIONS   25u /* of each thread */
#define LIVE_CALLS     500u
#define FILE_MAX_BYTES 200000u
#define REPLACEMENTS   60u
#define DROPS          100u
#define LARGE_WRITES   4u

/* cmocka's own assertions may only be used by the main thread. */
struct crowd {
    struct txn_rig *rig;
    uint64_t seed;
    atomic_uint working;
    atomic_uint failures;
    atomic_uint commits, conflicts;
};

struct member {
    struct crowd *crowd;
    struct test_random random;
    pthread_t thread;
};

#define CHECK(crowd, condition)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            check_failed(crowd, #condition, __LINE__);                                                                 \
        }                                                                                                              \
    } while (0)

static void check_failed(struct crowd *crowd, const char *condition, int line)
{
    if (atomic_fetch_add(&crowd->failures, 1) < 10) {
        fprintf(stderr, "%s:%d: %s does not hold (SEED=%llu)\n", TEST_NAME, line, condition,
                (unsigned long long)crowd->seed);
    }
}

/* Others may have been there first. */
#define REFUSED_OR_DONE(call) (void)((call) == 0)

static uint32_t below(struct member *member, uint32_t limit)
{
    return (uint32_t)test_random_below(&member->random, limit);
}

static struct store_name random_name(struct member *member)
{
    static const char *const names[NAMES] = {"f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"};
    return shell_name(names[below(member, NAMES)]);
}

/* ---- one operation ---- */

static void read_and_write(struct member *member, struct store_file *file, uint64_t size_bytes)
{
    static const char text[20000] = {0};
    char got[4096];
    size_t size = 0;
    uint64_t end = 0;
    CHECK(member->crowd, store_read(file, below(member, (uint32_t)size_bytes + 1), got, sizeof got, &size) == 0);
    if (size_bytes < FILE_MAX_BYTES) {
        REFUSED_OR_DONE(store_write(file, below(member, (uint32_t)size_bytes + 1), text, 1 + below(member, sizeof text),
                                    below(member, 2) != 0 ? STORE_WRITE_APPEND : 0, &end));
    }
}

static void use_file(struct member *member, struct view *view, const struct store_attr *attr)
{
    struct store_file *file = NULL;
    if (store_file_open(member->crowd->rig->store, view, attr->ino, &file) == 0) {
        read_and_write(member, file, attr->size_bytes);
        store_file_close(file);
    }
}

static void random_call(struct member *member, struct view *view)
{
    struct store *store = member->crowd->rig->store;
    const struct store_name name = random_name(member);
    const struct store_name other = random_name(member);
    struct store_attr attr;
    struct store_attr out;
    if (store_lookup(store, view, INO_ROOT, name, &attr) != 0) {
        REFUSED_OR_DONE(store_create(store, view, INO_ROOT, name, S_IFREG | 0755, 0, (struct store_who){0}, &out));
        return;
    }
    switch (below(member, 12)) {
    case 0:
        REFUSED_OR_DONE(store_unlink(store, view, INO_ROOT, name));
        break;
    case 1:
        REFUSED_OR_DONE(store_rename(store, view, INO_ROOT, name, INO_ROOT, other, 0));
        break;
    case 2:
        REFUSED_OR_DONE(store_link(store, view, attr.ino, INO_ROOT, other, &out));
        break;
    case 3:
        attr.mode = 0700;
        REFUSED_OR_DONE(store_setattr(store, view, attr.ino, STORE_SET_MODE, &attr, &out));
        break;
    case 4:
        attr.size_bytes = below(member, 2) != 0 ? 0 : attr.size_bytes / 2;
        REFUSED_OR_DONE(store_setattr(store, view, attr.ino, STORE_SET_SIZE, &attr, &out));
        break;
    default:
        use_file(member, view, &attr);
        break;
    }
}

/* ---- who is there ---- */

static void *work_in_the_live_tree(void *arg)
{
    struct member *member = arg;
    for (unsigned i = 0; i < LIVE_CALLS; i++) {
        random_call(member, store_live(member->crowd->rig->store));
    }
    atomic_fetch_sub(&member->crowd->working, 1);
    return NULL;
}

static struct store_file *open_any(struct member *member, struct view *view)
{
    struct store *store = member->crowd->rig->store;
    struct store_file *file = NULL;
    struct store_attr attr;
    if (store_lookup(store, view, INO_ROOT, random_name(member), &attr) != 0 ||
        store_file_open(store, view, attr.ino, &file) != 0) {
        return NULL;
    }
    return file;
}

static void read_and_close(struct member *member, struct store_file *file)
{
    char got[4096];
    size_t size = 0;
    if (file != NULL) {
        CHECK(member->crowd, store_read(file, 0, got, sizeof got, &size) == 0);
        store_file_close(file);
    }
}

static void one_transaction(struct member *member)
{
    struct crowd *crowd = member->crowd;
    struct store_txn *txn = NULL;
    const struct store_txn_options options = {.name = shell_name("x")};
    const int begun = store_txn_begin(crowd->rig->store, &options, &txn);
    CHECK(crowd, begun == 0);
    if (begun != 0) {
        return;
    }
    for (unsigned i = below(member, 12); i > 0; i--) {
        random_call(member, store_txn_view(txn));
    }
    struct store_file *file = below(member, 2) == 0 ? open_any(member, store_txn_view(txn)) : NULL;
    if (below(member, 6) != 0) {
        const int rc = shell_commit(txn);
        CHECK(crowd, rc == 0 || rc == -EAGAIN);
        atomic_fetch_add(rc == 0 ? &crowd->commits : &crowd->conflicts, 1);
    }
    read_and_close(member, file);
    store_txn_put(txn);
}

static void *work_in_transactions(void *arg)
{
    struct member *member = arg;
    for (unsigned i = 0; i < TRANSACTIONS; i++) {
        one_transaction(member);
    }
    atomic_fetch_sub(&member->crowd->working, 1);
    return NULL;
}

/* Keeps files of the live tree open, whatever becomes of them. */
static void *read_on(void *arg)
{
    struct member *member = arg;
    struct store *store = member->crowd->rig->store;
    struct store_file *files[NAMES] = {NULL};
    while (atomic_load(&member->crowd->working) > 0) {
        struct store_file **file = &files[below(member, NAMES)];
        struct store_attr attr;
        if (*file == NULL) {
            *file = open_any(member, store_live(store));
        } else {
            CHECK(member->crowd, store_file_getattr(*file, &attr) == 0);
        }
        if (below(member, 3) == 0) {
            read_and_close(member, *file);
            *file = NULL;
        }
    }
    for (unsigned i = 0; i < NAMES; i++) {
        read_and_close(member, files[i]);
    }
    return NULL;
}

static int see_holder(void *arg, const struct store_holder_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

static void *look_after_the_store(void *arg)
{
    struct member *member = arg;
    struct crowd *crowd = member->crowd;
    struct store *store = crowd->rig->store;
    while (atomic_load(&crowd->working) > 0) {
        switch (below(member, 5)) {
        case 0:
            CHECK(crowd, store_checkpoint(store) == 0);
            break;
        case 1:
            REFUSED_OR_DONE(store_snapshot_create(store, shell_name("s")));
            break;
        case 2:
            REFUSED_OR_DONE(store_snapshot_drop(store, shell_name("s")));
            break;
        case 3:
            CHECK(crowd, store_check(store) == 0);
            break;
        default:
            CHECK(crowd, store_each_holder(store, see_holder, NULL) == 0);
            store_step(store);
            break;
        }
    }
    return NULL;
}

static void crowd_keeps_its_promises(void **state)
{
    TXN_RIG;
    void *(*const duties[])(void *) = {work_in_the_live_tree, work_in_transactions, work_in_transactions, read_on,
                                       look_after_the_store};
    struct crowd crowd = {.rig = rig, .seed = test_seed(TEST_NAME), .working = 3};
    struct member members[ARRAY_COUNT(duties)];
    for (unsigned i = 0; i < ARRAY_COUNT(duties); i++) {
        members[i].crowd = &crowd;
        test_random_init(&members[i].random, crowd.seed + i * 1000);
        assert_int_equal(pthread_create(&members[i].thread, NULL, duties[i], &members[i]), 0);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(duties); i++) {
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
    }
    print_message("%u commits, %u conflicts\n", crowd.commits, crowd.conflicts);
    assert_int_equal(crowd.failures, 0);
    assert_true(crowd.commits > 0);
    txn_rig_check(rig);
    txn_rig_kill_and_reopen(rig);
}

/* ---- two at one table ---- */

struct opener {
    struct txn_rig *rig;
    atomic_bool ends;
    atomic_uint opened;
};

/* The table "t", over and over. */
static void *open_and_close(void *arg)
{
    struct opener *opener = arg;
    struct store *store = opener->rig->store;
    while (!atomic_load(&opener->ends)) {
        struct store_attr attr;
        struct store_file *file = NULL;
        if (store_lookup(store, store_live(store), INO_ROOT, shell_name("t"), &attr) == 0 &&
            store_file_open(store, store_live(store), attr.ino, &file) == 0) {
            store_file_close(file);
            atomic_fetch_add(&opener->opened, 1);
        }
    }
    return NULL;
}

static void start_opener(struct opener *opener, struct txn_rig *rig, pthread_t *out_thread)
{
    *opener = (struct opener){.rig = rig};
    assert_int_equal(pthread_create(out_thread, NULL, open_and_close, opener), 0);
    while (atomic_load(&opener->opened) == 0) {
        (void)sched_yield();
    }
}

static void end_opener(struct opener *opener, pthread_t thread)
{
    atomic_store(&opener->ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void old_versions_may_be_closed_at_any_time(void **state)
{
    TXN_RIG;
    pthread_t thread;
    struct opener opener;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    start_opener(&opener, rig, &thread);
    for (unsigned i = 0; i < REPLACEMENTS; i++) {
        struct store_txn *txn = shell_begin(rig);
        assert_int_equal(shell_rewrite(rig, store_txn_view(txn), "t", "two\n"), 0);
        shell_must_commit(txn);
    }
    end_opener(&opener, thread);
    shell_expect(rig, live, "t", "two\n");
}

static void opening_a_table_does_not_conflict_with_its_drop(void **state)
{
    TXN_RIG;
    pthread_t thread;
    struct opener opener;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    start_opener(&opener, rig, &thread);
    for (unsigned i = 0; i < DROPS; i++) {
        struct store_txn *txn = shell_begin(rig);
        assert_int_equal(shell_remove(rig, store_txn_view(txn), "t"), 0);
        shell_must_commit(txn);
        shell_expect(rig, live, "t", NULL);
        assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    }
    end_opener(&opener, thread);
}

#define PART_BYTES (UINT64_C(1) << 20)

struct large_writer {
    struct store_file *file;
    char *part;
    int rc;
};

static void *write_much(void *arg)
{
    struct large_writer *writer = arg;
    uint64_t end = 0;
    for (unsigned i = 0; i < 4 && writer->rc == 0; i++) {
        writer->rc = store_write(writer->file, 0, writer->part, PART_BYTES, STORE_WRITE_APPEND, &end);
    }
    return NULL;
}

/* Both allocate in one file, which grows. */
static void appends_inside_beside_large_ones_outside(void **state)
{
    TXN_RIG;
    pthread_t thread;
    char *part = calloc(1, PART_BYTES);
    char *row = shell_rows("row", 400);
    assert_non_null(part);
    for (unsigned round = 0; round < LARGE_WRITES; round++) {
        assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
        struct store_txn *txn = shell_begin(rig);
        struct large_writer writer = {.file = shell_open(rig, live, "t"), .part = part};
        assert_int_equal(pthread_create(&thread, NULL, write_much, &writer), 0);
        for (unsigned i = 0; i < 100; i++) {
            assert_int_equal(shell_append(rig, store_txn_view(txn), "t", row), 0);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(writer.rc, 0);
        store_file_close(writer.file);
        txn_rig_check(rig);
        store_txn_put(txn);
        assert_int_equal(shell_remove(rig, live, "t"), 0);
    }
    free(part);
    free(row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_RIG_CASE(crowd_keeps_its_promises),
        TXN_RIG_CASE(old_versions_may_be_closed_at_any_time),
        TXN_RIG_CASE(opening_a_table_does_not_conflict_with_its_drop),
        TXN_RIG_CASE(appends_inside_beside_large_ones_outside),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
