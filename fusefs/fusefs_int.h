/*
 * fusefs/fusefs_int.h - what the files of fusefs/ share.
 *
 * FUSE-1 Every request is answered exactly once.
 * FUSE-2 A lookup count whose reply could not be delivered is undone.
 * FUSE-3 No lock is held while a reply is written, but the pins of the frames that it is sent from.
 * FUSE-4 What is told to the kernel with a long timeout changes only through this mount.
 */
#ifndef TBLFS_FUSEFS_FUSEFS_INT_H
#define TBLFS_FUSEFS_FUSEFS_INT_H

#include "fusefs/fusefs.h"
#include "fusefs/archive.h"
#include "fusefs/kernel.h"
#include "fusefs/daemon_log.h"
#include "fusefs/nodes.h"
#include "fusefs/roots.h"
#include "fusefs/transactions.h"
#include "fusefs/virtual.h"
#include "fusefs/workers.h"
#include "txn/store.h"

struct handle;
struct mount_standby;

struct fusefs {
    struct kernel_link link; /* first: the session's userdata is both */
    struct daemon_log log;
    const struct fusefs_options *options;
    struct store *store;
    struct mount_archive archive;
    struct mount_standby *standby; /* NULL: it is none */
    struct node_table *nodes;
    struct fuse_session *session;
    struct workers *workers;
    struct mutex handles_lock; /* LOCK_RANK_LEAF */
    struct handle *handles;    /* all open ones, guarded by handles_lock */
    struct condvar writer_closed;
    struct telling *tellings;    /* commits that the kernel is being told of, guarded by tellings_lock */
    struct mutex tellings_lock;  /* LOCK_RANK_LEAF */
    _Atomic bool dropped_logged; /* that a page write-back was dropped was said once */
    int64_t started_ns;          /* wall clock */
    struct mutex syncs_lock;     /* LOCK_RANK_LEAF */
    struct condvar syncs_done;
    unsigned syncs_waiting;         /* replies that wait for a sync, guarded by syncs_lock */
    struct mutex transactions_lock; /* LOCK_RANK_TRANSACTIONS */
    struct condvar transactions_unclaimed;
    struct transaction *transactions;              /* open and aborted ones, guarded by transactions_lock */
    bool limits_watching;                          /* guarded by transactions_lock */
    struct worker_timer limits_timer;              /* fusefs/limits.h */
    _Atomic int64_t roots_changed_ns[ROOTS_COUNT]; /* mtimes of MNT/.snap, .txn, .tablespace */
};

static inline struct fusefs *fusefs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* ---- attributes (ops_attr.c) ---- */

#define TIMEOUT_LONG_S (10.0 * 365 * 86400)

void attr_to_stat(const struct node_tree *tree, const struct store_attr *attr, struct stat *out_stat);
/* Enters the node (one lookup) and fills in a reply that the kernel may keep. The tree is held. -ENOMEM. */
int entry_make(struct fusefs *fs, struct node_tree *tree, const struct store_attr *attr,
               struct fuse_entry_param *out_entry) WARN_UNUSED;
/* How long the kernel may keep attributes. */
double attr_timeout_s(const struct node_tree *tree, ino_no ino);
/* Answers with an entry for `attr`. */
void reply_entry(fuse_req_t req, struct node_tree *tree, const struct store_attr *attr);
/* -ENOENT of a call on a node means that its inode is gone: ESTALE makes the kernel walk the path again. */
int stale_if_gone(int rc);
/* Answers with -rc. */
void reply_error(fuse_req_t req, int rc);

/* ---- names (names.c) ---- */

bool name_is_too_long(const char *name);
bool name_is_commit(const char *name);
bool name_is_own(const char *name); /* at a root of a tree; it is none of the tables' */
/* May names in this directory, and other things of this node, be changed? 0, or -EROFS; of virtual ones what their kind says. */
int node_check_names(const struct node_identity *dir) WARN_UNUSED;
/* Content: node_check_writable; attributes too: node_check_attributes (of a transaction's own directory: -EPERM). */
int node_check_attributes(const struct node_identity *node) WARN_UNUSED;
int node_check_writable(const struct node_identity *node) WARN_UNUSED;
/* May `name` be made in (or moved into) that directory? 0, or -EBUSY, -EINVAL, -ENAMETOOLONG, or as node_check_names. */
int name_check_new(const struct node_identity *dir, const char *name) WARN_UNUSED;
/* May it be removed from (or moved out of) it? 0, or -EBUSY, -ENOENT, -ENAMETOOLONG, or as node_check_names. */
int name_check_old(const struct node_identity *dir, const char *name) WARN_UNUSED;
/* May it be looked up in the store? 0, -ENOENT or -ENAMETOOLONG. */
int name_check_lookup(const struct node_identity *dir, const char *name) WARN_UNUSED;
/* What a name at a root leads to, if it is one of tblfs's own. NULL: it is not. The function answers. */
typedef void name_lookup_fn(fuse_req_t req, const struct node_identity *root);
name_lookup_fn *name_own_lookup(const struct node_identity *dir, const char *name);

