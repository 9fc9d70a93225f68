/*
 * tests/crash/explore.c - cuts a life off at its calls of the device, and verifies what each cut may leave.
 *
 *   crash_run --first life: fingerprints--> --second life, hook--> explore_cut, explore_kill --> verify
 *   verify: recover, check (CRASH-1 to 5), sometimes with cuts inside the recovery, sometimes a second life that is cut
 *
 * A point is the number of a call, a state what sim_cut_build numbers or STATE_KILL. All else is drawn from seed, point
 * and state, so that scenario:seed:point:state replays alone.
 */
#include "tests/crash/crash.h"

#include "base/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_KILL        2000000000u
#define SECOND_OPERATIONS 8u

/* What a recovered store must be like. */
struct expectation {
    const uint64_t *fingerprints;
    uint64_t lower, upper; /* one of fingerprints[lower] to [upper] */
    ino_no largest_ino;
    epoch_no epoch;
    uint64_t largest_rel, largest_segment;
};

struct explorer {
    const struct crash_config *config;
    struct crash_totals *totals;
    struct sim_device *sim;
    struct life *life;
    const uint64_t *fingerprints; /* of the first life; NULL during it */
    uint64_t operations;
    uint64_t point, state; /* under way */
    bool failed;
    char *why;
};

static bool fail_with(struct explorer *explorer, const struct life *life, const char *fmt, ...) PRINTF_LIKE(3, 4);
static bool verify(struct explorer *explorer, struct mem_device *mem, const struct expectation *expected,
                   unsigned depth, uint64_t salt);

static bool fail_with(struct explorer *explorer, const struct life *life, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!explorer->failed) {
        const struct crash_config *config = explorer->config;
        (void)snprintf(explorer->why, CRASH_WHY_BYTES, "%s:%" PRIu64 ":%" PRIu64 ":%" PRIu64 ": (%s) %s [%s] [%s]",
                       config->scenario, config->seed, explorer->point, explorer->state,
                       explorer->life != NULL ? explorer->life->note : "", text,
                       life != NULL ? life->diag.lines[(life->diag.next + 2) % 3] : "",
                       life != NULL ? life->diag.lines[(life->diag.next + 1) % 3] : "");
    }
    explorer->failed = true;
    return false;
}

/* ---- distinct states ---- */

static void seen_grow(struct crash_totals *totals)
{
    const uint64_t old_capacity = totals->seen_capacity;
    uint64_t *old = totals->seen;
    totals->seen_capacity = old_capacity * 2 + 65536;
    totals->seen = calloc(totals->seen_capacity, sizeof totals->seen[0]);
    if (totals->seen == NULL) {
        abort();
    }
    for (uint64_t i = 0; i < old_capacity; i++) {
        for (uint64_t at = old[i]; old[i] != 0; at++) {
            uint64_t *slot = &totals->seen[at % totals->seen_capacity];
            if (*slot == 0) {
                *slot = old[i];
                break;
            }
        }
    }
    free(old);
}

/* True when it is new. */
static bool seen_add(struct crash_totals *totals, uint64_t hash)
{
    hash = hash != 0 ? hash : 1;
    if (totals->distinct * 2 >= totals->seen_capacity) {
        seen_grow(totals);
    }
    for (uint64_t at = hash;; at++) {
        uint64_t *slot = &totals->seen[at % totals->seen_capacity];
        if (*slot == hash) {
            return false;
        }
        if (*slot == 0) {
            *slot = hash;
            totals->distinct++;
            return true;
        }
    }
}

void crash_totals_free(struct crash_totals *totals)
{
    free(totals->seen);
    totals->seen = NULL;
}

/* ---- verification ---- */

static bool is_expected(const struct expectation *expected, uint64_t fingerprint)
{
    for (uint64_t i = expected->lower; i <= expected->upper; i++) {
        if (expected->fingerprints[i] == fingerprint) {
            return true;
        }
    }
    return false;
}

/* Which operation's state it is, for the report; -1: none of them. */
static int64_t find_operation(const struct expectation *expected, uint64_t fingerprint)
{
    for (uint64_t i = expected->upper + 1; i > 0; i--) {
        if (expected->fingerprints[i - 1] == fingerprint) {
            return (int64_t)i - 1;
        }
    }
    return -1;
}

