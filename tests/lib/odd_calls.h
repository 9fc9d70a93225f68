/*
 * tests/lib/odd_calls.h - system calls at the edges, that a generator of operations would not make.
 *
 * Each is made in a fresh directory with a file, a directory, a symbolic link and one that leads to itself. The list says
 * where a tblfs mount answers otherwise than ext4 on purpose: docs/POSIX.md has the reasons.
 */
#ifndef TBLFS_TESTS_LIB_ODD_CALLS_H
#define TBLFS_TESTS_LIB_ODD_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#define ODD_SAME INT64_MAX

unsigned odd_call_count(void);
/* What it is, and what a mount answers if not the same as others. */
const char *odd_call_name(unsigned which);
int64_t odd_call_mounted_result(unsigned which);
/* Makes it below `root`. What it answered, or -errno. */
int64_t odd_call_make(const char *root, unsigned which);

#endif
