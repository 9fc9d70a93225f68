/*
 * tests/model/rig_operate.c - the random operations of a rig.
 *
 * Each operation draws its arguments, notes itself, calls store and model, and compares what they answer. What it may
 * have changed it names as a subject or through a handle; finish() then compares attributes and times of all touched
 * inodes and of all subjects, so that a failed call is seen to have changed nothing there.
 */
#include "tests/model/rig.h"

#include "tests/model/journal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define POOL_NAMES   48u
#define TARGET_BYTES 4200u

/* ---- drawing ---- */

static uint64_t below(struct rig *rig, uint64_t limit)
{
    return test_random_below(&rig->random, limit);
}

static bool chance(struct rig *rig, unsigned percent)
{
    return test_random_chance(&rig->random, percent);
}

struct drawn_name {
    char bytes[300];
    size_t size;
};

static struct store_name name_of(const struct drawn_name *name)
{
    return (struct store_name){name->bytes, name->size};
}

static void draw_pool_name(struct rig *rig, struct drawn_name *out_name)
{
    static const char *const odd[] = {"-rf", "a b", "new\nline", "\xff\xfe\x80", "...", "\x01", "*", "t.tsv~"};
    const uint64_t pick = below(rig, POOL_NAMES * 4);
    int used;
    if (pick < ARRAY_COUNT(odd)) {
        used = snprintf(out_name->bytes, sizeof out_name->bytes, "%s", odd[pick]);
    } else if (pick < ARRAY_COUNT(odd) + 4) {
        /* 254 and 255 bytes are names, 256 is not. */
        used = snprintf(out_name->bytes, sizeof out_name->bytes, "%0*d", (int)(253 + below(rig, 4)), (int)pick);
    } else {
        used = snprintf(out_name->bytes, sizeof out_name->bytes, "table_%" PRIu64, pick % POOL_NAMES);
    }
    out_name->size = (size_t)used;
}

/* Mostly a name that exists in the directory. */
static void draw_name(struct rig *rig, ino_no parent, unsigned percent_existing, struct drawn_name *out_name)
{
    const struct model_inode *dir = model_find(rig->model, parent);
    if (dir == NULL || dir->entry_count == 0 || !chance(rig, percent_existing)) {
        draw_pool_name(rig, out_name);
        return;
    }
    const struct model_entry *entry = &dir->entries[below(rig, dir->entry_count)];
    memcpy(out_name->bytes, entry->name, entry->name_size);
    out_name->bytes[entry->name_size] = '\0';
    out_name->size = entry->name_size;
}

static struct model_inode *draw_inode(struct rig *rig)
{
    return rig->model->all[below(rig, rig->model->count)];
}

static struct model_inode *draw_kind(struct rig *rig, uint32_t kind)
{
    for (unsigned attempt = 0; attempt < 24; attempt++) {
        struct model_inode *inode = draw_inode(rig);
        if ((inode->mode & S_IFMT) == kind && inode->nlink > 0) {
            return inode;
        }
    }
    return NULL;
}

/* INO_NONE: none. */
static ino_no draw_gone(struct rig *rig)
{
    const ino_no gone = rig->gone[below(rig, RIG_GONE)];
    const struct model_inode *old = model_find(rig->model, gone); /* a replaced one that is still open */
    return old == NULL || old->nlink > 0 ? gone : INO_NONE;
}

/* Now and then something that is no directory, or is no more. */
static ino_no draw_dir(struct rig *rig)
{
    const uint64_t luck = below(rig, 100);
    if (luck < 2) {
        const ino_no gone = draw_gone(rig);
        return gone != INO_NONE ? gone : INO_ROOT;
    }
    if (luck < 4) {
        return draw_inode(rig)->ino;
    }
    const struct model_inode *dir = draw_kind(rig, S_IFDIR);
    return dir != NULL ? dir->ino : INO_ROOT;
}

static ino_no draw_any(struct rig *rig)
{
    const ino_no gone = draw_gone(rig);
    if (gone != INO_NONE && chance(rig, 2)) {
        return gone;
    }
    const struct model_inode *inode = draw_inode(rig);
    return inode->nlink > 0 ? inode->ino : INO_ROOT;
}

