/*
 * bufcache/page_check.c - is this the page that the pointer to it means?
 *
 * A page read from disk is validated here once, field by field; each report names field, got and want. A page found in
 * the cache is compared with the pointer that led to it every time.
 * Locking: none. The page is pinned and not latched by another thread.
 */
#include "base/checksum.h"
#include "bufcache/bufcache_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

uint64_t page_checksum(const void *page)
{
    return checksum_64((const uint8_t *)page + sizeof(le64), BLOCK_SIZE - sizeof(le64), 0);
}

static int damage(struct bufcache *cache, const struct relation *relation, block_no block, const char *field,
                  uint64_t got, uint64_t want)
{
    count_add(&cache->counters.damaged_pages, 1);
    return diag_damage(relation_diag(relation), relation->path, block, field, "got %" PRIu64 ", want %" PRIu64, got,
                       want);
}

int page_check_expected(struct bufcache *cache, const struct relation *relation, const struct page_header *header,
                        struct page_ptr ptr, uint8_t type, uint8_t level)
{
    if (le64_get(header->birth) != ptr.birth)
        return damage(cache, relation, ptr.block, "birth", le64_get(header->birth), ptr.birth);
    if (le32_get(header->alloc) != ptr.alloc)
        return damage(cache, relation, ptr.block, "alloc", le32_get(header->alloc), ptr.alloc);
    if (header->type != type)
        return damage(cache, relation, ptr.block, "type", header->type, type);
    if (header->level != level)
        return damage(cache, relation, ptr.block, "level", header->level, level);
    return 0;
}

static bool is_all_zero(const uint8_t *page)
{
    return page[0] == 0 && memcmp(page, page + 1, BLOCK_SIZE - 1) == 0;
}

/* Is it whole, and the page of this block? */
static int check_identity(struct bufcache *cache, const struct relation *relation, const void *page, block_no block)
{
    const struct page_header *header = page;
    const uint64_t checksum = page_checksum(page);
    if (le64_get(header->checksum) != checksum) {
        const char *field = is_all_zero(page) ? "zero page" : "checksum";
        return damage(cache, relation, block, field, le64_get(header->checksum), checksum);
    }
    if (le64_get(header->rel) != relation->rel)
        return damage(cache, relation, block, "rel", le64_get(header->rel), relation->rel);
    if (le32_get(header->block) != block)
        return damage(cache, relation, block, "block", le32_get(header->block), block);
    return 0;
}

int page_check_read(struct bufcache *cache, const struct relation *relation, const void *page, size_t size_bytes,
                    struct page_ptr ptr, uint8_t type, uint8_t level)
{
    const struct page_header *header = page;
    if (size_bytes < BLOCK_SIZE)
        return damage(cache, relation, ptr.block, "bytes in the file", size_bytes, BLOCK_SIZE);
    int rc = check_identity(cache, relation, page, ptr.block);
    if (rc == 0)
        rc = page_check_expected(cache, relation, header, ptr, type, level);
    if (rc < 0)
        return rc;
    if (le16_get(header->used) > PAGE_PAYLOAD_SIZE)
        return damage(cache, relation, ptr.block, "used", le16_get(header->used), PAGE_PAYLOAD_SIZE);
    if (le16_get(header->reserved) != 0)
        return damage(cache, relation, ptr.block, "reserved", le16_get(header->reserved), 0);
    if (type >= PAGE_TYPE_COUNT || cache->options.validate[type] == NULL)
        return damage(cache, relation, ptr.block, "type unknown here", type, 0);
    rc = cache->options.validate[type](relation_diag(relation), relation->path, page);
    if (rc < 0)
        count_add(&cache->counters.damaged_pages, 1);
    return rc;
}