/* CRASH-1, CRASH-2, CRASH-3 on a store that was just opened. */
static bool verify_state(struct explorer *explorer, struct life *life, const struct expectation *expected)
{
    const uint64_t fingerprint = life->fingerprints[0];
    if (atomic_load(&life->diag.diag.damage_count) != life->damage_at_open) {
        return fail_with(explorer, life, "damage was reported");
    }
    if (!is_expected(expected, fingerprint)) {
        return fail_with(explorer, life, "the state is that after operation %" PRId64 ", not %" PRIu64 " to %" PRIu64,
                         find_operation(expected, fingerprint), expected->lower, expected->upper);
    }
    const int rc = store_check(life->store);
    if (rc != 0 || atomic_load(&life->diag.diag.damage_count) != life->damage_at_open) {
        return fail_with(explorer, life, "store_check answers %d", rc);
    }
    return true;
}

/* What verification makes, by depth. */
static const char *const new_names[] = {"new", "new below", "new further below"};

/* CRASH-5 */
static bool verify_numbers(struct explorer *explorer, struct life *life, struct sim_device *sim,
                           const struct expectation *expected, struct store_name name)
{
    struct store_attr attr;
    const epoch_no epoch = cow_epoch(store_cow(life->store));
    if (epoch <= expected->epoch) {
        return fail_with(explorer, life, "epoch %" PRIu64 " again (an earlier life had %" PRIu64 ")", epoch,
                         expected->epoch);
    }
    const int rc =
        store_create(life->store, store_live(life->store), INO_ROOT, name, 0100644, 0, (struct store_who){0, 0}, &attr);
    if (rc != 0) {
        return fail_with(explorer, life, "a file cannot be made in the recovered store: %d", rc);
    }
    if (attr.ino <= expected->largest_ino) {
        return fail_with(explorer, life, "inode number %" PRIu64 " again (an earlier life had %" PRIu64 ")", attr.ino,
                         expected->largest_ino);
    }
    uint64_t smallest = UINT64_MAX;
    if (sim != NULL && sim_device_file_number(sim, "/log/", true, &smallest) != 0 &&
        smallest <= expected->largest_segment) {
        return fail_with(explorer, life, "log segment %" PRIu64 " again (an earlier life had %" PRIu64 ")", smallest,
                         expected->largest_segment);
    }
    return true;
}

/* A relation that the recovered store makes must have a new number. */
static bool verify_new_relation(struct explorer *explorer, struct life *life, struct sim_device *sim,
                                const struct expectation *expected, struct store_name name, uint64_t before)
{
    struct store_attr attr;
    struct store_file *file = NULL;
    uint64_t end = 0;
    int rc = store_lookup(life->store, store_live(life->store), INO_ROOT, name, &attr);
    if (rc == 0) {
        rc = store_file_open(life->store, store_live(life->store), attr.ino, &file);
    }
    if (rc == 0) {
        rc = store_write(file, 0, "row\n", 4, 0, &end);
        store_file_close(file);
    }
    if (rc != 0) {
        return fail_with(explorer, life, "a new file cannot be written: %d", rc);
    }
    const uint64_t made = sim_device_file_number(sim, "/rel/", true, NULL);
    if (made == before || made <= expected->largest_rel) {
        return fail_with(explorer, life, "relation number %" PRIu64 " again (an earlier life had %" PRIu64 ")", made,
                         expected->largest_rel);
    }
    return true;
}

/* CRASH-4: what recovery left, killed, is recovered to the same. */
static bool verify_again(struct explorer *explorer, struct life *life)
{
    uint64_t again = 0;
    uint64_t before = 0;
    int rc = crash_fingerprint(life->store, &before);
    life_abandon(life);
    if (rc == 0) {
        rc = life_open(life);
    }
    if (rc == 0) {
        rc = crash_fingerprint(life->store, &again);
    }
    if (rc != 0) {
        return fail_with(explorer, life, "opening again answers %d", rc);
    }
    if (again != before) {
        return fail_with(explorer, life, "opening again after a kill gives another state");
    }
    if (store_check(life->store) != 0) {
        return fail_with(explorer, life, "store_check finds something after opening again");
    }
    return true;
}

struct rel_sum {
    struct io_device *dev;
    const char *dir;
    uint64_t sum;
};

