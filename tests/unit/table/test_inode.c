/*
 * tests/unit/table/test_inode.c - inodes, symbolic links, extended attributes, back entries, alone and together.
 */
#include "tests/unit/table/catalog_fixture.h"

#include <stdatomic.h>
#include <sys/stat.h>

static const struct name_hash whole = {.seed = 77, .bits = 47};
static const struct name_hash narrow = {.seed = 77, .bits = 1};

/* Runs the batch and begins it anew. */
static void commit(struct fixture *fixture, struct catalog_batch *batch)
{
    assert_int_equal(0, fixture_run(fixture, batch, true));
    catalog_batch_free(batch);
}

static void lock_shared(struct view *view)
{
    rwlock_lock_shared(&view->catalog_lock);
}

static void unlock_shared(struct view *view)
{
    rwlock_unlock_shared(&view->catalog_lock);
}

static struct inode some_inode(ino_no ino)
{
    return (struct inode){
        .ino = ino,
        .mode = S_IFREG | 0640,
        .nlink = 2,
        .uid = 1000,
        .gid = 1001,
        .rdev = 0,
        .ts = 3,
        .atime_ns = -5,
        .mtime_ns = INT64_MAX,
        .ctime_ns = 1234567890123456789,
        .rel = 99,
        .rel_created = 12,
        .content_ptr = {.birth = 13, .block = 14, .alloc = 15},
        .content_height = 2,
        .size_bytes = INT64_MAX,
        .change_epoch = 16,
        .rewrite_epoch = 17,
        .attr_epoch = 18,
        .parent = 5,
        .name_cookie = 65536,
    };
}

static void assert_same_inode(const struct inode *a, const struct inode *b)
{
    assert_int_equal(a->ino, b->ino);
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->nlink, b->nlink);
    assert_int_equal(a->uid, b->uid);
    assert_int_equal(a->gid, b->gid);
    assert_int_equal(a->rdev, b->rdev);
    assert_int_equal(a->ts, b->ts);
    assert_int_equal(a->atime_ns, b->atime_ns);
    assert_int_equal(a->mtime_ns, b->mtime_ns);
    assert_int_equal(a->ctime_ns, b->ctime_ns);
    assert_int_equal(a->rel, b->rel);
    assert_int_equal(a->rel_created, b->rel_created);
    assert_int_equal(a->content_ptr.birth, b->content_ptr.birth);
    assert_int_equal(a->content_ptr.block, b->content_ptr.block);
    assert_int_equal(a->content_ptr.alloc, b->content_ptr.alloc);
    assert_int_equal(a->content_height, b->content_height);
    assert_int_equal(a->size_bytes, b->size_bytes);
    assert_int_equal(a->change_epoch, b->change_epoch);
    assert_int_equal(a->rewrite_epoch, b->rewrite_epoch);
    assert_int_equal(a->attr_epoch, b->attr_epoch);
    assert_int_equal(a->parent, b->parent);
    assert_int_equal(a->name_cookie, b->name_cookie);
}

static void inode_keeps_every_field(void **state)
{
    (void)state;
    struct fixture fixture;
    struct catalog_batch batch;
    struct inode got;
    const struct inode want = some_inode(42);
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    catalog_batch_init(&batch, fixture.live);
    assert_int_equal(0, inode_batch_put(&batch, &want));
    lock_shared(fixture.live);
    assert_int_equal(0, inode_batch_get(&batch, 42, &got));
    assert_same_inode(&want, &got);
    assert_int_equal(-ENOENT, inode_get(fixture.live, 42, &got));
    unlock_shared(fixture.live);
    commit(&fixture, &batch);
    fixture_reopen(&fixture, BUFCACHE_MIN_FRAMES);
    memset(&got, 0, sizeof got);
    lock_shared(fixture.live);
    assert_int_equal(0, inode_get(fixture.live, 42, &got));
    assert_int_equal(-ENOENT, inode_get(fixture.live, 41, &got));
    unlock_shared(fixture.live);
    assert_same_inode(&want, &got);
    catalog_batch_init(&batch, fixture.live);
    assert_int_equal(0, inode_batch_remove(&batch, 42));
    commit(&fixture, &batch);
    assert_int_equal(0, fixture.live->root.height);
    fixture_close(&fixture);
}

