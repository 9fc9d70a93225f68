/*
 * fusefs/tables.h - a virtual directory of read-only TSV files.
 *
 * A table is a line of column names, and then its lines. It is written when it is opened, and the handle keeps that text. The kernel keeps nothing of it: timeouts are 0,
 * reads are direct.
 *
 * Locking: none; what writes a table has its own.
 */
#ifndef TBLFS_FUSEFS_TABLES_H
#define TBLFS_FUSEFS_TABLES_H

#include "fusefs/virtual.h"

#include <stdio.h>

struct fusefs;

struct table {
    const char *name;
    mode_t mode;         /* with S_IFDIR: a directory, whose lookup is the caller's */
    const char *columns; /* their names, with tabs between: the first line; NULL: it is no table */
    int (*write)(struct fusefs *fs, void *arg, FILE *out); /* 0 or -errno */
};

struct table_directory {
    ino_no ino; /* st_ino; table n has ino + 1 + n */
    ino_no parent_st_ino;
    const struct table *tables;
    size_t count;
    void *arg; /* of write */
    /* Name of the one whose write gets a struct store_backup ** instead, to be filled: that lives as long as the file is open. NULL: none. */
    const char *keeper;
};

/* For the functions of a virtual kind; each answers. */
void tables_lookup_directory(fuse_req_t req, const struct table_directory *dir);
void tables_getattr(fuse_req_t req, const struct table_directory *dir, const struct node_identity *node);
void tables_lookup(fuse_req_t req, const struct table_directory *dir, const char *name);
void tables_readdir(fuse_req_t req, const struct table_directory *dir, size_t size, uint64_t after, bool plus);
void tables_open(fuse_req_t req, const struct table_directory *dir, const struct node_identity *node,
                 struct fuse_file_info *fi);

/* ---- what is written into one ---- */

#define TABLE_VALUES "name\tvalue" /* columns of those that the next two write */

/* UTC, microseconds. */
void table_write_time(FILE *out, int64_t time_ns);
/* PREFIX NAME tab VALUE newline */
void table_write_count(FILE *out, const char *prefix, const char *name, uint64_t value);
/* A path, name or message may hold a tab or a newline; the table may not. */
void table_write_printable(FILE *out, const char *bytes, size_t size);
/* NAME tab VALUE newline */
void table_write_text(FILE *out, const char *name, const char *value);

#endif
