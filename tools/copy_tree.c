/*
 * tools/copy_tree.c - see the header.
 *
 * Two walks (fts(3)): one adds up bytes, so that the progress has an end, one copies. A directory gets its mode and times
 * when all that is in it was copied.
 *
 * Locking: `done` is read by the thread that draws the progress.
 */
#include "tools/copy_tree.h"

#include "base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define PIECE_SIZE (1u << 20)

/* The first copy of a file with more names. */
struct linked {
    UT_hash_handle hh;
    struct {
        dev_t dev;
        ino_t ino;
    } key;
    char copy[];
};

struct copier {
    const char *target;
    bool into; /* target is a directory that gets the sources */
    char *piece;
    struct linked *linked;
    _Atomic uint64_t done, total;
    struct copy_tree_result result;
};

static int fail(const char *path, const char *what)
{
    const int error = errno;
    fprintf(stderr, "%stblfs: %s: %s%s%s\n", isatty(STDERR_FILENO) ? PROGRESS_ERASE : "", path, what,
            what[0] != '\0' ? ": " : "", strerror(error));
    return -error;
}

/* ---- attributes ---- */

/* Those of a kind that the other side does not have are left out, as cp -a does. */
static int copy_xattr(const char *from, const char *to, const char *name)
{
    char value[XATTR_SIZE_MAX];
    const ssize_t size = lgetxattr(from, name, value, sizeof value);
    if (size < 0)
        return errno == ENODATA || errno == EOPNOTSUPP ? 0 : fail(from, name);
    if (lsetxattr(to, name, value, (size_t)size, 0) != 0 && errno != EOPNOTSUPP && errno != EPERM)
        return fail(to, name);
    return 0;
}

static int copy_xattrs(const char *from, const char *to)
{
    char names[XATTR_LIST_MAX];
    const ssize_t size = llistxattr(from, names, sizeof names);
    if (size < 0)
        return errno == EOPNOTSUPP ? 0 : fail(from, "extended attributes");
    int rc = 0;
    for (const char *name = names; rc == 0 && name < names + size; name += strlen(name) + 1)
        rc = copy_xattr(from, to, name);
    return rc;
}

/* The owner first: giving a file away ends set-user-id. */
static int copy_attributes(const char *from, const char *to, const struct stat *stat)
{
    const struct timespec times[2] = {stat->st_atim, stat->st_mtim};
    if (lchown(to, stat->st_uid, stat->st_gid) != 0 && (geteuid() == 0 || errno != EPERM))
        return fail(to, "owner");
    if (!S_ISLNK(stat->st_mode) && chmod(to, stat->st_mode & 07777) != 0)
        return fail(to, "mode");
    const int rc = copy_xattrs(from, to);
    if (rc == 0 && utimensat(AT_FDCWD, to, times, AT_SYMLINK_NOFOLLOW) != 0)
        return fail(to, "times");
    return rc;
}

/* ---- content ---- */

static int copy_run(struct copier *copier, const char *from, int in, const char *to, int out, off_t at, off_t end)
{
    while (at < end) {
        const size_t wanted = end - at < (off_t)PIECE_SIZE ? (size_t)(end - at) : PIECE_SIZE;
        const ssize_t got = pread(in, copier->piece, wanted, at);
        if (got < 0)
            return fail(from, "");
        if (got == 0)
            return 0; /* it was cut meanwhile */
        for (ssize_t written = 0; written < got;) {
            const ssize_t size = pwrite(out, copier->piece + written, (size_t)(got - written), at + written);
            if (size < 0)
                return fail(to, "");
            written += size;
        }
        at += got;
        atomic_fetch_add(&copier->done, (uint64_t)got);
    }
    return 0;
}

