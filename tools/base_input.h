/*
 * tools/base_input.h - a base that was named on the command line: a directory, a tar file, or stdin.
 */
#ifndef TBLFS_TOOLS_BASE_INPUT_H
#define TBLFS_TOOLS_BASE_INPUT_H

#include "txn/base.h"

struct base_input {
    struct base_source source;
    int fd; /* -1: a directory */
    char *dir;
};

/* "-": stdin. -errno. */
int base_input_open(struct base_input *input, const char *path) WARN_UNUSED;
void base_input_close(struct base_input *input);

#endif
