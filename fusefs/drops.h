/*
 * fusefs/drops.h - the setting drop=txn: tables are only dropped in transactions.
 *
 * What takes all of a table's rows in the live tree is refused with EPERM: unlink of a table, a rename over one, cutting one to
 * nothing. Empty tables, and what is no table (symbolic links, directories, fifos), go as ever.
 *
 * Locking: none. A table that gets its first row between the check and the removal goes: nobody has seen that row yet.
 */
#ifndef TBLFS_FUSEFS_DROPS_H
#define TBLFS_FUSEFS_DROPS_H

#include "fusefs/nodes.h"

struct fusefs;

/* May what has that name in `dir` be removed or replaced? -EPERM. */
int drops_check_name(struct fusefs *fs, const struct node_identity *dir, const char *name) WARN_UNUSED;
/* May the table be cut to nothing? -EPERM. */
int drops_check_cut(struct fusefs *fs, const struct node_identity *node) WARN_UNUSED;

#endif
