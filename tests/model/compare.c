/*
 * tests/model/compare.c - see compare.h.
 */
#include "tests/model/compare.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define COMPARE_CHUNK_BYTES (128u * 1024u)
#define SAMPLE_BYTES        1000u

static bool differ(struct compare *compare, const char *fmt, ...) PRINTF_LIKE(2, 3);

static bool differ(struct compare *compare, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(compare->why, sizeof compare->why, fmt, args);
    va_end(args);
    return false;
}

/* 0: compare on; 1: refused with -EIO, which is tolerated; negative: a difference. */
static int judge(struct compare *compare, int result, const char *what, ino_no ino)
{
    if (result == 0) {
        return 0;
    }
    if (result == -EIO && compare->tolerate_eio && (compare->eio_only == INO_NONE || compare->eio_only == ino)) {
        compare->eio_count++;
        return 1;
    }
    differ(compare, "%s of inode %" PRIu64 " answers %d", what, ino, result);
    return -1;
}

/* ---- attributes ---- */

#define COMPARE_FIELD(field, format)                                                                                   \
    if (got->field != want->field) {                                                                                   \
        return differ(compare, "inode %" PRIu64 ": " #field " is %" format ", should be %" format, want->ino,          \
                      got->field, want->field);                                                                        \
    }

bool compare_attr(struct compare *compare, const struct store_attr *got, const struct store_attr *want)
{
    COMPARE_FIELD(ino, PRIu64)
    COMPARE_FIELD(mode, PRIo32)
    COMPARE_FIELD(nlink, PRIu32)
    COMPARE_FIELD(uid, PRIu32)
    COMPARE_FIELD(gid, PRIu32)
    COMPARE_FIELD(rdev, PRIu32)
    COMPARE_FIELD(atime_ns, PRId64)
    COMPARE_FIELD(mtime_ns, PRId64)
    COMPARE_FIELD(ctime_ns, PRId64)
    if (!S_ISDIR(want->mode)) {
        COMPARE_FIELD(size_bytes, PRIu64)
    }
    return true;
}

/* ---- content ---- */

static bool compare_bytes(struct compare *compare, const struct model_inode *inode, uint64_t offset, const void *got,
                          size_t got_size, size_t asked)
{
    const uint64_t left = offset < inode->size ? inode->size - offset : 0;
    const size_t want_size = asked < left ? asked : (size_t)left;
    if (got_size != want_size) {
        return differ(compare, "inode %" PRIu64 ": read of %zu at %" PRIu64 " gave %zu bytes, should be %zu",
                      inode->ino, asked, offset, got_size, want_size);
    }
    if (want_size == 0 || memcmp(got, inode->bytes + offset, want_size) == 0) {
        return true;
    }
    size_t at = 0;
    while (((const uint8_t *)got)[at] == inode->bytes[offset + at]) {
        at++;
    }
    return differ(compare, "inode %" PRIu64 ": byte %" PRIu64 " is 0x%02x, should be 0x%02x (size %zu)", inode->ino,
                  offset + at, ((const uint8_t *)got)[at], inode->bytes[offset + at], inode->size);
}

bool compare_range(struct compare *compare, struct store_file *file, const struct model_inode *inode, uint64_t offset,
                   size_t size)
{
    uint8_t *buffer = malloc(size ? size : 1);
    size_t got = 0;
    int verdict =
        judge(compare, buffer == NULL ? -ENOMEM : store_read(file, offset, buffer, size, &got), "read", inode->ino);
    const bool same = verdict == 1 || (verdict == 0 && compare_bytes(compare, inode, offset, buffer, got, size));
    free(buffer);
    return same;
}

bool compare_pieces(struct compare *compare, struct store_file *file, const struct model_inode *inode, uint64_t offset,
                    size_t size)
{
    struct content_pieces pieces = {0};
    struct frame_budget budget = {0};
    int result = store_read_pieces(file, offset, size, &pieces, &budget);
    if (result == -E2BIG) {
        return compare_range(compare, file, inode, offset, size);
    }
    int verdict = judge(compare, result, "read by pieces", inode->ino);
    if (verdict != 0) {
        return verdict == 1;
    }
    bool same = true;
    size_t done = 0;
    for (unsigned i = 0; same && i < pieces.count; i++) {
        same = compare_bytes(compare, inode, offset + done, pieces.iov[i].iov_base, pieces.iov[i].iov_len,
                             pieces.iov[i].iov_len);
        done += pieces.iov[i].iov_len;
    }
    const uint64_t left = offset < inode->size ? inode->size - offset : 0;
    if (same && (done != pieces.size_bytes || done != (size < left ? size : left))) {
        same =
            differ(compare, "inode %" PRIu64 ": %zu bytes in pieces, said to be %zu, asked for %zu of %zu at %" PRIu64,
                   inode->ino, done, pieces.size_bytes, size, inode->size, offset);
    }
    content_pieces_release(&pieces);
    frame_budget_release(&budget);
    return same;
}

