/*
 * txn/store.h - the store: one data directory, its views, and every operation on them.
 *
 * All calls return 0 or a negative errno and are thread-safe. Names are bytes without '/' and NUL, 1 to 255 of them;
 * "." and ".." are the caller's business. Nothing here checks permissions (the kernel does, by default_permissions). A
 * failed call changed nothing.
 *
 * Rules that callers may rely on: each call is atomic and visible to all others when it returns; an append lands whole
 * at the end.
 */
#ifndef TBLFS_TXN_STORE_H
#define TBLFS_TXN_STORE_H

#include "base/diag.h"
#include "base/io.h"
#include "base/progress.h"
#include "base/types.h"
#include "bufcache/bufcache.h"
#include "table/catalog.h"
#include "table/content.h"
#include "table/cow.h"
#include "txn/archive.h"
#include "txn/log.h"

struct base_header;
struct control;
struct store;
struct store_file; /* an open inode of one view */

struct store_options {
    struct io_device *dev;
    struct diag *diag;
    const char *dir;                 /* data directory; copied */
    uint64_t cache_size_bytes;       /* 0: 256 MiB */
    uint32_t max_open_files;         /* 0: 512 */
    bool background;                 /* threads of its own: background writer, checkpoints, sweeps; else store_step */
    uint32_t checkpoint_interval_ms; /* 0: 60,000 */
    uint64_t checkpoint_log_bytes;   /* log volume that brings a checkpoint; 0: 256 MiB */
    uint64_t bulk_min_bytes;         /* appends from this size on are logged by reference (COW-4); 0: 128 KiB */
    bool compact_auto;               /* tables that lie badly are compacted, in the background or by store_step */
    uint32_t compact_quiet_ms;       /* when they were not changed for so long; 0: 10,000 */
    uint32_t compact_piece_blocks;   /* that a compaction copies at a time, in a small cache fewer; 0: 64 */
    uint32_t log_segment_size;       /* of a store that is always opened with it (tests); 0: 16 MiB */
    bool fsm_threshold_given;        /* else that of the data directory */
    uint32_t fsm_threshold;          /* blocks of its live tree above which a table gets a sidecar */
    bool
        missing_tablespace_offline; /* tables in a tablespace whose directory is missing answer -EIO; else the store is refused */
    bool read_only;
    bool restoring; /* to go on with the replay of a base (txn/restore.c): no log is opened */
    bool copied; /* the data directory alone was copied: a store with tablespaces is refused, and they are left alone */
    const struct control
        *pinned; /* read-only, as of this checkpoint, which whoever has the store open keeps; NULL: as it is */
    const struct archive_target *archive; /* where finished segments of the log go; copied; NULL: nowhere */
    uint64_t archive_timeout_ms;     /* one that is not full goes there too after that time; 0: only at a clean close */
    struct store_progress *progress; /* told how far opening is; NULL: nobody watches */
};

/* How far store_open is with a log that has to be replayed, for another thread to look at. Starts as all zero. */
struct store_progress {
    _Atomic enum store_phase {
        STORE_PHASE_OPEN,       /* no log is replayed (yet) */
        STORE_PHASE_READ_LOG,   /* what does it refer to, and where does it end? */
        STORE_PHASE_REPLAY,     /* its records are done again */
        STORE_PHASE_CHECKPOINT, /* the result is made durable */
    } phase;
    _Atomic uint64_t done_bytes,
        total_bytes;          /* of log, in the phases that read it; while its end is not known, of its files */
    _Atomic uint64_t records; /* replayed so far */
};
/* A progress_look_fn: says it in words. arg: the store_progress. */
void store_progress_look(void *arg, struct progress_state *out_state);

#define STORE_FSM_THRESHOLD     4u /* of a new data directory */
#define STORE_FSM_THRESHOLD_MAX 1000000u

struct store_mkfs_options {
    struct io_device *dev;
    struct diag *diag;
    const char *dir;
    bool create_dir;          /* make the directory when it is missing */
    uint8_t name_hash_bits;   /* 0: 47 */
    bool fsm_threshold_given; /* else STORE_FSM_THRESHOLD */
    uint32_t fsm_threshold;
    uint32_t root_mode, root_uid, root_gid; /* of the root directory; mode 0: 0755 */
};

