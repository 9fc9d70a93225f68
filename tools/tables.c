/*
 * tools/tables.c - see the header.
 */
#include "tools/tables.h"

#include "base/array.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- reading ---- */

void tsv_free(struct tsv *table)
{
    for (size_t index = 0; index < table->count; index++) {
        free(table->rows[index].line);
        free(table->rows[index].fields);
    }
    free(table->rows);
    *table = (struct tsv){.rows = NULL};
}

static size_t count_fields(const char *line)
{
    size_t count = 1;
    for (const char *tab = strchr(line, '\t'); tab != NULL; tab = strchr(tab + 1, '\t'))
        count++;
    return count;
}

/* Takes over the line. */
static int add_row(struct tsv *table, char *line)
{
    struct tsv_row *list = array_with_room(table->rows, table->count, &table->capacity, sizeof list[0]);
    if (list == NULL) {
        free(line);
        return -ENOMEM;
    }
    table->rows = list;
    line[strcspn(line, "\n")] = '\0';
    struct tsv_row *row = &list[table->count++];
    *row = (struct tsv_row){.line = line, .count = count_fields(line)};
    row->fields = calloc(row->count, sizeof row->fields[0]);
    if (row->fields == NULL)
        return -ENOMEM;
    char *rest = line;
    for (size_t index = 0; index < row->count; index++)
        row->fields[index] = strsep(&rest, "\t");
    return 0;
}

int tsv_read(FILE *in, struct tsv *out_table)
{
    char *line = NULL;
    size_t capacity = 0;
    int rc = 0;
    *out_table = (struct tsv){.rows = NULL};
    while (rc == 0 && getline(&line, &capacity, in) > 0) {
        rc = add_row(out_table, line);
        line = NULL;
        capacity = 0;
    }
    free(line);
    rc = rc == 0 && ferror(in) ? -EIO : rc;
    if (rc != 0)
        tsv_free(out_table);
    return rc;
}

int tsv_read_mount(const char *mount_point, const char *name, bool quiet, struct tsv *out_table)
{
    char path[PATH_MAX];
    *out_table = (struct tsv){.rows = NULL};
    (void)snprintf(path, sizeof path, "%s/.tblfs/%s", mount_point, name);
    FILE *in = fopen(path, "re");
    int rc = in == NULL ? -errno : tsv_read(in, out_table);
    if (in != NULL)
        (void)fclose(in);
    if (rc != 0 && !quiet)
        fprintf(stderr, "tblfs: %s: %s%s\n", path, strerror(-rc), rc == -ENOENT ? " (is a store mounted there?)" : "");
    return rc;
}

/* ---- fields ---- */

size_t tsv_rows(const struct tsv *table)
{
    return table->count > 0 ? table->count - 1 : 0;
}

const char *tsv_field(const struct tsv *table, size_t row, const char *column)
{
    for (size_t index = 0; row < table->count && index < table->rows[0].count; index++) {
        if (strcmp(table->rows[0].fields[index], column) == 0)
            return index < table->rows[row].count ? table->rows[row].fields[index] : "";
    }
    return "";
}

uint64_t tsv_number(const struct tsv *table, size_t row, const char *column)
{
    return strtoull(tsv_field(table, row, column), NULL, 10);
}

size_t tsv_find(const struct tsv *table, const char *first)
{
    for (size_t row = 1; row < table->count; row++) {
        if (table->rows[row].count > 0 && strcmp(table->rows[row].fields[0], first) == 0)
            return row;
    }
    return 0;
}

const char *tsv_value(const struct tsv *table, const char *name)
{
    const size_t row = tsv_find(table, name);
    return row != 0 && table->rows[row].count > 1 ? table->rows[row].fields[1] : "";
}

uint64_t tsv_value_number(const struct tsv *table, const char *name)
{
    return strtoull(tsv_value(table, name), NULL, 10);
}

double tsv_age_s(const char *time_text)
{
    struct tm parts = {0};
    struct timespec now;
    if (strptime(time_text, "%Y-%m-%dT%H:%M:%S", &parts) == NULL)
        return 0;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const double age = (double)(now.tv_sec - timegm(&parts));
    return age > 0 ? age : 0;
}

/* ---- for people ---- */

const char *text_of_bytes(uint64_t bytes, char text[TEXT_SIZE])
{
    static const char units[] = "KMGTPE";
    double value = (double)bytes;
    int unit = -1;
    while (value >= 1000 && units[unit + 1] != '\0') {
        value /= 1024;
        unit++;
    }
    if (unit < 0)
        (void)snprintf(text, TEXT_SIZE, "%" PRIu64, bytes);
    else
        (void)snprintf(text, TEXT_SIZE, "%.*f%c", value < 99.95 ? 1 : 0, value, units[unit]);
    return text;
}

const char *text_of_seconds(double seconds, char text[TEXT_SIZE])
{
    const uint64_t whole = (uint64_t)seconds;
    const unsigned hours = (unsigned)(whole / 3600 % 24), minutes = (unsigned)(whole / 60 % 60);
    if (whole >= 86400)
        (void)snprintf(text, TEXT_SIZE, "%" PRIu64 "d %02u:%02u", whole / 86400, hours, minutes);
    else if (whole >= 60)
        (void)snprintf(text, TEXT_SIZE, "%02u:%02u:%02u", hours, minutes, (unsigned)(whole % 60));
    else
        (void)snprintf(text, TEXT_SIZE, "%.1fs", seconds);
    return text;
}
