/*
 * txn/store_sync.c - making the log durable: for who waits for it, for who wants to be called, and on its own.
 *
 *   store_sync_async --queue--> log thread: takes all that wait --one log_sync_all--> done() of each
 *
 * SYNC-1 Every request that was taken is answered exactly once, by the log thread, holding no lock; those in the queue
 *        when the store closes too.
 * SYNC-2 A request is taken before the sync that serves it begins. Requests that come while one is under way wait for
 *        the next: however many they are, two syncs serve them.
 *
 * Locking: thread_lock (LOCK_RANK_LEAF) for the queue.
 */
#include "txn/store_int.h"

#include <errno.h>
#include <stdlib.h>

#define LOG_PERIOD_MS 200u

struct sync_request {
    struct sync_request *next;
    void (*done)(void *arg, int rc);
    void *arg;
};

int store_sync(struct store *store)
{
    if (store->read_only || store->log == NULL) {
        return 0;
    }
    const int rc = log_sync_all(store->log);
    if (rc != 0) {
        store_fail(store, "the log could not be made durable", rc);
    }
    return rc;
}

/* False: there is no log thread to serve it. */
static bool enqueue(struct store *store, struct sync_request *request)
{
    mutex_lock(&store->thread_lock);
    const bool served = store->log_thread_runs && !store->thread_stop;
    if (served) {
        struct sync_request **last = &store->sync_requests;
        if (store->sync_last != NULL) {
            last = &store->sync_last->next;
        }
        *last = request;
        store->sync_last = request;
        condvar_signal(&store->sync_wake);
    }
    mutex_unlock(&store->thread_lock);
    return served;
}

int store_sync_async(struct store *store, void (*done)(void *arg, int rc), void *arg)
{
    struct sync_request *request = malloc(sizeof *request);
    if (request == NULL) {
        return -ENOMEM;
    }
    *request = (struct sync_request){.done = done, .arg = arg};
    if (!enqueue(store, request)) {
        free(request);
        done(arg, store_sync(store));
    }
    return 0;
}

static void serve(struct store *store, struct sync_request *request)
{
    if (request == NULL) {
        return;
    }
    const int rc = store_sync(store);
    lock_assert_none_held();
    while (request != NULL) {
        struct sync_request *next = request->next;
        request->done(request->arg, rc);
        free(request);
        request = next;
    }
}

void store_log_step(struct store *store)
{
    const int rc = atomic_load(&store->failure) == NULL ? log_step(store->log) : 0;
    if (rc != 0) {
        store_fail(store, "the log could not be made durable", rc);
    }
}

/* Waits for requests, one period at most, and takes them. False: the store is closing. */
static bool wait_for_requests(struct store *store, struct sync_request **out_requests)
{
    mutex_lock(&store->thread_lock);
    if (!store->thread_stop && store->sync_requests == NULL) {
        (void)condvar_wait_ms(&store->sync_wake, &store->thread_lock, LOG_PERIOD_MS);
    }
    const bool go_on = !store->thread_stop;
    *out_requests = store->sync_requests;
    store->sync_requests = NULL;
    store->sync_last = NULL;
    mutex_unlock(&store->thread_lock);
    return go_on;
}

void *store_log_thread(void *arg)
{
    struct store *store = arg;
    uint64_t stepped_ns = io_monotonic_ns(store->dev);
    bool go_on = true;
    while (go_on) {
        struct sync_request *requests = NULL;
        go_on = wait_for_requests(store, &requests);
        serve(store, requests);
        const uint64_t now_ns = io_monotonic_ns(store->dev);
        if (go_on && now_ns - stepped_ns >= LOG_PERIOD_MS * UINT64_C(1000000)) {
            store_log_step(store);
            stepped_ns = now_ns;
        }
    }
    return NULL;
}
