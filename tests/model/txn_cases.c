/*
 * tests/model/txn_cases.c - see txn_cases.h.
 */
#include "tests/model/txn_cases.h"

#include "tests/model/txn_rig.h"
#include "txn/store_txn.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* Whole leaves of the one are grafted behind what the other appended. */
void large_appends_on_both_sides_merge(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", 300);
    char *mine = shell_rows("mine", 20000);
    char *theirs = shell_rows("theirs", 5000);
    const char *const parts[] = {base, theirs, mine, "last\n"};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    struct store_file *inside = shell_open(rig, store_txn_view(txn), "t");
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", mine), 0);
    assert_int_equal(shell_append(rig, live, "t", theirs), 0);
    txn_rig_check(rig);
    assert_int_equal(shell_commit(txn), 0);
    shell_expect_large(rig, live, "t", parts, 3);
    txn_rig_check(rig);
    assert_int_equal(shell_append(rig, live, "t", "last\n"), 0);
    char *got = malloc(strlen(mine));
    size_t size = 0;
    assert_int_equal(store_read(inside, strlen(base), got, strlen(mine), &size), 0);
    assert_int_equal(size, strlen(mine));
    assert_memory_equal(got, mine, size);
    free(got);
    store_file_close(inside);
    store_txn_put(txn);
    txn_rig_check(rig);
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_check(rig);
    shell_expect_large(rig, live, "t", parts, 4);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, 4);
    free(base);
    free(mine);
    free(theirs);
}

void appends_without_newline_conflict(void **state)
{
    TXN_RIG;
    assert_int_equal(shell_append(rig, live, "t", "base"), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "mine\n"), 0);
    assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
    shell_must_conflict(txn);
}

void write_to_unlinked_file_is_replayed(void **state)
{
    TXN_RIG;
    uint64_t end = 0;
    struct store_txn *txn = shell_begin(rig);
    struct view *own = store_txn_view(txn);
    assert_int_equal(shell_append(rig, own, "keep", "k\n"), 0);
    assert_int_equal(shell_make(rig, own, "tmp", S_IFREG | 0644), 0);
    struct store_file *file = shell_open(rig, own, "tmp");
    assert_int_equal(shell_remove(rig, own, "tmp"), 0);
    assert_int_equal(store_write(file, 0, "x\n", 2, 0, &end), 0);
    store_file_close(file);
    shell_must_commit(txn);
    shell_expect(rig, live, "keep", "k\n");
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "keep", "k\n");
}

/* Rows that the transaction cut off again, whose pages the log refers to: what is written behind the close does not go into their blocks, and
 * replay finds them. */
