/*
 * tools/listing.c - see the header.
 */
#include "tools/listing.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GAP 2u /* blanks between columns */

struct row {
    char *line;    /* malloc'd; the fields point into it */
    char **fields; /* malloc'd */
    size_t count;
};

struct rows {
    struct row *rows; /* the first has the names */
    size_t count, capacity;
};

static void rows_free(struct rows *rows)
{
    for (size_t index = 0; index < rows->count; index++) {
        free(rows->rows[index].line);
        free(rows->rows[index].fields);
    }
    free(rows->rows);
}

static size_t count_fields(const char *line)
{
    size_t count = 1;
    for (const char *tab = strchr(line, '\t'); tab != NULL; tab = strchr(tab + 1, '\t'))
        count++;
    return count;
}

/* Takes over the line. */
static int add_row(struct rows *rows, char *line)
{
    struct row *list = array_with_room(rows->rows, rows->count, &rows->capacity, sizeof list[0]);
    if (list == NULL) {
        free(line);
        return -ENOMEM;
    }
    rows->rows = list;
    line[strcspn(line, "\n")] = '\0';
    struct row *row = &list[rows->count++];
    *row = (struct row){.line = line, .count = count_fields(line)};
    row->fields = calloc(row->count, sizeof row->fields[0]);
    if (row->fields == NULL)
        return -ENOMEM;
    char *rest = line;
    for (size_t index = 0; index < row->count; index++)
        row->fields[index] = strsep(&rest, "\t");
    return 0;
}

static int read_rows(FILE *in, struct rows *rows)
{
    char *line = NULL;
    size_t capacity = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &capacity, in) > 0) {
        rc = add_row(rows, line);
        line = NULL;
        capacity = 0;
    }
    free(line);
    return rc == 0 && ferror(in) ? -EIO : rc;
}

/* ---- for people ---- */

static size_t width_of(const struct rows *rows, size_t column)
{
    size_t width = 0;
    for (size_t index = 0; index < rows->count; index++) {
        const struct row *row = &rows->rows[index];
        const size_t size = column < row->count ? strlen(row->fields[column]) : 0;
        width = size > width ? size : width;
    }
    return width;
}

static int write_columns(const struct rows *rows, FILE *out)
{
    const size_t columns = rows->count > 0 ? rows->rows[0].count : 0;
    size_t *widths = calloc(columns + 1, sizeof widths[0]);
    if (widths == NULL)
        return -ENOMEM;
    for (size_t column = 0; column < columns; column++)
        widths[column] = width_of(rows, column) + GAP;
    for (size_t index = 0; index < rows->count; index++) {
        const struct row *row = &rows->rows[index];
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

static void write_json_row(const struct row *names, const struct row *row, FILE *out)
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

static void write_json(const struct rows *rows, FILE *out)
{
    fputs("[", out);
    for (size_t index = 1; index < rows->count; index++) {
        fputs(index > 1 ? ",\n" : "\n", out);
        write_json_row(&rows->rows[0], &rows->rows[index], out);
    }
    fputs("\n]\n", out);
}

int listing_write(FILE *in, bool json, FILE *out)
{
    struct rows rows = {.rows = NULL};
    int rc = read_rows(in, &rows);
    if (rc == 0 && json)
        write_json(&rows, out);
    else if (rc == 0)
        rc = write_columns(&rows, out);
    rows_free(&rows);
    return rc == 0 && (fflush(out) != 0 || ferror(out)) ? -EIO : rc;
}
