/*
 * tests/lib/opgen.c - see opgen.h.
 *
 * Sizes and offsets are drawn so that the places where
 * filesystems break come up often: 0 and 1, both sides of a page, of an 8 KiB block and of its payload, and of the
 * largest write.
 *
 * Locking: none; a generator belongs to one thread.
 */
#include "tests/lib/opgen.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAME_255                                                                                                       \
    "n255-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"   \
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" \
    "ccccccccccccccccccccccccccccccccc"

static const char *const odd_names[] = {
    "with space", "-rf", "new\nline", "\xff\xfe no utf-8", "caf\xc3\xa9.tsv", ".hidden", NAME_255, "*", "$HOME;#",
};
#define ODD_NAMES (sizeof odd_names / sizeof odd_names[0])

static const unsigned default_weights[] = {
#define X(kind, weight) weight,
    GEN_KINDS(X)
#undef X
};

static const char *const kind_names[] = {
#define X(kind, weight) #kind,
    GEN_KINDS(X)
#undef X
};

/* ---- random numbers ---- */

uint64_t gen_random(struct gen *gen)
{
    return test_random_u64(&gen->random);
}

uint64_t gen_random_below(struct gen *gen, uint64_t limit)
{
    assert(limit > 0);
    return test_random_below(&gen->random, limit);
}

static unsigned below(struct gen *gen, unsigned limit)
{
    return (unsigned)gen_random_below(gen, limit);
}

static bool percent(struct gen *gen, unsigned chance)
{
    return below(gen, 100) < chance;
}

/* ---- data ---- */

void gen_fill(uint64_t data_seed, void *bytes, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\t.";
    struct test_random random = {.state = data_seed};
    char *out = bytes;
    size_t at = 0;
    while (at < size) {
        uint64_t draw = test_random_u64(&random);
        size_t row = 1 + (size_t)(draw & 63);
        if (row > size - at)
            row = size - at;
        if ((draw >> 6 & 127) == 0) {
            memset(out + at, 0, row);
        } else {
            for (size_t i = 0; i < row; i++) {
                out[at + i] = letters[(draw >> 13) & 63];
                draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407u;
            }
            out[at + row - 1] = '\n';
        }
        at += row;
    }
}

/* ---- sizes ---- */

/* A size up to and including max, near one of the places where something changes. */
static uint64_t draw_size(struct gen *gen, uint64_t max)
{
    static const uint64_t edges[] = {0, 1, 512, 4096, 8192, 8192 - 40, 8192 - 48, 8192 - 64, 16384, 65536, 131072};
    uint64_t size = 0;
    switch (below(gen, 10)) {
    case 0:
    case 1:
    case 2:
        size = gen_random_below(gen, 200);
        break;
    case 3:
    case 4:
        size = edges[below(gen, sizeof edges / sizeof edges[0])] + gen_random_below(gen, 5);
        size = size >= 2 ? size - 2 : 0;
        break;
    case 5:
    case 6:
    case 7:
        size = gen_random_below(gen, 20000);
        break;
    case 8:
        size = gen_random_below(gen, 200000);
        break;
    default:
        size = gen_random_below(gen, max + 1);
        break;
    }
    return size > max ? gen_random_below(gen, max + 1) : size;
}

/* ---- names ---- */

static void append_text(char *path, const char *text)
{
    const size_t have = strlen(path);
    const size_t more = strlen(text);
    assert(have + more < GEN_PATH_MAX);
    memcpy(path + have, text, more + 1);
}

static void append_name(struct gen *gen, char *path, bool is_dir)
{
    char name[16];
    if (gen->config.odd_names && percent(gen, 6)) {
        append_text(path, odd_names[below(gen, ODD_NAMES)]);
        return;
    }
    if (percent(gen, 3)) /* now and then a directory by a file's name and the other way round */
        is_dir = !is_dir;
    if (is_dir)
        snprintf(name, sizeof name, "d%u", below(gen, gen->config.dir_names));
    else
        snprintf(name, sizeof name, "f%u.tsv", below(gen, gen->config.file_names));
    append_text(path, name);
}

