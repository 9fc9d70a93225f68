/*
 * bufcache/bufcache.h - relation files and the shared page cache.
 *
 * Relations are files of 8 KiB blocks under a tablespace directory: DIR/rel/HH/RELID (RELID: 16 hex digits, HH: its
 * last two). The cache holds pages of all relations and all views in one pool of frames.
 *
 * Life of a page:
 *
 *     page_new --> latched, dirty --page_unlatch--> dirty --write-back--> written (clean) --evicted--> on disk only
 *                     ^                               |                                                   |
 *                     +-------- page_try_latch -------+            page_read: validated once <------------+
 *
 * CACHE-1 A page that was written to its block, is being written, or has a reply pin is never changed: page_try_latch
 *         fails and the caller moves the content to a new block. So a block is written once in its life.
 * CACHE-2 A latched page is never written and never evicted. The latch is never waited for: write-back skips latched
 *         frames.
 * CACHE-3 Two threads never change one page at a time: the tree that the page belongs to is locked exclusively by
 *         whoever latches.
 * CACHE-4 A pinned frame keeps its page. A pin alone allows reading only while the tree's lock is held (shared); a
 *         reply pin allows it without any lock, because of CACHE-1.
 * CACHE-5 resident(relation) is exactly the number of frames whose tag names that relation.
 * DROP-1 to DROP-4: see bufcache_drop_relations.
 *
 * Frames are asked for before they are needed: an operation takes a frame_budget with its worst case before it takes
 * any lock, and then neither page_new nor page_read waits for a frame.
 */
#ifndef TBLFS_BUFCACHE_BUFCACHE_H
#define TBLFS_BUFCACHE_BUFCACHE_H

#include "base/diag.h"
#include "base/io.h"
#include "base/types.h"
#include "bufcache/page_format.h"

struct bufcache;
struct relation; /* in-core relation, reference counted; one object for one number */
struct frame;

/* Says whether a page's payload is well-formed. The header was checked already. Returns 0, or -EIO after diag_damage.
 * Called once per page read from disk. `file` names the relation file for the report. */
typedef int page_validate_fn(struct diag *diag, const char *file, const void *page);

struct bufcache_options {
    struct io_device *dev;
    struct diag *diag;
    uint64_t cache_size_bytes; /* rounded to frames; at least BUFCACHE_MIN_FRAMES */
    uint32_t max_open_files;   /* descriptors of relation files kept open at a time, at least 8 */
    bool background;           /* start a background writer thread; else bufcache_step does its work */
    page_validate_fn *validate[PAGE_TYPE_COUNT]; /* by page type; NULL: type unknown, such a page is damage */
};

#define BUFCACHE_MIN_FRAMES 512u

int bufcache_open(const struct bufcache_options *options, struct bufcache **out_cache) WARN_UNUSED;
/* 0, or the error of the first failed write or sync of a relation file: from then on nothing is written any more (every
 * write-back, sync, extension and creation returns that error at once, none is tried again); reads go on. */
int bufcache_failed(const struct bufcache *cache) WARN_UNUSED;
/* Everything must be unpinned and every relation reference returned. Dirty pages are thrown away (a checkpoint wrote
 * what matters). */
void bufcache_close(struct bufcache *cache);

/* ---- tablespaces ---- */

/* Names the directory of a tablespace; makes DIR/rel and its 256 subdirectories when missing. dir is copied. Several may
 * have one directory: then a relation may be opened by any of them. */
int bufcache_tablespace_add(struct bufcache *cache, ts_no ts, const char *dir) WARN_UNUSED;
/* One whose directory is not there: relation_open answers -EIO for all that is in it, and says so. */
int bufcache_tablespace_add_offline(struct bufcache *cache, ts_no ts, const char *dir) WARN_UNUSED;
/* Its relations are not found any more; those in memory live on until they are given back. One that is not there is fine. */
void bufcache_tablespace_remove(struct bufcache *cache, ts_no ts);

/* ---- relations ---- */

/* Finds or makes the in-core relation. Touches no file and creates none. -ENOENT: no such tablespace; -EIO: it is offline. Adds a reference.
 */
