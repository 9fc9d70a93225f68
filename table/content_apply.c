/*
 * table/content_apply.c - the life of a plan: what it takes, and how it ends.
 *
 *     content_plan_* --> plan --content_plan_apply----> edits done, pages unlatched, old pages retired
 *                         |
 *                         +-----content_plan_abandon--> fresh pages discarded, blocks given back, pages unlatched
 *
 * Applying touches only latched pages and the retire list, whose memory is there: it cannot fail.
 */
#include "table/content_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct content_edit *plan_edit(struct content_plan *plan, enum edit_kind kind, struct frame *frame)
{
    if (!view_content_is_private(plan->view, plan->tree.relation, frame_ptr(frame).birth) || !page_try_latch(frame))
        return NULL;
    page_pin_again(frame);
    assert(plan->edit_count < CONTENT_EDITS_MAX);
    struct content_edit *edit = &plan->edits[plan->edit_count++];
    *edit = (struct content_edit){.kind = kind, .frame = frame};
    return edit;
}

int plan_fresh_reserve(struct content_plan *plan, unsigned more)
{
    if (plan->fresh_capacity - plan->fresh_count >= more)
        return 0;
    const unsigned capacity = plan->fresh_count + more + 8;
    struct page_ptr *fresh = realloc(plan->fresh, capacity * sizeof *fresh);
    if (fresh == NULL)
        return -ENOMEM;
    plan->fresh = fresh;
    plan->fresh_capacity = capacity;
    return 0;
}

struct content_root content_plan_root(const struct content_plan *plan)
{
    return plan->root;
}

static void apply_leaf(const struct content_edit *edit)
{
    struct page_header *header = frame_page(edit->frame);
    uint8_t *payload = content_payload(edit->frame);
    const uint32_t used_before = le16_get(header->used);
    memset(payload + edit->offset, 0, edit->zeros);
    if (edit->size > 0)
        memcpy(payload + edit->offset + edit->zeros, edit->bytes, edit->size);
    if (edit->used_bytes < used_before)
        memset(payload + edit->used_bytes, 0, used_before - edit->used_bytes);
    header->used = le16_of((uint16_t)edit->used_bytes);
}

static void apply_node(const struct content_edit *edit)
{
    struct page_header *header = frame_page(edit->frame);
    struct content_entry *entries = (struct content_entry *)content_payload(edit->frame);
    const unsigned before = le16_get(header->count);
    const unsigned tail = before - edit->first - edit->removed;
    const unsigned after = edit->first + edit->inserted.count + tail;
    assert(after >= 1 && after <= CONTENT_FANOUT);
    memmove(&entries[edit->first + edit->inserted.count], &entries[edit->first + edit->removed],
            tail * sizeof *entries);
    for (unsigned i = 0; i < edit->inserted.count; i++) {
        entries[edit->first + i].ptr = disk_page_ptr_of(edit->inserted.entries[i].ptr);
        entries[edit->first + i].bytes = le64_of(edit->inserted.entries[i].bytes);
    }
    if (after < before)
        memset(&entries[after], 0, (before - after) * sizeof *entries);
    header->count = le16_of((uint16_t)after);
    header->used = le16_of((uint16_t)(after * sizeof *entries));
}

static void plan_free(struct content_plan *plan)
{
    for (unsigned i = 0; i < plan->edit_count; i++)
        entry_list_free(&plan->edits[i].inserted);
    retire_list_free(&plan->retire);
    free(plan->fresh);
    free(plan);
}

void content_plan_apply(struct content_plan *plan)
{
    for (unsigned i = 0; i < plan->edit_count; i++) {
        const struct content_edit *edit = &plan->edits[i];
        if (edit->kind == EDIT_LEAF)
            apply_leaf(edit);
        else
            apply_node(edit);
        page_unlatch(edit->frame, true);
        page_unpin(edit->frame);
    }
    if (plan->retire.count > 0)
        view_retire(plan->view, &plan->retire);
    plan_free(plan);
}

void content_plan_abandon(struct content_plan *plan)
{
    if (plan == NULL)
        return;
    for (unsigned i = 0; i < plan->edit_count; i++) {
        page_unlatch(plan->edits[i].frame, false);
        page_unpin(plan->edits[i].frame);
    }
    for (unsigned i = 0; i < plan->fresh_count; i++) {
        page_discard(plan->tree.relation, plan->fresh[i].block);
        view_give_back(plan->view, plan->tree.relation, plan->fresh[i]);
    }
    plan_free(plan);
}
