/* Converts messages of magic 0 and 1, Kafka's formats before 0.11, to the payload of the equivalent batch of magic 2.
 *
 *   message := offset:i64 size:i32 crc:u32 magic:i8 attributes:i8 [timestamp:i64, magic 1] key_size:i32 key
 *              value_size:i32 value
 *
 * size counts the bytes after itself; crc is zlib's CRC-32 of all bytes after it.  Any negative size of a key or value
 * is null.  attributes: bits 0 to 2 codec, bit 3 LogAppendTime (magic 1).  A message without a codec is a batch of one
 * record.  One with a codec is a wrapper: its value is the codec stream of whole messages without codec.  Their offsets
 * are absolute in magic 0; in magic 1 they are relative, and the last of them has the wrapper's own offset.
 * Big-endian. Kafka: LegacyRecord, AbstractLegacyRecordBatch.
 */
#ifndef KL_LEGACY_H
#define KL_LEGACY_H

#include <stddef.h>
#include <stdint.h>

#include "batch.h"

enum {
    KL_MESSAGE_PREFIX = KL_BATCH_PREFIX, /* offset and size, which size does not count */
    KL_MESSAGE_AT_CRC = 12,
    KL_MESSAGE_CRC_FROM = KL_AT_MAGIC, /* first byte that the crc covers */
    KL_MESSAGE_AT_ATTRIBUTES = 17,
    KL_MESSAGE_MIN = KL_BATCH_MIN, /* a message of magic 0, key and value null */
    KL_MESSAGE_SIZE_MIN = KL_MESSAGE_MIN - KL_MESSAGE_PREFIX,
};

typedef struct {
    const uint8_t *key;   /* NULL for null */
    const uint8_t *value;
    int64_t offset;
    int64_t timestamp;    /* -1 in magic 0 */
    int32_t key_size;     /* -1 for null */
    int32_t value_size;
    int32_t size;         /* of the whole message, prefix too */
    int32_t slack;        /* bytes after the value, which Kafka ignores */
    uint32_t crc;
    int8_t magic;
    uint8_t attributes;
} kl_message_t;

/* Read the message at at[0..left) and check every length in it.
 * KL_OK | KL_ETRUNCATED (it continues after at[left]) | KL_EMAGIC (neither 0 nor 1) | KL_ELENGTH */
int kl_message_next(const uint8_t *at, size_t left, kl_message_t *out);

/* Read the outer fields of the message at at[0..left) as a batch header, for walks over a file, which do not
 * decompress; its first 26 bytes are enough.  base_offset is the message's own offset with a delta of 0: for a wrapper
 * that is its last record's, and count is -1, unknown.  The timestamp of a wrapper is the largest in it.
 * KL_OK | KL_ETRUNCATED (too few bytes for the fields) | KL_EMAGIC (neither 0 nor 1) | KL_ELENGTH (a size too small for
 * the format, or a negative offset, or the largest possible one) */
int kl_legacy_header(const uint8_t *at, size_t left, kl_batch_t *out);

/* Read the header at at[0..left) of a batch of any magic, which may end after left: by kl_batch_header, or for a magic
 * below 2 by kl_legacy_header. */
static inline int kl_outer_header(const uint8_t *at, size_t left, kl_batch_t *out) {
    int status = kl_batch_header(at, left, out);
    return status == KL_ELEGACY || status == KL_EMAGIC ? kl_legacy_header(at, left, out) : status;
}

/* CRC-32 of bytes 16 .. size of the message at at. */
uint32_t kl_message_crc(const uint8_t *at, int32_t size);

/* The records of a set as a batch of magic 2. */
typedef struct {
    int64_t base_offset;      /* of the first record */
    int64_t last_offset;      /* of the set: the wrapper's if there is one, not at 0 */
    int64_t base_timestamp;   /* of the first record */
    int64_t shift;            /* added to an inner offset to make it absolute */
    int64_t payload_size;
    int32_t count;
    int32_t bad_crc;          /* number of the first message whose checksum does not match, -1 for none */
    int32_t ignored_bytes;    /* 1: Kafka's reader ignores bytes after a value or after the last whole message */
} kl_legacy_t;

/* Check every message of a set of size bytes: the decompressed value of *wrapper or, if wrapper is NULL, one message
 * itself.  A message cut short at the end is ignored, as in Kafka.  One of a different magic than the wrapper's is
 * accepted: cleaners of Kafka 0.10 left some (KAFKA-4298).  The wrapper's magic decides if offsets are relative.
 * KL_OK, or the first failure with *bad set to the number of its message: any code of kl_message_next, KL_ECODEC (a
 * message inside a wrapper has a codec), KL_ECOUNT (no message), KL_EORDER (offsets impossible in a batch: negative,
 * more than 2^31-1 apart, or the wrapper's below that of its first or, in magic 1, its last message). */
int kl_legacy_measure(const uint8_t *set, size_t size, const kl_message_t *wrapper, kl_legacy_t *out, int32_t *bad);

/* Write the records of that set to to, which has space for shape->payload_size bytes.
 * KL_OK | KL_ELENGTH: the bytes have changed since they were measured, as may happen in a shared mapping. */
int kl_legacy_write(const uint8_t *set, size_t size, const kl_message_t *wrapper, const kl_legacy_t *shape, uint8_t *to);

#endif
