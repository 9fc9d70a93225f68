/*
 * tests/model/map_cases.c - see map_cases.h.
 */
#include "tests/model/map_cases.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

void map_write_at(struct txn_rig *rig, struct view *view, const char *path, uint64_t offset, size_t size)
{
    uint64_t end = 0;
    char *bytes = malloc(size);
    struct store_file *file = shell_open(rig, view, path);
    assert_non_null(bytes);
    memset(bytes, 'w', size);
    assert_int_equal(store_write(file, offset, bytes, size, 0, &end), 0);
    store_file_close(file);
    free(bytes);
}

void map_make_large(struct txn_rig *rig, const char *path)
{
    assert_int_equal(shell_make(rig, store_live(rig->store), path, S_IFREG | 0644), 0);
    for (unsigned i = 0; i < LARGE_LEAVES; i++) {
        map_write_at(rig, store_live(rig->store), path, i * LEAF_BYTES, LEAF_BYTES);
    }
    assert_int_equal(store_checkpoint(rig->store), 0);
    txn_rig_kill_and_reopen(rig);
}

struct relation *map_relation_of(struct txn_rig *rig, const char *path)
{
    struct view *live = store_live(rig->store);
    struct relation *relation = NULL;
    struct store_attr attr;
    struct inode inode;
    assert_int_equal(shell_look(rig, live, path, &attr), 0);
    rwlock_lock_shared(&live->catalog_lock);
    assert_int_equal(inode_get(live, attr.ino, &inode), 0);
    rwlock_unlock_shared(&live->catalog_lock);
    assert_int_equal(relation_open(store_cache(rig->store), inode.ts, inode.rel, &relation), 0);
    return relation;
}

uint64_t map_waiting(struct txn_rig *rig)
{
    struct store_stats stats;
    store_get_stats(rig->store, &stats);
    return stats.maps_waiting;
}

void map_step_until_idle(struct txn_rig *rig)
{
    do {
        store_step(rig->store);
    } while (map_waiting(rig) > 0);
}

static void expect_ready(struct txn_rig *rig, const char *path)
{
    struct relation *relation = map_relation_of(rig, path);
    assert_true(fsm_is_ready(relation));
    relation_unref(relation);
    txn_rig_check(rig);
}

/* Blocks are handed out and freed between the fork and the end, again and again. */
void map_built_while_blocks_change_hands_equals_the_trees(void **state)
{
    struct txn_rig *rig = *state;
    map_make_large(rig, "t");
    struct view *live = store_live(rig->store);
    map_write_at(rig, live, "t", 0, 1);
    store_step(rig->store); /* the fork */
    for (unsigned i = 0; i < 20; i++) {
        map_write_at(rig, live, "t", i * 3 * LEAF_BYTES, 2 * LEAF_BYTES);
        assert_int_equal(store_checkpoint(rig->store), 0);
        txn_rig_check(rig);
    }
    assert_int_equal(map_waiting(rig), 1);
    map_step_until_idle(rig);
    expect_ready(rig, "t");
}

void map_built_beside_a_transaction_has_its_blocks(void **state)
{
    struct txn_rig *rig = *state;
    map_make_large(rig, "t");
    struct view *live = store_live(rig->store);
    struct store_txn *txn = shell_begin(rig);
    map_write_at(rig, store_txn_view(txn), "t", 0, 3 * LEAF_BYTES);
    map_write_at(rig, live, "t", 9 * LEAF_BYTES, LEAF_BYTES);
    map_step_until_idle(rig);
    expect_ready(rig, "t");
    map_write_at(rig, live, "t", 20 * LEAF_BYTES, 9 * LEAF_BYTES);
    txn_rig_check(rig);
    store_txn_abort(txn);
    store_txn_put(txn);
    expect_ready(rig, "t");
}

void map_built_from_the_fork_has_its_blocks(void **state)
{
    struct txn_rig *rig = *state;
    map_make_large(rig, "t");
    map_write_at(rig, store_live(rig->store), "t", 0, 1);
    map_step_until_idle(rig);
    expect_ready(rig, "t");
}

/* It is not in the live tree when its map is to be built. */
void map_of_a_relation_that_comes_back_is_built(void **state)
{
    struct txn_rig *rig = *state;
    struct store_compact_info info;
    map_make_large(rig, "t");
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_compact(rig, "t", &info), 0);
    map_write_at(rig, store_txn_view(txn), "t", 0, 1);
    map_step_until_idle(rig);
    shell_must_commit(txn);
    map_step_until_idle(rig);
    expect_ready(rig, "t");
}

struct closer {
    struct cow *cow;
    struct holder *holder;
};

static void *close_holder(void *arg)
{
    const struct closer *closer = arg;
    cow_holder_close(closer->cow, closer->holder);
    return NULL;
}

#define LOOKS 20000u

void holder_that_is_walked_is_not_closed(void **state)
{
    struct txn_rig *rig = *state;
    struct cow *cow = store_cow(rig->store);
    struct closer closer = {.cow = cow};
    pthread_t thread;
    assert_int_equal(cow_fork(cow, HOLDER_BACKUP, &closer.holder), 0);
    const uint64_t serial = cow_holder_serial(closer.holder);
    const unsigned count = cow_holder_count(cow);
    struct holder *kept = cow_holder_keep(cow, serial);
    assert_ptr_equal(kept, closer.holder);
    assert_false(atomic_load(cow_holder_closing(kept)));
    assert_int_equal(pthread_create(&thread, NULL, close_holder, &closer), 0);
    struct holder *again;
    while ((again = cow_holder_keep(cow, serial)) != NULL) { /* until the close has begun */
        cow_holder_let_go(cow, again);
        sched_yield();
    }
    assert_true(atomic_load(cow_holder_closing(kept))); /* a walk ends then */
    bool is_there = true;
    for (unsigned i = 0; i < LOOKS && is_there; i++) {
        is_there = cow_holder_count(cow) == count;
        sched_yield();
    }
    if (is_there) {
        cow_holder_let_go(cow, kept);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(is_there);
    assert_int_equal(cow_holder_count(cow), count - 1);
}