/* Makes an empty store. -ENOTEMPTY: the directory holds something; -EEXIST: it is a store already; -ENOENT. Says what
 * is wrong on diag. */
int store_mkfs(const struct store_mkfs_options *options) WARN_UNUSED;

/* Opens it. -ENODATA: not a tblfs data directory (nothing was touched); -EBUSY: in use, the holder's pid in
 * *out_holder, or on diag when that is NULL; -EIO: damaged, what and where on diag; -EPROTO: written by a newer version. */
int store_open(const struct store_options *options, struct store **out_store, pid_t *out_holder) WARN_UNUSED;
/* Checkpoint and clean close. The first error is returned; the store is gone either way. Files must be closed (orphans
 * are destroyed). */
int store_close(struct store *store) WARN_UNUSED;
/* Closes without a checkpoint: what a kill would leave (tests). */
void store_abandon(struct store *store);

struct view *store_live(struct store *store);
struct cow *store_cow(struct store *store);
struct bufcache *store_cache(struct store *store);
/* Why the store is read-only, or NULL. */
const char *store_read_only_reason(struct store *store);

/* ---- names ---- */

struct store_attr {
    ino_no ino;
    uint32_t mode, nlink, uid, gid, rdev;
    uint64_t size_bytes;
    uint64_t blocks_512; /* as st_blocks */
    int64_t atime_ns, mtime_ns, ctime_ns;
};

struct store_name {
    const char *bytes;
    size_t size;
};

struct store_who { /* whose new inode it is */
    uint32_t uid, gid;
};

int store_lookup(struct store *store, struct view *view, ino_no parent, struct store_name name,
                 struct store_attr *out_attr) WARN_UNUSED;
int store_getattr(struct store *store, struct view *view, ino_no ino, struct store_attr *out_attr) WARN_UNUSED;
/* Any kind but a symlink: mode has S_IFMT. The set-group-id rule of directories is applied. -EEXIST. */
int store_create(struct store *store, struct view *view, ino_no parent, struct store_name name, uint32_t mode,
                 uint32_t rdev, struct store_who who, struct store_attr *out_attr) WARN_UNUSED;
int store_symlink(struct store *store, struct view *view, ino_no parent, struct store_name name, const char *target,
                  struct store_who who, struct store_attr *out_attr) WARN_UNUSED; /* -ENAMETOOLONG over 4095 bytes */
int store_readlink(struct store *store, struct view *view, ino_no ino, char *buffer, size_t capacity,
                   size_t *out_size) WARN_UNUSED;
int store_link(struct store *store, struct view *view, ino_no ino, ino_no new_parent, struct store_name name,
               struct store_attr *out_attr) WARN_UNUSED; /* -EPERM for directories, -EMLINK over 65,000 */
int store_unlink(struct store *store, struct view *view, ino_no parent,
                 struct store_name name) WARN_UNUSED; /* -EISDIR */
int store_rmdir(struct store *store, struct view *view, ino_no parent,
                struct store_name name) WARN_UNUSED; /* -ENOTEMPTY, -ENOTDIR */
/* flags: 0, STORE_RENAME_NOREPLACE, STORE_RENAME_EXCHANGE. Errors as rename(2). */
#define STORE_RENAME_NOREPLACE 1u
#define STORE_RENAME_EXCHANGE  2u
int store_rename(struct store *store, struct view *view, ino_no parent, struct store_name name, ino_no new_parent,
                 struct store_name new_name, unsigned flags) WARN_UNUSED;

struct store_dir_entry {
    uint64_t cookie; /* pass as `after` to go on behind it; positive as int64, > 2 */
    const char *name;
    size_t name_size;
    ino_no ino;
    uint32_t mode_type;            /* S_IFMT bits */
    const struct store_attr *attr; /* NULL unless asked for */
};
/* Entries with cookie > after (0: all), without "." and "..", in cookie order, until fn returns non-zero (1: stop,
 * result 0; negative: handed on). Called under the catalog lock: fn must not call the store. */
typedef int store_dir_fn(void *arg, const struct store_dir_entry *entry);
int store_readdir(struct store *store, struct view *view, ino_no dir, uint64_t after, bool with_attr, store_dir_fn *fn,
                  void *arg) WARN_UNUSED;
