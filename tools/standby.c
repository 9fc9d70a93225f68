/*
 * tools/standby.c - `tblfs standby`: a mount that follows the archive of another, and `tblfs promote`.
 */
#include "base/progress.h"
#include "fusefs/fusefs.h"
#include "tools/base_input.h"
#include "tools/tools.h"
#include "txn/standby.h"

#include <errno.h>
#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAKE_ARCHIVE = 256, TAKE_COMMAND, TAKE_BASE };

struct standby_arguments {
    const char *archive;
    const char *command;
    const char *base;
};

/* ---- the base ---- */

static void look(void *arg, struct progress_state *out_state)
{
    const struct base_progress *progress = arg;
    out_state->what = "copying the base";
    out_state->done = atomic_load(&progress->done_bytes);
    out_state->total = atomic_load(&progress->total_bytes);
}

static int place(const char *base, const struct base_source *source, const char *dir)
{
    struct diag diag;
    struct progress progress;
    struct restore_progress counts = {.records = 0};
    const struct restore_archive archive = {.get = NULL}; /* the base has to be one that can be followed */
    const struct restore_options options = {.dev = io_real_device(),
                                            .diag = &diag,
                                            .dir = dir,
                                            .base = source,
                                            .base_name = base,
                                            .archive = &archive,
                                            .target = {.until = RESTORE_STANDBY},
                                            .progress = &counts};
    const struct progress_options show = {
        .out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = look, .arg = &counts.base};
    uint32_t segment_size = 0;
    diag_init_stderr(&diag, DIAG_INFO);
    progress_start(&progress, &show);
    const int rc = standby_place(&options, &segment_size);
    progress_stop(&progress);
    return rc;
}

