/* See leader.h for the contract of every function here. */
#include "leader.h"

#include "bytes.h"
#include "encode.h"
#include "legacy.h"
#include "scan.h"
#include "status.h"

static inline int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* The only function that applies the rules to a record. */
static kl_refused_t refusal_of(const kl_leader_rules_t *rules, int has_key, int64_t timestamp) {
    if (rules->key_required && !has_key)
        return KL_REFUSED_KEY;
    if (rules->log_append_time)
        return KL_REFUSED_LOG_APPEND_TIME;
    if (timestamp == -1)
        return KL_REFUSED_NOT;
    if (rules->range_checked) {
        int64_t age = wrap_sub(rules->now, timestamp);
        if (age > rules->before_max || wrap_sub(0, age) > rules->after_max)
            return KL_REFUSED_TIMESTAMP;
    }
    return rules->negative_refused && timestamp < 0 ? KL_REFUSED_NEGATIVE : KL_REFUSED_NOT;
}

static int32_t add_refusal(const kl_leader_rules_t *rules, int has_key, int64_t timestamp, int32_t number, int32_t n,
                    kl_refusal_t *to, int32_t space) {
    kl_refused_t reason = refusal_of(rules, has_key, timestamp);
    if (reason == KL_REFUSED_NOT)
        return n;
    if (n < space)
        to[n] = (kl_refusal_t){.timestamp = timestamp, .number = number, .reason = reason};
    return n + 1;
}

/* Magic 2 ---------------------------------------------------------------------------------------------------------- */

/* age lies in [-after_max, before_max] if age + after_max, unsigned, is at most before_max + after_max: one comparison
 * a record, without a branch.  It may flag a record that refusal_of() accepts (one without a timestamp, or with the one
 * age that has no negative), but it flags every record that refusal_of() refuses. */
int kl_leader_scan(const uint8_t *payload, size_t size, int32_t count, int64_t base_timestamp,
                   const kl_leader_rules_t *rules, kl_leader_result_t *out, int32_t *bad) {
    const uint8_t *at = payload, *end = payload + size;
    const uint64_t newest = (uint64_t)rules->now + (uint64_t)rules->after_max;
    const uint64_t span =
        rules->range_checked ? (uint64_t)rules->before_max + (uint64_t)rules->after_max : UINT64_MAX;
    const int64_t below = rules->negative_refused ? 0 : INT64_MIN;
    int64_t max_timestamp = -1, first_timestamp = -1;
    int32_t misnumbered = 0, keys = 0;
    unsigned may_be_refused = 0;
    for (int32_t i = 0; i < count; i++) {
        kl_record_t record;
        int status;
        const uint8_t *after = kl_record_scan(at, end, &record, &status);
        if (after == NULL) {
            *bad = i;
            return status;
        }
        int64_t timestamp = wrap_add(base_timestamp, record.timestamp_delta);
        may_be_refused |= (unsigned)(newest - (uint64_t)timestamp > span) | (unsigned)(timestamp < below);
        misnumbered |= record.offset_delta ^ i;
        keys |= record.key_size;
        if (timestamp > max_timestamp)
            max_timestamp = timestamp;
        if (i == 0)
            first_timestamp = timestamp;
        at = after;
    }
    if (at != end) {
        *bad = count;
        return KL_ESLACK;
    }
    *out = (kl_leader_result_t){
        .max_timestamp = max_timestamp,
        .first_timestamp = first_timestamp,
        .count = count,
        .misnumbered = -1,
        .may_be_refused = (int)may_be_refused | (rules->key_required && keys < 0) | (rules->log_append_time != 0),
    };
    if (misnumbered != 0) { /* rare, so the record is searched for only now */
        at = payload;
        for (int32_t i = 0; i < count; i++) {
            kl_record_t record;
            size_t used = 0;
            if (kl_record_next(at, (size_t)(end - at), &record, &used) != KL_OK)
                break;
            if (record.offset_delta != i) {
                out->misnumbered = i;
                break;
            }
            at += used;
        }
    }
    return KL_OK;
}

