/*
 * bench/sweep.c - what it costs to drop many relations: one sweep for all of them, and one sweep for each.
 *
 *     sweep [FRAMES]                  131072 frames (1 GiB) unless told otherwise
 *
 * Fills the cache with pages of 1,000 relations in turn, drops some of them, fills up again. Prints for each number of
 * victims the time, nanoseconds for each tag read, and for each page discarded (the time of the tags, as the drop of
 * one relation shows it, taken off). Then the membership tests alone, over as many relation numbers as there are
 * frames. The device is the one in memory, and nothing is written: it is the cache that is measured.
 */
#include "bufcache/bufcache_int.h"
#include "tests/lib/mem_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RELATIONS 1000u
#define REPEATS   5u

struct bench {
    struct diag diag;
    struct mem_device *mem;
    struct bufcache *cache;
    uint32_t frames;
    block_no pages; /* of each relation */
    rel_no next_rel;
    struct relation *relations[RELATIONS];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "sweep: %s: %d\n", what, rc);
    exit(1);
}

static int accept_page(struct diag *diag, const char *file, const void *page)
{
    (void)diag;
    (void)file;
    (void)page;
    return 0;
}

static void bench_open(struct bench *bench, uint32_t frames)
{
    diag_init_stderr(&bench->diag, DIAG_WARNING);
    bench->mem = mem_device_create(1);
    must(io_make_dir(mem_device_io(bench->mem), "/data"), "directory");
    const struct bufcache_options options = {.dev = mem_device_io(bench->mem),
                                             .diag = &bench->diag,
                                             .cache_size_bytes = (uint64_t)frames * BLOCK_SIZE,
                                             .max_open_files = 64,
                                             .validate = {[PAGE_TYPE_CONTENT_LEAF] = accept_page}};
    must(bufcache_open(&options, &bench->cache), "open");
    must(bufcache_tablespace_add(bench->cache, TS_DEFAULT, "/data"), "tablespace");
    bench->frames = frames;
    bench->pages = frames / RELATIONS;
    bench->next_rel = 16384;
}

static void fill_page(struct bench *bench, struct relation *relation, block_no block)
{
    struct frame_budget budget;
    must(frame_budget_take(bench->cache, 0, 1, &budget), "budget");
    const struct page_ptr ptr = {.birth = 1, .block = block, .alloc = 1};
    struct frame *frame = page_new(relation, &budget, ptr, PAGE_TYPE_CONTENT_LEAF, 0);
    page_unlatch(frame, true);
    page_unpin(frame);
    frame_budget_release(&budget);
}

/* New relations where there are none, and a page of each in turn, so that victims lie everywhere. */
static void bench_fill(struct bench *bench)
{
    bool missing[RELATIONS];
    for (uint32_t i = 0; i < RELATIONS; i++) {
        missing[i] = bench->relations[i] == NULL;
        if (!missing[i])
            continue;
        must(relation_open(bench->cache, TS_DEFAULT, bench->next_rel++, &bench->relations[i]), "relation");
        must(relation_create_file(bench->relations[i]), "file");
        must(relation_extend(bench->relations[i], bench->frames / 16), "extension");
    }
    for (block_no block = 0; block < bench->pages; block++)
        for (uint32_t i = 0; i < RELATIONS; i++)
            if (missing[i])
                fill_page(bench, bench->relations[i], block);
}

struct sample {
    uint64_t ns, tags, pages;
};

/* Drops `count` relations in `drops` calls. They are spread evenly, the last one included. */
static struct sample bench_drop(struct bench *bench, uint32_t count, uint32_t drops)
{
    struct relation *victims[RELATIONS];
    struct sample sample = {0};
    struct drop_result result;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t slot = (i + 1) * (RELATIONS / count) - 1;
        victims[i] = bench->relations[slot];
        bench->relations[slot] = NULL;
    }
    for (uint32_t i = 0; i < drops; i++) {
        const uint32_t share = count / drops;
        const uint64_t start = now_ns();
        bufcache_drop_relations(bench->cache, victims + i * share, share, &result);
        sample.ns += now_ns() - start;
        sample.tags += result.tags_read;
        sample.pages += result.pages_discarded;
    }
    for (uint32_t i = 0; i < count; i++) {
        must(relation_unlink_file(victims[i]), "unlink");
        relation_unref(victims[i]);
    }
    return sample;
}

