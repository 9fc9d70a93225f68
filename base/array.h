/*
 * base/array.h - arrays that grow by one element at a time.
 */
#ifndef TBLFS_BASE_ARRAY_H
#define TBLFS_BASE_ARRAY_H

#include "base/types.h"

/* Room for one more element behind `count`: array itself, or the array moved to where it has twice the room. NULL: no memory; the array
 * and *inout_capacity (in elements) are as they were. The first room is for 16. */
void *array_with_room(void *array, size_t count, size_t *inout_capacity, size_t element_size) WARN_UNUSED;

#endif
