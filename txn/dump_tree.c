/*
 * txn/dump_tree.c - the catalog and content trees of the checkpoint in force, page by page. A damaged page is told, and
 * the walk goes on behind it.
 *
 * Locking: none, nothing is shared.
 */
#include "table/content_format.h"
#include "txn/dump_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_SIZE_MAX 255u

static unsigned count_of(const uint8_t *page)
{
    return le16_get(((const struct page_header *)page)->count);
}

/* ---- walking the catalog ---- */

/* What a walk does with the pages that it meets; a non-zero result ends it. */
typedef int leaf_fn(struct dump *dump, const uint8_t *page, void *arg);

struct walk {
    struct dump *dump;
    struct catalog_key first, last; /* pages that hold nothing of this range are left out */
    bool print;
    leaf_fn *fn;
    void *arg;
};

static struct catalog_key key_of(const struct disk_catalog_key *disk)
{
    return (struct catalog_key){.ino = le64_get(disk->ino), .sub = le64_get(disk->sub), .type = disk->type};
}

static const struct catalog_inner_entry *entries_of(const uint8_t *page)
{
    return (const struct catalog_inner_entry *)(page + PAGE_HEADER_SIZE);
}

/* Entry i covers keys from its own (the first one: from anywhere) to the next one's. */
static bool entry_matters(const struct walk *walk, const uint8_t *page, unsigned index)
{
    const struct catalog_inner_entry *entries = entries_of(page);
    if (index > 0) {
        const struct catalog_key own = key_of(&entries[index].key);
        if (catalog_key_compare(&own, &walk->last) > 0) {
            return false;
        }
    }
    if (index + 1 < count_of(page)) {
        const struct catalog_key next = key_of(&entries[index + 1].key);
        return catalog_key_compare(&next, &walk->first) > 0;
    }
    return true;
}

static int walk_catalog(const struct walk *walk, struct page_ptr ptr, uint8_t level)
{
    uint8_t page[BLOCK_SIZE];
    const uint8_t type = level == 0 ? PAGE_TYPE_CATALOG_LEAF : PAGE_TYPE_CATALOG_INNER;
    int rc = dump_read_page(walk->dump, REL_CATALOG, ptr, type, level, page);
    if (rc != 1) {
        return rc;
    }
    if (walk->print) {
        dump_print_header(walk->dump, page);
    }
    if (level == 0) {
        return walk->fn(walk->dump, page, walk->arg);
    }
    rc = 0;
    for (unsigned i = 0; i < count_of(page) && rc == 0; i++) {
        const struct catalog_inner_entry *entry = &entries_of(page)[i];
        if (!entry_matters(walk, page, i)) {
            continue;
        }
        if (walk->print) {
            struct dump_line line = {.length = 0};
            dump_add(&line, "  entry %u", i);
            dump_add_fields(&line, DUMP_CATALOG_INNER_ENTRY, entry);
            dump_emit(walk->dump, &line);
        }
        rc = walk_catalog(walk, disk_page_ptr_get(&entry->ptr), (uint8_t)(level - 1));
    }
    return rc;
}

static int walk_from_root(const struct walk *walk, const struct control_slot *slot)
{
    if (slot->catalog_height == 0 || slot->catalog_height > CATALOG_MAX_HEIGHT) {
        const int rc = diag_damage(&walk->dump->diag, "control", BLOCK_NONE, "catalog_height", "got %u, want 1 to %u",
                                   slot->catalog_height, CATALOG_MAX_HEIGHT);
        return rc == -EIO ? 0 : rc;
    }
    return walk_catalog(walk, disk_page_ptr_get(&slot->catalog), (uint8_t)(slot->catalog_height - 1));
}

static int print_items(struct dump *dump, const uint8_t *page, void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < count_of(page); i++) {
        dump_print_item(dump, page, i);
    }
    return 0;
}

static int print_catalog(struct dump *dump)
{
    struct control_slot slot;
    const int rc = dump_read_control(dump, &slot);
    if (rc != 0) {
        return rc;
    }
    const struct walk walk = {.dump = dump,
                              .last = {.ino = UINT64_MAX, .sub = UINT64_MAX, .type = UINT8_MAX},
                              .print = true,
                              .fn = print_items};
    return walk_from_root(&walk, &slot);
}

