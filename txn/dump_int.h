/*
 * txn/dump_int.h - inside of the dump: lines, fields, pages.
 */
#ifndef TBLFS_TXN_DUMP_INT_H
#define TBLFS_TXN_DUMP_INT_H

#include "base/diag.h"
#include "table/catalog.h"
#include "txn/control_format.h"
#include "txn/dump.h"

#define DUMP_PATH_SIZE 4300u

struct dump {
    struct diag diag; /* first: its lines are lines of the dump */
    const struct dump_options *options;
    struct io_file *file; /* relation file that was read last, NULL: none */
    rel_no file_rel;
};

void dump_begin(struct dump *dump, const struct dump_options *options);
/* Result of the whole dump. */
int dump_end(struct dump *dump, int rc) WARN_UNUSED;

/* ---- lines (dump_fields.c) ---- */

struct dump_line {
    char text[4096];
    size_t length;
};

void dump_add(struct dump_line *line, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* In quotes, what is not printable as \xHH; long ones are cut and say so. */
void dump_add_bytes(struct dump_line *line, const void *bytes, size_t size);
void dump_emit(struct dump *dump, const struct dump_line *line);
void dump_print(struct dump *dump, const char *fmt, ...) PRINTF_LIKE(2, 3);

enum dump_structure {
    DUMP_CONTROL_SLOT,
    DUMP_PAGE_HEADER,
    DUMP_CONTENT_ENTRY,
    DUMP_CATALOG_ITEM_HEAD,
    DUMP_CATALOG_INNER_ENTRY,
    DUMP_INODE,
    DUMP_DIRENT,
    DUMP_BACK,
    DUMP_OWNER,
    DUMP_SNAPSHOT,
    DUMP_TABLESPACE,
    DUMP_SIDECAR_HEADER,
    DUMP_LOG_SEGMENT_HEADER,
    DUMP_LOG_BATCH_HEADER,
};

/* Adds every field of a disk structure as " name=value". */
void dump_add_fields(struct dump_line *line, enum dump_structure structure, const void *bytes);
/* A line for each field. */
void dump_print_fields(struct dump *dump, enum dump_structure structure, const void *bytes);

/* ---- control (dump.c) ---- */

/* The newest good copy of a control slot. -ENODATA: there is none, said. */
int dump_read_control(struct dump *dump, struct control_slot *out_slot) WARN_UNUSED;

/* ---- pages (dump_page.c) ---- */

/* Reads a block of a relation file. -ENODATA: there is no such block or file, said. */
int dump_read_block(struct dump *dump, rel_no rel, block_no block, uint8_t page[BLOCK_SIZE]) WARN_UNUSED;
/* Reads the page that a pointer means and checks all of it. 1: it is good; 0: it is not, which was said; negative: the
 * file cannot be read. */
int dump_read_page(struct dump *dump, rel_no rel, struct page_ptr ptr, uint8_t type, uint8_t level,
                   uint8_t page[BLOCK_SIZE]) WARN_UNUSED;
void dump_print_header(struct dump *dump, const void *page);
void dump_print_item(struct dump *dump, const void *page, unsigned index);

#endif
