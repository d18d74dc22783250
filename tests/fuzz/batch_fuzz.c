/* A buffer of batches: header, framing, and the walk over each payload, record by record and as a whole.
 *
 * Checksums are not required: a fuzzer cannot guess them, and an attacker can compute them.
 */
#include "fuzz.h"

#include "batch.h"
#include "status.h"

static int inside(const uint8_t *part, int32_t part_size, const uint8_t *at, size_t size) {
    return part_size < 0 ? part == NULL : part >= at && (size_t)(part - at) <= size && (size_t)part_size <= size - (size_t)(part - at);
}

/* Every record and header of a payload, until one is refused; returns the status of the walk. */
static int walk(const uint8_t *payload, size_t size, int32_t count, int32_t *bad) {
    size_t at = 0;
    for (int32_t i = 0; i < count; i++) {
        kl_record_t r;
        size_t used;
        *bad = i;
        int status = at == size ? KL_ECOUNT : kl_record_next(payload + at, size - at, &r, &used);
        if (status != KL_OK)
            return status;
        CLAIM(used >= KL_RECORD_MIN && used <= size - at);
        CLAIM(inside(r.key, r.key_size, payload + at, used));
        CLAIM(inside(r.value, r.value_size, payload + at, used));
        CLAIM(r.key_size >= -1 && r.value_size >= -1 && r.header_count >= 0);
        const uint8_t *end = payload + at + used;
        const uint8_t *next = r.headers;
        for (int32_t h = 0; h < r.header_count; h++) {
            kl_record_header_t header;
            size_t header_used;
            CLAIM(kl_record_header_next(next, (size_t)(end - next), &header, &header_used) == KL_OK);
            CLAIM(inside(header.key, header.key_size, next, header_used) && header.key_size >= 0);
            CLAIM(inside(header.value, header.value_size, next, header_used));
            next += header_used;
        }
        CLAIM(r.header_count == 0 || next == end);
        at += used;
    }
    *bad = count;
    return count == 0 || at == size ? KL_OK : KL_ESLACK;
}

static void payload(const uint8_t *at, size_t size, const kl_batch_t *b) {
    /* The check that callers make before the walk: no more records than the bytes can hold. */
    int32_t count = b->count;
    if ((size_t)count > size / KL_RECORD_MIN)
        return;
    int32_t bad = -1, where = -1;
    int plain = walk(at, size, count, &where);
    int whole = kl_payload_validate(at, size, count, -1, &bad);
    CLAIM(whole == plain);
    CLAIM(whole == KL_OK || bad == where);
    bad = -1;
    int order = kl_payload_validate(at, size, count, b->last_offset_delta, &bad);
    CLAIM(order == whole || (whole == KL_OK && order == KL_EORDER));
}

/* The walk over a file holds no more than a header of each batch: the same result, and the same batch without a limit.
 * */
static void from_a_file(const uint8_t *at, size_t left, int status, const kl_batch_t *b) {
    size_t held = left < KL_BATCH_HEADER ? left : KL_BATCH_HEADER;
    uint8_t *header = fuzz_exact(at, held);
    kl_batch_t again;
    memset(&again, 0x5a, sizeof again);
    CLAIM(kl_batch_next(header, held, left, &again) == status);
    CLAIM(again.size == b->size && (b->size == 0 || again.magic == b->magic));
    int unlimited = kl_batch_next(header, held, SIZE_MAX, &again);
    if (status == KL_ETRUNCATED && b->size != 0)
        CLAIM(unlimited == (b->magic < 2 ? KL_ELEGACY : KL_OK) && again.size == b->size);
    else
        CLAIM(unlimited == status);
    free(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = fuzz_exact(data, size);
    size_t at = 0;
    while (at < size) {
        kl_batch_t b;
        memset(&b, 0x5a, sizeof b);
        int status = kl_batch_next(copy + at, size - at, size - at, &b);
        from_a_file(copy + at, size - at, status, &b);
        if (status == KL_ELEGACY || status == KL_EMAGIC)
            CLAIM(b.magic < 2 && b.size >= KL_BATCH_MIN && (status == KL_ELEGACY) == (b.magic >= 0));
        if (status == KL_ELEGACY) {
            CLAIM((size_t)b.size <= size - at);
            at += (size_t)b.size;
            continue;
        }
        int cut = status == KL_ETRUNCATED && b.size != 0 && b.magic >= 2;
        CLAIM(!cut || (size_t)b.size > size - at);
        if (status != KL_OK && !cut)
            break;
        CLAIM(b.size >= KL_BATCH_HEADER && b.count >= 0 && b.last_offset_delta >= 0 && b.base_offset >= 0);
        CLAIM(kl_batch_last_offset(&b) >= b.base_offset && kl_batch_last_offset(&b) < INT64_MAX);
        uint8_t again[KL_BATCH_HEADER];
        kl_batch_header_store(again, &b);
        CLAIM(memcmp(again, copy + at, KL_BATCH_HEADER) == 0);
        if (cut) {
            payload(copy + at + KL_BATCH_HEADER, size - at - KL_BATCH_HEADER, &b);
            break;
        }
        (void)kl_batch_crc(copy + at, b.size);
        payload(copy + at + KL_BATCH_HEADER, (size_t)b.size - KL_BATCH_HEADER, &b);
        at += (size_t)b.size;
    }
    free(copy);
    return 0;
}
