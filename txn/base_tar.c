/*
 * txn/base_tar.c - where a base goes: a directory, or a stream in tar's format (POSIX ustar; sizes from 8 GiB on in base 256, as GNU tar
 * writes and everybody reads them).
 */
#include "txn/base_int.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OCTAL_SIZE_MAX (UINT64_C(1) << 33)

/* ---- headers ---- */

static unsigned checksum_of(const struct tar_header *header)
{
    const unsigned char *bytes = (const unsigned char *)header;
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof *header; i++) {
        const bool own = i >= offsetof(struct tar_header, checksum) && i < offsetof(struct tar_header, type);
        sum += own ? ' ' : bytes[i];
    }
    return sum;
}

static void put_octal(char *field, size_t size, uint64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%0*" PRIo64, (int)size - 1, value);
    memcpy(field, text, size); /* with the NUL */
}

static void put_size(char field[12], uint64_t value)
{
    if (value < OCTAL_SIZE_MAX) {
        put_octal(field, 12, value);
        return;
    }
    memset(field, 0, 12);
    field[0] = (char)0x80;
    for (unsigned i = 0; i < 8; i++) {
        field[11 - i] = (char)(value >> (8 * i));
    }
}

void tar_header_make(struct tar_header *header, const char *name, uint64_t size_bytes, int64_t time_s)
{
    memset(header, 0, sizeof *header);
    (void)snprintf(header->name, sizeof header->name, "%s", name);
    put_octal(header->mode, sizeof header->mode, 0600);
    put_octal(header->uid, sizeof header->uid, 0);
    put_octal(header->gid, sizeof header->gid, 0);
    put_size(header->size, size_bytes);
    put_octal(header->mtime, sizeof header->mtime, time_s > 0 ? (uint64_t)time_s : 0);
    header->type = '0';
    memcpy(header->magic, "ustar", 6);
    memcpy(header->version, "00", 2);
    put_octal(header->checksum, 7, checksum_of(header));
    header->checksum[7] = ' ';
}

static bool read_octal(const char *field, size_t size, uint64_t *out_value)
{
    *out_value = 0;
    for (size_t i = 0; i + 1 < size; i++) {
        if (field[i] < '0' || field[i] > '7') {
            return false;
        }
        *out_value = *out_value * 8 + (uint64_t)(field[i] - '0');
    }
    return true;
}

bool tar_header_parse(const struct tar_header *header, char name[BASE_NAME_SIZE], uint64_t *out_size)
{
    struct tar_header again;
    uint64_t time_s = 0;
    if (memchr(header->name, '\0', BASE_NAME_SIZE) == NULL ||
        !read_octal(header->mtime, sizeof header->mtime, &time_s)) {
        return false;
    }
    (void)snprintf(name, BASE_NAME_SIZE, "%.*s", (int)BASE_NAME_SIZE - 1, header->name);
    if ((unsigned char)header->size[0] == 0x80) {
        *out_size = 0;
        for (unsigned i = 4; i < 12; i++) {
            *out_size = *out_size << 8 | (unsigned char)header->size[i];
        }
    } else if (!read_octal(header->size, sizeof header->size, out_size)) {
        return false;
    }
    tar_header_make(&again, name, *out_size, (int64_t)time_s);
    return memcmp(header, &again, sizeof again) == 0; /* BASE-2: no byte of it is free */
}

/* ---- a stream as a sink ---- */

static int tar_begin(void *arg, const char *name, uint64_t size_bytes)
{
    struct base_tar_sink *sink = arg;
    struct tar_header header;
    tar_header_make(&header, name, size_bytes, sink->time_ns / 1000000000);
    sink->left = size_bytes;
    sink->padding = (TAR_BLOCK - size_bytes % TAR_BLOCK) % TAR_BLOCK;
    return sink->put(sink->arg, &header, sizeof header);
}

static int tar_write(void *arg, const void *bytes, size_t size_bytes)
{
    struct base_tar_sink *sink = arg;
    if (size_bytes > sink->left) {
        return -EFBIG;
    }
    sink->left -= size_bytes;
    return sink->put(sink->arg, bytes, size_bytes);
}

