/*
 * fusefs/mounts.c - what is mounted where, by /proc/self/mountinfo.
 *
 * A daemon never opens a path under its own mount: it would wait for itself. mountinfo tells all that is needed.
 *
 * Locking: none, nothing is shared.
 */
#include "fusefs/fusefs_int.h"

#include <errno.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

void mount_entry_free(struct mount_entry *entry)
{
    free(entry->mount_point);
    free(entry->type);
    free(entry->source);
    *entry = (struct mount_entry){.mount_point = NULL};
}

static bool is_octal(char digit)
{
    return digit >= '0' && digit <= '7';
}

/* Undoes \ooo in place. */
static void unescape(char *text)
{
    char *to = text;
    while (*text != '\0') {
        if (text[0] == '\\' && is_octal(text[1]) && is_octal(text[2]) && is_octal(text[3])) {
            *to++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
            text += 4;
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
}

static char *next_field(char **rest)
{
    return strsep(rest, " \n");
}

/* ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPEROPTIONS. -EINVAL: not such a line; the
 * strings of *out_entry point into it. */
static int parse_line(char *line, struct mount_entry *out_entry)
{
    char *rest = line;
    char *fields[6];
    for (size_t index = 0; index < ARRAY_COUNT(fields); index++) {
        fields[index] = next_field(&rest);
        if (fields[index] == NULL)
            return -EINVAL;
    }
    if (sscanf(fields[2], "%u:%u", &out_entry->major, &out_entry->minor) != 2)
        return -EINVAL;
    for (const char *field = next_field(&rest); field != NULL; field = next_field(&rest)) {
        if (strcmp(field, "-") == 0)
            break;
    }
    out_entry->mount_point = fields[4];
    out_entry->type = next_field(&rest);
    out_entry->source = next_field(&rest);
    if (out_entry->type == NULL || out_entry->source == NULL)
        return -EINVAL;
    unescape(out_entry->mount_point);
    unescape(out_entry->source);
    return 0;
}

static int entry_copy(const struct mount_entry *from, struct mount_entry *out_entry)
{
    struct mount_entry copy = *from;
    copy.mount_point = strdup(from->mount_point);
    copy.type = strdup(from->type);
    copy.source = strdup(from->source);
    if (copy.mount_point == NULL || copy.type == NULL || copy.source == NULL) {
        mount_entry_free(&copy);
        return -ENOMEM;
    }
    *out_entry = copy;
    return 0;
}

typedef bool match_fn(const struct mount_entry *entry, const char *wanted);

static bool match_point(const struct mount_entry *entry, const char *wanted)
{
    return strcmp(entry->mount_point, wanted) == 0;
}

static bool match_source(const struct mount_entry *entry, const char *wanted)
{
    return strcmp(entry->type, MOUNT_TYPE) == 0 && strcmp(entry->source, wanted) == 0;
}

/* The last match is the topmost mount. */
static int find_last(match_fn *match, const char *wanted, struct mount_entry *out_entry)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (file == NULL)
        return -errno;
    char *line = NULL;
    size_t capacity = 0;
    struct mount_entry found = {.mount_point = NULL};
    int rc = -ENOENT;
    while (rc != -ENOMEM && getline(&line, &capacity, file) > 0) {
        struct mount_entry entry;
        if (parse_line(line, &entry) != 0 || !match(&entry, wanted))
            continue;
        mount_entry_free(&found);
        rc = entry_copy(&entry, &found);
    }
    free(line);
    (void)fclose(file);
    if (rc == 0)
        *out_entry = found;
    return rc;
}

bool path_lies_in(const char *inner, const char *outer)
{
    const size_t length = strlen(outer);
    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(inner, outer, length) == 0 && (inner[length] == '\0' || inner[length] == '/');
}

int mount_find_point(const char *mount_point, struct mount_entry *out_entry)
{
    return find_last(match_point, mount_point, out_entry);
}

int mount_find_source(const char *data_dir, struct mount_entry *out_entry)
{
    return find_last(match_source, data_dir, out_entry);
}

bool mount_is_alive(const struct mount_entry *entry)
{
    struct statfs statfs_out;
    return statfs(entry->mount_point, &statfs_out) == 0 || errno != ENOTCONN;
}

static int unmount_by_helper(const char *mount_point, bool detach)
{
    char *const plain[] = {"fusermount3", "-q", "-u", "--", (char *)(uintptr_t)mount_point, NULL};
    char *const lazy[] = {"fusermount3", "-q", "-u", "-z", "--", (char *)(uintptr_t)mount_point, NULL};
    pid_t pid;
    int status;
    const int error = posix_spawnp(&pid, "fusermount3", NULL, NULL, detach ? lazy : plain, environ);
    if (error != 0)
        return -EPERM;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int mount_unmount(const char *mount_point, bool detach)
{
    if (umount2(mount_point, detach ? MNT_DETACH | UMOUNT_NOFOLLOW : UMOUNT_NOFOLLOW) == 0)
        return 0;
    return errno == EPERM ? unmount_by_helper(mount_point, detach) : -errno;
}

char *mount_realpath_new(const char *path)
{
    char *for_dir = strdup(path), *for_base = strdup(path), *real_dir = NULL, *real = NULL;
    if (for_dir != NULL && for_base != NULL)
        real_dir = realpath(dirname(for_dir), NULL);
    if (real_dir != NULL &&
        asprintf(&real, "%s/%s", strcmp(real_dir, "/") == 0 ? "" : real_dir, basename(for_base)) < 0)
        real = NULL;
    const int error = errno;
    free(for_dir);
    free(for_base);
    free(real_dir);
    errno = error;
    return real;
}

char *mount_realpath(const char *path)
{
    char *real = realpath(path, NULL);
    return real == NULL && errno == ENOTCONN ? mount_realpath_new(path) : real;
}

int mount_check_live(const char *given, const char *mount_point)
{
    struct mount_entry entry;
    if (mount_find_point(mount_point, &entry) != 0) {
        fprintf(stderr, "tblfs: %s: nothing is mounted there\n", given);
        return -EINVAL;
    }
    const bool ours = strcmp(entry.type, MOUNT_TYPE) == 0;
    const bool alive = ours && mount_is_alive(&entry);
    mount_entry_free(&entry);
    if (!ours)
        fprintf(stderr, "tblfs: %s: what is mounted there is not tblfs\n", given);
    else if (!alive)
        fprintf(stderr, "tblfs: %s: its daemon is gone; 'tblfs mount' brings it back\n", given);
    return alive ? 0 : -EINVAL;
}
