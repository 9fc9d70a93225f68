/*
 * txn/base_copy.c - copies what one checkpoint reaches, while somebody else keeps it.
 *
 * The data directory is opened as of that checkpoint, read-only and beside whoever has it open: no block that is reached from there is
 * written again (COW-3), and none of its files goes.
 *
 *   roots: of the content of every inode, in the checkpoint's tree and in the snapshots that it names --> sorted by relation
 *   for each relation: the set of its blocks --> they are read in order, looked at, and handed to the sink
 *
 * Locking: none of its own.
 */
#include "txn/base_int.h"
#include "txn/store_map.h"

#include "base/array.h"
#include "base/checksum.h"
#include "bufcache/page_format.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BLOCKS 64u

/* Content of a relation in some version. */
struct content_of {
    rel_no rel;
    ts_no ts;
    struct content_root root;
};

struct base_copy {
    const struct base_copy_options *options;
    struct store *store;
    struct content_of *contents;
    size_t count, capacity;
    struct base_files files;
    uint8_t *chunk;       /* CHUNK_BLOCKS */
    struct io_file *file; /* of the relation that is being copied; NULL: it has no blocks */
    uint64_t checksum;    /* so far */
    char path[BASE_NAME_SIZE + 4300];
};

/* ---- roots ---- */

static int note_inode(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct base_copy *copy = arg;
    struct inode inode;
    if (key->type != ITEM_INODE) {
        return 0;
    }
    const int rc = inode_decode(key, value, value_size, &inode);
    if (rc != 0 || inode.rel == REL_NONE) {
        return rc;
    }
    struct content_of *contents = array_with_room(copy->contents, copy->count, &copy->capacity, sizeof contents[0]);
    if (contents == NULL) {
        return -ENOMEM;
    }
    copy->contents = contents;
    copy->contents[copy->count++] =
        (struct content_of){.rel = inode.rel, .ts = inode.ts, .root = store_content_root(&inode)};
    return 0;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_contents(const void *a, const void *b)
{
    const struct content_of *x = a;
    const struct content_of *y = b;
    int order = compare_u64(x->rel, y->rel);
    order = order != 0 ? order : compare_u64(x->root.ptr.birth, y->root.ptr.birth);
    return order != 0 ? order : compare_u64(x->root.ptr.block, y->root.ptr.block);
}

/* Sorts, and leaves one of those that are the same: most are, in all snapshots. */
static void sort_contents(struct base_copy *copy)
{
    size_t kept = 0;
    if (copy->count > 0) {
        qsort(copy->contents, copy->count, sizeof copy->contents[0], compare_contents);
    }
    for (size_t i = 0; i < copy->count; i++) {
        if (kept == 0 || compare_contents(&copy->contents[kept - 1], &copy->contents[i]) != 0) {
            copy->contents[kept++] = copy->contents[i];
        }
    }
    copy->count = kept;
}

static int note_version(void *arg, struct view *view)
{
    static const struct catalog_key first = {.ino = 0, .type = 0, .sub = 0};
    static const struct catalog_key last = {.ino = UINT64_MAX, .type = UINT8_MAX, .sub = UINT64_MAX};
    struct base_copy *copy = arg;
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = catalog_scan(view, &first, &last, note_inode, copy);
    rwlock_unlock_shared(&view->catalog_lock);
    sort_contents(copy);
    return rc;
}

static void set_total(struct base_copy *copy)
{
    uint64_t leaves = 0;
    for (size_t i = 0; i < copy->count; i++) {
        const bool same = i + 1 < copy->count && copy->contents[i + 1].rel == copy->contents[i].rel;
        leaves += same ? 0 : copy->contents[i].root.leaves;
    }
    if (copy->options->progress != NULL) {
        atomic_store(&copy->options->progress->total_bytes, leaves * BLOCK_SIZE);
    }
}

/* ---- blocks ---- */

static int check_page(struct base_copy *copy, rel_no rel, block_no block, const uint8_t *page)
{
    struct page_header header;
    memcpy(&header, page, sizeof header);
    const bool good =
        le64_get(header.rel) == rel && le32_get(header.block) == block &&
        le64_get(header.checksum) == checksum_64(page + sizeof header.checksum, BLOCK_SIZE - sizeof header.checksum, 0);
    return good ? 0
                : diag_damage(copy->options->diag, copy->path, block, "page",
                              "checksum, relation or block are not right: the base cannot be made; 'tblfs check' tells "
                              "which table it is");
}

static int copy_run(struct base_copy *copy, rel_no rel, block_no first, uint32_t count)
{
    const struct base_copy_options *options = copy->options;
    const size_t size = (size_t)count * BLOCK_SIZE;
    size_t got = 0;
    int rc = io_read_full(copy->file, copy->chunk, size, (uint64_t)first * BLOCK_SIZE, &got);
    if (rc == 0 && got < size) {
        rc = diag_damage(options->diag, copy->path, first, "block", "the file ends before it");
    }
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        const uint8_t *page = copy->chunk + (size_t)i * BLOCK_SIZE;
        rc = check_page(copy, rel, first + i, page);
        copy->checksum = base_checksum_add(copy->checksum, page, BLOCK_SIZE);
    }
    if (rc == 0) {
        rc = options->sink->write(options->sink->arg, copy->chunk, size);
    }
    if (rc == 0 && options->progress != NULL) {
        atomic_fetch_add(&options->progress->done_bytes, size);
    }
    if (rc == 0 && options->throttle != NULL) {
        options->throttle(options->throttle_arg, size);
    }
    return rc;
}

