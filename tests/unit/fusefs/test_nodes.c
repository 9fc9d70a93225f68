/*
 * tests/unit/fusefs/test_nodes.c - node ids, lookup counts and open files, also by many threads.
 */
#include "fusefs/nodes.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#define THREADS 8u
#define ROUNDS  2000u

/* Only the number of a view counts here. */
static struct view live = {.id = 0};
static struct view other = {.id = 7};

static void count_release(void *owner)
{
    unsigned *released = owner;
    ++*released;
}

static struct node_tree_source source_of(uint64_t number, struct view *view, unsigned *released)
{
    return (struct node_tree_source){
        .kind = NODE_TREE_SNAPSHOT, .number = number, .view = view, .owner = released, .release = count_release};
}

/* The tree of a snapshot, held once. */
static struct node_tree *enter_tree(struct node_table *table, uint64_t number, struct view *view, unsigned *released)
{
    struct node_tree *tree = NULL;
    bool made = false;
    const struct node_tree_source source = source_of(number, view, released);
    assert_int_equal(node_tree_enter(table, &source, &tree, &made), 0);
    assert_true(made);
    return tree;
}

static struct node_table *make_table(void)
{
    struct node_table *table = NULL;
    assert_int_equal(node_table_new(&live, &table), 0);
    return table;
}

static uint64_t enter(struct node_table *table, struct node_tree *tree, ino_no ino)
{
    uint64_t id = 0;
    assert_int_equal(node_enter(table, tree, ino, S_IFREG | 0644, &id), 0);
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
    assert_int_equal(enter(table, node_table_live(table), INO_ROOT), NODE_ID_ROOT);
    node_table_free(table);
}

static void same_inode_has_one_node(void **state)
{
    struct node_table *table = make_table();
    struct node_identity node;
    (void)state;
    const uint64_t id = enter(table, node_table_live(table), 42);
    assert_int_equal(enter(table, node_table_live(table), 42), id);
    assert_int_equal(node_find(table, id, &node), 0);
    assert_int_equal(node.ino, 42);
    assert_int_equal(node.type, S_IFREG);
    assert_int_equal(node_count(table), 2);
    node_table_free(table);
}

static void same_number_in_other_view_is_another_node(void **state)
{
    struct node_table *table = make_table();
    unsigned released = 0;
    (void)state;
    const uint64_t id = enter(table, node_table_live(table), 42);
    struct node_tree *tree = enter_tree(table, 1, &other, &released);
    assert_int_not_equal(enter(table, tree, 42), id);
    assert_int_not_equal(enter(table, NODE_TREE_VIRTUAL, 42), id);
    assert_int_equal(node_count(table), 4);
    node_tree_let_go(tree);
    assert_int_equal(released, 0); /* it was not dropped */
    node_table_free(table);
    assert_int_equal(released, 1);
}

static void last_forget_removes_node(void **state)
{
    struct node_table *table = make_table();
    struct node_identity node;
    (void)state;
    const uint64_t id = enter(table, node_table_live(table), 42);
    (void)enter(table, node_table_live(table), 42);
    (void)enter(table, node_table_live(table), 42);
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
        const uint64_t id = enter(table, node_table_live(table), 42);
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
    const uint64_t id = enter(table, node_table_live(table), 42);
    (void)enter(table, node_table_live(table), 43);
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
    const uint64_t id = enter(table, node_table_live(table), 42);
    assert_null(node_open_use(table, id));
    assert_ptr_equal(node_open_install(table, id, &open), &open);
    assert_ptr_equal(node_open_install(table, id, &spare), &open);
    assert_ptr_equal(node_open_use(table, id), &open);
    node_forget(table, id, 1);
    assert_int_equal(node_find(table, id, &node), 0);
    assert_int_equal(enter(table, node_table_live(table), 42), id); /* looked up again */
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
    (void)node_open_install(table, enter(table, node_table_live(table), 42), &one);
    (void)node_open_install(table, enter(table, node_table_live(table), 43), &two);
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
    node_note_last(table, node_table_live(table), &attr); /* not known to the kernel: nothing to remember */
    assert_int_equal(node_enter(table, node_table_live(table), 42, S_IFDIR, &id), 0);
    assert_false(node_last_attr(table, id, &last));
    node_note_last(table, node_table_live(table), &attr);
    assert_true(node_last_attr(table, id, &last));
    assert_int_equal(last.mode, S_IFDIR | 0750);
    assert_int_equal(last.nlink, 0);
    node_forget(table, id, 1);
    assert_false(node_last_attr(table, id, &last));
    node_table_free(table);
}

