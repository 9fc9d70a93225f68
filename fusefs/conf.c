/*
 * fusefs/conf.c - DATADIR/tblfs.conf: settings of a data directory, a line NAME = VALUE each. A '#' at the begin of a word begins a comment.
 *
 * Blanks around a name and a value do not count. Switches are yes or no. SETTING-1 in fusefs/settings.h.
 *
 * Locking: none.
 */
#include "fusefs/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conf {
    struct fusefs_options *options;
    bool given[FUSEFS_SETTINGS_MAX]; /* in this file */
    const char *path;
    unsigned line;
    char *error; /* FUSEFS_ERROR_SIZE */
};

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t size = strlen(text);
    while (size > 0 && isspace((unsigned char)text[size - 1]))
        text[--size] = '\0';
    return text;
}

/* Puts the place before what is wrong. */
static int fail_at(const struct conf *conf, const char *what)
{
    char copy[FUSEFS_ERROR_SIZE];
    (void)snprintf(copy, sizeof copy, "%s", what);
    return setting_fail(conf->error, "%s:%u: %s", conf->path, conf->line, copy);
}

static int fail_unknown(const struct conf *conf, const char *name)
{
    char what[FUSEFS_ERROR_SIZE];
    const char *nearest = setting_nearest(name);
    (void)snprintf(what, sizeof what, "%s: unknown setting%s%s; 'tblfs settings' lists them", name,
                   nearest == NULL ? "" : "; is it ", nearest == NULL ? "" : nearest);
    return fail_at(conf, what);
}

static int take_switch(const struct conf *conf, struct fusefs_options *options, const struct setting *setting, bool off,
                       const char *value)
{
    const bool yes = strcmp(value, "yes") == 0;
    if (!yes && strcmp(value, "no") != 0)
        return fail_at(conf, "a switch is yes or no");
    setting_switch(options, setting, yes != off, SETTING_FROM_CONF);
    return 0;
}

/* A value that -o overrides is read all the same: what is wrong in the file is found whatever else is given. */
static int take_value(const struct conf *conf, const struct setting *setting, bool off, const char *name,
                      const char *value)
{
    struct fusefs_options overridden;
    char error[FUSEFS_ERROR_SIZE] = "";
    fusefs_options_init(&overridden);
    struct fusefs_options *options =
        setting_source(conf->options, setting) == SETTING_FROM_OPTION ? &overridden : conf->options;
    int rc = setting_is_switch(setting) ? take_switch(conf, options, setting, off, value)
                                        : setting_take(options, setting, name, value, SETTING_FROM_CONF, error);
    if (rc == -EINVAL && error[0] != '\0')
        rc = fail_at(conf, error);
    fusefs_options_free(&overridden);
    return rc;
}

static void cut_comment(char *line)
{
    for (char *hash = strchr(line, '#'); hash != NULL; hash = strchr(hash + 1, '#')) {
        if (hash == line || isspace((unsigned char)hash[-1])) {
            *hash = '\0';
            return;
        }
    }
}

static int take_line(struct conf *conf, char *line)
{
    bool off = false;
    cut_comment(line);
    char *name = trim(line);
    if (name[0] == '\0')
        return 0;
    char *value = strchr(name, '=');
    if (value == NULL)
        return fail_at(conf, "not a line NAME = VALUE");
    *value++ = '\0';
    name = trim(name);
    const struct setting *setting = setting_find(name, &off);
    if (setting == NULL)
        return fail_unknown(conf, name);
    bool *given = &conf->given[setting_index(setting)];
    if (*given)
        return fail_at(conf, "given a second time");
    *given = true;
    return take_value(conf, setting, off, name, trim(value));
}

static int read_lines(struct conf *conf, FILE *file)
{
    char *line = NULL;
    size_t capacity = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &capacity, file) > 0) {
        conf->line++;
        rc = take_line(conf, line);
    }
    if (rc == 0 && ferror(file))
        rc = setting_fail(conf->error, "%s: cannot be read", conf->path);
    free(line);
    return rc;
}

int fusefs_options_read_conf(struct fusefs_options *options, char error[FUSEFS_ERROR_SIZE])
{
    char *path = NULL;
    if (asprintf(&path, "%s/tblfs.conf", options->data_dir) < 0)
        return -ENOMEM;
    struct conf conf = {.options = options, .path = path, .error = error};
    FILE *file = fopen(path, "re");
    int rc = 0;
    if (file != NULL) {
        rc = read_lines(&conf, file);
        (void)fclose(file);
    } else if (errno != ENOENT) {
        rc = setting_fail(error, "%s: %s", path, strerror(errno));
    }
    free(path);
    return rc;
}
