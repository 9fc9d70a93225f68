/*
 * tests/model/test_snapshots.c - named snapshots against copies of the model: taken, renamed, dropped, read while everything
 * changes, found again after clean ends and kills, and their space free again when they are gone.
 */
#include "tests/model/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST_NAME "test_snapshots"
#define SNAPSHOTS 6u

struct kept {
    char name[24]; /* empty: free */
    struct model *model;
};

struct snap_rig {
    struct rig rig;
    struct kept kept[SNAPSHOTS];
    unsigned named;
};

static struct store_name name_of(const char *text)
{
    return (struct store_name){.bytes = text, .size = strlen(text)};
}

static void new_name(struct snap_rig *sr, char *buffer)
{
    (void)snprintf(buffer, 24, "snapshot_%u", ++sr->named);
}

static void take(struct snap_rig *sr, struct kept *kept)
{
    new_name(sr, kept->name);
    rig_note(&sr->rig, "take %s", kept->name);
    rig_must(&sr->rig, store_snapshot_create(sr->rig.store, name_of(kept->name)), "store_snapshot_create");
    assert_int_equal(store_snapshot_create(sr->rig.store, name_of(kept->name)), -EEXIST);
    kept->model = model_copy(sr->rig.model);
}

static void drop(struct snap_rig *sr, struct kept *kept)
{
    rig_note(&sr->rig, "drop %s", kept->name);
    rig_must(&sr->rig, store_snapshot_drop(sr->rig.store, name_of(kept->name)), "store_snapshot_drop");
    assert_int_equal(store_snapshot_drop(sr->rig.store, name_of(kept->name)), -ENOENT);
    model_free(kept->model);
    *kept = (struct kept){.model = NULL};
}

static void compare_kept(struct snap_rig *sr, struct kept *kept)
{
    struct store_snapshot *snapshot = NULL;
    rig_note(&sr->rig, "compare %s", kept->name);
    rig_must(&sr->rig, store_snapshot_get(sr->rig.store, name_of(kept->name), &snapshot), "store_snapshot_get");
    rig_compare_view(&sr->rig, store_snapshot_view(snapshot), kept->model);
    store_snapshot_put(snapshot);
}

static void rename_kept(struct snap_rig *sr, struct kept *kept)
{
    char name[24];
    new_name(sr, name);
    rig_note(&sr->rig, "rename %s to %s", kept->name, name);
    rig_must(&sr->rig, store_snapshot_rename(sr->rig.store, name_of(kept->name), name_of(name)),
             "store_snapshot_rename");
    memcpy(kept->name, name, sizeof name);
}

static int count_snapshot(void *arg, const struct store_snapshot_info *info)
{
    (void)info;
    ++*(unsigned *)arg;
    return 0;
}

static void compare_all(struct snap_rig *sr)
{
    unsigned wanted = 0;
    unsigned found = 0;
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        if (sr->kept[i].name[0] != '\0') {
            wanted++;
            compare_kept(sr, &sr->kept[i]);
        }
    }
    assert_int_equal(store_each_snapshot(sr->rig.store, count_snapshot, &found), 0);
    assert_int_equal(found, wanted);
}

static void touch_snapshots(struct snap_rig *sr)
{
    struct kept *kept = &sr->kept[test_random_below(&sr->rig.random, SNAPSHOTS)];
    if (kept->name[0] == '\0') {
        take(sr, kept);
        return;
    }
    switch (test_random_below(&sr->rig.random, 4)) {
    case 0:
        drop(sr, kept);
        break;
    case 1:
        rename_kept(sr, kept);
        break;
    default:
        compare_kept(sr, kept);
        break;
    }
}

