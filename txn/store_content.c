/*
 * txn/store_content.c - operations on content: write, resize, punch, read, seek.
 *
 * A change holds its file's lock exclusively from its first look at the root to the end, so the root that it planned
 * with is the one that it replaces (STORE-3). The relation is made, and its map built, before the gate is entered.
 *
 * CONTENT ROOTS AND RELATIONS
 *   rel == REL_NONE          never had content, or was cut to nothing: the next write makes a relation
 *   cut to 0                 more than a page of bytes: the whole relation goes (COW-5); else its blocks go
 */
#include "txn/publish.h"
#include "txn/store_compact_auto.h"

#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONTENT_BATCH_EDITS 4u
#define CHANGE_BY_VALUE     1          /* answer of a try whose content cannot go by reference after all */
#define CHANGE_NEVER_CUTS   (1u << 16) /* a resize that does nothing to a longer file; beside STORE_WRITE_* in flags */

/* What a change of content is asked to do. */
struct content_change {
    struct store_file *file;
    enum op_type type;
    uint64_t offset;
    const void *bytes;
    uint64_t size;
    unsigned flags; /* STORE_WRITE_*; KILL_SUID also for the others */
    uint64_t *out_end;
    const struct op_record *replay; /* the record that says all this, NULL: a new change */
    bool refers;                    /* room was reserved for a record that refers to pages */
    bool by_value;                  /* the bytes go into the log also when they could go by reference */
    bool made;                      /* a relation was made for this change */
    bool places;                    /* and placement_lock is held, shared, until that is logged */
};

int store_check_undamaged(const struct store *store, const struct inode *inode)
{
    if ((inode->flags & INODE_DAMAGED) == 0) {
        return 0;
    }
    diag_log(store->diag, DIAG_ERROR, "%s: inode %llu: the table was found damaged when the log was replayed",
             store->dir, (unsigned long long)inode->ino);
    return -EIO;
}

/* The file lock is held. */
static int get_inode(struct store_file *file, struct inode *out_inode)
{
    int rc = 0;
    rwlock_lock_shared(&file->view->catalog_lock);
    const bool replaced = atomic_load(&file->replaced); /* set with that lock held exclusively */
    if (!replaced) {
        rc = inode_get(file->view, file->ino, out_inode);
    }
    rwlock_unlock_shared(&file->view->catalog_lock);
    if (!replaced) {
        return rc;
    }
    if (file->old_inode != NULL) {
        *out_inode = *file->old_inode;
        return 0;
    }
    rwlock_lock_shared(&file->old->view->catalog_lock);
    rc = inode_get(file->old->view, file->ino, out_inode);
    rwlock_unlock_shared(&file->old->view->catalog_lock);
    out_inode->nlink = 0;
    return rc;
}

static bool has_relation_of(const struct store_file *file, const struct inode *inode)
{
    return inode->rel == (file->relation != NULL ? relation_number(file->relation) : REL_NONE);
}

/* A commit gave the table another relation while it was open. The file lock is held exclusively. */
static int adopt_relation_locked(struct store_file *file, const struct inode *inode)
{
    struct relation *relation = NULL;
    if (has_relation_of(file, inode)) {
        return 0;
    }
    if (inode->rel != REL_NONE) {
        const int rc = relation_open(file->store->cache, inode->ts, inode->rel, &relation);
        if (rc != 0) {
            return rc;
        }
    }
    relation_unref(file->relation);
    file->relation = relation;
    return 0;
}

static int pin_page(void *arg, struct page_ptr ptr, uint8_t level)
{
    (void)level;
    return cow_pin_add(arg, ptr.block);
}

/* The blocks of the old version's content. */
static int make_pin(struct store_file *file, const struct inode *inode, struct block_pin **out_pin)
{
    const struct content_root root = store_content_root(inode);
    struct block_pin *pin = NULL;
    int rc = cow_pin_make(file->relation, cow_holder_at(file->old->holder), &pin);
    if (rc == 0) {
        rc = content_visit(file->relation, &root, NULL, pin_page, pin);
    }
    if (rc != 0 && pin != NULL) {
        cow_pin_free(pin);
    }
    *out_pin = rc == 0 ? pin : NULL;
    return rc;
}