int dump_catalog(const struct dump_options *options)
{
    struct dump dump;
    dump_begin(&dump, options);
    return dump_end(&dump, print_catalog(&dump));
}

/* ---- one table ---- */

struct lookup {
    struct catalog_key first, last;
    const char *name; /* directory entries: which one; NULL: any item of the range */
    size_t name_size;
    bool found;
    uint8_t value[CATALOG_MAX_VALUE_SIZE];
    size_t value_size;
};

static bool is_wanted(const struct lookup *lookup, const uint8_t *value, size_t size)
{
    const size_t head = sizeof(struct disk_dirent);
    return lookup->name == NULL ||
           (size == head + lookup->name_size && memcmp(value + head, lookup->name, lookup->name_size) == 0);
}

static int look_at_items(struct dump *dump, const uint8_t *page, void *arg)
{
    struct lookup *lookup = arg;
    (void)dump;
    for (unsigned i = 0; i < count_of(page) && !lookup->found; i++) {
        struct catalog_item_head head;
        memcpy(&head, page + PAGE_HEADER_SIZE + i * sizeof head, sizeof head);
        const struct catalog_key key = key_of(&head.key);
        const uint8_t *value = page + le16_get(head.value_offset);
        if (catalog_key_compare(&key, &lookup->first) >= 0 && catalog_key_compare(&key, &lookup->last) <= 0 &&
            is_wanted(lookup, value, le16_get(head.value_size))) {
            lookup->found = true;
            lookup->value_size = le16_get(head.value_size);
            memcpy(lookup->value, value, lookup->value_size);
        }
    }
    return 0;
}

/* Finds the first item of the range. -ENOENT: there is none that can be read. */
static int look_up(struct dump *dump, const struct control_slot *slot, struct lookup *lookup)
{
    const struct walk walk = {
        .dump = dump, .first = lookup->first, .last = lookup->last, .fn = look_at_items, .arg = lookup};
    const int rc = walk_from_root(&walk, slot);
    return rc != 0 ? rc : lookup->found ? 0 : -ENOENT;
}

static int find_inode(struct dump *dump, const struct control_slot *slot, ino_no ino, struct disk_inode *out_inode)
{
    const struct catalog_key key = {.ino = ino, .type = ITEM_INODE};
    struct lookup lookup = {.first = key, .last = key};
    const int rc = look_up(dump, slot, &lookup);
    if (rc == 0) {
        memcpy(out_inode, lookup.value, sizeof *out_inode); /* the page was validated */
    }
    return rc;
}

static int find_entry(struct dump *dump, const struct control_slot *slot, ino_no dir, const char *name,
                      size_t name_size, ino_no *out_ino)
{
    if (name_size > NAME_SIZE_MAX || slot->name_bits == 0 || slot->name_bits > 47) {
        return -ENOENT;
    }
    const struct name_hash hash = {.seed = le64_get(slot->name_seed), .bits = slot->name_bits};
    const uint64_t sub = name_hash_of(&hash, name, name_size) << 16;
    struct lookup lookup = {.first = {.ino = dir, .type = ITEM_DIRENT, .sub = sub},
                            .last = {.ino = dir, .type = ITEM_DIRENT, .sub = sub | UINT16_MAX},
                            .name = name,
                            .name_size = name_size};
    const int rc = look_up(dump, slot, &lookup);
    if (rc == 0) {
        *out_ino = le64_get(((const struct disk_dirent *)lookup.value)->ino);
    }
    return rc;
}

static int find_path(struct dump *dump, const struct control_slot *slot, const char *path, ino_no *out_ino)
{
    ino_no ino = INO_ROOT;
    int rc = 0;
    while (rc == 0) {
        path += strspn(path, "/");
        const size_t size = strcspn(path, "/");
        if (size == 0) {
            *out_ino = ino;
            return 0;
        }
        rc = find_entry(dump, slot, ino, path, size, &ino);
        path += size;
    }
    return rc;
}

/* ---- content ---- */

static int print_content(struct dump *dump, rel_no rel, struct page_ptr ptr, uint8_t level, uint64_t offset,
                         uint64_t want_bytes);