static void interrupt(struct snap_rig *sr)
{
    struct rig *rig = &sr->rig;
    switch (test_random_below(&rig->random, 900)) {
    case 0:
        rig_checkpoint(rig);
        break;
    case 1:
        rig_reopen(rig);
        compare_all(sr);
        break;
    case 2:
        rig_kill_and_reopen(rig);
        compare_all(sr);
        break;
    case 3:
        rig_check_store(rig);
        rig_must(rig, store_check_online(rig->store, &rig->diag), "store_check_online");
        break;
    default:
        if (test_random_chance(&rig->random, 1)) {
            touch_snapshots(sr);
        }
        break;
    }
}

static uint32_t catalog_blocks(struct rig *rig)
{
    struct fsm_stats stats;
    rig_must(rig, fsm_get_stats(store_live(rig->store)->catalog, &stats), "fsm_get_stats");
    return stats.used_blocks;
}

/* Checkpoints until nothing that was dropped is pending, and steps until all maps are built: then store_check says that what is in use is what the
 * live tree reaches. */
static void settle(struct rig *rig)
{
    for (unsigned i = 0; i < 3; i++) {
        rig_must(rig, store_snapshot_create(rig->store, name_of("settle")), "store_snapshot_create");
        rig_must(rig, store_snapshot_drop(rig->store, name_of("settle")), "store_snapshot_drop");
        rig_must(rig, store_checkpoint(rig->store), "store_checkpoint");
        rig_step_until_idle(rig);
    }
    rig_check_store(rig);
}

struct shape {
    uint64_t max_file_bytes;
    unsigned operations;
    unsigned steps_percent; /* of the operations are followed by a portion of what the background does */
};

static void run(uint8_t name_hash_bits, uint64_t salt, const struct shape *shape)
{
    const struct rig_config config = {
        .test_name = TEST_NAME,
        .seed = test_seed(TEST_NAME),
        .salt = salt,
        .cache_size_bytes = RIG_CACHE_SMALL,
        .max_file_bytes = shape->max_file_bytes,
        .max_total_bytes = 4 * shape->max_file_bytes,
        .max_inodes = 120,
        .name_hash_bits = name_hash_bits,
        .log_segment_size = 64u << 10,
    };
    struct snap_rig *sr = calloc(1, sizeof *sr);
    assert_non_null(sr);
    rig_init(&sr->rig, &config);
    const unsigned operations = test_is_long() ? 15 * shape->operations : shape->operations;
    for (unsigned i = 0; i < operations; i++) {
        rig_operate(&sr->rig);
        if (test_random_chance(&sr->rig.random, shape->steps_percent)) {
            store_step(sr->rig.store);
        }
        interrupt(sr);
    }
    compare_all(sr);
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        if (sr->kept[i].name[0] != '\0') {
            drop(sr, &sr->kept[i]);
        }
    }
    rig_close_handles(&sr->rig);
    settle(&sr->rig);
    const uint32_t blocks = catalog_blocks(&sr->rig);
    rig_reopen(&sr->rig);
    settle(&sr->rig);
    assert_in_range(catalog_blocks(&sr->rig), 1, blocks + 4);
    assert_in_range(blocks, 1, catalog_blocks(&sr->rig) + 4);
    rig_destroy(&sr->rig);
    free(sr);
}

static const struct shape small_tables = {.max_file_bytes = 1u << 19, .operations = 20000};
/* Their maps are built in the background, portion by portion, again behind each kill and each snapshot that goes. */
static const struct shape large_tables = {.max_file_bytes = 1u << 21, .operations = 6000, .steps_percent = 20};

static void snapshots_equal_the_model_at_their_time(void **state)
{
    (void)state;
    run(47, 0, &small_tables);
}

static void snapshots_with_colliding_names_equal_the_model(void **state)
{
    (void)state;
    run(4, 1, &small_tables);
}

static void snapshots_of_large_tables_equal_the_model(void **state)
{
    (void)state;
    run(47, 2, &large_tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_equal_the_model_at_their_time),
        cmocka_unit_test(snapshots_with_colliding_names_equal_the_model),
        cmocka_unit_test(snapshots_of_large_tables_equal_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
