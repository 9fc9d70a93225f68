/*
 * tests/model/test_list_append_check.c - small histories, to see that the checker of lists finds what is forbidden and
 * lets pass what is not (tests/model/list_append.h).
 */
#include "tests/model/list_append.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STRICT 0u
#define MERGED LIST_STRICT
#define OTHER  (LIST_STRICT + 1)

struct small {
    struct list_history history;
    struct list_txn txns[4];
    uint32_t kept_whole; /* lists that the kill left as they were */
};

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct small));
    return *state == NULL;
}

static int teardown(void **state)
{
    struct small *small = *state;
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < small->txns[i].event_count; j++) {
            free(small->txns[i].events[j].seen.rows);
        }
    }
    for (unsigned i = 0; i < LIST_TABLES; i++) {
        free(small->history.lists[i].rows);
        free(small->history.kept[i].rows);
    }
    free(small);
    return 0;
}

/* A transaction that ran from one time to another. */
static struct list_txn *txn(struct small *small, uint64_t from, uint64_t to, enum list_outcome outcome)
{
    struct list_txn *made = &small->txns[small->history.count++];
    *made = (struct list_txn){.outcome = outcome, .began = from, .began_by = from + 1, .ends = to, .ended = to + 1};
    return made;
}

static void appends(struct list_txn *txn, unsigned table, uint32_t row)
{
    txn->events[txn->event_count++] = (struct list_event){.table = table, .row = row};
}

/* rows: as in "12", one digit each. */
static void add_rows(struct list_rows *list, const char *rows)
{
    for (; *rows != '\0'; rows++) {
        list_rows_add(list, (uint32_t)(*rows - '0'));
    }
}

static void reads(struct list_txn *txn, unsigned table, const char *rows)
{
    struct list_event *event = &txn->events[txn->event_count++];
    *event = (struct list_event){.table = table, .reads = true};
    add_rows(&event->seen, rows);
}

static void becomes(struct small *small, unsigned table, const char *rows)
{
    add_rows(&small->history.lists[table], rows);
}

static void kept(struct small *small, unsigned table, const char *rows)
{
    add_rows(&small->history.kept[table], rows);
    small->kept_whole |= 1u << table;
}

static bool is_good(struct small *small)
{
    small->history.txns = small->txns;
    if (small->history.kill_to == 0) {
        small->history.kill_from = 1000;
        small->history.kill_to = 1000;
    }
    for (unsigned i = 0; i < LIST_TABLES; i++) {
        for (size_t j = 0; j < small->history.lists[i].count && (small->kept_whole >> i & 1) == 0; j++) {
            list_rows_add(&small->history.kept[i], small->history.lists[i].rows[j]);
        }
    }
    return list_history_check(&small->history);
}

static void refuses(struct small *small, const char *why)
{
    assert_false(is_good(small));
    if (strstr(small->history.why, why) == NULL) {
        fail_msg("found \"%s\" instead of \"%s\"", small->history.why, why);
    }
}

static void write_skew_of_merged_appends_is_good(void **state)
{
    struct small *small = *state;
    struct list_txn *a = txn(small, 10, 20, LIST_COMMITTED);
    struct list_txn *b = txn(small, 11, 21, LIST_COMMITTED);
    reads(a, MERGED, "");
    appends(a, MERGED, 1);
    reads(a, MERGED, "1");
    reads(b, MERGED, "");
    appends(b, MERGED, 2);
    becomes(small, MERGED, "12");
    assert_true(is_good(small));
}

static void lost_append_is_found(void **state)
{
    struct small *small = *state;
    appends(txn(small, 10, 20, LIST_COMMITTED), MERGED, 1);
    refuses(small, "is lost");
}

static void row_of_an_abort_is_found(void **state)
{
    struct small *small = *state;
    appends(txn(small, 10, 20, LIST_ABORTED), MERGED, 1);
    becomes(small, MERGED, "1");
    refuses(small, "not committed");
}

static void aborted_read_is_found(void **state)
{
    struct small *small = *state;
    appends(txn(small, 10, 20, LIST_ABORTED), MERGED, 1);
    reads(txn(small, 11, 21, LIST_COMMITTED), MERGED, "1");
    refuses(small, "a read saw");
}

static void intermediate_read_is_found(void **state)
{
    struct small *small = *state;
    struct list_txn *a = txn(small, 10, 20, LIST_COMMITTED);
    appends(a, MERGED, 1);
    appends(a, MERGED, 2);
    reads(txn(small, 30, 40, LIST_COMMITTED), MERGED, "1");
    becomes(small, MERGED, "12");
    refuses(small, "part of a transaction");
}

static void mixed_rows_are_found(void **state)
{
    struct small *small = *state;
    struct list_txn *a = txn(small, 10, 20, LIST_COMMITTED);
    appends(a, MERGED, 1);
    appends(a, MERGED, 3);
    appends(txn(small, 10, 20, LIST_COMMITTED), MERGED, 2);
    becomes(small, MERGED, "123");
    refuses(small, "not behind the one before");
}