/* ---- open files (handles.c) ---- */

struct handle {
    uint64_t node_id;
    struct open_file *open; /* NULL: virtual */
    bool read_write;        /* guards appends (fusefs/append_guard.h) */
    bool writes;            /* open for writing */
    bool receipt;           /* virtual: takes writes and forgets them */
    pid_t pid;              /* who opened it */
    char *text;             /* virtual: content as of open */
    size_t text_size;
    struct store_compact *compact;      /* of the table, under way; NULL: none */
    struct store_block_run *block_runs; /* what serve_blocks hands out; NULL: nothing yet */
    size_t block_run_count;
    _Atomic bool ioctl_busy;     /* a request goes on with one of these */
    struct store_backup *backup; /* virtual: a checkpoint that is kept as long as it is open; NULL: none */
    struct handle *prev, *next;  /* fs->handles */
};

static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
    return (struct handle *)(uintptr_t)fi->fh;
}

void handles_init(struct fusefs *fs);
void handles_destroy(struct fusefs *fs);
/* Opens the node's file (or shares it, when it is open) and makes a handle. access: O_RDONLY, O_WRONLY, O_RDWR. -EBUSY: for writing,
 * in a transaction that is being committed; -ESTALE, -ENOMEM, -EIO... */
int handle_open(struct fusefs *fs, const struct node_identity *node, int access, pid_t pid,
                struct handle **out_handle) WARN_UNUSED;
/* A handle with a text of its own, which it takes over (also on failure: it is freed). */
int handle_open_text(struct fusefs *fs, uint64_t node_id, char *text, size_t text_size,
                     struct handle **out_handle) WARN_UNUSED;
/* One that takes writes and forgets them. */
int handle_open_receipt(struct fusefs *fs, uint64_t node_id, struct handle **out_handle) WARN_UNUSED;
void handle_close(struct fusefs *fs, struct handle *handle);
/* ops_blocks.c: an ioctl of fusefs/blocks.h. */
int serve_blocks(struct fusefs *fs, struct handle *handle, const void *in, void *out) WARN_UNUSED;
void handle_end_compaction(struct handle *handle); /* ops_compact.c; a compaction that is not done is given up */
/* Waits until nobody has a file of that transaction's tree open for writing, and lets nobody open one then. -EBUSY: somebody still has
 * after that time. */
int handles_shut_writers_out(struct fusefs *fs, struct transaction *transaction, uint64_t timeout_ms) WARN_UNUSED;
void handles_let_writers_in(struct fusefs *fs, struct transaction *transaction);
/* It is committed: who waits to open one of its files for writing is told so. */
void handles_note_committed(struct fusefs *fs, struct transaction *transaction);
/* Those who have a file of that tree open for writing. malloc'd; *out_count 0: NULL. -ENOMEM. */
struct handle_writer {
    pid_t pid;
    ino_no ino; /* in the transaction */
};
int handles_list_writers(struct fusefs *fs, struct transaction *transaction, struct handle_writer **out_writers,
                         size_t *out_count) WARN_UNUSED;
/* Those who have a table open that a commit replaced since: its old version lives as long. malloc'd, as above. */
struct handle_reader {
    pid_t pid;
    epoch_no at;
};
int handles_list_old_versions(struct fusefs *fs, struct handle_reader **out_readers, size_t *out_count) WARN_UNUSED;
/* Ids of the nodes of live files that are open for reading and writing, each once or more. malloc'd. */
int handles_list_read_write(struct fusefs *fs, uint64_t **out_ids, size_t *out_count) WARN_UNUSED;
/* -ECANCELED: it writes into a transaction that was aborted; what it wrote is nowhere. */
int handle_check_canceled(const struct handle *handle) WARN_UNUSED;
/* At the end: closes what the kernel never released. */
void handles_close_all(struct fusefs *fs);
/* The node's open file with one more use, opened if need be. */
int open_file_get(struct fusefs *fs, const struct node_identity *node, struct open_file **out_open) WARN_UNUSED;
/* Gives back a use that node_open_use gave. */
void open_file_unuse(struct fusefs *fs, uint64_t node_id);
/* A write took set-user-id bits away, if there were any. After a write the kernel asks for size and times again, but
 * not for the mode, and would go on honouring them: it is told. (Attributes only, of an inode that is open: this waits
 * for nothing, so a handler may do it.) */
void open_file_lost_set_id(struct fusefs *fs, uint64_t node_id, struct open_file *open);

/* ---- replies that wait for the disk (ops_sync.c) ---- */

void sync_replies_init(struct fusefs *fs);
void sync_replies_destroy(struct fusefs *fs);
/* Waits until all of them were sent. */
void sync_replies_wait(struct fusefs *fs);
/* Answers once everything that was acknowledged before is durable; does not wait for that. written: bytes of a write, 0:
 * a call that answers nothing else. */
void reply_when_durable(fuse_req_t req, size_t written);

/* ---- MNT/.tblfs (system_tables.c) ---- */

extern const struct virtual_kind system_tables_kind;
void system_lookup_directory(fuse_req_t req, const struct node_identity *root);

