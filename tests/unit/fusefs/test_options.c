/*
 * tests/unit/fusefs/test_options.c - the list given with -o: what is taken, dropped and refused.
 */
#include "fusefs/fusefs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static int parse(struct fusefs_options *options, const char *list, char error[FUSEFS_ERROR_SIZE])
{
    uint64_t seen = 0;
    fusefs_options_init(options);
    error[0] = '\0';
    return fusefs_options_parse(options, list, &seen, error);
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
    assert_int_equal(options.checkpoint_interval_ms, 5000);
    assert_int_equal(options.checkpoint_log_bytes, 8 * MIB);
    assert_int_equal(options.max_threads, 3);
    assert_string_equal(options.log_path, "/var/log/a,b");
    assert_int_equal(options.txn_max_age_s, 7200);
    assert_int_equal(options.txn_max_bytes, 3072 * MIB);
    assert_true(options.snap_mode_given);
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
    assert_int_equal(parse(&options, ",,rw,", error), 0);
    assert_memory_equal(&options, &fresh, sizeof options);
}

static void cache_sizes_with_units_are_read(void **state)
{
    (void)state;
    expect_cache("cache=33554432", 32 * MIB);
    expect_cache("cache=65536K", 64 * MIB);
    expect_cache("cache=65536k", 64 * MIB);
    expect_cache("cache=16M", 16 * MIB);
    expect_cache("cache=2G", 2048 * MIB);
    expect_cache("cache=1T", 1024 * 1024 * MIB);
}

static void cache_sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    expect_refused("txn_max_age=0", "not from 1 second");
    expect_refused("txn_max_age=367d", "not from 1 second");
    expect_refused("txn_max_age=99999999999999999999s", "not a time");
    expect_refused("txn_max_age=5w", "not a time");
    expect_refused("txn_max_age=h", "not a time");
    expect_refused("txn_max_age", "needs a value");
    expect_refused("txn_max_bytes=1K", "less than");
    expect_refused("cache=0", "less than");
    expect_refused("cache=15M", "less than");
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
        (void)snprintf(list, sizeof list, "checkpoint_interval=%s", values[index]);
        expect_refused(list, "not a number from 1 to 86400");
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
    uint64_t seen = 0;
    (void)state;
    fusefs_options_init(&options);
    assert_int_equal(fusefs_options_parse(&options, "log=a", &seen, error), 0);
    assert_int_equal(fusefs_options_parse(&options, "ro,log=b", &seen, error), -EINVAL);
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
                           "X-mount.mkdir=0755,rw,suid,dev,exec,nosuid,nodev,subtype=tblfs,comment=hello,auto,"
                           "default_permissions",
                           error),
                     0);
    assert_memory_equal(&options, &fresh, sizeof options);
}

static void help_names_every_option(void **state)
{
    static const char *const names[] = {"cache=",       "allow_other", "ro ",  "sync", "noexec", "checkpoint_interval=",
                                        "max_threads=", "snap_mode=",  "log=", "debug"};
    (void)state;
    for (size_t index = 0; index < ARRAY_COUNT(names); index++)
        assert_non_null(strstr(fusefs_options_help(), names[index]));
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
