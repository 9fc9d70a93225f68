/*
 * txn/store_int.h - inside of the store.
 *
 * STORE-1 A mutation runs: frame budget (no lock held), file lock (content only), gate shared, plan of the content,
 *         catalog lock, plan of the catalog batch, log_append, apply, unlock. Nothing can fail behind log_append.
 * STORE-2 The order of log records is the order of application: records are appended under the catalog lock of their
 *         view.
 * STORE-3 A content root changes only under its inode's file lock (exclusive) and the catalog lock; attributes under
 *         the catalog lock.
 * STORE-4 An inode with no name left lives as an orphan as long as it is in the file table; whoever takes it out of
 *         the table destroys it.
 * STORE-5 No number is used at or above its ceiling in the control file.
 */
#ifndef TBLFS_TXN_STORE_INT_H
#define TBLFS_TXN_STORE_INT_H

#include "base/lock.h"
#include "txn/control.h"
#include "txn/log.h"
#include "txn/op.h"
#include "txn/store.h"
#include "txn/txn_set.h"

#include <pthread.h>
#include <stdatomic.h>

#define STORE_SWEEP_LINES     1000u
#define STORE_FILE_BUCKETS    4096u
#define STORE_MIN_CACHE_BYTES (UINT64_C(16) << 20)
#define STORE_READ_PINS       (2u * (CATALOG_MAX_HEIGHT + 2u))
#define STORE_LINK_MAX        65000u
#define STORE_NAME_MAX        255u
#define STORE_BATCH_EDITS     16u

/* What the open files of replaced tables show at first: the tree before the commit. Each of them takes what it needs of it and lets it
 * go (store_file_settle). */
struct old_version {
    struct store *store;
    struct holder *holder;
    struct view *view;
    _Atomic uint32_t refs;
};

struct store_file {
    struct store *store;
    struct view *_Atomic view; /* changed by store_file_move alone, under `lock` exclusively */
    ino_no ino;
    struct rwlock lock;        /* LOCK_RANK_FILE, order: ino */
    struct relation *relation; /* of the content, NULL: none yet; changed under `lock` exclusively */
    /* guarded by store->files_lock: */
    struct store_file *next;
    struct store_file *next_replaced; /* store->replaced */
    ino_no replaced_by;               /* the inode that has its names since a commit replaced it */
    uint32_t refs;
    bool orphan; /* its last name is gone */
    /* set once, with the catalog lock of the live view held exclusively: a commit replaced the table, the file shows what it was before */
    _Atomic bool replaced;
    _Atomic bool compacting; /* somebody is at it (txn/store_compact.c) */
    epoch_no replaced_at;    /* epoch of what it was before */
    struct old_version *old; /* cleared under `lock` exclusively, when the next two are there */
    struct block_pin *pin;   /* NULL: no content */
    struct inode *old_inode;
};

/* Free maps on the disk (txn/store_sidecar.c). */
struct sidecars {
    uint32_t threshold;               /* blocks; tables of more have one */
    bool unclean;                     /* this life began behind an unclean end */
    epoch_no from, to;                /* of those that may be believed */
    _Atomic bool in_doubt;            /* none may be believed in the next life */
    _Atomic uint64_t changed_dirs[4]; /* a bit for each directory in which one was removed */
    _Atomic uint64_t written, loaded, ignored, removed;
};

/* Free maps that are to be built in the background (txn/store_map_build.c). */
struct map_builder {
    struct mutex lock; /* LOCK_RANK_LEAF: all but the counters */
    struct condvar wake;
    struct map_order *first, **last; /* orders, in turn */
    struct map_batch *batch;         /* under way, NULL: none; whoever is `busy` with it owns it */
    bool busy, woken, stop;
    pthread_t thread;
    bool thread_runs;
    _Atomic uint64_t built, failed;
};

