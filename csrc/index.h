/* The two sparse indexes of a segment, over mapped memory.
 *
 *   .index      entry := relative_offset:i32 position:i32    8 bytes, both rise strictly
 *   .timeindex  entry := timestamp:i64 relative_offset:i32   12 bytes, timestamp rises strictly, offset never falls
 *
 * Big-endian.  Entries fill the file from the front; the bytes after the last one are zeros.
 * Kafka: OffsetIndex, TimeIndex, AbstractIndex, LogSegment.append.
 */
#ifndef KL_INDEX_H
#define KL_INDEX_H

#include "batch.h"

#include <stdint.h>

enum { KL_OFFSET_ENTRY = 8, KL_TIME_ENTRY = 12 };

/* Number of valid entries among the first n: the prefix whose keys rise as the format requires and whose slots are not
 * zeros (position 0 never has an entry in .index; a 0/0 slot ends .timeindex). */
int32_t kl_offset_index_valid(const uint8_t *entries, int32_t n);
int32_t kl_time_index_valid(const uint8_t *entries, int32_t n);

/* Largest slot whose relative offset <= target, or -1. */
int32_t kl_offset_index_floor(const uint8_t *entries, int32_t n, int32_t target);
/* Smallest slot whose position >= target, or n. */
int32_t kl_offset_index_position(const uint8_t *entries, int32_t n, int32_t target);
/* Largest slot whose timestamp <= target, or -1. */
int32_t kl_time_index_floor(const uint8_t *entries, int32_t n, int64_t target);

/* The state that keeps a segment's indexes consistent with its .log.  It has plain values only.  Adding to a copy whose
 * entries are null is a dry run: it computes the state after an append, and writes nothing. */
typedef struct {
    uint8_t *offset_entries; /* null in a dry run */
    uint8_t *time_entries;   /* null in a dry run */
    int64_t base_offset;
    int64_t bytes_since_entry; /* size of the batches since the last index entry */
    int64_t max_timestamp;   /* largest so far, -1 for none */
    int64_t max_timestamp_offset;
    int64_t last_time;       /* timestamp of the last time entry, -1 for none */
    int64_t last_time_offset;
    int64_t first_timestamp; /* max timestamp of the segment's first batch, negative: -1; INT64_MIN: no batch */
    int32_t interval;        /* index.interval.bytes */
    int32_t offset_count, offset_capacity;
    int32_t time_count, time_capacity;
    int32_t last_relative;   /* of the last offset entry, -1 for none */
} kl_indexer_t;

void kl_indexer_init(kl_indexer_t *x, int64_t base_offset, int32_t interval);

/* Index a batch that begins at position: one offset and one time entry if more than interval bytes have passed since
 * the last ones.  A full index gets no more entries (it stays sparse, the next append rolls), and no index gets an
 * offset that does not fit. */
void kl_indexer_add(kl_indexer_t *x, const kl_batch_t *b, int64_t position);

/* The closing time entry of a segment, which may use the reserved last slot.  Returns 1 if one was added. */
int kl_indexer_close(kl_indexer_t *x);

/* Must the segment of size bytes roll before b is appended?  segment_ms is already reduced by the jitter; waited_ms is
 * the segment's age by the wall clock, used while its first batch has no timestamp. */
int kl_indexer_must_roll(const kl_indexer_t *x, const kl_batch_t *b, int64_t size, int64_t segment_bytes,
                         int64_t segment_ms, int64_t waited_ms);

/* Is there space for the entries of n batches that are appended whole to the segment of size bytes, or is it empty?
 * Else Kafka could not load it after a crash: its recovery of an index fails at the first entry too many. */
int kl_indexer_has_space(const kl_indexer_t *x, const kl_batch_t *batches, int32_t n, int64_t size);

/* How many of the n batches fit into the segment before it must roll. */
int32_t kl_indexer_fit(const kl_indexer_t *x, const kl_batch_t *batches, int32_t n, int64_t size,
                       int64_t segment_bytes, int64_t segment_ms, int64_t waited_ms);

#endif
