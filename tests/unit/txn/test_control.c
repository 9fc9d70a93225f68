/*
 * tests/unit/txn/test_control.c - the control file: which copy is in force, and what is refused.
 */
#include "txn/control.h"

#include "tests/lib/mem_device.h"
#include "tests/lib/test_support.h"
#include "txn/control_format.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

struct rig {
    struct mem_device *mem;
    struct io_device *dev;
    struct diag diag;
    struct control control;
};

static int rig_setup(void **state)
{
    static struct rig rig;
    memset(&rig, 0, sizeof rig);
    rig.mem = mem_device_create(1);
    rig.dev = mem_device_io(rig.mem);
    diag_init_silent(&rig.diag);
    assert_int_equal(io_make_dir(rig.dev, "/d"), 0);
    rig.control = (struct control){
        .number = 4,
        .epoch = 7,
        .catalog = {.ptr = {.birth = 5, .block = 6, .alloc = 77}, .height = 2},
        .redo_lsn = 10,
        .scan_lsn = 9,
        .ceiling_epoch = 100,
        .ceiling_rel = 200,
        .ceiling_ino = 300,
        .ceiling_txn = 400,
        .ceiling_lsn = 500,
        .name_seed = 42,
        .name_bits = 47,
        .clean = true,
        .fsm_threshold = 13,
        .sidecar_threshold = 14,
        .sidecar_epoch = 15,
        .inode_count = 12,
    };
    assert_int_equal(control_create(rig.dev, "/d", &rig.control), 0);
    *state = &rig;
    return 0;
}

static int rig_teardown(void **state)
{
    struct rig *rig = *state;
    mem_device_destroy(rig->mem);
    return 0;
}

static void flip(struct rig *rig, unsigned slot, unsigned copy, size_t offset)
{
    size_t run = 0;
    uint8_t *bytes = mem_device_file_bytes(rig->mem, "/d/control", CONTROL_COPY_OFFSET(slot, copy) + offset, &run);
    assert_non_null(bytes);
    bytes[0] ^= 0x10;
}

static void control_reads_back_every_field(void **state)
{
    struct rig *rig = *state;
    struct control got;
    assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), 0);
    assert_int_equal(got.number, 5);
    assert_int_equal(got.epoch, 7);
    assert_int_equal(got.catalog.ptr.block, 6);
    assert_int_equal(got.catalog.ptr.birth, 5);
    assert_int_equal(got.catalog.ptr.alloc, 77);
    assert_int_equal(got.catalog.height, 2);
    assert_int_equal(got.redo_lsn, 10);
    assert_int_equal(got.scan_lsn, 9);
    assert_int_equal(got.ceiling_epoch, 100);
    assert_int_equal(got.ceiling_rel, 200);
    assert_int_equal(got.ceiling_ino, 300);
    assert_int_equal(got.ceiling_txn, 400);
    assert_int_equal(got.ceiling_lsn, 500);
    assert_int_equal(got.name_seed, 42);
    assert_int_equal(got.name_bits, 47);
    assert_true(got.clean);
    assert_int_equal(got.fsm_threshold, 13);
    assert_int_equal(got.sidecar_threshold, 14);
    assert_int_equal(got.sidecar_epoch, 15);
    assert_int_equal(got.inode_count, 12);
}

static void control_write_leaves_the_slot_in_force_alone(void **state)
{
    struct rig *rig = *state;
    uint8_t before[2 * CONTROL_COPY_SPACING];
    uint8_t after[sizeof before];
    size_t got = 0;
    for (unsigned round = 0; round < 6; round++) {
        const unsigned slot = rig->control.number % 2;
        struct io_file *file = NULL;
        assert_int_equal(io_open(rig->dev, "/d/control", IO_READ_ONLY, &file), 0);
        assert_int_equal(io_read_full(file, before, sizeof before, CONTROL_COPY_OFFSET(slot, 0), &got), 0);
        assert_int_equal(control_write(rig->dev, "/d", &rig->control), 0);
        assert_int_equal(io_read_full(file, after, sizeof after, CONTROL_COPY_OFFSET(slot, 0), &got), 0);
        assert_memory_equal(before, after, got);
        assert_int_equal(io_close(file), 0);
        struct control now;
        assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &now), 0);
        assert_int_equal(now.number, rig->control.number);
    }
}

