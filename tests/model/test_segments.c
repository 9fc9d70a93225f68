/*
 * tests/model/test_segments.c - what the store says of its position, of the files of its log, and of its checkpoints, agrees with what it
 * does: commits, checkpoints, an archive that does not answer, a transaction that stays open.
 */
#include "tests/model/txn_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEGMENT    (UINT32_C(64) << 10)
#define BACKOFF_NS (UINT64_C(61) * 1000000000)

static bool archive_answers;

static int put(void *arg, const char *path, const char *name)
{
    (void)arg;
    (void)path;
    (void)name;
    return archive_answers ? 0 : -EHOSTUNREACH;
}

static int setup_small(void **state)
{
    return txn_rig_setup_like(state, &(struct txn_rig){.log_segment_size = SEGMENT});
}

static int setup_archive(void **state)
{
    static const struct archive_target target = {.put = put};
    archive_answers = false;
    return txn_rig_setup_like(state, &(struct txn_rig){.log_segment_size = SEGMENT, .archive = &target});
}

/* ---- looking ---- */

struct seen {
    unsigned by_state[STORE_SEGMENT_STATES], count;
    uint64_t last_end;
    lsn_no current_start, current_end;
    bool wrong; /* said behind the lock */
};

/* Each begins where the one before has room to, and the log is as one thinks: old, needed, current, prepared. */
static int see(void *arg, const struct store_segment *segment)
{
    struct seen *seen = arg;
    seen->by_state[segment->state]++;
    seen->count++;
    if (segment->state == STORE_SEGMENT_SPARE) {
        return 0;
    }
    seen->wrong |= segment->start != segment->number * SEGMENT || segment->end - segment->start != segment->bytes ||
                   segment->start < seen->last_end;
    seen->last_end = segment->end;
    if (segment->state == STORE_SEGMENT_CURRENT) {
        seen->wrong |= seen->by_state[STORE_SEGMENT_PREPARED] > 0;
        seen->current_start = segment->start;
        seen->current_end = segment->end;
    }
    return 0;
}

static struct seen look(struct txn_rig *rig)
{
    struct seen seen = {.count = 0};
    struct store_position position;
    assert_int_equal(store_each_segment(rig->store, see, &seen), 0);
    assert_false(seen.wrong);
    store_get_position(rig->store, &position);
    assert_int_equal(seen.by_state[STORE_SEGMENT_CURRENT], 1);
    assert_in_range(position.lsn, seen.current_start, seen.current_end);
    return seen;
}

/* Several segments full of records. */
static void log_much(struct txn_rig *rig, struct view *view)
{
    char *rows = shell_rows("much", 100);
    const struct seen before = look(rig);
    struct seen now = before;
    while (now.current_start < before.current_start + 3 * (uint64_t)SEGMENT) {
        assert_int_equal(shell_append(rig, view, "table", rows), 0);
        now = look(rig);
    }
    free(rows);
}

struct lines {
    struct store_checkpoint_line last;
    unsigned count;
    bool wrong;
};

static int keep_line(void *arg, const struct store_checkpoint_line *line)
{
    struct lines *lines = arg;
    lines->wrong |= lines->count > 0 && (line->number <= lines->last.number || line->lsn < lines->last.lsn ||
                                         line->time_ns < lines->last.time_ns || line->epoch < lines->last.epoch);
    lines->last = *line;
    lines->count++;
    return 0;
}

static struct lines look_at_lines(struct txn_rig *rig)
{
    struct lines lines = {.count = 0};
    assert_int_equal(store_each_checkpoint(rig->store, keep_line, &lines), 0);
    assert_false(lines.wrong);
    return lines;
}

/* ---- position ---- */

static int last_receipt(void *arg, const struct store_commit *commit)
{
    *(struct store_commit *)arg = *commit;
    return 0;
}

static void position_is_behind_the_last_commit(void **state)
{
    TXN_RIG;
    struct store_position before, after, later;
    struct store_commit receipt = {.number = 0};
    store_get_position(rig->store, &before);
    assert_int_equal(before.timeline, 1);
    assert_int_equal(before.commits, 0);
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "table", "row\n"), 0);
    store_get_position(rig->store, &after);
    assert_int_equal(after.commits, 0);
    shell_must_commit(txn);
    store_get_position(rig->store, &after);
    assert_int_equal(store_each_commit(rig->store, last_receipt, &receipt), 0);
    assert_int_equal(after.commits, receipt.number);
    assert_int_equal(after.commits, 1);
    assert_in_range(receipt.lsn, before.lsn, after.lsn - 1);
    txn_rig_kill_and_reopen(rig);
    store_get_position(rig->store, &later);
    assert_int_equal(later.commits, 1);
    assert_true(later.lsn > after.lsn);
}

/* ---- segments ---- */

