/*
 * tests/model/txn_cases.h - cases that each guard one step of closing a transaction. test_txn_edges runs them as they are,
 * test_txn_planted with the bug planted that leaves the step out.
 *
 * X(name of the bug in base/plant.def, case)
 */
#ifndef TBLFS_TESTS_MODEL_TXN_CASES_H
#define TBLFS_TESTS_MODEL_TXN_CASES_H

#define TXN_CASES(X)                                                                                                   \
    X(COMMIT_WITHOUT_CHECK, appends_without_newline_conflict)                                                          \
    X(MERGED_TAIL_FREED_TWICE, large_appends_on_both_sides_merge)                                                      \
    X(REFERRED_BLOCKS_REUSED, pages_cut_off_inside_stay_until_a_checkpoint)                                            \
    X(NUMBERS_NOT_CHECKED, table_rewritten_before_the_gate_closes_has_a_number_of_its_own)                             \
    X(NAMES_NOTED_EARLY, failed_close_removes_no_names)                                                                \
    X(NAMES_NOTED_EARLY, dropped_table_that_is_opened_meanwhile_is_dropped)                                            \
    X(OLD_VERSION_NOT_HELD, old_version_closed_while_commit_waits_goes_once)                                           \
    X(UNLINKED_REPLAYED, write_to_unlinked_file_is_replayed)                                                           \
    X(COMPACTION_IGNORES_TRANSACTIONS, table_written_in_transaction_is_left_alone)                                     \
    X(COMPACTED_RELATION_FREED, old_file_stays_for_a_transaction)                                                      \
    X(COMPACTION_NOT_UNDONE, commit_brings_the_old_file_back)                                                          \
    X(PINNED_FILE_UNLINKED, old_file_stays_for_the_log)                                                                \
    X(PAGES_TAKEN_FROM_ANOTHER_RELATION, bulk_append_behind_a_compaction_is_replayed)

#define TXN_CASE_DECLARATION(plant, name) void name(void **state);
TXN_CASES(TXN_CASE_DECLARATION)
#undef TXN_CASE_DECLARATION

#endif
