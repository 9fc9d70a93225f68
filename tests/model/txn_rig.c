/*
 * tests/model/txn_rig.c - see txn_rig.h.
 */
#include "tests/model/txn_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

void txn_rig_open(struct txn_rig *rig)
{
    const struct store_options options = {.dev = rig->dev,
                                          .diag = &rig->diag,
                                          .dir = TXN_RIG_DIR,
                                          .bulk_min_bytes = 8 * BLOCK_SIZE,
                                          .compact_piece_blocks = 3,
                                          .fsm_threshold_given = rig->threshold_given,
                                          .fsm_threshold = rig->fsm_threshold,
                                          .log_segment_size = rig->log_segment_size,
                                          .archive = rig->archive};
    assert_int_equal(store_open(&options, &rig->store, NULL), 0);
}

int txn_rig_setup_like(void **state, const struct txn_rig *like)
{
    struct txn_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    *rig = *like;
    rig->mem = mem_device_create(1);
    rig->dev = mem_device_io(rig->mem);
    diag_init_stderr(&rig->diag, DIAG_WARNING);
    const struct store_mkfs_options mkfs = {
        .dev = rig->dev, .diag = &rig->diag, .dir = TXN_RIG_DIR, .create_dir = true};
    assert_int_equal(store_mkfs(&mkfs), 0);
    txn_rig_open(rig);
    *state = rig;
    return 0;
}

int txn_rig_setup(void **state)
{
    return txn_rig_setup_like(state, &(struct txn_rig){.store = NULL});
}

void txn_rig_check(struct txn_rig *rig)
{
    assert_int_equal(store_check(rig->store), 0);
}

int txn_rig_teardown(void **state)
{
    struct txn_rig *rig = *state;
    txn_rig_check(rig);
    assert_int_equal(store_close(rig->store), 0);
    mem_device_destroy(rig->mem);
    free(rig);
    return 0;
}

void txn_rig_kill_and_reopen(struct txn_rig *rig)
{
    store_abandon(rig->store);
    txn_rig_open(rig);
    txn_rig_check(rig);
}

struct store_name shell_name(const char *text)
{
    return (struct store_name){.bytes = text, .size = strlen(text)};
}

/* The directory of a path, and its last name. */
static ino_no dir_of(struct txn_rig *rig, struct view *view, const char *path, const char **out_name)
{
    ino_no dir = INO_ROOT;
    const char *slash;
    while ((slash = strchr(path, '/')) != NULL) {
        struct store_attr attr;
        const struct store_name name = {.bytes = path, .size = (size_t)(slash - path)};
        assert_int_equal(store_lookup(rig->store, view, dir, name, &attr), 0);
        dir = attr.ino;
        path = slash + 1;
    }
    *out_name = path;
    return dir;
}

int shell_look(struct txn_rig *rig, struct view *view, const char *path, struct store_attr *out_attr)
{
    const char *name = NULL;
    const ino_no dir = dir_of(rig, view, path, &name);
    return store_lookup(rig->store, view, dir, shell_name(name), out_attr);
}

int shell_make(struct txn_rig *rig, struct view *view, const char *path, uint32_t mode)
{
    const char *name = NULL;
    struct store_attr attr;
    const ino_no dir = dir_of(rig, view, path, &name);
    return store_create(rig->store, view, dir, shell_name(name), mode, 0, (struct store_who){0}, &attr);
}

int shell_make_dir(struct txn_rig *rig, struct view *view, const char *path)
{
    return shell_make(rig, view, path, S_IFDIR | 0755);
}

struct store_file *shell_open(struct txn_rig *rig, struct view *view, const char *path)
{
    struct store_attr attr;
    struct store_file *file = NULL;
    assert_int_equal(shell_look(rig, view, path, &attr), 0);
    assert_int_equal(store_file_open(rig->store, view, attr.ino, &file), 0);
    return file;
}

int shell_append(struct txn_rig *rig, struct view *view, const char *path, const char *text)
{
    struct store_attr attr;
    uint64_t end = 0;
    if (shell_look(rig, view, path, &attr) != 0) {
        assert_int_equal(shell_make(rig, view, path, S_IFREG | 0644), 0);
    }
    struct store_file *file = shell_open(rig, view, path);
    const int rc = store_write(file, 0, text, strlen(text), STORE_WRITE_APPEND, &end);
    store_file_close(file);
    return rc;
}

int shell_truncate_to(struct txn_rig *rig, struct view *view, const char *path, uint64_t size)
{
    struct store_attr attr;
    struct store_attr out;
    assert_int_equal(shell_look(rig, view, path, &attr), 0);
    attr.size_bytes = size;
    return store_setattr(rig->store, view, attr.ino, STORE_SET_SIZE, &attr, &out);
}

int shell_rewrite(struct txn_rig *rig, struct view *view, const char *path, const char *text)
{
    const int rc = shell_truncate_to(rig, view, path, 0);
    return rc != 0 ? rc : shell_append(rig, view, path, text);
}

int shell_change_mode(struct txn_rig *rig, struct view *view, const char *path, uint32_t mode)
{
    struct store_attr attr;
    struct store_attr out;
    assert_int_equal(shell_look(rig, view, path, &attr), 0);
    attr.mode = mode;
    return store_setattr(rig->store, view, attr.ino, STORE_SET_MODE, &attr, &out);
}