static void impossible_inodes_are_refused(void **state)
{
    (void)state;
    struct catalog_batch batch;
    catalog_batch_init(&batch, NULL);
    struct inode inode = some_inode(0);
    assert_int_equal(-EINVAL, inode_batch_put(&batch, &inode));
    inode = some_inode(UINT64_C(1) << 53);
    assert_int_equal(-EINVAL, inode_batch_put(&batch, &inode));
    inode = some_inode(1);
    inode.mode = 0644; /* of no kind */
    assert_int_equal(-EINVAL, inode_batch_put(&batch, &inode));
    inode = some_inode(1);
    inode.content_height = 0;
    assert_int_equal(-EINVAL, inode_batch_put(&batch, &inode));
    inode = some_inode(1);
    inode.content_ptr = PAGE_PTR_NONE;
    assert_int_equal(-EINVAL, inode_batch_put(&batch, &inode));
    inode.content_height = 0;
    assert_int_equal(0, inode_batch_put(&batch, &inode)); /* a hole */
    inode = some_inode(1);
    inode.rel = REL_NONE;
    assert_int_equal(-EINVAL, inode_batch_put(&batch, &inode));
    inode = some_inode(1);
    inode.size_bytes = (uint64_t)INT64_MAX + 1;
    assert_int_equal(-EINVAL, inode_batch_put(&batch, &inode));
    catalog_batch_free(&batch);
}

static void damaged_inode_is_not_decoded(void **state)
{
    (void)state;
    struct disk_inode disk = {.mode = le32_of(S_IFDIR | 0755), .content = disk_page_ptr_of(PAGE_PTR_NONE)};
    struct inode inode;
    struct catalog_key key = {.ino = 7, .type = ITEM_INODE};
    assert_int_equal(0, inode_decode(&key, &disk, sizeof disk, &inode));
    assert_int_equal(-EIO, inode_decode(&key, &disk, sizeof disk - 1, &inode));
    disk.reserved[1] = 1;
    assert_int_equal(-EIO, inode_decode(&key, &disk, sizeof disk, &inode));
    disk.reserved[1] = 0;
    disk.flags = INODE_DAMAGED;
    assert_int_equal(0, inode_decode(&key, &disk, sizeof disk, &inode));
    disk.flags = INODE_FLAGS + 1;
    assert_int_equal(-EIO, inode_decode(&key, &disk, sizeof disk, &inode));
    disk.flags = 0;
    disk.content_leaves = le32_of(1); /* of no content */
    assert_int_equal(-EIO, inode_decode(&key, &disk, sizeof disk, &inode));
    disk.content_leaves = le32_of(0);
    key.type = ITEM_SNAPSHOT;
    assert_int_equal(-EIO, inode_decode(&key, &disk, sizeof disk, &inode));
}

/* ---- symbolic links ---- */

static void symlink_of_any_length_is_kept(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, SYMLINK_PART_SIZE - 1, SYMLINK_PART_SIZE, SYMLINK_PART_SIZE + 1, 4095};
    struct fixture fixture;
    struct catalog_batch batch;
    char target[4096];
    char got[4096];
    size_t size = 0;
    for (size_t i = 0; i < sizeof target; i++) {
        target[i] = (char)('a' + i % 26);
    }
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    catalog_batch_init(&batch, fixture.live);
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        assert_int_equal(0, symlink_batch_put(&batch, 10 + i, target, sizes[i]));
    }
    assert_int_equal(-EINVAL, symlink_batch_put(&batch, 30, target, 0));
    commit(&fixture, &batch);
    lock_shared(fixture.live);
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        assert_int_equal(0, symlink_get(fixture.live, 10 + i, got, sizeof got, &size));
        assert_int_equal(sizes[i], size);
        assert_memory_equal(target, got, size);
        assert_int_equal(-ENOBUFS, symlink_get(fixture.live, 10 + i, got, sizes[i] - 1, &size));
    }
    assert_int_equal(-ENOENT, symlink_get(fixture.live, 30, got, sizeof got, &size));
    unlock_shared(fixture.live);
    catalog_batch_init(&batch, fixture.live);
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        assert_int_equal(0, symlink_batch_remove(&batch, 10 + i, sizes[i]));
    }
    commit(&fixture, &batch);
    assert_int_equal(0, fixture.live->root.height);
    fixture_close(&fixture);
}

