/*
 * tools/status.c - `tblfs status`: what matters about a mount, on one screen.
 */
#include "tools/listing.h"
#include "tools/tables.h"
#include "tools/tools.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/statvfs.h>

struct tables {
    struct tsv status, cache, transactions, snapshots, commits, progress, checkpoints;
};

static int read_tables(const char *mount_point, struct tables *tables)
{
    const struct {
        const char *name;
        struct tsv *table;
    } wanted[] = {
        {"status", &tables->status},           {"cache", &tables->cache},     {"transactions", &tables->transactions},
        {"snapshots", &tables->snapshots},     {"commits", &tables->commits}, {"progress", &tables->progress},
        {"checkpoints", &tables->checkpoints},
    };
    int rc = 0;
    for (size_t index = 0; index < ARRAY_COUNT(wanted) && rc == 0; index++)
        rc = tsv_read_mount(mount_point, wanted[index].name, false, wanted[index].table);
    return rc;
}

static void free_tables(struct tables *tables)
{
    tsv_free(&tables->status);
    tsv_free(&tables->cache);
    tsv_free(&tables->transactions);
    tsv_free(&tables->snapshots);
    tsv_free(&tables->commits);
    tsv_free(&tables->progress);
    tsv_free(&tables->checkpoints);
}

static void show_daemon(const struct tsv *status)
{
    char up[TEXT_SIZE];
    const char *reason = tsv_value(status, "read_only_reason");
    printf("mount         %s on %s, %s, tblfs %s\n", tsv_value(status, "data_dir"), tsv_value(status, "mount_point"),
           strcmp(tsv_value(status, "mode"), "rw") == 0 ? "read-write" : "read-only", tsv_value(status, "version"));
    printf("daemon        process %s, up %s\n", tsv_value(status, "pid"),
           text_of_seconds(tsv_age_s(tsv_value(status, "started")), up));
    if (reason[0] != '\0')
        printf("READ-ONLY     %s\n", reason);
}

