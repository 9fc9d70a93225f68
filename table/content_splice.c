/*
 * table/content_splice.c - the one way a content tree changes: the bytes [from, to) are replaced by a list of entries.
 *
 * Level by level, from the leaves' parents up. Two paths lead from the root to the first and behind the last entry that
 * goes. At each level the entries left of the one path and right of the other survive; between them comes the list that
 * the level below made:
 *
 *     left node:  [ survive ... | gone ... ]     ...nodes between: gone...     right node: [ gone ... | survive ... ]
 *                               ^ list of the level below                                             ^
 *
 * What survives and the list are distributed over new nodes, whose entries are the list for the level above; or the
 * node is edited in place, when it is the same on both paths, private, latchable, and has room (COW-1). Above the root
 * stands a virtual node with one entry, the root itself, so that a root leaf, a hole and an empty tree need no code.
 *
 * SPLICE-1 Nothing that the old root reaches changes before content_plan_apply.
 * SPLICE-2 The result has no root node with one entry, no node with none, no two neighbouring holes in what was touched.
 * SPLICE-3 What an append fills stays full: its nodes are not split evenly.
 *
 * A path ends early at a hole that stands high in the tree. The part of it that survives is its `remainder`.
 */
#include "table/content_int.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* One side of what is replaced. Indexed by level; the virtual node has no frame. */
struct splice_path {
    struct frame *frames[CONTENT_MAX_HEIGHT + 1];
    struct tree_entry nodes[CONTENT_MAX_HEIGHT + 1]; /* the entry that leads to frames[level] */
    unsigned index[CONTENT_MAX_HEIGHT + 1]; /* left: first entry that goes; right: one behind the last that goes */
    unsigned bottom;                        /* lowest level with a node */
    uint64_t remainder;                     /* bytes that survive of the hole cut at `bottom` */
};

struct splice {
    struct content_plan *plan;
    struct splice_path left, right;
    unsigned top;           /* level of the virtual node */
    bool at_end;            /* nothing of the tree survives behind */
    struct entry_list list; /* made by the level below, to stand in this one */
};

static bool has_node(const struct splice_path *path, unsigned level)
{
    return level >= path->bottom;
}

static unsigned node_count(const struct splice *splice, const struct splice_path *path, unsigned level)
{
    if (level == splice->top)
        return splice->plan->old.bytes == 0 ? 0 : 1;
    return content_node_count(path->frames[level]);
}

static struct tree_entry node_entry(const struct splice *splice, const struct splice_path *path, unsigned level,
                                    unsigned index)
{
    if (level == splice->top)
        return entry_of_root(&splice->plan->old);
    return content_node_entry(path->frames[level], index);
}

/* Entries of the level that survive on the left, and on the right. */
static unsigned prefix_count(const struct splice *splice, unsigned level)
{
    return has_node(&splice->left, level) ? splice->left.index[level] : 0;
}

static unsigned suffix_count(const struct splice *splice, unsigned level)
{
    const struct splice_path *right = &splice->right;
    return has_node(right, level) ? node_count(splice, right, level) - right->index[level] : 0;
}

static bool is_same_node(const struct splice *splice, unsigned level)
{
    return has_node(&splice->left, level) && has_node(&splice->right, level) &&
           splice->left.frames[level] == splice->right.frames[level];
}

/* ---- paths ---- */

/* Goes from the node at `level` into its child `entry`. other: shares its frame when it went there too. */
static int path_enter(struct splice *splice, struct splice_path *path, const struct splice_path *other,
                      struct tree_entry entry, unsigned level)
{
    path->nodes[level - 1] = entry;
    path->bottom = level - 1;
    if (other != NULL && has_node(other, level - 1) && page_ptr_equal(other->nodes[level - 1].ptr, entry.ptr)) {
        path->frames[level - 1] = other->frames[level - 1];
        page_pin_again(path->frames[level - 1]);
        return 0;
    }
    const int err = content_node_read(&splice->plan->tree, &entry, level - 1, &path->frames[level - 1]);
    if (err != 0)
        path->bottom = level;
    return err;
}