static int settle_locked(struct store_file *file)
{
    struct inode inode;
    struct inode *copy = malloc(sizeof *copy);
    int rc = copy != NULL ? get_inode(file, &inode) : -ENOMEM;
    if (rc == 0) {
        rc = adopt_relation_locked(file, &inode);
    }
    if (rc == 0 && inode.content_height > 0) {
        rc = make_pin(file, &inode, &file->pin);
    }
    if (rc != 0) {
        free(copy);
        return rc;
    }
    if (file->pin != NULL) {
        cow_pin_enter(file->store->cow, file->pin);
    }
    *copy = inode;
    file->old_inode = copy;
    return 0;
}

void store_file_settle(struct store_file *file)
{
    struct frame_budget budget;
    struct old_version *old = NULL;
    if (!atomic_load(&file->replaced) || frame_budget_take(file->store->cache, STORE_READ_PINS, 0, &budget) != 0) {
        return;
    }
    rwlock_lock_exclusive(&file->lock);
    if (file->old != NULL && settle_locked(file) == 0) {
        old = file->old;
        file->old = NULL;
    }
    rwlock_unlock_exclusive(&file->lock);
    frame_budget_release(&budget);
    old_version_put(old);
}

int store_file_look_locked(struct store_file *file, struct inode *out_inode)
{
    const int rc = get_inode(file, out_inode);
    return rc != 0 ? rc : adopt_relation_locked(file, out_inode);
}

static int adopt_relation(struct store_file *file)
{
    struct inode inode;
    rwlock_lock_exclusive(&file->lock);
    const int rc = store_file_look_locked(file, &inode);
    rwlock_unlock_exclusive(&file->lock);
    return rc;
}

/* ---- changing ---- */

static bool needs_relation(const struct content_change *change)
{
    return change->type == OP_WRITE || change->type == OP_WRITE_PAGES;
}

/* Cutting more than a page to nothing drops the relation. True: done that way. Replay decides the same, however the bytes lie in pages there
 * (COMPACT-1). */
static bool drops_relation(const struct content_change *change, const struct inode *inode)
{
    return change->type == OP_RESIZE && change->size == 0 && inode->rel != REL_NONE &&
           inode->size_bytes > PAGE_PAYLOAD_SIZE;
}

/* Reads what planning will look at before the gate is entered, so that no fork waits for the disk. */
static int warm_content(const struct content_change *change, const struct inode *inode)
{
    const struct content_root root = store_content_root(inode);
    struct relation *relation = change->file->relation;
    uint64_t blocks = 0;
    int rc = 0;
    if (relation != NULL && relation_map(relation) == NULL && root.leaves <= FSM_SMALL_BLOCKS) {
        rc = content_count_blocks(relation, &root, &blocks); /* its map is built at once, from all inner pages */
    }
    if (rc != 0 || drops_relation(change, inode)) {
        return rc;
    }
    if (change->type == OP_RESIZE) {
        return content_warm(relation, &root, change->size, UINT64_MAX);
    }
    const uint64_t size = change->type == OP_WRITE_PAGES ? 0 : change->size;
    return content_warm(relation, &root, change->offset, change->offset + size);
}

int store_make_relation(struct store *store, ts_no ts, rel_no rel, ino_no ino, struct relation **out_relation)
{
    struct relation *relation = NULL;
    int rc = relation_open(store->cache, ts, rel, &relation);
    if (rc == 0) {
        rc = relation_create_file(relation);
    }
    if (rc == 0) {
        rc = store_map_init_new(store, relation, ino);
    }
    if (rc != 0) {
        relation_unref(relation);
        return rc;
    }
    *out_relation = relation;
    return 0;
}

/* A directory that can be read, but not written to: that stops no replay. */
static bool is_closed_to_us(int rc)
{
    return rc == -EPERM || rc == -EACCES || rc == -EROFS;
}