/* Parent of a directory (for ".."). */
int store_parent(struct store *store, struct view *view, ino_no dir, ino_no *out_parent) WARN_UNUSED;

#define STORE_SET_MODE      1u
#define STORE_SET_UID       2u
#define STORE_SET_GID       4u
#define STORE_SET_SIZE      8u
#define STORE_SET_ATIME     16u
#define STORE_SET_MTIME     32u
#define STORE_SET_ATIME_NOW 64u
#define STORE_SET_MTIME_NOW 128u
#define STORE_SET_KILL_SUID 256u /* with a size or owner change: set-user-id bits go (unless mode is set too) */
/* Size first, then the rest, as two operations (the kernel never asks for both but to stamp a truncation); *out_attr is the
 * state after. */
int store_setattr(struct store *store, struct view *view, ino_no ino, unsigned set, const struct store_attr *attr,
                  struct store_attr *out_attr) WARN_UNUSED;

int store_getxattr(struct store *store, struct view *view, ino_no ino, const char *name, void *buffer, size_t capacity,
                   size_t *out_size) WARN_UNUSED; /* -ENODATA; capacity 0: only the size; -ERANGE */
#define STORE_XATTR_CREATE  1u
#define STORE_XATTR_REPLACE 2u
int store_setxattr(struct store *store, struct view *view, ino_no ino, const char *name, const void *value,
                   size_t value_size, unsigned flags) WARN_UNUSED;
/* NUL-terminated names, as listxattr(2). */
int store_listxattr(struct store *store, struct view *view, ino_no ino, char *buffer, size_t capacity,
                    size_t *out_size) WARN_UNUSED;
int store_removexattr(struct store *store, struct view *view, ino_no ino, const char *name) WARN_UNUSED;

/* ---- content ---- */

/* An open file keeps its inode alive when its last name goes. Regular files only (-EISDIR, -EINVAL). -ENOENT. */
int store_file_open(struct store *store, struct view *view, ino_no ino, struct store_file **out_file) WARN_UNUSED;
/* The last close of an orphan destroys it. */
void store_file_close(struct store_file *file);
ino_no store_file_ino(const struct store_file *file);
int store_file_getattr(struct store_file *file, struct store_attr *out_attr) WARN_UNUSED; /* also of an orphan */

#define STORE_WRITE_APPEND    1u /* offset is ignored */
#define STORE_WRITE_NO_EXTEND 2u /* clipped to the end (page write-back of mmap) */
#define STORE_WRITE_KILL_SUID 4u
/* All or nothing. *out_end: file size after it. size 0 does nothing. */
int store_write(struct store_file *file, uint64_t offset, const void *bytes, size_t size, unsigned flags,
                uint64_t *out_end) WARN_UNUSED;
int store_read(struct store_file *file, uint64_t offset, void *bytes, size_t size, size_t *out_read) WARN_UNUSED;
/* Pieces to be sent without a copy; release with content_pieces_release, then store_read_done(budget). -E2BIG: too few
 * frames; use store_read. */
int store_read_pieces(struct store_file *file, uint64_t offset, size_t size, struct content_pieces *out_pieces,
                      struct frame_budget *out_budget) WARN_UNUSED;
#define STORE_ALLOCATE_KEEP_SIZE 1u
#define STORE_ALLOCATE_PUNCH     2u /* with KEEP_SIZE */
#define STORE_ALLOCATE_ZERO      4u
/* fallocate(2): plain mode extends the size (space is not promised: a hole), PUNCH and ZERO zero a range. */
int store_allocate(struct store_file *file, uint64_t offset, uint64_t size, unsigned mode) WARN_UNUSED;
int store_seek(struct store_file *file, uint64_t offset, bool hole, uint64_t *out_offset) WARN_UNUSED;
/* Makes everything that was acknowledged before durable. */
int store_sync(struct store *store) WARN_UNUSED;
/* The same without waiting: `done` is called once, by another thread and with no lock held, with store_sync's result; one
 * sync serves all that ask meanwhile. Without background threads it is called before this returns. `done` must not
 * wait for other requests. -ENOMEM: it will not be called. */