struct store {
    struct io_device *dev;
    struct diag *diag;
    char *dir;
    bool read_only;
    bool background;
    uint64_t checkpoint_interval_ns;
    struct io_file *lock_file;
    struct mutex reserve_lock;    /* LOCK_RANK_RESERVE */
    struct io_file *reserve_file; /* NULL: read-only */
    _Atomic bool reserve_held;    /* false: spent (RESERVE-1); changed under reserve_lock */
    struct bufcache *cache;
    struct cow *cow;
    struct relation *catalog;
    struct name_hash hash;
    struct log *log;         /* NULL: read-only, or not open yet */
    lsn_no log_start;        /* ceiling of the earlier lives: where this one's may start */
    lsn_no log_previous;     /* where the log of the life before ended */
    struct archive *archive; /* NULL: there is none */
    uint32_t log_segment_size;
    uint32_t compact_piece_blocks;
    bool compact_auto;
    uint64_t compact_quiet_ns;
    uint64_t bulk_min_bytes;         /* appends from this size on are logged by reference */
    uint64_t checkpoint_log_bytes;   /* log volume that brings a checkpoint */
    struct store_progress *progress; /* of opening; NULL: nobody watches */
    bool replay_is_whole;            /* a table that cannot be read ends the replay, instead of being marked damaged */
    _Atomic bool recovering;         /* the log is being replayed: nothing is logged, orphans may be opened */
    _Atomic bool following; /* an archive is replayed beside readers (txn/standby.h): nobody else changes anything */

    rel_no first_rel; /* of this life */
    _Atomic rel_no next_rel;
    _Atomic ino_no next_ino;
    _Atomic epoch_no ceiling_epoch; /* as in control, for a look without the lock */
    _Atomic rel_no ceiling_rel;
    _Atomic ino_no ceiling_ino;
    _Atomic lsn_no ceiling_lsn;
    _Atomic txn_no ceiling_txn;
    _Atomic uint64_t changes; /* operations applied in this life */
    _Atomic int64_t last_time_ns;
    _Atomic uint64_t inode_count;
    _Atomic(const char *) failure; /* why nothing is written any more; NULL: fine */

    struct mutex control_lock; /* LOCK_RANK_CONTROL: control, control_failed */
    struct control control;    /* what is in force on disk */
    int control_failed;        /* the first failure to write it, 0: none; it is not written any more */

    struct sidecars sidecars;

    struct mutex checkpoint_lock; /* LOCK_RANK_STORE: one checkpoint at a time, durable */
    struct holder *durable;
    struct holder *unfinished;          /* fork of the checkpoint that failed, NULL if none did */
    uint64_t durable_changes;           /* `changes` at its fork */
    lsn_no durable_lsn;                 /* log position of its fork */
    int64_t durable_time_ns;            /* and time */
    lsn_no replay_lsn, replay_scan_lsn; /* while an archive is replayed: where a checkpoint would go on; 0: not */
    uint64_t last_checkpoint_ns;
    uint64_t deferred_at_checkpoint; /* cow_stats.deferred then */

    struct mutex files_lock; /* LOCK_RANK_FILE_TABLE */
    struct store_file *files[STORE_FILE_BUCKETS];
    struct store_file *replaced; /* those of tables that a commit replaced */
    uint32_t open_files;

    struct mutex sweeps_lock; /* LOCK_RANK_LEAF */
    struct store_sweep sweeps[STORE_SWEEP_LINES];
    uint64_t sweep_count;
    uint64_t sweeps_of[SWEEP_CAUSES];

    struct mutex checkpoints_lock; /* LOCK_RANK_LEAF */
    struct store_checkpoint_line checkpoint_lines[STORE_CHECKPOINT_LINES];
    uint64_t checkpoint_count; /* of them, in this life */

    struct mutex jobs_lock; /* LOCK_RANK_LEAF */
    struct store_job *jobs; /* under way, oldest first (txn/store_jobs.h) */

    struct mutex snapshots_lock;      /* LOCK_RANK_SNAPSHOTS: the list, names, states, references */
    struct store_snapshot *snapshots; /* open ones and those whose holder is not closed yet */
    _Atomic uint64_t next_txn;        /* number of a snapshot or a transaction */

    struct rwlock placement_lock;  /* LOCK_RANK_TABLESPACES: shared by who makes a relation until that is logged */
    struct mutex tablespaces_lock; /* LOCK_RANK_LEAF: the list */
    struct store_tablespace
        *tablespaces;      /* by number; with those that are dropped, until their directories are clean */
    _Atomic ts_no last_ts; /* the largest number that was ever given */
    bool pinned;           /* somebody else has the store open, and its directories locked */
    bool missing_tablespace_offline;
    bool restoring; /* the data directory is a copy: the tablespaces that it names are not its own */
    bool copied;    /* store_options */

