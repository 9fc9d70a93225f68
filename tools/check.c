/*
 * tools/check.c - `tblfs check`: looks at everything in a store that is not mounted, or asks the daemon of one that is.
 *
 * Findings go to stdout, a line each; what else is to say to stderr. A store that was not closed cleanly is opened for
 * writing, which replays its log, and closed.
 *
 * Locking: the main thread opens and checks while another one shows how far it is (base/progress.h).
 */
#include "base/progress.h"
#include "tools/tools.h"
#include "txn/store.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_FINDINGS 1
#define EXIT_CANNOT   2

/* ---- findings ---- */

struct findings {
    struct diag diag; /* first: emit gets back to it */
    _Atomic uint64_t count;
    bool quiet; /* an attempt whose failure is no finding */
};

static void emit_finding(struct diag *diag, enum diag_level level, const char *line)
{
    struct findings *findings = (struct findings *)diag;
    if (findings->quiet) {
        return;
    }
    if (level == DIAG_ERROR) {
        atomic_fetch_add(&findings->count, 1);
        printf("%s\n", line);
    } else {
        fprintf(stderr, "tblfs: %s\n", line);
    }
}

/* ---- progress ---- */

static void look_at_check(void *arg, struct progress_state *out_state)
{
    struct store *store = arg;
    out_state->what = "checking";
    store_check_progress(store, &out_state->done, &out_state->total);
}

static void show(struct progress *progress, progress_look_fn *look, void *arg)
{
    const struct progress_options options = {.out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = look, .arg = arg};
    progress_start(progress, &options);
}

/* ---- the check ---- */

static int open_as(const char *dir, struct findings *findings, bool read_only, struct store **out_store)
{
    struct store_progress opening = {.records = 0};
    struct progress progress;
    struct store_options options = {
        .dev = io_real_device(), .diag = &findings->diag, .dir = dir, .read_only = read_only, .progress = &opening};
    pid_t holder = 0;
    show(&progress, store_progress_look, &opening);
    findings->quiet = read_only; /* whether it is dirty is no finding; what a replay meets is */
    int rc = store_open(&options, out_store, &holder);
    findings->quiet = false;
    progress_stop(&progress);
    options.progress = NULL;
    if (rc == -EBUSY) {
        fprintf(stderr, "tblfs: %s is in use by process %ld: unmount it first\n", dir, (long)holder);
    } else if (rc != 0 && read_only && rc != -EROFS && rc != -ENODATA) {
        rc = store_open(&options, out_store, NULL); /* again, to be told what is wrong */
    }
    return rc;
}

/* Only what a check of a store that cannot be opened cleanly needs is written. */
static int open_store(const char *dir, struct findings *findings, struct store **out_store)
{
    int rc = open_as(dir, findings, true, out_store);
    if (rc == -EROFS) {
        fprintf(stderr, "tblfs: %s was not closed cleanly: its log is replayed first\n", dir);
        rc = open_as(dir, findings, false, out_store);
    }
    if (rc == -ENODATA) {
        fprintf(stderr, "tblfs: %s is not a tblfs data directory\n", dir);
    } else if (rc != 0 && rc != -EBUSY) {
        fprintf(stderr, "tblfs: cannot open %s: %s\n", dir, strerror(-rc));
    }
    return rc;
}

static int check_store(struct store *store)
{
    struct progress progress;
    show(&progress, look_at_check, store);
    int rc = store_check(store);
    progress_stop(&progress);
    const int close_rc = store_close(store);
    return rc == 0 ? close_rc : rc;
}

static int check_directory(const char *dir)
{
    struct findings findings = {.count = 0};
    struct store *store = NULL;
    diag_init_silent(&findings.diag);
    findings.diag.emit = emit_finding;
    findings.diag.max_level = DIAG_WARNING;
    int rc = open_store(dir, &findings, &store);
    if (rc == 0) {
        rc = check_store(store);
        if (rc != 0 && rc != -EIO) {
            fprintf(stderr, "tblfs: checking %s: %s\n", dir, strerror(-rc));
        }
    }
    const uint64_t count = atomic_load(&findings.count);
    if (rc == 0 && count == 0) {
        printf("%s: no damage found\n", dir);
        return 0;
    }
    if (count > 0) {
        printf("%s: %llu findings\n", dir, (unsigned long long)count);
    }
    return count > 0 || rc == -EIO ? EXIT_FINDINGS : EXIT_CANNOT;
}

/* The mounted daemon checks a fork of its tree; its table `check` has the findings. */
static int check_online(const char *mount_point)
{
    char path[PATH_MAX];
    char *line = NULL;
    size_t capacity = 0;
    unsigned long lines = 0;
    bool clean = false;
    (void)snprintf(path, sizeof path, "%s/.tblfs/check", mount_point);
    FILE *table = fopen(path, "re");
    if (table == NULL) {
        fprintf(stderr, "tblfs: %s: %s (is a store mounted there?)\n", path, strerror(errno));
        return EXIT_CANNOT;
    }
    while (getline(&line, &capacity, table) > 0) {
        if (lines++ > 0) { /* behind the names of its columns */
            clean = lines == 2 && strcmp(line, "no damage found\n") == 0;
            printf("%s: %s", mount_point, line);
        }
    }
    const bool failed = ferror(table) != 0 || lines < 2;
    free(line);
    fclose(table);
    return failed ? EXIT_CANNOT : clean ? 0 : EXIT_FINDINGS;
}

static int check_run(const struct tool *tool, int argc, char **argv)
{
    static const struct option options[] = {{"online", no_argument, NULL, 'o'}, {NULL, 0, NULL, 0}};
    bool online = false;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option != 'o') {
            return tool_unknown_option(tool, argv[optind - 1]);
        }
        online = true;
    }
    if (argc - optind != 1) {
        return tool_usage_error(tool, argc - optind < 1 ? "the directory is missing" : "too many arguments");
    }
    char *dir = realpath(argv[optind], NULL);
    if (dir == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", argv[optind], strerror(errno));
        return EXIT_CANNOT;
    }
    const int status = online ? check_online(dir) : check_directory(dir);
    free(dir);
    return status;
}

const struct tool tool_check = {
    .name = "check",
    .arguments = "DATADIR | --online MNT",
    .summary = "Checks every page and every name of a store",
    .help =
        "Each finding is a line that says which file, block and field. A store that was closed cleanly is only read;\n"
        "one that was not has its log replayed first, as by a mount. With --online the store that is mounted on MNT\n"
        "checks the tree as it is at that moment, while everybody goes on working; the free maps are left out.\n\n"
        "Exit status: 0 no damage, 1 findings, 2 it could not be checked (in use, not a store, wrong usage).\n",
    .examples = "  tblfs check ~/tables.data\n"
                "  tblfs check --online ~/tables\n",
    .has_statuses = true,
    .run = check_run,
};
