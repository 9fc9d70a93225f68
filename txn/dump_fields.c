/*
 * txn/dump_fields.c - lines of text, and the fields of every disk structure.
 *
 * FIELDS-1 The fields of a structure cover it from its first byte to its last without a gap (checked when it is printed).
 *
 * Locking: none, nothing is shared.
 */
#include "fsm/sidecar_format.h"
#include "table/content_format.h"
#include "txn/dump_int.h"
#include "txn/log_format.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES_MAX 512u

/* ---- lines ---- */

static void add_va(struct dump_line *line, const char *fmt, va_list args) PRINTF_LIKE(2, 0);

static void add_va(struct dump_line *line, const char *fmt, va_list args)
{
    const size_t room = sizeof line->text - line->length;
    const int wanted = vsnprintf(line->text + line->length, room, fmt, args);
    if (wanted > 0) {
        line->length += (size_t)wanted < room ? (size_t)wanted : room - 1;
    }
}

void dump_add(struct dump_line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_va(line, fmt, args);
    va_end(args);
}

void dump_add_bytes(struct dump_line *line, const void *bytes, size_t size)
{
    const uint8_t *data = bytes;
    dump_add(line, "\"");
    for (size_t i = 0; i < size && i < SHOWN_BYTES_MAX; i++) {
        if (isprint(data[i]) && data[i] != '"' && data[i] != '\\') {
            dump_add(line, "%c", data[i]);
        } else {
            dump_add(line, "\\x%02x", data[i]);
        }
    }
    dump_add(line, size > SHOWN_BYTES_MAX ? "\"... (%zu bytes)" : "\"", size);
}

void dump_emit(struct dump *dump, const struct dump_line *line)
{
    dump->options->line(dump->options->arg, line->length > 0 ? line->text : "");
}

void dump_print(struct dump *dump, const char *fmt, ...)
{
    struct dump_line line = {.length = 0};
    va_list args;
    va_start(args, fmt);
    add_va(&line, fmt, args);
    va_end(args);
    dump_emit(dump, &line);
}

/* ---- fields ---- */

enum field_kind {
    KIND_NUMBER,
    KIND_OCTAL,
    KIND_SIGNED,
    KIND_HEX,
    KIND_TEXT,
    KIND_ZERO, /* reserved: shown only when it is not zero */
    KIND_PTR,
    KIND_KEY,
};

struct field {
    const char *name;
    size_t offset, size;
    enum field_kind kind;
};

#define FIELD(type, member, field_kind)                                                                                \
    {                                                                                                                  \
#member, offsetof(struct type, member), sizeof(((struct type *)NULL)->member), KIND_##field_kind               \
    }

static const struct field control_slot_fields[] = {
    FIELD(control_slot, magic, TEXT),
    FIELD(control_slot, version, NUMBER),
    FIELD(control_slot, block_size, NUMBER),
    FIELD(control_slot, store_id, HEX),
    FIELD(control_slot, number, NUMBER),
    FIELD(control_slot, written_ns, SIGNED),
    FIELD(control_slot, epoch, NUMBER),
    FIELD(control_slot, catalog, PTR),
    FIELD(control_slot, redo_lsn, NUMBER),
    FIELD(control_slot, scan_lsn, NUMBER),
    FIELD(control_slot, ceiling_epoch, NUMBER),
    FIELD(control_slot, ceiling_rel, NUMBER),
    FIELD(control_slot, ceiling_ino, NUMBER),
    FIELD(control_slot, ceiling_txn, NUMBER),
    FIELD(control_slot, ceiling_lsn, NUMBER),
    FIELD(control_slot, name_seed, HEX),
    FIELD(control_slot, catalog_height, NUMBER),
    FIELD(control_slot, clean, NUMBER),
    FIELD(control_slot, name_bits, NUMBER),
    FIELD(control_slot, timeline, NUMBER),
    FIELD(control_slot, restoring, NUMBER),
    FIELD(control_slot, reserved, ZERO),
    FIELD(control_slot, fsm_threshold, NUMBER),
    FIELD(control_slot, sidecar_threshold, NUMBER),
    FIELD(control_slot, sidecar_epoch, NUMBER),
    FIELD(control_slot, commits, NUMBER),
    FIELD(control_slot, inode_count, NUMBER),
    FIELD(control_slot, checksum, HEX),
};

static const struct field page_header_fields[] = {
    FIELD(page_header, checksum, HEX),  FIELD(page_header, rel, NUMBER),   FIELD(page_header, birth, NUMBER),
    FIELD(page_header, block, NUMBER),  FIELD(page_header, alloc, NUMBER), FIELD(page_header, type, NUMBER),
    FIELD(page_header, level, NUMBER),  FIELD(page_header, used, NUMBER),  FIELD(page_header, count, NUMBER),
    FIELD(page_header, reserved, ZERO),
};

static const struct field content_entry_fields[] = {
    FIELD(content_entry, ptr, PTR),
    FIELD(content_entry, bytes, NUMBER),
};