static int copy_content(struct copier *copier, const char *from, int in, const char *to, int out, off_t size)
{
    int rc = 0;
    for (off_t at = 0; rc == 0 && at < size;) {
        const off_t data = lseek(in, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            return fail(from, "");
        if (data < 0)
            break; /* a hole up to its end */
        off_t end = lseek(in, data, SEEK_HOLE);
        end = end < 0 || end > size ? size : end;
        atomic_fetch_add(&copier->done, (uint64_t)(data - at));
        rc = copy_run(copier, from, in, to, out, data, end);
        at = end;
    }
    return rc == 0 && ftruncate(out, size) != 0 ? fail(to, "") : rc;
}

static int copy_file(struct copier *copier, const char *from, const char *to, const struct stat *stat)
{
    const int in = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0)
        return fail(from, "");
    const int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0) {
        const int rc = fail(to, "");
        (void)close(in);
        return rc;
    }
    int rc = copy_content(copier, from, in, to, out, stat->st_size);
    (void)close(in);
    if (close(out) != 0 && rc == 0)
        rc = fail(to, "");
    return rc;
}

/* ---- kinds of files ---- */

static int remove_other_kind(const char *to, mode_t mode)
{
    struct stat there;
    if (lstat(to, &there) != 0 || (S_ISREG(mode) && S_ISREG(there.st_mode)))
        return 0;
    return unlink(to) == 0 ? 0 : fail(to, "is in the way");
}

static int copy_symlink(const char *from, const char *to)
{
    char text[PATH_MAX];
    const ssize_t size = readlink(from, text, sizeof text - 1);
    if (size < 0)
        return fail(from, "");
    text[size] = '\0';
    return symlink(text, to) == 0 ? 0 : fail(to, "");
}

static int copy_object(struct copier *copier, const char *from, const char *to, const struct stat *stat)
{
    int rc = remove_other_kind(to, stat->st_mode);
    if (rc == 0 && S_ISREG(stat->st_mode))
        rc = copy_file(copier, from, to, stat);
    else if (rc == 0 && S_ISLNK(stat->st_mode))
        rc = copy_symlink(from, to);
    else if (rc == 0 && mknod(to, stat->st_mode & (S_IFMT | 0600), stat->st_rdev) != 0)
        rc = fail(to, "");
    return rc == 0 ? copy_attributes(from, to, stat) : rc;
}

/* Remembers the copy of a file that has more names. */
static int note_linked(struct copier *copier, const struct stat *stat, const char *to)
{
    struct linked *linked = calloc(1, sizeof *linked + strlen(to) + 1);
    if (linked == NULL)
        return fail(to, "");
    linked->key.dev = stat->st_dev;
    linked->key.ino = stat->st_ino;
    strcpy(linked->copy, to);
    HASH_ADD(hh, copier->linked, key, sizeof linked->key, linked);
    if (linked->hh.tbl != NULL)
        return 0;
    free(linked);
    errno = ENOMEM;
    return fail(to, "");
}

static const struct linked *find_linked(struct copier *copier, const struct stat *stat)
{
    struct linked wanted, *linked = NULL;
    memset(&wanted, 0, sizeof wanted);
    wanted.key.dev = stat->st_dev;
    wanted.key.ino = stat->st_ino;
    HASH_FIND(hh, copier->linked, &wanted.key, sizeof wanted.key, linked);
    return linked;
}

static int copy_or_link(struct copier *copier, const char *from, const char *to, const struct stat *stat)
{
    const struct linked *linked = stat->st_nlink > 1 ? find_linked(copier, stat) : NULL;
    copier->result.files++;
    if (linked != NULL) {
        (void)unlink(to); /* what cannot be removed is told by link */
        return link(linked->copy, to) == 0 ? 0 : fail(to, "");
    }
    copier->result.bytes += S_ISREG(stat->st_mode) ? (uint64_t)stat->st_size : 0;
    const int rc = copy_object(copier, from, to, stat);
    return rc == 0 && stat->st_nlink > 1 ? note_linked(copier, stat, to) : rc;
}

static int make_directory(struct copier *copier, const char *to)
{
    struct stat there;
    copier->result.directories++;
    if (mkdir(to, 0700) == 0)
        return 0;
    if (errno == EEXIST && stat(to, &there) == 0 && S_ISDIR(there.st_mode))
        return 0;
    return fail(to, "");
}

