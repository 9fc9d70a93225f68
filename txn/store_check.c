/*
 * txn/store_check.c - checks everything that the live view and the holders reach.
 *
 * CHECK-1 Every catalog tree is sound (CATALOG-1, CATALOG-2), every content tree too (CONTENT-1).
 * CHECK-2 Names and inodes of the live view agree: NAMES-1, NAMES-2, and orphans are listed exactly once.
 * CHECK-3 Every free map equals the one that FSM-3 would build: no block is used and free, none is lost.
 * CHECK-4 Every sidecar that the next write to its table would believe says the same.
 *
 * The gate is closed meanwhile, so nothing changes. One diag line for each finding; the check goes on to the next
 * object.
 */
#include "txn/store_map.h"
#include "txn/store_sidecar.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What is known of one inode of the live view. */
struct inode_seen {
    struct inode inode;
    uint64_t names, entries, subdirs, backs;
    bool first_name, orphan;
    unsigned owners; /* items that say that it has its relation */
};

/* One version of one table's content. */
struct content_seen {
    ino_no ino;
    rel_no rel;
    ts_no ts;
    bool live, damaged;
    struct content_root root;
};

struct check {
    struct store *store;
    struct diag *diag;   /* a line for each finding */
    struct view *forked; /* online: the one version that is looked at; NULL: all of them, and the maps */
    uint64_t findings;
    struct inode_seen *inodes; /* ascending by number */
    size_t inode_count, inode_capacity;
    struct content_seen *contents;
    size_t content_count, content_capacity;
    struct block_set catalog_set;
    bool live;
};

static void finding(struct check *check, ino_no ino, const char *what, uint64_t got, uint64_t want)
{
    check->findings++;
    diag_log(check->diag, DIAG_ERROR, "check: inode %llu: %s: got %llu, want %llu", (unsigned long long)ino, what,
             (unsigned long long)got, (unsigned long long)want);
}

static void expect(struct check *check, ino_no ino, const char *what, uint64_t got, uint64_t want)
{
    if (got != want) {
        finding(check, ino, what, got, want);
    }
}

static int compare_inode(const void *a, const void *b)
{
    const ino_no x = ((const struct inode_seen *)a)->inode.ino;
    const ino_no y = ((const struct inode_seen *)b)->inode.ino;
    return x < y ? -1 : x > y;
}

static struct inode_seen *find_inode(struct check *check, ino_no ino)
{
    const struct inode_seen key = {.inode = {.ino = ino}};
    return check->inode_count == 0 ? NULL : bsearch(&key, check->inodes, check->inode_count, sizeof key, compare_inode);
}

/* ---- first pass: inodes of every version ---- */

static int note_inode(struct check *check, const struct inode *inode)
{
    if (check->live) {
        struct inode_seen *inodes =
            array_with_room(check->inodes, check->inode_count, &check->inode_capacity, sizeof inodes[0]);
        if (inodes == NULL) {
            return -ENOMEM;
        }
        check->inodes = inodes;
        check->inodes[check->inode_count++] = (struct inode_seen){.inode = *inode};
    }
    if (!S_ISREG(inode->mode) || inode->rel == REL_NONE) {
        return 0;
    }
    struct content_seen *contents =
        array_with_room(check->contents, check->content_count, &check->content_capacity, sizeof contents[0]);
    if (contents == NULL) {
        return -ENOMEM;
    }
    check->contents = contents;
    check->contents[check->content_count++] = (struct content_seen){.ino = inode->ino,
                                                                    .rel = inode->rel,
                                                                    .ts = inode->ts,
                                                                    .live = check->live,
                                                                    .damaged = (inode->flags & INODE_DAMAGED) != 0,
                                                                    .root = store_content_root(inode)};
    return 0;
}

static int first_pass_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct inode inode;
    if (key->type != ITEM_INODE) {
        return 0;
    }
    const int rc = inode_decode(key, value, value_size, &inode);
    return rc != 0 ? rc : note_inode(arg, &inode);
}

static int scan_all(struct view *view, catalog_item_fn *fn, void *arg)
{
    const struct catalog_key first = {.ino = 0, .type = 0, .sub = 0};
    const struct catalog_key last = {.ino = UINT64_MAX, .type = UINT8_MAX, .sub = UINT64_MAX};
    rwlock_lock_shared(&view->catalog_lock);
    const int rc = catalog_scan(view, &first, &last, fn, arg);
    rwlock_unlock_shared(&view->catalog_lock);
    return rc;
}