    struct mutex map_lock; /* LOCK_RANK_MAP: two views may want a map of one relation */
    struct map_builder maps;
    struct mutex txns_lock;          /* LOCK_RANK_SNAPSHOTS: list of transactions, removed names, commits */
    struct store_txn *txns;          /* open ones, oldest first */
    _Atomic uint32_t txn_count;      /* open ones; changed with the gate held exclusively */
    struct removed_names removed;    /* names that left the live tree while transactions were open */
    _Atomic epoch_no dir_move_epoch; /* of the last move of a directory into another one */
    _Atomic uint64_t commits;        /* in the life of the store */
    _Atomic uint64_t root_swaps;     /* commits of this life: an inode read before one may be another behind it */
    struct commit_list *commit_list;

    struct mutex compact_lock;          /* LOCK_RANK_LEAF */
    struct compact_note *compact_notes; /* tables to be looked at: txn/store_compact_auto.c */
    struct mutex referenced_lock;       /* LOCK_RANK_LEAF */
    struct referenced *referenced;      /* relations that the log refers to pages of (COW-4) */
    size_t referenced_count, referenced_capacity;
    bool recovery_by_value;                /* PAGES-5: the record that is being replayed is not vouched for */
    struct recovery_pages *recovery_pages; /* while recovering: what the log refers to */

    _Atomic uint64_t operations[64];
    _Atomic uint64_t checkpoints, checkpoint_pages, blocks_trimmed, blocks_punched;

    pthread_t thread, log_thread, archive_thread, compact_thread;
    bool thread_runs, log_thread_runs, archive_thread_runs, compact_thread_runs;
    struct mutex thread_lock; /* LOCK_RANK_LEAF */
    struct condvar thread_wake, sync_wake;
    bool thread_stop;
    struct sync_request *sync_requests, *sync_last; /* waiting for the log thread, oldest first */

    uint64_t redo_records, redo_ms;                       /* of the recovery that this life began with */
    _Atomic uint64_t check_done_bytes, check_total_bytes; /* of the store_check under way */
};

static inline struct content_root store_content_root(const struct inode *inode)
{
    return (struct content_root){.ptr = inode->content_ptr,
                                 .bytes = inode->size_bytes,
                                 .leaves = inode->content_leaves,
                                 .height = inode->content_height};
}

/* A relation that a log record refers to pages of. Kept until a checkpoint that forked later is durable, so that the relation remembers it. */
struct referenced {
    struct relation *relation; /* a reference */
    epoch_no epoch;            /* of the last such record */
    bool needs_sync;           /* before the log is synced */
};

/* Answers of a try: commits changed the live tree between the look at an inode and the gate; the transaction's removals are to be logged
 * first. Both are tried again. */
#define OP_ROOT_SWAPPED    2
#define TXN_REMOVALS_FIRST 3

/* One mutation under way (txn/store_op.c). */
struct op_run {
    struct store *store;
    struct view *view;
    struct op_record op;
    const struct op_record *replay; /* the record that is being replayed, NULL: a new operation */
    struct log_slot *slot;          /* room for its record */
    lsn_no position;                /* of its record, 0: not logged */
    struct frame_budget budget;
    unsigned edits;      /* catalog edits that the budget allows */
    void *record_memory; /* what op points to and the caller does not own; freed with the run */
    struct catalog_batch batch;
    struct content_plan *content;  /* NULL: content does not change */
    struct retire_list dropped[2]; /* relations that go */
    unsigned dropped_count;
    int64_t inode_delta;
    ino_no orphan;                             /* became one: marked once this is applied */
    struct store_txn *txn;                     /* the view is a transaction's */
    struct publish *publish;                   /* the view is that of a commit under way */
    int64_t ctime_ns;                          /* of what changes: op.time_ns, in a commit the commit's */
    bool moves_directory;                      /* a directory gets another parent */
    bool budget_borrowed;                      /* from `publish` */
    bool gate_held, gate_closed, catalog_held; /* closed: held exclusively */
    bool planning_pages;                       /* what can fail now is the room for pages, or for the record */
};

/* ---- store_op.c ---- */

/* Plans the name part of an operation: adds edits to run->batch, fills run->op. Called with the catalog lock held. */
typedef int op_plan_fn(struct op_run *run, void *arg);

/* Runs one operation that changes the catalog only. Retries with a larger budget, and once behind a checkpoint when
 * there is no space. */
int store_op_run(struct store *store, struct view *view, enum op_type type, op_plan_fn *plan, void *arg) WARN_UNUSED;
/* Runs an operation as its record says. */
int store_op_replay(struct store *store, struct view *view, const struct op_record *record, op_plan_fn *plan,
                    void *arg) WARN_UNUSED;

