/*
 * fusefs/system_tables.c - MNT/.tblfs: tblfs's own tables, read-only TSV.
 *
 *   status        the daemon, the store, its operations, the requests of the kernel
 *   sweeps        each drop of relations, newest last; transaction 0: none; mode: sweep, lookup, none
 *   snapshots     each named snapshot, oldest first
 *   tablespaces   the data directory and each tablespace; relations, bytes: files of tables of the live tree; state: online, offline
 *   transactions  each open one, oldest first; private_bytes: in blocks of its own; log_bytes: log that it keeps
 *   commits       each commit of this life (the last 10,000), newest last
 *   position      timeline, where the log's next record will stand, number of the last commit
 *   log           each file of the log (segment: its name), and why it is there: spare (will be used again), recyclable (goes with the
 *                 next checkpoint), archiving, transaction (an open one wrote there), needed (a start would replay it), current, prepared
 *   checkpoints   each checkpoint of this life (the last 1,000), newest last; lsn: where a start would begin to replay
 *   holders       what keeps old versions; pid: who has a replaced table open, else empty
 *   progress      each job that is under way in the background, oldest first; total 0: not known
 *   archive       what keeps the log's segments, what was archived last, what failed; empty without an archive
 *   backup        which checkpoint is kept for as long as this is open, for `tblfs backup` (no table: the begin of a manifest)
 *   cache         the page cache
 *   buffers       what the cache holds of each relation, how often its pages were used lately (0: goes first), and how many
 *                 look-ups of its pages found them, since the relation is in memory
 *   buffers_summary   pages by how often they were used
 *   metrics       all figures in the text format of Prometheus
 *   version       of the daemon and of libfuse
 *   settings      what is set, and by whom: default, tblfs.conf, option
 *   relations     each table of the live tree; relation: as its file is named; fill of its leaves in percent (above 100: it has holes); free
 *                 blocks if they are known; an unlinked table that is open has no path. By who mounted it only: it tells all paths
 *   check         findings of a check of the whole tree, made when it is opened (by root only: it reads everything)
 *
 * Their columns are in `tables` below.
 *
 * Locking: none; each source has its own.
 */
#include "base/array.h"
#include "fusefs/figures.h"
#include "fusefs/fusefs_int.h"
#include "fusefs/metrics.h"
#include "fusefs/standby.h"
#include "fusefs/tables.h"
#include "fusefs/transactions.h"
#include "txn/base.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static void write_daemon(struct fusefs *fs, FILE *out)
{
    const char *reason = store_read_only_reason(fs->store);
    table_write_text(out, "version", FUSEFS_VERSION);
    table_write_count(out, "", "pid", (uint64_t)getpid());
    fprintf(out, "started\t");
    table_write_time(out, fs->started_ns);
    fputc('\n', out);
    table_write_text(out, "data_dir", fs->options->data_dir);
    table_write_text(out, "mount_point", fs->options->mount_point);
    table_write_text(out, "mode", reason != NULL || fs->options->read_only || mount_standby_is(fs) ? "ro" : "rw");
    table_write_text(out, "read_only_reason", reason != NULL ? reason : mount_standby_is(fs) ? "it is a standby" : "");
    table_write_count(out, "", "protocol_minor", fs->link.protocol_minor);
    fprintf(out, "kernel_flags\t%#" PRIx64 "\n", (uint64_t)fs->link.negotiated);
}

static void write_figure(void *arg, const struct figure *figure)
{
    fprintf(arg, "%s%s%s\t%" PRIu64 "\n", figure->name, figure->kind != NULL ? "." : "",
            figure->kind != NULL ? figure->kind : "", figure->value);
}

static int write_status(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    write_daemon(fs, out);
    if (fs->standby != NULL)
        mount_standby_write_status(fs, out);
    figures_of_store(fs, write_figure, out);
    figures_of_mount(fs, write_figure, out);
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
    table_write_time(out, sweep->time_ns);
    fprintf(out, "\t%s\t%" PRIu64 "\t%" PRIu32 "\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n",
            store_sweep_cause_name(sweep->cause), sweep->txn, result->relations, mode_name(result->mode),
            result->tags_read, result->pages_discarded, result->dirty_discarded, result->duration_us);
    return 0;
}

