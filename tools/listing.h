/*
 * tools/listing.h - a table with tabs, for people or for programs.
 */
#ifndef TBLFS_TOOLS_LISTING_H
#define TBLFS_TOOLS_LISTING_H

#include "base/types.h"

#include <stdio.h>

struct tool;

/* Reads lines of fields with tabs between, the first of which names the columns, and writes them to `out`: in columns below
 * each other, or (json) as an array with an object for each line, whose numbers are numbers. 0; -EIO: `in` or `out` failed;
 * -ENOMEM. */
int listing_write(FILE *in, bool json, FILE *out) WARN_UNUSED;
/* The same for a table of MNT/.tblfs, to stdout. An exit status; what went wrong was said. */
int listing_of_mount(const char *mount_point, const char *name, bool json) WARN_UNUSED;
/* Takes --json, the only switch of a tool that lists; optind is at what follows. 0, or TOOL_EXIT_USAGE (said). */
int listing_take_switch(const struct tool *tool, int argc, char **argv, bool *out_json) WARN_UNUSED;

#endif
