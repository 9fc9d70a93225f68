/*
 * tests/lib/opcalls.h - the operations of opgen.h as system calls below a directory.
 *
 * Most operations can be asked for in several ways: bytes are read by pread(2), in pieces, through a private mapping, by
 * sendfile(2); written whole or in pieces; a name is linked by path or by descriptor. struct call_choice says which way
 * is taken and as whom, so that the same is done on two sides.
 *
 * Locking: none; a call_side belongs to one thread.
 */
#ifndef TBLFS_TESTS_LIB_OPCALLS_H
#define TBLFS_TESTS_LIB_OPCALLS_H

#include "tests/lib/opgen.h"

#include <limits.h>
#include <sys/types.h>

#define CALL_DATA_MAX  (1u << 20) /* what one operation reads or writes */
#define CALL_VALUE_MAX 300u       /* so that ext4 finds room for all attributes of a file in one block */
#define CALL_PATH_SIZE PATH_MAX

struct call_side {
    const char *label;
    const char *root;
    int fds[GEN_SLOTS];   /* -1: not open */
    unsigned char *bytes; /* CALL_DATA_MAX: data to write, data read */
    char text[65536];     /* names listed, NUL-terminated and sorted */
    size_t text_size;
    int64_t result;      /* what the call said, or -errno */
    char complaint[300]; /* what no filesystem may answer, however the other side does; "": nothing */
};

struct call_choice {
    uint64_t way;
    uid_t uid; /* 0, or who does it, with a group of the same number */
};

void call_side_init(struct call_side *side, const char *label, const char *root);
void call_side_destroy(struct call_side *side);
void call_side_close(struct call_side *side, unsigned slot);

/* Does it; what came of it is in the side. */
void call_carry_out(struct call_side *side, const struct gen_op *op, struct call_choice choice);

/* The path below the side's root. Returns buffer. */
const char *call_full_path(const struct call_side *side, const char *path, char buffer[CALL_PATH_SIZE]);
/* -errno for what a call answers when it failed. */
int64_t call_result(int64_t value);

/* Sorted into side->text: the names of user attributes; the entries of a directory, each behind a letter for its type. */
int64_t call_list_xattrs(struct call_side *side, const char *full_path);
int64_t call_list_directory(struct call_side *side, const char *full_path);

#endif
