/*
 * fusefs/compact_tables.c - `tblfs compact`: asks the daemon to compact tables, one after the other.
 *
 * Locking: the thread that draws the progress looks at atomics.
 */
#include "base/progress.h"
#include "fusefs/compact.h"
#include "fusefs/fusefs.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct compacter {
    const struct fusefs_compact_options *options;
    _Atomic uint64_t done_bytes, total_bytes; /* of the table under way */
    uint64_t compacted, in_order, failed;
};

static void look(void *arg, struct progress_state *out_state)
{
    struct compacter *compacter = arg;
    out_state->total = atomic_load(&compacter->total_bytes);
    out_state->done = atomic_load(&compacter->done_bytes);
    out_state->what = out_state->total > 0 ? "compacting" : NULL;
}

/* ---- what is said ---- */

static const char *reason_of_open(int error)
{
    switch (error) {
    case EROFS:
        return "only tables of the live tree can be compacted, in a mount that is not read-only";
    case ETXTBSY:
        return "it is being executed";
    default:
        return strerror(error);
    }
}

static const char *reason_of_request(int error)
{
    switch (error) {
    case ENOTTY:
    case ENOSYS:
        return "it is no table of a mounted store";
    case EINVAL:
        return "only tables of the live tree can be compacted, not those of a transaction";
    case ENODEV:
    case ENOTCONN:
        return "the daemon is gone";
    default:
        return strerror(error);
    }
}

static const char *reason_of_failure(int error)
{
    switch (error) {
    case EALREADY:
        return "it is being compacted already";
    case EAGAIN:
        return "it was rewritten again and again meanwhile: try when it is quieter";
    case ESTALE:
    case ENOENT:
        return "it was replaced or removed meanwhile";
    case ENOSPC:
        return "there is no room for a copy of it";
    case EROFS:
        return "the store is read-only (the daemon's log and .tblfs/status say why)";
    default:
        return strerror(error);
    }
}

static unsigned percent(const struct compact_shape *shape)
{
    return shape->leaves == 0 ? 100 : (unsigned)(shape->least_leaves * 100 / shape->leaves);
}

static void say_done(const struct compacter *compacter, const char *path, const struct compact_exchange *exchange)
{
    const struct compact_shape *before = &exchange->before;
    const struct compact_shape *after = &exchange->after;
    if (exchange->state == COMPACT_NOT_NEEDED) {
        if (!compacter->options->recursive)
            printf("%s: in order already: %" PRIu64 " blocks in %" PRIu64 " runs, %u %% full\n", path,
                   before->file_blocks, before->runs, percent(before));
        return;
    }
    printf("%s: %" PRIu64 " blocks in %" PRIu64 " runs, %u %% full; now %" PRIu64 " in %" PRIu64 ", %u %%\n", path,
           before->file_blocks, before->runs, percent(before), after->file_blocks, after->runs, percent(after));
}

static void say_failed(struct compacter *compacter, const char *path, const struct compact_exchange *exchange)
{
    compacter->failed++;
    if (exchange->error == -EBUSY)
        fprintf(stderr, "tblfs: %s: left alone: the open transaction %s wrote it\n", path, exchange->transaction);
    else
        fprintf(stderr, "tblfs: %s: not compacted: %s\n", path, reason_of_failure(-exchange->error));
}

static void say_refused(struct compacter *compacter, const char *path, const char *reason)
{
    compacter->failed++;
    fprintf(stderr, "tblfs: %s: %s\n", path, reason);
}

/* ---- one table ---- */

static int exchange_until_done(struct compacter *compacter, int fd, struct compact_exchange *exchange)
{
    struct progress progress;
    const struct progress_options shown = {
        .out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = look, .arg = compacter};
    int rc = 0;
    progress_start(&progress, &shown);
    do {
        exchange->always = compacter->options->always;
        rc = ioctl(fd, COMPACT_IOCTL, exchange) != 0 ? -errno : 0;
        if (rc == 0) {
            atomic_store(&compacter->done_bytes, exchange->done_bytes);
            atomic_store(&compacter->total_bytes, exchange->total_bytes);
        }
    } while (rc == -EINTR || (rc == 0 && exchange->state == COMPACT_GOES_ON));
    progress_stop(&progress);
    return rc;
}

static void compact_opened(struct compacter *compacter, const char *path, int fd)
{
    struct compact_exchange exchange = {.state = COMPACT_GOES_ON};
    atomic_store(&compacter->total_bytes, 0);
    const int rc = exchange_until_done(compacter, fd, &exchange);
    if (rc != 0) {
        say_refused(compacter, path, reason_of_request(-rc));
    } else if (exchange.state == COMPACT_FAILED) {
        say_failed(compacter, path, &exchange);
    } else {
        compacter->compacted += exchange.state == COMPACT_DONE;
        compacter->in_order += exchange.state == COMPACT_NOT_NEEDED;
        say_done(compacter, path, &exchange);
    }
}

static void compact_one(struct compacter *compacter, const char *path)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        say_refused(compacter, path, reason_of_open(errno));
        return;
    }
    compact_opened(compacter, path, fd);
    (void)close(fd);
}

/* ---- all that were given ---- */

static int compact_below(struct compacter *compacter, const char *path)
{
    char *const roots[] = {(char *)path, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    if (tree == NULL)
        return -errno;
    for (FTSENT *entry; (entry = fts_read(tree)) != NULL;) {
        if (entry->fts_info == FTS_F && S_ISREG(entry->fts_statp->st_mode))
            compact_one(compacter, entry->fts_path);
        else if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
            say_refused(compacter, entry->fts_path, strerror(entry->fts_errno));
    }
    (void)fts_close(tree);
    return 0;
}

static void compact_given(struct compacter *compacter, const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0) {
        say_refused(compacter, path, strerror(errno));
    } else if (S_ISREG(found.st_mode)) {
        compact_one(compacter, path);
    } else if (!S_ISDIR(found.st_mode)) {
        say_refused(compacter, path, "it is no table");
    } else if (!compacter->options->recursive) {
        say_refused(compacter, path, "it is a directory (-r compacts what is in it)");
    } else {
        const int rc = compact_below(compacter, path);
        if (rc != 0)
            say_refused(compacter, path, strerror(-rc));
    }
}

int fusefs_compact(const struct fusefs_compact_options *options)
{
    struct compacter compacter = {.options = options};
    for (char *const *path = options->paths; *path != NULL; path++)
        compact_given(&compacter, *path);
    if (options->recursive)
        printf("%" PRIu64 " tables compacted, %" PRIu64 " in order already\n", compacter.compacted, compacter.in_order);
    return compacter.failed == 0 ? 0 : 1;
}