static void show_space(const char *mount_point)
{
    struct statvfs fs;
    char size[TEXT_SIZE], left[TEXT_SIZE];
    if (statvfs(mount_point, &fs) != 0)
        return;
    printf("space         %s of %s available\n", text_of_bytes((uint64_t)fs.f_bavail * fs.f_frsize, left),
           text_of_bytes((uint64_t)fs.f_blocks * fs.f_frsize, size));
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

static void show_cache(const struct tsv *cache)
{
    char size[TEXT_SIZE], dirty[TEXT_SIZE];
    const uint64_t frames = tsv_value_number(cache, "frames"), free_frames = tsv_value_number(cache, "free_frames");
    const uint64_t hits = tsv_value_number(cache, "hits"), misses = tsv_value_number(cache, "misses");
    printf("cache         %s, %.0f %% in use, %s dirty; %.1f %% of %" PRIu64 " look-ups found their page\n",
           text_of_bytes(frames * BLOCK_SIZE, size), percent(frames - free_frames, frames),
           text_of_bytes(tsv_value_number(cache, "dirty_frames") * BLOCK_SIZE, dirty), percent(hits, hits + misses),
           hits + misses);
    if (tsv_value_number(cache, "damaged_pages") > 0)
        printf("DAMAGE        %s pages; 'tblfs check --online' says where\n", tsv_value(cache, "damaged_pages"));
}

static void show_log(const struct tsv *status)
{
    char written[TEXT_SIZE], behind[TEXT_SIZE];
    const uint64_t end = tsv_value_number(status, "log_end"), synced = tsv_value_number(status, "log_synced");
    printf("log           %s written, %s of it not synced yet, %s segments; %s checkpoints, %s sweeps\n",
           text_of_bytes(tsv_value_number(status, "log_bytes_written"), written),
           text_of_bytes(end > synced ? end - synced : 0, behind), tsv_value(status, "log_segments"),
           tsv_value(status, "checkpoints"), tsv_value(status, "sweeps"));
}

static void show_checkpoint(const struct tsv *checkpoints)
{
    const size_t last = tsv_rows(checkpoints);
    char age[TEXT_SIZE], bytes[TEXT_SIZE];
    if (last > 0)
        printf("checkpoint    %s ago, for %s: %s pages (%s)\n",
               text_of_seconds(tsv_age_s(tsv_field(checkpoints, last, "time")), age),
               tsv_field(checkpoints, last, "cause"), tsv_field(checkpoints, last, "pages"),
               text_of_bytes(tsv_number(checkpoints, last, "bytes"), bytes));
}

static void show_standby(const struct tsv *status)
{
    char age[TEXT_SIZE];
    const char *state = tsv_value(status, "standby"), *error = tsv_value(status, "standby_error");
    if (state[0] == '\0')
        return;
    if (strcmp(state, "promoted") == 0) {
        printf("standby       it was one, and was promoted: timeline %s\n", tsv_value(status, "standby_timeline"));
        return;
    }
    printf("standby       %s%s%s; at log position %s, last record %s ago, %s segments wait\n", state,
           error[0] != '\0' ? ": " : "", error, tsv_value(status, "standby_position"),
           text_of_seconds((double)tsv_value_number(status, "standby_behind_s"), age),
           tsv_value(status, "standby_waiting_segments"));
}

static void show_transactions(const struct tsv *transactions, const struct tsv *commits)
{
    const size_t open = tsv_rows(transactions), done = tsv_rows(commits);
    printf("transactions  %zu open", open);
    if (done > 0)
        printf("; last commit %s: %s, %s tables", tsv_field(commits, done, "number"), tsv_field(commits, done, "name"),
               tsv_field(commits, done, "tables"));
    printf("\n");
    for (size_t row = 1; row <= open; row++) {
        char age[TEXT_SIZE], bytes[TEXT_SIZE];
        printf("  %-24s of user %s, began %s ago, %s changes, %s of its own\n", tsv_field(transactions, row, "name"),
               tsv_field(transactions, row, "uid"),
               text_of_seconds(tsv_age_s(tsv_field(transactions, row, "began")), age),
               tsv_field(transactions, row, "operations"),
               text_of_bytes(tsv_number(transactions, row, "private_bytes"), bytes));
    }
}

static void show_snapshots(const struct tsv *snapshots)
{
    const size_t count = tsv_rows(snapshots);
    char age[TEXT_SIZE];
    printf("snapshots     %zu", count);
    if (count > 0)
        printf(", the oldest %s, taken %s ago", tsv_field(snapshots, 1, "name"),
               text_of_seconds(tsv_age_s(tsv_field(snapshots, 1, "created")), age));
    printf("\n");
}

static void show_progress(const struct tsv *progress)
{
    for (size_t row = 1; row <= tsv_rows(progress); row++)
        printf("under way     %s %s: %s of %s %s\n", tsv_field(progress, row, "kind"), tsv_field(progress, row, "what"),
               tsv_field(progress, row, "done"), tsv_field(progress, row, "total"), tsv_field(progress, row, "unit"));
}

static int show(const char *mount_point)
{
    struct tables tables = {0};
    const int rc = read_tables(mount_point, &tables);
    if (rc == 0) {
        show_daemon(&tables.status);
        show_space(mount_point);
        show_cache(&tables.cache);
        show_standby(&tables.status);
        show_log(&tables.status);
        show_checkpoint(&tables.checkpoints);
        show_transactions(&tables.transactions, &tables.commits);
        show_snapshots(&tables.snapshots);
        show_progress(&tables.progress);
    }
    free_tables(&tables);
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

static int status_run(const struct tool *tool, int argc, char **argv)
{
    bool json = false;
    if (listing_take_switch(tool, argc, argv, &json) != 0)
        return TOOL_EXIT_USAGE;
    if (argc - optind != 1)
        return tool_usage_error(tool, argc - optind < 1 ? "the mount point is missing" : "too many arguments");
    return json ? listing_of_mount(argv[optind], "status", true) : show(argv[optind]);
}

const struct tool tool_status = {
    .name = "status",
    .arguments = "MNT [--json]",
    .summary = "Shows what matters about a mount, on one screen",
    .help = "What it shows, and more, stands in the tables of MNT/.tblfs: for awk, sort and join. 'tblfs top' shows it "
            "as it\n"
            "changes.\n\n"
            "  --json   the table MNT/.tblfs/status as a JSON array of objects\n",
    .examples = "  tblfs status ~/tables\n"
                "  tblfs status ~/tables --json\n",
    .run = status_run,
};
