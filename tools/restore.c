/*
 * tools/restore.c - `tblfs restore`.
 */
#include "base/progress.h"
#include "fusefs/fusefs.h"
#include "tools/base_input.h"
#include "tools/tools.h"
#include "txn/restore.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_IN_SECOND INT64_C(1000000000)

enum { TAKE_ARCHIVE = 256, TAKE_COMMAND, TAKE_UNTIL, TAKE_LOG_OF, TAKE_CACHE };

struct restore_arguments {
    const char *archive;
    const char *command;
    const char *until;
    const char *log_of;
    uint64_t cache_bytes; /* 0: the default */
};

/* ---- the target ---- */

/* Up to nine digits behind a point, as nanoseconds; cut ones count up to the end of what they say. */
static bool parse_fraction(const char **inout_at, int64_t *out_ns)
{
    const char *at = *inout_at;
    int64_t unit = NS_IN_SECOND;
    *out_ns = 0;
    if (*at != '.') {
        *out_ns = NS_IN_SECOND - 1; /* all of that second */
        return true;
    }
    for (at++; isdigit((unsigned char)*at) && unit > 1; at++) {
        unit /= 10;
        *out_ns += (*at - '0') * unit;
    }
    *out_ns += unit - 1;
    *inout_at = at;
    return unit < NS_IN_SECOND;
}

/* YYYY-MM-DD HH:MM:SS[.FRACTION][Z], with a T between the two as well; local time without the Z. */
static bool parse_time(const char *text, int64_t *out_ns)
{
    struct tm parts;
    int64_t fraction_ns = 0;
    memset(&parts, 0, sizeof parts);
    parts.tm_isdst = -1;
    const char *at = strptime(text, "%Y-%m-%d", &parts);
    at = at != NULL && (*at == ' ' || *at == 'T') ? strptime(at + 1, "%H:%M:%S", &parts) : NULL;
    if (at == NULL || !parse_fraction(&at, &fraction_ns)) {
        return false;
    }
    const bool utc = *at == 'Z';
    const time_t seconds = utc ? timegm(&parts) : mktime(&parts);
    *out_ns = (int64_t)seconds * NS_IN_SECOND + fraction_ns;
    return at[utc ? 1 : 0] == '\0' && seconds != (time_t)-1;
}

static bool is_number(const char *text)
{
    return *text != '\0' && strspn(text, "0123456789") == strlen(text);
}

static struct restore_target parse_target(const struct restore_arguments *arguments)
{
    struct restore_target target = {.until = RESTORE_END};
    const bool archived = arguments->archive != NULL || arguments->command != NULL;
    const char *until = arguments->until;
    if (until == NULL) {
        target.until = archived ? RESTORE_END : RESTORE_BASE;
    } else if (strcmp(until, "end") == 0) {
        target.until = RESTORE_END;
    } else if (parse_time(until, &target.time_ns)) {
        target.until = RESTORE_TIME;
    } else if (is_number(until)) {
        target.until = RESTORE_LSN;
        target.lsn = strtoull(until, NULL, 10);
    } else {
        target.until = RESTORE_TXN;
        target.name = until;
    }
    return target;
}

/* ---- a command as an archive ---- */

/* Exit status 0: it is there; of 1 to 125: the archive has no such file; anything else is an error. */
static int get_by_command(void *arg, const char *name, const char *path)
{
    char *text = archive_command_text(arg, path, name);
    if (text == NULL)
        return -ENOMEM;
    (void)unlink(path);
    const int how = system(text);
    const bool exited = how != -1 && WIFEXITED(how);
    int rc = exited && WEXITSTATUS(how) <= 125 ? -ENOENT : -EIO;
    if (exited && WEXITSTATUS(how) == 0)
        rc = access(path, R_OK) == 0 ? 0 : -ENOENT;
    if (rc == -EIO)
        fprintf(stderr, "tblfs: the command '%s' could not be run, or was ended by a signal\n", text);
    free(text);
    return rc;
}

/* ---- running ---- */