static int check_version(void *arg, struct view *view)
{
    struct check *check = arg;
    check->live = view->kind == VIEW_LIVE || view == check->forked;
    int rc = catalog_check(check->diag, check->store->catalog, &view->root, NULL);
    if (rc == 0) {
        rc = block_set_add_catalog(&check->catalog_set, check->diag, &view->root);
    }
    return rc != 0 ? rc : scan_all(view, first_pass_item, check);
}

/* ---- second pass: names of the live view ---- */

static void note_entry(struct check *check, const struct catalog_key *key, const struct disk_dirent *entry)
{
    struct inode_seen *dir = find_inode(check, key->ino);
    struct inode_seen *child = find_inode(check, le64_get(entry->ino));
    if (dir == NULL || !S_ISDIR(dir->inode.mode)) {
        finding(check, key->ino, "has entries but is no directory", 0, 0);
        return;
    }
    dir->entries++;
    if (child == NULL) {
        finding(check, key->ino, "an entry leads to a missing inode", le64_get(entry->ino), 0);
        return;
    }
    child->names++;
    dir->subdirs += S_ISDIR(child->inode.mode);
    child->first_name |= child->inode.parent == key->ino && child->inode.name_cookie == key->sub;
    expect(check, child->inode.ino, "kind in its directory entry", entry->kind, (child->inode.mode & S_IFMT) >> 12);
}

/* OWNER-1 */
static void check_owner(struct check *check, rel_no rel, const void *value)
{
    struct disk_owner disk;
    memcpy(&disk, value, sizeof disk);
    struct inode_seen *seen = find_inode(check, le64_get(disk.owner));
    if (seen == NULL || seen->inode.rel != rel) {
        finding(check, le64_get(disk.owner), "owner of a relation that is not its own", rel, 0);
    } else {
        seen->owners++;
    }
}

static int second_pass_item(void *arg, const struct catalog_key *key, const void *value, size_t value_size)
{
    struct check *check = arg;
    (void)value_size;
    struct inode_seen *seen;
    switch (key->type) {
    case ITEM_DIRENT:
        note_entry(check, key, value);
        break;
    case ITEM_BACK:
        seen = find_inode(check, key->ino);
        if (seen == NULL) {
            finding(check, key->ino, "back entry of a missing inode", 0, 0);
        } else {
            seen->backs++;
        }
        break;
    case ITEM_OWNER:
        check_owner(check, key->sub, value);
        break;
    case ITEM_ORPHAN:
        seen = find_inode(check, key->sub);
        if (seen == NULL) {
            finding(check, key->sub, "orphan entry of a missing inode", 0, 0);
        } else {
            seen->orphan = true;
        }
        break;
    default:
        break;
    }
    return 0;
}

static void check_inode(struct check *check, const struct inode_seen *seen)
{
    const struct inode *inode = &seen->inode;
    expect(check, inode->ino, "owner items", (inode->flags & INODE_RENUMBERED) != 0, seen->owners);
    const bool is_dir = S_ISDIR(inode->mode);
    if (is_dir) {
        expect(check, inode->ino, "entries of the directory", inode->size_bytes, seen->entries);
        expect(check, inode->ino, "nlink of the directory", inode->nlink, 2 + seen->subdirs);
        expect(check, inode->ino, "names of the directory", seen->names, inode->ino == INO_ROOT ? 0 : 1);
    } else {
        expect(check, inode->ino, "nlink", inode->nlink, seen->names);
    }
    expect(check, inode->ino, "listed as an orphan", seen->orphan, !is_dir && inode->nlink == 0);
    if (inode->ino != INO_ROOT && seen->names > 0) {
        expect(check, inode->ino, "its first name is there", seen->first_name, 1);
        expect(check, inode->ino, "back entries", seen->backs, seen->names - 1);
    }
}

/* ---- third pass: contents and maps ---- */

static int compare_number(uint64_t x, uint64_t y)
{
    return x < y ? -1 : x > y;
}

static int compare_root(const struct content_root *x, const struct content_root *y)
{
    const int by_block = compare_number(x->ptr.block, y->ptr.block);
    if (by_block != 0) {
        return by_block;
    }
    const int by_birth = compare_number(x->ptr.birth, y->ptr.birth);
    if (by_birth != 0) {
        return by_birth;
    }
    const int by_bytes = compare_number(x->bytes, y->bytes);
    return by_bytes != 0 ? by_bytes : compare_number(x->leaves, y->leaves);
}

