/*
 * table/catalog.c - reading the catalog tree: get, scan, visit, check.
 *
 * A get pins two pages at a time (hand over hand), a scan, a visit or a check one page for each level: at most
 * CATALOG_READER_PINS. The range of keys that a page may hold is checked at each step down, so that a page that is
 * valid by itself but stands in the wrong place is found as damage.
 *
 * Locking: see table/catalog.h. visit and check are given a root and take no lock: the caller keeps that tree from
 * being changed (it is a holder's, or the catalog lock is held).
 */
#include "table/catalog_int.h"
#include "table/cow_int.h"

#include <errno.h>

struct diag *catalog_view_diag(const struct view *view)
{
    return view->cow->diag;
}

/* Pins the leaf that covers the key. */
static int find_leaf(struct view *view, const struct catalog_key *key, struct frame **out_leaf)
{
    struct catalog_range range = {0};
    struct page_ptr ptr = view->root.ptr;
    struct frame *parent = NULL;
    for (uint8_t level = view->root.height; level-- > 0;) {
        struct frame *frame = NULL;
        const int rc = catalog_page_read(catalog_view_diag(view), view->catalog, ptr, level, &range, &frame);
        if (parent != NULL) {
            page_unpin(parent);
        }
        if (rc != 0) {
            return rc;
        }
        parent = frame;
        if (level > 0) {
            const void *page = frame_page(frame);
            const unsigned index = catalog_inner_find(page, key);
            ptr = catalog_inner_ptr(page, index);
            range = catalog_inner_child_range(page, index, &range);
        }
    }
    *out_leaf = parent;
    return 0;
}

static int copy_value(const void *page, unsigned index, void *buffer, size_t capacity, size_t *out_size)
{
    uint16_t size = 0;
    const uint8_t *value = catalog_leaf_value(page, index, &size);
    if (size > capacity) {
        return -ENOBUFS;
    }
    if (size > 0) {
        memcpy(buffer, value, size);
    }
    *out_size = size;
    return 0;
}

int catalog_get(struct view *view, const struct catalog_key *key, void *buffer, size_t capacity, size_t *out_size)
{
    rwlock_assert_held(&view->catalog_lock);
    if (view->root.height == 0) {
        return -ENOENT;
    }
    struct frame *leaf = NULL;
    int rc = find_leaf(view, key, &leaf);
    if (rc != 0) {
        return rc;
    }
    unsigned index = 0;
    if (catalog_leaf_find(frame_page(leaf), key, &index)) {
        rc = copy_value(frame_page(leaf), index, buffer, capacity, out_size);
    } else {
        rc = -ENOENT;
    }
    page_unpin(leaf);
    return rc;
}

/* ---- scan ---- */

struct scan {
    struct view *view;
    const struct catalog_key *first, *last;
    catalog_item_fn *fn;
    void *arg;
};

static int scan_leaf(const struct scan *scan, const void *page)
{
    unsigned index = 0;
    int rc = 0;
    (void)catalog_leaf_find(page, scan->first, &index);
    for (; index < catalog_page_count(page) && rc == 0; index++) {
        const struct catalog_key key = catalog_leaf_key(page, index);
        if (catalog_key_compare(&key, scan->last) > 0) {
            break;
        }
        uint16_t size = 0;
        const uint8_t *value = catalog_leaf_value(page, index, &size);
        rc = scan->fn(scan->arg, &key, value, size);
    }
    return rc;
}

static int scan_page(const struct scan *scan, struct page_ptr ptr, uint8_t level, const struct catalog_range *range)
{
    struct frame *frame = NULL;
    int rc = catalog_page_read(catalog_view_diag(scan->view), scan->view->catalog, ptr, level, range, &frame);
    if (rc != 0) {
        return rc;
    }
    const void *page = frame_page(frame);
    if (level == 0) {
        rc = scan_leaf(scan, page);
    } else {
        const unsigned end = catalog_inner_find(page, scan->last);
        for (unsigned i = catalog_inner_find(page, scan->first); i <= end && rc == 0; i++) {
            const struct catalog_range child = catalog_inner_child_range(page, i, range);
            rc = scan_page(scan, catalog_inner_ptr(page, i), (uint8_t)(level - 1), &child);
        }
    }
    page_unpin(frame);
    return rc;
}

int catalog_scan(struct view *view, const struct catalog_key *first, const struct catalog_key *last,
                 catalog_item_fn *fn, void *arg)
{
    rwlock_assert_held(&view->catalog_lock);
    if (view->root.height == 0 || catalog_key_compare(first, last) > 0) {
        return 0;
    }
    const struct scan scan = {.view = view, .first = first, .last = last, .fn = fn, .arg = arg};
    const struct catalog_range all = {0};
    return scan_page(&scan, view->root.ptr, (uint8_t)(view->root.height - 1), &all);
}

/* ---- what is not shared ---- */

struct unshared_scan {
    struct diag *diag;
    struct relation *catalog;
    bool (*skip)(void *arg, struct page_ptr ptr);
    catalog_item_fn *fn;
    void *arg;
};

