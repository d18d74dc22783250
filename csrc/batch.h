/* Record batch, magic 2: the 61-byte header, framing, and the walk over an uncompressed payload.
 *
 *   base_offset:i64 length:i32 leader_epoch:i32 magic:i8 crc:u32            21 bytes, outside the crc
 *   attributes:i16 last_offset_delta:i32 base_timestamp:i64 max_timestamp:i64
 *   producer_id:i64 producer_epoch:i16 base_sequence:i32 count:i32           40 bytes
 *   payload                                                                  records, or one codec stream
 *
 * length counts the bytes after itself, so a batch has length + 12 bytes.  Big-endian throughout.
 * Kafka: DefaultRecordBatch, DefaultRecord.
 */
#ifndef KL_BATCH_H
#define KL_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "bytes.h"
#include "status.h"

/* First byte of each field.  base_offset, length and magic are there in messages of magic 0 and 1 too. */
enum {
    KL_AT_BASE_OFFSET = 0,
    KL_AT_LENGTH = 8,
    KL_AT_LEADER_EPOCH = 12,
    KL_AT_MAGIC = 16,
    KL_AT_CRC = 17,
    KL_AT_ATTRIBUTES = 21,
    KL_AT_LAST_OFFSET_DELTA = 23,
    KL_AT_BASE_TIMESTAMP = 27,
    KL_AT_MAX_TIMESTAMP = 35,
    KL_AT_PRODUCER_ID = 43,
    KL_AT_PRODUCER_EPOCH = 51,
    KL_AT_BASE_SEQUENCE = 53,
    KL_AT_COUNT = 57,
};

enum {
    KL_BATCH_PREFIX = 12,     /* base_offset and length, which length does not count */
    KL_BATCH_MIN = 26,        /* the smallest batch of any magic: a message of magic 0, key and value null */
    KL_BATCH_HEADER = 61,
    KL_BATCH_CRC_FROM = KL_AT_ATTRIBUTES, /* first byte that the crc covers */
    KL_RECORD_MIN = 7,        /* length, attributes, two deltas, two lengths, header count */

    KL_ATTR_CODEC = 0x07,
    KL_ATTR_LOG_APPEND_TIME = 0x08,
    KL_ATTR_TRANSACTIONAL = 0x10,
    KL_ATTR_CONTROL = 0x20,
    KL_ATTR_DELETE_HORIZON = 0x40,

    KL_CODEC_GZIP = 1, /* in the bits of KL_ATTR_CODEC, as in klog.codec.CODECS */
    KL_CODEC_LZ4 = 3,
    KL_CODEC_ZSTD = 4,
};

typedef struct {
    int64_t position;     /* of the batch's first byte, from the caller's origin */
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t size;         /* whole batch, length + 12 */
    int32_t leader_epoch;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t count;
    uint32_t crc;
    int16_t attributes;
    int16_t producer_epoch;
    int8_t magic;
} kl_batch_t;

static inline int64_t kl_batch_last_offset(const kl_batch_t *b) {
    return (int64_t)((uint64_t)b->base_offset + (uint64_t)(int64_t)b->last_offset_delta);
}

/* The size of the batch of any magic whose first KL_BATCH_PREFIX bytes are at at: KL_BATCH_MIN to 2^31-1 bytes, or
 * KL_ELENGTH. */
static inline int32_t kl_batch_size(const uint8_t *at) {
    int32_t length = (int32_t)kl_load_u32(at + KL_AT_LENGTH);
    if (length < KL_BATCH_MIN - KL_BATCH_PREFIX || length > INT32_MAX - KL_BATCH_PREFIX)
        return KL_ELENGTH;
    return length + KL_BATCH_PREFIX;
}

/* The walk over batches that a client or a leader has sent: find the end of the batch at at[0..left), and its magic.
 * Sets only size and magic, and only with KL_OK.  Kafka: ByteBufferLogInputStream, which differs from the walk over
 * files in the bytes that it ignores at an end and in the magics that it accepts.
 *
 *   KL_OK          a whole batch or message of magic 0, 1 or 2: both are set
 *   KL_ETRUNCATED  fewer bytes than up to the magic, or it does not end within left bytes
 *   KL_ELENGTH     the size is KL_ELENGTH, or that of magic 2 is below KL_BATCH_HEADER
 *   KL_EMAGIC      any other magic
 */
static inline int kl_batch_frame(const uint8_t *at, size_t left, kl_batch_t *out) {
    if (left <= KL_AT_MAGIC)
        return KL_ETRUNCATED;
    int32_t size = kl_batch_size(at);
    int8_t magic = (int8_t)at[KL_AT_MAGIC];
    if (size < 0)
        return KL_ELENGTH;
    if (magic < 0 || magic > 2)
        return KL_EMAGIC;
    if ((size_t)size > left)
        return KL_ETRUNCATED;
    if (magic == 2 && size < KL_BATCH_HEADER)
        return KL_ELENGTH;
    out->size = size;
    out->magic = magic;
    return KL_OK;
}