/* Sizes: mostly small, often at a page's edge, now and then large. */
static uint64_t draw_size(struct rig *rig, uint64_t limit)
{
    const uint64_t luck = below(rig, 100);
    uint64_t size;
    if (luck < 60) {
        size = below(rig, 300);
    } else if (luck < 75) {
        size = below(rig, 4) * PAGE_PAYLOAD_SIZE + below(rig, 5) - 2;
    } else if (luck < 97) {
        size = below(rig, 20000);
    } else {
        size = below(rig, 300000);
    }
    return size > limit ? (size > INT64_MAX ? 0 : limit) : size;
}

static uint64_t draw_offset(struct rig *rig, const struct model_inode *inode)
{
    const uint64_t luck = below(rig, 100);
    const uint64_t limit = rig->config.max_file_bytes;
    uint64_t offset;
    if (luck < 30) {
        offset = inode->size;
    } else if (luck < 80) {
        offset = below(rig, inode->size + 1);
    } else if (luck < 90) {
        offset = below(rig, inode->size / PAGE_PAYLOAD_SIZE + 2) * PAGE_PAYLOAD_SIZE + below(rig, 3);
    } else {
        offset = inode->size + below(rig, 50000);
    }
    return offset > limit ? limit : offset;
}

static const uint8_t *draw_data(struct rig *rig, size_t size)
{
    return rig->data + below(rig, RIG_DATA_BYTES - size + 1);
}

/* With `rows`, mostly whole ones: the size is cut back to the end of one. */
static const uint8_t *draw_rows(struct rig *rig, uint64_t *inout_size)
{
    const uint8_t *bytes = draw_data(rig, (size_t)*inout_size);
    if (rig->config.rows && chance(rig, 85)) {
        uint64_t size = *inout_size;
        while (size > 0 && bytes[size - 1] != '\n') {
            size--;
        }
        *inout_size = size > 0 ? size : *inout_size;
    }
    return bytes;
}

/* ---- comparing ---- */

static void expect(struct rig *rig, int got, int want)
{
    if (got != want) {
        rig_fail(rig, "the store answers %d, the model %d", got, want);
    }
}

static void subject(struct rig *rig, ino_no ino)
{
    if (rig->subject_count < ARRAY_COUNT(rig->subjects)) {
        rig->subjects[rig->subject_count++] = ino;
    }
}

static struct rig_handle *handle_of(struct rig *rig, const struct model_inode *inode)
{
    for (unsigned i = 0; i < RIG_HANDLES; i++) {
        if (rig->handles[i].file != NULL && rig->handles[i].inode == inode) {
            return &rig->handles[i];
        }
    }
    return rig->compact_handle.inode == inode ? &rig->compact_handle : NULL;
}

static void get_attr(struct rig *rig, const struct model_inode *inode, struct store_attr *out_attr)
{
    if (inode->nlink > 0) {
        rig_must(rig, store_getattr(rig->store, rig_view(rig), inode->ino, out_attr), "getattr");
        return;
    }
    struct rig_handle *handle = handle_of(rig, inode);
    assert(handle != NULL);
    rig_must(rig, store_file_getattr(handle->file, out_attr), "getattr of an unlinked open file");
}

static void check_stamp(struct rig *rig, const struct model_inode *inode, unsigned stamp, int64_t got,
                        int64_t time_after_ns)
{
    if ((inode->stamps & stamp) && (got < rig->time_before_ns || got > time_after_ns)) {
        rig_fail(rig, "inode %" PRIu64 ": time %u is %" PRId64 ", not within %" PRId64 " to %" PRId64, inode->ino,
                 stamp, got, rig->time_before_ns, time_after_ns);
    }
}

static void compare_one(struct rig *rig, struct model_inode *inode, int64_t time_after_ns)
{
    struct compare compare = {.store = rig->store, .view = rig_view(rig), .model = rig->model};
    struct store_attr got;
    struct store_attr want;
    get_attr(rig, inode, &got);
    check_stamp(rig, inode, MODEL_STAMP_ATIME, got.atime_ns, time_after_ns);
    check_stamp(rig, inode, MODEL_STAMP_MTIME, got.mtime_ns, time_after_ns);
    check_stamp(rig, inode, MODEL_STAMP_CTIME, got.ctime_ns, time_after_ns);
    model_learn_time(inode, &got);
    model_attr(rig->model, inode, &want);
    if (!compare_attr(&compare, &got, &want)) {
        rig_fail(rig, "%s", compare.why);
    }
}

