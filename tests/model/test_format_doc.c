/*
 * tests/model/test_format_doc.c - docs/FORMAT.md says what the headers say: offset and size of every field of every
 * disk structure. Run from the repository's root.
 */
#include "fsm/sidecar_format.h"
#include "table/catalog_format.h"
#include "table/content_format.h"
#include "txn/control_format.h"
#include "txn/log_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DOCUMENT   "docs/FORMAT.md"
#define LINE_BYTES 1000

struct field {
    const char *structure;
    const char *name;
    size_t offset;
    size_t size;
    size_t structure_size;
};

#define FIELD(type, member)                                                                                            \
    {                                                                                                                  \
#type, #member, offsetof(struct type, member), sizeof(((struct type *)NULL)->member), sizeof(struct type)      \
    }

static const struct field fields[] = {
    FIELD(page_header, checksum),
    FIELD(page_header, rel),
    FIELD(page_header, birth),
    FIELD(page_header, block),
    FIELD(page_header, alloc),
    FIELD(page_header, type),
    FIELD(page_header, level),
    FIELD(page_header, used),
    FIELD(page_header, count),
    FIELD(page_header, reserved),
    FIELD(disk_page_ptr, birth),
    FIELD(disk_page_ptr, block),
    FIELD(disk_page_ptr, alloc),
    FIELD(content_entry, ptr),
    FIELD(content_entry, bytes),
    FIELD(disk_catalog_key, ino),
    FIELD(disk_catalog_key, sub),
    FIELD(disk_catalog_key, type),
    FIELD(catalog_item_head, key),
    FIELD(catalog_item_head, reserved),
    FIELD(catalog_item_head, value_offset),
    FIELD(catalog_item_head, value_size),
    FIELD(catalog_inner_entry, key),
    FIELD(catalog_inner_entry, reserved),
    FIELD(catalog_inner_entry, ptr),
    FIELD(disk_inode, mode),
    FIELD(disk_inode, nlink),
    FIELD(disk_inode, uid),
    FIELD(disk_inode, gid),
    FIELD(disk_inode, rdev),
    FIELD(disk_inode, ts),
    FIELD(disk_inode, atime_ns),
    FIELD(disk_inode, mtime_ns),
    FIELD(disk_inode, ctime_ns),
    FIELD(disk_inode, rel),
    FIELD(disk_inode, rel_created),
    FIELD(disk_inode, content),
    FIELD(disk_inode, content_bytes),
    FIELD(disk_inode, change_epoch),
    FIELD(disk_inode, rewrite_epoch),
    FIELD(disk_inode, attr_epoch),
    FIELD(disk_inode, parent),
    FIELD(disk_inode, name_cookie),
    FIELD(disk_inode, content_height),
    FIELD(disk_inode, flags),
    FIELD(disk_inode, reserved),
    FIELD(disk_inode, content_leaves),
    FIELD(disk_dirent, ino),
    FIELD(disk_dirent, kind),
    FIELD(disk_back, parent),
    FIELD(disk_back, cookie),
    FIELD(disk_tablespace, created_ns),
    FIELD(disk_tablespace, name_size),
    FIELD(disk_tablespace, reserved),
    FIELD(disk_owner, owner),
    FIELD(disk_owner, first),
    FIELD(disk_snapshot, at),
    FIELD(disk_snapshot, catalog),
    FIELD(disk_snapshot, created_ns),
    FIELD(disk_snapshot, catalog_height),
    FIELD(disk_snapshot, reserved),
    FIELD(control_slot, magic),
    FIELD(control_slot, version),
    FIELD(control_slot, block_size),
    FIELD(control_slot, store_id),
    FIELD(control_slot, number),
    FIELD(control_slot, written_ns),
    FIELD(control_slot, epoch),
    FIELD(control_slot, catalog),
    FIELD(control_slot, redo_lsn),
    FIELD(control_slot, scan_lsn),
    FIELD(control_slot, ceiling_epoch),
    FIELD(control_slot, ceiling_rel),
    FIELD(control_slot, ceiling_ino),
    FIELD(control_slot, ceiling_txn),
    FIELD(control_slot, ceiling_lsn),
    FIELD(control_slot, name_seed),
    FIELD(control_slot, catalog_height),
    FIELD(control_slot, clean),
    FIELD(control_slot, name_bits),
    FIELD(control_slot, timeline),
    FIELD(control_slot, restoring),
    FIELD(control_slot, reserved),
    FIELD(control_slot, fsm_threshold),
    FIELD(control_slot, sidecar_threshold),
    FIELD(control_slot, sidecar_epoch),
    FIELD(control_slot, commits),
    FIELD(control_slot, inode_count),
    FIELD(control_slot, checksum),
    FIELD(sidecar_header, magic),
    FIELD(sidecar_header, version),
    FIELD(sidecar_header, blocks),
    FIELD(sidecar_header, store_id),
    FIELD(sidecar_header, rel),
    FIELD(sidecar_header, first_ino),
    FIELD(sidecar_header, epoch),
    FIELD(sidecar_header, root),
    FIELD(sidecar_header, root_bytes),
    FIELD(sidecar_header, root_leaves),
    FIELD(sidecar_header, used),
    FIELD(sidecar_header, root_height),
    FIELD(sidecar_header, reserved),
    FIELD(sidecar_header, checksum),
    FIELD(log_segment_header, magic),
    FIELD(log_segment_header, version),
    FIELD(log_segment_header, segment_size),
    FIELD(log_segment_header, store_id),
    FIELD(log_segment_header, number),
    FIELD(log_segment_header, previous),
    FIELD(log_segment_header, timeline),
    FIELD(log_segment_header, flags),
    FIELD(log_segment_header, reserved),
    FIELD(log_segment_header, checksum),
    FIELD(log_batch_header, magic),
    FIELD(log_batch_header, payload_size),
    FIELD(log_batch_header, lsn),
    FIELD(log_batch_header, synced),
    FIELD(log_batch_header, flags),
    FIELD(log_batch_header, reserved),
    FIELD(log_batch_header, checksum),
};

