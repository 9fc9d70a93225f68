/*
 * tests/lib/opgen.h - random sequences of file operations, the same from the same seed.
 *
 * The generator knows nothing of FUSE, of the store or of a disk: it hands out one struct gen_op after the other, and
 * whoever drives a filesystem (tests/mount/differential.c: two directories; tests/model: the store and a model) carries
 * it out in its own way.
 *
 *     struct gen gen;
 *     gen_init(&gen, seed, NULL);              // NULL: gen_config_default()
 *     struct gen_op op;
 *     for (...) {
 *         gen_next(&gen, &op);
 *         int err = carry_out(&op);            // 0 or negative errno
 *         gen_feedback(&gen, &op, err);        // optional: lets it aim better at what exists
 *     }
 *
 * Without feedback an operation hits an existing name about as often as chance has it. Feedback only steers: the
 * sequence is a function of the seed, the configuration and the results fed back.
 *
 * Paths are relative, made of a small pool of names (so that collisions, renames over something and errors are
 * frequent), at most GEN_DEPTH_MAX names deep. The pool holds the awkward ones too: 255 bytes, spaces, a newline, bytes
 * that are no UTF-8, a leading dash. Symbolic link targets never hold "..", so nothing leaves the root.
 *
 * Open files live in slots 0 to GEN_SLOTS - 1. An open into a slot that is in use means: close that one first.
 * Operations on a slot that is not open may be skipped by the driver (with feedback they are rare).
 */
#ifndef TBLFS_TESTS_LIB_OPGEN_H
#define TBLFS_TESTS_LIB_OPGEN_H

#include "tests/lib/test_support.h"

#define GEN_SLOTS     16
#define GEN_DEPTH_MAX 4
#define GEN_PATH_MAX  1100
#define GEN_XATTR_MAX 64   /* name of an attribute with its NUL */
#define GEN_VALUE_MAX 2048 /* bytes of an attribute's value */
#define GEN_HINTS     96

/* X(kind, default weight, which fields count) */
#define GEN_KINDS(X)                                                                                                   \
    X(CREATE, 60)      /* path, slot, open_flags (with O_CREAT), mode */                                               \
    X(OPEN, 60)        /* path, slot, open_flags (without O_CREAT) */                                                  \
    X(CLOSE, 30)       /* slot */                                                                                      \
    X(PWRITE, 120)     /* slot, offset, size, data_seed (O_APPEND: goes to the end) */                                 \
    X(WRITE, 60)       /* slot, size, data_seed: at the handle's own position */                                       \
    X(APPEND_ROWS, 60) /* path, size, data_seed, mode: what `>>` does: open(O_APPEND|O_CREAT), write, close */         \
    X(PREAD, 60)       /* slot, offset, size */                                                                        \
    X(TRUNCATE, 20)    /* path, size */                                                                                \
    X(FTRUNCATE, 40)   /* slot, size */                                                                                \
    X(ALLOCATE, 40)    /* slot, offset, size, flags: FALLOC_FL_* */                                                    \
    X(SEEK, 20)        /* slot, offset, flags: SEEK_DATA or SEEK_HOLE */                                               \
    X(MMAP_WRITE, 15)  /* slot, offset, size, data_seed: within the file, then msync */                                \
    X(FSYNC, 5)        /* slot, flags: 1 is fdatasync */                                                               \
    X(RENAME, 60)      /* path, path2, flags: 0, RENAME_NOREPLACE, RENAME_EXCHANGE */                                  \
    X(LINK, 30)        /* path, path2 (a symlink itself is linked, not what it names) */                               \
    X(SYMLINK, 20)     /* path2: where, target */                                                                      \
    X(READLINK, 10)    /* path */                                                                                      \
    X(UNLINK, 50)      /* path */                                                                                      \
    X(MKDIR, 35)       /* path, mode */                                                                                \
    X(RMDIR, 15)       /* path */                                                                                      \
    X(MKFIFO, 3)       /* path, mode */                                                                                \
    X(CHMOD, 20)       /* path, mode */                                                                                \
    X(CHOWN, 15)       /* path, uid, gid ((uid_t)-1: leave), not following */                                          \
    X(UTIMENS, 20)     /* path, mtime_ns, not following; atime is left alone */                                        \
    X(SETXATTR, 25)    /* path, xattr, size, data_seed, flags: 0, XATTR_CREATE, XATTR_REPLACE */                       \
    X(GETXATTR, 15)    /* path, xattr, size: capacity (0: ask for the size) */                                         \
    X(LISTXATTR, 10)   /* path */                                                                                      \
    X(REMOVEXATTR, 10) /* path, xattr */                                                                               \
    X(READDIR, 15)     /* path: a directory, "." is the root */                                                        \
    X(STAT, 30)        /* path, not following */                                                                       \
    X(COPY_RANGE, 0)   /* slot, slot2, offset, offset2, size: copy_file_range(2) */

enum gen_kind {
#define X(kind, weight) GEN_##kind,
    GEN_KINDS(X)
#undef X
        GEN_KIND_COUNT
};

struct gen_op {
    enum gen_kind kind;
    char path[GEN_PATH_MAX];
    char path2[GEN_PATH_MAX];
    char target[GEN_PATH_MAX];
    char xattr[GEN_XATTR_MAX];
    unsigned slot, slot2;
    int open_flags;
    mode_t mode;
    uid_t uid;
    gid_t gid;
    unsigned flags;
    uint64_t offset, offset2;
    uint64_t size;
    uint64_t data_seed; /* gen_fill(data_seed, bytes, size) makes the data */
    int64_t mtime_ns;
};

struct gen_config {
    unsigned weights[GEN_KIND_COUNT]; /* 0: never */
    uint64_t max_file_bytes;          /* offsets and sizes stay below it */
    uint64_t max_write_bytes;         /* of one write */
    unsigned file_names;              /* how many of the pool's names files are called by, at most 32 */
    unsigned dir_names;               /* the same for directories, at most 8 */
    bool odd_names;                   /* the awkward ones too */
    bool set_id_modes;                /* set-user-id, set-group-id and sticky bits among the modes of CHMOD */
};

struct gen_config gen_config_default(void); /* 4 MiB files, 256 KiB writes, 20 and 5 names, odd ones too */

/* What the generator believes to exist; only it looks inside. */
struct gen_hint {
    char path[GEN_PATH_MAX];
    unsigned kind; /* S_IFMT bits; 0: free */
};

struct gen {
    struct test_random random;
    struct gen_config config;
    unsigned weight_sum;
    bool slot_open[GEN_SLOTS];
    struct gen_hint hints[GEN_HINTS];
};

/* config NULL: the default one. */
void gen_init(struct gen *gen, uint64_t seed, const struct gen_config *config);
void gen_next(struct gen *gen, struct gen_op *out_op);
void gen_feedback(struct gen *gen, const struct gen_op *op, int err);

/* The generator's own random numbers, for choices of the driver that belong to the sequence. */
uint64_t gen_random(struct gen *gen);
uint64_t gen_random_below(struct gen *gen, uint64_t limit); /* limit > 0 */

/* Deterministic bytes: printable rows of various lengths, now and then a run of NULs. */
void gen_fill(uint64_t data_seed, void *bytes, size_t size);

const char *gen_kind_name(enum gen_kind kind);
/* Does it work on the open file in op->slot alone (and in op->slot2)? */
bool gen_kind_has_slot(enum gen_kind kind);
/* One line for a failure report; odd bytes of names are escaped. Returns buffer. */
const char *gen_op_print(const struct gen_op *op, char *buffer, size_t capacity);

#endif
