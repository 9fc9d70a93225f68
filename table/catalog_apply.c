/*
 * table/catalog_apply.c - applying a planned batch: nothing here can fail.
 *
 *     UNTOUCHED --page_make_writable, private and latched--> LATCHED --page_drop--> GONE (block retired)
 *         |  |                                                                       ^
 *         |  +----------------page_drop----------------------------------------------+
 *         +--page_make_writable, else--> FRESH (copy; the old block is retired) --page_drop--> GONE (given back)
 *     ABSENT --page_make_writable------> FRESH <--page_fresh-- (a split)
 *
 * Leaves first, then their parents: apply_page changes a page and everything below it and leaves the outcome in the
 * plan: the page itself, moved or gone, and the pages that were split off (split_next). The parent then gathers its
 * entries anew from that (slots), merges small neighbours, and writes them to as many pages as they need.
 *
 * APPLY-1 A page made here stays pinned and latched until the end of the batch, one changed in place too: nobody writes
 *         it back half changed.
 * APPLY-2 No more blocks and frames are taken than were promised (asserted).
 * APPLY-3 What leaves the tree is retired after all pins and latches are gone.
 *
 * Locking: the gate, shared; the view's catalog lock, exclusively.
 */
#include "table/catalog_int.h"

#include <stdlib.h>

/* ---- pages ---- */

static struct page_ptr take_block(struct catalog_plan *plan, block_no hint)
{
    struct view *view = plan->batch->view;
    assert(plan->blocks_taken < plan->blocks_promised && plan->budget->news > 0);
    plan->blocks_taken++;
    return view_allocate(view, view->catalog, hint);
}

static void page_attach_new(struct catalog_plan *plan, struct plan_page *page, block_no hint)
{
    const uint8_t type = page->level == 0 ? PAGE_TYPE_CATALOG_LEAF : PAGE_TYPE_CATALOG_INNER;
    page->ptr = take_block(plan, hint);
    page->frame = page_new(plan->batch->view->catalog, plan->budget, page->ptr, type, page->level);
    page->state = PLAN_FRESH;
    page->latch_held = true;
}

/* A page right of `left`, to be linked by the caller. */
static struct plan_page *page_fresh(struct catalog_plan *plan, uint8_t level, block_no hint)
{
    assert(plan->fresh_count < plan->fresh_capacity);
    struct plan_page *page = &plan->fresh[plan->fresh_count++];
    *page = (struct plan_page){.level = level};
    page_attach_new(plan, page, hint);
    return page;
}

static void page_copy(struct catalog_plan *plan, struct plan_page *page)
{
    struct frame *old_frame = page->frame;
    const struct page_ptr old_ptr = page->ptr;
    page_attach_new(plan, page, old_ptr.block + 1);
    struct page_header *to = frame_page(page->frame);
    const struct page_header *from = frame_page(old_frame);
    to->used = from->used;
    to->count = from->count;
    memcpy(to + 1, from + 1, PAGE_PAYLOAD_SIZE);
    page_unpin(old_frame);
    retire_list_add(&plan->retired, old_ptr);
}

/* COW-1 */
static void page_make_writable(struct catalog_plan *plan, struct plan_page *page)
{
    switch (page->state) {
    case PLAN_LATCHED:
    case PLAN_FRESH:
        return;
    case PLAN_ABSENT:
        page_attach_new(plan, page, 0);
        return;
    case PLAN_UNTOUCHED:
        if (view_birth_is_private(plan->batch->view, page->ptr.birth) && page_try_latch(page->frame)) {
            page->state = PLAN_LATCHED;
            page->latch_held = true;
        } else {
            page_copy(plan, page);
        }
        return;
    case PLAN_GONE:
    default:
        assert(false);
    }
}

