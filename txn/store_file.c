/*
 * txn/store_file.c - the table of open inodes.
 *
 * An open file is one object for an (inode, view), counted. It holds the content's lock and relation. The last close
 * takes it off the table, and destroys the inode if its last name is gone (STORE-4).
 *
 * Locking: files_lock guards the table, the list of replaced ones, refs and orphan. Opening holds the view's catalog lock shared meanwhile,
 * unlinking holds it exclusively: an inode is either found by the one or found open by the other.
 */
#include "txn/store_sidecar.h"
#include "txn/store_txn.h"

#include "base/plant.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct store_file **bucket_of(struct store *store, const struct view *view, ino_no ino)
{
    return &store->files[(ino * 31 + view->id) % STORE_FILE_BUCKETS];
}

static struct store_file *find_locked(struct store *store, const struct view *view, ino_no ino)
{
    struct store_file *file = *bucket_of(store, view, ino);
    while (file != NULL && (file->ino != ino || file->view != view)) {
        file = file->next;
    }
    return file;
}

static struct store_file *file_make(struct store *store, struct view *view, ino_no ino)
{
    struct store_file *file = calloc(1, sizeof *file);
    if (file != NULL) {
        file->store = store;
        file->view = view;
        file->ino = ino;
        rwlock_init(&file->lock, LOCK_RANK_FILE, ino);
    }
    return file;
}

void old_version_put(struct old_version *old)
{
    if (old != NULL && atomic_fetch_sub(&old->refs, 1) == 1) {
        view_close(old->view);
        cow_holder_close(old->store->cow, old->holder);
        free(old);
    }
}

void store_file_free(struct store_file *file)
{
    if (file->pin != NULL) {
        cow_pin_drop(file->store->cow, file->pin);
    }
    old_version_put(file->old);
    free(file->old_inode);
    if (file->relation != NULL) {
        store_sidecar_retain(file->store, file->relation);
    }
    relation_unref(file->relation);
    rwlock_destroy(&file->lock);
    free(file);
}

static void count_open(const struct view *view, int more)
{
    struct store_txn *txn = txn_of_view(view);
    if (txn != NULL) {
        atomic_fetch_add(&txn->open_files, (uint32_t)more);
    }
}

/* Adds a reference to what is in the table, or puts `made` there (taking it over). */
static struct store_file *file_enter(struct store *store, struct store_file *made, bool orphan, int *out_rc)
{
    mutex_lock(&store->files_lock);
    struct store_file *file = find_locked(store, made->view, made->ino);
    if (file == NULL && orphan && !store->recovering) {
        *out_rc = -ENOENT; /* its last close is under way */
    } else if (file == NULL) {
        struct store_file **bucket = bucket_of(store, made->view, made->ino);
        file = made;
        file->next = *bucket;
        *bucket = file;
        store->open_files++;
        count_open(file->view, 1);
    }
    if (file != NULL) {
        file->refs++;
    }
    mutex_unlock(&store->files_lock);
    return file;
}

static int open_locked(struct store *store, struct view *view, ino_no ino, struct store_file **out_file)
{
    struct inode inode;
    int rc = inode_get(view, ino, &inode);
    if (rc != 0) {
        return rc;
    }
    if (!S_ISREG(inode.mode)) {
        return S_ISDIR(inode.mode) ? -EISDIR : -EINVAL;
    }
    rc = store_check_undamaged(store, &inode);
    if (rc != 0) {
        return rc;
    }
    struct store_file *made = file_make(store, view, ino);
    if (made == NULL) {
        return -ENOMEM;
    }
    if (inode.rel != REL_NONE) {
        rc = relation_open(store->cache, inode.ts, inode.rel, &made->relation);
    }
    struct store_file *file = rc == 0 ? file_enter(store, made, inode.nlink == 0, &rc) : NULL;
    if (file != made) {
        store_file_free(made);
    }
    if (file != NULL) {
        *out_file = file;
    }
    return rc;
}

int store_file_open(struct store *store, struct view *view, ino_no ino, struct store_file **out_file)
{
    struct frame_budget budget;
    int rc = store_read_enter(store, view, &budget);
    if (rc == 0) {
        rc = open_locked(store, view, ino, out_file);
        store_read_leave(view, &budget);
    }
    return rc;
}

static void unlink_replaced_locked(struct store_file *file)
{
    if (!atomic_load(&file->replaced)) {
        return;
    }
    struct store_file **link = &file->store->replaced;
    while (*link != file) {
        link = &(*link)->next_replaced;
    }
    *link = file->next_replaced;
}

void store_file_close(struct store_file *file)
{
    struct store *store = file->store;
    mutex_lock(&store->files_lock);
    assert(file->refs > 0);
    const bool last = --file->refs == 0;
    if (last) {
        struct store_file **link = bucket_of(store, file->view, file->ino);
        while (*link != file) {
            link = &(*link)->next;
        }
        *link = file->next;
        unlink_replaced_locked(file);
        store->open_files--;
        count_open(file->view, -1);
    }
    mutex_unlock(&store->files_lock);
    if (!last) {
        return;
    }
    if (file->orphan) {
        store_destroy_orphan_or_log(store, file->view, file->ino);
    }
    store_file_free(file);
}

