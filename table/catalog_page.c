/*
 * table/catalog_page.c - items and entries of one catalog page, and its validators.
 *
 * Leaf:
 *
 *     | page header | head 0 | head 1 | ... | head n-1 |  zeros  | value n-1 | ... | value 1 | value 0 |
 *
 * PAGE-1 Heads ascend strictly by key.
 * PAGE-2 Value i ends where value i - 1 begins, value 0 at the end of the page; an empty value takes no bytes but has
 *        an offset all the same. So the bytes of a page follow from its items.
 * PAGE-3 used = heads + values; what lies between them is zero.
 * PAGE-4 Every value is plausible for its key (catalog_item_fault).
 *
 * Inner page: entries ascend strictly by key; used = count * 40; pointers are never none.
 *
 * Locking: the tree's lock, and the latch of a page that is changed.
 */
#include "table/catalog_int.h"
#include "table/content_format.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

int catalog_key_compare(const struct catalog_key *a, const struct catalog_key *b)
{
    if (a->ino != b->ino) {
        return a->ino < b->ino ? -1 : 1;
    }
    if (a->type != b->type) {
        return a->type < b->type ? -1 : 1;
    }
    if (a->sub != b->sub) {
        return a->sub < b->sub ? -1 : 1;
    }
    return 0;
}

static struct page_header *header_of(void *page)
{
    return page;
}

static void page_set_size(void *page, unsigned count, uint32_t used)
{
    header_of(page)->count = le16_of((uint16_t)count);
    header_of(page)->used = le16_of((uint16_t)used);
}

struct catalog_key catalog_page_first_key(const void *page)
{
    return ((const struct page_header *)page)->level == 0 ? catalog_leaf_key(page, 0) : catalog_inner_key(page, 0);
}

struct catalog_key catalog_page_last_key(const void *page)
{
    const unsigned last = catalog_page_count(page) - 1;
    return ((const struct page_header *)page)->level == 0 ? catalog_leaf_key(page, last)
                                                          : catalog_inner_key(page, last);
}

/* ---- leaves ---- */

static struct catalog_item_head *heads_of(void *page)
{
    return (struct catalog_item_head *)((uint8_t *)page + PAGE_HEADER_SIZE);
}

static const struct catalog_item_head *heads_get(const void *page)
{
    return (const struct catalog_item_head *)((const uint8_t *)page + PAGE_HEADER_SIZE);
}

struct catalog_key catalog_leaf_key(const void *page, unsigned index)
{
    return catalog_key_get(&heads_get(page)[index].key);
}

const uint8_t *catalog_leaf_value(const void *page, unsigned index, uint16_t *out_size)
{
    const struct catalog_item_head *head = &heads_get(page)[index];
    *out_size = le16_get(head->value_size);
    return (const uint8_t *)page + le16_get(head->value_offset);
}