int relation_open(struct bufcache *cache, ts_no ts, rel_no rel, struct relation **out_relation) WARN_UNUSED;
/* The tablespace of a relation that is in memory. -ENOENT: it is not. */
int relation_find_tablespace(struct bufcache *cache, rel_no rel, ts_no *out_ts) WARN_UNUSED;
void relation_ref(struct relation *relation);
void relation_unref(struct relation *relation); /* NULL is ignored */
/* It stays in memory, with its map, when its last reference goes: a hint; only the latest of very many do. Not when it was dropped. */
void relation_retain(struct relation *relation);
rel_no relation_number(const struct relation *relation);
ts_no relation_tablespace(const struct relation *relation);
/* For reports: the cache's diag, and the path of the relation's file (valid as long as the relation). */
struct diag *relation_diag(const struct relation *relation);
/* Damage found meanwhile is answered with -EIO but not reported: the caller looks whether pages are there that may not have been
 * written. One caller at a time. */
void relation_set_quiet(struct relation *relation, bool quiet);
const char *relation_file_path(const struct relation *relation);

/* Explicit creation of the file. One that exists is taken as it is. Its directory is synced by the next relation_sync.
 */
int relation_create_file(struct relation *relation) WARN_UNUSED;
/* Blocks that the file holds now; part of a block at its end does not count. -EIO and a report
 * naming the file when it is missing; *out_blocks 0 when relation_create_file was never called and none exists is not
 * possible through this call: use relation_file_exists first. Cached after the first call. */
int relation_file_blocks(struct relation *relation, block_no *out_blocks) WARN_UNUSED;
int relation_file_exists(struct relation *relation, bool *out_exists) WARN_UNUSED;
/* The file as the filesystem sees it now, without opening it. One that is missing is all zero. */
struct relation_file {
    bool exists;
    block_no blocks;          /* by its size */
    uint64_t allocated_bytes; /* less than that: some were punched out */
    bool sidecar;             /* RELID_fsm stands beside it */
};
int relation_look(struct relation *relation, struct relation_file *out_file) WARN_UNUSED;
/* Preallocates so that the file holds at least `blocks`; ENOSPC shows up here and leaves the file as it was. */
int relation_extend(struct relation *relation, block_no blocks) WARN_UNUSED;
/* Cuts the file to `blocks`. Nothing at or above may be resident. */
int relation_cut(struct relation *relation, block_no blocks) WARN_UNUSED;
/* Gives the space of these blocks of the file back to the filesystem; none of them may be resident. -EOPNOTSUPP: it cannot do that, and is
 * not asked again. Another error, reported: some of them may have none any more. */
int relation_punch(struct relation *relation, block_no first, uint32_t count) WARN_UNUSED;
/* The blocks, inside the file, have space again; what others hold stays. -ENOSPC: some of them may have. */
int relation_allocate(struct relation *relation, block_no first, uint32_t count) WARN_UNUSED;
/* May some of the file's blocks have no space? No only if that is sure. */
int relation_file_has_holes(struct relation *relation, bool *out_holes) WARN_UNUSED;
/* Removes the file; one that is missing is fine. The relation must be dead (dropped) and without resident pages. */
int relation_unlink_file(struct relation *relation) WARN_UNUSED;
/* Makes all that was written, and the file's name, durable. */
int relation_sync(struct relation *relation) WARN_UNUSED;
/* relation_sync for every relation with unsynced writes. The first error wins. */
int bufcache_sync_relations(struct bufcache *cache) WARN_UNUSED;

/* Pages of the relation in the cache now (exact). */
uint32_t relation_resident(const struct relation *relation);

/* The log refers to pages of this relation, in an operation of that epoch (COW-4). The latest one counts; 0: never. */
void relation_set_referenced(struct relation *relation, epoch_no epoch);
epoch_no relation_referenced(const struct relation *relation);
/* The largest epoch that was ever set: pages born up to it may be read by others than the live tree. */
void relation_set_shared_at(struct relation *relation, epoch_no epoch);
epoch_no relation_shared_at(const struct relation *relation);

