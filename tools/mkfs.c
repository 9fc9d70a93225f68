/*
 * tools/mkfs.c - `tblfs mkfs`: makes an empty store.
 */
#include "tools/tools.h"
#include "txn/store.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "fsm_threshold=N". */
static bool parse_threshold(const char *text, uint32_t *out_threshold)
{
    static const char name[] = "fsm_threshold=";
    if (strncmp(text, name, strlen(name)) != 0)
        return false;
    const char *digits = text + strlen(name);
    errno = 0;
    const unsigned long value = strtoul(digits, NULL, 10);
    if (digits[0] == '\0' || strspn(digits, "0123456789") != strlen(digits) || errno != 0 ||
        value > STORE_FSM_THRESHOLD_MAX)
        return false;
    *out_threshold = (uint32_t)value;
    return true;
}

static int make(const char *path, bool threshold_given, uint32_t threshold)
{
    struct diag diag;
    diag_init_stderr(&diag, DIAG_WARNING);
    char *dir = tool_absolute_path(path);
    if (dir == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", path, strerror(errno));
        return TOOL_EXIT_FAILED;
    }
    const struct store_mkfs_options options = {
        .dev = io_real_device(),
        .diag = &diag,
        .dir = dir,
        .create_dir = true,
        .root_uid = geteuid(),
        .root_gid = getegid(),
        .fsm_threshold_given = threshold_given,
        .fsm_threshold = threshold,
    };
    const int rc = store_mkfs(&options);
    free(dir);
    return rc == 0 ? 0 : TOOL_EXIT_FAILED; /* store_mkfs said why */
}

static int mkfs_run(const struct tool *tool, int argc, char **argv)
{
    static const struct option long_options[] = {{"create", no_argument, NULL, 'c'}, {NULL, 0, NULL, 0}};
    bool threshold_given = false;
    uint32_t threshold = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":o:", long_options, NULL)) != -1;) {
        switch (option) {
        case 'c':
            break;
        case 'o':
            threshold_given = parse_threshold(optarg, &threshold);
            if (!threshold_given)
                return tool_usage_error(tool, "-o %s: not fsm_threshold=N, with N from 0 to %u", optarg,
                                        STORE_FSM_THRESHOLD_MAX);
            break;
        case ':':
            return tool_usage_error(tool, "-%c needs a value", optopt);
        default:
            return tool_unknown_option(tool, argv[optind - 1]);
        }
    }
    if (argc - optind != 1)
        return tool_usage_error(tool, argc - optind < 1 ? "the data directory is missing" : "too many arguments");
    return make(argv[optind], threshold_given, threshold);
}

const struct tool tool_mkfs = {
    .name = "mkfs",
    .arguments = "DATADIR [-o fsm_threshold=N] [--create]",
    .summary = "Makes an empty store in a directory that is missing or empty",
    .help =
        "The directory belongs to tblfs alone from then on: nothing in it is meant to be touched by hand. The root\n"
        "of the new tree belongs to the user who makes it. Nothing that exists is ever overwritten.\n\n"
        "  -o fsm_threshold=N   tables of more than N blocks of 8 KiB keep their free map in a file beside them "
        "(default\n"
        "                       4, 0: all tables); a mount may be told otherwise\n"
        "  --create             goes without saying; accepted because `tblfs mount` has it\n",
    .examples = "  tblfs mkfs /var/lib/tblfs\n"
                "  tblfs mkfs tables.data -o fsm_threshold=0\n",
    .run = mkfs_run,
};
