/*
 * tools/top.c - `tblfs top`: a mount as it works: rates, cache, transactions, sweeps.
 *
 * A picture is text, made from two readings of MNT/.tblfs; it goes to the screen (ncurses) or, with --batch, to stdout.
 */
#include "tools/tables.h"
#include "tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <locale.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RATES_SHOWN   8u
#define BUFFERS_SHOWN 10u
#define LINES_SHOWN   5u /* of sweeps */
#define REQUEST       "request."

/* One reading. */
struct reading {
    struct tsv status, cache, buffers, transactions, sweeps, progress, checkpoints;
    struct timespec taken;
};

struct top {
    const char *mount_point;
    struct reading now, before;
    double seconds; /* between the two; 0: there is no earlier one */
    /* Paths of relations: all of them have to be read to know one, so they are read seldom. */
    struct tsv relations;
    struct timespec relations_taken;
    double relations_cost_s;
};

/* ---- reading ---- */

static void reading_free(struct reading *reading)
{
    tsv_free(&reading->status);
    tsv_free(&reading->cache);
    tsv_free(&reading->buffers);
    tsv_free(&reading->transactions);
    tsv_free(&reading->sweeps);
    tsv_free(&reading->progress);
    tsv_free(&reading->checkpoints);
}

static int reading_take(const char *mount_point, struct reading *out_reading)
{
    const struct {
        const char *name;
        struct tsv *table;
    } wanted[] = {
        {"status", &out_reading->status},           {"cache", &out_reading->cache},
        {"buffers", &out_reading->buffers},         {"transactions", &out_reading->transactions},
        {"sweeps", &out_reading->sweeps},           {"progress", &out_reading->progress},
        {"checkpoints", &out_reading->checkpoints},
    };
    int rc = 0;
    for (size_t index = 0; index < ARRAY_COUNT(wanted) && rc == 0; index++)
        rc = tsv_read_mount(mount_point, wanted[index].name, true, wanted[index].table);
    (void)clock_gettime(CLOCK_MONOTONIC, &out_reading->taken);
    return rc;
}

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

#define PATHS_SHARE 20.0 /* reading paths takes at most this part of the time */

static void read_paths(struct top *top)
{
    struct timespec begin, end;
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    const double passed_s = seconds_between(&top->relations_taken, &begin);
    if (top->relations_taken.tv_sec != 0 && passed_s < PATHS_SHARE * top->relations_cost_s)
        return;
    tsv_free(&top->relations);
    const int rc = tsv_read_mount(top->mount_point, "relations", true, &top->relations);
    (void)rc; /* only some may read all paths: then tables are shown by number */
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    top->relations_taken = end;
    top->relations_cost_s = seconds_between(&begin, &end);
}

/* The next reading becomes the present one. */
static int top_read(struct top *top)
{
    struct reading next = {0};
    const int rc = reading_take(top->mount_point, &next);
    if (rc != 0) {
        reading_free(&next);
        return rc;
    }
    const bool first = top->now.taken.tv_sec == 0;
    read_paths(top);
    reading_free(&top->before);
    top->before = top->now;
    top->now = next;
    top->seconds = first ? 0 : seconds_between(&top->before.taken, &top->now.taken);
    return 0;
}

/* ---- figures ---- */

/* How much a counter grew between the readings. */
static uint64_t growth(const struct tsv *now, const struct tsv *before, const char *name)
{
    const uint64_t value = tsv_value_number(now, name), old = tsv_value_number(before, name);
    return value > old ? value - old : 0;
}

