/*
 * table/content_node.c - reading the pages of a content tree, and finding offsets in it.
 *
 * A page is compared with what the entry that led to it says each time it is read (bytes below), so that a wrong count
 * is damage and never a wrong byte. All else in it was validated when it came from disk.
 */
#include "table/content_int.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int content_damage(const struct content_tree *tree, block_no block, const char *field, uint64_t got, uint64_t want)
{
    if (tree->diag == NULL)
        return -EIO;
    const char *file = tree->relation != NULL ? relation_file_path(tree->relation) : "a table without a relation";
    return diag_damage(tree->diag, file, block, field, "got %" PRIu64 ", want %" PRIu64, got, want);
}

struct content_tree content_tree_of(struct relation *relation)
{
    return (struct content_tree){.relation = relation, .diag = relation != NULL ? relation_diag(relation) : NULL};
}

int content_root_check(const struct content_tree *tree, const struct content_root *root)
{
    const bool none = page_ptr_is_none(root->ptr);
    if (root->height > CONTENT_MAX_HEIGHT || none != (root->height == 0))
        return content_damage(tree, root->ptr.block, "content root height", root->height, none ? 0 : 1);
    if (root->bytes > CONTENT_MAX_BYTES || (root->bytes == 0 && !none))
        return content_damage(tree, root->ptr.block, "content root bytes", root->bytes, CONTENT_MAX_BYTES);
    return 0;
}

static const struct content_entry *node_entries(struct frame *frame)
{
    return (const struct content_entry *)content_payload(frame);
}

uint8_t *content_payload(struct frame *frame)
{
    return (uint8_t *)frame_page(frame) + PAGE_HEADER_SIZE;
}

unsigned content_node_count(struct frame *frame)
{
    const struct page_header *header = frame_page(frame);
    return le16_get(header->count);
}

struct tree_entry content_node_entry(struct frame *frame, unsigned index)
{
    const struct content_entry *entry = &node_entries(frame)[index];
    return (struct tree_entry){.ptr = disk_page_ptr_get(&entry->ptr), .bytes = le64_get(entry->bytes)};
}

int content_node_read(const struct content_tree *tree, const struct tree_entry *entry, unsigned level,
                      struct frame **out_frame)
{
    struct frame *frame = NULL;
    const int err = page_read(tree->relation, entry->ptr, PAGE_TYPE_CONTENT_INNER, (uint8_t)level, &frame);
    if (err != 0)
        return err;
    const struct content_entry *entries = node_entries(frame);
    const unsigned count = content_node_count(frame);
    uint64_t sum = 0; /* validated not to overflow */
    for (unsigned i = 0; i < count; i++)
        sum += le64_get(entries[i].bytes);
    if (sum != entry->bytes) {
        page_unpin(frame);
        return content_damage(tree, entry->ptr.block, "content node sum", sum, entry->bytes);
    }
    *out_frame = frame;
    return 0;
}

static int leaves_check(const struct content_tree *tree, const struct tree_entry *entries, unsigned count,
                        struct frame **frames)
{
    for (unsigned i = 0; i < count; i++) {
        const struct page_header *header = frame_page(frames[i]);
        if (le16_get(header->used) != entries[i].bytes)
            return content_damage(tree, entries[i].ptr.block, "content leaf bytes", le16_get(header->used),
                                  entries[i].bytes);
    }
    return 0;
}

int content_leaves_read(const struct content_tree *tree, const struct tree_entry *entries, unsigned count,
                        struct frame **out_frames)
{
    struct page_ptr ptrs[CONTENT_WALK_LEAVES] = {entries[0].ptr};
    assert(count >= 1 && count <= CONTENT_WALK_LEAVES);
    for (unsigned i = 1; i < count; i++)
        ptrs[i] = entries[i].ptr;
    int err = page_read_many(tree->relation, ptrs, count, PAGE_TYPE_CONTENT_LEAF, 0, out_frames);
    const bool pinned = err == 0;
    if (pinned)
        err = leaves_check(tree, entries, count, out_frames);
    for (unsigned i = 0; err != 0 && i < count; i++) {
        if (pinned)
            page_unpin(out_frames[i]);
        out_frames[i] = NULL; /* callers unpin what is not NULL */
    }
    return err;
}

unsigned content_node_find(struct frame *frame, uint64_t offset, enum content_side side, uint64_t *out_start)
{
    const struct content_entry *entries = node_entries(frame);
    const unsigned count = content_node_count(frame);
    const uint64_t reach = side == SIDE_AFTER ? offset : offset - 1; /* a byte of the entry that is looked for */
    uint64_t start = 0;
    unsigned index = 0;
    for (; index < count; index++) {
        const uint64_t bytes = le64_get(entries[index].bytes);
        if (reach - start < bytes)
            break;
        start += bytes;
    }
    assert(index < count); /* the node's sum was compared with its parent, down from the root */
    *out_start = start;
    return index;
}