static bool compare_all(struct compare *compare, struct store_file *file, const struct model_inode *inode)
{
    bool same = true;
    for (uint64_t offset = 0; same && offset <= inode->size; offset += COMPARE_CHUNK_BYTES) {
        same = compare_range(compare, file, inode, offset, COMPARE_CHUNK_BYTES);
    }
    return same;
}

static bool compare_content(struct compare *compare, const struct model_inode *inode)
{
    struct store_file *file;
    int verdict = judge(compare, store_file_open(compare->store, compare->view, inode->ino, &file), "open", inode->ino);
    if (verdict != 0) {
        return verdict == 1;
    }
    const bool sample =
        compare->sample_bytes > 0 && inode->size > compare->sample_bytes && inode->ino != compare->never_sample;
    bool same = sample ? compare_range(compare, file, inode, 0, SAMPLE_BYTES) &&
                             compare_range(compare, file, inode, inode->size - SAMPLE_BYTES, SAMPLE_BYTES + 1)
                       : compare_all(compare, file, inode);
    store_file_close(file);
    return same;
}

static bool compare_target(struct compare *compare, const struct model_inode *inode)
{
    char target[4096];
    size_t size = 0;
    int verdict =
        judge(compare, store_readlink(compare->store, compare->view, inode->ino, target, sizeof target, &size),
              "readlink", inode->ino);
    if (verdict != 0) {
        return verdict == 1;
    }
    if (size != inode->size || memcmp(target, inode->bytes, size) != 0) {
        return differ(compare, "inode %" PRIu64 ": target is \"%.*s\", should be \"%.*s\"", inode->ino, (int)size,
                      target, (int)inode->size, (const char *)inode->bytes);
    }
    return true;
}

/* ---- extended attributes ---- */

static bool compare_xattr(struct compare *compare, const struct model_inode *inode, const struct model_xattr *want)
{
    uint8_t value[XATTR_MAX_VALUE];
    size_t size = 0;
    int verdict = judge(
        compare, store_getxattr(compare->store, compare->view, inode->ino, want->name, value, sizeof value, &size),
        "getxattr", inode->ino);
    if (verdict != 0) {
        return verdict == 1;
    }
    if (size != want->value_size || memcmp(value, want->value, size) != 0) {
        return differ(compare, "inode %" PRIu64 ": attribute %s has %zu bytes, should have %zu, or they differ",
                      inode->ino, want->name, size, want->value_size);
    }
    return true;
}

bool compare_xattrs(struct compare *compare, const struct model_inode *inode)
{
    char names[8192];
    size_t size = 0;
    int verdict = judge(compare, store_listxattr(compare->store, compare->view, inode->ino, names, sizeof names, &size),
                        "listxattr", inode->ino);
    if (verdict != 0) {
        return verdict == 1;
    }
    size_t count = 0;
    for (size_t at = 0; at < size; at += strlen(names + at) + 1) {
        if (model_find_xattr(inode, names + at) == NULL) {
            return differ(compare, "inode %" PRIu64 ": attribute %s should not be there", inode->ino, names + at);
        }
        count++;
    }
    if (count != inode->xattr_count) {
        return differ(compare, "inode %" PRIu64 ": %zu attributes, should be %zu", inode->ino, count,
                      inode->xattr_count);
    }
    for (size_t i = 0; i < inode->xattr_count; i++) {
        if (!compare_xattr(compare, inode, &inode->xattrs[i])) {
            return false;
        }
    }
    return true;
}

/* ---- directories ---- */

struct listing {
    struct compare *compare;
    const struct model_inode *dir;
    uint64_t last_cookie;
    size_t seen;
    unsigned left; /* entries until this round stops */
};

