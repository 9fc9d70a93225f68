/*
 * txn/base_read.c - reads a base, from a directory or a stream, and looks at every byte of it.
 *
 * Files are read as they come; the manifest, which is the last of a stream, is compared with what was seen when all is read. A page is handed
 * on only when its own checksum is right; whether its file is the one that was written is known at the end.
 *
 * Locking: none, nothing is shared but the numbers of the progress.
 */
#include "txn/base_int.h"

#include "base/array.h"
#include "base/checksum.h"
#include "bufcache/page_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BLOCKS       64u
#define MANIFEST_MAX_BYTES (UINT64_C(4) << 30)
#define PATH_SIZE          4400u

struct base_read {
    const struct base_read_options *options;
    struct base_files seen;
    char *manifest; /* NULL: not seen yet */
    uint8_t *chunk; /* CHUNK_BLOCKS */
    uint64_t findings;
    struct io_file *file; /* of a directory */
    uint64_t offset;      /* in it, or in the stream */
    uint64_t page;        /* of the file that is being read */
};

static void finding(struct base_read *read, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void finding(struct base_read *read, const char *name, const char *fmt, ...)
{
    char text[300];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    read->findings++;
    diag_log(read->options->diag, DIAG_ERROR, "%s: %s: %s", read->options->name, name, text);
}

/* ---- bytes ---- */

/* Up to size bytes of the stream, or of the open file; less at its end only. */
static int get_bytes(struct base_read *read, void *bytes, size_t size, size_t *out_got)
{
    const struct base_source *source = read->options->source;
    size_t got = 0;
    int rc = 0;
    if (source->get == NULL) {
        rc = io_read_full(read->file, bytes, size, read->offset, &got);
    }
    while (source->get != NULL && got < size && rc == 0) {
        const ssize_t more = source->get(source->arg, (char *)bytes + got, size - got);
        if (more == 0) {
            break;
        }
        rc = more < 0 ? (int)more : 0;
        got += more > 0 ? (size_t)more : 0;
    }
    read->offset += got;
    *out_got = got;
    if (rc == 0 && read->options->progress != NULL) {
        atomic_fetch_add(&read->options->progress->done_bytes, got);
    }
    return rc;
}

/* ---- files ---- */

/* Is it a whole page of that relation behind `*inout_next`? */
static bool check_page(struct base_read *read, const struct base_file *file, rel_no rel, const uint8_t *page,
                       uint64_t *inout_next)
{
    struct page_header header;
    memcpy(&header, page, sizeof header);
    const block_no block = le32_get(header.block);
    const char *wrong = NULL;
    if (le64_get(header.checksum) !=
        checksum_64(page + sizeof header.checksum, BLOCK_SIZE - sizeof header.checksum, 0)) {
        wrong = "its checksum is not right";
    } else if (le64_get(header.rel) != rel) {
        wrong = "it belongs to another relation";
    } else if (block < *inout_next || block == BLOCK_NONE) {
        wrong = "it is not in the order of the blocks";
    }
    if (wrong != NULL) {
        finding(read, file->name, "page %" PRIu64 ", of block %" PRIu32 ": %s", read->page, block, wrong);
        return false;
    }
    *inout_next = (uint64_t)block + 1;
    return true;
}

static int visit_pages(struct base_read *read, const struct base_file *file, rel_no rel, const uint8_t *pages,
                       size_t count, uint64_t *inout_next)
{
    const struct base_visitor *visitor = read->options->visitor;
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        const uint8_t *page = pages + i * BLOCK_SIZE;
        const bool good = check_page(read, file, rel, page, inout_next);
        read->page++;
        if (good && visitor != NULL && visitor->page != NULL) {
            rc = visitor->page(visitor->arg, rel, (block_no)(*inout_next - 1), page);
        }
    }
    return rc;
}

/* The pages of a file of that size, as far as they are there. */
static int read_pages(struct base_read *read, rel_no rel, struct base_file *file)
{
    uint64_t left = file->size_bytes;
    uint64_t next = 0;
    int rc = 0;
    read->page = 0;
    while (left > 0 && rc == 0) {
        const size_t want = left < (uint64_t)CHUNK_BLOCKS * BLOCK_SIZE ? (size_t)left : CHUNK_BLOCKS * BLOCK_SIZE;
        size_t got = 0;
        rc = get_bytes(read, read->chunk, want, &got);
        for (size_t at = 0; at < got; at += BLOCK_SIZE) {
            file->checksum =
                base_checksum_add(file->checksum, read->chunk + at, got - at < BLOCK_SIZE ? got - at : BLOCK_SIZE);
        }
        if (rc == 0) {
            rc = visit_pages(read, file, rel, read->chunk, got / BLOCK_SIZE, &next);
        }
        if (rc == 0 && got < want) {
            finding(read, file->name, "it ends %" PRIu64 " bytes early", left - got);
            return 0;
        }
        left -= got;
    }
    return rc;
}

