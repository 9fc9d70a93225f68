/*
 * base/plant.c - which planted bug is on. Empty but in builds with TBLFS_PLANT.
 */
#include "base/plant.h"

#ifdef TBLFS_PLANT

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static enum plant chosen;

static const struct {
    const char *name, *text;
    bool needs_case;
    const char *program; /* NULL: no PLANT_MODEL_BUG */
} bugs[PLANT_COUNT] = {
#define PLANT_BUG(name, text)                [PLANT_##name] = {#name, text, false, NULL},
#define PLANT_CASE_BUG(name, text)           [PLANT_##name] = {#name, text, true, NULL},
#define PLANT_MODEL_BUG(name, program, text) [PLANT_##name] = {#name, text, false, program},
#include "base/plant.def"
};

/* Before main: any test program can be run with a bug. */
__attribute__((constructor)) static void choose_from_environment(void)
{
    const char *name = getenv("PLANT_BUG");
    for (int i = PLANT_NONE + 1; name != NULL && i < PLANT_COUNT; i++) {
        if (strcmp(name, bugs[i].name) == 0) {
            chosen = (enum plant)i;
        }
    }
}

void plant_choose(enum plant plant)
{
    chosen = plant;
}

bool plant_is(enum plant plant)
{
    return plant == chosen;
}

const char *plant_name(enum plant plant)
{
    return bugs[plant].name;
}

const char *plant_text(enum plant plant)
{
    return bugs[plant].text;
}

bool plant_needs_case(enum plant plant)
{
    return bugs[plant].needs_case;
}

const char *plant_program(enum plant plant)
{
    return bugs[plant].program;
}

#endif