int store_sync_async(struct store *store, void (*done)(void *arg, int rc), void *arg) WARN_UNUSED;

/* ---- compaction ---- */

/* How a table lies in its file. */
struct store_shape {
    uint64_t file_blocks;
    uint64_t leaves;       /* blocks that hold its bytes */
    uint64_t least_leaves; /* as many would do */
    uint64_t runs;         /* of leaves that follow each other in the file */
};
int store_file_get_shape(struct store_file *file, struct store_shape *out_shape) WARN_UNUSED;
/* There is next to nothing that a compaction could improve. */
bool store_shape_is_orderly(const struct store_shape *shape);

/* Writes the content of a live table again, in order, into a new file, while everybody goes on. No byte, no attribute and no number changes,
 * nobody gets a conflict from it, and what saw the table before (snapshots, transactions) goes on seeing the old file. */
struct store_compact;
struct store_compact_info {
    uint64_t done_bytes, total_bytes;
    struct store_shape before, after; /* after: when it is done */
    char transaction[256];            /* -EBUSY: the one that wrote the table */
};
/* -EINVAL: not of the live tree; -EALREADY: it is being compacted; -EROFS. */
int store_compact_begin(struct store_file *file, struct store_compact **out_compact) WARN_UNUSED;
/* Goes on for about that many bytes. 1: there is more to do; 0: done. -EBUSY: an open transaction wrote the table; -EAGAIN: it is changed again
 * and again; -ESTALE: it was replaced or removed; -ENOSPC, -EIO, -ENOMEM, -EROFS. After an error it is over, and the table as it was. */
int store_compact_step(struct store_compact *compact, uint64_t max_bytes) WARN_UNUSED;
void store_compact_get_info(const struct store_compact *compact, struct store_compact_info *out_info);
/* Whenever one likes: one that is not done leaves nothing behind. */
void store_compact_end(struct store_compact *compact);

/* ---- snapshots ---- */

/* A named version of the whole tree, read-only, in O(1); it survives restarts. As any operation it is logged, and durable with the next
 * sync. Names as those of files, unique among snapshots. */
struct store_snapshot;

int store_snapshot_create(struct store *store, struct store_name name) WARN_UNUSED; /* -EEXIST, -ENAMETOOLONG */
/* What only it used is free when a checkpoint that no longer names it is durable and nobody has it open. -ENOENT. */
int store_snapshot_drop(struct store *store, struct store_name name) WARN_UNUSED;
int store_snapshot_rename(struct store *store, struct store_name name, struct store_name new_name) WARN_UNUSED;
/* Opens it for reading: its version stays until it is put back, also when it is dropped meanwhile. -ENOENT. */
int store_snapshot_get(struct store *store, struct store_name name, struct store_snapshot **out_snapshot) WARN_UNUSED;
void store_snapshot_put(struct store_snapshot *snapshot);
struct view *store_snapshot_view(struct store_snapshot *snapshot);
uint64_t store_snapshot_number(const struct store_snapshot *snapshot); /* never used again */
struct store_snapshot_info {
    uint64_t number;
    const char *name;
    size_t name_size;
    int64_t created_ns;
    epoch_no at;
};
/* Open ones, in order of their numbers; called under a lock: fn must not call the store. Non-zero stops and is handed on. */
typedef int store_snapshot_fn(void *arg, const struct store_snapshot_info *info);
int store_each_snapshot(struct store *store, store_snapshot_fn *fn, void *arg);

/* ---- tablespaces ---- */

/* A directory, on whatever filesystem, for the relation files of tables. A directory or table of the tree that has one (STORE_XATTR_TABLESPACE: its
 * name) hands it on to what is made in it. */
#define STORE_XATTR_TABLESPACE "user.tblfs.tablespace"

/* dir: absolute; it is empty, or was a tablespace of this store's, and is locked as long as the store is open. Durable when it returns.
 * -EEXIST: the name; -EBUSY: the directory is in use; -ENOTEMPTY; -EINVAL; -ENAMETOOLONG; ... What is wrong is said on diag. */
