/*
 * tools/upgrade.c - `tblfs upgrade`: a copy of a data directory in the current format.
 */
#include "tools/tools.h"
#include "txn/upgrade.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int copy(const char *old_dir, const char *new_dir)
{
    struct diag diag;
    struct progress progress;
    struct upgrade_progress done = {.done_bytes = 0};
    struct upgrade_result result;
    const struct upgrade_options options = {
        .dev = io_real_device(), .diag = &diag, .old_dir = old_dir, .new_dir = new_dir, .progress = &done};
    const struct progress_options show = {
        .out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = upgrade_progress_look, .arg = &done};
    diag_init_stderr(&diag, DIAG_WARNING);
    progress_start(&progress, &show);
    const int rc = upgrade_copy(&options, &result);
    progress_stop(&progress);
    if (rc != 0) {
        fprintf(stderr, "tblfs: %s: no good copy of %s was made: %s\n", new_dir, old_dir, strerror(-rc));
        return TOOL_EXIT_FAILED;
    }
    printf("%s: format %" PRIu32 ", copied from format %" PRIu32 ": %" PRIu64 " files, %" PRIu64
           " bytes%s; no damage found\n",
           new_dir, result.new_format, result.old_format, result.files, result.bytes,
           result.was_clean ? "" : ", its log replayed");
    return 0;
}

/* Does `inner` lie in the directory `outer`? */
static bool lies_in(const char *inner, const char *outer)
{
    const size_t length = strlen(outer);
    return strncmp(inner, outer, length) == 0 && (inner[length] == '/' || inner[length] == '\0');
}

static int upgrade_run(const struct tool *tool, int argc, char **argv)
{
    opterr = 0;
    if (getopt(argc, argv, "") != -1)
        return tool_unknown_option(tool, argv[optind - 1]);
    if (argc - optind != 2)
        return tool_usage_error(tool, argc - optind < 2 ? "the old and the new data directory are wanted"
                                                        : "too many arguments");
    char *old_dir = realpath(argv[optind], NULL);
    char *new_dir = tool_absolute_path(argv[optind + 1]);
    int status = TOOL_EXIT_FAILED;
    if (old_dir == NULL || new_dir == NULL)
        fprintf(stderr, "tblfs: %s: %s\n", argv[old_dir == NULL ? optind : optind + 1], strerror(errno));
    else if (lies_in(new_dir, old_dir))
        fprintf(stderr, "tblfs: %s lies in %s, which is only read\n", new_dir, old_dir);
    else
        status = copy(old_dir, new_dir);
    free(old_dir);
    free(new_dir);
    return status;
}

const struct tool tool_upgrade = {
    .name = "upgrade",
    .arguments = "OLD NEW",
    .summary = "Copies a data directory into a new one, in the current format",
    .help =
        "For a data directory that another version of tblfs wrote. OLD must not be mounted, and is only read: it is\n"
        "the same afterwards, byte for byte. NEW must be missing or empty. Snapshots come along, empty space does not\n"
        "(files are copied sparse), nor what is not needed any more: free maps of small tables, logs. If OLD was not\n"
        "closed cleanly, its log is replayed in NEW. Every block is looked at while it is copied, and NEW is checked\n"
        "in full at the end, as 'tblfs check' does. A format that this version does not know is refused.\n\n"
        "Exit status: 0 NEW is good; 1 it is not, and why is said. Without its file `control` NEW is no data\n"
        "directory: a copy that was interrupted can be removed and made again.\n",
    .examples = "  tblfs upgrade old.data new.data\n",
    .has_statuses = true,
    .run = upgrade_run,
};
