/*
 * table/content_plan.c - what write, resize and punch do to a content tree.
 *
 * Each comes down to: make leaves, find the range [from, to) between whole leaves that they replace, splice. What a cut
 * leaf keeps is gathered into the new leaves. Where a leaf may be changed in place (COW-1), it is: an edit takes the
 * place of a new leaf, and when its size stays the same too, nothing above it changes.
 *
 * PLAN-1 Bytes of the caller are copied into fresh pages at once; those of edits are read when the plan is applied.
 */
#include "table/content_int.h"

#include "table/cow_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define PLAN_PINS 20u /* two paths, two edge leaves, one walk, and some air */
static_assert(PLAN_PINS >= 3 * (CONTENT_MAX_HEIGHT - 1) + 3, "both paths, a walk, edge leaves and a collapse fit");

void content_frames_needed(uint64_t size_bytes, uint32_t *out_pins, uint32_t *out_news)
{
    uint64_t entries = size_bytes / PAGE_PAYLOAD_SIZE + 4; /* leaves: edges on both sides join */
    uint64_t news = entries;
    for (unsigned level = 1; level <= CONTENT_MAX_HEIGHT; level++) {
        /* survivors of two nodes, cut holes on both sides, and the list of the level below */
        entries = (entries + 2 * CONTENT_FANOUT + 2) / CONTENT_FANOUT + 1;
        news += level < CONTENT_MAX_HEIGHT ? entries : 0;
    }
    *out_pins = PLAN_PINS;
    *out_news = news < UINT32_MAX ? (uint32_t)news : UINT32_MAX;
}

static int plan_begin(struct view *view, struct relation *relation, const struct content_root *root,
                      struct frame_budget *budget, struct content_plan **out_plan)
{
    const struct content_tree tree = {.relation = relation, .diag = view->cow->diag};
    const int err = content_root_check(&tree, root);
    if (err != 0)
        return err;
    struct content_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return -ENOMEM;
    plan->view = view;
    plan->tree = tree;
    plan->budget = budget;
    plan->old = plan->root = *root;
    plan->kept_leaf = PAGE_PTR_NONE;
    *out_plan = plan;
    return 0;
}

/* The old number is the disk's word: a wrong one may come out wrong, but not below nothing. */
static void count_leaves(struct content_plan *plan)
{
    const uint64_t sum = (uint64_t)plan->old.leaves + plan->leaves_added;
    const bool any = plan->root.height > 0 && sum > plan->leaves_retired;
    plan->root.leaves = any ? (uint32_t)(sum - plan->leaves_retired) : 0;
}

/* Hands the plan out, or undoes it. */
static int plan_end(struct content_plan *plan, int err, struct content_plan **out_plan)
{
    count_leaves(plan);
    if (err != 0)
        content_plan_abandon(plan);
    else
        *out_plan = plan;
    return err;
}

/* *out_frame is set on success only: page_read_many leaves anything in it. */
static int leaf_read(const struct content_plan *plan, const struct content_spot *spot, struct frame **out_frame)
{
    struct frame *frame = NULL;
    const int err = content_leaves_read(&plan->tree, &spot->entry, 1, &frame);
    if (err == 0)
        *out_frame = frame;
    return err;
}

static uint64_t spot_end(const struct content_spot *spot)
{
    return spot->start + spot->entry.bytes;
}

static bool spot_is_leaf(const struct content_spot *spot)
{
    return spot->entry.bytes > 0 && !entry_is_hole(&spot->entry);
}

/* ---- write ---- */

/* Bytes [at, end) of the content become `zeros` zero bytes and then the caller's. */
struct write_job {
    struct content_plan *plan;
    uint64_t at, end;
    uint64_t hole;  /* bytes of hole between the old end and `at`: at is the old end then */
    uint64_t zeros; /* a gap too small for that */
    const uint8_t *bytes;
    uint64_t size;
    /* Found while planning: */
    struct content_spot left; /* leaf that the first bytes go into; entry.bytes 0: none */
    block_no hint;
    uint64_t from, to; /* what is replaced */
};

