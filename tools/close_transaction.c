/*
 * tools/close_transaction.c - `tblfs commit` and `tblfs abort`.
 */
#include "fusefs/fusefs.h"
#include "tools/tools.h"

#include <getopt.h>

static int close_run(const struct tool *tool, int argc, char **argv, int (*gesture)(const char *path))
{
    opterr = 0;
    if (getopt(argc, argv, "") != -1)
        return tool_unknown_option(tool, argv[optind - 1]);
    if (argc - optind != 1)
        return tool_usage_error(tool, argc == optind ? "the transaction is missing" : "too many arguments");
    return gesture(argv[optind]);
}

static int commit_run(const struct tool *tool, int argc, char **argv)
{
    return close_run(tool, argc, argv, fusefs_commit_transaction);
}

const struct tool tool_commit = {
    .name = "commit",
    .arguments = "MNT/.txn/NAME",
    .summary = "Commits an open transaction: all of it, or nothing",
    .help = "The same as `mkdir MNT/.txn/NAME/.commit`, but it says what stands against it, and refuses a transaction "
            "that is\n"
            "gone (where `mkdir -p` would begin an empty one and commit that).\n\n"
            "  t=$(mktemp -d -p MNT/.txn)\n"
            "  trap 'rmdir \"$t\" 2>/dev/null || :' EXIT\n"
            "  sh -ec 'cd \"$0\"; sort -u staged.tsv >> all.tsv; rm staged.tsv' \"$t\" && tblfs commit \"$t\"\n\n"
            "Exit status:\n"
            "  0    committed, durable, and the directory is gone\n"
            "  75   conflict: others changed what it changed; shown on stderr as lines of path, what it did, what "
            "happened\n"
            "       outside, and since when, with tabs between. It stays open, to be looked at and aborted\n"
            "  76   it had been aborted for you, and why; its directory stays until it is removed\n"
            "  1    anything else: no such transaction, not yours, files in it open for writing (they are shown)\n",
    .has_statuses = true,
    .run = commit_run,
};

static int abort_run(const struct tool *tool, int argc, char **argv)
{
    return close_run(tool, argc, argv, fusefs_abort_transaction);
}

const struct tool tool_abort = {
    .name = "abort",
    .arguments = "MNT/.txn/NAME",
    .summary = "Aborts a transaction: what was done in it is forgotten",
    .help = "The same as `rmdir MNT/.txn/NAME`, in one call whatever is in it, but it touches nothing that is not a "
            "transaction.\n\n"
            "  tblfs abort \"$t\"\n"
            "  find MNT/.txn -mindepth 1 -maxdepth 1 -mmin +60 -exec tblfs abort {} \\;   # not changed for an hour\n\n"
            "Exit status 0, or 1 when there is no such transaction or it is not yours.\n",
    .has_statuses = true,
    .run = abort_run,
};