/* Index and start of the child that holds `offset`, both relative to the node. */
static unsigned path_find(const struct splice *splice, const struct splice_path *path, unsigned level, uint64_t offset,
                          enum content_side side, uint64_t *out_start)
{
    *out_start = 0;
    return level == splice->top ? 0 : content_node_find(path->frames[level], offset, side, out_start);
}

/* To the entry that begins at `offset`, or the hole that is cut there. */
static int path_to_first(struct splice *splice, uint64_t offset)
{
    struct splice_path *path = &splice->left;
    for (unsigned level = splice->top;; level--) {
        uint64_t start = 0;
        path->index[level] = path_find(splice, path, level, offset, SIDE_AFTER, &start);
        offset -= start;
        const struct tree_entry entry = node_entry(splice, path, level, path->index[level]);
        if (level == 1 || entry_is_hole(&entry)) {
            assert(offset == 0 || entry_is_hole(&entry));
            path->remainder = offset;
            return 0;
        }
        const int err = path_enter(splice, path, NULL, entry, level);
        if (err != 0)
            return err;
    }
}

/* To the entry that ends at `offset`, or the hole that is cut there. */
static int path_to_last(struct splice *splice, uint64_t offset)
{
    struct splice_path *path = &splice->right;
    for (unsigned level = splice->top;; level--) {
        uint64_t start = 0;
        const unsigned index = path_find(splice, path, level, offset, SIDE_BEFORE, &start);
        offset -= start;
        path->index[level] = index + 1;
        const struct tree_entry entry = node_entry(splice, path, level, index);
        if (level == 1 || entry_is_hole(&entry)) {
            path->remainder = entry.bytes - offset;
            assert(path->remainder == 0 || entry_is_hole(&entry));
            return 0;
        }
        const int err = path_enter(splice, path, &splice->left, entry, level);
        if (err != 0)
            return err;
    }
}

/* Both paths to behind the last entry: nothing goes, the list is appended. */
static int path_to_end(struct splice *splice)
{
    struct splice_path *left = &splice->left, *right = &splice->right;
    for (unsigned level = splice->top;; level--) {
        const unsigned count = node_count(splice, left, level);
        left->index[level] = right->index[level] = count;
        if (count == 0)
            return 0;
        const struct tree_entry entry = node_entry(splice, left, level, count - 1);
        if (level == 1 || entry_is_hole(&entry))
            return 0;
        left->index[level] = count - 1; /* the child is replaced by what becomes of it */
        int err = path_enter(splice, left, NULL, entry, level);
        if (err == 0)
            err = path_enter(splice, right, left, entry, level);
        if (err != 0)
            return err;
    }
}

static void path_release(struct splice *splice, struct splice_path *path)
{
    for (unsigned level = path->bottom; level < splice->top; level++)
        page_unpin(path->frames[level]);
}

/* ---- what leaves the tree ---- */

static int retire_one(struct content_plan *plan, struct page_ptr ptr)
{
    const int err = retire_list_reserve(&plan->retire, plan->tree.relation, 1);
    if (err == 0)
        retire_list_add(&plan->retire, ptr);
    return err;
}

static int retire_visited(void *arg, struct page_ptr ptr, uint8_t level)
{
    struct content_plan *plan = arg;
    if (page_ptr_equal(ptr, plan->kept_leaf))
        return 0;
    plan->leaves_retired += level == 0 ? 1 : 0;
    return retire_one(plan, ptr);
}

/* The subtrees of entries [first, end) of one node. */
static int retire_range(struct splice *splice, const struct splice_path *path, unsigned level, unsigned first,
                        unsigned end)
{
    for (unsigned i = first; i < end; i++) {
        const struct tree_entry entry = node_entry(splice, path, level, i);
        const int err = content_visit_entry(&splice->plan->tree, &entry, level - 1, NULL, retire_visited, splice->plan);
        if (err != 0)
            return err;
    }
    return 0;
}

