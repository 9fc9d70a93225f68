/*
 * fusefs/settings.c - see the header.
 *
 * A new setting is a line of `settings` and a member of struct fusefs_options.
 */
#include "fusefs/settings.h"

#include "base/nearest.h"
#include "txn/store.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB  (UINT64_C(1) << 10)
#define MIB  (UINT64_C(1) << 20)
#define TIB  (UINT64_C(1) << 40)
#define DAYS (UINT64_C(86400))

enum setting_kind {
    SETTING_SIZE,   /* bytes; K, M, G and T are understood */
    SETTING_NUMBER, /* digits */
    SETTING_TIME,   /* seconds; s, m, h and d are understood */
    SETTING_MODE,   /* octal */
    SETTING_TEXT,   /* char *, owned */
    SETTING_CHOICE, /* one of some words: its place among them */
    SETTING_SWITCH, /* bool */
};

/* Where there is no limit, or none that a person sets: written so, instead of 0. */
struct setting {
    const char *name;
    enum setting_kind kind;
    size_t member;    /* of struct fusefs_options: uint64_t, char * or bool */
    const char *off;  /* switches: the name that switches it off, or NULL */
    const char *unit; /* choices: the words, with | between */
    const char *zero; /* what the value 0 is written as, when that is allowed although it is below min; else NULL */
    uint64_t otherwise, min, max;
    const char *meaning;
};

#define MEMBER(name) offsetof(struct fusefs_options, name)

static const struct setting settings[] = {
    {"cache", SETTING_SIZE, MEMBER(cache_size_bytes), NULL, "bytes", NULL, 256 * MIB, MIB, TIB,
     "page cache; at least 16M is used"},
    {"checkpoint_interval", SETTING_TIME, MEMBER(checkpoint_interval_s), NULL, "seconds", NULL, 60, 1, DAYS,
     "time between checkpoints: a start after a crash replays what was written since the last one"},
    {"checkpoint_log_size", SETTING_SIZE, MEMBER(checkpoint_log_bytes), NULL, "bytes", NULL, 256 * MIB, MIB, TIB,
     "a checkpoint comes earlier when that much was logged since the last one"},
    {"fsm_threshold", SETTING_NUMBER, MEMBER(fsm_threshold), NULL, "blocks", NULL, STORE_FSM_THRESHOLD, 0,
     STORE_FSM_THRESHOLD_MAX,
     "larger tables keep their free map in a file beside their own (default as 'tblfs mkfs' was told)"},
    {"max_threads", SETTING_NUMBER, MEMBER(max_threads), NULL, "threads", "auto", 0, 1, 1024,
     "threads that serve requests; auto: 16, or 4 for each CPU if that is more"},
    {"snap_mode", SETTING_MODE, MEMBER(snap_mode), NULL, "octal", NULL, 0755, 0, 07777,
     "mode of MNT/.snap and MNT/.tablespace: who may write there may take and drop snapshots, make and drop "
     "tablespaces"},
    {"txn_max_age", SETTING_TIME, MEMBER(txn_max_age_s), NULL, "seconds", "none", 0, 1, 366 * DAYS,
     "abort a transaction that was begun longer ago"},
    {"txn_max_bytes", SETTING_SIZE, MEMBER(txn_max_bytes), NULL, "bytes", "none", 0, MIB, TIB,
     "abort a transaction that has more than that in blocks of its own"},
    {"drop", SETTING_CHOICE, MEMBER(drop), NULL, "any|txn", NULL, FUSEFS_DROP_ANY, 0, 1,
     "txn: tables with rows are removed, replaced by a rename, and cut to nothing in transactions only"},
    {"missing_tablespace", SETTING_CHOICE, MEMBER(missing_tablespace), NULL, "refuse|offline", NULL,
     FUSEFS_MISSING_REFUSE, 0, 1,
     "a tablespace whose directory is missing when the store is mounted: refuse, or let its tables answer with an I/O "
     "error"},
    {"archive", SETTING_TEXT, MEMBER(archive_dir), NULL, "directory", NULL, 0, 0, 0,
     "keep every finished segment of the log there: with a base of 'tblfs backup' they bring back any moment since"},
    {"archive_command", SETTING_TEXT, MEMBER(archive_command), NULL, "command", NULL, 0, 0, 0,
     "run for each of them instead: %p is its path, %f the name to keep it under; status 0 says that it is safe"},
    {"archive_timeout", SETTING_TIME, MEMBER(archive_timeout_s), NULL, "seconds", NULL, 60, 1, DAYS,
     "a segment that is not full goes there too when something has waited in it for so long"},
    {"log", SETTING_TEXT, MEMBER(log_path), NULL, "file", NULL, 0, 0, 0,
     "file for the daemon's messages; not set: syslog, with -f stderr"},
    {"allow_other", SETTING_SWITCH, MEMBER(allow_other), NULL, "switch", NULL, 0, 0, 1,
     "let other users in too (the files' modes are checked)"},
    {"ro", SETTING_SWITCH, MEMBER(read_only), "rw", "switch", NULL, 0, 0, 1, "read-only"},
    {"sync", SETTING_SWITCH, MEMBER(synchronous), "async", "switch", NULL, 0, 0, 1,
     "make every write durable before it returns"},
    {"noexec", SETTING_SWITCH, MEMBER(no_exec), "exec", "switch", NULL, 0, 0, 1, "let no program on it run"},
    {"nocompact", SETTING_SWITCH, MEMBER(no_compact), "compact", "switch", NULL, 0, 0, 1,
     "leave tables as they are that lie scattered or half empty in their files; else they are compacted when it is "
     "quiet"},
    {"debug", SETTING_SWITCH, MEMBER(debug), NULL, "switch", NULL, 0, 0, 1, "log more"},
};
_Static_assert(ARRAY_COUNT(settings) <= FUSEFS_SETTINGS_MAX, "struct fusefs_options has room for each one's source");

