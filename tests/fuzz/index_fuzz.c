/* Arbitrary index files, and an indexer with arbitrary batches.
 *
 *   input := choices:24 entry*      entries of 8 bytes for one index, of 12 for the other, over the same bytes
 */
#include "fuzz.h"

#include "bytes.h"
#include "index.h"
#include "status.h"

enum { SEGMENT_BYTES = 1 << 20, BATCH = 33 };

static int32_t offset_of(const uint8_t *e, int32_t i) { return (int32_t)kl_load_u32(e + 8 * i); }
static int32_t position_of(const uint8_t *e, int32_t i) { return (int32_t)kl_load_u32(e + 8 * i + 4); }
static int64_t time_of(const uint8_t *e, int32_t i) { return (int64_t)kl_load_u64(e + 12 * i); }

/* The searches compared with a linear scan from the start. */
static void offsets(const uint8_t *data, size_t size, int32_t target) {
    uint8_t *e = fuzz_exact(data, size / 8 * 8);
    int32_t n = (int32_t)(size / 8);
    int32_t sound = kl_offset_index_valid(e, n);
    CLAIM(sound >= 0 && sound <= n);
    for (int32_t i = 1; i < sound; i++)
        CLAIM(offset_of(e, i - 1) < offset_of(e, i) && position_of(e, i - 1) < position_of(e, i));
    int32_t floor = -1, position = 0;
    while (floor + 1 < sound && offset_of(e, floor + 1) <= target)
        floor++;
    while (position < sound && position_of(e, position) < target)
        position++;
    CLAIM(kl_offset_index_floor(e, sound, target) == floor);
    CLAIM(kl_offset_index_position(e, sound, target) == position);
    /* Entries in no order: any slot is a valid result, an out-of-bounds read is not. */
    floor = kl_offset_index_floor(e, n, target);
    position = kl_offset_index_position(e, n, target);
    CLAIM(floor >= -1 && floor < n && position >= 0 && position <= n);
    free(e);
}

static void times(const uint8_t *data, size_t size, int64_t target) {
    uint8_t *e = fuzz_exact(data, size / 12 * 12);
    int32_t n = (int32_t)(size / 12);
    int32_t sound = kl_time_index_valid(e, n);
    CLAIM(sound >= 0 && sound <= n);
    int32_t floor = -1;
    while (floor + 1 < sound && time_of(e, floor + 1) <= target)
        floor++;
    CLAIM(kl_time_index_floor(e, sound, target) == floor);
    floor = kl_time_index_floor(e, n, target);
    CLAIM(floor >= -1 && floor < n);
    free(e);
}

/* Batches from the input, as far as they fit; then a reader accepts the files. */
static void indexer(const uint8_t *data, size_t size, const uint8_t *choices) {
    kl_indexer_t x;
    int64_t base = (int64_t)(kl_load_u64(choices) >> 1);
    kl_indexer_init(&x, base, choices[16]);
    x.offset_capacity = choices[17] % 8;
    x.time_capacity = 1 + choices[18] % 8;
    x.offset_entries = calloc((size_t)x.offset_capacity + (x.offset_capacity == 0), KL_OFFSET_ENTRY);
    x.time_entries = calloc((size_t)x.time_capacity, KL_TIME_ENTRY);
    CLAIM(x.offset_entries != NULL && x.time_entries != NULL);
    int64_t position = 0, next = base;
    for (; size >= BATCH; data += BATCH, size -= BATCH) {
        kl_batch_t b = {
            .base_offset = next,
            .last_offset_delta = (int32_t)(kl_load_u32(data) >> 1),
            .max_timestamp = (int64_t)kl_load_u64(data + 4),
            .size = KL_BATCH_HEADER + data[12] * 16,
        };
        if (next >= INT64_MAX - b.last_offset_delta)
            break;
        int64_t segment_ms = (int64_t)kl_load_u64(data + 13), waited_ms = (int64_t)kl_load_u64(data + 21);
        int roll = kl_indexer_must_roll(&x, &b, position, SEGMENT_BYTES, segment_ms, waited_ms);
        CLAIM(kl_indexer_fit(&x, &b, 1, position, SEGMENT_BYTES, segment_ms, waited_ms) == !roll);
        if (roll)
            break;
        kl_indexer_add(&x, &b, position);
        CLAIM(x.offset_count <= x.offset_capacity && x.time_count < x.time_capacity);
        position += b.size;
        next = kl_batch_last_offset(&b) + 1;
    }
    kl_indexer_close(&x);
    CLAIM(x.time_count <= x.time_capacity);
    CLAIM(kl_offset_index_valid(x.offset_entries, x.offset_count) == x.offset_count);
    /* A first entry of time 0 at relative offset 0 looks like an unused slot. */
    if (x.time_count != 0 && (kl_load_u64(x.time_entries) != 0 || kl_load_u32(x.time_entries + 8) != 0))
        CLAIM(kl_time_index_valid(x.time_entries, x.time_count) == x.time_count);
    free(x.offset_entries);
    free(x.time_entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *choices = fuzz_choices(&data, &size, 24);
    offsets(data, size, (int32_t)kl_load_u32(choices + 19));
    times(data, size, (int64_t)kl_load_u64(choices + 8));
    indexer(data, size, choices);
    return 0;
}