static int write_find_left(struct write_job *job)
{
    const struct content_plan *plan = job->plan;
    const uint64_t total = plan->old.bytes;
    struct content_spot spot = {.start = 0};
    int err = 0;
    job->from = job->at < total ? job->at : total;
    if (total == 0)
        return 0;
    if (job->at < total) {
        err = content_find(&plan->tree, &plan->old, job->at, SIDE_AFTER, &spot);
        if (err != 0 || spot_is_leaf(&spot))
            goto out;
        if (spot.start != job->at || spot.start == 0)
            return 0;
    }
    err = content_find(&plan->tree, &plan->old, job->from, SIDE_BEFORE, &spot);
out:
    if (err != 0 || !spot_is_leaf(&spot))
        return err;
    job->hint = spot.entry.ptr.block + 1;
    if (job->hole == 0 && (spot_end(&spot) > job->at || spot.entry.bytes < PAGE_PAYLOAD_SIZE)) {
        job->left = spot;
        job->from = spot.start;
    }
    return 0;
}

/* A gap behind the end: zero bytes when they fit into the last leaf, else a hole. */
static int write_choose_gap(struct write_job *job)
{
    const struct content_plan *plan = job->plan;
    const uint64_t total = plan->old.bytes;
    if (job->at <= total)
        return 0;
    job->hole = job->at - total;
    struct content_spot tail = {.start = 0};
    if (total > 0 && job->hole < PAGE_PAYLOAD_SIZE) {
        const int err = content_find(&plan->tree, &plan->old, total, SIDE_BEFORE, &tail);
        if (err != 0)
            return err;
        if (spot_is_leaf(&tail) && job->hole < PAGE_PAYLOAD_SIZE - tail.entry.bytes) {
            job->zeros = job->hole;
            job->hole = 0;
        }
    }
    job->at = total;
    return 0;
}

/* Is there nothing but holes and the end between the left leaf and the end of what is written? */
static int write_only_holes_follow(const struct write_job *job, bool *out_only_holes)
{
    const struct content_plan *plan = job->plan;
    const uint64_t leaf_end = spot_end(&job->left);
    struct content_spot next = {.start = 0};
    *out_only_holes = job->end <= leaf_end || leaf_end == plan->old.bytes;
    if (*out_only_holes)
        return 0;
    const int err = content_find(&plan->tree, &plan->old, leaf_end, SIDE_AFTER, &next);
    if (err == 0)
        *out_only_holes =
            entry_is_hole(&next.entry) && (job->end <= spot_end(&next) || spot_end(&next) == plan->old.bytes);
    return err;
}

/* What of zeros and bytes is left after the first `done` of both. */
static void write_source_rest(const struct write_job *job, uint64_t done, struct leaf_source *source)
{
    const uint64_t zeros = done < job->zeros ? job->zeros - done : 0;
    const uint64_t skipped = done < job->zeros ? 0 : done - job->zeros;
    leaf_source_add(source, NULL, zeros);
    leaf_source_add(source, job->bytes + skipped, job->size - skipped);
}

/* The left leaf takes what it can in place, new leaves the rest. */
static int write_in_place(struct write_job *job, struct content_edit *edit, struct entry_list *list)
{
    struct content_plan *plan = job->plan;
    const uint64_t used = job->left.entry.bytes;
    const uint64_t offset = job->at - job->left.start;
    const uint64_t wanted = job->zeros + job->size;
    const uint64_t done = wanted < PAGE_PAYLOAD_SIZE - offset ? wanted : PAGE_PAYLOAD_SIZE - offset;
    assert(job->zeros < done);
    edit->offset = (uint32_t)offset;
    edit->zeros = (uint32_t)job->zeros;
    edit->size = (uint32_t)(done - job->zeros);
    edit->bytes = job->bytes;
    edit->used_bytes = (uint32_t)(offset + done > used ? offset + done : used);
    plan->kept_leaf = job->left.entry.ptr;
    const uint64_t leaf_end = spot_end(&job->left);
    const uint64_t old_end = job->end < plan->old.bytes ? job->end : plan->old.bytes;
    job->to = old_end > leaf_end ? old_end : leaf_end;
    const struct tree_entry kept = {.ptr = job->left.entry.ptr, .bytes = edit->used_bytes};
    const int err = entry_list_append(list, kept);
    if (err != 0)
        return err;
    struct leaf_source rest = {.count = 0};
    write_source_rest(job, done, &rest);
    return plan_make_leaves(plan, &rest, job->hint, list);
}

