/*
 * fsm/fsm.c - the free map of a relation.
 *
 *     none --fsm_init_empty--> ready <--fsm_build_finish-- a build of it --fsm_build_begin-- not ready
 *     none --first reserve---> not ready                                                       ^
 *                                                   ready --fsm_doubt------------------------+
 *
 * A build changes nothing until its end, and an aborted one nothing at all: the map is used as before meanwhile.
 *
 * FSM-1 to FSM-3: see fsm.h.
 * FSM-4 A bit that says "free" is right; one that says "used" is right when the map is ready. So whatever a map knows to be free may be
 *       handed out, ready or not.
 * FSM-5 reserved <= free_blocks: every promise is backed by a block of the file that is free in the map, so that
 *       allocation cannot fail.
 * FSM-6 Bits at and above file_blocks are set: a search never leaves the file.
 * FSM-7 No used block lies at or above high_water, and no punched one.
 * FSM-8 `touched` has a bit for each block that was handed out or freed since a build began: there the map itself is right, whatever the
 *       trees of the fork say.
 * FSM-9 A block is taken just behind the hint, if enough of them are free there, else as far in front as may be: so what is written
 *       again and again moves to the front, and the end of the file can be cut off at the next checkpoint.
 * FSM-10 A punched block is neither used nor free: its bit is set in `used`, so that no search finds it, and clear in `backed`. It becomes free
 *       only when the filesystem has given it space (unpunch_run), so what FSM-5 promises can be written.
 * FSM-11 Only free blocks that are not promised are punched: nobody reaches them, no page of them is in the cache, and no operation has them.
 * FSM-12 Of a file that may have holes since an earlier life, every block that is found to be free counts as punched. To allocate one that has
 *       space changes nothing.
 *
 * Locking: each map has its own mutex (LOCK_RANK_FSM), held over relation_* calls, which may do I/O: extending a file
 * is what a reserve waits for, and nobody else can use the map meanwhile anyway.
 */
#include "fsm/fsm.h"

#include "base/lock.h"
#include "base/plant.h"
#include "fsm/fsm_int.h"
#include "fsm/sidecar.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_MAX_BLOCKS 8192u
#define CHUNK_SHARE      32u /* a chunk is this part of the file */
#define RUN_CANDIDATES   8u  /* runs looked at from the front of the file before the longest of them is taken */
#define NEAR_BLOCKS      64u /* so far behind a hint is still near */
#define RUN_LONG_ENOUGH  32u /* blocks in a row that are worth a place of their own */
#define RUN_TO_BEGIN     8u /* blocks that should follow where nothing is near: others will be asked for next to this one */
#define RUN_BEFORE_END                                                                                                 \
    16u /* so many blocks are worth more than a longer run at the end of the file, which then cannot be cut */
#define DEFERRED_MIN   256u
#define UNPUNCH_BLOCKS 32u /* so many get space again at once, if they lie in a row */

/* What a build under way collects: one bit for each block that the file had when it began. */
struct fsm_build {
    block_no end;
    uint64_t doubts;   /* of the map when it began */
    uint64_t *marked;  /* some tree reaches it, or it is pinned otherwise; at the end: found to be free */
    uint64_t *touched; /* FSM-8 */
};

struct fsm_map {
    struct mutex lock;
    bool created;  /* fsm_init_empty made it: a missing file is to be created, not damage */
    bool measured; /* file_blocks is the file's size */
    bool file_missing;
    bool ready;      /* FSM-4 */
    bool ordered;    /* somebody was told to build it (fsm_build_order) */
    bool building;   /* `build` is there */
    uint64_t doubts; /* calls of fsm_doubt */
    block_no file_blocks;
    block_no high_water; /* FSM-7 */
    uint32_t free_blocks;
    uint32_t reserved;
    struct fsm_bitmap used;
    struct fsm_bitmap backed; /* FSM-10; beyond its end all are */
    uint32_t punched_blocks;
    bool has_holes; /* FSM-12 */
    struct fsm_build build;
    _Atomic bool freed; /* a block was, since the last trim */
    uint64_t deferred;  /* blocks that wait to be free since */
    epoch_no deferred_since;
    uint64_t allocations;
    uint64_t words_read;
    uint64_t lock_waits;
};