int content_find(const struct content_tree *tree, const struct content_root *root, uint64_t offset,
                 enum content_side side, struct content_spot *out_spot)
{
    struct content_spot spot = {.entry = entry_of_root(root), .start = 0};
    for (unsigned level = root->height; level > 1 && !entry_is_hole(&spot.entry); level--) {
        struct frame *frame = NULL;
        const int err = content_node_read(tree, &spot.entry, level - 1, &frame);
        if (err != 0)
            return err;
        uint64_t start = 0;
        const unsigned index = content_node_find(frame, offset - spot.start, side, &start);
        spot.entry = content_node_entry(frame, index);
        spot.start += start;
        page_unpin(frame);
    }
    *out_spot = spot;
    return 0;
}

/* ---- walking ---- */

static int walk_entry(const struct content_walk *walk, const struct tree_entry *entry, unsigned level, uint64_t start);

/* Hands the leaves collected so far on. */
static int walk_flush(const struct content_walk *walk, const struct tree_entry *leaves, unsigned *inout_count,
                      uint64_t end)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < *inout_count; i++)
        bytes += leaves[i].bytes;
    const unsigned count = *inout_count;
    *inout_count = 0;
    return count == 0 ? 0 : walk->leaves(walk->arg, leaves, count, end - bytes);
}

/* The entries of a pinned node whose children are leaves. */
static int walk_leaf_parent(const struct content_walk *walk, struct frame *frame, uint64_t start)
{
    struct tree_entry leaves[CONTENT_WALK_LEAVES];
    unsigned collected = 0;
    const unsigned count = content_node_count(frame);
    int err = 0;
    for (unsigned i = 0; i < count && start < walk->to && err == 0; i++) {
        const struct tree_entry entry = content_node_entry(frame, i);
        if (start + entry.bytes > walk->from) {
            if (entry_is_hole(&entry) || collected == CONTENT_WALK_LEAVES)
                err = walk_flush(walk, leaves, &collected, start);
            if (!entry_is_hole(&entry))
                leaves[collected++] = entry;
            else if (err == 0)
                err = walk->hole(walk->arg, start, entry.bytes);
        }
        start += entry.bytes;
    }
    return err != 0 ? err : walk_flush(walk, leaves, &collected, start);
}

static int walk_node(const struct content_walk *walk, const struct tree_entry *node, unsigned level, uint64_t start)
{
    struct frame *frame = NULL;
    int err = content_node_read(&walk->tree, node, level, &frame);
    if (err != 0)
        return err;
    if (level == 1) {
        err = walk_leaf_parent(walk, frame, start);
    } else {
        const unsigned count = content_node_count(frame);
        for (unsigned i = 0; i < count && start < walk->to && err == 0; i++) {
            const struct tree_entry entry = content_node_entry(frame, i);
            if (start + entry.bytes > walk->from)
                err = walk_entry(walk, &entry, level - 1, start);
            start += entry.bytes;
        }
    }
    page_unpin(frame);
    return err;
}

static int walk_entry(const struct content_walk *walk, const struct tree_entry *entry, unsigned level, uint64_t start)
{
    if (entry_is_hole(entry))
        return walk->hole(walk->arg, start, entry->bytes);
    if (level == 0)
        return walk->leaves(walk->arg, entry, 1, start);
    return walk_node(walk, entry, level, start);
}

int content_walk(const struct content_walk *walk, const struct content_root *root)
{
    const int err = content_root_check(&walk->tree, root);
    if (err != 0 || walk->from >= walk->to || walk->from >= root->bytes)
        return err;
    const struct tree_entry entry = entry_of_root(root);
    return walk_entry(walk, &entry, root->height == 0 ? 0 : root->height - 1u, 0);
}

/* ---- entry lists ---- */

int entry_list_reserve(struct entry_list *list, unsigned more)
{
    if (list->capacity - list->count >= more)
        return 0;
    const unsigned doubled = list->capacity * 2;
    const unsigned needed = list->count + more;
    const unsigned capacity = needed > doubled ? needed : doubled;
    struct tree_entry *entries = realloc(list->entries, capacity * sizeof *entries);
    if (entries == NULL)
        return -ENOMEM;
    list->entries = entries;
    list->capacity = capacity;
    return 0;
}

int entry_list_append(struct entry_list *list, struct tree_entry entry)
{
    const int err = entry_list_reserve(list, 1);
    if (err == 0)
        list->entries[list->count++] = entry;
    return err;
}

void entry_list_remove(struct entry_list *list, unsigned index)
{
    assert(index < list->count);
    list->count--;
    memmove(&list->entries[index], &list->entries[index + 1], (list->count - index) * sizeof list->entries[0]);
}

void entry_list_free(struct entry_list *list)
{
    free(list->entries);
    *list = (struct entry_list){0};
}
