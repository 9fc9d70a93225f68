/*
 * tests/mount/shutdown.c - cuts the power of an ext4: shutdown DIR.
 *
 * The filesystem at DIR stops at once, without writing its journal (EXT4_IOC_SHUTDOWN, NOLOGFLUSH): what was not synced is
 * lost, as in a power cut. Exit status 0; 77 when it knows no such call; else 1 after a line on stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define IOC_SHUTDOWN        _IOR('X', 125, uint32_t)
#define SHUTDOWN_NOLOGFLUSH 2u

int main(int argc, char **argv)
{
    uint32_t how = SHUTDOWN_NOLOGFLUSH;
    if (argc != 2) {
        fprintf(stderr, "Usage: shutdown DIR\n");
        return 2;
    }
    const int fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "shutdown: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    if (ioctl(fd, IOC_SHUTDOWN, &how) != 0) {
        fprintf(stderr, "shutdown: %s: %s\n", argv[1], strerror(errno));
        return errno == ENOTTY || errno == EOPNOTSUPP ? 77 : 1;
    }
    return close(fd) == 0 ? 0 : 1;
}