int32_t kl_leader_refusals(const uint8_t *payload, size_t size, int32_t count, int64_t base_timestamp,
                           const kl_leader_rules_t *rules, kl_refusal_t *to, int32_t space) {
    const uint8_t *at = payload, *end = payload + size;
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++) {
        kl_record_t record;
        size_t used = 0;
        if (kl_record_next(at, (size_t)(end - at), &record, &used) != KL_OK)
            break;
        n = add_refusal(rules, record.key_size >= 0, wrap_add(base_timestamp, record.timestamp_delta), i, n, to, space);
        at += used;
    }
    return n;
}

/* The fields of the new record except its headers, which are measured here and written by the caller. */
static void rewritten(const kl_record_t *record, const uint8_t *after, int32_t number, int64_t shift,
                    kl_record_in_t *out) {
    int64_t headers_size = 0;
    const uint8_t *at = record->headers;
    for (int32_t i = 0; i < record->header_count; i++) {
        kl_record_header_t header;
        size_t used = 0;
        if (kl_record_header_next(at, (size_t)(after - at), &header, &used) != KL_OK)
            break;
        headers_size += (int64_t)kl_varint_size(header.key_size) + header.key_size +
                        (int64_t)kl_varint_size(header.value_size) + (header.value_size > 0 ? header.value_size : 0);
        at += used;
    }
    *out = (kl_record_in_t){
        .key = record->key,
        .value = record->value,
        .key_size = record->key_size,
        .value_size = record->value_size,
        .headers_size = headers_size,
        .timestamp_delta = wrap_add(record->timestamp_delta, shift),
        .offset_delta = number,
        .header_count = record->header_count,
    };
}

/* The change of all deltas when the first record's time becomes the base. */
static int64_t shift_of(const uint8_t *payload, size_t size) {
    kl_record_t record;
    size_t used = 0;
    return kl_record_next(payload, size, &record, &used) == KL_OK ? wrap_sub(0, record.timestamp_delta) : 0;
}

int64_t kl_leader_rewrite_size(const uint8_t *payload, size_t size, int32_t count) {
    const uint8_t *at = payload, *end = payload + size;
    int64_t shift = shift_of(payload, size), total = 0;
    for (int32_t i = 0; i < count; i++) {
        kl_record_t record;
        kl_record_in_t new_record;
        size_t used = 0;
        if (kl_record_next(at, (size_t)(end - at), &record, &used) != KL_OK)
            break;
        rewritten(&record, at + used, i, shift, &new_record);
        int64_t body = kl_record_body_size(&new_record);
        total += (int64_t)kl_varlong_size(body) + body;
        at += used;
    }
    return total;
}

void kl_leader_rewrite(const uint8_t *payload, size_t size, int32_t count, uint8_t *to) {
    const uint8_t *at = payload, *end = payload + size;
    int64_t shift = shift_of(payload, size);
    for (int32_t i = 0; i < count; i++) {
        kl_record_t record;
        kl_record_in_t new_record;
        size_t used = 0;
        if (kl_record_next(at, (size_t)(end - at), &record, &used) != KL_OK)
            break;
        at += used;
        rewritten(&record, at, i, shift, &new_record);
        int64_t body = kl_record_body_size(&new_record);
        new_record.headers_size = 0; /* body includes the headers, whose bytes are written below */
        to = kl_record_write(to, &new_record, body);
        const uint8_t *from = record.headers;
        for (int32_t h = 0; h < record.header_count; h++) {
            kl_record_header_t header;
            if (kl_record_header_next(from, (size_t)(at - from), &header, &used) != KL_OK)
                break;
            to = kl_header_write(to, header.key, header.key_size, header.value, header.value_size);
            from += used;
        }
    }
}

/* Magic 0 and 1 ---------------------------------------------------------------------------------------------------- */

/* The size of the next whole message of a set; 0 at its end, or if the last message is cut short; or KL_ELENGTH. */
static int64_t message_size(const kl_set_t *set, size_t from) {
    size_t left = set->size - from;
    if (left < KL_MESSAGE_PREFIX)
        return 0;
    int32_t size = (int32_t)kl_load_u32(set->at + from + KL_AT_LENGTH);
    if (size < KL_MESSAGE_SIZE_MIN)
        return KL_ELENGTH;
    return (size_t)size > left - KL_MESSAGE_PREFIX ? 0 : (int64_t)size + KL_MESSAGE_PREFIX;
}