int store_tablespace_create(struct store *store, struct store_name name, const char *dir) WARN_UNUSED;
/* -ENOTEMPTY: relation files are left in it, behind a checkpoint that was taken for it; said. -ENOENT. Durable when it returns. */
int store_tablespace_drop(struct store *store, struct store_name name) WARN_UNUSED;
struct store_tablespace_info {
    ts_no number; /* never used again */
    const char *name;
    const char *dir;
    int64_t created_ns;
    bool offline; /* its directory was missing when the store was opened */
};
/* In order of their numbers; called under a lock: fn must not call the store. Non-zero stops and is handed on. */
typedef int store_tablespace_fn(void *arg, const struct store_tablespace_info *info);
int store_each_tablespace(struct store *store, store_tablespace_fn *fn, void *arg);

/* ---- transactions ---- */

/* A private version of the whole tree, begun in O(1): every call of this header works on its view. Closed all at once, or not at all. What
 * is private ends with the store: a crash aborts it. */
struct store_txn;

struct store_txn_options {
    struct store_name name; /* for receipts; copied */
    uint32_t uid;           /* who began it, for receipts */
    uint32_t pid;
    bool scratch; /* for what is never committed: it is not logged */
};
/* *out_txn has one reference. -EROFS, -ENOMEM. */
int store_txn_begin(struct store *store, const struct store_txn_options *options,
                    struct store_txn **out_txn) WARN_UNUSED;
/* Whoever has an open file of its view has a reference. The last one ends it; one that is still open is aborted. */
void store_txn_ref(struct store_txn *txn);
void store_txn_put(struct store_txn *txn);
struct view *store_txn_view(struct store_txn *txn);
/* The tree as it was at begin, read-only. Lives as long as the transaction. */
struct view *store_txn_base(struct store_txn *txn);
uint64_t store_txn_number(const struct store_txn *txn); /* never used again, also not by a snapshot */

/* What a commit changed in the live tree, for whoever told others what it looks like. */
enum store_change_kind {
    STORE_CHANGE_NAME,      /* parent, name: led elsewhere or nowhere before; a new name has old_ino INO_NONE */
    STORE_CHANGE_DIRECTORY, /* ino: entries, times or counts */
    STORE_CHANGE_ATTR,      /* ino: attributes */
    STORE_CHANGE_APPENDED,  /* ino: bytes from old_size on */
    STORE_CHANGE_REPLACED, /* old_ino has no name any more; ino has all that it had. Open files go on with the old version */
    STORE_CHANGE_DROPPED, /* old_ino has no name any more */
};
struct store_change {
    enum store_change_kind kind;
    ino_no parent, ino, old_ino;
    uint64_t old_size;
    const char *name; /* NUL-terminated; belongs to the list */
    size_t name_size;
};
struct store_changes {
    struct store_change *changes;
    size_t count, capacity;
    uint64_t number; /* of the commit: 1 is the store's first */
    lsn_no lsn;
    int64_t time_ns;
};
void store_changes_free(struct store_changes *changes);

/* Closes it: 0 and everything is in the live tree and durable; new look-ups see it before this returns. *out_changes is filled then (free
 * it). -EAGAIN: a conflict, see store_txn_each_conflict; -ECANCELED: it was aborted, -ENOENT: it was committed; -ENOSPC, -ENOMEM, -EIO, -EROFS: nothing has
 * happened, it stays open. -EIO after the store failed: it may or may not be durable (store_read_only_reason). Files of its view
 * that are open can be read on; its view takes no changes any more (-ENOENT; of an aborted one -ECANCELED). */
int store_txn_commit(struct store_txn *txn, struct store_changes *out_changes) WARN_UNUSED;
/* Discards it. Files of its view that are open can be read on. Does nothing to one that has ended. */
void store_txn_abort(struct store_txn *txn);

enum store_txn_state { STORE_TXN_OPEN, STORE_TXN_COMMITTED, STORE_TXN_ABORTED };
struct store_txn_info {
    uint64_t number;
    const char *name; /* NUL-terminated, valid while the transaction is */
    uint32_t uid, pid;
    enum store_txn_state state;
    int64_t began_ns, changed_ns; /* changed: its last operation, or its begin */
    epoch_no at;
    uint64_t operations;    /* changes made in it */
    uint64_t private_bytes; /* in blocks of its own */
    uint64_t log_bytes;     /* log that cannot be removed because of it */
};
void store_txn_get_info(struct store_txn *txn, struct store_txn_info *out_info);
enum store_txn_state store_txn_state(const struct store_txn *txn);