/* The file has a relation with a map, if it needs one (file lock held exclusively, gate not held). */
static int ensure_relation(struct content_change *change, const struct inode *inode)
{
    struct store_file *file = change->file;
    struct store *store = file->store;
    if (inode->rel != REL_NONE) {
        assert(file->relation != NULL && relation_number(file->relation) == inode->rel);
        return store_map_ensure(store, file->relation, file->view, file->ino);
    }
    if (!needs_relation(change)) {
        return 0;
    }
    struct relation *relation = NULL;
    const rel_no rel = change->replay != NULL ? change->replay->rel : atomic_fetch_add(&store->next_rel, 1);
    if (rel == REL_NONE) {
        return -EBADMSG; /* the record says that there was one already */
    }
    rwlock_lock_shared(&store->placement_lock); /* TABLESPACE-2 */
    change->places = true;
    const ts_no ts = store_tablespace_for(store, inode->ts);
    int rc = store_make_relation(store, ts, rel, file->ino, &relation);
    if (change->replay != NULL && ts != TS_DEFAULT && is_closed_to_us(rc)) {
        diag_log(store->diag, DIAG_WARNING,
                 "tablespace %u: no file can be made in it: %s: inode %llu is replayed in the data directory", ts,
                 strerror(-rc), (unsigned long long)file->ino);
        rc = store_make_relation(store, TS_DEFAULT, rel, file->ino, &relation);
    }
    if (rc == 0) {
        rc = view_relation_created(file->view, relation);
    }
    if (rc != 0) {
        relation_unref(relation);
        return rc;
    }
    relation_unref(file->relation);
    file->relation = relation;
    change->made = true;
    return 0;
}

void store_drop_unnamed_relation(struct view *view, struct relation *relation)
{
    struct cow *cow = view->cow;
    struct retire_list list = {0};
    if (retire_list_reserve(&list, relation, 1) == 0) {
        cow_gate_enter(cow);
        retire_list_add_relation(&list, cow_epoch(cow));
        view_retire(view, &list);
        cow_gate_leave(cow);
    }
}

/* The change failed: so does the relation made for it. */
static void abandon_relation(struct store_file *file)
{
    store_drop_unnamed_relation(file->view, file->relation);
    relation_unref(file->relation);
    file->relation = NULL;
}

/* Settles offset and size now that the size is known. False: nothing to do. */
static bool settle(struct content_change *change, const struct inode *inode, struct op_record *op)
{
    op->size_before_bytes = inode->size_bytes;
    if (change->type == OP_WRITE && (change->flags & STORE_WRITE_APPEND) != 0) {
        change->offset = inode->size_bytes;
        op->flags |= OP_WRITE_APPEND;
    }
    const bool clip = change->type == OP_PUNCH || (change->flags & STORE_WRITE_NO_EXTEND) != 0;
    if (clip && change->offset >= inode->size_bytes) {
        return false;
    }
    if (clip && change->size > inode->size_bytes - change->offset) {
        change->size = inode->size_bytes - change->offset;
    }
    if ((change->flags & CHANGE_NEVER_CUTS) != 0 && change->size <= inode->size_bytes) {
        return false;
    }
    return change->type != OP_PUNCH || change->size > 0;
}

static int plan_content(struct op_run *run, const struct content_change *change, const struct inode *inode)
{
    const struct content_root root = store_content_root(inode);
    struct relation *relation = change->file->relation;
    switch (change->type) {
    case OP_WRITE:
        return content_plan_write(run->view, relation, &root, change->offset, change->bytes, change->size, &run->budget,
                                  &run->content);
    case OP_WRITE_PAGES:
        return content_plan_graft(run->view, relation, &root, change->bytes, (unsigned)change->size, &run->budget,
                                  &run->content);
    case OP_RESIZE:
        return content_plan_resize(run->view, relation, &root, change->size, &run->budget, &run->content);
    case OP_PUNCH:
    default:
        return content_plan_punch(run->view, relation, &root, change->offset, change->size, &run->budget,
                                  &run->content);
    }
}

/* A commit's rows behind those of others may be older than these; all else is as the transaction has it. */
static int64_t content_mtime(const struct op_run *run, const struct inode *inode)
{
    const bool is_own = run->publish != NULL && !publish_appends_only(run->publish, inode->ino);
    return is_own ? run->op.time_ns : op_mtime(run, inode->mtime_ns);
}

