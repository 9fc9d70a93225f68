/*
 * txn/op.h - every change of a store is one operation record.
 *
 * An operation is planned (decides everything and takes what it needs; may fail), logged, applied (cannot fail). The
 * record carries everything that planning decided, so that replay decides nothing. txn/op.def lists types and fields
 * once for writer, replayer and dump.
 */
#ifndef TBLFS_TXN_OP_H
#define TBLFS_TXN_OP_H

#include "base/types.h"

enum op_type {
    OP_UNLOGGED = 0, /* changes nothing that a record could say */
#define OP(name, code, fields, text) OP_##name = code,
#include "txn/op.def"
};

enum op_field {
#define OP_FIELD(name, member, kind) OP_FIELD_##name,
#include "txn/op.def"
    OP_FIELD_COUNT
};

struct op_bytes {
    const void *data;
    size_t size;
};

/* One struct for all types: which fields count is told by txn/op.def. Pointers are borrowed from the caller. */
struct op_record {
    enum op_type type;
    txn_no txn; /* 0: live */
    lsn_no
        lsn; /* where it stands in the log: that of its group, and what is before it there. Told by the log, not written */
    int64_t time_ns; /* never going back */
    ino_no ino;      /* the inode that is changed or made */
    ino_no parent;   /* directory of `name` */
    ino_no parent2;  /* rename: directory of `name2` */
    ino_no ino2;     /* rename: inode that the target name led to, INO_NONE if none */
    struct op_bytes name;
    struct op_bytes name2;
    uint64_t cookie;  /* sub of the item for `name` (or of the attribute) */
    uint64_t cookie2; /* sub of the item for `name2` */
    uint32_t mode, uid, gid, rdev;
    uint32_t flags; /* by type: OP_RENAME_*, OP_SETATTR_* , OP_FILE_ORPHAN */
    int64_t atime_ns, mtime_ns;
    rel_no rel; /* relation made by this operation, REL_NONE if none */
    uint64_t offset_bytes;
    uint64_t size_bytes; /* write: bytes; resize: new size; punch: length */
    uint64_t size_before_bytes;
    struct op_bytes data;  /* write: content; symlink: target; setxattr: value */
    uint64_t head_bytes;   /* write of pages: how much of data comes before them */
    struct op_bytes pages; /* write of pages: struct disk_page_ptr each, full leaves */
};

enum op_flags {
    OP_RENAME_EXCHANGE = 1u << 0,
    OP_SETATTR_MODE = 1u << 1,
    OP_SETATTR_UID = 1u << 2,
    OP_SETATTR_GID = 1u << 3,
    OP_SETATTR_ATIME = 1u << 4,
    OP_SETATTR_MTIME = 1u << 5,
    OP_KEEP_ORPHAN = 1u << 6,  /* unlink, rename: the inode that lost its last name is open: it becomes an orphan */
    OP_WRITE_APPEND = 1u << 7, /* write at the end, as the end was then */
    OP_KILL_SUID = 1u << 8,    /* write, resize: set-user-id bits go */
};

/* A record as it stands in the log, little-endian:
 *   0 le32 size of the record in bytes, this header included
 *   4 uint8 type, 5 three zero bytes
 *   8 le64 transaction, 16 le64 time, then the fields of its type in the order of txn/op.def. */
#define OP_RECORD_HEADER_SIZE 24u

const char *op_type_name(enum op_type type); /* "UNKNOWN" for what is none */
/* Which fields a type carries, in order: an array that ends with OP_FIELD_COUNT. NULL: no such type. */
const uint8_t *op_type_fields(enum op_type type);
/* Bytes that the record takes in the log. At most UINT32_MAX: names and data are bounded by their callers. */
size_t op_record_size(const struct op_record *op);
/* Writes it; buffer has op_record_size bytes. */
void op_record_encode(const struct op_record *op, void *buffer);
/* Reads one record from `size` bytes; names and data point into buffer. *out_size: bytes it took. -EBADMSG: not a
 * whole, well-formed record. */
int op_record_decode(const void *buffer, size_t size, struct op_record *out_op, size_t *out_size) WARN_UNUSED;
/* One line for people: "CREATE ino=5 parent=1 ... name=\"x\"", long data cut. Returns what snprintf would. */
int op_record_print(const struct op_record *op, char *buffer, size_t size);

#endif
