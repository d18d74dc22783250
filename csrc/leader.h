/* A partition leader's checks of a producer's records, and the payloads that it writes if it cannot keep the
 * producer's payload: because it has another codec, or messages of magic 0 and 1.
 *
 * A scan reads every record once and stores only whether a record may be refused.  A second walk makes the list of the
 * refused records, for the few callers that need it.  Between scan and write the bytes must not change.  Nothing here
 * allocates.
 * Kafka: LogValidator.
 */
#ifndef KL_LEADER_H
#define KL_LEADER_H

#include <stddef.h>
#include <stdint.h>

#include "batch.h"

/* The rules for each record.  Times in ms; differences wrap in 64 bits, as in Java. */
typedef struct {
    int64_t now;
    int64_t before_max;   /* how far a timestamp may be before now, and after it; both at least 0 */
    int64_t after_max;
    int range_checked;    /* the topic keeps the producers' timestamps.  -1, no timestamp, is always allowed */
    int negative_refused; /* no other negative timestamp is allowed: a rewritten batch cannot have one */
    int key_required;     /* the topic is compacted */
    int log_append_time;  /* the batch has the LogAppendTime attribute, which a producer must not set */
} kl_leader_rules_t;

typedef enum {
    KL_REFUSED_NOT,
    KL_REFUSED_MAGIC,     /* a message in a wrapper of a different magic */
    KL_REFUSED_KEY,       /* no key, and the topic is compacted */
    KL_REFUSED_LOG_APPEND_TIME,
    KL_REFUSED_TIMESTAMP, /* outside the range */
    KL_REFUSED_NEGATIVE,
} kl_refused_t;

typedef struct {
    int64_t timestamp;
    int32_t number;       /* of the record in its batch, from 0 */
    int32_t reason;       /* kl_refused_t */
} kl_refusal_t;

/* Result of a scan. */
typedef struct {
    int64_t max_timestamp;   /* -1 for none */
    int64_t first_timestamp;
    int64_t size;            /* of the payload of magic 2 that holds these records; only from kl_set_scan */
    int32_t count;           /* of records or messages */
    int32_t misnumbered;     /* number of the first record whose offset delta is not its number, -1 for none */
    int32_t may_be_refused;  /* 1: the list of refusals may have entries, 0: it has none */
} kl_leader_result_t;

/* Scan the payload of a batch of magic 2 with the producer's base_timestamp and count.
 * KL_OK, or any code of kl_payload_validate for its bytes, with *bad set. */
int kl_leader_scan(const uint8_t *payload, size_t size, int32_t count, int64_t base_timestamp,
                   const kl_leader_rules_t *rules, kl_leader_result_t *out, int32_t *bad);

/* List the records that the rules refuse, in a payload that kl_leader_scan has accepted.  Returns the number of all of
 * them; the first `space` of them are written to to, in their order. */
int32_t kl_leader_refusals(const uint8_t *payload, size_t size, int32_t count, int64_t base_timestamp,
                           const kl_leader_rules_t *rules, kl_refusal_t *to, int32_t space);

/* Rewrite the records as a leader does: offset deltas 0, 1, 2 ..., timestamps from the first one on, no attributes,
 * every number in its shortest form.  kl_leader_rewrite_size returns the size, kl_leader_rewrite needs it. */
int64_t kl_leader_rewrite_size(const uint8_t *payload, size_t size, int32_t count);
void kl_leader_rewrite(const uint8_t *payload, size_t size, int32_t count, uint8_t *to);

/* A set of messages of magic 0 or 1, one directly after the other: the messages in a wrapper or, if wrapped is 0,
 * messages as the producer sent them, each of them a batch. */
typedef struct {
    const uint8_t *at;
    size_t size;
    int64_t offset;  /* the wrapper's */
    int8_t magic;    /* the wrapper's, or the first message's */
    int wrapped;
} kl_set_t;

/* Scan a set.  In a wrapper a message cut short at the end is ignored, checksums are compared, and a message of a
 * different magic is refused without further checks.  Without a wrapper, the scan ends at the first refused message:
 * count is one more than its number.
 * KL_OK, or the first failure with *bad set to the number of its message: KL_ELENGTH, KL_ECRC, KL_ECODEC (a message in
 * a wrapper has a codec), KL_EORDER (a wrapper of magic 1, not at 0, before its last message), KL_ECOUNT (no message),
 * KL_EMAGIC (a different magic, without a wrapper). */
int kl_set_scan(const kl_set_t *set, const kl_leader_rules_t *rules, kl_leader_result_t *out, int32_t *bad);

/* See kl_leader_refusals, for the first count messages. */
int32_t kl_set_refusals(const kl_set_t *set, int32_t count, const kl_leader_rules_t *rules, kl_refusal_t *to,
                        int32_t space);

/* Write the payload of result->size bytes, after a scan without refused messages. */
void kl_set_write(const kl_set_t *set, const kl_leader_result_t *result, uint8_t *to);

#endif
