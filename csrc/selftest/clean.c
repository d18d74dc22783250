/* Both passes of a compaction, and a purge, over valid and damaged batches. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "clean.h"
#include "keymap.h"
#include "scan.h"
#include "status.h"

/* One batch through both passes, in blocks of exact size. Returns the status of the first pass that fails. */
static int clean_once(const kl_batch_t *b, const uint8_t *payload, size_t size, int attributes, int check) {
    kl_batch_t header = *b;
    header.attributes = (int16_t)attributes;
    uint8_t secret[16] = {0};
    kl_keymap_t map;
    void *memory = calloc(1, kl_keymap_bytes(64));
    uint8_t *records = exact_copy(payload, size);
    kl_clean_run_t *runs = malloc(kl_clean_runs_max(b->count) * sizeof *runs);
    if (memory == NULL || runs == NULL)
        abort();
    kl_keyhash_init(&map.hash, secret, -1);
    kl_keymap_init(&map, memory, 64, 60);
    int32_t bad = 0;
    int64_t latest = -1, start = b->base_offset + (int64_t)random_below(3);
    uint64_t words[16] = {0}, marked[1] = {0};
    kl_keymap_track_stale(&map, words, marked, start, 1 + (int64_t)random_below(16 * 64));
    int status = kl_clean_put_keys(&map, &header, records, size, start, &latest, &bad);
    kl_clean_rules_t rules = {.map = &map, .latest_offset = b->base_offset + (int64_t)random_below((size_t)b->count + 1) - 1,
                              .now = 1700000000000, .new_horizon = 1700000000000 + 86400000,
                              .keep_legacy_tombstones = 1};
    kl_cleaned_t cleaned, again = {0};
    int all = random_below(8) == 0, marker_done = random_below(8) == 0;
    if (status != KL_OK) /* stale offsets are known only for batches that have been noted as a whole */
        kl_keymap_untrack_stale(&map);
    int second = kl_clean_choose(&rules, &header, records, size, all, marker_done, runs, &cleaned, &bad);
    /* Choosing by stale offsets gives the same result as looking for each key. */
    kl_clean_run_t *others = malloc(kl_clean_runs_max(b->count) * sizeof *others);
    if (others == NULL)
        abort();
    kl_prediction_t predicted = kl_clean_predict(&rules, &header);
    kl_keymap_untrack_stale(&map);
    CHECK(kl_clean_choose(&rules, &header, records, size, all, marker_done, others, &again, &bad) == second);
    if (second == KL_OK) {
        CHECK(again.count == cleaned.count && again.keyless == cleaned.keyless && again.runs == cleaned.runs);
        CHECK(predicted != KL_PREDICT_EMPTY || all || cleaned.count == 0);
        CHECK(predicted != KL_PREDICT_WHOLE || marker_done || cleaned.whole);
        CHECK(cleaned.count == 0 || memcmp(&again, &cleaned, sizeof again) == 0);
        for (int32_t i = 0; i < again.runs; i++)
            CHECK(others[i].from == runs[i].from && others[i].to == runs[i].to);
    }
    /* A search for the first record's key finds as many records as a purge of it removes. */
    kl_record_t first;
    int walked;
    if (b->count > 0 && kl_record_scan(records, records + size, &first, &walked) != NULL && first.key != NULL) {
        kl_found_t found = {.key = {first.key, (size_t)first.key_size}};
        rules.purged = found.key;
        int looked = kl_clean_find(&found, &header, records, size, &bad);
        CHECK(kl_clean_choose(&rules, &header, records, size, 0, 0, others, &again, &bad) == looked);
        if (looked == KL_OK)
            CHECK(found.records >= 1 && found.records + again.count == b->count && again.sets_horizon == 0);
    }
    free(others);
    if (status == KL_OK)
        status = second;
    if (second == KL_OK && cleaned.count != 0) {
        CHECK(cleaned.count <= b->count && cleaned.runs <= cleaned.count);
        CHECK((size_t)cleaned.runs <= kl_clean_runs_max(b->count));
        uint8_t *out = malloc((size_t)cleaned.bytes_max + KL_BATCH_HEADER);
        if (out == NULL)
            abort();
        int64_t base = random_below(2) ? b->base_offset : cleaned.first_offset;
        int64_t written = kl_clean_write(&header, records, runs, &cleaned, base, out + KL_BATCH_HEADER);
        CHECK(written <= cleaned.bytes_max);
        kl_clean_seal(&header, &cleaned, base, 0, written, out);
        kl_batch_t left;
        CHECK(kl_batch_header(out, KL_BATCH_HEADER, &left) == KL_OK);
        CHECK(left.count == cleaned.count && left.base_offset == base && left.size == written + KL_BATCH_HEADER);
        CHECK(kl_batch_last_offset(&left) == kl_batch_last_offset(b));
        CHECK(kl_batch_crc(out, left.size) == left.crc);
        CHECK(kl_payload_validate(out + KL_BATCH_HEADER, (size_t)written, left.count, check ? left.last_offset_delta : -1,
                                  &bad) == KL_OK);
        /* Each kept record has its old fields and its old time. */
        const uint8_t *at = out + KL_BATCH_HEADER, *end = at + written, *from = records;
        int32_t number = 0;
        while (at != end) {
            kl_record_t mine, theirs;
            size_t used;
            CHECK(kl_record_next(at, (size_t)(end - at), &mine, &used) == KL_OK);
            at += used;
            int64_t offset = left.base_offset + mine.offset_delta;
            do {
                CHECK(kl_record_next(from, (size_t)(records + size - from), &theirs, &used) == KL_OK);
                from += used;
            } while (b->base_offset + theirs.offset_delta != offset && number++ < b->count);
            CHECK(mine.key_size == theirs.key_size && mine.value_size == theirs.value_size);
            CHECK(mine.key_size <= 0 || memcmp(mine.key, theirs.key, (size_t)mine.key_size) == 0);
            CHECK(mine.value_size <= 0 || memcmp(mine.value, theirs.value, (size_t)mine.value_size) == 0);
            CHECK(mine.header_count == theirs.header_count);
            uint64_t time = (uint64_t)left.base_timestamp + (uint64_t)mine.timestamp_delta;
            uint64_t expected = (uint64_t)b->base_timestamp + (uint64_t)theirs.timestamp_delta;
            CHECK(time == (attributes & KL_ATTR_LOG_APPEND_TIME ? (uint64_t)b->max_timestamp : expected));
            if (number > b->count)
                break;
        }
        free(out);
    }
    free(memory), free(records), free(runs);
    return status;
}

