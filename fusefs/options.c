/*
 * fusefs/options.c - the list given with -o.
 *
 * One table names every option: how it is read and which others it contradicts. Options that mount(8), fstab and
 * systemd hand to every filesystem and that mean nothing here are in a second list, and are dropped.
 *
 * Invariants: OPT-1 Nothing unknown is accepted. OPT-2 An option counts once: repeating it is an error, and so is its
 * opposite.
 *
 * Locking: none, nothing is shared.
 */
#include "fusefs/fusefs.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB                    (UINT64_C(1) << 20)
#define CACHE_MIN_BYTES        (16 * MIB)
#define LOG_SIZE_MIN_BYTES     (1 * MIB)
#define SIZE_MAX_BYTES         (UINT64_C(1) << 40)
#define THREADS_MAX            1024u
#define MODE_MAX               07777u
#define INTERVAL_MAX_SECONDS   86400u
#define AGE_MAX_SECONDS        (366u * 86400u)
#define MILLISECONDS_IN_SECOND 1000u

enum option_id {
    OPTION_CACHE,
    OPTION_CHECKPOINT_INTERVAL,
    OPTION_CHECKPOINT_LOG_SIZE,
    OPTION_MAX_THREADS,
    OPTION_SNAP_MODE,
    OPTION_TXN_MAX_AGE,
    OPTION_TXN_MAX_BYTES,
    OPTION_LOG,
    OPTION_ALLOW_OTHER,
    OPTION_RO,
    OPTION_RW,
    OPTION_EXEC,
    OPTION_NOEXEC,
    OPTION_SYNC,
    OPTION_ASYNC,
    OPTION_DEBUG,
};

struct parse {
    struct fusefs_options *options;
    uint64_t *seen;
    char *error; /* FUSEFS_ERROR_SIZE */
};

struct option_rule {
    const char *name;
    enum option_id id;
    int (*take)(struct parse *parse, const char *name, const char *value); /* NULL: a flag, see take_flag */
    int opposite;                                                          /* enum option_id, or -1 */
};

static int fail(struct parse *parse, const char *fmt, ...) PRINTF_LIKE(2, 3);