/* The leaf that what is written cuts at its end, or one that it may join. *out_skip: bytes of it that are gone. */
static int write_find_right(struct write_job *job, uint64_t size_so_far, struct content_spot *out_right)
{
    const struct content_plan *plan = job->plan;
    struct content_spot spot = {.start = 0};
    job->to = job->end < plan->old.bytes ? job->end : plan->old.bytes;
    if (job->end >= plan->old.bytes)
        return 0;
    int err = content_find(&plan->tree, &plan->old, job->end, SIDE_BEFORE, &spot);
    if (err == 0 && entry_is_hole(&spot.entry) && spot_end(&spot) == job->end) {
        err = content_find(&plan->tree, &plan->old, job->end, SIDE_AFTER, &spot);
        if (spot.entry.bytes + size_so_far > PAGE_PAYLOAD_SIZE)
            return err;
    }
    if (err == 0 && spot_is_leaf(&spot) && spot_end(&spot) > job->end) {
        *out_right = spot;
        job->to = spot_end(&spot);
    }
    return err;
}

/* New leaves of what the left leaf keeps, the new bytes, and what the right leaf keeps. left_frame may be NULL. */
static int write_anew(struct write_job *job, struct frame *left_frame, struct entry_list *list)
{
    struct leaf_source source = {.count = 0};
    struct content_spot right = {.start = 0};
    struct frame *right_frame = NULL;
    if (left_frame != NULL)
        leaf_source_add(&source, content_payload(left_frame), job->at - job->left.start);
    write_source_rest(job, 0, &source);
    int err = write_find_right(job, source.size_bytes, &right);
    if (err == 0 && spot_is_leaf(&right))
        err = leaf_read(job->plan, &right, &right_frame);
    if (err == 0) {
        if (right_frame != NULL) {
            const uint64_t skip = job->end - right.start;
            leaf_source_add(&source, content_payload(right_frame) + skip, right.entry.bytes - skip);
        }
        err = plan_make_leaves(job->plan, &source, job->hint, list);
    }
    if (right_frame != NULL)
        page_unpin(right_frame);
    return err;
}

static int write_leaves(struct write_job *job, struct entry_list *list)
{
    struct frame *left_frame = NULL;
    struct content_edit *edit = NULL;
    int err = 0;
    if (job->hole > 0)
        err = entry_list_append(list, entry_of_hole(job->hole));
    if (err == 0 && spot_is_leaf(&job->left)) {
        bool only_holes = false;
        err = write_only_holes_follow(job, &only_holes);
        if (err == 0)
            err = leaf_read(job->plan, &job->left, &left_frame);
        if (err == 0 && only_holes)
            edit = plan_edit(job->plan, EDIT_LEAF, left_frame);
    }
    if (err == 0)
        err = edit != NULL ? write_in_place(job, edit, list) : write_anew(job, left_frame, list);
    if (left_frame != NULL)
        page_unpin(left_frame);
    return err;
}

/* See content_plan_bulk. New leaves are the plan's first fresh blocks, in the order of the list. */
static void write_note_bulk(struct write_job *job, uint64_t offset, const struct entry_list *list)
{
    struct content_plan *plan = job->plan;
    if (offset != plan->old.bytes || list->count == 0)
        return;
    const bool joined = spot_is_leaf(&job->left);
    const bool kept = joined && page_ptr_equal(list->entries[0].ptr, job->left.entry.ptr);
    plan->appends = true;
    plan->head_bytes = joined ? list->entries[0].bytes - job->left.entry.bytes : 0;
    plan->full_first = joined && !kept ? 1 : 0;
    for (unsigned i = joined ? 1 : 0; i < list->count && list->entries[i].bytes == PAGE_PAYLOAD_SIZE; i++)
        plan->full_count++;
}

bool content_plan_bulk(const struct content_plan *plan, struct content_bulk *out_bulk)
{
    if (!plan->appends || plan->full_count == 0)
        return false;
    *out_bulk = (struct content_bulk){
        .head_bytes = plan->head_bytes, .leaves = plan->fresh + plan->full_first, .count = plan->full_count};
    return true;
}

/* The list is the left leaf as it stands in the tree: only its bytes changed. */
static bool write_changes_no_entry(const struct write_job *job, const struct entry_list *list)
{
    return list->count == 1 && page_ptr_equal(list->entries[0].ptr, job->left.entry.ptr) &&
           list->entries[0].bytes == job->left.entry.bytes && job->to == spot_end(&job->left);
}

static int write_plan(struct write_job *job)
{
    const uint64_t offset = job->at;
    struct entry_list list = {0};
    int err = write_choose_gap(job);
    if (err == 0)
        err = write_find_left(job);
    if (err == 0)
        err = write_leaves(job, &list);
    if (err == 0)
        write_note_bulk(job, offset, &list);
    if (err == 0 && !write_changes_no_entry(job, &list))
        err = plan_splice(job->plan, job->from, job->to, &list);
    entry_list_free(&list);
    return err;
}