/* One object that it changed (fn of store_txn_each_change), or that would conflict if it were closed now (store_txn_each_conflict). Both
 * may be called at any time while it is open; fn is called without locks. */
struct store_txn_object {
    const char *path; /* from the root, without a leading '/', NUL-terminated; "." is the root */
    const char
        *did; /* what the transaction did to it: "create", "remove", "rename", "append", "rewrite", "attributes", ... */
    const char *outside; /* conflicts: what happened outside: "removed", "made", "changed", "appended", ...; else "" */
    int64_t since_ns;    /* conflicts: when, 0: not known */
    uint64_t size_before, size; /* changes of content */
};
typedef int store_txn_object_fn(void *arg, const struct store_txn_object *object);
int store_txn_each_change(struct store_txn *txn, store_txn_object_fn *fn, void *arg) WARN_UNUSED;
int store_txn_each_conflict(struct store_txn *txn, store_txn_object_fn *fn, void *arg) WARN_UNUSED;

/* The path of an inode of the transaction's view (or of its base, where it is gone): as in store_txn_object, cut at the front to what fits.
 * -ENOENT: it never had a name that is known. */
int store_txn_path(struct store_txn *txn, ino_no ino, char *buffer, size_t capacity) WARN_UNUSED;

/* A table that a commit replaced while it was open: *out_ino is the inode that has its names now (they may be gone by now). The file goes
 * on showing the old version with nlink 0 and takes no writes (-ESTALE). False: it was not replaced. */
bool store_file_replaced(struct store_file *file, ino_no *out_ino);
/* The epoch of the version that a file of a replaced table shows; 0: it was not replaced. Takes no lock. */
epoch_no store_file_replaced_at(const struct store_file *file);

/* The last 10,000 commits of this life, oldest first. Called under a lock: fn must not call the store. Non-zero stops and is handed on. */
struct store_commit {
    uint64_t number;
    lsn_no lsn;
    int64_t time_ns;
    const char *name;
    uint32_t uid, pid;
    uint64_t tables; /* changed, made or dropped */
    uint64_t bytes;  /* written in it */
};
typedef int store_commit_fn(void *arg, const struct store_commit *commit);
int store_each_commit(struct store *store, store_commit_fn *fn, void *arg);

/* What keeps old versions: open transactions, snapshots, replaced tables that are open, checkpoints. fn as in store_each_commit. */
#define STORE_HOLDER_OPEN_FILE "open file"
struct store_holder_info {
    const char *kind;
    epoch_no at;
};
typedef int store_holder_fn(void *arg, const struct store_holder_info *info);
int store_each_holder(struct store *store, store_holder_fn *fn, void *arg);

/* ---- tables and their files ---- */

struct store_relation {
    rel_no rel; /* REL_NONE: nothing was ever written to the table */
    ts_no ts;
    ino_no ino;
    const char *path; /* as in store_txn_object, of its first name; "": it was unlinked, and is open */
    uint64_t size_bytes;
    uint64_t
        live_blocks; /* of its tree as it is now; exact for up to CONTENT_FANOUT leaves, and a little too few where inner pages are not full */
    uint32_t leaves; /* of those, the ones that hold bytes */
    struct relation_file file;
    bool free_known; /* its map is ready: */
    uint32_t free_blocks;
};
/* Every table of the live tree, in order of inode numbers. No lock that a writer waits for is held for long, no file is opened, no page of a table
 * touched; what comes or goes meanwhile may be left out. fn is called without locks; non-zero stops and is handed on. */
typedef int store_relation_fn(void *arg, const struct store_relation *relation);
int store_each_relation(struct store *store, store_relation_fn *fn, void *arg) WARN_UNUSED;

