/*
 * txn/base.c - manifests: what a base is a copy of, and which files it has.
 *
 * Text, a line each: NAME tab VALUE for the whole, then `file` with name, size and checksum, then `end` with their count and the checksum of
 * all that stands before that line.
 */
#include "txn/base_int.h"

#include "base/array.h"
#include "base/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "tblfs base 1\n"
#define LINE_SIZE  128u

/* ---- lists of files ---- */

int base_files_add(struct base_files *list, const struct base_file *file)
{
    struct base_file *files = array_with_room(list->files, list->count, &list->capacity, sizeof files[0]);
    if (files == NULL) {
        return -ENOMEM;
    }
    list->files = files;
    list->files[list->count++] = *file;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct base_file *)a)->name, ((const struct base_file *)b)->name);
}

void base_files_sort(struct base_files *list)
{
    if (list->count > 0) {
        qsort(list->files, list->count, sizeof list->files[0], compare_names);
    }
}

void base_files_free(struct base_files *list)
{
    free(list->files);
    *list = (struct base_files){.count = 0};
}

uint64_t base_checksum_add(uint64_t checksum, const void *bytes, size_t size_bytes)
{
    return checksum_64(bytes, size_bytes, checksum);
}

void base_file_name(rel_no rel, char name[BASE_NAME_SIZE])
{
    (void)snprintf(name, BASE_NAME_SIZE, "rel/%02x/%016" PRIx64, (unsigned)(rel % 256), rel);
}

bool base_file_parse(const char *name, rel_no *out_rel)
{
    char again[BASE_NAME_SIZE];
    unsigned dir = 0;
    if (sscanf(name, "rel/%2x/%16" SCNx64, &dir, out_rel) != 2) {
        return false;
    }
    base_file_name(*out_rel, again);
    return strcmp(name, again) == 0;
}

/* ---- the header ---- */

/* Its numbers: name, and where they are. */
struct number {
    const char *name;
    size_t offset;
    size_t size;
};

#define NUMBER(name, member)                                                                                           \
    {                                                                                                                  \
        name, offsetof(struct base_header, member), sizeof(((struct base_header *)NULL)->member)                       \
    }

static const struct number numbers[] = {
    NUMBER("time_ns", taken_ns),
    NUMBER("timeline", control.timeline),
    NUMBER("checkpoint", control.number),
    NUMBER("epoch", control.epoch),
    NUMBER("catalog_birth", control.catalog.ptr.birth),
    NUMBER("catalog_block", control.catalog.ptr.block),
    NUMBER("catalog_alloc", control.catalog.ptr.alloc),
    NUMBER("catalog_height", control.catalog.height),
    NUMBER("redo_lsn", control.redo_lsn),
    NUMBER("scan_lsn", control.scan_lsn),
    NUMBER("ceiling_epoch", control.ceiling_epoch),
    NUMBER("ceiling_rel", control.ceiling_rel),
    NUMBER("ceiling_ino", control.ceiling_ino),
    NUMBER("ceiling_txn", control.ceiling_txn),
    NUMBER("ceiling_lsn", control.ceiling_lsn),
    NUMBER("name_seed", control.name_seed),
    NUMBER("name_bits", control.name_bits),
    NUMBER("fsm_threshold", control.fsm_threshold),
    NUMBER("inodes", control.inode_count),
    NUMBER("commits", control.commits),
    NUMBER("segment_size", segment_size),
    NUMBER("archived", archived),
};

static uint64_t number_get(const struct base_header *header, const struct number *number)
{
    const char *at = (const char *)header + number->offset;
    uint8_t byte = 0;
    uint32_t word = 0;
    uint64_t value = 0;
    switch (number->size) {
    case sizeof byte:
        memcpy(&byte, at, sizeof byte);
        return byte;
    case sizeof word:
        memcpy(&word, at, sizeof word);
        return word;
    default:
        memcpy(&value, at, sizeof value);
        return value;
    }
}

/* False: it does not fit. */
static bool number_set(struct base_header *header, const struct number *number, uint64_t value)
{
    char *at = (char *)header + number->offset;
    const uint8_t byte = (uint8_t)value;
    const uint32_t word = (uint32_t)value;
    switch (number->size) {
    case sizeof byte:
        memcpy(at, &byte, sizeof byte);
        break;
    case sizeof word:
        memcpy(at, &word, sizeof word);
        break;
    default:
        memcpy(at, &value, sizeof value);
        break;
    }
    return number_get(header, number) == value;
}

