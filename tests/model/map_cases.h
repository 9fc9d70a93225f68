/*
 * tests/model/map_cases.h - cases that each guard one step of building a free map in the background. test_maps runs them as they are,
 * test_txn_planted with the bug planted that leaves the step out.
 *
 * X(name of the bug in base/plant.def, case)
 */
#ifndef TBLFS_TESTS_MODEL_MAP_CASES_H
#define TBLFS_TESTS_MODEL_MAP_CASES_H

#include "tests/model/txn_rig.h"

#define MAP_CASES(X)                                                                                                   \
    X(TOUCHED_IGNORED, map_built_while_blocks_change_hands_equals_the_trees)                                           \
    X(PINNED_NOT_MARKED, map_built_beside_a_transaction_has_its_blocks)                                                \
    X(FORK_NOT_WALKED, map_built_from_the_fork_has_its_blocks)                                                         \
    X(MAP_NOT_ORDERED_AGAIN, map_of_a_relation_that_comes_back_is_built)                                               \
    X(HOLDER_CLOSED_WHILE_WALKED, holder_that_is_walked_is_not_closed)

#define MAP_CASE_DECLARATION(plant, name) void name(void **state);
MAP_CASES(MAP_CASE_DECLARATION)
#undef MAP_CASE_DECLARATION

#define LARGE_LEAVES 100u
#define LEAF_BYTES   ((uint64_t)PAGE_PAYLOAD_SIZE)

/* A table of LARGE_LEAVES leaves that a checkpoint has, in a store that was killed and opened again: nothing is known of its file. */
void map_make_large(struct txn_rig *rig, const char *path);
void map_write_at(struct txn_rig *rig, struct view *view, const char *path, uint64_t offset, size_t size);
/* A reference to the table's relation. */
struct relation *map_relation_of(struct txn_rig *rig, const char *path);
uint64_t map_waiting(struct txn_rig *rig);
void map_step_until_idle(struct txn_rig *rig);

#endif