static void page_drop(struct catalog_plan *plan, struct plan_page *page)
{
    if (page->state == PLAN_FRESH) {
        page_forget(page->frame, plan->budget);
        page->frame = NULL;
        page->latch_held = false;
        view_give_back(plan->batch->view, plan->batch->view->catalog, page->ptr);
    } else {
        assert(page->state == PLAN_UNTOUCHED || page->state == PLAN_LATCHED);
        retire_list_add(&plan->retired, page->ptr);
    }
    page->state = PLAN_GONE;
}

static bool page_is_in_tree(const struct plan_page *page)
{
    return page->state != PLAN_GONE && page->state != PLAN_ABSENT;
}

static bool page_is_writable(const struct plan_page *page)
{
    return page->state == PLAN_LATCHED || page->state == PLAN_FRESH;
}

static void page_lower(struct plan_page *page, const struct catalog_key *key)
{
    if (catalog_key_compare(key, &page->low) < 0) {
        page->low = *key;
    }
}

static void page_link_split(struct plan_page *left, struct plan_page *right)
{
    right->split_next = left->split_next;
    right->rightmost = left->rightmost;
    left->split_next = right;
    left->rightmost = false;
}

/* ---- leaves ---- */

static uint32_t item_bytes(const void *bytes, unsigned index)
{
    uint16_t size = 0;
    (void)catalog_leaf_value(bytes, index, &size);
    return CATALOG_ITEM_BYTES(size);
}

/* Where to cut the items of a full leaf, one of new_bytes inserted at `index`: how many go left. At the right end of
 * the tree the left page stays full, else both get as near half as the items allow. */
static unsigned choose_cut(const struct plan_page *page, unsigned index, uint32_t new_bytes)
{
    const void *bytes = frame_page(page->frame);
    const unsigned count = catalog_page_count(bytes);
    if (page->rightmost && index == count) {
        return count;
    }
    const uint32_t total = catalog_page_used(bytes) + new_bytes;
    uint32_t left = 0;
    uint32_t best_larger = UINT32_MAX;
    unsigned best_cut = 0;
    for (unsigned cut = 1; cut <= count; cut++) {
        const unsigned last = cut - 1;
        left += last < index ? item_bytes(bytes, last) : last == index ? new_bytes : item_bytes(bytes, last - 1);
        const uint32_t larger = left > total - left ? left : total - left;
        if (larger < best_larger) {
            best_larger = larger;
            best_cut = cut;
        }
    }
    assert(best_larger <= PAGE_PAYLOAD_SIZE); /* PLAN-1 */
    return best_cut;
}

static void leaf_split_insert(struct catalog_plan *plan, struct plan_page *left, unsigned index,
                              const struct catalog_edit *edit)
{
    const unsigned cut = choose_cut(left, index, CATALOG_ITEM_BYTES(edit->value_size));
    struct plan_page *right = page_fresh(plan, 0, left->ptr.block + 1);
    page_link_split(left, right);
    void *left_bytes = frame_page(left->frame);
    void *right_bytes = frame_page(right->frame);
    const bool goes_left = index < cut;
    const unsigned keep = goes_left ? cut - 1 : cut;
    catalog_leaf_append(right_bytes, left_bytes, keep);
    catalog_leaf_truncate(left_bytes, keep);
    catalog_leaf_insert(goes_left ? left_bytes : right_bytes, goes_left ? index : index - cut, &edit->key, edit->value,
                        edit->value_size);
    right->low = catalog_leaf_key(right_bytes, 0);
}

static bool leaf_has_value(const struct plan_page *page, unsigned index, const struct catalog_edit *edit)
{
    uint16_t size = 0;
    const uint8_t *value = catalog_leaf_value(frame_page(page->frame), index, &size);
    return size == edit->value_size && memcmp(value, edit->value, size) == 0;
}

