/*
 * base/checksum.c - XXH3 through libxxhash.
 *
 * The one place that knows which library computes the checksums of pages, log records and names.
 * No state, no locks.
 */
#include "base/checksum.h"

#include <xxhash.h>

uint64_t checksum_64(const void *bytes, size_t size_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size_bytes, seed);
}