/* The steps, for operations with content. begin: budget, checks. enter: gate. finish: plans the batch, logs, applies.
 * end: releases all. */
int op_begin(struct op_run *run, struct store *store, struct view *view, enum op_type type,
             const struct op_record *replay, unsigned edits, uint64_t content_bytes, uint64_t log_bytes,
             bool has_content) WARN_UNUSED;
/* -ECANCELED, -ENOENT: the transaction was aborted, closed. */
int op_enter_gate(struct op_run *run) WARN_UNUSED;
void op_close_gate(struct op_run *run); /* exclusively, for an operation that forks */
void op_lock_catalog(struct op_run *run);
int op_finish(struct op_run *run) WARN_UNUSED;
/* mtime of what changed at `at_ns` and was last changed at `before_ns`. What a commit brings may be older than what is there;
 * but what lies behind the commit no clock has given. */
static inline int64_t op_later_mtime(const struct op_run *run, int64_t at_ns, int64_t before_ns)
{
    return before_ns > at_ns && before_ns <= run->ctime_ns ? before_ns : at_ns;
}
static inline int64_t op_mtime(const struct op_run *run, int64_t before_ns)
{
    return run->publish != NULL ? op_later_mtime(run, run->op.time_ns, before_ns) : run->op.time_ns;
}
/* Undoes what was not applied, releases everything that the run holds. Harmless when repeated. */
void op_release(struct op_run *run);
/* op_release, then (no lock held any more) waits until the record is in the log file. rc: of the operation; returned
 * unless the log fails. */
int op_end(struct op_run *run, int rc) WARN_UNUSED;
/* The whole relation goes with this operation. */
int op_drop_relation(struct op_run *run, const struct inode *inode) WARN_UNUSED;

/* What one try left for the next one to do better. */
struct op_retry {
    unsigned edits;        /* catalog edits to allow for */
    unsigned wanted_edits; /* what the last try would have needed */
    bool
        no_space; /* the last try found no room for its pages or its record (and not, say, for a value that is too large) */
    bool checkpointed, reserve_used;
    bool may_use_reserve;
    struct store_txn *txn; /* that the operation belongs to */
    bool final;            /* in a commit: whoever runs it decides */
};
/* Before op_end, or when op_begin failed: notes what the run ran out of. */
void op_note_retry(const struct op_run *run, int rc, struct op_retry *retry);
/* *inout_rc may become what kept it from another try. True: try again, with more edits or behind a checkpoint that was taken for it. No lock held. */
bool op_wants_retry(struct store *store, int *inout_rc, struct op_retry *retry);

/* Wall clock, never going back. */
int64_t store_now_ns(struct store *store);
/* -EROFS when the store takes no changes. */
int store_check_writable(const struct store *store) WARN_UNUSED;
/* The same for what a user asks for: a standby takes no changes but those that it replays. */
int store_check_takes_changes(const struct store *store) WARN_UNUSED;
/* Something that must not fail failed: from here on the store is read-only. Keeps the first reason (a string literal).
 */
void store_fail(struct store *store, const char *reason, int rc);

/* ---- store_read.c: budgets and locks around catalog reads ---- */
int store_read_enter(struct store *store, struct view *view, struct frame_budget *out_budget) WARN_UNUSED;
void store_read_leave(struct view *view, struct frame_budget *budget);
/* Before an operation enters the gate: reads what it will look at, so that no fork waits for the disk. Cheap when all is
 * in the cache. -EIO, said: the operation would meet the same. */
int store_warm_inode(struct store *store, struct view *view, ino_no ino) WARN_UNUSED;
int store_warm_name(struct store *store, struct view *view, ino_no parent, struct store_name name) WARN_UNUSED;
void store_attr_of(const struct inode *inode, struct store_attr *out_attr);

/* ---- store_relations.c ---- */
/* Pages of the tree, as store_relation has it. */
uint64_t store_tree_blocks(const struct content_root *root);

/* ---- store_file.c ---- */
void store_file_free(struct store_file *file);
/* With the view's catalog lock held exclusively: nobody can open it meanwhile, but the last close may come at any time.
 */