static void leaf_put(struct catalog_plan *plan, struct plan_page *page, const struct catalog_edit *edit, bool found,
                     unsigned index)
{
    if (found && leaf_has_value(page, index, edit)) {
        return;
    }
    page_make_writable(plan, page);
    void *bytes = frame_page(page->frame);
    if (found && item_bytes(bytes, index) == CATALOG_ITEM_BYTES(edit->value_size)) {
        catalog_leaf_overwrite(bytes, index, edit->value, edit->value_size);
        return;
    }
    if (found) {
        catalog_leaf_remove(bytes, index);
    }
    page_lower(page, &edit->key);
    if (catalog_page_used(bytes) + CATALOG_ITEM_BYTES(edit->value_size) <= PAGE_PAYLOAD_SIZE) {
        catalog_leaf_insert(bytes, index, &edit->key, edit->value, edit->value_size);
    } else {
        leaf_split_insert(plan, page, index, edit);
    }
}

static void leaf_edit(struct catalog_plan *plan, struct plan_page *page, const struct catalog_edit *edit)
{
    unsigned index = 0;
    const bool found = page->state != PLAN_ABSENT && catalog_leaf_find(frame_page(page->frame), &edit->key, &index);
    if (!edit->remove) {
        leaf_put(plan, page, edit, found, index);
    } else if (found) {
        page_make_writable(plan, page);
        catalog_leaf_remove(frame_page(page->frame), index);
    }
}

static void apply_leaf(struct catalog_plan *plan, struct plan_page *page)
{
    struct plan_page *piece = page;
    for (unsigned i = 0; i < page->edit_count; i++) {
        const struct catalog_edit *edit = plan->edits[page->first_edit + i];
        while (piece->split_next != NULL && catalog_key_compare(&piece->split_next->low, &edit->key) <= 0) {
            piece = piece->split_next;
        }
        leaf_edit(plan, piece, edit);
    }
    for (piece = page; piece != NULL; piece = piece->split_next) {
        if (page_is_writable(piece) && catalog_page_count(frame_page(piece->frame)) == 0) {
            page_drop(plan, piece);
        }
    }
}

/* ---- merging ---- */

static bool slot_is_small(const struct plan_slot *slot)
{
    if (slot->page == NULL || !page_is_writable(slot->page)) {
        return false;
    }
    const void *bytes = frame_page(slot->page->frame);
    return slot->page->level == 0 ? catalog_leaf_is_small(catalog_page_used(bytes))
                                  : catalog_inner_is_small(catalog_page_count(bytes));
}

static bool slots_can_merge(const struct plan_slot *left, const struct plan_slot *right)
{
    if (left->page == NULL || right->page == NULL) {
        return false;
    }
    const void *left_bytes = frame_page(left->page->frame);
    const void *right_bytes = frame_page(right->page->frame);
    return left->page->level == 0 ? catalog_page_used(left_bytes) + catalog_page_used(right_bytes) <= PAGE_PAYLOAD_SIZE
                                  : catalog_page_count(left_bytes) + catalog_page_count(right_bytes) <= CATALOG_FANOUT;
}

/* The right page's content moves to the end of the left page; its slot is removed. */
static void merge_with_next(struct catalog_plan *plan, unsigned left_index, unsigned *inout_count)
{
    struct plan_slot *left = &plan->slots[left_index];
    struct plan_page *right_page = left[1].page;
    page_make_writable(plan, left->page);
    left->ptr = left->page->ptr;
    left->page->rightmost = right_page->rightmost;
    void *to = frame_page(left->page->frame);
    const void *from = frame_page(right_page->frame);
    if (left->page->level == 0) {
        catalog_leaf_append(to, from, 0);
    } else {
        for (unsigned i = 0; i < catalog_page_count(from); i++) {
            const struct catalog_key key = catalog_inner_key(from, i);
            catalog_inner_append(to, &key, catalog_inner_ptr(from, i));
        }
    }
    page_drop(plan, right_page);
    memmove(left + 1, left + 2, (*inout_count - left_index - 2) * sizeof *left);
    (*inout_count)--;
}