int content_plan_write(struct view *view, struct relation *relation, const struct content_root *root, uint64_t offset,
                       const void *bytes, size_t size, struct frame_budget *budget, struct content_plan **out_plan)
{
    assert(size >= 1);
    if (offset > CONTENT_MAX_BYTES || size > CONTENT_MAX_BYTES - offset)
        return -EFBIG;
    struct content_plan *plan = NULL;
    const int err = plan_begin(view, relation, root, budget, &plan);
    if (err != 0)
        return err;
    struct write_job job = {
        .plan = plan, .at = offset, .end = offset + size, .bytes = bytes, .size = size, .hint = BLOCK_NONE};
    return plan_end(plan, write_plan(&job), out_plan);
}

int content_plan_graft(struct view *view, struct relation *relation, const struct content_root *root,
                       const struct content_leaf *leaves, unsigned count, struct frame_budget *budget,
                       struct content_plan **out_plan)
{
    if (count > (CONTENT_MAX_BYTES - root->bytes) / PAGE_PAYLOAD_SIZE)
        return -EFBIG;
    struct content_plan *plan = NULL;
    int err = plan_begin(view, relation, root, budget, &plan);
    if (err != 0)
        return err;
    struct entry_list list = {0};
    for (unsigned i = 0; i < count && err == 0; i++)
        err = entry_list_append(&list, (struct tree_entry){.ptr = leaves[i].ptr, .bytes = leaves[i].bytes});
    plan->leaves_added = count;
    if (err == 0)
        err = plan_splice(plan, root->bytes, root->bytes, &list);
    entry_list_free(&list);
    return plan_end(plan, err, out_plan);
}

/* ---- resize ---- */

/* What is left of the leaf that is cut at new_bytes: in place, or a new leaf. */
static int resize_cut_leaf(struct content_plan *plan, const struct content_spot *spot, uint64_t new_bytes,
                           struct entry_list *list)
{
    const uint64_t keep = new_bytes - spot->start;
    struct frame *frame = NULL;
    int err = leaf_read(plan, spot, &frame);
    if (err != 0)
        return err;
    struct content_edit *edit = plan_edit(plan, EDIT_LEAF, frame);
    if (edit != NULL) {
        edit->offset = edit->used_bytes = (uint32_t)keep;
        plan->kept_leaf = spot->entry.ptr;
        err = entry_list_append(list, (struct tree_entry){.ptr = spot->entry.ptr, .bytes = keep});
    } else {
        struct leaf_source source = {.count = 0};
        leaf_source_add(&source, content_payload(frame), keep);
        err = plan_make_leaves(plan, &source, spot->entry.ptr.block, list);
    }
    page_unpin(frame);
    return err;
}

static int resize_shrink(struct content_plan *plan, uint64_t new_bytes)
{
    struct content_spot spot = {.start = 0};
    struct entry_list list = {0};
    uint64_t from = new_bytes;
    int err = content_find(&plan->tree, &plan->old, new_bytes, SIDE_AFTER, &spot);
    if (err == 0 && spot_is_leaf(&spot) && spot.start < new_bytes) {
        from = spot.start;
        err = resize_cut_leaf(plan, &spot, new_bytes, &list);
    }
    if (err == 0)
        err = plan_splice(plan, from, plan->old.bytes, &list);
    entry_list_free(&list);
    return err;
}

static int resize_grow(struct content_plan *plan, uint64_t new_bytes)
{
    struct entry_list list = {0};
    int err = entry_list_append(&list, entry_of_hole(new_bytes - plan->old.bytes));
    if (err == 0)
        err = plan_splice(plan, plan->old.bytes, plan->old.bytes, &list);
    entry_list_free(&list);
    return err;
}

int content_plan_resize(struct view *view, struct relation *relation, const struct content_root *root,
                        uint64_t new_bytes, struct frame_budget *budget, struct content_plan **out_plan)
{
    if (new_bytes > CONTENT_MAX_BYTES)
        return -EFBIG;
    struct content_plan *plan = NULL;
    int err = plan_begin(view, relation, root, budget, &plan);
    if (err != 0)
        return err;
    if (new_bytes < root->bytes)
        err = resize_shrink(plan, new_bytes);
    else if (new_bytes > root->bytes)
        err = resize_grow(plan, new_bytes);
    return plan_end(plan, err, out_plan);
}

/* ---- punch ---- */

/* Zeroes [from, to) of a leaf that keeps other bytes. *out_moved: it is a new leaf, appended to the list, else it was
 * done in place and its entry stays. */
