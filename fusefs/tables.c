/*
 * fusefs/tables.c - see the header.
 */
#include "fusefs/tables.h"
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS_IN_SECOND INT64_C(1000000000)

/* ---- nodes ---- */

static mode_t table_mode(const struct table *table)
{
    return (table->mode & S_IFMT) == 0 ? S_IFREG | table->mode : table->mode;
}

static void fill_stat(const struct table_directory *dir, ino_no ino, struct stat *out_stat)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const bool directory = ino == dir->ino;
    *out_stat = (struct stat){
        .st_ino = ino,
        .st_mode = directory ? S_IFDIR | 0555 : table_mode(&dir->tables[ino - dir->ino - 1]),
        .st_nlink = directory ? 2 : 1,
        .st_uid = geteuid(), /* who mounted it may read what is not for all */
        .st_gid = getegid(),
        .st_atim = now,
        .st_mtim = now,
        .st_ctim = now,
    };
}

static void reply_entry_of(fuse_req_t req, const struct table_directory *dir, ino_no ino)
{
    struct stat stat;
    fill_stat(dir, ino, &stat);
    virtual_reply_entry(req, &stat, 0);
}

void tables_lookup_directory(fuse_req_t req, const struct table_directory *dir)
{
    reply_entry_of(req, dir, dir->ino);
}

/* It may have been one of more, when the kernel learned of it. */
static bool is_there(const struct table_directory *dir, ino_no ino)
{
    return ino >= dir->ino && ino - dir->ino <= dir->count;
}

void tables_getattr(fuse_req_t req, const struct table_directory *dir, const struct node_identity *node)
{
    if (!is_there(dir, node->ino)) {
        reply_error(req, -ESTALE);
        return;
    }
    struct stat stat;
    fill_stat(dir, node->ino, &stat);
    (void)fuse_reply_attr(req, &stat, 0);
}

void tables_lookup(fuse_req_t req, const struct table_directory *dir, const char *name)
{
    for (size_t index = 0; index < dir->count; index++) {
        if (strcmp(dir->tables[index].name, name) == 0) {
            reply_entry_of(req, dir, dir->ino + 1 + index);
            return;
        }
    }
    reply_error(req, -ENOENT);
}

void tables_readdir(fuse_req_t req, const struct table_directory *dir, size_t size, uint64_t after, bool plus)
{
    struct virtual_listing listing;
    if (!virtual_listing_begin(&listing, req, size, after, plus, dir->ino, dir->parent_st_ino))
        return;
    for (size_t index = 0; index < dir->count; index++)
        (void)virtual_listing_add(&listing, dir->tables[index].name, dir->ino + 1 + index,
                                  table_mode(&dir->tables[index]), VIRTUAL_COOKIE_DOTDOT + 1 + index);
    virtual_listing_end(&listing);
}

/* ---- content ---- */

/* The table's text, malloc'd. */
static int table_text(struct fusefs *fs, const struct table *table, void *arg, char **out_text, size_t *out_size)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return -ENOMEM;
    if (table->columns != NULL)
        fprintf(out, "%s\n", table->columns);
    int rc = table->write(fs, arg, out);
    if (rc == 0 && ferror(out))
        rc = -ENOMEM;
    if (fclose(out) != 0 && rc == 0)
        rc = -ENOMEM;
    if (rc != 0) {
        free(text);
        return rc;
    }
    *out_text = text;
    *out_size = size;
    return 0;
}

static int open_table(struct fusefs *fs, const struct table_directory *dir, const struct node_identity *node,
                      struct fuse_file_info *fi)
{
    char *text = NULL;
    size_t size = 0;
    struct handle *handle = NULL;
    if (!is_there(dir, node->ino))
        return -ESTALE;
    if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0)
        return -EROFS;
    const struct table *table = &dir->tables[node->ino - dir->ino - 1];
    const bool keeps = dir->keeper != NULL && strcmp(dir->keeper, table->name) == 0;
    struct store_backup *backup = NULL;
    int rc = table_text(fs, table, keeps ? &backup : dir->arg, &text, &size);
    if (rc == 0)
        rc = handle_open_text(fs, node->id, text, size, &handle);
    if (rc != 0)
        store_backup_end(backup);
    if (rc == 0) {
        handle->backup = backup;
        fi->fh = (uintptr_t)handle;
        fi->direct_io = 1;
        fi->noflush = 1;
    }
    return rc;
}

void tables_open(fuse_req_t req, const struct table_directory *dir, const struct node_identity *node,
                 struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    const int rc = open_table(fs, dir, node, fi);
    if (rc != 0)
        reply_error(req, rc);
    else if (fuse_reply_open(req, fi) != 0)
        handle_close(fs, handle_of(fi)); /* interrupted: no release will come */
}

/* ---- what is written into one ---- */

void table_write_time(FILE *out, int64_t time_ns)
{
    const time_t seconds = (time_t)(time_ns / NANOSECONDS_IN_SECOND);
    struct tm parts;
    char text[32] = "";
    if (gmtime_r(&seconds, &parts) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    fprintf(out, "%s.%06" PRId64 "Z", text, time_ns % NANOSECONDS_IN_SECOND / 1000);
}

void table_write_count(FILE *out, const char *prefix, const char *name, uint64_t value)
{
    fprintf(out, "%s%s\t%" PRIu64 "\n", prefix, name, value);
}

void table_write_printable(FILE *out, const char *bytes, size_t size)
{
    for (size_t at = 0; at < size; at++)
        fputc((unsigned char)bytes[at] < 0x20 || bytes[at] == 0x7f ? '?' : bytes[at], out);
}

void table_write_text(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s\t", name);
    table_write_printable(out, value, strlen(value));
    fputc('\n', out);
}
