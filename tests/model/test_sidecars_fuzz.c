/*
 * tests/model/test_sidecars_fuzz.c - sidecars that are not what they were: never an error, never a wrong byte, never a block handed out
 * twice or lost, and whole again behind the next clean close (FSM-2).
 *
 * A data directory with large tables is made once, in several lives, so that there are sidecars of older roots and older lives too. Then,
 * round after round, each table's sidecar on a copy of it is replaced by something: zeros, random bytes, flipped bits, one that is torn, cut, longer,
 * another table's, another store's, an older one. Then all tables are written to, compared and checked.
 */
#include "fsm/sidecar.h"
#include "tests/lib/test_support.h"
#include "tests/model/sidecar_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_NAME   "test_sidecars_fuzz"
#define TABLES      20u
#define LEAVES      8u
#define BYTES_MAX   1024u
#define ROUNDS      500u /* of TABLES sidecars each */
#define CLOSE_EVERY 8u

struct image {
    uint8_t bytes[BYTES_MAX];
    size_t size; /* 0: there is none */
};

struct fuzz {
    struct txn_rig rig; /* closed but for its making */
    struct image good[TABLES];
    struct image old[TABLES]; /* of an older root, or, the root being the same, of an older life */
    char paths[TABLES][SIDECAR_PATH_BYTES];
    char content[TABLES][LEAVES];
    struct test_random random;
    uint64_t replaced;
};

static const char *name_of(unsigned table)
{
    static char name[8];
    (void)snprintf(name, sizeof name, "t%u", table);
    return name;
}

/* ---- the data directory ---- */

static void keep_images(struct fuzz *fuzz, struct image *images)
{
    for (unsigned i = 0; i < TABLES; i++) {
        size_t size = 0;
        const uint8_t *bytes = mem_device_file_bytes(fuzz->rig.mem, fuzz->paths[i], 0, &size);
        images[i].size = bytes != NULL ? size : 0;
        assert_true(size <= BYTES_MAX);
        if (bytes != NULL) {
            memcpy(images[i].bytes, bytes, size);
        }
    }
}

static void change(struct fuzz *fuzz, struct txn_rig *rig, unsigned table, char content[LEAVES])
{
    const unsigned leaf = (unsigned)test_random_below(&fuzz->random, LEAVES);
    const char byte = (char)('a' + test_random_below(&fuzz->random, 26));
    table_change(rig, store_live(rig->store), name_of(table), leaf, byte);
    content[leaf] = byte;
}

/* Tables of even number are not written to again behind the crash, so the old sidecar of these has the root that they have. */
static void live_on(struct fuzz *fuzz)
{
    struct txn_rig *rig = &fuzz->rig;
    for (unsigned i = 0; i < TABLES; i++) {
        change(fuzz, rig, i, fuzz->content[i]);
    }
    sidecar_rig_reopen(rig);
    keep_images(fuzz, fuzz->old);
    assert_int_equal(store_snapshot_drop(rig->store, shell_name("s")), 0);
    txn_rig_kill_and_reopen(rig);
    for (unsigned i = 1; i < TABLES; i += 2) {
        change(fuzz, rig, i, fuzz->content[i]);
    }
    assert_int_equal(store_close(rig->store), 0);
    keep_images(fuzz, fuzz->good);
}

static int fuzz_setup(void **state)
{
    void *rig = NULL;
    struct fuzz *fuzz = calloc(1, sizeof *fuzz);
    assert_non_null(fuzz);
    test_random_init(&fuzz->random, test_seed(TEST_NAME));
    assert_int_equal(txn_rig_setup(&rig), 0);
    fuzz->rig = *(struct txn_rig *)rig;
    free(rig);
    for (unsigned i = 0; i < TABLES; i++) {
        table_fill(&fuzz->rig, store_live(fuzz->rig.store), name_of(i), LEAVES, 'A');
        memset(fuzz->content[i], 'A', LEAVES);
        sidecar_path_of(&fuzz->rig, name_of(i), fuzz->paths[i]);
    }
    assert_int_equal(store_snapshot_create(fuzz->rig.store, shell_name("s")), 0);
    live_on(fuzz);
    *state = fuzz;
    return 0;
}

static int fuzz_teardown(void **state)
{
    struct fuzz *fuzz = *state;
    mem_device_destroy(fuzz->rig.mem);
    free(fuzz);
    return 0;
}

/* ---- replacing a sidecar ---- */

static uint64_t below(struct fuzz *fuzz, uint64_t limit)
{
    return test_random_below(&fuzz->random, limit);
}

/* Well-formed, of another store or for a file of another size. */
static void sign_foreign(struct fuzz *fuzz, struct mem_device *mem, unsigned table)
{
    struct fsm_sidecar sidecar;
    const char *why = NULL;
    bool made = false;
    const char *path = fuzz->paths[table];
    uint32_t blocks = 0;
    memcpy(&blocks, fuzz->good[table].bytes + 12, sizeof blocks); /* little-endian, as those who run this */
    assert_int_equal(fsm_sidecar_read(mem_device_io(mem), path, blocks, &sidecar, &why), 0);
    switch (below(fuzz, 3)) {
    case 0:
        sidecar.store_id[below(fuzz, sizeof sidecar.store_id)] ^= 1;
        break;
    case 1:
        sidecar.blocks--;
        sidecar.used -= (uint32_t)(sidecar.words[0] >> sidecar.blocks & 1);
        sidecar.words[0] &= (UINT64_C(1) << sidecar.blocks) - 1;
        break;
    default:
        sidecar.epoch += below(fuzz, 2) == 0 ? UINT64_C(1) << 40 : (uint64_t) - (1 << 20);
        break;
    }
    assert_int_equal(fsm_sidecar_write(mem_device_io(mem), path, &sidecar, &made), 0);
    fsm_sidecar_free(&sidecar);
}

