/*
 * tools/base_input.c - see the header.
 */
#include "tools/base_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t get(void *arg, void *bytes, size_t size_bytes)
{
    const struct base_input *input = arg;
    ssize_t got;
    do
        got = read(input->fd, bytes, size_bytes);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

int base_input_open(struct base_input *input, const char *path)
{
    struct stat stat_out;
    *input = (struct base_input){.fd = -1, .source = {.dev = io_real_device()}};
    if (strcmp(path, "-") == 0) {
        input->fd = STDIN_FILENO;
    } else if (stat(path, &stat_out) != 0) {
        return -errno;
    } else if (S_ISDIR(stat_out.st_mode)) {
        input->dir = realpath(path, NULL);
        input->source.dir = input->dir;
        return input->dir != NULL ? 0 : -errno;
    } else {
        input->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (input->fd < 0)
            return -errno;
    }
    input->source.get = get;
    input->source.arg = input;
    return 0;
}

void base_input_close(struct base_input *input)
{
    if (input->fd > STDIN_FILENO)
        (void)close(input->fd);
    free(input->dir);
}
