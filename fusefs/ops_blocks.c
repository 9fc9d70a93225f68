/*
 * fusefs/ops_blocks.c - the request behind `tblfs fsm` (fusefs/blocks.h).
 *
 * Locking: the list belongs to the handle; one request on a handle at a time (serve_ioctl).
 */
#include "fusefs/blocks.h"
#include "fusefs/fusefs_int.h"

#include <stdlib.h>

static int make_list(struct handle *handle)
{
    struct store_block_run *runs = NULL;
    size_t count = 0;
    const int rc = store_list_blocks(handle->open->file, &runs, &count);
    if (rc != 0)
        return rc;
    free(handle->block_runs);
    handle->block_runs = runs;
    handle->block_run_count = count;
    return 0;
}

static void fill_in(const struct handle *handle, struct blocks_exchange *exchange)
{
    for (uint64_t at = exchange->from; at < handle->block_run_count && exchange->count < BLOCKS_RUNS; at++) {
        const struct store_block_run *run = &handle->block_runs[at];
        exchange->runs[exchange->count++] = (struct blocks_run){.first = run->first,
                                                                .count = run->count,
                                                                .bytes = run->bytes,
                                                                .use = run->use,
                                                                .level = run->level,
                                                                .pin = run->pin};
    }
}

int serve_blocks(struct fusefs *fs, struct handle *handle, const void *in, void *out)
{
    struct blocks_exchange *exchange = out;
    (void)fs;
    exchange->from = ((const struct blocks_exchange *)in)->from;
    const int rc = exchange->from == 0 ? make_list(handle) : 0;
    if (rc == 0)
        fill_in(handle, exchange);
    return rc;
}