static const struct gen_hint *pick_hint(struct gen *gen, unsigned kind)
{
    unsigned at = below(gen, GEN_HINTS);
    for (unsigned i = 0; i < GEN_HINTS; i++) {
        const struct gen_hint *hint = &gen->hints[(at + i) % GEN_HINTS];
        if (hint->kind != 0 && (kind == 0 || hint->kind == kind))
            return hint;
    }
    return NULL;
}

static unsigned depth_of(const char *path)
{
    unsigned depth = 1;
    for (; *path != '\0'; path++)
        depth += *path == '/';
    return depth;
}

/* A path that may be new: a known directory, or a guess, and a name. */
static void draw_new_path(struct gen *gen, char *path, bool is_dir)
{
    path[0] = '\0';
    const struct gen_hint *parent = percent(gen, 60) ? pick_hint(gen, S_IFDIR) : NULL;
    if (parent != NULL && depth_of(parent->path) < GEN_DEPTH_MAX) {
        append_text(path, parent->path);
        append_text(path, "/");
    } else if (percent(gen, 15)) {
        append_name(gen, path, true);
        append_text(path, "/");
    }
    append_name(gen, path, is_dir);
}

/* A path that probably exists, of that kind (0: any). */
static void draw_path(struct gen *gen, char *path, unsigned kind)
{
    const struct gen_hint *hint = percent(gen, 88) ? pick_hint(gen, percent(gen, 4) ? 0 : kind) : NULL;
    if (hint != NULL) {
        path[0] = '\0';
        append_text(path, hint->path);
        return;
    }
    draw_new_path(gen, path, kind == S_IFDIR);
}

static unsigned draw_slot(struct gen *gen, bool want_open)
{
    const unsigned at = below(gen, GEN_SLOTS);
    for (unsigned i = 0; i < GEN_SLOTS; i++)
        if (gen->slot_open[(at + i) % GEN_SLOTS] == want_open)
            return (at + i) % GEN_SLOTS;
    return at;
}

/* ---- one drawing function for each family of kinds ---- */

static int draw_access(struct gen *gen)
{
    switch (below(gen, 10)) {
    case 0:
        return O_RDONLY;
    case 1:
        return O_WRONLY;
    case 2:
        return O_WRONLY | O_APPEND;
    case 3:
        return O_WRONLY | O_TRUNC;
    case 4:
        return O_RDWR | O_APPEND;
    case 5:
        return O_RDWR | O_TRUNC;
    default:
        return O_RDWR;
    }
}

static mode_t draw_mode(struct gen *gen)
{
    static const mode_t modes[] = {0644, 0600, 0755, 0666, 0640, 0400, 0777, 0700};
    return modes[below(gen, sizeof modes / sizeof modes[0])];
}

static void draw_open(struct gen *gen, struct gen_op *op)
{
    op->slot = percent(gen, 80) ? draw_slot(gen, false) : below(gen, GEN_SLOTS);
    op->open_flags = draw_access(gen);
    op->mode = draw_mode(gen);
    if (op->kind == GEN_CREATE) {
        op->open_flags |= O_CREAT | (percent(gen, 25) ? O_EXCL : 0);
        draw_new_path(gen, op->path, false);
    } else {
        op->open_flags |= percent(gen, 5) ? O_NOFOLLOW : 0;
        op->open_flags |= percent(gen, 2) ? O_DIRECTORY : 0;
        draw_path(gen, op->path, S_IFREG);
    }
}

static void draw_data(struct gen *gen, struct gen_op *op)
{
    static const unsigned allocate_modes[] = {
        0,
        FALLOC_FL_KEEP_SIZE,
        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        FALLOC_FL_ZERO_RANGE,
        FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
    };
    op->slot = draw_slot(gen, true);
    op->size = draw_size(gen, gen->config.max_write_bytes);
    op->offset = draw_size(gen, gen->config.max_file_bytes - op->size);
    op->data_seed = gen_random(gen);
    if (op->kind == GEN_FTRUNCATE)
        op->size = draw_size(gen, gen->config.max_file_bytes);
    else if (op->kind == GEN_ALLOCATE)
        op->flags = allocate_modes[below(gen, sizeof allocate_modes / sizeof allocate_modes[0])];
    else if (op->kind == GEN_SEEK)
        op->flags = percent(gen, 50) ? SEEK_DATA : SEEK_HOLE;
    else if (op->kind == GEN_FSYNC)
        op->flags = below(gen, 2);
    else if (op->kind == GEN_COPY_RANGE) {
        op->slot2 = draw_slot(gen, true);
        op->offset2 = draw_size(gen, gen->config.max_file_bytes - op->size);
    }
}