bool store_file_is_open(struct store *store, struct view *view, ino_no ino);
/* NULL is ignored. No lock held. */
void old_version_put(struct old_version *old);
void store_file_ref(struct store_file *file);
/* An open file of the inode, with a reference; NULL: there is none. */
struct store_file *store_file_find(struct store *store, struct view *view, ino_no ino);
/* A commit replaced the table: if it is open, its file shows the old version from here on (and has a reference to it). Those that it
 * had replaced itself learn its successor. The catalog lock of the view is held exclusively. */
void store_file_replace(struct store *store, struct view *view, ino_no ino, ino_no new_ino, struct old_version *old);
/* Open files of the view, each with a reference; *out_files is malloc'd. The view's catalog lock is held exclusively. -ENOMEM. */
int store_files_list(struct store *store, const struct view *view, struct store_file ***out_files,
                     size_t *out_count) WARN_UNUSED;
/* The file belongs to another view from here on, which shows the same of it. False: that one has the inode open already. No lock held. */
bool store_file_move(struct store_file *file, struct view *view) WARN_UNUSED;
/* Whoever reads what the file showed before is through; of a replaced table it pins what it shows, and the old version may go. No lock held. */
void store_file_wait_for_readers(struct store_file *file);
/* A file of a replaced table pins the blocks that it shows, instead of the whole old tree. What cannot be had (memory, a page) leaves it as it
 * is. No lock held. */
void store_file_settle(struct store_file *file);
/* Its last close destroys it. False: that close has come already, the caller destroys it. */
bool store_file_mark_orphan(struct store *store, struct view *view, ino_no ino);

/* ---- store_content.c ---- */
/* -EIO, said, when replay marked the table damaged. */
int store_check_undamaged(const struct store *store, const struct inode *inode) WARN_UNUSED;
/* The map of its relation is ready. */
int store_file_ensure_map(struct store_file *file) WARN_UNUSED;
int store_file_resize(struct store_file *file, uint64_t size_bytes, unsigned flags) WARN_UNUSED;
int store_file_get_inode(struct store_file *file, struct inode *out_inode) WARN_UNUSED;
/* Budget, file lock (shared) and inode for a read. */
int store_file_read_enter(struct store_file *file, uint32_t pins, struct frame_budget *out_budget,
                          struct inode *out_inode) WARN_UNUSED;
void store_file_read_leave(struct store_file *file, struct frame_budget *budget);
/* The inode, and file->relation is its relation. The file lock is held exclusively. */
int store_file_look_locked(struct store_file *file, struct inode *out_inode) WARN_UNUSED;
/* A new, empty relation with its file and map, for that inode; no tree names it yet. */
int store_make_relation(struct store *store, ts_no ts, rel_no rel, ino_no ino,
                        struct relation **out_relation) WARN_UNUSED;
/* One that no tree of the view names any more, or ever did: it goes as if it had been dropped. Takes the gate. */
void store_drop_unnamed_relation(struct view *view, struct relation *relation);

/* ---- store_names.c ---- */
int op_destroy_inode(struct op_run *run, const struct inode *inode) WARN_UNUSED;
/* Destroys an inode without names. When that fails it stays listed as an orphan, which the next start destroys. */
void store_destroy_orphan_or_log(struct store *store, struct view *view, ino_no ino);

/* ---- store_map.c ---- */
/* Before blocks of the relation are allocated: it has a map, or one will be built in the background, from what `ino` has in `view`. -EIO:
 * there is no file. File lock held exclusively (or the store is being opened), gate not held. */
int store_map_ensure(struct store *store, struct relation *relation, struct view *view, ino_no ino) WARN_UNUSED;
int store_map_build_catalog(struct store *store) WARN_UNUSED;
/* A relation that was just made; during recovery the log may refer to pages in a file that is there already. */
int store_map_init_new(struct store *store, struct relation *relation, ino_no ino) WARN_UNUSED;
/* A snapshot of an earlier life is gone, and nobody knows what only it used: the map, if there is one, is built anew. No lock held. */
void store_map_doubt(struct store *store, struct relation *relation, ino_no first);
/* The inode that has the relation in this view; first: the one that it was made for. */
int store_relation_owner(struct view *view, rel_no rel, ino_no first, ino_no *out_owner) WARN_UNUSED;