void test_clean(void) {
    uint8_t *out = malloc(1 << 16);
    static const int kinds[] = {0, KL_ATTR_LOG_APPEND_TIME, KL_ATTR_DELETE_HORIZON, KL_ATTR_TRANSACTIONAL};
    if (out == NULL)
        abort();
    for (int round = 0; round < 400; round++) {
        int32_t count = 1 + (int32_t)random_below(60);
        size_t size = make_batch(out, count);
        kl_batch_t b;
        CHECK(kl_batch_header(out, size, &b) == KL_OK);
        uint8_t *payload = out + KL_BATCH_HEADER;
        size -= KL_BATCH_HEADER;
        int attributes = kinds[random_below(4)];
        CHECK(clean_once(&b, payload, size, attributes, 1) == KL_OK);
        CHECK(clean_once(&b, payload, size - 1, attributes, 1) != KL_OK);
        b.count = count + 1;
        CHECK(clean_once(&b, payload, size, attributes, 1) == KL_ECOUNT);
        b.count = count;
        b.last_offset_delta = count - 2;
        if (count > 1)
            CHECK(clean_once(&b, payload, size, attributes, 1) == KL_EORDER);
        b.last_offset_delta = count - 1;
        for (int i = 0; i < 20; i++) {
            size_t at = random_below(size);
            uint8_t before = payload[at];
            payload[at] ^= (uint8_t)(1u << random_below(8));
            clean_once(&b, payload, size, attributes, 0);
            payload[at] = before;
        }
    }
    for (int round = 0; round < 3000; round++) {
        size_t size = random_below(200);
        kl_batch_t b = {.base_offset = INT64_MAX - 100, .count = (int32_t)random_below(30), .last_offset_delta = 60, .magic = 2};
        random_fill(out, size);
        clean_once(&b, out, size, kinds[random_below(4)], 0);
    }
    free(out);
}