static void draw_names(struct gen *gen, struct gen_op *op)
{
    static const unsigned rename_flags[] = {0, 0, 0, 0, 1 /* RENAME_NOREPLACE */, 2 /* RENAME_EXCHANGE */};
    switch (op->kind) {
    case GEN_RENAME: {
        op->flags = rename_flags[below(gen, sizeof rename_flags / sizeof rename_flags[0])];
        const unsigned kind = percent(gen, 25) ? S_IFDIR : S_IFREG;
        draw_path(gen, op->path, kind);
        if (op->flags == 2 || percent(gen, 30))
            draw_path(gen, op->path2, percent(gen, 80) ? kind : 0);
        else
            draw_new_path(gen, op->path2, kind == S_IFDIR);
        break;
    }
    case GEN_LINK:
        draw_path(gen, op->path, S_IFREG);
        draw_new_path(gen, op->path2, false);
        break;
    case GEN_SYMLINK:
        draw_new_path(gen, op->path2, false);
        op->target[0] = '\0';
        if (percent(gen, 30))
            append_text(op->target, "missing ");
        append_name(gen, op->target, percent(gen, 30));
        break;
    default:
        break;
    }
}

/* Attributes gather on few objects, so that they are found again. */
static void draw_attribute_path(struct gen *gen, char *path)
{
    const struct gen_hint *hint = &gen->hints[below(gen, 6)];
    if (hint->kind == 0 || percent(gen, 25)) {
        draw_path(gen, path, percent(gen, 20) ? 0 : S_IFREG);
        return;
    }
    path[0] = '\0';
    append_text(path, hint->path);
}

static void draw_attributes(struct gen *gen, struct gen_op *op)
{
    if (op->kind >= GEN_SETXATTR && op->kind <= GEN_REMOVEXATTR)
        draw_attribute_path(gen, op->path);
    else
        draw_path(gen, op->path, percent(gen, 20) ? 0 : S_IFREG);
    op->mode = draw_mode(gen);
    static const mode_t more[] = {S_ISUID, S_ISGID, S_ISVTX};
    if (gen->config.set_id_modes && op->kind == GEN_CHMOD && percent(gen, 15))
        op->mode |= more[below(gen, 3)];
    op->uid = percent(gen, 30) ? (uid_t)-1 : 1000 + below(gen, 3);
    op->gid = percent(gen, 30) ? (gid_t)-1 : 1000 + below(gen, 3);
    op->mtime_ns = (int64_t)gen_random_below(gen, UINT64_C(2000000000) * 1000000000);
    snprintf(op->xattr, sizeof op->xattr, "user.%s%u", percent(gen, 20) ? "a.rather.longer.name." : "x", below(gen, 3));
    op->size = percent(gen, 90) ? gen_random_below(gen, 100) : gen_random_below(gen, GEN_VALUE_MAX + 1);
    op->data_seed = gen_random(gen);
    if (op->kind == GEN_SETXATTR && percent(gen, 30))
        op->flags = percent(gen, 50) ? XATTR_CREATE : XATTR_REPLACE;
    if (op->kind == GEN_GETXATTR)
        op->size = percent(gen, 20) ? 0 : percent(gen, 20) ? op->size : GEN_VALUE_MAX;
}

static enum gen_kind draw_kind(struct gen *gen)
{
    unsigned draw = below(gen, gen->weight_sum);
    unsigned kind = 0;
    while (draw >= gen->config.weights[kind]) {
        draw -= gen->config.weights[kind];
        kind++;
    }
    assert(kind < GEN_KIND_COUNT);
    return (enum gen_kind)kind;
}