/* Counts when somebody else has it: writers of different relations never wait for each other here. */
static void map_lock(struct fsm_map *map)
{
    if (mutex_try_lock(&map->lock))
        return;
    mutex_lock(&map->lock);
    map->lock_waits++;
}

static void build_free(struct fsm_build *build)
{
    free(build->marked);
    free(build->touched);
    *build = (struct fsm_build){0};
}

static void map_destroy(void *arg)
{
    struct fsm_map *map = arg;
    build_free(&map->build);
    fsm_bitmap_free(&map->used);
    fsm_bitmap_free(&map->backed);
    mutex_destroy(&map->lock);
    free(map);
}

static struct fsm_map *map_make(bool created)
{
    struct fsm_map *map = calloc(1, sizeof *map);
    if (map == NULL)
        return NULL;
    mutex_init(&map->lock, LOCK_RANK_FSM);
    map->created = created;
    map->ready = created;
    map->used.words_read = &map->words_read;
    map->backed.words_read = &map->words_read;
    return map;
}

/* The relation's map, made when it has none: `created` says that the relation is new. NULL: no memory. When two threads
 * make one at once, the first one wins. */
static struct fsm_map *map_get(struct relation *relation, bool created)
{
    struct fsm_map *map = relation_map(relation);
    if (map != NULL)
        return map;
    map = map_make(created);
    if (map == NULL)
        return NULL;
    struct fsm_map *installed = relation_set_map(relation, map, map_destroy);
    if (installed != map)
        map_destroy(map);
    return installed;
}

static uint32_t used_blocks(const struct fsm_map *map)
{
    return map->file_blocks - map->free_blocks - map->punched_blocks;
}

static bool is_punched(const struct fsm_map *map, block_no block)
{
    return block < map->file_blocks && !fsm_bitmap_test(&map->backed, block);
}

/* Blocks that counted as used have no user, and perhaps no space. */
static void add_free(struct fsm_map *map, block_no first, uint32_t count)
{
    if (map->has_holes && !PLANT(HOLES_FORGOTTEN)) { /* FSM-12 */
        fsm_bitmap_clear(&map->backed, first, count);
        map->punched_blocks += count;
    } else {
        fsm_bitmap_clear(&map->used, first, count);
        map->free_blocks += count;
    }
}

static int measure_file(struct relation *relation, struct fsm_map *map, bool *out_exists, block_no *out_blocks)
{
    *out_exists = true;
    *out_blocks = 0;
    int err = map->created ? relation_file_exists(relation, out_exists) : 0;
    if (err == 0 && *out_exists)
        err = relation_file_blocks(relation, out_blocks);
    if (err == 0 && *out_exists)
        err = relation_file_has_holes(relation, &map->has_holes);
    return err;
}

/* Learns the size of the file, once. Everything in a file that the map did not see grow is used. */
static int map_measure(struct relation *relation, struct fsm_map *map)
{
    if (map->measured)
        return 0;
    bool exists = true;
    block_no blocks = 0;
    int err = measure_file(relation, map, &exists, &blocks);
    if (err == 0)
        err = fsm_bitmap_grow(&map->used, blocks);
    if (err == 0 && map->has_holes)
        err = fsm_bitmap_grow(&map->backed, blocks);
    if (err != 0)
        return err;
    map->file_missing = !exists;
    map->file_blocks = blocks;
    map->measured = true;
    if (map->created)
        add_free(map, 0, blocks);
    map->high_water = (block_no)fsm_bitmap_end_of_set(&map->used, blocks);
    return 0;
}

/* How large the file is made when it needs at least `needed` blocks. */
static block_no extension_goal(const struct fsm_map *map, block_no needed)
{
    if (needed <= FSM_SMALL_BLOCKS)
        return needed;
    uint64_t chunk = map->file_blocks / CHUNK_SHARE;
    if (chunk > CHUNK_MAX_BLOCKS)
        chunk = CHUNK_MAX_BLOCKS;
    const uint64_t goal = map->file_blocks + chunk;
    if (goal <= needed || goal >= BLOCK_NONE)
        return needed;
    return (block_no)goal;
}

static bool is_out_of_space(int err)
{
    return err == -ENOSPC || err == -EDQUOT || err == -EFBIG;
}