/* ---- members ---- */

static void *member_of(struct fusefs_options *options, const struct setting *setting)
{
    return (char *)options + setting->member;
}

static uint64_t number_of(const struct fusefs_options *options, const struct setting *setting)
{
    uint64_t number;
    memcpy(&number, (const char *)options + setting->member, sizeof number);
    return number;
}

static const char *text_of(const struct fusefs_options *options, const struct setting *setting)
{
    const char *text;
    memcpy(&text, (const char *)options + setting->member, sizeof text);
    return text;
}

bool setting_is_on(const struct fusefs_options *options, const struct setting *setting)
{
    bool on;
    memcpy(&on, (const char *)options + setting->member, sizeof on);
    return on;
}

static void set_number(struct fusefs_options *options, const struct setting *setting, uint64_t number)
{
    memcpy(member_of(options, setting), &number, sizeof number);
}

size_t setting_index(const struct setting *setting)
{
    return (size_t)(setting - settings);
}

static void set_source(struct fusefs_options *options, const struct setting *setting, enum setting_source source)
{
    options->sources[setting_index(setting)] = (uint8_t)source;
}

enum setting_source setting_source(const struct fusefs_options *options, const struct setting *setting)
{
    return (enum setting_source)options->sources[setting_index(setting)];
}

void fusefs_options_init(struct fusefs_options *options)
{
    *options = (struct fusefs_options){.data_dir = NULL};
    for (size_t index = 0; index < ARRAY_COUNT(settings); index++) {
        if (settings[index].kind != SETTING_TEXT && settings[index].kind != SETTING_SWITCH)
            set_number(options, &settings[index], settings[index].otherwise);
    }
}

static void free_texts(struct fusefs_options *options)
{
    for (size_t index = 0; index < ARRAY_COUNT(settings); index++) {
        if (settings[index].kind == SETTING_TEXT)
            free(*(char **)member_of(options, &settings[index]));
    }
}

void fusefs_options_free(struct fusefs_options *options)
{
    free_texts(options);
    free(options->data_dir);
    free(options->mount_point);
    free(options->follow_dir);
    free(options->follow_command);
    fusefs_options_init(options);
}

static int copy_text(char **text)
{
    if (*text != NULL)
        *text = strdup(*text);
    return *text != NULL ? 0 : -ENOMEM;
}