/* ---- store_map_build.c ---- */
/* Has the map built in the background, unless it is ready or ordered. */
void store_map_order(struct store *store, struct relation *relation, ino_no first);
void store_maps_init(struct store *store);
/* Does a bounded portion of what was ordered; true: it did. No lock held. */
bool store_maps_step(struct store *store);
/* Orders that wait; one more for a batch under way. */
uint64_t store_maps_waiting(struct store *store);
/* Before a clean end: what is soon done is done. */
void store_maps_finish(struct store *store);
/* Gives up what is under way. No thread builds any more. Harmless when repeated. */
void store_maps_stop(struct store *store);
/* There may be a snapshot to close (store_snapshots_close_adopted). */
void store_maps_wake(struct store *store);
int store_maps_thread_start(struct store *store) WARN_UNUSED;
void store_maps_thread_stop(struct store *store);

/* ---- store_pages.c: log records that refer to pages (COW-4) ---- */
/* Before the record is logged: the relation's pages are written, and will be synced before the log is. */
int store_note_referenced(struct store *store, struct relation *relation) WARN_UNUSED;
int store_sync_referenced(void *store_void) WARN_UNUSED; /* log_options.before_sync */
/* A checkpoint that forked at `at` is durable. */
void store_forget_referenced(struct store *store, epoch_no at);
/* First pass of recovery: reads the pages that a record refers to and remembers their blocks. -EBADMSG: they are not there. */
int store_recovery_note_pages(struct store *store, const struct op_record *op) WARN_UNUSED;
void store_recovery_forget_pages(struct store *store);
struct block_set;
/* Adds the remembered blocks of the set's relation. *out_any: there are some. */
int store_recovery_add_pages(struct store *store, struct block_set *set, bool *out_any) WARN_UNUSED;

/* ---- store_segments.c ---- */
void store_note_checkpoint(struct store *store, const struct store_checkpoint_line *line);

/* ---- checkpoint.c ---- */
int store_checkpoint_locked(struct store *store, enum store_checkpoint_cause cause, bool clean) WARN_UNUSED;
/* As store_checkpoint. */
int store_checkpoint_for(struct store *store, enum store_checkpoint_cause cause) WARN_UNUSED;
/* The same, also when nothing has changed, with a holder of the same version that the caller closes. checkpoint_lock held. */
int store_checkpoint_held(struct store *store, struct holder **out_holder) WARN_UNUSED;
/* Drops the pages of dead relations in one sweep. */
void store_sweep_dead(struct store *store, enum store_sweep_cause cause);
/* The same at the end of a transaction, or for what was unlinked. Left to the checkpoint or the check that is under way. */
void store_sweep_dead_of(struct store *store, enum store_sweep_cause cause, txn_no txn);
/* Takes a new range for every number (STORE-5). */
int store_ceilings_raise(struct store *store, uint64_t inodes) WARN_UNUSED;
/* Before an operation that may take a number. */
int store_ceilings_ensure(struct store *store, uint64_t inodes) WARN_UNUSED; /* that many inode numbers at once */
/* Names the position at which replay starts, of the checkpoint that is in force. */
int store_control_set_redo(struct store *store, lsn_no redo) WARN_UNUSED;
/* At a clean close: the log ends there, behind batches without records that followed the last checkpoint. */
int store_control_set_end(struct store *store, lsn_no end) WARN_UNUSED;
/* A restore is done: from here on it is an ordinary store, closed cleanly, whose log begins behind `end`. */
int store_control_end_restore(struct store *store, lsn_no end, const uint8_t store_id[16],
                              uint32_t timeline) WARN_UNUSED;
/* The checkpoint in force is all there is: nothing was changed since. */
int store_control_set_clean(struct store *store) WARN_UNUSED;
int store_thread_start(struct store *store) WARN_UNUSED;
void store_thread_stop(struct store *store);
/* For a thread of the store: waits one period. False: the store is closing. */
bool store_thread_wait(struct store *store, uint64_t period_ms);

/* ---- store_reserve.c ---- */
/* Sets the space aside; a full disk is no error. */
int store_reserve_open(struct store *store) WARN_UNUSED;
int store_reserve_close(struct store *store) WARN_UNUSED;
/* Gives the space back to the disk. */
void store_reserve_release(struct store *store);
/* Sets it aside again. -ENOSPC: there is no room yet. */
int store_reserve_restore(struct store *store) WARN_UNUSED;
/* May such an operation use it? */
bool store_reserve_may_use(const struct store *store, enum op_type type);
/* RESERVE-1: -ENOSPC when it is spent and such an operation may not use it. No lock held. */
int store_reserve_check(struct store *store, enum op_type type) WARN_UNUSED;

