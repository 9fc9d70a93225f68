/*
 * tools/snapshot.c - `tblfs snapshot`.
 */
#include "fusefs/fusefs.h"
#include "tools/listing.h"
#include "tools/tools.h"

#include <getopt.h>

static int snapshot_run(const struct tool *tool, int argc, char **argv)
{
    bool json = false;
    if (listing_take_switch(tool, argc, argv, &json) != 0)
        return TOOL_EXIT_USAGE;
    if (argc - optind < 1 || argc - optind > 2)
        return tool_usage_error(tool, argc == optind ? "the mount point is missing" : "too many arguments");
    if (argc - optind == 1)
        return listing_of_mount(argv[optind], "snapshots", json);
    if (json)
        return tool_usage_error(tool, "--json is for the list: without a name");
    return fusefs_take_snapshot(argv[optind], argv[optind + 1]);
}

const struct tool tool_snapshot = {
    .name = "snapshot",
    .arguments = "MNT NAME | MNT [--json]",
    .summary = "Keeps the whole tree as it is now, read-only, as MNT/.snap/NAME",
    .help =
        "Takes no time and no space by itself, whatever the size of the tree: space is needed as the live tree moves\n"
        "on. The same as `mkdir MNT/.snap/NAME`, and on disk when it returns, with all that came before.\n\n"
        "  ls MNT/.snap               lists snapshots; .tblfs/snapshots says when they were taken\n"
        "  cp -a MNT/.snap/NAME/t .   brings a table back\n"
        "  mv MNT/.snap/A MNT/.snap/B renames one\n"
        "  rmdir MNT/.snap/NAME       drops it, although it looks non-empty; who has a file of it open reads on\n\n"
        "Without a NAME it lists snapshots, with --json as a JSON array of objects.\n\n"
        "Everything inside is read-only, also for root; `rm -rf` on a snapshot fails and leaves it whole.\n",
    .examples = "  tblfs snapshot ~/tables before-upgrade\n"
                "  tblfs snapshot ~/tables\n"
                "  tblfs snapshot ~/tables --json\n",
    .run = snapshot_run,
};
