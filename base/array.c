/*
 * base/array.c - arrays that grow by one element at a time.
 */
#include "base/array.h"

#include <stdlib.h>

#define FIRST_CAPACITY 16u

void *array_with_room(void *array, size_t count, size_t *inout_capacity, size_t element_size)
{
    if (count < *inout_capacity) {
        return array;
    }
    const size_t capacity = *inout_capacity != 0 ? *inout_capacity * 2 : FIRST_CAPACITY;
    void *moved = reallocarray(array, capacity, element_size);
    if (moved != NULL) {
        *inout_capacity = capacity;
    }
    return moved;
}