static const struct field item_head_fields[] = {
    FIELD(catalog_item_head, key, KEY),
    FIELD(catalog_item_head, reserved, ZERO),
    FIELD(catalog_item_head, value_offset, NUMBER),
    FIELD(catalog_item_head, value_size, NUMBER),
};

static const struct field inner_entry_fields[] = {
    FIELD(catalog_inner_entry, key, KEY),
    FIELD(catalog_inner_entry, reserved, ZERO),
    FIELD(catalog_inner_entry, ptr, PTR),
};

static const struct field inode_fields[] = {
    FIELD(disk_inode, mode, OCTAL),
    FIELD(disk_inode, nlink, NUMBER),
    FIELD(disk_inode, uid, NUMBER),
    FIELD(disk_inode, gid, NUMBER),
    FIELD(disk_inode, rdev, NUMBER),
    FIELD(disk_inode, ts, NUMBER),
    FIELD(disk_inode, atime_ns, SIGNED),
    FIELD(disk_inode, mtime_ns, SIGNED),
    FIELD(disk_inode, ctime_ns, SIGNED),
    FIELD(disk_inode, rel, NUMBER),
    FIELD(disk_inode, rel_created, NUMBER),
    FIELD(disk_inode, content, PTR),
    FIELD(disk_inode, content_bytes, NUMBER),
    FIELD(disk_inode, change_epoch, NUMBER),
    FIELD(disk_inode, rewrite_epoch, NUMBER),
    FIELD(disk_inode, attr_epoch, NUMBER),
    FIELD(disk_inode, parent, NUMBER),
    FIELD(disk_inode, name_cookie, NUMBER),
    FIELD(disk_inode, content_height, NUMBER),
    FIELD(disk_inode, flags, NUMBER),
    FIELD(disk_inode, reserved, ZERO),
    FIELD(disk_inode, content_leaves, NUMBER),
};

static const struct field dirent_fields[] = {
    FIELD(disk_dirent, ino, NUMBER),
    FIELD(disk_dirent, kind, NUMBER),
};

static const struct field back_fields[] = {
    FIELD(disk_back, parent, NUMBER),
    FIELD(disk_back, cookie, NUMBER),
};

static const struct field owner_fields[] = {
    FIELD(disk_owner, owner, NUMBER),
    FIELD(disk_owner, first, NUMBER),
};

static const struct field tablespace_fields[] = {
    FIELD(disk_tablespace, created_ns, SIGNED),
    FIELD(disk_tablespace, name_size, NUMBER),
    FIELD(disk_tablespace, reserved, ZERO),
};

static const struct field snapshot_fields[] = {
    FIELD(disk_snapshot, at, NUMBER),         FIELD(disk_snapshot, catalog, PTR),
    FIELD(disk_snapshot, created_ns, SIGNED), FIELD(disk_snapshot, catalog_height, NUMBER),
    FIELD(disk_snapshot, reserved, ZERO),
};

static const struct field sidecar_header_fields[] = {
    FIELD(sidecar_header, magic, TEXT),        FIELD(sidecar_header, version, NUMBER),
    FIELD(sidecar_header, blocks, NUMBER),     FIELD(sidecar_header, store_id, HEX),
    FIELD(sidecar_header, rel, NUMBER),        FIELD(sidecar_header, first_ino, NUMBER),
    FIELD(sidecar_header, epoch, NUMBER),      FIELD(sidecar_header, root, PTR),
    FIELD(sidecar_header, root_bytes, NUMBER), FIELD(sidecar_header, root_leaves, NUMBER),
    FIELD(sidecar_header, used, NUMBER),       FIELD(sidecar_header, root_height, NUMBER),
    FIELD(sidecar_header, reserved, ZERO),     FIELD(sidecar_header, checksum, HEX),
};

static const struct field segment_header_fields[] = {
    FIELD(log_segment_header, magic, TEXT),          FIELD(log_segment_header, version, NUMBER),
    FIELD(log_segment_header, segment_size, NUMBER), FIELD(log_segment_header, store_id, HEX),
    FIELD(log_segment_header, number, NUMBER),       FIELD(log_segment_header, previous, NUMBER),
    FIELD(log_segment_header, timeline, NUMBER),     FIELD(log_segment_header, flags, HEX),
    FIELD(log_segment_header, reserved, ZERO),       FIELD(log_segment_header, checksum, HEX),
};

static const struct field batch_header_fields[] = {
    FIELD(log_batch_header, magic, TEXT),   FIELD(log_batch_header, payload_size, NUMBER),
    FIELD(log_batch_header, lsn, NUMBER),   FIELD(log_batch_header, synced, NUMBER),
    FIELD(log_batch_header, flags, NUMBER), FIELD(log_batch_header, reserved, ZERO),
    FIELD(log_batch_header, checksum, HEX),
};

struct structure {
    const struct field *fields;
    size_t count, size_bytes;
};

#define STRUCTURE(array, type)                                                                                         \
    {                                                                                                                  \
        .fields = (array), .count = ARRAY_COUNT(array), .size_bytes = sizeof(struct type)                              \
    }