/* The inode after the change. */
static void change_inode(struct op_run *run, const struct content_change *change, struct content_root root,
                         struct inode *inode)
{
    const epoch_no epoch = cow_epoch(run->store->cow);
    const bool appends = needs_relation(change) && change->offset == inode->size_bytes;
    inode->content_ptr = root.ptr;
    inode->content_height = root.height;
    inode->content_leaves = root.leaves;
    inode->size_bytes = root.bytes;
    if (change->made) {
        inode->rel = relation_number(change->file->relation);
        inode->ts = relation_tablespace(change->file->relation);
        inode->rel_created = epoch;
        run->op.rel = inode->rel;
    }
    inode->mtime_ns = content_mtime(run, inode);
    inode->ctime_ns = run->ctime_ns;
    inode->change_epoch = epoch;
    if (!appends) {
        inode->rewrite_epoch = epoch;
    }
    if ((change->flags & STORE_WRITE_KILL_SUID) != 0 && (inode->mode & (S_ISUID | S_ISGID)) != 0) {
        inode->mode &= ~(uint32_t)S_ISUID;
        if ((inode->mode & S_IXGRP) != 0) {
            inode->mode &= ~(uint32_t)S_ISGID;
        }
        run->op.flags |= OP_KILL_SUID;
    }
}

/* ---- content by reference (COW-4) ---- */

static bool may_refer(const struct content_change *change)
{
    return change->type == OP_WRITE && change->size >= change->file->store->bulk_min_bytes && change->replay == NULL &&
           (change->file->view->kind == VIEW_LIVE || txn_of_view(change->file->view) != NULL);
}

/* Bytes of the log that the record's content takes: pointers, and the bytes of two leaves at the edges. */
static uint64_t reference_bytes(uint64_t size)
{
    return (size / PAGE_PAYLOAD_SIZE + 1) * sizeof(struct disk_page_ptr) + 2 * PAGE_PAYLOAD_SIZE;
}

/* Fills the record: pointers, then the bytes that are in none of these pages. */
static int refer_record(struct op_run *run, const struct content_change *change, const struct content_bulk *bulk)
{
    const size_t pages_size = bulk->count * sizeof(struct disk_page_ptr);
    const uint64_t tail_at = bulk->head_bytes + (uint64_t)bulk->count * PAGE_PAYLOAD_SIZE;
    const size_t head = (size_t)bulk->head_bytes;
    const size_t tail = (size_t)(change->size - tail_at);
    uint8_t *memory = malloc(pages_size + head + tail);
    if (memory == NULL) {
        return -ENOMEM;
    }
    run->record_memory = memory;
    struct disk_page_ptr *pages = (struct disk_page_ptr *)memory;
    for (unsigned i = 0; i < bulk->count; i++) {
        pages[i] = disk_page_ptr_of(bulk->leaves[i]);
    }
    memcpy(memory + pages_size, change->bytes, head);
    memcpy(memory + pages_size + head, (const uint8_t *)change->bytes + tail_at, tail);
    run->op.type = OP_WRITE_PAGES;
    run->op.rel = relation_number(change->file->relation);
    run->op.head_bytes = bulk->head_bytes;
    run->op.pages = (struct op_bytes){.data = memory, .size = pages_size};
    run->op.data = (struct op_bytes){.data = memory + pages_size, .size = head + tail};
    return 0;
}

/* The record refers to the new leaves, when there are enough of them; they are written first (PAGES-1). Else it carries the bytes. */
static int refer_or_carry(struct op_run *run, const struct content_change *change)
{
    struct content_bulk bulk;
    run->op.data = (struct op_bytes){.data = change->bytes, .size = change->type == OP_WRITE ? change->size : 0};
    if (!change->refers || (run->txn != NULL && run->txn->scratch)) {
        return 0;
    }
    if (!content_plan_bulk(run->content, &bulk)) {
        return CHANGE_BY_VALUE;
    }
    int rc = page_write_many(change->file->relation, bulk.leaves, bulk.count);
    if (rc == 0) {
        rc = store_note_referenced(run->store, change->file->relation);
    }
    return rc != 0 ? rc : refer_record(run, change, &bulk);
}