/* True: something was merged. */
static bool merge_slots(struct catalog_plan *plan, unsigned *inout_count)
{
    const unsigned count_before = *inout_count;
    unsigned i = 0;
    while (i < *inout_count) {
        const struct plan_slot *slot = &plan->slots[i];
        const bool is_small = slot_is_small(slot);
        if (is_small && i > 0 && slots_can_merge(slot - 1, slot)) {
            merge_with_next(plan, --i, inout_count);
        } else if (is_small && i + 1 < *inout_count && slots_can_merge(slot, slot + 1)) {
            merge_with_next(plan, i, inout_count);
        } else {
            i++;
        }
    }
    return *inout_count != count_before;
}

/* ---- inner pages ---- */

static void slot_add(struct catalog_plan *plan, unsigned *inout_count, const struct catalog_key *key,
                     struct page_ptr ptr, struct plan_page *page)
{
    assert(*inout_count < plan->slot_capacity);
    plan->slots[(*inout_count)++] = (struct plan_slot){.key = *key, .ptr = ptr, .page = page};
}

/* What became of a page: itself and what was split off, as far as they are in the tree. */
static void slots_add_pieces(struct catalog_plan *plan, unsigned *inout_count, struct plan_page *page)
{
    for (struct plan_page *piece = page; piece != NULL; piece = piece->split_next) {
        if (page_is_in_tree(piece)) {
            slot_add(plan, inout_count, &piece->low, piece->ptr, piece);
        }
    }
}

/* The page's entries as they have to be now. */
static unsigned slots_gather(struct catalog_plan *plan, const struct plan_page *page)
{
    const void *bytes = frame_page(page->frame);
    struct plan_page *child = page->children;
    unsigned count = 0;
    for (unsigned i = 0; i < catalog_page_count(bytes); i++) {
        if (child != NULL && child->entry == i) {
            slots_add_pieces(plan, &count, child);
            child = child->next;
        } else {
            const struct catalog_key key = catalog_inner_key(bytes, i);
            slot_add(plan, &count, &key, catalog_inner_ptr(bytes, i), NULL);
        }
    }
    assert(child == NULL);
    return count;
}

static void inner_fill(struct plan_page *page, const struct plan_slot *slots, unsigned count)
{
    void *bytes = frame_page(page->frame);
    catalog_inner_clear(bytes);
    for (unsigned i = 0; i < count; i++) {
        catalog_inner_append(bytes, &slots[i].key, slots[i].ptr);
    }
}

/* Writes the slots to the page, and what it cannot hold to new pages right of it: evenly, but at the right end of the
 * tree the left pages stay full. */
static void inner_write(struct catalog_plan *plan, struct plan_page *page, unsigned count)
{
    const struct plan_slot *slots = plan->slots;
    const unsigned pages = (count + CATALOG_FANOUT - 1) / CATALOG_FANOUT;
    const bool pack = page->rightmost && slots[count - 1].page != NULL && slots[count - 1].page->state == PLAN_FRESH;
    page_lower(page, &slots[0].key);
    unsigned done = 0;
    for (unsigned i = 0; i < pages; i++) {
        const unsigned left = count - done;
        const unsigned even = (left + pages - i - 1) / (pages - i);
        const unsigned share = !pack ? even : left < CATALOG_FANOUT ? left : CATALOG_FANOUT;
        if (i > 0) {
            struct plan_page *right = page_fresh(plan, page->level, page->ptr.block + 1);
            right->low = slots[done].key;
            page_link_split(page, right);
            page = right;
        }
        inner_fill(page, &slots[done], share);
        done += share;
    }
    assert(done == count);
}

static bool child_has_changed(const struct plan_page *page, const struct plan_page *child)
{
    const void *bytes = frame_page(page->frame);
    const struct catalog_key key = catalog_inner_key(bytes, child->entry);
    return child->state == PLAN_GONE || child->split_next != NULL ||
           child->ptr.block != catalog_inner_ptr(bytes, child->entry).block ||
           catalog_key_compare(&key, &child->low) != 0;
}

static void apply_inner(struct catalog_plan *plan, struct plan_page *page);

