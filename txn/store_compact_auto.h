/*
 * txn/store_compact_auto.h - compaction in the background (inside of txn/).
 */
#ifndef TBLFS_TXN_STORE_COMPACT_AUTO_H
#define TBLFS_TXN_STORE_COMPACT_AUTO_H

#include "txn/store_int.h"

/* A table of fewer leaves is read in one call or two, wherever they lie: its order does not matter, only how long its file is. */
#define STORE_COMPACT_LEAVES_MIN 64u

/* Is a small file of so many blocks longer than its live ones justify? */
static inline bool store_is_file_long(uint64_t file_blocks, uint64_t live_blocks)
{
    return file_blocks > 2 * live_blocks + 1;
}

/* Do the live blocks of a small table lie so high that its file stays long when nobody else needs blocks of it? No lock held. */
int store_file_lies_high(struct store_file *file, bool *out_high) WARN_UNUSED;

/* The live table was changed otherwise than by appending. May be called under any lock but leaf ones. */
void store_compact_note(struct store *store, ino_no ino);
/* The live table was appended to. One that takes no more than its blocks need is not noted. */
void store_compact_note_appended(struct store *store, const struct store_file *file, const struct inode *inode);
void store_compact_notes_free(struct store *store);
/* Looks at one noted table that is quiet, and compacts it if it lies badly. False: there was none. No lock held. */
bool store_compact_one_quiet(struct store *store);
void *store_compact_thread(void *store_void);

#endif