/* The bitmaps have room for so many blocks, and the file is there. */
static int make_room(struct relation *relation, struct fsm_map *map, block_no blocks)
{
    int err = fsm_bitmap_grow(&map->used, blocks);
    if (err == 0 && (map->has_holes || map->backed.height != 0))
        err = fsm_bitmap_grow(&map->backed, blocks);
    if (err == 0 && map->file_missing) {
        err = relation_create_file(relation);
        map->file_missing = err != 0;
    }
    return err;
}

/* Grows the file by at least `more` blocks, all free. */
static int map_extend(struct relation *relation, struct fsm_map *map, uint32_t more)
{
    const uint64_t needed = (uint64_t)map->file_blocks + more;
    if (needed >= BLOCK_NONE)
        return -EFBIG;
    block_no goal = extension_goal(map, (block_no)needed);
    int err = make_room(relation, map, goal);
    if (err != 0)
        return err;
    err = relation_extend(relation, goal);
    if (is_out_of_space(err) && goal > needed) {
        goal = (block_no)needed;
        err = relation_extend(relation, goal);
    }
    if (err != 0)
        return err;
    fsm_bitmap_clear(&map->used, map->file_blocks, goal - map->file_blocks);
    map->free_blocks += goal - map->file_blocks;
    map->file_blocks = goal;
    return 0;
}

/* ---- holes ---- */

/* Free blocks become punched (FSM-11). */
static int punch_run(struct relation *relation, struct fsm_map *map, block_no first, uint32_t count)
{
    assert(count <= map->free_blocks - map->reserved);
    assert(fsm_bitmap_count(&map->used, first, count) == 0);
    const uint32_t more = PLANT(PUNCH_TAKES_MORE) && first > 0 ? 1 : 0;
    const int err = relation_punch(relation, first - more, count + more);
    if (err == -EOPNOTSUPP)
        return err;
    fsm_bitmap_set(&map->used, first, count);
    fsm_bitmap_clear(&map->backed, first, count);
    map->free_blocks -= count;
    map->punched_blocks += count;
    return err;
}

/* How many blocks are worth being punched. */
static uint32_t excess_blocks(const struct fsm_map *map)
{
    const uint32_t used = used_blocks(map);
    const uint32_t keep = used > map->reserved ? used : map->reserved;
    return map->free_blocks > keep ? map->free_blocks - keep : 0;
}

static int punch_locked(struct relation *relation, struct fsm_map *map, uint32_t *out_blocks_punched)
{
    uint64_t end = map->high_water;
    uint32_t excess = excess_blocks(map);
    int err = excess >= FSM_PUNCH_BLOCKS ? fsm_bitmap_grow(&map->backed, map->file_blocks) : 0;
    while (err == 0 && excess >= FSM_PUNCH_BLOCKS && end > 0) {
        const uint64_t first = fsm_bitmap_end_of_set(&map->used, end);
        const uint32_t count = end - first < excess ? (uint32_t)(end - first) : excess;
        if (count >= FSM_PUNCH_BLOCKS) {
            err = punch_run(relation, map, (block_no)(end - count), count);
            *out_blocks_punched += err == 0 ? count : 0;
            excess = excess_blocks(map);
        }
        end = fsm_bitmap_end_of_clear(&map->used, first);
    }
    return err == -EOPNOTSUPP ? 0 : err;
}

/* Punched blocks become free. What the filesystem gave before it had no more is given back. */
static int unpunch_run(struct relation *relation, struct fsm_map *map, block_no first, uint32_t count)
{
    const int err = PLANT(PUNCHED_WITHOUT_SPACE) ? 0 : relation_allocate(relation, first, count);
    if (err != 0) {
        const int punch_err = relation_punch(relation, first, count);
        (void)punch_err; /* reported; they count as punched either way */
        return err;
    }
    fsm_bitmap_set(&map->backed, first, count);
    fsm_bitmap_clear(&map->used, first, count);
    map->punched_blocks -= count;
    map->free_blocks += count;
    return 0;
}

