/* Batch headers as columns, laid out as Arrow buffers.
 *
 *   position              int64   of the batch's first byte in its segment
 *   size                  int32   of the whole batch
 *   base_offset           int64
 *   last_offset           int64
 *   count                 int32   records
 *   base_timestamp        timestamp[ms, UTC], null for -1 and if the field holds a delete horizon
 *   max_timestamp         timestamp[ms, UTC], null for -1
 *   timestamp_type        int8: 0 create, 1 log append, -1 none (magic 0)
 *   compression           string: "none", "gzip", "snappy", "lz4", "zstd"
 *   leader_epoch          int32, -1: none
 *   producer_id           int64, -1: none
 *   producer_epoch        int16, -1: none
 *   base_sequence         int32, -1: none
 *   is_transactional      bool
 *   is_control            bool
 *   delete_horizon        timestamp[ms, UTC], null: none
 *   magic                 int8
 *   segment_base_offset   int64, the same for all rows
 *
 * An export copies: the rows may change or be freed after it.  Its buffers are one block, 64-byte aligned, which the
 * last release frees, on any thread.
 */
#ifndef KL_HEADERS_H
#define KL_HEADERS_H

#include <stdint.h>

#include "arrow.h"
#include "batch.h"

typedef enum {
    KL_HEADER_POSITION,
    KL_HEADER_SIZE,
    KL_HEADER_BASE_OFFSET,
    KL_HEADER_LAST_OFFSET,
    KL_HEADER_COUNT,
    KL_HEADER_BASE_TIMESTAMP,
    KL_HEADER_MAX_TIMESTAMP,
    KL_HEADER_TIMESTAMP_TYPE,
    KL_HEADER_COMPRESSION,
    KL_HEADER_LEADER_EPOCH,
    KL_HEADER_PRODUCER_ID,
    KL_HEADER_PRODUCER_EPOCH,
    KL_HEADER_BASE_SEQUENCE,
    KL_HEADER_IS_TRANSACTIONAL,
    KL_HEADER_IS_CONTROL,
    KL_HEADER_DELETE_HORIZON,
    KL_HEADER_MAGIC,
    KL_HEADER_SEGMENT_BASE_OFFSET,
    KL_HEADER_KINDS,
} kl_header_t;

/* The name of a column. */
const char *kl_header_name(kl_header_t kind);

/* The schema of n columns: a struct with a nullable field for each.  KL_OK | -ENOMEM */
int kl_headers_schema(const kl_header_t *kinds, int n, struct ArrowSchema *out);

/* A struct array of n columns of rows[0 .. count), at most KL_HEADERS_MAX.  Every codec is a known one.
 * KL_OK | -ENOMEM */
enum { KL_HEADERS_MAX = 1 << 24 };
int kl_headers_export(const kl_batch_t *rows, int64_t count, int64_t segment_base_offset, const kl_header_t *kinds,
                      int n, struct ArrowArray *out);

#endif
