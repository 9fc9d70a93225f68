/*
 * tests/model/list_append.c - see list_append.h.
 */
#include "tests/model/list_append.h"

#include "base/types.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct place {
    uint32_t row;
    uint32_t txn; /* that appended it */
    uint32_t at;  /* in its list; LIST_NONE: not there */
    unsigned table;
};

struct checker {
    struct list_history *history;
    struct place *places; /* sorted by row */
    size_t place_count;
    uint64_t *reaches; /* a bit for each pair: LIST-5, without rw */
    size_t words;
};

static bool wrong(struct checker *checker, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool wrong(struct checker *checker, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(checker->history->why, sizeof checker->history->why, fmt, args);
    va_end(args);
    return false;
}

static void *must_have(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

void list_rows_add(struct list_rows *list, uint32_t row)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity * 2 + 16;
        list->rows = must_have(realloc(list->rows, list->capacity * sizeof list->rows[0]));
    }
    list->rows[list->count++] = row;
}

/* ---- where rows are ---- */

static int by_row(const void *a, const void *b)
{
    const uint32_t x = ((const struct place *)a)->row;
    const uint32_t y = ((const struct place *)b)->row;
    return x < y ? -1 : x > y;
}

static struct place *find(const struct checker *checker, uint32_t row)
{
    const struct place key = {.row = row};
    return bsearch(&key, checker->places, checker->place_count, sizeof key, by_row);
}

static void collect_places(struct checker *checker)
{
    const struct list_history *history = checker->history;
    checker->places = must_have(calloc(history->count * LIST_EVENTS + 1, sizeof checker->places[0]));
    for (uint32_t i = 0; i < history->count; i++) {
        for (unsigned j = 0; j < history->txns[i].event_count; j++) {
            const struct list_event *event = &history->txns[i].events[j];
            if (!event->reads) {
                checker->places[checker->place_count++] =
                    (struct place){.row = event->row, .txn = i, .at = LIST_NONE, .table = event->table};
            }
        }
    }
    qsort(checker->places, checker->place_count, sizeof checker->places[0], by_row);
}

/* The transaction of the row at that place, LIST_NONE behind the end. */
static uint32_t writer_at(const struct checker *checker, unsigned table, size_t at)
{
    const struct list_rows *list = &checker->history->lists[table];
    return at < list->count ? find(checker, list->rows[at])->txn : LIST_NONE;
}

static bool place_rows(struct checker *checker, unsigned table)
{
    const struct list_rows *list = &checker->history->lists[table];
    for (uint32_t at = 0; at < list->count; at++) {
        struct place *place = find(checker, list->rows[at]);
        if (place == NULL || place->table != table) {
            return wrong(checker, "table %u: row %08x was never appended to it", table, list->rows[at]);
        }
        if (place->at != LIST_NONE) {
            return wrong(checker, "table %u: row %08x is there twice", table, place->row);
        }
        if (checker->history->txns[place->txn].outcome != LIST_COMMITTED) {
            return wrong(checker, "table %u: row %08x of a transaction that was not committed", table, place->row);
        }
        place->at = at;
    }
    return true;
}

/* LIST-1: the transaction's rows in one table. */
static bool check_own_rows(struct checker *checker, uint32_t number, unsigned table)
{
    const struct list_txn *txn = &checker->history->txns[number];
    uint32_t last = LIST_NONE;
    for (unsigned i = 0; i < txn->event_count; i++) {
        const struct list_event *event = &txn->events[i];
        if (event->reads || event->table != table) {
            continue;
        }
        const uint32_t at = find(checker, event->row)->at;
        if (at == LIST_NONE) {
            return wrong(checker, "table %u: row %08x of a commit is lost", table, event->row);
        }
        if (last != LIST_NONE && at != last + 1) {
            return wrong(checker, "table %u: row %08x is not behind the one before it", table, event->row);
        }
        last = at;
    }
    return true;
}

static bool check_rows(struct checker *checker)
{
    bool good = true;
    for (unsigned table = 0; table < LIST_TABLES && good; table++) {
        good = place_rows(checker, table);
    }
    for (uint32_t i = 0; i < checker->history->count && good; i++) {
        for (unsigned table = 0; table < LIST_TABLES && good; table++) {
            good = checker->history->txns[i].outcome != LIST_COMMITTED || check_own_rows(checker, i, table);
        }
    }
    return good;
}

/* ---- reads ---- */

static size_t own_rows_before(const struct list_txn *txn, unsigned event)
{
    size_t count = 0;
    for (unsigned i = 0; i < event; i++) {
        count += !txn->events[i].reads && txn->events[i].table == txn->events[event].table;
    }
    return count;
}

/* The rows of others that a read saw. */
static size_t visible(const struct list_txn *txn, unsigned event)
{
    return txn->events[event].seen.count - own_rows_before(txn, event);
}

