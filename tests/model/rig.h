/*
 * tests/model/rig.h - a store on a memory device beside its model, driven by the same random operations.
 *
 * After each operation errno, attributes (the times that an operation sets lie within its call, all others are
 * unchanged) and the touched content must agree; a difference prints the last operations and the line that replays
 * them, and fails the test. Everything follows from the seed. One thread.
 */
#ifndef TBLFS_TESTS_MODEL_RIG_H
#define TBLFS_TESTS_MODEL_RIG_H

#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "tests/model/compare.h"
#include "tests/model/model.h"

#define RIG_HANDLES     12
#define RIG_HISTORY     24
#define RIG_GONE        16
#define RIG_LINE_BYTES  160
#define RIG_DATA_BYTES  (1u << 20)
#define RIG_DIR         "/data"
#define RIG_PIECE       3u /* blocks that a compaction copies at a time */
#define RIG_CACHE_SMALL ((uint64_t)BUFCACHE_MIN_FRAMES * BLOCK_SIZE)

struct rig_config {
    const char *test_name; /* for the line that replays */
    uint64_t seed;         /* as printed */
    uint64_t salt;         /* tells rigs of one seed apart */
    uint64_t cache_size_bytes;
    uint64_t max_file_bytes;   /* offsets and sizes of most operations stay below */
    uint64_t max_total_bytes;  /* content of all files: above it files are cut and removed */
    unsigned max_inodes;       /* the same for inodes; the limit in force wanders below it */
    uint32_t log_segment_size; /* 0: the usual one */
    uint8_t name_hash_bits;
    const struct archive_target *archive; /* NULL: none; clones have none */
    uint64_t archive_timeout_ms;
    bool rows; /* for transactions: mostly whole rows, mostly appended; attributes and times that matter to a merge */
};

struct rig_handle {
    struct store_file *file; /* NULL: free */
    struct model_inode *inode;
};

/* A tree, its model, and the files that are open in it. */
struct rig_lane {
    struct view *view; /* NULL: the live tree */
    struct model *model;
    struct rig_handle handles[RIG_HANDLES];
    ino_no gone[RIG_GONE]; /* numbers of inodes that are no more */
    unsigned gone_next;
};

struct rig {
    struct rig_config config;
    struct mem_device *mem;
    struct io_device *dev;
    struct diag diag;
    struct store *store;
    struct view *view; /* what operations go to, with all below; NULL: the live tree */
    struct model *model;
    struct rig_handle handles[RIG_HANDLES];
    ino_no gone[RIG_GONE];
    unsigned gone_next;
    struct test_random random;
    uint64_t step;
    uint64_t cloned_records; /* replayed on clones */
    struct store_compact
        *compact; /* of a table of the live tree, under way beside the operations; it has the table open */
    struct rig_handle compact_handle;
    uint64_t compacted, compact_gave_way, abandoned; /* how compactions ended */
    unsigned inode_limit;                            /* wanders */
    uint8_t *data;                                   /* RIG_DATA_BYTES random bytes to write from */
    ino_no subjects[4];                              /* of the operation under way */
    unsigned subject_count;
    int64_t time_before_ns;
    char history[RIG_HISTORY][RIG_LINE_BYTES];
};

void rig_init(struct rig *rig, const struct rig_config *config); /* mkfs and open */
void rig_destroy(struct rig *rig);                               /* closes what is open */

static inline struct view *rig_view(const struct rig *rig)
{
    return rig->view != NULL ? rig->view : store_live(rig->store);
}
/* Operations go to that tree, and the lane gets the one that they went to before: called twice, all is as it was. */
void rig_swap_lane(struct rig *rig, struct rig_lane *lane);

/* One random operation, compared. */
void rig_operate(struct rig *rig);
/* Compares the whole tree, and unlinked open files. */
void rig_compare(struct rig *rig);
void rig_check_store(struct rig *rig);
/* Steps until all free maps are built. */
void rig_step_until_idle(struct rig *rig);
/* Compares a view with a model. */
void rig_compare_view(struct rig *rig, struct view *view, const struct model *model);

/* What a start would find on the device just before it, by replay, and behind it is the same tree: looked at on clones. */
void rig_checkpoint(struct rig *rig);
void rig_reopen(struct rig *rig);          /* clean close, open: everything is there */
void rig_kill_and_reopen(struct rig *rig); /* abandon, open: what was acknowledged is there */
void rig_close_handles(struct rig *rig);
/* Begins a compaction of some table of the live tree (the one that operations go to), or goes on with the one that is under way. */
void rig_compact(struct rig *rig);
void rig_compact_end(struct rig *rig); /* gives up the one that is under way */

/* Fails the test with the history. */
void rig_fail(struct rig *rig, const char *fmt, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));
/* Notes what is about to be done. */
void rig_note(struct rig *rig, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* result must be 0. */
void rig_must(struct rig *rig, int result, const char *what);

#endif