static struct image draw_image(struct fuzz *fuzz, unsigned table)
{
    struct image image = fuzz->good[table].size > 0 ? fuzz->good[table] : fuzz->old[table];
    const size_t at = (size_t)below(fuzz, image.size);
    const struct image *other = &fuzz->old[below(fuzz, TABLES)];
    switch (below(fuzz, 9)) {
    case 0:
        memset(image.bytes + at, 0, below(fuzz, image.size - at) + 1);
        break;
    case 1:
        test_random_bytes(&fuzz->random, image.bytes + at, image.size - at);
        break;
    case 2:
        for (uint64_t flips = below(fuzz, 8) + 1; flips > 0; flips--) {
            image.bytes[below(fuzz, image.size)] ^= (uint8_t)(1 << below(fuzz, 8));
        }
        break;
    case 3:
        image.size = at; /* too short */
        break;
    case 4:
        image.size = image.size + 1 + (size_t)below(fuzz, BYTES_MAX - image.size); /* too long */
        break;
    case 5:
        memcpy(image.bytes, other->bytes, at); /* torn */
        break;
    case 6:
        image = *other; /* another relation's, or older */
        break;
    case 7:
        image = fuzz->old[table];
        break;
    default:
        memset(image.bytes, 0, image.size);
        break;
    }
    return image;
}

static bool is_good(const struct fuzz *fuzz, struct mem_device *mem, unsigned table)
{
    const struct image *good = &fuzz->good[table];
    size_t size = 0;
    const uint8_t *bytes = mem_device_file_bytes(mem, fuzz->paths[table], 0, &size);
    return good->size > 0 && size == good->size && memcmp(bytes, good->bytes, size) == 0;
}

/* Returns how many are still good. */
static unsigned replace_all(struct fuzz *fuzz, struct mem_device *mem)
{
    unsigned good = 0;
    for (unsigned i = 0; i < TABLES; i++) {
        if (fuzz->good[i].size > 0 && below(fuzz, 10) == 0) {
            sign_foreign(fuzz, mem, i);
        } else if (fuzz->good[i].size == 0 || below(fuzz, 10) != 0) {
            const struct image image = draw_image(fuzz, i);
            mem_device_put_file(mem, fuzz->paths[i], image.bytes, image.size);
        }
        const bool still_good = is_good(fuzz, mem, i);
        good += still_good;
        fuzz->replaced += !still_good;
    }
    return good;
}

/* ---- a round ---- */

static void expect_content(struct txn_rig *rig, unsigned table, const char content[LEAVES])
{
    struct store_file *file = shell_open(rig, store_live(rig->store), name_of(table));
    uint8_t got[PAGE_PAYLOAD_SIZE];
    uint8_t want[PAGE_PAYLOAD_SIZE];
    size_t size = 0;
    for (unsigned leaf = 0; leaf < LEAVES; leaf++) {
        memset(want, content[leaf], sizeof want);
        assert_int_equal(store_read(file, (uint64_t)leaf * sizeof got, got, sizeof got, &size), 0);
        assert_int_equal(size, sizeof got);
        assert_memory_equal(got, want, sizeof got);
    }
    store_file_close(file);
}

static void write_and_compare_all(struct fuzz *fuzz, struct txn_rig *rig, char content[TABLES][LEAVES])
{
    for (unsigned i = 0; i < TABLES; i++) {
        change(fuzz, rig, i, content[i]);
    }
    txn_rig_check(rig);
    for (unsigned i = 0; i < TABLES; i++) {
        expect_content(rig, i, content[i]);
    }
}

static void run_round(struct fuzz *fuzz, unsigned round)
{
    struct mem_device *mem = mem_device_clone(fuzz->rig.mem);
    struct txn_rig rig = {.mem = mem, .dev = mem_device_io(mem), .diag = fuzz->rig.diag};
    char content[TABLES][LEAVES];
    memcpy(content, fuzz->content, sizeof content);
    const unsigned good = replace_all(fuzz, mem);
    txn_rig_open(&rig);
    write_and_compare_all(fuzz, &rig, content);
    assert_int_equal(sidecar_rig_stats(&rig).sidecars_loaded, good);
    assert_int_equal(sidecars_count(rig.dev), 0);
    if (round % CLOSE_EVERY == 0) {
        sidecar_rig_reopen(&rig);
        assert_int_equal(sidecars_count(rig.dev), TABLES);
        write_and_compare_all(fuzz, &rig, content);
        assert_int_equal(sidecar_rig_stats(&rig).sidecars_loaded, TABLES);
    }
    store_abandon(rig.store);
    mem_device_destroy(mem);
}

static void fuzzed_sidecars_cost_builds_and_nothing_else(void **state)
{
    struct fuzz *fuzz = *state;
    const unsigned rounds = (test_is_long() ? 10 : 1) * ROUNDS;
    unsigned round = 0;
    while (fuzz->replaced < (uint64_t)rounds * TABLES) {
        run_round(fuzz, round++);
    }
    fprintf(stderr, "%u rounds, %llu sidecars replaced\n", round, (unsigned long long)fuzz->replaced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fuzzed_sidecars_cost_builds_and_nothing_else, fuzz_setup, fuzz_teardown),
    };
    return cmocka_run_group_tests_name(TEST_NAME, tests, NULL, NULL);
}
