/*
 * tools/main.c - `tblfs`: finds the subcommand; help and version.
 */
#include "base/nearest.h"
#include "fusefs/fusefs.h"
#include "tools/tools.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct tool *const tools[] = {
    &tool_mkfs,    &tool_mount, &tool_umount,   &tool_txn,     &tool_commit,  &tool_abort,   &tool_snapshot,
    &tool_compact, &tool_fsm,   &tool_backup,   &tool_verify,  &tool_restore, &tool_standby, &tool_promote,
    &tool_check,   &tool_dump,  &tool_upgrade,  &tool_copy,    &tool_import,  &tool_export,  &tool_show,
    &tool_status,  &tool_top,   &tool_settings, &tool_version, &tool_help,
};

const struct tool *tool_find(const char *name)
{
    for (size_t index = 0; index < ARRAY_COUNT(tools); index++) {
        if (strcmp(tools[index]->name, name) == 0)
            return tools[index];
    }
    return NULL;
}

static const char *name_at(size_t index)
{
    return index < ARRAY_COUNT(tools) ? tools[index]->name : NULL;
}

/* Says that there is no such command, and which one may have been meant. */
static void say_unknown(const char *name)
{
    const char *nearest = nearest_word(name, name_at);
    fprintf(stderr, "tblfs: there is no command '%s'", name);
    if (nearest != NULL)
        fprintf(stderr, " (is it %s?)", nearest);
    fprintf(stderr, "; 'tblfs help' lists them\n");
}

int tool_usage_error(const struct tool *tool, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "tblfs %s: ", tool->name);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\nUsage: tblfs %s %s\n'tblfs help %s' says more.\n", tool->name, tool->arguments, tool->name);
    return TOOL_EXIT_USAGE;
}

char *tool_absolute_path(const char *path)
{
    char *text = NULL;
    if (path[0] == '/')
        return strdup(path);
    char *here = getcwd(NULL, 0);
    if (here == NULL)
        return NULL;
    if (asprintf(&text, "%s/%s", here, path) < 0)
        text = NULL;
    free(here);
    return text;
}

static void print_overview(FILE *out)
{
    fprintf(out, "tblfs - a table filesystem: every table is a file whose lines are its rows\n\n"
                 "Usage: tblfs COMMAND ...\n\n");
    for (size_t index = 0; index < ARRAY_COUNT(tools); index++)
        fprintf(out, "  %-9s %s\n", tools[index]->name, tools[index]->summary);
    fprintf(out, "\nTo begin:\n\n"
                 "  tblfs mount ~/tables.data ~/tables --create   # makes the store, mounts it\n"
                 "  echo 'first row' >> ~/tables/table.tsv\n"
                 "  tblfs umount ~/tables                         # returns when all is on disk\n\n"
                 "'tblfs help COMMAND' says more about each.\n");
}

static void print_help(const struct tool *tool)
{
    printf("Usage: tblfs %s%s%s\n\n%s.\n", tool->name, tool->arguments[0] == '\0' ? "" : " ", tool->arguments,
           tool->summary);
    if (tool->help != NULL)
        printf("\n%s", tool->help);
    if (tool->more_help != NULL) {
        printf("\n");
        tool->more_help(stdout);
    }
    if (tool->examples != NULL)
        printf("\nExamples:\n\n%s", tool->examples);
    if (!tool->has_statuses)
        printf("\nExit status: 0 done, 1 refused or failed (and why is said), 2 wrong usage.\n");
}

static int help_run(const struct tool *tool, int argc, char **argv)
{
    if (argc > 2)
        return tool_usage_error(tool, "too many arguments");
    if (argc < 2) {
        print_overview(stdout);
        return 0;
    }
    const struct tool *about = tool_find(argv[1]);
    if (about == NULL) {
        say_unknown(argv[1]);
        return TOOL_EXIT_USAGE;
    }
    print_help(about);
    return 0;
}

const struct tool tool_help = {
    .name = "help",
    .arguments = "[COMMAND]",
    .summary = "Explains tblfs, or one of its commands",
    .examples = "  tblfs help\n"
                "  tblfs help txn\n",
    .run = help_run,
};

static int version_run(const struct tool *tool, int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return tool_usage_error(tool, "takes no arguments");
    printf("tblfs %s\n", FUSEFS_VERSION);
    return 0;
}

const struct tool tool_version = {
    .name = "version",
    .arguments = "",
    .summary = "Prints the version",
    .examples = "  tblfs version\n",
    .run = version_run,
};

static bool is_one_of(const char *word, const char *one, const char *other)
{
    return strcmp(word, one) == 0 || strcmp(word, other) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return TOOL_EXIT_USAGE;
    }
    if (is_one_of(argv[1], "-h", "--help"))
        return tool_help.run(&tool_help, 1, argv + 1);
    if (is_one_of(argv[1], "-V", "--version"))
        return tool_version.run(&tool_version, 1, argv + 1);
    const struct tool *tool = tool_find(argv[1]);
    if (tool == NULL) {
        say_unknown(argv[1]);
        return TOOL_EXIT_USAGE;
    }
    if (argc == 3 && is_one_of(argv[2], "-h", "--help")) {
        print_help(tool);
        return 0;
    }
    return tool->run(tool, argc - 1, argv + 1);
}
