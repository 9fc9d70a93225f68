/*
 * tools/backup.c - `tblfs backup` and `tblfs verify`.
 */
#include "base/io.h"
#include "base/progress.h"
#include "fusefs/fusefs.h"
#include "tools/base_input.h"
#include "tools/tools.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_FINDINGS 1
#define EXIT_CANNOT   2

/* ---- backup ---- */

/* Bytes a second, with K, M or G. 0: it is none. */
static uint64_t parse_rate(const char *text)
{
    static const char units[] = "KMG";
    char *end = NULL;
    errno = 0;
    const unsigned long long count = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, toupper((unsigned char)*end)) : NULL;
    const unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    const bool good = errno == 0 && isdigit((unsigned char)text[0]) && count > 0 && count < UINT64_MAX >> 34 &&
                      (*end == '\0' || (unit != NULL && end[1] == '\0'));
    return good ? (uint64_t)count << shift : 0;
}

static int backup_run(const struct tool *tool, int argc, char **argv)
{
    static const struct option long_options[] = {{"rate", required_argument, NULL, 'r'}, {NULL, 0, NULL, 0}};
    struct fusefs_backup_options options = {.rate_bytes = 0};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", long_options, NULL)) != -1;) {
        if (option == ':')
            return tool_usage_error(tool, "--rate needs a value");
        if (option != 'r')
            return tool_unknown_option(tool, argv[optind - 1]);
        options.rate_bytes = parse_rate(optarg);
        if (options.rate_bytes == 0)
            return tool_usage_error(tool, "--rate %s: not a number of bytes a second, as in --rate 50M", optarg);
    }
    if (argc - optind != 2)
        return tool_usage_error(tool, argc - optind < 1   ? "mount point and destination are missing"
                                      : argc - optind < 2 ? "the destination is missing"
                                                          : "too many arguments");
    options.mount_point = argv[optind];
    options.destination = argv[optind + 1];
    return fusefs_backup(&options);
}

const struct tool tool_backup = {
    .name = "backup",
    .arguments = "MNT DEST|- [--rate BYTES]",
    .summary = "Copies a base of the mounted store, while it is in use",
    .help = "DEST is a directory, made or empty; - writes a stream in tar's format to stdout. The base is the store as "
            "of one\n"
            "checkpoint that is taken first, consistent by itself, snapshots included. Nobody waits for it; what is "
            "changed or\n"
            "removed meanwhile keeps its space until it is done or was cancelled. Run it where DATADIR is, as root or "
            "as who\n"
            "mounted it.\n\n"
            "  --rate BYTES   copy at most so many bytes a second (K, M and G are understood)\n\n"
            "  tblfs backup MNT /backup/monday\n"
            "  tblfs backup MNT - | zstd > /backup/monday.tar.zst\n"
            "  tblfs verify /backup/monday\n"
            "  tblfs restore /backup/monday NEW-DATADIR --archive /backup/log --until '2026-03-01 12:00'\n",
    .run = backup_run,
};

/* ---- verify ---- */

static void emit_finding(struct diag *diag, enum diag_level level, const char *line)
{
    (void)diag;
    (void)level;
    printf("%s\n", line);
}

static void look(void *arg, struct progress_state *out_state)
{
    const struct base_progress *progress = arg;
    out_state->what = "verifying";
    out_state->total = atomic_load(&progress->total_bytes);
    out_state->done = atomic_load(&progress->done_bytes);
}

static int verify(const char *path)
{
    struct base_input input;
    struct base_header header;
    struct progress progress;
    struct base_progress counts = {.done_bytes = 0};
    struct diag diag;
    diag_init_silent(&diag);
    diag.emit = emit_finding;
    diag.max_level = DIAG_WARNING;
    int rc = base_input_open(&input, path);
    if (rc != 0) {
        fprintf(stderr, "tblfs: %s: %s\n", path, strerror(-rc));
        return EXIT_CANNOT;
    }
    const struct progress_options show = {.out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = look, .arg = &counts};
    const struct base_read_options options = {
        .source = &input.source, .diag = &diag, .name = path, .progress = &counts};
    progress_start(&progress, &show);
    rc = base_read(&options, &header);
    progress_stop(&progress);
    base_input_close(&input);
    if (rc == 0)
        printf("%s: as it was made\n", path);
    else if (rc != -EIO && rc != -ENODATA)
        fprintf(stderr, "tblfs: %s: %s\n", path, strerror(-rc));
    return rc == 0 ? 0 : rc == -EIO ? EXIT_FINDINGS : EXIT_CANNOT;
}

static int verify_run(const struct tool *tool, int argc, char **argv)
{
    opterr = 0;
    if (getopt(argc, argv, "") != -1)
        return tool_unknown_option(tool, argv[optind - 1]);
    if (argc - optind != 1)
        return tool_usage_error(tool, argc == optind ? "the base is missing" : "too many arguments");
    return verify(argv[optind]);
}

const struct tool tool_verify = {
    .name = "verify",
    .arguments = "BASE|-",
    .summary = "Compares every byte of a base with its manifest",
    .help = "BASE is a directory or a tar file that `tblfs backup` made, - reads such a stream from stdin. Each "
            "finding is a line\n"
            "that names the file: one that is missing, too many, cut or changed.\n\n"
            "  zstd -dc /backup/monday.tar.zst | tblfs verify -\n\n"
            "Exit status: 0 nothing found, 1 findings, 2 it is no base, or cannot be read.\n",
    .examples = "  tblfs verify /backup/monday\n",
    .has_statuses = true,
    .run = verify_run,
};
