/*
 * bufcache/page_format.h - the header that every page of every relation starts with. Disk structures only.
 */
#ifndef TBLFS_BUFCACHE_PAGE_FORMAT_H
#define TBLFS_BUFCACHE_PAGE_FORMAT_H

#include "base/bytes.h"
#include "base/types.h"

#include <assert.h>

enum page_type {
    PAGE_TYPE_CONTENT_LEAF = 1,
    PAGE_TYPE_CONTENT_INNER = 2,
    PAGE_TYPE_CATALOG_LEAF = 3,
    PAGE_TYPE_CATALOG_INNER = 4,
};
#define PAGE_TYPE_COUNT 5

/* Byte offsets in comments. The checksum is XXH3-64 (seed 0) over bytes 8 to BLOCK_SIZE, written when the page is
 * written. */
struct page_header {
    le64 checksum; /*  0 */
    le64 rel;      /*  8 relation number */
    le64 birth;    /* 16 epoch in which the block was allocated */
    le32 block;    /* 24 block number */
    le32 alloc;    /* 28 allocation number, never 0 */
    uint8_t type;  /* 32 enum page_type */
    uint8_t level; /* 33 0: leaf */
    le16 used;     /* 34 bytes used behind the header (meaning by type) */
    le16 count;    /* 36 entries or items (0 in content leaves) */
    le16 reserved; /* 38 zero */
};
static_assert(sizeof(struct page_header) == 40, "page header is 40 bytes");

#define PAGE_HEADER_SIZE  ((uint32_t)sizeof(struct page_header))
#define PAGE_PAYLOAD_SIZE (BLOCK_SIZE - PAGE_HEADER_SIZE) /* 8152 */

/* Pointer to a page as it stands in other pages and in the control file. */
struct disk_page_ptr {
    le64 birth; /*  0 */
    le32 block; /*  8 BLOCK_NONE: none */
    le32 alloc; /* 12 */
};
static_assert(sizeof(struct disk_page_ptr) == 16, "page pointer is 16 bytes");

static inline struct page_ptr disk_page_ptr_get(const struct disk_page_ptr *disk)
{
    return (struct page_ptr){
        .birth = le64_get(disk->birth), .block = le32_get(disk->block), .alloc = le32_get(disk->alloc)};
}

static inline struct disk_page_ptr disk_page_ptr_of(struct page_ptr ptr)
{
    return (struct disk_page_ptr){
        .birth = le64_of(ptr.birth), .block = le32_of(ptr.block), .alloc = le32_of(ptr.alloc)};
}

#endif
