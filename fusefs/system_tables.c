/*
 * fusefs/system_tables.c - MNT/.tblfs: tblfs's own tables, read-only TSV.
 *
 *   status   name, value: the daemon, the store, its operations, the requests of the kernel
 *   sweeps   a line for each drop of relations, newest last: time, cause, transaction, relations, mode, tags read,
 * pages discarded, dirty ones among them, microseconds
 *   snapshots   a line for each named snapshot, oldest first: number, name, time of creation, epoch
 *   cache    name, value: the page cache
 *   check    findings of a check of the whole tree, made when it is opened (by root only: it reads everything)
 *
 * A table is written when it is opened, and the handle keeps that text. The kernel keeps nothing of it: timeouts are 0,
 * reads are direct.
 *
 * Locking: none; each source has its own.
 */
#include "fusefs/fusefs_int.h"
#include "txn/op.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM_INO_DIRECTORY SYSTEM_INO_TOP
#define SYSTEM_INO_FILE(n)   (SYSTEM_INO_TOP - 1 - (n))

#define NANOSECONDS_IN_SECOND INT64_C(1000000000)

struct system_table {
    const char *name;
    mode_t mode;
    int (*write)(struct fusefs *fs, FILE *out);
};

/* ---- the tables ---- */

static void write_time(FILE *out, int64_t time_ns)
{
    const time_t seconds = (time_t)(time_ns / NANOSECONDS_IN_SECOND);
    struct tm parts;
    char text[32] = "";
    if (gmtime_r(&seconds, &parts) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    fprintf(out, "%s.%06" PRId64 "Z", text, time_ns % NANOSECONDS_IN_SECOND / 1000);
}

static void write_count(FILE *out, const char *prefix, const char *name, uint64_t value)
{
    fprintf(out, "%s%s\t%" PRIu64 "\n", prefix, name, value);
}

/* A path, name or message may hold a tab or a newline; the table may not. */
static void write_printable(FILE *out, const char *bytes, size_t size)
{
    for (size_t at = 0; at < size; at++)
        fputc((unsigned char)bytes[at] < 0x20 || bytes[at] == 0x7f ? '?' : bytes[at], out);
}

static void write_text(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s\t", name);
    write_printable(out, value, strlen(value));
    fputc('\n', out);
}

static void write_daemon(struct fusefs *fs, FILE *out)
{
    const char *reason = store_read_only_reason(fs->store);
    write_text(out, "version", FUSEFS_VERSION);
    write_count(out, "", "pid", (uint64_t)getpid());
    fprintf(out, "started\t");
    write_time(out, fs->started_ns);
    fputc('\n', out);
    write_text(out, "data_dir", fs->options->data_dir);
    write_text(out, "mount_point", fs->options->mount_point);
    write_text(out, "mode", reason != NULL || fs->options->read_only ? "ro" : "rw");
    write_text(out, "read_only_reason", reason == NULL ? "" : reason);
    write_count(out, "", "protocol_minor", fs->link.protocol_minor);
    fprintf(out, "kernel_flags\t%#" PRIx64 "\n", (uint64_t)fs->link.negotiated);
}

static void write_log(const struct store_stats *stats, FILE *out)
{
    const struct log_stats *log = &stats->log;
    const struct {
        const char *name;
        uint64_t value;
    } lines[] = {
        {"log_end", log->end},
        {"log_written", log->written},
        {"log_synced", log->synced},
        {"log_records", log->records},
        {"log_record_bytes", log->record_bytes},
        {"log_batches", log->batches},
        {"log_bytes_written", log->bytes_written},
        {"log_syncs", log->syncs},
        {"log_segments", log->segments},
        {"log_segments_made", log->segments_made},
        {"log_segments_reused", log->segments_reused},
        {"redo_records", stats->redo_records},
        {"redo_ms", stats->redo_ms},
    };
    for (size_t index = 0; index < ARRAY_COUNT(lines); index++)
        write_count(out, "", lines[index].name, lines[index].value);
}

static void write_store(struct fusefs *fs, FILE *out)
{
    struct store_stats stats;
    store_get_stats(fs->store, &stats);
    write_count(out, "", "epoch", stats.epoch);
    write_count(out, "", "control_number", stats.control_number);
    write_count(out, "", "checkpoints", stats.checkpoints);
    write_count(out, "", "checkpoint_pages_written", stats.checkpoint_pages_written);
    write_count(out, "", "sweeps", stats.sweeps);
    write_count(out, "", "orphans", stats.orphans);
    write_count(out, "", "open_files", stats.open_files);
    write_log(&stats, out);
    for (unsigned type = 0; type < ARRAY_COUNT(stats.operations); type++) {
        const char *name = op_type_name((enum op_type)type);
        if (name != NULL && stats.operations[type] > 0)
            write_count(out, "operation.", name, stats.operations[type]);
    }
}

static int write_status(struct fusefs *fs, FILE *out)
{
    struct node_table_stats nodes;
    node_table_get_stats(fs->nodes, &nodes);
    write_daemon(fs, out);
    write_store(fs, out);
    write_count(out, "", "nodes", nodes.nodes);
    write_count(out, "", "nodes_open", nodes.open_files);
    for (unsigned opcode = 0; opcode < KERNEL_OPCODES; opcode++) {
        const char *name = kernel_opcode_name(opcode);
        if (name != NULL)
            write_count(out, "request.", name, fs->link.requests[opcode]);
    }
    return 0;
}

static const char *mode_name(enum drop_mode mode)
{
    switch (mode) {
    case DROP_MODE_LOOKUP:
        return "lookup";
    case DROP_MODE_SWEEP:
        return "sweep";
    case DROP_MODE_NONE:
        break;
    }
    return "none";
}

static int write_sweep(void *arg, const struct store_sweep *sweep)
{
    FILE *out = arg;
    const struct drop_result *result = &sweep->result;
    write_time(out, sweep->time_ns);
    fprintf(out, "\t%s\t%" PRIu64 "\t%" PRIu32 "\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n",
            sweep->cause, sweep->txn, result->relations, mode_name(result->mode), result->tags_read,
            result->pages_discarded, result->dirty_discarded, result->duration_us);
    return 0;
}

static int write_sweeps(struct fusefs *fs, FILE *out)
{
    return store_each_sweep(fs->store, write_sweep, out);
}

static int write_snapshot(void *arg, const struct store_snapshot_info *info)
{
    FILE *out = arg;
    fprintf(out, "%" PRIu64 "\t", info->number);
    write_printable(out, info->name, info->name_size);
    fputc('\t', out);
    write_time(out, info->created_ns);
    fprintf(out, "\t%" PRIu64 "\n", info->at);
    return 0;
}

static int write_snapshots(struct fusefs *fs, FILE *out)
{
    return store_each_snapshot(fs->store, write_snapshot, out);
}

static int write_cache(struct fusefs *fs, FILE *out)
{
    struct bufcache_stats stats;
    bufcache_get_stats(store_cache(fs->store), &stats);
    const struct {
        const char *name;
        uint64_t value;
    } lines[] = {
        {"frames", stats.frames},
        {"free_frames", stats.free_frames},
        {"dirty_frames", stats.dirty_frames},
        {"pinned_frames", stats.pinned_frames},
        {"hits", stats.hits},
        {"misses", stats.misses},
        {"pages_read", stats.pages_read},
        {"read_calls", stats.read_calls},
        {"pages_written", stats.pages_written},
        {"write_calls", stats.write_calls},
        {"evictions", stats.evictions},
        {"discards", stats.discards},
        {"sweeps", stats.sweeps},
        {"lookup_drops", stats.lookup_drops},
        {"empty_drops", stats.empty_drops},
        {"tags_read", stats.tags_read},
        {"relation_opens", stats.relation_opens},
        {"relation_files_created", stats.relation_files_created},
        {"relation_files_unlinked", stats.relation_files_unlinked},
        {"syncs", stats.syncs},
        {"damaged_pages", stats.damaged_pages},
    };
    for (size_t index = 0; index < ARRAY_COUNT(lines); index++)
        write_count(out, "", lines[index].name, lines[index].value);
    return 0;
}

/* Findings of a check, a line each. */
struct check_lines {
    struct diag diag; /* first: emit gets back to it */
    FILE *out;
};

static void emit_finding(struct diag *diag, enum diag_level level, const char *line)
{
    struct check_lines *lines = (struct check_lines *)diag;
    (void)level;
    write_printable(lines->out, line, strlen(line));
    fputc('\n', lines->out);
}

static int write_check(struct fusefs *fs, FILE *out)
{
    struct check_lines lines = {.out = out};
    diag_init_silent(&lines.diag);
    lines.diag.emit = emit_finding;
    lines.diag.max_level = DIAG_WARNING;
    const int rc = store_check_online(fs->store, &lines.diag);
    if (rc == 0)
        fputs("no damage found\n", out);
    return rc == -EIO ? 0 : rc;
}

static const struct system_table tables[] = {
    {"status", 0444, write_status}, {"sweeps", 0444, write_sweeps},       {"cache", 0444, write_cache},
    {"check", 0400, write_check},   {"snapshots", 0444, write_snapshots},
};

/* ---- as files ---- */

bool system_is_node(const struct node_identity *node)
{
    return node->tree == NODE_TREE_VIRTUAL;
}

void system_stat(ino_no ino, struct stat *out_stat)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const bool directory = ino == SYSTEM_INO_DIRECTORY;
    *out_stat = (struct stat){
        .st_ino = ino,
        .st_mode = directory ? S_IFDIR | 0555 : S_IFREG | tables[SYSTEM_INO_FILE(0) - ino].mode,
        .st_nlink = directory ? 2 : 1,
        .st_atim = now,
        .st_mtim = now,
        .st_ctim = now,
    };
}

