/*
 * tools/fsm.c - `tblfs fsm`.
 */
#include "fusefs/fusefs.h"
#include "tools/listing.h"
#include "tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void write_summary(const struct fusefs_blocks_summary *summary, FILE *out)
{
    fprintf(out, "blocks\tleaves\tleaf_bytes\tfill\tinner\tfree\tpinned\theld\tpunched\n");
    fprintf(out,
            "%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%u\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
            "\n",
            summary->blocks, summary->leaves, summary->leaf_bytes, summary->fill_percent, summary->inner, summary->free,
            summary->pinned, summary->held, summary->punched);
}

static void say_summary(const struct fusefs_blocks_summary *summary)
{
    printf("%" PRIu64 " blocks: %" PRIu64 " leaves, %u %% full, %" PRIu64 " inner, %" PRIu64 " free, %" PRIu64
           " pinned, %" PRIu64 " held, %" PRIu64 " punched\n",
           summary->blocks, summary->leaves, summary->fill_percent, summary->inner, summary->free, summary->pinned,
           summary->held, summary->punched);
}

/* The list is read twice by whoever prints it: it goes to a file. */
static int show(const char *path, bool json, bool summary_only)
{
    struct fusefs_blocks_summary summary;
    FILE *list = tmpfile();
    int rc = list == NULL ? -errno : fusefs_list_blocks(path, summary_only ? NULL : list, &summary);
    if (list == NULL)
        fprintf(stderr, "tblfs: no file for the list: %s\n", strerror(-rc));
    if (rc == 0) {
        if (summary_only)
            write_summary(&summary, list);
        rewind(list);
        if (json || !summary_only)
            rc = listing_write(list, json, stdout);
        if (rc == 0 && !json)
            say_summary(&summary);
    }
    if (list != NULL)
        (void)fclose(list);
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

static int fsm_run(const struct tool *tool, int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"summary", no_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
    bool json = false;
    bool summary = false;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option != 'j' && option != 's')
            return tool_unknown_option(tool, argv[optind - 1]);
        json |= option == 'j';
        summary |= option == 's';
    }
    if (argc - optind != 1)
        return tool_usage_error(tool, argc == optind ? "the table is missing" : "too many arguments");
    return show(argv[optind], json, summary);
}

const struct tool tool_fsm = {
    .name = "fsm",
    .arguments = "[--summary] [--json] TABLE",
    .summary = "Shows what each block of a table's file is used for",
    .help = "A line for each block, and one for all of them:\n\n"
            "  leaf    holds rows: how many bytes, and how full it is in percent\n"
            "  inner   a page of the tree above the leaves, and on which level\n"
            "  free    the next write may take it\n"
            "  pinned  not in this version of the table, but kept: by the `live` tree, a `snapshot`,\n"
            "          a `transaction`, the last `checkpoint`, a `backup`; `other`: by the log, or by\n"
            "          somebody who has a table open that was replaced\n"
            "  held    an operation that is under way has it\n"
            "  punched free, but without space in the file: it is given some before it is used\n\n"
            "The table may be one of a snapshot or a transaction: then its version there is shown.\n"
            "Nobody is stopped, no row is read. MNT/.tblfs/relations has a line for each table.\n\n"
            "  --summary   only the line for all of them\n"
            "  --json      as a JSON array of objects\n",
    .examples = "  tblfs fsm ~/tables/orders.tsv\n"
                "  tblfs fsm --summary --json ~/tables/orders.tsv\n",
    .run = fsm_run,
};
