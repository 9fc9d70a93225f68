/*
 * table/content.h - the content of one table: a counted B+tree of raw bytes, copy on write.
 *
 * An operation is planned (everything that may fail: pages pinned and read, blocks and frames taken, new pages filled),
 * then applied (only changes what was latched or prepared; cannot fail) or abandoned. A plan never changes what the
 * root in force reaches.
 *
 * Locking: readers hold the file lock shared, planners and appliers exclusively, from plan to apply. Planning and
 * applying happen with the gate held. Bytes are not interpreted.
 *
 * CONTENT-1 A root's `bytes` is the sum over its leaves and holes; every inner entry counts right. No entry has 0
 *           bytes.
 * CONTENT-2 Leaves written by one plan lie in file order in one run if there is one.
 */
#ifndef TBLFS_TABLE_CONTENT_H
#define TBLFS_TABLE_CONTENT_H

#include "table/content_format.h"
#include "table/cow.h"

/* Root of a content tree. bytes == 0: empty, ptr none, height 0. A single hole: ptr none, height 0, bytes > 0.
 * height 1: a leaf. */
struct content_root {
    struct page_ptr ptr;
    uint64_t bytes;
    uint32_t leaves; /* pages that hold bytes: what st_blocks counts. Never used to find anything */
    uint8_t height;
};

#define CONTENT_ROOT_EMPTY ((struct content_root){.ptr = PAGE_PTR_NONE, .bytes = 0, .height = 0})

/* Frames that a plan needs in the worst case, for frame_budget_take. size_bytes: bytes written (0 for truncate, extend,
 * punch). */
void content_frames_needed(uint64_t size_bytes, uint32_t *out_pins, uint32_t *out_news);

struct content_plan;

/* Overwrites and appends: bytes [offset, offset + size) become `bytes`. offset beyond the end: the gap becomes a hole.
 * size >= 1. -EFBIG beyond CONTENT_MAX_BYTES. budget must hold content_frames_needed. */
int content_plan_write(struct view *view, struct relation *relation, const struct content_root *root, uint64_t offset,
                       const void *bytes, size_t size, struct frame_budget *budget,
                       struct content_plan **out_plan) WARN_UNUSED;
/* Of a planned write at the end: which of its bytes fill whole new leaves. The first head_bytes went into the leaf that
 * was the last one, `leaves` hold the PAGE_PAYLOAD_SIZE bytes each that follow, and what is left went into a last leaf
 * that is not full. The array lives as long as the plan. False: there is no such leaf, or the write was not at the end.
 */
struct content_bulk {
    uint64_t head_bytes;
    const struct page_ptr *leaves;
    unsigned count;
};
bool content_plan_bulk(const struct content_plan *plan, struct content_bulk *out_bulk);
/* Appends leaves that there are already (replay of such a write, or those of another tree of this relation). Their blocks are allocated in
 * the map. */
struct content_leaf {
    struct page_ptr ptr;
    uint32_t bytes;
};
int content_plan_graft(struct view *view, struct relation *relation, const struct content_root *root,
                       const struct content_leaf *leaves, unsigned count, struct frame_budget *budget,
                       struct content_plan **out_plan) WARN_UNUSED;
/* Cuts to new_bytes, or extends with a hole. */
int content_plan_resize(struct view *view, struct relation *relation, const struct content_root *root,
                        uint64_t new_bytes, struct frame_budget *budget, struct content_plan **out_plan) WARN_UNUSED;
/* [offset, offset + size), clipped to the end, becomes a hole; whole leaves are given back, edges are zeroed. */
int content_plan_punch(struct view *view, struct relation *relation, const struct content_root *root, uint64_t offset,
                       uint64_t size, struct frame_budget *budget, struct content_plan **out_plan) WARN_UNUSED;
/* Root after the plan, for the log record and the inode. */
struct content_root content_plan_root(const struct content_plan *plan);
/* Applies and frees the plan: from here on content_plan_root is the root. */
void content_plan_apply(struct content_plan *plan);
/* Undoes what planning took, and frees the plan. NULL is ignored. */
void content_plan_abandon(struct content_plan *plan);

/* Pages that content_read and content_seek have pinned at a time, at most. */
#define CONTENT_READ_PINS 20u

/* Copies up to size bytes from offset; *out_read is less only at the end. Holes read as zeros. */
int content_read(struct relation *relation, const struct content_root *root, uint64_t offset, void *bytes, size_t size,
                 size_t *out_read) WARN_UNUSED;