static int tar_end(void *arg)
{
    static const char zeros[TAR_BLOCK];
    struct base_tar_sink *sink = arg;
    if (sink->left != 0) {
        return -EIO;
    }
    return sink->padding != 0 ? sink->put(sink->arg, zeros, sink->padding) : 0;
}

static int tar_finish(void *arg)
{
    static const char zeros[2 * TAR_BLOCK];
    struct base_tar_sink *sink = arg;
    return sink->put(sink->arg, zeros, sizeof zeros);
}

void base_tar_sink_init(struct base_tar_sink *sink, int (*put)(void *arg, const void *bytes, size_t size_bytes),
                        void *arg, int64_t time_ns, struct base_sink *out_sink)
{
    *sink = (struct base_tar_sink){.put = put, .arg = arg, .time_ns = time_ns};
    *out_sink =
        (struct base_sink){.begin = tar_begin, .write = tar_write, .end = tar_end, .finish = tar_finish, .arg = sink};
}

/* ---- a directory as a sink ---- */

static int refuse_entry(void *arg, const char *name, enum io_file_kind kind)
{
    (void)arg;
    (void)name;
    (void)kind;
    return -ENOTEMPTY;
}

static int make_dir(struct io_device *dev, const char *path)
{
    const int rc = io_make_dir(dev, path);
    return rc == -EEXIST ? 0 : rc;
}

/* The directories above the file, which is two levels down. */
static int make_parents(const struct base_dir_sink *sink, const char *name)
{
    char path[sizeof sink->path];
    int rc = 0;
    for (const char *slash = strchr(name, '/'); slash != NULL && rc == 0; slash = strchr(slash + 1, '/')) {
        (void)snprintf(path, sizeof path, "%s/%.*s", sink->dir, (int)(slash - name), name);
        rc = make_dir(sink->dev, path);
    }
    return rc;
}

static int dir_begin(void *arg, const char *name, uint64_t size_bytes)
{
    struct base_dir_sink *sink = arg;
    (void)size_bytes;
    int rc = make_parents(sink, name);
    sink->offset = 0;
    (void)snprintf(sink->path, sizeof sink->path, "%s/%s", sink->dir, name);
    return rc == 0 ? io_open(sink->dev, sink->path, IO_READ_WRITE | IO_CREATE | IO_EXCLUSIVE, &sink->file) : rc;
}

static int dir_write(void *arg, const void *bytes, size_t size_bytes)
{
    struct base_dir_sink *sink = arg;
    const int rc = io_write_full(sink->file, bytes, size_bytes, sink->offset);
    sink->offset += size_bytes;
    return rc;
}

static int dir_end(void *arg)
{
    struct base_dir_sink *sink = arg;
    int rc = io_sync(sink->file);
    const int close_rc = io_close(sink->file);
    sink->file = NULL;
    rc = rc == 0 ? close_rc : rc;
    char *slash = strrchr(sink->path, '/');
    *slash = '\0';
    return rc == 0 ? io_sync_dir(sink->dev, sink->path) : rc;
}

static int dir_finish(void *arg)
{
    struct base_dir_sink *sink = arg;
    (void)snprintf(sink->path, sizeof sink->path, "%s/rel", sink->dir);
    const int rc = io_sync_dir(sink->dev, sink->path);
    return rc == 0 ? io_sync_dir(sink->dev, sink->dir) : rc;
}

int base_dir_sink_init(struct base_dir_sink *sink, struct io_device *dev, const char *dir, struct base_sink *out_sink)
{
    *sink = (struct base_dir_sink){.dev = dev, .dir = dir};
    *out_sink =
        (struct base_sink){.begin = dir_begin, .write = dir_write, .end = dir_end, .finish = dir_finish, .arg = sink};
    const int rc = make_dir(dev, dir);
    return rc == 0 ? io_list_dir(dev, dir, refuse_entry, NULL) : rc;
}

void base_dir_sink_destroy(struct base_dir_sink *sink)
{
    if (sink->file != NULL) {
        const int rc = io_close(sink->file);
        (void)rc; /* something else had failed */
    }
}
