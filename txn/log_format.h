/*
 * txn/log_format.h - segments and batches of the log. Disk structures only.
 *
 * The log is one stream of bytes, cut into segment files DIR/log/NUMBER (16 hex digits) of one size. Position (lsn) p
 * lies in segment p / size at offset p % size. A segment starts with its header, padded to LOG_ALIGN; batches follow,
 * each aligned to LOG_ALIGN and within one segment. A batch is a header and a piece of payload. One or more batches
 * make a group (FIRST ... LAST), whose payload is a run of whole records: a group is longer than one batch only when it
 * is larger than LOG_BATCH_MAX or than the rest of its segment.
 *
 * Segments make a chain: each says at which position the log before it ended. Within a life that is its own start; the first segment of a
 * life names the end of the life before, which may lie far below (positions are never used twice).
 */
#ifndef TBLFS_TXN_LOG_FORMAT_H
#define TBLFS_TXN_LOG_FORMAT_H

#include "base/bytes.h"
#include "base/types.h"

#include <assert.h>

#define LOG_MAGIC          "tblfslog"
#define LOG_FORMAT_VERSION 2u /* 1: without previous, timeline, flags and SWITCH; read as well */
#define LOG_ALIGN          512u
#define LOG_SEGMENT_SIZE   (UINT32_C(16) << 20)
#define LOG_BATCH_MAX      (UINT32_C(256) << 10) /* largest batch, header and padding included */

struct log_segment_header {
    uint8_t magic[8];      /*  0 */
    le32 version;          /*  8 LOG_FORMAT_VERSION */
    le32 segment_size;     /* 12 bytes */
    uint8_t store_id[16];  /* 16 whose log it is */
    le64 number;           /* 32 */
    le64 previous;         /* 40 position at which the log before this segment ended; 0: it is the first one ever */
    le32 timeline;         /* 48 0: not known (version 1) */
    le32 flags;            /* 52 enum log_segment_flags */
    uint8_t reserved[448]; /* 56 zero */
    le64 checksum;         /* 504 XXH3-64, seed 0, over bytes 0 to 504 */
};
static_assert(sizeof(struct log_segment_header) == LOG_ALIGN, "segment header is one sector");

enum log_segment_flags { LOG_SEGMENT_COMPLETE = 1 }; /* its records carry all bytes: none refers to pages */

#define LOG_BATCH_MAGIC 0x68637462u /* "btch" */

/* SWITCH: nothing follows in this segment; the log goes on in the next one. */
enum log_batch_flags { LOG_BATCH_FIRST = 1, LOG_BATCH_LAST = 2, LOG_BATCH_SWITCH = 4 };

struct log_batch_header {
    le32 magic;        /*  0 */
    le32 payload_size; /*  4 bytes behind this header; the rest up to LOG_ALIGN is zero */
    le64 lsn;          /*  8 position of this header */
    le64 synced;       /* 16 everything before this position was durable when this was written (it vouches for it) */
    le32 flags;        /* 24 enum log_batch_flags */
    le32 reserved;     /* 28 zero */
    le64 checksum;     /* 32 XXH3-64, seed: first 8 bytes of the store id, over bytes 0 to 32, then the payload */
};
static_assert(sizeof(struct log_batch_header) == 40, "batch header is 40 bytes");

#endif