/* The same up to the next hole. At a hole *out_read is 0 and *out_hole what is left of it, at most up to the end; else *out_hole is 0. */
int content_read_run(struct relation *relation, const struct content_root *root, uint64_t offset, void *bytes,
                     size_t size, size_t *out_read, uint64_t *out_hole) WARN_UNUSED;

/* The same without copying: pieces of pinned frames (reply pins) and of a static zero page. */
struct content_pieces {
    struct iovec *iov;     /* count pieces, in order */
    struct frame **frames; /* frame_count reply-pinned frames */
    unsigned count, capacity;
    unsigned frame_count, frame_capacity;
    size_t size_bytes;
};
/* Pages that content_read_pieces pins for size bytes, at most. */
uint32_t content_pieces_pins(uint64_t size_bytes);
/* -E2BIG: the leaves are so small that it would take more pins than content_pieces_pins says: use content_read. */
int content_read_pieces(struct relation *relation, const struct content_root *root, uint64_t offset, size_t size,
                        struct content_pieces *out_pieces) WARN_UNUSED;
void content_pieces_release(struct content_pieces *pieces); /* unpins, frees the arrays; callable without any lock */

/* Visits the leaves that overlap [from, end), in order, in groups of neighbours; start: offset of the first one's first byte. Non-zero
 * stops and is handed on. -ENODATA: there is a hole. */
typedef int content_leaf_fn(void *arg, const struct content_leaf *leaves, unsigned count, uint64_t start);
int content_each_leaf(struct relation *relation, const struct content_root *root, uint64_t from, content_leaf_fn *fn,
                      void *arg) WARN_UNUSED;

/* Reads what a plan that changes [from, to) will look at, so that it waits for no disk: the inner pages over the range,
 * and the leaves that it cuts or touches. The file lock is held, exclusively if it is to be of use. */
int content_warm(struct relation *relation, const struct content_root *root, uint64_t from, uint64_t to) WARN_UNUSED;

/* lseek: first offset >= offset that is data (hole = false) or hole (true); the end counts as a hole. -ENXIO as
 * lseek(2). */
int content_seek(struct relation *relation, const struct content_root *root, uint64_t offset, bool hole,
                 uint64_t *out_offset) WARN_UNUSED;

/* Visits every page of the tree, parents first, without reading leaves. fn gets pointer and level; non-zero stops. skip
 * (may be NULL) is asked first for each inner page: true skips the subtree (already seen). */
typedef int content_visit_fn(void *arg, struct page_ptr ptr, uint8_t level);
int content_visit(struct relation *relation, const struct content_root *root,
                  bool (*skip)(void *arg, struct page_ptr ptr), content_visit_fn *fn, void *arg) WARN_UNUSED;

/* The same for the whole tree, with the bytes of content in or below each page. */
typedef int content_page_fn(void *arg, struct page_ptr ptr, uint8_t level, uint64_t bytes);
int content_each_page(struct relation *relation, const struct content_root *root, content_page_fn *fn,
                      void *arg) WARN_UNUSED;

/* Pages of the tree in blocks, by reading inner pages only. */
int content_count_blocks(struct relation *relation, const struct content_root *root, uint64_t *out_blocks) WARN_UNUSED;

/* How a tree lies in its file. */
struct content_shape {
    uint64_t seen_bytes; /* of the content, holes too: where the next look starts */
    uint64_t leaves, leaf_bytes;
    uint64_t least_leaves;  /* that the bytes between holes need: in the stretches that have ended */
    uint64_t stretch_bytes; /* of the stretch that has not */
    uint64_t runs;   /* of leaves that follow each other in the file: reading all of them in order jumps so often */
    block_no behind; /* the last leaf's block + 1 */
};
/* Adds the next `span` bytes of content to it (all zero at first), by reading inner pages only. */
int content_add_shape(struct relation *relation, const struct content_root *root, uint64_t span,
                      struct content_shape *shape) WARN_UNUSED;
/* Leaves that would do for what was seen. */
uint64_t content_shape_least_leaves(const struct content_shape *shape);

/* Lists every page of the tree in `list` (for a drop of all blocks: truncate to zero of a small table). */
int content_retire_all(struct relation *relation, const struct content_root *root,
                       struct retire_list *list) WARN_UNUSED;

/* Reads the whole tree and checks CONTENT-1 and the number of leaves. 0 or -EIO after diag_damage. */
int content_check(struct diag *diag, struct relation *relation, const struct content_root *root) WARN_UNUSED;

/* page_validate_fn of the two page types. */
int content_validate_leaf(struct diag *diag, const char *file, const void *page);
int content_validate_inner(struct diag *diag, const char *file, const void *page);

#endif
