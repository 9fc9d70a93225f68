/*
 * tests/unit/fusefs/test_options.c - the list given with -o: what is taken, dropped and refused.
 */
#include "fusefs/fusefs.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static int parse(struct fusefs_options *options, const char *list, char error[FUSEFS_ERROR_SIZE])
{
    fusefs_options_init(options);
    error[0] = '\0';
    return fusefs_options_parse(options, list, error);
}

static void expect_refused(const char *list, const char *message)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    const int rc = parse(&options, list, error);
    if (rc != -EINVAL || strstr(error, message) == NULL)
        fail_msg("'%s' gave %d, '%s'; wanted '%s'", list, rc, error, message);
    fusefs_options_free(&options);
}

static void expect_cache(const char *list, uint64_t size_bytes)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    assert_int_equal(parse(&options, list, error), 0);
    assert_int_equal(options.cache_size_bytes, size_bytes);
    fusefs_options_free(&options);
}

static void all_options_given_are_taken(void **state)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    (void)state;
    assert_int_equal(parse(&options,
                           "cache=64M,checkpoint_interval=5,checkpoint_log_size=8M,max_threads=3,log=/var/log/"
                           "a\\,b,allow_other,ro,noexec,sync,"
                           "debug,snap_mode=1777,txn_max_age=2h,txn_max_bytes=3G",
                           error),
                     0);
    assert_int_equal(options.cache_size_bytes, 64 * MIB);
    assert_int_equal(options.checkpoint_interval_s, 5);
    assert_int_equal(options.checkpoint_log_bytes, 8 * MIB);
    assert_int_equal(options.max_threads, 3);
    assert_string_equal(options.log_path, "/var/log/a,b");
    assert_int_equal(options.txn_max_age_s, 7200);
    assert_int_equal(options.txn_max_bytes, 3072 * MIB);
    assert_int_equal(options.snap_mode, 01777);
    assert_true(options.allow_other && options.read_only && options.no_exec && options.synchronous && options.debug);
    fusefs_options_free(&options);
}

static void empty_list_changes_nothing(void **state)
{
    struct fusefs_options options, fresh;
    char error[FUSEFS_ERROR_SIZE];
    (void)state;
    fusefs_options_init(&fresh);
    assert_int_equal(parse(&options, "", error), 0);
    assert_memory_equal(&options, &fresh, sizeof options);
    assert_int_equal(parse(&options, ",,defaults,", error), 0);
    assert_memory_equal(&options, &fresh, sizeof options);
    assert_int_equal(parse(&options, "rw,exec,async", error), 0); /* what holds anyway, but said */
    assert_false(options.read_only || options.no_exec || options.synchronous);
}

static void cache_sizes_with_units_are_read(void **state)
{
    (void)state;
    expect_cache("cache=33554432", 32 * MIB);
    expect_cache("cache=65536K", 64 * MIB);
    expect_cache("cache=65536k", 64 * MIB);
    expect_cache("cache=1M", MIB);
    expect_cache("cache=2G", 2048 * MIB);
    expect_cache("cache=1T", 1024 * 1024 * MIB);
}

static void cache_sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    expect_refused("txn_max_age=0", "not from 1 second");
    expect_refused("txn_max_age=367d", "not from 1 second");
    expect_refused("checkpoint_interval=0", "not from 1 second to 1 days");
    expect_refused("checkpoint_interval=86401", "not from 1 second to 1 days");
    expect_refused("checkpoint_interval=-1", "not a time");
    expect_refused("txn_max_age=99999999999999999999s", "not a time");
    expect_refused("txn_max_age=5w", "not a time");
    expect_refused("txn_max_age=h", "not a time");
    expect_refused("txn_max_age", "needs a value");
    expect_refused("txn_max_bytes=1K", "less than");
    expect_refused("cache=0", "less than");
    expect_refused("cache=1023K", "less than");
    expect_refused("cache=1025G", "more than");
    expect_refused("cache=18446744073709551615", "more than");
    expect_refused("cache=18446744073709551616", "not a size");
    expect_refused("cache=99999999999999999999999G", "not a size");
    expect_refused("cache=18014398509481985K", "more than");
    expect_refused("cache=-64M", "not a size");
    expect_refused("cache=+64M", "not a size");
    expect_refused("cache= 64M", "not a size");
    expect_refused("cache=64MB", "not a size");
    expect_refused("cache=64X", "not a size");
    expect_refused("cache=", "not a size");
    expect_refused("cache", "needs a value");
}

static void numbers_out_of_range_are_refused(void **state)
{
    static const char *const values[] = {"0", "-1", "1x", "", "4294967297", "18446744073709551617", "100000"};
    char list[64];
    (void)state;
    for (size_t index = 0; index < ARRAY_COUNT(values); index++) {
        (void)snprintf(list, sizeof list, "max_threads=%s", values[index]);
        expect_refused(list, "not a number from 1 to 1024");
    }
}

static void modes_out_of_range_are_refused(void **state)
{
    static const char *const values[] = {"", "789", "10000", "-1", "0x7", "7 ", "77777777777777777777777777777"};
    char list[64];
    (void)state;
    for (size_t index = 0; index < ARRAY_COUNT(values); index++) {
        (void)snprintf(list, sizeof list, "snap_mode=%s", values[index]);
        expect_refused(list, "not a mode");
    }
}

