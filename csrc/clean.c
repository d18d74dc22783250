/* See clean.h for the contract of every function here. */
#include "clean.h"

#include <string.h>

#include "bytes.h"
#include "scan.h"
#include "status.h"
#include "varint.h"

/* Read the i-th record of a batch, whose offset must be one of the batch. Returns its end, or NULL with *status and
 * *bad set. */
static inline const uint8_t *next_record(const kl_batch_t *b, int32_t i, const uint8_t *at, const uint8_t *end,
                                  kl_record_t *record, int *status, int32_t *bad) {
    const uint8_t *after = kl_record_scan(at, end, record, status);
    if (after == NULL) {
        *bad = i;
        return NULL;
    }
    if (record->offset_delta < 0 || record->offset_delta > b->last_offset_delta) {
        *status = KL_EORDER;
        *bad = i;
        return NULL;
    }
    return after;
}

/* Check that no bytes are left after the last record. A batch without records is not checked. */
static inline int check_end(const kl_batch_t *b, const uint8_t *at, const uint8_t *end, int32_t *bad) {
    if (b->count == 0 || at == end)
        return KL_OK;
    *bad = b->count;
    return KL_ESLACK;
}

/* Keys to put into the map together. */
typedef struct {
    kl_key_t keys[KL_KEYMAP_GROUP];
    int64_t offsets[KL_KEYMAP_GROUP];
    int32_t n;
} group_t;

static int put_group(kl_keymap_t *map, group_t *group, int64_t *latest) {
    int32_t put = kl_keymap_put(map, group->keys, group->offsets, group->n);
    if (put > 0)
        *latest = group->offsets[put - 1];
    int full = put < group->n;
    group->n = 0;
    return full;
}

int kl_clean_put_keys(kl_keymap_t *map, const kl_batch_t *b, const uint8_t *records, size_t size, int64_t start,
                  int64_t *latest, int32_t *bad) {
    const uint8_t *at = records, *end = records + size;
    int32_t last_delta = -1;
    group_t group;
    group.n = 0;
    for (int32_t i = 0; i < b->count; i++) {
        kl_record_t record;
        int status;
        if ((at = next_record(b, i, at, end, &record, &status, bad)) == NULL)
            return status;
        if (record.offset_delta <= last_delta)
            kl_keymap_untrack_stale(map);
        last_delta = record.offset_delta;
        int64_t offset = b->base_offset + record.offset_delta;
        if (record.key == NULL || record.value == NULL)
            kl_keymap_mark(map, offset);
        if (record.key == NULL || offset < start)
            continue;
        group.keys[group.n] = (kl_key_t){record.key, (size_t)record.key_size};
        group.offsets[group.n] = offset;
        if (++group.n == KL_KEYMAP_GROUP && put_group(map, &group, latest))
            return KL_EFULL;
    }
    if (check_end(b, at, end, bad) != KL_OK)
        return KL_ESLACK;
    return group.n != 0 && put_group(map, &group, latest) ? KL_EFULL : KL_OK;
}

/* Records about which no decision has been made. */
typedef struct {
    kl_key_t keys[KL_KEYMAP_GROUP];
    int64_t offsets[KL_KEYMAP_GROUP];
    int64_t deltas[KL_KEYMAP_GROUP]; /* of timestamps */
    uint32_t from[KL_KEYMAP_GROUP], to[KL_KEYMAP_GROUP];
    uint8_t tombstone[KL_KEYMAP_GROUP];
    int32_t n;
} pending_t;

typedef struct {
    const kl_clean_rules_t *rules;
    const kl_batch_t *b;
    kl_clean_run_t *runs;
    kl_cleaned_t *out;
    int64_t max_timestamp;
    int keep_tombstones, has_tombstone;
} chooser_t;

/* Wraps, as in Java. */
static inline int64_t add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static inline void keep(chooser_t *c, const pending_t *d, int32_t i) {
    kl_cleaned_t *out = c->out;
    int64_t timestamp = add64(c->b->base_timestamp, d->deltas[i]);
    if (out->runs != 0 && c->runs[out->runs - 1].to == d->from[i])
        c->runs[out->runs - 1].to = d->to[i];
    else
        c->runs[out->runs++] = (kl_clean_run_t){d->from[i], d->to[i]};
    if (out->count++ == 0) {
        out->base_timestamp = timestamp;
        out->first_offset = d->offsets[i];
    }
    out->last_offset = d->offsets[i];
    if (timestamp > c->max_timestamp)
        c->max_timestamp = timestamp;
    c->has_tombstone |= d->tombstone[i];
}