/* All that goes at a level, but the children that are on the paths: those go at their own level, if they do. */
static int retire_between(struct splice *splice, unsigned level)
{
    const struct splice_path *left = &splice->left, *right = &splice->right;
    const bool has_left = has_node(left, level), has_right = has_node(right, level);
    const unsigned first = has_left ? left->index[level] + (has_node(left, level - 1) ? 1 : 0) : 0;
    unsigned end = has_right ? right->index[level] : 0;
    if (has_right && has_node(right, level - 1))
        end--;
    if (is_same_node(splice, level))
        return retire_range(splice, left, level, first, end);
    int err = has_left ? retire_range(splice, left, level, first, node_count(splice, left, level)) : 0;
    if (err == 0 && has_right)
        err = retire_range(splice, right, level, 0, end);
    return err;
}

/* The nodes of the paths at a level. */
static int retire_nodes(struct splice *splice, unsigned level)
{
    int err = 0;
    if (has_node(&splice->left, level))
        err = retire_one(splice->plan, splice->left.nodes[level].ptr);
    if (err == 0 && has_node(&splice->right, level) && !is_same_node(splice, level))
        err = retire_one(splice->plan, splice->right.nodes[level].ptr);
    return err;
}

/* ---- the list of a level ---- */

static int list_prepend(struct entry_list *list, struct tree_entry entry)
{
    const int err = entry_list_reserve(list, 1);
    if (err != 0)
        return err;
    memmove(&list->entries[1], &list->entries[0], list->count * sizeof entry);
    list->entries[0] = entry;
    list->count++;
    return 0;
}

static void list_join_holes(struct entry_list *list)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < list->count; i++) {
        struct tree_entry *last = kept > 0 ? &list->entries[kept - 1] : NULL;
        if (last != NULL && entry_is_hole(last) && entry_is_hole(&list->entries[i]))
            last->bytes += list->entries[i].bytes;
        else
            list->entries[kept++] = list->entries[i];
    }
    list->count = kept;
}

/* Survivors next to the list that are holes, like the list's own end, join it. */
static void absorb_neighbour_holes(struct splice *splice, unsigned level)
{
    struct entry_list *list = &splice->list;
    if (list->count > 0 && entry_is_hole(&list->entries[0]) && prefix_count(splice, level) > 0) {
        const struct tree_entry before = node_entry(splice, &splice->left, level, splice->left.index[level] - 1);
        if (entry_is_hole(&before)) {
            list->entries[0].bytes += before.bytes;
            splice->left.index[level]--;
        }
    }
    if (list->count > 0 && entry_is_hole(&list->entries[list->count - 1]) && suffix_count(splice, level) > 0) {
        const struct tree_entry after = node_entry(splice, &splice->right, level, splice->right.index[level]);
        if (entry_is_hole(&after)) {
            list->entries[list->count - 1].bytes += after.bytes;
            splice->right.index[level]++;
        }
    }
}

/* Nothing but removal, with holes on either side: the two become the list. */
static int join_across_removal(struct splice *splice, unsigned level)
{
    if (splice->list.count > 0 || prefix_count(splice, level) == 0 || suffix_count(splice, level) == 0)
        return 0;
    const struct tree_entry before = node_entry(splice, &splice->left, level, splice->left.index[level] - 1);
    if (!entry_is_hole(&before))
        return 0;
    splice->left.index[level]--;
    return entry_list_append(&splice->list, before);
}

/* Completes the list of the level below with what survives of cut holes. */
static int prepare_list(struct splice *splice, unsigned level)
{
    int err = 0;
    if (level == splice->left.bottom && splice->left.remainder > 0)
        err = list_prepend(&splice->list, entry_of_hole(splice->left.remainder));
    if (err == 0 && level == splice->right.bottom && splice->right.remainder > 0)
        err = entry_list_append(&splice->list, entry_of_hole(splice->right.remainder));
    if (err == 0)
        err = join_across_removal(splice, level);
    list_join_holes(&splice->list);
    absorb_neighbour_holes(splice, level);
    return err;
}

