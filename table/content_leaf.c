/*
 * table/content_leaf.c - a plan's new leaves: bytes gathered from up to four places become pages of a run of blocks.
 *
 * CONTENT-2: leaves take their blocks before the plan's inner pages do, in one run behind their left neighbour if there
 * is one.
 */
#include "table/content_int.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define BULK_LEAVES 64u /* so many leaves at once are worth writing soon: the data comes from a bulk load */
#define SOON_BATCH  16u

void leaf_source_add(struct leaf_source *source, const void *bytes, uint64_t size)
{
    if (size == 0)
        return;
    assert(source->count < sizeof source->parts / sizeof source->parts[0]);
    source->parts[source->count].bytes = bytes;
    source->parts[source->count].size = size;
    source->count++;
    source->size_bytes += size;
}

/* How far a source has been used. */
struct source_cursor {
    const struct leaf_source *source;
    unsigned part;
    uint64_t offset;
};

static void cursor_copy(struct source_cursor *cursor, uint8_t *target, uint64_t size)
{
    while (size > 0) {
        const uint8_t *bytes = cursor->source->parts[cursor->part].bytes;
        const uint64_t left = cursor->source->parts[cursor->part].size - cursor->offset;
        const uint64_t step = left < size ? left : size;
        if (bytes == NULL)
            memset(target, 0, step);
        else
            memcpy(target, bytes + cursor->offset, step);
        target += step;
        size -= step;
        cursor->offset += step;
        if (step == left) {
            cursor->part++;
            cursor->offset = 0;
        }
    }
}

static struct frame *make_leaf(struct content_plan *plan, struct page_ptr ptr, struct source_cursor *cursor,
                               uint64_t size)
{
    struct frame *frame = page_new(plan->tree.relation, plan->budget, ptr, PAGE_TYPE_CONTENT_LEAF, 0);
    struct page_header *header = frame_page(frame);
    header->used = le16_of((uint16_t)size);
    cursor_copy(cursor, content_payload(frame), size);
    page_unlatch(frame, true);
    return frame;
}

static void unpin_batch(struct frame *const *frames, unsigned count, bool write_soon)
{
    if (write_soon)
        bufcache_write_soon(frames, count);
    for (unsigned i = 0; i < count; i++)
        page_unpin(frames[i]);
}

/* Fills leaves for the blocks at the end of plan->fresh. The last leaf, if it has room left, is not worth writing yet:
 * the next append would have to move it. */
static void fill_leaves(struct content_plan *plan, const struct page_ptr *ptrs, unsigned leaves,
                        const struct leaf_source *source, struct entry_list *list)
{
    struct source_cursor cursor = {.source = source};
    struct frame *batch[SOON_BATCH];
    unsigned batched = 0;
    uint64_t left = source->size_bytes;
    for (unsigned i = 0; i < leaves; i++) {
        const uint64_t size = left < PAGE_PAYLOAD_SIZE ? left : PAGE_PAYLOAD_SIZE;
        struct frame *frame = make_leaf(plan, ptrs[i], &cursor, size);
        list->entries[list->count++] = (struct tree_entry){.ptr = ptrs[i], .bytes = size};
        left -= size;
        if (size == PAGE_PAYLOAD_SIZE)
            batch[batched++] = frame;
        else
            page_unpin(frame);
        if (batched == SOON_BATCH || i + 1 == leaves) {
            unpin_batch(batch, batched, leaves >= BULK_LEAVES);
            batched = 0;
        }
    }
}

int plan_make_leaves(struct content_plan *plan, const struct leaf_source *source, block_no hint,
                     struct entry_list *list)
{
    const uint64_t needed = (source->size_bytes + PAGE_PAYLOAD_SIZE - 1) / PAGE_PAYLOAD_SIZE;
    if (needed > plan->budget->news)
        return -E2BIG;
    const unsigned leaves = (unsigned)needed;
    if (leaves == 0)
        return 0;
    int err = entry_list_reserve(list, leaves);
    if (err == 0)
        err = plan_fresh_reserve(plan, leaves);
    if (err == 0)
        err = view_reserve(plan->view, plan->tree.relation, leaves);
    if (err != 0)
        return err;
    struct page_ptr *ptrs = plan->fresh + plan->fresh_count;
    for (unsigned done = 0; done < leaves;) {
        done += view_allocate_run(plan->view, plan->tree.relation, hint, leaves - done, ptrs + done);
        hint = ptrs[done - 1].block + 1;
    }
    plan->fresh_count += leaves;
    plan->leaves_added += leaves;
    fill_leaves(plan, ptrs, leaves, source, list);
    return 0;
}
