/*
 * tests/unit/base/test_diag.c - messages and reports of damage.
 */
#include "base/diag.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct recorder {
    struct diag diag; /* first: emit is given its address */
    unsigned lines;
    enum diag_level level;
    char last[4096];
};

static void record(struct diag *diag, enum diag_level level, const char *line)
{
    struct recorder *recorder = (struct recorder *)diag;
    recorder->lines++;
    recorder->level = level;
    snprintf(recorder->last, sizeof recorder->last, "%s", line);
}

static void recorder_init(struct recorder *recorder, enum diag_level max_level)
{
    memset(recorder, 0, sizeof *recorder);
    diag_init_silent(&recorder->diag);
    recorder->diag.emit = record;
    recorder->diag.max_level = max_level;
}

static void log_above_max_level_is_dropped(void **state)
{
    struct recorder recorder;
    (void)state;
    recorder_init(&recorder, DIAG_WARNING);
    diag_log(&recorder.diag, DIAG_INFO, "no");
    diag_log(&recorder.diag, DIAG_DEBUG, "no");
    assert_int_equal(recorder.lines, 0);
    diag_log(&recorder.diag, DIAG_WARNING, "table %s has %d rows", "a", 3);
    assert_int_equal(recorder.lines, 1);
    assert_int_equal(recorder.level, DIAG_WARNING);
    assert_string_equal(recorder.last, "table a has 3 rows");
}

static void log_with_control_characters_stays_one_line(void **state)
{
    struct recorder recorder;
    (void)state;
    recorder_init(&recorder, DIAG_INFO);
    diag_log(&recorder.diag, DIAG_INFO, "name %s", "a\nb\x1b[31mc\x7f\t\xc3\xa4");
    assert_string_equal(recorder.last, "name a?b?[31mc??\xc3\xa4");
}

static void log_too_long_is_cut_with_dots(void **state)
{
    struct recorder recorder;
    char name[3000];
    (void)state;
    recorder_init(&recorder, DIAG_INFO);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    diag_log(&recorder.diag, DIAG_INFO, "name %s", name);
    const size_t length = strlen(recorder.last);
    assert_int_equal(length, 1023);
    assert_string_equal(recorder.last + length - 4, "x...");
}

static void damage_names_everything_and_is_counted(void **state)
{
    struct recorder recorder;
    (void)state;
    recorder_init(&recorder, DIAG_ERROR);
    assert_int_equal(diag_damage(&recorder.diag, "rel/01/17", 42, "checksum", "got %x, want %x", 1u, 2u), -EIO);
    assert_string_equal(recorder.last, "damage: rel/01/17: block 42: checksum: got 1, want 2");
    assert_int_equal(recorder.level, DIAG_ERROR);
    assert_int_equal(recorder.diag.damage_count, 1);
}

static void damage_without_block_names_none(void **state)
{
    struct recorder recorder;
    (void)state;
    recorder_init(&recorder, DIAG_ERROR);
    assert_int_equal(diag_damage(&recorder.diag, "control", BLOCK_NONE, "version", "got %d", 9), -EIO);
    assert_string_equal(recorder.last, "damage: control: version: got 9");
}

static void damage_with_long_file_name_does_not_overflow(void **state)
{
    struct recorder recorder;
    char name[3000];
    (void)state;
    recorder_init(&recorder, DIAG_ERROR);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(diag_damage(&recorder.diag, name, 1, "field", "text %s", name), -EIO);
    assert_true(strlen(recorder.last) < 1024);
}

static void silent_diag_still_counts_damage(void **state)
{
    struct diag diag;
    (void)state;
    diag_init_silent(&diag);
    assert_int_equal(diag_damage(&diag, "f", 0, "x", "y"), -EIO);
    assert_int_equal(diag_damage(&diag, "f", 0, "x", "y"), -EIO);
    assert_int_equal(diag.damage_count, 2);
}

/* Runs with stderr going to a pipe and returns what was written. */
static void stderr_diag_writes_prefix_and_level(void **state)
{
    struct diag diag;
    char text[200] = "";
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    const int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    dup2(ends[1], STDERR_FILENO);
    diag_init_stderr(&diag, DIAG_DEBUG);
    diag_log(&diag, DIAG_ERROR, "one");
    diag_log(&diag, DIAG_WARNING, "two");
    diag_log(&diag, DIAG_INFO, "three");
    diag_log(&diag, DIAG_DEBUG, "four");
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_string_equal(text, "tblfs: error: one\ntblfs: warning: two\ntblfs: info: three\ntblfs: debug: four\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_above_max_level_is_dropped),
        cmocka_unit_test(log_with_control_characters_stays_one_line),
        cmocka_unit_test(log_too_long_is_cut_with_dots),
        cmocka_unit_test(damage_names_everything_and_is_counted),
        cmocka_unit_test(damage_without_block_names_none),
        cmocka_unit_test(damage_with_long_file_name_does_not_overflow),
        cmocka_unit_test(silent_diag_still_counts_damage),
        cmocka_unit_test(stderr_diag_writes_prefix_and_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
