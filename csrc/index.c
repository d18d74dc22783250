#include "index.h"

#include "bytes.h"

#include <limits.h>

static inline int32_t offset_at(const uint8_t *e, int32_t i) {
    return (int32_t)kl_load_u32(e + (size_t)i * KL_OFFSET_ENTRY);
}

static inline int32_t position_at(const uint8_t *e, int32_t i) {
    return (int32_t)kl_load_u32(e + (size_t)i * KL_OFFSET_ENTRY + 4);
}

static inline int64_t time_at(const uint8_t *e, int32_t i) {
    return (int64_t)kl_load_u64(e + (size_t)i * KL_TIME_ENTRY);
}

static inline int32_t time_offset_at(const uint8_t *e, int32_t i) {
    return (int32_t)kl_load_u32(e + (size_t)i * KL_TIME_ENTRY + 8);
}

int32_t kl_offset_index_valid(const uint8_t *e, int32_t n) {
    int32_t last_offset = -1, last_position = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t offset = offset_at(e, i), position = position_at(e, i);
        if (offset <= last_offset || position <= last_position)
            return i;
        last_offset = offset;
        last_position = position;
    }
    return n;
}

int32_t kl_time_index_valid(const uint8_t *e, int32_t n) {
    int64_t last_time = -1;
    int32_t last_offset = 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t time = time_at(e, i);
        int32_t offset = time_offset_at(e, i);
        /* A first entry of timestamp 0 at relative offset 0 is valid but looks like an unused slot: ignoring it costs a
         * longer scan; accepting a zero tail as entries would date the segment to 1970. */
        if (time <= last_time || offset < last_offset || (time == 0 && offset == 0))
            return i;
        last_time = time;
        last_offset = offset;
    }
    return n;
}

/* ---- look-ups ------------------------------------------------------------------------------------------------------
 *
 * Keys of an index rise almost evenly: equal batches give a straight line.  So the first probe interpolates between the
 * first and the last key, and from there the search gallops: 1, 2, 4, ... slots, until the target is between two
 * probes; a binary search then finds it.  Even keys take two or three probes in one cache line; for any keys it takes
 * at most about twice as many probes as a binary search.  One body for three indexes, inlined with its key.
 */
typedef int64_t (*kl_key_fn)(const uint8_t *e, int32_t i);

static inline int64_t offset_key(const uint8_t *e, int32_t i) { return offset_at(e, i); }
static inline int64_t position_key(const uint8_t *e, int32_t i) { return position_at(e, i); }
static inline int64_t time_key(const uint8_t *e, int32_t i) { return time_at(e, i); }

/* The interpolated slot of a target, first <= target < last: never past n - 2, however the division rounds. */
static inline int32_t guess(int64_t first, int64_t last, int32_t n, int64_t target) {
    double part = (double)((uint64_t)target - (uint64_t)first) / (double)((uint64_t)last - (uint64_t)first);
    int32_t slot = (int32_t)(part * (double)(n - 1));
    return slot < n - 2 ? slot : n - 2;
}