static int write_sweeps(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    return store_each_sweep(fs->store, write_sweep, out);
}

static int write_snapshot(void *arg, const struct store_snapshot_info *info)
{
    FILE *out = arg;
    fprintf(out, "%" PRIu64 "\t", info->number);
    table_write_printable(out, info->name, info->name_size);
    fputc('\t', out);
    table_write_time(out, info->created_ns);
    fprintf(out, "\t%" PRIu64 "\n", info->at);
    return 0;
}

static int write_snapshots(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    return store_each_snapshot(fs->store, write_snapshot, out);
}

struct tablespace_line {
    ts_no number; /* 0: the data directory */
    char *name, *dir;
    bool offline;
    uint64_t relations, blocks;
};

struct tablespace_lines {
    struct tablespace_line *lines;
    size_t count, capacity;
};

static int add_tablespace_line(struct tablespace_lines *all, ts_no number, const char *name, const char *dir,
                               bool offline)
{
    struct tablespace_line *lines = array_with_room(all->lines, all->count, &all->capacity, sizeof lines[0]);
    if (lines == NULL)
        return -ENOMEM;
    all->lines = lines;
    struct tablespace_line *line = &lines[all->count++];
    *line = (struct tablespace_line){.number = number, .name = strdup(name), .dir = strdup(dir), .offline = offline};
    return line->name != NULL && line->dir != NULL ? 0 : -ENOMEM;
}

static int add_tablespace(void *arg, const struct store_tablespace_info *info)
{
    return add_tablespace_line(arg, info->number, info->name, info->dir, info->offline);
}

static int count_relation(void *arg, const struct store_relation *relation)
{
    struct tablespace_lines *all = arg;
    for (size_t i = 0; i < all->count; i++) {
        if (all->lines[i].number == relation->ts && relation->rel != REL_NONE) {
            all->lines[i].relations++;
            all->lines[i].blocks += relation->file.blocks;
        }
    }
    return 0;
}

static void write_tablespace(const struct tablespace_line *line, FILE *out)
{
    struct statvfs space;
    fprintf(out, "%" PRIu32 "\t", line->number);
    table_write_printable(out, line->name, strlen(line->name));
    fputc('\t', out);
    table_write_printable(out, line->dir, strlen(line->dir));
    fprintf(out, "\t%" PRIu64 "\t%" PRIu64 "\t", line->relations, line->blocks * BLOCK_SIZE);
    if (!line->offline && statvfs(line->dir, &space) == 0)
        fprintf(out, "%" PRIu64, (uint64_t)space.f_bavail * space.f_frsize);
    fprintf(out, "\t%s\n", line->offline ? "offline" : "online");
}

static int write_tablespaces(struct fusefs *fs, void *arg, FILE *out)
{
    struct tablespace_lines all = {0};
    (void)arg;
    int rc = add_tablespace_line(&all, TS_DEFAULT, "", fs->options->data_dir, false);
    if (rc == 0)
        rc = store_each_tablespace(fs->store, add_tablespace, &all);
    if (rc == 0)
        rc = store_each_relation(fs->store, count_relation, &all);
    for (size_t i = 0; i < all.count; i++) {
        if (rc == 0)
            write_tablespace(&all.lines[i], out);
        free(all.lines[i].name);
        free(all.lines[i].dir);
    }
    free(all.lines);
    return rc;
}

static void write_transaction(void *arg, struct transaction *transaction)
{
    FILE *out = arg;
    struct store_txn_info got;
    const struct store_txn_info *info = &got;
    transaction_get_info(transaction, &got);
    if (info->state != STORE_TXN_OPEN)
        return;
    fprintf(out, "%" PRIu64 "\t", info->number);
    table_write_printable(out, info->name, strlen(info->name));
    fprintf(out, "\t%" PRIu32 "\t%" PRIu32 "\t", info->uid, info->pid);
    table_write_time(out, info->began_ns);
    fputc('\t', out);
    table_write_time(out, info->changed_ns);
    fprintf(out, "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", info->operations, info->private_bytes,
            info->log_bytes, info->at);
}

static int write_transactions(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    transactions_each(fs, write_transaction, out);
    return 0;
}

