/*
 * bench/catalog.c - what the catalog tree costs: time for a get, an insert and a create, pages for a million items.
 *
 *     catalog [ITEMS]     1000000 if not given
 *
 * Works on a device in memory with everything in the page cache, one thread; times are processor time. Each file is an
 * inode and a directory entry under a hashed name, so half of the items ascend and half come in random order.
 */
#include "table/catalog.h"
#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define GETS       1000000u
#define DIRECTORY  ((ino_no)2)
#define FIRST_FILE ((ino_no)1000)
#define CACHE_SIZE (UINT64_C(768) << 20)

struct bench {
    struct mem_device *mem;
    struct diag diag;
    struct bufcache *cache;
    struct relation *catalog;
    struct cow *cow;
    struct view *live;
    struct name_hash hash;
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* others may be using the machine */
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void must(const char *what, int rc)
{
    if (rc != 0) {
        fprintf(stderr, "catalog: %s: %s\n", what, strerror(-rc));
        exit(1);
    }
}

static void bench_open(struct bench *bench)
{
    bench->mem = mem_device_create(1);
    struct io_device *dev = mem_device_io(bench->mem);
    diag_init_stderr(&bench->diag, DIAG_WARNING);
    must("mkdir", io_make_dir(dev, "/d"));
    const struct bufcache_options cache_options = {
        .dev = dev,
        .diag = &bench->diag,
        .cache_size_bytes = CACHE_SIZE,
        .max_open_files = 16,
        .validate =
            {[PAGE_TYPE_CATALOG_LEAF] = catalog_validate_leaf, [PAGE_TYPE_CATALOG_INNER] = catalog_validate_inner},
    };
    must("cache", bufcache_open(&cache_options, &bench->cache));
    must("tablespace", bufcache_tablespace_add(bench->cache, TS_DEFAULT, "/d"));
    must("relation", relation_open(bench->cache, TS_DEFAULT, REL_CATALOG, &bench->catalog));
    must("map", fsm_init_empty(bench->catalog));
    const struct cow_options cow_options = {
        .cache = bench->cache,
        .diag = &bench->diag,
        .dev = dev,
        .epoch = 1,
        .catalog = bench->catalog,
        .root = {.ptr = PAGE_PTR_NONE},
    };
    must("cow", cow_open(&cow_options, &bench->cow));
    bench->live = cow_live(bench->cow);
    bench->hash = (struct name_hash){.seed = 4711, .bits = 47};
}

static void bench_close(struct bench *bench)
{
    cow_close(bench->cow);
    relation_unref(bench->catalog);
    bufcache_close(bench->cache);
    mem_device_destroy(bench->mem);
}

/* Budget, gate, lock, plan, apply: what an operation of the store does. */
static void run(struct bench *bench, struct catalog_batch *batch)
{
    struct frame_budget budget = {0};
    uint32_t pins = 0;
    uint32_t news = 0;
    catalog_frames_needed(batch->count, &pins, &news);
    must("budget", frame_budget_take(bench->cache, pins, news, &budget));
    cow_gate_enter(bench->cow);
    rwlock_lock_exclusive(&bench->live->catalog_lock);
    must("plan", catalog_batch_plan(batch, &budget));
    catalog_batch_apply(batch);
    rwlock_unlock_exclusive(&bench->live->catalog_lock);
    cow_gate_leave(bench->cow);
    frame_budget_release(&budget);
    catalog_batch_free(batch);
}

static void put_inode(struct catalog_batch *batch, uint64_t number)
{
    const struct inode inode = {
        .ino = FIRST_FILE + number, .mode = S_IFREG | 0644, .nlink = 1, .content_ptr = PAGE_PTR_NONE};
    must("put inode", inode_batch_put(batch, &inode));
}

static size_t name_of(char *name, size_t capacity, uint64_t number)
{
    return (size_t)snprintf(name, capacity, "table%07llu.tsv", (unsigned long long)number);
}

static void put_name(struct bench *bench, struct catalog_batch *batch, uint64_t number)
{
    char name[64];
    uint64_t cookie = 0;
    const size_t size = name_of(name, sizeof name, number);
    rwlock_lock_shared(&bench->live->catalog_lock);
    must("cookie", dirent_batch_new_cookie(batch, &bench->hash, DIRECTORY, name, size, &cookie));
    rwlock_unlock_shared(&bench->live->catalog_lock);
    must("put name", dirent_batch_put(batch, DIRECTORY, cookie, name, size, FIRST_FILE + number, S_IFREG >> 12));
}

/* One item a batch, then both a batch. */
static void insert(struct bench *bench, uint64_t files)
{
    const uint64_t third = files / 3;
    double start = seconds();
    struct catalog_batch batch;
    catalog_batch_init(&batch, bench->live);
    for (uint64_t i = 0; i < third; i++) {
        put_inode(&batch, i);
        run(bench, &batch);
    }
    printf("insert ascending     %8.2f us\n", (seconds() - start) * 1e6 / (double)third);
    start = seconds();
    for (uint64_t i = 0; i < third; i++) {
        put_name(bench, &batch, i);
        run(bench, &batch);
    }
    printf("insert hashed        %8.2f us  (with the choice of a cookie)\n", (seconds() - start) * 1e6 / (double)third);
    start = seconds();
    for (uint64_t i = third; i < files; i++) {
        put_inode(&batch, i);
        put_name(bench, &batch, i);
        run(bench, &batch);
    }
    printf("insert both          %8.2f us\n", (seconds() - start) * 1e6 / (double)(files - third));
}

static void get(struct bench *bench, uint64_t files)
{
    struct test_random random;
    struct inode inode;
    struct dirent_found found;
    test_random_init(&random, 1);
    double start = seconds();
    for (unsigned i = 0; i < GETS; i++) {
        rwlock_lock_shared(&bench->live->catalog_lock);
        must("get", inode_get(bench->live, FIRST_FILE + test_random_below(&random, files), &inode));
        rwlock_unlock_shared(&bench->live->catalog_lock);
    }
    printf("get inode, random    %8.2f us\n", (seconds() - start) * 1e6 / GETS);
    start = seconds();
    for (unsigned i = 0; i < GETS; i++) {
        char name[64];
        const size_t size = name_of(name, sizeof name, test_random_below(&random, files));
        rwlock_lock_shared(&bench->live->catalog_lock);
        must("find", dirent_find(bench->live, &bench->hash, DIRECTORY, name, size, &found));
        rwlock_unlock_shared(&bench->live->catalog_lock);
    }
    printf("find name, random    %8.2f us\n", (seconds() - start) * 1e6 / GETS);
    start = seconds();
    for (unsigned i = 0; i < GETS; i++) {
        rwlock_lock_shared(&bench->live->catalog_lock);
        must("get", inode_get(bench->live, FIRST_FILE + i % 100, &inode));
        rwlock_unlock_shared(&bench->live->catalog_lock);
    }
    printf("get inode, few       %8.2f us\n", (seconds() - start) * 1e6 / GETS);
}

static int count_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    (void)key;
    (void)value;
    *(uint64_t *)arg += value_size;
    return 0;
}

