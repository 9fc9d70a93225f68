/*
 * tools/compact.c - `tblfs compact`.
 */
#include "fusefs/fusefs.h"
#include "tools/tools.h"

#include <getopt.h>

static int compact_run(const struct tool *tool, int argc, char **argv)
{
    static const struct option long_options[] = {
        {"recursive", no_argument, NULL, 'r'}, {"always", no_argument, NULL, 'a'}, {NULL, 0, NULL, 0}};
    struct fusefs_compact_options options = {.recursive = false};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "r", long_options, NULL)) != -1;) {
        switch (option) {
        case 'r':
            options.recursive = true;
            break;
        case 'a':
            options.always = true;
            break;
        default:
            return tool_unknown_option(tool, argv[optind - 1]);
        }
    }
    if (optind == argc)
        return tool_usage_error(tool, "the tables are missing");
    options.paths = argv + optind;
    return fusefs_compact(&options);
}

const struct tool tool_compact = {
    .name = "compact",
    .arguments = "[-r] [--always] TABLE...",
    .summary = "Brings tables in order that lie scattered or half empty in their files",
    .help = "Writes a table's content again, in order, into a new file, while everybody goes on: readers, writers, "
            "mappings,\n"
            "transactions and snapshots. Nothing that one can see of the table changes but the space that it takes; "
            "the old file\n"
            "goes when nobody sees it any more, at a checkpoint at the earliest. Until then there has to be room for "
            "both.\n\n"
            "  tblfs compact MNT/orders.tsv\n"
            "  tblfs compact -r MNT\n\n"
            "  -r, --recursive  directories too: all that is in them\n"
            "  --always         also tables that lie in order\n\n"
            "For each table it says how many blocks its file has, in how many runs of neighbours its content lies, and "
            "how full\n"
            "its blocks are: before and after. On a terminal it shows how far it is. Interrupted, it leaves nothing "
            "behind.\n\n"
            "A table that an open transaction wrote is left alone, and so is one that is rewritten again and again "
            "meanwhile.\n"
            "Exit status: 0 all of them are in order, 1 some are not, and why is said.\n",
    .has_statuses = true,
    .run = compact_run,
};