static double rate(const struct top *top, const struct tsv *now, const struct tsv *before, const char *name)
{
    return top->seconds > 0 ? (double)growth(now, before, name) / top->seconds : 0;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

/* ---- the picture ---- */

static void write_head(const struct top *top, FILE *out)
{
    const struct tsv *status = &top->now.status;
    char up[TEXT_SIZE];
    fprintf(out, "%s on %s, %s, up %s\n", tsv_value(status, "data_dir"), tsv_value(status, "mount_point"),
            strcmp(tsv_value(status, "mode"), "rw") == 0 ? "read-write" : "READ-ONLY",
            text_of_seconds(tsv_age_s(tsv_value(status, "started")), up));
}

static void write_cache(const struct top *top, FILE *out)
{
    const struct tsv *now = &top->now.cache, *before = &top->before.cache;
    const uint64_t frames = tsv_value_number(now, "frames"), used = frames - tsv_value_number(now, "free_frames");
    const uint64_t hits = growth(now, before, "hits"), misses = growth(now, before, "misses");
    char size[TEXT_SIZE], dirty[TEXT_SIZE];
    fprintf(out, "cache     %s, %.0f %% in use, %s dirty, hit rate %.1f %%; pages a second: %.0f read, %.0f written\n",
            text_of_bytes(frames * BLOCK_SIZE, size), percent(used, frames),
            text_of_bytes(tsv_value_number(now, "dirty_frames") * BLOCK_SIZE, dirty), percent(hits, hits + misses),
            rate(top, now, before, "pages_read"), rate(top, now, before, "pages_written"));
}

static void write_log(const struct top *top, FILE *out)
{
    const struct tsv *now = &top->now.status, *before = &top->before.status;
    char bytes[TEXT_SIZE];
    fprintf(out, "log       %s a second, %.0f records, %.0f syncs; %s segments, %s checkpoints\n",
            text_of_bytes((uint64_t)rate(top, now, before, "log_bytes_written"), bytes),
            rate(top, now, before, "log_records"), rate(top, now, before, "log_syncs"), tsv_value(now, "log_segments"),
            tsv_value(now, "checkpoints"));
}

static void write_checkpoint(const struct top *top, FILE *out)
{
    const struct tsv *checkpoints = &top->now.checkpoints;
    const size_t last = tsv_rows(checkpoints);
    const uint64_t end = tsv_value_number(&top->now.status, "log_end"), lsn = tsv_number(checkpoints, last, "lsn");
    char age[TEXT_SIZE], took[TEXT_SIZE], bytes[TEXT_SIZE], behind[TEXT_SIZE];
    if (last == 0)
        return;
    fprintf(out, "checkpoint %s ago, for %s: %s written in %s; %s logged since\n",
            text_of_seconds(tsv_age_s(tsv_field(checkpoints, last, "time")), age),
            tsv_field(checkpoints, last, "cause"), text_of_bytes(tsv_number(checkpoints, last, "bytes"), bytes),
            text_of_seconds((double)tsv_number(checkpoints, last, "microseconds") / 1e6, took),
            text_of_bytes(end > lsn ? end - lsn : 0, behind));
}

struct shown {
    const char *name;
    double value;
};

static int compare_shown(const void *left, const void *right)
{
    const double a = ((const struct shown *)left)->value, b = ((const struct shown *)right)->value;
    return a < b ? 1 : a > b ? -1 : 0;
}

static void write_requests(const struct top *top, FILE *out)
{
    struct shown shown[64];
    size_t count = 0;
    const struct tsv *now = &top->now.status;
    for (size_t row = 1; row < now->count && count < ARRAY_COUNT(shown); row++) {
        const char *name = now->rows[row].fields[0];
        const double value = rate(top, now, &top->before.status, name);
        if (strncmp(name, REQUEST, strlen(REQUEST)) == 0 && value > 0)
            shown[count++] = (struct shown){.name = name + strlen(REQUEST), .value = value};
    }
    qsort(shown, count, sizeof shown[0], compare_shown);
    fprintf(out, "requests  ");
    for (size_t index = 0; index < count && index < RATES_SHOWN; index++)
        fprintf(out, "%s%s %.0f", index == 0 ? "a second: " : ", ", shown[index].name, shown[index].value);
    fprintf(out, "%s\n", count == 0 ? "none" : "");
}

#define CATALOG "0000000000000001"

/* The path of a relation, or its number. */
static const char *path_of(const struct top *top, const char *relation)
{
    const struct tsv *relations = &top->relations;
    if (strcmp(relation, CATALOG) == 0)
        return "(the catalog: names and attributes)";
    const size_t row = tsv_find(relations, relation);
    return row != 0 ? tsv_field(relations, row, "path") : relation;
}

/* Since the last reading; "-" when nobody looked. A relation that left memory meanwhile counts anew. */
static const char *hit_rate(const struct top *top, const char *relation, size_t row, char text[TEXT_SIZE])
{
    const struct tsv *now = &top->now.buffers, *before = &top->before.buffers;
    const size_t old = tsv_find(before, relation);
    uint64_t hits = tsv_number(now, row, "hits"), misses = tsv_number(now, row, "misses");
    const uint64_t old_hits = tsv_number(before, old, "hits"), old_misses = tsv_number(before, old, "misses");
    if (old != 0 && hits >= old_hits && misses >= old_misses) {
        hits -= old_hits;
        misses -= old_misses;
    }
    if (hits + misses == 0)
        return "-";
    (void)snprintf(text, TEXT_SIZE, "%.1f %%", percent(hits, hits + misses));
    return text;
}

static void write_buffers(const struct top *top, FILE *out)
{
    const struct tsv *buffers = &top->now.buffers;
    char bytes[TEXT_SIZE], dirty[TEXT_SIZE], rate[TEXT_SIZE];
    const size_t rows = tsv_rows(buffers);
    struct shown *shown = calloc(rows + 1, sizeof shown[0]);
    if (shown == NULL)
        return;
    for (size_t row = 1; row <= rows; row++)
        shown[row - 1] =
            (struct shown){.name = buffers->rows[row].fields[0], .value = (double)tsv_number(buffers, row, "resident")};
    qsort(shown, rows, sizeof shown[0], compare_shown);
    fprintf(out, "\n%10s %10s %10s  %s\n", "resident", "dirty", "hit rate", "table");
    for (size_t index = 0; index < rows && index < BUFFERS_SHOWN; index++) {
        const char *relation = shown[index].name;
        const size_t row = tsv_find(buffers, relation);
        fprintf(out, "%10s %10s %10s  %s\n", text_of_bytes(tsv_number(buffers, row, "resident") * BLOCK_SIZE, bytes),
                text_of_bytes(tsv_number(buffers, row, "dirty") * BLOCK_SIZE, dirty),
                hit_rate(top, relation, row, rate), path_of(top, relation));
    }
    free(shown);
}

static void write_transactions(const struct top *top, FILE *out)
{
    const struct tsv *transactions = &top->now.transactions;
    fprintf(out, "\n%10s %10s %10s %8s  %s\n", "age", "own", "log", "changes", "transaction");
    for (size_t row = 1; row <= tsv_rows(transactions); row++) {
        char age[TEXT_SIZE], own[TEXT_SIZE], log[TEXT_SIZE];
        fprintf(out, "%10s %10s %10s %8s  %s\n", text_of_seconds(tsv_age_s(tsv_field(transactions, row, "began")), age),
                text_of_bytes(tsv_number(transactions, row, "private_bytes"), own),
                text_of_bytes(tsv_number(transactions, row, "log_bytes"), log),
                tsv_field(transactions, row, "operations"), tsv_field(transactions, row, "name"));
    }
}

static void write_sweeps(const struct top *top, FILE *out)
{
    const struct tsv *sweeps = &top->now.sweeps;
    const size_t rows = tsv_rows(sweeps);
    fprintf(out, "\n%10s %10s %10s %10s  %s\n", "relations", "pages", "tags", "us", "sweep");
    for (size_t row = rows > LINES_SHOWN ? rows - LINES_SHOWN + 1 : 1; row <= rows; row++)
        fprintf(out, "%10s %10s %10s %10s  %s by %s\n", tsv_field(sweeps, row, "relations"),
                tsv_field(sweeps, row, "pages_discarded"), tsv_field(sweeps, row, "tags_read"),
                tsv_field(sweeps, row, "microseconds"), tsv_field(sweeps, row, "mode"),
                tsv_field(sweeps, row, "cause"));
}

static void write_progress(const struct top *top, FILE *out)
{
    const struct tsv *progress = &top->now.progress;
    for (size_t row = 1; row <= tsv_rows(progress); row++)
        fprintf(out, "under way %s %s: %s of %s %s\n", tsv_field(progress, row, "kind"),
                tsv_field(progress, row, "what"), tsv_field(progress, row, "done"), tsv_field(progress, row, "total"),
                tsv_field(progress, row, "unit"));
}

static void write_picture(const struct top *top, FILE *out)
{
    write_head(top, out);
    write_cache(top, out);
    write_log(top, out);
    write_checkpoint(top, out);
    write_requests(top, out);
    write_progress(top, out);
    write_transactions(top, out);
    write_sweeps(top, out);
    write_buffers(top, out);
}

/* ---- showing it ---- */

static void sleep_s(double seconds)
{
    const struct timespec duration = {.tv_sec = (time_t)seconds,
                                      .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&duration, NULL);
}

static int run_batch(struct top *top, double period_s, unsigned long count)
{
    int rc = 0;
    for (unsigned long index = 0; rc == 0 && (count == 0 || index < count); index++) {
        if (index > 0)
            sleep_s(period_s);
        rc = top_read(top);
        if (rc == 0) {
            write_picture(top, stdout);
            printf("\n");
            rc = fflush(stdout) != 0 ? -errno : 0;
        }
    }
    return rc;
}

static void draw(const struct top *top)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return;
    write_picture(top, out);
    if (fclose(out) != 0) {
        free(text);
        return;
    }
    erase();
    char *rest = text;
    for (int line = 0; line < LINES && rest != NULL; line++)
        (void)mvaddnstr(line, 0, strsep(&rest, "\n"), COLS);
    refresh();
    free(text);
}