static void scan(struct bench *bench, uint64_t items)
{
    const struct catalog_key first = {0};
    const struct catalog_key last = {.ino = UINT64_MAX, .sub = UINT64_MAX, .type = UINT8_MAX};
    uint64_t bytes = 0;
    const double start = seconds();
    rwlock_lock_shared(&bench->live->catalog_lock);
    must("scan", catalog_scan(bench->live, &first, &last, count_item, &bytes));
    rwlock_unlock_shared(&bench->live->catalog_lock);
    printf("scan                 %8.3f us an item\n", (seconds() - start) * 1e6 / (double)items);
    struct fsm_stats stats;
    must("stats", fsm_get_stats(bench->catalog, &stats));
    const double page_bytes = (double)stats.used_blocks * BLOCK_SIZE;
    const double item_bytes = (double)bytes + (double)items * sizeof(struct catalog_item_head);
    printf("pages                %8u     %.1f MB, %.0f bytes an item, %.0f %% full, height %u\n", stats.used_blocks,
           page_bytes / 1e6, page_bytes / (double)items, item_bytes * 100 / page_bytes, bench->live->root.height);
}

int main(int argc, char **argv)
{
    const uint64_t items = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    const uint64_t files = items / 2;
    struct bench bench = {0};
    if (files < 100) {
        fprintf(stderr, "catalog: at least 200 items\n");
        return 2;
    }
    bench_open(&bench);
    printf("%llu items\n", (unsigned long long)files * 2);
    insert(&bench, files);
    get(&bench, files);
    scan(&bench, files * 2);
    bench_close(&bench);
    return 0;
}