/* The list with the survivors of both sides around it. */
static int complete_list(struct splice *splice, unsigned level, struct entry_list *out_all)
{
    const unsigned before = prefix_count(splice, level), after = suffix_count(splice, level);
    struct entry_list all = {0};
    const int err = entry_list_reserve(&all, before + splice->list.count + after);
    if (err != 0)
        return err;
    for (unsigned i = 0; i < before; i++)
        all.entries[all.count++] = node_entry(splice, &splice->left, level, i);
    for (unsigned i = 0; i < splice->list.count; i++)
        all.entries[all.count++] = splice->list.entries[i];
    for (unsigned i = 0; i < after; i++)
        all.entries[all.count++] = node_entry(splice, &splice->right, level, splice->right.index[level] + i);
    *out_all = all;
    return 0;
}

/* True: above the level stands nothing but the way to it. */
static bool nothing_above(const struct splice *splice, unsigned level)
{
    if (splice->left.bottom > level && splice->left.remainder > 0)
        return false;
    if (splice->right.bottom > level && splice->right.remainder > 0)
        return false;
    for (unsigned above = level + 1; above <= splice->top; above++) {
        if (prefix_count(splice, above) + suffix_count(splice, above) > 0)
            return false;
    }
    return true;
}

/* ---- new nodes ---- */

static void node_write_entry(struct content_entry *disk, const struct tree_entry *entry)
{
    disk->ptr = disk_page_ptr_of(entry->ptr);
    disk->bytes = le64_of(entry->bytes);
}

/* A new node at `level`. Inner pages take the lowest free block, out of the way of the runs of leaves. */
static int make_node(struct content_plan *plan, unsigned level, const struct tree_entry *entries, unsigned count,
                     struct entry_list *out_list)
{
    if (plan->budget->news == 0)
        return -E2BIG;
    int err = plan_fresh_reserve(plan, 1);
    if (err == 0)
        err = entry_list_reserve(out_list, 1);
    if (err == 0)
        err = view_reserve(plan->view, plan->tree.relation, 1);
    if (err != 0)
        return err;
    const struct page_ptr ptr = view_allocate(plan->view, plan->tree.relation, 0);
    plan->fresh[plan->fresh_count++] = ptr;
    struct frame *frame = page_new(plan->tree.relation, plan->budget, ptr, PAGE_TYPE_CONTENT_INNER, (uint8_t)level);
    struct page_header *header = frame_page(frame);
    struct content_entry *disk = (struct content_entry *)content_payload(frame);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        node_write_entry(&disk[i], &entries[i]);
        bytes += entries[i].bytes;
    }
    header->count = le16_of((uint16_t)count);
    header->used = le16_of((uint16_t)(count * sizeof *disk));
    page_unlatch(frame, true);
    page_unpin(frame);
    out_list->entries[out_list->count++] = (struct tree_entry){.ptr = ptr, .bytes = bytes};
    return 0;
}

/* Distributes entries over new nodes at `level`: full ones (SPLICE-3) or evenly. */
static int make_nodes(struct content_plan *plan, unsigned level, const struct tree_entry *entries, unsigned count,
                      bool full, struct entry_list *out_list)
{
    if (level >= CONTENT_MAX_HEIGHT)
        return -EFBIG;
    unsigned nodes = (count + CONTENT_FANOUT - 1) / CONTENT_FANOUT;
    for (unsigned done = 0; done < count; nodes--) {
        unsigned share = full ? CONTENT_FANOUT : (count - done + nodes - 1) / nodes;
        if (share > count - done)
            share = count - done;
        const int err = make_node(plan, level, entries + done, share, out_list);
        if (err != 0)
            return err;
        done += share;
    }
    return 0;
}

/* ---- one level ---- */