int shell_remove(struct txn_rig *rig, struct view *view, const char *path)
{
    const char *name = NULL;
    const ino_no dir = dir_of(rig, view, path, &name);
    return store_unlink(rig->store, view, dir, shell_name(name));
}

int shell_remove_dir(struct txn_rig *rig, struct view *view, const char *path)
{
    const char *name = NULL;
    const ino_no dir = dir_of(rig, view, path, &name);
    return store_rmdir(rig->store, view, dir, shell_name(name));
}

int shell_move(struct txn_rig *rig, struct view *view, const char *from, const char *to)
{
    const char *from_name = NULL;
    const char *to_name = NULL;
    const ino_no from_dir = dir_of(rig, view, from, &from_name);
    const ino_no to_dir = dir_of(rig, view, to, &to_name);
    return store_rename(rig->store, view, from_dir, shell_name(from_name), to_dir, shell_name(to_name), 0);
}

int shell_link(struct txn_rig *rig, struct view *view, const char *from, const char *to)
{
    struct store_attr attr;
    const char *to_name = NULL;
    assert_int_equal(shell_look(rig, view, from, &attr), 0);
    const ino_no to_dir = dir_of(rig, view, to, &to_name);
    return store_link(rig->store, view, attr.ino, to_dir, shell_name(to_name), &attr);
}

void shell_expect_file(struct store_file *file, const char *want)
{
    char got[65536];
    size_t size = 0;
    assert_int_equal(store_read(file, 0, got, sizeof got - 1, &size), 0);
    got[size] = '\0';
    assert_string_equal(got, want);
}

void shell_expect(struct txn_rig *rig, struct view *view, const char *path, const char *want)
{
    struct store_attr attr;
    if (want == NULL) {
        assert_int_equal(shell_look(rig, view, path, &attr), -ENOENT);
        return;
    }
    struct store_file *file = shell_open(rig, view, path);
    shell_expect_file(file, want);
    store_file_close(file);
}

int shell_compact(struct txn_rig *rig, const char *path, struct store_compact_info *out_info)
{
    struct store_compact *compact = NULL;
    struct store_file *file = shell_open(rig, store_live(rig->store), path);
    int rc = store_compact_begin(file, &compact);
    assert_int_equal(rc, 0);
    do {
        rc = store_compact_step(compact, 1);
    } while (rc == 1);
    store_compact_get_info(compact, out_info);
    store_compact_end(compact);
    store_file_close(file);
    return rc;
}

struct store_txn *shell_begin(struct txn_rig *rig)
{
    struct store_txn *txn = NULL;
    const struct store_txn_options options = {.name = shell_name("x")};
    assert_int_equal(store_txn_begin(rig->store, &options, &txn), 0);
    return txn;
}

int shell_commit(struct store_txn *txn)
{
    struct store_changes changes;
    const int rc = store_txn_commit(txn, &changes);
    if (rc == 0) {
        store_changes_free(&changes);
    }
    return rc;
}

void shell_must_commit(struct store_txn *txn)
{
    assert_int_equal(shell_commit(txn), 0);
    store_txn_put(txn);
}

void shell_must_conflict(struct store_txn *txn)
{
    assert_int_equal(shell_commit(txn), -EAGAIN);
    assert_int_equal(shell_commit(txn), -EAGAIN);
    store_txn_put(txn);
}

char *shell_rows(const char *who, unsigned lines)
{
    const size_t capacity = (size_t)lines * 40 + 1;
    char *text = malloc(capacity);
    size_t size = 0;
    assert_non_null(text);
    text[0] = '\0';
    for (unsigned i = 0; i < lines; i++) {
        size += (size_t)snprintf(text + size, capacity - size, "%s row number %u\n", who, i);
    }
    return text;
}

void shell_expect_large(struct txn_rig *rig, struct view *view, const char *path, const char *const *parts,
                        unsigned count)
{
    struct store_file *file = shell_open(rig, view, path);
    uint64_t offset = 0;
    for (unsigned i = 0; i < count; i++) {
        const size_t want = strlen(parts[i]);
        char *got = malloc(want + 1);
        size_t size = 0;
        assert_non_null(got);
        assert_int_equal(store_read(file, offset, got, want, &size), 0);
        assert_int_equal(size, want);
        assert_memory_equal(got, parts[i], want);
        offset += want;
        free(got);
    }
    struct store_attr attr;
    assert_int_equal(store_file_getattr(file, &attr), 0);
    assert_int_equal(attr.size_bytes, offset);
    store_file_close(file);
}

int shell_append_kill(struct txn_rig *rig, struct view *view, const char *path, const char *text)
{
    uint64_t end = 0;
    struct store_file *file = shell_open(rig, view, path);
    const int rc = store_write(file, 0, text, strlen(text), STORE_WRITE_APPEND | STORE_WRITE_KILL_SUID, &end);
    store_file_close(file);
    return rc;
}

uint32_t shell_mode_of(struct txn_rig *rig, const char *path)
{
    struct store_attr attr;
    assert_int_equal(shell_look(rig, store_live(rig->store), path, &attr), 0);
    return attr.mode & 07777;
}