static int copy_blocks(struct base_copy *copy, const struct block_set *set)
{
    int rc = 0;
    for (block_no block = 0; block < set->blocks && rc == 0;) {
        uint32_t count = 0;
        while (count < CHUNK_BLOCKS && block_set_has(set, block + count)) {
            count++;
        }
        rc = count > 0 ? copy_run(copy, relation_number(set->relation), block, count) : 0;
        block += count > 0 ? count : 1;
    }
    return rc;
}

static uint64_t count_blocks(const struct block_set *set)
{
    uint64_t count = 0;
    for (size_t word = 0; word <= set->blocks / 64; word++) {
        count += (unsigned)__builtin_popcountll(set->bits[word]);
    }
    return count;
}

static int copy_set(struct base_copy *copy, const struct block_set *set)
{
    const struct base_copy_options *options = copy->options;
    struct base_file file;
    memset(&file, 0, sizeof file);
    base_file_name(relation_number(set->relation), file.name);
    (void)snprintf(copy->path, sizeof copy->path, "%s", relation_file_path(set->relation)); /* wherever it lies */
    file.size_bytes = count_blocks(set) * BLOCK_SIZE;
    copy->checksum = 0;
    int rc = file.size_bytes > 0 ? io_open(options->dev, copy->path, IO_READ_ONLY, &copy->file) : 0;
    if (rc == 0) {
        rc = options->sink->begin(options->sink->arg, file.name, file.size_bytes);
    }
    if (rc == 0) {
        rc = copy_blocks(copy, set);
    }
    if (rc == 0) {
        rc = options->sink->end(options->sink->arg);
    }
    if (copy->file != NULL) {
        const int close_rc = io_close(copy->file);
        (void)close_rc; /* it was only read */
        copy->file = NULL;
    }
    file.checksum = copy->checksum;
    return rc == 0 ? base_files_add(&copy->files, &file) : rc;
}

/* A relation and the blocks that its contents, [first, end) of the list, reach. */
static int copy_relation(struct base_copy *copy, rel_no rel, size_t first, size_t end)
{
    struct relation *relation = NULL;
    struct block_set set = {.blocks = 0};
    int rc = relation_open(store_cache(copy->store), copy->contents[first].ts, rel, &relation);
    if (rc == 0) {
        rc = block_set_init(&set, relation);
    }
    for (size_t i = first; i < end && rc == 0; i++) {
        rc = block_set_add_content(&set, copy->options->diag, &copy->contents[i].root);
    }
    if (rc == 0) {
        rc = copy_set(copy, &set);
    }
    block_set_free(&set);
    relation_unref(relation);
    return rc;
}

static int copy_contents(struct base_copy *copy)
{
    int rc = 0;
    for (size_t first = 0, end; first < copy->count && rc == 0; first = end) {
        const rel_no rel = copy->contents[first].rel;
        end = first + 1;
        while (end < copy->count && copy->contents[end].rel == rel) {
            end++;
        }
        rc = copy_relation(copy, rel, first, end);
    }
    return rc;
}

struct catalog_blocks {
    struct block_set set;
    struct diag *diag;
};

static int add_catalog(void *arg, struct view *view)
{
    struct catalog_blocks *blocks = arg;
    return block_set_add_catalog(&blocks->set, blocks->diag, &view->root);
}

static int copy_catalog(struct base_copy *copy)
{
    struct catalog_blocks blocks = {.diag = copy->options->diag};
    int rc = block_set_init(&blocks.set, store_live(copy->store)->catalog);
    if (rc == 0) {
        rc = store_each_version(copy->store, add_catalog, &blocks);
    }
    if (rc == 0) {
        rc = copy_set(copy, &blocks.set);
    }
    block_set_free(&blocks.set);
    return rc;
}

/* ---- all of it ---- */

/* BASE-1 */
static int write_manifest(struct base_copy *copy)
{
    const struct base_sink *sink = copy->options->sink;
    base_files_sort(&copy->files);
    char *text = base_manifest_print(copy->options->header, &copy->files);
    if (text == NULL) {
        return -ENOMEM;
    }
    int rc = sink->begin(sink->arg, BASE_MANIFEST, strlen(text));
    if (rc == 0) {
        rc = sink->write(sink->arg, text, strlen(text));
    }
    if (rc == 0) {
        rc = sink->end(sink->arg);
    }
    free(text);
    return rc == 0 ? sink->finish(sink->arg) : rc;
}

static int copy_all(struct base_copy *copy)
{
    int rc = store_each_version(copy->store, note_version, copy);
    if (rc == 0) {
        set_total(copy);
        rc = copy_catalog(copy);
    }
    if (rc == 0) {
        rc = copy_contents(copy);
    }
    return rc == 0 ? write_manifest(copy) : rc;
}

int base_copy(const struct base_copy_options *options)
{
    struct base_copy copy = {.options = options, .chunk = malloc((size_t)CHUNK_BLOCKS * BLOCK_SIZE)};
    const struct store_options open = {.dev = options->dev,
                                       .diag = options->diag,
                                       .dir = options->dir,
                                       .cache_size_bytes = options->cache_size_bytes,
                                       .pinned = &options->header->control};
    int rc = copy.chunk != NULL ? store_open(&open, &copy.store, NULL) : -ENOMEM;
    if (rc == 0) {
        cow_gate_enter(store_cow(copy.store));
        rc = copy_all(&copy);
        cow_gate_leave(store_cow(copy.store));
        store_abandon(copy.store);
    }
    base_files_free(&copy.files);
    free(copy.contents);
    free(copy.chunk);
    return rc;
}
