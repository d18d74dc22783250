/* See batch.h for the contract of every function here. */
#include "batch.h"

#include "bytes.h"
#include "crc32c.h"
#include "scan.h"
#include "status.h"
#include "varint.h"

enum {
    BYTES_MIN = 18, /* fewer bytes at an end are ignored: up to the magic and one more, as in Kafka's files */
    HEADER_MIN = 2, /* of a record header: two lengths of one byte */
};

void kl_batch_fields(const uint8_t *at, kl_batch_t *out) {
    out->base_offset = (int64_t)kl_load_u64(at);
    out->base_timestamp = (int64_t)kl_load_u64(at + KL_AT_BASE_TIMESTAMP);
    out->max_timestamp = (int64_t)kl_load_u64(at + KL_AT_MAX_TIMESTAMP);
    out->producer_id = (int64_t)kl_load_u64(at + KL_AT_PRODUCER_ID);
    out->size = (int32_t)(kl_load_u32(at + KL_AT_LENGTH) + KL_BATCH_PREFIX);
    out->leader_epoch = (int32_t)kl_load_u32(at + KL_AT_LEADER_EPOCH);
    out->last_offset_delta = (int32_t)kl_load_u32(at + KL_AT_LAST_OFFSET_DELTA);
    out->base_sequence = (int32_t)kl_load_u32(at + KL_AT_BASE_SEQUENCE);
    out->count = (int32_t)kl_load_u32(at + KL_AT_COUNT);
    out->crc = kl_load_u32(at + KL_AT_CRC);
    out->attributes = (int16_t)kl_load_u16(at + KL_AT_ATTRIBUTES);
    out->producer_epoch = (int16_t)kl_load_u16(at + KL_AT_PRODUCER_EPOCH);
    out->magic = (int8_t)at[KL_AT_MAGIC];
}

int kl_batch_header(const uint8_t *at, size_t left, kl_batch_t *out) {
    if (left < BYTES_MIN)
        return KL_ETRUNCATED;
    int32_t size = kl_batch_size(at);
    int8_t magic = (int8_t)at[KL_AT_MAGIC];
    if (size < 0)
        return KL_ELENGTH;
    if (magic < 2) {
        out->size = size;
        out->magic = magic;
        return magic < 0 ? KL_EMAGIC : KL_ELEGACY;
    }
    if (size < KL_BATCH_HEADER)
        return KL_ELENGTH;
    if (left < KL_BATCH_HEADER)
        return KL_ETRUNCATED;
    int64_t base_offset = (int64_t)kl_load_u64(at);
    int32_t last_offset_delta = (int32_t)kl_load_u32(at + KL_AT_LAST_OFFSET_DELTA);
    int32_t count = (int32_t)kl_load_u32(at + KL_AT_COUNT);
    /* next_offset is last_offset + 1 and must be representable too: hence >= */
    if (count < 0 || last_offset_delta < 0 || base_offset < 0 || base_offset >= INT64_MAX - last_offset_delta)
        return KL_ELENGTH;
    kl_batch_fields(at, out);
    /* What has been checked: in a shared mapping bytes may change between two reads. */
    out->base_offset = base_offset;
    out->size = size;
    out->last_offset_delta = last_offset_delta;
    out->count = count;
    out->magic = magic;
    return KL_OK;
}

int kl_batch_next(const uint8_t *at, size_t held, size_t left, kl_batch_t *out) {
    out->size = 0;
    int status = kl_batch_header(at, held < left ? held : left, out);
    if ((status == KL_OK || status == KL_ELEGACY) && (size_t)out->size > left)
        return KL_ETRUNCATED;
    return status;
}

void kl_batch_header_store(uint8_t *at, const kl_batch_t *b) {
    kl_store_u64(at, (uint64_t)b->base_offset);
    kl_store_u32(at + KL_AT_LENGTH, (uint32_t)(b->size - KL_BATCH_PREFIX));
    kl_store_u32(at + KL_AT_LEADER_EPOCH, (uint32_t)b->leader_epoch);
    at[KL_AT_MAGIC] = (uint8_t)b->magic;
    kl_store_u32(at + KL_AT_CRC, b->crc);
    kl_store_u16(at + KL_AT_ATTRIBUTES, (uint16_t)b->attributes);
    kl_store_u32(at + KL_AT_LAST_OFFSET_DELTA, (uint32_t)b->last_offset_delta);
    kl_store_u64(at + KL_AT_BASE_TIMESTAMP, (uint64_t)b->base_timestamp);
    kl_store_u64(at + KL_AT_MAX_TIMESTAMP, (uint64_t)b->max_timestamp);
    kl_store_u64(at + KL_AT_PRODUCER_ID, (uint64_t)b->producer_id);
    kl_store_u16(at + KL_AT_PRODUCER_EPOCH, (uint16_t)b->producer_epoch);
    kl_store_u32(at + KL_AT_BASE_SEQUENCE, (uint32_t)b->base_sequence);
    kl_store_u32(at + KL_AT_COUNT, (uint32_t)b->count);
}

void kl_sum_reach(kl_sum_t *sum, const uint8_t *at) {
    while (sum->at <= at && sum->at != sum->end) {
        size_t left = (size_t)(sum->end - sum->at), step = left < sum->step ? left : sum->step;
        sum->crc = kl_crc32c(sum->crc, sum->at, step);
        sum->at += step;
    }
}

uint32_t kl_sum_end(kl_sum_t *sum) {
    sum->crc = kl_crc32c(sum->crc, sum->at, (size_t)(sum->end - sum->at));
    sum->at = sum->end;
    return sum->crc;
}

