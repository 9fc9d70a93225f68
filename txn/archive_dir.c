/*
 * txn/archive_dir.c - a directory as an archive.
 *
 * A file gets its name when it is whole and durable (a temporary, synced, renamed, the directory synced). One that is there already is
 * compared: two stores that share a directory, or a store that was restored beside its original, must not mix.
 *
 * Locking: none; one thread puts.
 */
#include "txn/restore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE   4300u
#define CHUNK_BYTES (UINT32_C(1) << 20)

struct copy {
    struct io_file *from, *to;
    uint8_t *chunk; /* CHUNK_BYTES */
    uint8_t *other; /* CHUNK_BYTES, to compare with */
};

static int open_copy(struct copy *copy, struct io_device *dev, const char *from, const char *to, unsigned to_flags)
{
    *copy = (struct copy){.chunk = malloc(CHUNK_BYTES), .other = malloc(CHUNK_BYTES)};
    if (copy->chunk == NULL || copy->other == NULL) {
        return -ENOMEM;
    }
    int rc = io_open(dev, from, IO_READ_ONLY, &copy->from);
    if (rc == 0) {
        rc = io_open(dev, to, to_flags, &copy->to);
    }
    return rc;
}

static int close_copy(struct copy *copy, int rc)
{
    free(copy->chunk);
    free(copy->other);
    struct io_file *files[] = {copy->from, copy->to};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        const int close_rc = files[i] != NULL ? io_close(files[i]) : 0;
        rc = rc != 0 ? rc : close_rc;
    }
    return rc;
}

static int copy_bytes(struct copy *copy)
{
    uint64_t offset = 0;
    for (;;) {
        size_t size = 0;
        int rc = io_read_full(copy->from, copy->chunk, CHUNK_BYTES, offset, &size);
        if (rc != 0 || size == 0) {
            return rc;
        }
        rc = io_write_full(copy->to, copy->chunk, size, offset);
        if (rc != 0) {
            return rc;
        }
        offset += size;
    }
}

/* -EEXIST: they differ. */
static int compare_bytes(struct copy *copy)
{
    uint64_t offset = 0;
    for (;;) {
        size_t size = 0;
        size_t other_size = 0;
        int rc = io_read_full(copy->from, copy->chunk, CHUNK_BYTES, offset, &size);
        if (rc == 0) {
            rc = io_read_full(copy->to, copy->other, CHUNK_BYTES, offset, &other_size);
        }
        if (rc != 0) {
            return rc;
        }
        if (size != other_size || memcmp(copy->chunk, copy->other, size) != 0) {
            return -EEXIST;
        }
        if (size == 0) {
            return 0;
        }
        offset += size;
    }
}

static int put_new(const struct archive_dir *archive, const char *path, const char *to)
{
    char temporary[PATH_SIZE];
    struct copy copy;
    (void)snprintf(temporary, sizeof temporary, "%s.tmp", to);
    int rc = open_copy(&copy, archive->dev, path, temporary, IO_READ_WRITE | IO_CREATE | IO_TRUNCATE);
    if (rc == 0) {
        rc = copy_bytes(&copy);
    }
    if (rc == 0) {
        rc = io_sync(copy.to);
    }
    rc = close_copy(&copy, rc);
    if (rc == 0) {
        rc = io_rename(archive->dev, temporary, to);
    }
    return rc == 0 ? io_sync_dir(archive->dev, archive->dir) : rc;
}

/* It may be from a life that was killed before it synced anything. */
static int put_again(const struct archive_dir *archive, const char *path, const char *to)
{
    struct copy copy;
    int rc = open_copy(&copy, archive->dev, path, to, IO_READ_ONLY);
    if (rc == 0) {
        rc = compare_bytes(&copy);
    }
    if (rc == 0) {
        rc = io_sync(copy.to);
    }
    rc = close_copy(&copy, rc);
    if (rc == -EEXIST) {
        diag_log(archive->diag, DIAG_ERROR,
                 "%s is there already with another content: the archive of another store, or of the one that this one "
                 "was restored from",
                 to);
    }
    return rc == 0 ? io_sync_dir(archive->dev, archive->dir) : rc;
}

int archive_dir_put(void *arg, const char *path, const char *name)
{
    const struct archive_dir *archive = arg;
    char to[PATH_SIZE - 8];
    struct io_stat stat;
    (void)snprintf(to, sizeof to, "%s/%s", archive->dir, name);
    const int rc = io_stat(archive->dev, to, &stat);
    if (rc == -ENOENT) {
        return put_new(archive, path, to);
    }
    return rc == 0 ? put_again(archive, path, to) : rc;
}

int archive_dir_get(void *arg, const char *name, const char *path)
{
    const struct archive_dir *archive = arg;
    char from[PATH_SIZE];
    struct io_stat stat;
    struct copy copy;
    (void)snprintf(from, sizeof from, "%s/%s", archive->dir, name);
    int rc = io_stat(archive->dev, from, &stat);
    if (rc != 0) {
        return rc;
    }
    rc = open_copy(&copy, archive->dev, from, path, IO_READ_WRITE | IO_CREATE | IO_TRUNCATE);
    if (rc == 0) {
        rc = copy_bytes(&copy);
    }
    return close_copy(&copy, rc);
}

char *archive_command_text(const char *command, const char *path, const char *name)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    for (const char *at = command; *at != '\0'; at++) {
        if (at[0] == '%' && (at[1] == 'p' || at[1] == 'f')) {
            fputs(at[1] == 'p' ? path : name, out);
            at++;
        } else {
            at += at[0] == '%' && at[1] == '%' ? 1 : 0;
            fputc(*at, out);
        }
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
