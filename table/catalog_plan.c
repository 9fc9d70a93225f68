/*
 * table/catalog_plan.c - planning a batch: everything that may fail.
 *
 * The plan is a partial copy of the tree's shape: one plan_page for each page on the way to an edit, and for neighbours
 * that may be needed for a merge. All are pinned, so that apply reads nothing.
 *
 * PLAN-1 plan_page.extra_pages bounds how many pages a page can be split into beyond the first: for a leaf that may
 *        overflow, one for each edit that makes it larger (two halves always suffice for one more item, because an item
 *        takes at most half a page); for an inner page what its children's extra pages need.
 * PLAN-2 Blocks promised, and frames in the budget, are at least one for each pinned page (its copy), one for each
 *        extra page, and those of new roots.
 * PLAN-3 Neighbours are pinned for at most as many pages as there are edits: a merge saves space, none is owed.
 *
 * Locking: the gate, shared, and the view's catalog lock, exclusively, from plan to apply or free.
 */
#include "table/catalog_int.h"

#include <errno.h>
#include <stdlib.h>

#define ASSUMED_HEIGHT 4u

void catalog_frames_needed(unsigned edits, uint32_t *out_pins, uint32_t *out_news)
{
    /* Pages on the ways to the edits; a leaf's neighbour for each. */
    const uint32_t paths = 1 + edits * (ASSUMED_HEIGHT - 1);
    *out_pins = paths + edits;
    /* A copy of each page on the ways; beside each of them but the root one page more: what it is split into, or the
     * copy of a neighbour that it is merged with. The root is split into two below a new one. */
    *out_news = paths + edits * (ASSUMED_HEIGHT - 1) + 2;
}

/* ---- pages ---- */

static struct plan_page *plan_page_add(struct catalog_plan *plan, uint8_t level)
{
    assert(plan->page_count < plan->page_capacity);
    struct plan_page *page = &plan->pages[plan->page_count++];
    *page = (struct plan_page){.level = level};
    return page;
}

static int plan_page_pin(struct catalog_plan *plan, struct page_ptr ptr, uint8_t level,
                         const struct catalog_range *range, struct plan_page **out_page)
{
    if (plan->pinned >= plan->budget->pins) {
        return -E2BIG;
    }
    const struct view *view = plan->batch->view;
    struct frame *frame = NULL;
    const int rc = catalog_page_read(catalog_view_diag(view), view->catalog, ptr, level, range, &frame);
    if (rc != 0) {
        return rc;
    }
    plan->pinned++;
    struct plan_page *page = plan_page_add(plan, level);
    page->frame = frame;
    page->ptr = ptr;
    page->state = PLAN_UNTOUCHED;
    page->low = range->has_low ? range->low : catalog_page_first_key(frame_page(frame));
    page->rightmost = !range->has_high;
    *out_page = page;
    return 0;
}

/* ---- leaves ---- */

static uint32_t old_item_bytes(const struct plan_page *page, const struct catalog_key *key)
{
    unsigned index = 0;
    if (page->state == PLAN_ABSENT || !catalog_leaf_find(frame_page(page->frame), key, &index)) {
        return 0;
    }
    uint16_t size = 0;
    (void)catalog_leaf_value(frame_page(page->frame), index, &size);
    return CATALOG_ITEM_BYTES(size);
}

/* PLAN-1 for a leaf whose edits are known. */
static void plan_leaf(const struct catalog_plan *plan, struct plan_page *page)
{
    uint64_t grow_bytes = 0;
    uint64_t shrink_bytes = 0;
    uint32_t growing_edits = 0;
    for (unsigned i = 0; i < page->edit_count; i++) {
        const struct catalog_edit *edit = plan->edits[page->first_edit + i];
        const uint32_t old_bytes = old_item_bytes(page, &edit->key);
        const uint32_t new_bytes = edit->remove ? 0 : CATALOG_ITEM_BYTES(edit->value_size);
        if (new_bytes > old_bytes) {
            grow_bytes += new_bytes - old_bytes;
            growing_edits++;
        } else {
            shrink_bytes += old_bytes - new_bytes;
        }
    }
    const uint64_t used = page->state == PLAN_ABSENT ? 0 : catalog_page_used(frame_page(page->frame));
    page->extra_pages = used + grow_bytes > PAGE_PAYLOAD_SIZE ? growing_edits : 0;
    page->may_shrink = shrink_bytes > 0 && catalog_leaf_is_small(used + grow_bytes - shrink_bytes);
}

/* ---- inner pages ---- */

static int plan_page_edits(struct catalog_plan *plan, struct page_ptr ptr, uint8_t level,
                           const struct catalog_range *range, unsigned first_edit, unsigned edit_count,
                           struct plan_page **out_page);

