/*
 * tools/tables.h - reading the tables of a mount: MNT/.tblfs/NAME.
 */
#ifndef TBLFS_TOOLS_TABLES_H
#define TBLFS_TOOLS_TABLES_H

#include "base/types.h"

#include <stdio.h>

/* Lines of fields; the first names the columns. */
struct tsv_row {
    char *line;    /* malloc'd; the fields point into it */
    char **fields; /* malloc'd */
    size_t count;
};
struct tsv {
    struct tsv_row *rows;
    size_t count, capacity;
};

/* Reads all lines. 0; -EIO, -ENOMEM: *out_table is empty. */
int tsv_read(FILE *in, struct tsv *out_table) WARN_UNUSED;
/* Reads a table of the mount. -errno: *out_table is empty, and it was said on stderr (unless quiet). */
int tsv_read_mount(const char *mount_point, const char *name, bool quiet, struct tsv *out_table) WARN_UNUSED;
void tsv_free(struct tsv *table); /* it is empty then */

/* A field of a row (1: the first behind the names) by its column; "" when there is none. */
const char *tsv_field(const struct tsv *table, size_t row, const char *column);
uint64_t tsv_number(const struct tsv *table, size_t row, const char *column);
/* The value of a name, in a table of names and values. */
const char *tsv_value(const struct tsv *table, const char *name);
uint64_t tsv_value_number(const struct tsv *table, const char *name);
/* The row whose first field is that; 0: there is none. */
size_t tsv_find(const struct tsv *table, const char *first);
/* Lines behind the names of the columns. */
size_t tsv_rows(const struct tsv *table);

/* Seconds since a time that a table holds, or 0. */
double tsv_age_s(const char *time);

#define TEXT_SIZE 32u
/* Like "12.3M", "845"; of bytes. */
const char *text_of_bytes(uint64_t bytes, char text[TEXT_SIZE]);
/* Like "3d 04:12", "04:12:01", "12.3s". */
const char *text_of_seconds(double seconds, char text[TEXT_SIZE]);

#endif
