/* See legacy.h for the contract of every function here. */
#include "legacy.h"

#include "batch.h"
#include "bytes.h"
#include "encode.h"
#include "status.h"

enum {
    AT_TIMESTAMP = 18,
    AT_KEY_0 = 18,
    AT_KEY_1 = 26,
    SIZE_MIN_1 = KL_MESSAGE_SIZE_MIN + AT_KEY_1 - AT_KEY_0,
};

/* Read a size and its bytes from at[0..left); any negative size is null. */
static int take_sized(const uint8_t *at, size_t left, const uint8_t **bytes, int32_t *size, size_t *used) {
    if (left < 4)
        return KL_ELENGTH;
    int32_t n = (int32_t)kl_load_u32(at);
    if (n < 0) {
        *bytes = NULL;
        *size = -1;
        *used = 4;
        return KL_OK;
    }
    if ((size_t)n > left - 4)
        return KL_ELENGTH;
    *bytes = at + 4;
    *size = n;
    *used = 4 + (size_t)n;
    return KL_OK;
}

int kl_message_next(const uint8_t *at, size_t left, kl_message_t *out) {
    kl_message_t m;
    size_t used;
    if (left < KL_MESSAGE_PREFIX)
        return KL_ETRUNCATED;
    int32_t size = (int32_t)kl_load_u32(at + KL_AT_LENGTH);
    if (size < KL_MESSAGE_SIZE_MIN)
        return KL_ELENGTH;
    if ((size_t)size > left - KL_MESSAGE_PREFIX)
        return KL_ETRUNCATED;
    if (size > INT32_MAX - KL_MESSAGE_PREFIX)
        return KL_ELENGTH;
    m.magic = (int8_t)at[KL_AT_MAGIC];
    if (m.magic != 0 && m.magic != 1)
        return KL_EMAGIC;
    if (m.magic == 1 && size < SIZE_MIN_1)
        return KL_ELENGTH;
    m.size = size + KL_MESSAGE_PREFIX;
    m.offset = (int64_t)kl_load_u64(at);
    m.crc = kl_load_u32(at + KL_MESSAGE_AT_CRC);
    m.attributes = at[KL_MESSAGE_AT_ATTRIBUTES];
    m.timestamp = m.magic == 1 ? (int64_t)kl_load_u64(at + AT_TIMESTAMP) : -1;
    size_t from = m.magic == 1 ? AT_KEY_1 : AT_KEY_0;
    int status = take_sized(at + from, (size_t)m.size - from, &m.key, &m.key_size, &used);
    if (status != KL_OK)
        return status;
    from += used;
    status = take_sized(at + from, (size_t)m.size - from, &m.value, &m.value_size, &used);
    if (status != KL_OK)
        return status;
    m.slack = (int32_t)((size_t)m.size - from - used);
    *out = m;
    return KL_OK;
}

int kl_legacy_header(const uint8_t *at, size_t left, kl_batch_t *out) {
    if (left < KL_MESSAGE_MIN)
        return KL_ETRUNCATED;
    int32_t size = (int32_t)kl_load_u32(at + KL_AT_LENGTH);
    int8_t magic = (int8_t)at[KL_AT_MAGIC];
    int64_t offset = (int64_t)kl_load_u64(at);
    if (magic != 0 && magic != 1)
        return KL_EMAGIC;
    if (size < (magic == 1 ? SIZE_MIN_1 : KL_MESSAGE_SIZE_MIN) || size > INT32_MAX - KL_MESSAGE_PREFIX || offset < 0 ||
        offset == INT64_MAX)
        return KL_ELENGTH;
    int16_t attributes = at[KL_MESSAGE_AT_ATTRIBUTES] & (KL_ATTR_CODEC | (magic == 1 ? KL_ATTR_LOG_APPEND_TIME : 0));
    int64_t timestamp = magic == 1 ? (int64_t)kl_load_u64(at + AT_TIMESTAMP) : -1;
    *out = (kl_batch_t){
        .base_offset = offset,
        .base_timestamp = timestamp,
        .max_timestamp = timestamp,
        .producer_id = -1,
        .size = size + KL_MESSAGE_PREFIX,
        .leader_epoch = -1,
        .base_sequence = -1,
        .count = (attributes & KL_ATTR_CODEC) != 0 ? -1 : 1,
        .crc = kl_load_u32(at + KL_MESSAGE_AT_CRC),
        .attributes = attributes,
        .producer_epoch = -1,
        .magic = magic,
    };
    return KL_OK;
}

/* Four bits at a time: slow but small, because old logs are read only once, to be converted. */
uint32_t kl_message_crc(const uint8_t *at, int32_t size) {
    static const uint32_t of_nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    uint32_t crc = 0xffffffff;
    for (int32_t i = KL_MESSAGE_CRC_FROM; i < size; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ of_nibble[crc & 15];
        crc = crc >> 4 ^ of_nibble[crc & 15];
    }
    return ~crc;
}

/* The next message of a set: KL_OK, KL_ETRUNCATED at its end, or if the last message is cut short; or a failure. */
static int inner_next(const uint8_t *set, size_t size, size_t at, const kl_message_t *wrapper, kl_message_t *m) {
    if (at == size)
        return KL_ETRUNCATED;
    int status = kl_message_next(set + at, size - at, m);
    if (status != KL_OK || wrapper == NULL)
        return status;
    return (m->attributes & KL_ATTR_CODEC) != 0 ? KL_ECODEC : KL_OK;
}

