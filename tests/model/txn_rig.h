/*
 * tests/model/txn_rig.h - a store on a memory device, and what one does to it as in a shell: by path, in the live tree or in a
 * transaction.
 *
 * What returns int hands on what the store says. All else must succeed, or the test fails: for the main thread, as cmocka wants it.
 */
#ifndef TBLFS_TESTS_MODEL_TXN_RIG_H
#define TBLFS_TESTS_MODEL_TXN_RIG_H

#include "tests/lib/mem_device.h"
#include "txn/store.h"

#define TXN_RIG_DIR "/data"

struct txn_rig {
    struct mem_device *mem;
    struct io_device *dev;
    struct diag diag;
    struct store *store;
    bool threshold_given; /* for txn_rig_open, all that follows */
    uint32_t fsm_threshold;
    uint32_t log_segment_size;
    const struct archive_target *archive;
};

/* At the start of a case. */
#define TXN_RIG                                                                                                        \
    struct txn_rig *rig = *state;                                                                                      \
    struct view *live = store_live(rig->store);                                                                        \
    assert_non_null(live)

#define TXN_RIG_CASE(name) cmocka_unit_test_setup_teardown(name, txn_rig_setup, txn_rig_teardown)

int txn_rig_setup(void **state);
int txn_rig_setup_like(void **state, const struct txn_rig *like); /* which says how it is opened */
int txn_rig_teardown(void **state);                               /* checks the store, and closes it */
void txn_rig_open(struct txn_rig *rig);
void txn_rig_check(struct txn_rig *rig);
void txn_rig_kill_and_reopen(struct txn_rig *rig); /* and checks it */

/* ---- names ---- */

struct store_name shell_name(const char *text);
int shell_look(struct txn_rig *rig, struct view *view, const char *path, struct store_attr *out_attr);
int shell_make(struct txn_rig *rig, struct view *view, const char *path, uint32_t mode);
int shell_make_dir(struct txn_rig *rig, struct view *view, const char *path);
int shell_remove(struct txn_rig *rig, struct view *view, const char *path);
int shell_remove_dir(struct txn_rig *rig, struct view *view, const char *path);
int shell_move(struct txn_rig *rig, struct view *view, const char *from, const char *to);
int shell_link(struct txn_rig *rig, struct view *view, const char *from, const char *to);

/* ---- attributes and content ---- */

int shell_change_mode(struct txn_rig *rig, struct view *view, const char *path, uint32_t mode);
uint32_t shell_mode_of(struct txn_rig *rig, const char *path); /* in the live tree */
struct store_file *shell_open(struct txn_rig *rig, struct view *view, const char *path);
/* Makes the file if there is none. */
int shell_append(struct txn_rig *rig, struct view *view, const char *path, const char *text);
/* As a write of somebody who is not root: it takes the set-user-id bit away. */
int shell_append_kill(struct txn_rig *rig, struct view *view, const char *path, const char *text);
int shell_truncate_to(struct txn_rig *rig, struct view *view, const char *path, uint64_t size);
int shell_rewrite(struct txn_rig *rig, struct view *view, const char *path, const char *text);
/* want NULL: there is no such name. */
void shell_expect(struct txn_rig *rig, struct view *view, const char *path, const char *want);
void shell_expect_file(struct store_file *file, const char *want);
/* That many rows that say whose they are; freed by the caller. */
char *shell_rows(const char *who, unsigned lines);
/* The content is these parts, one behind the other. */
void shell_expect_large(struct txn_rig *rig, struct view *view, const char *path, const char *const *parts,
                        unsigned count);

/* ---- compaction ---- */

/* Of a table of the live tree, from begin to end. */
int shell_compact(struct txn_rig *rig, const char *path, struct store_compact_info *out_info);

/* ---- transactions ---- */

struct store_txn *shell_begin(struct txn_rig *rig);
int shell_commit(struct store_txn *txn);
/* Both put the transaction. */
void shell_must_commit(struct store_txn *txn);
void shell_must_conflict(struct store_txn *txn);

#endif
