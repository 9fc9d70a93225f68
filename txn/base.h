/*
 * txn/base.h - a base: a copy of a store as of one durable checkpoint, consistent by itself. With an archive it is where replay starts.
 *
 *   base_copy:   data directory --blocks that the checkpoint reaches--> sink: files rel/HH/RELID, then `manifest`
 *   base_read:   source: a directory, or a stream of bytes in tar's format --> each file and page, checked --> the manifest, compared
 *
 * A file of a base has the pages of a relation that are in use, one behind the other, in the order of their blocks: each says in its header
 * which one it is. docs/FORMAT.md, section 11, has the bytes.
 *
 * BASE-1 The manifest comes last: a base without one is not whole.
 * BASE-2 Every byte of a base is covered by a checksum; whoever reads it finds a changed one and says where it is.
 * BASE-3 While it is copied, somebody keeps the checkpoint (store_backup_begin).
 */
#ifndef TBLFS_TXN_BASE_H
#define TBLFS_TXN_BASE_H

#include "txn/control.h"

#define BASE_MANIFEST      "manifest"
#define BASE_NAME_SIZE     32u /* of a file in a base, with its NUL */
#define BASE_HEADER_SIZE   2048u
#define BASE_FORMAT_NUMBER 1u

/* What the manifest says of the whole. */
struct base_header {
    struct control control; /* the checkpoint's; what is not in the manifest is zero */
    uint32_t segment_size;  /* of the log */
    bool archived;          /* the log from control.scan_lsn on goes to an archive */
    int64_t taken_ns;
};

/* As text, lines NAME tab VALUE; NUL-terminated. */
void base_header_print(const struct base_header *header, char text[BASE_HEADER_SIZE]);
/* -EBADMSG: it is none. *out_rest is what follows it. */
int base_header_parse(const char *text, struct base_header *out_header, const char **out_rest) WARN_UNUSED;

/* ---- making one ---- */

/* Where files go, one after the other. Calls of one thread. */
struct base_sink {
    int (*begin)(void *arg, const char *name, uint64_t size_bytes);
    int (*write)(void *arg, const void *bytes, size_t size_bytes);
    int (*end)(void *arg);
    int (*finish)(void *arg); /* everything is durable, or sent */
    void *arg;
};

struct base_progress {
    _Atomic uint64_t done_bytes, total_bytes; /* total 0: not known yet */
};

struct base_copy_options {
    struct io_device *dev;
    struct diag *diag;
    const char *dir; /* data directory */
    const struct base_header *header;
    const struct base_sink *sink;
    uint64_t cache_size_bytes; /* 0: the least */
    struct base_progress *progress;
    void (*throttle)(void *arg, size_t bytes); /* after so many bytes; NULL: as fast as it goes */
    void *throttle_arg;
};
/* -EIO: a page is damaged, reported. */
int base_copy(const struct base_copy_options *options) WARN_UNUSED;

/* A directory as a sink: made, or empty. */
struct base_dir_sink {
    struct io_device *dev;
    const char *dir;
    struct io_file *file;
    uint64_t offset;
    char path[4300];
};
/* -ENOTEMPTY: there is something in it. */
int base_dir_sink_init(struct base_dir_sink *sink, struct io_device *dev, const char *dir,
                       struct base_sink *out_sink) WARN_UNUSED;
void base_dir_sink_destroy(struct base_dir_sink *sink);

/* A stream of bytes in tar's format as a sink. */
struct base_tar_sink {
    int (*put)(void *arg, const void *bytes, size_t size_bytes);
    void *arg;
    int64_t time_ns; /* of its files */
    uint64_t left;   /* of the file */
    size_t padding;
};
void base_tar_sink_init(struct base_tar_sink *sink, int (*put)(void *arg, const void *bytes, size_t size_bytes),
                        void *arg, int64_t time_ns, struct base_sink *out_sink);

/* ---- reading one ---- */

/* Where a base is read from: a directory, or, when `get` is given, a stream. */
struct base_source {
    struct io_device *dev;
    const char *dir;
    /* Up to size bytes; 0 at the end. Negative: an error. */
    ssize_t (*get)(void *arg, void *bytes, size_t size_bytes);
    void *arg;
};

/* What is done with what is read; each may be NULL. Non-zero stops and is handed on. */
struct base_visitor {
    int (*begin)(void *arg, rel_no rel);
    int (*page)(void *arg, rel_no rel, block_no block, const void *page);
    int (*end)(void *arg, rel_no rel);
    void *arg;
};

struct base_read_options {
    const struct base_source *source;
    struct diag *diag;
    const char *name;                   /* of the base, for messages */
    const struct base_visitor *visitor; /* NULL: it is only checked */
    struct base_progress *progress;
};
/* Reads all of it. 0: every file is what the manifest says; *out_header is filled. -EIO: something is not, each reported on diag;
 * -ENODATA: no base (no manifest). */
int base_read(const struct base_read_options *options, struct base_header *out_header) WARN_UNUSED;

#endif
