/*
 * tools/copy.c - `tblfs copy`, `tblfs import` and `tblfs export`.
 *
 * import and export run `tblfs copy` in a transaction: the one commits what was copied into it, the other copies a tree that
 * does not change meanwhile.
 */
#include "fusefs/fusefs.h"
#include "tools/copy_tree.h"
#include "tools/tools.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SELF "/proc/self/exe"

static int say(const char *path, int error)
{
    fprintf(stderr, "tblfs: %s: %s\n", path, strerror(error));
    return TOOL_EXIT_FAILED;
}

/* 0, or an exit status. */
static int check_arguments(const struct tool *tool, int argc, char **argv)
{
    for (int index = 1; index < argc; index++) {
        if (argv[index][0] == '-')
            return tool_unknown_option(tool, argv[index]);
    }
    return argc < 3 ? tool_usage_error(tool, argc < 2 ? "what to copy is missing" : "the target is missing") : 0;
}

/* ---- copy ---- */

static int copy_run(const struct tool *tool, int argc, char **argv)
{
    struct copy_tree_result result;
    const int status = check_arguments(tool, argc, argv);
    if (status != 0)
        return status;
    const char *target = argv[argc - 1];
    argv[argc - 1] = NULL; /* ends the sources */
    if (copy_tree(argv + 1, (size_t)argc - 2, target, &result) != 0)
        return TOOL_EXIT_FAILED;
    printf("%s: %" PRIu64 " files, %" PRIu64 " directories, %" PRIu64 " bytes\n", target, result.files,
           result.directories, result.bytes);
    return 0;
}

const struct tool tool_copy = {
    .name = "copy",
    .arguments = "FILE|DIR... TARGET",
    .summary = "Copies like cp -a, and shows how far it is",
    .help =
        "Content with its holes, modes, times, extended attributes, owners (as root), symbolic and hard links. TARGET "
        "is a\n"
        "directory that gets them all, or the name of the only copy. What is there of the same name is written over.\n"
        "Ends with the first error. A name that begins with - is written ./-NAME.\n",
    .examples = "  tblfs copy ~/exports/2026 ~/tables/sales\n",
    .run = copy_run,
};

/* ---- in a transaction ---- */

struct words {
    char **words; /* argv of tblfs copy; words[0] and [1] are literals, the others are owned */
    size_t count;
};

static void words_free(struct words *words)
{
    for (size_t index = 2; index < words->count; index++)
        free(words->words[index]);
    free(words->words);
}

static int words_init(struct words *words, size_t count)
{
    static char self[] = SELF, copy[] = "copy";
    *words = (struct words){.words = calloc(count + 3, sizeof(char *)), .count = 2};
    if (words->words == NULL)
        return -ENOMEM;
    words->words[0] = self;
    words->words[1] = copy;
    return 0;
}

/* Takes over the word. */
static void words_add(struct words *words, char *word)
{
    words->words[words->count++] = word;
}

static int copy_in_transaction(const char *mount_point, const struct words *words)
{
    const struct fusefs_txn_options options = {.mount_point = mount_point, .command = words->words};
    return fusefs_run_transaction(&options);
}

/* As a path in the transaction: "." is its root. */
static char *relative(const char *rest)
{
    char *path = NULL;
    return asprintf(&path, "./%s", rest) < 0 ? NULL : path;
}

/* ---- import ---- */

static int add_sources(struct words *words, char **sources, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        char *path = realpath(sources[index], NULL);
        if (path == NULL)
            return say(sources[index], errno);
        words_add(words, path);
    }
    return 0;
}

static int import_run(const struct tool *tool, int argc, char **argv)
{
    struct words words;
    char *mount_point = NULL, *rest = NULL;
    int status = check_arguments(tool, argc, argv);
    if (status != 0)
        return status;
    if (words_init(&words, (size_t)argc) != 0)
        return say("import", ENOMEM);
    status = fusefs_split_path(argv[argc - 1], &mount_point, &rest);
    if (status == 0)
        status = add_sources(&words, argv + 1, (size_t)argc - 2);
    if (status == 0) {
        words_add(&words, relative(rest));
        status =
            words.words[words.count - 1] == NULL ? say("import", ENOMEM) : copy_in_transaction(mount_point, &words);
    }
    words_free(&words);
    free(mount_point);
    free(rest);
    return status;
}

const struct tool tool_import = {
    .name = "import",
    .arguments = "FILE|DIR... MNT/PATH",
    .summary = "Copies files and directories into a mount, all at once",
    .help = "In one transaction: others see all of it or nothing, and when it returns it is on disk. Copies as 'tblfs "
            "copy' does,\n"
            "and shows how far it is. (With 'tblfs txn' cp, tar and rsync do the same without that.)\n\n"
            "  tblfs import ~/exports/2026 MNT/sales\n\n"
            "Exit status: as of 'tblfs txn'; nothing was imported unless it is 0.\n",
    .has_statuses = true,
    .run = import_run,
};

/* ---- export ---- */

/* All of them on one mount. */
static int add_tables(struct words *words, char **paths, size_t count, char **inout_mount_point)
{
    for (size_t index = 0; index < count; index++) {
        char *mount_point = NULL, *rest = NULL;
        const int status = fusefs_split_path(paths[index], &mount_point, &rest);
        if (status != 0)
            return status;
        const bool other = *inout_mount_point != NULL && strcmp(*inout_mount_point, mount_point) != 0;
        char *path = relative(rest);
        free(rest);
        free(*inout_mount_point);
        *inout_mount_point = mount_point;
        if (path == NULL)
            return say(paths[index], ENOMEM);
        words_add(words, path);
        if (other)
            return say(paths[index], EXDEV);
    }
    return 0;
}

static int export_run(const struct tool *tool, int argc, char **argv)
{
    struct words words;
    char *mount_point = NULL, *here = NULL, *target = NULL;
    int status = check_arguments(tool, argc, argv);
    if (status != 0)
        return status;
    if (words_init(&words, (size_t)argc) != 0)
        return say("export", ENOMEM);
    status = add_tables(&words, argv + 1, (size_t)argc - 2, &mount_point);
    if (status == 0) {
        here = getcwd(NULL, 0); /* the copy is made elsewhere */
        const char *to = argv[argc - 1];
        if (here == NULL || asprintf(&target, "%s%s%s", to[0] == '/' ? "" : here, to[0] == '/' ? "" : "/", to) < 0)
            status = say(argv[argc - 1], errno);
    }
    if (status == 0) {
        words_add(&words, target);
        status = copy_in_transaction(mount_point, &words);
    }
    words_free(&words);
    free(mount_point);
    free(here);
    return status;
}

const struct tool tool_export = {
    .name = "export",
    .arguments = "MNT/PATH... TARGET",
    .summary = "Copies tables and directories out of a mount, as they are at one moment",
    .help = "Others go on writing: what is copied is the tree as it was when it began. Copies as 'tblfs copy' does, "
            "and shows how\n"
            "far it is.\n\n"
            "  tblfs export MNT/sales ~/exports/today\n",
    .run = export_run,
};
