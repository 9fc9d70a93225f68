/*
 * tests/unit/txn/test_sync_threads.c - store_sync_async: who asks does not wait, one sync serves many, each is answered
 * once, also at the end and after a failure. A sync of the log is held up by the device's hook.
 */
#include "txn/store.h"

#include "base/lock.h"
#include "tests/lib/mem_device.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#define DIR      "/d"
#define REQUESTS 40u

struct rig {
    struct mem_device *mem;
    struct io_device *dev;
    struct diag diag;
    struct store *store;
    struct mutex lock; /* everything below */
    struct condvar changed;
    bool hold;        /* syncs of the log wait */
    unsigned waiting; /* syncs that wait now */
    unsigned done;
    int last_rc;
};

static int hold_log_syncs(void *arg, const struct mem_event *event)
{
    struct rig *rig = arg;
    if (event->call != MEM_CALL_SYNC || strstr(event->path, "/log/") == NULL) {
        return 0;
    }
    mutex_lock(&rig->lock);
    rig->waiting++;
    condvar_broadcast(&rig->changed);
    while (rig->hold) {
        condvar_wait(&rig->changed, &rig->lock);
    }
    rig->waiting--;
    mutex_unlock(&rig->lock);
    return 0;
}

static void open_rig(struct rig *rig, bool background)
{
    memset(rig, 0, sizeof *rig);
    rig->mem = mem_device_create(1);
    rig->dev = mem_device_io(rig->mem);
    mutex_init(&rig->lock, LOCK_RANK_LEAF);
    condvar_init(&rig->changed);
    diag_init_silent(&rig->diag);
    const struct store_mkfs_options mkfs = {.dev = rig->dev, .diag = &rig->diag, .dir = DIR, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    const struct store_options options = {.dev = rig->dev,
                                          .diag = &rig->diag,
                                          .dir = DIR,
                                          .cache_size_bytes = 1,
                                          .background = background,
                                          .checkpoint_interval_ms = 3600000,
                                          .log_segment_size = 1 << 16};
    assert_int_equal(store_open(&options, &rig->store, NULL), 0);
    mem_device_set_hook(rig->mem, hold_log_syncs, rig);
}

static void destroy_rig(struct rig *rig)
{
    mem_device_destroy(rig->mem);
    condvar_destroy(&rig->changed);
    mutex_destroy(&rig->lock);
}

static void close_rig(struct rig *rig)
{
    assert_int_equal(store_close(rig->store), 0);
    destroy_rig(rig);
}

static void make_file(struct rig *rig, const char *name)
{
    struct store_attr attr;
    const struct store_name store_name = {.bytes = name, .size = strlen(name)};
    assert_int_equal(store_create(rig->store, store_live(rig->store), INO_ROOT, store_name, S_IFREG | 0644, 0,
                                  (struct store_who){0}, &attr),
                     0);
}

static void note_done(void *arg, int rc)
{
    struct rig *rig = arg;
    mutex_lock(&rig->lock);
    rig->done++;
    rig->last_rc = rc;
    condvar_broadcast(&rig->changed);
    mutex_unlock(&rig->lock);
}

static void request_syncs(struct rig *rig, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(store_sync_async(rig->store, note_done, rig), 0);
    }
}

static void set_hold(struct rig *rig, bool hold)
{
    mutex_lock(&rig->lock);
    rig->hold = hold;
    condvar_broadcast(&rig->changed);
    mutex_unlock(&rig->lock);
}

static void wait_for(struct rig *rig, const unsigned *counter, unsigned at_least)
{
    mutex_lock(&rig->lock);
    while (*counter < at_least) {
        condvar_wait(&rig->changed, &rig->lock);
    }
    mutex_unlock(&rig->lock);
}

static uint64_t syncs_of(struct rig *rig)
{
    struct store_stats stats;
    store_get_stats(rig->store, &stats);
    return stats.log.syncs;
}

static void sync_async_requests_during_a_sync_share_the_next(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, true);
    const uint64_t before = syncs_of(&rig);
    set_hold(&rig, true);
    make_file(&rig, "first");
    request_syncs(&rig, 1);
    wait_for(&rig, &rig.waiting, 1);
    make_file(&rig, "second"); /* goes on beside a sync */
    request_syncs(&rig, REQUESTS);
    mutex_lock(&rig.lock);
    assert_int_equal(rig.done, 0);
    mutex_unlock(&rig.lock);
    set_hold(&rig, false);
    wait_for(&rig, &rig.done, REQUESTS + 1);
    assert_int_equal(rig.last_rc, 0);
    assert_in_range(syncs_of(&rig) - before, 2, 3); /* the log writer's own round may be one */
    struct store_stats stats;
    store_get_stats(rig.store, &stats);
    assert_true(stats.log.synced >= stats.log.end || stats.log.written == stats.log.end);
    close_rig(&rig);
}

static void sync_async_requests_at_close_are_answered(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, true);
    make_file(&rig, "name");
    request_syncs(&rig, REQUESTS);
    assert_int_equal(store_close(rig.store), 0);
    assert_int_equal(rig.done, REQUESTS);
    assert_int_equal(rig.last_rc, 0);
    destroy_rig(&rig);
}

static void sync_async_of_a_failing_disk_says_so(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, true);
    set_hold(&rig, true);
    make_file(&rig, "name");
    request_syncs(&rig, 1);
    wait_for(&rig, &rig.waiting, 1);
    mem_device_set_hook(rig.mem, NULL, NULL);
    mem_device_fail(rig.mem, MEM_CALL_SYNC, 1, EIO, true);
    make_file(&rig, "other");
    request_syncs(&rig, REQUESTS);
    set_hold(&rig, false);
    wait_for(&rig, &rig.done, REQUESTS + 1);
    assert_int_equal(rig.last_rc, -EIO);
    assert_non_null(store_read_only_reason(rig.store));
    store_abandon(rig.store);
    destroy_rig(&rig);
}

static void sync_async_without_threads_is_done_at_once(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, false);
    make_file(&rig, "name");
    request_syncs(&rig, 1);
    assert_int_equal(rig.done, 1);
    assert_int_equal(rig.last_rc, 0);
    struct store_stats stats;
    store_get_stats(rig.store, &stats);
    assert_int_equal(stats.log.synced, stats.log.end);
    assert_int_equal(stats.log.records, 1);
    close_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_async_requests_during_a_sync_share_the_next),
        cmocka_unit_test(sync_async_requests_at_close_are_answered),
        cmocka_unit_test(sync_async_of_a_failing_disk_says_so),
        cmocka_unit_test(sync_async_without_threads_is_done_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
