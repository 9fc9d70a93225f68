/*
 * tests/model/cut_explorer.c - see cut_explorer.h.
 */
#include "tests/model/cut_explorer.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Takes mem over. */
static void verify(struct cut_explorer *explorer, struct mem_device *mem)
{
    struct txn_rig rig = {.mem = mem, .dev = mem_device_io(mem)};
    explorer->states++;
    diag_init_silent(&rig.diag);
    txn_rig_open(&rig);
    explorer->verify(&rig);
    mem_device_destroy(mem);
}

static void cut(struct cut_explorer *explorer)
{
    struct sim_cut *cut = sim_cut_create(explorer->sim, &explorer->profile);
    bool all = false;
    const uint64_t systematic = sim_cut_systematic(cut, &all);
    for (unsigned i = 0; i < explorer->states_max && (!all || i < systematic); i++) {
        uint64_t hash = 0;
        uint64_t state = i < 6 && i < systematic ? i : test_random_below(&explorer->random, systematic);
        if (i >= explorer->states_max / 2 && !all) {
            state = SIM_STATE_RANDOM + test_random_below(&explorer->random, 1000000);
        }
        verify(explorer, sim_cut_build(cut, state, &hash));
    }
    sim_cut_free(cut);
}

static void before_call(void *arg, enum mem_call call)
{
    struct cut_explorer *explorer = arg;
    explorer->points++;
    if (call == MEM_CALL_SYNC || call == MEM_CALL_SYNC_DIR || call == MEM_CALL_SYNC_FILESYSTEM) {
        cut(explorer);
    } else if (explorer->points % explorer->kill_every == 0 || call == MEM_CALL_UNLINK || call == MEM_CALL_PUNCH) {
        verify(explorer, mem_device_clone(sim_device_mem(explorer->sim)));
    }
}

void cut_explorer_open(struct cut_explorer *explorer, struct txn_rig *rig)
{
    explorer->sim = sim_device_create(rig->mem);
    rig->dev = sim_device_io(explorer->sim);
    sim_device_set_hook(explorer->sim, before_call, explorer);
    txn_rig_open(rig);
}

void cut_explorer_close(struct cut_explorer *explorer, struct txn_rig *rig)
{
    assert_int_equal(store_close(rig->store), 0);
    sim_device_set_hook(explorer->sim, NULL, NULL);
    cut(explorer);
    verify(explorer, mem_device_clone(sim_device_mem(explorer->sim)));
    fprintf(stderr, "%" PRIu64 " calls, %" PRIu64 " states\n", explorer->points, explorer->states);
    sim_device_destroy(explorer->sim);
    free(rig);
}