/* The list begins with entries that stand there already: they need not be replaced. */
static void skip_unchanged(struct splice *splice, unsigned level)
{
    struct entry_list *list = &splice->list;
    while (list->count > 0 && splice->left.index[level] < splice->right.index[level]) {
        const struct tree_entry old = node_entry(splice, &splice->left, level, splice->left.index[level]);
        if (!page_ptr_equal(old.ptr, list->entries[0].ptr) || old.bytes != list->entries[0].bytes)
            return;
        splice->left.index[level]++;
        entry_list_remove(list, 0);
    }
}

/* How many entries of the list the node can take where it is; TAKE_NONE: it has to be written anew. *out_edit: the edit
 * of the latched node, NULL when nothing in it changes. */
#define TAKE_NONE UINT32_MAX
static unsigned try_in_place(struct splice *splice, unsigned level, struct content_edit **out_edit)
{
    struct splice_path *left = &splice->left;
    *out_edit = NULL;
    if (!is_same_node(splice, level))
        return TAKE_NONE;
    skip_unchanged(splice, level);
    const unsigned before = prefix_count(splice, level), after = suffix_count(splice, level);
    unsigned take = splice->list.count;
    if (before + take + after > CONTENT_FANOUT) {
        if (!splice->at_end || after > 0)
            return TAKE_NONE;
        take = CONTENT_FANOUT - before;
    }
    if (take == 0 && left->index[level] == splice->right.index[level])
        return take;
    *out_edit = plan_edit(splice->plan, EDIT_NODE, left->frames[level]);
    return *out_edit != NULL ? take : TAKE_NONE;
}

/* The node's entries that go give way to the first `take` of the list, in place. The list becomes the node itself;
 * what the node could not take is left in out_rest. */
static int edit_node(struct splice *splice, unsigned level, unsigned take, struct content_edit *edit,
                     struct entry_list *out_rest)
{
    struct splice_path *left = &splice->left;
    const unsigned first = left->index[level], end = splice->right.index[level];
    struct entry_list up = {0};
    int err = entry_list_reserve(&up, 1);
    if (err == 0)
        err = entry_list_reserve(out_rest, splice->list.count - take);
    if (err != 0) {
        entry_list_free(&up);
        return err;
    }
    struct tree_entry node = left->nodes[level];
    for (unsigned i = first; i < end; i++)
        node.bytes -= node_entry(splice, left, level, i).bytes;
    for (unsigned i = 0; i < take; i++)
        node.bytes += splice->list.entries[i].bytes;
    for (unsigned i = take; i < splice->list.count; i++)
        out_rest->entries[out_rest->count++] = splice->list.entries[i];
    splice->list.count = take;
    if (edit != NULL) {
        edit->first = first;
        edit->removed = end - first;
        edit->inserted = splice->list;
    } else {
        entry_list_free(&splice->list);
    }
    up.entries[up.count++] = node;
    splice->list = up;
    return 0;
}

/* Turns the list for this level into the one for the level above. */
static int splice_level(struct splice *splice, unsigned level)
{
    struct entry_list rest = {0};
    struct content_edit *edit = NULL;
    int err = 0;
    const unsigned take = try_in_place(splice, level, &edit);
    if (take != TAKE_NONE) {
        err = edit_node(splice, level, take, edit, &rest);
    } else {
        err = retire_nodes(splice, level);
        if (err == 0)
            err = complete_list(splice, level, &rest);
        splice->list.count = 0;
    }
    if (err == 0)
        err = make_nodes(splice->plan, level, rest.entries, rest.count, splice->at_end, &splice->list);
    entry_list_free(&rest);
    return err;
}

/* Nothing is left at a level, or one hole: that needs no node. True in *out_done when it was so. */
static int pass_hole_up(struct splice *splice, unsigned level, bool *out_done)
{
    struct entry_list all = {0};
    int err = complete_list(splice, level, &all);
    if (err != 0)
        return err;
    *out_done = all.count == 0 || (all.count == 1 && entry_is_hole(&all.entries[0]));
    if (*out_done) {
        entry_list_free(&splice->list);
        splice->list = all;
        return retire_nodes(splice, level);
    }
    entry_list_free(&all);
    return 0;
}

