/*
 * txn/store_pages.c - log records that refer to pages instead of carrying their bytes (COW-4).
 *
 * PAGES-1 Such a page is written to its file before its record is appended, and its relation synced before the log is synced past it.
 * PAGES-2 Until a checkpoint that forked after the record is durable, the relation remembers that it is referred to (and stays in memory for
 *         that): blocks that leave its tree are pinned, its file is not removed.
 * PAGES-3 Recovery reads every page that a record refers to before it replays anything; a record whose pages are not what it says is a bad
 *         record. Their blocks count as used from the start, so nothing is allocated over them.
 * PAGES-4 What recovery reads may be in the system's page cache only, written by a life that was killed: the relation, its name too,
 *         is synced with recovery's checkpoint, also when nothing else of it is written.
 * PAGES-5 A sync that failed may have left pages in the system's page cache that look written and never will be. So what a record
 *         refers to stays where it is only when a later batch vouches for the record (then its pages were synced before the log was);
 *         else replay copies it.
 * PAGES-6 A transaction's records count when it is closed: recovery reads the pages that they refer to when it finds the commit record, which is
 *         the bad one if they are not there. Pages of a relation that replay does not write to (rows merged into another one) are copied.
 *
 * Locking: referenced_lock guards the list; relations are synced without it.
 */
#include "txn/store_map.h"

#include "base/array.h"
#include "base/plant.h"

#include <errno.h>
#include <stdlib.h>

#define READ_BATCH 64u

int store_note_referenced(struct store *store, struct relation *relation)
{
    const epoch_no epoch = cow_epoch(store->cow);
    int rc = 0;
    mutex_lock(&store->referenced_lock);
    size_t i = store->referenced_count;
    while (i > 0 && store->referenced[i - 1].relation != relation) {
        i--;
    }
    struct referenced *list =
        array_with_room(store->referenced, store->referenced_count, &store->referenced_capacity, sizeof list[0]);
    rc = list != NULL ? 0 : -ENOMEM;
    store->referenced = list != NULL ? list : store->referenced;
    if (rc == 0 && i == 0) {
        relation_ref(relation);
        store->referenced[store->referenced_count++] = (struct referenced){.relation = relation};
        i = store->referenced_count;
    }
    if (rc == 0) {
        store->referenced[i - 1].epoch = epoch;
        store->referenced[i - 1].needs_sync = true;
        relation_set_referenced(relation, epoch);
    }
    mutex_unlock(&store->referenced_lock);
    return rc;
}

/* The next relation to be synced, with a reference; NULL: none. */
static struct relation *take_unsynced(struct store *store)
{
    struct relation *relation = NULL;
    mutex_lock(&store->referenced_lock);
    for (size_t i = 0; i < store->referenced_count && relation == NULL; i++) {
        if (store->referenced[i].needs_sync) {
            store->referenced[i].needs_sync = false;
            relation = store->referenced[i].relation;
            relation_ref(relation);
        }
    }
    mutex_unlock(&store->referenced_lock);
    return relation;
}

int store_sync_referenced(void *store_void)
{
    struct store *store = store_void;
    int rc = 0;
    for (;;) {
        struct relation *relation = take_unsynced(store);
        if (relation == NULL || rc != 0) {
            relation_unref(relation);
            return rc;
        }
        rc = PLANT(REFERRED_PAGES_NOT_SYNCED) ? 0 : relation_sync(relation);
        relation_unref(relation);
    }
}

/* Takes one relation off the list, with the list's reference; NULL: none is left to be forgotten. *inout_next: where to
 * look first. */
static struct relation *take_forgotten(struct store *store, epoch_no at, unsigned *inout_next)
{
    struct relation *relation = NULL;
    mutex_lock(&store->referenced_lock);
    while (*inout_next < store->referenced_count && store->referenced[*inout_next].epoch > at) {
        ++*inout_next;
    }
    if (*inout_next < store->referenced_count) {
        relation = store->referenced[*inout_next].relation;
        store->referenced[*inout_next] = store->referenced[--store->referenced_count];
    }
    mutex_unlock(&store->referenced_lock);
    return relation;
}

void store_forget_referenced(struct store *store, epoch_no at)
{
    unsigned next = 0;
    struct relation *relation;
    while ((relation = take_forgotten(store, at, &next)) != NULL) {
        relation_unref(relation); /* may be the last one: not under a leaf lock */
    }
}

/* ---- recovery ---- */

struct recovery_run {
    rel_no rel;
    block_no first;
    uint32_t count;
};

struct recovery_pages {
    struct recovery_run *runs;
    size_t count, capacity;
};

