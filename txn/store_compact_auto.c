/*
 * txn/store_compact_auto.c - tables that became scattered or half empty, and small ones whose blocks lie high in their files, are compacted in the
 * background, one at a time.
 *
 * Whoever changes a live table otherwise than by appending notes it here, and whoever appends to a small one with a long file. When it has been
 * quiet for a while, its inner pages tell how it lies;
 * if badly, it is compacted, slowly. One that cannot be now (a transaction wrote it, it changes again) waits for as long again. What was
 * noted is not on disk: a table that nobody changes after a start is not looked at.
 *
 * Locking: compact_lock (LOCK_RANK_LEAF) guards the notes. One thread compacts: the store's own, or who calls store_step.
 */
#define HASH_NONFATAL_OOM 1
#include "txn/store_compact_auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define NOTED_MAX          10000u
#define RUN_LEAVES_MIN     16u /* leaves in a run, on average: less is badly scattered */
#define FULL_PERCENT_MIN   55u /* of the leaves would do: less is half empty */
#define THREAD_PERIOD_MS   500u
#define PIECE_PAUSE_MS     10u /* behind each piece, in the background */
#define STEP_PIECE_BYTES   1u  /* one piece */
#define STEP_AT_ONCE_BYTES (UINT64_C(64) << 20)

struct compact_note {
    UT_hash_handle hh;
    ino_no ino;
    uint64_t changed_ns; /* when it may be looked at, less the time that it has to be quiet */
};

void store_compact_note(struct store *store, ino_no ino)
{
    if (!store->compact_auto) {
        return;
    }
    const uint64_t now_ns = io_monotonic_ns(store->dev);
    struct compact_note *note = NULL;
    mutex_lock(&store->compact_lock);
    HASH_FIND(hh, store->compact_notes, &ino, sizeof ino, note);
    if (note == NULL && HASH_COUNT(store->compact_notes) < NOTED_MAX) {
        note = calloc(1, sizeof *note);
        if (note != NULL) {
            note->ino = ino;
            HASH_ADD(hh, store->compact_notes, ino, sizeof note->ino, note);
        }
        if (note != NULL && note->hh.tbl == NULL) { /* no memory: it is not looked at */
            free(note);
            note = NULL;
        }
    }
    if (note != NULL) {
        note->changed_ns = now_ns;
    }
    mutex_unlock(&store->compact_lock);
}

void store_compact_note_appended(struct store *store, const struct store_file *file, const struct inode *inode)
{
    block_no blocks = 0;
    const uint64_t live_most = (uint64_t)inode->content_leaves + 1; /* one inner page at most */
    if (store->compact_auto && inode->content_leaves < STORE_COMPACT_LEAVES_MIN &&
        relation_file_blocks(file->relation, &blocks) == 0 && store_is_file_long(blocks, live_most)) {
        store_compact_note(store, inode->ino);
    }
}

void store_compact_notes_free(struct store *store)
{
    struct compact_note *note;
    struct compact_note *next;
    HASH_ITER(hh, store->compact_notes, note, next)
    {
        HASH_DELETE(hh, store->compact_notes, note);
        free(note);
    }
}

/* Takes the note of a table that has been quiet for long enough. INO_NONE: there is none. */
static ino_no take_quiet(struct store *store)
{
    const uint64_t now_ns = io_monotonic_ns(store->dev);
    struct compact_note *note;
    struct compact_note *next;
    ino_no ino = INO_NONE;
    mutex_lock(&store->compact_lock);
    HASH_ITER(hh, store->compact_notes, note, next)
    {
        if (now_ns - note->changed_ns >= store->compact_quiet_ns) {
            ino = note->ino;
            HASH_DELETE(hh, store->compact_notes, note);
            free(note);
            break;
        }
    }
    mutex_unlock(&store->compact_lock);
    return ino;
}

static bool lies_badly(const struct store_shape *shape)
{
    return shape->leaves >= STORE_COMPACT_LEAVES_MIN && (shape->runs * RUN_LEAVES_MIN > shape->leaves ||
                                                         shape->least_leaves * 100 < shape->leaves * FULL_PERCENT_MIN);
}

/* With pauses that let others in. *out_stopped: the store is closing. */
static int compact_slowly(struct store *store, struct store_compact *compact, bool *out_stopped)
{
    int rc;
    do {
        rc = store_compact_step(compact, store->background ? STEP_PIECE_BYTES : STEP_AT_ONCE_BYTES);
        *out_stopped = rc == 1 && store->background && !store_thread_wait(store, PIECE_PAUSE_MS);
    } while (rc == 1 && !*out_stopped);
    return rc;
}

static int compact_file(struct store *store, struct store_file *file)
{
    struct store_compact *compact = NULL;
    struct store_shape shape;
    bool stopped = false;
    bool high = false;
    int rc = store_file_get_shape(file, &shape);
    if (rc == 0 && shape.leaves < STORE_COMPACT_LEAVES_MIN) {
        rc = store_file_lies_high(file, &high);
    }
    if (rc != 0 || (!high && !lies_badly(&shape))) {
        return rc;
    }
    rc = store_compact_begin(file, &compact);
    if (rc == 0) {
        rc = compact_slowly(store, compact, &stopped);
        store_compact_end(compact);
    }
    if (rc == -EBUSY || rc == -EAGAIN || rc == -EALREADY) {
        store_compact_note(store, file->ino);
    }
    return rc;
}

bool store_compact_one_quiet(struct store *store)
{
    struct store_file *file = NULL;
    const ino_no ino = store_check_writable(store) == 0 ? take_quiet(store) : INO_NONE;
    if (ino == INO_NONE) {
        return false;
    }
    if (store_file_open(store, store_live(store), ino, &file) == 0) { /* else it is gone */
        const int rc = compact_file(store, file);
        (void)rc; /* what is damaged or full is said where it is found; the table stays as it is */
        store_file_close(file);
    }
    return true;
}

void *store_compact_thread(void *store_void)
{
    struct store *store = store_void;
    while (store_thread_wait(store, THREAD_PERIOD_MS)) {
        while (store_compact_one_quiet(store) && store_thread_wait(store, PIECE_PAUSE_MS)) {
        }
    }
    return NULL;
}
