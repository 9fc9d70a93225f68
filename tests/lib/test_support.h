/*
 * tests/lib/test_support.h - seeds, random numbers and temporary directories for tests.
 *
 * A random test asks test_seed for its seed, which prints the line that replays it, and draws everything from one
 * test_random. Without SEED in the environment the seed is 1, so that `make check` does the same every time; with
 * LONG=1 (`make check-long`) it is drawn afresh.
 *
 * Locking: none; a test_random belongs to one thread.
 */
#ifndef TBLFS_TESTS_LIB_TEST_SUPPORT_H
#define TBLFS_TESTS_LIB_TEST_SUPPORT_H

#include "base/types.h"

/* SplitMix64 (Steele, Lea, Flood 2014): the state advances by the golden ratio, each output is a mix of it. Equal
 * seeds give equal sequences on every machine. */
struct test_random {
    uint64_t state;
};

/* The seed of this run; prints "SEED=n replay with: make check TEST=name SEED=n" to stderr. */
uint64_t test_seed(const char *test_name);

/* True under `make check-long`. */
bool test_is_long(void);

/* Seconds a long test may take (SECONDS_LONG); otherwise in `make check`, where tests count operations instead. */
unsigned test_long_seconds(unsigned otherwise);

void test_random_init(struct test_random *random, uint64_t seed);
uint64_t test_random_u64(struct test_random *random);
/* Even below limit; 0 when limit is 0. */
uint64_t test_random_below(struct test_random *random, uint64_t limit);
/* Even from low to high, both possible. */
uint64_t test_random_range(struct test_random *random, uint64_t low, uint64_t high);
/* True in percent of 100 cases. */
bool test_random_chance(struct test_random *random, unsigned percent);
void test_random_bytes(struct test_random *random, void *bytes, size_t size_bytes);

/* Makes a new empty directory below TEST_SCRATCH, else TMPDIR, else /tmp. The caller frees the path with
 * test_dir_remove, which removes the directory and everything below it (it does not cross into mounts). Exits the
 * program with a message when that fails: nothing sensible can follow. */
char *test_dir_create(void);
void test_dir_remove(char *path);

/* path + "/" + name in newly allocated memory; aborts without memory. */
char *test_path_join(const char *path, const char *name);

#endif
