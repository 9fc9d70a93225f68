/*
 * tools/check.c - `tblfs check`: looks at everything in a store.
 */
#include "tools/tools.h"
#include "txn/store.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_and_check(const char *dir, struct diag *diag)
{
    const struct store_options options = {.dev = io_real_device(), .diag = diag, .dir = dir, .read_only = true};
    struct store *store = NULL;
    int rc = store_open(&options, &store, NULL);
    if (rc != 0) {
        fprintf(stderr, "tblfs: cannot open %s: %s\n", dir,
                rc == -ENODATA ? "not a tblfs data directory" : strerror(-rc));
        return rc;
    }
    rc = store_check(store);
    const int close_rc = store_close(store);
    return rc == 0 ? close_rc : rc;
}

static int check_run(const struct tool *tool, int argc, char **argv)
{
    struct diag diag;
    opterr = 0;
    if (getopt(argc, argv, "") != -1)
        return tool_usage_error(tool, "unknown option '%s'", argv[optind - 1]);
    if (argc - optind != 1)
        return tool_usage_error(tool, argc - optind < 1 ? "the data directory is missing" : "too many arguments");
    char *dir = realpath(argv[optind], NULL);
    if (dir == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", argv[optind], strerror(errno));
        return TOOL_EXIT_FAILED;
    }
    diag_init_stderr(&diag, DIAG_WARNING);
    const int rc = open_and_check(dir, &diag);
    if (rc == 0)
        printf("%s: no damage found\n", dir);
    free(dir);
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

const struct tool tool_check = {
    .name = "check",
    .arguments = "DATADIR",
    .summary = "Checks every page and every name of a store that is not mounted",
    .help =
        "Changes nothing. Each finding is a line on stderr that says which file, block and field; the exit status is\n"
        "0 when there is none.\n",
    .run = check_run,
};