/* ---- entry points ---- */

struct gen_config gen_config_default(void)
{
    struct gen_config config = {
        .max_file_bytes = UINT64_C(4) << 20,
        .max_write_bytes = UINT64_C(256) << 10,
        .file_names = 20,
        .dir_names = 5,
        .odd_names = true,
    };
    memcpy(config.weights, default_weights, sizeof config.weights);
    return config;
}

void gen_init(struct gen *gen, uint64_t seed, const struct gen_config *config)
{
    memset(gen, 0, sizeof *gen);
    test_random_init(&gen->random, seed);
    gen->config = config != NULL ? *config : gen_config_default();
    assert(gen->config.max_write_bytes <= gen->config.max_file_bytes);
    assert(gen->config.file_names > 0 && gen->config.dir_names > 0);
    for (unsigned kind = 0; kind < GEN_KIND_COUNT; kind++)
        gen->weight_sum += gen->config.weights[kind];
    assert(gen->weight_sum > 0);
}

void gen_next(struct gen *gen, struct gen_op *out_op)
{
    memset(out_op, 0, sizeof *out_op);
    out_op->kind = draw_kind(gen);
    if (gen_kind_has_slot(out_op->kind)) {
        draw_data(gen, out_op);
        return;
    }
    switch (out_op->kind) {
    case GEN_CREATE:
    case GEN_OPEN:
        draw_open(gen, out_op);
        break;
    case GEN_RENAME:
    case GEN_LINK:
    case GEN_SYMLINK:
        draw_names(gen, out_op);
        break;
    case GEN_APPEND_ROWS:
        out_op->mode = draw_mode(gen);
        out_op->size = draw_size(gen, gen->config.max_write_bytes);
        out_op->data_seed = gen_random(gen);
        if (percent(gen, 80))
            draw_path(gen, out_op->path, S_IFREG);
        else
            draw_new_path(gen, out_op->path, false);
        break;
    case GEN_TRUNCATE:
        draw_path(gen, out_op->path, S_IFREG);
        out_op->size = draw_size(gen, gen->config.max_file_bytes);
        break;
    case GEN_READLINK:
        draw_path(gen, out_op->path, S_IFLNK);
        break;
    case GEN_UNLINK:
        draw_path(gen, out_op->path, percent(gen, 10) ? 0 : S_IFREG);
        break;
    case GEN_MKDIR:
        draw_new_path(gen, out_op->path, true);
        out_op->mode = draw_mode(gen) | 0700;
        break;
    case GEN_MKFIFO:
        draw_new_path(gen, out_op->path, false);
        out_op->mode = draw_mode(gen);
        break;
    case GEN_RMDIR:
    case GEN_READDIR:
        draw_path(gen, out_op->path, S_IFDIR);
        if (out_op->kind == GEN_READDIR && percent(gen, 20))
            strcpy(out_op->path, ".");
        break;
    default:
        draw_attributes(gen, out_op);
        break;
    }
}

/* ---- feedback ---- */

static bool is_under(const char *path, const char *dir)
{
    const size_t size = strlen(dir);
    return strncmp(path, dir, size) == 0 && (path[size] == '\0' || path[size] == '/');
}

static unsigned hint_kind(const struct gen *gen, const char *path)
{
    for (unsigned i = 0; i < GEN_HINTS; i++)
        if (gen->hints[i].kind != 0 && strcmp(gen->hints[i].path, path) == 0)
            return gen->hints[i].kind;
    return 0;
}

static void hint_forget(struct gen *gen, const char *path)
{
    for (unsigned i = 0; i < GEN_HINTS; i++)
        if (gen->hints[i].kind != 0 && is_under(gen->hints[i].path, path))
            gen->hints[i].kind = 0;
}

static void hint_remember(struct gen *gen, const char *path, unsigned kind)
{
    if (kind == 0 || hint_kind(gen, path) == kind)
        return;
    hint_forget(gen, path);
    unsigned at = below(gen, GEN_HINTS); /* full: some other one makes room */
    for (unsigned i = 0; i < GEN_HINTS && gen->hints[at].kind != 0; i++)
        at = (at + 1) % GEN_HINTS;
    memcpy(gen->hints[at].path, path, strlen(path) + 1);
    gen->hints[at].kind = kind;
}

