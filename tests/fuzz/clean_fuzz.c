/* The compaction of a batch: choices:16 payload.
 *
 *   choices := attributes:u8 rules:u8 count:u16 base:u32 slots:u8 start:u8 spread:u16 latest:u16 delta:u16
 *   rules   := bit 0 everything stays, 1 stale offsets are tracked, 2 a key is purged, 3 a marker is done, 4 the
 * horizon is
 *              over, 5 magic 1, 6 its tombstones stay
 *
 * Both passes accept the payloads that batch.c accepts. The survivors are those of a plain model, record by record; the
 * written batch fits the announced size, and a reader finds it; a search finds a key as often as it occurs.
 */
#include "fuzz.h"

#include "batch.h"
#include "bytes.h"
#include "clean.h"
#include "keymap.h"
#include "status.h"

enum { COUNT_MAX = 2000, STALE_WORDS = 16, MARKED_WORDS = 1 };

static kl_keyhash_t hash;

typedef struct {
    kl_record_t record;
    int64_t offset;
} seen_t;

static int same(const kl_record_t *a, const uint8_t *key, int32_t size) {
    return a->key != NULL && key != NULL && a->key_size == size && memcmp(a->key, key, (size_t)size) == 0;
}

/* The expected value of the map for a key: the last offset put for it; -1 for none. */
static int64_t last_put(const seen_t *seen, int32_t count, const kl_record_t *record, int64_t start, int64_t latest) {
    for (int32_t i = count; i-- > 0;) {
        if (seen[i].offset >= start && seen[i].offset <= latest && same(&seen[i].record, record->key, record->key_size))
            return seen[i].offset;
    }
    return -1;
}

static int rises(const seen_t *seen, int32_t count) {
    for (int32_t i = 1; i < count; i++) {
        if (seen[i].offset <= seen[i - 1].offset)
            return 0;
    }
    return 1;
}

/* Compares the written survivors with the source records: each one is the next source record that should stay. */
static void check_written(const kl_batch_t *b, const kl_cleaned_t *cleaned, const seen_t *seen, int32_t count,
                          const uint8_t *stays, const uint8_t *written, int64_t size) {
    const uint8_t *at = written, *end = written + size;
    int32_t found = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!stays[i])
            continue;
        kl_record_t r;
        size_t used;
        CLAIM(kl_record_next(at, (size_t)(end - at), &r, &used) == KL_OK);
        const kl_record_t *was = &seen[i].record;
        CLAIM(b->base_offset + r.offset_delta == seen[i].offset);
        CLAIM((r.key == NULL) == (was->key == NULL) && (r.value == NULL) == (was->value == NULL));
        CLAIM(r.key == NULL || same(&r, was->key, was->key_size));
        CLAIM(r.value == NULL || (r.value_size == was->value_size && !memcmp(r.value, was->value, (size_t)r.value_size)));
        CLAIM(r.header_count == was->header_count);
        if (!(b->attributes & KL_ATTR_LOG_APPEND_TIME))
            CLAIM((uint64_t)cleaned->base_timestamp + (uint64_t)r.timestamp_delta ==
                  (uint64_t)b->base_timestamp + (uint64_t)was->timestamp_delta);
        at += used;
        found++;
    }
    CLAIM(at == end && found == cleaned->count);
}

static void write_and_check(const kl_batch_t *b, const uint8_t *payload, const kl_clean_run_t *runs,
                            const kl_cleaned_t *cleaned, const seen_t *seen, const uint8_t *stays) {
    uint8_t *to = malloc(KL_BATCH_HEADER + (size_t)cleaned->bytes_max);
    CLAIM(to != NULL && cleaned->count > 0 && cleaned->count <= b->count);
    int64_t size = kl_clean_write(b, payload, runs, cleaned, b->base_offset, to + KL_BATCH_HEADER);
    CLAIM(size > 0 && size <= cleaned->bytes_max);
    check_written(b, cleaned, seen, b->count, stays, to + KL_BATCH_HEADER, size);
    kl_clean_seal(b, cleaned, b->base_offset, 0, size, to);
    kl_batch_t again;
    CLAIM(kl_batch_header(to, (size_t)size + KL_BATCH_HEADER, &again) == KL_OK && again.size == size + KL_BATCH_HEADER);
    CLAIM(again.count == cleaned->count && again.base_offset == b->base_offset && kl_batch_crc(to, again.size) == again.crc);
    CLAIM(b->magic < 2 || kl_batch_last_offset(&again) == kl_batch_last_offset(b));
    free(to);
}

static void choose(const kl_batch_t *b, const uint8_t *payload, size_t size, const kl_clean_rules_t *rules, int all,
                   int marker_done, int64_t start, const seen_t *seen) {
    size_t space = kl_clean_runs_max(b->count);
    kl_clean_run_t *runs = malloc(space * sizeof *runs);
    uint8_t *stays = malloc((size_t)b->count + 1);
    kl_cleaned_t cleaned;
    int32_t bad = -1;
    int timed = b->attributes & KL_ATTR_DELETE_HORIZON && b->magic >= 2;
    int kept = b->magic < 2 ? rules->keep_legacy_tombstones : !timed || rules->now < b->base_timestamp;
    CLAIM(runs != NULL && stays != NULL);
    CLAIM(kl_clean_choose(rules, b, payload, size, all, marker_done, runs, &cleaned, &bad) == KL_OK);
    int32_t expected = 0;
    for (int32_t i = 0; i < b->count; i++) {
        const kl_record_t *r = &seen[i].record;
        if (all)
            stays[i] = 1;
        else if (rules->purged.at != NULL)
            stays[i] = !same(r, rules->purged.at, (int32_t)rules->purged.size);
        else if (seen[i].offset > rules->latest_offset)
            stays[i] = 1;
        else
            stays[i] = r->key != NULL && (r->value != NULL || kept) &&
                       seen[i].offset >= last_put(seen, b->count, r, start, rules->latest_offset);
        expected += stays[i];
    }
    CLAIM(cleaned.count == expected && cleaned.runs >= 0 && (size_t)cleaned.runs <= space);
    kl_prediction_t predicted = kl_clean_predict(rules, b);
    CLAIM(predicted != KL_PREDICT_EMPTY || cleaned.count == 0 || all);
    CLAIM(predicted != KL_PREDICT_WHOLE || cleaned.whole || marker_done);
    if (cleaned.count != 0)
        write_and_check(b, payload, runs, &cleaned, seen, stays);
    free(stays);
    free(runs);
}