/* 0, or an exit status. */
static int place_base(const char *base, const char *dir)
{
    struct base_input input;
    struct base_source *source = NULL;
    if (base != NULL) {
        const int rc = base_input_open(&input, base);
        if (rc != 0) {
            fprintf(stderr, "tblfs: %s: %s\n", base, strerror(-rc));
            return TOOL_EXIT_FAILED;
        }
        source = &input.source;
    }
    const int rc = place(base, source, dir);
    if (base != NULL)
        base_input_close(&input);
    if (rc != 0)
        fprintf(stderr, "tblfs: %s is not a standby: %s\n", dir, strerror(-rc));
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

/* ---- arguments ---- */

static int take_options(const struct tool *tool, struct fusefs_options *options, const char *list)
{
    char error[FUSEFS_ERROR_SIZE];
    const int rc = fusefs_options_parse(options, list, error);
    if (rc == -EINVAL)
        return tool_usage_error(tool, "%s", error);
    if (rc != 0)
        fprintf(stderr, "tblfs: %s\n", strerror(-rc));
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

/* 0, or an exit status. */
static int parse_switches(const struct tool *tool, int argc, char **argv, struct fusefs_options *options,
                          struct standby_arguments *arguments)
{
    static const struct option long_options[] = {{"archive", required_argument, NULL, TAKE_ARCHIVE},
                                                 {"restore-command", required_argument, NULL, TAKE_COMMAND},
                                                 {"base", required_argument, NULL, TAKE_BASE},
                                                 {NULL, 0, NULL, 0}};
    int status = 0;
    opterr = 0;
    for (int option; status == 0 && (option = getopt_long(argc, argv, ":fo:", long_options, NULL)) != -1;) {
        switch (option) {
        case 'f':
            options->foreground = true;
            break;
        case 'o':
            status = take_options(tool, options, optarg);
            break;
        case TAKE_ARCHIVE:
            arguments->archive = optarg;
            break;
        case TAKE_COMMAND:
            arguments->command = optarg;
            break;
        case TAKE_BASE:
            arguments->base = optarg;
            break;
        case ':':
            return tool_usage_error(tool, "%s needs a value", argv[optind - 1]);
        default:
            return tool_unknown_option(tool, argv[optind - 1]);
        }
    }
    return status;
}

static int check_usage(const struct tool *tool, int count, const struct standby_arguments *arguments)
{
    if (count != 2)
        return tool_usage_error(tool, count < 1   ? "data directory and mount point are missing"
                                      : count < 2 ? "the mount point is missing"
                                                  : "too many arguments");
    if (arguments->archive == NULL && arguments->command == NULL)
        return tool_usage_error(tool, "it follows an archive: --archive or --restore-command says which");
    if (arguments->archive != NULL && arguments->command != NULL)
        return tool_usage_error(tool, "--archive and --restore-command: one of them can be given");
    return 0;
}

static int take_paths(char **paths, const struct standby_arguments *arguments, struct fusefs_options *options)
{
    options->standby = true;
    options->data_dir = tool_absolute_path(paths[0]);
    options->mount_point = strdup(paths[1]);
    options->follow_command = arguments->command != NULL ? strdup(arguments->command) : NULL;
    options->follow_dir = arguments->archive != NULL ? realpath(arguments->archive, NULL) : NULL;
    if (arguments->archive != NULL && options->follow_dir == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", arguments->archive, strerror(errno));
        return TOOL_EXIT_FAILED;
    }
    if (options->data_dir != NULL && options->mount_point != NULL &&
        (arguments->command == NULL || options->follow_command != NULL))
        return 0;
    fprintf(stderr, "tblfs: %s\n", strerror(ENOMEM));
    return TOOL_EXIT_FAILED;
}

static int standby_run(const struct tool *tool, int argc, char **argv)
{
    struct fusefs_options options;
    struct standby_arguments arguments = {.archive = NULL};
    fusefs_options_init(&options);
    int status = parse_switches(tool, argc, argv, &options, &arguments);
    if (status == 0)
        status = check_usage(tool, argc - optind, &arguments);
    if (status == 0)
        status = take_paths(argv + optind, &arguments, &options);
    if (status == 0)
        status = place_base(arguments.base, options.data_dir);
    if (status == 0)
        status = fusefs_run(&options);
    fusefs_options_free(&options);
    return status;
}

const struct tool tool_standby = {
    .name = "standby",
    .arguments = "DATADIR MNT --archive DIR|--restore-command CMD [--base BASE] [-o OPTION,...] [-f]",
    .summary = "Mounts a copy read-only that follows the archive of its primary",
    .help =
        "The first time DATADIR is made out of BASE (as `tblfs backup` made it, with an archive); from then on it goes "
        "on "
        "where it\n"
        "was, and --base is not needed any more. What is read is what the primary had at some moment, and transactions "
        "are "
        "seen\n"
        "whole; MNT/.tblfs/status says how far it is. A file that is open goes on with what it has. Writes fail with "
        "EROFS.\n\n"
        "  --archive DIR           the directory of the primary's archive=DIR; a new segment is seen at once\n"
        "  --restore-command CMD   the same, with segments that CMD brings: %p is where to, %f the name; a status of 1 "
        "to 125 says\n"
        "                          that there is none of that name yet. It is run every two seconds\n"
        "  --base BASE             a directory, a tar file, or - for a stream; not looked at when DATADIR is a "
        "standby\n"
        "  -f                      stay in the foreground\n"
        "  -o LIST                 as for `tblfs mount`\n\n"
        "A segment that is missing, damaged or of another store is named in the log; it is looked for again and again, "
        "and\n"
        "what is shown meanwhile is what came before it.\n",
    .examples = "  tblfs standby copy.data ~/copy --archive /backup/log --base /backup/monday\n",
    .run = standby_run,
};

static int promote_run(const struct tool *tool, int argc, char **argv)
{
    opterr = 0;
    if (getopt(argc, argv, "") != -1)
        return tool_unknown_option(tool, argv[optind - 1]);
    if (argc - optind != 1)
        return tool_usage_error(tool, argc == optind ? "the mount point is missing" : "too many arguments");
    return fusefs_promote(argv[optind]);
}

const struct tool tool_promote = {
    .name = "promote",
    .arguments = "MNT",
    .summary = "Makes a standby writable",
    .help =
        "All that the archive has is replayed first. From then on it is a store of its own, with an id and a timeline "
        "of "
        "its own; it\n"
        "archives what it does if it was mounted with -o archive=..., also into the directory that it followed. Files "
        "that are open\n"
        "go on. Make sure that the old primary is gone: what it still archives stays on the old timeline, and is not "
        "taken over.\n",
    .examples = "  tblfs promote ~/copy\n",
    .run = promote_run,
};