static int write_commit(void *arg, const struct store_commit *commit)
{
    FILE *out = arg;
    fprintf(out, "%" PRIu64 "\t%" PRIu64 "\t", commit->number, commit->lsn);
    table_write_time(out, commit->time_ns);
    fputc('\t', out);
    table_write_printable(out, commit->name, strlen(commit->name));
    fprintf(out, "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu64 "\t%" PRIu64 "\n", commit->uid, commit->pid, commit->tables,
            commit->bytes);
    return 0;
}

static int write_commits(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    return store_each_commit(fs->store, write_commit, out);
}

static int write_position(struct fusefs *fs, void *arg, FILE *out)
{
    struct store_position position;
    (void)arg;
    store_get_position(fs->store, &position);
    fprintf(out, "%" PRIu32 "\t%" PRIu64 "\t%" PRIu64 "\n", position.timeline, position.lsn, position.commits);
    return 0;
}

static int write_segment(void *arg, const struct store_segment *segment)
{
    FILE *out = arg;
    fprintf(out, "%016" PRIx64 "\t", segment->number);
    if (segment->state != STORE_SEGMENT_SPARE)
        fprintf(out, "%" PRIu64 "\t%" PRIu64, segment->start, segment->end);
    else
        fputc('\t', out);
    fprintf(out, "\t%" PRIu64 "\t%s\n", segment->bytes, store_segment_state_name(segment->state));
    return 0;
}

static int write_log(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    return store_each_segment(fs->store, write_segment, out);
}

static int write_checkpoint(void *arg, const struct store_checkpoint_line *line)
{
    FILE *out = arg;
    fprintf(out, "%" PRIu64 "\t", line->number);
    table_write_time(out, line->time_ns);
    fprintf(out, "\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n",
            store_checkpoint_cause_name(line->cause), line->duration_us, line->pages, line->pages * BLOCK_SIZE,
            line->log_bytes, line->lsn, line->epoch);
    return 0;
}

static int write_checkpoints(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    return store_each_checkpoint(fs->store, write_checkpoint, out);
}

static int write_holder(void *arg, const struct store_holder_info *info)
{
    if (strcmp(info->kind, STORE_HOLDER_OPEN_FILE) != 0) /* those have lines with their processes */
        fprintf(arg, "%s\t%" PRIu64 "\t\n", info->kind, info->at);
    return 0;
}

static int write_holders(struct fusefs *fs, void *arg, FILE *out)
{
    struct handle_reader *readers = NULL;
    size_t count = 0;
    (void)arg;
    int rc = store_each_holder(fs->store, write_holder, out);
    if (rc == 0)
        rc = handles_list_old_versions(fs, &readers, &count);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s\t%" PRIu64 "\t%ld\n", STORE_HOLDER_OPEN_FILE, readers[i].at, (long)readers[i].pid);
    free(readers);
    return rc;
}

static int write_job(void *arg, const struct store_job_info *info)
{
    FILE *out = arg;
    fprintf(out, "%s\t", info->kind);
    table_write_printable(out, info->what, strlen(info->what));
    fprintf(out, "\t%" PRIu64 "\t%" PRIu64 "\t%s\t%.1f\n", info->done, info->total, info->unit,
            (double)info->running_ns / 1e9);
    return 0;
}

static int write_progress(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    return store_each_job(fs->store, write_job, out);
}

static int write_cache(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    figures_of_cache(fs, write_figure, out);
    return 0;
}

static void write_usage(const struct bufcache_usage *usage, FILE *out)
{
    fprintf(out, "%016" PRIx64 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32, usage->rel, usage->resident, usage->dirty,
            usage->pinned);
    for (unsigned count = 0; count < BUFCACHE_USAGE_COUNTS; count++)
        fprintf(out, "\t%" PRIu32, usage->by_count[count]);
    fprintf(out, "\t%" PRIu64 "\t%" PRIu64 "\n", usage->hits, usage->misses);
}

static int write_buffers(struct fusefs *fs, void *arg, FILE *out)
{
    struct bufcache_usage *list = NULL;
    size_t count = 0;
    (void)arg;
    const int rc = bufcache_list_usage(store_cache(fs->store), &list, &count);
    for (size_t index = 0; rc == 0 && index < count; index++)
        write_usage(&list[index], out);
    free(list);
    return rc;
}

