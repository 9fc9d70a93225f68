/*
 * tools/options.c - options that a tool does not have.
 *
 * The ones that it has are those of its usage, and of the lines of its help that begin with one. (Completion finds them in the same way.)
 */
#include "base/nearest.h"
#include "tools/tools.h"

#include <string.h>

#define OPTIONS_MAX 32u
#define OPTION_SIZE 32u
#define LETTERS     "abcdefghijklmnopqrstuvwxyz-"

struct known {
    char words[OPTIONS_MAX][OPTION_SIZE]; /* with their dashes */
    const char *list[OPTIONS_MAX + 1];    /* of them; NULL behind the last one */
    size_t count;
};

/* Adds each --word that stands in the first `size` bytes of a text. */
static void add_options_in(struct known *known, const char *text, size_t size)
{
    const char *end = text + size;
    while ((text = memmem(text, (size_t)(end - text), "--", 2)) != NULL) {
        const size_t length = strspn(text, LETTERS);
        if (length > 3 && length < OPTION_SIZE && known->count < OPTIONS_MAX) {
            char *word = known->words[known->count];
            known->list[known->count++] = word;
            memcpy(word, text, length);
            word[length] = '\0';
        }
        text += length;
    }
}

static void add_options_of(struct known *known, const struct tool *tool)
{
    add_options_in(known, tool->arguments, strlen(tool->arguments));
    for (const char *line = tool->help; line != NULL && *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        if (strncmp(line, "  -", 3) == 0)
            add_options_in(known, line, length);
        line += length + (line[length] == '\n');
    }
}

int tool_unknown_option(const struct tool *tool, const char *option)
{
    struct known known = {.count = 0};
    char name[OPTION_SIZE];
    const size_t length = strcspn(option, "="); /* "--option=value" */
    add_options_of(&known, tool);
    (void)snprintf(name, sizeof name, "%.*s", (int)length, option);
    const char *nearest = strncmp(option, "--", 2) == 0 ? nearest_of(name, known.list) : NULL;
    if (nearest == NULL)
        return tool_usage_error(tool, "unknown option '%s'", option);
    return tool_usage_error(tool, "unknown option '%s' (is it %s?)", option, nearest);
}
