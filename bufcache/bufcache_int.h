/*
 * bufcache/bufcache_int.h - what the files of this module share. Nobody else includes it.
 *
 * A frame is three things with one index: a tag (dense, all that a sweep reads), a descriptor (struct frame) and
 * BLOCK_SIZE bytes of the arena.
 *
 * The state word of a tag, changed by compare-and-swap only:
 *
 *   FREE      on the free list. State 0 with tag.rel 0: privately owned (a budget's chain, a page_read under way).
 *   READING   its page is being read; the reader has it pinned; others that find it pin it and wait.
 *   LATCHED   page_new or page_try_latch .. page_unlatch. Excludes WRITING.
 *   DIRTY     differs from the disk. WRITTEN: is on the disk, or was being put there. Every page has one of both.
 *   WRITING   being written: immutable from here on, its checksum is filled in.
 *   DEAD      left the cache (tag.rel 0, in no bucket) while pinned; the last unpin frees it.
 *
 * INT-1 A frame gets its first pin, WRITING, and leaves the cache only under the lock of its partition. So whoever
 * holds that lock and sees no pin knows that none appears. Further pins, unpins, latch and usage need no lock. INT-2
 * tag.rel and tag.block are constant while the frame is in a bucket. INT-3 A frame in a bucket or DEAD holds one
 * reference to its relation. INT-4 Who waits for READING has finished all reads of its own, and who waits for WRITING
 * has none of its own unfinished: no circles. INT-5 At most one partition lock is held at a time.
 */
#ifndef TBLFS_BUFCACHE_BUFCACHE_INT_H
#define TBLFS_BUFCACHE_BUFCACHE_INT_H

#include "base/lock.h"
#include "bufcache/bufcache.h"

#include <stdatomic.h>

/* An element that could not be added has hh.tbl NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define FRAME_NONE      UINT32_MAX
#define PARTITION_COUNT 128u
#define WRITE_RUN_MAX   128u /* blocks in one write or read call: 1 MiB */
#define USAGE_MAX       (BUFCACHE_USAGE_COUNTS - 1)
#define QUOTA_MARGIN    32u /* frames that no quota covers: what eviction can always work with */
#define SOON_CAPACITY   4096u
#define COLD_CAPACITY   256u
#define BLOCKS_UNKNOWN  UINT64_MAX
#define DIR_COUNT       256u
#define RETAINED_MAX    65536u

/* ---- state word ---- */

#define STATE_PIN_ONE    (1u << 0)
#define STATE_PIN_MASK   (0x7ffu << 0)
#define STATE_REPLY_ONE  (1u << 11)
#define STATE_REPLY_MASK (0x7ffu << 11)
#define STATE_USAGE_ONE  (1u << 22)
#define STATE_USAGE_MASK (7u << 22)
#define STATE_LATCHED    (1u << 25)
#define STATE_DIRTY      (1u << 26)
#define STATE_WRITTEN    (1u << 27)
#define STATE_WRITING    (1u << 28)
#define STATE_READING    (1u << 29)
#define STATE_DEAD       (1u << 30)
#define STATE_FREE       (1u << 31)

#define STATE_PINNED (STATE_PIN_MASK | STATE_REPLY_MASK)
#define STATE_BUSY   (STATE_PINNED | STATE_LATCHED | STATE_WRITING | STATE_READING)

struct frame_tag {
    _Atomic rel_no rel; /* REL_NONE: in no bucket */
    _Atomic block_no block;
    _Atomic uint32_t state;
};
static_assert(sizeof(struct frame_tag) == 16, "a sweep reads 16 bytes a frame");

struct frame {
    struct bufcache *cache;
    struct relation *relation; /* while in a bucket or DEAD; guarded by a pin or the partition lock */
    _Atomic epoch_no birth;    /* of the page, for write-back */
    uint32_t hash_next;        /* guarded by the partition lock */
    uint32_t free_next;        /* guarded by who owns the chain */
};

/* One lock for every PARTITION_COUNTth bucket. io_done: some frame of it lost READING or WRITING. */
struct partition {
    _Alignas(64) struct mutex lock; /* LOCK_RANK_PARTITION */
    struct condvar io_done;
    uint32_t waiters;      /* guarded by lock */
    uint64_t hits, misses; /* guarded by lock */
};