static int compare_content(const void *a, const void *b)
{
    const struct content_seen *x = a;
    const struct content_seen *y = b;
    if (x->rel != y->rel) {
        return x->rel < y->rel ? -1 : 1;
    }
    return compare_root(&x->root, &y->root);
}

/* A map that is not ready may take a block for used that is not (FSM-4). */
static void check_map(struct check *check, const struct block_set *set)
{
    const bool ready = fsm_is_ready(set->relation);
    for (block_no block = 0; block < set->blocks; block++) {
        const bool used = fsm_is_used(set->relation, block);
        if (block_set_has(set, block) ? !used : ready && used) {
            check->findings++;
            diag_log(check->diag, DIAG_ERROR, "check: relation %llu: block %u is %s, its map says %s",
                     (unsigned long long)relation_number(set->relation), block,
                     block_set_has(set, block) ? "in use" : "not in use",
                     fsm_is_used(set->relation, block) ? "used" : "free");
        }
    }
}

static bool sidecar_has(const struct fsm_sidecar *sidecar, block_no block)
{
    return (sidecar->words[block / 64] >> (block % 64) & 1) != 0;
}

/* CHECK-4. One that is not believed does no harm. */
static void check_sidecar(struct check *check, const struct block_set *set, const struct content_root *root)
{
    struct fsm_sidecar sidecar;
    const char *why = NULL;
    const char *path = relation_file_path(set->relation);
    if (relation_map(set->relation) != NULL) {
        return; /* whoever made the map has used it up */
    }
    const int rc = store_sidecar_peek(check->store, set->relation, root, &sidecar, &why);
    if (rc != 0) {
        if (rc != -ENOENT) {
            diag_log(check->diag, DIAG_WARNING, "%s" FSM_SIDECAR_SUFFIX ": not believed, does no harm: %s", path,
                     why != NULL ? why : strerror(-rc));
        }
        return;
    }
    for (block_no block = 0; block < set->blocks; block++) {
        if (block_set_has(set, block) != sidecar_has(&sidecar, block)) {
            check->findings++;
            diag_log(check->diag, DIAG_ERROR, "check: %s" FSM_SIDECAR_SUFFIX ": block %u is %s, the sidecar says %s",
                     path, block, block_set_has(set, block) ? "in use" : "not in use",
                     sidecar_has(&sidecar, block) ? "used" : "free");
        }
    }
    fsm_sidecar_free(&sidecar);
}

static bool any_damaged(const struct content_seen *contents, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (contents[i].damaged) {
            return true;
        }
    }
    return false;
}

/* All versions of one relation's content: [first, first + count). The map of a relation that the live view has dropped
 * is not looked at: what only the live view used goes with the whole file. */
static int check_relation(struct check *check, const struct content_seen *first, size_t count)
{
    struct store *store = check->store;
    struct relation *relation = NULL;
    struct block_set set = {0};
    if (any_damaged(first, count)) {
        finding(check, first->ino, "marked damaged when the log was replayed", 1, 0);
        return 0;
    }
    int rc = relation_open(store->cache, first->ts, first->rel, &relation);
    if (rc != 0) {
        return rc;
    }
    rc = block_set_init(&set, relation);
    const struct content_seen *live = NULL;
    for (size_t i = 0; i < count && rc == 0; i++) {
        live = first[i].live ? &first[i] : live;
        if (i > 0 && compare_content(&first[i - 1], &first[i]) == 0) {
            continue;
        }
        rc = content_check(check->diag, relation, &first[i].root);
        if (rc == 0) {
            rc = block_set_add_content(&set, check->diag, &first[i].root);
        }
    }
    if (rc == 0 && check->forked == NULL) {
        rc = block_set_add_pinned(&set, store->cow);
    }
    if (rc == 0 && check->forked == NULL && live != NULL) {
        check_map(check, &set);
        check_sidecar(check, &set, &live->root);
    }
    block_set_free(&set);
    relation_unref(relation);
    if (rc == -EIO) { /* reported where it was found; the other tables are looked at all the same */
        check->findings++;
        if (check->forked != NULL) /* the page itself was reported elsewhere */
            diag_log(check->diag, DIAG_ERROR, "check: inode %llu: its content (relation %llu) cannot be read",
                     (unsigned long long)first->ino, (unsigned long long)first->rel);
        rc = 0;
    }
    return rc;
}

static uint64_t bytes_of(const struct content_seen *contents, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += contents[i].root.bytes;
    }
    return bytes;
}