/* Check the frames of a wrapper's messages before any message: all of them are whole and below the wrapper's offset. */
static int check_frames(const kl_set_t *set, int32_t *bad) {
    int64_t size, last = 0;
    size_t from = 0;
    int32_t n = 0;
    while ((size = message_size(set, from)) > 0) {
        last = (int64_t)kl_load_u64(set->at + from);
        from += (size_t)size;
        n++;
    }
    *bad = n;
    if (size < 0)
        return (int)size;
    if (n == 0)
        return KL_ECOUNT;
    return set->magic == 1 && set->offset != 0 && set->offset < last ? KL_EORDER : KL_OK;
}

static int check_message(const kl_set_t *set, const uint8_t *at, int64_t size, kl_message_t *m, int *other_magic) {
    *other_magic = (int8_t)at[KL_AT_MAGIC] != set->magic;
    if (set->wrapped && (at[KL_MESSAGE_AT_ATTRIBUTES] & KL_ATTR_CODEC) != 0)
        return KL_ECODEC;
    if (*other_magic)
        return set->wrapped ? KL_OK : KL_EMAGIC;
    if (set->wrapped && kl_message_crc(at, (int32_t)size) != kl_load_u32(at + KL_MESSAGE_AT_CRC))
        return KL_ECRC;
    return kl_message_next(at, (size_t)size, m);
}

static void as_record(const kl_message_t *m, int32_t number, int64_t first_timestamp, kl_record_in_t *out) {
    *out = (kl_record_in_t){
        .key = m->key,
        .value = m->value,
        .key_size = m->key_size,
        .value_size = m->value_size,
        .timestamp_delta = wrap_sub(m->timestamp, first_timestamp),
        .offset_delta = number,
    };
}

int kl_set_scan(const kl_set_t *set, const kl_leader_rules_t *rules, kl_leader_result_t *out, int32_t *bad) {
    kl_leader_result_t found = {.max_timestamp = -1, .first_timestamp = -1, .misnumbered = -1};
    int64_t size;
    int status;
    if (set->wrapped && (status = check_frames(set, bad)) != KL_OK)
        return status;
    for (size_t from = 0; (size = message_size(set, from)) > 0; from += (size_t)size) {
        kl_message_t m;
        kl_record_in_t record;
        int other_magic;
        status = check_message(set, set->at + from, size, &m, &other_magic);
        if (status != KL_OK) {
            *bad = found.count;
            return status;
        }
        int32_t number = found.count++;
        if (other_magic || refusal_of(rules, m.key_size >= 0, m.timestamp) != KL_REFUSED_NOT) {
            found.may_be_refused = 1;
            if (!set->wrapped)
                break;
            continue;
        }
        if (number == 0)
            found.first_timestamp = m.timestamp;
        if (m.timestamp > found.max_timestamp)
            found.max_timestamp = m.timestamp;
        as_record(&m, number, found.first_timestamp, &record);
        int64_t body = kl_record_body_size(&record);
        found.size += (int64_t)kl_varlong_size(body) + body;
    }
    *bad = found.count;
    if (size < 0)
        return (int)size;
    *out = found;
    return KL_OK;
}

int32_t kl_set_refusals(const kl_set_t *set, int32_t count, const kl_leader_rules_t *rules, kl_refusal_t *to,
                        int32_t space) {
    int32_t n = 0;
    size_t from = 0;
    for (int32_t i = 0; i < count; i++) {
        kl_message_t m;
        int other_magic;
        int64_t size = message_size(set, from);
        if (size <= 0 || check_message(set, set->at + from, size, &m, &other_magic) != KL_OK)
            break;
        if (!other_magic) {
            n = add_refusal(rules, m.key_size >= 0, m.timestamp, i, n, to, space);
        } else {
            if (n < space)
                to[n] = (kl_refusal_t){.timestamp = -1, .number = i, .reason = KL_REFUSED_MAGIC};
            n++;
        }
        from += (size_t)size;
    }
    return n;
}

void kl_set_write(const kl_set_t *set, const kl_leader_result_t *result, uint8_t *to) {
    size_t from = 0;
    for (int32_t i = 0; i < result->count; i++) {
        kl_message_t m;
        kl_record_in_t record;
        int64_t size = message_size(set, from);
        if (size <= 0 || kl_message_next(set->at + from, (size_t)size, &m) != KL_OK)
            break;
        as_record(&m, i, result->first_timestamp, &record);
        to = kl_record_write(to, &record, kl_record_body_size(&record));
        from += (size_t)size;
    }
}
