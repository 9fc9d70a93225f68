/*
 * base/progress.c - see the header.
 *
 *     replaying the log [##########..............]  42%, 123456 records, 12 s left
 *
 * What is left is reckoned from how fast it went since it began (since `what` became another).
 */
#include "base/progress.h"

#include "base/io.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define PERIOD_MS 200u
#define BAR_WIDTH 24u

static_assert(sizeof PROGRESS_ERASE - 1 == PROGRESS_LINE_WIDTH + 2, "it clears a whole line");

struct line {
    char text[PROGRESS_LINE_WIDTH + 1];
    size_t length;
};

static void line_add(struct line *line, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void line_add(struct line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const size_t room = sizeof line->text - line->length;
    const int wanted = vsnprintf(line->text + line->length, room, fmt, args);
    va_end(args);
    if (wanted > 0)
        line->length += (size_t)wanted < room ? (size_t)wanted : room - 1;
}

static void line_add_bar(struct line *line, double part)
{
    char bar[BAR_WIDTH + 1];
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)(part * BAR_WIDTH));
    bar[BAR_WIDTH] = '\0';
    line_add(line, " [%s] %3u%%", bar, (unsigned)(part * 100));
}

static void line_add_left(struct line *line, const struct progress *progress, const struct progress_state *state)
{
    const uint64_t elapsed_ns = io_monotonic_ns(io_real_device()) - progress->since_ns;
    if (state->done <= progress->done_then || state->done > state->total)
        return;
    const double per_unit_ns = (double)elapsed_ns / (double)(state->done - progress->done_then);
    const double left_s = per_unit_ns * (double)(state->total - state->done) / 1e9;
    line_add(line, ", %" PRIu64 " s left", (uint64_t)left_s + 1);
}

static void draw(struct progress *progress, const struct progress_state *state)
{
    struct line line = {.length = 0};
    line_add(&line, "%s", state->what);
    if (state->total != 0)
        line_add_bar(&line, state->done >= state->total ? 1 : (double)state->done / (double)state->total);
    if (state->detail[0] != '\0')
        line_add(&line, ", %s", state->detail);
    if (state->total != 0)
        line_add_left(&line, progress, state);
    fprintf(progress->options.out, "\r%-*s", PROGRESS_LINE_WIDTH, line.text);
    fflush(progress->options.out);
}

/* Looks, and remembers when what is under way began. */
static void look(struct progress *progress, struct progress_state *out_state)
{
    *out_state = (struct progress_state){0};
    progress->options.look(progress->options.arg, out_state);
    if (out_state->what == progress->what && out_state->done >= progress->done_then)
        return;
    progress->what = out_state->what;
    progress->since_ns = io_monotonic_ns(io_real_device());
    progress->done_then = out_state->done;
}

static bool wait_until_finished(struct progress *progress, uint64_t timeout_ms)
{
    mutex_lock(&progress->lock);
    if (!progress->finished)
        (void)condvar_wait_ms(&progress->changed, &progress->lock, timeout_ms);
    const bool finished = progress->finished;
    mutex_unlock(&progress->lock);
    return finished;
}

static void *progress_main(void *arg)
{
    struct progress *progress = arg;
    const uint64_t start_ns = io_monotonic_ns(io_real_device());
    const uint64_t delay_ns = progress->options.delay_ms * 1000000;
    struct progress_state state;
    do {
        look(progress, &state);
        progress->drawn = state.what != NULL && io_monotonic_ns(io_real_device()) - start_ns >= delay_ns;
        if (progress->drawn)
            draw(progress, &state);
    } while (!wait_until_finished(progress, PERIOD_MS));
    return NULL;
}

void progress_start(struct progress *progress, const struct progress_options *options)
{
    *progress = (struct progress){.options = *options};
    mutex_init(&progress->lock, LOCK_RANK_LEAF);
    condvar_init(&progress->changed);
    progress->runs =
        isatty(fileno(options->out)) != 0 && pthread_create(&progress->thread, NULL, progress_main, progress) == 0;
}

void progress_stop(struct progress *progress)
{
    mutex_lock(&progress->lock);
    progress->finished = true;
    condvar_signal(&progress->changed);
    mutex_unlock(&progress->lock);
    if (progress->runs)
        (void)pthread_join(progress->thread, NULL);
    if (progress->drawn) {
        fputs(PROGRESS_ERASE, progress->options.out);
        fflush(progress->options.out);
    }
    condvar_destroy(&progress->changed);
    mutex_destroy(&progress->lock);
}
