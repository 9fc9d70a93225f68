/*
 * txn/dump_page.c - blocks of relation files: read without the cache, checked as the cache would, printed.
 *
 * Locking: none, nothing is shared.
 */
#include "base/checksum.h"
#include "table/content.h"
#include "txn/dump_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEX_ROW_BYTES 16u

static void relation_path(const struct dump *dump, rel_no rel, char path[DUMP_PATH_SIZE])
{
    (void)snprintf(path, DUMP_PATH_SIZE, "%s/rel/%02x/%016" PRIx64, dump->options->dir, (unsigned)(rel % 256), rel);
}

/* ---- reading ---- */

static int open_relation(struct dump *dump, rel_no rel)
{
    if (dump->file != NULL && dump->file_rel == rel) {
        return 0;
    }
    if (dump->file != NULL) {
        const int close_rc = io_close(dump->file);
        (void)close_rc; /* it was only read */
        dump->file = NULL;
    }
    char path[DUMP_PATH_SIZE];
    relation_path(dump, rel, path);
    const int rc = io_open(dump->options->dev, path, IO_READ_ONLY, &dump->file);
    dump->file_rel = rel;
    return rc;
}

int dump_read_block(struct dump *dump, rel_no rel, block_no block, uint8_t page[BLOCK_SIZE])
{
    char path[DUMP_PATH_SIZE];
    size_t size = 0;
    relation_path(dump, rel, path);
    int rc = open_relation(dump, rel);
    if (rc == -ENOENT) {
        dump_print(dump, "! %s: there is no such file", path);
        return -ENODATA;
    }
    if (rc == 0) {
        rc = io_read_full(dump->file, page, BLOCK_SIZE, (uint64_t)block * BLOCK_SIZE, &size);
    }
    if (rc == 0 && size < BLOCK_SIZE) {
        dump_print(dump, "! %s: has no block %" PRIu32, path, block);
        return -ENODATA;
    }
    return rc;
}

static uint64_t page_checksum_of(const uint8_t *page)
{
    return checksum_64(page + sizeof(le64), BLOCK_SIZE - sizeof(le64), 0);
}

struct expectation {
    const char *field;
    uint64_t got, want;
};

/* Reports the first that is not met. */
static int check_all(struct dump *dump, const char *path, block_no block, const struct expectation *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].got != list[i].want) {
            return diag_damage(&dump->diag, path, block, list[i].field, "got %" PRIu64 ", want %" PRIu64, list[i].got,
                               list[i].want);
        }
    }
    return 0;
}

/* Is the page whole, and does its payload make sense? */
static int check_page(struct dump *dump, rel_no rel, block_no block, const uint8_t *page)
{
    static page_validate_fn *const validate[PAGE_TYPE_COUNT] = {
        [PAGE_TYPE_CONTENT_LEAF] = content_validate_leaf,
        [PAGE_TYPE_CONTENT_INNER] = content_validate_inner,
        [PAGE_TYPE_CATALOG_LEAF] = catalog_validate_leaf,
        [PAGE_TYPE_CATALOG_INNER] = catalog_validate_inner,
    };
    struct page_header header;
    char path[DUMP_PATH_SIZE];
    memcpy(&header, page, sizeof header);
    relation_path(dump, rel, path);
    const uint16_t used = le16_get(header.used);
    const struct expectation list[] = {
        {"checksum", le64_get(header.checksum), page_checksum_of(page)},
        {"rel", le64_get(header.rel), rel},
        {"block", le32_get(header.block), block},
        {"used", used, used <= PAGE_PAYLOAD_SIZE ? used : PAGE_PAYLOAD_SIZE},
        {"reserved", le16_get(header.reserved), 0},
    };
    const int rc = check_all(dump, path, block, list, ARRAY_COUNT(list));
    if (rc != 0) {
        return rc;
    }
    if (header.type >= PAGE_TYPE_COUNT || validate[header.type] == NULL) {
        return diag_damage(&dump->diag, path, block, "type", "got %u, which is none", header.type);
    }
    return validate[header.type](&dump->diag, path, page);
}

