/*
 * tests/crash/fingerprint.c - one number for all that a reader can see of the live tree and of the named snapshots.
 */
#include "tests/crash/crash.h"

#include "base/checksum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define READ_BYTES 65536u

struct found {
    ino_no ino;
    uint32_t mode;
};

struct walk {
    struct store *store;
    struct view *view;
    uint64_t hash;
    struct found *queue; /* inodes to be looked into */
    size_t count, capacity;
    uint8_t *bytes; /* READ_BYTES */
};

static void mix(struct walk *walk, const void *bytes, size_t size)
{
    walk->hash = checksum_64(bytes, size, walk->hash);
}

static void mix_attr(struct walk *walk, const struct store_attr *attr)
{
    const uint64_t fields[] = {attr->ino,
                               attr->mode,
                               attr->nlink,
                               attr->uid,
                               attr->gid,
                               attr->rdev,
                               S_ISDIR(attr->mode) ? 0 : attr->size_bytes,
                               (uint64_t)attr->atime_ns,
                               (uint64_t)attr->mtime_ns,
                               (uint64_t)attr->ctime_ns};
    mix(walk, fields, sizeof fields);
}

static int queue_add(struct walk *walk, ino_no ino, uint32_t mode)
{
    if (walk->count == walk->capacity) {
        const size_t capacity = walk->capacity * 2 + 32;
        struct found *queue = realloc(walk->queue, capacity * sizeof queue[0]);
        if (queue == NULL) {
            return -ENOMEM;
        }
        walk->queue = queue;
        walk->capacity = capacity;
    }
    walk->queue[walk->count++] = (struct found){.ino = ino, .mode = mode};
    return 0;
}

static int add_entry(void *arg, const struct store_dir_entry *entry)
{
    struct walk *walk = arg;
    mix(walk, entry->name, entry->name_size);
    mix_attr(walk, entry->attr);
    return queue_add(walk, entry->ino, entry->attr->mode);
}

static int mix_content(struct walk *walk, ino_no ino)
{
    struct store_file *file = NULL;
    int rc = store_file_open(walk->store, walk->view, ino, &file);
    if (rc != 0) {
        return rc;
    }
    size_t got = READ_BYTES;
    for (uint64_t at = 0; rc == 0 && got == READ_BYTES; at += READ_BYTES) {
        rc = store_read(file, at, walk->bytes, READ_BYTES, &got);
        if (rc == 0) {
            mix(walk, walk->bytes, got);
        }
    }
    store_file_close(file);
    return rc;
}

static int mix_xattrs(struct walk *walk, ino_no ino)
{
    struct view *live = walk->view;
    char names[2048];
    size_t size = 0;
    int rc = store_listxattr(walk->store, live, ino, names, sizeof names, &size);
    for (size_t at = 0; rc == 0 && at < size; at += strlen(names + at) + 1) {
        size_t value_size = 0;
        rc = store_getxattr(walk->store, live, ino, names + at, walk->bytes, READ_BYTES, &value_size);
        if (rc == 0) {
            mix(walk, names + at, strlen(names + at));
            mix(walk, walk->bytes, value_size);
        }
    }
    return rc;
}

static int mix_target(struct walk *walk, ino_no ino)
{
    size_t size = 0;
    const int rc = store_readlink(walk->store, walk->view, ino, (char *)walk->bytes, READ_BYTES, &size);
    if (rc == 0) {
        mix(walk, walk->bytes, size);
    }
    return rc;
}

static int look_into(struct walk *walk, struct found found)
{
    int rc = 0;
    if (S_ISDIR(found.mode)) {
        rc = store_readdir(walk->store, walk->view, found.ino, 0, true, add_entry, walk);
    } else if (S_ISREG(found.mode)) {
        rc = mix_content(walk, found.ino);
    } else if (S_ISLNK(found.mode)) {
        rc = mix_target(walk, found.ino);
    }
    return rc != 0 ? rc : mix_xattrs(walk, found.ino);
}

/* One view, added to the hash. */
static int mix_view(struct walk *walk, struct view *view)
{
    struct store_attr root;
    walk->view = view;
    walk->count = 0;
    int rc = store_getattr(walk->store, view, INO_ROOT, &root);
    if (rc == 0) {
        mix_attr(walk, &root);
        rc = queue_add(walk, INO_ROOT, root.mode);
    }
    for (size_t i = 0; rc == 0 && i < walk->count; i++) {
        rc = look_into(walk, walk->queue[i]);
    }
    return rc;
}

#define SNAPSHOTS_MAX 8u

struct snapshot_names {
    char names[SNAPSHOTS_MAX][256];
    size_t sizes[SNAPSHOTS_MAX];
    unsigned count;
    struct walk *walk;
};

static int note_snapshot(void *arg, const struct store_snapshot_info *info)
{
    struct snapshot_names *names = arg;
    if (names->count == SNAPSHOTS_MAX) {
        return -E2BIG;
    }
    const uint64_t fields[] = {info->number, (uint64_t)info->created_ns};
    mix(names->walk, fields, sizeof fields);
    mix(names->walk, info->name, info->name_size);
    memcpy(names->names[names->count], info->name, info->name_size);
    names->sizes[names->count++] = info->name_size;
    return 0;
}

static int mix_snapshots(struct walk *walk)
{
    struct snapshot_names names = {.walk = walk};
    int rc = store_each_snapshot(walk->store, note_snapshot, &names);
    for (unsigned i = 0; i < names.count && rc == 0; i++) {
        struct store_snapshot *snapshot = NULL;
        rc = store_snapshot_get(walk->store, (struct store_name){.bytes = names.names[i], .size = names.sizes[i]},
                                &snapshot);
        if (rc == 0) {
            rc = mix_view(walk, store_snapshot_view(snapshot));
            store_snapshot_put(snapshot);
        }
    }
    return rc;
}

int crash_fingerprint_view(struct store *store, struct view *view, uint64_t *out_fingerprint)
{
    struct walk walk = {.store = store, .bytes = malloc(READ_BYTES)};
    int rc = walk.bytes != NULL ? mix_view(&walk, view) : -ENOMEM;
    if (rc == 0) {
        rc = mix_snapshots(&walk);
    }
    free(walk.queue);
    free(walk.bytes);
    *out_fingerprint = walk.hash;
    return rc;
}

int crash_fingerprint(struct store *store, uint64_t *out_fingerprint)
{
    return crash_fingerprint_view(store, store_live(store), out_fingerprint);
}

/* ---- diagnostics ---- */

static void keep_line(struct diag *diag, enum diag_level level, const char *line)
{
    struct crash_diag *kept = (struct crash_diag *)diag;
    (void)level;
    (void)snprintf(kept->lines[kept->next++ % ARRAY_COUNT(kept->lines)], sizeof kept->lines[0], "%s", line);
}

void crash_diag_init(struct crash_diag *diag)
{
    *diag = (struct crash_diag){.diag = {.emit = keep_line, .max_level = DIAG_WARNING}};
}
