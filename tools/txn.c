/*
 * tools/txn.c - `tblfs txn`.
 */
#include "fusefs/fusefs.h"
#include "tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

#define TXN_EXIT_USAGE 125 /* as env(1) */

static bool parse_count(const char *text, unsigned *out_count)
{
    char *end;
    errno = 0;
    const unsigned long count = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || count > 1000000)
        return false;
    *out_count = (unsigned)count;
    return true;
}

/* Reads options up to the first other word, or "--", and makes argv[0] what stands before the rest. 0, or an exit status. */
static int parse_options(const struct tool *tool, int *argc, char ***argv, struct fusefs_txn_options *options)
{
    static const struct option long_options[] = {
        {"retry", required_argument, NULL, 'r'},
        {"private", no_argument, NULL, 'p'},
        {"name", required_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    opterr = 0;
    optind = 0; /* from the beginning */
    for (int option; (option = getopt_long(*argc, *argv, "+:", long_options, NULL)) != -1;) {
        switch (option) {
        case 'r':
            if (!parse_count(optarg, &options->retries))
                return tool_usage_error(tool, "'%s' is not a number of retries", optarg);
            break;
        case 'p':
            options->private_mount = true;
            break;
        case 'n':
            options->name = optarg;
            break;
        case ':':
            return tool_usage_error(tool, "%s needs a value", (*argv)[optind - 1]);
        default:
            return tool_unknown_option(tool, (*argv)[optind - 1]);
        }
    }
    *argc -= optind - 1;
    *argv += optind - 1;
    return 0;
}

static int txn_run(const struct tool *tool, int argc, char **argv)
{
    struct fusefs_txn_options options = {.mount_point = NULL};
    if (parse_options(tool, &argc, &argv, &options) != 0)
        return TXN_EXIT_USAGE;
    if (argc < 2) {
        (void)tool_usage_error(tool, "the mount point is missing");
        return TXN_EXIT_USAGE;
    }
    options.mount_point = argv[1];
    argc--;
    argv++;
    if (parse_options(tool, &argc, &argv, &options) != 0)
        return TXN_EXIT_USAGE;
    if (argc < 2) {
        (void)tool_usage_error(tool, "the command is missing");
        return TXN_EXIT_USAGE;
    }
    options.command = argv + 1;
    return fusefs_run_transaction(&options);
}

const struct tool tool_txn = {
    .name = "txn",
    .arguments = "MNT [--retry N] [--name NAME] [--private] -- COMMAND [ARGUMENT...]",
    .summary = "Runs COMMAND in a transaction on MNT, and commits it if COMMAND succeeds",
    .help =
        "Begins a transaction, runs COMMAND in its directory, commits if it exits 0, and aborts if not. Nobody else "
        "sees\n"
        "anything of it before; then everything at once, durable.\n\n"
        "  tblfs txn MNT -- sed -i 's/old/new/' a.tsv b.tsv\n"
        "  tblfs txn MNT -- sh -ec 'sort -u staged.tsv >> all.tsv; rm staged.tsv'\n"
        "  tblfs txn MNT --retry 5 -- sh -ec 'n=$(cat counter); echo $((n + 1)) > counter'\n"
        "  tblfs txn MNT -- cp \"$PWD/rows.tsv\" .\n\n"
        "Of several commands in a shell the last one's exit status is the shell's: with -e the first that fails ends "
        "it.\n"
        "COMMAND's working directory, $TXN and $PWD, is the transaction: relative paths lead to tables in it; $OLDPWD "
        "is\n"
        "where you were. Absolute paths under MNT lead to the live tree as ever, unless --private is given.\n\n"
        "  --retry N     on a conflict begin again and run COMMAND again, up to N times; what it has read from its "
        "standard\n"
        "                input is not there again\n"
        "  --name NAME   MNT/.txn/NAME; else a name that is not in use\n"
        "  --private     for COMMAND the transaction is at MNT itself, $TXN is MNT, and absolute paths lead into it "
        "(in\n"
        "                a mount namespace of its own; needs root or user namespaces)\n\n"
        "Exit status: that of COMMAND, 128+N if signal N killed it;\n"
        "  75   conflict: others changed what it changed; shown on stderr as lines of path, what it did, what "
        "happened\n"
        "       outside, and since when, with tabs between\n"
        "  76   aborted for you, and why: mount options txn_max_age and txn_max_bytes\n"
        "  125  failed by itself, COMMAND left files open for writing (path and process are shown), or wrong usage\n"
        "  126, 127  COMMAND cannot be run, is not found\n"
        "In each of these cases nothing was committed, but by COMMAND itself.\n\n"
        "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to COMMAND; when it has ended the transaction is aborted,\n"
        "whatever it returned, and the exit status is 128+N.\n",
    .has_statuses = true,
    .run = txn_run,
};