/* ---- trees ---- */

static void snapshot_is_one_tree_however_often_entered(void **state)
{
    struct node_table *table = make_table();
    unsigned released = 0, spare = 0;
    struct node_tree *again = NULL;
    bool made = true;
    (void)state;
    struct node_tree *tree = enter_tree(table, 5, &other, &released);
    const struct node_tree_source source = source_of(5, &other, &spare);
    assert_int_equal(node_tree_enter(table, &source, &again, &made), 0);
    assert_ptr_equal(again, tree);
    assert_false(made);
    assert_true(node_tree_is(node_table_live(table), NODE_TREE_LIVE));
    assert_false(node_tree_is(tree, NODE_TREE_LIVE));
    assert_false(node_tree_is(NODE_TREE_VIRTUAL, NODE_TREE_LIVE));
    node_table_free(table);
    assert_int_equal(released, 1);
    assert_int_equal(spare, 0);
}

static void node_of_dropped_tree_is_stale_and_keeps_nothing(void **state)
{
    struct node_table *table = make_table();
    struct node_identity node = NODE_NONE;
    unsigned released = 0;
    (void)state;
    struct node_tree *tree = enter_tree(table, 5, &other, &released);
    const uint64_t id = enter(table, tree, 42);
    node_tree_let_go(tree);
    assert_int_equal(node_find(table, id, &node), 0);
    assert_ptr_equal(node.view, &other);
    node_tree_drop(table, NODE_TREE_SNAPSHOT, 5, -ESTALE);
    assert_int_equal(released, 0); /* NODE-4: found before */
    node_release(&node);
    assert_int_equal(released, 1); /* though the kernel has not forgotten it */
    node_release(&node);
    assert_int_equal(node_find(table, id, &node), -ESTALE);
    assert_int_equal(node_count(table), 2);
    node_forget(table, id, 1);
    assert_int_equal(node_count(table), 1);
    node_table_free(table);
    assert_int_equal(released, 1);
}

static void open_file_holds_dropped_tree_until_closed(void **state)
{
    struct node_table *table = make_table();
    struct open_file open = {.file = NULL};
    unsigned released = 0;
    (void)state;
    struct node_tree *tree = enter_tree(table, 5, &other, &released);
    const uint64_t id = enter(table, tree, 42);
    open.tree = tree;
    node_tree_hold(tree);
    assert_ptr_equal(node_open_install(table, id, &open), &open);
    node_tree_let_go(tree);
    node_tree_drop(table, NODE_TREE_SNAPSHOT, 5, -ESTALE);
    node_tree_drop(table, NODE_TREE_SNAPSHOT, 5, -ESTALE);
    node_forget(table, id, 1);
    assert_int_equal(released, 0);
    assert_ptr_equal(node_open_use(table, id), &open); /* fstat */
    assert_null(node_open_unuse(table, id));
    assert_ptr_equal(node_open_unuse(table, id), &open);
    node_tree_let_go(open.tree);
    assert_int_equal(released, 1);
    node_table_free(table);
    assert_int_equal(released, 1);
}