static void check_gone(struct rig *rig, ino_no ino)
{
    struct store_attr attr;
    const int result = store_getattr(rig->store, rig_view(rig), ino, &attr);
    if (result != -ENOENT) {
        rig_fail(rig, "inode %" PRIu64 " is no more, but getattr answers %d", ino, result);
    }
    rig->gone[rig->gone_next++ % RIG_GONE] = ino;
}

static void finish(struct rig *rig)
{
    const int64_t time_after_ns = (int64_t)io_realtime_ns(rig->dev);
    for (unsigned i = 0; i < rig->model->touched_count; i++) {
        compare_one(rig, rig->model->touched[i], time_after_ns);
    }
    for (unsigned i = 0; i < rig->subject_count; i++) {
        struct model_inode *inode = model_find(rig->model, rig->subjects[i]);
        if (inode == NULL) {
            check_gone(rig, rig->subjects[i]);
        } else if (!inode->touched) {
            compare_one(rig, inode, time_after_ns);
        }
    }
    journal_learn(rig->model);
}

/* The inode that a name leads to is a subject too. */
static void subject_entry(struct rig *rig, ino_no parent, const struct drawn_name *name)
{
    ino_no ino;
    subject(rig, parent);
    if (model_lookup(rig->model, parent, name_of(name), &ino) == 0) {
        subject(rig, ino);
    }
}

/* ---- names ---- */

static void operate_lookup(struct rig *rig)
{
    struct drawn_name name;
    struct store_attr attr = {0};
    ino_no ino = INO_NONE;
    const ino_no parent = draw_dir(rig);
    draw_name(rig, parent, 70, &name);
    rig_note(rig, "lookup %" PRIu64 " \"%.40s\"", parent, name.bytes);
    const int got = store_lookup(rig->store, rig_view(rig), parent, name_of(&name), &attr);
    expect(rig, got, model_lookup(rig->model, parent, name_of(&name), &ino));
    if (got == 0 && attr.ino != ino) {
        rig_fail(rig, "leads to inode %" PRIu64 ", should to %" PRIu64, attr.ino, ino);
    }
}

static uint32_t draw_mode(struct rig *rig)
{
    const uint64_t luck = below(rig, 100);
    const uint32_t permissions = (uint32_t)below(rig, 010000);
    if (luck < 25) {
        return S_IFDIR | permissions;
    }
    return luck < 95 ? S_IFREG | permissions : (luck < 98 ? S_IFIFO | permissions : S_IFCHR | permissions);
}

static void operate_create(struct rig *rig)
{
    struct drawn_name name;
    struct store_attr attr = {0};
    const ino_no parent = draw_dir(rig);
    draw_name(rig, parent, 5, &name);
    const uint32_t mode = draw_mode(rig);
    const uint32_t rdev = S_ISCHR(mode) ? (uint32_t)below(rig, 70000) : 0;
    const struct store_who who = {.uid = (uint32_t)below(rig, 5), .gid = (uint32_t)below(rig, 5)};
    rig_note(rig, "create %" PRIu64 " \"%.40s\" mode %" PRIo32, parent, name.bytes, mode);
    subject(rig, parent);
    const int got = store_create(rig->store, rig_view(rig), parent, name_of(&name), mode, rdev, who, &attr);
    if (got == 0 && attr.ino <= rig->model->largest_ino) {
        rig_fail(rig, "inode number %" PRIu64 " is not new", attr.ino);
    }
    expect(rig, got, model_create(rig->model, parent, name_of(&name), mode, rdev, who, NULL, attr.ino));
}

static void operate_symlink(struct rig *rig)
{
    struct drawn_name name;
    struct store_attr attr = {0};
    char target[TARGET_BYTES];
    const ino_no parent = draw_dir(rig);
    draw_name(rig, parent, 5, &name);
    const size_t size = 1 + (size_t)below(rig, chance(rig, 90) ? 60 : TARGET_BYTES - 1);
    memset(target, 'a' + (int)below(rig, 26), size);
    target[size < TARGET_BYTES ? size : TARGET_BYTES - 1] = '\0';
    const struct store_who who = {.uid = (uint32_t)below(rig, 5), .gid = (uint32_t)below(rig, 5)};
    rig_note(rig, "symlink %" PRIu64 " \"%.40s\" target of %zu bytes", parent, name.bytes, size);
    subject(rig, parent);
    const int got = store_symlink(rig->store, rig_view(rig), parent, name_of(&name), target, who, &attr);
    if (got == 0 && attr.ino <= rig->model->largest_ino) {
        rig_fail(rig, "inode number %" PRIu64 " is not new", attr.ino);
    }
    expect(rig, got, model_create(rig->model, parent, name_of(&name), S_IFLNK | 0777, 0, who, target, attr.ino));
}