static inline int same_key(kl_key_t a, kl_key_t b) {
    return a.at != NULL && a.size == b.size && (a.size == 0 || memcmp(a.at, b.at, a.size) == 0);
}

static void purge(chooser_t *c, pending_t *d) {
    for (int32_t i = 0; i < d->n; i++) {
        if (!same_key(d->keys[i], c->rules->purged))
            keep(c, d, i);
    }
    d->n = 0;
}

static void decide(chooser_t *c, pending_t *d) {
    int64_t found[KL_KEYMAP_GROUP];
    int64_t latest = c->rules->latest_offset;
    kl_keymap_get(c->rules->map, d->keys, d->n, found);
    for (int32_t i = 0; i < d->n; i++) {
        if (d->offsets[i] > latest)
            keep(c, d, i);
        else if (d->keys[i].at == NULL)
            c->out->keyless++;
        else if (d->offsets[i] >= found[i] && (!d->tombstone[i] || c->keep_tombstones))
            keep(c, d, i);
        else if (c->rules->waste != NULL)
            kl_waste_add(c->rules->waste, d->keys[i], d->to[i] - d->from[i], d->offsets[i]);
    }
    d->n = 0;
}

static void keep_all(chooser_t *c, pending_t *d) {
    for (int32_t i = 0; i < d->n; i++)
        keep(c, d, i);
    d->n = 0;
}

/* Has pass 1 put every key of a batch into the map, so that its bits show which records are stale?  Whether it has put
 * those of a transaction depends on how the transaction ended.  Waste is counted by keys, and a purge uses no other
 * rule: both need the keys. */
static inline int keys_in_map(const kl_clean_rules_t *rules, const kl_batch_t *b) {
    int64_t last = kl_batch_last_offset(b);
    return b->magic >= 2 && !(b->attributes & (KL_ATTR_CONTROL | KL_ATTR_TRANSACTIONAL)) &&
           rules->purged.at == NULL && rules->waste == NULL && last <= rules->latest_offset && last >= b->base_offset &&
           kl_keymap_tracks(rules->map, b->base_offset, last - b->base_offset + 1);
}

kl_prediction_t kl_clean_predict(const kl_clean_rules_t *rules, const kl_batch_t *b) {
    if (b->count == 0 || b->count - 1 != b->last_offset_delta || !keys_in_map(rules, b))
        return KL_PREDICT_NOTHING;
    int64_t stale = kl_keymap_count_stale(rules->map, b->base_offset, b->count);
    if (stale == b->count)
        return KL_PREDICT_EMPTY;
    int unmarked = !kl_keymap_is_marked(rules->map, b->base_offset, b->count);
    return stale == 0 && unmarked ? KL_PREDICT_WHOLE : KL_PREDICT_NOTHING;
}

/* Skip a record by its length alone; NULL if it is not of the common kind. */
static inline const uint8_t *skip_record(const uint8_t *at, const uint8_t *end) {
    uint32_t length;
    if (end - at < KL_SCAN_MIN || (at = kl_varint_scan(at, end, &length)) == NULL || length & 1)
        return NULL;
    length >>= 1;
    return (ptrdiff_t)length > end - at ? NULL : at + length;
}

/* Choose among the records of a batch with keys_in_map, without reading their keys.  Offsets rise from record to
 * record, as pass 1 has checked: if there are as many records as offsets, the i-th has the i-th offset.  Stale records
 * are skipped. */
