/*
 * tools/mount.c - `tblfs mount` and `tblfs umount`.
 */
#include "fusefs/fusefs.h"
#include "tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAKE_CREATE = 256, TAKE_ABORT_TRANSACTIONS };

static int take_options(const struct tool *tool, struct fusefs_options *options, const char *list)
{
    char error[FUSEFS_ERROR_SIZE];
    const int rc = fusefs_options_parse(options, list, error);
    if (rc == -EINVAL)
        return tool_usage_error(tool, "%s", error);
    if (rc != 0) {
        fprintf(stderr, "tblfs: %s\n", strerror(-rc));
        return TOOL_EXIT_FAILED;
    }
    return 0;
}

/* Reads what stands before and between the two paths. 0, or an exit status. */
static int parse_switches(const struct tool *tool, int argc, char **argv, struct fusefs_options *options)
{
    static const struct option long_options[] = {{"create", no_argument, NULL, TAKE_CREATE}, {NULL, 0, NULL, 0}};
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
        case TAKE_CREATE:
            options->create = true;
            break;
        case ':':
            return tool_usage_error(tool, "-%c needs a value", optopt);
        default:
            return tool_unknown_option(tool, argv[optind - 1]);
        }
    }
    return status;
}

static int take_paths(const struct tool *tool, int count, char **paths, struct fusefs_options *options)
{
    if (count < 2)
        return tool_usage_error(tool, count == 0 ? "data directory and mount point are missing"
                                                 : "the mount point is missing");
    if (count > 2)
        return tool_usage_error(tool, "too many arguments");
    options->data_dir = strdup(paths[0]);
    options->mount_point = strdup(paths[1]);
    if (options->data_dir != NULL && options->mount_point != NULL)
        return 0;
    fprintf(stderr, "tblfs: %s\n", strerror(ENOMEM));
    return TOOL_EXIT_FAILED;
}

static int mount_run(const struct tool *tool, int argc, char **argv)
{
    struct fusefs_options options;
    fusefs_options_init(&options);
    int status = parse_switches(tool, argc, argv, &options);
    if (status == 0)
        status = take_paths(tool, argc - optind, argv + optind, &options);
    if (status == 0)
        status = fusefs_run(&options);
    fusefs_options_free(&options);
    return status;
}

const struct tool tool_mount = {
    .name = "mount",
    .arguments = "DATADIR MNT [-o OPTION,...] [-f] [--create]",
    .summary = "Mounts the store in DATADIR on the directory MNT",
    .help = "Returns when the mount answers. A data directory is used by one daemon at a time. MNT must not lie in\n"
            "DATADIR, nor DATADIR in MNT.\n\n"
            "  -f         stay in the foreground, with messages on stderr; ^C unmounts\n"
            "  --create   make the store first when DATADIR is missing or empty\n"
            "  -o LIST    options, separated by commas:\n",
    .more_help = fusefs_options_help,
    .examples = "  tblfs mount ~/tables.data ~/tables --create\n"
                "  tblfs mount /var/lib/tblfs /srv/tables -o cache=4G,allow_other\n"
                "  tblfs mount -f data mnt -o ro,debug\n",
    .run = mount_run,
};

static int umount_run(const struct tool *tool, int argc, char **argv)
{
    static const struct option long_options[] = {{"abort-transactions", no_argument, NULL, TAKE_ABORT_TRANSACTIONS},
                                                 {NULL, 0, NULL, 0}};
    bool abort_transactions = false;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (option != TAKE_ABORT_TRANSACTIONS)
            return tool_unknown_option(tool, argv[optind - 1]);
        abort_transactions = true;
    }
    if (argc - optind != 1)
        return tool_usage_error(tool, argc - optind < 1 ? "the mount point is missing" : "too many arguments");
    return fusefs_unmount(argv[optind], abort_transactions);
}

const struct tool tool_umount = {
    .name = "umount",
    .arguments = "MNT [--abort-transactions]",
    .summary = "Unmounts, and returns when everything is on disk",
    .help =
        "Waits up to a minute until the daemon has closed the store and is gone. When files on MNT are in use, says\n"
        "by whom and leaves it mounted. When transactions are open in which something was changed, lists them and\n"
        "leaves it mounted, unless told to abort them. A mount whose daemon is gone is taken away.\n",
    .examples = "  tblfs umount ~/tables\n"
                "  tblfs umount /srv/tables --abort-transactions\n",
    .run = umount_run,
};