static int sum_file(void *arg, const char *name, enum io_file_kind kind)
{
    struct rel_sum *sum = arg;
    char path[600];
    uint8_t bytes[BLOCK_SIZE];
    struct io_file *file = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", sum->dir, name);
    if (kind == IO_KIND_DIRECTORY) {
        struct rel_sum below = {.dev = sum->dev, .dir = path};
        const int rc = io_list_dir(sum->dev, path, sum_file, &below);
        sum->sum += below.sum;
        return rc;
    }
    int rc = io_open(sum->dev, path, IO_READ_ONLY, &file);
    size_t got = BLOCK_SIZE;
    uint64_t hash = checksum_64(path, strlen(path), 0);
    for (uint64_t at = 0; rc == 0 && got == BLOCK_SIZE; at += BLOCK_SIZE) {
        rc = io_read_full(file, bytes, sizeof bytes, at, &got);
        hash = checksum_64(bytes, got, hash);
    }
    sum->sum += hash;
    return file == NULL ? rc : io_close(file);
}

/* CRASH-4: opens after one another, with nothing in between, leave the relation files as they were. The first one may
 * destroy orphans, which the second one replays. */
static bool verify_idempotent(struct explorer *explorer, struct life *life)
{
    struct rel_sum sums[3];
    for (unsigned i = 0; i < ARRAY_COUNT(sums); i++) {
        life_abandon(life);
        int rc = life_open(life);
        sums[i] = (struct rel_sum){.dev = life->dev, .dir = CRASH_DIR "/rel"};
        if (rc == 0) {
            rc = io_list_dir(life->dev, CRASH_DIR "/rel", sum_file, &sums[i]);
        }
        if (rc != 0) {
            return fail_with(explorer, life, "opening once more answers %d", rc);
        }
    }
    return sums[1].sum == sums[2].sum || fail_with(explorer, life, "recovering again changes relation files");
}

/* Goes on living, is cut, and what is left is verified. */
static bool second_life(struct explorer *explorer, struct life *life, struct sim_device *sim,
                        const struct expectation *first, unsigned depth, uint64_t salt)
{
    int rc = crash_fingerprint(life->store, &life->fingerprints[0]);
    for (unsigned i = 0; i < SECOND_OPERATIONS && rc == 0; i++) {
        rc = life_operate(life) ? 0 : -EIO;
    }
    if (rc != 0) {
        return fail_with(explorer, life, "second life: %s answers %d", life->note, life->result);
    }
    const bool kill = salt % 4 == 0;
    const uint64_t rel = sim_device_file_number(sim, "/rel/", false, NULL);
    const uint64_t segment = sim_device_file_number(sim, "/log/", false, NULL);
    const struct expectation expected = {
        .fingerprints = life->fingerprints,
        .lower = kill ? life->op : life->durable_op,
        .upper = life->op,
        .largest_ino = life->largest_ino > first->largest_ino ? life->largest_ino : first->largest_ino,
        .epoch = life->epoch,
        .largest_rel = rel > first->largest_rel ? rel : first->largest_rel,
        .largest_segment = segment > first->largest_segment ? segment : first->largest_segment};
    uint64_t hash = 0;
    explorer->totals->second_lives++;
    struct mem_device *mem;
    if (kill) {
        mem = mem_device_clone(sim_device_mem(sim));
    } else {
        struct sim_cut *cut = sim_cut_create(sim, &explorer->config->profile);
        mem = sim_cut_build(cut, SIM_STATE_RANDOM + salt % 1000000, &hash);
        sim_cut_free(cut);
    }
    return verify(explorer, mem, &expected, depth + 1, salt * 7 + 1);
}

/* ---- crashes inside recovery ---- */

struct inner_hook {
    struct explorer *explorer;
    struct sim_device *sim;
    const struct expectation *expected;
    struct test_random random;
    unsigned depth;
    unsigned budget;
};

static void recovery_hook(void *arg, enum mem_call call)
{
    struct inner_hook *hook = arg;
    const bool is_sync = call == MEM_CALL_SYNC || call == MEM_CALL_SYNC_DIR || call == MEM_CALL_SYNC_FILESYSTEM;
    if (hook->budget == 0 || hook->explorer->failed || !test_random_chance(&hook->random, is_sync ? 25 : 2)) {
        return;
    }
    hook->budget--;
    hook->explorer->totals->recovery_crashes++;
    struct mem_device *mem;
    if (is_sync) {
        uint64_t hash = 0;
        struct sim_cut *cut = sim_cut_create(hook->sim, &hook->explorer->config->profile);
        const uint64_t luck = test_random_below(&hook->random, 100);
        mem = sim_cut_build(cut, luck < 6 ? luck : SIM_STATE_RANDOM + test_random_below(&hook->random, 1000000), &hash);
        sim_cut_free(cut);
    } else {
        mem = mem_device_clone(sim_device_mem(hook->sim));
    }
    (void)verify(hook->explorer, mem, hook->expected, hook->depth + 1, test_random_u64(&hook->random));
}

