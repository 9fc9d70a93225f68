/*
 * tests/lib/sim_cut.c - the states that a power cut may leave.
 *
 * A cut is a list of choices, each with versions in the order of their moments: version 0 is what is surely on the
 * medium. A choice is a sector, the size of a file, one change of a name, or (ordered names) how many changes of names
 * happened. A state picks one version of each.
 */
#include "tests/lib/sim_int.h"

#include "base/checksum.h"
#include "tests/lib/test_support.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXHAUSTIVE_MAX 256u
#define SPECIAL_STATES 6u

enum choice_kind { CHOICE_SECTOR, CHOICE_SIZE, CHOICE_NAME, CHOICE_NAMES_PREFIX };

struct version {
    uint64_t moment;
    uint64_t size_bytes; /* CHOICE_SIZE */
    uint8_t *bytes;      /* CHOICE_SECTOR: one sector; NULL in version 0 */
};

struct choice {
    enum choice_kind kind;
    bool in_log;
    uint32_t inode;
    uint64_t sector; /* CHOICE_SECTOR: its number; CHOICE_NAME: index of the change */
    struct version *versions;
    uint32_t count, capacity;
    UT_hash_handle hh; /* sectors of the inode under way, by number */
};

struct sim_cut {
    struct sim_device *sim;
    struct sim_profile profile;
    struct choice **choices;
    size_t choice_count, choice_capacity;
    uint64_t *moments; /* of all changes, ascending */
    size_t moment_count, moment_capacity;
    uint32_t *picks;       /* one for each choice */
    uint64_t combinations; /* at most EXHAUSTIVE_MAX + 1 */
    uint32_t garbage_inode;
    uint64_t garbage_sector;
    uint32_t *inode_of; /* by name, of the state being built */
};

/* ---- making the choices ---- */

static void version_add(struct choice *choice, struct version version)
{
    if (choice->count == choice->capacity) {
        choice->capacity = choice->capacity * 2 + 2;
        choice->versions = sim_must(realloc(choice->versions, choice->capacity * sizeof choice->versions[0]));
    }
    choice->versions[choice->count++] = version;
}

static struct choice *choice_make(enum choice_kind kind, uint32_t inode, bool in_log, struct version first)
{
    struct choice *choice = sim_must(calloc(1, sizeof *choice));
    choice->kind = kind;
    choice->inode = inode;
    choice->in_log = in_log;
    version_add(choice, first);
    return choice;
}

static void choice_free(struct choice *choice)
{
    for (uint32_t i = 0; i < choice->count; i++) {
        free(choice->versions[i].bytes);
    }
    free(choice->versions);
    free(choice);
}

/* Keeps what is a choice at all. */
static void cut_add(struct sim_cut *cut, struct choice *choice)
{
    if (choice->count < 2) {
        choice_free(choice);
        return;
    }
    if (cut->choice_count == cut->choice_capacity) {
        cut->choice_capacity = cut->choice_capacity * 2 + 64;
        cut->choices = sim_must(realloc(cut->choices, cut->choice_capacity * sizeof(struct choice *)));
    }
    cut->choices[cut->choice_count++] = choice;
    cut->combinations *= choice->count;
    if (cut->combinations > EXHAUSTIVE_MAX) {
        cut->combinations = EXHAUSTIVE_MAX + 1;
    }
}

static void moment_add(struct sim_cut *cut, uint64_t moment)
{
    if (cut->moment_count == cut->moment_capacity) {
        cut->moment_capacity = cut->moment_capacity * 2 + 64;
        cut->moments = sim_must(realloc(cut->moments, cut->moment_capacity * sizeof cut->moments[0]));
    }
    cut->moments[cut->moment_count++] = moment;
}

/* What is surely in a sector. */
static void durable_sector(const struct sim_inode *inode, uint64_t sector, unsigned sector_bytes, uint8_t *out_bytes)
{
    const uint64_t offset = sector * sector_bytes;
    const size_t index = (size_t)(offset / BLOCK_SIZE);
    if (index < inode->block_count && inode->blocks[index] != NULL) {
        memcpy(out_bytes, inode->blocks[index] + offset % BLOCK_SIZE, sector_bytes);
    } else {
        memset(out_bytes, 0, sector_bytes);
    }
}

struct sector_work {
    struct sim_cut *cut;
    const struct sim_inode *inode;
    uint32_t inode_number;
    struct choice *by_sector;
};