static int choose_by_offset(chooser_t *c, const uint8_t *records, const uint8_t *end, int32_t *bad) {
    const kl_batch_t *b = c->b;
    const uint8_t *at = records;
    int dense = b->count - 1 == b->last_offset_delta;
    pending_t d;
    for (int32_t i = 0; i < b->count; i++) {
        kl_record_t record;
        int status;
        const uint8_t *after;
        if (dense && kl_keymap_stale(c->rules->map, b->base_offset + i) && (after = skip_record(at, end)) != NULL) {
            at = after;
            continue;
        }
        if ((after = next_record(b, i, at, end, &record, &status, bad)) == NULL)
            return status;
        d.offsets[0] = b->base_offset + record.offset_delta;
        d.deltas[0] = record.timestamp_delta;
        d.from[0] = (uint32_t)(at - records);
        d.to[0] = (uint32_t)(after - records);
        d.tombstone[0] = record.value == NULL;
        at = after;
        if (record.key == NULL)
            c->out->keyless++;
        else if (!kl_keymap_stale(c->rules->map, d.offsets[0]) && (!d.tombstone[0] || c->keep_tombstones))
            keep(c, &d, 0);
    }
    return check_end(b, at, end, bad);
}

/* The same for other batches: keep all records, or those that the map selects. */
static int choose_any(chooser_t *c, const uint8_t *records, const uint8_t *end, int all, int32_t *bad) {
    const kl_batch_t *b = c->b;
    const uint8_t *at = records;
    void (*rule)(chooser_t *, pending_t *) = all ? keep_all : c->rules->purged.at != NULL ? purge : decide;
    pending_t d;
    d.n = 0;
    for (int32_t i = 0; i < b->count; i++) {
        kl_record_t record;
        int status;
        const uint8_t *after = next_record(b, i, at, end, &record, &status, bad);
        if (after == NULL)
            return status;
        d.keys[d.n] = (kl_key_t){record.key, record.key == NULL ? 0 : (size_t)record.key_size};
        d.offsets[d.n] = b->base_offset + record.offset_delta;
        d.deltas[d.n] = record.timestamp_delta;
        d.from[d.n] = (uint32_t)(at - records);
        d.to[d.n] = (uint32_t)(after - records);
        d.tombstone[d.n] = record.value == NULL;
        at = after;
        if (++d.n == KL_KEYMAP_GROUP)
            rule(c, &d);
    }
    if (check_end(b, at, end, bad) != KL_OK)
        return KL_ESLACK;
    if (d.n != 0)
        rule(c, &d);
    return KL_OK;
}

int kl_clean_choose(const kl_clean_rules_t *rules, const kl_batch_t *b, const uint8_t *records, size_t size, int all,
                    int marker_done, kl_clean_run_t *runs, kl_cleaned_t *out, int32_t *bad) {
    int has_horizon = (b->attributes & KL_ATTR_DELETE_HORIZON) != 0 && b->magic >= 2;
    chooser_t c = {.rules = rules, .b = b, .runs = runs, .out = out, .max_timestamp = -1};
    c.keep_tombstones =
        b->magic < 2 ? rules->keep_legacy_tombstones : !has_horizon || rules->now < b->base_timestamp;
    *out = (kl_cleaned_t){0};
    int status = !all && keys_in_map(rules, b) ? choose_by_offset(&c, records, records + size, bad)
                                            : choose_any(&c, records, records + size, all, bad);
    if (status != KL_OK)
        return status;
    if (out->count == 0)
        return KL_OK;
    int purges = rules->purged.at != NULL;
    out->sets_horizon = b->magic >= 2 && !has_horizon && !purges && (c.has_tombstone || marker_done);
    out->whole = out->count == b->count && !out->sets_horizon && (b->magic >= 2 || purges);
    if (b->attributes & KL_ATTR_LOG_APPEND_TIME)
        out->base_timestamp = out->max_timestamp = b->max_timestamp; /* readers use it as every record's time */
    else
        out->max_timestamp = c.max_timestamp;
    if (out->sets_horizon)
        out->base_timestamp = rules->new_horizon;
    else if (has_horizon)
        out->base_timestamp = b->base_timestamp;
    /* Each number may take its longest encoding. */
    out->bytes_max = (int64_t)size + (int64_t)out->count * (KL_VARINT_MAX + KL_VARLONG_MAX + KL_VARINT_MAX);
    return KL_OK;
}

