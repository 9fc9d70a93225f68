/*
 * table/content_read.c - reading content: copied, in pinned pieces, ahead, and by kind (lseek).
 *
 * Neighbouring leaves are read in one call (content_walk hands them over node by node). Locking: the file lock, shared;
 * reply pins keep pieces valid without it (CACHE-1).
 */
#include "table/content_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_BATCH 14u /* leaves that content_read has pinned at a time */
static_assert(READ_BATCH + CONTENT_MAX_HEIGHT <= CONTENT_READ_PINS, "content_read keeps its promise");

/* Leaves more than full ones would be that a read in pieces puts up with. */
#define SHORT_LEAVES 8u

/* What holes are sent from. */
#define ZERO_AREA_SIZE 65536u
static const uint8_t zero_area[ZERO_AREA_SIZE];

/* The part of [start, start + bytes) that lies in [from, to). */
static uint64_t clip(uint64_t start, uint64_t bytes, uint64_t from, uint64_t to, uint64_t *out_skip)
{
    const uint64_t first = start > from ? start : from;
    const uint64_t end = start + bytes < to ? start + bytes : to;
    *out_skip = first - start;
    return end - first;
}

/* Where a read of `size` bytes ends. */
static uint64_t read_end(const struct content_root *root, uint64_t offset, uint64_t size)
{
    if (offset >= root->bytes)
        return offset;
    return size < root->bytes - offset ? offset + size : root->bytes;
}

/* ---- copying ---- */

struct copy_job {
    const struct content_tree *tree;
    uint8_t *bytes; /* where `from` goes */
    uint64_t from, to;
};

static int copy_hole(void *arg, uint64_t start, uint64_t bytes)
{
    const struct copy_job *job = arg;
    uint64_t skip = 0;
    const uint64_t size = clip(start, bytes, job->from, job->to, &skip);
    memset(job->bytes + (start + skip - job->from), 0, size);
    return 0;
}

static int copy_batch(const struct copy_job *job, const struct tree_entry *entries, unsigned count,
                      uint64_t *inout_start)
{
    struct frame *frames[READ_BATCH];
    const int err = content_leaves_read(job->tree, entries, count, frames);
    if (err != 0)
        return err;
    for (unsigned i = 0; i < count; i++) {
        uint64_t skip = 0;
        const uint64_t size = clip(*inout_start, entries[i].bytes, job->from, job->to, &skip);
        memcpy(job->bytes + (*inout_start + skip - job->from), content_payload(frames[i]) + skip, size);
        *inout_start += entries[i].bytes;
        page_unpin(frames[i]);
    }
    return 0;
}

static int copy_leaves(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start)
{
    int err = 0;
    for (unsigned done = 0; done < count && err == 0; done += READ_BATCH) {
        const unsigned batch = count - done < READ_BATCH ? count - done : READ_BATCH;
        err = copy_batch(arg, entries + done, batch, &start);
    }
    return err;
}

int content_read(struct relation *relation, const struct content_root *root, uint64_t offset, void *bytes, size_t size,
                 size_t *out_read)
{
    const uint64_t end = read_end(root, offset, size);
    const struct content_tree tree = content_tree_of(relation);
    struct copy_job job = {.tree = &tree, .bytes = bytes, .from = offset, .to = end};
    const struct content_walk walk = {
        .tree = tree, .from = offset, .to = end, .leaves = copy_leaves, .hole = copy_hole, .arg = &job};
    const int err = content_walk(&walk, root);
    if (err == 0)
        *out_read = end - offset;
    return err;
}

/* ---- up to a hole ---- */

struct run_job {
    struct copy_job copy;
    uint64_t read, hole;
};

static int run_leaves(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start)
{
    struct run_job *job = arg;
    uint64_t end = start;
    for (unsigned i = 0; i < count; i++)
        end += entries[i].bytes;
    const int err = copy_leaves(&job->copy, entries, count, start);
    if (err == 0)
        job->read = (end < job->copy.to ? end : job->copy.to) - job->copy.from;
    return err;
}

static int run_hole(void *arg, uint64_t start, uint64_t bytes)
{
    struct run_job *job = arg;
    if (job->read == 0)
        job->hole = start + bytes - job->copy.from;
    return 1;
}