/* What the blocks of a table's file are used for, as the version that the file shows sees it. */
enum store_block_use {
    STORE_BLOCK_FREE,
    STORE_BLOCK_INNER, /* of the tree */
    STORE_BLOCK_LEAF,
    STORE_BLOCK_PINNED, /* this version does not use it, but something else does */
    STORE_BLOCK_HELD,   /* an operation that is under way has it */
    STORE_BLOCK_PUNCHED /* free, and has to be given space in the file before it is used */
};
enum store_block_pin {
    STORE_PIN_NONE,
    STORE_PIN_LIVE, /* the live tree; this is the version of a snapshot or a transaction */
    STORE_PIN_SNAPSHOT,
    STORE_PIN_TRANSACTION, /* an open one: what it began with, and what is its own */
    STORE_PIN_CHECKPOINT,
    STORE_PIN_BACKUP,
    STORE_PIN_OTHER, /* the log refers to it; or a replaced table has it that is open */
};
/* Blocks in a row that are alike. */
struct store_block_run {
    block_no first;
    uint32_t count;
    uint8_t use;    /* enum store_block_use */
    uint8_t level;  /* inner: 1 is above the leaves */
    uint8_t pin;    /* enum store_block_pin: by what; what keeps it longest, if several do */
    uint16_t bytes; /* of content, in each of the leaves */
};
/* Every block of the file in order; *out_runs is malloc'd. It reads the inner pages, as a reader of the table; no leaf. */
int store_list_blocks(struct store_file *file, struct store_block_run **out_runs, size_t *out_count) WARN_UNUSED;

/* ---- the rest ---- */

struct store_space {
    uint64_t total_bytes, free_bytes, available_bytes;
    uint64_t inodes;
    uint64_t free_inodes;
};
int store_space(struct store *store, struct store_space *out_space) WARN_UNUSED;

/* Takes a checkpoint, and keeps it until the end, whatever happens: for who copies it from the data directory (txn/base.h). Header: what it is a
 * copy of. End ignores NULL. */
struct store_backup;
int store_backup_begin(struct store *store, struct store_backup **out_backup) WARN_UNUSED;
const struct base_header *store_backup_header(const struct store_backup *backup);
void store_backup_end(struct store_backup *backup);

/* Where the store is: what `restore` and a standby count in. All commits up to that one are before that position, no other is. */
struct store_position {
    uint32_t timeline;
    lsn_no lsn;       /* where the next record will stand */
    uint64_t commits; /* number of the last one; 0: there was none */
};
void store_get_position(struct store *store, struct store_position *out_position);

/* A file of the log, and why it is there. */
enum store_segment_state {
    STORE_SEGMENT_SPARE,       /* will be used again; nothing in it counts */
    STORE_SEGMENT_RECYCLABLE,  /* goes with the next checkpoint */
    STORE_SEGMENT_ARCHIVING,   /* waits for the archive alone */
    STORE_SEGMENT_TRANSACTION, /* an open transaction wrote there: a start would read it to learn what it did */
    STORE_SEGMENT_NEEDED,      /* a start would replay it */
    STORE_SEGMENT_CURRENT,     /* the next record goes there */
    STORE_SEGMENT_PREPARED,    /* made for what follows */
    STORE_SEGMENT_STATES
};
const char *store_segment_state_name(enum store_segment_state state);
struct store_segment {
    uint64_t number;
    lsn_no start, end; /* spare: 0 */
    uint64_t bytes;    /* of the file */
    enum store_segment_state state;
};
/* Those of earlier lives first, then the spare one, then in ascending order. Read-only stores have none. Called under a lock: fn must not call the store. */
typedef int store_segment_fn(void *arg, const struct store_segment *segment);
int store_each_segment(struct store *store, store_segment_fn *fn, void *arg);