ino_no store_file_ino(const struct store_file *file)
{
    return file->ino;
}

int store_file_getattr(struct store_file *file, struct store_attr *out_attr)
{
    int rc = atomic_load(&file->replaced) ? -ENOENT : store_getattr(file->store, file->view, file->ino, out_attr);
    if (rc == -ENOENT && atomic_load(&file->replaced)) {
        struct inode inode;
        rc = store_file_get_inode(file, &inode);
        if (rc == 0) {
            store_attr_of(&inode, out_attr);
        }
    }
    return rc;
}

bool store_file_replaced(struct store_file *file, ino_no *out_ino)
{
    mutex_lock(&file->store->files_lock);
    const bool replaced = atomic_load(&file->replaced);
    if (replaced) {
        *out_ino = file->replaced_by;
    }
    mutex_unlock(&file->store->files_lock);
    return replaced;
}

epoch_no store_file_replaced_at(const struct store_file *file)
{
    return atomic_load(&file->replaced) ? file->replaced_at : 0;
}

void store_file_ref(struct store_file *file)
{
    mutex_lock(&file->store->files_lock);
    file->refs++;
    mutex_unlock(&file->store->files_lock);
}

struct store_file *store_file_find(struct store *store, struct view *view, ino_no ino)
{
    mutex_lock(&store->files_lock);
    struct store_file *file = find_locked(store, view, ino);
    if (file != NULL) {
        file->refs++;
    }
    mutex_unlock(&store->files_lock);
    return file;
}

void store_file_replace(struct store *store, struct view *view, ino_no ino, ino_no new_ino, struct old_version *old)
{
    mutex_lock(&store->files_lock);
    for (struct store_file *earlier = store->replaced; earlier != NULL; earlier = earlier->next_replaced) {
        if (earlier->replaced_by == ino) {
            earlier->replaced_by = new_ino;
        }
    }
    struct store_file *file = find_locked(store, view, ino);
    if (file != NULL) {
        atomic_fetch_add(&old->refs, 1);
        file->replaced_by = new_ino;
        file->next_replaced = store->replaced;
        store->replaced = file;
        file->old = old;
        file->replaced_at = cow_holder_at(old->holder);
        atomic_store(&file->replaced, true);
    }
    mutex_unlock(&store->files_lock);
}

int store_files_list(struct store *store, const struct view *view, struct store_file ***out_files, size_t *out_count)
{
    rwlock_assert_held_exclusive(&view->catalog_lock); /* nobody opens one more */
    size_t count = 0;
    mutex_lock(&store->files_lock);
    struct store_file **files = malloc((store->open_files + 1) * sizeof files[0]);
    for (size_t i = 0; i < STORE_FILE_BUCKETS && files != NULL; i++) {
        for (struct store_file *file = store->files[i]; file != NULL; file = file->next) {
            if (file->view == view) {
                file->refs++;
                files[count++] = file;
            }
        }
    }
    mutex_unlock(&store->files_lock);
    if (files == NULL) {
        return -ENOMEM;
    }
    *out_files = files;
    *out_count = count;
    return 0;
}

bool store_file_move(struct store_file *file, struct view *view)
{
    struct store *store = file->store;
    rwlock_lock_exclusive(&file->lock);
    mutex_lock(&store->files_lock);
    const bool is_free = find_locked(store, view, file->ino) == NULL && !PLANT(PROMOTED_FILES_LEFT);
    if (is_free) {
        struct store_file **link = bucket_of(store, file->view, file->ino);
        while (*link != file) {
            link = &(*link)->next;
        }
        *link = file->next;
        file->view = view;
        link = bucket_of(store, view, file->ino);
        file->next = *link;
        *link = file;
    }
    mutex_unlock(&store->files_lock);
    rwlock_unlock_exclusive(&file->lock);
    return is_free;
}

void store_file_wait_for_readers(struct store_file *file)
{
    lock_assert_none_held();
    rwlock_lock_exclusive(&file->lock);
    rwlock_unlock_exclusive(&file->lock);
    store_file_settle(file);
}

bool store_file_is_open(struct store *store, struct view *view, ino_no ino)
{
    mutex_lock(&store->files_lock);
    const bool is_open = find_locked(store, view, ino) != NULL;
    mutex_unlock(&store->files_lock);
    return is_open;
}

bool store_file_mark_orphan(struct store *store, struct view *view, ino_no ino)
{
    mutex_lock(&store->files_lock);
    struct store_file *file = find_locked(store, view, ino);
    if (file != NULL) {
        file->orphan = true;
    }
    mutex_unlock(&store->files_lock);
    return file != NULL;
}