static int system_entry(struct fusefs *fs, ino_no ino, struct fuse_entry_param *out_entry)
{
    *out_entry = (struct fuse_entry_param){.attr_timeout = 0, .entry_timeout = 0};
    system_stat(ino, &out_entry->attr);
    uint64_t id;
    const int rc = node_enter(fs->nodes, NODE_TREE_VIRTUAL, ino, out_entry->attr.st_mode & S_IFMT, &id);
    if (rc == 0)
        out_entry->ino = id;
    return rc;
}

static void system_reply_entry(fuse_req_t req, ino_no ino)
{
    struct fusefs *fs = fusefs_of(req);
    struct fuse_entry_param entry;
    const int rc = system_entry(fs, ino, &entry);
    if (rc != 0)
        reply_error(req, rc);
    else if (fuse_reply_entry(req, &entry) != 0)
        node_forget(fs->nodes, entry.ino, 1); /* FUSE-2 */
}

void system_lookup_directory(fuse_req_t req)
{
    system_reply_entry(req, SYSTEM_INO_DIRECTORY);
}

void system_lookup(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    if (dir->ino != SYSTEM_INO_DIRECTORY) {
        reply_error(req, -ENOTDIR);
        return;
    }
    for (size_t index = 0; index < ARRAY_COUNT(tables); index++) {
        if (strcmp(tables[index].name, name) == 0) {
            system_reply_entry(req, SYSTEM_INO_FILE(index));
            return;
        }
    }
    reply_error(req, -ENOENT);
}

