/*
 * tests/unit/base/test_progress.c - what a terminal (a pty) gets to see of something under way, and what no terminal sees.
 */
#include "base/progress.h"
#include "base/types.h"

#include <fcntl.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SEEN_SIZE 65536u

/* Somebody at a terminal: `out` is what the program writes to. */
struct watcher {
    int fd;
    FILE *out;
    char seen[SEEN_SIZE];
    size_t size;
};

static void watcher_open(struct watcher *watcher, bool terminal)
{
    int fds[2];
    assert_int_equal(terminal ? openpty(&fds[0], &fds[1], NULL, NULL, NULL) : pipe2(fds, O_CLOEXEC), 0);
    *watcher = (struct watcher){.fd = fds[0], .out = fdopen(fds[1], "w")};
    assert_non_null(watcher->out);
}

static void watcher_close(struct watcher *watcher)
{
    fclose(watcher->out);
    close(watcher->fd);
}

/* False: the other end is closed. */
static bool watch(struct watcher *watcher)
{
    assert_true(watcher->size + 1 < SEEN_SIZE);
    const ssize_t got = read(watcher->fd, watcher->seen + watcher->size, SEEN_SIZE - 1 - watcher->size);
    watcher->size += got > 0 ? (size_t)got : 0;
    watcher->seen[watcher->size] = '\0';
    return got > 0;
}

/* Waits until `text` is seen; what came up to it is forgotten. */
static void expect(struct watcher *watcher, const char *text)
{
    const char *found;
    while ((found = strstr(watcher->seen, text)) == NULL)
        assert_true(watch(watcher));
    const size_t forget = (size_t)(found - watcher->seen) + strlen(text);
    memmove(watcher->seen, watcher->seen + forget, watcher->size - forget + 1);
    watcher->size -= forget;
}

/* What is under way: moved on by the test. */
struct work {
    _Atomic bool replays;
    _Atomic uint64_t done, total;
};

static void look_at_work(void *arg, struct progress_state *out_state)
{
    struct work *work = arg;
    out_state->what = work->replays ? "replaying" : "reading";
    out_state->done = work->done;
    out_state->total = work->total;
    if (work->replays)
        (void)snprintf(out_state->detail, sizeof out_state->detail, "%d records", 7);
}

static void start(struct progress *progress, struct watcher *watcher, struct work *work, uint64_t delay_ms)
{
    const struct progress_options options = {
        .out = watcher->out, .delay_ms = delay_ms, .look = look_at_work, .arg = work};
    progress_start(progress, &options);
}

static void terminal_sees_part_detail_and_time_left(void **state)
{
    static struct watcher watcher;
    struct progress progress;
    struct work work = {.done = 100, .total = 400};
    (void)state;
    watcher_open(&watcher, true);
    start(&progress, &watcher, &work, 0);
    assert_true(progress.runs);
    expect(&watcher, "reading [######..................]  25%");
    work.done = 200;
    expect(&watcher, " 50%, ");
    expect(&watcher, " s left");
    work.done = 0;
    work.replays = true;
    expect(&watcher, "replaying [........................]   0%, 7 records   ");
    work.done = 500; /* never more than all of it */
    expect(&watcher, "replaying [########################] 100%, 7 records   ");
    progress_stop(&progress);
    watcher_close(&watcher);
}

static void unknown_total_is_shown_without_a_bar(void **state)
{
    static struct watcher watcher;
    struct progress progress;
    struct work work = {.done = 100};
    (void)state;
    watcher_open(&watcher, true);
    start(&progress, &watcher, &work, 0);
    expect(&watcher, "\rreading   ");
    progress_stop(&progress);
    watcher_close(&watcher);
}

static void line_is_taken_away_at_the_end(void **state)
{
    static struct watcher watcher;
    struct progress progress;
    struct work work = {.done = 1, .total = 2};
    (void)state;
    watcher_open(&watcher, true);
    start(&progress, &watcher, &work, 0);
    expect(&watcher, " 50%");
    progress_stop(&progress);
    expect(&watcher, PROGRESS_ERASE);
    assert_int_equal(watcher.size, 0);
    watcher_close(&watcher);
}

static void what_ends_soon_shows_nothing(void **state)
{
    static struct watcher watcher;
    struct progress progress;
    struct work work = {.done = 1, .total = 2};
    (void)state;
    watcher_open(&watcher, true);
    start(&progress, &watcher, &work, UINT32_MAX); /* it does not take that long */
    progress_stop(&progress);
    fprintf(watcher.out, "end");
    fflush(watcher.out);
    assert_true(watch(&watcher));
    assert_string_equal(watcher.seen, "end");
    watcher_close(&watcher);
}

static void no_terminal_sees_nothing(void **state)
{
    static struct watcher watcher;
    struct progress progress;
    struct work work = {.done = 1, .total = 2};
    (void)state;
    watcher_open(&watcher, false);
    start(&progress, &watcher, &work, 0);
    assert_false(progress.runs);
    progress_stop(&progress);
    fclose(watcher.out);
    assert_false(watch(&watcher));
    assert_int_equal(watcher.size, 0);
    close(watcher.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terminal_sees_part_detail_and_time_left),
        cmocka_unit_test(unknown_total_is_shown_without_a_bar),
        cmocka_unit_test(line_is_taken_away_at_the_end),
        cmocka_unit_test(what_ends_soon_shows_nothing),
        cmocka_unit_test(no_terminal_sees_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
