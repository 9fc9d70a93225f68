/*
 * table/content_visit.c - going over all pages of a content tree: for counting, retiring and checking.
 */
#include "table/content_int.h"

#include <assert.h>
#include <errno.h>

/* The children of a pinned node. */
static int visit_children(const struct content_tree *tree, struct frame *frame, unsigned level,
                          bool (*skip)(void *arg, struct page_ptr ptr), content_visit_fn *fn, void *arg)
{
    const unsigned count = content_node_count(frame);
    for (unsigned i = 0; i < count; i++) {
        const struct tree_entry entry = content_node_entry(frame, i);
        const int err = content_visit_entry(tree, &entry, level - 1, skip, fn, arg);
        if (err != 0)
            return err;
    }
    return 0;
}

int content_visit_entry(const struct content_tree *tree, const struct tree_entry *entry, unsigned level,
                        bool (*skip)(void *arg, struct page_ptr ptr), content_visit_fn *fn, void *arg)
{
    if (entry_is_hole(entry))
        return 0;
    if (level > 0 && skip != NULL && skip(arg, entry->ptr))
        return 0;
    if (level == 0)
        return fn(arg, entry->ptr, 0);
    struct frame *frame = NULL;
    int err = content_node_read(tree, entry, level, &frame);
    if (err != 0)
        return err;
    err = fn(arg, entry->ptr, (uint8_t)level);
    if (err == 0)
        err = visit_children(tree, frame, level, skip, fn, arg);
    page_unpin(frame);
    return err;
}

int content_visit(struct relation *relation, const struct content_root *root,
                  bool (*skip)(void *arg, struct page_ptr ptr), content_visit_fn *fn, void *arg)
{
    const struct content_tree tree = content_tree_of(relation);
    const int err = content_root_check(&tree, root);
    if (err != 0 || root->height == 0)
        return err;
    const struct tree_entry entry = entry_of_root(root);
    return content_visit_entry(&tree, &entry, root->height - 1u, skip, fn, arg);
}

static int each_page(const struct content_tree *tree, const struct tree_entry *entry, unsigned level,
                     content_page_fn *fn, void *arg)
{
    struct frame *frame = NULL;
    if (entry_is_hole(entry))
        return 0;
    int err = fn(arg, entry->ptr, (uint8_t)level, entry->bytes);
    if (err == 0 && level > 0)
        err = content_node_read(tree, entry, level, &frame);
    if (err != 0 || level == 0)
        return err;
    const unsigned count = content_node_count(frame);
    for (unsigned i = 0; i < count && err == 0; i++) {
        const struct tree_entry child = content_node_entry(frame, i);
        err = each_page(tree, &child, level - 1, fn, arg);
    }
    page_unpin(frame);
    return err;
}

int content_each_page(struct relation *relation, const struct content_root *root, content_page_fn *fn, void *arg)
{
    const struct content_tree tree = content_tree_of(relation);
    const int err = content_root_check(&tree, root);
    if (err != 0 || root->height == 0)
        return err;
    const struct tree_entry entry = entry_of_root(root);
    return each_page(&tree, &entry, root->height - 1u, fn, arg);
}

static int count_page(void *arg, struct page_ptr ptr, uint8_t level)
{
    uint64_t *blocks = arg;
    (void)ptr;
    (void)level;
    ++*blocks;
    return 0;
}

int content_count_blocks(struct relation *relation, const struct content_root *root, uint64_t *out_blocks)
{
    uint64_t blocks = 0;
    const int err = content_visit(relation, root, NULL, count_page, &blocks);
    if (err == 0)
        *out_blocks = blocks;
    return err;
}

struct retire_job {
    struct relation *relation;
    struct retire_list *list;
};

static int retire_page(void *arg, struct page_ptr ptr, uint8_t level)
{
    const struct retire_job *job = arg;
    (void)level;
    const int err = retire_list_reserve(job->list, job->relation, 1);
    if (err == 0)
        retire_list_add(job->list, ptr);
    return err;
}

int content_retire_all(struct relation *relation, const struct content_root *root, struct retire_list *list)
{
    struct retire_job job = {.relation = relation, .list = list};
    return content_visit(relation, root, NULL, retire_page, &job);
}

/* ---- check: CONTENT-1 ---- */

#define CHECK_BATCH 16u

struct check_job {
    struct content_tree tree;
    uint64_t leaves;
};

