/*
 * base/checksum.h - XXH3 through libxxhash.
 */
#ifndef TBLFS_BASE_CHECKSUM_H
#define TBLFS_BASE_CHECKSUM_H

#include "base/types.h"

/* 64-bit XXH3 of the bytes, with a seed (0 for checksums, the store's key for name hashes). */
uint64_t checksum_64(const void *bytes, size_t size_bytes, uint64_t seed);

#endif
