/* Records as columns, laid out as Arrow buffers.
 *
 *   offset          int64
 *   timestamp       timestamp[ms, UTC], null for -1
 *   timestamp_type  int8: 0 create, 1 log append, -1 none (magic 0)
 *   key, value      binary, nullable: int32 offsets into one run of bytes; or, as views, binary_view: 16 bytes each,
 *                   which contain up to 12 bytes or point to longer ones in the payload
 *   headers         list<item: struct<key: string, value: binary>>
 *   leader_epoch    int32
 *   topic           string, the same in each row (kl_columns_origin)
 *   partition       int32, the same in each row
 *
 * With KL_COLUMNS_SPARK they have the names and types of Spark's Kafka source instead:
 *
 *   timestamp       timestamp[us, UTC], null for -1 and where 64 bits do not hold the microseconds
 *   timestampType   int32
 *   headers         null for a record without headers; the item is named element
 *   leaderEpoch     int32
 *
 * A kl_columns_t grows batch by batch and is then exported, any number of times.  Exported arrays share it: it is
 * reference-counted, and the last release, on any thread, returns its buffers to their pool.  After append has
 * returned, nothing refers to the bytes of the records, except views: these keep their bytes (kl_columns_pin) until
 * that last release.  Buffers are 64-byte aligned.  A header key that is not UTF-8 is repaired (utf8.h), because
 * consumers of Arrow data do not check strings.
 */
#ifndef KL_COLUMNS_H
#define KL_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "arrow.h"
#include "batch.h"
#include "pool.h"

typedef enum {
    KL_COLUMN_OFFSET,
    KL_COLUMN_TIMESTAMP,
    KL_COLUMN_TIMESTAMP_TYPE,
    KL_COLUMN_KEY,
    KL_COLUMN_VALUE,
    KL_COLUMN_HEADERS,
    KL_COLUMN_LEADER_EPOCH,
    KL_COLUMN_TOPIC,
    KL_COLUMN_PARTITION,
    KL_COLUMN_KINDS,
} kl_column_t;

enum {
    KL_COLUMNS_VIEWS = 1, /* keys and values are views */
    KL_COLUMNS_SPARK = 2,
};

typedef struct kl_columns kl_columns_t;

/* Make empty columns of n different kinds, in this order, with buffers of the pool.  flags: of KL_COLUMNS_.
 * KL_OK | -ENOMEM */
int kl_columns_new(kl_pool_t *pool, const kl_column_t *kinds, int n, int flags, kl_columns_t **out);

/* Release one reference; the last release frees the columns. NULL is allowed. */
void kl_columns_drop(kl_columns_t *columns);

/* Call this before views are appended: the following payloads are in bytes[0 .. size), which stay until release(owner)
 * is called, once, when the last reference is released.  Returns a number: kl_columns_from with it makes these bytes
 * current again.  Or -ENOMEM, and the owner then remains the caller's. */
int kl_columns_pin(kl_columns_t *columns, const uint8_t *bytes, size_t size, void (*release)(void *), void *owner);
void kl_columns_from(kl_columns_t *columns, int pinned);

/* The following records are of this partition.  The topic's bytes, in UTF-8, must stay until the last append. */
void kl_columns_origin(kl_columns_t *columns, const char *topic, size_t size, int32_t partition);

/* Keep only those of the following records that have one of these n offsets, which rise.  The array must stay until the
 * last append. */
void kl_columns_pick(kl_columns_t *columns, const int64_t *offsets, size_t n);

/* Append the records of a batch with start <= offset < stop, from its uncompressed payload of size bytes.
 * All of it is checked.  Blocks are parsed first and then copied, column by column.  hint: about how many times as much
 * is still to come, for the size of a first allocation.
 * KL_OK | any code of kl_payload_validate except for the order, with *bad | KL_ELENGTH for a control record without a
 * control key | KL_ESPACE (2 GiB of keys, values or headers in one set of columns) | -ENOMEM.  After a failure only
 * drop is allowed. */
int kl_columns_append(kl_columns_t *columns, const kl_batch_t *b, const uint8_t *payload, size_t size, int64_t start,
                      int64_t stop, double hint, int32_t *bad);

/* The same for an uncompressed batch at batch whose checksum has not been checked: KL_ECRC if the checksum is wrong,
 * even if there is another failure. */
int kl_columns_append_unverified(kl_columns_t *columns, const kl_batch_t *b, const uint8_t *batch, int64_t start,
                                 int64_t stop, double hint, int32_t *bad);

int64_t kl_columns_rows(const kl_columns_t *columns);

/* Bytes of all buffers; not of those that views point to. */
int64_t kl_columns_nbytes(const kl_columns_t *columns);

/* The schema of such columns: a struct with a nullable field for each.  KL_OK | -ENOMEM */
int kl_columns_schema(const kl_column_t *kinds, int n, int flags, struct ArrowSchema *out);

/* A struct array that shares the columns.  KL_OK | -ENOMEM */
int kl_columns_export(kl_columns_t *columns, struct ArrowArray *out);

#endif
