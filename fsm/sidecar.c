/*
 * fsm/sidecar.c - sidecars: encoded, decoded, checked.
 *
 * Locking: none, nothing is shared; one sidecar is dealt with by one thread at a time.
 */
#include "fsm/sidecar.h"

#include "base/checksum.h"
#include "base/plant.h"
#include "fsm/sidecar_format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fsm_sidecar_free(struct fsm_sidecar *sidecar)
{
    free(sidecar->words);
    sidecar->words = NULL;
}

void fsm_sidecar_path(const struct relation *relation, char path[FSM_SIDECAR_PATH_BYTES])
{
    (void)snprintf(path, FSM_SIDECAR_PATH_BYTES, "%s" FSM_SIDECAR_SUFFIX, relation_file_path(relation));
}

static size_t word_count(block_no blocks)
{
    return (size_t)blocks / 64 + (blocks % 64 != 0);
}

static uint64_t sidecar_checksum(const struct sidecar_header *header, const le64 *words, size_t count)
{
    return checksum_64(words, count * sizeof words[0],
                       checksum_64(header, offsetof(struct sidecar_header, checksum), 0));
}

/* ---- writing ---- */

static void header_encode(const struct fsm_sidecar *sidecar, struct sidecar_header *header)
{
    memset(header, 0, sizeof *header);
    memcpy(header->magic, SIDECAR_MAGIC, sizeof header->magic);
    header->version = le32_of(SIDECAR_VERSION);
    header->blocks = le32_of(sidecar->blocks);
    memcpy(header->store_id, sidecar->store_id, sizeof header->store_id);
    header->rel = le64_of(sidecar->rel);
    header->first_ino = le64_of(sidecar->first_ino);
    header->epoch = le64_of(sidecar->epoch);
    header->root = disk_page_ptr_of(sidecar->root);
    header->root_bytes = le64_of(sidecar->root_bytes);
    header->root_leaves = le32_of(sidecar->root_leaves);
    header->used = le32_of(sidecar->used);
    header->root_height = sidecar->root_height;
}

static int write_file(struct io_device *dev, const char *path, struct iovec *iov, int iov_count, bool *out_made)
{
    struct io_file *file = NULL;
    int rc = io_open(dev, path, IO_READ_WRITE | IO_CREATE | IO_TRUNCATE, &file);
    if (rc != 0) {
        return rc;
    }
    *out_made = true;
    rc = io_writev_full(file, iov, iov_count, 0);
    const int close_rc = io_close(file);
    return rc != 0 ? rc : close_rc;
}

int fsm_sidecar_write(struct io_device *dev, const char *path, const struct fsm_sidecar *sidecar, bool *out_made)
{
    struct sidecar_header header;
    const size_t count = word_count(sidecar->blocks);
    *out_made = false;
    le64 *words = malloc(count * sizeof words[0] + 1);
    if (words == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        words[i] = le64_of(sidecar->words[i]);
    }
    header_encode(sidecar, &header);
    header.checksum = le64_of(sidecar_checksum(&header, words, count));
    struct iovec iov[2] = {{.iov_base = &header, .iov_len = sizeof header},
                           {.iov_base = words, .iov_len = count * sizeof words[0]}};
    const int rc = write_file(dev, path, iov, ARRAY_COUNT(iov), out_made);
    free(words);
    return rc;
}

int fsm_sidecar_sync(struct io_device *dev, const char *path)
{
    struct io_file *file = NULL;
    int rc = io_open(dev, path, IO_READ_WRITE, &file);
    if (rc != 0) {
        return rc;
    }
    rc = io_sync(file);
    const int close_rc = io_close(file);
    return rc != 0 ? rc : close_rc;
}

int fsm_sidecar_remove(struct io_device *dev, const char *path)
{
    const int rc = io_unlink(dev, path);
    if (rc == 0) {
        return 1;
    }
    return rc == -ENOENT || rc == -EISDIR ? 0 : rc;
}

/* ---- reading ---- */

static bool is_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* What is wrong with the header, which belongs to a file of that size; NULL: nothing. */
static const char *judge_header(const struct sidecar_header *header, uint64_t size_bytes, block_no file_blocks)
{
    if (memcmp(header->magic, SIDECAR_MAGIC, sizeof header->magic) != 0) {
        return "not a sidecar";
    }
    if (le32_get(header->version) != SIDECAR_VERSION) {
        return "of another version";
    }
    if (le32_get(header->blocks) != file_blocks) {
        return "for a file of another size";
    }
    if (size_bytes != sizeof *header + word_count(file_blocks) * sizeof(le64)) {
        return "too long or too short";
    }
    return is_zero(header->reserved, sizeof header->reserved) ? NULL : "reserved bytes are not zero";
}