static int unshared_page(const struct unshared_scan *scan, struct page_ptr ptr, uint8_t level,
                         const struct catalog_range *range)
{
    struct frame *frame = NULL;
    if (scan->skip(scan->arg, ptr)) {
        return 0;
    }
    int rc = catalog_page_read(scan->diag, scan->catalog, ptr, level, range, &frame);
    if (rc != 0) {
        return rc;
    }
    const void *page = frame_page(frame);
    for (unsigned i = 0; i < catalog_page_count(page) && rc == 0; i++) {
        if (level == 0) {
            uint16_t size = 0;
            const struct catalog_key key = catalog_leaf_key(page, i);
            const uint8_t *value = catalog_leaf_value(page, i, &size);
            rc = scan->fn(scan->arg, &key, value, size);
        } else {
            const struct catalog_range child = catalog_inner_child_range(page, i, range);
            rc = unshared_page(scan, catalog_inner_ptr(page, i), (uint8_t)(level - 1), &child);
        }
    }
    page_unpin(frame);
    return rc;
}

int catalog_scan_unshared(struct diag *diag, struct relation *catalog, const struct catalog_root *root,
                          bool (*skip)(void *arg, struct page_ptr ptr), catalog_item_fn *fn, void *arg)
{
    const struct unshared_scan scan = {.diag = diag, .catalog = catalog, .skip = skip, .fn = fn, .arg = arg};
    const struct catalog_range all = {0};
    return root->height == 0 ? 0 : unshared_page(&scan, root->ptr, (uint8_t)(root->height - 1), &all);
}

/* ---- visit ---- */

struct visit {
    struct relation *catalog;
    bool (*skip)(void *arg, struct page_ptr ptr);
    int (*fn)(void *arg, struct page_ptr ptr, uint8_t level);
    void *arg;
};

static int visit_page(const struct visit *visit, struct page_ptr ptr, uint8_t level)
{
    if (level > 0 && visit->skip != NULL && visit->skip(visit->arg, ptr)) {
        return 0;
    }
    int rc = visit->fn(visit->arg, ptr, level);
    if (rc != 0 || level == 0) {
        return rc;
    }
    struct frame *frame = NULL;
    rc = page_read(visit->catalog, ptr, PAGE_TYPE_CATALOG_INNER, level, &frame);
    if (rc != 0) {
        return rc;
    }
    const void *page = frame_page(frame);
    for (unsigned i = 0; i < catalog_page_count(page) && rc == 0; i++) {
        rc = visit_page(visit, catalog_inner_ptr(page, i), (uint8_t)(level - 1));
    }
    page_unpin(frame);
    return rc;
}

int catalog_visit(struct relation *catalog, const struct catalog_root *root,
                  bool (*skip)(void *arg, struct page_ptr ptr),
                  int (*fn)(void *arg, struct page_ptr ptr, uint8_t level), void *arg)
{
    if (root->height == 0) {
        return 0;
    }
    const struct visit visit = {.catalog = catalog, .skip = skip, .fn = fn, .arg = arg};
    return visit_page(&visit, root->ptr, (uint8_t)(root->height - 1));
}

/* ---- check ---- */

struct check {
    struct diag *diag;
    struct relation *catalog;
    uint64_t items;
    char name[CATALOG_RELATION_NAME_SIZE];
};

static int check_page(struct check *check, struct page_ptr ptr, uint8_t level, const struct catalog_range *range)
{
    struct frame *frame = NULL;
    int rc = catalog_page_read(check->diag, check->catalog, ptr, level, range, &frame);
    if (rc != 0) {
        return rc;
    }
    const void *page = frame_page(frame);
    /* Again, because a page that was made in memory was never validated. */
    rc = level == 0 ? catalog_validate_leaf(check->diag, check->name, page)
                    : catalog_validate_inner(check->diag, check->name, page);
    if (rc == 0 && level == 0) {
        check->items += catalog_page_count(page);
    }
    for (unsigned i = 0; level > 0 && rc == 0 && i < catalog_page_count(page); i++) {
        const struct catalog_range child = catalog_inner_child_range(page, i, range);
        rc = check_page(check, catalog_inner_ptr(page, i), (uint8_t)(level - 1), &child);
    }
    page_unpin(frame);
    return rc;
}

int catalog_check(struct diag *diag, struct relation *catalog, const struct catalog_root *root, uint64_t *out_items)
{
    struct check check = {.diag = diag, .catalog = catalog};
    catalog_relation_name(catalog, check.name);
    const struct catalog_range all = {0};
    int rc = 0;
    if (root->height > CATALOG_MAX_HEIGHT) {
        rc = diag_damage(diag, check.name, root->ptr.block, "catalog height", "got %u, want at most %u", root->height,
                         CATALOG_MAX_HEIGHT);
    } else if (root->height > 0) {
        rc = check_page(&check, root->ptr, (uint8_t)(root->height - 1), &all);
    }
    if (rc == 0 && out_items != NULL) {
        *out_items = check.items;
    }
    return rc;
}