/* Where the document is: under which structure's heading. */
struct place {
    char structure[64];
    bool seen[ARRAY_COUNT(fields)];
};

static void check_row(struct place *place, const char *line)
{
    size_t offset;
    size_t size;
    char name[64];
    if (place->structure[0] == '\0' || sscanf(line, "| %zu | %zu | %63[a-z_] |", &offset, &size, name) != 3) {
        return;
    }
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        const struct field *field = &fields[i];
        if (strcmp(field->structure, place->structure) == 0 && strcmp(field->name, name) == 0) {
            if (field->offset != offset || field->size != size) {
                fail_msg("%s: %s.%s: offset %zu size %zu, the header says %zu and %zu", DOCUMENT, place->structure,
                         name, offset, size, field->offset, field->size);
            }
            place->seen[i] = true;
            return;
        }
    }
    fail_msg("%s: struct %s has no field %s", DOCUMENT, place->structure, name);
}

static void check_heading(struct place *place, const char *line)
{
    size_t size;
    place->structure[0] = '\0';
    if (sscanf(line, "### `struct %63[a-z_]`, %zu bytes", place->structure, &size) != 2) {
        place->structure[0] = '\0';
        return;
    }
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        if (strcmp(fields[i].structure, place->structure) == 0) {
            assert_int_equal(fields[i].structure_size, size);
        }
    }
}

static void format_document_agrees_with_headers(void **state)
{
    (void)state;
    struct place place = {0};
    char line[LINE_BYTES];
    FILE *document = fopen(DOCUMENT, "r");
    assert_non_null(document);
    while (fgets(line, sizeof line, document) != NULL) {
        if (line[0] == '#') {
            check_heading(&place, line);
        } else if (line[0] == '|') {
            check_row(&place, line);
        }
    }
    fclose(document);
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        if (!place.seen[i]) {
            fail_msg("%s does not describe %s.%s", DOCUMENT, fields[i].structure, fields[i].name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format_document_agrees_with_headers),
    };
    return cmocka_run_group_tests_name("test_format_doc", tests, NULL, NULL);
}
