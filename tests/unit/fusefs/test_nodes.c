/*
 * tests/unit/fusefs/test_nodes.c - node ids, lookup counts and open files, also by many threads.
 */
#include "fusefs/nodes.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

#define THREADS 8u
#define ROUNDS  2000u

/* Only the number of a view counts here. */
static struct view live = {.id = 0};
static struct view other = {.id = 7};

static struct node_table *make_table(void)
{
    struct node_table *table = NULL;
    assert_int_equal(node_table_new(&live, &table), 0);
    return table;
}

static uint64_t enter(struct node_table *table, struct view *view, ino_no ino)
{
    uint64_t id = 0;
    assert_int_equal(node_enter(table, view, ino, S_IFREG | 0644, &id), 0);
    return id;
}

static uint64_t node_count(struct node_table *table)
{
    struct node_table_stats stats;
    node_table_get_stats(table, &stats);
    return stats.nodes;
}

static void root_is_there_and_stays(void **state)
{
    struct node_table *table = make_table();
    struct node_identity root;
    (void)state;
    assert_int_equal(node_find(table, NODE_ID_ROOT, &root), 0);
    assert_int_equal(root.ino, INO_ROOT);
    assert_int_equal(root.type, S_IFDIR);
    assert_ptr_equal(root.view, &live);
    node_forget(table, NODE_ID_ROOT, 5);
    assert_int_equal(node_find(table, NODE_ID_ROOT, &root), 0);
    assert_int_equal(enter(table, &live, INO_ROOT), NODE_ID_ROOT);
    node_table_free(table);
}

static void same_inode_has_one_node(void **state)
{
    struct node_table *table = make_table();
    struct node_identity node;
    (void)state;
    const uint64_t id = enter(table, &live, 42);
    assert_int_equal(enter(table, &live, 42), id);
    assert_int_equal(node_find(table, id, &node), 0);
    assert_int_equal(node.ino, 42);
    assert_int_equal(node.type, S_IFREG);
    assert_int_equal(node_count(table), 2);
    node_table_free(table);
}

static void same_number_in_other_view_is_another_node(void **state)
{
    struct node_table *table = make_table();
    (void)state;
    const uint64_t id = enter(table, &live, 42);
    assert_int_not_equal(enter(table, &other, 42), id);
    assert_int_not_equal(enter(table, NODE_VIEW_VIRTUAL, 42), id);
    assert_int_equal(node_count(table), 4);
    node_table_free(table);
}

static void last_forget_removes_node(void **state)
{
    struct node_table *table = make_table();
    struct node_identity node;
    (void)state;
    const uint64_t id = enter(table, &live, 42);
    (void)enter(table, &live, 42);
    (void)enter(table, &live, 42);
    node_forget(table, id, 2);
    assert_int_equal(node_find(table, id, &node), 0);
    node_forget(table, id, 1);
    assert_int_equal(node_find(table, id, &node), -ESTALE);
    node_forget(table, id, 1);
    node_table_free(table);
}

static void node_id_is_never_reused(void **state)
{
    struct node_table *table = make_table();
    uint64_t last = NODE_ID_ROOT;
    (void)state;
    for (unsigned round = 0; round < 100; round++) {
        const uint64_t id = enter(table, &live, 42);
        assert_true(id > last);
        last = id;
        node_forget(table, id, 1);
    }
    assert_int_equal(node_count(table), 1);
    node_table_free(table);
}

static void too_large_forget_removes_only_that_node(void **state)
{
    struct node_table *table = make_table();
    (void)state;
    const uint64_t id = enter(table, &live, 42);
    (void)enter(table, &live, 43);
    node_forget(table, id, UINT64_MAX);
    node_forget(table, 999, 1);
    assert_int_equal(node_count(table), 2);
    node_table_free(table);
}