/* Read the header at at[0..left).  Only KL_BATCH_HEADER bytes need to be there; position is not set.
 * KL_OK | KL_ETRUNCATED (too few bytes for the fields) | KL_ELENGTH (the size is KL_ELENGTH, or below KL_BATCH_HEADER,
 * or count or last_offset_delta negative, or base_offset negative or the next offset past 2^63-1) | KL_ELEGACY (magic 0
 * or 1) | KL_EMAGIC (magic below 0).  With the last two, size and magic ARE set.
 * A magic above 2 is read as 2, as in Kafka's files: the byte is outside the crc, which still has to match.
 */
int kl_batch_header(const uint8_t *at, size_t left, kl_batch_t *out);

/* The walk over batches: read the header of the batch at at, of which at[0..held) is in memory, and which must end in
 * at most left bytes.  A buffer has held == left; of a file only headers need to be read.  Never reads at[held].
 *
 *   KL_OK          a whole batch; the next one is at at + size
 *   KL_ETRUNCATED  it does not end within left bytes: size is set, all other fields too if its magic is 2 or above.  Or
 *                  not even its header is in memory: size is 0
 *   KL_ELEGACY     a whole message of magic 0 or 1: size and magic are set (kl_legacy_header reads the other fields)
 *   KL_ELENGTH     as for kl_batch_header
 *   KL_EMAGIC      the same; size is set, maybe past left
 */
int kl_batch_next(const uint8_t *at, size_t held, size_t left, kl_batch_t *out);

/* Read the fields of the 61 bytes at at without checks; position is not set. */
void kl_batch_fields(const uint8_t *at, kl_batch_t *out);

/* Write the 61-byte header of *b, in which the caller has set crc and size. */
void kl_batch_header_store(uint8_t *at, const kl_batch_t *b);

/* CRC-32C over bytes 21 .. size of the batch at at. */
uint32_t kl_batch_crc(const uint8_t *at, int32_t size);

/* Write the header of *b before its payload, with the checksum of both, which *b gets, too. The caller has set size. */
void kl_batch_seal(uint8_t *at, kl_batch_t *b);

/* The checksum of a batch, computed during a walk over its records.  It stays slightly ahead of the walk, so that each
 * byte is loaded from memory only once. */
typedef struct {
    const uint8_t *at; /* the sum covers the bytes before this */
    const uint8_t *end;
    size_t step; /* how far it advances at a time */
    uint32_t crc;
} kl_sum_t;

/* Begin with the batch of size bytes at at; its records may be walked before the checksum is known to match. */
static inline kl_sum_t kl_sum_begin(const uint8_t *at, int32_t size, size_t step) {
    return (kl_sum_t){.at = at + KL_BATCH_CRC_FROM, .end = at + size, .step = step};
}

/* Advance the checksum past at, or to the end. */
void kl_sum_reach(kl_sum_t *sum, const uint8_t *at);

/* Advance the checksum to the end and return it: the same as kl_batch_crc. */
uint32_t kl_sum_end(kl_sum_t *sum);

/* One record of an uncompressed payload.  key and value are NULL for null; headers is the first header's first byte;
 * header lengths have been checked. */
typedef struct {
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers;
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_size;     /* -1 for null */
    int32_t value_size;   /* -1 for null */
    int32_t header_count;
} kl_record_t;

/* Read the record at at[0..left) and check every length in it; *used is its whole size.  Any negative key or value
 * length is null, as in Kafka, and is returned as -1.
 * KL_OK | KL_ETRUNCATED (the record continues after at[left]) | KL_EOVERLONG | KL_ELENGTH (a length that its record
 * cannot hold, a negative header count or header key length) | KL_ESLACK (bytes after the last field) */
int kl_record_next(const uint8_t *at, size_t left, kl_record_t *out, size_t *used);

/* One header of a record that kl_record_next has accepted. */
typedef struct {
    const uint8_t *key;
    const uint8_t *value; /* NULL for null */
    int32_t key_size;
    int32_t value_size;   /* -1 for null */
} kl_record_header_t;
int kl_record_header_next(const uint8_t *at, size_t left, kl_record_header_t *out, size_t *used);

/* Walk a whole payload of count records: every field, and no bytes left over.  With count 0 no check, as in Kafka.
 * last_offset_delta: the offset deltas must rise from record to record, inside 0 .. last_offset_delta.  Verification
 * checks this; readers do not, as in Kafka, and pass a negative number.
 * KL_OK, or the first failure, with *bad set to the number of the record that failed: any code of kl_record_next,
 * KL_ECOUNT (the bytes end before the last record begins) or KL_ESLACK (bytes after the last record, *bad == count).
 * KL_EORDER only if there is no other failure anywhere: offsets matter only in records that are valid otherwise.
 */
int kl_payload_validate(const uint8_t *payload, size_t size, int32_t count, int32_t last_offset_delta, int32_t *bad);

/* The same, with sum computed during the walk; if kl_sum_end shows a wrong checksum, the result is meaningless. */
int kl_payload_validate_summed(const uint8_t *payload, size_t size, int32_t count, int32_t last_offset_delta,
                               kl_sum_t *sum, int32_t *bad);

#endif