/* The fastest of some, each from a full cache. */
static struct sample bench_best(struct bench *bench, uint32_t count, uint32_t drops)
{
    struct sample best = {.ns = UINT64_MAX};
    for (unsigned i = 0; i < REPEATS; i++) {
        bench_fill(bench);
        const struct sample sample = bench_drop(bench, count, drops);
        if (sample.ns < best.ns)
            best = sample;
    }
    return best;
}

static void bench_drops(struct bench *bench)
{
    static const struct {
        uint32_t victims, drops;
    } cases[] = {{1, 1}, {4, 1}, {5, 1}, {20, 1}, {100, 1}, {500, 1}, {1000, 1}, {1000, 10}, {1000, 1000}};
    double tag_ns = 0;
    printf("%8s %8s %12s %10s %10s %8s %12s\n", "victims", "drops", "tags", "pages", "ms", "ns/tag", "ns/page");
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const struct sample sample = bench_best(bench, cases[i].victims, cases[i].drops);
        const double ns = (double)sample.ns;
        if (i == 0)
            tag_ns = (ns - 100.0 * (double)sample.pages) / (double)sample.tags;
        printf("%8u %8u %12" PRIu64 " %10" PRIu64 " %10.3f %8.2f %12.1f\n", cases[i].victims, cases[i].drops,
               sample.tags, sample.pages, ns / 1e6, ns / (double)sample.tags,
               (ns - tag_ns * (double)sample.tags) / (double)sample.pages);
    }
}

/* ---- membership tests ---- */

typedef bool member_fn(const void *set, rel_no rel);

struct sorted {
    uint32_t count;
    rel_no *rels;
};

static bool member_linear(const void *set_void, rel_no rel)
{
    const struct sorted *set = set_void;
    bool found = false;
    for (uint32_t i = 0; i < set->count; i++)
        found |= set->rels[i] == rel;
    return found;
}

static bool member_sorted(const void *set_void, rel_no rel)
{
    const struct sorted *set = set_void;
    uint32_t low = 0, high = set->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (set->rels[middle] < rel)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->count && set->rels[low] == rel;
}

static bool member_table(const void *set, rel_no rel)
{
    return victim_set_has(set, rel);
}

static double member_ns(const struct frame_tag *tags, uint32_t count, member_fn *fn, const void *set)
{
    uint64_t best = UINT64_MAX;
    volatile uint32_t found_keep = 0;
    for (unsigned repeat = 0; repeat < REPEATS; repeat++) {
        uint32_t found = 0;
        const uint64_t start = now_ns();
        for (uint32_t i = 0; i < count; i++)
            found += fn(set, atomic_load_explicit(&tags[i].rel, memory_order_relaxed));
        const uint64_t ns = now_ns() - start;
        found_keep = found;
        if (ns < best)
            best = ns;
    }
    (void)found_keep;
    return (double)best / count;
}

/* The victims come first in the order of creation, so `rels` is sorted. Half of the relations are victims at most. */
static void bench_members(struct bench *bench)
{
    static const uint32_t counts[] = {1, 2, 4, 8, 16, 20, 32, 64, 250, 500};
    rel_no rels[RELATIONS];
    bench_fill(bench);
    printf("\n%8s %14s %14s %14s   ns for each tag\n", "victims", "linear", "sorted", "table");
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        const struct sorted sorted = {.count = counts[i], .rels = rels};
        struct victim_set table;
        for (uint32_t v = 0; v < counts[i]; v++)
            rels[v] = bench->relations[v]->rel;
        must(victim_set_init(&table, bench->relations, counts[i]), "set");
        printf("%8u %14.2f %14.2f %14.2f\n", counts[i],
               member_ns(bench->cache->tags, bench->frames, member_linear, &sorted),
               member_ns(bench->cache->tags, bench->frames, member_sorted, &sorted),
               member_ns(bench->cache->tags, bench->frames, member_table, &table));
        victim_set_free(&table);
    }
}

int main(int argc, char **argv)
{
    static struct bench bench;
    const unsigned long frames = argc > 1 ? strtoul(argv[1], NULL, 10) : 131072;
    if (frames < 4 * RELATIONS || frames > 1u << 24) {
        fprintf(stderr, "sweep: %s: want 4000 to 16777216 frames\n", argc > 1 ? argv[1] : "?");
        return 1;
    }
    bench_open(&bench, (uint32_t)frames);
    bench_drops(&bench);
    bench_members(&bench);
    for (uint32_t i = 0; i < RELATIONS; i++)
        relation_unref(bench.relations[i]);
    bufcache_close(bench.cache);
    mem_device_destroy(bench.mem);
    return 0;
}