static int list_entry(void *arg, const struct store_dir_entry *entry)
{
    struct listing *listing = arg;
    struct compare *compare = listing->compare;
    const struct store_name name = {entry->name, entry->name_size};
    const struct model_entry *want = model_find_entry(listing->dir, name);
    if (want == NULL || want->ino != entry->ino) {
        differ(compare, "directory %" PRIu64 ": entry \"%.*s\" -> %" PRIu64 " should %s", listing->dir->ino,
               (int)name.size, name.bytes, entry->ino, want == NULL ? "not be there" : "lead elsewhere");
        return -EBADMSG;
    }
    const struct model_inode *child = model_find(compare->model, want->ino);
    struct store_attr want_attr;
    model_attr(compare->model, child, &want_attr);
    if (entry->cookie <= listing->last_cookie || entry->cookie <= 2 || entry->cookie > INT64_MAX ||
        entry->mode_type != (child->mode & S_IFMT)) {
        differ(compare, "directory %" PRIu64 ": entry \"%.*s\": cookie %" PRIu64 " after %" PRIu64 ", type %" PRIo32,
               listing->dir->ino, (int)name.size, name.bytes, entry->cookie, listing->last_cookie, entry->mode_type);
        return -EBADMSG;
    }
    if (entry->attr == NULL || !compare_attr(compare, entry->attr, &want_attr)) {
        return -EBADMSG;
    }
    listing->last_cookie = entry->cookie;
    listing->seen++;
    return listing->left > 0 && --listing->left == 0 ? 1 : 0;
}

bool compare_dir(struct compare *compare, const struct model_inode *inode)
{
    struct listing listing = {.compare = compare, .dir = inode};
    size_t before;
    do {
        before = listing.seen;
        listing.left = compare->resume;
        compare->why[0] = '\0';
        int result =
            store_readdir(compare->store, compare->view, inode->ino, listing.last_cookie, true, list_entry, &listing);
        if (result == -EBADMSG && compare->why[0] != '\0') {
            return false;
        }
        int verdict = judge(compare, result, "readdir", inode->ino);
        if (verdict != 0) {
            return verdict == 1;
        }
    } while (compare->resume > 0 && listing.seen > before);
    if (listing.seen != inode->entry_count) {
        return differ(compare, "directory %" PRIu64 ": %zu entries, should be %zu", inode->ino, listing.seen,
                      inode->entry_count);
    }
    return true;
}

static bool compare_parent(struct compare *compare, const struct model_inode *inode)
{
    ino_no parent = INO_NONE;
    int verdict =
        judge(compare, store_parent(compare->store, compare->view, inode->ino, &parent), "parent", inode->ino);
    if (verdict != 0) {
        return verdict == 1;
    }
    return parent == inode->parent || differ(compare, "directory %" PRIu64 ": parent is %" PRIu64 ", not %" PRIu64,
                                             inode->ino, parent, inode->parent);
}

/* ---- all ---- */

bool compare_inode(struct compare *compare, const struct model_inode *inode)
{
    struct store_attr got;
    struct store_attr want;
    model_attr(compare->model, inode, &want);
    int verdict = judge(compare, store_getattr(compare->store, compare->view, inode->ino, &got), "getattr", inode->ino);
    if (verdict < 0 || (verdict == 0 && !compare_attr(compare, &got, &want))) {
        return false;
    }
    if (S_ISREG(inode->mode) && !compare_content(compare, inode)) {
        return false;
    }
    if (S_ISLNK(inode->mode) && !compare_target(compare, inode)) {
        return false;
    }
    if (S_ISDIR(inode->mode) && !(compare_dir(compare, inode) && compare_parent(compare, inode))) {
        return false;
    }
    return compare_xattrs(compare, inode);
}

static bool compare_lookups(struct compare *compare, const struct model_inode *dir)
{
    for (size_t i = 0; i < dir->entry_count; i++) {
        const struct model_entry *entry = &dir->entries[i];
        struct store_attr got;
        int verdict = judge(compare,
                            store_lookup(compare->store, compare->view, dir->ino,
                                         (struct store_name){entry->name, entry->name_size}, &got),
                            "lookup", dir->ino);
        if (verdict < 0) {
            return false;
        }
        if (verdict == 0 && got.ino != entry->ino) {
            return differ(compare, "lookup of \"%.*s\" gives inode %" PRIu64 ", not %" PRIu64, (int)entry->name_size,
                          entry->name, got.ino, entry->ino);
        }
    }
    return true;
}

bool compare_tree(struct compare *compare)
{
    for (size_t i = 0; i < compare->model->count; i++) {
        const struct model_inode *inode = compare->model->all[i];
        if (inode->nlink == 0) {
            continue;
        }
        if (!compare_inode(compare, inode) || (S_ISDIR(inode->mode) && !compare_lookups(compare, inode))) {
            return false;
        }
    }
    return true;
}