/* Largest slot whose key <= target, or -1. */
static inline __attribute__((always_inline)) int32_t floor_by(kl_key_fn key, const uint8_t *e, int32_t n,
                                                              int64_t target) {
    if (n <= 0)
        return -1;
    int64_t first = key(e, 0), last = key(e, n - 1);
    if (target >= last)
        return n - 1;
    if (target < first)
        return -1;
    /* From here on key(low) <= target < key(high). */
    int32_t low = 0, high = n - 1, at = guess(first, last, n, target);
    int64_t step = 1;
    if (key(e, at) <= target) {
        low = at;
        while (step < high - low && key(e, low + (int32_t)step) <= target) {
            low += (int32_t)step;
            step *= 2;
        }
        if (step < high - low)
            high = low + (int32_t)step;
    } else {
        high = at;
        while (step < high - low && key(e, high - (int32_t)step) > target) {
            high -= (int32_t)step;
            step *= 2;
        }
        if (step < high - low)
            low = high - (int32_t)step;
    }
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (key(e, middle) <= target)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int32_t kl_offset_index_floor(const uint8_t *e, int32_t n, int32_t target) {
    return floor_by(offset_key, e, n, target);
}

int32_t kl_offset_index_position(const uint8_t *e, int32_t n, int32_t target) {
    return floor_by(position_key, e, n, (int64_t)target - 1) + 1;
}

int32_t kl_time_index_floor(const uint8_t *e, int32_t n, int64_t target) { return floor_by(time_key, e, n, target); }

void kl_indexer_init(kl_indexer_t *x, int64_t base_offset, int32_t interval) {
    *x = (kl_indexer_t){
        .base_offset = base_offset,
        .interval = interval,
        .max_timestamp = -1,
        .max_timestamp_offset = base_offset,
        .last_time = -1,
        .last_time_offset = base_offset,
        .first_timestamp = INT64_MIN,
        .last_relative = -1,
    };
}

static void time_append(kl_indexer_t *x, int32_t capacity) {
    int64_t relative = x->max_timestamp_offset - x->base_offset;
    if (x->max_timestamp <= x->last_time || x->time_count >= capacity || relative < 0 || relative > INT32_MAX)
        return;
    if (x->time_entries) {
        uint8_t *at = x->time_entries + (size_t)x->time_count * KL_TIME_ENTRY;
        kl_store_u64(at, (uint64_t)x->max_timestamp);
        kl_store_u32(at + 8, (uint32_t)relative);
    }
    x->time_count++;
    x->last_time = x->max_timestamp;
    x->last_time_offset = x->max_timestamp_offset;
}

void kl_indexer_add(kl_indexer_t *x, const kl_batch_t *b, int64_t position) {
    int64_t last_offset = kl_batch_last_offset(b);
    if (x->first_timestamp == INT64_MIN)
        x->first_timestamp = b->max_timestamp < 0 ? -1 : b->max_timestamp;
    if (b->max_timestamp > x->max_timestamp) {
        x->max_timestamp = b->max_timestamp;
        x->max_timestamp_offset = last_offset;
    }
    if (x->bytes_since_entry > x->interval) {
        int64_t relative = last_offset - x->base_offset;
        if (x->offset_count < x->offset_capacity && relative > x->last_relative && relative <= INT32_MAX &&
            position <= INT32_MAX) {
            if (x->offset_entries) {
                uint8_t *at = x->offset_entries + (size_t)x->offset_count * KL_OFFSET_ENTRY;
                kl_store_u32(at, (uint32_t)relative);
                kl_store_u32(at + 4, (uint32_t)position);
            }
            x->offset_count++;
            x->last_relative = (int32_t)relative;
        }
        time_append(x, x->time_capacity - 1);
        x->bytes_since_entry = 0;
    }
    x->bytes_since_entry += b->size;
}

int kl_indexer_close(kl_indexer_t *x) {
    int32_t before = x->time_count;
    time_append(x, x->time_capacity);
    return x->time_count != before;
}

int kl_indexer_must_roll(const kl_indexer_t *x, const kl_batch_t *b, int64_t size, int64_t segment_bytes,
                         int64_t segment_ms, int64_t waited_ms) {
    int64_t relative = kl_batch_last_offset(b) - x->base_offset;
    if (relative < 0 || relative > INT32_MAX)
        return 1;
    if (size == 0) /* nothing to close, unless the indexes have no space; a larger batch is the caller's error */
        return x->offset_capacity == 0 || x->time_capacity <= 1;
    if (size > segment_bytes - b->size)
        return 1;
    int64_t waited = waited_ms;
    if (x->first_timestamp >= 0 && __builtin_sub_overflow(b->max_timestamp, x->first_timestamp, &waited))
        waited = b->max_timestamp < 0 ? INT64_MIN : INT64_MAX;
    if (waited > segment_ms)
        return 1;
    return x->offset_count >= x->offset_capacity || x->time_count >= x->time_capacity - 1;
}

int kl_indexer_has_space(const kl_indexer_t *x, const kl_batch_t *batches, int32_t n, int64_t size) {
    if (size == 0) /* nothing to close */
        return 1;
    if (n <= x->offset_capacity - x->offset_count && n <= x->time_capacity - 1 - x->time_count)
        return 1; /* no dry run: a batch has one entry at most */
    kl_indexer_t dry_run = *x;
    dry_run.offset_entries = dry_run.time_entries = 0;
    dry_run.offset_capacity = dry_run.time_capacity = INT32_MAX;
    for (int32_t i = 0; i < n; i++) {
        kl_indexer_add(&dry_run, &batches[i], size);
        size += batches[i].size;
    }
    return dry_run.offset_count <= x->offset_capacity && dry_run.time_count < x->time_capacity;
}

int32_t kl_indexer_fit(const kl_indexer_t *x, const kl_batch_t *batches, int32_t n, int64_t size,
                       int64_t segment_bytes, int64_t segment_ms, int64_t waited_ms) {
    if (n == 1) /* no dry run */
        return !kl_indexer_must_roll(x, batches, size, segment_bytes, segment_ms, waited_ms);
    kl_indexer_t dry_run = *x;
    dry_run.offset_entries = dry_run.time_entries = 0;
    for (int32_t i = 0; i < n; i++) {
        if (kl_indexer_must_roll(&dry_run, &batches[i], size, segment_bytes, segment_ms, waited_ms))
            return i;
        kl_indexer_add(&dry_run, &batches[i], size);
        size += batches[i].size;
    }
    return n;
}
