/*
 * fusefs/figures.c - see the header.
 */
#include "fusefs/figures.h"

#include "fusefs/fusefs_int.h"
#include "txn/op.h"

static void tell(figure_fn *fn, void *arg, const struct figure *figures, size_t count)
{
    for (size_t index = 0; index < count; index++)
        fn(arg, &figures[index]);
}

static void tell_kinds_of_operations(const struct store_stats *stats, figure_fn *fn, void *arg)
{
    for (unsigned type = 0; type < ARRAY_COUNT(stats->operations); type++) {
        const struct figure figure = {"operation", op_type_name((enum op_type)type), stats->operations[type], true};
        if (figure.kind != NULL && figure.value > 0)
            fn(arg, &figure);
    }
}

static void tell_log(const struct log_stats *log, figure_fn *fn, void *arg)
{
    const struct figure figures[] = {
        {"log_end", NULL, log->end, false},
        {"log_written", NULL, log->written, false},
        {"log_synced", NULL, log->synced, false},
        {"log_records", NULL, log->records, true},
        {"log_record_bytes", NULL, log->record_bytes, true},
        {"log_batches", NULL, log->batches, true},
        {"log_bytes_written", NULL, log->bytes_written, true},
        {"log_syncs", NULL, log->syncs, true},
        {"log_segments", NULL, log->segments, false},
        {"log_segments_made", NULL, log->segments_made, true},
        {"log_segments_reused", NULL, log->segments_reused, true},
    };
    tell(fn, arg, figures, ARRAY_COUNT(figures));
}

void figures_of_store(struct fusefs *fs, figure_fn *fn, void *arg)
{
    struct store_stats stats;
    store_get_stats(fs->store, &stats);
    const struct figure figures[] = {
        {"epoch", NULL, stats.epoch, false},
        {"control_number", NULL, stats.control_number, false},
        {"checkpoints", NULL, stats.checkpoints, true},
        {"fsm_threshold", NULL, stats.fsm_threshold, false},
        {"sidecars_loaded", NULL, stats.sidecars_loaded, true},
        {"sidecars_ignored", NULL, stats.sidecars_ignored, true},
        {"sidecars_removed", NULL, stats.sidecars_removed, true},
        {"checkpoint_pages_written", NULL, stats.checkpoint_pages_written, true},
        {"maps_waiting", NULL, stats.maps_waiting, false},
        {"maps_built", NULL, stats.maps_built, true},
        {"maps_failed", NULL, stats.maps_failed, true},
        {"blocks_trimmed", NULL, stats.blocks_trimmed, true},
        {"blocks_punched", NULL, stats.blocks_punched, true},
        {"orphans", NULL, stats.orphans, false},
        {"open_files", NULL, stats.open_files, false},
        {"redo_records", NULL, stats.redo_records, false},
        {"redo_ms", NULL, stats.redo_ms, false},
        {"sweeps", NULL, stats.sweeps, true},
    };
    tell(fn, arg, figures, ARRAY_COUNT(figures));
    for (unsigned cause = 0; cause < SWEEP_CAUSES; cause++) {
        const struct figure figure = {"sweeps", store_sweep_cause_name((enum store_sweep_cause)cause),
                                      stats.sweeps_of[cause], true};
        fn(arg, &figure);
    }
    tell_kinds_of_operations(&stats, fn, arg);
    tell_log(&stats.log, fn, arg);
}

void figures_of_mount(struct fusefs *fs, figure_fn *fn, void *arg)
{
    struct node_table_stats nodes;
    node_table_get_stats(fs->nodes, &nodes);
    const struct figure figures[] = {
        {"nodes", NULL, nodes.nodes, false},
        {"nodes_open", NULL, nodes.open_files, false},
    };
    tell(fn, arg, figures, ARRAY_COUNT(figures));
    for (unsigned opcode = 0; opcode < KERNEL_OPCODES; opcode++) {
        const struct figure figure = {"request", kernel_opcode_name(opcode), fs->link.requests[opcode], true};
        if (figure.kind != NULL)
            fn(arg, &figure);
    }
}

void figures_of_cache(struct fusefs *fs, figure_fn *fn, void *arg)
{
    struct bufcache_stats stats;
    bufcache_get_stats(store_cache(fs->store), &stats);
    const struct figure figures[] = {
        {"frames", NULL, stats.frames, false},
        {"free_frames", NULL, stats.free_frames, false},
        {"dirty_frames", NULL, stats.dirty_frames, false},
        {"pinned_frames", NULL, stats.pinned_frames, false},
        {"hits", NULL, stats.hits, true},
        {"misses", NULL, stats.misses, true},
        {"pages_read", NULL, stats.pages_read, true},
        {"read_calls", NULL, stats.read_calls, true},
        {"pages_written", NULL, stats.pages_written, true},
        {"write_calls", NULL, stats.write_calls, true},
        {"evictions", NULL, stats.evictions, true},
        {"discards", NULL, stats.discards, true},
        {"sweeps", NULL, stats.sweeps, true},
        {"lookup_drops", NULL, stats.lookup_drops, true},
        {"empty_drops", NULL, stats.empty_drops, true},
        {"tags_read", NULL, stats.tags_read, true},
        {"relation_opens", NULL, stats.relation_opens, true},
        {"relation_files_created", NULL, stats.relation_files_created, true},
        {"relation_files_unlinked", NULL, stats.relation_files_unlinked, true},
        {"syncs", NULL, stats.syncs, true},
        {"damaged_pages", NULL, stats.damaged_pages, true},
    };
    tell(fn, arg, figures, ARRAY_COUNT(figures));
}
