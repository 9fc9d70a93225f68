/*
 * tests/lib/test_support.c - seeds, random numbers and temporary directories for tests.
 */
#include "tests/lib/test_support.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static _Noreturn void give_up(const char *what, const char *path)
{
    fprintf(stderr, "test support: %s %s: %s\n", what, path, strerror(errno));
    exit(99);
}

bool test_is_long(void)
{
    const char *value = getenv("LONG");
    return value && strcmp(value, "1") == 0;
}

unsigned test_long_seconds(unsigned otherwise)
{
    const char *value = getenv("SECONDS_LONG");
    if (!test_is_long() || !value || !*value)
        return otherwise;
    return (unsigned)strtoul(value, NULL, 10);
}

uint64_t test_seed(const char *test_name)
{
    uint64_t seed = 1;
    const char *value = getenv("SEED");
    if (value && *value)
        seed = strtoull(value, NULL, 10);
    else if (test_is_long() && getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed)
        seed >>= 16; /* short enough to type */
    fprintf(stderr, "SEED=%" PRIu64 " replay with: make check TEST=%s SEED=%" PRIu64 "\n", seed, test_name, seed);
    return seed;
}

void test_random_init(struct test_random *random, uint64_t seed)
{
    random->state = seed;
}

uint64_t test_random_u64(struct test_random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = random->state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

uint64_t test_random_below(struct test_random *random, uint64_t limit)
{
    if (limit == 0)
        return 0;
    /* The 2^64 mod limit lowest outputs are refused, so that the rest divides evenly. */
    const uint64_t refused_below = (UINT64_MAX - limit + 1) % limit;
    uint64_t drawn;
    do
        drawn = test_random_u64(random);
    while (drawn < refused_below);
    return drawn % limit;
}

uint64_t test_random_range(struct test_random *random, uint64_t low, uint64_t high)
{
    if (low == 0 && high == UINT64_MAX)
        return test_random_u64(random);
    return low + test_random_below(random, high - low + 1);
}

bool test_random_chance(struct test_random *random, unsigned percent)
{
    return test_random_below(random, 100) < percent;
}

void test_random_bytes(struct test_random *random, void *bytes, size_t size_bytes)
{
    uint8_t *at = bytes;
    while (size_bytes > 0) {
        const uint64_t drawn = test_random_u64(random);
        const size_t piece = size_bytes < sizeof drawn ? size_bytes : sizeof drawn;
        memcpy(at, &drawn, piece);
        at += piece;
        size_bytes -= piece;
    }
}

char *test_path_join(const char *path, const char *name)
{
    char *joined;
    if (asprintf(&joined, "%s/%s", path, name) < 0)
        abort();
    return joined;
}

static const char *scratch_place(void)
{
    const char *place = getenv("TEST_SCRATCH");
    if (!place || !*place)
        place = getenv("TMPDIR");
    return place && *place ? place : "/tmp";
}

char *test_dir_create(void)
{
    char *path = test_path_join(scratch_place(), "tblfs-test-XXXXXX");
    if (!mkdtemp(path))
        give_up("cannot make directory", path);
    return path;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    if (remove(path) < 0)
        give_up("cannot remove", path);
    return 0;
}

void test_dir_remove(char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0)
        give_up("cannot remove", path);
    free(path);
}
