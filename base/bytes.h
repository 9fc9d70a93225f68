/*
 * base/bytes.h - little-endian fields of disk structures.
 *
 * le16, le32 and le64 are struct types so that a raw disk value can neither be read nor written without a conversion.
 * They have alignment 1: a disk structure made of them (and of uint8_t) has no padding and may lie at any address.
 */
#ifndef TBLFS_BASE_BYTES_H
#define TBLFS_BASE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint8_t bytes[2];
} le16;
typedef struct {
    uint8_t bytes[4];
} le32;
typedef struct {
    uint8_t bytes[8];
} le64;

static inline uint16_t le16_get(le16 field)
{
    uint16_t raw;
    memcpy(&raw, field.bytes, sizeof raw);
    return le16toh(raw);
}

static inline le16 le16_of(uint16_t value)
{
    le16 field;
    const uint16_t raw = htole16(value);
    memcpy(field.bytes, &raw, sizeof raw);
    return field;
}

static inline uint32_t le32_get(le32 field)
{
    uint32_t raw;
    memcpy(&raw, field.bytes, sizeof raw);
    return le32toh(raw);
}

static inline le32 le32_of(uint32_t value)
{
    le32 field;
    const uint32_t raw = htole32(value);
    memcpy(field.bytes, &raw, sizeof raw);
    return field;
}

static inline uint64_t le64_get(le64 field)
{
    uint64_t raw;
    memcpy(&raw, field.bytes, sizeof raw);
    return le64toh(raw);
}

static inline le64 le64_of(uint64_t value)
{
    le64 field;
    const uint64_t raw = htole64(value);
    memcpy(field.bytes, &raw, sizeof raw);
    return field;
}

#endif
