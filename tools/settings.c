/*
 * tools/settings.c - `tblfs settings`: what can be set, and what is set on a mount.
 */
#include "fusefs/fusefs.h"
#include "tools/listing.h"
#include "tools/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int say(const char *what, int error)
{
    fprintf(stderr, "tblfs: %s: %s\n", what, strerror(error));
    return TOOL_EXIT_FAILED;
}

/* The settings as they are without a mount: malloc'd text. */
static char *defaults(void)
{
    char *text = NULL;
    size_t size = 0;
    struct fusefs_options options;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    fusefs_options_init(&options);
    fprintf(out, "%s\n", FUSEFS_SETTINGS_COLUMNS);
    fusefs_settings_write(out, &options);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static int list_defaults(bool json)
{
    char *text = defaults();
    FILE *in = text == NULL ? NULL : fmemopen(text, strlen(text), "r");
    const int rc = in == NULL ? -ENOMEM : listing_write(in, json, stdout);
    if (in != NULL)
        (void)fclose(in);
    free(text);
    return rc == 0 ? 0 : say("settings", -rc);
}

static int settings_run(const struct tool *tool, int argc, char **argv)
{
    bool json = false;
    if (listing_take_switch(tool, argc, argv, &json) != 0)
        return TOOL_EXIT_USAGE;
    if (argc - optind > 1)
        return tool_usage_error(tool, "too many arguments");
    return argc == optind ? list_defaults(json) : listing_of_mount(argv[optind], "settings", json);
}

const struct tool tool_settings = {
    .name = "settings",
    .arguments = "[MNT] [--json]",
    .summary = "Lists what can be set: with defaults, units and what is allowed",
    .help = "With MNT the values are those of that mount, and `from` says who set them. A setting is given to 'tblfs "
            "mount'\n"
            "with -o, or stands in the file tblfs.conf in the data directory, a line each:\n\n"
            "  cache = 1G        # what is given with -o counts first\n"
            "  allow_other = yes\n\n"
            "  --json   as a JSON array of objects\n",
    .examples = "  tblfs settings\n"
                "  tblfs settings ~/tables --json\n",
    .run = settings_run,
};