static int compare_numbers(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Numbers that want the same place, numbers of many lives, inodes at both ends. */
static void inode_numbers_of_trees_never_collide(void **state)
{
    enum { TREES = 300, INODES = 3, ALL = (TREES + 1) * INODES };
    static const ino_no inodes[INODES] = {INO_ROOT, 12345678, (UINT64_C(1) << NODE_INO_BITS) - 1};
    static struct view views[TREES];
    struct node_table *table = make_table();
    uint64_t found[ALL];
    unsigned released = 0;
    (void)state;
    for (unsigned index = 0; index <= TREES; index++) {
        const struct node_tree *tree = node_table_live(table);
        if (index < TREES) {
            const uint64_t number = index % 2 == 0 ? 7 + index / 2 * NODE_PLACES_MAX : (uint64_t)index << 20;
            views[index].id = index + 1;
            tree = enter_tree(table, number, &views[index], &released);
            assert_int_equal(node_tree_future_st_ino(table, NODE_TREE_SNAPSHOT, number, 99),
                             node_tree_st_ino(tree, 99));
        }
        for (unsigned at = 0; at < INODES; at++) {
            found[index * INODES + at] = node_tree_st_ino(tree, inodes[at]);
            assert_true(found[index * INODES + at] < UINT64_C(1) << 52);
        }
    }
    assert_int_equal(node_tree_st_ino(node_table_live(table), 42), 42);
    qsort(found, ALL, sizeof found[0], compare_numbers);
    for (unsigned at = 1; at < ALL; at++)
        assert_int_not_equal(found[at - 1], found[at]);
    node_table_free(table);
    assert_int_equal(released, TREES);
}

static void unknown_snapshot_is_numbered_as_it_will_be(void **state)
{
    struct node_table *table = make_table();
    unsigned released = 0;
    (void)state;
    const uint64_t before = node_tree_future_st_ino(table, NODE_TREE_SNAPSHOT, UINT64_C(3) << 20, INO_ROOT);
    const struct node_tree *tree = enter_tree(table, UINT64_C(3) << 20, &other, &released);
    assert_int_equal(node_tree_st_ino(tree, INO_ROOT), before);
    assert_true(before < UINT64_C(1) << 52);
    node_table_free(table);
}

static void more_trees_than_places_are_refused_until_one_goes(void **state)
{
    struct node_table *table = make_table();
    struct node_tree *tree = NULL;
    unsigned released = 0;
    bool made;
    (void)state;
    for (uint64_t number = 1; number <= NODE_PLACES_MAX; number++)
        node_tree_let_go(enter_tree(table, number, &other, &released));
    const struct node_tree_source source = source_of(1u << 20, &other, &released);
    assert_int_equal(node_tree_enter(table, &source, &tree, &made), -ENFILE);
    node_tree_drop(table, NODE_TREE_SNAPSHOT, 100, -ESTALE);
    assert_int_equal(released, 1);
    node_tree_let_go(enter_tree(table, 1u << 20, &other, &released));
    node_table_free(table);
    assert_int_equal(released, NODE_PLACES_MAX + 1);
}

/* Finders against the one that drops: each tree is released once, and never under a finder's hands. */
struct drop_race {
    struct node_table *table;
    uint64_t id;
    unsigned released;
};

static void *find_until_stale(void *arg)
{
    struct drop_race *race = arg;
    for (;;) {
        NODE_SCOPED node = NODE_NONE;
        if (node_find(race->table, race->id, &node) != 0)
            return NULL;
        if (race->released != 0)
            return arg;
    }
}

static void tree_dropped_under_finders_is_released_once(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        struct drop_race race = {.table = make_table()};
        pthread_t threads[THREADS];
        struct node_tree *tree = enter_tree(race.table, 5, &other, &race.released);
        race.id = enter(race.table, tree, 42);
        for (unsigned index = 0; index < THREADS; index++)
            assert_int_equal(pthread_create(&threads[index], NULL, find_until_stale, &race), 0);
        node_tree_let_go(tree);
        node_tree_drop(race.table, NODE_TREE_SNAPSHOT, 5, -ESTALE);
        for (unsigned index = 0; index < THREADS; index++) {
            void *failed;
            assert_int_equal(pthread_join(threads[index], &failed), 0);
            assert_null(failed);
        }
        assert_int_equal(race.released, 1);
        node_table_free(race.table);
    }
}