static void operate_readlink(struct rig *rig)
{
    char target[TARGET_BYTES];
    size_t size = 0;
    const struct model_inode *link = draw_kind(rig, S_IFLNK);
    const ino_no ino = link != NULL && chance(rig, 80) ? link->ino : draw_any(rig);
    rig_note(rig, "readlink %" PRIu64, ino);
    const int got = store_readlink(rig->store, rig_view(rig), ino, target, sizeof target, &size);
    expect(rig, got, model_readlink(rig->model, ino));
    link = model_find(rig->model, ino);
    if (got == 0 && (size != link->size || memcmp(target, link->bytes, size) != 0)) {
        rig_fail(rig, "target of %zu bytes, should be %zu, or they differ", size, link->size);
    }
}

static void operate_link(struct rig *rig)
{
    struct drawn_name name;
    struct store_attr attr = {0};
    const ino_no ino = draw_any(rig);
    const ino_no parent = draw_dir(rig);
    draw_name(rig, parent, 10, &name);
    rig_note(rig, "link inode %" PRIu64 " as %" PRIu64 " \"%.40s\"", ino, parent, name.bytes);
    subject(rig, ino);
    subject(rig, parent);
    const int got = store_link(rig->store, rig_view(rig), ino, parent, name_of(&name), &attr);
    expect(rig, got, model_link(rig->model, ino, parent, name_of(&name)));
    if (got == 0 && attr.ino != ino) {
        rig_fail(rig, "attributes of inode %" PRIu64 " came back", attr.ino);
    }
}

static void operate_unlink(struct rig *rig)
{
    struct drawn_name name;
    const ino_no parent = draw_dir(rig);
    draw_name(rig, parent, 90, &name);
    rig_note(rig, "unlink %" PRIu64 " \"%.40s\"", parent, name.bytes);
    subject_entry(rig, parent, &name);
    const int got = store_unlink(rig->store, rig_view(rig), parent, name_of(&name));
    expect(rig, got, model_unlink(rig->model, parent, name_of(&name)));
}

static void operate_rmdir(struct rig *rig)
{
    struct drawn_name name;
    const ino_no parent = draw_dir(rig);
    draw_name(rig, parent, 90, &name);
    rig_note(rig, "rmdir %" PRIu64 " \"%.40s\"", parent, name.bytes);
    subject_entry(rig, parent, &name);
    const int got = store_rmdir(rig->store, rig_view(rig), parent, name_of(&name));
    expect(rig, got, model_rmdir(rig->model, parent, name_of(&name)));
}

static void operate_rename(struct rig *rig)
{
    struct drawn_name name;
    struct drawn_name new_name;
    const ino_no parent = draw_dir(rig);
    const ino_no new_parent = chance(rig, 50) ? parent : draw_dir(rig);
    draw_name(rig, parent, 90, &name);
    draw_name(rig, new_parent, 40, &new_name);
    const unsigned flags = chance(rig, 70) ? 0 : 1u + (unsigned)below(rig, 2);
    rig_note(rig, "rename %" PRIu64 " \"%.40s\" to %" PRIu64 " \"%.40s\" flags %u", parent, name.bytes, new_parent,
             new_name.bytes, flags);
    subject_entry(rig, parent, &name);
    subject_entry(rig, new_parent, &new_name);
    const int got =
        store_rename(rig->store, rig_view(rig), parent, name_of(&name), new_parent, name_of(&new_name), flags);
    expect(rig, got, model_rename(rig->model, parent, name_of(&name), new_parent, name_of(&new_name), flags));
}

static void operate_readdir(struct rig *rig)
{
    struct compare compare = {.store = rig->store, .view = rig_view(rig), .model = rig->model};
    const struct model_inode *dir = draw_kind(rig, S_IFDIR);
    if (dir == NULL) {
        return;
    }
    compare.resume = (unsigned)below(rig, 6);
    rig_note(rig, "readdir %" PRIu64, dir->ino);
    if (!compare_dir(&compare, dir)) {
        rig_fail(rig, "%s", compare.why);
    }
}

/* ---- attributes ---- */