static void repeated_option_is_refused(void **state)
{
    (void)state;
    expect_refused("cache=64M,cache=64M", "given twice");
    expect_refused("ro,debug,ro", "given twice");
    expect_refused("log=a,log=b", "given twice");
}

static void repeated_option_in_second_list_is_refused(void **state)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    (void)state;
    fusefs_options_init(&options);
    assert_int_equal(fusefs_options_parse(&options, "log=a", error), 0);
    assert_int_equal(fusefs_options_parse(&options, "ro,log=b", error), -EINVAL);
    assert_string_equal(options.log_path, "a");
    fusefs_options_free(&options);
}

static void opposites_are_refused(void **state)
{
    (void)state;
    expect_refused("ro,rw", "opposite");
    expect_refused("rw,ro", "opposite");
    expect_refused("exec,noexec", "opposite");
    expect_refused("sync,async", "opposite");
}

static void flag_with_value_is_refused(void **state)
{
    (void)state;
    expect_refused("ro=1", "takes no value");
    expect_refused("allow_other=", "takes no value");
}

static void unknown_option_is_refused(void **state)
{
    (void)state;
    expect_refused("cahce=64M", "unknown option");
    expect_refused("RO", "unknown option");
    expect_refused("=x", "unknown option");
    expect_refused("remount", "not supported");
    expect_refused("fsname=x", "set by tblfs");
    expect_refused("subtype=ext4", "set by tblfs");
}

static void what_fstab_adds_is_dropped(void **state)
{
    struct fusefs_options options, fresh;
    char error[FUSEFS_ERROR_SIZE];
    (void)state;
    fusefs_options_init(&fresh);
    assert_int_equal(parse(&options,
                           "defaults,nofail,_netdev,relatime,noatime,user,user=joe,x-systemd.automount,x-gvfs-show,"
                           "X-mount.mkdir=0755,suid,dev,nosuid,nodev,subtype=tblfs,comment=hello,auto,"
                           "default_permissions",
                           error),
                     0);
    assert_memory_equal(&options, &fresh, sizeof options);
}

static char *help_text(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fusefs_options_help(out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void help_names_every_option(void **state)
{
    static const char *const names[] = {
        "cache=SIZE",  "allow_other",    "ro ",        "sync", "noexec", "checkpoint_interval=",
        "max_threads", "(default 256M)", "snap_mode=", "log=", "debug",  "(default 0755)"};
    char *text = help_text();
    (void)state;
    for (size_t index = 0; index < ARRAY_COUNT(names); index++)
        assert_non_null(strstr(text, names[index]));
    free(text);
}

static void what_was_meant_is_told(void **state)
{
    (void)state;
    expect_refused("cahce=64M", "cahce: unknown option; is it cache;");
    expect_refused("checkpoint_intervall=3", "is it checkpoint_interval;");
    expect_refused("x=3", "x: unknown option; 'tblfs help");
}

static void none_and_auto_are_values(void **state)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    (void)state;
    assert_int_equal(parse(&options, "txn_max_age=none,txn_max_bytes=none,max_threads=auto", error), 0);
    assert_int_equal(options.txn_max_age_s + options.txn_max_bytes + options.max_threads, 0);
    expect_refused("cache=none", "not a size");
    expect_refused("drop=never", "drop=never: not one of any|txn");
    expect_refused("drop=an", "not one of");
    expect_refused("drop=any|txn", "not one of");
    assert_int_equal(parse(&options, "drop=txn", error), 0);
    assert_int_equal(options.drop, FUSEFS_DROP_TXN);
    assert_int_equal(parse(&options, "drop=any", error), 0);
    assert_int_equal(options.drop, FUSEFS_DROP_ANY);
    expect_refused("max_threads=none", "not a number");
}

/* ---- tblfs.conf ---- */

static int make_dir(void **state)
{
    *state = test_dir_create();
    return 0;
}

static int remove_dir(void **state)
{
    test_dir_remove(*state);
    return 0;
}

/* Reads a file with that text behind an -o list. */
static int parse_conf(const char *dir, const char *list, const char *text, struct fusefs_options *options,
                      char error[FUSEFS_ERROR_SIZE])
{
    char *path = test_path_join(dir, "tblfs.conf");
    FILE *file = fopen(path, "w");
    free(path);
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(parse(options, list, error), 0);
    options->data_dir = strdup(dir);
    return fusefs_options_read_conf(options, error);
}

static void conf_counts_where_no_option_was_given(void **state)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    assert_int_equal(parse_conf(*state, "cache=32M,rw",
                                "# a comment\n\n  cache = 64M   # overridden\nro=yes\n\ttxn_max_age=2h\nasync = no\n"
                                "log = /var/log/a#b , c\nexec = yes",
                                &options, error),
                     0);
    assert_int_equal(options.cache_size_bytes, 32 * MIB);
    assert_false(options.read_only);
    assert_true(options.synchronous);
    assert_false(options.no_exec);
    assert_int_equal(options.txn_max_age_s, 7200);
    assert_string_equal(options.log_path, "/var/log/a#b , c");
    fusefs_options_free(&options);
}