static int read_relation(struct base_read *read, const char *name, rel_no rel, uint64_t size_bytes)
{
    const struct base_visitor *visitor = read->options->visitor;
    struct base_file file;
    memset(&file, 0, sizeof file);
    (void)snprintf(file.name, sizeof file.name, "%s", name);
    file.size_bytes = size_bytes;
    int rc = visitor != NULL && visitor->begin != NULL ? visitor->begin(visitor->arg, rel) : 0;
    if (rc == 0) {
        rc = read_pages(read, rel, &file);
    }
    if (rc == 0 && visitor != NULL && visitor->end != NULL) {
        rc = visitor->end(visitor->arg, rel);
    }
    return rc == 0 ? base_files_add(&read->seen, &file) : rc;
}

static int read_manifest(struct base_read *read, uint64_t size_bytes)
{
    size_t got = 0;
    if (read->manifest != NULL || size_bytes > MANIFEST_MAX_BYTES) {
        finding(read, BASE_MANIFEST, "there are two of them, or it is too long");
        return -EIO;
    }
    read->manifest = malloc((size_t)size_bytes + 1);
    if (read->manifest == NULL) {
        return -ENOMEM;
    }
    const int rc = get_bytes(read, read->manifest, (size_t)size_bytes, &got);
    read->manifest[got] = '\0';
    if (strlen(read->manifest) < got) {
        read->manifest[0] = '\0'; /* a NUL in the middle hides what follows: it is no manifest */
    }
    return rc;
}

static int read_entry(struct base_read *read, const char *name, uint64_t size_bytes)
{
    rel_no rel = REL_NONE;
    if (strcmp(name, BASE_MANIFEST) == 0) {
        return read_manifest(read, size_bytes);
    }
    if (base_file_parse(name, &rel)) {
        return read_relation(read, name, rel, size_bytes);
    }
    finding(read, name, "it does not belong there");
    return read->options->source->get != NULL ? -EIO : 0; /* what follows in a stream cannot be told any more */
}

/* ---- a stream ---- */

static bool is_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* A block of zeros of that size (of padding, or at the end). */
static int expect_zeros(struct base_read *read, const char *name, size_t size)
{
    uint8_t block[TAR_BLOCK];
    size_t got = 0;
    const int rc = size > 0 ? get_bytes(read, block, size, &got) : 0;
    if (rc == 0 && (got < size || !is_zero(block, size))) {
        finding(read, name, "what follows it is not zero");
        return -EIO;
    }
    return rc;
}

static int read_tar_entry(struct base_read *read, bool *out_end)
{
    struct tar_header header;
    char name[BASE_NAME_SIZE];
    uint64_t size_bytes = 0;
    size_t got = 0;
    int rc = get_bytes(read, &header, sizeof header, &got);
    *out_end = rc == 0 && got == sizeof header && is_zero((const uint8_t *)&header, sizeof header);
    if (rc != 0) {
        return rc;
    }
    if (*out_end) {
        return expect_zeros(read, "end", TAR_BLOCK);
    }
    if (got < sizeof header || !tar_header_parse(&header, name, &size_bytes)) {
        finding(read, "stream",
                got < sizeof header ? "it ends at %" PRIu64 ", too early"
                                    : "at %" PRIu64 ": the header of a file is damaged",
                read->offset);
        return -EIO;
    }
    rc = read_entry(read, name, size_bytes);
    return rc == 0 ? expect_zeros(read, name, (TAR_BLOCK - size_bytes % TAR_BLOCK) % TAR_BLOCK) : rc;
}

static int read_stream(struct base_read *read)
{
    bool end = false;
    int rc = 0;
    while (rc == 0 && !end) {
        rc = read_tar_entry(read, &end);
    }
    return rc;
}

/* ---- a directory ---- */

struct listing {
    struct base_read *read;
    const char *prefix; /* "" or "rel/" or "rel/HH/" */
    struct base_files *files;
    int depth;
};

static int list_level(struct base_read *read, const char *prefix, int depth, struct base_files *files);

