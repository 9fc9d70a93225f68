/*
 * tests/model/list_append.h - is a history of transactions that read and append to lists one of snapshot isolation?
 *
 * Every row has a number of its own, so the lists say by themselves who came before whom. Times are ticks of one counter.
 *
 * LIST-1 Each row of an acknowledged commit is in its list once, those of one transaction side by side and in order; rows of
 *        transactions that were not committed are nowhere, in the lists or in anybody's reads.
 * LIST-2 A read gives a prefix of the list as it became, cut between transactions, and behind it the reader's own rows. All
 *        reads of a transaction have one snapshot: another transaction is seen in all of its lists or in none.
 * LIST-3 Who had committed before the reader began is seen; who began to commit only after that is not.
 * LIST-4 In a list whose appends do not merge, of two writers the later one began after the earlier one had committed.
 * LIST-5 The order of writers (ww), and of writers and who saw them (wr), has no circle. There is none with one step from a
 *        reader to the next writer of what it read (rw) either, but through merged appends: they are inserts of different rows.
 * LIST-6 After a kill the lists are prefixes of what they were; acknowledged commits are there, those that began behind it
 *        are not, all are whole.
 */
#ifndef TBLFS_TESTS_MODEL_LIST_APPEND_H
#define TBLFS_TESTS_MODEL_LIST_APPEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIST_TABLES                       12u
#define LIST_STRICT                       4u /* the first so many do not merge appends */
#define LIST_EVENTS                       6u
#define LIST_NONE                         UINT32_MAX
#define LIST_ROW_NUMBER(client, sequence) ((uint32_t)(client) << 20 | (uint32_t)(sequence))
#define LIST_CLIENT(row)                  ((row) >> 20)
#define LIST_SEQUENCE(row)                ((row)&0xfffffu)

enum list_outcome { LIST_COMMITTED, LIST_CONFLICT, LIST_ABORTED };

struct list_rows {
    uint32_t *rows;
    size_t count, capacity;
};

struct list_event {
    unsigned table;
    bool reads;
    uint32_t row;          /* appended */
    struct list_rows seen; /* read */
};

struct list_txn {
    bool live; /* one operation in the live tree */
    enum list_outcome outcome;
    uint64_t began, began_by; /* the call, and its return */
    uint64_t ends, ended;     /* the commit */
    unsigned event_count;
    struct list_event events[LIST_EVENTS];
};

struct list_history {
    struct list_txn *txns; /* of all clients */
    size_t count;
    struct list_rows lists[LIST_TABLES]; /* as they became */
    struct list_rows kept[LIST_TABLES];  /* after the kill */
    uint64_t kill_from, kill_to;         /* when it happened */
    char why[300];
};

void list_rows_add(struct list_rows *list, uint32_t row);
/* Row and nothing else; false: `why` says what is wrong. */
bool list_history_check(struct list_history *history);

#endif