static void open_file_keeps_forgotten_node(void **state)
{
    struct node_table *table = make_table();
    struct open_file open = {.file = NULL}, spare = {.file = NULL};
    struct node_identity node;
    (void)state;
    const uint64_t id = enter(table, &live, 42);
    assert_null(node_open_use(table, id));
    assert_ptr_equal(node_open_install(table, id, &open), &open);
    assert_ptr_equal(node_open_install(table, id, &spare), &open);
    assert_ptr_equal(node_open_use(table, id), &open);
    node_forget(table, id, 1);
    assert_int_equal(node_find(table, id, &node), 0);
    assert_int_equal(enter(table, &live, 42), id); /* looked up again */
    node_forget(table, id, 1);
    assert_null(node_open_unuse(table, id));
    assert_null(node_open_unuse(table, id));
    assert_ptr_equal(node_open_unuse(table, id), &open);
    assert_int_equal(node_find(table, id, &node), -ESTALE);
    assert_null(node_open_install(table, id, &spare));
    node_table_free(table);
}

static void open_files_left_are_taken_out(void **state)
{
    struct node_table *table = make_table();
    struct open_file one = {.file = NULL}, two = {.file = NULL};
    (void)state;
    (void)node_open_install(table, enter(table, &live, 42), &one);
    (void)node_open_install(table, enter(table, &live, 43), &two);
    const struct open_file *left = node_table_take_all_open(table);
    assert_non_null(left);
    assert_non_null(left->next);
    assert_ptr_not_equal(left, left->next);
    assert_null(left->next->next);
    assert_null(node_table_take_all_open(table));
    node_table_free(table);
}

static void removed_directory_is_remembered_until_forgotten(void **state)
{
    struct node_table *table = make_table();
    const struct store_attr attr = {.ino = 42, .mode = S_IFDIR | 0750, .nlink = 2};
    struct store_attr last;
    uint64_t id;
    (void)state;
    node_note_last(table, &live, &attr); /* not known to the kernel: nothing to remember */
    assert_int_equal(node_enter(table, &live, 42, S_IFDIR, &id), 0);
    assert_false(node_last_attr(table, id, &last));
    node_note_last(table, &live, &attr);
    assert_true(node_last_attr(table, id, &last));
    assert_int_equal(last.mode, S_IFDIR | 0750);
    assert_int_equal(last.nlink, 0);
    node_forget(table, id, 1);
    assert_false(node_last_attr(table, id, &last));
    node_table_free(table);
}

/* Every thread looks up and forgets the same few inodes; the counts must come out even. */
static void *look_up_and_forget(void *arg)
{
    struct node_table *table = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t id;
        struct node_identity node;
        const ino_no ino = 2 + round % 3;
        if (node_enter(table, &live, ino, S_IFREG, &id) != 0 || node_find(table, id, &node) != 0 || node.ino != ino)
            return arg;
        node_forget(table, id, 1);
    }
    return NULL;
}

static void lookups_and_forgets_by_many_threads_come_out_even(void **state)
{
    struct node_table *table = make_table();
    pthread_t threads[THREADS];
    (void)state;
    for (unsigned index = 0; index < THREADS; index++)
        assert_int_equal(pthread_create(&threads[index], NULL, look_up_and_forget, table), 0);
    for (unsigned index = 0; index < THREADS; index++) {
        void *failed;
        assert_int_equal(pthread_join(threads[index], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(node_count(table), 1);
    node_table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_is_there_and_stays),
        cmocka_unit_test(same_inode_has_one_node),
        cmocka_unit_test(same_number_in_other_view_is_another_node),
        cmocka_unit_test(last_forget_removes_node),
        cmocka_unit_test(node_id_is_never_reused),
        cmocka_unit_test(too_large_forget_removes_only_that_node),
        cmocka_unit_test(open_file_keeps_forgotten_node),
        cmocka_unit_test(open_files_left_are_taken_out),
        cmocka_unit_test(removed_directory_is_remembered_until_forgotten),
        cmocka_unit_test(lookups_and_forgets_by_many_threads_come_out_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