static int note_entry(void *arg, const char *name, enum io_file_kind kind)
{
    struct listing *listing = arg;
    struct base_file file;
    char full[PATH_SIZE];
    memset(&file, 0, sizeof file);
    (void)snprintf(full, sizeof full, "%s%s", listing->prefix, name);
    if (kind == IO_KIND_DIRECTORY && listing->depth < 2 && strlen(full) < BASE_NAME_SIZE - 2) {
        char below[BASE_NAME_SIZE];
        (void)snprintf(below, sizeof below, "%.*s/", (int)sizeof below - 2, full);
        return list_level(listing->read, below, listing->depth + 1, listing->files);
    }
    if (kind != IO_KIND_FILE || strlen(full) >= sizeof file.name) {
        finding(listing->read, full, "it does not belong there");
        return 0;
    }
    (void)snprintf(file.name, sizeof file.name, "%.*s", (int)sizeof file.name - 1, full);
    return base_files_add(listing->files, &file);
}

static int list_level(struct base_read *read, const char *prefix, int depth, struct base_files *files)
{
    struct listing listing = {.read = read, .prefix = prefix, .files = files, .depth = depth};
    char path[PATH_SIZE];
    (void)snprintf(path, sizeof path, "%s/%s", read->options->source->dir, prefix);
    if (path[strlen(path) - 1] == '/') {
        path[strlen(path) - 1] = '\0';
    }
    return io_list_dir(read->options->source->dev, path, note_entry, &listing);
}

static int read_file(struct base_read *read, const char *name)
{
    const struct base_source *source = read->options->source;
    char path[PATH_SIZE];
    struct io_stat stat;
    (void)snprintf(path, sizeof path, "%s/%s", source->dir, name);
    int rc = io_open(source->dev, path, IO_READ_ONLY, &read->file);
    if (rc != 0) {
        return rc;
    }
    read->offset = 0;
    rc = io_stat_file(read->file, &stat);
    if (rc == 0) {
        rc = read_entry(read, name, stat.size_bytes);
    }
    const int close_rc = io_close(read->file);
    read->file = NULL;
    return rc == 0 ? close_rc : rc;
}

static int read_directory(struct base_read *read)
{
    struct base_files files = {.count = 0};
    int rc = list_level(read, "", 0, &files);
    base_files_sort(&files);
    for (size_t i = 0; i < files.count && rc == 0; i++) {
        rc = read_file(read, files.files[i].name);
    }
    base_files_free(&files);
    return rc;
}

/* ---- the comparison ---- */

static void compare_file(struct base_read *read, const struct base_file *want, const struct base_file *got)
{
    if (want->size_bytes != got->size_bytes) {
        finding(read, want->name, "it has %" PRIu64 " bytes, the manifest says %" PRIu64, got->size_bytes,
                want->size_bytes);
    } else if (want->checksum != got->checksum) {
        finding(read, want->name, "its checksum is %016" PRIx64 ", the manifest says %016" PRIx64, got->checksum,
                want->checksum);
    }
}

/* Both sorted. */
static void compare_files(struct base_read *read, const struct base_files *want, const struct base_files *got)
{
    size_t w = 0;
    size_t g = 0;
    while (w < want->count || g < got->count) {
        const int order = w == want->count ? 1 : g == got->count ? -1 : strcmp(want->files[w].name, got->files[g].name);
        if (order < 0) {
            finding(read, want->files[w++].name, "it is missing");
        } else if (order > 0) {
            finding(read, got->files[g++].name, "the manifest does not name it");
        } else {
            compare_file(read, &want->files[w++], &got->files[g++]);
        }
    }
}

static int compare_with_manifest(struct base_read *read, struct base_header *out_header)
{
    struct base_files want;
    if (read->manifest == NULL) {
        diag_log(read->options->diag, DIAG_ERROR, "%s: there is no manifest: it is no base, or was not finished",
                 read->options->name);
        return -ENODATA;
    }
    const int rc = base_manifest_parse(read->manifest, out_header, &want);
    if (rc == -EBADMSG) {
        finding(read, BASE_MANIFEST, "it is damaged");
    } else if (rc == 0) {
        base_files_sort(&want);
        base_files_sort(&read->seen);
        compare_files(read, &want, &read->seen);
    }
    base_files_free(&want);
    return rc == -EBADMSG ? -EIO : rc;
}

int base_read(const struct base_read_options *options, struct base_header *out_header)
{
    struct base_read read = {.options = options, .chunk = malloc((size_t)CHUNK_BLOCKS * BLOCK_SIZE)};
    struct base_header header;
    int rc = read.chunk == NULL ? -ENOMEM : options->source->get != NULL ? read_stream(&read) : read_directory(&read);
    if (rc == 0) {
        rc = compare_with_manifest(&read, &header);
    }
    if (rc == 0 && read.findings > 0) {
        rc = -EIO;
    }
    if (rc == 0) {
        *out_header = header;
    }
    base_files_free(&read.seen);
    free(read.manifest);
    free(read.chunk);
    return rc;
}
