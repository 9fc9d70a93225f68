/*
 * fusefs/options.c - the list given with -o.
 *
 * Its names are those of settings (fusefs/settings.h). Options that mount(8), fstab and systemd hand to every filesystem
 * and that mean nothing here are in a list of their own, and are dropped.
 *
 * Locking: none, nothing is shared.
 */
#include "fusefs/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Given to every filesystem by mount(8), fstab and systemd. Ours is always nosuid, nodev and without access times. */
static bool is_noise(const char *name, const char *value)
{
    static const char *const words[] = {
        "defaults",    "auto",
        "noauto",      "nofail",
        "fail",        "_netdev",
        "_rnetdev",    "user",
        "nouser",      "users",
        "owner",       "group",
        "atime",       "noatime",
        "diratime",    "nodiratime",
        "relatime",    "norelatime",
        "strictatime", "nostrictatime",
        "lazytime",    "nolazytime",
        "suid",        "nosuid",
        "dev",         "nodev",
        "dirsync",     "silent",
        "loud",        "mand",
        "nomand",      "iversion",
        "noiversion",  "default_permissions",
        "nonempty",    "comment",
        "helper",      "uhelper",
        "nobootwait",
    };
    if (strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0)
        return true;
    if (strcmp(name, "subtype") == 0)
        return value != NULL && strcmp(value, "tblfs") == 0;
    for (size_t index = 0; index < ARRAY_COUNT(words); index++) {
        if (strcmp(name, words[index]) == 0)
            return true;
    }
    return false;
}

static int fail_unknown(const char *name, char error[FUSEFS_ERROR_SIZE])
{
    const char *nearest = setting_nearest(name);
    if (strcmp(name, "remount") == 0)
        return setting_fail(error, "remount: not supported; unmount, and mount again with other options");
    if (strcmp(name, "fsname") == 0 || strcmp(name, "subtype") == 0)
        return setting_fail(error, "%s: is set by tblfs itself", name);
    return setting_fail(error, "%s: unknown option%s%s; 'tblfs help mount' lists them", name,
                        nearest == NULL ? "" : "; is it ", nearest == NULL ? "" : nearest);
}

static int take_switch(struct fusefs_options *options, const struct setting *setting, const char *name, bool on,
                       char error[FUSEFS_ERROR_SIZE])
{
    const bool again = setting_source(options, setting) == SETTING_FROM_OPTION;
    if (again && setting_is_on(options, setting) != on)
        return setting_fail(error, "%s: given together with its opposite", name);
    if (again)
        return setting_fail(error, "%s: given twice", name);
    setting_switch(options, setting, on, SETTING_FROM_OPTION);
    return 0;
}

/* One option; text is changed. */
static int option_take(struct fusefs_options *options, char *name, char error[FUSEFS_ERROR_SIZE])
{
    bool off = false;
    char *value = strchr(name, '=');
    if (value != NULL)
        *value++ = '\0';
    const struct setting *setting = setting_find(name, &off);
    if (setting == NULL)
        return is_noise(name, value) ? 0 : fail_unknown(name, error);
    if (setting_is_switch(setting))
        return value != NULL ? setting_fail(error, "%s=%s: takes no value", name, value)
                             : take_switch(options, setting, name, !off, error);
    if (value == NULL)
        return setting_fail(error, "%s: needs a value, as in %s=...", name, name);
    if (setting_source(options, setting) == SETTING_FROM_OPTION)
        return setting_fail(error, "%s: given twice", name);
    return setting_take(options, setting, name, value, SETTING_FROM_OPTION, error);
}

/* Copies the option at `list` into `word`, without the backslashes; returns what follows its comma, or its end. */
static const char *next_word(const char *list, char *word)
{
    while (*list != '\0' && *list != ',') {
        if (*list == '\\' && list[1] != '\0')
            list++;
        *word++ = *list++;
    }
    *word = '\0';
    return *list == ',' ? list + 1 : list;
}

int fusefs_options_parse(struct fusefs_options *options, const char *list, char error[FUSEFS_ERROR_SIZE])
{
    char *word = malloc(strlen(list) + 1);
    if (word == NULL)
        return -ENOMEM;
    int rc = 0;
    while (rc == 0 && *list != '\0') {
        list = next_word(list, word);
        if (word[0] != '\0')
            rc = option_take(options, word, error);
    }
    free(word);
    return rc;
}