/* Gives space to `more` punched blocks, or all if there are fewer, and to what follows them. */
static int map_unpunch(struct relation *relation, struct fsm_map *map, uint32_t more)
{
    const uint64_t goal = (uint64_t)map->free_blocks + more;
    while (map->punched_blocks > 0 && map->free_blocks < goal) {
        const uint32_t missing = (uint32_t)(goal - map->free_blocks);
        const uint32_t want = missing > UNPUNCH_BLOCKS ? missing : UNPUNCH_BLOCKS;
        const block_no first = (block_no)fsm_bitmap_next_clear(&map->backed, 0);
        const uint32_t count = (uint32_t)fsm_bitmap_clear_run(&map->backed, first, want);
        int err = unpunch_run(relation, map, first, count);
        if (is_out_of_space(err) && count > missing)
            err = unpunch_run(relation, map, first, missing);
        if (err != 0)
            return err;
    }
    return 0;
}

static uint32_t available_blocks(const struct fsm_map *map)
{
    return map->free_blocks - map->reserved;
}

int fsm_reserve(struct relation *relation, uint32_t count)
{
    struct fsm_map *map = map_get(relation, false);
    if (map == NULL)
        return -ENOMEM;
    map_lock(map);
    int err = map_measure(relation, map);
    if (err != 0)
        goto out;
    if (available_blocks(map) < count)
        err = map_unpunch(relation, map, count - available_blocks(map));
    if (err == 0 && available_blocks(map) < count)
        err = map_extend(relation, map, count - available_blocks(map));
    if (err == 0)
        map->reserved += count;
out:
    mutex_unlock(&map->lock);
    return err;
}

void fsm_unreserve(struct relation *relation, uint32_t count)
{
    if (count == 0)
        return;
    struct fsm_map *map = relation_map(relation);
    assert(map != NULL);
    map_lock(map);
    assert(map->reserved >= count);
    map->reserved -= count;
    mutex_unlock(&map->lock);
}

/* First free block at or behind `from`, else from the front. There is one. */
static block_no next_free(const struct fsm_map *map, block_no from)
{
    uint64_t block = fsm_bitmap_next_clear(&map->used, from);
    if (block == FSM_BIT_NONE)
        block = fsm_bitmap_next_clear(&map->used, 0);
    assert(block < map->file_blocks);
    return (block_no)block;
}

static bool is_small(const struct fsm_map *map)
{
    return map->file_blocks <= FSM_SMALL_BLOCKS;
}

/* A free block just behind the hint. */
static bool find_near(const struct fsm_map *map, block_no hint, block_no *out_block)
{
    if (hint >= map->file_blocks || is_small(map))
        return false;
    const uint64_t block = fsm_bitmap_next_clear(&map->used, hint);
    *out_block = (block_no)block;
    return block != FSM_BIT_NONE && block - hint <= NEAR_BLOCKS;
}

/* FSM-8 */
static void touch(struct fsm_map *map, block_no first, uint32_t count)
{
    const uint64_t end = (uint64_t)first + count;
    if (map->building && first < map->build.end && !PLANT(TOUCHED_IGNORED))
        fsm_bits_set(map->build.touched, first, (end < map->build.end ? end : map->build.end) - first);
}

static void take(struct fsm_map *map, block_no first, uint32_t count)
{
    assert(map->reserved >= count && map->free_blocks >= count);
    fsm_bitmap_set(&map->used, first, count);
    touch(map, first, count);
    map->free_blocks -= count;
    map->reserved -= count;
    if (map->high_water < first + count)
        map->high_water = first + count;
    map->allocations++;
}

/* The first run from the front that is long enough, else the longest of the first few. Returns its length, at most `limit`. */
static uint32_t find_run_from_front(const struct fsm_map *map, uint32_t enough, uint32_t limit, block_no *out_first)
{
    uint32_t best = 0;
    uint64_t from = next_free(map, 0);
    for (unsigned tries = 0; tries < RUN_CANDIDATES && from != FSM_BIT_NONE && best < enough; tries++) {
        const uint32_t run = (uint32_t)fsm_bitmap_clear_run(&map->used, from, limit);
        if (run > best) {
            best = run;
            *out_first = (block_no)from;
        }
        from = fsm_bitmap_next_clear(&map->used, from + run);
    }
    return best;
}

/* How long a run has to be. Where nothing is near, others will be asked for next to this one; the end of the file is grown into only
 * when there is no good place in front. */