static int punch_edge(struct content_plan *plan, const struct content_spot *spot, uint64_t from, uint64_t to,
                      struct entry_list *list, bool *out_moved)
{
    struct frame *frame = NULL;
    int err = leaf_read(plan, spot, &frame);
    if (err != 0)
        return err;
    struct content_edit *edit = plan_edit(plan, EDIT_LEAF, frame);
    *out_moved = edit == NULL;
    if (edit != NULL) {
        edit->offset = (uint32_t)(from - spot->start);
        edit->zeros = (uint32_t)(to - from);
        edit->used_bytes = (uint32_t)spot->entry.bytes;
    } else {
        struct leaf_source source = {.count = 0};
        leaf_source_add(&source, content_payload(frame), from - spot->start);
        leaf_source_add(&source, NULL, to - from);
        leaf_source_add(&source, content_payload(frame) + (to - spot->start), spot_end(spot) - to);
        err = plan_make_leaves(plan, &source, spot->entry.ptr.block, list);
    }
    page_unpin(frame);
    return err;
}

/* What a punch replaces: whole leaves and holes between `from` and `to`, and edges that had to move. */
struct punch_job {
    struct content_plan *plan;
    uint64_t from, to;
    struct entry_list list;
};

/* The leaf that the range begins in, if it keeps bytes before or behind it. *out_inner: where whole entries begin. */
static int punch_left(struct punch_job *job, uint64_t from, uint64_t to, uint64_t *out_inner)
{
    struct content_spot spot = {.start = 0};
    bool moved = false;
    *out_inner = job->from = from;
    int err = content_find(&job->plan->tree, &job->plan->old, from, SIDE_AFTER, &spot);
    if (err != 0 || !spot_is_leaf(&spot) || (spot.start == from && spot_end(&spot) <= to))
        return err;
    const uint64_t end = spot_end(&spot) < to ? spot_end(&spot) : to;
    err = punch_edge(job->plan, &spot, from, end, &job->list, &moved);
    *out_inner = spot_end(&spot);
    job->from = moved ? spot.start : spot_end(&spot);
    return err;
}

/* The leaf that the range ends in. The hole between the edges goes before it. */
static int punch_right(struct punch_job *job, uint64_t inner, uint64_t to)
{
    struct content_spot spot = {.start = 0};
    bool moved = false;
    job->to = inner;
    if (inner >= to)
        return 0;
    int err = content_find(&job->plan->tree, &job->plan->old, to, SIDE_BEFORE, &spot);
    const bool cut = spot_is_leaf(&spot) && spot_end(&spot) > to;
    job->to = cut ? spot.start : to;
    if (err == 0 && inner < job->to)
        err = entry_list_append(&job->list, entry_of_hole(job->to - inner));
    if (err == 0 && cut)
        err = punch_edge(job->plan, &spot, spot.start, to, &job->list, &moved);
    if (moved)
        job->to = spot_end(&spot);
    return err;
}

/* The range is inside one hole. */
static int punch_is_done(const struct content_plan *plan, uint64_t from, uint64_t to, bool *out_done)
{
    struct content_spot spot = {.start = 0};
    const int err = content_find(&plan->tree, &plan->old, from, SIDE_AFTER, &spot);
    *out_done = err == 0 && entry_is_hole(&spot.entry) && to <= spot_end(&spot);
    return err;
}

static int punch_plan(struct content_plan *plan, uint64_t from, uint64_t to)
{
    struct punch_job job = {.plan = plan};
    uint64_t inner = 0;
    bool done = false;
    int err = punch_is_done(plan, from, to, &done);
    if (err != 0 || done)
        return err;
    err = punch_left(&job, from, to, &inner);
    if (err == 0)
        err = punch_right(&job, inner, to);
    if (err == 0 && job.from < job.to)
        err = plan_splice(plan, job.from, job.to, &job.list);
    entry_list_free(&job.list);
    return err;
}

int content_plan_punch(struct view *view, struct relation *relation, const struct content_root *root, uint64_t offset,
                       uint64_t size, struct frame_budget *budget, struct content_plan **out_plan)
{
    struct content_plan *plan = NULL;
    int err = plan_begin(view, relation, root, budget, &plan);
    if (err != 0)
        return err;
    if (size > 0 && offset < root->bytes)
        err = punch_plan(plan, offset, size < root->bytes - offset ? offset + size : root->bytes);
    return plan_end(plan, err, out_plan);
}