static const char *judge_words(const struct sidecar_header *header, const le64 *disk, const uint64_t *words)
{
    const block_no blocks = le32_get(header->blocks);
    const size_t count = word_count(blocks);
    uint64_t used = 0;
    if (le64_get(header->checksum) != sidecar_checksum(header, disk, count) && !PLANT(SIDECAR_CHECKSUM_IGNORED)) {
        return "checksum is wrong";
    }
    for (size_t i = 0; i < count; i++) {
        used += (uint64_t)__builtin_popcountll(words[i]);
    }
    if (blocks % 64 != 0 && words[count - 1] >> (blocks % 64) != 0) {
        return "bits behind the end of the file";
    }
    return used == le32_get(header->used) || PLANT(SIDECAR_CHECKSUM_IGNORED) ? NULL : "number of used blocks is wrong";
}

static void header_decode(const struct sidecar_header *header, struct fsm_sidecar *sidecar)
{
    memcpy(sidecar->store_id, header->store_id, sizeof sidecar->store_id);
    sidecar->rel = le64_get(header->rel);
    sidecar->first_ino = le64_get(header->first_ino);
    sidecar->epoch = le64_get(header->epoch);
    sidecar->root = disk_page_ptr_get(&header->root);
    sidecar->root_bytes = le64_get(header->root_bytes);
    sidecar->root_leaves = le32_get(header->root_leaves);
    sidecar->root_height = header->root_height;
    sidecar->blocks = le32_get(header->blocks);
    sidecar->used = le32_get(header->used);
}

static int read_words(struct io_file *file, const struct sidecar_header *header, struct fsm_sidecar *out_sidecar,
                      const char **out_why)
{
    const size_t count = word_count(le32_get(header->blocks));
    size_t got = 0;
    le64 *disk = malloc(count * sizeof disk[0] + 1);
    uint64_t *words = malloc(count * sizeof words[0] + 1);
    int rc = disk != NULL && words != NULL ? 0 : -ENOMEM;
    if (rc == 0) {
        rc = io_read_full(file, disk, count * sizeof disk[0], sizeof *header, &got);
    }
    if (rc == 0) {
        for (size_t i = 0; i < count; i++) {
            words[i] = le64_get(disk[i]);
        }
        *out_why = got == count * sizeof disk[0] ? judge_words(header, disk, words) : "too short";
        rc = *out_why == NULL ? 0 : -EBADMSG;
    }
    free(disk);
    if (rc != 0) {
        free(words);
        return rc;
    }
    header_decode(header, out_sidecar);
    out_sidecar->words = words;
    return 0;
}

static int read_open_file(struct io_file *file, block_no file_blocks, struct fsm_sidecar *out_sidecar,
                          const char **out_why)
{
    struct sidecar_header header;
    struct io_stat st;
    size_t got = 0;
    int rc = io_stat_file(file, &st);
    if (rc == 0) {
        rc = io_read_full(file, &header, sizeof header, 0, &got);
    }
    if (rc != 0) {
        return rc;
    }
    *out_why = got == sizeof header ? judge_header(&header, st.size_bytes, file_blocks) : "too short";
    return *out_why == NULL ? read_words(file, &header, out_sidecar, out_why) : -EBADMSG;
}

int fsm_sidecar_read(struct io_device *dev, const char *path, block_no file_blocks, struct fsm_sidecar *out_sidecar,
                     const char **out_why)
{
    struct io_file *file = NULL;
    struct io_stat st;
    int rc = io_stat(dev, path, &st);
    *out_why = NULL;
    if (rc == 0 && st.kind != IO_KIND_FILE) {
        *out_why = "not a file";
        return -EBADMSG;
    }
    if (rc == 0) {
        rc = io_open(dev, path, IO_READ_ONLY, &file);
    }
    if (rc != 0) {
        return rc;
    }
    rc = read_open_file(file, file_blocks, out_sidecar, out_why);
    const int close_rc = io_close(file);
    (void)close_rc; /* it was only read */
    return rc;
}