/* Until q, or the mount is gone. */
static int run_screen(struct top *top, double period_s, unsigned long count)
{
    int rc = top_read(top); /* before the screen is taken: an error is said on the terminal as it was */
    if (rc != 0)
        return rc;
    (void)setlocale(LC_ALL, "");
    if (initscr() == NULL)
        return -ENOTTY;
    (void)cbreak();
    (void)noecho();
    (void)curs_set(0);
    timeout((int)(period_s * 1000));
    for (unsigned long index = 1; rc == 0; index++) {
        draw(top);
        const int key = count != 0 && index >= count ? 'q' : getch();
        if (key == 'q' || key == 'Q')
            break;
        rc = top_read(top);
    }
    (void)endwin();
    return rc;
}

struct how {
    double period_s;
    unsigned long count;
    bool batch;
};

static bool parse_count(const char *text, unsigned long *out_count)
{
    char *end;
    errno = 0;
    *out_count = strtoul(text, &end, 10);
    return errno == 0 && text[0] != '-' && text[0] != '\0' && *end == '\0' && *out_count > 0;
}

static bool parse_period(const char *text, double *out_seconds)
{
    char *end;
    *out_seconds = strtod(text, &end);
    return text[0] != '\0' && *end == '\0' && *out_seconds >= 0.1 && *out_seconds <= 3600;
}

