/*
 * txn/store_sidecar.h - when sidecars are written, believed and removed (inside of txn/).
 */
#ifndef TBLFS_TXN_STORE_SIDECAR_H
#define TBLFS_TXN_STORE_SIDECAR_H

#include "fsm/sidecar.h"
#include "txn/store_int.h"

/* At open, behind reading the control file. */
void store_sidecars_open(struct store *store, const struct store_options *options);
/* After an unclean end: removes all of them. */
int store_sidecars_remove_all(struct store *store) WARN_UNUSED;
/* For the first slot of a life: from which epoch on sidecars count. */
epoch_no store_sidecars_epoch(const struct store *store, const struct control *control);

/* The relation's map is about to be made, for a table that was not written to in this life: `ino` has it in `view`. True: its sidecar was
 * good and the map is ready. Either way there is no sidecar any more (SIDECAR-2). The caller keeps others from making the map. */
bool store_sidecar_load(struct store *store, struct relation *relation, struct view *view, ino_no ino);
/* Reads the sidecar that the next write to the relation's table would use up. `root` is the table's. -ENOENT: there is none; -EBADMSG: it
 * would not be believed, why is in *out_why. */
int store_sidecar_peek(struct store *store, struct relation *relation, const struct content_root *root,
                       struct fsm_sidecar *out_sidecar, const char **out_why) WARN_UNUSED;

/* Somebody is done with the relation: if it has a map and may be large, it stays in memory until the close. */
void store_sidecar_retain(const struct store *store, struct relation *relation);

/* What is free in the relation has changed without its map, or its file goes: there must be no sidecar of it. */
void store_sidecar_forget(struct store *store, struct relation *relation);
/* Nobody knows of which relations that is true: no sidecar counts any more. */
void store_sidecars_doubt(struct store *store);

/* At a clean end, with checkpoint_lock held: is there anything to do before the clean slot is written? */
bool store_sidecars_pending(struct store *store);
/* Those written behind the checkpoint in force would not count: there has to be a newer one. */
bool store_sidecars_want_checkpoint(const struct store *store);
/* With a budget of STORE_READ_PINS: writes those that are wanted behind the last checkpoint, removes those that are not allowed any more, makes that durable. What cannot
 * be done is said, and costs builds. */
void store_sidecars_write(struct store *store);
/* What the clean slot says of them. */
void store_sidecars_sign(const struct store *store, struct control *control, epoch_no at);

#endif
