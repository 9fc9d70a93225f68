/*
 * txn/op.c - operation records as bytes and as text, driven by the list in txn/op.def.
 */
#include "txn/op.h"

#include "base/bytes.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PRINT_BYTES_MAX 48u

enum field_kind { FIELD_U64, FIELD_I64, FIELD_U32, FIELD_BYTES };

struct field_info {
    const char *name;
    enum field_kind kind;
    size_t offset; /* in struct op_record */
};

static const struct field_info field_infos[OP_FIELD_COUNT] = {
#define OP_FIELD(name, member, kind) {#member, FIELD_##kind, offsetof(struct op_record, member)},
#include "txn/op.def"
};

/* The field lists, each ending with OP_FIELD_COUNT. */
#define F(name)                      OP_FIELD_##name,
#define OP(name, code, fields, text) static const uint8_t fields_of_##name[] = {fields OP_FIELD_COUNT};
#include "txn/op.def"
#undef F

struct type_info {
    const char *name;
    const uint8_t *fields;
};

static const struct type_info type_infos[] = {
#define OP(name, code, fields, text) [code] = {#name, fields_of_##name},
#include "txn/op.def"
};

static const struct type_info *info_of(enum op_type type)
{
    const size_t index = (size_t)type;
    return index < ARRAY_COUNT(type_infos) && type_infos[index].name != NULL ? &type_infos[index] : NULL;
}

const char *op_type_name(enum op_type type)
{
    const struct type_info *info = info_of(type);
    return info != NULL ? info->name : "UNKNOWN";
}

const uint8_t *op_type_fields(enum op_type type)
{
    const struct type_info *info = info_of(type);
    return info != NULL ? info->fields : NULL;
}

static const void *field_of(const struct op_record *op, uint8_t field)
{
    return (const char *)op + field_infos[field].offset;
}

static size_t field_size(const struct op_record *op, uint8_t field)
{
    switch (field_infos[field].kind) {
    case FIELD_U32:
        return 4;
    case FIELD_BYTES:
        return 4 + ((const struct op_bytes *)field_of(op, field))->size;
    case FIELD_U64:
    case FIELD_I64:
    default:
        return 8;
    }
}

size_t op_record_size(const struct op_record *op)
{
    size_t size = OP_RECORD_HEADER_SIZE;
    for (const uint8_t *field = op_type_fields(op->type); *field != OP_FIELD_COUNT; field++) {
        size += field_size(op, *field);
    }
    assert(size <= UINT32_MAX);
    return size;
}

static uint8_t *put_32(uint8_t *at, uint32_t value)
{
    const le32 raw = le32_of(value);
    memcpy(at, &raw, sizeof raw);
    return at + sizeof raw;
}

static uint8_t *put_64(uint8_t *at, uint64_t value)
{
    const le64 raw = le64_of(value);
    memcpy(at, &raw, sizeof raw);
    return at + sizeof raw;
}

static uint8_t *put_field(uint8_t *at, const struct op_record *op, uint8_t field)
{
    const void *from = field_of(op, field);
    if (field_infos[field].kind == FIELD_U32) {
        uint32_t value;
        memcpy(&value, from, sizeof value);
        return put_32(at, value);
    }
    if (field_infos[field].kind == FIELD_BYTES) {
        const struct op_bytes *bytes = from;
        at = put_32(at, (uint32_t)bytes->size);
        if (bytes->size > 0) {
            memcpy(at, bytes->data, bytes->size);
        }
        return at + bytes->size;
    }
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return put_64(at, value);
}

void op_record_encode(const struct op_record *op, void *buffer)
{
    uint8_t *at = put_32(buffer, (uint32_t)op_record_size(op));
    at = put_32(at, (uint32_t)op->type);
    at = put_64(at, op->txn);
    at = put_64(at, (uint64_t)op->time_ns);
    for (const uint8_t *field = op_type_fields(op->type); *field != OP_FIELD_COUNT; field++) {
        at = put_field(at, op, *field);
    }
}

static uint32_t get_32(const uint8_t *at)
{
    le32 raw;
    memcpy(&raw, at, sizeof raw);
    return le32_get(raw);
}