int content_read_run(struct relation *relation, const struct content_root *root, uint64_t offset, void *bytes,
                     size_t size, size_t *out_read, uint64_t *out_hole)
{
    const struct content_tree tree = content_tree_of(relation);
    struct run_job job = {.copy = {.tree = &tree, .bytes = bytes, .from = offset, .to = read_end(root, offset, size)}};
    const struct content_walk walk = {
        .tree = tree, .from = offset, .to = job.copy.to, .leaves = run_leaves, .hole = run_hole, .arg = &job};
    const int err = content_walk(&walk, root);
    if (err < 0)
        return err;
    *out_read = job.read;
    *out_hole = job.hole;
    return 0;
}

/* ---- pieces ---- */

struct piece_job {
    const struct content_tree *tree;
    struct content_pieces *pieces;
    uint64_t from, to;
    uint32_t frame_limit;
};

static int pieces_reserve_iov(struct content_pieces *pieces, uint64_t more)
{
    if (pieces->capacity - pieces->count >= more)
        return 0;
    if (more > 1u << 20)
        return -E2BIG;
    const unsigned capacity = (pieces->count + (unsigned)more) * 2;
    struct iovec *iov = realloc(pieces->iov, capacity * sizeof *iov);
    if (iov == NULL)
        return -ENOMEM;
    pieces->iov = iov;
    pieces->capacity = capacity;
    return 0;
}

static int pieces_reserve_frames(struct content_pieces *pieces, unsigned more)
{
    if (pieces->frame_capacity - pieces->frame_count >= more)
        return 0;
    const unsigned capacity = (pieces->frame_count + more) * 2;
    struct frame **frames = realloc(pieces->frames, capacity * sizeof(struct frame *));
    if (frames == NULL)
        return -ENOMEM;
    pieces->frames = frames;
    pieces->frame_capacity = capacity;
    return 0;
}

