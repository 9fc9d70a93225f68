/*
 * base/diag.c - messages, and the one door for reports of damage.
 *
 * Invariants:
 *   DIAG-1  emit gets one line: control characters (a file's name may hold a newline) are shown as '?'.
 *   DIAG-2  A line that is too long is cut, and says so by ending in "...".
 *   DIAG-3  Every call of diag_damage is counted, whatever the level.
 *
 * Locking: none. The line is built on the caller's stack, the counter is atomic, and stdio keeps lines of different
 * threads apart.
 */
#include "base/diag.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LINE_SIZE 1024u

struct line {
    char text[LINE_SIZE];
    size_t length; /* without the terminating NUL */
};

static void line_add_va(struct line *line, const char *fmt, va_list args) PRINTF_LIKE(2, 0);
static void line_add(struct line *line, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void line_add_va(struct line *line, const char *fmt, va_list args)
{
    const size_t room = LINE_SIZE - line->length;
    const int wanted = vsnprintf(line->text + line->length, room, fmt, args);
    if (wanted < 0)
        return;
    if ((size_t)wanted < room) {
        line->length += (size_t)wanted;
        return;
    }
    line->length = LINE_SIZE - 1;
    memcpy(line->text + LINE_SIZE - 4, "...", 4);
}

static void line_add(struct line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    line_add_va(line, fmt, args);
    va_end(args);
}

static void line_emit(struct line *line, struct diag *diag, enum diag_level level)
{
    for (size_t index = 0; index < line->length; index++) {
        const unsigned char byte = (unsigned char)line->text[index];
        if (byte < 0x20 || byte == 0x7f)
            line->text[index] = '?';
    }
    diag->emit(diag, level, line->text);
}

void diag_log(struct diag *diag, enum diag_level level, const char *fmt, ...)
{
    if (level > diag->max_level)
        return;
    struct line line = {.length = 0};
    va_list args;
    va_start(args, fmt);
    line_add_va(&line, fmt, args);
    va_end(args);
    line_emit(&line, diag, level);
}

int diag_damage(struct diag *diag, const char *file, block_no block, const char *field, const char *fmt, ...)
{
    atomic_fetch_add_explicit(&diag->damage_count, 1, memory_order_relaxed);
    struct line line = {.length = 0};
    line_add(&line, "damage: %s", file);
    if (block != BLOCK_NONE)
        line_add(&line, ": block %u", (unsigned)block);
    line_add(&line, ": %s: ", field);
    va_list args;
    va_start(args, fmt);
    line_add_va(&line, fmt, args);
    va_end(args);
    line_emit(&line, diag, DIAG_ERROR);
    return -EIO;
}

const char *diag_level_name(enum diag_level level)
{
    switch (level) {
    case DIAG_ERROR:
        return "error";
    case DIAG_WARNING:
        return "warning";
    case DIAG_INFO:
        return "info";
    case DIAG_DEBUG:
        return "debug";
    }
    return "message";
}

static void emit_stderr(struct diag *diag, enum diag_level level, const char *line)
{
    (void)diag;
    fprintf(stderr, "tblfs: %s: %s\n", diag_level_name(level), line);
}

static void emit_nowhere(struct diag *diag, enum diag_level level, const char *line)
{
    (void)diag;
    (void)level;
    (void)line;
}

void diag_init_stderr(struct diag *diag, enum diag_level max_level)
{
    diag->emit = emit_stderr;
    diag->max_level = max_level;
    atomic_init(&diag->damage_count, 0);
}

void diag_init_silent(struct diag *diag)
{
    diag->emit = emit_nowhere;
    diag->max_level = DIAG_ERROR;
    atomic_init(&diag->damage_count, 0);
}