static uint64_t get_64(const uint8_t *at)
{
    le64 raw;
    memcpy(&raw, at, sizeof raw);
    return le64_get(raw);
}

/* Reads one field; returns what is behind it, NULL when it does not fit. */
static const uint8_t *get_field(const uint8_t *at, const uint8_t *end, struct op_record *op, uint8_t field)
{
    void *to = (char *)op + field_infos[field].offset;
    const size_t left = (size_t)(end - at);
    const enum field_kind kind = field_infos[field].kind;
    const size_t fixed = kind == FIELD_U32 || kind == FIELD_BYTES ? 4 : 8;
    if (left < fixed) {
        return NULL;
    }
    if (fixed == 8) {
        const uint64_t value = get_64(at);
        memcpy(to, &value, sizeof value);
        return at + 8;
    }
    const uint32_t value = get_32(at);
    if (kind == FIELD_U32) {
        memcpy(to, &value, sizeof value);
        return at + 4;
    }
    if (left - 4 < value) {
        return NULL;
    }
    *(struct op_bytes *)to = (struct op_bytes){.data = at + 4, .size = value};
    return at + 4 + value;
}

int op_record_decode(const void *buffer, size_t size, struct op_record *out_op, size_t *out_size)
{
    const uint8_t *at = buffer;
    if (size < OP_RECORD_HEADER_SIZE) {
        return -EBADMSG;
    }
    const uint32_t record_size = get_32(at);
    const uint32_t type = get_32(at + 4);
    const uint8_t *fields = type <= UINT8_MAX ? op_type_fields((enum op_type)type) : NULL;
    if (record_size < OP_RECORD_HEADER_SIZE || record_size > size || fields == NULL) {
        return -EBADMSG;
    }
    *out_op =
        (struct op_record){.type = (enum op_type)type, .txn = get_64(at + 8), .time_ns = (int64_t)get_64(at + 16)};
    const uint8_t *end = at + record_size;
    at += OP_RECORD_HEADER_SIZE;
    for (; *fields != OP_FIELD_COUNT && at != NULL; fields++) {
        at = get_field(at, end, out_op, *fields);
    }
    if (at != end) {
        return -EBADMSG;
    }
    *out_size = record_size;
    return 0;
}

/* ---- text ---- */

struct text {
    char *buffer;
    size_t size;
    int length; /* as snprintf counts */
};

static void PRINTF_LIKE(2, 3) text_add(struct text *text, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const size_t used = (size_t)text->length < text->size ? (size_t)text->length : text->size;
    text->length += vsnprintf(text->buffer + used, text->size - used, fmt, args);
    va_end(args);
}

static void text_add_bytes(struct text *text, const struct op_bytes *bytes)
{
    const uint8_t *data = bytes->data;
    text_add(text, "\"");
    for (size_t i = 0; i < bytes->size && i < PRINT_BYTES_MAX; i++) {
        if (isprint(data[i]) && data[i] != '"' && data[i] != '\\') {
            text_add(text, "%c", data[i]);
        } else {
            text_add(text, "\\x%02x", data[i]);
        }
    }
    text_add(text, bytes->size > PRINT_BYTES_MAX ? "\"... (%zu bytes)" : "\"", bytes->size);
}

int op_record_print(const struct op_record *op, char *buffer, size_t size)
{
    struct text text = {.buffer = buffer, .size = size};
    text_add(&text, "%s txn=%" PRIu64 " time=%" PRId64, op_type_name(op->type), op->txn, op->time_ns);
    const uint8_t *fields = op_type_fields(op->type);
    for (; fields != NULL && *fields != OP_FIELD_COUNT; fields++) {
        const struct field_info *info = &field_infos[*fields];
        const void *value = field_of(op, *fields);
        text_add(&text, " %s=", info->name);
        if (info->kind == FIELD_BYTES) {
            text_add_bytes(&text, value);
        } else if (info->kind == FIELD_U32) {
            text_add(&text, "%" PRIu32, *(const uint32_t *)value);
        } else if (info->kind == FIELD_I64) {
            text_add(&text, "%" PRId64, *(const int64_t *)value);
        } else {
            text_add(&text, "%" PRIu64, *(const uint64_t *)value);
        }
    }
    return text.length;
}