static void symlink_without_its_first_part_is_damage(void **state)
{
    (void)state;
    struct fixture fixture;
    struct catalog_batch batch;
    char got[4096];
    size_t size = 0;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    catalog_batch_init(&batch, fixture.live);
    const struct catalog_key key = {.ino = 10, .sub = 1, .type = ITEM_SYMLINK};
    assert_int_equal(0, catalog_batch_put(&batch, &key, "rest", 4));
    commit(&fixture, &batch);
    lock_shared(fixture.live);
    assert_int_equal(-EIO, symlink_get(fixture.live, 10, got, sizeof got, &size));
    unlock_shared(fixture.live);
    assert_int_equal(1, atomic_load(&fixture.diag.damage_count));
    fixture_close(&fixture);
}

/* ---- extended attributes ---- */

static int put_xattr(struct catalog_batch *batch, const struct name_hash *hash, const char *name, const char *value,
                     bool must_exist, bool must_not_exist)
{
    uint64_t cookie = 0;
    lock_shared(batch->view);
    const int rc = xattr_batch_put(batch, hash, 7, name, value, strlen(value), must_exist, must_not_exist, &cookie);
    unlock_shared(batch->view);
    assert_true(rc != 0 || cookie > 65535);
    return rc;
}

static void xattr_flags_are_obeyed(void **state)
{
    (void)state;
    struct fixture fixture;
    struct catalog_batch batch;
    char got[100];
    size_t size = 0;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    catalog_batch_init(&batch, fixture.live);
    assert_int_equal(-ENODATA, put_xattr(&batch, &narrow, "user.a", "1", true, false));
    assert_int_equal(0, put_xattr(&batch, &narrow, "user.a", "1", false, true));
    assert_int_equal(-EEXIST, put_xattr(&batch, &narrow, "user.a", "2", false, true));
    assert_int_equal(0, put_xattr(&batch, &narrow, "user.b", "", false, false));
    assert_int_equal(0, put_xattr(&batch, &narrow, "user.a", "longer", true, false));
    assert_int_equal(2, batch.count);
    assert_int_equal(-ERANGE, put_xattr(&batch, &narrow, "", "1", false, false));
    commit(&fixture, &batch);
    lock_shared(fixture.live);
    assert_int_equal(0, xattr_get(fixture.live, &narrow, 7, "user.a", got, sizeof got, &size));
    assert_int_equal(6, size);
    assert_memory_equal("longer", got, 6);
    assert_int_equal(-ERANGE, xattr_get(fixture.live, &narrow, 7, "user.a", got, 5, &size));
    size = 0;
    assert_int_equal(0, xattr_get(fixture.live, &narrow, 7, "user.a", NULL, 0, &size));
    assert_int_equal(6, size);
    assert_int_equal(0, xattr_get(fixture.live, &narrow, 7, "user.b", got, sizeof got, &size));
    assert_int_equal(0, size);
    assert_int_equal(-ENODATA, xattr_get(fixture.live, &narrow, 7, "user.", got, sizeof got, &size));
    assert_int_equal(-ENODATA, xattr_get(fixture.live, &narrow, 8, "user.a", got, sizeof got, &size));
    assert_int_equal(-ENODATA, xattr_batch_remove(&batch, &narrow, 7, "user.c"));
    assert_int_equal(0, xattr_batch_remove(&batch, &narrow, 7, "user.a"));
    unlock_shared(fixture.live);
    commit(&fixture, &batch);
    lock_shared(fixture.live);
    assert_int_equal(-ENODATA, xattr_get(fixture.live, &narrow, 7, "user.a", got, sizeof got, &size));
    unlock_shared(fixture.live);
    fixture_close(&fixture);
}

static int count_xattr(void *arg, uint64_t cookie, const char *name, size_t name_size, const void *value,
                       size_t value_size)
{
    unsigned *count = arg;
    char want[32];
    assert_true(cookie > 65535);
    assert_int_equal(XATTR_MAX_VALUE, value_size);
    snprintf(want, sizeof want, "user.%u", ((const uint8_t *)value)[0]);
    assert_int_equal(strlen(want), name_size);
    assert_memory_equal(want, name, name_size);
    (*count)++;
    return 0;
}

