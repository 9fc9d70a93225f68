/*
 * fusefs/show_blocks.c - `tblfs fsm`: asks the daemon what the blocks of a table's file are used for, and writes it down.
 *
 * Locking: none; one thread.
 */
#include "fusefs/blocks.h"
#include "fusefs/fusefs.h"
#include "txn/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *use_name(uint8_t use)
{
    static const char *const names[] = {
        [STORE_BLOCK_FREE] = "free",     [STORE_BLOCK_INNER] = "inner", [STORE_BLOCK_LEAF] = "leaf",
        [STORE_BLOCK_PINNED] = "pinned", [STORE_BLOCK_HELD] = "held",   [STORE_BLOCK_PUNCHED] = "punched"};
    return use < ARRAY_COUNT(names) ? names[use] : "unknown";
}

static const char *pin_name(uint8_t pin)
{
    static const char *const names[] = {
        [STORE_PIN_NONE] = "",
        [STORE_PIN_LIVE] = "live",
        [STORE_PIN_SNAPSHOT] = "snapshot",
        [STORE_PIN_TRANSACTION] = "transaction",
        [STORE_PIN_CHECKPOINT] = "checkpoint",
        [STORE_PIN_BACKUP] = "backup",
        [STORE_PIN_OTHER] = "other",
    };
    return pin < ARRAY_COUNT(names) ? names[pin] : "unknown";
}

static unsigned percent(uint64_t bytes, uint64_t leaves)
{
    return leaves == 0 ? 0 : (unsigned)((bytes * 100 + leaves * PAGE_PAYLOAD_SIZE / 2) / (leaves * PAGE_PAYLOAD_SIZE));
}

static void write_block(const struct blocks_run *run, uint32_t block, FILE *out)
{
    fprintf(out, "%" PRIu32 "\t%s\t", block, use_name(run->use));
    if (run->use == STORE_BLOCK_INNER)
        fprintf(out, "%u\t\t\t", run->level);
    else if (run->use == STORE_BLOCK_LEAF)
        fprintf(out, "0\t%u\t%u\t", run->bytes, percent(run->bytes, 1));
    else
        fprintf(out, "\t\t\t");
    fprintf(out, "%s\n", pin_name(run->pin));
}

static void add_to_summary(const struct blocks_run *run, struct fusefs_blocks_summary *summary)
{
    summary->blocks += run->count;
    switch ((enum store_block_use)run->use) {
    case STORE_BLOCK_FREE:
        summary->free += run->count;
        break;
    case STORE_BLOCK_INNER:
        summary->inner += run->count;
        break;
    case STORE_BLOCK_LEAF:
        summary->leaves += run->count;
        summary->leaf_bytes += (uint64_t)run->count * run->bytes;
        break;
    case STORE_BLOCK_PINNED:
        summary->pinned += run->count;
        break;
    case STORE_BLOCK_HELD:
        summary->held += run->count;
        break;
    case STORE_BLOCK_PUNCHED:
        summary->punched += run->count;
        break;
    }
}

static void take_runs(const struct blocks_exchange *exchange, struct fusefs_blocks_summary *summary, FILE *out)
{
    for (uint32_t i = 0; i < exchange->count; i++) {
        const struct blocks_run *run = &exchange->runs[i];
        add_to_summary(run, summary);
        for (uint32_t at = 0; out != NULL && at < run->count; at++)
            write_block(run, run->first + at, out);
    }
}

static int ask(int fd, struct blocks_exchange *exchange)
{
    int rc;
    do
        rc = ioctl(fd, BLOCKS_IOCTL, exchange) != 0 ? -errno : 0;
    while (rc == -EINTR);
    return rc;
}

static int ask_for_all(int fd, struct fusefs_blocks_summary *summary, FILE *out)
{
    struct blocks_exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange == NULL)
        return -ENOMEM;
    int rc;
    uint64_t from = 0;
    do {
        exchange->from = from;
        rc = ask(fd, exchange);
        if (rc == 0) {
            take_runs(exchange, summary, out);
            from += exchange->count;
        }
    } while (rc == 0 && exchange->count == BLOCKS_RUNS);
    free(exchange);
    return rc;
}

static const char *reason(int error)
{
    switch (error) {
    case ENOTTY:
    case ENOSYS:
        return "it is no table of a mounted store";
    case EALREADY:
        return "somebody is asking through the same open file";
    case EIO:
        return "a page of it cannot be read (the daemon's log says which)";
    case ENODEV:
    case ENOTCONN:
        return "the daemon is gone";
    default:
        return strerror(error);
    }
}

static int open_table(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat found;
    if (fd < 0)
        return -errno;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode))
        return fd;
    (void)close(fd);
    return S_ISDIR(found.st_mode) ? -EISDIR : -ENOTTY;
}

int fusefs_list_blocks(const char *path, FILE *out, struct fusefs_blocks_summary *out_summary)
{
    const int fd = open_table(path);
    int rc = fd < 0 ? fd : 0;
    *out_summary = (struct fusefs_blocks_summary){.blocks = 0};
    if (fd >= 0) {
        if (out != NULL)
            fputs(FUSEFS_BLOCKS_COLUMNS "\n", out);
        rc = ask_for_all(fd, out_summary, out);
        (void)close(fd);
    }
    out_summary->fill_percent = percent(out_summary->leaf_bytes, out_summary->leaves);
    if (rc != 0)
        fprintf(stderr, "tblfs: %s: %s\n", path, reason(-rc));
    return rc;
}