static int change_under_gate(struct op_run *run, const struct content_change *change, const struct inode *before)
{
    struct content_root root = CONTENT_ROOT_EMPTY;
    int rc = 0;
    const bool drop = drops_relation(change, before);
    if (!drop) {
        rc = plan_content(run, change, before);
        if (rc != 0) {
            return rc;
        }
        root = content_plan_root(run->content);
        rc = refer_or_carry(run, change);
        if (rc != 0) {
            return rc;
        }
    }
    op_lock_catalog(run);
    struct inode inode;
    rc = inode_batch_get(&run->batch, change->file->ino, &inode);
    if (rc == 0 && drop) {
        rc = op_drop_relation(run, &inode);
        inode.rel = REL_NONE;
        inode.rel_created = 0;
        inode.flags &= (uint8_t)~INODE_RENUMBERED;
    }
    if (rc == 0) {
        change_inode(run, change, root, &inode);
        rc = inode_batch_put(&run->batch, &inode);
    }
    if (rc != 0) {
        return rc;
    }
    run->op.ino = inode.ino;
    run->op.offset_bytes = change->offset;
    run->op.size_bytes = change->size;
    rc = op_finish(run);
    if (rc == 0 && run->view->kind == VIEW_LIVE && inode.rewrite_epoch == inode.change_epoch) {
        store_compact_note(run->store, inode.ino);
    } else if (rc == 0 && run->view->kind == VIEW_LIVE && inode.rel != REL_NONE) {
        store_compact_note_appended(run->store, change->file, &inode);
    }
    if (rc == 0 && drop) {
        relation_unref(change->file->relation);
        change->file->relation = NULL;
    }
    if (rc == 0 && change->out_end != NULL) {
        *change->out_end = inode.size_bytes;
    }
    return rc;
}

/* TABLESPACE-7. Recovery looks at the pages that records refer to before it replays anything, and may not know the tablespace then. */
static bool must_carry_bytes(const struct content_change *change, const struct inode *inode)
{
    return change->refers && store_tablespace_for(change->file->store, inode->ts) != TS_DEFAULT &&
           !PLANT(PAGES_IN_TABLESPACES_REFERRED);
}

static int change_locked(struct op_run *run, struct content_change *change)
{
    struct inode inode;
    const uint64_t swaps = atomic_load(&change->file->store->root_swaps);
    int rc = store_file_look_locked(change->file, &inode);
    if (rc == 0 && atomic_load(&change->file->replaced)) {
        rc = -ESTALE;
    }
    if (rc != 0) {
        return rc;
    }
    if (!settle(change, &inode, &run->op)) {
        if (change->out_end != NULL) {
            *change->out_end = inode.size_bytes;
        }
        return 0;
    }
    if (must_carry_bytes(change, &inode)) {
        return CHANGE_BY_VALUE;
    }
    run->planning_pages = true;
    rc = warm_content(change, &inode);
    if (rc == 0) {
        rc = ensure_relation(change, &inode);
    }
    if (rc == 0) {
        rc = op_enter_gate(run);
    }
    if (rc == 0 && atomic_load(&change->file->store->root_swaps) != swaps) {
        rc = OP_ROOT_SWAPPED;
    }
    return rc != 0 ? rc : change_under_gate(run, change, &inode);
}

static int change_try(struct content_change change, struct op_retry *retry)
{
    struct store_file *file = change.file;
    struct op_run run;
    const uint64_t new_bytes = change.type == OP_WRITE         ? change.size
                               : change.type == OP_WRITE_PAGES ? change.size * PAGE_PAYLOAD_SIZE
                                                               : 0;
    change.refers = may_refer(&change) && !change.by_value;
    const uint64_t log_bytes = change.refers ? reference_bytes(change.size) : new_bytes;
    int rc =
        op_begin(&run, file->store, file->view, change.type, change.replay, retry->edits, new_bytes, log_bytes, true);
    if (rc != 0) {
        op_note_retry(&run, rc, retry);
        return rc;
    }
    rwlock_lock_exclusive(&file->lock);
    rc = change_locked(&run, &change);
    op_note_retry(&run, rc, retry);
    op_release(&run);
    if (change.places) {
        rwlock_unlock_shared(&file->store->placement_lock);
    }
    if (rc != 0 && change.made) {
        abandon_relation(file);
    }
    rwlock_unlock_exclusive(&file->lock);
    return op_end(&run, rc);
}

static int change_run(const struct content_change *change)
{
    struct store *store = change->file->store;
    struct op_retry retry = {.edits = CONTENT_BATCH_EDITS};
    struct content_change now = *change;
    int rc;
    do {
        rc = change_try(now, &retry);
        now.by_value = rc == CHANGE_BY_VALUE;
    } while (now.by_value || op_wants_retry(store, &rc, &retry));
    return rc;
}

