/*
 * tests/model/sidecar_rig.c - see sidecar_rig.h.
 */
#include "tests/model/sidecar_rig.h"

#include "txn/store_int.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

struct file_count {
    unsigned sidecars, relations;
};

static int count_file(void *arg, const char *name, enum io_file_kind kind)
{
    struct file_count *count = arg;
    if (kind != IO_KIND_FILE || strncmp(name, "0000000000000001", 16) == 0) {
        return strcmp(name, "0000000000000001_fsm") == 0 ? -EEXIST : 0;
    }
    count->sidecars += strstr(name, "_fsm") != NULL;
    count->relations += strstr(name, "_fsm") == NULL;
    return 0;
}

static struct file_count count_files(struct io_device *dev)
{
    struct file_count count = {.sidecars = 0};
    for (unsigned i = 0; i < 256; i++) {
        char dir[64];
        (void)snprintf(dir, sizeof dir, TXN_RIG_DIR "/rel/%02x", i);
        assert_int_equal(io_list_dir(dev, dir, count_file, &count), 0);
    }
    return count;
}

unsigned sidecars_count(struct io_device *dev)
{
    return count_files(dev).sidecars;
}

unsigned relation_files_count(struct io_device *dev)
{
    return count_files(dev).relations;
}

static struct inode inode_of(struct txn_rig *rig, const char *path)
{
    struct inode inode;
    struct view *live = store_live(rig->store);
    struct store_file *file = shell_open(rig, live, path);
    assert_int_equal(store_file_get_inode(file, &inode), 0);
    store_file_close(file);
    return inode;
}

void sidecar_path_of(struct txn_rig *rig, const char *path, char sidecar[SIDECAR_PATH_BYTES])
{
    const rel_no rel = inode_of(rig, path).rel;
    (void)snprintf(sidecar, SIDECAR_PATH_BYTES, TXN_RIG_DIR "/rel/%02x/%016" PRIx64 "_fsm", (unsigned)(rel % 256), rel);
}

bool sidecar_exists(struct txn_rig *rig, const char *path)
{
    char sidecar[SIDECAR_PATH_BYTES];
    struct io_stat st;
    sidecar_path_of(rig, path, sidecar);
    return io_stat(rig->dev, sidecar, &st) == 0;
}

block_no file_blocks_of(struct txn_rig *rig, const char *path)
{
    char sidecar[SIDECAR_PATH_BYTES];
    struct io_stat st;
    sidecar_path_of(rig, path, sidecar);
    *strstr(sidecar, "_fsm") = '\0';
    assert_int_equal(io_stat(rig->dev, sidecar, &st), 0);
    return (block_no)(st.size_bytes / BLOCK_SIZE);
}

void sidecar_rig_reopen(struct txn_rig *rig)
{
    assert_int_equal(store_close(rig->store), 0);
    txn_rig_open(rig);
}

void table_fill(struct txn_rig *rig, struct view *view, const char *path, unsigned leaves, char byte)
{
    struct store_attr attr;
    if (shell_look(rig, view, path, &attr) != 0) {
        assert_int_equal(shell_make(rig, view, path, S_IFREG | 0644), 0);
    }
    assert_int_equal(shell_truncate_to(rig, view, path, 0), 0);
    struct store_file *file = shell_open(rig, view, path);
    for (unsigned i = 0; i < leaves; i++) {
        uint8_t bytes[PAGE_PAYLOAD_SIZE];
        uint64_t end = 0;
        memset(bytes, byte, sizeof bytes);
        assert_int_equal(store_write(file, 0, bytes, sizeof bytes, STORE_WRITE_APPEND, &end), 0);
    }
    store_file_close(file);
}

void table_change(struct txn_rig *rig, struct view *view, const char *path, unsigned leaf, char byte)
{
    uint8_t bytes[PAGE_PAYLOAD_SIZE];
    uint64_t end = 0;
    struct store_file *file = shell_open(rig, view, path);
    memset(bytes, byte, sizeof bytes);
    assert_int_equal(store_write(file, (uint64_t)leaf * sizeof bytes, bytes, sizeof bytes, 0, &end), 0);
    store_file_close(file);
}

void table_expect(struct txn_rig *rig, const char *path, unsigned leaves, char byte)
{
    struct store_file *file = shell_open(rig, store_live(rig->store), path);
    uint8_t want[PAGE_PAYLOAD_SIZE];
    uint8_t got[PAGE_PAYLOAD_SIZE];
    size_t size = 0;
    memset(want, byte, sizeof want);
    for (unsigned leaf = 0; leaf <= leaves; leaf++) {
        assert_int_equal(store_read(file, (uint64_t)leaf * sizeof got, got, sizeof got, &size), 0);
        assert_int_equal(size, leaf < leaves ? sizeof got : 0);
        assert_memory_equal(got, want, size);
    }
    store_file_close(file);
}

void table_expect_map(struct txn_rig *rig, const char *path)
{
    struct store_file *file = shell_open(rig, store_live(rig->store), path);
    assert_int_equal(store_file_ensure_map(file), 0);
    txn_rig_check(rig);
    store_file_close(file);
}

struct store_stats sidecar_rig_stats(struct txn_rig *rig)
{
    struct store_stats stats;
    store_get_stats(rig->store, &stats);
    return stats;
}