static uint32_t run_enough(const struct fsm_map *map, bool near, block_no near_block, uint32_t want)
{
    if (is_small(map))
        return 1;
    if (near && near_block >= map->high_water)
        return RUN_LONG_ENOUGH;
    const uint32_t enough = want < RUN_LONG_ENOUGH ? want : RUN_LONG_ENOUGH;
    return near || enough > RUN_TO_BEGIN ? enough : RUN_TO_BEGIN;
}

/* FSM-9. Returns the length of the run, at most `want`. */
static uint32_t find_run(const struct fsm_map *map, block_no hint, uint32_t want, block_no *out_first)
{
    block_no near_block = 0;
    block_no front_block = 0;
    const bool near = find_near(map, hint, &near_block);
    const uint32_t enough = run_enough(map, near, near_block, want);
    uint32_t best = near ? (uint32_t)fsm_bitmap_clear_run(&map->used, near_block, want) : 0;
    *out_first = near_block;
    if (best >= enough && near_block < map->high_water)
        return best;
    const uint32_t front = find_run_from_front(map, enough, want < enough ? enough : want, &front_block);
    if (front > best || front >= enough) {
        best = front;
        *out_first = front_block;
    }
    const uint32_t at_end = map->file_blocks - map->high_water;
    if (best < RUN_BEFORE_END && best < want && at_end > best) {
        best = at_end;
        *out_first = map->high_water;
    }
    return best < want ? best : want;
}

block_no fsm_allocate(struct relation *relation, block_no hint)
{
    struct fsm_map *map = relation_map(relation);
    assert(map != NULL);
    map_lock(map);
    assert(map->reserved > 0 && map->free_blocks >= map->reserved);
    block_no block = 0;
    if (!find_near(map, hint, &block))
        block = next_free(map, 0);
    take(map, block, 1);
    mutex_unlock(&map->lock);
    return block;
}

uint32_t fsm_allocate_run(struct relation *relation, block_no hint, uint32_t want, block_no *out_first)
{
    struct fsm_map *map = relation_map(relation);
    assert(map != NULL && want >= 1);
    map_lock(map);
    assert(map->reserved > 0 && map->free_blocks >= map->reserved);
    if (want > map->reserved)
        want = map->reserved;
    const uint32_t count = find_run(map, hint, want, out_first);
    take(map, *out_first, count);
    mutex_unlock(&map->lock);
    return count;
}

void fsm_free(struct relation *relation, block_no first, uint32_t count)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL || count == 0)
        return; /* nothing was believed; the next build finds the blocks free */
    map_lock(map);
    if (map->measured) {
        assert((uint64_t)first + count <= map->file_blocks);
        assert(fsm_bitmap_count(&map->used, first, count) == count);
        assert(fsm_bitmap_count(&map->backed, first, count) == count);
        fsm_bitmap_clear(&map->used, first, count);
        touch(map, first, count);
        map->free_blocks += count;
        atomic_store_explicit(&map->freed, true, memory_order_relaxed);
    }
    mutex_unlock(&map->lock);
}

bool fsm_defer(struct relation *relation, uint64_t blocks, epoch_no since)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL)
        return false;
    map_lock(map);
    map->deferred = (map->deferred_since == since ? map->deferred : 0) + blocks;
    map->deferred_since = since;
    const bool many = map->deferred > DEFERRED_MIN && 2 * map->deferred > used_blocks(map);
    mutex_unlock(&map->lock);
    return many;
}

bool fsm_is_ready(struct relation *relation)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL)
        return false;
    map_lock(map);
    const bool ready = map->ready;
    mutex_unlock(&map->lock);
    return ready;
}

bool fsm_is_open(struct relation *relation)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL)
        return false;
    map_lock(map);
    const bool is_open = map->ready || map->ordered;
    mutex_unlock(&map->lock);
    return is_open;
}

int fsm_init_empty(struct relation *relation)
{
    const bool had_map = relation_map(relation) != NULL;
    struct fsm_map *map = map_get(relation, true);
    if (map == NULL)
        return -ENOMEM;
    /* A relation that is new in this life of the process can have a map only from an earlier call of this. */
    assert(!had_map || map->created);
    return 0;
}

/* ---- building from roots ---- */