/* A part of a sector gets new bytes (NULL: zeros). */
static void sector_patch(struct sector_work *work, uint64_t moment, uint64_t sector, size_t at, size_t size,
                         const uint8_t *bytes)
{
    const unsigned sector_bytes = work->cut->profile.sector_bytes;
    uint8_t old[4096];
    uint8_t new[4096];
    struct choice *choice = NULL;
    HASH_FIND(hh, work->by_sector, &sector, sizeof sector, choice);
    if (choice == NULL || choice->count == 1) {
        durable_sector(work->inode, sector, sector_bytes, old);
    } else {
        memcpy(old, choice->versions[choice->count - 1].bytes, sector_bytes);
    }
    memcpy(new, old, sector_bytes);
    if (bytes != NULL) {
        memcpy(new + at, bytes, size);
    } else {
        memset(new + at, 0, size);
    }
    if (memcmp(old, new, sector_bytes) == 0) {
        return;
    }
    if (choice == NULL) {
        choice = choice_make(CHOICE_SECTOR, work->inode_number, work->inode->in_log, (struct version){0});
        choice->sector = sector;
        HASH_ADD(hh, work->by_sector, sector, sizeof choice->sector, choice);
    }
    struct version version = {.moment = moment, .bytes = sim_must(malloc(sector_bytes))};
    memcpy(version.bytes, new, sector_bytes);
    version_add(choice, version);
}

static void range_patch(struct sector_work *work, uint64_t moment, uint64_t offset, uint64_t size, const uint8_t *bytes)
{
    const unsigned sector_bytes = work->cut->profile.sector_bytes;
    for (uint64_t done = 0; done < size;) {
        const uint64_t at = offset + done;
        const size_t in_sector = (size_t)(at % sector_bytes);
        const size_t room = sector_bytes - in_sector;
        const size_t piece = size - done < room ? (size_t)(size - done) : room;
        sector_patch(work, moment, at / sector_bytes, in_sector, piece, bytes != NULL ? bytes + done : NULL);
        done += piece;
    }
}

static void change_patch(struct sector_work *work, const struct sim_change *change, struct choice *size,
                         uint64_t *inout_largest)
{
    const uint64_t last_size = size->versions[size->count - 1].size_bytes;
    const uint64_t end = change->offset_bytes + change->size_bytes;
    uint64_t new_size = last_size;
    if (change->kind == SIM_WRITE) {
        range_patch(work, change->moment, change->offset_bytes, change->size_bytes, change->bytes);
        new_size = end > last_size ? end : last_size;
    } else if (change->kind == SIM_GROW) {
        new_size = end > last_size ? end : last_size;
    } else if (change->kind == SIM_TRUNCATE) {
        new_size = change->size_bytes;
        if (new_size < *inout_largest) {
            range_patch(work, change->moment, new_size, *inout_largest - new_size, NULL);
        }
    } else if (change->offset_bytes < *inout_largest) {
        const uint64_t punch_end = end < *inout_largest ? end : *inout_largest;
        range_patch(work, change->moment, change->offset_bytes, punch_end - change->offset_bytes, NULL);
    }
    if (new_size != last_size) {
        version_add(size, (struct version){.moment = change->moment, .size_bytes = new_size});
    }
    *inout_largest = new_size > *inout_largest ? new_size : *inout_largest;
}

static void cut_add_inode(struct sim_cut *cut, uint32_t number)
{
    const struct sim_inode *inode = cut->sim->inodes[number];
    struct sector_work work = {.cut = cut, .inode = inode, .inode_number = number};
    uint64_t largest = inode->size_bytes;
    if (inode->change_count == 0) {
        return;
    }
    struct choice *size =
        choice_make(CHOICE_SIZE, number, inode->in_log, (struct version){.size_bytes = inode->size_bytes});
    for (size_t i = 0; i < inode->change_count; i++) {
        moment_add(cut, inode->changes[i].moment);
        change_patch(&work, &inode->changes[i], size, &largest);
    }
    struct choice *choice = work.by_sector;
    while (choice != NULL) {
        struct choice *next = choice->hh.next;
        cut_add(cut, choice);
        choice = next;
    }
    if (work.by_sector != NULL) {
        HASH_CLEAR(hh, work.by_sector);
    }
    cut_add(cut, size);
}