uint32_t kl_batch_crc(const uint8_t *at, int32_t size) {
    return kl_crc32c(0, at + KL_BATCH_CRC_FROM, (size_t)size - KL_BATCH_CRC_FROM);
}

void kl_batch_seal(uint8_t *at, kl_batch_t *b) {
    kl_batch_header_store(at, b);
    b->crc = kl_batch_crc(at, b->size);
    kl_store_u32(at + KL_AT_CRC, b->crc);
}

/* Read a length and that many bytes after it.  Any negative length is null when nullable, as in Kafka; *size is then
 * -1. Inside a record, whose own length is known to fit, running out of bytes means that a length is wrong. */
static inline int sized_bytes(const uint8_t *at, size_t left, int nullable, const uint8_t **bytes, int32_t *size,
                              size_t *used) {
    int32_t n;
    size_t k;
    int status = kl_varint_decode(at, left, &n, &k);
    if (status != KL_OK)
        return status == KL_ETRUNCATED ? KL_ELENGTH : status;
    if (n < 0) {
        if (!nullable)
            return KL_ELENGTH;
        *bytes = NULL;
        *size = -1;
        *used = k;
        return KL_OK;
    }
    if ((size_t)n > left - k)
        return KL_ELENGTH;
    *bytes = at + k;
    *size = n;
    *used = k + (size_t)n;
    return KL_OK;
}

int kl_record_header_next(const uint8_t *at, size_t left, kl_record_header_t *out, size_t *used) {
    kl_record_header_t header;
    size_t first, second;
    int status = sized_bytes(at, left, 0, &header.key, &header.key_size, &first);
    if (status != KL_OK)
        return status;
    status = sized_bytes(at + first, left - first, 1, &header.value, &header.value_size, &second);
    if (status != KL_OK)
        return status;
    *out = header;
    *used = first + second;
    return KL_OK;
}

int kl_record_next(const uint8_t *at, size_t left, kl_record_t *out, size_t *used) {
    kl_record_t record;
    int32_t length;
    size_t k;
    int status = kl_varint_decode(at, left, &length, &k);
    if (status != KL_OK)
        return status;
    if (length < KL_RECORD_MIN - 1)
        return KL_ELENGTH;
    if ((size_t)length > left - k)
        return KL_ETRUNCATED;
    size_t whole = k + (size_t)length;

    const uint8_t *from = at + k + 1; /* after the record's attributes, which are not used */
    left = (size_t)length - 1;
    status = kl_varlong_decode(from, left, &record.timestamp_delta, &k);
    if (status != KL_OK)
        return status == KL_ETRUNCATED ? KL_ELENGTH : status;
    from += k, left -= k;
    status = kl_varint_decode(from, left, &record.offset_delta, &k);
    if (status != KL_OK)
        return status == KL_ETRUNCATED ? KL_ELENGTH : status;
    from += k, left -= k;
    status = sized_bytes(from, left, 1, &record.key, &record.key_size, &k);
    if (status != KL_OK)
        return status;
    from += k, left -= k;
    status = sized_bytes(from, left, 1, &record.value, &record.value_size, &k);
    if (status != KL_OK)
        return status;
    from += k, left -= k;
    status = kl_varint_decode(from, left, &record.header_count, &k);
    if (status != KL_OK)
        return status == KL_ETRUNCATED ? KL_ELENGTH : status;
    from += k, left -= k;
    if (record.header_count < 0 || (size_t)record.header_count > left / HEADER_MIN)
        return KL_ELENGTH;
    record.headers = from;
    for (int32_t i = 0; i < record.header_count; i++) {
        kl_record_header_t header;
        status = kl_record_header_next(from, left, &header, &k);
        if (status != KL_OK)
            return status;
        from += k, left -= k;
    }
    if (left != 0)
        return KL_ESLACK;
    *out = record;
    *used = whole;
    return KL_OK;
}

/* Inlined, so that callers without a sum do not test for it at each record. */
__attribute__((always_inline)) static inline int validate(const uint8_t *payload, size_t size, int32_t count,
                                                          int32_t last_offset_delta, kl_sum_t *sum, int32_t *bad) {
    const uint8_t *at = payload, *end = payload + size;
    int32_t before = -1, misplaced = -1;
    if (count == 0) /* the cleaner has removed the records; Kafka does not check the bytes after the header */
        return KL_OK;
    for (int32_t i = 0; i < count; i++) {
        kl_record_t record;
        if (sum != NULL && at >= sum->at)
            kl_sum_reach(sum, at);
        int status;
        const uint8_t *after = kl_record_scan(at, end, &record, &status);
        if (after == NULL) {
            *bad = i;
            return status;
        }
        if ((record.offset_delta <= before || record.offset_delta > last_offset_delta) && misplaced < 0)
            misplaced = i;
        before = record.offset_delta;
        at = after;
    }
    if (at != end) {
        *bad = count;
        return KL_ESLACK;
    }
    if (last_offset_delta >= 0 && misplaced >= 0) {
        *bad = misplaced;
        return KL_EORDER;
    }
    return KL_OK;
}

int kl_payload_validate(const uint8_t *payload, size_t size, int32_t count, int32_t last_offset_delta, int32_t *bad) {
    return validate(payload, size, count, last_offset_delta, NULL, bad);
}

int kl_payload_validate_summed(const uint8_t *payload, size_t size, int32_t count, int32_t last_offset_delta,
                               kl_sum_t *sum, int32_t *bad) {
    return validate(payload, size, count, last_offset_delta, sum, bad);
}
