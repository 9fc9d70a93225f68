/*
 * txn/dump_sidecar.c - the sidecar of a relation: its header and the runs of used blocks.
 *
 * Locking: none, nothing is shared.
 */
#include "fsm/sidecar.h"
#include "fsm/sidecar_format.h"
#include "txn/dump_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int read_header(struct dump *dump, const char *path, struct sidecar_header *out_header)
{
    struct io_file *file = NULL;
    size_t size = 0;
    int rc = io_open(dump->options->dev, path, IO_READ_ONLY, &file);
    if (rc == -ENOENT) {
        dump_print(dump, "! %s: there is no such file", path);
        return -ENODATA;
    }
    if (rc != 0) {
        return rc;
    }
    rc = io_read_full(file, out_header, sizeof *out_header, 0, &size);
    const int close_rc = io_close(file);
    (void)close_rc; /* it was only read */
    if (rc == 0 && size < sizeof *out_header) {
        dump_print(dump, "! %s: too short for a sidecar", path);
        return -EIO;
    }
    return rc;
}

static bool is_used(const struct fsm_sidecar *sidecar, block_no block)
{
    return (sidecar->words[block / 64] >> (block % 64) & 1) != 0;
}

static void print_runs(struct dump *dump, const struct fsm_sidecar *sidecar)
{
    for (block_no first = 0; first < sidecar->blocks;) {
        const bool used = is_used(sidecar, first);
        block_no end = first + 1;
        while (end < sidecar->blocks && is_used(sidecar, end) == used) {
            end++;
        }
        dump_print(dump, "  blocks %" PRIu32 " to %" PRIu32 ": %s", first, end - 1, used ? "used" : "free");
        first = end;
    }
}

static int print_sidecar(struct dump *dump, rel_no rel)
{
    char path[DUMP_PATH_SIZE];
    struct sidecar_header header;
    struct fsm_sidecar sidecar;
    const char *why = NULL;
    (void)snprintf(path, sizeof path, "%s/rel/%02x/%016" PRIx64 FSM_SIDECAR_SUFFIX, dump->options->dir,
                   (unsigned)(rel % 256), rel);
    int rc = read_header(dump, path, &header);
    if (rc != 0) {
        return rc;
    }
    dump_print(dump, "%s", path);
    dump_print_fields(dump, DUMP_SIDECAR_HEADER, &header);
    rc = fsm_sidecar_read(dump->options->dev, path, le32_get(header.blocks), &sidecar, &why);
    if (rc == -EBADMSG) {
        dump_print(dump, "! %s: %s: as good as none", path, why);
        return -EIO;
    }
    if (rc == 0) {
        print_runs(dump, &sidecar);
        fsm_sidecar_free(&sidecar);
    }
    return rc;
}

int dump_sidecar(const struct dump_options *options, rel_no rel)
{
    struct dump dump;
    dump_begin(&dump, options);
    return dump_end(&dump, print_sidecar(&dump, rel));
}