int fusefs_options_copy(const struct fusefs_options *from, struct fusefs_options *out_options)
{
    int rc = 0;
    *out_options = *from;
    for (size_t index = 0; index < ARRAY_COUNT(settings); index++) {
        char **text = settings[index].kind == SETTING_TEXT ? member_of(out_options, &settings[index]) : NULL;
        if (text != NULL && *text != NULL && copy_text(text) != 0)
            rc = -ENOMEM;
    }
    char **const others[] = {&out_options->follow_dir, &out_options->follow_command};
    for (size_t index = 0; index < ARRAY_COUNT(others); index++) {
        if (*others[index] != NULL && copy_text(others[index]) != 0)
            rc = -ENOMEM;
    }
    if (copy_text(&out_options->data_dir) != 0 || copy_text(&out_options->mount_point) != 0)
        rc = -ENOMEM;
    if (rc != 0)
        fusefs_options_free(out_options);
    return rc;
}

/* ---- finding ---- */

const struct setting *setting_find(const char *name, bool *out_off)
{
    for (size_t index = 0; index < ARRAY_COUNT(settings); index++) {
        const struct setting *setting = &settings[index];
        *out_off = setting->off != NULL && strcmp(setting->off, name) == 0;
        if (*out_off || strcmp(setting->name, name) == 0)
            return setting;
    }
    return NULL;
}

bool setting_is_switch(const struct setting *setting)
{
    return setting->kind == SETTING_SWITCH;
}

bool setting_is_given(const struct fusefs_options *options, const char *name)
{
    bool off = false;
    return setting_source(options, setting_find(name, &off)) != SETTING_FROM_DEFAULT;
}

static const char *name_at(size_t index)
{
    return index < ARRAY_COUNT(settings) ? settings[index].name : NULL;
}

const char *setting_nearest(const char *name)
{
    return nearest_word(name, name_at);
}

/* ---- reading a value ---- */

int setting_fail(char error[FUSEFS_ERROR_SIZE], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(error, FUSEFS_ERROR_SIZE, fmt, args);
    va_end(args);
    return -EINVAL;
}

/* Reads digits only (no sign, no blanks); *out_rest is what follows. False: none, or more than 64 bits. */
static bool read_digits(const char *text, uint64_t *out_value, const char **out_rest)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    *out_value = value;
    *out_rest = end;
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* 0: not a unit. */
static uint64_t factor_of(const char *name, const struct unit *units, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        if (strcasecmp(units[index].name, name) == 0)
            return units[index].factor;
    }
    return 0;
}

static const struct unit size_units[] = {{"", 1}, {"K", KIB}, {"M", MIB}, {"G", KIB *MIB}, {"T", TIB}};
static const struct unit time_units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", DAYS}};

static int take_size(const struct setting *setting, const char *as, const char *value, uint64_t *out_value,
                     char error[FUSEFS_ERROR_SIZE])
{
    uint64_t count;
    const char *rest;
    uint64_t factor = 0;
    if (read_digits(value, &count, &rest))
        factor = factor_of(rest, size_units, ARRAY_COUNT(size_units));
    if (factor == 0)
        return setting_fail(error, "%s=%s: not a size; write bytes, or a number with K, M or G, as in %s=256M", as,
                            value, as);
    if (count > setting->max / factor)
        return setting_fail(error, "%s=%s: more than %" PRIu64 "G", as, value, setting->max / (KIB * MIB));
    if (count * factor < setting->min)
        return setting_fail(error, "%s=%s: less than %" PRIu64 "M", as, value, setting->min / MIB);
    *out_value = count * factor;
    return 0;
}

static int take_number(const struct setting *setting, const char *as, const char *value, uint64_t *out_value,
                       char error[FUSEFS_ERROR_SIZE])
{
    const char *rest;
    if (!read_digits(value, out_value, &rest) || rest[0] != '\0' || *out_value < setting->min ||
        *out_value > setting->max)
        return setting_fail(error, "%s=%s: not a number from %" PRIu64 " to %" PRIu64, as, value, setting->min,
                            setting->max);
    return 0;
}