/* ---- walking ---- */

/* Where the copy of what the walk is at belongs: the target, the source's own name if it goes into a directory, and what is
 * behind the source's path. */
static int path_of_copy(const struct copier *copier, const FTSENT *entry, char path[PATH_MAX])
{
    const FTSENT *root = entry;
    while (root->fts_level > FTS_ROOTLEVEL)
        root = root->fts_parent;
    const char *behind = entry == root ? "" : entry->fts_path + root->fts_pathlen;
    const int size = copier->into ? snprintf(path, PATH_MAX, "%s/%s%s", copier->target, root->fts_name, behind)
                                  : snprintf(path, PATH_MAX, "%s%s", copier->target, behind);
    errno = ENAMETOOLONG;
    return size < PATH_MAX ? 0 : fail(entry->fts_path, "");
}

static int copy_entry(struct copier *copier, FTSENT *entry)
{
    char to[PATH_MAX];
    const int rc = path_of_copy(copier, entry, to);
    if (rc != 0)
        return rc;
    switch (entry->fts_info) {
    case FTS_D:
        return make_directory(copier, to);
    case FTS_DP:
        return copy_attributes(entry->fts_accpath, to, entry->fts_statp);
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        errno = entry->fts_errno;
        return fail(entry->fts_path, "");
    case FTS_DC:
        errno = ELOOP;
        return fail(entry->fts_path, "");
    default:
        return copy_or_link(copier, entry->fts_accpath, to, entry->fts_statp);
    }
}

static int add_bytes(struct copier *copier, FTSENT *entry)
{
    if (entry->fts_info == FTS_F)
        atomic_fetch_add(&copier->total, (uint64_t)entry->fts_statp->st_size);
    return 0; /* what is wrong is told by the second walk */
}

static int walk(struct copier *copier, char *const *sources, int (*visit)(struct copier *copier, FTSENT *entry))
{
    FTS *fts = fts_open(sources, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (fts == NULL)
        return fail(sources[0], "");
    int rc = 0;
    FTSENT *entry = NULL;
    while (rc == 0 && (errno = 0, entry = fts_read(fts)) != NULL)
        rc = visit(copier, entry);
    if (rc == 0 && errno != 0)
        rc = fail(sources[0], "");
    (void)fts_close(fts);
    return rc;
}

static void look(void *arg, struct progress_state *out_state)
{
    struct copier *copier = arg;
    out_state->what = "copying";
    out_state->done = atomic_load(&copier->done);
    out_state->total = atomic_load(&copier->total);
}

static int check_target(struct copier *copier, size_t count)
{
    struct stat there;
    copier->into = stat(copier->target, &there) == 0 && S_ISDIR(there.st_mode);
    if (count == 1 || copier->into)
        return 0;
    errno = ENOTDIR;
    return fail(copier->target, "");
}

static void copier_free(struct copier *copier)
{
    struct linked *linked, *next;
    HASH_ITER(hh, copier->linked, linked, next)
    {
        HASH_DEL(copier->linked, linked);
        free(linked);
    }
    free(copier->piece);
}

int copy_tree(char *const *sources, size_t count, const char *target, struct copy_tree_result *out_result)
{
    struct copier copier = {.target = target, .piece = malloc(PIECE_SIZE)};
    struct progress progress;
    const struct progress_options show = {.out = stderr, .delay_ms = PROGRESS_DELAY_MS, .look = look, .arg = &copier};
    int rc = copier.piece != NULL ? check_target(&copier, count) : fail(target, "");
    if (rc == 0)
        rc = walk(&copier, sources, add_bytes);
    if (rc == 0) {
        progress_start(&progress, &show);
        rc = walk(&copier, sources, copy_entry);
        progress_stop(&progress);
    }
    *out_result = copier.result;
    copier_free(&copier);
    return rc;
}