static const struct structure structures[] = {
    [DUMP_CONTROL_SLOT] = STRUCTURE(control_slot_fields, control_slot),
    [DUMP_PAGE_HEADER] = STRUCTURE(page_header_fields, page_header),
    [DUMP_CONTENT_ENTRY] = STRUCTURE(content_entry_fields, content_entry),
    [DUMP_CATALOG_ITEM_HEAD] = STRUCTURE(item_head_fields, catalog_item_head),
    [DUMP_CATALOG_INNER_ENTRY] = STRUCTURE(inner_entry_fields, catalog_inner_entry),
    [DUMP_INODE] = STRUCTURE(inode_fields, disk_inode),
    [DUMP_DIRENT] = STRUCTURE(dirent_fields, disk_dirent),
    [DUMP_BACK] = STRUCTURE(back_fields, disk_back),
    [DUMP_OWNER] = STRUCTURE(owner_fields, disk_owner),
    [DUMP_SNAPSHOT] = STRUCTURE(snapshot_fields, disk_snapshot),
    [DUMP_TABLESPACE] = STRUCTURE(tablespace_fields, disk_tablespace),
    [DUMP_SIDECAR_HEADER] = STRUCTURE(sidecar_header_fields, sidecar_header),
    [DUMP_LOG_SEGMENT_HEADER] = STRUCTURE(segment_header_fields, log_segment_header),
    [DUMP_LOG_BATCH_HEADER] = STRUCTURE(batch_header_fields, log_batch_header),
};

/* FIELDS-1 */
static void assert_covered(const struct structure *structure)
{
    size_t covered = 0;
    for (size_t i = 0; i < structure->count; i++) {
        assert(structure->fields[i].offset == covered);
        covered += structure->fields[i].size;
    }
    assert(covered == structure->size_bytes);
}

static uint64_t number_at(const uint8_t *bytes, size_t size)
{
    uint64_t value = 0;
    for (size_t i = size; i > 0; i--) {
        value = value << 8 | bytes[i - 1];
    }
    return value;
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static void add_hex(struct dump_line *line, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        dump_add(line, "%02x", bytes[i]);
    }
}

static void add_ptr(struct dump_line *line, const uint8_t *bytes)
{
    struct disk_page_ptr disk;
    memcpy(&disk, bytes, sizeof disk);
    const struct page_ptr ptr = disk_page_ptr_get(&disk);
    if (page_ptr_is_none(ptr) && ptr.birth == 0 && ptr.alloc == 0) {
        dump_add(line, "none");
    } else {
        dump_add(line, "block:%" PRIu32 "/birth:%" PRIu64 "/alloc:%" PRIu32, ptr.block, ptr.birth, ptr.alloc);
    }
}

static void add_key(struct dump_line *line, const uint8_t *bytes)
{
    struct disk_catalog_key key;
    memcpy(&key, bytes, sizeof key);
    dump_add(line, "ino:%" PRIu64 "/type:%u/sub:%" PRIu64, le64_get(key.ino), key.type, le64_get(key.sub));
}

static void add_value(struct dump_line *line, const struct field *field, const uint8_t *bytes)
{
    switch (field->kind) {
    case KIND_NUMBER:
        dump_add(line, "%" PRIu64, number_at(bytes, field->size));
        break;
    case KIND_OCTAL:
        dump_add(line, "0%" PRIo64, number_at(bytes, field->size));
        break;
    case KIND_SIGNED:
        dump_add(line, "%" PRId64, (int64_t)number_at(bytes, field->size));
        break;
    case KIND_TEXT:
        dump_add_bytes(line, bytes, field->size);
        break;
    case KIND_PTR:
        add_ptr(line, bytes);
        break;
    case KIND_KEY:
        add_key(line, bytes);
        break;
    case KIND_HEX:
    case KIND_ZERO:
        add_hex(line, bytes, field->size);
        break;
    }
}

void dump_add_fields(struct dump_line *line, enum dump_structure which, const void *bytes)
{
    const struct structure *structure = &structures[which];
    assert_covered(structure);
    for (size_t i = 0; i < structure->count; i++) {
        const struct field *field = &structure->fields[i];
        const uint8_t *at = (const uint8_t *)bytes + field->offset;
        if (field->kind != KIND_ZERO || !is_zero(at, field->size)) {
            dump_add(line, " %s=", field->name);
            add_value(line, field, at);
        }
    }
}

void dump_print_fields(struct dump *dump, enum dump_structure which, const void *bytes)
{
    const struct structure *structure = &structures[which];
    assert_covered(structure);
    for (size_t i = 0; i < structure->count; i++) {
        const struct field *field = &structure->fields[i];
        const uint8_t *at = (const uint8_t *)bytes + field->offset;
        struct dump_line line = {.length = 0};
        if (field->kind != KIND_ZERO || !is_zero(at, field->size)) {
            dump_add(&line, "  %s=", field->name);
            add_value(&line, field, at);
            dump_emit(dump, &line);
        }
    }
}