static int take_time(const struct setting *setting, const char *as, const char *value, uint64_t *out_value,
                     char error[FUSEFS_ERROR_SIZE])
{
    uint64_t count;
    const char *rest;
    uint64_t factor = 0;
    if (read_digits(value, &count, &rest))
        factor = factor_of(rest, time_units, ARRAY_COUNT(time_units));
    if (factor == 0)
        return setting_fail(error, "%s=%s: not a time; write seconds, or a number with m, h or d, as in %s=12h", as,
                            value, as);
    if (count > setting->max / factor || count * factor < setting->min)
        return setting_fail(error, "%s=%s: not from %" PRIu64 " second to %" PRIu64 " days", as, value, setting->min,
                            setting->max / DAYS);
    *out_value = count * factor;
    return 0;
}

static int take_mode(const struct setting *setting, const char *as, const char *value, uint64_t *out_value,
                     char error[FUSEFS_ERROR_SIZE])
{
    char *end = NULL;
    const bool octal = value[0] != '\0' && strspn(value, "01234567") == strlen(value);
    *out_value = octal ? strtoul(value, &end, 8) : setting->max + 1;
    if (*out_value > setting->max)
        return setting_fail(error, "%s=%s: not a mode; write it in octal, as in %s=1777", as, value, as);
    return 0;
}

/* The words one after the other: *inout_rest goes behind the next one. */
static size_t next_choice(const char **inout_rest, const char **out_word)
{
    const size_t size = strcspn(*inout_rest, "|");
    *out_word = *inout_rest;
    *inout_rest += size + ((*inout_rest)[size] == '|' ? 1 : 0);
    return size;
}

static int take_choice(const struct setting *setting, const char *as, const char *value, uint64_t *out_value,
                       char error[FUSEFS_ERROR_SIZE])
{
    const char *rest = setting->unit, *word;
    for (*out_value = 0; *out_value <= setting->max; (*out_value)++) {
        const size_t size = next_choice(&rest, &word);
        if (strlen(value) == size && memcmp(value, word, size) == 0)
            return 0;
    }
    return setting_fail(error, "%s=%s: not one of %s", as, value, setting->unit);
}

static int take_text(struct fusefs_options *options, const struct setting *setting, const char *as, const char *value,
                     char error[FUSEFS_ERROR_SIZE])
{
    char **text = member_of(options, setting);
    if (value[0] == '\0')
        return setting_fail(error, "%s=: the name of a %s is missing", as, setting->unit);
    char *copy = strdup(value);
    if (copy == NULL)
        return -ENOMEM;
    free(*text);
    *text = copy;
    return 0;
}

static int take_value(struct fusefs_options *options, const struct setting *setting, const char *as, const char *value,
                      char error[FUSEFS_ERROR_SIZE])
{
    uint64_t number = 0;
    int rc = 0;
    if (setting->zero != NULL && strcmp(setting->zero, value) == 0) {
        set_number(options, setting, 0);
        return 0;
    }
    switch (setting->kind) {
    case SETTING_SIZE:
        rc = take_size(setting, as, value, &number, error);
        break;
    case SETTING_NUMBER:
        rc = take_number(setting, as, value, &number, error);
        break;
    case SETTING_TIME:
        rc = take_time(setting, as, value, &number, error);
        break;
    case SETTING_MODE:
        rc = take_mode(setting, as, value, &number, error);
        break;
    case SETTING_CHOICE:
        rc = take_choice(setting, as, value, &number, error);
        break;
    case SETTING_TEXT:
    case SETTING_SWITCH:
        return take_text(options, setting, as, value, error);
    }
    if (rc == 0)
        set_number(options, setting, number);
    return rc;
}

int setting_take(struct fusefs_options *options, const struct setting *setting, const char *as, const char *value,
                 enum setting_source source, char error[FUSEFS_ERROR_SIZE])
{
    const int rc = take_value(options, setting, as, value, error);
    if (rc == 0)
        set_source(options, setting, source);
    return rc;
}

void setting_switch(struct fusefs_options *options, const struct setting *setting, bool on, enum setting_source source)
{
    memcpy(member_of(options, setting), &on, sizeof on);
    set_source(options, setting, source);
}

/* ---- writing ---- */

static void write_choice(FILE *out, const struct setting *setting, uint64_t number)
{
    const char *rest = setting->unit, *word = "";
    size_t size = 0;
    for (uint64_t place = 0; place <= number; place++)
        size = next_choice(&rest, &word);
    fwrite(word, 1, size, out);
}