/* Long ago; with `rows`, now and then in the future. */
static int64_t draw_mtime(struct rig *rig)
{
    if (rig->config.rows && chance(rig, 30)) {
        return rig->time_before_ns + (int64_t)below(rig, INT64_C(1) << 50);
    }
    return -(int64_t)below(rig, INT64_MAX) >> 2;
}

static void operate_setattr(struct rig *rig)
{
    struct store_attr got_attr = {0};
    struct store_attr want_attr;
    const ino_no ino = draw_any(rig);
    const struct model_inode *inode = model_find(rig->model, ino);
    unsigned set = (unsigned)below(rig, 512) & (unsigned)below(rig, 512);
    if (inode != NULL && !S_ISREG(inode->mode) && chance(rig, 90)) {
        set &= ~STORE_SET_SIZE;
    }
    const struct store_attr attr = {
        .mode = (uint32_t)below(rig, 010000),
        .uid = (uint32_t)below(rig, 5),
        .gid = (uint32_t)below(rig, 5),
        .size_bytes =
            chance(rig, 1) ? (uint64_t)INT64_MAX + 1 + below(rig, 9) : draw_size(rig, rig->config.max_file_bytes),
        .atime_ns = (int64_t)below(rig, UINT64_MAX) >> 2,
        .mtime_ns = draw_mtime(rig),
    };
    rig_note(rig, "setattr %" PRIu64 " set 0x%x mode %" PRIo32 " size %" PRIu64, ino, set, attr.mode, attr.size_bytes);
    subject(rig, ino);
    const int got = store_setattr(rig->store, rig_view(rig), ino, set, &attr, &got_attr);
    expect(rig, got, model_setattr(rig->model, ino, set, &attr));
    if (got == 0) {
        struct compare compare = {.store = rig->store, .model = rig->model};
        finish(rig);
        model_attr(rig->model, model_find(rig->model, ino), &want_attr);
        if (!compare_attr(&compare, &got_attr, &want_attr)) {
            rig_fail(rig, "attributes that came back: %s", compare.why);
        }
    }
}

static void draw_xattr_name(struct rig *rig, char *buffer, size_t capacity)
{
    if (rig->config.rows && chance(rig, 10)) {
        snprintf(buffer, capacity, "user.tblfs.append");
    } else if (chance(rig, 2)) {
        snprintf(buffer, capacity, "user.%0*d", 250, (int)below(rig, 3));
    } else {
        snprintf(buffer, capacity, "user.attribute_%u", (unsigned)below(rig, 6));
    }
}

/* The attribute that turns merging off, or does not. */
static void set_append_rule(struct rig *rig, ino_no ino)
{
    static const char *const values[] = {"conflict", "conflict", "merge", "conflicts"};
    static const char name[] = "user.tblfs.append";
    const char *value = values[below(rig, ARRAY_COUNT(values))];
    rig_note(rig, "setxattr %" PRIu64 " %s %s", ino, name, value);
    subject(rig, ino);
    const int got = store_setxattr(rig->store, rig_view(rig), ino, name, value, strlen(value), 0);
    expect(rig, got, model_setxattr(rig->model, ino, name, value, strlen(value), 0));
}

static void operate_setxattr(struct rig *rig)
{
    char name[300];
    draw_xattr_name(rig, name, sizeof name);
    const ino_no ino = draw_any(rig);
    if (rig->config.rows && chance(rig, 15)) {
        set_append_rule(rig, ino);
        return;
    }
    const uint64_t luck = below(rig, 100);
    const size_t size = (size_t)(luck < 70 ? below(rig, 80) : below(rig, XATTR_MAX_VALUE + (luck < 98 ? 1 : 40)));
    const uint8_t *value = draw_data(rig, size);
    const unsigned flags = chance(rig, 60) ? 0 : 1u + (unsigned)below(rig, 2);
    rig_note(rig, "setxattr %" PRIu64 " %.30s %zu bytes flags %u", ino, name, size, flags);
    subject(rig, ino);
    const int got = store_setxattr(rig->store, rig_view(rig), ino, name, value, size, flags);
    expect(rig, got, model_setxattr(rig->model, ino, name, value, size, flags));
}

static void operate_removexattr(struct rig *rig)
{
    char name[300];
    draw_xattr_name(rig, name, sizeof name);
    const ino_no ino = draw_any(rig);
    rig_note(rig, "removexattr %" PRIu64 " %.30s", ino, name);
    subject(rig, ino);
    const int got = store_removexattr(rig->store, rig_view(rig), ino, name);
    expect(rig, got, model_removexattr(rig->model, ino, name));
}

