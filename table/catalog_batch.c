/*
 * table/catalog_batch.c - the edits of a batch, and reading through them.
 *
 * BATCH-1 At most one edit for a key. Edits stay in order of first mention; who needs key order sorts pointers. Finding
 * an edit is linear while they are few; a batch of more than INDEX_FROM edits keeps a hash index.
 *
 * Locking: collecting edits needs none (a batch belongs to one thread); reading needs the view's catalog lock.
 */
#include "table/catalog_int.h"

#include <errno.h>
#include <stdlib.h>

#define INDEX_FROM 32u
#define SLOT_EMPTY UINT32_MAX

void catalog_batch_init(struct catalog_batch *batch, struct view *view)
{
    *batch = (struct catalog_batch){.view = view};
}

void catalog_batch_free(struct catalog_batch *batch)
{
    if (batch->plan != NULL) {
        catalog_plan_free(batch->plan);
    }
    for (unsigned i = 0; i < batch->count; i++) {
        free(batch->edits[i].value);
    }
    free(batch->edits);
    free(batch->index);
    *batch = (struct catalog_batch){.view = batch->view};
}

/* ---- finding an edit ---- */

static uint32_t key_hash(const struct catalog_key *key)
{
    uint64_t mixed = (key->ino * UINT64_C(0x9e3779b97f4a7c15)) ^ (key->sub + key->type);
    mixed = (mixed ^ (mixed >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(mixed >> 32);
}

/* Slot of the key in the index, or the empty slot where it belongs. */
static uint32_t index_slot(const struct catalog_batch *batch, const struct catalog_key *key)
{
    const uint32_t mask = batch->index_size - 1;
    uint32_t slot = key_hash(key) & mask;
    while (batch->index[slot] != SLOT_EMPTY && catalog_key_compare(&batch->edits[batch->index[slot]].key, key) != 0) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

/* The index has room for one more edit, at most half full. */
static int index_grow(struct catalog_batch *batch)
{
    if (batch->count < INDEX_FROM || (batch->count + 1) * 2 <= batch->index_size) {
        return 0;
    }
    const uint32_t size = batch->index_size == 0 ? INDEX_FROM * 4 : batch->index_size * 2;
    uint32_t *index = malloc(size * sizeof index[0]);
    if (index == NULL) {
        return -ENOMEM;
    }
    free(batch->index);
    batch->index = index;
    batch->index_size = size;
    memset(index, 0xff, size * sizeof index[0]);
    for (unsigned i = 0; i < batch->count; i++) {
        index[index_slot(batch, &batch->edits[i].key)] = i;
    }
    return 0;
}

static struct catalog_edit *edit_find(const struct catalog_batch *batch, const struct catalog_key *key)
{
    if (batch->index_size != 0) {
        const uint32_t slot = index_slot(batch, key);
        return batch->index[slot] == SLOT_EMPTY ? NULL : &batch->edits[batch->index[slot]];
    }
    for (unsigned i = 0; i < batch->count; i++) {
        if (catalog_key_compare(&batch->edits[i].key, key) == 0) {
            return &batch->edits[i];
        }
    }
    return NULL;
}

/* ---- collecting ---- */

static int edits_grow(struct catalog_batch *batch)
{
    if (batch->count < batch->capacity) {
        return 0;
    }
    const unsigned capacity = batch->capacity == 0 ? 8 : batch->capacity * 2;
    struct catalog_edit *edits = realloc(batch->edits, capacity * sizeof edits[0]);
    if (edits == NULL) {
        return -ENOMEM;
    }
    batch->edits = edits;
    batch->capacity = capacity;
    return 0;
}

static int edit_find_or_add(struct catalog_batch *batch, const struct catalog_key *key, struct catalog_edit **out_edit)
{
    struct catalog_edit *edit = edit_find(batch, key);
    if (edit == NULL) {
        int rc = edits_grow(batch);
        if (rc == 0) {
            rc = index_grow(batch);
        }
        if (rc != 0) {
            return rc;
        }
        if (batch->index_size != 0) {
            batch->index[index_slot(batch, key)] = batch->count;
        }
        edit = &batch->edits[batch->count++];
        *edit = (struct catalog_edit){.key = *key, .remove = true};
    }
    *out_edit = edit;
    return 0;
}

int catalog_batch_put(struct catalog_batch *batch, const struct catalog_key *key, const void *value, size_t value_size)
{
    assert(batch->plan == NULL);
    if (value_size > CATALOG_MAX_VALUE_SIZE) {
        return -E2BIG;
    }
    if (catalog_item_fault(key, value, value_size) != NULL) {
        return -EINVAL;
    }
    uint8_t *copy = malloc(value_size > 0 ? value_size : 1);
    if (copy == NULL) {
        return -ENOMEM;
    }
    struct catalog_edit *edit = NULL;
    const int rc = edit_find_or_add(batch, key, &edit);
    if (rc != 0) {
        free(copy);
        return rc;
    }
    if (value_size > 0) {
        memcpy(copy, value, value_size);
    }
    free(edit->value);
    edit->value = copy;
    edit->value_size = (uint16_t)value_size;
    edit->remove = false;
    return 0;
}

int catalog_batch_remove(struct catalog_batch *batch, const struct catalog_key *key)
{
    assert(batch->plan == NULL);
    struct catalog_edit *edit = NULL;
    const int rc = edit_find_or_add(batch, key, &edit);
    if (rc != 0) {
        return rc;
    }
    free(edit->value);
    *edit = (struct catalog_edit){.key = *key, .remove = true};
    return 0;
}

/* ---- reading through a batch ---- */

int catalog_batch_get(struct catalog_batch *batch, const struct catalog_key *key, void *buffer, size_t capacity,
                      size_t *out_size)
{
    const struct catalog_edit *edit = edit_find(batch, key);
    if (edit == NULL) {
        return catalog_get(batch->view, key, buffer, capacity, out_size);
    }
    if (edit->remove) {
        return -ENOENT;
    }
    if (edit->value_size > capacity) {
        return -ENOBUFS;
    }
    if (edit->value_size > 0) {
        memcpy(buffer, edit->value, edit->value_size);
    }
    *out_size = edit->value_size;
    return 0;
}

static int compare_edits(const void *a, const void *b)
{
    return catalog_key_compare(&(*(struct catalog_edit *const *)a)->key, &(*(struct catalog_edit *const *)b)->key);
}

int catalog_batch_sorted(const struct catalog_batch *batch, const struct catalog_key *first,
                         const struct catalog_key *last, struct catalog_edit ***out_edits, unsigned *out_count)
{
    struct catalog_edit **sorted = malloc((batch->count + 1) * sizeof(struct catalog_edit *));
    if (sorted == NULL) {
        return -ENOMEM;
    }
    unsigned count = 0;
    for (unsigned i = 0; i < batch->count; i++) {
        const struct catalog_key *key = &batch->edits[i].key;
        if (catalog_key_compare(first, key) <= 0 && catalog_key_compare(key, last) <= 0) {
            sorted[count++] = &batch->edits[i];
        }
    }
    if (count > 1) {
        qsort(sorted, count, sizeof sorted[0], compare_edits);
    }
    *out_edits = sorted;
    *out_count = count;
    return 0;
}

struct overlay {
    struct catalog_edit **edits; /* sorted */
    unsigned next, count;
    catalog_item_fn *fn;
    void *arg;
};

/* Reports the new items among the edits before `limit` (NULL: all that are left). */
static int overlay_report_before(struct overlay *overlay, const struct catalog_key *limit)
{
    int rc = 0;
    while (overlay->next < overlay->count && rc == 0) {
        const struct catalog_edit *edit = overlay->edits[overlay->next];
        if (limit != NULL && catalog_key_compare(&edit->key, limit) >= 0) {
            break;
        }
        overlay->next++;
        if (!edit->remove) {
            rc = overlay->fn(overlay->arg, &edit->key, edit->value, edit->value_size);
        }
    }
    return rc;
}

static int overlay_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct overlay *overlay = arg;
    const int rc = overlay_report_before(overlay, key);
    if (rc != 0) {
        return rc;
    }
    if (overlay->next < overlay->count) {
        const struct catalog_edit *edit = overlay->edits[overlay->next];
        if (catalog_key_compare(&edit->key, key) == 0) {
            overlay->next++;
            return edit->remove ? 0 : overlay->fn(overlay->arg, key, edit->value, edit->value_size);
        }
    }
    return overlay->fn(overlay->arg, key, value, value_size);
}

int catalog_batch_scan(struct catalog_batch *batch, const struct catalog_key *first, const struct catalog_key *last,
                       catalog_item_fn *fn, void *arg)
{
    if (batch->count == 0) {
        return catalog_scan(batch->view, first, last, fn, arg);
    }
    struct overlay overlay = {.fn = fn, .arg = arg};
    int rc = catalog_batch_sorted(batch, first, last, &overlay.edits, &overlay.count);
    if (rc != 0) {
        return rc;
    }
    rc = catalog_scan(batch->view, first, last, overlay_item, &overlay);
    if (rc == 0) {
        rc = overlay_report_before(&overlay, NULL);
    }
    free(overlay.edits);
    return rc;
}