bool fsm_build_order(struct relation *relation)
{
    struct fsm_map *map = map_get(relation, false);
    if (map == NULL)
        return false;
    map_lock(map);
    const bool ordered = !map->ready && !map->ordered;
    map->ordered |= ordered;
    mutex_unlock(&map->lock);
    return ordered;
}

void fsm_doubt(struct relation *relation)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL)
        return;
    map_lock(map);
    map->ready = false;
    map->ordered = false;
    map->doubts++;
    mutex_unlock(&map->lock);
}

static int build_allocate(struct fsm_build *build, block_no blocks)
{
    const size_t words = (size_t)blocks / 64 + 1;
    build->marked = calloc(words, sizeof(uint64_t));
    build->touched = calloc(words, sizeof(uint64_t));
    if (build->marked != NULL && build->touched != NULL)
        return 0;
    build_free(build);
    return -ENOMEM;
}

static int build_begin_locked(struct relation *relation, struct fsm_map *map)
{
    if (map->building)
        return -EBUSY;
    int err = map_measure(relation, map);
    if (err == 0)
        err = build_allocate(&map->build, map->file_blocks);
    if (err != 0)
        return err;
    map->build.end = map->file_blocks;
    map->build.doubts = map->doubts;
    map->building = true;
    return 0;
}

int fsm_build_begin(struct relation *relation)
{
    struct fsm_map *map = map_get(relation, false);
    if (map == NULL)
        return -ENOMEM;
    map_lock(map);
    const int err = build_begin_locked(relation, map);
    mutex_unlock(&map->lock);
    return err;
}

int fsm_build_used(struct relation *relation, block_no first, uint32_t count)
{
    struct fsm_map *map = relation_map(relation);
    assert(map != NULL);
    int err = 0;
    map_lock(map);
    assert(map->building);
    const uint64_t end = (uint64_t)first + count;
    const block_no build_end = map->build.end;
    if (end > map->file_blocks)
        err = -EIO;
    else if (first < build_end) /* what lies behind was allocated since, and is known */
        fsm_bits_set(map->build.marked, first, (end < build_end ? end : build_end) - first);
    mutex_unlock(&map->lock);
    return err;
}

/* Bits of one word that a build has a say in. */
static uint64_t build_mask(const struct fsm_build *build, uint64_t first)
{
    const uint64_t left = build->end - first;
    const uint64_t valid = left >= 64 ? UINT64_MAX : (UINT64_C(1) << left) - 1;
    return valid & ~build->touched[first / 64];
}

typedef void run_fn(void *arg, block_no first, uint32_t count);

/* Calls fn for each run of set bits of one word. */
static void each_run_of_word(uint64_t bits, block_no first, run_fn *fn, void *arg)
{
    while (bits != 0) {
        const unsigned shift = (unsigned)__builtin_ctzll(bits);
        const uint64_t shifted = bits >> shift;
        const unsigned run = ~shifted == 0 ? 64 : (unsigned)__builtin_ctzll(~shifted);
        fn(arg, first + shift, run);
        bits &= run + shift >= 64 ? 0 : UINT64_MAX << (run + shift);
    }
}

static void discard_run(void *arg, block_no first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        page_discard(arg, first + i);
}

static void release_run(void *arg, block_no first, uint32_t count)
{
    struct fsm_map *map = arg;
    add_free(map, first, count);
    atomic_store_explicit(&map->freed, true, memory_order_relaxed);
}

static void withdraw_run(void *arg, block_no first, uint32_t count)
{
    struct fsm_map *map = arg;
    fsm_bitmap_set(&map->used, first, count);
    map->free_blocks -= count;
}

static void withdraw_punched_run(void *arg, block_no first, uint32_t count)
{
    struct fsm_map *map = arg;
    fsm_bitmap_set(&map->backed, first, count);
    map->punched_blocks -= count;
}

/* What some tree reaches and the map has clear in `bitmap`: as free, or as punched. Such a tree is damaged, but its blocks are not handed out:
 * FSM-1. */
static uint32_t count_contradictions(const struct fsm_map *map, const struct fsm_bitmap *bitmap)
{
    const struct fsm_build *build = &map->build;
    uint32_t count = 0;
    for (uint64_t first = 0; first < build->end; first += 64)
        count += (uint32_t)__builtin_popcountll(build->marked[first / 64] & build_mask(build, first) &
                                                ~fsm_bitmap_word(bitmap, first / 64));
    return count;
}

