/*
 * txn/restore_base.c - makes a data directory out of a base, but for its control file: as long as that is missing, nobody takes it for a store,
 * and a restore that is given again begins anew.
 */
#include "txn/restore_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 4300u
#define DIR_COUNT 256u

struct placing {
    const struct restore_options *options;
    struct io_file *file; /* of the relation that comes */
};

static void path_of(const struct restore_options *options, const char *name, char path[PATH_SIZE])
{
    (void)snprintf(path, PATH_SIZE, "%s/%s", options->dir, name);
}

int restore_write_file(struct io_device *dev, const char *dir, const char *name, const char *text)
{
    char path[PATH_SIZE];
    struct io_file *file = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    int rc = io_open(dev, path, IO_READ_WRITE | IO_CREATE | IO_TRUNCATE, &file);
    if (rc != 0) {
        return rc;
    }
    rc = io_write_full(file, text, strlen(text), 0);
    rc = rc == 0 ? io_sync(file) : rc;
    const int close_rc = io_close(file);
    rc = rc == 0 ? close_rc : rc;
    return rc == 0 ? io_sync_dir(dev, dir) : rc;
}

static int make_dir(const struct restore_options *options, const char *name)
{
    char path[PATH_SIZE];
    path_of(options, name, path);
    const int rc = io_make_dir(options->dev, path);
    return rc == -EEXIST ? 0 : rc;
}

static int make_dirs(const struct restore_options *options)
{
    int rc = make_dir(options, "rel");
    for (unsigned i = 0; i < DIR_COUNT && rc == 0; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "rel/%02x", i);
        rc = make_dir(options, name);
    }
    return rc == 0 ? make_dir(options, "log") : rc;
}

/* ---- pages ---- */

static int begin_relation(void *arg, rel_no rel)
{
    struct placing *placing = arg;
    char name[BASE_NAME_SIZE];
    char path[PATH_SIZE];
    (void)snprintf(name, sizeof name, "rel/%02x/%016" PRIx64, (unsigned)(rel % DIR_COUNT), rel);
    path_of(placing->options, name, path);
    return io_open(placing->options->dev, path, IO_READ_WRITE | IO_CREATE | IO_TRUNCATE, &placing->file);
}

static int place_page(void *arg, rel_no rel, block_no block, const void *page)
{
    const struct placing *placing = arg;
    (void)rel;
    return io_write_full(placing->file, page, BLOCK_SIZE, (uint64_t)block * BLOCK_SIZE);
}

static int close_relation(struct placing *placing, int rc)
{
    if (placing->file != NULL) {
        const int close_rc = io_close(placing->file);
        rc = rc == 0 ? close_rc : rc;
        placing->file = NULL;
    }
    return rc;
}

static int end_relation(void *arg, rel_no rel)
{
    struct placing *placing = arg;
    (void)rel;
    return close_relation(placing, io_sync(placing->file));
}

/* ---- all of it ---- */

static int sync_dirs(const struct restore_options *options)
{
    int rc = 0;
    for (unsigned i = 0; i < DIR_COUNT && rc == 0; i++) {
        char name[16];
        char path[PATH_SIZE];
        (void)snprintf(name, sizeof name, "rel/%02x", i);
        path_of(options, name, path);
        rc = io_sync_dir(options->dev, path);
    }
    if (rc == 0) {
        char path[PATH_SIZE];
        path_of(options, "rel", path);
        rc = io_sync_dir(options->dev, path);
    }
    return rc == 0 ? io_sync_dir(options->dev, options->dir) : rc;
}

int restore_base(const struct restore_options *options, struct base_header *out_header)
{
    struct placing placing = {.options = options};
    const struct base_visitor visitor = {
        .begin = begin_relation, .page = place_page, .end = end_relation, .arg = &placing};
    const struct base_read_options read = {.source = options->base,
                                           .diag = options->diag,
                                           .name = options->base_name,
                                           .visitor = &visitor,
                                           .progress = options->progress != NULL ? &options->progress->base : NULL};
    int rc = make_dirs(options);
    if (rc == 0) {
        rc = base_read(&read, out_header);
    }
    rc = close_relation(&placing, rc);
    return rc == 0 ? sync_dirs(options) : rc;
}