void base_header_print(const struct base_header *header, char text[BASE_HEADER_SIZE])
{
    size_t used = (size_t)snprintf(text, BASE_HEADER_SIZE, FIRST_LINE "store_id\t");
    for (size_t i = 0; i < sizeof header->control.store_id; i++) {
        used += (size_t)snprintf(text + used, BASE_HEADER_SIZE - used, "%02x", header->control.store_id[i]);
    }
    used += (size_t)snprintf(text + used, BASE_HEADER_SIZE - used, "\n");
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        used += (size_t)snprintf(text + used, BASE_HEADER_SIZE - used, "%s\t%" PRIu64 "\n", numbers[i].name,
                                 number_get(header, &numbers[i]));
    }
}

/* What follows the text at `at`, NULL: that does not begin with it. */
static const char *skip(const char *at, const char *text)
{
    const size_t size = strlen(text);
    return at != NULL && strncmp(at, text, size) == 0 ? at + size : NULL;
}

/* A number and what follows it; NULL: it is none. */
static const char *read_number(const char *at, int base, uint64_t *out_value)
{
    char *end = NULL;
    if (at == NULL || strchr("0123456789abcdef", at[0]) == NULL || at[0] == '\0') {
        return NULL;
    }
    errno = 0;
    *out_value = strtoull(at, &end, base);
    return errno == 0 && end != at ? end : NULL;
}

static const char *read_store_id(const char *at, uint8_t store_id[16])
{
    at = skip(at, "store_id\t");
    for (size_t i = 0; i < 16 && at != NULL; i++) {
        unsigned byte = 0;
        at = sscanf(at, "%2x", &byte) == 1 ? at + 2 : NULL;
        store_id[i] = (uint8_t)byte;
    }
    return skip(at, "\n");
}

int base_header_parse(const char *text, struct base_header *out_header, const char **out_rest)
{
    struct base_header header;
    memset(&header, 0, sizeof header);
    const char *at = read_store_id(skip(text, FIRST_LINE), header.control.store_id);
    for (size_t i = 0; i < ARRAY_COUNT(numbers) && at != NULL; i++) {
        uint64_t value = 0;
        at = skip(read_number(skip(skip(at, numbers[i].name), "\t"), 10, &value), "\n");
        at = numbers[i].offset != offsetof(struct base_header, archived) || value <= 1 ? at : NULL;
        if (at != NULL && !number_set(&header, &numbers[i], value)) {
            at = NULL;
        }
    }
    if (at == NULL || header.control.catalog.height == 0 || header.control.name_bits == 0 ||
        header.control.name_bits > 47) {
        return -EBADMSG;
    }
    *out_header = header;
    *out_rest = at;
    return 0;
}

/* ---- the whole ---- */

char *base_manifest_print(const struct base_header *header, const struct base_files *files)
{
    const size_t size = BASE_HEADER_SIZE + (files->count + 1) * LINE_SIZE;
    char *text = malloc(size);
    if (text == NULL) {
        return NULL;
    }
    base_header_print(header, text);
    size_t used = strlen(text);
    for (size_t i = 0; i < files->count; i++) {
        const struct base_file *file = &files->files[i];
        used += (size_t)snprintf(text + used, size - used, "file\t%s\t%" PRIu64 "\t%016" PRIx64 "\n", file->name,
                                 file->size_bytes, file->checksum);
    }
    const uint64_t checksum = checksum_64(text, used, 0);
    (void)snprintf(text + used, size - used, "end\t%zu\t%016" PRIx64 "\n", files->count, checksum);
    return text;
}

static const char *read_file_line(const char *at, struct base_file *file)
{
    const char *tab = strchr(at, '\t');
    const size_t size = tab != NULL ? (size_t)(tab - at) : BASE_NAME_SIZE;
    rel_no rel = 0;
    if (size >= BASE_NAME_SIZE) {
        return NULL;
    }
    memcpy(file->name, at, size);
    file->name[size] = '\0';
    at = read_number(tab + 1, 10, &file->size_bytes);
    at = skip(read_number(skip(at, "\t"), 16, &file->checksum), "\n");
    return base_file_parse(file->name, &rel) ? at : NULL;
}

int base_manifest_parse(const char *text, struct base_header *out_header, struct base_files *out_files)
{
    const char *at = NULL;
    uint64_t count = 0;
    uint64_t checksum = 0;
    *out_files = (struct base_files){.count = 0};
    int rc = base_header_parse(text, out_header, &at);
    while (rc == 0 && skip(at, "file\t") != NULL) {
        struct base_file file;
        memset(&file, 0, sizeof file);
        at = read_file_line(skip(at, "file\t"), &file);
        rc = at == NULL ? -EBADMSG : base_files_add(out_files, &file);
    }
    if (rc != 0) {
        return rc;
    }
    const char *end = skip(read_number(skip(read_number(skip(at, "end\t"), 10, &count), "\t"), 16, &checksum), "\n");
    const bool good = end != NULL && *end == '\0' && count == out_files->count &&
                      checksum == checksum_64(text, (size_t)(at - text), 0);
    return good ? 0 : -EBADMSG;
}
