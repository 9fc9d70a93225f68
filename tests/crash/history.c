/*
 * tests/crash/history.c - see the header.
 */
#include "tests/crash/history.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

_Noreturn void history_fail(const struct history *history, const char *fmt, ...)
{
    va_list args;
    fprintf(stderr, "seed %" PRIu64 ": ", history->seed);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\nreplay with: make check TEST=%s SEED=%" PRIu64 "\n", history->test_name, history->seed);
    fail();
    abort();
}

void history_must(const struct history *history, int rc, const char *what)
{
    if (rc != 0) {
        history_fail(history, "%s answers %d (%s)", what, rc, strerror(-rc));
    }
}

/* ---- the life ---- */

static int last_commit(void *arg, const struct store_commit *commit)
{
    struct moment *moment = arg;
    (void)snprintf(moment->name, sizeof moment->name, "%s", commit->name);
    return 0;
}

void history_note_moment(struct history *history, uint64_t commits_before)
{
    struct life *life = &history->life;
    struct moment *moment = &history->moments[life->op];
    struct store_stats stats;
    store_get_stats(life->store, &stats);
    moment->lsn = stats.log.end - 1;
    moment->time_ns = (int64_t)io_realtime_ns(life->dev);
    if (life->commits != commits_before) {
        history_must(history, store_each_commit(life->store, last_commit, moment), "store_each_commit");
    }
}

void history_operate(struct history *history)
{
    struct life *life = &history->life;
    const uint64_t commits = life->commits;
    if (!life_operate(life)) {
        history_fail(history, "operation %" PRIu64 " (%s): the tree cannot be read", life->op, life->note);
    }
    history_note_moment(history, commits);
    if (test_random_chance(&history->random, 10)) {
        mem_device_advance_ns(history->mem, test_random_below(&history->random, 50000000));
        store_step(life->store);
    }
    if (!life->stays_open && test_random_chance(&history->random, 2)) {
        life_abandon(life);
        history_must(history, life_open(life), "opening after a kill");
    }
}

/* The base is copied behind some more operations, which drop and reuse what they can. */
void history_take_base(struct history *history)
{
    struct life *life = &history->life;
    struct store_backup *backup = NULL;
    struct base_dir_sink files;
    struct base_sink sink;
    history->base_op = life->op;
    history_must(history, store_backup_begin(life->store, &backup), "store_backup_begin");
    life->stays_open = true;
    for (unsigned i = 0; i < 40; i++) {
        history_operate(history);
    }
    history_must(history, store_checkpoint(life->store), "store_checkpoint");
    history_must(history, base_dir_sink_init(&files, life->dev, HISTORY_BASE, &sink), "base_dir_sink_init");
    const struct base_copy_options options = {.dev = life->dev,
                                              .diag = &life->diag.diag,
                                              .dir = CRASH_DIR,
                                              .header = store_backup_header(backup),
                                              .sink = &sink};
    history_must(history, base_copy(&options), "base_copy");
    base_dir_sink_destroy(&files);
    store_backup_end(backup);
    life->stays_open = false;
}

void history_live(struct history *history)
{
    struct life *life = &history->life;
    history_must(history, life_begin(life), "life_begin");
    history_note_moment(history, life->commits);
    const uint64_t base_at = test_random_range(&history->random, 20, HISTORY_OPERATIONS / 2);
    while (life->op < HISTORY_OPERATIONS) {
        history_operate(history);
        if (life->op == base_at) {
            history_take_base(history);
        }
    }
    history_must(history, life_close(life), "life_close");
    history_must(history, life_open(life), "opening again"); /* what the close could not archive is archived now */
    store_step(life->store);
    history_must(history, life_close(life), "life_close");
    assert_int_equal(atomic_load(&life->diag.diag.damage_count), 0);
}

void history_init(struct history *history, const char *test_name, uint64_t seed)
{
    memset(history, 0, sizeof *history);
    history->test_name = test_name;
    history->seed = seed;
    test_random_init(&history->random, seed * 7 + 1);
    history->mem = life_mkfs(seed);
    life_init(&history->life, mem_device_io(history->mem), seed, HISTORY_OPERATIONS + 1);
    history->archive = (struct archive_dir){
        .dev = mem_device_io(history->mem), .diag = &history->life.diag.diag, .dir = HISTORY_ARCHIVE};
    history->target = (struct archive_target){.put = archive_dir_put, .arg = &history->archive};
    history->life.archive = &history->target;
    history->life.transactions = true;
    history->life.bulk = seed % 2 == 0;
    assert_int_equal(io_make_dir(mem_device_io(history->mem), HISTORY_ARCHIVE), 0);
}

void history_free(struct history *history)
{
    life_free(&history->life);
    mem_device_destroy(history->mem);
}
