/*
 * tests/lib/sim_device.h - a recording io_device: what may a power cut leave?
 *
 * It stands before a mem_device, which holds what a reader sees. For each file it keeps beside that what is surely on
 * the medium (as of the file's last good sync) and every change since; for each directory the names that are surely
 * there and every creation, removal and renaming since its last sync. From these a cut builds the states that a power
 * cut may leave (RELIABILITY of docs/TESTING.md):
 *
 *   SIM-1  Each sector holds its content as of any moment since its file's last good sync, sector by sector.
 *   SIM-2  A file has any size that it had since then.
 *   SIM-3  Of the changes of names that were not synced, any subset happened, or (profile `ordered_names`) a prefix.
 *   SIM-4  A file's sync makes content and size durable, not its name; a directory's sync makes its names durable; a
 *          filesystem's sync makes everything durable.
 *   SIM-5  A failed sync makes nothing durable, and later syncs do not make up for it (enum sim_failed_sync).
 *
 * A kill leaves what a reader saw: a clone of the mem_device.
 *
 * Directories are neither removed nor renamed, files not renamed across directories (aborts): nobody below fusefs/ does.
 * Locking: none; one thread.
 */
#ifndef TBLFS_TESTS_LIB_SIM_DEVICE_H
#define TBLFS_TESTS_LIB_SIM_DEVICE_H

#include "tests/lib/mem_device.h"

struct sim_device;

/* What becomes of the changes that a failed sync was to make durable. */
enum sim_failed_sync {
    SIM_FAILED_SYNC_LOST,     /* ext4: a reader goes on seeing them, the medium never does */
    SIM_FAILED_SYNC_REVERTED, /* btrfs: the old bytes are back for readers too */
};

/* Called before each call that changes or syncs something, before it takes effect. */
typedef void sim_hook_fn(void *arg, enum mem_call call);

/* Everything in mem counts as durable. Takes mem over. */
struct sim_device *sim_device_create(struct mem_device *mem);
void sim_device_destroy(struct sim_device *sim);
struct io_device *sim_device_io(struct sim_device *sim);
/* What a reader sees; faults and clock. */
struct mem_device *sim_device_mem(struct sim_device *sim);
void sim_device_set_hook(struct sim_device *sim, sim_hook_fn *hook, void *arg);
void sim_device_set_failed_sync(struct sim_device *sim, enum sim_failed_sync failed_sync);
/* Largest number that a file directly below a directory whose path holds `infix` was made with; its name is 16
 * hexadecimal digits. With `made_since` names that the device began with do not count. 0: none. *out_smallest (may be
 * NULL) is the smallest one. */
uint64_t sim_device_file_number(struct sim_device *sim, const char *infix, bool made_since, uint64_t *out_smallest);

/* ---- states after a power cut ---- */

struct sim_profile {
    unsigned sector_bytes; /* 512 or 4096 */
    bool ordered_names;
    bool garbage; /* the last sector written before the cut holds random bytes */
};

/* The choices that a power cut would have now. To be used and freed before the device goes on. */
struct sim_cut;

struct sim_cut *sim_cut_create(struct sim_device *sim, const struct sim_profile *profile);
void sim_cut_free(struct sim_cut *cut);

/* States are numbered. Those below this count are systematic; with few choices (256 states) they are all there are, else
 *
 *   0 all old, 1 all new, 2 data without names, 3 names without data, 4 log without data, 5 data without log (log: what
 *   lies in a directory "log"), then every prefix, then each change alone lost, then each alone kept.
 *
 * Numbers from SIM_STATE_RANDOM on are drawn at random, the number being the seed. */
#define SIM_STATE_RANDOM 1000000u
uint64_t sim_cut_systematic(const struct sim_cut *cut, bool *out_all);
/* Builds one. *out_hash: of names, sizes and contents. */
struct mem_device *sim_cut_build(struct sim_cut *cut, uint64_t state, uint64_t *out_hash);

#endif