static void largest_xattrs_are_listed(void **state)
{
    (void)state;
    struct fixture fixture;
    struct catalog_batch batch;
    static uint8_t value[XATTR_MAX_VALUE + 1];
    uint64_t cookie = 0;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    for (unsigned i = 0; i < 50; i++) {
        char name[32];
        snprintf(name, sizeof name, "user.%u", i);
        value[0] = (uint8_t)i;
        catalog_batch_init(&batch, fixture.live);
        lock_shared(fixture.live);
        assert_int_equal(-ENOSPC, xattr_batch_put(&batch, &whole, 7, name, value, sizeof value, false, false, &cookie));
        cookie = 0;
        assert_int_equal(0, xattr_batch_put(&batch, i % 2 == 0 ? &whole : &narrow, 7, name, value, XATTR_MAX_VALUE,
                                            false, false, &cookie));
        unlock_shared(fixture.live);
        commit(&fixture, &batch);
        cookie = 0;
    }
    unsigned count = 0;
    lock_shared(fixture.live);
    assert_int_equal(0, xattr_scan(fixture.live, 7, count_xattr, &count));
    unlock_shared(fixture.live);
    assert_int_equal(50, count);
    fixture_close(&fixture);
}

static void given_cookie_is_used(void **state)
{
    (void)state;
    struct fixture fixture;
    struct catalog_batch batch;
    uint64_t cookie = 65536 * 9 + 3;
    fixture_open(&fixture, 1, BUFCACHE_MIN_FRAMES);
    catalog_batch_init(&batch, fixture.live);
    assert_int_equal(0, xattr_batch_put(&batch, &whole, 7, "user.a", "x", 1, true, true, &cookie));
    assert_int_equal(65536 * 9 + 3, cookie);
    assert_int_equal(cookie, batch.edits[0].key.sub);
    catalog_batch_free(&batch);
    fixture_close(&fixture);
}

/* ---- back entries ---- */

struct back_list {
    unsigned count;
    uint64_t cookie_sum;
};

static int count_back(void *arg, ino_no parent, uint64_t cookie)
{
    struct back_list *list = arg;
    assert_int_equal(3, parent);
    list->count++;
    list->cookie_sum += cookie;
    return 0;
}

static void back_entries_come_and_go(void **state)
{
    (void)state;
    struct fixture fixture;
    struct catalog_batch batch;
    fixture_open(&fixture, 1, 2048); /* 40 edits at a time */
    catalog_batch_init(&batch, fixture.live);
    lock_shared(fixture.live);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(0, back_batch_put(&batch, &narrow, 7, 3, 65536 + i));
        assert_int_equal(0, back_batch_put(&batch, &narrow, 7, 3, 65536 + i)); /* again: no second one */
        assert_int_equal(0, back_batch_put(&batch, &narrow, 8, 4, 65536 + i));
    }
    unlock_shared(fixture.live);
    assert_int_equal(40, batch.count);
    commit(&fixture, &batch);
    lock_shared(fixture.live);
    assert_int_equal(-ENOENT, back_batch_remove(&batch, &narrow, 7, 3, 65536 + 20));
    assert_int_equal(-ENOENT, back_batch_remove(&batch, &narrow, 7, 4, 65536));
    assert_int_equal(0, back_batch_remove(&batch, &narrow, 7, 3, 65536 + 5));
    struct back_list list = {0};
    assert_int_equal(0, back_batch_scan(&batch, 7, count_back, &list));
    unlock_shared(fixture.live);
    assert_int_equal(19, list.count);
    assert_int_equal(19 * 65536 + 190 - 5, list.cookie_sum);
    commit(&fixture, &batch);
    uint64_t items = 0;
    assert_int_equal(0, catalog_check(&fixture.diag, fixture.catalog, &fixture.live->root, &items));
    assert_int_equal(39, items);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inode_keeps_every_field),
        cmocka_unit_test(impossible_inodes_are_refused),
        cmocka_unit_test(damaged_inode_is_not_decoded),
        cmocka_unit_test(symlink_of_any_length_is_kept),
        cmocka_unit_test(symlink_without_its_first_part_is_damage),
        cmocka_unit_test(xattr_flags_are_obeyed),
        cmocka_unit_test(largest_xattrs_are_listed),
        cmocka_unit_test(given_cookie_is_used),
        cmocka_unit_test(back_entries_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