static void conf_is_not_needed(void **state)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    fusefs_options_init(&options);
    options.data_dir = strdup(*state);
    assert_int_equal(fusefs_options_read_conf(&options, error), 0);
    fusefs_options_free(&options);
}

static void wrong_conf_is_refused_by_line(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"cache=64M\n\ncahce=64M\n", "tblfs.conf:3: cahce: unknown setting; is it cache;"},
        {"cache = 1K", "tblfs.conf:1: cache=1K: less than 1M"},
        {"cache=64M\ncache=64M", "tblfs.conf:2: given a second time"},
        {"ro=yes\nrw=yes", "tblfs.conf:2: given a second time"},
        {"ro", "tblfs.conf:1: not a line NAME = VALUE"},
        {"ro = 1", "tblfs.conf:1: a switch is yes or no"},
        {"defaults = yes", "unknown setting"},
        {"= 3", "unknown setting"},
    };
    for (size_t index = 0; index < ARRAY_COUNT(cases); index++) {
        struct fusefs_options options;
        char error[FUSEFS_ERROR_SIZE];
        const int rc = parse_conf(*state, "", cases[index].text, &options, error);
        if (rc != -EINVAL || strstr(error, cases[index].message) == NULL)
            fail_msg("'%s' gave %d, '%s'; wanted '%s'", cases[index].text, rc, error, cases[index].message);
        fusefs_options_free(&options);
    }
}

static void overridden_value_is_checked_all_the_same(void **state)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    assert_int_equal(parse_conf(*state, "cache=32M", "cache = lots", &options, error), -EINVAL);
    assert_non_null(strstr(error, "tblfs.conf:1: cache=lots: not a size"));
    fusefs_options_free(&options);
}

static void settings_say_where_they_come_from(void **state)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(parse_conf(*state, "cache=32M", "ro = yes", &options, error), 0);
    FILE *out = open_memstream(&text, &size);
    fusefs_settings_write(out, &options);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(
        text, "cache\t33554432\t268435456\tbytes\t1048576\t1099511627776\toption\tpage cache; at least 16M is used\n"));
    assert_non_null(strstr(text, "\nro\tyes\tno\tswitch\t\t\ttblfs.conf\tread-only\n"));
    assert_non_null(strstr(text, "\nmax_threads\tauto\tauto\tthreads\t1\t1024\tdefault\t"));
    free(text);
    fusefs_options_free(&options);
}

static void copy_has_texts_of_its_own(void **state)
{
    struct fusefs_options options, copy;
    char error[FUSEFS_ERROR_SIZE];
    (void)state;
    assert_int_equal(parse(&options, "log=a,cache=32M", error), 0);
    options.data_dir = strdup("data");
    options.mount_point = strdup("mnt");
    assert_int_equal(fusefs_options_copy(&options, &copy), 0);
    fusefs_options_free(&options);
    assert_string_equal(copy.log_path, "a");
    assert_string_equal(copy.data_dir, "data");
    assert_string_equal(copy.mount_point, "mnt");
    assert_int_equal(copy.cache_size_bytes, 32 * MIB);
    fusefs_options_free(&copy);
}

static void archive_options_are_taken(void **state)
{
    struct fusefs_options options;
    char error[FUSEFS_ERROR_SIZE];
    (void)state;
    assert_int_equal(parse(&options, "archive_command=cp %p /b\\,c/%f,archive_timeout=5m", error), 0);
    assert_string_equal(options.archive_command, "cp %p /b,c/%f");
    assert_null(options.archive_dir);
    assert_int_equal(options.archive_timeout_s, 300);
    fusefs_options_free(&options);
    assert_int_equal(parse(&options, "archive=/b", error), 0);
    assert_string_equal(options.archive_dir, "/b");
    fusefs_options_free(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_options_given_are_taken),
        cmocka_unit_test(empty_list_changes_nothing),
        cmocka_unit_test(cache_sizes_with_units_are_read),
        cmocka_unit_test(cache_sizes_out_of_range_are_refused),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(modes_out_of_range_are_refused),
        cmocka_unit_test(repeated_option_is_refused),
        cmocka_unit_test(repeated_option_in_second_list_is_refused),
        cmocka_unit_test(opposites_are_refused),
        cmocka_unit_test(flag_with_value_is_refused),
        cmocka_unit_test(unknown_option_is_refused),
        cmocka_unit_test(what_fstab_adds_is_dropped),
        cmocka_unit_test(help_names_every_option),
        cmocka_unit_test(what_was_meant_is_told),
        cmocka_unit_test(none_and_auto_are_values),
        cmocka_unit_test_setup_teardown(conf_counts_where_no_option_was_given, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(conf_is_not_needed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(wrong_conf_is_refused_by_line, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(overridden_value_is_checked_all_the_same, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(settings_say_where_they_come_from, make_dir, remove_dir),
        cmocka_unit_test(copy_has_texts_of_its_own),
        cmocka_unit_test(archive_options_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