static void write_number(FILE *out, const struct setting *setting, uint64_t number)
{
    if (setting->kind == SETTING_CHOICE)
        write_choice(out, setting, number);
    else if (number == 0 && setting->zero != NULL)
        fputs(setting->zero, out);
    else
        fprintf(out, setting->kind == SETTING_MODE ? "%04" PRIo64 : "%" PRIu64, number);
}

static void write_value(FILE *out, const struct setting *setting, const struct fusefs_options *options)
{
    switch (setting->kind) {
    case SETTING_TEXT: {
        const char *text = text_of(options, setting);
        fputs(text == NULL ? "" : text, out);
        break;
    }
    case SETTING_SWITCH:
        fputs(setting_is_on(options, setting) ? "yes" : "no", out);
        break;
    default:
        write_number(out, setting, number_of(options, setting));
    }
}

void fusefs_settings_write(FILE *out, const struct fusefs_options *options)
{
    static const char *const sources[] = {
        [SETTING_FROM_DEFAULT] = "default", [SETTING_FROM_CONF] = "tblfs.conf", [SETTING_FROM_OPTION] = "option"};
    struct fusefs_options fresh;
    fusefs_options_init(&fresh);
    for (size_t index = 0; index < ARRAY_COUNT(settings); index++) {
        const struct setting *setting = &settings[index];
        fprintf(out, "%s\t", setting->name);
        write_value(out, setting, options);
        fputc('\t', out);
        write_value(out, setting, &fresh);
        fprintf(out, "\t%s\t", setting->unit);
        if (setting->max > 1 && setting->kind != SETTING_CHOICE) {
            write_number(out, setting, setting->min);
            fputc('\t', out);
            write_number(out, setting, setting->max);
        } else {
            fputc('\t', out);
        }
        fprintf(out, "\t%s\t%s\n", sources[setting_source(options, setting)], setting->meaning);
    }
}

/* A number as people write it: with the largest unit that leaves no rest. */
static void write_short(FILE *out, const struct setting *setting, uint64_t number)
{
    const bool size = setting->kind == SETTING_SIZE;
    const struct unit *units = size ? size_units : time_units;
    size_t best = 0;
    for (size_t index = 0; index < ARRAY_COUNT(size_units); index++) {
        if (number != 0 && number % units[index].factor == 0 && units[index].name[0] != 's')
            best = index;
    }
    if (number == 0 || (!size && setting->kind != SETTING_TIME))
        write_number(out, setting, number);
    else
        fprintf(out, "%" PRIu64 "%s", number / units[best].factor, units[best].name);
}

void fusefs_options_help(FILE *out)
{
    static const char *const arguments[] = {
        [SETTING_SIZE] = "=SIZE", [SETTING_NUMBER] = "=N",    [SETTING_TIME] = "=TIME", [SETTING_MODE] = "=OCTAL",
        [SETTING_TEXT] = "=TEXT", [SETTING_CHOICE] = "=WORD", [SETTING_SWITCH] = "",
    };
    for (size_t index = 0; index < ARRAY_COUNT(settings); index++) {
        const struct setting *setting = &settings[index];
        char word[64];
        (void)snprintf(word, sizeof word, "%s%s", setting->name, arguments[setting->kind]);
        fprintf(out, "  %-25s %s", word, setting->meaning);
        if (setting->kind != SETTING_TEXT && setting->kind != SETTING_SWITCH) {
            fputs(" (default ", out);
            write_short(out, setting, setting->otherwise);
            fputc(')', out);
        }
        fputc('\n', out);
    }
    fputs(
        "The opposites rw, async and exec are understood. A size is a number of bytes, or with K, M, G or T; a time "
        "one\n"
        "of seconds, or with m, h or d. DATADIR/tblfs.conf may say the same, as lines NAME = VALUE (switches: yes or\n"
        "no); what is given here counts first. 'tblfs settings' lists them all, with what is allowed.\n"
        "Permissions are always checked by the kernel, set-user-id bits and device files never honoured.\n"
        "What fstab adds for itself (defaults, nofail, _netdev, x-...) is ignored.\n",
        out);
}