int dump_read_page(struct dump *dump, rel_no rel, struct page_ptr ptr, uint8_t type, uint8_t level,
                   uint8_t page[BLOCK_SIZE])
{
    char path[DUMP_PATH_SIZE];
    relation_path(dump, rel, path);
    int rc = dump_read_block(dump, rel, ptr.block, page);
    if (rc == -ENODATA) {
        rc = diag_damage(&dump->diag, path, ptr.block, "pointer", "leads to a block that is not there");
        return rc == -EIO ? 0 : rc;
    }
    if (rc != 0) {
        return rc;
    }
    struct page_header header;
    memcpy(&header, page, sizeof header);
    const struct expectation list[] = {
        {"birth", le64_get(header.birth), ptr.birth},
        {"alloc", le32_get(header.alloc), ptr.alloc},
        {"type", header.type, type},
        {"level", header.level, level},
    };
    rc = check_page(dump, rel, ptr.block, page);
    if (rc == 0) {
        rc = check_all(dump, path, ptr.block, list, ARRAY_COUNT(list));
    }
    return rc == 0 ? 1 : 0;
}

/* ---- printing ---- */

void dump_print_header(struct dump *dump, const void *page)
{
    struct dump_line line = {.length = 0};
    dump_add(&line, "page");
    dump_add_fields(&line, DUMP_PAGE_HEADER, page);
    dump_emit(dump, &line);
}

static void add_xattr(struct dump_line *line, const uint8_t *value, size_t size)
{
    const size_t name_size = size > 0 && value[0] < size ? value[0] : 0;
    dump_add(line, " name_size=%u name=", size > 0 ? value[0] : 0);
    dump_add_bytes(line, value + 1, name_size);
    dump_add(line, " value=");
    dump_add_bytes(line, value + 1 + name_size, size - 1 - name_size);
}

static void add_snapshot(struct dump_line *line, const uint8_t *value, size_t size)
{
    const size_t head = sizeof(struct disk_snapshot);
    if (size >= head) {
        dump_add_fields(line, DUMP_SNAPSHOT, value);
    }
    dump_add(line, size >= head ? " name=" : " too short: ");
    dump_add_bytes(line, size >= head ? value + head : value, size >= head ? size - head : size);
}

/* With number 0 it is the largest number that was given. */
static void add_tablespace(struct dump_line *line, const uint8_t *value, size_t size)
{
    const struct disk_tablespace *disk = (const struct disk_tablespace *)value;
    const uint8_t *name = value + sizeof *disk;
    if (size == sizeof(le32)) {
        le32 largest;
        memcpy(&largest, value, sizeof largest);
        dump_add(line, " largest=%u", le32_get(largest));
        return;
    }
    dump_add_fields(line, DUMP_TABLESPACE, value);
    dump_add(line, " name=");
    dump_add_bytes(line, name, disk->name_size);
    dump_add(line, " directory=");
    dump_add_bytes(line, name + disk->name_size, size - sizeof *disk - disk->name_size);
}

/* The page was validated, so values have the sizes that their types want. */
static void add_item_value(struct dump_line *line, uint8_t type, const uint8_t *value, size_t size)
{
    switch (type) {
    case ITEM_INODE:
        dump_add(line, " INODE");
        dump_add_fields(line, DUMP_INODE, value);
        break;
    case ITEM_SYMLINK:
        dump_add(line, " SYMLINK target=");
        dump_add_bytes(line, value, size);
        break;
    case ITEM_XATTR:
        dump_add(line, " XATTR");
        add_xattr(line, value, size);
        break;
    case ITEM_BACK:
        dump_add(line, " BACK");
        dump_add_fields(line, DUMP_BACK, value);
        break;
    case ITEM_DIRENT:
        dump_add(line, " DIRENT");
        dump_add_fields(line, DUMP_DIRENT, value);
        dump_add(line, " name=");
        dump_add_bytes(line, value + sizeof(struct disk_dirent), size - sizeof(struct disk_dirent));
        break;
    case ITEM_SNAPSHOT:
        dump_add(line, " SNAPSHOT");
        add_snapshot(line, value, size);
        break;
    case ITEM_TABLESPACE:
        dump_add(line, " TABLESPACE");
        add_tablespace(line, value, size);
        break;
    case ITEM_ORPHAN:
        dump_add(line, " ORPHAN");
        break;
    case ITEM_OWNER:
        dump_add(line, " OWNER");
        dump_add_fields(line, DUMP_OWNER, value);
        break;
    default:
        dump_add(line, " value=");
        dump_add_bytes(line, value, size);
        break;
    }
}