/* ---- one state ---- */

static bool verify_deep(struct explorer *explorer, struct life *life, struct sim_device *sim,
                        const struct expectation *expected, unsigned depth, uint64_t salt)
{
    struct inner_hook hook = {
        .explorer = explorer, .sim = sim, .expected = expected, .depth = depth, .budget = depth == 0 ? 3 : 0};
    test_random_init(&hook.random, salt);
    sim_device_set_hook(sim, recovery_hook, &hook);
    const int rc = life_begin(life);
    sim_device_set_hook(sim, NULL, NULL);
    if (explorer->failed) {
        return false;
    }
    if (rc != 0) {
        return fail_with(explorer, life, "recovery answers %d", rc);
    }
    const uint64_t rel = sim_device_file_number(sim, "/rel/", true, NULL);
    const struct store_name name = {new_names[depth], strlen(new_names[depth])};
    return verify_state(explorer, life, expected) && verify_numbers(explorer, life, sim, expected, name) &&
           verify_new_relation(explorer, life, sim, expected, name, rel) && verify_again(explorer, life) &&
           (depth > 0 || second_life(explorer, life, sim, expected, depth, salt)) && verify_idempotent(explorer, life);
}

static bool verify_plain(struct explorer *explorer, struct life *life, const struct expectation *expected,
                         unsigned depth, uint64_t salt)
{
    const struct store_name name = {new_names[depth], strlen(new_names[depth])};
    const int rc = life_begin(life);
    if (rc != 0) {
        return fail_with(explorer, life, "recovery answers %d", rc);
    }
    return verify_state(explorer, life, expected) && verify_numbers(explorer, life, NULL, expected, name) &&
           (salt % 4 != 0 || verify_again(explorer, life));
}

static bool verify_here(struct explorer *explorer, struct mem_device *mem, const struct expectation *expected,
                        unsigned depth, uint64_t salt)
{
    const bool deep = depth == 0 && salt % 100 < explorer->config->deep_percent;
    struct sim_device *sim = deep ? sim_device_create(mem) : NULL;
    struct life life;
    life_init(&life, deep ? sim_device_io(sim) : mem_device_io(mem), salt, SECOND_OPERATIONS);
    life.bulk = explorer->config->bulk;
    life.transactions = explorer->config->transactions;
    const bool good = deep ? verify_deep(explorer, &life, sim, expected, depth, salt)
                           : verify_plain(explorer, &life, expected, depth, salt);
    life_abandon(&life);
    life_free(&life);
    if (deep) {
        sim_device_destroy(sim);
    } else {
        mem_device_destroy(mem);
    }
    return good;
}

struct verification {
    struct explorer *explorer;
    struct mem_device *mem;
    const struct expectation *expected;
    unsigned depth;
    uint64_t salt;
    bool good;
};

static void *verification_main(void *arg)
{
    struct verification *work = arg;
    work->good = verify_here(work->explorer, work->mem, work->expected, work->depth, work->salt);
    return NULL;
}

/* Recovers what mem holds and looks at it. Takes mem over. In a thread of its own, waited for: the caller's one is inside
 * a store, and holds locks that the checks of debug builds know of. */
static bool verify(struct explorer *explorer, struct mem_device *mem, const struct expectation *expected,
                   unsigned depth, uint64_t salt)
{
    struct verification work = {.explorer = explorer, .mem = mem, .expected = expected, .depth = depth, .salt = salt};
    pthread_t thread;
    if (pthread_create(&thread, NULL, verification_main, &work) != 0 || pthread_join(thread, NULL) != 0) {
        abort();
    }
    return work.good;
}

/* ---- points ---- */

