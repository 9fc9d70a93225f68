/*
 * tools/dump.c - `tblfs dump`: prints what lies in a data directory.
 */
#include "tools/tools.h"
#include "txn/dump.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_line(void *arg, const char *line)
{
    (void)arg;
    (void)puts(line);
}

static bool parse_number(const char *text, uint64_t max, uint64_t *out_value)
{
    char *end = NULL;
    /* a relation's number as its file is named */
    const int base = strlen(text) == 16 ? 16 : 0;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, base);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value > max) {
        return false;
    }
    *out_value = value;
    return true;
}

static int run_control(const struct dump_options *options, char **arguments)
{
    (void)arguments;
    return dump_control(options);
}

static int run_log(const struct dump_options *options, char **arguments)
{
    (void)arguments;
    return dump_log(options);
}

static int run_catalog(const struct dump_options *options, char **arguments)
{
    (void)arguments;
    return dump_catalog(options);
}

static int run_table(const struct dump_options *options, char **arguments)
{
    return dump_table(options, arguments[0]);
}

static int run_page(const struct dump_options *options, char **arguments)
{
    uint64_t rel = 0, block = 0;
    if (!parse_number(arguments[0], UINT64_MAX, &rel) || !parse_number(arguments[1], UINT32_MAX - 1, &block)) {
        fprintf(stderr, "tblfs: '%s' and '%s': not the number of a relation and of a block\n", arguments[0],
                arguments[1]);
        return -EINVAL;
    }
    return dump_page(options, rel, (block_no)block);
}

static int run_sidecar(const struct dump_options *options, char **arguments)
{
    uint64_t rel = 0;
    if (!parse_number(arguments[0], UINT64_MAX, &rel)) {
        fprintf(stderr, "tblfs: '%s': not the number of a relation\n", arguments[0]);
        return -EINVAL;
    }
    return dump_sidecar(options, rel);
}

struct subject {
    const char *name;
    int arguments;
    int (*run)(const struct dump_options *options, char **arguments);
};

static const struct subject subjects[] = {
    {"control", 0, run_control}, {"log", 0, run_log},   {"catalog", 0, run_catalog},
    {"table", 1, run_table},     {"page", 2, run_page}, {"sidecar", 1, run_sidecar},
};

static const struct subject *find_subject(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(subjects); i++) {
        if (strcmp(subjects[i].name, name) == 0) {
            return &subjects[i];
        }
    }
    return NULL;
}

static int dump_subject(const struct subject *subject, const char *dir, char **arguments)
{
    char *real = realpath(dir, NULL);
    if (real == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", dir, strerror(errno));
        return TOOL_EXIT_FAILED;
    }
    const struct dump_options options = {.dev = io_real_device(), .dir = real, .line = print_line};
    const int rc = subject->run(&options, arguments);
    if (rc != 0 && rc != -EIO && rc != -ENODATA && rc != -ENOENT && rc != -EINVAL) {
        fprintf(stderr, "tblfs: %s: %s\n", real, strerror(-rc));
    }
    free(real);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "tblfs: writing: %s\n", strerror(errno));
        return TOOL_EXIT_FAILED;
    }
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

static int dump_run(const struct tool *tool, int argc, char **argv)
{
    opterr = 0;
    if (getopt(argc, argv, "") != -1) {
        return tool_unknown_option(tool, argv[optind - 1]);
    }
    const int count = argc - optind;
    if (count < 2) {
        return tool_usage_error(tool, count < 1 ? "the data directory is missing" : "what to print is missing");
    }
    const struct subject *subject = find_subject(argv[optind + 1]);
    if (subject == NULL) {
        return tool_usage_error(tool, "there is no '%s' to print", argv[optind + 1]);
    }
    if (count - 2 != subject->arguments) {
        return tool_usage_error(tool, "%s takes %d more arguments", subject->name, subject->arguments);
    }
    return dump_subject(subject, argv[optind], argv + optind + 2);
}

const struct tool tool_dump = {
    .name = "dump",
    .arguments = "DATADIR control|log|catalog|table PATH|page RELATION BLOCK|sidecar RELATION",
    .summary = "Prints what lies in a data directory, field by field",
    .help =
        "Reads the files only: takes no lock, changes nothing, and works on a store that is damaged or was not closed\n"
        "cleanly. docs/FORMAT.md explains every field.\n\n"
        "  control              both copies of both control slots\n"
        "  log                  every batch and record of the log, and where it ends\n"
        "  catalog              every page and item of the last checkpoint's catalog\n"
        "  table PATH           the inode of a path below the mount point, and the pages of its content\n"
        "  page RELATION BLOCK  one block; RELATION is a number, or the 16 digits that name its file\n"
        "  sidecar RELATION     the free map that a clean close left beside the file of a large table\n\n"
        "Lines that begin with '!' tell of damage. The exit status is 1 if there is one, else 0.\n",
    .examples = "  tblfs dump ~/tables.data control\n"
                "  tblfs dump ~/tables.data table sales/orders.tsv\n"
                "  tblfs dump ~/tables.data page 1 0\n",
    .has_statuses = true,
    .run = dump_run,
};
