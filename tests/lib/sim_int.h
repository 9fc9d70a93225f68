/*
 * tests/lib/sim_int.h - inside of the simulated disk: inodes, names, changes that are not durable yet.
 */
#ifndef TBLFS_TESTS_LIB_SIM_INT_H
#define TBLFS_TESTS_LIB_SIM_INT_H

#include "tests/lib/sim_device.h"

#include <uthash.h>

#define SIM_NOBODY UINT32_MAX

enum sim_change_kind { SIM_WRITE, SIM_TRUNCATE, SIM_GROW, SIM_PUNCH };

/* A change of a file that is not durable yet. */
struct sim_change {
    enum sim_change_kind kind;
    uint64_t moment; /* numbers all changes of the device */
    uint64_t offset_bytes, size_bytes;
    uint8_t *bytes; /* SIM_WRITE */
};

/* What is surely on the medium of one file, and what may be. */
struct sim_inode {
    bool is_dir, in_log;
    uint64_t size_bytes;
    uint8_t **blocks; /* BLOCK_SIZE each, NULL: zeros */
    size_t block_count;
    struct sim_change *changes;
    size_t change_count, change_capacity;
};

/* A path that was ever used as a name. Its number is its index in sim_device.names; parents come before children. */
struct sim_name {
    char *path;
    char *dir;
    uint32_t number;
    uint32_t durable; /* inode that it surely leads to, SIM_NOBODY: none */
    uint32_t current; /* as a reader sees it */
    bool at_start;
    UT_hash_handle hh;
};

/* A change of names that is not durable yet: `name` leads to `inode`; a rename takes it from `from`. */
struct sim_name_change {
    uint64_t moment;
    uint32_t name, inode; /* inode SIM_NOBODY: removed */
    uint32_t from;        /* SIM_NOBODY: no rename */
};

struct sim_device {
    struct io_device dev;
    struct mem_device *mem;
    struct io_device *inner;
    struct sim_inode **inodes;
    uint32_t inode_count, inode_capacity;
    struct sim_name **names;
    struct sim_name *by_path;
    uint32_t name_count, name_capacity;
    struct sim_name_change *name_changes;
    size_t name_change_count, name_change_capacity;
    uint64_t moment;
    uint64_t realtime_ns; /* as it was last answered */
    enum sim_failed_sync failed_sync;
    sim_hook_fn *hook;
    void *hook_arg;
};

void *sim_must(void *memory);

#endif