static void segments_are_needed_until_a_checkpoint(void **state)
{
    TXN_RIG;
    log_much(rig, live);
    assert_true(look(rig).by_state[STORE_SEGMENT_NEEDED] >= 3);
    assert_int_equal(store_sync(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    struct seen seen = look(rig);
    assert_int_equal(seen.by_state[STORE_SEGMENT_NEEDED], 0);
    assert_int_equal(seen.by_state[STORE_SEGMENT_RECYCLABLE], 0); /* they are gone, but for one */
    assert_int_equal(seen.by_state[STORE_SEGMENT_SPARE], 1);
}

static void segments_of_an_open_transaction_say_so(void **state)
{
    TXN_RIG;
    struct store_txn *txn = shell_begin(rig);
    assert_int_equal(shell_append(rig, store_txn_view(txn), "mine", "row\n"), 0);
    log_much(rig, live);
    assert_int_equal(store_sync(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_true(look(rig).by_state[STORE_SEGMENT_TRANSACTION] >= 3);
    store_txn_abort(txn);
    store_txn_put(txn);
    assert_int_equal(shell_append(rig, live, "table", "row\n"), 0);
    assert_int_equal(store_sync(rig->store), 0);
    assert_int_equal(store_checkpoint(rig->store), 0);
    assert_int_equal(look(rig).by_state[STORE_SEGMENT_TRANSACTION], 0);
}

static void segments_wait_for_the_archive(void **state)
{
    TXN_RIG;
    struct archive_status status;
    log_much(rig, live);
    assert_int_equal(store_sync(rig->store), 0);
    store_step(rig->store);
    assert_int_equal(store_checkpoint(rig->store), 0);
    store_get_archive_status(rig->store, &status);
    assert_true(status.waiting >= 3);
    assert_int_equal(look(rig).by_state[STORE_SEGMENT_ARCHIVING], status.waiting);
    txn_rig_kill_and_reopen(rig); /* those of a life that is over wait too */
    store_get_archive_status(rig->store, &status);
    assert_true(status.waiting >= 3);
    assert_int_equal(look(rig).by_state[STORE_SEGMENT_ARCHIVING], status.waiting);
    archive_answers = true;
    mem_device_advance_ns(rig->mem, BACKOFF_NS);
    store_step(rig->store);
    assert_int_equal(look(rig).by_state[STORE_SEGMENT_ARCHIVING], 0);
}

/* ---- checkpoints ---- */

static void checkpoint_has_a_line_that_says_why(void **state)
{
    TXN_RIG;
    struct store_backup *backup = NULL;
    struct store_stats before, after;
    const unsigned old = look_at_lines(rig).count;
    assert_int_equal(shell_append(rig, live, "table", "row\n"), 0);
    store_get_stats(rig->store, &before);
    assert_int_equal(store_checkpoint(rig->store), 0);
    store_get_stats(rig->store, &after);
    struct lines lines = look_at_lines(rig);
    assert_int_equal(lines.count, old + 1);
    assert_int_equal(lines.last.cause, CHECKPOINT_ASKED);
    assert_int_equal(lines.last.number, after.control_number);
    assert_true(lines.last.pages > 0);
    assert_int_equal(lines.last.pages, after.checkpoint_pages_written - before.checkpoint_pages_written);
    assert_in_range(lines.last.log_bytes, 1, after.log.bytes_written);
    assert_int_equal(store_checkpoint(rig->store), 0); /* nothing has changed: none is taken */
    assert_int_equal(look_at_lines(rig).count, old + 1);
    assert_int_equal(store_backup_begin(rig->store, &backup), 0);
    store_backup_end(backup);
    lines = look_at_lines(rig);
    assert_int_equal(lines.count, old + 2);
    assert_int_equal(lines.last.cause, CHECKPOINT_BACKUP);
    assert_int_equal(shell_append(rig, live, "table", "row\n"), 0);
    txn_rig_kill_and_reopen(rig);
    lines = look_at_lines(rig);
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines.last.cause, CHECKPOINT_START);
    for (unsigned cause = 0; cause < CHECKPOINT_CAUSES; cause++) {
        assert_non_null(store_checkpoint_cause_name(cause));
    }
}

static void lines_of_checkpoints_are_the_last_ones(void **state)
{
    TXN_RIG;
    for (unsigned i = 0; i < STORE_CHECKPOINT_LINES + 7; i++) {
        assert_int_equal(shell_append(rig, live, "table", "row\n"), 0);
        assert_int_equal(store_checkpoint(rig->store), 0);
    }
    const struct lines lines = look_at_lines(rig);
    struct store_stats stats;
    store_get_stats(rig->store, &stats);
    assert_int_equal(lines.count, STORE_CHECKPOINT_LINES);
    assert_int_equal(lines.last.number, stats.control_number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TXN_RIG_CASE(position_is_behind_the_last_commit),
        cmocka_unit_test_setup_teardown(segments_are_needed_until_a_checkpoint, setup_small, txn_rig_teardown),
        cmocka_unit_test_setup_teardown(segments_of_an_open_transaction_say_so, setup_small, txn_rig_teardown),
        cmocka_unit_test_setup_teardown(segments_wait_for_the_archive, setup_archive, txn_rig_teardown),
        TXN_RIG_CASE(checkpoint_has_a_line_that_says_why),
        TXN_RIG_CASE(lines_of_checkpoints_are_the_last_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
