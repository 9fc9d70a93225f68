/*
 * txn/log.c - positions of operation records.
 */
#include "txn/log.h"

#include <stdatomic.h>

void log_init(struct log *log, lsn_no start)
{
    atomic_init(&log->end, start);
}

lsn_no log_append(struct log *log, const struct op_record *op)
{
    return atomic_fetch_add(&log->end, op_record_size(op));
}

lsn_no log_end(const struct log *log)
{
    return atomic_load(&log->end);
}
