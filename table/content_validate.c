/*
 * table/content_validate.c - is a page of a content tree well-formed? Called once for each page read from disk.
 *
 * What only the parent knows (bytes below) is compared where the page is read through the parent: content_node.c.
 */
#include "table/content.h"

#include <assert.h>

static int field_damage(struct diag *diag, const char *file, const struct page_header *header, const char *field,
                        uint64_t got)
{
    return diag_damage(diag, file, le32_get(header->block), field, "got %llu", (unsigned long long)got);
}

int content_validate_leaf(struct diag *diag, const char *file, const void *page)
{
    const struct page_header *header = page;
    const uint16_t used = le16_get(header->used);
    if (header->type != PAGE_TYPE_CONTENT_LEAF)
        return field_damage(diag, file, header, "content leaf type", header->type);
    if (header->level != 0)
        return field_damage(diag, file, header, "content leaf level", header->level);
    if (used == 0 || used > PAGE_PAYLOAD_SIZE)
        return field_damage(diag, file, header, "content leaf used bytes", used);
    if (le16_get(header->count) != 0)
        return field_damage(diag, file, header, "content leaf count", le16_get(header->count));
    if (le16_get(header->reserved) != 0)
        return field_damage(diag, file, header, "content leaf reserved field", le16_get(header->reserved));
    return 0;
}

static int validate_entry(struct diag *diag, const char *file, const struct page_header *header,
                          const struct content_entry *entry, uint64_t *inout_sum)
{
    const struct page_ptr ptr = disk_page_ptr_get(&entry->ptr);
    const uint64_t bytes = le64_get(entry->bytes);
    if (bytes == 0 || bytes > CONTENT_MAX_BYTES || *inout_sum > CONTENT_MAX_BYTES - bytes)
        return field_damage(diag, file, header, "content entry bytes", bytes);
    *inout_sum += bytes;
    const bool hole = page_ptr_is_none(ptr);
    if (hole != (ptr.alloc == 0))
        return field_damage(diag, file, header, "content entry allocation number", ptr.alloc);
    if (hole != (ptr.birth == 0))
        return field_damage(diag, file, header, "content entry birth", ptr.birth);
    if (header->level == 1 && !hole && bytes > PAGE_PAYLOAD_SIZE)
        return field_damage(diag, file, header, "content entry bytes of a leaf", bytes);
    return 0;
}

int content_validate_inner(struct diag *diag, const char *file, const void *page)
{
    const struct page_header *header = page;
    const struct content_entry *entries = (const struct content_entry *)(header + 1);
    const unsigned count = le16_get(header->count);
    if (header->type != PAGE_TYPE_CONTENT_INNER)
        return field_damage(diag, file, header, "content node type", header->type);
    if (header->level == 0 || header->level >= CONTENT_MAX_HEIGHT)
        return field_damage(diag, file, header, "content node level", header->level);
    if (count == 0 || count > CONTENT_FANOUT)
        return field_damage(diag, file, header, "content node count", count);
    if (le16_get(header->used) != count * sizeof *entries)
        return field_damage(diag, file, header, "content node used bytes", le16_get(header->used));
    if (le16_get(header->reserved) != 0)
        return field_damage(diag, file, header, "content node reserved field", le16_get(header->reserved));
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++) {
        const int err = validate_entry(diag, file, header, &entries[i], &sum);
        if (err != 0)
            return err;
    }
    return 0;
}