static void control_with_one_good_copy_in_each_slot_is_read(void **state)
{
    struct rig *rig = *state;
    struct control got;
    flip(rig, 0, 0, 100);
    flip(rig, 1, 1, 100);
    assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), 0);
    assert_int_equal(got.number, 5);
}

/* Hook: fails the first write, and tears the sector that it was meant for. */
static int tear_first_write(void *arg, const struct mem_event *event)
{
    struct rig *rig = arg;
    if (event->call != MEM_CALL_WRITE) {
        return 0;
    }
    mem_device_set_hook(rig->mem, NULL, NULL);
    size_t run = 0;
    uint8_t *bytes = mem_device_file_bytes(rig->mem, "/d/control", event->offset_bytes, &run);
    memset(bytes, 0xa5, sizeof(struct control_slot));
    return -EIO;
}

/* Two power cuts, each of which tears the sector that is being written. */
static void control_write_over_a_torn_copy_leaves_the_whole_one_for_later(void **state)
{
    struct rig *rig = *state;
    for (unsigned copy = 0; copy < 2; copy++) {
        struct control got;
        const unsigned slot = (rig->control.number + 1) % 2;
        flip(rig, slot, copy, 100);
        mem_device_set_hook(rig->mem, tear_first_write, rig);
        assert_int_equal(control_write(rig->dev, "/d", &rig->control), -EIO);
        assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), 0);
        assert_int_equal(got.number, rig->control.number);
        assert_int_equal(control_write(rig->dev, "/d", &rig->control), 0);
    }
}

static void control_slot_without_a_good_copy_is_damage(void **state)
{
    struct rig *rig = *state;
    for (unsigned slot = 0; slot < 2; slot++) {
        struct control got;
        flip(rig, slot, 0, 200);
        flip(rig, slot, 1, 300);
        assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), -EIO);
        flip(rig, slot, 0, 200);
        flip(rig, slot, 1, 300);
    }
    assert_int_equal(rig->diag.damage_count, 2);
}

static void control_every_changed_byte_is_seen(void **state)
{
    struct rig *rig = *state;
    for (size_t offset = 0; offset < sizeof(struct control_slot); offset++) {
        struct control got;
        flip(rig, 1, 0, offset);
        flip(rig, 1, 1, offset);
        assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), -EIO);
        flip(rig, 1, 0, offset);
        flip(rig, 1, 1, offset);
    }
}

static void control_torn_update_keeps_the_old_or_takes_the_new(void **state)
{
    struct rig *rig = *state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        const uint64_t number = rig->control.number;
        struct control next = rig->control;
        mem_device_fail(rig->mem, MEM_CALL_WRITE, nth, EIO, false);
        assert_int_equal(control_write(rig->dev, "/d", &next), -EIO);
        mem_device_clear_faults(rig->mem);
        struct control got;
        assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), 0);
        assert_int_equal(got.number, nth == 1 ? number : number + 1);
    }
}

static void control_of_another_kind_is_no_data_directory(void **state)
{
    struct rig *rig = *state;
    struct control got;
    mem_device_put_file(rig->mem, "/d/control", "#!/bin/sh\nexit 0\n", 17);
    assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), -ENODATA);
    assert_int_equal(io_unlink(rig->dev, "/d/control"), 0);
    assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), -ENODATA);
    assert_int_equal(io_make_dir(rig->dev, "/d/control"), 0);
    assert_int_equal(control_read(rig->dev, &rig->diag, "/d", &got), -ENODATA);
    assert_int_equal(control_read(rig->dev, &rig->diag, "/nowhere", &got), -ENODATA);
    assert_int_equal(rig->diag.damage_count, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(control_reads_back_every_field),
        CASE(control_write_leaves_the_slot_in_force_alone),
        CASE(control_with_one_good_copy_in_each_slot_is_read),
        CASE(control_write_over_a_torn_copy_leaves_the_whole_one_for_later),
        CASE(control_slot_without_a_good_copy_is_damage),
        CASE(control_every_changed_byte_is_seen),
        CASE(control_torn_update_keeps_the_old_or_takes_the_new),
        CASE(control_of_another_kind_is_no_data_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