static bool name_change_in_log(const struct sim_device *sim, const struct sim_name_change *change)
{
    return strstr(sim->names[change->name]->path, "/log") != NULL;
}

static void cut_add_names(struct sim_cut *cut)
{
    const struct sim_device *sim = cut->sim;
    struct choice *prefix = choice_make(CHOICE_NAMES_PREFIX, SIM_NOBODY, false, (struct version){0});
    for (size_t i = 0; i < sim->name_change_count; i++) {
        const struct version version = {.moment = sim->name_changes[i].moment};
        moment_add(cut, version.moment);
        if (cut->profile.ordered_names) {
            version_add(prefix, version);
            continue;
        }
        struct choice *choice =
            choice_make(CHOICE_NAME, SIM_NOBODY, name_change_in_log(sim, &sim->name_changes[i]), (struct version){0});
        choice->sector = i;
        version_add(choice, version);
        cut_add(cut, choice);
    }
    cut_add(cut, prefix);
}

static bool *reachable_inodes(const struct sim_device *sim)
{
    bool *reachable = sim_must(calloc(sim->inode_count + 1, sizeof *reachable));
    for (uint32_t i = 0; i < sim->name_count; i++) {
        if (sim->names[i]->durable != SIM_NOBODY) {
            reachable[sim->names[i]->durable] = true;
        }
    }
    for (size_t i = 0; i < sim->name_change_count; i++) {
        if (sim->name_changes[i].inode != SIM_NOBODY) {
            reachable[sim->name_changes[i].inode] = true;
        }
    }
    return reachable;
}

static void find_last_sector(struct sim_cut *cut, const bool *reachable)
{
    uint64_t last = 0;
    cut->garbage_inode = SIM_NOBODY;
    for (uint32_t i = 0; i < cut->sim->inode_count; i++) {
        const struct sim_inode *inode = cut->sim->inodes[i];
        for (size_t j = 0; reachable[i] && j < inode->change_count; j++) {
            const struct sim_change *change = &inode->changes[j];
            if (change->kind == SIM_WRITE && change->moment > last) {
                last = change->moment;
                cut->garbage_inode = i;
                cut->garbage_sector = (change->offset_bytes + change->size_bytes - 1) / cut->profile.sector_bytes;
            }
        }
    }
}