/* Says what a pointer and what it leads to disagree in. */
static void expect_bytes(struct dump *dump, rel_no rel, block_no block, uint64_t got, uint64_t want)
{
    if (got != want) {
        const int rc = diag_damage(&dump->diag, "relation", block, "bytes",
                                   "relation %" PRIu64 ": got %" PRIu64 ", want %" PRIu64, rel, got, want);
        (void)rc; /* counted */
    }
}

static int print_children(struct dump *dump, rel_no rel, const uint8_t *page, uint8_t level, uint64_t offset,
                          uint64_t want_bytes)
{
    const struct content_entry *entries = (const struct content_entry *)(page + PAGE_HEADER_SIZE);
    uint64_t sum = 0;
    int rc = 0;
    for (unsigned i = 0; i < count_of(page) && rc == 0; i++) {
        const struct page_ptr ptr = disk_page_ptr_get(&entries[i].ptr);
        const uint64_t bytes = le64_get(entries[i].bytes);
        struct dump_line line = {.length = 0};
        dump_add(&line, "  entry %u at %" PRIu64 "%s", i, offset + sum, page_ptr_is_none(ptr) ? " hole" : "");
        dump_add_fields(&line, DUMP_CONTENT_ENTRY, &entries[i]);
        dump_emit(dump, &line);
        if (!page_ptr_is_none(ptr)) {
            rc = print_content(dump, rel, ptr, (uint8_t)(level - 1), offset + sum, bytes);
        }
        sum += bytes;
    }
    expect_bytes(dump, rel, le32_get(((const struct page_header *)page)->block), sum, want_bytes);
    return rc;
}

static int print_content(struct dump *dump, rel_no rel, struct page_ptr ptr, uint8_t level, uint64_t offset,
                         uint64_t want_bytes)
{
    uint8_t page[BLOCK_SIZE];
    const uint8_t type = level == 0 ? PAGE_TYPE_CONTENT_LEAF : PAGE_TYPE_CONTENT_INNER;
    const int rc = dump_read_page(dump, rel, ptr, type, level, page);
    if (rc != 1) {
        return rc;
    }
    dump_print_header(dump, page);
    if (level > 0) {
        return print_children(dump, rel, page, level, offset, want_bytes);
    }
    const uint16_t used = le16_get(((const struct page_header *)page)->used);
    expect_bytes(dump, rel, ptr.block, used, want_bytes);
    if (used > 0) {
        dump_print(dump, "  content %" PRIu64 " to %" PRIu64, offset, offset + used - 1);
    }
    return 0;
}

static int print_inode(struct dump *dump, ino_no ino, const struct disk_inode *inode)
{
    dump_print(dump, "inode %" PRIu64, ino);
    dump_print_fields(dump, DUMP_INODE, inode);
    if (!S_ISREG(le32_get(inode->mode)) || inode->content_height == 0) {
        return 0;
    }
    if (inode->content_height > CONTENT_MAX_HEIGHT) {
        const int rc = diag_damage(&dump->diag, "catalog", BLOCK_NONE, "content_height", "got %u, want up to %u",
                                   inode->content_height, CONTENT_MAX_HEIGHT);
        return rc == -EIO ? 0 : rc;
    }
    return print_content(dump, le64_get(inode->rel), disk_page_ptr_get(&inode->content),
                         (uint8_t)(inode->content_height - 1), 0, le64_get(inode->content_bytes));
}

static int print_table(struct dump *dump, const char *path)
{
    struct control_slot slot;
    struct disk_inode inode;
    ino_no ino = INO_NONE;
    int rc = dump_read_control(dump, &slot);
    if (rc == 0) {
        rc = find_path(dump, &slot, path, &ino);
    }
    if (rc == 0) {
        rc = find_inode(dump, &slot, ino, &inode);
    }
    if (rc == -ENOENT) {
        dump_print(dump, "! %s: there is no such path in the last checkpoint", path);
    }
    return rc == 0 ? print_inode(dump, ino, &inode) : rc;
}

int dump_table(const struct dump_options *options, const char *path)
{
    struct dump dump;
    dump_begin(&dump, options);
    return dump_end(&dump, print_table(&dump, path));
}