/* ---- store_sync.c ---- */
/* One round of the log writer. */
void store_log_step(struct store *store);
void *store_log_thread(void *store_void);

/* ---- store_snapshot.c ---- */
/* At open: the snapshots that the catalog names become holders. */
int store_snapshots_adopt(struct store *store) WARN_UNUSED;
/* A checkpoint that forked when `changes` were applied is durable: snapshots that were dropped before may close. */
void store_snapshots_release(struct store *store, uint64_t changes);
/* Closes those that may; no lock held. */
void store_snapshots_close(struct store *store);
/* No dropped one is left that a checkpoint no longer names. */
bool store_snapshots_settled(struct store *store);
/* One more use of every snapshot that a checkpoint may name; give each back with store_snapshot_put. *out_list is malloc'd. */
int store_snapshots_keep(struct store *store, struct store_snapshot ***out_list, size_t *out_count) WARN_UNUSED;
/* Those that an earlier life took: what they saw has to be compared with the live tree. */
void store_snapshots_close_adopted(struct store *store);
void store_snapshots_free(struct store *store);
int store_snapshot_replay(struct store *store, const struct op_record *record) WARN_UNUSED;

/* ---- store_tablespace.c ---- */
/* At open: the directories of the tablespaces that the catalog names are opened. What keeps one from it is said, and counts in
 * store_tablespaces_require. */
int store_tablespaces_adopt(struct store *store) WARN_UNUSED;
/* When nothing is left to be replayed: one that cannot be opened is offline, or refused. */
int store_tablespaces_require(struct store *store) WARN_UNUSED;
/* On a copy, before anything is replayed: the catalog says that they lie in its data directory. */
int store_tablespaces_take_over(struct store *store) WARN_UNUSED;
/* A checkpoint that forked when `changes` were applied is durable: what replay dropped before goes from the disk. */
void store_tablespaces_release(struct store *store, uint64_t changes);
void store_tablespaces_free(struct store *store);
int store_tablespace_replay(struct store *store, const struct op_record *record) WARN_UNUSED;
/* Where a relation for an inode of that tablespace is made: there, or, when it was dropped, in the data directory. */
ts_no store_tablespace_for(struct store *store, ts_no ts);
/* The tablespace that has the relation's file, or would have it in memory; TS_DEFAULT: none has. -ENOENT: none has, but one that is
 * missing may. */
int store_tablespace_of_file(struct store *store, rel_no rel, ts_no *out_ts) WARN_UNUSED;
/* Directories with relation files, in turn: of the data directory, then of each tablespace that can be read. */
typedef int store_place_fn(void *arg, ts_no ts, const char *dir);
int store_each_place(struct store *store, store_place_fn *fn, void *arg) WARN_UNUSED;
/* The number of the one that is meant by that value of STORE_XATTR_TABLESPACE, and the other way round. -ENOENT. */
int store_tablespace_number(struct store *store, struct store_name name, ts_no *out_ts) WARN_UNUSED;
int store_tablespace_name(struct store *store, ts_no ts, char name[STORE_NAME_MAX + 1]) WARN_UNUSED;

/* ---- store_commit.c ---- */
void commit_list_free(struct commit_list *list);

/* ---- recovery.c ---- */
/* Starts a new log above everything that an earlier life used. */
int store_log_open(struct store *store) WARN_UNUSED;
/* log_options.raise_ceiling */
int store_log_ceiling(void *arg, lsn_no end) WARN_UNUSED;
/* Removes the segments that the control file no longer needs. */
int store_log_forget_old(struct store *store) WARN_UNUSED;
/* Does one record of the live tree again. 1: skipped, the table is marked damaged. */
int store_replay_record(struct store *store, const struct op_record *op) WARN_UNUSED;
/* No operation that follows is earlier. */
void store_replay_time(struct store *store, int64_t time_ns);
/* Replays what the log holds behind the checkpoint in force. */
int store_recover(struct store *store) WARN_UNUSED;
int store_names_replay(struct store *store, struct view *view, const struct op_record *record) WARN_UNUSED;
int store_attr_replay(struct store *store, struct view *view, const struct op_record *record) WARN_UNUSED;
/* 1: skipped, because the table is marked damaged, or could not be read and is marked now. */
int store_content_replay(struct store *store, struct view *view, const struct op_record *record) WARN_UNUSED;

#endif