static int model_getxattr(const struct model_inode *inode, const char *name, size_t capacity, size_t *out_size)
{
    if (inode == NULL) {
        return -ENOENT;
    }
    const struct model_xattr *xattr = model_find_xattr(inode, name);
    if (xattr == NULL) {
        return -ENODATA;
    }
    *out_size = xattr->value_size;
    return capacity > 0 && capacity < xattr->value_size ? -ERANGE : 0;
}

static void operate_getxattr(struct rig *rig)
{
    char name[300];
    uint8_t value[XATTR_MAX_VALUE];
    size_t got_size = 0;
    size_t want_size = 0;
    draw_xattr_name(rig, name, sizeof name);
    const ino_no ino = draw_any(rig);
    const size_t capacity = chance(rig, 60) ? sizeof value : (size_t)below(rig, 60);
    rig_note(rig, "getxattr %" PRIu64 " %.30s capacity %zu", ino, name, capacity);
    const int got = store_getxattr(rig->store, rig_view(rig), ino, name, value, capacity, &got_size);
    const struct model_inode *inode = model_find(rig->model, ino);
    expect(rig, got, model_getxattr(inode, name, capacity, &want_size));
    if (got != 0) {
        return;
    }
    if (got_size != want_size ||
        (capacity > 0 && memcmp(value, model_find_xattr(inode, name)->value, want_size) != 0)) {
        rig_fail(rig, "value of %zu bytes, should be %zu, or they differ", got_size, want_size);
    }
}

static void operate_listxattr(struct rig *rig)
{
    struct compare compare = {.store = rig->store, .view = rig_view(rig), .model = rig->model};
    const ino_no ino = draw_any(rig);
    const struct model_inode *inode = model_find(rig->model, ino);
    rig_note(rig, "listxattr %" PRIu64, ino);
    if (inode != NULL && !compare_xattrs(&compare, inode)) {
        rig_fail(rig, "%s", compare.why);
    }
}

/* ---- content ---- */

static void operate_open(struct rig *rig)
{
    const struct model_inode *regular = draw_kind(rig, S_IFREG);
    const ino_no ino = regular != NULL && chance(rig, 90) ? regular->ino : draw_any(rig);
    struct rig_handle *handle = &rig->handles[below(rig, RIG_HANDLES)];
    if (handle->file != NULL) {
        return;
    }
    rig_note(rig, "open %" PRIu64, ino);
    const int got = store_file_open(rig->store, rig_view(rig), ino, &handle->file);
    expect(rig, got, model_open(rig->model, ino));
    if (got != 0) {
        handle->file = NULL;
        return;
    }
    handle->inode = model_find(rig->model, ino);
    if (store_file_ino(handle->file) != ino) {
        rig_fail(rig, "opened inode %" PRIu64, store_file_ino(handle->file));
    }
}

static void operate_close(struct rig *rig)
{
    struct rig_handle *handle = &rig->handles[below(rig, RIG_HANDLES)];
    if (handle->file == NULL) {
        return;
    }
    const ino_no ino = handle->inode->ino;
    rig_note(rig, "close %" PRIu64, ino);
    store_file_close(handle->file);
    model_close(rig->model, handle->inode);
    *handle = (struct rig_handle){0};
    if (model_find(rig->model, ino) == NULL) {
        subject(rig, ino);
    }
}

/* An open file: one of the handles, else any regular file, opened for this operation (into *temporary). */
static struct rig_handle *draw_handle(struct rig *rig, struct rig_handle *temporary)
{
    struct rig_handle *handle = &rig->handles[below(rig, RIG_HANDLES)];
    *temporary = (struct rig_handle){0};
    if (handle->file != NULL && chance(rig, 70)) {
        return handle;
    }
    struct model_inode *inode = draw_kind(rig, S_IFREG);
    if (inode == NULL) {
        return NULL;
    }
    rig_must(rig, store_file_open(rig->store, rig_view(rig), inode->ino, &temporary->file), "open");
    rig_must(rig, model_open(rig->model, inode->ino), "open in the model");
    temporary->inode = inode;
    return temporary;
}

static void put_handle(struct rig *rig, struct rig_handle *temporary)
{
    if (temporary->file != NULL) {
        store_file_close(temporary->file);
        model_close(rig->model, temporary->inode);
    }
}