/* Every thread looks up and forgets the same few inodes; the counts must come out even. */
static void *look_up_and_forget(void *arg)
{
    struct node_table *table = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t id;
        struct node_identity node;
        const ino_no ino = 2 + round % 3;
        if (node_enter(table, node_table_live(table), ino, S_IFREG, &id) != 0 || node_find(table, id, &node) != 0 ||
            node.ino != ino)
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

/* ---- what a commit leaves behind ---- */

static void node_of_ended_transaction_answers_what_it_ended_with(void **state)
{
    struct node_table *table = make_table();
    struct node_identity node = NODE_NONE;
    struct node_tree *tree = NULL;
    unsigned released = 0;
    bool made = false;
    (void)state;
    struct node_tree_source source = source_of(5, &other, &released);
    source.kind = NODE_TREE_TRANSACTION;
    assert_int_equal(node_tree_enter(table, &source, &tree, &made), 0);
    assert_ptr_equal(node_tree_owner(tree), &released);
    assert_int_equal(node_tree_number(tree), 5);
    const uint64_t root = enter(table, tree, INO_ROOT), below = enter(table, tree, 42);
    node_tree_let_go(tree);
    node_tree_drop(table, NODE_TREE_SNAPSHOT, 5, -ESTALE); /* another one */
    assert_int_equal(node_find(table, root, &node), 0);
    node_release(&node);
    node_tree_drop(table, NODE_TREE_TRANSACTION, 5, -ECANCELED);
    assert_int_equal(released, 1);
    assert_int_equal(node_find(table, root, &node), -ESTALE); /* a name may lead to it */
    assert_int_equal(node_find(table, below, &node), -ECANCELED);
    node_tree_forget_root(table, NODE_TREE_BASE, 5);
    assert_int_equal(node_find(table, root, &node), -ESTALE);
    node_tree_forget_root(table, NODE_TREE_TRANSACTION, 5);
    assert_int_equal(node_find(table, root, &node), -ECANCELED);
    node_table_free(table);
    assert_int_equal(released, 1);
}

static void two_trees_of_one_transaction_have_different_numbers(void **state)
{
    struct node_table *table = make_table();
    struct node_tree *tree = NULL, *base = NULL;
    unsigned released = 0;
    bool made = false;
    (void)state;
    struct node_tree_source source = source_of(5, &other, &released);
    source.kind = NODE_TREE_TRANSACTION;
    assert_int_equal(node_tree_enter(table, &source, &tree, &made), 0);
    source.kind = NODE_TREE_BASE;
    assert_int_equal(node_tree_enter(table, &source, &base, &made), 0);
    assert_true(made);
    assert_int_not_equal(node_tree_st_ino(tree, 42), node_tree_st_ino(base, 42));
    node_table_free(table);
    assert_int_equal(released, 2);
}

static void stale_node_is_not_found_but_its_open_file_is(void **state)
{
    struct node_table *table = make_table();
    struct node_tree *live_tree = node_table_live(table);
    struct open_file open = {.file = NULL};
    struct node_identity node = NODE_NONE;
    (void)state;
    assert_int_equal(node_mark_stale(table, live_tree, 42, true), 0);
    const uint64_t id = enter(table, live_tree, 42);
    assert_int_equal(node_find(table, id, &node), 0);
    assert_ptr_equal(node_open_install(table, id, &open), &open);
    assert_true(node_is_open(table, live_tree, 42));
    assert_false(node_is_open(table, live_tree, INO_ROOT));
    assert_int_equal(node_mark_stale(table, live_tree, 42, false), id);
    assert_false(node_is_stale(table, id));
    assert_int_equal(node_mark_stale(table, live_tree, 42, true), id);
    assert_true(node_is_stale(table, id));
    assert_int_equal(node_find(table, id, &node), -ESTALE);
    assert_ptr_equal(node_open_use(table, id), &open);
    assert_null(node_open_unuse(table, id));
    node_clear_stale(table, id);
    assert_false(node_is_stale(table, id));
    assert_int_equal(node_find(table, id, &node), 0);
    assert_ptr_equal(node_open_unuse(table, id), &open);
    node_table_free(table);
}

static void inode_is_known_while_the_kernel_counts_it(void **state)
{
    struct node_table *table = make_table();
    struct node_tree *live_tree = node_table_live(table);
    struct open_file open = {.file = NULL};
    (void)state;
    assert_int_equal(node_known_id(table, live_tree, INO_ROOT), NODE_ID_ROOT);
    assert_int_equal(node_known_id(table, live_tree, 42), 0);
    const uint64_t id = enter(table, live_tree, 42);
    assert_int_equal(node_known_id(table, live_tree, 42), id);
    assert_ptr_equal(node_open_install(table, id, &open), &open);
    node_forget(table, id, 1);
    assert_int_equal(node_known_id(table, live_tree, 42), 0); /* only open */
    assert_ptr_equal(node_open_unuse(table, id), &open);
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
        cmocka_unit_test(snapshot_is_one_tree_however_often_entered),
        cmocka_unit_test(node_of_dropped_tree_is_stale_and_keeps_nothing),
        cmocka_unit_test(open_file_holds_dropped_tree_until_closed),
        cmocka_unit_test(inode_numbers_of_trees_never_collide),
        cmocka_unit_test(unknown_snapshot_is_numbered_as_it_will_be),
        cmocka_unit_test(more_trees_than_places_are_refused_until_one_goes),
        cmocka_unit_test(node_of_ended_transaction_answers_what_it_ended_with),
        cmocka_unit_test(two_trees_of_one_transaction_have_different_numbers),
        cmocka_unit_test(stale_node_is_not_found_but_its_open_file_is),
        cmocka_unit_test(inode_is_known_while_the_kernel_counts_it),
        cmocka_unit_test(tree_dropped_under_finders_is_released_once),
        cmocka_unit_test(lookups_and_forgets_by_many_threads_come_out_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