int store_file_ensure_map(struct store_file *file)
{
    struct frame_budget budget;
    struct inode inode;
    int rc = frame_budget_take(file->store->cache, STORE_READ_PINS, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    rwlock_lock_exclusive(&file->lock);
    rc = store_file_look_locked(file, &inode);
    if (rc == 0 && file->relation != NULL) {
        rc = store_map_ensure(file->store, file->relation, file->view, file->ino);
    }
    rwlock_unlock_exclusive(&file->lock);
    frame_budget_release(&budget);
    return rc;
}

int store_write(struct store_file *file, uint64_t offset, const void *bytes, size_t size, unsigned flags,
                uint64_t *out_end)
{
    if (size == 0) {
        struct inode inode;
        const int rc = store_file_get_inode(file, &inode);
        if (rc == 0) {
            *out_end = inode.size_bytes;
        }
        return rc;
    }
    if ((flags & STORE_WRITE_APPEND) == 0 && (offset > CONTENT_MAX_BYTES || size > CONTENT_MAX_BYTES - offset)) {
        return -EFBIG;
    }
    const struct content_change change = {.file = file,
                                          .type = OP_WRITE,
                                          .offset = offset,
                                          .bytes = bytes,
                                          .size = size,
                                          .flags = flags,
                                          .out_end = out_end};
    return change_run(&change);
}

int store_file_resize(struct store_file *file, uint64_t size_bytes, unsigned flags)
{
    if (size_bytes > CONTENT_MAX_BYTES) {
        return -EFBIG;
    }
    const struct content_change change = {.file = file, .type = OP_RESIZE, .size = size_bytes, .flags = flags};
    return change_run(&change);
}

int store_allocate(struct store_file *file, uint64_t offset, uint64_t size, unsigned mode)
{
    const bool keep_size = (mode & STORE_ALLOCATE_KEEP_SIZE) != 0;
    if (size == 0 || ((mode & STORE_ALLOCATE_PUNCH) != 0 && !keep_size)) {
        return size == 0 ? -EINVAL : -EOPNOTSUPP;
    }
    if (offset > CONTENT_MAX_BYTES || size > CONTENT_MAX_BYTES - offset) {
        return -EFBIG;
    }
    int rc = store_check_takes_changes(file->store);
    if (rc == 0 && (mode & (STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_ZERO)) != 0) {
        const struct content_change change = {.file = file, .type = OP_PUNCH, .offset = offset, .size = size};
        rc = change_run(&change);
    }
    if (rc != 0 || keep_size) {
        return rc;
    }
    const struct content_change change = {
        .file = file, .type = OP_RESIZE, .size = offset + size, .flags = CHANGE_NEVER_CUTS};
    return change_run(&change);
}

/* ---- reading ---- */

int store_file_read_enter(struct store_file *file, uint32_t pins, struct frame_budget *out_budget,
                          struct inode *out_inode)
{
    int rc = frame_budget_take(file->store->cache, pins, 0, out_budget);
    if (rc != 0) {
        return rc;
    }
    rwlock_lock_shared(&file->lock);
    rc = get_inode(file, out_inode);
    while (rc == 0 && !has_relation_of(file, out_inode)) {
        rwlock_unlock_shared(&file->lock);
        rc = adopt_relation(file);
        rwlock_lock_shared(&file->lock);
        rc = rc == 0 ? get_inode(file, out_inode) : rc;
    }
    if (rc != 0) {
        rwlock_unlock_shared(&file->lock);
        frame_budget_release(out_budget);
    }
    return rc;
}

void store_file_read_leave(struct store_file *file, struct frame_budget *budget)
{
    rwlock_unlock_shared(&file->lock);
    frame_budget_release(budget);
}

int store_file_get_inode(struct store_file *file, struct inode *out_inode)
{
    struct frame_budget budget;
    const int rc = store_file_read_enter(file, STORE_READ_PINS, &budget, out_inode);
    if (rc == 0) {
        store_file_read_leave(file, &budget);
    }
    return rc;
}

int store_read(struct store_file *file, uint64_t offset, void *bytes, size_t size, size_t *out_read)
{
    struct frame_budget budget;
    struct inode inode;
    int rc = store_file_read_enter(file, STORE_READ_PINS, &budget, &inode);
    if (rc == 0) {
        const struct content_root root = store_content_root(&inode);
        rc = content_read(file->relation, &root, offset, bytes, size, out_read);
        store_file_read_leave(file, &budget);
    }
    return rc;
}

int store_read_pieces(struct store_file *file, uint64_t offset, size_t size, struct content_pieces *out_pieces,
                      struct frame_budget *out_budget)
{
    struct inode inode;
    const uint32_t pins = (uint32_t)(size / PAGE_PAYLOAD_SIZE) + 2 + STORE_READ_PINS;
    if (pins > frame_budget_max(file->store->cache)) {
        return -E2BIG;
    }
    int rc = store_file_read_enter(file, pins, out_budget, &inode);
    if (rc == 0) {
        const struct content_root root = store_content_root(&inode);
        rc = content_read_pieces(file->relation, &root, offset, size, out_pieces);
        rwlock_unlock_shared(&file->lock);
        if (rc != 0) {
            frame_budget_release(out_budget);
        }
    }
    return rc;
}

int store_seek(struct store_file *file, uint64_t offset, bool hole, uint64_t *out_offset)
{
    struct frame_budget budget;
    struct inode inode;
    int rc = store_file_read_enter(file, STORE_READ_PINS, &budget, &inode);
    if (rc == 0) {
        const struct content_root root = store_content_root(&inode);
        rc = content_seek(file->relation, &root, offset, hole, out_offset);
        store_file_read_leave(file, &budget);
    }
    return rc;
}

/* ---- replay ---- */

static struct content_change change_of_record(struct store_file *file, const struct op_record *record)
{
    return (struct content_change){
        .file = file,
        .type = record->type,
        .offset = record->offset_bytes,
        .bytes = record->data.data,
        .size = record->type == OP_WRITE ? record->data.size : record->size_bytes,
        .flags = (record->flags & OP_KILL_SUID) != 0 ? STORE_WRITE_KILL_SUID : 0,
        .replay = record,
    };
}

/* In a merge the rows may go to another relation than the one that the transaction made, and what was compacted since the checkpoint has its
 * old relation again: PAGES-6. */
static bool is_of_another_relation(const struct store_file *file, const struct op_record *record)
{
    return file->relation != NULL && relation_number(file->relation) != record->rel &&
           !PLANT(PAGES_TAKEN_FROM_ANOTHER_RELATION);
}

/* PAGES-5: one page's bytes are written anew, and its block, which was counted as used, leaves. */
static int replay_page_by_value(struct store_file *file, const struct op_record *record, struct page_ptr leaf,
                                uint64_t offset)
{
    struct store *store = file->store;
    struct relation *relation = NULL;
    struct frame_budget budget;
    uint8_t bytes[PAGE_PAYLOAD_SIZE];
    const struct content_root root = {.ptr = leaf, .bytes = sizeof bytes, .height = 1};
    struct retire_list block = {0};
    size_t got = 0;
    ts_no ts = TS_DEFAULT;
    int rc = store_tablespace_of_file(store, record->rel, &ts);
    if (rc == 0) {
        rc = relation_open(store->cache, ts, record->rel, &relation);
    }
    if (rc == 0) {
        rc = frame_budget_take(store->cache, STORE_READ_PINS, 0, &budget);
    }
    if (rc == 0) {
        rc = content_read(relation, &root, 0, bytes, sizeof bytes, &got);
        frame_budget_release(&budget);
    }
    if (rc == 0) {
        struct content_change change = change_of_record(file, record);
        change.type = OP_WRITE;
        change.offset = offset;
        change.bytes = bytes;
        change.size = sizeof bytes;
        rc = change_run(&change);
    }
    const bool frees = rc == 0 && !is_of_another_relation(file, record);
    if (frees) {
        rc = retire_list_reserve(&block, relation, 1);
    }
    if (rc == 0 && frees) {
        retire_list_add(&block, leaf);
        cow_gate_enter(store->cow);
        view_retire(file->view, &block);
        cow_gate_leave(store->cow);
    }
    relation_unref(relation);
    return rc;
}

static int replay_pages(struct store_file *file, const struct op_record *record, const struct content_change *pages)
{
    const struct content_leaf *leaves = (const struct content_leaf *)pages->bytes;
    int rc = 0;
    if (!file->store->recovery_by_value && !is_of_another_relation(file, record)) {
        return change_run(pages);
    }
    for (uint64_t i = 0; i < pages->size && rc == 0; i++) {
        rc = replay_page_by_value(file, record, leaves[i].ptr, pages->offset + i * PAGE_PAYLOAD_SIZE);
    }
    return rc;
}

/* The three pieces of a write by reference, each at the end that the one before left. */
static int replay_write_pages(struct store_file *file, const struct op_record *record)
{
    const size_t count = record->pages.size / sizeof(struct disk_page_ptr);
    const struct disk_page_ptr *disk = record->pages.data;
    if (record->head_bytes > record->data.size || count == 0 || count > UINT32_MAX) {
        return -EBADMSG;
    }
    struct content_leaf *leaves = calloc(count, sizeof leaves[0]);
    if (leaves == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        leaves[i] = (struct content_leaf){.ptr = disk_page_ptr_get(&disk[i]), .bytes = PAGE_PAYLOAD_SIZE};
    }
    struct content_change pages = change_of_record(file, record);
    struct content_change head = pages;
    head.type = OP_WRITE;
    head.size = record->head_bytes;
    struct content_change tail = head;
    pages.offset += head.size;
    pages.bytes = leaves;
    pages.size = count;
    tail.offset = pages.offset + count * PAGE_PAYLOAD_SIZE;
    tail.bytes = (const uint8_t *)record->data.data + head.size;
    tail.size = record->data.size - head.size;
    int rc = head.size > 0 ? change_run(&head) : 0;
    if (rc == 0) {
        rc = replay_pages(file, record, &pages);
    }
    if (rc == 0 && tail.size > 0) {
        rc = change_run(&tail);
    }
    free(leaves);
    return rc;
}

static int plan_mark_damaged(struct op_run *run, void *arg)
{
    const ino_no ino = *(const ino_no *)arg;
    struct inode inode;
    int rc = inode_batch_get(&run->batch, ino, &inode);
    if (rc != 0) {
        return rc;
    }
    if (inode.content_height == 0) {
        return -EIO; /* no page of this table can be the cause */
    }
    inode.flags |= INODE_DAMAGED;
    return inode_batch_put(&run->batch, &inode);
}

/* A page of the table could not be read. Its other operations are skipped, and the rest of the store is replayed; when the
 * cause lies elsewhere (the catalog, a write), this fails as well. */
static int replay_mark_damaged(struct store *store, struct view *view, ino_no ino)
{
    int rc = bufcache_failed(store->cache);
    if (rc == 0) {
        rc = store_op_run(store, view, OP_SETATTR, plan_mark_damaged, &ino);
    }
    if (rc == 0) {
        diag_log(
            store->diag, DIAG_ERROR,
            "%s: the table with inode %llu is damaged: what the log says of it is skipped, and it answers EIO until "
            "it is removed",
            store->dir, (unsigned long long)ino);
    }
    return rc != 0 ? -EIO : 1;
}

static int replay_opened(struct store_file *file, const struct op_record *record)
{
    struct inode inode;
    const int rc = store_file_get_inode(file, &inode);
    if (rc != 0) {
        return rc;
    }
    struct op_record op = *record;
    if (inode.size_bytes != op.size_before_bytes) {
        if (file->view->owner == NULL || !op_is_append(record)) {
            return -EBADMSG;
        }
        op.offset_bytes = inode.size_bytes; /* of a transaction: its rows follow those of others */
        op.size_before_bytes = inode.size_bytes;
    }
    if (op.type == OP_WRITE_PAGES) {
        return replay_write_pages(file, &op);
    }
    const struct content_change change = change_of_record(file, &op);
    return change_run(&change);
}

static int is_marked_damaged(struct store *store, struct view *view, ino_no ino, bool *out_damaged)
{
    struct frame_budget budget;
    struct inode inode;
    int rc = store_read_enter(store, view, &budget);
    if (rc == 0) {
        rc = inode_get(view, ino, &inode);
        store_read_leave(view, &budget);
    }
    if (rc == 0) {
        *out_damaged = (inode.flags & INODE_DAMAGED) != 0;
    }
    return rc;
}

int store_content_replay(struct store *store, struct view *view, const struct op_record *record)
{
    struct store_file *file = NULL;
    bool damaged = false;
    int rc = is_marked_damaged(store, view, record->ino, &damaged);
    if (rc != 0 || damaged) {
        return rc != 0 ? rc : 1;
    }
    rc = store_file_open(store, view, record->ino, &file);
    if (rc == 0) {
        rc = replay_opened(file, record);
        store_file_close(file);
    }
    if (rc == -EIO && store->replay_is_whole) {
        return rc;
    }
    return rc == -EIO ? replay_mark_damaged(store, view, record->ino) : rc;
}
