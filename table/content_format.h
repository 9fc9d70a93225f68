/*
 * table/content_format.h - pages of a table's content tree. Disk structures only.
 *
 * Leaf (PAGE_TYPE_CONTENT_LEAF, level 0): header.used raw bytes behind the header, 1 to PAGE_PAYLOAD_SIZE; count 0.
 * Inner (PAGE_TYPE_CONTENT_INNER, level >= 1): header.count entries, 1 to CONTENT_FANOUT; used = count * 24.
 * An entry's child is at level - 1; a hole (block == BLOCK_NONE, alloc 0, birth 0) stands for `bytes` zero bytes at any
 * level.
 */
#ifndef TBLFS_TABLE_CONTENT_FORMAT_H
#define TBLFS_TABLE_CONTENT_FORMAT_H

#include "bufcache/page_format.h"

struct content_entry {
    struct disk_page_ptr ptr; /*  0 */
    le64 bytes;               /* 16 content bytes below, never 0 */
};
static_assert(sizeof(struct content_entry) == 24, "content entry is 24 bytes");

#ifndef CONTENT_FANOUT /* a test makes deep trees of few pages with a smaller one */
#define CONTENT_FANOUT ((uint32_t)(PAGE_PAYLOAD_SIZE / sizeof(struct content_entry))) /* 339 */
#endif
#define CONTENT_MAX_HEIGHT 6u
#define CONTENT_MAX_BYTES  ((uint64_t)INT64_MAX)

#endif