/* Reading a node compares its sum with its parent's entry, reading a leaf its size: reading everything is the check. */
static int check_leaves(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start)
{
    struct check_job *job = arg;
    (void)start;
    job->leaves += count;
    for (unsigned done = 0; done < count; done += CHECK_BATCH) {
        struct frame *frames[CHECK_BATCH];
        const unsigned batch = count - done < CHECK_BATCH ? count - done : CHECK_BATCH;
        const int err = content_leaves_read(&job->tree, entries + done, batch, frames);
        if (err != 0)
            return err;
        for (unsigned i = 0; i < batch; i++)
            page_unpin(frames[i]);
    }
    return 0;
}

static int check_hole(void *arg, uint64_t start, uint64_t bytes)
{
    (void)arg;
    (void)start;
    (void)bytes;
    return 0;
}

int content_check(struct diag *diag, struct relation *relation, const struct content_root *root)
{
    struct check_job job = {.tree = {.relation = relation, .diag = diag}};
    const struct content_walk walk = {
        .tree = job.tree, .from = 0, .to = root->bytes, .leaves = check_leaves, .hole = check_hole, .arg = &job};
    const int err = content_walk(&walk, root);
    if (err == 0 && job.leaves != root->leaves)
        return content_damage(&job.tree, root->ptr.block, "content leaves", root->leaves, job.leaves);
    return err;
}

/* ---- leaves in order ---- */

struct leaf_job {
    content_leaf_fn *fn;
    void *arg;
};

static int hand_out_leaves(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start)
{
    const struct leaf_job *job = arg;
    struct content_leaf leaves[CONTENT_WALK_LEAVES];
    for (unsigned i = 0; i < count; i++)
        leaves[i] = (struct content_leaf){.ptr = entries[i].ptr, .bytes = (uint32_t)entries[i].bytes};
    return job->fn(job->arg, leaves, count, start);
}

static int refuse_hole(void *arg, uint64_t start, uint64_t bytes)
{
    (void)arg;
    (void)start;
    (void)bytes;
    return -ENODATA;
}

int content_each_leaf(struct relation *relation, const struct content_root *root, uint64_t from, content_leaf_fn *fn,
                      void *arg)
{
    struct leaf_job job = {.fn = fn, .arg = arg};
    const struct content_walk walk = {.tree = content_tree_of(relation),
                                      .from = from,
                                      .to = root->bytes,
                                      .leaves = hand_out_leaves,
                                      .hole = refuse_hole,
                                      .arg = &job};
    return from < root->bytes ? content_walk(&walk, root) : 0;
}

/* ---- how it lies in the file ---- */

static int shape_leaves(void *arg, const struct tree_entry *entries, unsigned count, uint64_t start)
{
    struct content_shape *shape = arg;
    for (unsigned i = 0; i < count; i++) {
        const block_no block = entries[i].ptr.block;
        const bool seen = start < shape->seen_bytes; /* the look before this one ended inside it */
        start += entries[i].bytes;
        if (seen)
            continue;
        shape->runs += shape->leaves == 0 || block != shape->behind;
        shape->leaves++;
        shape->leaf_bytes += entries[i].bytes;
        shape->stretch_bytes += entries[i].bytes;
        shape->behind = block + 1;
        shape->seen_bytes = start;
    }
    return 0;
}

static int shape_hole(void *arg, uint64_t start, uint64_t bytes)
{
    struct content_shape *shape = arg;
    shape->least_leaves = content_shape_least_leaves(shape);
    shape->stretch_bytes = 0;
    if (start + bytes > shape->seen_bytes)
        shape->seen_bytes = start + bytes;
    return 0;
}

uint64_t content_shape_least_leaves(const struct content_shape *shape)
{
    return shape->least_leaves + (shape->stretch_bytes + PAGE_PAYLOAD_SIZE - 1) / PAGE_PAYLOAD_SIZE;
}

int content_add_shape(struct relation *relation, const struct content_root *root, uint64_t span,
                      struct content_shape *shape)
{
    const uint64_t from = shape->seen_bytes;
    const uint64_t left = from < root->bytes ? root->bytes - from : 0;
    const struct content_walk walk = {.tree = content_tree_of(relation),
                                      .from = from,
                                      .to = from + (span < left ? span : left),
                                      .leaves = shape_leaves,
                                      .hole = shape_hole,
                                      .arg = shape};
    return left > 0 ? content_walk(&walk, root) : 0;
}