static void search(const kl_batch_t *b, const uint8_t *payload, size_t size, const seen_t *seen) {
    kl_found_t found = {0};
    int32_t bad = -1, times = 0;
    const kl_record_t *wanted = &seen[b->count - 1].record;
    if (wanted->key == NULL)
        return;
    found.key = (kl_key_t){wanted->key, (size_t)wanted->key_size};
    CLAIM(kl_clean_find(&found, b, payload, size, &bad) == KL_OK);
    for (int32_t i = 0; i < b->count; i++)
        times += same(&seen[i].record, wanted->key, wanted->key_size);
    CLAIM(found.records == times && found.bytes > 0 && found.last_offset == seen[b->count - 1].offset);
}

static void batch(kl_batch_t *b, const uint8_t *payload, size_t size, const uint8_t *choices) {
    uint64_t words[STALE_WORDS] = {0}, marked[MARKED_WORDS] = {0};
    int64_t slots = 1 + choices[8] % 64, start = b->base_offset + choices[9] % 32, latest = -1;
    void *memory = calloc(1, kl_keymap_bytes(slots));
    seen_t *seen = malloc((size_t)(b->count + 1) * sizeof *seen);
    int32_t bad = -1, also_bad = -1;
    CLAIM(memory != NULL && seen != NULL);
    kl_keymap_t map;
    memset(&map, 0, sizeof map);
    map.hash = hash;
    kl_keymap_init(&map, memory, slots, slots - (slots > 8));
    if (choices[1] & 2)
        kl_keymap_track_stale(&map, words, marked, start, STALE_WORDS * 64);

    int status = kl_clean_put_keys(&map, b, payload, size, start, &latest, &bad);
    int sound = kl_payload_validate(payload, size, b->count, -1, &also_bad);
    if (status != KL_OK && status != KL_EFULL) {
        CLAIM(status == KL_EORDER || (status == sound && bad == also_bad));
        goto done;
    }
    CLAIM(status == KL_EFULL || sound == KL_OK);
    if (sound != KL_OK)
        goto done;
    const uint8_t *at = payload;
    for (int32_t i = 0; i < b->count; i++) {
        size_t used;
        CLAIM(kl_record_next(at, size - (size_t)(at - payload), &seen[i].record, &used) == KL_OK);
        at += used;
        seen[i].offset = b->base_offset + seen[i].record.offset_delta;
        if (seen[i].record.offset_delta < 0 || seen[i].record.offset_delta > b->last_offset_delta) {
            CLAIM(status == KL_EFULL);
            goto done;
        }
    }
    CLAIM(latest >= -1 && map.size <= map.limit);
    /* A map that became full holds the keys up to `latest`, as long as offsets rise. */
    if (status == KL_EFULL && !rises(seen, b->count))
        goto done;
    if (status == KL_OK)
        latest = kl_batch_last_offset(b);
    kl_clean_rules_t rules = {
        .map = &map,
        .latest_offset = latest,
        .now = choices[1] & 16 ? INT64_MAX : b->base_timestamp - 1,
        .new_horizon = 1000,
        .keep_legacy_tombstones = choices[1] >> 6 & 1,
    };
    if (choices[1] & 4 && b->count != 0 && seen[0].record.key != NULL)
        rules.purged = (kl_key_t){seen[0].record.key, (size_t)seen[0].record.key_size};
    choose(b, payload, size, &rules, choices[1] & 1, choices[1] >> 3 & 1, start, seen);
    if (b->count != 0)
        search(b, payload, size, seen);
done:
    (void)kl_clean_control_type(b, payload, size);
    free(seen);
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t secret[16] = {7};
    const uint8_t *choices = fuzz_choices(&data, &size, 16);
    if (kl_keyhash_init(&hash, secret, choices[8] & 128 ? -1 : 0) == NULL)
        abort();
    int32_t count = (int32_t)kl_load_u16(choices + 2);
    kl_batch_t b = {
        .base_offset = kl_load_u32(choices + 4),
        .last_offset_delta = kl_load_u16(choices + 10),
        .size = (int32_t)(size + KL_BATCH_HEADER),
        .magic = choices[1] & 32 ? 1 : 2,
        .attributes = (int16_t)(choices[0] & (KL_ATTR_LOG_APPEND_TIME | KL_ATTR_TRANSACTIONAL | KL_ATTR_CONTROL |
                                              KL_ATTR_DELETE_HORIZON)),
        .base_timestamp = 1000 + kl_load_u16(choices + 14),
        .max_timestamp = 5000,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .count = count,
    };
    uint8_t *exact = fuzz_exact(data, size), empty[KL_BATCH_HEADER];
    if (count <= COUNT_MAX && (size_t)count <= size / KL_RECORD_MIN)
        batch(&b, exact, size, choices);
    kl_clean_empty(&b, empty);
    CLAIM(kl_batch_header(empty, sizeof empty, &b) == KL_OK && b.count == 0);
    free(exact);
    return 0;
}
