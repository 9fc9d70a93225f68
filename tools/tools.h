/*
 * tools/tools.h - the subcommands of `tblfs`.
 *
 * Exit status: 0 done; 1 refused or failed, and said why on stderr; 2 wrong usage. `txn` and `commit` have others, as their help says.
 */
#ifndef TBLFS_TOOLS_TOOLS_H
#define TBLFS_TOOLS_TOOLS_H

#include "base/types.h"

#include <stdio.h>

#define TOOL_EXIT_FAILED 1
#define TOOL_EXIT_USAGE  2

struct tool {
    const char *name;
    const char *arguments;        /* as in "DATADIR MNT [-o OPTIONS]" */
    const char *summary;          /* one line */
    const char *help;             /* paragraphs; may be NULL */
    void (*more_help)(FILE *out); /* written after it; may be NULL */
    const char *examples;         /* lines that begin with two spaces; NULL: they are in `help` */
    bool has_statuses;            /* `help` says what its exit statuses are; else they are those above */
    /* argv[0] is the tool's name, NULL ends it. */
    int (*run)(const struct tool *tool, int argc, char **argv);
};

extern const struct tool tool_abort;
extern const struct tool tool_backup;
extern const struct tool tool_check;
extern const struct tool tool_commit;
extern const struct tool tool_compact;
extern const struct tool tool_copy;
extern const struct tool tool_dump;
extern const struct tool tool_export;
extern const struct tool tool_fsm;
extern const struct tool tool_help;
extern const struct tool tool_import;
extern const struct tool tool_mkfs;
extern const struct tool tool_mount;
extern const struct tool tool_promote;
extern const struct tool tool_restore;
extern const struct tool tool_settings;
extern const struct tool tool_show;
extern const struct tool tool_snapshot;
extern const struct tool tool_standby;
extern const struct tool tool_status;
extern const struct tool tool_top;
extern const struct tool tool_txn;
extern const struct tool tool_umount;
extern const struct tool tool_verify;
extern const struct tool tool_upgrade;
extern const struct tool tool_version;

/* The path as the device wants it; what it names may be missing still. To be freed; NULL and errno. */
char *tool_absolute_path(const char *path);
/* NULL: no such tool. */
const struct tool *tool_find(const char *name);
/* Says what is wrong and how the tool is used, on stderr. Returns TOOL_EXIT_USAGE. */
int tool_usage_error(const struct tool *tool, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The same for an option that the tool does not have; names the one that may have been meant. */
int tool_unknown_option(const struct tool *tool, const char *option);

#endif
