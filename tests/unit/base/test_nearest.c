/*
 * tests/unit/base/test_nearest.c - which word was meant.
 */
#include "base/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char *word_at(size_t index)
{
    static const char *const words[] = {"cache", "checkpoint_interval", "checkpoint_log_size", "ro", "sync", NULL};
    return words[index];
}

static void one_that_is_like_it_is_found(void **state)
{
    static const struct {
        const char *word, *meant;
    } cases[] = {
        {"cache", "cache"},
        {"cahce", "cache"},
        {"cach", "cache"},
        {"caches", "cache"},
        {"kache", "cache"},
        {"checkpoint_logsize", "checkpoint_log_size"},
        {"checkpoint-interval", "checkpoint_interval"},
        {"snyc", "sync"},
    };
    (void)state;
    for (size_t index = 0; index < sizeof cases / sizeof cases[0]; index++) {
        const char *found = nearest_word(cases[index].word, word_at);
        assert_non_null(found);
        assert_string_equal(found, cases[index].meant);
    }
}

static void what_is_like_none_is_not_guessed(void **state)
{
    static const char *const words[] = {
        "", "x", "rx", "kacke", "compression", "a word that is much longer than any that is known here"};
    (void)state;
    for (size_t index = 0; index < sizeof words / sizeof words[0]; index++)
        assert_null(nearest_word(words[index], word_at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_like_it_is_found),
        cmocka_unit_test(what_is_like_none_is_not_guessed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