/* Withdraws what is contradicted, and turns `marked` into what was found to be free. */
static void build_find_free(struct fsm_map *map)
{
    struct fsm_build *build = &map->build;
    for (uint64_t first = 0; first < build->end; first += 64) {
        uint64_t *marked = &build->marked[first / 64];
        const uint64_t used = fsm_bitmap_word(&map->used, first / 64);
        const uint64_t backed = fsm_bitmap_word(&map->backed, first / 64);
        const uint64_t mask = build_mask(build, first);
        each_run_of_word(*marked & ~used & mask, (block_no)first, withdraw_run, map);
        each_run_of_word(*marked & ~backed & mask, (block_no)first, withdraw_punched_run, map);
        *marked = ~*marked & used & backed & mask;
    }
}

static int build_judge(struct relation *relation, struct fsm_map *map)
{
    int err = 0;
    map_lock(map);
    assert(map->building);
    const uint32_t contradictions = count_contradictions(map, &map->used);
    const uint32_t punched = count_contradictions(map, &map->backed);
    if (contradictions + punched > 0)
        err = diag_damage(relation_diag(relation), relation_file_path(relation), BLOCK_NONE, "free map",
                          "%u blocks that a tree reaches were free", contradictions + punched);
    if (available_blocks(map) >= contradictions)
        err = 0;
    if (err == 0)
        build_find_free(map);
    mutex_unlock(&map->lock);
    return err;
}

int fsm_build_finish(struct relation *relation)
{
    struct fsm_map *map = relation_map(relation);
    assert(map != NULL);
    const int err = build_judge(relation, map);
    if (err != 0) {
        fsm_build_abort(relation);
        return err;
    }
    struct fsm_build *build = &map->build; /* of the caller until `building` is false; touched changes under the lock */
    for (uint64_t first = 0; first < build->end; first += 64)
        each_run_of_word(build->marked[first / 64], (block_no)first, discard_run, relation);
    map_lock(map);
    for (uint64_t first = 0; first < build->end; first += 64)
        each_run_of_word(build->marked[first / 64] & build_mask(build, first), (block_no)first, release_run, map);
    map->ready = map->doubts == build->doubts;
    map->ordered = map->ordered && !map->ready;
    map->building = false;
    map->high_water = (block_no)fsm_bitmap_end_of_set(&map->used, map->file_blocks);
    build_free(build);
    mutex_unlock(&map->lock);
    return 0;
}

void fsm_build_abort(struct relation *relation)
{
    struct fsm_map *map = relation_map(relation);
    assert(map != NULL);
    map_lock(map);
    assert(map->building);
    map->building = false;
    build_free(&map->build);
    mutex_unlock(&map->lock);
}

/* ---- the rest ---- */

int fsm_get_stats(struct relation *relation, struct fsm_stats *out_stats)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL)
        return -ENOENT;
    map_lock(map);
    *out_stats = (struct fsm_stats){
        .file_blocks = map->file_blocks,
        .used_blocks = used_blocks(map),
        .free_blocks = map->free_blocks,
        .reserved_blocks = map->reserved,
        .punched_blocks = map->punched_blocks,
        .allocations = map->allocations,
        .words_read = map->words_read,
        .lock_waits = map->lock_waits,
    };
    mutex_unlock(&map->lock);
    return 0;
}

static bool is_used(const struct fsm_map *map, block_no block)
{
    return block < map->file_blocks && fsm_bitmap_test(&map->used, block) && !is_punched(map, block);
}

int fsm_copy_used(struct relation *relation, uint64_t **out_words, block_no *out_blocks, uint32_t *out_used)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL)
        return -ENOENT;
    map_lock(map);
    int err = map->measured && map->ready && map->reserved == 0 ? 0 : -EAGAIN;
    const block_no blocks = map->file_blocks;
    uint64_t *words = err == 0 ? calloc((size_t)blocks / 64 + 1, sizeof words[0]) : NULL;
    if (err == 0 && words == NULL)
        err = -ENOMEM;
    if (err == 0) {
        for (block_no block = 0; block < blocks; block++)
            words[block / 64] |= (uint64_t)is_used(map, block) << (block % 64);
        *out_words = words;
        *out_blocks = blocks;
        *out_used = used_blocks(map);
    }
    mutex_unlock(&map->lock);
    return err;
}

