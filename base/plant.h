/*
 * base/plant.h - bugs that can be planted, to see that the crash harness finds them (tests/crash/test_planted.c), or
 * a case that was made for one (tests/model/test_txn_planted.c), or the tests of transactions do
 * (tests/model/test_programs_planted.c).
 *
 * PLANT(NAME) is the constant false, unless the build is made with -DTBLFS_PLANT (make PLANT=1); there it is true while
 * a test has chosen that bug, or the environment has: PLANT_BUG=NAME. base/plant.def lists them.
 */
#ifndef TBLFS_BASE_PLANT_H
#define TBLFS_BASE_PLANT_H

#include <stdbool.h>

enum plant {
    PLANT_NONE,
#define PLANT_BUG(name, text)                PLANT_##name,
#define PLANT_CASE_BUG(name, text)           PLANT_##name,
#define PLANT_MODEL_BUG(name, program, text) PLANT_##name,
#include "base/plant.def"
#undef PLANT_BUG
#undef PLANT_CASE_BUG
#undef PLANT_MODEL_BUG
    PLANT_COUNT,
};

#ifdef TBLFS_PLANT
#define PLANT(name) plant_is(PLANT_##name)
/* One thread; before anything is opened. */
void plant_choose(enum plant plant);
bool plant_is(enum plant plant);
const char *plant_name(enum plant plant);
const char *plant_text(enum plant plant);
/* It takes a case made for it (tests/model/txn_cases.h): the crash harness need not find it. */
bool plant_needs_case(enum plant plant);
/* A crash does not show it, or hardly ever: the test of this name finds it. NULL: not such a one. */
const char *plant_program(enum plant plant);
#else
#define PLANT(name) false
#endif

#endif
