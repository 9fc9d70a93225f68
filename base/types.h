/*
 * base/types.h - the numbers everything else is named by.
 *
 * Each kind of number has its own name, so that a signature says which one it wants. None of them is
 * ever reused within the life of a store (docs/FORMAT.md, "Ceilings").
 */
#ifndef TBLFS_BASE_TYPES_H
#define TBLFS_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BLOCK_SIZE 8192u

typedef uint32_t block_no; /* index of a BLOCK_SIZE block in a relation file */
typedef uint32_t alloc_no; /* random number given to a block each time it is allocated, never 0 */
typedef uint64_t rel_no;   /* relation; 0 is none, REL_CATALOG the catalog */
typedef uint64_t epoch_no; /* value of the global counter; 0 is before everything */
typedef uint64_t ino_no;   /* inode; below 2^53; INO_ROOT is the root directory */
typedef uint64_t txn_no;   /* transaction; 0 is the live tree */
typedef uint64_t lsn_no;   /* byte position in the log */
typedef uint32_t ts_no;    /* tablespace; TS_DEFAULT is the data directory itself */

#define BLOCK_NONE  UINT32_MAX
#define REL_NONE    ((rel_no)0)
#define REL_CATALOG ((rel_no)1)
#define INO_NONE    ((ino_no)0)
#define INO_ROOT    ((ino_no)1)
#define TS_DEFAULT  ((ts_no)0)

/* Pointer to a page: where it is and, repeated from its header, when and by which allocation it came to be there. A
 * page whose header disagrees with the pointer that led to it is damaged. block == BLOCK_NONE: points nowhere. */
struct page_ptr {
    epoch_no birth;
    block_no block;
    alloc_no alloc;
};

#define PAGE_PTR_NONE ((struct page_ptr){.birth = 0, .block = BLOCK_NONE, .alloc = 0})

static inline bool page_ptr_is_none(struct page_ptr ptr)
{
    return ptr.block == BLOCK_NONE;
}

static inline bool page_ptr_equal(struct page_ptr a, struct page_ptr b)
{
    return a.block == b.block && a.birth == b.birth && a.alloc == b.alloc;
}

#define WARN_UNUSED                       __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#define ARRAY_COUNT(a)                    (sizeof(a) / sizeof((a)[0]))

#endif