static int parse_switches(const struct tool *tool, int argc, char **argv, struct how *how)
{
    static const struct option options[] = {{"batch", no_argument, NULL, 'b'}, {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":bd:n:", options, NULL)) != -1;) {
        if (option == 'b')
            how->batch = true;
        else if (option == 'd' && !parse_period(optarg, &how->period_s))
            return tool_usage_error(tool, "-d %s: not from 0.1 to 3600 seconds", optarg);
        else if (option == 'n' && !parse_count(optarg, &how->count))
            return tool_usage_error(tool, "-n %s: not a number of pictures", optarg);
        else if (option == ':')
            return tool_usage_error(tool, "-%c needs a value", optopt);
        else if (option == '?')
            return tool_unknown_option(tool, argv[optind - 1]);
    }
    if (argc - optind != 1)
        return tool_usage_error(tool, argc - optind < 1 ? "the mount point is missing" : "too many arguments");
    return 0;
}

static int top_run(const struct tool *tool, int argc, char **argv)
{
    struct how how = {.period_s = 1};
    const int status = parse_switches(tool, argc, argv, &how);
    if (status != 0)
        return status;
    struct top top = {.mount_point = argv[optind]};
    const bool batch = how.batch || !isatty(STDOUT_FILENO);
    const int rc = batch ? run_batch(&top, how.period_s, how.count) : run_screen(&top, how.period_s, how.count);
    reading_free(&top.now);
    reading_free(&top.before);
    tsv_free(&top.relations);
    if (rc != 0)
        fprintf(stderr, "tblfs: %s: %s%s\n", argv[optind], strerror(-rc),
                rc == -ENOENT ? " (is a store mounted there?)" : "");
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

const struct tool tool_top = {
    .name = "top",
    .arguments = "MNT [-d SECONDS] [-n COUNT] [--batch]",
    .summary = "Shows a mount as it works: requests, cache, log, transactions, sweeps",
    .help = "Rates are those since the last picture. q ends it, any other key makes the next picture at once.\n\n"
            "  -d SECONDS   time between pictures (default 1)\n"
            "  -n COUNT     ends after so many\n"
            "  --batch, -b  plain text, one picture after the other; so also when stdout is no terminal\n",
    .examples = "  tblfs top ~/tables\n"
                "  tblfs top ~/tables -n 1 --batch\n",
    .run = top_run,
};