static int fail(struct parse *parse, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(parse->error, FUSEFS_ERROR_SIZE, fmt, args);
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

/* Shift for a unit's letter; -1: not a unit. */
static int unit_shift(const char *unit)
{
    static const char letters[] = "KMGT";
    if (unit[0] == '\0')
        return 0;
    const char *found = strchr(letters, toupper((unsigned char)unit[0]));
    if (found == NULL || unit[1] != '\0')
        return -1;
    return 10 * (int)(found - letters + 1);
}

static int take_size(struct parse *parse, const char *name, const char *value, uint64_t min_bytes, uint64_t *out_bytes)
{
    uint64_t count;
    const char *unit;
    int shift = -1;
    if (read_digits(value, &count, &unit))
        shift = unit_shift(unit);
    if (shift < 0)
        return fail(parse, "%s=%s: not a size; write bytes, or a number with K, M or G, as in %s=256M", name, value,
                    name);
    if (count > (SIZE_MAX_BYTES >> shift))
        return fail(parse, "%s=%s: more than 1024G", name, value);
    if (count << shift < min_bytes)
        return fail(parse, "%s=%s: less than %uM", name, value, (unsigned)(min_bytes / MIB));
    *out_bytes = count << shift;
    return 0;
}

static int take_cache(struct parse *parse, const char *name, const char *value)
{
    return take_size(parse, name, value, CACHE_MIN_BYTES, &parse->options->cache_size_bytes);
}

static int take_checkpoint_log_size(struct parse *parse, const char *name, const char *value)
{
    return take_size(parse, name, value, LOG_SIZE_MIN_BYTES, &parse->options->checkpoint_log_bytes);
}

static int take_number(struct parse *parse, const char *name, const char *value, uint32_t max, uint32_t *out_value)
{
    uint64_t number;
    const char *rest;
    if (!read_digits(value, &number, &rest) || rest[0] != '\0' || number < 1 || number > max)
        return fail(parse, "%s=%s: not a number from 1 to %u", name, value, max);
    *out_value = (uint32_t)number;
    return 0;
}

static int take_checkpoint_interval(struct parse *parse, const char *name, const char *value)
{
    uint32_t seconds = 0;
    const int rc = take_number(parse, name, value, INTERVAL_MAX_SECONDS, &seconds);
    if (rc == 0)
        parse->options->checkpoint_interval_ms = seconds * MILLISECONDS_IN_SECOND;
    return rc;
}

static int take_txn_max_bytes(struct parse *parse, const char *name, const char *value)
{
    return take_size(parse, name, value, MIB, &parse->options->txn_max_bytes);
}

/* Seconds of a unit's letter; 0: not a unit. */
static uint32_t unit_seconds(const char *unit)
{
    static const struct {
        const char *unit;
        uint32_t seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    for (size_t index = 0; index < ARRAY_COUNT(units); index++) {
        if (strcmp(units[index].unit, unit) == 0)
            return units[index].seconds;
    }
    return 0;
}

static int take_txn_max_age(struct parse *parse, const char *name, const char *value)
{
    uint64_t count;
    const char *unit;
    const uint32_t seconds = read_digits(value, &count, &unit) ? unit_seconds(unit) : 0;
    if (seconds == 0)
        return fail(parse, "%s=%s: not a time; write seconds, or a number with m, h or d, as in %s=12h", name, value,
                    name);
    if (count < 1 || count > AGE_MAX_SECONDS / seconds)
        return fail(parse, "%s=%s: not from 1 second to %u days", name, value, AGE_MAX_SECONDS / 86400);
    parse->options->txn_max_age_s = (uint32_t)count * seconds;
    return 0;
}

static int take_max_threads(struct parse *parse, const char *name, const char *value)
{
    return take_number(parse, name, value, THREADS_MAX, &parse->options->max_threads);
}

static int take_snap_mode(struct parse *parse, const char *name, const char *value)
{
    char *end = NULL;
    const unsigned long mode = strspn(value, "01234567") == strlen(value) ? strtoul(value, &end, 8) : MODE_MAX + 1;
    if (end == value || mode > MODE_MAX)
        return fail(parse, "%s=%s: not a mode; write it in octal, as in %s=1777", name, value, name);
    parse->options->snap_mode = (uint32_t)mode;
    parse->options->snap_mode_given = true;
    return 0;
}

static int take_log(struct parse *parse, const char *name, const char *value)
{
    if (value[0] == '\0')
        return fail(parse, "%s=: the name of a file is missing", name);
    char *copy = strdup(value);
    if (copy == NULL)
        return -ENOMEM;
    free(parse->options->log_path);
    parse->options->log_path = copy;
    return 0;
}

static void take_flag(struct fusefs_options *options, enum option_id id)
{
    switch (id) {
    case OPTION_ALLOW_OTHER:
        options->allow_other = true;
        break;
    case OPTION_RO:
        options->read_only = true;
        break;
    case OPTION_NOEXEC:
        options->no_exec = true;
        break;
    case OPTION_SYNC:
        options->synchronous = true;
        break;
    case OPTION_DEBUG:
        options->debug = true;
        break;
    case OPTION_RW: /* what holds anyway */
    case OPTION_EXEC:
    case OPTION_ASYNC:
    case OPTION_CACHE: /* not flags */
    case OPTION_CHECKPOINT_INTERVAL:
    case OPTION_CHECKPOINT_LOG_SIZE:
    case OPTION_MAX_THREADS:
    case OPTION_SNAP_MODE:
    case OPTION_TXN_MAX_AGE:
    case OPTION_TXN_MAX_BYTES:
    case OPTION_LOG:
        break;
    }
}

static const struct option_rule rules[] = {
    {"cache", OPTION_CACHE, take_cache, -1},
    {"checkpoint_interval", OPTION_CHECKPOINT_INTERVAL, take_checkpoint_interval, -1},
    {"checkpoint_log_size", OPTION_CHECKPOINT_LOG_SIZE, take_checkpoint_log_size, -1},
    {"max_threads", OPTION_MAX_THREADS, take_max_threads, -1},
    {"snap_mode", OPTION_SNAP_MODE, take_snap_mode, -1},
    {"txn_max_age", OPTION_TXN_MAX_AGE, take_txn_max_age, -1},
    {"txn_max_bytes", OPTION_TXN_MAX_BYTES, take_txn_max_bytes, -1},
    {"log", OPTION_LOG, take_log, -1},
    {"allow_other", OPTION_ALLOW_OTHER, NULL, -1},
    {"ro", OPTION_RO, NULL, OPTION_RW},
    {"rw", OPTION_RW, NULL, OPTION_RO},
    {"exec", OPTION_EXEC, NULL, OPTION_NOEXEC},
    {"noexec", OPTION_NOEXEC, NULL, OPTION_EXEC},
    {"sync", OPTION_SYNC, NULL, OPTION_ASYNC},
    {"async", OPTION_ASYNC, NULL, OPTION_SYNC},
    {"debug", OPTION_DEBUG, NULL, -1},
};

const char *fusefs_options_help(void)
{
    return "  cache=SIZE             page cache: bytes, or with K, M or G (default 256M, at least 16M)\n"
           "  allow_other            let other users in too (the files' modes are checked)\n"
           "  ro                     read-only\n"
           "  sync                   make every write durable before it returns\n"
           "  noexec                 let no program on it run\n"
           "  checkpoint_interval=S  seconds between checkpoints (default 60): a restart after a crash replays what "
           "was\n"
           "                         written since the last one\n"
           "  checkpoint_log_size=SIZE  a checkpoint comes earlier when that much was logged since the last one\n"
           "                         (default 256M, at least 1M)\n"
           "  max_threads=N          threads that serve requests (default 16, or 4 for each CPU)\n"
           "  snap_mode=OCTAL        mode of MNT/.snap (default 0755): who may write there may take and drop "
           "snapshots\n"
           "  txn_max_age=TIME       abort a transaction that was begun longer ago: seconds, or with m, h or d (no "
           "limit)\n"
           "  txn_max_bytes=SIZE     abort a transaction that has more than that in blocks of its own (no limit)\n"
           "  log=FILE               the daemon's messages go to FILE (default syslog; with -f stderr)\n"
           "  debug                  log more\n"
           "Permissions are always checked by the kernel, set-user-id bits and device files never honoured.\n"
           "What fstab adds for itself (defaults, nofail, _netdev, x-...) is ignored.\n";
}

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

static const struct option_rule *rule_find(const char *name)
{
    for (size_t index = 0; index < ARRAY_COUNT(rules); index++) {
        if (strcmp(rules[index].name, name) == 0)
            return &rules[index];
    }
    return NULL;
}

/* OPT-2. */
static int note_seen(struct parse *parse, const struct option_rule *rule)
{
    const uint64_t bit = UINT64_C(1) << rule->id;
    if ((*parse->seen & bit) != 0)
        return fail(parse, "%s: given twice", rule->name);
    if (rule->opposite >= 0 && (*parse->seen & (UINT64_C(1) << rule->opposite)) != 0)
        return fail(parse, "%s: given together with its opposite", rule->name);
    *parse->seen |= bit;
    return 0;
}

static int fail_unknown(struct parse *parse, const char *name)
{
    if (strcmp(name, "remount") == 0)
        return fail(parse, "remount: not supported; unmount, and mount again with other options");
    if (strcmp(name, "fsname") == 0 || strcmp(name, "subtype") == 0)
        return fail(parse, "%s: is set by tblfs itself", name);
    return fail(parse, "%s: unknown option; 'tblfs help mount' lists them", name);
}

/* One option; text is changed. */
static int option_take(struct parse *parse, char *text)
{
    char *value = strchr(text, '=');
    if (value != NULL)
        *value++ = '\0';
    const struct option_rule *rule = rule_find(text);
    if (rule == NULL)
        return is_noise(text, value) ? 0 : fail_unknown(parse, text);
    const int rc = note_seen(parse, rule);
    if (rc != 0)
        return rc;
    if (rule->take == NULL) {
        if (value != NULL)
            return fail(parse, "%s=%s: takes no value", text, value);
        take_flag(parse->options, rule->id);
        return 0;
    }
    if (value == NULL)
        return fail(parse, "%s: needs a value, as in %s=...", text, text);
    return rule->take(parse, text, value);
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

int fusefs_options_parse(struct fusefs_options *options, const char *list, uint64_t *seen,
                         char error[FUSEFS_ERROR_SIZE])
{
    struct parse parse = {.options = options, .seen = seen, .error = error};
    char *word = malloc(strlen(list) + 1);
    if (word == NULL)
        return -ENOMEM;
    int rc = 0;
    while (rc == 0 && *list != '\0') {
        list = next_word(list, word);
        if (word[0] != '\0')
            rc = option_take(&parse, word);
    }
    free(word);
    return rc;
}

void fusefs_options_init(struct fusefs_options *options)
{
    *options = (struct fusefs_options){.data_dir = NULL};
}

void fusefs_options_free(struct fusefs_options *options)
{
    free(options->data_dir);
    free(options->mount_point);
    free(options->log_path);
    fusefs_options_init(options);
}