static void apply_page(struct catalog_plan *plan, struct plan_page *page)
{
    if (page->level == 0) {
        apply_leaf(plan, page);
    } else {
        apply_inner(plan, page);
    }
}

static void apply_inner(struct catalog_plan *plan, struct plan_page *page)
{
    bool changed = false;
    bool may_merge = false;
    for (struct plan_page *child = page->children; child != NULL; child = child->next) {
        apply_page(plan, child);
        changed |= child_has_changed(page, child);
        may_merge |= child->may_shrink;
    }
    if (!changed && !may_merge) {
        return;
    }
    unsigned count = slots_gather(plan, page);
    if (may_merge) {
        changed |= merge_slots(plan, &count);
    }
    if (count == 0) {
        page_drop(plan, page);
    } else if (changed) {
        page_make_writable(plan, page);
        inner_write(plan, page, count);
    }
}

/* ---- the root ---- */

static struct plan_page *find_in_tree(const struct catalog_plan *plan, struct page_ptr ptr)
{
    for (uint32_t i = 0; i < plan->page_count; i++) {
        if (page_is_in_tree(&plan->pages[i]) && plan->pages[i].ptr.block == ptr.block) {
            return &plan->pages[i];
        }
    }
    for (uint32_t i = 0; i < plan->fresh_count; i++) {
        if (page_is_in_tree(&plan->fresh[i]) && plan->fresh[i].ptr.block == ptr.block) {
            return &plan->fresh[i];
        }
    }
    return NULL;
}

/* Puts a new level above the slots. Returns how many slots there are then. */
static unsigned grow_root(struct catalog_plan *plan, uint8_t level, unsigned count)
{
    struct plan_page *root = page_fresh(plan, level, plan->slots[0].ptr.block + 1);
    root->low = plan->slots[0].key;
    root->rightmost = true;
    inner_write(plan, root, count);
    unsigned above = 0;
    slots_add_pieces(plan, &above, root);
    return above;
}

/* CATALOG-2: a page with a single entry is no root. */
static struct catalog_root shrink_root(struct catalog_plan *plan, struct catalog_root root)
{
    struct plan_page *page = find_in_tree(plan, root.ptr);
    while (root.height > 1 && page != NULL && catalog_page_count(frame_page(page->frame)) == 1) {
        root.ptr = catalog_inner_ptr(frame_page(page->frame), 0);
        root.height--;
        page_drop(plan, page);
        page = find_in_tree(plan, root.ptr);
    }
    return root;
}

static struct catalog_root apply_tree(struct catalog_plan *plan)
{
    apply_page(plan, plan->root);
    uint8_t height = (uint8_t)(plan->root->level + 1);
    unsigned count = 0;
    slots_add_pieces(plan, &count, plan->root);
    while (count > 1) {
        count = grow_root(plan, height, count);
        height++;
    }
    if (count == 0) {
        return (struct catalog_root){.ptr = PAGE_PTR_NONE, .height = 0};
    }
    return shrink_root(plan, (struct catalog_root){.ptr = plan->slots[0].ptr, .height = height});
}

static void release_pages(struct plan_page *pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct plan_page *page = &pages[i];
        if (page->frame == NULL) {
            continue;
        }
        if (page->latch_held) {
            page_unlatch(page->frame, true);
        }
        page_unpin(page->frame);
        page->frame = NULL;
    }
}

void catalog_batch_apply(struct catalog_batch *batch)
{
    struct catalog_plan *plan = batch->plan;
    struct view *view = batch->view;
    assert(plan != NULL);
    rwlock_assert_held_exclusive(&view->catalog_lock);
    if (plan->root != NULL) {
        view->root = apply_tree(plan);
        release_pages(plan->pages, plan->page_count);
        release_pages(plan->fresh, plan->fresh_count);
        view_retire(view, &plan->retired); /* APPLY-3 */
    }
    batch->plan = NULL;
    catalog_plan_free(plan);
}