static struct expectation expect_now(struct explorer *explorer, bool kill)
{
    const struct life *life = explorer->life;
    const epoch_no epoch = life->store != NULL ? cow_epoch(store_cow(life->store)) : life->epoch;
    return (struct expectation){.fingerprints = explorer->fingerprints,
                                .lower = kill ? life->op : life->durable_op,
                                .upper = life->op + (life->operating ? 1 : 0),
                                .largest_ino = life->largest_ino,
                                .epoch = epoch,
                                .largest_rel = sim_device_file_number(explorer->sim, "/rel/", false, NULL),
                                .largest_segment = sim_device_file_number(explorer->sim, "/log/", false, NULL)};
}

static bool verify_at(struct explorer *explorer, struct mem_device *mem, const struct expectation *expected)
{
    const uint64_t salt[3] = {explorer->config->seed, explorer->point, explorer->state};
    explorer->totals->states++;
    return verify(explorer, mem, expected, 0, checksum_64(salt, sizeof salt, 0));
}

static void explore_state(struct explorer *explorer, struct sim_cut *cut, uint64_t state,
                          const struct expectation *expected)
{
    uint64_t hash = 0;
    if (explorer->failed) {
        return;
    }
    explorer->state = state;
    struct mem_device *mem = sim_cut_build(cut, state, &hash);
    hash += expected->lower * 1000003 + expected->upper;
    if (!seen_add(explorer->totals, hash) && explorer->config->only_point == 0) {
        mem_device_destroy(mem);
        return;
    }
    (void)verify_at(explorer, mem, expected);
}

static void explore_cut(struct explorer *explorer)
{
    const struct crash_config *config = explorer->config;
    const struct expectation expected = expect_now(explorer, false);
    struct sim_cut *cut = sim_cut_create(explorer->sim, &config->profile);
    bool all = false;
    const uint64_t systematic = sim_cut_systematic(cut, &all);
    explorer->totals->points++;
    if (config->only_point != 0) {
        explore_state(explorer, cut, config->only_state, &expected);
        sim_cut_free(cut);
        return;
    }
    struct test_random random;
    test_random_init(&random, config->seed * 1000003 + explorer->point);
    const unsigned budget = config->states_per_point;
    const bool complete = systematic <= (all ? budget * 2 : budget * 2 / 3);
    for (uint64_t i = 0; i < systematic && complete; i++) {
        explore_state(explorer, cut, i, &expected);
    }
    for (uint64_t i = 0; i < budget / 2 && !complete; i++) {
        explore_state(explorer, cut, i < 6 && !all ? i : test_random_below(&random, systematic), &expected);
    }
    for (uint64_t i = complete ? systematic : budget / 2; i < budget && !all; i++) {
        explore_state(explorer, cut, SIM_STATE_RANDOM + test_random_below(&random, 1000000), &expected);
    }
    sim_cut_free(cut);
}

static void explore_kill(struct explorer *explorer)
{
    const struct expectation expected = expect_now(explorer, true);
    explorer->state = STATE_KILL;
    explorer->totals->kills++;
    (void)seen_add(explorer->totals, explorer->point * 31 + explorer->config->seed * UINT64_C(1000000007));
    (void)verify_at(explorer, mem_device_clone(sim_device_mem(explorer->sim)), &expected);
}

static bool is_sync_call(enum mem_call call)
{
    return call == MEM_CALL_SYNC || call == MEM_CALL_SYNC_DIR || call == MEM_CALL_SYNC_FILESYSTEM;
}

static void explore_hook(void *arg, enum mem_call call)
{
    struct explorer *explorer = arg;
    const struct crash_config *config = explorer->config;
    explorer->point++;
    if (explorer->failed || (config->only_point != 0 && config->only_point != explorer->point)) {
        return;
    }
    const uint64_t luck[2] = {config->seed, explorer->point};
    const bool kill = config->only_point != 0 ? config->only_state == STATE_KILL
                                              : checksum_64(luck, sizeof luck, 5) % 100 < config->kill_percent;
    if (kill) {
        explore_kill(explorer);
    }
    if (is_sync_call(call) && (config->only_point == 0 || !kill)) {
        explore_cut(explorer);
    }
}

/* ---- a run ---- */