static bool check_read_tail(struct checker *checker, const struct list_txn *txn, unsigned number)
{
    const struct list_event *event = &txn->events[number];
    size_t at = event->seen.count;
    for (unsigned i = number; i-- > 0;) {
        const struct list_event *own = &txn->events[i];
        if (!own->reads && own->table == event->table && (at == 0 || event->seen.rows[--at] != own->row)) {
            return wrong(checker, "table %u: a reader does not see its own row %08x", own->table, own->row);
        }
    }
    return true;
}

/* LIST-2 for one read. */
static bool check_read(struct checker *checker, uint32_t reader, unsigned number)
{
    const struct list_txn *txn = &checker->history->txns[reader];
    const struct list_event *event = &txn->events[number];
    const struct list_rows *list = &checker->history->lists[event->table];
    if (event->seen.count < own_rows_before(txn, number) || !check_read_tail(checker, txn, number)) {
        return wrong(checker, "table %u: own rows are missing in a read", event->table);
    }
    const size_t count = visible(txn, number);
    if (count > list->count) {
        return wrong(checker, "table %u: a read saw %zu rows, there are %zu", event->table, count, list->count);
    }
    for (size_t i = 0; i < count; i++) {
        if (event->seen.rows[i] != list->rows[i]) {
            return wrong(checker, "table %u: a read saw row %08x at %zu, it is %08x", event->table, event->seen.rows[i],
                         i, list->rows[i]);
        }
    }
    if (count > 0 && writer_at(checker, event->table, count - 1) == writer_at(checker, event->table, count)) {
        return wrong(checker, "table %u: a read saw part of a transaction", event->table);
    }
    return true;
}

/* LIST-2 and LIST-3: a writer, in one table of the reader's. */
static bool check_seen(struct checker *checker, uint32_t reader, unsigned number)
{
    const struct list_txn *txn = &checker->history->txns[reader];
    const unsigned table = txn->events[number].table;
    const size_t count = visible(txn, number);
    for (size_t at = 0; at < checker->history->lists[table].count; at++) {
        const uint32_t writer_number = writer_at(checker, table, at);
        const struct list_txn *writer = &checker->history->txns[writer_number];
        const bool sees = at < count;
        if (writer_number != reader && !sees && writer->ended < txn->began) {
            return wrong(checker, "table %u: row %08x was committed before a reader began, who does not see it", table,
                         checker->history->lists[table].rows[at]);
        }
        if (writer_number != reader && sees && writer->ends > txn->began_by) {
            return wrong(checker, "table %u: row %08x was committed after a reader began, who sees it", table,
                         checker->history->lists[table].rows[at]);
        }
    }
    return true;
}

/* Does what another read of the same transaction saw agree on the writers of both tables? */
static bool check_pair(struct checker *checker, uint32_t reader, unsigned a, unsigned b)
{
    const struct list_txn *txn = &checker->history->txns[reader];
    const size_t seen_b = visible(txn, b);
    for (size_t at = 0; at < checker->history->lists[txn->events[a].table].count; at++) {
        const uint32_t number = writer_at(checker, txn->events[a].table, at);
        const struct list_txn *writer = &checker->history->txns[number];
        for (unsigned i = 0; i < writer->event_count && number != reader; i++) {
            const struct list_event *event = &writer->events[i];
            if (!event->reads && event->table == txn->events[b].table &&
                (find(checker, event->row)->at < seen_b) != (at < visible(txn, a))) {
                return wrong(checker, "tables %u and %u: a reader saw a transaction in one of them only",
                             txn->events[a].table, txn->events[b].table);
            }
        }
    }
    return true;
}

static bool check_reads_of(struct checker *checker, uint32_t reader)
{
    const struct list_txn *txn = &checker->history->txns[reader];
    bool good = true;
    for (unsigned i = 0; i < txn->event_count && good; i++) {
        if (txn->events[i].reads) {
            good = check_read(checker, reader, i) && check_seen(checker, reader, i);
        }
    }
    for (unsigned i = 0; i < txn->event_count && good; i++) {
        for (unsigned j = 0; j < i && good; j++) {
            good = !txn->events[i].reads || !txn->events[j].reads || check_pair(checker, reader, i, j);
        }
    }
    return good;
}

/* LIST-4 */
static bool check_strict(struct checker *checker, unsigned table)
{
    for (size_t at = 1; at < checker->history->lists[table].count; at++) {
        const uint32_t before = writer_at(checker, table, at - 1);
        const uint32_t number = writer_at(checker, table, at);
        const struct list_txn *txn = &checker->history->txns[number];
        if (before != number && !txn->live && txn->began_by < checker->history->txns[before].ends) {
            return wrong(checker, "table %u: row %08x was appended beside the one before it, and committed", table,
                         checker->history->lists[table].rows[at]);
        }
    }
    return true;
}

/* ---- circles ---- */

static bool reaches(const struct checker *checker, uint32_t from, uint32_t to)
{
    return (checker->reaches[from * checker->words + to / 64] >> (to % 64) & 1) != 0;
}