/* Plans the children that the edits lead to, one after the other. */
static int plan_children(struct catalog_plan *plan, struct plan_page *page, const struct catalog_range *range)
{
    const void *bytes = frame_page(page->frame);
    const unsigned end = page->first_edit + page->edit_count;
    struct plan_page **link = &page->children;
    unsigned edit = page->first_edit;
    while (edit < end) {
        const unsigned entry = catalog_inner_find(bytes, &plan->edits[edit]->key);
        unsigned next = edit + 1;
        while (next < end && catalog_inner_find(bytes, &plan->edits[next]->key) == entry) {
            next++;
        }
        const struct catalog_range child_range = catalog_inner_child_range(bytes, entry, range);
        struct plan_page *child = NULL;
        const int rc = plan_page_edits(plan, catalog_inner_ptr(bytes, entry), (uint8_t)(page->level - 1), &child_range,
                                       edit, next - edit, &child);
        if (rc != 0) {
            return rc;
        }
        child->entry = entry;
        *link = child;
        link = &child->next;
        edit = next;
    }
    return 0;
}

/* Which entry to pin beside `child` so that it can be merged: false when a neighbour is pinned already, or there is
 * none. */
static bool neighbour_wanted(const struct plan_page *previous, const struct plan_page *child, unsigned entry_count,
                             unsigned *out_entry)
{
    const bool has_left = previous != NULL && previous->entry + 1 == child->entry;
    const bool has_right = child->next != NULL && child->next->entry == child->entry + 1;
    if (has_left || has_right || entry_count == 1) {
        return false;
    }
    *out_entry = child->entry > 0 ? child->entry - 1 : child->entry + 1;
    return true;
}

/* Pins neighbours of children that may become small, and links them in order (PLAN-3). */
static int plan_neighbours(struct catalog_plan *plan, struct plan_page *page, const struct catalog_range *range)
{
    const void *bytes = frame_page(page->frame);
    struct plan_page *previous = NULL;
    for (struct plan_page *child = page->children; child != NULL; child = child->next) {
        unsigned entry = 0;
        if (child->may_shrink && plan->neighbour_count < plan->edit_count &&
            neighbour_wanted(previous, child, catalog_page_count(bytes), &entry)) {
            const struct catalog_range entry_range = catalog_inner_child_range(bytes, entry, range);
            struct plan_page *neighbour = NULL;
            const int rc = plan_page_pin(plan, catalog_inner_ptr(bytes, entry), child->level, &entry_range, &neighbour);
            if (rc != 0) {
                return rc;
            }
            plan->neighbour_count++;
            neighbour->entry = entry;
            struct plan_page **link = entry > child->entry ? &child->next
                                      : previous != NULL   ? &previous->next
                                                           : &page->children;
            neighbour->next = *link;
            *link = neighbour;
        }
        previous = child;
    }
    return 0;
}

static int plan_inner(struct catalog_plan *plan, struct plan_page *page, const struct catalog_range *range)
{
    int rc = plan_children(plan, page, range);
    if (rc == 0) {
        rc = plan_neighbours(plan, page, range);
    }
    if (rc != 0) {
        return rc;
    }
    uint32_t extra = 0;
    uint32_t shrinking = 0;
    for (const struct plan_page *child = page->children; child != NULL; child = child->next) {
        extra += child->extra_pages;
        shrinking += child->may_shrink;
    }
    const uint32_t count = catalog_page_count(frame_page(page->frame));
    page->extra_pages = (count + extra - 1) / CATALOG_FANOUT;
    page->may_shrink = shrinking > 0 && catalog_inner_is_small(count - shrinking);
    return 0;
}

static int plan_page_edits(struct catalog_plan *plan, struct page_ptr ptr, uint8_t level,
                           const struct catalog_range *range, unsigned first_edit, unsigned edit_count,
                           struct plan_page **out_page)
{
    struct plan_page *page = NULL;
    int rc = plan_page_pin(plan, ptr, level, range, &page);
    if (rc != 0) {
        return rc;
    }
    page->first_edit = first_edit;
    page->edit_count = edit_count;
    if (level == 0) {
        plan_leaf(plan, page);
    } else {
        rc = plan_inner(plan, page, range);
    }
    *out_page = page;
    return rc;
}

/* ---- the whole ---- */

static int plan_tree(struct catalog_plan *plan)
{
    const struct catalog_root *root = &plan->batch->view->root;
    if (plan->edit_count == 0) {
        return 0;
    }
    if (root->height > 0) {
        const struct catalog_range all = {0};
        return plan_page_edits(plan, root->ptr, (uint8_t)(root->height - 1), &all, 0, plan->edit_count, &plan->root);
    }
    plan->root = plan_page_add(plan, 0);
    plan->root->state = PLAN_ABSENT;
    plan->root->rightmost = true;
    plan->root->low = plan->edits[0]->key;
    plan->root->edit_count = plan->edit_count;
    plan_leaf(plan, plan->root);
    return 0;
}