/* ---- the root ---- */

/* A root node with one entry gives way to it. Only nodes that the splice did not touch can be like that. */
static int collapse(struct content_plan *plan, struct content_root *root)
{
    while (root->height > 1) {
        struct frame *frame = NULL;
        const struct tree_entry node = entry_of_root(root);
        int err = content_node_read(&plan->tree, &node, root->height - 1u, &frame);
        if (err != 0)
            return err;
        const bool single = content_node_count(frame) == 1;
        const struct tree_entry only = content_node_entry(frame, 0);
        page_unpin(frame);
        if (!single)
            return 0;
        err = retire_one(plan, node.ptr);
        if (err != 0)
            return err;
        root->ptr = only.ptr;
        root->height = entry_is_hole(&only) ? 0 : (uint8_t)(root->height - 1);
    }
    return 0;
}

/* Makes `all`, entries that stand alone at `level`, the root. untouched: all is an entry of the old tree. */
static int set_root(struct splice *splice, unsigned level, struct entry_list *all, bool untouched)
{
    int err = 0;
    for (; all->count > 1 && err == 0; level++) {
        struct entry_list above = {0};
        err = make_nodes(splice->plan, level, all->entries, all->count, splice->at_end, &above);
        entry_list_free(all);
        *all = above;
    }
    if (err != 0)
        return err;
    struct content_root root = CONTENT_ROOT_EMPTY;
    if (all->count == 1) {
        root.ptr = all->entries[0].ptr;
        root.bytes = all->entries[0].bytes;
        root.height = entry_is_hole(&all->entries[0]) ? 0 : (uint8_t)level;
        if (untouched)
            err = collapse(splice->plan, &root);
    }
    splice->plan->root = root;
    return err;
}

/* The root is at `level` or above, and nothing else is left there: nodes of the paths from here on go. */
static int finish_at(struct splice *splice, unsigned level)
{
    struct entry_list all = {0};
    const bool untouched = splice->list.count == 0;
    int err = complete_list(splice, level, &all);
    for (unsigned above = level; above <= splice->top && err == 0; above++) {
        if (above > level)
            err = retire_between(splice, above);
        if (err == 0 && above < splice->top)
            err = retire_nodes(splice, above);
    }
    if (err == 0)
        err = set_root(splice, level, &all, untouched);
    entry_list_free(&all);
    return err;
}

static int splice_levels(struct splice *splice)
{
    for (unsigned level = 1;; level++) {
        int err = retire_between(splice, level);
        if (err == 0)
            err = prepare_list(splice, level);
        if (err != 0)
            return err;
        const unsigned count = prefix_count(splice, level) + splice->list.count + suffix_count(splice, level);
        if (level == splice->top || (count <= 1 && nothing_above(splice, level)))
            return finish_at(splice, level);
        bool done = false;
        if (count <= 1)
            err = pass_hole_up(splice, level, &done);
        if (err == 0 && !done)
            err = splice_level(splice, level);
        if (err != 0)
            return err;
    }
}

int plan_splice(struct content_plan *plan, uint64_t from, uint64_t to, struct entry_list *list)
{
    const struct content_root *old = &plan->old;
    assert(from <= to && to <= old->bytes && (from < to || from == old->bytes));
    struct splice splice = {.plan = plan, .at_end = to == old->bytes, .list = *list};
    *list = (struct entry_list){0};
    splice.top = old->height == 0 ? 1 : old->height;
    splice.left.bottom = splice.right.bottom = splice.top;
    int err = 0;
    if (from == to) {
        err = path_to_end(&splice);
    } else {
        err = path_to_first(&splice, from);
        if (err == 0)
            err = path_to_last(&splice, to);
    }
    if (err == 0)
        err = splice_levels(&splice);
    path_release(&splice, &splice.left);
    path_release(&splice, &splice.right);
    entry_list_free(&splice.list);
    return err;
}
