/*
 * tools/snapshot.c - `tblfs snapshot`.
 */
#include "fusefs/fusefs.h"
#include "tools/tools.h"

#include <getopt.h>

static int snapshot_run(const struct tool *tool, int argc, char **argv)
{
    opterr = 0;
    if (getopt(argc, argv, "") != -1)
        return tool_usage_error(tool, "unknown option '%s'", argv[optind - 1]);
    if (argc - optind < 2)
        return tool_usage_error(tool, argc == optind ? "mount point and name are missing" : "the name is missing");
    if (argc - optind > 2)
        return tool_usage_error(tool, "too many arguments");
    return fusefs_take_snapshot(argv[optind], argv[optind + 1]);
}

const struct tool tool_snapshot = {
    .name = "snapshot",
    .arguments = "MNT NAME",
    .summary = "Keeps the whole tree as it is now, read-only, as MNT/.snap/NAME",
    .help =
        "Takes no time and no space by itself, whatever the size of the tree: space is needed as the live tree moves\n"
        "on. The same as `mkdir MNT/.snap/NAME`, and on disk when it returns, with all that came before.\n\n"
        "  ls MNT/.snap               lists snapshots; .tblfs/snapshots says when they were taken\n"
        "  cp -a MNT/.snap/NAME/t .   brings a table back\n"
        "  mv MNT/.snap/A MNT/.snap/B renames one\n"
        "  rmdir MNT/.snap/NAME       drops it, although it looks non-empty; who has a file of it open reads on\n\n"
        "Everything inside is read-only, also for root; `rm -rf` on a snapshot fails and leaves it whole.\n",
    .run = snapshot_run,
};