static void pieces_add(struct content_pieces *pieces, const void *bytes, uint64_t size)
{
    assert(pieces->count < pieces->capacity);
    /* iovec has no const; nobody writes through a piece */
    pieces->iov[pieces->count++] = (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    pieces->size_bytes += size;
}

static int piece_hole(void *arg, uint64_t start, uint64_t bytes)
{
    const struct piece_job *job = arg;
    uint64_t skip = 0;
    uint64_t left = clip(start, bytes, job->from, job->to, &skip);
    const int err = pieces_reserve_iov(job->pieces, left / ZERO_AREA_SIZE + 1);
    if (err != 0)
        return err;
    while (left > 0) {
        const uint64_t size = left < ZERO_AREA_SIZE ? left : ZERO_AREA_SIZE;
        pieces_add(job->pieces, zero_area, size);
        left -= size;
    }
    return 0;
}

static int piece_leaves(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start)
{
    const struct piece_job *job = arg;
    struct content_pieces *pieces = job->pieces;
    struct frame *frames[CONTENT_WALK_LEAVES];
    if (pieces->frame_count + count > job->frame_limit)
        return -E2BIG;
    int err = pieces_reserve_frames(pieces, count);
    if (err == 0)
        err = pieces_reserve_iov(pieces, count);
    if (err == 0)
        err = content_leaves_read(job->tree, entries, count, frames);
    for (unsigned i = 0; i < count && err == 0; i++) {
        uint64_t skip = 0;
        const uint64_t size = clip(start, entries[i].bytes, job->from, job->to, &skip);
        page_reply_pin(frames[i]);
        page_unpin(frames[i]);
        pieces->frames[pieces->frame_count++] = frames[i];
        pieces_add(pieces, content_payload(frames[i]) + skip, size);
        start += entries[i].bytes;
    }
    return err;
}

uint32_t content_pieces_pins(uint64_t size_bytes)
{
    const uint64_t pins = size_bytes / PAGE_PAYLOAD_SIZE + 2 + SHORT_LEAVES + CONTENT_MAX_HEIGHT;
    return pins < UINT32_MAX ? (uint32_t)pins : UINT32_MAX;
}

int content_read_pieces(struct relation *relation, const struct content_root *root, uint64_t offset, size_t size,
                        struct content_pieces *out_pieces)
{
    const uint64_t end = read_end(root, offset, size);
    const struct content_tree tree = content_tree_of(relation);
    struct content_pieces pieces = {0};
    struct piece_job job = {.tree = &tree,
                            .pieces = &pieces,
                            .from = offset,
                            .to = end,
                            .frame_limit = content_pieces_pins(size) - CONTENT_MAX_HEIGHT};
    const struct content_walk walk = {
        .tree = tree, .from = offset, .to = end, .leaves = piece_leaves, .hole = piece_hole, .arg = &job};
    const int err = content_walk(&walk, root);
    if (err != 0) {
        content_pieces_release(&pieces);
        return err;
    }
    *out_pieces = pieces;
    return 0;
}

void content_pieces_release(struct content_pieces *pieces)
{
    for (unsigned i = 0; i < pieces->frame_count; i++)
        page_reply_unpin(pieces->frames[i]);
    free(pieces->frames);
    free(pieces->iov);
    *pieces = (struct content_pieces){0};
}

/* ---- ahead ---- */

static int ignore_hole(void *arg, uint64_t start, uint64_t bytes)
{
    (void)arg;
    (void)start;
    (void)bytes;
    return 0;
}

struct warm_job {
    struct content_tree tree;
    uint64_t from, to;
};

/* Is a leaf cut by the range, or does it end before it with room for what comes? */
static bool is_wanted(const struct warm_job *job, uint64_t start, uint64_t bytes)
{
    const uint64_t end = start + bytes;
    const bool cut = (start < job->from && job->from < end) || (start < job->to && job->to < end);
    return cut || (end <= job->from && bytes < PAGE_PAYLOAD_SIZE);
}

static int warm_leaves(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start)
{
    const struct warm_job *job = arg;
    int err = 0;
    for (unsigned i = 0; i < count && err == 0; i++) {
        if (is_wanted(job, start, entries[i].bytes)) {
            struct frame *frame = NULL;
            err = content_leaves_read(&job->tree, &entries[i], 1, &frame);
            if (err == 0)
                page_unpin(frame);
        }
        start += entries[i].bytes;
    }
    return err;
}

int content_warm(struct relation *relation, const struct content_root *root, uint64_t from, uint64_t to)
{
    const uint64_t first = from < root->bytes ? from : root->bytes;
    const uint64_t end = to < root->bytes ? to : root->bytes;
    struct warm_job job = {.tree = content_tree_of(relation), .from = first, .to = end};
    const struct content_walk walk = {.tree = job.tree,
                                      .from = first > 0 ? first - 1 : 0,
                                      .to = end < root->bytes ? end + 1 : end,
                                      .leaves = warm_leaves,
                                      .hole = ignore_hole,
                                      .arg = &job};
    return content_walk(&walk, root);
}

/* ---- lseek ---- */

struct seek_job {
    bool hole;
    uint64_t offset;
    uint64_t found;
};

static int seek_stop(struct seek_job *job, uint64_t start)
{
    job->found = start > job->offset ? start : job->offset;
    return 1;
}

static int seek_leaves(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start)
{
    struct seek_job *job = arg;
    (void)entries;
    (void)count;
    return job->hole ? 0 : seek_stop(job, start);
}

static int seek_hole(void *arg, uint64_t start, uint64_t bytes)
{
    struct seek_job *job = arg;
    (void)bytes;
    return job->hole ? seek_stop(job, start) : 0;
}

int content_seek(struct relation *relation, const struct content_root *root, uint64_t offset, bool hole,
                 uint64_t *out_offset)
{
    if (offset >= root->bytes)
        return -ENXIO;
    struct seek_job job = {.hole = hole, .offset = offset};
    const struct content_walk walk = {.tree = content_tree_of(relation),
                                      .from = offset,
                                      .to = root->bytes,
                                      .leaves = seek_leaves,
                                      .hole = seek_hole,
                                      .arg = &job};
    const int err = content_walk(&walk, root);
    if (err < 0)
        return err;
    if (err == 0 && !hole)
        return -ENXIO;
    *out_offset = err == 0 ? root->bytes : job.found;
    return 0;
}