static void add_edge(struct checker *checker, uint32_t from, uint32_t to)
{
    if (from != to && from != LIST_NONE && to != LIST_NONE) {
        checker->reaches[from * checker->words + to / 64] |= UINT64_C(1) << (to % 64);
    }
}

static void add_write_edges(struct checker *checker, bool merged)
{
    for (unsigned table = 0; table < (merged ? LIST_TABLES : LIST_STRICT); table++) {
        for (size_t at = 1; at < checker->history->lists[table].count; at++) {
            add_edge(checker, writer_at(checker, table, at - 1), writer_at(checker, table, at));
        }
    }
}

static void add_read_edges(struct checker *checker)
{
    for (uint32_t i = 0; i < checker->history->count; i++) {
        const struct list_txn *txn = &checker->history->txns[i];
        for (unsigned j = 0; j < txn->event_count && txn->outcome == LIST_COMMITTED; j++) {
            const size_t count = txn->events[j].reads ? visible(txn, j) : 0;
            if (count > 0) {
                add_edge(checker, writer_at(checker, txn->events[j].table, count - 1), i);
            }
        }
    }
}

static void close_over(struct checker *checker)
{
    const size_t count = checker->history->count;
    for (uint32_t middle = 0; middle < count; middle++) {
        for (uint32_t from = 0; from < count; from++) {
            for (size_t word = 0; word < checker->words && reaches(checker, from, middle); word++) {
                checker->reaches[from * checker->words + word] |= checker->reaches[middle * checker->words + word];
            }
        }
    }
}

static bool check_rw(struct checker *checker, uint32_t reader)
{
    const struct list_txn *txn = &checker->history->txns[reader];
    for (unsigned i = 0; i < txn->event_count; i++) {
        if (txn->events[i].reads) {
            const uint32_t next = writer_at(checker, txn->events[i].table, visible(txn, i));
            if (next != LIST_NONE && next != reader && reaches(checker, next, reader)) {
                return wrong(checker, "table %u: a reader did not see a transaction that it depends on",
                             txn->events[i].table);
            }
        }
    }
    return true;
}

/* LIST-5. merged: with the order of merged appends, and without rw. */
static bool check_circles(struct checker *checker, bool merged)
{
    const size_t count = checker->history->count;
    bool good = true;
    checker->words = (count + 63) / 64;
    checker->reaches = must_have(calloc(count * checker->words + 1, sizeof checker->reaches[0]));
    add_write_edges(checker, merged);
    add_read_edges(checker);
    close_over(checker);
    for (uint32_t i = 0; i < count && good; i++) {
        if (reaches(checker, i, i)) {
            good = wrong(checker, "a transaction comes before itself");
        } else if (!merged && checker->history->txns[i].outcome == LIST_COMMITTED) {
            good = check_rw(checker, i);
        }
    }
    free(checker->reaches);
    return good;
}

/* ---- the kill ---- */

static bool is_kept(const struct checker *checker, const struct list_event *event)
{
    return find(checker, event->row)->at < checker->history->kept[event->table].count;
}

static bool check_kept_txn(struct checker *checker, const struct list_txn *txn)
{
    unsigned kept = 0;
    unsigned appended = 0;
    for (unsigned i = 0; i < txn->event_count; i++) {
        appended += !txn->events[i].reads;
        kept += !txn->events[i].reads && is_kept(checker, &txn->events[i]);
    }
    if (kept != 0 && kept != appended) {
        return wrong(checker, "a transaction was torn by the kill: %u of %u rows", kept, appended);
    }
    if (appended > 0 && kept == 0 && txn->ended < checker->history->kill_from) {
        return wrong(checker, "an acknowledged commit was lost by the kill");
    }
    return kept == 0 || txn->ends < checker->history->kill_to || wrong(checker, "the kill kept what came later");
}

/* LIST-6 */
static bool check_kept(struct checker *checker)
{
    const struct list_history *history = checker->history;
    for (unsigned table = 0; table < LIST_TABLES; table++) {
        const struct list_rows *kept = &history->kept[table];
        for (size_t at = 0; at < kept->count; at++) {
            if (at >= history->lists[table].count || kept->rows[at] != history->lists[table].rows[at]) {
                return wrong(checker, "table %u: row %08x at %zu after the kill", table, kept->rows[at], at);
            }
        }
    }
    bool good = true;
    for (size_t i = 0; i < history->count && good; i++) {
        good = history->txns[i].outcome != LIST_COMMITTED || check_kept_txn(checker, &history->txns[i]);
    }
    return good;
}

bool list_history_check(struct list_history *history)
{
    struct checker checker = {.history = history};
    collect_places(&checker);
    bool good = check_rows(&checker) && check_kept(&checker);
    for (uint32_t i = 0; i < history->count && good; i++) {
        good = check_reads_of(&checker, i);
    }
    for (unsigned table = 0; table < LIST_STRICT && good; table++) {
        good = check_strict(&checker, table);
    }
    good = good && check_circles(&checker, true) && check_circles(&checker, false);
    free(checker.places);
    return good;
}