/* Pages of new levels above a root that was split. */
static int count_new_roots(const struct catalog_plan *plan, uint32_t *out_pages)
{
    uint32_t pages = 0;
    unsigned height = plan->root->level + 1u;
    for (uint32_t width = 1 + plan->root->extra_pages; width > 1; height++) {
        width = (width + CATALOG_FANOUT - 1) / CATALOG_FANOUT;
        pages += width;
    }
    *out_pages = pages;
    return height <= CATALOG_MAX_HEIGHT ? 0 : -EFBIG;
}

static int plan_memory(struct catalog_plan *plan, uint32_t extra, uint32_t new_roots)
{
    plan->fresh_capacity = extra + new_roots;
    plan->slot_capacity = CATALOG_FANOUT + extra + 1;
    plan->fresh = malloc((plan->fresh_capacity + 1) * sizeof plan->fresh[0]);
    plan->slots = malloc(plan->slot_capacity * sizeof plan->slots[0]);
    if (plan->fresh == NULL || plan->slots == NULL) {
        return -ENOMEM;
    }
    return retire_list_reserve(&plan->retired, plan->batch->view->catalog, plan->page_count);
}

/* PLAN-2 */
static int plan_promises(struct catalog_plan *plan)
{
    if (plan->root == NULL) {
        return 0;
    }
    uint32_t extra = 0;
    for (uint32_t i = 0; i < plan->page_count; i++) {
        extra += plan->pages[i].extra_pages;
    }
    uint32_t new_roots = 0;
    int rc = count_new_roots(plan, &new_roots);
    if (rc == 0) {
        rc = plan_memory(plan, extra, new_roots);
    }
    const uint32_t blocks = plan->page_count + extra + new_roots;
    if (rc == 0 && blocks > plan->budget->news) {
        rc = -E2BIG;
    }
    if (rc == 0) {
        rc = view_reserve(plan->batch->view, plan->batch->view->catalog, blocks);
    }
    if (rc == 0) {
        plan->blocks_promised = blocks;
    }
    return rc;
}

static int plan_make(struct catalog_batch *batch, struct frame_budget *budget, struct catalog_plan **out_plan)
{
    struct catalog_plan *plan = malloc(sizeof *plan);
    if (plan == NULL) {
        return -ENOMEM;
    }
    *plan = (struct catalog_plan){.batch = batch, .budget = budget};
    const struct catalog_key lowest = {0};
    const struct catalog_key highest = {.ino = UINT64_MAX, .sub = UINT64_MAX, .type = UINT8_MAX};
    int rc = catalog_batch_sorted(batch, &lowest, &highest, &plan->edits, &plan->edit_count);
    /* The root; below it a page on each level for each edit; a neighbour for each edit (PLAN-3). */
    plan->page_capacity = 1 + plan->edit_count * (batch->view->root.height + 1u);
    if (rc == 0) {
        plan->pages = malloc(plan->page_capacity * sizeof plan->pages[0]);
        rc = plan->pages != NULL ? 0 : -ENOMEM;
    }
    if (rc != 0) {
        catalog_plan_free(plan);
        return rc;
    }
    *out_plan = plan;
    return 0;
}

int catalog_batch_plan(struct catalog_batch *batch, struct frame_budget *budget)
{
    assert(batch->plan == NULL);
    rwlock_assert_held_exclusive(&batch->view->catalog_lock);
    if (batch->view->kind == VIEW_READ_ONLY) {
        return -EROFS;
    }
    struct catalog_plan *plan = NULL;
    int rc = plan_make(batch, budget, &plan);
    if (rc != 0) {
        return rc;
    }
    rc = plan_tree(plan);
    if (rc == 0) {
        rc = plan_promises(plan);
    }
    if (rc != 0) {
        catalog_plan_free(plan);
        return rc;
    }
    batch->plan = plan;
    return 0;
}

/* Gives back all that the plan holds, except the pins and latches of a plan that was applied, which apply released. */
void catalog_plan_free(struct catalog_plan *plan)
{
    for (uint32_t i = 0; i < plan->page_count; i++) {
        if (plan->pages[i].frame != NULL) {
            page_unpin(plan->pages[i].frame);
        }
    }
    struct view *view = plan->batch->view;
    if (plan->blocks_promised > plan->blocks_taken) {
        view_unreserve(view, view->catalog, plan->blocks_promised - plan->blocks_taken);
    }
    retire_list_free(&plan->retired);
    free(plan->slots);
    free(plan->fresh);
    free(plan->pages);
    free(plan->edits);
    free(plan);
}