bool fsm_is_used(struct relation *relation, block_no block)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL)
        return true; /* nothing is known */
    map_lock(map);
    const bool used = map->measured ? is_used(map, block) : !map->created;
    mutex_unlock(&map->lock);
    return used;
}

bool fsm_is_punched(struct relation *relation, block_no block)
{
    struct fsm_map *map = relation_map(relation);
    if (map == NULL)
        return false;
    map_lock(map);
    const bool punched = is_punched(map, block);
    mutex_unlock(&map->lock);
    return punched;
}

/* One above the last block that somebody uses. */
static block_no end_of_used(const struct fsm_map *map)
{
    uint64_t end = fsm_bitmap_end_of_set(&map->used, map->file_blocks);
    while (end > 0 && is_punched(map, (block_no)(end - 1)))
        end = fsm_bitmap_end_of_set(&map->used, fsm_bitmap_end_of_set(&map->backed, end));
    return (block_no)end;
}

static uint32_t count_free(const struct fsm_map *map, block_no first, block_no end)
{
    return end - first - (uint32_t)fsm_bitmap_count(&map->used, first, end - first);
}

/* How many blocks the file keeps: those in use, keep_blocks, and what is promised (FSM-5). */
static block_no trimmed_blocks(const struct fsm_map *map, uint32_t keep_blocks)
{
    const block_no end = end_of_used(map);
    block_no blocks = map->file_blocks - end > keep_blocks ? end + keep_blocks : map->file_blocks;
    uint32_t lost = count_free(map, blocks, map->file_blocks);
    while (lost > available_blocks(map)) {
        blocks += lost - available_blocks(map);
        lost = count_free(map, blocks, map->file_blocks);
    }
    return blocks;
}

static int trim_locked(struct relation *relation, struct fsm_map *map, uint32_t keep_blocks, uint32_t *out_blocks_cut)
{
    map->high_water = (block_no)fsm_bitmap_end_of_set(&map->used, map->file_blocks);
    const block_no blocks = trimmed_blocks(map, keep_blocks);
    const uint32_t cut = map->file_blocks - blocks;
    const uint32_t cut_free = count_free(map, blocks, map->file_blocks);
    if (cut == 0)
        return 0;
    const int err = relation_cut(relation, blocks);
    if (err != 0)
        return err;
    if (map->backed.height != 0)
        fsm_bitmap_set(&map->backed, blocks, cut);
    fsm_bitmap_set(&map->used, blocks, cut);
    map->free_blocks -= cut_free;
    map->punched_blocks -= cut - cut_free;
    map->file_blocks = blocks;
    map->high_water = map->high_water < blocks ? map->high_water : blocks;
    *out_blocks_cut = cut;
    return 0;
}

int fsm_punch(struct relation *relation, uint32_t *out_blocks_punched)
{
    struct fsm_map *map = relation_map(relation);
    *out_blocks_punched = 0;
    if (map == NULL)
        return 0;
    int err = 0;
    map_lock(map);
    if (map->measured && !map->building && !map->file_missing)
        err = punch_locked(relation, map, out_blocks_punched);
    mutex_unlock(&map->lock);
    return err;
}

bool fsm_may_trim(const struct relation *relation)
{
    const struct fsm_map *map = relation_map(relation);
    return map != NULL && atomic_load_explicit(&map->freed, memory_order_relaxed);
}

uint32_t fsm_spare_blocks(block_no file_blocks)
{
    return file_blocks <= FSM_SMALL_BLOCKS ? 0 : file_blocks / CHUNK_SHARE;
}

int fsm_trim(struct relation *relation, uint32_t keep_blocks, uint32_t *out_blocks_cut)
{
    struct fsm_map *map = relation_map(relation);
    *out_blocks_cut = 0;
    if (map == NULL)
        return 0;
    int err = 0;
    map_lock(map);
    if (map->measured && !map->building && !map->file_missing) {
        atomic_store_explicit(&map->freed, false, memory_order_relaxed);
        err = trim_locked(relation, map, keep_blocks, out_blocks_cut);
    }
    mutex_unlock(&map->lock);
    return err;
}
