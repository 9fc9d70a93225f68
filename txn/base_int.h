/*
 * txn/base_int.h - inside of bases: lists of files, checksums, tar's headers.
 */
#ifndef TBLFS_TXN_BASE_INT_H
#define TBLFS_TXN_BASE_INT_H

#include "txn/base.h"

struct base_file {
    char name[BASE_NAME_SIZE];
    uint64_t size_bytes;
    uint64_t checksum;
};

struct base_files {
    struct base_file *files;
    size_t count, capacity;
};

int base_files_add(struct base_files *list, const struct base_file *file) WARN_UNUSED;
void base_files_sort(struct base_files *list); /* by name */
void base_files_free(struct base_files *list);

/* The checksum of a file is that of its blocks, each seeded with the one before. */
uint64_t base_checksum_add(uint64_t checksum, const void *bytes, size_t size_bytes);
void base_file_name(rel_no rel, char name[BASE_NAME_SIZE]);
bool base_file_parse(const char *name, rel_no *out_rel);

/* The whole manifest; malloc'd. NULL: no memory. */
char *base_manifest_print(const struct base_header *header, const struct base_files *files);
/* -EBADMSG: it is none, or not whole. Free the list also then. */
int base_manifest_parse(const char *text, struct base_header *out_header, struct base_files *out_files) WARN_UNUSED;

#define TAR_BLOCK 512u

/* POSIX ustar. */
struct tar_header {
    char name[100];      /*   0 */
    char mode[8];        /* 100 */
    char uid[8];         /* 108 */
    char gid[8];         /* 116 */
    char size[12];       /* 124 octal, or, from 8 GiB on, a byte 0x80 and the number in base 256 */
    char mtime[12];      /* 136 */
    char checksum[8];    /* 148 */
    char type;           /* 156 */
    char link_name[100]; /* 157 */
    char magic[6];       /* 257 */
    char version[2];     /* 263 */
    char uname[32];      /* 265 */
    char gname[32];      /* 297 */
    char dev_major[8];   /* 329 */
    char dev_minor[8];   /* 337 */
    char prefix[155];    /* 345 */
    char reserved[12];   /* 500 */
};
_Static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a tar header is a block");

void tar_header_make(struct tar_header *header, const char *name, uint64_t size_bytes, int64_t time_s);
/* False: not the header of an ordinary file that this program writes. */
bool tar_header_parse(const struct tar_header *header, char name[BASE_NAME_SIZE], uint64_t *out_size);

#endif
