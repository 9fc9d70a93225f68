/*
 * tools/show.c - `tblfs show`: any table of MNT/.tblfs, for people or as JSON.
 */
#include "base/nearest.h"
#include "tools/listing.h"
#include "tools/tools.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* All but those that are no lines of columns. */
static int is_listed(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, "backup") != 0 && strcmp(entry->d_name, "metrics") != 0;
}

struct names {
    struct dirent **entries;
    int count;
};

static int names_read(const char *mount_point, struct names *out_names)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/.tblfs", mount_point);
    out_names->count = scandir(path, &out_names->entries, is_listed, alphasort);
    if (out_names->count >= 0)
        return 0;
    fprintf(stderr, "tblfs: %s: %s%s\n", path, strerror(errno), errno == ENOENT ? " (is a store mounted there?)" : "");
    return TOOL_EXIT_FAILED;
}

static void names_free(struct names *names)
{
    for (int index = 0; index < names->count; index++)
        free(names->entries[index]);
    free(names->entries);
}

static const char *nearest_name(const struct names *names, const char *name)
{
    const char **list = calloc((size_t)names->count + 1, sizeof list[0]);
    if (list == NULL)
        return NULL;
    for (int index = 0; index < names->count; index++)
        list[index] = names->entries[index]->d_name;
    const char *nearest = nearest_of(name, list);
    free(list);
    return nearest;
}

static bool has_name(const struct names *names, const char *name)
{
    for (int index = 0; index < names->count; index++) {
        if (strcmp(names->entries[index]->d_name, name) == 0)
            return true;
    }
    return false;
}

static int write_names(const struct names *names, FILE *list, bool json)
{
    fprintf(list, "table\n");
    for (int index = 0; index < names->count; index++)
        fprintf(list, "%s\n", names->entries[index]->d_name);
    rewind(list);
    return listing_write(list, json, stdout);
}

static int list_names(const struct names *names, bool json)
{
    FILE *list = tmpfile();
    const int rc = list == NULL ? -errno : write_names(names, list, json);
    if (list != NULL)
        (void)fclose(list);
    if (rc != 0)
        fprintf(stderr, "tblfs: %s\n", strerror(-rc));
    return rc == 0 ? 0 : TOOL_EXIT_FAILED;
}

static int show(const char *mount_point, const char *name, bool json)
{
    struct names names;
    int status = names_read(mount_point, &names);
    if (status != 0)
        return status;
    if (name == NULL) {
        status = list_names(&names, json);
    } else if (has_name(&names, name)) {
        status = listing_of_mount(mount_point, name, json);
    } else {
        const char *nearest = nearest_name(&names, name);
        fprintf(stderr, "tblfs: there is no table '%s'%s%s%s; 'tblfs show %s' lists them\n", name,
                nearest != NULL ? " (is it " : "", nearest != NULL ? nearest : "", nearest != NULL ? "?)" : "",
                mount_point);
        status = TOOL_EXIT_FAILED;
    }
    names_free(&names);
    return status;
}

static int show_run(const struct tool *tool, int argc, char **argv)
{
    bool json = false;
    if (listing_take_switch(tool, argc, argv, &json) != 0)
        return TOOL_EXIT_USAGE;
    if (argc - optind < 1 || argc - optind > 2)
        return tool_usage_error(tool, argc - optind < 1 ? "the mount point is missing" : "too many arguments");
    return show(argv[optind], argc - optind == 2 ? argv[optind + 1] : NULL, json);
}

const struct tool tool_show = {
    .name = "show",
    .arguments = "MNT [TABLE] [--json]",
    .summary = "Shows a table of MNT/.tblfs, or which there are",
    .help =
        "In columns below each other, or for programs. tblfs-tables(5) says what is in each; awk, sort and join can "
        "read them\n"
        "as they are.\n\n"
        "  --json   as a JSON array of objects\n",
    .examples = "  tblfs show ~/tables\n"
                "  tblfs show ~/tables checkpoints\n"
                "  tblfs show ~/tables transactions --json | jq '.[] | select(.log_bytes > 1e9) | .name'\n",
    .run = show_run,
};