/* ---- relations ---- */

struct tablespace {
    ts_no ts;
    struct {
        uint64_t created; /* files created in it so far (with those that were there) */
        uint64_t synced;  /* value of `created` that the last sync covers */
        bool syncing;
    } dirs[DIR_COUNT];       /* guarded by the registry's lock */
    bool no_sync_filesystem; /* its filesystem is not known to sync everything in one call */
    _Atomic bool no_punch;   /* its filesystem makes no holes */
    uint32_t listed;         /* its relations on the unsynced list; guarded likewise */
    uint32_t relations;      /* in memory; guarded likewise */
    bool offline;            /* no relation of it can be opened */
    struct io_file *anchor;  /* its directory, open since before the first write: syncfs reports all errors since */
    struct tablespace *next_removed;
    UT_hash_handle hh;
    char path[]; /* as given */
};

struct relation {
    struct bufcache *cache;
    struct tablespace *tablespace;
    rel_no rel;
    _Atomic uint32_t refs;     /* users, frames (INT-3), and one while it is on the unsynced list */
    _Atomic uint32_t resident; /* CACHE-5 */
    _Atomic bool dead;
    _Atomic bool quiet;            /* see relation_set_quiet */
    _Atomic epoch_no referenced;   /* see relation_set_referenced */
    _Atomic epoch_no shared_at;    /* see relation_set_shared_at */
    _Atomic ino_no first_ino;      /* see relation_set_first_ino */
    _Atomic bool retained;         /* see relation_retain */
    _Atomic uint64_t hits, misses; /* look-ups of its pages since it is in memory */
    _Atomic uint64_t blocks;       /* of the file; BLOCKS_UNKNOWN */
    _Atomic(void *) map;           /* set once, under the registry's lock */
    /* guarded by the registry's lock */
    void (*map_destroy)(void *map);
    struct io_file *file;  /* NULL: not open */
    uint32_t file_users;   /* I/O under way on it */
    bool file_busy;        /* being opened or closed */
    bool syncing;          /* a sync is under way */
    bool unsynced;         /* written since the last sync began */
    bool listed;           /* on the unsynced list */
    uint32_t checked;      /* bufcache_check: frames found */
    uint64_t name_created; /* its number among the files created in its directory; 0: not created in this life */
    struct relation *lru_prev, *lru_next;
    struct relation *list_prev, *list_next; /* the unsynced list, or the idle one */
    struct relation *sync_next; /* those that one sync of the filesystem covers; they may be listed again meanwhile */
    bool sync_unsynced;         /* it was `unsynced` when that sync began */
    UT_hash_handle hh;
    char path[];
};

/* Relations by number, and the cache of their descriptors. */
struct registry {
    struct mutex lock;     /* LOCK_RANK_RELATIONS; never held over I/O */
    struct condvar change; /* a descriptor or a sync became free */
    struct relation *relations;
    struct tablespace *tablespaces;
    struct tablespace *removed; /* those that some relation in memory still belongs to */
    struct relation *lru;       /* those with an open descriptor, least recently used first */
    struct relation *unsynced;  /* those with unsynced writes or names */
    struct relation *idle;      /* RETAIN-1, oldest first */
    uint32_t idle_count;
    bool syncing_all;
    uint32_t open_files, max_open_files;
};

/* ---- the cache ---- */

struct quota_waiter {
    struct quota_waiter *next;
    uint32_t need;
    bool granted;
    struct condvar wake;
};

struct soon_entry {
    rel_no rel;
    block_no block;
    uint32_t index;
};

struct counters {
    _Atomic uint64_t pages_read, read_calls, pages_written, write_calls, evictions, discards;
    _Atomic uint64_t sweeps, lookup_drops, empty_drops, tags_read;
    _Atomic uint64_t relation_opens, relation_files_created, relation_files_unlinked, syncs;
    _Atomic uint64_t damaged_pages;
};

