/*
 * fusefs/settings.h - what can be set: one table of names, kinds, defaults and meanings.
 *
 * The same names are used with -o (fusefs/options.c), in DATADIR/tblfs.conf (fusefs/conf.c) and in MNT/.tblfs/settings.
 * SETTING-1 What is given with -o counts before what tblfs.conf says, and that before the default. Nothing unknown is
 * accepted, and nothing is given twice in one place.
 *
 * Locking: none; a structure is changed before it is shared.
 */
#ifndef TBLFS_FUSEFS_SETTINGS_H
#define TBLFS_FUSEFS_SETTINGS_H

#include "fusefs/fusefs.h"

enum setting_source {
    SETTING_FROM_DEFAULT,
    SETTING_FROM_CONF,
    SETTING_FROM_OPTION,
};

struct setting;

/* NULL: there is none. A switch is found by its opposite as well; *out_off: that was it. */
const struct setting *setting_find(const char *name, bool *out_off);
/* Below FUSEFS_SETTINGS_MAX. */
size_t setting_index(const struct setting *setting);
bool setting_is_switch(const struct setting *setting);
/* The name that is most like it; NULL: none is. */
const char *setting_nearest(const char *name);
bool setting_is_given(const struct fusefs_options *options, const char *name);
enum setting_source setting_source(const struct fusefs_options *options, const struct setting *setting);

/* Sets it. `as` is its name as it was written, for messages. -EINVAL: `error` says what is wrong with the value; -ENOMEM. */
int setting_take(struct fusefs_options *options, const struct setting *setting, const char *as, const char *value,
                 enum setting_source source, char error[FUSEFS_ERROR_SIZE]) WARN_UNUSED;
void setting_switch(struct fusefs_options *options, const struct setting *setting, bool on, enum setting_source source);
bool setting_is_on(const struct fusefs_options *options, const struct setting *setting);

/* Writes `error`, returns -EINVAL. */
int setting_fail(char error[FUSEFS_ERROR_SIZE], const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
