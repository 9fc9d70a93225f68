/*
 * base/plant.c - which planted bug is on. Empty but in builds with TBLFS_PLANT.
 */
#include "base/plant.h"

#ifdef TBLFS_PLANT

#include <stddef.h>

static enum plant chosen;

static const struct {
    const char *name, *text;
    bool needs_case;
} bugs[PLANT_COUNT] = {
#define PLANT_BUG(name, text)      [PLANT_##name] = {#name, text, false},
#define PLANT_CASE_BUG(name, text) [PLANT_##name] = {#name, text, true},
#include "base/plant.def"
};

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

#endif
