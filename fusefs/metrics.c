/*
 * fusefs/metrics.c - see the header.
 *
 * A name has one comment with its type, before its first line; figures of one name come one after the other.
 */
#include "fusefs/metrics.h"

#include "fusefs/figures.h"
#include "fusefs/fusefs_int.h"

#include <inttypes.h>
#include <string.h>

#define NS_IN_SECOND 1e9
#define NAME_SIZE    96u

struct metrics {
    FILE *out;
    const char *prefix;
    char last[NAME_SIZE]; /* name that was written last */
};

/* The sum over all kinds has a name of its own: with a label it would be added to them. */
static void name_of(const struct metrics *metrics, const struct figure *figure, char *name, size_t size)
{
    const size_t length = strlen(figure->name);
    const bool plural = length > 0 && figure->name[length - 1] == 's';
    const char *by_kind = figure->kind == NULL ? "" : plural ? "_by_kind" : "s_by_kind";
    (void)snprintf(name, size, "tblfs_%s%s%s%s", metrics->prefix, figure->name, by_kind,
                   figure->counts ? "_total" : "");
}

static void write_figure(void *arg, const struct figure *figure)
{
    struct metrics *metrics = arg;
    char name[NAME_SIZE];
    name_of(metrics, figure, name, sizeof name);
    if (strcmp(metrics->last, name) != 0)
        fprintf(metrics->out, "# TYPE %s %s\n", name, figure->counts ? "counter" : "gauge");
    memcpy(metrics->last, name, sizeof name);
    if (figure->kind != NULL)
        fprintf(metrics->out, "%s{kind=\"%s\"} %" PRIu64 "\n", name, figure->kind, figure->value);
    else
        fprintf(metrics->out, "%s %" PRIu64 "\n", name, figure->value);
}

static void count_open(void *arg, struct transaction *transaction)
{
    struct store_txn_info info;
    transaction_get_info(transaction, &info);
    *(uint64_t *)arg += info.state == STORE_TXN_OPEN;
}

static int count_snapshot(void *arg, const struct store_snapshot_info *info)
{
    (void)info;
    (*(uint64_t *)arg)++;
    return 0;
}

static void write_daemon(struct fusefs *fs, struct metrics *metrics)
{
    uint64_t transactions = 0, snapshots = 0;
    transactions_each(fs, count_open, &transactions);
    (void)store_each_snapshot(fs->store, count_snapshot, &snapshots);
    const struct figure figures[] = {
        {"read_only", NULL, store_read_only_reason(fs->store) != NULL || fs->options->read_only, false},
        {"start_time_seconds", NULL, (uint64_t)((double)fs->started_ns / NS_IN_SECOND), false},
        {"transactions_open", NULL, transactions, false},
        {"snapshots", NULL, snapshots, false},
    };
    for (size_t index = 0; index < ARRAY_COUNT(figures); index++)
        write_figure(metrics, &figures[index]);
}

void metrics_write(struct fusefs *fs, FILE *out)
{
    struct metrics metrics = {.out = out, .prefix = ""};
    write_daemon(fs, &metrics);
    figures_of_store(fs, write_figure, &metrics);
    figures_of_mount(fs, write_figure, &metrics);
    metrics.prefix = "cache_";
    figures_of_cache(fs, write_figure, &metrics);
}