/* Free frames, the quota and the orders to the writer. */
struct pool {
    struct mutex lock; /* LOCK_RANK_FREE_LIST */
    uint32_t free_head;
    uint32_t free_count;
    uint32_t low_water;  /* the writer keeps so many free */
    uint32_t quota_used; /* handed out */
    uint32_t quota_limit;
    struct quota_waiter *wait_head, *wait_tail;
    _Atomic uint32_t waiting;      /* quota waiters, for a look without the lock */
    _Atomic uint32_t reply_frames; /* frames with a reply pin: they outlive the budget that covered them */
    _Atomic uint32_t hand;         /* clock */
    _Atomic uint32_t dirty;        /* frames with DIRTY */
    /* frames of scans, oldest first: taken before the clock runs */
    uint32_t cold[COLD_CAPACITY];
    uint32_t cold_head, cold_count;
    /* the writer */
    struct soon_entry soon[SOON_CAPACITY];
    uint32_t soon_count;
    struct condvar writer_wake;
    bool writer_work, writer_stop;
    atomic_flag round_running;      /* one round at a time */
    uint32_t write_hand;            /* owned by the round */
    _Atomic uint32_t dirty_wake_at; /* dirty frames at which the writer is woken */
};

struct bufcache {
    struct bufcache_options options;
    struct diag silent; /* for relations that are looked at with relation_set_quiet */
    uint32_t frame_count;
    uint32_t bucket_mask;
    struct frame_tag *tags;
    struct frame *frames;
    uint8_t *arena;
    uint32_t *buckets; /* bucket i is guarded by partition i % PARTITION_COUNT */
    struct partition *partitions;
    struct registry registry;
    struct pool pool;
    struct counters counters;
    _Atomic int failed; /* negative errno: fail-stop */
    pthread_t writer;
    bool writer_running;
};