static int compare_moments(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

struct sim_cut *sim_cut_create(struct sim_device *sim, const struct sim_profile *profile)
{
    struct sim_cut *cut = sim_must(calloc(1, sizeof *cut));
    cut->sim = sim;
    cut->profile = *profile;
    cut->combinations = 1;
    bool *reachable = reachable_inodes(sim);
    for (uint32_t i = 0; i < sim->inode_count; i++) {
        if (reachable[i]) {
            cut_add_inode(cut, i);
        }
    }
    cut_add_names(cut);
    find_last_sector(cut, reachable);
    free(reachable);
    if (cut->moment_count > 1) {
        qsort(cut->moments, cut->moment_count, sizeof cut->moments[0], compare_moments);
    }
    cut->picks = sim_must(calloc(cut->choice_count + 1, sizeof cut->picks[0]));
    cut->inode_of = sim_must(calloc(sim->name_count + 1, sizeof cut->inode_of[0]));
    return cut;
}

void sim_cut_free(struct sim_cut *cut)
{
    for (size_t i = 0; i < cut->choice_count; i++) {
        choice_free(cut->choices[i]);
    }
    free(cut->choices);
    free(cut->moments);
    free(cut->picks);
    free(cut->inode_of);
    free(cut);
}

/* ---- picking ---- */

uint64_t sim_cut_systematic(const struct sim_cut *cut, bool *out_all)
{
    *out_all = cut->combinations <= EXHAUSTIVE_MAX;
    return *out_all ? cut->combinations : SPECIAL_STATES + 3 * cut->moment_count + 1;
}

static uint32_t version_at(const struct choice *choice, uint64_t moment)
{
    uint32_t pick = choice->count - 1;
    while (pick > 0 && choice->versions[pick].moment > moment) {
        pick--;
    }
    return pick;
}

static uint32_t pick_special(const struct choice *choice, uint64_t state)
{
    const bool is_name = choice->kind == CHOICE_NAME || choice->kind == CHOICE_NAMES_PREFIX;
    const bool is_new = state == 1 || (state == 2 && !is_name) || (state == 3 && is_name) ||
                        (state == 4 && choice->in_log) || (state == 5 && !choice->in_log);
    return is_new ? choice->count - 1 : 0;
}

/* All but the change of this moment. */
static uint32_t pick_without(const struct choice *choice, uint64_t moment)
{
    const uint32_t last = choice->count - 1;
    return choice->versions[last].moment == moment ? last - 1 : last;
}

static uint32_t pick_alone(const struct choice *choice, uint64_t moment)
{
    for (uint32_t i = 1; i < choice->count; i++) {
        if (choice->versions[i].moment == moment) {
            return i;
        }
    }
    return 0;
}

static uint32_t pick_systematic(const struct sim_cut *cut, const struct choice *choice, uint64_t state)
{
    if (state < SPECIAL_STATES) {
        return pick_special(choice, state);
    }
    state -= SPECIAL_STATES;
    if (state <= cut->moment_count) {
        return state == 0 ? 0 : version_at(choice, cut->moments[state - 1]);
    }
    state -= cut->moment_count + 1;
    if (state < cut->moment_count) {
        return pick_without(choice, cut->moments[state]);
    }
    return pick_alone(choice, cut->moments[state - cut->moment_count]);
}

/* Several kinds of chance: even, mostly new, mostly old, whole files, a prefix with some disorder behind it. */
static uint32_t pick_random(struct test_random *random, uint64_t kind, uint64_t middle, uint64_t salt,
                            const struct choice *choice)
{
    const uint32_t last = choice->count - 1;
    const uint32_t any = (uint32_t)test_random_below(random, choice->count);
    switch (kind) {
    case 0:
        return any;
    case 1:
        return test_random_chance(random, 92) ? last : any;
    case 2:
        return test_random_chance(random, 92) ? 0 : any;
    case 3: {
        const uint64_t whose[3] = {salt, choice->inode, choice->kind == CHOICE_NAME ? choice->sector : 0};
        return (checksum_64(whose, sizeof whose, salt) & 1) != 0 ? last : 0;
    }
    default: {
        const uint32_t pick = version_at(choice, middle);
        return test_random_chance(random, 85) ? pick : any;
    }
    }
}

static void pick_all(struct sim_cut *cut, uint64_t state)
{
    bool all = false;
    const uint64_t systematic = sim_cut_systematic(cut, &all);
    struct test_random random;
    test_random_init(&random, state * UINT64_C(0x9e3779b97f4a7c15));
    const uint64_t kind = test_random_below(&random, 5);
    const uint64_t middle = cut->moment_count > 0 ? cut->moments[test_random_below(&random, cut->moment_count)] : 0;
    uint64_t digits = state;
    for (size_t i = 0; i < cut->choice_count; i++) {
        const struct choice *choice = cut->choices[i];
        if (state >= systematic) {
            cut->picks[i] = pick_random(&random, kind, middle, state, choice);
        } else if (all) {
            cut->picks[i] = (uint32_t)(digits % choice->count);
            digits /= choice->count;
        } else {
            cut->picks[i] = pick_systematic(cut, choice, state);
        }
    }
}

/* ---- building ---- */

static void name_change_happens(struct sim_cut *cut, const struct sim_name_change *change)
{
    cut->inode_of[change->name] = change->inode;
    if (change->from != SIM_NOBODY) {
        cut->inode_of[change->from] = SIM_NOBODY;
    }
}

static void build_names(struct sim_cut *cut)
{
    const struct sim_device *sim = cut->sim;
    for (uint32_t i = 0; i < sim->name_count; i++) {
        cut->inode_of[i] = sim->names[i]->durable;
    }
    for (size_t i = 0; i < cut->choice_count; i++) {
        const struct choice *choice = cut->choices[i];
        if (choice->kind == CHOICE_NAME && cut->picks[i] == 1) {
            name_change_happens(cut, &sim->name_changes[choice->sector]);
        }
        for (uint32_t j = 0; choice->kind == CHOICE_NAMES_PREFIX && j < cut->picks[i]; j++) {
            name_change_happens(cut, &sim->name_changes[j]);
        }
    }
}

struct build {
    struct io_device *dev;
    struct io_file **files; /* by inode */
    uint64_t *sizes;        /* by inode */
    uint64_t hash;
};

static void must_be_0(int rc)
{
    if (rc != 0) {
        abort();
    }
}

static void hash_add(struct build *build, const void *bytes, size_t size, uint64_t where)
{
    build->hash += checksum_64(bytes, size, where);
}

static void write_clipped(struct build *build, uint32_t inode, uint64_t offset, const uint8_t *bytes, size_t size)
{
    const uint64_t file_size = build->sizes[inode];
    if (offset < file_size) {
        const uint64_t room = file_size - offset;
        must_be_0(io_write_full(build->files[inode], bytes, room < size ? (size_t)room : size, offset));
        hash_add(build, bytes, size, offset * 31 + inode);
    }
}

static void build_file(struct sim_cut *cut, struct build *build, const char *path, uint32_t number)
{
    const struct sim_inode *inode = cut->sim->inodes[number];
    must_be_0(io_open(build->dev, path, IO_READ_WRITE | IO_CREATE, &build->files[number]));
    must_be_0(io_truncate(build->files[number], build->sizes[number]));
    hash_add(build, path, strlen(path), build->sizes[number]);
    for (size_t i = 0; i < inode->block_count; i++) {
        if (inode->blocks[i] != NULL) {
            write_clipped(build, number, (uint64_t)i * BLOCK_SIZE, inode->blocks[i], BLOCK_SIZE);
        }
    }
}

static void build_files(struct sim_cut *cut, struct build *build)
{
    const struct sim_device *sim = cut->sim;
    for (uint32_t i = 0; i < sim->name_count; i++) {
        const uint32_t inode = cut->inode_of[i];
        struct io_stat stat;
        if (inode == SIM_NOBODY ||
            (*sim->names[i]->dir != '\0' && io_stat(build->dev, sim->names[i]->dir, &stat) != 0)) {
            continue; /* also when the directory's own name was lost */
        }
        if (sim->inodes[inode]->is_dir) {
            must_be_0(io_make_dir(build->dev, sim->names[i]->path));
        } else if (build->files[inode] == NULL) {
            build_file(cut, build, sim->names[i]->path, inode);
        }
    }
}

static void build_sectors(struct sim_cut *cut, struct build *build)
{
    const unsigned sector_bytes = cut->profile.sector_bytes;
    for (size_t i = 0; i < cut->choice_count; i++) {
        const struct choice *choice = cut->choices[i];
        if (choice->kind == CHOICE_SECTOR && cut->picks[i] > 0 && build->files[choice->inode] != NULL) {
            write_clipped(build, choice->inode, choice->sector * sector_bytes, choice->versions[cut->picks[i]].bytes,
                          sector_bytes);
        }
    }
    if (cut->profile.garbage && cut->garbage_inode != SIM_NOBODY && build->files[cut->garbage_inode] != NULL) {
        uint8_t garbage[4096];
        struct test_random random;
        test_random_init(&random, build->hash);
        test_random_bytes(&random, garbage, sector_bytes);
        write_clipped(build, cut->garbage_inode, cut->garbage_sector * sector_bytes, garbage, sector_bytes);
    }
}

struct mem_device *sim_cut_build(struct sim_cut *cut, uint64_t state, uint64_t *out_hash)
{
    const struct sim_device *sim = cut->sim;
    struct mem_device *mem = mem_device_create(state ^ sim->moment);
    struct build build = {.dev = mem_device_io(mem)};
    build.files = sim_must(calloc(sim->inode_count + 1, sizeof(struct io_file *)));
    build.sizes = sim_must(calloc(sim->inode_count + 1, sizeof build.sizes[0]));
    pick_all(cut, state);
    for (uint32_t i = 0; i < sim->inode_count; i++) {
        build.sizes[i] = sim->inodes[i]->size_bytes;
    }
    for (size_t i = 0; i < cut->choice_count; i++) {
        const struct choice *choice = cut->choices[i];
        if (choice->kind == CHOICE_SIZE) {
            build.sizes[choice->inode] = choice->versions[cut->picks[i]].size_bytes;
        }
    }
    build_names(cut);
    build_files(cut, &build);
    build_sectors(cut, &build);
    for (uint32_t i = 0; i < sim->inode_count; i++) {
        if (build.files[i] != NULL) {
            must_be_0(io_close(build.files[i]));
        }
    }
    free(build.files);
    free(build.sizes);
    if (sim->realtime_ns > 0) {
        mem_device_set_realtime_ns(mem, sim->realtime_ns + 1000000);
    }
    *out_hash = build.hash;
    return mem;
}