/* A little more than what was touched, by copy or by pieces. */
static void compare_around(struct rig *rig, struct rig_handle *handle, uint64_t offset, uint64_t size)
{
    struct compare compare = {.store = rig->store, .model = rig->model};
    const uint64_t margin = below(rig, 9000);
    const uint64_t first = offset > margin ? offset - margin : 0;
    const size_t length = (size_t)(offset + size - first + margin);
    const bool same = chance(rig, 50) ? compare_range(&compare, handle->file, handle->inode, first, length)
                                      : compare_pieces(&compare, handle->file, handle->inode, first, length);
    if (!same) {
        rig_fail(rig, "%s", compare.why);
    }
}

static void note_data(struct rig *rig, const char *what, const struct rig_handle *handle, uint64_t offset,
                      uint64_t size, unsigned flags)
{
    rig_note(rig, "%s inode %" PRIu64 "%s size %zu: offset %" PRIu64 " size %" PRIu64 " flags %u", what,
             handle->inode->ino, handle->inode->nlink == 0 ? " (unlinked)" : "", handle->inode->size, offset, size,
             flags);
    subject(rig, handle->inode->ino);
}

static void operate_write(struct rig *rig)
{
    struct rig_handle temporary;
    uint64_t got_end = 0;
    uint64_t want_end = 0;
    struct rig_handle *handle = draw_handle(rig, &temporary);
    if (handle == NULL) {
        return;
    }
    const unsigned flags = chance(rig, rig->config.rows ? 70 : 40) ? STORE_WRITE_APPEND : (unsigned)below(rig, 4) << 1;
    uint64_t offset = draw_offset(rig, handle->inode);
    uint64_t size = draw_size(rig, RIG_DATA_BYTES);
    if (rig->model->total_bytes + size > rig->config.max_total_bytes) {
        size %= 100;
    }
    const uint8_t *bytes = draw_rows(rig, &size);
    if (chance(rig, 1)) {
        offset = (uint64_t)INT64_MAX - below(rig, size + 1) + (size == 0 ? 0 : 1); /* beyond what a file can be */
    }
    note_data(rig, "write", handle, offset, size, flags);
    if (flags & STORE_WRITE_APPEND) {
        offset = handle->inode->size;
    }
    const int got = store_write(handle->file, offset, bytes, (size_t)size, flags, &got_end);
    expect(rig, got, model_write(rig->model, handle->inode, offset, bytes, (size_t)size, flags, &want_end));
    if (got == 0 && size > 0 && got_end != want_end) {
        rig_fail(rig, "end is at %" PRIu64 ", should be at %" PRIu64, got_end, want_end);
    }
    if (got == 0) {
        compare_around(rig, handle, offset, size);
    }
    finish(rig);
    put_handle(rig, &temporary);
}

static void operate_read(struct rig *rig)
{
    struct rig_handle temporary;
    struct rig_handle *handle = draw_handle(rig, &temporary);
    if (handle == NULL) {
        return;
    }
    const uint64_t offset = draw_offset(rig, handle->inode);
    const uint64_t size = draw_size(rig, RIG_DATA_BYTES);
    note_data(rig, "read", handle, offset, size, 0);
    compare_around(rig, handle, offset, size);
    put_handle(rig, &temporary);
}

static void operate_allocate(struct rig *rig)
{
    static const unsigned modes[] = {0,
                                     STORE_ALLOCATE_KEEP_SIZE,
                                     STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_KEEP_SIZE,
                                     STORE_ALLOCATE_PUNCH | STORE_ALLOCATE_KEEP_SIZE,
                                     STORE_ALLOCATE_ZERO,
                                     STORE_ALLOCATE_ZERO | STORE_ALLOCATE_KEEP_SIZE};
    struct rig_handle temporary;
    struct rig_handle *handle = draw_handle(rig, &temporary);
    if (handle == NULL) {
        return;
    }
    const unsigned mode = modes[below(rig, ARRAY_COUNT(modes))];
    const uint64_t offset = draw_offset(rig, handle->inode);
    const uint64_t size = 1 + draw_size(rig, 100000);
    note_data(rig, "allocate", handle, offset, size, mode);
    const int got = store_allocate(handle->file, offset, size, mode);
    expect(rig, got, model_allocate(rig->model, handle->inode, offset, size, mode));
    compare_around(rig, handle, offset, size);
    finish(rig);
    put_handle(rig, &temporary);
}