void store_check_progress(struct store *store, uint64_t *out_done_bytes, uint64_t *out_total_bytes)
{
    *out_done_bytes = atomic_load(&store->check_done_bytes);
    *out_total_bytes = atomic_load(&store->check_total_bytes);
}

/* In one version a relation has one inode. */
static void check_shared(struct check *check, const struct content_seen *contents, size_t count)
{
    ino_no live = INO_NONE;
    for (size_t i = 0; i < count; i++) {
        if (contents[i].live && live != INO_NONE && contents[i].ino != live) {
            finding(check, contents[i].ino, "shares its relation with inode", live, 0);
        }
        live = contents[i].live ? contents[i].ino : live;
    }
}

static int check_contents(struct check *check)
{
    int rc = 0;
    atomic_store(&check->store->check_total_bytes, bytes_of(check->contents, check->content_count));
    if (check->content_count > 0) {
        qsort(check->contents, check->content_count, sizeof check->contents[0], compare_content);
    }
    for (size_t i = 0; i < check->content_count && rc == 0;) {
        size_t end = i;
        while (end < check->content_count && check->contents[end].rel == check->contents[i].rel) {
            end++;
        }
        check_shared(check, &check->contents[i], end - i);
        rc = check_relation(check, &check->contents[i], end - i);
        atomic_fetch_add(&check->store->check_done_bytes, bytes_of(&check->contents[i], end - i));
        i = end;
    }
    return rc;
}

static int check_names(struct check *check, struct view *view)
{
    const int rc = scan_all(view, second_pass_item, check);
    for (size_t i = 0; i < check->inode_count && rc == 0; i++) {
        check_inode(check, &check->inodes[i]);
    }
    return rc;
}

static void check_free(struct check *check)
{
    block_set_free(&check->catalog_set);
    free(check->inodes);
    free(check->contents);
}

static int check_all(struct check *check)
{
    struct store *store = check->store;
    int rc = block_set_init(&check->catalog_set, store->catalog);
    if (rc == 0) {
        rc = store_each_version(store, check_version, check);
    }
    if (rc == 0) {
        rc = check_names(check, store_live(store));
    }
    if (rc != 0) {
        return rc;
    }
    expect(check, INO_NONE, "inodes counted", atomic_load(&store->inode_count), check->inode_count);
    rc = block_set_add_pinned(&check->catalog_set, store->cow);
    if (rc == 0) {
        check_map(check, &check->catalog_set);
        rc = check_contents(check);
    }
    if (rc == 0 && cow_check(store->cow) != 0) {
        check->findings++;
    }
    return rc;
}

int store_check(struct store *store)
{
    struct check check = {.store = store, .diag = store->diag};
    struct frame_budget budget;
    int rc = frame_budget_take(store->cache, 2 * STORE_READ_PINS, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    mutex_lock(&store->checkpoint_lock);
    atomic_store(&store->check_total_bytes, 0);
    atomic_store(&store->check_done_bytes, 0);
    cow_gate_close(store->cow);
    rc = check_all(&check);
    cow_gate_open(store->cow);
    mutex_unlock(&store->checkpoint_lock);
    frame_budget_release(&budget);
    check_free(&check);
    return rc == 0 && check.findings > 0 ? -EIO : rc;
}

static int check_forked(struct check *check)
{
    int rc = block_set_init(&check->catalog_set, check->store->catalog);
    if (rc == 0) {
        rc = check_version(check, check->forked);
    }
    if (rc == 0) {
        rc = check_names(check, check->forked);
    }
    return rc != 0 ? rc : check_contents(check);
}

int store_check_online(struct store *store, struct diag *diag)
{
    struct check check = {.store = store, .diag = diag};
    struct holder *holder = NULL;
    struct frame_budget budget;
    int rc = frame_budget_take(store->cache, 2 * STORE_READ_PINS, 0, &budget);
    if (rc != 0) {
        return rc;
    }
    rc = cow_fork(store->cow, HOLDER_BACKUP, &holder);
    if (rc == 0) {
        rc = view_open_read_only(store->cow, holder, &check.forked);
    }
    if (rc == 0) {
        rc = check_forked(&check);
        view_close(check.forked);
    }
    if (holder != NULL) {
        cow_holder_close(store->cow, holder);
    }
    frame_budget_release(&budget);
    check_free(&check);
    return rc == 0 && check.findings > 0 ? -EIO : rc;
}