static bool live(struct explorer *explorer, struct life *life)
{
    const struct crash_config *config = explorer->config;
    struct mem_device *mem = life_mkfs(config->seed);
    struct sim_device *sim = sim_device_create(mem);
    life_init(life, sim_device_io(sim), config->seed * 3 + 1, config->operations);
    life->bulk = config->bulk;
    life->transactions = config->transactions;
    explorer->sim = sim;
    explorer->life = life;
    explorer->point = 0;
    sim_device_set_hook(sim, explorer->fingerprints != NULL ? explore_hook : NULL, explorer);
    const int rc = life_begin(life);
    bool good = rc == 0 || fail_with(explorer, life, "the first open answers %d", rc);
    while (good && !explorer->failed && life->op < config->operations) {
        good = life_operate(life) || fail_with(explorer, life, "the live store cannot be read");
    }
    if (good && explorer->fingerprints != NULL) {
        explore_hook(explorer, MEM_CALL_SYNC); /* the end */
    }
    sim_device_set_hook(sim, NULL, NULL);
    life_abandon(life);
    sim_device_destroy(sim);
    return good && !explorer->failed;
}

static bool same_fingerprints(struct explorer *explorer, const struct life *first, const struct life *second)
{
    for (uint64_t i = 0; i <= first->op; i++) {
        if (first->fingerprints[i] != second->fingerprints[i]) {
            return fail_with(explorer, NULL, "the second run differs from the first at operation %" PRIu64, i);
        }
    }
    return true;
}

bool crash_run(const struct crash_config *config, struct crash_totals *totals, char *why)
{
    struct explorer explorer = {.config = config, .totals = totals, .why = why};
    struct life first;
    struct life second;
    totals->runs++;
    bool good = live(&explorer, &first);
    if (good) {
        explorer.fingerprints = first.fingerprints;
        good = live(&explorer, &second) && same_fingerprints(&explorer, &first, &second);
        totals->commits += second.commits;
        life_free(&second);
    }
    life_free(&first);
    return good;
}

/* ---- scenarios ---- */

static const struct crash_config scenarios[] = {
    {.scenario = "weak", .operations = 60, .profile = {.sector_bytes = 512}},
    {.scenario = "ordered", .operations = 60, .profile = {.sector_bytes = 512, .ordered_names = true}},
    {.scenario = "sector4096", .operations = 60, .profile = {.sector_bytes = 4096}},
    {.scenario = "garbage", .operations = 60, .profile = {.sector_bytes = 512, .garbage = true}},
    {.scenario = "long", .operations = 300, .profile = {.sector_bytes = 512}},
    {.scenario = "bulk", .operations = 50, .bulk = true, .profile = {.sector_bytes = 512}},
    {.scenario = "txn", .operations = 80, .transactions = true, .profile = {.sector_bytes = 512}},
    {.scenario = "txngarbage",
     .operations = 80,
     .transactions = true,
     .profile = {.sector_bytes = 512, .garbage = true}},
    {.scenario = "txnlong", .operations = 300, .transactions = true, .profile = {.sector_bytes = 4096}},
    {.scenario = "txnbulk", .operations = 60, .transactions = true, .bulk = true, .profile = {.sector_bytes = 512}},
};

static void config_fill(const struct crash_config *scenario, uint64_t seed, struct crash_config *out_config)
{
    *out_config = *scenario;
    out_config->seed = seed;
    out_config->states_per_point = scenario->operations > 100 ? 10 : scenario->transactions ? 16 : 24;
    out_config->kill_percent = scenario->operations > 100 ? 3 : 10;
    out_config->deep_percent = 10;
}

bool crash_config_make(const char *scenario, uint64_t seed, struct crash_config *out_config)
{
    for (unsigned i = 0; i < ARRAY_COUNT(scenarios); i++) {
        if (strcmp(scenario, scenarios[i].scenario) == 0) {
            config_fill(&scenarios[i], seed, out_config);
            return true;
        }
    }
    return false;
}

void crash_config_draw(bool transactions, uint64_t seed, struct crash_config *out_config)
{
    static const unsigned order[2][8] = {{0, 1, 0, 2, 5, 3, 0, 4}, {6, 7, 6, 9, 6, 7, 6, 8}};
    config_fill(&scenarios[order[transactions][seed % 8]], seed, out_config);
}

bool crash_config_parse(const char *text, struct crash_config *out_config)
{
    char scenario[32];
    uint64_t seed = 0;
    uint64_t point = 0;
    uint64_t state = 0;
    if (sscanf(text, "%31[^:]:%" SCNu64 ":%" SCNu64 ":%" SCNu64, scenario, &seed, &point, &state) < 2 ||
        !crash_config_make(scenario, seed, out_config)) {
        return false;
    }
    out_config->only_point = point;
    out_config->only_state = state;
    return true;
}