static inline void count_add(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static inline uint32_t frame_index(const struct frame *frame)
{
    return (uint32_t)(frame - frame->cache->frames);
}

static inline struct frame_tag *frame_tag(const struct frame *frame)
{
    return &frame->cache->tags[frame_index(frame)];
}

static inline uint8_t *frame_bytes(const struct bufcache *cache, uint32_t index)
{
    return cache->arena + (size_t)index * BLOCK_SIZE;
}

static inline uint32_t state_load(struct frame_tag *tag)
{
    return atomic_load_explicit(&tag->state, memory_order_acquire);
}

/* On failure *seen is what the state is now. */
static inline bool state_change(struct frame_tag *tag, uint32_t *seen, uint32_t wanted)
{
    return atomic_compare_exchange_weak_explicit(&tag->state, seen, wanted, memory_order_acq_rel, memory_order_acquire);
}

static inline bool tag_is(struct frame_tag *tag, rel_no rel, block_no block)
{
    return atomic_load_explicit(&tag->rel, memory_order_relaxed) == rel &&
           atomic_load_explicit(&tag->block, memory_order_relaxed) == block;
}

static inline uint32_t bucket_of(const struct bufcache *cache, rel_no rel, block_no block)
{
    uint64_t hash = rel * 0x9e3779b97f4a7c15u + (uint64_t)block * 0xd1b54a32d192ed03u;
    hash ^= hash >> 32;
    hash *= 0xff51afd7ed558ccdu;
    return (uint32_t)(hash >> 32) & cache->bucket_mask;
}

static inline struct partition *partition_of(const struct bufcache *cache, uint32_t bucket)
{
    return &cache->partitions[bucket % PARTITION_COUNT];
}

/* ---- hash.c: buckets; the partition's lock is held ---- */

uint32_t hash_find_locked(const struct bufcache *cache, uint32_t bucket, rel_no rel, block_no block);
/* The frame is privately owned; takes a reference to the relation. `state` becomes its state. */
void hash_insert_locked(struct bufcache *cache, uint32_t bucket, uint32_t index, struct relation *relation,
                        struct page_ptr ptr, uint32_t state);
/* Takes it out of its bucket and out of resident; the reference stays with the frame. */
void hash_remove_locked(struct bufcache *cache, uint32_t bucket, uint32_t index);
/* Waits until the frame of the block, if it is in the cache, is neither being read nor written. Returns it. */
uint32_t hash_find_idle_locked(struct bufcache *cache, uint32_t bucket, rel_no rel, block_no block);
/* Waits once for an I/O of this partition to end. */
void partition_wait_locked(struct partition *partition);
void partition_wake_locked(struct partition *partition);
/* Makes a frame that left its bucket (or is DEAD) and that nobody pins a private one: state 0, reference given back. */
void frame_clear(struct bufcache *cache, uint32_t index);

/* Takes the block's page out of the cache, waiting for I/O on it. False: it is not there. *out_dirty: it was dirty.
 * *out_free: the frame, cleared, is the caller's; FRAME_NONE: it is DEAD and its last unpin frees it. */
bool hash_discard(struct bufcache *cache, rel_no rel, block_no block, bool *out_dirty, uint32_t *out_free);

/* ---- pool.c ---- */

/* A free frame for the caller: from the list, or evicted. Waits for writes, never for pins. Negative errno: dirty pages
 * cannot be written. */
int pool_take_frame(struct bufcache *cache, uint32_t *out_index);
void pool_give_frame(struct bufcache *cache, uint32_t index);
/* Gives back `count` frames chained by free_next from `head`. */
void pool_give_chain(struct bufcache *cache, uint32_t head, uint32_t count);
/* Marks the frame as one of a scan: evicted before others while its usage is 0. */
void pool_note_cold(struct bufcache *cache, uint32_t index);
/* A frame lost its last reply pin. */
void pool_reply_frame_gone(struct bufcache *cache);
/* Evicts up to `count` frames to the free list. */
int pool_stock_free_list(struct bufcache *cache, uint32_t count);
void pool_init(struct bufcache *cache);
void pool_destroy(struct bufcache *cache);

/* ---- page_check.c ---- */

/* The header of a resident page against what the pointer to it says. */
int page_check_expected(struct bufcache *cache, const struct relation *relation, const struct page_header *header,
                        struct page_ptr ptr, uint8_t type, uint8_t level);
/* A page just read, of which `size_bytes` were there. */
int page_check_read(struct bufcache *cache, const struct relation *relation, const void *page, size_t size_bytes,
                    struct page_ptr ptr, uint8_t type, uint8_t level);
uint64_t page_checksum(const void *page);

/* ---- writeback.c ---- */

/* Writes the dirty frame and its cold dirty neighbours, if it still is what the tag says. 0 when there was nothing to
 * do.
 */
int writeback_cold(struct bufcache *cache, uint32_t index);
void writeback_wake_writer_locked(struct bufcache *cache); /* pool lock held */
void writeback_note_dirty(struct bufcache *cache);         /* a frame became dirty */
int writeback_start(struct bufcache *cache);
void writeback_stop(struct bufcache *cache);
/* Remembers the first failure (fail-stop) and returns the one remembered. */
int bufcache_fail(struct bufcache *cache, int error);

/* ---- relation.c, relation_file.c ---- */

void registry_init(struct registry *registry, uint32_t max_open_files);
/* All references must be gone but those of the unsynced list. */
void registry_destroy(struct bufcache *cache);
/* Pins the descriptor, opening the file if need be. -EIO: the file is missing or no file, reported. */
int relation_file_get(struct relation *relation, struct io_file **out_file);
void relation_file_put(struct relation *relation, bool written);
/* Registry lock held: */
void relation_list_unsynced_locked(struct relation *relation);
void relation_unlist_locked(struct relation *relation); /* the reference of the list is now the caller's */
void relation_lru_remove_locked(struct relation *relation);
/* The relation is dead: nothing of it needs to be synced any more. */
void relation_mark_dead(struct relation *relation);

/* ---- victim_set.c: is this relation one of those to be dropped? ---- */

#define VICTIM_SMALL_MAX 16u /* up to here no memory is needed */

/* Open addressing, at most a quarter full; REL_NONE is an empty slot. Not to be copied. */
struct victim_set {
    rel_no *slots;
    uint32_t shift; /* 64 - log2(slots) */
    uint32_t mask;
    rel_no small[4 * VICTIM_SMALL_MAX];
};

/* -ENOMEM, for more than VICTIM_SMALL_MAX only */
int victim_set_init(struct victim_set *set, struct relation *const *victims, uint32_t count) WARN_UNUSED;
void victim_set_free(struct victim_set *set);

static inline bool victim_set_has(const struct victim_set *set, rel_no rel)
{
    uint32_t slot = (uint32_t)(rel * 0x9e3779b97f4a7c15u >> set->shift);
    while (set->slots[slot] != REL_NONE && set->slots[slot] != rel)
        slot = (slot + 1) & set->mask;
    return set->slots[slot] == rel;
}

#endif