/* In a LogAppendTime wrapper all messages have its time. */
static int64_t time_of(const kl_message_t *m, const kl_message_t *wrapper) {
    if (wrapper != NULL && wrapper->magic == 1 && (wrapper->attributes & KL_ATTR_LOG_APPEND_TIME) != 0)
        return wrapper->timestamp;
    return m->timestamp;
}

/* Both deltas wrap in 64 bits, as the reader's sums do. */
static int as_record(const kl_message_t *m, const kl_message_t *wrapper, const kl_legacy_t *shape, kl_record_in_t *r) {
    int64_t offset, delta;
    if (__builtin_add_overflow(m->offset, shape->shift, &offset) ||
        __builtin_sub_overflow(offset, shape->base_offset, &delta) || delta < INT32_MIN || delta > INT32_MAX)
        return KL_EORDER;
    *r = (kl_record_in_t){
        .key = m->key,
        .value = m->value,
        .key_size = m->key_size,
        .value_size = m->value_size,
        .timestamp_delta = (int64_t)((uint64_t)time_of(m, wrapper) - (uint64_t)shape->base_timestamp),
        .offset_delta = (int32_t)delta,
    };
    return KL_OK;
}

/* First pass: check that every message is valid, and find the last one's offset. */
static int check_set(const uint8_t *set, size_t size, const kl_message_t *wrapper, kl_legacy_t *shape, int64_t *last,
                     int32_t *bad) {
    kl_message_t m;
    size_t at = 0;
    int status;
    while ((status = inner_next(set, size, at, wrapper, &m)) == KL_OK) {
        if (wrapper != NULL && shape->bad_crc < 0 && kl_message_crc(set + at, m.size) != m.crc)
            shape->bad_crc = shape->count;
        if (shape->count == 0) {
            shape->base_offset = m.offset;
            shape->base_timestamp = time_of(&m, wrapper);
        }
        if (m.slack != 0)
            shape->ignored_bytes = 1;
        *last = m.offset;
        shape->count++;
        at += (size_t)m.size;
    }
    *bad = shape->count;
    if (status != KL_ETRUNCATED)
        return status;
    if (shape->count == 0)
        return KL_ECOUNT;
    if (at != size)
        shape->ignored_bytes = 1;
    return KL_OK;
}

/* Compute the records' offsets: in magic 1 the last one has the wrapper's offset.  A wrapper at 0 holds produced data
 * without offsets from a broker: its messages keep theirs, and the last one's offset is the set's. */
static int set_offsets(const kl_message_t *wrapper, int64_t last_inner, kl_legacy_t *shape) {
    int numbered = wrapper != NULL && wrapper->offset != 0;
    int64_t last = numbered ? wrapper->offset : last_inner;
    if (numbered && wrapper->magic == 1 &&
        (last < last_inner || __builtin_sub_overflow(last, last_inner, &shape->shift)))
        return KL_EORDER;
    if (__builtin_add_overflow(shape->base_offset, shape->shift, &shape->base_offset) || shape->base_offset < 0)
        return KL_EORDER;
    if (last < shape->base_offset || last - shape->base_offset > INT32_MAX || last == INT64_MAX)
        return KL_EORDER;
    shape->last_offset = last;
    return KL_OK;
}

int kl_legacy_measure(const uint8_t *set, size_t size, const kl_message_t *wrapper, kl_legacy_t *out, int32_t *bad) {
    kl_legacy_t shape = {.bad_crc = -1};
    kl_message_t m;
    kl_record_in_t r;
    int64_t last = 0;
    int status = check_set(set, size, wrapper, &shape, &last, bad);
    if (status != KL_OK)
        return status;
    *bad = 0;
    status = set_offsets(wrapper, last, &shape);
    if (status != KL_OK)
        return status;
    size_t at = 0;
    for (int32_t i = 0; i < shape.count; i++) {
        *bad = i;
        status = inner_next(set, size, at, wrapper, &m);
        if (status == KL_OK)
            status = as_record(&m, wrapper, &shape, &r);
        if (status != KL_OK)
            return status;
        int64_t body = kl_record_body_size(&r);
        if (body > INT32_MAX)
            return KL_ELENGTH;
        shape.payload_size += (int64_t)kl_varlong_size(body) + body;
        at += (size_t)m.size;
    }
    *out = shape;
    return KL_OK;
}

int kl_legacy_write(const uint8_t *set, size_t size, const kl_message_t *wrapper, const kl_legacy_t *shape, uint8_t *to) {
    kl_message_t m;
    kl_record_in_t r;
    size_t at = 0;
    int64_t left = shape->payload_size;
    for (int32_t i = 0; i < shape->count; i++) {
        if (inner_next(set, size, at, wrapper, &m) != KL_OK || as_record(&m, wrapper, shape, &r) != KL_OK)
            return KL_ELENGTH;
        int64_t body = kl_record_body_size(&r);
        int64_t whole = (int64_t)kl_varlong_size(body) + body;
        if (body > INT32_MAX || whole > left)
            return KL_ELENGTH;
        to = kl_record_write(to, &r, body);
        left -= whole;
        at += (size_t)m.size;
    }
    return left == 0 ? KL_OK : KL_ELENGTH;
}