/* Entry `index` of the listing: ".", "..", then the tables. */
static const char *listed_name(size_t index, ino_no *out_ino)
{
    if (index >= 2) {
        *out_ino = SYSTEM_INO_FILE(index - 2);
        return tables[index - 2].name;
    }
    *out_ino = index == 0 ? SYSTEM_INO_DIRECTORY : INO_ROOT;
    return index == 0 ? "." : "..";
}

/* Adds one entry without a node: with a timeout of 0 the kernel would look it up again anyway. */
static size_t add_listed(fuse_req_t req, char *buffer, size_t room, const char *name, ino_no ino, bool plus, off_t next)
{
    const bool directory = name[0] == '.';
    const struct fuse_entry_param entry = {
        .attr = {.st_ino = ino, .st_mode = directory ? S_IFDIR | 0555 : S_IFREG | 0444}};
    if (plus)
        return fuse_add_direntry_plus(req, buffer, room, name, &entry, next);
    return fuse_add_direntry(req, buffer, room, name, &entry.attr, next);
}

void system_readdir(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after, bool plus)
{
    char buffer[4096];
    size_t used = 0;
    const size_t room = size < sizeof buffer ? size : sizeof buffer;
    if (dir->ino != SYSTEM_INO_DIRECTORY) {
        reply_error(req, -ENOTDIR);
        return;
    }
    for (uint64_t index = after; index < ARRAY_COUNT(tables) + 2; index++) {
        ino_no ino;
        const char *name = listed_name(index, &ino);
        const size_t needed = add_listed(req, buffer + used, room - used, name, ino, plus, (off_t)(index + 1));
        if (needed > room - used)
            break;
        used += needed;
    }
    (void)fuse_reply_buf(req, buffer, used);
}

/* The table's text, malloc'd. */
static int table_text(struct fusefs *fs, const struct system_table *table, char **out_text, size_t *out_size)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return -ENOMEM;
    int rc = table->write(fs, out);
    if (rc == 0 && ferror(out))
        rc = -ENOMEM;
    if (fclose(out) != 0 && rc == 0)
        rc = -ENOMEM;
    if (rc != 0) {
        free(text);
        return rc;
    }
    *out_text = text;
    *out_size = size;
    return 0;
}

static int open_table(struct fusefs *fs, const struct node_identity *node, struct fuse_file_info *fi)
{
    const uint64_t index = SYSTEM_INO_FILE(0) - node->ino;
    char *text = NULL;
    size_t size = 0;
    struct handle *handle = NULL;
    if (index >= ARRAY_COUNT(tables))
        return -EISDIR;
    if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0)
        return -EROFS;
    int rc = table_text(fs, &tables[index], &text, &size);
    if (rc == 0)
        rc = handle_open_text(fs, node->id, text, size, &handle);
    if (rc == 0) {
        fi->fh = (uintptr_t)handle;
        fi->direct_io = 1;
        fi->noflush = 1;
    }
    return rc;
}

void system_open(fuse_req_t req, const struct node_identity *node, struct fuse_file_info *fi)
{
    struct fusefs *fs = fusefs_of(req);
    const int rc = open_table(fs, node, fi);
    if (rc != 0)
        reply_error(req, rc);
    else if (fuse_reply_open(req, fi) != 0)
        handle_close(fs, handle_of(fi)); /* interrupted: no release will come */
}