/* ---- MNT/.snap (snapshots.c) ---- */

extern const struct virtual_kind snapshots_kind;
void snapshots_init(struct fusefs *fs);
void snapshots_lookup_directory(fuse_req_t req, const struct node_identity *root);
bool snapshots_is_node(const struct node_identity *node);
/* Within it; flags as store_rename's. */
void snapshots_rename(fuse_req_t req, const char *name, const char *new_name, unsigned store_flags);

/* ---- MNT/.tablespace (tablespaces.c) ---- */

extern const struct virtual_kind tablespaces_kind, tablespace_links_kind;
void tablespaces_init(struct fusefs *fs);
void tablespaces_lookup_directory(fuse_req_t req, const struct node_identity *root);

/* ---- $t/.commit (commit.c) ---- */

/* Is making that name the gesture that commits? */
bool commit_is_gesture(const struct node_identity *dir, const char *name);
/* Commits, and answers when it is done: with a node of that type (S_IFDIR, S_IFREG), or, when fi is given, with that opened. */
void commit_start(fuse_req_t req, const struct node_identity *dir, mode_t type, const struct fuse_file_info *fi);
extern const struct virtual_kind receipts_kind;

/* ---- operations ---- */

void serve_init(void *userdata, struct fuse_conn_info *conn);

void serve_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void serve_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void serve_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void serve_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void serve_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void serve_readlink(fuse_req_t req, fuse_ino_t ino);
void serve_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
void serve_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void serve_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void serve_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
                  unsigned flags);

void serve_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void serve_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t after, struct fuse_file_info *fi);
void serve_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t after, struct fuse_file_info *fi);
void serve_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

void serve_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void serve_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *stat, int to_set, struct fuse_file_info *fi);
void serve_statfs(fuse_req_t req, fuse_ino_t ino);
void serve_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void serve_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void serve_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void serve_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

void serve_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void serve_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void serve_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void serve_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t offset,
                 struct fuse_file_info *fi);
void serve_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void serve_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);
void serve_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi);
void serve_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *arg, struct fuse_file_info *fi, unsigned flags,
                 const void *in, size_t in_size, size_t out_size);
void serve_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi);

/* ---- mounts (mounts.c) ---- */

struct mount_entry {
    unsigned major, minor; /* of the device */
    char *mount_point;
    char *type;
    char *source;
};

#define MOUNT_TYPE "fuse.tblfs"

/* Is `inner` that directory, or below it? Both as the kernel spells them. */
bool path_lies_in(const char *inner, const char *outer);

/* The topmost mount on that path (as the kernel spells it). -ENOENT: none. -errno. */
int mount_find_point(const char *mount_point, struct mount_entry *out_entry) WARN_UNUSED;
/* Some mount of that store, by its data directory. -ENOENT: none. */
int mount_find_source(const char *data_dir, struct mount_entry *out_entry) WARN_UNUSED;
void mount_entry_free(struct mount_entry *entry);
/* Does the daemon behind it answer? False: it is gone (ENOTCONN). */
bool mount_is_alive(const struct mount_entry *entry);
/* For commands: is that a mount of ours whose daemon answers? -EINVAL: it is not, which was said of the path as `given`. */
int mount_check_live(const char *given, const char *mount_point) WARN_UNUSED;
/* umount2(2), through fusermount3 where only that may. -EBUSY: in use. */
int mount_unmount(const char *mount_point, bool detach) WARN_UNUSED;
/* As realpath(3), but also for the root of a mount whose daemon is gone. NULL and errno. */
char *mount_realpath(const char *path);
/* As mount_realpath for a path whose last component need not exist. */
char *mount_realpath_new(const char *path);

/* ---- starting and ending (daemon.c, session.c) ---- */

/*
 * Goes into the background: returns twice. In the parent *out_child is false, and *out_status is what the child said
 * with daemon_report, or 1 when it ended without a word. In the child *out_report_fd is where to say it. -errno: there
 * is no child.
 */
int daemon_fork(bool *out_child, int *out_report_fd, int *out_status) WARN_UNUSED;
/* Does the parent still wait for that? (-1: in the foreground; yes) */
bool daemon_is_waited_for(int report_fd);
/* Lets go of the terminal (from here on stderr is the log's), and tells the waiting parent. */
void daemon_report(int report_fd, int status, const struct daemon_log *log);
/* Raises the limit of open files; returns how many the store may have. */
uint32_t daemon_raise_open_files(void);
/* A limit on the size of files is meant for who writes, not for the store's files. Where it cannot be lifted, calls fail with EFBIG. */
void daemon_lift_file_size(void);
/* Tells systemd (Type=notify), if it wants to know. */
void daemon_notify_systemd(const char *state);

/* Leaves the signals that end a session to the session's own thread. One that comes earlier waits for it. */
void session_block_signals(void);
/* Serves an opened store on options->mount_point until it is unmounted. 0 or -errno (said). report_fd: -1: foreground.
 */
int session_run(struct fusefs *fs, int report_fd) WARN_UNUSED;

#endif