bool catalog_leaf_find(const void *page, const struct catalog_key *key, unsigned *out_index)
{
    const struct catalog_item_head *heads = heads_get(page);
    unsigned low = 0;
    unsigned high = catalog_page_count(page);
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        const struct catalog_key middle_key = catalog_key_get(&heads[middle].key);
        const int order = catalog_key_compare(&middle_key, key);
        if (order == 0) {
            *out_index = middle;
            return true;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *out_index = low;
    return false;
}

/* Where the values of the items before `index` end, seen from the top: the offset of value index - 1. */
static uint32_t value_end(const void *page, unsigned index)
{
    return index == 0 ? BLOCK_SIZE : le16_get(heads_get(page)[index - 1].value_offset);
}

/* Offset of the lowest value byte. */
static uint32_t values_start(const void *page)
{
    return value_end(page, catalog_page_count(page));
}

/* Moves the offsets of items [first, last) down (bytes < 0: up). */
static void shift_offsets(void *page, unsigned first, unsigned last, int bytes)
{
    struct catalog_item_head *heads = heads_of(page);
    for (unsigned i = first; i < last; i++) {
        heads[i].value_offset = le16_of((uint16_t)((int)le16_get(heads[i].value_offset) - bytes));
    }
}

void catalog_leaf_insert(void *page, unsigned index, const struct catalog_key *key, const void *value, uint16_t size)
{
    const unsigned count = catalog_page_count(page);
    const uint32_t used = catalog_page_used(page);
    assert(index <= count && used + CATALOG_ITEM_BYTES(size) <= PAGE_PAYLOAD_SIZE);
    struct catalog_item_head *heads = heads_of(page);
    uint8_t *bytes = page;
    const uint32_t start = values_start(page);
    const uint32_t end = value_end(page, index);
    memmove(bytes + start - size, bytes + start, end - start);
    shift_offsets(page, index, count, size);
    memmove(&heads[index + 1], &heads[index], (count - index) * sizeof heads[0]);
    heads[index] = (struct catalog_item_head){
        .key = catalog_key_of(key), .value_offset = le16_of((uint16_t)(end - size)), .value_size = le16_of(size)};
    if (size > 0) {
        memcpy(bytes + end - size, value, size);
    }
    page_set_size(page, count + 1, used + CATALOG_ITEM_BYTES(size));
}

void catalog_leaf_remove(void *page, unsigned index)
{
    const unsigned count = catalog_page_count(page);
    assert(index < count);
    struct catalog_item_head *heads = heads_of(page);
    uint8_t *bytes = page;
    const uint32_t start = values_start(page);
    const uint32_t offset = le16_get(heads[index].value_offset);
    const uint16_t size = le16_get(heads[index].value_size);
    memmove(bytes + start + size, bytes + start, offset - start);
    memset(bytes + start, 0, size);
    shift_offsets(page, index + 1, count, -(int)size);
    memmove(&heads[index], &heads[index + 1], (count - index - 1) * sizeof heads[0]);
    memset(&heads[count - 1], 0, sizeof heads[0]);
    page_set_size(page, count - 1, catalog_page_used(page) - CATALOG_ITEM_BYTES(size));
}

void catalog_leaf_overwrite(void *page, unsigned index, const void *value, uint16_t size)
{
    const struct catalog_item_head *head = &heads_get(page)[index];
    assert(index < catalog_page_count(page) && le16_get(head->value_size) == size);
    if (size > 0) {
        memcpy((uint8_t *)page + le16_get(head->value_offset), value, size);
    }
}

void catalog_leaf_append(void *to, const void *from, unsigned first)
{
    const unsigned to_count = catalog_page_count(to);
    const unsigned copied = catalog_page_count(from) - first;
    const uint32_t from_start = values_start(from);
    const uint32_t from_end = value_end(from, first);
    const uint32_t to_start = values_start(to);
    const uint32_t value_bytes = from_end - from_start;
    const uint32_t copied_bytes = copied * (uint32_t)sizeof(struct catalog_item_head) + value_bytes;
    assert(first <= catalog_page_count(from) && catalog_page_used(to) + copied_bytes <= PAGE_PAYLOAD_SIZE);
    memcpy((uint8_t *)to + to_start - value_bytes, (const uint8_t *)from + from_start, value_bytes);
    memcpy(&heads_of(to)[to_count], &heads_get(from)[first], copied * sizeof(struct catalog_item_head));
    shift_offsets(to, to_count, to_count + copied, (int)from_end - (int)to_start);
    page_set_size(to, to_count + copied, catalog_page_used(to) + copied_bytes);
}

void catalog_leaf_truncate(void *page, unsigned count)
{
    const unsigned removed = catalog_page_count(page) - count;
    const uint32_t start = values_start(page);
    const uint32_t value_bytes = value_end(page, count) - start;
    const uint32_t removed_bytes = removed * (uint32_t)sizeof(struct catalog_item_head) + value_bytes;
    assert(count <= catalog_page_count(page));
    memset((uint8_t *)page + start, 0, value_bytes);
    memset(&heads_of(page)[count], 0, removed * sizeof(struct catalog_item_head));
    page_set_size(page, count, catalog_page_used(page) - removed_bytes);
}

/* ---- inner pages ---- */

static struct catalog_inner_entry *entries_of(void *page)
{
    return (struct catalog_inner_entry *)((uint8_t *)page + PAGE_HEADER_SIZE);
}

static const struct catalog_inner_entry *entries_get(const void *page)
{
    return (const struct catalog_inner_entry *)((const uint8_t *)page + PAGE_HEADER_SIZE);
}

struct catalog_key catalog_inner_key(const void *page, unsigned index)
{
    return catalog_key_get(&entries_get(page)[index].key);
}

struct page_ptr catalog_inner_ptr(const void *page, unsigned index)
{
    return disk_page_ptr_get(&entries_get(page)[index].ptr);
}

unsigned catalog_inner_find(const void *page, const struct catalog_key *key)
{
    /* The last entry whose key is <= key; the first one also covers what lies before it. */
    unsigned low = 1;
    unsigned high = catalog_page_count(page);
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        const struct catalog_key middle_key = catalog_inner_key(page, middle);
        if (catalog_key_compare(&middle_key, key) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

void catalog_inner_append(void *page, const struct catalog_key *key, struct page_ptr ptr)
{
    const unsigned count = catalog_page_count(page);
    assert(count < CATALOG_FANOUT);
    entries_of(page)[count] = (struct catalog_inner_entry){.key = catalog_key_of(key), .ptr = disk_page_ptr_of(ptr)};
    page_set_size(page, count + 1, (count + 1) * (uint32_t)sizeof(struct catalog_inner_entry));
}

void catalog_inner_clear(void *page)
{
    memset((uint8_t *)page + PAGE_HEADER_SIZE, 0, PAGE_PAYLOAD_SIZE);
    page_set_size(page, 0, 0);
}

struct catalog_range catalog_inner_child_range(const void *page, unsigned index, const struct catalog_range *range)
{
    struct catalog_range child = {.low = catalog_inner_key(page, index), .has_low = true};
    if (index + 1 < catalog_page_count(page)) {
        child.high = catalog_inner_key(page, index + 1);
        child.has_high = true;
    } else {
        child.high = range->high;
        child.has_high = range->has_high;
    }
    return child;
}

/* ---- what an item must look like ---- */

#define INO_LIMIT (UINT64_C(1) << 53)

const char *catalog_name_fault(const void *name, size_t name_size)
{
    const char *bytes = name;
    if (name_size == 0 || name_size > 255) {
        return "length of the name";
    }
    if (memchr(bytes, '/', name_size) != NULL || memchr(bytes, '\0', name_size) != NULL) {
        return "a slash or NUL in the name";
    }
    if (bytes[0] == '.' && (name_size == 1 || (name_size == 2 && bytes[1] == '.'))) {
        return "a name that is . or ..";
    }
    return NULL;
}

static bool file_kind_is_known(uint32_t kind)
{
    switch (kind << 12) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFBLK:
    case S_IFCHR:
        return true;
    default:
        return false;
    }
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static const char *content_fault(const struct disk_inode *inode)
{
    const struct page_ptr ptr = disk_page_ptr_get(&inode->content);
    if (page_ptr_is_none(ptr)) {
        const bool empty = inode->content_height == 0 && le32_get(inode->content_leaves) == 0;
        return empty && ptr.birth == 0 && ptr.alloc == 0 ? NULL : "an empty content pointer";
    }
    if (inode->content_height == 0 || inode->content_height > CONTENT_MAX_HEIGHT || ptr.alloc == 0) {
        return "the content pointer or its height";
    }
    return le64_get(inode->rel) != REL_NONE ? NULL : "content without a relation";
}

static const char *inode_fault(const struct catalog_key *key, const void *value, size_t value_size)
{
    if (key->ino == INO_NONE || key->sub != 0) {
        return "the key of an inode";
    }
    if (value_size != sizeof(struct disk_inode)) {
        return "the size of an inode";
    }
    const struct disk_inode *inode = value;
    const uint32_t mode = le32_get(inode->mode);
    if (mode >> 16 != 0 || !file_kind_is_known(mode >> 12)) {
        return "the mode of an inode";
    }
    if ((inode->flags & ~INODE_FLAGS) != 0 || !is_zero(inode->reserved, sizeof inode->reserved)) {
        return "reserved bytes of an inode";
    }
    if (le64_get(inode->parent) >= INO_LIMIT || le64_get(inode->name_cookie) > INT64_MAX) {
        return "the parent of an inode";
    }
    if (le64_get(inode->content_bytes) > CONTENT_MAX_BYTES) {
        return "the size in an inode";
    }
    return content_fault(inode);
}

/* sub = hash << 16 | tie, hash from 1 to 2^47 - 1. */
static bool hashed_key_is_good(const struct catalog_key *key)
{
    return key->ino != INO_NONE && key->sub >> 16 != 0 && key->sub <= INT64_MAX;
}

static const char *dirent_fault(const struct catalog_key *key, const void *value, size_t value_size)
{
    if (!hashed_key_is_good(key)) {
        return "the key of a directory entry";
    }
    if (value_size <= sizeof(struct disk_dirent)) {
        return "the size of a directory entry";
    }
    const struct disk_dirent *dirent = value;
    const ino_no ino = le64_get(dirent->ino);
    if (ino == INO_NONE || ino >= INO_LIMIT || !file_kind_is_known(dirent->kind)) {
        return "the inode or kind in a directory entry";
    }
    return catalog_name_fault(dirent + 1, value_size - sizeof *dirent);
}

static const char *xattr_fault(const struct catalog_key *key, const void *value, size_t value_size)
{
    if (!hashed_key_is_good(key)) {
        return "the key of an extended attribute";
    }
    const struct disk_xattr *xattr = value;
    if (value_size < sizeof *xattr || xattr->name_size == 0 || value_size - sizeof *xattr < xattr->name_size ||
        value_size - sizeof *xattr - xattr->name_size > XATTR_MAX_VALUE) {
        return "the size of an extended attribute";
    }
    return memchr(xattr + 1, '\0', xattr->name_size) == NULL ? NULL : "a NUL in the name of an extended attribute";
}

static const char *back_fault(const struct catalog_key *key, const void *value, size_t value_size)
{
    if (!hashed_key_is_good(key) || value_size != sizeof(struct disk_back)) {
        return "the key or size of a back entry";
    }
    const struct disk_back *back = value;
    const ino_no parent = le64_get(back->parent);
    const struct catalog_key target = {.ino = parent, .sub = le64_get(back->cookie), .type = ITEM_DIRENT};
    return parent < INO_LIMIT && hashed_key_is_good(&target) ? NULL : "what a back entry leads to";
}

static const char *symlink_fault(const struct catalog_key *key, const void *value, size_t value_size)
{
    if (key->ino == INO_NONE || key->sub > UINT16_MAX) {
        return "the key of a part of a symbolic link";
    }
    if (value_size == 0 || value_size > SYMLINK_PART_SIZE) {
        return "the size of a part of a symbolic link";
    }
    return memchr(value, '\0', value_size) == NULL ? NULL : "a NUL in a symbolic link";
}

/* The last one is the counter of numbers. */
static const char *tablespace_fault(const struct catalog_key *key, const void *value, size_t value_size)
{
    const struct disk_tablespace *disk = value;
    if (key->ino != INO_NONE || key->sub > UINT32_MAX) {
        return "the key of a tablespace";
    }
    if (key->sub == TS_DEFAULT) {
        return value_size == sizeof(le32) ? NULL : "the largest number of a tablespace";
    }
    if (value_size < sizeof *disk || value_size - sizeof *disk < disk->name_size) {
        return "the size of a tablespace";
    }
    return catalog_name_fault(disk + 1, disk->name_size);
}

const char *catalog_item_fault(const struct catalog_key *key, const void *value, size_t value_size)
{
    if (key->ino >= INO_LIMIT) {
        return "the inode number";
    }
    if (value_size > CATALOG_MAX_VALUE_SIZE) {
        return "the size of the value";
    }
    switch (key->type) {
    case ITEM_INODE:
        return inode_fault(key, value, value_size);
    case ITEM_SYMLINK:
        return symlink_fault(key, value, value_size);
    case ITEM_XATTR:
        return xattr_fault(key, value, value_size);
    case ITEM_BACK:
        return back_fault(key, value, value_size);
    case ITEM_DIRENT:
        return dirent_fault(key, value, value_size);
    case ITEM_ORPHAN:
        return key->ino == INO_NONE && key->sub != INO_NONE && value_size == 0 ? NULL : "an orphan";
    case ITEM_OWNER:
        return key->ino == INO_NONE && key->sub != REL_NONE && value_size == sizeof(struct disk_owner) ? NULL
                                                                                                       : "an owner";
    case ITEM_SNAPSHOT:
        return key->ino == INO_NONE ? NULL : "the key of a snapshot";
    case ITEM_TABLESPACE:
        return tablespace_fault(key, value, value_size);
    default:
        return "the type of the item";
    }
}

/* ---- validators ---- */

static int page_damage(struct diag *diag, const char *file, const void *page, const char *field, uint64_t got,
                       uint64_t want)
{
    const struct page_header *header = page;
    return diag_damage(diag, file, le32_get(header->block), field, "got %llu, want %llu", (unsigned long long)got,
                       (unsigned long long)want);
}

/* PAGE-1, PAGE-2 and PAGE-4 for one item. *inout_end: where the value before it began. */
static int validate_item(struct diag *diag, const char *file, const void *page, unsigned index, uint32_t low_limit,
                         uint32_t *inout_end)
{
    const struct catalog_item_head *head = &heads_get(page)[index];
    const uint32_t offset = le16_get(head->value_offset);
    const uint32_t size = le16_get(head->value_size);
    const block_no block = le32_get(((const struct page_header *)page)->block);
    if (size > *inout_end - low_limit || offset != *inout_end - size) {
        return diag_damage(diag, file, block, "catalog value", "item %u: %u bytes at %u, want them to end at %u", index,
                           size, offset, *inout_end);
    }
    const struct catalog_key key = catalog_key_get(&head->key);
    if (index > 0) {
        const struct catalog_key before = catalog_leaf_key(page, index - 1);
        if (catalog_key_compare(&before, &key) >= 0) {
            return diag_damage(diag, file, block, "catalog key", "item %u does not ascend", index);
        }
    }
    const char *fault =
        head->reserved != 0 ? "the reserved byte" : catalog_item_fault(&key, (const uint8_t *)page + offset, size);
    if (fault != NULL) {
        return diag_damage(diag, file, block, "catalog item", "item %u (inode %llu, type %u, sub %llu): bad: %s", index,
                           (unsigned long long)key.ino, key.type, (unsigned long long)key.sub, fault);
    }
    *inout_end = offset;
    return 0;
}

int catalog_validate_leaf(struct diag *diag, const char *file, const void *page)
{
    const struct page_header *header = page;
    const unsigned count = catalog_page_count(page);
    const uint32_t used = catalog_page_used(page);
    const uint32_t head_bytes = count * (uint32_t)sizeof(struct catalog_item_head);
    if (header->level != 0) {
        return page_damage(diag, file, page, "catalog leaf level", header->level, 0);
    }
    if (count == 0) {
        return page_damage(diag, file, page, "catalog leaf count", 0, 1);
    }
    if (used > PAGE_PAYLOAD_SIZE || head_bytes > used) {
        return page_damage(diag, file, page, "catalog leaf used", used, head_bytes);
    }
    uint32_t end = BLOCK_SIZE;
    for (unsigned i = 0; i < count; i++) {
        const int rc = validate_item(diag, file, page, i, PAGE_HEADER_SIZE + head_bytes, &end);
        if (rc != 0) {
            return rc;
        }
    }
    if (used != head_bytes + (BLOCK_SIZE - end)) {
        return page_damage(diag, file, page, "catalog leaf used", used, head_bytes + (BLOCK_SIZE - end));
    }
    const uint32_t heads_end = PAGE_HEADER_SIZE + head_bytes;
    if (!is_zero((const uint8_t *)page + heads_end, end - heads_end)) {
        return diag_damage(diag, file, le32_get(header->block), "catalog leaf", "bytes %u to %u are not zero",
                           heads_end, end);
    }
    return 0;
}

static int validate_entry(struct diag *diag, const char *file, const void *page, unsigned index)
{
    const struct catalog_inner_entry *entry = &entries_get(page)[index];
    const block_no block = le32_get(((const struct page_header *)page)->block);
    const struct page_ptr ptr = disk_page_ptr_get(&entry->ptr);
    if (page_ptr_is_none(ptr) || ptr.alloc == 0 || ptr.birth == 0) {
        return diag_damage(diag, file, block, "catalog pointer", "entry %u: block %u, birth %llu, allocation %u", index,
                           ptr.block, (unsigned long long)ptr.birth, ptr.alloc);
    }
    const struct catalog_key key = catalog_key_get(&entry->key);
    if (!is_zero(entry->reserved, sizeof entry->reserved) || key.ino >= INO_LIMIT || key.type < ITEM_INODE ||
        key.type > ITEM_TYPE_LAST) {
        return diag_damage(diag, file, block, "catalog entry", "entry %u: inode %llu, type %u, or reserved bytes",
                           index, (unsigned long long)key.ino, key.type);
    }
    if (index > 0) {
        const struct catalog_key before = catalog_inner_key(page, index - 1);
        if (catalog_key_compare(&before, &key) >= 0) {
            return diag_damage(diag, file, block, "catalog key", "entry %u does not ascend", index);
        }
    }
    return 0;
}

int catalog_validate_inner(struct diag *diag, const char *file, const void *page)
{
    const struct page_header *header = page;
    const unsigned count = catalog_page_count(page);
    if (header->level == 0 || header->level >= CATALOG_MAX_HEIGHT) {
        return page_damage(diag, file, page, "catalog inner level", header->level, CATALOG_MAX_HEIGHT - 1);
    }
    if (count == 0 || count > CATALOG_FANOUT) {
        return page_damage(diag, file, page, "catalog inner count", count, CATALOG_FANOUT);
    }
    if (catalog_page_used(page) != count * sizeof(struct catalog_inner_entry)) {
        return page_damage(diag, file, page, "catalog inner used", catalog_page_used(page),
                           count * sizeof(struct catalog_inner_entry));
    }
    for (unsigned i = 0; i < count; i++) {
        const int rc = validate_entry(diag, file, page, i);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- descent ---- */

void catalog_relation_name(const struct relation *relation, char name[CATALOG_RELATION_NAME_SIZE])
{
    snprintf(name, CATALOG_RELATION_NAME_SIZE, "relation %016llx", (unsigned long long)relation_number(relation));
}

int catalog_page_read(struct diag *diag, struct relation *relation, struct page_ptr ptr, uint8_t level,
                      const struct catalog_range *range, struct frame **out_frame)
{
    const uint8_t type = level == 0 ? PAGE_TYPE_CATALOG_LEAF : PAGE_TYPE_CATALOG_INNER;
    struct frame *frame = NULL;
    const int rc = page_read(relation, ptr, type, level, &frame);
    if (rc != 0) {
        return rc;
    }
    const void *page = frame_page(frame);
    const struct catalog_key first = catalog_page_first_key(page);
    const struct catalog_key last = catalog_page_last_key(page);
    if ((range->has_low && catalog_key_compare(&first, &range->low) < 0) ||
        (range->has_high && catalog_key_compare(&last, &range->high) >= 0)) {
        char name[CATALOG_RELATION_NAME_SIZE];
        catalog_relation_name(relation, name);
        page_unpin(frame);
        return diag_damage(diag, name, ptr.block, "catalog key",
                           "keys from inode %llu, type %u to inode %llu, type %u lie outside the parent's range",
                           (unsigned long long)first.ino, first.type, (unsigned long long)last.ino, last.type);
    }
    *out_frame = frame;
    return 0;
}