void pages_cut_off_inside_stay_until_a_checkpoint(void **state)
{
    TXN_RIG;
    char *base = shell_rows("base", 100);
    char *cut = shell_rows("cut", 20000);
    char *later = shell_rows("later", 40000);
    const char *const parts[] = {base, "end\n", later};
    assert_int_equal(shell_append(rig, live, "t", base), 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", cut), 0);
    assert_int_equal(shell_truncate_to(rig, store_txn_view(txn), "t", strlen(base)), 0);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", "end\n"), 0);
    shell_must_commit(txn);
    assert_int_equal(shell_append(rig, live, "t", later), 0);
    txn_rig_kill_and_reopen(rig);
    shell_expect_large(rig, store_live(rig->store), "t", parts, ARRAY_COUNT(parts));
    free(base);
    free(cut);
    free(later);
}

struct committer {
    struct store_txn *txn;
    int rc;
};

static void *commit_in_thread(void *arg)
{
    struct committer *committer = arg;
    committer->rc = shell_commit(committer->txn);
    return NULL;
}

/* Whoever makes the file longer stops there, once: inside the gate. */
struct stop {
    const char *path;
    _Atomic bool armed, stopped, may_go_on;
};

static int stop_at_allocation(void *arg, const struct mem_event *event)
{
    struct stop *stop = arg;
    if (event->call == MEM_CALL_ALLOCATE && strcmp(event->path, stop->path) == 0 &&
        atomic_exchange(&stop->armed, false)) {
        atomic_store(&stop->stopped, true);
        while (!atomic_load(&stop->may_go_on)) {
            (void)sched_yield();
        }
    }
    return 0;
}

static void set_stop(struct txn_rig *rig, struct stop *stop, const struct store_file *file)
{
    *stop = (struct stop){.path = relation_file_path(file->relation), .armed = true};
    mem_device_set_hook(rig->mem, stop_at_allocation, stop);
}

static void wait_for_stop(struct stop *stop)
{
    while (!atomic_load(&stop->stopped)) {
        (void)sched_yield();
    }
}

struct writer {
    struct store_file *file;
    const char *text;
    int rc;
};

static void *overwrite_in_thread(void *arg)
{
    struct writer *writer = arg;
    uint64_t end = 0;
    writer->rc = store_write(writer->file, 0, writer->text, strlen(writer->text), 0, &end);
    return NULL;
}

/* The close has counted one rewritten table, and taken a number for it, when another one is overwritten before it gets the gate. */
void table_rewritten_before_the_gate_closes_has_a_number_of_its_own(void **state)
{
    TXN_RIG;
    pthread_t writing;
    pthread_t closing;
    struct stop stop;
    struct store_attr first;
    struct store_attr second;
    struct store_attr later;
    char *text = shell_rows("long", 1000);
    const char *const parts[] = {text};
    assert_int_equal(shell_append(rig, live, "first", "one\n"), 0);
    assert_int_equal(shell_append(rig, live, "second", "one\n"), 0);
    struct committer committer = {.txn = shell_begin(rig)};
    struct view *own = store_txn_view(committer.txn);
    struct writer writer = {.file = shell_open(rig, own, "second"), .text = text};
    assert_int_equal(shell_rewrite(rig, own, "first", "two\n"), 0);
    set_stop(rig, &stop, writer.file);
    assert_int_equal(pthread_create(&writing, NULL, overwrite_in_thread, &writer), 0);
    wait_for_stop(&stop);
    const uint64_t next_ino = atomic_load(&rig->store->next_ino);
    assert_int_equal(pthread_create(&closing, NULL, commit_in_thread, &committer), 0);
    while (atomic_load(&rig->store->next_ino) == next_ino) {
        (void)sched_yield();
    }
    atomic_store(&stop.may_go_on, true);
    assert_int_equal(pthread_join(writing, NULL), 0);
    assert_int_equal(pthread_join(closing, NULL), 0);
    mem_device_set_hook(rig->mem, NULL, NULL);
    assert_int_equal(writer.rc, 0);
    assert_int_equal(committer.rc, 0);
    store_file_close(writer.file);
    store_txn_put(committer.txn);
    assert_int_equal(shell_look(rig, live, "first", &first), 0);
    assert_int_equal(shell_look(rig, live, "second", &second), 0);
    assert_int_not_equal(first.ino, second.ino);
    assert_true(first.ino < atomic_load(&rig->store->next_ino));
    assert_true(second.ino < atomic_load(&rig->store->next_ino));
    assert_int_equal(shell_make(rig, live, "later", S_IFREG | 0644), 0);
    assert_int_equal(shell_look(rig, live, "later", &later), 0);
    assert_int_not_equal(later.ino, second.ino);
    shell_expect_large(rig, live, "second", parts, 1);
    free(text);
}

static int fail_allocation(void *arg, const struct mem_event *event)
{
    return event->call == MEM_CALL_ALLOCATE && strcmp(event->path, arg) == 0 ? -EIO : 0;
}

/* Rows are copied into the others' relation, which cannot grow: nothing came of the removal that was built before, to nobody. */
void failed_close_removes_no_names(void **state)
{
    TXN_RIG;
    char *text = shell_rows("long", 8000);
    assert_int_equal(shell_append(rig, live, "gone", "one\n"), 0);
    assert_int_equal(shell_make(rig, live, "t", S_IFREG | 0644), 0);
    struct store_txn *txn = shell_begin(rig);
    struct store_txn *other = shell_begin(rig);
    assert_int_equal(shell_remove(rig, store_txn_view(txn), "gone"), 0);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "t", text), 0);
    assert_int_equal(shell_move(rig, store_txn_view(other), "gone", "kept"), 0);
    assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
    struct store_file *file = shell_open(rig, live, "t");
    char *path = strdup(relation_file_path(file->relation));
    mem_device_set_hook(rig->mem, fail_allocation, path);
    assert_int_equal(shell_commit(txn), -EIO);
    mem_device_set_hook(rig->mem, NULL, NULL);
    store_file_close(file);
    shell_must_commit(other);
    shell_must_conflict(txn);
    shell_expect(rig, live, "kept", "one\n");
    shell_expect(rig, live, "t", "theirs\n");
    free(path);
    free(text);
}

