/*
 * txn/dump.h - prints what lies in a data directory, structure by structure (docs/FORMAT.md), for people.
 *
 * Reads the files and nothing else: takes no lock, writes nothing, needs no store that can be opened. So it works on one
 * that was not closed cleanly (it then shows the last checkpoint; what came later is in the log), on a damaged one, and
 * on one in use (where it may meet pages that are being written).
 *
 * Output comes line by line. What is wrong is a line that starts with "! " at the place where it was met; the dump goes
 * on behind it.
 */
#ifndef TBLFS_TXN_DUMP_H
#define TBLFS_TXN_DUMP_H

#include "base/io.h"

typedef void dump_line_fn(void *arg, const char *line);

struct dump_options {
    struct io_device *dev;
    const char *dir; /* data directory */
    dump_line_fn *line;
    void *arg;
};

/* All of them: 0; -EIO: damage was met and printed; -ENODATA: there is no such thing to print (no control file, no such
 * log, relation or block), and a line says so; another negative errno: a file cannot be read, -ENOMEM. */

/* Both copies of both control slots. */
int dump_control(const struct dump_options *options) WARN_UNUSED;
/* Every segment, batch and record of the log, and where it ends. */
int dump_log(const struct dump_options *options) WARN_UNUSED;
/* Every page and item of the catalog of the checkpoint in force. */
int dump_catalog(const struct dump_options *options) WARN_UNUSED;
/* The inode at that path and every page of its content. -ENOENT, -ENOTDIR: no such path in the checkpoint in force. */
int dump_table(const struct dump_options *options, const char *path) WARN_UNUSED;
/* One block of a relation file, whatever it holds. */
int dump_page(const struct dump_options *options, rel_no rel, block_no block) WARN_UNUSED;
/* The free map beside the file of a relation. */
int dump_sidecar(const struct dump_options *options, rel_no rel) WARN_UNUSED;

#endif