int64_t kl_clean_write(const kl_batch_t *b, const uint8_t *records, const kl_clean_run_t *runs, const kl_cleaned_t *out,
                       int64_t base_offset, uint8_t *to) {
    int64_t shift = add64(b->base_timestamp, -out->base_timestamp);
    int log_append_time = (b->attributes & KL_ATTR_LOG_APPEND_TIME) != 0;
    int32_t moved = (int32_t)(base_offset - b->base_offset);
    uint8_t *start = to;
    for (int32_t i = 0; i < out->runs; i++) {
        const uint8_t *at = records + runs[i].from, *end = records + runs[i].to;
        if (shift == 0 && moved == 0 && !log_append_time) {
            memcpy(to, at, (size_t)(end - at));
            to += end - at;
            continue;
        }
        while (at != end) {
            int32_t length = 0, offset_delta = 0; /* these bytes have been decoded before, without errors */
            int64_t delta = 0;
            size_t used = 0;
            kl_varint_decode(at, (size_t)(end - at), &length, &used);
            at += used;
            const uint8_t *after = at + length;
            uint8_t attributes = *at++;
            kl_varlong_decode(at, (size_t)(after - at), &delta, &used);
            at += used;
            kl_varint_decode(at, (size_t)(after - at), &offset_delta, &used);
            at += used;
            delta = log_append_time ? add64(out->max_timestamp, -out->base_timestamp) : add64(delta, shift);
            offset_delta -= moved;
            size_t rest = (size_t)(after - at);
            to += kl_varint_encode(to, (int32_t)(1 + kl_varlong_size(delta) + kl_varint_size(offset_delta) + rest));
            *to++ = attributes;
            to += kl_varlong_encode(to, delta);
            to += kl_varint_encode(to, offset_delta);
            memcpy(to, at, rest);
            to += rest;
            at = after;
        }
    }
    return to - start;
}

void kl_clean_seal(const kl_batch_t *b, const kl_cleaned_t *cleaned, int64_t base_offset, int codec, int64_t size,
                   uint8_t *at) {
    kl_batch_t header = *b;
    int64_t last_offset = b->magic >= 2 ? kl_batch_last_offset(b) : cleaned->last_offset;
    header.magic = 2;
    header.base_offset = base_offset;
    header.last_offset_delta = (int32_t)(last_offset - base_offset);
    header.base_timestamp = cleaned->base_timestamp;
    header.max_timestamp = cleaned->max_timestamp;
    header.count = cleaned->count;
    header.attributes = (int16_t)((b->attributes & (KL_ATTR_LOG_APPEND_TIME | KL_ATTR_TRANSACTIONAL | KL_ATTR_CONTROL |
                                                    KL_ATTR_DELETE_HORIZON)) |
                                  codec);
    if (cleaned->sets_horizon)
        header.attributes |= KL_ATTR_DELETE_HORIZON;
    header.size = (int32_t)(size + KL_BATCH_HEADER);
    kl_batch_seal(at, &header);
}

void kl_clean_empty(const kl_batch_t *b, uint8_t *at) {
    kl_batch_t header = *b;
    header.magic = 2;
    header.base_timestamp = -1;
    header.count = 0;
    header.attributes = b->attributes & (KL_ATTR_LOG_APPEND_TIME | KL_ATTR_TRANSACTIONAL | KL_ATTR_CONTROL);
    header.size = KL_BATCH_HEADER;
    kl_batch_seal(at, &header);
}

int kl_clean_find(kl_found_t *found, const kl_batch_t *b, const uint8_t *records, size_t size, int32_t *bad) {
    const uint8_t *at = records, *end = records + size;
    for (int32_t i = 0; i < b->count; i++) {
        kl_record_t record;
        int status;
        const uint8_t *after = next_record(b, i, at, end, &record, &status, bad);
        if (after == NULL)
            return status;
        if (record.key != NULL && same_key((kl_key_t){record.key, (size_t)record.key_size}, found->key)) {
            int64_t offset = b->base_offset + record.offset_delta;
            if (found->records++ == 0)
                found->first_offset = offset;
            found->last_offset = offset;
            found->bytes += after - at;
        }
        at = after;
    }
    return check_end(b, at, end, bad);
}

int32_t kl_clean_control_type(const kl_batch_t *b, const uint8_t *records, size_t size) {
    kl_record_t record;
    int status;
    if (b->count == 0)
        return -1;
    if (kl_record_scan(records, records + size, &record, &status) == NULL || record.key == NULL || record.key_size < 4)
        return -2;
    return kl_load_u16(record.key + 2);
}