/* Somebody opens the dropped table between the build and the swap: the second try keeps it for him, and finds no conflict with the first. */
void dropped_table_that_is_opened_meanwhile_is_dropped(void **state)
{
    TXN_RIG;
    pthread_t closing;
    struct stop stop;
    char *text = shell_rows("long", 8000);
    const char *const parts[] = {"theirs\n", text};
    assert_int_equal(shell_append(rig, live, "gone", "one\n"), 0);
    assert_int_equal(shell_make(rig, live, "t", S_IFREG | 0644), 0);
    struct committer committer = {.txn = shell_begin(rig)};
    assert_int_equal(shell_remove(rig, store_txn_view(committer.txn), "gone"), 0);
    assert_int_equal(shell_append(rig, store_txn_view(committer.txn), "t", text), 0);
    assert_int_equal(shell_append(rig, live, "t", "theirs\n"), 0);
    struct store_file *file = shell_open(rig, live, "t");
    set_stop(rig, &stop, file);
    assert_int_equal(pthread_create(&closing, NULL, commit_in_thread, &committer), 0);
    wait_for_stop(&stop);
    struct store_file *reader = shell_open(rig, live, "gone");
    atomic_store(&stop.may_go_on, true);
    assert_int_equal(pthread_join(closing, NULL), 0);
    mem_device_set_hook(rig->mem, NULL, NULL);
    store_file_close(file);
    assert_int_equal(committer.rc, 0);
    store_txn_put(committer.txn);
    shell_expect(rig, live, "gone", NULL);
    shell_expect_file(reader, "one\n");
    store_file_close(reader);
    shell_expect_large(rig, live, "t", parts, 2);
    txn_rig_kill_and_reopen(rig);
    shell_expect(rig, store_live(rig->store), "gone", NULL);
    free(text);
}

/* It is being read when the commit is durable, and closed while the commit waits for that: the commit has the last reference. */
void old_version_closed_while_commit_waits_goes_once(void **state)
{
    TXN_RIG;
    pthread_t closing;
    uint32_t refs = 0;
    assert_int_equal(shell_append(rig, live, "t", "one\n"), 0);
    struct committer committer = {.txn = shell_begin(rig)};
    assert_int_equal(shell_rewrite(rig, store_txn_view(committer.txn), "t", "two\n"), 0);
    struct store_file *reader = shell_open(rig, live, "t");
    rwlock_lock_shared(&reader->lock);
    assert_int_equal(pthread_create(&closing, NULL, commit_in_thread, &committer), 0);
    while (refs != 2) {
        mutex_lock(&rig->store->files_lock);
        refs = reader->refs;
        mutex_unlock(&rig->store->files_lock);
        (void)sched_yield();
    }
    store_file_close(reader);
    rwlock_unlock_shared(&reader->lock);
    assert_int_equal(pthread_join(closing, NULL), 0);
    assert_int_equal(committer.rc, 0);
    store_txn_put(committer.txn);
    shell_expect(rig, live, "t", "two\n");
}