static void read_skew_is_found(void **state)
{
    struct small *small = *state;
    struct list_txn *a = txn(small, 10, 20, LIST_COMMITTED);
    struct list_txn *b = txn(small, 12, 30, LIST_ABORTED);
    appends(a, MERGED, 1);
    appends(a, OTHER, 2);
    a->ends = 11;
    reads(b, MERGED, "");
    reads(b, OTHER, "2");
    becomes(small, MERGED, "1");
    becomes(small, OTHER, "2");
    refuses(small, "in one of them only");
}

static void stale_read_is_found(void **state)
{
    struct small *small = *state;
    appends(txn(small, 10, 20, LIST_COMMITTED), MERGED, 1);
    reads(txn(small, 30, 40, LIST_COMMITTED), MERGED, "");
    becomes(small, MERGED, "1");
    refuses(small, "does not see it");
}

static void read_of_the_future_is_found(void **state)
{
    struct small *small = *state;
    appends(txn(small, 10, 20, LIST_COMMITTED), MERGED, 1);
    reads(txn(small, 11, 40, LIST_COMMITTED), MERGED, "1");
    becomes(small, MERGED, "1");
    refuses(small, "who sees it");
}

static void own_row_that_is_not_seen_is_found(void **state)
{
    struct small *small = *state;
    struct list_txn *a = txn(small, 10, 20, LIST_COMMITTED);
    appends(a, MERGED, 1);
    reads(a, MERGED, "");
    becomes(small, MERGED, "1");
    refuses(small, "own rows are missing");
}

static void lost_update_is_found(void **state)
{
    struct small *small = *state;
    appends(txn(small, 10, 20, LIST_COMMITTED), STRICT, 1);
    appends(txn(small, 11, 21, LIST_COMMITTED), STRICT, 2);
    becomes(small, STRICT, "12");
    refuses(small, "beside the one before it");
}

static void circle_of_writers_is_found(void **state)
{
    struct small *small = *state;
    struct list_txn *a = txn(small, 10, 20, LIST_COMMITTED);
    struct list_txn *b = txn(small, 10, 20, LIST_COMMITTED);
    appends(a, MERGED, 1);
    appends(a, OTHER, 2);
    appends(b, MERGED, 3);
    appends(b, OTHER, 4);
    becomes(small, MERGED, "13");
    becomes(small, OTHER, "42");
    refuses(small, "before itself");
}

/* The reader does not see c, who saw b, who saw the reader's own row. */
static void circle_with_one_reader_is_found(void **state)
{
    struct small *small = *state;
    struct list_txn *a = txn(small, 10, 20, LIST_COMMITTED);
    struct list_txn *b = txn(small, 10, 20, LIST_COMMITTED);
    b->began_by = 21;
    a->began_by = 21;
    reads(a, MERGED, "");
    reads(a, OTHER, "2");
    appends(b, OTHER, 2);
    struct list_txn *c = txn(small, 9, 19, LIST_COMMITTED);
    appends(c, MERGED, 3);
    reads(b, MERGED, "3");
    becomes(small, MERGED, "3");
    becomes(small, OTHER, "2");
    refuses(small, "that it depends on");
}

static void commit_torn_by_a_kill_is_found(void **state)
{
    struct small *small = *state;
    struct list_txn *a = txn(small, 10, 20, LIST_COMMITTED);
    appends(a, MERGED, 1);
    appends(a, OTHER, 2);
    becomes(small, MERGED, "1");
    becomes(small, OTHER, "2");
    kept(small, OTHER, "");
    refuses(small, "torn");
}

static void commit_lost_by_a_kill_is_found(void **state)
{
    struct small *small = *state;
    appends(txn(small, 10, 20, LIST_COMMITTED), MERGED, 1);
    becomes(small, MERGED, "1");
    kept(small, MERGED, "");
    refuses(small, "lost by the kill");
}

static void commit_under_way_at_a_kill_may_be_lost(void **state)
{
    struct small *small = *state;
    appends(txn(small, 10, 20, LIST_COMMITTED), MERGED, 1);
    becomes(small, MERGED, "1");
    kept(small, MERGED, "");
    small->history.kill_from = 15;
    small->history.kill_to = 16;
    assert_true(is_good(small));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(write_skew_of_merged_appends_is_good),
        CASE(lost_append_is_found),
        CASE(row_of_an_abort_is_found),
        CASE(aborted_read_is_found),
        CASE(intermediate_read_is_found),
        CASE(mixed_rows_are_found),
        CASE(read_skew_is_found),
        CASE(stale_read_is_found),
        CASE(read_of_the_future_is_found),
        CASE(own_row_that_is_not_seen_is_found),
        CASE(lost_update_is_found),
        CASE(circle_of_writers_is_found),
        CASE(circle_with_one_reader_is_found),
        CASE(commit_torn_by_a_kill_is_found),
        CASE(commit_lost_by_a_kill_is_found),
        CASE(commit_under_way_at_a_kill_may_be_lost),
    };
    return cmocka_run_group_tests_name("list_append_check", tests, NULL, NULL);
}