/* A line for each usage count. */
static int write_buffers_summary(struct fusefs *fs, void *arg, FILE *out)
{
    struct bufcache_usage *list = NULL;
    size_t count = 0;
    uint64_t sums[BUFCACHE_USAGE_COUNTS] = {0};
    (void)arg;
    const int rc = bufcache_list_usage(store_cache(fs->store), &list, &count);
    for (size_t index = 0; rc == 0 && index < count; index++) {
        for (unsigned used = 0; used < BUFCACHE_USAGE_COUNTS; used++)
            sums[used] += list[index].by_count[used];
    }
    for (unsigned used = 0; rc == 0 && used < BUFCACHE_USAGE_COUNTS; used++)
        fprintf(out, "%u\t%" PRIu64 "\n", used, sums[used]);
    free(list);
    return rc;
}

static int write_version(struct fusefs *fs, void *arg, FILE *out)
{
    (void)fs;
    (void)arg;
    table_write_text(out, "tblfs", FUSEFS_VERSION);
    table_write_text(out, "libfuse", fuse_pkgversion());
    table_write_text(out, "compiler", __VERSION__);
    return 0;
}

static int write_metrics(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    metrics_write(fs, out);
    return 0;
}

static void write_fill(FILE *out, uint64_t bytes, uint64_t leaves)
{
    if (leaves > 0)
        fprintf(out, "%.0f", 100.0 * (double)bytes / ((double)leaves * PAGE_PAYLOAD_SIZE));
}

static int write_relation(void *arg, const struct store_relation *relation)
{
    FILE *out = arg;
    if (relation->rel != REL_NONE)
        fprintf(out, "%016" PRIx64, relation->rel);
    fprintf(out, "\t%" PRIu64 "\t", relation->ino);
    table_write_printable(out, relation->path, strlen(relation->path));
    fprintf(out, "\t%" PRIu32 "\t%" PRIu64 "\t%" PRIu64 "\t", relation->file.blocks, relation->live_blocks,
            relation->size_bytes);
    write_fill(out, relation->size_bytes, relation->leaves);
    fprintf(out, "\t%s\t", relation->file.sidecar ? "yes" : "no");
    if (relation->free_known)
        fprintf(out, "%" PRIu32, relation->free_blocks);
    fputc('\n', out);
    return ferror(out) ? -ENOMEM : 0;
}

static int write_relations(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    return store_each_relation(fs->store, write_relation, out);
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
    table_write_printable(lines->out, line, strlen(line));
    fputc('\n', lines->out);
}

static int write_check(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    struct check_lines lines = {.out = out};
    diag_init_silent(&lines.diag);
    lines.diag.emit = emit_finding;
    lines.diag.max_level = DIAG_WARNING;
    const int rc = store_check_online(fs->store, &lines.diag);
    if (rc == 0)
        fputs("no damage found\n", out);
    return rc == -EIO ? 0 : rc;
}

static int write_settings(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    struct store_stats stats;
    store_get_stats(fs->store, &stats);
    struct fusefs_options options = *fs->options;
    options.fsm_threshold = stats.fsm_threshold; /* unless given, the store's own */
    fusefs_settings_write(out, &options);
    return 0;
}

static int write_archive(struct fusefs *fs, void *arg, FILE *out)
{
    (void)arg;
    const struct fusefs_options *options = fs->options;
    struct archive_status status;
    store_get_archive_status(fs->store, &status);
    if (!status.configured)
        return 0;
    const bool failed = status.failed_name[0] != '\0';
    table_write_text(out, "directory", options->archive_dir != NULL ? options->archive_dir : "");
    table_write_text(out, "command", options->archive_command != NULL ? options->archive_command : "");
    table_write_text(out, "last", status.last_name);
    fprintf(out, "last_time\t");
    if (status.archived > 0)
        table_write_time(out, status.last_time_ns);
    fputc('\n', out);
    table_write_count(out, "", "archived", status.archived);
    table_write_count(out, "", "waiting", status.waiting);
    table_write_count(out, "", "switches", status.switches);
    table_write_count(out, "", "failures", status.failures);
    table_write_text(out, "failed", status.failed_name);
    fprintf(out, "failed_time\t");
    if (failed)
        table_write_time(out, status.failed_time_ns);
    fputc('\n', out);
    table_write_text(out, "failed_reason", failed ? strerror(-status.failed_rc) : "");
    return 0;
}

