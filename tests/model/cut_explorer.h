/*
 * tests/model/cut_explorer.h - a life on a simulated device that is cut off before every call: by a power cut before each sync, by a kill before
 * each removal of a file and now and then.
 */
#ifndef TBLFS_TESTS_MODEL_CUT_EXPLORER_H
#define TBLFS_TESTS_MODEL_CUT_EXPLORER_H

#include "tests/lib/sim_device.h"
#include "tests/lib/test_support.h"
#include "tests/model/txn_rig.h"

struct cut_explorer {
    struct sim_device *sim;
    struct sim_profile profile;
    struct test_random random;
    unsigned states_max;                 /* of a power cut at each sync; half of them systematic */
    unsigned kill_every;                 /* calls */
    void (*verify)(struct txn_rig *rig); /* what is left, opened; closed or abandoned by it */
    uint64_t points, states;
};

/* The rig's store, which is closed, is opened on a device that the explorer records. */
void cut_explorer_open(struct cut_explorer *explorer, struct txn_rig *rig);
/* The life is over: what is on the device now is looked at too. Frees the rig. */
void cut_explorer_close(struct cut_explorer *explorer, struct txn_rig *rig);

#endif