void dump_print_item(struct dump *dump, const void *page, unsigned index)
{
    struct catalog_item_head head;
    memcpy(&head, (const uint8_t *)page + PAGE_HEADER_SIZE + index * sizeof head, sizeof head);
    struct dump_line line = {.length = 0};
    dump_add(&line, "  item %u", index);
    dump_add_fields(&line, DUMP_CATALOG_ITEM_HEAD, &head);
    add_item_value(&line, head.key.type, (const uint8_t *)page + le16_get(head.value_offset),
                   le16_get(head.value_size));
    dump_emit(dump, &line);
}

static void print_hex_row(struct dump *dump, const uint8_t *bytes, uint32_t offset, uint32_t size)
{
    struct dump_line line = {.length = 0};
    dump_add(&line, "  %04" PRIx32 " ", offset);
    for (uint32_t i = 0; i < HEX_ROW_BYTES; i++) {
        if (i < size) {
            dump_add(&line, " %02x", bytes[i]);
        } else {
            dump_add(&line, "   ");
        }
    }
    dump_add(&line, "  |");
    for (uint32_t i = 0; i < size; i++) {
        dump_add(&line, "%c", bytes[i] >= 0x20 && bytes[i] < 0x7f ? bytes[i] : '.');
    }
    dump_add(&line, "|");
    dump_emit(dump, &line);
}

static void print_hex(struct dump *dump, const uint8_t *page, uint32_t from, uint32_t to)
{
    for (uint32_t at = from; at < to; at += HEX_ROW_BYTES) {
        print_hex_row(dump, page + at, at, to - at < HEX_ROW_BYTES ? to - at : HEX_ROW_BYTES);
    }
}

static void print_entries(struct dump *dump, const uint8_t *page, enum dump_structure structure, size_t size)
{
    struct page_header header;
    memcpy(&header, page, sizeof header);
    for (unsigned i = 0; i < le16_get(header.count); i++) {
        struct dump_line line = {.length = 0};
        dump_add(&line, "  entry %u", i);
        dump_add_fields(&line, structure, page + PAGE_HEADER_SIZE + i * size);
        dump_emit(dump, &line);
    }
}

static void print_payload(struct dump *dump, const uint8_t *page)
{
    struct page_header header;
    memcpy(&header, page, sizeof header);
    switch (header.type) {
    case PAGE_TYPE_CONTENT_INNER:
        print_entries(dump, page, DUMP_CONTENT_ENTRY, sizeof(struct content_entry));
        break;
    case PAGE_TYPE_CATALOG_INNER:
        print_entries(dump, page, DUMP_CATALOG_INNER_ENTRY, sizeof(struct catalog_inner_entry));
        break;
    case PAGE_TYPE_CATALOG_LEAF:
        for (unsigned i = 0; i < le16_get(header.count); i++) {
            dump_print_item(dump, page, i);
        }
        break;
    case PAGE_TYPE_CONTENT_LEAF:
    default:
        print_hex(dump, page, PAGE_HEADER_SIZE, PAGE_HEADER_SIZE + le16_get(header.used));
        break;
    }
}

static int print_page(struct dump *dump, rel_no rel, block_no block)
{
    uint8_t page[BLOCK_SIZE];
    const int rc = dump_read_block(dump, rel, block, page);
    if (rc != 0) {
        return rc;
    }
    if (page[0] == 0 && memcmp(page, page + 1, BLOCK_SIZE - 1) == 0) {
        dump_print(dump, "relation %" PRIu64 " block %" PRIu32 ": zeros, never written", rel, block);
        return 0;
    }
    dump_print(dump, "relation %" PRIu64 " block %" PRIu32, rel, block);
    dump_print_header(dump, page);
    if (check_page(dump, rel, block, page) == 0) {
        print_payload(dump, page);
    } else {
        print_hex(dump, page, PAGE_HEADER_SIZE, BLOCK_SIZE);
    }
    return 0;
}

int dump_page(const struct dump_options *options, rel_no rel, block_no block)
{
    struct dump dump;
    dump_begin(&dump, options);
    return dump_end(&dump, print_page(&dump, rel, block));
}
