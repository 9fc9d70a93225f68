/*
 * txn/store_compact_auto.h - compaction in the background (inside of txn/).
 */
#ifndef TBLFS_TXN_STORE_COMPACT_AUTO_H
#define TBLFS_TXN_STORE_COMPACT_AUTO_H

#include "txn/store_int.h"

/* The live table was changed otherwise than by appending. May be called under any lock but leaf ones. */
void store_compact_note(struct store *store, ino_no ino);
void store_compact_notes_free(struct store *store);
/* Looks at one noted table that is quiet, and compacts it if it lies badly. False: there was none. No lock held. */
bool store_compact_one_quiet(struct store *store);
void *store_compact_thread(void *store_void);

#endif