/* Why a checkpoint was taken. */
enum store_checkpoint_cause {
    CHECKPOINT_START,    /* what was replayed becomes durable */
    CHECKPOINT_INTERVAL, /* the last one is so old */
    CHECKPOINT_LOG,      /* so much was logged since */
    CHECKPOINT_SPACE,    /* so much space waits for one */
    CHECKPOINT_FULL,     /* an operation found no room */
    CHECKPOINT_BACKUP,
    CHECKPOINT_ASKED, /* by a caller of store_checkpoint */
    CHECKPOINT_CLOSE,
    CHECKPOINT_CAUSES
};
const char *store_checkpoint_cause_name(enum store_checkpoint_cause cause);
#define STORE_CHECKPOINT_LINES 1000u
/* A line for each durable one of this life, oldest first; the last 1,000. */
struct store_checkpoint_line {
    uint64_t number; /* of the control slot */
    int64_t time_ns; /* when it was durable */
    enum store_checkpoint_cause cause;
    uint64_t duration_us;
    uint64_t pages;     /* written */
    uint64_t log_bytes; /* since the one before */
    lsn_no lsn;         /* where a start would begin to replay */
    epoch_no epoch;
};
typedef int store_checkpoint_fn(void *arg, const struct store_checkpoint_line *line);
int store_each_checkpoint(struct store *store, store_checkpoint_fn *fn, void *arg);

/* Takes a checkpoint now and waits for it. */
int store_checkpoint(struct store *store) WARN_UNUSED;
/* Is so much logged or replaced since the last one that the background would take one now? */
bool store_wants_checkpoint(struct store *store);
/* Without background threads: drops what is dead, one round of the background writer. */
void store_step(struct store *store);

/* Why relations were dropped from the cache. */
enum store_sweep_cause {
    SWEEP_UNLINK, /* live tables that were removed or cut to nothing */
    SWEEP_COMMIT,
    SWEEP_ABORT,
    SWEEP_CHECKPOINT,
    SWEEP_REDO,
    SWEEP_UNLINK_FILE, /* pages that were read of a dropped relation, when its file goes */
    SWEEP_CAUSES
};
const char *store_sweep_cause_name(enum store_sweep_cause cause);

/* One line per sweep, newest last; the last 1,000. */
struct store_sweep {
    int64_t time_ns;
    enum store_sweep_cause cause;
    txn_no txn;
    struct drop_result result;
};
typedef int store_sweep_fn(void *arg, const struct store_sweep *sweep);
int store_each_sweep(struct store *store, store_sweep_fn *fn, void *arg);

/* What takes long and goes on beside everything else, oldest first. Called under a lock: fn must not call the store. Non-zero stops and
 * is handed on. */
struct store_job_info {
    const char *kind;     /* "map", "snapshot", ... */
    const char *what;     /* it is done to */
    uint64_t done, total; /* total 0: not known */
    const char *unit;     /* of both */
    uint64_t running_ns;
};
typedef int store_job_fn(void *arg, const struct store_job_info *info);
int store_each_job(struct store *store, store_job_fn *fn, void *arg);

struct store_stats {
    uint64_t operations[64]; /* by enum op_type */
    uint64_t checkpoints, sweeps, orphans, open_files;
    uint64_t sweeps_of[SWEEP_CAUSES];
    uint64_t checkpoint_pages_written;
    uint64_t blocks_trimmed; /* cut off the ends of relation files */
    uint64_t blocks_punched; /* inside of relation files, given back to the filesystem */
    uint64_t sidecars_loaded, sidecars_ignored, sidecars_removed;
    uint32_t fsm_threshold;
    uint64_t maps_waiting; /* free maps that are to be built in the background; 0: no build is under way either */
    uint64_t maps_built, maps_failed;
    epoch_no epoch;
    uint64_t control_number;
    struct log_stats log;           /* zero when read-only */
    uint64_t redo_records, redo_ms; /* of the recovery at the start; 0: there was none */
};
void store_get_stats(struct store *store, struct store_stats *out_stats);
void store_get_archive_status(struct store *store, struct archive_status *out_status);

/* Checks everything that can be reached from the live view and every holder: pages, counts, names against inodes,
 * relations against their maps (FSM-3: map equals the one rebuilt from the roots). Stops mutations meanwhile. 0, or
 * -EIO after diag lines, one per finding. */
int store_check(struct store *store) WARN_UNUSED;
/* The same for a fork of the live tree, while everything goes on: pages, counts and names, not the maps. Findings go to diag; what a page
 * itself has wrong is reported where all damage is, and here as the table that has it. */
int store_check_online(struct store *store, struct diag *diag) WARN_UNUSED;
/* How far a store_check under way in another thread is, in bytes of content; total 0: it is still reading the catalog. */
void store_check_progress(struct store *store, uint64_t *out_done_bytes, uint64_t *out_total_bytes);

#endif