/* The inode that the relation was made for, for whoever looks for its table; INO_NONE: nobody said. */
void relation_set_first_ino(struct relation *relation, ino_no ino);
ino_no relation_first_ino(const struct relation *relation);

/* The relations in memory, not dropped, that `wanted` says yes to (called under the registry's lock: it takes none), with a reference in each;
 * *out_relations is malloc'd. Returns how many; without memory none. */
uint32_t bufcache_list_relations(struct bufcache *cache, bool (*wanted)(const struct relation *relation),
                                 struct relation ***out_relations);

/* A slot for the free map, owned by fsm/. The first one wins: returns the map that is there now, which is `map` if there
 * was none. destroy is called on it when the relation goes. */
void *relation_set_map(struct relation *relation, void *map, void (*destroy)(void *map));
void *relation_map(const struct relation *relation);

/* ---- frames asked for in advance ---- */

struct frame_budget {
    struct bufcache *cache;
    uint32_t quota;     /* frames that frame_budget_release gives back to the quota: pins + news as taken */
    uint32_t pins;      /* pages that page_read may have pinned at a time */
    uint32_t news;      /* frames still in `free_head`: pages that page_new may make */
    uint32_t free_head; /* private chain of free frames */
};

/* Waits (holding no lock) until the quota allows it and `news` frames are free and clean. -E2BIG: more than the cache
 * can ever give (over a quarter of its frames). -EIO: a dirty page could not be written. */
int frame_budget_take(struct bufcache *cache, uint32_t pins, uint32_t news,
                      struct frame_budget *out_budget) WARN_UNUSED;
void frame_budget_release(struct frame_budget *budget); /* gives back what is left; a zeroed budget is ignored */
/* Between two plans that share a budget: `news` free frames again, at most as many as were taken. Waits for no quota, so it may be called
 * with locks that are outer to the cache's. -E2BIG, -EIO. */
int frame_budget_refill(struct frame_budget *budget, uint32_t news) WARN_UNUSED;
/* Largest pins + news that one budget can have. */
uint32_t frame_budget_max(const struct bufcache *cache);

/* ---- pages ---- */

/* The page's bytes, BLOCK_SIZE of them. Valid while pinned. */
void *frame_page(struct frame *frame);
struct page_ptr frame_ptr(const struct frame *frame);
struct relation *frame_relation(const struct frame *frame);

/* Pins the page that ptr points to, reading it if needed. A page read from disk is validated once: checksum, relation,
 * block, birth, allocation number, type, level, payload. A page that is not what ptr, type and level say is damage:
 * -EIO, reported. ptr must not be none. */
int page_read(struct relation *relation, struct page_ptr ptr, uint8_t type, uint8_t level,
              struct frame **out_frame) WARN_UNUSED;

/* The same for many pages of one type and level; neighbouring blocks that are missing are read in one call. All pinned
 * or none. */
int page_read_many(struct relation *relation, const struct page_ptr *ptrs, unsigned count, uint8_t type, uint8_t level,
                   struct frame **out_frames) WARN_UNUSED;

/* Makes a page for a block just allocated; takes a frame from the budget (must have one). Pinned, latched, payload
 * zero, header filled in (used and count 0). The block must not be resident. */
struct frame *page_new(struct relation *relation, struct frame_budget *budget, struct page_ptr ptr, uint8_t type,
                       uint8_t level);
/* Takes back a page_new (plan failed): the frame goes back to the budget. Must be latched and pinned once. */
void page_forget(struct frame *frame, struct frame_budget *budget);

void page_unpin(struct frame *frame);
/* Another pin on a page that the caller has pinned. */
void page_pin_again(struct frame *frame);

/* CACHE-1: true: the caller has the latch and may change the page. The caller holds a pin and its tree's lock
 * exclusively. */
bool page_try_latch(struct frame *frame);
bool page_is_latched(const struct frame *frame);
void page_unlatch(struct frame *frame, bool changed); /* changed: the page is dirty now */