static int add_block(struct recovery_pages *pages, rel_no rel, block_no block)
{
    if (pages->count > 0) {
        struct recovery_run *last = &pages->runs[pages->count - 1];
        if (last->rel == rel && last->first + last->count == block) {
            last->count++;
            return 0;
        }
    }
    struct recovery_run *runs = array_with_room(pages->runs, pages->count, &pages->capacity, sizeof runs[0]);
    if (runs == NULL) {
        return -ENOMEM;
    }
    pages->runs = runs;
    pages->runs[pages->count++] = (struct recovery_run){.rel = rel, .first = block, .count = 1};
    return 0;
}

static int read_pages(struct relation *relation, const struct page_ptr *ptrs, unsigned count)
{
    struct frame *frames[READ_BATCH];
    const int rc = page_read_many(relation, ptrs, count, PAGE_TYPE_CONTENT_LEAF, 0, frames);
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        page_unpin(frames[i]);
    }
    return rc;
}

static int note_pages_of(struct store *store, struct relation *relation, const struct op_record *op)
{
    const struct disk_page_ptr *disk = op->pages.data;
    const size_t count = op->pages.size / sizeof *disk;
    bool exists = false;
    block_no blocks = 0;
    int rc = relation_file_exists(relation, &exists);
    if (rc == 0 && exists) {
        rc = relation_file_blocks(relation, &blocks);
    }
    for (size_t done = 0; done < count && rc == 0;) {
        struct page_ptr ptrs[READ_BATCH];
        unsigned n = 0;
        while (n < READ_BATCH && done < count && rc == 0) {
            ptrs[n] = disk_page_ptr_get(&disk[done++]);
            rc = ptrs[n].block < blocks ? add_block(store->recovery_pages, op->rel, ptrs[n].block) : -EBADMSG;
            n++;
        }
        if (rc == 0) {
            rc = read_pages(relation, ptrs, n);
        }
    }
    return rc == -EIO ? -EBADMSG : rc;
}

/* Takes back what a bad record added: its blocks are not used, and what was read of them is not wanted. */
static void forget_blocks(struct recovery_pages *pages, struct relation *relation, size_t count_before,
                          uint32_t last_before)
{
    for (size_t i = count_before > 0 ? count_before - 1 : 0; i < pages->count; i++) {
        struct recovery_run *run = &pages->runs[i];
        const uint32_t keep = i + 1 == count_before ? last_before : 0;
        for (uint32_t j = keep; j < run->count; j++) {
            page_discard(relation, run->first + j);
        }
        run->count = keep;
    }
    pages->count = count_before;
}

int store_recovery_note_pages(struct store *store, const struct op_record *op)
{
    struct relation *relation = NULL;
    struct frame_budget budget;
    if (op->pages.size % sizeof(struct disk_page_ptr) != 0) {
        return -EBADMSG;
    }
    if (store->recovery_pages == NULL) {
        store->recovery_pages = calloc(1, sizeof *store->recovery_pages);
        if (store->recovery_pages == NULL) {
            return -ENOMEM;
        }
    }
    int rc = frame_budget_take(store->cache, READ_BATCH, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    struct recovery_pages *pages = store->recovery_pages;
    const size_t count_before = pages->count;
    const uint32_t last_before = count_before > 0 ? pages->runs[count_before - 1].count : 0;
    ts_no ts = TS_DEFAULT;
    rc = store_tablespace_of_file(store, op->rel, &ts);
    if (rc == 0) {
        rc = relation_open(store->cache, ts, op->rel, &relation);
    }
    if (rc == 0) {
        relation_set_quiet(relation, true); /* pages that are not there end the log; they are no damage by themselves */
        rc = note_pages_of(store, relation, op);
        relation_set_quiet(relation, false);
        if (rc == 0) {
            rc = relation_create_file(relation); /* PAGES-4: it is there; from here on it counts as written to */
        }
        if (rc != 0) {
            forget_blocks(pages, relation, count_before, last_before);
        }
        relation_unref(relation);
    }
    frame_budget_release(&budget);
    return rc;
}

void store_recovery_forget_pages(struct store *store)
{
    if (store->recovery_pages != NULL) {
        free(store->recovery_pages->runs);
        free(store->recovery_pages);
        store->recovery_pages = NULL;
    }
}

int store_recovery_add_pages(struct store *store, struct block_set *set, bool *out_any)
{
    const struct recovery_pages *pages = store->recovery_pages;
    const rel_no rel = relation_number(set->relation);
    *out_any = false;
    for (size_t i = 0; pages != NULL && i < pages->count; i++) {
        if (pages->runs[i].rel != rel) {
            continue;
        }
        *out_any = true;
        const int rc = block_set_add_run(set, pages->runs[i].first, pages->runs[i].count);
        if (rc != 0) {
            return rc;
        }
    }
    return *out_any ? store_note_referenced(store, set->relation) : 0;
}
