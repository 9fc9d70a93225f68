/*
 * tools/listing.c - see the header.
 */
#include "tools/listing.h"

#include "tools/tables.h"
#include "tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define GAP 2u /* blanks between columns */

/* ---- for people ---- */

static size_t width_of(const struct tsv *table, size_t column)
{
    size_t width = 0;
    for (size_t index = 0; index < table->count; index++) {
        const struct tsv_row *row = &table->rows[index];
        const size_t size = column < row->count ? strlen(row->fields[column]) : 0;
        width = size > width ? size : width;
    }
    return width;
}

static int write_columns(const struct tsv *table, FILE *out)
{
    const size_t columns = table->count > 0 ? table->rows[0].count : 0;
    size_t *widths = calloc(columns + 1, sizeof widths[0]);
    if (widths == NULL)
        return -ENOMEM;
    for (size_t column = 0; column < columns; column++)
        widths[column] = width_of(table, column) + GAP;
    for (size_t index = 0; index < table->count; index++) {
        const struct tsv_row *row = &table->rows[index];
        for (size_t column = 0; column + 1 < row->count; column++)
            fprintf(out, "%-*s", column < columns ? (int)widths[column] : 0, row->fields[column]);
        fprintf(out, "%s\n", row->fields[row->count - 1]);
    }
    free(widths);
    return 0;
}

/* ---- for programs ---- */

/* Bytes of the UTF-8 sequence that begins there; 0: none does. */
static size_t utf8_size(const char *text)
{
    const unsigned char first = (unsigned char)text[0];
    const size_t size = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
    for (size_t index = 1; index < size; index++) {
        if (((unsigned char)text[index] & 0xc0) != 0x80)
            return 0;
    }
    const unsigned char second = size > 1 ? (unsigned char)text[1] : 0;
    const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool beyond = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
    return overlong || beyond ? 0 : size;
}

/* What is no UTF-8 becomes U+FFFD: JSON has no other bytes. */
static void write_json_text(const char *text, FILE *out)
{
    fputc('"', out);
    while (text[0] != '\0') {
        const size_t size = utf8_size(text);
        if (size == 0)
            fputs("\\ufffd", out);
        else if (text[0] == '"' || text[0] == '\\')
            fprintf(out, "\\%c", text[0]);
        else if ((unsigned char)text[0] < 0x20)
            fprintf(out, "\\u%04x", (unsigned)text[0]);
        else
            fwrite(text, 1, size, out);
        text += size == 0 ? 1 : size;
    }
    fputc('"', out);
}

/* As JSON writes one: digits, without a zero before them, and perhaps a fraction. */
static bool is_number(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    const char *rest = text + digits;
    if (digits == 0 || digits > 18 || (digits > 1 && text[0] == '0'))
        return false;
    return rest[0] == '\0' || (rest[0] == '.' && rest[1] != '\0' && strspn(rest + 1, "0123456789") == strlen(rest + 1));
}

static void write_json_row(const struct tsv_row *names, const struct tsv_row *row, FILE *out)
{
    const size_t count = row->count < names->count ? row->count : names->count;
    for (size_t column = 0; column < count; column++) {
        fputs(column == 0 ? "  {" : ", ", out);
        write_json_text(names->fields[column], out);
        fputs(": ", out);
        if (is_number(row->fields[column]))
            fputs(row->fields[column], out);
        else
            write_json_text(row->fields[column], out);
    }
    fputc('}', out);
}

static void write_json(const struct tsv *table, FILE *out)
{
    fputs("[", out);
    for (size_t index = 1; index < table->count; index++) {
        fputs(index > 1 ? ",\n" : "\n", out);
        write_json_row(&table->rows[0], &table->rows[index], out);
    }
    fputs("\n]\n", out);
}

static int write_table(const struct tsv *table, bool json, FILE *out)
{
    int rc = 0;
    if (json)
        write_json(table, out);
    else
        rc = write_columns(table, out);
    return rc == 0 && (fflush(out) != 0 || ferror(out)) ? -EIO : rc;
}

int listing_write(FILE *in, bool json, FILE *out)
{
    struct tsv table;
    int rc = tsv_read(in, &table);
    if (rc == 0)
        rc = write_table(&table, json, out);
    tsv_free(&table);
    return rc;
}

int listing_of_mount(const char *mount_point, const char *name, bool json)
{
    struct tsv table;
    if (tsv_read_mount(mount_point, name, false, &table) != 0)
        return TOOL_EXIT_FAILED;
    const int rc = write_table(&table, json, stdout);
    tsv_free(&table);
    if (rc != 0)
        fprintf(stderr, "tblfs: %s\n", strerror(-rc));
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

int listing_take_switch(const struct tool *tool, int argc, char **argv, bool *out_json)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option != 'j')
            return tool_unknown_option(tool, argv[optind - 1]);
        *out_json = true;
    }
    return 0;
}