/* `tblfs backup` reads it. */
static int write_backup(struct fusefs *fs, void *arg, FILE *out)
{
    struct store_backup **backup = arg;
    char text[BASE_HEADER_SIZE];
    const int rc = store_backup_begin(fs->store, backup);
    if (rc != 0)
        return rc;
    base_header_print(store_backup_header(*backup), text);
    fprintf(out, "%sdata_dir\t%s\n", text, fs->options->data_dir);
    return 0;
}

static const struct table tables[] = {
    {"status", 0444, TABLE_VALUES, write_status},
    {"sweeps", 0444,
     "time\tcause\ttransaction\trelations\tmode\ttags_read\tpages_discarded\tdirty_discarded\tmicroseconds",
     write_sweeps},
    {"cache", 0444, TABLE_VALUES, write_cache},
    {"buffers", 0444, "relation\tresident\tdirty\tpinned\tused_0\tused_1\tused_2\tused_3\tused_4\tused_5\thits\tmisses",
     write_buffers},
    {"buffers_summary", 0444, "usage\tpages", write_buffers_summary},
    {"version", 0444, TABLE_VALUES, write_version},
    {"metrics", 0444, NULL, write_metrics},
    {"check", 0400, "finding", write_check},
    {"snapshots", 0444, "number\tname\tcreated\tepoch", write_snapshots},
    {"transactions", 0444, "number\tname\tuid\tpid\tbegan\tchanged\toperations\tprivate_bytes\tlog_bytes\tepoch",
     write_transactions},
    {"commits", 0444, "number\tlsn\ttime\tname\tuid\tpid\ttables\tbytes", write_commits},
    {"position", 0444, "timeline\tlsn\tcommit", write_position},
    {"log", 0444, "segment\tfirst_lsn\tend_lsn\tbytes\tstate", write_log},
    {"checkpoints", 0444, "number\ttime\tcause\tmicroseconds\tpages\tbytes\tlog_bytes\tlsn\tepoch", write_checkpoints},
    {"archive", 0444, TABLE_VALUES, write_archive},
    {"backup", 0400, NULL, write_backup},
    {"holders", 0444, "kind\tepoch\tpid", write_holders},
    {"progress", 0444, "kind\twhat\tdone\ttotal\tunit\tseconds", write_progress},
    {"relations", 0400, "relation\tinode\tpath\tblocks\tlive_blocks\tbytes\tfill\tsidecar\tfree_blocks",
     write_relations},
    {"tablespaces", 0444, "number\tname\tdirectory\trelations\tbytes\tfree_bytes\tstate", write_tablespaces},
    {"settings", 0444, FUSEFS_SETTINGS_COLUMNS, write_settings},
};

static const struct table_directory directory = {
    .ino = SYSTEM_INO,
    .parent_st_ino = INO_ROOT,
    .tables = tables,
    .count = ARRAY_COUNT(tables),
    .keeper = "backup",
};

/* ---- as files ---- */

void system_lookup_directory(fuse_req_t req, const struct node_identity *root)
{
    (void)root;
    tables_lookup_directory(req, &directory);
}

static void system_getattr(fuse_req_t req, const struct node_identity *node)
{
    tables_getattr(req, &directory, node);
}

static void system_lookup(fuse_req_t req, const struct node_identity *dir, const char *name)
{
    (void)dir;
    tables_lookup(req, &directory, name);
}

static void system_readdir(fuse_req_t req, const struct node_identity *dir, size_t size, uint64_t after, bool plus)
{
    (void)dir;
    tables_readdir(req, &directory, size, after, plus);
}

static void system_open(fuse_req_t req, const struct node_identity *node, struct fuse_file_info *fi)
{
    tables_open(req, &directory, node, fi);
}

const struct virtual_kind system_tables_kind = {
    .first_ino = SYSTEM_INO,
    .last_ino = SYSTEM_INO_LAST,
    .name_rc = -EROFS,
    .change_rc = -EROFS,
    .getattr = system_getattr,
    .lookup = system_lookup,
    .readdir = system_readdir,
    .open = system_open,
};