static void note_rename(struct gen *gen, const struct gen_op *op)
{
    const unsigned kind = hint_kind(gen, op->path);
    const unsigned kind2 = hint_kind(gen, op->path2);
    hint_forget(gen, op->path);
    hint_remember(gen, op->path2, kind);
    if (op->flags == 2)
        hint_remember(gen, op->path, kind2);
}

void gen_feedback(struct gen *gen, const struct gen_op *op, int err)
{
    if (op->kind == GEN_CREATE || op->kind == GEN_OPEN)
        gen->slot_open[op->slot] = err >= 0;
    if (err < 0) {
        if ((err == -ENOENT || err == -ENOTDIR) && op->path[0] != '\0')
            hint_forget(gen, op->path);
        return;
    }
    switch (op->kind) {
    case GEN_CREATE:
    case GEN_APPEND_ROWS:
        hint_remember(gen, op->path, S_IFREG);
        break;
    case GEN_CLOSE:
        gen->slot_open[op->slot] = false;
        break;
    case GEN_MKDIR:
        hint_remember(gen, op->path, S_IFDIR);
        break;
    case GEN_MKFIFO:
        hint_remember(gen, op->path, S_IFIFO);
        break;
    case GEN_SYMLINK:
        hint_remember(gen, op->path2, S_IFLNK);
        break;
    case GEN_LINK:
        hint_remember(gen, op->path2, hint_kind(gen, op->path));
        break;
    case GEN_UNLINK:
    case GEN_RMDIR:
        hint_forget(gen, op->path);
        break;
    case GEN_RENAME:
        note_rename(gen, op);
        break;
    default:
        break;
    }
}

/* ---- printing ---- */

const char *gen_kind_name(enum gen_kind kind)
{
    return kind_names[kind];
}

bool gen_kind_has_slot(enum gen_kind kind)
{
    switch (kind) {
    case GEN_CLOSE:
    case GEN_PWRITE:
    case GEN_WRITE:
    case GEN_PREAD:
    case GEN_FTRUNCATE:
    case GEN_ALLOCATE:
    case GEN_SEEK:
    case GEN_MMAP_WRITE:
    case GEN_FSYNC:
    case GEN_COPY_RANGE:
        return true;
    default:
        return false;
    }
}

static size_t print_escaped(char *out, size_t capacity, const char *text)
{
    size_t at = 0;
    for (; *text != '\0' && at + 16 < capacity; text++) {
        if (strncmp(text, NAME_255, sizeof NAME_255 - 1) == 0) {
            at += (size_t)snprintf(out + at, capacity - at, "<255 bytes>");
            text += sizeof NAME_255 - 2;
            continue;
        }
        const unsigned char byte = (unsigned char)*text;
        if (byte >= ' ' && byte < 127 && byte != '"' && byte != '\\')
            out[at++] = *text;
        else
            at += (size_t)snprintf(out + at, capacity - at, "\\x%02x", byte);
    }
    out[at] = '\0';
    return at;
}

const char *gen_op_print(const struct gen_op *op, char *buffer, size_t capacity)
{
    char path[300], path2[300], target[100];
    print_escaped(path, sizeof path, op->path);
    print_escaped(path2, sizeof path2, op->path2);
    print_escaped(target, sizeof target, op->target);
    snprintf(
        buffer, capacity,
        "%s \"%s\" \"%s\" target \"%s\" slot %u, %u open_flags 0%o mode 0%o uid %d gid %d flags %u offset %ju, %ju "
        "size %ju xattr \"%s\"",
        gen_kind_name(op->kind), path, path2, target, op->slot, op->slot2, (unsigned)op->open_flags, op->mode,
        (int)op->uid, (int)op->gid, op->flags, (uintmax_t)op->offset, (uintmax_t)op->offset2, (uintmax_t)op->size,
        op->xattr);
    return buffer;
}