static void look(void *arg, struct progress_state *out_state)
{
    const struct restore_progress *progress = arg;
    if (atomic_load(&progress->replaying)) {
        out_state->what = "replaying the archive";
        (void)snprintf(out_state->detail, sizeof out_state->detail, "%" PRIu64 " records",
                       atomic_load(&progress->records));
        return;
    }
    out_state->what = "copying the base";
    out_state->done = atomic_load(&progress->base.done_bytes);
    out_state->total = atomic_load(&progress->base.total_bytes);
}

static void say_done(const char *dir, const struct restore_target *target, const struct restore_result *result)
{
    const time_t seconds = (time_t)(result->time_ns / NS_IN_SECOND);
    struct tm parts;
    char text[32] = "";
    if (gmtime_r(&seconds, &parts) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    fprintf(stderr, "tblfs: %s is restored%s: log position %" PRIu64, dir,
            target->until == RESTORE_BASE ? " as the base was" : "", result->lsn);
    if (result->time_ns > 0)
        fprintf(stderr, ", %s.%06" PRId64 "Z", text, result->time_ns % NS_IN_SECOND / 1000);
    fprintf(stderr, ", %" PRIu64 " records replayed; timeline %" PRIu32 "\n", result->records, result->timeline);
}

static int run(const char *base, const char *dir, const struct restore_archive *archive,
               const struct restore_target *target, uint64_t cache_bytes)
{
    struct base_input input;
    struct diag diag;
    struct progress progress;
    struct restore_progress counts = {.records = 0};
    struct restore_result result;
    diag_init_stderr(&diag, DIAG_INFO);
    int rc = base_input_open(&input, base);
    if (rc != 0) {
        fprintf(stderr, "tblfs: %s: %s\n", base, strerror(-rc));
        return TOOL_EXIT_FAILED;
    }
    const struct progress_options show = {.out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = look, .arg = &counts};
    const struct restore_options options = {.dev = io_real_device(),
                                            .diag = &diag,
                                            .dir = dir,
                                            .base = &input.source,
                                            .base_name = base,
                                            .archive = target->until == RESTORE_BASE ? NULL : archive,
                                            .target = *target,
                                            .cache_size_bytes = cache_bytes,
                                            .progress = &counts};
    progress_start(&progress, &show);
    rc = restore_run(&options, &result);
    progress_stop(&progress);
    base_input_close(&input);
    if (rc == 0)
        say_done(dir, target, &result);
    else
        fprintf(stderr, "tblfs: %s is not restored: %s\n", dir, strerror(-rc));
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

static char *absolute(const char *path)
{
    char *text = NULL;
    char *here = path[0] == '/' ? strdup("") : getcwd(NULL, 0);
    if (here == NULL || asprintf(&text, "%s%s%s", here, path[0] == '/' ? "" : "/", path) < 0)
        text = NULL;
    free(here);
    return text;
}

static int restore_with(const struct tool *tool, const char *base, const char *given,
                        const struct restore_arguments *arguments)
{
    const struct restore_target target = parse_target(arguments);
    struct archive_dir dir_archive = {.dev = io_real_device()};
    struct restore_archive archive = {.get = archive_dir_get, .arg = &dir_archive};
    if (arguments->archive != NULL && arguments->command != NULL)
        return tool_usage_error(tool, "--archive and --restore-command: one of them can be given");
    if (target.until != RESTORE_BASE && arguments->archive == NULL && arguments->command == NULL)
        return tool_usage_error(tool, "--until needs --archive or --restore-command");
    char *dir = absolute(given);
    char *from = arguments->archive != NULL ? realpath(arguments->archive, NULL) : NULL;
    char *lost = arguments->log_of != NULL ? realpath(arguments->log_of, NULL) : NULL;
    int status = TOOL_EXIT_FAILED;
    dir_archive.dir = from;
    archive.dir = from;
    archive.lost_dir = lost;
    if (arguments->command != NULL)
        archive = (struct restore_archive){
            .get = get_by_command, .arg = (void *)(uintptr_t)arguments->command, .lost_dir = lost};
    if (arguments->archive != NULL && from == NULL)
        fprintf(stderr, "tblfs: %s: %s\n", arguments->archive, strerror(errno));
    else if (arguments->log_of != NULL && lost == NULL)
        fprintf(stderr, "tblfs: %s: %s\n", arguments->log_of, strerror(errno));
    else if (dir == NULL)
        fprintf(stderr, "tblfs: %s: %s\n", given, strerror(errno));
    else
        status = run(base, dir, &archive, &target, arguments->cache_bytes);
    free(dir);
    free(from);
    free(lost);
    return status;
}

/* As `mount -o cache=SIZE` takes it. */
static int parse_cache(const struct tool *tool, const char *text, uint64_t *out_bytes)
{
    struct fusefs_options options;
    char list[64];
    char error[FUSEFS_ERROR_SIZE];
    fusefs_options_init(&options);
    (void)snprintf(list, sizeof list, "cache=%.50s", text);
    if (fusefs_options_parse(&options, list, error) != 0)
        return tool_usage_error(tool, "%s", error);
    *out_bytes = options.cache_size_bytes;
    return 0;
}

static int restore_tool_run(const struct tool *tool, int argc, char **argv)
{
    static const struct option long_options[] = {
        {"archive", required_argument, NULL, TAKE_ARCHIVE}, {"restore-command", required_argument, NULL, TAKE_COMMAND},
        {"until", required_argument, NULL, TAKE_UNTIL},     {"log-of", required_argument, NULL, TAKE_LOG_OF},
        {"cache", required_argument, NULL, TAKE_CACHE},     {NULL, 0, NULL, 0}};
    struct restore_arguments arguments = {.archive = NULL};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", long_options, NULL)) != -1;) {
        switch (option) {
        case TAKE_ARCHIVE:
            arguments.archive = optarg;
            break;
        case TAKE_COMMAND:
            arguments.command = optarg;
            break;
        case TAKE_UNTIL:
            arguments.until = optarg;
            break;
        case TAKE_LOG_OF:
            arguments.log_of = optarg;
            break;
        case TAKE_CACHE:
            if (parse_cache(tool, optarg, &arguments.cache_bytes) != 0)
                return TOOL_EXIT_USAGE;
            break;
        case ':':
            return tool_usage_error(tool, "%s needs a value", argv[optind - 1]);
        default:
            return tool_unknown_option(tool, argv[optind - 1]);
        }
    }
    if (argc - optind != 2)
        return tool_usage_error(tool, argc - optind < 1   ? "base and data directory are missing"
                                      : argc - optind < 2 ? "the data directory is missing"
                                                          : "too many arguments");
    return restore_with(tool, argv[optind], argv[optind + 1], &arguments);
}

const struct tool tool_restore = {
    .name = "restore",
    .arguments = "BASE|- DATADIR [--archive DIR|--restore-command CMD] [--until TIME|LSN|TXN-NAME|end] [--log-of "
                 "DATADIR] [--cache SIZE]",
    .summary = "Makes a store out of a base, as it was at any moment since",
    .help =
        "BASE is what `tblfs backup` made: a directory, a tar file, or - for a stream. DATADIR is made, or empty: it "
        "becomes a store\n"
        "of its own, which never touches the original. Without an archive it is as the base was.\n\n"
        "  --archive DIR           replay the log that a mount kept with archive=DIR, without a gap\n"
        "  --restore-command CMD   the same, with segments that CMD brings: %p is where to, %f the name; a status of 1 "
        "to 125 says\n"
        "                          that there is none of that name\n"
        "  --until WHAT            how far (default end, all that was archived):\n"
        "      '2026-03-01 12:00:00'   all that is not later; local time, or with a Z at the end UTC, with fractions "
        "of a second\n"
        "                              as MNT/.tblfs/commits has them\n"
        "      123456789               the record at that position of the log is the last one (.tblfs/commits has them "
        "too)\n"
        "      NAME                    just behind the commit of that transaction, the first one of that name behind "
        "the base\n"
        "  --log-of DATADIR        of a store that was lost: what it had not archived yet is taken from its own log\n"
        "  --cache SIZE            page cache while the log is replayed (256M)\n\n"
        "It says where it stopped. Interrupted, it goes on when the same command is given again; until it is done "
        "nobody can\n"
        "mount DATADIR. A segment that is missing or damaged is named, and nothing is left out.\n",
    .examples = "  tblfs restore /backup/monday new.data\n"
                "  tblfs restore /backup/monday new.data --archive /backup/log --until '2026-03-01 12:00:00'\n",
    .run = restore_tool_run,
};
