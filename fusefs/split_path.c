/*
 * fusefs/split_path.c - which mount a path leads into.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SIZE 256u

/* Does it begin with one of the names at MNT that are no tables'? */
static bool is_system_path(const char *rest)
{
    char first[NAME_SIZE];
    (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(rest, "/"), rest);
    return name_is_own(first);
}

static bool is_mounted_at(const char *path)
{
    struct mount_entry entry;
    if (mount_find_point(path, &entry) != 0)
        return false;
    const bool ours = strcmp(entry.type, MOUNT_TYPE) == 0;
    mount_entry_free(&entry);
    return ours;
}

/* Cuts `real` behind the mount point that it lies in; NULL: it lies in none. Else what is behind it. */
static char *cut_at_mount(char *real)
{
    const size_t size = strlen(real);
    for (size_t end = size; end > 0; end--) {
        const char at = real[end];
        if (at != '/' && at != '\0')
            continue;
        real[end] = '\0';
        if (is_mounted_at(real))
            return end < size ? real + end + 1 : real + end;
        real[end] = at;
    }
    return NULL;
}

int fusefs_split_path(const char *path, char **out_mount_point, char **out_rest)
{
    char *real = realpath(path, NULL);
    if (real == NULL && errno == ENOENT)
        real = mount_realpath_new(path);
    if (real == NULL) {
        fprintf(stderr, "tblfs: %s: %s\n", path, strerror(errno));
        return 1;
    }
    const char *rest = cut_at_mount(real);
    if (rest == NULL || is_system_path(rest)) {
        fprintf(stderr, "tblfs: %s: not in the tree of a tblfs mount%s\n", path,
                rest == NULL ? "" : ", but in what belongs to tblfs");
        free(real);
        return 1;
    }
    *out_rest = strdup(rest);
    *out_mount_point = real;
    if (*out_rest != NULL)
        return 0;
    free(real);
    fprintf(stderr, "tblfs: %s: %s\n", path, strerror(ENOMEM));
    return 1;
}