/* What lies between the offset and the data found must be zeros; nothing behind the end may be found. */
static void operate_seek(struct rig *rig)
{
    struct rig_handle temporary;
    struct rig_handle *handle = draw_handle(rig, &temporary);
    uint64_t found = 0;
    if (handle == NULL) {
        return;
    }
    const struct model_inode *inode = handle->inode;
    const bool hole = chance(rig, 50);
    const uint64_t offset = draw_offset(rig, inode);
    note_data(rig, hole ? "seek hole in" : "seek data in", handle, offset, 0, 0);
    const int got = store_seek(handle->file, offset, hole, &found);
    if (offset >= inode->size || hole) {
        expect(rig, got, offset >= inode->size ? -ENXIO : 0);
    }
    if (got != 0 && got != -ENXIO) {
        rig_fail(rig, "answers %d", got);
    }
    const uint64_t zero_end = got == 0 ? found : inode->size;
    if (got == 0 && (found < offset || found > inode->size)) {
        rig_fail(rig, "found %" PRIu64, found);
    }
    for (uint64_t at = offset; !hole && at < zero_end; at++) {
        if (inode->bytes[at] != 0) {
            rig_fail(rig, "there is data at %" PRIu64 ", but %" PRIu64 " was found", at, found);
        }
    }
    put_handle(rig, &temporary);
}

/* Overwrites nearly all of a file, or cuts it to nothing: what editors do. */
static void operate_truncate(struct rig *rig)
{
    struct rig_handle temporary;
    struct store_attr attr = {0};
    struct store_attr out_attr;
    struct rig_handle *handle = draw_handle(rig, &temporary);
    if (handle == NULL) {
        return;
    }
    const uint64_t luck = below(rig, 3);
    attr.size_bytes =
        luck == 0 ? 0 : (luck == 1 ? below(rig, handle->inode->size + 1) : draw_offset(rig, handle->inode));
    note_data(rig, "truncate", handle, attr.size_bytes, 0, 0);
    const ino_no ino = handle->inode->ino;
    const int got =
        store_setattr(rig->store, rig_view(rig), ino, STORE_SET_SIZE | STORE_SET_KILL_SUID, &attr, &out_attr);
    expect(rig, got, model_setattr(rig->model, ino, STORE_SET_SIZE | STORE_SET_KILL_SUID, &attr));
    compare_around(rig, handle, attr.size_bytes, 1);
    finish(rig);
    put_handle(rig, &temporary);
}

static void operate_sync(struct rig *rig)
{
    rig_note(rig, "step");
    store_step(rig->store);
}

/* ---- all ---- */

struct operation {
    void (*run)(struct rig *rig);
    unsigned weight;
};

static const struct operation operations[] = {
    {operate_lookup, 60},   {operate_create, 70},    {operate_symlink, 15},  {operate_readlink, 15},
    {operate_link, 30},     {operate_unlink, 55},    {operate_rmdir, 15},    {operate_rename, 60},
    {operate_readdir, 15},  {operate_setattr, 40},   {operate_setxattr, 25}, {operate_removexattr, 12},
    {operate_getxattr, 20}, {operate_listxattr, 10}, {operate_open, 50},     {operate_close, 35},
    {operate_write, 220},   {operate_read, 90},      {operate_allocate, 30}, {operate_seek, 20},
    {operate_truncate, 30}, {operate_sync, 10},
};

static const struct operation *draw_operation(struct rig *rig)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < ARRAY_COUNT(operations); i++) {
        sum += operations[i].weight;
    }
    uint64_t luck = below(rig, sum);
    unsigned i = 0;
    while (luck >= operations[i].weight) {
        luck -= operations[i].weight;
        i++;
    }
    return &operations[i];
}

void rig_operate(struct rig *rig)
{
    rig->step++;
    rig->subject_count = 0;
    model_begin(rig->model);
    if (rig->step % 4000 == 0) {
        rig->inode_limit = 5 + (unsigned)below(rig, rig->config.max_inodes);
    }
    rig->time_before_ns = (int64_t)io_realtime_ns(rig->dev);
    if (rig->model->count > rig->inode_limit) {
        chance(rig, 80) ? operate_unlink(rig) : operate_rmdir(rig);
    } else if (rig->model->total_bytes > rig->config.max_total_bytes && chance(rig, 20)) {
        operate_truncate(rig);
    } else {
        draw_operation(rig)->run(rig);
    }
    finish(rig);
}