/* Turns a pin into a reply pin and back (the caller holds the tree's lock shared when turning it on). */
void page_reply_pin(struct frame *frame);   /* adds a reply pin beside the caller's pin */
void page_reply_unpin(struct frame *frame); /* drops it */

/* DROP-2: the block became free. Its page leaves the cache, dirty or not; a write in flight is waited for. With pins
 * left the frame is marked dead and freed by the last unpin. */
void page_discard(struct relation *relation, block_no block);

/* ---- write-back ---- */

struct writeback_result {
    uint64_t pages;
    uint64_t calls;
};

/* Writes all dirty pages with birth <= `birth` (neighbours in one call), waiting for those being written. Not latched
 * ones: the caller knows that none with such a birth is latched (fork). The first error wins, -EIO or -ENOSPC. Pages of
 * dead relations are skipped. */
int bufcache_write_back(struct bufcache *cache, epoch_no birth, struct writeback_result *out_result) WARN_UNUSED;
/* Writes these pages of a living relation now, those that are dirty and not latched; waits for those being written.
 * count >= 1. */
int page_write_many(struct relation *relation, const struct page_ptr *ptrs, unsigned count) WARN_UNUSED;
/* Asks the background writer to write these soon (bulk loads): a hint. */
void bufcache_write_soon(struct frame *const *frames, unsigned count);
/* Without background thread: does one round of its work. */
void bufcache_step(struct bufcache *cache);

/* ---- drop ---- */

enum drop_mode { DROP_MODE_NONE, DROP_MODE_LOOKUP, DROP_MODE_SWEEP };

struct drop_result {
    enum drop_mode mode;
    uint32_t relations;
    uint64_t tags_read;
    uint64_t pages_discarded;
    uint64_t dirty_discarded;
    uint64_t max_tags_per_hold; /* most tags looked at under one hold of one lock (DROP-3: at most 1024) */
    uint64_t duration_us;
};

/*
 * DROP-1 Drops all pages of the relations in at most one pass over the tags; in none when nothing is resident; block by
 * block when the victims' files have fewer blocks than frames/32 together. DROP-2 The relations are dead from the start
 * of the call: nothing of them is written any more; writes in flight are waited for. DROP-3 No lock is held for more
 * than 1,024 tags. DROP-4 The only routine for this: commit, abort, live unlink, replay. No page of a victim may be
 * pinned but by replies; those frames are marked dead and freed by the last unpin. Cannot fail.
 */
void bufcache_drop_relations(struct bufcache *cache, struct relation *const *victims, uint32_t count,
                             struct drop_result *out_result);

/* ---- counters ---- */

struct bufcache_stats {
    uint64_t frames, free_frames, dirty_frames, pinned_frames;
    uint64_t hits, misses, pages_read, read_calls, pages_written, write_calls, evictions, discards;
    uint64_t sweeps, lookup_drops, empty_drops, tags_read;
    uint64_t relation_opens, relation_files_created, relation_files_unlinked, syncs;
    uint64_t damaged_pages;
};
void bufcache_get_stats(struct bufcache *cache, struct bufcache_stats *out_stats);

/* What the cache holds of a relation. */
#define BUFCACHE_USAGE_COUNTS 6u /* how often a page was used lately: 0 goes first */
struct bufcache_usage {
    rel_no rel;
    uint32_t resident, dirty, pinned;
    uint32_t by_count[BUFCACHE_USAGE_COUNTS]; /* pages by usage count */
    uint64_t hits, misses; /* look-ups of its pages that found them, and that did not, since it is in memory */
};
/* For each relation with pages in the cache, by number; *out_list is malloc'd. One pass that takes no lock and touches no page, then a
 * look-up of each relation: approximate while others work. -ENOMEM. */
int bufcache_list_usage(struct bufcache *cache, struct bufcache_usage **out_list, size_t *out_count) WARN_UNUSED;

/* Debug and tests: walks all structures; 0, or -EINVAL after a diag line. Nothing may run beside it. */
int bufcache_check(struct bufcache *cache) WARN_UNUSED;

#endif
